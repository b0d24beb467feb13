"""Schema files -> the life of every table. Pure: no I/O, no clock, no Spark.

All schema files of one version are one event of the source. They are played in order of their version over a small
name space: who holds which name when. A life keeps its identity through renames; rows filed under a name belong to
whoever held that name at their commit-ts.

The columns of the schema files are the truth; DDL texts decide what columns cannot tell (see `ddl`). What cannot be
carried out faithfully becomes a hold on its life: the event is kept with its reason, later ones are not applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from cdc_assets import ddl
from cdc_assets.errors import CdcError
from cdc_assets.model import (
    Life,
    Rekey,
    SchemaChange,
    SchemaFile,
    SetDefault,
    TableId,
    TableSchema,
    Tso,
)

__all__ = ["FOREVER", "Event", "History", "TableHistory", "read_history"]

FOREVER: Tso = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Event:
    """What one DDL (or one schema file without DDL) means for one life.

    `action` is create, change, rename, drop, recover, exchange or hold. `name` is the life's name afterwards, None when
    it has none. `other`, `predicate` and `partitioned` belong to an exchange.
    """

    at: Tso
    action: str
    file: SchemaFile
    before: TableSchema
    after: TableSchema
    name: TableId | None
    changes: tuple[SchemaChange, ...] = ()
    other: Life | None = None
    predicate: ddl.Predicate | None = None
    partitioned: bool = False
    reason: str = ""
    ways: tuple[str, ...] = ()

    @property
    def neutral(self) -> bool:
        """Tell whether rows before and after it can be applied together."""
        return self.action == "change" and all(isinstance(change, SetDefault) for change in self.changes)


@dataclass(frozen=True, slots=True)
class TableHistory:
    """The events of one life in order, and the names it held: (name, from, until), from <= commit-ts < until."""

    life: Life
    events: tuple[Event, ...]
    names: tuple[tuple[TableId, Tso, Tso], ...]

    @property
    def schema(self) -> TableSchema:
        """The newest schema."""
        return self.events[-1].after

    @property
    def name(self) -> TableId | None:
        """The newest name, None for a dropped table."""
        return self.events[-1].name


@dataclass(frozen=True, slots=True)
class History:
    """Every life, how to decode each (root, version), and schema files that are no table's (views, databases)."""

    lives: Mapping[Life, TableHistory]
    decoding: Mapping[tuple[str, Tso], tuple[TableId, TableSchema]]
    other_files: tuple[SchemaFile, ...] = ()


@dataclass(slots=True)
class _Open:
    """A life while its history is played."""

    life: Life
    schema: TableSchema
    name: TableId | None
    events: list[Event] = field(default_factory=list)
    names: list[tuple[TableId, Tso, Tso]] = field(default_factory=list)


def read_history(
    files: Iterable[SchemaFile], until: Tso = FOREVER, keys: Mapping[str, tuple[str, ...]] | None = None
) -> History:
    """Play the schema files with version <= `until`. `keys` names key columns by `schema.table` where files do not."""
    player = _Player(keys or {})
    due = sorted((f for f in files if f.version <= until), key=lambda f: (f.version, f.root, f.checksum or 0))
    for version, group in groupby(due, key=lambda f: f.version):
        player.play(version, list(group))
    return player.history()


class _Player:
    def __init__(self, keys: Mapping[str, tuple[str, ...]]) -> None:
        self.keys = keys
        self.lives: dict[Life, _Open] = {}
        self.held: dict[TableId, _Open] = {}
        self.dropped: dict[TableId, list[_Open]] = {}
        self.collations: dict[str, str] = {}
        self.views: set[TableId] = set()
        self.decoding: dict[tuple[str, Tso], tuple[TableId, TableSchema]] = {}
        self.other_files: list[SchemaFile] = []

    def history(self) -> History:
        lives = {
            life: TableHistory(life, tuple(table.events), tuple(table.names)) for life, table in self.lives.items()
        }
        return History(lives, self.decoding, tuple(self.other_files))

    # --- one version ---

    def play(self, version: Tso, files: list[SchemaFile]) -> None:
        """Carry out all schema files of one version: databases, drops, renames at once, then the rest."""
        pairs: list[tuple[SchemaFile, ddl.Statement]] = [(file, ddl.statement(file)) for file in files]
        renames = [(f, s) for f, s in pairs if isinstance(s, ddl.Rename)]
        exchanges = [(f, s) for f, s in pairs if isinstance(s, ddl.Exchange)]
        taken = {id(f) for f, _ in (*renames, *exchanges)}
        for file, exchange in exchanges:
            taken.update(id(f) for f in self._exchange(version, file, exchange, files))
        for file, statement in sorted(pairs, key=lambda p: _rank(p[1])):
            if id(file) not in taken and _rank(statement) == 0:
                self._one(version, file, statement)
        self._rename(version, renames)
        for file, statement in pairs:
            if id(file) not in taken and _rank(statement) > 0:
                self._one(version, file, statement)
        for file, statement in pairs:
            self._decode_by(file, statement)

    def _decode_by(self, file: SchemaFile, statement: object) -> None:
        """Rows of a directory are read with its own file's columns, and the facts of the table that had them."""
        if not file.table.table or isinstance(statement, ddl.View):
            return
        known = self.decoding.get((file.root, file.version))
        table = self.held.get(file.table)
        schema = _with_facts(file, table.schema if table is not None else None)
        better = known is None or (
            known[0] not in self.held
            if known[0] != file.table
            else known[1].decodes_like(schema) and _told(schema) >= _told(known[1])
        )
        if better:
            self.decoding[file.root, file.version] = (file.table, schema)

    def _one(self, version: Tso, file: SchemaFile, statement: object) -> None:
        match statement:
            case ddl.DropDatabase():
                self.other_files.append(file)
                for name in [n for n in self.held if n.schema == file.table.schema]:
                    self._drop(version, name, file)
            case ddl.CreateDatabase(collation=collation) | ddl.AlterDatabase(collation=collation):
                self.other_files.append(file)
                if collation:
                    self.collations[file.table.schema] = collation
            case ddl.View():
                self.other_files.append(file)
                self.views.add(file.table)
            case ddl.DropTable():
                self._drop(version, file.table, file)
            case ddl.CreateTable(like=like):
                self._create(version, file, like)
            case ddl.Recover(old=old):
                self._recover(version, file, old)
            case _:
                self._alter(version, file, statement)

    # --- births and deaths ---

    def _create(self, version: Tso, file: SchemaFile, like: TableId | None) -> None:
        holder = self.held.get(file.table)
        if holder is not None and holder.life.version == version:
            return
        if holder is not None:
            self._drop(version, file.table, file)
        model = None
        if like is not None:
            named = like if like.schema else TableId(file.table.schema, like.table)
            model = self.held[named].schema if named in self.held else None
        self._born(version, file, model)

    def _born(self, version: Tso, file: SchemaFile, like: TableSchema | None = None, reason: str = "") -> None:
        life = Life(file.table, version)
        try:
            schema = self._keyed(ddl.create(file, like, self.collations.get(file.table.schema)), file.table)
            ways: tuple[str, ...] = ()
        except CdcError as error:
            schema, reason, ways = TableSchema(file.columns), error.message, _ways(error)
        table = _Open(life, schema, file.table)
        table.names.append((file.table, version, FOREVER))
        action = "hold" if reason else "create"
        table.events.append(Event(version, action, file, schema, schema, file.table, reason=reason, ways=ways))
        self.lives[life] = table
        self.held[file.table] = table

    def _drop(self, version: Tso, name: TableId, file: SchemaFile) -> None:
        table = self.held.pop(name, None)
        if table is None:
            return
        _close_name(table, version)
        table.name = None
        table.events.append(Event(version, "drop", file, table.schema, table.schema, None))
        self.dropped.setdefault(name, []).append(table)

    def _recover(self, version: Tso, file: SchemaFile, old: TableId) -> None:
        old = old if old.schema else TableId(file.table.schema, old.table)
        gone = self.dropped.get(old, [])
        if file.table in self.held:
            self._drop(version, file.table, file)
        if not gone:
            self._born(
                version,
                file,
                reason=f"{file.query}: the rows of {old} come back without events, and its earlier life is not here",
            )
            return
        table = gone.pop()
        self._take_name(table, version, file.table)
        table.events.append(Event(version, "recover", file, table.schema, table.schema, file.table))

    # --- names ---

    def _rename(self, version: Tso, renames: Sequence[tuple[SchemaFile, ddl.Rename]]) -> None:
        if not renames:
            return
        moves = {file.table: (self._source(file, statement), file) for file, statement in renames}
        try:
            final = _resolve({to: source for to, (source, _) in moves.items()}, set(self.held))
        except _Unresolved as problem:
            self._hold_renames(version, moves, str(problem))
            return
        leaving = {source: self.held[source] for source in final.values()}
        for source in leaving:
            del self.held[source]
        for to, source in final.items():
            table, file = leaving[source], moves[to][1]
            if to in self.held:
                self._drop(version, to, file)
            _close_name(table, version)
            self._take_name(table, version, to)
            table.events.append(Event(version, "rename", file, table.schema, table.schema, to))

    def _source(self, file: SchemaFile, statement: ddl.Rename) -> TableId:
        """The old name; without a schema in the text it is the session's database, which was not recorded."""
        if statement.old.schema:
            return statement.old
        near = TableId(file.table.schema, statement.old.table)
        if near in self.held:
            return near
        same = [name for name in self.held if name.table == statement.old.table]
        return same[0] if len(same) == 1 else near

    def _hold_renames(self, version: Tso, moves: Mapping[TableId, tuple[TableId, SchemaFile]], reason: str) -> None:
        for to, (source, file) in moves.items():
            table = self.held.get(source)
            if table is not None and table.events[-1].at != version:
                table.events.append(
                    Event(
                        version, "hold", file, table.schema, table.schema, table.name, reason=f"{file.query}: {reason}"
                    )
                )
            elif table is None and to not in self.held:
                self._born(version, file, reason=f"{file.query}: {reason}")

    def _take_name(self, table: _Open, version: Tso, name: TableId) -> None:
        table.name = name
        table.names.append((name, version, FOREVER))
        self.held[name] = table

    # --- changes ---

    def _alter(self, version: Tso, file: SchemaFile, statement: object) -> None:
        table = self.held.get(file.table)
        if table is None:
            if file.table not in self.views:
                self._born(version, file)
            return
        reason = ""
        ways: tuple[str, ...] = ()
        try:
            after, changes = ddl.evolve(table.schema, file, self.collations.get(file.table.schema))
        except CdcError as error:
            reason, ways = error.message, _ways(error)
            after, changes = _with_facts(file, table.schema), ()
        if file.table != table.life.born_as or self.keys:
            after = self._keyed(after, file.table)
        if self._configured(file.table):
            changes = tuple(change for change in changes if not isinstance(change, Rekey))
        action = "hold" if reason else "change"
        table.events.append(
            Event(version, action, file, table.schema, after, table.name, tuple(changes), reason=reason, ways=ways)
        )
        table.schema = after

    def _exchange(
        self, version: Tso, file: SchemaFile, statement: ddl.Exchange, files: Sequence[SchemaFile]
    ) -> list[SchemaFile]:
        """Both lives get the event; the second table's own file of the same version is part of it."""
        other_name = statement.other
        if not other_name.schema:
            other_name = TableId(file.table.schema, other_name.table)
        table, other = self.held.get(file.table), self.held.get(other_name)
        companions = [f for f in files if f.table == other_name and not f.query]
        reason, predicate = "", None
        if table is None or other is None:
            missing = file.table if table is None else other_name
            reason = f"{file.query}: {missing} is not in the feed, so the rows that change places are not known"
        elif table.schema.partitioning is None:
            reason = f"{file.query}: the partitions of {file.table} are not known, its CREATE TABLE is not in the feed"
        else:
            try:
                predicate = ddl.partition_predicate(table.schema.partitioning, (statement.partition,), table.schema)
            except CdcError as error:
                reason = error.message
        for one, two, partitioned in ((table, other, True), (other, table, False)):
            if one is None:
                continue
            action = "hold" if reason else "exchange"
            one.events.append(
                Event(
                    version,
                    action,
                    file,
                    one.schema,
                    one.schema,
                    one.name,
                    other=two.life if two is not None else None,
                    predicate=predicate,
                    partitioned=partitioned,
                    reason=reason,
                )
            )
        return companions if other is not None else []

    def _configured(self, name: TableId) -> tuple[str, ...] | None:
        return self.keys.get(str(name))

    def _keyed(self, schema: TableSchema, name: TableId) -> TableSchema:
        key = self._configured(name)
        return replace(schema, key=key) if key else schema


def _with_facts(file: SchemaFile, facts: TableSchema | None) -> TableSchema:
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


def _rank(statement: object) -> int:
    """Names become free before others take them."""
    return 0 if isinstance(statement, (ddl.DropDatabase, ddl.DropTable)) else 1


def _close_name(table: _Open, version: Tso) -> None:
    name, since, _ = table.names[-1]
    table.names[-1] = (name, since, version)


def _told(schema: TableSchema) -> int:
    return sum(column.elems is not None for column in schema.columns)


def _ways(error: CdcError) -> tuple[str, ...]:
    ways = error.where.get("ways", ())
    return tuple(ways) if isinstance(ways, (tuple, list)) else (str(ways),)


# --- several renames at once ------------------------------------------------------------------------------------------


class _Unresolved(Exception):
    """The renames of one statement cannot be told apart."""


def _resolve(moves: Mapping[TableId, TableId], held: set[TableId]) -> dict[TableId, TableId]:
    """Return new name -> name before the statement, for the moves {to: source} of one version.

    The old architecture names every source as of before the statement, so a table that moves in hops is the source of
    several moves (`a TO tmp, b TO a, tmp TO b` is filed as a→tmp, b→a, a→b); the new one may name hops literally.
    Every order of the moves that can be executed is tried; raises _Unresolved unless all of them end alike.
    """
    unknown = [source for source in moves.values() if source not in held and source not in moves]
    if unknown:
        raise _Unresolved(f"{unknown[0]} is not known under that name; its CREATE TABLE or rows are not in the feed")
    ends = {tuple(sorted(end.items())) for end in _executions(tuple(moves.items()), held)}
    if not ends:
        raise _Unresolved("the renames of this statement cannot be carried out in any order")
    if len(ends) > 1:
        raise _Unresolved(
            "the renames of this statement can be carried out in more than one way with different results"
        )
    return {to: source for source, to in ends.pop()}


def _executions(moves: tuple[tuple[TableId, TableId], ...], held: set[TableId]) -> Iterator[dict[TableId, TableId]]:
    """Yield {name before: name after} of each executable order; without hops there is one."""
    if len({source for _, source in moves} & held) == len(moves):
        yield {source: to for to, source in moves}
        return

    def go(left: frozenset[tuple[TableId, TableId]], at: dict[TableId, TableId]) -> Iterator[dict[TableId, TableId]]:
        # `at` maps the present name of each table to its name before the statement.
        if not left:
            yield {before: now for now, before in at.items() if before in {_root(s, moves, held) for _, s in moves}}
            return
        for to, source in left:
            now = next((n for n, before in at.items() if before == source), None) if source in held else None
            if source not in held:
                now = source if source in at else None
            if now is None or (to in at and to != now):
                continue
            moved = {n: b for n, b in at.items() if n != now}
            moved[to] = at[now]
            yield from go(left - {(to, source)}, moved)

    yield from go(frozenset(moves), {name: name for name in held})


def _root(source: TableId, moves: tuple[tuple[TableId, TableId], ...], held: set[TableId]) -> TableId:
    """Follow a literal hop back to the name before the statement."""
    by_target = dict(moves)
    seen: set[TableId] = set()
    while source not in held and source in by_target and source not in seen:
        seen.add(source)
        source = by_target[source]
    return source
