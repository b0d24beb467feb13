"""What is to be read of each partition, and what of it is gone: messages that expired, or vanished; topics anew.

    ranges_to_read(landed, ends)   what is there and not landed
    read_range(log, …)             its messages in batches, read while those before them are landed; none is missing

A loss stops the landing until a person brings the messages back, or accepts it.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from typing import TypeVar

import pyarrow as pa

from cdc_assets.errors import InputError
from cdc_assets.model.landed import TAKEN_AWAY, FirstMessage, Landed, LandedMessage
from cdc_assets.model.landing_commands import accept_loss_command
from cdc_assets.model.offsets import Ends, OffsetRange, Partition
from cdc_assets.model.wording import counted
from cdc_assets.sources.topics import LogReader

__all__ = [
    "as_landed",
    "created_anew",
    "first_messages",
    "ranges_to_read",
    "read_ahead",
    "read_range",
    "refuse_another_log",
]

_TAKEN_AWAY = (
    f"{TAKEN_AWAY}{{}} away before they were read, more than its delete.retention.ms of {{:g}} hours after the landing "
    "before: deletes may have been among them, so rows that are gone may still be in its tables. Land more often than "
    "that, and bring the tables anew by a snapshot into topics of a feed of its own"
)


def ranges_to_read(landed: Landed, ends: Ends) -> list[OffsetRange]:
    """Return what is to be read. Raises InputError for a log that lost messages or began anew."""
    found = []
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
            found.append(OffsetRange(partition, start, end.high))
    return found


def as_landed(batch: pa.RecordBatch, message: int) -> LandedMessage:
    """Return what is kept of a message by which it is known again."""
    key, value = (batch.column(name)[message].as_py() for name in ("key", "value"))
    digest = hashlib.blake2b(repr((key, value)).encode(), digest_size=8).hexdigest()
    return LandedMessage(batch.column("offset")[message].as_py(), digest)


def first_messages(log: LogReader, landed: Landed, ends: Ends) -> Mapping[Partition, FirstMessage]:
    """Return the messages with which the partitions of an archive begin; a file is read where it is not the known one.

    A topic that is created anew begins at offset 0, in a file that may have the name of another one. Raises InputError
    where a partition begins below what it began with, or with another message.
    """
    found = dict(landed.firsts)
    for partition, end in ends.items():
        known = landed.firsts.get(partition)
        if not end.file or (known is not None and (known.offset, known.file) == (end.low, end.file)):
            continue
        at = landed.next.get(partition, end.low)
        if known is not None and end.low < known.offset:
            said = f"begins at offset {end.low}, and began at {known.offset} when it was landed"
            raise created_anew(partition, said, at)
        try:
            batches = [batch for batch in log.read(OffsetRange(partition, end.low, end.low + 1)) if batch.num_rows]
        except InputError as error:
            if known is None:
                raise
            raise created_anew(partition, f"begins with another file than was landed ({error.message})", at) from None
        for batch in batches:
            offset, digest = as_landed(batch, 0)
            if known is not None and offset == known.offset and digest != known.digest:
                raise created_anew(partition, f"has another message at offset {offset} than was landed", at)
            found[partition] = FirstMessage(offset, end.file, digest)
    return found


def refuse_another_log(
    log: LogReader, landed: Landed, ends: Ends, ranges: Iterable[OffsetRange], whole: Callable[..., pa.RecordBatch]
) -> None:
    """Raise InputError where the newest message that was landed of a partition is another one by now.

    One message is read of each partition of which more is to be landed. Topics of which the broker's own ids are known
    are left out, and so are messages that are gone: whoever deletes them keeps the offsets of the others.
    """
    for wanted in ranges:
        known = landed.newest.get(wanted.partition)
        if known is None or wanted.partition.topic in landed.topic_ids or known.offset < ends[wanted.partition].low:
            continue
        try:
            batches = [*log.read(OffsetRange(wanted.partition, known.offset, known.offset + 1))]
        except InputError as error:
            if not error.where.get("gone"):  # else it expired meanwhile
                raise
            continue
        if any(batch.num_rows and as_landed(whole(batch), 0) != known for batch in batches):
            at = f"has another message at offset {known.offset} than was landed"
            raise created_anew(wanted.partition, at, wanted.start)


def created_anew(partition: Partition, said: str, start: int) -> InputError:
    """Return the error of a topic that is not the one that was landed."""
    return InputError(
        f"{partition} {said}: the topic was created anew, or cut. Its messages cannot be separated from those that are "
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


def read_range(
    log: LogReader, landed: Landed, wanted: OffsetRange, noted: Counter[str]
) -> Generator[tuple[pa.RecordBatch, int], None, None]:
    """Yield the messages of a range in batches, each with the offset behind it; those after it are read meanwhile.

    Raises InputError where messages are missing in the range, and their loss is not accepted in what is `landed`. What
    compaction may have taken away too soon is noted.
    """
    at = wanted.start
    with closing(read_ahead(log.read(wanted))) as batches:
        for batch in batches:
            if batch.num_rows:
                behind = batch.column("offset")[-1].as_py() + 1
                if behind - at != batch.num_rows:
                    _refuse_missing(log, landed, wanted.partition, [at - 1, *batch.column("offset").to_pylist()], noted)
                at = behind
                yield batch, at
    if at < wanted.stop:
        _refuse_missing(log, landed, wanted.partition, [at - 1, wanted.stop], noted)


def _refuse_missing(
    log: LogReader, landed: Landed, partition: Partition, offsets: Sequence[int], noted: Counter[str]
) -> None:
    """Raise InputError where messages are missing between these offsets, and nothing takes them away.

    The last message of a deleted row is taken away by compaction after a while. Who reads less often may never see that
    a row that was landed is gone, so that is noted.
    """
    for before, offset in pairwise(offsets):
        lost = OffsetRange(partition, before + 1, offset)
        left = landed.unaccepted(lost) if len(lost) else None
        if left is not None:
            why = log.missing_because(partition.topic)
            if why == "compacted" and partition in landed.next:
                keeps_ms = log.keeps_deletes_ms(partition.topic)
                if time.time() * 1000 - landed.landed_ms > keeps_ms:
                    count = offsets[-1] - offsets[0] - len(offsets) + 1
                    noted[_TAKEN_AWAY.format(partition.topic, keeps_ms / 3_600_000)] += count
            if why:
                return
            raise _vanished(left)


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
    """Yield what a source yields, up to `count` of which are read before they are asked for; its errors are raised."""
    with ThreadPoolExecutor(1, "cdc-assets-log") as pool:
        waiting = deque(pool.submit(next, source, _END) for _ in range(count))
        try:
            while (found := waiting.popleft().result()) is not _END:
                waiting.append(pool.submit(next, source, _END))
                yield found  # type: ignore[misc]  # what is not the end is the source's
        finally:
            for one in waiting:
                one.cancel()
