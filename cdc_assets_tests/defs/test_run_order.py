"""Order and overlap in Dagster itself, on Spark and Iceberg: failing versions, runs side by side, runs that linger."""

from __future__ import annotations

import json
import re
import shlex
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_run_for_test
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from pyspark.sql import SparkSession

from cdc_assets.defs import build_changefeed_defs, catch_up, events
from cdc_assets.defs.assets import _needed
from cdc_assets.defs.catch_up import _Rounds
from cdc_assets.defs.catch_up_config import CatchUpConfig, does_it_all, format_run_config
from cdc_assets.defs.events import RunEvents
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.errors import CdcError, LakeUnavailable, TableHeld, TableMoved
from cdc_assets.lake.state import LakeState
from cdc_assets.model.progress import Life, Phase, State
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.steps import ApplyRows, DropTable, RowReading, Step
from cdc_assets.operations.opening import open_pipeline
from cdc_assets.pipeline.outcome import TableOutcome, TableRun
from cdc_assets.planning.partitions import parse_partition_key
from cdc_assets.planning.plan import Plan
from cdc_assets.report.text import WAY_OUT
from cdc_assets.run_coordinator import CHANGEFEED_TAG, GAVE_WAY_TAG
from cdc_assets.settings.config import CONFIG_VARIABLE, load
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.little_feed import FIRST, LittleFeed

pytestmark = pytest.mark.filterwarnings("ignore")  # Dagster says what is new in it

NAME = "little"
PATIENCE_SECONDS = 240
V2, V3 = FIRST + 100, FIRST + 200


class Place:
    """A little feed, a lake and an instance; runs are executed in this process."""

    def __init__(self, directory: Path, instance: dg.DagsterInstance, **settings: Any) -> None:
        self.feed = LittleFeed(directory)
        self.lake = LakeSettings.from_warehouse(directory / "lake")
        self.instance = instance
        self.given = settings
        self.defs = build_changefeed_defs(self.feed.settings(NAME, **settings), self.lake)

    def three_versions(self) -> Path:
        """Return the file of the second version's rows."""
        self.feed.create("s.t")
        self.feed.rows("s.t", FIRST, [("I", FIRST + 1, 1, "a")])
        self.feed.ddl("s.t", V2, "TRUNCATE TABLE `t`", 11)
        second = self.feed.rows("s.t", V2, [("I", V2 + 1, 2, "b")])
        self.feed.ddl("s.t", V3, "TRUNCATE TABLE `t`", 11)
        self.feed.rows("s.t", V3, [("I", V3 + 1, 3, "c")])
        self.feed.publish(V3 + 10)
        self.instance.add_dynamic_partitions(f"cdc_{NAME}", [self.key(version) for version in (FIRST, V2, V3)])
        return second

    def key(self, version: int) -> str:
        return f"s.t@{version:020d}"

    def partition(self, version: int) -> dg.ExecuteInProcessResult:
        job = self.defs.resolve_implicit_global_asset_job_def()
        chosen = [dg.AssetKey([NAME, asset]) for asset in ("ddl", "dml")]
        return job.execute_in_process(
            partition_key=self.key(version), asset_selection=chosen, instance=self.instance, raise_on_error=False
        )

    def catch_up(self, **config: Any) -> dg.ExecuteInProcessResult:
        return self.launch({f"{NAME}_catch_up_tables": {"config": config}})

    def launch(self, ops: dict[str, Any]) -> dg.ExecuteInProcessResult:
        job = self.defs.resolve_job_def(f"{NAME}_catch_up")
        return job.execute_in_process(run_config={"ops": ops}, instance=self.instance, raise_on_error=False)

    def values(self, table: str = "t") -> dict[int, str]:
        rows = LakeState(self.lake, NAME).read(TableId("s", table)).to_pylist()
        return {row["id"]: row["v"] for row in rows}

    def logged(self, run: dg.ExecuteInProcessResult) -> list[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
        """Return what a run logged of assets, in Dagster's event log."""
        logged_events = list[dg.AssetMaterialization | dg.AssetCheckEvaluation]()
        for event in (entry.dagster_event for entry in self.instance.all_logs(run.run_id)):
            if event is not None and event.is_step_materialization:
                logged_events.append(event.step_materialization_data.materialization)
            elif event is not None and event.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION:
                logged_events.append(event.asset_check_evaluation_data)
        return logged_events

    def windows(self, run: dg.ExecuteInProcessResult, asset: str) -> list[str | None]:
        key = dg.AssetKey([NAME, asset])
        materializations = [
            materialization
            for materialization in self.logged(run)
            if isinstance(materialization, dg.AssetMaterialization)
        ]
        return [materialization.partition for materialization in materializations if materialization.asset_key == key]


def reason_of(run: dg.ExecuteInProcessResult) -> str:
    (failed,) = [event for event in run.all_events if event.is_step_failure]
    failure = failed.step_failure_data.user_failure_data
    assert failure is not None
    return str(failure.description)


def test_a_failed_version_stops_its_successor_by_name_and_running_both_again_is_safe(
    tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    place = Place(tmp_path, instance)
    second = place.three_versions()
    whole = second.read_bytes()
    second.write_bytes(whole.replace(b",2,", b",two,"))
    last = place.partition(V3)
    assert not last.success
    assert f"version {V3} waits for {place.key(V2)}, which is held" in reason_of(last)
    assert second.name in reason_of(last)
    assert WAY_OUT in reason_of(last)
    assert place.key(V3) not in place.instance.get_materialized_partitions(dg.AssetKey([NAME, "dml"]))
    second.write_bytes(whole)
    assert place.partition(V3).success
    assert place.partition(V2).success
    assert place.values() == {3: "c"}


def test_a_version_is_run_again_while_a_later_one_is_held(
    tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    place = Place(tmp_path, instance)
    place.feed.create("s.t")
    place.feed.rows("s.t", FIRST, [("I", FIRST + 1, 1, "a")])
    place.feed.ddl("s.t", V2, "ALTER TABLE `t` FROBNICATE", 0)
    place.feed.publish(V3)
    place.instance.add_dynamic_partitions(f"cdc_{NAME}", [place.key(FIRST), place.key(V2)])
    runs = [place.partition(version) for version in (FIRST, V2, FIRST)]
    assert [run.success for run in runs] == [True, False, True]
    assert place.values() == {1: "a"}


def test_a_held_ddl_is_released_by_the_example_of_the_launch_form(
    tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    """As the form shows it, with names of this feed; what deletes rows waits for the consent beside it."""
    place = Place(tmp_path, instance, policies={"truncate table": "hold"})
    place.three_versions()
    held = reason_of(place.catch_up())
    assert "release" in held
    assert held.startswith(f"s.t at {V2}")
    described = CatchUpConfig.model_fields["releases"].description or ""
    (example,) = re.findall(r"`({.*?})`", described)
    ((_, decision),) = json.loads(example).items()
    assert decision == "skip"
    wrong = place.catch_up(releases={"s.t": decision})
    assert "expected schema.table@version" in reason_of(wrong)
    (shown,) = re.findall(r"({.*}) \(", held)
    form = json.loads(shown.replace("schema.table@version", f"s.t@{V2}"))
    place.launch(form["ops"])
    assert place.values() == {1: "a", 2: "b"}
    refused = place.catch_up(releases={f"s.t@{V3}": "apply"})
    assert "confirmed" in reason_of(refused)
    assert place.values() == {1: "a", 2: "b"}
    assert place.catch_up(releases={f"s.t@{V3}": "apply"}, confirmed=True).success
    assert place.values() == {3: "c"}


def test_ways_out_are_given_with_the_settings_file_that_the_changefeed_is_from(tmp_path: Path) -> None:
    file = tmp_path / "its settings.yaml"
    file.write_text("lake: {warehouse: lake}\nchangefeeds: [{name: shop, sink_uri: 'file:///feed?protocol=csv'}]")
    settings = load(file)
    options = ConfiguredFeed(settings.changefeed(), settings.needed_lake()).command_options
    assert shlex.split(options) == ["--settings", str(file), "--changefeed", "shop"]


def test_a_partition_that_comes_in_between_the_steps_of_a_run_over_all_tables_changes_nothing(
    tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, instance)
    place.three_versions()
    between: list[str] = []
    former = RunEvents.after

    def after(self: RunEvents, step: Step, plan: Plan, table: TableRun) -> None:
        former(self, step, plan, table)
        if not between:
            between.append(place.key(V2))
            settings = place.feed.settings(NAME)
            with open_pipeline(settings, place.lake, None, lambda: spark, fuse=False) as other:
                other.apply("other", lambda planned: _needed(planned, parse_partition_key(place.key(V2)), Phase.ROWS))

    monkeypatch.setattr(RunEvents, "after", after)
    assert place.catch_up().success
    assert between == [place.key(V2)]
    assert place.values() == {3: "c"}


def test_a_run_that_is_kept_alive_takes_later_windows_new_tables_and_their_partitions(
    tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "TOGETHER_SECONDS", 3600)
    monkeypatch.setattr(catch_up, "_QUEUED_SECONDS", -1)
    place = Place(tmp_path, instance, run_keep_alive_seconds=3600, run_idle_seconds=3600)
    place.feed.create("s.t")
    place.feed.rows("s.t", FIRST, [("I", FIRST + 1, 1, "a")])
    place.feed.publish(FIRST + 10)

    first = threading.Event()

    def later() -> None:
        first.wait(PATIENCE_SECONDS)
        place.feed.rows("s.t", FIRST, [("I", FIRST + 11, 2, "b")])
        place.feed.create("s.new", FIRST + 12)
        place.feed.rows("s.new", FIRST + 12, [("I", FIRST + 13, 1, "n")])
        place.feed.publish(FIRST + 20)
        _until(lambda: place.values() == {1: "a", 2: "b"})
        place.feed.rows("s.t", FIRST, [("I", FIRST + 21, 3, "c"), ("I", FIRST + 22, 4, "d")])
        place.feed.publish(FIRST + 30)
        _until(lambda: len(place.values()) == 4)
        queued(instance, **{"dagster/sensor_name": "another_checkpoint"})  # which ends the run

    appear = threading.Thread(target=later)
    appear.start()
    # The first window's events are in the instance while the run goes on.
    dml = dg.AssetKey([NAME, "dml"])
    seen = lambda: place.key(FIRST) in instance.get_materialized_partitions(dml)  # noqa: E731
    watch = threading.Thread(target=lambda: first.set() if _until(seen) else None)
    watch.start()
    run = place.catch_up(keep_alive=True)
    appear.join()
    watch.join()
    assert run.success
    assert place.values() == {1: "a", 2: "b", 3: "c", 4: "d"}
    assert place.values("new") == {1: "n"}
    logged = place.logged(run)
    windows = [event for event in logged if isinstance(event, dg.AssetMaterialization) and event.asset_key == dml]
    windows = [window for window in windows if window.partition == place.key(FIRST)]
    # The second and the third came soon after the first, and are logged as one.
    assert [window.metadata["changes"].value for window in windows] == [1, 3]
    assert [window.metadata["files"].value for window in windows] == [1, 2]
    # Checks whose result is as before are not logged again; those of windows tell what was in them.
    checks = [event for event in logged if isinstance(event, dg.AssetCheckEvaluation) and event.partition is None]
    assert len(checks) == len({check.asset_check_key for check in checks})
    assert len([event for event in logged if event.asset_key == dg.AssetKey(["s", "t"]) and event not in checks]) <= 2
    # Dagster's process would keep them until the run's end.
    assert not run.get_asset_materialization_events()
    assert f"s.new@{FIRST + 12:020d}" in instance.get_dynamic_partitions(f"cdc_{NAME}")


def _until(is_so: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if is_so():
            return True
        time.sleep(0.1)
    return False


# --- when a run that lives on begins its next round, and when it ends -------------------------------------------------


@dataclass
class Feeds:
    """A pipeline as far as a run waits for it: each look gives the next fence, or fails."""

    fences: list[int | CdcError]
    landing: None = None

    @property
    def source(self) -> Feeds:
        return self

    def fence(self) -> int:
        fence = self.fences.pop(0) if len(self.fences) > 1 else self.fences[0]
        if isinstance(fence, CdcError):
            raise fence
        return fence


@dataclass
class Rounds:
    """A run that lives on, after a round in which its table worked or stopped."""

    place: Place
    log_lines: list[str] = field(default_factory=list)
    worked: bool = True
    error: CdcError | None = None
    job_name: str = "a run"
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = format_run_config(self.job_name, [], [], keep_alive=True)
        started = dg.DagsterRunStatus.STARTED
        self.run_id = create_run_for_test(
            self.place.instance, job_name=self.job_name, status=started, tags=dict(self.tags), run_config=config
        ).run_id
        settings = self.place.feed.settings(NAME, commit_interval_seconds=0.01, **self.place.given)
        self.source = ConfiguredFeed(settings, self.place.lake)

    def opened(self) -> _Rounds:
        context: Any = SimpleNamespace(
            instance=self.place.instance,
            run_id=self.run_id,
            log=SimpleNamespace(info=self.say, warning=self.say),
            log_event=self.say,
        )
        return _Rounds(context, self.source, CatchUpConfig(keep_alive=True))

    def has_next(self, *fences: int | CdcError, between: Callable[[], object] = lambda: None) -> bool:
        rounds = self.opened()
        rounds.begin()
        life = Life(TableId("s", "t"), FIRST)
        table = TableOutcome(life.born_as, FIRST, FIRST, State.APPLIED, life=life, steps=self.worked, error=self.error)
        outcome: Any = SimpleNamespace(tables=(table,))
        rounds.end(outcome, {life})
        between()
        pipeline: Any = Feeds(list(fences))
        return rounds.has_next(pipeline, FIRST)

    def say(self, text: str) -> None:
        self.log_lines.append(text)


AWAY = LakeUnavailable("the catalog did not answer.")


def test_a_run_that_lives_on_waits_until_the_checkpoint_moves_and_outlasts_a_store_that_is_away(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    rounds = Rounds(Place(tmp_path, instance))
    assert rounds.has_next(FIRST, AWAY, FIRST, FIRST + 1)
    assert rounds.log_lines == ["the catalog did not answer. This run tries again in 1.0 s."]


def test_a_table_whose_store_is_away_is_tried_again_by_the_same_run_and_one_that_is_held_ends_it(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    place = Place(tmp_path, instance)
    assert Rounds(place, error=AWAY).has_next(FIRST)
    held = Rounds(place, error=TableHeld("it is held."))
    assert not held.has_next(FIRST + 1)
    assert held.log_lines == ["a table stopped: this run ends"]


def test_a_run_that_lives_on_logs_a_line_for_each_window_of_its_first_round_only(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    run = Rounds(Place(tmp_path, instance))
    rounds, life = run.opened(), Life(TableId("s", "t"), FIRST)
    for _ in range(3):
        rounds.begin()
        rounds.watch(
            ApplyRows(life, FIRST, FIRST + 1, (), RowReading(), TableSchema((), ()), FIRST), life.born_as, 0, 2
        )
        rounds.watch(DropTable(life, FIRST), life.born_as, 1, 2)
    assert [line.split()[0] for line in run.log_lines] == ["1/2", "2/2", "2/2", "2/2"]


def test_a_run_that_lives_on_logs_what_it_landed_once_a_minute_and_at_its_end(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Rounds(Place(tmp_path, instance))
    monkeypatch.setattr(catch_up, "landing_events", lambda source, pipeline: ["landed"])
    rounds, pipeline = run.opened(), Feeds([FIRST])
    for every in (60, 60, 60, 0):
        rounds.log_landing(pipeline, every)  # type: ignore[arg-type]  # it is only passed on
    assert run.log_lines == ["landed", "landed"]


def test_a_compaction_that_loses_its_races_is_told_and_tried_again_later_by_the_run_that_lives_on(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []

    def lose(*given: object) -> None:
        tried.append(given)
        raise TableMoved("s.t: another writer committed first.")

    monkeypatch.setattr(catch_up, "compact_overdue", lose)
    run = Rounds(Place(tmp_path, instance))
    rounds, passed_on = run.opened(), cast("Any", None)
    for _ in range(3):
        rounds.compact(passed_on, passed_on)
    assert run.log_lines == ["s.t: another writer committed first. The table is compacted later."]
    monkeypatch.setattr(catch_up, "_COMPACT_SECONDS", 0)
    rounds.compact(passed_on, passed_on)
    assert len(tried) == 2


def test_new_settings_end_a_run_that_lives_on(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "changefeeds.yaml"
    settings.write_text("old")
    monkeypatch.setenv(CONFIG_VARIABLE, str(settings))
    rounds = Rounds(Place(tmp_path / "place", instance))
    assert rounds.has_next(FIRST + 1)
    assert not rounds.has_next(FIRST + 1, between=lambda: settings.write_text("newer"))
    settings.write_text("the newest")
    assert not rounds.has_next(FIRST + 1), "they changed after they were read and before the run began"
    assert len(rounds.log_lines) == 2
    assert all(line.startswith("the settings changed") for line in rounds.log_lines)


def test_a_run_that_dagster_has_as_ended_ends_though_no_signal_came(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    rounds = Rounds(Place(tmp_path, instance))
    run = instance.get_run_by_id(rounds.run_id)
    assert run is not None
    assert rounds.has_next(FIRST + 1)
    assert not rounds.opened().give_way()
    instance.report_run_canceled(run)
    assert not rounds.has_next(FIRST + 1)
    assert rounds.opened().give_way()
    instance.delete_run(run.run_id)
    assert not rounds.has_next(FIRST + 1)
    assert rounds.log_lines == ["Dagster has it as ended: this run ends"] * 2


def test_of_two_runs_that_live_on_for_the_same_tables_the_older_one_goes_on(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    place = Place(tmp_path, instance)
    older, younger = (Rounds(place, job_name=f"{NAME}_catch_up", tags={CHANGEFEED_TAG: NAME}) for _ in range(2))
    assert older.has_next(FIRST + 1)
    assert not younger.has_next(FIRST + 1)
    assert younger.log_lines == [f"run {older.run_id} lives on for the same tables: this run ends"]


@pytest.mark.parametrize(
    ("older", "younger", "same"),
    [
        (([], []), ([], []), True),
        (([], ["a"]), ([], []), False),
        (([], ["a"]), ([], ["a", "b"]), True),
        (([], ["a"]), (["a"], []), False),
        (([], ["a"]), (["b"], []), True),
        ((["a"], []), ([], []), False),
        ((["a"], []), ([], ["b"]), False),
        ((["a", "b"], []), (["a"], []), True),
        ((["a"], []), (["a", "b"], []), False),
    ],
)
def test_a_run_does_all_that_another_one_does_if_it_takes_all_of_its_tables(
    older: tuple[list[str], list[str]], younger: tuple[list[str], list[str]], same: bool
) -> None:
    config = CatchUpConfig(tables=younger[0], exclude=younger[1])
    assert does_it_all("job", format_run_config("job", *older, keep_alive=True), config) is same
    assert not does_it_all("job", format_run_config("job", *older, keep_alive=False), config)


def test_a_catalog_that_is_away_where_a_round_is_logged_does_not_end_the_run_that_lives_on(
    tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, instance, run_idle_seconds=1)
    place.three_versions()
    away = {"begin", "_checks", "_lake_tables"}

    def failing(name: str) -> Callable[..., Any]:
        former = getattr(RunEvents, name)

        def first(*given: Any) -> Any:
            if name in away:
                away.remove(name)
                raise AWAY
            return former(*given)

        return first

    for name in tuple(away):
        monkeypatch.setattr(RunEvents, name, failing(name))
    run = place.catch_up(keep_alive=True)
    assert run.success
    assert not away
    assert place.values() == {3: "c"}
    assert place.windows(run, "dml") == [place.key(version) for version in (FIRST, V2, V3)]


@pytest.mark.parametrize(
    ("setting", "why"),
    [("run_keep_alive_seconds", "its time is over"), ("run_idle_seconds", "nothing came for a while")],
)
def test_a_run_does_not_live_on_for_ever(setting: str, why: str, tmp_path: Path, instance: dg.DagsterInstance) -> None:
    rounds = Rounds(Place(tmp_path, instance, **{setting: 0}))
    assert not rounds.has_next(FIRST + 1)
    assert rounds.log_lines == [f"{why}: this run ends"]


def queued(instance: dg.DagsterInstance, **tags: str) -> None:
    """Put a run into the queue."""
    location = InProcessCodeLocationOrigin(LoadableTargetOrigin(module_name="cdc_assets.definitions"))
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), "another")
    waits = dg.DagsterRunStatus.QUEUED
    create_run_for_test(instance, job_name="another", status=waits, remote_job_origin=origin, tags=tags)


def tags_of(instance: dg.DagsterInstance, run_id: str) -> Mapping[str, str]:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run.tags


def test_a_run_that_waits_and_that_no_sensor_requested_is_given_way_to_between_two_windows(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catch_up, "_QUEUED_SECONDS", -1)
    monkeypatch.setattr(catch_up, "time", SimpleNamespace(monotonic=lambda: 7.0, time=time.time))
    queued(instance, **{"dagster/sensor_name": "another_checkpoint"})
    run = Rounds(Place(tmp_path, instance))
    assert not run.opened().give_way()
    assert GAVE_WAY_TAG not in tags_of(instance, run.run_id)
    queued(instance)
    rounds = run.opened()
    assert rounds.give_way()
    assert GAVE_WAY_TAG in tags_of(instance, run.run_id)
    assert not rounds.give_way(), "the queue is looked at once a second"


def test_a_run_that_waits_is_given_way_to_though_the_clock_was_set_back(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued(instance)
    rounds = Rounds(Place(tmp_path, instance)).opened()
    monkeypatch.setattr(catch_up, "_QUEUED_SECONDS", 0)
    monkeypatch.setattr("cdc_assets.defs.catch_up.time.time", lambda: 0.0)
    assert not rounds.give_way()
    rounds._queue_seen = 0.0
    assert rounds.give_way()


class EndsTheRun:
    """An object in whose deletion the signal comes: Python ignores what a handler raises there."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("keep_alive", [True, False])
def test_a_run_that_is_interrupted_where_the_exception_is_lost_ends_after_its_window_all_the_same(
    keep_alive: bool, tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, instance, run_keep_alive_seconds=10)
    place.three_versions()
    logged: list[Step] = []

    def lose(self: _Rounds, step: Step, *where: object) -> None:
        if isinstance(step, ApplyRows) and not logged:
            logged.append(step)
            EndsTheRun()

    monkeypatch.setattr(_Rounds, "watch", lose)
    run = place.catch_up(keep_alive=keep_alive)
    (failed,) = [event for event in run.all_events if event.is_step_failure]
    assert DagsterExecutionInterruptedError.__name__ in str(failed.step_failure_data.error)
    assert logged, "no window began"
    assert place.values() == {1: "a"}


def test_a_run_is_not_kept_alive_while_others_wait(
    tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    place = Place(tmp_path, instance, run_keep_alive_seconds=3600)
    place.three_versions()
    queued(instance, **{"dagster/sensor_name": "another_checkpoint"})
    assert place.catch_up(keep_alive=True).success
    assert place.values() == {3: "c"}


def test_a_table_that_stops_leaves_the_others_and_their_next_windows_alone(
    tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    place = Place(tmp_path, instance)
    for name in ("good", "bad"):
        place.feed.create(f"s.{name}")
        place.feed.rows(f"s.{name}", FIRST, [("I", FIRST + 1, 1, name)])
    place.feed.publish(FIRST + 10)
    assert place.catch_up().success
    bad = place.feed.rows("s.bad", FIRST, [("I", FIRST + 11, 2, "x")])
    bad.write_bytes(bad.read_bytes().replace(b",2,", b",two,"))
    place.feed.rows("s.good", FIRST, [("I", FIRST + 11, 2, "x")])
    place.feed.publish(FIRST + 20)
    run = place.catch_up()
    assert not run.success
    assert reason_of(run).startswith("s.bad: ")
    assert place.values("good") == {1: "good", 2: "x"}
    assert place.values("bad") == {1: "bad"}


@pytest.mark.parametrize("named", ["tables", "exclude"])
def test_a_table_nobody_knows_is_refused_with_those_that_are_known(
    named: str, tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    place = Place(tmp_path, instance)
    place.three_versions()
    run = place.catch_up(**{named: ["s.other@1"]})
    (failed,) = [event for event in run.all_events if event.is_step_failure]
    error = failed.step_failure_data.error
    assert error is not None
    assert "known are s.t" in str(error)


@pytest.mark.parametrize("name", ["s.one", f"s.one@{FIRST}", "S.One"])
def test_tables_of_a_run_may_be_named_as_at_the_command_line(
    name: str, tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    place = Place(tmp_path, instance)
    for table in ("one", "two"):
        place.feed.create(f"s.{table}")
        place.feed.rows(f"s.{table}", FIRST, [("I", FIRST + 1, 1, table)])
    place.feed.publish(FIRST + 10)
    assert place.catch_up(exclude=[name]).success
    assert place.values("two") == {1: "two"}
    assert [str(table.name) for table in LakeState(place.lake, NAME).tables().values()] == ["s.two"]
    assert place.catch_up(tables=[name]).success
    assert place.values("one") == {1: "one"}
