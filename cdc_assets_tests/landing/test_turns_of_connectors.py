"""What a MySQL connector sent is landed in turns of any size in the order of its log, whatever stands beside it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cdc_assets.model.schema import TableId
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

Message = tuple[str, "Mapping[str, Any] | None", "Mapping[str, Any] | None"]
"""Topic, key, value."""
CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` INT)"
BEGIN = {"status": "BEGIN", "id": "1", "event_count": None, "data_collections": None, "ts_ms": 1}
TRANSACTION: Message = ("px.transaction", {"id": "1"}, BEGIN)
TABLE = TableId("d", "t")


def source(place: int, phase: str, made: int) -> Mapping[str, Any]:
    at = {"file": "bin.000001", "pos": place, "row": 0}
    return {"connector": "mysql", "name": "px", "ts_ms": made, "snapshot": phase, "db": "d", "table": "t", **at}


def ddl(place: int, text: str, made: int = 0) -> Message:
    held = {"source": source(place, "false", made), "databaseName": "d", "ddl": text, "ts_ms": 1}
    return "px", None, {**held, "tableChanges": [{"type": "ALTER", "id": '"d"."t"', "table": {}}]}


def row(place: int, phase: str = "false", made: int = 0, **after: int) -> Message:
    op = "c" if phase == "false" else "r"
    value = {"before": None, "after": after, "source": source(place, phase, made), "op": op, "ts_ms": 1}
    return "px.d.t", {"id": after["id"]}, value


def read_again(place: int, made: int = 0, **after: int) -> Message:
    """A row of an incremental snapshot, which was read when the log was at a place."""
    return row(place, "incremental", made, **after)


def delete(place: int, number: int) -> Sequence[Message]:
    gone = {"before": {"id": number}, "after": None, "source": source(place, "false", 0), "op": "d", "ts_ms": 1}
    return ("px.d.t", {"id": number}, gone), ("px.d.t", {"id": number}, None)


def landed(commit_bytes: int, *messages: Message) -> TopicFeed:
    log = MemoryLog([], at_once=1)
    for topic, *parts in messages:
        key, value = (part and base64.b64encode(json.dumps(part).encode()).decode() for part in parts)
        line = {"topic": topic, "partition": 0, "offset": sum(line["topic"] == topic for line in log.lines)}
        log.lines.append({**line, "timestamp_ms": 0, "key_b64": key, "value_b64": value})
    uri = "kafka://127.0.0.1:9092/px?protocol=debezium-json"
    feed = TopicFeed.of(log, sink_uri=uri, name="c", topics=["px", "px.*"])
    feed.landing = feed.landed_in(commit_bytes=commit_bytes)
    outcome = feed.apply()
    assert [table.reason for table in outcome.tables if table.reason] == []
    return feed


def rows(feed: TopicFeed) -> list[tuple[int | None, ...]]:
    held = feed.lake.read(TABLE).drop_columns(["_cdc_commit_ts"]).to_pylist()
    return sorted(tuple(lake_row.values()) for lake_row in held)


IN_TURNS = pytest.mark.parametrize("commit_bytes", [1, 1000, 4000, 1 << 28])


@IN_TURNS
def test_a_ddl_falls_between_rows_beside_a_topic_whose_messages_have_no_place(commit_bytes: int) -> None:
    before = [row(10 + number, id=number, v=1) for number in range(20)]
    after = [row(100 + number, id=number, v=2, w=3) for number in range(5)]
    added = ddl(50, "ALTER TABLE `t` ADD COLUMN `w` INT DEFAULT 7")
    feed = landed(commit_bytes, ddl(1, CREATE), *before, added, *after, *[TRANSACTION] * 40)
    assert rows(feed) == [*((number, 2, 3) for number in range(5)), *((number, 1, 7) for number in range(5, 20))]


@IN_TURNS
def test_a_ddl_falls_between_rows_that_end_with_deletes(commit_bytes: int) -> None:
    before = [row(10 + number, id=number, v=1) for number in range(8)]
    gone = [message for number in range(8) for message in delete(30 + number, number)]
    added = ddl(50, "ALTER TABLE `t` ADD COLUMN `w` INT")
    feed = landed(commit_bytes, ddl(1, CREATE), *before, *gone, added, row(60, id=1, v=2, w=3))
    assert rows(feed) == [(1, 2, 3)]


@IN_TURNS
def test_a_ddl_falls_between_rows_that_were_read_while_the_log_went_on(commit_bytes: int) -> None:
    before = [read_again(10, id=number, v=1) for number in range(20)]
    after = [read_again(60, id=number, v=2) for number in range(20, 40)]
    changes = [ddl(place, f"ALTER TABLE `t` MODIFY COLUMN `v` INT COMMENT '{place}'") for place in range(11, 30)]
    dropped = ddl(50, "ALTER TABLE `t` DROP COLUMN `w`")
    first = [{**message, "after": {**message["after"], "w": 5}} for _, _, message in before if message is not None]
    kept = [(topic, key, value) for (topic, key, _), value in zip(before, first, strict=True)]
    added = ddl(5, "ALTER TABLE `t` ADD COLUMN `w` INT")
    feed = landed(commit_bytes, ddl(1, CREATE), added, *kept, *changes, dropped, *after)
    assert rows(feed) == [*((number, 1) for number in range(20)), *((number, 2) for number in range(20, 40))]


def test_how_far_the_log_was_says_whether_a_row_was_read_before_a_ddl_of_the_same_second() -> None:
    """The binlog has whole seconds, and a row that is read milliseconds."""
    added = ddl(50, "ALTER TABLE `t` ADD COLUMN `w` INT NOT NULL", made=2000)
    feed = landed(1 << 28, ddl(1, CREATE, 1000), read_again(40, 2100, id=1, v=1), added, row(60, id=2, v=2, w=3))
    assert rows(feed) == [(1, 1, 0), (2, 2, 3)]
