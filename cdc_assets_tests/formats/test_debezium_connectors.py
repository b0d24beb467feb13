"""Messages of Debezium's connectors, as their documents have them: what each is, and where it stands."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.debezium_json.connectors import (
    classify,
    decode,
    schemas,
)
from cdc_assets.formats.decoded import Decoded
from cdc_assets.formats.values import DEFAULTED, MAYBE_ZERO_DATE, ROUNDED
from cdc_assets.formats.values.connect import OUT_OF_RANGE
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.types.mysql_values import ZERO_DATE
from cdc_assets_tests.topics import messages_of, rows_of

OPTIONS = MessageOptions(protocol="debezium-json")
SOURCE = {
    "version": "3.6.3.Final", "connector": "postgresql", "name": "px", "ts_ms": 1700000000000, "snapshot": "false",
    "db": "d", "schema": "public", "table": "t", "txId": 730, "lsn": 22261208, "sequence": '["22261208","22261208"]',
}  # fmt: skip
MARIADB = {**SOURCE, "connector": "mariadb", "file": "binlog.000007", "pos": 1234, "row": 0}
KEY = {"id": 1}


def source_position(source: dict[str, Any]) -> str | None:
    """Return the place of a row of a source."""
    own = {"name": "px", "ts_ms": 1, "db": "d", "table": "t", **source}
    position: str | None = said(row("c", after={"id": 1}, source=own))["source_position"]
    return position


def said(value: Any, key: Any = KEY) -> dict[str, Any]:
    texts = [None if part is None else json.dumps(part).encode() for part in (key, value)]
    (message,) = classify(messages_of([(texts[0], texts[1])]), OPTIONS).to_pylist()
    return dict(message)


def row(op: str, **more: Any) -> dict[str, Any]:
    return {"before": None, "after": None, "source": SOURCE, "op": op, "ts_ms": 1, "transaction": None, **more}


PASSED_OVER = {
    "a tombstone, which repeats a delete": None,
    "a heartbeat": {"ts_ms": 1700000000000},
    "a transaction's beginning or end": {
        "status": "END", "id": "730:22261208", "event_count": 2, "ts_ms": 1,
        "data_collections": [{"data_collection": "public.t", "event_count": 2}],
    },
    "a logical message": row("m", message={"prefix": "foo", "content": "Ymzh"}),
    "a setting of the server": {"source": MARIADB, "databaseName": "d", "ddl": "SET character_set_server=utf8mb4"},
}  # fmt: skip


@pytest.mark.parametrize("reason", PASSED_OVER)
def test_what_is_no_row_is_passed_over_with_its_reason(reason: str) -> None:
    message = said(PASSED_OVER[reason], None if "logical" in reason else KEY)
    assert message["kind"] == "ignored"
    assert message["reason"].startswith(reason)


@pytest.mark.parametrize("op", ["c", "u", "r"])
def test_a_row_has_the_place_of_its_source(op: str) -> None:
    message = said(row(op, after={"id": 1}))
    assert (message["kind"], message["schema"], message["table"], message["source"]) == (
        "row",
        "public",
        "t",
        "postgresql px",
    )
    assert message["source_position"] == source_position(SOURCE)


def test_a_row_of_an_incremental_snapshot_has_no_place() -> None:
    assert said(row("r", after={"id": 1}, source={**SOURCE, "snapshot": "incremental"}))["source_position"] is None


@pytest.mark.parametrize("op", ["u", "d", "t"])
def test_what_changes_or_ends_rows_is_of_no_snapshot_though_it_is_marked_so(op: str) -> None:
    sides = {"u": {"after": {"id": 1}}, "d": {"before": {"id": 1}}, "t": {}}[op]
    message = said(row(op, **sides, source={**SOURCE, "snapshot": "true"}))
    assert (message["source_position"], message["phase"]) == (source_position(SOURCE), None)


@pytest.mark.parametrize("data", [{"after": {"id": 1}}, {"schema": {}, "payload": {"after": {"id": 1}}}])
def test_a_cloud_event_is_refused_by_its_name(data: dict[str, Any]) -> None:
    head = {"id": "name:px;lsn:1", "source": "/debezium/postgresql/px", "specversion": "1.0", "iodebeziumop": "c"}
    message = said({**head, "type": "io.debezium.connector.postgresql.DataChangeEvent", "data": data})
    assert (message["kind"], "it is a CloudEvent" in message["reason"]) == ("bad", True)


OTHER_SERVERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sqlserver": ("SQL Server", {"change_lsn": "00000027:00000758:0003", "commit_lsn": "00000027:00000758:0005"}),
    "oracle": ("Oracle", {"scn": "99", "commit_scn": "100"}),
    "mongodb": ("MongoDB", {"collection": "t", "ord": 1}),
    "db2": ("Db2", {"change_lsn": "1", "commit_lsn": "2"}),
    "vitess": ("Vitess", {"vgtid": "[]", "keyspace": "d"}),
    "spanner": ("Spanner", {"record_sequence": "1"}),
    "informix": ("Informix", {"commit_lsn": "1", "change_lsn": "2"}),
    "cassandra": ("Cassandra", {"keyspace": "d", "file": "f", "pos": 1}),
    "some_other": ("some_other", {}),
}


@pytest.mark.parametrize("connector", OTHER_SERVERS)
@pytest.mark.parametrize("way", ["row", "truncate", "DDL", "CloudEvent", "Avro"])
def test_messages_of_connectors_for_other_servers_are_refused_by_name(connector: str, way: str) -> None:
    server, place = OTHER_SERVERS[connector]
    source = {"version": "3.5.0.Final", "connector": connector, "name": "ms", "ts_ms": 1, "snapshot": "false"}
    source |= {"db": "erp", "schema": "dbo", "table": "orders", **place}
    event = {
        "id": "name:ms;lsn:1", "specversion": "1.0", "datacontenttype": "application/json", "data": {"id": 1},
        "type": f"io.debezium.connector.{connector}.DataChangeEvent", "source": f"/debezium/{connector}/ms",
    }  # fmt: skip
    values: dict[str, Any] = {
        "row": row("c", source=source, after={"id": 1}),
        "truncate": row("t", source=source),
        "DDL": {"source": source, "databaseName": "erp", "ddl": "DROP TABLE orders", "tableChanges": []},
        "CloudEvent": event,
    }
    if way == "Avro":
        text = connector.encode()
        value = b"\0\0\0\0\7\0\2\2\0163.5.0" + bytes([2 * len(text)]) + text + b"\4ms"
        (message,) = classify(messages_of([(None, value)]), OPTIONS).to_pylist()
    else:
        message = said(values[way])
    assert message["kind"] == "bad"
    if (way, connector) != ("Avro", "some_other"):
        assert server in message["reason"]
        assert "read are those for MySQL, MariaDB, PostgreSQL alone" in message["reason"]


def test_a_truncate_is_a_ddl() -> None:
    message = said(row("t"), None)
    assert (message["kind"], message["query"], message["table"]) == ("ddl", "TRUNCATE TABLE `t`", "t")


def test_a_schema_change_of_mariadb_is_its_text() -> None:
    change = {"type": "ALTER", "id": '"d"."t"', "table": {}}
    message = said({"source": MARIADB, "databaseName": "d", "ddl": "ALTER TABLE t ADD n int", "tableChanges": [change]})
    assert (message["kind"], message["schema"], message["table"]) == ("ddl", "d", "t")
    assert message["query"] == "ALTER TABLE t ADD n int"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (row("x"), 'its op is "x"'),
        (row("c", source={**SOURCE, "connector": "TiCDC"}), "give the protocol of that writer"),
        ({"op": "c"}, "it has no source that says where it is from"),
        ([1], ""),
        (row("c", source={**SOURCE, "sequence": "no list"}), "does not say where it stands in the log"),
        (row("c", source={**MARIADB, "pos": -47}), "Let the server have binlog_legacy_event_pos = ON"),
    ],
)
def test_what_is_no_message_of_a_connector_is_bad(value: Any, reason: str) -> None:
    message = said(value)
    assert message["kind"] == "bad"
    assert message["reason"].startswith("it is not a message of a Debezium connector: ")
    assert reason in message["reason"]


@pytest.mark.parametrize("payload", [None, {"ts_ms": 1}, row("c", after={"id": 1})])
def test_a_message_whose_schema_is_none_is_bad_whatever_it_speaks_of(payload: Any) -> None:
    message = said({"schema": {"fields": [{"type": "struct", "field": "after"}]}, "payload": payload})
    assert message["kind"] == "bad"
    assert message["reason"] == "it is not a message of a Debezium connector: its schema is none: it lacks 'fields'"


@pytest.mark.parametrize(
    "parameters",
    [{}, {"scale": "two"}, {"scale": {}}, {"__debezium.source.column.type": {}}, "2", {"scale": "99999999999"}],
)
def test_a_message_whose_schema_tells_no_columns_is_bad_and_stops_no_other(parameters: Any) -> None:
    torn, sound = [], row("c", after={"id": 1})
    plain = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "field": "id", "parameters": parameters}
    for field in (plain, {"type": "array", "field": "id", "items": plain}):
        block = {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": [field]}]}
        torn.append({"schema": block, "payload": row("c", after={"id": None})})
    messages = messages_of([(b'{"id":1}', json.dumps(value).encode()) for value in (*torn, sound)])
    *bad, fine = classify(messages, OPTIONS).to_pylist()
    assert ([message["kind"] for message in bad], fine["kind"]) == (["bad", "bad"], "row")
    for message in bad:
        assert message["reason"].startswith("it is not a message of a Debezium connector: its schema is none: ")
    assert [event.message for event in schemas(messages, OPTIONS)] == [2]


_PROPAGATED = "__debezium.source.column"
_CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def _numeric(length: int, scale: int) -> dict[str, str]:
    of_source = {"type": "NUMERIC", "length": str(length), "scale": str(scale)}
    return {f"{_PROPAGATED}.{name}": value for name, value in of_source.items()}


def decoded_column(
    field: dict[str, Any], sent: Any, column: Column | None = None, source: dict[str, Any] = SOURCE, **options: Any
) -> Decoded:
    """Return what becomes of a value of the column "n", as the schema block or a DDL text describes that."""
    block = {"type": "struct", "fields": [
        {"type": "struct", "field": "after", "fields": [{"type": "int32", "field": "id"}, {**field, "field": "n"}]}
    ]}  # fmt: skip
    value = {"schema": block, "payload": row("c", after={"id": 1, "n": sent}, source=source)}
    messages = messages_of([(b'{"id":1}', json.dumps(value).encode())])
    given = replace(OPTIONS, **options)
    (event,) = schemas(messages, given)
    schema = event.schema
    if column is not None:
        schema = replace(schema, columns=(schema.columns[0], replace(column, name="n")))
    return decode(rows_of(messages, classify(messages, given)), "landed", event.table, schema, given)


@pytest.mark.parametrize(
    ("mode", "field", "sent", "kept"),
    [
        (
            "string",
            {"type": "string", "parameters": _numeric(131089, 0)},
            "1.234567890123456789",
            "1.234567890123456789",
        ),
        ("double", {"type": "double", "parameters": _numeric(131089, 0)}, 1.25, 1.25),
        ("string", {"type": "string", "parameters": _numeric(12, 2)}, "1.25", Decimal("1.25")),
        ("string", {"type": "string", "parameters": _numeric(2, -3)}, "11000", Decimal(11000)),
        ("string", {"type": "string", "parameters": _numeric(3, 5)}, "0.00123", Decimal("0.00123")),
        (
            "precise",
            {"type": "bytes", "name": _CONNECT_DECIMAL, "parameters": {"scale": "5", "connect.decimal.precision": "3"}},
            "ew==",
            Decimal("0.00123"),
        ),
    ],
)
def test_a_numeric_is_as_wide_as_the_source_says(mode: str, field: dict[str, Any], sent: Any, kept: Any) -> None:
    decoded_rows = decoded_column(field, sent, connector=(("decimal.handling.mode", mode),))
    assert (decoded_rows.changes.column("n").to_pylist(), decoded_rows.rejects) == ([kept], ())
    kind = decoded_rows.changes.schema.field("n").type
    assert not pa.types.is_decimal(kind) or kind.scale <= kind.precision


def in_order(connector: str, *places: dict[str, Any]) -> bool:
    positions = [source_position({"connector": connector, "snapshot": "false", **place}) for place in places]
    return None not in positions and positions == sorted(positions, key=str) and len(set(positions)) == len(positions)


def test_places_sort_as_the_logs_of_their_sources_do() -> None:
    binlog = [
        {"file": "b.000009", "pos": 900, "row": 0},
        {"file": "b.000010", "pos": 4},
        {"file": "b.000010", "pos": 40},
    ]
    assert in_order("mysql", *binlog)
    assert in_order("postgresql", {"lsn": 9, "sequence": '["7","9"]'}, {"lsn": 8, "sequence": '["10","8"]'})


@pytest.mark.parametrize(
    ("connector", "place"),
    [
        ("mysql", {"file": "b.000009", "pos": 900, "row": 0}),
        ("postgresql", {"lsn": 9, "sequence": '[null,"9"]'}),
    ],
)
def test_a_row_of_a_snapshot_comes_before_all_others(connector: str, place: dict[str, Any]) -> None:
    snapshot = source_position({"connector": connector, "snapshot": "true", **place})
    least = {
        "file": "b.1",
        "pos": 1,
        "lsn": 1,
    }
    change = source_position({"connector": connector, "snapshot": "false", **least})
    assert snapshot is not None
    assert change is not None
    assert snapshot < change


_DAY, _MILLIS = "io.debezium.time.Date", "io.debezium.time.Timestamp"
_ZONED = "io.debezium.time.ZonedTimestamp"
_EPOCH = datetime(1970, 1, 1)


@pytest.mark.parametrize("described", [False, True])
@pytest.mark.parametrize(
    ("kind", "field", "sent", "kept", "rule"),
    [
        ("DATE", {"type": "int32", "name": _DAY}, 0, date(1970, 1, 1), MAYBE_ZERO_DATE),
        ("DATE", {"type": "int32", "name": _DAY, "default": 18262}, 18262, date(2020, 1, 1), MAYBE_ZERO_DATE),
        ("DATE", {"type": "int32", "name": _DAY}, 1, date(1970, 1, 2), None),
        ("DATE", {"type": "string", "name": "io.debezium.time.IsoDate"}, "1970-01-01Z", _EPOCH.date(), MAYBE_ZERO_DATE),
        ("DATETIME", {"type": "int64", "name": _MILLIS}, 0, _EPOCH, MAYBE_ZERO_DATE),
        ("DATETIME", {"type": "int64", "name": _MILLIS, "optional": True}, 0, _EPOCH, None),
        ("TIMESTAMP", {"type": "string", "name": _ZONED}, "1970-01-01T00:00:00Z", None, ZERO_DATE),
        ("TIMESTAMP", {"type": "string", "name": _ZONED, "optional": True}, "1970-01-01T00:00:00Z", None, ZERO_DATE),
        ("TIMESTAMP", {"type": "string", "name": _ZONED}, "1970-01-01T00:00:01Z",
         datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc), None),
    ],
)  # fmt: skip
def test_what_mysql_s_connectors_send_for_zero_dates_too_is_told(
    described: bool, kind: str, field: dict[str, Any], sent: Any, kept: Any, rule: str | None
) -> None:
    column = Column("n", kind, nullable="optional" in field) if described else None
    decoded_rows = decoded_column(field, sent, column, MARIADB)
    assert (decoded_rows.changes.column("n").to_pylist(), decoded_rows.rejects) == ([kept], ())
    assert dict(decoded_rows.notes) == ({("n", rule): 1} if rule else {})
    assert not decoded_column(field, sent).notes  # of PostgreSQL's


@pytest.mark.parametrize(
    ("column", "default", "others"),
    [
        (Column("n", "INT", default="5"), 5, [6, None]),
        (Column("n", "VARCHAR", default="no"), "no", ["NO", ""]),
        (Column("n", "DECIMAL", precision=6, scale=2, default="1.50"), "AJY=", ["AJc="]),
        (Column("n", "DATE", default="2020-01-01"), 18262, [18263]),
        (Column("n", "DATETIME", scale=3, default="2020-01-01 00:00:00"), 1577836800000, [1577836800001]),
        (Column("n", "VARBINARY", precision=3, default="ab"), "YWI=", ["AP8="]),
        (Column("n", "INT", default="5", nullable=False), 5, [6]),
    ],
)
def test_a_value_that_is_its_columns_default_may_be_null_without_schema_block_too(
    column: Column, default: Any, others: list[Any]
) -> None:
    sent = [default, *others]
    rows = [row("c", after={"id": number, "n": value}, source=MARIADB) for number, value in enumerate(sent)]
    messages = messages_of([(json.dumps({"id": number}).encode(), json.dumps(value).encode())
                            for number, value in enumerate(rows)])  # fmt: skip
    table = TableId("public", "t")
    schema = TableSchema((Column("id", "INT", nullable=False), column), ("id",))
    decoded_rows = decode(rows_of(messages, classify(messages, OPTIONS)), "landed", table, schema, OPTIONS)
    assert (decoded_rows.changes.num_rows, decoded_rows.rejects) == (len(sent), ())
    assert dict(decoded_rows.notes) == ({("n", DEFAULTED): 1} if column.nullable else {})


@pytest.mark.parametrize(
    ("field", "sent", "kept", "notes"),
    [
        ({"type": "double"}, 12345678901234.56, Decimal("12345678901234.56"), {ROUNDED}),
        ({"type": "double"}, 0.1234567890123456, Decimal("0.12"), set()),
        ({"type": "double"}, 1.25, Decimal("1.25"), set()),
        ({"type": "double"}, 1.255, None, None),
        ({"type": "string"}, "1234567890123456.25", Decimal("1234567890123456.25"), set()),
        ({"type": "string"}, "1234567890123456.255", None, None),
        ({"type": "string"}, "1.255", None, None),
    ],
)
def test_a_decimal_is_rounded_only_where_it_was_sent_as_a_double_and_says_so(
    field: dict[str, Any], sent: Any, kept: Decimal | None, notes: set[str] | None
) -> None:
    decoded_rows = decoded_column(field, sent, Column("n", "DECIMAL", precision=20, scale=2), MARIADB)
    assert decoded_rows.changes.column("n").to_pylist() == ([] if notes is None else [kept])
    assert {rule for _, rule in decoded_rows.notes} == (notes or set())
    assert len(decoded_rows.rejects) == (notes is None)


def test_a_number_with_digits_behind_the_point_is_no_whole_one() -> None:
    field = {"type": "bytes", "name": _CONNECT_DECIMAL, "parameters": {"scale": "1"}}
    whole, torn = (decoded_column(field, sent, Column("n", "BIGINT"), MARIADB) for sent in ("FA==", "FQ=="))
    assert whole.changes.column("n").to_pylist() == [2]
    assert (torn.changes.num_rows, len(torn.rejects)) == (0, 1)


@pytest.mark.parametrize(
    ("element", "sent", "kept"),
    [
        ({"type": "string", "name": _ZONED}, ["2020-01-01T00:00:00Z", "infinity", None],
         '["2020-01-01 00:00:00.000000",null,null]'),
        ({"type": "int32", "name": _DAY}, [18262, -2147472692], '["2020-01-01",null]'),
    ],
)  # fmt: skip
def test_infinity_in_an_array_is_null_there_and_counted_and_leaves_the_others(
    element: dict[str, Any], sent: list[Any], kept: str
) -> None:
    decoded_rows = decoded_column({"type": "array", "items": element, "optional": True}, sent)
    assert (decoded_rows.changes.column("n").to_pylist(), decoded_rows.rejects) == ([kept], ())
    assert dict(decoded_rows.notes) == {("n", OUT_OF_RANGE): 1}
