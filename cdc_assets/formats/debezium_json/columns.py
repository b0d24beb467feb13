"""Columns <-> the fields that stand for them in messages: of a schema block, or as a connector's settings have it.

columns_of      a block -> the columns of a table
field_of        a column -> the field as which the connector writes it, where there is no block
settled_field   a block's field that has another type than it says because of the settings
has_old_keys    whether the configuration says that deletes have the key of their row
ConnectorSettings  what decides how values are written, by the connector's own names and with its defaults
"""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from cdc_assets.errors import MalformedData
from cdc_assets.formats import MessageOptions
from cdc_assets.formats.json_records import print_json
from cdc_assets.formats.members import allowed_members
from cdc_assets.formats.records import CellKind, Marks, RecordColumn
from cdc_assets.formats.values.connect import Field
from cdc_assets.model.schema import Column, TableId
from cdc_assets.types.connect_types import BITS, CONNECT_TYPES, DECIMAL, NO_WIDTH, STRUCTURED, VARIABLE_DECIMAL
from cdc_assets.types.families import BINARY, CHARACTER

__all__ = [
    "UNKNOWN_TYPE",
    "ConnectorSettings",
    "columns_of",
    "connector_settings",
    "field_of",
    "has_old_keys",
    "settled_field",
]


@dataclass(frozen=True, slots=True)
class ConnectorSettings:
    """Settings of a connector that decide how values are written. `time` is "" for the connector's own default,
    `unavailable` stands for unchanged ones.

    With `fails` the connector stops where it cannot convert a value, and leaves no value out.
    `nulls_as_defaults` says that a NULL is written as the default of its column, where that has one.
    `has_old_keys` says that deletes of the table at hand have the key of their row, whatever it is.
    """

    decimal: str = "precise"
    binary: str = "bytes"
    bigint_unsigned: str = "long"
    time: str = ""
    unavailable: str = "__debezium_unavailable_value"
    fails: bool = False
    nulls_as_defaults: bool = True
    has_old_keys: bool = False

    def stand_for_unchanged(self, cells: RecordColumn, kind: str | None = None) -> Marks:
        """Mark values that stand for what the source did not read again, in a field of this type, or in any."""
        placeholders = _placeholders(self.unavailable)
        texts = placeholders.texts if kind in (None, "bytes") else placeholders.texts - {placeholders.in_base64}
        marks = cells.are_among(CellKind.TEXT, texts)
        return marks | cells.are_among(CellKind.JSON, placeholders.nested) if kind in (None, "array", "map") else marks

    def may_be_left_out(self, field: Field, column: Column) -> bool:
        """Return whether PostgreSQL's connector may send NULL for a long value that a change leaves as it is.

        Its stand-in fits texts, bytes, maps and some arrays. In any other field it is no value: the connector leaves
        it out (`UnchangedToastedReplicationMessageColumn`, `PostgresValueConverter`; tried with 3.5).
        """
        if self.fails:
            return False
        if field.type == "array":
            source = field.parameters.get(_SOURCE_TYPE, "").upper()
            return field.items is None or (field.items.meaning not in _FITTING and source not in _FITTING_SOURCES)
        if field.type == "string":
            return column.type == "bytes" and self.binary.startswith("base64")
        if field.meaning == BITS:
            return (column.precision or NO_WIDTH) > _SHORT_BITS
        return field.type == "struct" and not field.meaning.startswith((f"{_DATA}.geometry.Point", STRUCTURED))


class _Placeholders(NamedTuple):
    """Placeholders of an unchanged value: as a text, among bytes, as a map or its JSON, and as an array."""

    in_base64: str
    texts: frozenset[str]
    nested: frozenset[str]


@lru_cache(maxsize=32)
def _placeholders(text: str) -> _Placeholders:
    """Return the values of a placeholder in columns of several types.

    PostgreSQL's connector sends it in the type of the column: an array of texts or bytes holds it as its one element,
    one of UUIDs a UUID made of it, one of numbers a number for each of its bytes, and a map has it as name and value.
    """
    data = bytes.fromhex(text[4:]) if text.startswith("hex:") else text.encode()
    shown, coded = data.decode("utf-8", "replace"), base64.b64encode(data).decode()
    named = str(uuid.UUID(bytes=hashlib.md5(data, usedforsecurity=False).digest(), version=3))
    single = [base64.b64encode(bytes([byte])).decode() for byte in data]
    variable = [{"scale": 0, "value": text} for text in single]
    arrays = ([shown], [coded], [named], [*data], [float(byte) for byte in data], single, variable)
    in_json = print_json({shown: shown})
    return _Placeholders(coded, frozenset((shown, coded, in_json)), frozenset((*map(print_json, arrays), in_json)))


@lru_cache(maxsize=32)
def connector_settings(options: MessageOptions) -> ConnectorSettings:
    """Return the settings that a feed was given."""
    modes = dict(options.connector)
    return ConnectorSettings(
        decimal=modes.get("decimal.handling.mode", "precise"),
        binary=modes.get("binary.handling.mode", "bytes"),
        bigint_unsigned=modes.get("bigint.unsigned.handling.mode", "long"),
        time=modes.get("time.precision.mode", ""),
        unavailable=modes.get("unavailable.value.placeholder", "__debezium_unavailable_value"),
        fails=modes.get("event.converting.failure.handling.mode", "").lower() == "fail",
        nulls_as_defaults=modes.get("value.converter.replace.null.with.default", "true") == "true",
    )


@lru_cache(maxsize=1024)
def has_old_keys(table: TableId, options: MessageOptions) -> bool:
    """Return whether the connector's configuration gives a table of PostgreSQL the REPLICA IDENTITY DEFAULT or FULL.

    `replica.identity.autoset.values` lists patterns of tables, each with an identity: `public.a:FULL,public.b:DEFAULT`.
    """
    for entry in dict(options.connector).get("replica.identity.autoset.values", "").split(","):
        pattern, _, identity = entry.strip().rpartition(":")
        with suppress(re.error):
            if identity.strip().upper() in ("DEFAULT", "FULL") and re.fullmatch(pattern, str(table)):
                return True
    return False


UNKNOWN_TYPE = ""
"""The type of a column that only has been seen, in a message without schema block."""

_CONNECT, _TIME, _DATA = "org.apache.kafka.connect.data", "io.debezium.time", "io.debezium.data"
_SOURCE_TYPE, _SOURCE_LENGTH, _SOURCE_SCALE = (
    f"__debezium.source.column.{name}" for name in ("type", "length", "scale")
)
_SOURCE_BYTES = ("BYTEA", *BINARY)
_SOURCE_DECIMALS = ("NUMERIC", "DECIMAL")
_FITTING = ("int32", "int64", "bytes", f"{_TIME}.Date", f"{_DATA}.Uuid", f"{_DATA}.Json")
_FITTING_SOURCES = ("_TEXT", "_VARCHAR", "_BPCHAR", "_JSON", "_JSONB", "_UUID", "_BYTEA", "_INT4", "_INT8", "_DATE")
"""Elements, and PostgreSQL's names, of arrays in which an unchanged value has a stand-in."""
_SHORT_BITS = 8 * 1024
"""Bits that PostgreSQL never stores apart from their row."""
_MOST_DIGITS, _SCALE_WRAPS, _ANY_LENGTH = 1000, 1 << 11, 131_089
"""Most digits and the modulus of the scale in a numeric declaration of PostgreSQL, and the length that its connector
gives without one."""


# --- a block -> columns -----------------------------------------------------------------------------------------------


def columns_of(block: Mapping[str, Field | None], settings: ConnectorSettings) -> tuple[Column, ...]:
    """Return the columns that a block describes; without fields their names alone."""
    return tuple(
        Column(name, UNKNOWN_TYPE) if field is None else _column(name, field, settings) for name, field in block.items()
    )


def _column(name: str, field: Field, settings: ConnectorSettings) -> Column:
    parameters, meaning = field.parameters, field.meaning
    source = parameters.get(_SOURCE_TYPE, "").upper()
    if field.type == "string" and source in _SOURCE_BYTES and settings.binary != "bytes":
        return Column(name, "bytes")
    if meaning in ("string", "double") and source.removesuffix(" UNSIGNED") in _SOURCE_DECIMALS:
        length = int(parameters.get(_SOURCE_LENGTH) or 0)
        if 0 < length < _ANY_LENGTH:
            return _decimal_column(name, length, int(parameters.get(_SOURCE_SCALE) or 0))
    if meaning == DECIMAL:
        digits = parameters.get("connect.decimal.precision")
        return _decimal_column(name, int(digits) if digits else None, int(parameters["scale"]))
    if meaning == BITS:
        return Column(name, BITS, precision=int(parameters.get("length") or 64))
    if meaning in (f"{_DATA}.Enum", f"{_DATA}.EnumSet"):
        return Column(name, meaning, elems=allowed_members(parameters.get("allowed", "")))
    return Column(name, meaning if meaning in CONNECT_TYPES else field.type)


def _decimal_column(name: str, digits: int | None, scale: int) -> Column:
    """Return a column of decimals. Raises ValueError for one that no database has.

    With a scale below zero there are zeros in front of the point beside its digits, with one beyond them behind it.
    PostgreSQL's connector writes such a scale as the eleven bits that its driver reads: -2 is 2046.
    """
    scale -= _SCALE_WRAPS if _MOST_DIGITS < scale < _SCALE_WRAPS else 0
    if (digits is not None and not 1 <= digits <= _MOST_DIGITS) or abs(scale) > _MOST_DIGITS:
        raise ValueError(f"there is no decimal of {digits} digits with the scale {scale}")
    precision = None if digits is None else max(digits + max(0, -scale), scale)
    return Column(name, DECIMAL, precision=precision, scale=max(0, scale))


# --- a column -> its field --------------------------------------------------------------------------------------------


def field_of(column: Column, settings: ConnectorSettings) -> Field:
    """Return the field as which a connector with these settings writes a column.

    Raises MalformedData for a type of which that is not known.
    """
    if column.type in CONNECT_TYPES:
        return _own(column, settings)
    if settings.time == "structured" and column.type in _IN_STRUCTS:
        return Field("struct", f"{STRUCTURED}{_IN_STRUCTS[column.type]}")
    mysql_field = _MYSQL.get(column.type)
    if mysql_field is not None:
        return mysql_field
    if column.type == "DECIMAL":
        return _decimal(column, settings)
    if column.type == "BIGINT":
        precise = column.unsigned and settings.bigint_unsigned == "precise"
        return Field("bytes", DECIMAL, {"scale": "0"}) if precise else Field("int64")
    if column.type in BINARY:
        return Field("bytes" if settings.binary == "bytes" else "string")
    if column.type == "BIT":
        return Field("boolean") if (column.precision or 1) == 1 else Field("bytes", BITS)
    if column.type == "FLOAT":
        return Field("float")
    if column.type in _ISO:
        return _moment(column, settings)
    raise MalformedData(
        f'column "{column.name}" has the type "{column.type}", and how connectors write its values is not known. Leave '
        "the column out of the feed (column.exclude.list), or use a version of this software that knows the type.",
        column=column.name,
    )


_MYSQL: Mapping[str, Field] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "MEDIUMINT", "INT"), Field("int64")),
    **dict.fromkeys((*CHARACTER, "ENUM", "SET", "JSON", "UUID", "INET4", "INET6"), Field("string")),
    "YEAR": Field("int32", f"{_TIME}.Year"),
    "DOUBLE": Field("double"),
    "TIMESTAMP": Field("string", f"{_TIME}.ZonedTimestamp"),
    "VECTOR": Field("array"),
    "NULL": Field("string"),
    "GEOMETRY": Field("struct", f"{_DATA}.geometry.Geometry"),
    **dict.fromkeys(("POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON",
                     "GEOMETRYCOLLECTION"), Field("struct", f"{_DATA}.geometry.Geometry")),
}  # fmt: skip


def _decimal(column: Column, settings: ConnectorSettings) -> Field:
    if settings.decimal == "precise":
        return Field("bytes", DECIMAL, {"scale": str(column.scale or 0)})
    return Field(settings.decimal)


def _moment(column: Column, settings: ConnectorSettings) -> Field:
    """Return the field of DATE, DATETIME and TIME by `time.precision.mode`; MySQL's default keeps microseconds."""
    kind, digits, mode = column.type, column.scale or 0, settings.time
    if mode == "isostring":
        return Field("string", f"{_TIME}.{_ISO[kind]}")
    if mode == "connect":
        return Field("int64", f"{_CONNECT}.{_IN_CONNECT[kind]}")
    if kind == "DATE":
        return Field("int32", f"{_TIME}.Date")
    if mode == "nanoseconds":
        return Field("int64", f"{_TIME}.{'NanoTime' if kind == 'TIME' else 'NanoTimestamp'}")
    if kind == "TIME":
        return Field("int64", f"{_TIME}.MicroTime")
    micros = digits > 3 or mode == "microseconds"
    return Field("int64", f"{_TIME}.{'MicroTimestamp' if micros else 'Timestamp'}")


_ISO = {"DATE": "IsoDate", "DATETIME": "IsoTimestamp", "TIME": "IsoTime"}
_IN_STRUCTS = {"DATE": "Date", "DATETIME": "Timestamp", "TIME": "Duration", "TIMESTAMP": "ZonedTimestamp"}
_IN_CONNECT = {"DATE": "Date", "DATETIME": "Timestamp", "TIME": "Time"}


def _own(column: Column, settings: ConnectorSettings) -> Field:
    """Return the field of a column whose type is a field's: as it says, but for what the settings write otherwise."""
    if column.type == DECIMAL:
        return _decimal(column, settings)
    if column.type == "bytes":
        return Field("bytes" if settings.binary == "bytes" else "string")
    if column.type == VARIABLE_DECIMAL and settings.decimal != "precise":
        return Field(settings.decimal)
    base = _BASES.get(column.type, column.type)
    name = "" if base == column.type else column.type
    if base == "array" and column.elems:
        return Field("array", items=field_of(_element(column), settings))
    return Field(base, name)


def _element(column: Column) -> Column:
    """The elements of an array have the type that `elems` begins with."""
    assert column.elems
    return Column("", column.elems[0], precision=column.precision, scale=column.scale)


_BASES: Mapping[str, str] = {
    **{name: "string" for name in CONNECT_TYPES if name.startswith((_TIME, _DATA))},
    **dict.fromkeys((f"{_CONNECT}.Date", f"{_CONNECT}.Time"), "int32"),
    **dict.fromkeys((f"{_TIME}.Date", f"{_TIME}.Time", f"{_TIME}.Year"), "int32"),
    **dict.fromkeys((f"{_CONNECT}.Timestamp", *(f"{_TIME}.{name}" for name in (
        "Timestamp", "MicroTimestamp", "NanoTimestamp", "MicroTime", "NanoTime", "MicroDuration", "NanoDuration"
    ))), "int64"),
    **dict.fromkeys((name for name in CONNECT_TYPES if "geometry" in name or "Variable" in name), "struct"),
    **{name: "struct" for name in CONNECT_TYPES if name.startswith(STRUCTURED)},
    BITS: "bytes",
}  # fmt: skip
"""Logical name -> the type that is below it."""


def settled_field(field: Field, column: Column, settings: ConnectorSettings) -> Field:
    """Return a field with the scale that only the column has."""
    if field.meaning == DECIMAL and "scale" not in field.parameters:
        return Field(field.type, DECIMAL, {**field.parameters, "scale": str(column.scale or 0)}, field.optional)
    return field
