"""What rows show of their tables: where they begin and end, their columns, and how these change.

bounds_of(rows)               where the rows of each table begin and end
first_columns(rows, tables)   the columns that the first rows of tables show
schema_event(batch, shown)    these as an event
Shapes                        the columns that rows of a table have had, and which of them its newest rows have
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_assets.formats.messages import SchemaEvent
from cdc_assets.landing.files import codes_of
from cdc_assets.model.landed import EventKind, Landed, LandedEvent
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.sources.topics.columns_text import format_schema, parse_schema

__all__ = [
    "Bounds",
    "Schemas",
    "Shapes",
    "bounds_of",
    "first_columns",
    "schema_event",
]

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


_LAGS = "its row is older than others that were landed before it"


class Shapes:
    """The shapes of a feed's tables, as of what is landed `before` and what is written down since."""

    def __init__(self, before: Landed) -> None:
        self._known = dict[tuple[TableId, str], LandedEvent]()
        self._current = dict[TableId, LandedEvent]()
        self._alike = set[tuple[TableId, str, str]]()
        for event in before.events:
            if event.kind is EventKind.SCHEMA:
                self._note(event)

    def _note(self, event: LandedEvent) -> LandedEvent:
        if event.shape and event.table is not None:
            self._known[event.table, event.shape] = event
            newest = self._current.get(event.table)
            if newest is None or newest.position <= event.position:
                self._current[event.table] = event
        return event

    def knows(self, table: TableId, shape: str) -> bool:
        """Return whether rows of a table have had a shape before."""
        return (table, shape) in self._known

    def first(self, batch: pa.RecordBatch, shown: SchemaEvent, position: Tso, shape: str, at: str) -> LandedEvent:
        """Return the event of columns that were not there before; `at` is their row's place in the source's log."""
        event = schema_event(batch, shown, position, shape)
        return self._note(replace(event, reason=self._lag(shown.table, at), source_position=at))

    def again(self, table: TableId, shape: str, position: Tso, at: str) -> Iterator[LandedEvent]:
        """Yield what follows of columns of before: they changed once more, or a partition lags behind.

        Of one that lags behind only columns count that the newest rows have not.
        """
        newest = self._current.get(table)
        if newest is None or shape == newest.shape:
            return
        lag, before = self._lag(table, at), self._known[table, shape]
        if not lag:
            yield self._note(replace(before, position=position, reason="", source_position=at))
            return
        if (table, shape, newest.shape) in self._alike:
            return
        known, older = parse_schema(newest.query), parse_schema(before.query)
        names = {column.name for column in known[0].columns}
        more = tuple(column for column in older[0].columns if column.name not in names)
        if not more:
            self._alike.add((table, shape, newest.shape))
            return
        query = format_schema(replace(known[0], columns=(*known[0].columns, *more)), older[1])
        place = newest.source_position
        yield self._note(replace(before, position=position, query=query, reason=lag, source_position=place))

    def _lag(self, table: TableId, at: str) -> str:
        """Return why columns that come again in a row were never gone, "" where the source has added them anew."""
        newest = self._current.get(table)
        return _LAGS if newest is not None and at < newest.source_position or not at else ""
