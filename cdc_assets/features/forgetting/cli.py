"""The command that forgets rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cdc_assets.cli.help import command
from cdc_assets.cli.options import (
    DONE,
    HELD,
    common_options,
    confirm,
    dry_run_option,
    feed_options,
    lake_options,
    opened,
    request_options,
    run_name,
    show_grid,
    show_json,
    yes_option,
)
from cdc_assets.errors import BadSettings
from cdc_assets.model.wording import counted
from cdc_assets.operations.requests import ForgetRequest

if TYPE_CHECKING:
    from cdc_assets.model.forgetting import SearchedFiles
    from cdc_assets.model.progress import Life


@command(
    "forget",
    "Take rows out of everything that the lake has, with proof.",
    "forget shop.users 4711 --dry-run",
    "forget shop.users 4711 --until forever",
    "forget shop.users --keys keys.csv --yes",
)
@request_options(ForgetRequest)
@click.argument("key", nargs=-1, metavar="[KEY]…")
@click.option(
    "--keys",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of keys: CSV without heading, a key in each line.",
)
@dry_run_option
@yes_option
@feed_options
@lake_options(required=True)
@common_options
def forget(
    as_json: bool,
    debug: bool,
    request: ForgetRequest,
    key: tuple[str, ...],
    file: Path | None,
    dry_run: bool,
    yes: bool,
    **given: Any,
) -> int:
    """Take the row of TABLE with this KEY out of everything that the lake has, and prove that it is gone.

    KEY are its values in the order of the key, as MySQL prints them; x'…' for binary ones,
    TIMESTAMP in UTC. Files that have it are replaced, and snapshots expire, of history tables, too; cuts stay unless
    you let them go (--remove-cuts). Refused while input that has it is not applied, unless it is kept out by --until.
    """
    from cdc_assets.features.forgetting.lake import LakeForgetting
    from cdc_assets.features.forgetting.operations import abandon as end_abandoned
    from cdc_assets.features.forgetting.operations import find_rows
    from cdc_assets.features.forgetting.operations import forget as run
    from cdc_assets.features.forgetting.operations_keep_out import let_in, parse_until
    from cdc_assets.features.forgetting.report import forget_json, forget_lines
    from cdc_assets.operations.keys import parse_keys

    request.check_keys(bool(key) + (file is not None), "the values of a key behind TABLE, a file of keys with --keys")
    table, undo, abandon = request.table, request.undo, request.abandon
    if dry_run and (undo or abandon):
        raise BadSettings("--dry-run shows where rows of keys are. Give it with a key or with --keys.")
    keys = [list(key)] if file is None else parse_keys(file.read_bytes(), str(file))
    if abandon:
        confirm(f"Forget that runs on {table} were broken off, though rows of their keys may be left?", yes)
    elif not undo and not dry_run:
        cuts = ", and remove the cuts that have them" if request.remove_cuts else ""
        confirm(f"Take the rows of {counted(len(keys), 'key')} out of {table}, its history and files{cuts}?", yes)
    me = run_name()
    with opened("A row is of", given, is_there=True) as pipeline:
        if undo:
            ended = let_in(pipeline, table, undo, me)
            if as_json:
                show_json({"name": ended.name, "table": str(ended.table), "keys": len(ended.digests)})
            else:
                click.echo(f"{undo}: {counted(len(ended.digests), 'key')} of {ended.table} let in from now on")
                click.echo("  what was left out comes with a rebuild")
            return DONE
        if abandon:
            left = end_abandoned(pipeline, LakeForgetting(pipeline.lake), table, me)
            if as_json:
                show_json(
                    [
                        {"table": abandoned_run.table, "keys": abandoned_run.keys, "began": abandoned_run.since}
                        for abandoned_run in left
                    ]
                )
            for abandoned_run in () if as_json else left:
                click.echo(
                    f"{abandoned_run.table}: {counted(abandoned_run.keys, 'key')} of a run that began at "
                    f"{abandoned_run.since} abandoned"
                )
                click.echo("  rows of them may be left; the journal says so, and status no more")
            return DONE
        through = parse_until(pipeline, request.until) if request.until else None
        if dry_run:
            return _show_found(find_rows(pipeline, LakeForgetting(pipeline.lake), table, keys, through), as_json)
        say = (lambda text: None) if as_json else lambda text: click.echo(text, err=True)
        lake = LakeForgetting(pipeline.lake)
        report = run(
            pipeline, lake, table, keys, me, say, through, request.decision, request.records,
            remove_cuts=request.remove_cuts,
        )  # fmt: skip
    if as_json:
        show_json(forget_json(report))
    else:
        for line in forget_lines(report):
            click.echo(line)
    return DONE if report.complete else HELD


def _show_found(searches: Mapping[Life, SearchedFiles], as_json: bool) -> int:
    """Print in how many files of each table rows of the keys are."""
    heads = ("table", "files with rows", "files", "bytes", "cuts with rows")
    rows = [
        (str(life), len(search.having), search.files, search.bytes, ", ".join(search.tags))
        for life, search in searches.items()
    ]
    if as_json:
        show_json([dict(zip(("table", "having", "files", "bytes", "cuts"), row, strict=True)) for row in rows])
    else:
        show_grid(heads, rows)
        click.echo("Nothing was changed. Quarantine, stages and landed messages are searched by the run itself.")
    return DONE
