"""Paimon's `kafka_sync_database` in one JVM of Flink, on the topic that a live load is written into.

BENCH_PAIMON names a directory with its jars, which no other test needs: those of Flink's `lib` (PyPI has them, in
`apache-flink-libraries` 1.20), `paimon-flink-1.20`, `flink-sql-connector-kafka` (3.2.0-1.19 runs on 1.20; Paimon names
the classes that are shaded in it, which `flink-connector-kafka` lacks), and `flink-shaded-hadoop-2-uber` (all on Maven
Central).
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdc_assets.defs.instance import stop_group
from cdc_assets_tests.bench.measuring import TreeCost

__all__ = ["Paimon", "paimon_jars"]

_OPENED = ("java.lang", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.text", "java.time", "java.util")
_LOG = """rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c %m%n%ex
"""


def paimon_jars() -> list[Path]:
    """Return the jars of the peer, none where BENCH_PAIMON names no directory of them."""
    place = os.environ.get("BENCH_PAIMON")
    return sorted(Path(place).glob("**/*.jar")) if place else []


class Paimon:
    """The peer on a topic of a broker; a snapshot of each table comes at each checkpoint, every so many seconds."""

    def __init__(self, directory: Path, address: str, topic: str, every: float) -> None:
        self._warehouse, self._log = directory / "warehouse", directory / "peer.log"
        (conf := directory / "conf").mkdir(parents=True)
        (conf / "log4j-cli.properties").write_text(_LOG)
        (conf / "config.yaml").write_text(
            f"execution.checkpointing.interval: {every} s\nexecution.checkpointing.dir: file://{directory}/state\n"
            "parallelism.default: 1\nclassloader.resolve-order: parent-first\ntaskmanager.memory.managed.size: 256m\n"
        )
        options = {"properties.bootstrap.servers": address, "topic": topic, "properties.group.id": "bench"}
        options |= {"value.format": "canal-json", "scan.startup.mode": "earliest-offset"}
        jars = paimon_jars()
        (paimon,) = (str(jar) for jar in jars if jar.name.startswith("paimon-flink"))
        self._command = [
            "java", *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED), "-Xmx768m",
            f"-Dlog4j.configurationFile={conf}/log4j-cli.properties", "-cp", ":".join(map(str, jars)),
            "org.apache.flink.client.cli.CliFrontend", "run", "-t", "local",
            "-c", "org.apache.paimon.flink.action.FlinkActions", paimon, "kafka_sync_database",
            "--warehouse", f"file://{self._warehouse}", "--database", "bench", "--table_conf", "bucket=1",
            *(word for key, value in options.items() for word in ("--kafka_conf", f"{key}={value}")),
        ]  # fmt: skip
        self._environment = {**os.environ, "FLINK_CONF_DIR": str(conf)}
        self._seen: set[Path] = set()

    @contextmanager
    def running(self, tables: int) -> Iterator[TreeCost]:
        """Run the peer for a block, which begins when all tables have rows; its cost is counted from then on."""
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            end = time.time() + 300
            while len({path.parent for path in self._snapshots()}) < tables:
                assert process.poll() is None, self._log.read_text(errors="replace")[-3000:]
                assert time.time() < end, self._log.read_text(errors="replace")[-3000:]
                time.sleep(0.5)
            self._seen.clear()
            yield TreeCost([process.pid])
        finally:
            stop_group(process)

    def look(self) -> int:
        """Return how many commits to tables were seen since the block began; old ones are removed meanwhile."""
        self._seen.update(self._snapshots())
        return len(self._seen)

    def _snapshots(self) -> Iterator[Path]:
        return self._warehouse.glob("*.db/*/snapshot/snapshot-*")
