"""A split of landed messages -> changes, by the decoder of their protocol, which gets them as they were landed.

LandedReader.read(path)   the messages of one table that a split names, out of the landing
decode(frame, …)          its changes
merged, parted            several frames as one, and its changes as those of each
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import InputError
from cdc_assets.formats import MessageOptions, Wire
from cdc_assets.formats.changes import position_column
from cdc_assets.formats.decoded import COMMIT_TS, LINE, NOT_WRITTEN, POSITION, Decoded
from cdc_assets.formats.messages import codec_of
from cdc_assets.model.landed import LandedSplit
from cdc_assets.model.reports import Reject
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.table_filter import hidden_columns
from cdc_assets.model.tso import Tso

__all__ = [
    "EXTENSION",
    "FILE_EXPANSION",
    "MESSAGES",
    "Fetch",
    "Frame",
    "LandedReader",
    "SplitPart",
    "commit_stamps",
    "decode",
    "merged",
    "parted",
    "raw_records",
    "record_beginning",
    "record_identity",
]

EXTENSION = ".messages"
FILE_EXPANSION = 1
_BATCH_BYTES = 32 << 20
"""Protocols are decoded in batches of about this, see `messages`."""
_GREATEST_MS = 1 << 45

Lines = npt.NDArray[np.int64]
Fetch = Callable[[str, int], pa.Table]
"""(file, row group) -> its rows. Picklable."""

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
"""Columns of a split about each message: its place, the table's row events in it, and the bounds of their positions.

Of protocols by offset `commit_ts` is when its change was made, as a TSO. `timestamp` is when the message came into the
topic, in milliseconds since 1970. Either is null where nothing says so. Of protocols by commit-ts `delivery` is
equal for rows that were delivered together.
"""


@dataclass(frozen=True, slots=True)
class Frame:
    """The messages of a split, and the bounds of the rows in them that belong to it: since < position <= until.

    A split is cut by the version whose columns its rows have, and by the fence. All of its messages are in it, whether
    they are of this part or not, so that the numbers of rows stay what they are.
    """

    messages: pa.RecordBatch
    since: Tso
    until: Tso

    @classmethod
    def of(cls, rows: pa.Table, since: Tso, until: Tso) -> Frame:
        """Return rows of the landing, which have the columns of MESSAGES, as a split."""
        messages = rows.select(MESSAGES.names).cast(MESSAGES).combine_chunks().to_batches()
        return cls(messages[0] if messages else pa.RecordBatch.from_pylist([], MESSAGES), since, until)

    def __len__(self) -> int:
        """The bytes of its messages."""
        return int(self.messages.nbytes)

    @property
    def mine(self) -> Lines:
        """The positions of the messages that may have rows of (since, until], which emptied ones have not."""
        has_content = pc.or_(self.messages.column("key").is_valid(), self.messages.column("value").is_valid())
        low = self.messages.column("position").fill_null(0).to_numpy()
        high = self.messages.column("last_position").fill_null(np.iinfo(np.int64).max).to_numpy()
        return np.flatnonzero((high > self.since) & (low <= self.until) & has_content.to_numpy(zero_copy_only=False))

    def lines(self, chosen: Lines) -> Lines:
        """Return the numbers that the row events of some messages have among those of all, from 1."""
        counts = self.messages.column("ordinals").value_lengths().to_numpy().astype(np.int64)
        starts = np.cumsum(counts) - counts
        row_counts = counts[chosen]
        within = np.arange(row_counts.sum()) - np.repeat(np.cumsum(row_counts) - row_counts, row_counts)
        lines: Lines = np.repeat(starts[chosen], row_counts) + within + 1
        return lines


@dataclass(frozen=True, slots=True)
class SplitPart:
    """The rows of a split with since < position <= until."""

    split: LandedSplit
    since: Tso
    until: Tso


@dataclass(frozen=True, slots=True)
class LandedReader:
    """Reads splits out of the landing, wherever a task runs. Nothing above the fence is given to a decoder."""

    options: MessageOptions
    fetch: Fetch
    fence: Tso
    parts: Mapping[str, SplitPart] = field(repr=False)

    def wire(self, path: str) -> Wire:
        """Return the wire format of every split."""
        return self.options

    def read(self, path: str) -> Frame:
        """Return the messages of a split; raises InputError, which names it, when they are gone."""
        part = self.parts.get(path)
        if part is None:
            raise InputError(
                f"{path} is not in the landing any more: its rows have expired, or were compacted meanwhile. Plan "
                "again; where they have expired, import the table anew.",
                file=path,
                gone=True,
            )
        split = part.split
        try:
            rows = self.fetch(split.file, split.group)
        except InputError as error:
            if not error.where.get("gone"):
                raise
            raise InputError(error.message, file=path, gone=True) from None  # the split may be in another file now
        offsets = rows.column("offset")
        mask = pc.and_(pc.greater_equal(offsets, split.first), pc.less_equal(offsets, split.last))
        mask = pc.and_(mask, pc.equal(rows.column("topic"), split.partition.topic))
        mask = pc.and_(mask, pc.equal(rows.column("partition"), split.partition.number))
        return Frame.of(rows.filter(mask), part.since, min(part.until, self.fence))


def decode(frame: Frame, path: str, table: TableId, schema: TableSchema, options: MessageOptions) -> Decoded:
    """Return the changes of one table in a split.

    Raises MalformedData where the protocol does.
    """
    parts = [_part(frame, chosen, path, table, schema, options) for chosen in _batches(frame)]
    notes: dict[tuple[str, str], int] = {}
    for decoded in parts:
        for rule, count in decoded.notes.items():
            notes[rule] = notes.get(rule, 0) + count
    changes = pa.concat_tables([decoded.changes for decoded in parts], promote_options="default")
    stated = frozenset.intersection(*(decoded.stated for decoded in parts))
    rejects = tuple(reject for decoded in parts for reject in decoded.rejects)
    deliveries = pa.concat_tables(pa.table({"delivery": decoded.deliveries}) for decoded in parts).column(0)
    return Decoded(changes, rejects, None, notes, stated, deliveries)


def merged(frames: Sequence[Frame]) -> Frame:
    """Return the messages of splits of one table and version as those of one split, in their order."""
    messages = pa.Table.from_batches([frame.messages for frame in frames])
    return Frame.of(messages, frames[0].since, frames[0].until)


def parted(decoded: Decoded, frames: Sequence[Frame]) -> list[Decoded]:
    """Return the changes of each of `frames`, of which `decoded` has all as of one split without notes and rejects.

    [] where the changes of a decoder do not come by their lines, so that they cannot be told apart.
    """
    ends = np.cumsum([pc.sum(frame.messages.column("ordinals").value_lengths()).as_py() or 0 for frame in frames])
    changes, deliveries, lines = decoded.changes, decoded.deliveries, decoded.changes.column(LINE).to_numpy()
    if deliveries is None or (np.diff(lines) < 0).any():
        return []
    bounds = np.searchsorted(lines, [0, *ends], side="right").tolist()
    place, parts = changes.schema.get_field_index(LINE), []
    for (start, stop), before in zip(pairwise(bounds), [0, *ends.tolist()], strict=False):
        rows = changes.slice(start, stop - start)
        own_lines = pc.subtract(rows.column(LINE), pa.scalar(before, pa.int64()))
        rows = rows.set_column(place, changes.schema.field(LINE), own_lines)
        parts.append(replace(decoded, changes=rows, deliveries=deliveries.slice(start, stop - start)))
    return parts


def _batches(frame: Frame) -> list[Lines]:
    lines = frame.mine
    sizes = pc.binary_length(frame.messages.column("value")).fill_null(0).to_numpy().astype(np.int64)[lines]
    if not len(lines):
        return [lines]
    starts = np.flatnonzero(np.diff((np.cumsum(sizes) - sizes) // _BATCH_BYTES)) + 1
    return list(np.split(lines, starts))


def _part(
    frame: Frame, chosen: Lines, path: str, table: TableId, schema: TableSchema, options: MessageOptions
) -> Decoded:
    rows = frame.messages.select(["key", "value", "ordinals"]).take(pa.array(chosen))
    names = (column.name for column in schema.stored if column.name not in schema.exact)
    hidden = hidden_columns(options.column_selectors, (table.schema, table.table), names, options.case_sensitive)
    if hidden:  # rows of some versions of TiCDC have them all the same, without their values
        columns = (replace(column, selected=column.name not in hidden) for column in schema.columns)
        schema = replace(schema, columns=tuple(columns))
    decoded = codec_of(options).decode(rows, path, table, schema, options)
    if hidden:
        decoded = replace(
            decoded, notes={**decoded.notes, **dict.fromkeys(((name, NOT_WRITTEN) for name in hidden), 1)}
        )
    lines = frame.lines(chosen)
    changes = decoded.changes
    place = changes.schema.get_field_index(LINE)
    numbers = pa.array(lines[changes.column(LINE).to_numpy() - 1], pa.int64())
    changes = changes.set_column(place, changes.schema.field(LINE), pa.chunked_array([numbers]))
    owners, by_offset = _owners(frame), options.by_offset
    if by_offset:
        changes = _positioned(changes, frame, owners)
    owners_of = owners[changes.column(LINE).to_numpy() - 1]
    deliveries = frame.messages.column("delivery").fill_null(-1).take(pa.array(owners_of))
    at = changes.column(position_column(changes))
    inside = pc.and_(pc.greater(at, pa.scalar(frame.since)), pc.less_equal(at, pa.scalar(frame.until)))
    changes = changes.filter(inside)
    rejects = (_placed(reject, frame, int(lines[reject.line - 1]), owners, by_offset) for reject in decoded.rejects)
    frame_rejects = tuple(r for r in rejects if r.commit_ts is None or frame.since < r.commit_ts <= frame.until)
    return replace(
        decoded, changes=changes, rejects=frame_rejects, deliveries=pa.chunked_array([deliveries.filter(inside)])
    )


def _positioned(changes: pa.Table, frame: Frame, owners: Lines) -> pa.Table:
    """Give the rows of a message the position that it got at landing, and the time at which they changed.

    A message that does not say when that was counts from when it came into the topic; where the log has no times
    either, from when it was landed.
    """
    messages, nothing = frame.messages, pa.scalar(None, pa.int64())
    made, sent, positions = (messages.column(name) for name in ("commit_ts", "timestamp", "position"))
    dated = pc.and_(pc.greater(sent, 0), pc.less(sent, _GREATEST_MS))
    sent = pc.shift_left(pc.if_else(dated, sent, nothing), 18)
    times = pc.coalesce(pc.if_else(pc.greater(made, 0), made, nothing), sent, positions)
    message_numbers = pa.array(owners[changes.column(LINE).to_numpy() - 1])
    place = changes.schema.get_field_index(COMMIT_TS)
    changes = changes.set_column(
        place, changes.schema.field(COMMIT_TS), pa.chunked_array([times.take(message_numbers)])
    )
    return changes.append_column(pa.field(POSITION, pa.int64()), pa.chunked_array([positions.take(message_numbers)]))


def _owners(frame: Frame) -> Lines:
    owners: Lines = pc.list_parent_indices(frame.messages.column("ordinals")).to_numpy().astype(np.int64)
    return owners


def _placed(reject: Reject, frame: Frame, line: int, owners: Lines, by_offset: bool) -> Reject:
    """Say of which message a row event is, and of which commit-ts where its message has one only."""
    held = frame.messages.slice(int(owners[line - 1]), 1).to_pylist()[0]
    position = held["position"] if held["position"] == held["last_position"] else None
    own = None if by_offset else reject.commit_ts
    return replace(reject, line=line, commit_ts=position if own is None else own)


def raw_records(frame: Frame, lines: Collection[int] | None, options: MessageOptions) -> dict[int, bytes]:
    """Return the messages of row events; a message with several stands for each of them."""
    owners, values = _owners(frame), frame.messages.column("value")
    numbers = range(1, len(owners) + 1) if lines is None else lines
    return {line: values[int(owners[line - 1])].as_py() or b"" for line in numbers if 0 < line <= len(owners)}


def record_places(frame: Frame, lines: Collection[int]) -> dict[int, str]:
    """Return the topic, partition and offset of row events."""
    owners = _owners(frame)
    numbers = np.fromiter((line for line in lines if 0 < line <= len(owners)), np.int64)
    messages = frame.messages.take(pa.array(owners[numbers - 1]))
    partitions, offsets = (messages.column(name).cast(pa.string()) for name in ("partition", "offset"))
    texts = pc.binary_join_element_wise(messages.column("topic"), "[", partitions, "] offset ", offsets, "")
    return dict(zip(numbers.tolist(), texts.to_pylist(), strict=True))


def commit_stamps(frame: Frame, options: MessageOptions) -> list[int | None]:
    """Return the last position of each message of the split, as it was landed; None where that is not known."""
    stamps: list[int | None] = frame.messages.column("last_position").take(pa.array(frame.mine)).to_pylist()
    return stamps


def record_beginning(raw: bytes) -> bytes:
    """Return the beginning that copies of a message have in common: a message is never cut off."""
    return raw


def record_identity(raw: bytes) -> object:
    """Return an identity that is equal for copies of one message."""
    return raw
