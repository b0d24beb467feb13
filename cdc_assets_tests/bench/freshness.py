"""How old what a reader sees is, all day: a changefeed that grows beside Dagster's real daemon with default settings.

    write       a process that appends changes at a rate and publishes a checkpoint every few seconds: files, and for a
                feed of topics the same changes as messages
    Site        the settings, a code server and a daemon on them, and what they cost
    Commits     when each table was seen to be applied through which checkpoint, by its label, from outside
    moments     tables as they are while all goes on, beside what DuckDB reads of the files through the same checkpoint

`python -m cdc_assets_tests.bench.freshness '{"directory": …}'` is the writer.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import dagster as dg
from pyiceberg.table import StaticTable

from cdc_assets.defs.instance import stop_group
from cdc_assets.defs.names import asset_key
from cdc_assets.lake.state import LakeState
from cdc_assets.model.tso import Tso
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.bench.feeds import Feed
from cdc_assets_tests.bench.measuring import TreeCost, command_of
from cdc_assets_tests.bench.peer import Paimon, paimon_jars
from cdc_assets_tests.bench.privacy_scenarios import SCENARIOS
from cdc_assets_tests.bench.rows import fingerprint_of_files, fingerprint_of_rows
from cdc_assets_tests.bench.scenarios import Figure, Place, _scenario
from cdc_assets_tests.bench.topics import PARTITIONS, Player, sink_uri
from cdc_assets_tests.kafka_broker import Broker, running_broker
from cdc_assets_tests.postgres import free_port

__all__ = ["ON_A_DAEMON", "SCENARIOS", "Load", "measure_freshness"]

ON_A_DAEMON = ("fresh", "fresh-idle", "fresh-topics", "live")
"""Scenarios that start Dagster's daemon."""

NAME, CANAL, CONFIG = "fresh", "canal", "changefeed.toml"
_LOOK_SECONDS = 0.25
_COST_SECONDS = 5.0
_PATIENCE_SECONDS = 300.0
_CODE_SERVER = " api grpc "
"""In the command line of Dagster's code servers, which a daemon without one of its own starts anew every minute."""
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Load:
    """What is written: `rate` changes a second over all tables, a checkpoint every `every` seconds."""

    tables: int
    rate: int
    every: float
    keys: int = 5_000

    @property
    def changes(self) -> int:
        """The changes of a table between two checkpoints."""
        return max(1, round(self.rate * self.every / self.tables))

    def __str__(self) -> str:
        return f"{self.tables} tables, {self.rate:,} changes/s"


# --- the writer -------------------------------------------------------------------------------------------------------


def write(
    directory: str,
    tables: int,
    changes: int,
    keys: int,
    every: float,
    seconds: float,
    address: str = "",
    extension: bool = True,
) -> None:
    """Append to a feed until the time is over; each checkpoint is logged as [seconds since 1970, checkpoint].

    With the address of a broker the same changes go into its topic first, with TiDB's extension or without: what DuckDB
    reads are the files.
    """
    feed = Feed(Path(directory), tables=tables).create()
    canal = Feed(Path(directory) / CANAL, "canal-json", tables).create() if address else None
    topic = Player(canal, address, NAME, extension) if canal is not None else None
    log = Path(directory) / "published.jsonl"
    begun = time.time()
    with log.open("a", buffering=1) as lines:

        def append(count: int, fill: int = 0) -> None:
            checkpoint = feed.append(count, keys, fill=fill)
            if topic is not None:
                assert checkpoint == topic.append(count, keys, fill=fill)
            print(json.dumps([time.time(), checkpoint]), file=lines)

        append(keys, keys)
        number = 1
        while number * every < seconds:
            time.sleep(max(0.0, begun + number * every - time.time()))
            number += 1
            append(changes)


def published(directory: Path) -> list[tuple[float, Tso]]:
    """Return when each checkpoint was written, in seconds since 1970."""
    log = directory / "published.jsonl"
    return [tuple(json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []


# --- the project ------------------------------------------------------------------------------------------------------


class Site:
    """Dagster on a feed with nothing set but that the sensor runs: a code server and a daemon, as in production.

    `uri` is the sink's, `config` the changefeed's TOML, `more` are lines of further settings. They end with the block,
    and all that they started.
    """

    def __init__(self, uri: str, config: Path, directory: Path, more: str = "") -> None:
        self.home, self.lake = directory / "home", LakeSettings.from_warehouse(directory / "lake")
        self.home.mkdir(parents=True)
        shutil.copy(ROOT / "dagster.yaml", self.home)
        settings, workspace, port = directory / "changefeeds.yaml", directory / "workspace.yaml", str(free_port())
        settings.write_text(
            f"lake: {{warehouse: lake}}\nchangefeeds:\n  - name: {NAME}\n    sink_uri: {uri}\n"
            f"    changefeed_config: {config}\n    sensor_running: true\n{more}"
        )
        workspace.write_text(f"load_from: [{{grpc_server: {{host: 127.0.0.1, port: {port}}}}}]\n")
        self._directory = directory
        self._environment = {
            **os.environ,
            "CDC_ASSETS_CONFIG": str(settings),
            "DAGSTER_HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
        }
        server = ["-m", "dagster", "code-server", "start", "-m", "cdc_assets.definitions", "-h", "127.0.0.1"]
        self._commands = {
            "server": [*server, "-p", port, "--log-level", "warning"],
            "daemon": ["-m", "dagster._daemon", "run", "-w", str(workspace), "--log-level", "warning"],
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.cost = TreeCost([], _CODE_SERVER)

    def __enter__(self) -> Site:
        self._start("server")
        self._start("daemon")
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._running.values()):
            stop_group(process)

    def _start(self, name: str) -> None:
        with (self._directory / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, *self._commands[name]], env=self._environment, stdout=log, stderr=log,
                start_new_session=True, cwd=self._directory,
            )  # fmt: skip
        self.cost.roots.append(self._running[name].pid)

    def disturb(self, name: str) -> bool:
        """Kill the server, the daemon, what carries out a `run`, or `everything`, and return whether there was one.

        Or keep others from the `catalog` for half a minute, or launch `rebuild schema.table`.
        """
        name, _, table = name.partition(" ")
        if name == "catalog":
            with closing(sqlite3.connect(str(self.lake.local_directory) + "/catalog.db", timeout=60)) as connection:
                connection.execute("BEGIN EXCLUSIVE")
                time.sleep(30)
            return True
        if name == "rebuild":
            config = {"ops": {f"{NAME}_rebuild_tables": {"config": {"tables": [table]}}}}
            job = [
                "-w",
                str(self._directory / "workspace.yaml"),
                "-j",
                f"{NAME}_rebuild",
                "--config-json",
                json.dumps(config),
            ]
            launch = [sys.executable, "-m", "dagster", "job", "launch", *job]
            subprocess.run(launch, env=self._environment, cwd=self._directory, check=True)
            return True
        if name == "everything":
            for process in self._running.values():
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            for process_name in self._commands:
                self._start(process_name)
            return True
        if name == "run":
            runs = [pid for pid in self.cost.tree() if "spawn_main" in command_of(pid)]
            for pid in runs[:1]:
                os.kill(pid, signal.SIGKILL)
            return bool(runs)
        self._running[name].kill()
        self._running[name].wait()
        self._start(name)
        return True


@dataclass
class Commits:
    """Labels of a lake's tables as they were seen: by table [(seconds since 1970, applied through)]."""

    lake: LakeSettings
    seen: dict[str, list[tuple[float, Tso]]] = field(default_factory=dict)
    _state: LakeState | None = None

    def look(self) -> None:
        """Read every label that is new."""
        if self.lake.local_directory is None or not (self.lake.local_directory / "catalog.db").exists():
            return
        if self._state is None:
            self._state = LakeState(self.lake, NAME)
        for life, table in self._state.tables().items():
            if table.empty:
                continue
            table_commits = self.seen.setdefault(str(life), [])
            if not table_commits or table_commits[-1][1] < table.label.progress.tso:
                table_commits.append((time.time(), table.label.progress.tso))

    def through(self) -> Tso:
        """Return through which checkpoint all tables are applied, 0 while there is none."""
        return min((table_commits[-1][1] for table_commits in self.seen.values()), default=0)

    def waits(self, checkpoints: Sequence[tuple[float, Tso]]) -> list[float]:
        """Return for each checkpoint and table the seconds until the table was applied through it."""
        wait_seconds = []
        for commits in self.seen.values():
            place = 0
            for at, checkpoint in checkpoints:
                while place < len(commits) and commits[place][1] < checkpoint:
                    place += 1
                wait_seconds.append(commits[place][0] - at if place < len(commits) else float("inf"))
        return wait_seconds

    def most(self) -> dict[str, int]:
        """Return of how many files and snapshots the table consists that has most of them, by kind."""
        assert self._state is not None
        most: Counter[str] = Counter()
        for table in self._state.tables().values():
            summary, file = self._state.summary(table), self._state.file(table.metadata_location)
            read = StaticTable.from_metadata(table.metadata_location)
            newest = read.current_snapshot()
            assert newest is not None
            most |= Counter(
                data_files=int(summary.get("total-data-files", 0)),
                delete_files=int(summary.get("total-delete-files", 0)),
                manifests=len(newest.manifests(read.io)),
                snapshots=len(file.snapshots),
            )
        return dict(most)

    def moment(self, feed: Feed, number: int) -> None:
        """Compare a table as it is now with what the files say through its label."""
        name = feed.name(number)
        assert self._state is not None
        table = self._state.named(name)
        label = table.label.progress.tso
        fingerprint = fingerprint_of_rows(feed, StaticTable.from_metadata(table.metadata_location).scan().to_arrow())
        wanted = fingerprint_of_files(feed, number, through=label)
        assert fingerprint == wanted, f"{name} through {label}: {fingerprint} rows and hash, expected {wanted}"


@dataclass
class Measured:
    """What a stretch of time came to."""

    waits: list[float]
    first: float
    seconds: float
    runs: int
    commits: int
    most: dict[str, int]
    """Files and snapshots of the table that has most of them in the end, by kind."""
    moments: int
    materializations: int
    event_rows: int
    ended: Mapping[tuple[str, str], int]
    """How many runs of each job ended how."""
    ours: TreeCost
    writer: TreeCost

    def percentile(self, share: float) -> float:
        """Return the seconds within which this share of checkpoints and tables was committed."""
        ordered = sorted(self.waits)
        return ordered[min(len(ordered) - 1, round(share * len(ordered)))] if ordered else float("nan")

    @property
    def notes(self) -> Mapping[str, Any]:
        """What is written down beside the figures."""
        memory = [mb for _, mb in self.ours.memory]
        return {
            "seconds": round(self.seconds),
            "runs": self.runs,
            "commits": self.commits,
            **self.most,
            "moments": self.moments,
            "materializations": self.materializations,
            "event_rows": self.event_rows,
            "cpu_cores": round(self.ours.cpu_seconds / self.seconds, 2),
            "writer_cpu_cores": round(self.writer.cpu_seconds / self.seconds, 2),
            "memory_mb": [round(mb) for mb in memory[:: max(1, len(memory) // 20)]],
            "load": [round(load, 1) for load in os.getloadavg()],
        }


@contextmanager
def _written(
    place: Path, load: Load, broker: Broker | None, extension: bool = True
) -> Iterator[tuple[Feed, subprocess.Popen[bytes]]]:
    """Start a writer whose first checkpoint is there when the block begins, and end it with the block."""
    feed = Feed(place / "feed", tables=load.tables)
    feed.directory.mkdir(parents=True)
    given: dict[str, Any] = {"directory": str(feed.directory), "tables": load.tables, "changes": load.changes}
    given |= {"keys": load.keys, "extension": extension}
    if broker is not None:
        broker.create(NAME, PARTITIONS)
        given["address"] = broker.address
    words = json.dumps({**given, "every": load.every, "seconds": 3600.0 * 24})
    writer = subprocess.Popen([sys.executable, "-m", __name__, words], env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        while not published(feed.directory):
            time.sleep(0.2)
            assert writer.poll() is None
        yield feed, writer
    finally:
        writer.kill()
        writer.wait()


def measure_freshness(
    place: Path,
    load: Load,
    seconds: float,
    moments: int = 5,
    broker: Broker | None = None,
    disturbances: Sequence[str] = (),
    more: str = "",
) -> Measured:
    """Write for so long beside Dagster; all tables are compared with the files at the end, and some before.

    With a broker the feed is a topic there. Time counts from the first moment at which all tables have rows; each of
    the `disturbances` comes in its turn, at even distances; `more` are lines of the feed's settings. Raises
    AssertionError for a table that differs or does not catch up.
    """
    rng, begun = random.Random(7), time.time()
    with _written(place, load, broker) as (feed, writer):
        uri, config = feed.uri, feed.directory / CONFIG
        if broker is not None:
            uri, config = sink_uri(broker.address, NAME), feed.directory / CANAL / CONFIG
        with Site(uri, config, place / "site", more) as site:
            commits = Commits(site.lake)
            _until(commits, published(feed.directory)[0][1], load.tables, place)
            first = time.time()
            theirs, ours = TreeCost([writer.pid]), site.cost
            ours.begin()
            compared = disturbed = 0
            while (now := time.time()) < first + seconds:
                commits.look()
                ours.look(_COST_SECONDS)
                theirs.look(_COST_SECONDS)
                if compared < moments and now > first + (compared + 0.5) * seconds / moments:
                    commits.moment(feed, rng.randrange(load.tables))
                    compared += 1
                if disturbed < len(disturbances) and now > first + (disturbed + 0.5) * seconds / len(disturbances):
                    disturbed += site.disturb(disturbances[disturbed])
                time.sleep(_LOOK_SECONDS)
            ours.look()
            theirs.look()
            writer.send_signal(signal.SIGTERM)
            writer.wait()
            _until(commits, published(feed.directory)[-1][1], load.tables, place)
            runs, made = _runs(site.home, first), sum(len(table_commits) for table_commits in commits.seen.values())
            logged, rows, ended = _materializations(site.home), _event_rows(site.home), _ended(site.home)
        assert (compared, disturbed) == (moments, len(disturbances))
        for number in range(load.tables):
            commits.moment(feed, number)
        counted = [checkpoint for checkpoint in published(feed.directory) if first <= checkpoint[0] < first + seconds]
        return Measured(
            commits.waits(counted), first - begun, seconds, runs, made, commits.most(), compared, logged, rows,
            ended, ours, theirs,
        )  # fmt: skip


def _until(commits: Commits, checkpoint: Tso, tables: int, place: Path) -> None:
    """Wait until all tables are applied through a checkpoint; raises AssertionError once nothing moves any more."""
    moved, end = -1, 0.0
    while len(commits.seen) < tables or commits.through() < checkpoint:
        commits.look()
        if moved < (seen := sum(map(len, commits.seen.values()))):
            moved, end = seen, time.time() + _PATIENCE_SECONDS
        time.sleep(_LOOK_SECONDS)
        behind = f"{len(commits.seen)} of {tables} tables have rows, applied through {commits.through()}"
        assert time.time() < end, f"{behind}, expected {checkpoint}; see {place}\n{_last_lines(place)}"


def _last_lines(place: Path) -> str:
    """Return what the processes of a site logged last: its directory may be a temporary one."""
    logs = sorted(place.glob("site/*.log"))
    return "\n".join(line for log in logs for line in (log.name, *log.read_text(errors="replace").splitlines()[-20:]))


def _runs(home: Path, since: float) -> int:
    """Return how many runs were started."""
    after = datetime.fromtimestamp(since, timezone.utc)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        return instance.get_runs_count(dg.RunsFilter(created_after=after))


def _ended(home: Path) -> Mapping[tuple[str, str], int]:
    """Return how many runs of each job ended how."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        return Counter((run.job_name, run.status.value) for run in instance.get_runs() if run.is_finished)


def _materializations(home: Path) -> int:
    """Return how many materializations of tables were logged."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        count, cursor, more = 0, None, True
        while more:
            page = instance.fetch_materializations(asset_key(NAME, "dml"), limit=10_000, cursor=cursor)
            count, cursor, more = count + len(page.records), page.cursor, page.has_more
        return count


def _event_rows(home: Path) -> int:
    """Return how many rows Dagster's event log has of all runs."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        return sum(len(instance.all_logs(run.run_id)) for run in instance.get_runs())


# --- the targets ------------------------------------------------------------------------------------------------------


@_scenario
def fresh(place: Place) -> Iterator[Figure]:
    """From a checkpoint in the bucket to its rows in each table, under the daemon."""
    for load, half, most, cores in _LOADS:
        measured = measure_freshness(place.at(f"{load.tables}-tables"), load, place.minutes * 60)
        yield from _figures("fresh", load, measured, half, most, cores)


@_scenario
def fresh_topics(place: Place) -> Iterator[Figure]:
    """From a mark in all partitions of a topic to the rows before it in each table, under the daemon."""
    for load, half, most, cores in _LOADS:
        with running_broker() as broker:
            where = place.at(f"{load.tables}-tables")
            measured = measure_freshness(where, load, place.minutes * 60, broker=broker)
        yield from _figures("fresh-topics", load, measured, half, most, cores)


_LOADS = ((Load(20, 2_000, 2.0), 5, 15, None), (Load(1, 50, 2.0), None, 8, 0.5))
"""Loads, with the most seconds for half and for 99 of 100 checkpoints, and the most cores."""


def _figures(
    name: str, load: Load, measured: Measured, half: float | None, most: float, cores: float | None
) -> Iterator[Figure]:
    yield Figure(name, f"{load}: first rows in all tables", measured.first)
    yield Figure(name, f"{load}: p50", measured.percentile(0.5), limit=half, notes=measured.notes)
    yield Figure(name, f"{load}: p90", measured.percentile(0.9))
    yield Figure(name, f"{load}: p99", measured.percentile(0.99), limit=most)
    yield Figure(name, f"{load}: max", max(measured.waits))
    spent = measured.ours.cpu_seconds / measured.seconds
    yield Figure(name, f"{load}: CPU, cores", spent, "", cores, notes={"writer": measured.notes})
    starts = measured.runs * 60 / measured.seconds
    yield Figure(name, f"{load}: process starts a minute", starts, "", 1, may_be_nothing=True)
    held = [mb for _, mb in measured.ours.memory]
    grown = statistics.mean(held[-3:]) / statistics.mean(held[:3])
    yield Figure(name, f"{load}: memory without code servers, the end to the beginning", grown, "x", 1.3)


@_scenario
def live(place: Place) -> Iterator[Figure]:
    """Twenty tables in a topic that are committed every five seconds, in turns with a peer where its jars are there."""
    for load in (Load(20, 400, 2.0), Load(20, 2_000, 2.0)):
        seconds, ours, theirs = place.minutes * 60, "ours", "Paimon"
        with running_broker() as broker:
            settings = f"    commit_interval_seconds: {_COMMIT_SECONDS}\n"
            where = place.at(f"{load.rate}-{ours}")
            measured = measure_freshness(where, load, seconds, broker=broker, more=settings)
        spent = measured.ours.cpu_seconds / measured.seconds
        yield Figure("live", f"{load}: p50", measured.percentile(0.5), notes=measured.notes)
        yield Figure("live", f"{load}: CPU, cores", spent, "")
        yield _commits(load, ours, measured.commits, seconds)
        yield Figure("live", f"{load}: CPU of a commit of a table", measured.ours.cpu_seconds / measured.commits)
        if not paimon_jars():
            continue
        with running_broker() as broker:
            where = place.at(f"{load.rate}-{theirs}")
            cost, commits = _measure_peer(where, load, seconds, broker)
        peer = cost.cpu_seconds / seconds
        yield Figure("live", f"{load}: CPU of {theirs}, cores", peer, "", notes={"memory_mb": _peak(cost)})
        yield _commits(load, theirs, commits, seconds)
        yield Figure("live", f"{load}: CPU of a commit of a table by {theirs}", cost.cpu_seconds / max(1, commits))
        yield Figure("live", f"{load}: CPU to {theirs}'s", spent / peer, "x", 1)


_COMMIT_SECONDS = 5
"""Between two commits of a table, of ours and of the peer's."""


def _commits(load: Load, who: str, commits: int, seconds: float) -> Figure:
    return Figure("live", f"{load}: commits a minute and table, {who}", commits * 60 / seconds / load.tables, "")


def _peak(cost: TreeCost) -> int:
    return round(max((mb for _, mb in cost.memory), default=0))


def _measure_peer(place: Path, load: Load, seconds: float, broker: Broker) -> tuple[TreeCost, int]:
    """Return what the peer cost in so many seconds after all tables had rows, and how many commits it made."""
    peer = Paimon(place / "peer", broker.address, NAME, _COMMIT_SECONDS)
    with _written(place, load, broker, extension=False), peer.running(load.tables) as cost:
        end, before = time.time() + seconds, peer.look()
        while time.time() < end:
            cost.look(_COST_SECONDS)
            peer.look()
            time.sleep(_LOOK_SECONDS)
        cost.look()
        return cost, peer.look() - before


@_scenario
def fresh_idle(place: Place) -> Iterator[Figure]:
    """The daemon on a feed of which nothing is new."""
    where = place.at("idle")
    feed = Feed(where / "feed", tables=20)
    feed.directory.mkdir(parents=True)
    feed.create()
    checkpoint = feed.append(100, 100, fill=100)
    with Site(feed.uri, feed.directory / CONFIG, where / "site") as site:
        commits = Commits(site.lake)
        _until(commits, checkpoint, 20, where)
        time.sleep(90)  # the run that applied it lives on for a while
        begun = time.time()
        site.cost.begin()
        while time.time() < begun + place.minutes * 60:
            site.cost.look(_COST_SECONDS)
            time.sleep(1)
        site.cost.look()
        seconds = time.time() - begun
        shares = [100 * site.cost.cpu_seconds_of(root) / seconds for root in site.cost.roots]
    yield Figure("fresh-idle", "CPU, share of a core: the code server, where the sensor is", shares[0], "%", 2)
    yield Figure("fresh-idle", "CPU, share of a core: Dagster's daemon", shares[1], "%")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    write(**json.loads(sys.argv[1]))
