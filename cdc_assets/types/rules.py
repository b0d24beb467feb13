"""A row of a type table: what a type of the source becomes in the lake, how its values are read, what is kept."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from cdc_assets.model.schema import Column
from cdc_assets.types import mysql_values as read
from cdc_assets.types.mysql_values import Reading, Values

__all__ = ["Fidelity", "Grade", "OfColumn", "TypeRule", "always", "graded", "text_rule"]


class Grade(str, enum.Enum):
    """How a column's values compare with the source's."""

    LOSSLESS = "lossless"
    TEXT = "kept as text"
    CHANGED = "changed"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Fidelity:
    """What the lake keeps of a column: the grade, and the rule as a sentence."""

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
    parse: Callable[[pa.Array, Reading], Values] = read.parse_number
    finish: Callable[[pa.Array, Reading], Values] = read.finish_nothing


def always(kind: pa.DataType) -> OfColumn:
    """Return a lake type whatever the column says."""
    return lambda _: kind


def graded(grade: Grade, rule: str) -> Callable[[Column], Fidelity]:
    """Return what is kept, whatever the column says."""
    found = Fidelity(grade, rule)
    return lambda _: found


def text_rule(fidelity: Callable[[Column], Fidelity], zero: Callable[[Column], str | bytes] = lambda _: "") -> TypeRule:
    """Return the row of a type whose values are kept as texts."""
    return TypeRule(lake=always(pa.string()), parse=read.parse_text, fidelity=fidelity, zero=zero)
