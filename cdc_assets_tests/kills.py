"""Runs that are stopped where it hurts, and what they leave behind.

A seam is a function that a run crosses twice, before and after its effect. A trap stops the run at a chosen crossing:
by SIGKILL to the process and its JVM (`victim`), or in a process that lives on, by an exception that no clean-up
survives. What a chain of stopped runs leaves is compared with the recorded source. The report of `make soak`:

    python -m cdc_assets_tests.kills --kills 100 --seed 1
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from cdc_assets.lake import Lake, LakeState
from cdc_assets.ledger import Ledger
from cdc_assets.model.steps import ChangeTable, Step
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.cases import Case, Checkpoint, Config
from cdc_assets_tests.joined_feed import dump_of, feed_from, joined_settings
from cdc_assets_tests.replay import compare, replay

__all__ = [
    "SEAMS",
    "Killed",
    "Trap",
    "beside",
    "checkpoints",
    "die",
    "interrupted",
    "killed",
    "leftovers",
    "named",
    "trapped",
    "unreferenced",
    "victim",
    "wrong",
]

SEAMS = (
    "cdc_assets.pipeline.planner:Planner.plan",
    "cdc_assets.pipeline.pipeline:Pipeline.run_step",
    "cdc_assets.lake.tables:Lake.run",
    "cdc_assets.lake.tables:Lake.stage_all",
    "cdc_assets.lake.tables:Lake.quarantine",
    "cdc_assets.lake.tables:Lake.commit",
    "cdc_assets.lake.steps:publish",
    "cdc_assets.lake.windows:row_delta_of",
    "cdc_assets.lake.windows:publish",
    "cdc_assets.lake.commit:_staged",
    "cdc_assets.lake.commit:_mark",
    "cdc_assets.lake.schema:create",
    "cdc_assets.lake.schema:publish",
    "cdc_assets.lake.schema:_rewrite",
    "cdc_assets.lake.schema:_converted",
    "cdc_assets.lake.schema:_refuse_lost",
    "cdc_assets.lake.schema:_settle_columns",
    "cdc_assets.lake.staging.stage:_write_manifest",
    "cdc_assets.lake.staging.stage:discard",
    "cdc_assets.lake.swap:Rebuilds.touch",
    "cdc_assets.lake.swap:Rebuilds.swap",
    "cdc_assets.lake.swap:Rebuilds.end",
    "cdc_assets.lake.swap:Rebuilds._remove_directory",
    "cdc_assets.lake.swap:publish",
    "cdc_assets.lake.swap:_replace",
    "cdc_assets.lake.namespaces:ensure_namespace",
    "cdc_assets.lake.table_renames:apply_renames",
    "pyiceberg.catalog.sql:SqlCatalog.rename_table",
    "pyiceberg.catalog.sql:SqlCatalog.drop_table",
    "cdc_assets.ledger:Ledger.record_files",
    "cdc_assets.ledger:Ledger.record_ddl",
    "cdc_assets.ledger:Ledger.record_schema_files",
    "cdc_assets.ledger:Ledger.record_columns",
    "cdc_assets.ledger:Ledger.record_states",
)
"""Every function between whose crossings a run has changed something, or is about to."""


class Killed(BaseException):
    """Stands in for SIGKILL in a process that goes on: nothing of the run may happen after it."""


@dataclass
class Trap:
    """Stops a run when `due`, asked at each crossing with its number (from 1) and name, says so."""

    due: Callable[[int, str], bool]
    stop: Callable[[], NoReturn] | None = None
    crossed: list[str] = field(default_factory=list)
    killed: str = ""
    step: str = "no step"

    def cross(self, seam: str) -> None:
        """Come by a seam; once the run was stopped, whatever it still wants to do fails."""
        if self.killed:
            raise Killed(self.killed)
        self.crossed.append(f"{seam} of {self.step}")
        if self.due(len(self.crossed), self.crossed[-1]):
            self.killed = self.crossed[-1]
            if self.stop is not None:
                self.stop()
            raise Killed(self.killed)


@contextmanager
def trapped(trap: Trap, seams: Sequence[str] = SEAMS) -> Iterator[Trap]:
    """Lay the trap at every seam."""
    undo: list[tuple[Any, str, Any]] = []
    for seam in seams:
        module, _, path = seam.partition(":")
        *owners, name = path.split(".")
        owner = functools.reduce(getattr, owners, importlib.import_module(module))
        original = getattr(owner, name)
        undo.append((owner, name, original))
        setattr(owner, name, _seam(trap, path, original))
    try:
        yield trap
    finally:
        for owner, name, original in undo:
            setattr(owner, name, original)


def _seam(trap: Trap, path: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def crossing(*args: Any, **named: Any) -> Any:
        if path == "Pipeline.run_step":
            trap.step = _kind(args[1])
        trap.cross(f"before {path}")
        result = original(*args, **named)
        trap.cross(f"after {path}")
        return result

    return crossing


def _kind(step: Step) -> str:
    if isinstance(step, ChangeTable):
        return "+".join(sorted({type(change).__name__ for change in step.changes})) or "ChangeTable"
    return type(step).__name__


# --- one run, and what it leaves --------------------------------------------------------------------------------------


def checkpoints(config: Config, count: int = 0) -> list[Checkpoint]:
    """Return the checkpoints whose source is known, the last `count` of them."""
    return [checkpoint for checkpoint in config.replayable if checkpoint.expected is not None][-count:]


def interrupted(
    config: Config, checkpoint: Checkpoint, directory: Path, spark: Any, trap: Trap, begin: Checkpoint | None = None
) -> bool:
    """Apply a bucket with the trap laid, in this process; return whether the run was stopped.

    With `begin` the bucket is the one beside the directory, with the dump of then before it (`beside`).
    """
    lake = Lake(LakeSettings.from_warehouse(directory), "default", spark)
    ledger = Ledger(f"sqlite:///{directory}/ledger.db")
    try:
        with trapped(trap):
            _apply(config, checkpoint, directory, lake, ledger, begin)
    except Killed:
        return True
    finally:
        # A process that is killed loses its connections too.
        lake.close()
        ledger.close()
    return False


def beside(config: Config, checkpoint: Checkpoint, directory: Path, begin: Checkpoint, kind: str = "csv") -> None:
    """Write the feed that began at a checkpoint, and a dump of then, beside the directory of a lake."""
    dump_of(begin, directory.with_name("dump"), kind)
    feed_from(config, checkpoint, begin, directory.with_name("feed"), "begun")


def _apply(
    config: Config, checkpoint: Checkpoint, directory: Path, lake: Lake, ledger: Ledger, begin: Checkpoint | None
) -> Outcome:
    if begin is None:
        return replay(config, checkpoint, lake, ledger)
    feed, dump = directory.with_name("feed"), directory.with_name("dump")
    settings = joined_settings(config, feed, dump, start_ts=begin.ts)
    return Pipeline(settings, settings.open_source(), lake, ledger).apply("test")


def wrong(
    config: Config, checkpoint: Checkpoint, directory: Path, spark: Any = None, begin: Checkpoint | None = None
) -> list[str]:
    """Return what differs from the source, is left over, or is still planned after a chain of runs has ended."""
    assert checkpoint.expected is not None
    lake = Lake(LakeSettings.from_warehouse(directory), "default", spark)
    ledger = Ledger(f"sqlite:///{directory}/ledger.db")
    try:
        outcome = _apply(config, checkpoint, directory, lake, ledger, begin)
        mismatches = compare(config, checkpoint.expected, lake, outcome)
        mismatches += [f"{t.life}: {t.steps} steps were left to do" for t in outcome.tables if t.steps]
        return mismatches + leftovers(lake.state)
    finally:
        lake.close()
        ledger.close()


def leftovers(state: LakeState) -> list[str]:
    """Return tables that are not where they belong, and stages that no clean-up will ever find."""
    tables = state.tables()
    problems = []
    for life, held in tables.items():
        place = state.places.aside(life) if held.name is None else state.places.home(held.name)
        if held.identifier != place:
            problems.append(f"{life} stands at {'.'.join(held.identifier)}, not at {'.'.join(place)}")
    known = {held.identifier for held in tables.values()}
    problems += [
        f"{'.'.join(identifier)} belongs to nothing"
        for identifier, _ in state.entries()
        if identifier not in known and identifier[0] not in (state.places.own.main, state.places.own.landing)
    ]
    directory = state.settings.local_directory
    assert directory is not None
    stages = (path.name for path in (directory / "_cdc_stage").glob("*"))
    return problems + [f"the stage {name} has no age" for name in stages if not re.fullmatch(r"\d+-[0-9a-f]{32}", name)]


def unreferenced(state: LakeState) -> list[str]:
    """Return files of rows below a local warehouse that no snapshot of a table has, and everything staged."""
    directory = state.settings.local_directory
    assert directory is not None
    known = set[str]()
    for held in state.tables().values():
        table = state.catalog.load_table(held.identifier)
        for snapshot in table.snapshots():
            files = (
                file for manifest in snapshot.manifests(table.io) for file in manifest.fetch_manifest_entry(table.io)
            )
            known |= {urlsplit(entry.data_file.file_path).path for entry in files}
    rows = (str(path) for path in directory.rglob("*.parquet"))
    return sorted(path for path in rows if path not in known)


def named(text: str) -> Config:
    """Return a configuration by `case/config`."""
    case, _, config = text.partition("/")
    return Case(case).config(config)


# --- SIGKILL ----------------------------------------------------------------------------------------------------------


def die() -> NoReturn:
    """End the process group as SIGKILL does."""
    os.killpg(0, signal.SIGKILL)
    while True:  # the signal comes before the next line runs, or soon
        time.sleep(1)


def _victim(
    config: Config, checkpoint: Checkpoint, directory: Path, at: int, seam: str, begin: Checkpoint | None
) -> None:
    """Apply a bucket and kill the process group at the crossing `at`, or at the first one whose name has `seam`."""
    trap = Trap(lambda number, name: number == at or bool(seam and seam in name), die)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    interrupted(config, checkpoint, directory, None, trap, begin)


def victim(
    config: Config,
    checkpoint: Checkpoint,
    directory: Path,
    *,
    at: int = 0,
    seam: str = "",
    after_seconds: float = 0,
    begin: Checkpoint | None = None,
) -> bool:
    """Run `_victim` as a process group of its own; return whether it was killed. Raises RuntimeError when it failed."""
    command = ["-m", "cdc_assets_tests.kills", "--victim", str(config), "--directory", str(directory)]
    command += ["--checkpoint", str(checkpoint.ts), "--at", str(at), "--seam", seam]
    command += [] if begin is None else ["--begin", str(begin.ts)]
    return killed(command, after_seconds)


def killed(arguments: Sequence[str], after_seconds: float = 0) -> bool:
    """Run Python as a process group of its own, which says when it is ready, and kill it some seconds after that.

    Returns whether it was killed, by itself too. Raises RuntimeError when it failed.
    """
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [sys.executable, *arguments],
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=Path(__file__).parent.parent,
        )
        with child:
            assert child.stdout is not None
            child.stdout.readline()
            try:
                code = child.wait(after_seconds or 600)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                code = child.wait()
        if code not in (0, -signal.SIGKILL):
            errors.seek(0)
            raise RuntimeError(f"the run ended with {code}: {errors.read().decode()[-2000:]}")
    return code != 0


# --- the report -------------------------------------------------------------------------------------------------------

FEEDS = ("C_ddl_tables/csv-ts", "E_partitions/canal-ext", "B_ddl_columns/csv-old", "C_ddl_tables/canal-ext")


def soak(kills: int, seed: int, feeds: Sequence[str], say: Callable[[str], object]) -> list[str]:
    """Kill runs at random crossings and random moments until that many died; return what was wrong afterwards."""
    rng, done, chains, problems = random.Random(seed), 0, 0, list[str]()
    while done < kills:
        config = named(feeds[chains % len(feeds)])
        chains += 1
        with tempfile.TemporaryDirectory() as place:
            directory = Path(place) / "lake"
            directory.mkdir()
            for checkpoint in checkpoints(config, 2):
                alive, runs = False, 0
                while not alive and done < kills and runs < 25:
                    runs += 1
                    chosen = {"at": rng.randint(1, 80)} if rng.random() < 0.6 else {"after_seconds": rng.uniform(3, 25)}
                    killed = victim(config, checkpoint, directory, **chosen)
                    done += killed
                    alive = not killed
                    say(f"{config} at {checkpoint.ts}: {'killed' if killed else 'ended'} {chosen}; {done} kills")
                if not alive:
                    victim(config, checkpoint, directory)
                bad = wrong(config, checkpoint, directory)
                problems += [f"{config} at {checkpoint.ts}, seed {seed}: {problem}" for problem in bad]
                say(f"{config} at {checkpoint.ts}: {len(bad)} wrong")
    say(f"kills: {done}, chains: {chains}, wrong results: {len(problems)}")
    return problems


def main() -> int:
    """Print the report, or be a victim."""
    parser = argparse.ArgumentParser(prog="python -m cdc_assets_tests.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--feed", action="append", help="case/config, repeatedly")
    parser.add_argument("--victim", help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--checkpoint", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--begin", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--at", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--seam", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.victim:
        config = named(given.victim)
        known = {checkpoint.ts: checkpoint for checkpoint in config.checkpoints}
        begin = known.get(given.begin)
        _victim(config, known[given.checkpoint], given.directory, given.at, given.seam, begin)
        return 0
    problems = soak(given.kills, given.seed, given.feed or FEEDS, lambda text: print(text, flush=True))
    sys.stdout.writelines(f"{line}\n" for line in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
