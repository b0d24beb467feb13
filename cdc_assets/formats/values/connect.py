"""The values of connectors, by the schema of their field: data types of Debezium and of Connect's JsonConverter.

    Field                                    how the values of a column are written
    read_column(cells, field, column, mode)  -> values, as texts, bytes or numbers that the type table reads

Facts: Debezium's data type mappings, Connect's JsonConverter.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.json_records import cast_fitting, json_value, print_json, value_column
from cdc_assets.formats.records import CellKind, Marks, RecordColumn, bits
from cdc_assets.formats.values import (
    DOUBLE_DIGITS,
    FIRST_MICROS,
    GREATEST_FLOAT,
    LAST_MICROS,
    ColumnValues,
    OutOfRange,
    ReadCell,
    as_it_is,
    matching,
    moment_text,
    read_each,
    read_rest,
    whole,
)
from cdc_assets.model.schema import Column
from cdc_assets.types.connect_types import BITS, DECIMAL, GEOMETRIES, NO_WIDTH, STRUCTURED, VARIABLE_DECIMAL
from cdc_assets.types.conversions.moments import DAY_MICROS, time_text
from cdc_assets.types.families import BINARY, INTEGER

__all__ = ["CLOCKS", "COUNTS", "OUT_OF_RANGE", "STRUCTS", "Field", "is_binary", "read_bytes", "read_column"]

OUT_OF_RANGE = "infinity, a decimal that is not a number, or a year outside 0000 to 9999: NULL"

Readers = Mapping[CellKind, ReadCell]
"""Readers by the kind of a cell; a cell of any other kind is not a value of the field."""

_CONNECT, _TIME = "org.apache.kafka.connect.data", "io.debezium.time"
_UNSIGNED = (1 << 64) - 1
_WIDE = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_MOST_PLACES = 1 << 18
"""More places, before and behind the point, than a number of any database has."""
_MOST_SCALE, _MOST_DIGITS = 18, 38


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a schema block: its type, its logical name ("" for none), and what its parameters say.

    `items` is the type of an array's elements; `default` is the text of its cell, None for none.
    """

    type: str
    name: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    optional: bool = True
    items: Field | None = None
    default: str | None = None

    @property
    def meaning(self) -> str:
        """The logical name, or for a plain field its type."""
        return self.name or self.type


def is_binary(column: Column) -> bool:
    """Return whether the lake keeps bytes of a column."""
    return column.type in BINARY or column.type == "bytes"


def read_column(
    cells: RecordColumn, field: Field, column: Column, binary: str, *, in_texts: bool = False
) -> ColumnValues:
    """Return the values of a field for a column; numbers only unless they are wanted `in_texts`.

    `binary` is the connector's `binary.handling.mode`.
    """
    readers = _readers(field, column, binary)
    if not cells.given.any():
        return read_each(cells, readers)
    together = None if in_texts else _together(field, column)
    if together is not None:
        array, is_read = together(cells)
        if array.type == pa.string() or is_read[cells.given].all():
            return read_rest(cells, is_read, array, readers)
    return read_each(cells, readers, pa.binary() if is_binary(column) else None)


def _readers(field: Field, column: Column, binary: str) -> Readers:
    """Return the readers of a field's cells, one by one."""
    meaning, number, text, json = field.meaning, CellKind.NUMBER, CellKind.TEXT, CellKind.JSON
    if is_binary(column) and field.type == "string":
        return {text: read_bytes(field, binary)}
    if column.type == "BIT" or meaning == BITS:
        return {CellKind.BOOL: _digit_of_bool, text: partial(_bits, column=column)}
    if meaning == DECIMAL:
        scale = int(field.parameters.get("scale", column.scale or 0))
        scaled = lambda value: _number_text(Decimal(_signed(value)).scaleb(-scale, _WIDE), column)  # noqa: E731
        digits = lambda value: _number_text(Decimal(value), column)  # noqa: E731  # decimal.format = NUMERIC
        return {text: scaled, number: digits, json: lambda value: _number_text(_variable(value), column)}
    if meaning == VARIABLE_DECIMAL:
        return {json: lambda value: _number_text(_variable(value), column)}
    if meaning in COUNTS:
        times, over = COUNTS[meaning]
        return {number: lambda value: _moment(_count(value) * times // over, column)}
    if meaning in CLOCKS:
        kind, micros = CLOCKS[meaning]
        return {kind: lambda value: _clock(micros(value), column)}
    if meaning in STRUCTS:
        return {json: lambda value: STRUCTS[meaning](json_value(value), column)}
    if column.type == "TINYINT":  # BOOLEAN is another name of it, and its values come as true and false
        return {**_plain(field, column), CellKind.BOOL: _digit_of_bool}
    if column.type in ("ENUM", "SET") and column.elems:
        return {text: partial(_member, members=frozenset(column.elems))}
    if column.type == "YEAR":
        return {number: _year}
    if meaning in _BY_MEANING:
        return _BY_MEANING[meaning]
    if field.type in ("array", "map", "struct"):
        return _nested(field, binary)
    return _plain(field, column)


def _plain(field: Field, column: Column) -> Readers:
    """Return the readers of a field whose type says all."""
    if column.type in ("DECIMAL", DECIMAL) and field.type in ("double", "string"):
        return {
            CellKind.NUMBER: lambda value: _number_text(Decimal(_shortest(value)), column, rounds=True),
            CellKind.TEXT: lambda value: _number_text(Decimal(value), column),
        }
    if field.type == "boolean":
        return {CellKind.BOOL: as_it_is}
    if field.type in _BITS:
        most, wraps = 1 << _BITS[field.type] - 1, column.unsigned and column.type == "BIGINT"
        return {CellKind.NUMBER: partial(_within, most=most, wraps=wraps)}
    if field.type in ("double", "float64"):
        return {CellKind.NUMBER: _shortest, CellKind.TEXT: _not_finite}
    if field.type in ("float", "float32"):
        return {CellKind.NUMBER: _single, CellKind.TEXT: _not_finite}
    return {CellKind.TEXT: _from_base64 if field.type == "bytes" else as_it_is}


# --- cells one by one -------------------------------------------------------------------------------------------------

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
"""Integer types of Connect, which are all signed."""


def _within(value: str, most: int, wraps: bool) -> str:
    number = whole(value)
    if not -most <= number < most:
        raise ValueError(value)
    return str(number & _UNSIGNED if wraps else number)


def _year(value: str) -> str:
    """A YEAR is 0 or 1901 to 2155; connectors reckon from 1900, and send 0 as that."""
    year = whole(value)
    return "0" if year == 1900 else str(year)


def _digit_of_bool(value: str) -> str:
    return str(int(value == "true"))


def _shortest(value: str) -> str:
    """Return a number with the fewest digits of its double; a whole one with its own."""
    return repr(float(value)) if {*value} & {*".eE"} else value


def _single(value: str) -> str:
    if abs(float(value)) > GREATEST_FLOAT:
        raise ValueError(value)
    return _shortest(value)


def _not_finite(value: str) -> str:
    if value not in ("NaN", "Infinity", "-Infinity"):
        raise ValueError(value)
    return value


def _from_base64(value: str) -> bytes:
    return base64.b64decode(value, validate=True)


_MODES: Mapping[str, Callable[[str], bytes]] = {
    "bytes": _from_base64,
    "base64": _from_base64,
    "base64-url-safe": lambda value: base64.b64decode(value, altchars=b"-_", validate=True),
    "hex": bytes.fromhex,
}
"""`binary.handling.mode` -> what reads its texts."""


def read_bytes(field: Field, binary: str) -> Callable[[str], bytes]:
    """Return the reader of the texts of a field of bytes; it is equal where they are read equally."""
    return _MODES[binary] if field.type == "string" else _from_base64


def _member(value: str, members: frozenset[str]) -> str:
    """Return the names of members; a comma in one has a backslash before it in rows of the log."""
    plain = value.replace("\\,", ",")
    return plain if value not in members and plain in members else value


def _bits(value: str, column: Column) -> str | bytes:
    number, width = int.from_bytes(_from_base64(value), "little"), column.precision or 64
    if number >> width:
        raise ValueError(value)
    if column.type != BITS or width <= 64:
        return str(number)
    size = (number.bit_length() + 7) // 8 if width >= NO_WIDTH else (width + 7) // 8
    return number.to_bytes(max(1, size), "big")


def _signed(value: str) -> int:
    return int.from_bytes(_from_base64(value), "big", signed=True)


def _variable(value: str) -> Decimal:
    """A number with its scale: of a numeric without one, or as before a numeric got it."""
    struct = json_value(value)
    if type(struct["value"]) is not str or type(struct["scale"]) is str:
        raise TypeError(value)
    return Decimal(_signed(struct["value"])).scaleb(-whole(struct["scale"]), _WIDE)


def _number_text(number: Decimal, column: Column, *, rounds: bool = False) -> str:
    """Print a number for its column: with the digits of its scale where the type has one.

    A number may have more of them where the source `rounds`, as doubles do that have as many digits as they can.
    """
    if not number.is_finite():
        raise OutOfRange
    if abs(number.adjusted()) > _MOST_PLACES:
        raise ValueError(number)
    if column.type in INTEGER:
        if number != int(number):
            raise ValueError(number)
        return str(int(number))
    if column.type not in ("DECIMAL", DECIMAL):
        return format(number, "f")
    decimal = number.quantize(Decimal(1).scaleb(-(column.scale or 0)), ROUND_HALF_UP, _WIDE)
    if decimal != number and not (rounds and len(number.as_tuple().digits) > DOUBLE_DIGITS):
        raise ValueError(number)
    return format(decimal or decimal.copy_abs(), "f")


_ENDLESS = (1 << 63) - 1


def _count(value: str) -> int:
    """Return a count since 1970; infinity is the greatest or least number, also of nanoseconds, which end in 2262."""
    count = whole(value)
    if abs(count) >= _ENDLESS:
        raise OutOfRange
    return count


def _moment(micros: int, column: Column) -> str:
    moment = moment_text(micros)
    return moment[:10] if _is_date(column) else moment


def _is_date(column: Column) -> bool:
    """Return whether a column has days without a time."""
    return column.type == "DATE" or column.type.endswith("Date")


COUNTS: Mapping[str, tuple[int, int]] = {
    f"{_CONNECT}.Date": (DAY_MICROS, 1),
    f"{_TIME}.Date": (DAY_MICROS, 1),
    f"{_CONNECT}.Timestamp": (1000, 1),
    f"{_TIME}.Timestamp": (1000, 1),
    f"{_TIME}.MicroTimestamp": (1, 1),
    f"{_TIME}.NanoTimestamp": (1, 1000),
}
"""Logical name of a count since 1970 -> by what it is to be multiplied and divided to be microseconds."""

_CLOCK = re.compile(r"(-?)(\d{1,3}):(\d\d):(\d\d)(?:\.(\d{1,9}))?Z?", re.ASCII)


def _iso_clock(value: str) -> int:
    match = _CLOCK.fullmatch(value)
    if match is None:
        raise ValueError(value)
    micros = ((int(match[2]) * 60 + int(match[3])) * 60 + int(match[4])) * 1_000_000
    micros += int((match[5] or "").ljust(6, "0")[:6])
    return -micros if match[1] else micros


CLOCKS: Mapping[str, tuple[CellKind, Callable[[str], int]]] = {
    f"{_CONNECT}.Time": (CellKind.NUMBER, lambda value: whole(value) * 1000),
    f"{_TIME}.Time": (CellKind.NUMBER, lambda value: whole(value) * 1000),
    f"{_TIME}.MicroTime": (CellKind.NUMBER, whole),
    f"{_TIME}.NanoTime": (CellKind.NUMBER, lambda value: whole(value) // 1000),
    f"{_TIME}.IsoTime": (CellKind.TEXT, _iso_clock),
}
"""Logical name -> the kind of its values, and what makes them microseconds of a day, or of a span."""


def _clock(micros: int, column: Column) -> str:
    if column.type == "TIME":
        return time_text(micros, column.scale or 0)
    return time_text(micros, 6).rstrip("0").rstrip(".") if micros % 1_000_000 else time_text(micros, 0)


_ISO = re.compile(
    r"([+-]?\d{4,})-(\d\d)-(\d\d)(?:T(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?)?"
    r"(?:Z|(?P<zone>[+-]\d\d)(?::?(?P<minutes>\d\d))?(?::?(?P<seconds>\d\d))?)?",
    re.ASCII,
)


def _iso(text: str) -> str:
    """Turn an ISO 8601 moment, in UTC or with its offset from it, into the text of a date and time in UTC."""
    if text.lstrip("-") == "infinity":
        raise OutOfRange
    match = _ISO.fullmatch(text.removesuffix(" BC"))
    if match is None:
        raise ValueError(text)
    if text.endswith(" BC") or not 0 <= int(match[1]) <= 9999:
        raise OutOfRange
    moment = f"{int(match[1]):04d}-{match[2]}-{match[3]} {match[4] or '00:00:00'}.{(match[5] or '').ljust(6, '0')[:6]}"
    zone = match["zone"] or "+00"
    offset = (int(zone[1:]) * 60 + int(match["minutes"] or 0)) * 60 + int(match["seconds"] or 0)
    if offset and match[4] is None:
        raise ValueError(text)
    return _in_utc(moment, -offset if zone[0] == "-" else offset)


def _in_utc(moment: str, offset_seconds: int) -> str:
    """Return a date and time of a zone, which is so far ahead of UTC, in UTC."""
    if not offset_seconds:
        return moment
    micros = int(np.datetime64(moment.replace(" ", "T"), "us").astype(np.int64))
    return moment_text(micros - offset_seconds * 1_000_000)


# --- structs ----------------------------------------------------------------------------------------------------------

_Struct = Mapping[str, Any]


def _date_of(held: _Struct) -> str:
    if held.get("specialValue") is not None:
        raise OutOfRange
    year, month, day = (whole(held[name]) for name in ("year", "month", "day"))
    if not 0 <= year <= 9999:
        raise OutOfRange
    return f"{year:04d}-{month:02d}-{day:02d}"


def _clock_of(held: _Struct) -> str:
    hour, minute, second = (whole(held[name]) for name in ("hour", "minute", "second"))
    return f"{hour:02d}:{minute:02d}:{second:02d}.{_picoseconds(held) // 1_000_000:06d}"


def _picoseconds(held: _Struct) -> int:
    """Return the part of a second, which older versions of connectors have in nanoseconds."""
    return whole(held["picoseconds"]) if "picoseconds" in held else whole(held["nanos"]) * 1000


def _moment_of(held: _Struct, column: Column) -> str:
    return f"{_date_of(held)} {_clock_of(held)}"


def _instant_of(held: _Struct, column: Column) -> str:
    moment = _moment_of(held, column)  # of infinity, the offset is NULL too
    return _in_utc(moment, whole(held["offsetSeconds"]))


def _time_of(held: _Struct, column: Column) -> str:
    return _clock(_iso_clock(_clock_of(held)), column)


def _zoned_time_of(held: _Struct, column: Column) -> str:
    """Return a time with its offset as the other modes send it."""
    offset = whole(held["offsetSeconds"])
    hours, minutes = divmod(abs(offset) // 60, 60)
    return _time_of(held, column) + (f"{'-' if offset < 0 else '+'}{hours:02d}:{minutes:02d}" if offset else "Z")


def _span_of(held: _Struct, column: Column) -> str:
    """Return a span: of MySQL's TIME as such, else in ISO 8601 as `interval.handling.mode` = string has it."""
    held = {name: value or "0" for name, value in held.items()}
    names = ("years", "months", "days", "hours", "minutes", "seconds")
    years, months, days, hours, minutes, seconds = (whole(held[name]) for name in names)
    picoseconds = _picoseconds(held)
    micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int(picoseconds / 1_000_000)
    if column.type == "TIME":
        return _clock(micros + days * DAY_MICROS, column)
    text = format(Decimal(seconds) + Decimal(picoseconds).scaleb(-12), "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"P{years}Y{months}M{days}DT{hours}H{minutes}M{text}S"


STRUCTS: Mapping[str, Callable[[_Struct, Column], str]] = {
    f"{STRUCTURED}Date": lambda held, _: _date_of(held),
    f"{STRUCTURED}Time": _time_of,
    f"{STRUCTURED}Timestamp": _moment_of,
    f"{STRUCTURED}ZonedTime": _zoned_time_of,
    f"{STRUCTURED}ZonedTimestamp": _instant_of,
    f"{STRUCTURED}Duration": _span_of,
}
"""Logical name of a moment or span that is a struct -> what makes a text of it."""


def _geometry(value: str) -> bytes:
    held = json_value(value)["wkb"]
    if type(held) is not str:
        raise TypeError(value)
    return _from_base64(held)


_INSTANTS = (f"{_TIME}.ZonedTimestamp", f"{_TIME}.IsoTimestamp")
_BY_MEANING: Mapping[str, Readers] = {
    **{key: {CellKind.TEXT: _iso} for key in _INSTANTS},
    f"{_TIME}.IsoDate": {CellKind.TEXT: lambda value: _iso(value)[:10]},
    f"{_TIME}.NanoDuration": {CellKind.NUMBER: lambda value: str(whole(value) // 1000)},
    **{key: {CellKind.JSON: _geometry} for key in GEOMETRIES},
}


def _nested(field: Field, binary: str) -> Readers:
    """Values in values are printed as JSON."""
    if field.items is None:
        scalars = dict.fromkeys((CellKind.NUMBER, CellKind.BOOL, CellKind.JSON), as_it_is)
        return {**scalars, CellKind.TEXT: print_json}
    element = field.items
    own = Column("", element.meaning, scale=int(element.parameters.get("scale", 0)))
    readers = _readers(element, own, binary)
    plain = element.meaning in ("boolean", "int8", "int16", "int32", "int64", "float", "double", "array")

    def elements(value: str) -> str:
        held: Any = json_value(value)
        if not isinstance(held, list):
            raise TypeError(value)
        if plain:
            return value
        cells, shown, is_whole = value_column(held), list[str | None](), True
        for kind, text in zip(cells.kinds.tolist(), cells.texts.to_pylist(), strict=True):
            try:
                shown.append(None if text is None else _shown(readers[CellKind(kind)](text)))
            except OutOfRange as error:
                shown.append(error.rest)
                is_whole = False
        if not is_whole:
            raise OutOfRange(print_json(shown))
        return print_json(shown)

    return {CellKind.JSON: elements}


def _shown(value: str | bytes) -> str:
    return value if isinstance(value, str) else base64.b64encode(value).decode()


# --- cells together ---------------------------------------------------------------------------------------------------

_Together = Callable[[RecordColumn], tuple[pa.Array, Marks]]
"""A reader of the plain cells of a column that also marks them; the others are null."""

_DOUBLES = ("DOUBLE", "double", "float64")
_INSTANT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z$"


def _together(field: Field, column: Column) -> _Together | None:
    meaning = field.meaning
    if meaning in _BITS and column.type in (*INTEGER, *_BITS):
        least = 0 if column.unsigned else -(1 << _BITS[meaning] - 1)
        return partial(_integers, least=least, most=(1 << _BITS[meaning] - 1) - 1)
    if meaning == "double" and column.type in _DOUBLES:
        return _doubles
    if meaning == DECIMAL and column.type in ("DECIMAL", DECIMAL) and (column.precision or 0) <= _MOST_DIGITS:
        scale = field.parameters.get("scale", "")
        if scale.isdecimal() and int(scale) == (column.scale or 0) and int(scale) <= _MOST_SCALE:
            return partial(_decimals, scale=int(scale))
    if meaning in COUNTS:
        return partial(_moments, meaning=meaning, column=column)
    if meaning in _INSTANTS and column.type in ("TIMESTAMP", "DATETIME", *_INSTANTS):
        return _instants
    return None


def _numbers(cells: RecordColumn) -> tuple[pa.StringArray, pa.Int64Array, Marks]:
    """Return whole numbers as texts and numbers, and which of the cells are such."""
    is_read = cells.are(CellKind.NUMBER)
    texts = cells.only(is_read)
    numbers, fits = cast_fitting(texts, pa.int64(), r"^-?[0-9]{1,18}$")
    return texts, numbers, is_read & fits


def _integers(cells: RecordColumn, least: int, most: int) -> tuple[pa.Array, Marks]:
    texts, numbers, is_read = _numbers(cells)
    low, high = pc.min_max(numbers).as_py().values()
    if low is not None and (low < least or high > most):
        is_read &= bits(pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, most)))
    if low is not None and low <= 0:
        is_read &= ~bits(pc.equal(texts, "-0"))
    return texts, is_read


def _doubles(cells: RecordColumn) -> tuple[pa.Array, Marks]:
    is_read = cells.are(CellKind.NUMBER) & ~bits(pc.equal(cells.texts, "-0"))
    numbers = cells.only(is_read).cast(pa.float64())
    return numbers, is_read & bits(pc.is_finite(numbers))


def _moments(cells: RecordColumn, meaning: str, column: Column) -> tuple[pa.Array, Marks]:
    """Counts since 1970 as texts of moments, or of dates."""
    _, numbers, is_read = _numbers(cells)
    is_read &= bits(pc.is_valid(numbers))
    counts, (times, over) = numbers.fill_null(0).to_numpy(), COUNTS[meaning]
    is_read &= (counts > -_ENDLESS) & (counts < _ENDLESS)
    counts = counts // over if over > 1 else counts
    is_read &= (counts >= FIRST_MICROS // times) & (counts <= LAST_MICROS // times)
    moments = pa.array(np.where(is_read, counts, 0) * times, pa.int64(), mask=~is_read).cast(pa.timestamp("us"))
    return (moments.cast(pa.date32(), safe=False) if _is_date(column) else moments).cast(pa.string()), is_read


def _instants(cells: RecordColumn) -> tuple[pa.Array, Marks]:
    is_read = matching(cells, CellKind.TEXT, _INSTANT)
    plain = pc.utf8_replace_slice(pc.utf8_slice_codeunits(cells.only(is_read), 0, -1), 10, 11, " ")
    dotted = pc.if_else(pc.equal(pc.binary_length(plain), 19), pc.binary_join_element_wise(plain, "", "."), plain)
    return pc.ascii_rpad(dotted, 26, "0"), is_read


def _decimals(cells: RecordColumn, scale: int) -> tuple[pa.Array, Marks]:
    """Numbers of up to eight bytes, in base64."""
    numbers, is_read = cells.base64_numbers()
    parts = np.stack([numbers, numbers >> 63], axis=1)
    array = pa.Array.from_buffers(pa.decimal128(38, scale), len(numbers), [None, pa.py_buffer(parts)])
    return pc.if_else(pa.array(is_read), array, pa.scalar(None, array.type)), is_read
