"""Which type changes touch values, and what lies beyond one value: the year 0, zones, NULL, ways there and back."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.decoding.upgrade import default_array
from cdc_assets.errors import TableHeld
from cdc_assets.model.schema import Column
from cdc_assets.types.conversions import convert, narrows, needs_conversion, zone_matters
from cdc_assets.types.mysql_types import TYPES, arrow_type, values
from cdc_assets_tests.types.test_conversions import UTC, col, turned


def lake_array(kind: str, *fields: int) -> pa.Array:
    """A DATE or DATETIME of the year 0, which Python's own dates do not have."""
    year, month, day, hour, minute, second, micro = (*fields, 0, 0, 0, 0)[:7]
    days = date(year + 400, month, day).toordinal() - 146_097 - date(1970, 1, 1).toordinal()
    if kind == "DATE":
        return pa.array([days], pa.int32()).cast(pa.date32())
    micros = ((days * 24 + hour) * 60 + minute) * 60 + second
    return pa.array([micros * 1_000_000 + micro], pa.int64()).cast(pa.timestamp("us"))


YEAR_0 = [
    ("DATETIME(6)", (0, 2, 29, 23, 59, 59, 600000), "VARCHAR(30)", pa.array(["0000-02-29 23:59:59.600000"])),
    ("DATETIME(6)", (0, 2, 29, 23, 59, 59, 600000), "DATETIME", lake_array("DATETIME", 0, 3, 1)),
    ("DATETIME(6)", (0, 2, 29, 23, 59, 59, 600000), "DATE", lake_array("DATE", 0, 2, 29)),
    ("DATETIME(6)", (0, 2, 29, 23, 59, 59, 600000), "TIME(1)", pa.array(["23:59:59.6"])),
    ("DATETIME(6)", (0, 2, 29, 1, 2, 3), "BIGINT", pa.array([229010203], pa.int64())),
    ("DATE", (0, 12, 31), "INT", pa.array([1231], pa.int32())),
    ("DATE", (0, 12, 31), "DATETIME", lake_array("DATETIME", 0, 12, 31)),
    ("DATE", (0, 12, 31), "JSON", pa.array(['"0000-12-31"'])),
    ("DATE", (0, 12, 31), "YEAR", pa.array([0], pa.int32())),
]


@pytest.mark.parametrize(("old", "fields", "new", "expected"), YEAR_0)
def test_the_year_0_is_a_year(old: str, fields: tuple[int, ...], new: str, expected: pa.Array) -> None:
    there, _ = convert(lake_array(old.partition("(")[0], *fields), col(old), col(new))
    assert there.equals(expected)
    if new == "VARCHAR(30)":
        assert convert(there, col(new), col(old))[0].equals(lake_array("DATETIME", *fields))


def test_an_instant_of_the_year_0_holds_the_table() -> None:
    with pytest.raises(TableHeld, match="cannot become TIMESTAMP"):
        convert(lake_array("DATETIME", 0, 1, 1), col("DATETIME"), col("TIMESTAMP"), "Asia/Shanghai")


def test_a_clock_that_skips_an_hour_and_shows_one_twice() -> None:
    zone = "Europe/Berlin"
    twice = datetime(2020, 10, 25, 2, 30)
    assert turned(twice, col("DATETIME"), col("TIMESTAMP"), zone) == datetime(2020, 10, 25, 0, 30, tzinfo=UTC)
    with pytest.raises(TableHeld, match="cannot become TIMESTAMP"):
        turned(datetime(2020, 3, 29, 2, 30), col("DATETIME"), col("TIMESTAMP"), zone)


def test_null_holds_the_table_where_the_source_has_a_value_instead() -> None:
    nulls = pa.nulls(1, pa.timestamp("us"))
    with pytest.raises(TableHeld, match="the time at which the DDL ran"):
        convert(nulls, col("DATETIME"), replace(col("TIMESTAMP"), nullable=False))
    with pytest.raises(TableHeld, match="zero or partial dates"):
        convert(nulls, replace(col("DATETIME"), nullable=False), col("VARCHAR(30)"))
    assert convert(nulls, col("DATETIME"), col("VARCHAR(30)"))[0].to_pylist() == [None]
    assert convert(nulls, replace(col("DATETIME"), nullable=False), col("DATE"))[0].to_pylist() == [None]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("INT", "BIGINT"), ("TINYINT", "INT"), ("INT", "INT UNSIGNED"), ("FLOAT", "DOUBLE"), ("BIT(3)", "BIT(9)"),
        ("DECIMAL(5,2)", "DECIMAL(9,2)"), ("DECIMAL(40,2)", "DECIMAL(50,2)"), ("VARCHAR(5)", "VARCHAR(9)"),
        ("CHAR(5)", "TEXT"), ("TEXT", "LONGTEXT"), ("VARBINARY(5)", "BLOB"), ("BINARY(5)", "BLOB"),
        ("DATETIME", "DATETIME(6)"), ("TIMESTAMP", "TIMESTAMP(3)"), ("ENUM", "VARCHAR(9)"), ("YEAR", "SMALLINT"),
    ],
)  # fmt: skip
def test_widening_changes_no_value(old: str, new: str) -> None:
    assert not needs_conversion(col(old), col(new))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("INT", "TINYINT", True), ("TINYINT", "INT", False), ("INT", "INT UNSIGNED", True), ("YEAR", "TINYINT", True),
        ("TINYINT UNSIGNED", "SMALLINT", False), ("BIGINT UNSIGNED", "BIGINT", True),
        ("VARCHAR(40)", "VARCHAR(3)", True), ("VARCHAR(3)", "VARCHAR(40)", False),
        ("VARCHAR(63)", "TINYTEXT(255)", False),
        ("VARCHAR(64)", "TINYTEXT(255)", True), ("TEXT", "VARCHAR(9)", True), ("BLOB(9)", "VARBINARY(8)", True),
        ("DECIMAL(5,2)", "DECIMAL(4,2)", True), ("DECIMAL(5,2)", "DECIMAL(5,2) UNSIGNED", True),
        ("BIT(9)", "BIT(8)", True),
        ("DOUBLE", "DOUBLE UNSIGNED", True), ("DOUBLE", "DOUBLE", False), ("DATETIME", "DATETIME(3)", False),
    ],
)  # fmt: skip
def test_a_narrower_type_may_refuse_values(old: str, new: str, expected: bool) -> None:
    assert narrows(col(old), col(new)) == expected


def test_the_zone_matters_for_timestamp_and_any_other_type() -> None:
    assert zone_matters(col("TIMESTAMP"), col("BIGINT"))
    assert zone_matters(col("DATE"), col("TIMESTAMP"))
    assert not zone_matters(col("TIMESTAMP(6)"), col("TIMESTAMP"))
    assert not zone_matters(col("DATETIME"), col("DATE"))


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_a_column_that_stays_as_it_is_needs_no_conversion(kind: str) -> None:
    column = Column("c", kind, precision=5)
    assert not needs_conversion(column, column)


@given(st.lists(st.none() | st.integers(-(2**31), 2**31 - 1)))
def test_integers_survive_text_and_decimal_and_back(numbers: list[int | None]) -> None:
    array = pa.array(numbers, pa.int32())
    for kind in ("VARCHAR(20)", "DECIMAL(20,4)", "DECIMAL(60,4)", "DOUBLE", "VARBINARY(20)"):
        there, _ = convert(array, col("INT"), col(kind))
        back, _ = convert(there, col(kind), col("INT"))
        assert back.equals(array)


@given(st.lists(st.none() | st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31))))
def test_moments_survive_text_and_back(moments: list[datetime | None]) -> None:
    array = pa.array(moments, pa.timestamp("us"))
    there, _ = convert(array, col("DATETIME(6)"), col("VARCHAR(30)"))
    back, _ = convert(there, col("VARCHAR(30)"), col("DATETIME(6)"))
    assert back.equals(array)
    assert values(there, col("DATETIME(6)")).array.equals(array)


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)))
def test_doubles_survive_text_and_back(numbers: list[float | None]) -> None:
    array = pa.array(numbers, pa.float64())
    there, _ = convert(array, col("DOUBLE"), col("TEXT"))
    back, _ = convert(there, col("TEXT"), col("DOUBLE"))
    assert back.to_pylist() == numbers


def test_an_array_of_nulls_of_every_type_becomes_nulls_of_every_type() -> None:
    for old in TYPES:
        for new in TYPES:
            if "NULL" not in (old, new):
                nulls = pa.nulls(2, arrow_type(Column("c", old, precision=5)))
                assert convert(nulls, Column("c", old, precision=5), Column("c", new, precision=5))[0].null_count == 2


def test_a_default_fills_as_many_rows_as_are_asked_for() -> None:
    assert default_array(col("INT"), "7", 3).to_pylist() == [7, 7, 7]
    assert default_array(col("INT"), None, 2).to_pylist() == [None, None]
    assert default_array(col("INT"), "7", 0).to_pylist() == []
    assert default_array(col("DATE"), "0000-00-00", 1).to_pylist() == [None]
    assert default_array(col("BINARY(2)"), b"\xff\x00", 1).to_pylist() == [b"\xff\x00"]


def test_a_default_that_does_not_fit_holds_the_table() -> None:
    with pytest.raises(TableHeld, match="default"):
        default_array(col("INT"), "x", 1)
