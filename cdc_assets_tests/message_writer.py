"""What TiCDC's message sinks send for a source's log, by their written rules, into the partitions of a log.

A writer has the freedoms of the real one, taken by `picks`: how rows are put together into messages, when marks come,
when it stops and starts again from an earlier point. `marks` yields the log whenever a mark is in all partitions.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from cdc_assets.ddl import rename_pairs
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets_tests import craft_writer
from cdc_assets_tests.source import Col, Ddl, Row, RowChange, SchemaNote, Source, Transaction, Value
from cdc_assets_tests.topic_feed import MemoryLog
from cdc_assets_tests.writer import Picks, restart_point

__all__ = ["DEFAULT", "MessageStyle", "marks"]

DEFAULT = "cdc"
"""The topic of what has no table, and of all tables where none is routed."""
_FRAME = (1).to_bytes(8, "big")
_MOST_ROWS = 16


@dataclass(frozen=True, slots=True)
class MessageStyle:
    """How a changefeed sends: protocol, partition rule, and what its settings leave out of row events."""

    protocol: str = "canal-json"
    rule: str = "table"
    partitions: int = 1
    routed: bool = False
    partial: bool = False
    keys_of_deletes: bool = False
    names_the_other: bool = False
    """Whether EXCHANGE PARTITION names, beside its text, the unpartitioned table, as the new architecture does."""

    @property
    def uri(self) -> str:
        """The sink URI."""
        return (
            f"kafka://127.0.0.1:9092/{DEFAULT}?protocol={self.protocol}&enable-tidb-extension=true"
            f"&only-output-updated-columns={str(self.partial).lower()}"
            f"&delete-only-output-handle-key-columns={str(self.keys_of_deletes).lower()}"
        )

    @property
    def toml(self) -> str:
        """The changefeed TOML."""
        topic = ', topic = "{schema}_{table}"' if self.routed else ""
        return f'[sink]\ndispatchers = [{{matcher = ["*.*"], partition = "{self.rule}"{topic}}}]\n'

    def topic(self, table: TableId) -> str:
        """The topic of a table."""
        return f"{table.schema}_{table.table}" if self.routed and table.table else DEFAULT


@dataclass(frozen=True, slots=True)
class _Event:
    """One row event."""

    ts: Tso
    change: RowChange
    before: Row | None
    after: Row | None


# --- values -----------------------------------------------------------------------------------------------------------

_CODES = {
    "TINYINT": 1,
    "INT": 3,
    "BIGINT": 8,
    "DOUBLE": 5,
    "DECIMAL": 246,
    "VARCHAR": 15,
    "VARBINARY": 15,
    "TEXT": 252,
    "ENUM": 247,
    "DATE": 10,
    "DATETIME": 12,
}


def _flags(col: Col, change: RowChange) -> int:
    key = col.name in change.primary
    return (
        (col.type not in ("VARCHAR", "TEXT"))
        | (2 + 8 if key else 0)
        | (64 if col.nullable else 0)
        | (128 if col.unsigned else 0)
    )


def _open_value(value: Value, col: Col) -> Any:
    if value is None or isinstance(value, int | float):
        return value
    if col.elems:
        return col.elems.index(str(value)) + 1
    if isinstance(value, bytes):
        return "".join(f"\\x{byte:02x}" if byte < 32 or byte > 126 else chr(byte) for byte in value)
    return base64.b64encode(value.encode()).decode() if col.type == "TEXT" and isinstance(value, str) else str(value)


def _canal_value(value: Value, col: Col) -> str | None:
    if col.elems and value is not None:
        return str(col.elems.index(str(value)) + 1)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return None if value is None else f"{value:g}" if isinstance(value, float) else str(value)


_EPOCH = datetime(1970, 1, 1)


def _debezium_value(value: Value, col: Col) -> Any:
    if value is None or isinstance(value, float) or col.elems:
        return value
    if isinstance(value, int):
        return value - (1 << 64) if col.type == "BIGINT" and value >= 1 << 63 else value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return float(value)
    if col.type in ("DATE", "DATETIME"):
        since = datetime.fromisoformat(value) - _EPOCH
        return since.days if col.type == "DATE" else since // timedelta(milliseconds=1)
    return value


def _simple_value(value: Value, col: Col) -> str | None:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return _canal_value(value, col)


def _table_schema(note: SchemaNote) -> dict[str, Any]:
    """What Simple says of a table: its columns by their id, not in table order."""
    text = {"charset": "utf8mb4", "collate": "utf8mb4_bin"}
    columns = [
        {
            "name": col.name,
            "dataType": {
                "mysqlType": col.type.lower(),
                **({**text, **({"collate": col.collation} if col.collation else {})} if _is_text(col) else _BINARY),
                "length": (20 + (col.scale or 0)) if col.type == "DATETIME" else col.size or 11,
                **({"decimal": col.scale} if col.scale else {}),
                **({"elements": list(col.elems)} if col.elems else {}),
                **({"unsigned": True} if col.unsigned else {}),
            },
            "nullable": col.nullable,
            "default": None if col.default is None else str(col.default),
        }
        for col in sorted(note.columns, key=lambda column: column.id)
    ]
    primary = [("PRIMARY", note.primary)] if note.primary else []
    indexes = [
        {"name": name, "unique": True, "primary": name == "PRIMARY", "nullable": False, "columns": list(names)}
        for name, names in (*primary, *note.uniques)
    ]
    name = {"schema": note.table.schema, "table": note.table.table, "tableID": note.table_id, "version": 0}
    return {**name, "columns": columns, "indexes": indexes}


_BINARY = {"charset": "binary", "collate": "binary"}


def _is_text(col: Col) -> bool:
    return col.type in ("VARCHAR", "TEXT", "ENUM")


def _craft_value(value: Value, col: Col) -> int | float | bytes | None:
    if col.elems and value is not None:
        return col.elems.index(str(value)) + 1
    return value if value is None or isinstance(value, int | float | bytes) else str(value).encode()


# --- the writer -------------------------------------------------------------------------------------------------------


@dataclass
class _Writer:
    style: MessageStyle
    picks: Picks
    log: MemoryLog
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    waiting: dict[tuple[str, int], list[_Event]] = field(default_factory=dict)

    def put(self, place: tuple[str, int], key: bytes | None, value: bytes) -> None:
        offset = self.offsets[place] = self.offsets.get(place, -1) + 1
        texts = [None if part is None else base64.b64encode(part).decode() for part in (key, value)]
        line = {"topic": place[0], "partition": place[1], "offset": offset, "timestamp_ms": 1}
        self.log.lines.append({**line, "key_b64": texts[0], "value_b64": texts[1]})

    def rows(self, transaction: Transaction) -> None:
        """Send a transaction: in each table deletes, then updates, then inserts."""
        by_table: dict[TableId, list[_Event]] = {}
        for change in transaction.changes:
            by_table.setdefault(change.table, []).extend(_events(transaction.ts, change))
        for events in by_table.values():
            for event in sorted(events, key=lambda event: (event.after is not None) + (event.before is None)):
                place = self._place(event)
                self.waiting.setdefault(place, []).append(event)
                if len(self.waiting[place]) >= _MOST_ROWS or self.picks(5) == 4:
                    self.flush(place)

    def _place(self, event: _Event) -> tuple[str, int]:
        change, row = event.change, event.before if event.after is None else event.after
        assert row is not None
        by = zlib.crc32(f"{change.table.schema}{change.table.table}".encode())
        if self.style.rule == "ts":
            by = event.ts
        elif self.style.rule == "index-value" and change.primary:
            for name in change.primary:
                by ^= zlib.crc32(f"{name}{row[name]!r}".encode())
        return self.style.topic(change.table), by % self.style.partitions

    def flush(self, *places: tuple[str, int]) -> None:
        """Send what waits, for some partitions or all."""
        for place in places or list(self.waiting):
            events = self.waiting.pop(place, [])
            if not events:
                continue
            if self.style.protocol == "canal-json":
                for event in events:
                    self.put(place, None, self._canal(event))
            elif self.style.protocol == "craft":
                self.put(place, None, craft_writer.message([self._craft(event) for event in events]))
            elif self.style.protocol == "simple":
                for event in events:
                    self.put(place, None, self._simple(event))
            elif self.style.protocol == "debezium":
                for event in events:
                    self.put(place, *_debezium(event))
            else:
                self.put(place, *self._open(events))

    def ddl(self, event: Ddl) -> None:
        """Send a DDL, behind all rows before it, to the topic of the name before it."""
        self.flush()
        for note in event.notes:
            if not note.query:
                continue  # the other table of an exchange
            query = note.earlier or note.query
            pairs = rename_pairs(query, note.table.schema)
            topic = self.style.topic(pairs[0][0] if pairs else note.table)
            other = (
                next((other_note for other_note in event.notes if not other_note.query), note)
                if self.style.names_the_other
                else note
            )
            key, value = self._ddl(event.ts, query, replace(note, table=other.table))
            everywhere = range(1 if self.style.protocol == "canal-json" else self.style.partitions)
            for partition in everywhere:
                self.put((topic, partition), key, value)

    def mark(self, ts: Tso, living: Sequence[TableId]) -> None:
        """Send a mark, behind all rows, to the topics of living tables and the default one."""
        self.flush()
        for topic in sorted({DEFAULT, *map(self.style.topic, living)}):
            for partition in range(self.style.partitions):
                self.put((topic, partition), *self._mark(ts))

    # --- messages ---

    def _mark(self, ts: Tso) -> tuple[bytes | None, bytes]:
        if self.style.protocol == "craft":
            return None, craft_writer.resolved(ts)
        if self.style.protocol == "open-protocol":
            return _FRAME + _piece({"ts": ts, "t": 3}), (0).to_bytes(8, "big")
        if self.style.protocol == "debezium":
            return _json({"payload": {}}), _json({"payload": {"source": _source(ts, TableId("", "")), "op": "m"}})
        if self.style.protocol == "simple":
            return None, _json({"version": 1, "type": "WATERMARK", "commitTs": ts, "buildTs": 1})
        return None, _json(_canal_head("", "", False, "TIDB_WATERMARK", ts) | {"_tidb": {"watermarkTs": ts}})

    def _ddl(self, ts: Tso, query: str, note: SchemaNote) -> tuple[bytes | None, bytes]:
        schema, table = note.table.schema, note.table.table
        if self.style.protocol == "craft":
            return None, craft_writer.ddl(ts, schema, table or None, note.type, query)
        if self.style.protocol == "open-protocol":
            key = {"ts": ts, "scm": schema, **({"tbl": table} if table else {}), "t": 2}
            return _FRAME + _piece(key), _piece({"q": query, "t": note.type})
        if self.style.protocol == "debezium":
            held = {"source": _source(ts, note.table), "databaseName": schema, "ddl": query, "tableChanges": []}
            return _json({"payload": {"databaseName": schema}}), _json({"payload": held})
        kind = {3: "CREATE", 4: "ERASE", 7: "CINDEX", 8: "DINDEX", 11: "TRUNCATE", 14: "RENAME"}.get(note.type)
        kind = kind or ("QUERY" if note.type in (1, 2, 21, 24, 25, 42) else "ALTER")
        if self.style.protocol == "simple":
            head = {"version": 1, "type": kind, "sql": query, "commitTs": ts, "buildTs": 1}
            return None, _json(head | ({"tableSchema": _table_schema(note)} if table else {}))
        return None, _json(_canal_head(schema, table, True, kind, ts, query) | {"_tidb": {"commitTs": ts}})

    def _sides(self, event: _Event) -> tuple[Row | None, Row | None]:
        """The images before and after, as far as the settings have them sent."""
        before, after, change = event.before, event.after, event.change
        if after is None and before is not None and self.style.keys_of_deletes and change.primary:
            before = {name: before[name] for name in change.primary}
        elif after is not None and before is not None and self.style.partial:
            before = {name: value for name, value in before.items() if value != after[name]}
        return before, after

    def _canal(self, event: _Event) -> bytes:
        change, (before, after) = event.change, self._sides(event)
        columns = {col.name: col for col in change.columns}

        def image(row: Row | None) -> list[dict[str, str | None]] | None:
            return None if row is None else [{n: _canal_value(row[n], col) for n, col in columns.items() if n in row}]

        kind = "DELETE" if after is None else "INSERT" if before is None else "UPDATE"
        types = {col.name: col.type.lower() + (" unsigned" if col.unsigned else "") for col in change.columns}
        head = _canal_head(change.table.schema, change.table.table, False, kind, event.ts)
        head |= {"pkNames": list(change.primary), "sqlType": dict.fromkeys(columns, 12), "mysqlType": types}
        old, data = (None, image(before)) if after is None else (image(before), image(after))
        return _json(head | {"old": old, "data": data, "_tidb": {"commitTs": event.ts}})

    def _simple(self, event: _Event) -> bytes:
        change = event.change
        physical = change.left if event.after is None else change.entered
        kind = "DELETE" if event.after is None else "INSERT" if event.before is None else "UPDATE"
        named = {"database": change.table.schema, "table": change.table.table, "tableID": physical, "type": kind}
        head = {"version": 1, **named, "commitTs": event.ts, "buildTs": 1, "schemaVersion": 1}
        sides = {
            name: {col.name: _simple_value(row[col.name], col) for col in change.columns}
            for name, row in (("data", event.after), ("old", event.before))
            if row is not None
        }
        return _json(head | sides)

    def _open(self, events: Sequence[_Event]) -> tuple[bytes, bytes]:
        keys, values = [_FRAME], []
        for event in events:
            change, (before, after) = event.change, self._sides(event)
            physical = change.left if after is None else change.entered
            named = {"ts": event.ts, "scm": change.table.schema, "tbl": change.table.table}
            keys.append(_piece({**named, **({"ptn": physical} if change.partitioned else {}), "t": 1}))
            sides = {"d" if after is None else "p": before, "u": after}
            held = {name: self._open_side(row, change) for name, row in sides.items() if row is not None}
            values.append(_piece(dict(sorted(held.items(), reverse=True))))
        return b"".join(keys), b"".join(values)

    def _open_side(self, row: Row, change: RowChange) -> Mapping[str, Any]:
        return {
            col.name: {
                "t": _CODES[col.type],
                **({"h": True} if col.name in change.primary else {}),
                "f": _flags(col, change),
                "v": _open_value(row[col.name], col),
            }
            for col in sorted(change.columns, key=lambda column: column.name)
            if col.name in row
        }

    def _craft(self, event: _Event) -> craft_writer.Row:
        change, (before, after) = event.change, self._sides(event)

        def cells(row: Row | None) -> list[craft_writer.Cell] | None:
            return row and [
                craft_writer.Cell(col.name, _CODES[col.type], _flags(col, change), _craft_value(row[col.name], col))
                for col in change.columns
                if col.name in row
            ]  # type: ignore[return-value]

        physical = (change.left if after is None else change.entered) if change.partitioned else -1
        name = change.table
        return craft_writer.Row(event.ts, name.schema, name.table, cells(after), cells(before), physical)


def _events(ts: Tso, change: RowChange) -> Iterator[_Event]:
    if change.split:
        yield _Event(ts, change, change.before, None)
        yield _Event(ts, change, None, change.after)
    else:
        yield _Event(ts, change, change.before, change.after)


def _debezium(event: _Event) -> tuple[bytes, bytes]:
    columns = event.change.columns
    sides = {
        name: row and {col.name: _debezium_value(row[col.name], col) for col in columns}
        for name, row in (("before", event.before), ("after", event.after))
    }
    op = "d" if event.after is None else "c" if event.before is None else "u"
    key = {
        name: value for name, value in (sides["after"] or sides["before"] or {}).items() if name in event.change.primary
    }
    payload = {"source": _source(event.ts, event.change.table), "op": op, **sides, "transaction": None}
    return _json({"payload": key}), _json({"payload": payload})


def _source(ts: Tso, table: TableId) -> dict[str, Any]:
    named = {"connector": "TiCDC", "name": "default", "snapshot": "false", "db": table.schema, "table": table.table}
    return {**named, "ts_ms": ts >> 18, "commit_ts": ts}


def _canal_head(schema: str, table: str, ddl: bool, kind: str, ts: Tso, query: str = "") -> dict[str, Any]:
    ms = ts >> 18
    head = {"id": 0, "database": schema, "table": table, "pkNames": None, "isDdl": ddl, "type": kind, "es": ms}
    return {**head, "ts": ms, "sql": query, "sqlType": None, "mysqlType": None, "old": None, "data": None}


def _json(held: Mapping[str, Any]) -> bytes:
    return json.dumps(held, ensure_ascii=False, separators=(",", ":")).encode()


def _piece(held: Mapping[str, Any]) -> bytes:
    data = _json(held)
    return len(data).to_bytes(8, "big") + data


# --- the log over time ------------------------------------------------------------------------------------------------


def marks(source: Source, style: MessageStyle, picks: Picks, log: MemoryLog) -> Iterator[tuple[Tso, Tso]]:
    """Send the source's log; yield a mark that is in all partitions, and through which TSO tables are to be shown.

    Rows at a mark are there, a DDL at it may not be. The last mark is above all.
    """
    writer, sent, restarts, position = _Writer(style, picks, log), 0, 0, 0
    events = source.log
    while position < len(events):
        event = events[position]
        if isinstance(event, Ddl) and picks(4) == 3 and event.ts > sent and not restarts:
            sent = event.ts  # the old architecture sends the mark of a DDL before it
            writer.mark(sent, list(source.contents(sent - 1)))
            yield sent, sent - 1
        if isinstance(event, Ddl):
            writer.ddl(event)
        else:
            writer.rows(event)
        position += 1
        if picks(5) == 4 and event.ts > sent:
            sent = event.ts
            writer.mark(sent, list(source.contents(sent)))
            yield sent, sent - 1 if isinstance(event, Ddl) else sent
        if restarts < 2 and picks(6) == 5:
            back = restart_point(events, position, sent, picks)
            if back:
                restarts, position = restarts + 1, back
                writer.flush()
                writer.mark(events[back - 1].ts, list(source.contents(events[back - 1].ts)))
    end = events[-1].ts + 1
    writer.mark(end, list(source.contents(end)))
    yield end, end
