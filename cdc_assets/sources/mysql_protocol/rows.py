"""The rows of a range, as changes: a query's answers, block by block.

A connection that breaks is opened again, and the rows that were yielded are passed over: at a TSO, or in a quiet table,
and in the order of the key they come again as they came.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import StorageUnavailable
from cdc_assets.formats.changes import ChangeBuilder, Faults, Images
from cdc_assets.formats.decoded import Decoded
from cdc_assets.model.dumps import DumpSplit, DumpTable
from cdc_assets.model.schema import Column
from cdc_assets.model.tso import Tso
from cdc_assets.sources import Generators
from cdc_assets.sources.mysql_protocol.address import Address
from cdc_assets.sources.mysql_protocol.ranges import ORDERED, statement
from cdc_assets.sources.mysql_protocol.session import Row, session
from cdc_assets.types.mysql_types import bit_values, values
from cdc_assets.types.mysql_values import Values

BLOCK_BYTES = 8 << 20
_BLOCK_ROWS = 50_000
_FETCHED = 500
_PAUSES_SECONDS = (0.5, 2.0, 8.0)
ROUNDED = "FLOAT that the server printed with fewer digits than it has"


@dataclass(frozen=True, slots=True)
class ServerReader:
    """Reads rows of a server's tables as they were at a TSO."""

    address: Address
    at: Tso
    breaks: list[str] = field(default_factory=list, compare=False, repr=False)
    """Why connections were opened again, by this reader in this process."""

    @property
    def reconnects(self) -> int:
        """Number of connections that broke in the midst of rows in this process and were opened again."""
        return len(self.breaks)

    def read(self, split: DumpSplit, table: DumpTable, at: Tso, generators: Generators) -> Iterator[Decoded]:
        """Yield the rows of a range. Stored generated columns are read like others, so there is nothing to generate.

        Raises StorageUnavailable where the server does not answer in several attempts, and what `session` raises.
        """
        first = 1
        for rows in self._blocks(statement(split.file)):
            yield _decoded(rows, first, split, table, at)
            first += len(rows)

    def lines_before(self, split: DumpSplit) -> int:
        """Return 0: rows are counted from the first of their range."""
        return 0

    def records(self, split: DumpSplit, lines: Collection[int]) -> dict[int, bytes]:
        """Return rows by their numbers, as a person can read them, asked for again."""
        rows = enumerate((row for block in self._blocks(statement(split.file)) for row in block), 1)
        chosen = ((number, row) for number, row in rows if number in lines)
        return {number: _raw(row) for number, row in islice(chosen, len(set(lines)))}

    def _blocks(self, sql: str) -> Iterator[list[Row]]:
        again = iter(_PAUSES_SECONDS if ORDERED in sql else ())
        done = 0
        while True:
            try:
                for block in _stream(self.address, self.at, sql, done):
                    done += len(block)
                    yield block
                return
            except StorageUnavailable as broken:
                pause = next(again, None)
                if pause is None:
                    raise
                self.breaks.append(broken.message)
                time.sleep(pause)


def _stream(address: Address, at: Tso, sql: str, skipped: int) -> Iterator[list[Row]]:
    """Yield the rows behind the first ones in blocks of a bounded size."""
    with session(address, at) as opened:
        block: list[Row] = []
        size = 0
        for rows in opened.stream(sql, _FETCHED):
            fresh = rows[skipped:]
            skipped -= len(rows) - len(fresh)
            block += fresh
            size += sum(len(value) for row in fresh for value in row if value is not None)
            if size >= BLOCK_BYTES or len(block) >= _BLOCK_ROWS:
                yield block
                block, size = [], 0
        if block:
            yield block


# --- rows -> changes --------------------------------------------------------------------------------------------------


def _decoded(rows: Sequence[Row], first: int, split: DumpSplit, table: DumpTable, at: Tso) -> Decoded:
    faults = Faults(split.file.path, lambda line: _raw(rows[line - first]))
    builder = ChangeBuilder(Images.inserted(np.arange(first, first + len(rows)), at), table.schema, faults)
    for place, column in enumerate(table.schema.stored):
        texts = pa.array([row[place] for row in rows], pa.binary())
        builder.add(column, _values(texts, column), texts)
    changes, notes = builder.changes()
    return Decoded(changes, faults.in_order(), None, notes)


def _values(texts: pa.BinaryArray, column: Column) -> Values:
    if column.type == "BIT":
        return bit_values(texts, column)
    read = values(texts, column)
    if column.type != "FLOAT" or column.scale is not None:
        return read
    # What a FLOAT holds is a DOUBLE too, so digits that are missing show.
    exact = values(texts, Column(column.name, "DOUBLE")).array
    rounded = pc.not_equal(exact, read.array.cast(pa.float64())).fill_null(False)
    return Values(read.array, read.bad, {ROUNDED: rounded} if rounded.true_count else {})


def _raw(row: Row) -> bytes:
    """Return a row as a person can read it, with escapes for bytes that are not text."""
    return json.dumps([None if value is None else value.decode("utf-8", "backslashreplace") for value in row]).encode()
