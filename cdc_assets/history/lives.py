"""The tables while schema files are played: which life has which name, how tables begin and end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cdc_assets import ddl
from cdc_assets.ddl.kept_columns import bare
from cdc_assets.ddl.schema import with_facts
from cdc_assets.errors import TableHeld
from cdc_assets.history.policies import PolicyDecision, Rules, SchemaEffect, born, by_policy, evolved, ways_of, ways_out
from cdc_assets.history.recovery import Gone, LaterSigns
from cdc_assets.model.names import fold_name
from cdc_assets.model.progress import Life
from cdc_assets.model.releases import Release
from cdc_assets.model.schema import ByName, TableId, TableSchema
from cdc_assets.model.schema_changes import Rekey, RenameColumn
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.table_history import (
    Created,
    Dropped,
    Event,
    Held,
    Kept,
    Recovered,
    Renamed,
    TableHistory,
)
from cdc_assets.model.tso import Tso

MISSING_DDL = "the columns changed before it, and the changefeed has no DDL that says how."
AS_WRITTEN = ("as written", "skip")
"""The ways out of a hold by policy, where rows stay."""


def unchanged(table: TableHistory, file: SchemaFile) -> tuple[SchemaFile, TableSchema, TableSchema, TableId | None]:
    """Return the first fields of an event that leaves columns and name as they are."""
    return file, table.schema, table.schema, table.name


class Lives:
    """Every life with its events so far."""

    def __init__(self, rules: Rules, later: LaterSigns | None = None) -> None:
        self.rules = rules
        self.later = LaterSigns() if later is None else later
        self.tables: dict[Life, TableHistory] = {}
        self.holders: ByName[Life] = ByName()
        self.gone: Gone[Life] = Gone()
        self.unclear: ByName[str] = ByName()  # names that a table may have got by a DDL that is held -> why
        self.collations: ByName[str] = ByName()  # of databases
        self._keys = {fold_name(name): key for name, key in rules.keys.items()}
        self._kept: ByName[Life] = ByName()  # dropped at the source
        self._left: ByName[Tso] = ByName()

    def holder(self, name: TableId) -> TableHistory | None:
        """Return the table that has a name now."""
        life = self.holders.get(name)
        return None if life is None else self.tables[life]

    def add(self, life: Life, event: Event) -> None:
        """Add an event to a table."""
        self.tables[life] = self.tables[life].then(event)

    # --- births and deaths ---

    def begin(
        self,
        file: SchemaFile,
        kinds: Sequence[str] = (),
        *,
        like: TableSchema | None = None,
        reason: str = "",
        release: Release | None = None,
    ) -> None:
        """Begin a table with its first schema file; a `reason` holds it, a `release` lets it begin empty."""
        life = Life(file.table, file.version)
        self._make_room(file)
        decision = PolicyDecision("skip", release=release) if release else self.rules.decide(life, file.version, kinds)
        zone = self.rules.zone(life, file.version)
        effect = self.keyed(born(file, like, self.collation(file), decision, reason, zone), file)
        schema = effect.after
        event: Event = Created(file, schema, schema, file.table, release=decision.release)
        if effect.reason:
            event = Held(file, schema, schema, file.table, effect.reason, effect.ways, release=decision.release)
        # A file without DDL is written some time after the table's first rows were; they may lie in its directory.
        since = file.version if file.query else self._left.get(file.table, 0)
        self.tables[life] = TableHistory(life, (event,), ()).called(file.table, since)
        self.holders[file.table] = life

    def import_table(self, life: Life, table: TableHistory) -> None:
        """Begin a table with its dump, in place of what the feed has of it; earlier names stay as they were.

        A table of the feed that has the name is this one, whatever its identity.
        """
        begin = table.events[0]
        self._make_room(begin.file)
        before: list[tuple[TableId, Tso, Tso]] = []
        for other in {self.holders.get(begin.file.table, life), life}:
            other_table = self.tables.pop(other, None)
            before += (
                []
                if other_table is None
                else [(n, a, min(b, begin.at)) for n, a, b in other_table.names if a < begin.at]
            )
        for name in [name for name, owner in self.holders.items() if owner == life]:
            del self.holders[name]
        self.tables[life] = replace(table, names=tuple(before)).called(begin.file.table, begin.at)
        self.holders[begin.file.table] = life

    def drop(self, name: TableId, file: SchemaFile, kinds: Sequence[str] | None = None) -> None:
        """Drop a table; without `kinds` because another takes its name, which no policy prevents."""
        self.unclear.pop(name, None)
        self._left[name] = file.version
        table = self.holder(name)
        if table is None:
            return
        decision = self.rules.decide(table.life, file.version, kinds) if kinds is not None else PolicyDecision()
        if decision.way in ("hold", "rebuild"):
            reason = by_policy(file, decision.kind) if decision.kind else f"{file.query}: no rows follow it."
            self.add(table.life, Held(*unchanged(table, file), reason, ways_out(name, file.version, AS_WRITTEN)))
            return
        del self.holders[name]
        self.gone.drop(file.version, name, table.life)
        self.tables[table.life] = table.left(file.version)
        if decision.way == "skip" or decision.keep:
            self._kept[name] = table.life
            self.add(table.life, Kept(*unchanged(table, file), release=decision.release))
            return
        self.add(table.life, Dropped(file, table.schema, table.schema, None, release=decision.release))

    def recover(self, table: TableHistory, old: TableId, file: SchemaFile, decision: PolicyDecision) -> None:
        """Restore a table, dropped under the name `old`, under the name of its file."""
        self.gone.take(old)
        self._kept.pop(old, None)
        self._take_name(table.life, file)
        if decision.way == "hold":
            ways = ways_out(file.table, file.version, AS_WRITTEN)
            self.add(table.life, Held(*unchanged(table, file), by_policy(file, decision.kind), ways))
            return
        back = Recovered if table.name is None else Renamed
        self._named(table, file, back, decision.release)

    def _make_room(self, file: SchemaFile) -> None:
        """Drop the table that the lake kept under a name that another table takes."""
        self.unclear.pop(file.table, None)
        life = self._kept.pop(file.table, None)
        if life is not None:
            schema = self.tables[life].schema
            self.add(life, Dropped(file, schema, schema, None))

    # --- names ---

    def rename(self, moves: Mapping[TableId, tuple[TableId, SchemaFile]]) -> None:
        """Carry out {new name: (name before, file)} all at once: names may swap."""
        leaving = {source: self.holders.pop(source) for source, _ in moves.values()}
        for to, (source, file) in moves.items():
            self._left[source] = file.version
            life = leaving[source]
            if to in self.holders:
                self.drop(to, file)
            self.tables[life] = self.tables[life].left(file.version)
            self._take_name(life, file)
            self._named(self.tables[life], file, Renamed, self.rules.release(life, file.version))

    def replace_with(self, table: TableHistory, file: SchemaFile, event: Event) -> None:
        """Add an event to a table that has the name of its file from then on, also one that was dropped."""
        if self.holders.get(file.table) != table.life:
            if table.name is not None and self.holders.get(table.name) == table.life:
                del self.holders[table.name]
                self.tables[table.life] = table.left(file.version)
            else:
                self.gone.take(file.table)
                self._kept.pop(file.table, None)
            self._take_name(table.life, file)
        self.add(table.life, event)

    def _take_name(self, life: Life, file: SchemaFile) -> None:
        self._make_room(file)
        self.tables[life] = self.tables[life].called(file.table, file.version)
        self.holders[file.table] = life

    def _named(
        self,
        table: TableHistory,
        file: SchemaFile,
        event: type[Renamed] | type[Recovered],
        release: Release | None,
    ) -> None:
        """A DDL that renames without changing columns; before it they may have changed without a DDL."""
        effect = self.hidden(table, file)
        if effect.reason:
            reason = f"{file.query}: {MISSING_DDL} {effect.reason}"
            self.add(table.life, Held(file, table.schema, table.schema, file.table, reason))
            return
        hidden = effect.changes
        self.add(table.life, event(file, table.schema, effect.after, file.table, release=release, hidden=hidden))

    # --- columns ---

    def hidden(self, table: TableHistory, file: SchemaFile) -> SchemaEffect:
        """Changes of columns by an earlier DDL that is not in the changefeed, because an event filter hides it."""
        bare_columns = bare(table.schema).columns
        if file.by_text:
            try:
                zone = self.rules.zone(table.life, file.version)
                file = ddl.listed(file, bare(table.schema), self.collation(file), zone)
            except TableHeld as error:
                return SchemaEffect(table.schema, reason=error.message)
        if not file.columns or with_facts(file, table.schema).columns == bare_columns:
            return SchemaEffect(table.schema)
        return self._evolved(table, replace(file, query="", type=0), replace(self.rules, releases={}))

    def evolved(self, table: TableHistory, file: SchemaFile) -> SchemaEffect:
        """Changes of a schema file to the columns of the table that has its name."""
        return self._evolved(table, file, self.rules)

    def _evolved(self, table: TableHistory, file: SchemaFile, rules: Rules) -> SchemaEffect:
        key = self._keys.get(fold_name(str(file.table)))
        effect = evolved(table.schema, file, self.collation(file), rules, (table.life, file.table), key)
        changes = tuple(change for change in effect.changes if not isinstance(change, Rekey) or not key)
        moved = {change.old: change.new for change in changes if isinstance(change, RenameColumn)}
        return self.keyed(
            replace(effect, changes=changes), file, tuple(moved.get(name, name) for name in table.schema.key)
        )

    def collation(self, file: SchemaFile) -> str | None:
        """Return the default collation of the file's database; its charset by the DDL's message, where that says it."""
        collation = self.collations.get(TableId(file.table.schema, ""))
        is_other = file.charset and (collation is None or ddl.charset_of(collation) != file.charset)
        return ddl.default_collation(file.charset) if is_other else collation

    def keyed(self, effect: SchemaEffect, file: SchemaFile, before: tuple[str, ...] = ()) -> SchemaEffect:
        """Return the schema with the key of the settings, or that of `before` by its new names; else a hold."""
        key = self._keys.get(fold_name(str(file.table)))
        if not key or effect.reason:
            return effect
        try:
            named = ddl.key_of(effect.after, key)
        except TableHeld as error:
            if not before or not {column.name for column in effect.after.stored}.issuperset(before):
                reason = f"{file.table} at {file.version}: {error.message}"
                return replace(effect, changes=(), reason=reason, ways=ways_of(error))
            named = before
        return replace(effect, after=replace(effect.after, key=named))
