"""Rows of an older schema -> rows of a newer one: what a DDL does to existing rows. Arrow, on Spark's executors.

The lake carries the same changes out on its tables; rows that are decoded by an older directory's columns take them
here, so that one window can hold rows from before and after a DDL.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from cdc_assets.errors import TableHeld
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import (
    AddColumn,
    DropColumn,
    MoveColumns,
    RenameColumn,
    RetypeColumn,
    SchemaChange,
    SetDefault,
)
from cdc_assets.types.conversions import convert, narrows, needs_conversion
from cdc_assets.types.mysql_types import arrow_type, type_text, values, widens

__all__ = ["changes_columns_only", "default_array", "evolve_rows"]


def changes_columns_only(changes: Iterable[SchemaChange], key: Iterable[str]) -> bool:
    """Tell whether changes say for each row alone what becomes of it, and leave the key columns `key` as they are.

    Deleting rows and matching them by another key do not; nor does what touches a key column.
    A conversion counts only when no value can fail it: a row that was gone before the DDL may hold one that does.
    """
    keyed = set(key)
    for change in changes:
        match change:
            case AddColumn() | SetDefault() | MoveColumns():
                continue
            case DropColumn(name) if name not in keyed:
                continue
            case RenameColumn(old, new) if old not in keyed and new not in keyed:
                continue
            case RetypeColumn(old, new) if not keyed & {old.name, new.name} and _never_fails(old, new):
                continue
        return False
    return True


def _never_fails(old: Column, new: Column) -> bool:
    return widens(old, new) and not needs_conversion(old, new) and not narrows(old, new)


def evolve_rows(rows: pa.Table, changes: Iterable[SchemaChange], after: TableSchema) -> pa.Table:
    """Return the rows as they read after `changes`, in the column order of `after`.

    Columns that are not the table's (`_cdc_…`) stay in front as they are. Raises TableHeld for a value that TiDB in
    strict mode does not convert.
    """
    changes = tuple(changes)
    renames = {change.old: change.new for change in changes if isinstance(change, RenameColumn)}
    drops = {change.name for change in changes if isinstance(change, DropColumn)}
    rows = rows.drop_columns([name for name in rows.column_names if name in drops])
    rows = rows.rename_columns([renames.get(name, name) for name in rows.column_names])
    own = [column.name for column in after.stored]
    for change in changes:
        match change:
            case AddColumn(column, default, _) if not column.virtual and column.name not in rows.column_names:
                values = default_array(column, default, rows.num_rows)
                rows = rows.append_column(pa.field(column.name, arrow_type(column)), values)
            case RetypeColumn(old, new, timezone) if new.name in rows.column_names:
                place = rows.column_names.index(new.name)
                values = convert(rows.column(new.name).combine_chunks(), old, new, timezone)[0]
                rows = rows.set_column(place, pa.field(new.name, arrow_type(new)), values)
    meta = [name for name in rows.column_names if name not in own]
    return rows.select([*meta, *own])


def default_array(column: Column, default: object, length: int) -> pa.Array:
    """Return `length` times a default, given as the text that `mysql_types.values` reads; None is NULL.

    A default that the type table turns into null (a zero date) is null. Raises TableHeld for one that does not fit.
    """
    kind = arrow_type(column)
    if default is None:
        return pa.nulls(length, kind)
    text = default if isinstance(default, str | bytes) else str(int(default) if isinstance(default, bool) else default)
    done = values(pa.array([text]), column, timezone="UTC", binary="raw")
    if done.bad is not None and done.bad[0].as_py():
        raise TableHeld(
            f'the default {default!r} of column "{column.name}" is not {type_text(column)}, so the values of existing '
            "rows are unknown. Rebuild the table from here.",
            column=column.name,
        )
    return done.array.take(pa.array([0] * length, pa.int64()))
