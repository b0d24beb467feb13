"""Topics on a real broker: what was produced comes back byte for byte, ends are exact, and losses are named."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from cdc_assets.errors import BadSettings, BucketMissing, InputError, SetupError, StorageUnavailable
from cdc_assets.formats import MessageOptions
from cdc_assets.model.offsets import LogEnds, OffsetRange, Partition
from cdc_assets.sources.topics import message_schema
from cdc_assets.sources.topics.kafka import reader
from cdc_assets.sources.topics.kafka.connection import from_ticdc
from cdc_assets.sources.topics.kafka.reader import LASTING, KafkaLog, connect
from cdc_assets.sources.topics.topic_options import TopicOptions
from cdc_assets_tests.kafka_broker import PASSWORD, PATIENCE_SECONDS, USER, Broker, write
from cdc_assets_tests.postgres import free_port
from cdc_assets_tests.topics import Topic, recorded_messages, topics

RECORDED = [
    topic
    for topic in topics("craft", "canal-json", "open-protocol", "simple-avro")
    if str(topic) in ("F_names/canal-json", "F_names/open-protocol", "H_bank/craft", "B_ddl_columns/simple-avro")
]


def log_of(address: str, topic: str = "cdc", **access: Any) -> KafkaLog:
    """What reads a broker; `access` are librdkafka's options with underscores for dots."""
    options = TopicOptions(
        brokers=address, topic=topic, messages=MessageOptions(protocol="craft"), uri=f"kafka://{address}/{topic}"
    )
    return connect(options, {name.replace("_", "."): value for name, value in access.items()})


@pytest.fixture(autouse=True)
def no_client_is_kept() -> None:
    """A client that another test has connected would not show what this one's options do."""
    reader._admin.cache_clear()


@pytest.fixture
def log(broker: Broker) -> KafkaLog:
    return log_of(broker.address)


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """The name of a topic for one test."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:200]


def all_of(log: KafkaLog, name: str) -> dict[Partition, LogEnds]:
    return dict(log.ends(lambda topic: topic == name))


def read(log: KafkaLog, wanted: OffsetRange, batch_bytes: int = 16 << 20) -> pa.Table:
    return pa.Table.from_batches(list(log.read(wanted, batch_bytes)), message_schema())


def values(log: KafkaLog, topic: str, start: int, stop: int, partition: int = 0) -> list[bytes]:
    message_values: list[bytes] = (
        read(log, OffsetRange(Partition(topic, partition), start, stop)).column("value").to_pylist()
    )
    return message_values


# --- what was produced ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recorded", RECORDED, ids=str)
def test_a_recorded_topic_comes_back_byte_for_byte(broker: Broker, log: KafkaLog, recorded: Topic) -> None:
    """Topics, partitions, offsets, keys, values and times are those of the recording."""
    named = f"{recorded.name}-"
    counts: dict[str, int] = {}
    for message in recorded_messages(recorded):
        counts[message["topic"]] = max(counts.get(message["topic"], 0), message["partition"] + 1)
    for name, count in counts.items():
        broker.create(named + name, count)
    producer = broker.producer()
    expected: dict[Partition, list[tuple[Any, ...]]] = {}
    for message in recorded_messages(recorded):
        place = Partition(named + message["topic"], message["partition"])
        write(producer, *place, message["key"], message["value"], message["timestamp_ms"])
        expected.setdefault(place, []).append(
            (message["offset"], message["timestamp_ms"], "create", message["key"], message["value"], None)
        )
    assert producer.flush(PATIENCE_SECONDS) == 0
    ends = {place: end for place, end in log.ends(lambda topic: topic.startswith(named)).items() if end.high}
    assert {place: end.high for place, end in ends.items()} == {place: len(held) for place, held in expected.items()}
    for place, held in expected.items():
        table = read(log, OffsetRange(place, 0, ends[place].high), batch_bytes=20_000)
        columns = [table.column(name).to_pylist() for name in table.schema.names[2:]]
        assert list(zip(*columns, strict=True)) == held
        assert set(table.column("topic").to_pylist()) == {place.topic}
        assert set(table.column("partition").to_pylist()) == {place.number}


def test_a_range_is_read_from_its_start_to_before_its_stop(broker: Broker, log: KafkaLog, topic: str) -> None:
    broker.create(topic, 2)
    broker.produce([(topic, 1, None, b"%d" % n) for n in range(20)])
    assert values(log, topic, 7, 13, partition=1) == [b"%d" % n for n in range(7, 13)]
    assert values(log, topic, 7, 7, partition=1) == []


def test_batches_hold_about_the_bytes_that_were_asked_for(broker: Broker, log: KafkaLog, topic: str) -> None:
    broker.create(topic)
    broker.produce([(topic, 0, None, bytes(1000)) for _ in range(20_000)])
    sizes = [batch.nbytes for batch in log.read(OffsetRange(Partition(topic, 0), 0, 20_000), 2 << 20)]
    assert len(sizes) > 2
    assert max(sizes) < (2 << 20) + 5000 * 1100


def test_headers_null_and_empty_are_distinguished(broker: Broker, log: KafkaLog, topic: str) -> None:
    broker.create(topic)
    producer = broker.producer()
    write(producer, topic, 0, None, b"", headers=[("a", b"1"), ("a", None), ("ü", b"")])
    write(producer, topic, 0, b"", None)
    assert producer.flush(PATIENCE_SECONDS) == 0
    first, second = read(log, OffsetRange(Partition(topic, 0), 0, 2)).to_pylist()
    named = [(message["name"], message["value"]) for message in first["headers"]]
    assert (first["key"], first["value"], named) == (None, b"", [("a", b"1"), ("a", None), ("ü", b"")])
    assert (second["key"], second["value"], second["headers"]) == (b"", None, None)


def test_a_time_that_the_broker_gave_is_called_so(broker: Broker, log: KafkaLog, topic: str) -> None:
    broker.create(topic, message_timestamp_type="LogAppendTime")
    broker.produce([(topic, 0, None, b"x")])
    (message,) = read(log, OffsetRange(Partition(topic, 0), 0, 1)).to_pylist()
    assert message["timestamp_type"] == "append"
    assert abs(message["timestamp"] / 1000 - time.time()) < 3600


def test_compressed_batches_and_a_message_larger_than_a_fetch_are_read(
    broker: Broker, log: KafkaLog, topic: str
) -> None:
    broker.create(topic, max_message_bytes=str(12 << 20))
    large = bytes(range(256)) * (40 << 10)
    for codec in ("gzip", "snappy", "lz4", "zstd", "none"):
        producer = broker.producer(compression_type=codec, message_max_bytes=12 << 20)
        write(producer, topic, 0, None, codec.encode())
        write(producer, topic, 0, None, large)
        assert producer.flush(PATIENCE_SECONDS) == 0
    message_values = values(log, topic, 0, 10)
    assert message_values[::2] == [b"gzip", b"snappy", b"lz4", b"zstd", b"none"]
    assert message_values[1::2] == [large] * 5


def test_a_reader_can_be_sent_to_another_process(broker: Broker, topic: str) -> None:
    broker.create(topic)
    broker.produce([(topic, 0, None, b"x")])
    sent = pickle.loads(pickle.dumps(log_of(broker.address, sasl_password="hidden")))
    assert values(sent, topic, 0, 1) == [b"x"]
    assert "hidden" not in repr(sent)


# --- ends -------------------------------------------------------------------------------------------------------------


def test_an_empty_topic_has_ends_that_are_the_same(broker: Broker, log: KafkaLog, topic: str) -> None:
    broker.create(topic, 2)
    assert all_of(log, topic) == {Partition(topic, 0): LogEnds(0, 0), Partition(topic, 1): LogEnds(0, 0)}


def test_added_partitions_and_new_topics_are_in_the_next_round(broker: Broker, log: KafkaLog, topic: str) -> None:
    broker.create(topic)
    assert len(log.ends(lambda name: name.startswith(topic))) == 1
    broker.add_partitions(topic, 3)
    broker.create(f"{topic}-more")
    broker.produce([(topic, 2, None, b"x")])
    log_ends = log.ends(lambda name: name.startswith(topic))
    assert {place: end.high for place, end in log_ends.items()} == {
        Partition(topic, 0): 0,
        Partition(topic, 1): 0,
        Partition(topic, 2): 1,
        Partition(f"{topic}-more", 0): 0,
    }


def test_a_partition_that_its_leader_does_not_know_yet_is_asked_again(
    broker: Broker, log: KafkaLog, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its end what is complete would be proven without its rows."""
    broker.create(topic, 2)
    broker.produce([(topic, 1, None, b"x")])
    ask, partition_counts = reader._offsets, []

    def late(wanted: Collection[Any], *more: Any) -> tuple[dict[Partition, int], ...]:
        known = ask(wanted, *more)
        partition_counts.append(len(wanted))
        return known if len(partition_counts) > 2 else ({}, {Partition(topic, 0): 0}, {Partition(topic, 0): 0})

    monkeypatch.setattr(reader, "_offsets", late)
    assert all_of(log, topic) == {Partition(topic, 0): LogEnds(0, 0), Partition(topic, 1): LogEnds(0, 1)}
    assert partition_counts == [2, 2, 2]
    monkeypatch.setattr(reader, "_offsets", lambda *_: ({}, {}, {}))
    monkeypatch.setattr(reader, "ANSWER_SECONDS", 0.2)
    with pytest.raises(StorageUnavailable, match="its leader has not known it"):
        all_of(log, topic)


def test_a_topic_created_anew_ends_below_what_was_read(broker: Broker, log: KafkaLog, topic: str) -> None:
    broker.create(topic)
    broker.produce([(topic, 0, None, b"%d" % n) for n in range(5)])
    assert all_of(log, topic) == {Partition(topic, 0): LogEnds(0, 5)}
    broker.delete(topic)
    broker.create(topic)
    broker.produce([(topic, 0, None, b"new")])
    assert all_of(log, topic) == {Partition(topic, 0): LogEnds(0, 1)}
    with pytest.raises(InputError, match=r"\[0\] ends at offset 1, below 5.*created anew") as caught:
        values(log, topic, 5, 7)
    assert caught.value.where == {"topic": topic, "partition": 0, "offset": 5, "gone": True}


def test_nothing_is_joined_committed_or_created(broker: Broker, topic: str) -> None:
    broker.create(topic)
    broker.produce([(topic, 0, None, b"x")])
    kafka_log = log_of(broker.address, group_id=topic, topic_metadata_propagation_max_ms="500")
    assert values(kafka_log, topic, 0, 1) == [b"x"]
    assert topic not in broker.groups()
    with pytest.raises(InputError, match="is not on the broker"):
        values(kafka_log, f"{topic}-unknown", 0, 1)
    assert f"{topic}-unknown" not in broker.admin.list_topics(timeout=10).topics


# --- transactions -----------------------------------------------------------------------------------------------------


def test_aborted_transactions_and_markers_leave_gaps_that_end_a_range_all_the_same(
    broker: Broker, log: KafkaLog, topic: str
) -> None:
    """Offsets: 0-1 committed, 2 marker, 3-4 aborted, 5 marker, 6 committed, 7 marker, 8 open."""
    broker.create(topic)
    producer = broker.producer(transactional_id=topic)
    producer.init_transactions(PATIENCE_SECONDS)
    for number, end in (
        (2, producer.commit_transaction),
        (2, producer.abort_transaction),
        (1, producer.commit_transaction),
    ):
        producer.begin_transaction()
        for n in range(number):
            write(producer, topic, 0, None, b"%d of %d" % (n, number))
        producer.flush(PATIENCE_SECONDS)
        end(PATIENCE_SECONDS)
    producer.begin_transaction()
    write(producer, topic, 0, None, b"open")
    producer.flush(PATIENCE_SECONDS)
    place = Partition(topic, 0)
    assert all_of(log, topic) == {place: LogEnds(0, 8)}
    assert all_of(log, topic)[place].written == 9
    offsets = {
        (start, stop): read(log, OffsetRange(place, start, stop)).column("offset").to_pylist()
        for start, stop in ((0, 8), (0, 3), (2, 6), (5, 8), (7, 8))
    }
    assert offsets == {(0, 8): [0, 1, 6], (0, 3): [0, 1], (2, 6): [], (5, 8): [6], (7, 8): []}
    assert log.missing_because(topic) == "transactional"
    producer.abort_transaction(PATIENCE_SECONDS)


def test_a_compacted_topic_may_miss_offsets(broker: Broker, log: KafkaLog, topic: str) -> None:
    broker.create(topic, cleanup_policy="compact")
    assert log.missing_because(topic) == "compacted"
    assert log.keeps_deletes_ms(topic) == 86_400_000


# --- losses -----------------------------------------------------------------------------------------------------------


def test_messages_that_expired_unread_are_named(broker: Broker, log: KafkaLog, topic: str) -> None:
    broker.create(topic)
    broker.produce([(topic, 0, None, b"%d" % n) for n in range(10)])
    broker.expire(topic, 0, before=4)
    assert all_of(log, topic) == {Partition(topic, 0): LogEnds(4, 10)}
    with pytest.raises(InputError, match=r"\[0\] starts at offset 4 by now; 2 to 3 expired") as caught:
        values(log, topic, 2, 8)
    assert caught.value.where == {"topic": topic, "partition": 0, "offset": 2, "gone": True}
    assert values(log, topic, 4, 6) == [b"4", b"5"]


def test_a_range_that_brings_nothing_is_given_up_with_its_place(
    broker: Broker, log: KafkaLog, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create(topic)
    broker.produce([(topic, 0, None, b"x")])
    hold, passed = KafkaLog._hold, [0.0]

    def held(self: KafkaLog, consumer: Any, wanted: OffsetRange, position: int, held: Any) -> int:
        """Time passes only after the message came, however long that takes."""
        passed[0] += 16 * (position == 1)
        return hold(self, consumer, wanted, position, held)

    monkeypatch.setattr(KafkaLog, "_hold", held)
    monkeypatch.setattr(reader, "time", SimpleNamespace(monotonic=lambda: passed[0]))
    with pytest.raises(StorageUnavailable, match=r"\[0\] offset 1: nothing came for 30 s.*go on to 3") as caught:
        values(log, topic, 0, 3)
    assert caught.value.where == {"topic": topic, "partition": 0, "offset": 1}


def test_a_broker_that_dies_in_mid_range_and_comes_back_is_read_to_the_end(broker: Broker, topic: str) -> None:
    broker.create(topic)
    broker.produce([(topic, 0, None, bytes(500) + b"%d" % n) for n in range(20_000)])
    log = log_of(broker.address, queued_max_messages_kbytes="1024", fetch_message_max_bytes="100000")
    place = OffsetRange(Partition(topic, 0), 0, 20_000)
    batches = replace(log, patience_seconds=PATIENCE_SECONDS).read(place, 1 << 20)
    offsets = next(batches).column("offset").to_pylist()
    broker.kill()
    again = threading.Timer(0.5, broker.start)
    again.start()
    try:
        for batch in batches:
            offsets += batch.column("offset").to_pylist()
    finally:
        again.join()
    assert offsets == list(range(20_000))


# --- logins and certificates ------------------------------------------------------------------------------------------


@pytest.fixture
def secured(broker: Broker, topic: str) -> Callable[..., list[bytes]]:
    """Read a topic of one message by the sink URI's parameters and the settings given."""
    broker.create(topic)
    broker.produce([(topic, 0, None, b"x")])

    def read_by(port: int, parameters: Mapping[str, str], **settings: str) -> list[bytes]:
        access = {**from_ticdc(parameters), **{name.replace("_", "."): value for name, value in settings.items()}}
        kafka_log = log_of(f"127.0.0.1:{port}", **access)
        all_of(kafka_log, topic)
        return values(kafka_log, topic, 0, 1)

    return read_by


LOGIN = {"enable-tls": "true", "sasl-user": USER, "sasl-password": PASSWORD}


def test_logins_by_plain_and_scram_over_tls(broker: Broker, secured: Callable[..., list[bytes]]) -> None:
    trusted = {"ssl_ca_location": str(broker.certificate)}
    assert secured(broker.sasl_port, {**LOGIN, "sasl-mechanism": "PLAIN"}, **trusted) == [b"x"]
    broker.scram_user("somebody", "a word")
    scram = {
        "enable-tls": "true",
        "sasl-mechanism": "scram-sha-256",
        "sasl-user": "somebody",
        "sasl-password": "a word",
    }
    assert secured(broker.sasl_port, scram, **trusted) == [b"x"]
    assert secured(broker.tls_port, {"enable-tls": "true"}, **trusted) == [b"x"]
    assert secured(broker.tls_port, {"enable-tls": "true", "insecure-skip-verify": "true"}) == [b"x"]


def test_a_wrong_password_is_reported_without_it(broker: Broker, secured: Callable[..., list[bytes]]) -> None:
    wrong = {**LOGIN, "sasl-mechanism": "PLAIN", "sasl-password": "a-wrong-word"}
    with pytest.raises(BucketMissing, match=f"refused the login for the user {USER} by PLAIN.*sasl.password") as caught:
        secured(broker.sasl_port, wrong, ssl_ca_location=str(broker.certificate))
    assert "a-wrong-word" not in str(caught.value)


def test_a_certificate_that_nobody_trusts_is_reported(broker: Broker, secured: Callable[..., list[bytes]]) -> None:
    with pytest.raises(BucketMissing, match=r"no TLS with.*ssl\.ca\.location"):
        secured(broker.tls_port, {"enable-tls": "true"})


def test_a_listener_of_another_kind_is_reported(
    broker: Broker, secured: Callable[..., list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "ANSWER_SECONDS", 1.0)
    with pytest.raises(StorageUnavailable, match=r"security\.protocol under `kafka`"):
        secured(broker.tls_port, {})
    with pytest.raises((BucketMissing, StorageUnavailable), match=r"security\.protocol|port may be one without TLS"):
        secured(broker.port, {"enable-tls": "true"})


# --- without a broker -------------------------------------------------------------------------------------------------


def test_a_broker_that_nobody_reaches_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "ANSWER_SECONDS", 0.5)
    port = free_port()
    with pytest.raises(StorageUnavailable, match=rf"no broker at 127\.0\.0\.1:{port} answers.*host and port"):
        log_of(f"127.0.0.1:{port}").ends(lambda _: True)


def test_a_host_that_is_not_known_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "LASTING", {*LASTING, KafkaError._RESOLVE})  # the first answer is enough
    with pytest.raises(StorageUnavailable, match=r"no-such-host\.invalid.*bootstrap\.servers"):
        log_of("no-such-host.invalid:9092").ends(lambda _: True)


def test_a_topic_that_is_not_there_is_named(broker: Broker) -> None:
    with pytest.raises(BucketMissing, match=r"none of the \d+ topics .* expected missing\. Look at the topic"):
        log_of(broker.address, "missing").ends(lambda topic: topic == "missing")


def test_unknown_options_of_the_client_are_reported(broker: Broker) -> None:
    with pytest.raises(BadSettings, match=r"No such configuration property: \"no\.such\".*`kafka`"):
        log_of(broker.address, no_such="x").ends(lambda _: True)


def test_options_that_keep_offsets_exact_are_not_the_users() -> None:
    with pytest.raises(SetupError, match=r"kafka\.isolation\.level cannot be changed.*read_committed"):
        log_of("127.0.0.1:9", isolation_level="read_uncommitted")
