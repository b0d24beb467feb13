"""TiCDC's Open Protocol: framed JSON, several row events a message, each column with its type and flags.

    key   : 8 bytes version = 1 · repeated { 8 bytes length · {"ts":…,"scm":…,"tbl":…,"t":1 row, 2 DDL, 3 resolved} }
    value : repeated { 8 bytes length · {"u":{column:{"t":type,"f":flags,"v":value}},"p":{…}} or {"d":{…}} }

`u` is the row, `p` the one before an update, `d` a deleted one. An update without `p` looks like an insert. A DDL has
`q` and its action `t`; a resolved mark has no value. Each value is compressed by itself where the changefeed says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import Decoded, Op, json_lines
from cdc_assets.formats.column_codes import BINARY, Typed, fits, infer, type_name
from cdc_assets.formats.compression import unpack
from cdc_assets.formats.images import Cells, Faults, Images, changes_of
from cdc_assets.formats.message_codecs import MessageCodec
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.formats.messages import (
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
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.types.families import FLOATING, INTEGER

__all__ = ["classify", "decode", "schemas"]

Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_ROW, _DDL, _RESOLVED = 1, 2, 3
_MOST_TYPE = 1 << 20
"""More than any number of a type, of flags or of an action."""
_VERSION = b"\0\0\0\0\0\0\0\1"
_KEY = pa.schema(
    [
        ("ts", pa.int64()),
        ("scm", pa.string()),
        ("tbl", pa.string()),
        ("rid", pa.int64()),
        ("ptn", pa.int64()),
        ("t", pa.int64()),
        ("ohk", pa.bool_()),
        ("ccl", pa.string()),
    ]
)


# --- what messages speak of -------------------------------------------------------------------------------------------


def classify(messages: pa.RecordBatch, options: MessageOptions) -> pa.RecordBatch:
    """Return what each message speaks of (SPOKEN), by its key alone but for a DDL."""
    lines: list[Said] = []
    keys: list[bytes] = []
    owners: list[int] = []
    values: list[bytes] = []
    for message, (key, value) in enumerate(_pairs(messages)):
        try:
            found, inner = _framed(key, value)
        except ValueError as error:
            lines.append(_bad(message, error))
            continue
        keys += found
        values += inner
        owners += [message] * len(found)
    table = json_lines.parse_each(keys, _KEY)
    if table is None:
        table, torn = _one_by_one(keys, owners)
        lines += torn
        gone = {one.message for one in torn}
        kept = [at for at, owner in enumerate(owners) if owner not in gone]
        owners, values = [owners[at] for at in kept], [values[at] for at in kept]
    return in_order([said(lines), *_events(table, np.array(owners, np.int64), values, options)])


def _pairs(messages: pa.RecordBatch) -> Iterable[tuple[bytes | None, bytes | None]]:
    return zip(messages.column("key").to_pylist(), messages.column("value").to_pylist(), strict=True)


def _bad(message: int, reason: object) -> Said:
    return Said(message, Kind.BAD, reason=f"it is not a message of the Open Protocol: {reason}")


def _framed(key: bytes | None, value: bytes | None) -> tuple[list[bytes], list[bytes]]:
    """Cut key and value into their pieces; raises ValueError."""
    if not key or not key.startswith(_VERSION):
        raise ValueError("its key does not begin with 1 in eight bytes, the version of the protocol")
    if value is None:
        raise ValueError("it has no value")
    keys, values = list(_pieces(key, len(_VERSION))), list(_pieces(value, 0))
    if not keys or len(keys) != len(values):
        raise ValueError(f"its key has {len(keys)} parts and its value {len(values)}")
    return keys, values


def _pieces(framed: bytes, at: int) -> Iterator[bytes]:
    while at < len(framed):
        length = int.from_bytes(framed[at : at + 8], "big")
        at += 8
        if length > len(framed) - at:
            raise ValueError("a length in it is beyond its end")
        yield framed[at : at + length]
        at += length


def _one_by_one(keys: Sequence[bytes], owners: Sequence[int]) -> tuple[pa.Table, list[Said]]:
    """Read keys that no parser takes as a whole; the messages of broken keys are bad."""
    reasons: dict[int, object] = {}
    found: list[tuple[int, dict[str, Any]]] = []
    for owner, key in zip(owners, keys, strict=True):
        try:
            held = json_lines.loads(key)
            pa.Table.from_pylist([held], _KEY)
            found.append((owner, {name: held.get(name) for name in _KEY.names}))
        except (ValueError, TypeError, AttributeError, OverflowError, pa.ArrowException) as error:
            reasons.setdefault(owner, f"a part of its key cannot be read: {str(error)[:100]}")
    kept = [held for owner, held in found if owner not in reasons]
    return pa.Table.from_pylist(kept, _KEY), [_bad(owner, reason) for owner, reason in reasons.items()]


def _events(
    table: pa.Table, owners: Places, values: Sequence[bytes], options: MessageOptions
) -> Iterator[pa.RecordBatch]:
    table = table.combine_chunks()
    kinds = table.column("t").fill_null(0).to_numpy()
    ts = table.column("ts").fill_null(-1).to_numpy()
    ordinals = np.arange(len(owners)) - np.searchsorted(owners, owners)
    named = pc.is_valid(table.column("scm")).to_numpy() & (
        pc.is_valid(table.column("tbl")).to_numpy() | (kinds == _DDL) | (kinds == _RESOLVED)
    )
    sound = (ts > 0) & (named | (kinds == _RESOLVED)) & (kinds >= _ROW) & (kinds <= _RESOLVED)
    torn = set(owners[~sound].tolist())
    fit = ~np.isin(owners, list(torn))
    yield said(_bad(owner, "a part of its key lacks ts, scm, tbl or a known t") for owner in sorted(torn))
    part = pc.fill_null(table.column("ohk"), False).to_numpy() & ~pc.is_valid(table.column("ccl")).to_numpy()
    yield said(_others(table, owners, ordinals, values, np.flatnonzero(fit & ((kinds != _ROW) | part)), options))
    rows = pa.array(np.flatnonzero(fit & (kinds == _ROW) & ~part))
    mine = table.take(rows).combine_chunks()
    names = [
        pa.concat_arrays(mine.column(name).chunks or [pa.array([], pa.string())]) for name in ("scm", "tbl", "ccl")
    ]
    places = rows.to_numpy()
    yield said_of_rows(owners[places], ordinals[places], names[0], names[1], ts[places], names[2])


def _others(
    table: pa.Table, owners: Places, ordinals: Places, values: Sequence[bytes], places: Places, options: MessageOptions
) -> Iterator[Said]:
    for at in places.tolist():
        key = {name: table.column(name)[at].as_py() for name in ("ts", "scm", "tbl", "t")}
        message, commit_ts = int(owners[at]), key["ts"]
        if key["t"] == _RESOLVED:
            yield Said(message, Kind.RESOLVED, commit_ts=commit_ts)
            continue
        name = TableId(key["scm"], key["tbl"] or "")
        if key["t"] == _ROW:
            yield Said(message, Kind.BAD, name, (int(ordinals[at]),), commit_ts, reason=HANDLE_KEY_ONLY)
            continue
        try:
            held = json_lines.loads(unpack(values[at], options.large_message_handle_compression))
            query, action = held["q"], held["t"]
            if not isinstance(query, str) or type(action) is not int or not 0 <= action < _MOST_TYPE:
                raise ValueError(f"its action {str(action)[:40]} is not one of TiDB's, or its query is not a text")
        except (ValueError, KeyError, TypeError) as error:
            reason = f"its DDL cannot be read: {explained(error)}"
            yield Said(message, Kind.BAD, name, commit_ts=commit_ts, reason=reason)
        else:
            yield Said(message, Kind.DDL, name, commit_ts=commit_ts, query=query, type=action)


# --- rows -------------------------------------------------------------------------------------------------------------


def decode(rows: pa.RecordBatch, path: str, table: TableId, schema: TableSchema, options: MessageOptions) -> Decoded:
    """Return the changes of one table: an update with `p` is a DELETE and an INSERT of the same line.

    A row event that cannot be read, or that has a column which the schema lacks, is a Reject; its raw bytes are its
    part of the message's value.
    """
    owners, ordinals = lines_of(rows)
    faults = Faults(path, lambda line: raw.get(line) or rows.column("value")[int(owners[line - 1])].as_py() or b"")
    raw: dict[int, bytes] = {}
    texts: dict[int, bytes] = {}
    commit_ts = np.zeros(len(owners) + 1, np.int64)
    for line, (key, value) in _parts(rows, owners, ordinals):
        try:
            raw[line] = value
            head = json_lines.loads(key)
            if (head.get("scm"), head.get("tbl"), head.get("t")) != (table.schema, table.table, _ROW):
                raise ValueError(f"it is not a row of {table}")
            commit_ts[line] = head["ts"]
            texts[line] = unpack(value, options.large_message_handle_compression)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            faults.add(line, f"it cannot be read: {explained(error)}")
    for line in set(range(1, len(owners) + 1)) - raw.keys():
        faults.add(line, "it is not in its message")
    sides = _sides(texts, schema, faults)
    return _decoded(sides, commit_ts, schema, options, faults)


def _parts(rows: pa.RecordBatch, owners: Places, ordinals: Places) -> Iterator[tuple[int, tuple[bytes, bytes]]]:
    """Yield key and value of the row events that the batch asks for, by line."""
    held: list[tuple[list[bytes], list[bytes]]] = []
    for key, value in _pairs(rows):
        try:
            held.append(_framed(key, value))
        except ValueError:
            held.append(([], []))
    for line, (owner, ordinal) in enumerate(zip(owners.tolist(), ordinals.tolist(), strict=True), 1):
        keys, values = held[owner]
        if 0 <= ordinal < len(keys):
            yield line, (keys[ordinal], values[ordinal])


@dataclass(frozen=True, slots=True)
class _Side:
    """Images of one kind (u, p or d): their lines, and for each column its type, flags and value; no type is absent."""

    lines: Places
    columns: Mapping[str, tuple[Places, Places, pa.Array]]


def _sides(texts: Mapping[int, bytes], schema: TableSchema, faults: Faults) -> dict[str, _Side]:
    lines = np.array(list(texts), np.int64)
    table = json_lines.parse_each(list(texts.values()), _row_schema(schema))
    if table is None:
        table, lines = _sift(texts, schema, faults)
    table = table.combine_chunks()
    sides = {name: _array(table.column(name)) for name in ("u", "p", "d")}
    u, p, d = (pc.is_valid(sides[name]).to_numpy(zero_copy_only=False) for name in ("u", "p", "d"))
    strange = ~(u & ~d) & ~(d & ~u & ~p)
    for line in lines[strange].tolist():
        faults.add(line, "it has neither u, nor u and p, nor d alone")
    found = {}
    for name, there in (("u", u & ~strange), ("p", p & ~strange), ("d", d & ~strange)):
        held = sides[name].take(pa.array(np.flatnonzero(there)))
        columns = {column.name: _cell(pc.struct_field(held, [at])) for at, column in enumerate(schema.stored)}
        found[name] = _Side(lines[there], columns)
    return found


def _array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _cell(column: pa.StructArray) -> tuple[Places, Places, pa.Array]:
    types = pc.struct_field(column, "t")
    codes = pc.if_else(pc.less(types, 0), _MOST_TYPE, types).fill_null(-1).to_numpy(zero_copy_only=False)
    flags = pc.struct_field(column, "f").fill_null(0).to_numpy(zero_copy_only=False)
    return codes, flags, pc.struct_field(column, "v")


def _row_schema(schema: TableSchema) -> pa.Schema:
    side = pa.struct([(column.name, _cell_type(column)) for column in schema.stored])
    return pa.schema([("u", side), ("p", side), ("d", side)])


def _cell_type(column: Column) -> pa.DataType:
    kind = _VALUES.get(column.type, pa.string())
    if column.type == "BIGINT" and column.unsigned:
        kind = pa.uint64()
    return pa.struct([("t", pa.int64()), ("h", pa.bool_()), ("f", pa.int64()), ("v", kind)])


_VALUES = {
    **dict.fromkeys((*INTEGER, "YEAR"), pa.int64()),
    **dict.fromkeys(("BIT", "ENUM", "SET"), pa.uint64()),
    **dict.fromkeys(FLOATING, pa.float64()),
}


def _sift(texts: Mapping[int, bytes], schema: TableSchema, faults: Faults) -> tuple[pa.Table, Places]:
    """Read row events one by one; those that do not fit the schema are faults."""
    shape = _row_schema(schema)
    kinds = {column.name: _cell_type(column).field("v").type for column in schema.stored}
    sound, lines = [], []
    for line, text in texts.items():
        try:
            sound.append(_sound(json_lines.loads(text), kinds))
            lines.append(line)
        except _Strange as error:
            faults.add(line, str(error), error.column)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            faults.add(line, f"it is not a row event: {explained(error)}")
    return pa.Table.from_pylist(sound, shape), np.array(lines, np.int64)


_OF_CELL = ("t", "h", "f", "v")
_NAMELESS = (
    "its image before has a value without the name of its column, as TiCDC's new architecture writes one that has "
    "become NULL. Set only-output-updated-columns = false in the changefeed, and let it send the row again"
)


class _Strange(ValueError):
    def __init__(self, column: str, problem: str) -> None:
        super().__init__(problem)
        self.column = column


def _sound(event: Any, kinds: Mapping[str, pa.DataType]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for side, columns in event.items():
        if side not in ("u", "p", "d") or columns is None:
            continue
        found[side] = {}
        for name, cell in columns.items():
            if side == "p" and name in _OF_CELL and not isinstance(cell, dict):
                raise _Strange(name, _NAMELESS)
            if name not in kinds:
                raise _Strange(name, f'column "{name}" is not in the table\'s schema at this commit-ts')
            value = cell.get("v")
            flags = cell.get("f", 0)
            typed = type(cell["t"]) is int and type(flags) is int and 0 <= cell["t"] < _MOST_TYPE > flags >= 0
            if isinstance(value, bool) or not typed:
                raise _Strange(name, f'column "{name}" is {str(cell)[:80]}, which is not a value with its type')
            if isinstance(value, int) and pa.types.is_floating(kinds[name]):
                value = float(value)
            try:
                pa.array([value], kinds[name])
            except (pa.ArrowException, TypeError, OverflowError):
                raise _Strange(name, f'column "{name}" has the value {str(value)[:80]}, not {kinds[name]}') from None
            found[side][name] = {"t": cell["t"], "f": flags, "v": value}
    return found


def _decoded(
    sides: Mapping[str, _Side], commit_ts: Places, schema: TableSchema, options: MessageOptions, faults: Faults
) -> Decoded:
    u, p, d = (sides[name] for name in ("u", "p", "d"))
    lines = np.concatenate([u.lines, p.lines, d.lines])
    ops = np.repeat(np.array([Op.INSERT, Op.DELETE], np.int8), [len(u.lines), len(p.lines) + len(d.lines)])
    after = np.full(len(lines), -1, np.int64)
    after[len(u.lines) : len(u.lines) + len(p.lines)] = np.searchsorted(u.lines, p.lines)
    images = Images(lines, ops, commit_ts[lines], after)

    def cells(column: Column) -> Cells:
        parts = [side.columns[column.name] for side in (u, p, d)]
        codes, flags = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
        return _cells(codes, flags, pa.concat_arrays([part[2] for part in parts]), column)

    return changes_of(images, cells, schema, options, faults)


# --- values -----------------------------------------------------------------------------------------------------------

_QUOTED, _BASE64 = (15, 253, 254), (249, 250, 251, 252)


def _cells(codes: Places, flags: Places, array: pa.Array, column: Column) -> Cells:
    absent = codes < 0
    faults: list[tuple[Mask, str]] = []
    for code in np.unique(codes[~absent]).tolist():
        if not fits(code, column):
            name = type_name(code, 0) or f"type {code}"
            reason = f"it is sent as {name}, but the table's schema at this commit-ts has {column.type}"
            faults.append((codes == code, reason))
    if pa.types.is_string(array.type):
        array, torn = _unwrapped(codes, (flags & BINARY) > 0, array)
        faults += torn
    return Cells(array, absent if absent.any() else None, faults=tuple(faults))


def _unwrapped(codes: Places, binary: Mask, texts: pa.StringArray) -> tuple[pa.Array, list[tuple[Mask, str]]]:
    """Undo what bytes are wrapped in: base64 for all BLOB and TEXT types, Go's quoting for BINARY and VARBINARY."""
    coded, quoted = np.isin(codes, _BASE64), np.isin(codes, _QUOTED) & binary
    if not coded.any() and not quoted.any():
        return texts, []
    found, bad = texts.cast(pa.binary()), np.zeros(len(texts), bool)
    valid = pc.is_valid(texts).to_numpy(zero_copy_only=False)
    if coded.any():
        import polars as pl  # loads in 100 ms, and most tables have no such column

        held = pl.Series("", texts, dtype=pl.String).str.decode("base64", strict=False).to_arrow().cast(pa.binary())
        found = pc.if_else(pa.array(coded), held, found)
        bad |= coded & valid & pc.is_null(held).to_numpy(zero_copy_only=False)
    escaped = quoted & pc.match_substring(texts, "\\").fill_null(False).to_numpy(zero_copy_only=False)
    if escaped.any():
        raw = [_unquoted(text) for text in texts.filter(pa.array(escaped)).to_pylist()]
        found = pc.replace_with_mask(found, pa.array(escaped), pa.array(raw, pa.binary()))
        bad |= escaped & pc.is_null(found).to_numpy(zero_copy_only=False)
    return found, [(bad, "its bytes are neither base64 nor quoted as Go quotes them")] if bad.any() else []


_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.|$)", re.DOTALL)
_SIMPLE = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b"\\": b"\\",
    b'"': b'"',
}


def _unquoted(text: str) -> bytes | None:
    """Undo Go's strconv.Quote; None for an escape that it does not write."""
    try:
        return _ESCAPE.sub(_unescape, text.encode())
    except (KeyError, ValueError):
        return None


def _unescape(match: re.Match[bytes]) -> bytes:
    escape = match[1]
    if len(escape) == 3:
        return bytes.fromhex(escape[1:].decode())
    return chr(int(escape[1:], 16)).encode() if len(escape) > 1 else _SIMPLE[escape]


# --- schemas ----------------------------------------------------------------------------------------------------------


def schemas(messages: pa.RecordBatch, options: MessageOptions) -> tuple[SchemaEvent, ...]:
    """Return the columns of tables by their rows, once for each table and shape, from the least commit-ts of it."""
    found: dict[tuple[TableId, tuple[tuple[str, int, int], ...]], SchemaEvent] = {}
    for message, (key, value) in enumerate(_pairs(messages)):
        try:
            for table, commit_ts, columns in _shapes(*_framed(key, value), options):
                shape = (table, tuple((one.name, one.code, one.flags) for one in columns))
                inferred = infer(columns, in_table_order=False)
                if inferred is not None and (shape not in found or commit_ts < found[shape].version):
                    found[shape] = SchemaEvent(message, table, commit_ts, inferred[0], inferred[1])
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            continue  # classify calls it bad, or decode rejects it
    return tuple(found.values())


def _shapes(
    keys: Sequence[bytes], values: Sequence[bytes], options: MessageOptions
) -> Iterator[tuple[TableId, int, tuple[Typed, ...]]]:
    for key, value in zip(keys, values, strict=True):
        head = json_lines.loads(key)
        if head.get("t") != _ROW or head.get("ohk"):
            continue
        event = json_lines.loads(unpack(value, options.large_message_handle_compression))
        cells = event.get("u") or event["d"]
        columns = tuple(
            Typed(name, int(cell["t"]), int(cell["f"]), (cell["v"],) if isinstance(cell["v"], str) else ())
            for name, cell in cells.items()
        )
        yield TableId(str(head["scm"]), str(head["tbl"])), int(head["ts"]), columns


def _lone_row(key: bytes | None, value: bytes, options: MessageOptions) -> Mapping[str, Any]:
    (text,) = _framed(key, value)[1]
    event = json_lines.loads(unpack(text, options.large_message_handle_compression))
    return {name: cell["v"] for name, cell in (event.get("u") or event["d"]).items()}


CODEC = MessageCodec(classify=classify, decode=decode, schemas=schemas, lone_row=_lone_row)
