"""Pieces of one buffer as arrays of their own, and columns of messages as buffers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["body_of", "pieces"]

Places = npt.NDArray[np.int64]


def pieces(data: pa.Buffer, starts: Places, ends: Places, kind: pa.DataType | None = None) -> pa.Array:
    """Return pieces of a buffer that follow each other, as an array of their own."""
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2], offsets[1::2] = starts, ends
    held = pa.Array.from_buffers(kind or pa.binary(), max(0, len(offsets) - 1), [None, pa.py_buffer(offsets), data])
    return pc.take(held, pa.array(np.arange(0, len(offsets) - 1, 2, dtype=np.int32)), boundscheck=False)


def body_of(values: pa.BinaryArray, beyond: int = 0) -> tuple[npt.NDArray[np.uint8], Places, Places]:
    """Return the bytes of values one after the other, and where each begins and ends; a null is empty.

    `beyond` zeros follow, which may be looked at.
    """
    count = len(values)
    if not count:
        return np.zeros(beyond, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)
    _, offsets_of, bytes_of = values.buffers()
    offsets = np.frombuffer(offsets_of, np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + beyond, np.uint8)
    if last > first:
        data[: last - first] = np.frombuffer(bytes_of, np.uint8)[first:last]
    return data, offsets[:-1] - first, offsets[1:] - first
