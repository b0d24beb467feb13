"""Kinds of DDL of a schema file, in the words of the policies; a multi-schema change has several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cdc_assets.ddl.alter import (
    AddColumnSpec,
    AddIndexSpec,
    AddPartitionsSpec,
    AlterDefaultSpec,
    BoundsSpec,
    ChangeColumnSpec,
    CoalesceSpec,
    DropColumnSpec,
    DropIndexSpec,
    ExchangeSpec,
    NeutralSpec,
    PartitionBySpec,
    PartitionRowsSpec,
    ReorganizeSpec,
    Spec,
    StrangeSpec,
    TableCommentSpec,
    specs,
)
from cdc_assets.ddl.statement import (
    Alter,
    AlterDatabase,
    CreateDatabase,
    CreateTableStatement,
    DropDatabase,
    DropTableStatement,
    Exchange,
    Recover,
    Rename,
    SchemaSnapshot,
    Truncate,
    Unknown,
    statement,
)
from cdc_assets.ddl.text import Unreadable
from cdc_assets.model.schema_changes import AddColumn, DropColumn, RenameColumn, RetypeColumn, SchemaChange
from cdc_assets.model.splits import SchemaFile

_STATEMENTS: dict[type, tuple[str, ...]] = {
    CreateDatabase: ("create schema",),
    AlterDatabase: (),
    DropDatabase: ("drop schema", "drop table"),
    CreateTableStatement: ("create table",),
    DropTableStatement: ("drop table",),
    Truncate: ("truncate table",),
    Rename: ("rename table",),
    Recover: ("recover table",),
    Exchange: ("exchange partition",),
    Unknown: ("unknown",),
}
_TYPES = {
    5: "add column", 37: "add column", 6: "drop column", 38: "drop column", 12: "modify column",
    15: "set default value", 19: "add partition", 20: "drop partition", 23: "truncate partition",
    32: "add primary key", 33: "drop primary key", 61: "multi-schema change", 64: "reorganize partition",
    71: "alter table partition by", 72: "remove partitioning",
}  # fmt: skip
"""Kinds of DDL by TiDB's action types, for a text that cannot be read."""


def kinds(file: SchemaFile, changes: Iterable[SchemaChange] = ()) -> tuple[str, ...]:
    """Return the kinds of a schema file that led to `changes`; () if it touches neither rows nor columns.

    A file without DDL is `columns changed without ddl`, and what changed.
    """
    ddl_statement = statement(file)
    if isinstance(ddl_statement, SchemaSnapshot):
        hidden = tuple(dict.fromkeys(_of_changes(changes)))
        return ("columns changed without ddl", *hidden) if hidden else ()
    if not isinstance(ddl_statement, Alter):
        return _STATEMENTS.get(type(ddl_statement), ())
    try:
        parts = [spec for spec in specs(file.query) if not isinstance(spec, NeutralSpec | TableCommentSpec)]
    except Unreadable:
        by_type = _TYPES.get(file.type)
        return (*([by_type] if by_type else []), *_of_changes(changes))
    several = file.type == 61 or len(parts) > 1
    named = [kind for part in parts for kind in _of_spec(part)]
    return tuple(dict.fromkeys([*named, *(["multi-schema change"] if several else [])]))


def _of_changes(changes: Iterable[SchemaChange]) -> Iterator[str]:
    names: dict[type, str] = {
        AddColumn: "add column",
        DropColumn: "drop column",
        RenameColumn: "modify column",
        RetypeColumn: "modify column",
    }
    return (names.get(type(change), "modify column") for change in changes)


def _of_spec(spec: Spec) -> tuple[str, ...]:
    match spec:
        case AddIndexSpec(index):
            return ("add primary key",) if index.primary else ()
        case DropIndexSpec(name):
            return ("drop primary key",) if name.upper() == "PRIMARY" else ()
        case PartitionRowsSpec(_, drop):
            return ("drop partition",) if drop else ("truncate partition",)
        case PartitionBySpec(partitioning):
            return ("remove partitioning",) if partitioning is None else ("alter table partition by",)
        case _:
            return _SPECS.get(type(spec), ())


_SPECS: dict[type, tuple[str, ...]] = {
    AddColumnSpec: ("add column",),
    DropColumnSpec: ("drop column",),
    ChangeColumnSpec: ("modify column",),
    AlterDefaultSpec: ("set default value",),
    AddPartitionsSpec: ("add partition",),
    ReorganizeSpec: ("reorganize partition",),
    CoalesceSpec: ("reorganize partition",),
    BoundsSpec: ("reorganize partition",),
    ExchangeSpec: ("exchange partition",),
    StrangeSpec: ("unknown",),
}
