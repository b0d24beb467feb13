"""Simple messages: what they speak of, the schemas that they carry, and the changes of a table.

    {"version":1,"database":…,"table":…,"tableID":…,"type":"UPDATE","commitTs":…,"buildTs":…,"schemaVersion":…,
     "data":{column: text, null, or {"location":…,"value":…} for TIMESTAMP},"old":{…}}

A DDL names its table in `tableSchema` only, and a DDL of a database nowhere but in its text: then `schema` and `table`
of its line are null. BOOTSTRAP states a schema. A row's `checksum` is passed over: TiCDC checks it as it reads TiKV.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import BadSettings
from cdc_assets.formats import Decoded, MessageOptions
from cdc_assets.formats.images import Faults, changes_of
from cdc_assets.formats.json_records import NO_VALUE, json_records, json_value, parsed_records, print_json
from cdc_assets.formats.messages import (
    ACTIONS,
    HANDLE_KEY_ONLY,
    Classification,
    Kind,
    MessageCodec,
    SchemaEvent,
    by_nothing,
    classified,
    classified_rows,
    in_order,
    lines_of,
    unpack,
    unpacked_array,
)
from cdc_assets.formats.records import CellKind, Records, bits, explained
from cdc_assets.formats.simple.avro import read_head, read_message
from cdc_assets.formats.simple.rows import KINDS, cells_of, read_rows
from cdc_assets.formats.simple.schema import table_of, table_schema
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.types.mysql_types import Binary

__all__ = ["classify", "decode", "schemas"]

_TROUBLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError)
"""What a schema raises that is none."""
_GREATEST_TS = np.uint64(1 << 63)
_HEAD, _HEAD_BYTES = r'(?s)^(?P<head>\{.*?),"(?:checksum|data|old)":', 4096
"""What a row begins with; no text in it has what follows, as quotes in texts are escaped."""
_NOT_NAMES = frozenset(("database", "table", "type", "data", "old"))
"""Members beside the columns."""


def classify(messages: pa.RecordBatch, options: MessageOptions) -> pa.RecordBatch:
    """Return what each message speaks of (CLASSIFIED), of a row by its head alone."""
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
    """Yield what records speak of."""
    kinds, (commit_ts, whole) = records.column("type"), records.whole_numbers("commitTs")
    records.require(kinds.are(CellKind.TEXT), "it has no type")
    records.require(whole & (commit_ts < _GREATEST_TS), "its commitTs is not a TSO")
    rows = bits(pc.is_in(kinds.texts, pa.array(KINDS)))
    yield from _lines_of_rows(records.among(rows), options)
    others = records.among(~rows)
    others.require(~others.column("sql").given | (others.kinds("sql") == CellKind.TEXT), "its sql is not a text")
    held = [others.column(name) for name in ("type", "sql", "tableSchema", "preTableSchema")]
    lines = list[Classification]()
    for place in np.flatnonzero(others.sound).tolist():
        message = int(others.messages[place])
        try:
            texts = [column.texts[place].as_py() for column in held]
            lines.append(_other(message, int(commit_ts[~rows][place]), *texts))
        except _TROUBLE as error:
            others.refuse(place, explained(error))
    yield classified([*lines, *(_bad(message, reason) for _, message, reason in others.refused())])


def _lines_of_rows(records: Records, options: MessageOptions) -> Iterator[pa.RecordBatch]:
    spaces, names, claims = (records.column(name) for name in ("database", "table", "claimCheckLocation"))
    records.require(
        spaces.are(CellKind.TEXT) & names.are(CellKind.TEXT) & (claims.are(CellKind.TEXT) | ~claims.given),
        "its database, table or claimCheckLocation is not a text",
    )
    yield classified(_bad(message, reason) for _, message, reason in records.refused())
    sound = records.among(records.sound)
    commit_ts = sound.whole_numbers("commitTs")[0].astype(np.int64)
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
    mine = pa.array(~alone)
    schema, table_, claim = (one.filter(mine) for one in (*columns[:2], claims_))
    messages = sound.messages[~alone]
    yield classified_rows(messages, np.zeros_like(messages), schema, table_, commit_ts[~alone], claim)


def _other(
    message: int, commit_ts: int, kind: str, sql: str | None, stated: str | None, before: str | None
) -> Classification:
    """Return the line of a message that is no row; raises one of _TROUBLE."""
    if kind == "WATERMARK":
        return Classification(message, Kind.RESOLVED, commit_ts=commit_ts)
    carried = stated or before
    schema: Any = None if carried is None else json_value(carried)
    if kind == "BOOTSTRAP":
        table_schema(schema)
        # It comes every two minutes, and says each time when it was written.
        return Classification(
            message, Kind.SCHEMA, table_of(schema), shape=blake2b(str(stated).encode(), digest_size=8).hexdigest()
        )
    if sql is None:
        raise ValueError("it has no sql")
    table = table_of(schema) if schema else None
    return Classification(message, Kind.DDL, table, commit_ts=commit_ts, query=sql, type=ACTIONS.get(kind))


def _bad(message: int, reason: str) -> Classification:
    if reason == NO_VALUE:
        reason = f"{NO_VALUE}, or one not compressed as large-message-handle-compression says"
    return Classification(message, Kind.BAD, reason=f"it is not a message of the protocol Simple: {reason}")


# --- rows -------------------------------------------------------------------------------------------------------------


def decode(rows: pa.RecordBatch, path: str, table: TableId, schema: TableSchema, options: MessageOptions) -> Decoded:
    """Return the changes of one table: an update is a DELETE and an INSERT of the same line.

    A row that cannot be read, or that has a column which the schema lacks, is a Reject with the message's bytes.
    """
    owners, _ = lines_of(rows)
    sent = rows.column("value")
    faults = Faults(path, lambda line: sent[int(owners[line - 1])].as_py() or b"")
    values = unpacked_array(sent if len(owners) == len(sent) else sent.take(pa.array(owners)), options)
    binary: Binary = "raw" if options.encoding_format == "avro" else "base64"
    values = _marked(values, schema) if options.encoding_format == "json" else values
    sides = read_rows(_records(values, options, whole=True), table, schema, faults)
    return changes_of(
        sides.images, lambda column: cells_of(sides, column, binary), schema, options.for_table(schema), faults
    )


def _marked(values: pa.BinaryArray, schema: TableSchema) -> pa.BinaryArray:
    """Write a TIMESTAMP that is null as an object too, so that rows with and without one have the same shape."""
    for column in schema.stored:
        if column.type == "TIMESTAMP" and column.name not in _NOT_NAMES:
            name = print_json(column.name).encode()
            values = pc.replace_substring(values, name + b":null", name + b':{"location":null,"value":null}')
    return values


# --- schemas ----------------------------------------------------------------------------------------------------------


def schemas(messages: pa.RecordBatch, options: MessageOptions) -> tuple[SchemaEvent, ...]:
    """Return the schemas that DDL and BOOTSTRAP messages carry, in order; exact but for what `_APPROXIMATE` says."""
    values = unpacked_array(messages.column("value"), options)
    carry = np.ones(len(values), bool)
    if options.encoding_format == "json":  # no row has one
        carry = bits(pc.match_substring(values, b'"tableSchema":'))
    found, numbers = list[SchemaEvent](), np.flatnonzero(carry)
    for records in _records(values.take(pa.array(numbers)), options, whole=False):
        is_row = bits(pc.is_in(records.column("type").texts, pa.array(KINDS)))
        (commit_ts, whole), texts = records.whole_numbers("commitTs"), records.column("tableSchema").texts
        for place in np.flatnonzero(records.sound & ~is_row & whole & records.are_objects("tableSchema")).tolist():
            message = int(numbers[records.messages[place]])
            try:
                stated = json_value(texts[place].as_py())
                version = int(commit_ts[place])
                found.append(SchemaEvent(message, table_of(stated), version, table_schema(stated), _APPROXIMATE))
            except _TROUBLE:
                continue  # classify calls it bad
    return tuple(sorted(found, key=lambda event: event.message))


_APPROXIMATE = ("the order of the columns, which the old architecture lists by their id", "which columns are virtual")


def _lone_row(key: bytes | None, value: bytes, options: MessageOptions) -> Mapping[str, Any]:
    read = read_message if options.encoding_format == "avro" else json_value
    held = read(unpack(value, options.large_message_handle_compression))
    found: Mapping[str, Any] = held.get("data") or held["old"]
    return found


CODEC = MessageCodec(classify=classify, decode=decode, schemas=schemas, lone_row=_lone_row, read_by=by_nothing)
