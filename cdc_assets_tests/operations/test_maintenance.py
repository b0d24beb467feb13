"""Maintenance: only what is due, nothing that is needed, and the same rows and progress afterwards."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from cdc_assets.errors import TableHeld, TableMoved
from cdc_assets.lake import Lake, commit, maintenance
from cdc_assets.lake import chores as chores_module
from cdc_assets.lake.chores import Chores, SnapshotFact, TableFacts, chores, expirable
from cdc_assets.lake.label import Label
from cdc_assets.lake.maintenance import LakeMaintenance
from cdc_assets.lake.swap import Rebuilds
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import AppliedState, Life, Phase, Progress
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import CreateTable, DropTable, ExchangePartition
from cdc_assets.model.tickets import Ticket
from cdc_assets.operations import maintenance as upkeep
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.maintenance import MOVE_HEADS, TableMaintenance, maintain
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.pipeline.planner import EmptyLake, Planner
from cdc_assets.planning.plan import open_exchanges
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.settings.sections import MaintenanceSettings
from cdc_assets_tests.cases import Config
from cdc_assets_tests.kills import checkpoints, leftovers, named
from cdc_assets_tests.lake.table_source import Source, id_below
from cdc_assets_tests.lake.test_races import overtake
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.replay import AsOf, compare

pytestmark = pytest.mark.timeout(900)

DAY = 86_400_000
EAGER = MaintenanceSettings(
    small_files=2, manifests=4, snapshot_days=0.05, snapshots_kept=1, expire_at_least=1, deleted_share=0.01
)
"""Everything is due as soon as there is anything to do."""


def later_ms(days: float = 10) -> int:
    return int(time.time() * 1000 + days * DAY)


# --- the policy -------------------------------------------------------------------------------------------------------


def facts(**given: Any) -> TableFacts:
    plain = TableFacts("shop.orders", Life(TableId("shop", "orders"), 1), 5_000, 1, 1 << 20, 1, 0, 0, 1, 4096)
    return replace(plain, **given)


SNAPSHOTS = st.builds(
    SnapshotFact,
    id=st.integers(1, 10**6),
    made_ms=st.integers(0, 20 * DAY),
    labelled=st.booleans(),
    referenced=st.booleans(),
)
SETTINGS = st.builds(
    MaintenanceSettings,
    snapshot_days=st.floats(0.05, 30),
    snapshots_kept=st.integers(1, 12),
    expire_at_least=st.integers(1, 5),
    snapshots_most=st.integers(10, 15),
)


@st.composite
def histories(draw: st.DrawFn) -> TableFacts:
    snapshots = draw(st.lists(SNAPSHOTS, max_size=25, unique_by=lambda snapshot: snapshot.id))
    cut = draw(st.integers(0, len(snapshots)))
    ids = [snapshot.id for snapshot in snapshots]
    needed = frozenset(draw(st.sets(st.sampled_from(ids), max_size=2))) if ids else frozenset()
    return facts(lineage=tuple(snapshots[:cut]), strays=tuple(snapshots[cut:]), needed=needed)


@given(histories(), SETTINGS, st.integers(0, 40 * DAY))
def test_what_is_needed_referenced_or_young_never_expires_nor_does_the_newest_label(
    history: TableFacts, settings: MaintenanceSettings, now: int
) -> None:
    gone = set(expirable(history, settings, now))
    many = {snapshot.id for snapshot in history.lineage[settings.snapshots_most :]}
    for snapshot in (*history.lineage, *history.strays):
        days = 10 / 1440 if snapshot.id in many else settings.snapshot_days
        if snapshot.referenced or snapshot.id in history.needed or snapshot.made_ms > now - days * DAY:
            assert snapshot.id not in gone
    newest = next((snapshot for snapshot in history.lineage if snapshot.labelled), None)
    assert newest is None or newest.id not in gone
    assert not gone & {snapshot.id for snapshot in history.lineage[: settings.snapshots_kept]}


def test_of_more_snapshots_than_are_kept_the_oldest_expire_that_nobody_reads_any_more() -> None:
    lineage = tuple(SnapshotFact(1000 - at, 10 * DAY - at * 1000, labelled=True) for at in range(1000))
    gone = expirable(facts(lineage=lineage), MaintenanceSettings(snapshots_most=700), 10 * DAY)
    assert gone == tuple(range(300, 0, -1))
    gone = expirable(facts(lineage=lineage), MaintenanceSettings(snapshots_most=500), 10 * DAY)
    assert gone == tuple(range(400, 0, -1))


@given(histories(), SETTINGS, st.integers(0, 40 * DAY))
def test_the_lineage_that_is_left_is_one_piece_from_the_newest_on_but_for_what_is_referenced(
    history: TableFacts, settings: MaintenanceSettings, now: int
) -> None:
    gone = set(expirable(history, settings, now))
    first = next((place for place, snapshot in enumerate(history.lineage) if snapshot.id in gone), len(history.lineage))
    assert all(snapshot.id in gone or snapshot.referenced for snapshot in history.lineage[first:])


@given(histories(), SETTINGS, st.integers(0, 40 * DAY))
def test_after_an_expiry_nothing_more_expires(history: TableFacts, settings: MaintenanceSettings, now: int) -> None:
    gone = set(expirable(history, settings, now))
    left = replace(
        history,
        lineage=tuple(snapshot for snapshot in history.lineage if snapshot.id not in gone),
        strays=tuple(snapshot for snapshot in history.strays if snapshot.id not in gone),
    )
    assert expirable(left, settings, now) == ()


@pytest.mark.parametrize(
    ("given_", "due"),
    [
        ({}, Chores()),
        ({"small_files": 12}, Chores(compact=True)),
        ({"small_files": 11}, Chores()),
        ({"rows": 90_000, "deleted_rows": 10_000}, Chores(compact=True)),
        ({"rows": 91_000, "deleted_rows": 9_000}, Chores()),
        ({"rows": 10, "deleted_rows": 999}, Chores()),
        ({"manifests": 20, "manifest_bytes": 20 << 12}, Chores(manifests=True)),
        ({"manifests": 20, "manifest_bytes": 200 << 20}, Chores()),
        ({"swept_ms": 97 * DAY}, Chores(orphans=True)),
        ({"swept_ms": 97 * DAY + 1}, Chores()),
    ],
)
def test_each_chore_is_due_from_its_threshold_on_and_not_before(given_: dict[str, Any], due: Chores) -> None:
    assert chores(facts(**{"swept_ms": 100 * DAY, **given_}), MaintenanceSettings(), 100 * DAY) == due


def test_a_maintained_table_shows_what_each_figure_was_and_is() -> None:
    before = facts(data_files=17, data_bytes=900, delete_files=3, strays=(SnapshotFact(1, 0), SnapshotFact(2, 0)))
    done = TableMaintenance(before, facts(data_files=1, data_bytes=800), Chores(compact=True))
    assert dict(zip(MOVE_HEADS, done.moves, strict=True)) == {
        "files": "17 → 1",
        "bytes": "900 → 800",
        "deletes": "3 → 0",
        "snapshots": "2 → 0",
    }


def test_a_table_without_snapshots_has_nothing_due() -> None:
    assert not chores(facts(lineage=(), rows=0, data_files=0), MaintenanceSettings(), 100 * DAY)


# --- on Iceberg -------------------------------------------------------------------------------------------------------


def tended(lake: Lake, days: float = 10, exchanges: Mapping[Life, frozenset[int]] | None = None) -> TableFacts:
    """Do what is due for all tables, and return the facts of `shop.orders` afterwards."""
    keeper = LakeMaintenance(lake, EAGER)
    for table_facts in keeper.facts(exchanges):
        keeper.carry_out(table_facts, chores(table_facts, EAGER, later_ms(days)), later_ms(days))
    return next(table_facts for table_facts in keeper.facts(exchanges) if table_facts.table == "shop.orders")


def busy(lake: Lake, windows: int = 2) -> Source:
    """A table with as many small windows, each of which adds a row, updates one, and deletes one."""
    orders = Source(lake)
    orders.apply(200, [("I", 110 + n, n, "first") for n in range(20)])
    for n in range(windows):
        ts = 300 + 10 * n
        orders.apply(ts + 9, [("I", ts, 100 + n, "new"), ("U", ts + 1, n, f"v{n}"), ("D", ts + 2, 19 - n, "first")])
    return orders


@dataclass(frozen=True)
class Tended:
    """A lake with a table of many small windows that was looked after; what the table was before, and is."""

    lake: Lake
    orders: Source
    rows: list[tuple[Any, ...]]
    applied: AppliedState
    before: TableFacts
    after: TableFacts


@pytest.fixture(scope="module")
def looked_after(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tended]:
    """Such a lake for tests that leave it as it is."""
    lake = Lake(LakeSettings.from_warehouse(tmp_path_factory.mktemp("tended") / "lake"), "default", lambda: spark)
    orders = busy(lake, 5)
    rows, applied, before = orders.rows(), lake.applied()[orders.life], LakeMaintenance(lake, EAGER).facts()[0]
    yield Tended(lake, orders, rows, applied, before, tended(lake))
    lake.close()


def test_many_small_windows_become_one_file_without_deletes_with_the_same_rows_and_progress(
    looked_after: Tended,
) -> None:
    before, after = looked_after.before, looked_after.after
    assert before.small_files > 5
    assert (after.data_files, after.delete_files, after.deleted_rows) == (1, 0, 0)
    assert after.rows == before.rows == len(looked_after.rows)
    assert after.snapshots < before.snapshots
    assert after.manifests <= before.manifests
    assert looked_after.orders.rows() == looked_after.rows
    assert looked_after.lake.applied()[looked_after.orders.life] == looked_after.applied


def test_a_run_that_goes_on_expires_the_snapshots_of_a_table_that_has_many(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_BATCH", 2)
    feed, lake = LittleFeed(tmp_path), Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "little", lambda: spark)
    for name in ("s.busy", "s.quiet"):
        feed.create(name)
    settings = feed.settings(maintenance={"snapshots_most": 10})
    pipeline = LakePipeline(settings, settings.open_source(), lake, Ledger("sqlite://"))

    def held(name: str) -> int:
        return lake.state.named(TableId("s", name)).snapshots

    for number in range(12):
        at = FIRST + 10 * number
        feed.rows("s.busy", FIRST, [("I", at + 1, number, "a")])
        if number == 4:
            feed.rows("s.quiet", FIRST, [("I", at + 1, number, "a")])
        feed.publish(at + 9)
        planned = pipeline.apply("test").plan
        now = later_ms(0.01 if number > 9 else 0)
        expired = upkeep.expire_snapshots(pipeline, planned, now)
        assert (expired is not None) == (number == 10), number
    assert (held("busy"), held("quiet")) == (11, 2)
    assert len(lake.read(TableId("s", "busy"))) == 12
    assert pipeline.apply("test").complete
    lake.close()


def test_a_run_that_goes_on_compacts_a_table_that_no_compaction_beside_it_could(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores_module, "_MANY_ROWS", 4)
    feed, lake = LittleFeed(tmp_path), Lake(LakeSettings.from_warehouse(tmp_path / "lake"), "little", lambda: spark)
    feed.create("s.busy")
    settings = feed.settings()
    pipeline = LakePipeline(settings, settings.open_source(), lake, Ledger("sqlite://"))
    hidden = []
    for number in range(6):
        at = FIRST + 100 * number
        changes = [("U", at + 1 + key, key, f"v{number}") for key in range(5)]
        feed.rows("s.busy", FIRST, changes if number else [("I", at + 1 + key, key, "a") for key in range(10)])
        feed.publish(at + 99)
        planned = pipeline.apply("test").plan
        done = upkeep.compact_overdue(pipeline, planned, later_ms(0))
        if done is not None:
            hidden.append((done.before.deleted_rows, done.after.deleted_rows, done.after.data_files))
    assert hidden == [(5, 0, 1)] * 5
    assert sorted(lake.read(TableId("s", "busy")).column("v").to_pylist()) == ["a"] * 5 + ["v5"] * 5
    assert pipeline.apply("test").complete
    lake.close()


def test_a_second_run_finds_nothing_due_and_commits_nothing(looked_after: Tended) -> None:
    lake, life = looked_after.lake, looked_after.orders.life
    place = lake.state.find(life).metadata_location
    (table_facts,) = (facts for facts in LakeMaintenance(lake, EAGER).facts() if facts.table == "shop.orders")
    assert not chores(table_facts, EAGER, later_ms())
    tended(lake)
    assert lake.state.find(life).metadata_location == place


def test_the_newest_labelled_snapshot_stays_behind_the_compactions(looked_after: Tended) -> None:
    state = looked_after.lake.state
    line = state.file(state.find(looked_after.orders.life).metadata_location).lineage()
    labels = [Label.parse(snapshot.summary) for snapshot in line]
    assert [label.progress.tso for label in labels if label] == [349]


def test_a_thread_that_never_used_spark_may_compact(lake: Lake) -> None:
    busy(lake)
    keeper = LakeMaintenance(lake, EAGER)
    (table_facts,) = keeper.facts()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(keeper.carry_out, table_facts, Chores(compact=True), later_ms()).result()
    assert keeper.facts()[0].data_files == 1


def expire_all(lake: Lake, orders: Source) -> None:
    """What another tool does to a table: only the newest snapshot stays."""
    with lake.workbench.sessions.step() as session:
        table = session.load(lake.state.find(orders.life).identifier)
        expiring = table.expireSnapshots().expireOlderThan(int(time.time() * 1000) + DAY).retainLast(1)
        expiring.commit()


def compact_as_another_tool(lake: Lake, orders: Source) -> None:
    with lake.workbench.sessions.step() as session:
        maintenance._compact(session, session.load(lake.state.find(orders.life).identifier), EAGER)


def test_progress_outlives_every_labelled_snapshot_once_it_was_maintained(lake: Lake) -> None:
    orders = busy(lake)
    applied, rows = lake.applied()[orders.life], orders.rows()
    tended(lake)
    expire_all(lake, orders)
    line = lake.state.file(lake.state.find(orders.life).metadata_location).lineage()
    assert [Label.parse(snapshot.summary) for snapshot in line] == [None]
    assert lake.applied()[orders.life] == applied
    assert orders.rows() == rows
    orders.apply(900, [("I", 810, 7777, "after")])
    assert lake.applied()[orders.life].progress == Progress(900, Phase.ROWS)


def test_a_table_whose_labels_were_all_expired_still_exchanges_its_rows(lake: Lake) -> None:
    orders, archive = busy(lake), Source(lake, TableId("shop", "archive"))
    rows = orders.rows()
    tended(lake)
    expire_all(lake, orders)
    step = ExchangePartition(archive.life, orders.life, 900, id_below(10_000_000), True, archive.schema)
    lake.run(step)
    assert archive.rows() == rows


def test_a_newer_label_wins_over_what_maintenance_wrote_down(lake: Lake) -> None:
    orders = busy(lake)
    tended(lake)
    orders.apply(900, [("I", 810, 7777, "after")])
    assert lake.applied()[orders.life].progress == Progress(900, Phase.ROWS)
    compact_as_another_tool(lake, orders)
    assert lake.applied()[orders.life].progress == Progress(900, Phase.ROWS)


def test_a_table_whose_newer_labels_were_lost_does_not_go_back_to_what_was_written_down(lake: Lake) -> None:
    orders = busy(lake)
    tended(lake)
    orders.apply(900, [("I", 810, 7777, "after")])
    compact_as_another_tool(lake, orders)
    expire_all(lake, orders)
    assert orders.life not in lake.applied()
    with pytest.raises(TableHeld, match=r"shop\.orders has no progress: .* Drop it, and rebuild shop\.orders"):
        lake.run(CreateTable(orders.life, 100, orders.name, orders.schema))


def test_snapshots_that_an_open_exchange_reads_stay_while_it_is_open(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "low"), ("I", 111, 9, "high")])
    other = Source(lake, TableId("shop", "other"), at=101)
    other.apply(200, [("I", 120, 2, "theirs")])
    predicate = id_below(5)
    steps = [
        ExchangePartition(orders.life, other.life, 250, predicate, True, orders.schema),
        ExchangePartition(other.life, orders.life, 250, predicate, False, other.schema),
    ]
    lake.run(steps[0])
    for n in range(4):
        orders.apply(300 + n, [("U", 300 + n, 9, f"v{n}")])
    exchanges = {orders.life: frozenset({250})}
    tended(lake, exchanges=exchanges)
    tended(lake, exchanges=exchanges)
    lake.run(steps[1])
    assert other.rows() == [(1, "low")]
    assert len(LakeMaintenance(lake, EAGER).facts()[0].lineage) > tended(lake).snapshots


def test_files_that_nothing_refers_to_go_once_they_are_old_and_stages_with_them(lake: Lake) -> None:
    orders = busy(lake, 1)
    data = Path(lake.state.find(orders.life).location) / "data"
    old, young = data / "00000-stray.parquet", data / "00001-being-written.parquet"
    for file in (old, young):
        file.write_bytes(b"PAR1")
    os.utime(old, (0, 0))
    stage = Path(lake.settings.warehouse) / "_cdc_stage" / "1000-dead"
    stage.mkdir(parents=True)
    keeper = LakeMaintenance(lake, EAGER)
    (table_facts,) = [table_facts for table_facts in keeper.facts() if table_facts.table == "shop.orders"]
    assert keeper.carry_out(table_facts, Chores(orphans=True), int(time.time() * 1000)) == 1
    assert (old.exists(), young.exists()) == (False, True)
    Rebuilds(lake).touch(Ticket("lives", "", "run", 0.0, 0.0))
    Source(Rebuilds(lake).begin("lives"))
    Source(Rebuilds(lake).begin("orphan"))
    assert keeper.sweep() == (1, 1)
    assert not stage.exists()
    assert len(orders.rows()) == 20
    Rebuilds(lake).end("lives")


def test_the_lakes_own_tables_are_looked_after_without_a_jvm(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in (100, 110, 120):
        orders = Source(lake, at=at)
        lake.run(DropTable(orders.life, at + 5))
        lake.purge(orders.life)
    keeper = LakeMaintenance(lake, EAGER)
    (before,) = [table_facts for table_facts in keeper.facts() if table_facts.table == "_cdc.tombstones"]
    assert before.small_files == 3
    monkeypatch.setattr(lake.workbench.sessions, "step", lambda: pytest.fail("it takes no JVM"))
    keeper.carry_out(before, chores(before, EAGER, later_ms()), later_ms())
    (after,) = [table_facts for table_facts in keeper.facts() if table_facts.table == "_cdc.tombstones"]
    assert (after.data_files, after.rows) == (1, 3)
    assert len(lake.state.tombstones()) == 3


# --- beside a writer --------------------------------------------------------------------------------------------------


def newer(orders: Source, lake: Lake) -> None:
    step, files = orders.window(900, [("U", 800, 1, "newer"), ("D", 801, 2, "x"), ("I", 802, 500, "newer")])
    lake.commit(step, lake.stage(step, files))


def test_a_compaction_that_a_window_overtook_is_made_again_on_top_of_it(
    open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, writer = open_lake(), open_lake()
    orders = busy(lake)
    overtake(monkeypatch, maintenance, "_compact", lambda: newer(orders, writer))
    keeper = LakeMaintenance(lake, EAGER)
    (table_facts,) = keeper.facts()
    keeper.carry_out(table_facts, Chores(compact=True), later_ms())
    assert {(1, "newer"), (500, "newer")} <= set(orders.rows())
    assert 2 not in {row[0] for row in orders.rows()}
    assert lake.applied()[orders.life].progress == Progress(900, Phase.ROWS)
    assert keeper.facts()[0].delete_files == 0


def test_a_window_that_a_compaction_overtook_fails_and_is_right_when_it_is_done_again(
    open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, other = open_lake(), open_lake()
    orders = busy(lake)
    overtake(monkeypatch, commit, "_mark", lambda: compact_as_another_tool(other, orders))
    with pytest.raises(TableMoved):
        newer(orders, lake)
    lake.applied()
    newer(orders, lake)
    assert {(1, "newer"), (500, "newer")} <= set(orders.rows())
    assert len(orders.rows()) == 20 + 2 - 2 - 1 + 1


def test_a_compaction_that_is_never_left_alone_stops_with_the_table_right(
    open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, writer = open_lake(), open_lake()
    orders = busy(lake)
    original, moment = maintenance._compact, [900]

    def overtaken(*args: Any) -> None:
        ts = moment[0] = moment[0] + 10
        step, files = orders.window(ts, [("U", ts, 1, f"at {ts}")])
        writer.commit(step, writer.stage(step, files))
        original(*args)

    monkeypatch.setattr(maintenance, "_compact", overtaken)
    monkeypatch.setattr(maintenance, "_ATTEMPTS", 2)
    keeper = LakeMaintenance(lake, EAGER)
    with pytest.raises(TableMoved):
        keeper.carry_out(keeper.facts()[0], Chores(compact=True), later_ms())
    assert (1, f"at {moment[0]}") in orders.rows()
    assert len(orders.rows()) == 20


def test_a_writer_and_maintenance_that_run_at_once_both_end_with_every_row_there_once(
    open_lake: Callable[..., Lake],
) -> None:
    lake, other = open_lake(), open_lake()
    orders, over = busy(lake, 2), threading.Event()

    def tend() -> None:
        while not over.is_set():
            with suppress(TableMoved):
                tended(other, days=0)  # nobody may remove files of runs that are under way

    thread = threading.Thread(target=tend)
    thread.start()
    try:
        for n in range(4):
            for attempt in range(40):
                try:
                    orders.apply(1000 + n, [("I", 1000 + n, 1000 + n, "x"), ("U", 1000 + n, 1, f"at {n}")])
                    break
                except TableMoved:
                    assert attempt < 39
                    lake.applied()
    finally:
        over.set()
        thread.join()
    assert len(orders.rows()) == 20 + 4
    assert (1, "at 3") in orders.rows()
    assert lake.applied()[orders.life].progress == Progress(1003, Phase.ROWS)


# --- whole runs -------------------------------------------------------------------------------------------------------


def pipeline_of(config: Config, bucket: Path, ts: int, lake: Lake, ledger: Ledger) -> Pipeline:
    settings = config.settings(bucket).model_copy(update={"maintenance": EAGER})
    return Pipeline(settings, AsOf(settings, ts), lake, ledger)


@pytest.mark.parametrize(
    "feed", ["E_partitions/canal-ext", pytest.param("C_ddl_tables/csv-ts", marks=pytest.mark.soak)]
)
def test_a_lake_that_is_maintained_at_every_checkpoint_stays_equal_to_the_source(
    feed: str, spark: SparkSession, tmp_path: Path
) -> None:
    config = named(feed)
    lake = Lake(LakeSettings.from_warehouse(tmp_path), "default", lambda: spark)
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    for checkpoint in checkpoints(config, 2):
        assert checkpoint.expected is not None
        pipeline = pipeline_of(config, checkpoint.bucket, checkpoint.ts, lake, ledger)
        outcome = pipeline.apply("run")
        assert compare(config, checkpoint.expected, lake, outcome) == []
        pipeline.settings = pipeline.settings.model_copy(update={"maintenance": EAGER})
        done = maintain(cast("LakePipeline", pipeline), later_ms())
        assert done.complete
        assert done.tables
        assert compare(config, checkpoint.expected, lake, outcome) == []
    again = maintain(cast("LakePipeline", pipeline), later_ms())
    assert again.tables == ()
    assert again.idle > 0
    assert leftovers(lake.state) == []
    lake.close()
    ledger.close()


def test_every_exchange_is_open_until_the_partner_has_taken_it() -> None:
    config = named("E_partitions/canal-ext")
    (checkpoint,) = checkpoints(config, 1)
    settings = config.settings(checkpoint.bucket)
    _, planned = Planner(settings, AsOf(settings, checkpoint.ts), EmptyLake(), Ledger("sqlite://")).plan()
    exchanges = [step for step in planned.steps if isinstance(step, ExchangePartition)]
    assert exchanges
    positions_by_life = open_exchanges(planned, {})
    assert {(step.other, step.at) for step in exchanges} == {
        (life, at) for life, ats in positions_by_life.items() for at in ats
    }
