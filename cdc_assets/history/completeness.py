"""Which tables lack rows: those that existed before the feed began and were not imported. Pure.

A table is complete by its CREATE, by a dump or a TRUNCATE, or because a person said that it had no rows before.
TRUNCATE ends incompleteness, and so does DROP, since a later table of that name is another one. RENAME and RECOVER
keep it.
EXCHANGE PARTITION passes it on with the rows: the partitioned table has rows of both afterwards, the other one all that
were in the partition.
"""

from __future__ import annotations

import glob
import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import groupby

from cdc_assets import ddl
from cdc_assets.model.names import fold_name
from cdc_assets.model.progress import Base, Gap, Life
from cdc_assets.model.schema_changes import DeleteRows
from cdc_assets.model.table_history import Event, Exchanged, Held, History, Imported
from cdc_assets.model.tso import Tso

__all__ = ["Completed", "gap_text", "is_complete", "pattern_of", "with_gaps"]


@dataclass(frozen=True, slots=True)
class Completed:
    """A person's statement that all tables matching a pattern had no rows before. `when` is ISO text in UTC."""

    pattern: str
    who: str = ""
    when: str = ""


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


def is_complete(life: Life, patterns: Iterable[str]) -> bool:
    """Return whether a pattern matches the name that a table had when the feed began, or its identity.

    Its present name does not count: another table may take that later.
    """
    names = [fold_name(str(life.born_as)), fold_name(str(life))]
    return any(fnmatchcase(name, fold_name(pattern)) for pattern in patterns for name in names)


def pattern_of(life: Life) -> str:
    """Return the pattern that matches a table's first name and no other."""
    return glob.escape(str(life.born_as))


def gap_text(gap: Gap, life: Life, base: Base | None = None) -> str:
    """Return the sentence on an incomplete table: what is missing, why, and what a person can do.

    One that is based on a dump (`base`) lacks rows of its own only until they are imported.
    """
    if base is not None and gap.life == life:
        return (
            f"incomplete: its rows as of {base.at}, which are in {base.uri}, are not imported yet, and nothing of it "
            "is there before they are. Let it be applied; the reason that stops it is shown too."
        )
    pattern = pattern_of(gap.life)
    quoted = shlex.quote(pattern)
    whose = "it" if gap.life == life else f"{gap.life.born_as}, from which rows came by EXCHANGE PARTITION,"
    bring = "Bring them from a dump, or straight from the source: setting initial, --initial URI. "
    offered = f"They are in {gap.offer}: cdc-assets rebuild {shlex.quote(str(gap.life))}. " if gap.offer else bring
    return (
        f"incomplete: {whose} existed before its changefeed began (its first schema file, of version {gap.since}, has "
        f"no CREATE TABLE), so the rows that it had then are missing here; what changed since is applied. {offered}If "
        "it had "
        f"none, or they are not needed, say so: {json.dumps(pattern, ensure_ascii=False)} in the changefeed's setting "
        f"initial: {{complete: [...]}}, --complete {quoted}, or, to keep it in the lake, cdc-assets release --complete "
        f"{quoted}."
    )
