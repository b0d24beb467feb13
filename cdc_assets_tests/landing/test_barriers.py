"""Barriers of YDB: a landing goes on where they are far apart, and where a partition brings none any more."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.errors import BadSettings
from cdc_assets.landing.decisions import declare_dead
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId
from cdc_assets.report.landings import describe_landing
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

TOPIC, TABLE = "shop/orders/updates", TableId("shop", "orders")


class Lines:
    """Messages of a table's changefeed in a topic of some partitions."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self._offsets: dict[int, int] = {}

    def send(self, partition: int, record: dict[str, Any]) -> None:
        value = base64.b64encode(json.dumps(record).encode()).decode()
        offset = self._offsets.get(partition, 0)
        self._offsets[partition] = offset + 1
        place = {"topic": TOPIC, "partition": partition, "offset": offset, "timestamp_ms": 0}
        self.log.lines.append({**place, "key_b64": None, "value_b64": value, "headers": []})

    def change(self, partition: int, key: int, value: int, step: int) -> None:
        self.send(partition, {"update": {"a": value}, "key": [key], "ts": [step, len(self.log.lines)]})

    def barrier(self, step: int, *partitions: int) -> None:
        for partition in partitions:
            self.send(partition, {"resolved": [step, 0]})


def feed_of(lines: Lines, directory: Path) -> TopicFeed:
    path = directory / "schemas.sql"
    path.write_text("CREATE TABLE `shop/orders` (id Uint32 NOT NULL, a Int64, PRIMARY KEY (id));")
    uri = f"kafka://127.0.0.1:2135/{TOPIC}?protocol=ydb-json"
    return TopicFeed.of(lines.log, sink_uri=uri, name="ydb", schemas=path)


def rows(feed: TopicFeed) -> dict[int, int]:
    return {row["id"]: row["a"] for row in feed.lake.read(TABLE).to_pylist()}


@pytest.mark.parametrize("commit_bytes", [1, 300, 4000])
def test_a_landing_ends_however_far_barriers_are_apart(commit_bytes: int, tmp_path: Path) -> None:
    lines = Lines()
    lines.change(0, 1, 1, 1000)
    lines.barrier(1001, 0, 1)
    feed = feed_of(lines, tmp_path)
    feed.log.at_once = 3
    feed.landing = feed.landed_in(commit_bytes=commit_bytes)
    feed.apply()
    for number in range(60):
        lines.change(number % 2, number, number, 1002 + number)
    lines.barrier(1100, 0, 1)
    brought = feed.landing.advance()
    assert (brought.messages, brought.rows) == (62, 60)  # however often they were read
    feed.apply()
    assert rows(feed) == {number: number for number in range(60)}


def test_what_waits_for_a_barrier_is_said_and_a_dead_partition_lets_it_go_on(tmp_path: Path) -> None:
    lines = Lines()
    lines.change(0, 1, 1, 1000)
    lines.barrier(1001, 0, 1)
    lines.change(0, 1, 2, 1002)
    lines.barrier(1003, 0)
    feed = feed_of(lines, tmp_path)
    feed.apply()
    assert rows(feed) == {1: 1}
    said = describe_landing("ydb", feed.landing.landed(), {})
    assert said.waits.startswith(f"what stands beyond the newest barrier of {TOPIC}[1] waits")
    declare_dead(feed.landing, Partition(TOPIC, 1))
    feed.apply()
    assert rows(feed) == {1: 2}
    assert describe_landing("ydb", feed.landing.landed(), {}).waits == ""
    with pytest.raises(BadSettings, match="waits for no partition"):
        declare_dead(feed.landing, Partition(TOPIC, 7))
