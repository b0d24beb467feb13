"""Layout `records`: one JSON object a line, plain or compressed with gzip.

    {"topic":"cdc","partition":0,"offset":17,"timestamp_ms":1774915081505,"key_b64":null,"value_b64":"AZiA…","headers":[]}

`key_b64` and `value_b64` are base64, null where the message has none. Files may be called anything that ends in .jsonl
or .jsonl.gz, and hold any topics and partitions. A header is `{"name":…,"value_b64":…}` or `[name, base64]`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from cdc_assets.errors import MalformedData
from cdc_assets.io.compression import decompressed
from cdc_assets.model.offsets import Partition
from cdc_assets.sources.topics import message_schema
from cdc_assets.sources.topics.archive.layouts import Entry, Read, Span
from cdc_assets.sources.topics.archive.named import line_lists
from cdc_assets.sources.topics.topic_options import TopicOptions

_ENDINGS = (".jsonl", ".jsonl.gz")


class RecordLines:
    """The layout. Nothing of a message is lost in it, whatever the protocol."""

    def __init__(self) -> None:
        self._known: dict[Entry, list[Span]] = {}

    def opened(self, options: TopicOptions) -> RecordLines:
        """Return the layout for a feed."""
        return RecordLines()

    def spans(self, entries: Sequence[Entry], read: Read, concerns: Callable[[str], bool]) -> list[Span]:
        """Return the offsets in each file, which only its contents have: a file is read for them once."""
        files = [entry for entry in entries if entry.path.endswith(_ENDINGS) and entry.size]
        self._known = {
            entry: self._known.get(entry) or _spans(_tables(entry.path, read, _PLACE), entry.path) for entry in files
        }
        return [span for spans in self._known.values() for span in spans if concerns(span.partition.topic)]

    def messages(self, span: Span, read: Read) -> Iterator[pa.Table]:
        """Yield all messages of a file; raises MalformedData."""
        return _tables(span.path, read, message_schema().names)


_PLACE = ("topic", "partition", "offset")
_MEMBERS = {
    "topic": pa.string(),
    "partition": pa.int64(),
    "offset": pa.int64(),
    "timestamp_ms": pa.int64(),
    "timestamp_type": pa.string(),
    "key_b64": pa.string(),
    "value_b64": pa.string(),
}


def _tables(path: str, read: Read, names: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the columns of that name of a file's messages."""
    pieces = read(path)
    first = next(pieces, b"")
    pieces = chain((first,), pieces)
    number = 1
    for lines in line_lists(decompressed(pieces, "gzip", path) if first.startswith(b"\x1f\x8b") else pieces):
        table = _parsed(lines, with_values="value" in names)
        if table is None:  # one that is odd or damaged: each line for itself, with its number in errors
            texts = [line for line in lines if line.strip()]
            rows = [_message(path, at, line) for at, line in enumerate(texts, number)]
            table = pa.Table.from_pylist(rows, schema=message_schema())
        number += table.num_rows
        yield table.select(names)


def _parsed(lines: Sequence[bytes], *, with_values: bool) -> pa.Table | None:
    """Return the messages of lines, or no more than their places; None where a line is not as it usually is."""
    block = b"\n".join(lines)
    members = _MEMBERS if with_values else {name: _MEMBERS[name] for name in _PLACE}
    if with_values and block.count(b'"headers"') != block.count(b'"headers":[]') + block.count(b'"headers": []'):
        return None
    parse_options = pj.ParseOptions(explicit_schema=pa.schema(members), unexpected_field_behavior="ignore")
    whole = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
    try:
        table = pj.read_json(pa.BufferReader(block), whole, parse_options)
        table.validate(full=True)
        columns = {name: table.column(name).combine_chunks() for name in members}
        if table.num_rows != len(lines) or any(columns[name].null_count for name in _PLACE):
            return None
        columns["partition"] = columns["partition"].cast(pa.int32())
        if not with_values:
            return pa.table({name: columns[name] for name in _PLACE})
        kinds = pc.if_else(pc.equal(columns["timestamp_type"], ""), "create", columns["timestamp_type"])
        kinds = pc.if_else(pc.is_valid(columns["timestamp_ms"]), pc.fill_null(kinds, "create"), None)
        bodies = [
            pl.Series(values=columns[name]).str.decode("base64").to_arrow().cast(pa.binary())
            for name in ("key_b64", "value_b64")
        ]
    except (pa.ArrowException, pl.exceptions.PolarsError):
        return None
    no_headers = pa.array([[]] * table.num_rows, message_schema().field("headers").type)
    times = columns["timestamp_ms"]
    arrays = [*(columns[name] for name in _PLACE), times, kinds.cast(pa.string()), *bodies, no_headers]
    return pa.Table.from_arrays(arrays, schema=message_schema())


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
            "headers": [_header(header) for header in record.get("headers") or ()],
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


def _spans(tables: Iterable[pa.Table], path: str) -> list[Span]:
    """Return the runs of offsets in a file, which other files may fill up."""
    by_partition: dict[Partition, list[np.ndarray[Any, np.dtype[np.int64]]]] = {}
    for table in tables:
        for batch in table.group_by(["topic", "partition"]).aggregate([("offset", "list")]).to_batches():
            for topic, number, offsets in zip(
                *(batch.column(name) for name in (*_PLACE[:2], "offset_list")), strict=True
            ):
                values = offsets.values.to_numpy()
                by_partition.setdefault(Partition(topic.as_py(), number.as_py()), []).append(values)
    spans = []
    for partition, parts in by_partition.items():
        offsets = np.unique(np.concatenate(parts))
        starts = np.flatnonzero(np.diff(offsets, prepend=offsets[0] - 2) != 1)
        stops = np.append(starts[1:], len(offsets)) - 1
        spans += [
            Span(partition, int(offsets[first]), int(offsets[last]) + 1, path)
            for first, last in zip(starts, stops, strict=True)
        ]
    return spans


LAYOUT = RecordLines()
