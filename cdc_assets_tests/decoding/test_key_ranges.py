"""The ranges of a file's keys: a value outside of one is not in the file."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.decoding.split import key_ranges
from cdc_assets.decoding.window import merge_reports
from cdc_assets.model.masks import Mask
from cdc_assets.model.reports import FileStats, KeyRange, Report
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.types.mysql_types import arrow_type

COLUMNS: dict[str, tuple[Column, Any]] = {
    "BIGINT": (Column("id", "BIGINT"), st.integers(-(2**63), 2**63 - 1)),
    "BIGINT UNSIGNED": (Column("id", "BIGINT", unsigned=True), st.integers(0, 2**64 - 1).map(Decimal)),
    "DECIMAL": (Column("id", "DECIMAL", precision=9, scale=2), st.integers(-999, 999).map(lambda n: Decimal(n) / 100)),
    "DATE": (Column("id", "DATE"), st.dates(date(1, 1, 1))),
    "DATETIME": (Column("id", "DATETIME", scale=6), st.datetimes()),
    "TIMESTAMP": (Column("id", "TIMESTAMP"), st.datetimes(timezones=st.just(timezone.utc))),
}


def ranges(column: Column, values: list[Any]) -> tuple[Any, ...]:
    return key_ranges(pa.table({"id": pa.array(values, arrow_type(column))}), TableSchema((column,), ("id",)))


@pytest.mark.parametrize("kind", COLUMNS)
@given(data=st.data())
def test_every_value_is_within_the_range_of_all(kind: str, data: st.DataObject) -> None:
    column, some = COLUMNS[kind]
    values = data.draw(st.lists(some, min_size=1, max_size=9))
    (every,) = ranges(column, values)
    for value in values:
        (one,) = ranges(column, [value])
        assert (one.unit, one.low) == (every.unit, one.high)
        assert every.low <= one.low <= every.high


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (Column("id", "VARCHAR", precision=9), ["a", "b"]),
        (Column("id", "DOUBLE"), [1.5]),
        (Column("id", "BIGINT"), [1, None]),
        (Column("id", "BIGINT"), []),
        (Column("id", "BIGINT", mask=Mask("hash")), [1]),
    ],
)
def test_values_without_an_order_of_numbers_have_no_range(column: Column, values: list[Any]) -> None:
    assert ranges(column, values) == ()


@given(st.permutations(range(3)), st.integers(1, 3))
def test_blocks_of_a_file_are_one_with_no_range_that_one_of_them_does_not_tell(order: list[int], count: int) -> None:
    blocks = [
        FileStats("a", 9, "e", 2, 5, 7, {("x", "rule"): 1}, (KeyRange("id", "number", 1, 2),)),
        FileStats("a", 9, "e", 3, 4, 6, {("x", "rule"): 1}, (KeyRange("id", "number", 8, 9),)),
        FileStats("a", 9, "e", 1, None, None),  # nothing but records that do not fit
    ]
    chosen = [blocks[place] for place in order[:count]]
    (file,) = merge_reports([Report(files=(one,)) for one in chosen], 0).files
    read = [one for one in chosen if one.keys]
    assert file.rows == sum(one.rows for one in chosen)
    assert file.notes.get(("x", "rule"), 0) == len(read)
    assert file.min_commit_ts == min((ts for one in read if (ts := one.min_commit_ts) is not None), default=None)
    assert file.max_commit_ts == max((ts for one in read if (ts := one.max_commit_ts) is not None), default=None)
    every = [key for one in read for key in one.keys]
    ends = (min(one.low for one in every), max(one.high for one in every)) if len(every) == count else ()
    assert [(one.low, one.high) for one in file.keys] == ([ends] if ends else [])


def test_times_in_a_zone_and_without_one_are_of_two_units() -> None:
    moment = datetime(2025, 6, 1, 12)
    naive, zoned = (ranges(COLUMNS[kind][0], [moment])[0] for kind in ("DATETIME", "TIMESTAMP"))
    assert naive.unit != zoned.unit
