"""Protocols by offset: which rows had come before, which order rows and DDL of several partitions get."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.errors import BadSettings, StorageUnavailable
from cdc_assets.landing.order import follow
from cdc_assets.model.landed import EventKind, StreamEnd
from cdc_assets_tests.landing.test_landing import CREATE, Broker, canal, rows_of
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.topic_feed import TopicFeed
from cdc_assets_tests.topics import topics

URI = "kafka://127.0.0.1:9092/cdc?protocol=canal-json"


def followed(places: list[tuple[str, str]], end: StreamEnd | None = None) -> tuple[list[bool], StreamEnd]:
    """Follow rows, each with its place and what makes it the same; return which of them had come before."""
    end, repeats = end or StreamEnd(), []
    for at, same in places:
        end, repeated = follow(end, at, lambda same=same: same)  # type: ignore[misc]
        repeats.append(repeated)
    return repeats, end


# --- what had come before ---------------------------------------------------------------------------------------------

ROWS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["row", "row", "tombstone"])), max_size=12)


@given(ROWS, st.data())
def test_of_a_stream_that_is_sent_again_only_what_is_new_counts(
    steps: list[tuple[int, str]], data: st.DataObject
) -> None:
    stream, at = list[tuple[str, str]](), 0
    for number, (more, kind) in enumerate(steps):
        at += more % 2
        place = f"{at:03d}" if kind == "row" else ""
        stream.append((place, f"{number} {kind}"))
    stop = data.draw(st.integers(0, len(stream)))
    rows = [place for place, (ts, _) in enumerate(stream[:stop]) if ts and ts < max(t for t, _ in stream[:stop])]
    if not rows:  # a replay that begins with a tombstone, or with the newest rows alone, cannot be seen
        return
    start = data.draw(st.sampled_from(rows))
    first, end = followed(stream[:stop])
    again, _ = followed(stream[start:], end)
    assert not any(first)
    assert again == [True] * (stop - start) + [False] * (len(stream) - stop)


def test_a_replay_that_begins_with_the_newest_row_is_known_by_the_deletes_behind_it() -> None:
    assert followed([("10", "a"), ("", "b"), ("10", "a"), ("", "b"), ("11", "c")])[0] == [
        False,
        False,
        True,
        True,
        False,
    ]


def test_a_stream_that_is_sent_again_twice_from_its_newest_row_on_is_known_both_times() -> None:
    assert followed([("10", "a"), ("", "b")] * 3 + [("11", "c")])[0] == [False, False, *[True] * 4, False]


def test_a_delete_behind_a_replay_that_began_with_another_delete_is_new() -> None:
    sent = [("10", "a"), ("", "x"), ("15", "b"), ("20", "c")]
    repeats, end = followed([*sent, *sent[1:], ("", "y"), ("20", "c"), ("", "y"), ("30", "d")])
    assert repeats == [False] * 5 + [True] * 2 + [False] + [True] * 2 + [False]
    assert end.newest == "30"


def test_what_has_nothing_to_do_with_places_is_always_new() -> None:
    end = StreamEnd("10", 1)
    assert follow(end, None, lambda: "") == (end, False)


# --- order ------------------------------------------------------------------------------------------------------------


def plain(kind: str, ms: int, **more: Any) -> bytes:
    record = json.loads(canal(kind, ms << 18, **more))
    del record["_tidb"]
    return json.dumps(record, separators=(",", ":")).encode()


def row(ms: int, key: int, value: int, kind: str = "INSERT", **more: Any) -> bytes:
    return plain(kind, ms, data=[{"id": str(key), "v": str(value)}], **more)


def ddl(ms: int, sql: str = CREATE) -> bytes:
    return plain(sql.split()[0], ms, isDdl=True, sql=sql, pkNames=None, sqlType=None, mysqlType=None)


@pytest.fixture
def feed() -> TopicFeed:
    return TopicFeed.of(Broker(), sink_uri=URI, accept_unordered=True)


def send(feed: TopicFeed, partition: int, *values: bytes) -> None:
    assert isinstance(feed.log, Broker)
    feed.log.send(partition, *values)


def test_without_consent_nothing_is_applied() -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI)
    send(feed, 0, ddl(100))
    with pytest.raises(BadSettings, match="--accept-unordered"):
        feed.apply()


def test_a_ddl_of_one_partition_falls_between_the_rows_of_another(feed: TopicFeed) -> None:
    send(feed, 0, ddl(100), ddl(130, "TRUNCATE TABLE `t`"))
    send(feed, 1, row(120, 1, 7), row(140, 2, 8))
    feed.apply()
    assert rows_of(feed) == [(2, 8)]


def test_positions_grow_whatever_the_clock_does(feed: TopicFeed) -> None:
    send(feed, 0, ddl(100), row(120, 1, 7))
    feed.apply()
    first = feed.fence
    send(feed, 0, row(130, 1, 8))
    feed.landing.clock_ms = lambda: 1000
    feed.apply()
    assert feed.fence > first
    assert rows_of(feed) == [(1, 8)]


def test_a_column_that_is_added_with_the_time_of_its_ddl_has_that_of_the_source(feed: TopicFeed) -> None:
    add = "ALTER TABLE `t` ADD COLUMN `added` DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP"
    send(feed, 0, ddl(100), row(120, 1, 7), ddl(5000, add))
    feed.apply()
    (table,) = feed.lake.tables.values()
    assert table.rows.column("added").to_pylist() == [datetime(1970, 1, 1, 0, 0, 5)]


def test_a_row_that_comes_below_a_ddl_that_is_landed_holds_its_table(feed: TopicFeed) -> None:
    send(feed, 0, ddl(100), row(120, 1, 7), ddl(130, "TRUNCATE TABLE `t`"))
    feed.apply()
    send(feed, 1, row(125, 2, 8))
    (table,) = feed.apply().tables
    assert table.state.stopped
    assert "cdc[1] offset 0" in table.reason
    assert "it came too late" in table.reason
    assert rows_of(feed) == []


def test_an_older_state_never_comes_back(feed: TopicFeed) -> None:
    changes = [row(120, 1, 7), row(130, 1, 8, "UPDATE", old=[{"id": "1", "v": "7"}]), row(140, 2, 9)]
    send(feed, 0, ddl(100), *changes)
    feed.apply()
    for value in changes:
        send(feed, 0, value)
        feed.apply()
        assert rows_of(feed) == [(1, 8), (2, 9)]


def test_what_had_come_before_is_kept_and_in_no_split(feed: TopicFeed) -> None:
    send(feed, 0, ddl(100), row(120, 1, 7), row(130, 1, 8), row(120, 1, 7))
    feed.apply()
    kinds = [kind for groups in feed.store.files.values() for rows in groups for kind in rows["kind"].to_pylist()]
    assert kinds.count("repeat") == 1
    assert sum(split.rows for split in feed.landing.landed().splits) == 2


def test_a_ddl_that_comes_again_is_kept_once(feed: TopicFeed) -> None:
    send(feed, 0, ddl(100))
    feed.apply()
    send(feed, 0, ddl(100))
    send(feed, 1, ddl(100))
    feed.apply()
    assert [event.kind for event in feed.landing.landed().events] == [EventKind.DDL]


def test_a_backlog_is_landed_in_turns_and_a_ddl_in_it_still_falls_between_its_rows(feed: TopicFeed) -> None:
    send(feed, 0, ddl(100), *(row(101 + at, at, at) for at in range(100)), ddl(400, "TRUNCATE TABLE `t`"))
    send(feed, 1, *(row(201 + at, 100 + at, at) for at in range(100)), row(500, 7, 7))
    feed.landing = feed.landed_in(commit_bytes=2000)
    feed.apply()
    assert rows_of(feed) == [(7, 7)]


_STEPS = st.lists(
    st.tuples(st.sampled_from(["row"] * 9 + ["truncate"]), st.integers(0, 5), st.integers(0, 20_000)), max_size=60
)


@given(_STEPS, st.integers(0, 3))
def test_a_backlog_landed_in_turns_is_what_it_is_at_once(steps: list[tuple[str, int, int]], apart: int) -> None:
    """Rows go to the partition of their key, a TRUNCATE to the first; clocks of senders are up to 3 s apart."""
    feed = TopicFeed.of(Broker(), sink_uri=URI, accept_unordered=True)
    assert isinstance(feed.log, Broker)
    feed.log.at_once = 2
    feed.log.send(0, ddl(100), sent_ms=0)
    clock, expected = 0, dict[int, int]()
    for number, (kind, key, pause) in enumerate(steps, 1):
        clock += pause
        if kind == "truncate":
            feed.log.send(0, ddl(100 + 10 * number, "TRUNCATE TABLE `t`"), sent_ms=clock)
            expected.clear()
        else:
            feed.log.send(key % 3, row(100 + 10 * number, key, number), sent_ms=clock + number * 7919 * apart % 3000)
            expected[key] = number
    feed.log.send(0, row(99_999, 9, 9), sent_ms=clock)
    feed.landing = feed.landed_in(commit_bytes=300)
    assert not [table for table in feed.apply().tables if table.state.stopped]
    assert rows_of(feed) == sorted({**expected, 9: 9}.items())


def test_a_long_backlog_with_a_ddl_is_landed_in_turns(feed: TopicFeed) -> None:
    assert isinstance(feed.log, Broker)
    feed.log.send(0, ddl(100))
    for number in range(300):
        feed.log.send(number % 3, row(101 + number, number, number), sent_ms=number * 1000)
        if number == 150:
            feed.log.send(0, ddl(101 + number, "TRUNCATE TABLE `t`"), sent_ms=number * 1000)
    feed.landing = feed.landed_in(commit_bytes=20_000)
    advanced = feed.landing.advance()
    assert (advanced.rows, advanced.commits > 2) == (300, True)
    feed.apply()
    assert rows_of(feed) == [(number, number) for number in range(151, 300)]


# --- a registry -------------------------------------------------------------------------------------------------------


def test_schemas_are_landed_once_and_a_process_asks_for_them_once() -> None:
    topic = next(topic for topic in topics("avro") if topic.case.name == "A_all_types")
    feed, schema_ids = TopicFeed.recording(topic), list[str]()

    def registry(schema_id: str) -> str | None:
        schema_ids.append(schema_id)
        return topic.registry.get(schema_id)

    feed.landing = feed.landed_in(registry=registry)
    feed.send(len(topic.lines) // 2)
    feed.apply()
    feed.send()
    first, feed.landing = set(schema_ids), feed.landed_in(registry=registry)
    assert len(schema_ids) == len(first)
    feed.apply()
    assert len(schema_ids[len(first) :]) == len(set(schema_ids[len(first) :]))
    assert set(feed.landing.landed().registered) == set(schema_ids)
    feed.landing = feed.landed_in(registry=lambda _: None)
    feed.lake = MemoryLake()
    feed.apply()
    assert feed.differences() == []


def test_a_registry_that_is_down_stops_what_is_unknown_and_nothing_else() -> None:
    topic = next(topic for topic in topics("avro") if topic.case.name == "A_all_types")
    feed = TopicFeed.recording(topic)
    feed.send(len(topic.lines) - 5)
    feed.apply()

    def down(schema_id: str) -> str | None:
        raise StorageUnavailable(f"the schema registry does not return schema {schema_id}")

    feed.landing = feed.landed_in(registry=down)
    feed.send()
    feed.apply()
    assert feed.differences() == []
    fresh = TopicFeed.recording(topic)
    fresh.landing = fresh.landed_in(registry=down)
    fresh.send()
    with pytest.raises(StorageUnavailable, match="does not return schema"):
        fresh.apply()


def test_a_message_of_a_schema_that_the_registry_lacks_is_kept_and_named() -> None:
    topic = next(topic for topic in topics("avro") if topic.case.name == "A_all_types")
    feed = TopicFeed.recording(topic)
    (lost,) = [name for name, text in topic.registry.items() if name == max(topic.registry, key=int)]
    feed.landing = feed.landed_in(registry=lambda name: None if name == lost else topic.registry[name])
    feed.send()
    feed.apply()
    bad = feed.landing.landed().open_bad
    assert bad
    assert f"the schema registry has no schema {lost}" in bad[0].reason
