"""Layouts in which a file's name has its topic, partition and first offset: their common part."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa

from cdc_assets.errors import BadSettings, InputError, MalformedData
from cdc_assets.io.compression import buffered, decompressed, snappy_block
from cdc_assets.model.offsets import Partition
from cdc_assets.model.wording import counted
from cdc_assets.sources.topics import PUT_BACK, message_schema
from cdc_assets.sources.topics.archive.layouts import Span

_COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_MOST_BLOCK_BYTES = 1 << 30
_XERIAL = b"\x82SNAPPY\x00"


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file by its name: where its messages begin."""

    partition: Partition
    start: int
    path: str


def named_spans(files: Sequence[NamedFile], count: Callable[[NamedFile], int]) -> list[Span]:
    """Return the spans of files: each ends where the next begins. `count` returns how many messages the last one has.

    Raises InputError for two files that begin at the same offset.
    """
    by_partition: dict[Partition, list[NamedFile]] = {}
    for file in sorted(files, key=lambda named_file: (named_file.partition, named_file.start, named_file.path)):
        by_partition.setdefault(file.partition, []).append(file)
    spans = []
    for partition, some in by_partition.items():
        for earlier_file, other in pairwise(some):
            if earlier_file.start == other.start:
                raise InputError(
                    f"{earlier_file.path} and {other.path} both begin at offset {earlier_file.start} of {partition}; "
                    "expected that a "
                    "file's offsets go on where the one before it ends. Remove what does not belong to this archive.",
                    file=other.path,
                )
            spans.append(Span(partition, earlier_file.start, other.start, earlier_file.path))
        last = some[-1]
        spans.append(Span(partition, last.start, last.start + count(last), last.path))
    return spans


def refuse_no_files(named_files: Sequence[object], entries: Sequence[Any], expected: str) -> None:
    """Raise BadSettings for an archive that has files, and none that is called as the layout has it."""
    if entries and not named_files:
        raise BadSettings(
            f"the archive has {counted(len(entries), 'file')}, and none is called {expected} (one is "
            f"{entries[0].path}). Correct the archive's uri or layout."
        )


@dataclass(frozen=True, slots=True)
class MessageList:
    """Messages that follow each other in a file; `offsets` and `timestamps` (milliseconds) where the file has them."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    offsets: Sequence[int] | None = None
    timestamps: Sequence[int | None] | None = None


def numbered(span: Span, parts: Iterable[MessageList], *, of_connector: bool = False) -> Iterator[pa.Table]:
    """Yield the messages of a file whose offsets go up by one, unless it has them itself.

    A connector of Debezium's sends a tombstone behind each delete of a row with a key, and sink connectors leave
    messages without value out by default. A file that lacks just as many messages as it has such deletes without their
    tombstone gets these behind its last message: whether they are missing is known only once the next file is there,
    and offsets stay.

    Raises InputError at the end where the file has more or fewer messages than its offsets leave room for.
    """
    count, room, deleted, behind_delete = 0, span.stop - span.start, list[bytes | None](), False
    for part in parts:
        yield _table(span, span.start + count, part)
        count += len(part.values)
        if part.offsets is not None:
            room = count
        elif of_connector:
            for key, value in zip(part.keys, part.values, strict=True):
                if value is None and behind_delete and deleted[-1] == key:
                    deleted.pop()
                behind_delete = is_keyed_delete(key, value)
                deleted += [key] if behind_delete else []
    if deleted and count + len(deleted) == room:
        tombstones = _table(span, span.start + count, MessageList(deleted, [None] * len(deleted)))
        place = tombstones.schema.get_field_index("timestamp_type")
        yield tombstones.set_column(place, tombstones.schema.field(place), pa.repeat(PUT_BACK, len(deleted)))
    elif count != room:
        why = (
            f"the file that has {span.start + count} is missing: bring it back. Or some were skipped (those without "
            "value are by default: behavior.on.null.values = ignore), or the partitioner scatters them over files, and "
            "which message has which offset is not known: use an archive by Kafka partition that has all messages, or "
            "one whose records carry their offsets."
            if count < room
            else f"another file begins at {span.stop}, with messages that this one has, too. Remove one of the two."
        )
        raise InputError(
            f"{span.path} holds {counted(count, 'message')} for the offsets {span.start}..{span.stop - 1} of "
            f"{span.partition}: {why}",
            file=span.path,
        )


def _table(span: Span, start: int, part: MessageList) -> pa.Table:
    count, schema = len(part.values), message_schema()
    times = [None] * count if part.timestamps is None else part.timestamps
    columns = {
        "topic": pa.repeat(span.partition.topic, count),
        "partition": pa.repeat(span.partition.number, count).cast(pa.int32()),
        "offset": pa.array(range(start, start + count) if part.offsets is None else part.offsets, pa.int64()),
        "timestamp": pa.array(times, pa.int64()),
        "timestamp_type": pa.array([None if time is None else "create" for time in times], pa.string()),
        "key": pa.array(part.keys, pa.binary()),
        "value": pa.array(part.values, pa.binary()),
        "headers": pa.array([[]] * count, schema.field("headers").type),
    }
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def is_keyed_delete(key: bytes | None, value: bytes | None) -> bool:
    """Return whether a message of a connector is a delete behind which a tombstone comes: that of a row with a key."""
    if key in (None, b"null") or value is None or b'"d"' not in value:
        return False
    try:
        held = json.loads(value)
        return bool(held.get("payload", held).get("op") == "d")
    except (ValueError, AttributeError):
        return False


def uncompressed(pieces: Iterator[bytes], path: str) -> Iterator[bytes]:
    """Yield a file's contents by the ending of its name; raises MalformedData."""
    ending = path[path.rfind(".") :] if "." in path else ""
    if ending == ".snappy":
        first = next(pieces, b"")
        pieces = chain((first,), pieces)
        return _xerial(pieces, path) if first.startswith(_XERIAL) else decompressed(pieces, "snappy", path)
    return decompressed(pieces, _COMPRESSED[ending], path) if ending in _COMPRESSED else pieces


def _xerial(pieces: Iterator[bytes], path: str) -> Iterator[bytes]:
    """The stream of Java's SnappyOutputStream: 16 bytes, then blocks with their sizes (`xerial/snappy-java`)."""
    source = buffered(pieces)
    source.read(16)
    try:
        while head := source.read(4):
            size = int.from_bytes(head, "big")
            block = source.read(size)
            if len(head) < 4 or len(block) != size:
                raise ValueError("it was cut off")
            yield snappy_block(block, _MOST_BLOCK_BYTES)
    except (ValueError, OSError, pa.ArrowException) as error:
        raise MalformedData(f"{path} is not a whole snappy file ({error}). Restore it.", file=path) from None


def line_lists(pieces: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of a file without their ends: those that are whole with a piece, together."""
    rest = list[bytes]()
    for piece in pieces:
        head, end, tail = piece.rpartition(b"\n")
        if end:
            yield b"".join((*rest, head)).split(b"\n")
            rest = []
        rest.append(tail)
    if last := b"".join(rest):
        yield [last]


def raw_of(value: Any, path: str, line: int) -> bytes | None:
    """Return the bytes that a JSON value stands for: base64, a text that is JSON itself, or JSON that was taken apart.

    Raises MalformedData for a text that is neither.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    if value.startswith("{"):
        return value.encode()
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise MalformedData(
            f"{path} line {line} holds a text that is neither base64 nor JSON. The archive has to be written with "
            "ByteArrayConverter, which keeps the bytes of messages.",
            file=path,
            line=line,
        ) from None
