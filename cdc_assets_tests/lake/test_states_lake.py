"""Tables of states on Spark and Iceberg: what the page on history says, what upkeep finds, records that come late."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_assets.features.quarantine.operations import replay
from cdc_assets.lake import Lake
from cdc_assets.lake.maintenance import LakeMaintenance
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.little_feed import FIRST, LittleFeed

pytestmark = pytest.mark.timeout(900)


def test_the_statements_of_the_page_on_history_tell_the_rows_of_then(spark: SparkSession, tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("shop.orders")
    day = 86_400_000 << 18
    changes = [
        ("I", FIRST + 1, 1, "a"),
        ("I", FIRST + 2, 2, "b"),
        ("U", FIRST + day, 1, "c"),
        ("D", FIRST + day, 2, "b"),
    ]
    feed.rows("shop.orders", FIRST, changes)
    feed.publish(FIRST + 2 * day)
    lake = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "little", lambda: spark)
    given = feed.settings(history={"shop.*": ["log", "scd2"]})
    assert Pipeline(given, given.open_source(), lake, Ledger("sqlite://")).apply("test").complete
    page = (Path(__file__).parents[2] / "docs" / "history.md").read_text()
    folded, changed, states = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    with lake.workbench.sessions.step() as session:
        session.spark.sql(f"USE {session.catalog}")

        def rows(statement: str, *columns: str) -> list[tuple[object, ...]]:
            states = session.spark.sql(statement.replace("amount", "v"))
            return [tuple(row) for row in states.select(*columns).collect()]

        assert rows(folded, "id", "v") == [(1, "c")]
        assert rows(changed, "_change_type", "id", "v") == [("INSERT", 1, "a"), ("INSERT", 2, "b")]
        answers = [rows(statement, "id", "v") for statement in states.strip().split(";") if statement]
    assert [sorted(answer) for answer in answers] == [[(1, "c")], [(1, "a"), (2, "b")], [(1, "a"), (1, "c")]]
    life = Life(TableId("shop", "orders"), FIRST, "scd2")
    schema = (
        Pipeline(given, given.open_source(), lake, Ledger("sqlite://")).planner.plan()[1].history.lives[life].schema
    )

    def faults() -> tuple[str, str]:
        """What maintenance finds in all of it, and a run in what was written since the first change."""
        lake.state.discard_listing()
        return LakeMaintenance(lake, given.maintenance).problem(life, schema), lake.look_at_states(life, FIRST, schema)

    assert faults() == ("", "")
    with lake.workbench.sessions.step() as session:
        table = session.name(lake.state.find(life).identifier)
        session.spark.sql(f"UPDATE {table} SET _cdc_end_ts = _cdc_end_ts + 1 WHERE v = 'a'")
        session.spark.sql(f"DELETE FROM {table} WHERE v = 'c'")
        session.spark.sql(f"UPDATE {table} SET _cdc_end_ts = NULL WHERE v = 'b'")
        session.spark.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE v = 'b'")
    whole, recent = faults()
    assert "1 of its states overlap the next one of their key (key 2)" in whole
    assert "2 of its open states are no rows of shop.orders (key 2, 2)" in whole
    assert "of the rows of shop.orders 1 have no open state (key 1)" in whole
    assert "1 of its states overlap the next one of their key (key 2)" in recent
    assert "the open state is not the row of the mirror, for 2 of the keys (key 1, 2)" in recent
    assert "there are 2 open states, and shop.orders has 1 row." in recent
    lake.close()


def test_a_replayed_record_is_the_state_that_it_was_between_the_others(spark: SparkSession, tmp_path: Path) -> None:
    feed, lake = LittleFeed(tmp_path), Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "little", lambda: spark)
    feed.create("shop.orders")
    broken = [("I", FIRST + 10, 1, "a"), ("U", FIRST + 11, 1, "b" * 50), ("U", FIRST + 12, 1, "c")]
    path = feed.rows("shop.orders", FIRST, broken)
    feed.publish(FIRST + 20)
    rule = {"kinds": ["scd2"], "mirror": False}
    pipeline = feed.pipeline_into(lake, history={"shop.*": rule}, quarantine=True)
    pipeline.apply("test")
    feed.rows("shop.orders", FIRST, [("U", FIRST + 31, 1, "d"), ("I", FIRST + 32, 2, "x")])
    feed.publish(FIRST + 40)
    pipeline.apply("test")
    path.write_bytes(path.read_bytes().replace(b"b" * 50, b"b"))
    assert [(replay_result.waiting, replay_result.reason) for replay_result in replay(pipeline, "shop.orders")] == [
        (0, "")
    ]
    rows = lake.read(TableId("shop", "orders__scd2")).sort_by("_cdc_start_ts").to_pylist()
    states = [(row["id"], row["v"], row["_cdc_start_ts"] - FIRST, row["_cdc_end_ts"]) for row in rows]
    ends = [None if end is None else end - FIRST for *_, end in states]
    assert [(*state[:3], end) for state, end in zip(states, ends, strict=True)] == [
        *[(1, "a", 10, 11), (1, "b", 11, 12), (1, "c", 12, 31), (1, "d", 31, None), (2, "x", 32, None)]
    ]
    lake.close()
