"""Rows forgotten on Iceberg: no byte of them is left in any file, and all others are what they were.

Then what keeps a run that forgets rows from losing what others write, and from leaving a file that it does not see; and
forgetting beside everything else that is done to a lake, in orders by a seed.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from cdc_assets.decoding.keyed_rows import WantedKeys
from cdc_assets.errors import TableHeld, TableMoved
from cdc_assets.features.cuts.operations import make_cut, remove_cut
from cdc_assets.features.cuts.pipeline import cuts_of
from cdc_assets.features.forgetting import lake as lake_forget
from cdc_assets.features.forgetting.lake import LakeForgetting
from cdc_assets.features.forgetting.lake_search import SearchedTable
from cdc_assets.features.forgetting.operations import forget
from cdc_assets.features.quarantine.lake import Quarantine
from cdc_assets.lake import Lake
from cdc_assets.lake.staging.stage import STAGE
from cdc_assets.ledger import Ledger
from cdc_assets.model.forgetting import ForgetReport, RemovedRows, SearchedFiles
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.steps import ApplyRows
from cdc_assets.model.tickets import STALE_SECONDS
from cdc_assets.model.tso import FOREVER, Tso
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.maintenance import maintain
from cdc_assets.operations.status import unfinished_forgets
from cdc_assets_tests.canaries import leaks
from cdc_assets_tests.forget_orders import FORGET_SEAMS, LakeOrders, LakeTopicOrders
from cdc_assets_tests.kills import Killed, Trap, trapped
from cdc_assets_tests.lake.table_source import SCHEMA, Source
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.operations.test_maintenance import EAGER, later_ms

pytestmark = pytest.mark.timeout(900)


class Shop(LittleFeed):
    """A table with both kinds of history; every value of a row is a token that is nowhere else."""

    def __init__(self, directory: Path, lake: Lake) -> None:
        super().__init__(directory)
        self.lake, self.ledger, self.at = lake, Ledger("sqlite://"), FIRST
        self.version: Tso = FIRST
        self.privacy_key: dict[str, str] | None = None
        self.tokens: dict[int, set[bytes]] = {}
        self.create("shop.t")

    def pipeline(self) -> LakePipeline:
        kinds = {"shop.*": ["log", "scd2"]}
        settings = self.settings(
            "default", history=kinds, maintenance=EAGER, privacy_key=self.privacy_key, quarantine=True
        )
        return LakePipeline(settings, settings.open_source(), self.lake, self.ledger)

    def window(self, op: str, *keys: int, apply: bool = True) -> None:
        rows = []
        for key in keys:
            self.at += 1 << 18
            token = f"token-{key}-{uuid.uuid4().hex}"[:40]
            self.tokens.setdefault(key, set()).add(token.encode())
            rows.append((op, self.at, key, token if self.version == FIRST else f'{token}","5'))
        self.rows("shop.t", self.version, rows)
        self.publish(self.at + 5)
        if apply:
            outcome = self.pipeline().apply("run")
            assert outcome.complete, outcome.tables
        self.at += 10

    def misfit(self, key: int, apply: bool = True) -> None:
        """Let a record of a key be set aside, whose text is longer than its column."""
        self.at += 1 << 18
        token = f"misfit-{key}-{uuid.uuid4().hex}-{'x' * 20}"
        self.tokens.setdefault(key, set()).add(token.encode())
        self.rows("shop.t", self.version, [("I", self.at, key, token if self.version == FIRST else f'{token}","5')])
        self.publish(self.at + 5)
        if apply:
            self.pipeline().apply("run")
            assert sum(Quarantine(self.lake.state).counts().values()) > 0
        self.at += 10

    def widen(self) -> None:
        self.version = self.at + 1
        self.ddl("shop.t", self.version, "ALTER TABLE `t` ADD COLUMN `w` INT", 5, wide=True)
        self.publish(self.at + 2)
        assert self.pipeline().apply("run").complete
        self.at += 10

    def forget(self, *keys: int, until: Tso | None = None, remove_cuts: bool = True) -> ForgetReport:
        given, lake = [[str(key)] for key in keys], LakeForgetting(self.lake)
        return forget(self.pipeline(), lake, "shop.t", given, "run", until=until, remove_cuts=remove_cuts)

    def left(self, *keys: int) -> list[str]:
        return leaks(Path(str(self.lake.settings.local_directory)), set().union(*(self.tokens[key] for key in keys)))

    def files(self, life: Life, *keys: int) -> set[str]:
        """Return the data files of a table as it is now, or those that may have some keys."""
        table = self.lake.state.catalog.load_table(self.lake.state.tables()[life].identifier)
        listed = ", ".join(map(str, keys))
        tasks = table.scan(row_filter=f"id IN ({listed})" if keys else "id >= 0").plan_files()
        return {task.file.file_path for task in tasks}

    def contents(self, tag: str | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return the rows and columns of all tables, those of a cut by its tag."""
        contents_by_kind = {}
        for life, lake_table in self.lake.state.tables().items():
            table = self.lake.state.catalog.load_table(lake_table.identifier)
            scan = table.scan() if tag is None else table.scan(snapshot_id=lake_table.tags[tag])
            rows = scan.to_arrow().to_pylist()
            contents_by_kind[life.kind] = sorted(rows, key=repr)
        return contents_by_kind


@pytest.fixture
def shop(open_lake: Callable[..., Lake], tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path, open_lake())
    yield shop
    shop.ledger.close()


def without(rows: dict[str, list[dict[str, Any]]], *keys: int) -> dict[str, list[dict[str, Any]]]:
    return {kind: [row for row in some if row["id"] not in keys] for kind, some in rows.items()}


def filled(shop: Shop) -> None:
    """Windows with a cut before and a cut behind others, upkeep between them, and a DDL at the end."""
    shop.window("I", *range(30))
    make_cut(shop.pipeline(), "first")
    shop.window("U", 3, 4)
    shop.window("D", 9)
    maintain(shop.pipeline(), later_ms())
    shop.window("U", 3, 7)
    shop.window("I", 40, 41)
    make_cut(shop.pipeline(), "second")
    shop.widen()
    shop.window("U", 7, 11)
    shop.misfit(9)
    place, trap = "cdc_assets.lake.tables:Lake.commit", Trap(lambda _, name: name.startswith("before"))
    with trapped(trap, [place]), suppress(Killed):
        shop.window("U", 3, 12)
    shop.window("U", 12)
    assert list(Path(str(shop.lake.settings.local_directory)).glob("_cdc_stage/*/*.parquet"))


FEW = ("before expire",)


@pytest.mark.parametrize("places", [FEW, pytest.param(("",), marks=pytest.mark.soak)], ids=["few", "every"])
def test_no_byte_of_forgotten_rows_is_left_and_all_others_are_as_they_were_however_often_it_was_killed(
    shop: Shop, places: tuple[str, ...]
) -> None:
    filled(shop)
    assert shop.left(3, 7, 9)
    expected = without(shop.contents(), 3, 7, 9)
    progress = {life: state.progress for life, state in shop.lake.applied().items()}
    others = {str(life): shop.files(life) - shop.files(life, 3, 7, 9) for life in progress}
    killed = set[str]()
    while True:
        trap = Trap(lambda _, name: name not in killed and any(place in name for place in places))
        with trapped(trap, FORGET_SEAMS), suppress(Killed):
            report = shop.forget(3, 7, 9)
        if not trap.killed:
            break
        killed.add(trap.killed)
        assert "the same command again: it finishes that" in unfinished_forgets(shop.lake.state)[f"shop.t@{FIRST}"]
        assert without(shop.contents(), 3, 7, 9) == expected
    assert len(killed) >= len(FEW)
    assert shop.left(3, 7, 9) == []
    assert shop.contents() == expected
    assert {str(life): shop.files(life) & others[str(life)] for life in progress} == others
    assert {life: state.progress for life, state in shop.lake.applied().items()} == progress
    assert (report.complete, unfinished_forgets(shop.lake.state)) == (True, {})
    assert [table.tags for table in shop.lake.state.tables().values()] == [{}] * 3
    assert cuts_of(shop.lake).cuts() == ()
    assert [entry.action for entry in shop.ledger.journal("default")][-1] == "forget"
    again = shop.forget(3, 7, 9)
    assert (again.complete, sum(removal.files_rewritten + removal.snapshots_expired for removal in again.removed)) == (
        True,
        0,
    )
    shop.window("I", 3, 70)
    assert [row["id"] for row in shop.contents()[""] if row["id"] in (3, 7, 70)] == [3, 70]


@pytest.mark.soak
def test_dropped_tables_of_the_name_forget_the_row_too(shop: Shop) -> None:
    shop.window("I", 1, 2)
    shop.ddl("shop.t", shop.at + 1, "DROP TABLE `t`", 4, columns=False)
    shop.create("shop.t", shop.at + 2)
    shop.version = FIRST
    shop.publish(shop.at + 3)
    assert shop.pipeline().apply("run").complete
    assert shop.forget(1).complete
    assert shop.left(1) == []
    assert shop.left(2)
    assert TableId("shop", "t") in shop.lake.names()


def test_cuts_that_have_a_row_keep_it_until_a_person_lets_them_go_and_others_stay(shop: Shop) -> None:
    shop.window("I", 1)
    make_cut(shop.pipeline(), "without")
    shop.window("I", 2)
    make_cut(shop.pipeline(), "with")
    rows = {cut: shop.contents(cut) for cut in ("without", "with")}
    report = shop.forget(2, remove_cuts=False)
    assert (report.complete, report.kept_cuts, report.cuts) == (False, ("with",), ())
    assert {cut: shop.contents(cut) for cut in rows} == rows
    assert [row["id"] for row in shop.contents()[""]] == [1]
    assert list(unfinished_forgets(shop.lake.state)) == [f"shop.t@{FIRST}"]
    report = shop.forget(2)
    assert (report.complete, report.cuts, shop.left(2)) == (True, ("with",), [])
    assert ([cut.name for cut in cuts_of(shop.lake).cuts()], shop.contents("without")) == (["without"], rows["without"])
    assert unfinished_forgets(shop.lake.state) == {}


def test_a_row_goes_with_a_cut_that_is_removed_after_it_was_forgotten(shop: Shop) -> None:
    shop.window("I", 1, 2)
    make_cut(shop.pipeline(), "with")
    assert not shop.forget(2, remove_cuts=False).complete
    remove_cut(shop.pipeline(), "with")
    assert (shop.forget(2, remove_cuts=False).complete, shop.left(2)) == (True, [])


def test_values_of_a_type_that_a_key_had_hide_no_row() -> None:
    rows = WantedKeys(pa.table({"id": ["1"]}), TableSchema((Column("id", "VARCHAR", is_pk=True),), ("id",)))
    old = pa.table({"id": pa.array([2, 1], pa.int32())})
    assert (rows.numbers(old).tolist(), rows.among(old), rows.among(old.slice(0, 1))) == ([1], {0}, set())
    moments = pa.array([datetime(2026, 1, 1), datetime(2026, 1, 2)], pa.timestamp("us"))
    rows = WantedKeys(pa.table({"id": ["2026-01-02 00:00:00", "no moment"]}), rows.schema)
    old = pa.table({"id": moments})
    assert (rows.numbers(old).tolist(), rows.among(old), rows.among(old.slice(0, 1))) == ([1], {0}, set())


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["VARCHAR(20)", "BIGINT", "DECIMAL(20)"])
def test_snapshots_from_before_a_key_had_its_type_forget_the_row_too(shop: Shop, kind: str) -> None:
    shop.window("I", 1, 2)
    shop.window("U", 2)
    name, _, size = kind.rstrip(")").partition("(")
    shop.version = shop.at + 1
    key_type = {"ColumnType": name, "ColumnPrecision": size or "20"}
    shop.ddl("shop.t", shop.version, f"ALTER TABLE `t` MODIFY COLUMN `id` {kind}", 12, key=key_type, wide=True)
    shop.publish(shop.at + 2)
    assert shop.pipeline().apply("run").complete
    shop.at += 10
    shop.window("U", 2)
    report = shop.forget(1, 77)
    assert (report.complete, {removal.keys for removal in report.removed}) == (True, {1})
    assert (shop.left(1), bool(shop.left(2))) == ([], True)


@pytest.mark.soak
def test_a_window_that_was_staged_before_rows_were_forgotten_is_planned_again(
    shop: Shop, open_lake: Callable[..., Lake]
) -> None:
    shop.window("I", 1, 2)
    shop.window("U", 2, apply=False)
    pipeline = shop.pipeline()
    step = next(step for step in pipeline.planner.plan()[1].steps if isinstance(step, ApplyRows))
    staged = shop.lake.stage(step, pipeline.source.reader)
    other = open_lake()
    settings = pipeline.settings
    forget(LakePipeline(settings, settings.open_source(), other, shop.ledger), LakeForgetting(other), "shop.t", [["1"]])
    with pytest.raises(TableMoved, match="were forgotten meanwhile"):
        shop.lake.commit(step, staged)
    assert shop.pipeline().apply("run").complete
    assert [row["id"] for row in shop.contents()[""]] == [2]


def test_no_byte_of_a_key_that_is_kept_out_comes_into_the_lake(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVACY_KEY", "a key")
    shop.privacy_key = {"env": "PRIVACY_KEY"}
    shop.window("I", *range(5))
    shop.window("U", 3, apply=False)
    report = shop.forget(3, 77, until=FOREVER)
    assert (report.complete, {removal.keys for removal in report.removed}) == (True, {1})
    shop.window("U", 2, 3)
    assert shop.left(3) == []
    assert {row["id"] for row in shop.contents()[""]} == {0, 1, 2, 4}


@pytest.mark.parametrize("when", ["staged before", "staged after"])
def test_what_was_planned_before_keys_were_kept_out_is_not_committed_by_another_process(
    shop: Shop, open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setenv("PRIVACY_KEY", "a key")
    shop.privacy_key = {"env": "PRIVACY_KEY"}
    shop.window("I", 1, 2)
    shop.window("U", 1, 2, apply=False)
    pipeline, planning, others = shop.pipeline(), shop.lake, [open_lake(), open_lake()]
    (step, *_) = (step for step in pipeline.planner.plan()[1].steps if isinstance(step, ApplyRows))
    staged = planning.stage(step, pipeline.source.reader) if when == "staged before" else None
    shop.lake = others[0]
    assert shop.forget(1, until=FOREVER).complete
    staged = staged or planning.stage(step, pipeline.source.reader)
    shop.lake = others[1]
    with pytest.raises(TableMoved, match="were forgotten meanwhile"):
        shop.pipeline().commit(step, staged, "run", 0.0)
    assert shop.left(1) == []
    assert shop.pipeline().apply("run").complete
    assert (shop.left(1), [row["id"] for row in shop.contents()[""]]) == ([], [2])


def test_records_that_are_set_aside_after_their_keys_were_forgotten_leave_nothing(
    shop: Shop, open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVACY_KEY", "a key")
    shop.privacy_key = {"env": "PRIVACY_KEY"}
    shop.window("I", 1, 2)
    shop.misfit(1, apply=False)
    ours, pipeline, shop.lake = shop.lake, shop.pipeline(), open_lake()
    (step, *_) = (step for step in pipeline.planner.plan()[1].steps if isinstance(step, ApplyRows))
    assert shop.forget(1, until=FOREVER).complete
    staged = pipeline.stage(step)
    assert shop.left(1)
    with pytest.raises(TableMoved, match="were forgotten meanwhile"):
        pipeline.commit(step, staged, "run", 0.0)
    assert shop.left(1) == []
    assert ours.quarantined() == ()


def test_the_ledger_keeps_no_key_of_a_window_whose_rows_were_forgotten_before_its_files_were_recorded(
    shop: Shop, open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.window("I", 4711, 4712, apply=False)
    ours, commit, through, reports = shop.lake, Lake.commit, shop.at - 5, list[ForgetReport]()

    def then_forgotten(self: Lake, *given: Any) -> Any:
        result = commit(self, *given)
        if shop.lake is ours and all(state.progress.tso == through for state in open_lake().applied().values()):
            shop.lake = open_lake()
            reports.append(shop.forget(4711))
            shop.lake = ours
        return result

    with monkeypatch.context() as patched:
        patched.setattr(Lake, "commit", then_forgotten)
        shop.pipeline().apply("run")
    (life,) = {life.source for life in shop.lake.applied()}
    assert [report.complete for report in reports] == [True]
    assert [file.keys for file in shop.ledger.files_of("default", life)] == [()]
    shop.window("I", 4713)
    assert [[(key.low, key.high) for key in file.keys] for file in shop.ledger.files_of("default", life)] == [
        [],
        [(4713, 4713)],
    ]


@pytest.mark.soak
def test_files_that_others_remove_meanwhile_have_no_row(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.window("I", 1, 2)
    shop.window("U", 1)
    removed, listed = list[Path](), SearchedTable.files

    def then_removed(search: Any) -> list[Any]:
        files = list(listed(search))
        for name in (".parquet", ".metadata.json", ".avro"):
            (listed_file, *_) = (file for file in files if file.location.endswith(name))
            copied = Path(listed_file.info.path).with_name(f"of-a-killed-run{name}")
            if copied not in removed:
                shutil.copy(listed_file.info.path, copied)
                files += [file for file in listed(search) if file.info.path == str(copied)]
                copied.unlink()
                removed.append(copied)
        return files

    monkeypatch.setattr(SearchedTable, "files", then_removed)
    assert shop.forget(1).complete
    assert len(removed) == 9
    assert shop.left(1) == []


# --- beside other writers ---------------------------------------------------------------------------------------------


class Orders(Source):
    """A table whose row 1 was written, and changed since."""

    def __init__(self, lake: Lake, *, with_rows: bool = True) -> None:
        super().__init__(lake)
        if with_rows:
            self.apply(200, [("I", 110, 1, "a"), ("I", 111, 2, "b")])
            self.apply(300, [("U", 210, 1, "c")])

    def wanted(self, *keys: int) -> WantedKeys:
        return WantedKeys(pa.table({"id": pa.array(keys, pa.int64())}), SCHEMA)

    def forget(self, *keys: int) -> RemovedRows:
        progress = self.lake.applied()[self.life].progress
        return LakeForgetting(self.lake).forget(self.life, self.wanted(*keys), progress, "a run", kept_out=False)

    def search(self, *keys: int) -> SearchedFiles:
        return LakeForgetting(self.lake).search(self.life, self.wanted(*keys))

    def loaded(self, change: Callable[[Any], object]) -> None:
        """Change the table by Iceberg's API, as another writer does."""
        with self.lake.workbench.sessions.step() as session:
            change(session.load(self.lake.state.find(self.life).identifier))


def tag(name: str, table: Any) -> None:
    table.manageSnapshots().createTag(name, table.currentSnapshot().snapshotId()).commit()


def branch(name: str, table: Any) -> None:
    table.manageSnapshots().createBranch(name, table.currentSnapshot().snapshotId()).commit()


def let(name: str, value: str, table: Any) -> None:
    table.updateProperties().set(name, value).commit()


@pytest.mark.parametrize(
    ("what", "place"),
    [
        ("a tag", "guard"),
        ("a window", "copy_without"),
        pytest.param("a window", "guard", marks=pytest.mark.soak),
        pytest.param("a tag", "copy_without", marks=pytest.mark.soak),
        pytest.param("a property", "copy_without", marks=pytest.mark.soak),
    ],
)
def test_what_another_writer_commits_meanwhile_is_not_lost_and_nothing_is_forgotten_before_it_is_seen(
    what: str, place: str, open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, other = Orders(open_lake()), Source(open_lake(), create=False)
    original, writes = getattr(lake_forget, place), list[str]()

    def overtaken(*given: Any) -> Any:
        if not writes:
            writes.append(what)
            if what == "a window":
                other.apply(400, [("I", 310, 3, "d")])
            else:
                orders.loaded(partial(tag, "kept") if what == "a tag" else partial(let, "owner", "somebody"))
        return original(*given)

    monkeypatch.setattr(lake_forget, place, overtaken)
    with pytest.raises(TableMoved):
        orders.forget(1)
    orders.lake = open_lake()
    assert (writes, orders.lake.state.find(orders.life).revision) == ([what], "")
    orders.forget(1)
    assert orders.rows() == [(2, "b"), *([(3, "d")] if what == "a window" else [])]
    left = orders.search(1)
    assert (left.tags, bool(left.having)) == (("kept",), True) if what == "a tag" else ((), False)
    lake_table = orders.lake.state.find(orders.life)
    assert (lake_table.revision, list(lake_table.tags)) == ("a run", ["kept"] if what == "a tag" else [])


@pytest.mark.parametrize("place", ["_expired", "expire"], ids=["before it is looked for", "behind that"])
def test_a_tag_that_is_set_while_snapshots_expire_keeps_its_rows_as_a_cut_does(
    place: str, open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, tags = Orders(open_lake()), list[int]()
    original, old = getattr(lake_forget, place), orders.lake.state.find(orders.life).snapshot_id
    assert old is not None

    def overtaken(*given: Any) -> Any:
        if not tags:
            tags.append(old)
            orders.loaded(lambda table: table.manageSnapshots().createTag("late", old).commit())
        return original(*given)

    with monkeypatch.context() as patched:
        patched.setattr(lake_forget, place, overtaken)
        removed = orders.forget(1)
    assert (removed.rows > 0, tags, orders.rows()) == (True, [old], [(2, "b")])
    orders.lake.applied()
    left = orders.search(1)
    assert (left.tags, bool(left.having)) == (("late",), True)
    orders.loaded(lambda table: table.manageSnapshots().removeTag("late").commit())
    orders.lake.applied()
    orders.forget(1)
    assert (orders.search(1).having, orders.rows()) == ((), [(2, "b")])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (partial(branch, "audit"), "its branch audit has rows"),
        (partial(let, "gc.enabled", "false"), "gc.enabled is false"),
    ],
)
def test_a_table_of_which_not_every_file_can_be_removed_is_left_as_it_is(
    change: Callable[[Any], object], why: str, open_lake: Callable[..., Lake]
) -> None:
    orders = Orders(open_lake())
    orders.loaded(change)
    before = orders.lake.state.find(orders.life).metadata_location
    with pytest.raises(TableHeld, match=why):
        orders.forget(1)
    assert orders.lake.state.find(orders.life).metadata_location == before


def test_a_tag_keeps_the_rows_of_its_snapshot_until_it_is_removed(open_lake: Callable[..., Lake]) -> None:
    orders = Orders(open_lake())
    orders.loaded(partial(tag, "one"))
    orders.lake.applied()
    orders.apply(400, [("I", 310, 3, "d")])
    removed, left = orders.forget(1), orders.search(1)
    assert (removed.rows > 0, left.tags, orders.rows()) == (True, ("one",), [(2, "b"), (3, "d")])
    lake_table = orders.lake.state.find(orders.life)
    table = orders.lake.state.catalog.load_table(lake_table.identifier)
    kept = table.scan(snapshot_id=lake_table.tags["one"]).to_arrow().column("id")
    assert sorted(kept.to_pylist()) == [1, 2]
    orders.loaded(lambda table: table.manageSnapshots().removeTag("one").commit())
    orders.lake.applied()
    orders.forget(1)
    assert (orders.search(1).having, orders.rows()) == ((), [(2, "b"), (3, "d")])


def test_a_table_without_a_snapshot_says_that_its_rows_were_forgotten(open_lake: Callable[..., Lake]) -> None:
    orders = Orders(open_lake(), with_rows=False)
    removed = orders.forget(1)
    assert (removed.rows, removed.files_rewritten, removed.snapshots_expired) == (0, 0, 0)
    assert orders.lake.state.find(orders.life).revision == "a run"
    orders.apply(200, [("I", 110, 1, "a")])
    assert orders.rows() == [(1, "a")]


def test_progress_is_kept_that_only_a_snapshot_with_the_rows_says(open_lake: Callable[..., Lake]) -> None:
    orders = Orders(open_lake())
    before, java = orders.lake.applied()[orders.life], orders.lake.workbench.sessions.iceberg.java
    every = java("org.apache.iceberg.expressions.Expressions").alwaysTrue()
    together = java("com.google.common.base.Functions").constant("")
    orders.loaded(lambda table: table.newDelete().deleteFromRowFilter(every).commit())
    orders.loaded(lambda table: table.rewriteManifests().clusterBy(together).commit())
    orders.lake.applied()
    removed = orders.forget(1)
    assert removed.snapshots_expired > 0
    assert orders.lake.state.find(orders.life).label.progress == before.progress
    assert orders.search(1).having == ()


def test_files_that_nothing_refers_to_are_found_in_every_directory_and_removed_unless_they_are_just_written(
    open_lake: Callable[..., Lake], tmp_path: Path
) -> None:
    orders, directories = Orders(open_lake()), [tmp_path / "data", tmp_path / "metadata"]
    metadata_file = Path(orders.lake.state.find(orders.life).metadata_location.removeprefix("file:"))
    for directory in directories:
        orders.loaded(partial(let, f"write.{directory.name}.path", str(directory)))
        orders.lake.applied()
    orders.apply(400, [("I", 310, 3, "d")])
    files = {path: [row.get("id") for row in pq.read_table(path).to_pylist()] for path in tmp_path.rglob("*.parquet")}
    (with_key, *_), (without_key,) = ([path for path, ids in files.items() if ids == [key]] for key in (1, 3))
    hour, copies = 3600, list[Path]()
    for directory in (*directories, metadata_file.parent):
        for name, path, seconds in (
            ("of-a-killed-run.parquet", with_key, -hour),
            ("of-a-killed-run.metadata.json", metadata_file, -hour),
            ("of-another-key.parquet", without_key, -hour),
            ("of-a-living-run.parquet", with_key, hour),
            ("of-a-living-run.metadata.json", metadata_file, hour),
        ):
            copies.append(directory / name)
            shutil.copy(path, copies[-1])
            os.utime(copies[-1], (time.time() + seconds,) * 2)
    assert orders.forget(1).orphans >= 6
    left = ["of-a-living-run.metadata.json", "of-a-living-run.parquet", "of-another-key.parquet"]
    assert sorted(path.name for path in copies if path.exists()) == sorted(3 * left)
    assert [Path(location).name for location in orders.search(1).having] == 3 * ["of-a-living-run.parquet"]


def test_stages_with_the_rows_are_removed_and_of_those_that_cannot_be_read_only_old_ones(
    open_lake: Callable[..., Lake], tmp_path: Path
) -> None:
    orders, now = Orders(open_lake()), int(time.time())
    for hi, key in ((400, 1), (500, 3)):
        step, files = orders.window(hi, [("I", hi - 10, key, "d")])
        orders.lake.stage(step, files)
    directory = tmp_path / "lake" / STAGE
    staged = list(directory.iterdir())
    for name in (f"{now}-young", f"{now - STALE_SECONDS - 60}-old", "notes"):
        (directory / name).mkdir()
        (directory / name / "part.parquet").write_bytes(b"PAR1 of a killed run")
    forgetting, targets = LakeForgetting(orders.lake), {orders.life: orders.wanted(1)}
    assert forgetting.forget_stages(targets, lambda _, raw: False) == 2
    assert len([path for path in staged if path.exists()]) == len(staged) - 1 == 1
    searched = forgetting.search_stages(targets, lambda _, raw: False)
    assert sorted(Path(place).parent.name for place in searched.having) == [f"{now}-young", "notes"]
    assert searched.files >= 3


# --- in any order -----------------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_in_any_order_nothing_is_left_of_forgotten_keys_nor_comes_back_and_all_else_is_there(
    seed: int, open_lake: Callable[..., Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVACY_KEY", "one key")
    run_orders(LakeOrders(seed, tmp_path, open_lake))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_neither_is_anything_of_a_topic_nor_of_its_landing(
    seed: int, open_lake: Callable[..., Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVACY_KEY", "one key")
    with closing(LakeTopicOrders(seed, tmp_path, open_lake)) as orders:
        run_orders(orders)


def run_orders(orders: LakeOrders) -> None:
    orders.put()
    orders.apply()
    for _ in range(10):
        orders.step()
    orders.check()


def _name(collation: str) -> Column:
    return Column("id", "VARCHAR", precision=20, is_pk=True, collation=collation)


@pytest.mark.parametrize(
    ("column", "rows", "key", "expected"),
    [
        (Column("id", "INT", is_pk=True), [1, 5], 1, True),
        (Column("id", "INT", is_pk=True), [1, 5], 3, True),
        (Column("id", "INT", is_pk=True), [1, 5], 9, False),
        (_name("utf8mb4_general_ci"), ["Jose", "zoe"], "JOSÉ", True),
        (_name("utf8mb4_bin"), ["anna", "zoe"], "anna  ", True),
        (_name("utf8mb4_0900_bin"), ["anna", "mia"], "zoe", False),
    ],
)
def test_a_manifest_of_a_removed_file_may_have_values_of_a_row_wherever_its_bounds_allow_for_the_key(
    tmp_path: Path, column: Column, rows: list[Any], key: Any, expected: bool
) -> None:
    kind = pa.int32() if isinstance(key, int) else pa.string()
    with closing(SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")) as catalog:
        catalog.create_namespace("n")
        table = catalog.create_table("n.t", pa.schema([pa.field("id", kind), pa.field("mail", pa.string())]))
        table.append(pa.table({"id": pa.array(rows, kind), "mail": ["a@example.com", "b@example.com"]}))
        first, (task,) = table.current_snapshot(), table.scan().plan_files()
        table.delete("id is not null")
        emptied = table.current_snapshot()
        assert first is not None
        assert emptied is not None
        table.manage_snapshots().create_tag(emptied.snapshot_id, "cut").commit()
        table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
        Path(task.file.file_path.removeprefix("file://")).unlink()
        wanted = WantedKeys(pa.table({"id": pa.array([key], kind)}), TableSchema((column,), ("id",)))
        refs = [*SearchedTable(table.refresh().metadata_location, {}, wanted).refs]
    assert refs == (["cut"] if expected else [])
