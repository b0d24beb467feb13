"""Changes that leave columns out, in the lake: one MERGE keeps the table's values, as the lake in memory does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.formats import FORMATS
from cdc_assets.lake.state import LakeState
from cdc_assets.ledger import Ledger
from cdc_assets.model.findings import Finding
from cdc_assets.model.schema import Column, TableId
from cdc_assets.operations.opening import open_pipeline
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.sources import SCHEMES
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.record_feed.source import FEEDS, Records

ADDRESS = "records://patches"
ORDERS = TableId("shop", "orders")
COLUMNS = (
    Column("id", "BIGINT", nullable=False, is_pk=True),
    Column("it's", "VARCHAR", precision=20),
    Column("b\\n", "INT"),
)
SAME: list[Any] = []
FIRST = [["I", 101, 1, "a", 1], ["I", 102, 2, "b", 2], ["I", 103, 3, "c", 3]]
THEN = [
    ["U", 201, 1, SAME, 10],
    ["U", 202, 1, "aa", SAME],
    ["U", 203, 2, SAME, None],
    ["I", 204, 4, "new", SAME],
    ["D", 205, 3, "c", 3],
    ["I", 206, 3, SAME, 33],
]
WHOLE = [(1, "aa", 10), (2, "b", None), (3, None, 33), (4, "new", None)]
MOVES = [
    ["D", 301, 2, None, None, "of the lake"],
    ["U", 301, 20, SAME, 99, "of the lake"],
    ["U", 302, 1, "of the window", SAME],
    ["D", 303, 1, None, None, "of both"],
    ["U", 303, 10, SAME, SAME, "of both"],
    ["D", 304, 10, None, None, "twice"],
    ["U", 304, 11, SAME, SAME, "twice"],
    ["P", 305, 77, "no row", SAME],
    ["P", 306, 11, SAME, 6],
    ["D", 307, 4, None, None, "onto a row"],
    ["D", 307, 3, None, None],
    ["P", 308, 3, SAME, 4, "onto a row"],
]
MOVED = [(3, "new", 4), (11, "of the window", 6), (20, "b", 99)]


def settings_of_feed() -> ChangefeedSettings:
    return ChangefeedSettings(sink_uri=ADDRESS, name="shop")  # type: ignore[arg-type]


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Records:
    monkeypatch.setitem(SCHEMES, "records", "cdc_assets_tests.record_feed")
    monkeypatch.setitem(FORMATS, "records", "cdc_assets_tests.record_feed")
    feed = Records(fence=150)
    query = "CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY,`it's` VARCHAR(20),`b\\n` INT)"
    feed.ddl("shop.orders", 100, query, 3, *COLUMNS)
    feed.rows("shop.orders", 100, *FIRST)
    monkeypatch.setitem(FEEDS, ADDRESS, feed)
    return feed


@pytest.mark.soak
@pytest.mark.parametrize("several_tasks", ["threads of the driver"], indirect=True)
def test_rows_under_new_keys_are_found_whoever_read_their_old_ones(
    several_tasks: None, records: Records, spark: SparkSession, tmp_path: Path
) -> None:
    settings = LakeSettings.from_warehouse(tmp_path / "lake")
    records.rows("shop.orders", 100, *THEN)
    for key in dict.fromkeys(record[2] for record in MOVES):
        records.rows("shop.orders", 100, *(record for record in MOVES if record[2] == key))
    for records.fence in (300, 400):
        with open_pipeline(settings_of_feed(), settings, spark=lambda: spark) as pipeline:
            outcome = pipeline.apply()
            assert [table.reason for table in outcome.tables if table.reason] == []
    lake_rows = LakeState(settings, "shop").read(ORDERS).to_pylist()
    assert sorted(tuple(row[name] for name in ("id", "it's", "b\\n")) for row in lake_rows) == MOVED


def test_columns_that_are_left_out_keep_their_values(records: Records, spark: SparkSession, tmp_path: Path) -> None:
    feed = settings_of_feed()
    settings, memory = LakeSettings.from_warehouse(tmp_path / "lake"), MemoryLake()

    findings: list[Finding] = []

    def apply() -> bool:
        with open_pipeline(feed, settings, spark=lambda: spark) as pipeline:
            outcomes = [pipeline.apply()]
        if outcomes[0].complete:
            outcomes.append(Pipeline(feed, feed.open_source(), memory, Ledger("sqlite://")).apply())
        findings.extend(finding for outcome in outcomes for finding in outcome.findings)
        return all(outcome.complete for outcome in outcomes)

    def rows() -> list[list[tuple[Any, ...]]]:
        tables = LakeState(settings, "shop").read(ORDERS), memory.read(ORDERS)
        return [
            sorted(tuple(row[name] for name in ("id", "it's", "b\\n")) for row in table.to_pylist()) for table in tables
        ]

    assert apply()
    records.rows("shop.orders", 100, *THEN)
    records.fence = 300
    assert apply()
    assert rows() == [WHOLE, WHOLE]
    records.rows("shop.orders", 100, *MOVES)
    records.fence = 400
    assert apply()
    assert rows() == [MOVED, MOVED]
    assert [finding.rule for finding in findings].count("patches-passed-over") == 2
    records.rows("shop.orders", 100, ["U", 401, 9, "no row", SAME], ["U", 402, 20, "z", SAME])
    records.fence = 500
    assert not apply()
    assert rows() == [MOVED, MOVED]


def test_what_changes_left_out_is_called_as_its_column_is_now(
    records: Records, spark: SparkSession, tmp_path: Path
) -> None:
    feed = ChangefeedSettings(sink_uri=ADDRESS, name="shop", history={"*.*": "log"})  # type: ignore[arg-type]
    settings, memory, ledger = LakeSettings.from_warehouse(tmp_path / "lake"), MemoryLake(), Ledger("sqlite://")
    records.rows("shop.orders", 100, *THEN)
    renamed = tuple(replace(column, name={"it's": "o'clock"}.get(column.name, column.name)) for column in COLUMNS)
    query = "ALTER TABLE `orders` RENAME COLUMN `it's` TO `o'clock`"
    for records.fence in (300, 400):
        with open_pipeline(feed, settings, spark=lambda: spark) as pipeline:
            assert pipeline.apply().complete
        Pipeline(feed, feed.open_source(), memory, ledger).apply()
        records.ddl("shop.orders", 350, query, 28, *renamed)
    log = TableId("shop", "orders__log")
    tables = LakeState(settings, "shop").read(log), memory.read(log)
    lists = [
        [row["_cdc_absent"] for row in table.sort_by("_cdc_position").to_pylist() if row["_cdc_absent"]]
        for table in tables
    ]
    assert lists[0] == lists[1]
    assert {name for names in lists[0] for name in names} == {"o'clock", "b\\n"}
