"""The type table of YDB: types of YQL -> Arrow, and what is lost.

`Column.type` is the name as YQL has it (`Uint64`, `Utf8`, `Decimal` with its digits aside). Facts: YDB's data types,
and how its changefeeds print them as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from cdc_assets.model.schema import Column
from cdc_assets.types import mysql_values as read
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

_DATES = graded(Grade.CHANGED, "exact; years outside 0000 to 9999 become null and are counted")
_DATE = TypeRule(
    lake=always(pa.date32()),
    parse=read.parse_time_point,
    fidelity=_DATES,
    zero=lambda _: "1970-01-01",
)
_JSON = text_rule(graded(Grade.TEXT, "as JSON text, its members as the changefeed printed them"))

YDB_TYPES: Mapping[str, TypeRule] = {
    "Bool": number_rule(pa.bool_()),
    **dict.fromkeys(("Int8", "Int16", "Int32", "Uint8", "Uint16"), number_rule(pa.int32())),
    **dict.fromkeys(("Int64", "Uint32", "Interval", "Interval64"), number_rule(pa.int64())),
    "Uint64": number_rule(pa.decimal128(20, 0)),
    "Float": number_rule(pa.float32()),
    "Double": number_rule(pa.float64()),
    "Decimal": decimal_rule(),
    "DyNumber": text_rule(graded(Grade.TEXT, "its digits as YDB prints them")),
    "String": BYTES,
    "Utf8": TEXT,
    "Uuid": TEXT,
    "Pg": text_rule(graded(Grade.TEXT, "as PostgreSQL prints it")),
    **dict.fromkeys(("Json", "JsonDocument", "Yson"), _JSON),
    **dict.fromkeys(("Date", "Date32"), _DATE),
    **dict.fromkeys(("Datetime", "Timestamp", "Datetime64", "Timestamp64"), utc_rule(_DATES)),
}
"""Type of YQL -> its row."""

MADE_NULL = ("Decimal", "Date", "Date32", "Datetime", "Timestamp", "Datetime64", "Timestamp64")
"""Types of which decoding makes null what the lake does not keep."""

_SYNONYMS: Mapping[str, str] = {
    **dict.fromkeys(("bool", "boolean"), "Bool"),
    **dict.fromkeys(("serial2", "smallserial"), "Int16"),
    **dict.fromkeys(("serial", "serial4"), "Int32"),
    **dict.fromkeys(("serial8", "bigserial"), "Int64"),
    **dict.fromkeys(("text", "utf8"), "Utf8"),
    **dict.fromkeys(("bytes", "string"), "String"),
}


def ydb_column(name: str, text: str) -> Column:
    """Return the column of a type as YQL has it: `Uint64`, `Decimal(22,9)`, `Optional<Utf8>`, `Utf8?`, `pgint4`.

    A type that is not known leaves the column's type "".
    """
    bare = re.sub(r"\s+", "", text)
    bare = re.sub(r"^Optional<(.*)>$", r"\1", bare, flags=re.IGNORECASE).rstrip("?")
    digits = [int(number) for number in re.findall(r"\d+", bare.partition("(")[2])]
    kind = bare.partition("(")[0]
    type_name = _SYNONYMS.get(kind.lower()) or _BY_FOLDED.get(kind.lower(), "")
    if not type_name and kind.lower().startswith("pg"):
        type_name = "Pg"
    if type_name == "Decimal":
        precision, scale = digits if len(digits) == 2 else (22, 9)
        return Column(name, type_name, precision=precision, scale=scale)
    return Column(name, type_name)


_BY_FOLDED: Mapping[str, str] = {name.lower(): name for name in YDB_TYPES}
