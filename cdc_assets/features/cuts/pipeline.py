"""Cuts: decided where they are due, and made at the end of a run, or withdrawn where they cannot be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from cdc_assets.features.cuts.planning import blocks, cut_members, cut_position, cut_tables, due_position
from cdc_assets.formats import Wire
from cdc_assets.model.cuts import UNNAMED, Cut, CutOutcome, CutRequest, CutTable, cut_requests
from cdc_assets.model.decisions import Decisions
from cdc_assets.model.progress import AppliedState, Life, State
from cdc_assets.model.tso import Tso, iso_now
from cdc_assets.pipeline.features import RunBegin, RunFeature
from cdc_assets.pipeline.outcome import Outcome, TableOutcome, deficits_at
from cdc_assets.pipeline.pipeline import PipelineLake
from cdc_assets.planning.plan import Plan
from cdc_assets.settings.config import ChangefeedSettings


class LakeCuts(Protocol):
    """The cuts of a lake."""

    def cuts(self) -> Sequence[Cut]:
        """The cuts that exist, by position."""

    def tagged(self, name: str) -> Mapping[Life, tuple[int, Tso]]:
        """The snapshots with the tag of a cut, each with how far it is applied."""

    def make_cut(self, request: CutRequest, tables: Sequence[CutTable]) -> Cut | None:
        """Let a cut exist whose tables have their tags; None where it was withdrawn meanwhile.

        Those that are absent lose them.
        """

    def remove_cut(self, request: CutRequest) -> None:
        """Remove a cut, made or half made: from the list, then its tags."""

    def sweep_cuts(self, before_ms: int) -> None:
        """Remove what the list of cuts has left from before a time, ms since 1970."""


def cuts_of(lake: PipelineLake) -> LakeCuts:
    """Return the cuts of a lake."""
    part: LakeCuts = lake.part("cuts")
    return part


def moments(lake: PipelineLake) -> dict[str, Tso]:
    """Return the positions of a lake's cuts, by name."""
    return {cut.name: cut.at for cut in cuts_of(lake).cuts()}


def plan_cut(
    lake: PipelineLake,
    planned: Plan,
    name: str = "",
    who: str = "",
    *,
    preferred: Tso | None = None,
    whole: bool = False,
) -> CutOutcome:
    """Return a cut at a position that is possible now, `preferred` if that is, and the tables that will not get there.

    One that is to be `whole` is not possible where a table is not exactly its source.
    """
    applied, checkpoint = planned.applied, planned.checkpoint
    earlier = [*moments(lake).values(), *(cut.at for cut in cut_requests(lake.decisions()))]
    at = cut_position(applied, checkpoint, (position for position in earlier if position <= checkpoint), preferred)
    now = iso_now()
    request = CutRequest(name or f"{UNNAMED}{at}", at, who, now, whole=whole)
    lacks = {life: deficits_at(lake, planned, life, at) for life in cut_members(planned.history, at)}
    cut_blocks = blocks(request, planned, applied, lacks)
    return CutOutcome(request, None, tuple(block for block in cut_blocks if not block.waits))


def _waypoints(decided: Decisions, wire: Wire) -> Sequence[CutRequest]:
    """Return the decided cuts that tables are brought to."""
    return [request for request in cut_requests(decided) if wire.has_positions and not request.withdrawn]


def _begin(lake: PipelineLake, changefeed: ChangefeedSettings, planned: Plan) -> RunBegin:
    """Decide the regular cut that is due by the settings."""
    settings = changefeed.cuts
    if settings.every_seconds is None or not changefeed.source_options.wire.has_positions:
        return RunBegin()
    made = [*moments(lake).items(), *((cut.name, cut.at) for cut in cut_requests(lake.decisions()))]
    begun = (life.version for life in (*planned.history.lives, *planned.applied))
    position = due_position(settings.every_seconds, planned.checkpoint, made, begun)
    if position is None:
        return RunBegin()
    cut = plan_cut(lake, planned, "", preferred=position)
    return RunBegin(outcomes=[cut]) if cut.blocked else RunBegin([cut.request])


def _finish(
    lake: PipelineLake, planned: Plan, applied: Mapping[Life, AppliedState], tables: Iterable[TableOutcome]
) -> tuple[CutOutcome, ...]:
    """Make the decided cuts that can be made, and withdraw those that never will; the others wait for the next run.

    `applied` and `tables` are as of now. A crash at any line leaves what the next run finishes.
    """
    cut_outcomes: list[CutOutcome] = []
    outcomes = tuple(tables)
    for request in cut_requests(lake.decisions()):
        if request.withdrawn:
            cuts_of(lake).remove_cut(request)
            continue
        if request.at > planned.checkpoint:
            continue
        stopped = {
            table.life: table.reason
            for table in outcomes
            if table.state is State.HELD and table.stopped_at is not None and table.stopped_at <= request.at
        }
        tagged, members = cuts_of(lake).tagged(request.name), cut_members(planned.history, request.at)
        now = replace(planned, applied=applied)
        lacks = {life: deficits_at(lake, now, life, request.at, stopped) for life in members}
        blocked = blocks(request, now, applied, lacks, tagged)
        if blocked:
            outcome = CutOutcome(request, None, blocked)
            if outcome.is_withdrawn:
                cuts_of(lake).remove_cut(request)
        else:
            outcome = CutOutcome(request, cuts_of(lake).make_cut(request, cut_tables(request, now, tagged, lacks)))
        cut_outcomes.append(outcome)
    return tuple(cut_outcomes)


RUN = RunFeature(waypoints=_waypoints, begin=_begin, finish=_finish)


def cut_outcomes(outcome: Outcome) -> tuple[CutOutcome, ...]:
    """Return the outcomes of the cuts that were decided when a run began, or by it."""
    return tuple(part for part in outcome.parts if isinstance(part, CutOutcome))
