"""What rows show of their tables: where they begin and end, and the columns of the first of them.

seen(rows)                    where the rows of each table begin and end
first_columns(rows, tables)   the columns that the first rows of tables show
schema_event(batch, shown)    these as an event
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_assets.formats.messages import SchemaEvent
from cdc_assets.landing.rows import codes_of
from cdc_assets.model.landed import EventKind, LandedEvent
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.sources.topics.columns_text import format_schema

__all__ = ["Bounds", "Schemas", "bounds_of", "first_columns", "schema_event"]

_SHOWN_ROWS = 100
"""So many rows of a table are looked at for its columns."""

Schemas = Callable[[pa.RecordBatch], Iterable[SchemaEvent]]
"""Messages -> the columns that they show."""


class Bounds(NamedTuple):
    """The least and the greatest position of a table's rows, None where no row has one."""

    table: TableId
    first: Tso | None
    last: Tso | None


def bounds_of(rows: pa.Table) -> list[Bounds]:
    """Return where the rows of each table begin and end, the table of the first row first."""
    positions = [("position", "min"), ("position", "max")]
    found = rows.group_by(["schema", "table"], use_threads=False).aggregate(positions).to_pylist()
    return [Bounds(TableId(one["schema"], one["table"]), one["position_min"], one["position_max"]) for one in found]


def first_columns(rows: pa.Table, tables: Collection[TableId], schemas: Schemas) -> Iterator[LandedEvent]:
    """Yield the columns of each of these tables as the first of its rows show them, and the one of least position."""
    for table, places in _shown_rows(rows, tables):
        (batch,) = rows.take(pa.array(places)).combine_chunks().to_batches()
        for shown in schemas(batch):
            if shown.approximate and shown.table == table:
                yield schema_event(batch, shown, shown.version)
                break


def schema_event(batch: pa.RecordBatch, shown: SchemaEvent, position: Tso, shape: str = "") -> LandedEvent:
    """Return the event of a table's columns in a message of a batch."""
    row = {name: batch.column(name)[shown.message].as_py() for name in ("topic", "partition", "offset")}
    return LandedEvent(
        EventKind.SCHEMA,
        Partition(row["topic"], row["partition"]),
        row["offset"],
        position,
        shown.table,
        format_schema(shown.schema, shown.approximate),
        shape=shape,
    )


def _shown_rows(rows: pa.Table, tables: Collection[TableId]) -> Iterator[tuple[TableId, npt.NDArray[np.int64]]]:
    """Yield the places of the rows that are looked at of each table, the table of the first row first."""
    codes, schemas, names = codes_of(rows, ("schema", "table")), rows.column("schema"), rows.column("table")
    positions = rows.column("position").to_numpy()
    for first in sorted(np.unique(codes, return_index=True)[1].tolist()):
        table = TableId(schemas[first].as_py(), names[first].as_py())
        if table in tables:
            mine = np.flatnonzero(codes == codes[first])
            yield table, np.unique([*mine[:_SHOWN_ROWS], mine[np.argmin(positions[mine])]])
