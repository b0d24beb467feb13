"""The spine: applied state -> plan -> run each step. Dagster and the command line both call it.

    look()      checkpoint, listing, progress in the lake -> Plan           nothing is changed
    advance()   steps in order, each one commit; a table that fails stops, the others go on

A crash between any two lines leaves every table at the progress its newest labelled snapshot tells, and the next run
plans from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from cdc_assets.changefeed import Changefeed, Opener, parse_data_path, parse_schema_path
from cdc_assets.config import ChangefeedSettings
from cdc_assets.conformance import Finding, Severity, conformance, conformance_holds, take_sample
from cdc_assets.describe import column_fidelity
from cdc_assets.errors import (
    BadSettings,
    BucketMissing,
    CdcError,
    InputError,
    MalformedData,
    Retryable,
    TableHeld,
    TableMoved,
)
from cdc_assets.findings import file_findings, is_lost, unread_files
from cdc_assets.ledger import Ledger, TableState
from cdc_assets.model import (
    Applied,
    ApplyRows,
    CreateTable,
    DropTable,
    HoldTable,
    Life,
    Listing,
    Phase,
    Progress,
    RecoverTable,
    RenameTable,
    Report,
    SinkOptions,
    Step,
    StepResult,
    TableId,
    Tso,
)
from cdc_assets.plan import Plan, plan, step_order
from cdc_assets.release import Release, Releases
from cdc_assets.window import rejected, sentence

if TYPE_CHECKING:
    from cdc_assets.quarantine import Found, QuarantinedRow, Replay

__all__ = ["Lake", "Outcome", "Pipeline", "TableOutcome", "check_settings", "related", "sentence"]

REPLANS = 5
"""How often a run plans again after another writer moved a table, before it gives that table up."""


class Lake(Protocol):
    """What a place for tables must be able to do. Every run or commit is atomic and carries its progress."""

    def applied(self) -> Mapping[Life, Applied]:
        """Progress of every table of this changefeed, dropped ones included."""

    def run(self, step: Step) -> StepResult:
        """Carry out a DDL step; repeated, it changes nothing."""

    def stage(self, step: ApplyRows, options: SinkOptions, opener: Opener, quarantine: bool = False) -> Any:
        """Decode and reduce a window without touching the table; the result has a `report`.

        With `quarantine` the report does not fail for records that do not fit: they wait to be kept.
        """

    def commit(self, step: ApplyRows, staged: Any) -> StepResult:
        """Write a staged window with its progress."""

    def discard(self, staged: Any) -> None:
        """Forget a staged window."""

    def releases(self) -> Releases:
        """What people decided about single DDL."""

    def release(self, release: Release) -> None:
        """Keep a decision, in place of an earlier one about the same DDL."""

    def unrelease(self, life: Life, version: Tso) -> None:
        """Forget a decision."""

    def settle_names(self) -> None:
        """Bring every table to the name that it should have."""

    def quarantine(self, step: ApplyRows, staged: Any, run: str) -> None:
        """Keep the records of a staged window that do not fit; repeated, it changes nothing."""

    def quarantined(self) -> Sequence[QuarantinedRow]:
        """The records that are kept and were not replayed."""

    def quarantined_counts(self) -> Mapping[Life, int]:
        """How many those are, by table."""

    def replay(self, replay: Replay, options: SinkOptions, opener: Opener) -> Found:
        """Merge the changes of quarantined records' keys and close the records that fit now."""


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """How a run left a table. `through` is the TSO at or below which everything is applied."""

    life: Life
    name: TableId
    version: Tso
    through: Tso
    state: str
    reason: str = ""
    ways: tuple[str, ...] = ()
    steps: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    changes: int = 0
    report: Report | None = None
    error: CdcError | None = None
    quarantined: int = 0
    """Records of the table in quarantine, of earlier runs too."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did. `problems` are files that should be readable and are not, `warnings` are for a person to read."""

    checkpoint: Tso
    tables: tuple[TableOutcome, ...]
    problems: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()

    @property
    def complete(self) -> bool:
        """Tell whether every table stands at the checkpoint."""
        return not self.problems and all(table.state in ("applied", "dropped") for table in self.tables)

    @property
    def quarantined(self) -> int:
        """How many records wait in quarantine."""
        return sum(table.quarantined for table in self.tables)


def _broken(listing: Listing, options: SinkOptions) -> list[tuple[str, Tso, str]]:
    """Where the files that cannot be read belong: (root, version, why)."""
    places = (
        (parse_schema_path(path) or parse_data_path(path, options), why) for path, why in listing.problems.items()
    )
    return [(place.root, place.version, why) for place, why in places if place is not None]


def _gone(error: CdcError | None) -> str:
    """The path of the file that was listed and is gone, "" for any other error."""
    return str(error.where["file"]) if error is not None and error.where.get("gone") else ""


def check_settings(settings: ChangefeedSettings) -> None:
    """Refuse what cannot keep the promises unless the user said that he knows; raises BadSettings."""
    if settings.sink_options.has_commit_ts or settings.accept_unordered:
        return
    option = (
        "enable-tidb-extension=true in the sink URI"
        if settings.sink_options.protocol == "canal-json"
        else "include-commit-ts = true under [sink.csv] of the changefeed TOML"
    )
    raise BadSettings(
        "the rows of this changefeed carry no commit-ts: their order is that of the files, and rows that come "
        f"twice cannot be recognised. Start the changefeed anew with {option} (and give the same here), or accept that "
        "with --accept-unordered (setting accept_unordered)."
    )


@dataclass(slots=True)
class _Progressing:
    """A table while a run works on it."""

    life: Life
    name: TableId
    version: Tso
    steps: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    changes: int = 0
    report: Report | None = None
    error: CdcError | None = None
    hold: HoldTable | None = None
    stopped_at: Tso | None = None


class Pipeline:
    """One changefeed into one lake. `watch` is told each step before it runs.

    `fuse` lets a new table take its later columns from the start; without it each version of a table is its own step.
    """

    def __init__(
        self,
        settings: ChangefeedSettings,
        feed: Changefeed,
        lake: Lake,
        ledger: Ledger,
        watch: Callable[[Step, int, int], None] | None = None,
        fuse: bool = True,
    ) -> None:
        self.fuse = fuse
        self.settings = settings
        self.feed = feed
        self.lake = lake
        self.ledger = ledger
        self._watch = watch

    # --- looking ---

    def look(self, listing: Listing | None = None, releases: Releases | None = None) -> tuple[Listing, Plan]:
        """Read the checkpoint, list, read progress, plan. Nothing is changed. `releases` stand in for the lake's."""
        check_settings(self.settings)
        options, name = self.settings.sink_options, self.settings.name
        if listing is None:
            self.feed.recalled = self.feed.recalled or self.ledger.schema_files(name)
            listing = self.feed.listing()
            self.ledger.record_schema_files(name, self.feed.fresh)
            self.feed.recalled, self.feed.fresh = {**self.feed.recalled, **self.feed.fresh}, {}
        planned = plan(
            listing,
            self.lake.applied(),
            keys=self.settings.keys,
            stats=self.ledger.file_stats(name),
            commit_ts=options.has_commit_ts,
            broken=[*_broken(listing, options), *unread_files(listing, options, self.ledger.files(name))],
            holds=conformance_holds,
            policies=self.settings.policies,
            releases=self.lake.releases() if releases is None else releases,
            fuse=self.fuse,
        )
        return listing, planned

    def idle(self) -> bool:
        """Tell, for one small read, whether the last run left every table at the checkpoint that is there now.

        A table that is held or failed keeps this False, and so does a ledger without memory. Raises MetadataMissing.
        """
        checkpoint = self.feed.read_checkpoint()
        states = self.ledger.states().get(self.settings.name, ())
        return bool(states) and all(s.checkpoint == checkpoint and s.state in ("applied", "dropped") for s in states)

    def findings(self, listing: Listing, planned: Plan) -> tuple[Finding, ...]:
        """Check the changefeed itself. Data is read only of tables whose first rows are to be applied."""
        begun = {life for life, state in self.lake.applied().items() if state.progress.phase is Phase.ROWS}
        new = {s.life: s for s in planned.steps if isinstance(s, ApplyRows) and s.life not in begun}
        sample = take_sample(self.feed.opener, [step.files for step in new.values()])
        # Without commit-ts look() has refused already unless that was accepted.
        found = conformance(listing, planned.history, self.settings.sink_options, sample)
        files = file_findings(listing, self.ledger.files(self.settings.name), self.lake.applied())
        return (
            *(finding for finding in found if finding.rule != "missing-files"),  # file_findings knows more of them
            *(Finding("files", Severity.WARNING, "", sentence) for sentence in files),
        )

    # --- doing ---

    def apply(self, run: str = "", select: Callable[[Plan], Iterable[Step]] | None = None) -> Outcome:
        """Bring every table (or the selected steps) to the checkpoint and say how that went.

        A table that cannot go on is held or failed in the outcome; the others are applied. Raises SetupError and
        MetadataMissing, which concern all tables.
        """
        started = time.monotonic()
        tables: dict[Life, _Progressing] = {}
        listing, planned = self.look()
        findings = self.findings(listing, planned)
        for attempt in range(REPLANS + 1):
            steps = tuple(select(planned) if select else planned.steps)
            moved = self._advance(steps, planned, tables, run)
            if not moved or attempt == REPLANS:
                break
            gone = any(_gone(tables[life].error) for life in moved)
            if not gone:
                time.sleep(0.2 * 2**attempt)
            before, (listing, planned) = listing, self.look(None if gone else listing)
            for life in moved:
                if not self._lost(tables[life], before, listing, run):
                    tables[life].error = tables[life].stopped_at = None
        outcome = self._outcome(planned, listing, tables, findings, time.monotonic() - started)
        self._record_columns(planned, tables)
        self.record(outcome, run)
        return outcome

    def _advance(
        self, steps: tuple[Step, ...], planned: Plan, tables: dict[Life, _Progressing], run: str
    ) -> list[Life]:
        """Run the steps in order; return the tables to plan again: another writer moved them, or a file is gone."""
        self.lake.settle_names()  # a run that died may have left a rename half done
        moved: list[Life] = []
        renaming: Tso | None = None
        for number, step in enumerate(steps):
            if renaming is not None and step.at != renaming:
                self.lake.settle_names()
                renaming = None
            table = tables.setdefault(step.life, self._start(step.life, planned))
            if table.stopped_at is not None:
                continue
            if self._watch is not None:
                self._watch(step, number, len(steps))
            try:
                self.run_step(step, planned, table, run)
            except (InputError, Retryable, BucketMissing) as error:
                table.error, table.stopped_at = error, step.at
                if isinstance(error, TableMoved) or _gone(error):
                    moved.append(step.life)
            if isinstance(step, (RenameTable, RecoverTable, DropTable)) and table.stopped_at is None:
                renaming = step.at
        if renaming is not None:
            self.lake.settle_names()
        return moved

    def _lost(self, table: _Progressing, before: Listing, listing: Listing, run: str) -> bool:
        """Tell whether a table's file is gone in a fresh listing too, and nobody knows that all in it is applied."""
        path, name = _gone(table.error), self.settings.name
        known, applied = self.ledger.file_stats(name).get(path), self.lake.applied().get(table.life)
        if not path or not is_lost(path, before, listing, known, applied):
            return False
        self.ledger.record_unread(name, table.life, path, run)
        return True

    def run_step(self, step: Step, planned: Plan, table: _Progressing, run: str) -> None:
        """Carry out one step and write it down."""
        if isinstance(step, HoldTable):
            table.hold, table.stopped_at = step, step.at
            return
        if isinstance(step, ApplyRows):
            staged = self.stage(step)
            result = self.commit(step, staged, run)
            table.report = staged.report
            table.changes += getattr(staged, "rows", 0)
        else:
            result = self.lake.run(step)
            self._journal(step, planned, result, run)
        table.steps += 1
        table.inserted += result.inserted
        table.updated += result.updated
        table.deleted += result.deleted
        table.version = max(table.version, step.ddl if isinstance(step, (ApplyRows, CreateTable)) else step.at)

    def stage(self, step: ApplyRows) -> Any:
        """Decode and check a window; the result is small and picklable, and carries the report."""
        return self.lake.stage(step, self.settings.sink_options, self.feed.opener, self.settings.quarantine)

    def commit(self, step: ApplyRows, staged: Any, run: str) -> StepResult:
        """Write a window whose report is clean; raises MalformedData, with nothing written, when it is not.

        What goes to quarantine is written first: a crash in between is repaired by doing both again.
        """
        if staged.report.failed:
            self.lake.discard(staged)
            raise rejected(step, staged.report)
        self.lake.quarantine(step, staged, run)
        result = self.lake.commit(step, staged)
        self.ledger.record_files(self.settings.name, step.life, staged.report.files, run, result.snapshot_after)
        return result

    # --- telling ---

    def _start(self, life: Life, planned: Plan) -> _Progressing:
        table = planned.history.lives[life]
        name = table.name or (table.names[-1][0] if table.names else life.born_as)
        return _Progressing(life, name, life.version)

    def _journal(self, step: Step, planned: Plan, result: StepResult, run: str) -> None:
        versions = {step.at, *(step.takes if isinstance(step, CreateTable) else ())}
        for event in planned.history.lives[step.life].events:
            if event.at in versions and not event.neutral:
                name = event.name or event.file.table
                self.ledger.record_ddl(
                    self.settings.name, step.life, event.at, name, event.told_action, event.file.query, result, run
                )

    def _record_columns(self, planned: Plan, tables: Iterable[Life]) -> None:
        for life in tables:
            self.ledger.record_columns(self.settings.name, life, column_fidelity(planned.history.lives[life].schema))

    def _outcome(
        self,
        planned: Plan,
        listing: Listing,
        tables: Mapping[Life, _Progressing],
        findings: tuple[Finding, ...],
        seconds: float,
    ) -> Outcome:
        applied, quarantined = self.lake.applied(), self.lake.quarantined_counts()
        outcomes = [
            replace(
                self._table_outcome(life, planned, tables.get(life), applied.get(life)),
                quarantined=quarantined.get(life, 0),
            )
            for life in planned.history.lives
        ]
        warnings = list(dict.fromkeys(finding.text for finding in findings))
        warnings += [
            f"{life} is applied through {applied[life].progress.tso}, above the checkpoint {planned.checkpoint}: "
            "nothing was applied. Is this an older copy of the changefeed?"
            for life in planned.behind
        ]
        return Outcome(planned.checkpoint, tuple(outcomes), listing.problems, tuple(warnings), seconds, findings)

    def _table_outcome(
        self, life: Life, planned: Plan, table: _Progressing | None, applied: Applied | None
    ) -> TableOutcome:
        table = table or self._start(life, planned)
        history = planned.history.lives[life]
        version = max(event.at for event in history.events)
        through, state, reason = planned.checkpoint, "applied", ""
        ways: tuple[str, ...] = ()
        if history.name is None:
            state = "dropped"
        if life in planned.behind and applied is not None:
            through = applied.progress.tso
        if table.hold is not None:
            state, reason, ways = "held", table.hold.reason, table.hold.ways
        elif table.error is not None:
            state = "held" if isinstance(table.error, (TableHeld, MalformedData)) else "failed"
            reason = table.error.message
            ways = tuple(table.error.where.get("ways", ()))
        if table.stopped_at is not None:
            through = applied.progress.tso - (applied.progress.phase is Phase.DDL) if applied is not None else 0
            version = applied.ddl if applied is not None else life.version
        return TableOutcome(
            life,
            table.name,
            version,
            through,
            state,
            reason,
            ways,
            table.steps,
            table.inserted,
            table.updated,
            table.deleted,
            table.changes,
            table.report,
            table.error,
        )

    def record(self, outcome: Outcome, run: str) -> None:
        """Write the tables' states down for `status`."""
        self.ledger.record_states(
            self.settings.name,
            [
                TableState(
                    str(t.life), t.name, t.version, t.through, outcome.checkpoint, t.state, t.reason, t.ways, run
                )
                for t in outcome.tables
            ],
        )


def related(planned: Plan, life: Life, limit: Progress) -> tuple[Step, ...]:
    """The steps up to `limit` of a life and of every life whose names or rows it depends on, in TSO order."""
    lives = planned.history.lives
    group: set[Life] = set()
    border = [life]
    while border:
        one = border.pop()
        if one in group:
            continue
        group.add(one)
        names = {name for name, _, _ in lives[one].names}
        others = {event.other for event in lives[one].events if event.other is not None}
        border += [
            other for other, table in lives.items() if other in others or names & {name for name, _, _ in table.names}
        ]
    last = (limit.tso, int(limit.phase))
    return tuple(
        step
        for step in planned.steps
        if step.life in group
        and (
            step_order(step)[:2] <= last
            or (step.life == life and isinstance(step, ApplyRows) and step.lo < limit.tso and limit.phase)
        )
    )
