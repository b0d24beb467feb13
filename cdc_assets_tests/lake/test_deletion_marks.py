"""Mirrors that mark deleted rows on Iceberg: row deltas, MERGE, first loads and rewrites leave the same rows."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdc_assets.cli.query import _reservations
from cdc_assets.decoding import FILE
from cdc_assets.errors import TableHeld, TableMoved
from cdc_assets.features.forgetting.lake import LakeForgetting
from cdc_assets.features.forgetting.operations import forget
from cdc_assets.features.kinds.lake_checks import history_problem
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP, UNCHANGED, Op
from cdc_assets.lake import Lake, windows
from cdc_assets.lake.staging import stage
from cdc_assets.lake.swap import Rebuilds
from cdc_assets.lake.windows import _place
from cdc_assets.ledger import Ledger
from cdc_assets.model.layout import DELETED_AT, INGESTED_AT, LIVING, PLACE, TableLayout, Transform
from cdc_assets.model.progress import Life
from cdc_assets.model.recipe import Recipe, Setting
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import AddColumn, DeleteRows, Predicate, Rekey, RetypeColumn
from cdc_assets.model.steps import ApplyRows, ExchangePartition
from cdc_assets.operations.as_of import as_of
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.query import first_rows
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.operations.status import lake_status
from cdc_assets.report.text import status_lines
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.generated import Feed, Trial, faults
from cdc_assets_tests.lake.conftest import Deltas
from cdc_assets_tests.lake.table_source import ID, NOTE, SCHEMA, Source, id_below
from cdc_assets_tests.lake.test_histories_lake import tidy
from cdc_assets_tests.lake_contents import contents_of
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.marked_rows import source_rows
from cdc_assets_tests.memory_lake import MemoryLake

SECOND = 1000 << 18
"""A second of positions."""

Rows = list[tuple[Any, ...]]


def made(lake: Lake, name: str, schema: TableSchema = SCHEMA, layout: TableLayout = TableLayout()) -> Source:  # noqa: B008
    """Return the source of a table that marks deleted rows."""
    source = Source(lake, TableId("shop", name), schema, create=False)
    lake.run(dataclasses.replace(source.birth, lake_columns=(DELETED_AT,), layout=layout))
    return source


def apply(
    source: Source, hi: int, rows: Rows, names: tuple[str, ...] = (DELETED_AT,), whole_at: int | None = None
) -> Any:
    """Apply a window of rows (op, seconds, values…), through so many seconds."""
    timed = [(op, at * SECOND, *values) for op, at, *values in rows]
    step, opener = source.window(hi * SECOND, timed)
    step = dataclasses.replace(step, lake_columns=names, whole_at=whole_at)
    return source.lake.commit(step, source.lake.stage(step, opener))


def marks(source: Source, *left_out: str) -> Rows:
    """Return the rows, with the seconds of their last change and of their delete."""
    table = source.lake.read(source.name).drop_columns([*left_out])
    rows = []
    for row in table.to_pylist():
        row[COMMIT_TS] //= SECOND
        moment = row[DELETED_AT]
        row[DELETED_AT] = None if moment is None else int(moment.timestamp())
        rows.append(tuple(row.values()))
    return sorted(rows, key=repr)


def by_merge() -> AbstractContextManager[Any]:
    """Let Spark write windows."""
    return patch.object(windows, "row_delta_of", return_value=None)


def random_windows(seed: int, count: int) -> list[tuple[int, Rows]]:
    """Return windows of a source's changes to eight keys, some of which come again, also those that nobody made."""
    rng, alive, at, windows = random.Random(seed), set[int](), 101, []
    for _ in range(count):
        rows: Rows = []
        for _ in range(rng.randrange(1, 9)):
            key = rng.randrange(8)
            op = "D" if key in alive and rng.random() < 0.4 else "U" if key in alive else "I"
            op = "D" if op == "I" and rng.random() < 0.15 else op  # of a row that the table never had
            alive = alive - {key} if op == "D" else alive | {key}
            rows.append((op, at, key, f"{op}{at}"))
            at += 1
        windows.append((at, rows))
        at += 1
    return windows


def expected(windows: list[tuple[int, Rows]]) -> Rows:
    """Return the rows with marks that changes lead to, one change after the other."""
    rows: dict[int, tuple[Any, ...]] = {}
    for _, window in windows:
        for op, at, key, note in window:
            if op != "D":
                rows[key] = (key, note, at, None)
            elif key in rows and rows[key][-1] is None:
                rows[key] = (*rows[key][:2], at, at)
    return sorted(rows.values(), key=repr)


@pytest.mark.parametrize("partitioned", [False, True], ids=["whole", "partitioned"])
def test_every_way_of_writing_leaves_the_same_rows_and_marks(partitioned: bool, lake: Lake, deltas: Deltas) -> None:
    layout = TableLayout((Transform("bucket", "id", 2),)) if partitioned else TableLayout()
    windows = random_windows(11 + partitioned, 5)
    ours, merged, once = (made(lake, name, layout=layout) for name in ("ours", "merged", "once"))
    for number, (hi, rows) in enumerate(windows):
        names = (PLACE, INGESTED_AT, DELETED_AT) if number in (2, 3) else (DELETED_AT,)
        apply(ours, hi, rows, names)
        with by_merge():
            apply(merged, hi, rows, names)
        left_out = names[:-1]
        assert marks(ours, *left_out) == marks(merged, *left_out) == expected(windows[: number + 1]), number
        assert ours.columns() == merged.columns() == ["id", "note", COMMIT_TS, *names]
    assert deltas.made.count(True) >= 3
    apply(once, windows[-1][0], [row for _, rows in windows for row in rows])
    assert marks(once) == marks(ours)
    living = source_rows(lake.read(ours.name)).num_rows
    assert sum(rows.num_rows for rows in lake.scan(ours.life).where("")) == lake.scan(ours.life).count("") == living


def test_a_window_that_tasks_share_leaves_the_same_rows_and_marks(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = random_windows(5, 6)
    expected_rows, hi = expected(windows), windows[-1][0] * SECOND
    files = [[(op, at * SECOND, *values) for op, at, *values in rows] for _, rows in windows]
    for name, value in (("_SMALL_BYTES", 0), ("_ONCE_BYTES", 0), ("_SHARE_BYTES", 1)):
        monkeypatch.setattr(stage, name, value)
    tasks, shares = list[int](), stage.shares

    def counted(step: ApplyRows, count: int) -> list[list[int]]:
        cut = shares(step, count)
        tasks.append(len(cut))
        return cut

    monkeypatch.setattr(stage, "shares", counted)
    for is_whole in (False, True):
        source = made(lake, f"t{is_whole}")
        step, opener = source.window(hi, *files)
        step = dataclasses.replace(step, lake_columns=(DELETED_AT,), whole_at=0 if is_whole else None)
        lake.commit(step, lake.stage(step, opener))
        assert marks(source) == expected_rows
    assert min(tasks) > 1


def test_counts_of_windows_add_up(lake: Lake) -> None:
    source = made(lake, "a")
    assert apply(source, 110, [("I", 101, 1, "a"), ("I", 102, 2, "b")]).inserted == 2
    for hi, way in ((120, nullcontext()), (130, by_merge())):
        with way:
            rows: Rows = [("D", hi - 5, hi // 130 + 1, "a"), ("I", hi - 4, hi, "c"), ("D", hi - 3, 99, "-")]
            result = apply(source, hi, rows)
        counts = result.inserted, result.updated, result.deleted, result.rows_after - result.rows_before
        assert (counts, result.entering) == ((1, 1, 0, 1), None)


def test_a_window_proves_that_rows_are_missing_where_the_lake_has_them_marked_only(lake: Lake, deltas: Deltas) -> None:
    for name, way in (("a", nullcontext()), ("b", by_merge())):
        source = made(lake, name)
        apply(source, 110, [("I", 101, 1, "a"), ("I", 102, 2, "b")], whole_at=0)
        apply(source, 120, [("D", 111, 1, "a")], whole_at=0)
        with way:
            right = apply(source, 130, [("U", 121, 2, "B"), ("I", 122, 3, "c"), ("D", 123, 3, "c")], whole_at=0)
            wrong = apply(source, 140, [("D", 131, 1, "a"), ("U", 132, 2, "BB")], whole_at=0)
        assert right.missing is None
        assert wrong.missing is not None
        assert wrong.missing.count == 1
        assert marks(source) == [(1, "a", 111, 111), (2, "BB", 132, None), (3, "c", 123, 123)]


# --- changes that leave columns out -----------------------------------------------------------------------------------


def apply_images(source: Source, hi: int, *images: tuple[Op, int, str | None, bool]) -> Any:
    """Apply images (op, key, note, whether it leaves the note out), each a second after the other."""
    step, _ = source.window(hi * SECOND)
    step = dataclasses.replace(step, lake_columns=(DELETED_AT,))
    count = len(images)
    changes = pa.table(
        {
            OP: pa.array([int(op) for op, *_ in images], pa.int8()),
            COMMIT_TS: pa.array([(hi - count + place) * SECOND for place in range(count)], pa.int64()),
            LINE: pa.array(range(1, count + 1), pa.int64()),
            FILE: pa.array([0] * count, pa.int32()),
            UNCHANGED: pa.array([["note"] if left else None for *_, left in images], pa.list_(pa.string())),
            "id": pa.array([key for _, key, _, _ in images], pa.int64()),
            "note": pa.array([note for _, _, note, _ in images], pa.string()),
        }
    )
    bench = source.lake.workbench
    staged = dataclasses.replace(stage.stage_changes(_place(bench, step), changes), revision=bench.revision(step.life))
    return source.lake.commit(step, staged)


def test_what_a_marked_row_has_is_no_value_of_a_row_that_comes_again(lake: Lake) -> None:
    source = made(lake, "a")
    apply(source, 110, [("I", 101, 1, "a"), ("I", 102, 2, "b"), ("I", 103, 3, "c"), ("D", 104, 2, "b")])
    patched = apply_images(source, 120, (Op.UPDATE, 1, None, True), (Op.PATCH, 2, None, True))
    assert patched.passed_over == 1
    assert marks(source) == [(1, "a", 118, None), (2, "b", 104, 104), (3, "c", 103, None)]
    apply_images(source, 130, (Op.INSERT, 2, None, True), (Op.UPDATE, 3, None, True), (Op.DELETE, 3, None, False))
    assert marks(source) == [(1, "a", 118, None), (2, None, 127, None), (3, "c", 129, 129)]
    with pytest.raises(TableHeld, match="the lake does not have their rows"):
        apply_images(source, 140, (Op.UPDATE, 3, None, True))


# --- DDL --------------------------------------------------------------------------------------------------------------


def test_truncates_mark_living_rows_and_a_row_that_comes_again_loses_its_mark(lake: Lake) -> None:
    source = made(lake, "a")
    apply(source, 110, [("I", 101, 1, "a"), ("I", 102, 2, "b"), ("I", 103, 3, "c"), ("D", 104, 1, "a")])
    source.change(120 * SECOND, SCHEMA, DeleteRows(id_below(3)))
    assert marks(source) == [(1, "a", 104, 104), (2, "b", 120, 120), (3, "c", 103, None)]
    apply(source, 130, [("I", 121, 2, "again")])
    source.change(140 * SECOND, SCHEMA, DeleteRows(None))
    assert marks(source) == [(1, "a", 104, 104), (2, "again", 140, 140), (3, "c", 140, 140)]
    apply(source, 150, [("I", 141, 3, "new")])
    assert marks(source)[2] == (3, "new", 141, None)


@pytest.mark.parametrize("names", [(), (DELETED_AT,)], ids=["hard", "soft"])
def test_rows_that_stay_after_a_truncate_have_the_masks_with_which_they_were_read(
    names: tuple[str, ...], lake: Lake
) -> None:
    source, recipe = Source(lake, create=False), Recipe({"mask of note": Setting("null")})
    lake.run(dataclasses.replace(source.birth, lake_columns=names, recipe=recipe))
    source.change(120 * SECOND, SCHEMA, DeleteRows(None))
    assert lake.state.find(source.life).label.recipe == (recipe if names else Recipe())


def test_marked_rows_do_not_hinder_a_conversion(lake: Lake) -> None:
    source = made(lake, "a")
    apply(source, 110, [("I", 101, 1, "12"), ("I", 102, 2, "no number"), ("D", 103, 2, "no number")])
    number = Column("note", "INT")
    source.change(120 * SECOND, TableSchema((ID, number), ("id",)), RetypeColumn(NOTE, number))
    assert marks(source) == [(1, 12, 101, None), (2, None, 103, 103)]
    apply(source, 130, [("D", 121, 1, 12), ("I", 122, 2, 13)])
    assert marks(source) == [(1, 12, 121, 121), (2, 13, 122, None)]


def test_a_row_is_marked_with_the_columns_that_its_file_has(lake: Lake, deltas: Deltas) -> None:
    source = made(lake, "a")
    apply(source, 110, [("I", 101, 1, "a"), ("I", 102, 2, "b")])
    extra = Column("extra", "INT")
    source.change(120 * SECOND, TableSchema((ID, NOTE, extra), ("id",)), AddColumn(extra, "7"))
    apply(source, 130, [("D", 121, 1, "a", 7), ("I", 122, 3, "c", 8)], (PLACE, DELETED_AT))
    assert marks(source, PLACE) == [(1, "a", 7, 121, 121), (2, "b", 7, 102, None), (3, "c", 8, 122, None)]
    assert deltas.made[-1:] == [True]


def test_another_key_removes_marked_rows(lake: Lake) -> None:
    source = made(lake, "a")
    apply(source, 110, [("I", 101, 1, "a"), ("I", 102, 2, "b"), ("D", 103, 2, "b")])
    by_note = TableSchema((ID, dataclasses.replace(NOTE, nullable=False)), ("note",))
    source.change(120 * SECOND, by_note, Rekey(("note",)))
    assert marks(source) == [(1, "a", 101, None)]
    apply(source, 130, [("I", 121, 2, "b"), ("D", 122, 1, "a")])
    assert marks(source) == [(1, "a", 122, 122), (2, "b", 121, None)]
    keyless = TableSchema((ID, NOTE), ())
    source.change(140 * SECOND, keyless, Rekey(()))
    apply(source, 150, [("D", 141, 2, "b"), ("I", 142, 5, "e"), ("I", 143, 5, "e")])
    assert marks(source) == [(5, "e", 143, None)] * 2
    source.change(160 * SECOND, keyless, DeleteRows(id_below(5)))
    source.change(170 * SECOND, keyless, DeleteRows(None))
    assert marks(source) == []


def test_a_table_that_gets_its_key_later_marks_rows_from_then_on(lake: Lake) -> None:
    source = made(lake, "a", TableSchema((ID, NOTE), ()))
    apply(source, 110, [("I", 101, 1, "a"), ("I", 102, 2, "b"), ("D", 103, 2, "b")])
    apply(source, 120, [("I", 111, 3, "c"), ("D", 112, 1, "a"), ("I", 113, 4, "d")])
    source.change(130 * SECOND, SCHEMA, Rekey(("id",)))
    apply(source, 140, [("D", 131, 3, "c"), ("U", 132, 4, "D")])
    assert marks(source) == [(3, "c", 131, 131), (4, "D", 132, None)]


@pytest.mark.parametrize("marking", ["parted", "plain", "both"])
def test_rows_that_an_exchange_takes_away_are_marked_and_living_ones_come(marking: str, lake: Lake) -> None:
    parted, plain = (
        made(lake, name) if marking in (name, "both") else Source(lake, TableId("shop", name))
        for name in ("parted", "plain")
    )
    for source, rows in (
        (parted, [("I", 101, 1, "a"), ("I", 102, 2, "b"), ("I", 103, 7, "g"), ("D", 104, 2, "b")]),
        (plain, [("I", 101, 1, "x"), ("I", 102, 3, "z"), ("I", 103, 4, "w"), ("D", 104, 4, "w")]),
    ):
        apply(source, 110, rows, (DELETED_AT,) if DELETED_AT in source.columns() else ())
    at = 120 * SECOND
    for source, other, is_parted in ((parted, plain, True), (plain, parted, False)):
        lake.run(ExchangePartition(source.life, other.life, at, id_below(5), is_parted, SCHEMA, {other.life: {}}))
    kept = [(2, "b", 104, 104)] if marking != "plain" else []
    if marking != "plain":
        assert marks(parted) == sorted([(1, "x", 101, None), *kept, (3, "z", 102, None), (7, "g", 103, None)], key=repr)
    else:
        assert parted.rows() == [(1, "x"), (3, "z"), (7, "g")]
    if marking != "parted":
        assert marks(plain) == [(1, "a", 101, None), (3, "z", 120, 120), (4, "w", 104, 104)]
    else:
        assert plain.rows() == [(1, "a")]


def test_a_row_that_comes_by_an_exchange_replaces_one_that_was_marked_in_another_partition(lake: Lake) -> None:
    parted, plain = made(lake, "parted"), Source(lake, TableId("shop", "plain"))
    below = Predicate(
        "<", (Predicate("column", value="note", type="string"), Predicate("literal", value="m", type="string"))
    )
    apply(parted, 110, [("I", 101, 1, "z"), ("D", 102, 1, "z"), ("I", 103, 2, "z"), ("I", 104, 3, "a")])
    apply(plain, 110, [("I", 101, 1, "b")], ())
    lake.run(ExchangePartition(parted.life, plain.life, 120 * SECOND, below, True, SCHEMA, {plain.life: {}}))
    apply(parted, 130, [("U", 121, 1, "c")])
    assert marks(parted) == [(1, "c", 121, None), (2, "z", 103, None), (3, "a", 120, 120)]


def test_a_window_that_was_planned_for_the_other_way_is_refused(lake: Lake) -> None:
    source, other = made(lake, "a"), Source(lake, TableId("shop", "b"))
    with pytest.raises(TableMoved):
        apply(source, 110, [("I", 101, 1, "a")], ())
    with pytest.raises(TableMoved):
        apply(other, 110, [("I", 101, 1, "a")])


def test_snapshots_say_whether_they_have_marks(lake: Lake) -> None:
    source, other = made(lake, "a"), Source(lake, TableId("shop", "b"))
    assert lake.state.find(source.life).layout.marks_deletes
    assert not lake.state.find(other.life).layout.marks_deletes


# --- the whole way ----------------------------------------------------------------------------------------------------


def test_a_feed_is_applied_looked_at_rebuilt_and_forgotten(open_lake: Callable[..., Lake], tmp_path: Path) -> None:
    feed, lake = LittleFeed(tmp_path), open_lake()
    Path(str(lake.settings.local_directory)).mkdir()
    ledger = Ledger(f"sqlite:///{lake.settings.local_directory}/ledger.db")
    feed.create("shop.orders")
    life, at = Life(TableId("shop", "orders"), FIRST), FIRST

    def pipeline(deletes: Any) -> LakePipeline:
        given = feed.settings("default", deletes=deletes, history={"shop.*": ["log", "scd2"]})
        return LakePipeline(given, given.open_source(), lake, ledger)

    def applied(*rows: tuple[str, int, str], ddl: str = "") -> None:
        nonlocal at
        if ddl:
            at += SECOND
            feed.ddl("shop.orders", at, ddl, 11)
        timed = [(op, at + (number + 1) * SECOND, key, text) for number, (op, key, text) in enumerate(rows)]
        at += (len(rows) + 1) * SECOND
        feed.rows("shop.orders", FIRST, timed)
        feed.publish(at)
        assert pipeline("soft").apply("run").complete

    def there() -> list[tuple[int, str, bool]]:
        table = lake.read(TableId("shop", "orders"))
        marked = [None] * len(table) if DELETED_AT not in table.column_names else table.column(DELETED_AT).to_pylist()
        pairs = zip(table.to_pylist(), marked, strict=True)
        return sorted((row["id"], row["v"], mark is not None) for row, mark in pairs)

    def problems() -> list[str]:
        schema = pipeline("soft").planner.plan()[1].history.lives[life].schema
        history_problems = []
        for kind in ("log", "scd2"):
            with lake.workbench.sessions.step() as session:
                history_problems.append(
                    history_problem(lake.state, session, dataclasses.replace(life, kind=kind), schema)
                )
        return [
            *filter(None, [*history_problems, lake.look_at_states(dataclasses.replace(life, kind="scd2"), -1, schema)])
        ]

    applied(("I", 1, "a"), ("I", 2, "b"), ("I", 3, "c"), ("I", 4, "d"), ("D", 4, "d"))
    applied(("D", 1, "a"), ("U", 2, "B"))
    assert there() == [(1, "a", True), (2, "B", False), (3, "c", False), (4, "d", True)]
    assert problems() == []
    moment = at
    applied(("I", 1, "again"), ("D", 2, "B"))
    applied(("I", 3, "new"), ("I", 5, "e"), ("D", 5, "e"), ddl="TRUNCATE TABLE `orders`")
    rows = [(1, "again", True), (2, "B", True), (3, "new", False), (4, "d", True), (5, "e", True)]
    assert there() == rows
    assert problems() == []

    state = next(table for table in as_of(lake.settings, "default", str(moment)).tables if table.table == "shop.orders")
    assert state.read["spark"].endswith(f"WHERE {LIVING}")
    past = eval(state.read["pyiceberg"], {"catalog": lake.state.catalog})
    assert sorted(past.column("v").to_pylist()) == ["B", "c"]
    (status,) = (row for row in lake_status(lake.settings) if row.table == "shop.orders")
    assert any(LIVING in line for line in status_lines([status]))
    assert any(LIVING in line for line in _reservations(lake.settings, ["shop.orders"]))
    assert first_rows(lake.settings, "shop.orders", 9).rows.num_rows == len(rows)

    rebuild(pipeline("hard"), Rebuilds(lake), ("shop.orders",), "run")
    assert (there(), lake.state.find(life).layout.marks_deletes) == ([(3, "new", False)], False)
    then = lake.scan(life, state.snapshot_id).where("")
    assert sorted(row["v"] for rows_then in then for row in rows_then.to_pylist()) == ["B", "c"]
    rebuild(pipeline("soft"), Rebuilds(lake), ("shop.orders",), "run")
    assert (there(), lake.state.find(life).layout.marks_deletes) == (rows, True)
    applied(("D", 3, "new"))
    given = [["3"], ["4"]]
    assert forget(pipeline("soft"), LakeForgetting(lake), "shop.orders", given, "run").complete
    assert there() == [(1, "again", True), (2, "B", True), (5, "e", True)]


class LivingLake(Lake):
    """A lake whose readers leave marked rows out."""

    def read(self, name: TableId) -> pa.Table:
        return source_rows(super().read(name))


@pytest.mark.parametrize("number", [10, *(pytest.param(number, marks=pytest.mark.soak) for number in range(20, 60))])
def test_a_generated_history_ends_with_the_rows_and_marks_of_the_lake_in_memory(
    number: int, spark: SparkSession, tmp_path: Path, tomls: Mapping[str, Path]
) -> None:
    trial = Trial(number)
    source = trial.source
    states = trial.publications(source)
    print(f"{trial.style}\n{source.script}")  # what pytest shows of a history that fails
    lake = LivingLake(LakeSettings.from_warehouse(tmp_path / "lake"), "default", lambda: spark)
    ours, memory = (
        Feed(trial.style, tomls[trial.style.rendering], pipeline_lake, deletes="soft")
        for pipeline_lake in (lake, MemoryLake())
    )
    for state, tidies in zip(states, trial.tidies(len(states)), strict=True):
        assert faults(ours, state, source.contents(state.shown)) == [], state.checkpoint
        assert not tidies or tidy(ours) == []
        memory.apply(state)
    for table in memory.lake.tables.values():
        if table.name is not None and DELETED_AT in table.rows.column_names:
            rows = Lake.read(lake, table.name).select(table.rows.column_names).cast(table.rows.schema)
            assert contents_of(rows) == contents_of(table.rows)
    lake.close()
    for feed in (ours, memory):
        feed.close()
