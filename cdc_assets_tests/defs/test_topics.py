"""Runs of Dagster over a recorded topic: each lands first, and logs the landing beside its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession

from cdc_assets.defs import build_changefeed_defs
from cdc_assets.defs.checks import CHECKS
from cdc_assets.formats.messages import Kind
from cdc_assets.operations.opening import open_pipeline
from cdc_assets.operations.status import lake_status
from cdc_assets.planning.partitions import format_partition_key, partition_keys
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.settings.sections import MaintenanceSettings
from cdc_assets_tests.archived_topic import ArchivedTopic
from cdc_assets_tests.topic_feed import archive_of
from cdc_assets_tests.topics import topics

pytestmark = pytest.mark.filterwarnings("ignore")  # Dagster says what is new in it

NAME = "shop"
TOPIC = next(topic for topic in topics("craft") if topic.case.name == "F_names")


class Location:
    """A code location over a topic that comes into an archive."""

    def __init__(self, directory: Path, instance: dg.DagsterInstance) -> None:
        self.feed = ArchivedTopic(TOPIC, directory, name=NAME)
        self.instance = instance
        self.defs = build_changefeed_defs(self.feed.settings, self.feed.lake)

    def catch_up(self) -> dg.ExecuteInProcessResult:
        job = self.defs.resolve_job_def(f"{NAME}_catch_up")
        return job.execute_in_process(instance=self.instance, raise_on_error=False)

    def landings(self) -> list[dg.AssetMaterialization]:
        """Return the events of the asset `landing`, the oldest first."""
        wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey([NAME, "landing"]))
        records = self.instance.fetch_materializations(wanted, limit=100).records
        materializations = [record.asset_materialization for record in reversed(records)]
        return [materialization for materialization in materializations if materialization is not None]


@pytest.fixture
def location(tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession) -> Location:
    return Location(tmp_path, instance)


def test_runs_land_and_apply_and_log_both(location: Location) -> None:
    location.feed.write(len(TOPIC.lines) // 2)
    assert location.catch_up().success
    location.feed.write()
    assert location.catch_up().success
    assert location.feed.differences() == []
    assert location.catch_up().success
    landings = location.landings()
    assert [materialization.metadata["messages"].value for materialization in landings] == [
        len(TOPIC.lines) // 2,
        len(TOPIC.lines) - len(TOPIC.lines) // 2,
    ]
    assert location.instance.get_materialized_partitions(dg.AssetKey([NAME, "dml"]))
    checks = [dg.AssetCheckKey(dg.AssetKey([NAME, "topics"]), name) for name in CHECKS]
    assert set(location.instance.event_log_storage.get_latest_asset_check_execution_by_key(checks)) == set(checks)
    stages = [row.stages for row in lake_status(location.feed.lake) if row.stages is not None]
    assert stages
    assert all(stage.written_seconds is not None and stage.checkpoint_seconds is not None for stage in stages)


def test_a_run_before_the_first_mark_lands_and_says_what_it_waits_for(location: Location) -> None:
    spoken = zip(TOPIC.lines, TOPIC.spoken.column("kind").to_pylist(), strict=False)
    first = next(line for line, kind in spoken if kind != Kind.RESOLVED.value)
    archive_of([first], location.feed.archive, "first.jsonl")
    result = location.catch_up()
    assert result.success
    (landing,) = location.landings()
    assert "has no mark" in str(landing.metadata["waits"].value)


def test_a_partition_is_applied_out_of_the_landing(location: Location) -> None:
    location.feed.write()
    location.feed.land()
    with open_pipeline(location.feed.settings, location.feed.lake) as pipeline:
        keys = [format_partition_key(key) for key in partition_keys(pipeline.planner.plan()[1])]
    location.instance.add_dynamic_partitions(f"cdc_{NAME}", keys)
    job = location.defs.resolve_implicit_global_asset_job_def()
    chosen = [dg.AssetKey([NAME, asset]) for asset in ("ddl", "dml")]
    result = job.execute_in_process(partition_key=keys[-1], asset_selection=chosen, instance=location.instance)
    assert result.success
    assert keys[-1] in location.instance.get_materialized_partitions(dg.AssetKey([NAME, "dml"]))
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey([NAME, "dml"]))
    records = location.instance.fetch_materializations(wanted, limit=100).records
    seen = [record.asset_materialization.metadata for record in records if record.asset_materialization is not None]
    places = [str(metadata["source_messages"].value) for metadata in seen if "source_messages" in metadata]
    assert places
    assert all(place.startswith(f"['{TOPIC.recorded['topic']}[") for place in places)
    assert not any("source_files" in metadata for metadata in seen)


@pytest.mark.parametrize(
    ("protocol", "writer", "kind"),
    [("craft", "TiCDC", "tidb"), ("debezium-json", "a Debezium connector", "debezium"), ("ydb-json", "YDB", "ydb")],
)
def test_topics_are_shown_as_those_of_their_writer(protocol: str, writer: str, kind: str, tmp_path: Path) -> None:
    uri = f"kafka://127.0.0.1:9092/cdc?protocol={protocol}"
    settings = ChangefeedSettings(name=NAME, sink_uri=SecretStr(uri), accept_unordered=True)
    defs = build_changefeed_defs(settings, LakeSettings.from_warehouse(tmp_path))
    spec = next(spec for spec in defs.resolve_all_asset_specs() if spec.key == dg.AssetKey([NAME, "topics"]))
    assert f" {writer} writes to " in str(spec.description)
    assert kind in spec.kinds


def test_the_schedule_asks_for_a_run_while_only_the_landing_is_due(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    eager = MaintenanceSettings(small_files=2)
    feed = ArchivedTopic(TOPIC, tmp_path, name=NAME, maintenance=eager)
    defs = build_changefeed_defs(feed.settings, feed.lake)
    schedule, resources = defs.resolve_schedule_def(f"{NAME}_maintenance"), {"s3": (defs.resources or {})["s3"]}

    def tick() -> Any:
        with dg.build_schedule_context(instance=instance, resources=resources) as context:
            return schedule.evaluate_tick(context)

    feed.write(len(TOPIC.lines) // 2)
    feed.land()
    assert tick().skip_message == "nothing is due for 0 tables"
    feed.write()
    feed.land()
    (request,) = tick().run_requests
    assert request.tags["cdc/tables"] == "0"
    job = defs.resolve_job_def(f"{NAME}_maintain")
    assert job.execute_in_process(instance=instance).success
    assert tick().skip_message == "nothing is due for 0 tables"
