"""Simple messages: what they speak of, the schemas that they carry, and the changes of a table.

    {"version":1,"database":…,"table":…,"tableID":…,"type":"UPDATE","commitTs":…,"buildTs":…,"schemaVersion":…,
     "data":{column: text, null, or {"location":…,"value":…} for TIMESTAMP},"old":{…}}

A DDL names its table in `tableSchema` only, and a DDL of a database nowhere but in its text: then `schema` and `table`
of its line are null. BOOTSTRAP states a schema. A row's `checksum` is passed over: TiCDC checks it as it reads TiKV.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import BadSettings
from cdc_assets.formats import Decoded, json_lines
from cdc_assets.formats.compression import unpack, unpacked
from cdc_assets.formats.images import Faults, changes_of
from cdc_assets.formats.message_codecs import MessageCodec, by_nothing
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.formats.messages import (
    ACTIONS,
    HANDLE_KEY_ONLY,
    Kind,
    Said,
    SchemaEvent,
    explained,
    in_order,
    lines_of,
    said,
    said_of_rows,
)
from cdc_assets.formats.simple.avro import read_head, read_message
from cdc_assets.formats.simple.rows import KINDS, read_rows
from cdc_assets.formats.simple.schema import table_of, table_schema
from cdc_assets.model.schema import TableId, TableSchema

__all__ = ["classify", "decode", "schemas"]

_TEXT = r'"(?:[^"\\]|\\.)*"'
_HEAD = (
    rf'(?s)^\{{"version":\d+,"database":(?P<schema>{_TEXT}),"table":(?P<table>{_TEXT}),"tableID":-?\d+,'
    r'"type":"(?:INSERT|UPDATE|DELETE)","commitTs":(?P<ts>\d{1,18}),"buildTs":-?\d+(?:,"schemaVersion":\d+)?,'
    r'"(?:checksum|data|old)":'
)
_HEAD_BYTES = 4096


def classify(messages: pa.RecordBatch, options: MessageOptions) -> pa.RecordBatch:
    """Return what each message speaks of (SPOKEN), of a row by its head alone."""
    texts = unpacked(messages.column("value"), options)
    if _is_avro(options):
        return said(_one(message, value, options) for message, value in enumerate(texts))
    head = pc.extract_regex(pc.binary_slice(pa.array(texts, pa.binary()), 0, _HEAD_BYTES), _HEAD)
    plain = pc.is_valid(head).to_numpy(zero_copy_only=False)
    names = [[_name(text) for text in pc.struct_field(head, part).to_pylist()] for part in ("schema", "table")]
    plain &= np.array([one is not None and other is not None for one, other in zip(*names, strict=True)], bool)
    places, mine = np.flatnonzero(plain), pa.array(plain)
    schema, table = (pa.array(some, pa.string()).filter(mine) for some in names)
    ts = pc.struct_field(head, "ts").filter(mine).cast(pa.string()).cast(pa.int64()).to_numpy()
    rows = said_of_rows(places, np.zeros_like(places), schema, table, ts)
    others = (_one(message, texts[message], options) for message in np.flatnonzero(~plain).tolist())
    return in_order([rows, said(others)])


def _is_avro(options: MessageOptions) -> bool:
    if options.encoding_format not in ("json", "avro"):
        raise BadSettings(
            f'encoding-format is "{options.encoding_format}"; TiCDC knows json and avro for the protocol simple. '
            "Give the changefeed TOML exactly as TiCDC has it."
        )
    return options.encoding_format == "avro"


def _name(text: bytes | None) -> str | None:
    if text is None:
        return None
    if b"\\" not in text:
        try:
            return text[1:-1].decode()
        except UnicodeDecodeError:
            return None
    try:
        name = str(json.loads(text))
        name.encode()  # half of a surrogate pair is no UTF-8
    except ValueError:
        return None
    return name


def _one(message: int, value: bytes | None, options: MessageOptions) -> Said:
    try:
        if value is None:
            raise ValueError("it has no value, or one not compressed as large-message-handle-compression says")
        return _said(message, read_head(value) if _is_avro(options) else json_lines.loads(value))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        return Said(message, Kind.BAD, reason=f"it is not a message of the protocol Simple: {explained(error)}")


def _said(message: int, held: Mapping[str, Any]) -> Said:
    kind, commit_ts = held["type"], held["commitTs"]
    if type(commit_ts) is not int or not 0 <= commit_ts < 1 << 63:
        raise ValueError("its commitTs is not a TSO")
    if kind == "WATERMARK":
        return Said(message, Kind.RESOLVED, commit_ts=commit_ts)
    if kind == "BOOTSTRAP":
        table_schema(held["tableSchema"])
        return Said(message, Kind.SCHEMA, table_of(held["tableSchema"]))
    if kind in KINDS:
        return _said_of_row(message, held, commit_ts)
    if not isinstance(held["sql"], str) or not isinstance(kind, str):
        raise ValueError("its sql is not a text")
    schema = held.get("tableSchema") or held.get("preTableSchema")
    table = table_of(schema) if schema else None
    return Said(message, Kind.DDL, table, commit_ts=commit_ts, query=held["sql"], type=ACTIONS.get(kind))


def _said_of_row(message: int, held: Mapping[str, Any], commit_ts: int) -> Said:
    table, claim = TableId(held["database"], held["table"]), held.get("claimCheckLocation") or None
    if not isinstance(table.schema, str) or not isinstance(table.table, str) or not isinstance(claim, str | None):
        raise ValueError("its database, table or claimCheckLocation is not a text")
    if held.get("handleKeyOnly") and claim is None:
        return Said(message, Kind.BAD, table, (0,), commit_ts, reason=HANDLE_KEY_ONLY)
    return Said(message, Kind.ROW, table, (0,), commit_ts, claim=claim)


# --- rows -------------------------------------------------------------------------------------------------------------


def decode(rows: pa.RecordBatch, path: str, table: TableId, schema: TableSchema, options: MessageOptions) -> Decoded:
    """Return the changes of one table: an update is a DELETE and an INSERT of the same line.

    A row that cannot be read, or that has a column which the schema lacks, is a Reject with the message's bytes.
    """
    owners, _ = lines_of(rows)
    whole = rows.column("value")
    faults = Faults(path, lambda line: whole[int(owners[line - 1])].as_py() or b"")
    texts = unpacked(whole, options)
    values = {line: texts[owner] for line, owner in enumerate(owners.tolist(), 1)}
    images, cells = read_rows(values, table, schema, read_message if _is_avro(options) else None, faults)
    return changes_of(images, cells, schema, options, faults)


# --- schemas ----------------------------------------------------------------------------------------------------------


def schemas(messages: pa.RecordBatch, options: MessageOptions) -> tuple[SchemaEvent, ...]:
    """Return the schemas that DDL and BOOTSTRAP messages carry, in order; exact but for what `_APPROXIMATE` says."""
    found = []
    for message, value in enumerate(unpacked(messages.column("value"), options)):
        if value is None:
            continue
        try:
            held = read_head(value) if _is_avro(options) else _with_schema(value)
            schema = held.get("tableSchema")
            if schema:
                version = int(held["commitTs"])
                found.append(SchemaEvent(message, table_of(schema), version, table_schema(schema), _APPROXIMATE))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            continue  # classify calls it bad
    return tuple(found)


_APPROXIMATE = ("the order of the columns, which the old architecture lists by their id", "which columns are virtual")


def _with_schema(value: bytes) -> Mapping[str, Any]:
    """Parse what may carry a schema: rows never do."""
    held = json_lines.loads(value) if b'"tableSchema":' in value else {}
    return held if isinstance(held, dict) and held.get("type") not in KINDS else {}


def _lone_row(key: bytes | None, value: bytes, options: MessageOptions) -> Mapping[str, Any]:
    read = read_message if _is_avro(options) else json_lines.loads
    held = read(unpack(value, options.large_message_handle_compression))
    found: Mapping[str, Any] = held.get("data") or held["old"]
    return found


CODEC = MessageCodec(classify=classify, decode=decode, schemas=schemas, lone_row=_lone_row, read_by=by_nothing)
