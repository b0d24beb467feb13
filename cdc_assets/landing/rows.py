"""What the landing table holds: its columns, and messages on their way into them.

A message stands once for each table that it speaks of, with the table's row events in it. Rows are sorted by (table,
topic, partition, offset), and a row group holds one table only, of one partition: it is what a split reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.model.landed import LandedSplit
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId

__all__ = [
    "GROUP_BYTES",
    "LANDED",
    "PART",
    "REPEAT",
    "ROW",
    "Group",
    "Place",
    "Run",
    "codes_of",
    "cut",
    "runs",
    "size_of",
    "split_of",
    "splits_of",
]

Numbers = npt.NDArray[np.int64]
Place = tuple["str | int", ...]
"""Schema, table, topic, partition, kind and delivery of rows."""

PART = "part"
"""The column that separates rows from events: each file has one of both."""

LANDED = pa.schema(
    [
        pa.field(PART, pa.string(), nullable=False),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("ordinals", pa.list_(pa.int32())),
        pa.field("timestamp", pa.int64()),
        pa.field("timestamp_type", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())]))),
        pa.field("kind", pa.string()),
        pa.field("schema", pa.string()),
        pa.field("table", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("last_position", pa.int64()),
        pa.field("commit_ts", pa.int64()),
        pa.field("source", pa.string()),
        pa.field("source_position", pa.string()),
        pa.field("shape", pa.string()),
        pa.field("query", pa.string()),
        pa.field("type", pa.int32()),
        pa.field("claim", pa.string()),
        pa.field("reason", pa.string()),
    ]
)
"""Columns of the landing table.

`position` and `last_position` bound those of the row events. `claim` is where a large message lay whose key and value
stand here. `query` is a DDL's text, or the JSON of an event that landing makes itself. Of protocols by offset landing
gives the position; what messages have of it is in `commit_ts`, `source`, `source_position` and `shape`. The kind of a
row is `row`, or `repeat` where it had come before and is not applied again. The `reason` of a row is the offset of the
mark that shows its delivery to be another than that before it, null where none does.
"""

GROUP_BYTES = 24 << 20
"""About how many bytes of messages a row group holds at most."""
_LEAST_RUN = 64
"""Rows are copied where fewer than this, on average, follow each other as they should."""
_GROUPED_BY = ("schema", "table", "topic", "partition", "kind", "reason")
ROW, REPEAT = "row", "repeat"


@dataclass(frozen=True, slots=True)
class Run:
    """Rows of one table in a partition, in the order of offsets; `place` is that of all that one row group may take."""

    place: Place
    rows: pa.Table
    size: int


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that one row group takes."""

    rows: pa.Table
    size: int


def size_of(rows: pa.Table) -> Numbers:
    """Return the bytes of each row's key and value."""
    sizes = [pc.binary_length(rows.column(name)).fill_null(0).to_numpy() for name in ("key", "value")]
    total: Numbers = sizes[0].astype(np.int64) + sizes[1].astype(np.int64)
    return total


def runs(rows: pa.Table) -> Iterator[Run]:
    """Sort rows and cut them at tables, topics, partitions, kinds and deliveries."""
    if not rows.num_rows:
        return
    rows, codes = _in_order(rows)
    sizes = size_of(rows)
    starts = np.flatnonzero(np.diff(codes)) + 1
    for start, stop in zip([0, *starts.tolist()], [*starts.tolist(), rows.num_rows], strict=True):
        mine = rows.slice(start, stop - start)
        first = mine.slice(0, 1).select(_GROUPED_BY).to_pylist()[0]
        place = tuple(one if isinstance(one, int) else one or "" for one in first.values())
        yield Run(place, mine, int(sizes[start:stop].sum()))


def cut(rows: pa.Table, group_bytes: int = GROUP_BYTES) -> Iterator[Group]:
    """Cut a run of rows where so many bytes of messages are full."""
    sizes = size_of(rows)
    pieces = (np.cumsum(sizes) - sizes) // group_bytes
    inner = (np.flatnonzero(np.diff(pieces)) + 1).tolist()
    for first, last in zip([0, *inner], [*inner, rows.num_rows], strict=True):
        yield Group(rows.slice(first, last - first), int(sizes[first:last].sum()))


def _in_order(rows: pa.Table) -> tuple[pa.Table, Numbers]:
    """Return rows in order, and for each a number that is that of its table, topic, partition, kind and delivery.

    Rows mostly come so, or in long runs that do: nothing is copied then.
    """
    codes, offsets = codes_of(rows, _GROUPED_BY), rows.column("offset").to_numpy()
    order = np.lexsort((offsets, codes))
    breaks = np.flatnonzero(np.diff(order) != 1) + 1
    if not len(breaks) and not order[0]:
        return rows, codes
    if len(breaks) * _LEAST_RUN > len(order):
        return rows.combine_chunks().take(pa.array(order)), codes[order]
    starts = [0, *breaks.tolist()]
    sizes = np.diff([*starts, len(order)]).tolist()
    runs = [rows.slice(int(order[start]), size) for start, size in zip(starts, sizes, strict=True)]
    return pa.concat_tables(runs), codes[order]


def codes_of(rows: pa.Table, names: Sequence[str]) -> Numbers:
    """Return a number for each row that is the same where columns are, and grows as they do; no text is like a null."""
    codes: Numbers = np.zeros(rows.num_rows, np.int64)
    for name in names:
        column = rows.column(name).combine_chunks()
        coded = (column.fill_null("") if column.null_count else column).dictionary_encode()
        values = coded.dictionary.to_pylist()
        ranks = np.empty(len(values), np.int64)
        ranks[sorted(range(len(values)), key=values.__getitem__)] = np.arange(len(values))
        codes = codes * len(values) + ranks[coded.indices.to_numpy()]
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1) if len(values) > 1 else codes
    return codes


def split_of(group: Group, number: int, file: str = "") -> LandedSplit | None:
    """Return the split that a file's row group of this number is; None for what had come before."""
    rows = group.rows
    if rows.column("kind")[0].as_py() == REPEAT:
        return None
    ends = rows.slice(0, 1).to_pylist()[0], rows.slice(rows.num_rows - 1, 1).to_pylist()[0]
    return LandedSplit(
        TableId(ends[0]["schema"], ends[0]["table"]),
        Partition(ends[0]["topic"], ends[0]["partition"]),
        ends[0]["offset"],
        ends[1]["offset"],
        pc.min(rows.column("position")).as_py(),
        pc.max(rows.column("last_position")).as_py(),
        pc.sum(pc.list_value_length(rows.column("ordinals"))).as_py() or 0,
        group.size,
        file,
        number,
        pc.max(rows.column("timestamp")).as_py() or 0,
        int(ends[0]["reason"] or -1),
    )


def splits_of(groups: Iterable[Group], file: str) -> list[LandedSplit]:
    """Return the splits of a file whose row groups are these, in this order."""
    found = (split_of(group, number, file) for number, group in enumerate(groups))
    return [one for one in found if one is not None]
