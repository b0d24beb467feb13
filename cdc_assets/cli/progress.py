"""The progress display of the command line, and what is logged while something slow starts."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from cdc_assets.model.schema import TableId


class _ErrorOutput(logging.Handler):
    """Prints messages to the error output as it is at the time: a progress display keeps its line below them."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message without its level and time."""
        click.echo(record.getMessage(), err=True)


def show_log(level: int) -> None:
    """Show this package's log messages of a level or above it."""
    logger = logging.getLogger("cdc_assets")
    logger.setLevel(level)
    if not any(isinstance(handler, _ErrorOutput) for handler in logger.handlers):
        logger.addHandler(_ErrorOutput())


@contextmanager
def watching(quiet: bool) -> Iterator[Callable[..., None] | None]:
    """Return a progress display on a terminal, plain lines elsewhere."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        from cdc_assets.report.plan_text import log_steps

        print("reading the changefeed", file=sys.stderr, flush=True)
        yield log_steps(lambda line: print(line, file=sys.stderr, flush=True))
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from cdc_assets.report.plan_text import step_title

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("reading the changefeed", total=None)

        def bar(step: Any, table: TableId, number: int, count: int) -> None:
            display.update(task, description=f"{table}: {step_title(step)}", completed=number, total=count)

        yield bar
