"""How far a DDL travels through the house: the files that run because of it, from the listing to its commit.

The same table is planned twice, with and without an ALTER of it; a file is on the trip where one of its functions runs
more often with it. Values (`model/`, `types/`, `errors`) are what travels. The lake is the tests' own, so the trip ends
where the step is handed to it, and without one where steps would begin.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import cdc_assets
from cdc_assets.history import history
from cdc_assets.model.reports import StepResult
from cdc_assets.model.steps import ChangeTable, Step
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake

PACKAGE = f"{Path(cdc_assets.__file__).parent}/"
VALUES = ("model/", "types/", "errors.py")


class Trace:
    """Counts the calls of the package's named functions until it is stopped."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, int]] = Counter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            file = code.co_filename.removeprefix(PACKAGE)
            if not file.startswith(VALUES):
                self.calls[file, code.co_firstlineno] += 1

    def follow(self, act: Callable[[], object]) -> None:
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            act()
        finally:
            self.stop()

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


class LastStop(MemoryLake):
    """A lake at which a trace ends when a step is handed to it; with `idle` where steps would begin."""

    trace: Trace | None = None
    idle = False
    arrived: tuple[Step, ...] = ()

    def apply_renames(self) -> None:
        if self.trace is not None and self.idle:
            self.trace.stop()

    def run(self, step: Step) -> StepResult:
        if self.trace is not None:
            self.trace.stop()
            self.arrived += (step,)
        return super().run(step)


def travelled(directory: Path, query: str) -> tuple[Trace, LastStop]:
    """Apply a table, then a later checkpoint with a DDL of that text ("": none) under the tracer."""
    feed, lake, trace = LittleFeed(directory), LastStop(), Trace()
    feed.create("s.t")
    feed.rows("s.t", FIRST, [("I", FIRST + 1, 1, "a")])
    feed.publish(FIRST + 5)
    pipeline = feed.pipeline_into(lake)
    pipeline.apply()
    if query:
        feed.ddl("s.t", FIRST + 10, query, 5, wide=True)
    feed.publish(FIRST + 20)
    lake.trace, lake.idle = trace, not query
    history._RECENT.clear()  # without a DDL nothing would be read again
    trace.follow(pipeline.apply)
    return trace, lake


def test_an_add_column_passes_few_files_on_its_way_to_its_commit(tmp_path: Path) -> None:
    without, _ = travelled(tmp_path / "without", "")
    with_it, lake = travelled(tmp_path / "with", "ALTER TABLE `t` ADD COLUMN `w` INT")
    assert [type(step) for step in lake.arrived] == [ChangeTable]
    trip = sorted({file for file, _ in (with_it.calls - without.calls)})
    assert len(trip) <= 19, "\n".join(trip)
