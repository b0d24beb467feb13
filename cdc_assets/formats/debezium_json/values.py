"""The values of a column as TiCDC puts them into Debezium's types -> cells.

Dates are days, times of day microseconds, a DATETIME milliseconds up to three fraction digits and microseconds
beyond, as if in UTC; a TIMESTAMP is a text in UTC. BIT is base64, the lowest byte first. BIGINT UNSIGNED wraps. NULL in
a column with a default is that default. A DECIMAL is a double: what a double does not hold is rounded, and NULL where
it does not fit the type any more.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_assets.formats.images import Cells
from cdc_assets.model.schema import Column
from cdc_assets.types.conversions.moments import Moment, time_text

__all__ = ["DEFAULTED", "ROUNDED", "TOO_LARGE", "cells_of"]

ROUNDED = "a DECIMAL of more than 15 digits, which was sent as a double and is rounded"
TOO_LARGE = "a DECIMAL that was sent as a double, which is too large for the type: NULL"
DEFAULTED = "the default of its column, as which NULL is sent too"

_DOUBLE_DIGITS = 15
_MOST_EXPONENT = 400
"""More than that of any double."""
_UNSIGNED = (1 << 64) - 1
_DAY, _MS = 86_400_000_000, 1000
_INTEGERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "YEAR")
_BINARY = ("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")


def cells_of(held: Sequence[Any], absent: Sequence[bool], column: Column) -> Cells:
    """Return the cells of a column; what is not a value of its type in this protocol is a fault."""
    read = _READERS.get(column.type, _text)
    texts: list[str | None] = []
    wrong = np.zeros(len(held), bool)
    for place, value in enumerate(held):
        try:
            texts.append(None if value is None else read(value, column))
        except (ValueError, TypeError, ArithmeticError):
            texts.append(None)
            wrong[place] = True
    faults = (
        ((wrong, f'column "{column.name}" has a value that is not of the type {column.type}'),) if wrong.any() else ()
    )
    notes = dict(_losses(held, column)) if column.type == "DECIMAL" else {}
    if column.nullable and column.default is not None:
        default = str(column.default)
        notes[DEFAULTED] = np.array([text == default for text in texts], bool)
    if TOO_LARGE in notes:
        texts = [None if large else text for large, text in zip(notes[TOO_LARGE], texts, strict=True)]
    gone = np.array(absent, bool)
    array = pa.array(texts, pa.string())
    if column.type in ("FLOAT", "DOUBLE"):
        array = pa.array([None if text is None else float(text) for text in texts], pa.float64())
    zones = pa.array(["UTC"] * len(held)) if column.type == "TIMESTAMP" else None
    binary = "base64" if column.type in _BINARY else "raw"
    return Cells(array, gone if gone.any() else None, binary, zones, faults, notes, named=True)  # type: ignore[arg-type]


def _losses(held: Sequence[Any], column: Column) -> Mapping[str, np.ndarray[Any, np.dtype[np.bool_]]]:
    rounded, large = np.zeros(len(held), bool), np.zeros(len(held), bool)
    whole = (column.precision or 10) - (column.scale or 0)
    for place, value in enumerate(held):
        if not isinstance(value, int | Decimal) or isinstance(value, bool) or not Decimal(value).is_finite():
            continue
        number = Decimal(value)
        if abs(number.adjusted()) > _MOST_EXPONENT:
            continue  # it is no double
        large[place] = abs(_scaled(number, column)) >= Decimal(10) ** whole
        rounded[place] = (
            not large[place] and number.adjusted() + 1 + (column.scale or 0) > _DOUBLE_DIGITS and number != 0
        )
    marks = {ROUNDED: rounded, TOO_LARGE: large}
    return {rule: mask for rule, mask in marks.items() if mask.any()}


def _scaled(number: Decimal, column: Column) -> Decimal:
    try:
        return number.quantize(Decimal(1).scaleb(-(column.scale or 0)), ROUND_HALF_UP, _WIDE)
    except InvalidOperation:
        return number


def _number(value: Any) -> int | Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise TypeError(value)
    if isinstance(value, Decimal) and abs(value.adjusted()) > _MOST_EXPONENT:
        raise ValueError(value)
    return value


def _integer(value: Any, column: Column) -> str:
    number = _number(value)
    if number != int(number):
        raise ValueError(value)
    return str(int(number) & _UNSIGNED if column.unsigned and column.type == "BIGINT" else int(number))


def _decimal(value: Any, column: Column) -> str:
    number = Decimal(_number(value))
    if not number.is_finite():
        raise ValueError(value)
    return format(_scaled(number, column), "f")


def _double(value: Any, column: Column) -> str:
    return str(_number(value))


def _bits(value: Any, column: Column) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return str(int.from_bytes(base64.b64decode(value, validate=True), "little"))


def _date(value: Any, column: Column) -> str:
    return Moment(int(_integer(value, column)) * _DAY).date_text()


def _datetime(value: Any, column: Column) -> str:
    digits = column.scale or 0
    micros = int(_integer(value, column)) * (_MS if digits <= 3 else 1)
    return Moment(micros).text(digits)


def _timestamp(value: Any, column: Column) -> str:
    text = _text(value, column)
    if len(text) < 20 or text[10] != "T" or text[-1] != "Z":
        raise ValueError(value)
    return f"{text[:10]} {text[11:-1]}"


def _time(value: Any, column: Column) -> str:
    return time_text(int(_integer(value, column)), column.scale or 0)


def _text(value: Any, column: Column) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


_WIDE = Context(prec=400)
"""Digits enough for the largest double."""
_READERS: Mapping[str, Callable[[Any, Column], str]] = {
    **dict.fromkeys(_INTEGERS, _integer),
    "DECIMAL": _decimal,
    "FLOAT": _double,
    "DOUBLE": _double,
    "BIT": _bits,
    "DATE": _date,
    "DATETIME": _datetime,
    "TIMESTAMP": _timestamp,
    "TIME": _time,
}
"""Type -> what reads its values; every other one is a text."""
