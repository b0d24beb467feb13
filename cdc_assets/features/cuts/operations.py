"""Cuts made, listed and removed on a person's or a schedule's request: `cdc-assets cut`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from cdc_assets.errors import BadSettings, InputError
from cdc_assets.features.cuts.operations_request import NewCut
from cdc_assets.features.cuts.pipeline import cut_outcomes, cuts_of, plan_cut
from cdc_assets.features.cuts.planning import cut_members, due_position, expired_cuts
from cdc_assets.model.cuts import Cut, CutRequest, cut_requests
from cdc_assets.model.progress import Life
from cdc_assets.model.reports import Aside, Grid, OperationReport
from cdc_assets.model.tso import Tso, tso_time
from cdc_assets.model.wording import counted
from cdc_assets.operations.requests import OperationRun
from cdc_assets.pipeline.outcome import NO_HOOKS, RunHooks

if TYPE_CHECKING:
    from cdc_assets.model.steps import Step
    from cdc_assets.operations.lake_pipeline import LakePipeline
    from cdc_assets.pipeline.pipeline import Pipeline
    from cdc_assets.planning.plan import Plan


class CutRefused(InputError):
    """Tables are held, incomplete or behind, so no state of all tables at one position can be named."""


_ATTEMPTS = 4
"""Most decisions about one cut, each after a window of another run stepped across the last one."""

_DAY_MS = 86_400_000

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def carry_out(pipeline: LakePipeline, run: OperationRun, request: NewCut) -> Iterator[Cut | CutRequest]:
    """Make the requested cut, or remove it; yield it."""
    if request.remove:
        yield remove_cut(pipeline, request.remove)
    else:
        hooks, who = run.hooks or NO_HOOKS, request.who or run.who
        yield make_cut(pipeline, request.name, who, run.name, whole=request.require_all, hooks=hooks)


def report(feed: str, request: NewCut, parts_done: Sequence[Cut | CutRequest]) -> OperationReport:
    """Return the tables that are in the cut, and those that are not, with reasons."""
    (done,) = parts_done
    if isinstance(done, CutRequest):
        sentence = f"{done.name} of {tso_time(done.at)} is removed."
        return OperationReport({"removed": done.name, "position": done.at}, [sentence])
    heads = ("table", "snapshot", "applied through")
    lines: list[str | Grid] = [Grid(heads, [(table.name, table.snapshot_id, table.applied_ts) for table in done.taken])]
    for table in done.tables:
        if reason := table.why_not or table.lacks:
            sentence = f"{'without' if table.snapshot_id is None else 'not exact'} {table.name}: {reason}"
            lines.append(Aside(sentence) if table.lacks else sentence)
    lines.append(f"{done.name}: {counted(len(done.taken), 'table')} as of {done.at} ({tso_time(done.at)})")
    return OperationReport(cut_json(feed, done), lines, complete=done.accepted)


def cut_json(feed: str, cut: Cut) -> dict[str, Any]:
    """Return a cut with its tables, for programs."""
    tables = [
        {**asdict(table), "name": str(table.name), "life": str(table.life), "kind": table.life.kind or "mirror"}
        for table in cut.tables
    ]
    return {
        "changefeed": feed,
        "name": cut.name,
        "position": cut.at,
        "time": tso_time(cut.at),
        "made": cut.made,
        "exact": cut.exact,
        "tables": tables,
    }


def waiting_cut(pipeline: Pipeline) -> Tso | None:
    """Return the position of a cut that waits for a run: a regular one that is due, or one to be finished or removed.

    None where no cut waits. Nothing is listed.
    """
    settings, wire = pipeline.settings.cuts, pipeline.settings.source_options.wire
    requests, fence = cut_requests(pipeline.lake.decisions()), pipeline.source.fence()
    decided = next((request.at for request in requests if request.withdrawn or request.at <= fence), None)
    if decided is not None or settings.every_seconds is None or not wire.has_positions:
        return decided
    made = [(cut.name, cut.at) for cut in cuts_of(pipeline.lake).cuts()]
    begun = (life.version for life in pipeline.lake.applied())
    return due_position(settings.every_seconds, fence, made, begun)


def make_cut(
    pipeline: Pipeline,
    name: str = "",
    who: str = "",
    run: str = "",
    *,
    whole: bool = False,
    hooks: RunHooks = NO_HOOKS,
) -> Cut:
    """Make a cut of all tables, and return it. Tables are applied as far as its position.

    `hooks` are of the run that applies the tables. Tables that are not exactly their source are absent; with `whole`
    they are refused. Raises BadSettings for a name that is taken, and CutRefused: with nothing left of the cut where it
    is refused, and where tables are behind, the next run makes it.
    """
    if not pipeline.settings.source_options.wire.has_positions:
        raise BadSettings(
            "the rows of this changefeed carry no commit-ts, so its tables have no state at one position. Start the "
            f"changefeed again with {pipeline.settings.source_options.wire.commit_ts_option}, and rebuild them."
        )
    if name and (not _NAME.fullmatch(name) or name.startswith("cut-") or name == "main"):
        raise BadSettings(
            f'"{name}" is no name of a cut; expected up to 64 letters, digits, "_", "." and "-", a letter first. Not '
            '"main", and nothing that begins with "cut-": so are those called that nobody named.'
        )
    requests = cut_requests(pipeline.lake.decisions())
    names = [*(cut.name for cut in cuts_of(pipeline.lake).cuts()), *(request.name for request in requests)]
    if name in names:
        raise BadSettings(
            f"there is a cut {name} already; known are {', '.join(names)}. Choose another name, or remove that one "
            f"first: cdc-assets cut --remove {name}."
        )
    tagged = [life for life, state in pipeline.lake.applied().items() if name in state.tags]
    if name and tagged:
        raise BadSettings(f"{min(tagged)} has a tag {name} that is no cut's. Choose another name.")
    pipeline.land()
    for _ in range(_ATTEMPTS):
        planned = pipeline.planner.plan()[1]
        cut_plan = plan_cut(pipeline.lake, planned, name, who, whole=whole)
        request = cut_plan.request
        if (same_cut := _same(pipeline, planned, request)) is not None:
            return same_cut
        if cut_plan.blocked:
            raise CutRefused(_refused(request, cut_plan.reason))
        pipeline.lake.keep_decision(request)
        outcome = pipeline.apply(run, partial(_through, request.at), hooks)
        made = next((cut for cut in cuts_of(pipeline.lake).cuts() if cut.name == request.name), None)
        if made is not None:
            return made
        pending = next(
            (cut_outcome for cut_outcome in cut_outcomes(outcome) if cut_outcome.request.name == request.name), None
        )
        if pending is not None and not pending.is_withdrawn:
            raise CutRefused(
                f"the cut {request.name} of {tso_time(request.at)} is not made yet: {pending.reason}. It is decided, "
                "and the next run that brings these tables there makes it."
            )
        if pending is not None and any(block.stays for block in pending.blocked):
            raise CutRefused(_refused(request, pending.reason))
    raise CutRefused(f"other runs stepped across the cut {name} again and again. Try again when they are done.")


def _same(pipeline: Pipeline, planned: Plan, request: CutRequest) -> Cut | None:
    """Return a cut that nobody named at the same position, None if there is none.

    Raises BadSettings where it has other tables: two cuts of one name would be two states.
    """
    made = next((cut for cut in cuts_of(pipeline.lake).cuts() if cut.name == request.name), None)
    if made is None:
        return None
    members = cut_members(planned.history, request.at).keys()
    if {table.life for table in made.tables if table.lacks or table.snapshot_id is not None} != members:
        raise BadSettings(
            f"{made.name} is of this position already, and of other tables. Give this one a name of its own: --name."
        )
    return made


def _through(at: Tso, plan: Plan) -> list[Step]:
    return [step for step in plan.steps if step.at <= at]


def _refused(request: CutRequest, reason: str) -> str:
    return (
        f"no cut of {tso_time(request.at)} can be made: {reason}. Nothing is left of it. See the ways out in "
        "`cdc-assets status`, or let those tables be absent: without --require-all."
    )


def remove_cut(pipeline: Pipeline, name: str) -> CutRequest:
    """Remove a cut with its tags; raises BadSettings for a name that no cut has."""
    requests = {cut.name: CutRequest(cut.name, cut.at) for cut in cuts_of(pipeline.lake).cuts()}
    requests |= {request.name: request for request in cut_requests(pipeline.lake.decisions())}
    if name not in requests:
        raise BadSettings(f"there is no cut {name}; known are {', '.join(sorted(requests)) or 'none'}.")
    cuts_of(pipeline.lake).remove_cut(requests[name])
    return requests[name]


def needed(pipeline: LakePipeline, planned: Plan) -> dict[Life, str]:
    """Return the tables whose rows a cut has, with the reason why they stay."""
    return {
        table.life: f"the cut {cut.name} has its rows: remove that first (cdc-assets cut --remove {cut.name})"
        for cut in cuts_of(pipeline.lake).cuts()
        for table in cut.taken
    }


def expire(pipeline: LakePipeline, now_ms: int, dry: bool = False) -> tuple[str, ...]:
    """Remove the cuts beyond those that are kept, and half-removed ones; return their names.

    `now_ms` is the present, ms since 1970. With `dry` nothing is removed.
    """
    lake, settings = pipeline.lake, pipeline.settings
    interval_seconds = settings.cuts.every_seconds
    old = expired_cuts(cuts_of(lake).cuts(), settings.cuts.keep if interval_seconds is not None else None)
    due = {cut_request.name: cut_request for cut_request in cut_requests(lake.decisions()) if cut_request.withdrawn}
    due |= {cut.name: CutRequest(cut.name, cut.at) for cut in old}
    if not dry:
        for request in due.values():
            cuts_of(lake).remove_cut(request)
        days = max(settings.maintenance.snapshot_days, settings.maintenance.orphan_days)
        cuts_of(lake).sweep_cuts(now_ms - int(days * _DAY_MS))
    return tuple(due)
