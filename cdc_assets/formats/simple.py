"""Simple messages: what they speak of, the schemas that they carry, and the changes of a table.

    {"version":1,"database":…,"table":…,"tableID":…,"type":"UPDATE","commitTs":…,"buildTs":…,"schemaVersion":…,
     "data":{column: text, null, or {"location":…,"value":…} for TIMESTAMP},"old":{…}}

A DDL names its table in `tableSchema` only, and a DDL of a database nowhere but in its text: then `schema` and `table`
of its line are null. BOOTSTRAP states a schema. TiCDC checks a row's `checksum` as it reads TiKV, and says the result.

TIMESTAMP has its zone beside it, binary types are base64 in JSON and bytes in Avro, ENUM is the member's number, SET
the sum of 2^position. A `tableSchema` of the old architecture lists columns by their id, not in table order. Which
columns are virtual, and the order of the key where the index of the primary key does not have it, are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import BadSettings
from cdc_assets.formats import MessageOptions
from cdc_assets.formats.changes import Cells, Faults, RowSides, changes_of, of_unknown_column, unknown_column
from cdc_assets.formats.decoded import Decoded
from cdc_assets.formats.json_records import json_records, json_value, parsed_records, print_json
from cdc_assets.formats.messages import (
    ACTIONS,
    CORRUPTED,
    HANDLE_KEY_ONLY,
    Classification,
    Kind,
    MessageCodec,
    SchemaEvent,
    by_nothing,
    by_row,
    classified,
    in_order,
    one_row_messages,
    refused_lines,
    unpack,
    unpacked_array,
)
from cdc_assets.formats.records import CellKind, Records, bits, explained
from cdc_assets.formats.simple_records import read_head, read_message
from cdc_assets.model.schema import Column, Index, TableId, TableSchema
from cdc_assets.types.mysql_values import Binary
from cdc_assets.types.zones import is_zone

__all__ = ["classify", "decode", "schemas"]

_TROUBLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError)
"""Exceptions that a malformed schema raises."""
_HEAD, _HEAD_BYTES = r'(?s)^(?P<head>\{.*?),"(?:checksum|data|old)":', 4096
"""Start of a row event; texts cannot contain it, because their quotes are escaped."""
_NOT_NAMES = frozenset(("database", "table", "type", "data", "old"))
"""Members beside the columns."""


def classify(messages: pa.RecordBatch, options: MessageOptions) -> pa.RecordBatch:
    """Return the table and kind of each message (CLASSIFIED), of a row by its head alone."""
    values = unpacked_array(messages.column("value"), options)
    heads = _heads(values) if options.encoding_format == "json" else values
    return in_order(lines for records in _records(heads, options, whole=False) for lines in _lines(records, options))


def _heads(values: pa.BinaryArray) -> pa.BinaryArray:
    """Return rows in JSON without what stands behind their heads, other messages as they are."""
    head = pc.struct_field(pc.extract_regex(pc.binary_slice(values, 0, _HEAD_BYTES), _HEAD), "head")
    return pc.coalesce(pc.binary_join_element_wise(head, b"}", b""), values)


def _records(values: pa.BinaryArray, options: MessageOptions, *, whole: bool) -> Iterator[Records]:
    """Yield messages as records; rows in Avro without their columns if these are not wanted."""
    if options.encoding_format not in ("json", "avro"):
        raise BadSettings(
            f'encoding-format is "{options.encoding_format}"; TiCDC knows json and avro for the protocol simple. '
            "Give the changefeed TOML exactly as TiCDC has it."
        )
    if options.encoding_format == "json":
        return json_records(values)
    return parsed_records(values, read_message if whole else read_head)


def _lines(records: Records, options: MessageOptions) -> Iterator[pa.RecordBatch]:
    """Yield the tables and kinds of records."""
    kinds, (commit_ts, stamped) = records.column("type"), records.tsos("commitTs")
    records.require(kinds.are(CellKind.TEXT), "it has no type")
    records.require(stamped, "its commitTs is not a TSO")
    rows = bits(pc.is_in(kinds.texts, pa.array(_KINDS)))
    yield from _lines_of_rows(records.among(rows), options)
    other_lines = records.among(~rows)
    other_lines.require(
        ~other_lines.column("sql").given | (other_lines.kinds("sql") == CellKind.TEXT), "its sql is not a text"
    )
    held = [other_lines.column(name) for name in ("type", "sql", "tableSchema", "preTableSchema")]
    lines = list[Classification]()
    for place in np.flatnonzero(other_lines.sound).tolist():
        message = int(other_lines.messages[place])
        try:
            texts = [column.texts[place].as_py() for column in held]
            lines.append(_other(message, int(commit_ts[~rows][place]), *texts))
        except _TROUBLE as error:
            other_lines.refuse(place, explained(error))
    yield classified(lines)
    yield refused_lines(other_lines, _NO_MESSAGE)


def _lines_of_rows(records: Records, options: MessageOptions) -> Iterator[pa.RecordBatch]:
    spaces, names, claims = (records.column(name) for name in ("database", "table", "claimCheckLocation"))
    records.require(
        spaces.are(CellKind.TEXT) & names.are(CellKind.TEXT) & (claims.are(CellKind.TEXT) | ~claims.given),
        "its database, table or claimCheckLocation is not a text",
    )
    yield refused_lines(records, _NO_MESSAGE)
    sound = records.among(records.sound)
    commit_ts, _ = sound.tsos("commitTs")
    columns = [column.among(records.sound).texts for column in (spaces, names, claims)]
    claims_ = pc.if_else(pc.equal(columns[2], ""), pa.scalar(None, pa.string()), columns[2])
    alone = bits(pc.equal(sound.column("handleKeyOnly").texts, "true")) & bits(pc.is_null(claims_))
    if options.cuts_large_rows:
        alone &= ~sound.column("type").equal("DELETE")
    for place in np.flatnonzero(alone).tolist():
        table = TableId(columns[0][place].as_py(), columns[1][place].as_py())
        line = Classification(
            int(sound.messages[place]), Kind.BAD, table, (0,), int(commit_ts[place]), reason=HANDLE_KEY_ONLY
        )
        yield classified([line])
    row_mask, stamps = pa.array(~alone), pa.array(commit_ts[~alone])
    schemas_, tables, claim = (column.filter(row_mask) for column in (*columns[:2], claims_))
    yield one_row_messages(sound.messages[~alone], schemas_, tables, stamps, claim=claim)


def _other(
    message: int, commit_ts: int, kind: str, sql: str | None, stated: str | None, before: str | None
) -> Classification:
    """Return the line of a message that is no row; raises one of _TROUBLE."""
    if kind == "WATERMARK":
        return Classification(message, Kind.RESOLVED, commit_ts=commit_ts)
    carried = stated or before
    schema: Any = None if carried is None else json_value(carried)
    if kind == "BOOTSTRAP":
        _table_schema(schema)
        # It comes every two minutes, and says each time when it was written.
        return Classification(
            message, Kind.SCHEMA, _table_of(schema), shape=blake2b(str(stated).encode(), digest_size=8).hexdigest()
        )
    if sql is None:
        raise ValueError("it has no sql")
    table = _table_of(schema) if schema else None
    return Classification(message, Kind.DDL, table, commit_ts=commit_ts, query=sql, type=ACTIONS.get(kind))


_NO_MESSAGE = "it is not a message of the protocol Simple"


# --- rows -------------------------------------------------------------------------------------------------------------


def decode(rows: pa.RecordBatch, path: str, table: TableId, schema: TableSchema, options: MessageOptions) -> Decoded:
    """Return the changes of one table: an update is a DELETE and an INSERT of the same line.

    A row that cannot be read, or that has a column which the schema lacks, is a Reject with the message's bytes.
    """
    sent = by_row(rows).column("value")
    faults, values = Faults(path, lambda line: sent[line - 1].as_py() or b""), unpacked_array(sent, options)
    binary: Binary = "raw" if options.encoding_format == "avro" else "base64"
    values = _marked(values, schema) if options.encoding_format == "json" else values
    parts = _records(values, options, whole=True)
    sides = RowSides()
    for records in parts:
        commit_ts = _require_rows(records, table)
        for side in ("data", "old"):
            _require_columns(records, side, schema, faults)
        faults.add_refused(records, "it is not a row of the protocol Simple")
        sides.add(records, commit_ts, ("data",), ("old",))
    return changes_of(
        sides.images, lambda column: _cells_of(sides, column, binary), schema, options.for_table(schema), faults
    )


def _marked(values: pa.BinaryArray, schema: TableSchema) -> pa.BinaryArray:
    """Write a TIMESTAMP that is null as an object too, so that rows with and without one have the same shape."""
    for column in schema.stored:
        if column.type == "TIMESTAMP" and column.name not in _NOT_NAMES:
            name = print_json(column.name).encode()
            values = pc.replace_substring(values, name + b":null", name + b':{"location":null,"value":null}')
    return values


_KINDS = ("INSERT", "UPDATE", "DELETE")

_SIDES = {"INSERT": (True, False), "UPDATE": (True, True), "DELETE": (False, True)}
"""Type of a row event -> whether it has `data`, and whether it has `old`."""
_PARTS = ("location", "value")
_NO_ZONE = (
    "is in the time zone {}, which is not in the zone database. Start the TiCDC server with a --tz such as "
    '"Asia/Shanghai", and let the changefeed send the row again; a machine without zone files needs the tzdata package'
)
_UNSIGNED = 1 << 64


def _require_rows(records: Records, table: TableId) -> npt.NDArray[np.int64]:
    """Refuse what is no row of a table; return the commit-ts of the others."""
    spaces, names, kinds = (records.column(name) for name in ("database", "table", "type"))
    records.require(
        bits(pc.and_(pc.equal(spaces.texts, table.schema), pc.equal(names.texts, table.table)))
        & spaces.are(CellKind.TEXT)
        & names.are(CellKind.TEXT),
        lambda place: f"it is a row of {spaces.shown(place)}.{names.shown(place)}, not of {table}",
    )
    data, old = (records.kinds(side) > CellKind.NULL for side in ("data", "old"))
    fit = np.zeros(len(records), bool)
    for kind, (has_data, has_old) in _SIDES.items():
        fit |= bits(pc.equal(kinds.texts, kind)) & (data == has_data) & (old == has_old)
    records.require(fit, lambda place: f"its type is {kinds.shown(place)}, and data and old do not fit that")
    for side, has_side in (("data", data), ("old", old)):
        records.require(~has_side | records.are_objects(side), f"its {side} is no row")
    commit_ts, stamped = records.tsos("commitTs")
    records.require(stamped, lambda place: f"its commitTs {records.shown(place, 'commitTs')} is not a TSO")
    records.require(~bits(pc.equal(records.column("checksum", "corrupted").texts, "true")), CORRUPTED)
    return commit_ts


def _require_columns(records: Records, side: str, schema: TableSchema, faults: Faults) -> None:
    """Refuse rows with columns that the table lacks, or with values that no column of their type has."""
    columns = {column.name: column for column in schema.stored}
    for name in records.members(side):
        kinds, column = records.kinds(side, name), columns.get(name)
        sound = kinds <= CellKind.NULL
        if column is not None and column.type == "TIMESTAMP":
            zones, times = (records.kinds(side, name, part) for part in _PARTS)
            sound |= (zones == times) & ((times == CellKind.TEXT) | (times == CellKind.NULL))
            names = records.column(side, name, "location")
            zone_names = [zone for zone in pc.unique(names.texts).drop_null().to_pylist() if is_zone(zone)]
            unknown = names.are(CellKind.TEXT) & ~names.are_among(CellKind.TEXT, zone_names)
            faults.refuse(records, unknown, name, f'column "{name}" {_NO_ZONE}', (side, name, "location"))
        elif column is not None:
            sound |= (kinds == CellKind.TEXT) | (kinds == CellKind.NUMBER)
        else:
            after = ("data",) if side == "old" else None
            faults.refuse(
                records, of_unknown_column(records, name, (side,), after, schema), name, unknown_column(schema, name)
            )
            continue
        reason = f'column "{name}" has the value {{}}, which is not of its type'
        faults.refuse(records, ~sound, name, reason, (side, name))


def _cells_of(sides: RowSides, column: Column, binary: Binary) -> Cells:
    """Return a column; `binary` says how bytes are written."""
    parts = [(column.name, part) for part in _PARTS] if column.type == "TIMESTAMP" else [(column.name,)]
    whole = [sides.column(*path) for path in parts]
    zones = whole[0].texts if len(whole) > 1 else None
    array = whole[-1].texts
    if column.type in ("BIT", "SET") or column.unsigned:  # Avro's long has a sign
        below = whole[-1].are(CellKind.NUMBER) & bits(pc.starts_with(array, "-"))
        numbers = [str(int(text) % _UNSIGNED) for text in array.filter(pa.array(below)).to_pylist()]
        array = pc.replace_with_mask(array, pa.array(below), pa.array(numbers, array.type))
    return Cells(array, sides.absent(column.name), binary, zones)


# --- schemas ----------------------------------------------------------------------------------------------------------


def schemas(messages: pa.RecordBatch, options: MessageOptions) -> tuple[SchemaEvent, ...]:
    """Return the schemas that DDL and BOOTSTRAP messages carry, in order; exact but for what `_APPROXIMATE` says."""
    values = unpacked_array(messages.column("value"), options)
    carry = np.ones(len(values), bool)
    if options.encoding_format == "json":  # no row has one
        carry = bits(pc.match_substring(values, b'"tableSchema":'))
    events, numbers = list[SchemaEvent](), np.flatnonzero(carry)
    for records in _records(values.take(pa.array(numbers)), options, whole=False):
        is_row = bits(pc.is_in(records.column("type").texts, pa.array(_KINDS)))
        (commit_ts, whole), texts = records.whole_numbers("commitTs"), records.column("tableSchema").texts
        for place in np.flatnonzero(records.sound & ~is_row & whole & records.are_objects("tableSchema")).tolist():
            message = int(numbers[records.messages[place]])
            try:
                stated = json_value(texts[place].as_py())
                version = int(commit_ts[place])
                table, schema, altered = _table_of(stated), _table_schema(stated), int(stated.get("version") or 0)
                events.append(SchemaEvent(message, table, version, schema, _APPROXIMATE, altered=altered))
            except _TROUBLE:
                continue  # classify calls it bad
    return tuple(sorted(events, key=lambda event: event.message))


_APPROXIMATE = ("the order of the columns, which the old architecture lists by their id", "which columns are virtual")


_WHOLE = {"DATETIME": 20, "TIMESTAMP": 20, "TIME": 11}
"""Characters before the fraction digits, of which the Avro encoding has nothing else."""

_UNSIZED = frozenset(("DATE", "DATETIME", "TIMESTAMP", "TIME", "ENUM", "SET", "JSON", "VECTOR"))


def _table_of(schema: Mapping[str, Any]) -> TableId:
    """Return the name; raises KeyError or ValueError for none. JSON says `schema` where Avro says `database`."""
    name, table = schema.get("schema", schema.get("database")), schema["table"]
    if not isinstance(name, str) or not isinstance(table, str):
        raise ValueError("its tableSchema names no table")
    return TableId(name, table)


def _table_schema(schema: Mapping[str, Any]) -> TableSchema:
    """Return the schema; raises KeyError, TypeError or ValueError for anything else."""
    indexes = tuple(
        Index(str(index["name"]), tuple(map(str, index["columns"])), bool(index["unique"]), bool(index["primary"]))
        for index in schema.get("indexes") or ()
    )
    primary = next((index.columns for index in indexes if index.primary), ())
    columns = tuple(_column(column, primary) for column in schema["columns"])
    nullable = {column.name for column in columns if column.nullable}
    whole = [index.columns for index in indexes if index.unique and not nullable.intersection(index.columns)]
    return TableSchema(columns, primary or min(whole, key=len, default=()), indexes)


def _column(column: Mapping[str, Any], primary: tuple[str, ...]) -> Column:
    kind = column["dataType"]
    name, length = str(kind["mysqlType"]).upper(), int(kind["length"])
    decimal = int(kind.get("decimal") or 0) or max(0, length - _WHOLE.get(name, length))
    elements = kind.get("elements")
    charset = str(kind.get("charset") or "")
    collation = str(kind.get("collate") or "")
    return Column(
        name=str(column["name"]),
        type=name,
        unsigned=bool(kind.get("unsigned")),
        precision=None if name in _UNSIZED or length < 0 else length,
        scale=decimal if decimal > 0 or name == "DECIMAL" else None,
        nullable=bool(column["nullable"]),
        is_pk=column["name"] in primary,
        default=column.get("default"),
        elems=tuple(map(str, elements)) if elements is not None else None,
        collation=collation if charset != "binary" and collation else None,
    )


def _read_row(key: bytes | None, value: bytes, ordinal: int, options: MessageOptions) -> Mapping[str, Any]:
    read = read_message if options.encoding_format == "avro" else json_value
    held = read(unpack(value, options.large_message_handle_compression))
    row: Mapping[str, Any] = held.get("data") or held["old"]
    return row


CODEC = MessageCodec(classify=classify, decode=decode, schemas=schemas, read_row=_read_row, read_by=by_nothing)
