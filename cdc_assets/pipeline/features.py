"""Work of features in a run beside the steps of its plan. The pipeline calls them without knowing which there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cdc_assets.formats import Wire
from cdc_assets.model.decisions import Decisions, KeptDecision
from cdc_assets.model.features import parts
from cdc_assets.model.findings import Finding
from cdc_assets.model.progress import AppliedState, Life
from cdc_assets.model.steps import Step, Waypoint

if TYPE_CHECKING:
    from cdc_assets.model.table_history import TableHistory
    from cdc_assets.pipeline.outcome import OutcomePart, TableOutcome
    from cdc_assets.planning.plan import Plan
    from cdc_assets.settings.config import ChangefeedSettings


@dataclass(frozen=True, slots=True)
class RunBegin:
    """A feature's part in the begin of a run: `decisions` by which it plans again, and the outcome of others."""

    decisions: Sequence[KeptDecision] = ()
    outcomes: Sequence[OutcomePart] = ()


Applied = Mapping[Life, AppliedState]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFeature:
    """The interface of a feature to a run: `RUN` in its module `pipeline`. The functions get the lake of the run.

    Attributes:
        anew: Whether it has a part in runs that build tables anew, too.
        waypoints: Returns the positions at which it adds steps, by people's decisions.
        begin: Returns the decisions by which a run plans again, from its first plan.
        before: Writes to the lake before a step that changes tables, by the type of the step.
        settle: Writes to the lake once all steps are done; returns how far the tables are then.
        findings: Yields the warnings about the tables as they are.
        precondition: Returns what of people's decisions a new table is planned with: rows that were planned with
            another one are refused.
        hides: Returns whether values of a table's rows may not be shown, by people's decisions, None where nobody
            knows them.
        finish: Returns the outcome of its decisions, once those of all tables are known. The next run finishes what a
            crash at any line leaves.
    """

    anew: bool = False
    waypoints: Callable[[Decisions, Wire], Sequence[Waypoint]] = lambda decided, wire: ()
    begin: Callable[[Any, ChangefeedSettings, Plan], RunBegin] = lambda lake, settings, planned: RunBegin()
    before: Mapping[type[Step], Callable[[Any, Plan, Any], object]] = field(default_factory=dict)
    settle: Callable[[Any, Plan, Applied], Applied] = lambda lake, planned, applied: applied
    findings: Callable[[Plan, Applied], Iterable[Finding]] = lambda planned, applied: ()
    precondition: Callable[[Decisions], object] | None = None
    hides: Callable[[Decisions | None, TableHistory], bool] = lambda decided, table: False
    finish: Callable[[Any, Plan, Applied, Iterable[TableOutcome]], Sequence[OutcomePart]] = (
        lambda lake, planned, applied, tables: ()
    )


def run_features(*, anew: bool) -> tuple[RunFeature, ...]:
    """Return the features' work in a run, of one that builds tables anew if it is `anew`."""
    features: list[RunFeature] = [module.RUN for _, module in parts("pipeline")]
    return tuple(feature for feature in features if feature.anew or not anew)


def hiding(decided: Decisions | None) -> Callable[[TableHistory], bool]:
    """Return the test whether values of a table's rows may not be shown, by people's decisions."""
    features = run_features(anew=False)
    return lambda table: any(feature.hides(decided, table) for feature in features)
