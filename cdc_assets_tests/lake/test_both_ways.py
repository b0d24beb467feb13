"""Executors read, decode, check and stage as the driver does, of every format and every kind of source.

Executors are this process, to which functions travel as they do to others; now and then the tests' own Spark, or a
cluster where CDC_ASSETS_SPARK_MASTER names one (`test_clusters` does).
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.landing.iceberg import LandingTable
from cdc_assets.ledger import Ledger
from cdc_assets.model.comparison import DIFFERENT
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.both_ways import BothWays, Inside
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.connector_topics import Recording
from cdc_assets_tests.formats.test_ydb_keys import TABLE, YQL, line_of, rows_by_key, some_operations, table_after
from cdc_assets_tests.formats.test_ydb_keys import feed_of as keyed_feed_of
from cdc_assets_tests.joined_feed import dump_of, feed_from, joined_settings
from cdc_assets_tests.kills import named
from cdc_assets_tests.landing.test_barriers import Lines, feed_of, rows
from cdc_assets_tests.landing.test_connectors import recorded_feed, some_connectors
from cdc_assets_tests.landing.test_recorded_feeds import BY_OFFSET, REFUSED, TOPICS, some_often
from cdc_assets_tests.landing.test_shares import Tasks, state_of
from cdc_assets_tests.memory_lake import Driver
from cdc_assets_tests.operations.test_quarantine import COLUMNS, CREATE, Bucket, row
from cdc_assets_tests.operations.test_verify import CONFIGS as COMPARED
from cdc_assets_tests.operations.test_verify import Applied, dumped_at
from cdc_assets_tests.replay import compare, replay
from cdc_assets_tests.topic_feed import TopicFeed, archive_of, settings_of
from cdc_assets_tests.topics import Topic

pytestmark = pytest.mark.timeout(900)

CHOSEN = {"A_all_types/canal-ext", "D_keys/csv-old", "G_redelivery/csv-ts", "I_update_keys_clustered/canal-ext"}
CONFIGS = [
    pytest.param(config, id=str(config), marks=() if str(config) in CHOSEN else pytest.mark.soak)
    for case in cases()
    for config in case.configs
]


@pytest.fixture(params=["inside", pytest.param("spark", marks=pytest.mark.soak)])
def executors(request: pytest.FixtureRequest) -> Any:
    """What staging asks for executors."""
    return Inside() if request.param == "inside" else request.getfixturevalue("spark")


@pytest.mark.parametrize("config", CONFIGS)
def test_files_of_a_changefeed(config: Config, executors: Any) -> None:
    lake, final = BothWays(executors), config.checkpoints[-1]
    outcome = replay(config, final, lake)
    assert lake.different == []
    assert lake.windows
    assert final.expected is not None
    assert compare(config, final.expected, lake, outcome) == []


@pytest.mark.parametrize("topic", some_often(TOPICS, {"A_all_types/open-protocol"}))
def test_messages_of_a_topic(topic: Topic, executors: Any) -> None:
    feed = TopicFeed.recording(topic)
    lake = feed.lake = BothWays(executors)
    feed.send()
    feed.apply()
    assert lake.different == []
    assert lake.windows
    assert feed.differences(except_for=REFUSED) == []


@pytest.mark.parametrize("topic", some_often(BY_OFFSET, {"A_all_types/avro"}))
def test_messages_in_the_order_of_offsets(topic: Topic, executors: Any) -> None:
    feed = TopicFeed.recording(topic, accept_unordered=True)
    lake = feed.lake = BothWays(executors)
    feed.send()
    feed.apply()
    assert lake.different == []
    assert lake.windows
    assert feed.differences() == []


@pytest.mark.parametrize("recording", some_connectors(()))
def test_messages_of_a_connector(recording: Recording, executors: Any, tmp_path: Path) -> None:
    feed = recorded_feed(recording, tmp_path)
    lake = feed.lake = BothWays(executors)
    for mark in recording.marks:
        feed.log.lines = recording.lines_at(mark)
        feed.apply()
        assert lake.different == []
    assert lake.windows


@pytest.mark.parametrize("name", ["A_all_types/csv-ts", "D_keys/csv-ts"])
def test_tables_are_compared_with_their_source(name: str, executors: Any, tmp_path: Path) -> None:
    applied = Applied(COMPARED[name])
    right, connect = (
        {table.name: table.rows for table in applied.lake.tables.values()},
        dumped_at(applied.final, tmp_path),
    )
    for faults in (0, 5):
        for table, whole in right.items():
            if table is not None:
                applied.put(table, whole.slice(faults))
        applied.lake.tasks = Driver()
        here = applied.compared(connect, threads=2)
        tasks = applied.lake.tasks = Tasks(spark=executors)
        there = applied.compared(connect, threads=2)
        for table, comparison in there.items():
            assert sorted(comparison.rows, key=repr) == sorted(here[table].rows, key=repr)
            assert replace(comparison, seconds=0, rows=()) == replace(here[table], seconds=0, rows=())
        assert not faults or DIFFERENT in {comparison.state for comparison in there.values()}
        assert max(tasks.rounds) <= 3


@pytest.mark.parametrize("topic", some_often(TOPICS, {"D_keys/craft"}))
def test_messages_of_an_archive_are_landed(topic: Topic, executors: Any, tmp_path: Path) -> None:
    archive, landed = archive_of(topic.lines, tmp_path / "topics"), list[Any]()
    there = Tasks(spark=executors)
    for tasks in (None, there):
        with closing(LandingTable(LakeSettings.from_warehouse(tmp_path / f"lake-{len(landed)}"), "shop")) as table:
            settings = settings_of(topic, archive={"uri": str(archive), "layout": "records"})
            feed = TopicFeed(settings, topic=topic, store=table)
            feed.log = feed.source.log  # type: ignore[assignment]  # the files
            feed.executors = tasks
            feed.landing.advance()
            rows = (row for file in table.stored().rows for row in table.table.read(file).to_pylist())
            landed.append((sorted(map(repr, rows)), state_of(feed)))
    assert landed[0] == landed[1]
    assert there.rounds


def test_records_of_ydb_that_change_some_columns(executors: Any, tmp_path: Path) -> None:
    lines = Lines()
    for number in range(20):
        lines.change(number % 2, number % 7, number, 1000 + number)
    lines.barrier(1100, 0, 1)
    feed = feed_of(lines, tmp_path)
    lake = feed.lake = BothWays(executors)
    feed.apply()
    assert lake.different == []
    assert lake.windows
    assert rows(feed) == {number % 7: number for number in range(13, 20)}


def test_rows_with_null_in_their_key(executors: Any, tmp_path: Path) -> None:
    operations = some_operations(3, 80)
    feed = keyed_feed_of(YQL, tmp_path, [line_of(number, operation) for number, operation in enumerate(operations)])
    lake = feed.lake = BothWays(executors)
    feed.apply()
    assert lake.different == []
    assert lake.windows
    assert rows_by_key(lake.read(TABLE)) == table_after(operations)


@pytest.mark.parametrize("kind", ["csv", pytest.param("sql", marks=pytest.mark.soak)])
@pytest.mark.parametrize("feed", ["G_redelivery/csv-ts", pytest.param("A_all_types/csv-ts", marks=pytest.mark.soak)])
def test_rows_of_a_dump_and_the_feed_after_it(feed: str, kind: str, executors: Any, tmp_path: Path) -> None:
    config = named(feed)
    known = [checkpoint for checkpoint in config.replayable if checkpoint.expected is not None]
    begin, last = known[0], known[-1]
    dump_of(begin, tmp_path / "dump", kind)
    feed_from(config, last, begin, tmp_path / "feed", "begun")
    settings = joined_settings(config, tmp_path / "feed", tmp_path / "dump", start_ts=begin.ts)
    lake = BothWays(executors)
    outcome = Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://")).apply("test")
    assert lake.different == []
    assert lake.windows
    assert last.expected is not None
    assert compare(config, last.expected, lake, outcome) == []


@pytest.mark.parametrize(
    "quarantine",
    [pytest.param(True, id="quarantine"), pytest.param(False, id="refused", marks=pytest.mark.soak)],
)
def test_records_that_do_not_fit_and_files_that_cannot_be_trusted(
    quarantine: bool, executors: Any, tmp_path: Path
) -> None:
    bucket = Bucket(tmp_path / "feed", BothWays(executors))
    for name in ("orders", "cut", "torn"):
        bucket.schema(100, CREATE.replace("orders", name), 3, COLUMNS, table=name)
    bucket.data(100, 1, row("I", 110, 1, 5), row("I", 111, 2, "x5"), row("I", 112, 3, 7))
    bucket.data(100, 2, row("U", 113, 1, 6), row("I", 114, 4, "y"))
    bucket.data(100, 1, row("I", 110, 1, 5, "cut"), '"I","cut"', table="cut")
    torn = bucket.path / bucket.data(100, 1, row("I", 110, 1, 5, "torn"), row("I", 111, 2, 5, "torn"), table="torn")
    torn.write_bytes(torn.read_bytes()[:-4])
    bucket.apply(200, quarantine)
    assert bucket.lake.different == []
    assert bucket.lake.windows == 3
    assert len(bucket.lake.quarantined()) == (3 if quarantine else 0)
