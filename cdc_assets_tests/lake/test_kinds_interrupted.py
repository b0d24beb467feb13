"""History tables on Spark and Iceberg while runs are stopped between the commits of kinds, or two go on at once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from cdc_assets.lake import Lake
from cdc_assets.ledger import Ledger
from cdc_assets.model.reports import StagedWindow, StepResult
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import ApplyRows
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.generated import Feed, Trial
from cdc_assets_tests.kills import SEAMS, Killed, Trap, trapped
from cdc_assets_tests.lake.test_histories_lake import NUMBERS, unlike
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.pipeline.test_states_of_histories import faults

pytestmark = pytest.mark.timeout(900)

KINDS: dict[str, object] = {"*.*": ["log", "scd2"]}


def check(number: int, share: float, spark: SparkSession, directory: Path, tomls: Mapping[str, Path]) -> int:
    """Apply a history with both kinds, stopped at a share of all crossings; return how often it was."""
    trial, random, kills = Trial(number), Random(f"kills {number}"), 0
    source = trial.source
    print(f"{trial.style}\n{source.script}")  # what pytest shows of a history that fails
    feed = Feed(trial.style, tomls[trial.style.rendering], history=KINDS)
    try:
        for publication in trial.publications(source):
            feed.publish(publication)
            while True:
                feed.lake = Lake(LakeSettings.from_warehouse(directory), "default", lambda: spark)
                trap = Trap(lambda *_: random.random() < share)
                with trapped(trap, SEAMS), suppress(Killed):
                    feed.pipeline.apply("test")
                if not trap.killed:
                    break
                kills += 1
                feed.lake.close()
            assert [*faults(feed, source, publication), *unlike(feed)] == [], publication.checkpoint
            feed.lake.close()
    finally:
        feed.close()
    return kills


@pytest.mark.soak
@pytest.mark.parametrize("number", NUMBERS)
def test_kinds_of_generated_histories_that_are_stopped_anywhere_are_right_in_the_end(
    spark: SparkSession, tmp_path: Path, tomls: Mapping[str, Path], number: int
) -> None:
    check(number, 0.02, spark, tmp_path, tomls)


PLACES = (
    "before Lake.commit of ApplyRows",
    "before publish of DeleteRows",
    "after publish of ApplyRows",
)
"""Where runs are stopped, one after the other: each once, when the second kind comes by."""


def shop(directory: Path) -> LittleFeed:
    feed = LittleFeed(directory)
    feed.create("shop.orders")
    changes = [("I", FIRST + 1, 1, "a"), ("I", FIRST + 1, 2, "a"), ("U", FIRST + 2, 1, "b"), ("D", FIRST + 3, 2, "a")]
    feed.rows("shop.orders", FIRST, changes)
    feed.ddl("shop.orders", FIRST + 10, "TRUNCATE TABLE `orders`", 11)
    feed.rows("shop.orders", FIRST + 10, [("I", FIRST + 12, 3, "c")])
    feed.publish(FIRST + 20)
    return feed


def check_shop(lake: Lake) -> None:
    """Each change is there once, and each state."""
    log = lake.read(TableId("shop", "orders__log")).to_pylist()
    assert sorted((row["_cdc_position"] - FIRST, row["_change_type"], row["id"]) for row in log) == [
        *[(1, "INSERT", 1), (1, "INSERT", 2), (2, "UPDATE_AFTER", 1), (3, "DELETE", 2)],
        *[(10, "DELETE", 1), (12, "INSERT", 3)],
    ]
    states = lake.read(TableId("shop", "orders__scd2")).to_pylist()
    state_spans = sorted(
        (row["id"], row["_cdc_start_ts"] - FIRST, (row["_cdc_end_ts"] or FIRST) - FIRST) for row in states
    )
    assert state_spans == [(1, 1, 2), (1, 2, 10), (2, 1, 3), (3, 12, 0)]
    assert lake.read(TableId("shop", "orders")).column("id").to_pylist() == [3]


def test_runs_that_are_stopped_between_kinds_leave_each_at_its_label(spark: SparkSession, tmp_path: Path) -> None:
    settings, stopped = shop(tmp_path).settings(history=KINDS), list[str]()
    for place in (*PLACES, "nowhere"):
        met = list[str]()

        def due(_: int, name: str, place: str = place, met: list[str] = met) -> bool:
            met += [name] if name.startswith(place) else []
            return len(met) == 2

        trap = Trap(due)
        lake = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "little", lambda: spark)
        with trapped(trap, SEAMS), suppress(Killed):
            Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://")).apply("test")
        stopped.append(trap.killed or place)
        if not trap.killed:
            check_shop(lake)
        lake.close()
    assert stopped == [*PLACES, "nowhere"]


def test_two_runs_at_once_leave_each_change_and_each_state_once(spark: SparkSession, tmp_path: Path) -> None:
    feed = shop(tmp_path)
    settings, lakes = feed.settings(history=KINDS), LakeSettings.from_warehouse(tmp_path / "lake")
    other = Lake(lakes, "little", lambda: spark)
    overtaken = list[str]()

    class Slow(Lake):
        """A lake whose commits come after those of another run."""

        def commit(self, step: ApplyRows, staged: StagedWindow) -> StepResult:
            if step.life.kind not in overtaken:
                overtaken.append(step.life.kind)
                Pipeline(settings, settings.open_source(), other, Ledger("sqlite://")).apply("other")
            return super().commit(step, staged)

    slow = Slow(lakes, "little", lambda: spark)
    outcome = Pipeline(settings, settings.open_source(), slow, Ledger("sqlite://")).apply("test")
    assert [(str(table.name), table.reason) for table in outcome.tables if table.reason] == []
    assert overtaken
    check_shop(other)
    slow.close()
    other.close()
