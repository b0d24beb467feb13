"""History tables on Spark and Iceberg: the same histories as in memory, with upkeep between windows."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from cdc_assets.errors import BadSettings
from cdc_assets.lake import Lake, swap, windows
from cdc_assets.lake.maintenance import LakeMaintenance
from cdc_assets.lake.swap import Rebuilds
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Life, State
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import tso_time
from cdc_assets.operations.as_of import as_of
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.maintenance import maintain
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.lake.test_histories_lake import read
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.pipeline.test_renamed_into_rules import RULES, Applied, Source
from cdc_assets_tests.returned_columns import PARTED, PLAIN, ReturnedColumns

pytestmark = pytest.mark.timeout(900)


def test_a_log_is_compacted_in_order_rebuilt_alone_and_renamed(spark: SparkSession, tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("shop.orders")
    lake = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "little", lambda: spark)

    def pipeline(**more: Any) -> LakePipeline:
        settings = feed.settings(maintenance={"small_files": 2}, **more)
        return LakePipeline(settings, settings.open_source(), lake, ledger)

    ledger = Ledger("sqlite://")
    for number in range(3):
        at = FIRST + 10 * number
        file = feed.rows("shop.orders", FIRST, [("I", at + 9, number, "a"), ("U", at + 8, 0, f"b{number}")])
        feed.publish(at + 10)
        with patch.object(windows, "EVERY", 3):
            pipeline(history={"shop.*": "log"}).apply("test")
    log = TableId("shop", "orders__log")
    assert lake.state.named(log).data_files == 1
    positions = lake.read(log).column("_cdc_position").to_pylist()
    assert positions == sorted(positions)
    feed.ddl("shop.orders", FIRST + 40, "TRUNCATE TABLE `orders`", 11)
    feed.publish(FIRST + 50)
    pipeline(history={"shop.*": "log"}).apply("test")
    before = lake.read(log).sort_by([("_cdc_position", "ascending"), ("id", "ascending")])
    assert before.column("_change_type").to_pylist()[-3:] == ["DELETE"] * 3
    done = maintain(pipeline(history={"shop.*": "log"}), time.time_ns() // 1_000_000)
    assert [str(table.problem) for table in done.tables if table.problem] == []
    compacted = lake.read(log)
    positions = compacted.column("_cdc_position").to_pylist()
    assert positions == sorted(positions)
    assert lake.state.named(log).data_files == 1
    rebuild(pipeline(history={"shop.*": "log"}), Rebuilds(lake), ["shop.orders__log"])
    order = [("_cdc_position", "ascending"), ("id", "ascending")]
    assert lake.read(log).sort_by(order).equals(before)
    file.unlink()
    pipeline(history={"shop.orders": {"kinds": ["log"], "suffix": {"log": "__changes"}}}).apply("test")
    assert lake.names() == {TableId("shop", "orders"), TableId("shop", "orders__changes")}
    lake.close()


@pytest.mark.parametrize("kinds", [["log", "scd2"], ["scd2"]], ids=["beside a mirror", "states alone"])
def test_rows_of_partitions_by_a_column_that_came_back_move_in_history_tables(
    spark: SparkSession, tmp_path: Path, kinds: list[str]
) -> None:
    returned = {PARTED, PLAIN}
    feed = ReturnedColumns(tmp_path, returned).feed
    lake = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "little", lambda: spark)
    settings = feed.settings(history={"shop.*": {"kinds": kinds, "mirror": "log" in kinds}})
    outcome = LakePipeline(settings, settings.open_source(), lake, Ledger("sqlite://")).apply("test")
    assert [(str(table.name), table.reason) for table in outcome.tables if table.reason] == []
    mismatches = ReturnedColumns.differences(lambda name: lake.read(TableId(*name.split("."))), returned, kinds)
    assert mismatches == []
    lake.close()


def test_histories_begin_at_the_rename_that_brings_their_table_under_the_rule(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, warehouse, ledger = (
        Source(tmp_path, "ax"),
        LakeSettings.from_warehouse(tmp_path / "lake"),
        Ledger("sqlite://"),
    )
    memory, lake = Applied(source), Lake(warehouse, "little", lambda: spark)
    settings = source.settings(history=RULES)

    def pipeline() -> LakePipeline:
        return LakePipeline(settings, settings.open_source(), lake, ledger)

    def rows(life: Life) -> list[str]:
        names = [name for name in memory.lake.tables[life].rows.column_names if name != "_cdc_commit_time"]
        return sorted(map(str, read(lake, lake.state.tables()[life]).select(names).to_pylist()))

    def expected(life: Life) -> list[str]:
        table = memory.lake.tables[life].rows
        names = [name for name in table.column_names if name != "_cdc_commit_time"]  # which a lake in memory lacks
        return sorted(map(str, table.select(names).to_pylist()))

    for number in (0, 1, 2, 4):
        source.write("x", number)
    source.published()
    assert [*(table.reason for table in pipeline().apply("test").tables if table.reason), *memory.apply()] == []
    source.swap("a", "x")
    source.write("a", 0)
    source.published()
    assert [*(table.reason for table in pipeline().apply("test").tables if table.reason), *memory.apply()] == []
    born = source.tables["a"].life
    log, states = (Life(born.born_as, born.version, kind) for kind in ("log", "scd2"))
    begins = source.tables["a"].begins("scd2", RULES)
    for _ in range(2):
        assert {life: rows(life) for life in (log, states)} == {life: expected(life) for life in (log, states)}
        applied = lake.applied()
        assert [(applied[life].begins, applied[life].since) for life in (log, states)] == [
            (begins, begins - 1),
            (begins, None),
        ]
        rebuild(pipeline(), Rebuilds(lake), ["s.a__scd2", "s.a__log"])
    (shown,) = as_of(warehouse, "little", str(begins), ["s.a__scd2"]).tables
    assert (shown.exact, shown.reason) == (True, "")
    with pytest.raises(BadSettings, match=f"they begin at {begins}"):
        as_of(warehouse, "little", str(begins - 1), ["s.a__scd2"])
    before = as_of(warehouse, "little", str(begins - 1), ["s.a", str(states)]).tables
    (reason,) = (table.reason for table in before if table.snapshot_id is None)
    assert reason.startswith(f"it begins at {begins} ({tso_time(begins)}), with the RENAME")
    lake.close()


def test_without_a_mirror_a_truncate_is_a_row_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("shop.orders")
    feed.rows("shop.orders", FIRST, [("I", FIRST + 9, 1, "a")])
    feed.ddl("shop.orders", FIRST + 40, "TRUNCATE TABLE `orders`", 11)
    feed.publish(FIRST + 50)
    lake = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "little", lambda: spark)
    settings = feed.settings(history={"shop.*": {"kinds": ["log"], "mirror": False}})
    outcome = LakePipeline(settings, settings.open_source(), lake, Ledger("sqlite://")).apply("test")
    assert [(str(table.name), table.reason) for table in outcome.tables] == [("shop.orders__log", "")]
    rows = lake.read(TableId("shop", "orders__log")).sort_by("_cdc_position").to_pylist()
    assert [(row["_change_type"], row["_cdc_position"], row["id"]) for row in rows] == [
        ("INSERT", FIRST + 9, 1),
        ("TRUNCATE", FIRST + 40, None),
    ]
    lake.close()


def test_without_a_mirror_a_log_is_held_by_a_recovered_table_until_it_is_rebuilt(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("shop.orders")
    feed.rows("shop.orders", FIRST, [("I", FIRST + 9, 1, "a")])
    feed.ddl("shop.orders", FIRST + 40, "DROP TABLE `orders`", 4)
    feed.ddl("shop.orders", FIRST + 60, "RECOVER TABLE `orders`", 25)
    feed.publish(FIRST + 70)
    lake = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "little", lambda: spark)
    ledger = Ledger("sqlite://")

    def pipeline(**rule: Any) -> LakePipeline:
        settings = feed.settings(history={"shop.*": {"kinds": ["log"], **rule}})
        return LakePipeline(settings, settings.open_source(), lake, ledger)

    (table,) = pipeline(mirror=False).apply("test").tables
    assert table.state is State.HELD
    assert "are not in the lake as they were" in table.reason
    assert "Rebuild it together with a mirror" in table.reason
    pipeline().apply("test")
    rebuild(pipeline(), Rebuilds(lake), ["shop.orders__log"])
    rows = lake.read(TableId("shop", "orders__log")).sort_by("_cdc_position").to_pylist()
    changes = [(row["_change_type"], row["_cdc_position"], row["id"]) for row in rows]
    assert changes == [("INSERT", FIRST + 9, 1), ("DELETE", FIRST + 40, 1), ("INSERT", FIRST + 60, 1)]
    lake.close()


def test_maintenance_folds_a_log_and_names_the_first_keys_where_that_is_not_its_mirror(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("shop.orders")
    feed.create("shop.notes", keyed=False)
    feed.rows("shop.orders", FIRST, [("I", FIRST + 5, 1, "gone")])
    feed.ddl("shop.orders", FIRST + 6, "TRUNCATE TABLE `orders`", 11)
    changes = [("I", FIRST + 9, number, "a") for number in range(5)]
    feed.rows("shop.orders", FIRST + 6, [*changes, ("U", FIRST + 10, 0, "b"), ("D", FIRST + 11, 1, "a")])
    feed.rows("shop.notes", FIRST, [*changes, *changes[:1]])
    feed.publish(FIRST + 20)
    lake = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "little", lambda: spark)
    settings = feed.settings(maintenance={"small_files": 2}, history={"shop.*": "log"})
    pipeline = LakePipeline(settings, settings.open_source(), lake, Ledger("sqlite://"))
    pipeline.apply("test")
    lives = {
        life.born_as.table: (life, table)
        for life, table in pipeline.planner.plan()[1].history.lives.items()
        if life.kind
    }
    keeper = LakeMaintenance(lake, settings.maintenance)

    def problem(table: str) -> str:
        life, history = lives[table]
        lake.state.discard_listing()
        return keeper.problem(life, history.schema)

    assert (problem("orders"), problem("notes")) == ("", "")
    life, history = lives["notes"]
    with lake.workbench.sessions.step() as session:
        for printed, text in ((life, "[1, 2]"), (life.source, "[1,2]")):
            name = session.name(lake.state.find(printed).identifier)
            session.spark.sql(f"UPDATE {name} SET v = '{text}' WHERE id = 4")
    assert "of its different rows 2 are there" in problem("notes")
    columns = (replace(column, type="JSON" if column.name == "v" else column.type) for column in history.schema.columns)
    assert keeper.problem(life, replace(history.schema, columns=tuple(columns))) == ""
    with lake.workbench.sessions.step() as session:
        orders, notes = (session.name(lake.state.find(lives[name][0]).identifier) for name in ("orders", "notes"))
        session.spark.sql(f"UPDATE {orders} SET v = 'c' WHERE id = 0 AND v = 'b'")
        session.spark.sql(f"DELETE FROM {orders} WHERE id = 3")
        session.spark.sql(f"DELETE FROM {notes} WHERE id = 3")
    assert "of the rows to which its changes lead 1 are not so in shop.orders (key 0)" in problem("orders")
    assert "to 1 of the rows of shop.orders its changes do not lead (key 3)" in problem("orders")
    assert "of its different rows 3 are there another number of times than in shop.notes. Rebuild it" in problem(
        "notes"
    )
    lake.close()


@pytest.mark.parametrize("how", ["swapped", "replaced", "created"])
def test_a_rebuilt_history_table_says_of_itself_what_one_says_that_was_never_rebuilt(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    feed, ledger, kinds = LittleFeed(tmp_path), Ledger("sqlite://"), {"shop.*": ["log", "scd2"]}
    feed.create("shop.orders")
    file = feed.rows("shop.orders", FIRST, [("I", FIRST + 9, 1, "a"), ("U", FIRST + 10, 1, "b")])
    feed.ddl("shop.orders", FIRST + 20, "ALTER TABLE `orders` ADD COLUMN `w` INT", 5, wide=True)
    feed.publish(FIRST + 30)
    lakes = [Lake(LakeSettings.from_warehouse(tmp_path / name), "little", lambda: spark) for name in ("lake", "other")]

    def pipeline(lake: Lake, **more: Any) -> LakePipeline:
        settings = feed.settings(**more)
        return LakePipeline(settings, settings.open_source(), lake, ledger if lake is lakes[0] else Ledger("sqlite://"))

    def said(lake: Lake, name: str) -> tuple[Any, ...]:
        lake.state.discard_listing()
        table = lake.state.catalog.load_table(lake.state.named(TableId("shop", name)).identifier)
        names = ("_cdc_since", "cdc.columns", "cdc.keyed-since", "cdc.incomplete", "cdc.name")
        spec = [(field.name, str(field.transform)) for field in table.spec().fields]
        rows = table.scan().to_arrow().drop_columns(["_cdc_place"] if name.endswith("log") else []).to_pylist()
        own = next(table for table in lake.state.tables().values() if table.name == TableId("shop", name))
        properties = [table.properties.get(name) or None for name in names]
        return properties, own.label.recipe, spec, sorted(map(repr, rows))

    pipeline(lakes[0]).apply("test")
    pipeline(lakes[1], history=kinds).apply("test")
    if how != "created":
        data = file.read_bytes()
        file.unlink()
        pipeline(lakes[0], history=kinds).apply("test")
        assert lakes[0].state.named(TableId("shop", "orders__scd2")).since == FIRST + 30
        file.write_bytes(data)
    if how == "replaced":  # as where columns differ
        monkeypatch.setattr(swap, "columns_of", lambda table: object())
    rebuild(pipeline(lakes[0], history=kinds), Rebuilds(lakes[0]), ["shop.orders__log", "shop.orders__scd2"])
    for name in ("orders__log", "orders__scd2"):
        assert said(lakes[0], name) == said(lakes[1], name)
    outcome = pipeline(lakes[0], history=kinds).apply("test")
    assert [finding.rule for finding in outcome.findings if finding.rule.startswith("history")] == []
    for lake in lakes:
        lake.close()
