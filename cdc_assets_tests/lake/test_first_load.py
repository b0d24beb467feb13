"""An empty table's first rows become its own data files: what other readers and later steps make of those."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.decoding import FILE
from cdc_assets.decoding.split import split
from cdc_assets.errors import TableMoved
from cdc_assets.features.kinds.keyed import decoding as keyed
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP
from cdc_assets.lake import Lake
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.schema_changes import AddColumn, RenameColumn
from cdc_assets_tests.lake.table_source import NOTE, ORDERS, SCHEMA, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ID = Column("id", "BIGINT", nullable=False, is_pk=True)
VALUES: tuple[tuple[Column, Any], ...] = (
    (Column("tiny", "TINYINT", precision=1), -1),
    (Column("small", "SMALLINT", unsigned=True), 65535),
    (Column("big", "BIGINT", unsigned=True), 18446744073709551615),
    (Column("amount", "DECIMAL", precision=15, scale=2), "-1234567890123.45"),
    (Column("few", "DECIMAL", precision=9, scale=4), "12345.6789"),
    (Column("wide", "DECIMAL", precision=38, scale=10), "-1234567890123456789012345678.0123456789"),
    (Column("wider", "DECIMAL", precision=65, scale=0), "9" * 65),
    (Column("ratio", "DOUBLE"), "0.1"),
    (Column("weight", "FLOAT"), "-2.5"),
    (Column("flag", "BIT", precision=1), 1),
    (Column("bits", "BIT", precision=64), 18446744073709551615),
    (Column("year", "YEAR"), 2026),
    (Column("day", "DATE"), "1969-12-31"),
    (Column("created", "DATETIME", scale=6), "1969-12-31 23:59:59.999999"),
    (Column("updated", "TIMESTAMP", scale=6), "2026-03-29 01:02:03.000001"),
    (Column("lasted", "TIME"), "-838:59:59"),
    (Column("text", "TEXT", precision=65535), "ünï\u202e\U0001f600"),
    (Column("bytes", "VARBINARY", precision=20), "AP8="),
    (Column("kind", "ENUM", elems=("a", "b")), "b"),
    (Column("doc", "JSON"), '{"a": 1}'),
    (Column("vector", "VECTOR"), "[1,-2.5]"),
    (Column("a.b", "INT"), 7),
    (Column("`${env:HOME}` {x}", "VARCHAR", precision=20), "braces"),
    (Column("größe, µ", "INT"), 9),
)


def typed(lake: Lake) -> Source:
    """A table of every type: a row with values, a row of nulls, a row that is gone before it came in."""
    table = Source(lake, TableId("shop", "typed"), TableSchema((ID, *(column for column, _ in VALUES)), ("id",)))
    values = [value for _, value in VALUES]
    rows = [("I", 110, 1, *values), ("I", 111, 2, *[None] * len(values)), ("I", 112, 3, *values)]
    table.apply(200, [*rows, ("D", 113, 3, *values)])
    return table


def data_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "lake" / "default").rglob("*.parquet"))


def spark_rows(spark: SparkSession, lake: Lake, name: TableId) -> list[dict[str, Any]]:
    session = lake.workbench.sessions.side()
    return [
        row.asDict() for row in session.spark.table(session.name(lake.state.places.home(name))).orderBy("id").collect()
    ]


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Spark gives instants without zone and bytes as bytearray."""
    return {
        name: bytes(value)
        if isinstance(value, bytearray)
        else value.replace(tzinfo=None)
        if hasattr(value, "tzinfo")
        else value
        for name, value in row.items()
    }


def test_spark_and_pyiceberg_read_every_type_alike_from_the_files_that_the_first_load_wrote(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    typed(lake)
    assert [path.name.startswith("cdc-") for path in data_files(tmp_path)] == [True]
    ours = [plain(row) for row in lake.read(TableId("shop", "typed")).sort_by("id").to_pylist()]
    assert [plain(row) for row in spark_rows(spark, lake, TableId("shop", "typed"))] == ours
    assert [row["id"] for row in ours] == [1, 2]
    assert ours[0]["wider"] == "9" * 65
    assert ours[0]["big"] == ours[0]["bits"] == 18446744073709551615
    assert str(ours[0]["wide"]) == "-1234567890123456789012345678.0123456789"
    assert ours[0]["vector"] == [1.0, -2.5]
    assert ours[0]["bytes"] == b"\x00\xff"
    assert {ours[1][column.name] for column, _ in VALUES} == {None}


def test_later_changes_columns_and_renames_go_on_from_those_files(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    table = typed(lake)
    values = [value for _, value in VALUES]
    table.apply(300, [("U", 210, 1, *values[:-1], 10), ("D", 211, 2, *[None] * len(values)), ("I", 212, 4, *values)])
    extra = Column("extra", "INT")
    renamed = tuple(replace(c, name="a/b") if c.name == "a.b" else c for c in table.schema.columns)
    table.change(400, TableSchema((*renamed, extra), ("id",)), RenameColumn("a.b", "a/b"), AddColumn(extra, "5"))
    rows = [plain(row) for row in lake.read(table.name).sort_by("id").to_pylist()]
    assert [(row["id"], row["a/b"], row["größe, µ"], row["extra"]) for row in rows] == [(1, 7, 10, 5), (4, 7, 9, 5)]
    assert [plain(row) for row in spark_rows(spark, lake, table.name)] == rows
    # Hadoop's own class writes one of checksums beside each, and starts chmod for both.
    assert [path.name for path in (tmp_path / "lake").rglob(".*.crc")] == []


def test_readers_can_skip_those_files_by_their_bounds(lake: Lake) -> None:
    typed(lake)
    session = lake.workbench.sessions.side()
    name = session.name(lake.state.places.home(TableId("shop", "typed")))
    bounds = session.spark.sql(f"SELECT readable_metrics.* FROM {name}.files").collect()[0].asDict()
    assert (bounds["id"].lower_bound, bounds["id"].upper_bound, bounds["id"].value_count) == (1, 2, 2)
    assert (str(bounds["amount"].lower_bound), bounds["amount"].null_value_count) == ("-1234567890123.45", 1)
    assert bounds[COMMIT_TS].upper_bound == 111


def test_a_first_load_that_lost_its_race_removes_its_data_files(open_lake: Callable[..., Lake], tmp_path: Path) -> None:
    orders = Source(open_lake())
    step, files = orders.window(200, [("I", 110, 1, "slow")])
    slow = open_lake()
    staged = slow.stage(step, files)
    assert len(data_files(tmp_path)) == 1
    orders.apply(180, [("I", 170, 3, "fast")])
    with pytest.raises(TableMoved):
        slow.commit(step, staged)
    assert len(data_files(tmp_path)) == 1
    assert orders.rows() == [(3, "fast")]


def test_a_first_load_is_refused_by_a_table_whose_columns_changed_meanwhile(
    open_lake: Callable[..., Lake], tmp_path: Path
) -> None:
    orders = Source(open_lake())
    step, files = orders.window(200, [("I", 110, 1, "a")])
    slow = open_lake()
    staged = slow.stage(step, files)
    changed = TableSchema((*SCHEMA.columns, Column("more", "INT")), ("id",))
    orders.change(150, changed, AddColumn(changed.columns[-1]))
    with pytest.raises(TableMoved):
        slow.commit(step, staged)
    assert data_files(tmp_path) == []


def test_a_window_with_records_that_do_not_fit_leaves_no_data_file(lake: Lake, tmp_path: Path) -> None:
    orders = Source(lake)
    step, files = orders.window(200, [("I", 110, 1, "a"), ("I", 111, "no number", "b")])
    assert lake.stage(step, files).report.failed
    assert data_files(tmp_path) == []


def test_a_first_load_that_is_committed_again_keeps_its_files(open_lake: Callable[..., Lake], tmp_path: Path) -> None:
    orders = Source(open_lake())
    step, files = orders.window(200, [("I", 110, 1, "a")])
    staged = orders.lake.stage(step, files)
    orders.lake.commit(step, staged)
    open_lake().commit(step, staged)
    assert len(data_files(tmp_path)) == 1
    assert orders.rows() == [(1, "a")]


def test_a_first_load_that_was_killed_before_its_commit_is_not_seen_and_is_done_again(
    open_lake: Callable[..., Lake], tmp_path: Path
) -> None:
    orders = Source(open_lake())
    step, files = orders.window(200, [("I", 110, 1, "a")])
    orders.lake.stage(step, files)
    assert orders.rows() == []
    orders.apply(200, [("I", 110, 1, "a")])
    assert orders.rows() == [(1, "a")]
    assert len(data_files(tmp_path)) == 2


@pytest.mark.usefixtures("several_tasks")
def test_a_first_load_by_several_tasks_has_each_key_once(lake: Lake, tmp_path: Path) -> None:
    orders = Source(lake)
    first = [("I", 110, key, "a") for key in range(20)]
    orders.apply(400, first, [("U", 190, key, "b") for key in range(10)], [("D", 300, 3, "b"), ("U", 185, 4, "old")])
    assert orders.rows() == sorted([(key, "b" if key < 10 else "a") for key in range(20) if key != 3], key=repr)
    assert len(data_files(tmp_path)) == 2
    assert lake.state.named(ORDERS).rows == 19


def test_the_commit_ts_of_a_first_load_is_that_of_the_last_change(lake: Lake, tmp_path: Path) -> None:
    orders = Source(lake)
    orders.apply(200, [("I", 110, 1, "a"), ("U", 120, 1, "b")])
    assert pq.read_table(data_files(tmp_path)[0], partitioning=None).to_pylist() == [
        {"id": 1, NOTE.name: "b", COMMIT_TS: 120}
    ]


# --- several tasks and one key ----------------------------------------------------------------------------------------

CI = TableSchema((Column("k", "VARCHAR", precision=9, collation="utf8mb4_general_ci", is_pk=True),), ("k",))
changes = st.lists(
    st.tuples(
        st.sampled_from([-1, 1]),
        st.integers(1, 4),
        st.integers(1, 9),
        st.integers(0, 3),
        st.sampled_from(["a", "A", "ä", "b ", "b", "", "c"]),
    ),
    max_size=30,
)


def table_of(rows: list[tuple[int, int, int, int, str]]) -> pa.Table:
    types = (pa.int8(), pa.int64(), pa.int64(), pa.int32(), pa.string())
    arrays = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]
    return pa.table(arrays, names=[OP, COMMIT_TS, LINE, FILE, "k"])


@given(changes, st.integers(1, 5))
def test_tasks_that_split_by_key_and_reduce_again_agree_with_one_that_has_all(
    rows: list[tuple[int, int, int, int, str]], buckets: int
) -> None:
    name = TableId("d", "t")
    placed = list({row[2:4]: row for row in rows}.values())  # a line of a file is one change
    tasks = [table_of([row for row in placed if row[3] in files]) for files in ((0, 1), (2, 3))]
    reduced = [split(keyed.KIND.reduce(task, CI, name)[0], CI, buckets) for task in tasks]
    shared = [keyed.KIND.reduce(pa.concat_tables(parts), CI, name)[0] for parts in zip(*reduced, strict=True)]
    alone = keyed.KIND.reduce(pa.concat_tables(tasks), CI, name)[0]
    contents = [
        sorted(repr({**row, OP: row[OP] > 0}) for row in share.to_pylist())
        for share in (pa.concat_tables(shared), alone)
    ]
    assert contents[0] == contents[1]
