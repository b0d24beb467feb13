"""Incomplete tables, recorded in the lake; people's statements that tables are complete."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from cdc_assets.model.findings import Finding, Severity
from cdc_assets.model.progress import AppliedState, Gap, Life, Phase, Progress
from cdc_assets.model.steps import ExchangePartition
from cdc_assets.model.table_history import TableHistory
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted
from cdc_assets.planning.plan import Plan


class Markable(Protocol):
    """A lake that records which rows its tables lack."""

    def applied(self) -> Mapping[Life, AppliedState]:
        """Progress of every table of this changefeed, dropped ones included."""

    def mark_incomplete(self, gaps: Mapping[Life, Gap | None]) -> None:
        """Record which rows tables lack (None: none); repeated, it changes nothing."""


def gap_of(table: TableHistory, state: AppliedState | None, ddl: Tso) -> Gap | None:
    """Return the gap of a table as it is in the lake, with the DDL of version `ddl` applied.

    One that a dump brings lacks those of the dump until they are imported.
    """
    brought, through = table.brought, 0 if state is None else state.progress.tso
    if brought is None or not (brought.files or brought.lost or brought.problem):
        return table.gap_at(ddl, through)
    if state is None or state.progress < Progress(brought.base.at, Phase.ROWS):
        return Gap(table.life)
    return table.gap_at(ddl, through)


def contradicted(planned: Plan, applied: Collection[Life]) -> Iterator[Finding]:
    """Yield those of the `applied` tables that people said to be complete, and of which a window proved otherwise."""
    for life, table in planned.history.lives.items():
        if table.missing is not None and table.gap is None and life in applied and table.name is not None:
            missing = table.missing
            yield Finding(
                "missing-rows",
                Severity.WARNING,
                str(table.name),
                "changes came of rows that tables do not have, though somebody said that these tables are complete: "
                "the rows came past the change log, or were there before it. Bring them from a dump or another "
                "snapshot, or take back the statement (setting initial: {complete: [...]}, or cdc-assets release "
                "--complete … --undo).",
                f"{counted(missing.count, 'row')} in {missing.place}, the first at {missing.at}: {missing.key}",
            )


def mark(lake: Markable, planned: Plan) -> Mapping[Life, AppliedState]:
    """Record for every table which rows it lacks now, and return the progress of all tables then."""
    lives, applied = planned.history.lives, lake.applied()
    due = {life: gap_of(lives[life], state, state.ddl) for life, state in applied.items() if life in lives}
    due = {life: gap for life, gap in due.items() if gap != applied[life].gap}
    if due:
        lake.mark_incomplete(due)
        return lake.applied()
    return applied


def mark_before(lake: Markable, planned: Plan, step: ExchangePartition) -> None:
    """Mark a table that gets rows of an incomplete one before it gets them, so that it is never shown as complete."""
    gap = planned.history.lives[step.life].gap_at(step.at)
    if gap is not None:
        lake.mark_incomplete({step.life: gap})
