"""Landed messages of one table <-> the bytes of a split.

A split is cut by the version whose columns its rows have, and by the fence: rows have since < commit-ts <= until. All
of its messages are in the bytes, whether they are of this part or not, so that the numbers of rows stay what they are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_assets.model.tso import Tso

__all__ = ["MESSAGES", "Frame", "format_frame", "parse_frame"]

MESSAGES = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("ordinals", pa.list_(pa.int32())),
        pa.field("position", pa.int64()),
        pa.field("last_position", pa.int64()),
        pa.field("commit_ts", pa.int64()),
        pa.field("timestamp", pa.int64()),
        pa.field("delivery", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)
"""What a split has of each message: its place, the table's row events in it, and the bounds of their positions.

Of protocols by offset `commit_ts` is when its change was made, as a TSO. `timestamp` is when the message came into the
topic, in milliseconds since 1970. Either is null where nothing says so. Of protocols by commit-ts `delivery` is
equal for rows that were delivered together.
"""


class Frame(NamedTuple):
    """A split, parsed from its bytes."""

    messages: pa.RecordBatch
    since: Tso
    until: Tso

    @property
    def mine(self) -> npt.NDArray[np.int64]:
        """The positions of the messages that may have rows of (since, until]."""
        low = self.messages.column("position").fill_null(0).to_numpy()
        high = self.messages.column("last_position").fill_null(np.iinfo(np.int64).max).to_numpy()
        return np.flatnonzero((high > self.since) & (low <= self.until))

    def lines(self, chosen: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the numbers that the row events of some messages have among those of all, from 1."""
        counts = self.messages.column("ordinals").value_lengths().to_numpy().astype(np.int64)
        starts = np.cumsum(counts) - counts
        mine = counts[chosen]
        within = np.arange(mine.sum()) - np.repeat(np.cumsum(mine) - mine, mine)
        lines: npt.NDArray[np.int64] = np.repeat(starts[chosen], mine) + within + 1
        return lines


def format_frame(messages: pa.Table, since: Tso, until: Tso) -> bytes:
    """Return the bytes of a split; `messages` has the columns of MESSAGES."""
    metadata = {"since": str(since), "until": str(until)}
    table = messages.select(MESSAGES.names).cast(MESSAGES).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def parse_frame(data: bytes) -> Frame:
    """Return what `format_frame` wrote."""
    with pa.ipc.open_stream(data) as reader:
        table = reader.read_all().combine_chunks()
    metadata = table.schema.metadata
    batches = table.to_batches()
    messages = batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
    return Frame(messages, int(metadata[b"since"]), int(metadata[b"until"]))
