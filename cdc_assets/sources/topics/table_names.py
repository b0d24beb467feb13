"""Names of tables that messages write otherwise, and names that differ only in the case of letters.

Avro knows letters, digits and underscores only: the setting `schemas` and DDL texts state the names. Of several that
are written alike the topic decides, if it can; what stays open is applied to none of them. Databases of connectors and
YDB tell letter cases apart. The lake does not, so what was landed of one table would become rows of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from cdc_assets.ddl import rename_pairs
from cdc_assets.formats.messages import Written
from cdc_assets.model.landed import EventKind, Landed, LandedEvent, LandedSplit
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.sources.topics.paths import LandedPath, format_root

_First = tuple[Tso, Partition, int]
"""Position, partition and offset at which a name comes first."""


def alike(landed: Landed) -> Iterator[tuple[str, str]]:
    """Yield for each table that has another one's name what holds it, from where the second of both comes first."""
    names: dict[TableId, dict[TableId, _First]] = {}
    # Where the first row or DDL of each table is.
    first_places: dict[TableId, _First] = {}
    for (row_partition, named), (row_position, row_offset) in landed.first_rows.items():
        row_place = (row_position, row_partition, row_offset)
        first_places[named] = min(row_place, first_places.get(named, row_place))
    schemas = {named.schema for named in first_places}
    for event in landed.events:
        if event.kind is EventKind.DDL and event.table is not None and event.table.table:
            row_place = (event.position, event.partition, event.offset)
            if event.table.schema in schemas:  # DDL of databases that are not captured comes too
                first_places[event.table] = min(row_place, first_places.get(event.table, row_place))
    for table, first in first_places.items():
        names.setdefault(table.folded, {})[table] = first
    doubtful = {folded: spelled for folded, spelled in names.items() if len(spelled) > 1}
    respelled = _respelled(landed) if doubtful else ()
    for folded, spelled in doubtful.items():
        if folded in respelled:
            continue
        (_, earlier_table), (place, other), *_ = sorted((first, table) for table, first in spelled.items())
        position, partition, offset = place
        yield (
            str(LandedPath(format_root(other), position, "bad", *partition, offset, offset)),
            f"{earlier_table} and {other} are two tables whose names differ only in the case of letters, and the lake "
            f"does not distinguish such names: from {partition} offset {offset} on neither is applied. Leave one of "
            "them out at the source (table.exclude.list), or give it another name, and let a new feed bring them.",
        )


def _respelled(landed: Landed) -> set[TableId]:
    """Return the names that a RENAME only writes otherwise."""
    return {
        new.folded
        for event in landed.events
        if event.kind is EventKind.DDL
        for old, new in _pairs(event)
        if old.folded == new.folded
    }


def _pairs(event: LandedEvent) -> tuple[tuple[TableId, TableId], ...]:
    schema = "" if event.table is None else event.table.schema
    return rename_pairs(event.query, schema)


_NAMED_IN = (EventKind.SCHEMA, EventKind.BAD, EventKind.RELEASED)
"""Events whose table is named as rows name it."""


@dataclass(frozen=True, slots=True)
class OwnNames:
    """The names that each written one may mean; empty if messages write names as they are."""

    of: Mapping[TableId, tuple[TableId, ...]] = field(default_factory=dict)
    topic_of: Callable[[TableId], str] = field(default=lambda _: "", repr=False)

    def candidates(self, written: TableId, topic: str) -> Collection[TableId]:
        """Return the tables that a written name may mean in a topic; itself where nothing is known of it."""
        tables = self.of.get(written.folded, ())
        if len(tables) < 2:
            return tables or (written,)
        return [name for name in tables if self.topic_of(name) == topic] or tables

    def behind(self, written: TableId) -> Collection[TableId]:
        """Return the tables that a written name may mean in any topic."""
        return self.of.get(written.folded, ()) or (written,)

    def named(self, landed: Landed) -> Landed:
        """Return the landing under the tables' own names, without rows that could be of several tables."""
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

    def _by_name(self, offsets: Mapping[TableId, int]) -> dict[TableId, int]:
        return {name: at for written, at in offsets.items() for name in self.behind(written)}

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
    """Return the meanings that written names may have, of the tables that are known."""
    tables_by_name: dict[TableId, dict[TableId, TableId]] = {}
    for table in tables:
        name = TableId(written(table.schema), written(table.table)).folded
        tables_by_name.setdefault(name, {}).setdefault(table.folded, table)
    return OwnNames({name: tuple(tables.values()) for name, tables in tables_by_name.items()}, topic_of)
