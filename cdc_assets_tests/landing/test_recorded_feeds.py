"""Recorded topics landed, planned, decoded and applied end equal to the source, however they come."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.errors import MetadataMissing
from cdc_assets.model.progress import State
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets_tests.routed import routed
from cdc_assets_tests.topic_feed import TopicFeed, sent_again
from cdc_assets_tests.topics import Topic, topics

TOPICS = topics("craft", "open-protocol", "canal-json", "canal-json-compat", "simple", "simple-avro", "debezium")
BY_OFFSET = (
    *topics("canal-json-noext"),
    *(topic for topic in topics("avro") if str(topic) in {"A_all_types/avro", "H_bank/avro"}),
)
WITHOUT_KEYS = {"D_keys/canal-json-noext"}
"""Rows of a millisecond that come again alone look like new ones: tables without a key hold, if they can."""
WITH_CHECKPOINTS = tuple(topic for topic in TOPICS if topic.checkpoints)
OFTEN = {"A_all_types/open-protocol", "B_ddl_columns/craft", "C_ddl_tables/simple", "D_keys/open-protocol",
         "E_partitions/canal-json", "F_names/canal-json-compat", "H_bank/craft", "D_keys/simple-avro",
         "D_keys/debezium"}  # fmt: skip
PIECEWISE = {"C_ddl_tables/craft", "E_partitions/open-protocol", "F_names/simple"}

REFUSED = {"cols.conv"}
"""Its recorded source refused a MODIFY that the messages have all the same: by their text -100 becomes unsigned."""


def some_often(topics: Iterable[Topic], often: Iterable[str]) -> list[Any]:
    """All of them now and then, a few at every change."""
    return [
        pytest.param(topic, marks=() if str(topic) in often else pytest.mark.soak, id=str(topic)) for topic in topics
    ]


@pytest.mark.parametrize("topic", some_often(TOPICS, OFTEN))
def test_a_topic_that_is_there_at_once_ends_equal_to_the_source(topic: Topic) -> None:
    feed = TopicFeed.recording(topic)
    feed.send()
    assert _stopped(feed.apply()) == []
    assert feed.differences(except_for=REFUSED) == []


def test_a_table_that_comes_back_without_a_ddl_begins_anew_and_lacks_its_rows_from_before() -> None:
    (topic,) = (topic for topic in topics("debezium") if str(topic) == "C_ddl_tables/debezium")
    feed = TopicFeed.recording(topic, initial={})
    feed.send()
    lives = {(str(table.name), table.state): table for table in feed.apply().tables if str(table.name) == "db1.rec"}
    back = lives["db1.rec", State.APPLIED]
    assert lives.keys() == {("db1.rec", State.DROPPED), ("db1.rec", State.APPLIED)}
    assert "(the topics have no CREATE TABLE of it)" in back.incomplete
    assert "RECOVER" not in str([event.query for event in feed.landing.landed().events])
    assert sorted(feed.lake.read(TableId("db1", "rec")).column("id").to_pylist()) == [1, 3]


@pytest.mark.parametrize("topic", some_often(WITH_CHECKPOINTS, PIECEWISE))
def test_a_topic_that_comes_in_pieces_is_the_source_at_every_checkpoint(topic: Topic) -> None:
    feed, chance, sent, fence = TopicFeed.recording(topic), random.Random(str(topic)), 0, 0
    for checkpoint in topic.checkpoints:
        lines = checkpoint["lines"]
        for cut in sorted({*(chance.randint(sent, lines) for _ in range(2)), lines}):
            feed.send(cut)
            fence = max(fence, _applied(feed))
        sent = lines
        assert fence >= checkpoint["checkpoint_ts"]
        if fence == checkpoint["checkpoint_ts"]:
            assert feed.differences(topic.case.path / checkpoint["expected"], REFUSED) == []
    feed.send()
    feed.apply()
    assert feed.differences(except_for=REFUSED) == []


@pytest.mark.parametrize("topic", some_often(TOPICS, {"D_keys/canal-json", "C_ddl_tables/simple", "H_bank/craft"}))
def test_what_is_sent_again_after_a_restart_takes_no_table_back(topic: Topic) -> None:
    count = len(topic.lines)
    lines = sent_again(topic.lines, count // 4, 3 * count // 4)
    feed, fence, seen = TopicFeed.recording(topic), 0, dict[object, int]()
    for cut in (3 * count // 4, count, 5 * count // 4, None):
        feed.send(cut, lines)
        now = _applied(feed)
        assert now >= fence
        fence = now
        for life, state in feed.lake.applied().items():
            assert state.progress.tso >= seen.get(life, 0)
            seen[life] = state.progress.tso
    assert feed.differences(except_for=REFUSED) == []


@pytest.mark.parametrize("name", ["B_ddl_columns/avro", "C_ddl_tables/avro", "E_partitions/avro"])
def test_ddl_in_the_order_of_the_source_ends_equal(name: str) -> None:
    """Renames of one statement happen at once, and a delete without commit-ts comes after the DDL before it."""
    (topic,) = (topic for topic in topics("avro") if str(topic) == name)
    feed = TopicFeed.recording(topic, accept_unordered=True)
    feed.send()
    assert _stopped(feed.apply()) == []
    assert feed.differences(except_for=REFUSED) == []


def test_a_statement_of_which_one_part_was_landed_before_is_held() -> None:
    (topic,) = (topic for topic in topics("avro") if str(topic) == "C_ddl_tables/avro")
    feed = TopicFeed.recording(topic, accept_unordered=True)
    swap = next(
        number for number, line in enumerate(topic.spoken.column("query").to_pylist()) if "tmp_swap" in str(line)
    )
    feed.send(topic.spoken.column("message")[swap].as_py() + 3)
    feed.apply()  # through the newest mark
    feed.apply()  # and what is behind it, as no mark comes
    feed.send()
    assert any("another part of the same statement" in reason for reason in _stopped(feed.apply()))


@pytest.mark.parametrize("topic", some_often(BY_OFFSET, {"D_keys/canal-json-noext", "A_all_types/avro"}))
def test_a_topic_whose_order_is_that_of_offsets_ends_equal_however_it_comes_and_comes_again(topic: Topic) -> None:
    chance, count = random.Random(str(topic)), len(topic.lines)
    start, stop = sorted((chance.randint(0, count), chance.randint(0, count)))
    lines = topic.lines if str(topic) in WITHOUT_KEYS else sent_again(topic.lines, start, stop)
    feed = TopicFeed.recording(topic, accept_unordered=True)
    for cut in [*sorted(chance.sample(range(len(lines)), 4)), None]:
        feed.send(cut, lines)
        assert _stopped(feed.apply()) == []
    assert feed.differences() == []


ROUTED = topics("canal-json", "canal-json-compat", "simple", "simple-avro", "debezium")


@pytest.mark.parametrize("archived", [False, True], ids=["broker", "archive"])
@pytest.mark.parametrize("topic", some_often(ROUTED, {"C_ddl_tables/simple", "C_ddl_tables/canal-json"}))
def test_topics_that_tables_leave_end_equal_and_keep_nothing_back(topic: Topic, archived: bool, tmp_path: Path) -> None:
    """A topic for each table: those of dropped and renamed tables get no more marks."""
    lines, settings = routed(topic, tmp_path)
    given = {"changefeed_config": settings.changefeed_config, "topics": ()}
    archive = {"archive": {"uri": "memory://nowhere", "layout": "records"}} if archived else {}
    feed = TopicFeed.recording(topic, **given, **archive)
    feed.log.proves_ends = not archived
    for cut in [*sorted(random.Random(str(topic)).sample(range(1, len(lines)), 3)), None]:
        feed.send(cut, lines)
        _applied(feed)
    assert feed.fence == max(feed.landing.landed().marks.values())
    assert feed.differences(except_for=REFUSED) == []


def _applied(feed: TopicFeed) -> Tso:
    try:
        assert _stopped(feed.apply()) == []
    except MetadataMissing:
        return 0
    return feed.fence


def _stopped(outcome: Outcome) -> list[str]:
    stopped = [table for table in outcome.tables if table.state.stopped]
    return [f"{table.life}: {table.reason}" for table in stopped if str(table.life.born_as) not in REFUSED]
