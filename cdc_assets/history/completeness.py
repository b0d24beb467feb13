"""Which tables lack rows: those that existed before the feed began and were not imported. Pure.

A table is complete by its CREATE, by a dump or a TRUNCATE, or because a person said that it had no rows before.
TRUNCATE ends incompleteness, and so does DROP, since a later table of that name is another one. RENAME and RECOVER
keep it.
EXCHANGE PARTITION passes it on with the rows: the partitioned table has rows of both afterwards, the other one all that
were in the partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from cdc_assets import ddl
from cdc_assets.model.gaps import is_complete
from cdc_assets.model.progress import Gap, Life
from cdc_assets.model.schema_changes import DeleteRows
from cdc_assets.model.table_history import Event, Exchanged, Held, History, Imported
from cdc_assets.model.tso import Tso

__all__ = ["with_gaps"]


def with_gaps(history: History, complete: Iterable[str] = ()) -> History:
    """Return the history with the gaps of every life; `complete` are the patterns of tables that have none."""
    said = tuple(complete)
    if all(_brings_all(table.events[0]) or is_complete(life, said) for life, table in history.lives.items()):
        return history
    now: dict[Life, Gap | None] = {}
    gaps: dict[Life, list[tuple[Tso, Gap | None]]] = {life: [] for life in history.lives}
    stopped: set[Life] = set()
    ordered = sorted(
        ((event.at, life, event) for life, table in history.lives.items() for event in table.events),
        key=lambda one: one[0],
    )
    for version, group in groupby(ordered, key=lambda one: one[0]):
        before = dict(now)
        for _, life, event in group:
            if life in stopped:
                continue
            if life not in now:
                offer = history.offered[life].uri if life in history.offered else ""
                now[life] = None if _brings_all(event) or is_complete(life, said) else Gap(life, offer)
            elif not isinstance(event, Held):
                now[life] = _after(event, life, before)
            if isinstance(event, Held):
                stopped.add(life)
            gaps[life].append((version, now[life]))
    lacking = {life: tuple(found) for life, found in gaps.items() if any(gap is not None for _, gap in found)}
    lives = {life: replace(table, gaps=lacking.get(life, ())) for life, table in history.lives.items()}
    return replace(history, lives=lives)


def _brings_all(first: Event) -> bool:
    """Return whether a table has all its rows from its first event on."""
    return isinstance(first, Imported) or isinstance(ddl.statement(first.file), (ddl.CreateTable, ddl.Truncate))


def _after(event: Event, life: Life, before: dict[Life, Gap | None]) -> Gap | None:
    own = before.get(life)
    if isinstance(event, Exchanged):
        theirs = before.get(event.other)
        return own or theirs if event.partitioned else theirs
    return None if _empties(event) else own


def _empties(event: Event) -> bool:
    """Return whether the source deleted all rows; rows of the lake that a person dropped do not count."""
    by_source = event.release is None or event.release.way == "apply" or _brings_all(event)
    return by_source and DeleteRows(None) in event.changes
