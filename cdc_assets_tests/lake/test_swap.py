"""A rebuild's tables and swaps on Iceberg: one commit each, stopped anywhere, beside other runs."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdc_assets.decoding.keyed_rows import WantedKeys
from cdc_assets.errors import RebuildRefused, TableMoved
from cdc_assets.features.forgetting.lake import LakeForgetting
from cdc_assets.lake import Lake, commit, swap
from cdc_assets.lake.lake_table import REBUILD
from cdc_assets.lake.swap import Rebuilds
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Phase, Progress
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import DeleteRows, MoveColumns, RetypeColumn
from cdc_assets.model.steps import RenameTable
from cdc_assets.model.tickets import Ticket
from cdc_assets.operations.rebuild import SwappedTable, rebuild
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.cases import Checkpoint, Config, expected_tables
from cdc_assets_tests.kills import Killed, Trap, checkpoints, leftovers, named, trapped
from cdc_assets_tests.lake.table_source import ID, NOTE, SCHEMA, Source
from cdc_assets_tests.lake.test_races import overtake
from cdc_assets_tests.operations.test_rebuild import first, pipeline_of
from cdc_assets_tests.replay import compare

pytestmark = pytest.mark.timeout(900)


def lose_rows(lake: Lake, name: TableId) -> None:
    """Delete rows behind the changefeed's back, in a commit without a label."""
    with lake.workbench.sessions.step() as session:
        table = session.name(lake.state.named(name).identifier)
        session.sql(f"DELETE FROM {table} WHERE _cdc_commit_ts % 2 = 0 OR _cdc_commit_ts > 0")


def opened(directory: Path, spark: SparkSession) -> tuple[Lake, Ledger]:
    lake = Lake(LakeSettings.from_warehouse(directory), "default", lambda: spark)
    return lake, Ledger(f"sqlite:///{directory}/ledger.db")


def damaged(directory: Path, spark: SparkSession, config: Config, checkpoint: Checkpoint) -> tuple[Lake, Ledger]:
    """Apply a checkpoint to a new lake and lose rows of every table."""
    lake, ledger = opened(directory, spark)
    pipeline_of(config, checkpoint, lake, ledger).apply("first")
    for name in sorted(lake.names()):
        lose_rows(lake, name)
    return lake, ledger


def test_partitions_that_were_exchanged_come_back_together_and_each_table_by_one_commit(
    spark: SparkSession, tmp_path: Path
) -> None:
    config, checkpoint = first("E_partitions/canal-ext")
    assert checkpoint.expected is not None
    lake, ledger = damaged(tmp_path, spark, config, checkpoint)
    pipeline = pipeline_of(config, checkpoint, lake, ledger)
    before = {life: held.snapshot_id for life, held in lake.state.tables().items()}
    done = rebuild(pipeline, Rebuilds(lake), (), "again")
    assert {table.name for table in done} == lake.names()
    tables = lake.state.tables()
    assert {table.life: tables[table.life].parent_id for table in done} == {
        table.life: before[table.life] for table in done
    }
    assert compare(config, checkpoint.expected, lake, pipeline.apply("after")) == []
    assert leftovers(lake.state) == []
    assert not list(tmp_path.glob("default~*"))
    assert not [
        name for name in lake.state.catalog.list_namespaces() if name[0].startswith(lake.state.places.own.aside)
    ]
    assert Rebuilds(lake).tickets() == ()
    lake.close()
    ledger.close()


SWAPPED_AT = (
    "before Rebuilds.swap",
    "after _staged",
    "after publish",
    "before Ledger.record_ddl",
    "before Rebuilds.end",
    "before Rebuilds._remove_directory",
)
MORE_PLACES = (
    "after Rebuilds.touch",
    "after create of CreateTable",
    "before publish",
    "before _staged",
    "after Rebuilds.swap",
    "after Ledger.record_ddl",
    "after SqlCatalog.drop_table",
    "after Rebuilds._remove_directory",
    "after Rebuilds.end",
)


@pytest.mark.parametrize(
    "stops", [SWAPPED_AT, pytest.param((*SWAPPED_AT, *MORE_PLACES), marks=pytest.mark.soak)], ids=["chosen", "all"]
)
def test_a_rebuild_that_is_stopped_around_the_swap_is_completed_by_the_next_one(
    stops: tuple[str, ...], spark: SparkSession, tmp_path: Path
) -> None:
    config, checkpoint = first("G_redelivery/csv-ts")
    assert checkpoint.expected is not None
    lake, ledger = damaged(tmp_path, spark, config, checkpoint)
    done: tuple[SwappedTable, ...] = ()
    killed, rows = set[str](), {name: lake.state.named(name).rows for name in lake.names()}
    whole = {table.id: len(table.rows) for table in expected_tables(checkpoint.expected).values()}

    def due(number: int, name: str) -> bool:
        places = [place for place in stops if name.startswith(place)]
        return bool(places) and not any(before.startswith(place) for place in places for before in killed)

    while not done:
        lake.close()
        ledger.close()
        lake, ledger = opened(tmp_path, spark)
        assert len(Rebuilds(lake).tickets()) <= 1
        try:
            with trapped(Trap(due)) as trap:
                done = rebuild(pipeline_of(config, checkpoint, lake, ledger), Rebuilds(lake), (), "again")
        except Killed:
            killed.add(trap.killed)
        for name in lake.names():
            assert lake.state.named(name).rows in (rows[name], whole[name]), "a reader saw half a table"
    assert len(killed) >= len(stops) - 4, killed
    assert compare(config, checkpoint.expected, lake, pipeline_of(config, checkpoint, lake, ledger).apply("x")) == []
    assert leftovers(lake.state) == []
    assert not list(tmp_path.glob("default~*"))
    lake.close()
    ledger.close()


def pair(open_lake: Callable[..., Lake], token: str = "t1") -> tuple[Source, Source, Rebuilds]:
    """A live table with rows through 200, and the same one swap, with nothing yet."""
    live = Source(open_lake())
    live.apply(200, [("I", 110, 1, "a"), ("I", 111, 2, "b")])
    rebuilds = Rebuilds(live.lake)
    return live, Source(rebuilds.begin(token)), rebuilds


def test_a_swap_brings_columns_types_documentation_name_and_label_of_the_table_aside(
    open_lake: Callable[..., Lake],
) -> None:
    live, made, rebuilds = pair(open_lake)
    number = Column("note", "INT")
    made.apply(150, [("I", 110, 1, "7")])
    made.change(210, TableSchema((number, ID), ("id",)), RetypeColumn(NOTE, number), MoveColumns(("note", "id")))
    made.lake.run(RenameTable(made.life, 220, TableId("shop", "renamed")))
    rebuilds.swap(made.lake, live.life, "t1")
    live.lake.apply_renames()
    live.name = TableId("shop", "renamed")
    assert live.lake.read(live.name).select(["note", "id"]).to_pylist() == [{"note": 7, "id": 1}]
    schema = live.lake.state.catalog.load_table(("shop", "renamed")).schema()
    assert [(field.name, field.doc) for field in schema.fields[:2]] == [("note", "INT"), ("id", "BIGINT NOT NULL")]
    assert live.lake.applied()[live.life] == made.lake.applied()[live.life]
    assert live.lake.state.snapshot_with(live.life, REBUILD, "t1") is not None


def test_rows_go_on_after_a_swap_of_the_same_columns_and_after_one_of_others(open_lake: Callable[..., Lake]) -> None:
    live, made, rebuilds = pair(open_lake)
    made.apply(200, [("I", 110, 1, "a")])
    rebuilds.swap(made.lake, live.life, "t1")
    live.apply(300, [("U", 210, 1, "A"), ("I", 211, 3, "c")])
    assert live.rows() == [(1, "A"), (3, "c")]
    other = Source(rebuilds.begin("t2"))
    other.change(150, TableSchema((NOTE, ID), ("id",)), MoveColumns(("note", "id")))
    other.apply(300, [("I", 210, "x", 1)])
    rebuilds.swap(other.lake, live.life, "t2")
    live.schema = other.schema
    live.apply(400, [("U", 310, "y", 1)])
    assert live.rows() == [("y", 1)]


def test_an_empty_table_aside_empties_the_live_one_and_its_label_goes_along(open_lake: Callable[..., Lake]) -> None:
    live, made, rebuilds = pair(open_lake)
    made.change(250, SCHEMA, DeleteRows(None))
    rebuilds.swap(made.lake, live.life, "t1")
    assert live.rows() == []
    assert live.lake.applied()[live.life].progress == Progress(250, Phase.DDL)


def test_a_table_that_was_never_made_live_appears_with_its_rows(open_lake: Callable[..., Lake]) -> None:
    lake = open_lake()
    rebuilds = Rebuilds(lake)
    made = Source(rebuilds.begin("t1"))
    made.apply(200, [("I", 110, 1, "a")])
    rebuilds.swap(made.lake, made.life, "t1")
    assert lake.read(made.name).select(["id", "note"]).to_pylist() == [{"id": 1, "note": "a"}]
    assert lake.applied()[made.life] == made.lake.applied()[made.life]
    made.lake = lake
    made.apply(300, [("U", 210, 1, "b")])
    assert made.rows() == [(1, "b")]


def test_a_table_that_is_further_than_the_one_aside_is_left_alone(open_lake: Callable[..., Lake]) -> None:
    live, made, rebuilds = pair(open_lake)
    made.apply(150, [("I", 110, 1, "a")])
    with pytest.raises(TableMoved, match="advanced to 200 while it was rebuilt through 150"):
        rebuilds.swap(made.lake, live.life, "t1")
    assert live.rows() == [(1, "a"), (2, "b")]


def test_a_table_aside_that_was_begun_before_rows_were_forgotten_does_not_bring_them_back(
    open_lake: Callable[..., Lake],
) -> None:
    live, made, rebuilds = pair(open_lake)
    made.apply(200, [("I", 110, 1, "a"), ("I", 111, 2, "b")])
    other = LakeForgetting(open_lake())
    at = other.lake.applied()[live.life].progress
    wanted = WantedKeys(pa.table({"id": pa.array([1], pa.int64())}), SCHEMA)
    other.forget(live.life, wanted, at, "a run", kept_out=False)
    with pytest.raises(RebuildRefused, match="were forgotten since this rebuild of it began"):
        rebuilds.swap(made.lake, live.life, "t1")
    assert live.rows() == [(2, "b")]
    again = Source(rebuilds.begin("t2"))
    again.apply(200, [("I", 111, 2, "b")])
    rebuilds.swap(again.lake, live.life, "t2")
    assert live.rows() == [(2, "b")]


def test_a_table_is_not_replaced_for_a_ddl_while_rows_are_forgotten(open_lake: Callable[..., Lake]) -> None:
    live, _, _ = pair(open_lake)
    forgetting, text = LakeForgetting(live.lake), Column("id", "VARCHAR", precision=20, nullable=False, is_pk=True)
    forgetting.touch(Ticket("now", "", "run", time.time(), 0, "shop.orders", 1))
    with pytest.raises(TableMoved, match="is not replaced meanwhile"):
        live.change(210, TableSchema((text, NOTE), ("id",)), RetypeColumn(ID, text))
    forgetting.end("now")
    live.change(210, TableSchema((text, NOTE), ("id",)), RetypeColumn(ID, text))
    assert live.rows() == [("1", "a"), ("2", "b")]


def test_a_table_aside_that_lacks_nothing_is_swapped_in_and_the_progress_stays(open_lake: Callable[..., Lake]) -> None:
    live, made, rebuilds = pair(open_lake)
    made.apply(150, [("I", 110, 1, "a")])
    with pytest.raises(TableMoved, match="advanced to 200 while it was rebuilt through 150"):
        rebuilds.swap(made.lake, live.life, "t1", 199)
    rebuilds.swap(made.lake, live.life, "t1", 200)
    assert live.rows() == [(1, "a")]
    assert live.lake.applied()[live.life].progress == Progress(200, Phase.ROWS)


@pytest.mark.parametrize("seam", [(swap, "publish"), (commit, "_staged")], ids=["publish", "_staged"])
def test_a_writer_that_commits_while_a_table_is_swapped_wins(
    seam: tuple[Any, str], open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    live, made, rebuilds = pair(open_lake)
    made.apply(200, [("I", 110, 1, "a")])
    writer = open_lake()

    def newer() -> None:
        step, files = live.window(300, [("I", 210, 3, "c")])
        writer.commit(step, writer.stage(step, files))

    overtake(monkeypatch, *seam, newer)
    with pytest.raises(TableMoved):
        rebuilds.swap(made.lake, live.life, "t1")
    assert live.rows() == [(1, "a"), (2, "b"), (3, "c")]
    assert live.lake.applied()[live.life].progress == Progress(300, Phase.ROWS)


def test_tables_of_a_rebuild_that_lives_stay_and_those_of_a_dead_one_go(open_lake: Callable[..., Lake]) -> None:
    lake = open_lake()
    rebuilds = Rebuilds(lake)
    for token in ("lives", "dead"):
        rebuilds.touch(Ticket(token, "", "run", 0.0, 0.0))
        Source(rebuilds.begin(token)).apply(200, [("I", 110, 1, "a")])
    Source(rebuilds.begin("orphan"))
    (dead,) = [ticket for ticket in rebuilds.tickets() if ticket.token == "dead"]
    document = json.dumps({**dataclasses.asdict(dead), "alive": 0.0})
    lake.state.catalog.update_namespace_properties(("_cdc",), updates={"cdc.rebuild.default.dead": document})
    assert rebuilds.end_stale() == 2
    assert [ticket.token for ticket in rebuilds.tickets()] == ["lives"]
    assert lake.state.changefeeds() == {"default~lives"}
    assert rebuilds.end("lives") == 1


@pytest.mark.parametrize("other", [pytest.param("another rebuild", marks=pytest.mark.soak), "a writer"])
def test_a_rebuild_beside_another_run_ends_with_every_table_right(
    other: str, spark: SparkSession, tmp_path: Path
) -> None:
    config = named("G_redelivery/csv-ts")
    early, late = checkpoints(config)[0], checkpoints(config)[-1]
    assert late.expected is not None
    lake, ledger = damaged(tmp_path, spark, config, early)
    errors: list[BaseException] = []
    start = threading.Barrier(2)

    def run(rebuilds: bool) -> None:
        rebuild_lake, notes = opened(tmp_path, spark)
        pipeline = pipeline_of(config, late, rebuild_lake, notes)
        start.wait()
        try:
            if rebuilds:
                rebuild(pipeline, Rebuilds(rebuild_lake), (), "again")
            else:
                pipeline.apply("the writer")
        except TableMoved:
            pass  # the other one won; a later run ends it
        except BaseException as error:  # noqa: BLE001  # a thread's error is the test's
            errors.append(error)
        finally:
            rebuild_lake.close()
            notes.close()

    threads = [threading.Thread(target=run, args=(is_rebuild,)) for is_rebuild in (True, other == "another rebuild")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    pipeline = pipeline_of(config, late, lake, ledger)
    rebuild(pipeline, Rebuilds(lake), (), "last")
    assert compare(config, late.expected, lake, pipeline.apply("after")) == []
    assert leftovers(lake.state) == []
    lake.close()
    ledger.close()
