"""What features do in a run beside the steps of its plan. The pipeline calls them without knowing which there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc_assets.formats import Wire
from cdc_assets.model.decisions import Decisions, KeptDecision
from cdc_assets.model.features import FEATURES, module_of
from cdc_assets.model.progress import AppliedState, Life
from cdc_assets.model.steps import Waypoint

if TYPE_CHECKING:
    from cdc_assets.pipeline.outcome import OutcomePart, TableOutcome
    from cdc_assets.planning.plan import Plan
    from cdc_assets.settings.config import ChangefeedSettings


@dataclass(frozen=True, slots=True)
class RunBegin:
    """What a feature wants of a run that begins: `decisions` by which it plans again, and what came of others."""

    decisions: Sequence[KeptDecision] = ()
    outcomes: Sequence[OutcomePart] = ()


@dataclass(frozen=True, slots=True)
class RunFeature:
    """What a feature does in a run: `RUN` in its module of this folder. Each function gets the lake of the run.

    Attributes:
        waypoints: The positions at which it adds steps, by people's decisions.
        begin: What is to be decided once a run is planned.
        finish: What came of it, when all steps are done and how far the tables are, and their outcomes, are known. A
            crash at any line leaves what the next run finishes.
    """

    waypoints: Callable[[Decisions, Wire], Sequence[Waypoint]]
    begin: Callable[[Any, ChangefeedSettings, Plan], RunBegin]
    finish: Callable[[Any, Plan, Mapping[Life, AppliedState], Iterable[TableOutcome]], Sequence[OutcomePart]]


def run_features() -> tuple[RunFeature, ...]:
    """Return what features do in a run."""
    return tuple(module_of("pipeline", name).RUN for name in FEATURES)
