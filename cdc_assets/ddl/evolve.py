"""Old schema + schema file -> new schema and the changes that lead there.

The difference of the columns is the truth. The text decides what it cannot: which drop and add are a rename, which
column of the same name is a new one, what a partition clause deletes. Column ids decide where there is no text, but not
beside it: TiDB gives a column a new id when MODIFY rewrites it.

Changes come in an executable order: DropColumn, RenameColumn (all at once, names may swap), AddColumn, RetypeColumn
(under its new name), MoveColumns, SetDefault, DeleteRows, Rekey. Virtual generated columns are not in the lake and take
no part in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from cdc_assets.ddl.afterwards import Pairs, Text, read_text, refuse_computed, schema_after
from cdc_assets.ddl.alter import PartitionRowsSpec, StrangeSpec
from cdc_assets.ddl.clauses import UNKNOWN_PARTITIONS
from cdc_assets.ddl.defaults import NoDefault, added_default
from cdc_assets.ddl.missing_ddl import refuse_swapped, refuse_unknown_columns
from cdc_assets.ddl.partitions import partition_predicate
from cdc_assets.ddl.retype import retyped, same_definition
from cdc_assets.ddl.schema import held
from cdc_assets.ddl.statement import Statement, Truncate, Unknown, statement
from cdc_assets.errors import TableHeld
from cdc_assets.model.schema import Column, Partitioning, TableSchema
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
from cdc_assets.model.splits import SchemaFile
from cdc_assets.types.mysql_types import arrow_type, widens

__all__ = ["evolve", "follow"]

_HIDDEN = "the ADD COLUMN is not in the changefeed: ColumnDefault of the first schema file that has the column"
_NO_MEMBER = "it states none, as all files of TiCDC 6.5.0 to 6.5.2, 6.6.0, 7.0.0 and 7.1.0"
_LEFT_OUT = "the DDL's effect on old rows is skipped"
_EMPTY = "drop the rows up to here (rebuild)"


def evolve(
    before: TableSchema, file: SchemaFile, database_collation: str | None, timezone: str = "UTC"
) -> tuple[TableSchema, tuple[SchemaChange, ...]]:
    """Return the schema after a schema file, and the changes in an executable order; () if rows stay as they are.

    `timezone` stands for that of the session that ran the DDL, where values depend on it.
    `before.columns` may already be the file's columns: a repeated DDL gives (). Raises TableHeld, with the ways out,
    for what cannot be carried out faithfully, and for columns that contradict the text.
    """
    kind = statement(file)
    if isinstance(kind, Unknown):
        raise held(file, kind.reason)
    text = read_text(before, file, kind)
    pairs = _pair(before, file, text)
    after = schema_after(before, file, text, pairs, database_collation, timezone)
    refuse_computed(file, after, text, pairs)
    changes: list[SchemaChange] = [DropColumn(column.name) for column in pairs.dropped if not column.virtual]
    changes += _renames(after, pairs)
    changes += _adds(file, after, text, pairs, timezone)
    changes += _retypes(file, after, pairs, timezone)
    changes += _moves(before, after, pairs)
    changes += _set_defaults(after, pairs)
    changes += _deletes(before, file, kind, text)
    changes += _rekeys(before, after, pairs)
    return after, tuple(changes)


def follow(
    before: TableSchema,
    file: SchemaFile,
    database_collation: str | None,
    timezone: str = "UTC",
    *,
    empty: bool = False,
) -> tuple[TableSchema, tuple[SchemaChange, ...]]:
    """Return the schema after a schema file by plain difference, and changes that leave the rows as they are.

    A missing column is dropped; a new one reads NULL in old rows, and so does one whose new lake type the old one does
    not widen to. Nothing is renamed, converted or deleted. `empty` says that no row is left.
    Raises TableHeld when a column of the key would be NULL in old rows.
    """
    kind, text = statement(file), Text(read=False)
    with suppress(TableHeld):
        text = read_text(before, file, kind)
    old = {column.name.lower(): column for column in before.columns}
    origin = {column.name.lower(): _unconverted(old.get(column.name.lower()), column) for column in file.columns}
    used = {id(column) for column in origin.values() if column is not None}
    pairs = Pairs(origin, tuple(column for column in before.columns if id(column) not in used))
    try:
        after = schema_after(before, file, text, pairs, database_collation, timezone)
        refuse_computed(file, after, text, pairs)
    except TableHeld:
        after = schema_after(before, file, Text(read=False), pairs, database_collation, timezone)
    if isinstance(kind, Unknown) and before.partitioning is not None:
        after = replace(after, partitioning=Partitioning(UNKNOWN_PARTITIONS, (kind.reason,)))
    new = [column for column in after.stored if origin[column.name.lower()] is None]
    lost = [column.name for column in new if column.name in after.key]
    if lost and not empty:
        raise held(
            file, f"If its effect on rows is skipped, {', '.join(lost)} of the key would be NULL in old rows", _EMPTY
        )
    changes: list[SchemaChange] = [DropColumn(column.name) for column in pairs.dropped if not column.virtual]
    changes += _renames(after, pairs)
    changes += [AddColumn(column, None, "" if empty else _LEFT_OUT) for column in new]
    for column in after.stored:
        past = origin[column.name.lower()]
        if past is not None and arrow_type(past) != arrow_type(column):
            changes.append(RetypeColumn(replace(past, name=column.name), column))
    changes += _moves(before, after, pairs)
    changes += _set_defaults(after, pairs)
    changes += _rekeys(before, after, pairs)
    return after, tuple(changes)


def _unconverted(old: Column | None, new: Column) -> Column | None:
    """The column whose values can stay as they are in the new one."""
    return old if old is not None and (old.virtual or widens(old, new)) else None


# --- which column is which --------------------------------------------------------------------------------------------


def _pair(before: TableSchema, file: SchemaFile, text: Text) -> Pairs:
    origin: dict[str, Column | None] = {}
    untouched: set[str] = set()
    for column in before.columns:
        name = column.name.lower()
        if name in text.dropped:
            continue
        origin[text.renamed.get(name, name)] = column
        if name not in text.renamed:
            untouched.add(name)
    listed = {column.name.lower(): column for column in file.columns}
    extra = [c for name, c in listed.items() if name not in origin and name not in text.added and not c.hidden]
    gone = [c for name, c in origin.items() if name not in listed and c is not None and not c.hidden]
    undefined = untouched & set(listed) - set(text.defined)
    same = {name: (old, listed[name]) for name in undefined if (old := origin[name]) is not None}
    changed = {name: (old, new) for name, (old, new) in same.items() if old.type != new.type}
    if changed:
        refuse_swapped(file, gone, changed)
    replaced = _replaced(file, text, origin, listed, untouched)
    for name in replaced:
        gone.append(origin[name])  # type: ignore[arg-type]
        extra.append(listed[name])
    hidden = _hidden(file, text, gone, extra)
    result = {name: hidden.get(name, origin.get(name)) for name in listed}
    for name in (*replaced, *text.added):
        result[name] = hidden.get(name)
    if text.defined or text.defaults:
        refuse_unknown_columns(file, {*text.defined, *text.defaults} - set(text.added), result)
    used = {id(column) for column in result.values() if column is not None}
    return Pairs(result, tuple(column for column in before.columns if id(column) not in used))


def _replaced(
    file: SchemaFile,
    text: Text,
    origin: Mapping[str, Column | None],
    listed: Mapping[str, Column],
    untouched: set[str],
) -> list[str]:
    """Columns of the same name whose id is another, without a text that says why."""
    found = []
    for name in untouched & set(listed):
        old, new = origin[name], listed[name]
        if old is None or old.hidden or old.id is None or new.id is None or old.id == new.id:
            continue
        if not same_definition(old, new):
            raise held(
                file,
                f'Column "{new.name}" has another id and another type, and no text says whether it was changed or '
                "dropped and added anew",
                column=new.name,
            )
        found.append(name)
    return found


def _hidden(file: SchemaFile, text: Text, gone: Sequence[Column], extra: Sequence[Column]) -> dict[str, Column]:
    """Pair removed and new columns without a text, by id; hold if a rename remains possible."""
    by_id = {column.id: column for column in gone if column.id is not None}
    pairs = {column.name.lower(): by_id[column.id] for column in extra if column.id in by_id}
    left = [column for column in gone if id(column) not in {id(one) for one in pairs.values()}]
    new = [column for column in extra if column.name.lower() not in pairs]
    if new and not text.read:
        raise held(file, f"The text cannot be read, and the file has new columns: {_names(new)}")
    all_have_ids = all(column.id is not None for column in (*left, *new))
    if left and new and not all_have_ids:
        raise held(
            file,
            f"The columns {_names(left)} are gone and {_names(new)} are new, and no text says whether that is a rename",
            "set output-column-id = true in the changefeed for the future",
        )
    return pairs


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(f'"{column.name}"' for column in columns)


# --- the changes ------------------------------------------------------------------------------------------------------


def _renames(after: TableSchema, pairs: Pairs) -> list[SchemaChange]:
    found: list[SchemaChange] = []
    for column in after.stored:
        old = pairs.origin[column.name.lower()]
        if old is not None and old.name != column.name:
            found.append(RenameColumn(old.name, column.name))
    return found


def _adds(file: SchemaFile, after: TableSchema, text: Text, pairs: Pairs, timezone: str) -> list[SchemaChange]:
    found: list[SchemaChange] = []
    members = {column.name: column.default for column in file.columns}
    for column in after.stored:
        name = column.name.lower()
        if pairs.origin[name] is not None:
            continue
        given = text.added.get(name)
        try:
            made = file.commit_ts or file.version
            value, guess = added_default(column, members[column.name], given, made, timezone)
        except NoDefault as problem:
            raise held(
                file,
                f'Column "{column.name}": {problem}',
                column=column.name,
            ) from problem
        hidden = "" if given else _HIDDEN
        unstated = _NO_MEMBER if hidden and members[column.name] is None else ""
        found.append(AddColumn(column, value, "; ".join(part for part in (guess, hidden, unstated) if part)))
    return found


def _retypes(file: SchemaFile, after: TableSchema, pairs: Pairs, timezone: str) -> list[SchemaChange]:
    found: list[SchemaChange] = []
    for column in after.stored:
        old = pairs.origin[column.name.lower()]
        if old is None or old == column:
            continue
        try:
            changed = retyped(replace(old, name=column.name), column, timezone)
        except ValueError as problem:
            raise held(file, f'Column "{column.name}": {problem}', column=column.name) from problem
        if changed is not None:
            found.append(changed)
    return found


def _moves(before: TableSchema, after: TableSchema, pairs: Pairs) -> list[SchemaChange]:
    """Compare the file's order with what Iceberg leaves: old columns in their order, new ones at the end."""
    new_name = {id(old): name for name, old in pairs.origin.items() if old is not None}
    left = [new_name[id(column)] for column in before.stored if id(column) in new_name]
    left += [column.name.lower() for column in after.stored if pairs.origin[column.name.lower()] is None]
    order = tuple(column.name for column in after.stored)
    return [] if [name.lower() for name in order] == left else [MoveColumns(order)]


def _set_defaults(after: TableSchema, pairs: Pairs) -> list[SchemaChange]:
    found: list[SchemaChange] = []
    for column in after.stored:
        old = pairs.origin[column.name.lower()]
        if old is not None and old.default != column.default:
            found.append(SetDefault(column.name, column.default))
    return found


def _deletes(before: TableSchema, file: SchemaFile, kind: Statement, text: Text) -> list[SchemaChange]:
    if isinstance(kind, Truncate):
        return [DeleteRows(None)]
    if file.type in (20, 23) and not any(isinstance(spec, PartitionRowsSpec | StrangeSpec) for spec in text.specs):
        raise held(file, "The text cannot be read, so the partitions whose rows are deleted are not known")
    found: list[SchemaChange] = []
    for spec in text.specs:
        if isinstance(spec, StrangeSpec):
            raise held(
                file,
                f'The clause "{spec.text}" is not known, so what it does to the rows is not known',
            )
        if not isinstance(spec, PartitionRowsSpec):
            continue
        if not spec.names:
            found.append(DeleteRows(None))
            continue
        try:
            found.append(DeleteRows(partition_predicate(before.partitioning, spec.names, before)))
        except TableHeld as problem:
            raise held(file, problem.message) from problem
    return found


def _rekeys(before: TableSchema, after: TableSchema, pairs: Pairs) -> list[SchemaChange]:
    """Rekey where the key has other columns, or its values compare in another way."""
    origin = [pairs.origin[name.lower()] for name in after.key]
    same = [column.name for column in origin if column is not None] == list(before.key) and None not in origin
    compared = [(c.type, c.compares_by) for c in map(after.column, after.key)]
    if same and compared == [(c.type, c.compares_by) for c in origin if c is not None]:
        return []
    return [Rekey(after.key)]
