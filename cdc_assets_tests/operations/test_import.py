"""A table that stands incomplete is built anew from a dump on request, and only then."""

from __future__ import annotations

import shutil
from pathlib import Path

from cdc_assets.ledger import Ledger
from cdc_assets.operations.rebuild import rebuild
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
    assert lacking <= {one.life for one in done}
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
