"""Recorded changefeeds on Spark and Iceberg: a chosen set always, every one of them in `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_assets.features.verification.operations import VerifyOptions, verify
from cdc_assets.lake import Lake
from cdc_assets.ledger import Ledger
from cdc_assets.model.comparison import EQUAL, TableComparison
from cdc_assets.model.dumps import DumpOptions
from cdc_assets.model.schema import TableId
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.sources import connect_dump
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.dump_cases import opener
from cdc_assets_tests.joined_feed import dump_of
from cdc_assets_tests.replay import AsOf, compare, replay

pytestmark = pytest.mark.timeout(900)

CHOSEN = {"A_all_types/canal-ext", "C_ddl_tables/csv-ts"}
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


@pytest.mark.parametrize("name", ["A_all_types/csv-ts"])
def test_rows_that_are_deleted_and_changed_in_the_lake_are_found_by_comparing(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    (config,) = (config for case in cases() for config in case.configs if str(config) == name)
    final = config.checkpoints[-1]
    lake = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "default", lambda: spark)
    replay(config, final, lake)
    dump_of(final, tmp_path / "dump")
    source, settings = connect_dump(opener(tmp_path / "dump"), DumpOptions()), config.settings(final.bucket)
    pipeline = Pipeline(settings, AsOf(settings, final.ts), lake, Ledger("sqlite://"))

    def compared() -> dict[str, TableComparison]:
        return {
            comparison.table.table: comparison
            for comparison in verify(pipeline, lake, lambda at: source, VerifyOptions())
        }

    assert {comparison.state for comparison in compared().values()} == {EQUAL}
    with lake.workbench.sessions.step() as session:
        table = session.name(lake.state.named(TableId("types", "all_types")).identifier)
        session.sql(
            f"UPDATE {table} SET dtm6 = timestamp_ntz'2024-01-01 00:00:00.000001', vec = array(0.5) WHERE id = 1"
        )
        session.sql(f"DELETE FROM {table} WHERE id IN (1001, 1002)")
    comparisons = compared()
    assert {name for name, comparison in comparisons.items() if comparison.state != EQUAL} == {"all_types"}
    rows = comparisons["all_types"].rows
    assert {(row.kind, row.key["id"], tuple(v.column for v in row.values)) for row in rows} == {
        ("missing", "1001", ()), ("missing", "1002", ()), ("differing", "1", ("dtm6", "vec")),
    }  # fmt: skip
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
