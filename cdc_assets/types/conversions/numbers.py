"""Numbers: from any value, and into the types of numbers.

Decimals and texts are rounded half away from zero, floats half to even; into FLOAT(m,d) and DOUBLE(m,d) a float is
scaled, rounded half to even and scaled back.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import pyarrow as pa

from cdc_assets.model.schema import Column
from cdc_assets.types.conversions.described import Change, members_of
from cdc_assets.types.conversions.documents import read_json
from cdc_assets.types.conversions.moments import moment_of, round_half_up, time_micros, time_number
from cdc_assets.types.conversions.texts import text_of
from cdc_assets.types.families import BINARY, CHARACTER, DATED, INTEGER
from cdc_assets.types.mysql_types import arrow_type, float_digits

_EXACT = Context(prec=100)
_BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32, "BIGINT": 64}
_MAX_FLOAT = 3.4028234663852886e38
_MAX_DIGITS = 81
_NUMERAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)


def bounds(column: Column) -> tuple[int, int]:
    """Return the lowest and the highest value of an integer type."""
    if column.type == "YEAR":
        return 0, 2155
    bits = _BITS[column.type]
    return (0, (1 << bits) - 1) if column.unsigned else (-1 << (bits - 1), (1 << (bits - 1)) - 1)


# --- a value's number -------------------------------------------------------------------------------------------------


def _number(value: Any, change: Change) -> Decimal | float:
    old = change.old
    if old.type in DATED:
        return moment_of(value, change).number(0 if old.type == "DATE" else old.scale or 0, old.type == "DATE")
    if old.type == "TIME":
        return time_number(time_micros(value), old.scale or 0)
    if old.type == "ENUM":
        return Decimal(_place(value, old))
    if old.type == "SET":
        elems = members_of(old)
        return Decimal(sum(1 << elems.index(member) for member in value.split(",")) if value else 0)
    if old.type == "JSON":
        return _json_number(read_json(value))
    if old.type in (*CHARACTER, *BINARY):
        return _numeral(text_of(value, change))
    if isinstance(value, float):
        return value
    return Decimal(int(value) if isinstance(value, bool) else value)


def _place(member: str, column: Column) -> int:
    elems = members_of(column)
    if not member and "" in elems:
        raise ValueError("the empty member and the value of number 0 look alike")
    return elems.index(member) + 1 if member else 0


def _json_number(value: Any) -> Decimal | float:
    if isinstance(value, bool | int):
        return Decimal(int(value))
    if isinstance(value, float):
        return value
    if isinstance(value, str):
        return _numeral(value)
    raise ValueError(value)


def _numeral(text: str) -> Decimal:
    """Read a number that is one from end to end; strict mode refuses any other text."""
    text = text.strip()
    if _NUMERAL.fullmatch(text) is None:
        raise ValueError(text)
    return Decimal(text)


def _to_zero_byte(value: Any, change: Change) -> Any:
    """A text that becomes an integer or a float ends at a zero byte, as those do that fill a BINARY up."""
    if isinstance(value, bytes):
        return value.partition(b"\0")[0]
    return value.partition("\0")[0] if change.old.type in CHARACTER else value


def _whole(number: Decimal | float) -> int:
    return round(number) if isinstance(number, float) else int(number.quantize(Decimal(1), ROUND_HALF_UP, _EXACT))


# --- into each type ---------------------------------------------------------------------------------------------------


def into_integer(value: Any, change: Change) -> Any:
    """A time that becomes a signed integer is rounded as a time, one that becomes an unsigned integer as a number."""
    low, high = bounds(change.new)
    whole = _integer(value, change)
    if not low <= whole <= high:
        raise ValueError(whole)
    return Decimal(whole) if pa.types.is_decimal(arrow_type(change.new)) else whole


def _integer(value: Any, change: Change) -> int:
    old = change.old
    unsigned = change.new.unsigned and change.new.type != "YEAR"
    if unsigned or old.type not in ("DATETIME", "TIMESTAMP", "TIME"):
        return _whole(_number(_to_zero_byte(value, change), change))
    if old.type == "TIME":
        return int(time_number(round_half_up(time_micros(value), 0), 0))
    return int(moment_of(value, change).rounded(0).number(0, False))


def into_year(value: Any, change: Change) -> int:
    """Two digits are of the years 1970 to 2069."""
    old = change.old
    if old.type in DATED:
        return _year(moment_of(value, change).year, False)
    whole = _integer(value, change)
    if old.type not in (*CHARACTER, *BINARY):
        return _year(whole, False)
    text = value.decode() if isinstance(value, bytes) else value
    return _year(whole, len(text) != 4 and text.strip().startswith("0"))


def _year(year: int, zero_counts: bool) -> int:
    if year == 0 and not zero_counts:
        return 0
    if 0 <= year < 100:
        year += 2000 if year < 70 else 1900
    if not 1901 <= year <= 2155:
        raise ValueError(year)
    return year


def into_bit(value: Any, change: Change) -> Any:
    """A negative integer is taken as its 64 bits."""
    whole, width = _whole(_number(value, change)), change.new.precision or 1
    if whole < 0 and change.old.type in INTEGER:
        whole += 1 << 64
    if not 0 <= whole < 1 << width:
        raise ValueError(whole)
    kind = arrow_type(change.new)
    return bool(whole) if kind == pa.bool_() else Decimal(whole) if pa.types.is_decimal(kind) else whole


def into_decimal(value: Any, change: Change) -> Any:
    """Go through the digits that a float of 64 bits prints, for a FLOAT too."""
    new, number = change.new, _number(value, change)
    exact = Decimal(repr(number)) if isinstance(number, float) else number
    if len(exact.as_tuple().digits) > _MAX_DIGITS:
        raise ValueError(exact)
    scale = new.scale or 0
    rounded = exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
    digits = new.precision if new.precision is not None else 10
    if abs(rounded) >= Decimal(10) ** (digits - scale) or (new.unsigned and rounded < 0):
        raise ValueError(rounded)
    if pa.types.is_decimal(arrow_type(new)):
        return rounded
    return f"{rounded or abs(rounded):f}"


def into_float(value: Any, change: Change) -> float:
    """Round to the digits of FLOAT(m,d) and DOUBLE(m,d) before the size of the type."""
    new, number = change.new, float(_number(_to_zero_byte(value, change), change))
    digits = float_digits(new)
    if digits is not None:
        shift = 10.0**digits
        scaled = number * shift
        number = number if math.isinf(scaled) else float(round(scaled)) / shift
        if new.precision is not None and abs(number) > 10.0 ** (new.precision - digits) - 10.0**-digits:
            raise ValueError(number)
    if not math.isfinite(number) or (new.unsigned and number < 0) or (new.type == "FLOAT" and abs(number) > _MAX_FLOAT):
        raise ValueError(number)
    return number
