"""History tables on Spark and Iceberg: the same histories as in memory, with upkeep between windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdc_assets.lake import Lake
from cdc_assets.model.schema_changes import ContinueColumn
from cdc_assets.settings.config import LakeSettings
from cdc_assets_tests.folding import differences
from cdc_assets_tests.lake.test_histories_lake import NUMBERS, Trial, tidy, tomls
from cdc_assets_tests.pipeline.test_histories import Feed
from cdc_assets_tests.pipeline.test_history_tables import LOGS, stopped

__all__ = ["tomls"]

pytestmark = pytest.mark.timeout(900)


def unlike(feed: Feed) -> Iterator[str]:
    """Say which logs of a lake do not lead to the rows of their mirrors."""
    tables, history = feed.lake.state.tables(), feed.pipeline.plan()[1].history
    for life, log in tables.items():
        if life.kind != "log":
            continue
        mirror = tables[life.source]
        events = history.lives[life].events
        back = {one.column.name for event in events for one in event.changes if isinstance(one, ContinueColumn)}
        rows = read(feed.lake, mirror) if mirror.name is not None else None
        yield from differences(str(life), read(feed.lake, log), history.lives[life].schema, rows, back)


def read(lake: Lake, table: Any) -> pa.Table:
    rows: pa.Table = lake.state.catalog.load_table(table.identifier).scan().to_arrow()
    return rows


def check(number: int, spark: SparkSession, directory: Path, tomls: Mapping[str, Path]) -> None:
    trial = Trial(number)
    source = trial.source
    states = trial.publications(source)
    print(f"{trial.style}\n{source.script}")  # what pytest shows of a history that fails
    lakes = (
        Lake(LakeSettings.from_warehouse(directory / name), "default", lambda: spark) for name in ("often", "once")
    )
    often, once = (Feed(trial.style, tomls[trial.style.rendering], lake, history=LOGS) for lake in lakes)
    try:
        for state, tidies in zip(states, trial.tidies(len(states)), strict=True):
            assert [*stopped(often, state), *unlike(often)] == [], state.checkpoint
            assert not tidies or tidy(often) == []
        assert [*stopped(once, states[-1]), *unlike(once)] == [], "in one go"
    finally:
        for feed in (often, once):
            feed.lake.close()
            feed.close()


@pytest.mark.parametrize("number", [13])
def test_the_log_of_a_generated_history_leads_to_its_mirror(
    spark: SparkSession, tmp_path: Path, tomls: Mapping[str, Path], number: int
) -> None:
    check(number, spark, tmp_path, tomls)


@pytest.mark.soak
@pytest.mark.parametrize("number", NUMBERS)
def test_the_logs_of_many_generated_histories_lead_to_their_mirrors(
    spark: SparkSession, tmp_path: Path, tomls: Mapping[str, Path], number: int
) -> None:
    check(number, spark, tmp_path, tomls)
