"""Canal-JSON as messages: one row, DDL or mark each, the same JSON as a record of a file.

What a row speaks of stands at its two ends, and is read there; only what looks otherwise is parsed. Rows go through the
decoder of files, as the lines of one. Without the TiDB extension there are no marks, and `commit_ts` is only the
least TSO of the row's millisecond `es`: a clock, not a position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import Decoded, json_lines
from cdc_assets.formats.canal_json import decode as files
from cdc_assets.formats.canal_json.ends import LEAD, name_of, read_ends
from cdc_assets.formats.canal_json.options import CanalJsonOptions
from cdc_assets.formats.canal_json.uniform import KINDS
from cdc_assets.formats.column_codes import guess
from cdc_assets.formats.compression import unpack, unpacked, unpacked_array
from cdc_assets.formats.members import members
from cdc_assets.formats.message_codecs import MessageCodec
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
    position_text,
    position_texts,
    said,
    said_of_lone_rows,
)
from cdc_assets.model.schema import Column, Index, TableId, TableSchema

__all__ = ["classify", "decode", "schemas"]

_HEAD = rf'(?s){LEAD}(?:INSERT|UPDATE|DELETE)","es":(?P<es>\d{{1,14}}),'
_TAIL = (
    r'(?s),"_tidb":\{"commitTs":(?P<ts>\d{1,18})(?:,"onlyHandleKey":(?P<part>true|false))?'
    r'(?:,"claimCheckLocation":"(?P<claim>[^"\\]*)")?(?:,"rowkey":"[^"\\]*")?\}\}$'
)
_HEAD_BYTES, _TAIL_BYTES = (256, 4096), (-128, -1024)
"""How much of a row is looked at: mostly, and where that does not suffice."""

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


def classify(messages: pa.RecordBatch, options: MessageOptions) -> pa.RecordBatch:
    """Return what each message speaks of (SPOKEN)."""
    values = unpacked_array(messages.column("value"), options)
    ends = read_ends(values, options.enable_tidb_extension)
    mine = _lines_of_rows(ends.places, ends.schemas, ends.tables, pa.array(ends.numbers), options)
    left = np.delete(np.arange(len(values)), ends.places)
    if not len(left):
        return mine
    rows, plain = _plain_rows(values.take(pa.array(left)), left, options)
    others = left[~plain].tolist()
    return in_order([mine, rows, said(_one(message, values[message].as_py(), options) for message in others)])


def _plain_rows(values: pa.Array, messages: Rows, options: MessageOptions) -> tuple[pa.RecordBatch, Mask]:
    """Return the lines of rows that are written as TiCDC may write them too, and which messages these are."""
    head = _matched(values, _HEAD, _HEAD_BYTES)
    plain = _marks(pc.is_valid(head))
    claims = pa.nulls(len(values), pa.binary())
    if options.enable_tidb_extension:
        tail = _matched(values, _TAIL, _TAIL_BYTES)
        whole = _marks(pc.equal(pc.struct_field(tail, "part"), b"true"))
        claims = pc.struct_field(tail, "claim")
        claimed = _marks(pc.greater(pc.binary_length(claims), 0))
        plain &= _marks(pc.is_valid(tail)) & (claimed | ~whole)
        stamps = pc.struct_field(tail, "ts")
    else:
        stamps = pc.struct_field(head, "es")
        plain &= _marks(pc.equal(pc.binary_slice(values, -2, 1 << 31), b"]}"))
    mine = pa.array(plain)
    names, fit = [], np.ones(int(plain.sum()), bool)
    for name in ("schema", "table"):
        coded = pc.struct_field(head, name).filter(mine).dictionary_encode()
        known = [name_of(text) for text in coded.dictionary.to_pylist()]
        names.append(pa.array(known, pa.string()).take(coded.indices))
        fit &= _marks(pc.is_valid(names[-1]))
    numbers = stamps.filter(mine).cast(pa.string()).cast(pa.int64())
    places, kept = np.flatnonzero(plain)[fit], pa.array(fit)
    plain[np.flatnonzero(plain)[~fit]] = False
    locations = claims.filter(mine).filter(kept)
    locations = pc.if_else(pc.greater(pc.binary_length(locations), 0), locations, pa.scalar(None, locations.type))
    schemas, tables, numbers = (column.filter(kept) for column in (*names, numbers))
    return _lines_of_rows(messages[places], schemas, tables, numbers, options, claim=locations), plain


def _lines_of_rows(
    messages: Rows, schemas: pa.Array, tables: pa.Array, numbers: pa.Array, options: MessageOptions, **more: pa.Array
) -> pa.RecordBatch:
    """Return the lines of rows with these commit-ts, or without the extension milliseconds."""
    if not options.enable_tidb_extension:
        numbers = pc.shift_left(numbers, 18)
        more["source_position"] = position_texts(numbers)
    return said_of_lone_rows(messages, schemas, tables, numbers, **more)


def _matched(values: pa.Array, pattern: str, most: tuple[int, int]) -> pa.StructArray:
    """Match the beginnings of values, or with negative lengths their ends: short ones first, where they suffice."""
    found = _match(values, pattern, most[0])
    missing = pc.is_null(found)
    if missing.true_count:
        rest = _match(values.filter(missing), pattern, most[1])
        if rest.null_count < len(rest):
            places = np.arange(len(values))
            places[_marks(missing)] = len(values) + np.arange(len(rest))
            found = pa.concat_arrays([found, rest]).take(pa.array(places))
    return found


def _match(values: pa.Array, pattern: str, most: int) -> pa.StructArray:
    piece = pc.binary_slice(values, 0, most) if most > 0 else pc.binary_slice(values, most, 1 << 31)
    return pc.extract_regex(piece, pattern)


def _marks(mask: pa.Array) -> Mask:
    found: Mask = np.array(mask.fill_null(False).to_numpy(zero_copy_only=False))
    return found


def _one(message: int, value: bytes | None, options: MessageOptions) -> Said:
    """Parse one message."""
    try:
        if value is None:
            raise ValueError("it has no value, or one not compressed as large-message-handle-compression says")
        return _said(message, json_lines.loads(value), options)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Said(message, Kind.BAD, reason=f"it is not a message of the protocol Canal-JSON: {explained(error)}")


def _said(message: int, held: Any, options: MessageOptions) -> Said:
    kind, extension = _text(held, "type"), held.get("_tidb") or {}
    if kind == "TIDB_WATERMARK":
        return Said(message, Kind.RESOLVED, commit_ts=_tso(extension, "watermarkTs"))
    table = TableId(_text(held, "database"), _text(held, "table"))
    clock = _tso({"es": held["es"] << 18}, "es") if "commitTs" not in extension else None
    commit_ts = clock if clock is not None else _tso(extension, "commitTs")
    at = None if options.enable_tidb_extension else position_text(commit_ts)
    if held.get("isDdl"):
        query, action = _text(held, "sql"), ACTIONS.get(kind)
        return Said(message, Kind.DDL, table, commit_ts=commit_ts, query=query, type=action, source_position=at)
    if kind not in KINDS or not table.table or not table.schema:
        raise ValueError(f'its type "{kind}" is not that of a row, a DDL or a mark, or it names no table')
    if options.enable_tidb_extension and clock is not None:
        reason = "it has no commitTs, which the TiDB extension gives every row"
        return Said(message, Kind.BAD, table, (0,), reason=reason)
    claim = extension.get("claimCheckLocation") or None
    if claim is not None and not isinstance(claim, str):
        raise ValueError("its claimCheckLocation is not a text")
    if extension.get("onlyHandleKey") and not (claim or (kind == "DELETE" and options.cuts_large_rows)):
        return Said(message, Kind.BAD, table, (0,), commit_ts, reason=HANDLE_KEY_ONLY)
    return Said(message, Kind.ROW, table, (0,), commit_ts, claim=claim, source_position=at)


def _text(held: Mapping[str, Any], name: str) -> str:
    value = held[name]
    if not isinstance(value, str):
        raise ValueError(f'its member "{name}" is not a text')
    return value


def _tso(held: Mapping[str, Any], name: str) -> int:
    value = held[name]
    if type(value) is not int or not 0 < value < 1 << 63:
        raise ValueError(f'its member "{name}" is not a TSO')
    return value


# --- rows -------------------------------------------------------------------------------------------------------------


def decode(rows: pa.RecordBatch, path: str, table: TableId, schema: TableSchema, options: MessageOptions) -> Decoded:
    """Return the changes of one table as the decoder of files gives them; commit-ts is null without the extension.

    Raises MalformedData where it does so for a file: rows of another table, columns that the schema lacks.
    """
    owners, _ = lines_of(rows)
    texts = unpacked(rows.column("value"), options)
    records = [_line(texts[owner]) for owner in owners.tolist()]
    if options.cuts_large_rows:  # what is landed as a row is a delete then, whose key is all it needs
        records = [record.replace(b'"onlyHandleKey":true', b'"onlyHandleKey":false') for record in records]
    body = b"".join(record + b"\n" for record in records)
    found = files.decode(body, path, table, schema, _as_lines(options.for_table(schema)))
    whole = rows.column("value")
    rejects = tuple(replace(one, raw=whole[int(owners[one.line - 1])].as_py() or b"") for one in found.rejects)
    return replace(found, rejects=rejects)


def _as_lines(options: MessageOptions) -> CanalJsonOptions:
    return CanalJsonOptions(
        terminator="\n",
        enable_tidb_extension=options.enable_tidb_extension,
        content_compatible=options.content_compatible,
        only_output_updated_columns=options.only_output_updated_columns,
        delete_only_output_handle_key_columns=options.delete_only_output_handle_key_columns,
        timezone=options.timezone,
    )


def _line(value: bytes | None) -> bytes:
    """Return a record of one line; in place of one that cannot be, something that is rejected."""
    if value is None:
        return _NO_RECORD
    if b"\n" not in value and b"\r" not in value:
        return value
    try:
        return json_lines.dumps(json_lines.loads(value))
    except ValueError:
        return _NO_RECORD


_NO_RECORD = b"{?}"


# --- schemas ----------------------------------------------------------------------------------------------------------


def schemas(messages: pa.RecordBatch, options: MessageOptions) -> tuple[SchemaEvent, ...]:
    """Return the columns of tables by their rows, once for each table and shape, from the least commit-ts of it."""
    found: dict[tuple[TableId, tuple[tuple[str, str], ...]], SchemaEvent] = {}
    for message, value in enumerate(unpacked(messages.column("value"), options)):
        line = _one(message, value, options)
        if line.kind is not Kind.ROW or line.claim or line.table is None or value is None:
            continue
        try:
            held = json_lines.loads(value)
            if (held.get("_tidb") or {}).get("onlyHandleKey"):
                continue
            data, types = held["data"][0], held["mysqlType"]
            shape = (line.table, tuple((name, str(types[name])) for name in data))
            if shape not in found or (line.commit_ts or 0) < found[shape].version:
                schema, doubts = _inferred(data, types, held.get("pkNames") or ())
                found[shape] = SchemaEvent(message, line.table, line.commit_ts or 0, schema, doubts)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            continue  # decode rejects it
    return tuple(found.values())


def _inferred(
    data: Mapping[str, Any], types: Mapping[str, str], key: Iterable[str]
) -> tuple[TableSchema, tuple[str, ...]]:
    primary = tuple(str(name) for name in key)
    columns, said_of = [], []
    for column, doubt in (_column(name, types[name], data[name], name in primary) for name in data):
        columns.append(column)
        said_of += [f'"{column.name}": {doubt}'] if doubt else []
    said_of.append("which columns may be null, lengths, defaults, collations, virtual columns, partitions, unique keys")
    index = (Index("PRIMARY", primary, unique=True, primary=True),) if primary else ()
    return TableSchema(tuple(columns), primary, index), tuple(said_of)


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
            return replace(column, elems=tuple(one for one in names if one is not None)), ""
    if numbers is not None and kind in ("DATETIME", "TIMESTAMP", "TIME"):
        return replace(column, scale=int(numbers[1])), ""
    if numbers is not None:
        return replace(column, precision=int(numbers[1]), scale=int(numbers[2] or 0) if numbers[2] else None), ""
    precision, scale, doubt = guess(kind, () if value is None else (value,))
    return replace(column, precision=precision, scale=scale), doubt


def _lone_row(key: bytes | None, value: bytes, options: MessageOptions) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json_lines.loads(unpack(value, options.large_message_handle_compression))["data"][0]
    return found


def _read_by(column: Column, options: MessageOptions) -> Mapping[str, object]:
    return _as_lines(options).read_by(column)


CODEC = MessageCodec(classify=classify, decode=decode, schemas=schemas, lone_row=_lone_row, read_by=_read_by)
