"""Tables of a dump: which dump counts, which life it belongs to, and what the feed has to agree with.

A dump has its tables as of one TSO. The life that has the name at that TSO is the table: it begins anew there, with
the dump's columns and rows, and what the feed has of it at or below that TSO is older. Later schema files apply to that
table; the first one without DDL must have its columns.

A table of the lake keeps its base: the dump that it was created from, even if that no longer exists, or the feed
alone, until a person asks for a rebuild.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from cdc_assets import ddl
from cdc_assets.ddl.kept_columns import bare
from cdc_assets.ddl.schema import with_facts
from cdc_assets.history.lives import Lives
from cdc_assets.history.policies import SchemaEffect, ways_out
from cdc_assets.model.gaps import is_complete
from cdc_assets.model.progress import AppliedState, Base, Life
from cdc_assets.model.schema import ByName, Column, TableSchema
from cdc_assets.model.schema_changes import DeleteRows, Predicate, Rekey
from cdc_assets.model.splits import Import, SchemaFile
from cdc_assets.model.table_history import Event, Exchanged, Held, History, Imported, TableHistory
from cdc_assets.model.tso import Tso

_CREATE_TABLE = 3
"""TiDB's DDL action type."""
_SIZED = ("BINARY", "CHAR", "VARBINARY", "VARCHAR")


@dataclass(frozen=True, slots=True, eq=False)
class ChosenImport:
    """An import that counts. `life` is the lake's table based on it, None if there is none; `doubt` holds it.

    It is `older` if a later dump has a table of the same name, which may be another one by then.
    """

    table: Import
    life: Life | None = None
    doubt: str = ""
    older: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """The imports that count, by their TSO, and those that wait until the feed has reached them."""

    chosen: tuple[ChosenImport, ...] = ()
    waiting: tuple[Import, ...] = ()


def choose(imports: Iterable[Import], standing: Mapping[Life, AppliedState], until: Tso, begun: Tso | None) -> Choice:
    """Return the imports that count. `standing` are the tables of the lake, based on a dump or on none.

    Of several dumps that have a table the newest at or below `until` counts, also for a table that was created from
    another one and never got its rows: that dump was damaged, and taken again. An older one counts only if its table
    turns out to have another name by then (`needless`). `begun` is the earliest TSO known of the
    feed: it must have begun at or before the dump, or changes in between are missing.
    """
    available = {(dump.base.table.folded, dump.base.at): dump for dump in imports}
    stood = [(life, state, state.base) for life, state in standing.items() if state.base is not None]
    chosen = []
    for life, state, base in stood:
        base_key = (base.table.folded, base.at)
        if not state.awaits_rows:
            chosen.append(ChosenImport(available.pop(base_key) if base_key in available else _gone(base), life))
    newest: ByName[Import] = ByName()
    due = sorted((dump for dump in available.values() if dump.base.at <= until), key=lambda dump: dump.base.at)
    for dump in due:
        newest[dump.base.table] = dump
    waiting = [dump for dump in available.values() if dump.base.at > until and dump.base.table not in newest]
    for life, state, base in stood:
        if state.awaits_rows:
            table = newest.pop(base.table, None) or _gone(base)
            chosen.append(ChosenImport(table, life, "" if table.base.at == base.at else _doubt(table.base, begun)))
    taken = {base.table.folded for _, _, base in stood}
    for dump in due:
        older = dump is not newest.get(dump.base.table)
        if not older or dump.base.table.folded not in taken:
            chosen.append(ChosenImport(dump, None, _doubt(dump.base, begun), older))
    chosen = [chosen_dump for chosen_dump in chosen if chosen_dump.table.base.at <= until]
    chosen.sort(key=lambda chosen_dump: (chosen_dump.table.base.at, str(chosen_dump.table.base.table)))
    return Choice(tuple(chosen), tuple(waiting))


def _gone(base: Base) -> Import:
    """Return the known facts of a table whose dump no longer exists: its columns as of then."""
    schema = ddl.created(base.query, database_collation=base.collation, timezone=base.timezone, shown=True)
    return Import(base, schema, lost=True)


def _doubt(base: Base, begun: Tso | None) -> str:
    if begun is not None and begun <= base.at:
        return ""
    earliest = f"its earliest known TSO is {begun}" if begun is not None else "it has no changes yet"
    return (
        f"{base.uri} was taken at {base.at}, and whether the changefeed began at or before that is not known: "
        f"{earliest}. If it began later, changes in between are in neither. If it began by then, give its start-ts as "
        "initial.start_ts in the settings"
    )


def needless(brought: Mapping[ChosenImport, Life], tables: Mapping[Life, TableHistory]) -> set[ChosenImport]:
    """Return the older imports whose table began anew with a later dump, or is gone."""
    return {
        chosen
        for chosen, life in brought.items()
        if chosen.older and (tables[life].brought is not chosen.table or tables[life].name is None)
    }


# --- a table begins with its dump -------------------------------------------------------------------------------------


def bring(
    lives: Lives,
    decoding: dict[tuple[str, Tso], ByName[TableSchema]],
    dump: ChosenImport,
) -> Life | None:
    """Begin a table with its dump, after everything else of that TSO was played.

    Return the table, None if a person said that the dump does not count for it. A dump without rows of any table may
    be one of schemas alone, so it does not count either where the feed has the CREATE TABLE, or a person said that the
    table is complete.
    """
    base = dump.table.base
    holder = lives.holders.get(base.table)
    life = dump.life or holder or Life(base.table, base.at)
    release = lives.rules.release(life, base.at)
    if release is not None and release.way == "skip":
        return None
    created_by_feed = holder is not None and _is_created(lives.tables[holder])
    if dump.table.rowless and dump.life is None and (created_by_feed or is_complete(life, lives.rules.complete)):
        return None
    if lives.rules.new_collations:
        schema = dump.table.schema
    else:
        schema = replace(
            dump.table.schema, columns=tuple(replace(column, bytewise=True) for column in dump.table.schema.columns)
        )
    file = SchemaFile(base.uri, dump.table.root, base.table, base.at, base.query, _CREATE_TABLE, schema.columns)
    effect = lives.keyed(SchemaEffect(schema), file)
    schema = effect.after
    event: Event = Imported(file, schema, schema, base.table, release=release)
    reason = dump.table.problem or effect.reason or ("" if release is not None else dump.doubt)
    if reason:
        event = Held(file, schema, schema, base.table, f"{reason}.", _ways(life, base, dump))
    before = None if holder is None else lives.tables[holder]
    earlier = () if before is None else (*before.earlier, *before.events)
    lives.import_table(life, TableHistory(life, (event,), (), brought=dump.table, earlier=earlier))
    if dump.table.root:
        decoding[dump.table.root, base.at] = ByName({base.table: schema})
    if before is not None:
        # Rows from after the dump may be in the directories of older schema files. Without a CREATE TABLE in the feed
        # every file gets the dump's facts; else those whose columns are decoded like the dump's.
        no_create = not _is_created(before)
        for (_, version), tables in decoding.items():
            own_schema = tables.get(base.table)
            if own_schema is not None and before.life.version <= version <= base.at:
                older = SchemaFile("", "", base.table, version, "", 0, bare(own_schema).columns)
                completed = with_facts(older, schema)
                if no_create or completed.decodes_like(schema):
                    tables[tables.spelled(base.table)] = replace(own_schema, columns=completed.columns)
    return life


def _is_created(table: TableHistory) -> bool:
    """Return whether the feed has the table's CREATE TABLE."""
    return isinstance(ddl.statement(table.events[0].file), ddl.CreateTableStatement)


def _ways(life: Life, base: Base, dump: ChosenImport) -> tuple[str, ...]:
    command = f"cdc-assets release {life} {base.at} "
    skip = f"go without the dump, so that rows from before the changefeed are missing: {command}--skip"
    return (f"import it all the same: {command}--apply", skip) if dump.doubt and not dump.table.problem else (skip,)


# --- later schema files of the feed -----------------------------------------------------------------------------------


def beside_the_dump(table: TableHistory, file: SchemaFile, effect: SchemaEffect) -> SchemaEffect:
    """Hold a table of a dump where a schema file contradicts the dump, or acts on values that the dump lacks."""
    effect = _known_rows(table, effect)
    if effect.release is None and (reason := _refused_columns(table, file)):
        ways = ways_out(table.name or table.life, file.version, ("as written", "skip"))
        return replace(effect, reason=f"{reason}.", ways=ways)
    return effect


def _refused_columns(table: TableHistory, file: SchemaFile) -> str:
    """Return the differences between the first schema file without DDL and the table as dump and later DDL make it.

    "" if it does not differ, or if an earlier file was compared: from then on the feed's own files count.
    """
    compared = any(event.file.columns for event in table.events[1:])
    if table.brought is None or compared or file.query or not file.columns:
        return ""
    dump_schema, file_schema = bare(table.schema), with_facts(file, bare(table.schema))
    ours = {column.name.lower(): column for column in dump_schema.columns if not column.hidden}
    others = {column.name.lower(): column for column in file_schema.columns if not column.hidden}
    both = [name for name in ours if name in others]
    # The schema file need not list virtual columns.
    odd = [f'"{column.name}" (only the dump has it)' for column in ours.values() if column.name.lower() not in others
           and not column.virtual]  # fmt: skip
    odd += [f'"{column.name}" (only the schema file has it)' for name, column in others.items() if name not in ours]
    odd += [f'"{others[name].name}" (its definition)' for name in both if not _alike(ours[name], others[name])]
    if not odd:
        listed = [name for name in others if name in ours]
        odd = [f'"{others[there].name}" (its place)' for here, there in zip(both, listed, strict=True) if here != there]
    if not odd:
        return ""
    base = table.brought.base
    return (
        f"{file.path}, of version {file.version}, differs from the table in the dump of {base.at} in "
        f"{', '.join(odd)}, and no DDL between the two is in the changefeed. Was the dump taken at another time, from "
        "another cluster, or did the changefeed begin after it? Dump the table again"
    )


def _alike(column: Column, file_column: Column) -> bool:
    if column.type in _SIZED and column.precision != file_column.precision:
        return False
    members = column.elems is None or file_column.elems is None or column.elems == file_column.elems
    return (
        members
        and column.is_pk == file_column.is_pk
        and replace(column, name=file_column.name).decodes_like(file_column)
    )


def _known_rows(table: TableHistory, effect: SchemaEffect) -> SchemaEffect:
    """Hold a change that depends on values that are NULL in the rows of the dump, unless a person decided it."""
    if not table.made_null or effect.reason or effect.release is not None:
        return effect
    for change in effect.changes:
        predicate = change.predicate if isinstance(change, DeleteRows) else None
        reason = unknown_values(table, predicate, change.key if isinstance(change, Rekey) else ())
        if reason:
            return replace(effect, changes=(), reason=reason)
    return effect


def unknown_values(table: TableHistory, predicate: Predicate | None, names: Iterable[str] = ()) -> str:
    """Return the sentence on a column, of a condition or of `names`, without values in the dump's rows; "" if none."""
    for name in (*_used(predicate), *names):
        if name in table.made_null:
            return (
                f'It depends on the column "{name}", which is NULL in the rows from the dump '
                f"({table.made_null[name]}), so the rows that it concerns are not known."
            )
    return ""


def _used(predicate: Predicate | None) -> tuple[str, ...]:
    if predicate is None:
        return ()
    own = (predicate.value,) if predicate.op == "column" else ()
    return (*own, *(name for arg in predicate.args for name in _used(arg)))


# --- tables of the lake -----------------------------------------------------------------------------------------------


def superseded(
    played: History,
    brought: Mapping[ChosenImport, Life],
    standing: Mapping[Life, AppliedState],
    alone: Callable[[], History],
) -> dict[ChosenImport, Life | None]:
    """Return the imports whose tables are in the lake already without them, and those tables.

    `brought` are the tables by import. The feed `alone` may have begun such a table later and under another identity:
    the same schema files are about both. A table whose name another one has by now comes too late, and is None.
    """
    names = {state.name.folded for state in standing.values() if state.name is not None}
    late_dumps: dict[ChosenImport, Life | None] = {chosen: life for chosen, life in brought.items() if life in standing}
    early_dumps = {chosen: life for chosen, life in brought.items() if chosen not in late_dumps}
    if not standing or not early_dumps:
        return late_dumps
    lives = alone().lives
    life_of = {(e.file.path, e.at): life for life in standing.keys() & lives.keys() for e in lives[life].events}
    for chosen, life in early_dumps.items():
        later_imports = [
            life_of[e.file.path, e.at] for e in played.lives[life].events[1:] if (e.file.path, e.at) in life_of
        ]
        if later_imports:
            late_dumps[chosen] = later_imports[0]
        elif chosen.table.base.table.folded in names:
            late_dumps[chosen] = None
    return late_dumps


# --- exchanges before a dump ------------------------------------------------------------------------------------------


def needed_before(
    played: History, brought: Mapping[ChosenImport, Life], standing: Mapping[Life, AppliedState]
) -> tuple[set[ChosenImport], set[Life]]:
    """Return the imports that cannot count, and the tables that nobody needs, for an EXCHANGE PARTITION before a dump.

    One side of it needs the rows that the other had then. A table that begins with a dump has them no more: it is
    played from the feed alone, unless all that need it were dropped and never came into the lake.
    """
    dumps = {life: chosen for chosen, life in brought.items()}
    partners: dict[Life, set[Life]] = {}
    for life, table in played.lives.items():
        seen = standing[life].ddl if life in standing else -1
        due = [event for event in table.events if isinstance(event, Exchanged) and event.at > seen]
        partners[life] = {e.other for e in due if e.other not in dumps or e.at <= dumps[e.other].table.base.at}
    late, idle = set[ChosenImport](), set[Life]()
    for life, table in played.lives.items():
        reached, border = set[Life](), [life]
        while border:
            newly_reached = partners.get(border.pop(), set()) - reached
            reached |= newly_reached
            border += newly_reached - dumps.keys()
        reached_dumps = {dumps[other] for other in reached & dumps.keys()}
        if reached_dumps and table.name is None and life not in standing:
            idle.add(life)
        else:
            late |= reached_dumps
    return late, idle
