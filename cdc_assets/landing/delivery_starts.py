"""Where deliveries of tables begin in the partitions of protocols by commit-ts.

What a sender sends it sends in the order of commits, each table's rows behind each other; one that begins anew sends
again what it had sent before. Rows of a table without key may be equal, so only the delivery in which a row came tells
whether it is another one. It is given at landing, where all rows of a partition pass in their order: neither the fence,
nor a window, nor where landings are cut has a say in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.landing.files import codes_of
from cdc_assets.model.landed import DeliveryEnd, Landed
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

__all__ = ["DeliveryStarts", "PartitionDeliveries", "open_deliveries"]

_ORDINAL_BITS = 20
"""A place in a partition as one number: the offset, and in this many bits the row's ordinal in the message."""

_Numbers = npt.NDArray[np.int64]


class PartitionDeliveries(NamedTuple):
    """How far the deliveries in a partition are, as `Landed` has it; -1 without such a mark."""

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
        """Return how far a partition is, for who goes on elsewhere."""
        ends = tuple(self.ends.get(partition, {}).items())
        return PartitionDeliveries(self.marks_at.get(partition, -1), self.restarts.get(partition, -1), ends)

    def take_over(self, partition: Partition, found: PartitionDeliveries) -> None:
        """Go on in a partition from where another has read it to."""
        for known, at in ((self.marks_at, found.mark_at), (self.restarts, found.restart)):
            if at >= 0:
                known[partition] = at
        self.ends[partition] = dict(found.ends)

    def take(
        self, partition: Partition, offsets: _Numbers, mark: Tso, marks: _Numbers, rows: pa.RecordBatch
    ) -> pa.Array:
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
        for known, found in ((self.marks_at, mark_at), (self.restarts, restarts)):
            if found[-1] >= 0:
                known[partition] = int(found[-1])
        if not rows.num_rows:
            return pa.array([], pa.int64())
        lines = rows.column("message").to_numpy()
        return pa.array(self._begun(partition, rows, offsets[lines], through[lines], mark_at[lines], restarts[lines]))

    def _begun(
        self,
        partition: Partition,
        rows: pa.RecordBatch,
        offsets: _Numbers,
        through: _Numbers,
        mark_at: _Numbers,
        restarts: _Numbers,
    ) -> _Numbers:
        """Return what `take` does; the last four are those of each line, marks as of before it."""
        codes = codes_of(pa.Table.from_batches([rows]), ("schema", "table"))
        order = np.argsort(codes, kind="stable")
        heads = np.flatnonzero(np.diff(codes[order], prepend=-1))
        tails = np.append(heads[1:], len(order)) - 1
        schemas, names, ends = rows.column("schema"), rows.column("table"), self.ends.setdefault(partition, {})
        tables = [TableId(schemas[place].as_py(), names[place].as_py()) for place in order[heads].tolist()]
        known = [ends.get(table) for table in tables]
        seeds = np.array([(-1, -1, -1, -1) if one is None else one for one in known], np.int64)
        first, last = (rows.column(name).to_numpy()[order] for name in ("commit_ts", "last_commit_ts"))
        offsets, through, mark_at, restarts = (one[order] for one in (offsets, through, mark_at, restarts))

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
        found = np.empty(len(order), np.int64)
        found[order] = begun
        return found


def open_deliveries(
    ends: Mapping[tuple[Partition, TableId], DeliveryEnd],
    marks: Mapping[Partition, Tso],
    marks_at: Mapping[Partition, int],
) -> dict[tuple[Partition, TableId], DeliveryEnd]:
    """Return the ends that are needed on: other tables begin a delivery with their next row in any case."""
    return {
        (partition, table): end
        for (partition, table), end in ends.items()
        if end.greatest > marks.get(partition, 0) or end.offset > marks_at.get(partition, -1)
    }


def greatest_so_far(first: int, values: _Numbers) -> _Numbers:
    """Return a number and values behind it, each as the greatest of all up to it."""
    found: _Numbers = np.maximum.accumulate(np.concatenate([np.array([first], np.int64), values]))
    return found


def _shifted(values: _Numbers, heads: _Numbers, seeds: _Numbers) -> _Numbers:
    """Return for each line the value of the one before it, at the heads of tables the seeds."""
    found = np.roll(values, 1)
    found[heads] = seeds
    return found


def _greatest_by_table(values: _Numbers, heads: _Numbers, seeds: _Numbers) -> _Numbers:
    """Return the greatest value of each line's table up to it; the seeds come before the lines at the heads."""
    seeded = values.copy()
    seeded[heads] = np.maximum(values[heads], seeds)
    distinct, ranks = np.unique(seeded, return_inverse=True)
    numbers = np.zeros(len(values), np.int64)
    numbers[heads] = 1
    base = np.cumsum(numbers) * len(distinct)
    found: _Numbers = distinct[np.maximum.accumulate(base + ranks.reshape(-1)) - base]
    return found
