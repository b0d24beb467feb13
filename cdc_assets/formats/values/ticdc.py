"""The values of a column as TiCDC puts them into Debezium's types.

Dates are days, times of day microseconds, a DATETIME milliseconds up to three fraction digits and microseconds
beyond, as if in UTC; a TIMESTAMP is a text in UTC. Zero and partial dates are NULL, in columns that are NOT NULL 0, and
of TIMESTAMP 1970-01-01 in any. BIT is base64, the lowest byte first. BIGINT UNSIGNED wraps. NULL in a column with a
default is that default, 0 for a DATETIME's CURRENT_TIMESTAMP. A DECIMAL is a double: what a double does not hold is
rounded, and NULL where it does not fit the type any more.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import MalformedData
from cdc_assets.formats.changes import Cells
from cdc_assets.formats.records import CellKind, Marks, RecordColumn, bits
from cdc_assets.formats.values import (
    DEFAULTED,
    EPOCH,
    MAYBE_ZERO_DATE,
    ROUNDED,
    ColumnValues,
    OutOfRange,
    are_rounded,
    as_it_is,
    matching,
    read_each,
    read_rest,
)
from cdc_assets.model.schema import Column
from cdc_assets.types.conversions.moments import DAY_MICROS, Moment, time_text
from cdc_assets.types.families import BINARY
from cdc_assets.types.mysql_types import default_text, defaults_to_now
from cdc_assets.types.mysql_values import ZERO_DATE

__all__ = ["TOO_LARGE", "cells_of"]

TOO_LARGE = "a DECIMAL that was sent as a double, which is too large for the type: NULL"

_MOST_EXPONENT = 400
"""More than that of any double."""
_WIDE = Context(prec=400)
"""Digits enough for the largest double."""
_PLAIN = r"^(?:0|-?[1-9][0-9]{0,17})$"
_UNSIGNED = (1 << 64) - 1
_MS = 1000
_INTEGERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "YEAR")


def cells_of(cells: RecordColumn, column: Column, in_key: bool) -> Cells:
    """Return the cells of a column; what is not a value of its type in this protocol is a fault."""
    notes = {}
    if column.type == "TIMESTAMP":
        notes[ZERO_DATE] = cells.equal(EPOCH)
        cells = cells.without(notes[ZERO_DATE])
    elif column.type in ("DATE", "DATETIME") and not column.nullable and not in_key:
        notes[MAYBE_ZERO_DATE] = cells.are(CellKind.NUMBER) & bits(pc.equal(cells.texts, "0"))
    values = _READERS.get(column.type, _texts)(cells, column)
    wrong = cells.given & ~values.sound
    faults = ((wrong, f'column "{column.name}" has a value that is not of the type {column.type}'),)
    if values.beyond is not None:
        notes[TOO_LARGE] = values.beyond
    if column.type == "DECIMAL":
        rounded = are_rounded(values.array)
        notes |= {ROUNDED: rounded} if rounded.any() else {}
    if column.nullable and column.default is not None:
        notes[DEFAULTED] = _are_defaults(values.array, column)
    absent = cells.are(CellKind.ABSENT)
    zones = pa.repeat("UTC", len(cells)) if column.type == "TIMESTAMP" else None
    return Cells(
        values.array,
        absent if absent.any() else None,
        "base64" if column.type in BINARY else "raw",
        zones,
        faults if wrong.any() else (),
        notes,
        named=True,
    )


def _are_defaults(values: pa.Array, column: Column) -> Marks:
    """Mark the values as which NULL is sent, too."""
    try:
        text = Moment(0).text(column.scale or 0) if defaults_to_now(column) else default_text(column)
        default = base64.b64encode(text).decode() if isinstance(text, bytes) else text
        return bits(pc.equal(values, pa.scalar(default).cast(values.type)))
    except (MalformedData, pa.ArrowInvalid):  # a default that is not known
        return np.zeros(len(values), bool)


def _numbers(read: Callable[[Decimal, Column], str]) -> Callable[[RecordColumn, Column], ColumnValues]:
    """Return the reader of numbers, one by one."""

    def read_all(cells: RecordColumn, column: Column) -> ColumnValues:
        return read_each(cells, {CellKind.NUMBER: lambda text: read(_number(text), column)})

    return read_all


def _number(text: str) -> Decimal:
    number = Decimal(text)
    if abs(number.adjusted()) > _MOST_EXPONENT:
        raise ValueError(text)
    return number


def _integer(number: Decimal) -> int:
    if number != int(number):
        raise ValueError(number)
    return int(number)


def _integers(cells: RecordColumn, column: Column) -> ColumnValues:
    wraps = column.unsigned and column.type == "BIGINT"
    plain = matching(cells, CellKind.NUMBER, _PLAIN)
    if wraps:
        plain &= ~bits(pc.starts_with(cells.texts, "-"))

    def read(text: str) -> str:
        number = _integer(_number(text))
        return str(number & _UNSIGNED if wraps else number)

    return read_rest(cells, plain, cells.only(plain), {CellKind.NUMBER: read})


def _reals(cells: RecordColumn, column: Column) -> ColumnValues:
    texts, sound, _ = read_each(cells, {CellKind.NUMBER: lambda text: str(_number(text))})
    return ColumnValues(
        pa.array([None if text is None else float(text) for text in texts.to_pylist()], pa.float64()), sound
    )


def _decimal(number: Decimal, column: Column) -> str:
    try:
        decimal = number.quantize(Decimal(1).scaleb(-(column.scale or 0)), ROUND_HALF_UP, _WIDE)
    except InvalidOperation:
        decimal = number
    if abs(decimal) >= Decimal(10) ** ((column.precision or 10) - (column.scale or 0)):
        raise OutOfRange
    return format(decimal, "f")


def _bits_of(cells: RecordColumn, column: Column) -> ColumnValues:
    return read_each(
        cells,
        {
            CellKind.BOOL: lambda text: str(int(text == "true")),
            CellKind.TEXT: lambda text: str(int.from_bytes(base64.b64decode(text, validate=True), "little")),
        },
    )


def _datetime(number: Decimal, column: Column) -> str:
    digits = column.scale or 0
    return Moment(_integer(number) * (_MS if digits <= 3 else 1)).text(digits)


def _timestamps(cells: RecordColumn, column: Column) -> ColumnValues:
    def read(text: str) -> str:
        if len(text) < 20 or text[10] != "T" or text[-1] != "Z":
            raise ValueError(text)
        return f"{text[:10]} {text[11:-1]}"

    return read_each(cells, {CellKind.TEXT: read})


def _texts(cells: RecordColumn, column: Column) -> ColumnValues:
    return read_each(cells, {CellKind.TEXT: as_it_is})


_REAL = ("FLOAT", "DOUBLE")
_READERS: Mapping[str, Callable[[RecordColumn, Column], ColumnValues]] = {
    **dict.fromkeys(_INTEGERS, _integers),
    **dict.fromkeys(_REAL, _reals),
    "DECIMAL": _numbers(_decimal),
    "BIT": _bits_of,
    "DATE": _numbers(lambda number, _: Moment(_integer(number) * DAY_MICROS).date_text()),
    "DATETIME": _numbers(_datetime),
    "TIMESTAMP": _timestamps,
    "TIME": _numbers(lambda number, column: time_text(_integer(number), column.scale or 0)),
}
"""Type -> what reads its values; every other one is a text."""
