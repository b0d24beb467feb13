"""Dagster over a recorded changefeed: partitions, the gate, the sensor, whatever order runs come in."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.partition_status_cache import AssetPartitionStatus
from dagster_aws.s3 import S3Resource
from pyspark.sql import SparkSession

from cdc_assets.defs import build_changefeed_defs
from cdc_assets.defs.checks import CHECKS
from cdc_assets.defs.metadata import APPLIED_FIGURES
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.errors import TableMoved
from cdc_assets.lake import Lake
from cdc_assets.lake.state import LakeState
from cdc_assets.model.reports import StepResult
from cdc_assets.model.steps import ApplyRows
from cdc_assets.operations.status import lake_status
from cdc_assets.planning.partitions import PartitionKey, format_partition_key
from cdc_assets.planning.partitions import partition_keys as keys_of
from cdc_assets.planning.plan import plan
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.cases import Case, Config, differences
from cdc_assets_tests.default_rules import TABLE_RULES
from cdc_assets_tests.little_feed import FIRST, LittleFeed

pytestmark = pytest.mark.filterwarnings("ignore")  # Dagster says what is new in it

NAME = "feed"


class Location:
    """A code location over a copy of a recorded bucket, with an instance of its own."""

    def __init__(
        self,
        config: Config,
        directory: Path,
        instance: dg.DagsterInstance,
        policies: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        self.config = config
        self.bucket = directory / "bucket"
        shutil.copytree(config.bucket(), self.bucket)
        self._open(config.settings(self.bucket, name=NAME, policies=policies or {}, **more), directory, instance)

    @classmethod
    def of(cls, settings: ChangefeedSettings, directory: Path, instance: dg.DagsterInstance) -> Location:
        """Return a location over a feed that is not recorded."""
        location = cls.__new__(cls)
        location._open(settings, directory, instance)
        return location

    def _open(self, settings: ChangefeedSettings, directory: Path, instance: dg.DagsterInstance) -> None:
        self.settings, self.instance = settings, instance
        self.lake = LakeSettings.from_warehouse(directory / "lake")
        self.defs = build_changefeed_defs(self.settings, self.lake)

    def partition_keys(self) -> list[PartitionKey]:

        return list(keys_of(plan(self.settings.open_source().listing(), {}, TABLE_RULES)))

    def add_partitions(self) -> list[str]:
        keys = [format_partition_key(key) for key in self.partition_keys()]
        self.instance.add_dynamic_partitions(f"cdc_{NAME}", keys)
        return keys

    def materialize(self, key: str, *assets: str) -> dg.ExecuteInProcessResult:
        job = self.defs.resolve_implicit_global_asset_job_def()
        chosen = [dg.AssetKey([NAME, asset]) for asset in assets or ("ddl", "dml")]
        return job.execute_in_process(
            partition_key=key, asset_selection=chosen, instance=self.instance, raise_on_error=False
        )

    def catch_up(self, tables: list[str] | None = None) -> dg.ExecuteInProcessResult:
        config = {"ops": {f"{NAME}_catch_up_tables": {"config": {"tables": tables or []}}}}
        job = self.defs.resolve_job_def(f"{NAME}_catch_up")
        return job.execute_in_process(run_config=config, instance=self.instance, raise_on_error=False)

    def differences(self) -> list[str]:
        state = LakeState(self.lake, NAME)
        names = {held.applied.name for held in state.tables().values()} - {None}
        expected = self.config.case.expected()
        mismatches = [
            line for name, table in expected.items() if name in names for line in differences(table, state.read(name))
        ]
        return mismatches + [f"{name} is missing" for name in set(expected) - names]

    def figures(self, key: str) -> Mapping[str, Any]:
        """Return what the newest event of a partition of `dml` says of what was applied."""
        newest = dg.AssetRecordsFilter(dg.AssetKey([NAME, "dml"]), asset_partitions=[key])
        (record,) = self.instance.fetch_materializations(newest, limit=1).records
        assert record.asset_materialization is not None
        return {
            name: figure for name, figure in record.asset_materialization.metadata.items() if name in APPLIED_FIGURES
        }

    def failed(self, asset: str) -> list[str]:
        """Return the partitions that Dagster shows as failed."""
        partitions = dg.DynamicPartitionsDefinition(name=f"cdc_{NAME}")
        keys = self.instance.get_dynamic_partitions(f"cdc_{NAME}")
        states = self.instance.get_status_by_partition(dg.AssetKey([NAME, asset]), keys, partitions) or {}
        return [key for key, state in states.items() if state is AssetPartitionStatus.FAILED]

    def materialized(self, asset: str) -> set[str]:
        return set(self.instance.get_materialized_partitions(dg.AssetKey([NAME, asset])))


@pytest.fixture
def location(tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession) -> Location:
    return Location(Case("N_filtered_ddl").config("csv-ts"), tmp_path, instance)


def test_dml_stands_between_ddl_and_the_lake_tables(location: Location) -> None:
    graph = location.defs.resolve_asset_graph()
    assert graph.get(dg.AssetKey([NAME, "dml"])).parent_keys == {dg.AssetKey([NAME, "ddl"])}
    assert graph.get(dg.AssetKey([NAME, "ddl"])).parent_keys == {dg.AssetKey([NAME, "bucket"])}


def test_partitions_in_reverse_order_end_equal_and_earlier_ones_find_their_work_done(
    tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    location = Location(Case("I_update_keys_clustered").config("csv-cf4"), tmp_path, instance)
    keys = location.add_partitions()
    for key in reversed(keys):
        assert location.materialize(key).success
    assert location.differences() == []
    assert location.materialized("dml") == set(keys)
    applied = location.figures(keys[-1])
    assert applied["changes"].value > 0
    assert location.materialize(keys[-1]).success
    assert location.figures(keys[-1]) == applied


def test_history_tables_are_assets_of_their_own_that_partitions_of_their_source_bring_with_it(
    tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    kinds = {"*.*": ["log", "scd2"]}
    location = Location(Case("I_update_keys_clustered").config("csv-cf4"), tmp_path, instance, history=kinds)
    for key in location.add_partitions():
        assert location.materialize(key).success
    assert location.differences() == []
    defs = build_changefeed_defs(location.settings, location.lake)
    specs = {spec.key.path[-1]: spec for spec in defs.resolve_all_asset_specs()}
    logs = [name for name in specs if name.endswith("__log")]
    assert len(logs) == len(location.config.case.expected())
    assert all("Every change of a row" in str(specs[name].description) for name in logs)
    event = instance.get_latest_materialization_event(specs[logs[0]].key)
    assert event is not None
    columns = event.asset_materialization.metadata["dagster/column_schema"].schema.columns  # type: ignore[union-attr]
    assert "_change_type" in [column.name for column in columns]
    assert not any(column.constraints.unique for column in columns)  # a row has as many changes as it likes
    states = [key for key in defs.resolve_asset_graph().asset_check_keys if key.name == "states"]
    assert len(states) == len(logs)
    for check in instance.event_log_storage.get_latest_asset_check_execution_by_key(states).values():
        evaluation = check.event.dagster_event.asset_check_evaluation_data  # type: ignore[union-attr]
        assert evaluation.passed, evaluation.description


def test_what_a_partition_needs_first_is_applied_and_logged_with_it(
    tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    location = Location(Case("B_ddl_columns").config("csv-ts"), tmp_path, instance)
    keys = location.add_partitions()
    by_table = {table: [key for key in keys if key.split("@")[0] == table] for table in {k.split("@")[0] for k in keys}}
    versions = min((table_versions for table_versions in by_table.values() if len(table_versions) > 2), key=len)
    assert location.materialize(versions[-1]).success
    assert set(versions) <= location.materialized("ddl")
    assert set(versions[:-1]) & location.materialized("dml")
    assert not (set(keys) - set(versions)) & location.materialized("dml")


def test_a_window_whose_table_another_run_moved_is_planned_again(
    tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = Location(Case("I_update_keys_clustered").config("csv-cf4"), tmp_path, instance)
    original, moved, removed = Lake.commit, list[str](), list[str]()

    def overtaken(lake: Lake, step: ApplyRows, staged: Any) -> StepResult:
        if not moved:
            moved.append(str(step.life))
            raise TableMoved(f"{step.life}: whether the commit was made is not known", unsettled=True)
        return original(lake, step, staged)

    monkeypatch.setattr(Lake, "commit", overtaken)
    monkeypatch.setattr(Lake, "discard", lambda lake, step, staged: removed.append(str(step.life)))
    keys = location.add_partitions()
    assert [key for key in keys if not location.materialize(key).success] == []
    assert moved
    assert removed == []  # a commit that takes effect yet needs its files
    assert location.differences() == []


def test_a_bad_value_fails_the_check_and_leaves_table_and_partition_as_they_were(
    tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    location = Location(Case("I_update_keys_clustered").config("csv-cf1"), tmp_path, instance)
    file = next(path for path in sorted(location.bucket.rglob("CDC*.csv")))
    good = file.read_bytes()
    file.write_bytes(good.replace(b"1,", b"one,", 1) if b"\n1," in good else good[:-2].rsplit(b",", 1)[0] + b",x\r\n")
    keys = location.add_partitions()
    results = {key: location.materialize(key) for key in keys if key.split("@")[0].count(".")}
    failed = [key for key, result in results.items() if not result.success]
    assert failed
    evaluations = [e for key in failed for e in results[key].get_asset_check_evaluations()]
    assert {e.passed for e in evaluations if e.check_name == "column_types"} == {False}
    assert {e.passed for e in evaluations if e.check_name == "holds"} == {False}
    assert not location.materialized("dml") & set(failed)


def tick(location: Location, cursor: str | None = None) -> dg.SensorResult | dg.SkipReason:
    sensor = location.defs.get_sensor_def(f"{NAME}_checkpoint")
    with dg.build_sensor_context(instance=location.instance, cursor=cursor, resources={"s3": S3Resource()}) as context:
        result = sensor(context)
    assert isinstance(result, (dg.SensorResult, dg.SkipReason))
    return result


def test_the_sensor_adds_partitions_and_asks_for_what_is_due_once(location: Location) -> None:
    result = tick(location)
    assert isinstance(result, dg.SensorResult)
    (request,) = result.run_requests or []
    (added,) = result.dynamic_partitions_requests or []
    assert list(added.partition_keys) == [format_partition_key(key) for key in location.partition_keys()]
    assert location.catch_up(request.run_config["ops"][f"{NAME}_catch_up_tables"]["config"]["tables"]).success
    again = tick(location, result.cursor)
    assert isinstance(again, dg.SensorResult)
    assert not again.run_requests
    assert isinstance(tick(location, again.cursor), dg.SkipReason)


def test_one_run_for_many_tables_logs_every_partition_with_its_check(
    tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    location = Location(Case("I_update_keys_nonclustered").config("csv-cf4"), tmp_path, instance)
    assert location.catch_up().success
    assert location.differences() == []
    keys = {format_partition_key(key) for key in location.partition_keys()}
    assert location.materialized("dml") == keys
    assert location.materialized("ddl") == keys


def test_a_second_run_changes_nothing(location: Location) -> None:
    first = location.catch_up()
    assert first.success
    state = LakeState(location.lake, NAME)
    before = {life: held.snapshot_id for life, held in state.tables().items()}
    assert location.catch_up().success
    assert {life: held.snapshot_id for life, held in LakeState(location.lake, NAME).tables().items()} == before


def test_every_table_of_the_lake_has_an_asset_after_a_reload(location: Location) -> None:
    assert location.catch_up().success
    keys = build_changefeed_defs(location.settings, location.lake).resolve_asset_graph().get_all_asset_keys()
    assert dg.AssetKey(["lake", "filt", "t"]) in keys


def test_every_run_reports_conformance_holds_and_quarantine_of_the_changefeed(location: Location) -> None:
    evaluations = {e.check_name: e for e in location.catch_up().get_asset_check_evaluations()}
    assert set(CHECKS) <= set(evaluations)
    assert evaluations["holds"].passed
    assert evaluations["quarantine"].passed


def test_a_held_table_fails_the_check_with_its_ways_out_and_a_release_lets_it_go_on(
    tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    location = Location(Case("N_filtered_ddl").config("csv-ts"), tmp_path, instance, {"add column": "hold"})
    held = location.catch_up()
    assert not held.success
    holds = {e.asset_key: e for e in held.get_asset_check_evaluations() if e.check_name == "holds"}
    of_all, of_table = holds[dg.AssetKey([NAME, "bucket"])], holds[dg.AssetKey(["lake", "filt", "t"])]
    assert not of_all.passed
    assert "release" in str(of_all.metadata["filt.t"].value)
    assert (of_table.passed, of_table.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert "cdc-assets release filt.t" in str(of_table.description)
    options = ConfiguredFeed(location.settings, location.lake).command_options
    assert [str(text).count(options) for text in (of_all.metadata["filt.t"].value, of_table.description)] == [1, 1]
    assert "cdc-assets release" not in str(of_all.description)  # a run's log has both
    assert set(location.failed("ddl")) == set(location.failed("dml")) != set()
    (row,) = lake_status(location.lake)
    version = next(way.split()[way.split().index("filt.t") + 1] for way in row.ways if "filt.t" in way.split())
    config = {"ops": {f"{NAME}_catch_up_tables": {"config": {"releases": {f"filt.t@{version}": "apply"}}}}}
    job = location.defs.resolve_job_def(f"{NAME}_catch_up")
    job.execute_in_process(run_config=config, instance=instance, raise_on_error=False)
    (after,) = lake_status(location.lake)
    # The recorded history adds a second column later, which the same policy holds.
    assert version not in after.reason
    assert after.through > row.through
    assert location.failed("ddl") != [f"filt.t@{int(version):020d}"]


def test_a_partition_whose_later_rows_stop_its_table_is_not_green_any_more(
    tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("s.t")
    feed.rows("s.t", FIRST, [("I", FIRST + 1, 1, "a")])
    feed.publish(FIRST + 9)
    location = Location.of(feed.settings(NAME), tmp_path, instance)
    assert location.catch_up().success
    assert location.failed("dml") == []
    feed.rows("s.t", FIRST, [("I", FIRST + 11, "one", "b")])
    feed.publish(FIRST + 19)
    assert not location.catch_up().success
    assert location.failed("dml") == [f"s.t@{FIRST:020d}"]
    assert location.failed("ddl") == []
