"""The jobs that rebuild and maintain, and their command lines, over a recorded changefeed."""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner
from dagster._core.storage.tags import RUN_KEY_TAG, SCHEDULE_NAME_TAG
from dagster._core.test_utils import create_run_for_test
from pydantic import SecretStr
from pyspark.sql import SparkSession

from cdc_assets.cli import commands
from cdc_assets.defs import build_changefeed_defs
from cdc_assets.defs.checks import equality_result, keeps_up_result
from cdc_assets.defs.extracts import window_range
from cdc_assets.defs.monitoring import metrics_sensors
from cdc_assets.features.dumps.settings import ServerAddress
from cdc_assets.lake import Lake
from cdc_assets.lake.state import LakeState
from cdc_assets.model.comparison import EQUAL, TableComparison
from cdc_assets.model.forecast import Forecast, Pace
from cdc_assets.model.forgetting import kept_out
from cdc_assets.model.schema import TableId
from cdc_assets.settings.config import Settings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.settings.sections import CutSettings, VerifySettings
from cdc_assets_tests.cases import Case
from cdc_assets_tests.cut_feed import fence
from cdc_assets_tests.defs.test_assets import NAME, Location
from cdc_assets_tests.loaded import drop, load
from cdc_assets_tests.mariadb import PASSWORD, Server
from cdc_assets_tests.operations.test_maintenance import EAGER

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),  # Dagster says what is new in it
]


@pytest.fixture
def location(tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession) -> Location:
    made = Location(Case("I_update_keys_clustered").config("csv-cf4"), tmp_path, instance)
    made.settings = made.settings.model_copy(update={"maintenance": EAGER})
    made.defs = build_changefeed_defs(made.settings, made.lake)
    made.catch_up()
    return made


def run(location: Location, job: str, **config: Any) -> dg.ExecuteInProcessResult:
    given = {"ops": {f"{NAME}_{job}_tables": {"config": config}}}
    defined = location.defs.resolve_job_def(f"{NAME}_{job}")
    return defined.execute_in_process(run_config=given, instance=location.instance, raise_on_error=False)


def lose_rows(location: Location, spark: SparkSession) -> None:
    lake = Lake(location.lake, NAME, lambda: spark)
    for name in sorted(lake.names()):
        with lake.workbench.sessions.step() as session:
            session.sql(f"DELETE FROM {session.name(lake.state.named(name).identifier)} WHERE _cdc_commit_ts > 0")
    lake.close()


def observation_of(event: dg.DagsterEvent) -> Any:
    """The observation of an event, None for any other event."""
    data: Any = event.event_specific_data
    return data.asset_observation if event.event_type == dg.DagsterEventType.ASSET_OBSERVATION else None


def materialization_of(event: dg.DagsterEvent) -> Any:
    """The materialization of an event, None for any other event."""
    data: Any = event.event_specific_data
    return data.materialization if event.event_type == dg.DagsterEventType.ASSET_MATERIALIZATION else None


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    (event,) = result.get_step_failure_events()
    return str(event.step_failure_data.error)


def test_a_rebuild_from_the_launch_form_makes_every_table_equal_again(location: Location, spark: SparkSession) -> None:
    lose_rows(location, spark)
    assert location.differences()
    result = run(location, "rebuild", every_table=True)
    assert result.success
    assert location.differences() == []
    logged = result.get_asset_materialization_events()
    assert len(logged) == len(LakeState(location.lake, NAME).tables())
    assert all(event.materialization.metadata["rebuilt"].value is True for event in logged)


@pytest.mark.parametrize("config", [{}, {"tables": ["a.b"], "every_table": True}])
def test_a_rebuild_of_nothing_or_of_two_things_at_once_is_refused(location: Location, config: dict[str, Any]) -> None:
    result = run(location, "rebuild", **config)
    assert "expected one of the three" in failure_of(result)


def test_a_rebuild_without_a_file_of_the_history_is_refused_and_names_it(location: Location) -> None:
    path = max(location.bucket.rglob("CDC*.csv"))
    path.unlink()
    result = run(location, "rebuild", every_table=True)
    assert f"{path.relative_to(location.bucket).as_posix()} existed and is missing now" in failure_of(result)
    assert location.differences() == []


def test_the_schedule_asks_for_a_run_while_something_is_due_and_the_run_logs_before_and_after(
    location: Location, spark: SparkSession
) -> None:
    lake = Lake(location.lake, NAME, lambda: spark)
    name = min(lake.names())
    with lake.workbench.sessions.step() as session:
        table = session.name(lake.state.named(name).identifier)
        for _ in range(3):
            session.sql(f"INSERT INTO {table} SELECT * FROM {table} LIMIT 0")
            session.sql(
                f"MERGE INTO {table} _cdc_t USING (SELECT * FROM {table} LIMIT 1) _cdc_s ON _cdc_t._cdc_commit_ts = -1 "
                "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
            )
    lake.close()
    schedule = location.defs.resolve_schedule_def(f"{NAME}_maintenance")
    resources = {"s3": (location.defs.resources or {})["s3"]}

    def tick() -> Any:
        with dg.build_schedule_context(instance=location.instance, resources=resources) as context:
            return schedule.evaluate_tick(context)

    assert len(tick().run_requests) == 1
    result = run(location, "maintain")
    assert result.success
    (seen,) = [
        observation
        for observation in map(observation_of, result.all_events)
        if observation is not None and observation.asset_key == dg.AssetKey(["lake", name.schema, name.table])
    ]
    assert seen.metadata["data_files_before"].value > seen.metadata["data_files"].value == 1
    assert tick().skip_message == f"nothing is due for {len(LakeState(location.lake, NAME).tables())} tables"


def test_the_job_compares_with_the_source_and_the_check_names_rows_that_differ(
    location: Location, mariadb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(mariadb, location.config.case.expected())
    monkeypatch.setenv("SOURCE_PASSWORD", PASSWORD)
    source = ServerAddress(uri=SecretStr(mariadb.uri), password={"env": "SOURCE_PASSWORD"})
    verify = VerifySettings(source=source, tables=("test.*",), quiet=True)
    location.settings = location.settings.model_copy(update={"verify": verify})
    location.defs = build_changefeed_defs(location.settings, location.lake)
    result = run(location, "verify")
    assert result.success
    tables = LakeState(location.lake, NAME).tables().values()
    checks = {evaluation.asset_key.path[-1]: evaluation for evaluation in result.get_asset_check_evaluations()}
    assert checks.keys() == {table.name.table for table in tables if table.name is not None}
    assert all(evaluation.check_name == "equals_source" and evaluation.passed for evaluation in checks.values())
    name = min(checks)
    mariadb.run(f"DELETE FROM test.{name} LIMIT 1")
    result = run(location, "verify", tables=[f"test.{name}"])
    assert not result.success
    (check,) = result.get_asset_check_evaluations()
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
    rows: Any = check.metadata["rows"].value
    assert [record.data["row"] for record in getattr(rows, "records", rows)] == ["extra"]
    assert "1 only in the lake" in failure_of(result)
    drop(mariadb, "test")


def test_the_check_of_equality_fails_for_a_table_that_moved_on_long_ago_or_was_never_compared() -> None:
    key, day = dg.AssetKey("t"), 86_400_000 << 18
    equal = TableComparison(table=TableId("s", "t"), state=EQUAL, through=5 << 60)
    assert equality_result(key, equal, (5 << 60) + 2 * day, 3).passed
    stale = equality_result(key, equal, (5 << 60) + 4 * day, 3)
    assert (stale.passed, stale.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert stale.description is not None
    assert stale.description.startswith("It is applied 4.0 days further than when it was compared.")
    assert equality_result(key, None, 5 << 60, 3).passed is False


def test_the_check_of_the_pace_fails_for_a_table_that_falls_behind_alone() -> None:
    key = dg.AssetKey("t")
    behind = keeps_up_result(key, Forecast(Pace.FALLING_BEHIND, 9000.0, 0.5, 0.4, 0.6))
    assert (behind.passed, behind.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert behind.metadata["rate"] == dg.MetadataValue.float(0.5)
    assert "falls behind: each second it applies 0.50 s" in str(behind.description)
    assert all(
        keeps_up_result(key, Forecast(pace, 1.0)).passed for pace in (Pace.UNKNOWN, Pace.KEEPING, Pace.UP_TO_DATE)
    )


def test_the_command_line_lists_what_is_due_without_doing_it(location: Location) -> None:
    given = ["--sink-uri", location.settings.sink_uri.get_secret_value(), "--name", NAME]
    given += ["--warehouse", location.lake.warehouse]
    if location.settings.changefeed_config:
        given += ["--config", str(location.settings.changefeed_config)]
    done = CliRunner().invoke(commands, ["maintain", "--dry-run", "--json", *given], catch_exceptions=False)
    (report,) = json.loads(done.output)
    assert report["changefeed"] == NAME
    assert report["idle"] + len(report["tables"]) == len(LakeState(location.lake, NAME).tables())


def test_the_sensor_of_metrics_writes_a_file_and_says_why_it_cannot(location: Location, tmp_path: Path) -> None:
    file = tmp_path / "cdc.prom"

    def tick(place: Path, lake: LakeSettings = location.lake) -> str | None:
        (sensor,) = metrics_sensors(Settings(lake=lake, changefeeds=(location.settings,), metrics_file=place))
        result = sensor(dg.build_sensor_context(location.instance))
        assert isinstance(result, dg.SkipReason)
        return result.skip_message

    assert metrics_sensors(Settings(lake=location.lake, changefeeds=(location.settings,))) == []
    assert str(tmp_path / "none") in str(tick(file, LakeSettings.from_warehouse(tmp_path / "none")))
    assert not file.exists()
    tick(file)
    printed = CliRunner().invoke(commands, ["metrics", "--warehouse", str(location.lake.local_directory)])
    assert file.read_text() == printed.output
    assert "cdc_assets_table_rows{" in printed.output
    with pytest.raises(Exception, match="cannot be written"):
        tick(tmp_path / "gone" / "cdc.prom")


def test_the_command_line_wants_to_know_which_tables_to_rebuild(location: Location) -> None:
    with pytest.raises(Exception, match="Name the tables to rebuild, or give --all"):
        CliRunner().invoke(
            commands,
            ["rebuild", "--sink-uri", "/nowhere?protocol=csv", "--warehouse", "/nowhere"],
            catch_exceptions=False,
            standalone_mode=False,
        )


def test_the_job_makes_a_cut_that_is_an_event_with_its_tables_and_refuses_a_name_given_twice(
    location: Location,
) -> None:
    result = run(location, "cut", name="report")
    assert result.success
    (seen,) = [
        materialization
        for materialization in map(materialization_of, result.all_events)
        if materialization and materialization.asset_key.path[-1] == "cuts"
    ]
    made: dict[str, Any] = {key: value.value for key, value in seen.metadata.items()}
    assert made["cut"] == "report"
    assert made["table_count"] == len(LakeState(location.lake, NAME).tables())
    assert [record.data["left_out"] for record in seen.metadata["tables"].records] == [""] * made["table_count"]
    again = run(location, "cut", name="report")
    assert "there is a cut report already" in failure_of(again)


def test_the_schedule_of_regular_cuts_asks_for_a_run_that_makes_the_one_due(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = location.settings.model_copy(update={"cuts": CutSettings(every="1d")})
    defs = build_changefeed_defs(given, location.lake)
    schedule, resources = defs.resolve_schedule_def(f"{NAME}_cuts"), {"s3": (defs.resources or {})["s3"]}

    def tick() -> Any:
        with dg.build_schedule_context(instance=location.instance, resources=resources) as context:
            return schedule.evaluate_tick(context)

    assert tick().skip_message == "no cut is due"  # the first day has not ended
    fence(location.bucket, location.settings.open_source().fence() + (86_400_000 << 18))
    (request,) = tick().run_requests
    tags = {SCHEDULE_NAME_TAG: f"{NAME}_cuts", RUN_KEY_TAG: request.run_key}  # as Dagster's daemon sets them
    going_on = dg.DagsterRunStatus.STARTED
    run_of_it = create_run_for_test(location.instance, f"{NAME}_catch_up", tags=tags, status=going_on)
    assert tick().skip_message == "a run was asked for"
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 2 * 3600)
    assert tick().skip_message == "a run was asked for"  # and goes on
    location.instance.report_run_failed(run_of_it)
    assert [run_request.run_key for run_request in tick().run_requests] == [request.run_key]
    monkeypatch.setattr(time, "time", clock)
    assert tick().skip_message == "a run was asked for"
    assert defs.resolve_job_def(f"{NAME}_catch_up").execute_in_process(instance=location.instance).success
    made = location.instance.get_latest_materialization_event(dg.AssetKey([NAME, "cuts"]))
    assert made is not None
    assert tick().skip_message == "no cut is due"
    assert dg.AssetKey([NAME, "cuts"]) in defs.resolve_asset_graph().get_all_asset_keys()


@pytest.mark.parametrize("rebuilt", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_the_job_forgets_rows_by_keys_that_no_event_has(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rebuilt: bool
) -> None:
    name, token = TableId("test", "update_pk"), "no-number-4711"

    def forgotten(**config: Any) -> dg.ExecuteInProcessResult:
        given = {"ops": {f"{NAME}_forget_rows": {"config": {"table": str(name), "confirmed": True, **config}}}}
        defined = location.defs.resolve_job_def(f"{NAME}_forget")
        return defined.execute_in_process(run_config=given, instance=location.instance, raise_on_error=False)

    def left() -> list[Any]:
        rows = LakeState(location.lake, NAME).read(name)
        return list(rows.column(rows.column_names[0]).to_pylist())

    monkeypatch.setenv("PRIVACY_KEY", "a key")
    monkeypatch.setenv("FORGET_THESE", token)
    given = location.settings.model_copy(update={"privacy_key": {"env": "PRIVACY_KEY"}})
    location.defs = build_changefeed_defs(given, location.lake)
    assert "one of the four" in failure_of(forgotten())
    assert "Set confirmed to true" in failure_of(forgotten(keys_variable="FORGET_THESE", confirmed=False))
    assert "no run that forgets rows" in failure_of(forgotten(abandon=True))
    refused = forgotten(keys_variable="FORGET_THESE")
    assert "is no value of the key column" in failure_of(refused)
    assert not any(token in str(event) for event in location.instance.all_logs(refused.run_id))
    assert "there is no such file" in failure_of(forgotten(keys_file=f"file://{tmp_path}/keys.csv"))
    first, *others = left()
    (tmp_path / "keys.csv").write_text(f"{first}\n")
    result = forgotten(keys_file=f"file://{tmp_path}/keys.csv", until="forever", decision="asked-for")
    assert result.success
    (event,) = [materialization for materialization in map(materialization_of, result.all_events) if materialization]
    assert (event.asset_key.path[-1], event.metadata["dagster/row_count"].value) == (name.table, len(others))
    (seen,) = [observation for observation in map(observation_of, result.all_events) if observation]
    figures = {key: value.value for key, value in seen.metadata.items()}
    assert "spark.local.dir" in figures["not_searched"]
    assert {record.data["keys with rows"] for record in seen.metadata["removed"].records} == {1}
    assert (figures["keys"], figures["complete"], figures["kept_out_by"], left()) == (1, True, "asked-for", others)
    if rebuilt:
        assert run(location, "rebuild", tables=[str(name)]).success
    assert left() == others
    assert forgotten(undo="asked-for").success
    assert kept_out(LakeState(location.lake, NAME).decisions.read()) == ()


def test_the_job_writes_the_changes_of_a_window_and_says_what_is_missing(location: Location, tmp_path: Path) -> None:
    def extracted(until: str, out: Path) -> dg.ExecuteInProcessResult:
        given = {"table": "test.update_pk", "since": "0", "until": until, "out": str(out), "format": "jsonl"}
        defined = location.defs.resolve_job_def(f"{NAME}_extract")
        config = {"ops": {f"{NAME}_extract_changes": {"config": given}}}
        return defined.execute_in_process(run_config=config, instance=location.instance, raise_on_error=False)

    start, end = (datetime(2026, 3, 30, hour, tzinfo=timezone.utc) for hour in (22, 23))
    assert window_range(start, end)[1] == window_range(end, end)[0]
    through = str(LakeState(location.lake, NAME).named(TableId("test", "update_pk")).label.rows_from)
    assert extracted(through, tmp_path / "out").success
    assert (tmp_path / "out" / "changes.jsonl").read_text().count("\n") > 2
    assert "has files already" in failure_of(extracted(through, tmp_path / "out"))
    assert "the feed is complete through" in failure_of(extracted("2100-01-01", tmp_path / "other"))
