"""Values of messages, column by column: what a source's types become on the wire -> what the type table reads.

    ticdc     as TiCDC puts them into Debezium's types
    connect   as Debezium's connectors write them, by the schema of their field
    ydb       as YDB's changefeeds do

A reader takes the cells of a column, in kinds and texts, and returns texts, bytes or numbers. Those that are as nearly
all are, it reads together, the rest one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.records import CellKind, Marks, RecordColumn, bits
from cdc_assets.types.conversions.moments import DAY_MICROS, Moment

__all__ = [
    "DEFAULTED",
    "DOUBLE_DIGITS",
    "EPOCH",
    "FIRST_MICROS",
    "GREATEST_FLOAT",
    "LAST_MICROS",
    "MAYBE_UNCHANGED",
    "MAYBE_ZERO_DATE",
    "ROUNDED",
    "ColumnValues",
    "OutOfRange",
    "ReadCell",
    "are_rounded",
    "as_it_is",
    "matching",
    "moment_text",
    "read_each",
    "read_rest",
    "whole",
]

FIRST_MICROS, LAST_MICROS = -719_528 * DAY_MICROS, 2_932_897 * DAY_MICROS - 1
"""The years 0000 to 9999, in microseconds since 1970."""
GREATEST_FLOAT = 3.4028235677973366e38
DOUBLE_DIGITS = 15
"""Digits that a double holds for sure."""

ROUNDED = "a DECIMAL of more than 15 digits, which was sent as a double and is rounded"
DEFAULTED = "the default of its column, as which NULL is sent too"
MAYBE_ZERO_DATE = "1970-01-01 or the default of its column that is NOT NULL, as which a zero date is sent too"
MAYBE_UNCHANGED = "NULL, as which a long value of this type that a change leaves as it is comes too"
EPOCH = "1970-01-01T00:00:00Z"
"""Texts in which zero dates of TIMESTAMP are sent. MySQL has no valid TIMESTAMP before 1970-01-01 00:00:01 UTC."""
ReadCell = Callable[[str], "str | bytes"]
"""A reader of a cell's text; raises OutOfRange, or Python's own error for a text that is not a value."""


class OutOfRange(Exception):
    """A value of its type that the lake does not keep; `rest` is the part that it keeps, None for nothing."""

    def __init__(self, rest: str | None = None) -> None:
        super().__init__(rest)
        self.rest = rest


class ColumnValues(NamedTuple):
    """A column's values; `sound` are those of its type, `beyond` those of them that the lake does not keep whole."""

    array: pa.Array
    sound: Marks
    beyond: Marks | None = None


def matching(cells: RecordColumn, kind: CellKind, pattern: str) -> Marks:
    """Mark the cells of a kind that match a pattern."""
    return cells.are(kind) & bits(pc.match_substring_regex(cells.texts, pattern))


def as_it_is(text: str) -> str:
    """Return the text of a cell that is its value."""
    return text


def read_each(
    cells: RecordColumn, readers: Mapping[CellKind, ReadCell], kind: pa.DataType | None = None
) -> ColumnValues:
    """Read cells one by one, each by its kind; one of a kind without reader is not sound.

    They are texts, or bytes where any of them is read as such, unless `kind` is given.
    """
    is_read = np.zeros(len(cells), bool)
    for own, read in readers.items():
        if read is as_it_is:
            is_read |= cells.are(own)
    values = read_rest(cells, is_read, cells.only(is_read), readers)
    return values if kind is None else values._replace(array=values.array.cast(kind))


def read_rest(
    cells: RecordColumn, is_read: Marks, array: pa.Array, readers: Mapping[CellKind, ReadCell]
) -> ColumnValues:
    """Return values of which some are known, and read the rest of the cells one by one."""
    sound, beyond = is_read | cells.given, np.zeros(len(cells), bool)
    rest = np.flatnonzero(cells.given & ~is_read)
    if not len(rest):
        return ColumnValues(array, is_read)
    values = list[str | bytes | None]()
    kinds = cells.kinds[rest].tolist()
    for place, kind, text in zip(rest.tolist(), kinds, cells.texts.take(pa.array(rest)).to_pylist(), strict=True):
        values.append(None)
        try:
            values[-1] = readers[CellKind(kind)](text)
        except OutOfRange as error:
            values[-1], beyond[place] = error.rest, True
        except (KeyError, ValueError, TypeError, AttributeError, ArithmeticError):
            sound[place] = False
    if any(isinstance(value, bytes) for value in values) and array.type != pa.binary():
        array = array.cast(pa.binary())
        values = [value.encode() if isinstance(value, str) else value for value in values]
    mask = np.zeros(len(cells), bool)
    mask[rest] = True
    array = pc.replace_with_mask(array, pa.array(mask), pa.array(values, array.type))
    return ColumnValues(array, sound, beyond if beyond.any() else None)


def are_rounded(texts: pa.StringArray) -> Marks:
    """Mark decimals of more digits, with those of their scale, than a double holds for sure."""
    digits = pc.utf8_length(pc.utf8_ltrim(pc.replace_substring(texts, ".", ""), "-0"))
    return bits(pc.greater(digits, DOUBLE_DIGITS))


def whole(text: str) -> int:
    """Return a whole number; raises ValueError for any other."""
    if not text.removeprefix("-").isdecimal() or not text.isascii():
        raise ValueError(text)
    return int(text)


def moment_text(micros: int) -> str:
    """Return microseconds since 1970 as a text; raises OutOfRange outside the years 0000 to 9999."""
    if not FIRST_MICROS <= micros <= LAST_MICROS:
        raise OutOfRange
    return Moment(micros).text(6)
