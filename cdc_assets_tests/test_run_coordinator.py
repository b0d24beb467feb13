"""One run per table at a time, whoever asked for it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from dagster import AssetKey, DagsterInstance, DagsterRunStatus, build_schedule_context
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.run_coordinator import SubmitRunContext
from dagster._core.test_utils import create_run_for_test
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from cdc_assets.defs.operations import operation_job, operation_schedule
from cdc_assets.defs.resources import ConfiguredFeed, S3Credentials
from cdc_assets.lake.chores import Chores, TableFacts
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.operations import maintenance
from cdc_assets.operations.maintenance import MaintenanceResult, TableMaintenance
from cdc_assets.operations.requests import MAINTAIN
from cdc_assets.planning.partitions import PartitionKey, format_partition_key, format_table
from cdc_assets.run_coordinator import CHANGEFEED_TAG, TABLE_TAG, TableSerializingRunCoordinator, table_of
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.little_feed import LittleFeed
from cdc_assets_tests.postgres import postgres

ROOT = Path(__file__).parent.parent
VERSION = "00462381905237639173"


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[DagsterInstance]:
    """An instance as `dagster.yaml` of the project makes it."""
    shutil.copy(ROOT / "dagster.yaml", tmp_path)
    with DagsterInstance.from_config(str(tmp_path)) as instance:
        yield instance


def queued(
    instance: DagsterInstance, tags: dict[str, str], assets: tuple[AssetKey, ...] | None = None
) -> dict[str, str]:
    """Queue a run with these tags and return the tags that it has in the queue."""
    location = InProcessCodeLocationOrigin(LoadableTargetOrigin(module_name="cdc_assets.definitions"))
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), "job")
    chosen = frozenset(assets) if assets else None
    run = create_run_for_test(instance, job_name="job", tags=tags, remote_job_origin=origin, asset_selection=chosen)
    # The queue never looks at the workspace; only coordinators that launch at once do.
    submitted = instance.run_coordinator.submit_run(SubmitRunContext(run, workspace=None))  # type: ignore[arg-type]
    assert submitted.status == DagsterRunStatus.QUEUED
    return dict(submitted.tags)


def test_a_run_of_a_partition_is_tagged_with_its_table(instance: DagsterInstance) -> None:
    assert queued(instance, {"dagster/partition": f"shop.orders@{VERSION}"})[TABLE_TAG] == "shop.orders"


@pytest.mark.parametrize(
    "table",
    [TableId("shop", "a@b"), TableId("s/hop", "o/rders"), TableId("shop", "größe"), TableId("a.b", "c%d")],
    ids=str,
)
def test_maintenance_of_a_table_waits_for_its_partitions_whatever_it_is_called(
    table: TableId, instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = TableFacts("t", Life(table, 1), 5, 9, 900, 9, 0, 0, 1, 4096)
    due = MaintenanceResult((TableMaintenance(facts, facts, Chores(compact=True), table),), 0)
    monkeypatch.setattr(maintenance, "maintain", lambda *_, **__: due)
    source = ConfiguredFeed(LittleFeed(tmp_path / "feed").settings(), LakeSettings.from_warehouse(tmp_path / "lake"))
    schedule = operation_schedule(source, MAINTAIN, operation_job(source, MAINTAIN))
    with build_schedule_context(instance, resources={"s3": S3Credentials()}) as context:
        (request,) = schedule.evaluate_tick(context).run_requests or ()
    key = format_partition_key(PartitionKey(table, int(VERSION)))
    assert request.tags[TABLE_TAG] == queued(instance, {"dagster/partition": key})[TABLE_TAG] == format_table(table)


def test_a_run_of_a_partition_is_tagged_with_its_changefeed(instance: DagsterInstance) -> None:
    both = (AssetKey(["feed", "ddl"]), AssetKey(["feed", "dml"]))
    run = queued(instance, {"dagster/partition": f"shop.orders@{VERSION}"}, both)
    assert run[CHANGEFEED_TAG] == "feed"


def test_a_tag_that_the_sensor_gave_stays(instance: DagsterInstance) -> None:
    assert queued(instance, {"dagster/partition": f"shop.orders@{VERSION}", TABLE_TAG: "x"})[TABLE_TAG] == "x"


@pytest.mark.parametrize("tags", [{}, {"dagster/partition": "2026-03-30"}])
def test_other_runs_are_queued_as_they_are(instance: DagsterInstance, tags: dict[str, str]) -> None:
    assert TABLE_TAG not in queued(instance, tags)


def test_the_instance_limits_each_table_to_one_run(instance: DagsterInstance) -> None:
    coordinator = instance.run_coordinator
    assert isinstance(coordinator, TableSerializingRunCoordinator)
    limits = {limit["key"]: limit for limit in coordinator.get_run_queue_config().tag_concurrency_limits}
    assert limits[TABLE_TAG] == {"key": TABLE_TAG, "value": {"applyLimitPerUniqueValue": True}, "limit": 1}


def test_the_instance_for_production_works_on_postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(ROOT / "deploy" / "dagster.yaml", tmp_path)
    with ExitStack() as stack:
        try:
            environment = stack.enter_context(postgres())
        except FileNotFoundError as missing:
            pytest.skip(str(missing))
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        instance = stack.enter_context(DagsterInstance.from_config(str(tmp_path)))
        assert "Postgres" in type(instance.run_storage).__name__
        assert queued(instance, {"dagster/partition": f"shop.orders@{VERSION}"})[TABLE_TAG] == "shop.orders"
        limits = {limit["key"] for limit in instance.get_concurrency_config().run_queue_config.tag_concurrency_limits}  # type: ignore[union-attr]
        assert limits == {TABLE_TAG, CHANGEFEED_TAG, "dagster/partition"}
        assert not instance.telemetry_enabled


def test_the_instance_sends_nothing_home(instance: DagsterInstance) -> None:
    assert not instance.telemetry_enabled
    assert not instance.nux_enabled


@pytest.mark.parametrize(
    ("key", "table"),
    [
        (f"shop.orders@{VERSION}", "shop.orders"),
        (f"a%2Eb.c%40d@{VERSION}", "a%2Eb.c%40d"),
        (f"shop@{VERSION}", "shop"),
        ("shop.orders@12", None),
        ("", None),
    ],
)
def test_the_table_is_what_stands_before_the_version(key: str, table: str | None) -> None:
    assert table_of(key) == table
