"""Avro messages: what they speak of, the schemas that rows show, and the changes of a table.

The key is a record of the handle key, the value one of the row's columns, with the extension also `_tidb_op` and
`_tidb_commit_ts`. A delete has no value, so neither operation nor commit-ts: only its offset says when it was. The
images before (`avro-include-before-value`) are in `_ticdc_before`; then a delete is a row with the operation "d".
Names are sanitized (see `wire`): rows are of the table whose name reads the same, and so are columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import COMMIT_TS, Decoded, Op
from cdc_assets.formats.avro.alike import Alike, ids_of, read_alike
from cdc_assets.formats.avro.record import (
    BEFORE,
    COMMIT_TS_FIELD,
    EXTENSION,
    OP_FIELD,
    as_described,
    columns_of,
    table_schema,
)
from cdc_assets.formats.avro.wire import DELETE_MARK, framed, read_record, registered, sanitized, table_named_by, whole
from cdc_assets.formats.compression import unpacked, unpacked_array
from cdc_assets.formats.images import Cells, Faults, Images, changes_of
from cdc_assets.formats.message_codecs import MessageCodec
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.formats.messages import (
    Kind,
    Said,
    SchemaEvent,
    explained,
    in_order,
    lines_of,
    position_text,
    position_texts,
    said,
    said_of_lone_rows,
)
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.types.families import INTEGER

__all__ = ["as_described", "classify", "decode", "schema_ids", "schemas", "whole", "written"]

written = sanitized

Places = npt.NDArray[np.int64]

_UNSIGNED = (1 << 64) - 1
_DIGITS = 38
_NONE = -1
"""Stands for a commit-ts that is not known."""


def classify(messages: pa.RecordBatch, options: MessageOptions) -> pa.RecordBatch:
    """Return what each message speaks of (SPOKEN); names are sanitized, a tombstone has no commit-ts."""
    keys, values = messages.column("key"), messages.column("value")
    key_ids = ids_of(keys)
    left, found = np.ones(len(values), bool), []
    for group in read_alike(unpacked_array(values, options), options):
        lines, spoken = _of_alike(group, key_ids)
        left[lines] = False
        found.append(spoken)
    alone = messages.filter(pa.array(left)) if found else messages
    places = np.flatnonzero(left).tolist()
    texts, nulls = unpacked(alone.column("value"), options), pc.is_null(alone.column("value")).to_pylist()
    rest = zip(places, alone.column("key").to_pylist(), texts, nulls, strict=True)
    return in_order([*found, said(_one(message, key, value, null, options) for message, key, value, null in rest)])


def _of_alike(group: Alike, key_ids: Places) -> tuple[Places, pa.RecordBatch]:
    """Return which messages have a key in Confluent's framing and texts that are UTF-8, and what they speak of."""
    group = group.among((key_ids[group.messages] >= 0) & group.readable())
    schema, table = group.schema.schema_and_table
    lines = group.messages
    count = len(lines)
    ts = pa.nulls(count, pa.int64()) if group.commit_ts is None else pa.array(group.commit_ts)
    keys = pa.array(key_ids[lines]).cast(pa.string())
    shapes = pc.binary_join_element_wise(keys, str(group.id), "/")
    schemas_, tables = pa.repeat(schema, count), pa.repeat(table, count)
    return lines, said_of_lone_rows(lines, schemas_, tables, ts, source_position=position_texts(ts), shape=shapes)


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
        table_ = next((t for t in (_table_named_in(data, options) for data in (key, value)) if t is not None), None)
        return Said(message, Kind.BAD, table_, reason=f"it is not an Avro message: {explained(error)}")


def _place(ts: int | None) -> str | None:
    """Return the place in the source's log; a delete without commit-ts stands behind the row before it."""
    return None if ts is None else position_text(ts)


def _is_delete(value: bytes) -> bool:
    return value[:1] == b"\3" and len(value) == DELETE_MARK


def _tso(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"its commit-ts {value} is not a TSO")
    return value


def _table_named_in(data: bytes | None, options: MessageOptions) -> TableId | None:
    """Return the table that the schema of a key or value names, None where it cannot be told."""
    try:
        return table_named_by(framed(data or b"").id, options)
    except ValueError:
        return None


def _marker(message: int, value: bytes | None) -> Said:
    """A message without key is a marker, which TiCDC writes with `avro-enable-watermark`."""
    if value is not None and value[:1] == b"\2" and len(value) == 9:
        mark = _tso(int.from_bytes(value[1:], "big"))
        return Said(message, Kind.RESOLVED, commit_ts=mark, source_position=_place(mark))
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
    keys, values = messages.column("key"), unpacked_array(messages.column("value"), options)
    marked = pc.is_null(keys)  # by a marker, whose value has no framing
    named = (keys, pc.if_else(marked, pa.scalar(None, pa.binary()), values))
    plain, found = [ids_of(one) for one in named], dict[str, int]()
    for column in plain:
        for number, message in zip(*(one.tolist() for one in np.unique(column, return_index=True)), strict=True):
            if number >= 0:
                found[str(number)] = min(message, found.get(str(number), message))
    for column, held in zip(plain, named, strict=True):
        for message in np.flatnonzero((column < 0) & pc.is_valid(held).to_numpy(zero_copy_only=False)).tolist():
            try:
                data = held[message].as_py()
                if not _is_delete(data):
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
    fields = {sanitized(column.name) for column in schema.stored}
    values = unpacked_array(whole, options)
    groups = _row_groups(values, table, fields, options) if _is_alone(owners, rows) else []
    left = np.ones(len(owners), bool)
    for group in groups:
        left[group.messages] = False
    events: list[_Image] = []
    for line in (np.flatnonzero(left) + 1).tolist():
        owner = int(owners[line - 1])
        try:
            events += _images(line, keys[owner].as_py(), values[owner].as_py(), len(events), table, fields, options)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            faults.add(line, f"it is not a row of Avro: {explained(error)}")
    images = _numbered(events, groups)
    by_key, key = replace(options, delete_only_output_handle_key_columns=True), schema.exact
    found = changes_of(images, lambda one: _cells(events, groups, one, one.name in key), schema, by_key, faults)
    return _without_stand_ins(found)


def _numbered(events: Sequence[_Image], groups: Sequence[Alike]) -> Images:
    """Return what images say beside their columns: those read one by one, then those read side by side."""
    numbers = [
        [np.array([event.line for event in events], np.int64)],
        [np.array([event.op for event in events], np.int64)],
        [np.array([event.ts for event in events], np.int64)],
        [np.array([event.after for event in events], np.int64)],
    ]
    for group in groups:
        count = len(group.messages)
        ts = np.full(count, _NONE) if group.commit_ts is None else group.commit_ts
        more = (group.messages + 1, np.full(count, Op.INSERT), ts, np.full(count, -1))
        numbers = [[*held, one] for held, one in zip(numbers, more, strict=True)]
    lines, ops, commit_ts, after = (np.concatenate(held) for held in numbers)
    return Images(lines, ops.astype(np.int8), commit_ts, after)


def _is_alone(owners: Places, rows: pa.RecordBatch) -> bool:
    return len(owners) == rows.num_rows and bool((owners == np.arange(len(owners))).all())


def _row_groups(values: pa.Array, table: TableId, fields: set[str], options: MessageOptions) -> list[Alike]:
    """Return rows of the table after an insert or update, which are read side by side."""
    found = []
    for group in read_alike(values, options):
        names = columns_of(group.schema)
        if not _is_called(group.schema.schema_and_table, table) or not fields >= {*names}:
            continue
        kept = group.readable()
        if group.has(OP_FIELD):
            kinds = group.among(kept).array(OP_FIELD)
            kept[kept] = pc.is_in(kinds, pa.array(["c", "u", None])).to_numpy(zero_copy_only=False)
        if kept.any():
            found.append(group.among(kept))
    return found


class _Image(NamedTuple):
    """An image: its fields, and the place of the image after it for one before an update, else -1.

    One that is `whole` has all columns that the table had.
    """

    line: int
    op: Op
    ts: int
    row: Mapping[str, Any]
    after: int = -1
    whole: bool = True


def _images(
    line: int,
    key: bytes | None,
    value: bytes | None,
    place: int,
    table: TableId,
    fields: set[str],
    options: MessageOptions,
) -> list[_Image]:
    """Return the images of a message, `place` being that of the first."""
    if value is None or _is_delete(value):
        ts = _NONE if value is None else _tso(int.from_bytes(value[1:], "big"))
        record, held = read_record(framed(key or b""), options)
        _check(record.schema_and_table, held, table, fields)
        return [_Image(line, Op.DELETE, ts, held, whole=False)]
    record, held = read_record(framed(value), options)
    kind, before = held.get(OP_FIELD), held.get(BEFORE)
    if kind not in (None, "c", "u", "d"):
        raise ValueError(f'its {OP_FIELD} is "{kind}"')
    row = {name: held[name] for name in columns_of(record)}
    _check(record.schema_and_table, row, table, fields)
    ts = _tso(held[COMMIT_TS_FIELD]) if COMMIT_TS_FIELD in held else _NONE
    if kind == "d":
        return [_Image(line, Op.DELETE, ts, row)]
    found = [_Image(line, Op.INSERT, ts, row)]
    if isinstance(before, dict):
        old = {name: one for name, one in before.items() if name not in EXTENSION}
        _check(record.schema_and_table, old, table, fields)
        found.append(_Image(line, Op.DELETE, ts, old, place))
    return found


def _is_called(names: tuple[str, str], table: TableId) -> bool:
    return TableId(*names).folded == TableId(sanitized(table.schema), sanitized(table.table)).folded


def _check(names: tuple[str, str], row: Mapping[str, Any], table: TableId, fields: set[str]) -> None:
    if not _is_called(names, table):
        raise ValueError(f"it is a row of {'.'.join(names)}, not of {table}")
    for name in row:
        if name not in fields:
            raise ValueError(f'column "{name}" is not in the table\'s schema at this place')


def _cells(images: Sequence[_Image], groups: Sequence[Alike], column: Column, in_key: bool) -> Cells:
    """Return the cells of a column. A row of a schema that has it not was written when the table did not: NULL."""
    name = sanitized(column.name)
    known = any(name in one.row for one in images if one.whole) or any(group.has(name) for group in groups)
    strict = in_key or not known
    lacking = [name not in one.row and (strict or not one.whole) for one in images]
    absent = np.concatenate(
        [np.array(lacking, bool), *(np.full(len(one.messages), strict and not one.has(name)) for one in groups)]
    )
    held = [one.row.get(name) for one in images]
    array = _joined(held, [_of_group(group, name, column) for group in groups], column)
    return Cells(array, absent if absent.any() else None, named=True)


def _of_group(group: Alike, name: str, column: Column) -> pa.Array:
    """Return a column of rows that were read side by side, as `_array` has it; null where they lack it."""
    if not group.has(name):
        return pa.nulls(len(group.messages))
    array = group.array(name)
    numeric, wide = column.type in (*INTEGER, "YEAR"), (column.precision or 0) > _DIGITS
    if pa.types.is_integer(array.type):
        if numeric:
            return array.view(pa.uint64()) if column.unsigned else array
        return array.cast(pa.string())
    if pa.types.is_floating(array.type):
        fits = column.type in ("FLOAT", "DOUBLE")
    elif pa.types.is_decimal(array.type):
        fits = column.type == "DECIMAL" and not wide
    else:
        fits = column.type not in ("FLOAT", "DOUBLE", "BIT")
    return array if fits else _array(array.to_pylist(), column)


def _joined(held: list[Any], arrays: list[pa.Array], column: Column) -> pa.Array:
    """Put values that were read one by one before those of others, as one type."""
    kinds = {array.type for array in arrays if not pa.types.is_null(array.type)}
    if len(kinds) == 1:
        (kind,) = kinds
        first = _as_kind(held, kind, column)
        if first is not None:
            return pa.concat_arrays([first, *(array.cast(kind) for array in arrays)])
    return _array([*held, *(one for array in arrays for one in array.to_pylist())], column)


def _as_kind(held: list[Any], kind: pa.DataType, column: Column) -> pa.Array | None:
    """Return values as an array of a type, None where they make one of another type."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        made = _array(held, column)
        return made if made.type == kind else pa.nulls(len(made), kind) if made.null_count == len(made) else None
    try:
        unsigned = pa.types.is_unsigned_integer(kind)
        return pa.array([None if one is None else one & _UNSIGNED for one in held] if unsigned else held, kind)
    except (pa.ArrowException, TypeError, OverflowError):
        return None


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
            found[shape] = SchemaEvent(message, TableId(*record.schema_and_table), version, schema, doubts)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # classify calls it bad, or decode rejects it
    return tuple(found.values())


CODEC = MessageCodec(
    classify=classify,
    decode=decode,
    schemas=schemas,
    schema_ids=schema_ids,
    whole=whole,
    written=written,
    as_described=as_described,
)
