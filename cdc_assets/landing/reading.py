"""What was read of topics since the newest landing: rows by table, events, the greatest mark of each partition.

    Reading.take(batch)    sort messages out, and keep of them what is new
    Reading.finish(range)  how far its partition is read

A message that cannot be read is an event with the mark before it: nothing behind it is known to be complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.ddl import Unreadable, database_of
from cdc_assets.formats.messages import Kind
from cdc_assets.landing.sorting import Registered, Sorting
from cdc_assets.landing.tables import Tables
from cdc_assets.landing.taken import Seen, Standing, Taken, TakenRange, slim
from cdc_assets.model.landed import EventKind, LandedEvent, LogStart
from cdc_assets.model.offsets import Ends, OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

__all__ = ["Reading", "Registered"]

RowsAgain = Callable[[Seen, TableId, Tso], Iterable[pa.Table]]
"""Rows that were seen, a table, a position -> the table's rows beyond it among them, by the batches they came in."""

_TAKES_A_NAME = re.compile(r"\b(?:DROP|RENAME)\b", re.IGNORECASE)


@dataclass
class Reading(Sorting):
    """What was read since the newest landing, whose state is `before`. Tasks brought rows of `brought_bytes`."""

    events: list[LandedEvent] = field(default_factory=list)
    brought_bytes: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._ddl = {self._identity(event) for event in self.before.events if event.kind is EventKind.DDL}
        self.last, self.ahead = self.before.last, self.before.ahead
        self.streams = dict(self.before.streams)
        self.sources = list(self.before.sources)
        self.barriers = dict(self.before.barriers)
        self.starts = dict(self.before.starts)
        self._begun = set(self.before.next)
        self.tables = Tables(self.before, self._schemas, by_offset=self.options.by_offset)

    def begin(self, ends: Ends) -> None:
        """Note where the log of each partition begins that is to be read for the first time."""
        for partition in ends.keys() - self._begun:
            self._begun.add(partition)
            if ends[partition].low:
                self.starts[partition] = LogStart(ends[partition].low, later=bool(self.before.next))

    @property
    def more_than_marks(self) -> bool:
        """Return whether there is more to land than marks."""
        return bool(self.stored_bytes or self.brought_bytes or self.events)

    def adds_more_than_marks(self, batch: pa.RecordBatch, wanted: OffsetRange) -> bool:
        """Return whether messages are more than marks; what they claim to lie elsewhere is not fetched."""
        spoken = self._codec.classify(self.whole(batch), self.options)
        if pc.any(pc.equal(spoken.column("kind"), Kind.ROW.value)).as_py():
            return True
        self.take(batch, wanted)
        return self.more_than_marks

    def take_again(self, batch: pa.RecordBatch, partition: Partition, position: Tso) -> None:
        """Take a message that could not be read before, whose `position` is that of a protocol by offset."""
        spoken = self._spoken(batch)
        rows = spoken.filter(pc.equal(spoken.column("kind"), Kind.ROW.value))
        at = pa.repeat(pa.scalar(position, pa.int64()), rows.num_rows)
        self._take_rows(batch, rows, {"position": at, "last_position": at} if self.options.by_offset else {})
        for one in spoken.filter(pc.not_equal(spoken.column("kind"), Kind.ROW.value)).to_pylist():
            given = position if self.options.by_offset else None
            self._take_other(one, batch, partition, batch.column("offset")[0].as_py(), given)

    # --- what tasks read ---

    @property
    def standing(self) -> Standing:
        """Where this stands, for tasks that read on from here."""
        began, described = frozenset(self.tables.began), self.tables.described
        return Standing(
            slim(self.before), self.options, self.proves_ends, dict(self.marks), dict(self.restarts),
            dict(self.mark_at), self.late, frozenset(self.unknown), began, described,
        )  # fmt: skip

    def count(self, taken: Taken) -> None:
        """Count what a task read."""
        self.ignored.update(taken.ignored)
        self.unknown |= taken.unknown
        self.messages += taken.messages
        self.brought_bytes += taken.stored_bytes

    def take_over(self, one: TakenRange, rows_again: RowsAgain) -> None:
        """Take what a task noted of a range, as if it were read here: after the ranges before it."""
        place = one.wanted.partition
        for mark, what in one.noted:
            if mark:
                self.marks[place] = mark
            self._take_noted(what, rows_again)
        for known, found in ((self.marks, one.mark), (self.restarts, one.restart), (self.mark_at, one.mark_at)):
            if found is not None:
                known[place] = found
        if one.newest is not None:
            self.newest[place] = one.newest
        self._note_least(place, one.least)
        self.finish(one.wanted)

    def _take_noted(self, what: LandedEvent | Seen, rows_again: RowsAgain) -> None:
        if isinstance(what, Seen):
            self.events.extend(
                self.tables.noted(what.bounds.values(), lambda _: what.columns, partial(rows_again, what))
            )
        elif what.kind in (EventKind.DDL, EventKind.SCHEMA):
            self._keep(what)
        elif what.kind is not EventKind.REGISTERED:
            if what.kind is EventKind.LATE:
                self.late.note(what)
            self._land(what)
        elif what.shape not in self.options.registry:
            self._know(what)

    # --- what is new of it ---

    def _land(self, event: LandedEvent) -> None:
        self.events.append(event)

    def _see(self, rows: pa.Table) -> None:
        self.events.extend(self.tables.seen(rows))
        if self._codec.keys_alone is not None and rows.num_rows:
            self.events.extend(self.tables.contents(rows, self._codec.keys_alone.show_columns))

    def _take_ddl(self, event: LandedEvent) -> None:
        """Keep a DDL once, however many partitions it is sent to."""
        if event.table is None:
            try:
                event = replace(event, table=TableId(database_of(event.query)[0], ""))
            except Unreadable as problem:
                reason = f"its DDL names no table ({problem}): {event.query[:200]}"
                self._take_bad(replace(event, kind=EventKind.BAD, reason=reason))
                return
        identity = self._identity(event)
        if identity not in self._ddl:
            self._ddl.add(identity)
            self.tables.note_ddl(event)
            self.events.append(event)

    def _identity(self, event: LandedEvent) -> tuple[Any, ...]:
        """Return what is equal for a DDL that comes again, in another partition or after a restart.

        One that takes a table out of its topic says in each partition of an archive that the table is complete there.
        """
        place = event.partition if not self.proves_ends and _TAKES_A_NAME.search(event.query) else None
        return event.position, event.table, event.query, place
