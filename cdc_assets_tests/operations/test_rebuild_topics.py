"""Tables of topics built anew out of what is landed, also where the messages are in the log no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_assets.errors import RebuildRefused
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.landing.test_recorded_feeds import REFUSED
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds, damage
from cdc_assets_tests.topic_feed import TopicFeed
from cdc_assets_tests.topics import Topic, topics

CHOSEN = {"C_ddl_tables/craft", "E_partitions/open-protocol", "D_keys/simple"}


def applied_in_two_steps(topic: Topic) -> tuple[TopicFeed, Pipeline]:
    feed = TopicFeed.recording(topic)
    feed.send(len(topic.lines) // 2)
    feed.apply()
    feed.send()
    feed.apply()
    return feed, Pipeline(feed.settings, feed.source, feed.lake, feed.ledger, landing=feed.landing)


@pytest.mark.parametrize(
    "topic", [topic for topic in topics("craft", "open-protocol", "simple") if str(topic) in CHOSEN], ids=str
)
def test_damaged_tables_are_the_source_again_without_the_log(topic: Topic) -> None:
    feed, pipeline = applied_in_two_steps(topic)
    damage(feed.lake)
    assert feed.differences(except_for=REFUSED) != []
    feed.send(0)
    rebuild(pipeline, MemoryRebuilds(feed.lake), run="the rebuild")
    assert feed.differences(except_for=REFUSED) == []


def test_a_table_whose_rows_are_not_landed_any_more_is_not_built_anew() -> None:
    topic = next(topic for topic in topics("simple") if topic.case.name == "D_keys")
    feed, pipeline = applied_in_two_steps(topic)
    gone = feed.landing.landed().splits[0]
    state = feed.store.state
    feed.store.state = replace(state, rows=tuple(file for file in state.rows if file != gone.file))
    with pytest.raises(RebuildRefused, match=str(gone.table)):
        rebuild(pipeline, MemoryRebuilds(feed.lake), [str(gone.table)], "the rebuild")
