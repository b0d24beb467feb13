"""Tables that RENAMEs bring under a rule of the setting history: their histories begin there, with all rows of then."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.folding import differences
from cdc_assets_tests.generated import CHECKS
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds

RULES: dict[str, Any] = {"s.a": ["log", "scd2"]}
KINDS = ("log", "scd2")
State = tuple[int, str, int, int | None]


class Applied:
    """A lake that a feed is applied to."""

    def __init__(self, feed: LittleFeed, history: dict[str, Any]) -> None:
        self.feed, self.lake, self.ledger, self.history = feed, MemoryLake(), Ledger("sqlite://"), history

    def pipeline(self) -> Pipeline:
        given = self.feed.settings(history=self.history)
        return Pipeline(given, given.open_source(), self.lake, self.ledger)

    def apply(self) -> list[str]:
        return [f"{table.life}: {table.reason}" for table in self.pipeline().apply("test").tables if table.reason]

    def kinds(self, name: str = "a") -> dict[str, Life]:
        """The history tables of the source table that is called so now."""
        source = [
            life for life, table in self.lake.tables.items() if not life.kind and table.name == TableId("s", name)
        ]
        lives = {kind: Life(life.born_as, life.version, kind) for life in source for kind in KINDS}
        return {kind: life for kind, life in lives.items() if life in self.lake.tables}

    def states(self, life: Life) -> list[State]:
        rows = self.lake.tables[life].rows.to_pylist()
        return sorted((row["id"], row["v"], row["_cdc_start_ts"], row["_cdc_end_ts"] or FIRST + 10**6) for row in rows)

    def faults(self) -> Iterator[str]:
        """Say what is wrong with the histories of the table that is called s.a now."""
        names = [table.name for table in self.lake.tables.values() if table.name is not None]
        if len(set(names)) < len(names):
            yield f"two tables have one name: {names}"
        kinds = self.kinds()
        for kind, life in kinds.items():
            if self.lake.tables[life].name != TableId("s", f"a__{kind}"):
                yield f"{life} is called {self.lake.tables[life].name}"
            begins, rows = self.lake.tables[life].begins or 0, self.lake.tables[life].rows
            places = rows.column("_cdc_position" if kind == "log" else "_cdc_start_ts").to_pylist()
            if any(place < begins for place in places):
                yield f"{life} has changes from before {begins}"
        if "scd2" in kinds:
            states = self.lake.tables[kinds["scd2"]].rows
            open_ = states.filter(pc.is_null(states.column("_cdc_end_ts")))
            if _rows(open_) != _rows(self.lake.tables[kinds["scd2"].source].rows):
                yield f"the open states are {_rows(open_)}"
        if "log" in kinds:
            log, mirror = self.lake.tables[kinds["log"]], self.lake.tables[kinds["log"].source]
            yield from differences("the log", log.rows, log.schema, mirror.rows)


def _rows(table: pa.Table) -> list[tuple[int, str]]:
    return sorted((row["id"], row["v"]) for row in table.to_pylist())


class Renaming(LittleFeed):
    """Tables that are written to, renamed and made to exchange their names, each at the next position."""

    def __init__(self, directory: Path, names: str = "abc") -> None:
        super().__init__(directory)
        self.at, self.versions, self.keys = FIRST, dict[str, int](), dict[str, dict[int, str]]()
        for name in names:
            self.create(f"s.{name}", FIRST)
            self.versions[name], self.keys[name] = FIRST, {}
        for name in names:
            self.write(name)

    def write(self, name: str, number: int = 0) -> None:
        """Insert a row, update or delete one."""
        self.at += 1
        keys, value = self.keys[name], f"{name}{self.at - FIRST}"
        key = number % (len(keys) + 1)
        op = "I" if key not in keys else "D" if number % 3 == 2 else "U"
        self.rows(f"s.{name}", self.versions[name], [(op, self.at, key, keys.get(key, "") if op == "D" else value)])
        if op == "D":
            del keys[key]
        else:
            keys[key] = value

    def rename(self, old: str, new: str) -> None:
        self.at += 1
        self.ddl(f"s.{new}", self.at, f"RENAME TABLE `s`.`{old}` TO `s`.`{new}`", 14)
        self.versions.pop(old)
        self.versions[new], self.keys[new] = self.at, self.keys.pop(old)

    def swap(self, one: str, other: str) -> None:
        self.rename(one, "t")
        self.rename(other, one)
        self.rename("t", other)

    def published(self) -> None:
        self.at += 1
        self.publish(self.at)


def test_the_history_of_a_renamed_table_begins_at_the_rename_with_its_rows(tmp_path: Path) -> None:
    feed = Renaming(tmp_path, "ab")
    applied = Applied(feed, RULES)
    feed.write("b", 1)
    feed.swap("a", "b")
    at = feed.versions["a"]
    feed.write("a", 0)
    feed.published()
    assert applied.apply() == []
    assert list(applied.faults()) == []
    life = applied.kinds()["scd2"]
    assert (applied.lake.tables[life].begins, life.born_as.table) == (at, "b")
    ends = FIRST + 10**6
    assert applied.states(life) == [
        (0, "a7", feed.at - 1, ends),
        (0, "b2", at, feed.at - 1),
        (1, "b3", at, ends),
    ]
    rows = applied.lake.read(TableId("s", "a__log")).to_pylist()
    assert [(row["_change_type"], row["_cdc_position"]) for row in rows] == [
        ("INSERT", at),
        ("INSERT", at),
        ("UPDATE_AFTER", feed.at - 1),
    ]


def test_a_kind_that_is_switched_on_after_the_rename_has_what_the_feed_has(tmp_path: Path) -> None:
    feed = Renaming(tmp_path, "b")
    applied = Applied(feed, {})
    feed.rename("b", "a")
    feed.published()
    assert applied.apply() == []
    applied.history = RULES
    assert applied.apply() == []
    life = applied.kinds()["scd2"]
    assert applied.states(life) == [(0, "b1", FIRST + 1, FIRST + 10**6)]
    rebuild(applied.pipeline(), MemoryRebuilds(applied.lake), [str(life)])
    assert applied.states(life) == [(0, "b1", FIRST + 1, FIRST + 10**6)]


def test_without_a_mirror_the_history_is_that_of_the_table(tmp_path: Path) -> None:
    feed = Renaming(tmp_path, "b")
    applied = Applied(feed, {"s.a": {"kinds": ["scd2"], "mirror": False}})
    feed.rename("b", "a")
    feed.published()
    assert applied.apply() == []
    (life,) = (life for life in applied.lake.tables if life.kind)
    assert applied.states(life) == [(0, "b1", FIRST + 1, FIRST + 10**6)]


@pytest.mark.parametrize("query", ["ADD COLUMN `w` INT", "DROP COLUMN `w`"])
def test_it_has_the_columns_of_the_rename(tmp_path: Path, query: str) -> None:
    feed = LittleFeed(tmp_path)
    create = "CREATE TABLE `b` (`id` INT PRIMARY KEY,`v` VARCHAR(40)"
    drops = query.startswith("DROP")
    feed.ddl("s.b", FIRST, f"{create}{',`w` INT' if drops else ''})", 3, wide=drops)
    feed.ddl("s.b", FIRST + 5, f"ALTER TABLE `b` {query}", 5, wide=not drops)
    feed.ddl("s.a", FIRST + 10, "RENAME TABLE `s`.`b` TO `s`.`a`", 14, wide=not drops)
    feed.publish(FIRST + 20)
    applied = Applied(feed, RULES)
    assert applied.apply() == []
    own = applied.lake.tables[applied.kinds()["scd2"]].rows.column_names
    assert ("w" in own) == (not drops)


OPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["write"]), st.integers(0, 2), st.integers(0, 11)),
        st.tuples(st.sampled_from(["rename", "swap"]), st.integers(0, 2), st.integers(0, 3)),
        st.tuples(st.sampled_from(["apply"]), st.just(0), st.just(0)),
    ),
    min_size=6,
    max_size=14,
)


@settings(CHECKS, max_examples=6, derandomize=True, database=None)
@given(ops=OPS)
def test_histories_begin_where_generated_renames_bring_their_tables_under_the_rule(
    tmp_path_factory: pytest.TempPathFactory, ops: list[tuple[str, int, int]]
) -> None:
    directory = tmp_path_factory.getbasetemp() / "renames"
    shutil.rmtree(directory, ignore_errors=True)
    feed = Renaming(directory)
    often, once = Applied(feed, RULES), Applied(feed, RULES)
    for op, first, second in [*ops, ("write", 0, 0), ("apply", 0, 0)]:
        names = sorted(feed.versions)
        if op == "write":
            feed.write(names[first], second)
        elif op == "rename" and (new := "abcd"[second]) not in names:
            feed.rename(names[first], new)
        elif op == "swap" and names[first] != names[second % 3]:
            feed.swap(names[first], names[second % 3])
        elif op == "apply":
            feed.published()
            assert often.apply() == []
            assert list(often.faults()) == []
        note(f"{op} {first} {second}: {feed.at - FIRST} {feed.versions}")
    assert once.apply() == []
    assert list(once.faults()) == []
    for kind, life in often.kinds().items():
        mine, theirs = (one.lake.tables[life].begins or 0 for one in (often, once))
        assert kind == "log" or _since(often.states(life), max(mine, theirs)) == _since(
            once.states(life), max(mine, theirs)
        )
        before = often.lake.tables[life].rows
        rebuild(often.pipeline(), MemoryRebuilds(often.lake), [str(life)])
        assert sorted(map(str, often.lake.tables[life].rows.to_pylist())) == sorted(map(str, before.to_pylist()))
    assert often.apply() == []
    assert list(often.faults()) == []


def _since(states: list[State], at: int) -> list[State]:
    """The states as a table has them that begins at a position."""
    return [(key, value, max(start, at), end) for key, value, start, end in states if end is not None and end > at]
