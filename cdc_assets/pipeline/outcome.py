"""Outcome of a run for each table, by its plan, its steps and the lake's progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar, Protocol

from cdc_assets.errors import CdcError, MalformedData, TableHeld
from cdc_assets.history.policies import WAYS, ways_out
from cdc_assets.model.findings import INCOMPLETE, Finding, Severity
from cdc_assets.model.gaps import Deficit, TableCondition, gap_cause, gap_text, waiting_text
from cdc_assets.model.progress import AppliedState, Base, Gap, Life, Phase, Progress, State, TableStanding
from cdc_assets.model.quarantine import QuarantinedRow
from cdc_assets.model.reports import AlikeKeys, Report, StepResult
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import ApplyRows, ChangeTable, CreateTable, HoldTable, Step
from cdc_assets.model.tso import Tso
from cdc_assets.model.window_metrics import WindowMetrics
from cdc_assets.model.wording import counted
from cdc_assets.planning.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutcome(TableStanding):
    """The outcome of a run for one table."""

    life: Life
    steps: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    changes: int = 0
    report: Report | None = None
    error: CdcError | None = None
    excluded: int = 0
    """Records of forgotten keys that were left out."""
    quarantined: int = 0
    """Records of the table in quarantine, of earlier runs too."""
    accounts: tuple[WindowMetrics, ...] = ()
    """The windows that the run committed, in order."""
    stopped_at: Tso | None = None
    """Position at which the table stopped: a DDL's version, or the end of a window that was not applied."""
    gap: Gap | None = None
    """Rows that the table lacks, although all that the feed has is applied."""

    base: Base | None = None
    """The dump that it stands on, None for a table that begins with the changefeed."""

    complete_by: str = ""
    """Reason why the table is complete (`Whole`), or will be once it goes on where it stopped; "" if it is not."""

    @property
    def incomplete(self) -> str:
        """Describe the missing rows and what a person can do, "" for a complete table."""
        if self.gap is None:
            return ""
        return waiting_text(self.complete_by) if self.complete_by else gap_text(self.gap, self.life, self.base)

    @property
    def incomplete_cause(self) -> str:
        """Describe the missing rows and what a person can do without naming a table: equal for tables of one cause."""
        if self.gap is None:
            return ""
        return waiting_text(self.complete_by) if self.complete_by else gap_cause(self.gap, self.life, self.base)


class OutcomePart(Protocol):
    """The outcome of a feature's work in a run beside the tables."""

    FEATURE: ClassVar[str]

    @property
    def finding(self) -> Finding | None:
        """A warning for people, None for nothing."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run, with its plan.

    `problems` are files that should be readable and are not. Of `findings`, which are the run's own, `new_findings` are
    those that no earlier run reported; `known_findings` are those that one did and that stand, in other rows too.
    """

    plan: Plan
    tables: tuple[TableOutcome, ...]
    problems: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()
    new_findings: tuple[Finding, ...] = ()
    known_findings: tuple[Finding, ...] = ()
    parts: tuple[OutcomePart, ...] = ()
    """Outcomes of features beside the tables."""

    def with_parts(self, parts: Iterable[OutcomePart]) -> Outcome:
        """Return the outcome with what features did, and their findings."""
        parts = tuple(parts)
        findings = [part.finding for part in parts if part.finding is not None]
        return replace(self, parts=parts, findings=(*self.findings, *findings))

    @property
    def checkpoint(self) -> Tso:
        """The changefeed's checkpoint that the run worked towards."""
        return self.plan.checkpoint

    @property
    def complete(self) -> bool:
        """Return whether every table is applied to the checkpoint, and lacks no rows but those that a person let go."""
        return not self.problems and not any(
            table.state.stopped or (table.gap is not None and not table.gap.accepted) for table in self.tables
        )

    @property
    def settled(self) -> bool:
        """Return whether it is complete, no record waits in quarantine, and no finding stops anything."""
        stops = any(finding.severity is Severity.STOP for finding in self.warnings)
        return self.complete and not self.quarantined and not stops

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that stand and that `tables` do not show by themselves."""
        findings = dict.fromkeys((*self.findings, *self.known_findings))
        return tuple(finding for finding in findings if finding.rule != INCOMPLETE)

    @property
    def quarantined(self) -> int:
        """Number of records in quarantine."""
        return sum(table.quarantined for table in self.tables)


_COMPARE = "If the writer was restarted then, compare the table with the source, or name its key in the setting keys."

_ALIKE = "In the source they are one row, so it should not happen: compare the table with the source."
_ALIKE_IN_TIDB = (
    "In a cluster with new collations that is one row, so it should not happen; in one without they are two, of which "
    "one is left here. Ask SELECT variable_value FROM mysql.tidb WHERE variable_name = 'new_collation_enabled': if it "
    "says False, set new_collations: false (--old-collations) and rebuild the table. If it says True, compare the "
    "table with the source."
)


@dataclass(slots=True)
class TableRun:
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
    accounts: list[WindowMetrics] = field(default_factory=list)
    joints: list[str] = field(default_factory=list)
    undecided: int = 0
    run_again: int = 0
    doubled: int = 0
    passed_over: int = 0
    excluded: int = 0
    alike: AlikeKeys = field(default_factory=AlikeKeys)
    missing: bool = False
    """Whether a window proved that it lacks rows."""

    def findings(self, of_tidb: bool) -> Iterator[Finding]:
        """Yield the findings about the applied rows; a source that is no TiDB always compares texts by collation."""
        if self.joints:
            others = f" and {len(self.joints) - 1} more" if len(self.joints) > 1 else ""
            yield self._finding(
                "joint-files",
                "without a key, a file began with the commit-ts at which the file before it ended: one split "
                f"transaction, or rows that were delivered again. They are counted as one transaction. {_COMPARE}",
                f"{self.joints[0]}{others}",
            )
        if self.undecided:
            yield self._finding(
                "undecided-rows",
                "without a key, rows of one commit-ts came from both of two dispatchers: delivered again by the later "
                "one, or further rows of a table that both share. The dispatchers' other rows of that time do not "
                f"decide it with certainty. {_COMPARE}",
                counted(self.undecided, "row"),
            )
        if self.run_again:
            yield self._finding(
                "rows-run-again",
                "without a key, rows came twice in a transaction of a partition, the second time right after the "
                "first: the source has equal rows, or the transaction was sent again without a mark between. They are "
                f"counted as often as they came. {_COMPARE}",
                counted(self.run_again, "row"),
            )
        if self.doubled:
            yield self._finding(
                "doubled-rows",
                "rows of a dump had the key of another row, and one row a key is kept: some versions of TiDB and "
                "Dumpling write a row twice. Compare the table with the source if such rows may differ in their other "
                "columns.",
                counted(self.doubled, "row"),
            )
        if self.passed_over:
            yield self._finding(
                "patches-passed-over",
                "changes left out columns of rows that the lake does not have, and the policy "
                '"patch without row" skips them: the table lacks these rows. Rebuild it from a new snapshot, or let '
                "the source write whole rows.",
                counted(self.passed_over, "change"),
            )
        if self.alike.count:
            yield self._finding(
                "alike-keys",
                "keys arrived while another one existed that is equal by the collation of the key but not byte for "
                f"byte. {_ALIKE_IN_TIDB if of_tidb else _ALIKE}",
                f"{counted(self.alike.count, 'key')}, such as {self.alike.example}",
            )

    def _finding(self, rule: str, sentence: str, detail: str) -> Finding:
        return Finding(rule, Severity.WARNING, str(self.name), sentence, detail)

    def add(self, step: Step, result: StepResult) -> None:
        """Count what a step did."""
        self.steps += 1
        self.inserted += result.inserted
        self.updated += result.updated
        self.deleted += result.deleted
        self.version = max(self.version, step.ddl if isinstance(step, (ApplyRows, CreateTable)) else step.at)

    def stop(self, step: Step, error: CdcError) -> None:
        """Record that the table stops in this run; where the rows of a DDL stop it, a person may decide about that."""
        if isinstance(step, ChangeTable) and isinstance(error, TableHeld) and not error.where.get("ways"):
            error.where["ways"] = ways_out(step.life.source, step.at, WAYS)
        self.error, self.stopped_at = error, step.at


def begun(planned: Plan) -> dict[Life, TableRun]:
    """Return every table of a plan as it is before a run's first step."""
    lives = planned.history.lives.items()
    return {life: TableRun(life, table.last_name or life.born_as, life.version) for life, table in lives}


def standing(
    planned: Plan,
    tables: Mapping[Life, TableRun],
    applied: Mapping[Life, AppliedState],
    remaining_steps: Iterable[Step] = (),
    quarantined: Mapping[Life, int] | None = None,
) -> tuple[TableOutcome, ...]:
    """Return the outcome of every table of a plan. `remaining_steps` are planned steps that the run did not select."""
    still: dict[Life, Step] = {}
    for step in remaining_steps:
        still.setdefault(step.life, step)
    return tuple(
        _standing(
            planned,
            tables[life],
            applied.get(life),
            still.get(life),
            (quarantined or {}).get(life, 0),
        )
        for life in planned.history.lives
    )


def _standing(
    planned: Plan, table: TableRun, applied: AppliedState | None, remaining_step: Step | None, quarantined: int
) -> TableOutcome:
    history = planned.history.lives[table.life]
    hold = table.hold or (remaining_step if isinstance(remaining_step, HoldTable) else None)
    state, reason, ways = _why(table, hold, dropped=history.name is None and remaining_step is None)
    version, through = max(event.at for event in history.events), planned.checkpoint
    if table.life in planned.behind and applied is not None:
        through = applied.progress.tso
    if table.stopped_at is not None or remaining_step is not None:
        through = applied.progress.through if applied is not None else 0
        through = min(through, hold.at - 1) if hold is not None and hold.late else through
        version = applied.ddl if applied is not None else table.life.version
    beside = table.life.kind and applied is None and hold is not None  # it is not there, so it lacks nothing
    gap = None if beside or state is State.DROPPED else history.gap_of(applied, version)
    return TableOutcome(
        table.name,
        version,
        through,
        state,
        reason,
        ways,
        life=table.life,
        steps=table.steps,
        inserted=table.inserted,
        updated=table.updated,
        deleted=table.deleted,
        changes=table.changes,
        report=table.report,
        error=table.error,
        excluded=table.excluded,
        quarantined=quarantined,
        accounts=tuple(table.accounts),
        stopped_at=table.stopped_at if hold is None else hold.at,
        gap=gap,
        base=history.base,
        complete_by=str(history.complete_by or "") if gap is None or state.stopped else "",
    )


def _why(table: TableRun, hold: HoldTable | None, *, dropped: bool) -> tuple[State, str, tuple[str, ...]]:
    """A table's state with the reason and the ways out: a hold, the error that stopped it, or neither."""
    if hold is not None:
        return State.HELD, hold.reason, hold.ways
    if table.error is not None:
        state = State.HELD if isinstance(table.error, (TableHeld, MalformedData)) else State.FAILED
        return state, table.error.message, tuple(table.error.where.get("ways", ()))
    return State.DROPPED if dropped else State.APPLIED, "", ()


@dataclass(frozen=True, slots=True)
class RunHooks:
    """Callbacks of a run's caller.

    `after` is called with each step once it is done, and `gives_way` between two windows: the rest is left to a later
    run where it returns True.
    """

    after: Callable[[Step, Plan, TableRun], object] = lambda step, planned, table: None
    gives_way: Callable[[], bool] = lambda: False


NO_HOOKS = RunHooks()


class RecordsAside(Protocol):
    """A lake that keeps records that do not fit."""

    def quarantined(self) -> Sequence[QuarantinedRow]:
        """The quarantined records that were not replayed."""

    def quarantined_counts(self) -> Mapping[Life, int]:
        """The number of those, by table."""


def deficits_at(
    lake: RecordsAside, planned: Plan, life: Life, at: Tso, stopped: Mapping[Life, str] = MappingProxyType({})
) -> tuple[Deficit, ...]:
    """Return the reasons why a table of a plan is not exactly its source once applied to a position; none if it is.

    `stopped` says why a run stopped tables at or below the position, beside the holds of the plan.
    """
    history, state = planned.history.lives.get(life) or planned.sources[life], planned.applied.get(life)
    applied_state = AppliedState(Progress(at, Phase.ROWS), at, None)
    hold = next((step.reason for step in planned.of(life) if isinstance(step, HoldTable) and step.at <= at), "")
    records = lake.quarantined() if lake.quarantined_counts().get(life) else ()
    if life in planned.behind:
        hold = hold or f"it is applied beyond the checkpoint {planned.checkpoint} of the changefeed"
    return TableCondition(
        life=life,
        gap=history.gap_of(applied_state, at),
        base=history.base,
        hold=hold or stopped.get(life, ""),
        aside=[record.earliest for record in records if record.life == life],
        repaired=-1 if state is None else state.repaired,
        since=None if state is None else state.since,
    ).deficits(at)
