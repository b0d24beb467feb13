"""What executors land is what the driver lands, row for row and event for event, wherever ranges are cut.

Executors are this process, to which tasks travel as bytes, as they do to others.
"""

from __future__ import annotations

import base64
import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from cdc_assets.errors import InputError, MetadataMissing, StorageUnavailable
from cdc_assets.lake.row_groups import RowFiles
from cdc_assets.lake.staging.executors import run_tasks
from cdc_assets.lake.staging.stage import Engine
from cdc_assets.lake.tables import SparkExecutors
from cdc_assets.landing import opening
from cdc_assets.landing.batch import LandingBatch
from cdc_assets.landing.files import LANDED, LandedFiles
from cdc_assets.landing.landing import landed_in
from cdc_assets.landing.partition_reader import PartitionReader, PartitionState
from cdc_assets.landing.tasks import RangeResult, Shares, divided
from cdc_assets.model.landed import EventKind, Landed, LandedEvent, LandedSplit
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources.topics.source import TopicsSource
from cdc_assets_tests.both_ways import Inside
from cdc_assets_tests.kills import Killed
from cdc_assets_tests.landing.test_decisions import claimed, with_claims
from cdc_assets_tests.landing.test_landing import URI, Broker, broker, canal, ddl, mark, row
from cdc_assets_tests.landing.test_recorded_feeds import REFUSED, TOPICS, some_often
from cdc_assets_tests.memory_landing import MemoryStore
from cdc_assets_tests.topic_feed import Line, MemoryLog, TopicFeed, sent_again
from cdc_assets_tests.topics import Topic

_T = TypeVar("_T")

CHOSEN = {"A_all_types/craft", "B_ddl_columns/simple", "C_ddl_tables/debezium", "D_keys/open-protocol",
          "E_partitions/canal-json", "F_names/simple-avro"}  # fmt: skip


@dataclass
class Tasks:
    """Executors for everything of which more is left than `least` bytes; `rounds` counts the tasks of each job."""

    cores: int = 3
    least: int = 0
    spark: Any = field(default_factory=Inside)

    def __post_init__(self) -> None:
        self.rounds: list[int] = []

    def worth(self, size: int) -> bool:
        return size > self.least

    def run(self, count: int, work: Callable[[int], _T]) -> list[_T]:
        self.rounds.append(count)
        return run_tasks(self.spark, count, work)


def rows_of(store: MemoryStore) -> list[str]:
    """All rows in order: of files nothing is told but what is in them."""
    row_texts = [
        (row["topic"], row["partition"], row["offset"], str(row["table"]), repr(row))
        for name in store.state.rows
        for group in store.files[name]
        for row in group.to_pylist()
    ]
    return [text for *_, text in sorted(row_texts)]


def state_of(feed: TopicFeed) -> dict[str, Any]:
    """What is landed of the log, and not where splits are cut: they are where a task begins."""
    landed = landed_in(feed.store)
    state_fields = {
        state_field.name: getattr(landed, state_field.name)
        for state_field in fields(Landed)
        if state_field.name not in ("identity", "landed_ms")
    }
    splits = defaultdict[Any, list[LandedSplit]](list)
    for split in landed.splits:
        splits[split.table, split.partition].append(split)
    whole = {
        place: (
            min(split.first for split in some), max(split.last for split in some), min(split.low for split in some),
            max(split.high for split in some), sum(split.rows for split in some), sum(split.size for split in some),
            max(split.written_ms for split in some),
        )
        for place, some in splits.items()
    }  # fmt: skip
    return {**state_fields, "splits": whole}


def both(topic: Topic, proves_ends: bool = True) -> tuple[TopicFeed, TopicFeed, Tasks]:
    here, there, tasks = TopicFeed.recording(topic), TopicFeed.recording(topic), Tasks()
    for feed in (here, there):
        feed.log = MemoryLog(proves_ends=proves_ends, at_once=20)
    there.executors = tasks
    return here, there, tasks


def differing(here: TopicFeed, there: TopicFeed, lines: Sequence[Line]) -> list[str]:
    """Land lines both ways, and say what of it differs."""
    for feed in (here, there):
        feed.send(lines=lines)
        feed.landing.advance()
    state, other = state_of(here), state_of(there)
    return [name for name in state if state[name] != other[name]] + (
        ["rows"] if rows_of(here.store) != rows_of(there.store) else []
    )


@pytest.mark.parametrize("proves_ends", [True, False], ids=["broker", "archive"])
@pytest.mark.parametrize("topic", some_often(TOPICS, CHOSEN))
def test_a_topic_is_landed_there_as_here_in_whatever_pieces(topic: Topic, proves_ends: bool) -> None:
    here, there, tasks = both(topic, proves_ends)
    chance, lines = random.Random(f"{topic} {proves_ends}"), topic.lines
    again = sent_again(lines, *sorted(chance.randint(0, len(lines)) for _ in range(2)))
    for cut in sorted({chance.randint(0, len(again)), chance.randint(0, len(again)), len(again)}):
        assert differing(here, there, again[:cut]) == []
    assert tasks.rounds


@pytest.mark.parametrize("topic", some_often(TOPICS, {"D_keys/open-protocol"}))
def test_a_topic_of_which_tasks_read_a_little_at_a_time_ends_equal_to_the_source(topic: Topic) -> None:
    feed, tasks = TopicFeed.recording(topic), Tasks(cores=2)
    feed.landing = feed.landed_in(commit_bytes=20_000)
    feed.executors = tasks
    feed.log.at_once = 10
    feed.send()
    assert not any(table.state.stopped for table in feed.apply().tables)
    assert len(tasks.rounds) > 1
    assert max(tasks.rounds) == 2
    assert feed.differences(except_for=REFUSED) == []


RANGES = st.dictionaries(st.integers(0, 30), st.integers(1, 1000), max_size=12)


@given(RANGES, st.integers(1, 5))
def test_ranges_are_divided_into_shares_of_about_as_many_messages(sizes: dict[int, int], count: int) -> None:
    ranges = [OffsetRange(Partition("cdc", number), 5, 5 + size) for number, size in sizes.items()]
    shares = divided(ranges, count)
    assert sorted(number_range for share in shares for number_range in share) == sorted(ranges)
    assert all(list(share) == sorted(share) for share in shares)
    assert len(shares) == min(count, len(ranges))
    loads = [sum(map(len, share)) for share in shares]
    assert not loads or max(loads) - min(loads) <= max(sizes.values())


# --- what one task cannot know --------------------------------------------------------------------------------------


def both_of(proves_ends: bool = True, **given: Any) -> tuple[TopicFeed, TopicFeed]:
    """Two feeds of logs of their own, of which the second one's is read by tasks from the second message on."""
    here, there = (TopicFeed.of(Broker(proves_ends=proves_ends, at_once=1), sink_uri=URI, **given) for _ in range(2))
    there.executors = Tasks()
    return here, there


def sent(feeds: Sequence[TopicFeed], *lines: tuple[Any, ...], topic: str = "cdc") -> list[str]:
    """Send messages to partitions, apply, and say what of what is landed differs."""
    for feed in feeds:
        for partition, *values in lines:
            broker(feed).send(partition, *values, topic=topic)
        with suppress(MetadataMissing):
            feed.apply()
    here, there = feeds
    state, other = state_of(here), state_of(there)
    differing_fields = [name for name in state if state[name] != other[name]]
    return differing_fields if rows_of(here.store) == rows_of(there.store) else [*differing_fields, "rows"]


def test_a_table_that_comes_back_is_seen_where_its_drop_was_in_another_partition() -> None:
    feeds, drop = both_of(), "DROP TABLE `shop`.`t`"
    back = canal("INSERT", 170, data=[{"id": "1", "w": "2"}], mysqlType={"id": "int", "w": "bigint"})
    more = canal("INSERT", 180, data=[{"id": "1", "x": "2"}], mysqlType={"id": "int", "x": "text"})
    columnless = canal("DELETE", 160, data=[{"id": "1"}], mysqlType={})
    later = (1, row(110, 2, 2), row(120, 3, 3), row(105, 4, 4), columnless, back, more)
    assert sent(feeds, (0, ddl(100), row(101, 1, 1), ddl(150, drop)), later, (0, mark(200))) == []
    shown = [event.position for event in feeds[1].landing.landed().events if event.kind is EventKind.SCHEMA]
    assert shown == [101, 170]


def test_what_batches_show_of_known_tables_is_one_note(monkeypatch: pytest.MonkeyPatch) -> None:
    range_results, take_result = list[RangeResult](), LandingBatch.take_result

    def watched(self: LandingBatch, range_result: RangeResult, again: Any) -> None:
        range_results.append(range_result)
        take_result(self, range_result, again)

    monkeypatch.setattr(LandingBatch, "take_result", watched)
    feeds = both_of()
    lines = [(number, *(row(101 + at, at, at) for at in range(40))) for number in range(3)]
    assert sent(feeds, (0, ddl(100)), *lines, (0, mark(500))) == []
    assert {range_result.offset_range.partition.number: len(range_result.notes) for range_result in range_results} == {
        0: 2,
        1: 2,
        2: 2,
    }


def test_a_ddl_of_all_partitions_is_landed_once() -> None:
    feeds = both_of()
    add = ddl(130, "ALTER TABLE `shop`.`t` ADD COLUMN w INT")
    assert sent(feeds, (0, ddl(100), row(101, 1, 1), add), (1, ddl(100), row(102, 2, 2), add, mark(200))) == []
    kinds = Counter(event.kind for event in feeds[1].landing.landed().events)
    assert kinds[EventKind.DDL] == 2


def test_rows_of_a_topic_that_is_found_late_hold_their_tables() -> None:
    feeds = both_of(topics=["cdc", "more"])
    assert sent(feeds, (0, ddl(100), row(101, 1, 1), row(102, 2, 2), mark(500))) == []
    assert sent(feeds, (0, row(110, 7, 7), row(120, 8, 8), row(130, 9, 9)), (1, row(140, 5, 5)), topic="more") == []
    assert len(feeds[1].landing.landed().open_late) == 2


@pytest.mark.parametrize("executors", [None, Tasks()], ids=["driver", "tasks"])
def test_a_topic_that_is_found_late_is_late_to_its_end_however_often_it_is_committed(executors: Tasks | None) -> None:
    feed = TopicFeed.of(Broker(at_once=5), sink_uri=URI, topics=["cdc", "more"])
    broker(feed).send(
        0, ddl(100), ddl(100, "CREATE TABLE `shop`.`u` (id INT PRIMARY KEY)", "u"), row(101, 1, 1), mark(500)
    )
    feed.apply()
    feed.landing = feed.landed_in(commit_bytes=2_000)
    feed.executors = executors
    many = [row(110 + at, at, at) for at in range(50)]
    broker(feed).send(0, *many, row(190, 1, 1, "u"), topic="more")
    assert feed.landing.advance().commits > 2
    held = feed.landing.landed().open_late
    assert {(str(event.table), event.position) for event in held} == {("shop.t", 109), ("shop.u", 189)}


def killed() -> LandingBatch:
    raise Killed("between two commits")


def test_a_topic_that_is_found_late_is_late_to_its_end_though_another_run_lands_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed = TopicFeed.of(Broker(at_once=5), sink_uri=URI, topics=["cdc", "more"])
    broker(feed).send(
        0, ddl(100), ddl(100, "CREATE TABLE `shop`.`u` (id INT PRIMARY KEY)", "u"), row(101, 1, 1), mark(500)
    )
    feed.apply()
    broker(feed).send(0, *[row(110 + at, at, at) for at in range(50)], row(190, 1, 1, "u"), topic="more")
    feed.landing = feed.landed_in(commit_bytes=2_000)
    with monkeypatch.context() as patch:
        patch.setattr(feed.landing, "_begin", killed)  # behind the first commit
        with pytest.raises(Killed):
            feed.landing.advance()
    assert [str(event.table) for event in feed.landing.landed().open_late] == ["shop.t"]
    feed.landing = feed.landed_in()
    feed.landing.advance()
    landed = feed.landing.landed()
    assert {(str(event.table), event.position) for event in landed.open_late} == {("shop.t", 109), ("shop.u", 189)}
    assert not landed.unawaited


def test_messages_that_cannot_be_read_keep_the_mark_before_them() -> None:
    feeds = both_of()
    assert sent(feeds, (0, ddl(100), mark(110), b"?", mark(120), b"!", mark(140))) == []
    bad = feeds[1].landing.landed().open_bad
    assert [message.position for message in bad] == [110, 120]


def test_a_ddl_that_names_no_table_keeps_the_mark_that_its_task_had_seen() -> None:
    feed, place = TopicFeed.of(Broker(), sink_uri=URI), Partition("cdc", 0)
    batch = feed.landing._batch(feed.landing.landed())
    event = LandedEvent(EventKind.DDL, place, 3, 130, None, "no DDL")
    batch.take_result(
        RangeResult(OffsetRange(place, 0, 5), ((120, event),), PartitionState(140)),
        lambda *_: (),
    )
    assert [(event.kind, event.position) for event in batch.events] == [(EventKind.BAD, 120)]
    assert batch.reader.marks == {place: 140}


def test_schemas_that_several_tasks_had_from_the_registry_are_landed_once() -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI)
    batch = feed.landing._batch(feed.landing.landed())
    for number in range(2):
        place = Partition("cdc", number)
        event = LandedEvent(EventKind.REGISTERED, place, 3, 0, query="{}", shape="7")
        batch.take_result(RangeResult(OffsetRange(place, 0, 5), ((0, event),), PartitionState()), lambda *_: ())
    assert [event.partition.number for event in batch.events] == [0]
    assert batch.reader.options.registry == {"7": "{}"}
    assert batch.reader.next == {Partition("cdc", 0): 5, Partition("cdc", 1): 5}


# --- what goes wrong ------------------------------------------------------------------------------------------------


class Torn(Broker):
    """Lacks the messages below an offset of the partition 1, or stops answering in it."""

    lost: int = 0
    silent: bool = False

    def read(self, wanted: OffsetRange, batch_bytes: int = 1000) -> Iterator[pa.RecordBatch]:
        for batch in super().read(wanted):
            if wanted.partition.number == 1 and batch.column("offset")[0].as_py() == 2:
                if self.silent:
                    raise StorageUnavailable("the broker is gone", topic="cdc", partition=1, offset=2)
                continue
            yield batch


def torn(silent: bool) -> TopicFeed:
    log = Torn(at_once=1)
    log.silent = silent
    feed = TopicFeed.of(log, sink_uri=URI)
    for partition in range(3):
        log.send(partition, ddl(100), *(row(101 + at, at, at) for at in range(5)), mark(500))
    return feed


@pytest.mark.parametrize("silent", [False, True], ids=["lost", "unreachable"])
def test_what_stops_a_task_is_said_as_here_and_leaves_no_file(silent: bool) -> None:
    errors = list[tuple[Any, ...]]()
    for executors in (None, Tasks()):
        feed = torn(silent)
        feed.executors = executors
        with pytest.raises(StorageUnavailable if silent else InputError) as raised:
            feed.landing.advance()
        errors.append((type(raised.value), raised.value.message, raised.value.where))
        assert feed.store.files == {}
        assert feed.landing.landed().next == {}
    assert errors[0] == errors[1]


def test_a_task_that_is_done_twice_lands_its_rows_once() -> None:
    feed, other = torn(False), TopicFeed.of(Broker(), sink_uri=URI)
    feed.log, other.log.lines = MemoryLog(feed.log.lines), feed.log.lines
    feed.executors = Twice()
    feed.landing.advance()
    other.landing.advance()
    assert rows_of(feed.store) == rows_of(other.store)
    assert feed.store.sweep(0) > 0, "no attempt left a file"
    assert rows_of(feed.store) == rows_of(other.store)


class Twice(Tasks):
    """Does every task twice, as after a machine was lost whose work was done, or where Spark speculates."""

    def run(self, count: int, work: Callable[[int], _T]) -> list[_T]:
        super().run(count, work)
        return super().run(count, work)


def test_a_claim_is_read_by_the_task_and_one_that_is_gone_holds_its_table() -> None:
    whole = {"key": None, "value": base64.b64encode(row(130, 2, 8)).decode()}
    files = {"s3://c/a.json": json.dumps(whole).encode()}
    feeds = both_of()
    for feed in feeds:
        with_claims(feed, Claimed(files))
    lines = (0, ddl(100), row(101, 1, 1), claimed(130, 2, "s3://c/a.json"), claimed(140, 3, "s3://c/b.json"), mark(500))
    assert sent(feeds, lines) == []
    (bad,) = feeds[1].landing.landed().open_bad
    assert "s3://c/b.json, cannot be read: it is gone" in bad.reason


@dataclass(frozen=True)
class Claimed:
    """Claim-check files by their locations."""

    files: dict[str, bytes]

    def __call__(self, place: str) -> bytes:
        if place not in self.files:
            raise InputError("it is gone")
        return self.files[place]


def test_who_lands_meanwhile_makes_a_landing_of_several_rounds_begin_again() -> None:
    feed = torn(False)
    feed.log = MemoryLog(feed.log.lines, at_once=1)
    feed.landing = feed.landed_in(commit_bytes=1000)
    other = feed.landed_in()
    feed.executors = Between(other.advance)
    feed.landing.advance()
    offsets = [(row["partition"], row["offset"]) for name in feed.store.state.rows
               for group in feed.store.files[name] for row in group.to_pylist()]  # fmt: skip
    assert sorted(offsets) == [(partition, offset) for partition in range(3) for offset in range(1, 6)]


class Between(Tasks):
    """Lets another run land after the first round."""

    def __init__(self, land: Callable[[], object]) -> None:
        super().__init__()
        self.land = land

    def run(self, count: int, work: Callable[[int], _T]) -> list[_T]:
        results = super().run(count, work)
        if len(self.rounds) == 1:
            self.land()
        return results


# --- who reads --------------------------------------------------------------------------------------------------------


def engine(decode: str, *, local: bool) -> Engine:
    def no_spark() -> Any:
        raise AssertionError("Spark was started")

    return Engine(no_spark, lambda: local, decode)


def test_what_is_small_is_read_here_whatever_is_set_and_the_rest_as_windows_are() -> None:
    small, large = 16 << 20, 1 << 40
    kinds = [(decode, local) for decode in ("auto", "driver", "executors") for local in (True, False)]
    assert not any(engine(decode, local=local).is_large(small) for decode, local in kinds)
    large_by_engine = {(decode, local): engine(decode, local=local).is_large(large) for decode, local in kinds}
    few = (os.cpu_count() or 1) <= 4
    assert large_by_engine == {
        (decode, local): decode == "executors" or (decode == "auto" and not (local and few)) for decode, local in kinds
    }
    elsewhere = {kind for kind in kinds if SparkExecutors(engine(kind[0], local=kind[1]), "it", True).worth(large)}
    assert elsewhere == {("executors", True), ("executors", False), ("auto", False)}


def test_a_range_that_is_small_asks_no_executors() -> None:
    feed = torn(False)
    feed.log = MemoryLog(feed.log.lines, at_once=1)
    tasks = feed.executors = Tasks(least=100_000)
    feed.landing.advance()
    assert feed.landing.landed().marks
    assert tasks.rounds == []


SECRET: dict[str, Any] = {
    "sink_uri": URI,
    "kafka": {"sasl.password": "s3cr3t", "security.protocol": "SASL_SSL"},
    "schema_registry": {"url": "http://u:s3cr3t@r:8081"},
}


def test_what_travels_to_a_task_shows_no_secret() -> None:
    settings = ChangefeedSettings(**SECRET)
    source = settings.open_source()
    assert isinstance(source, TopicsSource)
    files = LandedFiles(RowFiles({"s3.secret-access-key": "s3cr3t"}, "s3://lake/x", LANDED))
    claims = opening._Claims("s3://claims", {"secret": "s3cr3t"})
    registry = opening._registry(settings)
    assert registry is not None
    reader = PartitionReader(Landed(), source.options.messages, claims, registry).fork()
    work = Shares([], source.log, files, reader, frozenset(), frozenset(), 1, 1)
    assert "s3cr3t" not in repr(work)
    travelled = cloudpickle.loads(cloudpickle.dumps(work))  # type: ignore[no-untyped-call]
    assert travelled.log.options["sasl.password"] == "s3cr3t"
    assert travelled.reader.registry.options == registry.options  # type: ignore[attr-defined]
