"""Barriers of YDB: a landing goes on where they are far apart, and where a partition brings none any more."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cdc_assets.errors import BadSettings, MetadataMissing
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

    def sent(self, partition: int) -> int:
        return self._offsets.get((TOPIC, partition), 0)

    def advance(self, partition: int, offset: int) -> None:
        """Let a partition go on at an offset."""
        self._offsets[TOPIC, partition] = offset

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
    landing = describe_landing("ydb", feed.landing.landed(), {})
    assert landing.waits.startswith(f"what stands beyond the newest barrier of {TOPIC}[1] waits")
    declare_dead(feed.landing, Partition(TOPIC, 1))
    feed.apply()
    assert rows(feed) == {1: 2}
    assert describe_landing("ydb", feed.landing.landed(), {}).waits == ""
    with pytest.raises(BadSettings, match="is not landed"):
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


@settings(max_examples=25)
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


def test_rows_without_timestamps_wait_for_the_barrier_behind_them(tmp_path: Path) -> None:
    lines = Lines()
    lines.send(0, {"update": {"a": 1}, "key": [1]})
    lines.barrier(10, 0)
    lines.send(0, {"update": {"a": 2}, "key": [1]})  # and the partition is split
    for partition in (1, 2):
        lines.send(partition, {"update": {"a": 3}, "key": [partition]})
        lines.barrier(20, partition)
    feed = feed_of(lines, tmp_path)
    feed.apply()
    assert rows(feed) == {1: 1}
    waits = describe_landing("ydb", feed.landing.landed(), {}).waits
    names = ", ".join(f"{TOPIC}[{number}]" for number in range(3))
    assert waits.startswith(f"what stands beyond the newest barrier of {names} waits")  # of two it is not landed yet
    declare_dead(feed.landing, Partition(TOPIC, 0))
    feed.apply()
    assert rows(feed) == {1: 3, 2: 3}


def test_a_first_landing_waits_for_the_barriers_of_partitions_that_a_split_has_made(tmp_path: Path) -> None:
    lines = Lines()
    lines.change(0, 1, 1, 9)
    lines.barrier(10, 0)
    lines.change(1, 1, 2, 15)
    feed = feed_of(lines, tmp_path)
    with pytest.raises(MetadataMissing, match="beyond the newest barrier"):
        feed.apply()
    waits = describe_landing("ydb", feed.landing.landed(), {}).waits
    assert waits.startswith(WAITS)
    lines.barrier(20, 0, 1)
    feed.apply()
    assert rows(feed) == {1: 2}


@pytest.mark.parametrize("stamp", [{}, {"ts": [9, 1]}])
@pytest.mark.parametrize("later", [False, True])
def test_a_partition_all_of_which_expired_unread_is_missing_and_not_waited_for(
    later: bool, stamp: dict[str, Any], tmp_path: Path
) -> None:
    lines, closed = Lines(), Partition(TOPIC, 0)
    lines.send(1, {"update": {"a": 1}, "key": [1], **stamp})
    lines.barrier(10, 1)
    feed = feed_of(lines, tmp_path, "&initial_scan=true", initial={})
    if later:
        feed.apply()
    feed.log.emptied[closed] = 5
    lines.send(1, {"update": {"a": 2}, "key": [1], **stamp})
    lines.barrier(20, 1)
    (table,) = feed.apply().tables
    assert rows(feed) == {1: 2}
    assert describe_landing("ydb", feed.landing.landed(), {}).waits == ""
    assert f"{closed} began at offset 5" in table.incomplete
    del feed.log.emptied[closed]
    lines.advance(0, 5)
    lines.send(0, {"update": {"a": 3}, "key": [2], **({"ts": [25, 1]} if stamp else {})})  # it is open
    lines.barrier(30, 1)
    feed.apply()
    assert rows(feed) == {1: 2}
    assert str(closed) in describe_landing("ydb", feed.landing.landed(), {}, {closed: 6, Partition(TOPIC, 1): 5}).waits
    lines.barrier(30, 0)
    feed.apply()
    assert rows(feed) == {1: 2, 2: 3}


def test_a_partition_that_was_landed_and_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    """Its last row has no timestamp, and no barrier behind it."""
    lines = Lines()
    lines.send(0, {"update": {"a": 1}, "key": [1]})
    lines.barrier(10, 0, 1)
    feed = feed_of(lines, tmp_path)
    feed.apply()
    for number in range(16):
        lines.send(number % 2, {"update": {"a": number}, "key": [1 + number % 2]})
    feed.landing = feed.landed_in(commit_bytes=1)
    feed.log.at_once = 2
    feed.apply()
    assert rows(feed) == {1: 1}
    lines.log.lines = [line for line in lines.log.lines if line["partition"]]
    lines.barrier(20, 1)
    feed.apply()
    assert rows(feed) == {1: 14, 2: 15}
    assert describe_landing("ydb", feed.landing.landed(), {}).waits == ""


class Changefeed:
    """A changefeed whose partitions are split and merged: what it has written, and what was there at each barrier."""

    def __init__(self, *, stamped: bool) -> None:
        self.lines, self.stamped, self.now = Lines(), stamped, 1000
        self.owners = {key: key % 2 for key in range(6)}
        self.due: dict[int, list[int]] = {0: [], 1: []}
        self.proven = {0: 0, 1: 0}
        self.written: list[tuple[int, int, int]] = []
        self.dead: set[int] = set()

    def row(self, key: int) -> None:
        self.now += 1
        partition = self.owners[key]
        self.deliver(partition)
        stamp = {"ts": [self.now, 1]} if self.stamped else {}
        self.lines.send(partition, {"update": {"a": self.now}, "key": [key], **stamp})
        self.written.append((self.now, partition, key))

    def barrier(self) -> None:
        self.now += 1
        for due in self.due.values():
            due.append(self.now)

    def deliver(self, partition: int) -> None:
        """Send a partition the barriers that are due in it."""
        for step in self.due.get(partition, ()):
            self.lines.barrier(step, partition)
            self.proven[partition] = step
        if partition in self.due:
            self.due[partition] = []

    def move(self, parents: set[int], children: int) -> None:
        """Close partitions, and go on in new ones with their keys."""
        first = max(self.proven) + 1
        due = max((self.due.pop(partition) for partition in parents), key=len)
        for number in range(first, first + children):
            self.due[number], self.proven[number] = list(due), min(self.proven[partition] for partition in parents)
        for key, owner in self.owners.items():
            if owner in parents:
                self.owners[key] = first + key % children

    def listed(self) -> set[int]:
        return {partition for partition in self.proven if self.lines.sent(partition)}

    def common(self) -> int:
        return min((self.proven[partition] for partition in self.listed() - self.dead), default=self.now)

    def at(self, step: int) -> dict[int, int]:
        """What is shown through a step; of a dead partition without timestamps all that it has."""
        whole = set() if self.stamped else self.dead
        return {key: now for now, partition, key in self.written if now <= step or partition in whole}


HISTORIES = st.lists(
    st.one_of(
        st.tuples(st.just("row"), st.integers(0, 5)),
        st.tuples(st.just("row"), st.integers(0, 5)),
        st.tuples(st.just("barrier"), st.just(0)),
        st.tuples(st.just("deliver"), st.integers(0, 7)),
        st.tuples(st.just("split"), st.integers(0, 7)),
        st.tuples(st.just("merge"), st.just(0)),
        st.tuples(st.just("dead"), st.just(0)),
        st.tuples(st.just("apply"), st.sampled_from([1, 400, 1000, 1 << 20])),
    ),
    min_size=4,
    max_size=30,
)


@settings(max_examples=25)
@given(HISTORIES, st.booleans(), st.integers(1, 5))
@example([("barrier", 0), ("row", 0), ("row", 4), ("apply", 1)], False, 1)
def test_readers_see_a_barrier_however_partitions_are_split_and_merged(
    history: list[tuple[str, int]], stamped: bool, at_once: int
) -> None:
    source, seen = Changefeed(stamped=stamped), 0
    source.barrier()
    for partition in (0, 1):
        source.deliver(partition)
    source.row(0)
    end = [("barrier", 0), *(("deliver", number) for number in range(40)), ("apply", 1 << 20), ("dead", 0)]
    with TemporaryDirectory() as directory:
        feed = feed_of(source.lines, Path(directory))
        feed.log.at_once = at_once
        for what, chosen in (*history, *end, *end, ("apply", 1)):
            living = sorted(source.due)
            if what == "row":
                source.row(chosen)
            elif what == "barrier":
                source.barrier()
            elif what == "deliver":
                source.deliver(living[chosen % len(living)])
            elif what == "split" and len(source.proven) < 12:
                source.move({living[chosen % len(living)]}, 2)
            elif what == "merge" and len(living) > 1 and len(source.proven) < 12:
                source.move(set(living[:2]), 1)
            elif what == "dead":
                for number in source.listed() - source.due.keys() - source.dead:
                    seen_to = feed.landing.landed().ends.get(Partition(TOPIC, number))
                    if seen_to == source.lines.sent(number) and feed.landing.landed().barriers:
                        declare_dead(feed.landing, Partition(TOPIC, number))
                        source.dead.add(number)
            elif what == "apply":
                feed.landing = feed.landed_in(commit_bytes=chosen)
                with suppress(MetadataMissing):  # nothing is proven yet
                    assert not feed.apply().problems
                shown = rows(feed) if feed.lake.names() else {}
                steps = [step for step in range(seen, source.common() + 1) if source.at(step) == shown]
                assert steps or shown == {} or shown == source.at(seen), (shown, source.written, source.common())
                seen = steps[0] if steps else seen
        assert rows(feed) == source.at(source.now)


def stated(lines: Lines, step: int, *columns: str) -> None:
    """Send both partitions the columns that the table has since a step."""
    types = {"id": "Uint32", **dict.fromkeys(columns, "Int64")}
    table = {"schemaVersion": step, "columns": types, "primaryKeyColumnNames": ["id"]}
    for partition in (0, 1):
        lines.send(partition, {"tableChanges": [{"type": "ALTER", "table": table}], "ts": [step, 1]})


@pytest.mark.parametrize("apart", [False, True])
def test_rows_of_a_partition_from_before_a_change_of_columns_in_another_one_have_the_columns_of_then(
    apart: bool, tmp_path: Path
) -> None:
    lines = Lines()
    feed = TopicFeed.of(lines.log, sink_uri=f"kafka://127.0.0.1:2135/{TOPIC}?protocol=ydb-json", name="ydb")
    stated(lines, 10, "a", "b")
    for key in (0, 1):
        lines.send(key, {"update": {"a": key, "b": key}, "key": [key], "ts": [20, key]})
    lines.barrier(30, 0, 1)
    assert not apart or [table.reason for table in feed.apply().tables] == [""]
    lines.send(1, {"update": {"b": 22}, "key": [1], "ts": [39, 1]})
    stated(lines, 40, "a")
    lines.send(0, {"update": {"a": 11}, "key": [0], "ts": [41, 1]})
    lines.barrier(50, 0, 1)
    assert [table.reason for table in feed.apply().tables] == [""]
    named = [(row["id"], row["a"], row["b"]) for row in feed.lake.read(TABLE).to_pylist()]
    assert sorted(named) == [(0, 11, None), (1, 1, 22)]
