"""History tables rebuilt, replayed and released: each for itself, whatever its mirror is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.errors import ExtractRefused, RebuildRefused
from cdc_assets.features.quarantine.operations import replay
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Life, Phase, Progress
from cdc_assets.model.reports import FileStats
from cdc_assets.model.schema import TableId
from cdc_assets.operations.extract import extract
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.preflight.files import file_findings
from cdc_assets.types.fidelity import ColumnFidelity
from cdc_assets.types.rules import Grade
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
    return feed.pipeline_into(lake, ledger, history={"shop.*": "log"}, **more)


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
    replay_results = replay(pipeline)
    assert [(replay_result.rows, replay_result.waiting, replay_result.reason) for replay_result in replay_results] == [
        (1, 0, "")
    ] * 2
    assert ("INSERT", 4) in words(lake)
    assert fold_differences(lake) == []


@pytest.mark.parametrize("name", ["shop.orders", "shop.orders__log"])
def test_no_table_is_rebuilt_without_a_file_that_another_kind_read_last(name: str, orders: LittleFeed) -> None:
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    pipeline = opened(orders, lake, ledger)
    pipeline.apply("test")
    (read, *_) = ledger.files(pipeline.settings.name)
    (orders.bucket / read.path).unlink()
    with pytest.raises(RebuildRefused, match=re.escape(read.path)):
        rebuild(pipeline, MemoryRebuilds(lake), [name], "again")


def test_a_file_is_of_the_table_whose_rows_it_has_though_one_of_its_name_reads_it_later(tmp_path: Path) -> None:
    feed, lake, ledger = LittleFeed(tmp_path), MemoryLake(), Ledger("sqlite://")
    feed.create("shop.orders")
    feed.rows("shop.orders", FIRST, [("I", FIRST + 10, 1, "a")])
    lost = feed.rows("shop.orders", FIRST, [("I", FIRST + 12, 2, "b")])
    feed.ddl("shop.old", FIRST + 40, "RENAME TABLE `shop`.`orders` TO `shop`.`old`", 14)
    feed.create("shop.orders", FIRST + 50)
    both = feed.rows("shop.orders", FIRST, [("U", FIRST + 14, 2, "c"), ("I", FIRST + 60, 7, "z")])
    feed.publish(FIRST + 70)
    pipeline = Pipeline(feed.settings(), feed.settings().open_source(), lake, ledger)
    pipeline.apply("test")
    assert [entry.life for entry in ledger.files("little")] == [
        *[f"shop.orders@{FIRST}"] * 2,
        f"shop.orders@{FIRST + 50}",
    ]
    for path in (both, lost):
        path.rename(path.with_suffix(".away"))
        with pytest.raises(ExtractRefused, match="left the feed"):
            extract(pipeline, "shop.old", FIRST, FIRST + 30)
        with pytest.raises(RebuildRefused, match=re.escape(path.name)):
            rebuild(pipeline, MemoryRebuilds(lake), ["shop.old"], "again")
        path.with_suffix(".away").rename(path)


def test_a_file_that_a_kind_has_not_applied_is_reported_when_it_is_gone(orders: LittleFeed) -> None:
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    pipeline = opened(orders, lake, ledger)
    pipeline.apply("test")
    read = ledger.files(pipeline.settings.name)[-1]
    (orders.bucket / read.path).unlink()
    applied = lake.applied()
    behind = {
        life: replace(state, progress=Progress(FIRST, Phase.ROWS)) if life.kind else state
        for life, state in applied.items()
    }
    source = pipeline.settings.open_source()
    for states, expected_count in ((applied, 0), (behind, 1)):
        findings = file_findings(source, source.listing(), ledger.files(pipeline.settings.name), states)
        assert len([finding for finding in findings if finding.rule == "files-vanished"]) == expected_count


def test_what_a_reading_lost_is_told_of_the_mirror_and_of_its_log(orders: LittleFeed) -> None:
    ledger, mirror = Ledger("sqlite://"), Life(TableId("shop", "orders"), 1)
    log, column = replace(mirror, kind="log"), ColumnFidelity("v", "FLOAT", "float", Grade.LOSSLESS, "")
    for life in (mirror, log):
        ledger.record_columns("f", {life: (column,)})
        ledger.record_files("f", life, [FileStats("a.csv", 1, "", 1, 1, 1, {("v", "rounded"): 2})], "run", None)
    assert [dict(fidelity.notes) for life in (mirror, log) for fidelity in ledger.fidelity("f", life)] == [
        {"rounded": 2}
    ] * 2
