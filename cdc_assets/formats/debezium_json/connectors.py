"""Messages of Debezium's connectors: what they speak of, the schemas that rows show, the changes of a table.

    {"before":{…},"after":{…},"source":{"connector":"mariadb","db":…,"table":…,"file":…,"pos":…},"op":"u",…}

`op` is c, u, d, r for a row of a snapshot, t for a truncate, m for a logical message. A row is taken by its key where
the message does not have the row before it. What is not a row: tombstones, which repeat a delete; schema changes, which
have the DDL's text; heartbeats and transactions. With a schema block the types of columns are in each message,
else by DDL texts or the setting `schemas`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_assets.formats import Decoded, Op, shape_of
from cdc_assets.formats.debezium_json.arrays import DEFAULTED, OUT_OF_RANGE, cells_of, faults_of
from cdc_assets.formats.debezium_json.columns import UNTOLD, columns_of, field_of, settled_field
from cdc_assets.formats.debezium_json.envelope import Block, Field, Message, image_of, opened
from cdc_assets.formats.debezium_json.positions import (
    dialect,
    read_position,
    schema_position,
    snapshot_phase,
    source_position,
)
from cdc_assets.formats.debezium_json.readings import CLOCKS, COUNTS, TROUBLE, is_binary, read_marked, reader_of
from cdc_assets.formats.debezium_json.settings import ConnectorSettings, connector_settings
from cdc_assets.formats.debezium_json.uniform import REFUSED, Changes, changes, spoken
from cdc_assets.formats.images import Cells, Faults, Images, changes_of, in_lines, patch_op, side_by_side
from cdc_assets.formats.message_codecs import MessageCodec, SourceSql
from cdc_assets.formats.message_options import CONNECTOR_MODES, MessageOptions
from cdc_assets.formats.messages import (
    Kind,
    Said,
    SchemaEvent,
    explained,
    in_order,
    lines_of,
    said,
    source_text,
    truncating,
)
from cdc_assets.model.schema import Column, Index, ReadColumn, TableId, TableSchema
from cdc_assets.types.connect_types import DECIMAL
from cdc_assets.types.postgres_types import postgres_column

__all__ = ["DEFAULTED", "OUT_OF_RANGE", "classify", "decode", "schemas"]

_TOMBSTONE = "a tombstone, which repeats a delete"
_PASSED_OVER: Mapping[frozenset[str], str] = {
    frozenset(("ts_ms",)): "a heartbeat",
    frozenset(("status", "id", "event_count", "data_collections", "ts_ms")): "a transaction's beginning or end",
}
_MYSQL = ("mysql", "mariadb")
_GREATEST_MS = 1 << 45
"""Milliseconds since 1970 that are a TSO."""
_NO_KEY = (
    "message.key.columns of the connector gives messages keys that do not identify rows: let it name columns that do, "
    "with a REPLICA IDENTITY that has them, and let the table be rebuilt from a new snapshot"
)
_OF_ANOTHER = 'its connector is "{}"; give the protocol of that writer'
_DOCUMENT = (
    'its connector is "mongodb", whose documents have no columns: of them no table can be built. Take its topics out '
    "of this feed"
)
_BARE = (
    "it is a row alone, as the transformation ExtractNewRecordState leaves it: which table it is of, which change it "
    "is and where it stands in the source's log is not in it. Take that transformation out of the connector's "
    "configuration"
)


def _types(options: MessageOptions) -> ReadColumn:
    modes = dict(options.connector)
    return lambda name, declared, own: postgres_column(name, declared, modes, own)


# --- what messages speak of -------------------------------------------------------------------------------------------


def classify(messages: pa.RecordBatch, options: MessageOptions) -> pa.RecordBatch:
    """Return what each message speaks of (SPOKEN)."""
    keys, values = messages.column("key"), messages.column("value")
    left, found = np.ones(len(messages), bool), list[pa.RecordBatch]()
    for numbers, lines in spoken(keys, values, _shape):
        left[numbers] = False
        found.append(lines)
    alone = np.flatnonzero(left).tolist()
    return in_order([*found, said(_one(one, keys[one].as_py(), values[one].as_py()) for one in alone)])


def _one(number: int, key: bytes | None, value: bytes | None) -> Said:
    if value is None:
        return Said(number, Kind.IGNORED, reason=_TOMBSTONE)
    try:
        return _said(number, key, opened(value))
    except TROUBLE as error:
        return Said(number, Kind.BAD, reason=f"it is not a message of a Debezium connector: {explained(error)}")


def _said(number: int, key: bytes | None, message: Message) -> Said:
    held = message.payload
    if held is None:
        return Said(number, Kind.IGNORED, reason=_TOMBSTONE)
    passed = _PASSED_OVER.get(frozenset(held))
    if passed is not None:
        return Said(number, Kind.IGNORED, reason=passed)
    source = held.get("source")
    if not isinstance(source, dict):
        raise ValueError(
            _BARE if source is None and "op" not in held else "it has no source that says where it is from"
        )
    connector = source["connector"]
    if connector in REFUSED:
        raise ValueError(_DOCUMENT if connector == "mongodb" else _OF_ANOTHER.format(connector))
    ts = _commit_ts(source)
    log = source_text(dialect(connector), str(source["name"]))
    where: dict[str, Any] = {"source": log, "source_position": source_position(source)}
    if "ddl" in held:
        if connector not in _MYSQL:
            return Said(number, Kind.IGNORED, reason=f"a schema change of {connector}, of which rows have the columns")
        return _schema_change(number, held, ts, {**where, "source_position": schema_position(source)})
    op = held["op"]
    if op == "m":
        return Said(number, Kind.IGNORED, reason="a logical message")
    table = _table(source)
    if op == "t":
        return Said(number, Kind.DDL, table, commit_ts=ts, query=truncating(table), type=11, **where)
    if op not in ("c", "u", "d", "r"):
        raise ValueError(f'its op is "{op}"')
    where |= {"read_at": read_position(source), "phase": snapshot_phase(source)}
    return Said(number, Kind.ROW, table, (0,), ts, shape=_shape(key, message, connector), **where)


def _table(source: Mapping[str, Any]) -> TableId:
    """Return the table of a row: in its schema where the database has such, else in its database."""
    space: Any = source.get("schema") if source.get("schema") is not None else source["db"]
    if not all(isinstance(name, str) and name for name in (space, source["table"])):
        raise ValueError("it names no table")
    return TableId(space, source["table"])


def _commit_ts(source: Mapping[str, Any]) -> int:
    """Return when a change was made."""
    ms = source["ts_ms"]
    if type(ms) is not int or not 0 <= ms < _GREATEST_MS:
        raise ValueError(f"its source.ts_ms {str(ms)[:40]} is no time in milliseconds since 1970")
    return ms << 18


_NO_TABLES = ("SET", "USE")


def _schema_change(number: int, held: Mapping[str, Any], ts: int, where: Mapping[str, Any]) -> Said:
    text = held["ddl"]
    if not isinstance(text, str) or text.split(None, 1)[0].upper() in _NO_TABLES:
        return Said(number, Kind.IGNORED, reason="a setting of the server, no change of a schema")
    changed = [one["id"] for one in held.get("tableChanges") or () if one["type"] != "DROP" or one["id"]]
    names = json.loads(f"[{changed[0]}]".replace('"."', '","')) if len(changed) == 1 else []
    if len(names) > 1:
        table = TableId(names[-2], names[-1])
    else:
        table = TableId(str(held.get("databaseName") or ""), str(held["source"].get("table") or ""))
    return Said(number, Kind.DDL, table, commit_ts=ts, query=text, **where)


def _shape(key: bytes | None, message: Message, connector: str) -> str | None:
    """Return what is equal for rows whose messages describe the same columns and key."""
    if not message.block:
        if connector in _MYSQL:  # DDL texts have the columns
            return None
        row = message.payload["after"] or message.payload["before"]
        return None if row is None else json.dumps([sorted(row), _key_names(key, row)], ensure_ascii=False)
    return _shape_text(_digest(message.block), tuple(_key_names(key, message.block)))


@lru_cache(maxsize=1024)
def _shape_text(digest: str, key: tuple[str, ...]) -> str:
    return f"{digest} {json.dumps(key, ensure_ascii=False)}"


_DIGESTS: dict[int, tuple[Block, str]] = {}


def _digest(block: Block) -> str:
    """Return a digest of columns; blocks that are cached are known by their identity."""
    known = _DIGESTS.get(id(block))
    if known is not None and known[0] is block:
        return known[1]
    import hashlib

    text = repr([(name, one.meaning, sorted(one.parameters.items())) for name, one in block.items()])
    found = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    if len(_DIGESTS) > 1000:
        _DIGESTS.clear()
    _DIGESTS[id(block)] = (block, found)
    return found


def _key_names(key: bytes | None, columns: Container[str]) -> list[str]:
    """Return the key's columns; a router of topics puts more into keys, by which rows of several tables differ."""
    held = None if key is None else opened(key).payload
    if not isinstance(held, dict | None):
        raise ValueError("its key is no object of columns. Let the connector have key.converter = JsonConverter")
    return [name for name in held or () if name in columns]


# --- rows -------------------------------------------------------------------------------------------------------------


class _Side(NamedTuple):
    """An image: its row, the columns' fields, whether it may leave out what did not change.

    An image that is `whole` has all columns that the table had: one that it lacks was NULL, or was not there.
    """

    row: Mapping[str, Any]
    block: Block
    patch: bool
    whole: bool


def decode(rows: pa.RecordBatch, path: str, table: TableId, schema: TableSchema, options: MessageOptions) -> Decoded:
    """Return the changes of one table, `_cdc_commit_ts` being when the source made them.

    A row that cannot be read, or that has a column which the schema lacks, is a Reject with the message's bytes.
    """
    owners, _ = lines_of(rows)
    settings, patch = connector_settings(options), patch_op(options, Op.UPDATE)
    shape_of(schema.stored)  # an unknown type is an error before any row is
    faults = Faults(path, lambda line: rows.column("value")[int(owners[line - 1])].as_py() or b"")
    alike = list[Changes]() if len(owners) > rows.num_rows else list(changes(rows, table, schema, settings, patch))
    left = np.ones(len(owners), bool)
    for group in alike:
        left[group.alike.messages] = False
    images, sides = _alone((np.flatnonzero(left) + 1).tolist(), owners, rows, table, schema, options, faults)
    stored = {column.name for column in schema.stored}
    if alike and any(not side.whole and not stored <= side.row.keys() for side in sides):
        # whether a column is not written at all, or is missing in some rows, can be seen of all of them only
        images, sides = _alone(range(1, len(owners) + 1), owners, rows, table, schema, options, faults)
        alike = []
    parts = [(images, lambda column: _cells(sides, column, settings))] if len(images) or not alike else []
    if alike:
        parts.append((side_by_side([one.images for one in alike]), lambda column: cells_of(alike, column, settings)))
    found = in_lines([changes_of(one, cells, schema, options, faults) for one, cells in parts], faults)
    blocks = {id(one): one for one in (*(side.block for side in sides), *(group.block for group in alike))}
    return replace(found, stated=_stated(blocks.values(), schema))


def _alone(
    lines: Sequence[int],
    owners: npt.NDArray[np.int64],
    rows: pa.RecordBatch,
    table: TableId,
    schema: TableSchema,
    options: MessageOptions,
    faults: Faults,
) -> tuple[Images, list[_Side]]:
    """Read some lines one by one."""
    settings, patch = connector_settings(options), patch_op(options, Op.UPDATE)
    keys, values = rows.column("key"), rows.column("value")
    events: list[tuple[int, int, int, int]] = []
    sides: list[_Side] = []
    halves: list[str | None] = []
    names = {column.name for column in schema.columns}
    scanned: dict[bytes, Mapping[str, Any]] = {}
    for line in lines:
        owner = int(owners[line - 1])
        key = keys[owner].as_py()
        try:
            message = opened(values[owner].as_py())
            found, ts = _images(message, key, table, schema, settings)
            _refuse_unknown(found, names)
            _refuse_second(scanned, key, message.payload)
            half = _half_of_key_change(message, found) if schema.key else None
        except TROUBLE as error:
            faults.add(line, f"it is not a row of a Debezium connector: {explained(error)}")
            continue
        after = len(events) if len(found) > 1 else -1
        for op, side in found:
            own = patch if op == Op.UPDATE else op
            events.append((line, own, ts, after if op < 0 else -1))
            sides.append(side)
            halves.append(half)
    held = np.array(events, np.int64).reshape(-1, 4)
    moved = pa.array(halves, pa.string()) if any(halves) else None
    return Images(held[:, 0], held[:, 1].astype(np.int8), held[:, 2], held[:, 3], moved), sides


def _images(
    message: Message, key: bytes | None, table: TableId, schema: TableSchema, settings: ConnectorSettings
) -> tuple[list[tuple[Op, _Side]], int]:
    """Return the image after a change, then the one before it, and when it was made."""
    held, block = message.payload, message.block
    found, op = _table(held["source"]), held["op"]
    if found != table:
        raise ValueError(f"it is a row of {found}, not of {table}")
    before: Any = image_of(held, "before")
    after: Any = image_of(held, "after")
    ts, whole = _commit_ts(held["source"]), bool(block) or held["source"]["connector"] not in _MYSQL
    if (after is None) != (op == "d"):
        raise ValueError(f'its op is "{op}", and its image after does not fit that')
    if op == "d":
        if before is None and key is not None:
            before = opened(key).payload
        if before is None:
            raise ValueError("it has neither the key nor the deleted row")
        if held["source"]["connector"] == "postgresql" and any(before.get(name) is None for name in schema.key):
            raise ValueError(f"it is a delete that does not have the key ({', '.join(schema.key)}). {_NO_KEY}")
        keyed_only = bool(schema.key) and all(value is None for name, value in before.items() if name not in schema.key)
        return [(Op.DELETE_KEY if keyed_only else Op.DELETE, _Side(before, block, keyed_only, whole))], ts
    if op == "u" and before is None:
        if not schema.key:
            raise ValueError(
                "it is an update of a table without key, and does not have the row before it. Set REPLICA IDENTITY "
                "FULL at the source, and let the table be rebuilt"
            )
        return [(Op.UPDATE, _Side(after, block, True, whole))], ts
    if op in ("c", "u") and schema.key and settings.leaves_out(after):
        return [(Op.UPDATE, _Side(after, block, True, whole))], ts
    images = [(Op.INSERT, _Side(after, block, op != "r", whole))]
    if op == "u":
        images.append((Op.DELETE, _Side(before, block, True, whole)))
    return images, ts


def _half_of_key_change(message: Message, found: Sequence[tuple[Op, _Side]]) -> str | None:
    """Return what the two messages of a changed key, a delete and an insert, have in common: the LSN of their record.

    No other delete has the LSN of an insert. Other connectors leave nothing out, or have positions of transactions.
    """
    source, (op, _) = message.payload["source"], found[0]
    if source["connector"] != "postgresql" or not (op < 0 or (op == Op.UPDATE and message.payload["op"] == "c")):
        return None
    return str(source["lsn"])


def _refuse_second(scanned: dict[bytes, Mapping[str, Any]], key: bytes | None, payload: Mapping[str, Any]) -> None:
    """Raise ValueError for another row of a snapshot with a key that it had before: all of them are there at once."""
    if payload["op"] != "r" or key is None or payload["source"].get("snapshot") == "incremental":
        return
    known = scanned.setdefault(key, payload)
    if known["after"] != payload["after"] and source_position(known["source"]) == source_position(payload["source"]):
        raise ValueError(f"another row of the same snapshot has the key {key.decode()[:200]} too. {_NO_KEY}")


def _refuse_unknown(found: Sequence[tuple[Op, _Side]], names: set[str]) -> None:
    for _, side in found:
        unknown = next((name for name in side.row if name not in names), None)
        if unknown is not None:
            raise ValueError(
                f'column "{unknown}" is not in the table\'s schema at this place; expected {", ".join(sorted(names))}'
            )


# --- values -----------------------------------------------------------------------------------------------------------

_PLACEHOLDERS = (str, list, dict)
"""Types of what may stand for an unchanged value."""


def _cells(sides: Sequence[_Side], column: Column, settings: ConnectorSettings) -> Cells:
    """Return the cells of a column; what is not a value of its field is a fault."""
    name, binary = column.name, is_binary(column)
    texts: list[str | bytes | None] = []
    wrong, ranged, defaulted, unchanged, absent = ([False] * len(sides) for _ in range(5))
    known, read, field, meanings = None, None, Field("string"), [""] * len(sides)
    for place, side in enumerate(sides):
        value = side.row.get(name)
        if value is None:
            texts.append(None)
            absent[place] = name not in side.row and not side.whole
            continue
        if read is None or side.block is not known:
            field = settled_field(side.block.get(name) or field_of(column, settings), column, settings)
            known, read = side.block, reader_of(field, column, settings)
        if side.patch and type(value) in _PLACEHOLDERS and settings.is_unchanged(value, field.type):
            unchanged[place] = True
            texts.append(None)
            continue
        texts.append(read_marked(read, value, place, wrong, ranged))
        meanings[place] = field.meaning if wrong[place] else ""
        defaulted[place] = field.optional and field.default is not None and field.default == value
    faults = faults_of(column, np.array(meanings)) if any(wrong) else ()
    marks = {OUT_OF_RANGE: ranged, DEFAULTED: defaulted}
    notes = {rule: np.array(mask, bool) for rule, mask in marks.items() if any(mask)}
    is_bytes = binary or any(isinstance(text, bytes) for text in texts)
    array = pa.array(texts, pa.binary() if is_bytes else pa.string())
    zones = pa.array(["UTC"] * len(texts)) if column.type == "TIMESTAMP" else None
    lacking, same = np.array(absent, bool), np.array(unchanged, bool)
    return Cells(array, lacking if any(absent) else None, "raw", zones, faults, notes, True,
                 same if any(unchanged) else None)  # fmt: skip


# --- schemas ----------------------------------------------------------------------------------------------------------


def schemas(messages: pa.RecordBatch, options: MessageOptions) -> tuple[SchemaEvent, ...]:
    """Return the columns of tables by their rows: one for each table and shape.

    A message without schema block has their names alone: types are "" then, and come from the setting `schemas`. Of
    MySQL and MariaDB a block has less than DDL texts, and is approximate.
    """
    found: dict[tuple[TableId, str], SchemaEvent] = {}
    keys, values = messages.column("key").to_pylist(), messages.column("value").to_pylist()
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        try:
            if value is None or _one(number, key, value).kind is not Kind.ROW:
                continue
            message = opened(value)
            source = message.payload["source"]
            table, shape = _table(source), _shape(key, message, source["connector"])
            if shape is None or (table, shape) in found:
                continue
            columns = columns_of(message.block or dict.fromkeys(_row(message), None), connector_settings(options))
            event = SchemaEvent(
                number,
                table,
                0,
                _schema(columns, _key_names(key, message.block or _row(message))),
                _doubts(source["connector"]),
            )
            found[table, shape] = event
        except TROUBLE:
            continue  # classify calls it bad, or decode rejects it
    return tuple(found.values())


def _row(message: Message) -> Mapping[str, Any]:
    row: Mapping[str, Any] = message.payload["after"] or message.payload["before"]
    return row


def _schema(columns: tuple[Column, ...], key: Sequence[str]) -> TableSchema:
    index = (Index("", tuple(key), unique=True),) if key else ()
    found = tuple(replace(column, nullable=column.name not in key) for column in columns)
    return TableSchema(found, tuple(key), index)


def _doubts(connector: str) -> tuple[str, ...]:
    if connector not in _MYSQL:
        return ()
    return ("unsigned types, lengths, defaults, collations and generated columns, which only DDL texts have",)


# --- settings on which values depend ----------------------------------------------------------------------------------

_TIME = "io.debezium.time"
_MOMENTS = frozenset((*COUNTS, *CLOCKS, f"{_TIME}.IsoDate", f"{_TIME}.IsoTimestamp"))
_SPANS = (f"{_TIME}.Interval", f"{_TIME}.MicroDuration")
_BINARY, _STAND_IN = "binary.handling.mode", "unavailable.value.placeholder"


def _read_by(column: Column, options: MessageOptions) -> Mapping[str, object]:
    """Return what settings make of values without schema block; a stand-in and texts of bytes need them in any case.

    Columns of the setting `schemas` in PostgreSQL's words have their types by the present modes: there the mode counts.
    """
    if column.type == UNTOLD:
        return {}
    given, own = dict(options.connector), _way(column, options)
    found: dict[str, object] = {
        name: own
        for name, modes in CONNECTOR_MODES.items()
        if any(_way(column, options.having({name: mode})) != own for mode in modes)
    }
    if column.type in _MOMENTS:
        found["time.precision.mode"] = given.get("time.precision.mode", "adaptive")
    if column.type in _SPANS:
        found["interval.handling.mode"] = given.get("interval.handling.mode", "numeric")
    settings = connector_settings(options)
    if field_of(column, settings).type in ("string", "bytes", "array", "map"):
        found[_STAND_IN] = settings.unavailable
    return found


def _way(column: Column, options: MessageOptions) -> object:
    """Return what is equal where values of a column without schema block are read equally."""
    settings = connector_settings(options)
    field = settled_field(field_of(column, settings), column, settings)
    if is_binary(column):
        return reader_of(field, column, settings)
    in_digits = field.type in ("double", "string") and column.type in ("DECIMAL", DECIMAL)
    return "digits" if in_digits else field


def _stated(blocks: Collection[Block], schema: TableSchema) -> frozenset[str]:
    """Return which settings no value depends on, since all rows have schema blocks; bytes as texts need theirs."""
    if not all(blocks):
        return frozenset()
    texts = any(
        (field := block.get(column.name)) is not None and field.type == "string" and is_binary(column)
        for block in blocks
        for column in schema.stored
    )
    return frozenset(CONNECTOR_MODES) - {_STAND_IN} - ({_BINARY} if texts else set())


CODEC = MessageCodec(
    classify=classify,
    decode=decode,
    schemas=schemas,
    source_sql=SourceSql(types=_types, schema="public", folds_names=True),
    read_by=_read_by,
)
