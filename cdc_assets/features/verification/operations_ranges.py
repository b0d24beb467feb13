"""A large table in ranges of its key, and the rows of both of its sides, read here or by executors.

A comparison goes on at a newer TSO where the source forgets an older one.

The borders are values of the first key column, read in the lake. A server is asked for the rows between two of them,
and a range in which both sides are equal is kept with the TSO as of which it was compared. Only columns are cut
whose values a server compares as it is done here, of which none is NULL: whole numbers, days and times without a zone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from threading import Lock
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import MalformedData
from cdc_assets.features.verification.operations_rows import BlockFacts
from cdc_assets.formats import conceal_blocks
from cdc_assets.model.dumps import DumpFile, DumpSplit, DumpTable, RowCondition
from cdc_assets.model.recipe import ExcludedKeys
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.operations.table_rows import LakeRows
from cdc_assets.sources import DumpReader, Generators
from cdc_assets.types.key_digests import excluded_rows

_FEWEST = 64
"""Fewest ranges of the key; below that the server cuts the table, as the column has few values."""
_ROWS_AT_ONCE, _MOST = 40_000, 512
"""Rows that a server is asked for at once, as long as these are not more questions."""


@dataclass(frozen=True, slots=True)
class EqualRange:
    """A range of a table's key in which lake and source were equal: `low` <= the first key column < `high`, as texts.

    None is no bound. The source was read as of `at`. `source` and `basis` are those of a `TableComparison`; `excluded`
    rows of the source were not compared.
    """

    low: str | None
    high: str | None
    at: Tso
    rows: int
    source: str
    basis: str
    excluded: int = 0


@dataclass(frozen=True, slots=True)
class RangePlan:
    """Ranges of a column, between `borders`: those of `equal` are, the `open_ranges` are to be compared.

    `earlier` counts the rows of the equal ones by the TSO as of which they were compared.
    """

    column: Column
    borders: pl.Series
    equal: frozenset[int]
    open_ranges: tuple[range, ...]
    earlier: Mapping[Tso, int]

    def bounds(self, ranges: range) -> tuple[str | None, str | None]:
        """Return the texts between which ranges that follow each other lie, None for no bound."""
        low = None if ranges.start == 0 else _text(self.borders[ranges.start - 1])
        return low, None if ranges.stop > self.borders.len() else _text(self.borders[ranges.stop - 1])

    def files(self, table: DumpTable, number_ranges: Sequence[range]) -> Iterator[tuple[DumpFile, list[RowCondition]]]:
        """Yield the queries for a server: all rows of a table, and the conditions of some ranges."""
        whole = replace(table.files[0], condition="")
        for number, ranges in enumerate(number_ranges):
            bounds = zip((">=", "<"), self.bounds(ranges), strict=True)
            conditions = [RowCondition(whole.ordered_by, sign, text) for sign, text in bounds if text is not None]
            yield replace(whole, path=f"{table.id}.{number:09d}.{whole.kind}"), conditions


def plan_ranges(
    borders: pl.Series | None, column: Column, table: DumpTable, name: str, equal: Sequence[EqualRange], rows: int
) -> RangePlan | None:
    """Return the ranges in which a table of about so many rows is compared, None for one that is not cut.

    `name` is the first key column in the source, and `equal` are the ranges that need not be compared.
    """
    ordered_by = table.files[0].ordered_by if table.files else ""
    if borders is None or borders.len() < _FEWEST - 1 or column.nullable or ordered_by != name:
        return None
    unsigned = (pl.UInt64,) if (column.type, column.unsigned) == ("BIGINT", True) else ()
    if borders.dtype not in (pl.Int32, pl.Int64, pl.Date, pl.Datetime("us"), *unsigned):
        return None
    ends = [
        _value(text, borders.dtype)
        for equal_range in equal
        for text in (equal_range.low, equal_range.high)
        if text is not None
    ]
    borders = pl.concat([borders, pl.Series(ends, dtype=borders.dtype)]).unique().sort()
    limits: list[Any] = [None, *borders.to_list(), None]
    intervals = [
        tuple(None if text is None else _value(text, borders.dtype) for text in (equal_range.low, equal_range.high))
        for equal_range in equal
    ]
    numbers = frozenset(
        number
        for number in range(len(limits) - 1)
        if any(_is_within(limits[number], limits[number + 1], *interval) for interval in intervals)
    )
    questions = min(_MOST, max(_FEWEST, rows // _ROWS_AT_ONCE))
    number_ranges = grouped([number for number in range(len(limits) - 1) if number not in numbers], questions)
    earlier = Counter[Tso]()
    for equal_range in equal:
        earlier[equal_range.at] += equal_range.rows
    return RangePlan(column, borders, numbers, number_ranges, dict(earlier))


def _is_within(low: Any, high: Any, begin: Any, end: Any) -> bool:
    """Return whether [low, high) is within [begin, end); None is no bound."""
    return (begin is None or (low is not None and begin <= low)) and (end is None or (high is not None and high <= end))


def grouped(numbers: Sequence[int], questions: int) -> tuple[range, ...]:
    """Return the numbers, which grow, as ranges of some that follow each other: at least `questions` if there are."""
    size, begin, ranges = max(1, -(-len(numbers) // questions)), 0, list[range]()
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or place - begin == size or numbers[place] != numbers[place - 1] + 1:
            ranges.append(range(numbers[begin], numbers[place - 1] + 1))
            begin = place
    return tuple(ranges)


def _text(value: int | date | datetime) -> str:
    """Return a value as servers print it."""
    return value.isoformat(" ", "microseconds") if isinstance(value, datetime) else str(value)


def _value(text: str, kind: pl.DataType) -> int | date | datetime:
    """Return the value of a text; the inverse of `_text`."""
    if kind == pl.Date:
        return date.fromisoformat(text)
    return datetime.fromisoformat(text) if isinstance(kind, pl.Datetime) else int(text)


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
        """Number of connections that broke in this process and were opened again."""
        return self.reader.reconnects

    def read(self, piece: DumpSplit) -> Iterator[tuple[pa.Table, BlockFacts]]:
        """Yield the rows of a range; raises MalformedData for one that no lake can have."""
        blocks = self.reader.read(piece, self.table, self.at, self.generators)
        for decoded in conceal_blocks(blocks, str(self.table.id), self.table.schema):
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
            compared = _without(rows, self.excluded)
            yield compared, BlockFacts(count, count - compared.num_rows, decoded.notes)


def _without(rows: pa.Table, excluded: Excluded) -> pa.Table:
    """Return the rows whose keys are not excluded."""
    for exclusion, schema in excluded:
        rows = rows.filter(pc.invert(excluded_rows(rows, schema, exclusion, 0)))
    return rows
