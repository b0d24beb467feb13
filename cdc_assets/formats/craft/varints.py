"""Variable-length integers read from many places of one buffer at once.

A varint ends at its first byte below 0x80. So all the ends of a buffer are known by one comparison, and any number of
varints that follow each other are found without walking over them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Varints", "before_each", "delta", "ranges", "signed", "sums_before", "sums_of"]

Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_LONGEST = 10


class Varints:
    """The varints of a buffer. What is read lies between a place and a stop, or is marked as not sound."""

    def __init__(self, data: npt.NDArray[np.uint8]) -> None:
        self.data = data
        self._ends = np.flatnonzero(data < 0x80)

    def count(self, starts: Places, stops: Places) -> Places:
        """Return how many varints end between places."""
        found: Places = np.searchsorted(self._ends, stops) - np.searchsorted(self._ends, starts)
        return found

    def sequences(self, starts: Places, counts: Places, stops: Places) -> tuple[Numbers, Places, Mask]:
        """Read `counts` varints from each start: their values one after the other, where each sequence ends, soundness.

        A sequence that is not sound has no values: it passes its stop, or holds a number beyond 64 bits.
        """
        first = np.searchsorted(self._ends, starts)
        last = first + counts - 1
        sound = (counts >= 0) & (counts <= stops - starts)
        reach = np.where(sound & (counts > 0), last, 0)
        if len(self._ends):
            reach = np.minimum(reach, len(self._ends) - 1)
            sound &= (counts <= 0) | ((last < len(self._ends)) & (self._ends[reach] < stops))
        else:
            sound &= counts <= 0
        counts = np.where(sound, counts, 0)
        index = ranges(first, counts)
        ends = self._ends[index]
        begins = self._ends[index - 1] + 1
        begins[sums_before(counts)[counts > 0]] = starts[counts > 0]
        values, fits = self._values(begins, ends - begins + 1)
        if not fits.all():
            owners = np.repeat(np.arange(len(counts)), counts)
            sound[owners[~fits]] = False
            values = values[sound[owners]]
        after = np.where(counts > 0, self._ends[reach] + 1, starts) if len(self._ends) else starts
        return values, after, sound

    def exactly(self, starts: Places, lengths: Places) -> tuple[Numbers, Mask]:
        """Read one varint from each start; sound are those that end with their length."""
        sound = (lengths > 0) & (lengths <= _LONGEST)
        starts, lengths = np.where(sound, starts, 0), np.where(sound, lengths, 1)
        following = self._ends[np.minimum(np.searchsorted(self._ends, starts), max(len(self._ends) - 1, 0))]
        sound &= following == starts + lengths - 1
        values, fits = self._values(starts, np.where(sound, lengths, 1))
        return values, sound & fits

    def _values(self, begins: Places, lengths: Places) -> tuple[Numbers, Mask]:
        fits = lengths <= _LONGEST
        values = (self.data[begins] & 0x7F).astype(np.uint64)
        longest = min(int(lengths.max(initial=1)), _LONGEST)
        longer = np.arange(len(begins)) if longest > 1 else np.zeros(0, np.int64)
        for byte in range(1, longest):
            longer = longer[lengths[longer] > byte]
            more = self.data[begins[longer] + byte]
            if byte == _LONGEST - 1:
                fits[longer[more > 1]] = False
            values[longer] |= (more & 0x7F).astype(np.uint64) << np.uint64(7 * byte)
        return values, fits


def signed(values: Numbers) -> Places:
    """Undo zig-zag: 0, 1, 2, 3 are 0, -1, 1, -2."""
    found: Places = (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)
    return found


def delta(values: npt.NDArray[np.uint64], counts: Places) -> npt.NDArray[np.uint64]:
    """Undo differences within each of some sequences, modulo 2^64."""
    sums = np.cumsum(values, dtype=np.uint64)
    starts = sums_before(counts)
    base = np.zeros(len(counts), np.uint64)
    later = (starts > 0) & (counts > 0)
    base[later] = sums[starts[later] - 1]
    return sums - np.repeat(base, counts)


def sums_before(counts: Places) -> Places:
    """Return the sum of all counts before each."""
    found: Places = np.cumsum(counts) - counts
    return found


def ranges(starts: Places, counts: Places) -> Places:
    """Return start, start + 1, … for each start, one after the other."""
    total = int(counts.sum())
    found: Places = np.repeat(starts - sums_before(counts), counts) + np.arange(total, dtype=np.int64)
    return found


def sums_of(values: Places, counts: Places) -> Places:
    """Add up sequences of values that follow each other."""
    total = np.concatenate([[0], np.cumsum(values)])
    first = sums_before(counts)
    found: Places = total[first + counts] - total[first]
    return found


def before_each(values: Places, counts: Places) -> Places:
    """Return for each value the sum of those before it in its sequence."""
    total = np.concatenate([[0], np.cumsum(values)])
    found: Places = total[:-1] - np.repeat(total[sums_before(counts)], counts)
    return found
