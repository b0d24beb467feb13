"""Partitions come in any order, alone or beside runs over many tables: the progress in the lake decides what is done.

What the assets `ddl` and `dml` of a partition carry out is carried out here on the in-memory lake.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from cdc_assets.defs.assets import _needed
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Phase
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.pipeline.planner import PlanRequest
from cdc_assets.planning.partitions import PartitionKey, partition_keys
from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.cases import Case, Config
from cdc_assets_tests.generated import CHECKS, PICKS, STEPS, STYLES, faults, feeds
from cdc_assets_tests.histories import history
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.replay import AsOf, compare
from cdc_assets_tests.writer import Style, publications


def materialize(fused: Pipeline, key: PartitionKey) -> Outcome:
    """Do what a run of one partition does: its DDL, then its rows, each with all that they need first."""
    pipeline = Pipeline(fused.settings, fused.source, fused.lake, fused.ledger, request=PlanRequest(fuse=False))
    pipeline.apply("ddl", lambda plan: _needed(plan, key, Phase.DDL))
    return pipeline.apply("dml", lambda plan: _needed(plan, key, Phase.ROWS))


def scrambled(pipeline: Pipeline, seed: int) -> list[PartitionKey]:
    keys = list(partition_keys(pipeline.planner.plan()[1]))
    random.Random(seed).shuffle(keys)
    return keys


# --- recorded ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(config, marks=() if config.name == "canal-ext" else pytest.mark.soak, id=str(config))
        for config in Case("C_ddl_tables").configs
        if config.options.wire.has_commit_ts
    ],
)
def test_renames_swaps_drops_and_re_creations_end_equal_in_scrambled_order(config: Config) -> None:
    final = config.checkpoints[-1]
    assert final.expected is not None
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    settings = config.settings(final.bucket)
    pipeline = Pipeline(settings, AsOf(settings, final.ts), lake, ledger)
    keys = scrambled(pipeline, 7)
    assert len(keys) > 30
    for key in keys:
        materialize(pipeline, key)
    assert pipeline.planner.plan()[1].steps == ()
    assert compare(config, final.expected, lake, pipeline.record_status("end")) == []
    ledger.close()


# --- generated --------------------------------------------------------------------------------------------------------


def twenty(directory: Path) -> tuple[LittleFeed, dict[str, dict[int, str]]]:
    """Twenty tables of three versions each: created, widened, truncated, with rows in between."""
    feed, expected = LittleFeed(directory), dict[str, dict[int, str]]()
    for number in range(20):
        name, at = f"s.t{number:02d}", FIRST + number * 1000
        feed.create(name, at)
        feed.rows(name, at, [("I", at + 1, 1, "a"), ("I", at + 2, 2, "b")])
        feed.ddl(name, at + 100, f"TRUNCATE TABLE `t{number:02d}`", 11)
        feed.rows(name, at + 100, [("I", at + 101, 2, "c"), ("I", at + 102, 3, "d")])
        feed.ddl(name, at + 200, f"ALTER TABLE `t{number:02d}` ADD COLUMN `w` INT", 5, wide=True)
        expected[name] = {2: "c", 3: "d"}
    feed.publish(FIRST + 10**6)
    return feed, expected


def contents(lake: MemoryLake) -> dict[str, dict[int, str]]:
    rows_by_table = {}
    for name in lake.names():
        rows_by_table[str(name)] = {row["id"]: row["v"] for row in lake.read(name).to_pylist()}
    return rows_by_table


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_all_versions_of_twenty_tables_in_scrambled_order_end_right(tmp_path: Path, seed: int) -> None:
    feed, expected = twenty(tmp_path)
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    settings = feed.settings()
    pipeline = Pipeline(settings, AsOf(settings, FIRST + 10**6), lake, ledger)
    keys = scrambled(pipeline, seed)
    assert len(keys) == 60
    for key in keys:
        materialize(pipeline, key)
    assert contents(lake) == expected
    assert all("w" in lake.read(name).column_names for name in lake.names())
    assert pipeline.planner.plan()[1].steps == ()
    ledger.close()


@settings(CHECKS, max_examples=4, derandomize=True, database=None)
@given(steps=STEPS, style=STYLES, raw=PICKS, order=st.randoms(use_true_random=False))
def test_any_history_ends_equal_whatever_order_its_partitions_come_in(
    tomls: Mapping[str, Path], steps: list[tuple[str, bytes]], style: Style, raw: bytes, order: random.Random
) -> None:
    source = history(steps, style.old_values)
    note(f"{style}\n{source.script}")
    *_, last = publications(source, style, Picks(raw))
    with feeds(style, tomls[style.rendering]) as (feed, _):
        feed.publish(last)
        keys = list(partition_keys(feed.pipeline.planner.plan()[1]))
        order.shuffle(keys)
        for key in keys:
            materialize(feed.pipeline, key)
        assert feed.pipeline.planner.plan()[1].steps == ()
        assert faults(feed, last, source.contents(last.shown)) == []
