"""Commands about the past: cuts of all tables."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from cdc_assets.cli.options import (
    DONE,
    common_options,
    feed_options_beside_name,
    lake_of,
    lake_options,
    show_grid,
    show_json,
    target_of,
)
from cdc_assets.errors import BadSettings
from cdc_assets.model.tso import tso_time
from cdc_assets.model.wording import counted

if TYPE_CHECKING:
    from cdc_assets.model.cuts import Cut

__all__ = ["cut", "show_cuts"]


@click.command()
@click.option("--name", "cut_name", metavar="NAME", default="", help="Name of the cut, and tag of its snapshots.")
@click.option(
    "--without",
    multiple=True,
    metavar="TABLE",
    help="Leave out a table by name, identity or pattern, such as one that is held or incomplete.",
)
@click.option("--who", default="", help="Who makes it, for the record.")
@click.option("--remove", metavar="NAME", help="Remove a cut, so that its snapshots may expire.")
@feed_options_beside_name
@lake_options(required=True)
@common_options
def cut(
    as_json: bool, debug: bool, cut_name: str, without: tuple[str, ...], who: str, remove: str | None, **given: Any
) -> int:
    """Make a cut: one state of all tables at one position, which any engine reads by its name.

    Tables are applied as far as there first. `cdc-assets status --cuts` lists the cuts.
    """
    from cdc_assets.operations.cuts import make_cut, remove_cut
    from cdc_assets.operations.opening import open_pipeline

    target = target_of(given)
    lake = lake_of(target)
    if len(target.changefeeds) != 1:
        raise BadSettings("A cut concerns one changefeed. Name it with --changefeed NAME.")
    if remove and (cut_name or without):
        raise BadSettings("--remove is given alone: --name and --without are about a cut that is made.")
    settings = target.changefeeds[0]
    with open_pipeline(settings, lake) as pipeline:
        if remove:
            request = remove_cut(pipeline, remove)
            if as_json:
                show_json({"removed": request.name, "position": request.at})
            else:
                click.echo(f"{request.name} of {tso_time(request.at)} is removed.")
            return DONE
        made = make_cut(pipeline, cut_name, without, who, f"cli-{uuid.uuid4().hex[:12]}")
    if as_json:
        show_json(_as_json(settings.name, made))
        return DONE
    heads = ("table", "snapshot", "applied through")
    show_grid(heads, [(one.name, one.snapshot_id, one.applied_ts) for one in made.taken])
    for one in made.left_out:
        click.echo(f"without {one.name}: {one.why_not}")
    click.echo(f"{made.name}: {counted(len(made.taken), 'table')} as of {made.at} ({tso_time(made.at)})")
    return DONE


def show_cuts(cuts: Mapping[str, Sequence[Cut]], as_json: bool) -> int:
    """Print the cuts of changefeeds, in JSON with their tables."""
    if as_json:
        show_json([_as_json(changefeed, one) for changefeed, some in cuts.items() for one in some])
        return DONE
    rows = [
        (one.name, one.at, tso_time(one.at), len(one.taken), ", ".join(str(left.name) for left in one.left_out))
        for some in cuts.values()
        for one in some
    ]
    if rows:
        show_grid(("cut", "position", "its time", "tables", "without"), rows)
    else:
        click.echo("There is no cut.")
    return DONE


def _as_json(changefeed: str, made: Cut) -> dict[str, Any]:
    tables = [
        {**dataclasses.asdict(one), "name": str(one.name), "life": str(one.life), "snapshot_id": one.snapshot_id}
        for one in made.tables
    ]
    return {
        "changefeed": changefeed,
        "name": made.name,
        "position": made.at,
        "time": tso_time(made.at),
        "made": made.made,
        "tables": tables,
    }
