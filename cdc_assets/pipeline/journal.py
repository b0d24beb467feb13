"""A run's records in the ledger: each DDL once, the columns' fidelity, the state of every table.

It speeds up and explains; only the lake says what is applied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from cdc_assets.features.kinds.decoding import history_kind
from cdc_assets.ledger import Ledger
from cdc_assets.model.findings import SEEN_IN_ROWS, Finding
from cdc_assets.model.ledger_entries import JournalEntry, TableState
from cdc_assets.model.progress import Life, State
from cdc_assets.model.reports import Report, StepResult
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import ApplyRows, CreateTable, HoldTable, Step
from cdc_assets.model.tso import Tso, tso_now
from cdc_assets.model.wording import counted
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.planning.plan import Plan
from cdc_assets.types.fidelity import column_fidelity, log_fidelity, rewritten_columns

_NO_STEP = StepResult()
_IS_DECIDED = "run `cdc-assets apply`: it carries out what was decided (cdc-assets release --list)"
"""The way out of a hold that a person has decided, until a run carries the decision out."""
_REWRITE_MS = 600_000
"""Longest time in milliseconds that TiDB is assumed to take to rewrite a column for another type."""


@dataclass
class Journal:
    """The ledger's records of one changefeed."""

    ledger: Ledger
    changefeed: str
    _revisions: Mapping[str, str] | None = None
    _recorded_columns: dict[Life, tuple[object, ...]] = field(default_factory=dict)

    def begin(self, staged: Mapping[str, str] = {}) -> None:
        """Begin to read what will be recorded: no value of rows that are forgotten from here on is recorded.

        `staged` are the runs that had forgotten rows, by the tables of which rows were read before.
        """
        self._revisions = {**self.ledger.revisions(self.changefeed), **staged}

    def _begun(self) -> Mapping[str, str]:
        """Return the runs that had forgotten rows before anything was read."""
        return self.ledger.revisions(self.changefeed) if self._revisions is None else self._revisions

    def step(self, step: Step, planned: Plan, result: StepResult, run: str) -> None:
        """Record the DDL that a step carried out; a table that was created with later columns has several."""
        versions = {step.at, *(step.takes if isinstance(step, CreateTable) else ())}
        for event in planned.history.lives[step.life].events:
            if event.at in versions and not event.neutral:
                name = event.name or event.file.table
                self.note(step.life, name, event.journal_action, event.file.query, run, result, event.at)

    def note(
        self,
        life: Life,
        name: TableId,
        action: str,
        text: str,
        run: str,
        result: StepResult = _NO_STEP,
        at: Tso | None = None,
    ) -> None:
        """Record what was done to a table, a DDL or something else: now, or at that moment."""
        effect = (result.statements, result.snapshot_before, result.snapshot_after, result.seconds)
        entry = JournalEntry(str(life), tso_now() if at is None else at, str(name), action, text, *effect, run)
        self.ledger.record_ddl(self.changefeed, entry)

    def complete(self, planned: Plan, run: str) -> None:
        """Record the DDL of a run that ended between a commit and its record, without its lost statements."""
        journaled_keys = self.ledger.journaled(self.changefeed)
        entries = [
            JournalEntry(
                str(life), event.at, str(event.name or event.file.table), event.journal_action, event.file.query,
                (), None, None, 0.0, run,
            )
            for life, state in planned.applied.items()
            for event in (planned.history.lives[life].events if life in planned.history.lives else ())
            if event.at <= state.ddl and not event.neutral and (str(life), event.at) not in journaled_keys
        ]  # fmt: skip
        self.ledger.record_journal(self.changefeed, entries)

    def excluded(self, step: ApplyRows, report: Report, result: StepResult, run: str) -> None:
        """Record that a window left out records of forgotten keys, and how many."""
        name = step.reading.names[-1][0] if step.reading.names else step.life.born_as
        self.note(step.life, name, "kept out", f"{counted(report.excluded, 'record')} of forgotten keys", run, result)

    def columns(self, planned: Plan, tables: Iterable[Life], *, tells_inserts: bool) -> None:
        """Record how faithfully each column of these tables is kept, unless that was recorded here before."""
        rows, facts = {}, dict[Life, tuple[object, ...]]()
        for life in planned.history.lives.keys() & set(tables):  # what another plan of the run had may be gone
            table = planned.history.lives[life]
            changes = bool(life.kind) and history_kind(life.kind).PLACES  # it says of each what it was
            own = log_fidelity(tells_inserts=tells_inserts) if changes else ()
            by_tidb = [event for event in table.events if not (event.file.by_server or event.file.grows)]
            ddl = ((event.at, (*event.hidden, *event.changes)) for event in by_tidb)
            rewritten = rewritten_columns(ddl, partial(self._rows_before, planned, life))
            facts[life] = (table.schema, table.changes, table.inferred, table.unsent, rewritten, own)
            if facts[life] != self._recorded_columns.get(life):
                fidelities = column_fidelity(table.schema, table.changes, table.inferred, table.unsent, rewritten)
                rows[life] = (*fidelities, *own)
        self.ledger.record_columns(self.changefeed, rows)
        self._recorded_columns |= facts

    def _rows_before(self, planned: Plan, life: Life, version: Tso) -> bool:
        """Return whether rows of a table may have changed in the ten minutes before a version, as far as is known.

        The files that its mirror or one of its history tables read are recorded for that one alone.
        """
        since = version - (_REWRITE_MS << 18)
        return any(
            (file_stats.min_commit_ts or 0) < version
            and (file_stats.max_commit_ts is None or file_stats.max_commit_ts > since)
            for twin in planned.history.lives
            if twin.source == life.source
            for file_stats in self.ledger.files_of(self.changefeed, twin)
            if file_stats.rows
        )

    def findings(self, outcome: Outcome, run: str, settled: Collection[Finding] = ()) -> Outcome:
        """Record what was found, and return the outcome with what of it is new and what earlier runs have reported.

        A finding is the same where its detail, such as a count, is another. What the run itself has `settled` is new,
        and not recorded.
        """
        before = self.ledger.findings(self.changefeed)
        earlier_identities, outcome_identities = (
            {finding.identity for finding in findings} for findings in (before, outcome.findings)
        )
        stays = [
            finding for finding in before if finding.rule in SEEN_IN_ROWS and finding.identity not in outcome_identities
        ]
        now = (*stays, *dict.fromkeys(outcome.findings))
        if set(now) != set(before):
            lives = outcome.plan.history.lives.items()
            names = {str(life): [str(name) for name, _, _ in table.names] for life, table in lives}
            self.ledger.record_findings(self.changefeed, now, run, self._begun(), names)
        return replace(
            outcome,
            new_findings=(*settled, *(finding for finding in now if finding.identity not in earlier_identities)),
            known_findings=tuple(finding for finding in now if finding.identity in earlier_identities),
        )

    def states(self, outcome: Outcome, run: str) -> None:
        """Record the state of every table. The reason that stopped a table stays until the table moves."""
        waiting_lives = {
            t.life
            for t in outcome.tables
            if t.state is State.APPLIED and t.through < outcome.checkpoint and not t.steps
        }
        recorded_states = self.ledger.states().get(self.changefeed, ()) if waiting_lives else ()
        former_states = {state.life: state for state in recorded_states}
        states = []
        for t in outcome.tables:
            now = TableState(
                t.name,
                t.version,
                t.through,
                t.state,
                t.reason,
                t.ways,
                life=str(t.life),
                checkpoint=outcome.checkpoint,
                run=run,
                complete_by=t.complete_by,
                by_step=t.error is not None,
            )
            before = former_states.get(now.life)
            if t.life in waiting_lives and before is not None and before.through == t.through and before.state.stopped:
                now = replace(
                    now, state=before.state, reason=before.reason, ways=before.ways, run=before.run,
                    by_step=before.by_step,
                )  # fmt: skip
            states.append(now)
        for life in outcome.plan.idle:
            state = outcome.plan.applied[life]
            if state.name is not None:
                states.append(
                    TableState(
                        state.name,
                        state.ddl,
                        state.progress.tso,
                        State.FROZEN,
                        life=str(life),
                        checkpoint=outcome.checkpoint,
                        run=run,
                    )
                )
        self.ledger.record_states(self.changefeed, states, self._begun())

    def decided(self, planned: Plan, lives: Collection[Life]) -> None:
        """Record of each stopped table how it goes on after decisions about `lives`, by the plan that has them.

        The next run does that. What stopped in a step, which no plan foresees, goes on if it is among the lives.
        """
        holds = {str(step.life): step for step in planned.steps if isinstance(step, HoldTable)}
        sources = {str(life): life.source for life in planned.history.lives}
        states = []
        for state in self.ledger.states().get(self.changefeed, ()):
            hold = holds.get(state.life)
            if state.state.stopped and hold is not None:
                states.append(replace(state, reason=hold.reason, ways=hold.ways))
            elif state.state.stopped and (not state.by_step or sources.get(state.life) in lives):
                states.append(replace(state, ways=(_IS_DECIDED,)))
        self.ledger.record_states(self.changefeed, states, self._begun())
