"""Changes that have some columns only: the result of several of one key, folded in their order.

    image    has all columns, and replaces what was before it
    patch    has all columns but those in UNCHANGED, and leaves these as they were
    erase    ends the row

A patch upon an image is an image, a patch upon a patch is a patch with the columns of either, and a patch upon an
erase is an image whose other columns are NULL, if it may make a row (Op.INSERT). One that says that its row is there
(Op.UPDATE) has lost it then, and its table is held; Op.PATCH is passed over and counted. What is folded can be folded
again with what comes before or after it, so tasks that share a window fold what they read of it: all changes of a key
are in one partition, in its order. Only patches of rows under another key (`moved`) need the whole window.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding.moved import BASE, is_moved
from cdc_assets.errors import TableHeld
from cdc_assets.formats.decoded import MOVED, OP, UNCHANGED, Op
from cdc_assets.model.schema import TableId, TableSchema

_ROW = "_cdc_row"
_PLACE = "_cdc_sorted"
_BEGUN = "_cdc_begun"


def with_rows(changes: pa.Table, rowless: pa.ChunkedArray, schema: TableSchema, table: str) -> tuple[pa.Table, int]:
    """Return changes of which some patches have no row: those that make one do, others are passed over and counted.

    Raises TableHeld for one that says that its row is there.
    """
    ops = changes.column(OP)
    lost = changes.filter(pc.and_(rowless, pc.equal(ops, int(Op.UPDATE))))
    if lost.num_rows:
        raise lost_row(table, lost.num_rows, tuple(lost.column(name)[0].as_py() for name in schema.key))
    at = changes.schema.get_field_index(UNCHANGED)
    unchanged = pc.if_else(rowless, pa.scalar(None, changes.schema.field(at).type), changes.column(at))
    passed = pc.and_(rowless, pc.equal(ops, int(Op.PATCH)))
    count = pc.sum(passed).as_py() or 0
    changes = changes.set_column(at, changes.schema.field(at), unchanged)
    return (changes.filter(pc.invert(passed)) if count else changes), count


def lost_row(table: str, count: int, key: object) -> TableHeld:
    """Return the error for patches of rows that are not there."""
    return TableHeld(
        f"{table}: {count:,} of its changes leave out columns that did not change, and the lake does not have their "
        f"rows; the first has the key {key}. What the other columns hold is not known. Rebuild the table from a new "
        'snapshot, let the source write whole rows (PostgreSQL: REPLICA IDENTITY FULL), or give the policy "patch '
        'without row": skip passes such changes over, apply makes the rows without these columns.',
        table=table,
    )


def folded(
    frame: pl.DataFrame, by: Sequence[str], changes: pa.Table, schema: TableSchema, table: TableId, at: str = ""
) -> tuple[pa.Table, int]:
    """Return the reduced changes, one per key, in no particular order, and how many were passed over.

    `frame` has a row for each change, in the order in which they count: `by` is the key, `_cdc_row` the place in
    `changes`. With `at`, a column of it, one per key and value of that is left: the row as it was from there on. Raises
    TableHeld for a patch whose row was deleted before it.
    """
    rows = _in_order(frame, by, changes, at)
    starts = (pl.col(OP) < 0) | pl.col(UNCHANGED).is_null() | pl.col(MOVED)
    rows, passed = _without_passed_over(rows, by, starts)
    rows = rows.sort(by, maintain_order=True, nulls_last=True).with_row_index(_PLACE)
    begins = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in by).fill_null(True)
    rows = rows.with_columns(
        _newest((pl.col(_PLACE) == 0) | begins | starts).alias(_BEGUN), starts.alias("_cdc_starts")
    )
    columns = [column.name for column in schema.stored]
    erase = pl.col(OP) < 0
    stated = {name: ~(erase | pl.col(UNCHANGED).list.contains(name).fill_null(False)) for name in columns}
    first = rows.select(_ROW, OP, MOVED, "_cdc_starts").select(pl.all().gather(rows.get_column(_BEGUN)))
    rows = rows.with_columns(
        (first.get_column(OP) < 0).alias("_cdc_erased"),
        (first.get_column("_cdc_starts") & ~first.get_column(MOVED)).alias("_cdc_whole"),
        first.get_column(_ROW).alias("_cdc_first"),
        first.get_column(MOVED).alias(MOVED),
        _since_begun(pl.col(OP) == int(Op.UPDATE)).is_not_null().alias("_cdc_there"),
        _since_begun(pl.col(OP) == int(Op.PATCH)).is_not_null().alias("_cdc_if_there"),
        *(_since_begun(stated[name]).alias(f"_cdc_of_{place}") for place, name in enumerate(columns)),
    )
    places = rows.get_column(_ROW)
    of_columns = [f"_cdc_of_{place}" for place in range(len(columns))]
    last = rows.unique([*by, *([at] if at else [])], keep="last", maintain_order=True)
    last = last.with_columns(places.gather(last.get_column(name)).alias(name) for name in of_columns)
    _refuse_lost(last, changes, schema, table)
    return _gathered(last, changes, columns), passed


def _newest(mask: pl.Expr) -> pl.Expr:
    """Return the place of the newest row of the mask, at each row."""
    return pl.when(mask).then(pl.col(_PLACE)).cum_max().forward_fill()


def _since_begun(mask: pl.Expr) -> pl.Expr:
    """Return the place of the newest row of the mask, at each row; NULL where its key's row began anew after it."""
    newest = _newest(mask)
    return pl.when(newest >= pl.col(_BEGUN)).then(newest)


def _in_order(frame: pl.DataFrame, by: Sequence[str], changes: pa.Table, at: str) -> pl.DataFrame:
    moved = pl.Series(MOVED, is_moved(changes).to_numpy()) if MOVED in changes.column_names else None
    places = frame.get_column(_ROW)
    return frame.select([*by, *([at] if at else []), _ROW]).with_columns(
        pl.Series(OP, changes.column(OP).to_numpy()).gather(places),
        _patches(changes).gather(places),
        pl.lit(False).alias(MOVED) if moved is None else moved.gather(places),
    )


def _without_passed_over(rows: pl.DataFrame, by: Sequence[str], starts: pl.Expr) -> tuple[pl.DataFrame, int]:
    """Leave out patches behind an erase that are passed over where their row is not there; return how many."""
    patch = (pl.col(OP) == int(Op.PATCH)) & ~starts
    if not rows.select(patch.any()).item():
        return rows, 0
    makes = pl.when(starts).then(pl.col(OP) > 0).when(~patch).then(True)
    gone = ~makes.forward_fill().over(by).fill_null(True)
    effective = rows.filter(~(patch & gone))
    return effective, len(rows) - len(effective)


def _patches(changes: pa.Table) -> pl.Series:
    return pl.Series(UNCHANGED, changes.column(UNCHANGED).combine_chunks(), dtype=pl.List(pl.String))


def _refuse_lost(last: pl.DataFrame, changes: pa.Table, schema: TableSchema, table: TableId) -> None:
    lost = last.filter(pl.col("_cdc_erased") & (pl.col(OP) > 0) & pl.col("_cdc_there"))
    if len(lost):
        first = int(lost.get_column(_ROW)[0])
        raise lost_row(str(table), len(lost), tuple(changes.column(name)[first].as_py() for name in schema.key))


def _gathered(last: pl.DataFrame, changes: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Take the newest value of each column; an erase keeps its own values, by which it is found."""
    erases = last.get_column(OP) < 0
    newest = last.get_column(_ROW)
    newest_changes = changes.take(newest.to_arrow())
    for place, name in enumerate(columns):
        newest_stated = last.get_column(f"_cdc_of_{place}")
        rows = pl.select(pl.when(erases).then(newest).otherwise(newest_stated)).to_series().to_arrow()
        at = newest_changes.schema.get_field_index(name)
        newest_changes = newest_changes.set_column(at, newest_changes.schema.field(at), changes.column(name).take(rows))
    missing = [pl.when(pl.col(f"_cdc_of_{place}").is_null()).then(pl.lit(name)) for place, name in enumerate(columns)]
    left_out = pl.concat_list(missing).list.drop_nulls()
    if_there = pl.col("_cdc_if_there") & ~pl.col("_cdc_there")
    rests = if_there | (pl.col("_cdc_there") & ~pl.col(MOVED))  # patches make no row, whatever they bring together
    open_ = ~pl.col("_cdc_whole") & (rests | left_out.list.len().gt(0))
    whole = pl.when(pl.col(OP) == int(Op.PATCH)).then(int(Op.UPDATE)).otherwise(pl.col(OP))
    needs = pl.when(pl.col("_cdc_there")).then(int(Op.UPDATE)).when(pl.col("_cdc_if_there")).then(int(Op.PATCH))
    folded = last.select(
        pl.when(open_).then(left_out).otherwise(None).alias(UNCHANGED),
        pl.when(open_).then(needs.otherwise(pl.col(OP))).otherwise(whole).cast(pl.Int8).alias(OP),
    )
    for name, kind in ((UNCHANGED, pa.list_(pa.string())), (OP, pa.int8())):
        at = newest_changes.schema.get_field_index(name)
        newest_changes = newest_changes.set_column(
            at, pa.field(name, kind), folded.get_column(name).to_arrow().cast(kind)
        )
    begun = last.select(pl.when(open_ & pl.col(MOVED)).then("_cdc_first")).to_series().to_arrow()
    for name in (MOVED, BASE):
        if name in changes.column_names:
            at = newest_changes.schema.get_field_index(name)
            newest_changes = newest_changes.set_column(
                at, newest_changes.schema.field(at), changes.column(name).take(begun)
            )
    return newest_changes
