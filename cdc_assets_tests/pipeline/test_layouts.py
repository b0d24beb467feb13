"""Layouts by settings: what a new table gets, what a standing one keeps, and the DDL that a layout does not bear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_assets.errors import BadSettings
from cdc_assets.model.layout import TableLayout, Transform
from cdc_assets.model.progress import State
from cdc_assets.model.schema import TableId
from cdc_assets.pipeline.outcome import Outcome, TableOutcome
from cdc_assets.settings.config import load
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.schema_documents import document, file_column, write_schema

BUCKETS = {"shop.orders": ["bucket(4, id)"]}
_ID = file_column("id", "INT", "11", is_key=True)


@pytest.fixture
def feed(tmp_path: Path) -> LittleFeed:
    feed = LittleFeed(tmp_path)
    feed.create("shop.orders")
    feed.rows("shop.orders", FIRST, [("I", FIRST + 10, 1, "a")])
    feed.publish(FIRST + 20)
    return feed


def applied(feed: LittleFeed, lake: MemoryLake, **settings: Any) -> Outcome:
    return feed.pipeline_into(lake, **settings).apply("test")


def layout_of(lake: MemoryLake, name: str = "orders") -> TableLayout:
    (state,) = (state for state in lake.applied().values() if state.name == TableId("shop", name))
    return state.layout


def notes(outcome: Outcome) -> list[str]:
    return [finding.detail for finding in outcome.findings if finding.rule == "layout"]


def orders(outcome: Outcome) -> TableOutcome:
    return next(table for table in outcome.tables if not table.life.kind)


def test_a_new_table_is_laid_out_as_the_settings_ask_and_its_history_tables_are_not(feed: LittleFeed) -> None:
    lake = MemoryLake()
    given = {"partition_by": {"shop.*": "bucket(4, ID), V"}, "sort_by": {"*.*": ["id"]}}
    outcome = applied(feed, lake, **given, table_properties={"shop.*": {"a": 1}}, history={"shop.*": "log"})
    expected = TableLayout(
        (Transform("bucket", "id", 4), Transform("identity", "v")), (Transform("identity", "id"),), {"a": "1"}
    )
    assert layout_of(lake) == expected
    assert layout_of(lake, "orders__log") == TableLayout(properties={"a": "1"})
    assert outcome.complete
    assert not notes(applied(feed, lake, **given, table_properties={"shop.*": {"a": 1}}, history={"shop.*": "log"}))


def test_a_standing_table_keeps_its_layout_and_the_way_to_another_is_told(feed: LittleFeed) -> None:
    lake = MemoryLake()
    assert not notes(applied(feed, lake))
    feed.rows("shop.orders", FIRST, [("U", FIRST + 30, 1, "b")])
    feed.publish(FIRST + 40)
    outcome = applied(feed, lake, partition_by=BUCKETS)
    assert outcome.complete
    assert notes(outcome) == ["it has neither partitions nor an order, and is to have partitions bucket(4, id)"]
    assert layout_of(lake) == TableLayout()


def test_the_order_of_a_standing_table_changes_with_its_next_window_and_is_not_taken_away(feed: LittleFeed) -> None:
    lake = MemoryLake()
    applied(feed, lake)
    given: list[tuple[dict[str, Any], list[str], int]] = [
        ({"*.*": "v"}, ["v"], 0),
        ({"*.*": "V, id"}, ["v", "id"], 0),
        ({}, ["v", "id"], 1),
        ({"*.*": "none"}, ["v", "id"], 1),
    ]
    for number, (sort_by, expected, noted) in enumerate(given):
        feed.rows("shop.orders", FIRST, [("U", FIRST + 30 + number, 1, f"{number}")])
        feed.publish(FIRST + 30 + number)
        outcome = applied(feed, lake, sort_by=sort_by, history={"shop.*": "log"})
        assert [transform.column for transform in layout_of(lake).sort] == expected
        assert len(notes(applied(feed, lake, sort_by=sort_by, history={"shop.*": "log"}))) == noted, notes(outcome)
    assert layout_of(lake, "orders__log") == TableLayout()


def test_properties_of_a_standing_table_change_with_its_next_window(feed: LittleFeed) -> None:
    lake = MemoryLake()
    applied(feed, lake)
    given: tuple[dict[str, Any], ...] = ({"a": True, "b": "x"}, {"a": 7}, {})
    for number, properties in enumerate(given):
        feed.rows("shop.orders", FIRST, [("U", FIRST + 30 + number, 1, f"{number}")])
        feed.publish(FIRST + 30 + number)
        applied(feed, lake, table_properties={"shop.orders": properties})
        assert layout_of(lake).properties == {name: str(value).lower() for name, value in properties.items()}


@pytest.mark.parametrize(
    ("transforms", "reason"),
    [
        ("day(created_at)", 'no column "created_at"'),
        ("year(v)", "has the type string"),
        ("hour(id)", "has the type int"),
    ],
)
def test_a_new_table_that_cannot_be_laid_out_so_is_held_until_the_setting_is_corrected(
    feed: LittleFeed, transforms: str, reason: str
) -> None:
    lake = MemoryLake()
    table = orders(applied(feed, lake, partition_by={"shop.orders": transforms}))
    assert table.state is State.HELD
    assert reason in table.reason
    assert table.ways
    assert applied(feed, lake, partition_by=BUCKETS).complete


def test_a_standing_table_goes_on_where_the_setting_cannot_be_followed(feed: LittleFeed) -> None:
    lake = MemoryLake()
    applied(feed, lake)
    outcome = applied(feed, lake, sort_by={"shop.orders": ["nothing"]})
    assert outcome.complete
    assert notes(outcome) == ['there is no column "nothing"']


def test_a_column_that_is_renamed_keeps_its_part_and_the_setting_names_it_as_it_is_called_now(feed: LittleFeed) -> None:
    lake, once = MemoryLake(), MemoryLake()
    applied(feed, lake, partition_by=BUCKETS)
    feed.ddl(
        "shop.orders",
        FIRST + 30,
        "ALTER TABLE `orders` RENAME COLUMN `id` TO `number`",
        12,
        key={"ColumnName": "number"},
    )
    feed.rows("shop.orders", FIRST + 30, [("I", FIRST + 35, 2, "b")])
    feed.publish(FIRST + 40)
    outcome = applied(feed, lake, partition_by=BUCKETS)
    assert outcome.complete
    renamed = {"shop.orders": ["bucket(4, number)"]}
    assert notes(applied(feed, lake, partition_by=BUCKETS)) == ['there is no column "id"']
    assert notes(applied(feed, lake, partition_by=renamed)) == []
    assert applied(feed, once, partition_by=renamed).complete
    assert layout_of(lake) == layout_of(once) == TableLayout((Transform("bucket", "number", 4),))


@pytest.mark.parametrize("setting", ["partition_by", "sort_by"])
def test_a_ddl_that_takes_a_column_of_the_layout_holds_the_table_until_it_is_written_anew(
    feed: LittleFeed, setting: str
) -> None:
    lake = MemoryLake()
    feed.ddl("shop.orders", FIRST + 15, "ALTER TABLE `orders` ADD COLUMN `w` INT", 5, wide=True)
    feed.publish(FIRST + 20)
    given = {setting: {"shop.orders": ["w"]}}
    assert applied(feed, lake, **given).complete
    feed.ddl("shop.orders", FIRST + 30, "ALTER TABLE `orders` DROP COLUMN `w`", 6)
    feed.rows("shop.orders", FIRST + 30, [("I", FIRST + 35, 2, "b")])
    feed.publish(FIRST + 40)
    for settings in (given, {}):
        table = orders(applied(feed, lake, **settings))
        assert table.state is State.HELD
        assert 'there is no column "w"' in table.reason
        assert any("cdc-assets rebuild shop.orders" in way for way in table.ways)
    assert applied(feed, MemoryLake()).complete
    kept = applied(feed, lake, policies={"drop column": "keep"}, **given)
    assert kept.complete


@pytest.mark.parametrize("transform", ["{}", "bucket(4, {})"])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_column_that_is_called_as_partitions_by_an_older_name_holds_the_table(
    feed: LittleFeed, transform: str, at_once: bool
) -> None:
    lake, number = MemoryLake(), {"ColumnName": "number"}
    given = {"partition_by": {"shop.orders": [transform.format("id")]}}
    if not at_once:
        assert applied(feed, lake, **given).complete
    table, new = feed.bucket, "id" if transform == "{}" else "id_bucket"
    for at, query, names in (
        (30, "ALTER TABLE `orders` RENAME COLUMN `id` TO `number`", ["number"]),
        (31, f"ALTER TABLE `orders` ADD COLUMN `{new}` INT", ["number", new]),
    ):
        columns = [{**_ID, **number}, *(file_column(name, "INT") for name in names[1:])]
        write_schema(table, document("shop", "orders", FIRST + at, Query=query, Type=5, TableColumns=columns))
    feed.publish(FIRST + 40)
    given = {"partition_by": {"shop.orders": [transform.format("number")]}}
    held = orders(applied(feed, lake, **given))
    assert held.state is State.HELD
    assert f'the column "{new}" is called as the partitions of' in held.reason


@pytest.mark.parametrize("born", [True, False])
def test_a_new_table_whose_column_is_dropped_and_added_anew_is_not_laid_out_by_it(feed: LittleFeed, born: bool) -> None:
    name = "shop.items"
    feed.ddl(
        name, FIRST + 2, f"CREATE TABLE `items` (`id` INT PRIMARY KEY,`v` VARCHAR(40){',`w` INT' * born})", 3, wide=born
    )
    for at, verb, wide in ((12, "ADD", True), (14, "DROP", False), (16, "ADD", True)):
        if at > 12 or not born:
            query = f"ALTER TABLE `items` {verb} COLUMN `w`{' INT' * wide}"
            feed.ddl(name, FIRST + at, query, 5 if wide else 6, wide=wide)
    feed.publish(FIRST + 20)
    lake = MemoryLake()
    outcome = applied(feed, lake, partition_by={name: ["w"]})
    (items,) = (table for table in outcome.tables if str(table.name) == name)
    assert (items.state, f"by the DDL of version {FIRST + 14}" in items.reason) == (State.HELD, True)
    assert applied(feed, lake).complete


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"partition_by": {"shop.orders": ["week(at)"]}}, "known are identity"),
        ({"partition_by": {"shop.orders": []}}, "asks for nothing"),
        ({"sort_by": {"shop.orders": {"id": "asc"}}}, "expected a list"),
        ({"table_properties": {"shop.*": {"cdc.name": "x"}}}, "cannot be set"),
        ({"table_properties": {"shop.*": {"format-version": 2}}}, "commits depend on"),
    ],
)
def test_settings_that_are_wrong_are_refused_at_once(feed: LittleFeed, settings: Any, reason: str) -> None:
    with pytest.raises(BadSettings, match=reason):
        feed.settings(**settings)


def test_a_list_in_yaml_may_have_transforms_with_a_comma(tmp_path: Path) -> None:
    file = tmp_path / "changefeeds.yaml"
    file.write_text(
        "changefeeds:\n- sink_uri: s3://bucket?protocol=csv\n  partition_by: {shop.*: [day(at), bucket(16, id), b]}\n"
    )
    (partition,) = load(file).changefeed().layouts.partition_by.values()
    assert ", ".join(map(str, partition)) == "day(at), bucket(16, id), b"
