"""What was there before does not answer, or is gone: its tables wait or stand, and the others go on."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.ddl import created
from cdc_assets.errors import BadSettings, BucketMissing, MalformedDump
from cdc_assets.features.quarantine.operations import replay
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Phase, Progress
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.dump_writer import Row, Writing, data_file, write_dump
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds

S = FIRST + 10
OLD, NEW = TableId("s", "old"), TableId("s", "new")
TEXT = "CREATE TABLE `old` (`id` INT NOT NULL,`v` VARCHAR(40),PRIMARY KEY (`id`))"


@pytest.fixture
def feed(tmp_path: Path) -> LittleFeed:
    """A feed that began at S with one table, and has another from its CREATE on."""
    feed = LittleFeed(tmp_path)
    feed.ddl("s.old", S, "", 0)
    feed.rows("s.old", S, [("I", S + 5, 2, "later")])
    feed.create("s.new", S + 1)
    feed.rows("s.new", S + 1, [("I", S + 5, 1, "new")])
    feed.publish(S + 100)
    return feed


def dump(directory: Path, at: int = S, rows: Sequence[Row] = (("1", "before"),), text: str = TEXT) -> dict[str, Any]:
    write_dump(directory, {OLD: (created(text), rows)}, at, Writing(), texts={OLD: text})
    return {"dump": str(directory)}


def cut_off(directory: Path) -> None:
    """Take the end off a dump's data file."""
    (file,) = directory.glob("s.old.0*")
    file.write_bytes(file.read_bytes()[:-3])


def closed() -> str:
    """The address of a server that is not there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"mysql://u@127.0.0.1:{taken.getsockname()[1]}"


def applied(feed: LittleFeed, lake: MemoryLake, **initial: Any) -> Outcome:
    return feed.pipeline_into(lake, initial=initial).apply("test")


def held(outcome: Outcome) -> dict[TableId | None, str]:
    return {table.name: table.reason for table in outcome.tables if table.state == "held"}


def values(lake: MemoryLake, name: TableId) -> list[Any]:
    return sorted(lake.read(name).column("v").to_pylist())


def test_tables_wait_for_a_server_that_does_not_answer_and_the_others_go_on(feed: LittleFeed, tmp_path: Path) -> None:
    lake = MemoryLake()
    outcome = applied(feed, lake, source={"uri": closed(), "at": S})
    assert set(held(outcome)) == {OLD}
    assert "did not answer" in held(outcome)[OLD]
    assert values(lake, NEW) == ["new"]
    assert OLD not in lake.names()
    assert held(applied(feed, lake, **dump(tmp_path / "dump"))) == {}
    assert values(lake, OLD) == ["before", "later"]


def test_a_table_that_has_its_rows_goes_on_without_the_server(feed: LittleFeed, tmp_path: Path) -> None:
    lake, dumped = MemoryLake(), dump(tmp_path / "dump")
    applied(feed, lake, **dumped)
    feed.rows("s.old", S, [("I", S + 105, 3, "much later")])
    feed.publish(S + 200)
    outcome = applied(feed, lake, **dumped, source={"uri": closed(), "at": S + 50})
    assert held(outcome) == {}
    assert values(lake, OLD) == ["before", "later", "much later"]


def test_a_dump_that_was_damaged_later_is_not_needed_any_more(feed: LittleFeed, tmp_path: Path) -> None:
    lake, dumped = MemoryLake(), dump(tmp_path / "dump")
    applied(feed, lake, **dumped)
    (tmp_path / "dump" / "metadata").unlink()
    feed.rows("s.old", S, [("I", S + 105, 3, "much later")])
    feed.publish(S + 200)
    assert held(applied(feed, lake, **dumped)) == {}
    assert values(lake, OLD) == ["before", "later", "much later"]


def test_a_dump_that_is_wrong_from_the_start_is_an_error(feed: LittleFeed, tmp_path: Path) -> None:
    lake, dumped = MemoryLake(), dump(tmp_path / "dump")
    (tmp_path / "dump" / "metadata").unlink()
    with pytest.raises(MalformedDump, match="no `metadata`"):
        applied(feed, lake, **dumped)
    shutil.rmtree(tmp_path / "dump")
    with pytest.raises((BucketMissing, BadSettings)):
        applied(feed, lake, **dumped)
    assert lake.tables == {}


@pytest.mark.parametrize("gone", [True, False])
def test_a_table_whose_dump_was_cut_off_is_made_from_the_one_that_was_taken_anew(
    feed: LittleFeed, tmp_path: Path, gone: bool
) -> None:
    lake, first = MemoryLake(), dump(tmp_path / "first")
    cut_off(tmp_path / "first")
    assert "cut off" in held(applied(feed, lake, **first))[OLD]
    anew = dump(tmp_path / "anew", S + 20, [("1", "before"), ("2", "later")])["dump"]
    if gone:
        shutil.rmtree(tmp_path / "first")
    outcome = applied(feed, lake, dump=[first["dump"], anew] if not gone else [anew])
    assert [(table.state, table.incomplete) for table in outcome.tables] == [("applied", "")] * 2
    assert values(lake, OLD) == ["before", "later"]
    assert [state.base.at for state in lake.applied().values() if state.base is not None] == [S + 20]


def test_a_dump_without_any_rows_makes_tables_empty_unless_the_feed_or_a_person_knows_better(
    feed: LittleFeed, tmp_path: Path
) -> None:
    new = TEXT.replace("`old`", "`new`")
    both: dict[TableId, tuple[TableSchema, list[Row]]] = {OLD: (created(TEXT), []), NEW: (created(new), [])}
    write_dump(tmp_path / "dump", both, S + 6, Writing(), texts={OLD: TEXT, NEW: new})
    lake, complete = MemoryLake(), MemoryLake()
    for complete_tables, into, old in (([], lake, []), ([], lake, []), (["s.old"], complete, ["later"])):
        outcome = applied(feed, into, dump=str(tmp_path / "dump"), complete=complete_tables)
        assert [(table.state, table.incomplete) for table in outcome.tables] == [("applied", "")] * 2
        assert any("--no-data" in warning.text for warning in outcome.warnings)
        assert (values(into, OLD), values(into, NEW)) == (old, ["new"])
    applied(feed, lake, dump=str(tmp_path / "dump"), complete=["s.old"])
    assert values(lake, OLD) == []


def test_a_table_of_a_dump_that_cannot_be_read_is_held_for_that_and_for_nothing_else(
    feed: LittleFeed, tmp_path: Path
) -> None:
    initial = dump(tmp_path / "dump")
    (tmp_path / "dump" / "s.old-schema.sql").unlink()
    outcome = applied(feed, MemoryLake(), **initial)
    assert "has no schema file" in held(outcome)[OLD]
    assert not [warning for warning in outcome.warnings if warning.rule == "keys"]


# --- rows that do not fit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [TEXT, TEXT.replace(",PRIMARY KEY (`id`)", "")], ids=["key", "no key"])
@pytest.mark.parametrize("kind", ["csv", "sql", "parquet"])
def test_rows_of_a_dump_that_did_not_fit_are_taken_in_once_they_do(tmp_path: Path, kind: str, text: str) -> None:
    feed, rows = LittleFeed(tmp_path), [("1", "a"), ("2", "b"), ("3", "c"), ("4", "d")]
    feed.create("s.new", S)
    feed.publish(S + 100)
    write_dump(tmp_path / "dump", {OLD: (created(text), rows)}, S, Writing(), kind, chunk_rows=3, texts={OLD: text})
    file = tmp_path / "dump" / f"s.old.000000000.{kind}"
    good, long = file.read_bytes(), [*rows[:1], ("2", "b" * 41), *rows[2:3]]
    file.write_bytes(data_file("old", created(text).columns, long, Writing(), kind))
    settings, lake = feed.settings(initial={"dump": str(tmp_path / "dump")}, quarantine=True), MemoryLake()
    pipeline = Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://"))
    pipeline.apply("test")
    assert values(lake, OLD) == ["a", "c", "d"]
    (kept,) = lake.quarantined()
    assert (kept.file, kept.line) == (str(file), {"csv": 3, "sql": 5, "parquet": 2}[kind])
    assert b"bbb" in kept.raw
    file.write_bytes(good)
    assert [(replay_result.rows, replay_result.waiting) for replay_result in replay(pipeline)] == [(1, 0)]
    assert values(lake, OLD) == ["a", "b", "c", "d"]


# --- exchanges before a dump ------------------------------------------------------------------------------------------

PARTED = "CREATE TABLE `p` (`id` INT PRIMARY KEY,`v` VARCHAR(40))" + (
    " PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (9))"
)


def exchanged(directory: Path, parted: str, plain: str) -> LittleFeed:
    """A feed of two tables that exchange their rows, all before S: one of them partitioned, one not."""
    feed = LittleFeed(directory)
    feed.ddl(f"s.{parted}", FIRST, PARTED.replace("`p`", f"`{parted}`"), 3)
    feed.rows(f"s.{parted}", FIRST, [("I", FIRST + 1, 1, "parted")])
    feed.create(f"s.{plain}", FIRST + 2)
    feed.rows(f"s.{plain}", FIRST + 2, [("I", FIRST + 3, 2, "plain")])
    feed.ddl(f"s.{parted}", FIRST + 4, f"ALTER TABLE `{parted}` EXCHANGE PARTITION `p0` WITH TABLE `{plain}`", 42)
    feed.ddl(f"s.{plain}", FIRST + 4, "", 0)
    return feed


def test_a_table_that_exchanged_rows_and_was_dropped_before_the_dump_is_not_needed(tmp_path: Path) -> None:
    feed = exchanged(tmp_path, "gone", "old")
    feed.ddl("s.gone", FIRST + 5, "DROP TABLE `s`.`gone`", 4)
    feed.create("s.gone", S + 1)
    feed.publish(S + 100)
    lake = MemoryLake()
    outcome = applied(feed, lake, **dump(tmp_path / "dump", rows=[("1", "parted")]), start_ts=FIRST - 1)
    assert (held(outcome), outcome.complete) == ({}, True)
    assert (values(lake, OLD), values(lake, TableId("s", "gone"))) == (["parted"], [])


def test_a_table_that_one_of_the_lake_exchanged_rows_with_before_the_dump_is_built_from_the_feed(
    tmp_path: Path,
) -> None:
    feed, lake = exchanged(tmp_path, "parted", "old"), MemoryLake()
    feed.publish(FIRST + 1)
    assert applied(feed, lake).complete
    feed.publish(S + 100)
    outcome = applied(feed, lake, **dump(tmp_path / "dump", rows=[("1", "parted")]), start_ts=FIRST - 1)
    assert (held(outcome), outcome.complete) == ({}, True)
    assert (values(lake, OLD), values(lake, TableId("s", "parted"))) == (["parted"], ["plain"])


def test_a_table_that_stands_beyond_a_newer_dump_is_built_from_it_though_nothing_came_since(
    feed: LittleFeed, tmp_path: Path
) -> None:
    lake = MemoryLake()
    assert {table.gap is not None for table in applied(feed, lake).tables if table.name == OLD} == {True}
    pipeline = feed.pipeline_into(lake, initial=dump(tmp_path / "dump", S + 50, (("1", "before"), ("2", "later"))))
    (done,) = rebuild(pipeline, MemoryRebuilds(lake), ["s.old"])
    assert values(lake, OLD) == ["before", "later"]
    assert lake.applied()[done.life].progress == Progress(S + 100, Phase.ROWS)
    feed.rows("s.old", S, [("I", S + 105, 3, "much later")])
    feed.publish(S + 200)
    assert applied(feed, lake).complete
    assert values(lake, OLD) == ["before", "later", "much later"]
