"""Messages of protocols by offset that are read but not landed: how far they reach, their order, and redelivery.

    Backlog.add(piece)           keep what was read of a partition
    Backlog.greatest(), .marks() how far that goes in the source's log
    Backlog.until(unread)        how far in the time at which messages were sent
    Backlog.part(partition, …)   what comes before a place or time
    SourceOrder.look_ahead()     note what rows without a place are put by
    SourceOrder.lines(piece, …)  the lines of a piece, each with its place
    Snapshots                    which snapshot of a connector rows are of

A message without a place follows the one before it, of its table or of its partition.

All rows of a snapshot stand at one place, before the source's log. One that was broken off is taken anew, and rows that
were deleted in between are in no message. Which of its rows came is landed as events (`EventKind.SNAPSHOT`): from its
first row to its last one it brings all that a table had.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.ddl import emptied, given_up, is_statement, rename_pairs
from cdc_assets.formats import MessageOptions
from cdc_assets.formats.messages import SNAPSHOT_DDL, Kind, dialect_of, is_of_snapshot, position_text
from cdc_assets.landing.groups import (
    add_row,
    can_follow,
    is_partial,
    newest_of_key,
    repeat_from,
    repeat_next,
    row_digest,
    rows_like,
    same_group,
)
from cdc_assets.model.landed import INCREMENTAL, EventKind, Landed, SnapshotRow, Stream, StreamEnd
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

_CLOCKS_DIFFER_MS = 10_000
"""Most milliseconds by which the clocks of senders may differ, and by which a message may be delayed."""


@dataclass
class Piece:
    """Messages of a partition, and the lines of CLASSIFIED that they hold."""

    partition: Partition
    batch: pa.RecordBatch
    spoken: pa.RecordBatch

    @cached_property
    def runs(self) -> Sequence[str]:
        """The run of the connector that sent each message, "" where its headers do not name it."""
        return runs_of(self.batch.column("headers"))

    @cached_property
    def has_keys(self) -> Sequence[bool]:
        """Whether each message has a key."""
        has_keys: list[bool] = self.batch.column("key").is_valid().to_pylist()
        return has_keys


def runs_of(headers: pa.ListArray | pa.ChunkedArray) -> list[str]:
    """Return the run of the connector that sent each message, "" where its headers do not name it."""
    runs = [""] * len(headers)
    flat = pc.list_flatten(headers)
    named = pc.equal(pc.struct_field(flat, "name"), _RUN)
    values = pc.struct_field(flat, "value").filter(named).to_pylist()
    for message, value in zip(pc.list_parent_indices(headers).filter(named).to_pylist(), values, strict=True):
        runs[message] = (value or b"").decode("utf-8", "replace")
    return runs


class Backlog:
    """Lines kept of each partition, in the order of offsets. `sources` are the logs in the order they were met in.

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

    def finish(self, offset_range: OffsetRange) -> None:
        """Note that a range was read to its end."""
        self.reached[offset_range.partition] = max(self.reached.get(offset_range.partition, 0), offset_range.stop)

    def clear(self) -> None:
        """Keep nothing any more."""
        self._pieces, self.reached, self.bytes = {}, {}, 0

    # --- in the source's log ---

    def places(self, piece: Piece) -> list[str]:
        """The place of each line in the source's log, "" for none; logs follow each other as they were first met."""
        places: list[str] = self._numbered(piece, piece.spoken.column("source_position")).to_pylist()
        return places

    def _reaches(self, piece: Piece) -> pa.StringArray:
        """Reach of the source's log at each line: the line's place, or where the row was read if it has none."""
        columns = (piece.spoken.column(name) for name in ("source_position", "read_at"))
        return self._numbered(piece, pc.coalesce(*columns))

    def _numbered(self, piece: Piece, column: pa.StringArray) -> pa.StringArray:
        nothing = pa.scalar(None, pa.string())
        column = pc.if_else(pc.equal(column, ""), nothing, column)
        logs = pc.if_else(column.is_valid(), piece.spoken.column("source").fill_null(""), nothing).dictionary_encode()
        names = logs.dictionary.to_pylist()
        self._sources += [name for name in names if name not in self._sources]
        numbers = pa.array([f"{self._sources.index(name):06d}" for name in names], pa.string()).take(logs.indices)
        return pc.binary_join_element_wise(numbers, column, "/").fill_null("")

    def greatest(self, partitions: Sequence[Partition] | None = None) -> str:
        """Return the greatest place in the source's log that was read, "" if there was none; of some, the least."""
        places = []
        for partition in self._pieces if partitions is None else partitions:
            reached = (pc.max(self._reaches(piece)).as_py() for piece in self._pieces.get(partition, ()))
            places.append(max(filter(None, reached), default=""))
        return (max if partitions is None else min)(places, default="")

    def marks(self, before: Mapping[Partition, str]) -> dict[Partition, str]:
        """Return the greatest mark of each partition that has one, no less than that of `before`."""
        newest = dict[Partition, str]()
        for piece in self:
            marks = self._numbered(piece, piece.spoken.column("source_position")).filter(
                pc.equal(piece.spoken.column("kind"), Kind.RESOLVED.value)
            )
            if at := pc.max(marks).as_py():
                newest[piece.partition] = max(at, newest.get(piece.partition, before.get(piece.partition, "")))
        return newest

    # --- in time ---

    def until(self, unread: Sequence[Partition]) -> int | None:
        """Return the broker time through which messages can be landed, in milliseconds; None where it is not known.

        TiCDC sends a DDL once all rows before it are in their partitions, and the rows after it later, at any offset.
        So a time parts no DDL from its rows: all that was sent through it is read, and no DDL was sent close to it.
        """
        held = [self._pieces.get(partition) for partition in unread]
        ends = [None if pieces is None else pieces[-1].batch.column("timestamp")[-1].as_py() for pieces in held]
        sent = self._ddl_sent()
        if None in (*ends, *sent):
            return None
        broker_time: int = min(end for end in ends if end is not None) - _CLOCKS_DIFFER_MS
        for moment in sorted((ddl_time for ddl_time in sent if ddl_time is not None), reverse=True):
            if abs(moment - broker_time) < _CLOCKS_DIFFER_MS:
                broker_time = moment - _CLOCKS_DIFFER_MS
        begins = (pieces[0].batch.column("timestamp")[0].as_py() for pieces in self._pieces.values())
        return broker_time if any(begin is not None and begin <= broker_time for begin in begins) else None

    @property
    def has_ddl(self) -> bool:
        """Return whether a DDL is among what is kept."""
        return bool(self._ddl_sent())

    def _ddl_sent(self) -> list[int | None]:
        times = list[int | None]()
        for piece in self:
            lines = pc.equal(piece.spoken.column("kind"), Kind.DDL.value)
            sent = piece.batch.column("timestamp").take(piece.spoken.column("message").filter(lines))
            times += sent.to_pylist()
        return times

    # --- what can be landed ---

    def part(self, partition: Partition, through: str | None, until: int | None) -> tuple[list[Piece], int | None]:
        """Return the part of a partition before the first message beyond a place or time, and that one's offset.

        None as the offset where all that is kept comes before.
        """
        pieces = list[Piece]()
        for piece in self._pieces.get(partition, ()):
            messages = list[int]()
            if through is not None:
                lines = pc.greater(self._reaches(piece), through)
                messages += piece.spoken.column("message").filter(lines)[:1].to_pylist()
            if until is not None:
                late = pc.greater(piece.batch.column("timestamp"), pa.scalar(until, pa.int64()))
                messages += np.flatnonzero(late.fill_null(True).to_numpy(zero_copy_only=False))[:1].tolist()
            message = min(messages, default=None)
            if message is None:
                pieces.append(piece)
                continue
            count = int(np.searchsorted(piece.spoken.column("message").to_numpy(), message))
            if count:
                pieces.append(replace(piece, spoken=piece.spoken.slice(0, count)))
            return pieces, piece.batch.column("offset")[message].as_py()
        return pieces, None

    def part_to_mark(self, partition: Partition, through: str) -> tuple[list[Piece], int | None]:
        """Return the messages of a partition through its last mark at or below a place, and the offset behind it.

        None as the offset where all that is kept comes before.
        """
        pieces, taken, message = self._pieces.get(partition, []), 0, -1
        for number, piece in enumerate(pieces, 1):
            columns = (piece.spoken.column(name).to_pylist() for name in ("message", "kind"))
            for at, line_message, kind in zip(self.places(piece), *columns, strict=True):
                if kind == Kind.RESOLVED.value and at and at <= through:
                    taken, message = number, line_message
        if not taken:
            first = pieces[0].batch.column("offset")[0].as_py() if pieces else None
            return [], first
        last = pieces[taken - 1]
        count = int(np.searchsorted(last.spoken.column("message").to_numpy(), message, side="right"))
        kept_pieces = [*pieces[: taken - 1], replace(last, spoken=last.spoken.slice(0, count))]
        if message + 1 < last.batch.num_rows:
            return kept_pieces, last.batch.column("offset")[message + 1].as_py()
        return kept_pieces, pieces[taken].batch.column("offset")[0].as_py() if taken < len(pieces) else None


# --- its order --------------------------------------------------------------------------------------------------------

_STREAMED = "~"
"""Stands for the place of a snapshot behind which rows of the log have come; above every place."""


class Scan(NamedTuple):
    """A new row of a snapshot: `place` is that of the snapshot as the row states it, `phase` as in CLASSIFIED.

    `is_ordered` says that the row stands in that place in the landing, so that it can begin another snapshot. `anew` is
    set where it begins the snapshot once more at the same place.
    """

    stream: Stream
    place: str
    phase: str
    is_ordered: bool
    anew: bool = False


class Snapshots:
    """Position of each table's newest snapshot, and which of its rows came, as of the last landing."""

    def __init__(self, before: Landed) -> None:
        self._places = dict[tuple[TableId, str], str]()
        self._anew = {(stream.table, stream.source) for stream, end in before.streams.items() if end.anew}
        for stream, end in before.streams.items():
            if end.newest:
                place = end.newest if is_of_snapshot(end.newest) else _STREAMED
                stream_key = stream.table, stream.source
                self._places[stream_key] = max(place, self._places.get(stream_key, ""))
        self._shown = dict[tuple[TableId | None, str, str], set[str]]()
        for event in before.events:
            if event.kind is EventKind.SNAPSHOT:
                self._shown.setdefault((event.table, event.source, event.source_position), set()).add(event.query)

    def begins(self, scan: Scan) -> bool:
        """Return whether a row is of another snapshot than the rows of its table before it.

        Rows have to come in the order of their places.
        """
        stream_key = scan.stream.table, scan.stream.source
        if stream_key in self._anew:
            return False
        before = self._places.get(stream_key)
        self._places[stream_key] = scan.place
        return before is not None and (before != scan.place or scan.anew)

    def shown(self, scan: Scan) -> Iterator[SnapshotRow]:
        """Yield the progress of a snapshot that a row is the first to show."""
        places = self._shown.setdefault((scan.stream.table, scan.stream.source, scan.place), set())
        if scan.anew:
            places.clear()
            yield SnapshotRow.ANEW
        word = SnapshotRow(scan.phase)
        if word in places or (word is SnapshotRow.WITHIN and SnapshotRow.FIRST in places):
            return
        places.add(word)
        yield word


_NOTHING = StreamEnd()
_DDL, _AFTER_DDL = 1, 2
_WHOLE_SECONDS = 2_000 << 18
"""Most by which the TSO of a change may be too small: MySQL's log has whole seconds, and clocks differ."""
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
_WITHOUT_ROWS = (
    "the connector has taken another snapshot, at {} of the source's log, and no row of this table came in it, which "
    "has rows of before: it was empty by then, or the connector no longer sends its rows (its lists of tables, "
    "snapshot.mode), or they have still to come and then let the table go on. Let a connector with a new topic.prefix "
    "bring the tables as a feed of its own; or keep the rows of before, and go on with what comes from here"
)
_OF_OTHERS = (
    "it is of the connector {}, and rows of its table came from {}, as of two servers that have it: it would take "
    "these away. Let each connector bring tables of its own, as a feed of its own; or read it again, and let it "
    "change the table; or go past it, and let the rows of both be in one table"
)
_BEFORE_ALL = "000000/"
"""Below every place, and none: rows wait for a barrier that is not known yet."""
INDEX = len(_BEFORE_ALL)
"""Characters of a place that number its log."""
_COLUMNS = ("message", "kind", "schema", "table", "source", "source_position", "commit_ts", "read_at", "phase")
_BEGINNINGS = (SnapshotRow.BEGIN, SnapshotRow.FIRST)
_MARKS = (*_BEGINNINGS, SnapshotRow.LAST, SnapshotRow.END)
ROW_PLACES = ("mariadb",)
"""Kinds of databases in whose logs a place names one row of a table, at the most."""
_GROUP_PLACES = ("mysql",)
"""Kinds of databases in whose logs all rows of a transaction may share a place (`landing.groups`)."""
_STATEMENT_PLACES = ("mysql", "mariadb")
"""Kinds of databases in whose logs a place names one statement: of a CREATE TABLE … SELECT its rows have it too."""
_LOG = position_text(2)
"""Prefix of places that are not of a snapshot."""
_RUN = "__debezium.context.runId"
"""Header of newer connectors: another one after each start."""
RESTART_MS = 1000
"""Less than a connector needs to start again, more than lies between rows of one statement."""
_AS_COPY = (
    "a row of {}, which has no key, came again at the place of the newest row and with the same contents: taken for a "
    "copy that a restart sent. Where one statement or transaction wrote equal rows there may be one too few"
)
_AS_ROW = (
    "a row of {}, which has no key, stands at the place of the newest row and has the same contents: taken for another "
    "row of one statement or transaction. Where the connector started again within a second there may be one too many"
)
_MADE_AGAIN = (
    "a change of {} has the contents of an earlier one of its compressed transaction: made once more, or sent again by "
    "a restart. The table is right either way; a log of its changes may have that change and later ones twice"
)
_BEYOND_GROUP = (
    "it came after a restart of the connector, at {} of the source's log, where a compressed transaction has so many "
    "rows of this table that whether it had come before cannot be told, and the table has no key. Let a connector with "
    "a new topic.prefix bring the table as a feed of its own; or go on with what comes from here"
)
_NAMED_LATE = (
    "it gives its table the name at {}, and rows of that millisecond were landed under the name before it came: they "
    "belong behind it"
)
_EMPTIED = (
    "it stands at {} of the source's log, in the millisecond in which a DDL in another partition takes rows of its "
    "table away or gives them another name, and nothing says which came first. Read it again if it came behind the "
    "DDL. If it came before, go past it: its row is gone, or another table has it (cdc-assets verify compares that one)"
)
_EMPTIES_LATE = (
    "it takes rows of its table away or gives them another name, at {} of the source's log, and a row of that "
    "millisecond was landed from another partition before it: nothing says which came first. Read it again if the row "
    "did"
)
_UNMARKED = (
    "it is of a snapshot of its table at {} of the source's log, of which the last row came before it, and no first "
    "row says that another snapshot begins: rows of both cannot be told apart in a table without key. Let a connector "
    "with a new topic.prefix bring the table as a feed of its own; or go on with what comes from here"
)


class Line(NamedTuple):
    """A line of CLASSIFIED in the order of landing: its place in the source's log, rows before DDL, and where it is.

    A row without a place comes after the DDL before it in its partition. `late` says why a line cannot be put in its
    place, "" where it can. `placed` is set where the line itself states `at`, `scan` for a new row of a snapshot.
    """

    at: str
    rank: int
    piece: int
    line: int
    repeated: bool
    late: str
    placed: bool = False
    scan: Scan | None = None


class _Row(NamedTuple):
    """A row as it was read: `stated` is the position in its message, `at` its place, "" for none.

    `read_at` is how far the log was where the row has no place in it, `phase` where in a snapshot it stands (see
    CLASSIFIED), `run` that of the connector that sent it, "" if unknown. `has_key` says that the message has a key.
    """

    stream: Stream
    at: str
    stated: str | None
    read_at: str | None
    ts: Tso | None
    phase: str | None
    batch: pa.RecordBatch
    message: int
    run: str
    has_key: bool

    @property
    def sent_ms(self) -> int:
        """Time at which the connector sent the row, in milliseconds since 1970; 0 if the message does not say."""
        return sent_ms(self.batch.column("value")[self.message].as_py())

    @property
    def op(self) -> str:
        """Return the letter of what the row tells of (c, u, d), "" where the message does not say."""
        letters = _OP.findall(self.batch.column("value")[self.message].as_py() or b"")
        return letters[-1].decode() if letters else ""

    @property
    def is_last(self) -> bool:
        """Whether it is the last row of its table in a snapshot."""
        return self.phase in ("last", "end")


@dataclass
class SourceOrder:
    """The state by which the lines of a landing are ordered; `before` is the state of the last landing.

    `streams` and `barriers` are brought forward by each line, `sources` are the logs in the order they were met in.
    `copies` are the deletes, by piece and line, that turned out later to be the beginning of a replay. `doubtful`
    counts rows that were taken for copies though the log does not prove it, by a sentence. `scanned` has the
    tables (folded), sources and places of snapshots of which rows came. `_streaming` has since when runs of connectors
    send changes, by source and run, in milliseconds since 1970, and `_created` the table of the snapshot's CREATE TABLE
    that is the newest DDL of a partition. Of TiCDC, whose places are milliseconds, `_named_at` has the tables (folded)
    with the places at which a DDL gave them their name, and in which partitions, `_given_up` those of which one had
    the name until then, `_emptied` the partitions of DDL that takes rows of a table away, by table and place, and
    `_newest_ddl` the place of a table's last DDL in a partition. `_newest_rows` has the rows with which streams end and
    whose digests are not in `streams` yet: those of a row are wanted only once no row beyond it comes. `proves_ends` is
    that of the log.

    `bare` are topics with barriers of which no row has a place. Their rows are in the order of partitions, as a part of
    one that was split has a greater number: a barrier only says through where what is before it is complete. `ahead` is
    the greatest one behind such rows. A partition of which rows are landed without a barrier behind them has "" in
    `barriers` until its next one comes.
    """

    before: Landed
    options: MessageOptions
    backlog: Backlog
    sources: list[str]
    streams: dict[Stream, StreamEnd]
    barriers: dict[Partition, str]
    bare: Collection[str] = ()
    proves_ends: bool = True
    ahead: str = ""
    copies: set[tuple[int, int]] = field(default_factory=set)
    doubtful: Counter[str] = field(default_factory=Counter)
    _sent: dict[Stream, int] = field(default_factory=dict)
    _bare: dict[Stream, list[tuple[int, int]]] = field(default_factory=dict)
    _floors: dict[object, str] = field(default_factory=dict)
    _first_places: dict[Partition, str] = field(default_factory=dict)
    _ddl_made: dict[TableId, list[tuple[Tso, str]]] = field(default_factory=dict)
    _statements: set[str] = field(default_factory=set)
    _ddl_places: dict[TableId, str] = field(default_factory=dict)
    _row_places: dict[TableId, str] = field(default_factory=dict)
    _snapshot_marks: dict[tuple[TableId, str, str, bool], Partition] = field(default_factory=dict)
    scanned: set[tuple[TableId, str, str]] = field(default_factory=set)
    _creates: list[tuple[TableId, str, str, Tso, int, int]] = field(default_factory=list)
    _ddl: list[tuple[TableId, str, int, int]] = field(default_factory=list)
    _first_rows: dict[tuple[TableId, str], str] = field(default_factory=dict)
    _streaming: dict[tuple[str, str], int] = field(default_factory=dict)
    _created: dict[Partition, object] = field(default_factory=dict)
    _newest_rows: dict[Stream, _Row] = field(default_factory=dict)
    _named_at: dict[tuple[TableId, str], set[Partition]] = field(default_factory=dict)
    _given_up: set[tuple[TableId, str]] = field(default_factory=set)
    _emptied: dict[tuple[TableId, str], set[Partition]] = field(default_factory=dict)
    _newest_ddl: dict[tuple[Partition, TableId], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sends_again, self._by_table = self.options.sends_again, self.options.sends_by_table
        self._in_source_order = self.options.in_source_order
        for event in self.before.events:
            if event.kind is EventKind.SNAPSHOT and event.query in _MARKS and event.table is not None:
                mark = event.table, event.source, event.source_position, event.query not in _BEGINNINGS
                self._snapshot_marks[mark] = event.partition
            if event.kind is EventKind.DDL and event.table is not None and event.source_position:
                self._raise(self._ddl_places, event.table, event.source, event.source_position)
                if self._by_table and not self.proves_ends:  # rows of its millisecond may come later all the same
                    place = f"{self.sources.index(event.source):06d}/{event.source_position}"
                    self._statements.add(place)
                    self._note_ddl(event.partition, event.table, event.query, place)
        for stream, end in self.before.streams.items():
            if end.newest and not stream.source.endswith(INCREMENTAL):
                self._raise(self._row_places, stream.table, stream.source, end.newest)
                stream_key = stream.table.folded, stream.source
                self._first_rows[stream_key] = max(_in_log(end.newest), self._first_rows.get(stream_key, ""))
                if end.run and not is_of_snapshot(end.newest):
                    self._sends_changes(stream.source, end.run, (end.made >> 18) - _CLOCKS_DIFFER_MS)
        self._landed_rows = frozenset(self._first_rows)

    def _raise(self, places: dict[TableId, str], table: TableId, source: str, at: str) -> None:
        place = f"{self.sources.index(source):06d}/{at}"
        places[table.folded] = max(place, places.get(table.folded, ""))

    def _sends_changes(self, source: str, run: str, ms: int) -> None:
        """Note that a run of a connector sends changes since a time, in milliseconds since 1970."""
        self._streaming[source, run] = min(ms, self._streaming.get((source, run), ms))

    def look_ahead(self) -> None:
        """Note by what rows without a place are put, and of what runs changes come.

        Those are put by the first place of their partition, and by the DDL of their table.
        """
        if any(piece.spoken.column("phase").null_count < piece.spoken.num_rows for piece in self.backlog):
            for piece in self.backlog:
                self._look_for_changes(piece)
        for piece in self.backlog:
            places = self.backlog.places(piece)
            first_place = next(filter(None, places), "")
            if first_place:
                self._first_places.setdefault(piece.partition, first_place)
            are_ddl = np.array(pc.equal(piece.spoken.column("kind"), Kind.DDL.value))
            for line in np.flatnonzero(are_ddl).tolist() if are_ddl.any() else ():
                names = ("schema", "table", "commit_ts", "query")
                schema, table, ts, query = (piece.spoken.column(name)[line].as_py() for name in names)
                at = places[line]
                if at:
                    self._statements.add(at)
                if at and table:
                    self._ddl_made.setdefault(TableId(schema, table).folded, []).append((ts, at))
                    if self._by_table:
                        self._note_ddl(piece.partition, TableId(schema, table), query or "", at)

    def _note_ddl(self, partition: Partition, table: TableId, query: str, at: str) -> None:
        """Note which table a DDL at a place gives its name, which lose theirs, and of which it takes rows away."""
        if _gives_name(query):
            self._named_at.setdefault((table.folded, at), set()).add(partition)
        self._given_up |= {(name.folded, at) for name in given_up(query, table)}
        for name in emptied(query, table):
            self._emptied.setdefault((name.folded, at), set()).add(partition)

    def _doubtful_in(self, table: TableId, at: str) -> Collection[Partition]:
        """Return the partitions of DDL at a place of which only they say which rows of that place come before it."""
        is_handed_on = (table, at) in self._given_up
        return self._emptied.get((table, at), ()) or (self._named_at.get((table, at), ()) if is_handed_on else ())

    def _look_for_changes(self, piece: Piece) -> None:
        """Note since when runs of connectors send changes, by the first of each in a piece."""
        columns = (piece.spoken.column(name).to_pylist() for name in ("kind", "message", "source", "source_position"))
        runs = set[tuple[str, str]]()
        for kind, message, source, stated in zip(*columns, strict=True):
            if kind != Kind.ROW.value or not stated or is_of_snapshot(stated):
                continue
            run = piece.runs[message]
            if run and (source, run) not in runs:
                runs.add((source, run))
                self._sends_changes(source, run, sent_ms(piece.batch.column("value")[message].as_py()))

    def lines(self, piece: Piece, number: int, was_landed: Callable[[Piece, int], bool]) -> Iterator[Line]:
        """Yield the lines of a piece but for marks; `was_landed` says of a line with a DDL whether that was before."""
        columns = (piece.spoken.column(name).to_pylist() for name in _COLUMNS)
        places, floors, partition = self.backlog.places(piece), self._floors, piece.partition
        runs, has_keys = piece.runs, piece.has_keys
        streams, row_kind, mark_kind = dict[tuple[str, str, str | None], Stream](), Kind.ROW.value, Kind.RESOLVED.value
        is_bare = partition.topic in self.bare
        rows = zip(*columns, strict=True)
        for line, (message, kind, schema, table, source, stated, ts, read_at, phase) in enumerate(rows):
            at, late = places[line], ""
            if kind == mark_kind:
                if at and (is_bare or self.barriers.get(partition) == ""):
                    self.ahead = max(at, self.ahead)
                if at:
                    self.barriers[partition] = max(at, self.barriers.get(partition, ""))
                    floors[partition] = "" if is_bare else max(at, floors.get(partition, ""))
                continue
            if is_bare:
                self.barriers[partition], self.ahead = "", self.ahead or _BEFORE_ALL
            at = "" if is_bare else at
            if kind == row_kind:
                stream = streams.get(name := (schema, table, source))
                if stream is None:
                    stream = streams[name] = Stream(partition, TableId(schema, table), source or "")
                run, has_key = runs[message], has_keys[message]
                row = _Row(stream, at, stated, read_at, ts, phase, piece.batch, message, run, has_key)
                yield self._row_line(self._asked_for(row) if phase is not None else row, number, line)
                continue
            is_ddl = kind == Kind.DDL.value
            if is_ddl and self._states_columns(piece, line):
                yield Line(at or floors.get(partition, ""), _DDL, number, line, True, "", bool(stated))
                continue
            if is_ddl and at and table and not was_landed(piece, line):
                self._ddl.append((TableId(schema, table).folded, source or "", number, line))
                rows_through = self._row_places.get(TableId(schema, table).folded, "")
                late = self._below(at, rows_through)
                named = TableId(schema, table).folded
                if at == rows_through and self._doubtful_in(named, at):
                    late = _EMPTIES_LATE.format(place_text(at)) if self._is_elsewhere(partition, named, at) else late
                elif at == rows_through and (named, at) in self._named_at:
                    late = _NAMED_LATE.format(place_text(at))
                # A connector's records of one statement are carried out one after the other.
                is_parted = at in self._ddl_places.values() and not self._in_source_order
                late = late or (_PARTED if is_parted else "")
            if (
                is_ddl
                and read_at
                and not late
                and is_statement(piece.spoken.column("query")[line].as_py(), "CREATE", "TABLE")
            ):
                self._creates.append((TableId(schema, table or "").folded, source or "", read_at, ts, number, line))
            if is_ddl and at and table:
                self._newest_ddl[partition, TableId(schema, table).folded] = at
            at = floors[partition] = at or floors.get(partition, "")
            if is_ddl and stated:
                floors[partition, Kind.DDL] = at
            yield Line(at, int(is_ddl), number, line, False, late, bool(stated))

    def _states_columns(self, piece: Piece, line: int) -> bool:
        """Return whether a CREATE TABLE in the log only states the columns of a table that is there.

        MySQL's connectors send that with a snapshot of a changed table for which a person asked while they went on,
        behind the CREATE TABLE of their own snapshot.
        """
        names = ("schema", "table", "source", "query", "read_at")
        *of, query, read_at = (piece.spoken.column(name)[line].as_py() for name in names)
        before = self._created.pop(piece.partition, None)
        if not (read_at or before) or not is_statement(query, "CREATE", "TABLE"):
            return False
        if read_at:
            self._created[piece.partition] = of
        return not read_at and before == of

    def _row_line(self, row: _Row, number: int, line: int) -> Line:
        stream, floors, at, rank = row.stream, self._floors, row.at, 0
        partition, before = stream.partition, self.streams.get(stream, _NOTHING)
        if row.stated and (row.phase is not None or not before.newest):
            self._note_row(stream.table.folded, stream.source, row)
        end, repeated, late = self._follow(row, before)
        if row.stated == "" and not repeated:
            self._bare.setdefault(stream, []).append((number, line))
        elif row.stated and self._bare:
            end = self._behind(row, end, repeated)
        if at and self._ddl_places and not (repeated or late or end.anew):
            late = self._below(at, self._ddl_places.get(stream.table.folded, ""))
        if at in self._statements:
            is_behind = self._by_table and self._is_behind_ddl(stream, at)
            doubtful_in = self._doubtful_in(stream.table.folded, at) if not (repeated or late) else ()
            if doubtful_in and stream.partition not in doubtful_in and not is_behind:
                late, is_behind = _EMPTIED.format(place_text(at)), True
            rank = _AFTER_DDL if is_behind or dialect_of(stream.source) in _STATEMENT_PLACES else rank
        if end.newest and not (at and end.newest == row.stated):
            at = f"{self.sources.index(stream.source):06d}/{end.newest}"
        ddl = floors.get((partition, Kind.DDL), "") if row.stated == "" else ""
        ddl = self._ddl_before(row) if row.stated is None else ddl
        if ddl and not repeated and ddl >= at:  # it comes behind the DDL in its partition, or of its table
            at, rank = ddl, _AFTER_DDL
        if row.stated == "" and not at:
            at = floors.get(partition) or self._first_places.get(partition, "")
        at = max(at or floors.get(partition, ""), floors.get(stream, ""))
        floors[stream] = floors[partition] = at
        scan = None
        if row.phase is not None and not (repeated or late):
            scan = Scan(stream, row.stated or "", row.phase, self._is_scanned(row.stated, at))
            if scan.is_ordered and ((before.newest == row.stated and end.at == 1) or self._is_begun_elsewhere(row)):
                scan = scan._replace(anew=True)
        return Line(at, rank, number, line, repeated, late, bool(row.stated), scan)

    def _is_behind_ddl(self, stream: Stream, at: str) -> bool:
        """Return whether a row of TiCDC comes behind the DDL of its table in the same millisecond.

        No row of a name is older than the DDL that gave the name, unless another table had it until then, and what a
        partition has behind a DDL was sent after it, for TiCDC sends a DDL once all rows before it are acknowledged.
        """
        table = stream.table.folded
        is_new = (table, at) in self._named_at and (table, at) not in self._given_up
        return is_new or self._newest_ddl.get((stream.partition, table)) == at

    def _is_elsewhere(self, partition: Partition, table: TableId, at: str) -> bool:
        """Return whether an archive gave the newest row of a table, at a place, in another partition before."""
        streams = () if self.proves_ends else self.before.streams.items()
        return any(
            stream.table.folded == table
            and stream.partition != partition
            and at == f"{self.sources.index(stream.source):06d}/{end.newest}"
            for stream, end in streams
        )

    def _asked_for(self, row: _Row) -> _Row:
        """Return a row of a snapshot that a person asked for while the connector went on as one that is read meanwhile.

        Such a snapshot may be of some rows only, and what comes after it follows what came before. A connector takes
        its own snapshot before it sends changes.
        """
        begun = self._streaming.get((row.stream.source, row.run)) if row.run and row.has_key else None
        if begun is None or not is_of_snapshot(row.stated or "") or row.sent_ms <= begun:
            return row
        self.scanned.add((row.stream.table.folded, row.stream.source, row.stated or ""))
        return row._replace(at="", stated=None, read_at=f"{_LOG}.{_in_log(row.stated or '')}", phase=None)

    def _note_row(self, table: TableId, source: str, row: _Row) -> None:
        """Note of which snapshot a row is, and of a table without rows before where its first one stands."""
        if row.phase is not None:
            self.scanned.add((table, source, row.stated or ""))
        if (table, source) not in self._landed_rows:
            at = _in_log(row.stated or "")
            self._first_rows[table, source] = min(at, self._first_rows.get((table, source), at))

    def without_rows(self) -> Iterator[tuple[int, int, str]]:
        """Yield piece and line of each CREATE TABLE in a newer snapshot than all rows of its table, and why it is held.

        A table without rows in a snapshot is in no other message of it. A replay's stands in no newer snapshot, and was
        not made after the rows; the place of a newer one is lower where the source's log was started over.
        """
        made = dict[tuple[TableId, str], Tso]()
        for stream, end in self.streams.items() if self._creates else ():
            stream_key = stream.table.folded, stream.source
            made[stream_key] = max(end.made, made.get(stream_key, 0))
        for table, source, place, ts, piece, line in self._creates:
            first = self._first_rows.get((table, source))
            if first in (None, _in_log(place)) or (table, source, place) in self.scanned:
                continue
            if first < _in_log(place) or 0 < made.get((table, source), 0) < ts - _WHOLE_SECONDS:
                yield piece, line, _WITHOUT_ROWS.format(place_text(f"000000/{place}"))

    def of_others(self) -> Iterator[tuple[int, int, str]]:
        """Yield piece and line of each new DDL from another source than rows of its table before, and why it is held.

        A person lets go what comes from there by releasing the first of them.
        """
        if not self._ddl:
            return
        number = self.sources.index
        senders, open_bad = dict[TableId, list[str]](), set(self.before.open_bad)
        for table, source in self._first_rows:
            senders.setdefault(table, []).append(source)
        released = {
            (event.table.folded, event.source)
            for event in self.before.events
            if event.kind is EventKind.BAD and event.query and event.table and event not in open_bad
        }
        for table, source, piece, line in self._ddl:
            for other in senders.get(table, ()) if (table, source) not in released else ():
                if other != source and ((table, other) in self._landed_rows or number(other) < number(source)):
                    yield (
                        piece,
                        line,
                        _OF_OTHERS.format(*(source_name.partition(" ")[2] for source_name in (source, other))),
                    )
                    break

    def _behind(self, row: _Row, end: StreamEnd, repeated: bool) -> StreamEnd:
        """Return the end of a stream after a row with a place that follows deletes without one.

        A copy shows that a replay has begun, maybe by deletes of it: what they deleted may have come back since, by
        rows that are not taken again. So deletes behind the newest row that are not landed yet are left to the replay,
        in which those that are none of its beginning come again.
        """
        bare = self._bare.pop(row.stream, [])
        if not repeated or not bare:
            return end
        self.copies.update(bare)
        end = self.streams[row.stream] = end._replace(after=max(0, end.after - len(bare)))
        return end

    def _ddl_before(self, row: _Row) -> str:
        """Return the place of the newest DDL of a row's table through which the log was read when the row was.

        Where the row does not say how far that was, of those that were made by then; MySQL has only seconds of that.
        """
        made = self._ddl_made.get(row.stream.table.folded, ())
        if row.read_at and row.stream.source in self.sources:
            reached = f"{self.sources.index(row.stream.source):06d}/{row.read_at}"
            return max((at for _, at in made if at <= reached), default="")
        return max((at for ts, at in made if row.ts is not None and ts <= row.ts), default="")

    def _is_scanned(self, place: str | None, at: str) -> bool:
        """Return whether a row is of a snapshot, and stands in its place."""
        return self._in_source_order and is_of_snapshot(place or "") and at[INDEX:] == place

    def _follow(self, row: _Row, before: StreamEnd) -> tuple[StreamEnd, bool, str]:
        """Return a stream's end with a row, whether the row is a repetition, and why it has no place in the log."""
        late = ""
        if not self._sends_again:
            return before, False, late
        place, ts = row.stated, row.ts
        is_grouped = self._is_grouped(row)
        if place and row.phase is None and place > before.newest and not (is_grouped and same_group(before, place)):
            self.streams[row.stream] = end = self._end_beyond(row, before)
            return end, False, late
        before = self._with_digests(row.stream, before)
        if row.read_at:
            self.streams[row.stream] = before
            return before, self._is_read_again(before, row, row.read_at), late
        if is_grouped:
            end, repeated, late = self._follow_group(before, row)
        else:
            end, repeated = follow(before, place, partial(_digest, row.batch, row.message))
        if self._by_table and row.has_key and before.newest:
            end, repeated = self._follow_copies(before, row, end, repeated)
        elif place and self._begins_snapshot_anew(before, row):
            end, repeated = StreamEnd(place, 1, 0, _digest(row.batch, row.message), last=row.is_last), False
        elif row.has_key and row.phase is not None and place == before.newest:
            # A snapshot that begins anew where the last one stands: the rows are the same, in whatever order they come.
            end, repeated = before._replace(at=before.at + 1, last=before.last or row.is_last), False
        elif not repeated and place and self._is_first_again(before, row):
            end, repeated = before._replace(again_at=1, again_after=0, run=row.run), True
        elif not repeated and row.is_last:
            end = end._replace(last=True)
        elif before.last and row.phase == "within" and place == before.newest and not row.has_key:
            late = _UNMARKED.format(place_text(f"000000/{place}"))
        if place and place != before.newest and not (repeated or row.has_key or end.group):
            self._sent[row.stream], end = row.sent_ms, end._replace(run=row.run)
        if self._in_source_order and place and ts:
            if repeated and 0 < before.made < ts:  # no copy is newer than what it is a copy of
                late = _ANEW.format(place_text(f"000000/{place}"), place_text(f"000000/{before.newest}"))
                end, repeated = StreamEnd(place, 1, 0, _digest(row.batch, row.message), anew=True), False
            made, anew = max(ts, before.made), end.anew or before.anew
            run = end.run if repeated or not row.has_key else row.run or end.run
            end = end._replace(made=made, anew=anew, then="", run=run)
        self.streams[row.stream] = end
        return end, repeated, late

    def _end_beyond(self, row: _Row, before: StreamEnd) -> StreamEnd:
        """Return a stream's end with a row that stands beyond all of the stream, but for its digests."""
        self._newest_rows[row.stream] = row
        made, anew = (max(row.ts, before.made), before.anew) if self._in_source_order and row.ts else (0, False)
        return StreamEnd(row.stated or "", 1, 0, made=made, anew=anew, run=row.run)

    def finish(self) -> None:
        """Write the digests of the rows with which streams end into `streams`."""
        for stream in list(self._newest_rows):
            self.streams[stream] = self._with_digests(stream, self.streams[stream])

    def _with_digests(self, stream: Stream, end: StreamEnd) -> StreamEnd:
        """Return a stream's end with the digests of the row that it ends with, where they were not made yet."""
        row = self._newest_rows.pop(stream, None)
        if row is None:
            return end
        contents = _digest(row.batch, row.message)
        group = _group_digest(row, contents) if self._is_grouped(row) else ""
        if group or not row.has_key:
            self._sent[stream] = row.sent_ms
        return end._replace(first=contents, group=group)

    def _is_grouped(self, row: _Row) -> bool:
        """Return whether other rows may share a row's place in the log."""
        if not (row.stated and self._in_source_order) or is_of_snapshot(row.stated):
            return False
        return dialect_of(row.stream.source) in _GROUP_PLACES

    def _follow_group(self, before: StreamEnd, row: _Row) -> tuple[StreamEnd, bool, str]:
        """Return a stream's end with a row of a group that is not beyond it.

        With it whether the row is a repetition, and why that cannot be told.

        No row with a key changes in one way twice in a row, so its newest change is a copy when it comes again, and so
        is one that cannot follow it. Copies of others are taken once more, which leads to the same row.
        """
        place = row.stated or ""
        if not same_group(before, place):
            return before._replace(again_at=0, again_after=0, again_from=-1, run=row.run or before.run), True, ""
        digest = _group_digest(row, _digest(row.batch, row.message))
        is_same_run = bool(row.run) and row.run == before.run
        if row.has_key:
            newest = newest_of_key(before, digest)
            is_copy = newest == digest and (not is_same_run or not _is_through(before))
            is_copy = is_copy or (not can_follow(newest, digest) and bool(rows_like(before, digest)))
            end = before if is_copy else None
            if end is None and not is_same_run and rows_like(before, digest):
                self.doubtful[_MADE_AGAIN.format(row.stream.table)] += 1
        else:
            is_under_way = not _is_through(before) and (is_same_run or not row.run)
            end = repeat_next(before, digest, row.run) if is_under_way else None
            if end is None and not is_same_run:  # a replay may be broken off by another one
                start, late = self._start_again(before, row, digest)
                if late:
                    return before, False, late
                end = None if start is None else repeat_from(before, start, row.run)
        if end is not None:
            return end, True, ""
        self._sent[row.stream] = row.sent_ms
        return add_row(before, place, digest, row.run), False, ""

    def _start_again(self, before: StreamEnd, row: _Row, digest: str) -> tuple[int | None, str]:
        """Return the row of a stream's group with which a replay begins by a row without key; why that is not known.

        None stands for a new row. Another run of the connector proves a restart. Where messages do not name runs, equal
        rows are copies if they came in a later landing or were sent a while later, and the doubt is counted.
        """
        named, alike = bool(row.run and before.run), rows_like(before, digest)
        is_later = before == self.before.streams.get(row.stream)
        waited = row.sent_ms - self._sent.get(row.stream, 0)
        is_copy = named or is_later or waited >= RESTART_MS
        if is_partial(before) and is_copy and not alike:
            return None, _BEYOND_GROUP.format(place_text(f"000000/{row.stated}"))
        if alike and (not named or len(alike) > 1):
            self.doubtful[(_AS_COPY if is_copy else _AS_ROW).format(row.stream.table)] += 1
        return (alike[0] if alike and is_copy else None), ""

    def _follow_copies(self, before: StreamEnd, row: _Row, end: StreamEnd, repeated: bool) -> tuple[StreamEnd, bool]:
        """Return the end of a TiCDC stream with a row and whether the row is a repetition, as `follow` or more surely.

        A transaction changes a row once, so the first row at the end of a stream is a copy whenever it comes again,
        also where nothing came between; messages without key may be of equal rows. A delete behind the end of a replay
        is taken though it may have come before: nothing stands behind it that it could take away, and how many came is
        not known where a replay began with some.
        """
        if row.stated == before.newest and _digest(row.batch, row.message) == before.first:
            return before._replace(again_at=1, again_after=0), True
        return end, repeated and not (row.stated == "" and _is_through(before))

    def _is_read_again(self, log: StreamEnd, row: _Row, at: str) -> bool:
        """Return whether a row of an incremental snapshot, which was read when the log was there, had come before.

        Such rows come in the order of the log too. One that is newer than all others and yet stands below them is of
        another log, of which the rows say more.
        """
        stream, made = row.stream._replace(source=row.stream.source + INCREMENTAL), row.ts or 0
        before, digest = self.streams.get(stream, StreamEnd()), partial(_digest, row.batch, row.message)
        if at < log.newest and made <= log.made:
            return True
        if at < before.newest and made > before.made:
            before = StreamEnd()
        end, repeated = follow(before, at, digest)
        if not repeated and at == before.newest and _is_through(before) and digest() == before.first:
            end, repeated = before._replace(again_at=1, again_after=0), True
        self.streams[stream] = end._replace(made=max(made, before.made))
        return repeated

    def _begins_snapshot_anew(self, before: StreamEnd, row: _Row) -> bool:
        """Return whether a row of a table without key begins a snapshot again where the last one stands.

        A connector that was stopped before it had noted the end of its snapshot takes it again from the first row. Rows
        with a key are the same then, whichever snapshot they are of.
        """
        here = row.phase is not None and row.stated == before.newest and not row.has_key
        begins = row.phase in _BEGINNINGS or (before.last and row.is_last)  # a lone row is marked as the last one
        return here and begins and self._in_source_order

    def _is_begun_elsewhere(self, row: _Row) -> bool:
        """Return whether the first or last row of a snapshot without keys has come in another partition before."""
        if row.has_key or row.phase == "within":
            return False
        mark = row.stream.table, row.stream.source, row.stated or "", row.is_last
        return self._snapshot_marks.setdefault(mark, row.stream.partition) != row.stream.partition

    def _is_first_again(self, before: StreamEnd, row: _Row) -> bool:
        """Return whether a row is the one at the end of its stream, where a connector's replay may begin.

        A row with a key is known by its contents. One without is where the place names one row only. PostgreSQL's
        rows of one statement may share a place and be equal: there it is a copy where another run of the connector sent
        it. Where messages do not name the run, it is one that came in a later landing, or was sent a while later, and
        the doubt is counted.
        """
        if not self._in_source_order or row.stated != before.newest or not _is_through(before):
            return False
        if self._is_grouped(row):
            return False
        dialect = dialect_of(row.stream.source)
        scanned = is_of_snapshot(row.stated or "")
        if not row.has_key and (scanned or dialect in ROW_PLACES):
            return not scanned
        if _digest(row.batch, row.message) != before.first:
            return False
        if row.has_key:
            return True
        run = row.run
        if run and before.run:
            return run != before.run
        is_later = before == self.before.streams.get(row.stream)
        waited = row.sent_ms - self._sent.get(row.stream, 0)
        is_copy = is_later or waited >= RESTART_MS
        self.doubtful[(_AS_COPY if is_copy else _AS_ROW).format(row.stream.table)] += 1
        return is_copy

    def _below(self, at: str, landed: str) -> str:
        return (
            ""
            if at >= landed
            else f"it stands at {place_text(at)} of the source's log, below what was landed of its "
            f"table, through {place_text(landed)}: it came too late to be put in its place"
        )


def _is_through(end: StreamEnd) -> bool:
    """Return whether no replay is under way, of which more of what stands at the end has still to come."""
    return not 0 <= end.again_at < end.at


def same_statement(before: Line | None, line: Line, options: MessageOptions) -> bool:
    """Return whether a DDL happens at once with the line before it, as the renames of one statement do.

    Connectors send a record for each table of a statement in the order in which they are carried out.
    """
    if before is None or not before.rank == line.rank == _DDL or not (line.placed and before.placed):
        return False
    return before.at == line.at and not (options.in_source_order and line.at[INDEX:] != SNAPSHOT_DDL)


def _gives_name(sql: str) -> bool:
    """Return whether a DDL gives a table its name: it creates, renames or restores the table."""
    heads = (("CREATE", "TABLE"), ("RECOVER", "TABLE"), ("FLASHBACK", "TABLE"))
    return any(is_statement(sql, *words) for words in heads) or bool(rename_pairs(sql, ""))


def _in_log(place: str) -> str:
    """Return the place in the log, without whether it is that of a snapshot."""
    return place.partition(".")[2]


def place_text(place: str) -> str:
    """Return a place without the number of its log and the zeros by which it sorts."""
    return ".".join(part.lstrip("0") or "0" if part.isdigit() else part for part in place[INDEX:].split("."))


def _digest(batch: pa.RecordBatch, message: int) -> str:
    """Return a digest that is equal for copies of a message."""
    key, value = (batch.column(name)[message].as_py() for name in ("key", "value"))
    if value and value.startswith(_BLOCK):
        value = value.partition(_PAYLOAD)[2] or value
    value = value and _SENT.sub(b"", _SOURCE.sub(lambda source: _STAMPS.sub(b"", source[0]), value))
    value = value and _TRANSACTION.sub(b"", value)
    return hashlib.blake2b(repr((key, value)).encode(), digest_size=8).hexdigest()


def _group_digest(row: _Row, contents: str) -> str:
    """Return a digest that is equal for copies of a row among those of its group; `contents` is that of its message."""
    key = hashlib.blake2b(repr(row.batch.column("key")[row.message].as_py()).encode(), digest_size=4).hexdigest()
    return row_digest(key, contents, row.op)


_SOURCE = re.compile(rb'"source":\{[^{}]*\}')
_STAMPS = re.compile(rb',"ts_[mun]s":\d+|(?<=\{)"version":"[^"]*",')
_SENT = re.compile(rb'(?<="op":"[a-z]")(?:,"ts_[mun]s":\d+)+')
"""Pattern of the time and version with which a connector sent a message; copies differ in them.

Columns of the row may have such names: only what stands in `source` and behind `op` is meant.
"""
_BLOCK, _PAYLOAD = b'{"schema":{', b',"payload":'
"""Beginning of a message with a schema block, and what is behind the block, which other versions write otherwise."""
_TRANSACTION = re.compile(
    rb',"transaction":(?:null|\{"id":"[^"]*","total_order":\d+,"data_collection_order":\d+\})(?=,"op":"[a-z]"|\}+$)'
)
"""The place of a change in its transaction: a connector that starts again amid one counts from there."""
_SENT_MS = re.compile(rb'"op":"[a-z]","ts_ms":(\d{1,15})')
_OP = re.compile(rb'"op":"([a-z])","ts_ms":\d')


def sent_ms(value: bytes | None) -> int:
    """Return the time at which a connector sent a message, in milliseconds since 1970; 0 where it does not say."""
    return max(map(int, _SENT_MS.findall(value or b"")), default=0)


def follow(end: StreamEnd, at: str | None, digest: Callable[[], str]) -> tuple[StreamEnd, bool]:
    """Return the end of a stream with one more row, and whether that row is a repetition.

    `at` is the row's place in the source's log: "" for one that stands where the row before it does, None for one that
    has nothing to do with places. Rows of a stream come in the order of the log, so what is below its end has come
    before, and what stands at its end, or after it without a place, as often as that was there. A replay that begins
    with the very row at the end is known by its being the same, and rows without a place with which one began are by
    another than the first of them behind its end: that one is new.
    """
    if at is None:
        return end, False
    again = end.again_at >= 0
    if at == "":
        if again and end.again_at < end.at:
            return end, True
        if again and end.again_after < end.after:
            if end.again_after or end.then in ("", digest()):
                return end._replace(again_after=end.again_after + 1), True
            return end._replace(after=1, then=digest(), again_at=-1, again_after=-1), False
        then = end.then if end.after else digest()
        return end._replace(after=end.after + bool(end.newest), then=then, again_at=-1, again_after=-1), False
    if at > end.newest:
        return StreamEnd(at, 1, 0, digest()), False
    if at < end.newest:
        return end._replace(again_at=0, again_after=0), True
    if again and end.again_at < end.at:
        return end._replace(again_at=end.again_at + 1), True
    if end.after and digest() == end.first:
        return end._replace(again_at=1, again_after=0), True
    return end._replace(at=end.at + 1, after=0, again_at=-1, again_after=-1), False
