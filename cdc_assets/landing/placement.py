"""Messages of protocols by offset: how far they are read, and what of them is landed, with positions of its own.

    OffsetBatch.take(batch)    keep what was read, and what it speaks of
    OffsetBatch.settle(whole)  land the backlog, each message with a position of its own

A landing is sorted by the source's own log where messages have their place in it, so that a DDL of one topic falls
between the rows of another; the order of offsets stays within the rows of a table in a partition. Where one writer
sends all tables in the order of its log, and where partitions say through where they are complete, a partition is
landed only as far as all are there, and goes on from there next time. What outgrows a landing before the next such
place is landed all the same, and seen once all partitions are complete beyond it.

TiCDC sends each table by itself, and a DDL when all rows before it are there. What is too much for one landing is cut
by the time at which messages were sent, some seconds away from every DDL.

Positions are the time of landing as a TSO, and grow: they are in what is landed, so whoever reads it finds the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.messages import Kind, SchemaEvent, truncating
from cdc_assets.landing.batch import LandingBatch
from cdc_assets.landing.files import REPEAT, ROW
from cdc_assets.landing.keyless import KeylessRows
from cdc_assets.landing.order import Backlog, Line, Piece, Scan, Snapshots, SourceOrder, place_text, same_statement
from cdc_assets.landing.partition_reader import as_landed, schema_event
from cdc_assets.model.landed import Decision, EventKind, Landed, LandedEvent
from cdc_assets.model.offsets import Ends, OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.sources.topics.columns_text import format_schema, parse_schema

_ANOTHER = (
    "it begins another snapshot of its table, at {} of the source's log, and the table has rows of one before that in "
    "several partitions. Deletes in between are unknown. Let a connector with a new topic.prefix bring the tables as a "
    "feed of its own; or go on with what comes from here"
)
_STATED = "a statement of the columns that its table has, sent with a snapshot for which a person asked"
_STEP = 2
"""Between two positions there is one at which the columns of the later row can begin."""


class Placements:
    """Placement of the lines of a piece: their positions (0 for none), which are repeated, and why some are late.

    Columns of numbers take a tenth of the memory of an object for each line.
    """

    def __init__(self, count: int) -> None:
        self.positions = array("q", bytes(8 * count))
        self.repeated = bytearray(count)
        self.late = dict[int, str]()

    def put(self, line: Line, position: Tso) -> None:
        """Give a line its position."""
        self.positions[line.line], self.repeated[line.line] = position, line.repeated
        if line.late:
            self.late[line.line] = line.late


class CommonBarrier(NamedTuple):
    """The place through which every partition of some topics says that it is complete."""

    place: str
    topics: frozenset[str]


class OffsetBatch:
    """Messages of a protocol by offset since the newest landing: a backlog, out of which `batch` is filled.

    `clock_ms` is the time of the landing, `keyless` decides about rows without key.
    """

    def __init__(self, batch: LandingBatch, clock_ms: int, keyless: KeylessRows) -> None:
        self.batch, self.clock_ms, self._keyless = batch, clock_ms, keyless
        self.before, self.options = batch.before, batch.reader.options
        self.backlog, self.proven = Backlog(batch.sources), self.before.proven
        self._ends: Ends = {}
        self._shapes = Shapes(self.before)
        self._order = SourceOrder(
            self.before, self.options, self.backlog, batch.sources, batch.streams, batch.barriers,
            proves_ends=batch.reader.proves_ends,
        )  # fmt: skip

    @property
    def more_than_marks(self) -> bool:
        """Return whether there is more to land than marks."""
        return self.batch.more_than_marks or bool(self.backlog)

    def take(self, batch: pa.RecordBatch, partition: Partition) -> None:
        """Keep some messages of a partition, in the order of their offsets."""
        batch = self.batch.reader.whole(batch)
        self.backlog.add(Piece(partition, batch, self.batch.classify(batch)))

    # --- how far ---

    def begin(self, ends: Ends) -> None:
        """Note where the logs of new partitions begin.

        Those that came later count as complete through the barrier that their topic had before them.
        """
        self._ends = ends
        self.batch.begin(ends)
        partitions = self.before.next.keys() - self.before.dead.keys()
        for partition in () if self.options.sends_again else ends:
            before = (
                self.before.barriers.get(known_partition, "")
                for known_partition in partitions
                if known_partition.topic == partition.topic
            )
            if partition not in self.before.next and (barrier := min(before, default="")):
                self.batch.barriers.setdefault(partition, barrier)

    def common_barrier(self, ends: Ends) -> CommonBarrier | None:
        """Return the place through which all partitions of topics that have barriers are complete, None without any.

        A topic has barriers once one of its partitions has brought one. While another has brought none it is complete
        through no place: its rows may be older, also where it came by a split. A silent one is not waited for.
        """
        if self.options.sends_again:  # TiCDC's marks come to the topics of living tables only
            return None
        newest, topics = {**self.batch.barriers, **self.backlog.marks(self.before.barriers)}, dict[str, str]()
        with_barriers = {partition.topic for partition in newest}
        for partition in ends:
            if partition.topic in with_barriers and not self._is_silent(partition):
                at = newest.get(partition, "")
                topics[partition.topic] = min(at, topics.get(partition.topic, at))
        return CommonBarrier(min(topics.values()), frozenset(topics)) if topics else None

    def _is_silent(self, partition: Partition) -> bool:
        """Return whether a partition says nothing any more, until something comes to it.

        One was declared dead, and all that came to it is read. Or all of it had expired before it was first read: where
        barriers come, they come to every partition that is open, long before messages expire.
        """
        end, start = self._ends[partition].high, self.batch.starts.get(partition)
        read = max(self.backlog.reached.get(partition, 0), self.batch.reader.next.get(partition, 0))
        is_dead = end <= min(read, self.before.dead.get(partition, -1))
        return is_dead or (start is not None and end <= start.offset)

    def without_places(self, barrier: CommonBarrier | None) -> set[str]:
        """Return the topics with barriers of which no row in the backlog has a place."""
        rows, placed = set[str](), set[str]()
        for piece in self.backlog if barrier else ():
            is_row = pc.equal(piece.spoken.column("kind"), Kind.ROW.value)
            places = piece.spoken.column("source_position").filter(is_row)
            rows.update([piece.partition.topic] if len(places) else ())
            placed.update([piece.partition.topic] if places.null_count < len(places) else ())
        return {topic for topic in rows - placed if barrier and topic in barrier.topics}

    def with_offsets_alone(self, barrier: CommonBarrier | None) -> set[str]:
        """Return the topics of which nothing but partitions and offsets puts in order what is in the backlog.

        YDB writes rows under a key into one partition, and after that was split into one with a greater number.
        """
        if self.options.sends_again:
            return set()
        placed = {piece.partition.topic for piece in self.backlog if any(self.backlog.places(piece))}
        with_barriers = barrier.topics if barrier else frozenset()
        return {partition.topic for partition in self.backlog.reached} - placed - with_barriers

    def unplaced(self, unread: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Return the ranges of a connector that brought nothing with a place so far, though others did.

        What comes next in them may stand before all that is read: of a topic of transactions or heartbeats nothing has
        a place, and of a table's nothing may, as long as a table is read anew beside its changes.
        """
        if not self.options.in_source_order or not self.backlog.greatest():
            return []
        return [span for span in unread if not self.backlog.greatest([span.partition])]

    def through(self, unread: Sequence[OffsetRange], barrier: CommonBarrier | None = None) -> str | None:
        """Return the place through which all is read while some ranges are not read to their ends.

        Where a barrier is given, none beyond that; before all places while a range is `unplaced`.
        """
        read = self.backlog.greatest([span.partition for span in unread])
        if self.unplaced(unread):
            return ""
        return min(([read] if read else []) + ([barrier.place] if barrier else []), default=None)

    def lands(self, through: str | None, barrier: CommonBarrier | None = None) -> bool:
        """Return whether anything of the backlog comes before a place, or in a topic that waits for no barrier."""
        bare = self.without_places(barrier)
        return any(self._part(partition, through, None, barrier, bare)[0] for partition in self.backlog.reached)

    def _part(
        self,
        partition: Partition,
        through: str | None,
        until: int | None,
        barrier: CommonBarrier | None,
        bare: Collection[str],
    ) -> tuple[list[Piece], int | None]:
        if barrier is None or (partition.topic in barrier.topics and partition.topic not in bare):
            return self.backlog.part(partition, through, until)
        waits = partition.topic in bare and through is not None and through <= barrier.place
        if through is not None and waits and not self._is_silent(partition):
            return self.backlog.part_to_mark(partition, through)
        return self.backlog.part(partition, None, until)

    def newest_mark(self) -> str | None:
        """Return TiCDC's greatest mark that was read, None where none is greater than those before.

        It was sent after all rows at or below it were acknowledged. What stands above it waits for the next landing,
        and no longer: marks may have been switched off.
        """
        read = self.backlog.marks(self.before.barriers) if self.options.sends_again else {}
        self.batch.barriers.update(read)
        mark = max(read.values(), default="")
        return mark if mark > max(self.before.barriers.values(), default="") else None

    # --- in order ---

    def settle(
        self, through: str | None = None, until: int | None = None, barrier: CommonBarrier | None = None
    ) -> None:
        """Land the backlog, of each partition what comes before the first message that is beyond `through`.

        With `until` also before the first that was sent after that time. What is landed is seen, but while some of it
        is beyond the `barrier`.
        """
        self._order.look_ahead()
        pieces, lines = self._taken(through, until, barrier)
        self._order.finish()
        self.backlog.clear()
        lines = self._in_source_order(pieces, lines)
        placements = self._placed(pieces, lines)
        for piece_number, number, reason in (*self._order.without_rows(), *self._order.of_others()):
            placements[piece_number].late[number] = reason
        self.batch.events.extend(self._with_rows())
        self._note_shapes(pieces, lines, placements)
        for piece, of_piece in zip(pieces, placements, strict=True):
            self._land_others(piece, of_piece)
            self._land_rows(piece, of_piece)
        held_topics = barrier.topics if barrier is not None else ()
        waiting = (line.at for line in lines if pieces[line.piece].partition.topic in held_topics)
        self.batch.ahead = max(self.batch.ahead, self._order.ahead, max(waiting, default=""))
        self._close(barrier)

    def _taken(
        self, through: str | None, until: int | None, barrier: CommonBarrier | None
    ) -> tuple[list[Piece], list[Line]]:
        """Return the pieces of the backlog that `settle` lands, and their lines, and move the reader on behind them."""
        reader, pieces, lines = self.batch.reader, list[Piece](), list[Line]()
        bare = self._order.bare = self.without_places(barrier)
        for partition, reached in sorted(self.backlog.reached.items()):
            landed, beyond = self._part(partition, through, until, barrier, bare)
            reader.next[partition] = max(reader.next.get(partition, 0), reached) if beyond is None else beyond
            for piece in landed:
                offsets = piece.batch.column("offset").to_numpy()
                count = len(offsets) if beyond is None else int(np.searchsorted(offsets, beyond))
                reader.messages += count
                if count:
                    reader.newest[partition] = as_landed(piece.batch, count - 1)
                lines += self._order.lines(piece, len(pieces), self._was_landed)
                pieces.append(piece)
        return pieces, lines

    def _in_source_order(self, pieces: Sequence[Piece], lines: list[Line]) -> list[Line]:
        """Return lines in the order in which the source made them, with those marked that came before."""
        reader, copies = self.batch.reader, self._order.copies
        if copies:
            lines = [line._replace(repeated=line.repeated or (line.piece, line.line) in copies) for line in lines]
        reader.ignored.update(self._order.doubtful)
        if self.options.in_source_order:
            verdicts = self._keyless.decide(pieces, lines, self._order.streams)
            verdicts.apply(lines)
            reader.ignored.update(verdicts.doubts)
        for name in ("rank", "at"):  # stable: offsets stay in order
            lines.sort(key=attrgetter(name))
        return lines

    def _placed(self, pieces: Sequence[Piece], lines: Sequence[Line]) -> list[Placements]:
        """Return the positions of lines by piece, above all positions that were given before."""
        first = max(self.clock_ms << 18, self.batch.last + _STEP)
        first += first % _STEP
        placements = [Placements(piece.spoken.num_rows) for piece in pieces]
        position, before = first - _STEP, None
        snapshots = Snapshots(self.before)
        for line in lines:
            position += 0 if same_statement(before, line, self.options) else _STEP
            if line.scan is not None:
                if line.scan.is_ordered and snapshots.begins(line.scan):
                    line, position = self._at_snapshot(line.scan, line, pieces[line.piece], position)
                self._note_scan(snapshots, line, pieces[line.piece], position)
            placements[line.piece].put(line, position)
            before = line
        if lines:
            self.batch.last = position
        return placements

    def _close(self, barrier: CommonBarrier | None) -> None:
        """Let what is landed be seen, but while some of it is beyond a barrier or a partition has none yet."""
        barriers = self.batch.barriers
        if barrier is not None and not barrier.place:
            for partition in self._ends:
                if partition.topic in barrier.topics and not self._is_silent(partition):
                    barriers.setdefault(partition, "")  # the topic is shown to wait for it
        is_open = any(not barriers.get(end, "-") and not self._is_silent(end) for end in self._ends)
        if barrier is None or (self.batch.ahead <= barrier.place and not is_open):
            self.proven, self.batch.ahead = self.batch.last, ""

    def _with_rows(self) -> Iterator[LandedEvent]:
        """Yield the releases of tables whose rows came in a snapshot that had brought none before."""
        for bad in self.before.open_bad:
            if bad.query and bad.table and (bad.table.folded, bad.source, bad.source_position) in self._order.scanned:
                description = "rows of its snapshot came"
                yield Decision(
                    EventKind.RELEASED, bad.partition, bad.offset, bad.offset + 1, description, position=bad.position,
                    table=bad.table,
                ).event  # fmt: skip

    def _at_snapshot(self, scan: Scan, line: Line, piece: Piece, position: Tso) -> tuple[Line, Tso]:
        """Return the line of a row with which another snapshot of its table begins, and its position.

        What was there before is gone: the table is emptied where one partition has all of it. Of several none shows
        that, and the table is held.
        """
        table, source = scan.stream.table, scan.stream.source
        partitions = {
            stream.partition for stream in self.batch.streams if (stream.table, stream.source) == (table, source)
        }
        if len(partitions) > 1:
            return line._replace(late=_ANOTHER.format(place_text(line.at))), position
        return line, position + (_STEP if self._empty(scan, piece, line, position) else 0)

    def _note_scan(self, snapshots: Snapshots, line: Line, piece: Piece, position: Tso) -> None:
        """Land what a row shows of its table's snapshot, by which it is known later whether all of that came."""
        if line.scan is None or line.late:
            return
        (_, table, source), place = line.scan.stream, line.scan.place
        for word in snapshots.shown(line.scan):
            offset = piece.batch.column("offset")[piece.spoken.column("message")[line.line].as_py()].as_py()
            self.batch.events.append(
                LandedEvent(
                    EventKind.SNAPSHOT, piece.partition, offset, position, table, word.value, source=source,
                    source_position=place,
                )
            )  # fmt: skip

    def _empty(self, scan: Scan, piece: Piece, line: Line, position: Tso) -> bool:
        """Take what a broken snapshot brought out of its table again, once; return whether that was still to be done.

        Rows that were deleted before the next snapshot are not in it, and no message says so.
        """
        spoken = piece.spoken.slice(line.line, 1).to_pylist()[0]
        event = LandedEvent(
            EventKind.DDL, piece.partition, piece.batch.column("offset")[spoken["message"]].as_py(), position,
            scan.stream.table, truncating(scan.stream.table), 11, source=scan.stream.source,
            source_position="" if scan.anew else scan.place, commit_ts=spoken["commit_ts"] or 0,
        )  # fmt: skip
        return self.batch.take_ddl(event)

    # --- landed ---

    def _was_landed(self, piece: Piece, line: int) -> bool:
        spoken_line = piece.spoken.slice(line, 1).to_pylist()[0]
        table = TableId(spoken_line["schema"], spoken_line["table"])
        return self.batch.has_ddl(
            spoken_line["source_position"], spoken_line["source"] or "", table, spoken_line["query"] or ""
        )

    def _land_others(self, piece: Piece, placements: Placements) -> None:
        """Land what is not a row, and rows that came too late, with the positions of their lines."""
        offsets = piece.batch.column("offset")
        numbers = sorted({*np.flatnonzero(~_are_rows(piece)).tolist(), *placements.late})
        spoken = piece.spoken.take(pa.array(numbers, pa.int64()))
        for line, spoken_line in zip(numbers, spoken.to_pylist(), strict=True):
            if line in placements.late:
                of = (
                    "read_at" if spoken_line["kind"] == Kind.DDL.value and spoken_line["read_at"] else "source_position"
                )
                spoken_line = {
                    **spoken_line,
                    "kind": Kind.BAD.value,
                    "reason": placements.late[line],
                    "source_position": spoken_line[of],
                }
            if placements.repeated[line] and spoken_line["kind"] == Kind.DDL.value:
                spoken_line = {**spoken_line, "kind": Kind.IGNORED.value, "reason": _STATED}
            if spoken_line["kind"] != Kind.ROW.value:
                offset, at = offsets[spoken_line["message"]].as_py(), placements.positions[line] or None
                self.batch.take(self.batch.reader.other(spoken_line, piece.batch, piece.partition, offset, at))

    def _land_rows(self, piece: Piece, placements: Placements) -> None:
        are_rows = _are_rows(piece)
        are_rows[list(placements.late)] = False
        lines = pa.array(np.flatnonzero(are_rows))
        at = pa.array(placements.positions, pa.int64()).take(lines)
        are_repeated = pa.array(np.frombuffer(placements.repeated, np.bool_)).take(lines)
        row_kinds = pc.if_else(are_repeated, REPEAT, ROW)
        spoken = piece.spoken.take(lines)
        given_columns = {"position": at, "last_position": at, "kind": row_kinds}
        self.batch.take(self.batch.reader.rows(piece.batch, spoken, given_columns))

    def _note_shapes(self, pieces: Sequence[Piece], lines: Sequence[Line], placements: Sequence[Placements]) -> None:
        """Write down the columns of rows of a shape that was not there before, from the first such row on."""
        columns = [
            [piece.spoken.column(name).to_pylist() for name in ("kind", "schema", "table", "shape", "message")]
            for piece in pieces
        ]
        first = {table: at for table, at in self.before.began.items() if table not in self.batch.tables.with_ddl}
        current: tuple[str, str, str | None] | None = None
        for line in lines:
            kinds, schemas, tables, shapes, messages = columns[line.piece]
            number = line.line
            if kinds[number] != Kind.ROW.value or line.repeated or line.late:
                continue
            schema, table, shape = schemas[number], tables[number], shapes[number]
            if (schema, table, shape) == current:
                continue  # of the shape that the row before it has shown to be its table's newest
            message = messages[number]
            name, position = TableId(schema, table), placements[line.piece].positions[line.line]
            since = position if name in self.batch.tables.with_ddl else first.setdefault(name, position)
            if shape is None or self._shapes.is_newest(name, shape):
                current = schema, table, shape
                continue
            current = None
            if self._shapes.knows(name, shape):
                self.batch.events.extend(self._shapes.again(name, shape, position, line.at))
                continue
            batch = pieces[line.piece].batch.slice(message, 1)
            for shown in self.batch.reader.schemas(batch):
                # deletes without columns may come before the first row that does
                at = position if shown.table in self.batch.tables.with_schema else since
                self.batch.tables.with_schema.add(shown.table)
                self.batch.events.append(self._shapes.first(batch, shown, at, shape, line.at))


def _are_rows(piece: Piece) -> npt.NDArray[np.bool_]:
    """Return true for the lines of a piece that are rows."""
    return np.array(pc.equal(piece.spoken.column("kind"), Kind.ROW.value))


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

    def is_newest(self, table: TableId, shape: str) -> bool:
        """Return whether the newest columns of a table are those of a shape."""
        newest = self._current.get(table)
        return newest is not None and newest.shape == shape

    def first(self, batch: pa.RecordBatch, shown: SchemaEvent, position: Tso, shape: str, at: str) -> LandedEvent:
        """Return the event of columns that were not there before; `at` is their row's place in the source's log."""
        event = schema_event(batch, shown, position, shape)
        return self._note(replace(event, reason=self._lag(shown.table, at), source_position=at))

    def again(self, table: TableId, shape: str, position: Tso, at: str) -> Iterator[LandedEvent]:
        """Yield the schema events of earlier columns: they changed again, or a partition lags behind.

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
        newer, older = parse_schema(newest.query), parse_schema(before.query)
        names = {column.name for column in newer[0].columns}
        more = tuple(column for column in older[0].columns if column.name not in names)
        if not more:
            self._alike.add((table, shape, newest.shape))
            return
        query = format_schema(replace(newer[0], columns=(*newer[0].columns, *more)), older[1])
        place = newest.source_position
        yield self._note(replace(before, position=position, query=query, reason=lag, source_position=place))

    def _lag(self, table: TableId, at: str) -> str:
        """Return the reason why columns that a row has again were never gone, "" where the source made them anew."""
        newest = self._current.get(table)
        return _LAGS if newest is not None and at < newest.source_position or not at else ""
