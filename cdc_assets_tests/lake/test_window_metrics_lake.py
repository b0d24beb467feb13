"""Row arithmetic on the real lake: every kind of window adds up, and a table that somebody else wrote to does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from cdc_assets.lake import Lake
from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.model.window_metrics import WindowMetrics, measure_window
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.lake.table_source import ORDERS, SCHEMA, Source
from cdc_assets_tests.little_feed import FIRST, LittleFeed


def applied(source: Source, hi: int, *rows: tuple[object, ...]) -> WindowMetrics:
    step, opener = source.window(hi, list(rows))
    staged = source.lake.stage(step, opener)
    return measure_window(step, staged.rows, staged.report, source.lake.commit(step, staged), 0.0, 1.0)


def test_loads_updates_deletes_and_empty_windows_add_up(lake: Lake) -> None:
    orders = Source(lake)
    metrics = [
        applied(orders, 200, ("I", 110, 1, "a"), ("I", 111, 2, "b"), ("I", 112, 3, "c")),
        applied(orders, 300, ("U", 210, 1, "A"), ("D", 220, 2, "b"), ("I", 230, 4, "d")),
        applied(orders, 400, ("I", 310, 5, "e"), ("D", 320, 5, "e")),
        applied(orders, 500),
    ]
    counts = [
        (window.rows_before, window.inserted, window.updated, window.deleted, window.rows_after, window.entering)
        for window in metrics
    ]
    assert counts == [(0, 3, 0, 0, 3, 3), (3, 1, 1, 1, 3, 2), (3, 0, 0, 0, 3, 0), (3, 0, 0, 0, 3, 0)]
    assert [window.mismatch for window in metrics] == [""] * 4


def test_a_table_without_key_adds_up(lake: Lake) -> None:
    clicks = Source(lake, TableId("shop", "clicks"), replace(SCHEMA, key=()))
    metrics = [
        applied(clicks, 200, ("I", 110, 1, "a"), ("I", 111, 1, "a"), ("I", 112, 2, "b")),
        applied(clicks, 300, ("D", 210, 1, "a"), ("I", 220, 3, "c")),
    ]
    assert [(window.rows_before, window.rows_after) for window in metrics] == [(0, 3), (3, 3)]
    assert [window.mismatch for window in metrics] == ["", ""]


def test_windows_of_logs_and_of_states_that_end_add_up(tmp_path: Path, spark: SparkSession) -> None:
    feed, ledger = LittleFeed(tmp_path), Ledger("sqlite://")
    lake = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "little", lambda: spark)
    feed.create("shop.orders")
    given = feed.settings(history={"shop.*": ["log", "scd2"]})
    windows = [
        [("I", FIRST + 1, 1, "a"), ("U", FIRST + 2, 1, "b"), ("I", FIRST + 3, 2, "c"), ("I", FIRST + 4, 3, "d")],
        [("U", FIRST + 11, 1, "e"), ("U", FIRST + 12, 1, "f"), ("D", FIRST + 13, 2, "c"), ("I", FIRST + 14, 4, "g")],
    ]
    counts_by_kind: dict[str, list[tuple[int | None, ...]]] = {}
    for number, rows in enumerate(windows):
        feed.rows("shop.orders", FIRST, rows)
        feed.publish(FIRST + 10 * number + 9)
        Pipeline(given, given.open_source(), lake, ledger).apply("test")
        for life, (*others, window) in ledger.accounts("little").items():
            assert (others, window.mismatch) == ([], "")
            counts = (window.rows_before, window.inserted, window.updated, window.deleted, window.rows_after)
            counts_by_kind.setdefault(life.rpartition(".")[2], []).append(counts)
    assert counts_by_kind["log"] == [(0, 4, 0, 0, 4), (4, 4, 0, 0, 8)]
    assert counts_by_kind["scd2"] == [(0, 4, 0, 0, 4), (4, 3, 2, 0, 7)]
    lake.close()


def test_a_row_that_somebody_wrote_twice_is_found_out_by_the_next_change_of_it(lake: Lake, spark: SparkSession) -> None:
    orders = Source(lake)
    assert applied(orders, 200, ("I", 110, 1, "a"), ("I", 111, 2, "b")).mismatch == ""
    with lake.workbench.sessions.step() as session:
        name = session.name(lake.state.named(ORDERS).identifier)
        session.spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE id = 1")
    lake.applied()
    wrong = applied(orders, 300, ("U", 210, 1, "A"))
    assert "had to write 1 row and wrote 2" in wrong.mismatch
