"""Dumps joined to their changefeeds on Spark and Iceberg: recorded ones, built anew too, and one that was damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.lake import Lake
from cdc_assets.lake.swap import Rebuilds
from cdc_assets.ledger import Ledger
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.joined_feed import dump_of, feed_from, joined_settings
from cdc_assets_tests.little_feed import LittleFeed
from cdc_assets_tests.pipeline.test_imported import OLD, TEXT, S, cut_off, dump
from cdc_assets_tests.replay import compare

pytestmark = pytest.mark.timeout(900)

CHOSEN = (
    ("G_redelivery/csv-ts", 2, "csv"),
    ("D_keys/csv-old", 0, "sql"),
    ("E_partitions/csv-ts", 1, "csv"),
    ("A_all_types/canal-ext", 1, "csv"),
)


def joins() -> list[object]:
    known = {str(config): config for case in cases() for config in case.configs}
    return [
        pytest.param(
            known[name], number, kind, id=name, marks=() if name.startswith("G_redelivery") else pytest.mark.soak
        )
        for name, number, kind in CHOSEN
    ]


@pytest.mark.parametrize(("config", "number", "kind"), joins())
def test_tables_of_a_dump_are_equal_to_the_source_and_so_are_they_built_anew(
    config: Config, number: int, kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    begin, last = config.replayable[number], config.replayable[-1]
    assert last.expected is not None
    dump_of(begin, tmp_path / "dump", kind)
    feed_from(config, last, begin, tmp_path / "feed", "begun")
    settings = joined_settings(config, tmp_path / "feed", tmp_path / "dump", start_ts=begin.ts)
    lake, ledger = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "default", lambda: spark), Ledger("sqlite://")
    pipeline = Pipeline(settings, settings.open_source(), lake, ledger)
    outcome = pipeline.apply("test")
    assert compare(config, last.expected, lake, outcome) == []
    standing = {state.base.at for state in lake.applied().values() if state.base is not None}
    assert standing == {begin.ts}
    assert {state.gap for state in lake.applied().values()} == {None}

    rebuild(pipeline, Rebuilds(lake))
    again = pipeline.apply("again")
    assert compare(config, last.expected, lake, again) == []
    assert {state.base.at for state in lake.applied().values() if state.base is not None} == standing
    lake.close()


def test_a_dump_that_was_damaged_is_taken_anew(spark: SparkSession, tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.ddl("s.old", S, "", 0)
    feed.rows("s.old", S, [("I", S + 5, 2, "later")])
    feed.publish(S + 100)
    lake, ledger = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "little", lambda: spark), Ledger("sqlite://")

    def apply(initial: dict[str, Any]) -> Outcome:
        return feed.pipeline_into(lake, ledger, initial=initial).apply("test")

    first = dump(tmp_path / "first")
    cut_off(tmp_path / "first")
    (table,) = apply(first).tables
    assert (table.state, bool(table.incomplete)) == ("held", True)
    (state,) = lake.applied().values()
    assert state.awaits_rows
    assert state.gap is not None
    other = dump(tmp_path / "other", S + 10, text=TEXT.replace("VARCHAR(40)", "INT"), rows=[("1", "7")])
    (table,) = apply(other).tables
    assert "has others. Rebuild it" in table.reason
    (table,) = apply(dump(tmp_path / "anew", S + 20, [("1", "before"), ("2", "later")])).tables
    assert (table.state, table.incomplete) == ("applied", "")
    (state,) = lake.applied().values()
    assert (state.gap, state.base is not None and state.base.at) == (None, S + 20)
    assert sorted(lake.read(OLD).column("v").to_pylist()) == ["before", "later"]
    lake.close()
