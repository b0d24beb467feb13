"""What is known of a feed's tables: where their rows begin, and the columns that only rows show.

Tables.seen(rows)       events of columns that no DDL and no stated schema tells of
Tables.note_ddl(event)  a DDL tells of its table from then on
Tables.contents(rows)   events of rows by which it is known whether a topic has more than keys
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.ddl import Unreadable, first_words
from cdc_assets.landing.first_rows import Bounds, Schemas, bounds_of, first_columns, schema_event
from cdc_assets.model.landed import EventKind, Landed, LandedEvent
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

__all__ = ["Later", "Tables", "rows_after"]

Shown = Callable[[Collection[TableId]], Iterable[LandedEvent]]
"""Tables -> the columns that the first of their rows show."""
Later = Callable[[TableId, Tso], Iterable[pa.Table]]
"""A table, a position -> its rows beyond it, as they came, in the order of offsets."""


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
        self._with_columns = {event.partition.topic for event in before.events if event.kind is EventKind.COLUMNS}
        self._key_alone = {event.partition for event in before.events if event.kind is EventKind.KEY_ALONE}
        for event in before.events:
            self._note_newest(event)

    @property
    def described(self) -> frozenset[TableId]:
        """The tables of which a schema or a DDL is there."""
        return frozenset(table for table in (*self.with_schema, *self.with_ddl) if table is not None)

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
        shown = partial(first_columns, rows, schemas=self._schemas)
        yield from self.noted(bounds_of(rows), shown, lambda table, position: [rows_after(rows, table, position)])

    def noted(self, bounds: Iterable[Bounds], shown: Shown, later: Later) -> Iterator[LandedEvent]:
        """Take what `seen` takes of rows that are not here."""
        fresh = set[TableId]()
        for table, first, last in bounds:
            yield from self._returned(table, last, later)
            if table not in self.began or not (table in self.with_schema or table in self.with_ddl):
                fresh.add(table)
            if first is not None:
                self.began[table] = min(first, self.began.get(table, first))
        for event in shown(fresh) if fresh else ():
            if event.table in fresh and event.table not in self.with_schema:
                self.with_schema.add(event.table)
                yield replace(event, position=self.began[event.table]) if self._by_offset else event

    def contents(self, rows: pa.Table, show_columns: Callable[[pa.RecordBatch], pa.Array]) -> Iterator[LandedEvent]:
        """Take rows of a partition; yield the first one of its topic that has columns, or of it that has its key alone.

        Of a topic that has shown columns nothing more has to be known.
        """
        place = Partition(rows.column("topic")[0].as_py(), rows.column("partition")[0].as_py())
        if place.topic in self._with_columns:
            return
        (batch,) = rows.combine_chunks().to_batches()
        shown = show_columns(batch)
        with_columns, alone = (pc.index(shown, pa.scalar(one)).as_py() for one in (True, False))
        kind, first = (EventKind.COLUMNS, with_columns) if with_columns >= 0 else (EventKind.KEY_ALONE, alone)
        if first < 0 or (kind is EventKind.KEY_ALONE and place in self._key_alone):
            return
        (self._with_columns.add(place.topic) if kind is EventKind.COLUMNS else self._key_alone.add(place))
        row = {name: batch.column(name)[first].as_py() for name in ("offset", "position", "schema", "table")}
        yield LandedEvent(kind, place, row["offset"], row["position"], TableId(row["schema"], row["table"]))

    def _returned(self, table: TableId, last: Tso | None, later: Later) -> Iterator[LandedEvent]:
        """Yield the columns of the first rows after a table's DROP: no DDL may say that it came back.

        TiCDC sends none of RECOVER and FLASHBACK TABLE as Debezium, and an event filter may hide any.
        """
        newest = self._newest.get(table)
        if newest is None or last is None or last <= newest.position or not _is_drop(newest):
            return
        for rows in later(table, newest.position):
            for batch in rows.combine_chunks().to_batches():
                for shown in self._schemas(batch):
                    if shown.approximate and shown.table == table:
                        event = schema_event(batch, shown, newest.position + 1 if self._by_offset else shown.version)
                        self._note_newest(event)
                        yield event
            if self._newest[table] is not newest:
                return


def rows_after(rows: pa.Table, table: TableId, position: Tso) -> pa.Table:
    """Return a table's rows beyond a position."""
    own = pc.and_(pc.equal(rows.column("schema"), table.schema), pc.equal(rows.column("table"), table.table))
    return rows.filter(pc.and_(own, pc.greater(rows.column("position"), pa.scalar(position))))


def _is_drop(event: LandedEvent) -> bool:
    """Return whether an event is the DROP of its table."""
    with suppress(Unreadable):
        return event.kind is EventKind.DDL and first_words(event.query)[:2] == ("DROP", "TABLE")
    return False
