"""What people decided about DDL, ahead by kind (policies) or about a single one (releases), and what follows from it.

    schema before + file ──▶ kinds ──▶ Rules.decide ──▶ apply     evolve, as the DDL says
                                                        skip      follow: rows stay, columns are the file's
                                                        rebuild   follow, and no row is left
                                                        hold      with the ways out

A policy `keep` leaves a column in the lake that the source drops. It stands behind the others, is NULL in rows written
since, and takes no part in decoding (`Column.kept`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cdc_assets import ddl
from cdc_assets.errors import CdcError, TableHeld
from cdc_assets.model import (
    AddColumn,
    Column,
    DeleteRows,
    DropColumn,
    Life,
    MoveColumns,
    Rekey,
    RenameColumn,
    SchemaChange,
    SchemaFile,
    TableId,
    TableSchema,
    Tso,
)
from cdc_assets.mysql_types import arrow_type
from cdc_assets.release import Release, Releases, ways_out

__all__ = ["Decision", "Evolved", "Rules", "bare", "born", "by_policy", "evolved", "ways_of", "with_facts"]


@dataclass(frozen=True, slots=True)
class Decision:
    """`way` is apply, skip, rebuild or hold; `keep` says that the lake keeps what the source drops.

    `kind` is the kind of DDL whose policy decided, `release` the person's decision that did.
    """

    way: str = "apply"
    keep: bool = False
    kind: str = ""
    release: Release | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """Policies by kind of DDL, and releases by life and version. A release takes the place of every policy."""

    policies: Mapping[str, str] = field(default_factory=dict)
    releases: Releases = field(default_factory=dict)

    def release(self, life: Life | None, version: Tso) -> Release | None:
        """Return what a person decided about a DDL."""
        return self.releases.get((life, version)) if life is not None else None

    def decide(self, life: Life, version: Tso, kinds: Sequence[str]) -> Decision:
        """Return the decision about a DDL of these kinds: the strictest of their policies, hold before skip."""
        release = self.release(life, version)
        if release is not None:
            return Decision(release.way, release=release)
        told = {self.policies.get(kind, "apply"): kind for kind in reversed(kinds)}
        way = next((way for way in ("hold", "skip") if way in told), "apply")
        return Decision(way, "keep" in told, told.get(way, ""))


def by_policy(file: SchemaFile, kind: str) -> str:
    """Return the reason of a hold that a policy asked for."""
    text = file.query or "columns changed without DDL text"
    return f'{file.table} at {file.version}: {text}. The policy for "{kind}" is to hold it until a person decides.'


def ways_of(error: CdcError) -> tuple[str, ...]:
    """Return the ways out that an error names."""
    ways = error.where.get("ways", ())
    return tuple(ways) if isinstance(ways, (tuple, list)) else (str(ways),)


# --- columns ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evolved:
    """What a schema file means for a table. A `reason` says that it is held, `ways` how it is released."""

    after: TableSchema
    changes: tuple[SchemaChange, ...] = ()
    reason: str = ""
    ways: tuple[str, ...] = ()
    release: Release | None = None


def bare(schema: TableSchema) -> TableSchema:
    """The columns that the source has."""
    return replace(schema, columns=tuple(column for column in schema.columns if not column.kept))


def evolved(
    before: TableSchema,
    file: SchemaFile,
    collation: str | None,
    rules: Rules,
    table: tuple[Life, TableId],
    key: tuple[str, ...] | None = None,
) -> Evolved:
    """Decide a schema file of a table (its life and name) and carry the decision out on its schema.

    `key` is the one that the settings give.
    """
    source, error = bare(before), None
    try:
        after, changes = ddl.evolve(source, file, collation)
    except CdcError as problem:
        error, after, changes = problem, with_facts(file, source), ()
    decision = rules.decide(table[0], file.version, ddl.kinds(file, changes))
    try:
        if decision.way in ("skip", "rebuild"):
            after, changes = ddl.follow(source, file, collation, empty=decision.way == "rebuild")
            error = None
        if decision.way == "rebuild":
            changes = _emptied(changes)
        if error is None:
            after, changes = _with_kept(before, after, changes, file, decision.keep, key)
    except CdcError as problem:
        error = problem
    if error is None and decision.way != "hold":
        return Evolved(after, tuple(changes), release=decision.release)
    reason = error.message if error is not None else by_policy(file, decision.kind)
    offered = ("apply" if error is not None else "as written", "skip", "rebuild")
    more = ways_of(error) if error is not None else ()
    return Evolved(after, (), reason, ways_out(table[1], file.version, offered, more), decision.release)


def born(
    file: SchemaFile, like: TableSchema | None, collation: str | None, decision: Decision, reason: str = ""
) -> Evolved:
    """Decide a schema file that begins a table. `reason` says why it is held anyway: what it holds is not known."""
    offered: tuple[str, ...] = ("apply", "skip")
    more: tuple[str, ...] = ()
    if not reason and decision.way == "hold":
        reason, offered = by_policy(file, decision.kind), ("as written",)
    try:
        schema = ddl.create(file, like, collation)
    except CdcError as error:
        schema, reason, more = with_facts(file, None), error.message, ways_of(error)
    if reason and decision.way in ("skip", "rebuild"):
        return Evolved(ddl.create(replace(file, query="", type=0), like, collation))
    return Evolved(schema, (), reason, ways_out(file.table, file.version, offered, more) if reason else ())


def _emptied(changes: Iterable[SchemaChange]) -> tuple[SchemaChange, ...]:
    """Let all rows go, where the order of changes has its place for that."""
    changes = tuple(changes)
    rekeys = tuple(change for change in changes if isinstance(change, Rekey))
    return (*(change for change in changes if not isinstance(change, (Rekey, DeleteRows))), DeleteRows(None), *rekeys)


def with_facts(file: SchemaFile, facts: TableSchema | None) -> TableSchema:
    """The file's own columns in its own order, with what the texts told of columns of the same name and type."""
    if facts is None:
        return TableSchema(file.columns)
    known = {column.name: column for column in facts.columns}
    columns = tuple(
        replace(c, elems=c.elems or k.elems, collation=k.collation, virtual=k.virtual)
        if (k := known.get(c.name)) is not None and k.type == c.type
        else c
        for c in file.columns
    )
    return replace(facts, columns=columns)


def _with_kept(
    before: TableSchema,
    after: TableSchema,
    changes: Sequence[SchemaChange],
    file: SchemaFile,
    keep: bool,
    key: tuple[str, ...] | None,
) -> tuple[TableSchema, tuple[SchemaChange, ...]]:
    """Keep dropped columns behind the others; a column that comes back under a kept one's name goes on in it."""
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
            raise _held(file, f'the lake keeps a column "{change.new}" that the source had dropped')
    if kept and not (key or after.key):
        raise _held(file, "rows without key are matched by all of their columns, so no dropped column can be kept")
    schema = replace(after, columns=(*after.columns, *kept.values()))
    if set(kept) != known or any(isinstance(change, (AddColumn, MoveColumns)) for change in left):
        left = _in_order(left, tuple(column.name for column in schema.stored))
    return schema, tuple(left)


def _go_on(old: Column, add: AddColumn, left: list[SchemaChange], file: SchemaFile) -> None:
    new = add.column
    if arrow_type(old) != arrow_type(new) or not replace(old, name=new.name).decodes_like(new):
        raise _held(file, f'the lake keeps a column "{old.name}" of another type, so the new one cannot go on in it')
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
