"""Messages of Debezium's connectors: what they speak of, the schemas that rows show, the changes of a table.

    {"before":{…},"after":{…},"source":{"connector":"mariadb","db":…,"table":…,"file":…,"pos":…},"op":"u",…}

`op` is c, u, d, r for a row of a snapshot, t for a truncate, m for a logical message. A row is taken by its key where
the message does not have the row before it. What is not a row: tombstones, which repeat a delete; schema changes, which
have the DDL's text; heartbeats and transactions. With a schema block the types of columns are in each message,
else by DDL texts or the setting `schemas`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import MalformedData
from cdc_assets.formats import MessageOptions
from cdc_assets.formats.changes import Cells, Faults, Images, changes_of, patch_op, shape_of, side_by_side
from cdc_assets.formats.debezium_json.columns import (
    UNKNOWN_TYPE,
    ConnectorSettings,
    columns_of,
    connector_settings,
    field_of,
    has_old_keys,
    settled_field,
)
from cdc_assets.formats.debezium_json.envelope import (
    NO_JSON_KEY,
    ROUTED,
    Envelope,
    MessageKeys,
    SchemaBlock,
    envelopes,
    envelopes_among,
)
from cdc_assets.formats.debezium_json.positions import SourcePositions, source_positions
from cdc_assets.formats.debezium_json.system_versioning import PAST_ROWS, row_end, without_past_rows
from cdc_assets.formats.decoded import Decoded, Op
from cdc_assets.formats.json_records import json_value, print_json
from cdc_assets.formats.messages import (
    SNAPSHOT_DDL,
    Classification,
    Kind,
    MessageCodec,
    SchemaEvent,
    SourceSql,
    by_row,
    classified,
    in_order,
    one_row_messages,
    refused_lines,
    source_text,
    truncating,
)
from cdc_assets.formats.protocols import CONNECTOR_MODES
from cdc_assets.formats.records import CellKind, Marks, RecordColumn, bits, explained
from cdc_assets.formats.servers import SERVERS, avro_reason, connector_in, foreign_reason
from cdc_assets.formats.values import DEFAULTED, EPOCH, MAYBE_UNCHANGED, MAYBE_ZERO_DATE, ROUNDED, are_rounded
from cdc_assets.formats.values.connect import (
    CLOCKS,
    COUNTS,
    OUT_OF_RANGE,
    STRUCTS,
    Field,
    is_binary,
    read_bytes,
    read_column,
)
from cdc_assets.model.landed import TOMBSTONE
from cdc_assets.model.schema import Column, Index, ReadColumn, TableId, TableSchema
from cdc_assets.types.connect_types import DECIMAL
from cdc_assets.types.mysql_values import ZERO_DATE
from cdc_assets.types.postgres_types import postgres_column

__all__ = ["classify", "decode", "schemas"]

Places = npt.NDArray[np.int64]

_CONTROLS: Mapping[str, frozenset[str]] = {
    "a transaction's beginning or end": frozenset(("status", "id", "event_count", "data_collections")),
    "a notification of the connector": frozenset(("id", "aggregate_type", "type", "additional_data")),
}
"""Kinds of the connector's own messages -> members that they have in all versions, beside others."""
_MYSQL = ("mysql", "mariadb")
_OPS = ("c", "u", "d", "r")
_REFUSED = ("TiCDC", "ydb")
"""Other writers of the envelope."""
_TROUBLE = (ValueError, KeyError, TypeError, AttributeError, IndexError)
"""Exceptions that a malformed schema change raises."""
_GREATEST_MS = np.uint64(1 << 45)
"""Milliseconds since 1970 that are a TSO."""
_NO_KEY = (
    "message.key.columns of the connector gives messages keys that do not identify rows: let it name columns that do, "
    "with a REPLICA IDENTITY that has them, and let the table be rebuilt from a new snapshot"
)
_AVRO = [b"\0", b"\1"]
"""First bytes of messages that name a registered schema: by number, and by GUID."""
_NO_MESSAGE = "it is not a message of a Debezium connector"
_NO_ROW_BEFORE = (
    "it is an update of a table without key, and does not have the row before it. Set REPLICA IDENTITY FULL at the "
    "source, and let the table be rebuilt"
)
_BY_INDEX = (
    "its row before has a key that is zero or empty, and other columns: by REPLICA IDENTITY DEFAULT or FULL it is of "
    "the row with that key, by REPLICA IDENTITY USING INDEX of a row whose key is not known. If the table's is one of "
    "the former, say so: replica.identity.autoset.values = SCHEMA.TABLE:FULL, or DEFAULT, in the connector's "
    "configuration or the sink URI. Otherwise set one of them, and let the table be rebuilt from a new snapshot"
)
_ZEROS: Mapping[CellKind, tuple[str, ...]] = {
    CellKind.NUMBER: ("0", "0.0"),
    CellKind.BOOL: ("false",),
    CellKind.TEXT: ("", "0", "AA==", "{}", "00:00:00Z", EPOCH),
    CellKind.JSON: ("[]", "{}"),
}
"""Values sent for NOT NULL columns without default when the log does not have them."""
_OF_ANOTHER = 'its connector is "{}"; give the protocol of that writer'
_BARE = (
    "it is a row alone, as the transformation ExtractNewRecordState leaves it: which table it is of, which change it "
    "is and where it stands in the source's log is not in it. Take that transformation out of the connector's "
    "configuration"
)

_CLOUD_EVENT = (
    "it is a CloudEvent, as io.debezium.converters.CloudEventsConverter writes it. Let the connector have "
    "value.converter = org.apache.kafka.connect.json.JsonConverter, and write to new topics"
)


def _types(options: MessageOptions) -> ReadColumn:
    modes = dict(options.connector)
    return lambda name, declared, own: postgres_column(name, declared, modes, own)


# --- what messages speak of -------------------------------------------------------------------------------------------


def classify(messages: pa.RecordBatch, options: MessageOptions) -> pa.RecordBatch:
    """Return the table and kind of each message (CLASSIFIED)."""
    values, keys = messages.column("value"), MessageKeys(messages.column("key"))
    is_tombstone = bits(pc.fill_null(pc.equal(values, b"null"), True))
    lines = [
        classified(
            Classification(message, Kind.IGNORED, reason=TOMBSTONE) for message in np.flatnonzero(is_tombstone).tolist()
        )
    ]
    avro = (
        bits(pc.is_in(pc.fill_null(pc.binary_slice(values, 0, 1), b""), pa.array(_AVRO, pa.binary()))) & ~is_tombstone
    )
    lines += [
        classified(
            Classification(message, Kind.BAD, reason=f"{_NO_MESSAGE}: {avro_reason(values[message].as_py())}")
            for message in np.flatnonzero(avro).tolist()
        )
    ]
    for rows in envelopes_among(values, ~is_tombstone & ~avro):
        for members, some in rows.by_members():
            lines += _lines(some, frozenset(members), keys)
    return in_order(lines)


def _lines(rows: Envelope, members: frozenset[str], keys: MessageKeys) -> Iterator[pa.RecordBatch]:
    """Yield the tables and kinds of messages whose payloads have the same members."""
    records, passed = rows.records, _passed_over(members)
    has_no_row = records.sound & (rows.kinds() == CellKind.NULL)
    yield _ignored(rows.among(has_no_row), TOMBSTONE)
    if passed is not None:
        yield _ignored(rows.sound, passed)
        yield refused_lines(rows.records, _NO_MESSAGE)
        return
    records.require(has_no_row | rows.are_objects(), "its payload is no object")
    if not {"op", "source"} & members:
        records.require(has_no_row, _BARE)
    if "specversion" in members:
        named = [rows.column(name).texts for name in ("type", "source")]
        origins = pc.binary_join_element_wise(*(pc.fill_null(texts, "") for texts in named), " ").to_pylist()
        foreign = [foreign_reason(connector_name) if (connector_name := connector_in(text)) else "" for text in origins]
        records.require(has_no_row, lambda place: foreign[place] or _CLOUD_EVENT)
    records.require(has_no_row | rows.are_objects("source"), "it has no source that says where it is from")
    for mask, connector in records.by_value(*rows.base, "source", "connector"):
        some = rows.among(mask & ~has_no_row)
        yield from _lines_of(some, str(connector or ""), "ddl" in members, keys)
        yield refused_lines(some.records, _NO_MESSAGE)


def _passed_over(members: frozenset[str]) -> str | None:
    """Return the kind of a message with these members that names no table, None for one that does."""
    if members and members <= {"ts_ms", "ts_us", "ts_ns"}:
        return "a heartbeat"
    if {"op", "source"} & members:
        return None
    return next((reason for reason, own in _CONTROLS.items() if own <= members), None)


def _ignored(rows: Envelope, reason: str) -> pa.RecordBatch:
    return classified(
        Classification(message, Kind.IGNORED, reason=reason) for message in rows.records.messages.tolist()
    )


def _lines_of(rows: Envelope, connector: str, is_ddl: bool, keys: MessageKeys) -> Iterator[pa.RecordBatch]:
    """Yield the tables and kinds of messages of a connector, rows first; refuse those that are none."""
    records = rows.records
    records.require(connector not in _REFUSED, _OF_ANOTHER.format(connector))
    records.require(rows.column("source", "connector").are(CellKind.TEXT), "it lacks 'connector'")
    records.require(connector in SERVERS, foreign_reason(connector))
    commit_ts, names = _commit_ts(rows), rows.column("source", "name")
    records.require(names.are(CellKind.TEXT), "it lacks 'name'")
    positions = source_positions(rows, connector)
    prefix = source_text(connector, "")
    if is_ddl and connector in _MYSQL:
        logs = pc.binary_join_element_wise(prefix, names.texts, "")
        yield _schema_changes(rows, connector, commit_ts, positions, logs)
        return
    op, tables = rows.column("op"), _tables(rows)
    is_row, is_message = op.are_among(CellKind.TEXT, _OPS), op.equal("m")
    records.require(tables.sound | is_message, "it names no table")
    records.require(is_row | is_message | op.equal("t"), lambda place: f'its op is "{op.shown(place)}"')
    shapes = _shapes(rows, is_row, connector, keys)
    yield _ignored(rows.among(records.sound & is_message), "a logical message")
    mask = pa.array(records.sound & is_row)
    chosen = {
        "source_position": positions.places,
        "read_at": positions.read_at,
        "phase": positions.phases,
        "shape": shapes,
    }
    chosen["source"] = pc.binary_join_element_wise(prefix, names.texts, "")
    yield one_row_messages(
        records.messages[records.sound & is_row],
        tables.schemas.filter(mask),
        tables.names.filter(mask),
        pa.array(commit_ts).filter(mask),
        **{name: column.filter(mask) for name, column in chosen.items()},
    )
    emptied = list[Classification]()
    for place in np.flatnonzero(records.sound & op.equal("t")).tolist():
        table, log = tables.table(place), chosen["source"][place].as_py()
        line = Classification(
            int(records.messages[place]), Kind.DDL, table, commit_ts=int(commit_ts[place]), type=11, source=log
        )
        emptied.append(replace(line, query=truncating(table), source_position=positions.places[place].as_py()))
    yield classified(emptied)


def _commit_ts(rows: Envelope) -> Places:
    """Return the times of changes; refuse those that do not say it."""
    ms, whole = rows.records.whole_numbers(*rows.base, "source", "ts_ms")
    whole &= ms < _GREATEST_MS
    rows.records.require(
        whole,
        lambda place: (
            f"its source.ts_ms {rows.column('source', 'ts_ms').shown(place)[:40]} is no time in milliseconds since 1970"
        ),
    )
    return np.where(whole, ms, 0).astype(np.int64) << 18


@dataclass(frozen=True, slots=True)
class _NamedTables:
    """The tables of rows: in their schema where the database has such, else in their database."""

    schemas: pa.StringArray
    names: pa.StringArray
    sound: Marks

    def table(self, place: int) -> TableId:
        return TableId(self.schemas[place].as_py(), self.names[place].as_py())


def _tables(rows: Envelope) -> _NamedTables:
    spaces, names = (
        rows.column("source", "schema").or_given(rows.column("source", "db")),
        rows.column("source", "table"),
    )
    sound = spaces.are(CellKind.TEXT) & names.are(CellKind.TEXT)
    for cells in (spaces, names):
        sound &= bits(pc.not_equal(cells.texts, ""))
    return _NamedTables(spaces.texts, names.texts, sound)


_NO_TABLES = re.compile(r"\s*(?:USE|SET(?!\s+STATEMENT))\s", re.IGNORECASE)
"""A setting; SET STATEMENT … FOR has a statement of MariaDB behind it."""


def _schema_changes(
    rows: Envelope, connector: str, commit_ts: Places, positions: SourcePositions, logs: pa.StringArray
) -> pa.RecordBatch:
    lines, records = list[Classification](), rows.records
    texts, changes, spaces, tables = (
        rows.column(*path) for path in (("ddl",), ("tableChanges",), ("databaseName",), ("source", "table"))
    )
    for place in np.flatnonzero(records.sound).tolist():
        message, text = int(records.messages[place]), texts.texts[place].as_py()
        try:
            if not texts.are(CellKind.TEXT)[place] or _NO_TABLES.match(text):
                reason = "a setting of the server, no change of a schema"
                lines.append(Classification(message, Kind.IGNORED, reason=reason))
                continue
            changed = json_value(changes.texts[place].as_py() or "[]")
            table = _changed(changed) or TableId(*(cells.texts[place].as_py() or "" for cells in (spaces, tables)))
        except _TROUBLE as error:
            records.refuse(place, explained(error))
            continue
        line = Classification(
            message, Kind.DDL, table, commit_ts=int(commit_ts[place]), query=text, source=logs[place].as_py()
        )
        at, snapshot = positions.ddl[place].as_py(), positions.places[place].as_py()
        lines.append(replace(line, source_position=at, read_at=snapshot if at == SNAPSHOT_DDL else None))
    return classified(lines)


_QUOTED = re.compile(r'"((?:[^"]|"")*)"')


def _changed(changes: Sequence[Mapping[str, str]]) -> TableId | None:
    """Return the table that a schema change is of, None for none and for several."""
    ids = [change["id"] for change in changes if change["type"] != "DROP" or change["id"]]
    names = [name.replace('""', '"') for name in _QUOTED.findall(ids[0])] if len(ids) == 1 else []
    return TableId(names[-2], names[-1]) if len(names) > 1 else None


@lru_cache(maxsize=4096)
def table_charset(value: bytes) -> str:
    """Return the charset that texts of a table have by default, as a connector's message of a DDL says it, or ""."""
    try:
        message = json_value(value)
        (change,) = message.get("payload", message)["tableChanges"]
        return str((change["table"] or {}).get("defaultCharsetName") or "")
    except _TROUBLE:
        return ""


# --- the columns and keys that rows show ------------------------------------------------------------------------------


def _shapes(rows: Envelope, mask: Marks, connector: str, keys: MessageKeys) -> pa.StringArray:
    """Return a shape that is equal for rows whose messages describe equal columns and keys.

    Null where DDL texts have the columns, and for a row that has none.
    """
    shapes = pa.nulls(len(mask), pa.string())
    if not rows.block and connector in _MYSQL:
        return shapes
    kinds, numbers = keys.of(rows, mask)
    if rows.block:
        return pa.array([kind.shape(rows.block.columns, rows.block.digest) for kind in kinds]).take(pa.array(numbers))
    for side, is_shown in _sides_shown(rows):
        places = np.flatnonzero(is_shown & mask)
        for members, some in rows.among(is_shown & mask).by_members(side) if len(places) else ():
            row_mask = np.isin(rows.records.messages, some.records.messages)
            columns = print_json(sorted(members))
            texts = pa.array([kind.shape(members, columns) for kind in kinds])
            shapes = pc.if_else(pa.array(row_mask), texts.take(pa.array(numbers)), shapes)
    return shapes


def _sides_shown(rows: Envelope) -> Iterator[tuple[str, Marks]]:
    """Yield the image that shows the columns of rows, and which rows have it."""
    after = rows.are_objects("after")
    yield "after", after
    yield "before", ~after & rows.are_objects("before")


def schemas(messages: pa.RecordBatch, options: MessageOptions) -> tuple[SchemaEvent, ...]:
    """Return the columns of tables by their rows: one for each table and shape.

    A message without schema block has their names alone: types are "" then, and come from the setting `schemas`. Of
    MySQL and MariaDB a block has less than DDL texts, and is approximate.
    """
    spoken = pa.Table.from_batches([classify(messages, options)])
    rows = spoken.filter(pc.is_valid(spoken.column("shape")))
    shown = rows.group_by(["schema", "table", "shape"], use_threads=False).aggregate([("message", "min")])
    first = np.sort(shown.column("message_min").to_numpy()).astype(np.int64)
    events, keys = list[SchemaEvent](), MessageKeys(messages.column("key"))
    values = messages.column("value").take(pa.array(first))
    for same in envelopes(values) if len(first) else ():
        for place in range(len(same.records)):
            some = same.among(np.arange(len(same.records)) == place)
            some = replace(some, records=some.records.moved(first[some.records.messages]))
            events.append(_shown(some, keys, connector_settings(options)))
    return tuple(sorted(events, key=lambda event: event.message))


def _shown(row: Envelope, keys: MessageKeys, settings: ConnectorSettings) -> SchemaEvent:
    """Return the schema that a row shows."""
    kinds, numbers = keys.of(row, np.ones(1, bool))
    names = next((row.members(side) for side, is_shown in _sides_shown(row) if is_shown.all()), ())
    kind, shown = kinds[int(numbers[0])], row.block.columns or dict.fromkeys(names)
    columns, key = columns_of({**shown, **kind.beside(shown)}, settings), kind.names
    index = (Index("", key, unique=True),) if key else ()
    columns = tuple(replace(column, nullable=column.name not in key) for column in columns)
    doubts = _doubts(row.column("source", "connector").texts[0].as_py())
    return SchemaEvent(int(row.records.messages[0]), _tables(row).table(0), 0, TableSchema(columns, key, index), doubts)


def _doubts(connector: str) -> tuple[str, ...]:
    if connector not in _MYSQL:
        return ()
    return ("unsigned types, lengths, defaults, collations and generated columns, which only DDL texts have",)


# --- rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Side:
    """One image of some changes: its columns. A patch may leave out what did not change."""

    columns: Mapping[str, RecordColumn]
    patch: bool


@dataclass(frozen=True, slots=True)
class _ConnectorChanges:
    """Changes of one kind: the image after each first, then the one before it.

    `moved` is what the two messages of a changed key, a delete and an insert, have in common: the LSN of their record.
    No other delete has the LSN of an insert. Other connectors leave nothing out, or have positions of transactions.
    """

    rows: Envelope
    connector: str
    ops: tuple[Op, ...]
    sides: tuple[_Side, ...]
    moved: pa.StringArray | None = None

    @property
    def sound(self) -> _ConnectorChanges:
        """Mask of the changes that are not refused."""
        mask = self.rows.records.sound
        if mask.all():
            return self
        sides = tuple(
            replace(side, columns={name: cells.among(mask) for name, cells in side.columns.items()})
            for side in self.sides
        )
        moved = None if self.moved is None else self.moved.filter(pa.array(mask))
        return replace(self, rows=self.rows.sound, sides=sides, moved=moved)

    def images(self, commit_ts: Places) -> Images:
        """Return the images, with the commit-ts of all messages."""
        messages, times = self.rows.records.messages, len(self.sides)
        after = [np.full(len(messages), -1) if place == 0 else np.arange(len(messages)) for place in range(times)]
        ops = np.repeat(np.array(self.ops, np.int8), len(messages))
        lines, ts = np.tile(messages + 1, times), np.tile(commit_ts[messages], times)
        return Images(lines, ops, ts, np.concatenate(after), self.moved)


def decode(rows: pa.RecordBatch, path: str, table: TableId, schema: TableSchema, options: MessageOptions) -> Decoded:
    """Return the changes of one table, `_cdc_commit_ts` being when the source made them.

    A row that cannot be read, or that has a column which the schema lacks, is a Reject with the message's bytes.
    """
    shape_of(schema.stored)  # an unknown type is an error before any row is
    rows = by_row(rows)
    keys, values = MessageKeys(rows.column("key")), rows.column("value")
    settings, patch = connector_settings(options), patch_op(options.patch_without_row, Op.UPDATE)
    settings = replace(settings, has_old_keys=has_old_keys(table, options))
    faults = Faults(path, lambda line: values[line - 1].as_py() or b"")
    commit_ts, change_sets = np.zeros(len(values), np.int64), list[_ConnectorChanges]()
    for some in envelopes(values):
        commit_ts[some.records.messages] = _require_rows(some, table)
        for mask, connector in some.records.by_value(*some.base, "source", "connector"):
            for changes in _changes(some.among(mask), str(connector), keys, schema, settings, patch):
                _refuse_unknown(changes, schema)
                faults.add_refused(changes.rows.records, "it is not a row of a Debezium connector")
                change_sets.append(changes.sound)
    if not change_sets:  # what has no rows has columns all the same
        none = some.among(np.zeros(len(some.records), bool))
        change_sets.append(_ConnectorChanges(none, "", (Op.INSERT,), (_Side({}, False),)))
    _refuse_second(change_sets, keys.keys, faults)
    images = side_by_side([changes.images(commit_ts) for changes in change_sets])
    decoded = changes_of(images, lambda column: _cells(change_sets, column, schema, settings), schema, options, faults)
    blocks = {changes.rows.block.digest: changes.rows.block for changes in change_sets if len(changes.rows.records)}
    return replace(decoded, stated=_stated(blocks, schema))


def _require_rows(rows: Envelope, table: TableId) -> Places:
    """Refuse what is no row of a table; return when changes were made."""
    records, tables, op = rows.records, _tables(rows), rows.column("op")
    records.require(rows.are_objects("source"), "it has no source that says where it is from")
    records.require(tables.sound, "it names no table")
    records.require(
        bits(pc.and_(pc.equal(tables.schemas, table.schema), pc.equal(tables.names, table.table))),
        lambda place: f"it is a row of {tables.table(place)}, not of {table}",
    )
    for side in ("before", "after"):
        records.require((rows.kinds(side) <= CellKind.NULL) | rows.are_objects(side), f"its {side} is no row")
    commit_ts = _commit_ts(rows)
    records.require(
        op.are_among(CellKind.TEXT, _OPS) & (rows.are_objects("after") != op.equal("d")),
        lambda place: f'its op is "{op.shown(place)}", and its image after does not fit that',
    )
    return commit_ts


def _changes(
    rows: Envelope,
    connector: str,
    keys: MessageKeys,
    schema: TableSchema,
    settings: ConnectorSettings,
    patch: Op,
) -> Iterator[_ConnectorChanges]:
    """Yield changes by their kind, each message in one; `patch` is that of an update without the row before."""
    end = row_end(schema)
    if connector == "mariadb" and end is not None:
        ended, rows = without_past_rows(rows, end, settings)
        if len(ended.records):
            before = _Side(_columns(ended, "before", keys, schema), False)
            yield _ConnectorChanges(ended, connector, (Op.DELETE,), (before,))
        if not len(rows.records):
            return
    op = rows.column("op")
    rows.records.require(not schema.hides_past_rows or ~op.are_among(CellKind.TEXT, ("u", "d")), PAST_ROWS)
    deletes = op.equal("d")
    if deletes.any():
        yield from _deletes(rows.among(deletes), connector, keys, schema, settings)
    if deletes.all():
        return
    columns = _columns(rows.among(~deletes), "after", keys, schema)
    partial = _without_before(rows.among(~deletes), columns, connector, keys, schema)
    if schema.key:
        left_out = [settings.stand_for_unchanged(cells) for cells in columns.values()]
        partial |= np.logical_or.reduce([partial, *left_out]) & ~op.equal("r")[~deletes]
    other_rows = rows.among(~deletes)
    if partial.any():
        some = other_rows.among(partial)
        some.records.require(bool(schema.key), _NO_ROW_BEFORE)
        moved = _lsns(some, connector, schema, some.column("op").equal("c"))
        yield _ConnectorChanges(some, connector, (patch,), (_side(columns, partial, True),), moved)
    for kind in ("c", "u", "r"):
        mask = op.equal(kind)[~deletes] & ~partial
        if not mask.any():
            continue
        some, side = other_rows.among(mask), _side(columns, mask, not schema.key and kind != "r")
        if kind == "u":
            before = _Side(_columns(some, "before", keys, schema), True)
            yield _ConnectorChanges(some, connector, (Op.INSERT, Op.DELETE), (side, before))
        else:
            yield _ConnectorChanges(some, connector, (Op.INSERT,), (side,))
    unknown = ~op.are_among(CellKind.TEXT, _OPS)
    if unknown.any():  # all of them are refused
        yield _ConnectorChanges(rows.among(unknown), connector, (Op.INSERT,), (_Side({}, False),))


def _columns(rows: Envelope, side: str, keys: MessageKeys, schema: TableSchema) -> dict[str, RecordColumn]:
    """Return the columns of images; those of the table's key that they lack have the values of the messages' keys."""
    columns = {name: rows.column(side, name) for name in rows.members(side)}
    for name in schema.key:
        cells = columns.get(name, RecordColumn.absent(len(rows.records)))
        if cells.are(CellKind.ABSENT).any():
            columns[name] = cells.else_from(keys.column(rows, name))
    return columns


def _without_before(
    rows: Envelope, columns: Mapping[str, RecordColumn], connector: str, keys: MessageKeys, schema: TableSchema
) -> Marks:
    """Mark updates whose message does not have the row before; `columns` are those after.

    A changed key comes as a delete and an insert. So an update whose row before has another key than the row after it,
    though the message's key has the table's, is one by REPLICA IDENTITY USING INDEX: of the row before, PostgreSQL's
    log has the columns of an index alone. Where the message's key is of other columns, that cannot be told from a
    changed key, and is refused where the row before looks like it.
    """
    updates, before = rows.column("op").equal("u"), rows.are_objects("before")
    if connector != "postgresql" or not schema.key or not (updates & before).any():
        return updates & ~before
    with_before = updates & before
    some = rows.among(with_before)
    old = _columns(some, "before", keys, schema)
    is_same_value = np.ones(len(some.records), bool)
    for name in schema.key:
        new, was = columns[name].among(with_before), old[name]
        is_same_value &= (new.kinds == was.kinds) & bits(pc.fill_null(pc.equal(new.texts, was.texts), True))
    if is_same_value.all():
        return updates & ~before
    kinds, numbers = keys.of(some, np.ones(len(is_same_value), bool))
    identified = np.array([set(schema.key) <= {*kind.names} for kind in kinds])[numbers]
    by_index = _by_another_index(old, schema, some.block.columns, len(is_same_value))
    wrong = np.zeros(len(updates), bool)
    wrong[with_before] = ~is_same_value & ~identified & by_index
    rows.records.require(~wrong, _BY_INDEX)
    update_mask = updates & ~before
    update_mask[with_before] = ~is_same_value & identified
    return update_mask


def _side(columns: Mapping[str, RecordColumn], mask: Marks, patch: bool) -> _Side:
    return _Side({name: cells.among(mask) for name, cells in columns.items()}, patch)


def _lsns(rows: Envelope, connector: str, schema: TableSchema, mask: Marks) -> pa.StringArray | None:
    """Return the LSN of PostgreSQL's records, null outside the mask; None where there is none, or no key to change."""
    has_lsn = connector == "postgresql" and bool(schema.key) and mask.any()
    return rows.column("source", "lsn").only(mask) if has_lsn else None


def _deletes(
    rows: Envelope, connector: str, keys: MessageKeys, schema: TableSchema, settings: ConnectorSettings
) -> Iterator[_ConnectorChanges]:
    """Yield deletes, of which some have the row and others its key only, at times in the key of their message."""
    with_row = rows.are_objects("before")
    some = rows.among(with_row)
    parts = [(some, _columns(some, "before", keys, schema))] if with_row.any() else []
    alone = rows.among(~with_row)
    has_key = keys.given[alone.records.messages]
    if not has_key.all():
        without_key = alone.among(~has_key)
        without_key.records.require(False, "it has neither the key nor the deleted row")
        parts.append((without_key, {}))
    own = np.zeros(len(keys.keys), bool)
    own[alone.records.messages[has_key]] = True
    for named in envelopes_among(keys.keys, own, of_keys=True) if own.any() else ():
        deletes = alone.among(np.isin(alone.records.messages, named.records.messages))
        named.records.require(named.are_objects(), "it is a value alone")
        for place, _, reason in named.records.refused():
            deletes.records.refuse(place, f"its key is no object of columns: {reason}. {NO_JSON_KEY}")
        parts.append((deletes, {name: named.column(name) for name in named.members() if name != ROUTED}))
    for some, columns in parts:
        absent = RecordColumn.absent(len(some.records))
        if connector == "postgresql":
            for name in schema.key:
                reason = f"it is a delete that does not have the key ({', '.join(schema.key)}). {_NO_KEY}"
                some.records.require(columns.get(name, absent).given, reason)
            if not settings.has_old_keys:
                by_index = _by_another_index(columns, schema, some.block.columns, len(some.records))
                some.records.require(~by_index, _BY_INDEX)
        present = [cells.given for name, cells in columns.items() if name not in schema.key]
        whole = np.logical_or.reduce([np.full(len(some.records), not schema.key), *present])
        for mask, kind in ((whole, Op.DELETE), (~whole, Op.DELETE_KEY)):
            if mask.any():
                deletes = some.among(mask)
                moved = _lsns(deletes, connector, schema, np.ones(len(deletes.records), bool))
                yield _ConnectorChanges(deletes, connector, (kind,), (_side(columns, mask, False),), moved)


def _by_another_index(
    columns: Mapping[str, RecordColumn], schema: TableSchema, fields: Mapping[str, Field], count: int
) -> Marks:
    """Mark deletes that have other columns than the key: then the replica identity is an index of those.

    A column that is not in it comes as NULL, and where that may not be as its default, or zero. An index that is one
    has no column that may be NULL: a delete that has such a column has all, by REPLICA IDENTITY FULL, though its key is
    zero.
    """
    key = [_unsaid(cells, fields.get(name)) for name, cells in columns.items() if name in schema.key]
    other_columns = {name: cells for name, cells in columns.items() if name not in schema.key}
    unsaid = [_unsaid(cells, fields.get(name)) for name, cells in other_columns.items()]
    if not key or not unsaid:
        return np.zeros(count, bool)
    whole = [cells.given for name, cells in other_columns.items() if name in fields and fields[name].optional]
    whole += [~np.logical_or.reduce(unsaid)] if len(unsaid) > 1 else []
    index_rows: Marks = np.logical_and.reduce(key) & ~np.logical_and.reduce(unsaid)
    return index_rows & ~np.logical_or.reduce(whole) if whole else index_rows


def _unsaid(cells: RecordColumn, field: Field | None) -> Marks:
    """Mark what PostgreSQL's connector sends for columns that its log does not have of a deleted row."""
    unsaid = [~cells.given, *(cells.are_among(kind, texts) for kind, texts in _ZEROS.items())]
    if field is not None and field.default is not None:
        unsaid.append(cells.given & bits(pc.equal(cells.texts, field.default)))
    mask: Marks = np.logical_or.reduce(unsaid)
    return mask


def _refuse_unknown(changes: _ConnectorChanges, schema: TableSchema) -> None:
    names = {column.name for column in schema.columns}
    for side in changes.sides:
        for name in side.columns.keys() - names:
            changes.rows.records.require(
                side.columns[name].are(CellKind.ABSENT),
                f'column "{name}" is not in the table\'s schema at this place; expected {", ".join(sorted(names))}',
            )


def _refuse_second(change_sets: Sequence[_ConnectorChanges], keys: pa.BinaryArray, faults: Faults) -> None:
    """Refuse another row of a snapshot with a key that it had before: all of them are there at once."""
    coded = pc.dictionary_encode(keys)
    numbers = coded.indices.fill_null(len(coded.dictionary)).to_numpy()
    counts = np.bincount(numbers, minlength=len(coded.dictionary) + 1)
    counts[-1] = 0  # no key is none that others have
    scanned = list[tuple[int, str | None, str | None]]()
    for changes in change_sets:
        rows = changes.rows
        repeats = rows.column("op").equal("r") & (counts[numbers[rows.records.messages]] > 1)
        if repeats.any():
            some = rows.among(repeats & ~rows.column("source", "snapshot").equal("incremental"))
            places = source_positions(some, changes.connector).places.to_pylist()
            scanned += zip(some.records.messages.tolist(), some.column("after").texts.to_pylist(), places, strict=True)
    first_by_number = dict[int, tuple[str | None, str | None]]()
    for message, row, place in sorted(scanned):
        first = first_by_number.setdefault(int(numbers[message]), (row, place))
        if first[0] != row and first[1] == place:
            key = keys[message].as_py().decode()[:200]
            faults.add(
                message + 1,
                "it is not a row of a Debezium connector: another row of the same snapshot has the key "
                f"{key} too. {_NO_KEY}",
            )


# --- values -----------------------------------------------------------------------------------------------------------


class _ImageColumn(NamedTuple):
    """A column of images whose values are of one field.

    `absent` marks images that lack the column, of those that have not all that the table had. `zero` marks moments as
    which MySQL's connectors send zero and partial dates too, and of TIMESTAMP, which has no such moment, nothing else:
    the day from which moments are counted, and the default, in columns that are NOT NULL ("Temporal types" of their
    documentation). `bare` marks values of MySQL without schema block, whose defaults are in DDL texts alone. `left_out`
    marks NULLs that may stand for a value that a change left as it was.
    """

    cells: RecordColumn
    field: Field
    unchanged: Marks
    absent: Marks
    zero: Marks
    bare: Marks
    left_out: Marks

    @property
    def defaulted(self) -> Marks:
        """Mark the values that are the default of their column."""
        default = self.field.default if self.field.optional else None
        return self.cells.given & (bits(pc.equal(self.cells.texts, default)) if default is not None else False)


def _cells(
    change_sets: Sequence[_ConnectorChanges], column: Column, schema: TableSchema, settings: ConnectorSettings
) -> Cells:
    """Return the cells of a column; what is not a value of its field is a fault."""
    in_key, gone = column.name in schema.exact, _lsns_of_old_keys(change_sets)
    images = (
        _image_column(changes, side, column, in_key, settings, gone)
        for changes in change_sets
        for side in changes.sides
    )
    parts = [_side_by_side(list(same)) for _, same in groupby(images, key=attrgetter("field"))]
    read = [read_column(part.cells, part.field, column, settings.binary) for part in parts]
    kinds = {values.array.type for values in read if values.array.null_count < len(values.array)}
    if len(kinds) > 1:
        read = [read_column(part.cells, part.field, column, settings.binary, in_texts=True) for part in parts]
        kinds = {pa.binary() if pa.binary() in kinds else pa.string()}
    kind = pa.binary() if is_binary(column) else kinds.pop() if kinds else pa.string()
    array = pa.concat_arrays([values.array.cast(kind) for values in read])
    absent, unchanged, defaulted, zero, bare, left_out = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("absent", "unchanged", "defaulted", "zero", "bare", "left_out")
    )
    if column.nullable and column.default is not None and bare.any():
        texts = array if pa.types.is_binary(array.type) else array.cast(pa.string())
        defaulted |= bare & bits(pc.equal(texts, pa.scalar(_default_text(column), texts.type)))
    defaulted &= settings.nulls_as_defaults
    wrong = np.concatenate([part.cells.given & ~values.sound for part, values in zip(parts, read, strict=True)])
    none = (np.zeros(len(part.cells), bool) for part in parts)
    beyond = np.concatenate(
        [zeros if values.beyond is None else values.beyond for values, zeros in zip(read, none, strict=True)]
    )
    meanings = np.repeat([part.field.meaning for part in parts], [len(part.cells) for part in parts])
    problem = 'column "{}" has a value that is not of the type {}'
    faults = tuple(
        (wrong & (meanings == meaning), problem.format(column.name, meaning))
        for meaning in np.unique(meanings[wrong]).tolist()
    )
    rounded = [
        are_rounded(values.array)
        if part.field.type == "double" and column.type in ("DECIMAL", DECIMAL)
        else np.zeros(len(part.cells), bool)
        for part, values in zip(parts, read, strict=True)
    ]
    doubts = {OUT_OF_RANGE: beyond, DEFAULTED: defaulted, MAYBE_UNCHANGED: left_out, ROUNDED: np.concatenate(rounded)}
    doubts[ZERO_DATE if column.type in _INSTANTS else MAYBE_ZERO_DATE] = zero
    notes = {rule: mask for rule, mask in doubts.items() if mask.any()}
    zones = pa.repeat("UTC", len(array)) if column.type == "TIMESTAMP" else None
    lacking, same = (mask if mask.any() else None for mask in (absent, unchanged))
    return Cells(array, lacking, "raw", zones, faults, notes, named=True, unchanged=same)


def _lsns_of_old_keys(change_sets: Sequence[_ConnectorChanges]) -> pa.StringArray:
    """Return the LSNs of deletes without their row: an insert of the same LSN is that row under its new key."""
    lsns = [changes.moved for changes in change_sets if changes.ops == (Op.DELETE_KEY,) and changes.moved is not None]
    return pa.concat_arrays([pa.array([], pa.string()), *lsns])


def _image_column(
    changes: _ConnectorChanges,
    side: _Side,
    column: Column,
    in_key: bool,
    settings: ConnectorSettings,
    gone: pa.StringArray,
) -> _ImageColumn:
    """Return a column of one image of some changes; `gone` are the LSNs of rows that were deleted by their old key."""
    block, count = changes.rows.block, len(changes.rows.records)
    cells = side.columns.get(column.name, RecordColumn.absent(count))
    field = settled_field(block.columns.get(column.name) or field_of(column, settings), column, settings)
    unchanged = settings.stand_for_unchanged(cells, field.type) if side.patch else np.zeros(count, bool)
    of_mysql, zero = changes.connector in _MYSQL, np.zeros(count, bool)
    if of_mysql and field.meaning in _DATES:
        if column.type in _INSTANTS:
            zero = cells.equal(EPOCH)
            cells = cells.without(zero)
        elif not in_key and not (field.optional if block else column.nullable):
            defaults = [EPOCH, "0", "1970-01-01Z", *([] if field.default is None else [field.default])]
            zero = cells.given & bits(pc.is_in(cells.texts, pa.array(defaults)))
    left_out = np.zeros(count, bool)
    if changes.connector == "postgresql" and len(changes.sides) == 1 and settings.may_be_left_out(field, column):
        op, lsns = changes.rows.column("op"), changes.rows.column("source", "lsn").texts
        moved = bits(pc.is_in(lsns, pc.drop_null(gone))) | (Op.INSERT not in changes.ops)
        left_out = cells.are(CellKind.NULL) & ((side.patch & op.equal("u")) | (moved & op.equal("c")))
    cells = cells.without(unchanged)
    is_whole = bool(block) or not of_mysql
    bare = np.full(count, of_mysql and not block)
    return _ImageColumn(cells, field, unchanged, cells.are(CellKind.ABSENT) & (not is_whole), zero, bare, left_out)


def _default_text(column: Column) -> str:
    """Return the default of a column as its values are read."""
    text = str(column.default)
    return (
        text if column.type not in ("DATETIME", "TIMESTAMP") else f"{text}{'' if '.' in text else '.'}".ljust(26, "0")
    )


def _side_by_side(parts: Sequence[_ImageColumn]) -> _ImageColumn:
    """Put columns of one field one after the other: what is done once for a column takes long for a few rows."""
    if len(parts) == 1:
        return parts[0]
    marks = ("unchanged", "absent", "zero", "bare", "left_out")
    joined = [np.concatenate([getattr(part, name) for part in parts]) for name in marks]
    return _ImageColumn(RecordColumn.joined([part.cells for part in parts]), parts[0].field, *joined)


# --- settings on which values depend ----------------------------------------------------------------------------------

_TIME = "io.debezium.time"
_MOMENTS = frozenset((*COUNTS, *CLOCKS, f"{_TIME}.IsoDate", f"{_TIME}.IsoTimestamp", *STRUCTS))
_DATES = frozenset((*COUNTS, *(f"{_TIME}.{name}" for name in ("IsoDate", "IsoTimestamp", "ZonedTimestamp"))))
_INSTANTS = ("TIMESTAMP", f"{_TIME}.ZonedTimestamp")
_SPANS = (f"{_TIME}.Interval", f"{_TIME}.MicroDuration")
_BINARY, _STAND_IN = "binary.handling.mode", "unavailable.value.placeholder"


@lru_cache(maxsize=4096)
def _read_by(column: Column, options: MessageOptions) -> Mapping[str, object]:
    """Return the settings that decide values without schema block; a stand-in and texts of bytes need them in any case.

    Columns of the setting `schemas` in PostgreSQL's words have their types by the present modes: there the mode counts.
    """
    if column.type == UNKNOWN_TYPE:
        return {}
    try:
        own = _way(column, options)
    except MalformedData:
        return {}  # its values are not read at all: decoding says why, of its table alone
    own_modes = dict(options.connector)
    reading_settings: dict[str, object] = {
        name: own
        for name, modes in CONNECTOR_MODES.items()
        if any(_way(column, options.having({name: mode})) != own for mode in modes)
    }
    if column.type in _MOMENTS:
        reading_settings["time.precision.mode"] = own_modes.get("time.precision.mode", "adaptive")
    if column.type in _SPANS:
        reading_settings["interval.handling.mode"] = own_modes.get("interval.handling.mode", "numeric")
    settings = connector_settings(options)
    if field_of(column, settings).type in ("string", "bytes", "array", "map"):
        reading_settings[_STAND_IN] = settings.unavailable
    return reading_settings


def _way(column: Column, options: MessageOptions) -> object:
    """Return a text that is equal where values of a column without schema block are read equally."""
    settings = connector_settings(options)
    field = settled_field(field_of(column, settings), column, settings)
    if is_binary(column):
        return read_bytes(field, settings.binary)
    in_digits = field.type in ("double", "string") and column.type in ("DECIMAL", DECIMAL)
    return "digits" if in_digits else field


def _stated(blocks: Mapping[str, SchemaBlock], schema: TableSchema) -> frozenset[str]:
    """Return the settings on which no value depends, since all rows have schema blocks; bytes as texts need theirs."""
    if not all(blocks.values()):
        return frozenset()
    texts = any(
        (field := block.columns.get(column.name)) is not None and field.type == "string" and is_binary(column)
        for block in blocks.values()
        for column in schema.stored
    )
    return frozenset(CONNECTOR_MODES) - {_STAND_IN} - ({_BINARY} if texts else set())


CODEC = MessageCodec(
    classify=classify,
    decode=decode,
    schemas=schemas,
    charset_of_ddl=table_charset,
    source_sql=SourceSql(types=_types, schema="public", folds_names=True),
    read_by=_read_by,
)
