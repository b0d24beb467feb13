"""The commit-ts that rows show is the source's of their last change, and where they were landed is what orders them.

Recorded topics are compared with what their messages say, or with the same history in a protocol by commit-ts;
generated ones have clocks that step back, stand still, and say nothing.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.formats.decoded import COMMIT_TS
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import wall_clock_ms
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.avro_writer import INT, TEXT, AvroBroker
from cdc_assets_tests.both_ways import BothWays, Inside
from cdc_assets_tests.connector_topics import Recording
from cdc_assets_tests.landing.test_barriers import TABLE as YDB_TABLE
from cdc_assets_tests.landing.test_barriers import Lines, feed_of
from cdc_assets_tests.landing.test_connector_corners import TABLE, Stream
from cdc_assets_tests.landing.test_connectors import recorded_feed, some_connectors
from cdc_assets_tests.landing.test_keyless_connectors import message, send
from cdc_assets_tests.landing.test_recorded_feeds import REFUSED
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds, damage
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed
from cdc_assets_tests.topics import Topic, topics

Rows = Counter[str]


def published(feed: TopicFeed) -> dict[str, Rows]:
    """Return the rows of each table of the lake, the commit-ts among them."""
    return {str(name): Counter(map(repr, feed.lake.read(name).to_pylist())) for name in feed.lake.names()}


def times(feed: TopicFeed, table: TableId) -> dict[Any, int]:
    """Return the milliseconds since 1970 at which the row of each id changed last."""
    return {row["id"]: wall_clock_ms(row[COMMIT_TS]) for row in feed.lake.read(table).to_pylist()}


def rebuilt(feed: TopicFeed) -> dict[str, Rows]:
    """Return the same when all tables were built anew out of what is landed."""
    damage(feed.lake)
    pipeline = Pipeline(feed.settings, feed.source, feed.lake, feed.ledger, landing=feed.landing)
    rebuild(pipeline, MemoryRebuilds(feed.lake), run="the rebuild")
    return published(feed)


# --- recorded ---------------------------------------------------------------------------------------------------------

ELSEWHERE = {"avro": "simple", "canal-json-noext": "canal-json"}
"""Protocol by offset -> one by commit-ts in which the same histories were recorded."""
CASES = {
    "A_all_types": [pytest.mark.soak],
    "B_ddl_columns": [pytest.mark.soak],
    "D_keys": [],
    "E_partitions": [pytest.mark.soak],
}


def commit_times(topic: Topic, cuts: Sequence[int | None]) -> dict[str, Counter[int]]:
    """Return when rows of the tables with a key show that they changed, landed in parts of the topic."""
    feed = TopicFeed.recording(topic, accept_unordered=True)
    for cut in cuts:
        feed.send(cut)
        feed.apply()
    keyed = [table for table in feed.lake.tables.values() if table.name is not None and table.schema.key]
    return {str(table.name): Counter(table.rows.column(COMMIT_TS).to_pylist()) for table in keyed}


@pytest.mark.parametrize(
    "topic",
    [
        pytest.param(topic, marks=CASES[topic.case.name], id=str(topic))
        for topic in topics(*ELSEWHERE)
        if topic.case.name in CASES
    ],
)
def test_rows_have_the_commit_ts_that_the_same_history_has_elsewhere(topic: Topic) -> None:
    (other,) = (
        other_topic for other_topic in topics(ELSEWHERE[topic.name]) if other_topic.case.name == topic.case.name
    )
    expected, third = commit_times(other, [None]), len(topic.lines) // 3
    if topic.name != "avro":  # it has milliseconds only
        clock = {
            name: Counter(wall_clock_ms(ts) << 18 for ts in clock_times.elements())
            for name, clock_times in expected.items()
        }
        expected = clock
    for cuts in ([None], [third, 2 * third, None]):
        shown = commit_times(topic, cuts)
        same = (shown.keys() & expected.keys()) - REFUSED
        assert len(same) >= 3
        assert {name: shown[name] for name in same} == {name: expected[name] for name in same}


def changed_last(lines: Iterable[Mapping[str, Any]]) -> dict[str, Counter[int]]:
    """Return when the living rows of each table changed last, as the messages of a connector say."""
    living: dict[str, dict[bytes, int]] = {}
    for line in lines:
        if line["value_b64"] is None or line["key_b64"] is None:
            continue
        value = json.loads(base64.b64decode(line["value_b64"]))
        value = value.get("payload", value)
        if "op" not in value or "table" not in value["source"]:
            continue
        source = value["source"]
        table_times = living.setdefault(f"{source.get('schema', source['db'])}.{source['table']}", {})
        if value["op"] == "t":
            table_times.clear()
        elif value["op"] == "d":
            table_times.pop(line["key_b64"], None)
        else:
            table_times[line["key_b64"]] = source["ts_ms"]
    return {name: Counter(table_times.values()) for name, table_times in living.items()}


@pytest.mark.parametrize("recording", some_connectors(("P_postgres/default",)))
def test_rows_of_a_connector_have_the_time_at_which_its_database_changed_them(
    recording: Recording, tmp_path: Path
) -> None:
    at_once, landed_often = recorded_feed(recording, tmp_path), recorded_feed(recording, tmp_path)
    *marks, last = recording.marks
    for mark in (*marks[::4], last):
        landed_often.log.lines = at_once.log.lines = recording.lines_at(mark)
        landed_often.apply()
    at_once.apply()
    expected, compared = changed_last(at_once.log.lines), 0
    for name in at_once.lake.names() & landed_often.lake.names():
        shown = [
            Counter(map(wall_clock_ms, feed.lake.read(name).column(COMMIT_TS).to_pylist()))
            for feed in (at_once, landed_often)
        ]
        if shown[0].total() == expected.get(str(name), Counter()).total() > 0:  # else it was renamed, or is held
            assert shown == [expected[str(name)]] * 2, name
            compared += 1
    assert compared >= 5


# --- generated --------------------------------------------------------------------------------------------------------

CHANGES = st.lists(
    st.tuples(st.sampled_from("ccud"), st.integers(1, 4), st.integers(1, 9), st.booleans()), min_size=1, max_size=12
)


@settings(max_examples=5)
@given(CHANGES, CHANGES)
def test_the_last_row_counts_wherever_its_clock_stands(first: Sequence[Any], then: Sequence[Any]) -> None:
    """Two partitions, each with keys of its own, in one landing or in two."""
    feeds = []
    for parts in ([first, then], [[*first, *then]]):
        stream, expected = Stream(), dict[int, tuple[int, int]]()
        stream.feed.lake = lake = BothWays(Inside())
        lake.may_lack_rows = True  # updates and deletes of rows that were never sent
        place = 0
        for part in parts:
            for op, key, made, other in part:
                place, row = place + 1, key + 10 * other
                stream.send(op, place, made=1000 * made, partition=int(other), id=row, v=place)
                expected[row] = (place, 1000 * made)
                if op == "d":
                    del expected[row]
            assert stream.applied() == []
        rows = lake.read(TABLE).to_pylist() if TABLE in lake.names() else []
        assert {row["id"]: (row["v"], wall_clock_ms(row[COMMIT_TS])) for row in rows} == expected
        assert lake.different == []
        feeds.append(stream.feed)
    shown = published(feeds[0])
    assert [published(feeds[1]), *map(rebuilt, feeds)] == [shown] * 3


@settings(max_examples=5)
@given(st.lists(st.tuples(st.sampled_from("ccd"), st.integers(1, 9)), min_size=1, max_size=12))
def test_rows_without_key_have_the_time_of_their_own_change(changes: Sequence[tuple[str, int]]) -> None:
    sent, expected = list[dict[str, Any]](), dict[int, int]()
    for place, (op, made) in enumerate([("c", 5), *changes]):
        n = place
        if op == "d":
            if not expected:
                continue
            n = min(expected)
            del expected[n]
        else:
            expected[n] = 1000 * made
        sent.append(message("postgresql", 10 + place, op, n))
        sent[-1]["payload"]["source"]["ts_ms"] = 1000 * made
    shown = []
    for parts in ([sent], [sent[: len(sent) // 2], sent[len(sent) // 2 :]]):
        feed = TopicFeed.of(MemoryLog([]), sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c")
        feed.lake = lake = BothWays(Inside())
        for part in filter(None, parts):
            send(feed.log, part)
            feed.apply()
        assert lake.different == []
        shown.append(published(feed))
        rows = feed.lake.read(TABLE).to_pylist()
        assert {row["n"]: wall_clock_ms(row[COMMIT_TS]) for row in rows} == expected
        assert rebuilt(feed) == shown[-1]
    assert shown[0] == shown[1]


def test_equal_rows_without_key_have_the_time_of_the_last_of_them() -> None:
    sent = [message("postgresql", 10 + place, "c", 7) for place in range(2)]
    for sent_message, made in zip(sent, (9000, 5000), strict=True):
        sent_message["payload"]["source"]["ts_ms"] = made
    feed = TopicFeed.of(MemoryLog([]), sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c")
    send(feed.log, sent)
    feed.apply()
    assert [wall_clock_ms(row[COMMIT_TS]) for row in feed.lake.read(TABLE).to_pylist()] == [5000, 5000]


def test_rows_of_ydb_have_the_step_of_their_transaction(tmp_path: Path) -> None:
    lines = Lines()
    for number in range(20):
        lines.change(number % 2, number % 7, number, 1000 + number)
    lines.barrier(1100, 0, 1)
    feed = feed_of(lines, tmp_path)
    feed.apply()
    expected = {number % 7: 1000 + number for number in range(13, 20)}
    shown = published(feed)
    assert times(feed, YDB_TABLE) == expected
    assert rebuilt(feed) == shown


def test_documents_of_ydb_have_the_time_of_their_creation(tmp_path: Path) -> None:
    lines = Lines()
    keys = {"Keys": {"id": {"N": "1"}}, "NewImage": {"a": {"N": "2"}}, "ApproximateCreationDateTime": 5000}
    lines.send(0, {"eventSource": "ydb:document-table", "eventName": "INSERT", "dynamodb": keys})
    feed = feed_of(lines, tmp_path)
    feed.apply()
    assert times(feed, YDB_TABLE) == {1: 5000}


@pytest.mark.parametrize("number", [0, 1])
def test_the_lag_of_a_window_is_that_of_the_source(number: int) -> None:
    """Whichever of two rows was landed last: the newest is that with the greatest time."""
    stream = Stream()
    for place in range(2):
        stream.send("c", 1 + place, made=9_000 if place == number else 5_000, id=place, v=1)
    assert stream.applied() == []
    ((account,),) = stream.feed.ledger.accounts("c").values()
    assert account.lag is not None
    assert wall_clock_ms(account.lag.commit_ts) == 9_000


# --- messages that do not say when ------------------------------------------------------------------------------------


def test_a_message_without_a_time_counts_from_when_it_came_into_the_topic() -> None:
    broker = AvroBroker()
    orders = broker.table("shop", "orders", {"id": INT, "note": TEXT}, ("id",), extended=False)
    broker.send(0, orders.row(0, id=1, note="a"), orders.row(0, id=2, note="b"))
    for number, line in enumerate(broker.lines):
        line["timestamp_ms"] = 700_000 - number
    uri = "kafka://127.0.0.1:9092/cdc?protocol=avro"
    feed = TopicFeed.of(broker, sink_uri=uri, accept_unordered=True)
    feed.landing = feed.landed_in(registry=broker.registry.get)
    feed.apply()
    assert times(feed, TableId("shop", "orders")) == {1: 700_000, 2: 699_999}


@pytest.mark.parametrize("stamp", [None, 0, -1, 1 << 60])
def test_a_row_of_which_nothing_says_when_counts_from_its_landing(stamp: int | None) -> None:
    stream = Stream()
    stream.send("r", 1, made=0, id=1, v=1)
    stream.log.lines[0]["timestamp_ms"] = stamp
    stream.feed.landing.clock_ms = lambda: 123_000
    assert stream.applied() == []
    assert times(stream.feed, TABLE) == {1: 123_000}
