"""How fast messages of topics become Arrow: row events a second on one core, by protocol.

Messages hold 16 rows of one table, 10 columns each, an update among four; time is that of `classify` and `decode`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import import_module

import numpy as np
import pyarrow as pa

from cdc_assets.formats import MESSAGE_FORMATS
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets_tests.craft_writer import Cell, Row, message
from cdc_assets_tests.topics import messages_of, rows_of

__all__ = ["LEAST_PER_SECOND", "SCHEMA", "TABLE", "craft_messages", "rates"]

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


def _cells(number: int) -> list[Cell]:
    moment = f"2026-03-{number % 28 + 1:02d} {number % 24:02d}:{number % 60:02d}:{number % 59:02d}".encode()
    amount = f"{number % 99991}.{number % 100:02d}".encode()
    note = None if number % 7 == 0 else b"a note that is neither long nor short " * (number % 3)
    held = (number, number % 5000, b"paid", amount, moment, moment[:10], note, number / 3, number % 100, moment)
    return [
        Cell(column.name, _CODES[column.type], 11 if column.is_pk else 192 if column.unsigned else 64, value)
        for column, value in zip(SCHEMA.columns, held, strict=True)
    ]


def craft_messages(events: int) -> list[bytes]:
    """Return messages with so many row events in all."""
    found = []
    for first in range(0, events, _ROWS):
        rows = [
            Row(465283339517952001 + n, "bench", "orders", _cells(n), _cells(n + 1) if n % 4 == 0 else None)
            for n in range(first, first + _ROWS)
        ]
        found.append(message(rows))
    return found


def rates(events: int) -> Iterator[tuple[str, float]]:
    """Yield for each protocol the row events a second, the best of three."""
    for name, values in (("craft", craft_messages(events)),):
        plug, options = import_module(MESSAGE_FORMATS[name]), MessageOptions(protocol=name)
        messages = messages_of([(None, value) for value in values])
        yield name, max(_rate(plug, messages, options) for _ in range(3))


def _rate(plug: object, messages: pa.RecordBatch, options: MessageOptions) -> float:
    begun = time.process_time()
    spoken = plug.classify(messages, options)  # type: ignore[attr-defined]
    found = plug.decode(rows_of(messages, spoken, TABLE), "bench", TABLE, SCHEMA, options)  # type: ignore[attr-defined]
    spent = time.process_time() - begun
    assert not found.rejects
    return len(np.unique(found.changes.column("_cdc_line").to_numpy())) / spent
