"""Columns that the lake keeps although the source dropped them.

They come after the others, are NULL in rows written since, and take no part in decoding (`Column.kept`). Where all of
them stay, as in tables of history, a column that is added under the name of one of them continues it if the type fits;
else it has a name of its own in the lake, `name__2`, and says which it has in the source (`Column.origin`).

    lasting        what a DDL makes of the columns of such a table
    with_kept      the same for a mirror, which cannot have two columns of one name
    beside_mirror  the same for a table of history, by what the DDL makes of its mirror
    placed         a condition on columns of the source, by the names that the lake has for them
    column_lives   when the source had which column
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count

from cdc_assets.errors import TableHeld
from cdc_assets.model.kinds import ColumnLife
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import (
    AddColumn,
    ContinueColumn,
    DeleteRows,
    DropColumn,
    MoveColumns,
    Predicate,
    Rekey,
    RenameColumn,
    RetypeColumn,
    SchemaChange,
    SetDefault,
)
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso
from cdc_assets.types.conversions import narrows, needs_conversion
from cdc_assets.types.mysql_types import arrow_type, type_text


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
    schema, lake_changes = lasting(before, after, changes, file.version, keep)
    added = {change.column.name for change in lake_changes if isinstance(change, AddColumn)}
    for column in schema.columns:
        if not column.kept and column.origin:
            problem = f'the lake keeps a column "{column.origin}" '
            other = "of another type, so the new one cannot continue it"
            raise _held(file, problem + (other if column.name in added else "that the source dropped"))
    if any(column.kept for column in schema.columns) and not (key or after.key):
        raise _held(file, "rows without key are matched by all of their columns, so no dropped column can be kept")
    return schema, tuple(change for change in lake_changes if not isinstance(change, ContinueColumn))


def _held(file: SchemaFile, reason: str) -> TableHeld:
    text = file.query or "no DDL text"
    return TableHeld(f"{file.table} at {file.version}: {text}. The column cannot be kept: {reason}.")


def lasting(
    before: TableSchema, after: TableSchema, changes: Sequence[SchemaChange], at: Tso, keep: bool = True
) -> tuple[TableSchema, tuple[SchemaChange, ...]]:
    """Return the columns that the lake has after a DDL of version `at`, and the changes that lead to them.

    `before` are those that the lake had; `after` and the changes are the source's. Without `keep` only columns that
    were dropped earlier stay.
    """
    kept_columns = {column.name.lower(): column for column in before.columns if column.kept}
    names_before = set(kept_columns)
    names = {column.source_name: column.name for column in before.columns if not column.kept}
    for change in changes:
        if keep and isinstance(change, DropColumn):
            gone = before.column(names.pop(change.name))
            kept_columns[gone.name.lower()] = replace(gone, nullable=True, is_pk=False, default=None, kept=at)
    if not kept_columns and all(name == place for name, place in names.items()):
        return after, tuple(changes)
    added = {change.column.name: change.default for change in changes if isinstance(change, AddColumn)}
    continued: list[SchemaChange] = []
    places: dict[str, str] = {}
    for column in after.columns:
        old = _fitting(kept_columns, column) if column.name in added else None
        if old is not None:
            del kept_columns[old.name.lower()]
            is_same_name = old.name.lower() == column.name.lower()
            place = places[column.name] = column.name if is_same_name else old.name
            continued += [RenameColumn(old.name, place)] if old.name != place else []
            continued.append(ContinueColumn(_placed(column, place), added[column.name]))
    fresh = {*added, *(change.new for change in changes if isinstance(change, RenameColumn))}
    places |= {column.name: names.get(column.name, column.name) for column in after.columns if column.name not in fresh}
    taken = {*kept_columns, *(place.lower() for place in places.values())}
    for column in after.columns:
        if column.name not in places:
            places[column.name] = next(
                candidate
                for candidate in chain([column.name], (f"{column.name}__{n}" for n in count(2)))
                if candidate.lower() not in taken
            )
            taken.add(places[column.name].lower())
    live = tuple(_placed(column, places[column.name]) for column in after.columns)
    schema = replace(after, columns=(*live, *kept_columns.values()), key=tuple(places[name] for name in after.key))
    continued_names = {change.column.name for change in continued if isinstance(change, ContinueColumn)}
    lake_changes = [*continued, *_in_lake(changes, names, places, continued_names)]
    if set(kept_columns) != names_before or any(isinstance(change, (AddColumn, MoveColumns)) for change in changes):
        order = tuple(column.name for column in schema.stored)
        # The one MoveColumns stands before changes of defaults, rows and keys.
        rest = [change for change in lake_changes if not isinstance(change, MoveColumns)]
        first = next(
            (n for n, change in enumerate(rest) if isinstance(change, (SetDefault, DeleteRows, Rekey))), len(rest)
        )
        lake_changes = [*rest[:first], MoveColumns(order), *rest[first:]]
    return schema, tuple(lake_changes)


def beside_mirror(
    grown: TableSchema, mirror: TableSchema, after: TableSchema, changes: Sequence[SchemaChange], at: Tso
) -> tuple[TableSchema, tuple[SchemaChange, ...]]:
    """Return the result of `lasting` for a table whose columns grow, by what a DDL makes of its mirror.

    `grown` are the columns of that table, `mirror` and `after` those of the mirror, which may keep some of what the
    source drops. What the mirror gives up then, its source has no longer; what it goes on with keeps its values here
    too.
    """
    kept_names = {column.name for column in mirror.columns if column.kept}
    given_up = kept_names & {change.name for change in changes if isinstance(change, DropColumn)}
    renamed = {change.new for change in changes if isinstance(change, RenameColumn) and change.old in kept_names}
    continued_columns = [
        column for column in after.live if column.name in renamed or column.name in kept_names - given_up
    ]
    source: list[SchemaChange] = [
        DropColumn(column.name) for column in after.columns if column.kept and column.name not in kept_names
    ]
    source += [AddColumn(column) for column in continued_columns]
    for change in changes:
        match change:
            case DropColumn(name) | RenameColumn(name) if name in kept_names:
                pass
            case _:
                source.append(change)
    schema, lake_changes = lasting(grown, bare(after), source, at)
    going_on = {column.name for column in continued_columns}
    return schema, tuple(
        c for c in lake_changes if not (isinstance(c, ContinueColumn) and c.column.source_name in going_on)
    )


def _fitting(kept_columns: Mapping[str, Column], new: Column) -> Column | None:
    """Return the first kept column of that name whose type fits."""
    for old in kept_columns.values():
        is_same_name = old.source_name.lower() == new.name.lower()
        if (
            is_same_name
            and arrow_type(old) == arrow_type(new)
            and replace(old, name=new.name, virtual=new.virtual).decodes_like(new)
        ):
            return old
    return None


def _placed(column: Column, name: str) -> Column:
    return replace(column, name=name, origin="" if name == column.name else column.name)


def _in_lake(
    changes: Iterable[SchemaChange], names: Mapping[str, str], places: Mapping[str, str], continued: Collection[str]
) -> Iterator[SchemaChange]:
    """Yield the changes by the names that columns have in the lake: `names` before them, `places` after."""
    for change in changes:
        match change:
            case DropColumn(name):
                if name in names:
                    yield DropColumn(names[name])
            case RenameColumn(old, new):
                if names[old] != places[new]:
                    yield RenameColumn(names[old], places[new])
            case AddColumn(column):
                if places[column.name] not in continued:
                    yield replace(change, column=_placed(column, places[column.name]))
            case RetypeColumn(old, new):
                before = _placed(old, names.get(old.name, places.get(old.name, old.name)))
                yield replace(change, old=before, new=_placed(new, places[new.name]))
            case SetDefault(name):
                yield replace(change, name=places.get(name, name))
            case Rekey(key):
                yield Rekey(tuple(places[name] for name in key))
            case DeleteRows(predicate) if predicate is not None:
                yield replace(change, predicate=_renamed(predicate, places))
            case _:
                yield change


def placed(predicate: Predicate, schema: TableSchema) -> Predicate:
    """Return a condition by the names that the columns of the source have in the lake."""
    return _renamed(predicate, schema.lake_names)


def _renamed(predicate: Predicate, places: Mapping[str, str]) -> Predicate:
    args = tuple(_renamed(arg, places) for arg in predicate.args)
    value = places.get(predicate.value, predicate.value) if predicate.op == "column" else predicate.value
    return replace(predicate, args=args, value=value)


# --- when the source had which column ---------------------------------------------------------------------------------


def first_lives(schema: TableSchema, at: Tso) -> tuple[ColumnLife, ...]:
    """Return the lives of the columns of a table that begins at a position."""
    return tuple(
        ColumnLife(column.name, column.source_name, min(at, column.kept or at), column.kept or None)
        for column in schema.stored
    )


def column_lives(
    lives: Sequence[ColumnLife], after: TableSchema, changes: Iterable[SchemaChange], at: Tso
) -> tuple[ColumnLife, ...]:
    """Return the lives of all columns after changes of version `at` that lead to the columns `after`.

    A column that was renamed has its new name in all of its lives, and in the newest one also as the source's. One of
    another type has it in all of them, too: values of the past are converted with the others.
    """
    changes = tuple(changes)
    types = {
        change.new.name: (at, type_text(change.old))
        for change in changes
        if isinstance(change, RetypeColumn) and _converts(change.old, change.new)
    }
    renames = {change.old: change.new for change in changes if isinstance(change, RenameColumn)}
    live = {column.name: column.source_name for column in after.live}
    new_lives: list[ColumnLife] = []
    for life in lives:
        name = renames.get(life.column, life.column)
        ends = life.until is None and name not in live
        source = live[name] if life.until is None and name in live else life.source
        past = (*life.types, types[name]) if name in types else life.types
        called = life.names if source == life.source else (*life.names, (at, life.source))
        new_lives.append(ColumnLife(name, source, life.since, at if ends else life.until, past, called))
    live_columns = {life.column for life in new_lives if life.until is None}
    return (*new_lives, *(ColumnLife(name, source, at) for name, source in live.items() if name not in live_columns))


def _converts(old: Column, new: Column) -> bool:
    return needs_conversion(old, new) or narrows(old, new) or arrow_type(old) != arrow_type(new)
