"""Messages of Debezium's connectors, as their documents have them: what each is, and where it stands."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.debezium_json.connectors import classify, decode, schemas
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
    found: str | None = said(row("c", after={"id": 1}, source=own))["source_position"]
    return found


def said(value: Any, key: Any = KEY) -> dict[str, Any]:
    texts = [None if one is None else json.dumps(one).encode() for one in (key, value)]
    (found,) = classify(messages_of([(texts[0], texts[1])]), OPTIONS).to_pylist()
    return dict(found)


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
    "a schema change of sqlserver": {
        "source": {**SOURCE, "connector": "sqlserver"}, "databaseName": "d", "schemaName": "dbo", "ddl": None,
        "tableChanges": [{"type": "CREATE", "id": '"d"."dbo"."t"'}],
    },
}  # fmt: skip


@pytest.mark.parametrize("reason", PASSED_OVER)
def test_what_is_no_row_is_passed_over_with_its_reason(reason: str) -> None:
    found = said(PASSED_OVER[reason], None if "logical" in reason else KEY)
    assert found["kind"] == "ignored"
    assert found["reason"].startswith(reason)


@pytest.mark.parametrize("op", ["c", "u", "r"])
def test_a_row_has_the_place_of_its_source(op: str) -> None:
    found = said(row(op, after={"id": 1}))
    assert (found["kind"], found["schema"], found["table"], found["source"]) == ("row", "public", "t", "postgresql px")
    assert found["source_position"] == source_position(SOURCE)


def test_a_row_of_an_incremental_snapshot_has_no_place() -> None:
    assert said(row("r", after={"id": 1}, source={**SOURCE, "snapshot": "incremental"}))["source_position"] is None


def test_a_truncate_is_a_ddl() -> None:
    found = said(row("t"), None)
    assert (found["kind"], found["query"], found["table"]) == ("ddl", "TRUNCATE TABLE `t`", "t")


def test_a_schema_change_of_mariadb_is_its_text() -> None:
    change = {"type": "ALTER", "id": '"d"."t"', "table": {}}
    found = said({"source": MARIADB, "databaseName": "d", "ddl": "ALTER TABLE t ADD n int", "tableChanges": [change]})
    assert (found["kind"], found["schema"], found["table"]) == ("ddl", "d", "t")
    assert found["query"] == "ALTER TABLE t ADD n int"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (row("x"), 'its op is "x"'),
        (row("c", source={**SOURCE, "connector": "TiCDC"}), "give the protocol of that writer"),
        ({"op": "c"}, "it has no source that says where it is from"),
        ([1], ""),
        (row("c", source={**SOURCE, "sequence": "no list"}), "does not say where it stands in the log"),
    ],
)
def test_what_is_no_message_of_a_connector_is_bad(value: Any, reason: str) -> None:
    found = said(value)
    assert found["kind"] == "bad"
    assert found["reason"].startswith("it is not a message of a Debezium connector: ")
    assert reason in found["reason"]


@pytest.mark.parametrize("payload", [None, {"ts_ms": 1}, row("c", after={"id": 1})])
def test_a_message_whose_schema_is_none_is_bad_whatever_it_speaks_of(payload: Any) -> None:
    found = said({"schema": {"fields": [{"type": "struct", "field": "after"}]}, "payload": payload})
    assert found["kind"] == "bad"
    assert found["reason"] == "it is not a message of a Debezium connector: its schema is none: it lacks 'fields'"


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
    assert ([one["kind"] for one in bad], fine["kind"]) == (["bad", "bad"], "row")
    for one in bad:
        assert one["reason"].startswith("it is not a message of a Debezium connector: its schema is none: ")
    assert [event.message for event in schemas(messages, OPTIONS)] == [2]


_PROPAGATED = "__debezium.source.column"
_CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def _numeric(length: int, scale: int) -> dict[str, str]:
    of_source = {"type": "NUMERIC", "length": str(length), "scale": str(scale)}
    return {f"{_PROPAGATED}.{name}": value for name, value in of_source.items()}


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
    fields = [{"type": "int32", "field": "id"}, {**field, "field": "n"}]
    block = {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": fields}]}
    value = {"schema": block, "payload": row("c", after={"id": 1, "n": sent})}
    messages = messages_of([(b'{"id":1}', json.dumps(value).encode())])
    options = replace(OPTIONS, connector=(("decimal.handling.mode", mode),))
    (event,) = schemas(messages, options)
    spoken = classify(messages, options)
    found = decode(rows_of(messages, spoken), "landed", event.table, event.schema, options)
    assert (found.changes.column("n").to_pylist(), found.rejects) == ([kept], ())
    kind = found.changes.schema.field("n").type
    assert not pa.types.is_decimal(kind) or kind.scale <= kind.precision


def in_order(connector: str, *places: dict[str, Any]) -> bool:
    found = [source_position({"connector": connector, "snapshot": "false", **place}) for place in places]
    return None not in found and found == sorted(found, key=str) and len(set(found)) == len(found)


def test_places_sort_as_the_logs_of_their_sources_do() -> None:
    binlog = [
        {"file": "b.000009", "pos": 900, "row": 0},
        {"file": "b.000010", "pos": 4},
        {"file": "b.000010", "pos": 40},
    ]
    assert in_order("mysql", *binlog)
    assert in_order("postgresql", {"lsn": 9, "sequence": '["7","9"]'}, {"lsn": 8, "sequence": '["10","8"]'})
    assert in_order("oracle", {"scn": "99", "commit_scn": "100"}, {"scn": "98", "commit_scn": "101"})
    lsn = [("00000027:00000758:0005", "00000027:00000758:0003"), ("00000027:00000758:0005", "00000027:00000758:000a"),
           ("00000028:00000001:0001", "00000027:00000759:0001")]  # fmt: skip
    assert in_order("sqlserver", *({"commit_lsn": one, "change_lsn": other} for one, other in lsn))
    one = {"commit_lsn": lsn[0][0], "change_lsn": lsn[0][1]}
    assert in_order("sqlserver", {**one, "event_serial_no": 1}, {**one, "event_serial_no": 2})


@pytest.mark.parametrize(
    ("connector", "place"),
    [
        ("oracle", {"scn": "99", "commit_scn": None}),
        ("sqlserver", {"commit_lsn": "00000027:00000758:0005", "change_lsn": None, "event_serial_no": None}),
        ("mysql", {"file": "b.000009", "pos": 900, "row": 0}),
        ("postgresql", {"lsn": 9, "sequence": '[null,"9"]'}),
    ],
)
def test_a_row_of_a_snapshot_comes_before_all_others(connector: str, place: dict[str, Any]) -> None:
    snapshot = source_position({"connector": connector, "snapshot": "true", **place})
    least = {
        "scn": "1",
        "commit_scn": "1",
        "commit_lsn": "0:0:1",
        "change_lsn": "0:0:1",
        "file": "b.1",
        "pos": 1,
        "lsn": 1,
    }
    change = source_position({"connector": connector, "snapshot": "false", **least})
    assert snapshot is not None
    assert change is not None
    assert snapshot < change
