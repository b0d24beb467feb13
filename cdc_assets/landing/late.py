"""Rows that came too late: tables may have been applied beyond them, and are held until they are rebuilt."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.model.landed import EventKind, Landed, LandedEvent
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

__all__ = ["LateRows"]

_TOO_LATE = (
    "its rows at {} came when {} may have been applied beyond them, so they are not in it. `cdc-assets rebuild {}` "
    "builds it with them"
)


class LateRows:
    """Which tables are held for late rows, as of what is landed `before`; once for each partition of a table.

    It counts for all of a landing, of several commits too: after the first of them no topic is new any more. What is
    committed of such a landing says so, for another may have to end it.
    """

    def __init__(self, before: Landed, *, proves_ends: bool) -> None:
        self._proves_ends, self._proven = proves_ends, before.proven
        self._partitions, self._marks, self._dead = frozenset(before.next), dict(before.marks), before.dead
        self._begun = before.unawaited
        self._topics = {partition.topic for partition in before.next}
        self._known = {*before.began, *(event.table for event in before.events if event.kind is EventKind.DDL)}
        self._held = {(event.table, event.partition) for event in before.open_late}

    def among(self, rows: pa.Table) -> Iterator[LandedEvent]:
        """Yield what holds tables that may be applied through where rows of a partition that nothing waited for are."""
        since, until = self._between(Partition(rows.column("topic")[0].as_py(), rows.column("partition")[0].as_py()))
        positions = rows.column("position")
        below = pc.and_(pc.greater(positions, pa.scalar(since)), pc.less_equal(positions, pa.scalar(until)))
        for row in rows.filter(below).to_pylist():
            place = Partition(row["topic"], row["partition"])
            table = TableId(row["schema"], row["table"])
            if self._proves_ends or table in self._known:
                yield from self.hold(LandedEvent(EventKind.LATE, place, row["offset"], 0), table, row["position"])

    def hold(self, at: LandedEvent, table: TableId, position: Tso) -> Iterator[LandedEvent]:
        """Yield what holds a table whose row at a position came late, where it is not held yet."""
        place = (table, at.partition)
        if place in self._held:
            return
        self._held.add(place)
        reason = _TOO_LATE.format(position, table, shlex.quote(str(table)))
        yield LandedEvent(EventKind.LATE, at.partition, at.offset, position - 1, table, reason=reason)

    def note(self, event: LandedEvent) -> None:
        """Note that a table is held by what was read elsewhere."""
        if event.table is not None:
            self._held.add((event.table, event.partition))

    def unawaited(self, partitions: Iterable[Partition]) -> Mapping[Partition, tuple[Tso, Tso]]:
        """Return of partitions that nothing waited for between which positions their rows may be missing."""
        between = {partition: self._between(partition) for partition in partitions}
        return {partition: found for partition, found in between.items() if found[0] < found[1]}

    def _between(self, partition: Partition) -> tuple[Tso, Tso]:
        """Return between which positions rows of a partition may be missing in tables, though these are beyond them.

        On a broker those of a topic that was not seen before, for a rule or a right hid it. In an archive those of a
        partition whose first file is there only now, and of one that was declared dead; a table that nothing was known
        of is not applied yet there.
        """
        if partition in self._begun:
            return self._begun[partition]
        if self._proves_ends:
            return 0, 0 if partition.topic in self._topics else self._proven
        newest = max(self._marks.values(), default=0)
        if partition in self._dead:
            return self._marks.get(partition, 0), newest
        return 0, 0 if partition in self._partitions else newest
