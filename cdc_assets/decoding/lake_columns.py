"""Columns that mirrors have by settings: where a row's last change stands in the input, its ingestion, its delete.

mirror_columns(…)   all columns of a table beside those of its source
with_places(…)      changes -> with their places, before they are reduced
ingested(…)         reduced changes -> with the time of their window, and NULL for what nobody knows
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding import PLACE
from cdc_assets.decoding.own_columns import MOMENTS, OwnColumn
from cdc_assets.decoding.split import Split
from cdc_assets.features.kinds.decoding import own_columns
from cdc_assets.formats import INNER_FORMATS, record_places
from cdc_assets.formats.decoded import LINE
from cdc_assets.model.layout import DELETED_AT, INGESTED_AT

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


def ingested(changes: pa.Table, names: Collection[str], seconds: int) -> pa.Table:
    """Return the changes of a window that was read at a time (seconds since 1970) with these optional columns."""
    for column in optional_columns(names):
        if column.name == INGESTED_AT:
            moment = pa.scalar(seconds * 1_000_000, pa.int64()).cast(MOMENTS)
            changes = changes.append_column(column.name, pa.repeat(moment, changes.num_rows))
        elif column.name not in changes.column_names:
            changes = changes.append_column(column.name, pa.nulls(changes.num_rows, column.type))
    return changes
