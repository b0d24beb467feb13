"""Messages read since the newest landing, and the one commit that lands them: rows by table, events, the newest marks.

    LandingBatch.take(…)        take what a reader found, and keep of it what is new
    LandingBatch.take_result(…) the same of what a task found
    state_after(batch, ends)    what is landed once it is
    commit(…)                   land it, guarded by the offsets from which it was read
    Dialects                    which kind of database the messages of a topic and of a table come from
    KnownTables                 where tables begin, which events tell their columns, and what came back after a DROP

A message that cannot be read is an event with the mark before it: nothing behind it is known to be complete.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.ddl import (
    Unreadable,
    alter_without_rename,
    as_restored,
    creates_if_absent,
    database_of,
    is_statement,
    quote,
    rename_pairs,
    table_by_text,
    tables_by_text,
)
from cdc_assets.errors import BadSettings, TableMoved
from cdc_assets.formats.messages import Kind, dialect_of
from cdc_assets.landing.files import REPEAT, LandingStore, NewFiles, Spool, digest_of, event_rows
from cdc_assets.landing.partition_reader import (
    Bounds,
    Finding,
    PartitionReader,
    Schemas,
    bounds_of,
    first_columns,
    schema_event,
)
from cdc_assets.landing.tasks import ObservedTables, RangeResult, TaskResult
from cdc_assets.model.landed import NO_VALUES, EventKind, Landed, LandedEvent, LandedSplit, LogStart
from cdc_assets.model.offsets import Ends, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import first_of

RowsAgain = Callable[[ObservedTables, TableId, Tso], Iterable[pa.Table]]
"""Rows that were seen, a table, a position -> the table's rows beyond it among them, by the batches they came in."""

Shown = Callable[[Collection[TableId]], Iterable[LandedEvent]]
"""Tables -> the columns that the first of their rows show."""
Later = Callable[[TableId, Tso], Iterable[pa.Table]]
"""A table, a position -> its rows beyond it, as they came, in the order of offsets."""

_AGAINST_MARKS = (
    "its rows at {0} came for the first time after a mark had said that all through {1} is there, so tables may miss "
    "others that came so. Another changefeed sends its marks to the same topics, or messages that were acknowledged "
    "were lost (required-acks has to be -1). Give each changefeed topics of its own, and mend required-acks; then "
    "`cdc-assets rebuild {3}` builds {2} with these rows"
)

_TAKES_A_NAME = re.compile(r"\b(?:DROP|RENAME)\b", re.IGNORECASE)


@dataclass
class LandingBatch:
    """Results of `reader` since the newest landing, and which of them are new. Tasks brought rows of
    `brought_bytes`.
    """

    reader: PartitionReader
    rows: list[pa.Table] = field(default_factory=list)
    events: list[LandedEvent] = field(default_factory=list)
    stored_bytes: int = 0
    brought_bytes: int = 0

    def __post_init__(self) -> None:
        self.before, self.by_offset = self.reader.before, self.reader.options.by_offset
        self._ddl = {self._identity(event) for event in self.before.events if event.kind is EventKind.DDL}
        self.last, self.ahead = self.before.last, self.before.ahead
        self.streams = dict(self.before.streams)
        self.sources = list(self.before.sources)
        self.barriers = dict(self.before.barriers)
        self.starts = dict(self.before.starts)
        self.omissions = dict(self.before.omissions)
        self._begun = set(self.before.next)
        self.tables = KnownTables(self.before, self.reader.schemas, by_offset=self.by_offset)
        self._dialects = Dialects(self.before)

    def begin(self, ends: Ends) -> None:
        """Note where the log of each partition begins that is to be read for the first time."""
        for partition in ends.keys() - self._begun:
            self._begun.add(partition)
            if ends[partition].low:
                self.starts[partition] = LogStart(ends[partition].low, later=bool(self.before.next))

    @property
    def more_than_marks(self) -> bool:
        """Return whether there is more to land than marks."""
        return bool(self.stored_bytes or self.brought_bytes or self.events)

    def adds_more_than_marks(self, batch: pa.RecordBatch, partition: Partition) -> bool:
        """Return whether messages are more than marks; what they claim to lie elsewhere is not fetched."""
        if self.reader.has_rows(batch):
            return True
        self.take(self.reader.read(batch, partition))
        return self.more_than_marks

    def classify(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the lines of messages; schemas that they name are taken."""
        lines, registered = self.reader.classify(batch)
        self.take(registered)
        if self.by_offset:
            lines = self._dialects.parted(batch, lines)
        return _by_tables_of_text(lines) if self.reader.options.in_source_order else _by_table_of_text(lines)

    # --- what is new ---

    def take(self, findings: Iterable[Finding]) -> None:
        """Take what was found: rows, and events that are new."""
        for finding in findings:
            if isinstance(finding, LandedEvent):
                self._take_event(finding)
                continue
            self.stored_bytes += finding.nbytes
            self.rows.append(finding)
            new = finding.filter(pc.not_equal(finding.column("kind"), REPEAT)) if self.by_offset else finding
            self.events.extend(self.tables.seen(new))
            rule = self.reader.codec.keys_alone
            if rule is not None and new.num_rows:
                self.events.extend(self.tables.contents(new, rule.show_columns))

    def _take_event(self, event: LandedEvent) -> None:
        if event.kind is EventKind.DDL:
            self.take_ddl(event)
        else:
            self.events.append(event)

    def take_ddl(self, event: LandedEvent) -> bool:
        """Take a DDL once, however many partitions it is sent to; return whether it is new."""
        if not self.reader.options.in_source_order:
            event = replace(event, table=table_by_text(event.query, event.table))
        if event.table is None:
            try:
                event = replace(event, table=TableId(database_of(event.query)[0], ""))
            except Unreadable as problem:
                reason = f"its DDL names no table ({problem}): {event.query[:200]}"
                self.events.append(self.reader.as_bad(replace(event, reason=reason)))
                return True
        identity = self._identity(event)
        if identity in self._ddl:
            return False
        self._ddl.add(identity)
        self.tables.note_ddl(event)
        self.events.append(event)
        return True

    def has_ddl(self, place: str | None, source: str, table: TableId, query: str) -> bool:
        """Return whether a DDL of a protocol by offset was landed before."""
        return (place, source, table, query) in self._ddl

    def _identity(self, event: LandedEvent) -> tuple[Any, ...]:
        """Return the identity of a DDL, equal where it comes again in another partition or after a restart.

        Of protocols by offset it is its place in the source's log. One that takes a table out of its topic says in each
        partition of an archive that the table is complete there.
        """
        if self.by_offset:
            place = event.source_position or (event.partition, event.offset)
            return place, event.source, event.table, event.query
        alone = event.partition if not self.reader.proves_ends and _TAKES_A_NAME.search(event.query) else None
        return event.position, event.table, event.query, alone

    def take_again(self, batch: pa.RecordBatch, partition: Partition, position: Tso, delivery: int | None) -> None:
        """Take a message that could not be read before, whose `position` is that of a protocol by offset."""
        lines = self.classify(batch)
        rows = lines.filter(pc.equal(lines.column("kind"), Kind.ROW.value))
        places = pa.repeat(pa.scalar(position, pa.int64()), rows.num_rows)
        columns = {"delivery": pa.repeat(pa.scalar(delivery, pa.int64()), rows.num_rows)}
        columns |= {"position": places, "last_position": places} if self.by_offset else {}
        self.take(self.reader.rows(batch, rows, columns))
        for line in lines.filter(pc.not_equal(lines.column("kind"), Kind.ROW.value)).to_pylist():
            own = position if self.by_offset else None
            self.take(self.reader.other(line, batch, partition, batch.column("offset")[0].as_py(), own))

    # --- what tasks read ---

    def count(self, result: TaskResult) -> None:
        """Count what a task read."""
        self.reader.ignored.update(result.ignored)
        self.reader.unknown |= result.unknown
        self.reader.messages += result.messages
        self.brought_bytes += result.stored_bytes

    def take_result(self, result: RangeResult, rows_again: RowsAgain) -> None:
        """Take what a task noted of a range, as if it were read here: after the ranges before it."""
        reader, place = self.reader, result.offset_range.partition
        for mark, note in result.notes:
            if mark:
                reader.marks[place] = mark
            if isinstance(note, ObservedTables):
                self.events.extend(self.tables.noted(note.bounds.values(), note.shown, partial(rows_again, note)))
            elif reader.is_new(note):
                self._take_event(note)
        reader.go_on(result.offset_range, result.state)


_OF_SESSION = ("CREATE", "TEMPORARY"), ("CREATE", "OR", "REPLACE", "TEMPORARY"), ("DROP", "TEMPORARY")
_TEMPORARY = "a temporary table, which its session alone sees"
_MADE_NOTHING = "a CREATE TABLE of a table that was there before (IF NOT EXISTS)"


def _by_tables_of_text(spoken: pa.RecordBatch) -> pa.RecordBatch:
    """Return lines in which each DDL of a connector for MySQL is that of one table, with its text as the server ran it.

    Of a statement that renames several tables the connector sends a record for each; all of them name all
    tables in one text ("b,a,tmp"), and a name that the statement gives up again has no columns (`tableChanges`). One
    that alters a table and renames it too is parted. A record has no name where the connector's parser found no table
    that changes, or passed over a statement that it could not read; so the text counts.
    """
    is_ddl = pc.and_(pc.equal(spoken.column("kind"), Kind.DDL.value), pc.is_valid(spoken.column("query")))
    if not pc.any(is_ddl).as_py():
        return spoken
    lines = list[dict[str, Any]]()
    for line in spoken.to_pylist():
        if line["kind"] == Kind.DDL.value and line["query"] is not None:
            lines += _by_table(line, as_restored(line["query"], dialect_of(line["source"] or "")))
        else:
            lines.append(line)
    return pa.RecordBatch.from_pylist(lines, schema=spoken.schema)


def _by_table(line: dict[str, Any], text: str) -> Iterator[dict[str, Any]]:
    """Yield a DDL of a connector once for each of its tables."""
    ignored = {**dict.fromkeys(line), "message": line["message"], "kind": Kind.IGNORED.value}
    if any(is_statement(text, *words) for words in _OF_SESSION):
        yield {**ignored, "reason": _TEMPORARY}
        return
    if not line["table"] and creates_if_absent(text):
        yield {**ignored, "reason": _MADE_NOTHING}
        return
    altered, text = alter_without_rename(text) or ("", text)
    pairs = rename_pairs(text, line["schema"] or "")
    if altered:
        ((bare, qualified),) = rename_pairs(text, "")
        if qualified.schema and not bare.schema:  # only the rename finds out of which database the old name is
            yield {**line, "schema": qualified.schema, "table": qualified.table, "query": text}
            yield {**line, "schema": qualified.schema, "table": qualified.table, "query": altered}
            return
        yield {**line, "schema": pairs[0][0].schema, "table": pairs[0][0].table, "query": altered}
    table = TableId(line["schema"] or "", line["table"] or "").folded
    if len(pairs) > 1 or (pairs and table not in (pairs[0][0].folded, pairs[0][1].folded)):
        written = rename_pairs(text, "")
        for (old, new), (bare, qualified) in zip(pairs, written, strict=True):
            source_name = bare if qualified.schema else old  # the session's database is known by a new name without one
            query = text if len(pairs) == 1 else f"RENAME TABLE {_quoted(source_name)} TO {_quoted(new)}"
            yield {**line, "schema": new.schema, "table": new.table, "query": query}
        return
    tables = [] if line["table"] else tables_by_text(text, line["schema"] or "")
    for named in tables:
        yield {**line, "schema": named.schema, "table": named.table, "query": text}
    if not tables:
        yield {**line, "query": text}


def _by_table_of_text(lines: pa.RecordBatch) -> pa.RecordBatch:
    """Return lines of TiCDC in which each DDL is that of the table which its text names with a database."""
    is_ddl = pc.equal(lines.column("kind"), Kind.DDL.value)
    if not pc.any(is_ddl).as_py():
        return lines
    named = list[dict[str, Any]]()
    for line in lines.to_pylist():
        envelope = None if line["schema"] is None else TableId(line["schema"], line["table"] or "")
        if line["kind"] == Kind.DDL.value and (table := table_by_text(line["query"] or "", envelope)) is not None:
            line = {**line, "schema": table.schema, "table": table.table}
        named.append(line)
    return pa.RecordBatch.from_pylist(named, schema=lines.schema)


def _quoted(table: TableId) -> str:
    return ".".join(quote(name) for name in (table.schema, table.table) if name)


@dataclass(frozen=True, slots=True)
class LandingCounts:
    """Counts of a landing: messages by their offsets, rows, commits."""

    messages: int = 0
    rows: int = 0
    commits: int = 0

    def __add__(self, other: LandingCounts) -> LandingCounts:
        """Return the sums of two landings."""
        return LandingCounts(self.messages + other.messages, self.rows + other.rows, self.commits + other.commits)


def state_after(batch: LandingBatch, ends: Ends, proven: int) -> Landed:
    """Return the landing once a batch is landed, at these ends of the log."""
    reader, ignored = batch.reader, {**batch.before.ignored}
    for reason, count in reader.ignored.items():
        ignored[reason] = ignored.get(reason, 0) + count
    return replace(
        batch.before,
        next={**{partition: end.low for partition, end in ends.items()}, **reader.next},
        marks=dict(reader.marks),
        ends={partition: end.high for partition, end in ends.items()},
        proven=proven,
        landed_ms=int(time.time() * 1000),
        began=dict(batch.tables.began),
        ignored=ignored,
        streams=dict(batch.streams),
        sources=tuple(batch.sources),
        barriers=dict(batch.barriers),
        restarts=dict(reader.deliveries.restarts),
        marks_at=dict(reader.deliveries.marks_at),
        deliveries=reader.deliveries.open(reader.marks),
        unawaited={},
        unfinished={},
        last=batch.last,
        ahead=batch.ahead,
        newest=dict(reader.newest),
        starts={
            log_partition: start.with_least(reader.least_from(log_partition))
            for log_partition, start in batch.starts.items()
        },
        omissions={
            omitted: omission.with_least(reader.least_from(omitted.partition, omitted.stop))
            for omitted, omission in batch.omissions.items()
        },
    )


def commit(store: LandingStore, spool: Spool, batch: LandingBatch, state: Landed) -> int:
    """Land what was read, of which the spool has some rows, with the state after it; return how many rows.

    Raises TableMoved where others have landed since, BadSettings where no message is of the feed's protocol.
    """
    # Where of all that a feed begins with no message can be read, they are of another protocol.
    rows = batch.stored_bytes or batch.brought_bytes
    understood = any(not reason.startswith(NO_VALUES) for reason in batch.reader.ignored)
    begins = not (batch.before.next or rows or batch.reader.marks or understood)
    if begins and batch.events and all(event.kind is EventKind.BAD for event in batch.events):
        first = batch.events[0]
        raise BadSettings(
            f"no message can be read by the protocol {batch.reader.options.protocol}, of {len(batch.events):,} with "
            f"which the topics begin; the first is {first.place}: {first.reason}. Nothing was landed. Give the sink "
            "URI and the configuration exactly as the writer of the topics has them."
        )
    before = digest_of(batch.before.next) if batch.before.next else ""
    spool.take(batch.rows)  # none are left in it: it refers to itself, so it waits for the collector of cycles
    written = spool.finish()
    state = replace(state, landed_by=batch.reader.options.landed_by)
    events = event_rows([*batch.events, *_against_marks(batch, written.splits)], state, written.splits, batch.before)
    added = NewFiles(written.files, (store.write_events(events),))
    try:
        after = digest_of(state.next) if state.next else ""
        moved = [
            f"{partition} {batch.before.next.get(partition, 0)}..{until}"
            for partition, until in sorted(state.next.items())
            if until != batch.before.next.get(partition)
        ]
        store.commit(added, before, after, first_of(moved, "partition", 20))
    except TableMoved as error:
        if not error.where.get("unsettled"):
            store.discard(added)
        raise
    return sum(split.rows for split in written.splits)


def _against_marks(batch: LandingBatch, splits: Iterable[LandedSplit]) -> Iterator[LandedEvent]:
    """Yield the holds of tables whose first rows come below a mark that promised all of them.

    What a sender repeats was landed before, for all at or below a proven mark was. So a row beyond all that was landed
    of its table and yet not above that mark is new: another changefeed sends marks to the same topics, or what was
    acknowledged was lost. What had expired, was lost or could not be read may be new as well.
    """
    before, reader = batch.before, batch.reader
    late = [new_split for new_split in splits if new_split.low <= before.proven]
    if batch.by_offset or not reader.proves_ends or not late or before.accepted_losses:
        return
    greatest = dict(before.expired)
    for table, position in (
        *((landed_split.table, landed_split.high) for landed_split in before.splits),
        *((event.table, event.position + 1) for event in before.events if event.kind is EventKind.BAD),
    ):
        if table is None:
            return
        greatest[table] = max(position, greatest.get(table, 0))
    gone = {partition.topic for partition in before.starts}
    for split in late:
        newest = greatest.get(split.table)
        if newest is None or split.partition.topic in gone:
            continue
        position = split.low if split.low > newest else split.high
        if newest < position <= before.proven:
            at = LandedEvent(EventKind.LATE, split.partition, split.first, 0)
            reason = _AGAINST_MARKS.format(position, before.proven, split.table, shlex.quote(str(split.table)))
            yield from reader.late.hold(at, split.table, position, reason)


class KnownTables:
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
            newest = self._newest.get(event.table)
            if newest is None or event.position > newest.position:
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
        with_columns, alone = (pc.index(shown, pa.scalar(flag)).as_py() for flag in (True, False))
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
    return event.kind is EventKind.DDL and is_statement(event.query, "DROP", "TABLE")


_MIXED = (
    "it is of a connector for {}, and what was landed of its {} before is of one for {}. Let each connector write to "
    "topics of its own, and to tables of its own, and then go past what it wrote here"
)
_OF = ("schema", "table", "source")


class Dialects:
    """The kinds of databases that are known, as of what was landed before."""

    def __init__(self, before: Landed) -> None:
        self._topics, self._tables = dict[str, str](), dict[TableId, str]()
        for event in before.events:
            self._note(event.partition.topic, event.table, _family(event.source))
        for stream in before.streams:
            self._note(stream.partition.topic, stream.table, _family(stream.source))

    def _note(self, topic: str, table: TableId | None, dialect: str) -> None:
        if dialect:
            self._topics.setdefault(topic, dialect)
            if table is not None and table.table:
                self._tables.setdefault(table.folded, dialect)

    def parted(self, batch: pa.RecordBatch, spoken: pa.RecordBatch) -> pa.RecordBatch:
        """Return the tables and kinds of messages, those of another kind than their topic or table as bad ones."""
        if spoken.column("source").null_count == spoken.num_rows:
            return spoken
        topics = batch.column("topic").take(spoken.column("message"))
        columns = [topics, *(spoken.column(name) for name in _OF)]
        groups = pa.table(columns, names=["topic", *_OF]).group_by(["topic", *_OF], use_threads=False).aggregate([])
        mixed = {tuple(group.values()): reason for group in groups.to_pylist() if (reason := self._reason(**group))}
        if not mixed:
            return spoken
        held = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.RecordBatch.from_pylist(
            list(_bad(spoken, [mixed.get(line_key, "") for line_key in held])), spoken.schema
        )

    def _reason(self, topic: str, schema: str | None, table: str | None, source: str | None) -> str:
        dialect, name = _family(source or ""), TableId(schema or "", table or "")
        if not dialect:
            return ""
        self._note(topic, name, dialect)
        for scope, earlier in (("topic", self._topics[topic]), ("table", self._tables.get(name.folded, dialect))):
            if earlier != dialect:
                return _MIXED.format(dialect, scope, earlier)
        return ""


def _family(source: str) -> str:
    """Return the kind of database of a source; MariaDB's and MySQL's connectors write alike."""
    dialect = dialect_of(source)
    return "mysql" if dialect == "mariadb" else dialect


def _bad(spoken: pa.RecordBatch, reasons: list[str]) -> Iterator[dict[str, object]]:
    """Yield lines, those with a reason as messages that cannot be read and stand where they are."""
    for line, reason in zip(spoken.to_pylist(), reasons, strict=True):
        kind = {"kind": Kind.BAD.value, "reason": reason, "source": None, "source_position": None, "query": None}
        yield {**line, **kind} if reason else line
