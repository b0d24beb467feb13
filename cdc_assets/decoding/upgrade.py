"""Rows of an older schema -> rows of a newer one: what a DDL does to existing rows. Arrow, on Spark's executors.

The lake carries the same changes out on its tables; rows that are decoded by an older directory's columns take them
here, so that one window can hold rows from before and after a DDL.

    upgraded      rows of a file, from before and after the DDLs that the step's table took ahead -> the step's schema
    evolve_rows   rows from before some changes -> as they read after them
    carried       row changes from before a DDL -> as it leaves them
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding import DELIVERY
from cdc_assets.decoding.own_columns import ABSENT
from cdc_assets.decoding.split import Split, between, in_shape, no_changes
from cdc_assets.errors import TableHeld
from cdc_assets.formats.decoded import OP, UNCHANGED, Op
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import (
    AddColumn,
    DeleteRows,
    DropColumn,
    MoveColumns,
    Rekey,
    RenameColumn,
    RetypeColumn,
    SchemaChange,
    SetDefault,
)
from cdc_assets.model.steps import ApplyRows, ChangeTable
from cdc_assets.types.conversions import convert_past, narrows, needs_conversion
from cdc_assets.types.mysql_types import arrow_type, type_text, values, widens


def changes_columns_only(changes: Iterable[SchemaChange], key: Iterable[str]) -> bool:
    """Return whether changes say for each row alone what becomes of it, and leave the key columns `key` as they are.

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


def evolve_rows(
    rows: pa.Table, changes: Iterable[SchemaChange], after: TableSchema, present: pa.Array | None = None
) -> pa.Table:
    """Return the rows as they read after `changes`, in the column order of `after`.

    Columns that are not the table's (`_cdc_…`) stay in front as they are. Raises TableHeld for a value that TiDB in
    strict mode does not convert; of rows that are not `present`, if that is given, it is NULL.
    """
    every = pa.repeat(pa.scalar(True), rows.num_rows) if present is None else present
    changes = tuple(changes)
    renames = {change.old: change.new for change in changes if isinstance(change, RenameColumn)}
    drops = {change.name for change in changes if isinstance(change, DropColumn)}
    rows = rows.drop_columns([name for name in rows.column_names if name in drops])
    rows = rows.rename_columns([renames.get(name, name) for name in rows.column_names])
    for naming in (UNCHANGED, ABSENT) if renames or drops else ():
        if naming in rows.column_names:
            rows = _naming(rows, naming, renames, drops)
    own = [column.name for column in after.stored]
    for change in changes:
        match change:
            case AddColumn(column, default, _) if not column.virtual and column.name not in rows.column_names:
                values = default_array(column, default, rows.num_rows)
                rows = rows.append_column(pa.field(column.name, arrow_type(column)), values)
            case RetypeColumn(old, new, timezone) if new.name in rows.column_names:
                place = rows.column_names.index(new.name)
                values = convert_past(rows.column(new.name), every, old, new, timezone)
                rows = rows.set_column(place, pa.field(new.name, arrow_type(new)), values)
    meta = [name for name in rows.column_names if name not in own]
    return rows.select([*meta, *own])


def _naming(rows: pa.Table, naming: str, renames: Mapping[str, str], drops: Collection[str]) -> pa.Table:
    """Return rows whose column of column names has those of after a DDL."""
    place, lists = rows.column_names.index(naming), rows.column(naming).to_pylist()
    named = [names and [renames.get(name, name) for name in names if name not in drops] for names in lists]
    return rows.set_column(place, rows.schema.field(place), pa.array(named, rows.schema.field(place).type))


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


# --- a file's rows ----------------------------------------------------------------------------------------------------


def upgraded(step: ApplyRows, split: Split) -> Split:
    """Give the rows the step's schema: those from before a DDL that the table took ahead go through it."""
    changes = split.changes
    if split.stray is not None or not changes.num_rows:
        return split
    parts = []
    since, before = step.lo, step.evolutions[0].before
    for number, evolution in enumerate(step.evolutions):
        if not all(isinstance(change, SetDefault) for change in evolution.changes):
            parts.append(_carried(between(changes, since, evolution.at - 1), before, step, number))
            since = evolution.at - 1
        before = evolution.after
    rest = between(changes, since, step.hi)
    parts.append(_carried(rest, step.schema, step, len(step.evolutions)))
    return replace(split, changes=pa.concat_tables(parts, promote_options="default"))


def _carried(rows: pa.Table, before: TableSchema, step: ApplyRows, number: int) -> pa.Table:
    """Rows of before the step's DDL of that number, as they read after the last one."""
    if not rows.num_rows:  # their columns may be of types that none of the window's become
        return no_changes(step.schema, DELIVERY in rows.column_names)
    rows = in_shape(rows, before)
    for evolution in step.evolutions[number:]:
        rows = evolve_rows(rows, evolution.changes, evolution.after)
    return in_shape(rows, step.schema, of_source=False)


def carried(changes: pa.Table, step: ChangeTable) -> pa.Table:
    """Return row changes from before a DDL as it leaves them: a row that it deletes becomes a delete of its key."""
    columns = []
    for change in step.changes:
        if isinstance(change, DeleteRows):
            changes = changes if step.life.kind else _deleted(changes, change)
        elif not isinstance(change, Rekey):
            columns.append(change)
    return evolve_rows(changes, columns, step.schema)


def _deleted(changes: pa.Table, change: DeleteRows) -> pa.Table:
    from cdc_assets.ddl import polars_expr, undated, undated_rows

    gone = pa.repeat(pa.scalar(True), changes.num_rows)
    if change.predicate is not None:
        frame = pl.from_arrow(changes)
        assert isinstance(frame, pl.DataFrame)
        missing = undated(change.predicate)
        if missing is not None and not frame.filter(polars_expr(missing)).is_empty():
            raise undated_rows("quarantined records", change.predicate)
        chosen = frame.select(polars_expr(change.predicate).fill_null(value=False).alias("gone"))
        gone = chosen.get_column("gone").to_arrow()
    ops = pc.if_else(gone, pa.scalar(int(Op.DELETE), pa.int8()), changes.column(OP))
    return changes.set_column(changes.schema.get_field_index(OP), pa.field(OP, pa.int8()), ops)
