"""Plans for tables of a dump. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cdc_assets.model.dumps import DUMP_ZONE
from cdc_assets.model.progress import AppliedState, Base, Gap, Life, Phase, Progress
from cdc_assets.model.recipe import Recipe, Setting
from cdc_assets.model.reports import FileStats
from cdc_assets.model.schema import ByName
from cdc_assets.model.splits import Listing
from cdc_assets.model.steps import ApplyRows, HoldTable, RowReading
from cdc_assets.model.table_history import History, TableHistory
from cdc_assets.model.tso import Tso
from cdc_assets.planning.recipe import made_for


def standing(applied: Mapping[Life, AppliedState], bases: Mapping[Life, Base | None]) -> dict[Life, AppliedState]:
    """Return the tables of the lake with their dumps; `bases` has the dump of tables that are to change theirs."""

    def on(life: Life, base: Base | None) -> AppliedState:
        return replace(applied.get(life, AppliedState(Progress(life.version, Phase.DDL), -1, None)), base=base)

    return {**applied, **{life: on(life, base) for life, base in bases.items()}}


def earliest(listing: Listing, stats: Mapping[str, FileStats], begun: Tso | None) -> Tso:
    """Return the lowest TSO known of a feed, which began at or before it; `begun` is one known from elsewhere."""
    versions = [file.version for file in listing.schema_files]
    rows = [file_stats.min_commit_ts for file_stats in stats.values() if file_stats.min_commit_ts is not None]
    settled = [settled_files.since for settled_files in listing.settled]
    return min([listing.checkpoint, *versions, *rows, *settled, *([] if begun is None else [begun])])


def waiting(
    history: History, applied: Mapping[Life, AppliedState], through: Tso, silent: Sequence[str]
) -> dict[Life, HoldTable]:
    """Return the incomplete tables that a later dump has: they begin when the feed has reached the dump's TSO.

    While a source of rows does not answer, tables that it may have wait too; `silent` are the sentences.
    """
    later = ByName({dump.base.table: dump.base for dump in history.waiting})
    holds: dict[Life, HoldTable] = {}
    for life, table in history.lives.items():
        if life in applied or not isinstance(table.gaps[0][1], Gap):
            continue
        base, reason = later.get(table.names[-1][0]), ""
        if base is not None:
            reason = (
                f"it waits for its rows from {base.uri}, which was taken at {base.at}: the changefeed is complete "
                f"through {through} so far."
            )
        elif silent:
            reason = f"it existed before its changefeed began, and waits for its rows. {silent[0]}"
        if reason:
            holds[life] = HoldTable(life, life.version, reason)
    return holds


def made_otherwise(table: TableHistory, state: AppliedState | None) -> bool:
    """Return whether a table was made as another dump has it and never filled: it is to be made anew."""
    if state is None or not state.awaits_rows or table.base is None or state.base is None:
        return False
    dumps = ((base.at, base.query, base.timezone) for base in (table.base, state.base))
    return len(set(dumps)) > 1


def brought_rows(table: TableHistory) -> list[ApplyRows]:
    """Return the rows of a table in its dump, as one window of the dump's TSO alone; none for an empty table."""
    imported, first = table.brought, table.events[0]
    if imported is None or not imported.files:
        return []
    decoding = {(imported.root, first.at): (imported.base.table, imported.promised or first.after)}
    names = ((imported.base.table, first.at, first.at + 1),)
    zoned = any(column.type == "TIMESTAMP" for column in first.after.stored)
    zone = {DUMP_ZONE: Setting(imported.base.timezone or "UTC")} if zoned else {}
    return [
        ApplyRows(
            table.life,
            first.at - 1,
            first.at,
            imported.files,
            RowReading(decoding, names, recipe=Recipe(zone).joined(made_for(first.after))),
            first.after,
            first.at,
        )
    ]


def lost_rows(table: TableHistory) -> HoldTable:
    """Hold a table that was created from its dump, and whose rows no longer exist there."""
    base = table.base
    assert base is not None
    reason = (
        f"its rows as of {base.at} are still missing from {base.uri}, which has no data file of {base.table}. "
        "Restore the dump, or rebuild the table from another one."
    )
    return HoldTable(table.life, base.at, reason)
