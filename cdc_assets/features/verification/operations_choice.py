"""Select the rows of a table that are compared: by conditions, or as a share by key.

    --where "id >= 1000 AND day < '2025-06-01'"     values as the lake's types compare them
    --sample 1%                                      of an integer by its remainder, of other keys by their hash

Both sides are chosen from by the same functions, over the lake's types. A server is told the conditions, too, so that
it sends no row in vain.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa

from cdc_assets.errors import BadSettings
from cdc_assets.features.verification.operations_rows import Frame, Numbers, combined_hash
from cdc_assets.model.dumps import RowCondition
from cdc_assets.model.schema import Column
from cdc_assets.types.mysql_types import arrow_type, values

_INTEGERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
_COMPARABLE = (*_INTEGERS, "DECIMAL", "DATE", "DATETIME")
_CONDITION = re.compile(
    r"""\s*(?:`((?:[^`]|``)+)`|([^\s`'"<>=]+))\s*(<=|>=|=|<|>)\s*(?:(-?[0-9]+(?:\.[0-9]+)?)|'([^']*)')\s*(?:\bAND\b|$)""",
    re.IGNORECASE,
)
_SHARE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")
_SEED = 0x5A3B1E


@dataclass(frozen=True, slots=True)
class RowChoice:
    """The rows that fulfil all `conditions`, and of these one of `one_of`: 1 for all."""

    conditions: tuple[RowCondition, ...] = ()
    one_of: int = 1
    remainder: int = 0

    def __bool__(self) -> bool:
        return bool(self.conditions) or self.one_of > 1

    @property
    def text(self) -> str:
        """Describe the selection; "" for all rows."""
        if not self:
            return ""
        conditions = " AND ".join(
            f"{condition.column} {condition.operator} {condition.value}" for condition in self.conditions
        )
        share = f"one of {self.one_of:,} rows" if self.one_of > 1 else "rows"
        return f"{share} with {conditions}" if conditions else share

    def of(self, columns: Sequence[Column], key: Sequence[str], table: str) -> BoundChoice:
        """Return the choice for a table's columns; raises BadSettings for a condition that is none of these."""
        named = {column.name.lower(): column for column in columns}
        for condition in self.conditions:
            column = named.get(condition.column.lower())
            if column is None or column.type not in _COMPARABLE or pa.types.is_string(arrow_type(column)):
                reason = "has no such column that can be compared" if column is None else f"has it as {column.type}"
                raise BadSettings(
                    f'"{condition.column}" is a column of --where, and {table} {reason}. Conditions are on whole '
                    "numbers, DECIMAL, DATE and DATETIME; name the tables that have it."
                )
            read = values(pa.array([condition.value]), column)
            if read.array.null_count or read.bad is not None or read.notes:
                raise BadSettings(f'"{condition.value}" of --where is no {column.type}, which {condition.column} is.')
        bound = [replace(condition, column=named[condition.column.lower()].name) for condition in self.conditions]
        if self.one_of > 1 and key and named[key[0].lower()].type in _INTEGERS:
            bound.append(RowCondition(key[0], "%", str(self.one_of), self.remainder))
        elif self.one_of > 1:
            return BoundChoice(tuple(bound), tuple(columns), tuple(key), self.one_of, self.remainder)
        return BoundChoice(tuple(bound), tuple(columns))


EVERY_ROW = RowChoice()


@dataclass(frozen=True, slots=True)
class BoundChoice:
    """A choice of rows by the columns of a table, as frames have them: numbered."""

    conditions: tuple[RowCondition, ...]
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    one_of: int = 1
    remainder: int = 0

    def __bool__(self) -> bool:
        return bool(self.conditions) or self.one_of > 1

    def chosen(self, frame: Frame) -> Frame:
        """Return the rows of a block that are compared."""
        places = {column.name: str(place) for place, column in enumerate(self.columns)}
        for condition in self.conditions:
            cells = pl.col(places[condition.column])
            described = self.columns[int(places[condition.column])]
            if condition.operator == "%":
                # Of a negative number polars counts from the next lower multiple.
                holds = (cells.cast(pl.Int128) % int(condition.value) == condition.remainder).fill_null(False)
            else:
                literal = pl.lit(pl.from_arrow(values(pa.array([condition.value]), described).array)).first()
                result: dict[str, pl.Expr] = {
                    "=": cells == literal,
                    "<": cells < literal,
                    "<=": cells <= literal,
                    ">": cells > literal,
                    ">=": cells >= literal,
                }
                holds = result[condition.operator].fill_null(False)
            frame = frame.filter(holds)
        if self.one_of > 1:
            hashed: Numbers = combined_hash(frame.select(places[name] for name in self.key or places), _SEED)
            frame = frame.filter(pl.Series(hashed % self.one_of == self.remainder))
        return frame


def parse_choice(where: str = "", sample: str = "", moment: int = 0) -> RowChoice:
    """Return the choice that a person's texts say, none for ""; `moment` decides which of the rows a sample has.

    Raises BadSettings for a text that is no condition, or no share.
    """
    conditions, rest = [], where
    while rest.strip():
        match = _CONDITION.match(rest)
        if match is None or (match.end() == len(rest) and rest.rstrip().upper().endswith(" AND")):
            raise BadSettings(
                f'--where is "{where}"; expected conditions such as "id >= 1000 AND day < \'2025-06-01\'": a column, '
                "one of = < <= > >=, a number or a quoted time."
            )
        quoted, plain, operator, number, text = match.groups()
        name = plain if quoted is None else quoted.replace("``", "`")
        conditions.append(RowCondition(name, operator, number if number is not None else text))
        rest = rest[match.end() :]
    one_of = 1
    if sample:
        share = _SHARE.fullmatch(sample)
        percent = float(share[1]) if share else 0.0
        if not 0 < percent <= 100:
            raise BadSettings(f'--sample is "{sample}"; expected a share of the rows, such as 1%.')
        one_of = max(1, round(100 / percent))
    return RowChoice(tuple(conditions), one_of, moment % one_of)
