"""The real thing: webserver and daemon, the sensor on a moving checkpoint, a backfill from the UI's own interface."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.config import load
from cdc_assets.defs.instance import stop_group
from cdc_assets.lake.state import LakeState
from cdc_assets.opening import lake_status
from cdc_assets_tests.cases import Case, Config, differences, expected_tables

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

NAME = "redo"
PATIENCE_SECONDS = 240


BACKFILL = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
BACKFILL_STATUS = (
    "query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } } }"
)
PARTITIONS = """query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
    partitionKeys partitionStats { numMaterialized numPartitions numFailed } } } }"""


class Site:
    """A settings file, a Dagster home and a bucket whose checkpoint the test moves."""

    def __init__(self, config: Config, directory: Path) -> None:
        self.config = config
        self.directory = directory
        self.bucket = directory / "bucket"
        self.home = directory / "home"
        self.home.mkdir()
        shutil.copytree(config.bucket(), self.bucket)
        shutil.copy(config.path / "changefeed.toml", directory)
        self.file = directory / "changefeeds.yaml"
        self.file.write_text(
            f"lake: {{warehouse: lake}}\nchangefeeds:\n  - name: {NAME}\n"
            f'    sink_uri: "file://{self.bucket}?{config.recorded_options["sink_uri_params"]}"\n'
            "    changefeed_config: changefeed.toml\n    sensor_running: true\n    sensor_interval_seconds: 1\n"
        )
        shutil.copy(Path(__file__).parents[1] / "dagster.yaml", self.home)
        self.port = _free_port()

    def publish(self, checkpoint: int) -> None:
        (self.bucket / "metadata").write_text(json.dumps({"checkpoint-ts": checkpoint}))

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "CDC_ASSETS_CONFIG": str(self.file),
            "DAGSTER_HOME": str(self.home),
            "PYTHONPATH": str(Path(__file__).parents[1]),
        }

    def ask(self, query: str, **variables: Any) -> Any:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/graphql", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            told = json.load(answer)
        assert "errors" not in told, told
        return told["data"]

    def applied_through(self, checkpoint: int) -> bool:
        lake = load(self.file).needed_lake()
        rows = lake_status(lake) if (self.directory / "lake").is_dir() else []
        return bool(rows) and all(row.checkpoint == checkpoint and row.state in ("applied", "dropped") for row in rows)

    def differences(self, expected: Path) -> list[str]:
        state = LakeState(load(self.file).needed_lake(), NAME)
        return [
            line for name, table in expected_tables(expected).items() for line in differences(table, state.read(name))
        ]

    def snapshots(self) -> dict[str, int | None]:
        tables = LakeState(load(self.file).needed_lake(), NAME).tables()
        return {str(life): held.snapshot_id for life, held in tables.items()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait(what: str, done: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            if done():
                return
        except (OSError, AssertionError):
            pass
        time.sleep(0.5)
    pytest.fail(f"{what} did not happen:\n{log.read_text()[-3000:]}")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(Case("G_redelivery").config("csv-ts"), tmp_path)


@pytest.fixture
def running(site: Site) -> Iterator[tuple[Site, subprocess.Popen[bytes], Path]]:
    log = site.directory / "dagster.log"
    command = [sys.executable, "-m", "dagster", "dev", "-m", "cdc_assets.definitions"]
    command += ["-h", "127.0.0.1", "-p", str(site.port)]
    first, last = site.config.checkpoints[0], site.config.checkpoints[-1]
    assert first.ts < last.ts
    site.publish(first.ts)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=site.environment(), stdout=output, stderr=output, start_new_session=True, cwd=site.directory
        )
    try:
        yield site, process, log
    finally:
        stop_group(process)


def test_the_sensor_loads_each_checkpoint_and_a_backfill_of_everything_changes_nothing(
    running: tuple[Site, subprocess.Popen[bytes], Path],
) -> None:
    site, process, log = running
    first, last = site.config.checkpoints[0], site.config.checkpoints[-1]
    assert first.expected is not None
    assert last.expected is not None
    wait("the first checkpoint", lambda: site.applied_through(first.ts), process, log)
    assert site.differences(first.expected) == []
    site.publish(last.ts)
    wait("the last checkpoint", lambda: site.applied_through(last.ts), process, log)
    assert site.differences(last.expected) == []

    before = site.snapshots()
    dml = {"path": [NAME, "dml"]}
    keys = site.ask(PARTITIONS, key=dml)["assetNodeOrError"]["partitionKeys"]
    launched = site.ask(
        BACKFILL,
        params={"assetSelection": [{"path": [NAME, "ddl"]}, dml], "partitionNames": keys[-2:], "title": "everything"},
    )["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess", launched

    def ended() -> bool:
        status = site.ask(BACKFILL_STATUS, id=launched["backfillId"])["partitionBackfillOrError"]["status"]
        assert status not in ("FAILED", "COMPLETED_FAILED"), log.read_text()[-3000:]
        return bool(status == "COMPLETED_SUCCESS")

    wait("the backfill", ended, process, log)
    assert site.snapshots() == before
