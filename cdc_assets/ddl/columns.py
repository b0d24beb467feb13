"""A column's definition as text -> the `Column` that TiCDC's schema file has for it.

TiCDC lists types by TiDB's names, with the display length of a number and the length of a text in `ColumnPrecision`
(`tiflow:pkg/sink/cloudstorage/table_definition.go`), and a type that is not given a length gets MySQL's. A definition
in the charset `binary` is one of the binary types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from cdc_assets.ddl.clauses import ColumnText, charset_of
from cdc_assets.ddl.text import Unreadable
from cdc_assets.errors import BadSettings
from cdc_assets.model.schema import Column, Default
from cdc_assets.types.connect_types import SERVER_TYPES
from cdc_assets.types.conversions.moments import moment_from_text, time_from_text, time_text
from cdc_assets.types.mysql_types import values

__all__ = ["INTEGERS", "column_of", "default_of"]

_SYNONYMS: Mapping[str, str] = {
    "BOOL": "TINYINT",
    "BOOLEAN": "TINYINT",
    "INT1": "TINYINT",
    "INT2": "SMALLINT",
    "INT3": "MEDIUMINT",
    "MIDDLEINT": "MEDIUMINT",
    "INT4": "INT",
    "INTEGER": "INT",
    "INT8": "BIGINT",
    "SERIAL": "BIGINT",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "FIXED": "DECIMAL",
    "FLOAT4": "FLOAT",
    "FLOAT8": "DOUBLE",
    "REAL": "DOUBLE",
    "DOUBLE PRECISION": "DOUBLE",
    "CHARACTER": "CHAR",
    "NCHAR": "CHAR",
    "NATIONAL CHAR": "CHAR",
    "NATIONAL CHARACTER": "CHAR",
    "VARCHARACTER": "VARCHAR",
    "CHAR VARYING": "VARCHAR",
    "CHARACTER VARYING": "VARCHAR",
    "NVARCHAR": "VARCHAR",
    "NCHAR VARCHAR": "VARCHAR",
    "NATIONAL VARCHAR": "VARCHAR",
    "NATIONAL CHAR VARYING": "VARCHAR",
    "NATIONAL CHARACTER VARYING": "VARCHAR",
    "LONG": "MEDIUMTEXT",
    "LONG VARCHAR": "MEDIUMTEXT",
    "LONG CHAR VARYING": "MEDIUMTEXT",
    "LONG VARBINARY": "MEDIUMBLOB",
}
_DIGITS: Mapping[str, tuple[int, int]] = {
    "TINYINT": (4, 3),
    "SMALLINT": (6, 5),
    "MEDIUMINT": (9, 8),
    "INT": (11, 10),
    "BIGINT": (20, 20),
    "FLOAT": (12, 12),
    "DOUBLE": (22, 22),
}
"""The display length of a number, signed and unsigned."""
INTEGERS = frozenset(_DIGITS) - {"FLOAT", "DOUBLE"}
_CAPACITY: Mapping[str, int] = {
    "TINYTEXT": 255,
    "TEXT": 65535,
    "MEDIUMTEXT": 16777215,
    "LONGTEXT": 4294967295,
    "TINYBLOB": 255,
    "BLOB": 65535,
    "MEDIUMBLOB": 16777215,
    "LONGBLOB": 4294967295,
}
_IN_BINARY: Mapping[str, str] = {
    "CHAR": "BINARY",
    "VARCHAR": "VARBINARY",
    "TINYTEXT": "TINYBLOB",
    "TEXT": "BLOB",
    "MEDIUMTEXT": "MEDIUMBLOB",
    "LONGTEXT": "LONGBLOB",
}
_CHARACTER_BYTES: Mapping[str, int] = {"binary": 1, "ascii": 1, "latin1": 1, "gbk": 2, "utf8": 3, "utf8mb3": 3}
"""Bytes that a character may take; 4 in every other charset."""
_BARE = ("DATE", "ENUM", "SET", "JSON", "VECTOR", *SERVER_TYPES)
_FRACTIONAL = ("DATETIME", "TIMESTAMP", "TIME")


def column_of(text: ColumnText, charset: str, timezone: str | None = None) -> Column:
    """Return the column that a definition makes in a table of that charset, without collation and members.

    A TIMESTAMP's default is in the session's zone; with `timezone` it is turned into UTC, as TiDB keeps it. Raises
    Unreadable for a type that is not known.
    """
    name = _SYNONYMS.get(text.type, text.type)
    own = text.charset or (charset_of(text.collation) if text.collation else charset)
    if own == "binary":
        name = _IN_BINARY.get(name, name)
    sized = _sized(name, text, own)
    nullable = text.nullable and not text.primary
    column = replace(sized, nullable=nullable, is_pk=text.primary, elems=text.elems)
    return replace(column, default=None if text.default is None else default_of(text.default, column, timezone))


def _sized(name: str, text: ColumnText, charset: str) -> Column:
    size = text.arguments[0] if text.arguments else None
    scale = text.arguments[1] if len(text.arguments) > 1 else None
    unsigned = text.unsigned or text.type == "SERIAL"
    if name == "FLOAT" and size is not None and scale is None:
        name, size = "DOUBLE" if size > 24 else "FLOAT", None
    if name in _DIGITS:
        wide = 1 if text.type in ("BOOL", "BOOLEAN") else _DIGITS[name][unsigned] if size is None else size
        return Column(text.name, name, unsigned, wide, scale or None)
    if name == "DECIMAL":
        return Column(text.name, name, unsigned, 10 if size is None else size or 10, scale or 0)
    if name == "YEAR":
        return Column(text.name, name, True, 4)
    if name == "BIT":
        return Column(text.name, name, True, size or 1)
    if name in ("CHAR", "VARCHAR", "BINARY", "VARBINARY"):
        return Column(text.name, name, False, 1 if size is None else size)
    if name in _CAPACITY:
        return _capacious(name, size, text, charset)
    if name in _FRACTIONAL:
        return Column(text.name, name, False, None, size or None)
    if name in _BARE:
        return Column(text.name, name)
    raise Unreadable(f'the column "{text.name}" has the type {text.type}, which is not known')


def _capacious(name: str, size: int | None, text: ColumnText, charset: str) -> Column:
    """TEXT(n) and BLOB(n) are the smallest type of their kind that holds n characters."""
    if size is not None and name in ("TEXT", "BLOB"):
        needed = size * (_CHARACTER_BYTES.get(charset, 4) if name == "TEXT" else 1)
        name = next((one for one, most in _CAPACITY.items() if one.endswith(name) and most >= needed), f"LONG{name}")
    return Column(text.name, name, False, _CAPACITY[name])


# --- defaults ---------------------------------------------------------------------------------------------------------


def default_of(default: Default, column: Column, timezone: str | None = None) -> object:
    """Return the default as `ColumnDefault` has it: a text, CURRENT_TIMESTAMP, or None; of an expression None.

    Raises Unreadable for one that is not a value of the column's type, or is the number of a member.
    """
    if default.kind in ("null", "expression"):
        return None
    if default.kind == "now":
        return "CURRENT_DATE" if column.type == "DATE" else "CURRENT_TIMESTAMP"
    if default.kind in ("bits", "hex"):
        return _from_bytes(default, column)
    text = _as_kept(default, column)
    if column.type == "TIMESTAMP" and timezone is not None and not text.startswith("0000-00-00"):
        return _in_utc(text, column, timezone)
    return text


def _as_kept(default: Default, column: Column) -> str:
    """TiDB keeps a default as a value of the type prints: `'2020-1-2'` of a DATETIME as `2020-01-02 00:00:00`."""
    text, digits = default.text, column.scale or 0
    if column.type in ("ENUM", "SET"):
        return _members(default, column)
    if default.kind == "number" and column.type in INTEGERS and text.lstrip("-").isdecimal():
        return str(int(text))
    try:
        if column.type == "TIME":
            return time_text(time_from_text(text, digits), digits)
        if column.type in ("DATE", "DATETIME", "TIMESTAMP"):
            moment = moment_from_text(text, digits)
            if moment is not None:
                return moment.date_text() if column.type == "DATE" else moment.text(digits)
    except ValueError:
        return text  # no such time, or a form that is not read: an error follows where the value is needed
    return text


def _members(default: Default, column: Column) -> str:
    """Members are kept as they are spelled in the definition; a number stands for one, or for a SET of them."""
    elems, text = column.elems or (), default.text
    if default.kind == "number":
        number = int(text) if text.isdecimal() else -1
        least, most = (1, len(elems)) if column.type == "ENUM" else (0, (1 << len(elems)) - 1)
        if not least <= number <= most:
            raise Unreadable(f'the default of "{column.name}" is {text}, which is not the number of a known member')
        if column.type == "ENUM":
            return elems[number - 1]
        return ",".join(one for place, one in enumerate(elems) if number >> place & 1)
    if column.type == "ENUM":
        return text if text in elems else next((one for one in elems if one.lower() == text.lower()), text)
    chosen = {one.lower() for one in text.split(",")}
    known = [one for one in elems if one.lower() in chosen]
    return ",".join(known) if len(known) == len(chosen) else text


def _from_bytes(default: Default, column: Column) -> object:
    if column.type == "BIT":
        return None  # `stored_default` takes it from the text
    number = int(default.text or "0", 2 if default.kind == "bits" else 16)
    if column.type in _DIGITS or column.type == "DECIMAL":
        return str(number)
    digits = len(default.text)
    raw = number.to_bytes((digits + 7) // 8 if default.kind == "bits" else (digits + 1) // 2, "big")
    return raw.decode("utf-8", "replace")


def _in_utc(text: str, column: Column, timezone: str) -> str:
    try:
        moment = values(pa.array([text]), column, timezone=timezone).array[0].as_py()
    except BadSettings as error:
        raise Unreadable(error.message) from None
    if moment is None:
        raise Unreadable(f'the default of "{column.name}" is not a time: {text}')
    shown = f"{moment.year:04d}-{moment:%m-%d %H:%M:%S}"
    return shown + (f".{moment.microsecond:06d}"[: column.scale + 1] if column.scale else "")
