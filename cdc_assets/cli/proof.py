"""The command that shows where a row comes from."""

from __future__ import annotations

from typing import Any

import click

from cdc_assets.cli.help import command
from cdc_assets.cli.options import (
    DONE,
    common_options,
    feed_options,
    lake_options,
    opened,
    show_json,
)


@command(
    "explain",
    "Where a row comes from: its changes, DDL and runs.",
    "explain shop.orders 4711",
    "explain shop.orders 4711 --since 2026-03-30T00:00:00Z",
)
@click.argument("table")
@click.argument("key", nargs=-1, required=True, metavar="KEY…")
@click.option("--since", default="0", metavar="MOMENT", help="Show changes after this TSO, time or cut only.")
@click.option("--until", metavar="MOMENT", help="Show changes up to this TSO, time or cut only.")
@feed_options
@lake_options(required=True)
@common_options
def explain(
    as_json: bool, debug: bool, table: str, key: tuple[str, ...], since: str, until: str | None, **arguments: Any
) -> int:
    """Show where the row of TABLE with this KEY comes from: its changes in the input, DDL in between, runs.

    KEY are its values in the order of the key, as MySQL prints them; x'…' for binary ones,
    TIMESTAMP in UTC. Reads only: the input that
    is still there and may have changes of the time asked for.
    """
    from cdc_assets.operations.explain import explain as run
    from cdc_assets.operations.moments import position_of
    from cdc_assets.report.explanation import explanation_json, explanation_lines

    with opened("A row is of", arguments, is_there=True) as pipeline:
        moments = (position_of(pipeline, text) for text in (since, until) if text is not None)
        explanation = run(pipeline, pipeline.lake, table, key, *moments)
    if as_json:
        show_json(explanation_json(pipeline.settings.name, explanation))
    else:
        for line in explanation_lines(explanation):
            click.echo(line)
    return DONE
