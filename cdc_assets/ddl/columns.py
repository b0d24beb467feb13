"""A column's definition as text -> the `Column` that TiCDC's schema file has for it.

TiCDC lists types by TiDB's names, with the display length of a number and the length of a text in `ColumnPrecision`
(`tiflow:pkg/sink/cloudstorage/table_definition.go`), and a type that is not given a length gets MySQL's. A definition
in the charset `binary` is one of the binary types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from cdc_assets.ddl.clauses import ColumnText, charset_of
from cdc_assets.ddl.text import Unreadable
from cdc_assets.model.schema import Column
from cdc_assets.types.connect_types import SERVER_TYPES
from cdc_assets.types.families import type_name

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


def column_of(text: ColumnText, charset: str) -> Column:
    """Return the column that a definition makes in a table of that charset, without collation and default.

    Raises Unreadable for a type that is not known.
    """
    name = type_name(text.type)
    own = text.charset or (charset_of(text.collation) if text.collation else charset)
    if own == "binary":
        name = _IN_BINARY.get(name, name)
    sized = _sized(name, text, own)
    nullable = text.nullable and not text.primary
    return replace(sized, nullable=nullable, is_pk=text.primary, elems=text.elems)


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
        name = next((kind for kind, most in _CAPACITY.items() if kind.endswith(name) and most >= needed), f"LONG{name}")
    return Column(text.name, name, False, _CAPACITY[name])


def of_server(columns: Iterable[Column], server: str) -> tuple[Column, ...]:
    """Return the columns of a text as a kind of server makes them: JSON is LONGTEXT in MariaDB."""
    if server != "mariadb":
        return tuple(columns)
    return tuple(
        replace(column, type="LONGTEXT", precision=_CAPACITY["LONGTEXT"], collation="utf8mb4_bin")
        if column.type == "JSON"
        else column
        for column in columns
    )
