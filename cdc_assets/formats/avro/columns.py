"""Records of one schema, read a field at a time of all of them: what TiCDC's records are made of.

    field   : (branch, 00 or 02)? value      the branch where the field may be null, in either order
    long    : zig-zag varint                 int alike
    string  : length as a long, its bytes    bytes alike; a decimal's are its unscaled digits, big-endian
    double  : eight bytes, little-endian     float: four

A schema with anything else has no plan, and a record that does not end where its bytes do is not sound: fastavro reads
those, and says what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_assets.formats.words import pieces

__all__ = ["Field", "Records", "plan_of", "read_records"]

Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NUMBERS = ("int", "long")
_TEXTS = ("string", "bytes")
_FLOATS: Mapping[str, tuple[str, int]] = {"float": ("<f4", 4), "double": ("<f8", 8)}
_LONGEST = 10
_DECIMAL_BYTES = 16
_DIGITS = 38
BEYOND = 32
"""How many bytes after the last record may be looked at."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its type, which branch of a union is null (None for no union), the scale of a decimal (None else)."""

    name: str
    type: str
    null: int | None = None
    scale: int | None = None


def plan_of(document: Mapping[str, Any]) -> tuple[Field, ...] | None:
    """Return the fields of a record's schema in order, None where one is of another kind than those above."""
    found = [_field(one) for one in document["fields"]]
    return None if None in found else tuple(one for one in found if one is not None)


def _field(declared: Mapping[str, Any]) -> Field | None:
    kind, null = declared["type"], None
    if isinstance(kind, list):
        if len(kind) != 2 or kind.count("null") != 1:
            return None
        null = kind.index("null")
        kind = kind[1 - null]
    bare = kind if isinstance(kind, dict) else {"type": kind}
    base, logical = bare.get("type"), bare.get("logicalType")
    if base not in (*_NUMBERS, *_TEXTS, *_FLOATS) or (logical is not None and (base, logical) != ("bytes", "decimal")):
        return None
    return Field(str(declared["name"]), str(base), null, int(bare.get("scale", 0)) if logical else None)


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one plan. `sound` marks those that were read from end to end; values of others mean nothing."""

    fields: tuple[Field, ...]
    sound: Mask
    data: npt.NDArray[np.uint8]
    _held: Mapping[str, tuple[Places, Places, Mask | None]]

    def numbers(self, name: str) -> Places | None:
        """Return an integer field that is never null as numbers, None for any other."""
        field = next((one for one in self.fields if one.name == name), None)
        return None if field is None or field.type not in _NUMBERS or field.null is not None else self._held[name][0]

    def array(self, name: str, chosen: Places) -> pa.Array:
        """Return a field of some records: int64, float64, string, binary, or a decimal of 38 digits.

        Raises ValueError for texts that are not UTF-8 and decimals beyond 38 digits.
        """
        field = next(one for one in self.fields if one.name == name)
        values, ends, nulls = self._held[name]
        mask = None if nulls is None else nulls[chosen]
        if field.type in _NUMBERS:
            return pa.array(values[chosen], pa.int64(), mask=mask)
        if field.type in _FLOATS:
            return pa.array(values.view(np.float64)[chosen], pa.float64(), mask=mask)
        if field.scale is not None:
            return _decimals(self.data, values[chosen], ends[chosen], field.scale, mask)
        found = pieces(pa.py_buffer(self.data), values[chosen], ends[chosen])
        if field.type == "string":
            found = found.cast(pa.string())
        return found if mask is None or not mask.any() else _nulled(found, mask)

    def readable(self, chosen: Places) -> Mask:
        """Mark records of which `array` gives every field."""
        found = np.ones(len(chosen), bool)
        for field in self.fields:
            if field.type == "string" or field.scale is not None:
                try:
                    self.array(field.name, chosen)
                except ValueError:
                    found &= [self._is_readable(field.name, place) for place in chosen.tolist()]
        return found

    def _is_readable(self, name: str, place: int) -> bool:
        try:
            self.array(name, np.array([place]))
        except ValueError:
            return False
        return True


def _nulled(found: pa.Array, mask: Mask) -> pa.Array:
    """Put nulls in place of values that are empty."""
    _, offsets, data = found.buffers()
    valid = pa.py_buffer(np.packbits(~mask, bitorder="little"))
    return pa.Array.from_buffers(found.type, len(found), [valid, offsets, data])


def read_records(data: npt.NDArray[np.uint8], starts: Places, stops: Places, plan: Sequence[Field]) -> Records:
    """Read records that follow each other in a buffer, with BEYOND zeros behind the last."""
    reader = _Reader(data, starts.copy(), stops)
    held = {field.name: reader.field(field) for field in plan}
    return Records(tuple(plan), reader.sound & (reader.at == stops), data, held)


class _Reader:
    """Goes through all records side by side: `at` is where each of them is."""

    def __init__(self, data: npt.NDArray[np.uint8], at: Places, stops: Places) -> None:
        self.data, self.at, self.stops = data, at, stops
        self.sound: Mask = np.ones(len(at), bool)
        self._all = np.arange(len(at))

    def field(self, field: Field) -> tuple[Places, Places, Mask | None]:
        """Return values (or where texts begin), where texts end, and which are null; step behind the field."""
        nulls = None
        if field.null is not None:
            branch = self.data[self.at]
            self.sound &= (branch == 0) | (branch == 2)
            nulls = branch == 2 * field.null
            self._step(np.ones(len(self.at), np.int64))
        rows = self._all if nulls is None or not nulls.any() else np.flatnonzero(~nulls)
        values = np.zeros(len(self.at), np.int64)
        if field.type in _FLOATS:
            kind, size = _FLOATS[field.type]
            words = np.ndarray((len(self.data) - size + 1,), kind, self.data, strides=(1,))
            values[rows] = words[self.at[rows]].astype(np.float64).view(np.int64)
            self._step(np.where(nulls, 0, size) if nulls is not None else np.full(len(values), size))
            return values, values, nulls
        values[rows] = self._long(rows)
        if field.type in _NUMBERS:
            if field.type == "int":
                self.sound &= (values >= -(1 << 31)) & (values < 1 << 31)
            return values, values, nulls
        self.sound &= values >= 0
        starts = self.at.copy()
        self._step(np.maximum(values, 0))
        return starts, self.at.copy(), nulls

    def _step(self, sizes: Places) -> None:
        left = self.stops - self.at
        self.sound &= sizes <= left
        self.at += np.minimum(sizes, left)

    def _long(self, rows: Places) -> Places:
        """Read a varint of some records."""
        at = self.at[rows]
        first = self.data[at]
        found = (first & 0x7F).astype(np.uint64)
        sizes = np.ones(len(rows), np.int64)
        longer = np.flatnonzero(first >= 0x80)
        for byte in range(1, _LONGEST):
            if not len(longer):
                break
            more = self.data[at[longer] + byte]
            found[longer] |= (more & 0x7F).astype(np.uint64) << np.uint64(7 * byte)
            sizes[longer] += 1
            if byte == _LONGEST - 1:
                self.sound[rows[longer[more > 1]]] = False
            longer = longer[more >= 0x80]
        left = self.stops[rows] - at
        self.sound[rows] &= sizes <= left
        self.at[rows] = at + np.minimum(sizes, left)
        numbers: Places = (found >> np.uint64(1)).view(np.int64) ^ -(found & np.uint64(1)).view(np.int64)
        return numbers


def _decimals(data: npt.NDArray[np.uint8], starts: Places, ends: Places, scale: int, mask: Mask | None) -> pa.Array:
    """Return big-endian numbers of two's complement as decimals; raises ValueError for one beyond 38 digits."""
    sizes = ends - starts
    if (sizes > _DECIMAL_BYTES).any():
        raise ValueError("a decimal of more than 16 bytes")
    places = ends[:, None] - 1 - np.arange(_DECIMAL_BYTES)  # the last byte first: little-endian
    sign = np.where((sizes > 0) & (data[np.minimum(starts, len(data) - 1)] >= 0x80), 0xFF, 0).astype(np.uint8)
    digits = np.where(places >= starts[:, None], data[np.maximum(places, 0)], sign[:, None])
    valid = None if mask is None or not mask.any() else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    body = pa.py_buffer(np.ascontiguousarray(digits))
    found = pa.Array.from_buffers(pa.decimal128(_DIGITS, scale), len(starts), [valid, body])
    try:
        found.validate(full=True)
    except pa.ArrowInvalid as error:
        raise ValueError(str(error)) from None
    return found
