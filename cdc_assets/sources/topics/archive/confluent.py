"""Layout `confluent`: what Confluent's S3 sink connector writes.

    <prefix>/<topic>/<encoded partition>/<topic>+<kafka partition>+<start offset><ending>

Endings: .avro and .parquet (raw bytes), .json and .json.gz (a JSON value a line, bytes as base64), .bin (lines). Beside
a file `X.avro` the keys of its messages are in `X.keys.avro` and their headers in `X.headers.avro`, entry by entry.
The partitioner may be any that leaves a file's offsets one after the other; the others are recognised by their gaps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.model.offsets import Partition
from cdc_assets.sources.topics.archive.avro_container import read_container
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
        """Return which offsets lie in which file. Raises BadSettings for what loses bytes, keys or deletes."""
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
        self._refuse_no_keys(files)
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

    def _refuse_no_keys(self, files: Sequence[NamedFile]) -> None:
        missing = next((file.path for file in files if file.path not in self._keys), None)
        if missing is not None and self._options is not None and self._options.messages.needs_keys:
            raise BadSettings(
                f"{missing} has no file of keys beside it, and Open Protocol has in its keys whose rows a message "
                "has. Write the archive with store.kafka.keys=true."
            )


def _values(path: str, pieces: Iterator[bytes]) -> Iterator[list[bytes | None]]:
    plain = uncompressed(pieces, path)
    first = next(plain, b"")
    plain = chain((first,), plain)
    if first.startswith(b"Obj\x01"):
        yield from read_container(plain, path)
    elif first.startswith(b"PAR1"):
        yield from _parquet(b"".join(plain), path)
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


def _parquet(data: bytes, path: str) -> Iterator[list[bytes | None]]:
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        columns = file.schema_arrow
        if columns.types not in ([pa.binary()], [pa.large_binary()]):
            raise MalformedData(
                f"{path} has the columns {', '.join(columns.names)}; expected one of bytes. The messages were decoded "
                "before; write the archive with ByteArrayConverter.",
                file=path,
            )
        for batch in file.iter_batches(_PARQUET_ROWS):
            yield batch.column(0).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise MalformedData(f"{path} is not a whole Parquet file ({error}). Restore it.", file=path) from None


LAYOUT = Confluent()
