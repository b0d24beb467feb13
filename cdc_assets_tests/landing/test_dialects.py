"""Messages of two kinds of databases in one topic, or of one table: the first one counts, others are kept aside."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pytest

from cdc_assets.errors import MalformedData
from cdc_assets.landing.decisions import release
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId
from cdc_assets_tests.landing.test_connector_corners import ID, Stream, V
from cdc_assets_tests.topic_feed import TopicFeed

TOPIC = "px.public.t"
_BINLOG = {"file": "bin.000001", "pos": 4, "row": 0}


def put_row(
    stream: Stream, ident: int, connector: str, place: Mapping[str, Any], *, name: str = "px", table: str = "t",
    topic: str = TOPIC, lsn: int = 9,
) -> None:  # fmt: skip
    """Send a row of another connector that has the columns and the names of PostgreSQL's."""
    source = {"connector": connector, "name": name, "db": "public", "table": table, "snapshot": "false", **place}
    block = {"type": "struct", "fields": [{"type": "struct", "fields": [ID, V], "optional": True, "field": "after"}]}
    payload = {"before": None, "after": {"id": ident, "v": 9}, "source": {**source, "ts_ms": 1000 + lsn}, "op": "c"}
    key = {"schema": {"type": "struct", "fields": [ID]}, "payload": {"id": ident}}
    stream.put(key, {"schema": block, "payload": payload}, topic)


@pytest.mark.parametrize("in_one_go", [True, False])
@pytest.mark.parametrize("name", ["px", "mx"])
@pytest.mark.parametrize("many", [False, True])
def test_a_row_of_mysql_in_a_topic_of_postgresql_holds_its_table(name: str, in_one_go: bool, many: bool) -> None:
    stream = Stream()
    for number in range(1, 400 if many else 3):
        stream.send("c", number, id=number, v=number)
    held = len(stream.log.lines)
    if not in_one_go:
        assert stream.applied() == []
    put_row(stream, 500, "mysql", _BINLOG, name=name)
    stream.send("c", 600, id=600, v=6)
    (reason,) = stream.applied()
    assert f"{TOPIC}[0] offset {held} cannot be read: it is of a connector for mysql, and what was landed" in reason
    assert "its topic before is of one for postgresql" in reason
    assert max(stream.rows) == held
    (kept,) = stream.feed.landing.landed().open_bad
    assert b'"connector": "mysql"' in (kept.value or b"")
    release(stream.feed.landing, Partition(TOPIC, 0), held, applied=lambda _: 0)
    assert stream.applied() == []
    assert set(stream.rows) == {*range(1, held + 1), 600}


def test_with_quarantine_the_table_goes_on_without_it() -> None:
    stream = Stream()
    uri = "kafka://127.0.0.1:9092/px?protocol=debezium-json"
    stream.feed = TopicFeed.of(stream.log, sink_uri=uri, name="c", quarantine=True)
    stream.send("c", 1, id=1, v=1)
    put_row(stream, 2, "mysql", _BINLOG)
    stream.send("c", 3, id=3, v=3)
    assert stream.applied() == []
    assert set(stream.rows) == {1, 3}


def test_read_again_it_is_still_of_another_kind() -> None:
    stream = Stream()
    stream.send("c", 1, id=1, v=1)
    put_row(stream, 2, "mysql", _BINLOG)
    stream.applied()
    with pytest.raises(MalformedData, match="still cannot be read: it is of a connector for mysql"):
        release(stream.feed.landing, Partition(TOPIC, 0), 1, again=True, applied=lambda _: 0)


def test_rows_of_a_table_come_from_one_kind_of_database_in_all_topics() -> None:
    stream = Stream()
    stream.send("c", 1, id=1, v=1)
    assert stream.applied() == []
    put_row(stream, 2, "mysql", _BINLOG, topic="px.other")
    (reason,) = stream.applied()
    assert "px.other[0] offset 0 cannot be read" in reason
    assert "its table before is of one for postgresql" in reason


def test_a_row_of_another_kind_and_another_table_holds_neither_the_topic_s_table_nor_is_it_applied() -> None:
    stream = Stream()
    stream.send("c", 1, id=1, v=1)
    put_row(stream, 2, "mysql", _BINLOG, table="other")
    stream.send("c", 3, id=3, v=3)
    stream.applied()
    assert set(stream.rows) == {1, 3}
    assert "other" not in {life.born_as.table for life in stream.feed.lake.tables}
    (kept,) = stream.feed.landing.landed().open_bad
    assert kept.table == TableId("public", "other")


def test_connectors_for_mysql_and_mariadb_write_the_same() -> None:
    stream = Stream()
    for number, connector in ((1, "mysql"), (2, "mariadb")):
        put_row(stream, number, connector, {**_BINLOG, "pos": number}, lsn=number)
    assert stream.applied() == []
    assert set(stream.rows) == {1, 2}


_AVRO = b"\0\0\0\0\1\2"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (b'{"key":[2],"update":{"v":2},"ts":[1,1]}', "it is a row alone"),
        (b'{"payload":{"op":"u","source":{"connector":"ydb","step":1,"txId":1},"after":{"id":2}}}',
         'its connector is "ydb"; give the protocol of that writer'),
        (b'{"payload":{"source":{"connector":"TiCDC","db":"public","table":"t","commit_ts":1},"op":"m"}}',
         'its connector is "TiCDC"; give the protocol of that writer'),
        (_AVRO, "it is Avro, as AvroConverter writes it"),
        (b"\xff", "it is not UTF-8 at byte 0"),
    ],
    ids=["YDB", "YDB as Debezium", "TiCDC", "Avro", "no text"],
)  # fmt: skip
def test_a_message_of_another_protocol_is_named_and_nothing_behind_it_is_applied(value: bytes, sentence: str) -> None:
    stream = Stream()
    stream.send("c", 1, id=1, v=1)
    put_bytes(stream, value)
    stream.send("c", 3, id=3, v=3)
    stream.feed.apply()
    problems = "\n".join([*stream.feed.listing().problems.values(), *stream.feed.listing().warnings])
    assert f"{TOPIC}[0] offset 1 cannot be read" in problems
    assert sentence in problems
    assert set(stream.rows) == {1}


def put_bytes(stream: Stream, value: bytes) -> None:
    stream.put(None, None)
    stream.log.lines[-1] |= {"key_b64": None, "value_b64": base64.b64encode(value).decode()}
