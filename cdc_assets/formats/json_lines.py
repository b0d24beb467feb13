"""Files of JSON objects, each followed by a terminator -> records, and records -> Arrow with an explicit schema.

pyarrow's JSON reader does the work: it refuses unknown and repeated members and wrong types, and is some forty times
faster than `json.loads`. Two things are settled here that it leaves open: which records a file has (it takes any white
space for a separator), and whether a null was written or the member is missing (see `mark_nulls`).
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

__all__ = [
    "NULL",
    "NULL_TEXT",
    "Frame",
    "dumps",
    "frame",
    "is_compact",
    "is_utf8",
    "loads",
    "mark_nulls",
    "marks_all_nulls",
    "parse",
    "pieces",
    "refuse_half_pairs",
    "unmark_null",
]

Places = npt.NDArray[np.int64]
"""Positions of bytes."""

_MARK = (
    b"\xff\xff"  # in no text, because it is not UTF-8; with its quotes as long as `null`, so that bytes stay in place
)
NULL = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(struct.pack("=2i", 0, 2)), pa.py_buffer(_MARK)])[0]
"""What stands in a string array for a null that was written; an Arrow null there means that the member is missing."""
NULL_TEXT = _MARK.decode("utf-8", "surrogateescape")
"""The same for `dumps`."""

_BOM = b"\xef\xbb\xbf"
_LF, _CR, _BRACE = b"\n\r{"
_CACHED_BYTES = 1 << 18
_BLOCK_BYTES = 1 << 23
_LONGEST_BLOCK_BYTES = (1 << 31) - 1
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_SPACED_NULL = re.compile(rb'(?<!\\)"(?:[ \t]+:[ \t]*|:[ \t]+)null')
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Frame:
    """A file cut into records: `body` holds the complete ones with `end` (LF or CRLF) after each, `tail` the rest."""

    body: bytes
    end: bytes
    tail: bytes

    @cached_property
    def _line_feeds(self) -> Places:
        parts = (range(0, len(self.body), _CACHED_BYTES)) if self.body else ()
        found = [np.flatnonzero(self._bytes[at : at + _CACHED_BYTES] == _LF) + at for at in parts]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    @cached_property
    def _bytes(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.body, np.uint8)

    @cached_property
    def starts(self) -> Places:
        """Where records start, and where the last one's terminator ends."""
        feeds = self._line_feeds
        if len(self.end) > 1:
            feeds = feeds[self._bytes[feeds - 1] == _CR]
        return np.concatenate([[0], feeds + 1])

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, position: int) -> bytes:
        """Return a complete record, without its terminator."""
        start, stop = self.starts[position : position + 2]
        return self.body[start : stop - len(self.end)]

    @property
    def in_lines(self) -> bool:
        """Return whether every line is a record that begins with a brace.

        Parse nothing else with Arrow: an object over several lines would shift the count, and a block of bare nulls
        kills the process (pyarrow 26).
        """
        whole = len(self) == len(self._line_feeds) > 0
        return whole and bool((self._bytes[self.starts[:-1]] == _BRACE).all())


def frame(data: bytes, terminator: str) -> Frame:
    """Cut a file at its terminators; a byte-order mark is dropped.

    Objects never hold a raw CR or LF, so a terminator with one of them is found by searching. Any other may also stand
    inside a text: then the objects are read one by one, which is slow.
    """
    data = data.removeprefix(_BOM)
    end = terminator.encode()
    if b"\r" not in end and b"\n" not in end:
        return _scan(data, terminator)
    cut = data.rfind(end)
    cut = cut + len(end) if cut >= 0 else 0
    if end in (b"\n", b"\r\n"):
        return Frame(data[:cut], end, data[cut:])
    return Frame(data[:cut].replace(end, b"\n"), b"\n", data[cut:])


def _scan(data: bytes, terminator: str) -> Frame:
    text = data.decode("utf-8", "surrogateescape")
    records, position = [], 0
    while position < len(text):
        stop = _object_end(text, position)
        whole = stop > position and text.startswith(terminator, stop)
        if not whole:
            stop = _next_object(text, terminator, max(stop, position + 1))
        if stop < 0:
            break
        records.append(text[position:stop])
        position = stop + len(terminator)
    body = "".join(re.sub(r"[\r\n]", " ", record) + "\n" for record in records)
    return Frame(body.encode("utf-8", "surrogateescape"), b"\n", text[position:].encode("utf-8", "surrogateescape"))


def _object_end(text: str, position: int) -> int:
    try:
        return _DECODER.raw_decode(text, position)[1]
    except (ValueError, RecursionError):
        return position


def _next_object(text: str, terminator: str, position: int) -> int:
    """Return where a record that is not an object ends: before the terminator of the next object, or at the end."""
    if not terminator:
        found = text.find("}{", position - 1)
        return found + 1 if found >= 0 else -1
    found = text.find(terminator + "{", position)
    if found < 0 and text.endswith(terminator) and position <= len(text) - len(terminator):
        return len(text) - len(terminator)
    return found


def pieces(data: pa.Buffer, starts: Places, ends: Places, kind: pa.DataType | None = None) -> pa.Array:
    """Return pieces of a buffer that follow each other, as an array of their own (default: binary)."""
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2], offsets[1::2] = starts, ends
    held = pa.Array.from_buffers(kind or pa.binary(), max(0, len(offsets) - 1), [None, pa.py_buffer(offsets), data])
    return pc.take(held, pa.array(np.arange(0, len(offsets) - 1, 2, dtype=np.int32)), boundscheck=False)


def is_utf8(body: bytes | npt.NDArray[np.uint8]) -> bool:
    """Return whether the bytes are UTF-8 throughout; Arrow's JSON reader does not look."""
    offsets = pa.array([0, len(body)], pa.int64()).buffers()[1]
    try:
        pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(body)]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def is_compact(record: bytes) -> bool:
    """Return whether the object has no white space between its tokens, as Go writes JSON."""
    return not re.search(rb"\s", _STRING.sub(b"", record.strip()))


def marks_all_nulls(body: bytes) -> bool:
    """Return whether `mark_nulls` finds all nulls: none of them has white space before it."""
    suspect = any(one in body for one in (b" null", b"\tnull", b'" :', b'"\t:'))
    return not suspect or _SPACED_NULL.search(body) is None


def mark_nulls(body: bytes) -> Iterator[bytes]:
    """Replace the null values of compact objects by `NULL`, so that they differ from missing members.

    A text that happens to hold the same bytes is broken by it, and parsing fails. A second try escapes the colon of
    JSON inside a text first, which is the likely case. When that fails too, the records must be read one by one.
    """
    yield body.replace(b'":null', b'":"%s"' % _MARK)
    if b'\\":null' in body:
        yield body.replace(b'\\":null', b'\\"\\u003anull').replace(b'":null', b'":"%s"' % _MARK)


def unmark_null(body: bytes, before: bytes, after: bytes) -> bytes:
    """Give a marked null back its plain form where it stands between `before` and `after`."""
    return body.replace(b'%s"%s"%s' % (before, _MARK, after), b"%snull%s" % (before, after))


def parse(body: bytes, schema: pa.Schema) -> pa.Table:
    """Parse objects into a table of these columns; a missing member is null, and so is a written null unless marked.

    Raises pyarrow.ArrowInvalid when an object is broken, has an unknown or repeated member, or a value of another type.
    """
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    try:
        return pa.json.read_json(pa.BufferReader(body), pa.json.ReadOptions(block_size=_BLOCK_BYTES), options)
    except pa.ArrowInvalid as error:
        if "straddl" not in str(error):
            raise
    whole = pa.json.ReadOptions(block_size=min(len(body) + 1, _LONGEST_BLOCK_BYTES))
    return pa.json.read_json(pa.BufferReader(body), whole, options)


def loads(record: bytes) -> Any:
    """Parse one record strictly: UTF-8, no repeated members, no NaN, no half surrogates. Raises ValueError."""
    try:
        value = json.loads(record.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    refuse_half_pairs(record, value)
    return value


def refuse_half_pairs(text: bytes, found: object) -> None:
    """Raise ValueError for JSON with half of a surrogate pair: it is escaped, and no text in UTF-8."""
    if b"\\ud" not in text and b"\\uD" not in text:
        return
    try:
        json.dumps(found, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise ValueError("a text in it has half of a surrogate pair, so it is not UTF-8") from None


def dumps(value: Any) -> bytes:
    """Write a value that `loads` gave, compactly; `NULL_TEXT` becomes the marked null."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogateescape")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'the member "{twice}" stands in it twice')
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
