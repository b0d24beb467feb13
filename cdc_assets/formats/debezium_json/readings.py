"""Values of connectors' messages, by the schema of their field -> texts and bytes as the type table reads them.

    reader_of(field, column, settings) -> (value -> text or bytes)
    read_marked(read, value, place, wrong, ranged) -> text or bytes; None, and a mark, where the value is not right

A reader raises ValueError or TypeError for what is not a value of its field, and OutOfRange for one that the lake does
not keep. Facts: Debezium's data type mappings, Connect's JsonConverter.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from cdc_assets.formats.debezium_json.envelope import Field
from cdc_assets.formats.debezium_json.settings import ConnectorSettings
from cdc_assets.formats.values import OutOfRange
from cdc_assets.model.schema import Column
from cdc_assets.types.connect_types import BITS, DECIMAL, GEOMETRIES, VARIABLE_DECIMAL
from cdc_assets.types.conversions.moments import Moment, time_text
from cdc_assets.types.families import BINARY, INTEGER

__all__ = [
    "COUNTS",
    "FIRST_MICROS",
    "LAST_MICROS",
    "TROUBLE",
    "Read",
    "is_binary",
    "is_date",
    "read_marked",
    "read_text",
    "reader_of",
]

Read = Callable[[Any], "str | bytes"]

_CONNECT, _TIME = "org.apache.kafka.connect.data", "io.debezium.time"
_DAY = 86_400_000_000
FIRST_MICROS, LAST_MICROS = -719_528 * _DAY, 2_932_897 * _DAY - 1
"""The years 0000 to 9999, in microseconds since 1970."""
TROUBLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, ArithmeticError)
"""What a message raises that is not what it should be."""
_UNSIGNED = (1 << 64) - 1
_WIDE = Context(prec=400)
_GREATEST_FLOAT = 3.4028235677973366e38


def is_binary(column: Column) -> bool:
    """Return whether the lake keeps bytes of a column."""
    return column.type in BINARY or column.type == "bytes"


def reader_of(field: Field, column: Column, settings: ConnectorSettings) -> Read:
    """Return what reads the values of a field into a column."""
    meaning = field.meaning
    if is_binary(column) and field.type == "string":
        return _STRINGS[settings.binary]
    if column.type == "BIT" or meaning == BITS:
        return lambda value: _bits(value, column)
    if meaning == DECIMAL:
        scale = int(field.parameters.get("scale", column.scale or 0))
        return lambda value: _number_text(_scaled(value, scale), column)
    if meaning == VARIABLE_DECIMAL:
        return lambda value: _number_text(_variable(value), column)
    if meaning in COUNTS:
        times, over = COUNTS[meaning]
        return lambda value: _moment(_whole(value) * times // over, column)
    if meaning in CLOCKS:
        read = CLOCKS[meaning]
        return lambda value: _clock(read(value), column)
    if column.type == "TINYINT":  # BOOLEAN is another name of it, and its values come as true and false
        plain = _plain(field, column)
        return lambda value: str(int(value)) if isinstance(value, bool) else plain(value)
    if column.type in ("ENUM", "SET") and column.elems:
        members = frozenset(column.elems)
        return lambda value: _member(read_text(value), members)
    if column.type == "YEAR":
        return _year
    if meaning in _TEXTS:
        return _TEXTS[meaning]
    if field.type in ("array", "map", "struct"):
        return _nested(field, settings)
    return _plain(field, column)


def read_marked(read: Read, value: Any, place: int, wrong: list[bool], ranged: list[bool]) -> str | bytes | None:
    """Read a value; one that is not of its field is marked in `wrong`, one that the lake does not keep in `ranged`."""
    try:
        return read(value)
    except OutOfRange:
        ranged[place] = True
    except TROUBLE:
        wrong[place] = True
    return None


def _plain(field: Field, column: Column) -> Read:
    """Return the reader of a field whose type says all."""
    if column.type in ("DECIMAL", DECIMAL) and field.type in ("double", "string"):
        return lambda value: _number_text(_decimal(value), column)
    if field.type == "boolean":
        return _boolean
    if field.type in _BITS:
        most = 1 << _BITS[field.type] - 1
        if column.unsigned and column.type == "BIGINT":
            return lambda value: str(_within(value, most) & _UNSIGNED)
        return lambda value: str(_within(value, most))
    if field.type in ("double", "float64"):
        return _float
    if field.type in ("float", "float32"):
        return _single
    return _from_base64 if field.type == "bytes" else read_text


# --- plain values -----------------------------------------------------------------------------------------------------


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
"""Integer types of Connect, which are all signed."""


def _within(value: Any, most: int) -> int:
    found = _whole(value)
    if not -most <= found < most:
        raise ValueError(value)
    return found


def _year(value: Any) -> str:
    """A YEAR is 0 or 1901 to 2155; connectors reckon from 1900, and send 0 as that."""
    found = _whole(value)
    return "0" if found == 1900 else str(found)


def _boolean(value: Any) -> str:
    if not isinstance(value, bool):
        raise TypeError(value)
    return "true" if value else "false"


def _float(value: Any) -> str:
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return repr(value)


def _single(value: Any) -> str:
    text = _float(value)
    if not isinstance(value, str) and abs(value) > _GREATEST_FLOAT:
        raise ValueError(value)
    return text


def read_text(value: Any) -> str:
    """Return a text as it is."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _from_base64(value: Any) -> bytes:
    return base64.b64decode(read_text(value), validate=True)


def _from_url_safe(value: Any) -> bytes:
    return base64.b64decode(read_text(value), altchars=b"-_", validate=True)


_STRINGS: Mapping[str, Read] = {
    "bytes": _from_base64,
    "base64": _from_base64,
    "base64-url-safe": _from_url_safe,
    "hex": lambda value: bytes.fromhex(read_text(value)),
}
"""`binary.handling.mode` -> what reads its texts."""


def _member(value: str, members: frozenset[str]) -> str:
    """Return the names of members; a comma in one has a backslash before it in rows of the log."""
    if value in members:
        return value
    plain = value.replace("\\,", ",")
    return plain if plain in members else value


def _bits(value: Any, column: Column) -> str | bytes:
    if isinstance(value, bool):
        return str(int(value))
    number = int.from_bytes(_from_base64(value), "little")
    width = column.precision or 64
    if number >> width:
        raise ValueError(value)
    if column.type != BITS or width <= 64:
        return str(number)
    size = (number.bit_length() + 7) // 8 if width >= _NO_WIDTH else (width + 7) // 8
    return number.to_bytes(max(1, size), "big")


_NO_WIDTH = (1 << 31) - 1
"""The width of a BIT VARYING that has none."""


# --- decimals ---------------------------------------------------------------------------------------------------------


def _signed(value: Any) -> int:
    return int.from_bytes(_from_base64(value), "big", signed=True)


def _scaled(value: Any, scale: int) -> Decimal:
    """A number with the scale of its type; an object brings its own, as before a numeric got a scale."""
    return _variable(value) if isinstance(value, dict) else Decimal(_signed(value)).scaleb(-scale, _WIDE)


def _variable(value: Any) -> Decimal:
    return Decimal(_signed(value["value"])).scaleb(-_whole(value["scale"]), _WIDE)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(value)
    return Decimal(repr(value) if isinstance(value, float) else value)


def _number_text(number: Decimal, column: Column) -> str:
    """Print a number for its column: with the digits of its scale where the type has one."""
    if not number.is_finite():
        raise OutOfRange
    if column.type in INTEGER:
        return str(int(number))
    if column.type not in ("DECIMAL", DECIMAL):
        return format(number, "f")
    found = number.quantize(Decimal(1).scaleb(-(column.scale or 0)), ROUND_HALF_UP, _WIDE)
    if found != number and _digits(number) <= _DOUBLE_DIGITS:
        raise ValueError(number)
    return format(found or found.copy_abs(), "f")


_DOUBLE_DIGITS = 15
"""Digits that a double holds for sure: a number that was sent as one and has more of them is rounded to its type."""


def _digits(number: Decimal) -> int:
    return len(number.as_tuple().digits)


# --- dates and times --------------------------------------------------------------------------------------------------


def _moment(micros: int, column: Column) -> str:
    if not FIRST_MICROS <= micros <= LAST_MICROS:
        raise OutOfRange
    found = Moment(micros)
    return found.date_text() if is_date(column) else found.text(6)


def is_date(column: Column) -> bool:
    """Return whether a column has days without a time."""
    return column.type == "DATE" or column.type.endswith("Date")


COUNTS: Mapping[str, tuple[int, int]] = {
    f"{_CONNECT}.Date": (_DAY, 1),
    f"{_TIME}.Date": (_DAY, 1),
    f"{_CONNECT}.Timestamp": (1000, 1),
    f"{_TIME}.Timestamp": (1000, 1),
    f"{_TIME}.MicroTimestamp": (1, 1),
    f"{_TIME}.NanoTimestamp": (1, 1000),
}
"""Logical name of a count since 1970 -> by what it is to be multiplied and divided to be microseconds."""

_CLOCK = re.compile(r"(-?)(\d{1,3}):(\d\d):(\d\d)(?:\.(\d{1,9}))?Z?")


def _iso_clock(value: Any) -> int:
    found = _CLOCK.fullmatch(read_text(value))
    if found is None:
        raise ValueError(value)
    micros = ((int(found[2]) * 60 + int(found[3])) * 60 + int(found[4])) * 1_000_000
    micros += int((found[5] or "").ljust(6, "0")[:6])
    return -micros if found[1] else micros


CLOCKS: Mapping[str, Callable[[Any], int]] = {
    f"{_CONNECT}.Time": lambda value: _whole(value) * 1000,
    f"{_TIME}.Time": lambda value: _whole(value) * 1000,
    f"{_TIME}.MicroTime": _whole,
    f"{_TIME}.NanoTime": lambda value: _whole(value) // 1000,
    f"{_TIME}.IsoTime": _iso_clock,
}
"""Logical name -> microseconds of a day, or of a span."""


def _clock(micros: int, column: Column) -> str:
    if column.type == "TIME":
        return time_text(micros, column.scale or 0)
    return time_text(micros, 6).rstrip("0").rstrip(".") if micros % 1_000_000 else time_text(micros, 0)


_ISO = re.compile(
    r"([+-]?\d{4,})-(\d\d)-(\d\d)(?:T(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)


def _iso_date(value: Any) -> str:
    return _iso(value)[:10]


def _iso(value: Any) -> str:
    """Turn an ISO 8601 moment in UTC into the text of a date and time."""
    text = read_text(value)
    if text.lstrip("-") == "infinity":
        raise OutOfRange
    found = _ISO.fullmatch(text.removesuffix(" BC"))
    if found is None or (found[6] or "Z") not in ("Z", "+00", "+00:00", "+0000"):
        raise ValueError(value)
    if text.endswith(" BC") or not 0 <= int(found[1]) <= 9999:
        raise OutOfRange
    return f"{int(found[1]):04d}-{found[2]}-{found[3]} {found[4] or '00:00:00'}.{(found[5] or '').ljust(6, '0')[:6]}"


_TEXTS: Mapping[str, Read] = {
    f"{_TIME}.ZonedTimestamp": _iso,
    f"{_TIME}.IsoTimestamp": _iso,
    f"{_TIME}.IsoDate": _iso_date,
    f"{_TIME}.NanoDuration": lambda value: str(_whole(value) // 1000),
    **dict.fromkeys(GEOMETRIES, lambda value: _from_base64(value["wkb"])),
}


# --- values in values -------------------------------------------------------------------------------------------------


def _nested(field: Field, settings: ConnectorSettings) -> Read:
    if field.items is None:
        return lambda value: _as_json(value)
    element = field.items
    read = reader_of(element, Column("", element.meaning, scale=int(element.parameters.get("scale", 0))), settings)
    plain = element.meaning in ("boolean", "int8", "int16", "int32", "int64", "float", "double", "array")

    def elements(value: Any) -> str:
        if not isinstance(value, list):
            raise TypeError(value)
        return _as_json([None if one is None else one if plain else _shown(read(one)) for one in value])

    return elements


def _shown(value: str | bytes) -> str:
    return value if isinstance(value, str) else base64.b64encode(value).decode()


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
