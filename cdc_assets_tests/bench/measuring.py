"""What a process and all that it starts cost: wall and CPU seconds, and the peak of their memory together.

Memory is read from `/proc` (Linux): RSS counts what forked workers share once for each, PSS once for all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Cost", "Lap", "TreeCost", "command_of", "contend", "lap", "run", "tree_cpu_seconds"]

_TICK = os.sysconf("SC_CLK_TCK")
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Cost:
    """A finished process: seconds, peak memory in MB (0 where there is no `/proc`), and what it printed."""

    wall_seconds: float
    cpu_seconds: float
    peak_rss_mb: int
    peak_pss_mb: int
    output: str = field(repr=False, default="")


@dataclass(frozen=True, slots=True)
class Lap:
    """One timed piece of work inside a process."""

    wall_seconds: float
    cpu_seconds: float


def run(command: Sequence[str], **environment: str) -> Cost:
    """Run a command to its end and watch it. Raises RuntimeError with its last words unless all of it was done."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as error:  # a pipe may be full
        begun = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=error, env={**os.environ, **environment})
        spent, rss, pss = _watched(process)
        wall = time.perf_counter() - begun
        output.seek(0)
        error.seek(0)
        printed, complaint = output.read(), error.read()
    if process.returncode:
        words = f"{printed[-2000:]}\n{complaint[-2000:]}"
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {words}")
    return Cost(wall, spent, rss // 1024, pss // 1024, printed)


def _watched(process: subprocess.Popen[bytes]) -> tuple[float, int, int]:
    """Wait for a process; return the CPU seconds of its tree, and its peak RSS and PSS in kB."""
    spent: dict[int, float] = {}
    rss = pss = turns = 0
    while process.poll() is None:
        tree = _tree(process.pid)
        spent.update({pid: _own_cpu_seconds(pid) or spent.get(pid, 0.0) for pid in tree})
        rss = max(rss, sum(_status_kb(pid, "status", "VmRSS") for pid in tree))
        if turns % 5 == 0:  # the kernel walks all pages for it
            pss = max(pss, sum(_status_kb(pid, "smaps_rollup", "Pss") for pid in tree))
        turns += 1
        try:
            process.wait(_PAUSE_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    return sum(spent.values()), rss, pss


@dataclass
class TreeCost:
    """What processes that go on and all below them cost since `begin`: CPU seconds, and memory in MB at each look.

    More `roots` may come. Memory is that of processes without the text `passing` in their command line (if it is one):
    those come and go.
    """

    roots: list[int]
    passing: str = ""
    memory: list[tuple[float, float]] = field(default_factory=list)
    _spent: dict[int, float] = field(default_factory=dict)
    _before: dict[int, float] = field(default_factory=dict)
    _of: dict[int, int] = field(default_factory=dict)
    _looked_at: float = 0.0

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        self.tree()
        self._before = dict(self._spent)
        self.memory.clear()

    def look(self, every: float = 0.0) -> None:
        """Count, unless the last look was less than so many seconds ago; a process that came and went is missed."""
        if time.monotonic() < self._looked_at + every:
            return
        self._looked_at = time.monotonic()
        lasting = [pid for pid in self.tree() if not self.passing or self.passing not in command_of(pid)]
        self.memory.append((time.time(), sum(_status_kb(pid, "smaps_rollup", "Pss") for pid in lasting) / 1024))

    def tree(self) -> list[int]:
        """Return all processes, with those that have lost their parent."""
        for root in self.roots:
            self._of.update({pid: root for pid in _tree(root) if pid not in self._of})
        tree = [pid for pid in self._of if os.path.exists(f"/proc/{pid}")]
        self._spent.update({pid: _own_cpu_seconds(pid) or self._spent.get(pid, 0.0) for pid in tree})
        return tree

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds since it began, of all that was seen."""
        return sum(map(self.cpu_seconds_of, self.roots))

    def cpu_seconds_of(self, root: int) -> float:
        """CPU seconds since it began, of a root and all below it."""
        return sum(self._spent.get(pid, 0.0) - self._before.get(pid, 0.0) for pid, of in self._of.items() if of == root)


def contend(name: str, **arguments: Any) -> tuple[Cost, Any]:
    """Run a contender in a process of its own and return what it cost and what it said."""
    words = [sys.executable, "-m", "cdc_assets_tests.bench.contenders", name, json.dumps(arguments)]
    cost = run(words, PYTHONPATH=str(Path(__file__).parents[2]))
    return cost, json.loads(cost.output.splitlines()[-1])


class lap:  # noqa: N801  # reads as a statement: `with lap() as timing:`
    """Time a block: `with lap() as timing: …`, then `timing.measured`. CPU is that of this process and all below it."""

    measured: Lap

    def __enter__(self) -> lap:
        self._begun, self._spent = time.perf_counter(), tree_cpu_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        self.measured = Lap(time.perf_counter() - self._begun, tree_cpu_seconds() - self._spent)


def tree_cpu_seconds() -> float:
    """Return the CPU seconds of this process, of what it started and what those have waited for."""
    return sum(_cpu_seconds(pid, 4) for pid in _tree(os.getpid())) or time.process_time()


def _own_cpu_seconds(pid: int) -> float:
    return _cpu_seconds(pid, 2)


def _cpu_seconds(pid: int, count: int) -> float:
    """Sum utime, stime and, with a count of 4, those of reaped children."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    return sum(map(int, text.rpartition(")")[2].split()[11 : 11 + count])) / _TICK


def _tree(root: int) -> list[int]:
    """Return a process and all below it. Every process names its own parent."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if entry.isdecimal():
            with suppress(OSError, IndexError):
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry))
    tree = [root]
    for pid in tree:
        tree += children.get(pid, ())
    return tree


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _status_kb(pid: int, file: str, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)
