"""A `tableSchema` of the Simple protocol -> the schema of a table.

The old architecture lists columns by their id, not in table order. Which columns are virtual, and the order of the
key where the index of the primary key does not have it, are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc_assets.model.schema import Column, Index, TableId, TableSchema

__all__ = ["table_of", "table_schema"]

_WHOLE = {"DATETIME": 20, "TIMESTAMP": 20, "TIME": 11}
"""Characters before the fraction digits, of which the Avro encoding has nothing else."""

_UNSIZED = frozenset(("DATE", "DATETIME", "TIMESTAMP", "TIME", "ENUM", "SET", "JSON", "VECTOR"))


def table_of(schema: Mapping[str, Any]) -> TableId:
    """Return the name; raises KeyError or ValueError for none. JSON says `schema` where Avro says `database`."""
    name, table = schema.get("schema", schema.get("database")), schema["table"]
    if not isinstance(name, str) or not isinstance(table, str):
        raise ValueError("its tableSchema names no table")
    return TableId(name, table)


def table_schema(schema: Mapping[str, Any]) -> TableSchema:
    """Return the schema; raises KeyError, TypeError or ValueError for anything else."""
    indexes = tuple(
        Index(str(one["name"]), tuple(map(str, one["columns"])), bool(one["unique"]), bool(one["primary"]))
        for one in schema.get("indexes") or ()
    )
    primary = next((one.columns for one in indexes if one.primary), ())
    columns = tuple(_column(one, primary) for one in schema["columns"])
    nullable = {column.name for column in columns if column.nullable}
    whole = [one.columns for one in indexes if one.unique and not nullable.intersection(one.columns)]
    return TableSchema(columns, primary or min(whole, key=len, default=()), indexes)


def _column(column: Mapping[str, Any], primary: tuple[str, ...]) -> Column:
    kind = column["dataType"]
    name, length = str(kind["mysqlType"]).upper(), int(kind["length"])
    decimal = int(kind.get("decimal") or 0) or max(0, length - _WHOLE.get(name, length))
    elements = kind.get("elements")
    charset = str(kind.get("charset") or "")
    collation = str(kind.get("collate") or "")
    return Column(
        name=str(column["name"]),
        type=name,
        unsigned=bool(kind.get("unsigned")),
        precision=None if name in _UNSIZED or length < 0 else length,
        scale=decimal if decimal > 0 or name == "DECIMAL" else None,
        nullable=bool(column["nullable"]),
        is_pk=column["name"] in primary,
        default=column.get("default"),
        elems=tuple(map(str, elements)) if elements is not None else None,
        collation=collation if charset != "binary" and collation else None,
    )
