"""A run may be stopped anywhere: what the next ones make of it is equal to the source, and nothing is left over."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_assets.lake import Lake
from cdc_assets.lake.chores import Chores
from cdc_assets.lake.maintenance import LakeMaintenance
from cdc_assets.lake.staging.stage import STAGE
from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import MoveColumns, RetypeColumn
from cdc_assets.model.steps import RenameTable
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import from_flags
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.settings.sections import MaintenanceSettings
from cdc_assets_tests.cases import Checkpoint, Config, cases
from cdc_assets_tests.kills import (
    FEEDS,
    Killed,
    Trap,
    beside,
    checkpoints,
    interrupted,
    named,
    soak,
    trapped,
    unreferenced,
    victim,
    wrong,
)
from cdc_assets_tests.lake.table_source import ID, NOTE, Source
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.replay import compare, replay

pytestmark = pytest.mark.timeout(900)

FEW = {
    "C_ddl_tables/csv-ts": (
        "after create of CreateTable",
        "after _write_manifest of ApplyRows",
        "before _staged of ApplyRows",
        "after publish of ApplyRows",
        "after publish of RenameTable",
        "after SqlCatalog.rename_table of RenameTable",
        "after publish of DropTable",
        "before Ledger.record_ddl of DeleteRows",
    ),
    "E_partitions/canal-ext": (
        "after Lake.run of ExchangePartition",
        "after _staged of DeleteRows",
        "before Ledger.record_files of ApplyRows",
        "before SqlCatalog.rename_table of RenameTable",
        "after Ledger.record_columns",
    ),
    "B_ddl_columns/csv-ts": (
        "before _refuse_lost of",
        "after _converted of",
        "before _settle_columns of",
        "after _rewrite of",
        "after Ledger.record_ddl of",
    ),
}
"""Where a run is stopped, each once and in any order: a chain of so many kills and one run that ends."""


def _chain(config: Config, directory: Path, spark: SparkSession, due: Callable[[set[str], int, str], bool]) -> set[str]:
    """Stop runs where `due` says, asked with the kills so far, until one ends; the lake is right then."""
    directory.mkdir()
    killed = set[str]()
    for checkpoint in checkpoints(config, 1):
        for _ in range(200):
            trap = Trap(lambda number, name: due(killed, number, name))
            if not interrupted(config, checkpoint, directory, lambda: spark, trap):
                break
            killed.add(trap.killed)
        assert wrong(config, checkpoint, directory, lambda: spark) == []
    return killed


@pytest.mark.parametrize(
    "feed", [name if name[0] == "E" else pytest.param(name, marks=pytest.mark.soak) for name in FEW]
)
def test_runs_that_are_stopped_at_chosen_places_leave_what_the_next_one_completes(
    feed: str, spark: SparkSession, tmp_path: Path
) -> None:
    def due(killed: set[str], number: int, name: str) -> bool:
        places = [place for place in FEW[feed] if place in name]
        return bool(places) and not any(place in before for place in places for before in killed)

    killed = _chain(named(feed), tmp_path / "lake", spark, due)
    assert len(killed) == len(FEW[feed])


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("feed", FEW)
def test_runs_that_are_stopped_at_every_place_leave_what_the_next_one_completes(
    feed: str, spark: SparkSession, tmp_path: Path
) -> None:
    killed = _chain(named(feed), tmp_path / "lake", spark, lambda killed, _, name: name not in killed)
    assert len(killed) > 50


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(6))
def test_runs_that_are_stopped_anywhere_leave_what_the_next_one_completes(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    feed = FEEDS[seed % len(FEEDS)]
    _chain(named(feed), tmp_path / "lake", spark, lambda killed, number, _: len(killed) < 30 and rng.random() < 0.04)


def test_a_process_that_is_killed_between_a_commit_and_its_record_is_followed_by_one_that_completes(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = named("L_crash/csv-ts")
    (checkpoint,) = checkpoints(config, 1)
    assert victim(config, checkpoint, tmp_path, seam="after publish of ApplyRows")
    assert not interrupted(config, checkpoint, tmp_path, lambda: spark, Trap(lambda number, name: False))
    assert wrong(config, checkpoint, tmp_path, lambda: spark) == []


IMPORT = (
    "after create of CreateTable",
    "before Lake.stage of ApplyRows",
    "after _write_manifest of ApplyRows",
    "after Lake.stage of ApplyRows",
    "before _staged of ApplyRows",
    "after _staged of ApplyRows",
    "after publish of ApplyRows",
    "before Ledger.record_files of ApplyRows",
)
"""Where an import is stopped, each once: the first rows of a table are those of the dump."""


def _imported(config: Config, directory: Path, kind: str) -> tuple[Checkpoint, Checkpoint]:
    """Write the feed since a checkpoint with the dump of then beside a new lake; return that and the last one."""
    known = checkpoints(config)
    directory.mkdir()
    beside(config, known[-1], directory, known[1], kind)
    return known[1], known[-1]


@pytest.mark.parametrize(
    ("feed", "places"),
    [
        ("G_redelivery/csv-ts", ("after create of CreateTable", "after publish of ApplyRows")),
        pytest.param("G_redelivery/csv-ts", IMPORT, marks=pytest.mark.soak),
        pytest.param("C_ddl_tables/csv-ts", IMPORT, marks=pytest.mark.soak),
    ],
)
def test_imports_that_are_stopped_leave_what_the_next_run_completes(
    feed: str, places: tuple[str, ...], spark: SparkSession, tmp_path: Path
) -> None:
    config, directory, killed = named(feed), tmp_path / "lake", set[str]()
    begin, last = _imported(config, directory, "csv")

    def due(_: int, name: str) -> bool:
        return name in places and name not in killed

    while True:
        trap = Trap(due)
        if not interrupted(config, last, directory, lambda: spark, trap, begin):
            break
        killed.add(trap.killed)
    assert killed == set(places)
    assert wrong(config, last, directory, lambda: spark, begin) == []


@pytest.mark.soak
@pytest.mark.parametrize("seam", IMPORT)
def test_a_process_that_is_killed_in_an_import_is_followed_by_one_that_completes_it(
    seam: str, spark: SparkSession, tmp_path: Path
) -> None:
    config, directory = named("G_redelivery/csv-ts"), tmp_path / "lake"
    begin, last = _imported(config, directory, "sql")
    assert victim(config, last, directory, seam=seam, begin=begin)
    assert not interrupted(config, last, directory, lambda: spark, Trap(lambda number, name: False), begin)
    assert wrong(config, last, directory, lambda: spark, begin) == []
    assert _swept(directory, spark) == []


def _swept(directory: Path, spark: SparkSession) -> list[str]:
    """Clean up as some days later, and return the files of rows that are still there and in no table."""
    for path in [*(directory / STAGE).glob("*")]:
        path.rename(path.with_name(f"1000-{path.name.partition('-')[2]}"))
    for path in directory.rglob("*.parquet"):
        os.utime(path, (0, 0))
    lake = Lake(LakeSettings.from_warehouse(directory), "default", lambda: spark)
    try:
        keeper = LakeMaintenance(lake, MaintenanceSettings())
        for facts in keeper.facts():
            keeper.carry_out(facts, Chores(orphans=True), int(time.time() * 1000))
        keeper.sweep()
        return unreferenced(lake.state)
    finally:
        lake.close()


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_a_hundred_processes_are_killed_and_no_result_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        assert soak(int(os.environ.get("CDC_ASSETS_KILLS", "100")), 1, FEEDS, print) == []


# --- single places ----------------------------------------------------------------------------------------------------


def _stopped(seam: str) -> Trap:
    return Trap(lambda number, name: name.startswith(seam))


def _pipeline_without_steps(directory: Path, lake: Lake) -> Pipeline:
    directory.mkdir()
    (directory / "metadata").write_text('{"checkpoint-ts":500}')
    uri = f"{directory}?protocol=canal-json&enable-tidb-extension=true"
    (settings,) = from_flags(sink_uri=uri).changefeeds
    return Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://"))


def test_a_rename_whose_run_died_is_finished_by_a_run_that_has_nothing_else_to_do(
    open_lake: Callable[..., Lake], tmp_path: Path
) -> None:
    orders = Source(open_lake())
    with trapped(_stopped("before apply_renames")), pytest.raises(Killed):
        orders.lake.run(RenameTable(orders.life, 200, TableId("new", "orders")))
    _pipeline_without_steps(tmp_path / "feed", open_lake()).apply()
    assert open_lake().state.find(orders.life).identifier == ("new", "orders")


def test_a_rewrite_leaves_documented_columns_in_their_order_even_when_it_dies_right_after(lake: Lake) -> None:
    orders, number = Source(lake), Column("note", "INT")
    orders.apply(200, [("I", 110, 1, "7")])
    trap = _stopped("before _refuse_lost")
    with trapped(trap), pytest.raises(Killed):
        orders.change(210, TableSchema((number, ID), ("id",)), RetypeColumn(NOTE, number), MoveColumns(("note", "id")))
    assert trap.killed
    schema = lake.state.catalog.load_table(("shop", "orders")).schema()
    assert [(field.name, field.doc) for field in schema.fields[:2]] == [("note", "INT"), ("id", "BIGINT NOT NULL")]
    assert lake.read(orders.name).column("note").to_pylist() == [7]


# --- without Spark ----------------------------------------------------------------------------------------------------


QUICK = {"C_ddl_tables/csv-ts", "E_partitions/canal-ext", "G_redelivery/csv-ts"}
CONFIGS = [
    pytest.param(config, id=str(config), marks=() if str(config) in QUICK else pytest.mark.soak)
    for case in cases()
    for config in case.configs
    if config.options.wire.has_commit_ts
]


@pytest.mark.parametrize("config", CONFIGS)
def test_between_lake_and_ledger_no_place_to_stop_loses_or_repeats_anything(config: Config, tmp_path: Path) -> None:
    final = config.checkpoints[-1]
    assert final.expected is not None
    lake, killed = MemoryLake(), set[str]()
    while True:
        ledger, trap = Ledger(f"sqlite:///{tmp_path}/ledger.db"), Trap(lambda number, name: name not in killed)
        try:
            with trapped(trap):
                outcome = replay(config, final, lake, ledger)
            break
        except Killed:
            killed.add(trap.killed)
        finally:
            ledger.close()
    assert compare(config, final.expected, lake, outcome) == []
    assert len(killed) > 10
