"""A generated changefeed as a topic on a broker: the same changes as its Canal-JSON files, message by message."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from cdc_assets.model.tso import wall_clock_ms
from cdc_assets_tests.bench.feeds import VERSION, Feed
from cdc_assets_tests.kafka_broker import Broker, write

__all__ = [
    "PARTITIONS",
    "Message",
    "Player",
    "archive",
    "archive_changes",
    "broker_cpu_seconds",
    "consume_all",
    "messages_of_feed",
    "play",
    "sink_uri",
    "spread",
    "write_archive",
]


class Message(NamedTuple):
    """A message of a topic: "" stands for the feed's own."""

    partition: int
    key: bytes | None
    value: bytes | None
    topic: str = ""


PARTITIONS = 3
_BEGIN_MS = 1_795_216_000_000


def sink_uri(address: str, topic: str, extension: bool = True) -> str:
    """Return the sink URI of a topic that `play` filled."""
    more = "&enable-tidb-extension=true" if extension else ""
    return f"kafka://{address}/{topic}?protocol=canal-json{more}&partition-num={PARTITIONS}"


def play(
    feed: Feed, broker: Broker, topic: str, mixed: bool = False, extension: bool = True, pace_ms: float = 0
) -> int:
    """Produce a feed of Canal-JSON files into a new topic of 3 partitions, by key; return how many messages it holds.

    First the DDL of each table, to partition 0; last a mark in every partition. Rows come a table at a time, or
    `mixed`. Without the extension there are no marks. With `pace_ms` messages are sent so far apart, by their times.
    """
    broker.create(topic, PARTITIONS)
    producer = broker.producer(linger_ms=50, compression_type="lz4")
    count = 0
    for message in messages_of_feed(feed, mixed, extension):
        assert message.value is not None
        sent_ms = _BEGIN_MS + round(count * pace_ms) if pace_ms else 0
        write(producer, topic, message.partition, message.key, message.value, sent_ms)
        count += 1
    assert producer.flush(120) == 0
    return count


def archive(feed: Feed, directory: Path, files: int) -> None:
    """Write what `play` produces into so many files of the layout `records`."""
    write_archive(messages_of_feed(feed), directory, files)


def write_archive(messages: Iterable[Message], directory: Path, files: int, topic: str = "bench") -> None:
    """Write messages into so many files of the layout `records`, ten messages in each millisecond."""
    directory.mkdir(exist_ok=True)
    held = list(messages)
    offsets, count = dict[tuple[str, int], int](), 0
    for number in range(files):
        with (directory / f"bench-{number:05d}.jsonl").open("w") as file:
            for message in held[number * len(held) // files : (number + 1) * len(held) // files]:
                message = message._replace(topic=message.topic or topic)
                place = message.topic, message.partition
                offsets[place] = offsets.get(place, -1) + 1
                file.write(_record(message, offsets[place], _BEGIN_MS + count // 10))
                count += 1


def _record(message: Message, offset: int, moment_ms: int) -> str:
    place = {"topic": message.topic, "partition": message.partition, "offset": offset, "timestamp_ms": moment_ms}
    texts = [None if part is None else b64encode(part).decode() for part in (message.key, message.value)]
    return json.dumps({**place, "key_b64": texts[0], "value_b64": texts[1], "headers": []}) + "\n"


class Player:
    """A feed of Canal-JSON that grows as messages of a topic of 3 partitions; its own files do not stay.

    Without the `extension` of TiDB it has no marks, which other tools cannot read.
    """

    def __init__(self, feed: Feed, address: str, topic: str, extension: bool = True) -> None:
        self._feed = feed
        self._topic = topic
        self._extension = extension
        self._producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "compression.type": "lz4"})
        self._send((0, _bare(_statement(feed, table), extension)) for table in range(feed.tables))

    def append(self, changes: int, keys: int, *, fill: int = 0) -> int:
        """Send `changes` of each table, then a mark in every partition; return the mark."""
        through = self._feed.append(changes, keys, fill=fill)
        for table in range(self._feed.tables):
            self._send((spread(row), _bare(row, self._extension)) for row in _rows(self._feed, table))
            for file in self._feed.files(table):
                file.unlink()
        if self._extension:
            self._send((partition, _marked(through)) for partition in range(PARTITIONS))
        return through

    def _send(self, messages: Iterable[tuple[int, bytes]]) -> None:
        for partition, value in messages:
            write(self._producer, self._topic, partition, None, value)
        assert self._producer.flush(60) == 0


def messages_of_feed(feed: Feed, mixed: bool = False, extension: bool = True) -> Iterator[Message]:
    """Yield a feed of Canal-JSON files as the messages of a topic, as `play` produces them."""
    for table in range(feed.tables):
        yield Message(0, None, _bare(_statement(feed, table), extension))
    tables = [_rows(feed, table) for table in range(feed.tables)]
    rows = chain.from_iterable(zip_longest(*tables)) if mixed else chain(*tables)
    for row in rows:
        if row is not None:
            yield Message(spread(row), None, _bare(row, extension))
    for partition in range(PARTITIONS) if extension else ():
        yield Message(partition, None, _mark(feed))


def _rows(feed: Feed, table: int) -> Iterator[bytes]:
    for file in feed.files(table):
        yield from file.read_bytes().splitlines()


def _bare(line: bytes, extension: bool) -> bytes:
    """Return a message as it is without the TiDB extension."""
    return line if extension else line[: line.rindex(b',"_tidb":' if b',"_tidb":' in line else b', "_tidb":')] + b"}"


def spread(line: bytes) -> int:
    """Return the partition of a change of Canal-JSON by its key, the member that comes first in its row."""
    at = line.rindex(b'"data":[{')
    return sum(line[at + 9 : at + 25].partition(b",")[0]) % PARTITIONS


def _statement(feed: Feed, table: int) -> bytes:
    name = feed.name(table)
    (file,) = (feed.bucket / name.schema / name.table / "meta").glob("*.json")
    query = json.loads(file.read_text())["Query"]
    return _message(name.schema, name.table, "CREATE", query, {"commitTs": VERSION})


def _mark(feed: Feed) -> bytes:
    return _marked(json.loads((feed.bucket / "metadata").read_text())["checkpoint-ts"])


def _marked(through: int) -> bytes:
    return _message("", "", "TIDB_WATERMARK", "", {"watermarkTs": through})


def _message(schema: str, table: str, kind: str, query: str, extension: dict[str, int]) -> bytes:
    (position,) = extension.values()
    held: dict[str, Any] = {"id": 0, "database": schema, "table": table, "pkNames": None, "isDdl": bool(query)}
    held |= {"type": kind, "es": wall_clock_ms(position), "ts": wall_clock_ms(position), "sql": query}
    held |= dict.fromkeys(("sqlType", "mysqlType", "data", "old"))
    return json.dumps({**held, "_tidb": extension}).encode()


def archive_changes(directory: Path, tables: int, number: int, offsets: dict[int, int]) -> None:
    """Add to an archive of the layout `records` what a changefeed sends in its `number`-th interval.

    That is a row of each table and a mark in each partition, before the first also the tables' CREATE; `offsets` are
    the next ones by partition.
    """
    moment = VERSION + (number + 1 << 40)
    sent: list[tuple[int, bytes]] = []
    for table in range(tables):
        name = f"t{table:04d}"
        if not number:
            query = f"CREATE TABLE `{name}` (`id` BIGINT NOT NULL,`note` VARCHAR(20),PRIMARY KEY(`id`))"
            sent.append((0, _message("bench", name, "CREATE", query, {"commitTs": VERSION})))
        sent.append((table % PARTITIONS, _row(name, number, moment)))
    sent += [(partition, _marked(moment)) for partition in range(PARTITIONS)]
    lines = []
    for partition, value in sent:
        offset = offsets.get(partition, 0)
        offsets[partition] = offset + 1
        lines.append(_record(Message(partition, None, value, "bench"), offset, moment >> 18))
    (directory / f"bench-{number:05d}.jsonl").write_text("".join(lines))


def _row(table: str, number: int, moment: int) -> bytes:
    head: dict[str, Any] = {"id": 0, "database": "bench", "table": table, "pkNames": ["id"], "isDdl": False}
    head |= {"type": "INSERT", "es": moment >> 18, "ts": moment >> 18, "sql": "", "sqlType": {"id": -5, "note": 12}}
    head |= {"mysqlType": {"id": "bigint", "note": "varchar"}, "old": None}
    data = [{"id": str(number), "note": f"row {number}"}]
    return json.dumps({**head, "data": data, "_tidb": {"commitTs": moment}}, separators=(",", ":")).encode()


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
