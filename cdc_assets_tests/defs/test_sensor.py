"""The sensor as a reconciler: what it asks for, when it rests, and what a tick costs. No run is carried out here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.instigation_logger import InstigationLogger
from dagster._core.events import EngineEventData
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._core.test_utils import create_run_for_test
from dagster_shared.error import SerializableErrorInfo

from cdc_assets.defs import lost_runs, names
from cdc_assets.defs import sensor as sensor_module
from cdc_assets.defs.catch_up import catch_up_job
from cdc_assets.defs.catch_up_config import format_run_config, parse_run_config
from cdc_assets.defs.failures import run_reasons
from cdc_assets.defs.resources import ConfiguredFeed, S3Credentials
from cdc_assets.defs.sensor import MAX_NEW_KEYS, SensorCursor, checkpoint_sensor
from cdc_assets.model.ledger_entries import TableState
from cdc_assets.model.progress import State
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import wall_clock_ms
from cdc_assets.operations.opening import open_ledger
from cdc_assets.planning.partitions import format_table
from cdc_assets.planning.run_batches import Attempt
from cdc_assets.run_coordinator import GAVE_WAY_TAG, TABLE_TAG, table_of
from cdc_assets.settings.config import CONFIG_VARIABLE
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.sources.storage_sink.source import StorageSink
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.trips import files_of

JOB = "little_catch_up"
SOON = wall_clock_ms(FIRST) // 1000 + 60
"""A minute after the feed's first TSO, in seconds since 1970."""


class Watched:
    """A feed, an instance, and a sensor whose clock the test turns."""

    def __init__(self, directory: Path, instance: dg.DagsterInstance, **settings: Any) -> None:
        self.feed = LittleFeed(directory)
        self.instance = instance
        self.now = SOON
        self.cursor: str | None = None
        self.source = ConfiguredFeed(self.feed.settings(**settings), LakeSettings.from_warehouse(directory / "lake"))
        self.partitions = dg.DynamicPartitionsDefinition(name="cdc_little")
        self.sensor = checkpoint_sensor(
            self.source, self.partitions, catch_up_job(self.source, JOB), "little", S3Credentials(), lambda: self.now
        )

    def tables(self, count: int, size: int = 1) -> None:
        for number in range(count):
            self.feed.create(f"s.t{number}")
            self.feed.rows(f"s.t{number}", FIRST, [("I", FIRST + 1, key, "x" * 30) for key in range(size)])
        self.feed.publish(FIRST + 10)

    def tick(self, seconds: int = 0) -> dg.SensorResult | dg.SkipReason:
        self.now += seconds
        with self._context() as context:
            result = self.sensor(context)
        assert isinstance(result, (dg.SensorResult, dg.SkipReason))
        if isinstance(result, dg.SensorResult):
            self.cursor = result.cursor
        return result

    def passed(self, seconds: int) -> set[str]:
        """Return the files that a tick without news passes."""
        self.now += seconds
        with self._context() as context:
            files, result = files_of(lambda: self.sensor(context))
        assert isinstance(result, dg.SkipReason)
        return files

    def _context(self) -> dg.SensorEvaluationContext:
        return dg.build_sensor_context(self.instance, cursor=self.cursor)

    def asked(self, seconds: int = 0) -> list[dict[str, Any]]:
        """Return the configurations of the runs that a tick asks for, with their attempts."""
        result = self.tick(seconds)
        requests = (result.run_requests or []) if isinstance(result, dg.SensorResult) else []
        return [{**_config(request), "attempt": request.tags["cdc/attempt"]} for request in requests]

    def begin(self, config: dict[str, Any], status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTED) -> str:
        given = {key: config[key] for key in ("tables", "exclude") if key in config}
        run = create_run_for_test(
            self.instance,
            job_name=JOB,
            status=status,
            tags={"cdc/changefeed": "little"},
            run_config={"ops": {f"{JOB}_tables": {"config": given}}},
        )
        return str(run.run_id)


def _config(request: dg.RunRequest) -> dict[str, Any]:
    config: dict[str, Any] = request.run_config["ops"][f"{JOB}_tables"]["config"]
    return config


def why(result: dg.SensorResult | dg.SkipReason) -> str:
    reason = result.skip_reason if isinstance(result, dg.SensorResult) else result
    assert reason is not None
    return f"{reason.skip_message}"


@pytest.fixture
def watched(tmp_path: Path, instance: dg.DagsterInstance) -> Watched:
    return Watched(tmp_path, instance)


# --- what is asked for ------------------------------------------------------------------------------------------------


def test_without_a_checkpoint_the_sensor_says_what_it_waits_for(watched: Watched) -> None:
    assert "metadata" in why(watched.tick())


def test_a_tick_that_requests_runs_says_so_in_its_log(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = list[str]()
    monkeypatch.setattr(InstigationLogger, "info", lambda _, text, *__, **___: sentences.append(text))
    watched.tables(3)
    watched.tick()
    (sentence,) = sentences
    assert f"checkpoint {FIRST + 10}" in sentence
    assert "1 run is requested for 3 tables" in sentence
    watched.begin({"tables": []})
    assert "in progress" in why(watched.tick(2))
    assert len(sentences) == 1


def test_a_few_tables_share_one_run_that_takes_all_and_is_kept_alive(watched: Watched) -> None:
    watched.tables(3)
    assert watched.asked() == [{"tables": [], "exclude": [], "keep_alive": True, "attempt": "1"}]


def test_a_table_with_much_to_read_has_a_run_of_its_own(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    watched = Watched(tmp_path, instance, run_bytes=2000)
    watched.tables(2)
    watched.feed.create("s.large")
    watched.feed.rows("s.large", FIRST, [("I", FIRST + 1, key, "x" * 30) for key in range(200)])
    large = f"s.large@{FIRST}"
    rest, own = sorted(watched.asked(), key=lambda config: len(config["tables"]))
    assert (rest["tables"], rest["exclude"]) == ([], [large])
    assert (own["tables"], own["exclude"]) == ([large], [])


@pytest.mark.parametrize("name", ["t@1", "größe", "a b"])
def test_a_run_for_one_table_waits_for_runs_of_its_partitions(
    name: str, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    watched = Watched(tmp_path, instance, run_bytes=2000)
    watched.tables(1)
    watched.feed.create(f"s.{name}")
    watched.feed.rows(f"s.{name}", FIRST, [("I", FIRST + 1, key, "x" * 30) for key in range(200)])
    result = watched.tick()
    assert isinstance(result, dg.SensorResult)
    (tag,) = (request.tags[TABLE_TAG] for request in result.run_requests or [] if TABLE_TAG in request.tags)
    assert tag in {table_of(key) for added in result.dynamic_partitions_requests or [] for key in added.partition_keys}
    assert tag == format_table(TableId("s", name))


def test_many_tables_are_asked_for_in_chunks_and_only_so_many_runs_at_once(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    watched = Watched(tmp_path, instance, run_tables=10, runs_at_once=2)
    watched.tables(35)
    first = watched.asked()
    assert [len(config["tables"]) for config in first] == [10, 10]
    for config in first:
        watched.begin(config)
    assert watched.asked(5) == []


def test_what_a_run_takes_is_not_asked_for_while_it_lasts(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    watched = Watched(tmp_path, instance, run_tables=2)
    watched.tables(3)
    first = watched.asked()[0]
    watched.begin(first)
    watched.feed.publish(FIRST + 20)
    taken = {table for config in watched.asked(5) for table in config["tables"]}
    assert not taken & set(first["tables"])


def test_a_run_of_a_partition_keeps_its_table_busy(watched: Watched) -> None:
    watched.tables(2)
    tags = {"cdc/changefeed": "little", "dagster/partition": f"s.t0@{FIRST:020d}"}
    create_run_for_test(watched.instance, job_name="__ASSET_JOB", status=dg.DagsterRunStatus.STARTED, tags=tags)
    (config,) = watched.asked()
    assert config["exclude"] == [f"s.t0@{FIRST}"]


def test_a_run_whose_process_is_gone_is_failed_and_what_it_left_is_asked_for_again(watched: Watched) -> None:
    watched.tables(2)
    (config,) = watched.asked()
    run = watched.instance.get_run_by_id(watched.begin(config))
    assert run is not None
    watched.instance.add_run_tags(run.run_id, {GRPC_INFO_TAG: "{}"})
    watched.feed.publish(FIRST + 20)
    assert watched.asked(15) == []
    watched.instance.report_engine_event("Started process for run", run, EngineEventData.in_process(os.getpid()))
    assert watched.asked(15) == []
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    watched.instance.report_engine_event("Started process for run", run, EngineEventData.in_process(process.pid))
    assert [config["attempt"] for config in watched.asked(90)] == ["2"]
    failed = watched.instance.get_run_by_id(run.run_id)
    assert failed is not None
    assert failed.status is dg.DagsterRunStatus.FAILURE
    assert f"({process.pid}) is gone" in run_reasons(watched.instance, run.run_id)[0]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no process is known again here")
def test_a_run_goes_on_though_the_clock_is_set_and_is_lost_once_another_process_has_its_id(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched.tables(2)
    (config,) = watched.asked()
    run = watched.instance.get_run_by_id(watched.begin(config))
    assert run is not None
    watched.instance.add_run_tags(run.run_id, {GRPC_INFO_TAG: "{}"})
    watched.instance.report_engine_event("Started process for run", run, EngineEventData.in_process(os.getpid()))
    watched.feed.publish(FIRST + 20)
    assert watched.asked(15) == []
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 3600)
    watched.feed.publish(FIRST + 30)
    assert watched.asked(15) == []
    monkeypatch.setattr(time, "time", clock)
    tags = watched.instance.get_run_by_id(run.run_id).tags  # type: ignore[union-attr]  # it is there
    known, pid, ticks, machine = tags[lost_runs.PROCESS_TAG].split("/")
    watched.instance.add_run_tags(run.run_id, {lost_runs.PROCESS_TAG: f"{known}/{pid}/{int(ticks) - 1}/{machine}"})
    assert [config["attempt"] for config in watched.asked(90)] == ["2"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no process is known again here")
def test_a_retry_is_not_the_process_of_the_run_whose_tags_it_has(instance: dg.DagsterInstance) -> None:
    def begun(tags: dict[str, str]) -> str:
        run = create_run_for_test(instance, job_name=JOB, status=dg.DagsterRunStatus.STARTED, tags=tags)
        instance.report_engine_event("Started process for run", run, EngineEventData.in_process(os.getpid()))
        lost_runs.fail_lost_runs(instance, [run])
        current_run = instance.get_run_by_id(run.run_id)
        assert current_run is not None
        assert lost_runs.fail_lost_runs(instance, [current_run]) == set()
        return current_run.tags[lost_runs.PROCESS_TAG]

    first = begun({GRPC_INFO_TAG: "{}"})
    place, _, machine = first.rpartition("/")
    before = f"{place}/{machine[::-1]}"  # the container began anew, and its processes have the same ids again
    assert machine != machine[::-1]
    assert begun({GRPC_INFO_TAG: "{}", lost_runs.PROCESS_TAG: before}).endswith(f"/{machine}")


def test_a_run_that_no_code_server_started_may_be_anywhere(instance: dg.DagsterInstance) -> None:
    run = create_run_for_test(instance, job_name=JOB, status=dg.DagsterRunStatus.STARTED)
    instance.report_engine_event("Executing steps in process", run, EngineEventData.in_process(2**22 + 1))
    assert lost_runs.fail_lost_runs(instance, [run]) == set()


def test_a_process_that_began_after_a_run_told_its_own_is_another_one() -> None:
    assert lost_runs._lives(os.getpid(), time.time())
    assert not lost_runs._lives(os.getpid(), time.time() - 10 * 24 * 3600)


def test_a_table_is_left_alone_for_its_interval_after_a_run(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    watched = Watched(tmp_path, instance, table_interval_seconds=300)
    watched.tables(1)
    (config,) = watched.asked()
    run_id = watched.begin(config)
    run = instance.get_run_by_id(run_id)
    assert run is not None
    instance.report_run_failed(run)
    record = instance.get_run_record_by_id(run_id)
    assert record is not None
    assert record.end_time is not None
    watched.now = int(record.end_time)
    watched.feed.publish(FIRST + 20)
    assert watched.asked(200) == []
    assert len(watched.asked(200)) == 1


# --- failing tables ---------------------------------------------------------------------------------------------------


def test_a_table_that_does_not_move_rests_longer_each_time_and_is_never_given_up(watched: Watched) -> None:
    watched.tables(1)
    watched.asked()
    rests = []
    for number in range(9):
        watched.feed.publish(FIRST + 20 + number)
        rest = min(60 << number, 3600)
        early, late = watched.asked(rest - 1), watched.asked(1)
        rests.append((len(early), [config["attempt"] for config in late]))
    assert rests == [(0, [str(number + 2)]) for number in range(9)]


@pytest.mark.parametrize("gave_way", [True, False])
def test_what_a_run_left_when_it_gave_way_is_requested_at_once_as_nothing_failed(
    gave_way: bool, watched: Watched
) -> None:
    watched.now = int(time.time()) - 5
    watched.tables(2)
    (config,) = watched.asked()
    run_id = watched.begin(config, dg.DagsterRunStatus.SUCCESS)
    if gave_way:
        watched.instance.add_run_tags(run_id, {GAVE_WAY_TAG: "true"})
    watched.now = int(time.time()) + 1
    again = watched.asked()
    assert [config["attempt"] for config in again] == (["1"] if gave_way else [])
    for next_config in again:  # this one gives way to none: what it does not do rests
        watched.begin(next_config, dg.DagsterRunStatus.SUCCESS)
    assert watched.asked(1) == []


def test_the_same_checkpoint_is_tried_again_as_well(watched: Watched) -> None:
    watched.tables(1)
    attempts = [config["attempt"] for _ in range(8) for config in watched.asked(30)]
    assert attempts[:3] == ["1", "2", "3"]


def test_a_resting_table_does_not_block_a_new_one(watched: Watched) -> None:
    watched.tables(1)
    watched.asked()
    watched.feed.create("s.new", FIRST + 15)
    watched.feed.publish(FIRST + 20)
    (config,) = watched.asked(10)
    assert (config["tables"], config["exclude"], config["attempt"]) == ([], [f"s.t0@{FIRST}"], "1")


@pytest.mark.parametrize(
    ("taken", "exclusions"),
    [({"tables": ["s.t0"]}, ([], [f"s.t0@{FIRST}"])), ({"exclude": ["s.t1"]}, ([f"s.t1@{FIRST}"], []))],
)
def test_tables_that_a_run_names_as_at_the_command_line_are_underway(
    taken: dict[str, Any], exclusions: tuple[list[str], list[str]], watched: Watched
) -> None:
    watched.tables(2)
    watched.begin(taken)
    (config,) = watched.asked()
    assert (config["tables"], config["exclude"]) == exclusions


def test_run_keys_differ_for_every_attempt(watched: Watched) -> None:
    watched.tables(1)
    keys = []
    for _ in range(6):
        result = watched.tick(200)
        if isinstance(result, dg.SensorResult):
            keys += [request.run_key for request in result.run_requests or []]
    assert len(keys) > 2
    assert len(set(keys)) == len(keys)


def test_a_hold_is_requested_once_so_that_an_alert_goes_out(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    watched = Watched(tmp_path, instance, policies={"create table": "hold"})
    watched.tables(1)
    assert len(watched.asked()) == 1
    with watched.source.pipeline(S3Credentials()) as pipeline:
        pipeline.record_status("the run")
    watched.feed.publish(FIRST + 20)
    assert watched.asked(100) == []
    assert "1 table is on hold" in why(watched.tick(100))
    watched.tick()
    assert "1 table is on hold" in why(watched.tick(10))


def failed(watched: Watched, config: dict[str, Any], reason: str) -> None:
    """Let a run that the sensor asked for end as one does whose tables stop."""

    @dg.op(name=f"{JOB}_tables", config_schema={"tables": [str], "exclude": [str]})
    def stops() -> None:
        raise dg.Failure(reason, allow_retries=False)

    @dg.job(name=JOB, tags={"cdc/changefeed": "little"})
    def job() -> None:
        stops()

    given = {key: config[key] for key in ("tables", "exclude")}
    run_config = {"ops": {f"{JOB}_tables": {"config": given}}}
    job.execute_in_process(run_config=run_config, instance=watched.instance, raise_on_error=False)


def never_loaded(watched: Watched, config: dict[str, Any], reason: str) -> None:
    """Let a run end as one does whose process finds no definitions."""
    run = watched.instance.get_run_by_id(watched.begin(config, dg.DagsterRunStatus.STARTING))
    assert run is not None
    error = SerializableErrorInfo(reason, [], "DagsterInvalidDefinitionError")
    watched.instance.report_engine_event("the process ended", run, EngineEventData.engine_error(error))
    watched.instance.report_run_failed(run)


def test_a_tick_shows_what_waits_after_a_failed_run_until_it_is_tried_again(watched: Watched) -> None:
    watched.tables(2)
    (config,) = watched.asked()
    failed(watched, config, "s.t9: a hold\ns.t1: line 7 is not an INT")
    again = "2 tables wait after a failed run, retried at 2026-03-31T00:00:03.000Z: s.t1: line 7 is not an INT"
    messages = [why(watched.tick(20)) for _ in range(2)]
    assert all(again in sentence for sentence in messages), messages
    watched.feed.publish(FIRST + 20)
    assert again in why(watched.tick(10))
    (config,) = watched.asked(40)
    assert config["attempt"] == "2"
    watched.begin(config)
    assert "1 run of this changefeed in progress" in why(watched.tick(5))


def test_a_tick_shows_why_a_run_never_came_to_its_first_step(watched: Watched) -> None:
    watched.tables(1)
    (config,) = watched.asked()
    never_loaded(watched, config, '"lake_South Side" is not a valid name in Dagster')
    message = why(watched.tick(20))
    assert "1 table waits after a failed run" in message
    assert '"lake_South Side" is not a valid name in Dagster' in message


def test_a_tick_shows_the_reason_of_each_of_a_few_runs_once_and_in_short(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    watched = Watched(tmp_path, instance, run_tables=1, runs_at_once=4)
    watched.tables(4)
    for number, config in enumerate(watched.asked()):
        failed(watched, config, f"the disk is full, says {number // 3}" + "." * 1000)
    message = why(watched.tick(20))
    assert "4 tables wait after a failed run" in message
    assert message.count("the disk is full") == 2
    assert len(message) < 1000
    assert len(watched.cursor or "") < 2000


def test_a_busy_tick_shows_what_waits_beside_the_runs(watched: Watched) -> None:
    watched.tables(1)
    (config,) = watched.asked()
    failed(watched, config, "s.t0: line 7 is not an INT")
    watched.feed.create("s.new", FIRST + 15)
    watched.feed.publish(FIRST + 20)
    (config,) = watched.asked(10)
    watched.begin(config)
    message = why(watched.tick(5))
    assert "1 run of this changefeed in progress; 1 table waits after a failed run" in message
    assert "line 7 is not an INT" in message


# --- partitions -------------------------------------------------------------------------------------------------------


def test_only_new_partitions_are_added(watched: Watched) -> None:
    watched.tables(2)
    first = watched.tick()
    assert isinstance(first, dg.SensorResult)
    (added,) = first.dynamic_partitions_requests or []
    watched.instance.add_dynamic_partitions("cdc_little", added.partition_keys)
    watched.feed.create("s.new", FIRST + 15)
    watched.feed.publish(FIRST + 20)
    second = watched.tick(10)
    assert isinstance(second, dg.SensorResult)
    (added,) = second.dynamic_partitions_requests or []
    assert list(added.partition_keys) == [f"s.new@{FIRST + 15:020d}"]


def test_many_partitions_are_added_at_once(watched: Watched) -> None:
    watched.tables(MAX_NEW_KEYS + 1)
    result = watched.tick()
    assert isinstance(result, dg.SensorResult)
    assert not result.dynamic_partitions_requests
    assert len(watched.instance.get_dynamic_partitions("cdc_little")) == MAX_NEW_KEYS + 1


def test_keys_are_added_in_pieces_that_a_statement_can_take(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "KEYS_AT_ONCE", 2)
    wanted = [f"s.t{number}@{FIRST:020d}" for number in range(5)]
    names.add_keys(instance, "little", wanted[:1])
    names.add_keys(instance, "little", wanted)
    assert sorted(instance.get_dynamic_partitions("cdc_little")) == wanted


def test_more_than_a_thousand_tables_are_taken_in_by_chunks_with_a_small_cursor(watched: Watched) -> None:
    watched.tables(1100)
    configs = watched.asked()
    assert [len(config["tables"]) for config in configs] == [500, 500]
    assert len(watched.instance.get_dynamic_partitions("cdc_little")) == 1100
    assert len(watched.cursor or "") < 8000


def test_a_sensor_says_that_it_has_the_settings_of_before(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "changefeeds.yaml"
    settings.write_text("old")
    monkeypatch.setenv(CONFIG_VARIABLE, str(settings))
    watched = Watched(tmp_path / "place", instance)
    watched.feed.publish(FIRST)
    assert "reload" not in why(watched.tick())
    settings.write_text("newer")
    assert "the settings changed since this sensor read them: reload the code location" in why(watched.tick(700))


# --- idle ticks and lag -----------------------------------------------------------------------------------------------


def test_an_idle_tick_reads_the_checkpoint_and_nothing_else(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    watched.feed.publish(FIRST)
    watched.tick()

    def never(*_: object, **__: object) -> None:
        raise AssertionError("an idle tick lists nothing and opens no lake")

    monkeypatch.setattr(StorageSink, "listing", never)
    monkeypatch.setattr(ConfiguredFeed, "pipeline", never)
    monkeypatch.setattr(sensor_module, "_Underway", never)
    monkeypatch.setattr(dg.SensorEvaluationContext, "instance", property(never))  # to open it takes 50 ms
    assert not watched.sensor.required_resource_keys, "Dagster opens its instance to make resources"
    assert "nothing is due" in why(watched.tick(10))


def test_an_idle_tick_passes_few_files(watched: Watched) -> None:
    watched.feed.publish(FIRST)
    watched.tick()
    files = watched.passed(10)
    assert len(files) <= 4, sorted(files)


def test_the_same_checkpoint_is_looked_at_again_in_the_end(watched: Watched) -> None:
    watched.feed.publish(FIRST)
    watched.tick()
    watched.feed.create("s.late", FIRST)  # the old architecture publishes a checkpoint before the DDL at it
    assert watched.asked(30) == []
    assert len(watched.asked(600)) == 1


def test_a_checkpoint_that_does_not_move_is_reported_and_logged_as_lag(watched: Watched) -> None:
    watched.feed.publish(FIRST)
    assert "stalled" not in why(watched.tick())
    result = watched.tick(3600)
    assert "is 61.0 min behind the clock, more than " in why(result)
    assert "seems to be stalled" in why(result)
    assert isinstance(result, dg.SensorResult)
    (observation,) = result.asset_events
    assert isinstance(observation, dg.AssetObservation)
    assert observation.asset_key == dg.AssetKey(["little", "bucket"])
    lag = observation.metadata["checkpoint_lag_seconds"].value
    assert lag == pytest.approx(3660, abs=1)
    watched.feed.publish(FIRST + (3660 << 18) * 1000)
    assert "stalled" not in why(watched.tick(5))


def test_the_lag_is_logged_now_and_then_only(watched: Watched) -> None:
    watched.feed.publish(FIRST)
    logged = [watched.tick(100) for _ in range(5)]
    assert sum(isinstance(result, dg.SensorResult) and bool(result.asset_events) for result in logged) == 2


# --- the cursor -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "12345", "[]", '{"checkpoint": 1, "open": true, "attempt": 3}', "{"])
def test_a_cursor_of_another_kind_counts_as_none(text: str) -> None:
    assert SensorCursor.parse(text) == SensorCursor()


def test_a_cursor_comes_back_as_it_was() -> None:
    cursor = SensorCursor(
        7, 8, 9, True, "1 table is on hold", (Attempt(1, 2, ("abcdef", "ghijkl")), Attempt(3, 1, ("mnopqr",)))
    )
    assert SensorCursor.parse(cursor.format()) == cursor


@pytest.mark.parametrize(("tables", "exclude"), [([], []), (["s.a@1"], []), ([], ["s.b@2", "s.c@3"])])
def test_a_run_config_shows_the_next_tick_what_the_run_takes(tables: list[str], exclude: list[str]) -> None:
    written = format_run_config("job", tables, exclude, keep_alive=True)
    assert [set(part) for part in parse_run_config("job", written)] == [set(tables), set(exclude)]
    assert not any(parse_run_config("another", written))


@pytest.mark.parametrize("given", [None, {}, {"ops": []}, {"ops": {"job_tables": None}}, {"ops": {"job_tables": {}}}])
def test_a_run_that_was_asked_for_without_config_takes_all_tables(given: object) -> None:
    assert not any(parse_run_config("job", given))


def test_a_sensor_says_that_tables_have_no_asset_yet(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    watched = Watched(tmp_path / "place", instance)
    watched.feed.publish(FIRST)
    assert "asset" not in why(watched.tick())
    lake = LakeSettings.from_warehouse(tmp_path / "place" / "lake")
    new = [
        TableState(TableId("s", name), FIRST, FIRST, State.APPLIED, life=f"s.{name}@{FIRST}", checkpoint=FIRST)
        for name in ("a", "b")
    ]
    with open_ledger(lake) as ledger:
        ledger.record_states("little", new, {})
    assert "2 new tables have no asset yet: reload definitions" in why(watched.tick(700))
