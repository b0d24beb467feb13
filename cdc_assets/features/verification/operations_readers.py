"""The rows of both sides of a compared table, in the lake's types: read here or by executors, so picklable."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import MalformedData
from cdc_assets.features.verification.operations_rows import BlockFacts
from cdc_assets.formats import masked_blocks
from cdc_assets.model.dumps import DumpSplit, DumpTable
from cdc_assets.model.recipe import ExcludedKeys
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.operations.lake_rows import LakeRows
from cdc_assets.sources import DumpReader, Generators
from cdc_assets.types.key_digests import excluded_rows

Excluded = Sequence[tuple[ExcludedKeys, TableSchema]]


@dataclass(frozen=True)
class LakeReader:
    """Rows of the lake's data files, in columns of this shape, without those of excluded keys."""

    scan: LakeRows
    shape: pa.Schema
    excluded: Excluded = ()
    reconnects: int = 0

    def read(self, piece: Any) -> Iterator[tuple[pa.Table, BlockFacts]]:
        """Yield the rows of a data file."""
        for rows in self.scan.read_file(piece, self.shape.names):
            yield _without(rows.cast(self.shape), self.excluded), BlockFacts(rows.num_rows)


class RowRate:
    """Lets so many rows a second pass, over all threads of a process."""

    def __init__(self, rows_per_second: float | None) -> None:
        self._rate, self._lock, self._due = rows_per_second, Lock(), 0.0

    def __reduce__(self) -> tuple[type[RowRate], tuple[float | None]]:
        return RowRate, (self._rate,)

    def divided(self, count: int) -> RowRate:
        """Return the pace of one of so many processes that are to keep this one together."""
        return self if count == 1 or not self._rate else RowRate(self._rate / count)

    def wait(self, rows: int) -> None:
        """Wait until this many rows more may pass."""
        if self._rate:
            with self._lock:
                now = time.monotonic()
                self._due = max(self._due, now) + rows / self._rate
                pause = self._due - now
            time.sleep(pause)


@dataclass(frozen=True)
class SourceReader:
    """Rows of the source, read as those of a dump are: its columns `names`, which the lake calls `lake_names`."""

    reader: DumpReader
    table: DumpTable
    at: Tso
    generators: Generators
    names: Sequence[str]
    lake_names: Sequence[str]
    pace: RowRate
    excluded: Excluded = ()

    @property
    def reconnects(self) -> int:
        """How often a connection broke in this process, and was opened again."""
        return self.reader.reconnects

    def read(self, piece: DumpSplit) -> Iterator[tuple[pa.Table, BlockFacts]]:
        """Yield the rows of a range; raises MalformedData for one that no lake can have."""
        blocks = self.reader.read(piece, self.table, self.at, self.generators)
        for decoded in masked_blocks(blocks, str(self.table.id), self.table.schema):
            if decoded.rejects:
                first = decoded.rejects[0]
                raise MalformedData(
                    f"rows of the source do not fit the lake's types, such as {first.path} row {first.line}: "
                    f"{first.reason}.",
                    table=str(self.table.id),
                )
            count = decoded.changes.num_rows
            self.pace.wait(count)
            rows = decoded.changes.select(self.names).rename_columns(self.lake_names)
            left = _without(rows, self.excluded)
            yield left, BlockFacts(count, count - left.num_rows, decoded.notes)


def _without(rows: pa.Table, excluded: Excluded) -> pa.Table:
    """Return the rows whose keys are not excluded."""
    for known, schema in excluded:
        rows = rows.filter(pc.invert(excluded_rows(rows, schema, known, 0)))
    return rows
