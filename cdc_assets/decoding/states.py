"""States of rows: what follows from the changes of a key, in the order of their positions, each [start, end).

Positions order all of it. A state whose end is not in the window is open, until a later change of the key ends it in
the lake. So of a key's changes only the first (FIRST) concerns the state that the lake has open, which ends where that
begins.

Only some columns may be tracked: images that follow each other with equal values in these are one state then, with the
values of the last.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from cdc_assets.decoding.own_columns import LAST_CHANGE, MOMENTS, OwnColumn
from cdc_assets.decoding.split import with_key
from cdc_assets.formats.changes import has_patches, position_column
from cdc_assets.formats.decoded import COMMIT_TS, OP, UNCHANGED
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.steps import ApplyRows
from cdc_assets.types.frames import exact

START_AT, END_AT = "__START_AT", "__END_AT"
START_TS, END_TS = "_cdc_start_ts", "_cdc_end_ts"

FIRST = "_cdc_first"
"""Whether a change is the first of its key in the window."""
LANDED = "_cdc_landed"
"""The state that it begins is in a data file of the table."""

STATE_COLUMNS = (
    LAST_CHANGE,
    OwnColumn(START_AT, MOMENTS, "when the source made the change with which the state begins"),
    OwnColumn(END_AT, MOMENTS, "when the source made the change with which it ends, NULL for the present state"),
    OwnColumn(START_TS, pa.int64(), "position (TSO) from which the row has this state"),
    OwnColumn(END_TS, pa.int64(), "position (TSO) from which it no longer has it, NULL for the present state"),
)


def tracked(step: ApplyRows) -> tuple[str, ...] | None:
    """Return the columns with whose change a state begins, None where it begins with every change.

    A repair ends no state that has the source's values.
    """
    rule = step.history
    if rule is None or not rule.tracks_some:
        return tuple(column.name for column in step.schema.live) if step.is_repair else None
    named = {name.lower() for name in (rule.track or rule.track_except)}
    return tuple(
        column.name for column in step.schema.live if (column.source_name.lower() in named) == bool(rule.track)
    )


def states(changes: pa.Table, schema: TableSchema, track: Sequence[str] | None = None) -> pa.Table:
    """Return the states of the changes' keys, with the columns of STAGED, in no particular order.

    Of changes that leave only those are left that are the first of their key: they end what the lake has. Images with
    equal values in the columns of `track` are one state; None where each is one.
    """
    at = position_column(changes)
    frame, by = with_key(changes, schema, tuple(dict.fromkeys((OP, at, COMMIT_TS))))
    frame = frame.with_row_index("_cdc_row")
    for name in (at, *reversed(by)):  # one after the other, which is quicker than by all of them at once
        frame = frame.sort(name, nulls_last=True, maintain_order=True)
    follows = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift()) for name in by)
    frame = frame.with_columns(follows.fill_null(False).alias("_cdc_follows"))
    if len(frame):
        frame[0, "_cdc_follows"] = False
    time = pl.coalesce(COMMIT_TS, at)
    frame = frame.select("_cdc_row", OP, "_cdc_follows", pl.col(at).alias(START_TS), _time(time).alias(START_AT))
    if track is not None:
        # A change goes on where it enters with the tracked values of the one before it. What a patch leaves out and
        # the window does not have is the same as in a patch before it, and else not known.
        values = pl.from_arrow(changes.select(track))
        assert isinstance(values, pl.DataFrame)
        places = frame.get_column("_cdc_row")
        values = values.select(pl.all().gather(places))
        same = frame.select(pl.col("_cdc_follows") & (pl.col(OP) > 0) & (pl.col(OP).shift() > 0)).to_series()
        for tracked in track:
            value = pl.col(exact(tracked))
            same &= values.select(value.eq_missing(value.shift())).to_series()
        if has_patches(changes):
            unchanged = pl.Series(UNCHANGED, changes.column(UNCHANGED).combine_chunks(), dtype=pl.List(pl.String))
            out = unchanged.gather(places).to_frame().select(pl.col(UNCHANGED).list.sort())
            same &= out.select(pl.col(UNCHANGED).eq_missing(pl.col(UNCHANGED).shift())).to_series()
        frame = frame.with_columns(same.fill_null(False).alias("_cdc_same"))
        first = (~pl.col("_cdc_same")).cum_sum()
        frame = frame.with_columns(
            pl.col(name).first().over(first) for name in (START_TS, START_AT, "_cdc_follows")
        ).unique(first, keep="last", maintain_order=True)
    ends = pl.col("_cdc_follows").shift(-1)
    frame = frame.with_columns(
        pl.when(ends).then(pl.col(START_TS).shift(-1)).alias(END_TS),
        pl.when(ends).then(pl.col(START_AT).shift(-1)).alias(END_AT),
    ).filter((pl.col(OP) > 0) | ~pl.col("_cdc_follows"))
    frame = frame.sort("_cdc_row")  # values are copied in the order in which they lie
    state_rows = changes if len(frame) == changes.num_rows else changes.take(frame.get_column("_cdc_row").to_arrow())
    for name in (START_TS, END_TS, START_AT, END_AT):
        state_rows = state_rows.append_column(name, frame.get_column(name).to_arrow())
    state_rows = state_rows.append_column(FIRST, (~frame.get_column("_cdc_follows")).to_arrow())
    return state_rows.append_column(LANDED, pa.repeat(pa.scalar(False), state_rows.num_rows))


def _time(tso: pl.Expr) -> pl.Expr:
    """The wall-clock time of a TSO, to the microsecond."""
    return ((tso // 2**18) * 1000).cast(pl.Datetime("us", "UTC"))
