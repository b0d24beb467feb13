"""What people decide about messages: each decision is an event of the landing, kept for ever.

release        a message that cannot be read: go past it, or read it again after what was wrong with it is mended
accept_loss    messages that are gone: land what is behind them
declare_dead   a partition of an archive to which nothing comes any more: let the fence go past it
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.landing.landing import Landing
from cdc_assets.landing.reading import Reading
from cdc_assets.model.landed import EventKind, Landed, LandedEvent
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.sources.topics import message_schema

__all__ = ["accept_loss", "declare_dead", "release"]


def release(
    landing: Landing, partition: Partition, offset: int, *, again: bool = False, applied: Mapping[TableId, Tso]
) -> None:
    """Let a message that cannot be read hold nothing any more: it is passed over, or with `again` read once more.

    `applied` says how far tables are: what is read again has to be above that, or it would never be applied. Raises
    BadSettings for a message that is not held, MalformedData for one that still cannot be read: nothing is decided
    then.
    """

    def decided(reading: Reading) -> None:
        held = _held(reading.before, partition, offset)
        if again:
            _read_again(reading, held, applied)
        reading.events.append(LandedEvent(EventKind.RELEASED, partition, offset, held.position, held.table))

    landing.decide(decided)


def _held(landed: Landed, partition: Partition, offset: int) -> LandedEvent:
    for event in landed.open_bad:
        if (event.partition, event.offset) == (partition, offset):
            return event
    known = ", ".join(event.place for event in landed.open_bad[:10]) or "none"
    raise BadSettings(f"{partition} offset {offset} is no message that holds anything; those are: {known}.")


def _read_again(reading: Reading, held: LandedEvent, applied: Mapping[TableId, Tso]) -> None:
    message = {"topic": held.partition.topic, "partition": held.partition.number, "offset": held.offset}
    row = {**dict.fromkeys(message_schema().names), **message, "key": held.key, "value": held.value, "headers": []}
    events = len(reading.events)
    reading.take_again(pa.RecordBatch.from_pylist([row], message_schema()), held.partition, held.position + 1)
    for event in reading.events[events:]:
        if event.kind is EventKind.BAD:
            raise MalformedData(f"{held.place} still cannot be read: {event.reason}")
    for rows in reading.rows:
        for one in rows.select(["schema", "table", "position"]).to_pylist():
            table = TableId(one["schema"], one["table"])
            through = applied.get(table, 0)
            if one["position"] <= through:
                raise BadSettings(
                    f"{held.place} has rows of {table} at {one['position']}, and the table is applied through "
                    f"{through}: they would never be taken. Release the message without reading it again, and rebuild "
                    "the table."
                )


def accept_loss(landing: Landing, lost: OffsetRange) -> None:
    """Write down that the messages of some offsets are gone for good, so that what is behind them is landed.

    Tables of the topic lack what was in them: every listing says so from then on. Raises BadSettings for offsets that
    are landed.
    """

    def decided(reading: Reading) -> None:
        start = reading.before.next.get(lost.partition)
        if start is None or lost.start < start or not len(lost):
            raise BadSettings(
                f"{lost} is no loss: {lost.partition} is landed to "
                f"{'no offset' if start is None else start}. Give the offsets that the error names."
            )
        reading.events.append(LandedEvent(EventKind.LOST, lost.partition, lost.start, 0, query=str(lost.stop)))

    landing.decide(decided)


def declare_dead(landing: Landing, partition: Partition) -> None:
    """Write down that nothing comes to a partition of an archive any more: the fence does not wait for its mark.

    It counts until something comes all the same. Raises BadSettings for a partition that is not known.
    """

    def decided(reading: Reading) -> None:
        start = reading.before.next.get(partition)
        if start is None:
            known = ", ".join(str(one) for one in sorted(reading.before.next)) or "none"
            raise BadSettings(f"{partition} is not landed; known partitions are: {known}.")
        reading.events.append(LandedEvent(EventKind.DEAD, partition, start, 0))

    landing.decide(decided)
