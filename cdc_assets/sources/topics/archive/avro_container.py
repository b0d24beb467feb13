"""Avro object container files of plain bytes or texts: what Connect's AvroFormat makes of raw messages.

Sources: the Avro specification 1.11, "Object Container Files". Values are of the schema `bytes`, `string`, or a union
of one of these with `null`; codecs are null, deflate, snappy and zstandard.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from cdc_assets.errors import MalformedData
from cdc_assets.formats.simple_records import AvroReader
from cdc_assets.io.compression import buffered, snappy_block

_MAGIC = b"Obj\x01"
_MOST = 1 << 30
"""No block holds more than this once it is decompressed."""


def read_container(pieces: Iterable[bytes], path: str) -> Iterator[list[bytes | None]]:
    """Yield the values of a file block by block, texts as UTF-8; raises MalformedData for a file of anything else."""
    try:
        yield from _blocks(_AvroFile(pieces))
    except (ValueError, KeyError, zlib.error, pa.ArrowException, OSError) as error:
        raise MalformedData(
            f"{path} is not an Avro file of raw messages ({error}); expected the schema bytes, as AvroFormat writes "
            "with ByteArrayConverter. Restore the file, or correct the archive's layout.",
            file=path,
        ) from None


class _AvroFile:
    """A place in a file of Avro, which comes in pieces. All methods raise ValueError past its end."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._file = buffered(pieces)

    def __bool__(self) -> bool:
        return bool(self._file.peek(1))

    def take(self, count: int) -> bytes:
        """Return so many bytes."""
        data = self._file.read(count) if 0 <= count <= _MOST else b""
        if len(data) != count:
            raise ValueError(f"a length of {count} is beyond its end")
        return data

    def text(self) -> bytes:
        """Return what bytes and strings are: their length, and as many bytes."""
        return self.take(self.long())

    def long(self) -> int:
        """Return a zig-zag varint of at most 64 bits."""
        digits = bytearray(self.take(1))
        while digits[-1] >= 0x80 and len(digits) < 10:
            digits += self.take(1)
        return AvroReader(bytes(digits)).long()


def _blocks(at: _AvroFile) -> Iterator[list[bytes | None]]:
    if at.take(4) != _MAGIC:
        raise ValueError("it does not begin as one")
    header = _metadata(at)
    branches = _branches(json.loads(header["avro.schema"]))
    codec = header.get("avro.codec", b"null").decode()
    if codec not in _CODECS:
        raise ValueError(f"its codec is none of {', '.join(sorted(_CODECS))}")
    sync = at.take(16)
    while at:
        count, block = at.long(), _CODECS[codec](at.text())
        values = AvroReader(block)
        block_values = [_value(values, branches) for _ in range(count)]
        if values.at != len(block) or at.take(16) != sync:
            raise ValueError("a block does not end where it should")
        yield block_values


def _metadata(at: _AvroFile) -> dict[str, bytes]:
    metadata: dict[str, bytes] = {}
    while count := at.long():
        if count < 0:
            at.long()  # the bytes of the block
        for _ in range(abs(count)):
            name = at.text().decode()
            metadata[name] = at.text()
    return metadata


def _branches(schema: Any) -> tuple[str, ...] | None:
    """Return the branches of a union, None for a value that stands alone."""
    named = schema if isinstance(schema, list) else [schema]
    kinds = tuple(branch["type"] if isinstance(branch, Mapping) else branch for branch in named)
    if any(kind not in ("null", "bytes", "string") for kind in kinds):
        raise ValueError("its schema is another one, so the messages were decoded before")
    return kinds if isinstance(schema, list) else None


def _value(at: AvroReader, branches: tuple[str, ...] | None) -> bytes | None:
    if branches is not None and branches[at.branch(len(branches))] == "null":
        return None
    return at.text()


def _deflated(block: bytes) -> bytes:
    unpacking = zlib.decompressobj(-15)
    content = unpacking.decompress(block, _MOST)
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise ValueError("a block is cut off")
    return content


def _snappy(block: bytes) -> bytes:
    content = snappy_block(block[:-4], _MOST)
    if zlib.crc32(content) != int.from_bytes(block[-4:], "big"):
        raise ValueError("the checksum of a block is another")
    return content


def _zstandard(block: bytes) -> bytes:
    with pa.input_stream(pa.BufferReader(block), compression="zstd") as stream:
        return bytes(stream.read(_MOST))


_CODECS: Mapping[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _deflated,
    "snappy": _snappy,
    "zstandard": _zstandard,
}
