"""What happens to stored values when a column changes its type: MySQL's ALTER TABLE rules, on lake values.

The source has already done the conversion, in strict mode, so every value here can be converted; one that cannot means
that the lake does not hold what the source held, and the table is held with the value in the message. Where MySQL and
TiDB differ, TiDB's rule is taken (`tidb:pkg/types/datum.go`, `time.go`): DATETIME to DATE cuts the time off, FLOAT
prints its shortest digits without exponent, doubles become integers by rounding half to even, decimals and texts by
rounding half away from zero. TIMESTAMP and DATETIME convert in the zone of the session that ran the DDL, which no file
tells: `timezone`, UTC unless given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import TableHeld
from cdc_assets.model.schema import Column
from cdc_assets.types.mysql_types import arrow_type, type_text, values

__all__ = ["convert", "needs_conversion"]

_INTEGER = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
_CHARACTER = ("CHAR", "VARCHAR", "VAR_STRING", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")
_BINARY = ("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")
_MEMBERS = ("ENUM", "SET")
_EXACT = Context(prec=100)

Notes = Mapping[str, int]


# --- questions --------------------------------------------------------------------------------------------------------


def needs_conversion(old: Column, new: Column) -> bool:
    """Tell whether some value differs after the change, widening to a larger number type of the lake aside."""
    if old.type in _INTEGER and new.type in _INTEGER:
        return _wide(old) != _wide(new) or _narrows(old, new)
    if old.type == new.type == "DECIMAL":
        return (old.scale or 0) != (new.scale or 0) or not _widens(old, new)
    if old.type in ("FLOAT", "DOUBLE") and new.type in ("FLOAT", "DOUBLE"):
        return (old.type, new.type) == ("DOUBLE", "FLOAT") or (new.scale is not None and new.scale != old.scale)
    if old.type in _CHARACTER and new.type in _CHARACTER:
        return new.type == "CHAR" and old.type != "CHAR"
    if old.type in _BINARY and new.type in _BINARY:
        return new.type == "BINARY" and (old.type != "BINARY" or (old.precision or 1) != (new.precision or 1))
    if old.type in _MEMBERS and new.type in _CHARACTER:
        return new.type == "CHAR"
    if old.type == new.type == "SET":
        return _reorders(old, new)
    if old.type == new.type and old.type in ("DATETIME", "TIMESTAMP"):
        return (new.scale or 0) < (old.scale or 0)
    if old.type == new.type == "TIME":
        return (new.scale or 0) != (old.scale or 0)
    if old.type == new.type == "BIT":
        return bool(arrow_type(old) != arrow_type(new))
    return old.type != new.type


def _wide(column: Column) -> bool:
    """Tell whether an integer is kept as a decimal."""
    return column.type == "BIGINT" and column.unsigned


def _narrows(old: Column, new: Column) -> bool:
    return bool(arrow_type(old) == pa.int64() and arrow_type(new) == pa.int32())


def _widens(old: Column, new: Column) -> bool:
    """Tell whether a decimal of the same scale stays as it is: all of its digits fit, and text stays text."""
    before, after = arrow_type(old), arrow_type(new)
    if pa.types.is_string(before) or pa.types.is_string(after):
        return bool(before == after)
    return bool(before.precision <= after.precision)


def _reorders(old: Column, new: Column) -> bool:
    if old.elems is None or new.elems is None:
        return False
    kept = [member for member in new.elems if member in old.elems]
    return kept != [member for member in old.elems if member in kept]


# --- values -----------------------------------------------------------------------------------------------------------


def convert(
    array: pa.Array | pa.ChunkedArray, old: Column, new: Column, timezone: str = "UTC"
) -> tuple[pa.Array, Notes]:
    """Turn the lake values of `old` into those of `new`; the notes count values by the rule that changed them.

    Raises TableHeld for a value that the source cannot have held, and for what only the source can know: enum members
    that no file lists, the date on which a TIME became a DATETIME.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], arrow_type(old))
    kind = arrow_type(new)
    if (
        not needs_conversion(old, new)
        or (old.type, new.type) in _BY_CAST
        or old.type in _INTEGER
        and new.type in _INTEGER
    ):
        try:
            return array.cast(kind), {}
        except pa.ArrowInvalid as error:
            raise _held(old, new, str(error)) from error
    turn = _turn(old, new, timezone)
    distinct = array if pa.types.is_list(array.type) else array.unique()
    turned = pa.array([None if value is None else turn(value) for value in _plain_values(distinct)], kind)
    if pa.types.is_list(array.type):
        return turned, {}
    places = pc.index_in(array, distinct)
    return turned.take(places), {}


_BY_CAST = frozenset(
    {("DATE", "DATETIME"), *((kind, "DOUBLE") for kind in _INTEGER), ("FLOAT", "DOUBLE"), ("YEAR", "INT")}
)
"""Pairs that Arrow's own cast converts as MySQL does."""


def _plain_values(array: pa.Array) -> list[Any]:
    """Python values; a FLOAT becomes the Decimal of its shortest 32-bit digits."""
    if pa.types.is_float32(array.type):
        return [None if value is None else Decimal(value) for value in array.cast(pa.string()).to_pylist()]
    return list(array.to_pylist())


def _turn(old: Column, new: Column, zone: str) -> Callable[[Any], Any]:
    into = _TARGETS.get(new.type)
    if into is None:
        raise TableHeld(
            f'column "{new.name}" became {type_text(new)}, into which no value can be converted.', column=new.name
        )

    def turn(value: Any) -> Any:
        try:
            return into(value, old, new, zone)
        except TableHeld:
            raise
        except (ValueError, ArithmeticError, KeyError, IndexError) as error:
            raise _held(old, new, repr(value)) from error

    return turn


def _held(old: Column, new: Column, value: str) -> TableHeld:
    return TableHeld(
        f'column "{new.name}": {value} cannot become {type_text(new)} from {type_text(old)}, which the source did '
        "without an error. The lake table does not hold what the source held; rebuild it.",
        column=new.name,
    )


# --- a value's number, text, moment -----------------------------------------------------------------------------------


def _number(value: Any, old: Column, zone: str) -> Decimal | float:
    """Return the value as a number: a float where rounding is to be half to even, else a Decimal."""
    if old.type == "DOUBLE" or isinstance(value, float):
        return float(value)
    if isinstance(value, bool):
        return Decimal(int(value))
    if isinstance(value, int | Decimal):
        return Decimal(value)
    if old.type == "ENUM":
        return Decimal(_elems(old).index(value) + 1 if value else 0)
    if old.type == "SET":
        elems = _elems(old)
        return Decimal(sum(1 << elems.index(member) for member in value.split(",")) if value else 0)
    if isinstance(value, datetime):
        moment = _moment(value, old, zone)
        return Decimal(f"{moment:%Y%m%d%H%M%S}" + _fraction(moment, old.scale or 0))
    if isinstance(value, date):
        return Decimal(f"{value:%Y%m%d}")
    if old.type == "TIME":
        return Decimal(value.replace(":", ""))
    text = value.decode() if isinstance(value, bytes) else str(value)
    if old.type == "JSON":
        text = str(json.loads(text, parse_float=str, parse_int=str))
    return Decimal(text.strip())


def _elems(column: Column) -> tuple[str, ...]:
    if column.elems is None:
        raise TableHeld(
            f'column "{column.name}": the members of its {column.type} are in no schema file and no DDL text, so their '
            "numbers are unknown. Rebuild the table from here.",
            column=column.name,
        )
    return column.elems


def _text(value: Any, old: Column, zone: str) -> str:
    """Return the value as MySQL prints it."""
    if isinstance(value, str):
        return value
    if old.type == "BIT":
        return _bytes(value, old, zone).decode("utf-8")
    if old.type == "YEAR":
        return f"{value:04d}"
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, datetime):
        moment = _moment(value, old, zone)
        return f"{moment.year:04d}-{moment:%m-%d %H:%M:%S}" + _fraction(moment, old.scale or 0)
    if isinstance(value, date):
        return f"{value.year:04d}-{value:%m-%d}"
    if isinstance(value, list):
        return "[" + ",".join(_shortest(item) for item in _plain_values(pa.array(value, pa.float32()))) + "]"
    if isinstance(value, float):
        return _shortest(Decimal(repr(value)))
    if old.type == "FLOAT":
        return _shortest(value)
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _shortest(value: Decimal) -> str:
    text = f"{value:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "-0" if text == "-0" else text


def _bytes(value: Any, old: Column, zone: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if old.type == "BIT":
        return int(value).to_bytes(((old.precision or 1) + 7) // 8, "big")
    return _text(value, old, zone).encode()


def _moment(value: datetime, old: Column, zone: str) -> datetime:
    """Return the naive time that the DDL's session sees."""
    if value.tzinfo is None:
        return value
    return value.astimezone(_zone(zone)).replace(tzinfo=None)


def _zone(name: str) -> Any:
    offset = re.fullmatch(r"([+-])(\d\d):(\d\d)", name)
    if name == "UTC" or offset is None:
        return timezone.utc if name == "UTC" else ZoneInfo(name)
    span = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
    return timezone(-span if offset[1] == "-" else span)


def _fraction(moment: datetime, digits: int) -> str:
    return f".{moment.microsecond:06d}"[: digits + 1] if digits else ""


def _rounded(moment: datetime, digits: int) -> datetime:
    """Round half up to so many fraction digits."""
    unit = 10 ** (6 - digits)
    rest = moment.microsecond % unit
    return moment + timedelta(microseconds=unit - rest if rest * 2 >= unit else -rest)


_DATED = re.compile(
    r"(\d{4}|\d\d)[^\d\s](\d{1,2})[^\d\s](\d{1,2})"
    r"(?:[ T]+(\d{1,2})(?:[^\d\s](\d{1,2})(?:[^\d\s](\d{1,2})(?:\.(\d*))?)?)?)?"
)
_PACKED = re.compile(r"(\d{4}|\d\d)(\d\d)(\d\d)(?:T?(\d\d)(\d\d)(\d\d)(?:\.(\d*))?)?")


def _point(value: Any, old: Column, zone: str) -> datetime | None:
    """Return a moment from any type; None for a zero date, which the lake keeps as NULL."""
    if isinstance(value, datetime):
        return _moment(value, old, zone)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if old.type == "TIME":
        raise TableHeld(
            "a TIME that becomes a date takes the day on which the DDL ran in its session, which no file tells. "
            "Rebuild the table from here.",
            column=old.name,
        )
    text = _text(value, old, zone).strip()
    if old.type not in (*_CHARACTER, *_BINARY, *_MEMBERS, "JSON"):
        text = _widened(text)
    found = _DATED.fullmatch(text) or _PACKED.fullmatch(text) or _PACKED.fullmatch(_widened(text))
    if found is None:
        raise ValueError(text)
    year, month, day = (int(part) for part in found.groups()[:3])
    hour, minute, second = (int(part or 0) for part in found.groups()[3:6])
    if len(found[1]) == 2:
        year += 2000 if year < 70 else 1900
    if not (month and day):
        return None
    digits = (found[7] or "").ljust(7, "0")
    micro = int(digits[:6]) + (digits[6] >= "5")
    return datetime(year, month, day, hour, minute, second) + timedelta(microseconds=micro)


def _widened(text: str) -> str:
    """Give a number that stands for a date its leading zeros: 6, 8, 12 or 14 digits."""
    whole, dot, fraction = text.partition(".")
    width = next((width for width in (6, 8, 12, 14) if len(whole) <= width), len(whole))
    return whole.zfill(width) + dot + fraction


# --- into each type ---------------------------------------------------------------------------------------------------


def _into_integer(value: Any, old: Column, new: Column, zone: str) -> Any:
    number = _number(value, old, zone)
    mode = ROUND_HALF_EVEN if isinstance(number, float) else ROUND_HALF_UP
    whole = Decimal(number).quantize(Decimal(1), mode, _EXACT)
    return whole if pa.types.is_decimal(arrow_type(new)) else int(whole)


def _into_year(value: Any, old: Column, new: Column, zone: str) -> int:
    if isinstance(value, date):
        moment = _point(value, old, zone)
        assert moment is not None
        return moment.year
    year = int(_into_integer(value, old, new, zone))
    short = isinstance(value, str) and len(value.strip()) <= 2
    if 0 < year < 100 or (short and year == 0):
        return year + (2000 if year < 70 else 1900)
    return year


def _into_bit(value: Any, old: Column, new: Column, zone: str) -> Any:
    if isinstance(value, str | bytes) and old.type not in _MEMBERS:
        number = int.from_bytes(_bytes(value, old, zone), "big")
    else:
        number = int(_into_integer(value, old, new, zone))
    kind = arrow_type(new)
    return bool(number) if kind == pa.bool_() else Decimal(number) if pa.types.is_decimal(kind) else number


def _into_decimal(value: Any, old: Column, new: Column, zone: str) -> Any:
    number = _number(value, old, zone)
    exact = Decimal(repr(number)) if isinstance(number, float) else number
    rounded = exact.quantize(Decimal(1).scaleb(-(new.scale or 0)), ROUND_HALF_UP, _EXACT)
    if pa.types.is_decimal(arrow_type(new)):
        return rounded
    return f"{rounded or abs(rounded):f}"


def _into_float(value: Any, old: Column, new: Column, zone: str) -> float:
    number = float(_number(value, old, zone))
    return round(number, new.scale) if new.scale is not None else number


def _into_text(value: Any, old: Column, new: Column, zone: str) -> str:
    text = _text(value, old, zone)
    return text.rstrip(" ") if new.type == "CHAR" else text


def _into_binary(value: Any, old: Column, new: Column, zone: str) -> bytes:
    raw = _bytes(value, old, zone)
    return raw.ljust(new.precision or 1, b"\0") if new.type == "BINARY" else raw


def _into_date(value: Any, old: Column, new: Column, zone: str) -> date | None:
    moment = _point(value, old, zone)
    return None if moment is None else moment.date()


def _into_datetime(value: Any, old: Column, new: Column, zone: str) -> datetime | None:
    moment = _point(value, old, zone)
    return None if moment is None else _rounded(moment, new.scale or 0)


def _into_timestamp(value: Any, old: Column, new: Column, zone: str) -> datetime | None:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return _rounded(value, new.scale or 0)
    moment = _point(value, old, zone)
    return (
        None
        if moment is None
        else _rounded(moment, new.scale or 0).replace(tzinfo=_zone(zone)).astimezone(timezone.utc)
    )


_CLOCK = re.compile(r"(-?)(?:(\d+) )?(?:(\d+):)?(\d{1,2}):(\d{1,2})(?:\.(\d*))?")


def _into_time(value: Any, old: Column, new: Column, zone: str) -> str:
    if isinstance(value, datetime):
        value = _text(value, old, zone).partition(" ")[2]
    elif isinstance(value, date):
        value = "00:00:00"
    text = _text(value, old, zone).strip()
    if " " in text and _DATED.fullmatch(text):
        text = text.partition(" ")[2]
    found = _CLOCK.fullmatch(text)
    if found is not None:
        sign, days, first, second, third, fraction = found.groups()
        hours, minutes, seconds = (first, second, third) if first else (second, third, "0")
        total = ((int(days or 0) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    else:
        sign, number, fraction = _packed_time(text)
        total = number // 10000 * 3600 + number // 100 % 100 * 60 + number % 100
    micro = Decimal(total) + Decimal(f"0.{fraction or 0}")
    scale = new.scale or 0
    exact = micro.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
    whole, rest = int(exact), f"{exact % 1:f}"[1:] if scale else ""
    return f"{sign if exact else ''}{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}{rest}"


def _packed_time(text: str) -> tuple[str, int, str]:
    """Read `HHMMSS[.f]`, the form of numbers."""
    found = re.fullmatch(r"(-?)(\d{1,7})(?:\.(\d*))?", text)
    if found is None:
        raise ValueError(text)
    return found[1], int(found[2]), found[3] or ""


def _into_enum(value: Any, old: Column, new: Column, zone: str) -> str:
    if isinstance(value, str | bytes):
        return _member(_text(value, old, zone), new)
    number = int(_into_integer(value, old, new, zone))
    return _elems(new)[number - 1] if number else ""


def _into_set(value: Any, old: Column, new: Column, zone: str) -> str:
    if isinstance(value, str | bytes):
        text = _text(value, old, zone)
        if new.elems is None or not text:
            return text
        named = {_member(part, new) for part in text.split(",")}
        return ",".join(member for member in new.elems if member in named)
    bits = int(_into_integer(value, old, new, zone))
    return ",".join(member for position, member in enumerate(_elems(new)) if bits >> position & 1)


def _member(text: str, column: Column) -> str:
    """Return the member as it is declared; texts match without regard to case and trailing spaces where need be."""
    if column.elems is None or text in column.elems:
        return text
    plain = {member.rstrip(" ").casefold(): member for member in reversed(column.elems)}
    if text.rstrip(" ").casefold() in plain:
        return plain[text.rstrip(" ").casefold()]
    if text.isdigit() and 1 <= int(text) <= len(column.elems):
        return column.elems[int(text) - 1]
    if not text:
        return ""
    raise ValueError(text)


def _into_json(value: Any, old: Column, new: Column, zone: str) -> str:
    if isinstance(value, str | bytes) and old.type in (*_CHARACTER, *_BINARY):
        return _json_text(json.loads(_text(value, old, zone), parse_float=_Literal, parse_int=_Literal))
    if isinstance(value, str | date):
        return json.dumps(_text(value, old, zone), ensure_ascii=False)
    return _text(value, old, zone)


class _Literal(str):
    """A number in JSON, digits as they came."""

    __slots__ = ()


def _json_text(value: Any) -> str:
    """Print as TiDB does: a space after colon and comma, members in the order of their names' bytes."""
    if isinstance(value, _Literal):
        return str(value)
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda item: item[0].encode())
        return "{" + ", ".join(f"{json.dumps(k, ensure_ascii=False)}: {_json_text(v)}" for k, v in members) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _into_vector(value: Any, old: Column, new: Column, zone: str) -> Any:
    done = values(pa.array([_text(value, old, zone)], pa.string()), new)
    if done.bad is not None:
        raise ValueError(value)
    return done.array[0].as_py()


_TARGETS: Mapping[str, Callable[[Any, Column, Column, str], Any]] = {
    **dict.fromkeys(_INTEGER, _into_integer),
    **dict.fromkeys(_CHARACTER, _into_text),
    **dict.fromkeys(_BINARY, _into_binary),
    "YEAR": _into_year,
    "BIT": _into_bit,
    "DECIMAL": _into_decimal,
    "FLOAT": _into_float,
    "DOUBLE": _into_float,
    "DATE": _into_date,
    "DATETIME": _into_datetime,
    "TIMESTAMP": _into_timestamp,
    "TIME": _into_time,
    "ENUM": _into_enum,
    "SET": _into_set,
    "JSON": _into_json,
    "VECTOR": _into_vector,
}
