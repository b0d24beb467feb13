"""The command that shows records that were set aside, and replays them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from cdc_assets.cli.help import command
from cdc_assets.cli.options import (
    DONE,
    HELD,
    common_options,
    decode_option,
    feed_options,
    lake_and_names,
    lake_of,
    lake_options,
    show_json,
    target_of,
)
from cdc_assets.errors import BadSettings
from cdc_assets.model.wording import counted

if TYPE_CHECKING:
    from cdc_assets.settings.lake import LakeSettings


@command(
    "quarantine",
    "Records that were set aside; replay them once they fit.",
    "quarantine --warehouse ./lake",
    "quarantine --replay --table shop.orders --settings changefeeds.yaml",
    uses=("name",),
)
@feed_options
@lake_options(required=True)
@decode_option
@click.option("--replay", is_flag=True, help="Read the records again, after a fix, and merge what fits now.")
@click.option("--table", metavar="SCHEMA.TABLE", default="", help="One table (default: all).")
@click.option("--all", "closed", is_flag=True, help="Show replayed and purged records too.")
@common_options
def quarantine(as_json: bool, debug: bool, replay: bool, table: str, closed: bool, **options: Any) -> int:
    """Show the records that were set aside because they do not fit, or replay them.

    Showing them needs the lake only (--warehouse; --name for one changefeed of it); replaying them the changefeed too.
    """
    return _replay(as_json, table, options) if replay else _show_quarantine(as_json, table, closed, options)


def _show_quarantine(as_json: bool, table: str, closed: bool, options: dict[str, Any]) -> int:
    from cdc_assets.operations.named import is_called
    from cdc_assets.operations.status import quarantined_records
    from cdc_assets.report.as_json import record_json
    from cdc_assets.report.text import record_lines

    lake, names = lake_and_names(options)
    rows = [
        (name, row)
        for name in names
        for row in quarantined_records(lake, name, closed=closed)
        if not table or is_called(table, (row.table, row.life, row.life.born_as))
    ]
    is_open = any(row.state == "open" for _, row in rows)
    if not rows:
        _refuse_unknown(lake, [*names], table)
    if as_json:
        show_json([record_json(name, row) for name, row in rows])
    else:
        for _, row in rows:
            click.echo("\n".join(record_lines(row)))
        click.echo(counted(len(rows), "record") if rows else "Nothing is in quarantine.")
        if is_open:
            click.echo(
                "Correct the input, or the settings by which it is read. Then bring the records in: "
                "`cdc-assets quarantine --replay`, with the options of `apply`."
            )
    return HELD if is_open else DONE


def _refuse_unknown(lake: LakeSettings, names: Sequence[str], table: str) -> None:
    """Raise BadSettings where nothing was found because the lake has no such changefeed or table."""
    from cdc_assets.operations.named import is_called, no_such_table
    from cdc_assets.operations.opening import read_ledger

    with read_ledger(lake) as ledger:
        states = ledger.states()
    tables = {str(state.name) for name in names for state in states.get(name, ())}
    if states and not states.keys() & set(names):
        raise BadSettings(
            f"the lake has no changefeed called {names[0]}; known are {', '.join(sorted(states))}. Give --name."
        )
    if table and tables and not is_called(table, tables):
        raise no_such_table(table, tables, "a present name")


def _replay(as_json: bool, table: str, options: dict[str, Any]) -> int:
    from cdc_assets.features.quarantine.operations import replay
    from cdc_assets.operations.opening import open_pipeline

    target, code, replayed = target_of(options), DONE, []
    lake = lake_of(target)
    for settings in target.changefeeds:
        with open_pipeline(settings, lake) as pipeline:
            done = replay(pipeline, table)
        code = max(code, HELD if any(result.waiting for result in done) else DONE)
        replayed += [(settings.name, result) for result in done]
    if as_json:
        show_json(
            [
                {"changefeed": name, "table": str(o.table), "replayed": o.rows, "left": o.waiting, "reason": o.reason}
                for name, o in replayed
            ]
        )
        return code
    for _, result in replayed:
        click.echo(f"{result.table}: {counted(result.rows, 'record')} replayed, {result.waiting:,} still in quarantine")
        if result.reason:
            click.echo(f"  {result.reason}", err=True)
    if not replayed:
        click.echo("Nothing is in quarantine.")
    return code


COMMANDS = (quarantine,)
