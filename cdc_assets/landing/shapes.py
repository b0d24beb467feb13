"""Shapes of rows: the columns that rows of a table have had, and which of them its newest rows have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from cdc_assets.formats.messages import SchemaEvent
from cdc_assets.landing.first_rows import schema_event
from cdc_assets.model.landed import EventKind, Landed, LandedEvent
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.sources.topics.columns_text import format_schema, parse_schema

__all__ = ["Shapes"]

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
