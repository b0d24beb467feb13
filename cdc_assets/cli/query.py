"""The command that shows rows of the lake, and the line that names it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from cdc_assets.cli.help import command
from cdc_assets.cli.options import (
    DONE,
    common_options,
    lake_options,
    named_lake,
    plain_text,
    settings_option,
    show_grid,
    show_json,
    started_as,
)
from cdc_assets.errors import BadSettings
from cdc_assets.model.kinds import NOT_ASKED_FOR
from cdc_assets.model.layout import LIVING
from cdc_assets.model.progress import State
from cdc_assets.model.wording import counted

if TYPE_CHECKING:
    from cdc_assets.settings.lake import LakeSettings


@command(
    "query",
    "Rows of a table, or of an SQL query over the lake's tables.",
    "query shop.orders --warehouse ./lake",
    "query --sql 'SELECT count(*) FROM shop.orders' --settings changefeeds.yaml",
)
@click.argument("table", required=False)
@click.option("--sql", metavar="SELECT", help="A query of DuckDB's SQL instead: all its rows are shown.")
@click.option("--limit", type=click.IntRange(0), default=20, show_default=True, help="Rows of TABLE to show.")
@lake_options(required=True)
@settings_option
@common_options
def query(
    as_json: bool,
    debug: bool,
    table: str | None,
    sql: str | None,
    limit: int,
    warehouse: str | None,
    settings: str | None,
) -> int:
    """Show rows of TABLE, or what --sql selects from the lake's tables. Starts no Spark.

    Tables are called as in the source: shop.orders. A query reads a copy of the tables that it names, so give large
    ones to an engine: docs/query.md.
    """
    from cdc_assets.operations.query import first_rows, selected_rows

    if (table is None) == (sql is None):
        raise BadSettings(
            "one table or one query is expected: cdc-assets query shop.orders, or cdc-assets query --sql "
            "'SELECT count(*) FROM shop.orders'."
        )
    lake, loaded = named_lake(warehouse, settings)
    changefeeds = loaded.changefeeds if loaded is not None else ()
    if table is not None:
        result = first_rows(lake, table, limit, changefeeds)
    else:
        result = selected_rows(lake, sql or "", changefeeds)
    rows = result.rows.to_pylist()
    if as_json:
        show_json(rows)
    else:
        cells = [["NULL" if value is None else plain_text(value) for value in row.values()] for row in rows]
        show_grid(result.rows.column_names, cells)
        click.echo(f"{counted(len(rows), 'row')}{', and there are more: --limit NUMBER' if result.more else ''}")
    for line in _reservations(lake, result.tables):
        click.echo(line, err=True)
    return DONE


def _reservations(lake: LakeSettings, tables: Iterable[str]) -> list[str]:
    """Return the notes for readers of these tables: which are incomplete, held, lack records, keep deleted rows."""
    from cdc_assets.operations.status import lake_status

    lines = []
    for row in lake_status(lake):
        if row.table in tables:
            lines += [f"{row.table} is {row.incomplete}"] if row.incomplete else []
            lines += [f"{row.table} keeps deleted rows: add WHERE {LIVING}"] if row.marks_deletes else []
            lines += [f"{row.table}: {row.set_aside}"] if row.set_aside else []
            if row.state not in (State.APPLIED, State.DROPPED):
                reason = NOT_ASKED_FOR if row.state is State.FROZEN else row.reason
                lines.append(f"{row.table} is {row.state.value}, applied through {row.through_time}: {reason}")
    return lines


def query_line(lake: LakeSettings, settings: str | None, tables: Iterable[str]) -> str:
    """Return the line that says how to see rows of the first of these tables, "" if there is none."""
    table = min(tables, default="")
    place = f"--warehouse {shlex.quote(str(lake.local_directory))}" if lake.catalog_file is not None else ""
    place = f"--settings {shlex.quote(settings)}" if settings else place
    return f"See rows: {started_as()} query {shlex.quote(table)} {place}".rstrip() if table else ""
