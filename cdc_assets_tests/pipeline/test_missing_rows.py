"""Rows past the change log: the first change of one that is not there proves that rows of its table are missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from cdc_assets.errors import BadSettings
from cdc_assets.features.completeness.operations import accept_incomplete, say_complete
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Lack, Life
from cdc_assets.model.schema import TableId
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.generated import CHECKS, PICKS, RAW, STYLES, Feed
from cdc_assets_tests.histories import history
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.operations.test_quarantine import COLUMNS, CREATE, Bucket, row
from cdc_assets_tests.source import Row, RowChange, Source, Table, Transaction, normal
from cdc_assets_tests.writer import Publication, Style, Writer, publications

ORDERS = Life(TableId("s", "orders"), FIRST)


class LackingLake(MemoryLake):
    """A lake of a feed that lacks rows."""

    may_lack_rows = True


def pipeline_of(feed: LittleFeed, lake: MemoryLake, ledger: Ledger | None = None, **more: Any) -> Pipeline:
    return feed.pipeline_into(lake, ledger or Ledger("sqlite://"), **more)


def lacks(outcome: Outcome) -> dict[str, str]:
    return {str(table.name): table.incomplete for table in outcome.tables if table.incomplete}


@pytest.fixture(params=["csv", "canal-json"])
def feed(tmp_path: Path, request: pytest.FixtureRequest) -> LittleFeed:
    """`s.orders` has the row 1."""
    made = LittleFeed(tmp_path, request.param)
    made.create("s.orders")
    made.rows("s.orders", FIRST, [("I", FIRST + 5, 1, "one")])
    made.publish(FIRST + 10)
    return made


HISTORY: Mapping[str, Any] = {
    "mirror": {},
    "scd2": {"history": {"s.orders": {"kinds": ["scd2"], "mirror": False}}},
    "all": {"history": {"s.orders": ["log", "scd2"]}},
}


@pytest.mark.parametrize("kinds", HISTORY)
@pytest.mark.parametrize("op", ["U", "D"])
@pytest.mark.parametrize("first", [True, False], ids=["in the first window", "in a later one"])
def test_a_change_of_a_row_that_nothing_made_proves_that_rows_are_missing(
    feed: LittleFeed, op: str, first: bool, kinds: str
) -> None:
    lake, ledger = LackingLake(), Ledger("sqlite://")
    if not first:
        assert pipeline_of(feed, lake, ledger, **HISTORY[kinds]).apply("run").complete
    feed.rows("s.orders", FIRST, [("U", FIRST + 11, 1, "two"), (op, FIRST + 12, 7, "x"), ("D", FIRST + 13, 8, "x")])
    feed.publish(FIRST + 20)
    for _ in range(2):
        outcome = pipeline_of(feed, lake, ledger, **HISTORY[kinds]).apply("run")
        assert not outcome.complete
        assert len(lacks(outcome)) == len(lake.tables) > 0
        for sentence in lacks(outcome).values():
            assert "2 rows" in sentence
            assert f"{FIRST + 12} of the row id = 7" in sentence
            assert "--accept-incomplete" in sentence
        assert {table.gap.filling.lack for table in lake.tables.values() if table.gap} == {Lack.PROVEN}
    assert lacks(pipeline_of(feed, lake, ledger, **HISTORY[kinds]).status()) == lacks(outcome)


@pytest.mark.parametrize("kinds", HISTORY)
@pytest.mark.parametrize("op", ["U", "D"])
@pytest.mark.parametrize("first", [True, False], ids=["in the first window", "in a later one"])
def test_a_change_of_a_row_that_the_window_deleted_proves_that_rows_are_missing(
    feed: LittleFeed, op: str, first: bool, kinds: str
) -> None:
    lake, ledger = LackingLake(), Ledger("sqlite://")
    if not first:
        assert pipeline_of(feed, lake, ledger, **HISTORY[kinds]).apply("run").complete
    made = [("I", FIRST + 11, 2, "x"), ("D", FIRST + 12, 2, "x"), ("I", FIRST + 13, 2, "x"), ("U", FIRST + 14, 2, "x")]
    feed.rows(
        "s.orders", FIRST, [*made, ("D", FIRST + 15, 1, "x"), (op, FIRST + 16, 1, "y"), ("U", FIRST + 17, 1, "z")]
    )
    feed.publish(FIRST + 20)
    outcome = pipeline_of(feed, lake, ledger, **HISTORY[kinds]).apply("run")
    assert len(lacks(outcome)) == len(lake.tables) > 0
    for sentence in lacks(outcome).values():
        assert f"{FIRST + 16} of the row id = 1" in sentence


def test_what_the_window_made_and_what_comes_again_proves_nothing(feed: LittleFeed) -> None:
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    pipeline_of(feed, lake, ledger).apply("run")
    rows = [
        ("I", FIRST + 11, 2, "two"),
        ("U", FIRST + 12, 2, "x"),
        ("D", FIRST + 13, 2, "x"),
        ("D", FIRST + 14, 1, "x"),
    ]
    feed.rows("s.orders", FIRST, rows)
    feed.publish(FIRST + 20)
    assert pipeline_of(feed, lake, ledger).apply("run").complete
    feed.rows("s.orders", FIRST, [*rows, ("I", FIRST + 21, 1, "again"), ("U", FIRST + 22, 1, "three")])
    feed.publish(FIRST + 30)
    assert pipeline_of(feed, lake, ledger).apply("run").complete


def test_a_truncate_ends_it_and_a_later_proof_counts_again(feed: LittleFeed) -> None:
    lake, ledger = LackingLake(), Ledger("sqlite://")
    feed.rows("s.orders", FIRST, [("D", FIRST + 11, 7, "x")])
    feed.publish(FIRST + 20)
    assert not pipeline_of(feed, lake, ledger).apply("run").complete
    feed.ddl("s.orders", FIRST + 21, "TRUNCATE TABLE `orders`", 11)
    feed.rows("s.orders", FIRST + 21, [("I", FIRST + 22, 7, "seven"), ("D", FIRST + 23, 7, "x")])
    feed.publish(FIRST + 30)
    assert pipeline_of(feed, lake, ledger).apply("run").complete
    feed.rows("s.orders", FIRST + 21, [("U", FIRST + 31, 9, "x")])
    feed.publish(FIRST + 40)
    assert "id = 9" in lacks(pipeline_of(feed, lake, ledger).apply("run"))["s.orders"]


def test_a_person_who_said_that_a_table_is_complete_is_told_once(feed: LittleFeed) -> None:
    lake, ledger = LackingLake(), Ledger("sqlite://")
    feed.ddl("s.old", FIRST, "", 0)
    feed.rows("s.old", FIRST, [("U", FIRST + 11, 7, "x")])
    feed.publish(FIRST + 20)
    warned = []
    for at in (20, 30):
        outcome = pipeline_of(feed, lake, ledger, initial={"complete": ["s.old"]}).apply("run")
        assert outcome.complete
        warned += [(at, finding.table) for finding in outcome.new_findings if finding.rule == "missing-rows"]
        feed.rows("s.old", FIRST, [("U", FIRST + at + 1, at, "x")])
        feed.publish(FIRST + at + 10)
    assert warned == [(20, "s.old")]


def test_a_proven_table_is_complete_again_where_a_person_says_so(feed: LittleFeed) -> None:
    lake, ledger = LackingLake(), Ledger("sqlite://")
    feed.rows("s.orders", FIRST, [("D", FIRST + 11, 7, "x")])
    feed.publish(FIRST + 20)
    assert not pipeline_of(feed, lake, ledger).apply("run").complete
    assert say_complete(pipeline_of(feed, lake, ledger), ["s.orders"]) == {}
    assert pipeline_of(feed, lake, ledger).apply("run").complete


def test_what_is_accepted_is_shown_and_no_failure_until_something_else_is_missing(feed: LittleFeed) -> None:
    lake, ledger = LackingLake(), Ledger("sqlite://")
    feed.rows("s.orders", FIRST, [("D", FIRST + 11, 7, "x")])
    feed.publish(FIRST + 20)
    with pytest.raises(BadSettings, match="no table"):
        accept_incomplete(pipeline_of(feed, lake, ledger), "s.orders")
    pipeline_of(feed, lake, ledger).apply("run")
    assert accept_incomplete(pipeline_of(feed, lake, ledger), "s.orders", "ann", "accepted") == {}
    outcome = pipeline_of(feed, lake, ledger).apply("run")
    assert outcome.complete
    assert "go on without" in lacks(outcome)["s.orders"]
    (entry,) = [entry for entry in ledger.journal("little") if entry.run == "accepted"]
    assert (entry.action, "ann" in entry.query) == ("accepted", True)
    assert set(accept_incomplete(pipeline_of(feed, lake, ledger), "s.orders", undo=True)) == {"s.orders"}
    assert not pipeline_of(feed, lake, ledger).apply("run").complete
    accept_incomplete(pipeline_of(feed, lake, ledger), "s.*")
    feed.ddl("s.orders", FIRST + 21, "TRUNCATE TABLE `orders`", 11)
    feed.rows("s.orders", FIRST + 21, [("U", FIRST + 22, 9, "x")])
    feed.publish(FIRST + 30)
    assert not pipeline_of(feed, lake, ledger).apply("run").complete


def test_an_exchange_passes_it_on(tmp_path: Path) -> None:
    feed, lake = LittleFeed(tmp_path), LackingLake()
    text = "CREATE TABLE `p` (`id` INT PRIMARY KEY,`v` VARCHAR(40)) PARTITION BY RANGE (`id`) ("
    text += "PARTITION `p0` VALUES LESS THAN (100),PARTITION `p1` VALUES LESS THAN (200))"
    feed.ddl("s.p", FIRST, text, 3)
    feed.create("s.orders")
    feed.rows("s.orders", FIRST, [("U", FIRST + 5, 7, "x")])
    feed.ddl("s.p", FIRST + 11, "ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `s`.`orders`", 42)
    feed.ddl("s.orders", FIRST + 11, "", 0)
    feed.publish(FIRST + 20)
    ledger = Ledger("sqlite://")
    outcome = pipeline_of(feed, lake, ledger).apply("run")
    assert {name: "s.orders" in text for name, text in lacks(outcome).items()} == {"s.p": True}


# --- where something else explains it ---------------------------------------------------------------------------------

LEFT_OUT = {
    "inserts": 'ignore-event = ["insert"]',
    "all rows": 'ignore-event = ["all dml"]',
    "rows by a condition": 'ignore-insert-value-expr = "id > 5"',
    "rows by a key that is not known": "ignore-some-rows = true",
}


@pytest.mark.parametrize("hidden", LEFT_OUT)
@pytest.mark.parametrize(("matcher", "proves"), [("s.*", False), ("other.*", True)])
def test_event_filters_that_leave_out_inserts_of_the_table_explain_it(
    tmp_path: Path, hidden: str, matcher: str, proves: bool
) -> None:
    feed, lake = LittleFeed(tmp_path), LackingLake()
    feed.create("s.orders")
    feed.rows("s.orders", FIRST, [("U", FIRST + 5, 7, "x")])
    feed.publish(FIRST + 10)
    filters = f'[[filter.event-filters]]\nmatcher = ["{matcher}"]\n{LEFT_OUT[hidden]}\n'
    feed.toml.write_text(feed.toml.read_text() + filters)
    assert bool(lacks(pipeline_of(feed, lake).apply("run"))) == proves


def test_changed_keys_that_come_as_the_new_row_alone_explain_it(tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("s.orders")
    feed.rows("s.orders", FIRST, [("I", FIRST + 4, 1, "x"), ("U", FIRST + 5, 7, "x")])
    feed.publish(FIRST + 10)
    text = feed.toml.read_text() + "[sink.cloud-storage-config]\noutput-raw-change-event = true\n"
    feed.toml.write_text(text)
    assert not lacks(pipeline_of(feed, MemoryLake()).apply("run"))


@pytest.mark.parametrize("together", [True, False], ids=["in one window", "in two"])
def test_records_in_quarantine_explain_it(tmp_path: Path, together: bool) -> None:
    bucket = Bucket(tmp_path / "feed")
    bucket.schema(100, CREATE, 3, COLUMNS)
    bucket.data(100, 1, row("I", 110, 1, 5), row("I", 111, 7, "x5"))
    if not together:
        assert bucket.apply(150).quarantined == 1
    bucket.data(100, 2, row("U", 160, 7, 8))
    outcome = bucket.apply(200)
    assert (outcome.quarantined, lacks(outcome)) == (1, {})


# --- DDL of tools that bring rows past the log ------------------------------------------------------------------------

BROUGHT = {
    "BR's batch": ("CREATE TABLE `orders` (`id` INT PRIMARY KEY,`v` VARCHAR(40))", 60, Lack.RESTORED),
    "a materialized view": ("CREATE MATERIALIZED VIEW `orders` (`id`,`v`) AS SELECT 1, 'x'", 3, Lack.INGESTED),
    "IMPORT TABLESPACE": ("ALTER TABLE `orders` IMPORT TABLESPACE", 0, Lack.INGESTED),
    "of a partition": ("ALTER TABLE `s`.`orders` IMPORT PARTITION p0 TABLESPACE", 0, Lack.INGESTED),
}


@pytest.mark.parametrize("ddl", BROUGHT)
def test_the_ddl_of_a_tool_that_brings_rows_past_the_log_makes_its_table_incomplete(tmp_path: Path, ddl: str) -> None:
    feed, lake = LittleFeed(tmp_path), MemoryLake()
    query, action, lack = BROUGHT[ddl]
    if query.startswith("ALTER"):
        feed.create("s.orders")
        feed.ddl("s.orders", FIRST + 5, query, action)
    else:
        feed.ddl("s.orders", FIRST, query, action)
    feed.publish(FIRST + 10)
    outcome = pipeline_of(feed, lake).apply("run")
    (table,) = [table for table in outcome.tables if table.life == ORDERS]
    if table.state == "held":  # by what it says of columns
        return
    assert table.gap is not None
    assert table.gap.filling.lack is lack
    assert not outcome.complete
    accept_incomplete(pipeline_of(feed, lake), "s.orders")
    assert pipeline_of(feed, lake).apply("run").complete


# --- generated histories ----------------------------------------------------------------------------------------------

KIND = st.sampled_from([*["rows"] * 12, "create", "rename table", "rename tables", "delete all rows"])
STEPS = st.builds(
    lambda tables, steps: [("create", raw) for raw in tables] + steps,
    st.lists(RAW, min_size=1, max_size=3),
    st.lists(st.tuples(KIND, RAW), min_size=12, max_size=40),
)


def key_of(table: Table, row: Row) -> tuple[object, ...]:
    unique = [unique for unique in table.uniques.values() if all(not table.column(c).nullable for c in unique)]
    return tuple(normal(row[name], table.column(name)) for name in (table.primary or unique[0]))


Key = tuple[int, tuple[object, ...]]


def without_some_inserts(source: Source, picks: Picks) -> set[int]:
    """Take inserts of rows with new keys out of the log; return the tables, by life, that a later change betrays.

    Such a row is one that came past the change log.
    """
    at, seen, hidden, betrayed = dict(source.past), set[Key](), set[Key](), set[int]()
    for number, event in enumerate(source.log):
        if not isinstance(event, Transaction):
            continue
        lives = {table.name: life for life, table in at[event.ts].items()}

        def key_in(change: RowChange, row: Row, ts: int = event.ts, lives: Mapping[TableId, int] = lives) -> Key:
            return lives[change.table], key_of(at[ts][lives[change.table]], row)

        keyed = [change for change in event.changes if change.keyed]
        touched = {key_in(change, change.before) for change in keyed if change.before is not None}
        betrayed |= {life for life, key in touched & hidden}
        left = []
        for change in event.changes:
            fresh = key_in(change, change.after) if change.keyed and change.before is None and change.after else None
            if fresh is not None and fresh not in seen | touched and picks(5) == 0:
                hidden.add(fresh)
            else:
                left.append(change)
        seen |= {key_in(change, row) for change in keyed for row in (change.before, change.after) if row is not None}
        source.log[number] = replace(event, changes=tuple(left))
    source.log[:] = [event for event in source.log if not isinstance(event, Transaction) or event.changes]
    return betrayed


def proven(feed: Feed, publication: Publication) -> Iterator[Life]:
    outcome = feed.apply(publication)
    assert not [table for table in outcome.tables if table.state in ("held", "failed") and table.life.version == -1]
    yield from (table.life for table in outcome.tables if table.gap is not None)


@settings(CHECKS, max_examples=8, derandomize=True, database=None)
@given(steps=STEPS, style=STYLES, raw=PICKS, scd2=st.booleans())
def test_tables_with_rows_that_came_past_the_log_are_known_by_their_first_change(
    tomls: Mapping[str, Path], steps: list[tuple[str, bytes]], style: Style, raw: bytes, scd2: bool
) -> None:
    source = history(steps, style.old_values)
    betrayed = without_some_inserts(source, Picks(raw))
    note(f"{style}\n{source.script}")
    rules = {"history": {"*.*": {"kinds": ["scd2"], "mirror": False}}} if scd2 else {}
    born = {life: table for _, tables in source.past for life, table in tables.items()}
    for whole in (True, False):
        feed = Feed(style, tomls[style.rendering], LackingLake(), **rules)
        try:
            proven_lives = set[Life]()
            for publication in _published(source, style, raw, whole):
                proven_lives = set(proven(feed, publication))
            names = {state.name for life, state in feed.lake.applied().items() if life in proven_lives}
            wanted = {born[life].name for life in betrayed}
            suffix = "__scd2" if scd2 else ""
            assert names == {TableId(name.schema, f"{name.table}{suffix}") for name in wanted}
        finally:
            feed.close()


def _published(source: Source, style: Style, raw: bytes, whole: bool) -> Iterator[Publication]:
    if not whole:
        yield from publications(source, style, Picks(raw))
        return
    writer, end = Writer(style, Picks(raw)), source.log[-1].ts
    for event in source.log:
        writer.write(event)
    writer.flush()
    yield Publication(end, end, writer.files)
