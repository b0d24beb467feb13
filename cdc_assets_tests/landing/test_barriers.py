"""Barriers of YDB: a landing goes on where they are far apart, and where a partition brings none any more."""

from __future__ import annotations

import base64
import json
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
        self._offsets: dict[tuple[str, int], int] = {}

    def send(self, partition: int, record: dict[str, Any], topic: str = TOPIC) -> None:
        value = base64.b64encode(json.dumps(record).encode()).decode()
        offset = self._offsets.get((topic, partition), 0)
        self._offsets[topic, partition] = offset + 1
        place = {"topic": topic, "partition": partition, "offset": offset, "timestamp_ms": 0}
        self.log.lines.append({**place, "key_b64": None, "value_b64": value, "headers": []})

    def change(self, partition: int, key: int, value: int, step: int) -> None:
        self.send(partition, {"update": {"a": value}, "key": [key], "ts": [step, len(self.log.lines)]})

    def barrier(self, step: int, *partitions: int) -> None:
        for partition in partitions:
            self.send(partition, {"resolved": [step, 0]})


def feed_of(lines: Lines, directory: Path, more: str = "", **given: Any) -> TopicFeed:
    path = directory / "schemas.sql"
    path.write_text("CREATE TABLE `shop/orders` (id Uint32 NOT NULL, a Int64, PRIMARY KEY (id));")
    uri = f"kafka://127.0.0.1:2135/{TOPIC}?protocol=ydb-json{more}"
    return TopicFeed.of(lines.log, sink_uri=uri, name="ydb", schemas=path, **given)


def rows(feed: TopicFeed, table: TableId = TABLE) -> dict[int, int]:
    return {row["id"]: row["a"] for row in feed.lake.read(table).to_pylist()}


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


@pytest.mark.parametrize("commit_bytes", [1, 300, 1 << 20])
@pytest.mark.parametrize("beside", [False, True])
def test_rows_behind_the_split_of_a_partition_come_after_those_before_it(
    beside: bool, commit_bytes: int, tmp_path: Path
) -> None:
    """Without virtual timestamps nothing but the number of its partition says of a row that it came later."""
    lines = Lines()
    for number in range(40):
        lines.send(0, {"update": {"a": number}, "key": [1]})
    for partition, key in ((1, 1), (2, 2)):
        lines.send(partition, {"update": {"a": 99}, "key": [key]})
    for number in range(40 if beside else 0):
        lines.send(0, {"update": {"a": number}, "key": [1], "ts": [1000 + number, 1]}, "shop/others/updates")
    feed = feed_of(lines, tmp_path, topics=["shop/*"])
    feed.log.at_once = 3
    feed.landing = feed.landed_in(commit_bytes=commit_bytes)
    feed.apply()
    assert rows(feed) == {1: 99, 2: 99}
    assert feed.landing.behind() == 0


WAITS = f"what stands beyond the newest barrier of {TOPIC}[0], {TOPIC}[1] waits for their next one"


def test_what_outgrows_a_landing_is_landed_and_seen_with_a_barrier_beyond_it(tmp_path: Path) -> None:
    lines = Lines()
    lines.change(0, 1, 1, 1000)
    lines.barrier(1001, 0, 1)
    feed = feed_of(lines, tmp_path)
    feed.landing = feed.landed_in(commit_bytes=1)
    feed.apply()
    for number in range(60):
        lines.change(number % 2, number, number, 1002 + number)
    feed.log.at_once = 3
    feed.apply()
    assert rows(feed) == {1: 1}
    landed = feed.landing.landed()
    assert sum(split.rows for split in landed.splits) > 50
    assert describe_landing("ydb", landed, {}).waits.startswith(f"{WAITS}, also what is landed of it")
    lines.barrier(1010, 0, 1)  # rows beyond it are landed already
    feed.apply()
    assert rows(feed) == {1: 1}
    lines.barrier(1100, 0, 1)  # and nothing else
    feed.apply()
    assert rows(feed) == {number: number for number in range(60)}
    assert describe_landing("ydb", feed.landing.landed(), {}).waits == ""


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("row"), st.integers(0, 1), st.integers(1, 3)),
        st.tuples(st.just("barrier"), st.sampled_from([(0,), (1,), (0, 1)]), st.just(0)),
        st.tuples(st.just("apply"), st.sampled_from([1, 400, 1 << 20]), st.integers(0, 3)),
    ),
    min_size=4,
    max_size=40,
)


class Stopped(Exception):
    """A run that was killed."""


def stop_after(feed: TopicFeed, commits: int) -> None:
    """Let the run be killed at a commit of its landing, 0 for never."""
    commit, number = type(feed.store).commit, count(1)

    def counted(*given: Any) -> None:
        if next(number) == commits:
            raise Stopped
        commit(feed.store, *given)

    feed.store.commit = counted


@settings(max_examples=60)
@given(STEPS)
def test_readers_see_a_barrier_that_all_partitions_have_or_the_one_before_it(steps: list[tuple[str, Any, int]]) -> None:
    lines, now, seen = Lines(), 1000, 1000
    lines.change(0, 1, 0, now)
    lines.barrier(now, 0, 1)
    state, barriers = {1: 0}, {0: now, 1: now}
    states = {now: dict(state)}
    with TemporaryDirectory() as directory:
        feed = feed_of(lines, Path(directory))
        feed.log.at_once = 2
        feed.apply()
        for what, chosen, more in (*steps, ("barrier", (0, 1), 0), ("apply", 1, 0), ("apply", 1, 0)):
            if what == "row":
                now += 1
                key = 10 * chosen + more
                state[key] = now
                lines.change(chosen, key, now, now)
            elif what == "barrier":
                now += 1
                states[now] = dict(state)
                barriers |= dict.fromkeys(chosen, now)
                lines.barrier(now, *chosen)
            else:
                feed.landing = feed.landed_in(commit_bytes=chosen)
                stop_after(feed, more)
                try:
                    feed.apply()
                except Stopped:
                    feed.apply()
                common = min(barriers.values())
                shown = [at for at, held in states.items() if seen <= at <= common and held == rows(feed)]
                assert shown, (rows(feed), states, seen, common)
                assert feed.landing.landed().ahead or states[common] == rows(feed)
                seen = shown[0]
        assert rows(feed) == state


def test_a_partition_that_was_closed_behind_its_last_barrier_is_declared_dead(tmp_path: Path) -> None:
    lines = Lines()
    lines.change(0, 1, 1, 1000)
    lines.barrier(1001, 0, 1)
    lines.change(1, 2, 2, 1002)
    lines.change(0, 1, 3, 1003)
    lines.barrier(1004, 0)
    feed = feed_of(lines, tmp_path)
    feed.apply()
    assert rows(feed) == {1: 1}
    declare_dead(feed.landing, Partition(TOPIC, 1))
    feed.apply()
    assert rows(feed) == {1: 3, 2: 2}
    lines.change(1, 2, 4, 1005)  # it lives
    lines.barrier(1006, 0)
    feed.apply()
    assert rows(feed) == {1: 3, 2: 2}
    lines.barrier(1006, 1)
    feed.apply()
    assert rows(feed) == {1: 3, 2: 4}


def test_a_topic_without_barriers_goes_on_beside_one_that_waits(tmp_path: Path) -> None:
    lines, other = Lines(), "shop/users/updates"
    path = tmp_path / "schemas.sql"
    path.write_text(
        "".join(
            f"CREATE TABLE `shop/{name}` (id Uint32 NOT NULL, a Int64, PRIMARY KEY (id));"
            for name in ("orders", "users")
        )
    )
    uri = f"kafka://127.0.0.1:2135/{TOPIC}?protocol=ydb-json"
    feed = TopicFeed.of(lines.log, sink_uri=uri, name="ydb", schemas=path, topics=(TOPIC, other))
    for step in (1000, 2000):
        lines.change(0, 1, step, step)
        lines.barrier(1001, 0)
        lines.send(0, {"update": {"a": step}, "key": [1], "ts": [step, 1]}, other)
        feed.apply()
    assert rows(feed) == {1: 1000}
    assert rows(feed, TableId("shop", "users")) == {1: 2000}


def test_a_partition_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    lines = Lines()
    lines.change(0, 1, 1, 1000)
    lines.barrier(1001, 0)
    feed = feed_of(lines, tmp_path)
    feed.apply()
    lines.change(1, 2, 2, 1002)
    lines.change(0, 1, 3, 1003)
    lines.barrier(1004, 0)
    feed.apply()
    assert rows(feed) == {1: 1}
    assert describe_landing("ydb", feed.landing.landed(), {}).waits.startswith(WAITS)
    lines.barrier(1004, 1)
    feed.apply()
    assert rows(feed) == {1: 3, 2: 2}
