"""Schema files -> the life of every table. Pure: no I/O, no clock, no Spark.

All schema files of one version are one event of the source. They are played in order of their version over a small
name space: who holds which name when. A life keeps its identity through renames; rows filed under a name belong to
whoever held that name at their commit-ts.

The columns of the schema files are the truth; DDL texts decide what columns cannot tell (see `ddl`). What cannot be
carried out faithfully becomes a hold on its life: the event is kept with its reason, later ones are not applied. What
people decided, by kind of DDL or about a single one, takes the place of what the files say (see `policies`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from cdc_assets import ddl
from cdc_assets.ddl.kept_columns import bare, with_facts
from cdc_assets.errors import CdcError
from cdc_assets.history.events import FOREVER, Event, History, TableHistory
from cdc_assets.history.policies import Decision, Evolved, Rules, born, by_policy, evolved
from cdc_assets.history.recovery import Gone, Unrecoverable
from cdc_assets.history.releases import Release, Releases, ways_out
from cdc_assets.history.renames import Unresolved, resolve, told_renames
from cdc_assets.model.by_name import ByName
from cdc_assets.model.names import fold_name
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.schema_changes import DeleteRows, Rekey
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso

__all__ = ["read_history"]

_UNTOLD = "the columns changed before it, and the changefeed has no DDL that says how."


@dataclass(slots=True)
class _Open:
    """A life while its history is played."""

    life: Life
    schema: TableSchema
    name: TableId | None
    events: list[Event] = field(default_factory=list)
    names: list[tuple[TableId, Tso, Tso]] = field(default_factory=list)


def read_history(
    files: Iterable[SchemaFile],
    until: Tso = FOREVER,
    keys: Mapping[str, tuple[str, ...]] | None = None,
    policies: Mapping[str, str] | None = None,
    releases: Releases | None = None,
    new_collations: bool = True,
    timezone: str = "UTC",
) -> History:
    """Play the schema files with version <= `until`. `keys` names key columns by `schema.table` where files do not.

    `policies` says what to do by kind of DDL, `releases` what a person decided about single ones. `timezone` is the one
    in which TIMESTAMP and other types become each other. Without `new_collations` the source compares texts by bytes.
    """
    if not new_collations:
        files = [replace(f, columns=tuple(replace(c, bytewise=True) for c in f.columns)) for f in files]
    player = _Player(keys or {}, Rules(policies or {}, releases or {}, timezone))
    ordered = sorted(files, key=lambda f: (f.version, f.root, f.checksum or 0))
    due = [file for file in ordered if file.version <= until]
    for version, group in groupby(due, key=lambda f: f.version):
        player.play(version, list(group))
    player.read_ahead(due, ordered[len(due) :])
    return player.history()


class _Player:
    def __init__(self, keys: Mapping[str, tuple[str, ...]], rules: Rules) -> None:
        self.keys = {fold_name(name): key for name, key in keys.items()}
        self.rules = rules
        self.lives: dict[Life, _Open] = {}
        self.held: ByName[_Open] = ByName()
        self.gone: Gone[_Open] = Gone()
        self.kept: ByName[_Open] = ByName()
        self.unclear: ByName[str] = ByName()
        self.collations: ByName[str] = ByName()  # of databases
        self.views: ByName[Tso] = ByName()
        self.left: ByName[Tso] = ByName()
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
        files = [self._as_told(version, file) for file in files]
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

    def _as_told(self, version: Tso, file: SchemaFile) -> SchemaFile:
        """The file with the text that a person gave for it; the renames of known tables are asked for by table."""
        table = self.held.get(file.table)
        released = self.rules.release(Life(file.table, version), version)
        if released is None and table is not None and not isinstance(ddl.statement(file), ddl.Rename):
            released = self.rules.release(table.life, version)
        if released is None or released.way != "apply" or not released.text:
            return file
        return ddl.given_defaults(replace(file, query=released.text, type=0))

    def _decode_by(self, file: SchemaFile, statement: object) -> None:
        """Rows of a directory are read with its own file's columns, and the facts of the table that had them."""
        if not file.table.table or isinstance(statement, ddl.View):
            return
        known = self.decoding.get((file.root, file.version))
        table = self.held.get(file.table)
        schema = with_facts(file, table.schema if table is not None else None)
        better = known is None or (
            known[0] not in self.held
            if known[0].folded != file.table.folded
            else known[1].decodes_like(schema) and _told(schema) >= _told(known[1])
        )
        if better:
            self.decoding[file.root, file.version] = (file.table, schema)

    def read_ahead(self, past: Sequence[SchemaFile], future: Iterable[SchemaFile]) -> None:
        """A directory of a later version takes older rows too, where its columns have the checksum of an older one."""
        same = {(f.root, f.checksum): self.decoding.get((f.root, f.version)) for f in past if f.checksum}
        for file in future:
            known = same.get((file.root, file.checksum or 0))
            if known is not None:
                self.decoding[file.root, file.version] = known

    def _one(self, version: Tso, file: SchemaFile, statement: object) -> None:
        match statement:
            case ddl.DropDatabase():
                self.other_files.append(file)
                for name in [n for n in self.held if n.folded.schema == file.table.folded.schema]:
                    self._drop(version, name, file, ddl.kinds(file))
                self.gone.forget(file.table)
            case ddl.CreateDatabase(collation=collation) | ddl.AlterDatabase(collation=collation):
                self.other_files.append(file)
                if collation:
                    self.collations[TableId(file.table.schema, "")] = collation
            case ddl.View():
                self.other_files.append(file)
                self.views[file.table] = version
            case ddl.DropTable():
                self._drop(version, file.table, file, ddl.kinds(file))
            case ddl.CreateTable(like=like):
                self._create(version, file, like)
            case ddl.Recover():
                self._recover(version, file, statement)
            case ddl.Truncate():
                self._alter(version, file, statement)
                self.gone.truncate(version, file.table)
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
            model = bare(self.held[named].schema) if named in self.held else None
        self._born(version, file, ddl.kinds(file), like=model)

    def _born(
        self,
        version: Tso,
        file: SchemaFile,
        kinds: Sequence[str] = (),
        *,
        like: TableSchema | None = None,
        reason: str = "",
        release: Release | None = None,
    ) -> None:
        life = Life(file.table, version)
        self._make_room(version, file)
        decision = Decision("skip", release=release) if release else self.rules.decide(life, version, kinds)
        found = born(file, like, self._collation(file), decision, reason)
        table = _Open(life, self._keyed(found.after, file.table), file.table)
        # A file without DDL is written some time after the table's first rows were; they may lie in its directory.
        since = version if file.query else self.left.get(file.table, 0)
        table.names.append((file.table, since, FOREVER))
        self.lives[life] = table
        self.held[file.table] = table
        action = "hold" if found.reason else "create"
        self._event(table, version, action, file, reason=found.reason, ways=found.ways, release=decision.release)

    def _event(self, table: _Open, version: Tso, action: str, file: SchemaFile, **more: Any) -> None:
        """Add an event that leaves the schema as it is; `more` are fields of Event."""
        table.events.append(Event(version, action, file, table.schema, table.schema, table.name, **more))

    def _drop(self, version: Tso, name: TableId, file: SchemaFile, kinds: Sequence[str] = ()) -> None:
        """Let a table go; without `kinds` because another takes its name, which no policy prevents."""
        self.unclear.pop(name, None)
        self.left[name] = version
        table = self.held.get(name)
        if table is None:
            return
        decision = self.rules.decide(table.life, version, kinds) if kinds else Decision()
        if decision.way in ("hold", "rebuild"):
            told = by_policy(file, decision.kind) if decision.kind else f"{file.query}: no rows come after it."
            ways = ways_out(name, version, ("as written", "skip"))
            self._event(table, version, "hold", file, reason=told, ways=ways)
            return
        del self.held[name]
        self.gone.drop(version, name, table)
        _close_name(table, version)
        if decision.way == "skip" or decision.keep:
            self.kept[name] = table
            self._event(table, version, "change", file, release=decision.release, kept=True)
            return
        table.name = None
        self._event(table, version, "drop", file, release=decision.release)

    def _make_room(self, version: Tso, file: SchemaFile) -> None:
        """A table takes a name: what the lake kept under it goes aside, as an ordinary drop would have let it."""
        self.unclear.pop(file.table, None)
        kept = self.kept.pop(file.table, None)
        if kept is not None:
            kept.name = None
            self._event(kept, version, "drop", file)

    def _recover(self, version: Tso, file: SchemaFile, statement: ddl.Recover) -> None:
        old = statement.old if statement.old.schema else TableId(file.table.schema, statement.old.table)
        if file.table in self.held:
            self._drop(version, file.table, file)
        kinds = ddl.kinds(file)
        try:
            table = self.gone.only(old) if statement.by_job else self.gone.newest(old)
            if not with_facts(file, table.schema).decodes_like(table.schema):
                raise Unrecoverable(f"the columns are not those that {table.life} had when it went")
        except Unrecoverable as problem:
            self._born(version, file, kinds, reason=f"{file.query}: {problem}.")
            return
        decision = self.rules.decide(table.life, version, kinds)
        if decision.way in ("skip", "rebuild"):
            self._born(version, file, release=decision.release)
            return
        self.gone.take(old)
        self.kept.pop(old, None)
        stands = table.name
        self._take_name(table, version, file)
        if decision.way == "hold":
            table.name = stands
            ways = ways_out(file.table, version, ("as written", "skip"))
            self._event(table, version, "hold", file, reason=by_policy(file, decision.kind), ways=ways)
            return
        action = "recover" if stands is None else "change" if stands == file.table else "rename"
        self._event_with_hidden(table, version, action, file, release=decision.release)

    def _event_with_hidden(self, table: _Open, version: Tso, action: str, file: SchemaFile, **more: Any) -> None:
        """Add an event whose DDL leaves the columns alone, after what happened to them without a DDL."""
        before, found = table.schema, self._hidden(table, file)
        if found.reason:
            reason = f"{file.query}: {_UNTOLD} {found.reason}"
            self._event(table, version, "hold", file, reason=reason)
            return
        table.schema = found.after
        self._event(table, version, action, file, **more)
        table.events[-1] = replace(table.events[-1], before=before, hidden=found.changes)

    def _hidden(self, table: _Open, file: SchemaFile) -> Evolved:
        """What an earlier DDL did to the columns that is not in the changefeed, because an event filter hides it."""
        bare_columns = bare(table.schema).columns
        if not file.columns or with_facts(file, table.schema).columns == bare_columns:
            return Evolved(table.schema)
        quiet, collation = replace(file, query="", type=0), self._collation(file)
        names = (table.life, file.table)
        found = evolved(table.schema, quiet, collation, Rules(self.rules.policies), names, self._configured(file.table))
        changes = tuple(c for c in found.changes if not isinstance(c, Rekey) or not self._configured(file.table))
        return replace(found, after=self._keyed(found.after, file.table), changes=changes)

    # --- names ---

    def _rename(self, version: Tso, renames: Sequence[tuple[SchemaFile, ddl.Rename]]) -> None:
        if not renames:
            return
        moves = ByName({file.table: (self._source(file, statement), file) for file, statement in renames})
        lives = {name: table.life for name, table in self.held.items()}
        final = ByName(told_renames(lives, version, moves, self.rules.releases))
        left = {to: source for to, (source, _) in moves.items() if to not in final}
        try:
            final.update(resolve(left, set(self.held) - set(final.values())))
        except Unresolved as problem:
            self._hold_renames(version, {to: moves[to] for to in left}, f"{problem}.", ("apply",))
        for to, source in tuple(final.items()):
            decision = self.rules.decide(self.held[source].life, version, ("rename table",))
            if decision.way != "apply":
                told = (
                    by_policy(moves[to][1], decision.kind) if decision.kind else "without a new name nothing can go on."
                )
                self._hold_renames(version, {to: (source, moves[to][1])}, told, ("as written", "apply"))
                del final[to]
        self._carry_out_renames(version, {to: (source, moves[to][1]) for to, source in final.items()})

    def _carry_out_renames(self, version: Tso, moves: Mapping[TableId, tuple[TableId, SchemaFile]]) -> None:
        """All at once: names may swap."""
        leaving = {source: self.held.pop(source) for source, _ in moves.values()}
        self.left.update(dict.fromkeys(leaving, version))
        for to, (source, file) in moves.items():
            table = leaving[source]
            if to in self.held:
                self._drop(version, to, file)
            _close_name(table, version)
            self._take_name(table, version, file)
            release = self.rules.release(table.life, version)
            self._event_with_hidden(table, version, "rename", file, release=release)

    def _source(self, file: SchemaFile, statement: ddl.Rename) -> TableId:
        """The old name; without a schema in the text it is the session's database, which was not recorded."""
        near = statement.old if statement.old.schema else TableId(file.table.schema, statement.old.table)
        if near in self.held or statement.old.schema:
            return self.held.spelled(near)
        same = [name for name in self.held if name.folded.table == near.folded.table]
        return same[0] if len(same) == 1 else near

    def _hold_renames(
        self,
        version: Tso,
        moves: Mapping[TableId, tuple[TableId, SchemaFile]],
        reason: str,
        offered: tuple[str, ...],
    ) -> None:
        """Hold the tables, and whatever comes under the new names without a CREATE of its own."""
        for to, (source, file) in moves.items():
            table, told = self.held.get(source), f"{file.query}: {reason}"
            ways = ways_out(
                source, version, offered, (f"give the whole rename as the DDL, as in RENAME TABLE {source} TO {to}",)
            )
            if table is not None:
                self.unclear[to] = f"it came to its name by a rename that is held. {told}"
                if table.events[-1].at != version:
                    self._event(table, version, "hold", file, reason=told, ways=ways)
            elif to not in self.held:
                self._born(version, file, ddl.kinds(file), reason=told)

    def _take_name(self, table: _Open, version: Tso, file: SchemaFile) -> None:
        self._make_room(version, file)
        table.name = file.table
        table.names.append((file.table, version, FOREVER))
        self.held[file.table] = table

    # --- changes ---

    def _alter(self, version: Tso, file: SchemaFile, statement: object) -> None:
        table = self.held.get(file.table)
        if table is None:
            unknown = statement.reason if isinstance(statement, ddl.Unknown) else ""
            reason = self.unclear.get(file.table, unknown)
            if file.table not in self.views:
                self._born(version, file, ("unknown",) if unknown else (), reason=reason)
            return
        key = self._configured(file.table)
        found = evolved(table.schema, file, self._collation(file), self.rules, (table.life, file.table), key)
        after, changes = found.after, found.changes
        if file.table != table.life.born_as or self.keys:
            after = self._keyed(after, file.table)
        if key:
            changes = tuple(change for change in changes if not isinstance(change, Rekey))
        event = Event(version, "hold" if found.reason else "change", file, table.schema, after, table.name, changes)
        table.events.append(replace(event, reason=found.reason, ways=found.ways, release=found.release))
        table.schema = after

    def _exchange(
        self, version: Tso, file: SchemaFile, statement: ddl.Exchange, files: Sequence[SchemaFile]
    ) -> list[SchemaFile]:
        """Both lives get the event; the second table's own file of the same version is part of it."""
        other_name = statement.other
        if not other_name.schema:
            other_name = TableId(file.table.schema, other_name.table)
        table, other = self.held.get(file.table), self.held.get(other_name)
        companions = [f for f in files if f.table.folded == other_name.folded and not f.query]
        sides = [(table, other, file), (other, table, (*companions, replace(file, table=other_name))[0])]
        found = {side[0].life: self._hidden(side[0], side[2]) for side in sides if side[0] is not None}
        reason, predicate = "", None
        if table is None or other is None:
            missing = file.table if table is None else other_name
            reason = f"{file.query}: {missing} is not in the feed, so the rows that change places are not known."
        else:
            reason, predicate = _exchangeable(file, statement, found[table.life], found[other.life])
        decision = self._exchange_decision(version, file, [one for one in (table, other) if one is not None])
        for one, two, own in sides:
            if one is not None:
                event = _exchanged(version, file, one, found[one.life], reason, decision)
                other_life = two.life if two is not None else None
                partitioned = own is file
                one.events.append(replace(event, other=other_life, predicate=predicate, partitioned=partitioned))
                one.schema = event.after
        return companions if other is not None else []

    def _exchange_decision(self, version: Tso, file: SchemaFile, tables: Sequence[_Open]) -> Decision:
        """One release decides both tables of an exchange."""
        decisions = [self.rules.decide(table.life, version, ddl.kinds(file)) for table in tables]
        return next((d for d in decisions if d.release is not None), decisions[0] if decisions else Decision())

    def _configured(self, name: TableId) -> tuple[str, ...] | None:
        return self.keys.get(fold_name(str(name)))

    def _collation(self, file: SchemaFile) -> str | None:
        """The default collation of the file's database."""
        return self.collations.get(TableId(file.table.schema, ""))

    def _keyed(self, schema: TableSchema, name: TableId) -> TableSchema:
        key = self._configured(name)
        return replace(schema, key=key) if key else schema


def _exchangeable(
    file: SchemaFile, statement: ddl.Exchange, table: Evolved, other: Evolved
) -> tuple[str, ddl.Predicate | None]:
    """Why two tables cannot change rows, or which rows those are."""
    schema = table.after
    if table.reason or other.reason:
        return f"{file.query}: {_UNTOLD} {table.reason or other.reason}", None
    if schema.partitioning is None:
        return f"{file.query}: the partitions of {file.table} are not known, its CREATE TABLE is not in the feed.", None
    if bare(schema) != schema or bare(other.after) != other.after:
        return f"{file.query}: a dropped column is kept in one of the tables, so their rows are not alike.", None
    if not schema.decodes_like(other.after):
        return f"{file.query}: the two tables have other columns, so a DDL of one is not in the changefeed.", None
    try:
        return "", ddl.partition_predicate(schema.partitioning, (statement.partition,), schema)
    except CdcError as error:
        return f"{file.query}: {error.message}", None


def _exchanged(version: Tso, file: SchemaFile, table: _Open, found: Evolved, reason: str, decision: Decision) -> Event:
    """The event of one table of an exchange; `found` is what happened to its columns without a DDL."""
    event = Event(version, "exchange", file, table.schema, table.schema, table.name, release=decision.release)
    if not found.reason:
        event = replace(event, after=found.after, hidden=found.changes)
    if decision.way in ("skip", "rebuild"):
        return replace(event, action="change", changes=(DeleteRows(None),) if decision.way == "rebuild" else ())
    if not reason and decision.way == "apply":
        return event
    offered = ("apply" if reason else "as written", "skip", "rebuild")
    ways = ways_out(table.name or table.life, version, offered)
    return replace(event, action="hold", reason=reason or by_policy(file, decision.kind), ways=ways)


def _rank(statement: object) -> int:
    """Names become free before others take them."""
    return 0 if isinstance(statement, (ddl.DropDatabase, ddl.DropTable)) else 1


def _close_name(table: _Open, version: Tso) -> None:
    name, since, _ = table.names[-1]
    table.names[-1] = (name, since, version)


def _told(schema: TableSchema) -> int:
    return sum(column.elems is not None for column in schema.columns)
