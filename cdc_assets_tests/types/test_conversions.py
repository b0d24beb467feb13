"""MySQL's conversions of stored values when a column changes its type."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.decoding.upgrade import default_array
from cdc_assets.errors import TableHeld
from cdc_assets.model.schema import Column
from cdc_assets.types.conversions import convert, needs_conversion
from cdc_assets.types.mysql_types import TYPES, arrow_type, values


def col(text: str, elems: tuple[str, ...] | None = None) -> Column:
    """`DECIMAL(10,2) UNSIGNED` -> Column."""
    kind, _, rest = text.removesuffix(" UNSIGNED").partition("(")
    sizes = [int(size) for size in rest.rstrip(")").split(",") if size]
    unsigned = text.endswith(" UNSIGNED")
    if kind in ("DATETIME", "TIMESTAMP", "TIME"):
        return Column("c", kind, unsigned, scale=sizes[0] if sizes else None)
    return Column("c", kind, unsigned, sizes[0] if sizes else None, sizes[1] if len(sizes) > 1 else None, elems=elems)


def turned(value: Any, old: Column, new: Column, timezone: str = "UTC") -> Any:
    array, _ = convert(pa.array([value, None], arrow_type(old)), old, new, timezone)
    assert array.type == arrow_type(new)
    assert array[1].as_py() is None
    return array[0].as_py()


UTC = timezone.utc
NOON = datetime(2020, 2, 29, 12, 30, 45, 678900)

CASES: list[tuple[str, Any, str, Any]] = [
    # integers
    ("INT", -5, "VARCHAR(9)", "-5"),
    ("INT", 5, "BIGINT UNSIGNED", Decimal(5)),
    ("BIGINT UNSIGNED", Decimal(2**63 - 1), "BIGINT", 2**63 - 1),
    ("BIGINT UNSIGNED", Decimal(2**64 - 1), "VARCHAR(20)", "18446744073709551615"),
    ("BIGINT", 7, "INT", 7),
    ("INT", 7, "DECIMAL(5,2)", Decimal("7.00")),
    ("INT", -7, "DOUBLE", -7.0),
    ("INT", 70, "YEAR", 1970),
    ("INT", 69, "YEAR", 2069),
    ("INT", 0, "YEAR", 0),
    ("INT", 1999, "YEAR", 1999),
    ("YEAR", 2020, "INT", 2020),
    ("YEAR", 0, "CHAR(4)", "0000"),
    ("INT", 20200229, "DATE", date(2020, 2, 29)),
    ("INT", 200229, "DATE", date(2020, 2, 29)),
    ("BIGINT", 20200229123045, "DATETIME", datetime(2020, 2, 29, 12, 30, 45)),
    ("INT", 0, "DATE", None),
    ("INT", 123045, "TIME", "12:30:45"),
    ("INT", 5, "BIT(8)", 5),
    ("INT", 1, "BIT(1)", True),
    ("BIT(1)", True, "INT", 1),
    ("BIT(1)", True, "BIT(8)", 1),
    ("BIT(16)", 0x4142, "VARCHAR(2)", "AB"),
    ("BIT(16)", 0x41FF, "VARBINARY(2)", b"A\xff"),
    ("TINYINT(1)", 1, "JSON", "1"),
    # decimals: half away from zero
    ("DECIMAL(5,2)", Decimal("2.50"), "INT", 3),
    ("DECIMAL(5,2)", Decimal("-2.50"), "INT", -3),
    ("DECIMAL(5,2)", Decimal("1.25"), "DECIMAL(5,1)", Decimal("1.3")),
    ("DECIMAL(5,2)", Decimal("-1.25"), "DECIMAL(5,1)", Decimal("-1.3")),
    ("DECIMAL(5,2)", Decimal("1.25"), "DECIMAL(9,4)", Decimal("1.2500")),
    ("DECIMAL(5,2)", Decimal("0.10"), "VARCHAR(9)", "0.10"),
    ("DECIMAL(20,10)", Decimal("0.0000000001"), "VARCHAR(20)", "0.0000000001"),
    ("DECIMAL(5,2)", Decimal("1.20"), "DECIMAL(50,3)", "1.200"),
    ("DECIMAL(50,3)", "-1.205", "DECIMAL(9,2)", Decimal("-1.21")),
    ("DECIMAL(5,2)", Decimal("0.10"), "DOUBLE", 0.1),
    # floats: half to even into integers, shortest digits into text
    ("DOUBLE", 2.5, "INT", 2),
    ("DOUBLE", 3.5, "INT", 4),
    ("DOUBLE", -2.5, "INT", -2),
    ("DOUBLE", 0.1, "VARCHAR(9)", "0.1"),
    ("DOUBLE", 1e15, "VARCHAR(20)", "1000000000000000"),
    ("DOUBLE", 1.0, "VARCHAR(9)", "1"),
    ("DOUBLE", 1.005, "DECIMAL(5,2)", Decimal("1.01")),
    ("FLOAT", 0.1, "VARCHAR(9)", "0.1"),
    ("FLOAT", 0.1, "DECIMAL(5,3)", Decimal("0.100")),
    ("FLOAT", 0.5, "DOUBLE", 0.5),
    # text
    ("VARCHAR(9)", "-12", "INT", -12),
    ("VARCHAR(9)", "12.5", "INT", 13),
    ("VARCHAR(9)", " 7 ", "INT", 7),
    ("VARCHAR(9)", "1e3", "DOUBLE", 1000.0),
    ("VARCHAR(9)", "1.005", "DECIMAL(5,2)", Decimal("1.01")),
    ("VARCHAR(9)", "a  ", "CHAR(9)", "a"),
    ("CHAR(9)", "a", "VARCHAR(9)", "a"),
    ("VARCHAR(9)", "é", "VARBINARY(9)", "é".encode()),
    ("VARBINARY(9)", "é".encode(), "VARCHAR(9)", "é"),
    ("VARBINARY(9)", b"a", "BINARY(3)", b"a\0\0"),
    ("BINARY(2)", b"a\0", "BINARY(4)", b"a\0\0\0"),
    ("VARCHAR(30)", "2020-02-29", "DATE", date(2020, 2, 29)),
    ("VARCHAR(30)", "2020/2/9", "DATE", date(2020, 2, 9)),
    ("VARCHAR(30)", "2020-02-29 12:30:45", "DATE", date(2020, 2, 29)),
    ("VARCHAR(30)", "20200229", "DATE", date(2020, 2, 29)),
    ("VARCHAR(30)", "2020-02-29T12:30:45.6789", "DATETIME(3)", datetime(2020, 2, 29, 12, 30, 45, 679000)),
    ("VARCHAR(30)", "0000-00-00", "DATE", None),
    ("VARCHAR(30)", "70-01-02", "DATE", date(1970, 1, 2)),
    ("VARCHAR(30)", "12:30:45.5", "TIME", "12:30:46"),
    ("VARCHAR(30)", "-838:59:59", "TIME", "-838:59:59"),
    ("VARCHAR(30)", "1 02:03:04", "TIME", "26:03:04"),
    ("VARCHAR(30)", "12:30", "TIME", "12:30:00"),
    ("VARCHAR(30)", '{"b":1.50,  "a":[true,null]}', "JSON", '{"a": [true, null], "b": 1.50}'),
    ("JSON", '{"a": 1}', "VARCHAR(30)", '{"a": 1}'),
    ("VARCHAR(30)", "[1, 2.5]", "VECTOR", [1.0, 2.5]),
    ("VECTOR", [1.0, 2.5], "VARCHAR(30)", "[1,2.5]"),
    # times
    ("DATE", date(2020, 2, 29), "VARCHAR(30)", "2020-02-29"),
    ("DATE", date(2020, 2, 29), "DATETIME", datetime(2020, 2, 29)),
    ("DATE", date(2020, 2, 29), "TIMESTAMP", datetime(2020, 2, 29, tzinfo=UTC)),
    ("DATE", date(2020, 2, 29), "INT", 20200229),
    ("DATE", date(2020, 2, 29), "YEAR", 2020),
    ("DATETIME(6)", NOON, "DATE", date(2020, 2, 29)),
    ("DATETIME(6)", NOON, "DATETIME", NOON.replace(second=46, microsecond=0)),
    ("DATETIME(6)", NOON, "DATETIME(3)", NOON.replace(microsecond=679000)),
    ("DATETIME(6)", datetime(2020, 2, 29, 12, 30, 59, 999999), "DATETIME", datetime(2020, 2, 29, 12, 31)),
    ("DATETIME(6)", NOON, "VARCHAR(30)", "2020-02-29 12:30:45.678900"),
    ("DATETIME", NOON.replace(microsecond=0), "VARCHAR(30)", "2020-02-29 12:30:45"),
    ("DATETIME(6)", NOON, "TIME(2)", "12:30:45.68"),
    ("DATETIME", NOON.replace(microsecond=0), "BIGINT", 20200229123045),
    ("DATETIME(6)", NOON, "BIGINT", 20200229123046),
    ("DATETIME(6)", NOON, "DECIMAL(20,3)", Decimal("20200229123045.679")),
    ("TIME(3)", "-01:02:03.500", "TIME", "-01:02:04"),
    ("TIME", "01:02:03", "TIME(3)", "01:02:03.000"),
    ("TIME", "01:02:03", "VARCHAR(9)", "01:02:03"),
    ("TIME", "-01:02:03", "INT", -10203),
    ("YEAR", 2020, "VARCHAR(9)", "2020"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "value", "new", "expected"), CASES, ids=[f"{o}-{v!r}-{n}" for o, v, n, _ in CASES])
def test_a_value_becomes_what_mysql_makes_of_it(old: str, value: Any, new: str, expected: Any) -> None:
    assert turned(value, col(old), col(new)) == expected


MEMBERS = [
    (col("ENUM", ("x", "y")), "y", col("INT"), 2),
    (col("INT"), 2, col("ENUM", ("x", "y")), "y"),
    (col("ENUM", ("x", "y")), "y", col("VARCHAR(9)"), "y"),
    (col("VARCHAR(9)"), "Y", col("ENUM", ("x", "y")), "y"),
    (col("VARCHAR(9)"), "2", col("ENUM", ("x", "y")), "y"),
    (col("ENUM", ("x", "y")), "y", col("ENUM", ("y", "x", "z")), "y"),
    (col("SET", ("x", "y")), "x,y", col("SET", ("y", "x")), "y,x"),
    (col("SET", ("x", "y", "z")), "x,z", col("INT"), 5),
    (col("INT"), 5, col("SET", ("x", "y", "z")), "x,z"),
    (col("VARCHAR(9)"), "z,x", col("SET", ("x", "y", "z")), "x,z"),
    (col("SET", ("x",)), "", col("VARCHAR(9)"), ""),
    (col("VARCHAR(9)"), "y", col("ENUM"), "y"),
]


@pytest.mark.parametrize(("old", "value", "new", "expected"), MEMBERS)
def test_members_go_by_name_and_number(old: Column, value: Any, new: Column, expected: Any) -> None:
    assert turned(value, old, new) == expected


def test_instants_become_wall_clocks_in_the_zone_of_the_ddl() -> None:
    instant = datetime(2020, 1, 1, 0, 0, tzinfo=UTC)
    assert turned(instant, col("TIMESTAMP"), col("DATETIME")) == datetime(2020, 1, 1)
    assert turned(instant, col("TIMESTAMP"), col("DATETIME"), "Asia/Shanghai") == datetime(2020, 1, 1, 8)
    assert turned(datetime(2020, 1, 1, 8), col("DATETIME"), col("TIMESTAMP"), "+08:00") == instant
    assert turned(instant, col("TIMESTAMP"), col("VARCHAR(30)"), "-01:30") == "2019-12-31 22:30:00"


@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        ("VARCHAR(9)", "abc", "INT"),
        ("VARCHAR(9)", "2020-02-30", "DATE"),
        ("BIGINT", 2**40, "INT"),
        ("VARBINARY(9)", b"\xff", "VARCHAR(9)"),
    ],
)
def test_a_value_that_the_source_cannot_have_held_holds_the_table(old: str, value: Any, new: str) -> None:
    with pytest.raises(TableHeld, match=r'column "c"'):
        turned(value, col(old), col(new))


def test_what_only_the_source_can_know_holds_the_table() -> None:
    with pytest.raises(TableHeld, match="members"):
        turned("y", col("ENUM"), col("INT"))
    with pytest.raises(TableHeld, match="day on which the DDL ran"):
        turned("01:02:03", col("TIME"), col("DATETIME"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("INT", "BIGINT"), ("TINYINT", "INT"), ("INT", "INT UNSIGNED"), ("FLOAT", "DOUBLE"), ("BIT(3)", "BIT(9)"),
        ("DECIMAL(5,2)", "DECIMAL(9,2)"), ("DECIMAL(40,2)", "DECIMAL(50,2)"), ("VARCHAR(5)", "VARCHAR(9)"),
        ("CHAR(5)", "TEXT"), ("TEXT", "LONGTEXT"), ("VARBINARY(5)", "BLOB"), ("BINARY(5)", "BLOB"),
        ("DATETIME", "DATETIME(6)"), ("TIMESTAMP", "TIMESTAMP(3)"), ("ENUM", "VARCHAR(9)"),
    ],
)  # fmt: skip
def test_widening_changes_no_value(old: str, new: str) -> None:
    assert not needs_conversion(col(old), col(new))


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
