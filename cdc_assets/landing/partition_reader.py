"""Read ranges of partitions -> rows by table, and events for other contents of messages; the marks of each partition.

    ranges_to_read(landed, ends)   what is there and not landed, and what is gone: messages that expired; topics anew
    read_range(log, …, take)       its messages in batches, read while those before them are taken; none is missing
    PartitionReader.read(batch)    classify, fetch what lies elsewhere, part rows from events
    PartitionReader.finish(range)  how far its partition is read
    whole_message(…)               the file that a large message names -> the message that is in it
    LateRows                       tables that are held for rows that came too late
    bounds_of, first_columns       where the rows of each table begin and end, and the columns that the first show
    DeliveryStarts.take(…)         where deliveries of tables begin in the partitions of protocols by commit-ts

What a sender sends it sends in the order of commits, each table's rows behind each other; one that begins anew sends
again what it had sent before. Rows of a table without key may be equal, so only the delivery in which a row came tells
whether it is another one. It is given here, where all rows of a partition pass in their order: neither the fence, nor a
window, nor where landings are cut has a say in it.

A loss stops the landing until a person brings the messages back, or accepts it.

Nothing here knows of other partitions, so that a task can do it: what comes out is yielded in the order of the messages
as a `Finding`, and who goes on from it decides what of that is new.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import BadSettings, CdcError, InputError, MalformedData, SetupError, StepFailed, as_cdc_error
from cdc_assets.formats import MessageOptions
from cdc_assets.formats.messages import Kind, MessageCodec, SchemaEvent, codec_of, read_claim
from cdc_assets.landing.files import LANDED, PART, codes_of, in_runs, open_deliveries
from cdc_assets.model.landed import (
    LEFT_OUT,
    NOT_SHOWN,
    TAKEN_AWAY,
    DeliveryEnd,
    EventKind,
    FirstMessage,
    Landed,
    LandedEvent,
    LandedMessage,
    accept_loss_command,
)
from cdc_assets.model.offsets import Ends, OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted
from cdc_assets.sources.topics import PUT_BACK, LogReader
from cdc_assets.sources.topics.columns_text import format_schema

# --- what is to be read, and what of it is gone -----------------------------------------------------------------------

_LEFT_OUT = (
    f"{LEFT_OUT}{{}}: they are taken for the tombstones behind its deletes, which sink connectors skip by default "
    "(behavior.on.null.values = ignore)"
)
_TAKEN_AWAY = (
    f"{TAKEN_AWAY}{{}} away before they were read, more than its delete.retention.ms of {{:g}} hours after the landing "
    "before: deletes may have been among them, so rows that are gone may still be in its tables. Land more often than "
    "that, and bring the tables anew by a snapshot into topics of a feed of its own"
)


def ranges_to_read(landed: Landed, ends: Ends) -> list[OffsetRange]:
    """Return the ranges to read. Raises InputError for a log that lost messages or began anew."""
    ranges = []
    for partition, end in sorted(ends.items()):
        start = landed.next.get(partition)
        if start is None:
            start = end.low  # new partitions are read from their beginning
        elif end.low > start:
            lost = OffsetRange(partition, start, end.low)
            if landed.unaccepted(lost) is not None:
                raise _lost(lost)
            start = end.low
        elif end.high < start:
            raise created_anew(partition, f"ends at offset {end.high}, and was landed to {start}", start)
        if end.high > start:
            ranges.append(OffsetRange(partition, start, end.high))
    return ranges


def as_landed(batch: pa.RecordBatch, message: int) -> LandedMessage:
    """Return the fingerprint of a message by which it is known again."""
    key, value = (batch.column(name)[message].as_py() for name in ("key", "value"))
    digest = hashlib.blake2b(repr((key, value)).encode(), digest_size=8).hexdigest()
    return LandedMessage(batch.column("offset")[message].as_py(), digest)


def first_messages(log: LogReader, landed: Landed, ends: Ends) -> Mapping[Partition, FirstMessage]:
    """Return the messages with which the partitions of an archive begin; a file is read where it is not the known one.

    A topic that is created anew begins at offset 0, in a file that may have the name of another one. Raises InputError
    where a partition begins below what it began with, or with another message.
    """
    messages = dict(landed.firsts)
    for partition, end in ends.items():
        first = landed.firsts.get(partition)
        if not end.file or (first is not None and (first.offset, first.file) == (end.low, end.file)):
            continue
        at = landed.next.get(partition, end.low)
        if first is not None and end.low < first.offset:
            reason = f"begins at offset {end.low}, and began at {first.offset} when it was landed"
            raise created_anew(partition, reason, at)
        try:
            batches = [batch for batch in log.read(OffsetRange(partition, end.low, end.low + 1)) if batch.num_rows]
        except InputError as error:
            if first is None:
                raise
            raise created_anew(partition, f"begins with another file than was landed ({error.message})", at) from None
        for batch in batches:
            offset, digest = as_landed(batch, 0)
            if first is not None and offset == first.offset and digest != first.digest:
                raise created_anew(partition, f"has another message at offset {offset} than was landed", at)
            messages[partition] = FirstMessage(offset, end.file, digest)
    return messages


def refuse_another_log(
    log: LogReader, landed: Landed, ends: Ends, ranges: Iterable[OffsetRange], whole: Callable[..., pa.RecordBatch]
) -> None:
    """Raise InputError where the newest message that was landed of a partition is another one by now.

    One message is read of each partition of which more is to be landed. Topics of which the broker's own ids are known
    are left out, and so are messages that are gone: whoever deletes them keeps the offsets of the others.
    """
    for offset_range in ranges:
        partition, newest = offset_range.partition, landed.newest.get(offset_range.partition)
        if newest is None or partition.topic in landed.topic_ids or newest.offset < ends[partition].low:
            continue
        try:
            batches = [*log.read(OffsetRange(partition, newest.offset, newest.offset + 1))]
        except InputError as error:
            if not error.where.get("gone"):  # else it expired meanwhile
                raise
            continue
        if any(batch.num_rows and as_landed(whole(batch), 0) != newest for batch in batches):
            at = f"has another message at offset {newest.offset} than was landed"
            raise created_anew(partition, at, offset_range.start)


def created_anew(partition: Partition, reason: str, start: int) -> InputError:
    """Return the error of a topic that is not the one that was landed."""
    return InputError(
        f"{partition} {reason}: the topic was created anew, or cut. Its messages cannot be separated from those that "
        "are "
        "landed. Rebuild this changefeed's tables from a dump or from the changefeed's start, in a landing of its own "
        "(another name); or remove from an archive what does not belong to it.",
        topic=partition.topic,
        partition=partition.number,
        offset=start,
    )


def _lost(lost: OffsetRange) -> InputError:
    return InputError(
        f"{lost.partition} begins at offset {lost.stop}, and was landed to {lost.start}: the "
        f"{counted(len(lost), 'message')} {lost.start}..{lost.stop - 1} expired before they were read. Nothing was "
        "landed. Bring the messages back; or accept the loss, which is written down "
        f"(`{accept_loss_command(lost)}`), and import the tables anew from a dump.",
        topic=lost.partition.topic,
        partition=lost.partition.number,
        offset=lost.start,
        until=lost.stop,
        gone=True,
    )


Take = Callable[[pa.RecordBatch, OffsetRange], bool]
"""A consumer of some messages of a range, with the rest of the range; returns whether that is enough."""


def concerning_messages(options: MessageOptions) -> AbstractContextManager[None]:
    """Raise an unforeseen error of a feed with masks as StepFailed, without any text of a message."""

    def meaning(reason: str) -> StepFailed:
        return StepFailed(
            f"messages cannot be landed ({reason}). Nothing of them was kept. Try again; if it fails again, report it "
            "with this text."
        )

    return as_cdc_error(meaning, show_text=False) if options.confidential else nullcontext()


def read_range(
    log: LogReader, landed: Landed, offset_range: OffsetRange, noted: Counter[str], take: Take
) -> OffsetRange:
    """Read a range in batches of messages, until there is enough; return what is left of it, which may be nothing.

    The messages after a batch are read while it is taken. Raises InputError where messages are missing in the range,
    and their loss is not accepted in what is `landed`. What compaction may have taken away too soon, and tombstones
    that an archive does not have, are noted.
    """
    partition, at = offset_range.partition, offset_range.start
    with closing(read_ahead(log.read(offset_range))) as batches:
        for batch in batches:
            if batch.num_rows:
                behind = batch.column("offset")[-1].as_py() + 1
                if behind - at != batch.num_rows:
                    _refuse_missing(log, landed, partition, [at - 1, *batch.column("offset").to_pylist()], noted)
                at = behind
                put_back = pc.sum(pc.equal(batch.column("timestamp_type"), PUT_BACK)).as_py()
                if put_back:
                    noted[_LEFT_OUT.format(partition.topic)] += put_back
                rest = OffsetRange(partition, at, offset_range.stop)
                if take(batch, rest) and len(rest):
                    return rest
    if at < offset_range.stop:
        _refuse_missing(log, landed, partition, [at - 1, offset_range.stop], noted)
    return OffsetRange(partition, offset_range.stop, offset_range.stop)


def _refuse_missing(
    log: LogReader, landed: Landed, partition: Partition, offsets: Sequence[int], noted: Counter[str]
) -> None:
    """Raise InputError where messages are missing between these offsets, and nothing takes them away.

    The last message of a deleted row is taken away by compaction after a while. Who reads less often may never see that
    a row that was landed is gone, so that is noted.
    """
    for before, offset in pairwise(offsets):
        lost = OffsetRange(partition, before + 1, offset)
        unaccepted = landed.unaccepted(lost) if len(lost) else None
        if unaccepted is not None:
            why = log.missing_because(partition.topic)
            if why == "compacted" and partition in landed.next:
                keeps_ms = log.keeps_deletes_ms(partition.topic)
                if time.time() * 1000 - landed.landed_ms > keeps_ms:
                    count = offsets[-1] - offsets[0] - len(offsets) + 1
                    noted[_TAKEN_AWAY.format(partition.topic, keeps_ms / 3_600_000)] += count
            if why:
                return
            raise _vanished(unaccepted)


def _the_messages(lost: OffsetRange) -> str:
    return f"{counted(len(lost), 'message')} ({lost.start}..{lost.stop - 1}) {'is' if len(lost) == 1 else 'are'}"


def _vanished(lost: OffsetRange) -> InputError:
    return InputError(
        f"{lost.partition}: {_the_messages(lost)} missing, and the topic is neither compacted nor transactional: that "
        "is a loss. Nothing of it was landed, and nothing behind it. Bring the messages "
        f"back; or accept the loss, which is written down (`{accept_loss_command(lost)}`), and import the tables anew "
        "from a dump.",
        topic=lost.partition.topic,
        partition=lost.partition.number,
        offset=lost.start,
        until=lost.stop,
    )


_T = TypeVar("_T")
_END = object()


_AHEAD = 2
"""Batches: what comes while a commit is written."""


def read_ahead(source: Iterator[_T], count: int = _AHEAD) -> Generator[_T, None, None]:
    """Yield the items of a source, of which up to `count` are read ahead; its errors are raised."""
    with ThreadPoolExecutor(1, "cdc-assets-log") as pool:
        waiting = deque(pool.submit(next, source, _END) for _ in range(count))
        try:
            while (item := waiting.popleft().result()) is not _END:
                waiting.append(pool.submit(next, source, _END))
                yield item  # type: ignore[misc]  # what is not the end is the source's
        finally:
            for future in waiting:
                future.cancel()


# --- what messages say -----------------------------------------------------------------------------------------------

_AS_CLASSIFIED = ("ordinals", "kind", "schema", "table", "claim", "commit_ts", "source", "source_position", "shape")

Places = npt.NDArray[np.int64]

Finding: TypeAlias = LandedEvent | pa.Table
"""An event, or rows of a partition with the columns of LANDED."""

Claims = Callable[[str], bytes]
"""Location of a claim-check file -> its bytes; raises InputError."""
Registered = Callable[[str], "str | None"]
"""Id of a schema -> its text, None where the registry has none; raises StorageUnavailable."""


def _no_registry(schema_id: str) -> str | None:
    raise BadSettings(
        f"messages name schema {schema_id} of a schema registry, and none is given. Give it as schema_registry (flag "
        "--schema-registry): the URL that TiCDC has, or a file of schemas."
    )


_ANOTHER_SCHEMA = (
    "schema {} of the registry is another one than was landed of it ({} then, {} now): the registry was made anew, or "
    "is not the one that the messages before were written with, so nothing says by which of the two a message is to "
    "be read. Nothing was landed. Give the registry of these messages as schema_registry; where it was made anew, let "
    "a changefeed with topics and a name of its own begin from there."
)


def _parsed(text: str | None) -> Any:
    try:
        return text and json.loads(text)
    except ValueError:
        return text


def _record_name(schema: Any) -> str:
    """Return the name of a record and its fields, in short."""
    if not isinstance(schema, dict):
        return "no record"
    fields = ", ".join(str(field.get("name")) for field in schema.get("fields", ()) if isinstance(field, dict))
    return f"{schema.get('namespace', '')}.{schema.get('name', '')}({fields})"


_ORDINAL_BITS = 20
"""A place in a partition as one number: the offset, and in this many bits the row's ordinal in the message."""


class PartitionDeliveries(NamedTuple):
    """Progress of deliveries in a partition, as in `Landed`; -1 without such a mark."""

    mark_at: int = -1
    restart: int = -1
    ends: tuple[tuple[TableId, DeliveryEnd], ...] = ()


class DeliveryStarts:
    """The deliveries of all partitions, as of what is landed `before`, brought forward by batches of messages."""

    def __init__(self, before: Landed) -> None:
        self.marks_at: dict[Partition, int] = dict(before.marks_at)
        self.restarts: dict[Partition, int] = dict(before.restarts)
        self.ends: dict[Partition, dict[TableId, DeliveryEnd]] = {}
        for (partition, table), end in before.deliveries.items():
            self.ends.setdefault(partition, {})[table] = end

    def open(self, marks: Mapping[Partition, Tso]) -> dict[tuple[Partition, TableId], DeliveryEnd]:
        """Return the ends that are needed on, where these are the greatest marks."""
        ends = {(partition, table): end for partition, held in self.ends.items() for table, end in held.items()}
        return open_deliveries(ends, marks, self.marks_at)

    def of(self, partition: Partition) -> PartitionDeliveries:
        """Return the state of a partition, for a reader that goes on elsewhere."""
        ends = tuple(self.ends.get(partition, {}).items())
        return PartitionDeliveries(self.marks_at.get(partition, -1), self.restarts.get(partition, -1), ends)

    def take_over(self, partition: Partition, deliveries: PartitionDeliveries) -> None:
        """Go on in a partition from where another has read it to."""
        for offsets, at in ((self.marks_at, deliveries.mark_at), (self.restarts, deliveries.restart)):
            if at >= 0:
                offsets[partition] = at
        self.ends[partition] = dict(deliveries.ends)

    def take(self, partition: Partition, offsets: Places, mark: Tso, marks: Places, rows: pa.RecordBatch) -> pa.Array:
        """Return for each line of rows (CLASSIFIED) the place at which its delivery begins: offset * 2**20 + ordinal.

        `offsets` and `marks` are those of all messages of the batch, -1 for what is no mark; `mark` is the greatest one
        before. A delivery of a table begins

        - with its first row, and where its commit-ts steps back,
        - behind a mark that is not greater than all before it: a sender has begun anew,
        - behind any mark, where what comes, or all that came before, stands at or below a mark: that was complete then.
        """
        is_mark = marks >= 0
        through = greatest_so_far(mark, marks)[:-1]
        mark_at = greatest_so_far(self.marks_at.get(partition, -1), np.where(is_mark, offsets, -1))
        restarts = greatest_so_far(
            self.restarts.get(partition, -1), np.where(is_mark & (marks <= through), offsets, -1)
        )
        for newest, places in ((self.marks_at, mark_at), (self.restarts, restarts)):
            if places[-1] >= 0:
                newest[partition] = int(places[-1])
        if not rows.num_rows:
            return pa.array([], pa.int64())
        lines = rows.column("message").to_numpy()
        return pa.array(self._begun(partition, rows, offsets[lines], through[lines], mark_at[lines], restarts[lines]))

    def _begun(
        self,
        partition: Partition,
        rows: pa.RecordBatch,
        offsets: Places,
        through: Places,
        mark_at: Places,
        restarts: Places,
    ) -> Places:
        """Return the result of `take`; the last four are those of each line, marks as of before it."""
        codes = codes_of(pa.Table.from_batches([rows]), ("schema", "table"))
        order = np.argsort(codes, kind="stable")
        heads = np.flatnonzero(np.diff(codes[order], prepend=-1))
        tails = np.append(heads[1:], len(order)) - 1
        schemas, names, ends = rows.column("schema"), rows.column("table"), self.ends.setdefault(partition, {})
        tables = [TableId(schemas[place].as_py(), names[place].as_py()) for place in order[heads].tolist()]
        table_ends = [ends.get(table) for table in tables]
        seeds = np.array([(-1, -1, -1, -1) if end is None else end for end in table_ends], np.int64)
        first, last = (rows.column(name).to_numpy()[order] for name in ("commit_ts", "last_commit_ts"))
        offsets, through, mark_at, restarts = (
            line_values[order] for line_values in (offsets, through, mark_at, restarts)
        )

        greatest = _greatest_by_table(last, heads, seeds[:, 2])
        before_at, before_last, before_greatest = (
            _shifted(column, heads, seeds[:, place]) for place, column in enumerate((offsets, last, greatest))
        )
        complete = (first <= through) | (before_greatest <= through)
        begins = (before_at < 0) | (first < before_last) | (restarts > before_at) | (complete & (mark_at > before_at))
        places = (offsets << _ORDINAL_BITS) + pc.list_element(rows.column("ordinals"), 0).to_numpy()[order]
        begun, is_head = np.where(begins, places, 0), np.zeros(len(order), bool)
        is_head[heads] = True
        begun[heads] = np.where(begins[heads], places[heads], seeds[:, 3])
        begun = begun[np.maximum.accumulate(np.where(begins | is_head, np.arange(len(order)), 0))]
        newest = zip(*(column[tails].tolist() for column in (offsets, last, greatest, begun)), strict=True)
        ends.update(zip(tables, map(DeliveryEnd._make, newest), strict=True))
        delivery_starts = np.empty(len(order), np.int64)
        delivery_starts[order] = begun
        return delivery_starts


def greatest_so_far(first: int, values: Places) -> Places:
    """Return a number and values behind it, each as the greatest of all up to it."""
    maxima: Places = np.maximum.accumulate(np.concatenate([np.array([first], np.int64), values]))
    return maxima


def _shifted(values: Places, heads: Places, seeds: Places) -> Places:
    """Return for each line the value of the one before it, at the heads of tables the seeds."""
    earlier_values = np.roll(values, 1)
    earlier_values[heads] = seeds
    return earlier_values


def _greatest_by_table(values: Places, heads: Places, seeds: Places) -> Places:
    """Return the greatest value of each line's table up to it; the seeds come before the lines at the heads."""
    seeded = values.copy()
    seeded[heads] = np.maximum(values[heads], seeds)
    distinct, ranks = np.unique(seeded, return_inverse=True)
    numbers = np.zeros(len(values), np.int64)
    numbers[heads] = 1
    base = np.cumsum(numbers) * len(distinct)
    maxima: Places = distinct[np.maximum.accumulate(base + ranks.reshape(-1)) - base]
    return maxima


class PartitionState(NamedTuple):
    """The greatest mark of a partition, its deliveries, the newest message, and the least position of what was read.

    `least` has that of messages at or behind an offset, by these offsets. None for no mark and no message.
    """

    mark: Tso | None = None
    deliveries: PartitionDeliveries = PartitionDeliveries()
    newest: LandedMessage | None = None
    least: tuple[tuple[int, Tso], ...] = ()


@dataclass
class PartitionReader:
    """Progress of reading a feed's partitions since the newest landing, whose state is `before`.

    What it yields has to be taken to the end. `unknown` are the schemas that the registry has not, `compared` those
    that are known to be as they were landed.
    """

    before: Landed
    options: MessageOptions
    claims: Claims
    registry: Registered = _no_registry
    proves_ends: bool = True
    compared: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.ignored: Counter[str] = Counter()
        self.messages = 0
        self.next: dict[Partition, int] = dict(self.before.next)
        self.marks: dict[Partition, Tso] = dict(self.before.marks)
        self.deliveries = DeliveryStarts(self.before)
        self._least: dict[Partition, dict[int, Tso]] = {}
        self._behind = {(lost.partition, lost.stop) for lost in self.before.accepted_losses}
        self.newest: dict[Partition, LandedMessage] = dict(self.before.newest)
        self.options = replace(self.options, registry={**self.options.registry, **self.before.registered})
        self.late = LateRows(self.before, proves_ends=self.proves_ends)
        self.unknown = set[str]()
        self._statements = {e.shape or e.value for e in self.before.events if e.kind is EventKind.SCHEMA}
        self.codec = codec_of(self.options)

    def fork(self) -> PartitionReader:
        """Return one that reads on from here by itself, wherever a task runs: picklable, with nothing counted.

        Of the state before it has what a task needs: how far is landed, and which losses are accepted.
        """
        lost = tuple(event for event in self.before.events if event.kind is EventKind.LOST)
        landed = self.before
        before = Landed(landed.identity, landed.next, proven=landed.proven, landed_ms=landed.landed_ms, events=lost)
        compared = set(self.compared)
        made = PartitionReader(before, self.options, self.claims, self.registry, self.proves_ends, compared)
        made.marks, made.deliveries = dict(self.marks), deepcopy(self.deliveries)
        made.late, made.unknown = self.late.copy(), set(self.unknown)
        return made

    # --- messages ---

    def read(self, batch: pa.RecordBatch, partition: Partition) -> Iterator[Finding]:
        """Yield the contents of some messages of a partition, in the order of their offsets."""
        batch = self.whole(batch)
        lines, registered = self.classify(batch)
        yield from registered
        kinds = lines.column("kind")
        rows = lines.filter(pc.equal(kinds, Kind.ROW.value))
        marks = np.full(batch.num_rows, -1, np.int64)
        resolved = lines.filter(pc.equal(kinds, Kind.RESOLVED.value))
        marks[resolved.column("message").to_numpy()] = resolved.column("commit_ts").to_numpy()
        row_offsets = batch.column("offset").to_numpy()
        deliveries = self.deliveries.take(partition, row_offsets, self.marks.get(partition, 0), marks, rows)
        yield from self.rows(batch, rows, {"delivery": deliveries})
        offsets = batch.column("offset")
        for line in lines.filter(pc.not_equal(kinds, Kind.ROW.value)).to_pylist():
            yield from self.other(line, batch, partition, offsets[line["message"]].as_py())
        self.messages += batch.num_rows
        if batch.num_rows:
            self.next[partition] = max(self.next.get(partition, 0), offsets[-1].as_py() + 1)
            self.newest[partition] = as_landed(batch, batch.num_rows - 1)

    def whole(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return messages that say by themselves what their headers say."""
        return batch if self.codec.whole is None else self.codec.whole(batch)

    def has_rows(self, batch: pa.RecordBatch) -> bool:
        """Return whether rows are among messages; neither schemas nor what lies elsewhere is fetched."""
        lines = self.codec.classify(self.whole(batch), self.options)
        return bool(pc.any(pc.equal(lines.column("kind"), Kind.ROW.value)).as_py())

    def classify(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[LandedEvent]]:
        """Return the lines of messages, and the schemas that they name and nobody has asked for yet."""
        registered = list[LandedEvent]()
        if self.codec.schema_ids is not None:
            for name, message in self.codec.schema_ids(batch, self.options).items():
                if name in self.options.registry:
                    self._refuse_another_schema(name)
                elif name not in self.unknown:
                    registered += self._register(name, batch.slice(message, 1).to_pylist()[0])
        return self.codec.classify(batch, self.options), registered

    def _register(self, name: str, first: Mapping[str, Any]) -> Iterator[LandedEvent]:
        text = self.registry(name)
        if text is None:
            self.unknown.add(name)
            return
        place = Partition(first["topic"], first["partition"])
        event = LandedEvent(EventKind.REGISTERED, place, first["offset"], 0, query=text, shape=name)
        self._know(event)
        yield event

    def _refuse_another_schema(self, name: str) -> None:
        """Raise InputError where a number stands for another schema by now than was landed of it.

        A registry that was made anew counts from 1 again, and messages of the two can often be read by each other's
        schemas. One that does not answer is not asked again: what is known is read without it.
        """
        if name in self.compared or not name.isdigit():
            return
        try:
            text = self.registry(name)
        except CdcError:
            self.compared.update(self.options.registry)
            return
        registered, now = (_parsed(schema_text) for schema_text in (self.options.registry[name], text))
        if now is not None and now != registered:
            raise InputError(_ANOTHER_SCHEMA.format(name, _record_name(registered), _record_name(now)))
        self.compared.add(name)

    def _know(self, event: LandedEvent) -> None:
        """Take a schema that the registry has."""
        self.compared.add(event.shape)
        self.options = replace(self.options, registry={**self.options.registry, event.shape: event.query})

    def is_new(self, event: LandedEvent) -> bool:
        """Note what was found by one that reads on from here; return whether it is not known here already."""
        if event.kind is EventKind.REGISTERED:
            is_known = event.shape in self.options.registry
            self._know(event)
            return not is_known
        if event.kind is EventKind.LATE:
            self.late.note(event)
        return event.kind is not EventKind.SCHEMA or self._is_first_statement(event)

    def schemas(self, batch: pa.RecordBatch) -> Iterable[SchemaEvent]:
        """Return the columns that messages show."""
        return self.codec.schemas(batch, self.options)

    def finish(self, offset_range: OffsetRange) -> None:
        """Note that a range was read to its end."""
        self.next[offset_range.partition] = max(self.next.get(offset_range.partition, 0), offset_range.stop)

    def state(self, partition: Partition) -> PartitionState:
        """Return the state through which a partition is read, for a reader that goes on from there."""
        return PartitionState(
            self.marks.get(partition),
            self.deliveries.of(partition),
            self.newest.get(partition),
            tuple(self._least.get(partition, {}).items()),
        )

    def go_on(self, offset_range: OffsetRange, state: PartitionState) -> None:
        """Go on behind a range that another one has read."""
        place = offset_range.partition
        if state.mark is not None:
            self.marks[place] = state.mark
        self.deliveries.take_over(place, state.deliveries)
        if state.newest is not None:
            self.newest[place] = state.newest
        for offset, position in state.least:
            self._note_least(place, offset, position)
        self.finish(offset_range)

    # --- rows ---

    def rows(
        self, batch: pa.RecordBatch, lines: pa.RecordBatch, replaced: Mapping[str, pa.Array] = MappingProxyType({})
    ) -> Iterator[Finding]:
        """Yield the rows of some messages; `replaced` are columns in place of the messages' own."""
        if not lines.num_rows:
            return
        messages = lines.column("message").to_numpy()
        held, count = in_runs(batch, messages), lines.num_rows
        columns = {
            **{name: held.column(name) for name in batch.schema.names if name in LANDED.names},
            **{name: lines.column(name) for name in _AS_CLASSIFIED},
            PART: pa.repeat("rows", count),
            "position": lines.column("commit_ts"),
            "last_position": lines.column("last_commit_ts"),
            **replaced,
        }
        arrays = [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type)
            for field in LANDED
        ]
        rows = pa.Table.from_arrays(arrays, schema=LANDED)
        if rows.column("claim").null_count < rows.num_rows:
            rows, unread = self._with_claims(rows)
            yield from unread
        if not rows.num_rows:
            return
        if not self.options.by_offset:
            yield from self.late.among(rows)
        place = Partition(rows.column("topic")[0].as_py(), rows.column("partition")[0].as_py())
        self._note_least(place, 0, pc.min(rows.column("position")).as_py())
        for behind in self._offsets_of(place):
            later = rows.filter(pc.greater_equal(rows.column("offset"), behind))
            self._note_least(place, behind, pc.min(later.column("position")).as_py())
        yield rows

    def _with_claims(self, rows: pa.Table) -> tuple[pa.Table, list[LandedEvent]]:
        """Return rows with the message itself in place of one that only says where it lies, and those without any."""
        unread = list[LandedEvent]()
        keys, values = rows.column("key").to_pylist(), rows.column("value").to_pylist()
        gone = np.zeros(rows.num_rows, bool)
        for place, location in enumerate(rows.column("claim").to_pylist()):
            if location is None:
                continue
            row = rows.slice(place, 1).to_pylist()[0]
            try:
                keys[place], values[place] = whole_message(self.claims(location), row, self.codec, self.options)
            except (InputError, SetupError, FileNotFoundError) as error:
                gone[place] = True
                unread.append(self._concealed(_unread(row, f"its value, at {location}, cannot be read: {error}")))
        for name, changed in (("key", keys), ("value", values)):
            at = LANDED.get_field_index(name)
            rows = rows.set_column(at, LANDED.field(at), pa.array(changed, pa.binary()))
        return rows.filter(pa.array(~gone)), unread

    # --- everything else ---

    def other(
        self,
        line: Mapping[str, Any],
        batch: pa.RecordBatch,
        partition: Partition,
        offset: int,
        placed_at: Tso | None = None,
    ) -> Iterator[LandedEvent]:
        """Yield the event of a message that is no row; `placed_at` is its position where that is not its commit-ts.

        A schema that is stated again and again is an event once.
        """
        kind, ts = Kind(line["kind"]), line["commit_ts"] or 0
        position = ts if placed_at is None else placed_at
        if kind in (Kind.RESOLVED, Kind.DDL) and not (self.options.by_offset and placed_at is None):
            for behind in (0, *self._offsets_of(partition)):
                if offset >= behind:
                    self._note_least(partition, behind, position)
        if kind is Kind.RESOLVED:
            self.marks[partition] = max(position, self.marks.get(partition, 0))
            return
        if kind is Kind.IGNORED:
            self.ignored[line["reason"] or "no reason"] += 1
            return
        table = None if line["schema"] is None else TableId(line["schema"], line["table"] or "")
        key, value = (batch.column(name)[line["message"]].as_py() for name in ("key", "value"))
        event = LandedEvent(
            EventKind(kind.value), partition, offset, position, table, line["query"] or "", line["type"] or 0, key,
            value, line["reason"] or "", line["source"] or "", line["source_position"] or "", line["shape"] or "", ts,
        )  # fmt: skip
        if event.kind is EventKind.BAD:
            yield self.as_bad(event)
        elif event.kind is EventKind.DDL or self._is_first_statement(event):
            yield event

    def least_from(self, partition: Partition, offset: int = 0) -> Tso:
        """Return the least position of a row, DDL or mark that was read from an offset on, 0 if there was none.

        The offset is one that was landed before, or the end of an accepted loss.
        """
        return self._least.get(partition, {}).get(offset if (partition, offset) in self._behind else 0, 0)

    def _offsets_of(self, partition: Partition) -> list[int]:
        return [offset for of, offset in self._behind if of == partition]

    def _note_least(self, partition: Partition, offset: int, position: Tso | None) -> None:
        if position:
            least = self._least.setdefault(partition, {})
            least[offset] = min(position, least.get(offset, position))

    def _is_first_statement(self, event: LandedEvent) -> bool:
        statement_key = event.shape or event.value
        first = statement_key not in self._statements
        self._statements.add(statement_key)
        return first

    def as_bad(self, event: LandedEvent) -> LandedEvent:
        """Return the event of a message that cannot be read, with the position through which all before is complete.

        For its table that is just before it. For the feed it is the mark before it; partitions that were added to a
        broker's topic get none, but what was proven before.
        """
        position = event.position - 1
        if not self.options.by_offset and (event.table is None or not event.position):
            position = max(self.marks.get(event.partition, 0), self.before.proven if self.proves_ends else 0)
        return self._concealed(replace(event, kind=EventKind.BAD, position=position))

    def _concealed(self, event: LandedEvent) -> LandedEvent:
        """Remove the text of an unreadable message from its reason, in a feed with masks."""
        return replace(event, reason=NOT_SHOWN) if self.options.confidential else event


def _unread(row: Mapping[str, Any], reason: str) -> LandedEvent:
    """Return a row as one that cannot be read: its table stops before it."""
    place, table = Partition(row["topic"], row["partition"]), TableId(row["schema"], row["table"])
    return LandedEvent(
        EventKind.BAD, place, row["offset"], (row["position"] or 1) - 1, table, "", 0, row["key"], row["value"],
        reason, row["source"] or "", row["source_position"] or "", delivery=row["delivery"],
    )  # fmt: skip


_TROUBLE = (ValueError, KeyError, TypeError, AttributeError, IndexError)
_ANOTHER = "the file holds {}, and the message that names it is of a row of {}.{} with the commit-ts {}"


def whole_message(
    content: bytes, row: Mapping[str, Any], codec: MessageCodec, options: MessageOptions
) -> tuple[bytes | None, bytes]:
    """Return key and value of a landed row of which there is the key only, with the row that its claim-check file has.

    Raises MalformedData for a file that holds anything else than the whole of that row.
    """
    key, value = read_claim(content, options)
    batch = pa.RecordBatch.from_arrays([pa.array([data], pa.binary()) for data in (key, value)], ["key", "value"])
    lines = codec.classify(batch, options).to_pylist()
    names = ("schema", "table", "commit_ts")
    is_same_place = [line["ordinals"] == [0] and all(line[name] == row[name] for name in names) for line in lines]
    if is_same_place != [True] or lines[0]["kind"] != Kind.ROW.value or lines[0]["claim"]:
        raise _another("; ".join(map(_shown, lines)), row)
    (ordinal,) = row["ordinals"]
    if codec.read_row is not None:
        try:
            part = codec.read_row(row["key"], row["value"], ordinal, options)
            whole = codec.read_row(key, value, 0, options)
        except _TROUBLE:
            raise _another("a row that cannot be read", row) from None
        if any(name not in whole or whole[name] != part_value for name, part_value in part.items()):
            raise _another("a row with another key", row)
    return (key, value) if codec.with_row is None else codec.with_row((row["key"], row["value"]), ordinal, (key, value))


def _another(content: str, row: Mapping[str, Any]) -> MalformedData:
    return MalformedData(_ANOTHER.format(content, row["schema"], row["table"], row["commit_ts"]))


def _shown(line: Mapping[str, Any]) -> str:
    if line["kind"] == Kind.BAD.value:
        return f"what cannot be read ({line['reason']})"
    named = "" if line["table"] is None else f" of {line['schema']}.{line['table']}"
    where = ", which names a file itself" if line["claim"] else f" with the commit-ts {line['commit_ts']}"
    return f"a message of the kind {line['kind']}{named}{where}"


_TOO_LATE = (
    "its rows at {} came when {} may have been applied beyond them, so they are not in it. `cdc-assets rebuild {}` "
    "builds it with them"
)


class LateRows:
    """Tables held for late rows, given what is landed `before`; once for each partition of a table.

    It counts for all of a landing, of several commits too: after the first of them no topic is new any more. What is
    committed of such a landing says so, for another may have to end it.
    """

    def __init__(self, before: Landed, *, proves_ends: bool) -> None:
        self._proves_ends, self._proven = proves_ends, before.proven
        self._partitions, self._marks, self._dead = frozenset(before.next), dict(before.marks), before.dead
        self._begun = before.unawaited
        self._topics = {partition.topic for partition in before.next}
        self._known = {*before.began, *(event.table for event in before.events if event.kind is EventKind.DDL)}
        self._held = {(event.table, event.partition) for event in before.open_late}

    def copy(self) -> LateRows:
        """Return a copy; tables that are held by it are not held in this one."""
        made = copy(self)
        made._held = set(self._held)
        return made

    def among(self, rows: pa.Table) -> Iterator[LandedEvent]:
        """Yield the holds of tables that may be applied beyond rows of a partition that nothing waited for."""
        since, until = self._between(Partition(rows.column("topic")[0].as_py(), rows.column("partition")[0].as_py()))
        if since >= until:
            return
        positions = rows.column("position")
        below = pc.and_(pc.greater(positions, pa.scalar(since)), pc.less_equal(positions, pa.scalar(until)))
        for row in rows.filter(below).to_pylist():
            place = Partition(row["topic"], row["partition"])
            table = TableId(row["schema"], row["table"])
            if self._proves_ends or table in self._known:
                yield from self.hold(LandedEvent(EventKind.LATE, place, row["offset"], 0), table, row["position"])

    def hold(self, at: LandedEvent, table: TableId, position: Tso, reason: str = "") -> Iterator[LandedEvent]:
        """Yield the hold of a table whose row at a position came late, unless it is held already."""
        place = (table, at.partition)
        if place in self._held:
            return
        self._held.add(place)
        reason = reason or _TOO_LATE.format(position, table, shlex.quote(str(table)))
        yield LandedEvent(EventKind.LATE, at.partition, at.offset, position - 1, table, reason=reason)

    def note(self, event: LandedEvent) -> None:
        """Note that a table is held by what was read elsewhere."""
        if event.table is not None:
            self._held.add((event.table, event.partition))

    def unawaited(self, partitions: Iterable[Partition]) -> Mapping[Partition, tuple[Tso, Tso]]:
        """Return the positions between which rows of partitions that nothing waited for may be missing."""
        between = {partition: self._between(partition) for partition in partitions}
        return {partition: bounds for partition, bounds in between.items() if bounds[0] < bounds[1]}

    def _between(self, partition: Partition) -> tuple[Tso, Tso]:
        """Return between which positions rows of a partition may be missing in tables, though these are beyond them.

        On a broker those of a topic that was not seen before, for a rule or a right hid it. In an archive those of a
        partition whose first file is there only now, and of one that was declared dead; a table that nothing was known
        of is not applied yet there.
        """
        if partition in self._begun:
            return self._begun[partition]
        if self._proves_ends:
            return 0, 0 if partition.topic in self._topics else self._proven
        newest = max(self._marks.values(), default=0)
        if partition in self._dead:
            return self._marks.get(partition, 0), newest
        return 0, 0 if partition in self._partitions else newest


_SHOWN_ROWS = 100
"""Rows of a table that are examined for its columns."""

Schemas = Callable[[pa.RecordBatch], Iterable[SchemaEvent]]
"""Messages -> the columns that they show."""


class Bounds(NamedTuple):
    """The least and the greatest position of a table's rows, None where no row has one."""

    table: TableId
    first: Tso | None
    last: Tso | None


def bounds_of(rows: pa.Table) -> list[Bounds]:
    """Return the beginning and end of the rows of each table, the table of the first row first."""
    positions = [("position", "min"), ("position", "max")]
    groups = rows.group_by(["schema", "table"], use_threads=False).aggregate(positions).to_pylist()
    return [
        Bounds(TableId(group["schema"], group["table"]), group["position_min"], group["position_max"])
        for group in groups
    ]


def first_columns(rows: pa.Table, tables: Collection[TableId], schemas: Schemas) -> Iterator[LandedEvent]:
    """Yield the columns of each of these tables as the first of its rows show them, and the one of least position."""
    for table, places in _shown_rows(rows, tables):
        (batch,) = rows.take(pa.array(places)).combine_chunks().to_batches()
        for shown in schemas(batch):
            if shown.approximate and shown.table == table:
                yield schema_event(batch, shown, shown.version)
                break


def schema_event(batch: pa.RecordBatch, shown: SchemaEvent, position: Tso, shape: str = "") -> LandedEvent:
    """Return the event of a table's columns in a message of a batch."""
    row = {name: batch.column(name)[shown.message].as_py() for name in ("topic", "partition", "offset")}
    return LandedEvent(
        EventKind.SCHEMA,
        Partition(row["topic"], row["partition"]),
        row["offset"],
        position,
        shown.table,
        format_schema(shown.schema, shown.approximate),
        shape=shape,
    )


def _shown_rows(rows: pa.Table, tables: Collection[TableId]) -> Iterator[tuple[TableId, npt.NDArray[np.int64]]]:
    """Yield the places of the rows that are looked at of each table, the table of the first row first."""
    codes, schemas, names = codes_of(rows, ("schema", "table")), rows.column("schema"), rows.column("table")
    positions = rows.column("position").to_numpy()
    for first in sorted(np.unique(codes, return_index=True)[1].tolist()):
        table = TableId(schemas[first].as_py(), names[first].as_py())
        if table in tables:
            places = np.flatnonzero(codes == codes[first])
            yield table, np.unique([*places[:_SHOWN_ROWS], places[np.argmin(positions[places])]])
