"""Tables as they were at a moment: which snapshot of each, how close that is, and how engines read it.

A snapshot is labelled with the position through which it is applied, so the newest one at or below a moment is the
closest that a table has. It has all changes through then if its label is the moment itself, if it is the table's of a
cut made then, or if it is the newest one and nothing was due between its label and the moment. A table of all states
has them at every moment that it covers, in the columns that the source had then. It is exactly the state of then if the
table lacks nothing there, either (`TableCondition`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cdc_assets.errors import BadSettings
from cdc_assets.features.kinds.decoding import own_columns
from cdc_assets.lake.label import Label
from cdc_assets.lake.lake_table import REBUILD, REPAIR, REPLAY, parse_lives
from cdc_assets.model.cuts import Cut
from cdc_assets.model.gaps import TableCondition, lacking_text
from cdc_assets.model.layout import LIVING
from cdc_assets.model.progress import Life, Phase, Whole
from cdc_assets.model.tso import Tso, tso_time
from cdc_assets.operations.engines import connections, snapshot_statements
from cdc_assets.operations.moments import parse_moment
from cdc_assets.operations.named import is_called, left_out, no_such_table
from cdc_assets.operations.opening import open_state, read_ledger
from cdc_assets.operations.status import cuts_of, earliest_records

if TYPE_CHECKING:
    from cdc_assets.lake import LakeState
    from cdc_assets.lake.lake_table import LakeTable
    from cdc_assets.model.ledger_entries import TableState
    from cdc_assets.settings.config import ChangefeedSettings
    from cdc_assets.settings.lake import LakeSettings


@dataclass(frozen=True, slots=True)
class AsOfTable:
    """A table at a moment, by its name then: its snapshot, and the position at which that stands.

    `exact` says that nothing of the table lies between that position and the moment, and that it lacks nothing; else
    `reason` says what may be missing, and `accepted` whether a person lets the table go on so. `read` has a statement
    by engine. Without a snapshot, `reason` says why there is none. `converted` are the columns, with their types then,
    whose values are shown in a type that they got later.
    """

    table: str
    identity: str
    lake_table: str
    snapshot_id: int | None
    position: Tso | None
    position_time: str
    exact: bool
    reason: str
    read: Mapping[str, str]
    converted: Mapping[str, str] = field(default_factory=dict)
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class PastState:
    """The tables of a changefeed at a moment, and by engine the lines that connect it before the statements."""

    changefeed: str
    at: Tso
    time: str
    tables: tuple[AsOfTable, ...]
    connect: Mapping[str, str] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Return whether each table is there as it was."""
        return all(table.exact for table in self.tables)

    @property
    def accepted(self) -> bool:
        """Return whether each table is there as it was, but for what a person lets it go on without."""
        return all(table.exact or table.accepted for table in self.tables)


@dataclass(frozen=True, slots=True)
class _Standing:
    """A snapshot of a table and its position: it has everything below that, and is `whole` if all rows at it too.

    `lacks` says what it lacks, as is known by now, `lacked_rows` that the table was incomplete when it was written.
    """

    position: Tso
    snapshot_id: int
    whole: bool
    newest: bool = False
    lacks: str = ""
    lacked_rows: bool = False

    @classmethod
    def of(cls, label: Label, snapshot_id: int, newest: bool, lacks: str = "") -> _Standing:
        """Return the state of a labelled snapshot; one with columns of a later DDL is not as the table was."""
        whole = label.progress.phase is Phase.ROWS and label.ddl <= label.progress.tso
        return cls(label.progress.tso, snapshot_id, whole, newest, lacks, label.lacks_rows and not newest)


def as_of(
    lake: LakeSettings,
    changefeed: str,
    moment: str,
    tables: Sequence[str] = (),
    namespace: str = "{schema}",
    settings: ChangefeedSettings | None = None,
) -> PastState:
    """Return these tables (all, when none is named) at a moment: a TSO, a time, or the name of a cut.

    A table is meant by its identity or the name that it had then; a text that was no table's then is a present name.
    `settings` are those of the changefeed where they are read: they may leave a table out.
    Reads the ledger and the lake's metadata, without a JVM. Raises BadSettings for a table, a changefeed or a moment
    that is none, for one from before the lake begins, with since when it has its tables, and for one at which all of
    the tables were dropped.
    """
    with read_ledger(lake) as ledger:
        feeds = ledger.states()
        states = {table_state.life: table_state for table_state in feeds.get(changefeed, ())}
        journal = ledger.journal(changefeed)
    with open_state(lake, changefeed, namespace) as state:
        cuts = cuts_of(state)
        at = parse_moment(moment, {cut.name: cut.at for cut in cuts})
        lake_tables = state.tables()
        if not lake_tables:
            others = ", ".join(sorted(set(feeds) - {changefeed}))
            ways = (
                f"it has tables of {others}. Give --name"
                if others
                else "it has none of any other. Apply the changefeed first"
            )
            raise BadSettings(f'the lake has no table of a changefeed called "{changefeed}"; {ways}.')
        names_then = {entry.life: entry.name for entry in journal if entry.tso <= at}  # oldest first
        shown = {
            life: names_then.get(str(life), str(table.name or life.born_as)) for life, table in lake_tables.items()
        }
        names = {life: shown[life] for life, table in lake_tables.items() if _is_there(table, at)}
        meant = (life for text in tables for life in _meant(text, lake_tables, names, settings))
        chosen = set(meant) if tables else set(names)
        chosen = chosen or {life for life, table in lake_tables.items() if table.gone_since(at) is not None}
        states_then, begins, aside = list[AsOfTable](), list[Tso](), earliest_records(state)
        for life in sorted(chosen, key=lambda chosen_life: (shown[chosen_life], chosen_life)):
            table = lake_tables[life]
            standing = sorted(_standings(state, table, cuts), key=lambda past_state: past_state.position)
            begins += [table.begins or standing[0].position] if standing else []
            states_then.append(
                _table(state, table, shown[life], at, standing, states.get(str(life)), aside.get(life, ()))
            )
    if not any(table.snapshot_id is not None for table in states_then):
        nothing = f"the lake has no state of {', '.join(tables) or 'any table'} as of {at} ({tso_time(at)})"
        dropped = [since for life in chosen if (since := lake_tables[life].gone_since(at)) is not None]
        if dropped and len(dropped) == len(states_then):
            last = max(dropped)
            raise BadSettings(f"{nothing}: all were dropped by {last} ({tso_time(last)}). Give a moment before that.")
        first = min(begins or (life.version for life in lake_tables))
        raise BadSettings(
            f"{nothing}: {'they begin' if begins else 'its first table begins'} at {first} ({tso_time(first)}). Older "
            "snapshots expired, or the tables did not exist yet; cuts keep states for longer, and tables of all states "
            "(scd2) keep every one."
        )
    return PastState(changefeed, at, tso_time(at), tuple(states_then), connections(lake))


def _is_there(table: LakeTable, at: Tso) -> bool:
    """Return whether the source had a table at a position, whatever it is called now."""
    return table.life.version <= at and table.gone_since(at) is None


def _meant(
    text: str, lake_tables: Mapping[Life, LakeTable], names: Mapping[Life, str], settings: ChangefeedSettings | None
) -> set[Life]:
    """Return the table of that name then or identity, else those of that name now or first; raises BadSettings."""
    lives = {life for life in lake_tables if is_called(text, (life, names.get(life)))}
    lives = lives or {life for life, table in lake_tables.items() if is_called(text, (table.name, life.born_as))}
    if not lives:
        present_names = [table.name for table in lake_tables.values()]
        absence = left_out(text, [settings] if settings is not None else [], present_names)
        raise BadSettings(absence) if absence else no_such_table(text, present_names)
    return lives


def _standings(state: LakeState, table: LakeTable, cuts: Sequence[Cut]) -> Iterator[_Standing]:
    """Yield the states that a table still has: its labelled snapshots, and those of cuts."""
    file, newest, lacks = state.file(table.metadata_location), None, ""
    correction, corrected_at, rebuilt = "", -1, False
    has_past = table.life.kind == "scd2"  # all that comes later is in the newest states, at its position
    for snapshot in file.lineage(across_rewrites=True):
        label = Label.parse(snapshot.summary)
        if label is None:
            continue
        label = replace(label, lacks_rows=label.lacks_rows and not rebuilt)
        newest = snapshot.snapshot_id if newest is None else newest
        if correction and label.progress.tso == corrected_at:  # it is no window, which has records of its own only
            lacks = f"{correction} came into the table after the snapshot of then"
        yield _Standing.of(label, snapshot.snapshot_id, snapshot.snapshot_id == newest, lacks)
        marks = (text for mark, text in _CORRECTIONS.items() if mark in snapshot.summary and not has_past)
        correction, corrected_at = next(marks, ""), label.progress.tso
        rebuilt = rebuilt or (has_past and REBUILD in snapshot.summary)
    if newest is None and table.snapshot_id is not None:  # only maintenance's note says how far it is
        newest = table.snapshot_id
        yield _Standing.of(table.label, newest, True)
    for cut in cuts:
        for cut_table in cut.taken:
            if (
                cut_table.life == table.life
                and cut_table.snapshot_id is not None
                and cut_table.snapshot_id in file.snapshots
            ):
                yield _Standing(cut.at, cut_table.snapshot_id, True, cut_table.snapshot_id == newest, cut_table.lacks)


_CORRECTIONS = {REPLAY: "a record of the quarantine", REPAIR: "a repair"}
"""Commits that bring what a table should have had earlier, by the properties of their snapshots."""


def _table(
    state: LakeState,
    table: LakeTable,
    name: str,
    at: Tso,
    standing: Sequence[_Standing],
    recorded: TableState | None,
    aside: Sequence[Tso],
) -> AsOfTable:
    """Return a table as of a moment: `recorded` is its newest state in the ledger, `aside` as in `TableCondition`."""
    life, through = table.life, 0 if recorded is None else recorded.through
    shown = (name, str(life), ".".join(table.identifier))
    best = max(
        (past_state for past_state in standing if past_state.position <= at),
        key=lambda past_state: (past_state.position, past_state.whole),
        default=None,
    )
    absence, reading = _absence(table, at), None
    if not absence:
        complete = best is not None and ((best.position == at and best.whole) or (best.newest and through >= at))
        if life.kind == "scd2":
            reading = _among_states(state, table, at, through, best if complete else None)
        if reading is None and best is not None:
            reading = _in_snapshot(state, table, best, complete=complete)
    if reading is None:
        begins = min((past_state.position for past_state in standing), default=life.version)
        absence = absence or f"its states begin at {begins} ({tso_time(begins)})"
        return AsOfTable(*shown, None, None, "", False, absence, {})
    corrected, by_feed = "" if best is None else best.lacks, table.gap is None
    by_feed = by_feed and recorded is not None and recorded.complete_by != Whole.STATEMENT
    if best is not None and best.lacked_rows and by_feed:
        corrected = corrected or "it was incomplete then, and got rows from before that later"
    lacks = TableCondition(
        life=life,
        gap=table.gap,
        base=table.base,
        hold=recorded.reason if recorded is not None and recorded.state.stopped and through < at else "",
        aside=aside,
        repaired=table.repaired,
        since=table.since,
        corrected=corrected,
    ).deficits(at)
    reason = "; ".join(filter(None, (lacking_text(lacks), reading.reason)))
    accepted = not reading.reason and all(deficit.accepted for deficit in lacks)
    return AsOfTable(
        *shown,
        reading.snapshot_id,
        reading.position,
        tso_time(reading.position),
        not reason,
        reason,
        reading.read,
        reading.converted,
        bool(reason) and accepted,
    )


def _absence(table: LakeTable, at: Tso) -> str:
    """Return the reason why the lake has no such table at a moment, "" if it may have one."""
    if (gone := table.gone_since(at)) is not None:
        return f"it was dropped at {gone}"
    if table.begins is not None and min(at, table.label.progress.tso) < table.begins:
        return (
            f"it begins at {table.begins} ({tso_time(table.begins)}), with the RENAME that brought its source table "
            "under its rule in the setting history"
        )
    return ""


def _in_snapshot(state: LakeState, table: LakeTable, standing: _Standing, *, complete: bool) -> _Reading:
    """Return the reading of a snapshot; one that is not complete may miss changes after its position."""
    snapshot = state.file(table.metadata_location).snapshots.get(standing.snapshot_id)
    condition = LIVING if snapshot is not None and snapshot.marks_deletes else ""
    condition = _open_at(standing.position) if table.life.kind == "scd2" else condition
    read = snapshot_statements(
        state.settings, table.identifier, table.metadata_location, standing.snapshot_id, condition
    )
    return _Reading(standing.snapshot_id, standing.position, "" if complete else _may_miss(standing.position), read)


def _may_miss(position: Tso) -> str:
    return f"changes after {position} ({tso_time(position)}) may be missing"


def _open_at(position: Tso) -> str:
    return f"_cdc_start_ts <= {position} AND (_cdc_end_ts IS NULL OR _cdc_end_ts > {position})"


@dataclass(frozen=True, slots=True)
class _Reading:
    """A reading of a table: a snapshot, the position that its rows stand at, and `reason` if that is not exact."""

    snapshot_id: int
    position: Tso
    reason: str
    read: Mapping[str, str]
    converted: Mapping[str, str] = field(default_factory=dict)


def _among_states(
    state: LakeState, table: LakeTable, at: Tso, through: Tso, exact: _Standing | None
) -> _Reading | None:
    """Return the reading of a table of states as of a moment, or as far as it is applied; None where it begins later.

    The columns are those that the source had then, by their names in the source, and those of the table itself. States
    that track some columns have the values that others had then in a snapshot that is `exact`, if its columns are those
    of now.
    """
    since = table.life.version if table.since is None else table.since
    position = min(at, max(through, table.label.rows_from))
    if table.snapshot_id is None or position < since:
        return None
    snapshot, reason = table.snapshot_id, "" if position == at else _may_miss(position)
    lives = parse_lives(state.file(table.metadata_location).properties)
    if table.label.overwrites and not reason:
        if exact is not None and (exact.newest or not any(column_life.changed_after(at) for column_life in lives)):
            snapshot = exact.snapshot_id
        else:
            reason = "columns that are not tracked have the last values of each state, which may be later"
    lived = [column_life for column_life in lives if column_life.was_there(position)]
    then = {column_life.column: column_life.source for column_life in lived}
    twice = {name for name, count in Counter(map(str.lower, then.values())).items() if count > 1}  # after a rename
    then = {name: name if source.lower() in twice else source for name, source in then.items()}
    columns = {**then, **{column.name: column.name for column in own_columns(table.life.kind)}}
    is_unambiguous = len(then) == len({column_life.column for column_life in lives}) and all(
        name == shown for name, shown in then.items()
    )
    read = snapshot_statements(
        state.settings,
        table.identifier,
        table.metadata_location,
        snapshot,
        _open_at(position),
        None if is_unambiguous else columns,
    )
    former = ((then[column_life.column], column_life.former_type(position)) for column_life in lived)
    return _Reading(snapshot, position, reason, read, {name: text for name, text in former if text is not None})
