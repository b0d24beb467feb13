"""Dispatchers of one table: do they share its rows, or does one deliver again what another did?

Only tables without a key need to know, where equal rows may be two rows or one that came twice. Dispatchers that are
alive at the same time share a table if each has a change of that time that the other lacks; then what both have adds
up. Otherwise one began anew where the other had been, and the larger count is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cdc_assets.model.splits import DataFile

__all__ = ["Told", "tell_counts", "writers"]

Counts = npt.NDArray[np.int64]


class Told(NamedTuple):
    """How often each change happened, and how many of its copies were taken for one that others deny or cannot tell."""

    counts: Counts
    undecided: int


def writers(files: Sequence[DataFile]) -> tuple[int, ...]:
    """Number the dispatcher of each file."""
    known: dict[str, int] = {}
    return tuple(known.setdefault(file.dispatcher, len(known)) for file in files)


def tell_counts(told: Counts, commit_ts: Counts) -> Told:
    """Return how often each change happened, of how often each dispatcher tells it: `told` has a column for each.

    What a dispatcher lacks at its own last commit-ts may be cut off with it: sharing that nothing else shows is taken
    for such, and counted as undecided.
    """
    size = told.shape[1]
    adds_up, surely = np.eye(size, dtype=np.int64), np.eye(size, dtype=bool)
    for one, other in combinations(range(size), 2):
        shared, sure = _share(told[:, one], told[:, other], commit_ts)
        adds_up[one, other] = adds_up[other, one] = shared
        surely[one, other] = surely[other, one] = shared and sure
    has = told > 0
    counts = np.where(has, told @ adds_up, 0).max(axis=1)
    doubtful = (has & (has @ ~surely)).any(axis=1)
    return Told(counts, int((told.sum(axis=1) - told.max(axis=1))[doubtful].sum()))


def _share(one: Counts, other: Counts, commit_ts: Counts) -> tuple[bool, bool]:
    """Tell whether two dispatchers share a table, and whether that is sure."""
    times = commit_ts[one > 0], commit_ts[other > 0]
    if not all(map(len, times)):
        return False, False
    ends = [int(mine.max()) for mine in times]
    both = (commit_ts >= max(mine.min() for mine in times)) & (commit_ts <= min(ends))
    lacks = commit_ts[both & (one < other)], commit_ts[both & (other < one)]
    if not all(map(len, lacks)):
        return False, False
    if ends[0] == ends[1]:
        return True, True
    first = ends.index(min(ends))
    return True, bool(lacks[first].min() < ends[first])
