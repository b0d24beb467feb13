"""The progress display of the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import tso_time


@contextmanager
def watching(quiet: bool) -> Iterator[Callable[..., None] | None]:
    """Return a progress display on a terminal, plain lines elsewhere."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():

        def line(step: Any, table: TableId, number: int, count: int) -> None:
            line_text = f"{number + 1}/{count} {type(step).__name__} {table} {tso_time(step.at)}"
            print(line_text, file=sys.stderr, flush=True)

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("reading the changefeed", total=None)

        def bar(step: Any, table: TableId, number: int, count: int) -> None:
            display.update(task, description=f"{type(step).__name__} {table}", completed=number, total=count)

        yield bar
