"""Layout `aiven`: what Aiven's S3 sink connector writes.

    <prefix><topic>-<partition>-<start offset>[.gz|.snappy|.zst]

jsonl: an object a line, `{"key":…,"value":…,"offset":…,"timestamp":…,"headers":…}` with the fields that were asked for,
or without envelope the value alone. csv: fields joined by commas, key and value in base64; which fields they are does
not stand in the file, so the fields have to be given: layout `aiven:key,value,offset`.
"""

from __future__ import annotations

import base64
import binascii
import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.model.offsets import Partition
from cdc_assets.model.tso import parse_iso_time
from cdc_assets.model.wording import counted
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

_NAME = re.compile(r"(?:.*/)?(?P<topic>[^/]+)-(?P<number>\d+)-(?P<start>\d+)(?:\.[a-z.]+)?")
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_FIELDS = ("key", "value", "offset", "timestamp", "headers")

csv.field_size_limit(1 << 30)  # a message may be longer than the 128 KB at which Python stops

Line = dict[str, Any]


class Aiven:
    """The layout; `fields` are the columns of CSV files."""

    def __init__(self, options: TopicOptions | None = None, fields: tuple[str, ...] = ("value",)) -> None:
        self._options = options
        self._fields = fields

    def opened(self, options: TopicOptions) -> Aiven:
        """Return the layout for a feed; raises BadSettings for fields that are not known, or too few."""
        assert options.archive is not None
        names = options.archive.layout.partition(":")[2]
        fields = tuple(name.strip() for name in names.split(",")) if names else ("value",)
        unknown = [field for field in fields if field not in _FIELDS]
        if unknown or "value" not in fields:
            raise BadSettings(
                f"archive layout {options.archive.layout}: expected fields out of {', '.join(_FIELDS)}, value among "
                "them, in the order of format.output.fields. Correct it."
            )
        return Aiven(options, fields)

    def spans(self, entries: Sequence[Entry], read: Read, concerns: Callable[[str], bool]) -> list[Span]:
        """Return the ranges of offsets of each file."""
        files, matched = [], 0
        for entry in entries:
            name = _NAME.fullmatch(entry.path)
            matched += name is not None
            if name is not None and concerns(name["topic"]):
                files.append(NamedFile(Partition(name["topic"], int(name["number"])), int(name["start"]), entry.path))
        refuse_no_files([True] * matched, entries, "topic-partition-offset")
        return named_spans(files, lambda file: self._count(file, read))

    def messages(self, span: Span, read: Read) -> Iterator[pa.Table]:
        """Yield the messages of a file. Raises MalformedData, BadSettings where keys are lost, InputError."""
        of_connector = self._options is not None and self._options.messages.of_connector
        return numbered(span, self._parts(span.path, read), of_connector=of_connector)

    def _parts(self, path: str, read: Read) -> Iterator[MessageList]:
        number, with_offsets = 1, None
        for lines in self._lines(path, read(path)):
            if self._options is not None and self._options.messages.needs_keys and any("key" not in x for x in lines):
                raise BadSettings(
                    f"{path} holds no keys, and Open Protocol has in its keys whose rows a message has. Write the "
                    "archive with format.output.fields=key,value,offset,timestamp."
                )
            having = sum("offset" in line for line in lines)
            with_offsets = having > 0 if with_offsets is None else with_offsets
            if having != with_offsets * len(lines):
                raise MalformedData(
                    f"{path} has offsets with some of its messages and none with others. Restore the file.", file=path
                )
            yield MessageList(
                [line.get("key") for line in lines],
                [line["value"] for line in lines],
                [_offset(line["offset"], path, at) for at, line in enumerate(lines, number)] if with_offsets else None,
                [_milliseconds(line.get("timestamp")) for line in lines],
            )
            number += len(lines)

    def _count(self, file: NamedFile, read: Read) -> int:
        count, last = 0, None
        for lines in self._lines(file.path, read(file.path)):
            count, last = count + len(lines), lines[-1].get("offset")
        return count if last is None else _offset(last, file.path, count) + 1 - file.start

    def _lines(self, path: str, pieces: Iterator[bytes]) -> Iterator[list[Line]]:
        number, are_json = 1, None
        for line_list in line_lists(uncompressed(pieces, path)):
            texts = [line for line in line_list if line.strip()]
            if not texts:
                continue
            if are_json is None:
                are_json = texts[0].lstrip().startswith(b"{")
            if are_json:
                yield [_of_json(line, path, at) for at, line in enumerate(texts, number)]
            else:
                try:
                    rows = list(csv.reader(line.decode() for line in texts))
                except (UnicodeDecodeError, csv.Error) as error:
                    raise MalformedData(f"{path} is not CSV ({error}). Restore it.", file=path) from None
                yield [self._of_csv(row, path, at) for at, row in enumerate(rows, number)]
            number += len(texts)

    def _of_csv(self, row: Sequence[str], path: str, number: int) -> Line:
        if len(row) != len(self._fields):
            raise BadSettings(
                f"{path} line {number} has {counted(len(row), 'field')}, and the layout names "
                f"{', '.join(self._fields)}. Give the connector's format.output.fields in the layout, such as "
                "aiven:key,value,offset,timestamp."
            )
        line: Line = {}
        for name, text in zip(self._fields, row, strict=True):
            line[name] = _from_base64(text, path, number) if name in ("key", "value") else text or None
        return line


def _of_json(line: bytes, path: str, number: int) -> Line:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise MalformedData(f"{path} line {number} is not JSON ({error}). Restore the file.", file=path) from None
    if not isinstance(record, dict) or "value" not in record or not set(record) <= set(_FIELDS):
        return {"value": line.strip()}  # without envelope
    raw_fields = {name: raw_of(record[name], path, number) for name in ("key", "value") if name in record}
    return {**raw_fields, **{name: record[name] for name in ("offset", "timestamp") if record.get(name) is not None}}


def _from_base64(text: str, path: str, number: int) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) if text else None
    except (binascii.Error, ValueError):
        raise MalformedData(
            f"{path} line {number} holds a field that is not base64. Write the archive with "
            "format.output.fields.value.encoding=base64, and give its fields in their order in the layout.",
            file=path,
            line=number,
        ) from None


def _offset(value: Any, path: str, number: int) -> int:
    """Return an offset; of what stands in its place nothing is said, as it may be a message."""
    if type(value) is int or (isinstance(value, str) and _NUMBER.fullmatch(value)):
        return int(value)
    raise MalformedData(
        f"{path} line {number} has no number where its offset is expected. Restore the file, or give its fields in "
        "their order in the layout, such as aiven:key,value,offset,timestamp.",
        file=path,
        line=number,
    )


def _milliseconds(value: Any) -> int | None:
    if type(value) is int:
        return value
    try:
        return int(parse_iso_time(str(value)).timestamp() * 1000)
    except ValueError:
        return None


LAYOUT = Aiven()
