"""Convert stored values when a column changes its type: TiDB's rules for MODIFY, on lake values.

    Change (old column, new column, zone) ──▶ needs_conversion, narrows   is there anything to do
                                          ──▶ convert                     the new values, or a held table
                                          ──▶ convert_past                the same for values that are gone, too

    numbers     integers, decimals and floats
    texts       texts and bytes
    dates       dates, datetimes, timestamps and times
    moments     the years 0000 to 9999 as microseconds, and the texts and numbers that TiDB takes for them
    documents   JSON
    described   types that rows describe: what holds all values of what

The rules are those by which TiDB converts rows while it carries the DDL out (`tidb:pkg/types/datum.go`, `time.go`,
`json_binary.go`, `pkg/ddl/column.go`), in strict mode. A value that they refuse was cut or clamped by a source that was
not in strict mode, or is not what the source held. Which one is unknown, so the table is held with the value in the
message. TIMESTAMP becomes another type, or another type TIMESTAMP, in the zone of the session that ran the DDL, which
no file records: see `zone_matters`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import TableHeld
from cdc_assets.model.schema import Column
from cdc_assets.types.addresses import ADDRESSES
from cdc_assets.types.collations import normal_form
from cdc_assets.types.conversions import dates, numbers, texts
from cdc_assets.types.conversions.described import Change, convert_described, is_described, members_of, needs_rewrite
from cdc_assets.types.conversions.texts import text_of
from cdc_assets.types.families import BINARY, CHARACTER, DATED, FLOATING, INTEGER, MEMBERS
from cdc_assets.types.mysql_types import arrow_type, float_digits, implicit_default, type_text, values

__all__ = ["convert", "convert_past", "fills_nulls", "loses_dates", "narrows", "needs_conversion", "zone_matters"]

_NUMBER = re.compile(r"0|[1-9]\d*", re.ASCII)


def into_enum(value: Any, change: Change) -> str:
    """Match by name under the collation; a text that is no member's name may be a member's number."""
    elems = members_of(change.new)
    if change.old.type not in (*CHARACTER, *BINARY, *MEMBERS):
        return _numbered(elems, int(value))
    text = text_of(value, change)
    if change.old.type == "ENUM" and not text:
        return ""  # the value of number 0, unless it is a member
    member = _named(text, change.new)
    return member if member is not None else _numbered(elems, _number(text))


def _numbered(elems: tuple[str, ...], number: int) -> str:
    if not 1 <= number <= len(elems):
        raise ValueError(number)
    return elems[number - 1]


def into_set(value: Any, change: Change) -> str:
    """Match every part by name, or read the whole text as a bit mask."""
    elems = members_of(change.new)
    if change.old.type not in (*CHARACTER, *BINARY, *MEMBERS):
        return _masked(elems, int(value))
    text = text_of(value, change)
    if not text:
        return ""
    named = {_named(part, change.new) for part in text.split(",")}
    if None in named:
        return _masked(elems, _number(text))
    return ",".join(member for member in elems if member in named)


def _masked(elems: tuple[str, ...], bits: int) -> str:
    if not 0 <= bits < 1 << len(elems):
        raise ValueError(bits)
    return ",".join(member for position, member in enumerate(elems) if bits >> position & 1)


def _number(text: str) -> int:
    """TiDB also reads octal and hexadecimal numbers, which nobody intends here: they are refused."""
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


def _named(text: str, column: Column) -> str | None:
    """Return the member that a text is equal to. Without a known collation that is one in any case of its letters,
    because a source in strict mode has found one.
    """
    elems = members_of(column)
    if text in elems:
        return text
    texts = pa.array([*elems, text], pa.string())
    *forms, form = normal_form(texts, column.collation or "utf8mb4_general_ci").to_pylist()
    equal = [member for member, member_form in zip(elems, forms, strict=True) if member_form == form]
    if len(equal) > 1 and column.collation is None:
        raise ValueError(text)
    return equal[0] if equal else None


Notes = Mapping[str, int]

_BYTE_TEXTS = ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")


# --- questions --------------------------------------------------------------------------------------------------------


def needs_conversion(old: Column, new: Column) -> bool:
    """Return whether the change alters any stored value, other than by widening to a larger number type."""
    if is_described(old, new):
        return needs_rewrite(old, new)
    if old.type in (*INTEGER, "YEAR") and new.type in INTEGER:
        return _wide(old) != _wide(new) or (arrow_type(old), arrow_type(new)) == (pa.int64(), pa.int32())
    if old.type in CHARACTER and new.type in CHARACTER:
        return new.type == "CHAR" and old.type != "CHAR"
    if old.type in BINARY and new.type in BINARY:
        return new.type == "BINARY" and (old.type != "BINARY" or (old.precision or 1) != (new.precision or 1))
    if old.type in MEMBERS and new.type in CHARACTER:
        return new.type == "CHAR"
    if old.type in FLOATING and new.type in FLOATING:
        return (old.type, new.type) == ("DOUBLE", "FLOAT") or float_digits(new) not in (None, float_digits(old))
    return old.type != new.type or _same_type_differs(old, new)


def _same_type_differs(old: Column, new: Column) -> bool:
    if old.type == "DECIMAL":
        return (old.scale or 0) != (new.scale or 0) or not _widens(old, new)
    if old.type == "SET":
        return _reorders(old, new)
    if old.type in ("DATETIME", "TIMESTAMP"):
        return (new.scale or 0) < (old.scale or 0)
    if old.type == "TIME":
        return (new.scale or 0) != (old.scale or 0)
    return bool(old.type == "BIT" and arrow_type(old) != arrow_type(new))


def _wide(column: Column) -> bool:
    """Return whether an integer is kept as a decimal."""
    return column.type == "BIGINT" and column.unsigned


def _widens(old: Column, new: Column) -> bool:
    """Return whether a decimal of the same scale stays as it is: all of its digits fit, and text stays text."""
    before, after = arrow_type(old), arrow_type(new)
    if pa.types.is_string(before) or pa.types.is_string(after):
        return bool(before == after)
    return bool(before.precision <= after.precision)


def _reorders(old: Column, new: Column) -> bool:
    if old.elems is None or new.elems is None:
        return False
    members = [member for member in new.elems if member in old.elems]
    return members != [member for member in old.elems if member in members]


def fills_nulls(old: Column, new: Column) -> bool:
    """Return whether NULL becomes another value, since the column is NOT NULL from now on.

    TiDB refuses that. MySQL and MariaDB write zero, an empty text or the time of the DDL where their sql_mode is not
    strict, or after ALTER IGNORE. The zero dates that they write are NULL in the lake.
    """
    return old.nullable and not new.nullable and new.type in _FILLED and not loses_dates(old, new)


_FILLED = (*INTEGER, *FLOATING, *CHARACTER, *BINARY, *MEMBERS, "DECIMAL", "BIT", "YEAR", "TIME", "TIMESTAMP")


def narrows(old: Column, new: Column) -> bool:
    """Return whether the new type, one of the same kind, refuses or changes some value that the old one holds."""
    if is_described(old, new):
        return False
    if fills_nulls(old, new):
        return True
    if old.type in (*INTEGER, "YEAR") and new.type in INTEGER:
        (low, high), (lowest, highest) = numbers.bounds(old), numbers.bounds(new)
        return low < lowest or high > highest
    if old.type in CHARACTER and new.type in CHARACTER:
        return _shorter(old, new, 4 if new.type in _BYTE_TEXTS and old.type not in _BYTE_TEXTS else 1)
    if old.type in BINARY and new.type in BINARY:
        return _shorter(old, new, 1)
    if old.type in MEMBERS and new.type in CHARACTER:
        return new.precision is not None
    if old.type == new.type == "DECIMAL":
        return _whole_digits(new) < _whole_digits(old) or _loses_sign(old, new)
    if old.type in FLOATING and new.type in FLOATING:
        return _loses_sign(old, new) or (float_digits(new) is not None and _whole_digits(new) < _whole_digits(old))
    if old.type == new.type == "BIT":
        return (new.precision or 1) < (old.precision or 1)
    if old.type == new.type and old.type in MEMBERS:
        return old.elems is not None and new.elems is not None and not set(old.elems) <= set(new.elems)
    return False


def _loses_sign(old: Column, new: Column) -> bool:
    return new.unsigned and not old.unsigned


def _whole_digits(column: Column) -> int:
    if column.type in FLOATING and float_digits(column) is None:
        return 1000  # any number
    return (column.precision if column.precision is not None else 10) - (column.scale or 0)


def _shorter(old: Column, new: Column, wide: int) -> bool:
    """Compare capacities; a text measured in bytes needs up to four for each character."""
    if old.precision is None or new.precision is None:
        return new.precision is not None
    return new.precision < old.precision * wide


def zone_matters(old: Column, new: Column) -> bool:
    """Return whether values depend on the time zone of the session that ran the DDL."""
    return (old.type == "TIMESTAMP") != (new.type == "TIMESTAMP")


def loses_dates(old: Column, new: Column) -> bool:
    """Return whether zero and partial dates, which are NULL in the lake, are values of the new type in the source."""
    return old.type in DATED and new.type not in DATED


# --- values -----------------------------------------------------------------------------------------------------------


def convert(
    array: pa.Array | pa.ChunkedArray, old: Column, new: Column, timezone: str = "UTC"
) -> tuple[pa.Array, Notes]:
    """Turn the lake values of `old` into those of `new`; the notes count values by the rule that changed them.

    `timezone` is the zone of the session that ran the DDL. Raises TableHeld for a value that a source in strict mode
    refuses, for a change that TiDB does not carry out, and for what only the source can know: enum members that no file
    lists, the date on which a TIME became a DATETIME, the time at which NULL became a TIMESTAMP.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], arrow_type(old))
    kind = arrow_type(new)
    if not needs_conversion(old, new) and not narrows(old, new):
        return array.cast(kind), {}
    if is_described(old, new):
        return convert_described(array, old, new), {}
    _refuse_nulls(array, old, new)
    if pa.types.is_list(array.type):
        _turned([value for value in array.to_pylist() if value is not None], Change(old, new, timezone))
        return pa.nulls(len(array), kind), {}
    distinct = array.unique()
    turned = pa.array(_turned(_plain_values(distinct), Change(old, new, timezone)), kind)
    done = turned.take(pc.index_in(array, distinct))
    if done.null_count and fills_nulls(old, new):
        empty = "" if new.type in MEMBERS else implicit_default(new)
        done = pc.fill_null(done, values(pa.array([empty]), new).array[0])
    return done, {}


def convert_past(
    array: pa.Array | pa.ChunkedArray, present: pa.Array, old: Column, new: Column, timezone: str = "UTC"
) -> pa.Array:
    """Turn the lake values of `old` into those of `new` in a table that has values of the past too.

    Those that are `present` the source has converted. One of the past it had no more, so that the new type need not
    take it: what it does not take is NULL. Raises TableHeld as `convert` does, but for such values.
    """
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    past_nulls = pc.and_not(pc.is_null(whole), present)
    try:
        return pc.if_else(past_nulls, pa.scalar(None, arrow_type(new)), convert(whole, old, new, timezone)[0])
    except TableHeld:
        now = convert(whole.filter(present), old, new, timezone)[0]
    distinct = whole.unique()
    turned = pa.chunked_array([_or_null(distinct.slice(n, 1), old, new, timezone) for n in range(len(distinct))])
    past = turned.combine_chunks().take(pc.index_in(whole, distinct))
    return pc.replace_with_mask(past, present, now)


def _or_null(value: pa.Array, old: Column, new: Column, timezone: str) -> pa.Array:
    """Return a value as the new type has it, NULL if it is none of its values."""
    try:
        return convert(value, old, new, timezone)[0]
    except TableHeld as error:
        if not isinstance(error.__cause__, (ValueError, ArithmeticError)) and value.null_count == 0:
            raise
        return pa.nulls(1, arrow_type(new))


def _plain_values(array: pa.Array) -> list[Any]:
    """Python values; dates are days and times microseconds since 1970, because Python knows no year 0."""
    if pa.types.is_date32(array.type):
        return list(array.cast(pa.int32()).to_pylist())
    if pa.types.is_timestamp(array.type):
        return list(array.cast(pa.int64()).to_pylist())
    return list(array.to_pylist())


def _turned(values: list[Any], change: Change) -> list[Any]:
    return [None if value is None else _turn(value, change) for value in values]


def _turn(value: Any, change: Change) -> Any:
    old, new = change.old, change.new
    into = _TARGETS.get(new.type)
    if into is None or _is_refused(old.type, new.type):
        raise TableHeld(
            f'column "{new.name}": TiDB does not change {type_text(old)} to {type_text(new)}, so what became of its '
            "values is not known. Rebuild the table from here.",
            column=new.name,
        )
    try:
        return into(value, change)
    except TableHeld:
        raise
    except (ValueError, ArithmeticError, KeyError, IndexError) as error:
        raise TableHeld(
            f'column "{new.name}": {texts.shown(value, change)} cannot become {type_text(new)} from '
            f"{type_text(old)}. The source has cut it, in an sql_mode that is not strict; or the row was written while "
            "the DDL was rewriting the table, and TiDB let both pass; or the lake does not hold what the source held.",
            column=new.name,
        ) from error


def _refuse_nulls(array: pa.Array, old: Column, new: Column) -> None:
    """Hold what a NULL of the lake leaves open; elsewhere NULL stays NULL."""
    if not array.null_count:
        return
    if new.type == "TIMESTAMP" and old.nullable and not new.nullable:
        raise TableHeld(
            f'column "{new.name}": the source writes the time at which the DDL ran in place of NULL when a column '
            "becomes TIMESTAMP NOT NULL, and no file records that time. Rebuild the table from here.",
            column=new.name,
        )
    if loses_dates(old, new) and not old.nullable:
        raise TableHeld(
            f'column "{new.name}": {array.null_count} zero or partial dates are NULL in the lake, so what they became '
            f"as {type_text(new)} is not known. Rebuild the table from here.",
            column=new.name,
        )


# --- the matrix -------------------------------------------------------------------------------------------------------

_TARGETS: Mapping[str, Callable[[Any, Change], Any]] = {
    **dict.fromkeys(INTEGER, numbers.into_integer),
    **dict.fromkeys(CHARACTER, texts.into_text),
    **dict.fromkeys(BINARY, texts.into_binary),
    **dict.fromkeys(FLOATING, numbers.into_float),
    "YEAR": numbers.into_year,
    "BIT": numbers.into_bit,
    "DECIMAL": numbers.into_decimal,
    "DATE": dates.into_date,
    "DATETIME": dates.into_datetime,
    "TIMESTAMP": dates.into_timestamp,
    "TIME": dates.into_time,
    "ENUM": into_enum,
    "SET": into_set,
    "JSON": texts.into_json,
    **dict.fromkeys(ADDRESSES, texts.into_address),
}

_REFUSED: Mapping[str, tuple[str, ...]] = {
    "BIT": (*DATED, "TIME", "YEAR", *CHARACTER, *BINARY, "JSON"),
    **dict.fromkeys(MEMBERS, (*DATED, "TIME", "YEAR", "DECIMAL", *FLOATING, "JSON", "BIT")),
    **dict.fromkeys(DATED, (*MEMBERS, "BIT", "DECIMAL", *FLOATING)),
    "TIME": (*MEMBERS, "BIT"),
}
"""Old types that TiDB does not change into a new type, by new type (`tidb:pkg/types/field_type.go`)."""


def _is_refused(old: str, new: str) -> bool:
    return "VECTOR" in (old, new) or old in _REFUSED.get(new, ())
