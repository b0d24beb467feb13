"""Decisions of people about messages: each is an event of the landing, kept for ever.

release        a message that cannot be read: go past it, or read it again after what was wrong with it is mended
accept_loss    messages that are gone: land what is behind them
declare_dead   a partition of an archive to which nothing comes any more: let the fence go past it
rebuilt        rows that came too late for tables: they are in them, since these were built anew
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.landing.batch import LandingBatch
from cdc_assets.landing.landing import Landing
from cdc_assets.model.landed import Decision, EventKind, Landed, LandedEvent, Omission, release_command
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso, iso_now
from cdc_assets.sources.topics import message_schema


@dataclass(frozen=True, slots=True)
class DecidedBy:
    """The person who decides; `when` is now, as ISO 8601 in UTC."""

    who: str = ""
    when: str = ""

    @classmethod
    def now(cls, who: str = "") -> DecidedBy:
        """Return somebody who decides now."""
        return cls(who, iso_now())


def release(
    landing: Landing,
    partition: Partition,
    offset: int,
    *,
    again: bool = False,
    applied: Callable[[TableId], Tso],
    by: DecidedBy = DecidedBy(),
) -> tuple[TableId, ...]:
    """Let a message that cannot be read hold nothing any more: it is passed over, or with `again` read once more.

    `applied` says how far a table is: rows at or below that are landed, and hold their table until it is rebuilt.
    Returns these tables. Raises BadSettings for a message that is not held, MalformedData for one that still cannot be
    read: nothing is decided then.
    """
    late: list[TableId] = []

    def decided(batch: LandingBatch) -> None:
        held = _held(batch.before, partition, offset)
        late[:] = _read_again(batch, held, applied, _landed_of(landing, batch.before, held)) if again else ()
        batch.events.append(_about(held, EventKind.RELEASED, "read again" if again else "passed over", by))
        if not again:
            omitted = OffsetRange(held.partition, held.offset, held.offset + 1)
            batch.omissions[omitted] = Omission(held.position, _least_behind(batch, held))

    landing.decide(decided)
    return tuple(late)


def _least_behind(batch: LandingBatch, held: LandedEvent) -> Tso:
    """Return a position at or above that of a message that cannot be read, by what is landed behind it; 0 if unknown.

    By offset it has a place of its own. Else a split with rows from before it tells by the greatest position only.
    """
    if batch.by_offset:
        return held.position + 1
    landed, partition = batch.before, held.partition
    positions = [
        split.low if split.first > held.offset else split.high
        for split in landed.splits
        if split.partition == partition and split.last > held.offset
    ]
    positions += [
        event.position
        for event in landed.events
        if event.kind is EventKind.DDL and event.partition == partition and event.offset > held.offset
    ]
    positions += [landed.marks[partition]] if landed.marks_at.get(partition, 0) > held.offset else []
    return min(positions, default=0)


def _about(held: LandedEvent, kind: EventKind, what: str, by: DecidedBy) -> LandedEvent:
    return Decision(
        kind, held.partition, held.offset, held.offset + 1, what, by.who, by.when, held.position,
        held.table,
    ).event  # fmt: skip


def _held(landed: Landed, partition: Partition, offset: int) -> LandedEvent:
    for event in landed.open_bad:
        if (event.partition, event.offset) == (partition, offset):
            return event
    for event in landed.open_late:
        if (event.partition, event.offset) == (partition, offset) and event.table is not None:
            raise BadSettings(
                f"{event.place} can be read, and its rows are landed; {event.table} is held because they came late. "
                f"Rebuild it: cdc-assets rebuild {event.table}."
            )
    places = ", ".join(event.place for event in landed.open_bad[:10]) or "none"
    raise BadSettings(f"{partition} offset {offset} is not a message that holds anything; those are: {places}.")


class _LandedEvents(NamedTuple):
    """Landed row events of a table in a message, by ordinal, and whether their split is of that message `alone`.

    What is landed again of the message has the place of such a split.
    """

    ordinals: frozenset[int] = frozenset()
    alone: bool = True


def _landed_of(landing: Landing, landed: Landed, held: LandedEvent) -> dict[TableId, _LandedEvents]:
    """Return by table the row events of a message that are landed, though others of it could not be."""
    landed_events = dict[TableId, _LandedEvents]()
    for split in landed.splits:
        if split.partition == held.partition and split.first <= held.offset <= split.last:
            rows = landing.store.fetch(split.file, split.group)
            lists = rows.filter(pc.equal(rows.column("offset"), held.offset)).column("ordinals").to_pylist()
            earlier = landed_events.get(split.table, _LandedEvents())
            landed_events[split.table] = _LandedEvents(
                earlier.ordinals.union(*lists), earlier.alone and split.first == split.last
            )
    return landed_events


def _read_again(
    batch: LandingBatch,
    held: LandedEvent,
    applied: Callable[[TableId], Tso],
    landed: Mapping[TableId, _LandedEvents],
) -> list[TableId]:
    message = {"topic": held.partition.topic, "partition": held.partition.number, "offset": held.offset}
    row = {**dict.fromkeys(message_schema().names), **message, "key": held.key, "value": held.value, "headers": []}
    events = len(batch.events)
    message_batch = pa.RecordBatch.from_pylist([row], message_schema())
    batch.take_again(message_batch, held.partition, held.position + 1, held.delivery)
    for event in batch.events[events:]:
        if event.kind is EventKind.BAD:
            raise MalformedData(
                f"{held.place} still cannot be read: {event.reason} Nothing was decided. "
                f"`{release_command(held.partition, held.offset)}` goes past it."
            )
    lines = [_lines(rows, landed) for rows in batch.rows]
    lacking = {line.table for batch_lines in lines for line in batch_lines if line.new}
    batch.rows[:] = [_with_events(*pair, lacking, landed) for pair in zip(batch.rows, lines, strict=True)]
    late = []
    for line in (line for batch_lines in lines for line in batch_lines):
        if line.new and line.position <= applied(line.table) and line.table not in late:
            late.append(line.table)
            batch.events.extend(batch.reader.late.hold(held, line.table, line.position))
    return late


class _Line(NamedTuple):
    """Row events of a table in a message, by ordinal, and which of them are not landed yet."""

    table: TableId
    position: Tso
    ordinals: Sequence[int]
    new: Sequence[int]


def _lines(rows: pa.RecordBatch, landed: Mapping[TableId, _LandedEvents]) -> list[_Line]:
    lines = []
    for row in rows.select(["schema", "table", "position", "ordinals"]).to_pylist():
        table, ordinals = TableId(row["schema"], row["table"]), row["ordinals"]
        landed_ordinals = landed.get(table, _LandedEvents()).ordinals
        lines.append(_Line(table, row["position"], ordinals, [at for at in ordinals if at not in landed_ordinals]))
    return lines


def _with_events(
    rows: pa.RecordBatch,
    lines: Sequence[_Line],
    lacking: Collection[TableId],
    landed: Mapping[TableId, _LandedEvents],
) -> pa.RecordBatch:
    """Return of a message's row events those to land, of tables that lack some.

    Those are the ones that are not landed, or all of them where they come in the place of a split.
    """
    tables_alone = {table for table in lacking if landed.get(table, _LandedEvents()).alone}
    fresh = [line.ordinals if line.table in tables_alone else line.new for line in lines]
    place = rows.schema.get_field_index("ordinals")
    kind = rows.schema.field(place)
    return rows.set_column(place, kind, pa.array(fresh, kind.type)).filter(pa.array(list(map(bool, fresh))))


def accept_loss(landing: Landing, lost: OffsetRange, by: DecidedBy = DecidedBy()) -> None:
    """Write down that the messages of some offsets are gone for good, so that what is behind them is landed.

    Tables that may have had some of them are not complete from then on, which is accepted with them. Raises
    BadSettings for offsets that are landed, and for messages that are there.
    """
    # The messages may be in the log, or may still come.
    end = landing.ends().get(lost.partition)
    if end is None or lost.stop > end.high:
        until = "is not there" if end is None else f"ends at offset {end.high}"
        raise BadSettings(
            f"{_inclusive(lost)} is not a loss: {lost.partition} {until}. Give the offsets that the error names."
        )
    if lost.stop > end.low and len(lost):
        for messages in landing.log().read(OffsetRange(lost.partition, max(lost.start, end.low), lost.stop)):
            if messages.num_rows:
                there = messages.column("offset")[0].as_py()
                raise BadSettings(
                    f"{_inclusive(lost)} is not a loss: the message of offset {there} is there. Give the offsets "
                    "that the error names."
                )
    span = _inclusive(lost)

    def decided(batch: LandingBatch) -> None:
        start, begun = batch.before.next.get(lost.partition, 0), batch.before.starts.get(lost.partition)
        missed = begun is not None and lost.stop <= begun.offset
        if (lost.start < start and not missed) or not len(lost):
            raise BadSettings(
                f"{span} is not a loss: {lost.partition} is landed to {start}. Give the offsets that the error names."
            )
        decision_text = f"the loss of {lost.start}..{lost.stop - 1} accepted"
        decision = Decision(EventKind.LOST, lost.partition, lost.start, lost.stop, decision_text, by.who, by.when)
        batch.events.append(decision.event)
        since = batch.last if batch.by_offset else batch.before.marks.get(lost.partition, 0)
        omission = Omission(since) if begun is None or not missed else Omission(0, begun.least)
        batch.omissions[lost] = omission

    landing.decide(decided)


def _inclusive(lost: OffsetRange) -> str:
    """Return a range with its last offset, as a person gives it."""
    return f"{lost.partition} {lost.start}..{lost.stop - 1}"


def declare_dead(landing: Landing, partition: Partition, by: DecidedBy = DecidedBy()) -> None:
    """Record that a partition gets no more messages: neither a mark nor a barrier of it is waited for.

    It counts until something comes all the same. Raises BadSettings for a partition that is not known, and for one of
    a broker's topic that is there and has no barriers, of which nothing waits.
    """
    waited = {barrier.topic for barrier in landing.landed().barriers}
    if (
        landing.log().proves_ends
        and partition.topic in {known_partition.topic for known_partition in landing.ends()} - waited
    ):
        raise BadSettings(
            f"{partition} is on a broker, where the checkpoint waits for no partition. Only one of an archive can be "
            "declared dead, or one of a topic that has barriers or is not there any more."
        )

    def decided(batch: LandingBatch) -> None:
        start = batch.before.next.get(partition)
        if start is None:
            partitions = ", ".join(str(known_partition) for known_partition in sorted(batch.before.next)) or "none"
            raise BadSettings(f"{partition} is not landed; known partitions are: {partitions}.")
        end = max(start, batch.before.ends.get(partition, 0))
        decision = Decision(EventKind.DEAD, partition, start, end, "declared dead", by.who, by.when)
        batch.events.append(decision.event)

    landing.decide(decided)


def rebuilt(landing: Landing, late: Collection[LandedEvent], as_of: Landed, by: DecidedBy) -> None:
    """Record that the tables that late rows hold have them now: they were built of what was landed `as_of`.

    Where more was landed of their partition since, the tables stay held: they may lack that.
    """

    def decided(batch: LandingBatch) -> None:
        still = batch.before.open_late
        batch.events.extend(
            _about(event, EventKind.REBUILT, f"{event.table} rebuilt", by)
            for event in late
            if event in still and batch.before.next.get(event.partition) == as_of.next.get(event.partition)
        )

    landing.decide(decided)
