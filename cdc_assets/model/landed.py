"""Landed input of topics: rows in pieces, and the events that came between them."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted

NOT_SHOWN = "it cannot be read; why is not shown, because values of the changefeed are masked (setting privacy)"
"""The reason of a message that cannot be read, in a feed with masks."""


class EventKind(str, enum.Enum):
    """The kinds of messages in a topic that are kept for ever."""

    DDL = "ddl"
    SCHEMA = "schema"
    COLUMNS = "columns"
    KEY_ALONE = "key alone"
    BAD = "bad"
    LATE = "late"
    RELEASED = "released"
    REGISTERED = "registered"
    LOST = "lost"
    DEAD = "dead"
    REBUILT = "rebuilt"
    SNAPSHOT = "snapshot"


class SnapshotRow(str, enum.Enum):
    """Markers of a connector's snapshot on rows: the `query` of events of kind SNAPSHOT.

    FIRST and LAST are the rows with which a table begins and ends in it, BEGIN is the first and END the last one of all
    tables. A table whose only row is BEGIN has no LAST. WITHIN is another one that comes before FIRST or behind BEGIN,
    or where none is marked so. ANEW says that what follows is the snapshot once more, at the same place of the
    source's log.
    """

    BEGIN = "begin"
    FIRST = "first"
    WITHIN = "within"
    LAST = "last"
    END = "end"
    ANEW = "anew"


@dataclass(frozen=True, slots=True)
class LandedSplit:
    """The rows of one table among the messages `first` to `last` of a partition.

    `low` and `high` bound the positions of the rows, `rows` counts them, `size` is the bytes of their messages. `file`
    and `group` say where they lie now; the identity is the table with the offsets. `written_ms` is the greatest time of
    its messages by the log, 0 if that has none.
    """

    table: TableId
    partition: Partition
    first: int
    last: int
    low: Tso
    high: Tso
    rows: int
    size: int
    file: str = field(compare=False)
    group: int = field(compare=False)
    written_ms: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """The offsets as a name that sorts in their order."""
        return f"{self.partition.topic}+{self.partition.number}/{self.first:020d}-{self.last:020d}"


@dataclass(frozen=True, slots=True)
class LandedEvent:
    """A message that is not a row. `position` is its commit-ts; for a bad one the mark before it, 0 if there is none.

    A late one has rows that are landed too: its table may be applied beyond `position` already, and has to be
    rebuilt. `table` is None where the message names none, `table.table` "" for a DDL of a database. `reason` says
    why a message is bad. COLUMNS is the first row of a topic that has columns beside its key, KEY_ALONE the first
    row of a partition that has none, before the topic's had any. Of protocols by offset `position` is the one that
    landing gave, and the last four are as in the messages (`formats.messages.CLASSIFIED`), "" and 0 for null. A schema
    of a registry has its id in `shape` and its text in `query`. What a person decided is a `Decision`, whose text
    is in `query`. `delivery` is that of a bad message of a row, as its row would have it, None where it has none.
    """

    kind: EventKind
    partition: Partition
    offset: int
    position: Tso
    table: TableId | None = None
    query: str = ""
    type: int = 0
    key: bytes | None = None
    value: bytes | None = None
    reason: str = ""
    source: str = ""
    source_position: str = ""
    shape: str = ""
    commit_ts: Tso = 0
    delivery: int | None = None

    @property
    def place(self) -> str:
        """The message's place in its topic."""
        return f"{self.partition} offset {self.offset}"


DECIDED = (EventKind.RELEASED, EventKind.LOST, EventKind.DEAD, EventKind.REBUILT)
"""The events that people make."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's decision about a message, about offsets up to before `stop`, or about a partition.

    `what` says it in words, `who` is "" where nobody is named, `when` is ISO 8601 in UTC.
    """

    kind: EventKind
    partition: Partition
    offset: int
    stop: int
    what: str
    who: str = ""
    when: str = ""
    position: Tso = 0
    table: TableId | None = None

    @property
    def event(self) -> LandedEvent:
        """The decision as it is landed."""
        details = {"stop": self.stop, "what": self.what, "who": self.who, "when": self.when}
        return LandedEvent(
            self.kind, self.partition, self.offset, self.position, self.table, json.dumps(details, ensure_ascii=False)
        )

    @classmethod
    def of(cls, event: LandedEvent) -> Decision:
        """Read the event that `event` wrote."""
        return cls(
            event.kind, event.partition, event.offset, position=event.position, table=event.table,
            **json.loads(event.query),
        )  # fmt: skip


TAKEN_AWAY = "compaction took messages of the topic "
LEFT_OUT = "messages without value are missing in the archive of the topic "
TOMBSTONE = "a tombstone, which repeats a delete"
NO_VALUES = (TAKEN_AWAY, LEFT_OUT, TOMBSTONE)
"""Beginnings of the reasons for which messages are ignored that tell nothing of their protocol."""

INCREMENTAL = " incremental"
"""Behind the name of a log: the rows that were read from tables while it went on."""


class Stream(NamedTuple):
    """The rows of one table in one partition, from one log of the source ("" for the only one)."""

    partition: Partition
    table: TableId
    source: str = ""


class StreamEnd(NamedTuple):
    """The end of a stream of a protocol by offset, by which a replay of it is recognised.

    `newest` is the greatest source position, `at` how many rows have it, `first` a digest of the first of those, and
    `after` how many rows without position followed. During a replay `again_at` and `again_after` count how many of
    these have been repeated; otherwise both are -1. `made` is the time of the newest change in it, 0 if unknown. `anew`
    says that the source's log was started over, so that its positions do not compare with earlier ones. `then` is a
    digest of the first row without position that followed, "" if unknown. `last` says that the last row of the table's
    snapshot was seen at `newest`, `run` is that of the connector that sent what is there, "" if unknown.

    Of MySQL's log, `at` counts the rows at the file and position of `newest`, whatever their numbers in the event, and
    `group` has a digest of each. `again_from` is the row of the group with which a replay began, -1 for one that began
    before the group.
    """

    newest: str = ""
    at: int = 0
    after: int = 0
    first: str = ""
    again_at: int = -1
    again_after: int = -1
    made: Tso = 0
    anew: bool = False
    then: str = ""
    last: bool = False
    run: str = ""
    group: str = ""
    again_from: int = -1


class DeliveryEnd(NamedTuple):
    """The newest delivery of a table in a partition, of protocols by commit-ts.

    `offset` is that of the table's last message, `last` the greatest commit-ts in it, `greatest` that of all so far.
    `begun` is the number of the delivery, which grows.
    """

    offset: int
    last: Tso
    greatest: Tso
    begun: int


@dataclass(frozen=True, slots=True)
class LogStart:
    """Start of a partition's log when it was first read: messages before `offset` were gone by then.

    `least` is the least commit-ts or mark that was read of it, of protocols by offset the least position; 0 for none.
    `later` says that something of the feed had been landed before.
    """

    offset: int
    least: Tso = 0
    later: bool = False

    def with_least(self, position: Tso) -> LogStart:
        """Return the start with one more position that was read, 0 for none."""
        return replace(self, least=min((candidate for candidate in (self.least, position) if candidate), default=0))


@dataclass(frozen=True, slots=True)
class Omission:
    """Messages that a feed goes on without, by a person's decision: what they changed came after position `since`.

    `least` is the least position that was read behind them in their partition, 0 while nothing was.
    """

    since: Tso = 0
    least: Tso = 0

    def with_least(self, position: Tso) -> Omission:
        """Return the omission with one more position that was read behind it, 0 for none."""
        return replace(self, least=min((candidate for candidate in (self.least, position) if candidate), default=0))


class LandedMessage(NamedTuple):
    """A message that was landed, by its offset and a digest of its key and value."""

    offset: int
    digest: str


class FirstMessage(NamedTuple):
    """The message with which an archived partition begins: its offset, its file as that is, and its digest."""

    offset: int
    file: str
    digest: str


@dataclass(frozen=True, slots=True)
class Landed:
    """All that was landed of a feed. `identity` is the landing table's own id, "" before the first landing.

    `next` is the offset that each partition is read from next, `marks` the greatest mark of each, `ends` the log ends
    as of the newest landing. `proven` is the mark through which the ends, asked after it was seen, are landed; 0 where
    nothing proves that. `landed_ms` is when the newest landing was committed, `began` the position of the first row of
    each table. `ignored` counts messages that concern no table, by reason.

    Of protocols by offset `last` is the greatest position that was given, and `proven` the one through which rows are
    seen: a lesser one while rows up to the place `ahead` in the source's log wait for a barrier. `streams` are the ends
    of what each table has in each partition, `sources` the source's logs in the order in which they were met, and
    `barriers` the newest source position through which each partition says that it is complete. `topic_ids` are the
    broker's own ids of topics; a topic that was deleted and created again has another one. Rows of a table through
    `expired` are no longer kept; `emptied` is the least position, with its offset, of those that are gone from each
    partition. `restarts` are the offsets of the newest marks that were not greater than those
    before them: there a sender restarted; `marks_at` are those of the newest marks. `deliveries` are the ends of what
    came of each table, where that is above the greatest mark, or behind the newest. `unawaited` says between which
    positions tables may miss rows of partitions, while these are only partly landed. `unfinished` are the partitions in
    which a transaction was not at its end, each with the end of what was written. `starts` are the partitions whose
    log did not begin at offset 0 when it was first read, `newest` the last message that was landed of each, and
    `firsts` the first ones of an archive: by these another log of that name is recognised. `omissions` are the
    messages that the feed goes on without, by a person's decision. `landed_by` are the parameters of the sink URI by
    which messages were read, "" before the first landing.
    """

    identity: str = ""
    next: Mapping[Partition, int] = field(default_factory=dict)
    marks: Mapping[Partition, Tso] = field(default_factory=dict)
    ends: Mapping[Partition, int] = field(default_factory=dict)
    proven: Tso = 0
    landed_ms: int = 0
    began: Mapping[TableId, Tso] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    streams: Mapping[Stream, StreamEnd] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    barriers: Mapping[Partition, str] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    expired: Mapping[TableId, Tso] = field(default_factory=dict)
    emptied: Mapping[tuple[Partition, TableId], tuple[Tso, int]] = field(default_factory=dict)
    restarts: Mapping[Partition, int] = field(default_factory=dict)
    marks_at: Mapping[Partition, int] = field(default_factory=dict)
    deliveries: Mapping[tuple[Partition, TableId], DeliveryEnd] = field(default_factory=dict)
    unawaited: Mapping[Partition, tuple[Tso, Tso]] = field(default_factory=dict)
    unfinished: Mapping[Partition, int] = field(default_factory=dict)
    last: Tso = 0
    ahead: str = ""
    starts: Mapping[Partition, LogStart] = field(default_factory=dict)
    newest: Mapping[Partition, LandedMessage] = field(default_factory=dict)
    firsts: Mapping[Partition, FirstMessage] = field(default_factory=dict)
    omissions: Mapping[OffsetRange, Omission] = field(default_factory=dict)
    landed_by: str = ""
    events: tuple[LandedEvent, ...] = ()
    splits: tuple[LandedSplit, ...] = ()

    @property
    def first_rows(self) -> dict[tuple[Partition, TableId], tuple[Tso, int]]:
        """The least position, with an offset, of the rows of each table in each partition, those that expired too."""
        firsts = dict(self.emptied)
        for split in self.splits:
            place = split.partition, split.table
            firsts[place] = min((split.low, split.first), firsts.get(place, (split.low, split.first)))
        return firsts

    @property
    def taken_away(self) -> tuple[str, ...]:
        """Messages that compaction removed before they were read, and gaps of an archive, in words."""
        beginnings = (TAKEN_AWAY, LEFT_OUT)
        reasons = ((reason, count) for reason, count in sorted(self.ignored.items()) if reason.startswith(beginnings))
        return tuple(f"{reason} ({counted(count, 'message')})" for reason, count in reasons)

    @property
    def accepted_losses(self) -> tuple[OffsetRange, ...]:
        """The offsets whose messages are gone, as a person has accepted."""
        return tuple(
            OffsetRange(decision.partition, decision.offset, decision.stop)
            for decision in self.decisions
            if decision.kind is EventKind.LOST
        )

    def unaccepted(self, lost: OffsetRange) -> OffsetRange | None:
        """Return the part of a loss that nobody has accepted, None where all is."""
        at = lost.start
        for span in sorted(self.accepted_losses):
            if span.partition == lost.partition and span.start <= at < span.stop:
                at = span.stop
        return None if at >= lost.stop else OffsetRange(lost.partition, at, lost.stop)

    @property
    def dead(self) -> dict[Partition, int]:
        """The partitions that a person declared dead, each with the end of its log then, while no more is landed."""
        declared = (Decision.of(event) for event in self.events if event.kind is EventKind.DEAD)
        ends = {decision.partition: decision.stop for decision in declared}
        return {partition: end for partition, end in ends.items() if self.next.get(partition, 0) <= end}

    @property
    def registered(self) -> dict[str, str]:
        """The schemas of a registry that messages have named so far, by their ids."""
        return {event.shape: event.query for event in self.events if event.kind is EventKind.REGISTERED}

    @property
    def open_bad(self) -> tuple[LandedEvent, ...]:
        """The messages that cannot be read and that nobody has released."""
        released = {(event.partition, event.offset) for event in self.events if event.kind is EventKind.RELEASED}
        return tuple(
            event
            for event in self.events
            if event.kind is EventKind.BAD and (event.partition, event.offset) not in released
        )

    @property
    def open_late(self) -> tuple[LandedEvent, ...]:
        """The messages whose rows came when their table may have been applied beyond them, until it is rebuilt."""
        built = {
            (rebuild.partition, rebuild.offset, rebuild.table)
            for rebuild in self.events
            if rebuild.kind is EventKind.REBUILT
        }
        return tuple(
            event
            for event in self.events
            if event.kind is EventKind.LATE and (event.partition, event.offset, event.table) not in built
        )

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Decisions of people, in the order in which they made them."""
        return tuple(Decision.of(event) for event in self.events if event.kind in DECIDED)


_COMMAND = "cdc-assets landing"


def release_command(partition: Partition, offset: int, *, again: bool = False) -> str:
    """Return the command that skips a message that cannot be read, or with `again` reads it once more."""
    return f"{_COMMAND} release {partition.topic} {partition.number} {offset}{' --again' if again else ''}"


def accept_loss_command(lost: OffsetRange) -> str:
    """Return the command that accepts lost messages, so that landing goes on behind them."""
    return f"{_COMMAND} accept-loss {lost.partition.topic} {lost.partition.number} {lost.start} {lost.stop - 1}"


def declare_dead_command(partition: Partition) -> str:
    """Return the command by which the fence stops waiting for a partition that gets no more messages."""
    return f"{_COMMAND} declare-dead {partition.topic} {partition.number}"
