"""Topics on a broker: the ends of the log in one round, and ranges of offsets as batches of messages.

    connect(options, access) -> KafkaLog

Partitions are assigned, never subscribed to; offsets come from the caller and go back to nobody.
"""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from cdc_assets.errors import BadSettings, BucketMissing, CdcError, InputError, StorageUnavailable
from cdc_assets.model.offsets import Ends, LogEnds, OffsetRange, Partition
from cdc_assets.sources.topics import BATCH_BYTES, message_schema
from cdc_assets.sources.topics.kafka.connection import OURS, with_ours
from cdc_assets.sources.topics.topic_options import TopicOptions

_T = TypeVar("_T")

ANSWER_SECONDS = 8.0
"""Seconds that a request to the broker may take, the connection included."""

PATIENCE_SECONDS = 30.0
"""Seconds that a range may bring nothing before it is given up."""

_AT_ONCE = 4096
_MOST_BYTES = (1 << 31) - 1
_TRANSACTIONS = "__transaction_state"
_DELETE_RETENTION_MS = 86_400_000
"""Kafka's default."""
_PASSED_OVER = frozenset(
    {
        KafkaError.GROUP_AUTHORIZATION_FAILED,  # the group is never joined
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)
"""Error codes after which a consumer goes on by itself: a range waits for its patience."""

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # most of confluent_kafka has types
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})


def connect(options: TopicOptions, access: Mapping[str, Any]) -> KafkaLog:
    """Return the reader of a feed's broker; nothing is asked of it yet. Raises BadSettings."""
    return KafkaLog(options.uri, options.topic, tuple(with_ours(options.brokers, access).items()))


@dataclass(frozen=True, slots=True)
class KafkaLog:
    """A broker. `client_options` are librdkafka's, with whatever secrets are in them."""

    uri: str
    default_topic: str
    client_options: tuple[tuple[str, Any], ...] = field(repr=False)
    patience_seconds: float = PATIENCE_SECONDS

    @property
    def proves_ends(self) -> bool:
        """True: a broker's end, asked after a mark was read, covers all that was acknowledged before it."""
        return True

    @property
    def options(self) -> dict[str, Any]:
        """The options as librdkafka takes them."""
        return dict(self.client_options)

    def ends(self, concerns: Callable[[str], bool]) -> Ends:
        """Return the ends of every partition: metadata, then one request a leader and kind of offset.

        A partition that is listed and that its leader does not know is new, or of a topic that is being deleted: it is
        asked again. Raises StorageUnavailable, BucketMissing where no topic is the feed's, BadSettings.
        """
        until = time.monotonic() + ANSWER_SECONDS
        while True:
            listed = self._ask(lambda client, seconds: client.list_topics(timeout=seconds)).topics
            partitions = [
                TopicPartition(name, number)
                for name, topic in listed.items()
                if concerns(name)
                for number in topic.partitions
            ]
            if not partitions:
                raise BucketMissing(
                    f"{self.uri}: none of the {len(listed)} topics that the broker shows is the changefeed's; expected "
                    f"{self.default_topic}. Look at the topic in the sink URI and at `topics`, and give the login the "
                    "right DESCRIBE on the changefeed's topics: others are not shown."
                )
            low, written, high = self._ask(partial(_offsets, partitions))
            answered = low.keys() & written.keys() & high.keys()
            missing = [partition for partition in partitions if (partition.topic, partition.partition) not in answered]
            if not missing:
                return {
                    place: LogEnds(low[place], max(high[place], low[place]), written=written[place])
                    for place in sorted(low)
                }
            if time.monotonic() > until:
                raise self._unknown_to_leader(Partition(str(missing[0].topic), missing[0].partition))
            time.sleep(0.05)

    def _unknown_to_leader(self, partition: Partition) -> StorageUnavailable:
        return StorageUnavailable(
            f"{self.uri}: {partition} is listed, and its leader has not known it for {ANSWER_SECONDS:g} s. Look at the "
            "broker that leads it; the next run asks again.",
            topic=partition.topic,
            partition=partition.number,
        )

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return the ids of topics; brokers give them since Kafka 2.8, older ones an id of zeros, which is left out."""
        if not topics:
            return {}

        def ask(client: AdminClient, seconds: float) -> Mapping[str, str]:
            futures = client.describe_topics(TopicCollection(sorted(topics)), request_timeout=seconds)
            ids = {}
            for name, configuration in futures.items():
                try:
                    topic_id = configuration.result(seconds + 1).topic_id
                except KafkaException as error:
                    if error.args[0].code() not in _GONE:
                        raise
                    continue
                if topic_id is not None and (
                    topic_id.get_most_significant_bits() or topic_id.get_least_significant_bits()
                ):
                    ids[name] = str(topic_id)
            return ids

        return self._ask(ask)

    def missing_because(self, topic: str) -> str:
        """Return the reason for missing offsets: a broker removes them by compaction, and hides them by transactions.

        Where nobody on the broker has ever used a transaction, there is no topic that keeps them.
        """
        if "compact" in self._configured(topic, "cleanup.policy"):
            return "compacted"
        topics = self._ask(lambda client, seconds: client.list_topics(timeout=seconds)).topics
        return "transactional" if _TRANSACTIONS in topics else ""

    def keeps_deletes_ms(self, topic: str) -> int:
        """Return the topic's `delete.retention.ms`."""
        return int(self._configured(topic, "delete.retention.ms") or _DELETE_RETENTION_MS)

    def _configured(self, topic: str, name: str) -> str:
        def ask(client: AdminClient, seconds: float) -> str:
            resource = ConfigResource(ResourceType.TOPIC, topic)
            configuration: Future[Any] = client.describe_configs([resource], request_timeout=seconds)[resource]
            entry = configuration.result(seconds + 1).get(name)
            return "" if entry is None else str(entry.value)

        return self._ask(ask)

    # --- ranges -------------------------------------------------------------------------------------------------------

    def read(self, offset_range: OffsetRange, batch_bytes: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range, as `LogReader.read` says.

        Raises StorageUnavailable where nothing comes for `patience_seconds`.
        """
        if not len(offset_range):
            return
        with _consumer(self.client_options) as (consumer, problems):
            consumer.assign([TopicPartition(*offset_range.partition, offset_range.start)])
            held = _MessageBuffer(offset_range.partition)
            for _ in self._progress(consumer, offset_range, problems, held):
                if held.size >= batch_bytes:
                    yield held.batch()
            if held.count:
                yield held.batch()

    def _progress(
        self, consumer: Consumer, offset_range: OffsetRange, problems: list[Any], held: _MessageBuffer
    ) -> Iterator[int]:
        """Hold messages as they come, until nothing below the range's stop is left; yield the offset that is next."""
        position, until = offset_range.start, time.monotonic() + self.patience_seconds
        while position < offset_range.stop:
            reached = self._hold(consumer, offset_range, position, held)
            if reached > position:
                position, until = reached, time.monotonic() + self.patience_seconds
                problems.clear()
                yield position
            elif time.monotonic() > until or any(problem.code() in LASTING | _GONE for problem in problems):
                raise self._stuck(offset_range, position, problems)

    def _hold(self, consumer: Consumer, offset_range: OffsetRange, position: int, held: _MessageBuffer) -> int:
        """Hold the messages that came, and return through where the log is known to be read."""
        with _uncollected():
            came = consumer.consume(min(_AT_ONCE, offset_range.stop - position), timeout=0.1)
            reached = position
            if any(map(Message.error, came)):
                reached = max(
                    self._end_of(message, offset_range, position) for message in came if message.error() is not None
                )
                came = [message for message in came if message.error() is None]
            if came:
                reached = max(reached, int(came[-1].offset() or 0) + 1)
                if reached > offset_range.stop:
                    came = [message for message in came if int(message.offset() or 0) < offset_range.stop]
            if came:
                held.add(came)
            del came
            return reached

    def _end_of(self, notice: Message, offset_range: OffsetRange, position: int) -> int:
        """Return through where the log is known to be read, by what came in place of a message."""
        error, partition = notice.error(), offset_range.partition
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            return int(notice.offset() or 0)
        if error.code() in _PASSED_OVER:
            return position
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            ends = self.ends(lambda topic: topic == partition.topic).get(partition)
            place = {"topic": partition.topic, "partition": partition.number, "offset": position}
            if ends is not None and ends.low > position:
                raise InputError(
                    f"{partition} starts at offset {ends.low} by now; {position} to {ends.low - 1} "
                    "expired before they were read. Keep messages longer (retention.ms), and import anew the tables "
                    "that they are of.",
                    gone=True,
                    **place,
                )
            end = "nowhere" if ends is None else f"at offset {ends.high}"
            raise InputError(
                f"{partition} ends {end}, below {position}, which it had: the topic was created anew or "
                "cut off. Import its tables anew.",
                gone=True,
                **place,
            )
        raise self._stuck(offset_range, position, [error])

    def _stuck(self, offset_range: OffsetRange, position: int, problems: list[Any]) -> CdcError:
        partition = offset_range.partition
        place = {"topic": partition.topic, "partition": partition.number, "offset": position}
        if any(problem.code() in _GONE for problem in problems):
            return InputError(
                f"{partition} is not on the broker of {self.uri} any more; expected its offset {position}. "
                "Where the topic was deleted, import its tables anew.",
                gone=True,
                **place,
            )
        where = f"{offset_range.partition} offset {position}"
        if problems:
            return refusal(problems, self.uri, self.options, where)
        return StorageUnavailable(
            f"{self.uri}, {where}: nothing came for {self.patience_seconds:g} s, and the log was to go on to "
            f"{offset_range.stop}. Look at the partition's leader and replicas; the next run reads on from there.",
            **place,
        )

    # --- questions ----------------------------------------------------------------------------------------------------

    def _ask(self, question: Callable[[AdminClient, float], _T]) -> _T:
        """Ask the broker, again while it may be a passing failure; report wrong logins and certificates at once."""
        client, problems = _admin(self.client_options, os.getpid())
        problems.clear()
        until = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                return question(client, max(0.1, min(1.5, until - time.monotonic())))
            except KafkaException as error:
                client.poll(0)  # brings the reasons
                problems.append(error.args[0])
            except TimeoutError:
                client.poll(0)
            if time.monotonic() > until or any(problem.code() in LASTING for problem in problems):
                _admin.cache_clear()
                raise refusal(problems, self.uri, self.options)
            time.sleep(0.02)


def _offsets(
    partitions: Collection[TopicPartition], client: AdminClient, seconds: float
) -> tuple[dict[Partition, int], dict[Partition, int], dict[Partition, int]]:
    """Return the first offsets of partitions, the ends of all that is written, and the read_committed ones after that.

    Partitions that their leaders do not know are left out.
    """

    def ask(spec: OffsetSpec, isolation: IsolationLevel) -> Mapping[TopicPartition, Future[Any]]:
        return client.list_offsets(dict.fromkeys(partitions, spec), isolation_level=isolation, request_timeout=seconds)

    bounds = ask(_EARLIEST, IsolationLevel.READ_COMMITTED), ask(_LATEST, IsolationLevel.READ_UNCOMMITTED)
    low, written = (_answered(futures, seconds) for futures in bounds)
    return low, written, _answered(ask(_LATEST, IsolationLevel.READ_COMMITTED), seconds)


def _answered(futures: Mapping[TopicPartition, Future[Any]], seconds: float) -> dict[Partition, int]:
    offsets = {}
    for partition, answer in futures.items():
        try:
            offsets[Partition(str(partition.topic), int(partition.partition))] = int(answer.result(seconds + 1).offset)
        except KafkaException as error:
            if error.args[0].code() not in _GONE:
                raise
    return offsets


@lru_cache(maxsize=8)
def _admin(client_options: tuple[tuple[str, Any], ...], process: int) -> tuple[AdminClient, list[Any]]:
    """Return the client of a process that asks, and where its problems come in; it stays connected between looks."""
    problems: list[Any] = []
    options = {name: value for name, value in client_options if name not in OURS}
    return _made(AdminClient, options, problems), problems


@contextmanager
def _consumer(options: tuple[tuple[str, Any], ...]) -> Iterator[tuple[Consumer, list[Any]]]:
    problems: list[Any] = []
    consumer = _made(Consumer, dict(options), problems)
    try:
        yield consumer, problems
    finally:
        consumer.close()


def _made(kind: Callable[[dict[str, Any]], _T], options: dict[str, Any], problems: list[Any]) -> _T:
    """Return a client that writes no log of its own and adds what goes wrong to `problems`."""
    try:
        return kind({"log_level": 0, **options, "error_cb": problems.append})
    except (KafkaException, TypeError, ValueError) as error:
        raise bad_option(error.args[0] if error.args else error, options) from None


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause cyclic garbage collection: messages have no cycles, and collecting among thousands halves the rate."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# --- batches ----------------------------------------------------------------------------------------------------------

_TIMES = {TIMESTAMP_NOT_AVAILABLE: None, TIMESTAMP_CREATE_TIME: "create", TIMESTAMP_LOG_APPEND_TIME: "append"}
_SCHEMA = message_schema()
_HEADERS = _SCHEMA.field("headers").type


class _MessageBuffer:
    """Messages of a partition as they came, until they are a batch. `size` is the bytes of their values and keys.

    Unbound methods, and bytes that are put together once: as many calls as there are messages and columns, and copies,
    are what reading costs most.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self._clear()

    def _clear(self) -> None:
        self.size = self.count = 0
        self._offsets: list[npt.NDArray[np.int64]] = []
        self._stamps: list[npt.NDArray[np.int64]] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[pa.Array] = []

    def add(self, messages: list[Message]) -> None:
        """Hold some messages, one at least."""
        count = len(messages)
        keys, values = list(map(Message.key, messages)), list(map(Message.value, messages))
        first, last = int(messages[0].offset() or 0), int(messages[-1].offset() or 0)
        whole = last - first + 1 == count
        self._offsets.append(
            np.arange(first, last + 1) if whole else np.fromiter(map(Message.offset, messages), np.int64, count)
        )
        stamps = chain.from_iterable(map(Message.timestamp, messages))
        self._stamps.append(np.fromiter(stamps, np.int64, 2 * count).reshape(count, 2))
        self._keys += keys
        self._values += values
        named = any(map(Message.headers, messages))
        headers = pa.array(list(map(Message.headers, messages)), _HEADERS) if named else pa.nulls(count, _HEADERS)
        self._headers.append(headers)
        self.count += count
        self.size += sum(len(value) for value in chain(keys, values) if value)

    def batch(self) -> pa.RecordBatch:
        """Return the held messages, and hold none any more."""
        stamps, count = np.concatenate(self._stamps), self.count
        kinds, times = stamps[:, 0], stamps[:, 1]
        names = pa.array([_TIMES.get(kind) for kind in range(max(_TIMES) + 1)], pa.string())
        columns = [
            pa.repeat(self.partition.topic, count),
            pa.repeat(pa.scalar(self.partition.number, pa.int32()), count),
            pa.array(np.concatenate(self._offsets)),
            pa.array(times, pa.int64(), mask=kinds == TIMESTAMP_NOT_AVAILABLE),
            names.take(pa.array(kinds)),
            _binary(self._keys),
            _binary(self._values),
            pa.concat_arrays(self._headers),
        ]
        self._clear()
        return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _binary(values: list[bytes | None]) -> pa.BinaryArray:
    """Return values as an array, in one copy where none is missing and an array can hold them so."""
    missing, present = values.count(None), [value for value in values if value is not None]
    if not present:
        return pa.nulls(missing, pa.binary())
    offsets = np.zeros(len(present) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, present), np.int64, len(present)), out=offsets[1:])
    if missing or offsets[-1] > _MOST_BYTES:
        return pa.array(values, pa.binary())
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(present))]
    return pa.Array.from_buffers(pa.binary(), len(present), buffers)


_LOGIN = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.UNSUPPORTED_SASL_MECHANISM}
)
_RIGHTS = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
LASTING = _LOGIN | _RIGHTS | {KafkaError._SSL}
"""Codes of errors that waiting does not fix."""

_WHEN = re.compile(r" \(after \d+ms in state \w+\)")
"""Text that librdkafka adds of its own, which does not help to correct a setting."""
_SECRET = re.compile("password|secret|key.pem|sasl.jaas|token", re.IGNORECASE)


def redacted(text: str, options: Mapping[str, Any]) -> str:
    """Return a text without any secret of the options."""
    secrets = (str(value) for name, value in options.items() if _SECRET.search(name) and str(value))
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def bad_option(problem: object, options: Mapping[str, Any]) -> BadSettings:
    """Return the error for options that librdkafka does not take."""
    text = _said(problem, options)
    return BadSettings(
        f"the settings of the Kafka client do not fit: {text}. Correct `kafka` in the settings, which takes "
        "librdkafka's option names, or what the sink URI says of SASL and TLS."
    )


def refusal(problems: Iterable[Any], uri: str, options: Mapping[str, Any], where: str = "") -> CdcError:
    """Return the error for what a broker, or the way to it, refused: that which only a person can fix counts first.

    `problems` are KafkaErrors as they came; `where` is the topic, partition and offset that it is about.
    """
    noted = list(problems)
    # The problem that explains the others.
    lasting = [problem for problem in noted if problem.code() in LASTING]
    unresolved = [problem for problem in noted if problem.code() == KafkaError._RESOLVE]
    passing = [problem for problem in noted if problem.code() != KafkaError._ALL_BROKERS_DOWN]
    problem = next(iter([*lasting, *unresolved, *reversed(passing), *noted]), None)
    code = None if problem is None else problem.code()
    reason = "it did not answer" if problem is None else _said(problem, options)
    at = f"{uri}{f', {where}' if where else ''}"
    servers = options.get("bootstrap.servers")
    if code in _LOGIN:
        user, mechanism = options.get("sasl.username"), options.get("sasl.mechanism")
        whom = f" for the user {user}" if user else ""
        return BucketMissing(
            f"{at}: the broker refused the login{whom} by {mechanism or 'no mechanism'}: {reason}. Look at "
            "sasl.mechanism, sasl.username and sasl.password under `kafka`, or at sasl-mechanism, sasl-user and "
            "sasl-password of the sink URI."
        )
    if code in _RIGHTS:
        return BucketMissing(
            f"{at}: the login may not read there: {reason}. Give it the rights DESCRIBE and READ on the changefeed's "
            "topics."
        )
    if code == KafkaError._SSL:
        return BucketMissing(
            f"{at}: no TLS with {servers}: {reason}. Look at ssl.ca.location and security.protocol under `kafka`, or "
            "at enable-tls, ca, cert and key of the sink URI; the port may be one without TLS."
        )
    if code == KafkaError._RESOLVE:
        return StorageUnavailable(
            f"{at}: the address of a broker is not known ({reason}). Look at the host in the sink URI, or set "
            "bootstrap.servers under `kafka`; brokers that advertise names of their own network need those resolved."
        )
    return StorageUnavailable(
        f"{at}: no broker at {servers} answers ({reason}). Try again later; if it never does, look at host and port in "
        "the sink URI, and at security.protocol under `kafka`: a listener with TLS or SASL closes other connections."
    )


def _said(problem: object, options: Mapping[str, Any]) -> str:
    text = problem.str() if isinstance(problem, KafkaError) else str(problem)
    return redacted(_WHEN.sub("", " ".join(text.split()))[:300].rstrip(". "), options)
