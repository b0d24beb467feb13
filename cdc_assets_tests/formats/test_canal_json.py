"""Canal-JSON: what the rules say is written comes back as it was; what is broken is named and does no harm."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc_assets.errors import MalformedData
from cdc_assets.formats import extension
from cdc_assets.formats.canal_json.decode import EXTENSION, REPLACED, TEXT_NULL, commit_stamps, decode, raw_records
from cdc_assets.formats.canal_json.options import CanalJsonOptions
from cdc_assets.formats.decoded import COMMIT_TS, LINE, NOT_WRITTEN, OP, Decoded, Op
from cdc_assets.formats.members import members
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.types.mysql_types import arrow_schema
from cdc_assets.types.mysql_values import ZERO_DATE

ORDERS = TableId("shop", "orders")
TSO = 465283339528437785  # beyond the integers that a double can hold
EXTENDED = CanalJsonOptions(enable_tidb_extension=True)
PLAIN = replace(EXTENDED, enable_tidb_extension=False)
PARTIAL = replace(EXTENDED, only_output_updated_columns=True)
KEY_ONLY = replace(EXTENDED, delete_only_output_handle_key_columns=True)

ID = Column("id", "BIGINT", nullable=False, is_pk=True)
NAME = Column("name", "VARCHAR", precision=40)
STATUS = Column("status", "ENUM", elems=("new", "it's", ""))
FLAGS = Column("flags", "SET", elems=("x", "y", "z"))
SCHEMA = TableSchema((ID, NAME), key=("id",))

Row = Mapping[str, str | None]


def encode(
    kind: str = "INSERT",
    data: Row | None = None,
    old: Row | None = None,
    commit_ts: int | None = TSO,
    table: TableId = ORDERS,
    types: Mapping[str, str] | None = None,
    **more: Any,
) -> bytes:
    """Write one record by the rules: compact, `<`, `>` and `&` escaped, the members in TiCDC's order."""
    row = data or {}
    record: dict[str, Any] = {
        "id": 0,
        "database": table.schema,
        "table": table.table,
        "pkNames": ["id"],
        "isDdl": False,
    }
    record |= {"type": kind, "es": (commit_ts or 0) >> 18, "ts": 1795215971000, "sql": ""}
    record |= {"sqlType": dict.fromkeys(row, 12), "mysqlType": types or dict.fromkeys(row, "varchar")}
    record |= {"old": None if old is None else [old], "data": [row]}
    if commit_ts is not None:
        record["_tidb"] = {"commitTs": commit_ts}
    text = json.dumps(record | more, ensure_ascii=False, separators=(",", ":"))
    return re.sub("[<>&\u2028]", lambda match: f"\\u{ord(match[0]):04x}", text).encode()


def file_of(*records: bytes, end: bytes = b"\r\n") -> bytes:
    return b"".join(record + end for record in records)


def read(
    data: bytes, schema: TableSchema = SCHEMA, options: CanalJsonOptions = EXTENDED, table: TableId = ORDERS
) -> Decoded:
    return decode(data, "shop/orders/1/CDC1.json", table, schema, options)


def images(decoded: Decoded, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in (OP, *names)) for row in decoded.changes.to_pylist()]


NULL_TEXTS = [("VARCHAR", "null"), ("LONGTEXT", "null"), ("VARBINARY", b"null"), ("JSON", "null")]


@pytest.mark.parametrize(("kind", "expected"), NULL_TEXTS)
def test_a_null_in_a_text_column_that_has_none_is_the_text(kind: str, expected: Any) -> None:
    may_be, never = Column("m", kind), Column("n", kind, nullable=False)
    data = file_of(encode("UPDATE", {"id": "1", "m": None, "n": None}, {"id": "1", "m": None, "n": None}))
    decoded_rows = read(data, TableSchema((ID, may_be, never), ("id",)))
    assert images(decoded_rows, "m", "n") == [(Op.DELETE, None, expected), (Op.INSERT, None, expected)]
    assert decoded_rows.notes == {("n", TEXT_NULL): 2}
    key = TableSchema((replace(never, is_pk=True),), ("n",))
    decoded_rows = read(file_of(encode(data={"n": None})), key)
    assert (images(decoded_rows, "n"), decoded_rows.notes) == ([(Op.INSERT, expected)], {})


def test_a_null_is_no_number() -> None:
    decoded_rows = read(
        file_of(encode(data={"id": "1", "n": None})), TableSchema((ID, Column("n", "INT", nullable=False)), ("id",))
    )
    assert images(decoded_rows, "n") == [(Op.INSERT, None)]


def test_a_column_of_the_row_before_alone_is_not_read() -> None:
    record = encode("UPDATE", {"id": "1", "name": "b"}, {"id": "1", "name": "a", "left": "", "out": ""})
    assert images(read(file_of(record)), "name") == [(Op.DELETE, "a"), (Op.INSERT, "b")]
    with pytest.raises(MalformedData, match="left"):
        read(file_of(record), TableSchema(SCHEMA.columns))  # without a key all of it counts


# --- pairs that must agree --------------------------------------------------------------------------------------------

NASTY = st.sampled_from(
    ['":null', ":null,", '{"a":null}', 'x":null,"b', "\\", "\\N", "", "null", "}\n{", "\ufffd", "€😀\x7f"]
)
TEXTS = st.one_of(st.text(max_size=8), NASTY)
SOURCES: dict[str, tuple[Column, st.SearchStrategy[Any], Callable[[Any], str]]] = {
    "text": (Column("", "LONGTEXT"), TEXTS, str),
    "bytes": (Column("", "VARBINARY", precision=9), st.binary(max_size=9), lambda raw: raw.decode("latin-1")),
    "int": (Column("", "INT"), st.integers(-(1 << 31), (1 << 31) - 1), str),
    "unsigned": (Column("", "BIGINT", unsigned=True), st.integers(0, (1 << 64) - 1).map(Decimal), str),
    "decimal": (
        Column("", "DECIMAL", precision=20, scale=4),
        st.decimals(-(10**15), 10**15, places=4),
        lambda number: f"{number:.4f}",
    ),
    "double": (
        Column("", "DOUBLE"),
        st.floats(allow_nan=False, allow_infinity=False),
        lambda number: format(Decimal(repr(number)), "f"),
    ),
    "datetime": (
        Column("", "DATETIME", scale=6),
        st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),
        lambda time: f"{time.year:04}-{time:%m-%d %H:%M:%S}.{time.microsecond:06}",
    ),
    "enum": (
        replace(STATUS, name=""),
        st.sampled_from(["new", "it's", ""]),
        lambda name: str(["new", "it's", ""].index(name) + 1),
    ),
    "set": (
        replace(FLAGS, name=""),
        st.sets(st.sampled_from(FLAGS.elems or ())).map(lambda chosen: ",".join(sorted(chosen))),
        lambda names: str(sum(1 << "xyz".index(name) for name in names.split(",") if name)),
    ),
    "bit": (Column("", "BIT", precision=9), st.integers(0, 511), str),
    "json": (Column("", "JSON"), st.sampled_from(["null", '{"a": null}', '[1, "é"]', '"\\\\"']), str),
}
NAMES = st.one_of(
    st.text(min_size=1, max_size=5),
    st.sampled_from(["old", "data", "_tidb", "a.b", 'q"', "\\", ":", "^a$", "ID"]),
)


@st.composite
def histories(draw: st.DrawFn) -> tuple[TableSchema, list[tuple[str, dict[str, Any], dict[str, Any] | None]]]:
    kinds = draw(st.lists(st.sampled_from(sorted(SOURCES)), min_size=1, max_size=5))
    names = draw(
        st.lists(NAMES.filter(lambda name: name != "id"), min_size=len(kinds), max_size=len(kinds), unique=True)
    )
    schema = TableSchema(
        (ID, *(replace(SOURCES[k][0], name=n) for k, n in zip(kinds, names, strict=True))), key=("id",)
    )
    row = st.fixed_dictionaries(
        {"id": st.integers(0, 9)} | {n: st.none() | SOURCES[k][1] for k, n in zip(kinds, names, strict=True)}
    )
    kinds = draw(st.lists(st.sampled_from(["INSERT", "UPDATE", "DELETE"]), max_size=6))
    return schema, [(kind, draw(row), draw(row) if kind == "UPDATE" else None) for kind in kinds]


def written(row: dict[str, Any], schema: TableSchema) -> dict[str, str | None]:
    how = {(source.type): text for source, _, text in SOURCES.values()}
    return {
        column.name: None if row[column.name] is None else how.get(column.type, str)(row[column.name])
        for column in schema.columns
    }


def expected(events: list[tuple[str, dict[str, Any], dict[str, Any] | None]]) -> list[tuple[Op, int, dict[str, Any]]]:
    rows: list[tuple[Op, int, dict[str, Any]]] = []
    for line, (kind, row, old) in enumerate(events, 1):
        if old is not None:
            rows.append((Op.DELETE, line, old))
        rows.append((Op.DELETE if kind == "DELETE" else Op.INSERT, line, row))
    return rows


@settings(deadline=None)  # the first example loads what Arrow loads on its first array
@given(history=histories(), end=st.sampled_from(["\r\n", "\n", "|", "", ";\n"]), partial=st.booleans())
def test_what_the_rules_write_is_read_back_as_it_was(history: Any, end: str, partial: bool) -> None:
    schema, events = history
    records = []
    for kind, row, old in events:
        after, before = written(row, schema), None if old is None else written(old, schema)
        if partial and before is not None:
            before = {name: text for name, text in before.items() if text != after[name]}
        records.append(encode(kind, after, before))
    options = replace(EXTENDED, terminator=end, only_output_updated_columns=partial)
    decoded = read(file_of(*records, end=end.encode()), schema, options)
    changes = [(row[OP], row[LINE], row) for row in decoded.changes.to_pylist()]
    assert not decoded.rejects
    assert decoded.tail is None
    assert changes == [(op, line, row | {OP: op, COMMIT_TS: TSO, LINE: line}) for op, line, row in expected(events)]
    assert decoded.changes.schema.field("id").type == arrow_schema(schema).field("id").type


@settings(deadline=None)
@given(history=histories(), broken=st.integers(0, 5))
def test_a_broken_record_changes_nothing_for_the_others(history: Any, broken: int) -> None:
    schema, events = history
    records = [encode(kind, written(row, schema), old and written(old, schema)) for kind, row, old in events]
    place = min(broken, len(records))
    sound = read(file_of(*records), schema)
    torn = read(file_of(*records[:place], b'{"id":0,"database":"shop",', *records[place:]), schema)
    assert [reject.line for reject in torn.rejects] == [place + 1]
    assert torn.changes.drop_columns([LINE]).equals(sound.changes.drop_columns([LINE])) or not records


@given(elems=st.lists(st.text(max_size=6), min_size=1, max_size=4, unique=True))
@example(elems=["a\\n", "a\n"])
def test_member_names_of_a_compatible_type_are_read_or_refused_but_never_wrong(elems: list[str]) -> None:
    inner = ",".join(
        "'" + e.replace("'", "''").replace("\0", "\\0").replace("\n", "\\n").replace("\r", "\\r") + "'" for e in elems
    )
    unaided = members(f"enum({inner})", Column("c", "ENUM"))
    assert unaided is not None
    assert all(name in (elem, None) for name, elem in zip(unaided, elems, strict=True))
    assert members(f"enum({inner})", Column("c", "ENUM", elems=tuple(elems))) == tuple(elems)


def test_members_that_later_writers_add_change_nothing() -> None:
    nulls = encode("UPDATE", {"id": "1", "name": '{"a":null}'}, {"id": "1", "name": None})
    extra = encode(
        data={"id": "2", "name": "x"}, _tidb={"commitTs": TSO, "rowkey": "dA==", "later": 1}, later={"a": [1]}
    )
    assert images(read(file_of(nulls)), "id", "name") == [(Op.DELETE, 1, None), (Op.INSERT, 1, '{"a":null}')]
    assert images(read(file_of(extra, extra)), "id", "name") == [(Op.INSERT, 2, "x")] * 2


# --- what a record says -----------------------------------------------------------------------------------------------


def test_the_extension_is_the_ascii_json() -> None:
    assert EXTENSION == ".json"
    assert extension(EXTENDED) == EXTENSION


def test_commit_ts_is_exact_beyond_double_precision_and_null_without_the_extension() -> None:
    assert read(file_of(encode(data={"id": "1", "name": "a"}))).changes[COMMIT_TS].to_pylist() == [TSO]
    plain = read(file_of(encode(data={"id": "1", "name": "a"}, commit_ts=None)), options=PLAIN)
    assert plain.changes[COMMIT_TS].to_pylist() == [None]


def test_an_update_without_old_is_an_update() -> None:
    assert images(read(file_of(encode("UPDATE", {"id": "1", "name": "b"}))), "id") == [(Op.UPDATE, 1)]


def test_a_partial_old_is_laid_over_the_new_row() -> None:
    record = encode("UPDATE", {"id": "1", "name": "b"}, {"name": None})
    assert images(read(file_of(record), options=PARTIAL), "id", "name") == [(Op.DELETE, 1, None), (Op.INSERT, 1, "b")]


def test_an_update_of_nothing_has_an_empty_old() -> None:
    record = encode("UPDATE", {"id": "1", "name": "b"}, {})
    assert images(read(file_of(record), options=PARTIAL), "name") == [(Op.DELETE, "b"), (Op.INSERT, "b")]


def test_a_delete_may_hold_only_the_key() -> None:
    data = file_of(encode(data={"id": "1", "name": None}), encode("DELETE", {"id": "1"}))
    assert images(read(data, options=KEY_ONLY), "id", "name") == [(Op.INSERT, 1, None), (Op.DELETE_KEY, 1, None)]
    alone = read(file_of(encode("DELETE", {"id": "1"})), options=KEY_ONLY)
    assert images(alone, "id", "name") == [(Op.DELETE_KEY, 1, None)]


def test_columns_that_no_record_holds_are_absent_and_noted() -> None:
    decoded = read(file_of(encode(data={"id": "1"}), encode("DELETE", {"id": "2"})))
    assert decoded.changes.column_names == [OP, COMMIT_TS, LINE, "id"]
    assert decoded.notes == {("name", NOT_WRITTEN): 1}


def test_a_column_that_is_always_null_is_not_absent() -> None:
    assert images(read(file_of(encode(data={"id": "1", "name": None}))), "name") == [(Op.INSERT, None)]


def test_names_may_differ_only_in_case_and_stand_in_any_order() -> None:
    schema = TableSchema((ID, NAME, replace(NAME, name="Name")), key=("id",))
    decoded = read(file_of(encode(data={"Name": "B", "name": "a", "id": "1"})), schema)
    assert images(decoded, "id", "name", "Name") == [(Op.INSERT, 1, "a", "B")]


def test_zero_dates_are_noted_and_refused_in_a_key() -> None:
    date = Column("d", "DATE")
    zero = file_of(encode(data={"id": "1", "d": "0000-00-00"}))
    decoded = read(zero, TableSchema((ID, date), key=("id",)))
    assert images(decoded, "d") == [(Op.INSERT, None)]
    assert decoded.notes == {("d", ZERO_DATE): 1}
    (reject,) = read(zero, TableSchema((ID, date), key=("d",))).rejects
    assert (reject.column, ZERO_DATE in reject.reason) == ("d", True)


def test_replaced_characters_are_noted() -> None:
    assert read(file_of(encode(data={"id": "1", "name": "a\ufffd"}))).notes == {("name", REPLACED): 1}


def test_timestamps_are_in_the_writers_zone() -> None:
    schema = TableSchema((ID, Column("ts", "TIMESTAMP")), key=("id",))
    options = replace(EXTENDED, timezone="Asia/Shanghai")
    decoded = read(file_of(encode(data={"id": "1", "ts": "2026-01-01 08:00:00"})), schema, options)
    assert str(decoded.changes["ts"][0]) == "2026-01-01 00:00:00+00:00"


# --- members of ENUM and SET ------------------------------------------------------------------------------------------

MEMBERS = TableSchema((ID, replace(STATUS, elems=None), replace(FLAGS, elems=None)), key=("id",))


def test_members_are_read_from_the_compatible_type_of_each_record() -> None:
    record = encode(
        data={"id": "1", "status": "2", "flags": "5"}, types={"status": "enum('a','d''e')", "flags": "set('x','y','z')"}
    )
    other_record = encode(
        data={"id": "2", "status": "2", "flags": "0"}, types={"status": "enum('a','f')", "flags": "set('x','y')"}
    )
    assert images(read(file_of(record, other_record), MEMBERS), "status", "flags") == [
        (Op.INSERT, "d'e", "x,z"),
        (Op.INSERT, "f", ""),
    ]


def test_members_without_names_are_rejected_with_the_way_out() -> None:
    record = encode(data={"id": "1", "status": "2", "flags": None}, types={"status": "enum", "flags": "set"})
    (reject,) = read(file_of(record), MEMBERS).rejects
    assert (reject.line, reject.column, reject.commit_ts, reject.raw) == (1, "status", TSO, record)
    assert "content-compatible" in reject.reason


@pytest.mark.parametrize(("status", "flags"), [("4", "0"), ("0", "8"), ("-1", "0"), ("a", "0"), ("0", "x")])
def test_numbers_that_no_member_has_are_rejected(status: str, flags: str) -> None:
    schema = TableSchema((ID, STATUS, FLAGS), key=("id",))
    decoded = read(file_of(encode(data={"id": "1", "status": status, "flags": flags})), schema)
    assert (len(decoded.rejects), decoded.changes.num_rows) == (1, 0)


def test_member_number_zero_is_the_empty_text() -> None:
    record = encode(data={"id": "1", "status": "0", "flags": "0"})
    assert images(read(file_of(record), MEMBERS), "status", "flags") == [(Op.INSERT, "", "")]


# --- bad input --------------------------------------------------------------------------------------------------------

GOOD = encode(data={"id": "7", "name": "good"})
BAD: dict[str, tuple[bytes, str]] = {
    "half an object": (GOOD[:60], "not a row change"),
    "no object": (b"[]", "it is not an object"),
    "a bare null": (b"null", "it is not an object"),
    "an empty record": (b"", "not a row change"),
    "two objects": (GOOD + GOOD, "Extra data"),
    "bytes that are not UTF-8": (GOOD.replace(b"good", b"\xff\xfe"), "not a row change"),
    "half a surrogate": (GOOD.replace(b"good", b"\\ud800"), "half of a surrogate pair"),
    "a member twice": (GOOD.replace(b'"id":"7"', b'"id":"7","id":"8"'), "twice"),
    "an unknown column": (GOOD.replace(b'"name":"good"', b'"name":"good","z":"1"'), 'column "z"'),
    "a missing column": (GOOD.replace(b',"name":"good"', b""), 'lacks the column "name"'),
    "a number for a text": (GOOD.replace(b'"good"', b"1"), "is 1, not a string"),
    "a value that does not fit": (GOOD.replace(b'"id":"7"', b'"id":"seven"'), '"seven" is not BIGINT'),
    "DDL": (GOOD.replace(b'"isDdl":false', b'"isDdl":true'), "isDdl"),
    "an unknown type": (GOOD.replace(b"INSERT", b"TRUNCATE"), "TRUNCATE"),
    "no row": (GOOD.replace(b'"data":[{"id":"7","name":"good"}]', b'"data":[]'), "exactly one row"),
    "two rows": (GOOD.replace(b'"data":[', b'"data":[{"id":"7","name":"good"},'), "exactly one row"),
    "a null row": (GOOD.replace(b'"data":[{"id":"7","name":"good"}]', b'"data":[null]'), "exactly one row"),
    "no commitTs": (encode(data={"id": "7", "name": "good"}, commit_ts=None), "commitTs"),
    "an extension without commitTs": (
        GOOD.replace(b'"commitTs"', b'"commit"'),
        "it has no commitTs, which the TiDB extension gives every record",
    ),
    "a commitTs that is not a TSO": (GOOD.replace(str(TSO).encode(), b"9223372036854775808"), "not a TSO"),
    "a negative commitTs": (GOOD.replace(str(TSO).encode(), b"-3"), "not a TSO"),
    "a row of which only the key is there": (
        GOOD.replace(b'"_tidb":{', b'"_tidb":{"onlyHandleKey":true,'),
        "not whole",
    ),
    "a row that is elsewhere": (GOOD.replace(b'"_tidb":{', b'"_tidb":{"claimCheckLocation":"a.json",'), "not whole"),
    "deep nesting": (GOOD.replace(b'"sql":""', b'"sql":' + b"[" * 100000), "nested"),
}


@pytest.mark.parametrize(("raw", "reason"), BAD.values(), ids=BAD)
def test_one_bad_record_is_a_reject_and_the_others_are_read(raw: bytes, reason: str) -> None:
    decoded = read(file_of(GOOD, raw, GOOD))
    assert [row[LINE] for row in decoded.changes.to_pylist()] == [1, 3]
    (reject,) = decoded.rejects
    assert (reject.line, reject.raw, reason in reject.reason) == (2, raw, True), reject.reason


@pytest.mark.parametrize("commit_ts", [-3, 1 << 63])
def test_files_of_nothing_but_rows_without_a_tso_have_no_sound_row(commit_ts: int) -> None:
    decoded = read(file_of(*[GOOD.replace(str(TSO).encode(), str(commit_ts).encode())] * 3))
    assert decoded.changes.num_rows == 0
    assert [(reject.line, reject.commit_ts) for reject in decoded.rejects] == [(1, None), (2, None), (3, None)]


def test_a_bad_image_before_rejects_the_whole_record() -> None:
    decoded = read(file_of(encode("UPDATE", {"id": "1", "name": "a"}, {"id": "x", "name": "a"}), GOOD))
    assert [reject.line for reject in decoded.rejects] == [1]
    assert decoded.changes[LINE].to_pylist() == [2]


def test_raw_records_are_found_by_the_lines_of_rejects() -> None:
    data = file_of(GOOD, b"{", GOOD) + b"tail"
    assert raw_records(data, [1, 2, 9], EXTENDED) == {1: GOOD, 2: read(data).rejects[0].raw}


def test_commit_ts_is_known_of_records_whose_columns_are_not() -> None:
    assert commit_stamps(file_of(GOOD, GOOD.replace(b'"name"', b'"other"')), EXTENDED) == [TSO, TSO]
    assert commit_stamps(file_of(GOOD, b"[1]", b'{"_tidb":{"commitTs":"9"}}') + GOOD, EXTENDED) == [
        TSO,
        None,
        None,
        None,
    ]


def test_an_empty_file_has_all_columns_and_no_rows() -> None:
    for data in (b"", b"\xef\xbb\xbf"):
        assert read(data).changes.column_names == [OP, COMMIT_TS, LINE, "id", "name"]
        assert read(data).changes.num_rows == 0


def test_a_byte_order_mark_is_no_part_of_the_first_record() -> None:
    assert images(read(b"\xef\xbb\xbf" + file_of(GOOD)), "id") == [(Op.INSERT, 7)]


def test_white_space_between_tokens_changes_nothing() -> None:
    record = encode("UPDATE", {"id": "1", "name": None}, {"name": "a"})
    spaced = json.dumps(json.loads(record), indent=None).encode()
    assert read(file_of(spaced), options=PARTIAL).changes.equals(read(file_of(record), options=PARTIAL).changes)


def test_a_record_without_terminator_is_the_tail() -> None:
    decoded = read(file_of(GOOD) + GOOD + b"\r")
    assert decoded.tail is not None
    assert (decoded.tail.line, decoded.tail.raw, decoded.tail.commit_ts) == (2, GOOD + b"\r", TSO)
    half = read(file_of(GOOD) + GOOD[:-4]).tail
    assert half is not None
    assert half.commit_ts == TSO >> 18 << 18  # the millisecond of `es`
    assert decoded.changes.num_rows == 1


def test_half_a_record_is_as_old_as_its_millisecond() -> None:
    whole = (
        b'{"id":0,"database":"shop","table":"orders","pkNames":["id"],"isDdl":false,"type":"INSERT","es":1774915083040,'
    )
    tail = read(whole + b'"ts":17').tail
    assert tail is not None
    assert tail.commit_ts == 1774915083040 << 18


def test_a_row_longer_than_any_block_is_read() -> None:
    schema = TableSchema((ID, replace(NAME, type="LONGTEXT")), key=("id",))
    long = encode(data={"id": "1", "name": "x" * (20 << 20)})
    decoded = read(file_of(GOOD, long, GOOD), schema)
    assert [len(row["name"]) for row in decoded.changes.to_pylist()] == [4, 20 << 20, 4]


CONTRADICTIONS: dict[str, tuple[bytes, CanalJsonOptions, str]] = {
    "another table": (
        file_of(GOOD, encode(data={"id": "1", "name": ""}, table=TableId("shop", "Orders"))),
        EXTENDED,
        "Orders",
    ),
    "no extension": (file_of(encode(data={"id": "1", "name": ""}, commit_ts=None)), EXTENDED, "enable-tidb-extension"),
    "an extension": (file_of(GOOD), PLAIN, "enable-tidb-extension"),
    "another terminator": (file_of(GOOD, GOOD, end=b"\n"), EXTENDED, "terminator"),
    "another terminator, one record": (file_of(GOOD, end=b"\n"), EXTENDED, "terminator"),
    "an unknown terminator": (file_of(GOOD, GOOD, end=b"|"), EXTENDED, "terminator"),
    "deletes of the key": (
        file_of(GOOD, encode("DELETE", {"id": "1"})),
        EXTENDED,
        "delete-only-output-handle-key-columns",
    ),
    "a partial old": (
        file_of(encode("UPDATE", {"id": "1", "name": "b"}, {"name": "a"})),
        EXTENDED,
        "only-output-updated-columns",
    ),
    "only unknown columns": (file_of(encode(data={"z": "1"})), EXTENDED, '"z"'),
    "no key": (file_of(encode(data={"name": "1"})), EXTENDED, '"id"'),
    "no columns": (file_of(encode(data={})), EXTENDED, '"id"'),
}


@pytest.mark.parametrize(("data", "options", "sentence"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_what_contradicts_the_options_or_the_schema_is_refused(
    data: bytes, options: CanalJsonOptions, sentence: str
) -> None:
    with pytest.raises(MalformedData, match=re.escape(sentence)) as caught:
        read(data, options=options)
    assert caught.value.where["path"].endswith("CDC1.json")


def test_an_unknown_type_of_a_column_is_refused_by_name() -> None:
    with pytest.raises(MalformedData, match="HYPERLOGLOG"):
        read(file_of(GOOD), TableSchema((ID, replace(NAME, type="HYPERLOGLOG")), key=("id",)))
