"""The states of a lake's tables. Reads the ledger and metadata, without a JVM."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from cdc_assets.lake.catalogs.catalog import lists_locations
from cdc_assets.lake.names import parse_identity
from cdc_assets.lake.tickets import FORGET, LakeTickets
from cdc_assets.model.findings import INCOMPLETE
from cdc_assets.model.forecast import forecast
from cdc_assets.model.forgetting import kept_out
from cdc_assets.model.gaps import gap_cause, gap_text, waiting_text
from cdc_assets.model.ledger_entries import TableState
from cdc_assets.model.progress import Life, State, source_of
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import HoldTable
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted
from cdc_assets.operations.opening import open_state, read_ledger
from cdc_assets.report.findings import FindingGroup, grouped
from cdc_assets.report.tables import TableStatus

if TYPE_CHECKING:
    from cdc_assets.lake import LakeState
    from cdc_assets.lake.lake_table import LakeTable
    from cdc_assets.ledger import Ledger
    from cdc_assets.model.cuts import Cut
    from cdc_assets.model.decisions import Decisions
    from cdc_assets.model.quarantine import QuarantinedRow
    from cdc_assets.planning.plan import Plan
    from cdc_assets.settings.config import ChangefeedSettings
    from cdc_assets.settings.lake import LakeSettings


_LOADING = (
    "no run that looked at it has ended. If the run was interrupted, run `cdc-assets apply` again: it goes on from "
    "what is applied."
)


def changefeeds_of(lake: LakeSettings, recorded: Iterable[str], only: str = "") -> list[str]:
    """Return the changefeeds that the ledger has `recorded` and those with tables in the lake, or `only` one of them.

    A catalog that lists its tables slowly is asked for them where none is recorded.
    """
    names = set(recorded)
    with open_state(lake, only) as state:
        if not names or lists_locations(state.catalog):
            names |= {name for name in state.changefeeds() if only in ("", name)}
    return sorted(names)


def known_tables(lake: LakeSettings, changefeed: str, namespace: str = "{schema}") -> list[TableId]:
    """Return the tables of a changefeed that runs have seen and that are not dropped; none before the first run.

    A table that waits for a name of another changefeed of the lake is not among them.
    """
    directory = lake.local_directory
    if not lake.ledger and (directory is None or not (directory / "ledger.db").exists()):
        return []
    with read_ledger(lake) as ledger:
        states = ledger.states()
    own_states = {state.name: state for state in states.get(changefeed, ()) if state.state is not State.DROPPED}
    own_tables = {
        state.name: other
        for other in sorted(states.keys() - {changefeed}, reverse=True)
        for state in states[other]
        if state.state is not State.DROPPED
    }
    disputed = [name for name, state in own_states.items() if name in own_tables and state.through < state.checkpoint]
    if disputed:
        with open_state(lake, changefeed, namespace) as held:
            owners = {name: held.owner(name) for name in disputed}
        lost = {name for name in disputed if (own_tables[name] if owners[name] is None else owners[name]) != changefeed}
        own_states = {name: state for name, state in own_states.items() if name not in lost}
    return sorted(own_states)


def quarantined_records(lake: LakeSettings, changefeed: str, *, closed: bool = False) -> tuple[QuarantinedRow, ...]:
    """Return the records of a changefeed that are in quarantine, or all that ever were, with their bytes.

    Reads the lake only, without a JVM.
    """
    from cdc_assets.features.quarantine.lake import Quarantine

    with open_state(lake, changefeed) as state:
        return Quarantine(state).read(raw=True, closed=closed)


def recorded_decisions(lake: LakeSettings, changefeed: str) -> Decisions:
    """Return the decisions of people about a changefeed. Reads the lake only, without a JVM."""
    with open_state(lake, changefeed) as state:
        return state.decisions.read()


def row_counts(lake: LakeSettings, settings: ChangefeedSettings) -> dict[str, int | None]:
    """Return the row count of each table of a changefeed, by the text of its life; from metadata, without a JVM."""
    with open_state(lake, settings.name, settings.namespace) as state:
        return state.row_counts()


def quarantined_counts(state: LakeState) -> dict[str, int]:
    """Return the number of records of each table in quarantine, by the text of its life."""
    if not any(namespace == state.places.own.main for namespace, _ in state.listed()):
        return {}  # nothing was ever quarantined, and reading further would import decoders
    from cdc_assets.features.quarantine.lake import Quarantine

    return {str(life): count for life, count in Quarantine(state).counts().items()}


def earliest_records(state: LakeState) -> dict[Life, list[Tso]]:
    """Return the positions, at the earliest, of the records of each table that wait in quarantine."""
    positions = dict[Life, list[Tso]]()
    if quarantined_counts(state):
        from cdc_assets.features.quarantine.lake import Quarantine

        for row in Quarantine(state).read():
            positions.setdefault(row.life, []).append(row.earliest)
    return positions


def unfinished_forgets(state: LakeState) -> dict[str, str]:
    """Return, by life of each table of which rows are being forgotten, what is said of runs that have not ended."""
    sentences_by_life: dict[str, list[str]] = {}
    for ticket in LakeTickets(state, FORGET).tickets():
        if ticket.table:
            state_of_it = (
                f"and stopped at {ticket.heard} before all was done. Run"
                if ticket.stopped
                else f"and has not ended; it was last heard of at {ticket.heard}. If it was killed, run"
            )
            sentences_by_life.setdefault(str(parse_identity(ticket.life)), []).append(
                f"{counted(ticket.keys, 'key')} of {ticket.table}: a run that forgets their rows (cdc-assets forget) "
                f"began at {ticket.since} {state_of_it} the same command again: it finishes that. Where nobody has the "
                f"keys any more, end it without them: cdc-assets forget {shlex.quote(ticket.table)} --abandon."
            )
    return {life: "\n".join(sentences) for life, sentences in sentences_by_life.items()}


def _by_row(unfinished: Mapping[str, str], lives: Sequence[str]) -> dict[str, str]:
    """Return the sentences on source tables by the lives under which they are shown; one has no row without mirror."""
    return {
        next(
            (shown_life for shown_life in lives if shown_life == life),
            next((shown_life for shown_life in lives if source_of(shown_life) == life), life),
        ): text
        for life, text in unfinished.items()
    }


def lake_status(lake: LakeSettings, only: str = "", fidelity: bool = False) -> list[TableStatus]:
    """Return every table of the lake and of its runs, by changefeed and name. Reads metadata only, without a JVM.

    A table that the ledger does not know is loading: its first run was interrupted or still works. With
    `only`, a changefeed's name, those of other changefeeds are left out and not read. The columns' fidelity is included
    if `fidelity` is set.
    """
    with read_ledger(lake) as ledger:
        states = {name: tables for name, tables in ledger.states().items() if only in ("", name)}
        accounts = {changefeed: ledger.accounts(changefeed) for changefeed in states}
        fidelity_by_feed = {changefeed: ledger.fidelities(changefeed) if fidelity else {} for changefeed in states}
    rows: list[TableStatus] = []
    for changefeed in changefeeds_of(lake, states, only):
        tables = states.get(changefeed, ())
        windows = accounts.get(changefeed, {})
        with open_state(lake, changefeed) as state:
            lake_tables = {
                str(life): lake_table for life, lake_table in state.tables().items() if lake_table.name is not None
            }
            waiting = quarantined_counts(state)
            unfinished = _by_row(unfinished_forgets(state), [table.life for table in tables])
            cuts, forgotten = cuts_of(state), kept_out(state.decisions.read())
        labels = {life: lake_table.label.progress.through for life, lake_table in lake_tables.items()}
        # A run that was killed leaves the ledger behind the tables. One that is held may be beyond rows that came late.
        tables = tuple(
            replace(table, through=through, checkpoint=max(table.checkpoint, through))
            if (through := labels.get(table.life, 0)) > table.through
            and (table.by_step or table.state is not State.HELD)
            else table
            for table in (*tables, *_loading_tables(lake_tables, tables))
        )
        now = time.time()
        for table in tables:
            recorded = {field.name: getattr(table, field.name) for field in fields(table)}
            accounted = windows.get(table.life, ())
            status = TableStatus(
                **recorded,
                changefeed=changefeed,
                quarantined=waiting.get(table.life, 0),
                fidelity=fidelity_by_feed.get(changefeed, {}).get(table.life, ()),
                stages=accounted[-1].lag if accounted else None,
                miscounted=next((window.mismatch for window in accounted if window.mismatch), ""),
                cuts=tuple(cut.name for cut in cuts if any(str(taken.life) == table.life for taken in cut.taken)),
                forecast=forecast(table.points, table.checkpoint, now) if table.state is State.APPLIED else None,
                unfinished=unfinished.get(table.life, ""),
                excluded_keys=tuple(dict.fromkeys(key.text for key in forgotten if key.is_of(table.life, table.name))),
            )
            if (lake_table := lake_tables.get(table.life)) is not None:
                status = replace(status, rows=lake_table.rows, marks_deletes=lake_table.layout.marks_deletes)
                if (gap := lake_table.gap) is not None:
                    waits = waiting_text(table.complete_by) if table.complete_by and table.state.stopped else ""
                    status = replace(
                        status,
                        incomplete=waits or gap_text(gap, lake_table.life, lake_table.base),
                        incomplete_cause=waits or gap_cause(gap, lake_table.life, lake_table.base),
                        accepted=gap.accepted,
                        complete_by="",
                    )
            rows.append(status)
    return rows


def _loading_tables(lake_tables: Mapping[str, LakeTable], tables: Sequence[TableState]) -> Iterator[TableState]:
    """Yield the state of each table of the lake, by the text of its life, that is not among those of ended runs."""
    checkpoint = max((table.checkpoint for table in tables), default=0)
    for life in sorted(lake_tables.keys() - {table.life for table in tables}):
        lake_table = lake_tables[life]
        if lake_table.name is not None:
            through = lake_table.label.progress.through
            yield TableState(
                lake_table.name,
                lake_table.label.ddl,
                through,
                State.LOADING,
                _LOADING,
                life=life,
                checkpoint=checkpoint and max(checkpoint, through),
            )


def stopped_at_rows(lake: LakeSettings, changefeed: str, planned: Plan) -> list[TableState]:
    """Return tables that stopped in a step of the plan, as the ledger has them: a plan reads no rows, a run did.

    A table that has moved since is not among them.
    """
    held = {step.life for step in planned.steps if isinstance(step, HoldTable)}
    due = {str(step.life): planned.applied.get(step.life) for step in planned.steps if step.life not in held}
    with read_ledger(lake) as ledger:
        states = ledger.states().get(changefeed, ())
    return [
        state
        for state in states
        if state.state.stopped
        and state.by_step
        and state.life in due
        and ((applied := due[state.life]) is None or applied.progress.through <= state.through)
    ]


def forgo_missing(ledger: Ledger, changefeed: str, path: str) -> bool:
    """Record a file that is missing between others as one without rows; return False where that is none."""
    directory = path.rpartition("/")[0]
    missing = (finding.detail for finding in ledger.findings(changefeed) if finding.rule == "files-missing")
    beside = next((entry for entry in ledger.files(changefeed) if entry.path.startswith(f"{directory}/")), None)
    if beside is None or not any(detail.startswith(f"{directory}/") for detail in missing):
        return False
    ledger.record_unread(changefeed, parse_identity(beside.life), path, "", 0)
    return True


def lake_cuts(lake: LakeSettings) -> dict[str, tuple[Cut, ...]]:
    """Return the cuts of each changefeed, by position. Reads the ledger and the lake's own tables, without a JVM."""
    with read_ledger(lake) as ledger:
        names = tuple(ledger.states())
    cuts = {}
    for name in names:
        with open_state(lake, name) as state:
            cuts[name] = cuts_of(state)
    return cuts


def cuts_of(state: LakeState) -> tuple[Cut, ...]:
    """Return the cuts of a changefeed, by position."""
    if (state.places.own.of("cuts"), state.changefeed) not in state.listed():
        return ()  # reading further would import what reads Parquet
    from cdc_assets.features.cuts.lake import IcebergCuts

    return IcebergCuts(state).cuts()


def lake_warnings(lake: LakeSettings) -> dict[str, tuple[FindingGroup, ...]]:
    """Return the findings about each changefeed, by cause, as of its newest run. Reads the ledger only."""
    with read_ledger(lake) as ledger:
        names = sorted({*ledger.states(), *ledger.with_findings()})
        feed_findings = {name: ledger.findings(name) for name in names}
    return {
        name: grouped((finding for finding in findings if finding.rule != INCOMPLETE), ())
        for name, findings in feed_findings.items()
    }
