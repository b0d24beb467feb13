"""Proof that a table lacks rows: the first change of a key in a window is of a row that the table does not have.

A row that is deleted, or that an update changes, was there before. If the table has all rows of the source, it has the
row, unless a change before it in the window made it. Otherwise the row came without a change in the log, as by a
restore or a physical import, and so did others that have not changed since.

    noted      changes of a window, each with its FIRST_IMAGE
    united     the same, each with that of the first change of its key
    unmade     which keys of reduced changes need a row from before the window, as MissingRows
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding import FILE
from cdc_assets.decoding.split import with_key
from cdc_assets.formats import OP, UNCHANGED, Op, has_patches, position_column
from cdc_assets.model.progress import MissingRows
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.steps import ApplyRows

FIRST_IMAGE = "_cdc_first_image"
"""Twice the position of the first change of the key in the window, plus one unless the row was there before it.

It is null, or missing, where no change needs a row from before.
"""

UNNOTED = 1
"""Sorts before every position: a change of the key that may be its first one was noted nowhere."""
_SHOWN = 80


def noted(changes: pa.Table) -> pa.Table:
    """Return changes with FIRST_IMAGE, each as if it were the only one.

    A change that leaves columns out has its own rule for a row that is not there (`patches`), and proves nothing.
    """
    ops = changes.column(OP)
    whole = pc.is_null(changes.column(UNCHANGED)) if has_patches(changes) else pa.scalar(True)
    old = pc.or_(pc.less(ops, pa.scalar(0, pa.int8())), pc.and_(pc.equal(ops, int(Op.UPDATE)), whole))
    twice = pc.multiply(changes.column(position_column(changes)), pa.scalar(2, pa.int64()))
    return changes.append_column(FIRST_IMAGE, pc.add(twice, pc.invert(old).cast(pa.int64())))


def united(changes: pa.Table, schema: TableSchema) -> pa.Table:
    """Return changes with the FIRST_IMAGE of the first change of their key."""
    at = changes.schema.get_field_index(FIRST_IMAGE)
    frame, by = with_key(changes, schema, (FIRST_IMAGE,))
    first = frame.select(pl.col(FIRST_IMAGE).fill_null(UNNOTED).min().over(pl.col(name) for name in by))
    return changes.set_column(at, FIRST_IMAGE, first.to_series().to_arrow())


def unmade(changes: pa.Table, step: ApplyRows, among: pa.Array | None = None) -> MissingRows | None:
    """Return the keys of reduced changes that need a row from before the window; None if there are none.

    `among` marks the changes that count.
    """
    needs = pc.equal(pc.bit_wise_and(changes.column(FIRST_IMAGE), pa.scalar(1, pa.int64())), 0)
    found = changes.filter(needs if among is None else pc.and_(needs, among))
    if not found.num_rows:
        return None
    images = found.column(FIRST_IMAGE)
    (first,) = found.slice(pc.index(images, pc.min(images)).as_py(), 1).to_pylist()
    return missing_rows(
        step, found.num_rows, first[FIRST_IMAGE], first[FILE], [first[name] for name in step.schema.key]
    )


def together(parts: Sequence[MissingRows | None]) -> MissingRows | None:
    """Return what parts of a window found, with the first change of all."""
    found = [part for part in parts if part is not None]
    if not found:
        return None
    return replace(min(found, key=lambda part: part.at), count=sum(part.count for part in found))


def missing_rows(step: ApplyRows, count: int, image: int, file: int, key: Sequence[object]) -> MissingRows:
    """Return so many rows that a table lacks, of which the first has this FIRST_IMAGE, FILE and key."""
    values = (f"{name} = {str(value)[:_SHOWN]}" for name, value in zip(step.schema.key, key, strict=True))
    return MissingRows(image >> 1, count, ", ".join(values), step.files[file].name)
