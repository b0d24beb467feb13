"""Bytes -> records, where a terminator inside quotes ends none. Quotes inside a value are doubled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

__all__ = ["Quoting", "complete_bytes", "records"]


class Quoting(Protocol):
    """What decides where a record ends; without `quote` every terminator does."""

    @property
    def quote(self) -> bytes: ...

    @property
    def terminator(self) -> bytes: ...


def complete_bytes(data: bytes, how: Quoting, start: int = 0, end: int | None = None) -> int:
    """Return where the whole records between two offsets end; what follows there has no terminator before `end`."""
    end = len(data) if end is None else end
    odd = _count(data, how.quote, start, end) & 1 if how.quote else 0
    while (found := data.rfind(how.terminator, start, end)) >= 0:
        odd ^= data.count(how.quote, found, end) & 1 if how.quote else 0
        if not odd:
            return found + len(how.terminator)
        end = found
    return start


def _count(data: bytes, quote: bytes, start: int, end: int) -> int:
    """Count a byte that is frequent: comparing all bytes is faster than looking for the next one."""
    if len(quote) > 1:
        return data.count(quote, start, end)
    return int(np.count_nonzero(np.frombuffer(data, np.uint8, max(end - start, 0), start) == quote[0]))


def records(data: bytes, how: Quoting, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Yield the records between two offsets, each without its terminator."""
    end, scan, odd = len(data) if end is None else end, start, 0
    while (found := data.find(how.terminator, scan, end)) >= 0:
        if how.quote:
            odd ^= data.count(how.quote, scan, found) & 1
        scan = found + len(how.terminator)
        if not odd:
            yield data[start:found]
            start = scan
