"""Snapshots that a connector takes of its tables: all rows of one stand at one place, before the source's log.

A snapshot that was broken off is taken anew, and rows that were deleted in between are in no message. Which of its rows
came is landed as events (`EventKind.SNAPSHOT`): from its first row to its last one it brings all that a table had.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cdc_assets.formats.messages import is_of_snapshot
from cdc_assets.model.landed import EventKind, Landed, SnapshotRow, Stream
from cdc_assets.model.schema import TableId

__all__ = ["Scan", "Snapshots"]

_STREAMED = "~"
"""Stands for the place of a snapshot behind which rows of the log have come; above every place."""


class Scan(NamedTuple):
    """A new row of a snapshot: `place` is that of the snapshot as the row states it, `phase` as in SPOKEN.

    `is_ordered` says that the row stands in that place in the landing, so that it can begin another snapshot. `anew` is
    set where it begins the snapshot once more at the same place.
    """

    stream: Stream
    place: str
    phase: str
    is_ordered: bool
    anew: bool = False


class Snapshots:
    """Where the newest snapshot of each table stands, and which of its rows came, as of what was landed before."""

    def __init__(self, before: Landed) -> None:
        self._places = dict[tuple[TableId, str], str]()
        self._anew = {(stream.table, stream.source) for stream, end in before.streams.items() if end.anew}
        for stream, end in before.streams.items():
            if end.newest:
                place = end.newest if is_of_snapshot(end.newest) else _STREAMED
                mine = stream.table, stream.source
                self._places[mine] = max(place, self._places.get(mine, ""))
        self._shown = dict[tuple[TableId | None, str, str], set[str]]()
        for event in before.events:
            if event.kind is EventKind.SNAPSHOT:
                self._shown.setdefault((event.table, event.source, event.source_position), set()).add(event.query)

    def begins(self, scan: Scan) -> bool:
        """Return whether a row is of another snapshot than the rows of its table before it.

        Rows have to come in the order of their places.
        """
        mine = scan.stream.table, scan.stream.source
        if mine in self._anew:
            return False
        known = self._places.get(mine)
        self._places[mine] = scan.place
        return known is not None and (known != scan.place or scan.anew)

    def shown(self, scan: Scan) -> Iterator[SnapshotRow]:
        """Yield what a row shows of its snapshot that no row before it has shown."""
        known = self._shown.setdefault((scan.stream.table, scan.stream.source, scan.place), set())
        if scan.anew:
            known.clear()
            yield SnapshotRow.ANEW
        word = SnapshotRow(scan.phase)
        if word in known or (word is SnapshotRow.WITHIN and SnapshotRow.FIRST in known):
            return
        known.add(word)
        yield word
