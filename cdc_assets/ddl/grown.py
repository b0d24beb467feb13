"""The columns that rows describe, without DDL: new ones are added, missing ones stay.

A source that only shows its columns (Avro, Debezium's schema block, YDB) cannot express a rename, only a drop and an
add, nor the values of old rows. So a new column reads NULL in them, a missing column is kept by the lake, and a type
that holds every value of the old one replaces it; one that the old one holds changes nothing; anything else is held.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from cdc_assets.ddl.schema import held
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import AddColumn, DropColumn, MoveColumns, Rekey, RetypeColumn, SchemaChange
from cdc_assets.model.splits import SchemaFile
from cdc_assets.types.conversions.described import grows
from cdc_assets.types.mysql_types import arrow_type, type_text

_UNKNOWN = "NULL: the feed does not have the values of old rows"
_REBUILD = "rebuild the table from a new snapshot"


def grown(before: TableSchema, file: SchemaFile) -> tuple[TableSchema, tuple[SchemaChange, ...]]:
    """Return the schema after rows describe other columns, and the changes in an executable order.

    Columns that are gone appear as DropColumn; the caller decides whether the lake keeps them. Raises TableHeld for a
    type that does not hold the old one's values, and for a key of columns that old rows do not have.
    """
    shown = file.whole or TableSchema(file.columns)
    old = {column.name: column for column in before.columns}
    shown = replace(shown, columns=tuple(_wider(old.get(column.name), column) for column in shown.columns))
    new = {column.name for column in shown.columns}
    after = replace(before, columns=shown.columns, key=shown.key, indexes=shown.indexes)
    changes: list[SchemaChange] = [DropColumn(name) for name in old if name not in new]
    changes += [AddColumn(column, None, _UNKNOWN) for column in shown.columns if column.name not in old]
    for column in shown.columns:
        if column.name in old and arrow_type(old[column.name]) != arrow_type(column):
            changes.append(_retyped(file, old[column.name], column))
    left = [column.name for column in before.columns if column.name in new]
    left += [column.name for column in shown.columns if column.name not in old]
    order = tuple(column.name for column in shown.columns)
    if list(order) != left:
        changes.append(MoveColumns(order))
    if shown.key != before.key:
        _refuse_key(file, before, shown)
        changes.append(Rekey(shown.key))
    return after, tuple(changes)


def _wider(old: Column | None, new: Column) -> Column:
    """Keep a type that holds every value of the new one and rounds none: rows of a partition may lag behind."""
    if old is None or arrow_type(old) == arrow_type(new) or not grows(new, old):
        return new
    kind = arrow_type(old)
    exact = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and (old.scale or 0) == (new.scale or 0))
    return old if exact else new


def _retyped(file: SchemaFile, old: Column, new: Column) -> RetypeColumn:
    if not grows(old, new):
        raise held(
            file,
            f'The column "{new.name}" changed from {type_text(old)} to {type_text(new)}, which does not hold every '
            "value of the old type, so what became of the values of old rows is not known",
            _REBUILD,
            column=new.name,
        )
    return RetypeColumn(old, new)


def _refuse_key(file: SchemaFile, before: TableSchema, shown: TableSchema) -> None:
    there = {column.name for column in before.columns}
    if not before.key or not shown.key or not there.issuperset(shown.key):
        raise held(
            file,
            f"The key changed from ({', '.join(before.key)}) to ({', '.join(shown.key)}), by which old rows cannot be "
            "identified",
            _REBUILD,
        )
