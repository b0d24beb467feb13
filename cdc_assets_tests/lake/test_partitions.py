"""Partitions in Arrow have the values that Iceberg gives them, and rows of one partition are written together."""

from __future__ import annotations

import json
import random
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import transforms as iceberg
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from cdc_assets.lake.staging.partitions import partitions, sorted_rows, transformed
from cdc_assets.model.layout import Transform

_EPOCH = datetime(1970, 1, 1)
_RNG = random.Random(7)
_MOMENTS = [_EPOCH + timedelta(microseconds=_RNG.randrange(-(10**16), 10**16)) for _ in range(200)]
_MOMENTS += [_EPOCH, _EPOCH - timedelta(microseconds=1), datetime(1969, 12, 31, 23), datetime(1, 1, 1)]
_WHOLE = [0, 1, -1, 34, 2**31 - 1, -(2**31), *(_RNG.randrange(-(2**31), 2**31) for _ in range(200))]
COLUMNS: dict[str, tuple[pa.DataType, IcebergType, list[Any]]] = {
    "int": (pa.int32(), IntegerType(), _WHOLE),
    "long": (pa.int64(), LongType(), [*_WHOLE, 2**63 - 1, -(2**63), *(n * 2**31 for n in _WHOLE)]),
    "decimal": (pa.decimal128(9, 2), DecimalType(9, 2), [Decimal(n).scaleb(-2) for n in (1420, -7, 0, 99, 10**8)]),
    "string": (pa.string(), StringType(), ["iceberg", "", "日本語のテキスト", "a" * 40, "\U0001f600x"]),
    "binary": (pa.binary(), BinaryType(), [b"\x00\x01", b"", b"iceberg"]),
    "date": (pa.date32(), DateType(), [moment.date() for moment in _MOMENTS]),
    "timestamp": (pa.timestamp("us"), TimestampType(), _MOMENTS),
    "timestamptz": (pa.timestamp("us", "UTC"), TimestamptzType(), _MOMENTS),
}
CASES = [
    *((kind, "bucket", 16) for kind in COLUMNS),
    *((kind, "truncate", 10) for kind in ("int", "long", "decimal", "string")),
    *((kind, name, 0) for kind in ("date", "timestamp", "timestamptz") for name in ("year", "month", "day")),
    *((kind, "hour", 0) for kind in ("timestamp", "timestamptz")),
]


def _stored(value: Any) -> Any:
    """Return a value as Iceberg stores it: days, and microseconds, since 1970."""
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    return (value - _EPOCH.date()).days if isinstance(value, date) else value


@pytest.mark.parametrize(("kind", "name", "number"), CASES)
def test_a_transform_makes_of_each_value_what_iceberg_makes_of_it(kind: str, name: str, number: int) -> None:
    arrow, of_iceberg, values = COLUMNS[kind]
    if name == "truncate" and kind in ("int", "long"):  # below these Java's numbers begin anew at the other end
        values = [value for value in values if value > -(2**63 if kind == "long" else 2**31) + number]
    given = [value.replace(tzinfo=timezone.utc) for value in values] if kind == "timestamptz" else values
    function = getattr(iceberg, f"{name.title()}Transform")(*([number] if number else [])).transform(of_iceberg)
    column = pa.chunked_array([pa.array([*given, None], arrow), pa.array([], arrow)])
    made = transformed(column, Transform(name, "v", number)).to_pylist()
    expected = [function(_stored(value)) for value in values]
    assert [_stored(value) for value in made] == [*expected, None]


def test_rows_are_in_one_piece_for_each_combination_of_values_null_included() -> None:
    rows = pa.table({"id": range(12), "day": [date(2026, 3, 1 + n % 2) if n % 3 else None for n in range(12)]})
    spec = (Transform("day", "day"), Transform("bucket", "id", 2))
    parts = list(partitions(rows, spec))
    assert len({values for values, _ in parts}) == len(parts) > 4
    assert sorted(row for _, part in parts for row in part.column("id").to_pylist()) == list(range(12))
    for values, part in parts:
        day, bucket = json.loads(values)
        assert {None if value is None else value.isoformat() for value in part.column("day").to_pylist()} == {day}
        assert set(transformed(part.column("id"), spec[1]).to_pylist()) == {bucket}
    assert [values for values, _ in partitions(rows, ())] == [""]
    assert not list(partitions(rows.slice(0, 0), spec))


def test_rows_are_sorted_by_what_transforms_make_of_them_with_null_first() -> None:
    rows = pa.table({"a": ["by", "b", None, "ab", "aa"], "id": [1, 2, 3, 4, 5]})
    order = (Transform("truncate", "a", 1), Transform("identity", "id"))
    assert sorted_rows(rows, order).column("id").to_pylist() == [3, 4, 5, 1, 2]
