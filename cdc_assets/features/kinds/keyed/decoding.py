"""Tables with a key: at most one change per key is left of a window, whoever reads it.

Changes that leave columns out are folded (`patches`). Else per key the last position wins; at equal positions images
that enter win over images that leave, and of two copies the one in the later file wins. The result can be reduced
again together with others, so every task reduces its own files first.

Keys may be equal by their collation and not byte for byte: does one change its letters, or are they two rows? A cluster
with new collations takes such keys for one, so one of them has left when the other enters: an UPDATE that changes a
key's letters is a delete and an insert. One without them has two rows, of which one would be lost here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding import FILE
from cdc_assets.decoding.first_images import FIRST_IMAGE, UNNOTED, united
from cdc_assets.decoding.moved import has_moves, resolve_moved_columns
from cdc_assets.decoding.patches import folded
from cdc_assets.decoding.split import TableKind, with_key
from cdc_assets.formats.changes import has_patches, position_column
from cdc_assets.formats.decoded import LINE, OP, UNCHANGED, Op
from cdc_assets.model.reports import AlikeKeys, Report
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows
from cdc_assets.types.frames import exact


class KeyedKind(TableKind):
    """One row per key."""

    NAME = "keyed"
    LANDS = True
    STAGED: ClassVar[Mapping[str, str]] = {UNCHANGED: "array<string>", FIRST_IMAGE: "bigint"}

    def reduce(
        self, changes: pa.Table, schema: TableSchema, table: TableId, files: Sequence[DataFile] = ()
    ) -> tuple[pa.Table, Report]:
        """Keep one row per key: same columns in and out, in no order. The report has the keys that are alike.

        Where the equality of a key is not that of its bytes, a row that enters is an INSERT only if nothing but its own
        key, byte for byte, can have been there before it.
        """
        at, own = position_column(changes), [name for name in (FIRST_IMAGE,) if name in changes.column_names]
        frame, by = with_key(changes, schema, (OP, at, FILE, LINE, *own))
        key = [exact(name) for name in schema.key]
        order = [pl.col(at), pl.col(OP) > 0, pl.col(FILE), pl.col(LINE)]
        frame = frame.with_row_index("_cdc_row").sort(order)
        if own and not has_patches(changes) and key == by:
            first = pl.col(FIRST_IMAGE).fill_null(UNNOTED).min()
            last_images = frame.group_by(by).agg(pl.col("_cdc_row").last(), first).sort("_cdc_row")
            if len(last_images) < changes.num_rows:
                changes = _at_places(changes, last_images.get_column("_cdc_row"))
            images = last_images.get_column(FIRST_IMAGE).to_arrow()
            return changes.set_column(changes.schema.get_field_index(FIRST_IMAGE), FIRST_IMAGE, images), Report()
        if own:
            changes = united(changes, schema)
        if has_patches(changes):
            if has_moves(changes):
                changes = resolve_moved_columns(frame, by, changes, schema)
            reduced, passed = folded(frame, by, changes, schema, table)
            return reduced, Report(passed_over=passed)
        last, alike = frame.unique(subset=by, keep="last", maintain_order=False), AlikeKeys()
        by_bytes = key == by
        if not by_bytes:
            last, alike = _settle_alike(frame, last, key, by)
        reduced = changes if len(last) == changes.num_rows else _at_places(changes, last.get_column("_cdc_row"))
        if not by_bytes:
            ops = last.sort("_cdc_row").get_column(OP).to_arrow()
            reduced = reduced.set_column(reduced.schema.get_field_index(OP), pa.field(OP, pa.int8()), ops)
        return reduced, Report(alike=alike)

    def apart(self, changes: pa.Table, step: ApplyRows, empty: bool) -> tuple[pa.Table, pa.Table]:
        """Return the rows that enter: an empty table has none that leave."""
        enters = pc.greater(changes.column(OP), pa.scalar(0, pa.int8()))
        return changes if pc.all(enters).as_py() else changes.filter(enters), changes.slice(0, 0)


KIND = KeyedKind()


def _at_places(changes: pa.Table, places: pl.Series) -> pa.Table:
    """Return the rows at these places, as they lie: `take` would put the pieces of each column together first."""
    chosen = np.zeros(changes.num_rows, np.bool_)
    chosen[places.to_numpy()] = True
    return changes.filter(pa.array(chosen))


# --- keys that are equal by their collation only ----------------------------------------------------------------------


def _settle_alike(
    frame: pl.DataFrame, last: pl.DataFrame, key: Sequence[str], by: Sequence[str]
) -> tuple[pl.DataFrame, AlikeKeys]:
    """Return the `last` row of each key with its OP settled, and how many keys met a living one in another spelling.

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
    frame = frame.join(several, on=by, how="semi", nulls_equal=True, maintain_order="left")
    key_match = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).last().over(by)) for name in key)
    frame = frame.with_columns(
        key_match.alias("_cdc_mine"), (pl.struct(key).is_last_distinct() & (pl.col(OP) > 0)).alias("_cdc_living")
    )
    others_live = (~pl.col("_cdc_mine") & pl.col("_cdc_living")).any()
    # An UPDATE without the row before it may have replaced the other spelling, which no longer exists then.
    replaced = (pl.col("_cdc_mine") & (pl.col(OP) == int(Op.UPDATE))).any()
    other_spellings = frame.group_by(by).agg(
        pl.col("_cdc_row").last(),
        (~pl.col("_cdc_mine") & (pl.col(OP) < 0)).any().alias("_cdc_left"),
        (others_live & ~replaced).alias("_cdc_beside"),
    )
    last = last.join(other_spellings.select("_cdc_row", "_cdc_left", "_cdc_beside"), on="_cdc_row", how="left")
    stays = pl.any_horizontal(pl.col("_cdc_fresh").is_null(), "_cdc_left", "_cdc_beside")  # null is no reason
    entering = pl.when(stays).then(int(Op.UPDATE)).otherwise(int(Op.INSERT))
    ops = pl.when(pl.col(OP) > 0).then(entering).otherwise(pl.col(OP)).cast(pl.Int8)
    met = last.filter("_cdc_beside")
    alike_keys = AlikeKeys.such_as(len(met), met.select(key).row(0)) if len(met) else AlikeKeys()
    return last.with_columns(ops.alias(OP)), alike_keys
