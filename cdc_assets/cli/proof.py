"""Commands that prove what the lake has: tables compared with their source, and where a row comes from."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from cdc_assets.cli.help import command
from cdc_assets.cli.options import (
    DONE,
    HELD,
    common_options,
    feed_options,
    lake_of,
    lake_options,
    opened,
    pairs,
    request_options,
    run_name,
    show_json,
    target_of,
)
from cdc_assets.errors import BadSettings
from cdc_assets.model.wording import counted
from cdc_assets.operations.requests import VerifyRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc_assets.model.comparison import TableComparison
    from cdc_assets.model.schema import TableId
    from cdc_assets.settings.config import ChangefeedSettings
    from cdc_assets.sources import InitialSource


@command(
    "verify",
    "Compare tables with their source, row by row; repair them.",
    "verify shop.orders --source mysql://reader@tidb:4000 --password-env TIDB_PASSWORD",
    "verify --sample 1%",
    "verify shop.orders --repair",
)
@request_options(VerifyRequest)
@click.option("--source", metavar="URI", help="The server that has the tables: mysql://user@host:4000.")
@click.option("--password-env", metavar="NAME", help="Environment variable that has the password of --source.")
@click.option(
    "--dump", "dump_uri", metavar="URI", help="Compare with a dump instead, for tables that stand at its TSO."
)
@click.option(
    "--dump-option",
    "dump_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Details of --dump: at, tz, separator, delimiter, null-value, escape-backslash, dialect, header.",
)
@click.option("--threads", type=click.IntRange(1, 64), help="Connections that read the source at once (default: 4).")
@click.option("--limit-rate", type=click.IntRange(1), metavar="ROWS", help="Rows a second that are read of the source.")
@click.option("--shown", type=click.IntRange(0), metavar="ROWS", help="Rows of a table to name (default: 100).")
@feed_options
@lake_options(required=True)
@common_options
def verify(as_json: bool, debug: bool, request: VerifyRequest, **given: Any) -> int:
    """Compare each TABLE with its source, row by row: the source as it was at the TSO through which it is applied.

    A TiDB is read as of the fence; any other server as it is now, with --quiet. Reads only, unless --repair says
    otherwise. Exits with 1 where a table is different or could not be compared.
    """
    from cdc_assets.features.verification.operations import options_of
    from cdc_assets.features.verification.operations import verify as run
    from cdc_assets.features.verification.report import comparison_json, comparison_lines, summary_line
    from cdc_assets.model.comparison import EQUAL, REPAIRED
    from cdc_assets.operations.opening import open_pipeline, refuse_missing

    target = target_of(given)
    lake, code, printed = lake_of(target), DONE, []
    for settings in target.changefeeds:
        connect, chosen = _other_side(settings, given), request.tables or settings.verify.tables
        comparisons: list[TableComparison] = []
        overrides = {"threads": given["threads"], "rows_per_second": given["limit_rate"], "shown": given["shown"]}
        stated = {name: value for name, value in overrides.items() if value is not None}
        options = options_of(settings.verify.model_copy(update=stated), request, run_name())
        refuse_missing(lake)
        with open_pipeline(settings, lake) as pipeline:
            for table in run(pipeline, pipeline.lake, connect, options, chosen, say=_progress(as_json)):
                comparisons.append(table)
                if not as_json:
                    click.echo("\n".join(comparison_lines(table)))
        code = max(code, DONE if all(table.state in (EQUAL, REPAIRED) for table in comparisons) else HELD)
        if not as_json:
            click.echo(summary_line(comparisons))
        printed += [comparison_json(settings.name, table) for table in comparisons]
    if request.tables and not printed:
        raise BadSettings(
            f"no table is called like {', '.join(request.tables)}. Give names, identities or patterns of tables."
        )
    if as_json:
        show_json(printed)
    return code


def _other_side(settings: ChangefeedSettings, given: dict[str, Any]) -> Callable[[int], InitialSource]:
    """Return what opens the source, or the dump, that the options or the settings name."""
    from cdc_assets.features.dumps.settings import InitialSettings, ServerAddress, initial_from_flags

    if given["source"] and given["dump_uri"]:
        raise BadSettings("--source and --dump exclude each other: tables are compared with one of them.")
    if given["dump_uri"]:
        options = pairs(given["dump_options"], "--dump-option")
        (dump,) = InitialSettings(**initial_from_flags([given["dump_uri"]], options)).connect(settings.storage_options)
        return lambda at: dump
    password = {"env": given["password_env"]} if given["password_env"] else {}
    server = ServerAddress(uri=given["source"], password=password) if given["source"] else settings.verify.server
    return server.open


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
    as_json: bool, debug: bool, table: str, key: tuple[str, ...], since: str, until: str | None, **given: Any
) -> int:
    """Show where the row of TABLE with this KEY comes from: its changes in the input, DDL in between, runs.

    KEY are its values in the order of the key, as MySQL prints them; x'…' for binary ones,
    TIMESTAMP in UTC. Reads only: the input that
    is still there and may have changes of the time asked for.
    """
    from cdc_assets.operations.explain import explain as run
    from cdc_assets.operations.moments import position_of
    from cdc_assets.report.explanation import explanation_json, explanation_lines

    with opened("A row is of", given, is_there=True) as pipeline:
        moments = (position_of(pipeline, text) for text in (since, until) if text is not None)
        explanation = run(pipeline, pipeline.lake, table, key, *moments)
    if as_json:
        show_json(explanation_json(pipeline.settings.name, explanation))
    else:
        for line in explanation_lines(explanation):
            click.echo(line)
    return DONE


_SECONDS = 5.0
"""Seconds between two lines of progress of one table."""


def _progress(as_json: bool) -> Callable[[TableId, str, int], None]:
    """Return what says, on the error stream, how many rows of each side were read."""
    rows: dict[tuple[TableId, str], int] = {}
    newest = [time.monotonic()]

    def say(table: TableId, side: str, more: int) -> None:
        rows[table, side] = rows.get((table, side), 0) + more
        if not as_json and time.monotonic() - newest[0] >= _SECONDS:
            newest[0] = time.monotonic()
            click.echo(f"{table}: {counted(rows[table, side], 'row')} of the {side}", err=True)

    return say
