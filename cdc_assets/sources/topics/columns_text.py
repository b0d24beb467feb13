"""The columns that rows of a table show <-> text. Nothing here reads DDL, so that tasks load it at once."""

from __future__ import annotations

import json

from cdc_assets.model.schema import Column, Index, TableSchema


def format_schema(schema: TableSchema, approximate: tuple[str, ...]) -> str:
    """Return the columns of a table's rows as JSON."""
    columns = [
        {
            "name": column.name,
            "type": column.type,
            "unsigned": column.unsigned,
            "precision": column.precision,
            "scale": column.scale,
            "nullable": column.nullable,
            "is_pk": column.is_pk,
            "elems": column.elems,
            "collation": column.collation,
        }
        for column in schema.columns
    ]
    indexes = [
        {"name": index.name, "columns": index.columns, "unique": index.unique, "primary": index.primary}
        for index in schema.indexes
    ]
    return json.dumps({"columns": columns, "key": schema.key, "indexes": indexes, "approximate": approximate})


def parse_schema(text: str) -> tuple[TableSchema, tuple[str, ...]]:
    """Read the schema that `format_schema` wrote."""
    fields = json.loads(text)
    columns = tuple(
        Column(**{**column, "elems": None if column["elems"] is None else tuple(column["elems"])})
        for column in fields["columns"]
    )
    indexes = tuple(Index(**{**index, "columns": tuple(index["columns"])}) for index in fields["indexes"])
    return TableSchema(columns, tuple(fields["key"]), indexes), tuple(fields["approximate"])
