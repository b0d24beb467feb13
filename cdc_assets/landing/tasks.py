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

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa

from cdc_assets.errors import CdcError
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.landing.files import Files, Spool, SpooledFiles
from cdc_assets.landing.partition_reader import Claims, LateRows, PartitionReader, Registered
from cdc_assets.landing.ranges import read_ahead, refuse_missing
from cdc_assets.landing.tables import Bounds, bounds_of, first_columns
from cdc_assets.model.landed import EventKind, Landed, LandedEvent, LandedMessage
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.sources.topics import LogReader

__all__ = [
    "Noted",
    "ObservedTables",
    "RangeResult",
    "ReaderState",
    "Shares",
    "TaskResult",
    "divided",
    "state_for_tasks",
]


@dataclass(slots=True)
class ObservedTables:
    """What rows show of their tables: where they begin and end, and columns of those that are not known.

    `pieces` are the first and last offsets of the batches in which the rows came.
    """

    bounds: dict[TableId, Bounds]
    columns: tuple[LandedEvent, ...]
    pieces: list[tuple[int, int]]

    @classmethod
    def of(cls, bounds: Iterable[Bounds], columns: Iterable[LandedEvent], piece: tuple[int, int]) -> ObservedTables:
        """Return what one batch shows."""
        return cls({one.table: one for one in bounds}, tuple(columns), [piece])

    def join(self, bounds: Iterable[Bounds], piece: tuple[int, int]) -> None:
        """Take the next batch, whose tables are known: an archive may have ten messages in each."""
        for one in bounds:
            known = self.bounds.get(one.table, one)
            self.bounds[one.table] = Bounds(one.table, _of(min, known.first, one.first), _of(max, known.last, one.last))
        self.pieces.append(piece)


def _of(chosen: Callable[..., Tso], *positions: Tso | None) -> Tso | None:
    return chosen((one for one in positions if one is not None), default=None)


Noted = tuple[Tso, "LandedEvent | ObservedTables"]
"""The greatest mark of the partition when something was found, 0 for none, and what that was."""


@dataclass(frozen=True, slots=True)
class RangeResult:
    """A range that was read up to its stop. `mark` and all that follow are its partition's then."""

    wanted: OffsetRange
    noted: tuple[Noted, ...] = ()
    mark: Tso | None = None
    restart: int | None = None
    mark_at: int | None = None
    newest: LandedMessage | None = None
    least: Tso = 0


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What one task read, and the file into which it wrote the rows; with `error` nothing."""

    ranges: tuple[RangeResult, ...] = ()
    written: SpooledFiles = field(default_factory=SpooledFiles)
    ignored: Mapping[str, int] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    messages: int = 0
    read_bytes: int = 0
    stored_bytes: int = 0
    error: CdcError | None = None


@dataclass(frozen=True, slots=True)
class ReaderState:
    """Where the driver stands when tasks go on from there. `began` and `described` are the tables known by then."""

    before: Landed
    options: MessageOptions
    proves_ends: bool
    marks: Mapping[Partition, Tso]
    restarts: Mapping[Partition, int]
    mark_at: Mapping[Partition, int]
    late: LateRows
    unknown: frozenset[str]
    began: frozenset[TableId]
    described: frozenset[TableId]


def state_for_tasks(before: Landed) -> Landed:
    """Return the part of the state that a task needs: how far is landed, and which losses are accepted."""
    lost = tuple(event for event in before.events if event.kind is EventKind.LOST)
    return Landed(before.identity, before.next, proven=before.proven, events=lost)


def divided(ranges: Iterable[OffsetRange], count: int) -> list[tuple[OffsetRange, ...]]:
    """Divide ranges into at most so many shares of about as many messages, each in the order of ranges."""
    shares: list[list[OffsetRange]] = [[] for _ in range(max(1, count))]
    sizes = [0] * len(shares)
    for wanted in sorted(ranges, key=lambda one: (-len(one), one)):
        least = sizes.index(min(sizes))
        shares[least].append(wanted)
        sizes[least] += len(wanted)
    return [tuple(sorted(share)) for share in shares if share]


class _TaskReader(PartitionReader):
    """What one task reads. `noted` is what it leaves to the driver."""

    def stand(self, standing: ReaderState) -> None:
        """Go on from where the driver stands."""
        self.marks, self.restarts = dict(standing.marks), dict(standing.restarts)
        self.mark_at, self.unknown = dict(standing.mark_at), set(standing.unknown)
        self.late = standing.late
        self.noted = list[Noted]()
        self._began, self._described = set(standing.began), set(standing.described)

    def _note(self, partition: Partition, what: LandedEvent | ObservedTables) -> None:
        self.noted.append((self.marks.get(partition, 0), what))

    def _land(self, event: LandedEvent) -> None:
        self._note(event.partition, event)

    def _take_ddl(self, event: LandedEvent) -> None:
        if event.table is not None:
            self._described.add(event.table)
        self._note(event.partition, event)

    def _see(self, rows: pa.Table) -> None:
        bounds = tuple(bounds_of(rows))
        fresh = {one.table for one in bounds} - (self._began & self._described)
        columns = tuple(first_columns(rows, fresh, self._schemas)) if fresh else ()
        self._began |= {one.table for one in bounds if one.first is not None}
        self._described |= {event.table for event in columns if event.table is not None}
        ends = rows.slice(0, 1), rows.slice(rows.num_rows - 1, 1)
        piece = ends[0].column("offset")[0].as_py(), ends[1].column("offset")[0].as_py()
        newest = self.noted[-1][1] if self.noted else None
        if not columns and isinstance(newest, ObservedTables) and not newest.columns:
            newest.join(bounds, piece)
            return
        place = Partition(ends[0].column("topic")[0].as_py(), ends[0].column("partition")[0].as_py())
        self._note(place, ObservedTables.of(bounds, columns, piece))


@dataclass(frozen=True)
class Shares:
    """Reads shares wherever a task runs: picklable. A row group holds `group_bytes`, a share about `share_bytes`."""

    shares: Sequence[Sequence[OffsetRange]]
    log: LogReader
    files: Files
    claims: Claims
    registry: Registered
    standing: ReaderState
    group_bytes: int
    share_bytes: int

    def __call__(self, number: int) -> TaskResult:
        """Read a share; what stops it is in the result, so that the files of the others can be removed."""
        spool = Spool(self.files, self.group_bytes)
        try:
            return self._taken(spool, self.shares[number])
        except CdcError as error:
            return TaskResult(error=error)
        finally:
            spool.abandon()

    def _taken(self, spool: Spool, share: Sequence[OffsetRange]) -> TaskResult:
        standing = self.standing
        reader = _TaskReader(standing.before, standing.options, self.claims, self.registry, standing.proves_ends)
        reader.stand(standing)
        found, read = list[RangeResult](), 0
        for wanted in share:
            at, size = self._read(reader, spool, wanted, self.share_bytes - read)
            read += size
            place = wanted.partition
            found.append(
                RangeResult(
                    OffsetRange(place, wanted.start, at), tuple(reader.noted), reader.marks.get(place),
                    reader.restarts.get(place), reader.mark_at.get(place),
                    reader.newest.get(place), reader.least.get(place, 0),
                )
            )  # fmt: skip
            reader.noted = []
            if at < wanted.stop or max(read, reader.stored_bytes) >= self.share_bytes:
                break
        spool.take(reader.rows)
        return TaskResult(
            tuple(found), spool.finish(), reader.ignored, frozenset(reader.unknown), reader.messages, read,
            reader.stored_bytes,
        )  # fmt: skip

    def _read(self, reader: _TaskReader, spool: Spool, wanted: OffsetRange, most: int) -> tuple[int, int]:
        """Read a range up to about so many bytes; return the offset behind what was read, and its bytes."""
        at, size, before = wanted.start, 0, self.standing.before
        with closing(read_ahead(self.log.read(wanted))) as batches:
            for batch in batches:
                if batch.num_rows:
                    at = refuse_missing(self.log, before, wanted, at, batch)
                    reader.take(batch, wanted)
                    spool.take_ahead(reader.rows, reader.stored_bytes)
                    size += batch.nbytes
                if at < wanted.stop and (size >= most or reader.stored_bytes >= self.share_bytes):
                    return at, size
        if at < wanted.stop:
            refuse_missing(self.log, before, wanted, at)
        return wanted.stop, size
