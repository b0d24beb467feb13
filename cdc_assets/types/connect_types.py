"""The type table of Kafka Connect and Debezium: schema names -> Arrow, and what is lost.

`Column.type` is the logical name of a schema (`io.debezium.time.Date`), or for a plain one its type (`int32`). Which
of several encodings a value comes in (a decimal as base64, text or double) is the wire's business; here its meaning
counts. Facts: Debezium's data type mappings, `org.apache.kafka.connect.data`.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from cdc_assets.model.schema import Column
from cdc_assets.types import mysql_values as read
from cdc_assets.types.mysql_values import TextSettings, Values
from cdc_assets.types.rules import (
    BYTES,
    TEXT,
    Grade,
    TypeRule,
    always,
    decimal_rule,
    graded,
    number_rule,
    text_rule,
    utc_rule,
)

CONNECT = "org.apache.kafka.connect.data"
TIME, DATA = "io.debezium.time", "io.debezium.data"
STRUCTURED = f"{TIME}.Structured"
"""Prefixes of the names of time structs: `time.precision.mode` = structured."""
DECIMAL, VARIABLE_DECIMAL, BITS = f"{CONNECT}.Decimal", f"{DATA}.VariableScaleDecimal", f"{DATA}.Bits"
NO_WIDTH = (1 << 31) - 1
"""The width of a BIT VARYING that has none."""
GEOMETRIES = tuple(f"{DATA}.geometry.{name}" for name in ("Geometry", "Geography", "Point"))

_DATES = graded(Grade.CHANGED, "exact; infinity and years outside 0000 to 9999 become null and are counted")
_NANOS = graded(Grade.CHANGED, "cut to microseconds; years outside 0000 to 9999 become null and are counted")
_CLOCK = graded(Grade.TEXT, "as text, hours first")
_JSON = graded(Grade.TEXT, "as JSON text")


def _bits(column: Column) -> pa.DataType:
    width = column.precision or 64
    return pa.int64() if width <= 63 else pa.decimal128(20, 0) if width == 64 else pa.binary()


def _read_bits(texts: pa.Array, settings: TextSettings) -> Values:
    return (read.parse_binary if pa.types.is_binary(settings.lake) else read.parse_number)(texts, settings)


def _time_point(kind: pa.DataType, loss: str = "") -> TypeRule:
    return TypeRule(
        lake=always(kind), parse=read.parse_time_point, fidelity=_NANOS if loss else _DATES, zero=lambda _: "1970-01-01"
    )


_GEOMETRY = TypeRule(
    lake=always(pa.binary()),
    parse=read.parse_binary,
    fidelity=graded(Grade.CHANGED, "its WKB bytes; the number of its reference system (srid) is left out"),
    zero=lambda _: b"",
)
_INT, _LONG = number_rule(pa.int32()), number_rule(pa.int64())
_FLOAT, _DOUBLE = number_rule(pa.float32()), number_rule(pa.float64())
_DATE, _DATETIME, _NANO = (
    _time_point(pa.date32()),
    _time_point(pa.timestamp("us")),
    _time_point(pa.timestamp("us"), "ns"),
)

CONNECT_TYPES: Mapping[str, TypeRule] = {
    "boolean": number_rule(pa.bool_()),
    **dict.fromkeys(("int8", "int16", "int32", f"{TIME}.Year"), _INT),
    **dict.fromkeys(("int64", f"{TIME}.MicroDuration"), _LONG),
    **dict.fromkeys(("float", "float32"), _FLOAT),
    **dict.fromkeys(("double", "float64"), _DOUBLE),
    "string": TEXT,
    "bytes": BYTES,
    **dict.fromkeys(("array", "map", "struct"), text_rule(_JSON)),
    DECIMAL: decimal_rule(),
    VARIABLE_DECIMAL: text_rule(graded(Grade.TEXT, "all digits, as text: values have scales of their own")),
    **dict.fromkeys((f"{CONNECT}.Date", f"{TIME}.Date", f"{TIME}.IsoDate", f"{STRUCTURED}Date"), _DATE),
    **dict.fromkeys(
        (f"{CONNECT}.Timestamp", f"{TIME}.Timestamp", f"{TIME}.MicroTimestamp", f"{TIME}.IsoTimestamp"), _DATETIME
    ),
    **dict.fromkeys((f"{TIME}.NanoTimestamp", f"{STRUCTURED}Timestamp"), _NANO),
    **dict.fromkeys((f"{TIME}.ZonedTimestamp", f"{STRUCTURED}ZonedTimestamp"), utc_rule(_DATES)),
    **dict.fromkeys(
        (
            f"{CONNECT}.Time",
            *(f"{TIME}.{name}" for name in ("Time", "MicroTime", "NanoTime", "IsoTime", "ZonedTime")),
            *(f"{STRUCTURED}{name}" for name in ("Time", "ZonedTime")),
        ),
        text_rule(_CLOCK),
    ),
    f"{TIME}.NanoDuration": TypeRule(
        lake=always(pa.int64()), fidelity=graded(Grade.CHANGED, "microseconds, nanoseconds are cut"), zero=lambda _: "0"
    ),
    **dict.fromkeys(
        (f"{TIME}.Interval", f"{STRUCTURED}Duration"), text_rule(graded(Grade.TEXT, "as ISO 8601 prints it"))
    ),
    **dict.fromkeys((f"{DATA}.{name}" for name in ("Json", "Xml", "Uuid", "Ltree")), TEXT),
    **dict.fromkeys((f"{DATA}.Enum", f"{DATA}.EnumSet"), text_rule(graded(Grade.TEXT, "the names of the members"))),
    BITS: TypeRule(
        lake=_bits,
        parse=_read_bits,
        fidelity=graded(Grade.CHANGED, "as a number, beyond 64 bits as bytes; how many zeros stood in front is lost"),
        zero=lambda _: "0",
    ),
    **dict.fromkeys(GEOMETRIES, _GEOMETRY),
}
"""Name of a schema -> its row."""

SERVER_TYPES: Mapping[str, TypeRule] = {
    "UUID": text_rule(TEXT.fidelity, zero=lambda _: "00000000-0000-0000-0000-000000000000"),
    "INET4": text_rule(TEXT.fidelity, zero=lambda _: "0.0.0.0"),  # noqa: S104  # a value of a column
    "INET6": text_rule(TEXT.fidelity, zero=lambda _: "::"),
    **dict.fromkeys(
        (
            *("GEOMETRY", "POINT", "LINESTRING", "POLYGON"),
            *("MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION"),
        ),
        _GEOMETRY,
    ),
}
"""Types of MySQL and MariaDB that TiDB does not have, by the names of DDL texts -> their rows."""

MAY_BE_NULL = (
    *(name for name, rule in CONNECT_TYPES.items() if rule in (_DATE, _DATETIME, _NANO)),
    f"{TIME}.ZonedTimestamp",
    f"{STRUCTURED}ZonedTimestamp",
)
"""Types of which decoding makes null what the lake does not keep."""
