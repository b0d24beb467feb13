"""A row of a type table: what a type of the source becomes in the lake, how its values are read, what is kept."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from cdc_assets.model.schema import Column
from cdc_assets.types import mysql_values as read
from cdc_assets.types.mysql_values import TextSettings, Values


class Grade(str, enum.Enum):
    """Exactness of a column's values beside the source's."""

    LOSSLESS = "lossless"
    TEXT = "kept as text"
    CHANGED = "changed"
    MASKED = "masked"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Fidelity:
    """The fidelity of a column: the grade, and the rule as a sentence."""

    grade: Grade
    rule: str


OfColumn = Callable[[Column], pa.DataType]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRule:
    """A row of the type table. `parse` and `finish` are readers of `mysql_values`; `wire` None means as `lake`,
    binary that Arrow's own parsers cannot read the text.

    `zero` is what MySQL fills a new NOT NULL column without default with, as text.
    """

    lake: OfColumn
    fidelity: Callable[[Column], Fidelity]
    zero: Callable[[Column], str | bytes]
    wire: OfColumn | None = None
    parse: Callable[[pa.Array, TextSettings], Values] = read.parse_number
    finish: Callable[[pa.Array, TextSettings], Values] = read.finish_nothing


def always(kind: pa.DataType) -> OfColumn:
    """Return a lake type whatever the column says."""
    return lambda _: kind


def graded(grade: Grade, rule: str) -> Callable[[Column], Fidelity]:
    """Return the fidelity that every column has, whatever it says."""
    fidelity = Fidelity(grade, rule)
    return lambda _: fidelity


def text_rule(fidelity: Callable[[Column], Fidelity], zero: Callable[[Column], str | bytes] = lambda _: "") -> TypeRule:
    """Return the row of a type whose values are kept as texts."""
    return TypeRule(lake=always(pa.string()), parse=read.parse_text, fidelity=fidelity, zero=zero)


def number_rule(kind: pa.DataType) -> TypeRule:
    """Return the row of numbers and booleans that the lake keeps as this type, whatever the column says."""
    return TypeRule(lake=always(kind), fidelity=EXACT, zero=lambda _: "0")


def decimal_rule() -> TypeRule:
    """Return the row of decimals whose precision is 38 where none is stated: text beyond 38 digits."""
    return TypeRule(lake=_decimal, parse=_read_decimal, fidelity=_kept_decimal, zero=lambda _: "0")


def _digits(column: Column) -> int:
    return 38 if column.precision is None else column.precision


def _decimal(column: Column) -> pa.DataType:
    return pa.decimal128(_digits(column), column.scale or 0) if _digits(column) <= 38 else pa.string()


def _read_decimal(texts: pa.Array, settings: TextSettings) -> Values:
    return (read.parse_wide_decimal if pa.types.is_string(settings.lake) else read.parse_number)(texts, settings)


def _kept_decimal(column: Column) -> Fidelity:
    return (TOO_WIDE if _digits(column) > 38 else EXACT)(column)


def utc_rule(fidelity: Callable[[Column], Fidelity]) -> TypeRule:
    """Return the row of instants, whose texts are in UTC whatever the feed's zone."""
    return TypeRule(
        lake=always(pa.timestamp("us", "UTC")),
        wire=always(pa.timestamp("us")),
        parse=read.parse_time_point,
        finish=_in_utc,
        fidelity=fidelity,
        zero=lambda _: "1970-01-01 00:00:00",
    )


def _in_utc(array: pa.Array, settings: TextSettings) -> Values:
    return Values(array.cast(pa.timestamp("us", "UTC")))


EXACT = graded(Grade.LOSSLESS, "every value as it is")
TOO_WIDE = graded(Grade.TEXT, "more than 38 digits: all of them, as text")
TEXT = text_rule(graded(Grade.LOSSLESS, "every text as it is; bytes that are not UTF-8 become U+FFFD and are counted"))
BYTES = TypeRule(
    lake=always(pa.binary()),
    parse=read.parse_binary,
    fidelity=graded(Grade.LOSSLESS, "exact bytes"),
    zero=lambda _: b"",
)
