"""Rows that go and come by their partition, where the column that parts them was dropped once and came back."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.operations.extract import extract
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.little_feed import FIRST
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.returned_columns import PARTED, PLAIN, ReturnedColumns


@pytest.mark.parametrize("returned", [{PARTED}, {PLAIN}, {PARTED, PLAIN}], ids=["parted", "plain", "both"])
@pytest.mark.parametrize("mirror", [True, False], ids=["beside a mirror", "alone"])
def test_rows_of_partitions_by_a_column_that_came_back_move_in_history_tables(
    tmp_path: Path, returned: set[str], mirror: bool
) -> None:
    feed, lake = ReturnedColumns(tmp_path, returned).feed, MemoryLake()
    kinds = ["log", "scd2"] if mirror else ["scd2"]
    settings = feed.settings(history={"shop.*": {"kinds": kinds, "mirror": mirror}})
    outcome = Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://")).apply("test")
    assert [(str(table.name), table.reason) for table in outcome.tables if table.reason] == []
    found = ReturnedColumns.differences(lambda name: lake.read(TableId(*name.split("."))), returned, kinds)
    assert found == []


@pytest.mark.parametrize("returned", [{PARTED}, {PLAIN}, {PARTED, PLAIN}], ids=["parted", "plain", "both"])
def test_an_extract_from_the_feed_has_rows_of_partitions_by_a_column_that_came_back(
    tmp_path: Path, returned: set[str]
) -> None:
    settings = ReturnedColumns(tmp_path, returned).feed.settings()
    pipeline = Pipeline(settings, settings.open_source(), MemoryLake(), Ledger("sqlite://"))
    for name, expected in (
        (PARTED, [("DELETE", 1, 5), ("INSERT", 3, 6), ("TRUNCATE", None, None), ("TRUNCATE", None, None)]),
        (PLAIN, [("DELETE", 3, 6), ("INSERT", 1, 5)]),
    ):
        rows = extract(pipeline, name, FIRST + 35, FIRST + 70).changes.to_pylist()
        assert [(row["_change_type"], row["id"], row["v"]) for row in rows] == expected
