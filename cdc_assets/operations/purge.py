"""Dropped tables removed for good, with their files; until then RECOVER TABLE brings them back."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cdc_assets.errors import BadSettings
from cdc_assets.model.features import hooks
from cdc_assets.model.kinds import NOT_ASKED_FOR
from cdc_assets.model.progress import AppliedState, Life
from cdc_assets.model.reports import Grid, OperationReport, StepResult
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso, tso_time, wall_clock_ms
from cdc_assets.operations.named import is_called
from cdc_assets.operations.requests import OperationRun, PurgeRequest
from cdc_assets.planning.plan import open_exchanges

if TYPE_CHECKING:
    from cdc_assets.operations.lake_pipeline import LakePipeline
    from cdc_assets.pipeline.pipeline import Pipeline
    from cdc_assets.planning.plan import Plan


class DroppedTables(Protocol):
    """The part of a lake that purging needs."""

    def dropped(self) -> Mapping[Life, AppliedState]:
        """Return the progress of dropped tables that still have their files."""

    def purge(self, life: Life) -> StepResult:
        """Remove a dropped table with its files; its progress stays."""


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """A dropped table: its last name, the TSO of its DROP, and why it was kept ("" if it was not)."""

    life: Life
    name: TableId
    dropped: Tso
    kept: str = ""


def carry_out(pipeline: LakePipeline, run: OperationRun, request: PurgeRequest) -> Iterator[PurgeResult]:
    """Remove the requested tables, with consent; yield them, and those that are kept."""
    before_ms = int((time.time() - request.days * 86_400) * 1000) if request.days else None
    dropped_tables = purge(pipeline, pipeline.lake, run.name, request.tables, before_ms, dry=True)
    gone = [str(table.life) for table in dropped_tables if not table.kept]
    if gone and not request.dry_run:
        run.consent(f"Remove {', '.join(gone)} with all files?")
        dropped_tables = purge(pipeline, pipeline.lake, run.name, request.tables, before_ms)
    yield from dropped_tables


def report(feed: str, request: PurgeRequest, parts_done: Sequence[PurgeResult]) -> OperationReport:
    """Return the tables that were removed, and those that are kept, with reasons."""
    heads = ("changefeed", "table", "kind", "name", "dropped", "kept")
    rows = [
        (feed, str(table.life), table.life.kind or "mirror", str(table.name), tso_time(table.dropped), table.kept)
        for table in parts_done
    ]
    return OperationReport(
        [dict(zip(heads, row, strict=True)) for row in rows],
        [Grid(heads, rows) if rows else "No dropped table is to be removed."],
        complete=not any(table.kept for table in parts_done),
    )


def purge(
    pipeline: Pipeline,
    lake: DroppedTables,
    run: str,
    tables: Sequence[str] = (),
    before_ms: int | None = None,
    dry: bool = False,
) -> tuple[PurgeResult, ...]:
    """Remove dropped tables (all, when none is named) whose DROP is older than `before_ms`, ms since 1970.

    `tables` are former names or identities. A table that a step of the plan still needs is kept, with the reason.
    With `dry` nothing is removed. Raises BadSettings for a text that names no dropped table.
    """
    _, planned = pipeline.planner.plan()
    dropped = lake.dropped()
    names = {life: _names(planned, life) for life in dropped}
    if unknown := [text for text in tables if not any(is_called(text, (life, *names[life])) for life in dropped)]:
        raise BadSettings(f"{min(unknown)} is not a dropped table of the lake; those are: {_listed(dropped)}.")
    exchanges = open_exchanges(planned, planned.applied)
    needed_lives = {
        life: why for _, needed in hooks("operations", "needed") for life, why in needed(pipeline, planned).items()
    }
    results = [
        PurgeResult(
            life, names[life][-1], state.progress.tso, needed_lives.get(life) or _need(planned, life, exchanges)
        )
        for life, state in sorted(dropped.items())
        if (not tables or any(is_called(text, (life, *names[life])) for text in tables))
        and (before_ms is None or wall_clock_ms(state.progress.tso) < before_ms)
    ]
    for dropped_table in () if dry else results:
        if not dropped_table.kept:
            result = lake.purge(dropped_table.life)
            pipeline.journal.note(
                dropped_table.life,
                dropped_table.name,
                "purge",
                f"dropped at {tso_time(dropped_table.dropped)}",
                run,
                result,
            )
    return tuple(results)


def _names(planned: Plan, life: Life) -> tuple[TableId, ...]:
    """Return the names that a table had, the last one last."""
    table = planned.history.lives.get(life)
    return (life.born_as, *table.every_name) if table is not None else (life.born_as,)


def _need(planned: Plan, life: Life, exchanges: Mapping[Life, frozenset[Tso]]) -> str:
    """Return the reason why a table is still needed, "" if it is not."""
    if planned.of(life):
        return "the next apply changes it"
    if life in planned.idle and life.source in planned.sources and planned.sources[life.source].name is not None:
        return f"the source has recovered it, and {NOT_ASKED_FOR}"
    if life in exchanges:
        return f"a table that exchanges a partition with it at {min(exchanges[life])} still needs its rows"
    return ""


def _listed(lives: Iterable[Life]) -> str:
    return ", ".join(map(str, sorted(lives))) or "none"
