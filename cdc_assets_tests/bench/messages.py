"""How fast messages of topics become Arrow: row events a second on one core, by protocol.

Rows of one table have 10 columns, an update among four; Craft and the Open Protocol hold 16 in a message. Time is the
CPU's, of `classify` as landing does it and of `decode` as a window does it, batch by batch.
"""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import MessageOptions
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.sources.topics import BATCH_BYTES
from cdc_assets_tests.bench import streams
from cdc_assets_tests.craft_writer import Cell, Row, message
from cdc_assets_tests.topics import messages_of, rows_of

__all__ = ["LEAST_PER_SECOND", "SAMPLES", "SCHEMA", "TABLE", "Rate", "Sample", "rates"]

LEAST_PER_SECOND = 100_000
TABLE = TableId("bench", "orders")
SCHEMA = TableSchema(
    (
        Column("id", "BIGINT", nullable=False, is_pk=True),
        Column("customer", "INT", unsigned=True),
        Column("state", "VARCHAR", precision=20),
        Column("amount", "DECIMAL", precision=15, scale=2),
        Column("placed", "DATETIME", scale=0),
        Column("day", "DATE"),
        Column("note", "VARCHAR", precision=200),
        Column("weight", "DOUBLE"),
        Column("count", "SMALLINT"),
        Column("changed", "TIMESTAMP", scale=0),
    ),
    ("id",),
)
_CODES = {"BIGINT": 8, "INT": 3, "VARCHAR": 15, "DECIMAL": 246, "DATETIME": 12, "DATE": 10, "DOUBLE": 5}
_CODES |= {"SMALLINT": 2, "TIMESTAMP": 7}
_ROWS = 16
_FIRST = 465283339517952001
_WIRE_NUMBERS = {"BIGINT": -5, "INT": 4, "VARCHAR": 12, "DECIMAL": 3, "DATETIME": 93, "DATE": 91, "DOUBLE": 8}
_WIRE_NUMBERS |= {"SMALLINT": 5, "TIMESTAMP": 93}


def _cells(number: int) -> list[Cell]:
    moment = f"2026-03-{number % 28 + 1:02d} {number % 24:02d}:{number % 60:02d}:{number % 59:02d}".encode()
    amount = f"{number % 99991}.{number % 100:02d}".encode()
    note = None if number % 7 == 0 else b"a note that is neither long nor short " * (number % 3)
    held = (number, number % 5000, b"paid", amount, moment, moment[:10], note, number / 3, number % 100, moment)
    return [
        Cell(column.name, _CODES[column.type], 11 if column.is_pk else 192 if column.unsigned else 64, value)
        for column, value in zip(SCHEMA.columns, held, strict=True)
    ]


Message = tuple[bytes | None, bytes]
"""Key and value."""


def craft_messages(events: int) -> Iterator[Message]:
    """Yield messages with so many row events in all."""
    for first in range(0, events, _ROWS):
        rows = [Row(_FIRST + n, "bench", "orders", _cells(n), _before(n)) for n in range(first, first + _ROWS)]
        yield None, message(rows)


def open_messages(events: int) -> Iterator[Message]:
    """The same in the Open Protocol."""
    for first in range(0, events, _ROWS):
        keys, values = [], []
        for n in range(first, first + _ROWS):
            keys.append(json.dumps({"ts": _FIRST + n, "scm": "bench", "tbl": "orders", "t": 1}).encode())
            sides = {"u": _typed(_cells(n))} | ({"p": _typed(_before(n) or [])} if n % 4 == 0 else {})
            values.append(_compact(sides))
        yield _framed(keys, struct.pack(">Q", 1)), _framed(values)


def canal_messages(events: int) -> Iterator[Message]:
    """The same in Canal-JSON, a row a message."""
    types = {column.name: column.type.lower() for column in SCHEMA.columns}
    numbers = {column.name: _WIRE_NUMBERS[column.type] for column in SCHEMA.columns}
    for n in range(events):
        before = _before(n)
        head: dict[str, Any] = {"id": 0, "database": "bench", "table": "orders", "pkNames": ["id"], "isDdl": False}
        head |= {"type": "UPDATE" if before else "INSERT", "es": _FIRST >> 18, "ts": 1795216038851}
        head |= {"sql": "", "sqlType": numbers}
        sides = {"old": [_texts(before)] if before else None, "data": [_texts(_cells(n))]}
        yield None, _compact({**head, "mysqlType": types, **sides, "_tidb": {"commitTs": _FIRST + n}})


def changed_messages(events: int) -> Iterator[Message]:
    """Updates in Canal-JSON of which `old` has three columns in ten, others from row to row."""
    chosen = random.Random(0)
    for _, value in canal_messages(4 * events):
        record = json.loads(value)
        if record["old"]:
            (old,) = record["old"]
            record["old"] = [{name: text for name, text in old.items() if name != "id" and chosen.random() < 0.3}]
            yield None, _compact(record)


def simple_messages(events: int) -> Iterator[Message]:
    """The same in the Simple protocol, a row a message."""
    for n in range(events):
        before = _before(n)
        head = {"version": 1, "database": "bench", "table": "orders", "tableID": 9, "type": "INSERT"}
        head |= {"type": "UPDATE"} if before else {}
        sides = {"data": _with_zone(_cells(n))} | ({"old": _with_zone(before)} if before else {})
        yield None, _compact({**head, "commitTs": _FIRST + n, "buildTs": 5, "schemaVersion": 3, **sides})


def _before(number: int) -> list[Cell] | None:
    return _cells(number + 1) if number % 4 == 0 else None


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _framed(pieces: list[bytes], head: bytes = b"") -> bytes:
    return head + b"".join(struct.pack(">Q", len(piece)) + piece for piece in pieces)


def _plain(cell: Cell) -> Any:
    return cell.value.decode() if isinstance(cell.value, bytes) else cell.value


def _typed(cells: list[Cell]) -> dict[str, Any]:
    return {cell.name: {"t": cell.type, "f": cell.flags, "v": _plain(cell)} for cell in cells}


def _texts(cells: list[Cell]) -> dict[str, Any]:
    return {cell.name: None if cell.value is None else str(_plain(cell)) for cell in cells}


def _with_zone(cells: list[Cell]) -> dict[str, Any]:
    texts = _texts(cells)
    return {**texts, "changed": {"location": "UTC", "value": texts["changed"]}}


@dataclass(frozen=True, slots=True)
class Sample:
    """Messages of a protocol with so many row events of one table, and what they are read by."""

    messages: Callable[[int], Iterator[Message]]
    options: MessageOptions
    schema: TableSchema = SCHEMA


SAMPLES: dict[str, Sample] = {
    "craft": Sample(craft_messages, MessageOptions(protocol="craft")),
    "open-protocol": Sample(open_messages, MessageOptions(protocol="open-protocol")),
    "canal-json": Sample(canal_messages, MessageOptions(protocol="canal-json", enable_tidb_extension=True)),
    "canal-json, partial old": Sample(
        changed_messages, MessageOptions(protocol="canal-json", enable_tidb_extension=True, content_compatible=True)
    ),
    "simple": Sample(simple_messages, MessageOptions(protocol="simple")),
    "avro": Sample(streams.avro_messages, streams.avro_options()),
    "debezium-json": Sample(streams.connector_messages, MessageOptions(protocol="debezium-json")),
    "ydb-json": Sample(streams.ydb_messages, MessageOptions(protocol="ydb-json"), streams.YDB_SCHEMA),
}


@dataclass(frozen=True, slots=True)
class Rate:
    """CPU seconds that some messages cost: to classify them, to become Arrow. `beside` are those of
    another reader of the same messages, 0 where there is none."""

    protocol: str
    events: int
    value_bytes: int
    classify_seconds: float
    decode_seconds: float
    beside_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.classify_seconds + self.decode_seconds


def rates(events: int) -> Iterator[Rate]:
    """Yield what each protocol costs, the best of three."""
    for name, sample in SAMPLES.items():
        batches = [_batch(part) for part in _parts(sample.messages(events))]
        laps = [_lap(name, sample, batches) for _ in range(3)]
        yield min(laps, key=lambda rate: rate.seconds)


def _parts(messages: Iterator[Message]) -> Iterator[list[Message]]:
    """Cut messages into batches of the size in which a log is read."""
    held, size = list[Message](), 0
    for key, value in messages:
        held.append((key, value))
        size += len(key or b"") + len(value)
        if size >= BATCH_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _batch(messages: list[Message]) -> pa.RecordBatch:
    return messages_of(messages).append_column("topic", pa.repeat("bench/orders/feed", len(messages)))


def _lap(name: str, sample: Sample, batches: list[pa.RecordBatch]) -> Rate:
    plug: Any = import_module(sample.options.kind.module)
    spent, events, size, beside = [0.0, 0.0], 0, 0, 0.0
    for batch in batches:
        begun = time.process_time()
        spoken = plug.classify(batch, sample.options)
        classified = time.process_time()
        rows = rows_of(batch, spoken, TABLE)
        chosen = time.process_time()
        decoded_rows = plug.decode(rows, "bench", TABLE, sample.schema, sample.options)
        spent = [spent[0] + classified - begun, spent[1] + time.process_time() - chosen]
        assert not decoded_rows.rejects, decoded_rows.rejects[0]
        events += len(np.unique(decoded_rows.changes.column("_cdc_line").to_numpy()))
        size += pc.sum(pc.binary_length(batch.column("value"))).as_py()
        if name == "avro":
            beside += batch.num_rows / streams.fastavro_rate(batch)
    return Rate(name, events, size, spent[0], spent[1], beside)
