"""EXCHANGE PARTITION between tables of which the states alone are kept: each has its rows from the other's states."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from cdc_assets.errors import StorageUnavailable
from cdc_assets.lake import Lake
from cdc_assets.lake.swap import Rebuilds
from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import ExchangePartition
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.schema_documents import document, file_column, write_schema

pytestmark = pytest.mark.timeout(900)

_ID = file_column("id", "INT", is_key=True)
_PARTS = "PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (10),PARTITION `p1` VALUES LESS THAN (20))"
_EXCHANGE = "ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `x`"
STATES = {"shop.*": {"kinds": ["scd2"], "mirror": False}}
X = {"shop.x": STATES["shop.*"]}


def number(name: str) -> dict[str, str]:
    """A column: `name`, `name type` or `name=default`; INT where no type is given."""
    name, _, default = name.partition("=")
    name, _, kind = name.partition(" ")
    return {"ColumnName": name, "ColumnType": kind or "INT", **({"ColumnDefault": default} if default else {})}


class Exchange:
    """`shop.p`, which has partitions, and `shop.x`: a number beside the key, by the names that a test gives it."""

    def __init__(self, directory: Path, spark: SparkSession) -> None:
        self.feed = LittleFeed(directory)
        self.lake = Lake(LakeSettings.from_warehouse(directory / "lake"), "little", lambda: spark)
        self.ledger = Ledger("sqlite://")
        self.ddl("p", 0, f"CREATE TABLE `p` (`id` INT PRIMARY KEY,`v` INT) {_PARTS}", 3, "v")
        self.ddl("x", 0, "CREATE TABLE `x` (`id` INT PRIMARY KEY,`v` INT)", 3, "v")

    def ddl(self, table: str, at: int, query: str, kind: int, *names: str) -> None:
        columns = [_ID, *map(number, names)]
        schema_document = document("shop", table, FIRST + at, Query=query, Type=kind, TableColumns=columns)
        write_schema(self.feed.bucket, schema_document)

    def exchange(self, at: int, *names: str) -> None:
        self.ddl("p", at, _EXCHANGE, 42, *names)
        self.ddl("x", at, "", 0, *names)

    def rows(self, table: str, at: int, *rows: tuple[str, int, int, str]) -> None:
        self.feed.rows(f"shop.{table}", FIRST + at, [(op, FIRST + ts, key, v) for op, ts, key, v in rows])

    def apply(self, through: int, history: Any = STATES, spoil: str = "") -> Outcome:
        """Apply the feed; the exchange of the table `spoil` fails as often as it is tried."""
        self.feed.publish(FIRST + through)
        pipeline, run = self.pipeline(history), self.lake.run

        def failing(step: Any) -> Any:
            if isinstance(step, ExchangePartition) and step.life.born_as.table == spoil:
                raise StorageUnavailable("the storage does not answer")
            return run(step)

        with patch.object(self.lake, "run", failing):
            return pipeline.apply("test")

    def pipeline(self, history: Any) -> LakePipeline:
        settings = self.feed.settings(history=history)
        return LakePipeline(settings, settings.open_source(), self.lake, self.ledger)

    def states(self, table: str) -> list[tuple[Any, ...]]:
        rows = self.lake.read(TableId("shop", f"{table}__scd2")).to_pylist()
        return sorted(
            (*(row[name] for name in row if not name.startswith("_")), *(_offset(row[name]) for name in _ENDS))
            for row in rows
        )


_ENDS = ("_cdc_start_ts", "_cdc_end_ts")


def _offset(at: int | None) -> int:
    return -1 if at is None else at - FIRST


def stopped(outcome: Outcome) -> list[tuple[str, str]]:
    return [(str(table.name), table.reason) for table in outcome.tables if table.reason]


def test_tables_of_states_exchange_rows_by_the_names_of_then(spark: SparkSession, tmp_path: Path) -> None:
    shop = Exchange(tmp_path, spark)
    shop.rows("p", 0, ("I", 1, 1, "5"))
    shop.rows("x", 0, ("I", 2, 3, "6"))
    assert stopped(shop.apply(10)) == []
    shop.exchange(40, "v", "w=7")  # no window reaches up to it, and its schema files are the first to show `w`
    shop.ddl("p", 50, "ALTER TABLE `p` RENAME COLUMN `v` TO `u`", 82, "u", "w=7")
    shop.ddl("p", 52, "ALTER TABLE `p` ADD COLUMN `v` INT DEFAULT 9", 5, "u", "w=7", "v=9")
    assert [name for name, _ in stopped(shop.apply(60, spoil="x"))] == ["shop.x__scd2"]
    assert shop.states("p") == [(1, 5, 7, 9, 1, 40), (3, 6, 7, 9, 40, -1)]
    assert stopped(shop.apply(60)) == []
    assert shop.states("x") == [(1, 5, 7, 40, -1), (3, 6, 7, 2, 40)]
    shop.lake.close()


@pytest.mark.soak
def test_values_that_were_converted_since_are_not_exchanged(spark: SparkSession, tmp_path: Path) -> None:
    shop = Exchange(tmp_path, spark)
    shop.rows("p", 0, ("I", 1, 1, "5"))
    shop.rows("x", 0, ("I", 2, 3, "6"))
    shop.exchange(40, "v")
    shop.ddl("p", 50, "ALTER TABLE `p` MODIFY COLUMN `v` BIGINT", 12, "v BIGINT")
    shop.apply(60, spoil="x")
    ((name, reason),) = stopped(shop.apply(60))
    assert name == "shop.x__scd2"
    assert 'values of the column "v" that were converted since, from INT' in reason
    rebuild(shop.pipeline(STATES), Rebuilds(shop.lake), ["shop.x__scd2"])
    assert shop.states("p") == [(1, 5, 1, 40), (3, 6, 40, -1)]
    assert shop.states("x") == [(1, 5, 40, -1), (3, 6, 2, 40)]
    shop.lake.close()


def test_a_mirror_has_the_rows_of_a_table_without_one_from_its_states(spark: SparkSession, tmp_path: Path) -> None:
    shop = Exchange(tmp_path, spark)
    shop.rows("p", 0, ("I", 1, 1, "5"))
    shop.rows("x", 0, ("I", 2, 3, "6"))
    shop.exchange(40, "v")
    assert stopped(shop.apply(50, {"shop.p": "log", **X})) == []
    assert [row["id"] for row in shop.lake.read(TableId("shop", "p")).to_pylist()] == [3]
    shop.ddl("p", 60, "TRUNCATE TABLE `p`", 11, "v")
    assert stopped(shop.apply(70, {"shop.p": {"kinds": ["log"], "mirror": False}, **X})) == []
    log = shop.lake.read(TableId("shop", "p__log")).to_pylist()
    changes = [(row["_change_type"], row["_cdc_position"] - FIRST, row["id"]) for row in log]
    assert sorted(changes, key=lambda change: change[1:2]) == [
        ("INSERT", 1, 1), ("DELETE", 40, 1), ("INSERT", 40, 3), ("TRUNCATE", 60, None)
    ]  # fmt: skip
    shop.lake.close()
