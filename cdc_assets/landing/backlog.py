"""Messages of protocols by offset that are read and not landed yet: how far they go, and what of them can be landed.

Backlog.add(piece)               keep what was read of a partition
Backlog.greatest(), .marks()     how far that goes in the source's log
Backlog.until(unread)            how far in the time at which messages were sent
Backlog.part(partition, …)       what comes before a place or time
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.messages import Kind
from cdc_assets.model.offsets import OffsetRange, Partition

__all__ = ["Backlog", "Piece"]

_CLOCKS_DIFFER_MS = 10_000
"""By how much the clocks of those who send messages may differ, and how long a message may be on its way."""


@dataclass
class Piece:
    """Messages of a partition, and the lines of CLASSIFIED that they hold."""

    partition: Partition
    batch: pa.RecordBatch
    spoken: pa.RecordBatch


class Backlog:
    """What is kept of each partition, in the order of offsets. `sources` are the logs in the order they were met in.

    A place in the source's log is `NNNNNN/POSITION`: the number of the log, and what its messages say. `reached` has
    the offset from which each partition is to be read on.
    """

    def __init__(self, sources: list[str]) -> None:
        self.bytes = 0
        self.reached = dict[Partition, int]()
        self._sources = sources
        self._pieces = dict[Partition, list[Piece]]()

    def __bool__(self) -> bool:
        """Return whether anything is kept."""
        return bool(self._pieces)

    def __iter__(self) -> Iterator[Piece]:
        """Yield all pieces, those of a partition one after the other."""
        for pieces in self._pieces.values():
            yield from pieces

    def add(self, piece: Piece) -> None:
        """Keep some messages, which follow those that are kept of their partition."""
        self._pieces.setdefault(piece.partition, []).append(piece)
        self.bytes += piece.batch.nbytes
        self.reached[piece.partition] = piece.batch.column("offset")[-1].as_py() + 1

    def finish(self, wanted: OffsetRange) -> None:
        """Note that a range was read to its end."""
        self.reached[wanted.partition] = max(self.reached.get(wanted.partition, 0), wanted.stop)

    def clear(self) -> None:
        """Keep nothing any more."""
        self._pieces, self.reached, self.bytes = {}, {}, 0

    # --- in the source's log ---

    def places(self, piece: Piece) -> list[str]:
        """The place of each line in the source's log, "" for none; logs follow each other as they were first met."""
        return self._numbered(piece, piece.spoken.column("source_position"))

    def _reaches(self, piece: Piece) -> list[str]:
        """How far the source's log was at each line: its place, or where it was read where it has none."""
        columns = (piece.spoken.column(name) for name in ("source_position", "read_at"))
        return self._numbered(piece, pc.coalesce(*columns))

    def _numbered(self, piece: Piece, column: pa.StringArray) -> list[str]:
        found = []
        for source, at in zip(piece.spoken.column("source").to_pylist(), column.to_pylist(), strict=True):
            name = source or ""
            if at and name not in self._sources:
                self._sources.append(name)
            found.append(f"{self._sources.index(name):06d}/{at}" if at else "")
        return found

    def greatest(self, partitions: Sequence[Partition] | None = None) -> str:
        """Return the greatest place in the source's log that was read, "" if there was none; of some, the least."""
        found = []
        for partition in self._pieces if partitions is None else partitions:
            reached = (at for piece in self._pieces.get(partition, ()) for at in self._reaches(piece))
            found.append(max(reached, default=""))
        return (max if partitions is None else min)(found, default="")

    def marks(self, before: Mapping[Partition, str]) -> dict[Partition, str]:
        """Return the greatest mark of each partition that has one, no less than that of `before`."""
        newest = dict[Partition, str]()
        for piece in self:
            kinds = piece.spoken.column("kind").to_pylist()
            for kind, at in zip(kinds, self.places(piece), strict=True):
                if kind == Kind.RESOLVED.value and at:
                    known = newest.get(piece.partition, before.get(piece.partition, ""))
                    newest[piece.partition] = max(at, known)
        return newest

    # --- in time ---

    def until(self, unread: Sequence[Partition]) -> int | None:
        """Return the broker time through which messages can be landed, in milliseconds; None where it is not known.

        TiCDC sends a DDL once all rows before it are in their partitions, and the rows after it later, at any offset.
        So a time parts no DDL from its rows: all that was sent through it is read, and no DDL was sent close to it.
        """
        held = [self._pieces.get(one) for one in unread]
        ends = [None if pieces is None else pieces[-1].batch.column("timestamp")[-1].as_py() for pieces in held]
        sent = self._ddl_sent()
        if None in (*ends, *sent):
            return None
        found: int = min(one for one in ends if one is not None) - _CLOCKS_DIFFER_MS
        for moment in sorted((one for one in sent if one is not None), reverse=True):
            if abs(moment - found) < _CLOCKS_DIFFER_MS:
                found = moment - _CLOCKS_DIFFER_MS
        begins = (pieces[0].batch.column("timestamp")[0].as_py() for pieces in self._pieces.values())
        return found if any(one is not None and one <= found for one in begins) else None

    @property
    def has_ddl(self) -> bool:
        """Return whether a DDL is among what is kept."""
        return bool(self._ddl_sent())

    def _ddl_sent(self) -> list[int | None]:
        found = list[int | None]()
        for piece in self:
            lines = pc.equal(piece.spoken.column("kind"), Kind.DDL.value)
            sent = piece.batch.column("timestamp").take(piece.spoken.column("message").filter(lines))
            found += sent.to_pylist()
        return found

    # --- what can be landed ---

    def part(self, partition: Partition, through: str | None, until: int | None) -> tuple[list[Piece], int | None]:
        """Return what of a partition comes before the first message beyond a place or time, and that one's offset.

        None as the offset where all that is kept comes before.
        """
        found = list[Piece]()
        for piece in self._pieces.get(partition, ()):
            message = self._first_beyond(piece, through, until)
            if message is None:
                found.append(piece)
                continue
            kept = int(np.searchsorted(piece.spoken.column("message").to_numpy(), message))
            if kept:
                found.append(replace(piece, spoken=piece.spoken.slice(0, kept)))
            return found, piece.batch.column("offset")[message].as_py()
        return found, None

    def part_to_mark(self, partition: Partition, through: str) -> tuple[list[Piece], int | None]:
        """Return what of a partition comes before its last mark at or below a place, with that, and the offset behind.

        None as the offset where all that is kept comes before.
        """
        pieces, kept, message = self._pieces.get(partition, []), 0, -1
        for number, piece in enumerate(pieces, 1):
            columns = (piece.spoken.column(name).to_pylist() for name in ("message", "kind"))
            for at, line_message, kind in zip(self.places(piece), *columns, strict=True):
                if kind == Kind.RESOLVED.value and at and at <= through:
                    kept, message = number, line_message
        if not kept:
            first = pieces[0].batch.column("offset")[0].as_py() if pieces else None
            return [], first
        last = pieces[kept - 1]
        count = int(np.searchsorted(last.spoken.column("message").to_numpy(), message, side="right"))
        found = [*pieces[: kept - 1], replace(last, spoken=last.spoken.slice(0, count))]
        if message + 1 < last.batch.num_rows:
            return found, last.batch.column("offset")[message + 1].as_py()
        return found, pieces[kept].batch.column("offset")[0].as_py() if kept < len(pieces) else None

    def _first_beyond(self, piece: Piece, through: str | None, until: int | None) -> int | None:
        """Return the first message of a piece that is not landed yet."""
        found = list[int]()
        if through is not None:
            lines = (line for line, at in enumerate(self._reaches(piece)) if at > through)
            found += [piece.spoken.column("message")[line].as_py() for line in islice(lines, 1)]
        if until is not None:
            late = pc.greater(piece.batch.column("timestamp"), pa.scalar(until, pa.int64()))
            found += np.flatnonzero(late.fill_null(True).to_numpy(zero_copy_only=False))[:1].tolist()
        return min(found, default=None)
