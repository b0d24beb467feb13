"""Commands that maintain whole tables: rebuild them, maintain their files, purge dropped ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from cdc_assets.cli.help import command
from cdc_assets.cli.options import (
    DONE,
    HELD,
    common_options,
    confirm,
    decode_option,
    dry_run_option,
    feed_options,
    lake_of,
    lake_options,
    opened,
    request_options,
    run_name,
    show_grid,
    show_json,
    target_of,
    yes_option,
)
from cdc_assets.errors import BadSettings
from cdc_assets.model.wording import counted
from cdc_assets.operations.requests import MaintenanceRequest, RebuildRequest

if TYPE_CHECKING:
    from cdc_assets.operations.maintenance import MaintenanceResult
    from cdc_assets.operations.rebuild import TargetTable


@command(
    "rebuild",
    "Build tables anew from their whole history and swap them in.",
    "rebuild shop.orders --dry-run",
    "rebuild shop.orders",
    "rebuild --incomplete",
)
@request_options(RebuildRequest)
@dry_run_option
@yes_option
@decode_option
@feed_options
@lake_options(required=True)
@common_options
def rebuild(as_json: bool, debug: bool, request: RebuildRequest, dry_run: bool, yes: bool, **given: Any) -> int:
    """Rebuild each TABLE from its whole history, aside, and swap it in one commit.

    TABLE is a present name or an identity, as `plan` and `status` show them; tables that exchanged partitions are
    rebuilt together. Refused, with nothing changed, if files are missing, a table is held or records do not fit. Asks
    first where repairs would be lost or forgotten rows would come back.
    """
    from cdc_assets.lake.swap import Rebuilds
    from cdc_assets.operations.rebuild import rebuild as run
    from cdc_assets.operations.rebuild import rebuild_targets, requested_tables

    request.check()
    with opened("A rebuild concerns", given) as pipeline:
        targets = requested_tables(pipeline, request)
        if targets is None:
            return _nothing_to_import(as_json)
        if dry_run:
            return _show_targets(rebuild_targets(pipeline, targets), as_json)
        done = run(
            pipeline,
            Rebuilds(pipeline.lake),
            targets,
            run_name(),
            (lambda text: None) if as_json else lambda text: click.echo(text, err=True),
            lambda losses: confirm(f"{losses}\nRebuild all the same?", yes),
        )
    rows = [(str(table.life), str(table.name or "dropped"), table.through, table.result.seconds) for table in done]
    heads = ("table", "name", "through", "swap_seconds")
    if as_json:
        show_json([dict(zip(heads, row, strict=True)) for row in rows])
    else:
        show_grid(heads, [(*row[:3], f"{row[3]:.2f}") for row in rows])
    return DONE


def _show_targets(targets: Sequence[TargetTable], as_json: bool) -> int:
    """Print the tables that a rebuild would build and swap."""
    names = [str(target.name or "dropped") for target in targets]
    if as_json:
        show_json(
            [
                {"table": str(t.life), "name": name, "steps": t.steps, "file_bytes": t.file_bytes, "loss": t.loss}
                for t, name in zip(targets, names, strict=True)
            ]
        )
    else:
        rows = [(t.life, name, t.steps, f"{t.file_bytes:,}") for t, name in zip(targets, names, strict=True)]
        show_grid(("table", "name", "steps", "changed bytes"), rows)
        for target in targets:
            if target.loss:
                click.echo(f"cannot be undone: {target.life}: {target.loss}")
        click.echo(f"{counted(len(rows), 'table')} would be rebuilt; nothing was changed.")
    return DONE


def _nothing_to_import(as_json: bool) -> int:
    if as_json:
        show_json([])
    else:
        click.echo("no incomplete table is in a dump: nothing is to be imported", err=True)
    return DONE


@command(
    "maintain",
    "Compact files, expire snapshots, remove orphans: what is due.",
    "maintain --dry-run",
    "maintain shop.orders",
)
@request_options(MaintenanceRequest)
@feed_options
@lake_options(required=True)
@common_options
def maintain(as_json: bool, debug: bool, request: MaintenanceRequest, **given: Any) -> int:
    """Compact files, rewrite manifests, expire snapshots, remove orphan files: what is due and nothing else.

    Default: all tables. When something is due, and what is kept, is in the settings (maintenance).
    """
    from cdc_assets.operations.maintenance import maintain as run
    from cdc_assets.operations.opening import open_pipeline

    target = target_of(given)
    lake, code, results = lake_of(target), DONE, []
    for settings in target.changefeeds:
        with open_pipeline(settings, lake) as pipeline:
            upkept = run(pipeline, int(time.time() * 1000), request.tables, request.dry_run)
        code = max(code, DONE if upkept.complete else HELD)
        if as_json:
            results.append({"changefeed": settings.name, **_figures(upkept)})
        else:
            _show(upkept, request.dry_run)
    if as_json:
        show_json(results)
    return code


@command(
    "purge",
    "Remove dropped tables and their files for good.",
    "purge --all --days 30 --dry-run",
    "purge shop.orders --yes",
)
@click.argument("tables", nargs=-1, metavar="[TABLE]…")
@click.option("--all", "every", is_flag=True, help="All dropped tables.")
@click.option("--days", type=click.FloatRange(min=0), metavar="N", help="Only tables dropped at least N days ago.")
@dry_run_option
@yes_option
@feed_options
@lake_options(required=True)
@common_options
def purge(
    as_json: bool,
    debug: bool,
    tables: tuple[str, ...],
    every: bool,
    days: float | None,
    dry_run: bool,
    yes: bool,
    **given: Any,
) -> int:
    """Remove each dropped TABLE and its files for good: RECOVER TABLE cannot bring it back afterwards.

    TABLE is a former name or an identity. A table that a planned step still needs is kept.
    """
    from cdc_assets.model.tso import tso_time
    from cdc_assets.operations.purge import purge as run

    if bool(tables) == every:
        raise BadSettings("Name the dropped tables to remove, or give --all.")
    before_ms = int((time.time() - days * 86_400) * 1000) if days else None
    with opened("A purge concerns", given) as pipeline:
        dropped_tables = run(pipeline, pipeline.lake, run_name(), tables, before_ms, dry=True)
        gone = [str(table.life) for table in dropped_tables if not table.kept]
        feed = pipeline.settings.name
        if gone and not dry_run:
            confirm(f"Remove {', '.join(gone)} with all files?", yes)
            dropped_tables = run(pipeline, pipeline.lake, run_name(), tables, before_ms)
    heads = ("changefeed", "table", "kind", "name", "dropped", "kept")
    rows = [
        (feed, str(table.life), table.life.kind or "mirror", str(table.name), tso_time(table.dropped), table.kept)
        for table in dropped_tables
    ]
    if as_json:
        show_json([dict(zip(heads, row, strict=True)) for row in rows])
    elif rows:
        show_grid(heads, rows)
    else:
        click.echo("No dropped table is to be removed.")
    return HELD if any(table.kept for table in dropped_tables) else DONE


def _figures(upkept: MaintenanceResult) -> dict[str, Any]:
    return {
        "tables": {table.before.table: table.figures() for table in upkept.tables},
        "idle": upkept.idle,
        "stages_removed": upkept.stages,
        "rebuild_tables_removed": upkept.aside,
        **{f"{what}_removed": names for what, names in upkept.removed.items()},
        **(upkept.landing.figures() if upkept.landing is not None else {}),
        **({"landing_due": asdict(upkept.landing_due)} if upkept.landing_due else {}),
    }


def _show(upkept: MaintenanceResult, dry_run: bool) -> None:
    from cdc_assets.operations.maintenance import MOVE_HEADS

    heads = ("table", "due" if dry_run else "done", *MOVE_HEADS, "orphans")
    rows = [(table.before.table, str(table.due), *table.moves, table.orphans) for table in upkept.tables]
    if rows:
        show_grid(heads, rows)
    if upkept.idle or not rows:
        click.echo(f"Nothing is due for {counted(upkept.idle, 'table')}.")
    if landing := upkept.landing or upkept.landing_due:
        click.echo(f"{landing}.")
    for what, names in upkept.removed.items():
        if names:
            click.echo(f"{counted(len(names), what.removesuffix('s'))} {'to remove' if dry_run else 'removed'}.")
    for table in upkept.tables:
        if table.problem:
            click.echo(f"{table.before.table}: {table.problem}", err=True)
