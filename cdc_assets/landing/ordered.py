"""Messages of protocols by offset: in which order they count, which of them had come before, their positions.

    OrderedReading.take(batch)    keep what was read, and what it speaks of
    OrderedReading.settle(whole)  land what is kept, each message with a position of its own

A landing is sorted by the source's own log where messages have their place in it, so that a DDL of one topic falls
between the rows of another; the order of offsets stays within the rows of a table in a partition. Where one writer
sends all tables in the order of its log, and where partitions say through where they are complete, a partition is
landed only as far as all are there, and goes on from there next time.

TiCDC sends each table by itself, and a DDL when all rows before it are there. What is too much for one landing is cut
by the time at which messages were sent, some seconds away from every DDL.

Positions are the time of landing as a TSO, and grow: they are in what is landed, so whoever reads it finds the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cdc_assets.formats.messages import Kind, is_of_snapshot, truncating
from cdc_assets.landing.kept import Kept, Piece
from cdc_assets.landing.reading import Reading
from cdc_assets.landing.rows import REPEAT, ROW
from cdc_assets.landing.shapes import Shapes
from cdc_assets.landing.snapshots import Snapshots
from cdc_assets.model.landed import EventKind, LandedEvent, Stream, StreamEnd
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

__all__ = ["OrderedReading", "follow"]

_AFTER_DDL = 2
_PARTED = (
    "another part of the same statement was landed before it, so the two do not happen at once: rebuild the tables "
    "that it names"
)
_ANEW = (
    "it was made after all that was landed of its table, and yet stands at {} of the source's log, below {}: the "
    "connector has taken another snapshot, or reads another log, as after a failover. What happened in between, "
    "deletes above all, may be missing. Let a connector with a new topic.prefix bring the tables as a feed of its own; "
    "or go on with what comes from here"
)
_ANOTHER = (
    "it begins another snapshot of its table, at {} of the source's log, and the table has rows of one before that in "
    "several partitions. Deletes in between are unknown. Let a connector with a new topic.prefix bring the tables as a "
    "feed of its own; or go on with what comes from here"
)
_INDEX = len("000000/")
_STEP = 2
"""Between two positions there is one at which the columns of the later row can begin."""


class _Line(NamedTuple):
    """A line of SPOKEN in the order of landing: its place in the source's log, rows before DDL, and where it is.

    A row without a place comes after the DDL before it in its partition. `late` says why a line cannot be put in its
    place, "" where it can. `placed` is set where the line itself states `at`. `scanned` is the stream of a new row of a
    snapshot.
    """

    at: str
    rank: int
    piece: int
    line: int
    repeated: bool
    late: str
    placed: bool = False
    scanned: Stream | None = None


class _Given(NamedTuple):
    """What landing says of a line."""

    position: Tso
    repeated: bool
    late: str


@dataclass
class OrderedReading(Reading):
    """What was read since the newest landing of a protocol by offset."""

    clock_ms: int = 0
    _floors: dict[object, str] = field(default_factory=dict)
    _first_places: dict[Partition, str] = field(default_factory=dict)
    _ddl_times: dict[TableId, list[tuple[Tso, str]]] = field(default_factory=dict)

    @property
    def speaks(self) -> bool:
        """Return whether there is more to land than marks."""
        return super().speaks or bool(self.kept)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.kept = Kept(self.sources)
        self._shapes = Shapes(self.before)
        self._ddl_places, self._row_places = dict[TableId, str](), dict[TableId, str]()
        for event in self.before.events:
            if event.kind is EventKind.DDL and event.table is not None and event.source_position:
                self._raise(self._ddl_places, event.table, event.source, event.source_position)
        for stream, end in self.before.streams.items():
            if end.newest:
                self._raise(self._row_places, stream.table, stream.source, end.newest)

    def _raise(self, places: dict[TableId, str], table: TableId, source: str, at: str) -> None:
        place = f"{self.sources.index(source):06d}/{at}"
        places[table.folded] = max(place, places.get(table.folded, ""))

    def take(self, batch: pa.RecordBatch, wanted: OffsetRange) -> None:
        """Keep some messages of a range, in the order of their offsets."""
        if not batch.num_rows:
            return
        batch = self.whole(batch)
        self.kept.add(Piece(wanted.partition, batch, self._spoken(batch)))

    def finish(self, wanted: OffsetRange) -> None:
        """Note that a range was read to its end."""
        self.kept.finish(wanted)

    # --- how far ---

    def common_barrier(self, partitions: Sequence[Partition]) -> str | None:
        """Return the place through which every partition says that it is complete, None where one never does.

        One that was declared dead says nothing any more.
        """
        if self.options.sends_again:  # TiCDC's marks come to the topics of living tables only
            return None
        newest = {**self.before.barriers, **self.kept.marks(self.before.barriers)}
        dead = self.before.dead - self.kept.reached.keys()
        barriers = [newest.get(partition) for partition in partitions if partition not in dead]
        return None if not barriers or None in barriers else min(at for at in barriers if at is not None)

    def through(self, unread: Sequence[OffsetRange], partitions: Iterable[Partition]) -> str | None:
        """Return the place through which all is read while some ranges are not read to their ends."""
        places = self.common_barrier(list(partitions)), self.kept.greatest([one.partition for one in unread]) or None
        return min((one for one in places if one is not None), default=None)

    def newest_mark(self) -> str | None:
        """Return TiCDC's greatest mark that was read, None where none is greater than those before.

        It was sent after all rows at or below it were acknowledged. What stands above it waits for the next landing,
        and no longer: marks may have been switched off.
        """
        read = self.kept.marks(self.before.barriers) if self.options.sends_again else {}
        self.barriers.update(read)
        mark = max(read.values(), default="")
        return mark if mark > max(self.before.barriers.values(), default="") else None

    # --- in order ---

    def settle(self, through: str | None = None, until: int | None = None) -> None:
        """Land what is kept, of each partition what comes before the first message that is beyond `through`.

        With `until` also before the first that was sent after that time.
        """
        pieces, lines = list[Piece](), list[_Line]()
        self._look_ahead()
        for partition, reached in sorted(self.kept.reached.items()):
            landed, beyond = self.kept.part(partition, through, until)
            self.next[partition] = max(self.next.get(partition, 0), reached) if beyond is None else beyond
            for piece in landed:
                offsets = piece.batch.column("offset").to_numpy()
                self.messages += len(offsets) if beyond is None else int(np.searchsorted(offsets, beyond))
                lines += self._followed(piece, len(pieces))
                pieces.append(piece)
        self.kept.clear()
        lines.sort(key=lambda line: (line.at, line.rank))  # stable: offsets stay in order
        first = max(self.clock_ms << 18, self.last + _STEP)
        first += first % _STEP
        given: list[dict[int, _Given]] = [{} for _ in pieces]
        position, before = first - _STEP, None
        snapshots = Snapshots(self.before.streams)
        for line in lines:
            position += 0 if _is_together(before, line) else _STEP
            if line.scanned is not None and snapshots.begins(line.scanned, line.at[_INDEX:]):
                line, position = self._at_snapshot(line.scanned, line, pieces[line.piece], position)
            given[line.piece][line.line] = _Given(position, line.repeated, line.late)
            before = line
        self._note_shapes(pieces, lines, given)
        for piece, mine in zip(pieces, given, strict=True):
            self._land_others(piece, mine)
            self._land_rows(piece, mine)
        if lines:
            self.last = position

    def _look_ahead(self) -> None:
        """Note what rows without a place are put by: the first place of their partition, and the DDL of their table."""
        for piece in self.kept:
            columns = (piece.spoken.column(name).to_pylist() for name in ("kind", "schema", "table", "commit_ts"))
            for at, kind, schema, table, ts in zip(self.kept.places(piece), *columns, strict=True):
                if at:
                    self._first_places.setdefault(piece.partition, at)
                if at and kind == Kind.DDL.value and table:
                    self._ddl_times.setdefault(TableId(schema, table).folded, []).append((ts, at))

    def _ddl_before(self, table: TableId, ts: Tso | None) -> str:
        """Return the place of the newest DDL of a table that was made when a row was read, or before."""
        times = self._ddl_times.get(table.folded, ()) if ts is not None else ()
        return max((at for made, at in times if ts is not None and made <= ts), default="")

    def _followed(self, piece: Piece, number: int) -> Iterator[_Line]:
        """Yield the lines of a piece in their order, and which of the rows had come before.

        A message without a place follows the one before it: of its table, else of its partition.
        """
        columns = (piece.spoken.column(name).to_pylist() for name in _TOLD)
        places, floors = self.kept.places(piece), self._floors
        for line, (message, kind, schema, table, source, place, ts) in enumerate(zip(*columns, strict=True)):
            at, rank, repeated, late = places[line], int(kind == Kind.DDL.value), False, ""
            if kind == Kind.RESOLVED.value:
                if at:
                    self.barriers[piece.partition] = max(at, self.barriers.get(piece.partition, ""))
                    floors[piece.partition] = max(at, floors.get(piece.partition, ""))
                continue
            mine: object = piece.partition
            scanned = None
            if kind == Kind.ROW.value:
                mine = stream = Stream(piece.partition, TableId(schema, table), source or "")
                end, repeated, late = self._follow(stream, place, ts, piece.batch, message)
                if at and not (repeated or end.anew):
                    late = self._below(at, self._ddl_places.get(stream.table.folded, ""))
                if end.newest:
                    at = f"{self.sources.index(stream.source):06d}/{end.newest}"
                ddl = floors.get((piece.partition, Kind.DDL), "") if place == "" else ""
                ddl = self._ddl_before(stream.table, ts) if place is None else ddl
                if ddl and not repeated and ddl >= at:  # it comes behind the DDL in its partition, or of its table
                    at, rank = ddl, _AFTER_DDL
                if place == "" and not at:
                    at = floors.get(piece.partition) or self._first_places.get(piece.partition, "")
            elif kind == Kind.DDL.value and at and table and not self._was_landed(piece, line):
                late = self._below(at, self._row_places.get(TableId(schema, table).folded, ""))
                late = late or (_PARTED if at in self._ddl_places.values() else "")
            at = max(at or floors.get(piece.partition, ""), floors.get(mine, "") if mine != piece.partition else "")
            floors[mine] = floors[piece.partition] = at
            if kind == Kind.DDL.value and place:
                floors[piece.partition, Kind.DDL] = at
            if kind == Kind.ROW.value and self._is_scanned(place, at) and not (repeated or late):
                scanned = stream
            yield _Line(at, rank, number, line, repeated, late, bool(place), scanned)

    def _is_scanned(self, place: str | None, at: str) -> bool:
        """Return whether a row is of a snapshot, and stands in its place."""
        return self.options.in_source_order and is_of_snapshot(place or "") and at[_INDEX:] == place

    def _follow(
        self, stream: Stream, place: str | None, ts: Tso | None, batch: pa.RecordBatch, message: int
    ) -> tuple[StreamEnd, bool, str]:
        """Return how a stream ends with a row, whether that had come before, and why it has no place in the log."""
        known, late = self.streams.get(stream, StreamEnd()), ""
        if not self.options.sends_again:
            return known, False, late
        end, repeated = follow(known, place, partial(_digest, batch, message))
        if not repeated and place and self._is_first_again(known, place, batch, message):
            end, repeated = replace(known, again_at=1, again_after=0), True
        if self.options.in_source_order and place and ts:
            if repeated and 0 < known.made < ts:  # no copy is newer than what it is a copy of
                late = _ANEW.format(_shown(f"000000/{place}"), _shown(f"000000/{known.newest}"))
                end, repeated = StreamEnd(place, 1, 0, _digest(batch, message), anew=True), False
            made, anew = max(ts, known.made), end.anew or known.anew
            end = StreamEnd(
                end.newest, end.at, end.after, end.first, end.again_at, end.again_after, made, anew
            )  # not by `replace`, which takes several times as long
        self.streams[stream] = end
        return end, repeated, late

    def _at_snapshot(self, stream: Stream, line: _Line, piece: Piece, position: Tso) -> tuple[_Line, Tso]:
        """Return the line of a row with which another snapshot of its table begins, and its position.

        What was there before is gone: the table is emptied where one partition has all of it. Of several none shows
        that, and the table is held.
        """
        mine = {one.partition for one in self.streams if (one.table, one.source) == (stream.table, stream.source)}
        if len(mine) > 1:
            return line._replace(late=_ANOTHER.format(_shown(line.at))), position
        return line, position + (_STEP if self._empty(stream, piece, line, position) else 0)

    def _empty(self, stream: Stream, piece: Piece, line: _Line, position: Tso) -> bool:
        """Take what a broken snapshot brought out of its table again, once; return whether that was still to be done.

        Rows that were deleted before the next snapshot are not in it, and no message says so.
        """
        spoken = piece.spoken.slice(line.line, 1).to_pylist()[0]
        event = LandedEvent(
            EventKind.DDL, piece.partition, piece.batch.column("offset")[spoken["message"]].as_py(), position,
            stream.table, truncating(stream.table), 11, source=stream.source,
            source_position=spoken["source_position"], commit_ts=spoken["commit_ts"] or 0,
        )  # fmt: skip
        if self._identity(event) in self._ddl:
            return False
        self._take_ddl(event)
        return True

    def _is_first_again(self, known: StreamEnd, place: str, batch: pa.RecordBatch, message: int) -> bool:
        """Return whether a row with a key is the one at the end of its stream, where a connector's replay may begin."""
        ends = self.options.in_source_order and place == known.newest and known.again_at < 0
        return ends and batch.column("key")[message].is_valid and _digest(batch, message) == known.first

    def _below(self, at: str, landed: str) -> str:
        return (
            ""
            if at >= landed
            else f"it stands at {_shown(at)} of the source's log, below what was landed of its "
            f"table, through {_shown(landed)}: it came too late to be put in its place"
        )

    # --- landed ---

    def _identity(self, event: LandedEvent) -> tuple[Any, ...]:
        """A DDL is the same where its place in the source's log is."""
        place = event.source_position or (event.partition, event.offset)
        return place, event.source, event.table, event.query

    def _position_of_bad(self, event: LandedEvent) -> Tso:
        return event.position - 1

    def _was_landed(self, piece: Piece, line: int) -> bool:
        one = piece.spoken.slice(line, 1).to_pylist()[0]
        table = TableId(one["schema"], one["table"])
        return (one["source_position"], one["source"] or "", table, one["query"] or "") in self._ddl

    def _land_others(self, piece: Piece, given: Mapping[int, _Given]) -> None:
        """Land what is not a row, and rows that came too late, with the positions of their lines."""
        offsets = piece.batch.column("offset")
        for line, one in enumerate(piece.spoken.to_pylist()):
            mine = given.get(line)
            if mine is not None and mine.late:
                one = {**one, "kind": Kind.BAD.value, "reason": mine.late}
            if one["kind"] != Kind.ROW.value:
                offset, at = offsets[one["message"]].as_py(), None if mine is None else mine.position
                self._take_other(one, piece.batch, piece.partition, offset, at)

    def _land_rows(self, piece: Piece, given: Mapping[int, _Given]) -> None:
        kinds = piece.spoken.column("kind").to_pylist()
        lines = [line for line, kind in enumerate(kinds) if kind == Kind.ROW.value and not given[line].late]
        at = pa.array([given[line].position for line in lines], pa.int64())
        found = pa.array([REPEAT if given[line].repeated else ROW for line in lines], pa.string())
        spoken = piece.spoken.take(pa.array(lines, pa.int64()))
        self._take_rows(piece.batch, spoken, {"position": at, "last_position": at, "kind": found})

    def _note_shapes(self, pieces: Sequence[Piece], lines: Sequence[_Line], given: Sequence[dict[int, _Given]]) -> None:
        """Write down the columns of rows of a shape that was not there before, from the first such row on."""
        columns = [
            [piece.spoken.column(name).to_pylist() for name in ("kind", "schema", "table", "shape", "message")]
            for piece in pieces
        ]
        first = {table: at for table, at in self.before.began.items() if table not in self.tables.with_ddl}
        for line in lines:
            kind, schema, table, shape, message = (column[line.line] for column in columns[line.piece])
            if kind != Kind.ROW.value or line.repeated or line.late:
                continue
            name, position = TableId(schema, table), given[line.piece][line.line].position
            since = position if name in self.tables.with_ddl else first.setdefault(name, position)
            if shape is None:
                continue
            if self._shapes.knows(name, shape):
                self.events.extend(self._shapes.again(name, shape, position, line.at))
                continue
            batch = pieces[line.piece].batch.slice(message, 1)
            for shown in self._schemas(batch):
                # deletes without columns may come before the first row that does
                at = position if shown.table in self.tables.with_schema else since
                self.tables.with_schema.add(shown.table)
                self.events.append(self._shapes.first(batch, shown, at, shape, line.at))


_TOLD = ("message", "kind", "schema", "table", "source", "source_position", "commit_ts")


def _is_together(before: _Line | None, line: _Line) -> bool:
    """Return whether a DDL happens at once with the line before it, as the renames of one statement do."""
    return before is not None and before.rank > 0 and line.placed and before.placed and before.at == line.at


def _shown(place: str) -> str:
    return ".".join(part.lstrip("0") or "0" if part.isdigit() else part for part in place[7:].split("."))


def _digest(batch: pa.RecordBatch, message: int) -> str:
    """Return what is equal for copies of a message."""
    key, value = (batch.column(name)[message].as_py() for name in ("key", "value"))
    value = value and _SENT.sub(b"", value)
    return hashlib.blake2b(repr((key, value)).encode(), digest_size=8).hexdigest()


_SENT = re.compile(rb',"ts_[mun]s":\d+')
"""When a connector sent a message; copies differ in it. The time of the change is the same in all of them."""


def follow(end: StreamEnd, at: str | None, digest: Callable[[], str]) -> tuple[StreamEnd, bool]:
    """Return how a stream ends with one more row, and whether that row had come before.

    `at` is the row's place in the source's log: "" for one that stands where the row before it does, None for one that
    has nothing to do with places. Rows of a stream come in the order of the log, so what is below its end has come
    before, and what stands at its end, or after it without a place, as often as that was there. A replay that begins
    with the very row at the end is known by its being the same.
    """
    if at is None:
        return end, False
    again = end.again_at >= 0
    if at == "":
        if again and end.again_at < end.at:
            return end, True
        if again and end.again_after < end.after:
            return replace(end, again_after=end.again_after + 1), True
        return replace(end, after=end.after + bool(end.newest), again_at=-1, again_after=-1), False
    if at > end.newest:
        return StreamEnd(at, 1, 0, digest()), False
    if at < end.newest:
        return replace(end, again_at=0, again_after=0), True
    if again and end.again_at < end.at:
        return replace(end, again_at=end.again_at + 1), True
    if not again and end.after and digest() == end.first:
        return replace(end, again_at=1, again_after=0), True
    return replace(end, at=end.at + 1, after=0, again_at=-1, again_after=-1), False
