"""Whether a table that is applied to a position is exactly its source there: what it lacks, in one place.

Cuts, comparisons, repairs and extracts ask here. What is read of a lake alone (`as-of`) has the same facts from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from cdc_assets.model.gaps import Deficit, TableCondition
from cdc_assets.model.progress import AppliedState, Life, Phase, Progress
from cdc_assets.model.quarantine import QuarantinedRow
from cdc_assets.model.steps import HoldTable
from cdc_assets.model.tso import Tso
from cdc_assets.planning.plan import Plan


class RecordsAside(Protocol):
    """A lake that keeps records that do not fit."""

    def quarantined(self) -> Sequence[QuarantinedRow]:
        """The quarantined records that were not replayed."""

    def quarantined_counts(self) -> Mapping[Life, int]:
        """The number of those, by table."""


def deficits_at(
    lake: RecordsAside, planned: Plan, life: Life, at: Tso, stopped: Mapping[Life, str] = MappingProxyType({})
) -> tuple[Deficit, ...]:
    """Return why a table of a plan is not exactly its source once it is applied to a position; nothing if it is.

    `stopped` says why a run stopped tables at or below the position, beside the holds of the plan.
    """
    history, state = planned.history.lives.get(life) or planned.sources[life], planned.applied.get(life)
    there = AppliedState(Progress(at, Phase.ROWS), at, None)
    hold = next((step.reason for step in planned.of(life) if isinstance(step, HoldTable) and step.at <= at), "")
    records = lake.quarantined() if lake.quarantined_counts().get(life) else ()
    if life in planned.behind:
        hold = hold or f"it is applied beyond the checkpoint {planned.checkpoint} of the changefeed"
    return TableCondition(
        life=life,
        gap=history.gap_of(there, at),
        base=history.base,
        hold=hold or stopped.get(life, ""),
        aside=[record.earliest for record in records if record.life == life],
        repaired=-1 if state is None else state.repaired,
        since=None if state is None else state.since,
    ).deficits(at)
