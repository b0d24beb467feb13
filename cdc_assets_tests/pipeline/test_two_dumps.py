"""Several dumps before one changefeed: each table from the newest that has it, whatever happened between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cdc_assets.ddl import created
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets_tests.dump_writer import Row, Writing, write_dump
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake

S = FIRST + 10
LATER = S + 50
COLUMNS = "`id` INT NOT NULL,`v` VARCHAR(40)"
WIDE = f"{COLUMNS},`w` INT"


class Joined:
    """A feed that begins at S, dumps before it, and a lake."""

    def __init__(self, directory: Path) -> None:
        self.feed, self.directory, self.lake = LittleFeed(directory), directory, MemoryLake()
        self.dumps: list[str] = []

    def dump(self, at: int, tables: Mapping[str, Sequence[Row]], columns: str = COLUMNS, kind: str = "csv") -> None:
        where = self.directory / f"dump{at}"
        texts = {TableId("s", name): f"CREATE TABLE `{name}` ({columns},PRIMARY KEY (`id`))" for name in tables}
        contents: dict[TableId, tuple[TableSchema, Sequence[Row]]] = {
            name: (created(text), tables[name.table]) for name, text in texts.items()
        }
        write_dump(where, contents, at, Writing(), kind, texts=texts)
        self.dumps.append(str(where))

    def applied(self, checkpoint: int) -> Outcome:
        self.feed.publish(checkpoint)
        return self.feed.pipeline_into(self.lake, initial={"dump": self.dumps, "start_ts": S}).apply("test")

    def rows(self, name: str) -> list[tuple[object, ...]]:
        lake_rows = self.lake.read(TableId("s", name)).drop_columns(["_cdc_commit_ts"]).to_pylist()
        return sorted(tuple(row.values()) for row in lake_rows)


@pytest.fixture
def joined(tmp_path: Path) -> Joined:
    return Joined(tmp_path)


def sound(outcome: Outcome) -> bool:
    held = {str(table.name): table.reason or table.incomplete for table in outcome.tables}
    assert {name: reason for name, reason in held.items() if reason} == {}
    return outcome.complete


@pytest.mark.parametrize("kind", ["csv", "sql", "parquet"])
def test_ddl_right_after_each_dump_finds_the_rows_of_its_own(joined: Joined, kind: str) -> None:
    joined.dump(S, {"a": [("1", "a1"), ("2", "a2")]}, kind=kind)
    joined.feed.ddl("s.a", S + 1, "ALTER TABLE `a` ADD COLUMN `w` INT", 5, wide=True)
    joined.dump(LATER, {"b": [("1", "b1")]}, kind=kind)
    joined.feed.ddl("s.b", LATER + 1, "ALTER TABLE `b` ADD COLUMN `w` INT", 5, wide=True)
    assert sound(joined.applied(LATER + 9))
    assert joined.rows("a") == [(1, "a1", None), (2, "a2", None)]
    assert joined.rows("b") == [(1, "b1", None)]


def test_the_later_dump_waits_for_the_checkpoint_and_the_earlier_one_does_not(joined: Joined) -> None:
    joined.dump(S, {"a": [("1", "a1")]})
    joined.dump(LATER, {"b": [("1", "b1")]})
    joined.feed.ddl("s.a", S, "", 0)
    joined.feed.ddl("s.b", S + 20, "", 0)
    first = {str(table.name): table for table in joined.applied(LATER - 1).tables}
    assert (first["s.a"].state, first["s.b"].state) == ("applied", "held")
    assert f"which was taken at {LATER}" in first["s.b"].reason
    joined.feed.rows("s.b", S + 20, [("I", LATER + 1, 2, "b2"), ("I", LATER - 2, 1, "b1")])
    assert sound(joined.applied(LATER + 9))
    assert joined.rows("b") == [(1, "b1"), (2, "b2")]


@pytest.mark.parametrize("stands", [True, False], ids=["stands on the first", "is new"])
def test_a_table_that_was_renamed_between_two_dumps_is_one_table(joined: Joined, stands: bool) -> None:
    joined.dump(S, {"a": [("1", "old"), ("2", "gone")]})
    joined.feed.ddl("s.a", S, "", 0)
    if stands:
        assert sound(joined.applied(S + 5))
    joined.feed.rows("s.a", S, [("D", S + 10, 2, "gone"), ("I", S + 11, 3, "new")])
    joined.feed.ddl("s.b", S + 20, "RENAME TABLE `s`.`a` TO `s`.`b`", 14)
    joined.feed.rows("s.b", S + 20, [("U", S + 30, 1, "changed")])
    joined.dump(LATER, {"b": [("1", "changed"), ("3", "new")]})
    joined.feed.rows("s.b", S + 20, [("I", LATER + 1, 4, "last")])
    assert sound(joined.applied(LATER + 9))
    assert joined.lake.names() == {TableId("s", "b")}
    assert joined.rows("b") == [(1, "changed"), (3, "new"), (4, "last")]


@pytest.mark.parametrize("stands", [True, False], ids=["stand on the first", "are new"])
def test_two_tables_that_exchange_names_between_dumps_keep_their_rows(joined: Joined, stands: bool) -> None:
    joined.dump(S, {"a": [("1", "one")], "b": [("2", "two")]})
    joined.feed.ddl("s.a", S, "", 0)
    joined.feed.ddl("s.b", S, "", 0)
    if stands:
        assert sound(joined.applied(S + 5))
    joined.feed.ddl("s.a", S + 20, "RENAME TABLE `s`.`b` TO `s`.`a`", 47)
    joined.feed.ddl("s.b", S + 20, "RENAME TABLE `s`.`a` TO `s`.`b`", 47)
    joined.dump(LATER, {"a": [("2", "two")]})
    joined.feed.rows("s.a", S + 20, [("I", LATER + 1, 3, "a")])
    joined.feed.rows("s.b", S + 20, [("I", LATER + 1, 4, "b")])
    assert sound(joined.applied(LATER + 9))
    joined.feed.rows("s.b", S + 20, [("I", LATER + 10, 5, "more")])
    assert sound(joined.applied(LATER + 19))
    assert joined.rows("a") == [(2, "two"), (3, "a")]
    assert joined.rows("b") == [(1, "one"), (4, "b"), (5, "more")]


def test_a_table_that_gave_its_name_to_a_new_one_has_its_rows_from_the_dump_before(joined: Joined) -> None:
    joined.dump(S, {"a": [("1", "one")]})
    joined.feed.ddl("s.a", S, "", 0)
    joined.feed.ddl("s.a_old", S + 20, "RENAME TABLE `s`.`a` TO `s`.`a_old`", 14)
    joined.feed.ddl("s.a", S + 21, f"CREATE TABLE `a` ({COLUMNS},PRIMARY KEY (`id`))", 3)
    joined.dump(LATER, {"a": [("2", "two")]})
    assert sound(joined.applied(LATER + 9))
    assert (joined.rows("a_old"), joined.rows("a")) == ([(1, "one")], [(2, "two")])


def test_a_table_that_was_dropped_and_made_again_between_dumps_has_the_rows_of_the_second(joined: Joined) -> None:
    joined.dump(S, {"a": [("1", "first")]})
    joined.feed.ddl("s.a", S, "", 0)
    assert sound(joined.applied(S + 5))
    joined.feed.ddl("s.a", S + 20, "DROP TABLE `a`", 4)
    joined.feed.ddl("s.a", S + 21, f"CREATE TABLE `a` ({COLUMNS},PRIMARY KEY (`id`))", 3)
    joined.feed.rows("s.a", S + 21, [("I", S + 22, 2, "second")])
    joined.dump(LATER, {"a": [("2", "second")]})
    joined.feed.rows("s.a", S + 21, [("I", LATER + 1, 3, "third")])
    assert sound(joined.applied(LATER + 9))
    assert joined.rows("a") == [(2, "second"), (3, "third")]


def test_the_second_dump_of_a_table_begins_it_with_the_columns_of_then(joined: Joined) -> None:
    joined.dump(S, {"a": [("1", "one")]})
    joined.feed.ddl("s.a", S, "", 0)
    joined.feed.ddl("s.a", S + 20, "ALTER TABLE `a` ADD COLUMN `w` INT", 5, wide=True)
    joined.dump(LATER, {"a": [("1", "one", "9")]}, WIDE)
    joined.feed.ddl("s.a", LATER + 1, "ALTER TABLE `a` DROP COLUMN `w`", 6)
    assert sound(joined.applied(LATER + 9))
    assert joined.rows("a") == [(1, "one")]


def test_a_table_that_was_truncated_right_after_the_dump_is_empty(joined: Joined) -> None:
    joined.dump(S, {"a": [("1", "one")], "b": [("1", "one")]})
    joined.feed.ddl("s.a", S + 1, "TRUNCATE TABLE `a`", 11)
    joined.feed.ddl("s.b", S + 1, "DROP TABLE `b`", 4)
    joined.feed.rows("s.a", S + 1, [("I", S + 2, 2, "two")])
    assert sound(joined.applied(S + 9))
    assert joined.lake.names() == {TableId("s", "a")}
    assert joined.rows("a") == [(2, "two")]
