"""Recorded topics over a real broker, landed and applied, end equal to the source; losses stop the landing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from cdc_assets.errors import InputError
from cdc_assets.formats.messages import Kind
from cdc_assets.model.offsets import Ends
from cdc_assets.sources.topics.kafka.reader import KafkaLog, connect
from cdc_assets_tests.kafka_broker import Broker, write
from cdc_assets_tests.landing.test_shares import Tasks
from cdc_assets_tests.topic_feed import TopicFeed
from cdc_assets_tests.topics import Topic, recorded_messages, topics

CHOSEN = {"H_bank/craft", "F_names/canal-json", "C_ddl_tables/open-protocol", "E_partitions/simple"}
RECORDED = [topic for topic in topics("craft", "canal-json", "open-protocol", "simple") if str(topic) in CHOSEN]


@dataclass
class BrokerFeed:
    """A recorded topic on its way over a broker: `send` produces the next messages, with their partitions."""

    broker: Broker
    recorded: Topic
    name: str
    sent: int = 0
    feed: TopicFeed = field(init=False)

    def __post_init__(self) -> None:
        messages = recorded_messages(self.recorded)
        self.broker.create(self.name, 1 + max(message["partition"] for message in messages))
        uri = f"kafka://{self.broker.address}/{self.name}?{self.recorded.recorded['sink_uri_params']}"
        self.feed = TopicFeed.recording(self.recorded, sink_uri=uri)
        self.feed.log = self.log  # type: ignore[assignment]  # the real one

    @property
    def log(self) -> KafkaLog:
        return connect(self.feed.source.options, {})

    def send(self, until: int | None = None) -> None:
        messages = recorded_messages(self.recorded)[self.sent : until]
        producer = self.broker.producer()
        for message in messages:
            write(producer, self.name, message["partition"], message["key"], message["value"], message["timestamp_ms"])
        assert producer.flush(60) == 0
        self.sent += len(messages)


@pytest.fixture
def play(broker: Broker, request: pytest.FixtureRequest) -> Callable[[Topic], BrokerFeed]:
    """Open a recorded topic on the broker, in a topic of the test's own."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)

    def open_one(recorded: Topic) -> BrokerFeed:
        return BrokerFeed(broker, recorded, name[:200])

    return open_one


def stopped(feed: TopicFeed) -> list[str]:
    return [f"{table.life}: {table.reason}" for table in feed.apply().tables if table.state.stopped]


@pytest.mark.parametrize("recorded", RECORDED, ids=str)
def test_a_topic_on_a_broker_is_the_source_at_its_checkpoints(
    play: Callable[[Topic], BrokerFeed], recorded: Topic
) -> None:
    held = play(recorded)
    for checkpoint in recorded.checkpoints[-2:]:
        held.send(checkpoint["lines"])
        assert stopped(held.feed) == []
        assert held.feed.fence >= checkpoint["checkpoint_ts"]
        if held.feed.fence == checkpoint["checkpoint_ts"]:
            assert held.feed.differences(recorded.case.path / checkpoint["expected"]) == []
    held.send()
    assert stopped(held.feed) == []
    assert held.feed.differences() == []
    assert held.feed.landing.behind() == 0


BANK = next((recording for recording in RECORDED if str(recording) == "H_bank/craft"), None)
with_the_bank = pytest.mark.skipif(BANK is None, reason="the recorded topics are not beside this clone")


@with_the_bank
def test_tasks_read_the_broker_themselves(play: Callable[[Topic], BrokerFeed]) -> None:
    assert BANK is not None
    held, tasks = play(BANK), Tasks()
    held.feed.executors = tasks
    held.send()
    assert stopped(held.feed) == []
    assert tasks.rounds
    assert held.feed.differences() == []
    assert held.feed.landing.behind() == 0


@with_the_bank
def test_added_partitions_get_no_marks_and_hold_nothing_up(play: Callable[[Topic], BrokerFeed], broker: Broker) -> None:
    """The default topic's count is TiCDC's: partitions added to it never get rows or marks."""
    assert BANK is not None
    held = play(BANK)
    held.send(len(BANK.lines) // 2)
    stopped(held.feed)
    broker.add_partitions(held.name, 7)
    held.send()
    assert stopped(held.feed) == []
    assert held.feed.differences() == []


@with_the_bank
def test_the_fence_is_a_mark_behind_which_the_ends_were_asked_again(
    play: Callable[[Topic], BrokerFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is produced between the two looks at the ends is landed, but its marks prove nothing yet."""
    assert BANK is not None
    held = play(BANK)
    half = len(BANK.lines) // 2
    held.send(half)
    asked_ends: list[Ends] = []
    ends = KafkaLog.ends

    def watched(log: KafkaLog, concerns: Callable[[str], bool]) -> Ends:
        if len(asked_ends) == 1:
            held.send()
        asked_ends.append(ends(log, concerns))
        return asked_ends[-1]

    monkeypatch.setattr(KafkaLog, "ends", watched)
    held.feed.landing.advance()
    landed = held.feed.landing.landed()
    assert landed.next == {partition: end.high for partition, end in asked_ends[1].items()}
    messages = [message for message in BANK.spoken.to_pylist() if message["kind"] == Kind.RESOLVED.value]
    assert landed.proven == max(message["commit_ts"] for message in messages if message["message"] < half)
    assert max(landed.marks.values()) == max(message["commit_ts"] for message in messages) > landed.proven
    assert stopped(held.feed) == []
    assert held.feed.differences() == []


@with_the_bank
def test_messages_that_expired_unread_stop_the_landing_and_are_named(
    play: Callable[[Topic], BrokerFeed], broker: Broker
) -> None:
    assert BANK is not None
    held = play(BANK)
    held.send(len(BANK.lines) // 3)
    held.feed.landing.advance()
    begun = dict(held.feed.landing.landed().next)
    held.send()
    (partition, at), *_ = sorted(begun.items())
    broker.expire(held.name, partition.number, at + 2)
    lost = rf"\[{partition.number}\] begins at offset {at + 2}.*{at}\.\.{at + 1} expired"
    with pytest.raises(InputError, match=lost):
        held.feed.landing.advance()
    assert held.feed.landing.landed().next == begun


@with_the_bank
def test_tables_of_a_partition_that_had_lost_messages_before_the_first_landing_are_incomplete(
    play: Callable[[Topic], BrokerFeed], broker: Broker
) -> None:
    assert BANK is not None
    recorded = TopicFeed.recording(BANK)
    recorded.send()
    recorded.landing.advance()
    elsewhere = {str(split.table) for split in recorded.landing.landed().splits if split.partition.number != 1}
    assert elsewhere
    held = play(BANK)
    held.send()
    broker.expire(held.name, 1, 40)
    feed = TopicFeed.recording(BANK, sink_uri=held.feed.settings.uri + "?protocol=craft", initial={})
    feed.log = held.log  # type: ignore[assignment]  # the real one
    lacking = {str(table.name): table.incomplete for table in feed.apply().tables if table.incomplete}
    assert {"bank.accounts", "bank.savings"} <= lacking.keys()
    assert not lacking.keys() & elsewhere
    assert all(f"{held.name}[1] began at offset 40 when it was first read" in text for text in lacking.values())


@with_the_bank
def test_a_topic_created_anew_stops_the_landing(play: Callable[[Topic], BrokerFeed], broker: Broker) -> None:
    assert BANK is not None
    held = play(BANK)
    held.send()
    held.feed.landing.advance()
    broker.delete(held.name)
    broker.create(held.name, 3)
    broker.produce([(held.name, 0, None, b"new")])
    with pytest.raises(InputError, match="was created anew"):
        held.feed.landing.advance()


@with_the_bank
def test_a_transactional_writer_loses_nothing(play: Callable[[Topic], BrokerFeed]) -> None:
    """A mirror that copies topics exactly once leaves markers between the messages, and what it gave up."""
    assert BANK is not None
    held = play(BANK)
    messages: Sequence[dict[str, Any]] = recorded_messages(BANK)
    producer = held.broker.producer(transactional_id=held.name)
    producer.init_transactions(30)
    for number, start in enumerate(range(0, len(messages), 400)):
        for last in (False, True):
            if number % 2 and not last:
                continue
            producer.begin_transaction()
            for message in messages[start : start + 400]:
                write(
                    producer, held.name, message["partition"], message["key"], message["value"], message["timestamp_ms"]
                )
            producer.flush(30)
            (producer.commit_transaction if last else producer.abort_transaction)(30)
    while any(end.high < end.written for end in held.feed.landing.ends().values()):
        time.sleep(0.02)  # the end of a transaction is shown in one partition after the other
    assert stopped(held.feed) == []
    assert held.feed.differences() == []
