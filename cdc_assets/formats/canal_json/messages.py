"""Canal-JSON as messages: one row, DDL or mark each, the same JSON as a record of a file.

What a row speaks of stands at its two ends, and is read there; only of others all is. Rows go through the decoder
of files. Without the TiDB extension there are no marks, and `commit_ts` is only the
least TSO of the row's millisecond `es`: a clock, not a position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.canal_json import decode as files
from cdc_assets.formats.canal_json.ends import read_damaged, read_ends
from cdc_assets.formats.canal_json.file_records import KINDS
from cdc_assets.formats.canal_json.row_records import TYPES, row_records
from cdc_assets.formats.column_codes import guess, shown_schema
from cdc_assets.formats.decoded import Decoded
from cdc_assets.formats.json_records import json_records, json_value
from cdc_assets.formats.members import members
from cdc_assets.formats.messages import (
    ACTIONS,
    HANDLE_KEY_ONLY,
    Classification,
    Kind,
    MessageCodec,
    SchemaEvent,
    by_row,
    by_zone,
    classified,
    in_order,
    one_row_messages,
    position_text,
    position_texts,
    unpack,
    unpacked_array,
    why_refused,
)
from cdc_assets.formats.records import CellKind, Marks, Records, bits
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.types.families import MEMBERS

__all__ = ["classify", "decode", "schemas"]

_MOST_MILLISECONDS = 1 << 45
_TROUBLE = (ValueError, KeyError, TypeError, IndexError, AttributeError)
"""Exceptions a malformed row may raise."""

Rows = npt.NDArray[np.int64]


def classify(messages: pa.RecordBatch, options: MessageOptions) -> pa.RecordBatch:
    """Return the table and kind of each message (CLASSIFIED): of a row as TiCDC writes it by its ends alone."""
    values = unpacked_array(messages.column("value"), options)
    ends = read_ends(values, options.enable_tidb_extension)
    stamps = ends.numbers if options.enable_tidb_extension else ends.numbers << 18
    row_lines = _lines_of_rows(ends.places, ends.schemas, ends.tables, stamps, options)
    rest = np.delete(np.arange(len(values)), ends.places)
    if not len(rest):
        return row_lines
    other_records = json_records(values.take(pa.array(rest)), unordered=TYPES)
    return in_order(
        [row_lines, *(lines for records in other_records for lines in _lines(records, values, rest, options))]
    )


def _lines_of_rows(
    messages: Rows, schemas: pa.Array, tables: pa.Array, stamps: Rows, options: MessageOptions, **more: pa.Array
) -> pa.RecordBatch:
    commit_ts = pa.array(stamps, pa.int64())
    if not options.enable_tidb_extension:
        more["source_position"] = position_texts(commit_ts)
    return one_row_messages(messages, schemas, tables, commit_ts, **more)


def _lines(
    records: Records, values: pa.BinaryArray, numbers: Rows, options: MessageOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the tables and kinds of records; `numbers` are the places in `values` of all of them."""
    kinds, is_ddl = records.column("type"), bits(pc.equal(records.column("isDdl").texts, "true"))
    marks = kinds.equal("TIDB_WATERMARK")
    records.require(kinds.are(CellKind.TEXT), 'its member "type" is not a text')
    stamps, clocked = _require_stamps(records, marks)
    names = [records.column(name) for name in ("database", "table")]
    for name, column in (("database", names[0]), ("table", names[1])):
        records.require(marks | column.are(CellKind.TEXT), f'its member "{name}" is not a text')
    records.require(marks | ~is_ddl | records.column("sql").are(CellKind.TEXT), 'its member "sql" is not a text')
    of_table = bits(pc.is_in(kinds.texts, pa.array(KINDS))) & ~names[0].equal("") & ~names[1].equal("")
    records.require(
        marks | is_ddl | of_table,
        lambda place: f'its type "{kinds.shown(place)}" is not that of a row, a DDL or a mark, or it names no table',
    )
    claims, part = (records.column("_tidb", name) for name in ("claimCheckLocation", "onlyHandleKey"))
    records.require(marks | is_ddl | claims.are(CellKind.TEXT) | ~claims.given, "its claimCheckLocation is not a text")
    claimed = claims.given & ~claims.equal("")
    unstamped = clocked & options.enable_tidb_extension
    whole = claimed | ~part.given | bits(pc.equal(part.texts, "false"))
    if options.cuts_large_rows:
        whole |= kinds.equal("DELETE")
    whole &= ~unstamped
    rows = records.sound & ~marks & ~is_ddl
    refused = ((int(numbers[message]), reason) for _, message, reason in records.refused())
    lines = [_unread(message, values[message].as_py() or b"", reason, options) for message, reason in refused]
    for place in np.flatnonzero(records.sound & ~(rows & whole)).tolist():
        message, commit_ts = int(numbers[records.messages[place]]), int(stamps[place])
        if marks[place]:
            lines.append(Classification(message, Kind.RESOLVED, commit_ts=commit_ts))
            continue
        table = TableId(*(column.texts[place].as_py() for column in names))
        if is_ddl[place]:
            query, action = records.column("sql").texts[place].as_py(), ACTIONS.get(kinds.texts[place].as_py())
            at = None if options.enable_tidb_extension else position_text(commit_ts)
            lines.append(Classification(message, Kind.DDL, table, None, commit_ts, query, action, source_position=at))
        elif unstamped[place]:
            lines.append(Classification(message, Kind.BAD, table, (0,), reason=_NO_COMMIT_TS))
        else:
            lines.append(Classification(message, Kind.BAD, table, (0,), commit_ts, reason=HANDLE_KEY_ONLY))
    yield classified(lines)
    mask, places = pa.array(rows & whole), numbers[records.messages[rows & whole]]
    schemas_, tables = (column.texts.filter(mask) for column in names)
    claim = claims.only(claimed).filter(mask)
    yield _lines_of_rows(places, schemas_, tables, stamps[rows & whole], options, claim=claim)


_NO_COMMIT_TS = "it has no commitTs, which the TiDB extension gives every row"


def _require_stamps(records: Records, marks: Marks) -> tuple[Rows, Marks]:
    """Return the commit-ts of marks and others, and which of these have none but that of their millisecond."""
    (mark, _), (commit_ts, _) = (records.tsos("_tidb", name) for name in ("watermarkTs", "commitTs"))
    es, _ = records.tsos("es")
    clocked = ~marks & (records.kinds("_tidb", "commitTs") == CellKind.ABSENT)
    stamps = np.select([marks, clocked], [mark, np.where(es < _MOST_MILLISECONDS, es << 18, 0)], commit_ts)
    records.require(
        stamps > 0,
        lambda place: f"its {'watermarkTs' if marks[place] else 'es' if clocked[place] else 'commitTs'} is not a TSO",
    )
    return np.where(records.sound, stamps, 0), clocked


def _unread(message: int, value: bytes, reason: str, options: MessageOptions) -> Classification:
    """Return the table and kind of a message that cannot be read: its table alone, where its ends are those of a row.

    Such a row is told from others when it is decoded.
    """
    reason = f"it is not a message of the protocol Canal-JSON: {why_refused(reason)}"
    ends = read_damaged(value, options.enable_tidb_extension)
    if ends is None:
        return Classification(message, Kind.BAD, reason=reason)
    table, commit_ts, claim, whole = ends
    if not whole and not claim:
        return Classification(message, Kind.BAD, table, (0,), commit_ts, reason=reason)
    at = None if options.enable_tidb_extension else position_text(commit_ts)
    return Classification(message, Kind.ROW, table, (0,), commit_ts, claim=claim, source_position=at)


# --- rows -------------------------------------------------------------------------------------------------------------


def decode(rows: pa.RecordBatch, path: str, table: TableId, schema: TableSchema, options: MessageOptions) -> Decoded:
    """Return the changes of one table as the decoder of files gives them; commit-ts is null without the extension.

    Raises MalformedData where it does so for a file: rows of another table, columns that the schema lacks.
    """
    sent = by_row(rows).column("value")
    values = unpacked_array(sent, options)
    records = row_records(values)
    own = options.for_table(schema)
    row_changes = files.read_changes(
        records,
        lambda line: values[line - 1].as_py() or b"",
        path,
        table,
        schema,
        own,
        deletes_are_cut=options.cuts_large_rows,
    )
    rejects = tuple(replace(reject, raw=sent[reject.line - 1].as_py() or b"") for reject in row_changes.rejects)
    return replace(row_changes, rejects=rejects)


# --- schemas ----------------------------------------------------------------------------------------------------------


def schemas(messages: pa.RecordBatch, options: MessageOptions) -> tuple[SchemaEvent, ...]:
    """Return the columns of tables by their rows, once for each table and shape, from the least commit-ts of it.

    Deletes show none where they have their key only.
    """
    events: dict[tuple[TableId, tuple[tuple[str, str], ...]], SchemaEvent] = {}
    values = unpacked_array(messages.column("value"), options)
    spoken = classify(messages, options)
    whole = spoken.filter(pc.and_(pc.equal(spoken.column("kind"), Kind.ROW.value), pc.is_null(spoken.column("claim"))))
    columns = (whole.column(name).to_pylist() for name in ("message", "schema", "table", "commit_ts"))
    for message, space, name, commit_ts in zip(*columns, strict=True):
        table = TableId(space, name)
        try:
            held = json_value(values[message].as_py())
            if (held.get("_tidb") or {}).get("onlyHandleKey"):
                continue
            if held["type"] == "DELETE" and options.delete_only_output_handle_key_columns:
                continue
            data, types = held["data"][0], held["mysqlType"]
            shape = (table, tuple((column, str(types[column])) for column in data))
            if shape not in events or commit_ts < events[shape].version:
                schema, doubts = _inferred(data, types, held.get("pkNames") or ())
                events[shape] = SchemaEvent(message, table, commit_ts, schema, doubts)
        except _TROUBLE:
            continue  # decode rejects it
    return tuple(events.values())


def _inferred(
    data: Mapping[str, Any], types: Mapping[str, str], key: Iterable[str]
) -> tuple[TableSchema, tuple[str, ...]]:
    primary = tuple(str(name) for name in key)
    columns = (_column(name, types[name], data[name], name in primary) for name in data)
    doubt = "which columns may be null, lengths, defaults, collations, virtual columns, partitions, unique keys"
    return shown_schema(columns, primary, doubt, primary=True)


def _column(name: str, text: str, value: str | None, in_key: bool) -> tuple[Column, str]:
    match = re.match(r"([a-z ]+?)(?:\((.*)\))?( unsigned)?( zerofill)?$", text.strip(), re.DOTALL)
    if match is None:
        raise ValueError(f"no type: {text}")
    kind, numbers = match[1].upper(), re.fullmatch(r"(\d+)(?:,\s*(\d+))?", match[2] or "")
    unsigned = bool(match[3]) or kind.endswith(" UNSIGNED")
    kind = kind.removesuffix(" ZEROFILL").removesuffix(" UNSIGNED")
    column = Column(name, kind, unsigned, nullable=not in_key, is_pk=in_key)
    if kind in ("ENUM", "SET") and match[2] is not None:
        names = members(text, column)
        if names is not None and None not in names:
            return replace(column, elems=tuple(member for member in names if member is not None)), ""
    if numbers is not None and kind in ("DATETIME", "TIMESTAMP", "TIME"):
        return replace(column, scale=int(numbers[1])), ""
    if numbers is not None:
        return replace(column, precision=int(numbers[1]), scale=int(numbers[2] or 0) if numbers[2] else None), ""
    precision, scale, doubt = guess(kind, () if value is None else (value,))
    return replace(column, precision=precision, scale=scale), doubt


def _read_row(key: bytes | None, value: bytes, ordinal: int, options: MessageOptions) -> Mapping[str, Any]:
    row: Mapping[str, Any] = json_value(unpack(value, options.large_message_handle_compression))["data"][0]
    return row


def _read_by(column: Column, options: MessageOptions) -> Mapping[str, object]:
    """Return the settings that decide the values of a column's texts."""
    if column.type in MEMBERS:
        return {"content-compatible": options.members_are_numbers}
    return by_zone(column, options)


CODEC = MessageCodec(classify=classify, decode=decode, schemas=schemas, read_row=_read_row, read_by=_read_by)
