"""Listing + applied state + checkpoint -> ordered steps over all tables. Pure: no I/O, no clock, no Spark.

Each life is a chain: DDL at V1, rows from V1 up to the next DDL that rows cannot cross, that DDL, … The chains are
merged into one order by TSO, in which (V, ddl) comes before the rows at V. A DDL that leaves rows as they are does not
end a window: rows around it are applied together, each file decoded by its own directory's schema file.

A directory's version says how its rows are decoded, not when they happened: every directory of a name whose columns
are read alike is a candidate for a window, and commit-ts decides.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cdc_assets import ddl
from cdc_assets.ddl.kept_columns import column_lives, first_lives
from cdc_assets.decoding.upgrade import changes_columns_only
from cdc_assets.features.columns.planning import with_lake_columns
from cdc_assets.features.dumps import planning as imports
from cdc_assets.features.kinds.decoding import keeps_states
from cdc_assets.features.kinds.planning import KindsOfTables, is_aside, tracking, with_kinds
from cdc_assets.history.history import read_history
from cdc_assets.history.policies import ways_out
from cdc_assets.history.strays import Period, Strays
from cdc_assets.model.gaps import late_rows_text
from cdc_assets.model.kinds import HISTORY_KINDS, HistoryRule
from cdc_assets.model.progress import AppliedState, Filling, Gap, Lack, Life, MissingRows, Phase, Progress
from cdc_assets.model.schema import ByName, TableId, TableSchema
from cdc_assets.model.schema_changes import DeleteRows, Evolution, Rekey, SchemaChange
from cdc_assets.model.splits import DataFile, LateFile, Listing
from cdc_assets.model.steps import (
    AddedStep,
    ApplyRows,
    ChangeTable,
    CreateTable,
    DropTable,
    ExchangePartition,
    HoldTable,
    RecoverTable,
    RenameTable,
    RowReading,
    Step,
    Waypoint,
)
from cdc_assets.model.table_history import (
    Changed,
    Created,
    Dropped,
    Event,
    Exchanged,
    Held,
    History,
    Imported,
    Kept,
    Recovered,
    Renamed,
    TableHistory,
)
from cdc_assets.model.tso import FOREVER, Tso
from cdc_assets.planning.held_back import Naming, held_back
from cdc_assets.planning.inputs import Beginnings, FeedFacts, TableRules
from cdc_assets.planning.recipe import Recipes, made_for


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order in which they take effect, the histories they come from, and the progress they begin at.

    `behind` is set when the checkpoint is behind what a table already holds: nothing of that table is planned.
    `feed` is the history of the source's tables alone, `idle` are the lake's tables to which nothing is applied
    by the settings. Those of them that lack late rows have a gap in `lacking`.
    """

    steps: tuple[Step, ...]
    history: History
    checkpoint: Tso
    behind: tuple[Life, ...] = ()
    applied: Mapping[Life, AppliedState] = field(default_factory=dict)
    feed: History | None = None
    idle: tuple[Life, ...] = ()
    lacking: Mapping[Life, Gap] = field(default_factory=dict)

    @property
    def sources(self) -> dict[Life, TableHistory]:
        """The tables of the source, those without mirror and dropped ones, too."""
        return {life: table for life, table in (self.feed or self.history).lives.items() if not life.kind}

    def of(self, life: Life) -> tuple[Step, ...]:
        """The steps of one life, in order."""
        return tuple(step for step in self.steps if step.life == life)

    @property
    def made_beside(self) -> Mapping[Life, Sequence[Life]]:
        """The history tables that are to be made, by their source table."""
        kinds: dict[Life, list[Life]] = {}
        for step in self.steps:
            if isinstance(step, CreateTable) and step.life.kind:
                kinds.setdefault(step.life.source, []).append(step.life)
        return kinds


def step_order(step: Step) -> tuple[Tso, int, int, str, str]:
    """Sort key over all tables: rows complete at TSO t come after DDL at or below t and before DDL above it.

    Of one DDL's steps, those that free a name come before those that take it, and those of history tables, which ask
    mirrors for the rows that it moves, after all others. Windows of one source table follow each other. What features
    add comes last at its TSO. Late names come first of all.
    """
    rank = {DropTable: 0, RenameTable: 1, RecoverTable: 2, CreateTable: 3}.get(type(step), 4)
    if isinstance(step, ChangeTable) and step.early:
        rank = -1
    place = 1 if isinstance(step, ApplyRows) else 2 if isinstance(step, AddedStep) else 0
    late = 8 if step.life.kind and not place else 0
    at = 0 if isinstance(step, RenameTable) and step.late else step.at
    return (at, place, rank + late, str(step.life.source), step.life.kind)


def _ordered(steps: Iterable[Step]) -> list[Step]:
    """Return steps in their order; windows that end at the same TSO begin with the table that is farthest behind.

    So tables take turns where runs end after some of their windows, because others wait for their place.
    """
    step_list, since = list(steps), dict[tuple[Tso, Life], Tso]()
    for step in step_list:
        if isinstance(step, ApplyRows):
            place = step.at, step.life.source
            since[place] = min(step.lo, since.get(place, step.lo))

    def key(step: Step) -> tuple[Tso, int, int, Tso, str, str]:
        at, place, rank, source, kind = step_order(step)
        return at, place, rank, since.get((step.at, step.life.source), 0) if place else 0, source, kind

    return sorted(step_list, key=key)


_NO_FACTS, _AS_IN_THE_FEED = FeedFacts(), Beginnings()


def plan(
    listing: Listing,
    applied: Mapping[Life, AppliedState],
    rules: TableRules,
    facts: FeedFacts = _NO_FACTS,
    beginnings: Beginnings = _AS_IN_THE_FEED,
    holds: Callable[[History], Iterable[HoldTable]] = lambda _: (),
) -> Plan:
    """Return the steps that bring every table to the listing's checkpoint.

    `holds` returns, for a history, which tables stop, and from which version.
    """
    recipes = rules.recipes
    standing = {life.source: applied[life] for life in sorted(applied, key=lambda life: life.kind, reverse=True)}
    feed = read_history(
        listing.schema_files,
        listing.checkpoint,
        rules.history,
        imports=listing.imports,
        standing=imports.standing(standing, beginnings.bases),
        begun=imports.earliest(listing, facts.stats, facts.begun),
        missed=listing.missed,
        newest_rows=_newest_rows(listing, facts, standing),
        missing=_missing(applied),
        whole={life: state.whole for life, state in applied.items() if state.whole >= 0 and not life.kind},
    )
    kinds = with_kinds(feed, rules.kinds, applied, beginnings, positions=facts.positions)
    history = kinds.history
    stops = {**_stops(history, facts, applied), **imports.waiting(history, applied, listing.checkpoint, facts.silent)}
    own = recipes.holds(history, applied)
    for hold in (*own, *holds(history), *kinds.holds, *rules.layouts.holds(history, applied)):
        if hold.life not in stops or hold.at < stops[hold.life].at:
            stops[hold.life] = hold
    behind = tuple(
        life for life, state in applied.items() if life in history.lives and state.progress.tso > listing.checkpoint
    )
    chains = _chains(listing, kinds, feed, applied, stops, rules, facts)
    planned_steps = list[Step]()
    for chain in chains:
        life = chain.table.life
        if life not in behind:
            steps = recipes.carried_out(chain.steps(), life, feed.lives, stands=life in applied)
            steps = rules.layouts.carried_out(steps, chain.table, applied.get(life))
            steps = with_lake_columns(steps, rules.lake_columns) if rules.lake_columns else steps
            steps = list(steps)
            if life in kinds.ends and life not in applied and isinstance(next(iter(steps), None), HoldTable):
                continue  # nobody asks for it by now, and it could not even be begun
            planned_steps += [
                replace(step, sets_aside=rules.ddl.sets_aside) if isinstance(step, ApplyRows) else step
                for step in steps
            ]
    due = applied.keys() | {step.life for step in planned_steps}
    planned_steps += [step for step in kinds.asides if step.life in due and step.life not in behind]
    ended = kinds.ends.keys() - {step.life for step in planned_steps}
    history = replace(history, lives={life: table for life, table in history.lives.items() if life not in ended})
    idle, ordered = (*kinds.idle, *sorted(ended & applied.keys())), _ordered(planned_steps)
    if any(isinstance(step, (HoldTable, CreateTable)) for step in ordered):
        ordered = held_back(ordered, applied)
    planned = Plan(tuple(ordered), history, listing.checkpoint, behind, applied, feed, idle)
    return replace(planned, lacking=late_gaps(kinds.idle, planned, applied, facts.late))


def renames_unnamed(listing: Listing) -> bool:
    """Return whether a rename does not say of which table it is: rows that come later can say it."""
    statements = (ddl.statement(file) for file in listing.schema_files)
    return any(
        isinstance(statement, ddl.Rename) and not (statement.old.schema and statement.old.table)
        for statement in statements
    )


def _newest_rows(listing: Listing, facts: FeedFacts, applied: Mapping[Life, AppliedState]) -> Mapping[TableId, Tso]:
    """Return the greatest position through which each name is known to have had rows, or was applied under the name.

    Only a rename that does not say of which table it is needs that; without one nothing is returned.
    """
    if not renames_unnamed(listing):
        return {}
    names = {file.root: file.table for file in listing.schema_files if file.table.table}
    ends = [(names.get(settled.root), settled.through) for settled in listing.settled]
    ends += [(state.name, state.progress.tso) for state in applied.values()]
    for file in listing.data_files:
        read = facts.stats.get(file.path)
        until = file.bounds[1] if file.bounds is not None else read.max_commit_ts if read is not None else None
        ends.append((names.get(file.root), max(until or 0, facts.unread.get(file.path, 0))))
    newest = ByName[Tso]()
    for name, until in ends:
        if name is not None:
            newest[name] = max(until, newest.get(name, 0))
    return newest


def _missing(applied: Mapping[Life, AppliedState]) -> dict[Life, MissingRows]:
    """Return the rows that tables of the lake proved to be missing, by their source tables: the first of each."""
    missing_rows = dict[Life, MissingRows]()
    for life, state in applied.items():
        if state.missing is not None and (
            life.source not in missing_rows or state.missing.at < missing_rows[life.source].at
        ):
            missing_rows[life.source] = state.missing
    return missing_rows


def _chains(
    listing: Listing,
    kinds: KindsOfTables,
    feed: History,
    applied: Mapping[Life, AppliedState],
    stops: Mapping[Life, HoldTable],
    rules: TableRules,
    facts: FeedFacts,
) -> Iterator[_Chain]:
    """Yield the chain of each life: its history, its state, and the rules of its steps."""
    shared = _Feed(
        feed, Strays(feed), _by_name(listing, feed), facts, rules.recipes, kinds, _with_rows(kinds), listing.checkpoint
    )
    due = sorted((point for point in rules.waypoints if point.at <= listing.checkpoint), key=lambda point: point.at)
    for life, table in kinds.history.lives.items():
        state = applied.get(life)
        waypoints = [point for point in due if max(life.version, table.begins or 0) <= point.at]
        is_new = state is None and table.brought is None and life not in kinds.begun
        yield _Chain(
            table,
            None if imports.made_otherwise(table, state) else state,
            shared,
            stops.get(life),
            rules.fuse and facts.positions and is_new and not waypoints,
            waypoints,
            kinds.begun.get(life) if state is None else None,
        )


def _with_rows(kinds: KindsOfTables) -> dict[Tso | None, dict[Life, Tso]]:
    """Return the tables that may be asked which rows a DDL moves in another, by where that one begins late: not later.

    Each of them with the version of the DDL from which on it may not: a RENAME took it out of its rule there.
    """
    late, lives = kinds.late, {life: kinds.ends.get(life, FOREVER) for life in kinds.history.lives}
    return {
        since: {
            life: end for life, end in lives.items() if life not in late or (since is not None and late[life] <= since)
        }
        for since in {late.get(life) for life in lives}
    }


def _stops(history: History, facts: FeedFacts, applied: Mapping[Life, AppliedState]) -> dict[Life, HoldTable]:
    """The lives that have a name whose file cannot be read, or late rows.

    A database-level file concerns all of its tables. Late rows concern no table that was purged.
    """
    purged = {life for life, state in applied.items() if state.is_purged}
    lives = history.lives.keys() - purged
    stops = dict[Life, HoldTable]()
    for rows in sorted(facts.late, key=lambda rows: rows.at, reverse=True):
        for life in lives:
            if rows.concern(life, history.lives[life].names_after(rows.at)):
                name = shlex.quote(str(history.lives[life].name or life))
                ways = (f"read its whole input anew: cdc-assets rebuild {name}",) if rows.table is None else ()
                # A file is late no more once a table reads it: none does that has its rows still before it.
                stood = applied[life].progress.tso if life in applied else -1
                at = rows.at if rows.table is not None else min(rows.at, stood + 1)
                stops[life] = HoldTable(life, max(at, life.version), rows.reason, ways, late=True)
    for root, version, why in facts.broken:
        names = {
            table.folded
            for (decoded_root, _), tables in history.decoding.items()
            for table, _ in tables
            if decoded_root == root
        }
        schema, _, table = root.partition("/")
        own = TableId(schema, table).folded
        for life, held in history.lives.items():
            concerned = any(
                name in names or name == own or (not table and name.schema == own.schema)
                for name in held.names_after(version)
            )
            if concerned and (life not in stops or version < stops[life].at):
                stops[life] = HoldTable(life, max(version, life.version), why)
    return stops


def late_gaps(
    lives: Iterable[Life], planned: Plan, applied: Mapping[Life, AppliedState], late: Iterable[LateFile]
) -> dict[Life, Gap]:
    """Return the gaps of those of these tables of the lake that late rows concern: others of their source get them.

    A gap from an earlier position on says more.
    """
    rows_in_order, sources = sorted(late, key=lambda rows: rows.at), planned.sources
    gaps = dict[Life, Gap]()
    for life in lives if rows_in_order else ():
        table, state = sources[life.source], applied[life]
        gap, family = state.gap, [replace(life, kind=kind) for kind in ("", *HISTORY_KINDS)]
        for rows in rows_in_order if not state.is_purged else ():
            is_its_own = any(rows.concern(other, table.names_after(rows.at)) for other in family)
            if is_its_own and rows.at <= state.progress.tso and (gap is None or gap.sound_through >= rows.at):
                gaps[life] = Gap(life, "", Filling(Lack.LATE_ROWS), late_rows_text(rows.at, life), rows.at - 1)
                break
    return gaps


def _by_name(listing: Listing, history: History) -> dict[TableId, list[DataFile]]:
    """Data files by the table name their rows carry, folded, in reading order."""
    files: dict[TableId, list[DataFile]] = {}
    ordered = sorted(
        listing.data_files, key=lambda f: (f.version, f.partition, f.date, f.dispatcher, len(f.path), f.number, f.path)
    )
    for file in ordered:
        for table, _ in history.decoding.get((file.root, file.version), ()):
            files.setdefault(table.folded, []).append(file)
    return files


@dataclass(frozen=True, slots=True)
class _Feed:
    """The parts of a feed that the chains of all lives share.

    `files` are by the folded table name that their rows carry. `row_sources` are the tables of the lake that know which
    rows another one has, each with the version from which on it no longer does, by where that other one begins late.
    """

    history: History
    strays: Strays
    files: Mapping[TableId, Sequence[DataFile]]
    facts: FeedFacts
    recipes: Recipes
    kinds: KindsOfTables
    row_sources: Mapping[Tso | None, Mapping[Life, Tso]]
    checkpoint: Tso


@dataclass(slots=True)
class _Chain:
    """The steps that one life still needs."""

    table: TableHistory
    applied: AppliedState | None
    feed: _Feed
    stop: HoldTable | None
    fuse: bool
    waypoints: Sequence[Waypoint]
    begun: AppliedState | None

    @property
    def checkpoint(self) -> Tso:
        """The position through which rows are applied: the checkpoint, or the last at which a rule has the table."""
        return min(self.feed.checkpoint, self.feed.kinds.ends.get(self.table.life, FOREVER) - 1)

    @property
    def rule(self) -> HistoryRule | None:
        """The rule that asks for a history table; None for a mirror."""
        return self.feed.kinds.rules.get(self.table.life)

    @property
    def renamed(self) -> tuple[Tso, TableId] | None:
        """The name that a history table gets because a source table has its own, and from when on."""
        return self.feed.kinds.renames.get(self.table.life)

    def steps(self) -> list[Step]:
        """Return the steps that the life needs, with those that features add where it stands at their positions."""
        steps = self._applying()
        held = min((step.at for step in steps if isinstance(step, HoldTable)), default=self.checkpoint + 1)
        begun = min((step.at for step in steps if isinstance(step, CreateTable)), default=self.checkpoint + 1)
        for point in self.waypoints:
            if self.applied is not None and self.applied.progress.tso > point.at:
                continue
            if (self.applied is not None or begun <= point.at) and point.at < held and self.table.name_at(point.at):
                added = point.step(self.table.life, self.applied)
                steps += [] if added is None else [added]
        return steps

    def _applying(self) -> list[Step]:
        """Walk the events of the table, which may begin in the middle of them; a history table has its name first."""
        life, before = self.table.life, list[Step]()
        if self.begun is not None:
            then = [event for event in self.table.events if event.at <= self.begun.ddl]
            if not then or then[-1].name is None:
                return []
            if self.stop is not None and self.stop.at <= self.begun.ddl:
                return [self.stop]
            self.applied = replace(self.begun, name=then[-1].name, tags=frozenset())
            before = [self._begin(self.begun, then[-1])]
        if self.applied is not None and self.applied.name is not None and self.begun is None:
            names = [event.name for event in self.table.events if event.at <= self.applied.ddl]
            newest_name = names[-1] if names else None
            free = self.renamed is None or self.renamed[0] > self.applied.ddl + 1
            if newest_name is not None and self.applied.name != newest_name and free:
                # Others may have that name until the next DDL gives it another one.
                stays = all(event.name == newest_name for event in self.table.events if event.at > self.applied.ddl)
                if stays if self._is_aside else self.rule is not None:
                    before = [RenameTable(life, self.applied.ddl, newest_name, late=True)]
        steps = [*before, *self._walk()]
        if self.rule is None:
            return steps
        at, aside = self.renamed or (0, None)
        if aside is not None and steps and steps[-1] == self.stop and self.stop is not None and self.stop.at == at:
            newest = max((number for number, step in enumerate(steps) if isinstance(step, Naming)), default=-1)
            match steps[newest]:  # it never has the name that it would have to give up
                case CreateTable() as step:
                    steps[newest] = replace(step, name=aside)
                case RenameTable() | RecoverTable() as step:
                    steps[newest] = replace(step, to=aside)
                case _ if self.applied is not None and self.applied.name not in (None, aside):
                    steps.insert(0, RenameTable(life, self.applied.ddl, aside, late=True))
        return steps

    def _begin(self, state: AppliedState, event: Event) -> CreateTable:
        assert event.name is not None
        life, at = self.table.life, state.progress
        by_ddl = at.phase is Phase.DDL
        return CreateTable(
            life, state.ddl, event.name, event.after, since=at.tso, has_rows=by_ddl, begun=at.tso,
            gap=self.table.gap_at(state.ddl, at.tso), base=state.base, recipe=made_for(event.after),
            begins=self.table.begins,
        )  # fmt: skip

    def _walk(self) -> list[Step]:
        """Walk the events: rows up to each barrier, then the barrier; rows up to the checkpoint at the end."""
        position = self.applied.progress if self.applied else Progress(self._since, Phase.DDL)
        seen = self.applied.ddl if self.applied else -1
        current, ahead, steps = list[Event](), list[Event](), list[Step]()
        if self.rule is None and (reason := self._named_otherwise(seen)) and not self._is_aside:
            return [HoldTable(self.table.life, self.table.life.version, reason)]
        if self.table.base is not None and self.applied is not None and self.applied.awaits_rows:
            steps, position = [*imports.brought_rows(self.table)], Progress(self._since, Phase.ROWS)
            if not steps:
                return [imports.lost_rows(self.table)]
        for event in self.table.events:
            if event.at <= seen:
                current, ahead = _with_applied(event, position, current, ahead)
                continue
            if self.stop is not None and event.at >= self.stop.at:
                break
            recorded = isinstance(event, Kept) and self.applied is not None and self.applied.dropped == event.at
            if event.neutral or recorded:
                current.append(event)
                continue
            if self._late(event, position):
                return [*steps, self._hold_late(event, position)]
            if self.fuse and _fusable(steps, event, current):
                assert isinstance(steps[0], CreateTable)
                steps[0] = _with_columns(steps[0], event)
                current.append(event)
                ahead.append(event)
                continue
            if current and event.at - 1 > position.through:
                steps.extend(self._rows(position, event.at - 1, current, ahead))
            steps += self._at(event)
            if isinstance(steps[-1], HoldTable):
                return steps
            position = self._after(event, position)
            current, ahead = [event], []
        last = self.checkpoint if self.stop is None else min(self.checkpoint, self.stop.at - 1)
        if current and current[-1].name is not None:
            steps.extend(self._rows(position, last, current, ahead))
        return steps if self.stop is None else [*steps, self.stop]

    @property
    def _is_aside(self) -> bool:
        name = None if self.applied is None else self.applied.name
        return name is not None and is_aside(self.table, name)

    @property
    def _since(self) -> Tso:
        """Rows from here on are the table's own; a schema file without DDL is written after the first of them."""
        if self.table.base is not None:
            return self.table.base.at
        return min(self.table.life.version, self.table.names[0][1])

    def _named_otherwise(self, seen: Tso) -> str:
        """Return the reason to stop if the files lack a rename that was applied, "" otherwise: rows would go astray."""
        names = [event.name for event in self.table.events if event.at <= seen]
        if self.applied is None or self.applied.name is None or not names or names[-1] in (None, self.applied.name):
            return ""
        return (
            f"it is applied through version {seen} and was called {self.applied.name} then, while the schema files say "
            f"{names[-1]}: one of them was removed, or rewritten without its DDL. Restore the schema files under "
            f"{self.applied.name.schema}/{self.applied.name.table}/meta, or rebuild the tables of both names."
        )

    def _late(self, event: Event, position: Progress) -> bool:
        """A DDL below the applied TSO can no longer take effect in order; a snapshot without DDL has no rows yet.

        A person may decide that it takes effect now; dropping the rows up to it is too late, as later ones are applied.
        """
        if self.applied is None or event.at >= position.tso:
            return False
        if event.release is not None:
            return event.release.way == "rebuild"
        return not isinstance(event, Held) and (bool(event.file.query) or event.file.behind_rows)

    def _hold_late(self, event: Event, position: Progress) -> HoldTable:
        text = event.file.query or "hidden, as by an event filter"
        reason = (
            f"the DDL of version {event.at} ({text}) appeared in {event.file.path} after rows "
            f"through {position.tso} had been applied. It can take effect now, on rows that came after it too; where "
            "that is wrong, rebuild the table from the changefeed's start."
        )
        ways = ways_out(event.name or self.table.life, event.at, ("as written", "apply", "skip"))
        return HoldTable(self.table.life, event.at, reason, ways, releasable=True, late=True)

    def _at(self, event: Event) -> Iterator[Step]:
        """The steps of one event: columns that it shows first, the event itself, the rows that a dump brings."""
        if event.hidden:
            yield self._change(event, event.hidden, early=True)
        step = self._step(event)
        yield step
        if isinstance(event, Imported) and not isinstance(step, HoldTable):
            yield from imports.brought_rows(self.table)

    def _step(self, event: Event) -> Step:
        life = self.table.life
        match event:
            case Created():
                since = self._since if self._since < event.at else None
                gap = self.table.gap_at(event.at)
                made = made_for(event.after)
                return CreateTable(
                    life, event.at, _name(event), event.after,
                    since=since, gap=gap, recipe=made, begins=self.table.begins,
                )  # fmt: skip
            case Imported() if self.table.brought is not None and self.table.brought.lost:
                return imports.lost_rows(self.table)
            case Imported():
                has_rows, base = bool(imports.brought_rows(self.table)), self.table.base
                gap, made = Gap(life) if has_rows else None, made_for(event.after)  # the gap is until they are there
                return CreateTable(
                    life, event.at, _name(event), event.after,
                    gap=gap, base=base, has_rows=has_rows, recipe=made, begins=self.table.begins,
                )  # fmt: skip
            case Changed():
                return self._change(event, event.changes)
            case Kept():
                return ChangeTable(life, event.at, (), event.after, event.before, dropped=True)
            case Renamed():
                begins = event.at == self.table.begins and keeps_states(life.kind)
                return RenameTable(life, event.at, _name(event), begins=begins)
            case Recovered():
                return RecoverTable(life, event.at, _name(event), self._moved(event))
            case Dropped():
                return DropTable(life, event.at, self._moved(event))
            case Exchanged():
                return ExchangePartition(
                    life, event.other, event.at, event.predicate, event.partitioned, event.after,
                    self._moved(event, event.other),
                )  # fmt: skip
            case Held():
                return HoldTable(life, event.at, event.reason, event.ways, releasable=True)

    def _change(self, event: Event, changes: tuple[SchemaChange, ...], *, early: bool = False) -> ChangeTable:
        life = self.table.life
        by_ddl = self.feed.recipes.of_ddl(life.source, changes, event.after, event.at)
        made = by_ddl.joined(made_for(event.after))
        return ChangeTable(life, event.at, changes, event.after, event.before, early, made, self._moved(event))

    def _moved(self, event: Event, *others: Life) -> dict[Life, dict[str, str]]:
        """Return the tables of the lake whose rows an event may move, with the masks of their columns before it."""
        if self.rule is None and not others:
            return {}
        ends = self.feed.row_sources[self.feed.kinds.late.get(self.table.life)]
        lives = [life for life in (self.table.life.source, *others) if event.at < ends.get(life, -1)]
        return {life: self.feed.recipes.before(self.feed.history.lives[life.source], event.at) for life in lives}

    def _after(self, event: Event, position: Progress) -> Progress:
        """Return the table's progress after an event; a dump includes its rows."""
        if isinstance(event, Created):
            return position
        return max(position, Progress(event.at, Phase.ROWS if isinstance(event, Imported) else Phase.DDL))

    def _rows(self, position: Progress, hi: Tso, current: Sequence[Event], ahead: Sequence[Event]) -> Iterator[Step]:
        """Yield the windows through `hi`: one, or several where settings change or waypoints lie in between."""
        lo = position.tso - 1 if position.phase is Phase.DDL else position.tso
        ends = {point.at for point in self.waypoints}
        if self.feed.facts.positions:
            ends |= self.feed.recipes.changes_of(self.table.life.source)
        for end in (*sorted(end for end in ends if lo < end < hi), hi):
            window = self._window(lo, end, current, ahead)
            if window is not None:
                yield window
                lo = end

    def _window(self, lo: Tso, hi: Tso, current: Sequence[Event], ahead: Sequence[Event]) -> ApplyRows | None:
        if hi <= lo:
            return None
        names = tuple((n, a, b) for n, a, b in self.table.names if a <= hi and b > lo + 1)
        taken: list[DataFile] = []
        beside: list[DataFile] = []
        decoding: dict[tuple[str, Tso], tuple[TableId, TableSchema]] = {}
        siblings: dict[tuple[str, Tso], tuple[tuple[TableId, TableSchema], ...]] = {}
        for name in dict.fromkeys(n.folded for n, _, _ in names):
            chosen, others = self._chosen(name, current, lo, hi)
            taken += chosen
            beside += others
            for where in {(file.root, file.version): None for file in (*chosen, *others)}:
                carried, own = self._own(name, where)
                then = next((e.after for e in reversed(current) if own.decodes_like(e.after)), current[-1].after)
                decoding[where] = (carried, _as_written(own, then))
                if len(tables := self.feed.history.decoding[where]) > 1:
                    siblings[where] = tuple(other for other in tables if other[0].folded != name)
        if not taken and not beside:
            return None
        schema, had = current[-1].after, None if self.applied is None else self.applied.recipe
        recipes = self.feed.recipes
        return ApplyRows(
            self.table.life,
            lo,
            hi,
            tuple(taken),
            RowReading(
                decoding,
                names,
                tuple(beside),
                self._unexplained(decoding) if self.feed.facts.positions else {},
                siblings,
                recipes.of(self.table.life.source, schema, hi, had),
                recipes.former(self.table.life.source, hi),
                -1 if self.table.base is None else self.table.base.at,
            ),
            schema,
            max(event.at for event in current),
            None if self.feed.facts.positions else self._positions(taken),
            _evolutions(current, ahead, lo),
            self.rule and tracking(self.rule, self.table, current[-1].at),
            whole_at=self._whole_at(lo, hi, current, [name for name, _, _ in names]),
            lacks_rows=self.table.gap_at(max(event.at for event in current), hi) is not None,
        )

    def _whole_at(self, lo: Tso, hi: Tso, current: Sequence[Event], names: Iterable[TableId]) -> Tso | None:
        """Return the position behind which a window's changes of rows that the table lacks prove that rows are missing.

        They prove nothing where the feed may lack the insert, a person decided otherwise about a DDL that moves rows,
        the table begins late or had rows forgotten, or it is known to lack rows already.
        """
        table, state = self.table, self.applied
        late = self.begun is not None or not (state is None or state.is_whole)
        decided = any(
            event.release is not None or (isinstance(event, Changed) and event.other) for event in table.events
        )
        ddl = max(event.at for event in current)
        if (
            late
            or decided
            or table.missing is not None
            or table.gap_at(ddl, hi) is not None
            or not current[-1].after.key
            or any(isinstance(change, Rekey) for event in current for change in event.changes)
            or not (self.rule is None or keeps_states(table.life.kind))
            or not all(self.feed.facts.has_inserts(name) for name in names)
        ):
            return None
        gap = table.gap_at(ddl, lo)
        return lo if gap is None else gap.filling.through

    def _own(self, name: TableId, where: tuple[str, Tso]) -> tuple[TableId, TableSchema]:
        """The name as the rows of a directory carry it, and its columns there."""
        return next(owner for owner in self.feed.history.decoding[where] if owner[0].folded == name)

    def _unexplained(
        self, where: Mapping[tuple[str, Tso], tuple[TableId, TableSchema]]
    ) -> dict[tuple[str, Tso], tuple[Period, ...]]:
        periods_by_place = {
            (root, version): self.feed.strays.of(self.table.life.source, name, root, version, own)
            for (root, version), (name, own) in where.items()
        }
        return {place: periods for place, periods in periods_by_place.items() if periods}

    def _chosen(
        self, name: TableId, current: Sequence[Event], lo: Tso, hi: Tso
    ) -> tuple[list[DataFile], list[DataFile]]:
        """The files whose rows are read in the columns of the window, and others in which rows of it might be."""
        files = self.feed.files.get(name, ())
        if not self.feed.facts.positions:
            applied_positions = self.applied.positions if self.applied else {}
            return [
                f
                for f in files
                if current[0].at <= f.version <= hi and f.number > applied_positions.get(number_sequence(f), 0)
            ], []
        alike = {
            where
            for where in {(file.root, file.version) for file in files}
            if any(self._own(name, where)[1].decodes_like(event.after) for event in current)
        }
        readable = [file for file in files if (file.root, file.version) in alike]
        needed = [file.may_hold(self.feed.facts.stats.get(file.path), lo, hi) for file in readable]
        # A directory of later columns is read by the window that includes it.
        beside = [
            file
            for file in files
            if file.version <= hi
            and (file.root, file.version) not in alike
            and file.may_hold(self.feed.facts.stats.get(file.path), lo, hi)
        ]
        return _chosen(readable, needed, with_those_between=not current[-1].after.key), beside

    def _positions(self, files: Iterable[DataFile]) -> Mapping[str, int]:
        positions = dict(self.applied.positions) if self.applied else {}
        for file in files:
            key = number_sequence(file)
            positions[key] = max(positions.get(key, 0), file.number)
        return positions


def _name(event: Event) -> TableId:
    """Return the name that an event gives its table."""
    assert event.name is not None
    return event.name


def _evolutions(current: Sequence[Event], ahead: Sequence[Event], lo: Tso) -> tuple[Evolution, ...]:
    """The DDL inside a window, where the table has applied one ahead of its rows."""
    if not any(event.at > lo for event in ahead):
        return ()
    return tuple(Evolution(e.at, e.changes, e.before, e.after) for e in current[1:] if e.at > lo)


def _with_applied(
    event: Event, position: Progress, current: list[Event], ahead: list[Event]
) -> tuple[list[Event], list[Event]]:
    """Return the events in force after one that the table has seen, and those of them that its rows are still before.

    A DDL is seen ahead of its rows where the table was created with its columns.
    """
    if event.neutral:
        return [*current, event], ahead
    if isinstance(event, Changed) and event.at > position.tso:
        return [*current, event], [*ahead, event]
    return [event], []


def _fusable(steps: Sequence[Step], event: Event, current: Sequence[Event]) -> bool:
    """Return whether a table that is about to be created may have this DDL's columns from the start.

    Columns that return to an earlier state, perhaps in another order, would share a directory with that state. A
    column that the source dropped and the lake keeps is in no later file.
    """
    if any(column.kept for column in (*event.before.columns, *event.after.columns)):
        return False
    if len(steps) != 1 or not isinstance(steps[0], CreateTable) or not isinstance(event, Changed):
        return False
    if any(event.after.decodes_like(earlier.after) for earlier in current):
        return False
    return changes_columns_only(event.changes, (*event.before.key, *event.after.key))


def _with_columns(step: CreateTable, event: Event) -> CreateTable:
    """Return the creation of a table that has the columns of a later DDL from the start."""
    before = step.lives or first_lives(step.schema.in_lake, step.at)
    lives = column_lives(before, event.after.in_lake, (*event.hidden, *event.changes), event.at)
    takes = (*step.takes, event.at)
    return replace(step, schema=event.after, takes=takes, recipe=made_for(event.after), lives=lives)


def _chosen(files: Sequence[DataFile], needed: Sequence[bool], *, with_those_between: bool) -> list[DataFile]:
    """The needed files; for a table without key also those between two of them in one number sequence.

    Where a delivery begins is seen in the rows before it, which need not be of this window. Ranges of a log say it.
    """
    last: dict[tuple[object, ...], int] = {}
    if with_those_between:
        last = {file.sequence: at for at, (file, need) in enumerate(zip(files, needed, strict=True)) if need}
    begun: set[tuple[object, ...]] = set()
    chosen = []
    for at, (file, need) in enumerate(zip(files, needed, strict=True)):
        sequence = file.sequence
        if need:
            begun.add(sequence)
        if need or (sequence in begun and at < last.get(sequence, -1) and not file.in_log):
            chosen.append(file)
    return chosen


def number_sequence(file: DataFile) -> str:
    """Return a name for the sequence in which a file's number is unique: directory, dispatcher, number width."""
    width = len(file.path.rsplit("/", 1)[-1])
    return f"{file.directory}|{file.dispatcher}|{width}"


def _as_written(own: TableSchema, now: TableSchema) -> TableSchema:
    """The columns of the window's rows in a directory: a row is written with the columns of its table at that time.

    The checksum that chooses a directory does not see the order of columns, nor the members of ENUM and SET in old
    files, so after a restart rows from before a reordering lie in the directory of after it.
    """
    live = (column for column in now.columns if not column.kept)
    present = {column.source_name: (place, column) for place, column in enumerate(live)}
    if any(column.name not in present for column in own.columns):
        return own
    columns = [
        replace(column, elems=present[column.name][1].elems or column.elems, mask=present[column.name][1].mask)
        for column in sorted(own.columns, key=lambda column: present[column.name][0])
    ]
    return replace(own, columns=tuple(columns))


def _moves_rows(event: Event) -> bool:
    deletes = any(isinstance(change, DeleteRows) for change in event.changes)
    return deletes or isinstance(event, (Dropped, Recovered, Exchanged))


def open_exchanges(planned: Plan, applied: Mapping[Life, AppliedState]) -> dict[Life, frozenset[Tso]]:
    """Return by table the DDL versions that other tables still have to apply with its older rows.

    These are exchanges with its partner, and DDL that moves rows, which history tables have from their mirrors.
    """
    exchange_versions: dict[Life, set[Tso]] = {}
    for life, table in planned.history.lives.items():
        seen = applied[life].ddl if life in applied else -1
        needed = [(version, other) for version, other in table.exchanges if version > seen]
        if life.kind and life in applied:
            moving = (event.at for event in table.events if event.at > seen and _moves_rows(event))
            needed += [(version, life.source) for version in moving]
        for version, other in needed:
            exchange_versions.setdefault(other, set()).add(version)
    return {life: frozenset(versions) for life, versions in exchange_versions.items()}
