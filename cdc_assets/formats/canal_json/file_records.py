"""Files of Canal-JSON -> their records, side by side those that are all alike, as TiCDC writes those of a table.

    cut_file(data, terminator)   the bytes of each record
    file_records(frame, schema)  those that are alike

In a file all records have the same members in the same order, and three quarters of their bytes are repeated:
names, types, the table. They stand before the row, so every record is held against the beginning of the first one, and
only what stands behind it is read. What fits is what any other producer of records would read, and what does not is
left to it. That one is not as fast: it looks at all bytes and at each value before the row, which takes 1.4 times as
long.

`sqlType` and `mysqlType` repeat what the schema file says, the latter in another order in each record (a map of Go's).
They are passed over but for the types of ENUM and SET columns, which say how numbers are to be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.canal_json.row_records import CHANGED
from cdc_assets.formats.json_records import json_value, print_json, shapes_behind
from cdc_assets.formats.records import Marks, Records, bits
from cdc_assets.formats.words import have, pieces, words
from cdc_assets.model.schema import TableSchema
from cdc_assets.types.families import MEMBERS

__all__ = ["KINDS", "RecordFrame", "cut_file", "file_records"]

Positions = npt.NDArray[np.int64]

_BLOCK_BYTES = 32 << 20
_CACHED_BYTES = 1 << 18
_MOST_BYTES = (1 << 31) - 1
KINDS = ("INSERT", "UPDATE", "DELETE")
_KIND_BYTES = 6
_MOMENT_DIGITS = 13
"""Milliseconds since 1970, from 2001 to 2286."""
_ES, _TS, _OLD = b'","es":', b',"ts":', b'},"old":'
_NAMES = (
    "id",
    "database",
    "table",
    "pkNames",
    "isDdl",
    "type",
    "es",
    "ts",
    "sql",
    "sqlType",
    "mysqlType",
    "old",
    "data",
)
"""Members of a record in TiCDC's order; the extension follows them."""
_BOM = b"\xef\xbb\xbf"
_LF, _CR = b"\n\r"
_MOST_ARRAY_BYTES = 1 << 25
"""Bytes of records that are copied into one array, whose memory is then reused."""
_DECODER = json.JSONDecoder()
_TRIED = 100
"""Records that are tried for a shape: one with a backslash has none."""


# --- records and their terminators ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordFrame:
    """A file cut into records: `body` holds the complete ones with `end` (LF or CRLF) after each, `tail` the rest."""

    body: bytes
    end: bytes
    tail: bytes

    @cached_property
    def _line_feeds(self) -> Positions:
        parts = (range(0, len(self.body), _CACHED_BYTES)) if self.body else ()
        feeds = [np.flatnonzero(self._bytes[at : at + _CACHED_BYTES] == _LF) + at for at in parts]
        return np.concatenate(feeds) if feeds else np.zeros(0, np.int64)

    @cached_property
    def _bytes(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.body, np.uint8)

    @cached_property
    def starts(self) -> Positions:
        """Start of each record, and the end of the last record's terminator."""
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

    def arrays(self, places: Positions) -> Iterator[tuple[Positions, pa.BinaryArray]]:
        """Yield the records at ascending places without their terminators, so many at a time as an array holds."""
        starts, ends = self.starts[places], self.starts[places + 1]
        firsts = np.searchsorted(ends, np.arange(_MOST_ARRAY_BYTES, len(self.body), _MOST_ARRAY_BYTES))
        for low, high in pairwise([0, *np.unique(firsts).tolist(), len(places)]):
            begin, end = (int(starts[low]), int(ends[high - 1])) if high > low else (0, 0)
            body = pa.py_buffer(memoryview(self.body)[begin:end])
            yield places[low:high], pieces(body, starts[low:high] - begin, ends[low:high] - begin - len(self.end))


def cut_file(data: bytes, terminator: str) -> RecordFrame:
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
        return RecordFrame(data[:cut], end, data[cut:])
    return RecordFrame(data[:cut].replace(end, b"\n"), b"\n", data[cut:])


def _scan(data: bytes, terminator: str) -> RecordFrame:
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
    return RecordFrame(
        body.encode("utf-8", "surrogateescape"), b"\n", text[position:].encode("utf-8", "surrogateescape")
    )


def _object_end(text: str, position: int) -> int:
    try:
        return _DECODER.raw_decode(text, position)[1]
    except (ValueError, RecursionError):
        return position


def _next_object(text: str, terminator: str, position: int) -> int:
    """Return the end of a record that is not an object: before the terminator of the next object, or at the end."""
    if not terminator:
        offset = text.find("}{", position - 1)
        return offset + 1 if offset >= 0 else -1
    offset = text.find(terminator + "{", position)
    if offset < 0 and text.endswith(terminator) and position <= len(text) - len(terminator):
        return len(text) - len(terminator)
    return offset


# --- what records have in common --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _FileHeads:
    """The common head of all records: `lead` comes before the type, `middle` between `ts` and the types of columns.

    `size` is how many bytes come before the value of `old`, give or take one for each of `columns` (the number of a
    type has one digit or two). `members` has to be among the types. `record` is the first one.
    """

    lead: bytes
    middle: bytes
    size: int
    columns: int
    members: tuple[str, ...]
    record: dict[str, Any]

    def prefix(self, kind: str) -> bytes:
        """Return the prefix of records of a kind, up to the value of `old`."""
        types = {name: self.record["mysqlType"][name] for name in self.members}
        own = {name: self.record[name] for name in ("database", "table", "isDdl")}
        return _json_bytes({**own, "type": kind, "mysqlType": types})[:-1] + b',"old":'

    def held_against(self, body: pa.Buffer, begin: Positions, stop: Positions) -> tuple[Marks, pa.Array, Positions]:
        """Return the records that begin with the prefix, their types, and the places where `old`'s value begins."""

        def piece(at: int, length: int, kind: pa.DataType) -> pa.Array:
            return pieces(body, np.minimum(begin + at, stop), np.minimum(begin + at + length, stop), kind)

        at = len(self.lead)
        es = at + _KIND_BYTES + len(_ES)
        ts = es + _MOMENT_DIGITS + len(_TS)
        types = ts + _MOMENT_DIGITS + len(self.middle)
        fit: Marks = stop - begin > self.size
        between = ((at + _KIND_BYTES, _ES), (es + _MOMENT_DIGITS, _TS), (ts + _MOMENT_DIGITS, self.middle))
        for place, text in ((0, self.lead), *between):
            fit &= bits(pc.equal(piece(place, len(text), pa.binary()), pa.scalar(text, pa.binary())))
        for place in (es, ts):
            texts = piece(place, _MOMENT_DIGITS, pa.string())
            fit &= bits(pc.and_not(pc.ascii_is_decimal(texts), pc.starts_with(texts, "0")))
        olds = self._olds(body, begin, fit)
        for name in self.members:
            own = _json_bytes({name: self.record["mysqlType"][name]})[1:-1].decode()
            held = pieces(body, np.minimum(begin + types, stop), np.minimum(olds, stop), pa.string())
            fit &= bits(pc.match_substring(held, own))
        return fit & (olds <= stop), piece(at, _KIND_BYTES, pa.string()), olds

    def _olds(self, body: pa.Buffer, begin: Positions, fit: Marks) -> Positions:
        """Return the place where the value of `old` begins in each record; those without it do not fit."""
        olds, rest = begin + self.size, np.flatnonzero(fit)
        held = words(np.frombuffer(body, np.uint8))
        for more in sorted(range(-self.columns, self.columns + 1), key=abs):
            if not len(rest):
                break
            at = np.clip(olds[rest] + more, len(_OLD), len(held) - 1 + len(_OLD))
            matches = have(held, at - len(_OLD), _OLD)
            olds[rest[matches]] += more
            rest = rest[~matches]
        fit[rest] = False
        return olds


def _find_heads(frame: RecordFrame, schema: TableSchema) -> _FileHeads | None:
    """Return the beginning of the first records, None if it is not as TiCDC writes them."""
    first = next((raw for raw in map(frame.__getitem__, range(min(_TRIED, len(frame)))) if b"\\" not in raw), b"")
    members = tuple(column.name for column in schema.stored if column.type in MEMBERS)
    try:
        record = json_value(first)
        if print_json(record).encode() != first or not _is_known(record, members):
            return None
    except ValueError:
        return None
    lead = _json_bytes({name: record[name] for name in _NAMES[:5]})[:-1] + b',"type":"'
    middle = b',"sql":' + _json_bytes(record["sql"]) + b',"sqlType":{'
    size = first.index(_OLD, len(lead) + len(middle)) + len(_OLD)
    return _FileHeads(lead, middle, size, len(record["sqlType"]), members, record)


def _is_known(record: Any, members: tuple[str, ...]) -> bool:
    """Return whether a record is a row change as TiCDC writes it."""
    if not isinstance(record, dict) or tuple(record) not in (_NAMES, (*_NAMES, "_tidb")):
        return False
    types = record["mysqlType"]
    return (
        isinstance(record["database"], str)
        and isinstance(record["table"], str)
        and record["isDdl"] is False
        and record["type"] in KINDS
        and all(type(record[name]) is not str and len(str(record[name])) == _MOMENT_DIGITS for name in ("es", "ts"))
        and isinstance(record["sqlType"], dict)
        and isinstance(types, dict)
        and all(isinstance(types.get(name), str) for name in members)
    )


def _json_bytes(value: Any) -> bytes:
    return print_json(value).encode()


def file_records(frame: RecordFrame, schema: TableSchema) -> Iterator[Records]:
    """Yield the records of a file that begin alike, by their types and shapes; others are left out.

    They have the members of which a row change is made, and of the types of columns those of ENUM and SET.
    """
    heads, starts = _find_heads(frame, schema), frame.starts
    if heads is None:
        return
    blocks = np.searchsorted(starts, np.arange(0, starts[-1], _BLOCK_BYTES))
    for low, high in pairwise([*np.unique(blocks).tolist(), len(frame)]):
        begin = starts[low:high] - starts[low]
        stop = starts[low + 1 : high + 1] - starts[low] - len(frame.end)
        if starts[high] - starts[low] > _MOST_BYTES:
            continue
        body = pa.py_buffer(memoryview(frame.body)[starts[low] : starts[high]])
        fit, kinds, olds = heads.held_against(body, begin, stop)
        for kind in KINDS:
            rows = np.flatnonzero(fit & bits(pc.equal(kinds, kind)))
            rests = pieces(body, olds[rows], stop[rows])
            for records in shapes_behind(heads.prefix(kind), rests, partial=CHANGED):
                yield records.moved(rows[records.messages] + low)
