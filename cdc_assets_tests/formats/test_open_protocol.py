"""The Open Protocol: recorded vectors, round trips, partial rows and large messages."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.decoded import Decoded, Op
from cdc_assets.formats.messages import read_claim
from cdc_assets.formats.open_protocol import classify, decode, schemas
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets_tests.topics import messages_of, rows_of

OPTIONS = MessageOptions(protocol="open-protocol")
T = TableId("test", "t")
SCHEMA = TableSchema(
    (
        Column("id", "BIGINT", unsigned=True, nullable=False, is_pk=True),
        Column("name", "VARCHAR"),
        Column("raw", "VARBINARY"),
        Column("long", "TEXT"),
        Column("d", "DOUBLE"),
    ),
    ("id",),
)
_CODES = {"id": (8, 139), "name": (15, 64), "raw": (15, 65), "long": (252, 64), "d": (5, 65)}


def framed(pieces: list[bytes], head: bytes = b"") -> bytes:
    return head + b"".join(struct.pack(">Q", len(piece)) + piece for piece in pieces)


def event(side: dict[str, Any], **more: dict[str, Any]) -> bytes:
    sides = {name: {c: {"t": _CODES[c][0], "f": _CODES[c][1], "v": v} for c, v in values.items()}
             for name, values in {**side, **more}.items()}  # fmt: skip
    return json.dumps(sides, ensure_ascii=False, separators=(",", ":")).encode()


def message(*events: tuple[dict[str, Any], bytes]) -> tuple[bytes, bytes]:
    keys = [json.dumps({"scm": "test", "tbl": "t", "t": 1, **head}).encode() for head, _ in events]
    return framed(keys, struct.pack(">Q", 1)), framed([value for _, value in events])


def decoded(*messages: tuple[bytes, bytes], options: MessageOptions = OPTIONS) -> Decoded:
    batch = messages_of(messages)
    return decode(rows_of(batch, classify(batch, options), T), "landed", T, SCHEMA, options)


def rows(decoded_rows: Decoded) -> list[tuple[Any, ...]]:
    assert decoded_rows.rejects == ()
    return [tuple(row.values()) for row in decoded_rows.changes.to_pylist()]


def said(*messages: tuple[bytes | None, bytes | None], options: MessageOptions = OPTIONS) -> list[dict[str, Any]]:
    spoken_messages: list[dict[str, Any]] = classify(messages_of(messages), options).to_pylist()
    return spoken_messages


def test_marks_and_ddl() -> None:
    mark = "0000000000000001000000000000001f7b227473223a3436353238333333393132343733363032342c2274223a337d"
    create = (
        framed([b'{"ts":465283339124736025,"scm":"types","t":2}'], struct.pack(">Q", 1)),
        framed([b'{"q":"CREATE DATABASE `types`","t":1}']),
    )
    first, second = said((bytes.fromhex(mark), bytes(8)), create)
    assert (first["kind"], first["commit_ts"]) == ("resolved", 465283339124736024)
    assert (second["kind"], second["schema"], second["table"], second["type"]) == ("ddl", "types", "", 1)
    assert second["query"] == "CREATE DATABASE `types`"


def test_an_update_that_brings_what_changed_keeps_the_rest() -> None:
    full = {"id": 1, "name": "b", "raw": None, "long": "dHh0", "d": 0.5}
    update = message(({"ts": 7}, event({"u": full}, p={"name": "a"})))
    partial = MessageOptions(protocol="open-protocol", only_output_updated_columns=True)
    assert rows(decoded(update, options=partial)) == [
        (Op.DELETE, 7, 1, 1, "a", None, "txt", 0.5),
        (Op.INSERT, 7, 1, 1, "b", None, "txt", 0.5),
    ]
    [reject] = decoded(update).rejects
    assert "only-output-updated-columns" in reject.reason


def test_a_claim_is_reported_with_its_place_and_its_file_read() -> None:
    head = {"ts": 7, "ccl": "s3://claims/0a1b.json"}
    [spoken_message] = said(message((head, event({"u": {"id": 1}}))))
    assert (spoken_message["kind"], spoken_message["claim"], spoken_message["table"]) == (
        "row",
        "s3://claims/0a1b.json",
        "t",
    )
    key, value = message(({"ts": 7}, event({"u": {"id": 1, "name": "x", "raw": None, "long": None, "d": None}})))
    file = {"key": base64.b64encode(key).decode(), "value": base64.b64encode(value).decode()}
    claimed_message = read_claim(json.dumps(file).encode(), OPTIONS)
    assert rows(decoded((claimed_message[0] or b"", claimed_message[1]))) == [
        (Op.INSERT, 7, 1, 1, "x", None, None, None)
    ]


def test_a_row_that_lies_elsewhere_is_a_line_of_its_own_among_those_of_its_message() -> None:
    heads = ({"ts": 6}, {"ts": 7, "ccl": "s3://c/a.json"}, {"ts": 8}, {"ts": 8})
    key, value = message(*((head, event({"u": {"id": 1}})) for head in heads))
    ohk_twice = [piece.replace(b'"ccl"', b'"ohk":true,"ohk":false,"ccl"') for piece in pieces(key)]
    for message_key in (key, framed(ohk_twice, key[:8])):  # the latter as the new architecture writes it
        claims = [(line["ordinals"], line["claim"]) for line in said((message_key, value))]
        assert claims == [([0], None), ([1], "s3://c/a.json"), ([2, 3], None)]
        assert [shown.version for shown in schemas(messages_of([(message_key, value)]), OPTIONS)] == [6]


def pieces(key: bytes) -> list[bytes]:
    key_pieces, at = list[bytes](), 8
    while at < len(key):
        (length,) = struct.unpack_from(">Q", key, at)
        key_pieces.append(key[at + 8 : at + 8 + length])
        at += 8 + length
    return key_pieces


def test_deletes_of_their_key_only_show_no_columns() -> None:
    sent = messages_of([message(({"ts": 6}, event({"d": {"id": 1}})), ({"ts": 7}, event({"u": {"id": 1, "d": 1.5}})))])
    of_keys = MessageOptions(protocol="open-protocol", delete_only_output_handle_key_columns=True)
    assert [[c.name for c in schema_event.schema.columns] for schema_event in schemas(sent, of_keys)] == [["id", "d"]]
    assert [schema_event.version for schema_event in schemas(sent, OPTIONS)] == [6, 7]


def test_a_row_of_its_key_only_is_bad_and_says_which_option_to_change() -> None:
    [spoken_message] = said(message(({"ts": 7, "ohk": True}, event({"u": {"id": 1}}))))
    assert (
        spoken_message["kind"],
        spoken_message["table"],
        spoken_message["commit_ts"],
        spoken_message["ordinals"],
    ) == ("bad", "t", 7, [0])
    assert "claim-check" in spoken_message["reason"]


def test_the_key_of_a_large_row_is_enough_for_its_delete() -> None:
    options = MessageOptions(protocol="open-protocol", large_message_handle_option="handle-key-only")
    head = {"ts": 7, "ohk": True}
    gone, changed = message((head, event({"d": {"id": 1}}))), message((head, event({"u": {"id": 1}})))
    assert [spoken_message["kind"] for spoken_message in said(gone, changed, options=options)] == ["row", "bad"]
    assert rows(decoded(gone, options=options)) == [(Op.DELETE_KEY, 7, 1, 1, None, None, None, None)]


@pytest.mark.parametrize("compression", ["snappy", "lz4"])
def test_values_may_be_compressed_each_by_itself(compression: str) -> None:
    options = MessageOptions(protocol="open-protocol", large_message_handle_compression=compression)
    plain = event({"u": {"id": 1, "name": "x" * 500, "raw": None, "long": None, "d": None}})
    packed = pa.Codec(compression).compress(plain, asbytes=True)
    decoded_rows = decoded(message(({"ts": 7}, packed)), options=options)
    assert rows(decoded_rows) == [(Op.INSERT, 7, 1, 1, "x" * 500, None, None, None)]
    [reject] = decoded(message(({"ts": 7}, plain)), options=options).rejects
    assert compression in reject.reason


def test_bytes_are_quoted_as_go_quotes_them() -> None:
    quoted = r"\x00\xff\a\b\f\n\r\t\v\\\"é\u2028\U0001f600"
    value = event({"u": {"id": 1, "name": None, "raw": quoted, "long": None, "d": None}})
    [row] = rows(decoded(message(({"ts": 7}, value))))
    assert row[5] == b'\x00\xff\a\b\f\n\r\t\v\\"' + "é\u2028😀".encode()
    wrong = event({"u": {"id": 1, "name": None, "raw": r"\q", "long": None, "d": None}})
    assert [reject.column for reject in decoded(message(({"ts": 7}, wrong))).rejects] == ["raw"]


def test_a_row_that_does_not_fit_is_a_reject_alone() -> None:
    good = {"id": (1 << 64) - 1, "name": "x", "raw": None, "long": None, "d": 1e300}
    strange = json.dumps({"u": {"more": {"t": 3, "f": 0, "v": 1}}}).encode()
    decoded_rows = decoded(
        message(({"ts": 1}, event({"u": good})), ({"ts": 2}, strange), ({"ts": 3}, b"{}"), ({"ts": 4}, b"nonsense")),
        message(({"ts": 5}, event({"u": {**good, "id": "1"}}))),
    )
    assert decoded_rows.changes.column("id").to_pylist() == [(1 << 64) - 1]
    places = [(reject.line, reject.column, reject.commit_ts) for reject in decoded_rows.rejects]
    assert places == [(2, "more", 2), (3, "", 3), (4, "", 4), (5, "id", 5)]
    assert decoded_rows.rejects[2].raw == b"nonsense"


NAMELESS = '{"t":15,"f":64,"v":"a"}'


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (NAMELESS, ""),
        ('{"t":15,"f":64,"v":"a","t":252,"f":64,"v":"YQ=="}', ""),
        ('{"d":{"t":5,"f":65,"v":1.5},"t":15,"f":64,"v":"a"}', ""),
        ('{"id":{"t":8,"f":139,"v":2},"t":15,"f":64,"v":"a"}', "only-output-updated-columns = false"),
        ('{"v":"a"}', "only-output-updated-columns = false"),
        ('{"t":15,"t":16}', "only-output-updated-columns = false"),
        ('{"id":{"t":8,"f":139,"v":2,"v":3}}', "is not of its type"),
    ],
)
def test_values_before_without_the_names_of_their_columns_are_those_that_became_null(before: str, says: str) -> None:
    """As the new architecture writes them where only changed columns are sent."""
    after = event({"u": {"id": 1, "name": None, "raw": None, "long": None, "d": 2.5}})
    options = MessageOptions(protocol="open-protocol", only_output_updated_columns=True)
    decoded_rows = decoded(message(({"ts": 5}, after[:-1] + b',"p":' + before.encode() + b"}")), options=options)
    if says:
        (reject,) = decoded_rows.rejects
        assert says in reject.reason
    else:
        assert rows(decoded_rows) == [(Op.UPDATE, 5, 1, 1, None, None, None, 2.5)]


PARTIAL = MessageOptions(protocol="open-protocol", only_output_updated_columns=True)
WHOLE = {"id": 1, "name": "n", "raw": "r", "long": "dHh0", "d": 2.5}
AS_BEFORE = [
    '{"x":{"t":15,"f":64,"v":"a"}}',  # of a column that a selector leaves out
    '{"g":{"t":3,"f":0,"v":2}}',  # virtual
]
WITHOUT_BEFORE = [
    '{"name":{"t":15,"f":4097,"v":"C:\\\\new"}}',  # MySQL's own flags
    '{"name":{"t":15,"f":0,"v":null}}',  # null for an empty text
    '{"d":{"t":5,"f":65,"v":null}}',  # null for zero, in a column that is NOT NULL
    '{"d":{"t":5,"f":65,"v":"1.5"}}',
    '{"d":{"t":15,"f":65,"v":1.5}}',
    '{"id":{"t":8,"f":4131,"v":1},"d":{"t":5,"f":0,"v":null}}',
]
MOVED = [
    ('{"id":{"t":8,"f":139,"v":2},"d":{"t":5,"f":65,"v":"1.5"}}', "is not of its type"),
]


def updated(before: str, schema: TableSchema = SCHEMA) -> Decoded:
    sent = messages_of([message(({"ts": 5}, event({"u": WHOLE})[:-1] + b',"p":' + before.encode() + b"}"))])
    return decode(rows_of(sent, classify(sent, PARTIAL), T), "landed", T, schema, PARTIAL)


@pytest.mark.parametrize("before", [*AS_BEFORE, *WITHOUT_BEFORE])
def test_of_a_row_before_an_update_only_what_is_needed_has_to_be_readable(before: str) -> None:
    more = (Column("d", "DOUBLE", nullable=False), Column("g", "INT", virtual=True))
    schema = replace(SCHEMA, columns=(*SCHEMA.columns[:-1], *more))
    after = (5, 1, 1, "n", b"r", "txt", 2.5)
    expected = [(Op.DELETE, *after), (Op.INSERT, *after)] if before in AS_BEFORE else [(Op.UPDATE, *after)]
    assert rows(updated(before, schema)) == expected


@pytest.mark.parametrize(("before", "says"), MOVED)
def test_a_row_before_an_update_has_to_be_readable_where_the_key_changes(before: str, says: str) -> None:
    (reject,) = updated(before).rejects
    assert says in reject.reason


@pytest.mark.parametrize("before", ['{"x":{"t":15,"f":64,"v":"a"}}', '{"d":{"t":5,"f":65,"v":"1.5"}}'])
def test_a_row_before_an_update_has_to_be_readable_in_a_table_without_key(before: str) -> None:
    assert len(updated(before, TableSchema(SCHEMA.columns)).rejects) == 1


RAW_FLAGS = {"id": 4131, "name": 4097, "raw": 4225, "long": 0, "d": 128}
SMALL_RAW_FLAGS = {"id": 35, "name": 1, "raw": 129, "long": 0, "d": 128}
"""Those of columns with defaults."""


@pytest.mark.parametrize("raw_flags", [RAW_FLAGS, SMALL_RAW_FLAGS], ids=["beyond TiCDC's", "of an unsigned text"])
def test_flags_of_mysql_are_known_by_their_size_or_their_type(raw_flags: dict[str, int]) -> None:
    whole = json.loads(event({"u": {**WHOLE, "name": "C:\\new", "raw": "\\x00\\n"}}))
    for name, cell in whole["u"].items():
        cell["f"] = raw_flags[name]
        cell |= {"h": True} if name == "id" else {}
    sent = messages_of([message(({"ts": 5}, json.dumps(whole).encode()))])
    (reject,) = decode(rows_of(sent, classify(sent, OPTIONS), T), "landed", T, SCHEMA, OPTIONS).rejects
    assert "MySQL's own" in reject.reason
    (shown,) = schemas(sent, OPTIONS)
    assert shown.schema.key == ("id",)
    columns = {column.name: (column.type, column.unsigned, column.nullable) for column in shown.schema.columns}
    assert columns["id"] == ("BIGINT", True, False)
    assert columns["name"] == ("VARCHAR", False, False)
    assert columns["raw"] == ("VARBINARY", False, False)
    assert columns["d"][2]


def test_a_key_that_became_null_needs_all_names_of_the_row_before() -> None:
    after = event({"u": {"id": 1, "name": None, "raw": None, "long": None, "d": 2.5}})
    options = MessageOptions(protocol="open-protocol", only_output_updated_columns=True)
    sent = messages_of([message(({"ts": 5}, after[:-1] + b',"p":' + NAMELESS.encode() + b"}"))])
    by_name = replace(SCHEMA, key=("name",))
    (reject,) = decode(rows_of(sent, classify(sent, options), T), "landed", T, by_name, options).rejects
    assert "which row it is of" in reject.reason


def test_a_table_without_key_needs_all_names_of_the_row_before() -> None:
    after = event({"u": {"id": 1, "name": None, "raw": None, "long": None, "d": 2.5}})
    options = MessageOptions(protocol="open-protocol", only_output_updated_columns=True)
    sent = messages_of([message(({"ts": 5}, after[:-1] + b',"p":' + NAMELESS.encode() + b"}"))])
    keyless = TableSchema(SCHEMA.columns)
    (reject,) = decode(rows_of(sent, classify(sent, options), T), "landed", T, keyless, options).rejects
    assert "which row it is of" in reject.reason


def test_numbers_beyond_all_types_are_refused() -> None:
    ddl = framed([b'{"ts":7,"scm":"a","t":2}'], struct.pack(">Q", 1)), framed([b'{"q":"x","t":99999999999}'])
    [spoken_message] = said(ddl)
    assert (spoken_message["kind"], spoken_message["schema"]) == ("bad", "a")
    for number in (-5, 1 << 70, True, 1.5):
        cells: dict[str, Any] = {name: {"t": code, "f": flags, "v": None} for name, (code, flags) in _CODES.items()}
        cells |= {"id": {"t": 8, "f": 139, "v": 1}, "name": {"t": number, "f": 64, "v": "x"}}
        [reject] = decoded(message(({"ts": 7}, json.dumps({"u": cells}).encode()))).rejects
        assert reject.column == "name"


def test_rows_give_the_schema_approximately() -> None:
    [schema_event] = schemas(
        messages_of([message(({"ts": 7}, event({"u": {"id": 1, "name": None, "raw": "x"}})))]), OPTIONS
    )
    assert [(column.name, column.type) for column in schema_event.schema.columns] == [
        ("id", "BIGINT"),
        ("name", "VARCHAR"),
        ("raw", "VARBINARY"),
    ]
    assert schema_event.schema.key == ("id",)
    assert any("order of the columns" in sentence for sentence in schema_event.approximate)


VALUES = st.fixed_dictionaries(
    {
        "id": st.integers(0, (1 << 64) - 1),
        "name": st.none() | st.text(),
        "long": st.none() | st.text(),
        "d": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    }
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.tuples(VALUES, st.none() | VALUES), min_size=1, max_size=4), min_size=1, max_size=4))
def test_what_is_written_is_read_again(sent: list[list[tuple[dict[str, Any], dict[str, Any] | None]]]) -> None:
    def encoded(values: dict[str, Any]) -> dict[str, Any]:
        text = values["long"]
        coded = None if text is None else base64.b64encode(text.encode()).decode()
        return {**values, "long": coded, "raw": None}

    def row(op: Op, line: int, values: dict[str, Any]) -> tuple[Any, ...]:
        return (int(op), line, line, values["id"], values["name"], None, values["long"], values["d"])

    messages, wanted, line = [], [], 0
    for events in sent:
        written = []
        for new, old in events:
            line += 1
            written.append(({"ts": line}, event({"u": encoded(new)}, **({} if old is None else {"p": encoded(old)}))))
            wanted += [row(Op.DELETE, line, old)] if old is not None else []
            wanted.append(row(Op.INSERT, line, new))
        messages.append(message(*written))
    assert rows(decoded(*messages)) == wanted
