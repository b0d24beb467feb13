"""TiCDC's Debezium messages that no recording has: no schema block, no images before, damage, what a double loses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.debezium_json.messages import classify, decode, schemas
from cdc_assets.formats.decoded import COMMIT_TS, OP, Decoded, Op
from cdc_assets.formats.messages import Kind
from cdc_assets.formats.values import DEFAULTED, MAYBE_ZERO_DATE, ROUNDED
from cdc_assets.formats.values.ticdc import TOO_LARGE
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.types.mysql_values import ZERO_DATE
from cdc_assets_tests.topics import messages_of, rows_of, topics

OPTIONS = MessageOptions(protocol="debezium", enable_tidb_extension=True)
TABLE = TableId("s", "t")
ID = Column("id", "BIGINT", True, nullable=False, is_pk=True)


def message(op: str | None, before: Any = None, after: Any = None, **more: Any) -> bytes:
    source = {"connector": "TiCDC", "db": "s", "table": "t", "commit_ts": 7, **more.pop("source", {})}
    payload = {"source": source, "op": op, "before": before, "after": after, **more}
    return json.dumps({"payload": {name: value for name, value in payload.items() if name != "op" or value}}).encode()


def decoded(*values: bytes, columns: tuple[Column, ...] = (ID,)) -> Decoded:
    batch = messages_of([(None, value) for value in values])
    schema = TableSchema(columns, ("id",))
    return decode(rows_of(batch, classify(batch, OPTIONS)), "p", TABLE, schema, OPTIONS)


def read(column: Column, text: str) -> tuple[Any, set[str]]:
    """Return what a value in JSON is in the lake, and which rules it fell under."""
    value = message("c", None, {"id": 1, "v": "HERE"}).replace(b'"HERE"', text.encode())
    decoded_rows = decoded(value, columns=(ID, column))
    assert decoded_rows.rejects == ()
    return decoded_rows.changes.column("v")[0].as_py(), {rule for _, rule in decoded_rows.notes}


def test_operations_are_images() -> None:
    row, old = {"id": -1}, {"id": 1}
    changes = decoded(
        message("c", None, row), message("u", old, row), message("u", None, row), message("d", old)
    ).changes
    assert changes.column(OP).to_pylist() == [Op.INSERT, Op.DELETE, Op.INSERT, Op.UPDATE, Op.DELETE]
    assert [str(value) for value in changes.column("id").to_pylist()] == [
        str(2**64 - 1),
        "1",
        *[str(2**64 - 1)] * 2,
        "1",
    ]
    assert changes.column(COMMIT_TS).to_pylist() == [7] * 5


@pytest.mark.parametrize(
    ("column", "text", "expected", "rules"),
    [
        (Column("v", "DECIMAL", False, 10, 2), "99999999.99", "99999999.99", set()),
        (Column("v", "DECIMAL", False, 30, 2), "1e+20", "100000000000000000000.00", {ROUNDED}),
        (Column("v", "DECIMAL", False, 20, 0), "100000000000000000000", "None", {TOO_LARGE}),
        (Column("v", "INT", default="7"), "7", "7", {DEFAULTED}),
        (Column("v", "INT", default="7"), "8", "8", set()),
        (Column("v", "INT", nullable=False, default="7"), "7", "7", set()),
        (Column("v", "DATETIME", default="CURRENT_TIMESTAMP"), "0", "1970-01-01 00:00:00", {DEFAULTED}),
        (Column("v", "DATETIME", scale=6, default="CURRENT_TIMESTAMP"), "1", "1970-01-01 00:00:00.000001", set()),
        (Column("v", "DOUBLE", False, 22, default="1.50"), "1.5", "1.5", {DEFAULTED}),
        (Column("v", "FLOAT", False, 12, default="1e3"), "1000", "1000.0", {DEFAULTED}),
        (Column("v", "BINARY", False, 3, default="a"), '"YQAA"', r"b'a\x00\x00'", {DEFAULTED}),
        (Column("v", "VARBINARY", False, 9, default="\ufffd"), '"YQ=="', "b'a'", set()),
        (Column("v", "BIT", False, 17), '"//8B"', "131071", set()),
        (Column("v", "BIT", False, 1), "true", "True", set()),
        (Column("v", "BLOB", False, 65535), '"AP8="', r"b'\x00\xff'", set()),
        (Column("v", "DATE"), "-719162", "0001-01-01", set()),
        (Column("v", "DATETIME", scale=3), "-1", "1969-12-31 23:59:59.999000", set()),
        (Column("v", "DATE", nullable=False), "0", "1970-01-01", {MAYBE_ZERO_DATE}),
        (Column("v", "DATE"), "0", "1970-01-01", set()),
        (Column("v", "DATETIME", nullable=False), "0", "1970-01-01 00:00:00", {MAYBE_ZERO_DATE}),
        (Column("v", "TIMESTAMP"), '"1970-01-01T00:00:00Z"', "None", {ZERO_DATE}),
        (Column("v", "TIMESTAMP", nullable=False), '"1970-01-01T00:00:00Z"', "None", {ZERO_DATE}),
        (Column("v", "TIMESTAMP"), '"1970-01-01T00:00:01Z"', "1970-01-01 00:00:01+00:00", set()),
        (Column("v", "DATETIME", scale=6), "1", "1970-01-01 00:00:00.000001", set()),
        (Column("v", "TIMESTAMP", scale=1), '"2020-01-01T00:00:00.5Z"', "2020-01-01 00:00:00.500000+00:00", set()),
        (Column("v", "TIME"), "-3020399000000", "-838:59:59", set()),
        (Column("v", "SET", elems=("a", "b")), '"a,b"', "a,b", set()),
        (Column("v", "FLOAT", False, 12), "-3.4028235e+38", "-3.4028234663852886e+38", set()),
    ],
)
def test_values_are_read_by_the_columns_type(column: Column, text: str, expected: str, rules: set[str]) -> None:
    value, notes = read(column, text)
    assert (str(value), notes) == (expected, rules)


def test_a_decimal_that_a_double_may_have_rounded_is_none_in_a_key() -> None:
    column = Column("id", "DECIMAL", False, 20, 0, nullable=False, is_pk=True)
    decoded_rows = decoded(message("c", None, {"id": 12345678901234567000}), columns=(column,))
    assert ROUNDED in decoded_rows.rejects[0].reason


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "it is not JSON"),
        (b"[]", "it is not an object"),
        (b'{"payload":1}', "not an object"),
        (message("c", None, {"id": 1})[:-1], "it is not JSON"),
        (message("x"), 'op is "x"'),
        (message(None), "ddl"),
        (message("c", source={"connector": "mysql"}), "expected TiCDC"),
        (message("c", source={"commit_ts": -1}), "not a TSO"),
        (message("c", source={"db": None}), "not a text"),
        (b"\xff", "not UTF-8 at byte 0"),
    ],
)
def test_what_is_no_message_is_bad_with_the_reason(value: bytes, says: str) -> None:
    (line,) = classify(messages_of([(None, value)]), OPTIONS).to_pylist()
    assert line["kind"] == Kind.BAD.value
    assert says in line["reason"]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (message("c", {"id": 1}, {"id": 1}), "do not fit"),
        (message("d", None, {"id": 1}), "do not fit"),
        (message("c", None, {"id": 1, "x": 2}), 'column "x" is not'),
        (message("c", None, {}), 'lacks the column "id"'),
        (message("c", None, {"id": "1"}), "not of the type BIGINT"),
        (message("c", None, {"id": 1.5}), "not of the type BIGINT"),
        (message("c", None, {"id": True}), "not of the type BIGINT"),
    ],
)
def test_a_row_that_does_not_fit_is_rejected_with_its_bytes(value: bytes, says: str) -> None:
    (reject,) = decoded(value).rejects
    assert says in reject.reason
    assert reject.raw == value


@given(st.binary(max_size=40))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    whole = message("c", None, {"id": 1})
    for value in (data, whole[: len(data)], whole[:30] + data, b'{"payload":' + data):
        assert classify(messages_of([(None, value)]), OPTIONS).num_rows == 1
        schemas(messages_of([(data, value)]), OPTIONS)


def test_schema_blocks_give_the_types_of_columns() -> None:
    (topic,) = [topic for topic in topics("debezium") if topic.case.name == "A_all_types"]
    stated = {event.table.table: event.schema for event in schemas(topic.messages, topic.options)}
    known = topic.schema_of(TableId("types", "all_types"))
    table_schema = stated["all_types"]
    assert [(column.name, column.type, column.unsigned) for column in table_schema.columns] == [
        (column.name, column.type, column.unsigned and column.type not in ("BIT", "YEAR", "DECIMAL"))
        for column in known.stored
    ]
    assert (table_schema.key, table_schema.column("en").elems) == (("id",), known.column("en").elems)


def test_a_column_that_a_schema_block_has_twice_is_one() -> None:
    fields = [{"field": name, "type": "int32", "tidb_type": "INT"} for name in ("id", "virtual", "v", "virtual")]
    row = json.loads(message("c", None, {"id": 1, "v": 2}))
    row["schema"] = {"fields": [{"field": name, "fields": fields} for name in ("before", "after")]}
    (schema_event,) = schemas(messages_of([(b'{"payload":{"id":1}}', json.dumps(row).encode())]), OPTIONS)
    assert [column.name for column in schema_event.schema.columns] == ["id", "virtual", "v"]


@pytest.mark.parametrize(("first", "second"), [("YWI=", "ab"), ("", ""), ("/2E=", "\ufffda")])
def test_bytes_that_come_again_as_their_text_are_the_default_in_place_of_a_null(first: str, second: str) -> None:
    columns = (ID, Column("v", "VARBINARY", False, 9, default=second))
    twice = '{{"id": 1, "v": {}, "v": {}}}'
    values = [
        message("c", None, "HERE").replace(b'"HERE"', twice.format(*map(json.dumps, pair)).encode())
        for pair in ((first, second), (second + "x", second), (first, first + "Y2Nj"))
    ]
    assert decoded(values[0], columns=columns).changes.column("v").to_pylist() == [None]
    spoken = classify(messages_of([(None, value) for value in values]), OPTIONS).to_pylist()
    assert [spoken_message["kind"] for spoken_message in spoken] == [Kind.ROW.value, Kind.BAD.value, Kind.BAD.value]


def test_of_several_columns_that_a_table_lacks_the_first_by_name_is_told() -> None:
    (reject,) = decoded(message("c", None, {"id": 1, **dict.fromkeys("hgfedcba", 1)})).rejects
    assert 'column "a" is not in the table' in reject.reason
