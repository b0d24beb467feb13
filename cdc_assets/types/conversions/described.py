"""Columns whose types rows describe (Connect, Debezium, YDB): which change of a type keeps all values.

What such a source did to its values is not known: an integer that is wider, a float, a decimal with more digits before
and behind the point, or with as many as a value has, hold what the old one held. Any other change leaves the values
open.
"""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa

from cdc_assets.errors import TableHeld
from cdc_assets.model.schema import Column
from cdc_assets.types.connect_types import CONNECT_TYPES, DECIMAL, VARIABLE_DECIMAL
from cdc_assets.types.mysql_types import arrow_type, widens
from cdc_assets.types.ydb_types import YDB_TYPES

_DECIMALS = (DECIMAL, "Decimal")
_INTEGER_DIGITS = {"int8": 3, "int16": 5, "int32": 10, "int64": 19}


def is_described(*columns: Column) -> bool:
    """Return whether one of the columns has such a type."""
    return any(column.type in CONNECT_TYPES or column.type in YDB_TYPES for column in columns)


def grows(old: Column, new: Column) -> bool:
    """Return whether the new type holds every value of the old one as it is."""
    return widens(old, new) or _decimal_grows(old, new)


def needs_rewrite(old: Column, new: Column) -> bool:
    """Return whether the lake's values have to be written anew."""
    return not widens(old, new)


def _decimal_grows(old: Column, new: Column) -> bool:
    if new.type == VARIABLE_DECIMAL:
        return old.type == DECIMAL or old.type in _INTEGER_DIGITS
    if new.type not in _DECIMALS or old.type not in (*_DECIMALS, *_INTEGER_DIGITS):
        return False
    return (new.scale or 0) >= (old.scale or 0) and _whole(new) >= _whole(old)


def _whole(column: Column) -> int:
    if column.type in _INTEGER_DIGITS:
        return _INTEGER_DIGITS[column.type]
    return (38 if column.precision is None else column.precision) - (column.scale or 0)


def convert_described(array: pa.Array, old: Column, new: Column) -> pa.Array:
    """Turn values of one type into those of one that holds them all; raises ValueError for any other."""
    kind = arrow_type(new)
    if widens(old, new):
        return array.cast(kind)
    if not grows(old, new):
        raise ValueError(f"{old.type} does not widen to {new.type}")
    if pa.types.is_decimal(kind):
        return array.cast(kind)
    digits = "" if new.type == VARIABLE_DECIMAL else f".{new.scale or 0}"
    texts = [None if value is None else format(Decimal(value), f"{digits}f") for value in array.to_pylist()]
    return pa.array(texts, kind)


class Change(NamedTuple):
    """`zone` is the time zone of the session that ran the DDL: a name of the zone database, or `+08:00`."""

    old: Column
    new: Column
    zone: str


def members_of(column: Column) -> tuple[str, ...]:
    """Return the members of an ENUM or SET; raises TableHeld if no file and no text lists them."""
    if column.elems is None:
        raise TableHeld(
            f'column "{column.name}": the members of its {column.type} are in no schema file and no DDL text, so what '
            "its values became is unknown. Rebuild the table from here.",
            column=column.name,
        )
    return column.elems
