"""Runs that are stopped at each seam of history tables and cuts: what the next ones make of it is the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from cdc_assets.features.cuts.operations import expire, make_cut
from cdc_assets.ledger import Ledger
from cdc_assets.model.cuts import cut_requests
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.kills import Killed, Trap, trapped
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake

SEAMS = (
    "cdc_assets.pipeline.planner:Planner.plan",
    *(
        f"cdc_assets_tests.memory_lake:MemoryLake.{verb}"
        for verb in (
            *("run", "stage_all", "commit", "mark_incomplete"),
            *("keep_decision", "remove_decision", "make_cut", "remove_cut", "untag"),
        )
    ),
    *(f"cdc_assets.ledger:Ledger.record_{what}" for what in ("files", "ddl", "columns", "states")),
)
BOTH = {"history": {"shop.*": ["log", "scd2"]}}
DAY = 86_400_000 << 18


class Story:
    """A feed of two tables whose history tables are switched on, off and on again, with cuts that are made and expire.

    Each chapter publishes something, and may be run again where it was stopped.
    """

    def __init__(self, directory: Path) -> None:
        self.feed, self.lake, self.ledger = LittleFeed(directory), MemoryLake(), Ledger("sqlite://")
        self.lake.runs_beside = lambda step: False  # type: ignore[method-assign]  # in the same order each time

    def pipeline(self, **more: Any) -> Pipeline:
        return self.feed.pipeline_into(self.lake, self.ledger, **more)

    def chapters(self) -> list[Callable[[], object]]:
        regular = {**BOTH, "cuts": {"every": "1d", "keep": 1}}
        return [
            self.pipeline().apply,
            self.pipeline(**BOTH).apply,
            self.cut,
            self.pipeline().apply,
            self.pipeline(**BOTH).apply,
            self.pipeline(**regular).apply,
            self.pipeline(**regular).apply,
            lambda: expire(cast("LakePipeline", self.pipeline(**regular)), 0),
        ]

    def cut(self) -> None:
        """Make a cut, unless a stopped run decided it, and the run before this one made it."""
        self.pipeline(**BOTH).apply()
        if "one" not in [cut.name for cut in self.lake.cuts()]:
            make_cut(self.pipeline(**BOTH), "one")

    def publish(self, chapter: int) -> None:
        feed, at = self.feed, FIRST + 100 * chapter + (DAY * (chapter - 4) if chapter > 4 else 0)
        if chapter == 0:
            for name in ("shop.orders", "shop.items"):
                feed.create(name)
        if chapter == 2:
            feed.ddl("shop.orders", at, "TRUNCATE TABLE `orders`", 11)
        changes = [("I", at + 10, chapter, "a"), ("U", at + 11, chapter, "b"), ("I", at + 12, 100 + chapter, "c")]
        for name in ("shop.orders", "shop.items"):
            feed.rows(name, FIRST, [*changes, ("D", at + 13, 100 + chapter, "c")])
        feed.publish(at + 50)

    def tell(self, trap: Trap) -> None:
        """Go through all chapters; one in which the trap stops a run is run again without it."""
        for chapter, run in enumerate(self.chapters()):
            self.publish(chapter)
            with suppress(Killed), trapped(trap, SEAMS):
                run()
                continue
            run()

    @property
    def ending(self) -> Mapping[str, object]:
        """All that is in the lake in the end."""
        tables = {
            str(life): (str(table.name), table.lives if life.kind else (), sorted(map(repr, table.rows.to_pylist())))
            for life, table in self.lake.tables.items()
        }
        tags = {
            f"{life} {tag}": sorted(map(repr, rows.to_pylist()))
            for life, table in self.lake.tables.items()
            for tag, (_, _, rows) in table.tags.items()
        }
        cuts = [(cut.name, cut.at, [str(cut_table.life) for cut_table in cut.taken]) for cut in self.lake.cuts()]
        return {"tables": tables, "tags": tags, "cuts": cuts, "requests": cut_requests(self.lake.decisions())}


def _is_crossing(number: int, crossing: int, _: str) -> bool:
    return crossing == number


@pytest.mark.parametrize("every", [37, pytest.param(1, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])])
def test_a_run_that_is_stopped_at_a_seam_of_kinds_and_cuts_leaves_what_the_next_one_finishes(
    tmp_path: Path, every: int
) -> None:
    whole, none = Story(tmp_path / "whole"), Trap(lambda *_: False)
    whole.tell(none)
    cuts = [cut.name for cut in whole.lake.cuts()]
    assert (cuts[0], len(cuts)) == ("one", 2)
    assert {tag for table in whole.lake.tables.values() for tag in table.tags} == set(cuts)
    for number in range(1 + every // 2, len(none.crossed) + 1, every):
        story, trap = Story(tmp_path / str(number)), Trap(partial(_is_crossing, number))
        story.tell(trap)
        assert trap.killed == none.crossed[number - 1]
        assert story.ending == whole.ending, trap.killed
