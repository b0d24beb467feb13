"""Several renames of one version -> the names afterwards. Pure.

Names may swap and tables may move in hops, so all renames of one version are resolved together, or the tables are held.
What people gave for single tables comes first, and policies have the last word.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence

from cdc_assets import ddl
from cdc_assets.ddl.schema import with_facts
from cdc_assets.history.lives import Lives, unchanged
from cdc_assets.history.policies import Rules, by_policy, ways_out
from cdc_assets.history.shadows import take_place
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import ByName, TableId
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.table_history import Held
from cdc_assets.model.tso import Tso


def rename(lives: Lives, version: Tso, renames: Sequence[tuple[SchemaFile, ddl.Rename]]) -> None:
    """Carry out all renames of one version; hold tables whose renames are ambiguous or held by a policy."""
    renames = [
        (rest, rename_statement)
        for file, rename_statement in renames
        if (rest := take_place(lives, file, rename_statement)) is not None
    ]
    released_renames = ByName(
        _given_renames(lives.holders, version, targets := [file.table for file, _ in renames], lives.rules)
    )
    requests: ByName[tuple[TableId, SchemaFile]] = ByName()
    for file, statement in renames:
        sources = (
            [released_renames[file.table]]
            if file.table in released_renames
            else _sources(lives, file, statement, targets)
        )
        if file.table not in released_renames and not statement.old.table:
            sources = [name for name in sources if name not in released_renames.values()]
            _hold_each(lives, file, sources, _NAMELESS)
        elif len(sources) == 1:
            requests[file.table] = (sources[0], file)
        elif sources or not file.by_text:
            _hold_each(lives, file, sources, "it names no database")
    # Unknown tables are left out: with texts alone, a table begins with the first DDL that has its columns.
    held_names, unsettled = {name.folded for name in lives.holders}, dict(requests)
    moves: ByName[tuple[TableId, SchemaFile]] = ByName()
    while due := [
        target for target, (source, file) in unsettled.items() if source.folded in held_names or not file.by_text
    ]:
        for target in due:
            moves[target] = unsettled.pop(target)
            held_names.add(target.folded)
    final = ByName({to: source for to, source in released_renames.items() if to in moves})
    remaining_moves = {to: source for to, (source, _) in moves.items() if to not in final}
    held = set(lives.holders) - set(final.values())
    try:
        try:
            final.update(_with_reason(lives, remaining_moves, resolve(remaining_moves, held)))
        except Unresolved:
            remaining_moves = {
                to: source for to, source in remaining_moves.items() if source in held or not moves[to][1].by_text
            }
            final.update(_with_reason(lives, remaining_moves, resolve(remaining_moves, held)))
    except Unresolved as problem:
        _hold(lives, {to: moves[to] for to in remaining_moves}, f"{problem}.", ("apply",))
    for to, source in tuple(final.items()):
        decision = lives.rules.decide(lives.holders[source], version, ("rename table",))
        if decision.way != "apply":
            file = moves[to][1]
            reason = by_policy(file, decision.kind) if decision.kind else "without its new name the table cannot go on."
            _hold(lives, {to: (source, file)}, reason, ("as written", "apply"))
            del final[to]
    lives.rename({to: (source, moves[to][1]) for to, source in final.items()})
    for to, (_, file) in moves.items():
        if to not in final:
            _hold_former(lives, file)


def _with_reason(
    lives: Lives, moves: Mapping[TableId, TableId], renames: Mapping[TableId, TableId]
) -> Mapping[TableId, TableId]:
    """Return the result of `resolve`; raise Unresolved for a hop without a reason.

    Only tables that exchange names need one. Else its name is that of an unknown table that gives it up, as in
    `RENAME TABLE t TO t_old, t_new TO t`.
    """
    direct, sources = ByName(moves), ByName(renames)
    for to, source in renames.items():
        by = direct[to]
        if by.folded != source.folded and by not in lives.holders and (to == source or not _exchanges(to, sources)):
            raise Unresolved(f"{by} is not known under that name; its CREATE TABLE or rows are not in the feed")
    return renames


def _exchanges(name: TableId, sources: ByName[TableId]) -> bool:
    """Return whether the table that gets a name and the one that leaves it are of a circle that exchanges names."""
    source = sources[name]
    for _ in sources:
        if source.folded == name.folded:
            return True
        if source not in sources:
            return False
        source = sources[source]
    return source.folded == name.folded


_NAMELESS = "it lacks the old name, as TiCDC before 8.5.6 writes a RENAME of several tables of TiDB up to 8.1"


def _sources(lives: Lives, file: SchemaFile, statement: ddl.Rename, targets: Collection[TableId]) -> list[TableId]:
    """The old name; without a schema in the text it is of the session's database, which was not recorded.

    That is the database of the new name where the text gives that one without a schema, too, or another rename of the
    statement says so. Else there may be several, if tables of several databases have the name; where the text lacks the
    name, these are tables of its database with the columns of the file. A table that a person let go past the statement
    is not meant, nor one that has rows or DDL under its name afterwards.
    """
    near = statement.old if statement.old.schema else TableId(file.table.schema, statement.old.table)
    other_targets = {target.folded for target in targets} - {file.table.folded}
    is_near = near in lives.holders and not statement.from_session
    if statement.old.table and (is_near or statement.old.schema or near.folded in other_targets):
        return [lives.holders.spelled(near)]
    if statement.old.table:
        same = [name for name in lives.holders if name.folded.table == near.folded.table]
    else:
        same = [name for name in lives.holders if name.folded.schema == near.folded.schema and _fits(lives, name, file)]
    decided = {name: lives.rules.release(lives.holders[name], file.version) for name in same}
    undecided_names = [name for name, release in decided.items() if release is None or release.way != "skip"]
    return [name for name in undecided_names if not lives.later.keeps(name, file.version)]


def _fits(lives: Lives, name: TableId, file: SchemaFile) -> bool:
    """Return whether a table has the columns of a file, as far as it lists them."""
    schema = lives.tables[lives.holders[name]].schema
    return not file.columns or with_facts(file, schema).decodes_like(schema)


def _hold_each(lives: Lives, file: SchemaFile, sources: Sequence[TableId], lacks: str) -> None:
    """Hold the tables of which one gets a new name, and what follows under that."""
    some = f"may rename any of {', '.join(map(str, sources))}" if sources else "no table that it may rename is known"
    why = f"{file.query}: {lacks}, and {some}."
    for source in sources:
        table = lives.holder(source)
        if table is not None and table.events[-1].at != file.version:
            whole = f"give the whole rename as the DDL, as in RENAME TABLE {source} TO {file.table}"
            ways = ways_out(source, file.version, ("apply", "skip"), (whole,))
            lives.add(table.life, Held(*unchanged(table, file), why, ways))
    if file.table not in lives.holders:
        lives.begin(file, lives.rules.kinds(file), reason=why)
    _hold_former(lives, file)


def _hold(
    lives: Lives, moves: Mapping[TableId, tuple[TableId, SchemaFile]], reason: str, offered: tuple[str, ...]
) -> None:
    """Hold the tables, and what follows under the new names without a CREATE of its own."""
    for to, (source, file) in moves.items():
        table, why = lives.holder(source), f"{file.query}: {reason}"
        whole = f"give the whole rename as the DDL, as in RENAME TABLE {source} TO {to}"
        if table is not None:
            lives.unclear[to] = f"it got its name by a rename that is held. {why}"
            if table.events[-1].at != file.version:
                ways = ways_out(source, file.version, offered, (whole,))
                lives.add(table.life, Held(*unchanged(table, file), why, ways))
        elif to not in lives.holders:
            lives.begin(file, lives.rules.kinds(file), reason=why)


def _hold_former(lives: Lives, file: SchemaFile) -> None:
    """Hold the table that has a rename's new name: from here on rows under it belong to another table."""
    table = lives.holder(file.table)
    if table is not None and table.events[-1].at != file.version:
        why = f"{file.query}: another table takes its name, and no DDL says what became of {table.life}."
        missing = f"restore the schema file that says it under {file.table.schema}/*/meta"
        way = f"{'let the changefeed send the DDL that says it' if file.by_text else missing}, or rebuild the table"
        lives.add(table.life, Held(*unchanged(table, file), why, (way,)))


def _given_renames(
    held: Mapping[TableId, Life], version: Tso, targets: Container[TableId], rules: Rules
) -> dict[TableId, TableId]:
    """Return new name -> present name of the tables whose rename a person gave, if a schema file has the new name."""
    renames: dict[TableId, TableId] = {}
    for name, life in held.items():
        release = rules.release(life, version)
        if release is not None and release.way == "apply":
            pairs = ddl.rename_pairs(release.text, name.schema)
            renames.update({new: name for old, new in pairs if old.folded == name.folded and new in targets})
    return renames


class Unresolved(Exception):
    """The renames of one statement are ambiguous."""


def resolve(moves: Mapping[TableId, TableId], held: set[TableId]) -> dict[TableId, TableId]:
    """Return new name -> name before the statement, for the moves {to: source} of one version.

    The old architecture names every source as of before the statement, so a table that moves in hops is the source of
    several moves (`a TO tmp, b TO a, tmp TO b` is filed as a→tmp, b→a, a→b); the new one may name hops literally.
    Every order of the moves that can be executed is tried; raises Unresolved unless all have the same result. Names
    are spelled as in `held`, then as in `moves`.
    """
    spelled = ByName({name: name for name in (*moves, *held)}).spelled
    moves = {spelled(to): spelled(source) for to, source in moves.items()}
    unknown = [source for source in moves.values() if source not in held and source not in moves]
    if unknown:
        raise Unresolved(f"{unknown[0]} is not known under that name; its CREATE TABLE or rows are not in the feed")
    ends = {tuple(sorted(end.items())) for end in _executions(tuple(moves.items()), held)}
    if not ends:
        raise Unresolved("the renames of this statement cannot be carried out in any order")
    if len(ends) > 1:
        raise Unresolved("the renames of this statement can be carried out in more than one way with different results")
    return {to: source for source, to in ends.pop()}


def _executions(moves: tuple[tuple[TableId, TableId], ...], held: set[TableId]) -> Iterator[dict[TableId, TableId]]:
    """Yield {name before: name after} of each executable order; without hops there is one."""
    if len({source for _, source in moves} & held) == len(moves):
        yield {source: to for to, source in moves}
        return

    def go(
        remaining_pairs: frozenset[tuple[TableId, TableId]], at: dict[TableId, TableId]
    ) -> Iterator[dict[TableId, TableId]]:
        # `at` maps the present name of each table to its name before the statement.
        if not remaining_pairs:
            yield {before: now for now, before in at.items() if before in {_root(s, moves, held) for _, s in moves}}
            return
        for to, source in remaining_pairs:
            now = next((n for n, before in at.items() if before == source), None) if source in held else None
            if source not in held:
                now = source if source in at else None
            if now is None or (to in at and to != now):
                continue
            moved = {n: b for n, b in at.items() if n != now}
            moved[to] = at[now]
            yield from go(remaining_pairs - {(to, source)}, moved)

    yield from go(frozenset(moves), {name: name for name in held})


def _root(source: TableId, moves: tuple[tuple[TableId, TableId], ...], held: set[TableId]) -> TableId:
    """Follow a literal hop back to the name before the statement."""
    by_target = dict(moves)
    seen: set[TableId] = set()
    while source not in held and source in by_target and source not in seen:
        seen.add(source)
        source = by_target[source]
    return source
