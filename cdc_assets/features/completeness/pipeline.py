"""Incomplete tables, recorded in the lake; people's statements that tables are complete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from cdc_assets.model.findings import Finding, Severity
from cdc_assets.model.progress import AppliedState, Gap, Life
from cdc_assets.model.steps import ExchangePartition
from cdc_assets.model.wording import counted
from cdc_assets.pipeline.features import RunFeature
from cdc_assets.pipeline.pipeline import PipelineLake
from cdc_assets.planning.plan import Plan


class GapMarks(Protocol):
    """The part of a lake that records which rows its tables lack."""

    def mark_incomplete(self, gaps: Mapping[Life, Gap | None]) -> None:
        """Record which rows tables lack (None: none); repeated, it changes nothing."""


def _contradicted(planned: Plan, applied: Mapping[Life, AppliedState]) -> Iterator[Finding]:
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


def mark(lake: PipelineLake, planned: Plan, applied: Mapping[Life, AppliedState]) -> Mapping[Life, AppliedState]:
    """Record for every table which rows it lacks now, and return the progress of all tables then."""
    lives = planned.history.lives
    due = {life: lives[life].gap_of(state, state.ddl) for life, state in applied.items() if life in lives}
    due |= {life: gap for life, gap in planned.lacking.items() if life in applied}
    return mark_gaps(lake, due, applied)


def mark_gaps(
    lake: PipelineLake, gaps: Mapping[Life, Gap | None], applied: Mapping[Life, AppliedState]
) -> Mapping[Life, AppliedState]:
    """Record these gaps of tables that are `applied` where others are recorded, and return the progress of all then."""
    due = {life: gap for life, gap in gaps.items() if gap != applied[life].gap}
    if due:
        _marks(lake).mark_incomplete(due)
        return lake.applied()
    return applied


def _mark_before(lake: PipelineLake, planned: Plan, step: ExchangePartition) -> None:
    """Mark a table that gets rows of an incomplete one before it gets them, so that it is never shown as complete."""
    if (gap := planned.history.lives[step.life].gap_at(step.at)) is not None:
        _marks(lake).mark_incomplete({step.life: gap})


def _marks(lake: PipelineLake) -> GapMarks:
    marks: GapMarks = lake.part("completeness")
    return marks


RUN = RunFeature(anew=True, before={ExchangePartition: _mark_before}, settle=mark, findings=_contradicted)
