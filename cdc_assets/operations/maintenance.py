"""Maintenance of the lake's files, if due. It leaves nothing due, so that a second run does nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cdc_assets.errors import BadSettings, Retryable
from cdc_assets.lake.chores import Chores, TableFacts, chores, expirable, is_overdue
from cdc_assets.lake.tickets import REBUILD, LakeTickets
from cdc_assets.landing.maintenance import LandingDue, LandingLimits, LandingUpkeep, landing_due, maintain_landing
from cdc_assets.landing.retention import Retention
from cdc_assets.model.features import hooks
from cdc_assets.model.progress import Life
from cdc_assets.model.reports import Aside, Grid, OperationReport
from cdc_assets.model.schema import TableId
from cdc_assets.model.wording import counted
from cdc_assets.operations.landings import landing_needs
from cdc_assets.operations.named import is_called
from cdc_assets.operations.requests import DueWork, MaintenanceRequest, OperationRun
from cdc_assets.planning.plan import open_exchanges

if TYPE_CHECKING:
    from cdc_assets.lake.maintenance import LakeMaintenance
    from cdc_assets.model.table_history import TableHistory
    from cdc_assets.operations.lake_pipeline import LakePipeline
    from cdc_assets.planning.plan import Plan

_BATCH = 100
"""Snapshots that expire together, by a run that goes on."""


MOVE_HEADS = ("files", "bytes", "deletes", "snapshots")


@dataclass(frozen=True, slots=True)
class TableMaintenance:
    """The maintenance of one table: its facts before and after, and why it stopped ("" if it did not).

    `looked` says that its rows were looked at, as those of a history table are; `problem` may be what is wrong there.
    """

    before: TableFacts
    after: TableFacts
    due: Chores
    name: TableId | None = None
    orphans: int = 0
    seconds: float = 0.0
    problem: str = ""
    looked: bool = False

    @property
    def life(self) -> Life | None:
        """The table's life, None for a table of the lake itself."""
        return self.before.life

    @property
    def moves(self) -> tuple[str, ...]:
        """The change of each of MOVE_HEADS: `17 → 1`."""
        names = ("data_files", "data_bytes", "delete_files", "snapshots")
        return tuple(f"{getattr(self.before, name)} → {getattr(self.after, name)}" for name in names)

    def figures(self) -> dict[str, int | float | str]:
        """Return the figures for a person and for plots."""
        figures: dict[str, int | float | str] = {"done": str(self.due), "seconds": round(self.seconds, 2)}
        for name in ("data_files", "data_bytes", "small_files", "deleted_rows", "delete_files", "manifests"):
            figures[f"{name}_before"], figures[name] = getattr(self.before, name), getattr(self.after, name)
        figures["snapshots_before"], figures["snapshots"] = self.before.snapshots, self.after.snapshots
        figures["orphan_files_removed"] = self.orphans
        return {**figures, **({"problem": self.problem} if self.problem else {})}


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """A run of maintenance: tables for which something was due, how many others, and the leftovers of dead runs.

    `landing` is what was done for the landing of a feed of topics, `landing_due` what a dry run found due for it.
    `removed` are the names of what features let go, by what they are: `cuts`.
    """

    tables: tuple[TableMaintenance, ...]
    idle: int
    stages: int = 0
    aside: int = 0
    landing: LandingUpkeep | None = None
    landing_due: LandingDue | None = None
    removed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Return whether all that was due was done."""
        return not any(table.problem for table in self.tables)

    @property
    def is_idle(self) -> bool:
        """Return whether nothing was due, neither for a table nor for a landing, in a dry run."""
        return not self.tables and not self.landing_due and not any(self.removed.values())


def carry_out(pipeline: LakePipeline, run: OperationRun, request: MaintenanceRequest) -> Iterator[MaintenanceResult]:
    """Maintain the requested tables, see `maintain`."""
    say = _silent if run.attended else run.say  # a person is shown what was done, as a whole
    yield maintain(pipeline, int(time.time() * 1000), request.tables, request.dry_run, say)


def _silent(sentence: str) -> None:
    """Say nothing."""


def due(pipeline: LakePipeline) -> DueWork:
    """Return the chores of a run of maintenance now; that takes no Spark."""
    due_result = maintain(pipeline, int(time.time() * 1000), dry=True)
    if due_result.is_idle:
        return DueWork(why_none=f"nothing is due for {counted(due_result.idle, 'table')}")
    return DueWork(tuple(table.name for table in due_result.tables))


def report(feed: str, request: MaintenanceRequest, parts_done: Sequence[MaintenanceResult]) -> OperationReport:
    """Return the report on the chores of each table, done and not done."""
    (done,) = parts_done
    heads = ("table", "due" if request.dry_run else "done", *MOVE_HEADS, "orphans")
    rows = [(table.before.table, str(table.due), *table.moves, table.orphans) for table in done.tables]
    lines: list[str | Grid] = [Grid(heads, rows)] if rows else []
    if done.idle or not rows:
        lines.append(f"Nothing is due for {counted(done.idle, 'table')}.")
    if landing := done.landing or done.landing_due:
        lines.append(f"{landing}.")
    lines += [
        f"{counted(len(names), what.removesuffix('s'))} {'to remove' if request.dry_run else 'removed'}."
        for what, names in done.removed.items()
        if names
    ]
    problems = [f"{table.before.table}: {table.problem}" for table in done.tables if table.problem]
    leftovers = {"stages_removed": done.stages, "rebuild_tables_removed": done.aside}
    landed = done.landing.figures() if done.landing is not None else {}
    document = {
        "changefeed": feed,
        "tables": {table.before.table: table.figures() for table in done.tables},
        "idle": done.idle,
        **leftovers,
        **{f"{what}_removed": names for what, names in done.removed.items()},
        **landed,
        **({"landing_due": asdict(done.landing_due)} if done.landing_due else {}),
    }
    figures: dict[str, Any] = {
        "tables_maintained": len(done.tables),
        "tables_idle": done.idle,
        **leftovers,
        **{f"{what}_removed": len(names) for what, names in done.removed.items()},
        "orphan_files_removed": sum(table.orphans for table in done.tables),
        **landed,
        **({"landing_due": str(done.landing_due)} if done.landing_due else {}),
    }
    for name in ("data_files", "data_bytes", "delete_files", "snapshots"):
        figures[f"{name}_before"] = sum(getattr(table.before, name) for table in done.tables)
        figures[name] = sum(getattr(table.after, name) for table in done.tables)
    if done.tables:
        moves = [(table.before.table, str(table.due), *table.moves, table.problem) for table in done.tables]
        figures["tables"] = Grid(("table", "done", *MOVE_HEADS, "problem"), moves)
    return OperationReport([document], [*lines, *map(Aside, problems)], figures, done.complete, "\n".join(problems))


def maintain(
    pipeline: LakePipeline,
    now_ms: int,
    tables: Sequence[str] = (),
    dry: bool = False,
    say: Callable[[str], object] = lambda _: None,
) -> MaintenanceResult:
    """Do what is due for these tables (all, and those of the lake itself, when none is named) and nothing else.

    `tables` are source names, identities or names in the lake. `now_ms` is the present, ms since 1970. With `dry`
    nothing is done, and what is due is returned. A table that writers keep changing is returned as a problem; the
    others are done. Raises BadSettings for a table that does not exist.
    """
    from cdc_assets.lake.maintenance import LakeMaintenance

    _, planned = pipeline.planner.plan()
    applied, keeper = pipeline.lake.applied(), LakeMaintenance(pipeline.lake, pipeline.settings.maintenance)
    exchanges = open_exchanges(planned, applied)
    removed: dict[str, tuple[str, ...]] = {
        feature: () if tables else expire(pipeline, now_ms, dry) for feature, expire in hooks("operations", "expire")
    }
    names = {life: state.name for life, state in applied.items()}
    keeper_facts = keeper.facts(exchanges)
    chosen = [
        facts for facts in keeper_facts if not tables or any(is_called(text, _names(facts, names)) for text in tables)
    ]
    if unknown := [text for text in tables if not any(is_called(text, _names(facts, names)) for facts in chosen)]:
        table_names = ", ".join(sorted(str(name) for name in names.values() if name is not None))
        raise BadSettings(f"the lake has no table {min(unknown)}; it has {table_names or 'none'}.")
    due = {facts.table: chores(facts, pipeline.settings.maintenance, now_ms) for facts in chosen}
    swept = (0, 0) if dry or tables else keeper.sweep()
    done: list[TableMaintenance] = []
    for facts in chosen:
        if due[facts.table]:
            say(f"{facts.table}: {due[facts.table]}")
            done.append(TableMaintenance(facts, facts, due[facts.table], names.get(facts.life) if facts.life else None))
    if not dry:
        lives = planned.history.lives
        done = [
            _maintained(table_result, keeper, lives.get(table_result.life) if table_result.life else None, now_ms)
            for table_result in done
        ]
    after = {facts.table: facts for facts in keeper.facts(exchanges)} if done and not dry else {}
    done_tables = tuple(
        replace(table_result, after=after.get(table_result.before.table, table_result.before)) for table_result in done
    )
    result = MaintenanceResult(done_tables, len(chosen) - len(done_tables), *swept, removed=removed)
    return result if tables else _with_landing(result, pipeline, planned, now_ms, dry)


def expire_snapshots(pipeline: LakePipeline, planned: Plan, now_ms: int) -> Life | None:
    """Expire snapshots of the table that has the most above what is kept, and return it; None where none has many.

    For between two rounds of a run that lives on: one table at a time, by Iceberg's own API, without Spark. Raises
    TableMoved where others keep committing to it, and LakeUnavailable.
    """
    from cdc_assets.lake.maintenance import LakeMaintenance

    tables, settings = pipeline.lake.state.known(), pipeline.settings.maintenance
    life = max(tables, key=lambda table_life: tables[table_life].snapshots, default=None)
    if life is None or tables[life].snapshots < settings.snapshots_most + _BATCH:
        return None
    keeper = LakeMaintenance(pipeline.lake, settings)
    exchanges = open_exchanges(planned, {table_life: table.applied for table_life, table in tables.items()})
    for facts in keeper.facts(exchanges, life):
        expiring = expirable(facts, settings, now_ms)
        if len(expiring) >= _BATCH:
            keeper.carry_out(facts, Chores(expire=expiring), now_ms)
            return life
    return None


def compact_overdue(pipeline: LakePipeline, planned: Plan, now_ms: int) -> TableMaintenance | None:
    """Compact the table that most needs it of those that are overdue.

    For between two rounds of a run that lives on: a compaction beside it loses to windows that hide rows of the same
    files, so it does not come before the source is quiet, and what small windows compact themselves are small files.
    With Spark, one table at a time; None where no table needs it. Raises TableMoved where others keep committing to
    it, LakeUnavailable and StepFailed.
    """
    from cdc_assets.lake.maintenance import LakeMaintenance

    settings, tables = pipeline.settings.maintenance, pipeline.lake.state.known().values()
    share = settings.deleted_share
    due = [table for table in tables if is_overdue(table.rows or 0, table.hidden_rows or 0, share)]
    if not due:
        return None
    table = max(due, key=lambda overdue_table: overdue_table.hidden_rows or 0)
    keeper, started = LakeMaintenance(pipeline.lake, settings), time.monotonic()
    exchanges = open_exchanges(planned, {known_table.life: known_table.applied for known_table in tables})
    (before,) = keeper.facts(exchanges, table.life)
    keeper.carry_out(before, Chores(compact=True), now_ms)
    (after,) = keeper.facts(exchanges, table.life)
    seconds = time.monotonic() - started
    return TableMaintenance(before, after, Chores(compact=True), table.name, seconds=seconds)


def _with_landing(
    result: MaintenanceResult,
    pipeline: LakePipeline,
    planned: Plan,
    now_ms: int,
    dry: bool,
) -> MaintenanceResult:
    """Maintain the landing of a feed of topics; what is landed meanwhile leaves the rest to the next run."""
    landing, settings = pipeline.landing, pipeline.settings.maintenance
    if landing is None:
        return result
    rebuilds = LakeTickets(pipeline.lake.state, REBUILD).tickets()
    needs = landing_needs(pipeline, landing, planned, rebuilding=any(ticket.runs() for ticket in rebuilds))
    chosen = pipeline.settings.landing
    retention = Retention.of(chosen.keep, chosen.days)
    limits = LandingLimits(retention, settings.small_files, removed_days=settings.orphan_days)
    if dry:
        return replace(result, landing_due=landing_due(landing, needs, now_ms, limits))
    try:
        done = maintain_landing(landing, needs, now_ms, limits)
    except Retryable:
        return result
    return replace(result, landing=done)


def _names(facts: TableFacts, names: Mapping[Life, TableId | None]) -> tuple[str | Life | TableId | None, ...]:
    return (facts.table, facts.life, names.get(facts.life) if facts.life is not None else None)


def _maintained(
    maintenance: TableMaintenance, keeper: LakeMaintenance, table: TableHistory | None, now_ms: int
) -> TableMaintenance:
    started, orphans, problem, looked = time.monotonic(), 0, "", False
    try:
        orphans = keeper.carry_out(maintenance.before, maintenance.due, now_ms)
        if maintenance.due.compact and table is not None and table.life.kind:  # its rows are read anyway
            problem = keeper.problem(table.life, table.schema)
            looked = True
    except Retryable as error:
        problem = f"{error} It is due again at the next run."
    return replace(maintenance, orphans=orphans, problem=problem, looked=looked, seconds=time.monotonic() - started)
