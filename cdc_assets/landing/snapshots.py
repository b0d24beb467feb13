"""Snapshots that a connector takes of its tables: all rows of one stand at one place, before the source's log.

A snapshot that was broken off is taken anew, and rows that were deleted in between are in no message.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdc_assets.formats.messages import is_of_snapshot
from cdc_assets.model.landed import Stream, StreamEnd
from cdc_assets.model.schema import TableId

__all__ = ["Snapshots"]

_STREAMED = "~"
"""Stands for the place of a snapshot behind which rows of the log have come; above every place."""


class Snapshots:
    """Where the newest snapshot of each table stands, as of the streams that were landed before."""

    def __init__(self, streams: Mapping[Stream, StreamEnd]) -> None:
        self._places = dict[tuple[TableId, str], str]()
        self._anew = {(stream.table, stream.source) for stream, end in streams.items() if end.anew}
        for stream, end in streams.items():
            if end.newest:
                place = end.newest if is_of_snapshot(end.newest) else _STREAMED
                mine = stream.table, stream.source
                self._places[mine] = max(place, self._places.get(mine, ""))

    def begins(self, stream: Stream, place: str, anew: bool) -> bool:
        """Return whether a row of a snapshot is of another one than the rows of its table before it.

        `anew` says that it is the first of one at the same place. Rows have to come in the order of their places.
        """
        mine = stream.table, stream.source
        if mine in self._anew:
            return False
        known = self._places.get(mine)
        self._places[mine] = place
        return known is not None and (known != place or anew)
