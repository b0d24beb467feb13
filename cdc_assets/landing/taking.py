"""Ranges of topics -> a reading, with commits on the way: read here, or by executors where they are large.

The driver reads on until it knows how many bytes a message has; then it knows how many are left, and whether executors
would bring them sooner. A small landing starts no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from cdc_assets.errors import TableMoved
from cdc_assets.lake.staging.executors import refuse_unshared
from cdc_assets.landing.batch import Advanced, LandingBatch, rows_after, state_after
from cdc_assets.landing.files import LANDED, LandingStore, Spool, SpooledFiles
from cdc_assets.landing.ranges import read_ahead, refuse_missing
from cdc_assets.landing.tasks import ObservedTables, RangeResult, Shares, TaskResult, divided
from cdc_assets.model.landed import Landed
from cdc_assets.model.offsets import Ends, OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.sources.topics import LogReader

__all__ = ["Executors", "RangeReader"]

_T = TypeVar("_T")

_MOST_AT_ONCE = 4
"""Tasks for each core between two commits, where there are so many partitions: Spark may not know all cores yet."""


class Executors(Protocol):
    """Who reads large ranges."""

    def worth(self, size: int) -> bool:
        """Return whether so many bytes are read there and not here."""

    @property
    def cores(self) -> int:
        """How many tasks run at the same time."""

    def run(self, count: int, work: Callable[[int], _T]) -> list[_T]:
        """Do tasks 0 … count-1, and return what they return."""


@dataclass
class RangeReader:
    """Takes ranges of a log. `reading` is what is not committed of them, `done` what is.

    `begin` returns a reading of nothing, `commit` lands one with the state after it.
    """

    log: LogReader
    store: LandingStore
    spool: Spool
    reading: LandingBatch
    begin: Callable[[], LandingBatch]
    commit: Callable[[LandingBatch, Landed, Advanced], Advanced]
    commit_bytes: int
    executors: Executors | None = None
    done: Advanced = field(default_factory=Advanced)

    def __post_init__(self) -> None:
        self._ends: Ends = {}
        self._bytes = self._messages = 0

    def take(self, ranges: Sequence[OffsetRange], ends: Ends) -> None:
        """Read ranges to their ends; what is too much for one commit is committed on the way, without a proof."""
        self._ends = ends
        self.reading.begin(ends)
        while ranges:
            ranges = self._there(ranges) if self._is_large(ranges) else self._here(ranges)

    def _is_large(self, ranges: Sequence[OffsetRange]) -> bool:
        """Return whether executors read ranges, by the bytes of the messages that were read so far."""
        if self.executors is None or not self._messages:
            return False
        return self.executors.worth(self._size(ranges))

    def _size(self, ranges: Sequence[OffsetRange]) -> int:
        """Return about how many bytes of messages are in ranges."""
        return self._bytes * sum(map(len, ranges)) // self._messages

    def _commit_so_far(self) -> None:
        state = state_after(self.reading, self._ends, self.reading.before.proven)
        state = replace(state, unawaited=self.reading.late.unawaited(self._ends))
        self.done = self.commit(self.reading, state, self.done)
        late, self.reading = self.reading.late, self.begin()
        self.reading.late = late
        if self.reading.before.next != state.next:
            raise TableMoved("another run has landed messages meanwhile. Look again.")

    # --- here ---

    def _here(self, ranges: Sequence[OffsetRange]) -> Sequence[OffsetRange]:
        """Read ranges one after the other; return what is left of them once it is known to be large."""
        for number, wanted in enumerate(ranges):
            if number and self._is_large(ranges[number:]):
                return ranges[number:]
            left = self._read(wanted, ranges[number + 1 :])
            if left:
                return left
        return ()

    def _read(self, wanted: OffsetRange, others: Sequence[OffsetRange]) -> Sequence[OffsetRange]:
        at = wanted.start
        with closing(read_ahead(self.log.read(wanted))) as batches:
            for batch in batches:
                if batch.num_rows:
                    at = refuse_missing(self.log, self.reading.before, wanted, at, batch)
                    self.reading.take(batch, wanted)
                    self.spool.take_ahead(self.reading.rows, self.reading.stored_bytes)
                    self._bytes, self._messages = self._bytes + batch.nbytes, self._messages + batch.num_rows
                if self.reading.stored_bytes >= self.commit_bytes:
                    self._commit_so_far()
                left = (OffsetRange(wanted.partition, at, wanted.stop), *others)
                if at < wanted.stop and self._is_large(left):
                    return left
        if at < wanted.stop:
            refuse_missing(self.log, self.reading.before, wanted, at)
        self.reading.finish(wanted)
        return ()

    # --- elsewhere ---

    def _there(self, ranges: Sequence[OffsetRange]) -> Sequence[OffsetRange]:
        """Let executors read as much of ranges as one task may hold; return what is left of them."""
        assert self.executors is not None
        reading = self.reading
        tasks = min(self._size(ranges) // self.commit_bytes, _MOST_AT_ONCE * self.executors.cores)
        shares = divided(ranges, max(tasks, self.executors.cores))
        work = Shares(
            shares, self.log, self.store.elsewhere(), reading.claims, reading.registry, reading.standing,
            self.spool.group_bytes, self.commit_bytes,
        )  # fmt: skip
        found = self.executors.run(len(shares), work)
        for taken in found:
            self.spool.join(taken.written)
        for taken in found:
            if taken.error is not None:
                raise taken.error
            for name, _ in taken.written.files:
                refuse_unshared(name)
        reached = self._take_over(found)
        left = [rest for one in ranges if len(rest := _rest(one, reached.get(one.partition)))]
        if left:
            self._commit_so_far()
        return left

    def _take_over(self, found: Sequence[TaskResult]) -> Mapping[Partition, int]:
        """Take what tasks read as if it were read here: by topics, partitions and offsets."""
        for taken in found:
            self.reading.count(taken)
            self._bytes, self._messages = self._bytes + taken.read_bytes, self._messages + taken.messages
        ranges = [(one.wanted, one, taken.written) for taken in found for one in taken.ranges]
        for _, one, written in sorted(ranges, key=lambda some: some[0]):
            self.reading.take_result(one, partial(self._rows_again, written, one))
        return {wanted.partition: wanted.stop for wanted, _, _ in ranges}

    def _rows_again(
        self, written: SpooledFiles, of: RangeResult, seen: ObservedTables, table: TableId, position: Tso
    ) -> Iterator[pa.Table]:
        """Yield the rows of a table beyond a position, by the batches they came in, out of the file of a task."""
        found = [LANDED.empty_table()]
        for split in written.splits:
            if (split.table, split.partition) == (table, of.wanted.partition) and split.high > position:
                rows = self.store.fetch(split.file, split.group).cast(LANDED)
                found.append(rows_after(rows, table, position))
        rows = pa.concat_tables(found).sort_by("offset")
        offsets = rows.column("offset").to_numpy()
        for first, last in seen.pieces:
            start, stop = np.searchsorted(offsets, [first, last + 1]).tolist()
            if stop > start:
                yield rows.slice(start, stop - start)


def _rest(wanted: OffsetRange, reached: int | None) -> OffsetRange:
    return OffsetRange(wanted.partition, wanted.start if reached is None else reached, wanted.stop)
