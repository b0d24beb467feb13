"""What is due for a table's files, and the run that does it. The policy is pure: no I/O, no clock, no Spark.

    compact     many small files, or many deleted rows that every reader has to skip
    manifests   many small ones, which every plan of a read opens
    expire      snapshots that nobody needs any more, with the files that only they refer to
    orphans     files that no snapshot refers to, left by runs that died

What is done leaves nothing due, so that a second run does nothing. Snapshots go from the old end only: what is left of
a table's lineage is one piece, from the newest to the oldest that is needed, so progress and exchanges find theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from cdc_assets.config import MaintenanceSettings
from cdc_assets.errors import BadSettings, Retryable
from cdc_assets.model import Applied, Life, TableId, Tso
from cdc_assets.plan import Plan

if TYPE_CHECKING:
    from cdc_assets.pipeline import Pipeline

__all__ = [
    "MOVE_HEADS",
    "Chores",
    "Keeper",
    "Maintained",
    "SnapshotFact",
    "TableFacts",
    "Upkept",
    "chores",
    "expirable",
    "maintain",
    "open_exchanges",
]

_DAY_MS = 86_400_000
_MANIFEST_BYTES = 4 << 20
"""Manifests of this size are worth an opening each; Iceberg aims at twice as much."""

_FEW_ROWS = 1000
"""Deleted rows that cost a reader nothing, whatever share of the table they are."""


@dataclass(frozen=True, slots=True)
class SnapshotFact:
    """A snapshot: when it was made (ms since 1970), and whether it carries a label or is held by a branch or tag."""

    id: int
    made_ms: int
    labelled: bool = False
    referenced: bool = False


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A lake table's files and snapshots. `life` is None for tables of the lake itself.

    `lineage` is main's snapshot and those before it, newest first, across rewrites; `strays` are all others. `needed`
    are snapshots that something open refers to. `small_files` counts data files below three quarters of the target.
    """

    table: str
    life: Life | None
    rows: int
    data_files: int
    data_bytes: int
    small_files: int
    deleted_rows: int
    delete_files: int
    manifests: int
    manifest_bytes: int
    lineage: tuple[SnapshotFact, ...] = ()
    strays: tuple[SnapshotFact, ...] = ()
    needed: frozenset[int] = frozenset()
    swept_ms: int = 0

    @property
    def snapshots(self) -> int:
        """How many snapshots there are."""
        return len(self.lineage) + len(self.strays)


@dataclass(frozen=True, slots=True)
class Chores:
    """What is due for one table; `expire` names snapshots."""

    compact: bool = False
    manifests: bool = False
    orphans: bool = False
    expire: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return self.compact or self.manifests or self.orphans or bool(self.expire)

    def __str__(self) -> str:
        told = [name for name in ("compact", "manifests", "orphans") if getattr(self, name)]
        told += [f"expire {len(self.expire)} snapshots"] if self.expire else []
        return ", ".join(told) or "nothing"


def chores(facts: TableFacts, settings: MaintenanceSettings, now_ms: int) -> Chores:
    """Return what is due for a table at a moment (ms since 1970)."""
    found = expirable(facts, settings, now_ms)
    oldest = min((one.made_ms for one in (*facts.lineage, *facts.strays)), default=now_ms)
    return Chores(
        compact=facts.small_files >= settings.small_files
        or facts.deleted_rows >= max(_FEW_ROWS, settings.deleted_share * (facts.rows + facts.deleted_rows)),
        manifests=facts.manifests >= settings.manifests and facts.manifest_bytes < facts.manifests * _MANIFEST_BYTES,
        orphans=now_ms - (facts.swept_ms or oldest) >= settings.orphan_days * _DAY_MS,
        expire=found if len(found) >= settings.expire_at_least else (),
    )


def expirable(facts: TableFacts, settings: MaintenanceSettings, now_ms: int) -> tuple[int, ...]:
    """Return the snapshots that may go: the lineage's old end, and what lies beside it, both past the retention.

    Kept are the newest labelled one and all after it, what is needed, referenced or young, and the newest few.
    """
    young = now_ms - settings.snapshot_days * _DAY_MS
    last = min(settings.snapshots_kept, len(facts.lineage)) - 1
    labelled = False
    for place, one in enumerate(facts.lineage):
        if (one.labelled and not labelled) or one.referenced or one.id in facts.needed or one.made_ms > young:
            last = max(last, place)
        labelled = labelled or one.labelled
    strays = (
        one.id for one in facts.strays if one.made_ms <= young and not one.referenced and one.id not in facts.needed
    )
    return (*(one.id for one in facts.lineage[max(last, 0) + 1 :]), *strays)


def open_exchanges(planned: Plan, applied: Mapping[Life, Applied]) -> dict[Life, frozenset[Tso]]:
    """Return by table the versions of exchanges that its partner has still to take: its rows from before are needed."""
    found: dict[Life, set[Tso]] = {}
    for life, table in planned.history.lives.items():
        seen = applied[life].ddl if life in applied else -1
        for event in table.events:
            if event.other is not None and event.at > seen:
                found.setdefault(event.other, set()).add(event.at)
    return {life: frozenset(versions) for life, versions in found.items()}


# --- the run ----------------------------------------------------------------------------------------------------------


class Keeper(Protocol):
    """What a lake must be able to do to be maintained."""

    def facts(self, exchanges: Mapping[Life, frozenset[Tso]] | None = None) -> tuple[TableFacts, ...]:
        """What each table's metadata says."""

    def carry_out(self, facts: TableFacts, due: Chores, now_ms: int) -> int:
        """Do what is due for one table; return how many orphan files went."""

    def sweep(self) -> tuple[int, int]:
        """Remove stages and tables aside of runs that died; return how many (stages, tables)."""


MOVE_HEADS = ("files", "bytes", "deletes", "snapshots")


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done for a table: its facts before and after, and why it stopped ("" when it did not)."""

    before: TableFacts
    after: TableFacts
    due: Chores
    name: TableId | None = None
    orphans: int = 0
    seconds: float = 0.0
    problem: str = ""

    @property
    def moves(self) -> tuple[str, ...]:
        """What each of MOVE_HEADS was and is: `17 → 1`."""
        names = ("data_files", "data_bytes", "delete_files", "snapshots")
        return tuple(f"{getattr(self.before, name)} → {getattr(self.after, name)}" for name in names)

    def figures(self) -> dict[str, int | float | str]:
        """Return the figures for a person and for plots."""
        told: dict[str, int | float | str] = {"done": str(self.due), "seconds": round(self.seconds, 2)}
        for name in ("data_files", "data_bytes", "small_files", "deleted_rows", "delete_files", "manifests"):
            told[f"{name}_before"], told[name] = getattr(self.before, name), getattr(self.after, name)
        told["snapshots_before"], told["snapshots"] = self.before.snapshots, self.after.snapshots
        told["orphan_files_removed"] = self.orphans
        return {**told, **({"problem": self.problem} if self.problem else {})}


@dataclass(frozen=True, slots=True)
class Upkept:
    """A run of maintenance: tables for which something was due, how many others, and what dead runs had left."""

    tables: tuple[Maintained, ...]
    idle: int
    stages: int = 0
    aside: int = 0

    @property
    def complete(self) -> bool:
        """Tell whether all that was due was done."""
        return not any(table.problem for table in self.tables)


def maintain(
    pipeline: Pipeline,
    keeper: Keeper,
    now_ms: int,
    tables: Sequence[str] = (),
    dry: bool = False,
    say: Callable[[str], object] = lambda _: None,
) -> Upkept:
    """Do what is due for these tables (all, and those of the lake itself, when none is named) and nothing else.

    `tables` are source names, identities or names in the lake. `now_ms` is the present, ms since 1970. With `dry`
    nothing is done, and what is due is told. A table that a writer never leaves alone is told as a problem; the others
    are done. Raises BadSettings for a table that is not there.
    """
    _, planned = pipeline.look()
    applied = pipeline.lake.applied()
    exchanges = open_exchanges(planned, applied)
    names = {life: state.name for life, state in applied.items()}
    known = keeper.facts(exchanges)
    chosen = [one for one in known if not tables or _called(one, names) & set(tables)]
    if unknown := set(tables) - {name for one in chosen for name in _called(one, names)}:
        there = ", ".join(sorted(str(name) for name in names.values() if name is not None))
        raise BadSettings(f"the lake has no table {min(unknown)}; it has {there or 'none'}.")
    due = {one.table: chores(one, pipeline.settings.maintenance, now_ms) for one in chosen}
    swept = (0, 0) if dry or tables else keeper.sweep()
    done: list[Maintained] = []
    for one in chosen:
        if due[one.table]:
            say(f"{one.table}: {due[one.table]}")
            done.append(Maintained(one, one, due[one.table], names.get(one.life) if one.life else None))
    if not dry:
        done = [_kept_up(one, keeper, now_ms) for one in done]
    after = {one.table: one for one in keeper.facts(exchanges)} if done and not dry else {}
    told = tuple(replace(one, after=after.get(one.before.table, one.before)) for one in done)
    return Upkept(told, len(chosen) - len(told), *swept)


def _called(facts: TableFacts, names: Mapping[Life, TableId | None]) -> set[str]:
    return {facts.table, *((str(facts.life), str(names.get(facts.life))) if facts.life is not None else ())}


def _kept_up(one: Maintained, keeper: Keeper, now_ms: int) -> Maintained:
    started, orphans, problem = time.monotonic(), 0, ""
    try:
        orphans = keeper.carry_out(one.before, one.due, now_ms)
    except Retryable as error:
        problem = f"{error} It is due again at the next run."
    return replace(one, orphans=orphans, problem=problem, seconds=time.monotonic() - started)
