"""Generated histories on Spark and Iceberg: a chosen few always, as many as asked for in `make soak`.

The same histories as in memory, with more of what only this lake has: deletion vectors and tables that they leave
empty, rewrites, snapshots that expire, and compaction between windows. A history is made from a number, so that one
that fails is named by it: `CDC_ASSETS_HISTORIES=1200-1400 make soak` tries others than the soak's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from cdc_assets.lake import Lake
from cdc_assets.lake.maintenance import LakeMaintenance
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.maintenance import maintain
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.settings.sections import MaintenanceSettings
from cdc_assets_tests.generated import Feed, Trial, faults

pytestmark = pytest.mark.timeout(900)

CHOSEN = (13, 53)
"""Numbers of histories that are always tried: short, and together of most kinds."""

_FIRST, _, _LAST = os.environ.get("CDC_ASSETS_HISTORIES", "1-200").partition("-")
NUMBERS = range(int(_FIRST), int(_LAST or _FIRST) + 1)

_EAGER = {"small_files": 2, "manifests": 4, "deleted_share": 0.01, "snapshots_kept": 1, "expire_at_least": 1}
_DAY_MS = 86_400_000


def tidy(feed: Feed) -> list[str]:
    """Compact and expire all that may go, as if days had passed, and say what went wrong."""
    settings = MaintenanceSettings.model_validate(_EAGER)
    feed.settings = feed.settings.model_copy(update={"maintenance": settings})
    newest = max(
        (snapshot.made_ms for fact in LakeMaintenance(feed.lake, settings).facts() for snapshot in fact.lineage),
        default=0,
    )
    done = maintain(cast("LakePipeline", feed.pipeline), newest + 30 * _DAY_MS)
    return [f"{table.before.table}: {table.problem}" for table in done.tables if table.problem]


def check(number: int, spark: SparkSession, directory: Path, tomls: Mapping[str, Path]) -> None:
    """One go and step by step, both on Spark, both equal to the source."""
    trial = Trial(number)
    source = trial.source
    states = trial.publications(source)
    print(f"{trial.style}\n{source.script}")  # what pytest shows of a history that fails
    lakes = [
        Lake(LakeSettings.from_warehouse(directory / name), "default", lambda: spark) for name in ("often", "once")
    ]
    often, once = (Feed(trial.style, tomls[trial.style.rendering], lake) for lake in lakes)
    try:
        for state, tidies in zip(states, trial.tidies(len(states)), strict=True):
            assert faults(often, state, source.contents(state.shown)) == [], state.checkpoint
            assert not tidies or tidy(often) == []
        assert faults(once, states[-1], source.contents(states[-1].shown)) == [], "in one go"
        assert often.journal == once.journal
    finally:
        for feed in (often, once):
            feed.lake.close()
            feed.close()


@pytest.mark.parametrize("number", CHOSEN)
def test_a_generated_history_ends_equal_to_the_source(
    spark: SparkSession, tmp_path: Path, tomls: Mapping[str, Path], number: int
) -> None:
    check(number, spark, tmp_path, tomls)


@pytest.mark.soak
@pytest.mark.parametrize("number", NUMBERS)
def test_many_generated_histories_end_equal_to_the_source(
    spark: SparkSession, tmp_path: Path, tomls: Mapping[str, Path], number: int
) -> None:
    check(number, spark, tmp_path, tomls)
