"""Layout `confluent`: what Confluent's S3 sink connector writes.

    <prefix>/<topic>/<encoded partition>/<topic>+<kafka partition>+<start offset><ending>

Endings: .avro and .parquet (raw bytes), .json and .json.gz (a JSON value a line, bytes as base64), .bin (lines). Beside
a file `X.avro` the keys of its messages are in `X.keys.avro` and their headers in `X.headers.avro`, entry by entry.
The partitioner may be any that leaves a file's offsets one after the other; the others are recognised by their gaps.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.formats.simple_records import AvroReader
from cdc_assets.io.compression import buffered, snappy_block
from cdc_assets.model.offsets import Partition
from cdc_assets.sources.topics.archive.layouts import Entry, Read, Span
from cdc_assets.sources.topics.archive.named import (
    MessageList,
    NamedFile,
    line_lists,
    named_spans,
    numbered,
    raw_of,
    refuse_no_files,
    uncompressed,
)
from cdc_assets.sources.topics.topic_options import TopicOptions

_NAME = re.compile(
    r"(?:.*/)?(?P<topic>[^/]+)\+(?P<number>\d+)\+(?P<start>\d+)(?P<side>\.keys|\.headers)?(?P<ending>\.[^/+]+)"
)

_PARQUET_ROWS = 4096
"""Messages of a Parquet file that are held at a time."""


class Confluent:
    """The layout. `_keys` are the files of keys by the value file that they belong to."""

    def __init__(self, options: TopicOptions | None = None) -> None:
        self._options = options
        self._keys: dict[str, str] = {}

    def opened(self, options: TopicOptions) -> Confluent:
        """Return the layout for a feed."""
        return Confluent(options)

    def spans(self, entries: Sequence[Entry], read: Read, concerns: Callable[[str], bool]) -> list[Span]:
        """Return the ranges of offsets of each file. Raises BadSettings for what loses bytes, keys or deletes."""
        files, self._keys = [], {}
        matched = 0
        for entry in entries:
            name = _NAME.fullmatch(entry.path)
            if name is None or not concerns(name["topic"]):
                matched += name is not None
                continue
            matched += 1
            value_path = entry.path.replace(name["side"] or "\0", "")
            self._refuse_file(entry.path, name["ending"], name["side"])
            if name["side"] == ".keys":
                self._keys[value_path] = entry.path
            elif not name["side"]:
                files.append(NamedFile(Partition(name["topic"], int(name["number"])), int(name["start"]), entry.path))
        refuse_no_files([True] * matched, entries, "topic+partition+offset.ending")
        missing = next((file.path for file in files if file.path not in self._keys), None)
        if missing is not None and self._options is not None and self._options.messages.needs_keys:
            raise BadSettings(
                f"{missing} has no file of keys beside it, and Open Protocol has in its keys whose rows a message "
                "has. Write the archive with store.kafka.keys=true."
            )
        return named_spans(files, lambda file: sum(map(len, _values(file.path, read(file.path)))))

    def messages(self, span: Span, read: Read) -> Iterator[pa.Table]:
        """Yield the messages of a file. Raises MalformedData, and InputError where messages were skipped."""
        of_connector = self._options is not None and self._options.messages.of_connector
        return numbered(span, self._parts(span.path, read), of_connector=of_connector)

    def _parts(self, path: str, read: Read) -> Iterator[MessageList]:
        side = self._keys.get(path)
        keys = chain.from_iterable(_values(side, read(side))) if side is not None else None
        count = with_key = 0
        for values in _values(path, read(path)):
            own = [None] * len(values) if keys is None else list(islice(keys, len(values)))
            count, with_key = count + len(values), with_key + len(own)
            if len(own) == len(values):
                yield MessageList(own, values)
        with_key += sum(1 for _ in keys or ())
        if with_key != count:
            raise MalformedData(
                f"{side} has {with_key} keys for {count} messages of {path}; expected one each. Restore both files.",
                file=side,
            )

    def _refuse_file(self, path: str, ending: str, side: str | None) -> None:
        if "/tombstone/" in f"/{path}":
            raise BadSettings(
                f"{path}: messages without value were set aside, so their place among the others is lost. Write the "
                "archive with behavior.on.null.values=fail, which no message of TiCDC's protocols runs into."
            )
        binary = self._options is not None and not self._options.messages.is_text
        if ending.startswith(".bin") and (binary or side):
            raise BadSettings(
                f"{path}: ByteArrayFormat ends each message with a line break, which messages of this protocol hold "
                "themselves; where one ends is lost. Write the archive with format.class AvroFormat or JsonFormat."
            )


def _values(path: str, pieces: Iterator[bytes]) -> Iterator[list[bytes | None]]:
    plain = uncompressed(pieces, path)
    first = next(plain, b"")
    plain = chain((first,), plain)
    if first.startswith(b"Obj\x01"):
        yield from read_container(plain, path)
    elif first.startswith(b"PAR1"):
        data = b"".join(plain)
        try:
            file = pq.ParquetFile(pa.BufferReader(data))
            columns = file.schema_arrow
            if columns.types not in ([pa.binary()], [pa.large_binary()]):
                raise MalformedData(
                    f"{path} has the columns {', '.join(columns.names)}; expected one of bytes. The messages were "
                    "decoded before; write the archive with ByteArrayConverter.",
                    file=path,
                )
            for batch in file.iter_batches(_PARQUET_ROWS):
                yield batch.column(0).to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise MalformedData(f"{path} is not a whole Parquet file ({error}). Restore it.", file=path) from None
    else:
        is_binary, number = ".bin" in path[path.rfind("+") :], 1
        for lines in line_lists(plain):
            yield list(lines) if is_binary else [_json(line, path, at) for at, line in enumerate(lines, number)]
            number += len(lines)


def _json(line: bytes, path: str, number: int) -> bytes | None:
    try:
        return raw_of(json.loads(line), path, number)
    except ValueError as error:
        raise MalformedData(f"{path} line {number} is not JSON ({error}). Restore the file.", file=path) from None


LAYOUT = Confluent()


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
        """Return the value of bytes or a string: its length, and as many bytes."""
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
    header: dict[str, bytes] = {}
    while entries := at.long():
        if entries < 0:
            at.long()  # the bytes of the block
        for _ in range(abs(entries)):
            name = at.text().decode()
            header[name] = at.text()
    schema = json.loads(header["avro.schema"])
    # The branches of a union, or a value that stands alone.
    named = schema if isinstance(schema, list) else [schema]
    kinds = tuple(branch["type"] if isinstance(branch, Mapping) else branch for branch in named)
    if any(kind not in ("null", "bytes", "string") for kind in kinds):
        raise ValueError("its schema is another one, so the messages were decoded before")
    branches = kinds if isinstance(schema, list) else None
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
