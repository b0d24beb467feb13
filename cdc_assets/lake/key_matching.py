"""Conditions in Spark SQL by which rows of a table and staged changes are of one key."""

from __future__ import annotations

import pyarrow as pa

from cdc_assets.lake.spark.session import quoted
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.types.collations import is_plain, spark_normal_form
from cdc_assets.types.mysql_types import arrow_type


def text_literal(name: str) -> str:
    """Return a text as Spark SQL writes it."""
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def place_of(schema: TableSchema, name: str) -> str:
    """Return the column of a staged change that has a column's value."""
    return f"_cdc_s.c{[column.name for column in schema.stored].index(name)}"


def key_equality(column: Column, place: str, table: str = "_cdc_t") -> str:
    """Return the condition that a key column of `table` equals what is at a place."""
    ours, theirs = key_expression(column, f"{table}.{quoted(column.name)}"), key_expression(column, place)
    return f"{ours} {'<=>' if column.nullable else '='} {theirs}"


def key_expression(column: Column, place: str) -> str:
    """Return the SQL expression by which a key column's values are equal: its collation's normal form."""
    collation = column.compares_by
    if not collation or is_plain(collation) or not pa.types.is_string(arrow_type(column)):
        return place
    return str(spark_normal_form(place, collation))
