"""What the files of a changefeed leave open: which table is renamed, what became of a value, what decodes a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_assets.ledger import Ledger
from cdc_assets.model.releases import Release
from cdc_assets.model.schema import TableId
from cdc_assets.model.table_history import Held
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake

RENAMED = FIRST + 10


class Site:
    """A changefeed and its lake; `states` are those of the newest run, `reasons` why tables are held."""

    def __init__(self, directory: Path, *names: str) -> None:
        self.lake, self.ledger, self.feed = MemoryLake(), Ledger("sqlite://"), LittleFeed(directory)
        self.states, self.reasons = dict[str, str](), dict[str, str]()
        for name in names:
            self.feed.create(name)
            self.feed.rows(name, FIRST, [("I", FIRST + 1, 1, f"of {name}")])

    def apply(self, checkpoint: int = FIRST + 99) -> None:
        self.feed.publish(checkpoint)
        self.pipeline = self.feed.pipeline_into(self.lake, self.ledger)
        tables = self.pipeline.apply("test").tables
        self.states = {str(table.name): str(table.state) for table in tables}
        self.reasons = {str(table.name): table.reason for table in tables if table.reason}
        self.ways = {str(table.name): table.ways for table in tables if table.reason}

    def rows(self, name: str) -> list[str]:
        return sorted(map(str, self.lake.read(TableId(*name.split("."))).column("v").to_pylist()))

    def release(self, name: str, way: str, text: str = "") -> None:
        (life,) = [life for life in self.lake.applied() if str(life.born_as) == name]
        history = self.pipeline.planner.plan()[1].history
        at = next(event.at for event in history.lives[life].events if isinstance(event, Held))
        self.lake.keep_decision(Release(life, at, way, text))


TENANTS = ("a.orders", "b.orders", "c.orders")


def moved(directory: Path) -> Site:
    """A table that moved to another database, with a text that does not say from which."""
    site = Site(directory, *TENANTS)
    site.feed.ddl("z.orders", RENAMED, "RENAME TABLE `orders` TO `z`.`orders`", 14)
    site.feed.rows("z.orders", RENAMED, [("I", RENAMED + 5, 2, "after")])
    return site


@pytest.mark.parametrize("steps", [(FIRST + 99,), (FIRST + 5, RENAMED, FIRST + 99)])
def test_a_rename_is_of_the_only_table_of_the_name_that_did_not_go_on_under_it(
    tmp_path: Path, steps: tuple[int, ...]
) -> None:
    site = moved(tmp_path)
    site.feed.ddl("b.orders", RENAMED + 3, "ALTER TABLE `orders` COMMENT 'x'", 17)
    site.feed.rows("c.orders", FIRST, [("I", RENAMED + 5, 2, "still here")])
    for checkpoint in steps:
        site.apply(checkpoint)
    assert site.states == {"b.orders": "applied", "c.orders": "applied", "z.orders": "applied"}
    assert site.rows("z.orders") == ["after", "of a.orders"]
    assert site.rows("c.orders") == ["of c.orders", "still here"]
    site.ledger = Ledger("sqlite://")
    site.feed.rows("z.orders", RENAMED, [("I", FIRST + 101, 3, "later")])
    site.feed.rows("c.orders", FIRST, [("I", FIRST + 101, 3, "later")])
    site.apply(FIRST + 200)
    assert site.rows("z.orders") == ["after", "later", "of a.orders"]
    assert site.rows("c.orders") == ["later", "of c.orders", "still here"]


@pytest.mark.parametrize(
    ("name", "text", "action"),
    [
        ("c.orders", "DROP TABLE `orders`", 4),
        ("c.orders", "DROP TABLE IF EXISTS `orders`", 4),  # TiDB has a job only where there is one
        ("c.former", "RENAME TABLE `orders` TO `former`", 14),
        ("c.former", "ALTER TABLE `orders` RENAME `former`", 14),
        ("c.copy", "CREATE TABLE `copy` LIKE `orders`", 3),
    ],
)
def test_a_table_that_is_dropped_renamed_or_copied_later_was_not_the_one_that_moved(
    tmp_path: Path, name: str, text: str, action: int
) -> None:
    site = moved(tmp_path)
    site.feed.ddl("b.orders", RENAMED + 3, "ALTER TABLE `orders` COMMENT 'x'", 17)
    site.feed.ddl(name, RENAMED + 4, text, action)
    site.apply()
    assert site.reasons == {}
    assert site.rows("z.orders") == ["after", "of a.orders"]
    if action == 14:
        assert site.rows(name) == ["of c.orders"]


@pytest.mark.parametrize("text", ["RENAME TABLE `orders` TO `c`.`former`", "ALTER TABLE `orders` RENAME `c`.`former`"])
def test_a_second_rename_that_names_no_database_shows_nothing_of_the_first(tmp_path: Path, text: str) -> None:
    site = moved(tmp_path)
    site.feed.ddl("b.orders", RENAMED + 3, "ALTER TABLE `orders` COMMENT 'x'", 17)
    site.feed.ddl("c.former", RENAMED + 4, text, 14)
    site.apply()
    assert {"a.orders", "c.orders", "z.orders"} <= site.reasons.keys()


def test_a_table_that_is_made_anew_under_the_name_does_not_show_that_the_former_one_kept_it(tmp_path: Path) -> None:
    site = moved(tmp_path)
    site.feed.create("c.orders", RENAMED + 2)
    site.feed.rows("c.orders", RENAMED + 2, [("I", RENAMED + 5, 2, "anew")])
    site.feed.ddl("b.orders", RENAMED + 3, "ALTER TABLE `orders` COMMENT 'x'", 17)
    site.apply()
    assert site.states["b.orders"] == "applied"
    assert {"a.orders", "z.orders"} <= site.reasons.keys()
    assert "a.orders, c.orders" in site.reasons["a.orders"]


def test_tables_of_the_name_without_a_later_sign_are_held_until_a_person_says_which(tmp_path: Path) -> None:
    site = moved(tmp_path)
    site.apply()
    assert site.reasons.keys() == {*TENANTS, "z.orders"}
    site.release("a.orders", "apply", "RENAME TABLE a.orders TO z.orders")
    site.apply()
    assert site.rows("z.orders") == ["after", "of a.orders"]
    assert site.states["b.orders"] == "applied"


WITHIN = "RENAME TABLE `orders` TO `c`.`old`", "ALTER TABLE `orders` RENAME TO `c`.`old`"


@pytest.mark.parametrize("text", WITHIN)
@pytest.mark.parametrize("moved_from", TENANTS)
def test_a_rename_into_a_database_that_it_names_may_be_of_a_table_of_any_database(
    tmp_path: Path, moved_from: str, text: str
) -> None:
    site = Site(tmp_path, *TENANTS)
    site.feed.ddl("c.old", RENAMED, text, 14)
    site.feed.rows("c.old", RENAMED, [("I", RENAMED + 5, 2, "after")])
    site.apply(RENAMED + 6)
    assert site.reasons.keys() == {*TENANTS, "c.old"}
    assert "may rename any of a.orders, b.orders, c.orders" in site.reasons["c.orders"]
    stayed = [name for name in TENANTS if name != moved_from]
    for name in stayed:
        site.feed.rows(name, FIRST, [("I", RENAMED + 7, 2, "still here")])
    site.apply()
    assert site.reasons == {}
    assert site.rows("c.old") == ["after", f"of {moved_from}"]
    assert [site.rows(name) for name in stayed] == [[f"of {name}", "still here"] for name in stayed]


@pytest.mark.parametrize("text", [text.replace("`c`.", "") for text in WITHIN])
def test_a_rename_that_names_no_database_is_of_the_table_of_its_own(tmp_path: Path, text: str) -> None:
    site = Site(tmp_path, *TENANTS)
    site.feed.ddl("c.old", RENAMED, text, 14)
    site.apply()
    assert site.reasons == {}
    assert {str(name) for name in site.lake.names()} == {"a.orders", "b.orders", "c.old"}
    assert site.rows("c.old") == ["of c.orders"]


def test_a_rename_of_a_table_that_is_not_known_names_no_table_of_another_database(tmp_path: Path) -> None:
    site = Site(tmp_path, "a.other")
    site.feed.ddl("z.orders", RENAMED, "RENAME TABLE `orders` TO `z`.`orders`", 14)
    site.feed.rows("z.orders", RENAMED, [("I", RENAMED + 5, 2, "after")])
    site.apply()
    (reason,) = site.reasons.values()
    assert "z.orders is not known" not in reason
    assert "it names no database, and no table that it may rename is known" in reason


def test_a_rename_without_the_old_name_holds_the_tables_that_it_may_mean(tmp_path: Path) -> None:
    site = Site(tmp_path, "s.a", "s.b", "other.c")
    site.feed.ddl("s.wide", FIRST, "CREATE TABLE `wide` (`id` INT PRIMARY KEY,`v` VARCHAR(40),`w` INT)", 3, wide=True)
    for name in ("x", "y"):
        site.feed.ddl(f"s.{name}", RENAMED, f"RENAME TABLE `s`.`` TO `s`.`{name}`", 14)
        site.feed.rows(f"s.{name}", RENAMED, [("I", RENAMED + 5, 2, "after")])
    site.apply()
    assert site.reasons.keys() == {"s.a", "s.b", "s.x", "s.y"}
    for reason in site.reasons.values():
        assert "lacks the old name" in reason
        assert "s is not known" not in reason
    site.release("s.a", "apply", "RENAME TABLE s.a TO s.x")
    site.apply()
    assert site.rows("s.x") == ["after", "of s.a"]
    assert site.reasons.keys() == {"s.b", "s.y"}
    site.release("s.b", "apply", "RENAME TABLE s.b TO s.y")
    site.apply()
    assert site.reasons == {}
    assert site.rows("s.y") == ["after", "of s.b"]


@pytest.mark.parametrize(("way", "expected"), [("rebuild", ["7"]), ("skip", ["7", "None"])])
def test_a_value_that_a_ddl_cannot_have_left_as_it_was_holds_the_table_with_ways_out(
    tmp_path: Path, way: str, expected: list[str]
) -> None:
    site = Site(tmp_path, "s.a")
    text = site.feed.bucket.joinpath
    site.feed.ddl("s.a", RENAMED, "ALTER TABLE `a` MODIFY COLUMN `v` INT", 12)
    schema = next(text("s", "a", "meta").glob(f"schema_{RENAMED}_*"))
    changed = schema.read_text().replace('"VARCHAR"', '"INT"').replace('"40"', '"11"')
    schema.write_text(changed)
    site.feed.rows("s.a", RENAMED, [("I", RENAMED + 5, 2, "7")])
    site.apply()
    assert site.states == {"s.a": "held"}
    assert any(f"release s.a@{FIRST} {RENAMED} --{way}" in way_out for way_out in site.ways["s.a"])
    (life,) = site.lake.applied()
    site.lake.keep_decision(Release(life, RENAMED, way))
    site.apply()
    assert site.reasons == {}
    assert site.rows("s.a") == expected


@pytest.mark.parametrize("rows", [[(RENAMED, 2), (RENAMED + 9, 3)], [(RENAMED + 20, 2)]])
def test_a_directory_of_version_0_stops_its_table_where_its_rows_begin(
    tmp_path: Path, rows: list[tuple[int, int]]
) -> None:
    site = Site(tmp_path, "s.a", "s.b")
    site.feed.ddl("s.a", RENAMED + 15, "ALTER TABLE `a` ADD COLUMN `w` INT", 5, wide=True)
    stray = site.feed.rows("s.a", 0, [("I", at, number, "stray") for at, number in rows])
    site.apply()
    assert site.states == {"s.a": "held", "s.b": "applied"}
    assert site.rows("s.a") == ["of s.a"]
    version = RENAMED + 15 if rows[0][0] > RENAMED + 15 else FIRST
    (way,) = site.ways["s.a"]
    assert f"s/a/meta/schema_{version}_*.json" in way
    if version == FIRST:
        stray.rename(site.feed.bucket / "s" / "a" / str(FIRST) / f"CDC{2:020d}.csv")
        site.apply()
        assert site.reasons == {}
        assert site.rows("s.a") == ["of s.a", "stray", "stray"]


@pytest.mark.parametrize("query", ["ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `x`", None])
@pytest.mark.parametrize("second", ["a.x", "b.x", ""])
def test_rows_are_exchanged_with_the_table_of_the_second_file_or_each_namesake_is_held(
    tmp_path: Path, query: str | None, second: str
) -> None:
    """A text that names the database of the partitioned table alone means a table of the session's for the other."""
    site = Site(tmp_path, "a.x", "b.x")
    parts = " PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (9))"
    site.feed.ddl("a.p", FIRST, f"CREATE TABLE `p` (`id` INT PRIMARY KEY,`v` VARCHAR(40)){parts}", 3)
    site.feed.rows("a.p", FIRST, [("I", FIRST + 1, 1, "of a.p")])
    site.feed.ddl("a.p", RENAMED, query or "ALTER TABLE `a`.`p` EXCHANGE PARTITION `p0` WITH TABLE `x`", 42)
    if second:
        site.feed.ddl(second, RENAMED, "", 0)
    site.apply()
    partner = "a.x" if query else second
    if not partner:
        assert site.reasons.keys() == {"a.p", "a.x", "b.x"}
        assert all("a.x, b.x" in reason for reason in site.reasons.values())
        site.release("a.p", "apply", "ALTER TABLE `a`.`p` EXCHANGE PARTITION `p0` WITH TABLE `b`.`x`")
        site.apply()
        partner = "b.x"
    assert site.reasons == {}
    other = "b.x" if partner == "a.x" else "a.x"
    assert [site.rows(name) for name in ("a.p", partner, other)] == [[f"of {partner}"], ["of a.p"], [f"of {other}"]]
