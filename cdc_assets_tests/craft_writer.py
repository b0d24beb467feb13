"""A plain writer of Craft messages, by the documented layout, one value at a time: what the reader is held against."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

__all__ = ["Cell", "Row", "ddl", "message", "overwritten", "resolved", "uvarint", "value", "varint"]


@dataclass(frozen=True)
class Cell:
    """A column of an image: None is NULL."""

    name: str
    type: int
    flags: int
    value: int | float | bytes | None


@dataclass(frozen=True)
class Row:
    """A row event; `new` or `old` is None where there is no such image. `groups` stand in their place."""

    ts: int
    schema: str
    table: str
    new: Sequence[Cell] | None
    old: Sequence[Cell] | None = None
    partition: int = -1
    groups: Sequence[tuple[int, Sequence[Cell]]] = ()


def uvarint(number: int) -> bytes:
    """LEB128."""
    number &= (1 << 64) - 1
    encoded_bytes = bytearray()
    while number >= 0x80:
        encoded_bytes.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded_bytes, number])


def varint(number: int) -> bytes:
    """Zig-zag, then LEB128."""
    return uvarint((number << 1) ^ (number >> 63))


def value(cell: Cell) -> bytes:
    """The bytes of a value that is not NULL."""
    held = cell.value
    if isinstance(held, bytes):
        return held
    if cell.type in (4, 5):
        assert isinstance(held, int | float)
        return struct.pack("<d", held)
    assert isinstance(held, int)
    unsigned = cell.type in (16, 247, 248) or (cell.type != 13 and bool(cell.flags & 128))
    return uvarint(held) if unsigned else varint(held)


def overwritten(images: Sequence[Sequence[Cell]], buffer_bytes: int = 1024) -> list[list[Cell]]:
    """The images of a message as TiCDC's encoder leaves them: it takes 4 bytes of a buffer for a FLOAT and writes 8.

    Other numbers take 10 bytes, a DOUBLE 8; what does not fit into the rest of a buffer begins a new one, and a FLOAT
    that would pass the buffer's end is written elsewhere.
    """
    buffer, end = bytearray(buffer_bytes), 0
    slices: list[tuple[int, int, Cell, bytearray, int, int]] = []
    for image, cells in enumerate(images):
        for place, cell in enumerate(cells):
            if cell.value is None or isinstance(cell.value, bytes):
                continue
            taken, raw = {4: 4, 5: 8}.get(cell.type, 10), value(cell)
            if len(buffer) - end < taken:
                buffer, end = bytearray(buffer_bytes), 0
            room, start = (buffer, end) if end + len(raw) <= len(buffer) else (bytearray(raw), 0)
            room[start : start + len(raw)] = raw
            slices.append((image, place, cell, room, start, len(raw)))
            end += taken
    written = [list(cells) for cells in images]
    for image, place, cell, room, start, size in slices:
        written[image][place] = replace(cell, value=bytes(room[start : start + size]))
    return written


def _deltas(numbers: Iterable[int]) -> list[int]:
    deltas, last = [], 0
    for number in numbers:
        deltas.append(number - last)
        last = number
    return deltas


class _Terms:
    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def of(self, text: str | None) -> int:
        return -1 if text is None else self.known.setdefault(text, len(self.known))


def _group(kind: int, cells: Sequence[Cell], terms: _Terms) -> bytes:
    raw = [None if cell.value is None else value(cell) for cell in cells]
    return b"".join(
        [
            bytes([kind]),
            uvarint(len(cells)),
            *map(varint, _deltas(terms.of(cell.name) for cell in cells)),
            *(uvarint(cell.type) for cell in cells),
            *(uvarint(cell.flags) for cell in cells),
            *(varint(-1 if content is None else len(content)) for content in raw),
            *(content for content in raw if content is not None),
        ]
    )


_Head = tuple[int, int, int, "str | None", "str | None"]
"""ts, type, partition, schema, table."""


def _whole(heads: Sequence[_Head], bodies: Sequence[list[bytes]], terms: _Terms) -> bytes:
    """Put together headers and bodies, the latter as their column groups."""
    columns = list(zip(*heads, strict=True))
    header = b"".join(
        [
            *map(uvarint, _deltas(columns[0])),
            *map(uvarint, columns[1]),
            *map(varint, _deltas(columns[2])),
            *map(varint, _deltas(map(terms.of, columns[3]))),
            *map(varint, _deltas(map(terms.of, columns[4]))),
        ]
    )
    texts = [text.encode() for text in terms.known]
    lengths = b"".join(uvarint(len(text)) for text in texts)
    dictionary = uvarint(len(texts)) + lengths + b"".join(texts) if texts else b""
    tables = [[len(header), len(dictionary)], [sum(map(len, body)) for body in bodies]]
    tables += [[len(group) for group in body] for head, body in zip(heads, bodies, strict=True) if head[1] == 1]
    written = b"".join(uvarint(len(table)) + b"".join(map(varint, _deltas(table))) for table in tables)
    body = b"".join(group for groups in bodies for group in groups)
    return b"\x01" + header + body + dictionary + written + uvarint(len(written))[::-1]


def message(rows: Sequence[Row]) -> bytes:
    """A message of rows."""
    terms = _Terms()
    bodies = [
        [_group(kind, cells, terms) for kind, cells in row.groups or ((1, row.new), (2, row.old)) if cells is not None]
        for row in rows
    ]
    return _whole([(row.ts, 1, row.partition, row.schema, row.table) for row in rows], bodies, terms)


def ddl(ts: int, schema: str, table: str | None, action: int, query: str) -> bytes:
    """A message of a DDL."""
    text = query.encode()
    return _whole([(ts, 2, -1, schema, table)], [[uvarint(action) + uvarint(len(text)) + text]], _Terms())


def resolved(ts: int) -> bytes:
    """A mark."""
    return _whole([(ts, 3, -1, None, None)], [[b""]], _Terms())
