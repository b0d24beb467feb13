"""Schema files -> the life of every table. Pure: no I/O, no clock, no Spark.

All schema files of one version are one event of the source. They are played in order of their version over a small
name space: which table has which name when. A life keeps its identity through renames; rows filed under a name belong
to the table that had that name at their commit-ts.

The columns of the schema files are the truth; DDL texts decide what columns leave open (see `ddl`). What cannot be
carried out faithfully becomes a hold on its life: the event is kept with its reason, later ones are not applied. What
people decided, by kind of DDL or about a single one, replaces what the files say (see `policies`).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from cdc_assets import ddl
from cdc_assets.ddl.kept_columns import bare
from cdc_assets.ddl.schema import with_facts
from cdc_assets.errors import CdcError
from cdc_assets.features.completeness.history import with_gaps
from cdc_assets.features.dumps.history import (
    ChosenImport,
    beside_the_dump,
    bring,
    choose,
    needed_before,
    needless,
    superseded,
    unknown_values,
)
from cdc_assets.history.lives import MISSING_DDL, Lives, unchanged
from cdc_assets.history.policies import PolicyDecision, Rules, SchemaEffect, by_policy, utc, ways_out
from cdc_assets.history.recovery import LaterSigns, Unrecoverable
from cdc_assets.history.renames import rename
from cdc_assets.history.shadows import without_left_out
from cdc_assets.model.features import module_of
from cdc_assets.model.gaps import MissedMessages
from cdc_assets.model.progress import AppliedState, Base, Life, MissingRows
from cdc_assets.model.schema import ByName, TableId, TableSchema
from cdc_assets.model.schema_changes import DeleteRows
from cdc_assets.model.splits import Import, SchemaFile
from cdc_assets.model.table_history import Changed, Event, Exchanged, Held, History, TableHistory
from cdc_assets.model.tso import FOREVER, Tso


def read_history(
    files: Iterable[SchemaFile],
    until: Tso = FOREVER,
    rules: Rules | None = None,
    *,
    imports: Sequence[Import] = (),
    standing: Mapping[Life, AppliedState] | None = None,
    begun: Tso | None = None,
    missed: Mapping[TableId, Sequence[MissedMessages]] | None = None,
    newest_rows: Mapping[TableId, Tso] | None = None,
    missing: Mapping[Life, MissingRows] | None = None,
    whole: Mapping[Life, Tso] | None = None,
) -> History:
    """Play the schema files with version <= `until`, by what settings and people decide beside them.

    `imports` are tables of dumps, `standing` are the tables of the lake, some of which are based on a dump, and `begun`
    is the earliest TSO known of the feed. `missed` are the messages of tables, by name, that were gone before they
    could be read, `missing` the rows that windows proved to be missing, `whole` the positions as of which repairs made
    all rows of tables the source's. `newest_rows` are the greatest known commit-ts
    of rows by name (see `LaterSigns`).
    """
    files, there, rules = tuple(files), standing or {}, rules or Rules()
    choice = choose(imports, there, until, begun)
    # without dumps neither the lake's tables nor the feed's begin count, and of `until` which files it leaves out
    is_cacheable = not (imports or choice.chosen or missed or newest_rows or missing or whole)
    due = sum(file.version <= until for file in files)
    cache_key = due, replace(rules, zone=utc), getattr(rules.zone, "__self__", rules.zone)
    if is_cacheable and (recent := _recent(files, cache_key)) is not None:
        return recent
    if rules.new_collations:
        given_files = files
    else:
        given_files = tuple(replace(f, columns=tuple(replace(c, bytewise=True) for c in f.columns)) for f in files)
    # The file of a DDL comes before those that its first rows write: with table ids as path they are of other roots.
    ordered = sorted(given_files, key=lambda f: (f.version, not f.query, f.root, f.checksum or 0))

    def play(chosen: Sequence[ChosenImport]) -> _Player:
        player = _Player(rules, LaterSigns(ordered, newest_rows))
        player.play_all(ordered, until, chosen)
        return player

    history, offered = _with_dumps(choice.chosen, play, there)
    history = without_left_out(history)
    history = with_gaps(replace(history, waiting=choice.waiting, offered=offered), rules, missed, missing, whole)
    for feature, settings in rules.features.items():
        history = module_of("history", feature).applied(history, settings)
    if is_cacheable:
        other_readings = (reading for reading in _RECENT if reading.files[:1] != files[:1])
        _RECENT[:] = [_RecentHistory(files, cache_key, history), *other_readings]
        del _RECENT[_FEEDS:]
    return history


class _RecentHistory(NamedTuple):
    """A history and what it was read from: schema files, which are the same objects, and the rest."""

    files: tuple[SchemaFile, ...]
    inputs: tuple[object, ...]
    history: History


_FEEDS = 8
_RECENT: list[_RecentHistory] = []
"""The newest history of each feed of a process, of a few: nearly every plan has the schema files of the one before."""


def _recent(files: Sequence[SchemaFile], cache_key: tuple[object, ...]) -> History | None:
    """Return the history that was read last from the very same input, None if there is none."""
    for reading in tuple(_RECENT):
        is_same_listing = len(reading.files) == len(files) and all(map(operator.is_, reading.files, files))
        if is_same_listing and reading.inputs == cache_key:
            return reading.history
    return None


def _with_dumps(
    chosen: Sequence[ChosenImport],
    play: Callable[[Sequence[ChosenImport]], _Player],
    standing: Mapping[Life, AppliedState],
) -> tuple[History, dict[Life, Base]]:
    """Play with the chosen tables of dumps, but for those that are needless or whose table stands in the lake already.

    Also returns the dumps of the latter, by table: on request they are rebuilt from these.
    """
    remaining_dumps, offered = list(chosen), dict[Life, Base]()

    def alone() -> History:
        return play([dump for dump in chosen if dump.life is not None]).history()

    while True:
        player = play(remaining_dumps)
        history = player.history()
        fresh = {dump: life for dump, life in player.brought.items() if dump.life is None}
        idle = needless(fresh, history.lives)
        late = superseded(history, {dump: life for dump, life in fresh.items() if dump not in idle}, standing, alone)
        entangled, unneeded = needed_before(history, player.brought, standing)
        late = {**{dump: player.brought[dump] for dump in entangled if dump in fresh}, **late}
        if not late and not idle:
            lives = {life: table for life, table in history.lives.items() if life not in unneeded}
            return replace(history, lives=lives, unneeded={life: history.lives[life] for life in unneeded}), offered
        offered |= {life: dump.table.base for dump, life in late.items() if life is not None}
        remaining_dumps = [dump for dump in remaining_dumps if dump not in late and dump not in idle]


_RENAMES = re.compile(r"(?is)^\s*(?:RENAME\s+TABLES?|ALTER\s+(?:\w+\s+){0,2}TABLE\b.*\bRENAME)\b")
"""A text that may give a table another name."""
_FREES_NAMES = (ddl.DropDatabase, ddl.DropTableStatement)
"""Names become free before others take them."""


class _Player:
    def __init__(self, rules: Rules, later: LaterSigns) -> None:
        self.lives = Lives(rules, later)
        self.rules = rules
        self.brought: dict[ChosenImport, Life] = {}
        self.views: ByName[Tso] = ByName()
        self.decoding: dict[tuple[str, Tso], ByName[TableSchema]] = {}
        self.other_files: list[SchemaFile] = []

    def history(self) -> History:
        decoding = {where: tuple(tables.items()) for where, tables in self.decoding.items()}
        return History(self.lives.tables, decoding, tuple(self.other_files))

    def play_all(self, ordered: Sequence[SchemaFile], until: Tso, chosen: Iterable[ChosenImport]) -> None:
        """Carry out what is not later than `until`: of one version the feed's files, then the tables of a dump."""
        due = [file for file in ordered if file.version <= until]
        dumps = {at: list(group) for at, group in groupby(chosen, key=lambda chosen_dump: chosen_dump.table.base.at)}
        files = {version: list(group) for version, group in groupby(due, key=lambda f: f.version)}
        for version in sorted({*files, *dumps}):
            self.play(version, files.get(version, []))
            for dump in dumps.get(version, ()):
                life = bring(self.lives, self.decoding, dump)
                if life is not None:
                    self.brought[dump] = life
        self.read_ahead(due, ordered[len(due) :])

    def play(self, version: Tso, files: list[SchemaFile]) -> None:
        """Carry out all schema files of one version: exchanges, drops, renames at once, then the rest."""
        files = [self._with_released_text(file) for file in files]
        pairs: list[tuple[SchemaFile, ddl.Statement]] = [(file, ddl.statement(file)) for file in files]
        renames = [(f, s) for f, s in pairs if isinstance(s, ddl.Rename)]
        exchanges = [(f, s) for f, s in pairs if isinstance(s, ddl.Exchange)]
        parts = [part for file, statement in exchanges for part in exchange(self.lives, file, statement, files)]
        for file, statement in pairs:
            if isinstance(statement, _FREES_NAMES):
                self._one(file, statement)
        if renames:
            rename(self.lives, version, renames)
        for file, statement in pairs:
            if not isinstance(statement, (ddl.Rename, ddl.Exchange, *_FREES_NAMES)) and not (parts and file in parts):
                self._one(file, statement)
        for file, statement in pairs:
            # A directory is decoded by its own file's columns, with the facts of the table that had them.
            table = self.lives.holder(file.table)
            if not file.table.table or isinstance(statement, ddl.View) or (table is None and file.by_text):
                continue
            tables = self.decoding.setdefault((file.root, file.version), ByName())
            decoding_schema = tables.get(file.table)
            schema = with_facts(file, table.schema if table is not None else None)
            if file.grows and table is not None and _named_alike(bare(table.schema), schema):
                schema = bare(table.schema)  # types may be wider than a lagging row shows them
            if decoding_schema is None:
                for name in [name for name in tables if name not in self.lives.holders]:
                    del tables[name]  # a hop of a rename, whose name no table has afterwards
                better = not tables or table is not None
            else:
                better = decoding_schema.decodes_like(schema) and _known_members(schema) >= _known_members(
                    decoding_schema
                )
            if better:
                tables[file.table] = schema

    def _with_released_text(self, file: SchemaFile) -> SchemaFile:
        """The file with the text that a person gave for it; renames of known tables are decided by table."""
        version, life = file.version, self.lives.holders.get(file.table)
        released = self.rules.release(Life(file.table, version), version)
        if released is None and life is not None and not isinstance(ddl.statement(file), ddl.Rename):
            released = self.rules.release(life, version)
        if released is None or released.way != "apply" or not released.text:
            return file
        return ddl.defaults_by_text(replace(file, query=released.text, type=0))

    def _one(self, file: SchemaFile, statement: ddl.Statement) -> None:
        lives = self.lives
        match statement:
            case ddl.DropDatabase():
                self.other_files.append(file)
                for name in [n for n in lives.holders if n.folded.schema == file.table.folded.schema]:
                    lives.drop(name, file, self.rules.kinds(file))
                lives.gone.drop_database(file.table)
            case ddl.CreateDatabase(collation=collation) | ddl.AlterDatabase(collation=collation):
                self.other_files.append(file)
                if collation:
                    lives.collations[TableId(file.table.schema, "")] = collation
            case ddl.View():
                self.other_files.append(file)
                if statement.dropped:
                    self.views.pop(file.table, None)
                else:
                    self.views[file.table] = file.version
            case ddl.DropTableStatement():
                lives.drop(file.table, file, self.rules.kinds(file))
            case ddl.CreateTableStatement(like=like):
                self._create(file, like)
            case ddl.Recover():
                self._recover(file, statement)
            case ddl.Truncate():
                self._alter(file, statement)
                lives.gone.truncate(file.version, file.table)
            case _:
                self._alter(file, statement)

    def _create(self, file: SchemaFile, like: TableId | None) -> None:
        holder = self.lives.holders.get(file.table)
        if holder is not None and holder.version == file.version:
            return
        if holder is not None and file.by_server and ddl.creates_if_absent(file.query):
            self.other_files.append(file)  # a connector takes one that is LIKE another for a new table
            return
        if holder is not None:
            self.lives.drop(file.table, file)
        model = None if like is None else self._copied(like)
        self.lives.begin(file, self.rules.kinds(file), like=None if model is None else bare(model.schema))

    def _copied(self, like: TableId) -> TableHistory | None:
        """Return the table that a CREATE TABLE … LIKE names; None for tables of several databases that differ."""
        if like.schema:
            return self.lives.holder(like)
        tables = [
            self.lives.tables[life]
            for name, life in self.lives.holders.items()
            if name.folded.table == like.folded.table
        ]
        is_same_definition = tables and all(ddl.same_definition(tables[0].schema, other.schema) for other in tables[1:])
        return tables[0] if is_same_definition else None

    def _recover(self, file: SchemaFile, statement: ddl.Recover) -> None:
        lives, kinds = self.lives, self.rules.kinds(file)
        old = statement.old if statement.old.schema else TableId(file.table.schema, statement.old.table)
        if file.table in lives.holders:
            lives.drop(file.table, file)
        try:
            table = lives.tables[lives.gone.only(old) if statement.by_job else lives.gone.newest(old)]
            if not with_facts(file, table.schema).decodes_like(table.schema):
                raise Unrecoverable(f"the columns are not those that {table.life} had when it went")
        except Unrecoverable as problem:
            lives.begin(file, kinds, reason=f"{file.query}: {problem}.")
            return
        decision = self.rules.decide(table.life, file.version, kinds)
        if decision.way in ("skip", "rebuild"):
            own = replace(file, whole=bare(table.schema)) if file.by_text else file
            lives.begin(own, release=decision.release)
        else:
            lives.recover(table, old, file, decision)

    def _alter(self, file: SchemaFile, statement: ddl.Statement) -> None:
        table = self.lives.holder(file.table)
        may_begin = file.columns or _RENAMES.search(file.query)  # it has rows, whose columns it was given, or a name
        if table is None and file.by_text and isinstance(statement, ddl.Unknown) and may_begin:
            self.lives.begin(file, ("unknown",), reason=statement.reason)
        elif table is None and file.by_text or table is not None and file.whole is not None and not file.grows:
            self.other_files.append(file)  # of a table that begins with the file that has its columns
        elif table is not None:
            effect = self.lives.evolved(table, file)
            if table.brought is not None or table.mixed:
                effect = beside_the_dump(table, file, effect)
            common = (file, table.schema, effect.after, table.name)
            if effect.reason:
                self.lives.add(table.life, Held(*common, effect.reason, effect.ways, release=effect.release))
            else:
                changed = Changed(*common, effect.changes, release=effect.release, otherwise=effect.otherwise)
                self.lives.add(table.life, changed)
        elif file.table not in self.views:
            unknown = statement.reason if isinstance(statement, ddl.Unknown) else ""
            reason = self.lives.unclear.get(file.table, unknown)
            self.lives.begin(file, ("unknown",) if unknown else (), reason=reason)

    # --- how rows are read ---

    def read_ahead(self, past: Sequence[SchemaFile], future: Sequence[SchemaFile]) -> None:
        """A directory of a later version gets older rows too, if its columns have the checksum of an older one.

        The other table of such a directory, which a later exchange moves there, is added as well.
        """
        same = {
            (f.root, f.checksum): decoding_schema
            for f in past
            if f.checksum
            and (decoding_schema := self.decoding.get((f.root, f.version), ByName()).get(f.table)) is not None
        }
        for file in future:
            decoding_schema = same.get((file.root, file.checksum or 0))
            if decoding_schema is not None:
                self.decoding.setdefault((file.root, file.version), ByName())[file.table] = decoding_schema
        for file in future:
            tables = self.decoding.get((file.root, file.version))
            if tables is not None and file.table not in tables:
                table = self.lives.holder(file.table)
                tables[file.table] = with_facts(file, table.schema if table is not None else None)


def _named_alike(schema: TableSchema, other: TableSchema) -> bool:
    return [column.name for column in schema.columns] == [column.name for column in other.columns]


def _known_members(schema: TableSchema) -> int:
    return sum(column.elems is not None for column in schema.columns)


def exchange(
    lives: Lives, file: SchemaFile, statement: ddl.Exchange, files: Sequence[SchemaFile]
) -> tuple[SchemaFile, ...]:
    """Add the event to both tables. Return the second table's files of the version, which belong to the event.

    They have no DDL text, and are not events themselves if both tables are known.
    """
    (name, *more_partners) = _partners(lives, file, statement, files)
    table, other = lives.holder(file.table), lives.holder(name)
    if more_partners and table is not None and lives.rules.release(table.life, file.version) is None:
        names = (name, *more_partners)
        why = f"{file.query}: it names no database, and may exchange rows with any of {', '.join(map(str, names))}."
        whole = f"give it with a database as the DDL, as in {file.query.rstrip('; ')} with {name} for the second table"
        ways = ways_out(table.name or file.table, file.version, ("apply", "skip"), (whole,))
        for doubtful in filter(None, map(lives.holder, (file.table, *names))):
            lives.add(doubtful.life, Held(*unchanged(doubtful, file), why, ways))
        return ()
    companions = tuple(
        companion for companion in files if companion.table.folded == name.folded and not companion.query
    )
    sides = [(table, other, file), (other, table, (*companions, replace(file, table=name))[0])]
    effects = {history.life: lives.hidden(history, own) for history, _, own in sides if history is not None}
    reason, predicate = "", None
    if table is None or other is None:
        missing = file.table if table is None else name
        reason = f"{file.query}: {missing} is not in the feed, so the exchanged rows are not known."
    else:
        reason, predicate = _exchangeable(file, statement, effects[table.life], effects[other.life])
        unknown = next(filter(None, (unknown_values(history, predicate) for history in (table, other))), "")
        reason, predicate = (f"{file.query}: {unknown}", None) if unknown else (reason, predicate)
    tables = [history for history in (table, other) if history is not None]
    # One release decides both tables of an exchange.
    decisions = [lives.rules.decide(table.life, file.version, lives.rules.kinds(file)) for table in tables]
    decision = next((d for d in decisions if d.release is not None), decisions[0] if decisions else PolicyDecision())
    predicate = ddl.confirm_nulls(predicate) if predicate is not None and decision.by_own_text else predicate
    for history, partner_history, own in sides:
        if history is not None:
            partner = None if partner_history is None else partner_history.life
            rows = None
            if partner_history is not None and predicate is not None:
                rows = (partner_history.life, predicate, own is file, partner_history.made_null)
            event = _event(file, history, effects[history.life], (reason, decision), partner, rows)
            lives.add(history.life, event)
            if isinstance(event, Exchanged) and event.made_null:
                lives.tables[history.life] = replace(lives.tables[history.life], mixed=True)
    return companions if other is not None else ()


def _partners(
    lives: Lives, file: SchemaFile, statement: ddl.Exchange, files: Sequence[SchemaFile]
) -> tuple[TableId, ...]:
    """Return the table that exchanges rows with that of a file: several, if nothing tells which of them is meant.

    A text that names no database means that of the session, which was not recorded. TiCDC writes a second file of the
    version for the table that is meant.
    """
    if statement.other.schema:
        return (statement.other,)
    near, table = TableId(file.table.schema, statement.other.table), lives.holder(file.table)
    second = [other.table for other in files if not other.query and other.table.folded.table == near.folded.table]
    if len(second) == 1:
        return (second[0],)
    named = [name for name in lives.holders if name.folded.table == near.folded.table and name != file.table]
    alike = [
        name for name in named if table is None or table.schema.decodes_like(lives.tables[lives.holders[name]].schema)
    ]
    return tuple(alike) or (near,)


def _exchangeable(
    file: SchemaFile, statement: ddl.Exchange, table: SchemaEffect, other: SchemaEffect
) -> tuple[str, ddl.Predicate | None]:
    """Return the reason why two tables cannot exchange rows, or the condition for those of the partition."""
    schema = table.after
    if table.reason or other.reason:
        return f"{file.query}: {MISSING_DDL} {table.reason or other.reason}", None
    if schema.partitioning is None:
        return f"{file.query}: the partitions of {file.table} are not known, its CREATE TABLE is not in the feed.", None
    if bare(schema) != schema or bare(other.after) != other.after:
        return f"{file.query}: one of the tables keeps a dropped column, so their columns differ.", None
    if not schema.decodes_like(other.after):
        return f"{file.query}: the two tables differ in their columns, so a DDL of one is not in the changefeed.", None
    try:
        rows = ddl.exchange_predicate(schema.partitioning, statement.partition, schema, by_server=file.by_server)
        return "", rows
    except CdcError as error:
        return f"{file.query}: {error.message}", None


def _event(
    file: SchemaFile,
    table: TableHistory,
    effect: SchemaEffect,
    decided: tuple[str, PolicyDecision],
    other: Life | None,
    rows: tuple[Life, ddl.Predicate, bool, Mapping[str, str]] | None,
) -> Event:
    """The event of one of the tables; `found` are changes of its columns without a DDL."""
    reason, decision = decided
    after, hidden = (table.schema, ()) if effect.reason else (effect.after, effect.changes)
    common = (file, table.schema, after, table.name)
    release = decision.release
    if decision.way in ("skip", "rebuild"):
        changes = (DeleteRows(None),) if decision.way == "rebuild" else ()
        return Changed(*common, changes, other, otherwise=True, release=release, hidden=hidden)
    if rows is not None and not reason and decision.way == "apply":
        return Exchanged(*common, *rows, release=release, hidden=hidden)
    offered = ("apply" if reason else "as written", "skip", "rebuild")
    ways = ways_out(table.name or table.life, file.version, offered)
    why = reason or by_policy(file, decision.kind)
    return Held(*common, why, ways, other, release=release, hidden=hidden)
