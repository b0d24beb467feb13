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
        (key_range,) = ranges(column, [value])
        assert (key_range.unit, key_range.low) == (every.unit, key_range.high)
        assert every.low <= key_range.low <= every.high


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
    (file,) = merge_reports([Report(files=(file_report,)) for file_report in chosen], 0).files
    read = [file_report for file_report in chosen if file_report.keys]
    assert file.rows == sum(file_report.rows for file_report in chosen)
    assert file.notes.get(("x", "rule"), 0) == len(read)
    assert file.min_commit_ts == min(
        (ts for file_report in read if (ts := file_report.min_commit_ts) is not None), default=None
    )
    assert file.max_commit_ts == max(
        (ts for file_report in read if (ts := file_report.max_commit_ts) is not None), default=None
    )
    every = [key for file_report in read for key in file_report.keys]
    ends = (
        (min(key_range.low for key_range in every), max(key_range.high for key_range in every))
        if len(every) == count
        else ()
    )
    assert [(key.low, key.high) for key in file.keys] == ([ends] if ends else [])


def test_times_in_a_zone_and_without_one_are_of_two_units() -> None:
    moment = datetime(2025, 6, 1, 12)
    naive, zoned = (ranges(COLUMNS[kind][0], [moment])[0] for kind in ("DATETIME", "TIMESTAMP"))
    assert naive.unit != zoned.unit
