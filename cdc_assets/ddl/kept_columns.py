"""Columns that the lake keeps although the source dropped them.

They come after the others, are NULL in rows written since, and take no part in decoding (`Column.kept`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cdc_assets.errors import TableHeld
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import (
    AddColumn,
    DeleteRows,
    DropColumn,
    MoveColumns,
    Rekey,
    RenameColumn,
    SchemaChange,
)
from cdc_assets.model.splits import SchemaFile
from cdc_assets.types.mysql_types import arrow_type

__all__ = ["bare", "emptied", "with_kept"]


def bare(schema: TableSchema) -> TableSchema:
    """The columns that the source has."""
    return replace(schema, columns=tuple(column for column in schema.columns if not column.kept))


def emptied(changes: Iterable[SchemaChange]) -> tuple[SchemaChange, ...]:
    """Add the deletion of all rows at its place in the order of changes."""
    changes = tuple(changes)
    rekeys = tuple(change for change in changes if isinstance(change, Rekey))
    return (*(change for change in changes if not isinstance(change, (Rekey, DeleteRows))), DeleteRows(None), *rekeys)


def with_kept(
    before: TableSchema,
    after: TableSchema,
    changes: Sequence[SchemaChange],
    file: SchemaFile,
    keep: bool,
    key: tuple[str, ...] | None,
) -> tuple[TableSchema, tuple[SchemaChange, ...]]:
    """Keep dropped columns after the others; a column that is added under a kept one's name continues it."""
    kept = {column.name.lower(): column for column in before.columns if column.kept}
    known = set(kept)
    left = list(changes)
    for change in changes if keep else ():
        if isinstance(change, DropColumn):
            gone = before.column(change.name)
            kept[gone.name.lower()] = replace(gone, nullable=True, is_pk=False, default=None, kept=file.version)
            left.remove(change)
    if not kept:
        return after, tuple(changes)
    for change in changes:
        if isinstance(change, AddColumn) and change.column.name.lower() in kept:
            _go_on(kept.pop(change.column.name.lower()), change, left, file)
        if isinstance(change, RenameColumn) and change.new.lower() in kept:
            raise _held(file, f'the lake keeps a column "{change.new}" that the source dropped')
    if kept and not (key or after.key):
        raise _held(file, "rows without key are matched by all of their columns, so no dropped column can be kept")
    schema = replace(after, columns=(*after.columns, *kept.values()))
    if set(kept) != known or any(isinstance(change, (AddColumn, MoveColumns)) for change in left):
        left = _in_order(left, tuple(column.name for column in schema.stored))
    return schema, tuple(left)


def _go_on(old: Column, add: AddColumn, left: list[SchemaChange], file: SchemaFile) -> None:
    new = add.column
    if arrow_type(old) != arrow_type(new) or not replace(old, name=new.name).decodes_like(new):
        raise _held(file, f'the lake keeps a column "{old.name}" of another type, so the new one cannot continue it')
    left.remove(add)
    if old.name != new.name:
        left.insert(0, RenameColumn(old.name, new.name))


def _in_order(changes: Sequence[SchemaChange], order: tuple[str, ...]) -> list[SchemaChange]:
    """The same changes with one order of all columns, before what concerns values and rows."""
    rest = [change for change in changes if not isinstance(change, MoveColumns)]
    place = next((n for n, one in enumerate(rest) if type(one).__name__ in _AFTER_MOVES), len(rest))
    return [*rest[:place], MoveColumns(order), *rest[place:]]


_AFTER_MOVES = ("SetDefault", "DeleteRows", "Rekey")


def _held(file: SchemaFile, reason: str) -> TableHeld:
    text = file.query or "no DDL text"
    return TableHeld(f"{file.table} at {file.version}: {text}. The column cannot be kept: {reason}.")
