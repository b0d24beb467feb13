"""Rows of lake tables for a first look: read by PyIceberg, with SQL by DuckDB on a copy of them, without a JVM."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from cdc_assets.errors import BadSettings
from cdc_assets.lake.lake_table import LakeTable
from cdc_assets.lake.scan import TableScan
from cdc_assets.lake.state import LakeState
from cdc_assets.model.progress import State
from cdc_assets.operations.named import is_called, known_names, left_out, no_such_table, renamed_text
from cdc_assets.operations.opening import open_state, read_ledger, refuse_missing
from cdc_assets.operations.status import changefeeds_of
from cdc_assets.settings.lake import LakeSettings

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from cdc_assets.settings.config import ChangefeedSettings


@dataclass(frozen=True, slots=True)
class QueriedRows:
    """Rows that a query returned, and the lake tables that it read, by their names in the source or in the lake.

    `more` says that the tables have more rows than were asked for.
    """

    rows: pa.Table
    tables: tuple[str, ...]
    more: bool = False


class _QueryTables:
    """The tables of a lake, of all its changefeeds, that have a name."""

    def __init__(self, lake: LakeSettings, changefeeds: Sequence[ChangefeedSettings], stack: ExitStack) -> None:
        refuse_missing(lake)
        self._lake, self._changefeeds = lake, changefeeds
        with read_ledger(lake) as ledger:
            names = changefeeds_of(lake, ledger.states())
        self._tables: list[tuple[LakeState, LakeTable]] = []
        for name in names:
            state = stack.enter_context(open_state(lake, name))
            self._tables += [(state, table) for table in state.tables().values() if table.name is not None]

    def named(self, text: str, *, short: bool = False) -> tuple[LakeState, LakeTable] | None:
        """Return the table of that name in the source or in the lake, or identity; with `short` also without schema.

        None for no table, and for a name that several tables have.
        """
        chosen = self._called(text)
        if short and not chosen:
            chosen = [(state, table) for state, table in self._tables if is_called(text, (table.identifier[-1],))]
        return chosen[0] if len(chosen) == 1 else None

    def _called(self, text: str) -> list[tuple[LakeState, LakeTable]]:
        """Return the tables that a text may mean: of several those of the settings' changefeeds, or so called here."""
        chosen = [
            (state, table)
            for state, table in self._tables
            if is_called(text, (table.name, table.life, _lake_name(table)))
        ]
        own = {changefeed.name for changefeed in self._changefeeds}
        chosen = [pair for pair in chosen if len(chosen) == 1 or pair[0].changefeed in own] or chosen
        return [pair for pair in chosen if len(chosen) == 1 or is_called(text, (_lake_name(pair[1]),))] or chosen

    @property
    def names(self) -> list[str]:
        """The names of the tables in the source."""
        return sorted(str(table.name) for _, table in self._tables)

    def absence(self, text: str) -> str:
        """Return the reason why no table has a name, "" for none.

        Several have it, or it has another one now, was dropped, stopped before it was made, or is left out by settings.
        """
        if alike := sorted(_lake_name(table) for _, table in self._called(text)):
            return f"{text} is the name of several tables: give the one that it has in the lake, {' or '.join(alike)}."
        with read_ledger(self._lake) as ledger:
            states = [state for of_feed in ledger.states().values() for state in of_feed]
            journals = [entry for feed in ledger.journals() for entry in ledger.journal(feed)]
        former = {entry.life for entry in journals if is_called(text, (entry.name,))}
        renamed = [
            table.name
            for _, table in self._tables
            if table.name is not None and (str(table.life) in former or is_called(text, (table.life.born_as,)))
        ]
        if renamed:
            return renamed_text(text, renamed)
        stopped = (state for state in states if state.state.stopped and is_called(text, (state.name, state.life)))
        for state in stopped:
            return f"{text} is {state.state.value} and not in the lake yet: {state.reason}"
        if any(state.state is State.DROPPED and is_called(text, (state.name, state.life)) for state in states):
            return f"{text} was dropped. Its rows lie aside until `cdc-assets purge`: see docs/upkeep.md."
        return left_out(text, self._changefeeds, self.names)


def _lake_name(table: LakeTable) -> str:
    return ".".join(table.identifier)


def first_rows(
    lake: LakeSettings, text: str, limit: int, changefeeds: Sequence[ChangefeedSettings] = ()
) -> QueriedRows:
    """Return the first rows of a table, in no order. Raises BadSettings for a table that is not there.

    `changefeeds` are those of the lake, as far as their settings are read: they may leave the table out.
    """
    with ExitStack() as stack:
        tables = _QueryTables(lake, changefeeds, stack)
        chosen = tables.named(text)
        if chosen is None:
            absence = tables.absence(text)
            raise BadSettings(absence) if absence else no_such_table(text, tables.names, "one of them, or SQL by --sql")
        state, table = chosen
        schema, pieces = _rows(state, table)
        read, count = list[pa.Table](), 0
        for piece in pieces:
            read.append(piece.slice(0, limit + 1 - count))
            count += read[-1].num_rows
            if count > limit:
                break
        rows = pa.concat_tables([schema.empty_table(), *read])
        return QueriedRows(rows.slice(0, limit), (str(table.name),), count > limit)


def selected_rows(lake: LakeSettings, sql: str, changefeeds: Sequence[ChangefeedSettings] = ()) -> QueriedRows:
    """Return the rows that a statement of DuckDB's SQL selects from the lake's tables.

    Tables are called as in the source (`shop.orders`), as in the lake (`lake.shop.orders`) or, where that is clear,
    without schema. Each is copied into a database of DuckDB for the time of the query, in memory or, as far as it does
    not fit there, on the temporary disk. `changefeeds` are as in `first_rows`. Raises BadSettings for SQL that DuckDB
    refuses, or that would change tables.
    """
    import duckdb

    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory())
        database = stack.enter_context(duckdb.connect(config={"temp_directory": place}))
        tables = _QueryTables(lake, changefeeds, stack)
        try:
            kinds = [statement.type.name for statement in database.extract_statements(sql)]
            if kinds != ["SELECT"]:
                raise BadSettings(
                    f"one SELECT is expected, but this is {', '.join(kinds) or 'empty'}. Rows of the lake are "
                    "changed by its changefeeds only."
                )
            # Names mean tables of the lake, never variables of this program.
            database.execute("SET python_enable_replacements = false; SET TimeZone = 'UTC'")
            database.execute(f"ATTACH ':memory:' AS {_quoted(lake.name)}; USE {_quoted(lake.name)}")
            read = dict[tuple[str, ...], str]()
            for name in _table_names(database, sql):
                name = name[1:] if name[0] == lake.name and len(name) > 2 else name
                chosen = tables.named(".".join(name), short=True)
                if chosen is not None and name not in read:
                    _copy(database, *chosen, name)
                    read[name] = str(chosen[1].name)
            rows = database.sql(sql).to_arrow_table()
            heads = [
                name if name not in rows.column_names[:at] else f"{name}_{at}"
                for at, name in enumerate(rows.column_names)
            ]
            return QueriedRows(rows.rename_columns(heads), tuple(dict.fromkeys(read.values())))
        except duckdb.CatalogException as error:
            missing = [".".join(name) for name in _table_names(database, sql) if tables.named(".".join(name)) is None]
            if absences := [absence for name in missing if (absence := tables.absence(name))]:
                raise BadSettings(" ".join(absences)) from None
            if qualified := next((name for name in missing if "." in name), ""):  # a short one may be of a WITH
                raise no_such_table(qualified, tables.names, "one of them") from None
            names_clause = known_names(missing[0] if missing else "", tables.names)
            raise BadSettings(f"{error} Of the lake's tables {names_clause}.") from None
        except duckdb.Error as error:
            raise BadSettings(f"DuckDB refuses the query: {error}") from None


def _copy(database: DuckDBPyConnection, state: LakeState, table: LakeTable, name: Sequence[str]) -> None:
    """Copy a table's rows into DuckDB, under the schema and name by which a query calls it."""
    schema, pieces = _rows(state, table)
    batches = (batch for piece in pieces for batch in piece.to_batches())
    database.register("rows_of_the_lake", pa.RecordBatchReader.from_batches(schema, batches))
    if len(name) > 1:
        database.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(name[-2])}")
    database.execute(f"CREATE TABLE {'.'.join(map(_quoted, name))} AS SELECT * FROM rows_of_the_lake")
    database.unregister("rows_of_the_lake")


def _table_names(database: DuckDBPyConnection, sql: str) -> list[tuple[str, ...]]:
    """Return the names of tables in a SELECT, each with its parts; those of its own WITH are among them."""
    (tree,) = database.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0]
    names, nodes = dict[tuple[str, ...], None](), [json.loads(tree)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict) and node.get("type") == "BASE_TABLE":
            names[tuple(filter(None, (node[f"{part}_name"] for part in ("catalog", "schema", "table"))))] = None
        nodes += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return list(names)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _rows(state: LakeState, table: LakeTable) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Return the Arrow schema of a table, and its rows piece by piece."""
    scan = TableScan(state, table, with_marked=True)  # as any other reader has them
    schema = scan.schema(list(scan.columns))
    pieces = scan.where("") if table.snapshot_id is not None else iter(())
    return schema, (piece.cast(schema) for piece in pieces)
