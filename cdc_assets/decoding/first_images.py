"""Proof that a table lacks rows: the first change of a key in a window is of a row that the table does not have.

A row that is deleted, or that an update changes, was there before. If the table has all rows of the source, it has the
row, unless a change before it in the window made it. Otherwise the row came without a change in the log, as by a
restore or a physical import, and so did others that have not changed since.

    noted       changes of a window, each with its FIRST_IMAGE
    parted      changes of a part of a window: those of keys with a deleted row are not reduced before all are together
    compared    all changes of a window, with the FIRST_IMAGE of those of a row that the window had deleted
    united      changes with the FIRST_IMAGE of the first change of their key
    unmade      which keys of reduced changes need a row from before the window, as MissingRows
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding import FILE
from cdc_assets.decoding.split import with_key
from cdc_assets.decoding.states import FIRST
from cdc_assets.formats.changes import has_patches, position_column
from cdc_assets.formats.decoded import LINE, OP, UNCHANGED, Op
from cdc_assets.model.progress import MissingRows
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.steps import ApplyRows
from cdc_assets.model.tso import Tso
from cdc_assets.types.frames import exact

FIRST_IMAGE = "_cdc_first_image"
"""Twice the position of the first change of the key in the window, plus one unless the row was there before it.

It is null, or missing, where no change needs a row from before. It is negative for a change of a row that the window
has deleted: whatever the table has, that row came past the log.
"""

UNNOTED = 1
"""Sorts before every position: a change of the key that may be its first one was noted nowhere."""
_SHOWN = 80


def noted(changes: pa.Table, whole_at: Tso) -> pa.Table:
    """Return changes with FIRST_IMAGE, each as if it were the only one.

    A change that leaves columns out has its own rule for a row that is not there (`patches`), and proves nothing. Nor
    does one up to the position at which the table is whole.
    """
    ops = changes.column(OP)
    whole = pc.is_null(changes.column(UNCHANGED)) if has_patches(changes) else pa.scalar(True)
    old = pc.or_(pc.less(ops, pa.scalar(0, pa.int8())), pc.and_(pc.equal(ops, int(Op.UPDATE)), whole))
    at = changes.column(position_column(changes))
    old = pc.and_(old, pc.greater(at, pa.scalar(whole_at, pa.int64())))
    twice = pc.multiply(at, pa.scalar(2, pa.int64()))
    return changes.append_column(FIRST_IMAGE, pc.add(twice, pc.invert(old).cast(pa.int64())))


def parted(changes: pa.Table, schema: TableSchema) -> tuple[pa.Table, pa.Table]:
    """Return the changes of a part of a window that can be reduced, and those of keys of which a row is deleted.

    Another part may have changes between these.
    """
    frame, by = with_key(changes, schema, (OP,))
    has_deleted = frame.select((pl.col(OP) < 0).any().over(by)).to_series().to_arrow()
    return changes.filter(pc.invert(has_deleted)), changes.filter(has_deleted)


def compared(changes: pa.Table, schema: TableSchema) -> pa.Table:
    """Return changes with a negative FIRST_IMAGE for those of a row that the change of its key before them deleted.

    Both have the key byte for byte: keys that are equal by collation may be of two rows. A change may stand for several
    of its part of the window, from its FIRST_IMAGE on: what lies between such changes of another part is not known.
    """
    if not pc.any(pc.less(changes.column(OP), pa.scalar(0, pa.int8()))).as_py():
        return changes
    at = position_column(changes)
    frame, by = with_key(changes, schema, (OP, at, FILE, LINE, FIRST_IMAGE))
    frame = frame.with_row_index("_cdc_row")
    deleted = frame.filter(pl.col(OP) < 0).select(by).unique()
    some = frame.join(deleted, on=by, how="semi", nulls_equal=True)
    some = some.sort([pl.col(at), pl.col(OP) > 0, pl.col(FILE), pl.col(LINE)])
    some = some.with_columns(_cdc_from=pl.col(FIRST_IMAGE).fill_null(UNNOTED) // 2)
    same_key = [pl.col(name).eq_missing(pl.col(name).shift(1).over(by)) for name in map(exact, schema.key)]
    before = [pl.col(OP).shift(1).over(by) < 0, pl.col(at).shift(1).over(by) < pl.col("_cdc_from")]
    later = pl.col("_cdc_from").cum_min(reverse=True).shift(-1).over(by)
    alone = (later >= pl.col("_cdc_from")).fill_null(True)
    made = some.filter(pl.all_horizontal(*same_key, *before, alone, pl.col(FIRST_IMAGE) % 2 == 0))
    made = made.unique(subset=by, keep="first", maintain_order=True)
    made = made.select("_cdc_row", _cdc_negative=-pl.col(FIRST_IMAGE))
    images = frame.join(made, on="_cdc_row", how="left", maintain_order="left")
    images = images.select(pl.coalesce("_cdc_negative", FIRST_IMAGE)).to_series().to_arrow()
    return changes.set_column(changes.schema.get_field_index(FIRST_IMAGE), FIRST_IMAGE, images)


def united(changes: pa.Table, schema: TableSchema) -> pa.Table:
    """Return changes with the FIRST_IMAGE of the first change of their key."""
    at = changes.schema.get_field_index(FIRST_IMAGE)
    frame, by = with_key(changes, schema, (FIRST_IMAGE,))
    first = frame.select(pl.col(FIRST_IMAGE).fill_null(UNNOTED).min().over(pl.col(name) for name in by))
    return changes.set_column(at, FIRST_IMAGE, first.to_series().to_arrow())


def unmade(changes: pa.Table, step: ApplyRows, among: pa.Array | None = None) -> MissingRows | None:
    """Return the keys of reduced changes that need a row from before the window; None if there are none.

    `among` marks the changes that count, beside those of rows that the window had deleted.
    """
    images = changes.column(FIRST_IMAGE)
    needs = pc.equal(pc.bit_wise_and(images, pa.scalar(1, pa.int64())), 0)
    if among is not None:
        again = pc.less(images, 0)
        again = pc.and_(again, changes.column(FIRST)) if FIRST in changes.column_names else again
        needs = pc.and_(needs, pc.or_(among, again))
    rowless_changes = changes.filter(needs)
    if not rowless_changes.num_rows:
        return None
    images = pc.abs(rowless_changes.column(FIRST_IMAGE))
    (first,) = rowless_changes.slice(pc.index(images, pc.min(images)).as_py(), 1).to_pylist()
    return missing_rows(
        step, rowless_changes.num_rows, first[FIRST_IMAGE], first[FILE], [first[name] for name in step.schema.key]
    )


def together(parts: Sequence[MissingRows | None]) -> MissingRows | None:
    """Return the results of a window's parts as one, with the first change of all."""
    missing_parts = [part for part in parts if part is not None]
    if not missing_parts:
        return None
    return replace(min(missing_parts, key=lambda part: part.at), count=sum(part.count for part in missing_parts))


def missing_rows(step: ApplyRows, count: int, image: int, file: int, key: Sequence[object]) -> MissingRows:
    """Return so many rows that a table lacks, of which the first has this FIRST_IMAGE, FILE and key."""
    values = (f"{name} = {str(value)[:_SHOWN]}" for name, value in zip(step.schema.key, key, strict=True))
    return MissingRows(abs(image) >> 1, count, ", ".join(values), step.files[file].place)
