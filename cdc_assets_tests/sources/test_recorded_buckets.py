"""Recorded buckets are read to the last file, and their contents compare with what is only close."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets_tests.cases import Case, canonical, cases, differences


@pytest.mark.parametrize("case", cases(), ids=str)
def test_recorded_buckets_are_read_to_the_last_file(case: Case) -> None:
    for config in case.configs:
        for bucket in sorted(config.path.glob("bucket*")):
            listing = config.settings(bucket).open_source().listing()
            assert (listing.problems, listing.warnings) == ({}, ()), bucket
            assert set(listing.ignored) <= {"unfinished upload (.tmp)"}, bucket
            assert sum(map(len, (listing.data_files, listing.schema_files, listing.index_files))) == (
                sum(path.is_file() for path in bucket.rglob("*")) - 1 - sum(listing.ignored.values())
            )
            separators = {_separator(file.date) for file in listing.data_files}
            assert separators <= {config.options.date_separator}, bucket


def _separator(date: str) -> str:
    return ("none", "year", "month", "day")[date.count("-") + bool(date)]


@pytest.mark.parametrize("case", cases(), ids=str)
def test_recorded_contents_equal_themselves_in_any_order_and_nothing_less(case: Case) -> None:
    for table in case.expected().values():
        names = [column["name"] for column in table.stored]
        rows = pa.table({name: pa.array([row[name] for row in table.rows[::-1]], pa.string()) for name in names})
        assert differences(table, rows) == []
        assert differences(table, rows.append_column("_cdc_commit_ts", rows.column(0))) == []
        if table.rows:
            assert differences(table, rows.slice(1)) != []
            assert differences(table, pa.concat_tables([rows, rows.slice(0, 1)])) != []
        if len(names) > 1:
            assert differences(table, rows.select(names[::-1])) != []


@pytest.mark.parametrize(
    ("kind", "recorded", "lake"),
    [
        ("tinyint(1)", "1", 1),
        ("int(8) unsigned zerofill", "00000042", 42),
        ("bigint(20) unsigned", "18446744073709551615", Decimal(2**64 - 1)),
        ("year(4)", "0000", 0),
        ("decimal(10,2)", "-0.10", Decimal("-0.10")),
        ("decimal(38,30)", "0.000000000000000000000000000001", Decimal("1E-30")),
        ("decimal(65,30)", "9.000000000000000000000000000001", "9.000000000000000000000000000001"),
        ("float", "123456.7", 123456.703125),
        ("double", "-0.00000000025", -2.5e-10),
        ("bit(1)", "1", True),
        ("bit(17)", "1FFFF", 131071),
        ("bit(64)", "FFFFFFFFFFFFFFFF", Decimal(2**64 - 1)),
        ("binary(4)", "41000000", b"A\0\0\0"),
        ("varchar(5)", " a ", " a "),
        ("time(2)", "-838:59:59.00", "-838:59:59.00"),
        ("date", "0001-01-01", dt.date(1, 1, 1)),
        ("date", "2020-00-00", None),
        ("datetime(2)", "2020-01-00 10:00:00.50", None),
        ("datetime(2)", "2020-01-02 10:00:00.50", dt.datetime(2020, 1, 2, 10, 0, 0, 500000)),
        ("timestamp", "2020-01-02 10:00:00", dt.datetime(2020, 1, 2, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))),
        ("vector(3)", "[1,0.1,-2]", [1.0, 0.10000000149011612, -2.0]),
        ("json", '{"k": [1, 2]}', '{"k": [1, 2]}'),
        ("set('x','y')", "x,y", "x,y"),
    ],
)
def test_a_recorded_text_and_the_lakes_value_are_the_same(kind: str, recorded: str, lake: Any) -> None:
    column = {"name": "c", "type": kind}
    assert canonical(recorded, column) == canonical(lake, column)


@pytest.mark.parametrize(
    ("kind", "recorded", "lake"),
    [
        ("decimal(10,2)", "1.50", Decimal("1.5")),
        ("date", "2020-01-02", None),
        ("varchar(5)", "", None),
        ("json", "null", None),
        ("datetime", "2020-01-02 10:00:00", dt.datetime(2020, 1, 2, 10, tzinfo=dt.timezone.utc)),
        ("json", '{"k":1}', '{"k": 1}'),
    ],
)
def test_what_is_only_close_is_not_the_same(kind: str, recorded: str, lake: Any) -> None:
    column = {"name": "c", "type": kind}
    assert canonical(recorded, column) != canonical(lake, column)
