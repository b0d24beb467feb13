"""The Simple protocol, as JSON and as Avro: schemas, rows, large messages, and round trips."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.decoded import Decoded, Op
from cdc_assets.formats.simple import classify, decode, schemas
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets_tests.topics import Topic, messages_of, rows_of, topics

OPTIONS = MessageOptions(protocol="simple")
AVRO = MessageOptions(protocol="simple", encoding_format="avro")
T = TableId("test", "t")
SCHEMA = TableSchema(
    (
        Column("id", "BIGINT", nullable=False, is_pk=True),
        Column("name", "VARCHAR"),
        Column("raw", "VARBINARY"),
        Column("at", "TIMESTAMP"),
    ),
    ("id",),
)


def message(kind: str, commit_ts: int, data: Any = None, old: Any = None, **more: Any) -> bytes:
    head = {"version": 1, "database": "test", "table": "t", "tableID": 112, "type": kind, "commitTs": commit_ts}
    sides = {name: side for name, side in (("data", data), ("old", old)) if side is not None}
    whole = {**head, "buildTs": 5, "schemaVersion": 3, **more, **sides}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def row(
    id_: int, name: str | None, raw: bytes | None = None, at: str | None = None, zone: str = "UTC"
) -> dict[str, Any]:
    coded = None if raw is None else base64.b64encode(raw).decode()
    moment = None if at is None else {"location": zone, "value": at}
    return {"id": str(id_), "name": name, "raw": coded, "at": moment}


def said(*values: bytes | None, options: MessageOptions = OPTIONS) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = classify(messages_of([(None, value) for value in values]), options).to_pylist()
    return messages


def decoded(*values: bytes, options: MessageOptions = OPTIONS) -> Decoded:
    batch = messages_of([(None, value) for value in values])
    return decode(rows_of(batch, classify(batch, options), T), "landed", T, SCHEMA, options)


def rows(decoded_rows: Decoded) -> list[tuple[Any, ...]]:
    assert decoded_rows.rejects == ()
    return [tuple(str(value) for value in change.values()) for change in decoded_rows.changes.to_pylist()]


def without_scale_of_floats(column: Column) -> Column:
    """FLOAT(9,3) is sent as FLOAT, which is decoded alike."""
    return replace(column, scale=None) if column.type in ("FLOAT", "DOUBLE") else column


# --- schemas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", topics("simple", "simple-avro"), ids=str)
def test_schemas_of_ddl_are_those_of_the_schema_files(topic: Topic) -> None:
    files = {(file.table, file.version): file for file in topic.listing.schema_files}
    events = [
        schema_event
        for schema_event in schemas(topic.messages, topic.options)
        if (schema_event.table, schema_event.version) in files
    ]
    assert events
    for event in events:
        columns = (files[event.table, event.version].columns, event.schema.columns)
        file, stated = (TableSchema(tuple(without_scale_of_floats(column) for column in some)) for some in columns)
        assert stated.decodes_like(file), event


@pytest.mark.parametrize("topic", topics("simple", "simple-avro"), ids=str)
def test_a_bootstrap_states_a_schema_without_a_commit_ts(topic: Topic) -> None:
    spoken = [spoken_message for spoken_message in topic.spoken.to_pylist() if spoken_message["kind"] == "schema"]
    stated = {event.message: event for event in schemas(topic.messages, topic.options) if event.version == 0}
    assert {spoken_message["message"] for spoken_message in spoken} == set(stated)
    assert all(
        stated[spoken_message["message"]].table == TableId(spoken_message["schema"], spoken_message["table"])
        for spoken_message in spoken
    )


def test_avro_vectors() -> None:
    ddl = (
        bytes.fromhex("160404020e2e") + b"CREATE DATABASE `types`" + bytes.fromhex("b28080c7eaae82f50cbce8aeb3bf680000")
    )
    mark, create = said(bytes.fromhex("16000002b08080c7eaae82f50cbce8aeb3bf68"), ddl, options=AVRO)
    assert (mark["kind"], mark["commit_ts"]) == ("resolved", 465283339124736024)
    assert (create["kind"], create["schema"], create["query"]) == ("ddl", None, "CREATE DATABASE `types`")


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [("bit", b"\x05", "5"), ("bit", b"\xff\x81", "65409"), ("varchar", b"5", "5"), ("varbinary", b"\xffa", "\ufffda")],
)
def test_a_default_in_avro_is_what_it_is_in_json(kind: str, default: bytes, expected: str) -> None:
    column = b"\x02b" + text(kind.encode()) + text(b"") + text(b"") + bytes.fromhex("10 00 00 00 00") + b"\x01\x02"
    table = text(b"s") + text(b"t") + bytes.fromhex("02 02 02") + column + text(default) + bytes(2)
    sent = messages_of([(None, bytes.fromhex("16 02 02 02 0a") + table)])
    (event,) = schemas(sent, AVRO)
    assert (event.table, event.schema.columns[0].default) == (TableId("s", "t"), expected)
    assert [spoken_message["kind"] for spoken_message in classify(sent, AVRO).to_pylist()] == ["schema"]


def text(content: bytes) -> bytes:
    """A short text in Avro."""
    return bytes([2 * len(content)]) + content


# --- rows -------------------------------------------------------------------------------------------------------------


def test_insert_update_and_delete() -> None:
    decoded_rows = decoded(
        message("INSERT", 7, row(1, "a", b"\0\xff", "2020-01-02 03:04:05")),
        message("UPDATE", 8, row(1, None), row(1, "a")),
        message("DELETE", 9, None, row(1, None)),
    )
    assert rows(decoded_rows) == [
        ("1", "7", "1", "1", "a", "b'\\x00\\xff'", "2020-01-02 03:04:05+00:00"),
        ("-1", "8", "2", "1", "a", "None", "None"),
        ("1", "8", "2", "1", "None", "None", "None"),
        ("-1", "9", "3", "1", "None", "None", "None"),
    ]


def test_each_time_has_its_own_zone() -> None:
    sent = [
        message("INSERT", n, row(n, "a", at="2020-01-02 03:04:05", zone=zone))
        for n, zone in enumerate(("UTC", "Asia/Shanghai", "UTC"))
    ]
    times = [str(value) for value in decoded(*sent).changes.column("at").to_pylist()]
    assert times == ["2020-01-02 03:04:05+00:00", "2020-01-01 19:04:05+00:00", "2020-01-02 03:04:05+00:00"]


def test_a_row_that_does_not_fit_is_a_reject_alone() -> None:
    good = message("INSERT", 7, row(1, "a"))
    decoded_rows = decoded(
        good,
        message("INSERT", 8, {**row(2, "b"), "more": "1"}),
        message("UPDATE", 9, row(3, "c")),
        message("INSERT", 10, {"id": "4", "name": "d", "raw": None}),
        message("INSERT", 11, row(5, "e", at="yesterday")),
        message("INSERT", 12, {**row(6, "f"), "name": 6}),
    )
    assert decoded_rows.changes.column("id").to_pylist() == [1, 6]
    assert [(reject.line, reject.column) for reject in decoded_rows.rejects] == [
        (2, "more"),
        (3, ""),
        (4, "at"),
        (5, "at"),
    ]
    assert decoded_rows.rejects[1].raw == message("UPDATE", 9, row(3, "c"))


def test_a_row_whose_checksum_does_not_fit_is_rejected_as_ticdc_says_so() -> None:
    sums = [{"version": 0, "corrupted": corrupted, "current": 1, "previous": 0} for corrupted in (False, True)]
    decoded_rows = decoded(
        *(message("INSERT", 7 + at, row(at, "a"), checksum=checksum) for at, checksum in enumerate(sums))
    )
    (reject,) = decoded_rows.rejects
    assert (decoded_rows.changes.column("id").to_pylist(), reject.line) == ([0], 2)
    assert "corruption-handle-level" in reject.reason


def test_a_row_that_is_damaged_behind_its_head_is_one_of_its_table() -> None:
    whole = message("INSERT", 7, row(1, "a"))
    spoken = said(whole[:-9], whole.replace(b'"a"', b'"\xff"'), whole.replace(b'"table":"t"', b'"table":"\xff"'))
    assert [(spoken_message["kind"], spoken_message["table"]) for spoken_message in spoken] == [
        ("row", "t"),
        ("row", "t"),
        ("bad", None),
    ]
    assert "it is not UTF-8" in spoken[2]["reason"]


def test_a_timestamp_without_its_zone_is_none() -> None:
    odd = [{"location": "UTC"}, {"value": "2020-01-02 03:04:05"}, {"location": None, "value": "2020-01-02 03:04:05"}]
    decoded_rows = decoded(*(message("INSERT", 7, {**row(1, "a"), "at": odd_text}) for odd_text in odd))
    assert [(reject.line, reject.column) for reject in decoded_rows.rejects] == [(1, "at"), (2, "at"), (3, "at")]


def test_a_timestamp_of_an_unknown_zone_refuses_its_row_alone() -> None:
    zones = ("UTC", "Local", "", "Asia/Shanghai")
    decoded_rows = decoded(
        *(message("INSERT", 7, row(n, "a", at="2020-01-02 03:04:05", zone=zone)) for n, zone in enumerate(zones))
    )
    assert decoded_rows.changes.column("id").to_pylist() == [0, 3]
    assert [(reject.line, reject.column) for reject in decoded_rows.rejects] == [(2, "at"), (3, "at")]
    assert "is in the time zone Local" in decoded_rows.rejects[0].reason


@pytest.mark.parametrize("name", ["a{b}", "{}", "{0}", "a{"])
def test_a_value_that_does_not_fit_is_told_of_a_column_with_braces_in_its_name(name: str) -> None:
    value = message("INSERT", 7, {"id": "1", name: {"x": 1}})
    batch = messages_of([(None, value)])
    schema = TableSchema((SCHEMA.columns[0], Column(name, "INT", False, 11)), ("id",))
    (reject,) = decode(rows_of(batch, classify(batch, OPTIONS), T), "landed", T, schema, OPTIONS).rejects
    assert reject.reason.endswith(f'column "{name}" has the value {{"x":1}}, which is not of its type')


def test_texts_that_look_like_nulls_stay_texts() -> None:
    for text in ('x":null', 'at":null,"', "null", '"at":null'):
        decoded_rows = decoded(message("INSERT", 7, row(1, text)), message("INSERT", 8, row(2, None)))
        assert decoded_rows.rejects == ()
        assert decoded_rows.changes.column("name").to_pylist() == [text, None]


# --- large messages ---------------------------------------------------------------------------------------------------


def test_a_null_behind_white_space_is_one_in_every_message() -> None:
    first, second = (message("INSERT", 7, row(key, None)) for key in (1, 2))
    batch = messages_of([(None, first), (None, second.replace(b'"name":null', b'"name": null'))])
    decoded_rows = decode(rows_of(batch, classify(batch, OPTIONS), T), "landed", T, SCHEMA, OPTIONS)
    assert decoded_rows.rejects == ()
    assert decoded_rows.changes.column("id").to_pylist() == [1, 2]


def test_a_claim_and_a_row_of_its_key_only_are_distinguished() -> None:
    claim, key_only = said(
        message("INSERT", 7, {"id": "1"}, claimCheckLocation="s3://claims/0a.json", handleKeyOnly=True),
        message("INSERT", 8, {"id": "1"}, handleKeyOnly=True),
    )
    assert (claim["kind"], claim["claim"], claim["ordinals"]) == ("row", "s3://claims/0a.json", [0])
    assert (key_only["kind"], key_only["table"], key_only["commit_ts"]) == ("bad", "t", 8)
    assert "claim-check" in key_only["reason"]


def test_the_key_of_a_large_row_is_enough_for_its_delete() -> None:
    options = MessageOptions(protocol="simple", large_message_handle_option="handle-key-only")
    gone = message("DELETE", 7, old={"id": "1"}, handleKeyOnly=True)
    changed = message("UPDATE", 8, {"id": "1"}, {"id": "1"}, handleKeyOnly=True)
    assert [spoken_message["kind"] for spoken_message in said(gone, changed, options=options)] == ["row", "bad"]
    decoded_rows = decoded(gone, options=options)
    assert decoded_rows.rejects == ()
    assert decoded_rows.changes.select(["_cdc_op", "id"]).to_pylist() == [{"_cdc_op": Op.DELETE_KEY, "id": 1}]


@pytest.mark.parametrize("compression", ["snappy", "lz4"])
def test_all_values_may_be_compressed(compression: str) -> None:
    options = MessageOptions(protocol="simple", large_message_handle_compression=compression)
    plain = [b'{"version":1,"type":"WATERMARK","commitTs":6,"buildTs":5}', message("INSERT", 7, row(1, "a" * 300))]
    packed = [pa.Codec(compression).compress(value, asbytes=True) for value in plain]
    spoken = said(*packed, plain[1], options=options)
    assert [spoken_message["kind"] for spoken_message in spoken] == ["resolved", "row", "bad"]
    assert "large-message-handle-compression" in spoken[2]["reason"]
    assert decoded(*packed, options=options).changes.column("name").to_pylist() == ["a" * 300]


# --- both encodings, and round trips ----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", sorted({topic.case.name for topic in topics("simple-avro")}))
def test_both_encodings_say_the_same(case: str) -> None:
    names = ("message", "type", "claim", "reason")
    stated = []
    for topic in topics("simple", "simple-avro"):
        if topic.case.name == case:
            lines = [
                {k: v for k, v in spoken_message.items() if k not in names}
                for spoken_message in topic.spoken.to_pylist()
            ]
            stated.append([line for line in lines if line["kind"] != "schema"])
    assert sorted(stated[0], key=repr) == sorted(stated[1], key=repr)


ROWS = st.builds(
    row,
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.none() | st.text(),
    st.none() | st.binary(max_size=50),
    st.sampled_from([None, "2020-01-02 03:04:05"]),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.none() | ROWS, st.none() | ROWS).filter(any), min_size=1, max_size=8))
def test_what_is_written_is_read_again(sent: list[tuple[dict[str, Any] | None, dict[str, Any] | None]]) -> None:
    values, wanted = [], []
    for line, (data, old) in enumerate(sent, 1):
        kind = "INSERT" if old is None else "DELETE" if data is None else "UPDATE"
        values.append(message(kind, line, data, old))
        for op, side in ((Op.DELETE, old), (Op.INSERT, data)):
            if side is not None:
                raw = None if side["raw"] is None else base64.b64decode(side["raw"])
                at = None if side["at"] is None else "2020-01-02 03:04:05+00:00"
                wanted.append((str(int(op)), str(line), str(line), side["id"], str(side["name"]), str(raw), str(at)))
    assert rows(decoded(*values)) == wanted
