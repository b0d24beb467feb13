"""A Kafka broker of the tests' own: one node in KRaft mode, listening on this machine only.

    with running_broker() as broker:
        broker.create("orders", partitions=3)
        broker.produce([("orders", 0, b"key", b"value")])

It has three listeners: plain, TLS, and TLS with SASL (PLAIN for the user `reader`, SCRAM for whom `scram_user` makes).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from cdc_assets.jvm.java import find_java
from cdc_assets_tests.kafka_jars import class_path
from cdc_assets_tests.postgres import free_port

__all__ = ["PASSWORD", "PATIENCE_SECONDS", "USER", "Broker", "Produced", "running_broker"]

USER, PASSWORD = "reader", "not-a-secret"  # of a broker that lives as long as the tests
PATIENCE_SECONDS = 240
_STARTED = "Kafka Server started"
_STORE_PASSWORD = "changeit"

Produced = tuple[str, int, bytes | None, bytes | None]
"""Topic, partition, key, value."""


@dataclass
class Broker:
    """A broker that runs, or was killed and can be started again with what it holds."""

    home: Path
    port: int
    tls_port: int
    sasl_port: int
    controller_port: int
    process: subprocess.Popen[bytes] | None = None
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    @property
    def address(self) -> str:
        """Where it is reached without TLS and login."""
        return f"127.0.0.1:{self.port}"

    @property
    def certificate(self) -> Path:
        """The certificate of the authority that its own is signed by, as PEM."""
        return self.home / "ca.pem"

    def start(self) -> None:
        """Start it and wait until it answers."""
        log = self.home / "server.log"
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                _command(self.home), stdout=out, stderr=subprocess.STDOUT, cwd=self.home, start_new_session=True
            )
        until = time.monotonic() + PATIENCE_SECONDS
        while _STARTED not in log.read_text(errors="replace"):
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the broker did not start:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a power failure would."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    # --- topics -------------------------------------------------------------------------------------------------------

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Make a topic; `config` are its options with underscores for dots."""
        options = {name.replace("_", "."): value for name, value in config.items()}
        made = self.admin.create_topics([NewTopic(topic, partitions, 1, config=options)])
        made[topic].result(PATIENCE_SECONDS)
        self._until_shown(topic, partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self.admin.delete_topics([topic])[topic].result(PATIENCE_SECONDS)
        self._until_shown(topic, 0)

    def add_partitions(self, topic: str, count: int) -> None:
        """Let a topic have so many partitions in all."""
        self.admin.create_partitions([NewPartitions(topic, count)])[topic].result(PATIENCE_SECONDS)
        self._until_shown(topic, count)

    def _until_shown(self, topic: str, partitions: int) -> None:
        """Wait until clients are shown what the controller has decided, and leaders know it."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            known = self.admin.list_topics(timeout=PATIENCE_SECONDS).topics.get(topic)
            shown = [] if known is None else [TopicPartition(topic, number) for number in known.partitions]
            if len(shown) == partitions and self._have_leaders(shown):
                return
            assert time.monotonic() < until, f"{topic} has {len(shown)} of {partitions} partitions"
            time.sleep(0.02)

    def _have_leaders(self, partitions: Sequence[TopicPartition]) -> bool:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # most of confluent_kafka has types
        answers = self.admin.list_offsets(dict.fromkeys(partitions, latest)) if partitions else {}
        return all(answer.exception(PATIENCE_SECONDS) is None for answer in answers.values())

    def expire(self, topic: str, partition: int, before: int) -> None:
        """Remove all messages below an offset, as retention does."""
        for answer in self.admin.delete_records([TopicPartition(topic, partition, before)]).values():
            answer.result(PATIENCE_SECONDS)

    def groups(self) -> list[str]:
        """Return the names of all consumer groups that the broker knows."""
        groups = self.admin.list_consumer_groups().result(PATIENCE_SECONDS)
        return sorted(group.group_id for group in groups.valid)

    def committed(self, group: str) -> Sequence[Any]:
        """Return the offsets that a group has committed."""
        answers = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        return list(answers[group].result(PATIENCE_SECONDS).topic_partitions)

    def scram_user(self, user: str, password: str) -> None:
        """Let a user log in by SCRAM-SHA-256."""
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        made = self.admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, how, password.encode())])
        made[user].result(PATIENCE_SECONDS)

    # --- messages -----------------------------------------------------------------------------------------------------

    def produce(self, messages: Iterable[Produced], **options: Any) -> None:
        """Write messages in that order; `options` are librdkafka's with underscores for dots."""
        producer = self.producer(**options)
        for topic, partition, key, value in messages:
            write(producer, topic, partition, key, value)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def producer(self, **options: Any) -> Producer:
        """Return a producer to this broker."""
        given = {name.replace("_", "."): value for name, value in options.items()}
        ordered = {"enable.idempotence": True}  # what is written again stays in its order
        return Producer({"bootstrap.servers": self.address, "linger.ms": 5, "log_level": 0, **ordered, **given})


def write(
    producer: Producer,
    topic: str,
    partition: int,
    key: bytes | None,
    value: bytes | None,
    timestamp_ms: int = 0,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> None:
    """Hand one message over, again while the producer's queue is full; flushing raises where it is not written."""
    more: dict[str, Any] = {"headers": list(headers)} if headers else {}
    while True:
        try:
            producer.produce(topic, value, key, partition, _refuse, timestamp=timestamp_ms, **more)
            return
        except BufferError:
            producer.poll(0.1)


def _refuse(error: KafkaError | None, _: Message) -> None:
    """Raise where a message was not written."""
    if error is not None:
        raise KafkaException(error)


@contextmanager
def running_broker() -> Iterator[Broker]:
    """Run an empty broker; raises SetupError without its jars, RuntimeError where it does not start."""
    home = Path(tempfile.mkdtemp(prefix="cdc_kafka_"))
    broker = Broker(home, free_port(), free_port(), free_port(), free_port())
    try:
        _certify(home)
        _configure(broker)
        broker.start()
        yield broker
    finally:
        broker.kill()
        shutil.rmtree(home, ignore_errors=True)


# --- setting it up ----------------------------------------------------------------------------------------------------


def _java(tool: str) -> str:
    """Return a tool of the Java that Spark uses too, itself where that is wrapped."""
    return str((find_java() / "lib").resolve().parent / "bin" / tool)


def _command(home: Path) -> list[str]:
    options = ["-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    options += ["-Djava.awt.headless=true", "-Dcom.sun.management.jmxremote=false"]
    options += [f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}"]
    path = os.pathsep.join(map(str, class_path()))
    return [_java("java"), *options, "-cp", path, "kafka.Kafka", str(home / "server.properties")]


def _certify(home: Path) -> None:
    """Make a key with a certificate that signs itself."""
    store = ["-keystore", str(home / "broker.p12"), "-storetype", "PKCS12", "-storepass", _STORE_PASSWORD]
    made = ["-genkeypair", "-alias", "broker", "-keyalg", "EC", "-validity", "30", "-dname", "CN=127.0.0.1"]
    made += ["-ext", "san=ip:127.0.0.1,dns:localhost", "-ext", "bc=ca:true"]
    for step in (made, ["-exportcert", "-rfc", "-alias", "broker", "-file", str(home / "ca.pem")]):
        subprocess.run([_java("keytool"), *step, *store], check=True, capture_output=True)


def _configure(broker: Broker) -> None:
    home = broker.home
    data = home / "data"
    data.mkdir()
    names = {"cluster.id": "Y2RjX2Fzc2V0c190ZXN0cw", "directory.id": "Y2RjX2Fzc2V0c19kaXJfMQ"}
    _properties(data / "meta.properties", {"version": 1, "node.id": 1, **names})
    _properties(home / "server.properties", _settings(broker, data))
    console = {"type": "Console", "name": "out", "layout.type": "PatternLayout", "layout.pattern": "%d %p %m (%c)%n"}
    log = {"rootLogger.level": "info", "rootLogger.appenderRef.out.ref": "out"}
    _properties(home / "log4j2.properties", log | {f"appender.out.{name}": value for name, value in console.items()})


def _settings(broker: Broker, data: Path) -> dict[str, Any]:
    ports = {"PLAINTEXT": broker.port, "TLS": broker.tls_port, "SASL": broker.sasl_port}
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    security = "org.apache.kafka.common.security"
    plain, scram = (f"{security}.{login_module}LoginModule required" for login_module in ("plain.Plain", "scram.Scram"))
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{broker.controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{broker.controller_port}",
        "advertised.listeners": listeners,
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,SASL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.location": broker.home / "broker.p12",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": _STORE_PASSWORD,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl.plain.sasl.jaas.config": f'{plain} user_{USER}="{PASSWORD}";',
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{scram};",
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        "log.retention.ms": -1,  # recorded messages are old, and every few minutes old ones would be removed
        "broker.session.timeout.ms": 1000,  # as long a killed broker's successor waits
        "broker.heartbeat.interval.ms": 200,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "log.cleaner.dedupe.buffer.size": 4 << 20,
        "log.cleaner.threads": 1,
        "num.network.threads": 2,
        "num.io.threads": 2,
        "background.threads": 2,
    }


def _properties(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
