"""The tables of a changefeed's files, and those of a lake, for a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc_assets.model.findings import INCOMPLETE, Severity
from cdc_assets.model.forecast import Forecast, Pace
from cdc_assets.model.gaps import gap_cause, gap_text
from cdc_assets.model.ledger_entries import TableState
from cdc_assets.model.offsets import OffsetRange
from cdc_assets.model.progress import State
from cdc_assets.model.schema import Column
from cdc_assets.model.splits import DataFile, Listing
from cdc_assets.model.table_history import Held, Kept
from cdc_assets.model.tso import Tso, seconds_between, tso_time
from cdc_assets.model.window_metrics import Lag
from cdc_assets.model.wording import counted
from cdc_assets.report.findings import FindingGroup

if TYPE_CHECKING:
    from cdc_assets.model.table_history import History, TableHistory
    from cdc_assets.types.fidelity import ColumnFidelity


@dataclass(frozen=True, slots=True)
class PartitionText:
    """One partition. Offsets are those of the next message: at the log's end, to be landed, to be applied.

    `behind` counts offsets from `landed` to `end`, `mark` is the greatest mark that was landed, 0 for none.
    """

    topic: str
    partition: int
    end: int
    landed: int
    applied: int
    behind: int
    mark: Tso
    mark_time: str


@dataclass(frozen=True, slots=True)
class Inspection:
    """The contents of a changefeed's prefix, or of its topics by `partitions`, for a person."""

    changefeed: str
    uri: str
    checkpoint: Tso
    checkpoint_time: str
    tables: tuple[TableText, ...]
    ignored: Mapping[str, int] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[FindingGroup, ...] = ()
    partitions: tuple[PartitionText, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether nothing of it stops, is held or is incomplete."""
        graves = (
            finding
            for finding in self.findings
            if finding.severity is not Severity.WARNING or finding.rule == INCOMPLETE
        )
        return not any(graves) and not any(table.reason for table in self.tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus(TableState):
    """One table of the lake for a person: its standing after the last run, and what the lake and the ledger add.

    `rows` is None for a table that does not exist; with `marks_deletes` deleted rows are among them, marked.
    `quarantined` counts records that wait in quarantine; `fidelity` is empty before a run has looked at the table.
    `stages` is the lag of the newest applied change by stage, None before one was applied or where rows carry no
    commit-ts; `miscounted` says which window's rows did not add up. `incomplete` says which rows from before the feed
    are missing, `incomplete_cause` the same in words that name no table, and `accepted` that a person let the table go
    on without them. `cuts` are the names of those that have the table. `forecast` says when it will have caught up,
    `unfinished` of which rows it is not known that they are forgotten, and `excluded_keys`, by decision, how many
    forgotten keys stay out.
    """

    changefeed: str
    rows: int | None = None
    quarantined: int = 0
    fidelity: tuple[ColumnFidelity, ...] = ()
    stages: Lag | None = None
    miscounted: str = ""
    incomplete: str = ""
    incomplete_cause: str = ""
    cuts: tuple[str, ...] = ()
    forecast: Forecast | None = None
    unfinished: str = ""
    excluded_keys: tuple[str, ...] = ()
    accepted: bool = False
    marks_deletes: bool = False

    @property
    def table(self) -> str:
        """The table's name as text."""
        return str(self.name)

    @property
    def through_time(self) -> str:
        """The time of `through` as text, "" before anything was applied."""
        return tso_time(self.through) if self.through > 0 else ""

    @property
    def behind_checkpoint_seconds(self) -> float | None:
        """Time from `through` to the newest checkpoint seen; None where one of the two is not known."""
        return seconds_between(self.through, self.checkpoint) if self.through > 0 and self.checkpoint else None

    @property
    def check(self) -> str:
        """State of the table in one word: passed, failed, or "" before anything was applied."""
        if self.state.stopped:
            return "failed"
        return "passed" if self.through > 0 and self.state is not State.LOADING else ""

    @property
    def advanced_at(self) -> float | None:
        """End of the newest run that brought it forward, in seconds since 1970."""
        return self.points[-1][0] if self.points else None

    @property
    def left_out(self) -> tuple[str, ...]:
        """Rows that are left out on purpose: those of forgotten keys, and what a person let the table differ in."""
        accepted = ("what the source has otherwise, as a person accepted",) if self.accepted else ()
        return (*self.excluded_keys, *accepted)

    @property
    def set_aside(self) -> str:
        """Describe the table's records in quarantine in a sentence; "" without any."""
        records = counted(self.quarantined, "record is", "records are")
        return f"{records} in quarantine, see `cdc-assets quarantine`" if self.quarantined else ""

    @property
    def alarms(self) -> Mapping[str, int]:
        """Numbers that are 0 while nothing is to be done, by the names that metrics have for them."""
        return {
            "incomplete": int(bool(self.incomplete) and not self.accepted),
            "quarantined_records": self.quarantined,
            "falling_behind": int(self.forecast is not None and self.forecast.pace == Pace.FALLING_BEHIND),
        }

    @property
    def wants_a_person(self) -> bool:
        """Return whether something remains that no run can fix by itself."""
        lacking = self.incomplete and not self.accepted
        return self.state.stopped or bool(self.quarantined or self.miscounted or lacking or self.unfinished)


@dataclass(frozen=True, slots=True)
class TableText:
    """One table by a changefeed's files: versions are schema files, bytes those of data files.

    Of topics `files` counts ranges of messages, and bytes are those of the messages in them.

    `incomplete` says which rows from before the changefeed are missing, "" for a complete table.
    """

    table: str
    born: Tso
    state: str
    key: tuple[str, ...]
    columns: int
    versions: int
    newest_version: Tso
    files: int
    file_bytes: int
    ddl: tuple[str, ...]
    reason: str = ""
    fidelity: tuple[ColumnFidelity, ...] = ()
    incomplete: str = ""


def column_type(column: Column) -> str:
    """Return the column's source type as MySQL writes it, for a masked one without its members."""
    sizes = [str(size) for size in (column.precision, column.scale) if size is not None]
    if column.type in ("DATETIME", "TIMESTAMP", "TIME"):
        sizes = [str(column.scale)] if column.scale else []
    if column.type in ("ENUM", "SET") and column.elems is not None and column.mask is None:
        sizes = ["'" + elem.replace("'", "''") + "'" for elem in column.elems]
    if column.type.endswith(("TEXT", "BLOB")):
        sizes = []
    name = column.type + (f"({','.join(sizes)})" if sizes else "")
    return name + (" UNSIGNED" if column.unsigned else "")


def describe_tables(listing: Listing, history: History) -> list[TableText]:
    """Describe every table in the schema files, with the data files under its names."""
    return [_table(table, listing, history) for table in sorted(history.lives.values(), key=lambda t: t.life)]


def _table(table: TableHistory, listing: Listing, history: History) -> TableText:
    from cdc_assets.types.fidelity import column_fidelity  # `status` reads this module, and needs no pyarrow

    name = table.name or table.names[-1][0]
    hold = next((event.reason for event in table.events if isinstance(event, Held)), "")
    versions = {event.at for event in table.events}
    files = [
        file
        for file in listing.data_files
        if any(
            name_there.folded == n.folded and since <= file.version < until
            for name_there, _ in history.decoding.get((file.root, file.version), ())
            for n, since, until in table.names
        )
    ]
    sizes = [*(file.size for file in files if file.messages is None), *ranges_of(files).values()]
    return TableText(
        str(name),
        table.life.version,
        _state(table),
        table.schema.key,
        len(table.schema.columns),
        len(versions),
        max(versions),
        len(sizes),
        sum(sizes),
        tuple(f"{event.at} {event.file.query}" for event in table.events if event.file.query),
        hold,
        column_fidelity(table.schema, table.changes, table.inferred, table.unsent),
        _incomplete(table),
    )


def ranges_of(files: Iterable[DataFile]) -> dict[OffsetRange, int]:
    """Return the ranges of messages that splits of topics are, with their bytes: one may be of several versions."""
    return {file.messages: file.size for file in files if file.messages is not None}


def _state(table: TableHistory) -> str:
    if any(isinstance(event, Held) for event in table.events):
        return "held"
    return "dropped" if table.name is None else "kept" if isinstance(table.events[-1], Kept) else "live"


def _incomplete(table: TableHistory) -> str:
    return gap_text(table.gap, table.life) if table.gap is not None and table.name is not None else ""


def incomplete_tables(history: History) -> dict[str, str]:
    """Return, by name of each table that lacks rows which nobody accepts to be missing, the sentence on these."""
    lives = history.lives.values()
    lacking = (table for table in lives if table.gap is not None and not table.gap.accepted)
    return {str(table.name): text for table in lacking if (text := _incomplete(table))}


def incomplete_causes(history: History) -> dict[str, str]:
    """Return, by name of each table that lacks rows, why, in words that name no table: equal for one cause."""
    return {
        str(table.name): gap_cause(table.gap, table.life)
        for table in history.lives.values()
        if table.gap is not None and table.name is not None
    }
