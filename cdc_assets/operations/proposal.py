"""Decisions before they are recorded: the plan that would follow from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_assets.model.decisions import KeptDecision
from cdc_assets.model.releases import Release
from cdc_assets.model.schema_changes import DeleteRows
from cdc_assets.model.steps import ChangeTable

if TYPE_CHECKING:
    from cdc_assets.model.splits import Listing
    from cdc_assets.pipeline.pipeline import Pipeline
    from cdc_assets.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class Proposal:
    """Decisions that are not recorded yet, and the plan that follows from them.

    Attributes:
        decisions: The decisions to record, or with `withdrawn` those to take back.
        plan: The plan with them.
    """

    decisions: tuple[KeptDecision, ...]
    plan: Plan
    withdrawn: bool = False

    def record(self, pipeline: Pipeline) -> Plan:
        """Record the decisions in the lake, and return the plan that follows."""
        for decision in self.decisions:
            (pipeline.lake.remove_decision if self.withdrawn else pipeline.lake.keep_decision)(decision)
        return self.plan

    @property
    def deletes_rows(self) -> bool:
        """Return whether a DDL that these decisions release deletes rows."""
        released = {(decision.life, decision.version) for decision in self.decisions if isinstance(decision, Release)}
        return not self.withdrawn and any(
            isinstance(step, ChangeTable) and any(isinstance(change, DeleteRows) for change in step.changes)
            for step in self.plan.steps
            if (step.life.source, step.at) in released
        )


def propose(
    pipeline: Pipeline, listing: Listing, decisions: Iterable[KeptDecision], *, withdrawn: bool = False
) -> Proposal:
    """Return decisions, or with `withdrawn` the end of them, with the plan that would follow. Nothing is recorded."""
    given = tuple(decisions)
    decided = pipeline.lake.decisions().changed(given, withdrawn=withdrawn)
    return Proposal(given, pipeline.planner.plan(listing, decided)[1], withdrawn)
