"""Layout `records`: one JSON object a line, plain or compressed with gzip.

    {"topic":"cdc","partition":0,"offset":17,"timestamp_ms":1774915081505,"key_b64":null,"value_b64":"AZiA…","headers":[]}

`key_b64` and `value_b64` are base64, null where the message has none. Files may be called anything that ends in .jsonl
or .jsonl.gz, and hold any topics and partitions. A header is `{"name":…,"value_b64":…}` or `[name, base64]`.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_assets.errors import MalformedData
from cdc_assets.model.offsets import Partition
from cdc_assets.sources.topics import message_schema
from cdc_assets.sources.topics.archive.layouts import Entry, Read, Span
from cdc_assets.sources.topics.topic_options import TopicOptions

_ENDINGS = (".jsonl", ".jsonl.gz")


class RecordLines:
    """The layout. Nothing of a message is lost in it, whatever the protocol."""

    def opened(self, options: TopicOptions) -> RecordLines:
        """Return the layout, the same for every feed."""
        return self

    def spans(self, entries: Sequence[Entry], read: Read, concerns: Callable[[str], bool]) -> list[Span]:
        """Return the offsets in each file, which only its contents have: every file is read once."""
        found = []
        for entry in entries:
            if entry.path.endswith(_ENDINGS) and entry.size:
                found += _spans(self.messages(Span(Partition("", 0), 0, 0, entry.path), read), entry.path)
        return [span for span in found if concerns(span.partition.topic)]

    def messages(self, span: Span, read: Read) -> pa.Table:
        """Return all messages of a file; raises MalformedData."""
        path = span.path
        data = read(path)
        if data.startswith(b"\x1f\x8b"):
            try:
                data = gzip.decompress(data)
            except (OSError, EOFError, zlib.error) as error:
                raise MalformedData(f"{path} is not a whole gzip file ({error}). Restore it.", file=path) from None
        lines = [line for line in data.split(b"\n") if line.strip()]
        return pa.Table.from_pylist([_message(path, number, line) for number, line in enumerate(lines, 1)],
                                    schema=message_schema())  # fmt: skip


def _message(path: str, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
        timestamp = record.get("timestamp_ms")
        return {
            "topic": _typed(record["topic"], str),
            "partition": _typed(record["partition"], int),
            "offset": _typed(record["offset"], int),
            "timestamp": None if timestamp is None else _typed(timestamp, int),
            "timestamp_type": None if timestamp is None else str(record.get("timestamp_type") or "create"),
            "key": _bytes(record.get("key_b64")),
            "value": _bytes(record.get("value_b64")),
            "headers": [_header(one) for one in record.get("headers") or ()],
        }
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error, RecursionError) as error:
        raise MalformedData(
            f"{path} line {number} is not a record of a message ({type(error).__name__}: {error}); expected an object "
            "with topic, partition, offset, key_b64 and value_b64. Restore the file.",
            file=path,
            line=number,
        ) from None


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{type(value).__name__} is no {kind.__name__}")
    return value


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


def _header(header: Any) -> Mapping[str, Any]:
    if isinstance(header, Mapping):
        return {"name": str(header.get("name", header.get("key"))), "value": _bytes(header.get("value_b64"))}
    name, value = header
    return {"name": str(name), "value": _bytes(value)}


def _spans(messages: pa.Table, path: str) -> list[Span]:
    """Return the runs of offsets in a file, which other files may fill up."""
    found = []
    for one in messages.group_by(["topic", "partition"]).aggregate([("offset", "list")]).to_pylist():
        offsets = np.unique(np.array(one["offset_list"], np.int64))
        starts = np.flatnonzero(np.diff(offsets, prepend=offsets[0] - 2) != 1)
        stops = np.append(starts[1:], len(offsets)) - 1
        partition = Partition(one["topic"], one["partition"])
        found += [
            Span(partition, int(offsets[first]), int(offsets[last]) + 1, path)
            for first, last in zip(starts, stops, strict=True)
        ]
    return found


LAYOUT = RecordLines()
