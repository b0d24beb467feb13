"""Ranges of topics, read by tasks elsewhere: each task a share of them, into one file of its own.

    divided(ranges, count)   ranges -> shares
    Shares(…)(number)        read a share: what it Taken is

A partition is one task's: which delivery its rows are of depends on the marks before them. A share ends where it is as
much as one commit holds, so that neither its file nor what is in memory grows with the range. Its file is in no
snapshot until the driver commits it: what a task that died has written, or one that was done twice, is swept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from cdc_assets.errors import CdcError
from cdc_assets.landing.ahead import read_ahead
from cdc_assets.landing.first_rows import bounds_of, first_columns
from cdc_assets.landing.losses import refuse_missing
from cdc_assets.landing.sorting import Claims, Registered, Sorting
from cdc_assets.landing.spool import Spool
from cdc_assets.landing.store import Files
from cdc_assets.landing.taken import Noted, Seen, Standing, Taken, TakenRange
from cdc_assets.model.landed import LandedEvent
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.sources.topics import LogReader

__all__ = ["Shares", "divided"]


def divided(ranges: Iterable[OffsetRange], count: int) -> list[tuple[OffsetRange, ...]]:
    """Divide ranges into at most so many shares of about as many messages, each in the order of ranges."""
    shares: list[list[OffsetRange]] = [[] for _ in range(max(1, count))]
    sizes = [0] * len(shares)
    for wanted in sorted(ranges, key=lambda one: (-len(one), one)):
        least = sizes.index(min(sizes))
        shares[least].append(wanted)
        sizes[least] += len(wanted)
    return [tuple(sorted(share)) for share in shares if share]


class _Share(Sorting):
    """What one task reads. `noted` is what it leaves to the driver."""

    def stand(self, standing: Standing) -> None:
        """Go on from where the driver stands."""
        self.marks, self.restarts = dict(standing.marks), dict(standing.restarts)
        self.mark_at, self.unknown = dict(standing.mark_at), set(standing.unknown)
        self.late = standing.late
        self.noted = list[Noted]()
        self._began, self._described = set(standing.began), set(standing.described)

    def _note(self, partition: Partition, what: LandedEvent | Seen) -> None:
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
        if not columns and isinstance(newest, Seen) and not newest.columns:
            newest.join(bounds, piece)
            return
        place = Partition(ends[0].column("topic")[0].as_py(), ends[0].column("partition")[0].as_py())
        self._note(place, Seen.of(bounds, columns, piece))


@dataclass(frozen=True)
class Shares:
    """Reads shares wherever a task runs: picklable. A row group holds `group_bytes`, a share about `share_bytes`."""

    shares: Sequence[Sequence[OffsetRange]]
    log: LogReader
    files: Files
    claims: Claims
    registry: Registered
    standing: Standing
    group_bytes: int
    share_bytes: int

    def __call__(self, number: int) -> Taken:
        """Read a share; what stops it is in the result, so that the files of the others can be removed."""
        spool = Spool(self.files, self.group_bytes)
        try:
            return self._taken(spool, self.shares[number])
        except CdcError as error:
            return Taken(error=error)
        finally:
            spool.abandon()

    def _taken(self, spool: Spool, share: Sequence[OffsetRange]) -> Taken:
        standing = self.standing
        sorting = _Share(standing.before, standing.options, self.claims, self.registry, standing.proves_ends)
        sorting.stand(standing)
        found, read = list[TakenRange](), 0
        for wanted in share:
            at, size = self._read(sorting, spool, wanted, self.share_bytes - read)
            read += size
            place = wanted.partition
            found.append(
                TakenRange(
                    OffsetRange(place, wanted.start, at), tuple(sorting.noted), sorting.marks.get(place),
                    sorting.restarts.get(place), sorting.mark_at.get(place),
                    sorting.newest.get(place), sorting.least.get(place, 0),
                )
            )  # fmt: skip
            sorting.noted = []
            if at < wanted.stop or max(read, sorting.stored_bytes) >= self.share_bytes:
                break
        spool.take(sorting.rows)
        return Taken(
            tuple(found), spool.finish(), sorting.ignored, frozenset(sorting.unknown), sorting.messages, read,
            sorting.stored_bytes,
        )  # fmt: skip

    def _read(self, sorting: _Share, spool: Spool, wanted: OffsetRange, most: int) -> tuple[int, int]:
        """Read a range up to about so many bytes; return the offset behind what was read, and its bytes."""
        at, size, before = wanted.start, 0, self.standing.before
        with closing(read_ahead(self.log.read(wanted))) as batches:
            for batch in batches:
                if batch.num_rows:
                    at = refuse_missing(self.log, before, wanted, at, batch)
                    sorting.take(batch, wanted)
                    spool.take_ahead(sorting.rows, sorting.stored_bytes)
                    size += batch.nbytes
                if at < wanted.stop and (size >= most or sorting.stored_bytes >= self.share_bytes):
                    return at, size
        if at < wanted.stop:
            refuse_missing(self.log, before, wanted, at)
        return wanted.stop, size
