"""Many windows in one process: open files, threads, connections and caches do not grow with them."""

from __future__ import annotations

import gc
import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.lake import Lake, lake_table
from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.operations.opening import open_ledger
from cdc_assets.operations.status import lake_status, quarantined_records, recorded_decisions, row_counts
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings, from_flags
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.schema_documents import document, file_column, write_schema

pytestmark = pytest.mark.timeout(900)

VERSION = 465283339517952001
NAME = TableId("shop", "orders")
TOML = '[sink]\nprotocol = "csv"\n[sink.csv]\ninclude-commit-ts = true\n'


class Feed:
    """A changefeed of one table that goes on: each window inserts a row, changes one and deletes one of long ago."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.window = 0
        columns = [
            file_column("id", "BIGINT", is_key=True),
            file_column("note", "VARCHAR", "20"),
        ]
        query = "CREATE TABLE `orders` (`id` BIGINT PRIMARY KEY, `note` VARCHAR(20))"
        schema = document(NAME.schema, NAME.table, VERSION, Query=query, Type=3, TableColumns=columns)
        write_schema(directory / "feed", schema)
        self.table = directory / "feed" / NAME.schema / NAME.table
        (self.table / str(VERSION)).mkdir()
        (directory / "changefeed.toml").write_text(TOML)

    @property
    def settings(self) -> ChangefeedSettings:
        uri = f"{self.directory / 'feed'}?protocol=csv&date-separator=none"
        (settings,) = from_flags(sink_uri=uri, changefeed_config=self.directory / "changefeed.toml").changefeeds
        return settings

    def advance(self) -> None:
        """Write the next window's file and publish its checkpoint."""
        self.window += 1
        n, ts = self.window, VERSION + self.window
        lines = [
            ("I", n, "new"),
            *([("U", n - 1, "changed")] if n > 1 else []),
            *([("D", n - 5, "gone")] if n > 6 else []),
        ]
        text = "".join(f'"{op}","orders","shop",{ts},{key},"{note}"\r\n' for op, key, note in lines)
        (self.table / str(VERSION) / f"CDC{n:020d}.csv").write_text(text)
        (self.directory / "feed" / "metadata").write_text(json.dumps({"checkpoint-ts": ts}))

    @property
    def keys(self) -> list[int]:
        """The keys that the source holds."""
        return [key for key in range(1, self.window + 1) if key == 1 or key > self.window - 5]


@dataclass(frozen=True)
class Use:
    """What a process holds. Files and connections by what they are open to, objects by type."""

    files: Counter[str]
    threads: int
    objects: Counter[str]
    java_threads: int = 0
    java_files: int = 0
    java_heap_bytes: int = 0


def use(spark: SparkSession | None = None) -> Use:
    gc.collect()
    objects = Counter(
        f"{type(instance).__module__}.{type(instance).__name__}"
        for instance in gc.get_objects()
        if str(type(instance).__module__).startswith(("cdc_assets.", "sqlalchemy.engine", "sqlite3", "pyiceberg"))
    )
    if spark is None:
        return Use(_open_files("self"), threading.active_count(), objects)
    jvm: Any = spark._jvm
    for _ in range(3):
        jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    threads = _java_threads(jvm.java.lang.management.ManagementFactory.getThreadMXBean())
    files = _open_files(str(jvm.java.lang.ProcessHandle.current().pid()))
    heap = int(runtime.totalMemory() - runtime.freeMemory())
    java_files = sum(count for name, count in files.items() if not name.endswith(".jar"))  # each is opened once
    return Use(_open_files("self"), threading.active_count(), objects, threads, java_files, heap)


POOLS = (
    "shuffle-exchange-",
    "ResultQueryStageExecution-",
    "QueryStageCreator-",
    "block-manager-",
    "iceberg-hadoopfileio-",
)
"""Pools of Spark and Iceberg: they grow with the pace of queries to a bound, and most shrink after a minute without."""


def _java_threads(threads: Any) -> int:
    infos = (info for info in threads.getThreadInfo(threads.getAllThreadIds()) if info is not None)
    return sum(not str(info.getThreadName()).startswith(POOLS) for info in infos)


def _open_files(process: str) -> Counter[str]:
    """The open files of a process; nothing where there is no /proc."""
    file_counts = Counter[str]()
    place = Path("/proc") / process / "fd"
    for fd in place.iterdir() if place.exists() else ():
        try:
            file_counts[os.readlink(fd).partition(":")[0].rpartition("/")[2]] += 1
        except OSError:  # closed meanwhile
            continue
    return file_counts


def grown(early: Use, late: Use, windows: int) -> list[str]:
    """Name what grew by more than a fifth of the windows between two looks; a leak grows by all of them."""
    bound, leaks = windows // 5, list[str]()
    for kind in ("files", "objects"):
        more = getattr(late, kind) - getattr(early, kind)
        leaks += [f"{name}: {n} more {kind}" for name, n in more.items() if n > bound]
    for what in ("threads", "java_threads", "java_files"):
        more = getattr(late, what) - getattr(early, what)
        if more > bound:
            leaks.append(f"{what}: {more} more")
    return leaks


def _run(pipeline: Pipeline, feed: Feed, windows: int) -> None:
    for _ in range(windows):
        feed.advance()
        outcome = pipeline.apply(f"run-{feed.window}")
        assert outcome.complete, outcome
        pipeline.accounts.clear()  # as a run of Dagster does, which logs them
    del outcome


def _keys(lake: Any) -> list[int]:
    return sorted(lake.read(NAME).column("id").to_pylist())


def test_sixty_windows_without_spark_leave_nothing_open_and_nothing_behind(tmp_path: Path) -> None:
    feed, lake, ledger = Feed(tmp_path), MemoryLake(), Ledger(f"sqlite:///{tmp_path}/ledger.db")
    pipeline = Pipeline(feed.settings, feed.settings.open_source(), lake, ledger)
    _run(pipeline, feed, 20)
    early = use()
    _run(pipeline, feed, 40)
    assert grown(early, use(), 40) == []
    assert _keys(lake) == feed.keys
    ledger.close()


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("windows", [20, 500])
def test_many_windows_on_spark_leave_nothing_open_and_nothing_behind(
    windows: int, spark: SparkSession, tmp_path: Path
) -> None:
    feed, ledger = Feed(tmp_path), Ledger(f"sqlite:///{tmp_path}/ledger.db")
    lake = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "default", lambda: spark)
    pipeline = Pipeline(feed.settings, feed.settings.open_source(), lake, ledger)
    _run(pipeline, feed, 10)
    early = use(spark)
    _run(pipeline, feed, windows)
    late = use(spark)
    cached = {
        "cdc_assets.lake.lake_table.OwnedTable",
        "cdc_assets.lake.lake_table.LakeTable",
        "cdc_assets.lake.label.Label",
    }
    cached |= {f"cdc_assets.model.{name}" for name in ("progress.Progress", "progress.Life", "schema.TableId")}
    assert [leak for leak in grown(early, late, windows) if leak.partition(":")[0] not in cached] == []
    assert late.java_heap_bytes - early.java_heap_bytes < 100 << 20
    assert _keys(lake) == feed.keys
    lake.close()
    ledger.close()


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc").exists(), reason="without /proc open files are not known")
def test_open_and_closed_lakes_give_everything_back(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path)

    def window() -> None:
        ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
        lake = Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "default", lambda: spark)
        _run(Pipeline(feed.settings, feed.settings.open_source(), lake, ledger), feed, 1)
        lake.close()
        ledger.close()

    for _ in range(3):
        window()
    early = use(spark)
    for _ in range(10):
        window()
    late = use(spark)
    assert {name: late.files[name] for name in ("catalog.db", "ledger.db")} == {"catalog.db": 0, "ledger.db": 0}
    assert late.java_threads - early.java_threads < 10
    assert late.java_files - early.java_files < 10


@pytest.mark.skipif(not Path("/proc").exists(), reason="without /proc open files are not known")
def test_who_only_looks_into_a_lake_leaves_no_connection_open(tmp_path: Path) -> None:
    feed, warehouse = Feed(tmp_path), LakeSettings.from_warehouse(tmp_path / "lake")
    with open_ledger(warehouse) as ledger:
        _run(Pipeline(feed.settings, feed.settings.open_source(), MemoryLake(), ledger), feed, 1)
    looks: list[Callable[[], object]] = [
        ConfiguredFeed(feed.settings, warehouse).lake_tables,
        lambda: row_counts(warehouse, feed.settings),
        lambda: lake_status(warehouse),
        lambda: quarantined_records(warehouse, feed.settings.name),
        lambda: recorded_decisions(warehouse, feed.settings.name),
    ]
    early = use().files["catalog.db"]
    gc.disable()  # it would close what is left open, at some time
    try:
        for look in looks:
            look()
            assert _open_files("self")["catalog.db"] == early
    finally:
        gc.enable()


def test_what_was_read_of_tables_is_forgotten_once_they_have_newer_states(
    open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = open_lake()
    lake.applied()
    monkeypatch.setattr(lake_table, "_cache", dict.fromkeys((f"old-{number}" for number in range(5000)), None))
    lake.applied()
    assert len(lake_table._cache) <= 1000
