"""Keys that are equal by their collation and not byte for byte: does one change its letters, or are they two rows?

A cluster with new collations takes such keys for one, so one of them has left when the other enters: an UPDATE that
changes a key's letters is a delete and an insert. One without them has two rows, of which one would be lost here.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from cdc_assets.formats import OP, Op
from cdc_assets.model.reports import AlikeKeys

__all__ = ["example_of", "settle_alike"]


def settle_alike(
    frame: pl.DataFrame, last: pl.DataFrame, key: Sequence[str], by: Sequence[str]
) -> tuple[pl.DataFrame, AlikeKeys]:
    """Return the `last` row of each key with its OP settled, and how many keys met a living one that is spelled else.

    `frame` has all rows in order; `by` are the columns of the key in its collation's normal form. The OP of a row that
    enters becomes INSERT where this very key is new, and UPDATE where it, or one that it replaces, was there before, or
    where it is counted already.
    """
    if len(last) == len(frame):
        return last, AlikeKeys()
    fresh = frame.unique(subset=key, keep="first").filter(pl.col(OP) == int(Op.INSERT)).select(key)
    last = last.join(fresh.with_columns(_cdc_fresh=True), on=key, how="left", nulls_equal=True)
    spellings = frame.select(list(dict.fromkeys([*key, *by]))).unique()
    several = spellings.group_by(by).len().filter(pl.col("len") > 1).select(by)
    told = _told(frame.join(several, on=by, how="semi", nulls_equal=True, maintain_order="left"), key, by)
    last = last.join(told, on="_cdc_row", how="left")
    known = pl.any_horizontal(pl.col("_cdc_fresh").is_null(), "_cdc_left", "_cdc_beside")  # null is no reason
    entering = pl.when(known).then(int(Op.UPDATE)).otherwise(int(Op.INSERT))
    ops = pl.when(pl.col(OP) > 0).then(entering).otherwise(pl.col(OP)).cast(pl.Int8)
    met = last.filter("_cdc_beside")
    found = AlikeKeys(len(met), example_of(met.select(key).row(0)) if len(met) else "")
    return last.with_columns(ops.alias(OP)), found


def example_of(values: Sequence[object]) -> str:
    """Return a key's values as they are shown to a person."""
    return ", ".join(str(value) if isinstance(value, int) else f'"{value}"' for value in values)


def _told(frame: pl.DataFrame, key: Sequence[str], by: Sequence[str]) -> pl.DataFrame:
    """Tell by the last row of a key in several spellings whether another one left, and whether another one lives.

    An UPDATE that does not tell the row before it may have replaced the other spelling, which lives no more then.
    """
    mine = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).last().over(by)) for name in key)
    frame = frame.with_columns(
        mine.alias("_cdc_mine"), (pl.struct(key).is_last_distinct() & (pl.col(OP) > 0)).alias("_cdc_living")
    )
    others_live = (~pl.col("_cdc_mine") & pl.col("_cdc_living")).any()
    replaced = (pl.col("_cdc_mine") & (pl.col(OP) == int(Op.UPDATE))).any()
    return (
        frame.group_by(by)
        .agg(
            pl.col("_cdc_row").last(),
            (~pl.col("_cdc_mine") & (pl.col(OP) < 0)).any().alias("_cdc_left"),
            (others_live & ~replaced).alias("_cdc_beside"),
        )
        .select("_cdc_row", "_cdc_left", "_cdc_beside")
    )
