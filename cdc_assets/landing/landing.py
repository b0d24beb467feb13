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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cdc_assets.errors import TableMoved
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.landing.batch import Advanced, LandingBatch, Registered, commit, state_after
from cdc_assets.landing.events import digest_of, read_event_rows
from cdc_assets.landing.files import GROUP_BYTES, LandingStore, Spool
from cdc_assets.landing.placement import OffsetBatch
from cdc_assets.landing.ranges import created_anew, first_messages, ranges_to_read, refuse_another_log, refuse_missing
from cdc_assets.landing.taking import Executors, RangeReader
from cdc_assets.model.landed import Landed
from cdc_assets.model.offsets import Ends, OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.sources.topics import LogReader

__all__ = ["Advanced", "Landing", "News", "landed_in"]

_COMMIT_BYTES = 256 << 20
"""About how much is landed in one commit, and held in memory."""
_MOST_COMMITS = 4
_ATTEMPTS = 5
_LOOKS = 2
"""How often the ends are asked again while nothing is proven yet: the first mark may come with the second answer."""
_PEEKED = 20_000
"""The number of messages that are read to separate marks from news."""


@dataclass(frozen=True, slots=True)
class News:
    """What a log holds that is not landed: `behind` counts offsets.

    `more_than_marks` says whether there may be more in it than that, `due` whether marks alone are to be landed by now.
    `digest` is that of what is landed: it stays the same while nothing is.
    """

    behind: int = 0
    more_than_marks: bool = False
    due: bool = False
    digest: str = ""


class Landing:
    """The landing of one feed. `concerns` says which topics are the feed's, `claims` reads claim-check files, and
    `registry` gives the schemas that messages name. `names_behind` gives what finds the tables of a written name.

    Large ranges are read by `executors`, where there are any.

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
        mark_interval_seconds: float = 0,
        commit_bytes: int = _COMMIT_BYTES,
    ) -> None:
        self.log = log
        self.options = options
        self.store = store
        self._spool = Spool(store, max(1, min(GROUP_BYTES, commit_bytes // 4)))
        self.mark_interval_seconds = mark_interval_seconds
        self.executors: Executors | None = None
        self.clock_ms: Callable[[], int] = lambda: int(time.time() * 1000)
        self.names_behind: Callable[[], Callable[[TableId], Collection[TableId]]] = lambda: lambda written: (written,)
        self._concerns = concerns
        self._more: dict[str, Any] = {"claims": claims, **({"registry": registry} if registry is not None else {})}
        self._commit_bytes = commit_bytes
        self._landed = Landed()
        self._read: tuple[str, ...] = ()

    # --- looking ---

    def landed(self) -> Landed:
        """Return what is landed by now; only files of events that are new are read."""
        kept = self.store.stored()
        known = self._read if kept.identity == self._landed.identity else ()
        if not known or kept.events[: len(known)] != known:
            self._landed, known = Landed(kept.identity), ()
        rows = self.store.read_events(kept.events[len(known) :])
        self._landed = read_event_rows(self._landed, rows, kept.rows)
        self._read = kept.events
        return self._landed

    def ends(self) -> Ends:
        """Return the ends of the feed's topics, in one round."""
        return self.log().ends(self._concerns)

    def behind(self) -> int:
        """Return how many offsets are not landed. Raises InputError for a log that lost some of them."""
        return sum(len(one) for one in ranges_to_read(self.landed(), self.ends()))

    def news(self) -> News:
        """Return what is there and not landed. Nothing is written. Raises InputError for a log that lost messages.

        A few messages are read to separate marks from news; many are news.
        """
        landed = self.landed()
        wanted = ranges_to_read(landed, self.ends())
        behind = sum(map(len, wanted))
        more_than_marks = behind > _PEEKED or (behind > 0 and self._has_more_than_marks(landed, wanted))
        return News(behind, more_than_marks, behind > 0 and self._due(landed), digest_of(landed.next))

    def _has_more_than_marks(self, landed: Landed, wanted: Iterable[OffsetRange]) -> bool:
        reading, log = self._reading(landed), self.log()
        return any(reading.adds_more_than_marks(batch, one) for one in wanted for batch in log.read(one))

    def decide(self, decided: Callable[[LandingBatch], object]) -> None:
        """Land what a person decided: `decided` adds it to a reading of nothing, and may be asked again."""
        for attempt in range(_ATTEMPTS):
            begun = self.landed()
            reading = self._begun(begun)
            decided(reading)
            try:
                self._commit(reading, replace(begun, **self._of_tables(reading)), Advanced())
            except TableMoved:
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(0.05 * 2**attempt)
                continue
            return

    def _of_tables(self, reading: LandingBatch) -> dict[str, Any]:
        return {"began": dict(reading.tables.began), "streams": dict(reading.streams)}

    def _begun(self, begun: Landed) -> LandingBatch:
        if self.options.by_offset:
            return OffsetBatch(begun, self.options, clock_ms=self.clock_ms(), **self._more)
        return self._reading(begun)

    # --- landing ---

    def advance(self) -> Advanced:
        """Land all that is there. Another run that lands at the same time only makes this one begin again."""
        for attempt in range(_ATTEMPTS):
            try:
                return self._advance()
            except TableMoved:
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(0.05 * 2**attempt)
            finally:
                self._spool.abandon()
        raise AssertionError("unreachable")

    def _advance(self) -> Advanced:
        return self._advance_in_order() if self.options.by_offset else self._advance_by_commit_ts()

    def _advance_by_commit_ts(self) -> Advanced:
        begun, log, ends = self.landed(), self.log(), self.ends()
        logs = self._known_logs(log, begun, ends)
        taking = RangeReader(
            log, self.store, self._spool, self._reading(begun), self._begin, self._commit, self._commit_bytes,
            self.executors,
        )  # fmt: skip
        taking.take(ranges_to_read(begun, ends), ends)
        proven = begun.proven
        for _ in range(_LOOKS if log.proves_ends else 0):
            seen = max(taking.reading.marks.values(), default=0)
            ends = self.ends()
            taking.take(ranges_to_read(replace(begun, next=taking.reading.next), ends), ends)
            proven = max(proven, seen)
            if proven:
                break
        reading, done = taking.reading, taking.done
        state = replace(state_after(reading, ends, proven), **logs)
        news = (state.next, state.marks, state.proven) != (begun.next, begun.marks, begun.proven)
        if reading.more_than_marks or (news and self._due(begun)):
            done = self._commit_all(reading, state, done)
        return done

    def _advance_in_order(self) -> Advanced:
        """Land messages that get their positions here, in turns of which each holds what is read in memory."""
        log, done, begun = self.log(), Advanced(), self.landed()
        ends = self.ends()
        logs = self._known_logs(log, begun, ends)
        while True:
            reading = OffsetBatch(begun, self.options, clock_ms=self.clock_ms(), **self._more)
            reading.meet(ends)
            reading.begin(ends)
            done, unread, until = self._read_turn(log, ranges_to_read(begun, ends), done, reading, ends)
            if not unread:
                break
            barrier = reading.common_barrier(ends)
            through = reading.through(unread, barrier)
            if barrier is not None and not reading.lands(through, barrier):
                through = reading.through(unread)  # beyond the barrier
            reading.settle(None if until is not None else through, until, barrier)
            done = self._commit(reading, state_after(reading, ends, reading.proven), done)
            begun = self.landed()
        barrier = reading.common_barrier(ends)
        through_all = barrier.place if barrier else None
        if self.options.in_source_order:
            through_all = reading.backlog.greatest() or None
        elif barrier is None and log.proves_ends:
            through_all = reading.newest_mark()
        ends = self.ends()
        reading.meet(ends)
        reading.begin(ends)
        more = ranges_to_read(replace(begun, next={**begun.next, **reading.backlog.reached}), ends)
        done, _ = self._read_some(log, more, done, reading)
        reading.settle(through_all, barrier=barrier)
        state = replace(state_after(reading, ends, reading.proven), **logs)
        news = (state.next, state.barriers) != (begun.next, begun.barriers)
        shown = bool(begun.ahead) and state.proven != begun.proven
        if reading.more_than_marks or shown or (news and self._due(begun)):
            done = self._commit_all(reading, state, done)
        return done

    def _read_turn(
        self, log: LogReader, ranges: Sequence[OffsetRange], done: Advanced, reading: OffsetBatch, ends: Ends
    ) -> tuple[Advanced, Sequence[OffsetRange], int | None]:
        """Read ranges, of each about as much as its share of a commit.

        Returns what is left of them, and of TiCDC's messages the time through which they can be landed. While there is
        none, or nothing comes before the place through which all partitions are complete, more is read: for as long as
        a DDL of TiCDC is among them, else up to a few commits. Partitions of a topic in which nothing has a place
        or a time are read one after the other, before other topics.
        """
        share = self._commit_bytes // max(1, len(ranges))
        done, unread = self._read_some(log, ranges, done, reading, share)
        alone = reading.with_offsets_alone()
        if any(one.partition.topic in alone for one in unread):
            reading.backlog.clear()
            mine = [one for one in ranges if one.partition.topic in alone]
            done, left = self._read_some(log, mine, done, reading, self._commit_bytes, together=True)
            return done, [*left, *(one for one in ranges if one not in mine)], None
        while unread:
            enough, until = reading.backlog.bytes >= _MOST_COMMITS * self._commit_bytes, None
            if self.options.sends_by_table:
                until = reading.backlog.until([one.partition for one in unread])
                enough &= not reading.backlog.has_ddl
            else:
                barrier = reading.common_barrier(ends)
                if reading.lands(reading.through(unread, barrier), barrier):
                    break
            if until is not None or enough:
                return done, unread, until
            done, unread = self._read_some(log, unread, done, reading, share)
        return done, unread, None

    def _read_some(
        self,
        log: LogReader,
        ranges: Sequence[OffsetRange],
        done: Advanced,
        reading: OffsetBatch,
        share: int | None = None,
        *,
        together: bool = False,
    ) -> tuple[Advanced, list[OffsetRange]]:
        """Read ranges, of each or all `together` no more than a share in bytes; return what is left of them."""
        unread, size = [], 0
        for wanted in ranges:
            if together and share is not None and size >= share:
                unread.append(wanted)
                continue
            at, size = wanted.start, size if together else 0
            for batch in log.read(wanted):
                if batch.num_rows:
                    at = refuse_missing(log, reading.before, wanted, at, batch)
                    reading.take(batch, wanted)
                    size += batch.nbytes
                if share is not None and size >= share and at < wanted.stop:
                    unread.append(OffsetRange(wanted.partition, at, wanted.stop))
                    break
            else:
                if at < wanted.stop:
                    refuse_missing(log, reading.before, wanted, at)
                reading.finish(wanted)
        return done, unread

    def _commit_all(self, reading: LandingBatch, state: Landed, done: Advanced) -> Advanced:
        """Land the rest of what was read. Raises InputError for a topic that was made anew since the reading began."""
        self._topic_ids(self.log(), state, state.ends)
        return self._commit(reading, state, done)

    def _known_logs(self, log: LogReader, begun: Landed, ends: Ends) -> dict[str, Any]:
        """Return by what in the state a log is known. Raises InputError where another log has that name by now."""
        found = {"topic_ids": self._topic_ids(log, begun, ends), "firsts": first_messages(log, begun, ends)}
        refuse_another_log(log, begun, ends, ranges_to_read(begun, ends), self._reading(begun).whole)
        return found

    def _topic_ids(self, log: LogReader, begun: Landed, ends: Iterable[Partition]) -> Mapping[str, str]:
        """Return the ids of topics. Raises InputError for a topic that is another one than was landed, by that name."""
        ids = log.topic_ids({partition.topic for partition in ends})
        for topic, known in begun.topic_ids.items():
            if ids.get(topic, known) != known:
                partition, start = min(one for one in begun.next.items() if one[0].topic == topic)
                raise created_anew(partition, f"is of the topic {ids[topic]} by now, and was landed of {known}", start)
        return {**begun.topic_ids, **ids}

    def _due(self, begun: Landed) -> bool:
        """Return whether marks alone are landed by now: at once while nothing is proven, else every so often."""
        begins = not (begun.proven if self.log().proves_ends else begun.next)
        return begins or time.time() - begun.landed_ms / 1000 >= self.mark_interval_seconds

    def _begin(self) -> LandingBatch:
        return self._reading(self.landed())

    def _reading(self, before: Landed) -> LandingBatch:
        return LandingBatch(before, self.options, proves_ends=self.log().proves_ends, **self._more)

    def _commit(self, reading: LandingBatch, state: Landed, done: Advanced) -> Advanced:
        rows = commit(self.store, self._spool, reading, state)
        return done + Advanced(reading.messages, rows, 1)


def landed_in(store: LandingStore) -> Landed:
    """Return what is landed in a place, read at once."""
    kept = store.stored()
    return read_event_rows(Landed(kept.identity), store.read_events(kept.events), kept.rows)
