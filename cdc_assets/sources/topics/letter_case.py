"""Tables whose names differ only in the case of letters: connectors' databases and YDB may have such.

The lake does not tell these names apart, so what was landed of one would become rows of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cdc_assets.ddl import rename_pairs
from cdc_assets.model.landed import EventKind, Landed, LandedEvent
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.sources.topics.paths import LandedPath, format_root

_First = tuple[Tso, Partition, int]
"""Position, partition and offset at which a name comes first."""


def alike(landed: Landed) -> Iterator[tuple[str, str]]:
    """Yield for each table that has another one's name what holds it, from where the second of both comes first."""
    names: dict[TableId, dict[TableId, _First]] = {}
    for table, first in _firsts(landed).items():
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


def _firsts(landed: Landed) -> Mapping[TableId, _First]:
    first_places: dict[TableId, _First] = {}
    for (partition, table), (position, offset) in landed.first_rows.items():
        first = (position, partition, offset)
        first_places[table] = min(first, first_places.get(table, first))
    schemas = {table.schema for table in first_places}
    for event in landed.events:
        if event.kind is EventKind.DDL and event.table is not None and event.table.table:
            first = (event.position, event.partition, event.offset)
            if event.table.schema in schemas:  # DDL of databases that are not captured comes too
                first_places[event.table] = min(first, first_places.get(event.table, first))
    return first_places


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
