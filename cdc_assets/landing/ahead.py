"""Batches of a log, read in a thread of its own while those before them are landed."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["read_ahead"]

_T = TypeVar("_T")
_END = object()


_AHEAD = 2
"""Batches: what comes while a commit is written."""


def read_ahead(source: Iterator[_T], count: int = _AHEAD) -> Generator[_T, None, None]:
    """Yield what a source yields, up to `count` of which are read before they are asked for; its errors are raised."""
    with ThreadPoolExecutor(1, "cdc-assets-log") as pool:
        waiting = deque(pool.submit(next, source, _END) for _ in range(count))
        try:
            while (found := waiting.popleft().result()) is not _END:
                waiting.append(pool.submit(next, source, _END))
                yield found  # type: ignore[misc]  # what is not the end is the source's
        finally:
            for one in waiting:
                one.cancel()
