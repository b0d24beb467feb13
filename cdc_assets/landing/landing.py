"""Topics into the landing table: look at the log's ends, read up to them, commit once.

    Landing.landed()    what is landed by now, read incrementally
    Landing.news()      what is there and not landed: one round to the log, and a few messages
    Landing.advance()   land all that is there

The greatest mark W that is landed becomes the fence only once the ends, asked again after W was seen, are landed too: W
was sent after all rows at or below it were acknowledged, so they are then landed in every partition, whether it ever
gets a mark or not. An archive gives no such proof.

A commit is guarded by the next offsets: who lands the same messages at the same time loses, and reads again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from cdc_assets.errors import BadSettings, TableMoved
from cdc_assets.formats import MessageOptions
from cdc_assets.io.retries import retrying
from cdc_assets.lake.staging.executors import refuse_unshared
from cdc_assets.landing.batch import LandingBatch, LandingCounts, commit, rows_after, state_after
from cdc_assets.landing.files import GROUP_BYTES, LANDED, LandingStore, Spool, SpooledFiles, digest_of, read_event_rows
from cdc_assets.landing.keyless import KeylessRows
from cdc_assets.landing.partition_reader import (
    PartitionReader,
    Registered,
    concerning_messages,
    created_anew,
    first_messages,
    ranges_to_read,
    read_range,
    refuse_another_log,
)
from cdc_assets.landing.placement import OffsetBatch
from cdc_assets.landing.tasks import ObservedTables, Shares, divided
from cdc_assets.model.landed import Landed
from cdc_assets.model.offsets import Ends, OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.sources.topics import LogReader

_T = TypeVar("_T")

_COMMIT_BYTES = 256 << 20
"""About how much is landed in one commit, and held in memory."""
_MOST_COMMITS = 4
_ATTEMPTS = 5
_LOOKS = 2
"""Most reads of the log's ends while nothing is proven: the first mark may come with the second answer."""
_SHOWN_SECONDS = 10.0
"""Seconds for which a landing waits for the end of open transactions; a later landing then proves the mark."""
_PEEKED = 20_000
"""The number of messages that are read to separate marks from news."""
_MOST_AT_ONCE = 4
"""Tasks for each core between two commits, where there are so many partitions: Spark may not know all cores yet."""


class Executors(Protocol):
    """Interface to the executors that read large ranges."""

    def worth(self, size: int) -> bool:
        """Return whether so many bytes are read there and not here."""

    @property
    def cores(self) -> int:
        """Number of tasks that run at the same time."""

    def run(self, count: int, work: Callable[[int], _T]) -> list[_T]:
        """Do tasks 0 … count-1, and return what they return."""


@dataclass(frozen=True, slots=True)
class News:
    """Messages of a log that are not landed: `behind` counts offsets.

    `more_than_marks` says whether there may be more in it than that, `due` whether marks alone are to be landed by now.
    `digest` is that of what is landed: it stays the same while nothing is.
    """

    behind: int = 0
    more_than_marks: bool = False
    due: bool = False
    digest: str = ""


NamesBehind = Callable[[], Callable[[TableId], Collection[TableId]]]


def _as_written() -> Callable[[TableId], Collection[TableId]]:
    return lambda written: (written,)


class Landing:
    """The landing of one feed. `concerns` says which topics are the feed's, `claims` reads claim-check files, and
    `registry` gives the schemas that messages name. `names_behind` gives what finds the tables of a written name.

    Large ranges are read by `executors`, asked for at each landing; None reads all in the driver.

    With `accept_unordered` rows without key count where nothing tells whether they are copies.

    A range of marks alone is landed once the newest landing is `mark_interval_seconds` old.
    """

    def __init__(
        self,
        log: Callable[[], LogReader],
        options: MessageOptions,
        store: LandingStore,
        concerns: Callable[[str], bool],
        claims: Callable[[str], bytes],
        *,
        registry: Registered | None = None,
        executors: Callable[[], Executors | None] = lambda: None,
        names_behind: NamesBehind = _as_written,
        mark_interval_seconds: float = 0,
        commit_bytes: int = _COMMIT_BYTES,
        accept_unordered: bool = False,
    ) -> None:
        self.log = log
        self.options = options
        self.store = store
        self._spool = Spool(store, max(1, min(GROUP_BYTES, commit_bytes // 4)))
        self.mark_interval_seconds = mark_interval_seconds
        self.clock_ms: Callable[[], int] = lambda: int(time.time() * 1000)
        self.names_behind = names_behind
        self._concerns = concerns
        self._more: dict[str, Any] = {"claims": claims, "compared": set()}
        self._more |= {"registry": registry} if registry is not None else {}
        self._commit_bytes = commit_bytes
        self._executors = executors
        self._accept_unordered = accept_unordered
        self._landed = Landed()
        self._read: tuple[str, ...] = ()

    # --- looking ---

    def landed(self) -> Landed:
        """Return the landing as of now; only files of events that are new are read.

        Raises BadSettings where messages were landed by another protocol, or with positions of another kind.
        """
        stored = self.store.stored()
        events = self._read if stored.identity == self._landed.identity else ()
        if not events or stored.events[: len(events)] != events:
            self._landed, events = Landed(stored.identity), ()
        rows = self.store.read_events(stored.events[len(events) :])
        self._landed = read_event_rows(self._landed, rows, stored.rows)
        self._read = stored.events
        landed_by = self._landed.landed_by
        if landed_by not in ("", self.options.landed_by):
            raise BadSettings(
                f"the topics were landed with {landed_by}, and the settings now have {self.options.landed_by}, by "
                "which messages would be read otherwise. Nothing was landed. Set it as it was. If it was wrong, or the "
                "writer of the topics has another protocol by now, begin anew: give the changefeed another name and "
                "another namespace, or another lake, and the rows from before its topics by `initial`."
            )
        return self._landed

    def ends(self) -> Ends:
        """Return the ends of the feed's topics, in one round."""
        return self.log().ends(self._concerns)

    def behind(self) -> int:
        """Return the number of offsets that are not landed. Raises InputError for a log that lost some of them."""
        return sum(len(span) for span in ranges_to_read(self.landed(), self.ends()))

    def news(self) -> News:
        """Return the messages that are not landed. Nothing is written. Raises InputError for a log that lost messages.

        A few messages are read to separate marks from news; many are news.
        """
        landed = self.landed()
        unread = ranges_to_read(landed, self.ends())
        behind = sum(map(len, unread))
        more_than_marks = behind > _PEEKED or (behind > 0 and self._has_more_than_marks(landed, unread))
        return News(behind, more_than_marks, behind > 0 and self._due(landed), digest_of(landed.next))

    def _has_more_than_marks(self, landed: Landed, unread: Iterable[OffsetRange]) -> bool:
        batch, log = self._batch(landed), self.log()
        with concerning_messages(self.options):
            return any(batch.adds_more_than_marks(some, span.partition) for span in unread for some in log.read(span))

    def decide(self, decided: Callable[[LandingBatch], object]) -> None:
        """Land what a person decided: `decided` adds it to an empty batch, and may be asked again."""

        def attempt() -> None:
            begun = self.landed()
            batch = self._batch(begun)
            decided(batch)
            state = replace(
                begun, began=dict(batch.tables.began), streams=dict(batch.streams), omissions=batch.omissions
            )
            self._commit(batch, state, LandingCounts())

        self._undisturbed(attempt)

    # --- landing ---

    def advance(self) -> LandingCounts:
        """Land all that is there. Another run that lands at the same time only makes this one begin again."""
        with concerning_messages(self.options):
            return self._undisturbed(self._advance_in_order if self.options.by_offset else self._advance_by_commit_ts)

    def _undisturbed(self, attempt: Callable[[], _T]) -> _T:
        """Return the result of an attempt, repeated where others have landed meanwhile."""

        def attempt_once() -> _T:
            try:
                return attempt()
            finally:
                self._spool.abandon()

        return retrying(attempt_once, _ATTEMPTS, TableMoved, pause_seconds=0.05)

    def _advance_by_commit_ts(self) -> LandingCounts:
        begun, log, ends = self.landed(), self.log(), self.ends()
        logs = self._known_logs(log, begun, ends)
        reader = RangeReader(
            log, self.store, self._spool, self._batch(begun), self._begin, self._commit,
            self._commit_bytes, self._executors(),
        )  # fmt: skip
        reader.read(ranges_to_read(begun, ends), ends)
        proven, unfinished = begun.proven, dict[Partition, int]()
        for _ in range(_LOOKS if log.proves_ends else 0):
            seen = max(reader.batch.reader.marks.values(), default=0)
            ends, unfinished = self._ends_of_all()
            reader.read(ranges_to_read(replace(begun, next=reader.batch.reader.next), ends), ends)
            proven = max(proven, 0 if unfinished else seen)
            if proven:
                break
        state = replace(state_after(reader.batch, ends, proven), unfinished=unfinished, **logs)
        news = (state.next, state.marks, state.proven) != (begun.next, begun.marks, begun.proven)
        if reader.batch.more_than_marks or (news and self._due(begun)):
            return self._commit_rest(reader.batch, state, reader.done)
        return reader.done

    def _ends_of_all(self) -> tuple[Ends, dict[Partition, int]]:
        """Return ends, and the partitions in which more is written by now than comes before them, each up to where.

        What a transaction wrote is shown by one partition after the other, some time after it was acknowledged.
        """
        ends = self.ends()
        written, until = {partition: end.written for partition, end in ends.items()}, time.monotonic() + _SHOWN_SECONDS
        while unfinished := {place: written[place] for place, end in ends.items() if end.high < written.get(place, 0)}:
            if time.monotonic() > until:
                break
            time.sleep(0.05)
            ends = self.ends()
        return ends, unfinished

    def _advance_in_order(self) -> LandingCounts:
        """Land messages that get their positions here, in turns of which each holds what is read in memory."""
        log, done, begun = self.log(), LandingCounts(), self.landed()
        ends = self.ends()
        logs = self._known_logs(log, begun, ends)
        while True:
            keyless = KeylessRows(begun, self.store, self.options, self._accept_unordered)
            offsets = OffsetBatch(self._batch(begun), self.clock_ms(), keyless)
            offsets.begin(ends)
            unread, until = self._read_turn(log, ranges_to_read(begun, ends), offsets, ends)
            if not unread:
                break
            barrier = offsets.common_barrier(ends)
            through = offsets.through(unread, barrier)
            if barrier is not None and not offsets.lands(through, barrier):
                through = offsets.through(unread)  # beyond the barrier
            offsets.settle(None if until is not None else through, until, barrier)
            done = self._commit(offsets.batch, state_after(offsets.batch, ends, offsets.proven), done)
            begun = self.landed()
        barrier = offsets.common_barrier(ends)
        through_all = barrier.place if barrier else None
        if self.options.in_source_order:
            through_all = offsets.backlog.greatest() or None
        elif barrier is None and log.proves_ends:
            through_all = offsets.newest_mark()
        ends, _ = self._ends_of_all()
        offsets.begin(ends)
        more = ranges_to_read(replace(begun, next={**begun.next, **offsets.backlog.reached}), ends)
        self._read_some(log, more, offsets)
        offsets.settle(through_all, barrier=barrier)
        state = replace(state_after(offsets.batch, ends, offsets.proven), **logs)
        news = (state.next, state.barriers) != (begun.next, begun.barriers)
        shown = bool(begun.ahead) and state.proven != begun.proven
        if offsets.more_than_marks or shown or (news and self._due(begun)):
            done = self._commit_rest(offsets.batch, state, done)
        return done

    def _read_turn(
        self, log: LogReader, ranges: Sequence[OffsetRange], offsets: OffsetBatch, ends: Ends
    ) -> tuple[Sequence[OffsetRange], int | None]:
        """Read ranges, of each about as much as its share of a commit.

        Returns what is left of them, and of TiCDC's messages the time through which they can be landed. While there is
        none, or nothing comes before the place through which all partitions are complete, more is read: for as long as
        a DDL of TiCDC is among them, else up to a few commits; of a connector first where nothing has a place yet.
        Partitions of a topic in which nothing has a place or a time are read one after the other, before other topics;
        so are those in which only barriers have, where these are too far apart.
        """
        share = self._commit_bytes // max(1, len(ranges))
        unread = self._read_some(log, ranges, offsets, share)
        alone = offsets.with_offsets_alone(offsets.common_barrier(ends))
        while unread and not any(offset_range.partition.topic in alone for offset_range in unread):
            enough, until = offsets.backlog.bytes >= _MOST_COMMITS * self._commit_bytes, None
            unplaced, barrier = offsets.unplaced(unread), offsets.common_barrier(ends)
            if self.options.sends_by_table:
                until = offsets.backlog.until([offset_range.partition for offset_range in unread])
                enough &= not offsets.backlog.has_ddl
            elif not unplaced and offsets.lands(offsets.through(unread, barrier), barrier):
                break
            if until is not None:
                return unread, until
            alone = offsets.without_places(barrier) if enough else alone
            if enough and not any(offset_range.partition.topic in alone for offset_range in unread):
                return unread, None
            if enough:
                break
            other_ranges = [offset_range for offset_range in unread if unplaced and offset_range not in unplaced]
            unread = [*self._read_some(log, unplaced or unread, offsets, share), *other_ranges]
        if not any(offset_range.partition.topic in alone for offset_range in unread):
            return unread, None
        offsets.backlog.clear()
        alone_ranges = [span for span in ranges if span.partition.topic in alone]
        rest = self._read_some(log, alone_ranges, offsets, self._commit_bytes, together=True)
        return [*rest, *(span for span in ranges if span not in alone_ranges)], None

    def _read_some(
        self,
        log: LogReader,
        ranges: Sequence[OffsetRange],
        offsets: OffsetBatch,
        share: int | None = None,
        *,
        together: bool = False,
    ) -> list[OffsetRange]:
        """Read ranges, of each or all `together` no more than a share in bytes; return what is left of them."""
        unread, size = list[OffsetRange](), 0

        def take(batch: pa.RecordBatch, rest: OffsetRange) -> bool:
            nonlocal size
            offsets.take(batch, rest.partition)
            size += batch.nbytes
            return share is not None and size >= share

        for offset_range in ranges:
            if together and share is not None and size >= share:
                unread.append(offset_range)
                continue
            size = size if together else 0
            rest = read_range(log, offsets.before, offset_range, offsets.batch.reader.ignored, take)
            if len(rest):
                unread.append(rest)
            else:
                offsets.backlog.finish(offset_range)
        return unread

    def _commit_rest(self, batch: LandingBatch, state: Landed, done: LandingCounts) -> LandingCounts:
        """Land the rest of what was read. Raises InputError for a topic that was made anew since the reading began."""
        self._topic_ids(self.log(), state, state.ends)
        return self._commit(batch, state, done)

    def _known_logs(self, log: LogReader, begun: Landed, ends: Ends) -> dict[str, Any]:
        """Return the values that identify a log. Raises InputError where another log has its name by now."""
        identities = {"topic_ids": self._topic_ids(log, begun, ends), "firsts": first_messages(log, begun, ends)}
        refuse_another_log(log, begun, ends, ranges_to_read(begun, ends), self._batch(begun).reader.whole)
        return identities

    def _topic_ids(self, log: LogReader, begun: Landed, ends: Iterable[Partition]) -> Mapping[str, str]:
        """Return the ids of topics. Raises InputError for a topic that is another one than was landed, by that name."""
        ids = log.topic_ids({partition.topic for partition in ends})
        for topic, topic_id in begun.topic_ids.items():
            if ids.get(topic, topic_id) != topic_id:
                partition, start = min(entry for entry in begun.next.items() if entry[0].topic == topic)
                raise created_anew(
                    partition, f"is of the topic {ids[topic]} by now, and was landed of {topic_id}", start
                )
        return {**begun.topic_ids, **ids}

    def _due(self, begun: Landed) -> bool:
        """Return whether marks alone are landed by now: at once while nothing is proven, else every so often."""
        begins = not (begun.proven if self.log().proves_ends else begun.next)
        return begins or time.time() - begun.landed_ms / 1000 >= self.mark_interval_seconds

    def _begin(self) -> LandingBatch:
        return self._batch(self.landed())

    def _batch(self, before: Landed) -> LandingBatch:
        return LandingBatch(PartitionReader(before, self.options, proves_ends=self.log().proves_ends, **self._more))

    def _commit(self, batch: LandingBatch, state: Landed, done: LandingCounts) -> LandingCounts:
        rows = commit(self.store, self._spool, batch, state)
        return done + LandingCounts(batch.reader.messages, rows, 1)


@dataclass
class RangeReader:
    """Reads ranges of a log into a batch, with commits on the way where they are too much for one.

    The driver reads on until it knows how many bytes a message has; then it knows how many are left, and whether
    executors would bring them sooner. A small landing starts no Spark. `batch` is what is not committed, `done` what
    is. `begin` returns an empty batch, `commit` lands one with the state after it.
    """

    log: LogReader
    store: LandingStore
    spool: Spool
    batch: LandingBatch
    begin: Callable[[], LandingBatch]
    commit: Callable[[LandingBatch, Landed, LandingCounts], LandingCounts]
    commit_bytes: int
    executors: Executors | None = None
    done: LandingCounts = field(default_factory=LandingCounts)

    def __post_init__(self) -> None:
        self._ends: Ends = {}
        self._bytes = self._messages = 0

    def read(self, ranges: Sequence[OffsetRange], ends: Ends) -> None:
        """Read ranges to their ends; what is too much for one commit is committed on the way, without a proof."""
        self._ends = ends
        self.batch.begin(ends)
        while ranges:
            ranges = self._read_there(ranges) if self._is_large(ranges) else self._read_here(ranges)

    def _is_large(self, ranges: Sequence[OffsetRange]) -> bool:
        """Return whether executors read ranges, by the bytes of the messages that were read so far."""
        if self.executors is None or not self._messages:
            return False
        return self.executors.worth(self._size(ranges))

    def _size(self, ranges: Sequence[OffsetRange]) -> int:
        """Return about how many bytes of messages are in ranges."""
        return self._bytes * sum(map(len, ranges)) // self._messages

    def _commit_so_far(self) -> None:
        late = self.batch.reader.late
        state = state_after(self.batch, self._ends, self.batch.before.proven)
        state = replace(state, unawaited=late.unawaited(self._ends))
        self.done = self.commit(self.batch, state, self.done)
        self.batch = self.begin()
        self.batch.reader.late = late
        if self.batch.before.next != state.next:
            raise TableMoved("another run has landed messages meanwhile. Look again.")

    def _read_here(self, ranges: Sequence[OffsetRange]) -> Sequence[OffsetRange]:
        """Read ranges one after the other; return what is left of them once it is known to be large."""
        for number, offset_range in enumerate(ranges):
            if number and self._is_large(ranges[number:]):
                return ranges[number:]
            later_ranges = ranges[number + 1 :]
            take = partial(self._take_here, others=later_ranges)
            rest = read_range(self.log, self.batch.before, offset_range, self.batch.reader.ignored, take)
            if len(rest):
                return (rest, *later_ranges)
            self.batch.reader.finish(offset_range)
        return ()

    def _take_here(self, batch: pa.RecordBatch, rest: OffsetRange, others: Sequence[OffsetRange]) -> bool:
        """Take messages, of whose range and of others something is left; return whether executors are to read that."""
        self.batch.take(self.batch.reader.read(batch, rest.partition))
        self.spool.take_ahead(self.batch.rows, self.batch.stored_bytes)
        self._bytes, self._messages = self._bytes + batch.nbytes, self._messages + batch.num_rows
        if self.batch.stored_bytes >= self.commit_bytes:
            self._commit_so_far()
        return self._is_large((rest, *others))

    def _read_there(self, ranges: Sequence[OffsetRange]) -> Sequence[OffsetRange]:
        """Let executors read as much of ranges as one task may hold; return what is left of them."""
        assert self.executors is not None
        tables = self.batch.tables
        tasks = min(self._size(ranges) // self.commit_bytes, _MOST_AT_ONCE * self.executors.cores)
        shares = divided(ranges, max(tasks, self.executors.cores))
        work = Shares(
            shares, self.log, self.store.elsewhere(), self.batch.reader.fork(), frozenset(tables.began),
            tables.described, self.spool.group_bytes, self.commit_bytes,
        )  # fmt: skip
        results = self.executors.run(len(shares), work)
        for result in results:
            self.spool.join(result.written)
        for result in results:
            if result.error is not None:
                raise result.error
            for name, _ in result.written.files:
                refuse_unshared(name)
        # What tasks read is taken as if it were read here: by topics, partitions and offsets.
        for task in results:
            self.batch.count(task)
            self._bytes, self._messages = self._bytes + task.read_bytes, self._messages + task.messages
        read_ranges = [(span.offset_range, span, task.written) for task in results for span in task.ranges]
        for offset_range, range_result, written in sorted(read_ranges, key=lambda some: some[0]):
            self.batch.take_result(range_result, partial(self._rows_again, written, offset_range.partition))
        reached = {offset_range.partition: offset_range.stop for offset_range, _, _ in read_ranges}
        rests = [
            OffsetRange(span.partition, reached.get(span.partition, span.start), span.stop)
            for span in ranges
            if reached.get(span.partition, span.start) < span.stop
        ]
        if rests:
            self._commit_so_far()
        return rests

    def _rows_again(
        self, written: SpooledFiles, partition: Partition, seen: ObservedTables, table: TableId, position: Tso
    ) -> Iterator[pa.Table]:
        """Yield the rows of a table beyond a position, by the batches they came in, out of the file of a task."""
        pieces = [LANDED.empty_table()]
        for split in written.splits:
            if (split.table, split.partition) == (table, partition) and split.high > position:
                rows = self.store.fetch(split.file, split.group).cast(LANDED)
                pieces.append(rows_after(rows, table, position))
        rows = pa.concat_tables(pieces).sort_by("offset")
        offsets = rows.column("offset").to_numpy()
        for first, last in seen.pieces:
            start, stop = np.searchsorted(offsets, [first, last + 1]).tolist()
            if stop > start:
                yield rows.slice(start, stop - start)


def landed_in(store: LandingStore) -> Landed:
    """Return the landing in a place, read at once."""
    stored = store.stored()
    return read_event_rows(Landed(stored.identity), store.read_events(stored.events), stored.rows)
