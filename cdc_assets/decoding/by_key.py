"""Rows of tables with a key, by their keys as the collation of each column compares."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding.buckets import bucket_of
from cdc_assets.model.schema import TableSchema
from cdc_assets.types.collations import is_plain, normal_form

__all__ = ["bounds", "of_keys", "split", "with_key"]


def with_key(changes: pa.Table, schema: TableSchema, besides: tuple[str, ...]) -> tuple[pl.DataFrame, list[str]]:
    """The key's columns in their collation's normal form, and some others, with the names of the former."""
    frame = pl.from_arrow(changes.select([*besides, *schema.key]))
    assert isinstance(frame, pl.DataFrame)
    by = list(schema.key)
    for position, name in enumerate(schema.key):
        collation = schema.column(name).compares_by
        if collation and not is_plain(collation) and pa.types.is_string(changes.schema.field(name).type):
            by[position] = f"_cdc_key_{position}"
            normal = normal_form(changes.column(name).combine_chunks(), collation)
            frame = frame.with_columns(pl.Series(by[position], normal))
    return frame, by


def split(changes: pa.Table, schema: TableSchema, buckets: int) -> list[pa.Table]:
    """Cut changes by a hash of their key, so that all of one key are in the same bucket, whoever splits them.

    Keys that are equal by their collation are so here.
    """
    if not changes.num_rows:
        return [changes] * buckets
    hashed = bucket_of(*with_key(changes, schema, ()), buckets)
    rows = hashed.arg_sort()
    bounds = hashed.gather(rows).search_sorted(pl.Series(range(buckets + 1), dtype=hashed.dtype), side="left").to_list()
    places = rows.to_arrow()
    return [changes.take(places[low:high]) for low, high in pairwise(bounds)]


def bounds(changes: pa.Table, schema: TableSchema) -> dict[str, tuple[int, int]]:
    """Return the lowest and highest value of each key column of integers."""
    found: dict[str, tuple[int, int]] = {}
    for name in schema.key:
        array = changes.column(name)
        if pa.types.is_integer(array.type) and array.null_count == 0 and len(array):
            both = pc.min_max(array).as_py()
            found[name] = (both["min"], both["max"])
    return found


def of_keys(changes: pa.Table, keys: pa.Table, schema: TableSchema) -> pa.Table:
    """Return the changes whose key is among `keys`, as the collation of each column compares."""
    (mine, by), (wanted, _) = with_key(changes, schema, ()), with_key(keys, schema, ())
    kept = mine.with_row_index("_cdc_row").join(wanted, on=by, how="semi", nulls_equal=True)
    return changes.take(kept.get_column("_cdc_row").to_arrow())
