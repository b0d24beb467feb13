"""Tables of states beside their mirrors, or alone: what a changefeed of one table makes of them."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.features.quarantine.operations import replay
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.returned_columns import PARTED, PLAIN, ReturnedColumns
from cdc_assets_tests.schema_documents import document, file_column, write_schema

SECOND = 1000 << 18
"""A second, as a TSO."""


@pytest.fixture
def orders(tmp_path: Path) -> LittleFeed:
    feed = LittleFeed(tmp_path)
    feed.create("shop.orders")
    feed.rows("shop.orders", FIRST, [("I", FIRST + 10, 1, "a"), ("I", FIRST + 11, 2, "b"), ("U", FIRST + 12, 1, "c")])
    feed.publish(FIRST + 20)
    return feed


def applied(feed: LittleFeed, lake: MemoryLake, history: object = "scd2", **settings: Any) -> Outcome:
    return feed.pipeline_into(lake, history={"shop.*": history}, **settings).apply("test")


def states(lake: MemoryLake, column: str = "v", name: str = "orders__scd2") -> list[tuple[Any, ...]]:
    """Key, value, start and end of each state, by key and start."""
    rows = lake.read(TableId("shop", name)).to_pylist()
    ends = [None if row["_cdc_end_ts"] is None else row["_cdc_end_ts"] - FIRST for row in rows]
    state_spans = [
        (row["id"], row[column], row["_cdc_start_ts"] - FIRST, end) for row, end in zip(rows, ends, strict=True)
    ]
    return sorted(state_spans, key=lambda state: (state[0], state[2]))


def test_a_state_lasts_from_its_change_to_the_next(orders: LittleFeed) -> None:
    lake = MemoryLake()
    applied(orders, lake)
    assert states(lake) == [(1, "a", 10, 12), (1, "c", 12, None), (2, "b", 11, None)]
    orders.rows("shop.orders", FIRST, [("D", FIRST + SECOND, 1, "c"), ("I", FIRST + 3 * SECOND, 1, "d")])
    orders.publish(FIRST + 4 * SECOND)
    applied(orders, lake)
    assert states(lake)[1:3] == [(1, "c", 12, SECOND), (1, "d", 3 * SECOND, None)]
    (gone,) = (row for row in lake.read(TableId("shop", "orders__scd2")).to_pylist() if row["v"] == "c")
    assert (gone["__END_AT"] - gone["__START_AT"]).total_seconds() == 1


def test_the_states_that_the_page_draws_are_those_of_its_row(tmp_path: Path) -> None:
    section = (Path(__file__).parents[2] / "docs" / "history.md").read_text().partition("## Every state of a row")[2]
    drawn, shown = re.findall(r"```\n(.*?)```", section, re.DOTALL)[:2]
    feed, lake = LittleFeed(tmp_path), MemoryLake()
    feed.create("shop.orders")
    before = ""
    for clock, word, value in re.findall(r"(\d\d:\d\d) (INSERT|UPDATE|DELETE) ?(\w*)", drawn):
        at = int(datetime.fromisoformat(f"2026-03-31T{clock}+00:00").timestamp() * 1000) << 18
        feed.rows("shop.orders", FIRST, [(word[0], at, 7, value or before)])
        before = value
    feed.publish(at + 1)
    applied(feed, lake, ["log", "scd2"])
    rows = lake.read(TableId("shop", "orders__scd2")).sort_by("_cdc_start_ts").to_pylist()
    times = [[str(row[name] and row[name].replace(tzinfo=None)) for name in ("__START_AT", "__END_AT")] for row in rows]
    lines = ["  ".join(["7", row["v"], *moments]) for row, moments in zip(rows, times, strict=True)]
    assert [re.sub(" {3,}", "  ", line) for line in shown.splitlines()[2:]] == lines
    logged = lake.read(TableId("shop", "orders__log")).sort_by("_cdc_position").column("_change_type").to_pylist()
    assert drawn.splitlines()[-1].split()[1:] == logged


def test_only_changes_of_tracked_columns_begin_a_state(tmp_path: Path) -> None:
    feed, lake, other = LittleFeed(tmp_path), MemoryLake(), MemoryLake()
    feed.create("shop.orders")
    feed.rows("shop.orders", FIRST, [("I", FIRST + 10, 1, "a"), ("U", FIRST + 11, 1, "a"), ("U", FIRST + 12, 1, "b")])
    feed.publish(FIRST + 20)
    for rules in ({"kinds": ["scd2"], "track": ["V"]}, {"kinds": ["scd2"], "track_except": ["id"]}):
        lake = MemoryLake()
        applied(feed, lake, rules)
        assert states(lake) == [(1, "a", 10, 12), (1, "b", 12, None)]
    feed.rows("shop.orders", FIRST, [("U", FIRST + 31, 1, "b"), ("U", FIRST + 32, 1, "c")])
    feed.publish(FIRST + 40)
    applied(feed, lake, rules)
    assert states(lake) == [(1, "a", 10, 12), (1, "b", 12, 32), (1, "c", 32, None)]
    applied(feed, other, {"kinds": ["scd2"], "track_except": ["v"]})
    assert states(other) == [(1, "c", 10, None)]


@pytest.mark.parametrize("rule", [{"track": ["u"]}, {"track_except": ["w"]}], ids=repr)
def test_a_column_that_was_renamed_is_tracked_under_its_names_of_then(tmp_path: Path, rule: dict[str, Any]) -> None:
    feed, lake = LittleFeed(tmp_path), MemoryLake()
    id_, v, w = (file_column(name, "VARCHAR", "9") for name in ("id", "v", "w"))
    statements = [("CREATE TABLE `orders` (`id` VARCHAR(9) PRIMARY KEY,`v` VARCHAR(9),`w` VARCHAR(9))", ("v", "w"))]
    statements += [("ALTER TABLE `orders` RENAME COLUMN `v` TO `u`", ("u", "w"))]
    statements += [("ALTER TABLE `orders` RENAME COLUMN `w` TO `v`", ("u", "v"))]
    statements += [("ALTER TABLE `orders` RENAME COLUMN `v` TO `w`", ("u", "w"))]
    for at, (query, names) in enumerate(statements):
        columns = [id_ | {"ColumnIsPk": "true"}, v | {"ColumnName": names[0]}, w | {"ColumnName": names[1]}]
        version = FIRST + 10 * at
        write_schema(feed.bucket, document("shop", "orders", version, Query=query, Type=82, TableColumns=columns))
        rows = [f'{a}","{at if a == "a" else 0}{b}' for a, b in (("a", 1), ("a", 2), ("b", 1))]
        ops = ("U" if at else "I", "U", "U")
        feed.rows("shop.orders", version, [(ops[n - 1], version + n, '"1"', row) for n, row in enumerate(rows, 1)])
    feed.publish(FIRST + 50)
    applied(feed, lake, {"kinds": ["scd2"], **rule})
    assert [(value, start) for _, value, start, _ in states(lake, "u")] == [
        (value, 10 * at + n) for at in range(4) for value, n in (("a", 1), ("b", 3))
    ]


def test_a_column_to_track_that_is_not_there_holds_the_states_alone(orders: LittleFeed) -> None:
    lake = MemoryLake()
    outcome = applied(orders, lake, {"kinds": ["scd2"], "track": ["w"]})
    held = {str(table.name): table.reason for table in outcome.tables if table.state == "held"}
    assert list(held) == ["shop.orders__scd2"]
    assert 'tracks the column "w"' in held["shop.orders__scd2"]
    assert lake.read(TableId("shop", "orders")).num_rows == 2


def test_a_table_without_key_has_no_states_and_says_so(tmp_path: Path) -> None:
    feed, lake = LittleFeed(tmp_path), MemoryLake()
    feed.create("shop.orders", keyed=False)
    feed.rows("shop.orders", FIRST, [("I", FIRST + 10, 1, "a")])
    feed.publish(FIRST + 20)
    outcome = applied(feed, lake)
    (held,) = (table for table in outcome.tables if table.state == "held")
    assert (str(held.name), "no key" in held.reason) == ("shop.orders__scd2", True)
    assert lake.read(TableId("shop", "orders")).num_rows == 1


def test_a_table_that_is_not_there_for_want_of_a_key_is_not_called_incomplete(tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.ddl("shop.notes", FIRST, "", 0, keyed=False)
    feed.publish(FIRST + 20)
    shown = {
        str(table.name): (table.state.value, bool(table.incomplete)) for table in applied(feed, MemoryLake()).tables
    }
    assert shown == {"shop.notes": ("applied", True), "shop.notes__scd2": ("held", False)}


@pytest.mark.parametrize("other", ["log", "scd2"])
def test_rows_that_an_exchange_brings_come_of_the_states_of_a_table_without_mirror(tmp_path: Path, other: str) -> None:
    feed, lake = ReturnedColumns(tmp_path, {PLAIN}).feed, MemoryLake()
    outcome = feed.pipeline_into(lake, history={PARTED: "log", PLAIN: {"kinds": [other], "mirror": False}}).apply(
        "test"
    )
    reasons = [table.reason for table in outcome.tables if table.life.born_as == TableId("shop", "p")]
    if other == "log":
        assert all("of which the lake has neither a mirror nor the states" in reason for reason in reasons)
        return
    log = lake.read(TableId("shop", "p__log")).to_pylist()
    assert (reasons, [row["id"] for row in log if row["_cdc_position"] == FIRST + 40]) == (["", ""], [1, 3])


def test_states_that_begin_late_have_not_all_the_rows_that_an_exchange_brings(tmp_path: Path) -> None:
    feed, lake, ledger = ReturnedColumns(tmp_path, set()).feed, MemoryLake(), Ledger("sqlite://")

    def reasons(history: dict[str, Any], through: int) -> list[str]:
        feed.publish(FIRST + through)
        outcome = feed.pipeline_into(lake, ledger, history=history).apply("test")
        return [table.reason for table in outcome.tables if table.life == Life(TableId("shop", "p"), FIRST)]

    assert reasons({}, 35) == [""]
    for file in feed.bucket.rglob("*.csv"):
        file.unlink()
    states = {PLAIN: {"kinds": ["scd2"], "mirror": False}}
    (reason,) = reasons(states, 45)
    assert "whose states begin later than its rows" in reason
    assert reasons(states, 46) == [reason]
    assert reasons({}, 47) == [""]
    assert sorted(row["id"] for row in lake.read(TableId("shop", "p")).to_pylist()) == [2, 3]


def test_rows_that_go_without_row_events_end_at_the_ddl(orders: LittleFeed) -> None:
    lake = MemoryLake()
    orders.ddl("shop.orders", FIRST + 30, "TRUNCATE TABLE `orders`", 11)
    orders.rows("shop.orders", FIRST, [("I", FIRST + 31, 2, "d")])
    orders.ddl("shop.orders", FIRST + 50, "DROP TABLE `orders`", 4, columns=False)
    orders.publish(FIRST + 40)
    applied(orders, lake)
    assert states(lake) == [(1, "a", 10, 12), (1, "c", 12, 30), (2, "b", 11, 30), (2, "d", 31, None)]
    orders.publish(FIRST + 60)
    applied(orders, lake)
    (table,) = (table for life, table in lake.tables.items() if life.kind)
    assert table.name is None
    assert table.rows.column("_cdc_end_ts").null_count == 0


def test_a_dropped_column_stays_and_one_that_comes_back_begins_new_states(orders: LittleFeed) -> None:
    lake = MemoryLake()
    wide, plain = "ALTER TABLE `orders` ADD COLUMN `w` INT DEFAULT 7", "ALTER TABLE `orders` DROP COLUMN `w`"
    orders.ddl("shop.orders", FIRST + 30, "ALTER TABLE `orders` ADD COLUMN `w` INT", 5, wide=True)
    applied(orders, lake)
    orders.publish(FIRST + 40)
    applied(orders, lake)
    assert states(lake, "w") == [(1, None, 10, 12), (1, None, 12, None), (2, None, 11, None)]
    orders.ddl("shop.orders", FIRST + 50, plain, 6)
    orders.publish(FIRST + 60)
    applied(orders, lake)
    assert lake.read(TableId("shop", "orders__scd2")).column_names[:3] == ["id", "v", "w"]
    orders.ddl("shop.orders", FIRST + 70, wide, 5, wide=True)
    orders.publish(FIRST + 80)
    applied(orders, lake)
    (table,) = (table for life, table in lake.tables.items() if life.kind)
    lives = [(life.since - FIRST, life.until and life.until - FIRST) for life in table.lives if life.column == "w"]
    assert lives == [(30, 50), (70, None)]


def test_since_when_the_source_had_a_column_is_the_same_in_one_go_and_step_by_step(orders: LittleFeed) -> None:
    often, once = MemoryLake(), MemoryLake()
    applied(orders, often, ["log", "scd2"])
    orders.ddl("shop.orders", FIRST + 30, "ALTER TABLE `orders` ADD COLUMN `w` INT", 5, wide=True)
    orders.publish(FIRST + 40)
    for lake in (often, once):
        applied(orders, lake, ["log", "scd2"])
        for life, table in lake.tables.items():
            since = [(life.column, life.since - FIRST) for life in table.lives]
            assert not life.kind or since == [("id", 0), ("v", 0), ("w", 30)], life


def test_states_stand_without_a_mirror(orders: LittleFeed) -> None:
    lake = MemoryLake()
    outcome = applied(orders, lake, {"kinds": ["scd2"], "mirror": False})
    assert [str(table.name) for table in outcome.tables] == ["shop.orders__scd2"]
    orders.rows("shop.orders", FIRST, [("U", FIRST + 31, 2, "d")])
    orders.publish(FIRST + 40)
    applied(orders, lake, {"kinds": ["scd2"], "mirror": False})
    assert states(lake)[2:] == [(2, "b", 11, 31), (2, "d", 31, None)]


@pytest.mark.parametrize("rule", ["scd2", {"kinds": ["scd2"], "track": ["v"]}])
def test_a_replayed_record_is_the_state_that_it_was_between_the_others(tmp_path: Path, rule: object) -> None:
    feed, lake, ledger = LittleFeed(tmp_path), MemoryLake(), Ledger("sqlite://")
    feed.create("shop.orders")
    broken = [
        ("I", FIRST + 10, 1, "a"),
        ("U", FIRST + 11, 1, "b" * 50),
        ("U", FIRST + 12, 1, "c"),
        ("I", FIRST + 13, 2, "x"),
    ]
    path = feed.rows("shop.orders", FIRST, broken)
    feed.publish(FIRST + 20)
    pipeline = feed.pipeline_into(lake, ledger, history={"shop.*": rule}, quarantine=True)
    pipeline.apply("test")
    feed.rows("shop.orders", FIRST, [("U", FIRST + 31, 1, "d")])
    feed.publish(FIRST + 40)
    pipeline.apply("test")
    assert states(lake)[:3] == [(1, "a", 10, 12), (1, "c", 12, 31), (1, "d", 31, None)]
    path.write_bytes(path.read_bytes().replace(b"b" * 50, b"b"))
    assert [(replay_result.waiting, replay_result.reason) for replay_result in replay(pipeline, "shop.orders")] == [
        (0, ""),
        (0, ""),
    ]
    assert states(lake) == [
        (1, "a", 10, 11),
        (1, "b", 11, 12),
        (1, "c", 12, 31),
        (1, "d", 31, None),
        (2, "x", 13, None),
    ]
    assert lake.read(TableId("shop", "orders")).to_pylist()[0]["v"] in ("d", "x")
