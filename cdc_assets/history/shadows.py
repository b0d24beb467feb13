"""Tables whose rows a connector leaves out, though their DDL comes, and what becomes of them by RENAME TABLE. Pure.

gh-ost and pt-online-schema-change make a shadow table (`_t_gho`, `_t_new`) like `t`, alter it, copy the rows of `t`
into it and keep it equal to `t`. At the cut-over `t` becomes `_t_del` or `_t_old`, and the shadow table becomes `t`:

    RENAME TABLE t TO _t_del, _t_gho TO t      of which connectors send a record for each table, in that order
    DROP TABLE t; RENAME TABLE _t_new TO t
    RENAME TABLE _t_new TO t                   all that comes where the connector sends no DDL of what it leaves out

Where the feed has the shadow table's rows, each is a rename like any other. Where it does not, the rows are those of
the table before: its life goes on, and the ALTER of the shadow table is carried out on it. What cannot be proven to
have given the same rows holds the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cdc_assets import ddl
from cdc_assets.ddl.kept_columns import bare
from cdc_assets.history.lives import Lives, unchanged
from cdc_assets.history.policies import SchemaEffect, ways_out
from cdc_assets.history.recovery import Unrecoverable
from cdc_assets.model.names import fold_name
from cdc_assets.model.progress import Filling, Lack
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import SchemaFile, SentRows
from cdc_assets.model.table_history import (
    Changed,
    Created,
    Dropped,
    Event,
    Held,
    History,
    Recovered,
    Renamed,
    TableHistory,
)
from cdc_assets.model.tso import wall_clock_ms

_SHADOW, _FORMER = ("_gho", "_new"), ("_del", "_old")
_LONGEST_NAME = 64
_STAMP_DIGITS = 14
_OFFERED = ("apply", "skip", "rebuild")


def without_left_out(history: History) -> History:
    """Return the history without tables of which no row comes under any of their names: a connector leaves them out."""
    left_out = {
        life: table
        for life, table in history.lives.items()
        if all(event.file.sent is not None and event.file.sent.left_out for event in table.events)
    }
    lives = {life: table for life, table in history.lives.items() if life not in left_out}
    return replace(history, lives=lives, unneeded={**history.unneeded, **left_out}) if left_out else history


def take_place(lives: Lives, file: SchemaFile, statement: ddl.Rename) -> SchemaFile | None:
    """Carry out a rename by which a table without rows in the feed takes the place of the table that it is a copy of.

    Returns None for one, else the file of the rename: it says so (`Lack.LEFT_OUT`) where the table that gets a name may
    have rows outside the feed, though its connector's lists are not given.
    """
    name, old = file.table, TableId(statement.old.schema or file.table.schema, statement.old.table)
    if file.sent is None or old.folded == name.folded:
        return file
    shadow, table = lives.holder(old), _replaced(lives, name, old)
    if shadow is None:
        replaces = table is not None and table.name == name
    else:
        # Which rows came under the newest name of the shadow table, from when it got that to before the rename. A
        # name that it got in the same millisecond is a hop of a statement such as `a TO tmp, b TO a, tmp TO b`, which
        # has no rows: the name before counts.
        named = [
            (event, since)
            for event in shadow.events
            if event.name is not None
            and not (isinstance(event, Renamed) and wall_clock_ms(event.at) == wall_clock_ms(file.version))
            for _, since, until in shadow.names
            if since <= event.at < until
        ]
        event, since = named[-1] if named else (shadow.events[-1], shadow.names[-1][1])
        sent = event.file.sent or SentRows(True)
        outside = sent.first is not None and (
            sent.first >= file.version or (sent.captured is False and sent.first < since)
        )
        sent = replace(sent, first=None) if outside else sent
        replaces = sent.left_out or (sent == SentRows() and _is_shadow(old, name) and len(shadow.events) > 1)
    if replaces and table is not None and _go_on(lives, table, shadow, (file, old)):
        return None
    begun = file.sent.first is not None and file.sent.first < file.version
    some_came = shadow is not None and sent.captured is False and sent.first is not None
    lacks_rows = some_came or (shadow is not None and sent == SentRows() and begun)
    return replace(file, filling=Filling(Lack.LEFT_OUT)) if lacks_rows else file


def _replaced(lives: Lives, name: TableId, shadow: TableId) -> TableHistory | None:
    """Return the table that had a name until a shadow table gets it; by a tool it was renamed or dropped before."""
    table = lives.holder(name)
    if table is not None or not _is_shadow(shadow, name):
        return table
    for life in lives.holders.values():
        other = lives.tables[life]
        names = [table_name for table_name, *_ in other.names[-2:]]
        if len(names) > 1 and names[0].folded == name.folded and _is_former(names[1], name):
            return other
    try:
        return lives.tables[lives.gone.newest(name)]
    except Unrecoverable:
        return None


def _is_shadow(name: TableId, table: TableId) -> bool:
    """Return whether a tool gives this name to the copy of a table."""
    return _is_of_tool(name, table, _SHADOW)


def _is_former(name: TableId, table: TableId) -> bool:
    """Return whether a tool gives this name to a table that its copy replaces; gh-ost may write the time into it."""
    return _is_of_tool(name, table, _FORMER)


def _is_of_tool(name: TableId, table: TableId, endings: Sequence[str]) -> bool:
    text, table_text = fold_name(name.table), fold_name(table.table)
    ending = next((suffix for suffix in endings if text.endswith(suffix)), None)
    if ending is None or not text.startswith("_") or name.folded.schema != table.folded.schema:
        return False
    stem = text.removesuffix(ending)
    stamp = stem.rpartition("_")[2]
    if len(stamp) == _STAMP_DIGITS and stamp.isdigit():
        stem = stem[: -len(stamp) - 1]
    if len(name.table) == _LONGEST_NAME:  # a long name is cut
        return table_text.startswith(stem.lstrip("_")) and bool(stem.strip("_"))
    return stem.endswith(table_text) and not stem.removesuffix(table_text).strip("_")


# --- the table goes on ------------------------------------------------------------------------------------------------


def _go_on(lives: Lives, table: TableHistory, shadow: TableHistory | None, move: tuple[SchemaFile, TableId]) -> bool:
    """Let a table go on as its shadow table with that one's ALTER, or hold it; `move` is the rename and the old name.

    Returns False, with nothing done, where a person said that the rename is to be carried out as it is written.
    """
    file, old = move
    release = lives.rules.release(table.life, file.version)
    way, text = ("", "") if release is None else (release.way, release.text)
    if text and ddl.rename_pairs(text, file.table.schema):
        return False
    alter, doubt = ("", "its columns are not in the feed either") if shadow is None else _alter(table, shadow)
    meant = replace(file, query=text or alter, type=0, columns=(), by_text=True)
    if way in ("skip", "rebuild"):
        meant = replace(file, columns=bare((shadow or table).schema).columns, by_text=False)
    effect = lives.evolved(table, meant) if text or alter or not meant.by_text else SchemaEffect(table.schema)
    if not text and meant.by_text and not effect.reason and not doubt:
        doubt = ddl.copy_doubt(table.schema, effect.after, effect.changes, alter)
        if not doubt and shadow is not None and not effect.after.decodes_like(shadow.schema):
            doubt = "its columns are not those that its ALTER leads to"
    if doubt and way == "apply" and not text:
        return False
    if doubt and not way:
        reason = (
            f"{file.query}: {old} takes the name of {file.table}, and the feed does not have its rows, as the "
            f"connector leaves that table out. They may not be those of {file.table}: {doubt}."
        )
        bring = (
            f"let a connector that captures {old} too, with a new topic.prefix, bring the table by a snapshot, as a "
            "feed of its own; before the next such change add the tool's shadow tables to table.include.list"
        )
        event: Event = Held(*unchanged(table, file), reason, ways_out(file.table, file.version, _OFFERED, (bring,)))
    elif effect.reason:
        event = Held(*unchanged(table, file), effect.reason, effect.ways, release=effect.release)
    elif table.name == file.table and lives.holder(file.table) is not None:
        event = Changed(meant, table.schema, effect.after, file.table, effect.changes, release=effect.release)
    else:
        back = Renamed if table.name is not None else Recovered
        event = back(file, table.schema, effect.after, file.table, release=effect.release, hidden=effect.changes)
    if shadow is not None:
        lives.drop(old, replace(file, table=old, sent=shadow.events[-1].file.sent))
    lives.replace_with(table, file, replace(event, name=file.table))
    former = table.events[-1]
    if former.name is not None and former.name != file.table and former.file.sent and former.file.sent.captured:
        columns = bare(table.schema).columns  # its rows of then are not in it, but in the table that goes on
        lives.begin(replace(former.file, version=file.version, query="", type=0, columns=columns, by_text=False))
    return True


def _alter(table: TableHistory, shadow: TableHistory) -> tuple[str, str]:
    """Return the ALTER by which a shadow table differs from its table, and why it is not sure that it is a copy."""
    made, *altered = shadow.events
    since = [event for event in table.events if event.at > made.at and not isinstance(event, (Renamed, Dropped))]
    if not isinstance(made, Created) or not isinstance(ddl.statement(made.file), ddl.CreateTableStatement):
        return "", "its CREATE TABLE is not in the feed"
    if any(event.changes or event.hidden or isinstance(event, Held) for event in since):
        return "", "the table was changed by a DDL after that one was made"
    if not ddl.same_definition(table.schema, made.after):
        return "", "it was not made as a copy of the table"
    if not all(isinstance(event, Changed) for event in altered) or not altered:
        return "", "it was not altered, as the tools do" if not altered else "its own DDL cannot be followed"
    decisive = [event for event in altered if event.changes or event.before != event.after]
    if len(decisive) > 1:
        return "", "it was altered more than once"
    return (decisive or altered)[-1].file.query, ""
