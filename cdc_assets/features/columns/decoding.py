"""Columns that mirrors have by settings: where a row's last change stands in the input, its ingestion, its delete.

mirror_columns         all columns of a table beside those of its source
with_places            changes -> with their places, before they are reduced
with_ingestion_times   reduced changes -> with the time of their window, and NULL for what nobody knows
reduced_with_marks     changes of a window -> one of each key, where deletes mark rows
marks_stay             whether marked rows can stay in a table through a DDL
living_rows            the rows that the source has

Where deletes mark rows, a window leaves one change of each key, as for any table with a key:

    an image             the row lives: a mark that it had goes
    an image with mark   the row was made or changed in the window, and deleted after that
    a delete             the row of the lake is marked, if it lives; no row is made of it

So the rows do not depend on how windows are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding import FILE, PLACE
from cdc_assets.decoding.first_images import FIRST_IMAGE, united
from cdc_assets.decoding.moved import has_moves, resolve_moved_columns
from cdc_assets.decoding.own_columns import MOMENTS, OwnColumn
from cdc_assets.decoding.patches import folded
from cdc_assets.decoding.split import Split, with_key
from cdc_assets.features.kinds.decoding import own_columns
from cdc_assets.formats import INNER_FORMATS, record_places
from cdc_assets.formats.changes import position_column
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP, POSITION
from cdc_assets.model.layout import DELETED_AT, INGESTED_AT
from cdc_assets.model.reports import Report
from cdc_assets.model.schema_changes import DeleteRows, Rekey, RetypeColumn
from cdc_assets.model.steps import ApplyRows, ChangeTable

OPTIONAL = (
    OwnColumn(
        PLACE,
        pa.string(),
        "place of the row's last change in the input: file and line, or topic, partition and offset",
    ),
    OwnColumn(INGESTED_AT, MOMENTS, "when the window of the row's last change was read"),
    OwnColumn(DELETED_AT, MOMENTS, "when the source deleted the row, NULL for a row that it has"),
)
"""The columns in their order, behind all others."""


def optional_columns(names: Collection[str], kind: str = "") -> tuple[OwnColumn, ...]:
    """Return the optional columns among these names; tables of a history kind have none."""
    return tuple(column for column in OPTIONAL if column.name in names and not kind)


def mirror_columns(kind: str, names: Collection[str]) -> tuple[OwnColumn, ...]:
    """Return the columns that a table of a history kind ("": a mirror) has after those of the source.

    `names` are those of its optional columns, or of all of its columns.
    """
    return (*own_columns(kind), *optional_columns(names, kind))


def with_places(changes: pa.Table, split: Split, heading: int) -> pa.Table:
    """Add PLACE; `heading` is how many records of a file stand before the first row that is read of it.

    The lines of a dump's file that is read in parts are those of the part, which its path names.
    """
    lines = changes.column(LINE)
    if split.wire.format in INNER_FORMATS and not split.file.piece:
        messages = record_places(split.wire, split.data, set(lines.to_pylist()))
        places = pa.array([messages.get(line) for line in lines.to_pylist()], pa.string())
    else:
        lines = pc.add(lines, heading)
        places = pc.binary_join_element_wise(f"{split.file.path}:", lines.cast(pa.string()), "")
    return changes.append_column(pa.field(PLACE, pa.string()), places)


def with_ingestion_times(changes: pa.Table, names: Collection[str], seconds: int) -> pa.Table:
    """Return the changes of a window that was read at a time (seconds since 1970) with these optional columns."""
    for column in optional_columns(names):
        if column.name == INGESTED_AT:
            moment = pa.scalar(seconds * 1_000_000, pa.int64()).cast(MOMENTS)
            changes = changes.append_column(column.name, pa.repeat(moment, changes.num_rows))
        elif column.name not in changes.column_names:
            changes = changes.append_column(column.name, pa.nulls(changes.num_rows, column.type))
    return changes


_ROW, _MARK = "_cdc_row", "_cdc_mark"


def reduced_with_marks(
    changes: pa.Table, step: ApplyRows, reduce: Callable[[pa.Table], tuple[pa.Table, Report]], *, is_part: bool
) -> tuple[pa.Table, Report]:
    """Return the reduced changes of a window, with DELETED_AT, and the report of `reduce` of the table's kind.

    Of several deletes of a row the first counts. Of a part of a window each key keeps its last image and all deletes
    after it, between which another part may have images.
    """
    at = position_column(changes)
    frame, by = with_key(changes, step.schema, (OP, at, FILE, LINE))
    frame = frame.with_row_index(_ROW).sort([pl.col(at), pl.col(OP) > 0, pl.col(FILE), pl.col(LINE)])
    turn = pl.int_range(pl.len())
    frame = frame.with_columns(turn.alias("_cdc_turn"), pl.when(pl.col(OP) > 0).then(turn).alias("_cdc_image"))
    frame = frame.with_columns(pl.col("_cdc_image").max().over(pl.col(name) for name in by).fill_null(-1))
    deletes = frame.filter((pl.col(OP) < 0) & (pl.col("_cdc_turn") > pl.col("_cdc_image")))
    first = deletes.unique(subset=by, keep="first", maintain_order=True)
    without_image = pl.col("_cdc_image") < 0
    if not is_part:
        deletes = deletes.join(first.filter(without_image), on=_ROW, how="anti")
    first = first.filter(~without_image)
    moves = has_moves(changes)
    if FIRST_IMAGE in changes.column_names and (moves or len(deletes)):
        changes = united(changes, step.schema)
    if moves:  # a delete of the old key says where the columns are, so all are needed first
        changes = resolve_moved_columns(frame, by, changes, step.schema)
        other_changes = frame.join(deletes, on=_ROW, how="anti", maintain_order="left")
        reduced, passed = folded(other_changes, by, changes, step.schema, step.life.born_as)
        report = Report(passed_over=passed)
    else:
        gone = pa.array(deletes.get_column(_ROW).to_arrow(), pa.uint32())
        is_left = pc.invert(pc.is_in(pa.array(range(changes.num_rows), pa.uint32()), gone))
        rest = changes.filter(is_left) if len(gone) else changes
        reduced, report = reduce(rest) if rest.num_rows else (rest, Report())
    if is_part:
        delete_rows = changes.take(deletes.get_column(_ROW).to_arrow())
        return pa.concat_tables([reduced, delete_rows], promote_options="default"), report
    reduced = _marked(reduced, changes, first, by, step) if len(first) else reduced
    if DELETED_AT not in reduced.column_names:
        reduced = reduced.append_column(DELETED_AT, pa.nulls(reduced.num_rows, MOMENTS))
    leaves = pc.less(reduced.column(OP), pa.scalar(0, pa.int8()))
    times = pc.if_else(leaves, _times(reduced, step), reduced.column(DELETED_AT))
    return reduced.set_column(reduced.schema.get_field_index(DELETED_AT), pa.field(DELETED_AT, MOMENTS), times), report


def _marked(
    reduced: pa.Table, changes: pa.Table, deletes: pl.DataFrame, by: Sequence[str], step: ApplyRows
) -> pa.Table:
    """Give images of reduced changes the time and the place of the delete that came after them."""
    frame, _ = with_key(reduced, step.schema, (OP,))
    marks = deletes.select(*by, pl.col(_ROW).alias(_MARK))
    places = frame.join(marks, on=list(by), how="left", nulls_equal=True, maintain_order="left")
    places = places.select(pl.when(pl.col(OP) > 0).then(pl.col(_MARK))).to_series().to_arrow()
    is_marked = pc.is_valid(places)
    if DELETED_AT in reduced.column_names:  # of a window before the one of the delete
        is_marked = pc.and_(is_marked, pc.is_null(reduced.column(DELETED_AT)))
    else:
        reduced = reduced.append_column(DELETED_AT, pa.nulls(reduced.num_rows, MOMENTS))
    values = {name: changes.column(name).take(places) for name in (COMMIT_TS, PLACE) if name in changes.column_names}
    values[DELETED_AT] = _times(changes, step).take(places)
    for name, taken in values.items():
        column = reduced.schema.get_field_index(name)
        own = pc.if_else(is_marked, taken, reduced.column(name))
        reduced = reduced.set_column(column, reduced.schema.field(column), own)
    return reduced


def _times(changes: pa.Table, step: ApplyRows) -> pa.ChunkedArray:
    """Return the times at which the source made changes; that of their window where nothing says it."""
    stamps = changes.column(COMMIT_TS)
    if step.positions is None and POSITION in changes.column_names:
        stamps = pc.coalesce(stamps, changes.column(POSITION))
    milliseconds = pc.shift_right(pc.fill_null(stamps, step.hi), pa.scalar(18, pa.int64()))
    return pc.multiply(milliseconds, 1000).cast(MOMENTS)


def marks_stay(step: ChangeTable) -> bool:
    """Return whether marked rows can stay in a mirror through a DDL.

    Under another key, or one whose values were converted, two of them may be alike, or one of them and a row of the
    source. Without a key rows are found by their values, and a marked one would be taken for one of the source. Rows of
    a table that a person lets begin anew with columns of other types cannot be converted.
    """
    if not step.schema.key:
        return False
    retyped = [change for change in step.changes if isinstance(change, RetypeColumn)]
    keys = any(change.new.name in step.schema.key for change in retyped)
    emptied = bool(retyped) and DeleteRows(None) in step.changes
    return not (keys or emptied or any(isinstance(change, Rekey) for change in step.changes))


def living_rows(rows: pa.Table) -> pa.Table:
    """Return the rows of a mirror that the source has."""
    return rows.filter(pc.is_null(rows.column(DELETED_AT))) if DELETED_AT in rows.column_names else rows
