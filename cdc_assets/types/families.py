"""Families of MySQL's types, by the names that `Column.type` has, and the other names that the types have."""

from __future__ import annotations

from collections.abc import Mapping

INTEGER = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
FLOATING = ("FLOAT", "DOUBLE")
CHARACTER = ("CHAR", "VARCHAR", "VAR_STRING", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")
BINARY = ("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")
MEMBERS = ("ENUM", "SET")
DATED = ("DATE", "DATETIME", "TIMESTAMP")

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
    "NCHAR VARYING": "VARCHAR",
    "NCHAR VARCHAR": "VARCHAR",
    "NCHAR VARCHARACTER": "VARCHAR",
    "NATIONAL VARCHAR": "VARCHAR",
    "NATIONAL VARCHARACTER": "VARCHAR",
    "NATIONAL CHAR VARYING": "VARCHAR",
    "NATIONAL CHARACTER VARYING": "VARCHAR",
    "LONG": "MEDIUMTEXT",
    "LONG VARCHAR": "MEDIUMTEXT",
    "LONG CHAR VARYING": "MEDIUMTEXT",
    "LONG VARBINARY": "MEDIUMBLOB",
    "GEOMCOLLECTION": "GEOMETRYCOLLECTION",
}


def type_name(words: str) -> str:
    """Return TiDB's name of a type in upper case: `NUMERIC` is DECIMAL; a word that is no synonym stays as it is."""
    return _SYNONYMS.get(words, words)


_TYPE_WORDS = frozenset(
    (
        *(*INTEGER, *FLOATING, *CHARACTER, *BINARY, *MEMBERS, *DATED),
        *("DECIMAL", "BIT", "YEAR", "TIME", "JSON", "VECTOR", "UUID", "INET4", "INET6"),
        *("GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON"),
        "GEOMETRYCOLLECTION",
        *(synonym.partition(" ")[0] for synonym in _SYNONYMS),
    )
)


def is_type(word: str) -> bool:
    """Return whether a word in upper case begins the name of a type."""
    return word in _TYPE_WORDS
