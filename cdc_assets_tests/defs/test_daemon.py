"""The real thing: webserver and daemon on one instance with two changefeeds, over GraphQL, on SQLite and on Postgres.

One changefeed is a recorded one whose checkpoint the test moves; of the other the test writes every file.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.defs.instance import stop_group
from cdc_assets.defs.names import lake_key
from cdc_assets.lake.state import LakeState
from cdc_assets.model.schema import TableId
from cdc_assets.operations.opening import open_planner
from cdc_assets.operations.status import lake_status
from cdc_assets.planning.partitions import format_partition_key, partition_keys
from cdc_assets.report.tables import TableStatus
from cdc_assets.settings.config import load
from cdc_assets_tests.cases import Case, Config, differences, expected_tables
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.postgres import free_port, postgres

pytestmark = pytest.mark.timeout(1800)

ROOT = Path(__file__).parents[2]
REDO, LITTLE = "redo", "little"
PATIENCE_SECONDS = 600
REPOSITORY = {"repositoryName": "__repository__", "repositoryLocationName": "cdc_assets.definitions"}

BACKFILL = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
BACKFILL_STATUS = (
    "query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } } }"
)
PARTITIONS = (
    """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode { partitionKeys } } }"""
)
LAUNCH = """mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } } } }"""
RUN = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
RUNS = """query($filter: RunsFilter!) { runsOrError(filter: $filter) { ... on Runs { results {
    runId jobName status tags { key value } } } } }"""
ADD_PARTITION = """mutation($where: RepositorySelector!, $name: String!, $key: String!) {
    addDynamicPartition(repositorySelector: $where, partitionsDefName: $name, partitionKey: $key) {
    __typename ... on PythonError { message } } }"""
TERMINATE = "mutation($id: String!) { terminateRun(runId: $id) { __typename } }"
CHECK = """query($key: AssetKeyInput!) { assetCheckExecutions(assetKey: $key, checkName: "column_types", limit: 20) {
    status evaluation { success metadataEntries { label ... on MarkdownMetadataEntry { mdStr }
        ... on TextMetadataEntry { text } } } } }"""
CHECKS = """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
    assetChecksOrError { ... on AssetChecks { checks { name } } } } } }"""
RELOAD = "mutation($location: String!) { reloadRepositoryLocation(repositoryLocationName: $location) { __typename } }"
TICKS = """query($selector: SensorSelector!) { sensorOrError(sensorSelector: $selector) { ... on Sensor {
    sensorState { status ticks(limit: 5) { status skipReason timestamp endTimestamp } } } } }"""


class Site:
    """A settings file, a Dagster home, a webserver's address, and two buckets."""

    def __init__(
        self, config: Config, directory: Path, instance: Path, more: dict[str, str], sensors: bool = True
    ) -> None:
        self.config = config
        self.directory = directory
        self.bucket = directory / "recorded"
        self.little = LittleFeed(directory / "little")
        shutil.copytree(config.bucket(), self.bucket)
        shutil.copy(config.path / "changefeed.toml", directory)
        self.home = directory / "home"
        self.home.mkdir()
        shutil.copy(instance, self.home / "dagster.yaml")
        self.file = directory / "changefeeds.yaml"
        cadence = f"    sensor_running: {str(sensors).lower()}\n    sensor_interval_seconds: 1\n"
        cadence += "    run_keep_alive_seconds: 5\n"
        self.file.write_text(
            f"lake: {{warehouse: lake}}\nchangefeeds:\n  - name: {REDO}\n"
            f'    sink_uri: "file://{self.bucket}?{config.recorded_options["sink_uri_params"]}"\n'
            f"    changefeed_config: changefeed.toml\n{cadence}  - name: {LITTLE}\n"
            f'    sink_uri: "file://{self.little.bucket}?protocol=csv"\n'
            f"    changefeed_config: {self.little.toml}\n    retry_seconds: 2\n    retry_max_seconds: 5\n{cadence}"
        )
        self.port = free_port()
        self.environment = {
            **os.environ,
            **more,
            "CDC_ASSETS_CONFIG": str(self.file),
            "DAGSTER_HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
        }
        self.log = directory / "dagster.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "dagster", "dev", "-m", "cdc_assets.definitions"]
        command += ["-h", "127.0.0.1", "-p", str(self.port)]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command, env=self.environment, stdout=output, stderr=output, start_new_session=True, cwd=self.directory
            )

    def publish(self, checkpoint: int) -> None:
        (self.bucket / "metadata").write_text(json.dumps({"checkpoint-ts": checkpoint}))

    def ask(self, query: str, **variables: Any) -> Any:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/graphql", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            answered = json.load(answer)
        assert "errors" not in answered, answered
        return answered["data"]

    def wait(self, what: str, done: Callable[[], bool], patience_seconds: float = PATIENCE_SECONDS) -> None:
        end = time.monotonic() + patience_seconds
        while time.monotonic() < end:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            try:
                if done():
                    return
            except OSError:
                pass  # the webserver is not there yet
            time.sleep(0.5)
        pytest.fail(f"{what} did not happen:\n{self.log.read_text()[-3000:]}")

    # --- what stands ---

    def tables(self, changefeed: str) -> dict[str, TableStatus]:
        rows = lake_status(load(self.file).needed_lake()) if (self.directory / "lake" / "ledger.db").exists() else []
        return {row.table: row for row in rows if row.changefeed == changefeed}

    def applied(self, changefeed: str, checkpoint: int) -> bool:
        rows = self.tables(changefeed).values()
        return bool(rows) and all(row.checkpoint == checkpoint and row.state in ("applied", "dropped") for row in rows)

    def differences(self, expected: Path) -> list[str]:
        state = LakeState(load(self.file).needed_lake(), REDO)
        tables = expected_tables(expected).items()
        return [line for name, table in tables for line in differences(table, state.read(name))]

    def values(self, table: str) -> dict[int, str]:
        rows = LakeState(load(self.file).needed_lake(), LITTLE).read(TableId("s", table)).to_pylist()
        return {row["id"]: row["v"] for row in rows}

    def snapshots(self, changefeed: str) -> dict[str, int | None]:
        tables = LakeState(load(self.file).needed_lake(), changefeed).tables()
        return {str(life): held.snapshot_id for life, held in tables.items()}

    # --- what Dagster is asked ---

    def partition_keys(self, changefeed: str) -> list[str]:
        keys: list[str] = self.ask(PARTITIONS, key={"path": [changefeed, "dml"]})["assetNodeOrError"]["partitionKeys"]
        return keys

    def add_partitions(self, changefeed: str, keys: Iterable[str]) -> None:
        for key in keys:
            added = self.ask(ADD_PARTITION, where=REPOSITORY, name=f"cdc_{changefeed}", key=key)["addDynamicPartition"]
            assert added["__typename"] == "AddDynamicPartitionSuccess", added

    def backfill(self, changefeed: str, keys: list[str]) -> str:
        assets = [{"path": [changefeed, "ddl"]}, {"path": [changefeed, "dml"]}]
        params = {"assetSelection": assets, "partitionNames": keys, "title": "replay"}
        launched = self.ask(BACKFILL, params=params)["launchPartitionBackfill"]
        assert launched["__typename"] == "LaunchBackfillSuccess", launched
        return str(launched["backfillId"])

    def backfilled(self, backfill: str) -> bool:
        status = self.ask(BACKFILL_STATUS, id=backfill)["partitionBackfillOrError"]["status"]
        assert status not in ("FAILED", "COMPLETED_FAILED"), self.failures()
        return bool(status == "COMPLETED_SUCCESS")

    def failures(self) -> str:
        """Return what the log says about steps and runs that failed."""
        log = self.log.read_text()
        return "\n".join(log[at : at + 4000] for at in [log.find("STEP_FAILURE"), log.find("RUN_FAILURE")] if at >= 0)

    def launch(self, job: str, config: dict[str, Any]) -> str:
        params = {"selector": {**REPOSITORY, "pipelineName": job}, "runConfigData": config, "mode": "default"}
        launched = self.ask(LAUNCH, params=params)["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return str(launched["run"]["runId"])

    def status(self, run: str) -> str:
        return str(self.ask(RUN, id=run)["runOrError"]["status"])

    def runs(self, **tags: str) -> list[dict[str, Any]]:
        wanted = {"tags": [{"key": key.replace("_", "/"), "value": value} for key, value in tags.items()]}
        runs: list[dict[str, Any]] = self.ask(RUNS, filter=wanted)["runsOrError"]["results"]
        return runs

    def failed_checks(self, changefeed: str) -> str:
        """Return what the failed checks of column types say."""
        executions = self.ask(CHECK, key={"path": [changefeed, "dml"]})["assetCheckExecutions"]
        failed = [
            execution["evaluation"]
            for execution in executions
            if execution["evaluation"] and not execution["evaluation"]["success"]
        ]
        entries = [entry for evaluation in failed for entry in evaluation["metadataEntries"]]
        return "\n".join(entry.get("mdStr") or entry.get("text") or "" for entry in entries)


@pytest.fixture(params=[pytest.param("sqlite", marks=pytest.mark.soak), "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A running webserver and daemon, with the laptop's instance on SQLite, and the documented one on Postgres."""
    config = Case("G_redelivery").config("csv-ts")
    with ExitStack() as stack:
        instance, more = ROOT / "dagster.yaml", dict[str, str]()
        if request.param == "postgres":
            try:
                instance, more = ROOT / "deploy" / "dagster.yaml", stack.enter_context(postgres())
            except FileNotFoundError as missing:
                pytest.skip(str(missing))
        made = Site(config, tmp_path, instance, more)
        made.publish(config.checkpoints[0].ts)
        for name in ("good", "bad"):
            made.little.create(f"s.{name}")
            made.little.rows(f"s.{name}", FIRST, [("I", FIRST + 1, 1, "one")])
        made.start()
        try:
            yield made
        finally:
            assert made.process is not None
            stop_group(made.process)


def test_a_morning_with_dagster(site: Site) -> None:
    """A checkpoint is applied, a bad record stops its table, checkpoints advance, a run is ended."""
    _the_first_checkpoint_is_equal(site)
    _a_bad_record_stops_its_table_only(site)
    _a_run_that_is_ended_leaves_whole_windows(site)


@pytest.mark.soak
def test_a_day_with_dagster(site: Site) -> None:
    """Partitions are replayed by a backfill beside all that, and a table is rebuilt."""
    _checkpoints_advance(site)
    replay = site.backfill(REDO, site.partition_keys(REDO)[-2:])
    before = site.snapshots(REDO)
    _a_bad_record_stops_its_table_only(site)
    site.wait("the backfill", lambda: site.backfilled(replay))
    assert site.snapshots(REDO) == before
    assert all("cdc/table" in _tags(run) for run in site.runs(dagster_backfill=replay))
    _a_rebuilt_table_is_the_same(site)
    _a_run_that_is_ended_leaves_whole_windows(site)


def _tags(run: dict[str, Any]) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in run["tags"]}


def _the_first_checkpoint_is_equal(site: Site) -> None:
    first = site.config.checkpoints[0]
    assert first.expected is not None
    site.wait("the first checkpoint", lambda: site.applied(REDO, first.ts))
    assert site.differences(first.expected) == []


def _checkpoints_advance(site: Site) -> None:
    first, last = site.config.checkpoints[0], site.config.checkpoints[-1]
    assert first.ts < last.ts
    assert last.expected is not None
    _the_first_checkpoint_is_equal(site)
    site.publish(last.ts)
    site.wait("the last checkpoint", lambda: site.applied(REDO, last.ts))
    assert site.differences(last.expected) == []


def _a_bad_record_stops_its_table_only(site: Site) -> None:
    bad = site.little.rows("s.bad", FIRST, [("I", FIRST + 2, 2, "two")])
    whole = bad.read_bytes()
    bad.write_bytes(whole.replace(b",2,", b",deux,"))
    site.little.rows("s.good", FIRST, [("U", FIRST + 2, 1, "changed")])
    site.little.publish(FIRST + 10)
    site.wait("the failing check", lambda: "deux" in site.failed_checks(LITTLE))
    failed = site.failed_checks(LITTLE)
    assert bad.name in failed
    assert "line 1" in failed
    assert site.values("good") == {1: "changed"}
    assert site.tables(LITTLE)["s.bad"].state == "held"
    bad.write_bytes(whole)
    site.wait("another attempt", lambda: site.applied(LITTLE, FIRST + 10))
    assert site.values("bad") == {1: "one", 2: "two"}


def _a_rebuilt_table_is_the_same(site: Site) -> None:
    before = site.values("good")
    run = site.launch("little_rebuild", {"ops": {"little_rebuild_tables": {"config": {"tables": ["s.good"]}}}})
    site.wait("the rebuild", lambda: site.status(run) in ("SUCCESS", "FAILURE"))
    assert site.status(run) == "SUCCESS"
    assert site.values("good") == before


def _a_run_that_is_ended_leaves_whole_windows(site: Site) -> None:
    config = {"ops": {"little_catch_up_tables": {"config": {"keep_alive": True}}}}
    site.little.rows("s.good", FIRST, [("I", FIRST + 20, 3, "three")])
    run = site.launch("little_catch_up", config)
    site.little.publish(FIRST + 30)
    site.wait("the window", lambda: site.tables(LITTLE)["s.good"].through == FIRST + 30)
    site.wait("a run that goes on", lambda: site.status(run) in ("STARTED", "SUCCESS"))
    site.ask(TERMINATE, id=run)
    site.wait("the end", lambda: site.status(run) in ("CANCELED", "SUCCESS"))
    assert site.values("good") == {1: "changed", 3: "three"}
    site.little.rows("s.good", FIRST, [("I", FIRST + 40, 4, "four")])
    site.little.publish(FIRST + 50)
    site.wait("the next run", lambda: site.applied(LITTLE, FIRST + 50))
    assert site.values("good") == {1: "changed", 3: "three", 4: "four"}


@pytest.mark.soak
@pytest.mark.parametrize("case", ["F_names", "M_slash_names"])
def test_tables_may_have_any_name(case: str, tmp_path: Path) -> None:
    """Runs that load definitions with such tables take them further, and the UI shows every one."""
    config = Case(case).config("csv-ts")
    last = config.checkpoints[-1]
    assert last.expected is not None
    site = Site(config, tmp_path, ROOT / "dagster.yaml", {})
    site.publish(last.ts)
    settings = next(changefeed for changefeed in load(site.file).changefeeds if changefeed.name == REDO)
    with open_planner(settings, None) as planner:
        versions = [key.version for key in partition_keys(planner.plan()[1])]
    middle = versions[len(versions) // 2]
    site.publish(middle)
    site.start()
    try:
        for checkpoint in (middle, *(checkpoint.ts for checkpoint in config.checkpoints)):
            site.publish(checkpoint)
            site.wait(f"checkpoint {checkpoint}", lambda ts=checkpoint: site.applied(REDO, ts))  # type: ignore[misc]
        assert site.differences(last.expected) == []
        site.wait("the last run", lambda: {run["status"] for run in site.runs(cdc_changefeed=REDO)} == {"SUCCESS"})
        site.ask(RELOAD, location=REPOSITORY["repositoryLocationName"])
        for table in expected_tables(last.expected):
            asset = site.ask(CHECKS, key={"path": list(lake_key(settings, table).path)})["assetNodeOrError"]
            checks = {check["name"] for check in asset["assetChecksOrError"]["checks"]}
            assert checks == {"holds", "initial_rows", "keeps_up", "row_arithmetic"}, table
    finally:
        assert site.process is not None
        stop_group(site.process)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_one_backfill_of_all_partitions_without_the_sensor_ends_equal(tmp_path: Path) -> None:
    """Tables are renamed, exchange names, are dropped and made again; each partition is a run of its own."""
    config = Case("C_ddl_tables").config("csv-ts")
    site = Site(config, tmp_path, ROOT / "dagster.yaml", {}, sensors=False)
    settings = next(changefeed for changefeed in load(site.file).changefeeds if changefeed.name == REDO)
    with open_planner(settings, None) as planner:
        keys = [format_partition_key(key) for key in partition_keys(planner.plan()[1])]
    random.Random(5).shuffle(keys)
    site.start()
    try:
        site.wait("the code location", lambda: site.partition_keys(REDO) == [])
        site.add_partitions(REDO, keys)
        everything = site.backfill(REDO, keys)
        site.wait("the backfill", lambda: site.backfilled(everything), patience_seconds=6000)
        expected = config.checkpoints[-1].expected
        assert expected is not None
        assert site.differences(expected) == []
        names = {held.name for held in LakeState(load(site.file).needed_lake(), REDO).tables().values()} - {None}
        assert names == set(expected_tables(expected))
    finally:
        assert site.process is not None
        stop_group(site.process)
