"""Histories of history tables: what the DDL of a source table means for those that stand beside its mirror. Pure.

A history table has the events of its source table under a name of its own. Its columns only grow: one that the source
drops stays, and is NULL in rows from then on. What keeps it alone from going on is a hold of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cdc_assets.ddl.kept_columns import beside_mirror, placed
from cdc_assets.errors import BadSettings
from cdc_assets.features.completeness.history import begun_late, with_late_rows
from cdc_assets.features.kinds.decoding import history_kind, keeps_states
from cdc_assets.model.kinds import HISTORY_KINDS, HistoryRule, other_suffix, own_name
from cdc_assets.model.names import fits_pattern
from cdc_assets.model.progress import AppliedState, Gap, Life, Phase, Progress
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import HoldTable, RenameTable
from cdc_assets.model.table_history import Changed, Event, Exchanged, Held, History, Renamed, TableHistory
from cdc_assets.model.tso import FOREVER, Tso
from cdc_assets.planning.inputs import Beginnings


@dataclass(frozen=True, slots=True)
class KindsOfTables:
    """The history with a table for each kind, and what follows for them.

    `rules` are those of the history tables, `holds` their own holds; `renames` are the names that history tables
    get because a source table has theirs, and from when on that has it. `late` are tables that begin in the middle
    of what their source had, and where. `idle` are tables of the lake whose kind is switched off. `ends` are tables
    that a RENAME takes out of their rule, and its version: they have what came before that. `asides` are new names
    for such tables and idle ones, whose names others are to have. `begun` are the states in which tables begin that
    do not begin with their source.
    """

    history: History
    rules: Mapping[Life, HistoryRule] = field(default_factory=dict)
    holds: tuple[HoldTable, ...] = ()
    renames: Mapping[Life, tuple[Tso, TableId]] = field(default_factory=dict)
    late: Mapping[Life, Tso] = field(default_factory=dict)
    idle: tuple[Life, ...] = ()
    ends: Mapping[Life, Tso] = field(default_factory=dict)
    asides: tuple[RenameTable, ...] = ()
    begun: Mapping[Life, AppliedState] = field(default_factory=dict)


def with_kinds(
    history: History,
    rules: Sequence[HistoryRule],
    applied: Mapping[Life, AppliedState],
    beginnings: Beginnings,
    *,
    positions: bool,
) -> KindsOfTables:
    """Return a history with the tables that the rules name beside their mirrors, or in their place.

    Tables begin as `beginnings` have it. `positions` says whether windows can be cut by positions: without them no
    change has a place in time. Raises BadSettings where two patterns are equally exact.
    """
    tables = _TablesOfKinds(history, rules, applied, beginnings, positions)
    for table in history.lives.values():
        for kind in ("", *HISTORY_KINDS):
            tables.add(table, kind)
    return tables.result()


class _TablesOfKinds:
    """The tables of a lake, while they are derived from those of the source."""

    def __init__(
        self,
        history: History,
        rules: Sequence[HistoryRule],
        applied: Mapping[Life, AppliedState],
        beginnings: Beginnings,
        positions: bool,
    ) -> None:
        self._history, self._settings, self._applied = history, rules, applied
        self._beginnings, self._positions = beginnings, positions
        self._begun = dict(beginnings.states)
        self._late = {life: state.since for life, state in applied.items() if state.since is not None}
        self._late |= {life: state.progress.tso for life, state in self._begun.items()}
        self._newest = max((state.ddl for state in applied.values()), default=-1)
        self._stands = dict[Life, Tso]()
        for life, state in applied.items():
            self._stands[life.source] = max(state.ddl, self._stands.get(life.source, -1))
        self._rule_by_source = {
            life: rule_of(rules, table.last_name or life.born_as) for life, table in history.lives.items()
        }
        self._mirrors = [table for life, table in history.lives.items() if _asks(self._rule_by_source[life], "")]
        self._lives, self._holds = dict[Life, TableHistory](), list[HoldTable]()
        self._rules, self._ends = dict[Life, HistoryRule](), dict[Life, Tso]()
        self._renames = dict[Life, tuple[Tso, TableId]]()

    def add(self, table: TableHistory, kind: str) -> None:
        """Add a kind of a source table, "" for its mirror, if a rule asks for it or did so before a RENAME."""
        life = replace(table.life, kind=kind)
        state, source_state = self._applied.get(life), self._applied.get(table.life)
        rule, end = self._rule_by_source[table.life], FOREVER
        if not _asks(rule, kind):
            stood = self._stands.get(table.life, -1)
            frozen_tables = self._beginnings.frozen_tables
            is_unasked = state is None and frozen_tables is not None and life not in frozen_tables
            departure = None if is_unasked else _departure(table, self._settings, kind, state, stood)
            if departure is None:
                return
            rule, end = departure
        is_gone = source_state is not None and source_state.name is None and table.name is None
        if kind and is_gone and state is None:
            return
        if end != FOREVER:
            self._ends[life] = end
        if not kind:
            self._lives[life] = self._mirror(table, state, end)
            return
        assert rule is not None
        self._rules[life] = rule
        if end == FOREVER or state is None:
            self._add_history_table(table, kind, rule, state, end)
        else:
            twin = beside(table, kind, rule.suffix(kind))
            self._lives[life] = _ended(twin if state.begins is None else _begun_by_rename(twin, state.begins), end)

    def _mirror(self, table: TableHistory, state: AppliedState | None, end: Tso) -> TableHistory:
        """Return the history of a mirror through `end`, FOREVER where its rule still asks for it."""
        life, goes_on = table.life, end == FOREVER
        if goes_on or state is None:
            table = _named_late(table, state, self._stands.get(life, -1), self._newest)
        if goes_on and life in self._late:
            table = begun_late(table, self._late[life], self._history.offered.get(life))
        return _ended(table, end)

    def _add_history_table(
        self, table: TableHistory, kind: str, rule: HistoryRule, state: AppliedState | None, end: Tso
    ) -> None:
        """Add a history table of a source table, with what holds it."""
        own, source_state = _on_own_base(table, state), self._applied.get(table.life)
        twin = _called_now(beside(own, kind, rule.suffix(kind)), self._stands.get(table.life, -1))
        twin = twin if state is not None else _without_former_names(twin, self._newest)
        twin = _ended(self._joining(twin, table, state), end)
        self._lives[twin.life] = twin
        if _is_based_otherwise(own, state):
            self._holds.append(_without_history(twin))
        self._holds += _refusals(twin, rule, positions=self._positions, is_late=twin.life in self._late)
        repaired = -1 if source_state is None else source_state.repaired
        if source_state is not None and state is not None and repaired > max(state.repaired, state.since or -1):
            self._holds.append(_without_repair(twin, state, source_state))
        taken = _taken(self._mirrors, twin, rule.suffix(kind))
        if taken is not None:
            at, name = taken
            self._renames[twin.life] = at, _aside(name, table.life)
            self._holds.append(_without_name(twin, at, name, self._renames[twin.life][1]))

    def _joining(self, twin: TableHistory, table: TableHistory, state: AppliedState | None) -> TableHistory:
        """Return a history table that begins at the RENAME which brought its source table under its rule, if one did.

        One that the lake lacks may begin in a state right below that RENAME, which is kept.
        """
        joined = _joined(table, self._settings, twin.life, state, self._beginnings.renames)
        if joined is None or (state is None and self._late.get(twin.life, -1) >= joined):
            return twin
        twin = _begun_by_rename(twin, joined)
        source_state = self._applied.get(table.life)
        is_cut = twin.life in self._begun or (source_state is not None and not source_state.is_whole)
        begun = _begun_state(twin, is_cut=is_cut) if state is None else None
        if begun is not None:
            self._begun[twin.life], self._late[twin.life] = begun, begun.progress.tso
        return twin

    def result(self) -> KindsOfTables:
        """Return the tables that were added, with those of the lake whose names others are to have."""
        applied, history, late, ends = self._applied, self._history, self._late, self._ends
        lives = {
            life: with_late_rows(_exchanging(table, self._lives, late), applied[life].gap if life in applied else None)
            for life, table in self._lives.items()
        }
        states = {**self._begun, **applied}
        holds = [hold for table in lives.values() for hold in _without_rows(table, lives, late, states.get(table.life))]
        idle = tuple(life for life in applied if life not in lives and life.source in history.lives)
        asides = tuple(_asides(lives, applied, idle, ends))
        for step in asides:
            if step.life not in lives:
                lives[step.life] = _standing_still(history, step.life, applied[step.life])
                ends[step.life] = applied[step.life].progress.tso + 1
                self._rules |= {step.life: HistoryRule("", (step.life.kind,))} if step.life.kind else {}
        return KindsOfTables(
            replace(history, lives=lives),
            self._rules,
            (*self._holds, *holds),
            self._renames,
            late,
            tuple(life for life in idle if life not in lives),
            ends,
            asides,
            self._begun,
        )


def _asks(rule: HistoryRule | None, kind: str) -> bool:
    """Return whether a rule asks for a kind of table, "" for the mirror."""
    return (rule is None or rule.mirror) if not kind else rule is not None and kind in rule.kinds


def _departure(
    table: TableHistory, rules: Sequence[HistoryRule], kind: str, state: AppliedState | None, stands: Tso
) -> tuple[HistoryRule | None, Tso] | None:
    """Return the last rule that asked for a kind of a table, and the version of the RENAME by which the table left it.

    None where no rule asked for it, or where the lake is past that RENAME: its table of the kind, or, where it has
    none, the others of the source table, which stand at the DDL `stands`.
    """
    rule_by_name = [(rule_of(rules, name), since) for name, since, _ in table.names]
    asking = [number for number, (rule, _) in enumerate(rule_by_name[:-1]) if _asks(rule, kind)]
    if not asking:
        return None
    rule, end = rule_by_name[asking[-1]][0], rule_by_name[asking[-1] + 1][1]
    seen = stands if state is None else max(state.progress.tso, state.begins or 0)
    return (rule, end) if seen < end else None


def _joined(
    table: TableHistory,
    rules: Sequence[HistoryRule],
    life: Life,
    state: AppliedState | None,
    renames: Mapping[Life, Tso | None],
) -> Tso | None:
    """Return the version of the RENAME at which a history table begins, None where it begins with its source table.

    It is the first one that brings the source table under a rule that asks for the kind. A table of the lake begins
    where it began when it was made.
    """
    if state is not None or life in renames:
        return state.begins if state is not None else renames[life]
    at = next((since for name, since, _ in table.names if _asks(rule_of(rules, name), life.kind)), None)
    return at if any(isinstance(event, Renamed) and event.at == at for event in table.events) else None


def _begun_by_rename(table: TableHistory, at: Tso) -> TableHistory:
    """Return the history of a history table that begins at a RENAME: before that it has a name aside."""
    name = table.called_at(at)
    aside = TableId(name.schema, f"{name.table}_{at}")
    events = (event if event.name is None or event.at >= at else replace(event, name=aside) for event in table.events)
    return replace(table, events=tuple(events), begins=at)


def _begun_state(table: TableHistory, *, is_cut: bool) -> AppliedState | None:
    """Return the state in which a history table begins right below its RENAME, None for one that is built through it.

    A table of states needs the rows of then, so it is built from its source's first rows on, unless the input is `cut`
    before the RENAME or has rows that the mirror is without, or the table had no key there.
    """
    assert table.begins is not None
    before = [event for event in table.events if event.at < table.begins]
    has_key = not any(history_kind(table.life.kind).refuses(event.after) for event in before)
    if keeps_states(table.life.kind) and has_key and not is_cut:
        return None
    return AppliedState(Progress(table.begins - 1, Phase.ROWS), before[-1].at, None, base=table.base)


def _asides(
    lives: Mapping[Life, TableHistory],
    applied: Mapping[Life, AppliedState],
    idle: Iterable[Life],
    ends: Mapping[Life, Tso],
) -> Iterator[RenameTable]:
    """Yield renames of tables to which nothing is applied any more, whose names others have by now or are to have.

    A name that another table gives up before this one ends is free then.
    """
    owners, taken = dict[TableId, Tso](), list[tuple[TableId, Tso, Life]]()
    for life, table in lives.items():
        state = applied.get(life)
        seen = -1 if state is None else state.ddl
        if life in ends:
            taken += [(event.name.folded, event.at, life) for event in table.events if event.name and event.at > seen]
            taken += [(state.name.folded, seen, life)] if state is not None and state.name is not None else []
        else:
            names = [(event.name, event.at) for event in table.events if event.at > seen]
            if state is not None and state.name is not None:
                called = table.called_at(seen)
                is_moved = called != state.name and is_aside(table, state.name)
                names[:0] = [(state.name, seen), *([(called, seen)] if is_moved else [])]
            for number, (name, _) in enumerate(names):
                if name is not None:
                    until = next((at for other, at in names[number:] if other != name and at > seen), FOREVER)
                    owners[name.folded] = max(until, owners.get(name.folded, 0))
    for life in (*idle, *ends):
        at = ends.get(life)
        name = applied[life].name if at is None else lives[life].called_at(at)
        since = applied[life].ddl if at is None else at
        taken_names = {other_name for other_name, position, other in taken if other != life and position >= since}
        is_wanted = name is not None and owners.get(name.folded, -1) > (-1 if at is None else at)
        if name is not None and (is_wanted or name.folded in taken_names):
            yield RenameTable(life, since, _aside(name, life), late=at is None)


def is_aside(table: TableHistory, name: TableId) -> bool:
    """Return whether a table of the lake gave up a name that it had to another one, and has this name since."""
    names = (event.name for event in table.events if event.name is not None)
    return name.folded in {_aside(own, table.life).folded for own in names}


def _aside(name: TableId, life: Life) -> TableId:
    return TableId(name.schema, f"{name.table}_{life.version}")


def _standing_still(history: History, life: Life, state: AppliedState) -> TableHistory:
    """Return the history of a table through where it stands, under the name that it has."""
    table = beside(history.lives[life.source], life.kind) if life.kind else history.lives[life]
    events = (replace(event, name=state.name) for event in table.events if event.at <= state.ddl)
    return _ended(replace(table, events=tuple(events)), state.progress.tso + 1)


def _ended(table: TableHistory, at: Tso) -> TableHistory:
    """Return the history of a table up to a position, from which on it has no name either; all of it for FOREVER."""
    if at == FOREVER:
        return table
    names = tuple((name, since, min(until, at)) for name, since, until in table.names if since < at)
    return replace(table, events=tuple(event for event in table.events if event.at < at), names=names)


def source_of(rules: Sequence[HistoryRule], name: TableId) -> tuple[TableId, str] | None:
    """Return the source table and the kind of a history table by its name; None for any other name."""
    for rule in rules:
        for kind in rule.kinds:
            suffix = rule.suffix(kind)
            base = TableId(name.schema, name.table.removesuffix(suffix))
            if base != name and rule_of(rules, base) == rule:
                return base, kind
    return None


def tracking(rule: HistoryRule, table: TableHistory, at: Tso) -> HistoryRule:
    """Return a rule with the names that the columns which it tracks, or does not, had after a DDL of version `at`.

    It names them as they are called now.
    """
    if not rule.tracks_some:
        return rule
    traced, named = table.origins, {name.lower() for name in (*rule.track, *rule.track_except)}
    now = traced[-1][2]
    meant = {now[column.name] for column in table.schema.columns if column.source_name.lower() in named}
    event, _, names_then = next(trace for trace in reversed(traced) if trace[0].at <= at)
    names = tuple(column.source_name for column in event.after.live if names_then[column.name] in meant)
    if rule.track:
        return replace(rule, track=names or ("",))  # none of them was there: no column is called so
    return replace(rule, track_except=names)


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fits_pattern(name, pattern) for pattern in patterns)


def rule_of(rules: Iterable[HistoryRule], name: TableId) -> HistoryRule | None:
    """Return the rule that excludes a table of that name, else the one with the most exact pattern that it fits.

    None if it fits none. Raises BadSettings where two are equally exact.
    """
    text = str(name)
    fitting = [rule for rule in rules if _fits(text, (rule.pattern,)) and not _fits(text, rule.but)]
    fitting.sort(key=lambda rule: (not rule.excludes, -rule.literal))
    if len(fitting) > 1 and not fitting[0].excludes and fitting[0].literal == fitting[1].literal:
        raise BadSettings(
            f"the setting history has two patterns for the table {name} that are equally exact, "
            f'"{fitting[0].pattern}" and "{fitting[1].pattern}", and the most exact one counts alone. Name the table '
            "itself, or change one of them."
        )
    return fitting[0] if fitting else None


def beside(table: TableHistory, kind: str, suffix: str = "") -> TableHistory:
    """Return the history of a history table."""
    life = replace(table.life, kind=kind)
    events = tuple(_named(event, suffix) for event in _grown(table.events))
    own = {table.life: life}
    gaps = tuple(
        (at, replace(gap, life=own.get(gap.life, gap.life)) if isinstance(gap, Gap) else gap) for at, gap in table.gaps
    )
    return replace(table, life=life, events=events, gaps=gaps)


def _on_own_base(table: TableHistory, state: AppliedState | None) -> TableHistory:
    """Return the history of a table as one of its kinds has it that stands on another dump than its mirror, or on none.

    It has what came before that dump from the feed, and goes on with what comes after it.
    """
    base = table.base
    if base is None or not _is_based_otherwise(table, state):
        return table
    names = list[tuple[TableId, Tso, Tso]]()
    for event, until in zip(table.earlier, (*(event.at for event in table.earlier[1:]), base.at), strict=True):
        if event.name is not None:
            names.append((event.name, event.at, until))
    events = (*table.earlier, *table.events[1:])
    return replace(table, events=events, names=(*names, *table.names), brought=None, earlier=()) if names else table


def _is_based_otherwise(table: TableHistory, state: AppliedState | None) -> bool:
    if table.base is None or state is None or state.awaits_rows:
        return False
    return state.base is None or state.base.at != table.base.at


def _named_late(table: TableHistory, state: AppliedState | None, ddl: Tso, newest: Tso) -> TableHistory:
    """Return the history of a mirror; one that is switched on late has had the name of now from its beginning.

    `ddl` is where the tables of its source stand, `newest` where the farthest table stands.
    """
    late = _called_now(table, ddl)
    if state is None:
        return _without_former_names(late, newest)
    then = [(here.name, now.name) for here, now in zip(table.events, late.events, strict=True) if here.at <= state.ddl]
    return late if then and state.name == then[-1][1] != then[-1][0] else table


def _called_now(table: TableHistory, ddl: Tso) -> TableHistory:
    """Return a history in which the table has the name of a version before that, too.

    Other tables of its source stand there already. Names from before may be those of others by now.
    """
    names = [event.name for event in table.events if event.at <= ddl and event.name is not None]
    if not names:
        return table
    events = (
        event if event.name is None or event.at > ddl else replace(event, name=names[-1]) for event in table.events
    )
    return replace(table, events=tuple(events))


def _without_former_names(table: TableHistory, newest: Tso) -> TableHistory:
    """Return the history of a table that is to be made, aside while it had names that others may have in the lake.

    Those are the names that it gave up by a DDL through which others stand already.
    """
    events, following = list[Event](), None
    end: Tso | None = None
    for event in reversed(table.events):
        if following is not None and event.name != following.name:
            end = following.at
        former = event.name is not None and end is not None and end <= newest
        events.append(replace(event, name=_aside(event.name, table.life)) if former and event.name else event)
        following = event
    return replace(table, events=tuple(reversed(events)))


def _exchanging(table: TableHistory, lives: Mapping[Life, TableHistory], late: Mapping[Life, Tso]) -> TableHistory:
    """Return a history whose exchanges name the table of the lake that has the other's rows: without mirror its states.

    A mirror that begins late has not all of them. Where there is neither, the mirror is named that is not there.
    """
    if all(other in lives and other not in late for _, other in table.exchanges):
        return table
    keeping = [kind for kind in HISTORY_KINDS if keeps_states(kind)]
    events = list[Event]()
    for event in table.events:
        if isinstance(event, (Exchanged, Held, Changed)) and event.other is not None:
            having = [event.other, *(replace(event.other, kind=kind) for kind in keeping)]
            present_lives = sorted((life for life in having if life in lives), key=lambda life: life in late)
            event = replace(event, other=present_lives[0] if present_lives else event.other)
        events.append(event)
    return replace(table, events=tuple(events))


def _named(event: Event, suffix: str) -> Event:
    return event if event.name is None else replace(event, name=own_name(event.name, suffix))


def _grown(events: Iterable[Event]) -> Iterator[Event]:
    """Yield events with columns that only grow, and their conditions by the names of these."""
    schema = None
    for event in events:
        if schema is None:
            schema = event.after
            yield event
            continue
        changes = event.hidden or event.changes
        after, own_changes = beside_mirror(schema, event.before, event.after, changes, event.at)
        named = {"hidden": own_changes} if event.hidden else {"changes": own_changes} if event.changes else {}
        event = replace(event, before=schema, after=after, **named)  # type: ignore[arg-type]
        yield replace(event, predicate=placed(event.predicate, after)) if isinstance(event, Exchanged) else event
        schema = after


# --- what holds one alone ---------------------------------------------------------------------------------------------


def _refusals(twin: TableHistory, rule: HistoryRule, *, positions: bool, is_late: bool) -> Iterator[HoldTable]:
    life = twin.life
    if not positions:
        yield HoldTable(
            life,
            life.version,
            "rows of this changefeed carry no commit-ts, so their changes have no place in time. Start it again with a "
            "commit-ts in the rows, or take the table out of the setting history.",
        )
        return
    begins = -1 if twin.begins is None or not is_late else twin.begins
    first = max((event.at for event in twin.events if event.at < begins), default=-1)
    for event in twin.events:
        if event.at >= first and (reason := history_kind(life.kind).refuses(event.after)):
            yield HoldTable(life, event.at, reason)
            break
    names = {column.name.lower() for column in twin.schema.columns}
    missing = [name for name in (*rule.track, *rule.track_except) if name.lower() not in names]
    if missing:
        yield HoldTable(
            life,
            life.version,
            f'the setting history of "{rule.pattern}" tracks the column "{missing[0]}", which the table does not have; '
            f"it has {', '.join(column.name for column in twin.schema.columns)}. Correct the setting.",
        )


def _without_rows(
    table: TableHistory, lives: Mapping[Life, TableHistory], late: Mapping[Life, Tso], state: AppliedState | None
) -> Iterator[HoldTable]:
    """Yield a hold where rows come of a table that the lake is to have neither as a mirror nor as states.

    A table that began `late` has not all rows of then; one that gets them and began so itself lacks such rows anyway.
    """
    for event in table.events:
        if not isinstance(event, Exchanged) or (state is not None and state.ddl >= event.at):
            continue
        if event.other not in lives:
            why = (
                "of which the lake has neither a mirror nor the states. Let the settings (history, tables) ask for one "
                "of them."
            )
        elif event.other in late and table.life not in late:
            only = "states begin" if event.other.kind else "mirror begins"
            why = f"whose {only} later than its rows. Rebuild {event.other}, once its input or a dump of it is there."
        else:
            continue
        yield HoldTable(table.life, event.at, f"EXCHANGE PARTITION brings rows of {event.other}, {why}")
        return


def _without_history(twin: TableHistory) -> HoldTable:
    return HoldTable(
        twin.life,
        twin.life.version,
        f"its mirror stands on the dump {twin.base.uri if twin.base is not None else ''} by now, and it stands without "
        "that, while the feed has no schema file of it from before. Rebuild it, without its changes of before: "
        f"cdc-assets rebuild {twin.life}.",
    )


def _without_repair(twin: TableHistory, state: AppliedState, mirror: AppliedState) -> HoldTable:
    return HoldTable(
        twin.life,
        twin.life.version,
        f"a repair (verify --repair) gave its mirror rows of the source as of {mirror.repaired} that are not in the "
        f"feed, while this one stood at {state.progress.tso} and the setting history did not ask for it. Rebuild the "
        f"mirror from the feed, without the repair (cdc-assets rebuild {twin.life.source}), or drop this one from the "
        "lake: then it begins anew at the present.",
    )


def _taken(mirrors: Iterable[TableHistory], twin: TableHistory, suffix: str) -> tuple[Tso, TableId] | None:
    """Return the position at which a mirror takes the name of a history table, and that name; None if none does."""
    name_collisions = [
        (max(since, start, twin.begins or 0), own_name(name, suffix))
        for name, start, end in twin.names
        for table in mirrors
        if table.life != twin.life.source
        for other, since, until in table.names
        if other.folded == own_name(name, suffix).folded and max(since, start, twin.begins or 0) < min(until, end)
    ]
    return min(name_collisions, default=None)


def _without_name(twin: TableHistory, at: Tso, name: TableId, other: TableId) -> HoldTable:
    had = f" What this one had by then is in {other}." if at > twin.life.version else ""
    return HoldTable(
        twin.life,
        max(at, twin.life.version),
        f"a table of the source is called {name}, as this one would be: it keeps its name.{had} "
        f"{other_suffix(twin.life.kind)}",
    )
