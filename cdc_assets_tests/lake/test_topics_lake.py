"""Recorded topics out of archives on Spark and Iceberg: one always, every one of them in `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_assets_tests.archived_topic import ArchivedTopic, stopped
from cdc_assets_tests.lake.test_both_ways import test_messages_of_an_archive_are_landed as landed_both_ways
from cdc_assets_tests.topics import Topic, topics

pytestmark = pytest.mark.timeout(900)

CHOSEN = {"C_ddl_tables/simple"}
TOPICS = topics("craft", "open-protocol", "canal-json", "canal-json-compat", "simple", "simple-avro", "debezium")
ALL = [pytest.param(topic, id=str(topic), marks=() if str(topic) in CHOSEN else pytest.mark.soak) for topic in TOPICS]


@pytest.mark.parametrize("topic", ALL)
def test_an_archived_topic_ends_equal_to_the_source(topic: Topic, spark: SparkSession, tmp_path: Path) -> None:
    feed = ArchivedTopic(topic, tmp_path, lambda: spark)
    feed.write()
    assert stopped(feed.apply()) == []
    assert feed.differences() == []


def test_tasks_of_spark_land_what_the_driver_lands(spark: SparkSession, tmp_path: Path) -> None:
    """The soak has a cluster do so with every recording."""
    landed_both_ways(next(topic for topic in TOPICS if str(topic) == "D_keys/craft"), spark, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic.checkpoints], ids=str)
def test_an_archive_that_grows_is_the_source_at_every_checkpoint(
    topic: Topic, spark: SparkSession, tmp_path: Path
) -> None:
    feed = ArchivedTopic(topic, tmp_path, lambda: spark)
    for checkpoint in topic.checkpoints:
        feed.write(checkpoint["lines"])
        outcome = feed.apply()
        assert stopped(outcome) == []
        if outcome.checkpoint == checkpoint["checkpoint_ts"]:
            assert feed.differences(topic.case.path / checkpoint["expected"]) == []
    feed.write()
    feed.apply()
    assert feed.differences() == []
