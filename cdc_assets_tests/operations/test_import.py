"""A table that stands incomplete is built anew from a dump on request, and only then."""

from __future__ import annotations

import shutil
from pathlib import Path

from cdc_assets.ledger import Ledger
from cdc_assets.model.findings import INCOMPLETE
from cdc_assets.model.steps import ApplyRows, CreateTable
from cdc_assets.operations.inspect import inspect_changefeed
from cdc_assets.operations.rebuild import incomplete_in_dumps, rebuild
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.joined_feed import dump_of, feed_from, joined_settings
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds
from cdc_assets_tests.replay import compare

CASE = "C_ddl_tables/csv-ts"


def config() -> Config:
    return next(config for case in cases() for config in case.configs if str(config) == CASE)


def test_a_table_that_lacks_rows_gets_them_on_request_and_keeps_its_identity(tmp_path: Path) -> None:
    case = config()
    begin, last = case.replayable[1], case.replayable[-1]
    assert last.expected is not None
    feed_from(case, last, begin, tmp_path / "feed", "begun")
    alone = case.settings(tmp_path / "feed", initial={})
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    before = Pipeline(alone, alone.open_source(), lake, ledger).apply("alone")
    lacking = {table.life for table in before.tables if table.gap is not None}
    assert lacking

    dump_of(begin, tmp_path / "dump", "sql")
    joined = joined_settings(case, tmp_path / "feed", tmp_path / "dump", start_ts=begin.ts)
    after = Pipeline(joined, joined.open_source(), lake, ledger).apply("joined")
    assert lacking <= {table.life for table in after.tables if table.gap is not None}
    assert all("cdc-assets rebuild" in table.incomplete for table in after.tables if table.life in lacking)

    pipeline = Pipeline(joined, joined.open_source(), lake, ledger)
    done = rebuild(pipeline, MemoryRebuilds(lake))
    assert lacking <= {table.life for table in done}
    outcome = Pipeline(joined, joined.open_source(), lake, ledger).apply("again")
    assert [table.name for table in outcome.tables if table.gap is not None] == []
    assert compare(case, last.expected, lake, outcome) == []


def test_tables_go_on_when_their_dump_is_gone(tmp_path: Path) -> None:
    case = config()
    begin, last = case.replayable[1], case.replayable[-1]
    assert last.expected is not None
    dump_of(begin, tmp_path / "dump", "csv")
    feed_from(case, begin, begin, tmp_path / "early", "begun")
    feed_from(case, last, begin, tmp_path / "late", "begun")
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    early = joined_settings(case, tmp_path / "early", tmp_path / "dump", start_ts=begin.ts)
    Pipeline(early, early.open_source(), lake, ledger).apply("early")
    shutil.rmtree(tmp_path / "dump")
    for initial in ({"dump": str(tmp_path / "dump")}, {}):
        late = case.settings(tmp_path / "late", initial=initial)
        outcome = Pipeline(late, late.open_source(), lake, ledger).apply("late")
        assert compare(case, last.expected, lake, outcome) == []


def test_a_table_is_incomplete_between_its_creation_and_its_rows_and_these_have_no_lag(tmp_path: Path) -> None:
    case = config()
    begin = case.replayable[1]
    dump_of(begin, tmp_path / "dump", "csv")
    feed_from(case, begin, begin, tmp_path / "feed", "begun")
    joined = joined_settings(case, tmp_path / "feed", tmp_path / "dump", start_ts=begin.ts)
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    pipeline = Pipeline(joined, joined.open_source(), lake, ledger)
    with_rows = {
        step.life for step in pipeline.planner.plan()[1].steps if isinstance(step, ApplyRows) and step.is_snapshot
    }

    made = pipeline.apply("made", lambda planned: [step for step in planned.steps if isinstance(step, CreateTable)])
    assert {life for life, state in lake.applied().items() if state.gap is not None} == with_rows
    incomplete = {table.life: table.incomplete for table in made.tables if table.incomplete}
    assert incomplete.keys() == with_rows
    assert all(f"its rows as of {begin.ts}" in text and "are not imported yet" in text for text in incomplete.values())
    assert not made.complete

    loaded = pipeline.apply("loaded")
    assert {life for life, state in lake.applied().items() if state.gap is not None} == set()
    assert loaded.complete
    windows = [account for table in loaded.tables for account in table.accounts if account.hi == begin.ts]
    assert {account.life for account in windows} == set(map(str, with_rows))
    assert {account.lag for account in windows} == {None}


def test_what_a_dump_brings_is_not_called_incomplete_before_it_is_applied(tmp_path: Path) -> None:
    case = config()
    begin = case.replayable[1]
    dump_of(begin, tmp_path / "dump", "csv")
    feed_from(case, case.replayable[-1], begin, tmp_path / "feed", "begun")
    alone = inspect_changefeed(case.settings(tmp_path / "feed", initial={}))
    joined = inspect_changefeed(joined_settings(case, tmp_path / "feed", tmp_path / "dump", start_ts=begin.ts))
    assert INCOMPLETE in {finding.rule for finding in alone.findings}
    assert any("--initial URI" in finding.sentence for finding in alone.findings if finding.rule == INCOMPLETE)
    assert INCOMPLETE not in {finding.rule for finding in joined.findings}


def test_all_tables_that_a_dump_can_complete_are_known(tmp_path: Path) -> None:
    case = config()
    begin = case.replayable[1]
    dump_of(begin, tmp_path / "dump", "csv")
    feed_from(case, begin, begin, tmp_path / "feed", "begun")
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    alone = case.settings(tmp_path / "feed", initial={})
    before = Pipeline(alone, alone.open_source(), lake, ledger).apply("alone")
    joined = joined_settings(case, tmp_path / "feed", tmp_path / "dump", start_ts=begin.ts)
    pipeline = Pipeline(joined, joined.open_source(), lake, ledger)
    lacking = {str(table.life) for table in before.tables if table.gap is not None}
    assert lacking
    assert set(incomplete_in_dumps(pipeline)) == lacking
