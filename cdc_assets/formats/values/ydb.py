"""The values of YDB's records, by their types: columns of them as texts, or numbers, that the type table reads."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.changes import Cells
from cdc_assets.formats.json_records import print_json
from cdc_assets.formats.records import CellKind, Marks, RecordColumn, bits
from cdc_assets.formats.values import (
    GREATEST_FLOAT,
    ColumnValues,
    OutOfRange,
    ReadCell,
    as_it_is,
    matching,
    moment_text,
    read_each,
    read_rest,
    whole,
)
from cdc_assets.model.schema import Column
from cdc_assets.types.conversions.moments import DAY_MICROS

__all__ = ["NOT_FINITE", "NULL_OR_JSON", "NUMBERS", "OUT_OF_RANGE", "TEN_DIGITS", "cells_of"]

NOT_FINITE = "infinity or not a number in a Decimal: NULL"
NULL_OR_JSON = "NULL, as which JSON's null is sent too"
TEN_DIGITS = "a Double of ten digits, to which older versions of YDB round"
OUT_OF_RANGE = "a year outside 0000 to 9999: NULL"

_Reader = Callable[[RecordColumn, Column], ColumnValues]

_SECOND = 1_000_000
_MOST_DIGITS = 100
"""More than any Decimal has on either side of its point."""
_DATE, _DATE_AS_MOMENT = 10, "T00:00:00.000000Z"
_INT64 = -(1 << 63), (1 << 63) - 1
_NOT_FINITE_TEXTS = pa.array(["nan", "inf", "-inf"])


def cells_of(cells: RecordColumn, column: Column, patches: Marks) -> Cells:
    """Return the cells of a column, of which patches leave out what did not change."""
    notes = {NULL_OR_JSON: cells.are(CellKind.NULL)} if column.type in _DOCUMENTS else {}
    if column.type == "Double":
        # Marked are numbers with ten digits from the first that is not zero on; those are no longer than 17.
        lengths = pc.binary_length(cells.texts)
        mask = cells.are(CellKind.NUMBER) & bits(pc.and_(pc.greater_equal(lengths, 10), pc.less_equal(lengths, 17)))
        if mask.any():
            digits = pc.replace_substring_regex(cells.texts.filter(pa.array(mask)), r"^-?[0.]*|\.|[eE].*$", "")
            mask[mask] = bits(pc.equal(pc.binary_length(digits), 10))
        notes[TEN_DIGITS] = mask
    values = _READERS.get(column.type, _each(as_it_is, CellKind.TEXT))(cells, column)
    wrong = cells.given & ~values.sound
    faults = ((wrong, f'column "{column.name}" has a value that is not of the type {column.type}'),)
    if values.beyond is not None:
        notes[NOT_FINITE if column.type == "Decimal" else OUT_OF_RANGE] = values.beyond
    is_unchanged = patches & cells.are(CellKind.ABSENT)
    return Cells(
        values.array, None, "raw", None, faults if wrong.any() else (), notes, named=True, unchanged=is_unchanged
    )


def _each(read: ReadCell, kind: CellKind) -> _Reader:
    """Return the reader of cells of a kind, one by one."""
    return lambda cells, column: read_each(cells, {kind: read}, pa.binary() if column.type == "String" else None)


# --- numbers ----------------------------------------------------------------------------------------------------------


def _integers(low: int, high: int) -> _Reader:
    kind = pa.uint64() if high >= 1 << 63 else pa.int64()

    def read(text: str) -> str:
        number = whole(text)
        if not low <= number <= high:
            raise ValueError(text)
        return str(number)

    def read_all(cells: RecordColumn, column: Column) -> ColumnValues:
        sound = cells.are(CellKind.NUMBER)
        try:
            numbers = cells.only(sound | ~cells.given).cast(kind)
        except pa.ArrowInvalid:
            return _each(read, CellKind.NUMBER)(cells, column)
        least, most = pc.min_max(numbers).as_py().values()
        if least is not None and (least < low or most > high):
            sound &= bits(pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high)))
        return ColumnValues(numbers, sound)

    return read_all


def _reals(most: float) -> _Reader:
    """Return the reader of numbers up to one, and of the texts that stand for what is none."""

    def read(text: str) -> str:
        if not abs(number := float(text)) <= most or not math.isfinite(number):
            raise ValueError(text)
        return text

    def read_all(cells: RecordColumn, column: Column) -> ColumnValues:
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
        return ColumnValues(array, sound | named)

    return read_all


def _decimal(text: str) -> str:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(text) from None
    if not number.is_finite():
        raise OutOfRange
    if abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError(text)
    return format(number, "f")


def _decimals(cells: RecordColumn, column: Column) -> ColumnValues:
    plain = matching(cells, CellKind.TEXT, r"^-?[0-9]+(?:\.[0-9]+)?$")
    return read_rest(cells, plain, cells.only(plain), {CellKind.TEXT: _decimal})


# --- moments ----------------------------------------------------------------------------------------------------------


def _dates(cells: RecordColumn, column: Column) -> ColumnValues:
    """A date is printed as a moment, as the documentation has it without the time."""
    texts = cells.texts
    is_moment = pc.and_(pc.ends_with(texts, _DATE_AS_MOMENT), pc.equal(pc.binary_length(texts), 27))
    dated = pc.and_(pc.or_(is_moment, pc.equal(pc.binary_length(texts), _DATE)), pc.string_is_ascii(texts))
    sound = cells.are(CellKind.TEXT) & bits(dated)
    short = pc.binary_slice(cells.only(sound | ~cells.given).cast(pa.binary()), 0, _DATE)
    return ColumnValues(short.cast(pa.string()), sound)


def _instants(cells: RecordColumn, column: Column) -> ColumnValues:
    """Moments without the Z; only where one of them is none does it matter that a blank stands for the T."""
    sound = cells.are(CellKind.TEXT) & cells.have_byte(_DATE, b"T") & cells.have_byte(-1, b"Z")
    sound &= bits(pc.and_(pc.greater_equal(pc.binary_length(cells.texts), 20), pc.string_is_ascii(cells.texts)))
    texts = pc.binary_slice(cells.only(sound | ~cells.given).cast(pa.binary()), 0, -1).cast(pa.string())
    try:
        texts.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:
        texts = pc.utf8_replace_slice(texts, _DATE, _DATE + 1, " ")
    return ColumnValues(texts, sound)


# --- types ------------------------------------------------------------------------------------------------------------


def _json(cells: RecordColumn, column: Column) -> ColumnValues:
    """Print values of JSON: without blanks, numbers by their own digits."""
    other_kinds = dict.fromkeys((CellKind.NUMBER, CellKind.BOOL, CellKind.JSON), as_it_is)
    return read_each(cells, {**other_kinds, CellKind.TEXT: print_json})


_DOCUMENTS = ("Json", "JsonDocument", "Yson")
"""Types of values that JSON nests."""
_READERS: Mapping[str, _Reader] = {
    **{f"Int{bits}": _integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"Uint{bits}": _integers(0, (1 << bits) - 1) for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("Interval", "Interval64"), _integers(*_INT64)),
    "Bool": _each(as_it_is, CellKind.BOOL),
    "Float": _reals(GREATEST_FLOAT),
    "Double": _reals(math.inf),
    "Decimal": _decimals,
    "String": _each(lambda text: base64.b64decode(text, validate=True), CellKind.TEXT),
    "Date": _dates,
    "Date32": _each(lambda text: moment_text(whole(text) * DAY_MICROS)[:10], CellKind.NUMBER),
    **dict.fromkeys(("Datetime", "Timestamp"), _instants),
    "Datetime64": _each(lambda text: moment_text(whole(text) * _SECOND), CellKind.NUMBER),
    "Timestamp64": _each(lambda text: moment_text(whole(text)), CellKind.NUMBER),
    **dict.fromkeys(_DOCUMENTS, _json),
}
"""Type -> what reads its values; every other one is a text."""
NUMBERS = frozenset(
    (*(f"{sign}{bits}" for sign in ("Int", "Uint") for bits in (8, 16, 32, 64)), "Interval", "Interval64", "Float",
     "Double", "Date32", "Datetime64", "Timestamp64")
)  # fmt: skip
"""Types whose values are numbers of JSON."""
