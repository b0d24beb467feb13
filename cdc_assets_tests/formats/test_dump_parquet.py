"""Parquet of dumps: whatever Dumpling and TiDB Cloud write reads back, by the file's own types."""

from __future__ import annotations

import io
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.ddl import created
from cdc_assets.errors import MalformedData
from cdc_assets.features.dumps.formats import dump_format
from cdc_assets.formats.decoded import LINE
from cdc_assets.formats.dump.parquet import NULL_OR_ZERO_DATE
from cdc_assets.model.dumps import DumpOptions, DumpSplit
from cdc_assets.model.schema import TableSchema
from cdc_assets.types.mysql_values import ZERO_DATE
from cdc_assets_tests.dump_contents import AT, TABLE, assert_reads_back, contents, file_of, read
from cdc_assets_tests.dump_writer import Row, dumped, parquet_file

PLAIN = created("create table t (id int primary key, v varchar(20), at datetime)")


@given(contents(), st.booleans(), st.sampled_from(["UTC", "+08:00"]), st.lists(st.integers(1, 2000), max_size=3))
def test_what_dumpling_and_tidb_cloud_write_reads_back(
    table: tuple[TableSchema, list[Row]], cloud: bool, zone: str, cuts: list[int]
) -> None:
    schema, rows = table
    if not dumped(schema):
        return  # Parquet has no rows without columns
    options = DumpOptions(timezone=zone)
    file, data = file_of(parquet_file(dumped(schema), rows, cloud=cloud), "parquet")
    assert_reads_back(read(file, data, schema, options, cuts), schema, rows, zone)


def table_of(**columns: pa.Array) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("definition", "array", "expected"),
    [
        ("bigint unsigned", pa.array([2**63], pa.uint64()), 2**63),
        ("int unsigned", pa.array([7], pa.int32()), 7),
        ("bigint", pa.array([7], pa.decimal128(20, 0)), 7),
        ("decimal(40,2)", pa.array(["1.50"]), "1.50"),
        ("timestamp", pa.array([0], pa.timestamp("ms", "UTC")), "1970-01-01 00:00:00+00:00"),
        ("timestamp", pa.array([8 * 3600], pa.timestamp("s")), "1970-01-01 00:00:00+00:00"),
        ("date", pa.array(["2024-02-29"]), "2024-02-29"),
        ("date", pa.array([19782], pa.date32()), "2024-02-29"),
        ("float", pa.array([0.1], pa.float64()), 0.10000000149011612),
        ("year", pa.array([2024], pa.int32()), 2024),
        ("bit(9)", pa.array([b"\x01\xff"]), 511),
        ("varchar(3)", pa.array([b"abc"]), "abc"),
    ],
)
def test_the_types_of_the_file_decide(definition: str, array: pa.Array, expected: object) -> None:
    schema = created(f"create table t (c {definition})")
    file, data = file_of(table_of(c=array), "parquet")
    (block,) = read(file, data, schema, DumpOptions(timezone="+08:00"))
    value = block.changes.column("c")[0].as_py()
    assert (value if isinstance(expected, int | float) else str(value)) == expected


@pytest.mark.parametrize(
    ("definition", "array"),
    [
        ("int", pa.array([7.0])),
        ("int", pa.array([True])),
        ("blob", pa.array(["x"])),
        ("bit(1)", pa.array([1])),
        ("varchar(3)", pa.array([7])),
        ("datetime", pa.array([0], pa.timestamp("us", "UTC"))),
        ("date", pa.array([0], pa.timestamp("us"))),
        ("json", pa.array([[1]])),
    ],
)
def test_a_column_of_another_type_is_refused_by_name(definition: str, array: pa.Array) -> None:
    file, data = file_of(table_of(c=array), "parquet")
    with pytest.raises(MalformedData, match='the column "c" is'):
        read(file, data, created(f"create table t (c {definition})"), DumpOptions())


def test_a_number_that_the_column_cannot_hold_is_rejected_with_its_row() -> None:
    file, data = file_of(table_of(id=pa.array([1, 2**40]), v=pa.array(["x", "y"])), "parquet")
    (block,) = read(file, data, created("create table t (id int primary key, v text)"), DumpOptions())
    assert [(reject.line, reject.column, reject.raw) for reject in block.rejects] == [
        (2, "id", b'{"id":1099511627776,"v":"y"}')
    ]


def test_dates_that_parquet_could_not_hold_are_reported() -> None:
    rows: list[Row] = [("1", "x", "0000-00-00 00:00:00"), ("2", "x", None)]
    file, data = file_of(parquet_file(PLAIN.columns, rows), "parquet")
    (block,) = read(file, data, PLAIN, DumpOptions())
    assert dict(block.notes) == {("at", NULL_OR_ZERO_DATE): 2}
    strict = replace(PLAIN, columns=(*PLAIN.columns[:2], replace(PLAIN.columns[2], nullable=False)))
    (block,) = read(file, data, strict, DumpOptions())
    assert dict(block.notes) == {("at", ZERO_DATE): 2}


@pytest.mark.parametrize("left", [0, 3, 100, -1])
def test_a_file_that_was_cut_off_is_refused(left: int) -> None:
    whole = parquet_file(PLAIN.columns, [("1", "x", None)] * 9)
    file, data = file_of(whole[:left], "parquet")
    with pytest.raises(MalformedData, match="not a whole Parquet file"):
        read(file, data, PLAIN, DumpOptions())


def test_other_columns_are_refused() -> None:
    file, data = file_of(table_of(id=pa.array([1]), w=pa.array([1])), "parquet")
    with pytest.raises(MalformedData, match='names the column "w"'):
        read(file, data, PLAIN, DumpOptions())


def test_row_groups_of_a_split_know_their_place_in_the_file() -> None:
    rows: list[Row] = [(str(number), "x", None) for number in range(10)]
    file, data = file_of(parquet_file(PLAIN.columns, rows), "parquet")

    def read_range(start: int, end: int) -> bytes:
        return data[start:end]

    for split in (DumpSplit(file, 0, 300), DumpSplit(file, 300, file.size)):
        blocks = list(dump_format("parquet").read(split, read_range, TABLE, PLAIN, DumpOptions(), AT))
        lines, ids = ([v for block in blocks for v in block.changes.column(name).to_pylist()] for name in (LINE, "id"))
        assert 0 < len(ids) < 10
        assert lines[0] + dump_format("parquet").lines_before(split, read_range, DumpOptions()) == ids[0] + 1
        raws = dump_format("parquet").raw_records(split, read_range, lines, DumpOptions())
        assert raws[lines[-1]] == b'{"id":%d,"v":"x","at":null}' % ids[-1]
