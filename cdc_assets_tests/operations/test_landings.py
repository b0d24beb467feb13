"""What is said of topics that are landed, or that cannot be: offsets, what waits, and one sentence for each mistake."""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.errors import BadSettings, CdcError, MetadataMissing
from cdc_assets.formats.protocols import PROTOCOLS
from cdc_assets.model.progress import Life
from cdc_assets.model.quarantine import QuarantinedRow
from cdc_assets.model.schema import TableId
from cdc_assets.operations.inspect import inspect_changefeed
from cdc_assets.operations.landings import landing_status
from cdc_assets.operations.opening import open_pipeline
from cdc_assets.operations.status import lake_status
from cdc_assets.report.landings import landing_lines
from cdc_assets.report.text import record_lines
from cdc_assets_tests.archived_topic import ArchivedTopic
from cdc_assets_tests.topic_feed import TopicFeed, archive_of, settings_of
from cdc_assets_tests.topics import topics

TOPIC = next(topic for topic in topics("simple") if topic.case.name == "D_keys")


@pytest.fixture
def feed(tmp_path: Path) -> ArchivedTopic:
    return ArchivedTopic(TOPIC, tmp_path)


def test_offsets_are_those_of_the_landing_and_the_log_is_asked_where_it_is_known(feed: ArchivedTopic) -> None:
    feed.write(60)
    feed.land()
    feed.write(100)
    (then,) = landing_status(feed.lake, lake_status(feed.lake))
    (now,) = landing_status(feed.lake, lake_status(feed.lake), {feed.settings.name: feed.settings})
    assert (then.behind, now.behind) == (0, 40)
    assert sum(partition.landed for partition in now.partitions) == 60


def test_nothing_counts_as_applied_before_a_run_has_applied_it(feed: ArchivedTopic) -> None:
    feed.write()
    feed.land()
    (landing,) = landing_status(feed.lake, lake_status(feed.lake))
    assert 0 < sum(partition.landed - partition.applied for partition in landing.partitions) <= len(TOPIC.lines)
    with open_pipeline(feed.settings, feed.lake) as pipeline:
        pipeline.record_status("test")
        fence = pipeline.source.fence()
    assert any(str(fence) in line for line in landing_lines(landing_status(feed.lake, lake_status(feed.lake))))


def test_a_plan_counts_the_messages_that_it_knows_nothing_of(feed: ArchivedTopic) -> None:
    feed.write(60)
    feed.land()
    feed.write(100)
    with open_pipeline(feed.settings, feed.lake) as pipeline:
        assert pipeline.planner.waiting() == 40


def test_a_lake_without_topics_has_no_landing(tmp_path: Path) -> None:
    feed = ArchivedTopic(TOPIC, tmp_path)
    Path(feed.lake.warehouse).mkdir()
    assert landing_status(feed.lake, lake_status(feed.lake)) == []


def test_a_message_in_quarantine_is_named_by_its_offset_and_a_record_by_its_line() -> None:
    life, when = Life(TableId("shop", "t"), 1), dt.datetime.now(dt.timezone.utc)
    lines = [
        next(record_lines(QuarantinedRow(life, life.born_as, "shop/t/x", 2, "v", reason, 1, 5, 0, "run", when)))
        for reason in ('cdc[0] offset 7: "abc" is not INT', '"abc" is not INT')
    ]
    assert lines == [
        'open  shop.t  cdc[0] offset 7, column "v": "abc" is not INT',
        'open  shop.t  shop/t/x line 2, column "v": "abc" is not INT',
    ]
    log = dataclasses.replace(life, kind="log")
    (line, *_) = record_lines(QuarantinedRow(log, life.born_as, "shop/t/x", 2, "v", "odd", 1, 5, 0, "run", when))
    assert line.startswith("open  shop.t (log)  ")


def test_the_bytes_of_a_record_are_shown_as_text_in_one_line() -> None:
    life, when, raw = Life(TableId("shop", "t"), 1), dt.datetime.now(dt.timezone.utc), '"höhe\n'.encode() + b"\xff"
    row = QuarantinedRow(life, life.born_as, "shop/t/x", 2, "v", "odd", 1, 5, 0, "run", when, raw=raw)
    assert list(record_lines(row))[1] == r'    "höhe\n\xff'


def refusal(directory: Path, **given: Any) -> str:
    """Return the sentence with which an inspection of an archive ends."""
    settings = settings_of(TOPIC, archive={"uri": str(directory), "layout": "records"}, **given)
    with pytest.raises((MetadataMissing, BadSettings)) as caught:
        inspect_changefeed(settings)
    assert isinstance(caught.value, CdcError)
    return caught.value.message


def test_an_empty_archive_and_a_topic_that_is_not_in_it_are_distinguished(tmp_path: Path) -> None:
    assert "no messages at all" in refusal(tmp_path)
    archive_of(TOPIC.lines, tmp_path)
    sentence = refusal(tmp_path, sink_uri="kafka://127.0.0.1:9092/other?protocol=simple")
    assert f"expected other, there is {TOPIC.lines[0]['topic']}" in sentence


@pytest.mark.parametrize("protocol", ["craft", "open-protocol", "canal-json&enable-tidb-extension=true", "debezium"])
def test_topics_of_another_protocol_are_refused_before_anything_is_landed(protocol: str, tmp_path: Path) -> None:
    archive_of(TOPIC.lines, tmp_path)
    sentence = refusal(tmp_path, sink_uri=f"kafka://127.0.0.1:9092/{TOPIC.lines[0]['topic']}?protocol={protocol}")
    assert f"no message can be read by the protocol {protocol.partition('&')[0]}" in sentence


def test_tombstones_alone_do_not_make_a_protocol_that_of_a_topic() -> None:
    topic = next(topic for topic in topics("avro") if topic.case.name == "D_keys")
    other = settings_of(topic, sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", topics=["*"])
    feed = TopicFeed(other, topic=topic)
    feed.send()
    with pytest.raises(BadSettings, match="no message can be read by the protocol debezium-json"):
        feed.apply()
    assert not feed.landing.landed().next


EXTENSION = "&enable-tidb-extension=true"
LANDED_BY = [*PROTOCOLS, f"canal-json{EXTENSION}", f"debezium{EXTENSION}"]


@pytest.mark.parametrize("landed_by", ["avro", f"canal-json{EXTENSION}", "craft", f"debezium{EXTENSION}", "simple"])
def test_topics_are_read_by_the_protocol_that_landed_them(landed_by: str) -> None:
    topic = next(topic for topic in topics(landed_by.partition("&")[0]) if topic.case.name == "D_keys")
    feed = TopicFeed.recording(topic)
    feed.send(40)
    feed.apply()
    before = feed.landing.landed()
    feed.send()
    for protocol in LANDED_BY:
        uri = f"kafka://127.0.0.1:9092/{topic.lines[0]['topic']}?protocol={protocol}"
        other = TopicFeed(settings_of(topic, sink_uri=uri, topics=["*"]), feed.log, topic, feed.store)
        if protocol != landed_by:
            with pytest.raises(BadSettings, match=f"landed with protocol={landed_by}, and the settings now have"):
                other.apply()
            assert feed.landing.landed() == before
    feed.apply()
    assert feed.landing.landed().next != before.next
