"""Recorded changefeeds on Spark and Iceberg: a chosen set always, every one of them in `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_assets.lake import Lake
from cdc_assets.ledger import Ledger
from cdc_assets.settings.config import LakeSettings
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.replay import compare, replay

pytestmark = pytest.mark.timeout(900)

CHOSEN = {"A_all_types/canal-ext", "C_ddl_tables/csv-ts", "D_keys/csv-old", "E_partitions/canal-ext"}
CONFIGS = [
    pytest.param(config, id=str(config), marks=() if str(config) in CHOSEN else pytest.mark.soak)
    for case in cases()
    for config in case.configs
]


@pytest.mark.parametrize("config", CONFIGS)
def test_one_go_ends_equal_to_the_source(config: Config, spark: SparkSession, tmp_path: Path) -> None:
    final = config.checkpoints[-1]
    assert final.expected is not None
    lake = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "default", lambda: spark)
    outcome = replay(config, final, lake)
    assert compare(config, final.expected, lake, outcome) == []
    lake.close()


@pytest.mark.soak
@pytest.mark.parametrize(
    "config", [c for case in cases() for c in case.configs if c.options.wire.has_commit_ts], ids=str
)
def test_every_checkpoint_is_equal_to_the_source(config: Config, spark: SparkSession, tmp_path: Path) -> None:
    lake, ledger = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "default", lambda: spark), Ledger("sqlite://")
    for checkpoint in config.replayable:
        outcome = replay(config, checkpoint, lake, ledger)
        if checkpoint.expected is not None:
            assert compare(config, checkpoint.expected, lake, outcome) == [], checkpoint.note
    lake.close()
