"""Partitions, order and properties on Iceberg: the same rows whoever writes them, each in its own partition."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest

from cdc_assets.features.forgetting.lake import LakeForgetting
from cdc_assets.features.forgetting.operations import forget
from cdc_assets.lake import Lake, windows
from cdc_assets.lake.layout import layout_of_table
from cdc_assets.lake.staging.partitions import transformed
from cdc_assets.lake.swap import Rebuilds
from cdc_assets.ledger import Ledger
from cdc_assets.model.layout import PLAIN, TableLayout, Transform, parse_transforms
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import AddColumn, DropColumn, RenameColumn, RetypeColumn
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.maintenance import maintain
from cdc_assets.operations.rebuild import rebuild
from cdc_assets_tests.canaries import leaks
from cdc_assets_tests.kills import Killed
from cdc_assets_tests.lake.table_source import ID, NOTE, Source
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.operations.test_maintenance import EAGER, later_ms

AT, PLACE = Column("at", "DATETIME"), Column("place", "VARCHAR", precision=20)
PRICE = Column("price", "DECIMAL", precision=9, scale=2)
KEYED = TableSchema((ID, NOTE, AT, PLACE, PRICE), ("id",))
MOMENTS = TableSchema((ID, NOTE, Column("moment", "TIMESTAMP"), PLACE, PRICE), ("id",))
KEYLESS = TableSchema(KEYED.columns, ())
DAYS = TableLayout(parse_transforms("day(at), bucket(3, id)"), parse_transforms("place, id"))
LAYOUTS = {
    "days and buckets": DAYS,
    "texts": TableLayout(parse_transforms("truncate(1, place), price")),
    "hours of moments in UTC": TableLayout(parse_transforms("hour(moment)"), parse_transforms("moment")),
    "months of a decimal's tens": TableLayout(
        parse_transforms("month(at), truncate(1000, price)"), parse_transforms("id")
    ),
}
OFTEN = ("days and buckets", "hours of moments in UTC")
"""What transforms make of values is asked without Spark (`test_partitions`), and a rebuild writes texts and prices."""


def made(lake: Lake, layout: TableLayout, schema: TableSchema = KEYED, name: str = "orders") -> Source:
    source = Source(lake, TableId("shop", name), schema, create=False)
    lake.run(dataclasses.replace(source.birth, layout=layout))
    return source


def changes(seed: int, keyed: bool = True, count: int = 6) -> list[list[tuple[Any, ...]]]:
    """Return so many windows of changes to twelve rows, whose values wander between partitions; some are NULL."""
    rng, alive, ts, window_rows = random.Random(seed), dict[int, tuple[Any, ...]](), 101, []
    for _ in range(count):
        rows: list[tuple[Any, ...]] = []
        for _ in range(rng.randrange(4, 10)):
            number = rng.randrange(12)
            values = (
                number,
                f"n{ts}",
                rng.choice([None, f"2026-03-{rng.randrange(1, 4):02d} 23:59:59", "1969-12-31 23:59:59"]),
                rng.choice([None, "Köln / 1", "ulm=2%2F", "Ulm"]),
                rng.choice([None, "12.50", "-3.10"]),
            )
            op = "I" if number not in alive else rng.choice("UUD") if keyed else "D"
            rows.append((op, ts, *(alive.pop(number) if op == "D" and not keyed else values)))
            if op == "D":
                alive.pop(number, None)
            else:
                alive[number] = values
            ts += 1
        window_rows.append(rows)
    return window_rows


def misplaced(lake: Lake, source: Any, layout: TableLayout) -> list[str]:
    """Return the data files that have a row of another partition, by the rows that their Parquet files have."""
    table = lake.state.catalog.load_table(lake.state.find(source.life).identifier)
    wrong = []
    for task in table.scan().plan_files():
        rows = pq.ParquetFile(task.file.file_path.removeprefix("file://")).read()
        for place, transform in enumerate(layout.partition):
            values = set(transformed(rows.column(transform.column), transform).to_pylist())
            (value,) = values
            own = task.file.partition[place]
            days = (value - date(1970, 1, 1)).days if isinstance(value, date) else value
            if own not in (value, days):
                wrong.append(f"{task.file.file_path}: {transform} is {value}, and Iceberg has {own}")
    return wrong


def source_rows(windows: Iterable[list[tuple[Any, ...]]], zone: timezone | None = None) -> list[tuple[Any, ...]]:
    """Return the rows that the source has after windows of changes, as a lake gives them."""
    rows = dict[int, tuple[Any, ...]]()
    for op, _, number, note, at, place, price in itertools.chain(*windows):
        rows.pop(number, None)
        if op != "D":
            moment = at and datetime.fromisoformat(at).replace(tzinfo=zone)
            rows[number] = (number, note, moment, place, price and Decimal(price))
    return sorted(rows.values(), key=repr)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OFTEN else pytest.mark.soak) for name in LAYOUTS]
)
def test_a_mirror_in_partitions_has_the_rows_of_its_source_whoever_writes_them(name: str, lake: Lake) -> None:
    layout, in_utc = LAYOUTS[name], "moments" in name
    ours, merged = (made(lake, layout, MOMENTS if in_utc else KEYED, table) for table in ("a", "b"))
    changed = changes(len(name), count=4)
    for number, rows in enumerate(changed, 1):
        counts = []
        for source, by_spark in ((ours, False), (merged, True)):
            with patch.object(windows, "row_delta_of", return_value=None) if by_spark else nullcontext():
                done = source.apply(rows[-1][1], rows)
            counts.append((done.inserted, done.updated, done.deleted, done.rows_after))
        right = source_rows(changed[:number], timezone.utc if in_utc else None)
        assert ours.rows() == merged.rows() == right
        assert counts[0] == counts[1]
        assert counts[0][-1] == len(right)
    assert misplaced(lake, ours, layout) == misplaced(lake, merged, layout) == []
    with lake.workbench.sessions.step() as session:
        column, kind = ("moment", "timestamp") if in_utc else ("at", "timestamp_ntz")
        for source in (ours, merged):
            table = session.name(lake.state.find(source.life).identifier)
            for moment in {row[2] for row in right}:
                condition = "IS NULL" if moment is None else f"= {kind} '{moment:%Y-%m-%d %H:%M:%S}'"
                numbers = session.spark.sql(f"SELECT id FROM {table} WHERE {column} {condition}").collect()
                assert sorted(row[0] for row in numbers) == sorted(row[0] for row in right if row[2] == moment)
            assert layout_of_table(session, session.load(lake.state.find(source.life).identifier)) == layout
    assert lake.state.find(ours.life).layout == layout


def test_a_table_without_key_in_partitions_has_the_rows_of_its_source(lake: Lake) -> None:
    source, changed = made(lake, DAYS, KEYLESS), changes(5, keyed=False, count=3)
    for number, rows in enumerate(changed, 1):
        source.apply(rows[-1][1], rows)
        assert source.rows() == source_rows(changed[:number])
    assert misplaced(lake, source, DAYS) == []


def test_small_files_are_put_together_within_their_partitions(lake: Lake) -> None:
    ours, changed = made(lake, DAYS), changes(11)
    with patch.object(windows, "EVERY", 2):
        for rows in changed:
            ours.apply(rows[-1][1], rows)
    assert ours.rows() == source_rows(changed)
    assert misplaced(lake, ours, DAYS) == []
    table = lake.state.catalog.load_table(lake.state.find(ours.life).identifier)
    files = [task.file for task in table.scan().plan_files()]
    parts = {str(file.partition) for file in files}
    assert len(files) <= len(parts) + 4
    for file in files:
        rows = pq.ParquetFile(file.file_path.removeprefix("file://")).read(columns=["place", "id"])
        keys = [(row["place"] is not None, (row["place"] or "").encode(), row["id"]) for row in rows.to_pylist()]
        assert keys == sorted(keys)


def test_ddl_around_the_columns_of_a_layout_leaves_rows_and_partitions_right(lake: Lake) -> None:
    source = made(lake, DAYS)
    rows = changes(3)
    source.apply(rows[0][-1][1], rows[0])
    before = source.rows()
    number = Column("number", "BIGINT", nullable=False, is_pk=True)
    moved = TableSchema((number, NOTE, AT, PLACE, PRICE), ("number",))
    source.change(900, moved, RenameColumn("id", "number"))
    named = DAYS.with_columns(lambda name: {"id": "number"}.get(name, name))
    assert lake.state.find(source.life).layout == named
    assert [of.label for of in lake.state.find(source.life).layout.partition] == ["at_day", "id_bucket"]
    again = Column("id", "INT")
    wide = TableSchema((*moved.columns, again), ("number",))
    source.change(910, wide, AddColumn(again, "7"))
    source.apply(
        920, [("I", 911, 100, "x", "2026-04-01 00:00:00", "Ulm", "1.00", 8), ("D", 912, before[0][0], *[None] * 5)]
    )
    assert source.rows()[0][0] == 100 or (100, "x") in [row[:2] for row in source.rows()]
    text = Column("price", "VARCHAR", precision=20)
    rewritten = TableSchema((number, NOTE, AT, PLACE, text, again), ("number",))
    source.change(930, rewritten, RetypeColumn(PRICE, text))
    assert lake.state.find(source.life).layout == named
    source.apply(940, [("U", 931, 100, "y", "2026-04-02 00:00:00", None, "2", 9)])
    assert misplaced(lake, source, named) == []
    narrow = TableSchema((number, NOTE, AT, PLACE, text), ("number",))
    source.change(950, narrow, DropColumn("id"))
    source.apply(960, [("U", 951, 100, "z", None, None, "3")])
    assert [row[1] for row in source.rows() if row[0] == 100] == ["z"]
    assert len(source.rows()) == len(before)


def test_a_rebuild_writes_a_table_anew_in_its_layout(lake: Lake) -> None:
    live = made(lake, PLAIN)
    rows = changes(9)
    for window in rows:
        live.apply(window[-1][1], window)
    right, rebuilds = live.rows(), Rebuilds(lake)
    for layout in (DAYS, LAYOUTS["texts"], PLAIN):
        token = f"t{len(layout.partition)}{len(layout.sort)}"
        aside = rebuilds.begin(token)
        source = made(aside, layout)
        for window in rows:
            source.apply(window[-1][1], window)
        rebuilds.swap(aside, live.life, token)
        assert lake.state.find(live.life).layout == layout
        assert live.rows() == right
        assert misplaced(lake, live, layout) == []
        rebuilds.end(token)
    hi = rows[-1][-1][1]
    lake.applied()
    live.apply(hi + 10, [("I", hi + 5, 99, "x", "2026-03-09 10:00:00", "Ulm", "1.00")])
    assert len(live.rows()) == len(right) + 1


def test_properties_of_a_person_are_set_changed_and_removed_and_files_follow_them(lake: Lake) -> None:
    codec = "write.parquet.compression-codec"
    source = made(lake, TableLayout(properties={codec: "gzip", "of.a.person": "1"}))

    def apply(hi: int, properties: dict[str, str] | None) -> dict[str, str]:
        step, opener = source.window(hi, [("I", hi - 5, hi, "x", None, None, None)])
        step = dataclasses.replace(step, layout=None if properties is None else TableLayout(properties=properties))
        lake.commit(step, lake.stage(step, opener))
        return dict(lake.state.catalog.load_table(lake.state.find(source.life).identifier).properties)

    def codecs() -> set[str]:
        table = lake.state.catalog.load_table(lake.state.find(source.life).identifier)
        paths = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
        return {pq.read_metadata(path).row_group(0).column(0).compression for path in paths}

    assert apply(110, None)["of.a.person"] == "1"
    assert codecs() == {"GZIP"}
    after = apply(120, {codec: "snappy"})
    assert "of.a.person" not in after
    assert apply(130, None)[codec] == "snappy"
    assert "SNAPPY" in codecs()
    assert codec not in apply(140, {})
    assert lake.state.find(source.life).layout == PLAIN
    assert apply(150, None)["write.delete.mode"] == "merge-on-read"


def test_transforms_that_are_not_known_leave_a_table_to_spark(lake: Lake) -> None:
    source = made(lake, TableLayout((Transform("identity", "place"),)))
    with lake.workbench.sessions.step() as session:
        table = session.name(lake.state.find(source.life).identifier)
        session.spark.sql(f"ALTER TABLE {table} WRITE ORDERED BY note DESC")
    lake.applied()
    rows = changes(2)
    for window in rows:
        source.apply(window[-1][1], window)
    assert misplaced(lake, source, TableLayout((Transform("identity", "place"),))) == []


def test_upkeep_keeps_partitions_and_order_and_forgotten_rows_leave_them(lake: Lake, tmp_path: Path) -> None:
    feed, ledger = LittleFeed(tmp_path / "feed"), Ledger("sqlite://")
    feed.create("shop.t")
    layout = TableLayout(parse_transforms("truncate(5, v), bucket(2, id)"), parse_transforms("v"))
    given = feed.settings(
        "default",
        partition_by={"shop.t": "truncate(5, v), bucket(2, id)"},
        sort_by={"shop.*": ["v"]},
        maintenance=EAGER,
    )

    def pipeline() -> LakePipeline:
        return LakePipeline(given, given.open_source(), lake, ledger)

    for window in range(4):
        at = FIRST + ((window + 1) << 20)
        rows = [("I" if not window else "U", at + n, n, f"text{(n + window) % 3}-{window}-{n}") for n in range(8)]
        feed.rows("shop.t", FIRST, rows)
        feed.publish(at + 100)
        assert pipeline().apply("run").complete
    (life,) = lake.state.tables()
    shop = SimpleNamespace(life=life)
    assert lake.state.find(life).layout == layout
    expected = {(n, f"text{(n + 3) % 3}-3-{n}") for n in range(8)}
    assert misplaced(lake, shop, layout) == []
    maintain(pipeline(), later_ms())
    root = Path(str(lake.settings.local_directory))
    (root / "default" / str(life) / "data" / "v=of a killed run").mkdir()
    assert forget(pipeline(), LakeForgetting(lake), "shop.t", [["3"], ["6"]], "run").complete
    assert [path for path in root.rglob("*=*") if not any(path.iterdir())] == []
    left = {(row["id"], row["v"]) for row in lake.read(TableId("shop", "t")).to_pylist()}
    assert left == {row for row in expected if row[0] not in (3, 6)}
    assert misplaced(lake, shop, layout) == []


@pytest.mark.parametrize("place", ["cdc_assets.lake.schema._settle_columns", "cdc_assets.lake.swap.set_order"])
def test_an_order_that_is_lost_where_a_table_is_replaced_is_there_again_after_the_next_window(
    place: str, lake: Lake, tmp_path: Path
) -> None:
    feed, ledger, rebuilds = LittleFeed(tmp_path / "feed"), Ledger("sqlite://"), "swap" in place
    feed.create("shop.t")

    def pipeline(buckets: int) -> LakePipeline:
        layout = {"partition_by": {"shop.*": f"bucket({buckets}, v)"}, "sort_by": {"shop.*": "v"}}
        given = feed.settings("default", **layout)
        return LakePipeline(given, given.open_source(), lake, ledger)

    def window(number: int, version: int = FIRST) -> None:
        feed.rows("shop.t", version, [("I", FIRST + (number << 20), number, f"v{number}")])
        feed.publish(FIRST + (number << 20) + 10)

    def layout() -> str:
        (life,) = lake.state.tables()
        return str(lake.state.find(life).layout)

    window(1)
    assert pipeline(2).apply("run").complete
    assert layout() == "partitions bucket(2, v) and order v"
    if not rebuilds:
        altered, key = FIRST + (1 << 20) + 20, {"ColumnType": "VARCHAR", "ColumnPrecision": "40"}
        feed.ddl("shop.t", altered, "ALTER TABLE `t` MODIFY COLUMN `id` VARCHAR(40)", 12, key=key)
        feed.publish(altered + 1)
    buckets = 3 if rebuilds else 2
    with patch(place, side_effect=Killed), suppress(Killed):
        if rebuilds:
            rebuild(pipeline(buckets), Rebuilds(lake), ["shop.t"], "run")
        else:
            pipeline(buckets).apply("run")
    assert layout() == f"partitions bucket({buckets}, v)"
    window(2, FIRST if rebuilds else altered)
    assert pipeline(buckets).apply("run").complete
    assert layout() == f"partitions bucket({buckets}, v) and order v"
    assert {str(row["id"]) for row in lake.read(TableId("shop", "t")).to_pylist()} == {"1", "2"}


def test_partitions_and_orders_of_masked_columns_are_those_of_the_masked_values(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASK_KEY", "a key of the masks that is long")
    feed, ledger = LittleFeed(tmp_path / "feed"), Ledger("sqlite://")
    feed.create("shop.t")
    mask = {"shop.t.v": {"hash": {"key": {"env": "MASK_KEY"}}}}
    given = feed.settings("default", partition_by={"*.*": "v"}, sort_by={"*.*": "v"}, privacy=mask, maintenance=EAGER)
    pipeline = LakePipeline(given, given.open_source(), lake, ledger)
    for window, by_spark in enumerate((False, False, True)):
        at = FIRST + ((window + 1) << 20)
        feed.rows("shop.t", FIRST, [("U" if window else "I", at + n, n, f"plain-{window}-{n}") for n in range(4)])
        feed.publish(at + 100)
        with patch.object(windows, "row_delta_of", return_value=None) if by_spark else nullcontext():
            assert pipeline.apply("run").complete
    maintain(pipeline, later_ms())
    root = Path(str(lake.settings.local_directory))
    (life,) = lake.state.tables()
    assert str(lake.state.find(life).layout) == "partitions v and order v"
    assert {path.parent.name.partition("=")[0] for path in root.rglob("*.parquet")} >= {"v"}
    assert leaks(root, {b"plain-"}) == []
    assert [path for path in root.rglob("*") if "plain-" in path.name] == []
