"""The spine: applied state -> plan -> run each step. Dagster and the command line both call it.

    plan()            checkpoint, listing, progress in the lake -> Plan; nothing is changed
    apply()           steps in order, each one commit; a table that fails stops, the others go on
    status()          the state of every table
    record_status()   the same, recorded in the ledger

A crash between any two lines leaves every table at the progress of its newest labelled snapshot, and the next run plans
from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cdc_assets.decoding.window import concerning_table, look_beside, merge_reports, rejected
from cdc_assets.errors import (
    BucketMissing,
    CdcError,
    InputError,
    LakeUnavailable,
    Retryable,
    StepFailed,
    TableHeld,
    TableMoved,
)
from cdc_assets.formats import SplitReader
from cdc_assets.io.retries import retrying
from cdc_assets.landing.batch import LandingCounts
from cdc_assets.landing.landing import Landing
from cdc_assets.ledger import Ledger
from cdc_assets.model.decisions import Decisions, KeptDecision
from cdc_assets.model.findings import Finding, Severity
from cdc_assets.model.kinds import NOT_ASKED_FOR
from cdc_assets.model.progress import AppliedState, Life
from cdc_assets.model.reports import FileStats, StagedWindow, StepResult, has_rows
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import DataFile, Listing
from cdc_assets.model.steps import (
    AddedStep,
    ApplyRows,
    ChangeTable,
    CreateTable,
    DropTable,
    ExchangePartition,
    HoldTable,
    RecoverTable,
    RenameTable,
    Step,
)
from cdc_assets.model.tso import FOREVER, Tso
from cdc_assets.model.window_metrics import WindowMetrics, measure_window
from cdc_assets.pipeline.journal import Journal
from cdc_assets.pipeline.outcome import NO_HOOKS, Outcome, RecordsAside, RunHooks, TableRun, begun, standing
from cdc_assets.pipeline.planner import AS_IT_STANDS, KnownLake, Planner, PlanRequest
from cdc_assets.pipeline.window_pool import AppliedWindow, WindowPool
from cdc_assets.planning.plan import Plan, renames_unnamed
from cdc_assets.planning.run_batches import families
from cdc_assets.preflight.files import is_lost, unreadable_files
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources import Source

if TYPE_CHECKING:
    import pyarrow as pa

    from cdc_assets.decoding.keyed_rows import RecordLookup, RecordReplay

REPLANS = 5
"""Most new plans of a run after another writer moved a table or the lake failed, before it stops that table."""


class PipelineLake(KnownLake, RecordsAside, Protocol):
    """The lake as the pipeline uses it. Every run or commit is atomic and carries its progress."""

    def run(self, step: Step) -> StepResult:
        """Carry out a DDL step; repeated, it changes nothing."""

    def stage_all(self, steps: Sequence[ApplyRows], reader: SplitReader) -> list[StagedWindow]:
        """Decode and reduce windows of one source table that read the same, without touching its tables."""

    def commit(self, step: ApplyRows, staged: StagedWindow) -> StepResult:
        """Write a staged window with its progress."""

    def discard(self, step: ApplyRows, staged: StagedWindow) -> None:
        """Remove a staged window that is not committed."""

    def warm(self) -> None:
        """Start slow services in the background: steps are about to be carried out."""

    def runs_beside(self, step: ApplyRows) -> bool:
        """Return whether a window may be staged and committed in another thread beside windows of other tables."""

    def held_back(self) -> Collection[str]:
        """The tables, as texts, whose steps wait for a rebuild that is about to swap them."""

    def keep_decision(self, decision: KeptDecision) -> None:
        """Record a person's decision, in place of an earlier one about the same."""

    def remove_decision(self, decision: KeptDecision) -> None:
        """Remove the decision about the same as this one."""

    def apply_renames(self) -> None:
        """Rename every table to the name that it should have."""

    def quarantine(self, step: ApplyRows, staged: StagedWindow, run: str) -> None:
        """Quarantine the records of a staged window that do not fit; repeated, it changes nothing."""

    def replay(self, replay: RecordReplay, reader: SplitReader) -> RecordLookup:
        """Merge the changes of quarantined records' keys and close the records that fit now."""

    def changes(self, life: Life, since: Tso, until: Tso, equal: Mapping[str, object] = {}) -> Iterator[pa.Table]:
        """The changes of a log at positions in (since, until], in no particular order, some at a time.

        Only those are wanted that have these numbers; others may come.
        """

    def part(self, feature: str) -> Any:
        """The part of the lake that belongs to a feature."""

    def close(self) -> None:
        """Close what was opened."""


def gone_file(error: CdcError | None) -> str:
    """Return the path of the file that was listed and is missing, "" for any other error and for none."""
    return str(error.where["file"]) if error is not None and error.where.get("gone") else ""


ReadT = TypeVar("ReadT")


def looking_again(read: Callable[[], ReadT]) -> ReadT:
    """Return the result of `read`, which plans and reads; where a file that it listed is gone, it does both once more.

    Landed rows are written into other files meanwhile, and none of them is missing for that.
    """
    return retrying(read, REPLANS + 1, InputError, is_meant=gone_file)


Watch = Callable[[Step, TableId, int, int], None]
"""Called with a step, the name of the table that it writes, its number (from 0) and the number of all."""


def _refuse_unready(step: Step, tables: Mapping[Life, TableRun], made: Mapping[Life, Sequence[Life]]) -> None:
    """Refuse what is not to come before a table that stopped earlier in this run: its rows of then would be lost.

    That is to exchange rows with it, and to drop a table for which it is not `made` yet: beside one that is gone no
    history table is begun. Raises TableMoved where the other one is planned again, so that both are, and else as it
    stopped.
    """
    if isinstance(step, ExchangePartition):
        other_lives, why = [step.other], f"with which it exchanges rows at {step.at}"
    elif isinstance(step, DropTable):
        other_lives, why = (
            [life for life in made.get(step.life, ()) if not tables[life].steps],
            "which begins before it goes",
        )
    else:
        return
    for life in other_lives:
        other = tables.get(life)
        if other is None or other.error is None or other.stopped_at is None or other.stopped_at > step.at:
            continue
        is_transient = isinstance(other.error, (TableMoved, LakeUnavailable)) or gone_file(other.error)
        kind = TableMoved if is_transient else StepFailed if isinstance(other.error, Retryable) else TableHeld
        text = f"waits for {life}, {why}: {other.error.message}"
        raise kind(text, table=str(step.life), ways=other.error.where.get("ways"))


class Pipeline:
    """One changefeed into one lake. `watch` is called with each step before it runs.

    `landing` is where topics are landed before they are read, None for a feed that is files. `planner` says what is to
    be done.
    """

    lake: PipelineLake

    def __init__(
        self,
        settings: ChangefeedSettings,
        source: Source,
        lake: PipelineLake,
        ledger: Ledger,
        watch: Watch | None = None,
        request: PlanRequest = AS_IT_STANDS,
        landing: Landing | None = None,
    ) -> None:
        self.planner = Planner(settings, source, lake, ledger, request, landing)
        self.settings, self.source, self.lake, self.ledger = settings, source, lake, ledger
        self.landing = landing
        self.advanced = LandingCounts()  # what was landed since it was last logged
        self._created: dict[Life, list[object]] = {}  # with which decisions its tables were planned
        self.journal = Journal(ledger, settings.name)
        self.accounts: dict[Life, list[WindowMetrics]] = {}  # of the windows committed here, until somebody takes them
        self._watch = watch

    def land(self) -> None:
        """Land new messages of topics; does nothing for files. Raises InputError for a log that lost messages."""
        if self.landing is not None:
            self.advanced += self.landing.advance()

    def count_anew(self) -> None:
        """Count what is landed from nothing again."""
        self.advanced = LandingCounts()

    def apply(
        self, run: str = "", select: Callable[[Plan], Iterable[Step]] | None = None, hooks: RunHooks = NO_HOOKS
    ) -> Outcome:
        """Apply every table (or the selected steps) to the checkpoint and return the outcome.

        A table that cannot go on is held or failed in the outcome; the others are applied. Raises SetupError and
        MetadataMissing, which concern all tables.
        """
        started = time.monotonic()
        self.journal.begin()
        self.land()
        listing, planned = self.planner.plan(on_news=self.lake.warm)
        features = self.planner.features
        begins = [feature.begin(self.lake, self.settings, planned) for feature in features]
        if due := [decision for part in begins for decision in part.decisions]:
            for decision in due:
                self.lake.keep_decision(decision)
            listing, planned = self.planner.plan(listing)
        tables, worked = begun(planned), set[Life]()
        findings = self.planner.findings(listing, planned)
        self.journal.complete(planned, run)
        for attempt in range(REPLANS + 1):
            waiting = self._held_back(planned)
            steps = tuple(step for step in (select(planned) if select else planned.steps) if step.life not in waiting)
            worked.update(step.life for step in steps)
            moved, remaining_steps = self._advance(steps, planned, tables, run, hooks)
            answered = [] if remaining_steps or moved else self._answered(listing, tables)
            moved += answered
            if remaining_steps:  # a later run does what is left, and what was to be planned again
                remaining_steps += [step for step in steps if step.life in moved]
                for life in moved:
                    tables[life].error = tables[life].stopped_at = None
            if remaining_steps or not moved or attempt == REPLANS:
                break
            gone = any(gone_file(tables[life].error) for life in moved)
            if not gone and not answered:
                time.sleep(0.2 * 2**attempt)
            before, (listing, planned) = listing, self.planner.plan(None if gone else listing)
            fresh = begun(planned)
            tables = fresh | tables
            for life in moved:
                tables[life].name = fresh.get(life, tables[life]).name
                if not self._lost(tables[life], before, listing, run):
                    tables[life].error = tables[life].stopped_at = tables[life].hold = None
        if any(table.missing for table in tables.values()):
            planned = replace(planned, history=self.planner.plan(listing)[1].history)
        applied = self.lake.applied()
        for feature in features:
            applied = feature.settle(self.lake, planned, applied)
        completed_steps = set(steps).difference(remaining_steps)
        remaining_steps = [step for step in planned.steps if step not in completed_steps]
        settled = self.planner.reread(listing, findings)
        findings = tuple(finding for finding in findings if finding not in settled)
        outcome = self._outcome(
            planned, listing, tables, remaining_steps, findings, time.monotonic() - started, applied
        )
        parts = [part for begin in begins for part in begin.outcomes]
        for feature in features:
            parts += feature.finish(self.lake, planned, applied, outcome.tables)
        outcome = outcome.with_parts(parts)
        self.planner.settle(listing, planned)
        self.journal.columns(planned, worked, tells_inserts=self.settings.source_options.wire.tells_inserts)
        self.journal.states(outcome, run)
        return self.journal.findings(outcome, run, settled)

    def _answered(self, listing: Listing, tables: Mapping[Life, TableRun]) -> list[Life]:
        """Return the held tables that are not held any more, by rows that were read since the run was planned."""
        held = {life for life, table in tables.items() if table.hold is not None}
        if not held or not renames_unnamed(listing):
            return []
        return sorted(held - {step.life for step in self.planner.plan(listing)[1].steps if isinstance(step, HoldTable)})

    def _held_back(self, planned: Plan) -> frozenset[Life]:
        """Return the tables that are left to a later run: a rebuild that follows them would never have them swapped.

        With each those with which it exchanges names or rows.
        """
        names = self.lake.held_back()
        if not names:
            return frozenset()
        family = families(planned.history)
        return frozenset(other for life in family if str(life) in names for other in family[life])

    def status(self) -> Outcome:
        """Return the current state of every table. Nothing is applied or recorded, and no data file is read."""
        listing, planned = self.planner.plan()
        findings = self.planner.findings(listing, planned, sampled=False)
        return self._outcome(planned, listing, begun(planned), planned.steps, findings, 0.0)

    def record_status(self, run: str, looked: tuple[Listing, Plan] | None = None) -> Outcome:
        """Plan again, unless `looked` is given, and record the state of every table; nothing is applied."""
        if looked is None:
            outcome = self.status()
        else:
            listing, planned = looked
            outcome = self._outcome(planned, listing, begun(planned), planned.steps, (), 0.0)
        self.journal.states(outcome, run)
        return outcome

    def refuse(self, step: ApplyRows, staged: StagedWindow, run: str) -> Outcome:
        """Remove a staged window whose records do not fit, and record that its table is held by them."""
        self.journal.begin({str(step.life): staged.revision})
        self.lake.discard(step, staged)
        listing, planned = self.planner.plan()
        tables = begun(planned)
        table = tables[step.life]
        table.report = staged.report
        table.stop(step, rejected(step, staged.report))
        findings = self.planner.findings(listing, planned, sampled=False)
        outcome = self._outcome(planned, listing, tables, planned.steps, findings, 0.0)
        self.journal.states(outcome, run)
        return outcome

    def _advance(
        self, steps: tuple[Step, ...], planned: Plan, tables: dict[Life, TableRun], run: str, hooks: RunHooks
    ) -> tuple[list[Life], list[Step]]:
        """Run the steps in order; return the tables to plan again, and the steps that are left to a later run.

        Planned again are tables that another writer moved, of which a file is missing, or whose storage failed once.
        """
        planned_with = self._conditions(self.planner.decided)
        self._created = {step.life: planned_with for step in steps if isinstance(step, CreateTable)}
        self.lake.apply_renames()  # a killed run may have left a rename half done
        if any(not isinstance(step, HoldTable) for step in steps):
            self.lake.warm()

        def stopped(life: Life) -> bool:
            return tables[life].stopped_at is not None

        def commit(step: ApplyRows, staged: StagedWindow) -> tuple[StepResult, WindowMetrics | None]:
            return self._commit(step, staged, run, self.planner.published)

        lake = self.lake
        windows = WindowPool(steps, self.stage_all, commit, lake.discard, lake.runs_beside, stopped)
        moved: list[Life] = []
        remaining_steps: list[Step] = []
        renaming: Tso | None = None
        between_windows, made = False, planned.made_beside
        with ExitStack() as ending:
            ending.push(windows.close)
            for number, step in enumerate(steps):
                if between_windows and not remaining_steps and hooks.gives_way():
                    windows.close()
                    remaining_steps = [
                        step for place, step in enumerate(steps[number:], number) if not windows.has(place)
                    ]
                if remaining_steps and not windows.has(number):
                    continue
                between_windows = between_windows or isinstance(step, ApplyRows)
                if renaming is not None and step.at != renaming:
                    self.lake.apply_renames()
                    renaming = None
                table = tables[step.life]
                if table.stopped_at is not None:
                    continue
                if self._watch is not None and table.hold != step:  # which an earlier plan of this run had, too
                    self._watch(step, planned.history.lives[step.life].called_at(step.at), number, len(steps))
                try:
                    _refuse_unready(step, tables, made)
                    if isinstance(step, ApplyRows) and renaming is None:
                        windows.begin(number)
                    self.run_step(step, planned, table, run, partial(windows.take, number))
                except (InputError, Retryable, BucketMissing) as error:
                    table.stop(step, error)
                    if isinstance(error, (TableMoved, LakeUnavailable)) or gone_file(error):
                        moved.append(step.life)
                if table.stopped_at is None:
                    if isinstance(step, (RenameTable, RecoverTable, DropTable)):
                        renaming = step.at
                    hooks.after(step, planned, table)
            if renaming is not None:
                self.lake.apply_renames()
        return moved, remaining_steps

    def _lost(self, table: TableRun, before: Listing, listing: Listing, run: str) -> bool:
        """Return whether a table's file is missing in a fresh listing too, unless all of it is known to be applied."""
        path, name = gone_file(table.error), self.settings.name
        stats, applied = self.ledger.file_stats(name).get(path), self.lake.applied().get(table.life)
        if not path or not is_lost(path, before, listing, stats, applied):
            return False
        self.ledger.record_unread(name, table.life, path, run)
        return True

    def run_step(self, step: Step, planned: Plan, table: TableRun, run: str, take: Callable[[], AppliedWindow]) -> None:
        """Carry out one step and record it; a window by `take`."""
        if isinstance(step, HoldTable):
            table.hold, table.stopped_at = step, step.at
            return
        if isinstance(step, ApplyRows):
            staged, result, account = take()
            if account is None:
                return
            self.accounts.setdefault(step.life, []).append(account)
            table.report = staged.report
            table.joints += staged.report.joints
            table.undecided += staged.report.undecided
            table.run_again += staged.report.run_again
            table.doubled += staged.report.doubled
            table.alike += staged.report.alike + result.alike
            table.excluded += staged.report.excluded
            table.passed_over += staged.report.passed_over + result.passed_over
            table.missing |= result.missing is not None
            table.accounts.append(account)
            table.changes += staged.rows
        elif isinstance(step, AddedStep):
            self.lake.run(step)
            return
        else:
            for feature in self.planner.features:
                if (write := feature.before.get(type(step))) is not None:
                    write(self.lake, planned, step)
            result = self.lake.run(step)
            if not (isinstance(step, ChangeTable) and step.early):
                self.journal.step(step, planned, result, run)
        table.add(step, result)

    def stage(self, step: ApplyRows) -> StagedWindow:
        """Decode and check a window; the result is small and picklable, and carries the report."""
        return self.stage_all((step,))[0]

    def stage_all(self, steps: Sequence[ApplyRows]) -> list[StagedWindow]:
        """Stage several windows that read the same splits of one source table, decoding these once.

        Where one of them is refused, only the first is staged; the caller stages the others in their turn.
        """
        first = steps[0]
        with concerning_table(first):
            try:
                staged = self.lake.stage_all(steps, self.planner.reader)
            except InputError:
                if len(steps) == 1:
                    raise
                return self.stage_all(steps[:1])
            beside = [look_beside(first, self.planner.stats, self.planner.reader)] if first.reading.beside else []
            return [
                replace(window, report=merge_reports([*beside, window.report], window.report.seconds))
                for window in staged
            ]

    def commit(self, step: ApplyRows, staged: StagedWindow, run: str, published: float) -> StepResult:
        """Write a window whose report is clean; raises MalformedData, with nothing written, when it is not.

        `published` is when the checkpoint was written with which the window was planned. The quarantine is written
        first: after a crash in between both are repeated.
        """
        result, account = self._commit(step, staged, run, published)
        if account is not None:
            self.accounts.setdefault(step.life, []).append(account)
        return result

    def _commit(
        self, step: ApplyRows, staged: StagedWindow, run: str, published: float
    ) -> tuple[StepResult, WindowMetrics | None]:
        """Write a window, in any thread, and return its result and its metrics, None where it has no files."""
        if staged.report.failed:
            self.lake.discard(step, staged)
            raise rejected(step, staged.report)
        below = _unread_from_before(step, staged.report.files, self.planner.stats)
        if below and (late := self.planner.note_late(step.life, below, run)):
            self.lake.discard(step, staged)
            raise TableMoved(
                f"{late[0]} is new and has rows at or below {step.lo}, through which {step.life} is applied: whether "
                "they are in the table is looked at. Plan again.",
                table=str(step.life),
            )
        self.planner.stats.update((stats.path, stats) for stats in staged.report.files)
        if not step.files:
            self.ledger.record_files(
                self.settings.name, step.life, staged.report.files, run, None, revision=staged.revision
            )
            return StepResult(report=staged.report), None
        try:
            # People may have decided otherwise since a new table was planned. Tables that stood refuse such windows
            # themselves.
            planned_with = self._created.get(step.life)
            if planned_with is not None and planned_with != self._conditions(self.lake.decisions()):
                raise TableMoved(f"decisions changed since {step.life} was planned. Plan again.", table=str(step.life))
            self.lake.quarantine(step, staged, run)
        except TableMoved:
            self.lake.discard(step, staged)
            raise
        report, name = staged.report, self.settings.name
        # Before the commit: a file that nobody had read, and whose rows are applied, is taken for one that came late.
        self.ledger.record_files(name, step.life, report.files, run, None, since=step.lo, revision=staged.revision)
        result = self.lake.commit(step, staged)
        if report.excluded:
            self.journal.excluded(step, report, result, run)
        account = measure_window(step, staged.rows, report, result, published, time.time())
        read = (report.files, run, result.snapshot_after, account, step.lo, staged.revision)
        self.ledger.record_files(name, step.life, *read)
        return result, account

    def _conditions(self, decided: Decisions) -> list[object]:
        """Return the features' conditions on people's decisions, which hold between a plan and its commits."""
        return [feature.precondition(decided) for feature in self.planner.features if feature.precondition is not None]

    def _outcome(
        self,
        planned: Plan,
        listing: Listing,
        tables: Mapping[Life, TableRun],
        remaining_steps: Sequence[Step],
        findings: tuple[Finding, ...],
        seconds: float,
        applied: Mapping[Life, AppliedState] | None = None,
    ) -> Outcome:
        applied = self.lake.applied() if applied is None else applied
        outcomes = standing(planned, tables, applied, remaining_steps, self.lake.quarantined_counts())
        of_tidb = self.settings.source_options.writer == "TiCDC"
        findings += tuple(finding for table in tables.values() for finding in table.findings(of_tidb))
        findings += tuple(it for feature in self.planner.features for it in feature.findings(planned, applied))
        findings += tuple(_of_kinds(planned, applied))
        problems = {**listing.problems, **self.planner.rows_of_no_table(listing, planned)}
        findings += tuple(unreadable_files(problems))
        return Outcome(planned, outcomes, problems, seconds, tuple(dict.fromkeys(findings)))


def _unread_from_before(
    step: ApplyRows, read: Iterable[FileStats], stats_of_read: Mapping[str, FileStats]
) -> list[DataFile]:
    """Return the files of a window that nobody had read and that have rows from before it."""
    files = {file.path: file for file in step.files if not (file.messages or file.piece)}
    paths = (stats.path for stats in read if (stats.min_commit_ts or FOREVER) <= step.lo)
    return [files[path] for path in paths if path in files and not has_rows(stats_of_read.get(path))]


def _of_kinds(planned: Plan, applied: Mapping[Life, AppliedState]) -> Iterator[Finding]:
    """Yield the findings about the settings history and tables."""
    for life in planned.idle:
        state = applied.get(life)
        if state is not None and state.name is not None:
            yield Finding(
                "history-off",
                Severity.WARNING,
                str(state.name),
                NOT_ASKED_FOR,
                f"through {state.progress.tso}",
            )
    for life, state in applied.items():
        if state.name is None or life not in planned.history.lives:
            continue
        if state.begins is not None:
            sentence = (
                "history tables begin at the RENAME that brought their source table under their rule in the setting "
                "history; at earlier positions it had another rule, or none. Where the input from before was gone, "
                "states lack the rows that did not change since."
            )
            yield Finding("history-since", Severity.WARNING, str(state.name), sentence, f"from {state.begins}")
        elif state.since is not None:
            sentence = (
                "tables begin later than others of their source tables: when they were switched on the input from "
                "before was gone, or a new ledger could not say that it was not, or a repair had given their mirror "
                "rows that the input does not have. What was there before is not in them; where all input is there, "
                "cdc-assets rebuild brings it."
            )
            yield Finding("history-since", Severity.WARNING, str(state.name), sentence, f"from {state.since}")
