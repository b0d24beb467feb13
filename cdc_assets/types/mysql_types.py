"""The type table: MySQL/TiDB -> Arrow, Spark and Iceberg, and what is lost. Questions go to all families' tables.

Every wire format gives a value as text (TiCDC prints CSV and Canal-JSON alike but for binaries and members), so one
function, `values`, turns texts into the lake's Arrow type for all of them; `mysql_values` holds the readers.
Types come as in `Column.type`: upper case, ` UNSIGNED` split off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from cdc_assets.errors import MalformedData
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.types import mysql_values as read
from cdc_assets.types.connect_types import CONNECT_TYPES, DECIMAL, SERVER_TYPES
from cdc_assets.types.families import BINARY, CHARACTER, FLOATING
from cdc_assets.types.mysql_values import (
    Binary,
    TextSettings,
    Values,
    either,
)
from cdc_assets.types.rules import BYTES, EXACT, TEXT, TOO_WIDE, Fidelity, Grade, TypeRule, always, graded, text_rule
from cdc_assets.types.ydb_types import YDB_TYPES

# --- questions to the table -------------------------------------------------------------------------------------------


def arrow_type(column: Column) -> pa.DataType:
    """Return the lake's value type. Raises MalformedData for a type that is not in the type table."""
    return _rule(column).lake(column)


def spark_type(column: Column) -> str:
    """Return the lake type in Spark SQL's words, such as `timestamp_ntz` or `decimal(20,0)`."""
    kind = arrow_type(column)
    return f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else _SPARK[kind]


def iceberg_type(column: Column) -> str:
    """Return the lake type in Iceberg's words, such as `timestamptz` or `decimal(20, 0)`."""
    kind = arrow_type(column)
    return f"decimal({kind.precision}, {kind.scale})" if pa.types.is_decimal(kind) else _ICEBERG[kind]


def arrow_schema(schema: TableSchema) -> pa.Schema:
    """Return the stored columns in table order, all nullable: NOT NULL is enforced by the checks."""
    return pa.schema([pa.field(column.name, arrow_type(column)) for column in schema.stored])


def wire_type(column: Column) -> pa.DataType:
    """Return the type into which Arrow's CSV reader may convert the texts of this column before `finish`.

    Binary means that it cannot convert them: read them as they are and call `values`.
    """
    rule = _rule(column)
    return (rule.wire or rule.lake)(column)


def fidelity(column: Column) -> Fidelity:
    """Return the fidelity of the column's values, by type; notes count how often a rule was needed."""
    if column.virtual:
        return Fidelity(Grade.ABSENT, "a virtual generated column, which the lake does not have")
    if column.mask is not None:
        return Fidelity(Grade.MASKED, f'masked by {column.mask}, as privacy says of "{column.mask.pattern}"')
    return _rule(column).fidelity(column)


def type_text(column: Column) -> str:
    """Return the type as a person writes it: `DECIMAL(10,2) UNSIGNED`, `DATETIME(3)`, `VARCHAR(20)`."""
    if column.type == "DECIMAL":
        text = f"DECIMAL({_precision(column)},{column.scale or 0})"
    elif column.type in (DECIMAL, "Decimal"):
        text = f"{column.type}({38 if column.precision is None else column.precision},{column.scale or 0})"
    elif column.type in _FRACTIONAL and column.scale:
        text = f"{column.type}({column.scale})"
    elif column.type in _SIZED and column.precision is not None:
        text = f"{column.type}({column.precision})"
    else:
        text = column.type
    return f"{text} UNSIGNED" if column.unsigned and column.type in _SIGNED else text


def widens(old: Column, new: Column) -> bool:
    """Return whether Iceberg changes the lake type of `old` to that of `new` in metadata, without rewriting files.

    That is so for the same type, int to bigint, float to double and a decimal's precision upwards. It says nothing of
    values that MySQL would change at the same time.
    """
    before, after = arrow_type(old), arrow_type(new)
    if before == after or (before, after) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64())):
        return True
    both_decimal = pa.types.is_decimal(before) and pa.types.is_decimal(after)
    return both_decimal and bool(before.scale == after.scale and before.precision <= after.precision)


def misfit(text: str, column: Column) -> str:
    """Return the sentence for a value that does not fit, a long value shortened."""
    shown = text if len(text) <= 80 else f"{text[:80]}… ({len(text)} characters)"
    return f'"{shown}" is not {type_text(column)}'


_FAMILIES = (CONNECT_TYPES, YDB_TYPES, SERVER_TYPES)


def _rule(column: Column) -> TypeRule:
    rule = TYPES.get(column.type) or next((f[column.type] for f in _FAMILIES if column.type in f), None)
    if rule is None and not column.type:
        raise MalformedData(
            f'column "{column.name}" has no known type: the messages give names alone, as those of Debezium do without '
            "a schema block, and YDB's. Give the table's CREATE TABLE with all of its columns in the setting schemas "
            "(--schemas).",
            column=column.name,
        )
    if rule is None:
        raise MalformedData(
            f'column "{column.name}" has the type "{column.type}": the type table does not know it. '
            "Leave the table out of the changefeed, or use a version of this software that knows the type.",
            column=column.name,
        )
    return rule


# --- values -----------------------------------------------------------------------------------------------------------


def values(texts: pa.Array, column: Column, *, timezone: str = "UTC", binary: Binary = "raw") -> Values:
    """Turn the texts of one column (string or binary array, null is NULL) into the lake's Arrow type.

    `timezone` is the zone of the TiCDC server, in which it prints TIMESTAMP. Values that do not fit are null and
    marked, nothing is raised for them. Raises BadSettings for a zone that the zone database does not have.
    """
    rule, settings = _rule(column), _reading(column, timezone, binary)
    if pa.types.is_large_string(texts.type) or pa.types.is_string_view(texts.type) or pa.types.is_null(texts.type):
        texts = texts.cast(pa.string())
    elif pa.types.is_large_binary(texts.type):
        texts = texts.cast(pa.binary())
    parsed = rule.parse(texts, settings)
    done = rule.finish(parsed.array, settings)
    return Values(done.array, either(parsed.bad, done.bad), {**parsed.notes, **done.notes})


def finish(array: pa.Array, column: Column, *, timezone: str = "UTC") -> Values:
    """Turn an array of `wire_type(column)`, not binary, into the lake's Arrow type; the second half of `values`."""
    return _rule(column).finish(array, _reading(column, timezone, "raw"))


def bit_values(numbers: pa.BinaryArray, column: Column) -> Values:
    """Turn the big-endian bytes of a BIT into the lake's Arrow type."""
    read_numbers = read.bit_numbers(numbers)
    done = finish(read_numbers.array, column)
    return Values(done.array, either(read_numbers.bad, done.bad))


def default_text(column: Column) -> str | bytes | None:
    """Return the column's default as a text for `values` (binary "raw", timezone "UTC"); None for none or NULL.

    TiDB keeps defaults as strings, BIT ones as raw bytes; TIMESTAMP defaults are UTC. `ColumnDefault` went through
    JSON, which destroys bytes that are not UTF-8: raises MalformedData then, because only the DDL text has the value
    still. Raises it for CURRENT_TIMESTAMP too, see `defaults_to_now`.
    """
    default = column.default
    if default is None:
        return None
    if defaults_to_now(column):
        raise MalformedData(f'column "{column.name}" has the default CURRENT_TIMESTAMP, no value', column=column.name)
    if isinstance(default, (bool, int)):
        return str(int(default))
    if isinstance(default, float):
        return str(int(default)) if default.is_integer() and abs(default) < 1 << 53 else repr(default)
    text = str(default)
    if column.type != "BIT" and column.type not in BINARY:
        return text
    if "\ufffd" in text:
        raise MalformedData(
            f'the default of column "{column.name}" has bytes that no schema file can carry; read it from the DDL text',
            column=column.name,
        )
    return str(int.from_bytes(text.encode(), "big")) if column.type == "BIT" else _padded(text.encode(), column)


def float_digits(column: Column) -> int | None:
    """Return D of a FLOAT(M, D) or DOUBLE(M, D), None for a type that keeps all digits. TiCDC lists no D that is 0."""
    if column.scale is not None or column.type not in FLOATING:
        return column.scale
    return None if column.precision in (None, 12, 22) else 0


def defaults_to_now(column: Column) -> bool:
    """Return whether the default is the time of the statement."""
    text = column.default
    return isinstance(text, str) and column.type in ("TIMESTAMP", "DATETIME") and text.upper().startswith("CURRENT_")


def implicit_default(column: Column) -> str | bytes:
    """Return MySQL's value for a new NOT NULL column without default, as a text for `values` (binary "raw")."""
    return _rule(column).zero(column)


def _reading(column: Column, timezone: str, binary: Binary) -> TextSettings:
    return TextSettings(wire_type(column), arrow_type(column), _precision(column), column.scale or 0, timezone, binary)


# --- the table --------------------------------------------------------------------------------------------------------


def _precision(column: Column) -> int:
    """Return the precision, by its type's default where the schema has none."""
    if column.type in (DECIMAL, "Decimal") and column.precision is None:
        return 38
    return column.precision if column.precision is not None else 10 if column.type == "DECIMAL" else 1


def _decimal(column: Column) -> pa.DataType:
    return pa.decimal128(_precision(column), column.scale or 0) if _precision(column) <= 38 else pa.string()


def _parse_decimal(texts: pa.Array, settings: TextSettings) -> Values:
    return (read.parse_number if settings.precision <= 38 else read.parse_wide_decimal)(texts, settings)


def _bit(column: Column) -> pa.DataType:
    width = _precision(column)
    return pa.bool_() if width == 1 else pa.int64() if width <= 63 else pa.decimal128(20, 0)


def _padded(raw: bytes, column: Column) -> bytes:
    return raw.ljust(_precision(column), b"\0") if column.type == "BINARY" else raw


def _midnight(column: Column) -> str:
    return f"00:00:00.{'0' * column.scale}" if column.scale else "00:00:00"


def _integer(signed: pa.DataType, unsigned: pa.DataType) -> TypeRule:
    return TypeRule(lake=lambda column: unsigned if column.unsigned else signed, fidelity=EXACT, zero=lambda _: "0")


def _float(kind: pa.DataType) -> TypeRule:
    return TypeRule(lake=always(kind), finish=read.finish_float, fidelity=EXACT, zero=lambda _: "0")


_NAMES = graded(Grade.TEXT, "the names of the members")
_DATES = graded(Grade.CHANGED, "exact, but zero, partial and impossible dates become null and are counted")
_INSTANTS = graded(
    Grade.CHANGED,
    "an instant in UTC, exact, but zero dates become null and the repeated hour of a daylight-saving zone is read as "
    "the earlier instant; both are counted",
)

_NAIVE = always(pa.timestamp("us"))
_INT = _integer(pa.int32(), pa.int32())
_BINARY_RULE = replace(BYTES, zero=lambda column: _padded(b"", column))

TYPES: Mapping[str, TypeRule] = {
    "TINYINT": _INT,
    "SMALLINT": _INT,
    "MEDIUMINT": _INT,
    "INT": _integer(pa.int32(), pa.int64()),
    "BIGINT": _integer(pa.int64(), pa.decimal128(20, 0)),
    "YEAR": _INT,
    "FLOAT": _float(pa.float32()),
    "DOUBLE": _float(pa.float64()),
    "DECIMAL": TypeRule(
        lake=_decimal,
        wire=lambda column: _decimal(column) if _precision(column) <= 38 else pa.binary(),
        parse=_parse_decimal,
        fidelity=lambda column: (EXACT if _precision(column) <= 38 else TOO_WIDE)(column),
        zero=lambda _: "0",
    ),
    "BIT": TypeRule(lake=_bit, wire=always(pa.uint64()), finish=read.finish_bit, fidelity=EXACT, zero=lambda _: "0"),
    "DATE": TypeRule(
        lake=always(pa.date32()), parse=read.parse_time_point, fidelity=_DATES, zero=lambda _: "0000-00-00"
    ),
    "DATETIME": TypeRule(
        lake=_NAIVE,
        parse=read.parse_time_point,
        fidelity=_DATES,
        zero=lambda column: f"0000-00-00 {_midnight(column)}",
    ),
    "TIMESTAMP": TypeRule(
        lake=always(pa.timestamp("us", "UTC")),
        wire=_NAIVE,
        parse=read.parse_time_point,
        finish=read.finish_instant,
        fidelity=_INSTANTS,
        zero=lambda column: f"0000-00-00 {_midnight(column)}",
    ),
    "TIME": TypeRule(
        lake=always(pa.string()),
        wire=always(pa.binary()),
        parse=read.parse_time,
        fidelity=graded(Grade.TEXT, "as MySQL prints it: ±838:59:59 fits no SQL time"),
        zero=_midnight,
    ),
    **dict.fromkeys(CHARACTER, TEXT),
    **dict.fromkeys(BINARY, _BINARY_RULE),
    "ENUM": text_rule(_NAMES, lambda column: column.elems[0] if column.elems else ""),
    "SET": text_rule(_NAMES),
    "JSON": text_rule(graded(Grade.TEXT, "TiDB's text; the JSON value null is the text null"), lambda _: "null"),
    "VECTOR": TypeRule(
        lake=always(pa.list_(pa.float32())),
        wire=always(pa.binary()),
        parse=read.parse_vector,
        fidelity=EXACT,
        zero=lambda _: "[]",
    ),
    "NULL": text_rule(graded(Grade.TEXT, "a column without a type of its own, as views have")),
}
"""`Column.type` -> its row. What stands in no family's table is refused by name: a type of a later TiDB."""

_SIGNED = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
_FRACTIONAL = ("DATETIME", "TIMESTAMP", "TIME")
_SIZED = ("BIT", "CHAR", "VARCHAR", "VAR_STRING", "BINARY", "VARBINARY")

_SPARK: Mapping[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.list_(pa.float32()): "array<float>",
}
_ICEBERG: Mapping[pa.DataType, str] = {
    **_SPARK,
    pa.int64(): "long",
    pa.timestamp("us"): "timestamp",
    pa.timestamp("us", "UTC"): "timestamptz",
    pa.list_(pa.float32()): "list<float>",
}
