"""Find the times at which rows of a name can have been written with given columns. Pure.

A row is written with the columns that its table has at that moment, so the rows of a directory are from times at which
its columns were in force. A row of another time, a stray, shows that a DDL is not in the changefeed: an event filter
hides it, or its schema file was removed. How such a row would have to be converted is unknown, so it holds its table.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.table_history import Held, History, TableHistory
from cdc_assets.model.tso import FOREVER, Tso

Period = tuple[Tso, Tso]
"""From (inclusive) and to (exclusive)."""


class Strays:
    """The strays of one history; results are cached."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._in_force: dict[TableId, list[tuple[Life, Period, tuple[TableSchema, ...]]]] = {}
        self._known: dict[tuple[Life, TableId, str, Tso], tuple[Period, ...]] = {}

    def of(self, life: Life, name: TableId, root: str, version: Tso, own: TableSchema) -> tuple[Period, ...]:
        """Return the positions at which no row of a name can have been written with the columns `own` of a directory.

        These are times at which `life` has the name and other columns, or no table has the name. Times of other tables
        with that name do not count.
        """
        key = (life, name, root, version)
        if key not in self._known:
            fits = [
                period
                for holder, period, schemas in self._of(name)
                if holder != life or not schemas or any(own.decodes_like(schema) for schema in schemas)
            ]
            base = self._history.lives[life].base
            seen = 0 if base is None else base.at + 1  # rows from before are older than the dump, and ignored
            self._known[key] = tuple((max(a, seen), b) for a, b in _between(fits) if b > seen)
        return self._known[key]

    def _of(self, name: TableId) -> list[tuple[Life, Period, tuple[TableSchema, ...]]]:
        """The lives with the name by time, with their columns: () where those are unknown because the table is held."""
        folded = name.folded
        if folded not in self._in_force:
            self._in_force[folded] = [
                (table.life, (max(since, a), min(until, b)), schemas)
                for table, a, b in self._named.get(folded, ())
                for (since, until), schemas in _periods(table)
                if max(since, a) < min(until, b)
            ]
        return self._in_force[folded]

    @cached_property
    def _named(self) -> dict[TableId, list[tuple[TableHistory, Tso, Tso]]]:
        """The tables by the names that they had, folded, with the times from which and until which they had them."""
        named: dict[TableId, list[tuple[TableHistory, Tso, Tso]]] = {}
        for table in (*self._history.lives.values(), *self._history.unneeded.values()):
            for name, since, until in table.names:
                named.setdefault(name.folded, []).append((table, since, until))
        return named


def _periods(table: TableHistory) -> list[tuple[Period, tuple[TableSchema, ...]]]:
    """The columns of a table by time; DDL that leaves rows as they are begins no new period."""
    begun: list[tuple[Tso, tuple[TableSchema, ...]]] = []
    for event in table.events:
        if isinstance(event, Held):
            begun.append((event.at, ()))
            break
        if event.neutral and begun:
            begun[-1] = (begun[-1][0], (*begun[-1][1], event.after))
        else:
            begun.append((event.at, (event.after,)))
    begun[0] = (min(begun[0][0], table.names[0][1]), begun[0][1])
    ends = [since for since, _ in begun[1:]] + [FOREVER]
    return [((since, until), schemas) for (since, schemas), until in zip(begun, ends, strict=True)]


def _between(periods: Iterable[Period]) -> tuple[Period, ...]:
    """The times that are in none of the periods."""
    free_spans, at = [], 0
    for since, until in sorted(periods):
        if since > at:
            free_spans.append((at, since))
        at = max(at, until)
    return (*free_spans, (at, FOREVER)) if at < FOREVER else tuple(free_spans)
