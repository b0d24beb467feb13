"""Find fillings of tables that are older than their topics: a connector's snapshot, or a scan of YDB.

    Fillings(landed, …).of(file, event)   a schema file, the DDL behind it -> its Filling
    without_rows(landed)                  warnings of tables of which a connector's newest snapshot has no row

A connector marks the first and the last row of each table in a snapshot: from the one to the other all rows were there
when it was taken. A table of one row has the mark of the last one alone, but the first table that of the first: it is
whole when the snapshot has ended. Connectors before Debezium 2 mark the last row
of all tables only. Of an empty table there is no row, and with MySQL its CREATE TABLE, as of any table of the server
whose rows are not sent: then the snapshot has to have ended. Which rows came, landing has noted (`SnapshotRow`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from cdc_assets.ddl import CreateTableStatement, Truncate, statement
from cdc_assets.formats import MessageOptions
from cdc_assets.formats.messages import SNAPSHOT_DDL, is_of_snapshot
from cdc_assets.model.landed import INCREMENTAL, EventKind, Landed, LandedEvent, SnapshotRow
from cdc_assets.model.offsets import Partition
from cdc_assets.model.progress import Filling, Lack, Whole
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import SchemaFile, SentRows
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted, first_of
from cdc_assets.sources.topics.topic_options import SnapshotOptions


@dataclass(slots=True)
class _Snapshot:
    """Evidence of one table in one snapshot of a source: the positions of the rows that show it.

    `partition` is that of the first row where it came, else of another one. `is_first` says that the snapshot begins
    with this table.
    """

    source: str
    place: str
    begin: Tso
    partition: Partition
    rows: dict[SnapshotRow, Tso] = field(default_factory=dict)
    is_first: bool = False


class Fillings:
    """Sources of the earlier rows of a feed's tables, as far as the feed is landed."""

    def __init__(
        self, landed: Landed, messages: MessageOptions, snapshots: SnapshotOptions, scanned: Collection[TableId] = ()
    ) -> None:
        self._options, self._scanned = snapshots, scanned
        self._of_connector, self._scans = messages.in_source_order, not messages.sends_again
        self._by_table: dict[TableId, list[_Snapshot]] = {}
        self._places = {(event.partition, event.offset) for event in landed.events if event.kind is EventKind.SNAPSHOT}
        self._starts = frozenset(landed.starts)
        self._ended: dict[tuple[str, str], Tso] = {}
        self._marked: set[tuple[str, str]] = set()
        newest: dict[tuple[TableId, str, str], _Snapshot] = {}
        for event in landed.events:
            if event.kind is EventKind.SNAPSHOT and event.table is not None:
                of, word = (event.source, event.source_position), SnapshotRow(event.query)
                key = (event.table.folded, *of)
                if word is SnapshotRow.ANEW or key not in newest:
                    newest[key] = _Snapshot(*of, event.position, event.partition)
                    self._by_table.setdefault(event.table.folded, []).append(newest[key])
                snapshot = newest[key]
                if word is SnapshotRow.BEGIN:
                    word, snapshot.is_first = SnapshotRow.FIRST, True
                snapshot.rows[word] = event.position
                if word is SnapshotRow.FIRST:
                    snapshot.partition = event.partition
                if word is SnapshotRow.END:
                    self._ended[of] = event.position
                elif word in (SnapshotRow.FIRST, SnapshotRow.LAST):
                    self._marked.add(of)
        self._began = {table.folded: at for table, at in sorted(landed.began.items(), key=lambda item: -item[1])}
        self._sources: dict[TableId, set[str]] = {}
        self._streamed: set[str] = set()
        self._read_apart: set[TableId] = set()
        for stream, end in landed.streams.items():
            self._sources.setdefault(stream.table.folded, set()).add(stream.source.removesuffix(INCREMENTAL))
            if stream.source.endswith(INCREMENTAL):
                self._read_apart.add(stream.table.folded)
            if end.newest and not is_of_snapshot(end.newest):
                self._streamed.add(stream.source)

    def of(self, file: SchemaFile, event: LandedEvent | None) -> Filling:
        """Return the filling of the table of a file from there on; `event` is the DDL behind it, None for none."""
        if self._scans:
            table = file.table.folded
            scanned = bool(self._options.takes_rows) or table in self._scanned or table in self._by_table
            return Filling(Lack.SCAN, Whole.SCAN, *(2 * (file.version,) if scanned else ()))
        if not self._of_connector:
            return Filling(Lack.TOPICS)
        file_statement = statement(file)
        if (
            isinstance(file_statement, CreateTableStatement)
            and event is not None
            and event.source_position == SNAPSHOT_DDL
        ):
            return self._snapshot_of(file, event.source)
        if isinstance(file_statement, (CreateTableStatement, Truncate)) and self.sent(file.table).left_out:
            return Filling(Lack.LEFT_OUT)
        if (
            isinstance(file_statement, Truncate)
            and event is not None
            and (event.partition, event.offset) in self._places
        ):
            return self._snapshot_of(file)
        return self._snapshot_of(file) if event is None else Filling(Lack.SNAPSHOT)

    def sent(self, table: TableId) -> SentRows:
        """Return the rows of a table that the connector sends, and has sent under that name."""
        captured = self._options.changes.captures(table) if self._options.is_listed else None
        return SentRows(captured, self._began.get(table.folded))

    def _snapshot_of(self, file: SchemaFile, created_by: str | None = None) -> Filling:
        """Return the filling of a table by its next snapshot; `created_by` is the source of its CREATE in one."""
        if self._options.takes_rows is False or _is_listed(file.table, self._options.selected):
            return Filling(Lack.SETTINGS, Whole.SNAPSHOT)
        snapshots = list(self._next(file))
        whole = [(through, snapshot) for snapshot in snapshots if (through := self._through(snapshot)) is not None]
        if whole:
            through, first_snapshot = min(whole, key=lambda pair: pair[0])
            return Filling(Lack.RUNNING, Whole.SNAPSHOT, self._since(first_snapshot), through)
        if snapshots:
            ends = {SnapshotRow.LAST, SnapshotRow.END} & snapshots[0].rows.keys()
            return Filling(Lack.BEGINNING if ends else Lack.RUNNING, Whole.SNAPSHOT)
        if created_by is None:
            return Filling(Lack.LATER if self._is_later(file) else Lack.SNAPSHOT, Whole.SNAPSHOT)
        if not _is_captured(file.table, self._options):
            return Filling(Lack.SETTINGS, Whole.SNAPSHOT)
        is_empty = self._is_through(created_by, file.version)
        return Filling(Lack.CREATED, Whole.SNAPSHOT, *(2 * (file.version,) if is_empty else ()))

    def _is_later(self, file: SchemaFile) -> bool:
        """Return whether a table first came after the snapshots of its sources, and nobody has its rows read apart.

        A connector that takes snapshots, as its configuration says, and streams changes without having sent a row of
        one, found no row.
        """
        sources = self._sources.get(file.table.folded, set())
        ended = {source for (source, _), at in self._ended.items() if at < file.version}
        if self._options.takes_rows:
            shown = {snapshot.source for snapshots in self._by_table.values() for snapshot in snapshots}
            ended |= self._streamed - shown
        return bool(sources) and sources <= ended and file.table.folded not in self._read_apart

    def _next(self, file: SchemaFile) -> Iterator[_Snapshot]:
        """Yield the first snapshot of each source with rows of a table behind a file.

        One behind rows of another source does not say which of those are gone since.
        """
        table, seen = file.table.folded, set[str]()
        alone = len(self._sources.get(table, ())) <= 1
        for snapshot in sorted(self._by_table.get(table, ()), key=lambda snapshot: snapshot.begin):
            if snapshot.begin >= file.version and snapshot.source not in seen:
                seen.add(snapshot.source)
                if alone or self._began.get(table, 0) >= snapshot.begin:
                    yield snapshot

    def _through(self, snapshot: _Snapshot) -> Tso | None:
        """Return the position at which all rows of a table in a snapshot are there, None while they are not."""
        rows = snapshot.rows
        last = rows.get(SnapshotRow.LAST, rows.get(SnapshotRow.END))
        if last is not None and (SnapshotRow.FIRST in rows or SnapshotRow.WITHIN not in rows):
            return max(last, rows.get(SnapshotRow.FIRST, last))
        of = snapshot.source, snapshot.place
        is_lone = (
            snapshot.is_first and len(rows) == 1
        )  # the row that begins the snapshot is not marked as a last one, too
        return max(rows.values()) if of in self._ended and (is_lone or of not in self._marked) else None

    def _since(self, snapshot: _Snapshot) -> Tso:
        """Return the position at which every partition has to have begun, or none of its rows is known to be there.

        The partition of the first row may begin with that; where others do not begin at offset 0, before the snapshot.
        """
        first, partition = snapshot.rows.get(SnapshotRow.FIRST), snapshot.partition
        others = any(at.topic == partition.topic and at != partition for at in self._starts)
        return snapshot.begin - 1 if first is None or others else first

    def _is_through(self, source: str, version: Tso) -> bool:
        """Return whether a source is through with the snapshot in which it sent a CREATE TABLE at a version."""
        if any(of[0] == source and at > version for of, at in self._ended.items()):
            return True
        return source in self._streamed and bool(self._options.takes_rows)


def without_rows(landed: Landed) -> Iterator[str]:
    """Yield a warning for each source whose newest snapshot is through, and has no row of some tables with rows.

    Of PostgreSQL's tables no message says that they were empty. What is held of such a snapshot needs no warning.
    """
    ends, places = dict[str, LandedEvent](), dict[str, set[str]]()
    shown = set[tuple[TableId | None, str, str]]()
    for event in landed.events:
        if event.kind in (EventKind.SNAPSHOT, EventKind.BAD):
            shown.add((event.table, event.source, event.source_position))
        if event.kind is EventKind.SNAPSHOT:
            places.setdefault(event.source, set()).add(event.source_position)
            if event.query == SnapshotRow.END and event.source_position == max(places[event.source]):
                ends[event.source] = event
    for source, end in ends.items():
        before = {stream.table for stream in landed.streams if stream.source == source and len(places[source]) > 1}
        lacking = (
            str(table)
            for table in before
            if landed.began.get(table, end.position) < end.position
            and (table, source, end.source_position) not in shown
        )
        if names := sorted(lacking):
            some = first_of(names, "table")
            yield _WITHOUT_ROWS.format(source.partition(" ")[2], counted(len(names), "table"), some)


_WITHOUT_ROWS = (
    "the newest snapshot of the connector {} has no row of {} with rows from before: {}. These keep all, though "
    "each was empty by then, or the snapshot left it out (one of some tables only, or another list of tables). Where "
    "one was empty, let a connector with a new topic.prefix bring the tables as a feed of its own."
)


def _is_listed(table: TableId, names: Sequence[str]) -> bool:
    """Return whether a list has a table by its name, maybe with its database before the schema."""
    table_name = str(table).casefold()
    return any(name.casefold() == table_name or name.casefold().endswith(f".{table_name}") for name in names)


def _is_captured(table: TableId, options: SnapshotOptions) -> bool:
    """Return whether a connector sends rows of a table, by its lists of regular expressions, which fit whole names."""
    in_snapshot = all(_fits(table, patterns) for patterns in options.included) and not _fits(table, options.excluded)
    return in_snapshot and options.changes.captures(table) is not False


def _fits(table: TableId, patterns: Sequence[str]) -> bool:
    for pattern in patterns:
        try:
            if re.fullmatch(pattern, f"{table.schema}.{table.table}", re.IGNORECASE):
                return True
        except re.error:  # Java knows more than Python
            continue
    return False
