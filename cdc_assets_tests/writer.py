"""What TiCDC's storage sink writes for a source's log: metadata, schema, data and index files, by its written rules.

A writer has the freedoms of the real one, taken by `picks`: where a file is cut, when the date turns, when it stops and
starts again from an earlier point, which directory of equal columns takes the rows, how rows spread over dispatchers.
`publications` yields the bucket whenever `metadata` is published.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets_tests.schema_documents import file_column
from cdc_assets_tests.source import Col, Ddl, Row, RowChange, SchemaNote, Source, Transaction, Value

__all__ = ["TOMLS", "Publication", "Style", "Writer", "publications", "restart_point", "schema_checksum"]

Picks = Callable[[int], int]
"""Choose a number below the given one; 0 is the plain way."""

TOMLS: Mapping[str, str] = {
    "csv": '[sink]\nprotocol = "csv"\n[sink.csv]\ninclude-commit-ts = true\n',
    "csv-old": '[sink]\nprotocol = "csv"\n[sink.csv]\ninclude-commit-ts = true\noutput-old-value = true\n',
    "canal-json": '[sink]\nprotocol = "canal-json"\n',
}
"""The changefeed TOML of each rendering."""

INDEX_DDL = (7, 8, 17, 18)
"""Types of DDL that leave columns and rows alone: rows after one may stay in the directory before it."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a changefeed writes: rendering (a key of TOMLS), architecture, and what its sink URI says."""

    rendering: str = "csv"
    new: bool = False
    dates: bool = False
    ids: bool = False
    dispatchers: int = 0
    table_ids: bool = False
    """Directories are named by the physical table id; databases have no files then."""
    defaults: bool = True
    """Schema files have `ColumnDefault`; those of TiCDC 6.5.0 to 6.5.2, 6.6.0, 7.0.0 and 7.1.0 do not."""

    @property
    def parameters(self) -> str:
        """The sink URI's parameters."""
        protocol = "canal-json" if self.rendering == "canal-json" else "csv"
        dates = "day" if self.dates else "none"
        extension = "&enable-tidb-extension=true" if protocol == "canal-json" else ""
        extension += "&use-table-id-as-path=true" if self.table_ids else ""
        return f"protocol={protocol}&date-separator={dates}&output-column-id={str(self.ids).lower()}{extension}"

    @property
    def old_values(self) -> bool:
        """Return whether an update carries the row before it."""
        return self.rendering != "csv"


@dataclass(frozen=True, slots=True)
class Publication:
    """The bucket as `metadata` was published with `checkpoint`. The source stood at `shown`, which is less only when
    the DDL of the checkpoint itself is not written yet."""

    checkpoint: Tso
    shown: Tso
    files: Mapping[str, bytes]


# --- schema files -----------------------------------------------------------------------------------------------------

_SIZES = {"TINYINT": 4, "INT": 11, "BIGINT": 20, "DOUBLE": 22, "TEXT": 65535}


def _column(col: Col, primary: bool, style: Style) -> dict[str, object]:
    size = 10 if col.type == "INT" and col.unsigned else col.size or _SIZES.get(col.type)
    document: dict[str, object] = {"ColumnId": str(col.id)} if style.ids else {}
    document |= file_column(col.name, col.type + (" UNSIGNED" if col.unsigned else ""))
    if col.default is not None and style.defaults:
        document["ColumnDefault"] = str(col.default)
    if size is not None:
        document["ColumnPrecision"] = str(size)
    if col.scale:
        document["ColumnScale"] = str(col.scale)
    if not col.nullable:
        document["ColumnNullable"] = "false"
    if primary:
        document["ColumnIsPk"] = "true"
    if col.elems and style.new:
        document["ColumnElems"] = list(col.elems)
    return document


def schema_checksum(table: TableId, columns: Sequence[Mapping[str, object]]) -> int:
    """The number in a schema file's name: CRC-32 over its columns by name, and its names."""
    ordered = sorted(columns, key=lambda column: str(column["ColumnName"]).encode())
    document = {"Table": table.table, "Schema": table.schema, "Version": 0, "TableColumns": ordered}
    document["TableColumnsTotal"] = len(ordered)
    text = json.dumps(document, indent=4, ensure_ascii=False)
    for raw in "<>&":
        text = text.replace(raw, f"\\u{ord(raw):04x}")
    return zlib.crc32(text.encode())


# --- values -----------------------------------------------------------------------------------------------------------


def _csv_value(value: Value, col: Col) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    if isinstance(value, (str, Decimal)):
        return '"' + str(value).replace('"', '""') + '"'
    return f"{value:g}" if isinstance(value, float) else str(value)


def _canal_value(value: Value, col: Col) -> str | None:
    if value is None:
        return None
    if col.elems:
        return str(col.elems.index(str(value)) + 1)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class _Record:
    """One row event: I, U or D, with the image before it where there is one."""

    op: str
    change: RowChange
    before: Row | None
    after: Row | None
    physical: int
    update: bool = False


def _csv(record: _Record, ts: Tso, style: Style) -> str:
    row = record.before if record.op == "D" else record.after
    assert row is not None
    change = record.change
    fields = [f'"{record.op}"', f'"{change.table.table}"', f'"{change.table.schema}"', str(ts)]
    fields += [str(record.update).lower()] if style.rendering == "csv-old" else []
    return ",".join([*fields, *(_csv_value(row[col.name], col) for col in change.columns)])


def _canal(record: _Record, ts: Tso) -> str:
    change, columns = record.change, record.change.columns

    def image(row: Row | None) -> list[dict[str, str | None]] | None:
        return None if row is None else [{col.name: _canal_value(row[col.name], col) for col in columns}]

    message = {
        "id": 0,
        "database": change.table.schema,
        "table": change.table.table,
        "pkNames": [col.name for col in columns if col.name in change.primary],
        "isDdl": False,
        "type": {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}[record.op],
        "es": ts >> 18,
        "ts": ts >> 18,
        "sql": "",
        "sqlType": {col.name: 12 for col in columns},
        "mysqlType": {col.name: col.type.lower() + (" unsigned" if col.unsigned else "") for col in columns},
        "old": image(record.before) if record.op == "U" else None,
        "data": image(record.before if record.op == "D" else record.after),
        "_tidb": {"commitTs": ts},
    }
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


def _records(changes: Sequence[RowChange], style: Style) -> list[_Record]:
    """The row events of one table's part of a transaction, in the order of the architecture."""
    events: list[_Record] = []
    for change in changes:
        old, new = change.before, change.after
        if old is None:
            events.append(_Record("I", change, None, new, change.entered))
        elif new is None:
            events.append(_Record("D", change, old, None, change.left))
        elif change.split:
            events += [_Record("D", change, old, None, change.left), _Record("I", change, None, new, change.entered)]
        else:
            events.append(_Record("U", change, old, new, change.entered))
    if style.new:
        split = {id(event) for event in events if event.op == "I" and event.change.split}
        events.sort(key=lambda event: id(event) in split)
    else:
        events.sort(key=lambda event: "DUI".index(event.op))
    if style.rendering == "csv-old":
        events = [part for event in events for part in _pair(event)]
    return events


def _pair(event: _Record) -> list[_Record]:
    if event.op != "U":
        return [event]
    before = _Record("D", event.change, event.before, None, event.physical, True)
    return [before, _Record("I", event.change, None, event.after, event.physical, True)]


# --- the writer -------------------------------------------------------------------------------------------------------


@dataclass
class _Root:
    """What the sink knows of a table: the version of its last DDL, and whether that leaves columns and rows alone."""

    version: Tso = 0
    neutral: bool = False


@dataclass
class Writer:
    """A changefeed that writes into `files`. `start` is the TSO from which this incarnation runs."""

    style: Style
    picks: Picks
    files: dict[str, bytes] = field(default_factory=dict)
    start: Tso = 0
    roots: dict[TableId, _Root] = field(default_factory=dict)
    stored: dict[tuple[str, int], set[Tso]] = field(default_factory=dict)
    """The versions of schema files by directory and checksum."""
    buffers: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    numbers: dict[tuple[str, str], int] = field(default_factory=dict)
    day: int = 0
    incarnation: int = 0
    hidden: Collection[Tso] = ()
    """DDL that an event filter leaves out: the columns change without a schema file."""

    def write(self, event: Ddl | Transaction) -> None:
        """Take one event of the log; rows may wait in a buffer, a DDL flushes them first."""
        if isinstance(event, Ddl):
            self.flush()
            for note in event.notes:
                if event.ts in self.hidden:
                    self._hide(event.ts, note)
                else:
                    self._schema_file(event.ts, note)
            return
        by_table: dict[tuple[TableId, int], list[RowChange]] = {}
        for change in event.changes:
            by_table.setdefault((change.table, change.left or change.entered), []).append(change)
        for changes in by_table.values():
            self._rows(event.ts, changes)

    def _hide(self, ts: Tso, note: SchemaNote) -> None:
        root = self.roots.setdefault(note.table, _Root())
        root.version, root.neutral = ts, False

    def lose(self, ts: Tso) -> None:
        """Somebody removes the schema files of a DDL; what needs one again writes it anew, without the DDL."""
        for path in [path for path in self.files if f"/meta/schema_{ts}_" in path]:
            del self.files[path]
        for versions in self.stored.values():
            versions.discard(ts)

    def restart(self, start: Tso) -> None:
        """Stop and start again from `start`: what comes after it is delivered again, into later files."""
        self.flush()
        self.start = start
        self.incarnation += 1
        for root in self.roots.values():
            root.version, root.neutral = 0, False

    def flush(self) -> None:
        """Write every buffer as one more file of its directory; new numbers start with every date."""
        extension = "json" if self.style.rendering == "canal-json" else "csv"
        for (directory, dispatcher), lines in self.buffers.items():
            where = f"{directory}/2026-03-{30 + self.day}" if self.style.dates else directory
            number = self.numbers[where, dispatcher] = self.numbers.get((where, dispatcher), 0) + 1
            name = f"CDC{f'_{dispatcher}_' if dispatcher else ''}{number:020d}.{extension}"
            self.files[f"{where}/{name}"] = "".join(f"{line}\r\n" for line in lines).encode()
            index = f"CDC{f'_{dispatcher}' if dispatcher else ''}.index"
            self.files[f"{where}/meta/{index}"] = f"{name}\n".encode()
        self.buffers.clear()

    # --- where rows go ---

    def _schema_file(self, ts: Tso, note: SchemaNote) -> None:
        columns = [_column(col, col.name in note.primary, self.style) for col in note.columns]
        checksum = schema_checksum(note.table, columns)
        if self.style.table_ids and not note.table.table:
            return
        path = self._path(note.table, note.table_id)
        document: dict[str, Any] = {
            "Table": note.table.table,
            "Schema": note.table.schema,
            "Version": 1,
            "TableVersion": ts,
        }
        document["Query"] = note.query if self.style.new else note.earlier or note.query
        document |= {"Type": note.type, "TableColumns": columns or None, "TableColumnsTotal": len(columns)}
        self.files[f"{path}/meta/schema_{ts}_{checksum:010d}.json"] = json.dumps(
            document, indent=4, ensure_ascii=False
        ).encode()
        root = self.roots.setdefault(note.table, _Root())
        root.neutral = note.type in INDEX_DDL
        root.version = ts
        self.stored.setdefault((path, checksum), set()).add(ts)

    def _path(self, table: TableId, physical: int) -> str:
        return str(physical) if self.style.table_ids else "/".join(part for part in (table.schema, table.table) if part)

    def _version(self, ts: Tso, change: RowChange, physical: int) -> Tso | None:
        """The directory of a row: exact version, else the highest of the same columns, else a new schema file.

        The new architecture discards a batch when the highest is newer than the batch's own version.
        """
        root, path = self.roots.setdefault(change.table, _Root()), self._path(change.table, physical)
        wanted = max(root.version, self.start)
        columns = [_column(col, col.name in change.primary, self.style) for col in change.columns]
        same = self.stored.setdefault((path, schema_checksum(change.table, columns)), set())
        if wanted in same:
            older = [version for version in same if version < wanted]
            # An index DDL leaves the columns as they are; rows after it may go on where they were.
            return max(older) if root.neutral and older and self.picks(2) else wanted
        if same:
            # By table ids the file of an exchange lies elsewhere: rows that came never before would be lost.
            again = not self.style.table_ids or ts <= max(same)
            return None if self.style.new and max(same) > wanted and again else max(same)
        self._schema_file(wanted, SchemaNote(change.table, change.columns, change.primary, "", 0, table_id=physical))
        return wanted

    def _rows(self, ts: Tso, changes: Sequence[RowChange]) -> None:
        versions: dict[str, Tso | None] = {}
        for record in _records(changes, self.style):
            change = record.change
            path = self._path(change.table, record.physical)
            if path not in versions:
                versions[path] = self._version(ts, change, record.physical)
            if versions[path] is None:
                continue
            directory = f"{path}/{versions[path]}"
            row = record.before if record.op == "D" else record.after
            assert row is not None
            if change.partitioned and not self.style.table_ids:
                directory += f"/{record.physical}"
            line = _canal(record, ts) if self.style.rendering == "canal-json" else _csv(record, ts, self.style)
            self.buffers.setdefault((directory, self._dispatcher(change, row)), []).append(line)
            if self.picks(12) == 11:
                self.flush()

    def _dispatcher(self, change: RowChange, row: Row) -> str:
        """Rows of a key stay with one dispatcher while it lives; tables without key are not spread."""
        if not self.style.dispatchers:
            return ""
        key: Hashable = tuple(str(row[name]) for name in change.primary) if change.keyed else ()
        place = zlib.crc32(repr((key, self.incarnation)).encode()) % self.style.dispatchers
        return str(11870345 + place) if change.keyed else "99"


def publications(
    source: Source,
    style: Style,
    picks: Picks,
    hidden: Collection[Tso] = (),
    lost: Collection[Tso] = (),
    start: Tso = 0,
) -> Iterator[Publication]:
    """Play the log after `start`; yield the bucket at some checkpoints, and at the end.

    `hidden` DDL get no schema file, `lost` ones keep theirs for a while only.
    """
    writer, published, restarts = Writer(style, picks, start=start, hidden=hidden), start, 0
    position = 0
    log = [event for event in source.log if event.ts > start]
    while position < len(log):
        event = log[position]
        late = isinstance(event, Ddl) and not style.new and event.ts > published and not restarts
        if late and picks(6) == 5:
            # The old architecture publishes the checkpoint of a DDL before it writes the DDL's file.
            writer.flush()
            published = event.ts
            yield Publication(event.ts, event.ts - 1, dict(writer.files))
        writer.write(event)
        position += 1
        for ts in [ts for ts in lost if ts < event.ts and picks(3) == 0]:
            writer.lose(ts)
        if picks(5) == 4:
            writer.flush()
            writer.day += picks(3) // 2 if writer.day < 1 else 0
        ahead = [past.ts for past in log[:position] if past.ts > published]
        if ahead and picks(4) == 3:
            writer.flush()
            published = ahead[-1 - picks(len(ahead))]
            yield Publication(published, published, dict(writer.files))
        if restarts < 2 and position > 1 and picks(6) == 5:
            back = restart_point(log, position, published, picks)
            if back is not None:
                restarts += 1
                writer.restart(log[back - 1].ts if back else published)
                position = back
    writer.flush()
    yield Publication(log[-1].ts, log[-1].ts, dict(writer.files))


def restart_point(log: Sequence[Ddl | Transaction], position: int, published: Tso, picks: Picks) -> int | None:
    """Where a restart resumes: after the checkpoint."""
    first = next((n for n, event in enumerate(log) if event.ts > published), position)
    if first >= position:
        return None
    point = first + picks(position - first)
    return None if _ambiguous(log[point:position]) else point


def _ambiguous(again: Sequence[Ddl | Transaction]) -> bool:
    """Return whether a table without key gets a single transaction again into a sequence of files.

    That looks like a transaction that was split over two files.
    """
    segment: Counter[TableId] = Counter()
    delivered: dict[tuple[TableId, int, int], int] = {}
    for event in again:
        if isinstance(event, Ddl):
            segment.update(note.table for note in event.notes)
            continue
        places = {(c.table, p) for c in event.changes if not c.keyed for p in (c.left, c.entered) if p}
        for table, physical in places:
            place = (table, physical, segment[table])
            delivered[place] = delivered.get(place, 0) + 1
    return 1 in delivered.values()
