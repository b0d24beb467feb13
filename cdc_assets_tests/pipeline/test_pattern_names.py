"""Columns with names that polars takes for patterns, `^v$` and `*`, beside a column `v` that the pattern means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.features.forgetting.operations import forget
from cdc_assets.ledger import Ledger
from cdc_assets.operations.extract import extract
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests import little_feed
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryForgetting, MemoryLake

PATTERN = "^v$"
ROWS = [("I", 1, 1, "a"), ("I", 1, 2, "a"), ("I", 2, 3, "b"), ("U", 3, 1, "b"), ("U", 4, 1, "b"), ("D", 5, 3, "b")]
STATE = ("_cdc_start_ts", "_cdc_end_ts")


@pytest.fixture(params=[PATTERN, "*"], autouse=True)
def _each_pattern(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.PATTERN", request.param)


def history() -> Mapping[str, Any]:
    return {"shop.*": {"kinds": ["log", "scd2"], "track": [PATTERN]}}


class Shop:
    """A little feed whose first column has such a name, applied to a lake in memory."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, *, keyed: bool, **more: Any) -> None:
        monkeypatch.setitem(little_feed._ID, "ColumnName", PATTERN)
        self.feed, self.lake, self.ledger, self.more = LittleFeed(directory), MemoryLake(), Ledger("sqlite://"), more
        query = f"CREATE TABLE `t` (`{PATTERN}` INT{' PRIMARY KEY' if keyed else ''},`v` VARCHAR(40))"
        parts = (
            f" PARTITION BY RANGE (`{PATTERN}`) (PARTITION p VALUES LESS THAN (2), PARTITION q VALUES LESS THAN (9))"
        )
        self.feed.ddl("shop.t", FIRST, query + (parts if keyed else ""), 3, keyed=keyed)
        self.feed.rows("shop.t", FIRST, [(op, FIRST + at, key, text) for op, at, key, text in ROWS])
        if keyed:
            self.feed.ddl("shop.t", FIRST + 7, "ALTER TABLE `t` TRUNCATE PARTITION q", 32)
        self.feed.publish(FIRST + 9)

    def pipeline(self) -> Pipeline:
        return self.feed.pipeline_into(self.lake, self.ledger, **self.more)

    def rows(self, kind: str, *columns: str) -> list[tuple[Any, ...]]:
        (table,) = (table for life, table in self.lake.tables.items() if life.kind == kind)
        return sorted(tuple(row[name] for name in (PATTERN, "v", *columns)) for row in table.rows.to_pylist())


def test_rows_of_such_a_key_are_told_apart_by_it_in_every_kind_of_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, monkeypatch, keyed=True, history=history())
    assert shop.pipeline().apply("run").tables
    assert shop.rows("") == [(1, "b")]
    ends = [(key, start - FIRST, end and end - FIRST) for key, _, start, end in shop.rows("scd2", *STATE)]
    assert ends == [(1, 1, None), (2, 1, 7), (3, 2, 5)]
    assert len(shop.rows("log")) == len(ROWS) + 1
    changes = extract(shop.pipeline(), "shop.t", FIRST, FIRST + 6, net=True).changes.to_pylist()
    assert sorted((row[PATTERN], row["v"], row["_change_type"]) for row in changes) == [
        (1, "b", "UPDATE_AFTER"), (2, "a", "INSERT"), (3, "b", "DELETE"),
    ]  # fmt: skip
    assert forget(shop.pipeline(), MemoryForgetting(shop.lake), "shop.t", [["1"]]).complete
    assert shop.rows("") == []
    assert {key for key, _ in shop.rows("log")} == {2, 3}


def test_equal_rows_with_such_a_column_are_counted_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("I", 1, 1, "a"), ("I", 1, 2, "a"), ("I", 2, 1, "a"), ("D", 3, 2, "a")]
    monkeypatch.setattr("cdc_assets_tests.pipeline.test_pattern_names.ROWS", rows)
    shop = Shop(tmp_path, monkeypatch, keyed=False, history={"shop.*": "log"})
    assert shop.pipeline().apply("run").tables
    assert shop.rows("") == [(1, "a"), (1, "a")]
    assert len(shop.rows("log")) == 4
