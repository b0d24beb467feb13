"""The names that tables have, where messages write them otherwise: Avro knows letters, digits and underscores only.

The setting `schemas` and DDL texts state the names. Of several that are written alike the topic decides, if it can;
what stays open is applied to none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from cdc_assets.formats.messages import Written
from cdc_assets.model.landed import EventKind, Landed, LandedEvent, LandedSplit
from cdc_assets.model.schema import TableId
from cdc_assets.sources.topics.paths import LandedPath, format_root

_NAMED_IN = (EventKind.SCHEMA, EventKind.BAD)
"""Events whose table is named as rows name it."""


@dataclass(frozen=True, slots=True)
class OwnNames:
    """The names that each written one may mean; empty if messages write names as they are."""

    of: Mapping[TableId, tuple[TableId, ...]] = field(default_factory=dict)
    topic_of: Callable[[TableId], str] = field(default=lambda _: "", repr=False)

    def candidates(self, written: TableId, topic: str) -> Collection[TableId]:
        """Return which tables a written name may mean in a topic; itself where nothing is known of it."""
        known = self.of.get(written.folded, ())
        if len(known) < 2:
            return known or (written,)
        return [name for name in known if self.topic_of(name) == topic] or known

    def behind(self, written: TableId) -> Collection[TableId]:
        """Return which tables a written name may mean in any topic."""
        return self.of.get(written.folded, ()) or (written,)

    def named(self, landed: Landed) -> Landed:
        """Return what was landed under the tables' own names, without what could be of several tables."""
        if not self.of:
            return landed
        splits = [replace(split, table=name) for split in landed.splits if (name := self._clear(split)) is not None]
        events = [
            replace(event, table=self._clear(event)) if event.kind in _NAMED_IN else event for event in landed.events
        ]
        return replace(
            landed,
            splits=tuple(splits),
            events=tuple(event for event in events if event.kind is not EventKind.SCHEMA or event.table is not None),
            began=self._by_name(landed.began),
            expired=self._by_name(landed.expired),
            emptied={
                (partition, candidates[0]): first
                for (partition, written), first in landed.emptied.items()
                if len(candidates := tuple(self.candidates(written, partition.topic))) == 1
            },
        )

    def _clear(self, record: LandedSplit | LandedEvent) -> TableId | None:
        if record.table is None:
            return None
        candidates = tuple(self.candidates(record.table, record.partition.topic))
        return candidates[0] if len(candidates) == 1 else None

    def _by_name(self, given: Mapping[TableId, int]) -> dict[TableId, int]:
        return {name: at for written, at in given.items() for name in self.behind(written)}

    def problems(self, landed: Landed) -> Iterator[tuple[str, str]]:
        """Yield for each table that rows may be of, with others, the name of what holds it and the sentence for it."""
        for split in landed.splits if self.of else ():
            candidates = self.candidates(split.table, split.partition.topic)
            if len(candidates) < 2:
                continue
            names = " and ".join(map(str, sorted(candidates)))
            for name in candidates:
                path = LandedPath(format_root(name), split.low, "bad", *split.partition, split.first, split.first)
                yield (
                    str(path),
                    f"{split.partition} has rows from offset {split.first} on of a table whose name is written "
                    f"{split.table}, as the names of {names} both are: messages do not distinguish them. Give each a "
                    "topic of its own in the changefeed's dispatchers, and import the tables anew.",
                )


def own_names(tables: Iterable[TableId], written: Written, topic_of: Callable[[TableId], str]) -> OwnNames:
    """Return what written names may mean, of the tables that are known."""
    tables_by_name: dict[TableId, dict[TableId, TableId]] = {}
    for table in tables:
        name = TableId(written(table.schema), written(table.table)).folded
        tables_by_name.setdefault(name, {}).setdefault(table.folded, table)
    return OwnNames({name: tuple(known.values()) for name, known in tables_by_name.items()}, topic_of)
