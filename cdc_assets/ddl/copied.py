"""Whether rows that are copied into an altered table are those that the ALTER would have made of them. Pure.

Tools for online schema changes copy with INSERT IGNORE … SELECT: a row that a unique index of the copy refuses is left
out, a value that does not fit is cut, a NULL becomes the type's empty value, and columns are taken by their names.
"""

from __future__ import annotations

from collections.abc import Sequence

from cdc_assets.ddl.alter import AddColumnSpec, AddIndexSpec, ChangeColumnSpec, CharsetSpec, DropColumnSpec, specs
from cdc_assets.ddl.text import Unreadable, tokens
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import AddColumn, DeleteRows, Rekey, RenameColumn, RetypeColumn, SchemaChange
from cdc_assets.types.conversions import narrows
from cdc_assets.types.families import BINARY, CHARACTER, INTEGER

_FAMILIES = (INTEGER, CHARACTER, BINARY)
_CONSTRAINTS = ("CHECK", "FOREIGN", "REFERENCES")


def same_definition(table: TableSchema, copy: TableSchema) -> bool:
    """Return whether a copy begins with the columns, key and unique indexes of its table."""

    def declared(column: Column) -> tuple[object, ...]:
        return column.type, column.unsigned, column.precision, column.scale or 0, column.elems, column.virtual

    table_columns, other_columns = (
        {column.name.lower(): column for column in schema.columns if not column.kept} for schema in (table, copy)
    )
    return (
        list(table_columns) == list(other_columns)
        and all(declared(table_columns[name]) == declared(column) for name, column in other_columns.items())
        and all(column.nullable >= table_columns[name].nullable for name, column in other_columns.items())
        and table.key == copy.key
        and not _new_unique(table, copy, {})
        and table.partitioning == copy.partitioning
    )


def copy_doubt(before: TableSchema, after: TableSchema, changes: Sequence[SchemaChange], sql: str) -> str:
    """Return the reason why copied rows may differ from those that an ALTER leads to, "" for none.

    `changes` lead from one schema to the other, `sql` is the text of the ALTER.
    """
    try:
        clauses, words = specs(sql), {token.text.upper() for token in tokens(sql) if token.kind == "word"}
    except Unreadable as problem:
        return f"its ALTER cannot be read ({problem})"
    renamed = {change.old: change.new for change in changes if isinstance(change, RenameColumn)}
    if not before.key:
        return "the table has no key"
    if tuple(renamed.get(name, name) for name in before.key) != after.key or any(
        isinstance(change, Rekey) for change in changes
    ):
        return "its key is another one"
    if unique := _new_unique(before, after, renamed):
        return f"its unique index over {', '.join(unique)} leaves out rows that the table may have"
    if before.partitioning != after.partitioning or any(isinstance(change, DeleteRows) for change in changes):
        return "its partitions are others, and may have left out rows"
    if any(isinstance(spec, AddIndexSpec) and spec.index.unique and spec.index.partial for spec in clauses):
        return "its unique index over beginnings of values leaves out rows that the table may have"
    if words & {*_CONSTRAINTS}:
        return "its constraint may have left out rows"
    new = {column.name: column for column in after.columns}
    for old in before.live:
        column = new.get(renamed.get(old.name, old.name))
        if column is not None and old.nullable and not column.nullable:
            return f'its column "{column.name}" is NOT NULL, and NULL became another value in it'
    for change in changes:
        match change:
            case AddColumn(approximate=words_of_guess) if words_of_guess:
                return f'its column "{change.column.name}" has a default that differs from row to row'
            case RetypeColumn():
                alike = change.old.type == change.new.type or any(
                    {change.old.type, change.new.type} <= {*family} for family in _FAMILIES
                )
                if narrows(change.old, change.new) or not alike or change.approximate:
                    return f'its column "{change.new.name}" has another type, in which not every value fits'
    gone = {spec.name.lower() for spec in clauses if isinstance(spec, DropColumnSpec)}
    gone |= {spec.old.lower() for spec in clauses if isinstance(spec, ChangeColumnSpec)}
    taken = {spec.text.name.lower() for spec in clauses if isinstance(spec, AddColumnSpec)} & gone
    taken |= {
        spec.new.lower()
        for spec in clauses
        if isinstance(spec, ChangeColumnSpec) and spec.new.lower() in gone - {spec.old.lower()}
    }
    if taken:
        return f'its column "{min(taken)}" has the name of one that goes, whose values it may have'
    if any(isinstance(spec, ChangeColumnSpec) and spec.text is None for spec in clauses):
        return "it has RENAME COLUMN, of which not every tool knows that the values are the same"
    if any(isinstance(spec, CharsetSpec) for spec in clauses) or "COLLATE" in words or {"CHARACTER", "CHARSET"} & words:
        unique_columns = {name for index in after.indexes if index.unique or index.primary for name in index.columns}
        if any(new[name].collation for name in {*unique_columns, *after.key} if name in new):
            return "texts of its unique indexes may be equal by its collation that were not before"
    return ""


def _new_unique(before: TableSchema, after: TableSchema, renamed: dict[str, str]) -> tuple[str, ...]:
    """Return the columns of a unique index that leaves out rows which those of the table before do not."""
    uniques = [
        (frozenset(renamed.get(name, name).lower() for name in index.columns), index.partial)
        for index in before.indexes
        if index.unique or index.primary
    ] + [(frozenset(renamed.get(name, name).lower() for name in before.key), False)]
    for index in after.indexes:
        columns = frozenset(name.lower() for name in index.columns)
        if (index.unique or index.primary) and not any(
            columns == unique_columns if partial else unique_columns <= columns and not index.partial
            for unique_columns, partial in uniques
        ):
            return index.columns
    return ()
