"""Tables that are switched on beside others of their source: from the beginning, or from now on and said so.

The same rule for a mirror as for a log and for states: as far back as dump and feed are both there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.ddl import created
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Lack
from cdc_assets.model.schema import TableId
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.outcome import Outcome, TableOutcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.dump_writer import Writing, write_dump
from cdc_assets_tests.folding import fold_differences
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds
from cdc_assets_tests.returned_columns import PARTED, PLAIN, ReturnedColumns

KINDS = ["", "log", "scd2"]
DAY = 86_400_000 << 18
CREATE = "CREATE TABLE `orders` (`id` INT NOT NULL,`v` VARCHAR(40),PRIMARY KEY (`id`))"


class Shop:
    """The table shop.orders, and the lake that has some kinds of it."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.feed, self.lake, self.ledger = LittleFeed(directory), MemoryLake(), Ledger("sqlite://")
        self.directory, self.more = directory, settings
        self.outcome: Outcome | None = None

    def begin(self) -> Shop:
        self.feed.create("shop.orders")
        self.rows([("I", 10, 1, "a"), ("I", 11, 2, "b")])
        self.rows([("U", 12, 1, "c")])
        return self

    def rows(self, rows: list[tuple[str, int, int, str]], version: int = 0, table: str = "shop.orders") -> Path:
        return self.feed.rows(table, FIRST + version, [(op, FIRST + at, key, v) for op, at, key, v in rows])

    def dump(self, at: int, *rows: tuple[str, str]) -> Shop:
        where, name = self.directory / f"dump{at}", TableId("shop", "orders")
        write_dump(where, {name: (created(CREATE), rows)}, FIRST + at, Writing(), "csv", texts={name: CREATE})
        self.more["initial"] = {"dump": [str(where)], "start_ts": FIRST}
        return self

    def pipeline(self, *kinds: str, **rule: Any) -> Pipeline:
        history = {"shop.*": {"kinds": [kind for kind in kinds if kind], "mirror": "" in kinds, **rule}}
        return self.feed.pipeline_into(self.lake, self.ledger, history=history if any(kinds) else {}, **self.more)

    def apply(self, checkpoint: int, *kinds: str, **rule: Any) -> Outcome:
        self.feed.publish(FIRST + checkpoint)
        self.outcome = self.pipeline(*kinds, **rule).apply("test")
        assert {str(table.life): table.reason for table in self.outcome.tables if table.reason} == {}
        return self.outcome

    def table(self, kind: str, born: str = "orders") -> TableOutcome:
        assert self.outcome is not None
        (table,) = (t for t in self.outcome.tables if t.life.kind == kind and t.life.born_as.table == born)
        return table

    def began(self) -> dict[str, str]:
        """The tables that are said to begin late, and from when on."""
        assert self.outcome is not None
        return {f.table: f.detail for f in self.outcome.findings if f.rule == "history-since"}

    def have(self, kind: str, name: str = "orders") -> list[tuple[Any, ...]]:
        """What a table has: rows; changes with their positions; states with beginning and end."""
        rows = self.lake.read(TableId("shop", name + (f"__{kind}" if kind else ""))).to_pylist()
        return sorted((row["id"], row["v"], *(_at(row.get(place)) for place in _PLACES[kind])) for row in rows)


def _at(place: Any) -> Any:
    return place - FIRST if isinstance(place, int) else place


_PLACES = {"": (), "log": ("_change_type", "_cdc_position"), "scd2": ("_cdc_start_ts", "_cdc_end_ts")}
WHOLE: Mapping[str, list[tuple[Any, ...]]] = {
    "": [(1, "c"), (2, "d"), (3, "e")],
    "log": [
        *[(1, "a", "INSERT", 10), (1, "c", "UPDATE_AFTER", 12), (2, "b", "INSERT", 11)],
        *[(2, "d", "UPDATE_AFTER", 31), (3, "e", "INSERT", 32)],
    ],
    "scd2": [(1, "a", 10, 12), (1, "c", 12, None), (2, "b", 11, 31), (2, "d", 31, None), (3, "e", 32, None)],
}
SINCE: Mapping[str, list[tuple[Any, ...]]] = {
    "": [(2, "d"), (3, "e")],
    "log": [(2, "d", "UPDATE_AFTER", 31), (3, "e", "INSERT", 32)],
    "scd2": [(2, "d", 31, None), (3, "e", 32, None)],
}
"""What a table has that began at 20: what changed after that."""
NEWS = [("U", 31, 2, "d"), ("I", 32, 3, "e")]


def others(kind: str) -> list[str]:
    """The kinds that stand before another one is switched on."""
    return [other_kind for other_kind in KINDS if other_kind != kind]


def begins_late(shop: Shop, kind: str, at: int = 20) -> None:
    """Check that a table begins at a position, says so, and is called incomplete where it is a mirror."""
    name = f"shop.orders{f'__{kind}' if kind else ''}"
    assert shop.began() == {name: f"from {FIRST + at}"}
    gap = shop.table(kind).gap
    assert (gap is not None and gap.filling.lack is Lack.LATE) == (not kind)
    assert kind or f"it begins at {FIRST + at}, where its history tables stood" in shop.table(kind).incomplete
    assert [str(table.life) for table in shop.outcome.tables if table.life.kind != kind and table.gap] == []  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", KINDS)
def test_with_all_files_there_it_is_built_from_the_beginning(tmp_path: Path, kind: str) -> None:
    shop = Shop(tmp_path).begin()
    shop.apply(20, *others(kind))
    shop.rows(NEWS)
    assert shop.apply(40, *KINDS).complete
    assert (shop.began(), shop.have(kind)) == ({}, WHOLE[kind])


@pytest.mark.parametrize("ledger", ["knows them", "is lost"])
@pytest.mark.parametrize("gone", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_where_files_are_gone_it_begins_where_the_others_stand(
    tmp_path: Path, kind: str, gone: int, ledger: str
) -> None:
    shop = Shop(tmp_path).begin()
    shop.apply(20, *others(kind))
    for number in range(1, gone + 1):
        (shop.feed.bucket / f"shop/orders/{FIRST}/CDC{number:020d}.csv").unlink()
    shop.ledger = shop.ledger if ledger == "knows them" else Ledger("sqlite://")
    shop.rows(NEWS)
    for checkpoint in (40, 41):
        shop.apply(checkpoint, *KINDS)
        begins_late(shop, kind)
        assert shop.have(kind) == SINCE[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_new_ledger_nobody_knows_what_was_there(tmp_path: Path, kind: str) -> None:
    shop = Shop(tmp_path).begin()
    shop.feed.ddl("shop.orders", FIRST + 25, "ALTER TABLE `orders` COMMENT 'x'", 17)
    shop.apply(30, *others(kind))
    for file in shop.feed.bucket.rglob("*.csv"):
        file.unlink()
    shop.ledger = Ledger("sqlite://")
    shop.rows(NEWS, 25)
    shop.apply(40, *KINDS)
    assert (list(shop.began()), shop.have(kind)) == ([str(shop.table(kind).name)], SINCE[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_a_changefeed_that_removes_its_files_by_now_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    shop = Shop(tmp_path).begin()
    with shop.feed.toml.open("a") as toml:
        toml.write("[sink.cloud-storage-config]\nfile-expiration-days = 3\n")
    shop.apply(20, *others(kind))
    shop.rows([(op, at + 4 * DAY, key, v) for op, at, key, v in NEWS])
    shop.apply(40 + 4 * DAY, *KINDS)
    begins_late(shop, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_was_born_in_what_is_left_needs_nothing_from_before(tmp_path: Path, kind: str) -> None:
    shop = Shop(tmp_path)
    shop.feed.create("shop.orders", FIRST - 100)
    for at in (-90, -80):
        shop.rows([("I", at, 9, "z")], -100)
    shop.feed.ddl("shop.orders", FIRST - 50, "DROP TABLE `orders`", 4, columns=False)
    shop.begin().apply(20, *others(kind))
    (shop.feed.bucket / f"shop/orders/{FIRST - 100}/CDC{1:020d}.csv").unlink()
    shop.rows(NEWS)
    shop.feed.publish(FIRST + 40)
    shop.outcome = shop.pipeline(*KINDS).apply("test")
    assert (shop.began(), shop.have(kind)) == ({}, WHOLE[kind])


# --- dumps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restored", [True, False], ids=["dump there", "dump gone"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_from_before_a_dump_are_not_needed_while_it_is_there(tmp_path: Path, kind: str, restored: bool) -> None:
    shop = Shop(tmp_path).begin().dump(15, ("1", "c"), ("2", "b"))
    shop.rows([("U", 16, 1, "f")])
    shop.apply(20, *others(kind))
    for number in (1, 2):
        (shop.feed.bucket / f"shop/orders/{FIRST}/CDC{number:020d}.csv").unlink()
    if not restored:
        dump = tmp_path / "dump15"
        for file in [path for path in dump.rglob("*") if path.is_file()]:
            file.unlink()
        shop.more["initial"] = {"start_ts": FIRST}
    shop.rows(NEWS)
    shop.apply(40, *KINDS)
    if not restored:
        begins_late(shop, kind)
        assert shop.have(kind) == SINCE[kind]
        shop.apply(41, *KINDS)
        begins_late(shop, kind)
        return
    assert shop.began() == {}
    assert shop.have("") == [(1, "f"), (2, "d"), (3, "e")]
    assert len(shop.have(kind)) == {"": 3, "log": 5, "scd2": 5}[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_gone_from_after_a_dump_are_missing(tmp_path: Path, kind: str) -> None:
    shop = Shop(tmp_path).begin().dump(11, ("1", "a"), ("2", "b"))
    shop.apply(20, *others(kind))
    (shop.feed.bucket / f"shop/orders/{FIRST}/CDC{2:020d}.csv").unlink()
    shop.rows(NEWS)
    for checkpoint in (40, 41):
        shop.apply(checkpoint, *KINDS)
        begins_late(shop, kind)
        assert shop.have(kind) == SINCE[kind]


def test_a_mirror_that_began_late_is_complete_by_a_rebuild_from_a_newer_dump(tmp_path: Path) -> None:
    shop = Shop(tmp_path).begin()
    shop.apply(20, "log", "scd2")
    (shop.feed.bucket / f"shop/orders/{FIRST}/CDC{1:020d}.csv").unlink()
    shop.rows(NEWS)
    shop.apply(40, *KINDS)
    shop.dump(50, ("1", "c"), ("2", "d"), ("3", "e"))
    shop.rows([("U", 61, 1, "g")])
    shop.apply(70, *KINDS)
    assert f"Its rows are in {tmp_path}/dump50: cdc-assets rebuild shop.orders@{FIRST}" in shop.table("").incomplete
    rebuild(shop.pipeline(*KINDS), MemoryRebuilds(shop.lake), ["shop.orders"])
    assert shop.apply(71, *KINDS).complete
    shop.rows([("D", 75, 2, "d")])
    assert shop.apply(80, *KINDS).complete
    assert shop.have("") == [(1, "g"), (3, "e")]
    assert (shop.began(), fold_differences(shop.lake)) == ({}, [])
    assert [state for state in shop.have("scd2") if state[3] is None] == [(1, "g", 61, None), (3, "e", 32, None)]
    assert len(shop.have("scd2")) == len(WHOLE["scd2"]) + 1


# --- what happens to them later ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_rebuild_from_files_that_were_restored_ends_that(tmp_path: Path, kind: str) -> None:
    shop = Shop(tmp_path).begin()
    shop.apply(20, *others(kind))
    path = shop.feed.bucket / f"shop/orders/{FIRST}/CDC{1:020d}.csv"
    data = path.read_bytes()
    path.unlink()
    shop.rows(NEWS)
    shop.apply(40, *KINDS)
    begins_late(shop, kind)
    path.write_bytes(data)
    rebuild(shop.pipeline(*KINDS), MemoryRebuilds(shop.lake), [str(shop.table(kind).name)])
    assert shop.apply(41, *KINDS).complete
    assert (shop.began(), shop.have(kind)) == ({}, WHOLE[kind])


def late_mirror(directory: Path, *kinds: str) -> Shop:
    """A mirror that began late, beside kinds that have everything."""
    shop = Shop(directory).begin()
    shop.apply(20, *kinds)
    (shop.feed.bucket / f"shop/orders/{FIRST}/CDC{1:020d}.csv").unlink()
    shop.rows(NEWS)
    shop.apply(40, "", *kinds)
    begins_late(shop, "")
    return shop


def test_a_truncate_makes_a_late_mirror_complete_and_a_log_does_not_ask_it_for_rows(tmp_path: Path) -> None:
    shop = late_mirror(tmp_path, "log", "scd2")
    shop.feed.ddl("shop.orders", FIRST + 45, "TRUNCATE TABLE `orders`", 11)
    shop.rows([("I", 46, 7, "h")], 45)
    assert shop.apply(50, *KINDS).complete
    assert shop.have("") == [(7, "h")]
    rows = shop.lake.read(TableId("shop", "orders__log")).to_pylist()
    of_ddl = [(row["_change_type"], row["id"]) for row in rows if row["_cdc_position"] == FIRST + 45]
    assert of_ddl == [("TRUNCATE", None)]
    assert [state[0] for state in shop.have("scd2") if state[3] is None] == [7]
    assert fold_differences(shop.lake) == []


def test_a_late_mirror_is_dropped_with_the_others(tmp_path: Path) -> None:
    shop = late_mirror(tmp_path, "scd2")
    shop.feed.ddl("shop.orders", FIRST + 45, "DROP TABLE `orders`", 4, columns=False)
    outcome = shop.apply(50, "", "scd2")
    assert [table.name and str(table.name) for table in outcome.tables] == ["shop.orders", "shop.orders__scd2"]
    assert all(table.name is None for table in shop.lake.tables.values())
    assert all(table.gap is None for table in outcome.tables)


def test_a_kind_is_switched_on_beside_a_late_mirror(tmp_path: Path) -> None:
    shop = late_mirror(tmp_path, "log")
    shop.rows([("D", 45, 3, "e")])
    shop.apply(50, *KINDS)
    assert shop.began() == {"shop.orders": f"from {FIRST + 20}", "shop.orders__scd2": f"from {FIRST + 40}"}
    assert shop.table("scd2").gap is None


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", [False, True])
def test_a_mirror_has_the_name_of_now_from_its_beginning(tmp_path: Path, gone: bool) -> None:
    shop = Shop(tmp_path).begin()
    shop.feed.ddl("shop.bills", FIRST + 25, "RENAME TABLE `shop`.`orders` TO `shop`.`bills`", 14)
    shop.feed.create("shop.orders", FIRST + 26)
    shop.feed.ddl("shop.orders", FIRST + 27, "ALTER TABLE `orders` COMMENT 'x'", 17)
    shop.rows([("I", 28, 8, "z")], 27)
    states = {"shop.bills": {"kinds": ["scd2"], "mirror": False}}

    def apply(checkpoint: int, history: dict[str, Any], stop: int | None = None) -> dict[str, str]:
        shop.feed.publish(FIRST + checkpoint)
        pipeline = shop.feed.pipeline_into(shop.lake, shop.ledger, history=history)
        shop.outcome = pipeline.apply("test", None if stop is None else lambda plan: plan.steps[:stop])
        return {str(table.life): table.reason for table in shop.outcome.tables if table.reason}

    assert apply(30, {"shop.*": {"kinds": ["scd2"], "mirror": False}}) == {}
    assert apply(30, states) == {}
    if gone:
        (shop.feed.bucket / f"shop/orders/{FIRST}/CDC{1:020d}.csv").unlink()
    shop.rows([("I", 31, 3, "e")], 25, "shop.bills")
    for stop in (1, 2, None):
        assert apply(40, {"shop.bills": "scd2"}, stop) == {}
    assert shop.have("", "bills") == ([(3, "e")] if gone else [(1, "c"), (2, "b"), (3, "e")])
    assert shop.have("") == [(8, "z")]
    assert shop.began() == ({"shop.bills": f"from {FIRST + 25}"} if gone else {})
    shop.feed.ddl("shop.notes", FIRST + 45, "RENAME TABLE `shop`.`bills` TO `shop`.`notes`", 14)
    assert apply(50, {"shop.notes": "scd2"}) == {}
    assert len(shop.have("", "notes")) == (1 if gone else 3)


@pytest.mark.parametrize("names", [["shop.orders"], ["shop.orders__log"], ["shop.orders__scd2"], []], ids=str)
def test_tables_of_a_dump_are_rebuilt_each_for_itself(tmp_path: Path, names: list[str]) -> None:
    shop = Shop(tmp_path).begin().dump(11, ("1", "a"), ("2", "b"))
    shop.rows(NEWS)
    shop.apply(40, *KINDS)
    before = {kind: shop.have(kind) for kind in KINDS}
    assert len(before["scd2"]) == 5
    for table in shop.lake.tables.values():
        table.rows = table.rows.slice(0, 0)
    rebuild(shop.pipeline(*KINDS), MemoryRebuilds(shop.lake), names)
    assert [kind for kind in KINDS if shop.have(kind) == before[kind]] == [
        kind for kind in KINDS if not names or names[0] == f"shop.orders{f'__{kind}' if kind else ''}"
    ]
    assert shop.apply(41, *KINDS).complete


# --- rows that an exchange brings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("beside", ["log", "scd2"])
def test_an_exchange_takes_no_rows_of_a_mirror_that_has_not_all_of_them(tmp_path: Path, beside: str) -> None:
    feed, lake, ledger = ReturnedColumns(tmp_path, set()).feed, MemoryLake(), Ledger("sqlite://")

    def reasons(through: int, **rule: Any) -> set[str]:
        feed.publish(FIRST + through)
        outcome = feed.pipeline_into(
            lake, ledger, history={PLAIN: {"kinds": [beside], **rule}, PARTED: ["log", "scd2"]}
        ).apply("test")
        parted = [table for table in outcome.tables if table.life.born_as == TableId("shop", "p")]
        assert [table.gap for table in parted] == [None] * 3
        return {table.reason for table in parted}

    assert reasons(35, mirror=False) == {""}
    for file in (feed.bucket / "shop/x").rglob("*.csv"):
        file.unlink()
    hold_reasons = reasons(45)
    if beside == "log":
        assert all("whose mirror begins later than its rows" in reason for reason in hold_reasons)
        return
    assert hold_reasons == {""}
    assert sorted(row["id"] for row in lake.read(TableId("shop", "p")).to_pylist()) == [2, 3]
    log = lake.read(TableId("shop", "p__log")).to_pylist()
    assert [row["id"] for row in log if row["_cdc_position"] == FIRST + 40] == [1, 3]
