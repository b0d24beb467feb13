"""The command that fetches once what the package itself does not hold: jars, and the archive of Java's classes."""

from __future__ import annotations

import click

from cdc_assets.cli.help import command
from cdc_assets.cli.options import DONE


@command("setup", "Fetch Spark's jars once, 60 MB, and archive Java's classes.", "setup", "setup aws postgres")
@click.argument("extras", nargs=-1, metavar="[aws|gcp|azure|postgres]…")
@click.option("--settings", type=click.Path(dir_okay=False), help="changefeeds.yaml; the jars that its lake needs.")
@click.option("--jars-only", is_flag=True, help="Leave out the archive of Java's classes.")
@click.option("--debug", is_flag=True, help="Show the stack trace of an error.")
def setup(extras: tuple[str, ...], settings: str | None, jars_only: bool, debug: bool) -> int:
    """Fetch Spark's jars once, 60 MB, and archive Java's classes.

    The jars come from Maven Central, or from the mirror that DEFAULT_ARTIFACT_REPOSITORY names, into the cache of the
    user (~/.cache/cdc-assets/jars) or the directory that CDC_ASSETS_JARS names. Names of stores and catalogs fetch
    their jars, too; those of the lake in the settings file are fetched without being named. The archive takes half a
    minute, and later starts of Spark are seconds faster.
    """
    from cdc_assets.jvm.class_data import make_class_data
    from cdc_assets.jvm.jars import fetch_jars
    from cdc_assets.settings.config import has_settings_file, load

    needed_extras = list(extras)
    if has_settings_file(settings):
        needed_extras += [extra for extra in load(settings).needed_lake().extras if extra not in needed_extras]
    for path in fetch_jars(needed_extras):
        click.echo(path)
    if not jars_only:
        archive = make_class_data()
        click.echo(archive or "This Java wrote no archive of its classes; Spark starts without one.")
    return DONE
