"""How many files a row passes, or a message of a topic: who follows one opens few of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.ledger import Ledger
from cdc_assets.model.offsets import OffsetRange
from cdc_assets.model.steps import ApplyRows
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.landing.test_landing import Broker, ddl, mark, row
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.topic_feed import TopicFeed, messages_of_lines
from cdc_assets_tests.trips import files_of

GOOD, BAD = ("U", FIRST + 12, 1, "b"), ("I", FIRST + 12, 2, "longer than 40 characters, which is refused")
UNREAD = ("I", FIRST + 12, "x", "b")

TO_COMMIT, TO_QUARANTINE = 14, 10
PROTOCOLS = ("csv", "canal-json")

SINK = "kafka://127.0.0.1:9092/cdc?enable-tidb-extension=true&protocol="
YDB = "CREATE TABLE `cdc` (id Uint32 NOT NULL, a Int64, PRIMARY KEY (id));"


def trip(directory: Path, protocol: str, row: tuple[str, int, int | str, str], to_commit: bool) -> set[str]:
    """Return the files that a row of a running changefeed passes, from its window's reading on."""
    feed = LittleFeed(directory, protocol)
    feed.create("shop.orders")
    feed.rows("shop.orders", FIRST, [("I", FIRST + 5, 1, "a")])
    feed.publish(FIRST + 9)
    settings, lake = feed.settings(quarantine=True), MemoryLake()
    pipeline = Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://"))
    pipeline.apply("first")
    feed.rows("shop.orders", FIRST, [row])
    feed.publish(FIRST + 30)
    _, planned = pipeline.planner.plan()
    (step,) = planned.steps
    assert isinstance(step, ApplyRows)

    def read() -> None:
        staged = pipeline.stage(step)
        if to_commit:
            assert pipeline.commit(step, staged, "second", 0.0).report == staged.report
            assert lake.quarantined() == []
        else:
            lake.quarantine(step, staged, "second")
            assert [kept.line for kept in lake.quarantined()] == [1]

    return files_of(read)[0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_row_passes_few_files_on_its_way_to_its_commit(tmp_path: Path, protocol: str) -> None:
    files = trip(tmp_path, protocol, GOOD, to_commit=True)
    assert len(files) <= TO_COMMIT, sorted(files)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_row_that_cannot_be_read_passes_few_files_on_its_way_to_the_quarantine(tmp_path: Path, protocol: str) -> None:
    files = trip(tmp_path, protocol, UNREAD, to_commit=False)
    assert len(files) <= TO_QUARANTINE, sorted(files)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_row_that_breaks_a_promise_passes_few_files(tmp_path: Path, protocol: str) -> None:
    files = trip(tmp_path, protocol, BAD, to_commit=False)
    assert len(files) <= TO_QUARANTINE, sorted(files)


# --- messages of topics -----------------------------------------------------------------------------------------------


@dataclass
class ReadyLog(Broker):
    """A log whose messages are there before anybody follows them."""

    ready: pa.RecordBatch = field(default_factory=lambda: messages_of_lines([]))

    def read(self, wanted: OffsetRange, batch_bytes: int = 1000) -> Iterator[pa.RecordBatch]:
        yield self.ready.slice(wanted.start, wanted.stop - wanted.start)


def canal_json() -> tuple[list[bytes], list[bytes]]:
    return [ddl(100 << 18), row(110 << 18, 1, 1), mark(120 << 18)], [row(130 << 18, 2, 2), mark(140 << 18)]


def ydb_json() -> tuple[list[bytes], list[bytes]]:
    def change(key: int, step: int) -> bytes:
        return json.dumps({"update": {"a": key}, "key": [key], "ts": [step, 1]}).encode()

    def barrier(step: int) -> bytes:
        return json.dumps({"resolved": [step, 0]}).encode()

    return [change(1, 1000), barrier(1001)], [change(2, 1002), barrier(1003)]


TOPICS = {"canal-json": (canal_json, 20), "ydb-json": (ydb_json, 21)}
"""Messages that come first, and the one that is followed with its mark; how many files it may pass."""


@pytest.mark.parametrize("protocol", TOPICS)
def test_a_message_passes_few_files_on_its_way_to_its_table(tmp_path: Path, protocol: str) -> None:
    make, most = TOPICS[protocol]
    first, followed = make()
    given: dict[str, Any] = {}
    if protocol == "ydb-json":
        given["schemas"] = tmp_path / "schemas.sql"
        given["schemas"].write_text(YDB)
    log = ReadyLog()
    feed = TopicFeed.of(log, sink_uri=f"{SINK}{protocol}", **given)
    for messages in (first, followed):
        log.send(0, *messages)
        log.ready = messages_of_lines(log.lines)
        if messages is first:
            feed.apply()
    landing, _ = files_of(feed.landing.advance)
    pipeline = Pipeline(feed.settings, feed.source, feed.lake, feed.ledger, landing=feed.landing)
    _, planned = pipeline.planner.plan()
    (step,) = planned.steps
    assert isinstance(step, ApplyRows)
    window, _ = files_of(lambda: pipeline.commit(step, pipeline.stage(step), "second", 0.0))
    assert len(feed.lake.read(step.life.born_as)) == 2
    assert len(landing | window) <= most, "\n".join(sorted(landing | window))
