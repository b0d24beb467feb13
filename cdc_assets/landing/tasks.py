"""Ranges of topics, read by tasks elsewhere: each task a share of them, into one file of its own.

    divided(ranges, count)   ranges -> shares
    Shares(…)(number)        read a share -> TaskResult

A partition is one task's: which delivery its rows are of depends on the marks before them. A share ends where it is as
much as one commit holds, so that neither its file nor what is in memory grows with the range. Its file is in no
snapshot until the driver commits it: what a task that died has written, or one that was done twice, is swept.

A task knows of its own partitions only, so it decides nothing that needs others: it notes what the driver then takes in
the order in which it would have read the same itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from cdc_assets.errors import CdcError
from cdc_assets.landing.files import Files, Spool, SpooledFiles
from cdc_assets.landing.partition_reader import (
    Bounds,
    Finding,
    PartitionReader,
    PartitionState,
    bounds_of,
    concerning_messages,
    first_columns,
    read_range,
)
from cdc_assets.model.landed import EventKind, LandedEvent
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.sources.topics import LogReader


@dataclass(slots=True)
class ObservedTables:
    """Facts about tables from their rows: where they begin and end, and columns of those that are not known.

    `pieces` are the first and last offsets of the batches in which the rows came.
    """

    bounds: dict[TableId, Bounds]
    columns: tuple[LandedEvent, ...]
    pieces: list[tuple[int, int]]

    @classmethod
    def of(cls, bounds: Iterable[Bounds], columns: Iterable[LandedEvent], piece: tuple[int, int]) -> ObservedTables:
        """Return the events and rows of one batch."""
        return cls({table_bounds.table: table_bounds for table_bounds in bounds}, tuple(columns), [piece])

    def join(self, bounds: Iterable[Bounds], piece: tuple[int, int]) -> None:
        """Take the next batch, whose tables are known: an archive may have ten messages in each."""
        for table_bounds in bounds:
            bounds_before = self.bounds.get(table_bounds.table, table_bounds)
            self.bounds[table_bounds.table] = Bounds(
                table_bounds.table,
                _of(min, bounds_before.first, table_bounds.first),
                _of(max, bounds_before.last, table_bounds.last),
            )
        self.pieces.append(piece)

    def shown(self, tables: Collection[TableId]) -> Iterable[LandedEvent]:
        """Return the columns of tables, of those that were not known to the task."""
        return (event for event in self.columns if event.table in tables)


def _of(chosen: Callable[..., Tso], *positions: Tso | None) -> Tso | None:
    return chosen((position for position in positions if position is not None), default=None)


Note = tuple[Tso, LandedEvent | ObservedTables]
"""The greatest mark of the partition when something was found, 0 for none, and what that was."""


@dataclass(frozen=True, slots=True)
class RangeResult:
    """A range that was read up to its stop, what was found in it, and the state of its partition then."""

    offset_range: OffsetRange
    notes: tuple[Note, ...]
    state: PartitionState


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of one task: its ranges, and the file into which it wrote the rows; with `error` nothing."""

    ranges: tuple[RangeResult, ...] = ()
    written: SpooledFiles = field(default_factory=SpooledFiles)
    ignored: Mapping[str, int] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    messages: int = 0
    read_bytes: int = 0
    stored_bytes: int = 0
    error: CdcError | None = None


def divided(ranges: Iterable[OffsetRange], count: int) -> list[tuple[OffsetRange, ...]]:
    """Divide ranges into at most so many shares of about as many messages, each in the order of ranges."""
    shares: list[list[OffsetRange]] = [[] for _ in range(max(1, count))]
    sizes = [0] * len(shares)
    for offset_range in sorted(ranges, key=lambda span: (-len(span), span)):
        least = sizes.index(min(sizes))
        shares[least].append(offset_range)
        sizes[least] += len(offset_range)
    return [tuple(sorted(share)) for share in shares if share]


@dataclass
class _TaskNotes:
    """Notes of a task for the driver about what `reader` finds; `began` and `described` are the tables known by
    then.
    """

    reader: PartitionReader
    began: set[TableId]
    described: set[TableId]
    notes: list[Note] = field(default_factory=list)

    def add(self, finding: Finding, partition: Partition) -> None:
        """Note an event, or what rows show of their tables."""
        mark = self.reader.marks.get(partition, 0)
        if isinstance(finding, LandedEvent):
            if finding.kind is EventKind.DDL and finding.table is not None:
                self.described.add(finding.table)
            self.notes.append((mark, finding))
            return
        bounds = bounds_of(finding)
        fresh = {table_bounds.table for table_bounds in bounds} - (self.began & self.described)
        columns = tuple(first_columns(finding, fresh, self.reader.schemas)) if fresh else ()
        self.began |= {table_bounds.table for table_bounds in bounds if table_bounds.first is not None}
        self.described |= {event.table for event in columns if event.table is not None}
        offsets = finding.column("offset")
        piece = offsets[0].as_py(), offsets[-1].as_py()
        newest = self.notes[-1][1] if self.notes else None
        if not columns and isinstance(newest, ObservedTables) and not newest.columns:
            newest.join(bounds, piece)
        else:
            self.notes.append((mark, ObservedTables.of(bounds, columns, piece)))

    def taken(self) -> tuple[Note, ...]:
        """Return the notes and clear them."""
        notes, self.notes = tuple(self.notes), []
        return notes


@dataclass(frozen=True)
class Shares:
    """Reads shares wherever a task runs: picklable. A row group holds `group_bytes`, a share about `share_bytes`.

    Each task reads on from where `reader` is; `began` and `described` are the tables that are known by then.
    """

    shares: Sequence[Sequence[OffsetRange]]
    log: LogReader
    files: Files
    reader: PartitionReader
    began: frozenset[TableId]
    described: frozenset[TableId]
    group_bytes: int
    share_bytes: int

    def __call__(self, number: int) -> TaskResult:
        """Read a share; what stops it is in the result, so that the files of the others can be removed."""
        spool = Spool(self.files, self.group_bytes)
        try:
            with concerning_messages(self.reader.options):
                return self._read(spool, self.shares[number])
        except CdcError as error:
            return TaskResult(error=error)
        finally:
            spool.abandon()

    def _read(self, spool: Spool, share: Sequence[OffsetRange]) -> TaskResult:
        reader = self.reader.fork()
        notes = _TaskNotes(reader, set(self.began), set(self.described))
        results, rows, read_bytes, stored_bytes = list[RangeResult](), list[pa.Table](), 0, 0

        def take(batch: pa.RecordBatch, rest: OffsetRange) -> bool:
            nonlocal read_bytes, stored_bytes
            for finding in reader.read(batch, rest.partition):
                if isinstance(finding, pa.Table):
                    rows.append(finding)
                    stored_bytes += finding.nbytes
                notes.add(finding, rest.partition)
            spool.take_ahead(rows, stored_bytes)
            read_bytes += batch.nbytes
            return bool(max(read_bytes, stored_bytes) >= self.share_bytes)

        for offset_range in share:
            rest = read_range(self.log, self.reader.before, offset_range, reader.ignored, take)
            read = OffsetRange(offset_range.partition, offset_range.start, rest.start)
            results.append(RangeResult(read, notes.taken(), reader.state(offset_range.partition)))
            if max(read_bytes, stored_bytes) >= self.share_bytes:
                break
        spool.take(rows)
        return TaskResult(
            tuple(results), spool.finish(), reader.ignored, frozenset(reader.unknown), reader.messages, read_bytes,
            stored_bytes,
        )  # fmt: skip
