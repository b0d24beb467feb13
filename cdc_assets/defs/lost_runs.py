"""Runs whose process is gone, with the code server that would have noticed.

With Dagster's default launcher a run is a process that the code server starts, watches, and fails when it dies. After a
restart of the machine, or of the code server's container, nobody does: the run stays in progress for ever
(dagster-io/dagster#4319), keeps its place in the queue, and a sensor that waits for it waits for ever. A sensor is
evaluated where these processes run, so it can look for them. Other launchers look after their runs themselves, and a
run that a person executes by Dagster's command line may be anywhere.

A process is known again by when it began, counted from the start of the machine, in a tag that its run gets when it is
first seen. Before that it is the one whose id the run told if it began before that by the clock, which may be set.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import dagster as dg
from dagster._core.storage.tags import GRPC_INFO_TAG

_EARLIER_SECONDS = 5.0
"""Seconds by which a process may have begun after its stated start, as a clock may have been set meanwhile."""


PROCESS_TAG = "cdc/process"
"""A run, and its process: the id, when it began in ticks of the system, and the machine's start."""


def fail_lost_runs(instance: dg.DagsterInstance, runs: Iterable[dg.DagsterRun]) -> set[str]:
    """Report runs as failed whose process is gone, and return their ids."""
    lost = set[str]()
    for run in runs:
        started = run.status is dg.DagsterRunStatus.STARTED and GRPC_INFO_TAG in run.tags  # by a code server
        if started and (process := _process_of(instance, run.run_id)) is not None:
            pid, told_at = process
            recorded_mark, now = run.tags.get(PROCESS_TAG, ""), _mark(pid)
            run_prefix = f"{run.run_id}/"  # a retry has the tags of the run before it
            if recorded_mark.startswith(f"{run_prefix}{pid}/"):
                lives = recorded_mark == run_prefix + now
            elif (lives := _lives(pid, told_at)) and now:
                instance.add_run_tags(run.run_id, {PROCESS_TAG: run_prefix + now})
            if not lives:
                instance.report_run_failed(
                    run,
                    f"The process of this run ({pid}) is gone, and so is the code server that started it: the machine "
                    "or the container was restarted. The applied windows are in the lake; the rest is due again.",
                )
                lost.add(run.run_id)
    return lost


def _mark(pid: int) -> str:
    """Return an identity of the process that has this id now, "" where there is none or the system does not tell."""
    ticks, machine = _began_ticks(pid), Path("/proc/sys/kernel/random/boot_id")
    return "" if ticks is None or not machine.exists() else f"{pid}/{ticks}/{machine.read_text().strip()}"


def _began_ticks(pid: int) -> int | None:
    """Return the start of a process in ticks since the machine's boot, None where there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


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
    ticks = _began_ticks(pid)
    if ticks is None:
        return False
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot
    return began < told_at + _EARLIER_SECONDS
