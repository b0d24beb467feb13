"""Find the table that a person names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from cdc_assets.errors import BadSettings
from cdc_assets.model.kinds import NOT_ASKED_FOR
from cdc_assets.model.names import fold_name
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.wording import counted

if TYPE_CHECKING:
    from cdc_assets.model.table_history import TableHistory
    from cdc_assets.planning.plan import Plan
    from cdc_assets.settings.config import ChangefeedSettings

_MOST_NAMES = 12
"""Most tables of which a message names all."""


def is_called(text: str, names: Iterable[Life | TableId | str | None]) -> bool:
    """Return whether a person's text is one of the names (`schema.table`) or identities (`schema.table@version`).

    Names that differ in letter case only are the same table, as in TiDB. None is not a name.
    """
    return fold_name(text) in {fold_name(str(name)) for name in names if name is not None}


def no_such_table(
    text: str, names: Iterable[TableId | str | None], expected: str = "a name or an identity"
) -> BadSettings:
    """Return the error for a text that is no table's, with the present names of the tables and what is `expected`."""
    return BadSettings(f"no table is called {text}; {known_names(text, names)}. Give {expected}.")


def left_out(text: str, changefeeds: Iterable[ChangefeedSettings], names: Iterable[TableId | str | None]) -> str:
    """Return the sentence that the settings of all changefeeds leave a table out, "" where those of one do not.

    `names` are those of the lake's tables.
    """
    lines = {changefeed.name: changefeed.tables.line_without(text) for changefeed in changefeeds}
    if not lines or "" in lines.values():
        return ""
    of_feeds = " and ".join(f"of the changefeed {name} ({line})" for name, line in lines.items())
    return f"{text} is not in the lake: the setting tables {of_feeds} leaves it out; {known_names(text, names)}."


def not_in_plan(text: str, planned: Plan, tables: Iterable[TableHistory]) -> BadSettings:
    """Return the error for a text that is none of these tables of a plan: a former name, or left out by settings."""
    for life, table in planned.sources.items():
        if life not in planned.history.lives and is_called(text, (table.name, life)):
            if life in planned.idle:
                return BadSettings(f"{text} is frozen: {NOT_ASKED_FOR}")
            beside = any(other.source == life for other in planned.history.lives)
            only = "has no mirror, only history tables" if beside else "is left out by the setting tables"
            return BadSettings(
                f"{text} {only}: the lake does not have its rows as the source has them. "
                + ("Set mirror: true for it in the setting history." if beside else "Include it there.")
            )
    tables = list(tables)
    renamed = [table.name for table in tables if table.name and is_called(text, (name for name, _, _ in table.names))]
    if renamed:
        return BadSettings(renamed_text(text, renamed))
    return no_such_table(text, (table.name for table in tables))


def renamed_text(text: str, names: Iterable[TableId]) -> str:
    """Return the sentence on a former name of tables; `names` are those that they have now."""
    return f"{text} is called {' or '.join(sorted(map(str, names)))} now. Give that name."


def known_names(text: str, names: Iterable[TableId | str | None]) -> str:
    """Return a clause with the names that exist: all of a few, of many those most like a text that is none of them."""
    sorted_names = sorted({str(name) for name in names if name is not None})
    if len(sorted_names) <= _MOST_NAMES:
        return f"known are {', '.join(sorted_names) or 'none'}"
    by_fold = {fold_name(name): name for name in sorted_names}
    alike = [by_fold[name] for name in get_close_matches(fold_name(text), by_fold, n=3, cutoff=0.6)]
    nearest = f"nearest are {', '.join(alike)}" if len(alike) > 1 else f"nearest is {alike[0]}" if alike else ""
    count = counted(len(sorted_names), "table")
    return f"{nearest}, of {count}" if nearest else f"none of the {count} is called alike (`status` lists them)"


def mirrors(planned: Plan) -> dict[Life, TableHistory]:
    """Return the tables with a name of which the lake has the rows as the source has them: no history tables."""
    return {life: table for life, table in planned.history.lives.items() if not life.kind and table.name is not None}


def table_called(text: str, tables: Mapping[Life, TableHistory], planned: Plan) -> TableHistory:
    """Return the table of a plan that a person means: by present name, by identity, or by a dropped one's last.

    Raises BadSettings for a text that means none or several of them.
    """
    all_tables = tables.values()
    matches = [table for table in all_tables if is_called(text, (table.name,))] or [
        table for table in all_tables if is_called(text, (table.life,))
    ]
    matches = matches or [table for table in all_tables if is_called(text, (table.last_name,))]
    if not matches:
        for life, table in planned.history.lives.items():
            if life.kind and is_called(text, (table.name, life)):
                of = planned.sources.get(life.source)
                source = life.born_as if of is None else of.last_name or life.born_as
                raise BadSettings(f"{text} is a history table; expected the table whose changes it has. Give {source}.")
        raise not_in_plan(text, planned, all_tables)
    if len(matches) > 1:
        lives = ", ".join(str(table.life) for table in matches)
        raise BadSettings(f"{text} was the name of several tables: {lives}. Give one of these.")
    return matches[0]
