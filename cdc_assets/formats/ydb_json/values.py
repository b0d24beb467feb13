"""The values of YDB's records, by their types: as texts that the type table reads, one by one."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_assets.formats.images import Cells
from cdc_assets.model.schema import Column
from cdc_assets.types.conversions.moments import Moment

__all__ = [
    "GREATEST_FLOAT",
    "NOT_FINITE",
    "OUT_OF_RANGE",
    "TROUBLE",
    "Number",
    "OutOfRange",
    "cells_of",
    "read_real",
    "read_text",
    "reader_of",
]

NOT_FINITE = "infinity or not a number in a Decimal: NULL"
OUT_OF_RANGE = "a year outside 0000 to 9999: NULL"
TROUBLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, ArithmeticError)
"""What a record that is none raises."""
GREATEST_FLOAT = 3.4028235677973366e38

_DAY, _SECOND = 86_400_000_000, 1_000_000
_MOST_DIGITS = 100
"""More than any Decimal has on either side of its point."""
_FIRST, _LAST = -719_528 * _DAY, 2_932_897 * _DAY


class _Real(float):
    """A number with its digits as they were written."""

    __slots__ = ("digits",)
    digits: str


def read_real(digits: str) -> _Real:
    """Return a number of JSON that knows its digits."""
    found = _Real(digits)
    found.digits = digits
    return found


class Number(str):
    """A number of a document, as text."""

    __slots__ = ()


def reader_of(column: Column) -> Callable[[Any], str | bytes]:
    """Return what reads values of a column; it raises one of TROUBLE, or OutOfRange."""
    return _READERS.get(column.type, read_text)


def cells_of(rows: Sequence[tuple[Mapping[str, Any], bool]], column: Column) -> Cells:
    """Return the cells of a column; `rows` say of themselves whether they leave out what did not change."""
    read = reader_of(column)
    texts: list[str | bytes | None] = []
    wrong, ranged, infinite, unchanged = ([False] * len(rows) for _ in range(4))
    for place, (row, patch) in enumerate(rows):
        value = row.get(column.name)
        texts.append(None)
        if column.name not in row:
            unchanged[place] = patch
        elif value is not None:
            try:
                texts[place] = read(value)
            except OutOfRange:
                (infinite if column.type == "Decimal" else ranged)[place] = True
            except TROUBLE:
                wrong[place] = True
    faults = ((np.array(wrong, bool), f'column "{column.name}" has a value that is not of the type {column.type}'),)
    marks = {OUT_OF_RANGE: ranged, NOT_FINITE: infinite}
    notes = {rule: np.array(mask, bool) for rule, mask in marks.items() if any(mask)}
    array = pa.array(texts, pa.binary() if column.type == "String" else pa.string())
    same = np.array(unchanged, bool) if any(unchanged) else None
    return Cells(array, None, "raw", None, faults if any(wrong) else (), notes, named=True, unchanged=same)


class OutOfRange(Exception):
    """A value of YDB's that the lake does not keep."""


def read_text(value: Any) -> str:
    """Return a text; raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _whole(value: Any) -> int:
    if isinstance(value, Number):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _within(bits: int, signed: bool) -> Callable[[Any], str]:
    """Return what reads an integer of so many bits."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def read(value: Any) -> str:
        found = _whole(value)
        if not low <= found <= high:
            raise ValueError(value)
        return str(found)

    return read


def _boolean(value: Any) -> str:
    if not isinstance(value, bool):
        raise TypeError(value)
    return "true" if value else "false"


def _double(value: Any) -> str:
    if isinstance(value, Number) or value in ("nan", "inf", "-inf"):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    if not math.isfinite(value):  # those are written as texts
        raise ValueError(value)
    return float.__repr__(value) if isinstance(value, float) else repr(value)


def _float(value: Any) -> str:
    text = _double(value)
    if not isinstance(value, str) and abs(value) > GREATEST_FLOAT:
        raise ValueError(value)
    return text


def _decimal(value: Any) -> str:
    number = Decimal(read_text(value))
    if not number.is_finite():
        raise OutOfRange
    if abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError(value)
    return format(number, "f")


def _moment(micros: int) -> str:
    if not _FIRST <= micros < _LAST:
        raise OutOfRange
    return Moment(micros).text(6)


def _instant(value: Any) -> str:
    text = read_text(value)
    if len(text) < 20 or text[10] != "T" or text[-1] != "Z":
        raise ValueError(value)
    return f"{text[:10]} {text[11:-1]}"


def _date(value: Any) -> str:
    """A date is printed as a moment, as the documentation has it without the time."""
    text = read_text(value)
    if len(text) != 10 and text[10:] != "T00:00:00.000000Z":
        raise ValueError(value)
    return text[:10]


def _json(value: Any) -> str:
    """Print a value of JSON, its numbers by their own digits."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_json(name)}:{_json(held)}" for name, held in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(_json, value))}]"
    return value.digits if isinstance(value, _Real) else json.dumps(value, ensure_ascii=False)


_READERS: Mapping[str, Callable[[Any], str | bytes]] = {
    **{f"{sign}{bits}": _within(bits, sign == "Int") for sign in ("Int", "Uint") for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("Interval", "Interval64"), lambda value: str(_whole(value))),
    "Bool": _boolean,
    "Float": _float,
    "Double": _double,
    "Decimal": _decimal,
    "String": lambda value: base64.b64decode(read_text(value), validate=True),
    "Date": _date,
    "Date32": lambda value: _moment(_whole(value) * _DAY)[:10],
    **dict.fromkeys(("Datetime", "Timestamp"), _instant),
    "Datetime64": lambda value: _moment(_whole(value) * _SECOND),
    "Timestamp64": lambda value: _moment(_whole(value)),
    **dict.fromkeys(("Json", "JsonDocument", "Yson"), _json),
}
"""Type -> what reads its values; every other one is a text."""
