"""The values of YDB's records, by their types: columns of them as texts, or numbers, that the type table reads."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.images import Cells
from cdc_assets.formats.json_records import print_json
from cdc_assets.formats.records import CellKind, RecordColumn, bits
from cdc_assets.model.schema import Column
from cdc_assets.types.conversions.moments import Moment

__all__ = ["NOT_FINITE", "NUMBERS", "OUT_OF_RANGE", "cells_of"]

NOT_FINITE = "infinity or not a number in a Decimal: NULL"
OUT_OF_RANGE = "a year outside 0000 to 9999: NULL"

Marks = npt.NDArray[np.bool_]

_GREATEST_FLOAT = 3.4028235677973366e38
_DAY, _SECOND = 86_400_000_000, 1_000_000
_MOST_DIGITS = 100
"""More than any Decimal has on either side of its point."""
_FIRST, _LAST = -719_528 * _DAY, 2_932_897 * _DAY
_DATE, _DATE_AS_MOMENT = 10, "T00:00:00.000000Z"
_INT64 = -(1 << 63), (1 << 63) - 1
_NOT_FINITE_TEXTS = pa.array(["nan", "inf", "-inf"])


class _Values(NamedTuple):
    """A column's values; `sound` are those of its type, `beyond` those of them that the lake does not keep."""

    array: pa.Array
    sound: Marks
    beyond: Marks | None = None


def cells_of(cells: RecordColumn, column: Column, patch: bool) -> Cells:
    """Return the cells of a column, of which a patch leaves out what did not change."""
    found = _READERS.get(column.type, _texts)(cells, column)
    wrong = cells.given & ~found.sound
    faults = ((wrong, f'column "{column.name}" has a value that is not of the type {column.type}'),)
    notes = {}
    if found.beyond is not None and found.beyond.any():
        notes[NOT_FINITE if column.type == "Decimal" else OUT_OF_RANGE] = found.beyond
    same = cells.are(CellKind.ABSENT) if patch else None
    return Cells(found.array, None, "raw", None, faults if wrong.any() else (), notes, named=True, unchanged=same)


class _OutOfRange(Exception):
    """A value of YDB's that the lake does not keep."""


def _each(read: Callable[[str], str | bytes], kind: CellKind) -> Callable[[RecordColumn, Column], _Values]:
    """Return what reads cells of a kind one by one; `read` raises ValueError, ArithmeticError or _OutOfRange."""

    def read_all(cells: RecordColumn, column: Column) -> _Values:
        sound, beyond = cells.are(kind), np.zeros(len(cells), bool)
        found: list[str | bytes | None] = []
        for place, text in enumerate(cells.only(sound).to_pylist()):
            found.append(None)
            try:
                found[place] = None if text is None else read(text)
            except _OutOfRange:
                beyond[place] = True
            except (ValueError, ArithmeticError):
                sound[place] = False
        return _Values(pa.array(found, pa.binary() if column.type == "String" else pa.string()), sound, beyond)

    return read_all


def _texts(cells: RecordColumn, column: Column) -> _Values:
    sound = cells.are(CellKind.TEXT)
    return _Values(cells.only(sound | ~cells.given), sound)


def _booleans(cells: RecordColumn, column: Column) -> _Values:
    sound = cells.are(CellKind.BOOL)
    return _Values(cells.only(sound | ~cells.given), sound)


# --- numbers ----------------------------------------------------------------------------------------------------------


def _whole(text: str) -> int:
    if not text.removeprefix("-").isdecimal() or not text.isascii():
        raise ValueError(text)
    return int(text)


def _integers(low: int, high: int) -> Callable[[RecordColumn, Column], _Values]:
    kind = pa.uint64() if high >= 1 << 63 else pa.int64()

    def read(text: str) -> str:
        number = _whole(text)
        if not low <= number <= high:
            raise ValueError(text)
        return str(number)

    def read_all(cells: RecordColumn, column: Column) -> _Values:
        sound = cells.are(CellKind.NUMBER)
        try:
            found = cells.only(sound | ~cells.given).cast(kind)
        except pa.ArrowInvalid:
            return _each(read, CellKind.NUMBER)(cells, column)
        least, most = pc.min_max(found).as_py().values()
        if least is not None and (least < low or most > high):
            sound &= bits(pc.and_(pc.greater_equal(found, low), pc.less_equal(found, high)))
        return _Values(found, sound)

    return read_all


def _reals(most: float) -> Callable[[RecordColumn, Column], _Values]:
    """Return what reads numbers up to one, and the texts that stand for what is none."""

    def read(text: str) -> str:
        if not abs(number := float(text)) <= most or not math.isfinite(number):
            raise ValueError(text)
        return text

    def read_all(cells: RecordColumn, column: Column) -> _Values:
        named = cells.are(CellKind.TEXT) & bits(pc.is_in(cells.texts, _NOT_FINITE_TEXTS))
        numbers = cells.only(cells.are(CellKind.NUMBER) | ~cells.given)
        try:
            doubles = numbers.cast(pa.float64())
        except pa.ArrowInvalid:
            array, sound, _ = _each(read, CellKind.NUMBER)(cells, column)
        else:
            sound = cells.are(CellKind.NUMBER) & bits(
                pc.and_(pc.is_finite(doubles), pc.less_equal(pc.abs(doubles), most))
            )
            array = doubles if most == math.inf and not named.any() else numbers
        if named.any():
            array = pc.if_else(pa.array(named), cells.texts, array)
        return _Values(array, sound | named)

    return read_all


def _decimal(text: str) -> str:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(text) from None
    if not number.is_finite():
        raise _OutOfRange
    if abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError(text)
    return format(number, "f")


def _decimals(cells: RecordColumn, column: Column) -> _Values:
    sound = cells.are(CellKind.TEXT)
    texts = cells.only(sound | ~cells.given)
    if bits(pc.match_substring_regex(texts, r"^-?[0-9]+(?:\.[0-9]+)?$"))[sound].all():
        return _Values(texts, sound)
    return _each(_decimal, CellKind.TEXT)(cells, column)


# --- moments ----------------------------------------------------------------------------------------------------------


def _moment(micros: int) -> str:
    if not _FIRST <= micros < _LAST:
        raise _OutOfRange
    return Moment(micros).text(6)


def _dates(cells: RecordColumn, column: Column) -> _Values:
    """A date is printed as a moment, as the documentation has it without the time."""
    texts = cells.texts
    is_moment = pc.and_(pc.ends_with(texts, _DATE_AS_MOMENT), pc.equal(pc.binary_length(texts), 27))
    dated = pc.and_(pc.or_(is_moment, pc.equal(pc.binary_length(texts), _DATE)), pc.string_is_ascii(texts))
    sound = cells.are(CellKind.TEXT) & bits(dated)
    short = pc.binary_slice(cells.only(sound | ~cells.given).cast(pa.binary()), 0, _DATE)
    return _Values(short.cast(pa.string()), sound)


def _instants(cells: RecordColumn, column: Column) -> _Values:
    """Moments without the Z; only where one of them is none does it matter that a blank stands for the T."""
    sound = cells.are(CellKind.TEXT) & cells.have_byte(_DATE, b"T") & cells.have_byte(-1, b"Z")
    sound &= bits(pc.and_(pc.greater_equal(pc.binary_length(cells.texts), 20), pc.string_is_ascii(cells.texts)))
    texts = pc.binary_slice(cells.only(sound | ~cells.given).cast(pa.binary()), 0, -1).cast(pa.string())
    try:
        texts.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        texts = pc.utf8_replace_slice(texts, _DATE, _DATE + 1, " ")
    return _Values(texts, sound)


# --- JSON -------------------------------------------------------------------------------------------------------------


def _json(cells: RecordColumn, column: Column) -> _Values:
    """Print values of JSON: without blanks, numbers by their own digits."""
    quoted, array = cells.are(CellKind.TEXT), cells.texts
    if quoted.any():
        printed = [print_json(text) for text in array.filter(pa.array(quoted)).to_pylist()]
        array = pc.replace_with_mask(array, pa.array(quoted), pa.array(printed, pa.string()))
    return _Values(array, np.ones(len(cells), bool))


_READERS: Mapping[str, Callable[[RecordColumn, Column], _Values]] = {
    **{f"Int{bits}": _integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"Uint{bits}": _integers(0, (1 << bits) - 1) for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("Interval", "Interval64"), _integers(*_INT64)),
    "Bool": _booleans,
    "Float": _reals(_GREATEST_FLOAT),
    "Double": _reals(math.inf),
    "Decimal": _decimals,
    "String": _each(lambda text: base64.b64decode(text, validate=True), CellKind.TEXT),
    "Date": _dates,
    "Date32": _each(lambda text: _moment(_whole(text) * _DAY)[:10], CellKind.NUMBER),
    **dict.fromkeys(("Datetime", "Timestamp"), _instants),
    "Datetime64": _each(lambda text: _moment(_whole(text) * _SECOND), CellKind.NUMBER),
    "Timestamp64": _each(lambda text: _moment(_whole(text)), CellKind.NUMBER),
    **dict.fromkeys(("Json", "JsonDocument", "Yson"), _json),
}
"""Type -> what reads its values; every other one is a text."""
NUMBERS = frozenset(
    (*(f"{sign}{bits}" for sign in ("Int", "Uint") for bits in (8, 16, 32, 64)), "Interval", "Interval64", "Float",
     "Double", "Date32", "Datetime64", "Timestamp64")
)  # fmt: skip
"""Types whose values are numbers of JSON."""
