"""TiCDC's Open Protocol: framed JSON, several row events a message, each column with its type and flags.

    key   : 8 bytes version = 1 · repeated { 8 bytes length · {"ts":…,"scm":…,"tbl":…,"t":1 row, 2 DDL, 3 resolved} }
    value : repeated { 8 bytes length · {"u":{column:{"t":type,"f":flags,"v":value}},"p":{…}} or {"d":{…}} }

`u` is the row, `p` the one before an update, `d` a deleted one. An update without `p` looks like an insert. A DDL has
`q` and its action `t`; a resolved mark has no value. Each value is compressed by itself where the changefeed says so.

ENUM is the number of its member, SET the sum of 2^position. All BLOB and TEXT types are base64, BINARY and VARBINARY
texts as Go quotes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import MessageOptions
from cdc_assets.formats.changes import (
    Cells,
    Faults,
    RowSides,
    changes_of,
    of_unknown_column,
    row_images,
    unknown_column,
)
from cdc_assets.formats.column_codes import BINARY, TypedColumn, fits, flags_limit, flags_of_mysql, infer, type_name
from cdc_assets.formats.decoded import Decoded, Op
from cdc_assets.formats.json_records import NO_VALUE, json_records, json_value, refuse_twice
from cdc_assets.formats.messages import (
    HANDLE_KEY_ONLY,
    Classification,
    Kind,
    MessageCodec,
    SchemaEvent,
    classified,
    classified_rows,
    in_order,
    lines_of,
    unpack,
    unpacked_array,
)
from cdc_assets.formats.records import CellKind, Marks, Records, bits
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.types.families import FLOATING, INTEGER

__all__ = ["classify", "decode", "schemas"]

Places = npt.NDArray[np.int64]

_ROW, _DDL, _RESOLVED = 1, 2, 3
_MOST_ACTION = np.uint64(1 << 20)
"""More than any number of an action."""
_VERSION = b"\0\0\0\0\0\0\0\1"
_TROUBLE = (ValueError, KeyError, TypeError, AttributeError)
"""Exceptions a malformed row may raise."""


# --- messages and their events ----------------------------------------------------------------------------------------


class _Events(NamedTuple):
    """The events of messages in their order, each with its piece of the key and of the value.

    `owners` are their messages, `ordinals` their places in these. `torn` are the messages that cannot be cut, and why.
    """

    owners: Places
    ordinals: Places
    keys: pa.BinaryArray
    values: pa.BinaryArray
    torn: Mapping[int, str]


def _events(messages: pa.RecordBatch) -> _Events:
    keys, values, counts, torn = list[bytes](), list[bytes](), list[int](), dict[int, str]()
    pairs = zip(messages.column("key").to_pylist(), messages.column("value").to_pylist(), strict=True)
    for message, (key, value) in enumerate(pairs):
        counts.append(0)
        try:
            some, inner = _framed(key, value)
        except ValueError as error:
            torn[message] = str(error)
            continue
        keys += some
        values += inner
        counts[-1] = len(some)
    owners = np.repeat(np.arange(len(counts)), counts)
    ordinals = np.arange(len(owners)) - np.searchsorted(owners, owners)
    return _Events(owners, ordinals, pa.array(keys, pa.binary()), pa.array(values, pa.binary()), torn)


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


class _Heads(NamedTuple):
    """Values from the keys of events; `refused` are those that cannot be read, each with the reason.

    `partial` marks rows of which there is the key only, `claims` is where the whole of them lies.
    """

    kinds: Places
    commit_ts: Places
    schemas: pa.StringArray
    tables: pa.StringArray
    claims: pa.StringArray
    partial: Marks
    refused: Mapping[int, str]

    def table(self, event: int) -> TableId:
        """Return the table of an event; without a name a DDL is of the schema."""
        return TableId(self.schemas[event].as_py(), self.tables[event].as_py() or "")


def _last_ohk(name: str, first: object, second: object) -> Any:
    """Return the second `ohk`: the new architecture writes true, then false of a row that lies elsewhere."""
    return second if name == "ohk" else refuse_twice(name, first, second)


def _heads(keys: pa.BinaryArray) -> _Heads:
    parts, refused = list[pa.Table](), dict[int, str]()
    for records in json_records(keys, twice=_last_ohk):
        (kinds, is_whole), (commit_ts, stamped) = records.whole_numbers("t"), records.tsos("ts")
        schemas, tables, claims, partial = (records.column(name) for name in ("scm", "tbl", "ccl", "ohk"))
        records.require(is_whole & (kinds >= _ROW) & (kinds <= _RESOLVED), "a part of its key has no known t")
        records.require(stamped & (commit_ts > 0), "the ts of a part of its key is no TSO")
        records.require(
            (schemas.are(CellKind.TEXT) | (kinds == _RESOLVED))
            & (tables.are(CellKind.TEXT) | ~tables.given & (kinds != _ROW))
            & (claims.are(CellKind.TEXT) | ~claims.given)
            & (partial.are(CellKind.BOOL) | ~partial.given),
            "a part of its key lacks scm or tbl, or a member of it is of another kind than it should be",
        )
        for _, event, reason in records.refused():
            refused[event] = reason
        numbers = [np.where(records.sound, values, 0).astype(np.int64) for values in (kinds, commit_ts)]
        columns = [*map(pa.array, (records.messages, *numbers)), schemas.texts, tables.texts, claims.texts]
        names = ["event", "t", "ts", "scm", "tbl", "ccl", "ohk"]
        parts.append(pa.table([*columns, pc.equal(partial.texts, "true")], names=names))
    joined = pa.concat_tables(parts).sort_by("event")
    key_columns = {name: joined.column(name).combine_chunks() for name in ("t", "ts", "scm", "tbl", "ccl", "ohk")}
    moments, partial_ = key_columns["ts"].to_numpy(), bits(key_columns["ohk"])
    return _Heads(
        key_columns["t"].to_numpy(),
        moments,
        key_columns["scm"],
        key_columns["tbl"],
        key_columns["ccl"],
        partial_,
        refused,
    )


# --- what messages speak of -------------------------------------------------------------------------------------------


def classify(messages: pa.RecordBatch, options: MessageOptions) -> pa.RecordBatch:
    """Return the table and kind of each message (CLASSIFIED), by its key alone but for a DDL."""
    events = _events(messages)
    heads = _heads(events.keys)
    bad = dict(events.torn)
    for event, reason in sorted(heads.refused.items()):
        bad.setdefault(int(events.owners[event]), reason)
    fit = ~np.isin(events.owners, list(bad))
    alone = heads.partial & bits(pc.is_null(heads.claims))
    for event in np.flatnonzero(fit & alone).tolist() if options.cuts_large_rows else ():
        alone[event] = not _is_delete(events.values[event].as_py(), options)
    rows = fit & (heads.kinds == _ROW) & ~alone
    lines = classified(_bad(message, reason) for message, reason in bad.items())
    other_messages = classified(_others(events, heads, np.flatnonzero(fit & ~rows), options))
    schemas_, tables, claims = (column.filter(pa.array(rows)) for column in (heads.schemas, heads.tables, heads.claims))
    row_lines = classified_rows(
        events.owners[rows], events.ordinals[rows], schemas_, tables, heads.commit_ts[rows], claims
    )
    return in_order([lines, other_messages, row_lines])


def _is_delete(value: bytes | None, options: MessageOptions) -> bool:
    with suppress(*_TROUBLE):
        return "d" in json_value(unpack(value or b"", options.large_message_handle_compression))
    return False


def _bad(message: int, reason: str) -> Classification:
    return Classification(message, Kind.BAD, reason=f"it is not a message of the Open Protocol: {reason}")


def _others(events: _Events, heads: _Heads, places: Places, options: MessageOptions) -> Iterator[Classification]:
    statements = places[heads.kinds[places] == _DDL]
    queries = _queries(events.values.take(pa.array(statements)), options)
    of_event = dict(zip(statements.tolist(), queries, strict=True))
    for event in places.tolist():
        message, commit_ts = int(events.owners[event]), int(heads.commit_ts[event])
        if heads.kinds[event] == _RESOLVED:
            yield Classification(message, Kind.RESOLVED, commit_ts=commit_ts)
        elif heads.kinds[event] == _ROW:
            ordinals = (int(events.ordinals[event]),)
            yield Classification(message, Kind.BAD, heads.table(event), ordinals, commit_ts, reason=HANDLE_KEY_ONLY)
        elif isinstance(statement := of_event[event], str):
            reason = f"its DDL cannot be read: {statement}"
            yield Classification(message, Kind.BAD, heads.table(event), commit_ts=commit_ts, reason=reason)
        else:
            query, action = statement
            yield Classification(message, Kind.DDL, heads.table(event), commit_ts=commit_ts, query=query, type=action)


def _queries(values: pa.BinaryArray, options: MessageOptions) -> Iterable[tuple[str, int] | str]:
    """Return the query and the action of each DDL, or why there is none."""
    queries = dict[int, tuple[str, int] | str]()
    for records in json_records(unpacked_array(values, options)):
        query, (action, whole) = records.column("q"), records.whole_numbers("t")
        records.require(query.are(CellKind.TEXT), "its query is not a text")
        records.require(whole & (action < _MOST_ACTION), "its action is not one of TiDB's")
        for place, (message, text) in enumerate(zip(records.messages.tolist(), query.texts.to_pylist(), strict=True)):
            queries[message] = (text, int(action[place]))
        queries |= {message: _why(reason, options) for _, message, reason in records.refused()}
    return (queries[event] for event in range(len(values)))


def _why(reason: str, options: MessageOptions) -> str:
    """Return the reason why a value cannot be read: all have one, but it may be compressed otherwise."""
    return f"it is not compressed with {options.large_message_handle_compression}" if reason == NO_VALUE else reason


# --- rows -------------------------------------------------------------------------------------------------------------


def decode(rows: pa.RecordBatch, path: str, table: TableId, schema: TableSchema, options: MessageOptions) -> Decoded:
    """Return the changes of one table: an update with `p` is a DELETE and an INSERT of the same line.

    A row event that cannot be read, or that has a column which the schema lacks, is a Reject; its raw bytes are its
    part of the message's value.
    """
    events, (owners, ordinals) = _events(rows), lines_of(rows)
    places = np.searchsorted(events.owners, owners) + ordinals
    counts = np.bincount(events.owners, minlength=rows.num_rows)
    event_numbers = pa.array(places, mask=(ordinals < 0) | (ordinals >= counts[owners]))
    keys, values = events.keys.take(event_numbers), events.values.take(event_numbers)
    heads = _heads(keys)
    sent, raw = rows.column("value"), unpacked_array(values, options)

    def bytes_of(line: int) -> bytes:
        return values[line - 1].as_py() or sent[int(owners[line - 1])].as_py() or b""

    faults = Faults(path, bytes_of, heads.commit_ts)
    row_mask = bits(pc.and_(pc.equal(heads.schemas, table.schema), pc.equal(heads.tables, table.table)))
    row_mask &= heads.kinds == _ROW
    for line in np.flatnonzero(~row_mask).tolist():
        reason = heads.refused.get(line, f"it is not a row of {table}")
        faults.add(
            line + 1, f"it cannot be read: {reason}" if event_numbers[line].is_valid else "it is not in its message"
        )
    parts = list(json_records(pc.if_else(pa.array(row_mask), raw, pa.scalar(None, pa.binary())), twice=_no_cell))
    sides = _read_rows(parts, heads.commit_ts, schema, faults, may_update=not (options.old_values or schema.key))
    for records in parts:
        for _, line, reason in records.refused():
            faults.add(line + 1, f"it is not a row event: {_why(reason, options)}")
    return changes_of(
        sides.images,
        lambda column: _cells_of(sides, column),
        schema,
        options.for_table(schema),
        faults,
    )


# --- images and cells -----------------------------------------------------------------------------------------------

Codes = npt.NDArray[np.uint64]

_OF_MYSQL = (
    "which are MySQL's own (TiCDC's are below 256, and of texts below 128): an early build of the new architecture "
    "wrote them, and they do not say which values are bytes. Upgrade TiCDC, and let it send the rows again"
)
_NUMBERS = frozenset((*INTEGER, *FLOATING, "YEAR", "BIT", "ENUM", "SET"))
"""Types whose values are numbers; all others are texts."""
_OF_CELL = ("t", "h", "f", "v")
_NAMELESS = (
    "its image before has a value without the name of its column, as TiCDC's new architecture writes one that has "
    "become NULL, so it does not say which row it is of. Set only-output-updated-columns = false in the changefeed, "
    "and let it send the row again"
)


def _no_cell(name: str, first: object, second: object) -> Any:
    """Return the misfit of a cell that comes twice: several values without the names of their columns."""
    return [] if name in _OF_CELL else refuse_twice(name, first, second)


def _read_rows(
    parts: Iterable[Records], commit_ts: Places, schema: TableSchema, faults: Faults, *, may_update: bool
) -> RowSides:
    """Return the images in records, whose messages are their lines from 0, each with its commit-ts.

    Records that are no row events are refused. With `may_update` a new row alone is taken for an update, which cannot
    be told from an insert where the changefeed leaves out the rows before updates.
    """
    sides = RowSides()
    for records in parts:
        u, p, d = (records.kinds(side) > CellKind.NULL for side in ("u", "p", "d"))
        records.require(u & ~d | d & ~u & ~p, "it has neither u, nor u and p, nor d alone")
        nameless = _nameless(records, schema, faults)
        for side, has_side in (("u", u), ("p", p), ("d", d)):
            records.require(~has_side | records.are_objects(side), f"its {side} is no row")
        unread = nameless | _unread(records, schema, p & ~nameless)
        for side, has_side in (("u", u), ("p", p & ~unread), ("d", d)):
            for name, mask, reason, path in _misfits(records, side, schema, has_side):
                faults.refuse(records, mask, name, reason, path or None)
        for row_mask, before in ((u & ~unread, "p"), (d, "d")):
            rows = records.among(records.sound & row_mask)
            sides.add(rows, commit_ts[rows.messages], ("u",), (before,), updates=may_update)
        rows = records.among(records.sound & u & unread)
        whole, none = np.ones(len(rows), bool), np.zeros(len(rows), bool)
        images = row_images(rows.messages + 1, commit_ts[rows.messages], whole, none)
        images.ops[:] = Op.UPDATE
        sides.take(images, (rows, ("u",)))
    return sides


def _nameless(records: Records, schema: TableSchema, faults: Faults) -> Marks:
    """Mark the rows whose image before has values without the names of their columns, as the new architecture has them.

    These have become NULL. The image before is passed over where no column of the key is in it, nor is one NULL after
    it: then the key is as it was.
    """
    nameless_rows = np.zeros(len(records), bool)
    for name in _OF_CELL:
        is_present = records.kinds("p", name) != CellKind.ABSENT
        nameless_rows |= is_present & ~records.are_objects("p", name)
    moved = np.full(len(records), not schema.key)
    for part in ("t", "v") if nameless_rows.any() else ():
        moved |= records.kinds("p", part) == CellKind.ABSENT
    for name in schema.key if nameless_rows.any() else ():
        moved |= (records.kinds("p", name) != CellKind.ABSENT) | (records.kinds("u", name, "v") <= CellKind.NULL)
    faults.refuse(records, nameless_rows & moved, "p", _NAMELESS)
    return nameless_rows


def _unread(records: Records, schema: TableSchema, updates: Marks) -> Marks:
    """Mark the updates whose image before is not to be relied on, and not needed: the key is the one after it.

    The new architecture up to v8.5.5 gave it MySQL's own flags instead of those that the row after it has, and there
    null for zero and for an empty text (ticdc#3973). Of a table without key the image is needed.
    """
    unread_rows = np.zeros(len(records), bool)
    if not schema.key or not updates.any():
        return unread_rows
    for name, mask, _, _ in _misfits(records, "p", schema, updates):
        unread_rows |= mask & (name not in schema.key)
    for name in records.members("p"):
        (old, is_old), (new, is_new) = (records.whole_numbers(side, name, "f") for side in ("p", "u"))
        unread_rows |= updates & is_old & is_new & (old != new)
    for name in schema.key if unread_rows.any() else ():
        before, after = (records.column(side, name, "v") for side in ("p", "u"))
        is_same_value = (before.kinds == after.kinds) & before.given & bits(pc.equal(before.texts, after.texts))
        unread_rows &= is_same_value | (records.kinds("p", name) == CellKind.ABSENT)
    return unread_rows


def _misfits(
    records: Records, side: str, schema: TableSchema, some: Marks
) -> Iterator[tuple[str, Marks, str, tuple[str, ...]]]:
    """Yield the misfits of rows: a column, the rows, the reason, and the path to the value that is shown.

    They have a column that the table lacks, or a value that no column of its type has.
    """
    columns = {column.name: column for column in schema.stored}
    for name in records.members(side):
        has_column, column = some & (records.kinds(side, name) != CellKind.ABSENT), columns.get(name)
        if column is None:
            unknown = of_unknown_column(records, name, (side,), ("u",) if side == "p" else None, schema)
            yield name, some & unknown, unknown_column(schema, name), ()
            continue
        (codes, typed), (_, flagged) = (records.whole_numbers(side, name, part) for part in ("t", "f"))
        typed &= flagged | (records.kinds(side, name, "f") == CellKind.ABSENT)
        yield name, has_column & ~typed, f'column "{name}" is {{}}, which is not a value with its type', (side, name)
        flags, whole = records.whole_numbers(side, name, "f")
        for code in _distinct(codes[has_column & typed]):
            raw = has_column & typed & whole & (codes == code) & (flags >= flags_limit(code))
            yield name, raw, f'column "{name}" has the flags {{}}, {_OF_MYSQL}', (side, name, "f")
            if not fits(code, column):
                sent = type_name(code, 0) or f"type {code}"
                reason = f"it is sent as {sent}, but the table's schema at this commit-ts has {column.type}"
                yield name, has_column & (codes == code), reason, ()
        kinds = records.kinds(side, name, "v")
        sound = (kinds <= CellKind.NULL) | (kinds == (CellKind.NUMBER if column.type in _NUMBERS else CellKind.TEXT))
        problem = f'column "{name}" has the value {{}}, which is not of its type'
        yield name, has_column & ~sound, problem, (side, name, "v")


def _distinct(codes: Codes) -> list[int]:
    """Return the numbers that there are: one as a rule."""
    few = codes[:1] if (codes == codes[:1]).all() else np.unique(codes)
    return [int(code) for code in few]


def _cells_of(sides: RowSides, column: Column) -> Cells:
    absent = sides.absent(column.name)
    array = sides.column(column.name, "v").texts
    if column.type in _NUMBERS:
        return Cells(array, absent)
    codes, flags = (sides.whole_numbers(column.name, part) for part in ("t", "f"))
    array, faults = _unwrapped(codes, flags & np.uint64(BINARY) > 0, array)
    return Cells(array, absent, faults=faults)


# --- bytes ------------------------------------------------------------------------------------------------------------

_QUOTED, _BASE64 = (15, 253, 254), (249, 250, 251, 252)
"""Numbers of types whose bytes are quoted, and of those in base64."""


def _unwrapped(codes: Codes, binary: Marks, texts: pa.StringArray) -> tuple[pa.Array, tuple[tuple[Marks, str], ...]]:
    """Undo what bytes are wrapped in."""
    coded, quoted = np.isin(codes, _BASE64), np.isin(codes, _QUOTED) & binary
    if not coded.any() and not quoted.any():
        return texts, ()
    values, bad = texts.cast(pa.binary()), np.zeros(len(texts), bool)
    valid = bits(pc.is_valid(texts))
    if coded.any():
        import polars as pl  # loads in 100 ms, and most tables have no such column

        decoded = pl.Series("", texts, dtype=pl.String).str.decode("base64", strict=False).to_arrow().cast(pa.binary())
        values = pc.if_else(pa.array(coded), decoded, values)
        bad |= coded & valid & bits(pc.is_null(decoded))
    escaped = quoted & bits(pc.match_substring(texts, "\\"))
    if escaped.any():
        raw = [_unquoted(text) for text in texts.filter(pa.array(escaped)).to_pylist()]
        values = pc.replace_with_mask(values, pa.array(escaped), pa.array(raw, pa.binary()))
        bad |= escaped & bits(pc.is_null(values))
    return values, ((bad, "its bytes are neither base64 nor quoted as Go quotes them"),) if bad.any() else ()


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
    """Return the columns of tables by their rows, once for each table and shape, from the least commit-ts of it.

    Deletes show none where they have their key only.
    """
    events = _events(messages)
    heads = _heads(events.keys)
    schema_events: dict[tuple[TableId, tuple[tuple[str, int, int], ...]], SchemaEvent] = {}
    whole = ~heads.partial & bits(pc.is_null(heads.claims))
    rows = list[tuple[int, bool, tuple[TypedColumn, ...]]]()
    handles = dict[int, frozenset[str]]()
    for event in np.flatnonzero((heads.kinds == _ROW) & whole).tolist():
        try:
            row, is_delete = _row(events.values[event].as_py(), options)
            rows.append((event, is_delete, _typed(row)))
            handles[event] = frozenset(name for name, cell in row.items() if cell.get("h"))
        except _TROUBLE:
            continue  # decode rejects it
    for event, is_delete, columns in rows:
        table, commit_ts = heads.table(event), int(heads.commit_ts[event])
        if is_delete and options.delete_only_output_handle_key_columns:
            continue
        if any(column.flags >= flags_limit(column.code) for column in columns):  # decode rejects it, and says why
            columns = tuple(
                replace(column, flags=flags_of_mysql(column.flags, column.name in handles[event])) for column in columns
            )
        shape = (table, tuple((column.name, column.code, column.flags) for column in columns))
        inferred = infer(columns, in_table_order=False)
        if inferred is not None and (shape not in schema_events or commit_ts < schema_events[shape].version):
            schema_events[shape] = SchemaEvent(int(events.owners[event]), table, commit_ts, *inferred)
    return tuple(schema_events.values())


def _row(value: bytes, options: MessageOptions) -> tuple[Mapping[str, Any], bool]:
    """Return the columns of a row, and whether it is a deleted one; raises one of _TROUBLE."""
    event = json_value(unpack(value, options.large_message_handle_compression))
    return event.get("u") or event["d"], "d" in event


def _typed(row: Mapping[str, Any]) -> tuple[TypedColumn, ...]:
    return tuple(
        TypedColumn(name, int(cell["t"]), int(cell["f"]), (cell["v"],) if isinstance(cell["v"], str) else ())
        for name, cell in row.items()
    )


# --- rows that lie elsewhere ------------------------------------------------------------------------------------------


def _read_row(key: bytes | None, value: bytes, ordinal: int, options: MessageOptions) -> Mapping[str, Any]:
    return {name: cell["v"] for name, cell in _row(_framed(key, value)[1][ordinal], options)[0].items()}


def _with_row(
    message: tuple[bytes | None, bytes], ordinal: int, alone: tuple[bytes | None, bytes]
) -> tuple[bytes | None, bytes]:
    """Return a message with the one event of another in its place; raises ValueError for what cannot be cut."""
    (keys, values), ((key,), (value,)) = _framed(*message), _framed(*alone)
    keys[ordinal], values[ordinal] = key, value
    return _VERSION + b"".join(map(_piece, keys)), b"".join(map(_piece, values))


def _piece(content: bytes) -> bytes:
    return len(content).to_bytes(8, "big") + content


CODEC = MessageCodec(classify=classify, decode=decode, schemas=schemas, read_row=_read_row, with_row=_with_row)
