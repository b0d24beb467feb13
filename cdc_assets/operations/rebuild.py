"""Tables rebuilt from the whole recorded history, aside, and swapped in one commit each.

    refuse      a table that would be incomplete, files that are missing, holds, records that do not fit
    build       the pipeline, unchanged, into aside tables: plan, DDL, exchanges, renames, rows
    swap        the live table gets rows, columns, name and label of the aside table; readers see the old or the new
    clean up    the aside tables are removed, with their files

A writer that commits to a live table meanwhile wins: the aside table is applied as far and swapped then, and from here
on later windows of that table wait, or a writer that never rests would win again and again. Killed at any line, a
rebuild leaves the live tables in the old or the new state, and aside tables with which the next rebuild of the same
tables with the same settings continues; those of an abandoned rebuild are removed once stale.
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from cdc_assets.errors import CdcError, LakeUnavailable, RebuildRefused, TableHeld, TableMoved
from cdc_assets.features.completeness.pipeline import mark, mark_gaps
from cdc_assets.features.verification.operations_repair import REBUILD, repairs_since_rebuild
from cdc_assets.ledger import Ledger
from cdc_assets.model.gaps import gap_text
from cdc_assets.model.kinds import NOT_ASKED_FOR
from cdc_assets.model.landed import Landed
from cdc_assets.model.ledger_entries import FileEntry
from cdc_assets.model.progress import AppliedState, Base, Gap, Life, State
from cdc_assets.model.reports import FileStats, Grid, OperationReport, StepResult
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import LateFile, Listing
from cdc_assets.model.steps import ApplyRows, HoldTable, Step
from cdc_assets.model.tickets import Ticket
from cdc_assets.model.tso import Tso, tso_now
from cdc_assets.model.wording import counted, first_of
from cdc_assets.operations.named import is_called, not_in_plan
from cdc_assets.operations.requests import OperationRun, RebuildRequest
from cdc_assets.operations.tickets import Tickets, is_open, kept_alive
from cdc_assets.pipeline.missing_files import expired_files, missing_files
from cdc_assets.pipeline.pipeline import Pipeline, PipelineLake, gone_file
from cdc_assets.pipeline.replay import ReplayRequest, plan_replay
from cdc_assets.planning.plan import Plan, late_gaps
from cdc_assets.planning.run_batches import families
from cdc_assets.report.plan_text import log_steps
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources import Source

if TYPE_CHECKING:
    from cdc_assets.operations.lake_pipeline import LakePipeline

_SWAPS = 6
"""Most swaps that the rebuild tries for a table that a writer keeps moving, before it gives up."""

_RESUMABLE_SECONDS = 24 * 3600
"""Aside tables that are older, or from the future of a clock that was wrong, are built again: the history may have been
repaired since."""


AsideT = TypeVar("AsideT", bound=PipelineLake)
"""The kind of lake in which tables are built aside."""


class Rebuilder(Tickets, Protocol[AsideT]):
    """The part of a lake that rebuilding needs. The end of a ticket is that of the rebuild's tables, too."""

    def end_stale(self) -> int:
        """Remove the tables of dead rebuilds."""

    def removals(self) -> Sequence[Ticket]:
        """The runs that take rows out of live tables for good, and did not end."""

    def hold_back(self, token: str, lives: Iterable[Life]) -> None:
        """Let windows of these live tables, and of no others, wait until they are swapped, or the rebuild is dead."""

    def begin(self, token: str) -> AsideT:
        """The lake in which the rebuild's tables are created."""

    def swapped(self, life: Life, token: str) -> StepResult | None:
        """The result of the rebuild's commit of that table, None if it was not made yet."""

    def swap(self, aside: AsideT, life: Life, token: str, through: Tso = 0) -> StepResult:
        """Replace the live table by the aside table in one commit; raises TableMoved if the live one is ahead.

        The aside table lacks nothing through the TSO `through`.
        """

    def close_records(self, aside: AsideT, life: Life) -> None:
        """Close the quarantined records of a dropped table: those that exchanged rows with it have them now."""


@dataclass(frozen=True, slots=True)
class SwappedTable:
    """One swapped table. `through` is the TSO at or below which it is complete now."""

    life: Life
    name: TableId | None
    through: Tso
    result: StepResult


# --- which tables -----------------------------------------------------------------------------------------------------


def _named(planned: Plan, applied: Mapping[Life, AppliedState], tables: Sequence[str]) -> list[Life]:
    """The tables requested by present name or identity; none means all that have a name.

    A table that has none any more may be called by any that it had, first one whose DROP is not applied yet.
    """
    lives = planned.history.lives
    if not tables:
        return [life for life in lives if lives[life].name is not None]
    chosen_lives: list[Life] = []
    for table in tables:
        present = [life for life in lives if is_called(table, (lives[life].name,))]
        named = present or [life for life in lives if is_called(table, (life,))]
        there = [life for life in lives if life in applied and not applied[life].is_purged]
        former = [life for life in there if is_called(table, (name for name, _, _ in lives[life].names))]
        named = named or [life for life in former if applied[life].name is not None] or former
        if not named:
            gone = next((life for life in applied if is_called(table, (life, applied[life].name))), None)
            if gone is not None and gone.source in planned.sources:
                raise RebuildRefused(f"{table} cannot be rebuilt: {NOT_ASKED_FOR}", table=table)
            if gone is not None:
                raise RebuildRefused(
                    f"{table} cannot be rebuilt: no schema file of {gone} is in the bucket. Restore them.", table=table
                )
            raise not_in_plan(table, planned, lives.values())
        chosen_lives += named
    return list(dict.fromkeys(chosen_lives))


def _missing_before(planned: Plan, life: Life, applied: Mapping[Life, AppliedState]) -> Life | None:
    """Return a table that had a name of a table before it, if neither is in the lake; None if there is none."""
    lives = planned.history.lives
    if life in applied:
        return None
    names = {name.folded: since for name, since, _ in lives[life].names}
    return next(
        (
            other
            for other, table in lives.items()
            if other not in applied
            and any(name.folded in names and since < names[name.folded] for name, since, _ in table.names)
        ),
        None,
    )


def _with_partners(planned: Plan, lives: Iterable[Life]) -> list[Life]:
    """The tables, all with which they exchanged partitions, and so rows, and the mirrors that history tables ask."""
    partners: list[Life] = []
    border = list(lives)
    while border:
        life = border.pop(0)
        if life in partners:
            continue
        partners.append(life)
        lives = planned.history.lives
        border += [other for other in (life.source, *(other for _, other in lives[life].exchanges)) if other in lives]
        if not life.kind:
            border += [
                other
                for other, table in lives.items()
                if not other.kind and any(partner == life for _, partner in table.exchanges)
            ]
    return partners


# --- rebuilding -------------------------------------------------------------------------------------------------------


@dataclass
class _Rebuild(Generic[AsideT]):
    """A running rebuild. `forgotten` says through which position targets had rows of keys that nothing keeps out."""

    live: Pipeline
    rebuilder: Rebuilder[AsideT]
    ticket: Ticket
    run: str
    targets: tuple[Life, ...]
    needed: frozenset[Life]
    around: frozenset[Life]
    bases: Mapping[Life, Base | None] = field(default_factory=dict)
    forgotten: Mapping[Life, Tso] = field(default_factory=dict)
    done: list[SwappedTable] = field(default_factory=list)

    def select(self, planned: Plan) -> list[Step]:
        """All steps of the needed tables; of those that only had their names, the DDL."""
        return [
            step
            for step in planned.steps
            if step.life in self.needed or (step.life in self.around and not isinstance(step, ApplyRows))
        ]


def incomplete_in_dumps(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the tables that stand incomplete and that a dump has: a rebuild brings their rows."""
    _, planned = pipeline.planner.plan()
    return tuple(str(life) for life in sorted(planned.history.offered) if _lacks_rows(planned, life, planned.applied))


def carry_out(
    pipeline: LakePipeline, run: OperationRun, request: RebuildRequest
) -> Iterator[SwappedTable | TargetTable]:
    """Rebuild the requested tables; yield each that was swapped, in a dry run each that would be."""
    tables = (incomplete_in_dumps(pipeline) or None) if request.incomplete else request.tables
    if tables is None:
        run.say("no incomplete table is in a dump: nothing is to be imported")
    elif request.dry_run:
        yield from rebuild_targets(pipeline, tables)
    else:
        from cdc_assets.lake.swap import Rebuilds

        def consent(losses: str) -> None:
            run.consent(f"{losses}\nRebuild all the same?")

        yield from rebuild(pipeline, Rebuilds(pipeline.lake), tables, run.name, run.say, consent)


def report(feed: str, request: RebuildRequest, parts_done: Sequence[SwappedTable | TargetTable]) -> OperationReport:
    """Return the tables that were swapped, or would be."""
    swapped = [table for table in parts_done if isinstance(table, SwappedTable)]
    targets = [table for table in parts_done if isinstance(table, TargetTable)]
    if request.dry_run:
        names = [str(target.name or "dropped") for target in targets]
        rows = [(t.life, name, t.steps, f"{t.file_bytes:,}") for t, name in zip(targets, names, strict=True)]
        return OperationReport(
            [
                {"table": str(t.life), "name": name, "steps": t.steps, "file_bytes": t.file_bytes, "loss": t.loss}
                for t, name in zip(targets, names, strict=True)
            ],
            [
                Grid(("table", "name", "steps", "changed bytes"), rows),
                *(f"cannot be undone: {target.life}: {target.loss}" for target in targets if target.loss),
                f"{counted(len(targets), 'table')} would be rebuilt; nothing was changed.",
            ],
        )
    heads = ("table", "name", "through", "swap_seconds")
    done = [(str(table.life), str(table.name or "dropped"), table.through, table.result.seconds) for table in swapped]
    grid = Grid(heads, [(*row[:3], f"{row[3]:.2f}") for row in done])
    return OperationReport(
        [dict(zip(heads, row, strict=True)) for row in done], [grid] if done or not request.incomplete else []
    )


def _lacks_rows(planned: Plan, life: Life, applied: Mapping[Life, AppliedState]) -> bool:
    """Return whether a table lacks rows, as it stands or after all that is due: a later TRUNCATE may not be applied."""
    return planned.history.lives[life].gap is not None or (life in applied and applied[life].gap is not None)


def rebuild(
    pipeline: Pipeline,
    rebuilder: Rebuilder[AsideT],
    tables: Sequence[str] = (),
    run: str = "",
    say: Callable[[str], object] = lambda _: None,
    consent: Callable[[str], object] = lambda _: None,
) -> tuple[SwappedTable, ...]:
    """Build tables aside from the whole history and swap each in one commit; none named means all.

    `consent` is called with what a rebuild cannot undo, if there is any, before anything is done; it may raise. Tables
    that exchanged partitions are rebuilt together, and so are those that the same late rows of a topic hold. Raises
    RebuildRefused, with every live table as it was, when there is a reason against it; TableMoved if a writer kept
    moving a table (those swapped before stay swapped); BadSettings for an unknown table.
    """
    chosen = _choose(pipeline, tables)
    losses = {life: loss for life in chosen.targets if (loss := _loss(pipeline, chosen, life))}
    if losses:
        consent("\n".join(f"{life}: {loss}" for life, loss in losses.items()))
    ticket = _ticket(pipeline, rebuilder, chosen.targets, chosen.bases, run)
    rebuilder.end_stale()
    family, needed = families(chosen.planned.history), frozenset(chosen.needed)
    around = frozenset(relative for life in needed for relative in family[life] if not relative.kind)
    states = {life: chosen.applied[life] for life in chosen.targets if life in chosen.applied}
    forgotten = {life: state.forgotten for life, state in states.items() if state.forgotten >= 0}
    work = _Rebuild(pipeline, rebuilder, ticket, run, chosen.targets, needed, around, chosen.bases, forgotten)
    say(f"rebuilding {counted(len(work.targets), 'table')} aside, as {work.ticket.token}")
    for life, loss in losses.items():
        say(f"{life}: {loss}")
    with _ended(rebuilder, work.ticket), kept_alive(rebuilder, work.ticket):
        # A run that forgets rows writes its own ticket before it looks for this one, which is written by now: of two
        # that begin at once, one sees the other.
        for ticket in rebuilder.removals():
            if ticket.runs():
                raise RebuildRefused(
                    f"a run that began at {ticket.since} forgets rows of {ticket.table or 'a table'}, and a rebuild "
                    "beside it would bring them back. Nothing was changed. Try again when that run has ended; if it "
                    "was killed, run it again."
                )
        # Late rows are late no more once one table has them: those that lack them say so from here on.
        mark_gaps(pipeline.lake, chosen.lacking, chosen.applied)
        _run(work, say)
        _release_late(pipeline, chosen)
        pipeline.lake.apply_renames()
    built = {life: state for life, state in pipeline.lake.applied().items() if life in chosen.targets}
    mark(pipeline.lake, chosen.planned, built)
    pipeline.record_status(run)
    return tuple(work.done)


def _release_late(pipeline: Pipeline, chosen: _Choice) -> None:
    """Let late rows of topics hold no table any more where all that they hold are built with them by now."""
    if pipeline.landing is None or chosen.landed is None:
        return
    from cdc_assets.landing.decisions import DecidedBy, rebuilt

    late = [
        event
        for event in chosen.landed.open_late
        if _held_by(LateFile("", event.position + 1, table=event.table), chosen.planned, chosen.applied)
        <= set(chosen.targets)
    ]
    if late:
        rebuilt(pipeline.landing, late, chosen.landed, DecidedBy.now())


def _held_by(late: LateFile, planned: Plan, applied: Mapping[Life, AppliedState]) -> set[Life]:
    """Return the tables of the lake that rows hold which came too late.

    Of a topic these are all that have the name of the rows at their position or later: which of them the rows are of is
    not kept. A dropped table is one of them, for a RECOVER may bring it back, and so is a frozen one that has the rows'
    position.
    """
    lives = planned.history.lives.items()
    return {
        life
        for life, table in lives
        if life in applied and not applied[life].is_purged and late.concern(life, table.names_after(late.at))
    }


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A table that a rebuild would build: its name, if it has one, the steps of its history, bytes of their input.

    `loss` says what the rebuild would change that cannot be undone, "" for nothing.
    """

    life: Life
    name: TableId | None
    steps: int
    file_bytes: int
    loss: str = ""


def rebuild_targets(pipeline: Pipeline, tables: Sequence[str] = ()) -> tuple[TargetTable, ...]:
    """Return the tables that `rebuild` of these would build; nothing is changed.

    Raises RebuildRefused for a reason against it that is known beforehand, BadSettings for an unknown table.
    """
    chosen = _choose(pipeline, tables)
    lives = chosen.planned.history.lives
    return tuple(
        TargetTable(
            life,
            lives[life].name,
            len(steps := chosen.planned.of(life)),
            sum(file.size for step in steps if isinstance(step, ApplyRows) for file in step.files),
            _loss(pipeline, chosen, life),
        )
        for life in chosen.targets
    )


@dataclass(frozen=True, slots=True)
class _Choice:
    """Tables to rebuild (`targets`), and those that they `need`, by a plan from nothing and its `bases`.

    `lacking` are the gaps of tables that late rows hold or that stand still without them, before anything is built.
    """

    planned: Plan
    applied: Mapping[Life, AppliedState]
    bases: Mapping[Life, Base | None]
    targets: tuple[Life, ...]
    needed: Sequence[Life]
    landed: Landed | None
    lacking: Mapping[Life, Gap]


def _choose(pipeline: Pipeline, tables: Sequence[str]) -> _Choice:
    """Choose the tables of a rebuild, unless there is a reason against it, which is raised as RebuildRefused."""
    landed = None if pipeline.landing is None else pipeline.landing.landed()
    listing, present = pipeline.planner.plan(whole=True)
    applied = pipeline.lake.applied()
    bases = _bases(present, applied, tables)
    frozen_tables = frozenset(life for late in listing.late.values() for life in _held_by(late, present, applied))
    request = ReplayRequest(
        listing, bases, fuse=True, hold_expired=True, renames=_renames(applied), frozen_tables=frozen_tables
    )
    planned = plan_replay(pipeline, request)
    requested_lives = _named(planned, applied, tables)
    # The feed does not have what a repair brought: where one of the tables of a source had a repair, a table that alone
    # is built from the feed would not be what the others are.
    repaired = {life.source for life, state in applied.items() if state.repaired >= 0}
    repaired &= {life.source for life in requested_lives}
    others = (life for life in planned.history.lives if life in applied and life.source in repaired)
    requested_lives = list(dict.fromkeys((*requested_lives, *others)))
    held_sets = [_held_by(late, planned, applied) for late in listing.late.values()]
    together = {life for held in held_sets if held.intersection(requested_lives) for life in held}
    requested_lives += sorted(together.difference(requested_lives))
    needed = _with_partners(planned, requested_lives)
    early = {life: other for life in needed if (other := _missing_before(planned, life, applied)) is not None}
    for life, other in early.items() if tables else ():
        if life in requested_lives:
            raise RebuildRefused(
                f"{life} is not in the lake yet, and {other}, which had a name of it before, is not either: it would "
                "find its name taken. Apply the changefeed first.",
                table=str(life),
            )
    lives, beside = planned.history.lives, {life.source for life in requested_lives if life.kind} - set(requested_lives)
    named = (
        life for life in needed if life in requested_lives or (lives[life].name is not None and life not in beside)
    )
    targets = tuple(life for life in named if life not in early)
    feed, ledger = pipeline.settings.name, pipeline.ledger
    schema_files = sorted({path for path, _, _ in ledger.schema_files(feed)})
    seen = EarlierRuns(ledger.files(feed), schema_files, applied)
    days = pipeline.settings.source_options.retention_days
    sentences = refusals(pipeline.source, listing, planned, needed, seen, days)
    if sentences:
        reasons = "\n".join(f"- {sentence}" for sentence in dict.fromkeys(sentences))
        names = tuple(map(str, needed))
        raise RebuildRefused(
            f"{first_of(names, 'table', 5)} cannot be rebuilt; nothing was changed:\n{reasons}", tables=names
        )
    held = frozenset().union(*held_sets).intersection(targets)
    lacking = late_gaps((*present.idle, *held), present, applied, listing.late.values())
    return _Choice(planned, applied, bases, targets, needed, landed, lacking)


def _renames(applied: Mapping[Life, AppliedState]) -> dict[Life, Tso | None]:
    """Return the RENAMEs at which the history tables of the lake begin, None for those that begin with their source.

    One that begins later, because input was gone, begins by the rules when it is built anew.
    """
    begun = ((life, state) for life, state in applied.items() if life.kind)
    return {life: state.begins for life, state in begun if state.since is None or state.begins is not None}


def _loss(pipeline: Pipeline, chosen: _Choice, life: Life) -> str:
    """Return the effect of a table's rebuild that cannot be undone, "" for none."""
    losses = []
    family = [state for other, state in chosen.applied.items() if other.source == life.source]
    if life in chosen.applied and (through := max(state.forgotten for state in family)) >= 0:
        losses.append(
            f"rows of keys that were forgotten, through {through}, come back, as far as the input has them and no "
            "decision keeps them out. Forget them again afterwards."
        )
    if repairs := repairs_since_rebuild(pipeline.ledger, pipeline.settings.name, life, tso_now()):
        losses.append(
            f"{counted(len(repairs), 'repair')} of it would be lost: {', '.join(repairs)}. Repair it again afterwards."
        )
    return " ".join(losses)


@contextmanager
def _ended(rebuilder: Tickets, ticket: Ticket) -> Iterator[None]:
    """End a rebuild with its work or its refusal. Any other stop leaves the ticket: the next run continues."""
    try:
        yield
    except RebuildRefused:
        rebuilder.end(ticket.token)
        raise
    except TableHeld as error:
        rebuilder.end(ticket.token)
        raise RebuildRefused(error.message, **error.where) from error
    except LakeUnavailable as error:
        if is_open(rebuilder, ticket):
            raise
        raise TableMoved(
            f"another run of the same rebuild ended it and removed its tables ({error}). There is nothing left to do."
        ) from error
    rebuilder.end(ticket.token)


def _bases(present: Plan, applied: Mapping[Life, AppliedState], tables: Sequence[str]) -> dict[Life, Base | None]:
    """The dump on which to base each table of the source: its own, or, if requested, one with the rows that it lacks.

    Its own is that of its mirror, or of a history table that is named.
    """
    lives = present.history.lives

    def weight(life: Life) -> tuple[bool, bool]:
        names = (life, lives[life].name) if life in lives else (life,)
        return any(is_called(text, names) for text in tables), not life.kind

    bases = dict[Life, Base | None]()
    for life in sorted(applied, key=weight):
        state = applied[life]
        bases[life.source] = lives[life].base if state.awaits_rows and life in lives else state.base
    for life, base in present.history.offered.items():
        table = present.history.lives[life]
        named = not tables or any(is_called(text, (life, *(name for name, _, _ in table.names))) for text in tables)
        own = bases.get(life)
        if named and _lacks_rows(present, life, applied) and (own is None or own.at < base.at):
            bases[life] = base
    return bases


def _ticket(
    pipeline: Pipeline, rebuilder: Tickets, targets: Sequence[Life], bases: Mapping[Life, Base | None], run: str
) -> Ticket:
    """Continue the same rebuild of a dead run, or begin one."""
    rules = pipeline.planner.rules(pipeline.lake.decisions())
    decided = (*rules.ddl.releases.values(), *rules.recipes.changes, *rules.recipes.kept_out)
    plan = _fingerprint(pipeline.settings, targets, decided, bases)
    now = time.time()
    for ticket in rebuilder.tickets():
        if ticket.plan == plan and 0 <= now - ticket.begun < _RESUMABLE_SECONDS:
            rebuilder.touch(ticket)
            return ticket
    ticket = Ticket(uuid.uuid4().hex[:12], plan, run, now, now)
    rebuilder.touch(ticket)
    return ticket


def _fingerprint(
    settings: ChangefeedSettings,
    targets: Sequence[Life],
    decided: Iterable[object],
    bases: Mapping[Life, Base | None],
) -> str:
    """A digest of what is rebuilt, and of everything except the files that decides the result."""
    plan = {
        "tables": sorted(map(str, targets)),
        "from": settings.uri,
        "options": repr(settings.source_options),
        "keys": settings.keys,
        "policies": settings.policies,
        "new_collations": settings.new_collations is not False,
        "namespace": settings.namespace,
        "decided": sorted(map(repr, decided)),
        "initial": repr([bases.get(life) for life in sorted(targets)]),
    }
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()


class _Notes(Ledger):
    """Statistics of files read for aside tables, added to the live ledger with the swap."""

    def __init__(self) -> None:
        super().__init__("sqlite://")
        self.read: dict[str, dict[str, FileStats]] = {}

    def record_files(self, changefeed: str, life: Life, files: Iterable[FileStats], *more: Any, **named: Any) -> None:
        known_files = tuple(files)
        self.read.setdefault(str(life), {}).update({stats.path: stats for stats in known_files})
        super().record_files(changefeed, life, known_files, *more, **named)


def _run(work: _Rebuild[AsideT], say: Callable[[str], object]) -> None:
    lake = work.rebuilder.begin(work.ticket.token)
    settings = work.live.settings.model_copy(update={"name": f"{work.live.settings.name}~{work.ticket.token}"})
    settings = settings.model_copy(update={"quarantine": False})
    notes = _Notes()
    renames, frozen_tables = _renames(work.live.lake.applied()), frozenset(work.targets)
    request = replace(work.live.planner.request, bases=work.bases, renames=renames, frozen_tables=frozen_tables)
    aside = Pipeline(settings, work.live.source, lake, notes, log_steps(say), request)
    work.rebuilder.hold_back(work.ticket.token, ())
    try:
        for attempt in range(_SWAPS):
            outcome = aside.apply(work.run, work.select)
            stopped = [table for table in outcome.tables if table.life in work.needed and table.state.stopped]
            for table in stopped:
                path = gone_file(table.error)
                if path and path not in work.live.ledger.file_stats(work.live.settings.name):
                    work.live.ledger.record_unread(work.live.settings.name, table.life, path, work.run)
            for table in stopped:
                if table.state is State.FAILED and table.error is not None:
                    raise table.error
            if stopped:
                reasons = "\n".join(f"- {table.life}: {table.reason}" for table in stopped)
                raise RebuildRefused(
                    "the aside tables could not be applied to the checkpoint; the live tables are as they "
                    f"were:\n{reasons}"
                )
            moved = _swap_all(work, lake, notes, say, outcome.checkpoint)
            if moved is None:
                for life in sorted(work.needed.difference(work.targets)):
                    work.rebuilder.close_records(lake, life)
                return
            if attempt == _SWAPS - 1:
                raise moved
            done = {swapped_table.life for swapped_table in work.done}
            work.rebuilder.hold_back(work.ticket.token, [life for life in work.targets if life not in done])
            time.sleep(0.1 * 2**attempt)
    finally:
        with suppress(CdcError):  # a rebuild that is not continued would keep them waiting as if it ran
            work.rebuilder.hold_back(work.ticket.token, ())
        notes.close()
        lake.close()


def _swap_all(
    work: _Rebuild[AsideT], lake: AsideT, notes: _Notes, say: Callable[[str], object], through: Tso
) -> TableMoved | None:
    """Swap every table that was not; return the error of one that was moved by another writer.

    All that there is through the TSO `through` is applied to the aside tables.
    """
    done = {swapped_table.life for swapped_table in work.done}
    built, live = lake.applied(), work.live.lake.applied()
    moved: TableMoved | None = None
    # Tables that do not exist yet come last: what exchanges rows with them is past the exchange then.
    for life in sorted(work.targets, key=lambda target: target not in live):
        if life in done or life not in built or (life not in live and built[life].name is None):
            continue
        try:
            result = work.rebuilder.swapped(life, work.ticket.token)
            if result is None:
                result = work.rebuilder.swap(lake, life, work.ticket.token, through)
        except TableMoved as error:
            say(f"{life} was moved by another writer: {error}")
            moved = error
            continue
        work.done.append(SwappedTable(life, built[life].name, built[life].progress.tso, result))
        lost = _record(work, life, built[life], result, notes)
        say(f"{life} is swapped in through {through}{lost}")
    return moved


def _record(work: _Rebuild[AsideT], life: Life, state: AppliedState, result: StepResult, notes: _Notes) -> str:
    """Journal the swap under the time at which the rebuild began, with the files read for it; return what it lost."""
    name, ledger = work.live.settings.name, work.live.ledger
    moment = int(work.ticket.begun * 1000) << 18
    lost = repairs_since_rebuild(ledger, name, life, moment)
    text = f", without {counted(len(lost), 'repair')} of before: {', '.join(lost)}" if lost else ""
    if life in work.forgotten:
        text += f", with rows of forgotten keys through {work.forgotten[life]}, as far as the input has them"
    query = f"rebuilt from its history through {state.progress.tso}{text}"
    work.live.journal.note(life, state.name or life.born_as, REBUILD, query, work.run, result, moment)
    ledger.record_files(name, life, notes.read.get(str(life), {}).values(), work.run, result.snapshot_after)
    ledger.remove_accounts(name, life)
    ledger.remove_findings(name, state.name or life.born_as)
    return text


# --- why a table cannot be rebuilt from the files that there are ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """Results of earlier runs: the ledger's files, the progress of live tables."""

    entries: Collection[FileEntry] = ()
    schema_files: Collection[str] = ()
    applied: Mapping[Life, AppliedState] = field(default_factory=dict)


def refusals(
    source: Source, listing: Listing, planned: Plan, lives: Iterable[Life], seen: EarlierRuns, retention_days: int = 0
) -> tuple[str, ...]:
    """Return one sentence for each reason why these tables cannot be rebuilt from the bucket.

    `planned` starts from an empty lake. The feed removes its files after `retention_days` (0: never).
    """
    chosen_lives = tuple(lives)
    sentences = [sentence for life in chosen_lives for sentence in _refusals_of(life, planned, seen, retention_days)]
    return (*sentences, *missing_files(source, listing, planned.history, chosen_lives, seen.entries, seen.schema_files))


def _refusals_of(life: Life, planned: Plan, seen: EarlierRuns, retention_days: int) -> Iterator[str]:
    table, applied = planned.history.lives[life], seen.applied.get(life)
    begun = life.version if table.base is None else table.base.at
    if table.gap is not None and not table.gap.accepted:
        yield f"{life} cannot be built from the feed alone. {gap_text(table.gap, life)}"
    elif reason := expired_files(table, planned.checkpoint, retention_days):
        yield reason
    if applied is not None and (life in planned.behind or applied.progress.tso > planned.checkpoint):
        yield (
            f"{life} is applied through {applied.progress.tso}, above the checkpoint {planned.checkpoint}: the bucket "
            "is an older copy. Rebuild from the one that the table was applied from."
        )
    if applied is not None and applied.ddl > begun and applied.ddl not in {event.at for event in table.events}:
        yield f"{life} has the schema of version {applied.ddl}, of which no schema file is left. Restore it."
    yield from (step.reason for step in planned.of(life) if isinstance(step, HoldTable))
