"""Messages that were gone when their partition was first read: of which tables they may have been. Pure.

A log that begins above offset 0 has lost what was there, but for what a person accepted. The settings say in which
topic a table's messages are, and in which partition where a rule keeps whole tables together; what is there of rows can
show that it does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cdc_assets.model.by_name import ByName
from cdc_assets.model.gaps import MissedMessages
from cdc_assets.model.landed import EventKind, Landed
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.sources.topics.routing import Routing

_FOREVER = 2**63 - 1


def unread_messages(landed: Landed) -> tuple[MissedMessages, ...]:
    """Return the messages that were gone when their partition was first read, but for those that were accepted."""
    return tuple(
        MissedMessages(left, start.least or _FOREVER, start.later)
        for partition, start in sorted(landed.starts.items())
        if (left := landed.unaccepted(OffsetRange(partition, 0, start.offset))) is not None
    )


def missed_by_table(
    landed: Landed, names: Iterable[TableId], routing: Routing
) -> dict[TableId, tuple[MissedMessages, ...]]:
    """Return the messages that may have been of tables of these names, by name; no name of which there are none."""
    lost = unread_messages(landed)
    if not lost:
        return {}
    places, missed_messages = _Places(landed, routing), {}
    for name in ByName(dict.fromkeys(name for name in names if name.table)):
        table_places = places.of(name)
        if missed := tuple(
            messages for messages in lost if {messages.lost.partition, messages.lost.partition.topic} & table_places
        ):
            missed_messages[name] = missed
    return missed_messages


class _Places:
    """Where messages of tables may have been."""

    def __init__(self, landed: Landed, routing: Routing) -> None:
        self._routing = routing
        self._counts = Counter(partition.topic for partition in landed.next)
        self._rows: ByName[set[Partition]] = ByName()
        for table, partition in (
            *((table, partition) for partition, table in landed.first_rows),
            *((event.table, event.partition) for event in landed.events if event.kind is EventKind.SCHEMA),
        ):
            if table is not None:
                self._rows.setdefault(table, set()).add(partition)
        rows = [(table, partition) for table, partitions in self._rows.items() for partition in partitions]
        several = Counter((table.folded, partition.topic) for table, partition in rows)
        self._spread = {topic for (_, topic), count in several.items() if count > 1}
        self._strange = {partition.topic for table, partition in rows if partition != self._by_rule(table)}

    def of(self, table: TableId) -> set[str | Partition]:
        """Return the topics, or partitions of them, in which messages of a table may have been, DDL included.

        TiCDC sends DDL to every partition, by Canal-JSON to partition 0 only. A connector has a topic of its own for
        it. YDB has a topic for each table.
        """
        options, topic, rows = self._routing.options, self._routing.topic_of(table), self._rows.get(table, set())
        seen, own = {partition.topic for partition in rows}, self._by_rule(table)
        if options.messages.in_source_order:
            return {topic, options.topic, *seen}
        if not options.messages.sends_again:
            return {*seen} or {topic}
        if own is None or seen - {topic} or topic in self._spread or (topic in self._strange and not rows):
            return {topic, *seen}
        return {own, *rows, *([Partition(topic, 0)] if options.messages.kind.ddl_in_first else [])}

    def _by_rule(self, table: TableId) -> Partition | None:
        """Return the partition of all rows of a table, None where they may be in several."""
        topic = self._routing.topic_of(table)
        number = self._routing.partition_of(table, self._counts[topic] or 1)
        return None if number is None else Partition(topic, number)
