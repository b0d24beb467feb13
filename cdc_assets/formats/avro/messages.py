"""Avro messages: what they speak of, the schemas that rows show, and the changes of a table.

The key is a record of the handle key, the value one of the row's columns, with the extension also `_tidb_op` and
`_tidb_commit_ts`. A delete has no value, so neither operation nor commit-ts: only its offset says when it was. The
images before (`avro-include-before-value`) are in `_ticdc_before`; then a delete is a row with the operation "d".
Names are sanitized (see `wire`): rows are of the table whose name reads the same, and so are columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import COMMIT_TS, Decoded, Op
from cdc_assets.formats.avro.record import BEFORE, COMMIT_TS_FIELD, EXTENSION, OP_FIELD, columns_of, table_schema
from cdc_assets.formats.avro.wire import DELETE_MARK, framed, read_record, registered, sanitized
from cdc_assets.formats.compression import unpacked
from cdc_assets.formats.images import Cells, Faults, Images, changes_of
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.formats.messages import Kind, Said, SchemaEvent, lines_of, position_text, said
from cdc_assets.model.schema import Column, TableId, TableSchema

__all__ = ["classify", "decode", "schema_ids", "schemas"]

_UNSIGNED = (1 << 64) - 1
_NONE = -1
"""Stands for a commit-ts that is not known."""


def classify(messages: pa.RecordBatch, options: MessageOptions) -> pa.RecordBatch:
    """Return what each message speaks of (SPOKEN); names are sanitized, a tombstone has no commit-ts."""
    keys, values = messages.column("key").to_pylist(), unpacked(messages.column("value"), options)
    nulls = pc.is_null(messages.column("value")).to_pylist()
    return said(
        _one(message, key, value, null, options)
        for message, (key, value, null) in enumerate(zip(keys, values, nulls, strict=True))
    )


def _one(message: int, key: bytes | None, value: bytes | None, null: bool, options: MessageOptions) -> Said:
    try:
        if key is None:
            return _marker(message, value)
        if value is None and not null:
            raise ValueError("its value is not compressed as large-message-handle-compression says")
        if value is None or _is_delete(value):
            table = TableId(*registered(framed(key).id, options).schema_and_table)
            ts = None if value is None else _tso(int.from_bytes(value[1:], "big"))
            return Said(message, Kind.ROW, table, (0,), ts, source_position=_place(ts) or "")
        row = framed(value)
        schema, record = read_record(row, options)
        ts = _tso(record[COMMIT_TS_FIELD]) if COMMIT_TS_FIELD in record else None
        table = TableId(*schema.schema_and_table)
        return Said(message, Kind.ROW, table, (0,), ts, source_position=_place(ts), shape=f"{framed(key).id}/{row.id}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error) if type(error) is ValueError else repr(error)
        return Said(message, Kind.BAD, _table_of_key(key, options), reason=f"it is not an Avro message: {reason[:300]}")


def _place(ts: int | None) -> str | None:
    """Return the place in the source's log; a delete without commit-ts stands behind the row before it."""
    return None if ts is None else position_text(ts)


def _is_delete(value: bytes) -> bool:
    return value[:1] == b"\3" and len(value) == DELETE_MARK


def _tso(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"its commit-ts {value} is not a TSO")
    return value


def _table_of_key(key: bytes | None, options: MessageOptions) -> TableId | None:
    try:
        return TableId(*registered(framed(key or b"").id, options).schema_and_table)
    except (ValueError, KeyError):
        return None


def _marker(message: int, value: bytes | None) -> Said:
    """A message without key is a marker, which TiCDC writes with `avro-enable-watermark`."""
    if value is not None and value[:1] == b"\2" and len(value) == 9:
        return Said(message, Kind.RESOLVED, commit_ts=_tso(int.from_bytes(value[1:], "big")))
    if value is None or value[:1] != b"\1":
        raise ValueError("it has no key, and its value is not a marker")
    held = json.loads(value[1:])
    texts = [held[name] for name in ("schema", "table", "query")]
    if not all(isinstance(text, str) for text in texts) or type(held["type"]) is not int:
        raise ValueError("its DDL lacks schema, table, query or type")
    table = TableId(texts[0], texts[1])
    ts = _tso(held["commitTs"])
    return Said(message, Kind.DDL, table, commit_ts=ts, query=texts[2], type=held["type"], source_position=_place(ts))


def schema_ids(messages: pa.RecordBatch, options: MessageOptions) -> dict[str, int]:
    """Return the ids of schemas that messages name, each with the first message that does."""
    found: dict[str, int] = {}
    columns = (messages.column("key").to_pylist(), unpacked(messages.column("value"), options))
    for message, (key, value) in enumerate(zip(*columns, strict=True)):
        if key is None:
            continue  # a marker
        for data in (key, value):
            try:
                if data is not None and not _is_delete(data):
                    found.setdefault(framed(data).id, message)
            except ValueError:
                continue  # classify calls it bad
    return found


# --- rows -------------------------------------------------------------------------------------------------------------


def decode(rows: pa.RecordBatch, path: str, table: TableId, schema: TableSchema, options: MessageOptions) -> Decoded:
    """Return the changes of one table; an update without an image before it is an INSERT, to be taken by its key.

    A delete without value is a DELETE_KEY, and `_cdc_commit_ts` is null where a message has none. A row that cannot be
    read, or that has a column which the schema lacks, is a Reject with the message's value (a delete's key).
    """
    owners, _ = lines_of(rows)
    keys, whole = rows.column("key"), rows.column("value")
    faults = Faults(
        path, lambda line: whole[int(owners[line - 1])].as_py() or keys[int(owners[line - 1])].as_py() or b""
    )
    texts = unpacked(whole, options)
    events: list[tuple[int, int, int, Mapping[str, Any], int]] = []
    fields = {sanitized(column.name) for column in schema.stored}
    for line, owner in enumerate(owners.tolist(), 1):
        try:
            events += _images(line, keys[owner].as_py(), texts[owner], len(events), table, fields, options)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = str(error) if type(error) is ValueError else repr(error)
            faults.add(line, f"it is not a row of Avro: {reason[:300]}")
    numbers = [np.array([event[place] for event in events], np.int64) for place in (0, 1, 2, 4)]
    images = Images(numbers[0], numbers[1].astype(np.int8), numbers[2], numbers[3])
    sides = [event[3] for event in events]
    by_key = replace(options, delete_only_output_handle_key_columns=True)
    found = changes_of(images, lambda column: _cells(sides, column), schema, by_key, faults)
    return _without_stand_ins(found)


def _images(
    line: int,
    key: bytes | None,
    value: bytes | None,
    place: int,
    table: TableId,
    fields: set[str],
    options: MessageOptions,
) -> list[tuple[int, int, int, Mapping[str, Any], int]]:
    """Return the images of a message as (line, op, commit-ts, fields, place of the image after)."""
    if value is None or _is_delete(value):
        ts = _NONE if value is None else _tso(int.from_bytes(value[1:], "big"))
        record, held = read_record(framed(key or b""), options)
        _check(record.schema_and_table, held, table, fields)
        return [(line, Op.DELETE, ts, held, -1)]
    record, held = read_record(framed(value), options)
    kind, before = held.get(OP_FIELD), held.get(BEFORE)
    if kind not in (None, "c", "u", "d"):
        raise ValueError(f'its {OP_FIELD} is "{kind}"')
    row = {name: held[name] for name in columns_of(record)}
    _check(record.schema_and_table, row, table, fields)
    ts = _tso(held[COMMIT_TS_FIELD]) if COMMIT_TS_FIELD in held else _NONE
    if kind == "d":
        return [(line, Op.DELETE, ts, row, -1)]
    found: list[tuple[int, int, int, Mapping[str, Any], int]] = [(line, Op.INSERT, ts, row, -1)]
    if isinstance(before, dict):
        old = {name: one for name, one in before.items() if name not in EXTENSION}
        _check(record.schema_and_table, old, table, fields)
        found.append((line, Op.DELETE, ts, old, place))
    return found


def _check(names: tuple[str, str], row: Mapping[str, Any], table: TableId, fields: set[str]) -> None:
    if names != (sanitized(table.schema), sanitized(table.table)):
        raise ValueError(f"it is a row of {'.'.join(names)}, not of {table}")
    for name in row:
        if name not in fields:
            raise ValueError(f'column "{name}" is not in the table\'s schema at this place')


def _cells(sides: list[Mapping[str, Any]], column: Column) -> Cells:
    name = sanitized(column.name)
    absent = np.array([name not in side for side in sides], bool)
    held = [side.get(name) for side in sides]
    return Cells(_array(held, column), absent if absent.any() else None, named=True)


def _array(held: list[Any], column: Column) -> pa.Array:
    if column.type == "BIT":
        numbers = [
            None if one is None else int.from_bytes(one, "big") if isinstance(one, bytes) else one for one in held
        ]
        return pa.array([None if one is None else str(one) for one in numbers], pa.string())
    if any(isinstance(one, bytes) for one in held):
        return pa.array([one.encode() if isinstance(one, str) else one for one in held], pa.binary())
    if column.type in ("FLOAT", "DOUBLE"):
        return pa.array(held, pa.float64())
    return pa.array([_text(one, column) for one in held], pa.string())


def _text(value: Any, column: Column) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value & _UNSIGNED if column.unsigned else value)
    return format(value, "f")


def _without_stand_ins(found: Decoded) -> Decoded:
    place = found.changes.schema.get_field_index(COMMIT_TS)
    ts = found.changes.column(place)
    commit_ts = pc.if_else(pc.equal(ts, _NONE), pa.scalar(None, pa.int64()), ts)
    rejects = tuple(replace(one, commit_ts=None) if one.commit_ts == _NONE else one for one in found.rejects)
    return replace(found, changes=found.changes.set_column(place, COMMIT_TS, commit_ts), rejects=rejects)


# --- schemas ----------------------------------------------------------------------------------------------------------


def schemas(messages: pa.RecordBatch, options: MessageOptions) -> tuple[SchemaEvent, ...]:
    """Return the tables in the registered schemas of rows: one for each pair of key and value schema.

    `version` is the least commit-ts of such a row, 0 without the extension.
    """
    found: dict[tuple[str, str], SchemaEvent] = {}
    keys = messages.column("key").to_pylist()
    for message, value in enumerate(unpacked(messages.column("value"), options)):
        key = keys[message]
        if key is None or value is None or _is_delete(value):
            continue
        try:
            shape = (framed(key).id, framed(value).id)
            record, held = read_record(framed(value), options)
            version = _tso(held.get(COMMIT_TS_FIELD, 0))
            if shape in found and found[shape].version <= version:
                continue
            schema, doubts = table_schema(record, registered(shape[0], options))
            found[shape] = SchemaEvent(message, TableId(*record.schema_and_table), version, schema, 0, doubts)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # classify calls it bad, or decode rejects it
    return tuple(found.values())
