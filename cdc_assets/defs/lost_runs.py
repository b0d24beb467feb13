"""Runs whose process is gone, with the code server that would have noticed.

With Dagster's default launcher a run is a process that the code server starts, watches, and fails when it dies. After a
restart of the machine, or of the code server's container, nobody does: the run stays in progress for ever
(dagster-io/dagster#4319), keeps its place in the queue, and a sensor that waits for it waits for ever. A sensor is
evaluated where these processes run, so it can look for them. Other launchers look after their runs themselves, and a
run that a person executes by Dagster's command line may be anywhere.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import dagster as dg
from dagster._core.storage.tags import GRPC_INFO_TAG

__all__ = ["fail_lost_runs"]

_EARLIER_SECONDS = 5.0
"""How much later than it said so a process may have begun, by a clock that was set meanwhile."""


def fail_lost_runs(instance: dg.DagsterInstance, runs: Iterable[dg.DagsterRun]) -> set[str]:
    """Report runs as failed whose process is gone, and return their ids."""
    lost = set[str]()
    for run in runs:
        started = run.status is dg.DagsterRunStatus.STARTED and GRPC_INFO_TAG in run.tags  # by a code server
        if started and (process := _process_of(instance, run.run_id)) is not None:
            pid, told_at = process
            if not _lives(pid, told_at):
                instance.report_run_failed(
                    run,
                    f"The process of this run ({pid}) is gone, and so is the code server that started it: the machine "
                    "or the container was restarted. What the run applied is in the lake; the rest is due again.",
                )
                lost.add(run.run_id)
    return lost


def _process_of(instance: dg.DagsterInstance, run_id: str) -> tuple[int, float] | None:
    """Return the id of a run's process and when it told it, None for a run that did not tell."""
    kind = dg.DagsterEventType.ENGINE_EVENT
    for record in instance.get_records_for_run(run_id, of_type=kind, limit=50, ascending=False).records:
        event = record.event_log_entry.dagster_event
        pid = event.engine_event_data.metadata.get("pid") if event is not None else None
        if pid is not None and str(pid.value).isdecimal():
            return int(str(pid.value)), record.event_log_entry.timestamp
    return None


def _lives(pid: int, told_at: float) -> bool:
    """Return whether a process has this id that began before it told it; another one may have got the id since."""
    if not os.path.exists("/proc/self/stat"):
        with suppress(PermissionError):
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return False
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    since_boot = int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot
    return began < told_at + _EARLIER_SECONDS
