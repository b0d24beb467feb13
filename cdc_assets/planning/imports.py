"""Tables that a dump brings: what of them is to be planned. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cdc_assets.model.by_name import ByName
from cdc_assets.model.progress import Applied, Base, Life, Phase, Progress
from cdc_assets.model.reports import FileStats
from cdc_assets.model.splits import Listing
from cdc_assets.model.steps import ApplyRows, HoldTable
from cdc_assets.model.table_history import History, TableHistory
from cdc_assets.model.tso import Tso

__all__ = ["brought_rows", "earliest", "lost_rows", "standing", "waiting"]


def standing(applied: Mapping[Life, Applied], bases: Mapping[Life, Base | None]) -> dict[Life, Applied]:
    """Return the tables of the lake with what they stand on; `bases` says it of tables that are to stand elsewhere."""

    def on(life: Life, base: Base | None) -> Applied:
        return replace(applied.get(life, Applied(Progress(life.version, Phase.DDL), -1, None)), base=base)

    return {**applied, **{life: on(life, base) for life, base in bases.items()}}


def earliest(listing: Listing, stats: Mapping[str, FileStats], begun: Tso | None) -> Tso:
    """Return the least TSO that is known of a feed, which began before it; `begun` is what else is known."""
    versions = [file.version for file in listing.schema_files]
    rows = [one.min_commit_ts for one in stats.values() if one.min_commit_ts is not None]
    return min([listing.checkpoint, *versions, *rows, *([] if begun is None else [begun])])


def waiting(history: History, applied: Mapping[Life, Applied], through: Tso) -> dict[Life, HoldTable]:
    """Return the incomplete tables that a later dump has: they begin when the feed has come as far as the dump."""
    later = ByName({one.base.table: one.base for one in history.waiting})
    found: dict[Life, HoldTable] = {}
    for life, table in history.lives.items():
        base = later.get(table.names[-1][0])
        if base is not None and life not in applied and table.gaps and table.gaps[0][1] is not None:
            reason = (
                f"it waits for its rows from {base.uri}, which was taken at {base.at}: the changefeed is complete "
                f"through {through} so far."
            )
            found[life] = HoldTable(life, life.version, reason)
    return found


def brought_rows(table: TableHistory) -> list[ApplyRows]:
    """Return the rows that a dump has of a table, as one window of its TSO alone; none for an empty table."""
    told, first = table.brought, table.events[0]
    if told is None or not told.files:
        return []
    decoding = {(told.root, first.at): (told.base.table, told.promised or first.after)}
    names = ((told.base.table, first.at, first.at + 1),)
    return [ApplyRows(table.life, first.at - 1, first.at, told.files, decoding, first.after, first.at, names)]


def lost_rows(table: TableHistory) -> HoldTable:
    """Hold a table that was made as its dump has it, and whose rows are not there any more."""
    base = table.base
    assert base is not None
    reason = (
        f"its rows as of {base.at} are still to come from {base.uri}, and no data file of {base.table} is there. "
        "Restore the dump, or rebuild the table from another one."
    )
    return HoldTable(table.life, base.at, reason)
