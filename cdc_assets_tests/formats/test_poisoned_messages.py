"""JSON messages in which one value is another than it can be: none stops the reading of those beside it.

Each value of a sound message is replaced by what a damaged log, a transformation on the way or another writer may put
there: numbers with a thousand million digits, halves of surrogate pairs, a list where a row should be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pytest

from cdc_assets.errors import MalformedData
from cdc_assets.formats import MessageOptions, json_records
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets_tests.topics import rows_of

TABLE = TableId("shop", "t")
TSO = 465_282_341_101_301_785
POISON = (
    *("1e999999999", "-1E+999999999", "1e-999999999", '"1e999999999"', "1" + "0" * 40, '"1' + "0" * 400 + '"'),
    *('"\\ud800"', '"\\u0000"', "NaN", "-Infinity", "true", "null", "[]", "{}", '""', "-0", "0.0", "[[1]]"),
    *('{"a":1}', '{"scale":-999999999,"value":"AQ=="}', '{"a":{"b":1},"a":{"c":2}}', "9" * 5000),
    *('"2020-01-0é"', '"2020-01-01T00:00:00.00000é"', '"2020-01-01T00:00:00.000000\\u00e9"', '"é2020-01-01T00:00:00Z"'),
)


class Feed(NamedTuple):
    """Sound messages of a protocol: each with its key, and the columns of the table."""

    options: MessageOptions
    values: tuple[Any, ...]
    columns: tuple[Column, ...]
    key: bytes | None = None


def _columns(*types: tuple[str, str]) -> tuple[Column, ...]:
    sized = {"DECIMAL": (12, 2), "org.apache.kafka.connect.data.Decimal": (12, 2)}
    return (
        Column("id", "BIGINT", nullable=False, is_pk=True),
        *(Column(name, kind, False, *sized.get(kind, (None, None))) for name, kind in types),
    )


_WIDE = (Column("w", "DECIMAL", False, 65, 30),)
_CANAL = {
    "id": 0, "database": "shop", "table": "t", "pkNames": ["id"], "isDdl": False, "type": "UPDATE",
    "es": 1_774_911_273_580, "ts": 1_774_911_273_581, "sql": "",
}  # fmt: skip
_ROW = {"id": "1", "a": "1.00", "w": "1." + "0" * 30, "t": "x", "d": "2020-01-01 00:00:00"}
_TICDC = {"connector": "TiCDC", "db": "shop", "table": "t", "commit_ts": TSO}
_MARIADB = {"connector": "mariadb", "name": "px", "ts_ms": 1, "db": "shop", "table": "t", "file": "b.1", "pos": 4}
_POSTGRES = {"connector": "postgresql", "name": "px", "ts_ms": 1, "db": "x", "schema": "shop", "table": "t", "lsn": 4}
_FIELDS = [
    {"type": "int64", "field": "id"},
    {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}, "field": "a"},
    {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "field": "w"},
    {"type": "string", "field": "s"},
]
_BLOCK = {"type": "struct", "fields": [{"type": "struct", "fields": _FIELDS, "field": "after"}]}
_SENT = {"id": 1, "a": "ZA==", "w": {"scale": 1, "value": "AQ=="}, "s": "x"}
_MYSQL = (*_columns(("a", "DECIMAL"), ("t", "TEXT"), ("d", "DATETIME")), *_WIDE)
FEEDS = {
    "canal-json": Feed(
        MessageOptions(protocol="canal-json", enable_tidb_extension=True),
        ({**_CANAL, "sqlType": {"a": 3}, "mysqlType": dict.fromkeys(_ROW, "text"), "old": [_ROW], "data": [_ROW],
          "_tidb": {"commitTs": TSO}},
         {**_CANAL, "isDdl": True, "type": "ALTER", "sql": "ALTER TABLE t ADD x INT", "_tidb": {"commitTs": TSO}},
         {**_CANAL, "type": "TIDB_WATERMARK", "_tidb": {"watermarkTs": TSO}}),
        _MYSQL,
    ),
    "simple": Feed(
        MessageOptions(protocol="simple"),
        ({"version": 1, "database": "shop", "table": "t", "tableID": 1, "type": "UPDATE", "commitTs": TSO,
          "buildTs": 1, "data": _ROW, "old": _ROW},
         {"version": 1, "type": "ALTER", "sql": "ALTER TABLE t ADD x INT", "commitTs": TSO, "buildTs": 1,
          "tableSchema": {"schema": "shop", "table": "t", "tableID": 1, "version": 1, "indexes": [], "columns": [
              {"name": "id", "dataType": {"mysqlType": "int", "length": 11}, "nullable": False, "default": "1"}]}}),
        _MYSQL,
    ),
    "open-protocol": Feed(
        MessageOptions(protocol="open-protocol"),
        ({side: {"id": {"t": 8, "h": True, "f": 11, "v": 1}, "a": {"t": 246, "f": 65, "v": "1.00"},
                 "t": {"t": 252, "f": 64, "v": "eA=="}} for side in ("u", "p")},),
        _columns(("a", "DECIMAL"), ("t", "TEXT")),
    ),
    "debezium": Feed(
        MessageOptions(protocol="debezium", enable_tidb_extension=True),
        ({"payload": {"source": _TICDC, "op": "u", "before": {"id": 1, "a": 1.5, "t": "x", "d": 1},
                      "after": {"id": 1, "a": 1.5, "t": "x", "d": 1}}},
         {"payload": {"source": _TICDC, "ddl": "ALTER TABLE t ADD x INT", "tableChanges": []}}),
        _columns(("a", "DECIMAL"), ("t", "TEXT"), ("d", "DATETIME")),
    ),
    "mariadb": Feed(
        MessageOptions(protocol="debezium-json"),
        ({"schema": _BLOCK, "payload": {"before": _SENT, "after": _SENT, "source": _MARIADB, "op": "u"}},
         {"source": _MARIADB, "databaseName": "shop", "ddl": "ALTER TABLE t ADD x INT",
          "tableChanges": [{"type": "ALTER", "id": '"shop"."t"'}]}),
        _columns(("a", "DECIMAL"), ("w", "io.debezium.data.VariableScaleDecimal"), ("s", "VARCHAR")),
        b'{"id":1}',
    ),
    "postgresql, numbers as texts": Feed(
        MessageOptions(protocol="debezium-json", connector=(("decimal.handling.mode", "string"),)),
        tuple({"before": before, "after": after, "source": _POSTGRES, "op": op}
              for op, before, after in (("c", None, {"id": 1, "a": "1.5", "s": "x"}), ("d", {"id": 1}, None))),
        (Column("id", "int64"), Column("a", "org.apache.kafka.connect.data.Decimal", False, 12, 2),
         Column("s", "io.debezium.data.VariableScaleDecimal")),
        b'{"id":1}',
    ),
    "ydb-json": Feed(
        MessageOptions(protocol="ydb-json"),
        ({"update": {"d": "1.5", "w": "1.5", "j": {"a": 1.5}, "s": "x", "b": "AA==", "m": "2020-01-01T00:00:00.000000Z",
                     "i": 1, "r": 1.5}, "key": [1], "ts": [1, 2]}, {"resolved": [1, 2]}),
        (Column("id", "Uint64"), Column("d", "Decimal", False, 22, 9), Column("w", "DyNumber"), Column("j", "Json"),
         Column("s", "Utf8"), Column("b", "String"), Column("m", "Timestamp"), Column("i", "Interval"),
         Column("r", "Float")),
    ),
}  # fmt: skip


SIDE_BY_SIDE = ("mariadb", "postgresql, numbers as texts", "ydb-json")


def paths(held: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where values are, but for the fields of schema blocks."""
    members = held.items() if isinstance(held, dict) else enumerate(held) if isinstance(held, list) else ()
    for name, value in members:
        yield (*path, name)
        if name != "schema":
            yield from paths(value, (*path, name))


def poisoned(held: Any, path: tuple[str | int, ...], poison: str) -> bytes:
    copy: Any = json.loads(json.dumps(held))
    place = copy
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = "HERE"
    return json.dumps(copy, separators=(",", ":")).replace('"HERE"', poison).encode()


def batch_of(feed: Feed, values: list[bytes]) -> pa.RecordBatch:
    keys = [feed.key] * len(values)
    if feed.options.protocol == "open-protocol":
        key = json.dumps({"ts": TSO, "scm": "shop", "tbl": "t", "t": 1}).encode()
        keys = [(1).to_bytes(8, "big") + len(key).to_bytes(8, "big") + key] * len(values)
        values = [len(value).to_bytes(8, "big") + value for value in values]
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(["shop/t/feed"] * len(values)),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )


WAYS = [(name, few) for name in FEEDS for few in (1, 1 << 40) if few > 1 or name in SIDE_BY_SIDE]


@pytest.mark.parametrize(("name", "few"), WAYS, ids=[f"{name}, {few} at least" for name, few in WAYS])
def test_no_value_of_a_message_stops_the_reading_of_others(name: str, few: int) -> None:
    feed = FEEDS[name]
    sound = [json.dumps(value, separators=(",", ":")).encode() for value in feed.values]
    with patch.object(json_records, "FEW", few):
        spoken, rows, reasons = read(feed, sound)
        assert reasons == []
        assert rows
        for value in feed.values:
            for path in paths(value):
                torn = [poisoned(value, path, poison) for poison in POISON]
                try:
                    lines, decoded_rows, reasons = read(feed, [*torn, *sound])
                except MalformedData:  # rows without their columns may be due to a setting
                    assert name == "canal-json"
                    continue
                assert lines[-len(spoken) :] == spoken
                assert decoded_rows[-len(rows) :] == rows
                assert [reason for reason in reasons if "Error(" in reason] == []


def read(feed: Feed, values: list[bytes]) -> tuple[list[Any], list[Any], list[str]]:
    """What messages speak of, the changes in them, and why some are none."""
    codec = import_module(feed.options.kind.module).CODEC
    batch = batch_of(feed, values)
    spoken = codec.classify(batch, feed.options)
    codec.schemas(batch, feed.options)
    rows = rows_of(batch, spoken, TABLE)
    decoded_rows = codec.decode(rows, "landed", TABLE, TableSchema(feed.columns, ("id",)), feed.options)
    lines = [{name: value for name, value in line.items() if name != "message"} for line in spoken.to_pylist()]
    reasons = [line["reason"] for line in lines if line["reason"]] + [reject.reason for reject in decoded_rows.rejects]
    changes = decoded_rows.changes.to_pylist()
    return lines, [{name: value for name, value in row.items() if name in PLAIN} for row in changes], reasons


PLAIN = {"_cdc_op", "_cdc_commit_ts", "id", "a", "w", "t", "d", "s", "b", "m", "i", "r", "j"}
