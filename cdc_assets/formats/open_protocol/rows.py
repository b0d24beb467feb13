"""Rows of the Open Protocol -> images and cells: each value has MySQL's number of its type and TiCDC's flags beside it.

ENUM is the number of its member, SET the sum of 2^position. All BLOB and TEXT types are base64, BINARY and VARBINARY
texts as Go quotes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.column_codes import BINARY, fits, type_name
from cdc_assets.formats.images import Cells, Faults, RowSides, row_images
from cdc_assets.formats.records import CellKind, Marks, Path, Records, bits
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.types.families import FLOATING, INTEGER

__all__ = ["cells_of", "read_rows"]

Numbers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint64]

_NUMBERS = frozenset((*INTEGER, *FLOATING, "YEAR", "BIT", "ENUM", "SET"))
"""Types whose values are numbers; all others are texts."""
_OF_CELL = ("t", "h", "f", "v")
_NAMELESS = (
    "its image before has a value without the name of its column, as TiCDC's new architecture writes one that has "
    "become NULL. Set only-output-updated-columns = false in the changefeed, and let it send the row again"
)


def read_rows(parts: Iterable[Records], commit_ts: Numbers, schema: TableSchema, faults: Faults) -> RowSides:
    """Return the images in records, whose messages are their lines from 0, each with its commit-ts.

    Records that are no row events are refused.
    """
    images, sides = [], list[tuple[Records, Path]]()
    for records in parts:
        u, p, d = (records.kinds(side) > CellKind.NULL for side in ("u", "p", "d"))
        records.require(u & ~d | d & ~u & ~p, "it has neither u, nor u and p, nor d alone")
        for side, there in (("u", u), ("p", p), ("d", d)):
            records.require(~there | records.are_objects(side), f"its {side} is no row")
            _require_columns(records, side, schema, faults)
        for mine, before in ((records.sound & u, "p"), (records.sound & d, "d")):
            rows = records.among(mine)
            new, old = (rows.kinds(side) > CellKind.NULL for side in ("u", before))
            images.append(row_images(rows.messages + 1, commit_ts[rows.messages], new, old))
            sides += [(rows.among(new), ("u",)), (rows.among(old), (before,))]
    return RowSides.of(images, sides)


def _require_columns(records: Records, side: str, schema: TableSchema, faults: Faults) -> None:
    """Refuse rows with columns that the table lacks, or with values that no column of their type has."""
    columns = {column.name: column for column in schema.stored}
    for name in records.members(side):
        there, column = records.kinds(side, name) != CellKind.ABSENT, columns.get(name)
        if side == "p" and name in _OF_CELL:
            faults.refuse(records, there & ~records.are_objects(side, name), name, _NAMELESS)
        if column is None:
            faults.refuse(records, there, name, f'column "{name}" is not in the table\'s schema at this commit-ts')
            continue
        (codes, typed), (_, flagged) = (records.whole_numbers(side, name, part) for part in ("t", "f"))
        typed &= flagged | (records.kinds(side, name, "f") == CellKind.ABSENT)
        what = "is {}, which is not a value with its type"
        faults.refuse(records, there & ~typed, name, f'column "{name}" {what}', (side, name))
        for code in _distinct(codes[there & typed]):
            if not fits(code, column):
                sent = type_name(code, 0) or f"type {code}"
                reason = f"it is sent as {sent}, but the table's schema at this commit-ts has {column.type}"
                faults.refuse(records, there & (codes == code), name, reason)
        kinds = records.kinds(side, name, "v")
        sound = (kinds <= CellKind.NULL) | (kinds == (CellKind.NUMBER if column.type in _NUMBERS else CellKind.TEXT))
        what = "has the value {}, which is not of its type"
        faults.refuse(records, there & ~sound, name, f'column "{name}" {what}', (side, name, "v"))


def _distinct(codes: Codes) -> list[int]:
    """Return the numbers that there are: one as a rule."""
    few = codes[:1] if (codes == codes[:1]).all() else np.unique(codes)
    return [int(code) for code in few]


def cells_of(sides: RowSides, column: Column) -> Cells:
    """Return a column."""
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
    found, bad = texts.cast(pa.binary()), np.zeros(len(texts), bool)
    valid = bits(pc.is_valid(texts))
    if coded.any():
        import polars as pl  # loads in 100 ms, and most tables have no such column

        held = pl.Series("", texts, dtype=pl.String).str.decode("base64", strict=False).to_arrow().cast(pa.binary())
        found = pc.if_else(pa.array(coded), held, found)
        bad |= coded & valid & bits(pc.is_null(held))
    escaped = quoted & bits(pc.match_substring(texts, "\\"))
    if escaped.any():
        raw = [_unquoted(text) for text in texts.filter(pa.array(escaped)).to_pylist()]
        found = pc.replace_with_mask(found, pa.array(escaped), pa.array(raw, pa.binary()))
        bad |= escaped & bits(pc.is_null(found))
    return found, ((bad, "its bytes are neither base64 nor quoted as Go quotes them"),) if bad.any() else ()


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
