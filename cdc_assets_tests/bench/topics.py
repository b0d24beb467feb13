"""A generated changefeed as a topic on a broker: the same changes as its Canal-JSON files, message by message."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from cdc_assets_tests.bench.feeds import VERSION, Feed
from cdc_assets_tests.kafka_broker import Broker, write

__all__ = ["broker_cpu_seconds", "consume_all", "play", "sink_uri"]

PARTITIONS = 3


def sink_uri(address: str, topic: str) -> str:
    """Return the sink URI of a topic that `play` filled."""
    return f"kafka://{address}/{topic}?protocol=canal-json&enable-tidb-extension=true&partition-num={PARTITIONS}"


def play(feed: Feed, broker: Broker, topic: str) -> int:
    """Produce a feed of Canal-JSON files into a new topic of 3 partitions, by key; return how many messages it holds.

    First the DDL of each table, to partition 0; last a mark in every partition.
    """
    broker.create(topic, PARTITIONS)
    producer = broker.producer(linger_ms=50, compression_type="lz4")
    count = 0
    for partition, value in _messages(feed):
        write(producer, topic, partition, None, value)
        count += 1
    assert producer.flush(120) == 0
    return count


def _messages(feed: Feed) -> Iterator[tuple[int, bytes]]:
    for table in range(feed.tables):
        yield 0, _statement(feed, table)
    for table in range(feed.tables):
        for file in feed.files(table):
            for number, line in enumerate(file.read_bytes().splitlines()):
                yield _spread(line, number), line
    for partition in range(PARTITIONS):
        yield partition, _mark(feed)


def _spread(line: bytes, number: int) -> int:
    """Choose the partition of a change by its key, the member that comes first in its row."""
    at = line.rindex(b'"data":[{')
    return sum(line[at + 9 : at + 25].partition(b",")[0]) % PARTITIONS


def _statement(feed: Feed, table: int) -> bytes:
    name = feed.name(table)
    (file,) = (feed.bucket / name.schema / name.table / "meta").glob("*.json")
    query = json.loads(file.read_text())["Query"]
    return _message(name.schema, name.table, "CREATE", query, {"commitTs": VERSION})


def _mark(feed: Feed) -> bytes:
    through = json.loads((feed.bucket / "metadata").read_text())["checkpoint-ts"]
    return _message("", "", "TIDB_WATERMARK", "", {"watermarkTs": through})


def _message(schema: str, table: str, kind: str, query: str, extension: dict[str, int]) -> bytes:
    held: dict[str, Any] = {"id": 0, "database": schema, "table": table, "pkNames": None, "isDdl": bool(query)}
    held |= {"type": kind, "es": 0, "ts": 0, "sql": query, **dict.fromkeys(("sqlType", "mysqlType", "data", "old"))}
    return json.dumps({**held, "_tidb": extension}).encode()


def consume_all(address: str, topic: str, count: int) -> None:
    """Read a topic by `consume()` alone."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False, "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    seen = 0
    while seen < count:
        seen += len(consumer.consume(10_000, timeout=0.1))
    consumer.close()


def broker_cpu_seconds(broker: Broker) -> float:
    """Return what the broker has used of the processors, its children left out: it has none."""
    assert broker.process is not None
    fields = Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
