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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.messages import Kind
from cdc_assets.landing.reading import Reading
from cdc_assets.landing.rows import REPEAT, ROW
from cdc_assets.landing.tables import schema_event
from cdc_assets.model.landed import EventKind, LandedEvent, Stream, StreamEnd
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.sources.topics.schema_events import format_schema, parse_schema

__all__ = ["OrderedReading", "follow"]

_AFTER_DDL = 2
_LAGS = "its row is older than others that were landed before it"
_PARTED = (
    "another part of the same statement was landed before it, so the two do not happen at once: rebuild the tables "
    "that it names"
)
_CLOCKS_DIFFER_MS = 10_000
"""By how much the clocks of those who send messages may differ, and how long a message may be on its way."""
_STEP = 2
"""Between two positions there is one at which the columns of the later row can begin."""


class _Line(NamedTuple):
    """A line of SPOKEN in the order of landing: its place in the source's log, rows before DDL, and where it is.

    A row without a place comes after the DDL before it in its partition. `late` says why a line cannot be put in its
    place, "" where it can. `placed` is set where the line itself states `at`.
    """

    at: str
    rank: int
    piece: int
    line: int
    repeated: bool
    late: str
    placed: bool = False


class _Given(NamedTuple):
    """What landing says of a line."""

    position: Tso
    repeated: bool
    late: str


@dataclass
class _Piece:
    partition: Partition
    batch: pa.RecordBatch
    spoken: pa.RecordBatch


@dataclass
class OrderedReading(Reading):
    """What was read since the newest landing of a protocol by offset."""

    held_bytes: int = 0
    clock_ms: int = 0
    _held: dict[Partition, list[_Piece]] = field(default_factory=dict)
    _reached: dict[Partition, int] = field(default_factory=dict)
    _floors: dict[object, str] = field(default_factory=dict)
    _first_places: dict[Partition, str] = field(default_factory=dict)
    _alike: set[tuple[TableId, str, str]] = field(default_factory=set)
    _ddl_times: dict[TableId, list[tuple[Tso, str]]] = field(default_factory=dict)

    @property
    def speaks(self) -> bool:
        """Return whether there is more to land than marks."""
        return super().speaks or bool(self._held)

    def __post_init__(self) -> None:
        super().__post_init__()
        shaped = (event for event in self.before.events if event.kind is EventKind.SCHEMA)
        self._shapes, self._current = dict[tuple[TableId, str], LandedEvent](), dict[TableId, LandedEvent]()
        for event in shaped:
            self._note_shape(event)
        self._ddl_places, self._row_places = dict[TableId, str](), dict[TableId, str]()
        for event in self.before.events:
            if event.kind is EventKind.DDL and event.table is not None and event.source_position:
                self._raise(self._ddl_places, event.table, event.source, event.source_position)
        for stream, end in self.before.streams.items():
            if end.newest:
                self._raise(self._row_places, stream.table, stream.source, end.newest)

    def _note_shape(self, event: LandedEvent) -> None:
        if event.shape and event.table is not None:
            self._shapes[event.table, event.shape] = event
            newest = self._current.get(event.table)
            if newest is None or newest.position <= event.position:
                self._current[event.table] = event

    def _raise(self, places: dict[TableId, str], table: TableId, source: str, at: str) -> None:
        place = f"{self.sources.index(source):06d}/{at}"
        places[table.folded] = max(place, places.get(table.folded, ""))

    def take(self, batch: pa.RecordBatch, wanted: OffsetRange) -> None:
        """Keep some messages of a range, in the order of their offsets."""
        if not batch.num_rows:
            return
        spoken = self._spoken(batch)
        self._held.setdefault(wanted.partition, []).append(_Piece(wanted.partition, batch, spoken))
        self.held_bytes += batch.nbytes
        self._reached[wanted.partition] = batch.column("offset")[-1].as_py() + 1

    def finish(self, wanted: OffsetRange) -> None:
        """Note that a range was read to its end."""
        self._reached[wanted.partition] = max(self._reached.get(wanted.partition, 0), wanted.stop)

    @property
    def reached(self) -> Mapping[Partition, int]:
        """The offset from which each partition is to be read on, whether it is landed or only kept."""
        return self._reached

    # --- how far ---

    def greatest(self, partitions: Sequence[Partition] | None = None) -> str:
        """Return the greatest place in the source's log that was read, "" if there was none; of some, the least."""
        found = []
        for partition in self._held if partitions is None else partitions:
            places = [at for piece in self._held.get(partition, ()) for at in self._places(piece) if at]
            found.append(max(places, default=""))
        return (max if partitions is None else min)(found, default="")

    def common_barrier(self, partitions: Sequence[Partition]) -> str | None:
        """Return the place through which every partition says that it is complete, None where one never does."""
        if self.options.sends_again:  # TiCDC's marks come to the topics of living tables only
            return None
        newest = {**self.before.barriers, **self._marks_read()}
        barriers = [newest.get(partition) for partition in partitions]
        return None if not barriers or None in barriers else min(at for at in barriers if at is not None)

    def newest_mark(self) -> str | None:
        """Return TiCDC's greatest mark that was read, None where none is greater than those before.

        It was sent after all rows at or below it were acknowledged. What stands above it waits for the next landing,
        and no longer: marks may have been switched off.
        """
        read = self._marks_read() if self.options.sends_again else {}
        self.barriers.update(read)
        mark = max(read.values(), default="")
        return mark if mark > max(self.before.barriers.values(), default="") else None

    def _marks_read(self) -> dict[Partition, str]:
        newest = dict[Partition, str]()
        for partition, held in self._held.items():
            for piece in held:
                kinds = piece.spoken.column("kind").to_pylist()
                for kind, at in zip(kinds, self._places(piece), strict=True):
                    if kind == Kind.RESOLVED.value and at:
                        newest[partition] = max(at, newest.get(partition, self.before.barriers.get(partition, "")))
        return newest

    def until(self, unread: Sequence[Partition]) -> int | None:
        """Return the broker time through which messages can be landed, in milliseconds; None where it is not known.

        TiCDC sends a DDL once all rows before it are in their partitions, and the rows after it later, at any offset.
        So a time parts no DDL from its rows: all that was sent through it is read, and no DDL was sent close to it.
        """
        held = [self._held.get(one) for one in unread]
        ends = [None if pieces is None else pieces[-1].batch.column("timestamp")[-1].as_py() for pieces in held]
        sent = self._ddl_sent()
        if None in (*ends, *sent):
            return None
        found: int = min(one for one in ends if one is not None) - _CLOCKS_DIFFER_MS
        for moment in sorted((one for one in sent if one is not None), reverse=True):
            if abs(moment - found) < _CLOCKS_DIFFER_MS:
                found = moment - _CLOCKS_DIFFER_MS
        begins = (pieces[0].batch.column("timestamp")[0].as_py() for pieces in self._held.values())
        return found if any(one is not None and one <= found for one in begins) else None

    @property
    def has_ddl(self) -> bool:
        """Return whether a DDL is among what is kept."""
        return bool(self._ddl_sent())

    def _ddl_sent(self) -> list[int | None]:
        found = list[int | None]()
        for held in self._held.values():
            for piece in held:
                lines = pc.equal(piece.spoken.column("kind"), Kind.DDL.value)
                sent = piece.batch.column("timestamp").take(piece.spoken.column("message").filter(lines))
                found += sent.to_pylist()
        return found

    def _places(self, piece: _Piece) -> list[str]:
        """The place of each line in the source's log, "" for none; logs follow each other as they were first met."""
        sources = piece.spoken.column("source").to_pylist()
        found = []
        for source, at in zip(sources, piece.spoken.column("source_position").to_pylist(), strict=True):
            name = source or ""
            if at and name not in self.sources:
                self.sources.append(name)
            found.append(f"{self.sources.index(name):06d}/{at}" if at else "")
        return found

    # --- in order ---

    def settle(self, through: str | None = None, until: int | None = None) -> None:
        """Land what is kept, of each partition what comes before the first message that is beyond `through`.

        With `until` also before the first that was sent after that time.
        """
        pieces, lines = list[_Piece](), list[_Line]()
        self._look_ahead()
        for partition in sorted(self._reached):
            for piece in self._before(partition, through, until):
                lines += self._followed(piece, len(pieces))
                pieces.append(piece)
        self._held, self._reached, self.held_bytes = {}, {}, 0
        lines.sort(key=lambda line: (line.at, line.rank))  # stable: offsets stay in order
        first = max(self.clock_ms << 18, self.last + _STEP)
        first += first % _STEP
        given: list[dict[int, _Given]] = [{} for _ in pieces]
        position, before = first - _STEP, None
        for line in lines:
            position += 0 if _is_together(before, line) else _STEP
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
        for partition, held in self._held.items():
            for piece in held:
                columns = (piece.spoken.column(name).to_pylist() for name in ("kind", "schema", "table", "commit_ts"))
                for at, kind, schema, table, ts in zip(self._places(piece), *columns, strict=True):
                    if at:
                        self._first_places.setdefault(partition, at)
                    if at and kind == Kind.DDL.value and table:
                        self._ddl_times.setdefault(TableId(schema, table).folded, []).append((ts, at))

    def _ddl_before(self, table: TableId, ts: Tso | None) -> str:
        """Return the place of the newest DDL of a table that was made when a row was read, or before."""
        times = self._ddl_times.get(table.folded, ()) if ts is not None else ()
        return max((at for made, at in times if ts is not None and made <= ts), default="")

    def _before(self, partition: Partition, through: str | None, until: int | None) -> Iterator[_Piece]:
        """Yield what is landed of a partition, and note how far that is."""
        for piece in self._held.get(partition, ()):
            message = self._first_beyond(piece, through, until)
            if message is None:
                yield piece
                continue
            self.next[partition] = piece.batch.column("offset")[message].as_py()
            kept = int(np.searchsorted(piece.spoken.column("message").to_numpy(), message))
            if kept:
                yield replace(piece, spoken=piece.spoken.slice(0, kept))
            return
        self.next[partition] = max(self.next.get(partition, 0), self._reached[partition])

    def _first_beyond(self, piece: _Piece, through: str | None, until: int | None) -> int | None:
        """Return the first message of a piece that is not landed yet."""
        found = list[int]()
        if through is not None:
            lines = (line for line, at in enumerate(self._places(piece)) if at and at > through)
            found += [piece.spoken.column("message")[line].as_py() for line in islice(lines, 1)]
        if until is not None:
            late = pc.greater(piece.batch.column("timestamp"), pa.scalar(until, pa.int64()))
            found += np.flatnonzero(late.fill_null(True).to_numpy(zero_copy_only=False))[:1].tolist()
        return min(found, default=None)

    def _followed(self, piece: _Piece, number: int) -> Iterator[_Line]:
        """Yield the lines of a piece in their order, and which of the rows had come before.

        A message without a place follows the one before it: of its table, else of its partition.
        """
        columns = (piece.spoken.column(name).to_pylist() for name in _TOLD)
        places, floors = self._places(piece), self._floors
        for line, (message, kind, schema, table, source, place, ts) in enumerate(zip(*columns, strict=True)):
            at, rank, repeated, late = places[line], int(kind == Kind.DDL.value), False, ""
            if kind == Kind.RESOLVED.value:
                if at:
                    self.barriers[piece.partition] = max(at, self.barriers.get(piece.partition, ""))
                    floors[piece.partition] = max(at, floors.get(piece.partition, ""))
                continue
            mine: object = piece.partition
            if kind == Kind.ROW.value:
                mine = stream = Stream(piece.partition, TableId(schema, table), source or "")
                known = self.streams.get(stream, StreamEnd())
                end = known
                if self.options.sends_again:
                    end, repeated = follow(known, place, partial(_digest, piece.batch, message))
                    self.streams[stream] = end
                if not repeated and place and self._is_first_again(known, place, piece.batch, message):
                    end, repeated = replace(known, again_at=1, again_after=0), True
                    self.streams[stream] = end
                late = "" if repeated or not at else self._below(at, self._ddl_places.get(stream.table.folded, ""))
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
            yield _Line(at, rank, number, line, repeated, late, bool(place))

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

    def _was_landed(self, piece: _Piece, line: int) -> bool:
        one = piece.spoken.slice(line, 1).to_pylist()[0]
        table = TableId(one["schema"], one["table"])
        return (one["source_position"], one["source"] or "", table, one["query"] or "") in self._ddl

    def _land_others(self, piece: _Piece, given: Mapping[int, _Given]) -> None:
        """Land what is not a row, and rows that came too late, with the positions of their lines."""
        offsets = piece.batch.column("offset")
        for line, one in enumerate(piece.spoken.to_pylist()):
            mine = given.get(line)
            if mine is not None and mine.late:
                one = {**one, "kind": Kind.BAD.value, "reason": mine.late}
            if one["kind"] != Kind.ROW.value:
                offset, at = offsets[one["message"]].as_py(), None if mine is None else mine.position
                self._take_other(one, piece.batch, piece.partition, offset, at)

    def _land_rows(self, piece: _Piece, given: Mapping[int, _Given]) -> None:
        kinds = piece.spoken.column("kind").to_pylist()
        lines = [line for line, kind in enumerate(kinds) if kind == Kind.ROW.value and not given[line].late]
        at = pa.array([given[line].position for line in lines], pa.int64())
        found = pa.array([REPEAT if given[line].repeated else ROW for line in lines], pa.string())
        spoken = piece.spoken.take(pa.array(lines, pa.int64()))
        self._take_rows(piece.batch, spoken, {"position": at, "last_position": at, "kind": found})

    def _note_shapes(
        self, pieces: Sequence[_Piece], lines: Sequence[_Line], given: Sequence[dict[int, _Given]]
    ) -> None:
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
            if shape is None or (name, shape) in self._shapes:
                self._come_back(name, shape, position, line.at)
                continue
            batch = pieces[line.piece].batch.slice(message, 1)
            for shown in self._schemas(batch):
                # deletes without columns may come before the first row that does
                at = position if shown.table in self.tables.with_schema else since
                self.tables.with_schema.add(shown.table)
                event = schema_event(batch, shown, at, shape)
                self._land_shape(replace(event, reason=self._lag(shown.table, line.at), source_position=line.at))

    def _land_shape(self, event: LandedEvent) -> None:
        self.events.append(event)
        self._note_shape(event)

    def _lag(self, table: TableId, at: str) -> str:
        """Return why columns that come again in a row were never gone, "" where the source has added them anew."""
        newest = self._current.get(table)
        return _LAGS if newest is not None and at < newest.source_position or not at else ""

    def _come_back(self, table: TableId, shape: str | None, position: Tso, at: str) -> None:
        """Note that rows have the columns of before again: they changed once more, or a partition lags behind.

        Of one that lags behind only columns count that the newest rows have not.
        """
        newest = self._current.get(table)
        if shape is None or newest is None or shape == newest.shape:
            return
        lag, before = self._lag(table, at), self._shapes[table, shape]
        if not lag:
            self._land_shape(replace(before, position=position, reason="", source_position=at))
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
        self._land_shape(replace(before, position=position, query=query, reason=lag, source_position=place))


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
