"""Every state of a row with a key: from the position of the change that made it to that of the next one.

    reduce      one change of a key at a position, whole where the window has what a patch leaves out
    finished    the changes of each key in their order -> its states (`decoding.states`)

Several changes of a key at one position are one state: the image that enters, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding import FILE
from cdc_assets.decoding.first_images import FIRST_IMAGE, united
from cdc_assets.decoding.moved import has_moves, resolve_moved_columns
from cdc_assets.decoding.own_columns import LAST_CHANGE
from cdc_assets.decoding.patches import folded
from cdc_assets.decoding.split import TableKind, with_key
from cdc_assets.decoding.states import END_TS, FIRST, LANDED, STATE_COLUMNS, states, tracked
from cdc_assets.formats.changes import has_patches, position_column
from cdc_assets.formats.decoded import LINE, OP, UNCHANGED
from cdc_assets.model.reports import Report
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows


class StatesKind(TableKind):
    """Every state of a row."""

    NAME = "scd2"
    PARTITION = END_TS  # open states in files of their own: those that have ended are never looked at
    LANDS = APPENDS = ENDS = True
    OWN = STATE_COLUMNS
    STAGED: ClassVar[Mapping[str, str]] = {
        UNCHANGED: "array<string>",
        FIRST_IMAGE: "bigint",
        FIRST: "boolean",
        LANDED: "boolean",
        **{column.name: column.spark for column in STATE_COLUMNS if column is not LAST_CHANGE},
    }

    def refuses(self, schema: TableSchema) -> str:
        """Return the reason why a table of that schema cannot have its states kept, "" if it can."""
        if schema.key:
            return ""
        return (
            "it has no key, so it is not known which states are of one row. Name columns that identify a row in the "
            'setting keys, or keep its changes: history "log".'
        )

    def reduce(
        self, changes: pa.Table, schema: TableSchema, table: TableId, files: Sequence[DataFile] = ()
    ) -> tuple[pa.Table, Report]:
        """Keep one change per key and position: same columns in and out, in no particular order."""
        if FIRST_IMAGE in changes.column_names:
            changes = united(changes, schema)
        at = position_column(changes)
        frame, by = with_key(changes, schema, (OP, at, FILE, LINE))
        if not has_patches(changes) and not frame.select(*by, at).is_duplicated().any():
            return changes, Report()
        order = [pl.col(at), pl.col(OP) > 0, pl.col(FILE), pl.col(LINE)]
        frame = frame.with_row_index("_cdc_row").sort(order)
        if has_patches(changes):
            if has_moves(changes):
                changes = resolve_moved_columns(frame, by, changes, schema)
            reduced, passed = folded(frame, by, changes, schema, table, at)
            return reduced, Report(passed_over=passed)
        last = frame.unique(subset=[*by, at], keep="last", maintain_order=False).sort("_cdc_row")
        return changes.take(last.get_column("_cdc_row").to_arrow()), Report()

    def finished(self, changes: pa.Table, step: ApplyRows) -> pa.Table:
        """Return the states that a step's reduced changes make."""
        return states(changes, step.schema, tracked(step))

    def apart(self, changes: pa.Table, step: ApplyRows, empty: bool) -> tuple[pa.Table, pa.Table]:
        """Return the states that begin, and what is to be done to open ones: of those that end the key and the moment.

        A state is staged as a whole that may be the one before it in the lake, or has columns of that.
        """
        enters = pc.greater(changes.column(OP), pa.scalar(0, pa.int8()))
        continues = pc.is_valid(changes.column(UNCHANGED)) if has_patches(changes) else pa.scalar(False)
        if tracked(step) is not None:
            continues = pc.or_(continues, changes.column(FIRST))
        rows = pc.and_(enters, pc.invert(continues)) if not empty else enters
        ends = changes.column(FIRST) if not empty else pa.scalar(False)
        landed = pc.if_else(rows, True, False)
        changes = changes.set_column(changes.schema.get_field_index(LANDED), LANDED, landed)
        staged = changes.filter(pc.or_(ends, pc.and_(enters, pc.invert(rows))))
        if tracked(step) is None and not has_patches(changes):
            for column in step.schema.stored:
                if column.name not in step.schema.key:
                    at = staged.schema.get_field_index(column.name)
                    staged = staged.set_column(
                        at, staged.schema.field(at), pa.nulls(staged.num_rows, staged.schema.types[at])
                    )
        return changes.filter(rows), staged


KIND = StatesKind()
