"""Rows of a table on real Spark and Iceberg: windows that repeat, races that are lost safely, labels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.errors import TableMoved
from cdc_assets.lake import Lake
from cdc_assets.lake.staging import stage as staging
from cdc_assets.model.progress import Phase, Progress
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import (
    AddColumn,
    DeleteRows,
    RetypeColumn,
    SchemaChange,
)
from cdc_assets.model.steps import (
    ChangeTable,
)
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.lake import table_source
from cdc_assets_tests.lake.table_source import ID, NOTE, OPTIONS, ORDERS, SCHEMA, Files, Source, id_below


def test_rows_are_inserted_updated_and_deleted_and_the_table_says_through_which_commit_ts(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a"), ("I", 111, 2, "b"), ("I", 112, 3, None)])
    result = orders.apply(300, [("U", 210, 1, "A"), ("D", 220, 2, "b"), ("I", 230, 4, 'q"')])
    assert orders.rows() == [(1, "A"), (3, None), (4, 'q"')]
    assert lake.applied()[orders.life].progress == Progress(300, Phase.ROWS)
    assert (result.inserted, result.updated, result.deleted) == (1, 1, 1)
    assert lake.state.named(ORDERS).rows == 3


def test_java_opens_the_catalog_of_a_lake_that_is_not_there(lake: Lake, tmp_path: Path, spark: SparkSession) -> None:
    """As executors do that land messages before there is any table."""
    other = LakeSettings.from_warehouse(tmp_path / "not" / "there")
    with closing(Lake(other, "default", lambda: spark)) as fresh:
        assert fresh.applied() == {}
        assert not (tmp_path / "not").exists()
        fresh.workbench.sessions.side()
        assert other.catalog_file is not None
        assert other.catalog_file.exists()


def test_java_is_asked_once_what_a_name_is(lake: Lake) -> None:
    Source(lake).apply(200, [("I", 110, 1, "a")])
    with lake.workbench.sessions.step() as session:
        java = session.iceberg.java
        assert java("org.apache.iceberg.Schema") is java("org.apache.iceberg.Schema")
        assert session.jvm.java.util is session.jvm.java.util


def test_each_row_carries_the_commit_ts_of_its_last_change(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a"), ("I", 111, 2, "b")])
    orders.apply(300, [("U", 210, 1, "A")])
    assert dict(zip(*lake.read(ORDERS).select(["id", "_cdc_commit_ts"]).to_pydict().values(), strict=True)) == {
        1: 210,
        2: 111,
    }


def test_a_window_that_is_committed_twice_changes_nothing(lake: Lake) -> None:
    orders = Source(lake)
    step, files = orders.window(200, [("I", 110, 1, "a")])
    lake.commit(step, lake.stage(step, files))
    snapshot = lake.state.find(orders.life).snapshot_id
    again = lake.commit(step, lake.stage(step, files))
    assert again.snapshot_after == again.snapshot_before == snapshot
    assert orders.rows() == [(1, "a")]


def test_a_window_without_rows_still_moves_the_progress(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    orders.apply(300, [("I", 310, 2, "not yet due")])
    assert orders.rows() == [(1, "a")]
    assert lake.applied()[orders.life].progress == Progress(300, Phase.ROWS)


def test_a_table_that_was_emptied_is_loaded_again(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    orders.change(250, SCHEMA, DeleteRows(None))
    assert orders.rows() == []
    assert lake.applied()[orders.life].progress == Progress(250, Phase.DDL)
    orders.apply(300, [("I", 260, 1, "b")])
    assert orders.rows() == [(1, "b")]


@pytest.mark.usefixtures("several_tasks")
def test_tasks_that_share_a_window_agree_on_the_last_change_of_a_key(lake: Lake) -> None:
    orders = Source(lake)
    orders.apply(150, [("I", 110, 9, "not empty")])
    step, files = orders.window(
        400,
        [("I", 160, 1, "a"), ("I", 170, 2, "b"), ("D", 180, 2, "b")],
        [("U", 190, 1, "c"), ("I", 200, 3, "x"), ("I", 200, 9, "again")],
        [("U", 185, 1, "older"), ("D", 300, 3, "x")],
    )
    staged = lake.stage(step, files)
    assert len(list(Path(staged.path).glob("bucket-*.arrow"))) > 1
    lake.commit(step, staged)
    assert orders.rows() == [(1, "c"), (9, "again")]


def test_a_rejected_window_leaves_no_stage_behind_and_the_table_as_it_was(lake: Lake, tmp_path: Path) -> None:
    orders = Source(lake)
    step, files = orders.window(200, [("I", 110, 1, "a"), ("I", 111, "no number", "b")])
    staged = lake.stage(step, files)
    assert staged.report.failed
    assert staged.report.rejects[0].line == 2
    lake.discard(step, staged)
    assert orders.rows() == []
    assert not list((tmp_path / "lake" / "_cdc_stage").glob("*"))


def test_every_step_removes_its_stage(lake: Lake, tmp_path: Path) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    assert not list((tmp_path / "lake" / "_cdc_stage").glob("*"))


def test_stages_of_dead_runs_are_removed_after_a_day(lake: Lake, tmp_path: Path) -> None:
    old, new = (tmp_path / "lake" / "_cdc_stage" / name for name in ("1000-dead", "99999999999-alive"))
    old.mkdir(parents=True)
    new.mkdir()
    Source(lake).apply(200, [("I", 110, 1, "a")])
    assert new.exists()
    assert not old.exists()


def test_a_writer_that_was_overtaken_before_it_began_fails(open_lake: Callable[..., Lake]) -> None:
    orders = Source(open_lake())
    orders.apply(150, [("I", 110, 1, "a")])
    step, files = orders.window(200, [("U", 160, 1, "b")])
    slow = open_lake()
    staged = slow.stage(step, files)
    orders.apply(180, [("U", 170, 1, "c")])
    with pytest.raises(TableMoved, match="another writer"):
        slow.commit(step, staged)
    assert orders.rows() == [(1, "c")]


@pytest.mark.parametrize("loaded", [True, False], ids=["merge", "first load"])
def test_of_two_commits_at_once_the_later_one_fails_and_changes_nothing(
    open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch, loaded: bool
) -> None:
    orders = Source(open_lake())
    if loaded:
        orders.apply(150, [("I", 110, 1, "a")])
    slow, read = open_lake(), staging.read_manifest
    step, files = orders.window(200, [("I", 160, 2, "slow")])
    staged = slow.stage(step, files)

    def overtaken(*args: Any) -> Any:
        monkeypatch.setattr(staging, "read_manifest", read)
        orders.apply(180, [("I", 170, 3, "fast")])
        return read(*args)

    monkeypatch.setattr(staging, "read_manifest", overtaken)
    with pytest.raises(TableMoved, match=r"[Pp]lan again"):
        slow.commit(step, staged)
    assert orders.rows()[-1] == (3, "fast")
    assert slow.applied()[orders.life].progress == Progress(180, Phase.ROWS)


def _overtake(monkeypatch: pytest.MonkeyPatch, lake: Lake, before: str, action: Callable[[], object]) -> None:
    """Run an action once, after the step has loaded its table and before it commits."""
    from cdc_assets.lake import schema

    original = getattr(schema, before)

    def overtaken(*args: Any, **named: Any) -> Any:
        monkeypatch.setattr(schema, before, original)
        action()
        return original(*args, **named)

    monkeypatch.setattr(schema, before, overtaken)


@pytest.mark.parametrize("change", ["add", "truncate", "delete"])
def test_a_ddl_that_is_overtaken_fails_whole(
    open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    orders = Source(open_lake())
    orders.apply(150, [("I", 110, 1, "a"), ("I", 111, 2, "b")])
    slow = open_lake()
    changes: dict[str, SchemaChange] = {
        "add": AddColumn(Column("n", "INT"), "5"),
        "truncate": DeleteRows(None),
        "delete": DeleteRows(id_below(2)),
    }
    schema = TableSchema((ID, NOTE, Column("n", "INT")), ("id",)) if change == "add" else SCHEMA
    _overtake(
        monkeypatch,
        slow,
        "publish",
        lambda: orders.apply(180, [("I", 170, 3, "fast")]),
    )
    with pytest.raises(TableMoved):
        slow.run(ChangeTable(orders.life, 190, (changes[change],), schema, SCHEMA))
    assert orders.rows() == [(1, "a"), (2, "b"), (3, "fast")]
    assert slow.applied()[orders.life].progress == Progress(180, Phase.ROWS)


def test_a_rewrite_that_swallowed_a_window_says_so_and_the_progress_asks_for_it_again(
    open_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = Source(open_lake())
    orders.apply(150, [("I", 110, 1, "7")])
    slow, number = open_lake(), Column("note", "INT")
    _overtake(monkeypatch, slow, "_converted", lambda: orders.apply(180, [("I", 170, 3, "8")]))
    with pytest.raises(TableMoved):
        slow.run(
            ChangeTable(orders.life, 190, (RetypeColumn(NOTE, number),), TableSchema((ID, number), ("id",)), SCHEMA)
        )
    assert slow.applied()[orders.life].progress in (Progress(190, Phase.DDL), Progress(180, Phase.ROWS))


def test_labels_of_neighbours_do_not_mix(lake: Lake) -> None:
    source, other_source = Source(lake), Source(lake, TableId("shop", "customers"))
    source.apply(200, [("I", 110, 1, "a")])
    source.apply(300, [("U", 210, 1, "b")])
    other_source.apply(150, [("I", 110, 1, "a")])
    applied = lake.applied()
    assert applied[source.life].progress.tso == 300
    assert applied[other_source.life].progress.tso == 150


def test_a_compaction_without_label_does_not_hide_the_progress(lake: Lake, spark: Any) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a")])
    orders.apply(300, [("I", 210, 2, "b")])
    session = lake.workbench.sessions.side()
    session.sql(
        f"CALL {session.catalog}.system.rewrite_data_files("
        "table => 'shop.orders', options => map('rewrite-all', 'true'))"
    ).collect()
    assert lake.state.find(orders.life).snapshot_id != lake.applied()[orders.life].progress.tso
    assert lake.applied()[orders.life].progress == Progress(300, Phase.ROWS)
    orders.apply(400, [("U", 310, 1, "A")])
    assert orders.rows() == [(1, "A"), (2, "b")]


def test_without_commit_ts_the_position_in_the_files_is_kept_with_the_rows(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_source, "OPTIONS", replace(OPTIONS, include_commit_ts=False))
    orders = Source(lake)
    step, files = orders.window(200, [("I", 110, 1, "a"), ("U", 110, 1, "b")])
    files = Files({path: raw.replace(b",110,", b",") for path, raw in files.files.items()})
    step = replace(step, positions={"r/100||12": 1})
    lake.commit(step, lake.stage(step, files))
    assert orders.rows() == [(1, "b")]
    assert lake.applied()[orders.life].positions == {"r/100||12": 1}
    assert lake.read(ORDERS).column("_cdc_commit_ts").to_pylist() == [None]
    lake.run(ChangeTable(orders.life, 300, (DeleteRows(None),), SCHEMA, SCHEMA))
    assert lake.applied()[orders.life].positions == {"r/100||12": 1}
