"""Rows by a hash of some columns: how tasks share a window, so that what is reduced together meets in one task."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

__all__ = ["bucket_of", "hash_probe"]

_SEED = 7


def bucket_of(frame: pl.DataFrame, by: Sequence[str], buckets: int) -> pl.Series:
    """Return the number of each row's bucket; it is the same wherever `hash_probe` is."""
    return frame.select((pl.struct(by).hash(_SEED) % buckets).alias("bucket")).get_column("bucket")


def hash_probe() -> int:
    """Return this machine's hash of a known value: machines that disagree must not share a window."""
    known = pl.DataFrame({"a": [7, None], "b": ["key", ""]})
    first, second = known.select(pl.struct("a", "b").hash(_SEED)).to_series().to_list()
    return int(first) ^ (int(second) >> 1)
