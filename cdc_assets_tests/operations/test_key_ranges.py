"""A table in ranges of its key: each value is in one range, and what is known is not asked for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.features.verification.operations_ranges import EqualRange, RangePlan, plan_ranges
from cdc_assets.features.verification.operations_rows import borders_of
from cdc_assets.model.dumps import DumpFile, DumpTable
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.types.mysql_types import arrow_type

ID = Column("id", "INT", nullable=False)
FILE = DumpFile("shop.t.1.rows", TableId("shop", "t"), "rows", "", "1", 9, query="q", condition="c", ordered_by="id")
TABLE = DumpTable(TableId("shop", "t"), TableSchema((ID,), ("id",)), (FILE,), "")


def planned(borders: pl.Series, equal: Sequence[EqualRange] = (), rows: int = 0) -> RangePlan:
    plan = plan_ranges(borders, ID, TABLE, "id", equal, rows)
    assert plan is not None
    return plan


def asked(plan: RangePlan) -> list[tuple[str | None, str | None]]:
    return [plan.bounds(ranges) for ranges in plan.open_ranges]


def is_in(value: int, bounds: tuple[str | None, str | None]) -> bool:
    low, high = bounds
    return (low is None or int(low) <= value) and (high is None or value < int(high))


@settings(max_examples=15)
@given(st.lists(st.integers(-500, 500), max_size=6, unique=True), st.integers(0, 10**8), st.data())
def test_every_value_is_asked_for_once_unless_it_is_known(ends: list[int], rows: int, data: st.DataObject) -> None:
    texts = [None, *map(str, sorted(ends)), None]
    intervals = [interval for interval in pairwise(texts) if data.draw(st.booleans())]
    equal = [EqualRange(*interval, at, 5, "", "") for at, interval in enumerate(intervals)]
    plan = planned(pl.Series(range(-200, 200, 3)), equal, rows)
    for value in [*range(-510, 510, 7), *ends]:
        known = any(is_in(value, interval) for interval in intervals)
        assert sum(is_in(value, interval) for interval in asked(plan)) == (not known)
        place = int(plan.borders.search_sorted(value, side="right"))
        assert (place in plan.equal) == known
    assert sum(plan.earlier.values()) == 5 * len(intervals)


@pytest.mark.parametrize(("rows", "questions"), [(100, 64), (5_000_000, 125), (10**9, 512)])
def test_a_server_is_asked_more_often_of_more_rows(rows: int, questions: int) -> None:
    assert questions / 2 < len(planned(pl.Series(range(1023)), (), rows).open_ranges) <= questions


def test_days_and_times_are_borders_as_servers_print_them() -> None:
    days = planned(pl.Series([date(2025, 1, 1) + timedelta(days) for days in range(70)]))
    assert asked(days)[0] == (None, "2025-01-02")
    assert asked(days)[1][0] == "2025-01-02"
    times = planned(pl.Series([datetime(2025, 1, 1, 0, 0, second // 2, second % 2) for second in range(63)]))
    assert asked(times)[1][0] == "2025-01-01 00:00:00.000000"
    (_, conditions), *_ = list(times.files(TABLE, times.open_ranges))[1:]
    assert [(condition.column, condition.operator) for condition in conditions] == [("id", ">="), ("id", "<")]


def test_an_unsigned_key_is_cut_over_all_of_its_numbers() -> None:
    column = Column("id", "BIGINT", unsigned=True, nullable=False)
    values = [number << 56 for number in range(256)]
    borders = borders_of([pa.chunked_array([pa.array(map(Decimal, values), arrow_type(column))])])
    low, high = values[200], values[220]
    plan = plan_ranges(borders, column, TABLE, "id", [EqualRange(str(low), str(high), 7, 5, "", "")], 0)
    assert plan is not None
    for value in values:
        assert sum(is_in(value, interval) for interval in asked(plan)) == (not low <= value < high)
    signed = Column("id", "DECIMAL", precision=20, scale=0, nullable=False)
    assert plan_ranges(borders, signed, TABLE, "id", (), 0) is None


def test_a_table_is_not_cut_whose_values_a_server_may_compare_in_another_way() -> None:
    borders = pl.Series(range(100))
    assert plan_ranges(borders.cast(pl.String), ID, TABLE, "id", (), 0) is None
    assert plan_ranges(borders.cast(pl.Float64), ID, TABLE, "id", (), 0) is None
    assert plan_ranges(borders, Column("id", "INT"), TABLE, "id", (), 0) is None
    assert plan_ranges(borders, ID, TABLE, "another", (), 0) is None
    assert plan_ranges(borders[:50], ID, TABLE, "id", (), 0) is None
