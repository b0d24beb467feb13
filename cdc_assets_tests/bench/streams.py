"""The same rows as in `messages`, as streams that describe themselves have them: Avro, Debezium's connectors, YDB."""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import fastavro
import pyarrow as pa

from cdc_assets.formats import MessageOptions
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.types.ydb_types import ydb_column

__all__ = [
    "YDB_SCHEMA",
    "avro_messages",
    "avro_options",
    "connector_messages",
    "fastavro_rate",
    "ydb_messages",
]

Message = tuple[bytes | None, bytes]
Row = Sequence[Any]
"""id, customer, state, amount in hundredths, placed in seconds, note, weight, count."""

_FIRST = 465283339517952001
_DAY = 86_400
_MARCH = 1_772_323_200


def _row(number: int) -> Row:
    note = None if number % 7 == 0 else "a note that is neither long nor short " * (number % 3)
    amount, placed = number % 99991 * 100 + number % 100, _MARCH + number % 2_000_000
    return number, number % 5000, "paid", amount, placed, note, number / 3, number % 100


def _moment(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


# --- Avro -------------------------------------------------------------------------------------------------------------

_AVRO: Sequence[tuple[str, str, str, dict[str, Any]]] = (
    ("id", "long", "BIGINT", {}),
    ("customer", "long", "INT UNSIGNED", {}),
    ("state", "string", "TEXT", {}),
    ("amount", "bytes", "DECIMAL", {"logicalType": "decimal", "precision": 15, "scale": 2}),
    ("placed", "string", "DATETIME", {}),
    ("day", "string", "DATE", {}),
    ("note", "string", "TEXT", {}),
    ("weight", "double", "DOUBLE", {}),
    ("count", "int", "INT", {}),
    ("changed", "string", "TIMESTAMP", {}),
)


def _avro_record(names: Sequence[str], extension: bool) -> str:
    fields: list[dict[str, Any]] = []
    for name, base, kind, more in _AVRO:
        if name in names:
            declared = {"type": base, "connect.parameters": {"tidb_type": kind}, **more}
            fields.append(
                {"name": name, "type": declared}
                if name == "id"
                else {"name": name, "type": ["null", declared], "default": None}
            )
    if extension:
        fields.append({"name": "_tidb_op", "type": "string", "default": ""})
        fields += [
            {"name": name, "type": "long", "default": 0} for name in ("_tidb_commit_ts", "_tidb_commit_physical_time")
        ]
    return json.dumps({"type": "record", "name": "orders", "namespace": "default.bench", "fields": fields})


def avro_options() -> MessageOptions:
    """Return the options of `avro_messages`: with the extension, the schemas of key and value registered as 1 and 2."""
    texts = {"1": _avro_record(("id",), False), "2": _avro_record([field[0] for field in _AVRO], True)}
    return MessageOptions(protocol="avro", enable_tidb_extension=True, registry=texts)


def avro_messages(events: int) -> Iterator[Message]:
    """Yield rows as TiCDC's Avro, an update among four."""
    key, value = (
        fastavro.parse_schema(json.loads(text), named_schemas={}) for text in avro_options().registry.values()
    )
    for number in range(events):
        ident, customer, state, amount, placed, note, weight, count = _row(number)
        moment = _moment(placed)
        record = {
            "id": ident,
            "customer": customer,
            "state": state,
            "amount": amount.to_bytes(4, "big", signed=True),
            "placed": moment,
            "day": moment[:10],
            "note": note,
            "weight": weight,
            "count": count,
            "changed": moment,
            "_tidb_op": "u" if number % 4 == 0 else "c",
            "_tidb_commit_ts": _FIRST + number,
            "_tidb_commit_physical_time": _FIRST >> 18,
        }
        yield _avro({"id": ident}, key, 1), _avro(record, value, 2)


def _avro(record: dict[str, Any], parsed: Any, schema_id: int) -> bytes:
    sink = io.BytesIO(b"\0" + schema_id.to_bytes(4, "big"))
    sink.seek(5)
    fastavro.schemaless_writer(sink, parsed, record)
    return sink.getvalue()


def fastavro_rate(messages: pa.RecordBatch) -> float:
    """Return how many values of `avro_messages` fastavro alone reads to dicts in a second of CPU."""
    parsed = fastavro.parse_schema(json.loads(avro_options().registry["2"]), named_schemas={})
    payloads = [value[5:] for value in messages.column("value").to_pylist()]
    begun = time.process_time()
    for payload in payloads:
        fastavro.schemaless_reader(io.BytesIO(payload), parsed, None)
    return len(payloads) / (time.process_time() - begun)


# --- Debezium ---------------------------------------------------------------------------------------------------------

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_FIELDS: Sequence[dict[str, Any]] = (
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "int64", "optional": True, "field": "customer"},
    {"type": "string", "optional": True, "field": "state"},
    {
        "type": "bytes",
        "optional": True,
        "name": _DECIMAL,
        "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "15"},
        "field": "amount",
    },
    {"type": "int64", "optional": True, "name": "io.debezium.time.Timestamp", "version": 1, "field": "placed"},
    {"type": "int32", "optional": True, "name": "io.debezium.time.Date", "version": 1, "field": "day"},
    {"type": "string", "optional": True, "field": "note"},
    {"type": "double", "optional": True, "field": "weight"},
    {"type": "int16", "optional": True, "field": "count"},
    {"type": "string", "optional": True, "name": "io.debezium.time.ZonedTimestamp", "version": 1, "field": "changed"},
)
_SOURCE = ("version", "connector", "name", "snapshot", "db", "sequence", "table", "gtid", "file", "query")
_SOURCE_NUMBERS = ("ts_ms", "ts_us", "ts_ns", "server_id", "pos", "row", "thread")


def connector_messages(events: int) -> Iterator[Message]:
    """Yield rows as a MariaDB connector's, each with its schema block; an update among four has the row before it."""
    envelope = json.dumps(_envelope(), separators=(",", ":"))
    fields = [_FIELDS[0]]
    key = json.dumps({"type": "struct", "fields": fields, "optional": False, "name": "shop.Key"}, separators=(",", ":"))
    for number in range(events):
        update = number % 4 == 0
        source = {
            "version": "3.5.0.Final", "connector": "mariadb", "name": "shop", "ts_ms": 1795291421000,
            "snapshot": "false", "db": "bench", "sequence": None, "ts_us": 1795291421000000,
            "ts_ns": 1795291421000000000, "table": "orders", "server_id": 1877, "gtid": f"7-1877-{number}",
            "file": "bin.000001", "pos": 1000 + 200 * number, "row": 0, "thread": None, "query": None,
        }  # fmt: skip
        payload = {
            "before": _connected(number + 1) if update else None, "after": _connected(number), "source": source,
            "transaction": None, "op": "u" if update else "c", "ts_ms": 1795291424575, "ts_us": 1795291424575565,
            "ts_ns": 1795291424575565080,
        }  # fmt: skip
        record = json.dumps(payload, separators=(",", ":"))
        yield (
            f'{{"schema":{key},"payload":{{"id":{number}}}}}'.encode(),
            f'{{"schema":{envelope},"payload":{record}}}'.encode(),
        )


def _envelope() -> dict[str, Any]:
    row = {"type": "struct", "fields": _FIELDS, "optional": True, "name": "shop.bench.orders.Value"}
    source = [{"type": "string", "optional": True, "field": name} for name in _SOURCE]
    source += [{"type": "int64", "optional": True, "field": name} for name in _SOURCE_NUMBERS]
    named = {"type": "struct", "fields": source, "optional": False, "name": "io.debezium.connector.mariadb.Source"}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, {**named, "version": 1, "field": "source"}]
    fields += [{"type": "string", "optional": False, "field": "op"}]
    fields += [{"type": "int64", "optional": True, "field": name} for name in ("ts_ms", "ts_us", "ts_ns")]
    return {"type": "struct", "fields": fields, "optional": False, "name": "shop.bench.orders.Envelope", "version": 2}


def _connected(number: int) -> dict[str, Any]:
    ident, customer, state, amount, placed, note, weight, count = _row(number)
    return {
        "id": ident,
        "customer": customer,
        "state": state,
        "amount": base64.b64encode(amount.to_bytes(4, "big", signed=True)).decode(),
        "placed": placed * 1000,
        "day": placed // _DAY,
        "note": note,
        "weight": weight,
        "count": count,
        "changed": _moment(placed).replace(" ", "T") + "Z",
    }


# --- YDB --------------------------------------------------------------------------------------------------------------

_YDB = (
    ("id", "Int64"), ("customer", "Uint32"), ("state", "Utf8"), ("amount", "Decimal(15,2)"), ("placed", "Datetime"),
    ("day", "Date"), ("note", "Utf8"), ("weight", "Double"), ("count", "Int16"), ("changed", "Timestamp"),
)  # fmt: skip
YDB_SCHEMA = TableSchema(tuple[Column, ...](ydb_column(name, kind) for name, kind in _YDB), ("id",))


def ydb_messages(events: int) -> Iterator[Message]:
    """Yield rows as YDB's changefeed of the mode NEW_IMAGE."""
    for number in range(events):
        ident, customer, state, amount, placed, note, weight, count = _row(number)
        moment = _moment(placed).replace(" ", "T")
        image = {
            "customer": customer, "state": state, "amount": f"{amount / 100:.2f}", "placed": f"{moment}.000000Z",
            "day": f"{moment[:10]}T00:00:00.000000Z", "note": note, "weight": weight, "count": count,
            "changed": f"{moment}.000000Z",
        }  # fmt: skip
        stamp = [1772323200000 + number, 281474976710657]
        record = {"update": {}, "newImage": image, "key": [ident], "ts": stamp}
        yield None, json.dumps(record, separators=(",", ":")).encode()
