"""The bytes of a split, decompressed, in blocks of whole records: memory does not grow with the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cdc_assets.errors import MalformedData
from cdc_assets.formats import ReadRange
from cdc_assets.formats.dialect import Dialect, records_end
from cdc_assets.io.compression import decompressed
from cdc_assets.model.dumps import DumpSplit

__all__ = ["BLOCK_BYTES", "Block", "blocks", "head_of", "lines_in_front", "starts_in"]

BLOCK_BYTES = 8 << 20
_PIECE_BYTES = 4 << 20
_HEAD_BYTES = 1 << 16
_MOST_BYTES = 1 << 30
"""The most bytes of one record; a longer one is damage."""


class Block(NamedTuple):
    """Whole records; `cut` marks what is left at the end of the file without a terminator."""

    data: bytes
    cut: bool = False


def blocks(split: DumpSplit, read_range: ReadRange, dialect: Dialect) -> Iterator[Block]:
    """Yield the split's records in order. Raises MalformedData for a file that is not as long as it was listed."""
    start, end = starts_in(split, read_range)
    pieces = decompressed(_ranges(split, read_range, start, end), split.file.compression, split.file.path)
    held: list[bytes] = []
    size, target = 0, BLOCK_BYTES
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size < target:
            continue
        data = b"".join(held)
        at = records_end(data, dialect)
        if at:
            yield Block(data[:at])
        elif size > _MOST_BYTES:
            raise MalformedData(
                f"{split.file.path} has a record that does not end within {_MOST_BYTES >> 20} MB: the file is "
                "damaged, or was written with another delimiter or line end than it is read with. Give the dump's "
                "CSV options as Dumpling had them.",
                path=split.file.path,
            )
        held, size = [data[at:]], len(data) - at
        target = max(BLOCK_BYTES, size * 2)
    data = b"".join(held)
    at = records_end(data, dialect)
    if at:
        yield Block(data[:at])
    if at < len(data):
        yield Block(data[at:], cut=True)


def starts_in(split: DumpSplit, read_range: ReadRange) -> tuple[int, int]:
    """Return the start of the first row that begins in the split, and the end of the last one."""
    whole = split.start == 0 and split.end >= split.file.size
    return (0, split.file.size) if whole else (_row_start(split, read_range, split.start), _row_end(split, read_range))


def _row_end(split: DumpSplit, read_range: ReadRange) -> int:
    return split.file.size if split.end >= split.file.size else _row_start(split, read_range, split.end)


def _row_start(split: DumpSplit, read_range: ReadRange, offset: int) -> int:
    """Rows are lines here: the first one that begins at or behind an offset."""
    if offset == 0:
        return 0
    at = offset - 1
    while at < split.file.size:
        piece = read_range(at, min(at + (1 << 16), split.file.size))
        if not piece:
            raise _shrunk(split, at)
        line_end = piece.find(b"\n")
        if line_end >= 0:
            return at + line_end + 1
        at += len(piece)
    return split.file.size


def _ranges(split: DumpSplit, read_range: ReadRange, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        piece = read_range(start, min(start + _PIECE_BYTES, end))
        if not piece:
            raise _shrunk(split, start)
        yield piece
        start += len(piece)


def lines_in_front(split: DumpSplit, read_range: ReadRange) -> int:
    """Return the number of lines of the file before the split's first row."""
    start, _ = starts_in(split, read_range)
    return sum(piece.count(b"\n") for piece in _ranges(split, read_range, 0, start))


def head_of(read_range: ReadRange, end: bytes) -> bytes:
    """Return the beginning of a file through a text, or all of the file where it does not hold that."""
    size = _HEAD_BYTES
    while True:
        head = read_range(0, size)
        if end in head or len(head) < size:
            return head
        size *= 4


def _shrunk(split: DumpSplit, at: int) -> MalformedData:
    return MalformedData(
        f"{split.file.path} was listed with {split.file.size} bytes and has {at}: it changed while it was read. "
        "Let nothing write into the dump's directory, and read it again.",
        path=split.file.path,
    )
