"""A kind of source that the house does not know, plugged in by the tables of plugs, goes through all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from cdc_assets.defs import build_changefeed_defs
from cdc_assets.formats import FORMATS
from cdc_assets.lake.state import LakeState
from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import Column, TableId
from cdc_assets.operations.inspect import inspect_changefeed
from cdc_assets.operations.opening import open_pipeline
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.sources import SCHEMES
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.record_feed.source import FEEDS, Records

pytestmark = pytest.mark.filterwarnings("ignore")

ADDRESS = "records://shop"
ORDERS = TableId("shop", "orders")
ID = Column("id", "BIGINT", nullable=False, is_pk=True)
NOTE = Column("note", "VARCHAR", precision=20)


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Records:
    """Three states of one table: created and filled, changed, given a column."""
    monkeypatch.setitem(SCHEMES, "records", "cdc_assets_tests.record_feed")
    monkeypatch.setitem(FORMATS, "records", "cdc_assets_tests.record_feed")
    feed = Records(fence=300)
    feed.ddl("shop.orders", 100, "CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY,`note` VARCHAR(20))", 3, ID, NOTE)
    feed.rows("shop.orders", 100, ["I", 101, 1, "a"], ["I", 102, 2, "b"], ["I", 103, 3, None])
    feed.rows("shop.orders", 100, ["D", 110, 1, "a"], ["U", 111, 2, "c"], ["I", 400, 9, "above the fence"])
    count = Column("count", "INT", default="7")
    feed.ddl("shop.orders", 200, "ALTER TABLE `orders` ADD COLUMN `count` INT DEFAULT 7", 5, ID, NOTE, count)
    feed.rows("shop.orders", 200, ["I", 201, 4, "d", 8])
    monkeypatch.setitem(FEEDS, ADDRESS, feed)
    return feed


def settings(**given: Any) -> ChangefeedSettings:
    return ChangefeedSettings(**{"sink_uri": ADDRESS, "name": "shop", **given})


WHOLE = [(2, "c", 7), (3, None, 7), (4, "d", 8)]


def test_it_is_planned_decoded_and_applied(records: Records) -> None:
    lake = MemoryLake()
    outcome = Pipeline(settings(), settings().open_source(), lake, Ledger("sqlite://")).apply()
    assert outcome.complete
    rows = lake.read(ORDERS).to_pylist()
    assert sorted((row["id"], row["note"], row["count"]) for row in rows) == WHOLE


def test_it_is_inspected(records: Records) -> None:
    inspection = inspect_changefeed(settings())
    assert [(table.table, table.versions) for table in inspection.tables] == [("shop.orders", 2)]
    assert inspection.checkpoint == 300


def test_a_record_that_does_not_fit_is_kept_aside(records: Records) -> None:
    root, version, data = records.splits["shop.orders/200/3.records"]
    records.splits["shop.orders/200/3.records"] = (root, version, data + b"\nnot JSON")
    lake = MemoryLake()
    given = settings(quarantine=True)
    Pipeline(given, given.open_source(), lake, Ledger("sqlite://")).apply()
    assert [(row.file, row.line, row.raw) for row in lake.quarantined()] == [
        ("shop.orders/200/3.records", 2, b"not JSON")
    ]


def test_it_goes_into_iceberg_tables(records: Records, spark: SparkSession, tmp_path: Path) -> None:
    lake = LakeSettings.from_warehouse(tmp_path / "lake")
    with open_pipeline(settings(), lake, spark=lambda: spark) as pipeline:
        assert pipeline.apply().complete
    rows = LakeState(lake, "shop").read(ORDERS).to_pylist()
    assert sorted((row["id"], row["note"], row["count"]) for row in rows) == WHOLE


def test_dagster_loads_it(records: Records, tmp_path: Path) -> None:
    lake = LakeSettings.from_warehouse(tmp_path / "lake")
    defs = build_changefeed_defs(settings(), lake)
    with dg.DagsterInstance.ephemeral() as instance:
        job = defs.resolve_job_def("shop_catch_up")
        assert job.execute_in_process(instance=instance).success
    rows = LakeState(lake, "shop").read(ORDERS).to_pylist()
    assert sorted((row["id"], row["note"], row["count"]) for row in rows) == WHOLE
