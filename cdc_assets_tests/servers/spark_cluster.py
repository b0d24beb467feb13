"""A standalone Spark cluster of the test's own: a master and workers of one core, from the Spark inside pyspark."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from cdc_assets.jvm.java import find_java, spark_home
from cdc_assets_tests.postgres import free_port

__all__ = ["SparkCluster", "spark_cluster"]

_PATIENCE_SECONDS = 240
_HERE = str(Path(__file__).parents[2])
"""Where executors find the package, as the driver does."""
_DAEMON = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}


class SparkCluster:
    """A running master and the workers that were added to it; `home` is where their files and logs lie."""

    def __init__(self, home: Path, running: ExitStack) -> None:
        home.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.home = home
        self.master = f"spark://127.0.0.1:{port}"
        self._running = running
        self._workers: list[subprocess.Popen[bytes]] = []
        self._start("master", ["master.Master", "--host", "127.0.0.1", "--port", str(port)], "I have been elected", {})

    @property
    def environment(self) -> dict[str, str]:
        """What a process has set that runs its driver here."""
        return {"CDC_ASSETS_SPARK_MASTER": self.master, "SPARK_LOCAL_IP": "127.0.0.1"}

    def add_worker(self, environment: Mapping[str, str] | None = None) -> None:
        """Add a worker; `environment` is set for it and its executors."""
        name = f"worker-{len(self._workers)}"
        command = ["worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g"]
        command += ["--work-dir", str(self.home / name), self.master]
        self._workers.append(self._start(name, command, "Successfully registered with master", environment or {}))

    def kill_worker(self, number: int) -> None:
        """End a worker with its executors, as a machine that goes away."""
        _kill(self._workers[number])

    def executors(self, worker: int = 0) -> list[Path]:
        """Return the directories of executors that a worker ever started, one for each."""
        return sorted(self.home.glob(f"worker-{worker}/app-*/*"))

    def _start(self, name: str, command: list[str], ready: str, more: Mapping[str, str]) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "PYTHONPATH": _HERE,
            "JAVA_HOME": str(find_java()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            **_DAEMON,
            **more,
        }
        start = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{command[0]}"]
        log = self.home / f"{name}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [*start, *command[1:], "--webui-port", "0"],
                stdout=sink,
                stderr=sink,
                env=environment,
                start_new_session=True,
            )
        self._running.callback(_kill, process)
        _wait(process, log, ready)
        return process


@contextmanager
def spark_cluster(home: Path, workers: int = 2, environment: Mapping[str, str] | None = None) -> Iterator[SparkCluster]:
    """Run a cluster with that many workers; `environment` is set for them."""
    with ExitStack() as running:
        cluster = SparkCluster(home, running)
        for _ in range(workers):
            cluster.add_worker(environment)
        yield cluster


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started: executors are of its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait(process: subprocess.Popen[bytes], log: Path, ready: str) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        output = log.read_text(errors="replace")
        assert process.poll() is None, output
        if ready in output:
            return
        time.sleep(0.1)
    raise TimeoutError(log.read_text(errors="replace"))
