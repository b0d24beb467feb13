"""Compressed bytes -> their contents, piece by piece: memory does not grow with the file.

gzip and zstd are pyarrow's. Snappy is the framing format (`snappy/framing_format.txt`): chunks of a snappy block each,
with a masked CRC-32C over its contents; pyarrow knows blocks only, so the frames are taken apart here.

A truncated or damaged file, or one of another kind, raises MalformedData: none of its contents can be trusted.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

import pyarrow as pa

from cdc_assets.errors import MalformedData

_PIECE_BYTES = 4 << 20


def decompressed(compressed: Iterable[bytes], compression: str, path: str) -> Iterator[bytes]:
    """Yield the contents of a file that comes as pieces of its bytes; "" is not a compression.

    `path` is for messages. Raises MalformedData if it is not a whole file of that compression.
    """
    if not compression:
        yield from compressed
        return
    pieces = (piece for piece in compressed if piece)
    first = next(pieces, None)
    if first is None:
        raise MalformedData(f"{path} is empty, which a {compression} file never is. Dump again.", path=path)
    try:
        yield from COMPRESSIONS[compression](chain((first,), pieces))
    except (OSError, ValueError) as error:
        raise MalformedData(
            f"{path} is not a whole {compression} file ({error}): it was truncated or damaged, or its name does not "
            "match its contents. Copy it again from where it was written, or dump again.",
            path=path,
        ) from None


class _Pieces(io.RawIOBase):
    """Pieces of bytes as a file that is read once, front to back."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, into: object) -> int:
        target = memoryview(into)  # type: ignore[arg-type]  # a writable buffer, which has no type of its own in 3.10
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        size = min(len(target), len(self._rest))
        target[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def buffered(pieces: Iterable[bytes]) -> io.BufferedReader:
    """Return a file that is read once, front to back, out of pieces of its bytes."""
    return io.BufferedReader(_Pieces(pieces), 1 << 20)


def _by_arrow(name: str) -> Callable[[Iterable[bytes]], Iterator[bytes]]:
    def pieces(compressed: Iterable[bytes]) -> Iterator[bytes]:
        with pa.CompressedInputStream(pa.PythonFile(_Pieces(compressed), "r"), name) as stream:
            while piece := stream.read(_PIECE_BYTES):
                yield piece

    return pieces


# --- snappy -----------------------------------------------------------------------------------------------------------

_IDENTIFIER = b"sNaPpY"
_MOST_BYTES = 65536
"""Contents of one chunk."""


def _snappy(compressed: Iterable[bytes]) -> Iterator[bytes]:
    source = buffered(compressed)
    ready: list[bytes] = []
    checksums: list[int] = []
    first = True
    while header := source.read(4):
        kind, size = header[0], int.from_bytes(header[1:], "little")
        body = source.read(size)
        if len(header) < 4 or len(body) < size:
            raise ValueError("it ends within a chunk")
        if first != (kind == 0xFF) and (first or body != _IDENTIFIER):
            raise ValueError("it does not begin with a stream identifier")
        first = False
        if kind in (0x00, 0x01):
            checksums.append(int.from_bytes(body[:4], "little"))
            ready.append(snappy_block(body[4:], _MOST_BYTES) if kind == 0x00 else body[4:])
        elif kind < 0x80:
            raise ValueError(f"it has a chunk of type {kind:#04x}, which is not known")
        if len(ready) * _MOST_BYTES >= _PIECE_BYTES:
            yield _checked(ready, checksums)
            ready, checksums = [], []
    if ready:
        yield _checked(ready, checksums)


def snappy_block(block: bytes, most_bytes: int) -> bytes:
    """Return the contents of a snappy block, which begins with their length, seven bits a byte.

    Raises ValueError where that is more than `most_bytes`, and ValueError or OSError for what is no such block.
    """
    size = 0
    for place, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    if not block or size > most_bytes:
        raise ValueError(f"a block says that it holds {size} bytes")
    contents: bytes = pa.Codec("snappy").decompress(block, size, asbytes=True)
    return contents


def _checked(contents: list[bytes], checksums: list[int]) -> bytes:
    import google_crc32c  # here, since few feeds have such files

    for data, expected in zip(contents, checksums, strict=True):
        plain = google_crc32c.value(data)
        if ((plain >> 15 | plain << 17) + 0xA282EAD8) & 0xFFFFFFFF != expected:
            raise ValueError("the checksum of a chunk is wrong")
    return b"".join(contents)


COMPRESSIONS: Mapping[str, Callable[[Iterable[bytes]], Iterator[bytes]]] = {
    "gzip": _by_arrow("gzip"),
    "snappy": _snappy,
    "zstd": _by_arrow("zstd"),
}
"""Name -> function that decompresses it."""
