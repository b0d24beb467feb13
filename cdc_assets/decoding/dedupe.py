"""A window's changes -> at most one per key. Pure on Arrow; runs on Spark executors and in tests alike.

Keyed tables: per key the last commit-ts wins; at equal commit-ts images that enter win over images that leave, and of
two copies the one in the later file wins. The result can be reduced again together with others, so every task reduces
its own files first.

Tables without a key are multisets: what remains is how many equal rows enter or leave. Files come at least once, so
the count of a (commit-ts, direction, row) is the maximum over `deliveries`, not their sum. Dispatchers that share a
table add up (`dispatchers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from cdc_assets.decoding import COUNT, DELIVERY, FILE
from cdc_assets.decoding.alike_keys import settle_alike
from cdc_assets.decoding.dispatchers import tell_counts
from cdc_assets.errors import TableHeld
from cdc_assets.formats import COMMIT_TS, LINE, OP, Op
from cdc_assets.model.reports import AlikeKeys
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.types.collations import is_plain, normal_form

__all__ = ["Reduced", "hash_probe", "reduce_changes", "split_by_key"]

_SEED = 7

_META = (OP, COMMIT_TS, LINE, FILE, DELIVERY, COUNT)


class Reduced(NamedTuple):
    """`undecided` counts rows of a table without key that may be rows of two dispatchers, or one that came twice.

    `alike` are keys that met a living one which is equal by their collation only.
    """

    changes: pa.Table
    undecided: int = 0
    alike: AlikeKeys = AlikeKeys()


def reduce_changes(changes: pa.Table, schema: TableSchema, table: TableId, writers: Sequence[int] = ()) -> Reduced:
    """Reduce by the schema's key, or as a multiset where it has none; `writers` has the dispatcher of each FILE.

    Raises TableHeld for a multiset whose changes do not tell the rows that leave.
    """
    if schema.key:
        return _reduce_keyed(changes, schema.key, _collations(schema)) if changes.num_rows else Reduced(changes)
    _refuse_unknown_rows(changes, table)
    return _reduce_multiset(changes, writers)


def _reduce_keyed(changes: pa.Table, key: tuple[str, ...], collations: Mapping[str, str]) -> Reduced:
    """Keep one row per key: same columns in and out, in no particular order.

    `collations` gives the key columns whose equality is not that of their bytes. Where there are such, a row that
    enters is an INSERT only if nothing but its own key, byte for byte, can have been there before it.
    """
    frame, by = _keyed(changes, key, collations, (OP, COMMIT_TS, FILE, LINE))
    order = [pl.col(COMMIT_TS), pl.col(OP) > 0, pl.col(FILE), pl.col(LINE)]
    frame = frame.with_row_index("_cdc_row").sort(order)
    last, alike = frame.unique(subset=by, keep="last", maintain_order=False), AlikeKeys()
    if list(key) != by:
        last, alike = settle_alike(frame, last, key, by)
    last = last.sort("_cdc_row")
    kept = changes if len(last) == changes.num_rows else changes.take(last.get_column("_cdc_row").to_arrow())
    if list(key) != by:
        kept = kept.set_column(kept.schema.get_field_index(OP), pa.field(OP, pa.int8()), last.get_column(OP).to_arrow())
    return Reduced(kept, alike=alike)


def split_by_key(changes: pa.Table, schema: TableSchema, buckets: int) -> list[pa.Table]:
    """Cut changes by a hash of their key, so that all of one key are in the same bucket, whoever splits them.

    Keys that are equal by their collation are so here. The hash is the same wherever `hash_probe` is.
    """
    if not changes.num_rows:
        return [changes] * buckets
    frame, by = _keyed(changes, schema.key, _collations(schema), ())
    hashed = frame.select((pl.struct(by).hash(_SEED) % buckets).alias("bucket")).get_column("bucket")
    rows = hashed.arg_sort()
    bounds = hashed.gather(rows).search_sorted(pl.Series(range(buckets + 1), dtype=hashed.dtype), side="left").to_list()
    places = rows.to_arrow()
    return [changes.take(places[low:high]) for low, high in pairwise(bounds)]


def hash_probe() -> int:
    """Return what this machine's hash makes of a known value: machines that disagree must not share a window."""
    known = pl.DataFrame({"a": [7, None], "b": ["key", ""]})
    first, second = known.select(pl.struct("a", "b").hash(_SEED)).to_series().to_list()
    return int(first) ^ (int(second) >> 1)


def _keyed(
    changes: pa.Table, key: tuple[str, ...], collations: Mapping[str, str], besides: tuple[str, ...]
) -> tuple[pl.DataFrame, list[str]]:
    """The key's columns in their collation's normal form, and some others, with the names of the former."""
    frame = _frame(changes.select([*besides, *key]))
    by = list(key)
    for position, name in enumerate(key):
        collation = collations.get(name, "")
        if collation and not is_plain(collation) and pa.types.is_string(changes.schema.field(name).type):
            by[position] = f"_cdc_key_{position}"
            normal = normal_form(changes.column(name).combine_chunks(), collation)
            frame = frame.with_columns(pl.Series(by[position], normal))
    return frame, by


def _collations(schema: TableSchema) -> dict[str, str]:
    return {column.name: column.compares_by or "" for column in schema.columns if column.name in schema.key}


def _reduce_multiset(changes: pa.Table, writers: Sequence[int]) -> Reduced:
    """Net the rows that enter and leave: one output row per distinct row, with COUNT added, zero counts left out."""
    names = [name for name in changes.column_names if name not in _META]
    row = [f"_cdc_value_{place}" for place in range(len(names))]
    once, undecided = _once(_told(changes, names), [COMMIT_TS, "_cdc_sign", *row], writers)
    net = once.group_by(row).agg(
        (pl.col("n").cast(pl.Int64) * pl.col("_cdc_sign")).sum().alias(COUNT),
        pl.col("_cdc_row").first(),
        pl.col(COMMIT_TS).max().alias("_cdc_last"),
    )
    net = net.filter(pl.col(COUNT) != 0)
    kept = changes.take(net.get_column("_cdc_row").to_arrow())
    last = net.get_column("_cdc_last").to_arrow().cast(pa.int64())
    kept = kept.set_column(kept.schema.get_field_index(COMMIT_TS), pa.field(COMMIT_TS, pa.int64()), last)
    counts = net.get_column(COUNT).to_arrow().cast(pa.int64())
    return Reduced(kept.append_column(pa.field(COUNT, pa.int64()), counts), undecided)


def _told(changes: pa.Table, names: Sequence[str]) -> pl.DataFrame:
    """Each change of each delivery with its count `n`, and where a row like that stands; `names` make a row."""
    frame = _frame(changes).with_row_index("_cdc_row")
    values = [_groupable(frame, name).alias(f"_cdc_value_{place}") for place, name in enumerate(names)]
    frame = frame.with_columns(pl.col(OP).sign().alias("_cdc_sign"), *values)
    by = [DELIVERY, COMMIT_TS, "_cdc_sign", *(f"_cdc_value_{place}" for place in range(len(names)))]
    return frame.group_by(by).agg(pl.len().alias("n"), pl.col("_cdc_row").first(), pl.col(FILE).first())


def _once(told: pl.DataFrame, change: Sequence[str], writers: Sequence[int]) -> tuple[pl.DataFrame, int]:
    """Each change once with its count `n`, and how many copies are undecided."""
    if len(set(writers)) < 2:
        return told.group_by(change).agg(pl.col("n").max(), pl.col("_cdc_row").first()), 0
    numbers = pl.Series("_cdc_writer", writers).gather(told.get_column(FILE))
    each = told.with_columns(numbers).group_by([*change, "_cdc_writer"])
    each_once = each.agg(pl.col("n").max(), pl.col("_cdc_row").first())
    once = each_once.group_by(change).agg(pl.col("_cdc_writer"), pl.col("n"), pl.col("_cdc_row").first())
    counts = np.zeros((len(once), max(writers) + 1), np.int64)
    cells = once.select("_cdc_writer", "n").with_row_index("_cdc_change").explode("_cdc_writer", "n")
    counts[cells.get_column("_cdc_change").to_numpy(), cells.get_column("_cdc_writer").to_numpy()] = cells.get_column(
        "n"
    )
    found = tell_counts(counts, once.get_column(COMMIT_TS).to_numpy())
    return once.with_columns(pl.Series("n", found.counts)), found.undecided


def _refuse_unknown_rows(changes: pa.Table, table: TableId) -> None:
    ops = set(changes.column(OP).unique().to_pylist())
    if not ops & {Op.UPDATE, Op.DELETE_KEY}:
        return
    raise TableHeld(
        f"{table} has no key, and its updates do not tell the row before them, so a changed row cannot be found. "
        "Set output-old-value = true ([sink.csv]) in the changefeed and start it anew, or name the columns that "
        f'identify a row in the setting keys ("{table}").',
        table=str(table),
    )


def _frame(changes: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(changes)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _groupable(frame: pl.DataFrame, name: str) -> pl.Expr:
    if isinstance(frame.schema[name], pl.List):
        return pl.col(name).cast(pl.List(pl.String)).list.join(",", ignore_nulls=False)
    return pl.col(name)
