"""A column of rows that are alike -> cells: read as a whole where its values are plain, else value by value.

Whatever is read as a whole becomes the texts that the readers of `readings` make of each value, or numbers equal to
them; a column in which any value is not of that kind is read by these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.debezium_json.columns import field_of, settled_field
from cdc_assets.formats.debezium_json.envelope import Field
from cdc_assets.formats.debezium_json.readings import (
    COUNTS,
    FIRST_MICROS,
    LAST_MICROS,
    Read,
    is_binary,
    is_date,
    read_marked,
    read_text,
    reader_of,
)
from cdc_assets.formats.debezium_json.settings import ConnectorSettings
from cdc_assets.formats.debezium_json.uniform import Changes
from cdc_assets.formats.images import Cells
from cdc_assets.formats.json_records import SameShape, bits, cast_fitting
from cdc_assets.model.schema import Column
from cdc_assets.types.connect_types import DECIMAL
from cdc_assets.types.families import INTEGER

__all__ = ["DEFAULTED", "OUT_OF_RANGE", "cells_of", "faults_of"]

OUT_OF_RANGE = "infinity, a decimal that is not a number, or a year outside 0000 to 9999: NULL"
DEFAULTED = "the default of its column, as which NULL is sent too"

Marks = npt.NDArray[np.bool_]


class _Values(NamedTuple):
    """Values of one image of some rows, and which of them are wrong, out of range, and the column's default."""

    array: pa.Array
    meaning: str = ""
    wrong: Marks | None = None
    ranged: Marks | None = None
    defaulted: Marks | None = None


def cells_of(groups: Sequence[Changes], column: Column, settings: ConnectorSettings) -> Cells:
    """Return the cells of a column of all images of some groups, in their order."""
    sides = [side for group in groups for side in _sides(group, column, settings)]
    found = [side.whole() or side.each() for side in sides]
    kinds = {one.array.type for one in found} - {pa.null()}
    if len(kinds) > 1:
        found = [one if _is_text(one.array) else side.each() for one, side in zip(found, sides, strict=True)]
        kinds = {one.array.type for one in found} - {pa.null()}
    texts = pa.binary() if is_binary(column) or pa.binary() in kinds else pa.string()
    kind = texts if len(kinds) != 1 else kinds.pop()
    array = pa.concat_arrays([one.array if one.array.type == kind else one.array.cast(kind) for one in found])
    wrong, ranged, defaulted = (_joined(found, name) for name in ("wrong", "ranged", "defaulted"))
    meanings = np.repeat([one.meaning for one in found], [len(one.array) for one in found])
    faults = faults_of(column, np.where(wrong, meanings, "")) if wrong is not None else ()
    notes = {rule: mask for rule, mask in ((OUT_OF_RANGE, ranged), (DEFAULTED, defaulted)) if mask is not None}
    zones = pa.array(["UTC"] * len(array)) if column.type == "TIMESTAMP" else None
    return Cells(array, None, "raw", zones, faults, notes, True)


def faults_of(column: Column, meanings: npt.NDArray[np.str_]) -> tuple[tuple[Marks, str], ...]:
    """Return what is wrong with values, by what those that are wrong should mean; "" for those that are right."""
    what = 'column "{}" has a value that is not of the type {}'
    return tuple((meanings == one, what.format(column.name, one)) for one in np.unique(meanings).tolist() if one)


def _is_text(array: pa.Array) -> bool:
    return array.type in (pa.string(), pa.binary(), pa.null())


def _joined(found: Sequence[_Values], name: str) -> Marks | None:
    masks = [getattr(one, name) for one in found]
    if all(mask is None for mask in masks):
        return None
    none = [np.zeros(len(one.array), bool) if mask is None else mask for one, mask in zip(found, masks, strict=True)]
    joined: Marks = np.concatenate(none)
    return joined if joined.any() else None


def _sides(group: Changes, column: Column, settings: ConnectorSettings) -> Iterator[_Side]:
    own = group.block.get(column.name) or field_of(column, settings)
    field = settled_field(own, column, settings)
    read = reader_of(field, column, settings)
    for side in group.sides:
        yield _Side(group.alike, side.get(column.name), column, field, read)


@dataclass(frozen=True, slots=True)
class _Side:
    """A column of one image of some rows; `number` is None where the image does not have it."""

    alike: SameShape
    number: int | None
    column: Column
    field: Field
    read: Read

    def whole(self) -> _Values | None:
        """Read the values as a whole, None where any of them is not plain."""
        if self.number is None:
            return _Values(pa.nulls(len(self.alike.messages)))
        null = self.alike.nulls(self.number)
        if null.all():
            return _Values(pa.nulls(len(null)))
        if self.field.optional and self.field.default is not None:
            return None  # each is compared with it
        reading = _reading(self.field, self.column, self.read)
        if reading is None:
            return None
        array, sound = reading(self.alike, self.number)
        return _Values(array) if (sound | null).all() else None

    def each(self) -> _Values:
        """Read the values one by one."""
        if self.number is None:
            return _Values(pa.nulls(len(self.alike.messages)))
        texts: list[str | bytes | None] = []
        count, default = len(self.alike.messages), self.field.default if self.field.optional else None
        wrong, ranged, defaulted = ([False] * count for _ in range(3))
        for place, value in enumerate(self.alike.values_of(self.number)):
            texts.append(None if value is None else read_marked(self.read, value, place, wrong, ranged))
            defaulted[place] = value is not None and default is not None and default == value
        is_bytes = is_binary(self.column) or any(isinstance(text, bytes) for text in texts)
        wrongs, ranges, defaults = (np.array(one, bool) if any(one) else None for one in (wrong, ranged, defaulted))
        array = pa.array(texts, pa.binary() if is_bytes else pa.string())
        return _Values(array, self.field.meaning, wrongs, ranges, defaults)


# --- values as a whole ------------------------------------------------------------------------------------------------

_Reading = Callable[[SameShape, int], tuple[pa.Array, Marks]]
"""What reads values as a whole, and says which of them are right; null ones do not matter."""

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_DOUBLES = ("DOUBLE", "double", "float64")
_INSTANTS = ("TIMESTAMP", "DATETIME", "io.debezium.time.ZonedTimestamp", "io.debezium.time.IsoTimestamp")
_INSTANT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z$"
_MOST_SCALE = 18


def _reading(field: Field, column: Column, read: Read) -> _Reading | None:
    meaning = field.meaning
    if read is read_text:
        return lambda alike, number: (alike.texts(number), alike.quoted(number))
    if meaning in _BITS and column.type in (*INTEGER, *_BITS):
        least = 0 if column.unsigned else -(1 << _BITS[meaning] - 1)
        return lambda alike, number: _integers(alike, number, least, (1 << _BITS[meaning] - 1) - 1)
    if meaning == "double" and column.type in _DOUBLES:
        return _doubles
    if meaning == DECIMAL and column.type in ("DECIMAL", DECIMAL):
        scale = field.parameters.get("scale", "")
        if scale.isdecimal() and int(scale) == (column.scale or 0) and int(scale) <= _MOST_SCALE:
            return lambda alike, number: _decimals(alike, number, int(scale))
    if meaning in COUNTS:
        return lambda alike, number: _moments(alike, number, meaning, column)
    if meaning in ("io.debezium.time.ZonedTimestamp", "io.debezium.time.IsoTimestamp") and column.type in _INSTANTS:
        return _instants
    return None


def _numbers(alike: SameShape, number: int) -> tuple[pa.StringArray, pa.Int64Array, Marks]:
    """Return integers as texts and numbers, and which of them are such."""
    texts, sound = alike.texts(number), ~alike.quoted(number)
    found, fits = cast_fitting(texts, pa.int64(), r"^-?[0-9]{1,18}$")
    return texts, found, sound & fits


def _integers(alike: SameShape, number: int, least: int, most: int) -> tuple[pa.Array, Marks]:
    texts, found, sound = _numbers(alike, number)
    low, high = pc.min_max(found).as_py().values()
    if low is not None and (low < least or high > most or (low <= 0 and bits(pc.equal(texts, "-0")).any())):
        sound &= False
    return texts, sound


def _doubles(alike: SameShape, number: int) -> tuple[pa.Array, Marks]:
    texts, sound = alike.texts(number), ~alike.quoted(number)
    fits = pc.and_(pc.match_substring_regex(texts, r"^-?[0-9]"), pc.not_equal(texts, "-0"))
    found = pc.if_else(pc.and_(fits, pa.array(sound)), texts, pa.scalar(None, pa.string())).cast(pa.float64())
    return found, sound & bits(fits) & bits(pc.is_finite(found))


def _moments(alike: SameShape, number: int, meaning: str, column: Column) -> tuple[pa.Array, Marks]:
    """Counts since 1970 as texts of moments, or of dates."""
    _, found, sound = _numbers(alike, number)
    sound &= bits(pc.is_valid(found))
    counts, (times, over) = found.fill_null(0).to_numpy(), COUNTS[meaning]
    counts = counts // over if over > 1 else counts
    sound &= (counts >= FIRST_MICROS // times) & (counts <= LAST_MICROS // times)
    moments = pa.array(np.where(sound, counts, 0) * times, pa.int64(), mask=~sound).cast(pa.timestamp("us"))
    return (moments.cast(pa.date32(), safe=False) if is_date(column) else moments).cast(pa.string()), sound


def _instants(alike: SameShape, number: int) -> tuple[pa.Array, Marks]:
    texts = alike.texts(number)
    sound = alike.quoted(number) & bits(pc.match_substring_regex(texts, _INSTANT))
    plain = pc.utf8_replace_slice(pc.utf8_slice_codeunits(texts, 0, -1), 10, 11, " ")
    dotted = pc.if_else(pc.equal(pc.binary_length(plain), 19), pc.binary_join_element_wise(plain, "", "."), plain)
    return pc.ascii_rpad(dotted, 26, "0"), sound


_DIGITS = np.full(256, -1, np.int64)
_DIGITS[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = range(64)
_PAD = ord("=")
_LENGTHS = (4, 8, 12)


def _decimals(alike: SameShape, number: int, scale: int) -> tuple[pa.Array, Marks]:
    """Numbers of up to eight bytes, in base64."""
    starts, ends, quoted = alike.values[number]
    data = np.frombuffer(alike.data, np.uint8)
    found, sound = np.zeros(len(starts), np.int64), np.zeros(len(starts), bool)
    for length in _LENGTHS:
        mine = np.flatnonzero(quoted & (ends - starts == length))
        if len(mine):
            found[mine], sound[mine] = _from_base64(data[starts[mine, None] + np.arange(length)])
    parts = np.stack([found, found >> 63], axis=1)
    array = pa.Array.from_buffers(pa.decimal128(38, scale), len(found), [None, pa.py_buffer(parts)])
    return pc.if_else(pa.array(sound), array, pa.scalar(None, array.type)), sound


def _from_base64(texts: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], Marks]:
    """Read numbers of equal length, the most significant byte first; up to eight bytes in two's complement."""
    pads = (texts[:, -1] == _PAD).astype(np.int64) * (1 + (texts[:, -2] == _PAD))
    digits = _DIGITS[texts]
    for place in (1, 2):
        digits[pads >= place, -place] = 0
    sound: Marks = (digits >= 0).all(axis=1) & (texts.shape[1] // 4 * 3 - pads <= 8)
    last = ((digits[:, -4] << 6 | digits[:, -3]) << 6 | digits[:, -2]) << 6 | digits[:, -1]
    found = np.zeros(len(texts), np.int64)
    for place in range(texts.shape[1] - 4):
        found = found << 6 | digits[:, place]
    size = 3 - pads
    found = found << 8 * size | last >> 8 * pads
    unused = 64 - 8 * (texts.shape[1] // 4 * 3 - pads)
    unused = np.where(sound, unused, 0)
    return found << unused >> unused, sound
