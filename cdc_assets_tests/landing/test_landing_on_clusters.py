"""A large range of a broker with a login, landed by executors of a cluster, one of which dies in the middle of it."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc_assets.lake import LakeState
from cdc_assets.landing.iceberg import LandingTable
from cdc_assets.model.schema import TableId
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.kafka_broker import PASSWORD, USER, Broker
from cdc_assets_tests.lake.test_clusters import applying, ended
from cdc_assets_tests.landing.test_landing import ddl, mark, row
from cdc_assets_tests.servers.spark_cluster import SparkCluster, spark_cluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

PARTITIONS, MESSAGES = 4, 30_000
"""Some 40 MiB, of which the driver reads no more than the first batch."""


def filled(broker: Broker, topic: str) -> None:
    broker.create(topic, PARTITIONS)
    rows = ((topic, at % PARTITIONS, b"k", row(101 + at, at, at)) for at in range(PARTITIONS * MESSAGES))
    broker.produce([(topic, 0, None, ddl(100)), *rows])
    broker.produce([(topic, number, None, mark(1 << 40)) for number in range(PARTITIONS)])


def settings(broker: Broker, topic: str, directory: Path, **given: Any) -> Path:
    kafka = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.ca.location": str(broker.certificate),
        "sasl.username": USER, "sasl.password": {"env": "KAFKA_PASSWORD"},
    }  # fmt: skip
    uri = f"kafka://127.0.0.1:{broker.sasl_port}/{topic}?protocol=canal-json&enable-tidb-extension=true"
    feed = {"name": "shop", "sink_uri": uri, "kafka": kafka, "decode": "executors", "initial": {"complete": ["*"]}}
    file = directory / "changefeeds.yaml"
    lake = {"warehouse": str(directory / "lake")}
    file.write_text(yaml.safe_dump({"lake": lake, "changefeeds": [{**feed, **given}]}))
    return file


def landed_by(running: SparkCluster, worker: int) -> bool:
    """Whether an executor of a worker has begun a task."""
    return any("Running task" in log.read_text() for log in running.home.glob(f"worker-{worker}/app-*/*/stderr"))


@pytest.mark.parametrize("dies", [False, True], ids=["all live", "one dies"])
def test_a_backlog_is_landed_by_executors(broker: Broker, dies: bool, tmp_path: Path) -> None:
    topic = f"backlog-{'dies' if dies else 'lives'}"
    filled(broker, topic)
    logs, conf = tmp_path / "events", tmp_path / "conf"
    for directory in (logs, conf):
        directory.mkdir()
    events = {"enabled": "true", "compress": "false", "dir": f"file://{logs}"}
    options = "".join(f"spark.eventLog.{name} {value}\n" for name, value in events.items())
    (conf / "spark-defaults.conf").write_text(options)
    variables = {"KAFKA_PASSWORD": PASSWORD, "SPARK_CONF_DIR": str(conf)}
    if not dies:  # else nobody reads it while the process is waited for
        variables["CDC_ASSETS_SPARK_LOG"] = "INFO"
    with (
        spark_cluster(tmp_path / "cluster") as running,
        applying(running, "--settings", str(settings(broker, topic, tmp_path)), environ=variables) as process,
    ):
        end = time.monotonic() + 240
        while dies and not landed_by(running, 0):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        if dies:
            running.kill_worker(0)
        output = ended(process)
        assert process.returncode == 0, output
        assert running.executors(1)
        written = [path for root in (logs, running.home) for path in root.rglob("*") if path.is_file()]
        assert any(b"SparkListenerJobStart" in path.read_bytes() for path in written if logs in path.parents)
        assert [path for path in written if PASSWORD.encode() in path.read_bytes()] == []
        assert PASSWORD not in output
    with closing(LandingTable(LakeSettings.from_warehouse(tmp_path / "lake"), "shop")) as table:
        assert len(table.stored().rows) == 3  # the driver's, and one of each task
    state = LakeState(LakeSettings.from_warehouse(tmp_path / "lake"), "shop")
    assert sorted(state.read(TableId("shop", "t")).column("id").to_pylist()) == list(range(PARTITIONS * MESSAGES))
    state.close()
