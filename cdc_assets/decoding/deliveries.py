"""Group rows of a table without key that were delivered together, and count how often each of its changes happened.

Input comes at least once, and equal rows may be two rows or one that came twice. So the count of a (position,
direction, row) is the maximum over deliveries, not their sum, and what dispatchers have adds up where they share the
table. Only all files of a window together say that, so one task reads them all.

    Deliveries    which rows were delivered together: a writer that begins anew repeats them in the order of positions
    counted       each change once, with its count
    count_once    dispatchers of one table: do they share its rows, or does one deliver again what another did?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from cdc_assets.decoding import DELIVERY, FILE
from cdc_assets.decoding.split import Split
from cdc_assets.formats.changes import position_column
from cdc_assets.formats.decoded import LINE, OP
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows
from cdc_assets.model.tso import Tso
from cdc_assets.types.frames import exact


class Deliveries:
    """Numbers the deliveries of a step, whose files have to come in their order.

    Within one sequence of file numbers a commit-ts that steps back starts a new delivery. Rows that do not fit, and
    those of other windows, show that too, so all of them are looked at before any is left out. Without commit-ts there
    is nothing to go by: all rows are of delivery 0 then, and so are those of a dump, which has each row once. Rows of a
    log know their delivery since they were landed.

    `joints` are paths of files that begin with the very commit-ts of the window at which the one before them ended.
    """

    def __init__(self, step: ApplyRows) -> None:
        self._ordered = step.positions is None and not step.is_snapshot
        self._lo, self._hi = step.lo, step.hi
        self._last: dict[tuple[object, ...], tuple[Tso, int]] = {}
        self._count = 0
        self._begun: dict[tuple[str, int], int] = {}
        self.joints: list[str] = []

    def number(self, split: Split) -> Split:
        """Add DELIVERY to the changes of a file."""
        size, begun = split.changes.num_rows, split.decoded.deliveries
        if begun is not None:
            numbers = pa.array(self._of_log(split.file.dispatcher, begun.to_numpy()))
        elif self._ordered and size:
            numbers = pa.array(self._numbers(split))
        else:
            numbers = pa.repeat(pa.scalar(0, pa.int32()), size)
        return replace(split, changes=split.changes.append_column(DELIVERY, numbers))

    def _of_log(self, log: str, begun: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        distinct, places = np.unique(begun, return_inverse=True)
        numbers = [self._begun.setdefault((log, at), len(self._begun)) for at in distinct.tolist()]
        return np.array(numbers, np.int32)[places.reshape(-1)]

    def _numbers(self, split: Split) -> npt.NDArray[np.int32]:
        sequence = split.file.sequence
        order = np.argsort(split.changes.column(LINE).to_numpy(), kind="stable")
        ts = split.changes.column(position_column(split.changes)).to_numpy()[order]
        before, current = self._last.get(sequence, (ts[0] + 1, 0))
        if ts[0] == before and self._lo < before <= self._hi:
            self.joints.append(split.file.path)
        back = np.diff(ts, prepend=before) < 0
        fresh = np.cumsum(back)
        numbers = np.where(fresh > 0, fresh + self._count, current)
        self._count += int(fresh[-1])
        self._last[sequence] = (int(ts[-1]), int(numbers[-1]))
        placed = np.empty(len(ts), np.int32)
        placed[order] = numbers
        return placed


# --- each change once -------------------------------------------------------------------------------------------------


def delivered(changes: pa.Table, names: Sequence[str], position: str, *, every: bool = False) -> pl.DataFrame:
    """Each change of each delivery with its count `n`, and where a row like that stands; `names` make a row.

    `every` adds the places of all of them.
    """
    frame = pl.from_arrow(changes)
    assert isinstance(frame, pl.DataFrame)
    frame = frame.with_row_index("_cdc_row")
    values = [groupable(frame, name).alias(f"_cdc_value_{place}") for place, name in enumerate(names)]
    frame = frame.with_columns(pl.col(OP).sign().alias("_cdc_sign"), *values)
    by = [DELIVERY, position, "_cdc_sign", *(f"_cdc_value_{place}" for place in range(len(names)))]
    places = [pl.col("_cdc_row").alias("_cdc_rows")] if every else []
    return frame.group_by(by).agg(pl.len().alias("n"), pl.col("_cdc_row").first(), pl.col(FILE).first(), *places)


def groupable(frame: pl.DataFrame, name: str) -> pl.Expr:
    """Return a column as one by which rows can be grouped: lists as texts."""
    if isinstance(frame.schema[name], pl.List):
        return pl.col(exact(name)).cast(pl.List(pl.String)).list.join(",", ignore_nulls=False)
    return pl.col(exact(name))


def counted(
    copies: pl.DataFrame, position: str, row: Sequence[str], files: Sequence[DataFile]
) -> tuple[pl.DataFrame, int]:
    """Each change once with its count `n`, and how many copies are undecided."""
    change = [position, *row]
    names = {name: number for number, name in enumerate(dict.fromkeys(file.dispatcher for file in files))}
    if len(names) < 2:
        return copies.group_by(change).agg(pl.col("n").max(), pl.col("_cdc_row").min()), 0
    writers = pl.Series("_cdc_writer", [names[file.dispatcher] for file in files])
    each = copies.with_columns(writers.gather(copies.get_column(FILE))).group_by([*change, "_cdc_writer"])
    each_once = each.agg(pl.col("n").max(), pl.col("_cdc_row").min())
    once = each_once.group_by(change).agg(pl.col("_cdc_writer"), pl.col("n"), pl.col("_cdc_row").min())
    counts = np.zeros((len(once), len(names)), np.int64)
    cells = once.select("_cdc_writer", "n").with_row_index("_cdc_change").explode("_cdc_writer", "n")
    places = cells.get_column("_cdc_change").to_numpy(), cells.get_column("_cdc_writer").to_numpy()
    counts[places] = cells.get_column("n")
    change_counts = count_once(counts, once.get_column(position).to_numpy())
    return once.with_columns(pl.Series("n", change_counts.counts)), change_counts.undecided


# --- dispatchers ------------------------------------------------------------------------------------------------------

Counts = npt.NDArray[np.int64]


class ChangeCounts(NamedTuple):
    """Count of each change, and how many copies were taken for one change without certainty."""

    counts: Counts
    undecided: int


def count_once(copies: Counts, commit_ts: Counts) -> ChangeCounts:
    """Return the count of each change, by the `copies` of it that each dispatcher has: a column for each.

    Dispatchers that are alive at the same time share a table if each has a change of that time that the other lacks;
    then what both have adds up. Otherwise one began anew where the other had been, and the larger count is right. What
    a dispatcher lacks at its own last commit-ts may be cut off with it: sharing that nothing else shows is taken for
    such, and counted as undecided.
    """
    size = copies.shape[1]
    adds_up, surely = np.eye(size, dtype=np.int64), np.eye(size, dtype=bool)
    for dispatcher, other in combinations(range(size), 2):
        shared, sure = _share(copies[:, dispatcher], copies[:, other], commit_ts)
        adds_up[dispatcher, other] = adds_up[other, dispatcher] = shared
        surely[dispatcher, other] = surely[other, dispatcher] = shared and sure
    has = copies > 0
    counts = np.where(has, copies @ adds_up, 0).max(axis=1)
    doubtful = (has & (has @ ~surely)).any(axis=1)
    return ChangeCounts(counts, int((copies.sum(axis=1) - copies.max(axis=1))[doubtful].sum()))


def _share(counts: Counts, other: Counts, commit_ts: Counts) -> tuple[bool, bool]:
    """Return whether two dispatchers share a table, and whether that is sure."""
    times = commit_ts[counts > 0], commit_ts[other > 0]
    if not all(map(len, times)):
        return False, False
    ends = [int(stamps.max()) for stamps in times]
    in_both = (commit_ts >= max(stamps.min() for stamps in times)) & (commit_ts <= min(ends))
    lacks = commit_ts[in_both & (counts < other)], commit_ts[in_both & (other < counts)]
    if not all(map(len, lacks)):
        return False, False
    if ends[0] == ends[1]:
        return True, True
    first = ends.index(min(ends))
    return True, bool(lacks[first].min() < ends[first])
