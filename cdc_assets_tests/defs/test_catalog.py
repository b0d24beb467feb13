"""What a data engineer sees of a changefeed in Dagster: catalog, lineage, series, checks, lag."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_aws.s3 import S3Resource
from pyspark.sql import SparkSession

from cdc_assets.defs import build_changefeed_defs
from cdc_assets.defs.checks import (
    CHECKS,
    arithmetic_result,
    completeness_result,
    conformance_result,
    initial_rows_result,
)
from cdc_assets.defs.metadata import column_lineage, column_schema, origins
from cdc_assets.defs.monitoring import freshness_sensor
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.features.kinds.decoding import own_columns
from cdc_assets.history.history import read_history
from cdc_assets.model.findings import Finding, Severity
from cdc_assets.model.masks import Mask
from cdc_assets.model.progress import Gap, Life, State
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import FOREVER
from cdc_assets.model.window_metrics import WindowMetrics
from cdc_assets.operations.opening import open_ledger
from cdc_assets.operations.status import lake_status
from cdc_assets.pipeline.outcome import TableOutcome
from cdc_assets_tests.cases import Case
from cdc_assets_tests.defs.test_assets import NAME, Location
from cdc_assets_tests.model.test_window_metrics import account

pytestmark = pytest.mark.filterwarnings("ignore")  # Dagster says what is new in it

TABLE = dg.AssetKey(["lake", "filt", "t"])
OWNERS = ("team:data", "ann@example.com")


class Seen(Location):
    """A location whose table has a lag target and owners, with the events of its runs."""

    def __init__(self, directory: Path, instance: dg.DagsterInstance) -> None:
        super().__init__(Case("N_filtered_ddl").config("csv-ts"), directory, instance)
        self.settings = self.settings.model_copy(update={"owners": OWNERS, "lag_targets": {"filt.*": 60}})
        self.evaluations: dict[tuple[dg.AssetKey, str], dg.AssetCheckEvaluation] = {}
        self.reload()

    def reload(self) -> None:
        self.defs = build_changefeed_defs(self.settings, self.lake)

    def remember(self, result: dg.ExecuteInProcessResult) -> None:
        for evaluation in result.get_asset_check_evaluations():
            self.evaluations[evaluation.asset_key, evaluation.check_name] = evaluation

    def events(self, key: dg.AssetKey) -> list[dict[str, Any]]:
        """Return the metadata of the asset's materializations, oldest first."""
        records = self.instance.fetch_materializations(key, limit=100, ascending=True).records
        made = [record.asset_materialization for record in records]
        return [
            {name: value.value for name, value in materialization.metadata.items()}
            for materialization in made
            if materialization is not None
        ]


def seen(directory: Path) -> Iterator[Seen]:
    with dg.instance_for_test() as instance:
        yield Seen(directory, instance)


@pytest.fixture(scope="module")
def caught_up(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Seen]:
    """One run over all tables, as the sensor asks for."""
    for location in seen(tmp_path_factory.mktemp("caught_up")):
        result = location.catch_up()
        assert result.success
        location.remember(result)
        location.reload()
        yield location


@pytest.fixture(scope="module")
def by_partition(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Seen]:
    """A run for each partition, as a backfill makes them."""
    for location in seen(tmp_path_factory.mktemp("by_partition")):
        for key in location.add_partitions():
            result = location.materialize(key)
            assert result.success
            location.remember(result)
        location.reload()
        yield location


@pytest.fixture(params=["caught_up", "by_partition"])
def location(request: pytest.FixtureRequest, spark: SparkSession) -> Seen:
    location_in_use: Seen = request.getfixturevalue(request.param)
    return location_in_use


# --- catalog ----------------------------------------------------------------------------------------------------------


def test_lineage_goes_from_the_bucket_through_ddl_and_dml_to_the_lake_table(caught_up: Seen) -> None:
    graph = caught_up.defs.resolve_asset_graph()
    chain = [dg.AssetKey([NAME, "bucket"]), dg.AssetKey([NAME, "ddl"]), dg.AssetKey([NAME, "dml"]), TABLE]
    for upstream, key in pairwise(chain):
        assert graph.get(key).parent_keys == {upstream}


def test_every_asset_has_owners_kinds_and_the_group_of_its_changefeed(caught_up: Seen) -> None:
    graph = caught_up.defs.resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert (tuple(node.owners), node.group_name, bool(node.kinds)) == (OWNERS, NAME, True), key


def test_a_lake_table_shows_its_columns_with_source_types_and_comments(location: Seen) -> None:
    schema: dg.TableSchema = location.events(TABLE)[-1]["dagster/column_schema"]
    types = {column.name: column.type for column in schema.columns}
    source = location.config.case.expected()[TableId("filt", "t")]
    assert list(types) == [*(column["name"] for column in source.stored), "_cdc_commit_ts"]
    assert types["id"].startswith(("INT", "BIGINT"))


def test_masked_columns_show_the_type_of_the_source_that_of_the_lake_and_the_mask() -> None:
    mail = Column("mail", "VARCHAR", precision=100, nullable=False, mask=Mask("hash", key=b"key"))
    note = Column("note", "VARCHAR", precision=40, mask=Mask("drop"))
    card = Column("card", "VARCHAR", precision=30, nullable=False, mask=Mask("redact", "last4"))
    schema = TableSchema((mail, note, card))
    shown = [(column.name, column.type, column.description) for column in column_schema(schema).schema.columns]
    assert shown == [
        ("mail", "VARCHAR(100)", "lake type string; masked by hash"),
        ("note", "VARCHAR(40)", "not in the lake; masked by drop"),
        ("card", "VARCHAR(30)", "lake type string; masked by redact last4"),
    ]
    lake = column_schema(schema, own_columns("")).schema.columns
    assert [column.name for column in lake] == ["mail", "card", "_cdc_commit_ts"]
    assert [column.constraints.nullable for column in lake[:2]] == [False, True]


def test_every_column_but_the_commit_ts_comes_from_a_column_of_the_source(location: Seen) -> None:
    last = location.events(TABLE)[-1]
    lineage: dg.TableColumnLineage = last["dagster/column_lineage"]
    columns = {column.name for column in last["dagster/column_schema"].columns}
    assert set(lineage.deps_by_column) == columns - {"_cdc_commit_ts"}
    upstream = {dep.asset_key for deps in lineage.deps_by_column.values() for dep in deps}
    assert upstream == {dg.AssetKey([NAME, "ddl"])}


def test_rows_changes_bytes_and_lag_are_numbers_that_plot(location: Seen) -> None:
    timed = [event for event in location.events(TABLE) if "seconds" in event]
    series = ("dagster/row_count", "dagster/size_bytes", "changes", "inserted", "updated", "deleted", "file_bytes")
    for event in timed:
        assert all(isinstance(event[name], int) for name in series), event
        assert all(isinstance(event[f"lag{stage}_seconds"], float) for stage in ("", "_written", "_applied")), event
    (row,) = lake_status(location.lake)
    assert timed[-1]["dagster/row_count"] == row.rows
    assert sum(event["inserted"] - event["deleted"] for event in timed) == row.rows


def test_ddl_text_and_the_files_of_the_run_are_shown(location: Seen) -> None:
    queries = [event["query"] for event in location.events(dg.AssetKey([NAME, "ddl"]))]
    assert any("ALTER TABLE" in query for query in queries)
    files = {path for event in location.events(dg.AssetKey([NAME, "dml"])) for path in event.get("source_files", ())}
    assert files == {file.path for file in location.settings.open_source().listing().data_files}


# --- column lineage through renames -----------------------------------------------------------------------------------


def test_a_column_is_traced_to_the_name_that_it_was_born_with() -> None:
    listing = Case("B_ddl_columns").config("csv-ts").settings().open_source().listing()
    history = next(t for life, t in read_history(listing.schema_files).lives.items() if life.born_as.table == "t")
    assert origins(history, FOREVER)["b3"] == "b"
    lineage = column_lineage(history, FOREVER, NAME).value
    assert lineage.deps_by_column["b3"] == [dg.TableColumnDep(dg.AssetKey([NAME, "ddl"]), "cols.t.b")]


def test_at_an_earlier_version_a_column_has_the_name_of_then() -> None:
    listing = Case("B_ddl_columns").config("csv-ts").settings().open_source().listing()
    history = next(t for life, t in read_history(listing.schema_files).lives.items() if life.born_as.table == "t")
    assert set(origins(history, history.life.version)) == {column.name for column in history.events[0].after.columns}


def test_comments_come_from_the_ddl_and_follow_a_rename() -> None:
    table = TableId("shop", "orders")
    created = "CREATE TABLE orders (id INT PRIMARY KEY, qty INT COMMENT 'pieces, not boxes')"
    columns = (Column("id", "INT", is_pk=True, nullable=False, id=1), Column("qty", "INT", id=2))
    renamed = (columns[0], Column("pieces", "INT", id=2))
    files = [
        SchemaFile("a", "shop/orders", table, 1, created, 3, columns),
        SchemaFile("b", "shop/orders", table, 2, "ALTER TABLE orders RENAME COLUMN qty TO pieces", 12, renamed),
    ]
    history = read_history(files).lives[Life(table, 1)]
    assert history.schema.column("pieces").comment == "pieces, not boxes"


# --- checks -----------------------------------------------------------------------------------------------------------


def test_sensor_runs_and_partition_runs_report_the_same_checks(caught_up: Seen, by_partition: Seen) -> None:
    expected = {(dg.AssetKey([NAME, "bucket"]), name) for name in CHECKS}
    expected |= {(TABLE, name) for name in ("holds", "row_arithmetic", "initial_rows", "keeps_up", "freshness")}
    expected |= {(dg.AssetKey([NAME, "dml"]), "column_types")}
    assert set(caught_up.evaluations) == expected
    assert set(by_partition.evaluations) == expected


def test_the_rows_of_every_window_add_up(location: Seen) -> None:
    evaluation = location.evaluations[TABLE, "row_arithmetic"]
    assert evaluation.passed
    numbers: dict[str, Any] = {name: value.value for name, value in evaluation.metadata.items()}
    assert numbers["rows_before"] + numbers["inserted"] - numbers["deleted"] == numbers["rows_after"]


def test_a_table_whose_rows_from_before_the_changefeed_are_missing_fails_its_check(location: Seen) -> None:
    life = Life(TableId("s", "old"), 5)
    table = TableOutcome(life.born_as, 5, 9, State.APPLIED, life=life, gap=Gap(life))
    feed = ConfiguredFeed(location.settings, location.lake)
    failed, passed = (initial_rows_result(feed, TABLE, row) for row in (table, replace(table, gap=None)))
    assert (failed.passed, passed.passed) == (False, True)
    assert failed.metadata["incomplete_since"].value == "5"
    assert "release --complete s.old" in str(failed.description)
    assert feed.command_options in str(failed.description)


def test_a_table_that_misses_its_lag_target_says_why_and_what_to_do(location: Seen) -> None:
    evaluation = location.evaluations[TABLE, "freshness"]
    assert not evaluation.passed
    assert "its target is 60.0 s" in str(evaluation.description)
    assert "cdc cli changefeed query" in str(evaluation.description)


def test_checks_can_be_run_by_hand_after_a_reload(caught_up: Seen) -> None:
    checks = dg.AssetSelection.all_asset_checks() - dg.AssetSelection.checks_for_assets(dg.AssetKey([NAME, "dml"]))
    job = dg.define_asset_job("by_hand", selection=checks)
    defs = dg.Definitions.merge(caught_up.defs, dg.Definitions(jobs=[job]))
    result = defs.resolve_job_def("by_hand").execute_in_process(instance=caught_up.instance)
    passed = {evaluation.check_name: evaluation.passed for evaluation in result.get_asset_check_evaluations()}
    assert passed == {
        **dict.fromkeys(CHECKS, True),
        "row_arithmetic": True,
        "initial_rows": True,
        "keeps_up": True,
        "freshness": False,
    }


def test_a_window_that_does_not_add_up_fails_until_the_table_is_rebuilt(caught_up: Seen) -> None:
    wrong: WindowMetrics = account(rows_after=12)
    failed = arithmetic_result(TABLE, [wrong, account(hi=99)])
    assert not failed.passed
    assert "rebuild the table" in str(failed.description)
    assert arithmetic_result(TABLE, [account(hi=99)]).passed


def test_a_missing_file_fails_completeness_and_one_that_changed_warns(location: Seen) -> None:
    feed = ConfiguredFeed(location.settings, location.lake)
    missing, changed = (Finding(rule, Severity.WARNING, "", rule) for rule in ("files-missing", "files-changed"))
    assert completeness_result(feed, []).passed
    assert completeness_result(feed, [changed]).severity == dg.AssetCheckSeverity.WARN
    failed = completeness_result(feed, [changed, missing])
    assert (failed.passed, failed.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert conformance_result(feed, [changed, missing]).passed


def test_a_file_that_vanished_before_its_turn_fails_completeness(tmp_path: Path, spark: SparkSession) -> None:
    for location in seen(tmp_path):
        files = location.settings.open_source().listing().data_files
        life = Life(TableId("filt", "t"), min(key.version for key in location.partition_keys()))
        with open_ledger(location.lake) as ledger:
            ledger.record_unread(NAME, life, files[-1].path, "earlier")
        (location.bucket / files[-1].path).unlink()
        checks = {evaluation.check_name: evaluation for evaluation in location.catch_up().get_asset_check_evaluations()}
        assert not checks["completeness"].passed
        assert "Restore it" in str(checks["completeness"].description)


# --- lag --------------------------------------------------------------------------------------------------------------


def test_status_shows_the_stages_of_the_newest_change(location: Seen) -> None:
    (row,) = lake_status(location.lake)
    assert row.stages is not None
    parts = (row.stages.written_seconds, row.stages.checkpoint_seconds, row.stages.applied_seconds)
    assert sum(part or 0 for part in parts) == pytest.approx(row.stages.total_seconds, abs=0.01)
    assert row.stages.commit_ts <= row.through
    assert row.miscounted == ""


def test_the_freshness_sensor_reports_a_late_table_once_and_without_a_run(
    caught_up: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a tick opens no storage of Dagster: it takes 50 ms")

    monkeypatch.setattr(dg.SensorEvaluationContext, "instance", property(never))
    sensor = freshness_sensor(ConfiguredFeed(caught_up.settings, caught_up.lake), S3Resource())
    assert not sensor.required_resource_keys, "Dagster opens its instance to make resources"
    with dg.build_sensor_context() as context:
        first = sensor(context)
    assert isinstance(first, dg.SensorResult)
    (event,) = first.asset_events
    assert isinstance(event, dg.AssetCheckEvaluation)
    assert (event.asset_key, event.passed) == (TABLE, False)
    with dg.build_sensor_context(cursor=first.cursor) as context:
        assert isinstance(sensor(context), dg.SkipReason)


def test_a_table_is_on_time_again_when_the_checkpoint_has_come_near(caught_up: Seen) -> None:
    now = int(time.time() * 1000) << 18
    metadata = caught_up.bucket / "metadata"
    before = metadata.read_text()
    metadata.write_text(json.dumps({"checkpoint-ts": now}))
    try:
        sensor = freshness_sensor(ConfiguredFeed(caught_up.settings, caught_up.lake), S3Resource())
        with dg.build_sensor_context(cursor='{"filt.t": false}') as context:
            answer = sensor(context)
    finally:
        metadata.write_text(before)
    assert isinstance(answer, dg.SensorResult)
    assert [event.passed for event in answer.asset_events if isinstance(event, dg.AssetCheckEvaluation)] == [True]
