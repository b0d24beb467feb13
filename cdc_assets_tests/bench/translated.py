"""The rows of a generated feed as protocols by offset send them: Avro, Debezium's connectors, YDB.

A `Translation` has for its protocol what `play` sends as Canal-JSON: equal changes of equal keys in equal partitions,
so that what they cost compares.
"""

from __future__ import annotations

import io
import json
import struct
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import fastavro

from cdc_assets_tests.bench.feeds import VERSION, Feed, create_table
from cdc_assets_tests.bench.topics import PARTITIONS, Message, messages_of_feed, spread

__all__ = ["TRANSLATIONS", "Translation"]

Row = Mapping[str, Any]
_EPOCH = date(1970, 1, 1)
_MARKS_APART = 20_000
"""Messages between two barriers."""


@dataclass(frozen=True)
class Translation:
    """A protocol: the sink URI's part behind the broker, its topic, its messages, and more flags of the command.

    Rows are `stamped` with the commit-ts of the feed's files where the protocol has it.
    """

    sink: str
    topic: str
    messages: Callable[[Feed], Iterator[Message]]
    flags: Callable[[Feed, Path], list[str]]
    stamped: bool = False

    @property
    def uri(self) -> str:
        """The sink URI of a topic in an archive."""
        return f"kafka://none:9092/{self.sink}"


@dataclass(frozen=True, slots=True)
class _Change:
    """A change: its number, partition, commit-ts, and the rows before and after."""

    number: int
    partition: int
    ts: int
    before: Row | None
    after: Row | None


def _changes(feed: Feed) -> Iterator[_Change]:
    (name,) = (feed.name(table) for table in range(feed.tables))
    rows = (path.read_bytes().splitlines() for path in feed.files())
    for number, line in enumerate(line for lines in rows for line in lines):
        message = json.loads(line)
        assert message["table"] == name.table
        (row,), old, kind = message["data"], message["old"], message["type"]
        before = row if kind == "DELETE" else old[0] if old else None
        after = None if kind == "DELETE" else row
        yield _Change(number, spread(line), message["_tidb"]["commitTs"], before, after)


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _canal(extension: bool) -> Translation:
    more = "&enable-tidb-extension=true" if extension else ""
    return Translation(
        f"bench?protocol=canal-json{more}&partition-num={PARTITIONS}",
        "bench",
        lambda feed: messages_of_feed(feed, mixed=False, extension=extension),
        lambda feed, directory: [] if extension else ["--accept-unordered"],
        stamped=extension,
    )


# --- Avro -------------------------------------------------------------------------------------------------------------

_AVRO: Mapping[str, tuple[Any, str]] = {
    "id": ("long", "BIGINT"),
    "customer": ("int", "INT"),
    "amount": ({"type": "bytes", "logicalType": "decimal", "precision": 15, "scale": 2}, "DECIMAL"),
    "price": ("double", "DOUBLE"),
    "status": ("string", "TEXT"),
    "note": ("string", "TEXT"),
    "created": ("string", "DATETIME"),
    "updated": ("string", "TIMESTAMP"),
    "day": ("string", "DATE"),
    "quantity": ("long", "INT UNSIGNED"),
    "weight": ("float", "FLOAT"),
    "code": ("string", "TEXT"),
}


def _avro_schema(names: list[str], extension: bool) -> dict[str, Any]:
    fields: list[dict[str, Any]] = []
    for name in names:
        base, kind = _AVRO[name]
        typed = {**(base if isinstance(base, dict) else {"type": base}), "connect.parameters": {"tidb_type": kind}}
        nullable = {"type": ["null", typed], "default": None}
        fields.append({"name": name, **({"type": typed} if name == "id" else nullable)})
    if extension:
        fields.append({"name": "_tidb_op", "type": "string", "default": ""})
        fields += [
            {"name": name, "type": "long", "default": 0} for name in ("_tidb_commit_ts", "_tidb_commit_physical_time")
        ]
    return {"type": "record", "name": "t0000", "namespace": "default.bench", "fields": fields}


_AVRO_SCHEMAS = (_avro_schema(["id"], False), _avro_schema(list(_AVRO), True))
"""Of keys and of values, registered as 1 and 2."""


def _avro_messages(feed: Feed) -> Iterator[Message]:
    key_schema, value_schema = (fastavro.parse_schema(schema, named_schemas={}) for schema in _AVRO_SCHEMAS)
    for change in _changes(feed):
        row = change.after or change.before or {}
        key = _avro({"id": int(row["id"])}, key_schema, 1)
        if change.after is None:
            yield Message(change.partition, key, None)
            continue
        cents = int(row["amount"].replace(".", ""))
        record = {
            **row, "id": int(row["id"]), "customer": int(row["customer"]), "price": float(row["price"]),
            "amount": cents.to_bytes(cents.bit_length() // 8 + 1, "big", signed=True),
            "quantity": int(row["quantity"]), "weight": float(row["weight"]),
            "_tidb_op": "u" if change.before else "c", "_tidb_commit_ts": change.ts,
            "_tidb_commit_physical_time": change.ts >> 18,
        }  # fmt: skip
        yield Message(change.partition, key, _avro(record, value_schema, 2))


def _avro(record: Row, schema: Any, number: int) -> bytes:
    sink = io.BytesIO(struct.pack(">BI", 0, number))
    sink.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(sink, schema, record)
    return sink.getvalue()


def _avro_flags(feed: Feed, directory: Path) -> list[str]:
    registry = directory / "registry.json"
    texts = {str(number): json.dumps(schema) for number, schema in enumerate(_AVRO_SCHEMAS, 1)}
    registry.write_text(json.dumps({"schemas_by_id": texts}))
    config = directory / "changefeed.toml"
    config.write_text('[sink]\ndispatchers = [{matcher = ["*.*"], topic = "bench", partition = "index-value"}]\n')
    return ["--schema-registry", str(registry), "--config", str(config), "--complete", "bench.*"]


# --- Debezium ---------------------------------------------------------------------------------------------------------

_DECIMAL = {"scale": "2", "connect.decimal.precision": "15"}
_CONNECT: Mapping[str, dict[str, Any]] = {
    "id": {"type": "int64", "optional": False},
    "customer": {"type": "int32"},
    "amount": {
        "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1, "parameters": _DECIMAL,
    },
    "price": {"type": "double"},
    "status": {"type": "string"},
    "note": {"type": "string"},
    "created": {"type": "int64", "name": "io.debezium.time.Timestamp", "version": 1},
    "updated": {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1},
    "day": {"type": "int32", "name": "io.debezium.time.Date", "version": 1},
    "quantity": {"type": "int64"},
    "weight": {"type": "float"},
    "code": {"type": "string"},
}  # fmt: skip
_SOURCE = ("version", "connector", "name", "snapshot", "db", "sequence", "table", "gtid", "file", "query")
_SOURCE_NUMBERS = ("ts_ms", "ts_us", "ts_ns", "server_id", "pos", "row", "thread")


def _struct(fields: list[dict[str, Any]], name: str, **more: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": fields, "optional": False, "name": name, **more}


def _envelope(columns: list[dict[str, Any]]) -> dict[str, Any]:
    row = {**_struct(columns, "shop.bench.t0000.Value"), "optional": True}
    source = [{"type": "string", "optional": True, "field": name} for name in _SOURCE]
    source += [{"type": "int64", "optional": True, "field": name} for name in _SOURCE_NUMBERS]
    fields = [{**row, "field": "before"}, {**row, "field": "after"}]
    fields += [_struct(source, "io.debezium.connector.mysql.Source", version=1, field="source")]
    fields += [{"type": "string", "optional": False, "field": "op"}]
    fields += [{"type": "int64", "optional": True, "field": name} for name in ("ts_ms", "ts_us", "ts_ns")]
    return _struct(fields, "shop.bench.t0000.Envelope", version=2)


def _connector_messages(feed: Feed, with_schema: bool) -> Iterator[Message]:
    columns = [{"optional": True, **column, "field": name} for name, column in _CONNECT.items()]
    key_schema = _compact(_struct([columns[0]], "shop.bench.t0000.Key")).decode()
    value_schema = _compact(_envelope(columns)).decode()
    query = create_table(feed.name(0), feed.schema)
    made = {"source": _source(-1, VERSION >> 18), "ts_ms": VERSION >> 18, "databaseName": "bench", "schemaName": None}
    table = {"type": "CREATE", "id": '"bench"."t0000"', "table": {}}
    yield Message(0, None, _compact({**made, "ddl": query, "tableChanges": [table]}), "shop")
    frames = [f'{{"schema":{schema},"payload":%s}}' if with_schema else "%s" for schema in (key_schema, value_schema)]
    for change in _changes(feed):
        ms, row = change.ts >> 18, change.after or change.before or {}
        images = {
            name: None if image is None else _connected(image)
            for name, image in (("before", change.before), ("after", change.after))
        }
        op = "d" if change.after is None else "u" if change.before else "c"
        sent = {"op": op, "ts_ms": ms + 100, "ts_us": (ms + 100) * 1000, "ts_ns": (ms + 100) * 1_000_000}
        payload = {**images, "source": _source(change.number, ms), "transaction": None, **sent}
        key = (frames[0] % f'{{"id":{row["id"]}}}').encode()
        yield Message(change.partition, key, (frames[1] % _compact(payload).decode()).encode())
        if change.after is None:
            yield Message(change.partition, key, None)


def _source(number: int, ms: int) -> Row:
    return {
        "version": "3.5.0.Final", "connector": "mysql", "name": "shop", "ts_ms": ms - ms % 1000, "snapshot": "false",
        "db": "bench", "sequence": None, "ts_us": ms * 1000, "ts_ns": ms * 1_000_000, "table": "t0000",
        "server_id": 1877, "gtid": None, "file": "bin.000001", "pos": 1400 + 400 * number, "row": 0, "thread": None,
        "query": None,
    }  # fmt: skip


def _connected(row: Row) -> Row:
    cents = int(row["amount"].replace(".", ""))
    created = datetime.fromisoformat(row["created"]).replace(tzinfo=timezone.utc)
    return {
        **row,
        "id": int(row["id"]),
        "customer": int(row["customer"]),
        "amount": b64encode(cents.to_bytes(cents.bit_length() // 8 + 1, "big", signed=True)).decode(),
        "price": float(row["price"]),
        "created": round(created.timestamp() * 1000),
        "updated": row["updated"].replace(" ", "T") + "Z",
        "day": (date.fromisoformat(row["day"]) - _EPOCH).days,
        "quantity": int(row["quantity"]),
        "weight": float(row["weight"]),
    }


def _connector(with_schema: bool) -> Translation:
    return Translation(
        "shop?protocol=debezium-json",
        "shop.bench.t0000",
        lambda feed: _connector_messages(feed, with_schema),
        lambda feed, directory: ["--topics", "shop*"],
    )


# --- YDB --------------------------------------------------------------------------------------------------------------

_YDB: Mapping[str, str] = {
    "id": "Int64 NOT NULL", "customer": "Int32", "amount": "Decimal(15,2)", "price": "Double", "status": "Utf8",
    "note": "Utf8", "created": "Timestamp", "updated": "Datetime", "day": "Date", "quantity": "Uint32",
    "weight": "Float", "code": "Utf8",
}  # fmt: skip
_SHARD = 281474976710657


def _ydb_messages(feed: Feed) -> Iterator[Message]:
    step = 0
    for change in _changes(feed):
        row, step = change.after or change.before or {}, (change.ts >> 18) + change.number
        head: dict[str, Any] = {"erase": {}} if change.after is None else {"update": {}, "newImage": _ydb_image(row)}
        record = {**head, "key": [int(row["id"])], "ts": [step, _SHARD]}
        yield Message(change.partition, None, _compact(record))
        if change.number % _MARKS_APART == _MARKS_APART - 1:
            yield from _barriers(step)
    yield from _barriers(step + 1)


def _barriers(step: int) -> Iterator[Message]:
    for partition in range(PARTITIONS):
        yield Message(partition, None, _compact({"resolved": [step, 0 if step % 2 else 1 << 60]}))


def _ydb_image(row: Row) -> Row:
    return {
        **{name: value for name, value in row.items() if name != "id"},
        "customer": int(row["customer"]),
        "price": float(row["price"]),
        "created": row["created"].replace(" ", "T") + "000Z",
        "updated": row["updated"].replace(" ", "T") + ".000000Z",
        "day": row["day"] + "T00:00:00.000000Z",
        "quantity": int(row["quantity"]),
        "weight": float(row["weight"]),
    }


def _ydb_flags(feed: Feed, directory: Path) -> list[str]:
    columns = ", ".join(f"{name} {kind}" for name, kind in _YDB.items())
    path = "bench/t0000"
    text = f"CREATE TABLE `{path}` ({columns}, PRIMARY KEY (id));\n"
    text += f"ALTER TABLE `{path}` ADD CHANGEFEED feed WITH (FORMAT = 'JSON', MODE = 'NEW_IMAGE');\n"
    (directory / "schemas.sql").write_text(text)
    return ["--complete", "bench.*", "--schemas", str(directory / "schemas.sql")]


TRANSLATIONS: Mapping[str, Translation] = {
    "canal-json with the extension": _canal(True),
    "canal-json": _canal(False),
    "avro": Translation("bench?protocol=avro&enable-tidb-extension=true", "bench", _avro_messages, _avro_flags, True),
    "debezium-json": _connector(True),
    "debezium-json without schemas": _connector(False),
    "ydb-json": Translation("bench/t0000/feed?protocol=ydb-json", "bench/t0000/feed", _ydb_messages, _ydb_flags),
}
"""By protocol; the first is by commit-ts, what the others are compared with."""
