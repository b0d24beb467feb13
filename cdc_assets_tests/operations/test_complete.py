"""Tables that existed before their changefeed are reported everywhere, until a person says that they had no rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc_assets.errors import BadSettings
from cdc_assets.features.completeness.operations import say_complete, unsay_complete
from cdc_assets.lake import Lake
from cdc_assets.lake.namespaces import format_decision, parse_decisions
from cdc_assets.ledger import Ledger
from cdc_assets.model.gaps import CompletePattern
from cdc_assets.model.progress import Gap, Life
from cdc_assets.model.schema import TableId
from cdc_assets.operations.inspect import inspect_changefeed
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline, PipelineLake
from cdc_assets.report.as_json import outcome_json
from cdc_assets.report.text import inspection_lines, outcome_lines
from cdc_assets_tests.cases import Case, Config
from cdc_assets_tests.command_line import Commands
from cdc_assets_tests.cut_feed import cut
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake

CUT = [("C_ddl_tables", "csv-ts"), ("B_ddl_columns", "csv-ts"), ("E_partitions", "csv-ts")]


def opened(feed: LittleFeed, lake: PipelineLake, ledger: Ledger | None = None, *complete: str) -> Pipeline:
    return feed.pipeline_into(lake, ledger or Ledger("sqlite://"), initial={"complete": complete})


def incomplete(outcome: Outcome) -> set[str]:
    return {str(table.name) for table in outcome.tables if table.incomplete}


@pytest.fixture
def feed(tmp_path: Path) -> LittleFeed:
    """`s.old` was there before the feed and has a row in it; `s.new` was created in it."""
    made = LittleFeed(tmp_path)
    made.ddl("s.old", FIRST, "", 0)
    made.rows("s.old", FIRST, [("I", FIRST + 5, 1, "one")])
    made.create("s.new", FIRST + 1)
    made.publish(FIRST + 10)
    return made


@pytest.mark.parametrize(("case", "name"), CUT)
def test_every_table_that_existed_when_a_recorded_feed_began_is_reported(case: str, name: str, tmp_path: Path) -> None:
    config = Case(case).config(name)
    seen = 0
    for number, checkpoint in enumerate(config.checkpoints[:-1]):
        bucket = tmp_path / str(number)
        bucket.mkdir()
        before = cut(config, checkpoint.ts, bucket)
        seen += len(before)
        assert incomplete_tables(config, bucket) == {str(table) for table in before}
        assert incomplete_tables(config, bucket, "*") == set()
    assert seen


def incomplete_tables(config: Config, bucket: Path, *complete: str) -> set[str]:
    settings = config.settings(bucket, initial={"complete": complete})
    outcome = Pipeline(settings, settings.open_source(), MemoryLake(), Ledger("sqlite://")).apply("test")
    assert not (outcome.complete and incomplete(outcome))
    assert {str(f.table) for f in outcome.findings if f.rule == "incomplete"} == incomplete(outcome)
    return incomplete(outcome)


def test_a_recorded_case_reports_the_two_tables_that_were_there_before_it() -> None:
    config = Case("D_keys").config("csv-ts")
    assert incomplete_tables(config, config.bucket()) == {"keysdb.pre_pk", "keysdb.pre_uk"}
    assert incomplete_tables(config, config.bucket(), "keysdb.pre_*") == set()


def test_its_rows_are_applied_and_it_is_reported_on_every_run(feed: LittleFeed) -> None:
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    for _ in range(2):
        outcome = opened(feed, lake, ledger).apply("run")
        assert [(str(t.name), t.state.value, bool(t.incomplete)) for t in outcome.tables] == [
            ("s.old", "applied", True),
            ("s.new", "applied", False),
        ]
        assert not outcome.complete
        lines = [line for line, _ in outcome_lines(outcome)]
        expected = "incomplete as before: s.old" if outcome.known_findings else "cdc-assets release --complete s.old"
        assert sum(expected in line for line in lines) == 1
        assert outcome_json("little", outcome)["tables"][0]["incomplete"]
    assert lake.read(TableId("s", "old")).num_rows == 1


def test_inspect_reports_it(feed: LittleFeed) -> None:
    inspection = inspect_changefeed(feed.settings())
    assert {table.table: bool(table.incomplete) for table in inspection.tables} == {"s.old": True, "s.new": False}
    assert any("live, incomplete" in line for line in inspection_lines(inspection))
    assert [
        subject.table for cause in inspection.findings if cause.rule == "incomplete" for subject in cause.subjects
    ] == ["s.old"]


def test_a_setting_makes_it_complete(feed: LittleFeed) -> None:
    lake = MemoryLake()
    assert not opened(feed, lake).apply("run").complete
    assert opened(feed, lake, None, "s.o*").apply("run").complete
    assert {table.gap for table in lake.tables.values()} == {None}


def test_what_a_person_says_is_kept_journaled_and_taken_back(feed: LittleFeed) -> None:
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    opened(feed, lake, ledger).apply("run")
    assert say_complete(opened(feed, lake, ledger), ["s.*"], "ann", "stated") == {}
    assert opened(feed, lake, ledger).apply("run").complete
    assert {table.gap for table in lake.tables.values()} == {None}
    (entry,) = [entry for entry in ledger.journal("little") if entry.run == "stated"]
    assert (entry.name, entry.action, entry.query) == ("s.old", "complete", "no rows before: s.*, says ann")
    assert set(unsay_complete(opened(feed, lake, ledger), ["s.*"], "bob", "undone")) == {"s.old"}
    assert incomplete(opened(feed, lake, ledger).apply("run")) == {"s.old"}
    assert [entry.action for entry in ledger.journal("little") if entry.run == "undone"] == ["incomplete"]


def test_a_dry_run_says_what_would_be_incomplete_and_records_nothing(feed: LittleFeed) -> None:
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    opened(feed, lake, ledger).apply("run")
    assert say_complete(opened(feed, lake, ledger), ["s.*"], "ann", "tried", dry_run=True) == {}
    assert incomplete(opened(feed, lake, ledger).apply("run")) == {"s.old"}
    say_complete(opened(feed, lake, ledger), ["s.*"], "ann", "stated")
    assert set(unsay_complete(opened(feed, lake, ledger), ["s.*"], "ann", "tried", dry_run=True)) == {"s.old"}
    assert opened(feed, lake, ledger).apply("run").complete
    assert [entry for entry in ledger.journal("little") if entry.run == "tried"] == []


def test_a_pattern_that_fits_nothing_is_refused_and_names_what_is_incomplete(feed: LittleFeed) -> None:
    lake = MemoryLake()
    with pytest.raises(BadSettings, match=r"s\.old"):
        say_complete(opened(feed, lake), ["s.old", "s.new"])
    with pytest.raises(BadSettings, match="known are none"):
        unsay_complete(opened(feed, lake), ["s.old"])
    assert lake.decisions().of(CompletePattern) == ()


def test_a_held_table_stays_incomplete_until_its_truncate_is_carried_out(feed: LittleFeed) -> None:
    lake = MemoryLake()
    feed.ddl("s.old", FIRST + 20, "ALTER TABLE `old` FROBNICATE", 999, wide=True)
    feed.ddl("s.old", FIRST + 30, "TRUNCATE TABLE `old`", 11, wide=True)
    feed.publish(FIRST + 40)
    assert incomplete(opened(feed, lake).apply("run")) == {"s.old"}


def test_statements_of_patterns_come_back_as_they_were() -> None:
    pattern = CompletePattern("shop.*" * 400, "ann", "2026-01-02T03:04:05+00:00")
    kept = {**format_decision("a.b", pattern), **format_decision("a", CompletePattern("x"))}
    assert all(len(text) <= 1000 and len(name) <= 255 for name, text in kept.items())
    assert parse_decisions(kept, "a.b").of(CompletePattern) == (pattern,)


# --- the real lake ----------------------------------------------------------------------------------------------------


def properties(lake: Lake, name: str) -> dict[str, str]:
    table = lake.state.catalog.load_table(("s", name))
    return {key: value for key, value in table.properties.items() if key.startswith("cdc.incomplete")}


def test_the_lake_table_says_so_in_its_properties_until_it_ends(
    feed: LittleFeed, open_lake: Callable[..., Lake]
) -> None:
    lake = open_lake("little")
    assert incomplete(opened(feed, lake).apply("run")) == {"s.old"}
    expected = {"cdc.incomplete": str(FIRST), "cdc.incomplete-of": f"s.old@{FIRST}", "cdc.incomplete-why": "files"}
    assert properties(lake, "old") == expected
    assert properties(lake, "new") == {}
    assert lake.applied()[Life(TableId("s", "old"), FIRST)].gap == Gap(Life(TableId("s", "old"), FIRST))
    assert say_complete(opened(feed, lake), ["s.old"]) == {}
    assert properties(lake, "old") == {}
    assert set(unsay_complete(opened(feed, lake), ["s.old"])) == {"s.old"}
    assert properties(lake, "old")["cdc.incomplete"] == str(FIRST)
    feed.ddl("s.old", FIRST + 20, "TRUNCATE TABLE `old`", 11)
    feed.publish(FIRST + 30)
    assert opened(feed, lake).apply("run").complete
    assert properties(lake, "old") == {}


def test_commands_end_with_1_while_a_table_is_incomplete(feed: LittleFeed, run: Commands, tmp_path: Path) -> None:
    lake = ["--warehouse", str(tmp_path / "lake")]
    flags = ["--sink-uri", f"file://{feed.bucket}?protocol=csv", "--config", str(feed.toml), "--name", "little", *lake]
    assert run("apply", *flags).returncode == 1
    process = run("status", *lake, "--json")
    assert process.returncode == 1
    assert {row["table"]: (row["state"], bool(row["incomplete"])) for row in json.loads(process.stdout)} == {
        "s.old": ("applied", True),
        "s.new": ("applied", False),
    }
    process = run("plan", *flags)
    assert (process.returncode, "s.old: incomplete" in process.stdout) == (1, True)
    assert run("plan", *flags, "--complete", "s.*").returncode == 0
    refused = run("rebuild", "s.old", *flags)
    assert (refused.returncode, "incomplete" in refused.stderr) == (1, True)
    assert run("release", "--complete", "s.old", "--who", "ann", *flags).returncode == 0
    assert run("apply", *flags).returncode == 0
    assert run("status", *lake).returncode == 0
    assert run("rebuild", "s.old", *flags).returncode == 0
    (kept,) = json.loads(run("release", "--list", "--name", "little", *lake, "--json").stdout)
    assert (kept["table"], kept["way"], kept["who"]) == ("s.old", "complete", "ann")
