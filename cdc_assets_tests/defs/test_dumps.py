"""A dump of what was there before as Dagster shows it: an asset with partitions, imported by any run, or on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_aws.s3 import S3Resource
from pyspark.sql import SparkSession

from cdc_assets.ddl import created
from cdc_assets.defs import build_changefeed_defs
from cdc_assets.lake.state import LakeState
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.defs.test_run_order import reason_of
from cdc_assets_tests.dump_writer import Writing, write_dump
from cdc_assets_tests.little_feed import FIRST, LittleFeed

pytestmark = pytest.mark.filterwarnings("ignore")  # Dagster says what is new in it

NAME = "little"
T, EMPTY = TableId("s", "t"), TableId("s", "empty")
LATER = FIRST + 100
BEFORE, AFTER = {1: "old", 2: "old"}, {1: "old", 2: "changed", 3: "new", 4: "later"}
LACKING = {2: "changed", 3: "new", 4: "later"}
BUCKET, DUMP, DDL, DML = (dg.AssetKey([NAME, asset]) for asset in ("bucket", "dump", "ddl", "dml"))


class Joined:
    """A feed that began when `s.t` had two rows and `s.empty` none, and a dump of then."""

    def __init__(self, directory: Path, instance: dg.DagsterInstance) -> None:
        self.feed, self.instance = LittleFeed(directory), instance
        self.lake, self.dump = LakeSettings.from_warehouse(directory / "lake"), directory / "dump"
        for name in ("s.t", "s.empty"):
            self.feed.ddl(name, FIRST, "", 0)
        self.first = self.feed.rows("s.t", FIRST, [("U", FIRST + 1, 2, "changed"), ("I", FIRST + 2, 3, "new")])
        self.feed.ddl("s.t", LATER, "ALTER TABLE `t` ADD COLUMN `w` INT", 5, wide=True)
        directory = self.feed.bucket / "s" / "t" / str(LATER)
        directory.mkdir()
        (directory / "CDC00000000000000000001.csv").write_bytes(b'"I","t","s",%d,4,"later",7\r\n' % (LATER + 1))
        self.feed.publish(LATER + 10)
        self.join()

    def join(self, **initial: Any) -> None:
        """Load the code location with the dump in its settings, or with what is given instead."""
        setting = initial or {"dump": str(self.dump)}
        self.defs = build_changefeed_defs(self.feed.settings(NAME, initial=setting), self.lake)

    def write_dump(self, at: int = FIRST) -> None:
        self.dump.mkdir()
        texts = {table: f"CREATE TABLE `{table.table}` (`id` INT PRIMARY KEY,`v` VARCHAR(40))" for table in (T, EMPTY)}
        rows = {T: [(str(key), text) for key, text in BEFORE.items()], EMPTY: []}
        tables = {table: (created(text), rows[table]) for table, text in texts.items()}
        write_dump(self.dump, tables, at, Writing(), texts=texts)

    def tick(self, cursor: str | None = None) -> dg.SensorResult:
        sensor = self.defs.get_sensor_def(f"{NAME}_checkpoint")
        with dg.build_sensor_context(self.instance, cursor=cursor, resources={"s3": S3Resource()}) as context:
            result = sensor(context)
        assert isinstance(result, dg.SensorResult)
        for request in result.dynamic_partitions_requests or []:
            assert request.partitions_def_name is not None
            self.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        return result

    def partition(self, version: int, table: str = "s.t") -> dg.ExecuteInProcessResult:
        job = self.defs.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            partition_key=key(version, table),
            asset_selection=[DDL, DML],
            instance=self.instance,
            raise_on_error=False,
        )

    def job(self, job: str, **config: Any) -> dg.ExecuteInProcessResult:
        run = {"ops": {f"{NAME}_{job}_tables": {"config": config}}}
        defined = self.defs.resolve_job_def(f"{NAME}_{job}")
        return defined.execute_in_process(run_config=run, instance=self.instance, raise_on_error=False)

    def values(self) -> dict[int, str]:
        rows = LakeState(self.lake, NAME).read(T).to_pylist()
        return {row["id"]: row["v"] for row in rows}

    def lives(self) -> dict[TableId | None, Life]:
        return {held.applied.name: life for life, held in LakeState(self.lake, NAME).tables().items()}

    def materialized(self, asset: dg.AssetKey) -> set[str]:
        return set(self.instance.get_materialized_partitions(asset))


def key(version: int, table: str = "s.t") -> str:
    return f"{table}@{version:020d}"


def of_dump(result: dg.ExecuteInProcessResult, partition: str) -> dict[str, Any]:
    """The metadata that a run logs for a partition of the dump."""
    (event,) = (
        event
        for event in result.get_asset_materialization_events()
        if (event.asset_key, event.partition) == (DUMP, partition)
    )
    metadata = event.materialization.metadata
    return {name: value.value for name, value in metadata.items()}


def initial_rows(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    evaluations = [
        evaluation for evaluation in result.get_asset_check_evaluations() if evaluation.check_name == "initial_rows"
    ]
    return {evaluation.asset_key.path[-1]: evaluation.passed for evaluation in evaluations}


@pytest.fixture
def joined(tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession) -> Joined:
    made = Joined(tmp_path, instance)
    made.write_dump()
    return made


def test_a_dump_stands_upstream_of_ddl_where_there_is_one(joined: Joined) -> None:
    graph = joined.defs.resolve_asset_graph()
    assert graph.get(DDL).parent_keys == {BUCKET, DUMP}
    assert not graph.get(DUMP).is_executable
    assert graph.get(DUMP).is_partitioned
    # by equal keys a backfill of a version that is in no dump would be refused
    assert isinstance(graph.get_partition_mapping(DDL, DUMP), dg.AllPartitionMapping)
    joined.join(complete=["s.*"])
    assert joined.defs.resolve_asset_graph().get(DDL).parent_keys == {BUCKET}


def test_the_sensor_shows_the_tables_of_a_dump_once_and_asks_for_the_import_with_the_first_run(joined: Joined) -> None:
    first = joined.tick()
    added = {request.partitions_def_name: list(request.partition_keys) for request in
             first.dynamic_partitions_requests or []}  # fmt: skip
    assert added["cdc-dump_little"] == [key(FIRST, "s.empty"), key(FIRST)]
    assert added["cdc_little"] == [key(FIRST, "s.empty"), key(FIRST), key(LATER)]
    seen = [event for event in first.asset_events if event.asset_key == DUMP]
    assert [event.partition for event in seen] == added["cdc-dump_little"]
    assert {str(event.metadata["tso"].value) for event in seen} == {str(FIRST)}
    assert [event.metadata["files"].value for event in seen] == [0, 1]
    assert all(event.description == "It is imported before all changes of the changefeed." for event in seen)
    assert first.run_requests
    again = joined.tick()
    assert not [event for event in again.asset_events if event.asset_key == DUMP]
    assert not again.dynamic_partitions_requests


def test_the_partition_of_a_dump_imports_its_table_and_nothing_later(joined: Joined) -> None:
    joined.tick()
    result = joined.partition(FIRST)
    assert result.success
    assert joined.values() == {1: "old", 2: "changed", 3: "new"}
    metadata = of_dump(result, key(FIRST))
    assert (metadata["rows"], metadata["files"], metadata["tso"]) == (2, 1, str(FIRST))
    assert joined.materialized(DML) == {key(FIRST)}
    joined.partition(FIRST, "s.empty")
    assert joined.materialized(DML) == {key(FIRST), key(FIRST, "s.empty")}
    assert joined.partition(LATER).success
    assert joined.values() == AFTER


def test_a_run_over_all_tables_imports_first_and_logs_rows_files_and_tso(joined: Joined) -> None:
    result = joined.job("catch_up")
    assert result.success
    assert joined.values() == AFTER
    assert initial_rows(result) == {"t": True, "empty": True}
    assert (of_dump(result, key(FIRST))["rows"], of_dump(result, key(FIRST, "s.empty"))["rows"]) == (2, 0)
    events = [(event.asset_key, event.partition) for event in result.get_asset_materialization_events()]
    assert events.index((DUMP, key(FIRST))) < events.index((DDL, key(LATER))) < events.index((DML, key(LATER)))
    assert joined.materialized(DUMP) == {key(FIRST), key(FIRST, "s.empty")}
    assert joined.materialized(DML) == {key(FIRST), key(FIRST, "s.empty"), key(LATER)}
    (ddl,) = [event for event in result.get_asset_materialization_events()
              if (event.asset_key, event.partition) == (DDL, key(FIRST))]  # fmt: skip
    assert str(joined.dump) in str(ddl.materialization.metadata["dump"].value)


def test_a_standing_table_is_imported_on_request_and_stays_the_same_table(joined: Joined) -> None:
    joined.join(complete=["s.empty"])
    alone = joined.job("catch_up")
    assert initial_rows(alone) == {"t": False, "empty": True}
    assert joined.values() == LACKING
    before = joined.lives()

    joined.join()
    (seen,) = (event for event in joined.tick().asset_events if event.partition == key(FIRST))
    assert "launch little_rebuild" in str(seen.description)
    assert initial_rows(joined.job("catch_up", tables=[str(before[T])])) == {}
    assert joined.values() == LACKING

    result = joined.job("rebuild", incomplete=True)
    assert result.success
    assert joined.values() == AFTER
    assert joined.lives() == before
    assert initial_rows(result) == {"t": True, "empty": True}
    (ddl,) = [event.materialization for event in result.get_asset_materialization_events()
              if (event.asset_key, event.partition) == (DDL, key(FIRST))]  # fmt: skip
    assert "CREATE TABLE `t`" in str(ddl.metadata["query"].value)
    assert {key(FIRST)} <= joined.materialized(DDL) & joined.materialized(DML) & joined.materialized(DUMP)
    assert joined.job("rebuild", incomplete=True).success
    assert joined.tick().skip_reason is not None


def test_an_import_is_refused_where_rows_of_the_changefeed_above_the_dump_are_gone(joined: Joined) -> None:
    joined.join(complete=["s.empty"])
    joined.job("catch_up")
    joined.first.unlink()
    joined.join()
    result = joined.job("rebuild", tables=["s.t"])
    assert not result.success
    assert "existed and is missing now" in reason_of(result)
    assert joined.first.name in reason_of(result)
    assert joined.values() == LACKING


def test_a_dump_that_is_later_than_the_checkpoint_waits_for_it(
    tmp_path: Path, instance: dg.DagsterInstance, spark: SparkSession
) -> None:
    joined = Joined(tmp_path, instance)
    joined.write_dump(LATER + 1000)
    seen = {event.partition: event.description for event in joined.tick().asset_events if event.asset_key == DUMP}
    assert str(seen[key(LATER + 1000)]).startswith("It waits until the changefeed is complete through its TSO")
