"""How long the tests of the last run took, and how much CPU: of the process and of all that it started.

A run writes `build/test-durations.json` (file -> test -> seconds of wall clock and of CPU) and ends with the files that
cost most. The record read again, by test with `--items`: `python -m cdc_assets_tests.durations [--items] [COUNT]`.
CPU time is what compares on a busy machine. What a server or a JVM does between two tests counts for the second; the
CPU of tests below 50 ms counts for the next one of their file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

RECORD = Path(__file__).parent.parent / "build" / "test-durations.json"

Durations = dict[str, dict[str, tuple[float, float]]]
"""File -> test -> seconds of wall clock, seconds of CPU."""

_SHORT_SECONDS = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")
_FOREIGN = set[str]()
"""Processes that are not below this one: to look at all of a busy machine after each test took a thirtieth of a run."""


class Recorder:
    """A plug-in of pytest: each process measures its own tests, the one that was started collects and reports them."""

    def __init__(self) -> None:
        self.durations: Durations = {}
        self._cpu = cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            return (yield)
        finally:
            wall, cpu = time.perf_counter() - begin, 0.0
            if wall >= _SHORT_SECONDS or nextitem is None or nextitem.path != item.path:
                now = cpu_seconds()
                self._cpu, cpu = now, max(now - self._cpu, 0.0)
            file = item.nodeid.partition("::")[0]
            self.durations.setdefault(file, {})[item.name] = (round(wall, 3), round(cpu, 2))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for file, tests in getattr(node, "workeroutput", {}).get("durations", {}).items():
            self.durations.setdefault(file, {}).update(tests)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["durations"] = self.durations
        elif self.durations:
            RECORD.parent.mkdir(exist_ok=True)
            RECORD.write_text(json.dumps(self.durations, indent=0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if sum(wall for tests in self.durations.values() for wall, _ in tests.values()) > 60:
            terminalreporter.section("what cost most (python -m cdc_assets_tests.durations shows more)")
            for line in table(self.durations, 10):
                terminalreporter.write_line(line)


def cpu_seconds() -> float:
    """CPU time of this process and all below it; where there is no /proc, without those that still run."""
    if not Path("/proc/self/stat").exists():
        return sum(os.times()[:4])
    ticks, parents = {}, {}
    running = {name for name in os.listdir("/proc") if name.isdigit()}
    _FOREIGN.intersection_update(running)
    for name in running - _FOREIGN:
        try:
            fields = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:  # it has ended since
            continue
        parents[int(name)], ticks[int(name)] = int(fields[1]), sum(map(int, fields[11:15]))
    below = {pid for pid in ticks if _is_below(pid, os.getpid(), parents)}
    _FOREIGN.update(str(pid) for pid in ticks.keys() - below)
    return sum(ticks[pid] for pid in below) / _TICKS


def _is_below(pid: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    while pid != ancestor and pid in parents:
        pid = parents[pid]
    return pid == ancestor


def table(durations: Mapping[str, Mapping[str, tuple[float, float]]], count: int, items: bool = False) -> list[str]:
    """The files, or tests, that took most CPU time, below the sum of all."""
    rows = [
        (cpu, wall, 1, f"{file}::{test}") for file, tests in durations.items() for test, (wall, cpu) in tests.items()
    ]
    total = (sum(row[0] for row in rows), sum(row[1] for row in rows), len(rows), "all")
    if not items:
        rows = [
            (sum(cpu for _, cpu in tests.values()), sum(wall for wall, _ in tests.values()), len(tests), file)
            for file, tests in durations.items()
        ]
    worst = sorted(rows, reverse=True)[:count]
    return [
        "CPU s   wall s  tests",
        *(f"{cpu:7.1f} {wall:7.1f} {tests:5}  {name}" for cpu, wall, tests, name in (total, *worst)),
    ]


if __name__ == "__main__":
    count = next((int(word) for word in sys.argv[1:] if word.isdigit()), 30)
    print("\n".join(table(json.loads(RECORD.read_text()), count, "--items" in sys.argv)))
