"""What is known of a feed's tables: where their rows begin, and the columns that only rows show.

Tables.seen(rows)       events of columns that no DDL and no stated schema tells of
Tables.note_ddl(event)  a DDL tells of its table from then on
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.ddl import Unreadable, first_words
from cdc_assets.formats.messages import SchemaEvent
from cdc_assets.landing.rows import codes_of
from cdc_assets.model.landed import EventKind, Landed, LandedEvent
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.sources.topics.schema_events import format_schema

__all__ = ["Schemas", "Tables", "schema_event"]

_SHOWN_ROWS = 100
"""So many rows of a table are looked at for its columns."""

Schemas = Callable[[pa.RecordBatch], Iterable[SchemaEvent]]
"""Messages -> the columns that they show."""


class Tables:
    """The tables of a feed, as of what is landed `before` and what is taken since.

    `began` has the least position of each table's rows, `with_schema` and `with_ddl` are the tables of which a
    schema or a DDL is there. With `by_offset` positions are given in landing, and not the messages' own.
    """

    def __init__(self, before: Landed, schemas: Schemas, *, by_offset: bool) -> None:
        self.began: dict[TableId, Tso] = dict(before.began)
        self.with_schema = {event.table for event in before.events if event.kind is EventKind.SCHEMA}
        self.with_ddl = {event.table for event in before.events if event.kind is EventKind.DDL}
        self._schemas = schemas
        self._by_offset = by_offset
        self._newest: dict[TableId, LandedEvent] = {}
        for event in before.events:
            self._note_newest(event)

    def note_ddl(self, event: LandedEvent) -> None:
        """Note that a DDL is there."""
        self.with_ddl.add(event.table)
        self._note_newest(event)

    def _note_newest(self, event: LandedEvent) -> None:
        """Keep the newest event of each table that says what it is, or that it is gone."""
        if event.kind in (EventKind.DDL, EventKind.SCHEMA) and event.table is not None:
            known = self._newest.get(event.table)
            if known is None or event.position > known.position:
                self._newest[event.table] = event

    def seen(self, rows: pa.Table) -> Iterator[LandedEvent]:
        """Note where the rows of each table begin; yield the columns of its first ones and of those after a DROP."""
        bounds = rows.group_by(["schema", "table"]).aggregate([("position", "min"), ("position", "max")]).to_pylist()
        fresh = set()
        for one in bounds:
            table, at = TableId(one["schema"], one["table"]), one["position_min"]
            yield from self._returned(rows, table, one["position_max"])
            if table not in self.began or not (table in self.with_schema or table in self.with_ddl):
                fresh.add(table)
            if at is not None:
                self.began[table] = min(at, self.began.get(table, at))
        if fresh:
            yield from self._first_columns(rows, fresh)

    def _first_columns(self, rows: pa.Table, fresh: set[TableId]) -> Iterator[LandedEvent]:
        """Yield the columns of tables as the first of their rows show them, and the one of least position."""
        places = np.unique(np.concatenate([*_shown_rows(rows, fresh)]))
        (batch,) = rows.take(pa.array(places)).combine_chunks().to_batches()
        for shown in self._schemas(batch):
            if shown.approximate and shown.table in fresh and shown.table not in self.with_schema:
                self.with_schema.add(shown.table)
                version = self.began[shown.table] if self._by_offset else shown.version
                yield schema_event(batch, shown, version)

    def _returned(self, rows: pa.Table, table: TableId, last: Tso | None) -> Iterator[LandedEvent]:
        """Yield the columns of the first rows after a table's DROP: no DDL may say that it came back.

        TiCDC sends none of RECOVER and FLASHBACK TABLE as Debezium, and an event filter may hide any.
        """
        newest = self._newest.get(table)
        if newest is None or last is None or last <= newest.position or not _is_drop(newest):
            return
        own = pc.and_(pc.equal(rows.column("schema"), table.schema), pc.equal(rows.column("table"), table.table))
        later = rows.filter(pc.and_(own, pc.greater(rows.column("position"), pa.scalar(newest.position))))
        (batch,) = later.combine_chunks().to_batches()
        for shown in self._schemas(batch):
            if shown.approximate and shown.table == table:
                event = schema_event(batch, shown, newest.position + 1 if self._by_offset else shown.version)
                self._note_newest(event)
                yield event


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


def _shown_rows(rows: pa.Table, tables: set[TableId]) -> Iterator[npt.NDArray[np.int64]]:
    codes, schemas, names = codes_of(rows, ("schema", "table")), rows.column("schema"), rows.column("table")
    positions = rows.column("position").to_numpy()
    for first in np.unique(codes, return_index=True)[1].tolist():
        if TableId(schemas[first].as_py(), names[first].as_py()) in tables:
            mine = np.flatnonzero(codes == codes[first])
            yield mine[:_SHOWN_ROWS]
            yield mine[[np.argmin(positions[mine])]]


def _is_drop(event: LandedEvent) -> bool:
    """Return whether an event is the DROP of its table."""
    with suppress(Unreadable):
        return event.kind is EventKind.DDL and first_words(event.query)[:2] == ("DROP", "TABLE")
    return False
