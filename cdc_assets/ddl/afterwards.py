"""A table's schema after a schema file: its columns with what the text says of them, indexes, partitions, key."""

from __future__ import annotations

from collections.abc import Mapping
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
    TableCommentSpec,
    specs,
)
from cdc_assets.ddl.clauses import UNKNOWN_PARTITIONS, ColumnText, inline_indexes, named
from cdc_assets.ddl.defaults import known_default, survives_json
from cdc_assets.ddl.missing_ddl import refuse_taken_names
from cdc_assets.ddl.partitions import repartition
from cdc_assets.ddl.schema import facts, held, is_text, key_of, primary_first
from cdc_assets.ddl.statement import Alter, Exchange, Rename, Statement
from cdc_assets.ddl.text import Unreadable
from cdc_assets.model.schema import Column, Default, Index, Partitioning, TableSchema
from cdc_assets.model.splits import SchemaFile

__all__ = ["Pairs", "Text", "read_text", "refuse_computed", "schema_after"]

_PARTITION_TYPES = (19, 20, 23, 64, 71, 72)
_PARTITION_SPECS = (AddPartitionsSpec, BoundsSpec, CoalesceSpec, PartitionBySpec, PartitionRowsSpec, ReorganizeSpec)


@dataclass
class Text:
    """What the statement says about columns, by lower-case name; `read` is False if it could not be read."""

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
    """Return what the file's text says of the columns before it; raises TableHeld where the file contradicts it."""
    if not isinstance(kind, Alter | Rename | Exchange):
        return Text()
    try:
        found = Text(specs=specs(file.query))
    except Unreadable:
        return Text(read=False)
    old = {column.name.lower() for column in before.columns}
    new = {column.name.lower() for column in file.columns}
    leaving = {spec.name.lower() for spec in found.specs if isinstance(spec, DropColumnSpec)}
    leaving |= {
        s.old.lower() for s in found.specs if isinstance(s, ChangeColumnSpec) and s.old.lower() != s.new.lower()
    }
    taken: set[str] = set()
    for spec in found.specs:
        if isinstance(spec, AddColumnSpec):
            name = spec.text.name.lower()
            if name not in old or name in leaving:
                found.added[name] = spec.text
            else:
                taken.add(name)
        elif isinstance(spec, DropColumnSpec) and spec.name.lower() in old:
            found.dropped.add(spec.name.lower())
        elif isinstance(spec, ChangeColumnSpec):
            _changed(found, spec, old)
            if spec.new.lower() != spec.old.lower():
                taken |= {spec.new.lower()} & (old - leaving)
        elif isinstance(spec, AlterDefaultSpec):
            found.defaults[spec.name.lower()] = spec.default
    _contradictions(file, found, new)
    if taken:
        refuse_taken_names(before, file, taken)
    return found


def _changed(found: Text, spec: ChangeColumnSpec, old: set[str]) -> None:
    if spec.old.lower() in old:
        found.renamed[spec.old.lower()] = spec.new.lower()
    if spec.text is not None:
        found.defined[spec.new.lower()] = spec.text


def _contradictions(file: SchemaFile, text: Text, new: set[str]) -> None:
    come = {*text.added, *text.renamed.values(), *text.defined}
    missing = sorted(come - new)
    kept = sorted((text.dropped & new) - come)
    if missing or kept:
        what = f"does not list {', '.join(missing)}" if missing else f"still lists {', '.join(kept)}"
        raise held(
            file, f"The schema file {what}, which its DDL text contradicts", "restore the file as TiCDC wrote it"
        )


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
            found = facts(column, definition, table_collation, timezone)
        else:
            found = _carried(column, old, table_collation, states_defaults)
        if name in text.defaults:
            found = replace(found, default=column.default)
            found = replace(found, default=known_default(found, text.defaults[name], timezone))
        columns.append(replace(found, collation=convert) if convert and is_text(found) else found)
    moved = {old.name.lower(): new for new, old in _by_new_name(file, pairs) if old is not None}
    indexes = primary_first(_indexes(before, text, moved), tuple(columns))
    parts = before.partitioning
    if parts is not None or any(isinstance(spec, PartitionBySpec) for spec in text.specs):
        parts = repartition(parts, text.specs, moved)
    if file.type in _PARTITION_TYPES and not any(isinstance(spec, _PARTITION_SPECS) for spec in text.specs):
        parts = Partitioning(
            UNKNOWN_PARTITIONS, (f"the text of the DDL at {file.version} cannot be read: {file.query}",)
        )
    comment = next((one.comment for one in reversed(text.specs) if isinstance(one, TableCommentSpec)), before.comment)
    same_primary = [one for one in before.indexes if one.primary] == [one for one in indexes if one.primary]
    clustered = before.clustered if same_primary else None
    schema = TableSchema(tuple(columns), (), indexes, parts, collation, comment, clustered)
    return replace(schema, key=_key(before, schema, moved))


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


def _by_new_name(file: SchemaFile, pairs: Pairs) -> list[tuple[str, Column | None]]:
    return [(column.name, pairs.origin[column.name.lower()]) for column in file.columns]


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
        zerofill=old.zerofill,
        default=column.default if stated or column.type != old.type else old.default,
    )


def _indexes(before: TableSchema, text: Text, moved: Mapping[str, str]) -> tuple[Index, ...]:
    found = list(before.indexes)
    for spec in text.specs:
        if isinstance(spec, DropIndexSpec):
            primary = spec.name.upper() == "PRIMARY"
            found = [i for i in found if not (i.primary if primary else i.name.lower() == spec.name.lower())]
        elif isinstance(spec, RenameIndexSpec):
            found = [replace(i, name=spec.new) if i.name.lower() == spec.old.lower() else i for i in found]
    kept = [replace(i, columns=tuple(moved[c.lower()] for c in i.columns if c.lower() in moved)) for i in found]
    kept = [index for index, was in zip(kept, found, strict=True) if index.columns or not was.columns]
    for spec in text.specs:
        if isinstance(spec, AddIndexSpec):
            kept = [i for i in kept if not (spec.index.name and i.name.lower() == spec.index.name.lower())]
            kept.append(spec.index)
        elif isinstance(spec, AddColumnSpec) and spec.text.name.lower() in text.added:
            kept += inline_indexes(spec.text)
        elif isinstance(spec, ChangeColumnSpec) and spec.text is not None:
            kept += [index for index in inline_indexes(spec.text) if not index.primary]
    return named(kept)


def _key(before: TableSchema, after: TableSchema, moved: Mapping[str, str]) -> tuple[str, ...]:
    """A key from the settings stays, under its new names; any other is determined again."""
    if before.key and before.key != key_of(before, None):
        renamed = tuple(moved.get(name.lower(), "") for name in before.key)
        if all(renamed):
            return renamed
    return key_of(after, None)
