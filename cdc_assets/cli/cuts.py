"""Commands about the past: cuts of all tables, tables as of a moment, changes between two."""

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
    decode_option,
    feed_options,
    feed_options_beside_name,
    lake_and_names,
    lake_options,
    opened,
    pairs,
    request_options,
    run_name,
    show_grid,
    show_json,
)
from cdc_assets.errors import BadSettings
from cdc_assets.model.tso import tso_time
from cdc_assets.model.wording import counted
from cdc_assets.operations.requests import ChangesRequest, NewCut

if TYPE_CHECKING:
    from cdc_assets.model.cuts import Cut

ENGINE_NAMES = ("spark", "trino", "duckdb", "pyiceberg")


@command(
    "cut",
    "Keep one state of all tables at one position, by a name.",
    "cut --name month-end",
    "cut --require-all",
    "cut --remove month-end",
    uses=("name",),
)
@request_options(NewCut)
@click.option("--who", default="", help="Who makes it, for the record.")
@click.option("--remove", metavar="NAME", help="Remove a cut, so that its snapshots may expire.")
@decode_option
@feed_options_beside_name
@lake_options(required=True)
@common_options
def cut(as_json: bool, debug: bool, request: NewCut, who: str, remove: str | None, **given: Any) -> int:
    """Make a cut: one state of all tables at one position, which any engine reads by its name.

    Tables are applied as far as there first. Those that are not exactly their source are absent from it, each with the
    reason, and the exit code is 1. `cdc-assets status --cuts` lists the cuts.
    """
    from cdc_assets.features.cuts.operations import make_cut, remove_cut

    if remove and request != NewCut():
        raise BadSettings("--remove is given alone: --name and --require-all are about a cut that is made.")
    with opened("A cut concerns", given) as pipeline:
        if remove:
            removed = remove_cut(pipeline, remove)
            if as_json:
                show_json({"removed": removed.name, "position": removed.at})
            else:
                click.echo(f"{removed.name} of {tso_time(removed.at)} is removed.")
            return DONE
        made = make_cut(pipeline, request.name, who, run_name(), whole=request.require_all)
    code = DONE if made.accepted else HELD
    if as_json:
        show_json(_as_json(pipeline.settings.name, made))
        return code
    heads = ("table", "snapshot", "applied through")
    show_grid(heads, [(table.name, table.snapshot_id, table.applied_ts) for table in made.taken])
    for table in made.tables:
        if reason := table.why_not or table.lacks:
            what = "without" if table.snapshot_id is None else "not exact"
            click.echo(f"{what} {table.name}: {reason}", err=bool(table.lacks))
    click.echo(f"{made.name}: {counted(len(made.taken), 'table')} as of {made.at} ({tso_time(made.at)})")
    return code


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
def as_of(as_json: bool, debug: bool, moment: str, tables: tuple[str, ...], engine: str | None, **given: Any) -> int:
    """Show each TABLE (default: all) as it was at a MOMENT, and the statements that read it.

    MOMENT is a TSO, a time such as 2026-01-31T13:45:00Z, or the name of a cut. Needs the lake only (--warehouse;
    --name for one changefeed of it) and reads metadata; starts no Spark.
    """
    from cdc_assets.operations.as_of import as_of as run
    from cdc_assets.operations.status import lake_cuts

    lake, names = lake_and_names(given)
    states, without = [], dict[str, str]()
    cuts = lake_cuts(lake) if len(names) > 1 else {}
    having = [name for name in names if moment in {cut.name for cut in cuts.get(name, ())}]
    for name in having or names:
        try:
            states.append(run(lake, name, moment, tables))
        except BadSettings as error:
            if len(names) == 1:
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


@command(
    "extract",
    "Write the changes of a table between two moments to a file.",
    "extract shop.orders --from 2026-03-30T00:00:00Z --to 2026-03-31T00:00:00Z --out ./changes",
)
@request_options(ChangesRequest)
@click.option("--out-option", multiple=True, metavar="NAME=VALUE", help="Passed to fsspec for --out.")
@feed_options
@lake_options(required=True)
@common_options
def extract(as_json: bool, debug: bool, request: ChangesRequest, out_option: tuple[str, ...], **given: Any) -> int:
    """Write the changes of TABLE after one moment and up to another: from its log, or decoded again from the feed.

    TABLE is a present name or an identity. Nothing of the lake or the feed is changed; no Spark is started.
    """
    from cdc_assets.io.storage_uri import display
    from cdc_assets.operations.change_files import extract_range

    with opened("An extract concerns", given) as pipeline:
        extraction, count = extract_range(pipeline, request, pairs(out_option, "--out-option"))
    if as_json:
        show_json({**extraction.description(), "rows": count, "file": f"changes.{request.format}"})
    else:
        rows = counted(count, "row" if request.net else "change")
        click.echo(
            f"{extraction.table}: {rows} after {extraction.since} and through {extraction.until}, from the "
            f"{extraction.source}"
        )
        if extraction.forgotten_through >= 0:
            click.echo(f"not in it: changes through {extraction.forgotten_through} of keys that were forgotten")
        for reason in extraction.lacks:
            click.echo(f"changes may be missing: {reason}", err=True)
        click.echo(f"written to {display(request.out)}: changes.{request.format}, extract.json")
    return DONE


def show_cuts(cuts: Mapping[str, Sequence[Cut]], as_json: bool) -> int:
    """Print the cuts of changefeeds, in JSON with their tables."""
    if as_json:
        show_json([_as_json(changefeed, cut) for changefeed, some in cuts.items() for cut in some])
        return DONE
    rows = [
        (
            changefeed,
            cut.name,
            cut.at,
            tso_time(cut.at),
            len(cut.taken),
            ", ".join(str(table.name) for table in cut.left_out),
        )
        for changefeed, some in cuts.items()
        for cut in some
    ]
    if rows:
        show_grid(("changefeed", "cut", "position", "its time", "tables", "without"), rows)
    else:
        click.echo("There is no cut.")
    return DONE


def _as_json(changefeed: str, made: Cut) -> dict[str, Any]:
    tables = [
        {
            **dataclasses.asdict(table),
            "name": str(table.name),
            "life": str(table.life),
            "kind": table.life.kind or "mirror",
        }
        for table in made.tables
    ]
    return {
        "changefeed": changefeed,
        "name": made.name,
        "position": made.at,
        "time": tso_time(made.at),
        "made": made.made,
        "exact": made.exact,
        "tables": tables,
    }
