"""Old schema + schema file -> new schema and the changes that lead there.

The difference of the columns is the truth. The text decides what it cannot: which drop and add are a rename, which
column of the same name is a new one, what a partition clause deletes. Column ids decide where there is no text, but not
beside it: TiDB gives a column a new id when MODIFY rewrites it.

Changes come in an executable order: DropColumn, RenameColumn (all at once, names may swap), AddColumn, RetypeColumn
(under its new name), MoveColumns, SetDefault, DeleteRows, Rekey. Virtual generated columns are not in the lake and take
no part in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from cdc_assets.ddl.alter import (
    AddColumnSpec,
    AddIndexSpec,
    AddPartitionsSpec,
    AlterDefaultSpec,
    BoundsSpec,
    ChangeColumnSpec,
    CharsetSpec,
    CoalesceSpec,
    DropColumnSpec,
    DropIndexSpec,
    PartitionBySpec,
    PartitionRowsSpec,
    RenameIndexSpec,
    ReorganizeSpec,
    Spec,
    StrangeSpec,
    TableCommentSpec,
    VersioningSpec,
    specs,
)
from cdc_assets.ddl.clauses import UNKNOWN_PARTITIONS, ColumnText, charset_of, inline_indexes, named
from cdc_assets.ddl.columns import NoDefault, added_default, computed_default, known_default, survives_json
from cdc_assets.ddl.partitions import partition_predicate, repartition
from cdc_assets.ddl.schema import facts, held, is_text, key_of, primary_first, refuse_past_rows
from cdc_assets.ddl.statement import Alter, Exchange, Rename, Statement, Truncate, Unknown, statement
from cdc_assets.ddl.text import Unreadable
from cdc_assets.errors import TableHeld
from cdc_assets.model.schema import Column, Default, Index, Partitioning, TableSchema
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
from cdc_assets.types.conversions import loses_dates, narrows, needs_conversion, zone_matters
from cdc_assets.types.families import BINARY, CHARACTER, FLOATING, INTEGER
from cdc_assets.types.mysql_types import arrow_type, float_digits, type_text, widens

_HIDDEN = "the ADD COLUMN is not in the changefeed: ColumnDefault of the first schema file that has the column"
_NO_MEMBER = "it states none, as all files of TiCDC 6.5.0 to 6.5.2, 6.6.0, 7.0.0 and 7.1.0"
_LEFT_OUT = "the DDL's effect on old rows is skipped"
_EMPTY = "drop the rows up to here (rebuild)"
_PARTITION_TYPES = (19, 20, 23, 64, 71, 72)
_PARTITION_SPECS = (AddPartitionsSpec, BoundsSpec, CoalesceSpec, PartitionBySpec, PartitionRowsSpec, ReorganizeSpec)


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
    if any(isinstance(spec, VersioningSpec) and spec.is_on for spec in text.specs):
        refuse_past_rows(file, text.added.values())
        raise held(
            file,
            "MariaDB gives the rows that are there a ROW START and a ROW END, which no event has: skipped, these read "
            "NULL in rows that do not change later",
        )
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
    renamed_pairs = {name: (old, listed[name]) for name in undefined if (old := origin[name]) is not None}
    changed = {name: (old, new) for name, (old, new) in renamed_pairs.items() if old.type != new.type}
    if changed:
        refuse_swapped(file, gone, changed)
    replaced = _replaced(file, text, origin, listed, untouched)
    for name in replaced:
        gone.append(origin[name])  # type: ignore[arg-type]
        extra.append(listed[name])
    # Removed and new columns without a text are paired by id; the table is held if a rename remains possible.
    by_id = {column.id: column for column in gone if column.id is not None}
    hidden = {column.name.lower(): by_id[column.id] for column in extra if column.id in by_id}
    dropped = [column for column in gone if id(column) not in {id(old_column) for old_column in hidden.values()}]
    new = [column for column in extra if column.name.lower() not in hidden]
    if new and not text.read:
        raise held(file, f"The text cannot be read, and the file has new columns: {_names(new)}")
    all_have_ids = all(column.id is not None for column in (*dropped, *new))
    if dropped and new and not all_have_ids:
        raise held(
            file,
            f"The columns {_names(dropped)} are gone and {_names(new)} are new, and no text says whether that is a "
            f"rename. {NEXT_TIME}",
        )
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
    names = []
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
        names.append(name)
    return names


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(f'"{column.name}"' for column in columns)


# --- the changes ------------------------------------------------------------------------------------------------------


def _renames(after: TableSchema, pairs: Pairs) -> list[SchemaChange]:
    changes: list[SchemaChange] = []
    for column in after.stored:
        old = pairs.origin[column.name.lower()]
        if old is not None and old.name != column.name:
            changes.append(RenameColumn(old.name, column.name))
    return changes


def _adds(file: SchemaFile, after: TableSchema, text: Text, pairs: Pairs, timezone: str) -> list[SchemaChange]:
    changes: list[SchemaChange] = []
    members = {column.name: column.default for column in file.columns}
    for column in after.stored:
        name = column.name.lower()
        if pairs.origin[name] is not None:
            continue
        column_text = text.added.get(name)
        try:
            made = file.commit_ts or file.version
            value, guess = added_default(column, members[column.name], column_text, made, timezone, file.server)
        except NoDefault as problem:
            raise held(
                file,
                f'Column "{column.name}": {problem}',
                column=column.name,
            ) from problem
        hidden = "" if column_text else _HIDDEN
        unstated = _NO_MEMBER if hidden and members[column.name] is None else ""
        changes.append(AddColumn(column, value, "; ".join(part for part in (guess, hidden, unstated) if part)))
    return changes


def _retypes(file: SchemaFile, after: TableSchema, pairs: Pairs, timezone: str) -> list[SchemaChange]:
    changes: list[SchemaChange] = []
    for column in after.stored:
        old = pairs.origin[column.name.lower()]
        if old is None or old == column:
            continue
        try:
            changed = retyped(replace(old, name=column.name), column, timezone, file.server)
        except ValueError as problem:
            raise held(file, f'Column "{column.name}": {problem}', column=column.name) from problem
        if changed is not None:
            changes.append(changed)
    return changes


def _moves(before: TableSchema, after: TableSchema, pairs: Pairs) -> list[SchemaChange]:
    """Compare the file's order with what Iceberg leaves: old columns in their order, new ones at the end."""
    new_name = {id(old): name for name, old in pairs.origin.items() if old is not None}
    in_place = [new_name[id(column)] for column in before.stored if id(column) in new_name]
    in_place += [column.name.lower() for column in after.stored if pairs.origin[column.name.lower()] is None]
    order = tuple(column.name for column in after.stored)
    return [] if [name.lower() for name in order] == in_place else [MoveColumns(order)]


def _set_defaults(after: TableSchema, pairs: Pairs) -> list[SchemaChange]:
    changes: list[SchemaChange] = []
    for column in after.stored:
        old = pairs.origin[column.name.lower()]
        if old is not None and old.default != column.default:
            changes.append(SetDefault(column.name, column.default))
    return changes


def _deletes(before: TableSchema, file: SchemaFile, kind: Statement, text: Text) -> list[SchemaChange]:
    if isinstance(kind, Truncate):
        return [DeleteRows(None)]
    if file.type in (20, 23) and not any(isinstance(spec, PartitionRowsSpec | StrangeSpec) for spec in text.specs):
        raise held(file, "The text cannot be read, so the partitions whose rows are deleted are not known")
    changes: list[SchemaChange] = []
    # A person's text gives the definition that the feed lacks; no server takes PARTITION BY beside other clauses.
    stated = (spec.partitioning for spec in text.specs if isinstance(spec, PartitionBySpec))
    partitioning = next(stated, None) or before.partitioning
    for spec in text.specs:
        if isinstance(spec, StrangeSpec):
            raise held(
                file,
                f'The clause "{spec.text}" is not known, so what it does to the rows is not known',
            )
        if not isinstance(spec, PartitionRowsSpec):
            continue
        if not spec.names:
            changes.append(DeleteRows(None))
            continue
        try:
            rows = partition_predicate(partitioning, spec.names, before, by_server=file.by_server)
            changes.append(DeleteRows(rows, tuple(spec.names)))
        except TableHeld as problem:
            way = "give --apply a text that defines the partitions first: ALTER TABLE … PARTITION BY …, … PARTITION …"
            raise held(file, problem.message, *(() if partitioning is not None else (way,))) from problem
    return changes


def _rekeys(before: TableSchema, after: TableSchema, pairs: Pairs) -> list[SchemaChange]:
    """Rekey where the key has other columns, or its values compare in another way."""
    origin = [pairs.origin[name.lower()] for name in after.key]
    is_same_key = [column.name for column in origin if column is not None] == list(before.key) and None not in origin
    compared = [(c.type, c.compares_by) for c in map(after.column, after.key)]
    if is_same_key and compared == [(c.type, c.compares_by) for c in origin if c is not None]:
        return []
    return [Rekey(after.key)]


@dataclass
class Text:
    """The columns that a statement names, by lower-case name; `read` is False if the statement could not be read."""

    read: bool = True
    specs: tuple[Spec, ...] = ()
    added: dict[str, ColumnText] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    renamed: dict[str, str] = field(default_factory=dict)
    defined: dict[str, ColumnText] = field(default_factory=dict)
    """Definitions of CHANGE and MODIFY by new name."""
    defaults: dict[str, Default | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Pairs:
    """`origin` is the old column of each column of the file, None for a new one; `dropped` the old ones left over."""

    origin: Mapping[str, Column | None]
    dropped: tuple[Column, ...]


# --- the text ---------------------------------------------------------------------------------------------------------


def read_text(before: TableSchema, file: SchemaFile, kind: Statement) -> Text:
    """Return the clauses of a file's text; raises TableHeld where the file contradicts them."""
    if not isinstance(kind, Alter | Rename | Exchange):
        return Text()
    try:
        text = Text(specs=specs(file.query))
    except Unreadable:
        return Text(read=False)
    old = {column.name.lower() for column in before.columns}
    new = {column.name.lower() for column in file.columns}
    leaving = {spec.name.lower() for spec in text.specs if isinstance(spec, DropColumnSpec)}
    leaving |= {s.old.lower() for s in text.specs if isinstance(s, ChangeColumnSpec) and s.old.lower() != s.new.lower()}
    taken: set[str] = set()
    for spec in text.specs:
        if isinstance(spec, AddColumnSpec):
            name = spec.text.name.lower()
            if name not in old or name in leaving:
                text.added[name] = spec.text
            else:
                taken.add(name)
        elif isinstance(spec, DropColumnSpec) and spec.name.lower() in old:
            text.dropped.add(spec.name.lower())
        elif isinstance(spec, ChangeColumnSpec):
            if spec.old.lower() in old:
                text.renamed[spec.old.lower()] = spec.new.lower()
            if spec.text is not None:
                text.defined[spec.new.lower()] = spec.text
            if spec.new.lower() != spec.old.lower():
                taken |= {spec.new.lower()} & (old - leaving)
        elif isinstance(spec, AlterDefaultSpec):
            text.defaults[spec.name.lower()] = spec.default
    come = {*text.added, *text.renamed.values(), *text.defined}
    missing = sorted(come - new)
    surplus = sorted((text.dropped & new) - come)
    if missing or surplus:
        what = f"does not list {', '.join(missing)}" if missing else f"still lists {', '.join(surplus)}"
        raise held(
            file, f"The schema file {what}, which its DDL text contradicts", "restore the file as TiCDC wrote it"
        )
    if taken:
        refuse_taken_names(before, file, taken)
    return text


# --- the schema afterwards --------------------------------------------------------------------------------------------


def schema_after(
    before: TableSchema,
    file: SchemaFile,
    text: Text,
    pairs: Pairs,
    database_collation: str | None,
    timezone: str | None,
) -> TableSchema:
    """Return the schema after the file: its columns, of which `pairs` says which one each was.

    A TIMESTAMP's default in the text is read in the time zone; None leaves it as printed.
    """
    collation, convert = before.collation, ""
    for spec in text.specs:
        if isinstance(spec, CharsetSpec) and spec.collation:
            collation = spec.collation
            convert = spec.collation if spec.convert else convert
    table_collation = collation or database_collation
    columns = []
    states_defaults = any(column.default is not None for column in file.columns)
    for column in file.columns:
        name = column.name.lower()
        definition = text.defined.get(name) or text.added.get(name)
        old = pairs.origin[name]
        if definition:
            new_column = facts(column, definition, table_collation, timezone, file.server)
        else:
            new_column = _carried(column, old, table_collation, states_defaults)
        if name in text.defaults:
            new_column = replace(new_column, default=column.default, computed=computed_default(text.defaults[name]))
            default = known_default(new_column, text.defaults[name], timezone, file.server)
            new_column = replace(new_column, default=default)
        columns.append(replace(new_column, collation=convert) if convert and is_text(new_column) else new_column)
    moved = {
        old.name.lower(): column.name
        for column in file.columns
        if (old := pairs.origin[column.name.lower()]) is not None
    }
    indexes = primary_first(_indexes(before, text, moved), tuple(columns))
    parts = before.partitioning
    if parts is not None or any(isinstance(spec, PartitionBySpec) for spec in text.specs):
        parts = repartition(parts, text.specs, moved)
    if file.type in _PARTITION_TYPES and not any(isinstance(spec, _PARTITION_SPECS) for spec in text.specs):
        parts = Partitioning(
            UNKNOWN_PARTITIONS, (f"the text of the DDL at {file.version} cannot be read: {file.query}",)
        )
    comment = next(
        (spec.comment for spec in reversed(text.specs) if isinstance(spec, TableCommentSpec)), before.comment
    )
    same_primary = [index for index in before.indexes if index.primary] == [index for index in indexes if index.primary]
    clustered = before.clustered if same_primary else None
    schema = TableSchema(tuple(columns), (), indexes, parts, collation, comment, clustered)
    hides_past_rows = before.hides_past_rows and not any(isinstance(spec, VersioningSpec) for spec in text.specs)
    return replace(schema, key=_key(before, schema, moved), hides_past_rows=hides_past_rows)


def refuse_computed(file: SchemaFile, schema: TableSchema, text: Text, pairs: Pairs) -> None:
    """Raise TableHeld for columns whose values in old rows only the source can compute; `schema` is the one after."""
    for column in schema.columns:
        name = column.name.lower()
        definition, old = text.defined.get(name) or text.added.get(name), pairs.origin[name]
        if definition and definition.generated == "STORED" and old is None:
            raise held(
                file,
                f'Column "{column.name}" is generated from the others ({definition.expression}) and stored: '
                "old rows would have to be computed as TiDB does",
                column=column.name,
            )
        if old is not None and old.virtual != column.virtual:
            raise held(file, f'Column "{column.name}" changes between virtual and stored', column=column.name)


def _carried(column: Column, old: Column | None, table_collation: str | None, states_defaults: bool) -> Column:
    """Return the column with what is known of the old one; a file may be of a writer that states no defaults at all."""
    if old is None:
        return replace(column, collation=table_collation if is_text(column) else None)
    collation = old.collation if is_text(old) else table_collation
    stated = survives_json(column) and states_defaults
    return replace(
        column,
        elems=column.elems if column.elems is not None else old.elems,
        collation=collation if is_text(column) else None,
        virtual=old.virtual,
        comment=old.comment,
        generated=old.generated,
        computed=old.computed,
        zerofill=old.zerofill,
        default=column.default if stated or column.type != old.type else old.default,
    )


def _indexes(before: TableSchema, text: Text, moved: Mapping[str, str]) -> tuple[Index, ...]:
    indexes = list(before.indexes)
    for spec in text.specs:
        if isinstance(spec, DropIndexSpec):
            primary = spec.name.upper() == "PRIMARY"
            indexes = [i for i in indexes if not (i.primary if primary else i.name.lower() == spec.name.lower())]
        elif isinstance(spec, RenameIndexSpec):
            indexes = [replace(i, name=spec.new) if i.name.lower() == spec.old.lower() else i for i in indexes]
    later = [replace(i, columns=tuple(moved[c.lower()] for c in i.columns if c.lower() in moved)) for i in indexes]
    later = [index for index, was in zip(later, indexes, strict=True) if index.columns or not was.columns]
    for spec in text.specs:
        if isinstance(spec, AddIndexSpec):
            later = [i for i in later if not (spec.index.name and i.name.lower() == spec.index.name.lower())]
            later.append(spec.index)
        elif isinstance(spec, AddColumnSpec) and spec.text.name.lower() in text.added:
            later += inline_indexes(spec.text)
        elif isinstance(spec, ChangeColumnSpec) and spec.text is not None:
            later += [index for index in inline_indexes(spec.text) if not index.primary]
    return named(later)


def _key(before: TableSchema, after: TableSchema, moved: Mapping[str, str]) -> tuple[str, ...]:
    """A key from the settings stays, under its new names; any other is determined again."""
    if before.key and before.key != key_of(before, None):
        renamed = tuple(moved.get(name.lower(), "") for name in before.key)
        if all(renamed):
            return renamed
    return key_of(after, None)


def refuse_taken_names(before: TableSchema, file: SchemaFile, taken: Iterable[str]) -> None:
    """Raise TableHeld for a text that gives columns the names of others that stay, unless it is a repeated DDL."""
    if not _same_columns(before, file) and " EXISTS " not in file.query.upper():
        raise held(
            file,
            f"The table already has {', '.join(sorted(taken))}, so a DDL before this one is not in the "
            "changefeed and what became of the old values is not known",
        )


def refuse_unknown_columns(file: SchemaFile, changed: Iterable[str], origin: Mapping[str, Column | None]) -> None:
    """Raise TableHeld for a text that changes a column that no text added: its definition was not known before."""
    unknown = sorted(name for name in changed if name in origin and origin[name] is None)
    if unknown:
        raise held(
            file,
            f"The table has no {', '.join(unknown)} before it, so the DDL that added it is not in the changefeed and "
            "what old rows got is not known",
        )


def _same_columns(before: TableSchema, file: SchemaFile) -> bool:
    """Return whether the table has the file's columns: a repeated DDL."""
    table_columns, file_columns = (
        sorted((c.name.lower(), c.type) for c in some) for some in (before.columns, file.columns)
    )
    return table_columns == file_columns


NEXT_TIME = "With output-column-id = true in the changefeed the files say it from then on"
"""Advice that a hold for columns without a text adds to its reason."""


def refuse_swapped(file: SchemaFile, gone: Sequence[Column], retyped: Mapping[str, tuple[Column, Column]]) -> None:
    """Raise TableHeld for columns that exchanged types without a text: they may have exchanged names instead."""
    changed = {name: (a, b) for name, (a, b) in retyped.items() if None in (a.id, b.id)}
    dropped_types = {column.type for column in gone}
    for name, (_, new) in sorted(changed.items()):
        if new.type in dropped_types | {old.type for other, (old, _) in changed.items() if other != name}:
            raise held(
                file,
                f'The column "{new.name}" has another type, which another column had, and no text says whether they '
                f"exchanged names. {NEXT_TIME}",
                column=new.name,
            )


_TEXTS = ("CHAR", "VARCHAR", "VAR_STRING", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM", "SET")


def same_definition(old: Column, new: Column) -> bool:
    """Return whether two columns of a schema file are declared alike, ids apart."""
    return _declared(old) == _declared(new)


def _declared(column: Column) -> tuple[object, ...]:
    return column.type, column.unsigned, column.precision, column.scale or 0, column.nullable, column.is_pk


def retyped(old: Column, new: Column, timezone: str, server: str = "") -> RetypeColumn | None:
    """Return the change of type, None when no stored value and no lake type can change.

    `timezone` stands for the zone of the session that ran the DDL, `server` is the kind of server: "" for TiDB, whose
    rules are carried out. Raises ValueError where characters may be lost, or another server converts otherwise.
    """
    if not server and (old.type == new.type or not (new.type == "TIMESTAMP" or loses_dates(old, new))):
        old = replace(old, nullable=old.nullable and new.nullable)  # TiDB refuses NOT NULL where there is a NULL
    are_texts = old.type in _TEXTS and new.type in _TEXTS
    stay_texts = are_texts and (old.type == new.type or {old.type, new.type}.isdisjoint(_MEMBERS))
    if stay_texts and old.collation is not None and new.collation is not None:
        source, target = charset_of(old.collation), charset_of(new.collation)
        if target not in (source, *_WIDE) and not (source == "ascii" or (source == "latin1" and target == "utf8")):
            raise ValueError(
                f"from {source} to {target} characters can be lost, in a way that depends on the source's settings"
            )
    if arrow_type(old) == arrow_type(new) and not needs_conversion(old, new) and not narrows(old, new):
        return None
    if difference := _of_server(old, new, server):
        raise ValueError(
            f"{_SERVERS[server]} does not change {type_text(old)} to {type_text(new)} as TiDB does, whose rules are "
            f"carried out here: it {difference}. Rebuild the table from a new snapshot of it"
        )
    old = replace(old, zerofill=old.zerofill and bool(server))  # TiDB prints the number alone
    if not zone_matters(old, new):
        return RetypeColumn(old, new, approximate=_LOST_DATES if loses_dates(old, new) else "")
    guesses = [f"in the time zone {timezone}: {_ZONE}", *([_LOST_DATES] if loses_dates(old, new) else [])]
    return RetypeColumn(old, new, timezone, "; ".join(guesses))


_MEMBERS = ("ENUM", "SET")
_ZONE = "TiDB takes that of the session that ran the DDL, which no file records"
_LOST_DATES = "zero and partial dates stay NULL"


_SERVERS = {"mysql": "MySQL", "mariadb": "MariaDB"}
_SECONDS = ("TIME", "DATETIME", "TIMESTAMP")
_STORED_BYTES = ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")


def _of_server(old: Column, new: Column, server: str) -> str:
    """Return the effect of a server on some values in place of TiDB's, "" where it does the like.

    MariaDB's conversions are compared with TiDB's value by value by a test. Of MySQL the manual says that it rounds
    fractions of seconds ("Fractional Seconds in Time Values"), as TiDB does, and that bits are binary strings
    ("Bit-Value Literals"); that it prints numbers as MariaDB does is an assumption.
    """
    if server and old.type in FLOATING and new.type in (*CHARACTER, *BINARY):
        return "prints numbers from 1e15 on, and small ones, with an exponent"
    text = old if old.type in CHARACTER else new
    between_bytes = (old.type in CHARACTER and new.type in BINARY) or (old.type in BINARY and new.type in CHARACTER)
    if server and between_bytes and (text.collation is None or charset_of(text.collation) not in _UTF8):
        charset = "the column's charset, which nothing tells" if text.collation is None else charset_of(text.collation)
        return f"takes the bytes of {charset}, and TiDB keeps every text in UTF-8"
    if server and old.type == "BIT" and new.type in _STORED_BYTES:
        return "keeps the bytes of BIT, and prints no number"
    if server == "mariadb" and new.type in (*_SECONDS, *INTEGER) and old.type in (*_SECONDS, *CHARACTER, *_NUMBERS):
        of_seconds = new.type in _SECONDS or old.type in _SECONDS
        if of_seconds and _fraction(old) > (_fraction(new) if new.type in _SECONDS else 0):
            return "cuts fractions of seconds, or rounds them, by its sql_mode"
    if server and new.type in FLOATING and float_digits(new) == 0 and old.type not in (*INTEGER, "YEAR", "BIT"):
        return "rounds 3.5 to 3 for a type without digits behind the point"
    if server == "mariadb" and old.type in FLOATING and new.type == "YEAR":
        return "cuts fractions of numbers"
    return ""


_NUMBERS = ("DECIMAL", *FLOATING)


def _fraction(column: Column) -> int:
    """Return the number of digits of a fraction of a second that a value may have."""
    if column.type in CHARACTER or (column.type in FLOATING and column.scale is None):
        return 6
    return column.scale or 0


_WIDE = ("utf8mb4", "gb18030")
_UTF8 = ("utf8mb4", "utf8mb3", "utf8", "ascii")
