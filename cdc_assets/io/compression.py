"""Compressed bytes -> their contents, piece by piece: memory does not grow with the file.

gzip and zstd are pyarrow's. Snappy is the framing format (`snappy/framing_format.txt`): chunks of a snappy block each,
with a masked CRC-32C over its contents; pyarrow knows blocks only, so the frames are taken apart here.

A truncated or damaged file, or one of another kind, raises MalformedData: none of its contents can be trusted.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, reduce
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_assets.errors import MalformedData

__all__ = ["COMPRESSIONS", "crc32c", "decompressed"]

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
    source = io.BufferedReader(_Pieces(compressed), 1 << 20)
    codec = pa.Codec("snappy")
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
            ready.append(_block(codec, body[4:]) if kind == 0x00 else body[4:])
        elif kind < 0x80:
            raise ValueError(f"it has a chunk of type {kind:#04x}, which is not known")
        if len(ready) * _MOST_BYTES >= _PIECE_BYTES:
            yield _checked(ready, checksums)
            ready, checksums = [], []
    if ready:
        yield _checked(ready, checksums)


def _block(codec: pa.Codec, block: bytes) -> bytes:
    """A snappy block begins with the length of its contents, seven bits a byte."""
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > _MOST_BYTES:
        raise ValueError(f"a chunk says that it holds {size} bytes")
    contents: bytes = codec.decompress(block, size, asbytes=True)
    return contents


def _checked(contents: list[bytes], checksums: list[int]) -> bytes:
    for sum_, expected in zip(crc32c(contents), checksums, strict=True):
        if ((sum_ >> 15 | sum_ << 17) + 0xA282EAD8) & 0xFFFFFFFF != expected:
            raise ValueError("the checksum of a chunk is wrong")
    return b"".join(contents)


# --- CRC-32C ----------------------------------------------------------------------------------------------------------

_POLYNOMIAL = 0x82F63B78
_LANE_BYTES = 256


@lru_cache(maxsize=1)
def _table() -> npt.NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


@lru_cache(maxsize=1)
def _lane_shift() -> npt.NDArray[np.uint32]:
    """The effect of a following lane of zeros on each byte of a sum: four tables of 256."""
    sums = (np.arange(256, dtype=np.uint32) << (8 * np.arange(4, dtype=np.uint32))[:, None]).ravel()
    zeros = np.zeros(sums.shape, np.uint8)
    for _ in range(_LANE_BYTES):
        sums = _fed(sums, zeros)
    return sums.reshape(4, 256)


def _fed(sums: npt.NDArray[np.uint32], data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    found: npt.NDArray[np.uint32] = _table()[(sums ^ data) & 0xFF] ^ (sums >> 8)
    return found


def crc32c(contents: list[bytes]) -> list[int]:
    """Return the CRC-32C of each text. Lanes of all of them are summed side by side, then put together in order.

    A sum with zeros in front is the same sum, so texts are filled up on the left and the start value is put in where
    they begin.
    """
    if not contents:
        return []
    lanes = max(1, -(-max(map(len, contents)) // _LANE_BYTES))
    padded = np.zeros((len(contents), lanes * _LANE_BYTES), np.uint8)
    for row, data in zip(padded, contents, strict=True):
        row[len(row) - len(data) :] = np.frombuffer(data, np.uint8)
    side_by_side = padded.reshape(-1, _LANE_BYTES).T
    zero = np.zeros(side_by_side.shape[1], np.uint32)
    sums = reduce(_fed, np.ascontiguousarray(side_by_side), zero).reshape(len(contents), lanes)
    joined = np.zeros(len(contents), np.uint32)
    for lane in sums.T:
        joined = _followed_by_a_lane(joined) ^ lane
    return [int(one) ^ _start(len(data)) ^ 0xFFFFFFFF for one, data in zip(joined, contents, strict=True)]


def _followed_by_a_lane(sums: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    tables = _lane_shift()
    found: npt.NDArray[np.uint32] = np.zeros_like(sums)
    for at in range(4):
        found ^= tables[at][(sums >> np.uint32(8 * at)) & 0xFF]
    return found


@lru_cache(maxsize=1024)
def _start(size: int) -> int:
    """The effect of this many bytes on the start value, all ones."""
    sums = np.array([0xFFFFFFFF], np.uint32)
    zero = np.zeros(1, np.uint8)
    for _ in range(size // _LANE_BYTES):
        sums = _followed_by_a_lane(sums)
    for _ in range(size % _LANE_BYTES):
        sums = _fed(sums, zero)
    return int(sums[0])


COMPRESSIONS: Mapping[str, Callable[[Iterable[bytes]], Iterator[bytes]]] = {
    "gzip": _by_arrow("gzip"),
    "snappy": _snappy,
    "zstd": _by_arrow("zstd"),
}
"""Name -> function that decompresses it."""
