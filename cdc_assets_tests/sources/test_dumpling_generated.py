"""Stored generated columns, which a dump leaves out: the values that the source has, or NULL with the reason."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from cdc_assets.ddl import created
from cdc_assets.decoding.validate import check
from cdc_assets.errors import MalformedData
from cdc_assets.formats.decoded import Decoded
from cdc_assets.model.dumps import DumpOptions
from cdc_assets.model.schema import TableSchema
from cdc_assets.sources.dumpling.generated import FROM_ZERO_DATE, filled, generators, promised
from cdc_assets_tests.dump_contents import file_of, read
from cdc_assets_tests.dump_writer import Row, Writing, csv_file, dumped


def filled_rows(schema: TableSchema, rows: Sequence[Row]) -> Decoded:
    file, data = file_of(csv_file(dumped(schema), rows, Writing()), "csv")
    (decoded,) = read(file, data, schema, DumpOptions())
    return filled(decoded, schema, generators(schema))


@pytest.mark.parametrize(
    ("columns", "row", "expected"),
    [
        ("a int, g int as (a * 10) stored", ["7"], 70),
        ("a int, g bigint as (-a DIV 2) stored", ["7"], -3),
        ("a int, b int, g int as (a % 3 + abs(b)) stored", ["-7", "-5"], 4),
        ("d date, g int as (year(d) * 100 + month(d)) stored", ["2024-02-29"], 202402),
        ("d datetime(3), g int as (to_days(d)) stored", ["1970-01-01 23:59:59.999"], 719528),
        ("t timestamp, g bigint as (unix_timestamp(t)) stored", ["1970-01-01 00:00:07"], 7),
        ("a int, g int as (1) stored", ["7"], 1),
        ("a int, h int as (a + 1) stored, g int as (h + 1) stored", ["7"], 9),
        ("a int, g int as (a + 1) stored", [None], None),
        ("a bigint unsigned, g bigint unsigned as (a) stored", [str(2**64 - 1)], 2**64 - 1),
        ("d date, g year as (year(d)) stored", ["2024-02-29"], 2024),
    ],
)
def test_integers_are_computed_as_the_source_does(columns: str, row: Row, expected: int | None) -> None:
    decoded_rows = filled_rows(created(f"create table t ({columns})"), [row])
    assert decoded_rows.changes.column("g").to_pylist() == [expected]
    assert dict(decoded_rows.notes) == {}


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("a varchar(9), g varchar(9) as (upper(a)) stored", "only integers are"),
        ("a varchar(9), g int as (length(a)) stored", "LENGTH() is not evaluated here"),
        ("a int, g int as (a + v) stored, v int as (a) virtual", 'the virtual column "v" is not in the lake'),
        ("a varchar(9), h int as (length(a)) stored, g int as (h + 1) stored", 'it is generated from "h"'),
        ("a timestamp(3), g int as (unix_timestamp(a)) stored", "fractions of a second are rounded"),
    ],
)
def test_what_is_not_evaluated_is_null_with_its_reason_counted(columns: str, says: str) -> None:
    schema = created(f"create table t ({columns})")
    row = [None] * len(dumped(schema))
    decoded_rows = filled_rows(schema, [row, row])
    assert decoded_rows.changes.column("g").to_pylist() == [None, None]
    reasons = {rule: count for (column, rule), count in decoded_rows.notes.items() if column == "g"}
    assert list(reasons.values()) == [2]
    assert says in next(iter(reasons))


def test_columns_stand_in_table_order() -> None:
    schema = created("create table t (g int as (a) stored, a int, h int as (a) stored, b int)")
    assert filled_rows(schema, [["1", "2"]]).changes.column_names[3:] == ["g", "a", "h", "b"]


def test_a_column_that_the_file_brings_is_left_as_it_is() -> None:
    schema = created("create table t (a int, g int as (a) stored)")
    file, data = file_of(csv_file(schema.columns, [["1", "7"]], Writing()), "csv")
    (decoded,) = read(file, data, schema, DumpOptions())
    assert filled(decoded, schema, generators(schema)) is decoded


def test_a_zero_date_gives_null_and_says_why() -> None:
    schema = created("create table t (d date, g int as (year(d)) stored)")
    decoded_rows = filled_rows(schema, [["0000-00-00"], ["2024-01-01"]])
    assert decoded_rows.changes.column("g").to_pylist() == [None, 2024]
    assert decoded_rows.notes["g", FROM_ZERO_DATE] == 1


@pytest.mark.parametrize(
    "columns",
    ["a varchar(10), g int as (length(a)) stored not null", "a date, g int as (year(a)) stored not null"],
)
def test_null_that_is_made_breaks_no_promise_of_the_column(columns: str) -> None:
    schema = created(f"create table t ({columns})")
    decoded_rows = filled_rows(schema, [["0000-00-00"]])
    assert check(decoded_rows.changes, schema, "", notes={}).total == 1
    assert check(decoded_rows.changes, promised(schema, generators(schema)), "", notes=decoded_rows.notes).total == 0


def test_a_column_of_the_key_is_computed_or_refused() -> None:
    schema = created("create table t (a int, g int as (a + 1) stored primary key)")
    assert filled_rows(schema, [["1"]]).changes.column("g").to_pylist() == [2]
    schema = created("create table t (a varchar(9), g int as (length(a)) stored primary key)")
    with pytest.raises(MalformedData, match="the key has the column"):
        filled_rows(schema, [["x"]])


def test_no_rows_are_filled_too() -> None:
    schema = created("create table t (a int, g int as (a + 1) stored)")
    empty = pa.table({"a": pa.array([], pa.int32())})
    assert filled(Decoded(empty), schema, generators(schema)).changes.column_names == ["a", "g"]
