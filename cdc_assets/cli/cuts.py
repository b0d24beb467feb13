"""Tables as of a moment, and cuts of all tables listed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from cdc_assets.cli.help import command
from cdc_assets.cli.options import (
    DONE,
    HELD,
    common_options,
    feed_options,
    lake_and_names,
    lake_options,
    show_grid,
    show_json,
)
from cdc_assets.errors import BadSettings
from cdc_assets.model.tso import tso_time

if TYPE_CHECKING:
    from cdc_assets.model.cuts import Cut

ENGINE_NAMES = ("spark", "trino", "duckdb", "pyiceberg")


@command(
    "as-of",
    "Tables as they were at a moment, with statements to read them.",
    "as-of 2026-03-31T10:00:00Z --warehouse ./lake",
    "as-of month-end shop.orders --engine duckdb",
    flags="none",
    uses=("name",),
)
@click.argument("moment")
@click.argument("tables", nargs=-1, metavar="[TABLE]…")
@click.option("--engine", type=click.Choice(ENGINE_NAMES), help="Show the statements of one engine.")
@feed_options
@lake_options(required=True)
@common_options
def as_of(
    as_json: bool, debug: bool, moment: str, tables: tuple[str, ...], engine: str | None, **arguments: Any
) -> int:
    """Show each TABLE (default: all) as it was at a MOMENT, and the statements that read it.

    MOMENT is a TSO, a time such as 2026-01-31T13:45:00Z, or the name of a cut. Needs the lake only (--warehouse;
    --name for one changefeed of it) and reads metadata; starts no Spark.
    """
    from cdc_assets.operations.as_of import as_of as run
    from cdc_assets.operations.status import lake_cuts

    lake, feeds = lake_and_names(arguments)
    states, without = [], dict[str, str]()
    cuts = lake_cuts(lake) if len(feeds) > 1 else {}
    having = [name for name in feeds if moment in {cut.name for cut in cuts.get(name, ())}]
    for name in having or feeds:
        try:
            states.append(run(lake, name, moment, tables, settings=feeds[name]))
        except BadSettings as error:
            if len(feeds) == 1:
                raise
            without[name] = error.message
    if not states:
        raise BadSettings(" ".join(f"{name}: {message}" for name, message in without.items()))
    for name, message in without.items():
        click.echo(f"{name}: {message}", err=True)
    if as_json:
        show_json([{**dataclasses.asdict(state), "exact": state.exact} for state in states])
        return DONE if all(state.accepted for state in states) else HELD
    for state in states:
        heads = ("table", "exact", "stands at", "its time", "snapshot")
        cells = [
            (table.table, "yes" if table.exact else "no", table.position, table.position_time) for table in state.tables
        ]
        rows = [(*cell, table.snapshot_id) for cell, table in zip(cells, state.tables, strict=True)]
        show_grid(heads, [["" if cell is None else cell for cell in row] for row in rows])
        for table in state.tables:
            if table.reason:
                click.echo(f"{table.table}: {table.reason}", err=True)
            if table.converted:
                types = ", ".join(f"{column} ({text} then)" for column, text in table.converted.items())
                click.echo(f"{table.table}: shown in the type that they have now: {types}", err=True)
        for name in [engine] if engine else ENGINE_NAMES:
            click.echo(f"\n-- {name}\n{state.connect[name]}")
            for table in state.tables:
                if name in table.read:
                    click.echo(f"{table.read[name]}{'' if name == 'pyiceberg' else ';'}")
        click.echo(f"\nas of {state.at} ({state.time})")
    return DONE if all(state.accepted for state in states) else HELD


def show_cuts(cuts: Mapping[str, Sequence[Cut]], as_json: bool) -> int:
    """Print the cuts of changefeeds, in JSON with their tables."""
    if as_json:
        from cdc_assets.features.cuts.operations import cut_json

        show_json([cut_json(changefeed, cut) for changefeed, some in cuts.items() for cut in some])
        return DONE
    rows = [
        (
            changefeed,
            cut.name,
            cut.at,
            tso_time(cut.at),
            len(cut.taken),
            *(", ".join(str(table.name) for table in tables) for tables in (cut.inexact, cut.left_out)),
        )
        for changefeed, some in cuts.items()
        for cut in some
    ]
    if rows:
        show_grid(("changefeed", "cut", "position", "its time", "tables", "inexact", "without"), rows)
    else:
        click.echo("There is no cut.")
    return DONE
