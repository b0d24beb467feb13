"""Rows in the order and in the partitions of their table, by Iceberg's transforms, in Arrow. Runs on executors."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.features.kinds.decoding import partition_column
from cdc_assets.model.layout import Transform

_Words = np.ndarray[Any, np.dtype[np.uint32]]

_EPOCH_YEAR = 1970
_HOUR_MICROSECONDS = 3_600_000_000


def history_partition(kind: str) -> tuple[Transform, ...]:
    """Return the partition of tables of a history kind: whether a column is NULL, as a bucket has all other values."""
    column = partition_column(kind)
    return (Transform("bucket", column, 1),) if column else ()


def sorted_rows(rows: pa.Table, order: Sequence[Transform]) -> pa.Table:
    """Return rows in an order, NULL first, as Iceberg has it by default."""
    if not order or rows.num_rows < 2:
        return rows
    columns = {f"k{place}": transformed(rows.column(of.column), of) for place, of in enumerate(order)}
    keys = pl.from_arrow(pa.table(columns))
    assert isinstance(keys, pl.DataFrame)
    places = keys.select(pl.arg_sort_by(*columns, nulls_last=False, maintain_order=True))
    return rows.take(places.to_series().to_arrow())


def partitions(rows: pa.Table, spec: Sequence[Transform]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of each partition, in their order, with its values as a list in JSON; "" without partitions."""
    if not spec or not rows.num_rows:
        yield from [("", rows)] if not spec else []
        return
    codes, values = np.zeros(rows.num_rows, np.int64), list[pa.Array]()
    for transform in spec:
        encoded = transformed(rows.column(transform.column), transform).combine_chunks().dictionary_encode("encode")
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        _, codes = np.unique(codes * max(len(encoded.dictionary), 1) + own, return_inverse=True)
        values.append(encoded)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        first = int(order[start])
        texts = [json_value(encoded[first].as_py()) for encoded in values]
        yield json.dumps(texts), rows if len(starts) == 1 else rows.take(pa.array(order[start:end]))


def json_value(value: Any) -> Any:
    """Return a partition's value as Iceberg writes single values in JSON."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value.isoformat() if isinstance(value, dt.date) else value


def transformed(column: pa.ChunkedArray, transform: Transform) -> pa.ChunkedArray:
    """Return the values that a transform makes of a column; NULL stays NULL."""
    kind = column.type
    match transform.name:
        case "year" | "month":
            years = pc.subtract(pc.year(column), _EPOCH_YEAR)
            if transform.name == "year":
                return years.cast(pa.int32())
            months = pc.add(pc.multiply(years, 12), pc.subtract(pc.month(column), 1))
            return months.cast(pa.int32())
        case "day":
            return column if pa.types.is_date(kind) else pc.floor_temporal(column, unit="day").cast(pa.date32())
        case "hour":
            hours = pc.floor_temporal(column, unit="hour").cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
            return pc.divide(hours, _HOUR_MICROSECONDS).cast(pa.int32())
        case "bucket" if not (pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
            return _by_iceberg(column, transform)
        case "bucket":
            return pa.chunked_array([_buckets(chunk, transform.number) for chunk in column.chunks], pa.int32())
        case "truncate" if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return pc.utf8_slice_codeunits(column, 0, transform.number)
        case "truncate" if pa.types.is_integer(kind):
            return pa.chunked_array([_truncated(chunk, transform.number) for chunk in column.chunks], kind)
        case "truncate":
            return _by_iceberg(column, transform)
        case _:
            return column


def _by_iceberg(column: pa.ChunkedArray, transform: Transform) -> pa.ChunkedArray:
    """Transform each different value by PyIceberg's function."""
    from pyiceberg.io.pyarrow import pyarrow_to_schema
    from pyiceberg.transforms import BucketTransform, TruncateTransform

    field = pa.field("v", column.type, metadata={"PARQUET:field_id": "1"})
    source = pyarrow_to_schema(pa.schema([field])).fields[0].field_type
    is_bucket = transform.name == "bucket"
    of_value: Any = (BucketTransform if is_bucket else TruncateTransform)(transform.number).transform(source)
    encoded = column.combine_chunks().dictionary_encode()
    kind = pa.int32() if is_bucket else column.type
    made = pa.array([of_value(value) for value in encoded.dictionary.to_pylist()], kind)
    return pa.chunked_array([made.take(encoded.indices)])


def _buckets(values: pa.Array, count: int) -> pa.Array:
    """Return the buckets of whole numbers, dates and moments: Murmur3 (32 bits, x86, seed 0) of eight bytes each."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", values.type.tz))
    whole = values.cast(pa.int32()) if pa.types.is_date(values.type) else values
    numbers = pc.fill_null(whole.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).view(np.uint64)
    state = np.zeros(len(numbers), np.uint32)
    for word in ((numbers & np.uint64(0xFFFFFFFF)).astype(np.uint32), (numbers >> np.uint64(32)).astype(np.uint32)):
        state = state ^ (_rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593))
        state = _rotated(state, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    state = state ^ np.uint32(8)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ (state >> np.uint32(shift))) * np.uint32(factor)
    state = state ^ (state >> np.uint32(16))
    buckets = (state & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    return pa.array(buckets.astype(np.int32), mask=pc.is_null(values).to_numpy(zero_copy_only=False))


def _truncated(values: pa.Array, width: int) -> pa.Array:
    """Return whole numbers rounded down to a multiple of the width; below the least one they wrap, as in Java."""
    numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        rounded = numbers - np.mod(numbers, numbers.dtype.type(width))
    return pa.array(rounded, values.type, mask=pc.is_null(values).to_numpy(zero_copy_only=False))


def _rotated(words: _Words, bits: int) -> _Words:
    rotated: _Words = (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
    return rotated
