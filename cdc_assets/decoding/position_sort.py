"""Changes in the order of their positions in bounded memory: what does not fit lies in files on disk, each sorted.

add       tables in any order -> files of record batches, sorted by position
ranges    ranges of positions of about ROWS changes, read from all of these
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

_BATCHES = 20
"""Batches that a file has at least: as finely is known where it has how many positions."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch of a file, with its first and last position."""

    file: int
    number: int
    rows: int
    first: int
    last: int


class PositionSort:
    """Rows with a column of positions; about ROWS are held in memory at once, the others in files below `directory`."""

    ROWS = 200_000

    def __init__(self, directory: Path, column: str) -> None:
        self._directory, self._column = directory, column
        self._waiting: list[pa.Table] = []
        self._count = self._files = 0
        self._batches: list[_Batch] = []

    def add(self, table: pa.Table) -> None:
        """Take rows; tables may lack columns that others have."""
        if not table.num_rows:
            return
        self._waiting.append(table)
        self._count += table.num_rows
        if self._count >= self.ROWS:
            self._write()

    def _write(self) -> None:
        rows = self._sorted(self._waiting).combine_chunks()
        positions = rows.column(self._column)
        with pa.OSFile(str(self._path(self._files)), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as file:
            size = max(1, min(rows.num_rows, self.ROWS) // _BATCHES)
            for number, batch in enumerate(rows.to_batches(size)):
                file.write_batch(batch)
                first = positions[number * size].as_py()
                last = positions[number * size + batch.num_rows - 1].as_py()
                self._batches.append(_Batch(self._files, number, batch.num_rows, first, last))
        self._files, self._waiting, self._count = self._files + 1, [], 0

    def _path(self, file: int) -> Path:
        return self._directory / f"{file}.arrow"

    def _sorted(self, tables: list[pa.Table]) -> pa.Table:
        return pa.concat_tables(tables, promote_options="default").sort_by(self._column)

    def ranges(self) -> Iterator[pa.Table]:
        """Yield all rows: each table has all rows of its positions, and these are above those of the one before it."""
        if not self._files:
            if self._waiting:
                yield self._sorted(self._waiting)
            return
        if self._waiting:
            self._write()
        # Not mapped: pages of mapped files stay in memory, and count as this process's.
        readers = [pa.ipc.open_file(pa.OSFile(str(self._path(file)))) for file in range(self._files)]
        begin = min(batch.first for batch in self._batches) - 1
        for end in self._ends():
            parts = []
            for batch in self._batches:
                if batch.last > begin and batch.first <= end:
                    rows = pa.Table.from_batches([readers[batch.file].get_batch(batch.number)])
                    at = rows.column(self._column)
                    parts.append(rows.filter(pc.and_(pc.greater(at, begin), pc.less_equal(at, end))))
            yield self._sorted(parts)
            begin = end

    def _ends(self) -> list[int]:
        """Return the last positions of the ranges."""
        places = sorted((batch.last, batch.rows) for batch in self._batches)
        ends, rows = list[int](), 0
        for last, count in places:
            rows += count
            if rows >= self.ROWS:
                ends.append(last)
                rows = 0
        newest = places[-1][0]
        return [*dict.fromkeys(end for end in ends if end < newest), newest]
