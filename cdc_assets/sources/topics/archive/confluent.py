"""Layout `confluent`: what Confluent's S3 sink connector writes.

    <prefix>/<topic>/<encoded partition>/<topic>+<kafka partition>+<start offset><ending>

Endings: .avro and .parquet (raw bytes), .json and .json.gz (a JSON value a line, bytes as base64), .bin (lines). Beside
a file `X.avro` the keys of its messages are in `X.keys.avro` and their headers in `X.headers.avro`, entry by entry.
The partitioner may be any that leaves a file's offsets one after the other; the others are recognised by their gaps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.model.offsets import Partition
from cdc_assets.sources.topics.archive.avro_container import read_container
from cdc_assets.sources.topics.archive.layouts import Entry, Read, Span
from cdc_assets.sources.topics.archive.named import (
    NamedFile,
    named_spans,
    raw_of,
    refuse_no_files,
    table_of,
    uncompressed,
)
from cdc_assets.sources.topics.topic_options import TopicOptions

_NAME = re.compile(
    r"(?:.*/)?(?P<topic>[^/]+)\+(?P<number>\d+)\+(?P<start>\d+)(?P<side>\.keys|\.headers)?(?P<ending>\.[^/+]+)"
)


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
        return named_spans(files, lambda file: len(_values(file.path, read(file.path))))

    def messages(self, span: Span, read: Read) -> pa.Table:
        """Return the messages of a file. Raises MalformedData, and InputError where messages were skipped."""
        values = _values(span.path, read(span.path))
        side = self._keys.get(span.path)
        keys = _values(side, read(side)) if side is not None else [None] * len(values)
        if len(keys) != len(values):
            raise MalformedData(
                f"{side} has {len(keys)} keys for {len(values)} messages of {span.path}; expected one each. Restore "
                "both files.",
                file=side,
            )
        of_connector = self._options is not None and self._options.messages.of_connector
        return table_of(span, keys, values, {}, of_connector=of_connector)

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


def _values(path: str, data: bytes) -> list[bytes | None]:
    plain = uncompressed(data, path)
    if plain.startswith(b"Obj\x01"):
        return read_container(plain, path)
    if plain.startswith(b"PAR1"):
        return _parquet(plain, path)
    lines = plain.split(b"\n")
    lines = lines[:-1] if lines and not lines[-1] else lines
    if ".bin" in path[path.rfind("+") :]:
        return list(lines)
    return [_json(line, path, number) for number, line in enumerate(lines, 1)]


def _json(line: bytes, path: str, number: int) -> bytes | None:
    try:
        return raw_of(json.loads(line), path, number)
    except ValueError as error:
        raise MalformedData(f"{path} line {number} is not JSON ({error}). Restore the file.", file=path) from None


def _parquet(data: bytes, path: str) -> list[bytes | None]:
    try:
        table = pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError) as error:
        raise MalformedData(f"{path} is not a whole Parquet file ({error}). Restore it.", file=path) from None
    binary = [one for one in table.schema if pa.types.is_binary(one.type) or pa.types.is_large_binary(one.type)]
    if len(binary) != 1 or table.num_columns != 1:
        raise MalformedData(
            f"{path} has the columns {', '.join(table.schema.names)}; expected one of bytes. The messages were decoded "
            "before; write the archive with ByteArrayConverter.",
            file=path,
        )
    found: list[bytes | None] = table.column(0).to_pylist()
    return found


LAYOUT = Confluent()
