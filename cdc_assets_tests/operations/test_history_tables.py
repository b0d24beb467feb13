"""History tables rebuilt, replayed and released: each for itself, whatever its mirror is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.operations.replay import replay
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.folding import fold_differences
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds

BAD = "a text of more than the forty characters that its column takes"


@pytest.fixture
def orders(tmp_path: Path) -> LittleFeed:
    feed = LittleFeed(tmp_path)
    feed.create("shop.orders")
    feed.rows("shop.orders", FIRST, [("I", FIRST + 10, 1, "a"), ("I", FIRST + 11, 2, "b")])
    feed.ddl("shop.orders", FIRST + 15, "TRUNCATE TABLE `orders`", 11)
    feed.rows("shop.orders", FIRST + 15, [("I", FIRST + 16, 3, "c")])
    feed.publish(FIRST + 20)
    return feed


def opened(feed: LittleFeed, lake: MemoryLake, ledger: Ledger, **more: Any) -> Pipeline:
    settings = feed.settings(history={"shop.*": "log"}, **more)
    return Pipeline(settings, settings.open_source(), lake, ledger)


def words(lake: MemoryLake) -> list[tuple[str, int]]:
    rows = lake.read(TableId("shop", "orders__log")).to_pylist()
    return sorted((row["_change_type"], row["id"]) for row in rows)


def test_a_log_is_rebuilt_alone_with_the_rows_that_ddl_removed(orders: LittleFeed) -> None:
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    pipeline = opened(orders, lake, ledger)
    pipeline.apply("test")
    before = words(lake)
    log = next(life for life in lake.tables if life.kind)
    lake.tables[log].rows = lake.tables[log].rows.slice(0, 0)
    (done,) = rebuild(pipeline, MemoryRebuilds(lake), ["shop.orders__log"], "again")
    assert done.life == log
    assert words(lake) == before == [("DELETE", 1), ("DELETE", 2), ("INSERT", 1), ("INSERT", 2), ("INSERT", 3)]


def test_a_mirror_is_rebuilt_without_its_log(orders: LittleFeed) -> None:
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    pipeline = opened(orders, lake, ledger)
    pipeline.apply("test")
    (done,) = rebuild(pipeline, MemoryRebuilds(lake), ["shop.orders"], "again")
    assert not done.life.kind
    assert fold_differences(lake) == []


def test_a_record_of_the_quarantine_is_replayed_into_each_table(orders: LittleFeed) -> None:
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    file = orders.rows("shop.orders", FIRST + 15, [("I", FIRST + 21, 4, BAD), ("I", FIRST + 22, 5, "e")])
    orders.publish(FIRST + 30)
    pipeline = opened(orders, lake, ledger, quarantine=True)
    pipeline.apply("test")
    assert ("INSERT", 4) not in words(lake)
    file.write_bytes(file.read_bytes().replace(BAD.encode(), b"d"))
    found = replay(pipeline)
    assert [(one.rows, one.left, one.reason) for one in found] == [(1, 0, "")] * 2
    assert ("INSERT", 4) in words(lake)
    assert fold_differences(lake) == []
