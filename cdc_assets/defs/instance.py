"""A Dagster daemon, and the status of its runs: for the demo and for tests with a real daemon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import dagster as dg

from cdc_assets.defs.names import feed_name, keys_name
from cdc_assets.run_coordinator import CHANGEFEED_TAG

_ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


@contextmanager
def daemon(environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Dagster daemon on this project's code location; it ends with the block, and all that it started."""
    command = [sys.executable, "-m", "dagster._daemon", "run", "-m", "cdc_assets.definitions", "--log-level", "warning"]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=dict(environment), stdout=output, stderr=output, start_new_session=True, cwd=log.parent
        )
    try:
        yield process
    finally:
        stop_group(process)


def stop_group(process: subprocess.Popen[bytes], patience_seconds: float = 15) -> None:
    """Terminate a process and its group, then kill them; without patience they are killed at once."""
    try:
        if patience_seconds:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience_seconds)
    finally:  # whoever waits may be interrupted, too
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(15)


class RunWatch:
    """The status of a changefeed's runs on the instance that DAGSTER_HOME names."""

    def __init__(self, changefeed: str) -> None:
        self._instance = dg.DagsterInstance.get()
        self._changefeed = changefeed
        self._reported: dict[str, dg.DagsterRunStatus] = {}

    def news(self) -> list[str]:
        """Return one line for each run whose status changed since the last call."""
        lines = []
        for run in reversed(self._runs()):
            if self._reported.get(run.run_id) != run.status:
                self._reported[run.run_id] = run.status
                lines.append(f"run {run.run_id[:8]} {run.job_name}: {run.status.value.lower()}")
        return lines

    @property
    def failed(self) -> bool:
        """Return whether any run failed."""
        return any(status == dg.DagsterRunStatus.FAILURE for status in self._reported.values())

    @property
    def idle(self) -> bool:
        """Return whether no run is in progress."""
        return all(status in _ENDED for status in self._reported.values())

    def partitions(self) -> int:
        """Return the number of partitions that the sensor has added."""
        return len(self._instance.get_dynamic_partitions(keys_name(self._changefeed)))

    def _runs(self) -> list[dg.DagsterRun]:
        return list(
            self._instance.get_runs(dg.RunsFilter(tags={CHANGEFEED_TAG: feed_name(self._changefeed)}), limit=50)
        )

    def close(self) -> None:
        """Close the instance."""
        self._instance.dispose()
