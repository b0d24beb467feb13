"""Files of Canal-JSON -> their records, side by side those that are all alike, as TiCDC writes those of a table.

    cut_file(data, terminator)   the bytes of each record
    file_records(frame, schema)  those that are alike

In a file all records have the same members in the same order, and three quarters of their bytes are repeated:
names, types, the table. So the first record has a shape, and every other is held against it: equal bytes where they
have to be equal, and between them digits, `null`, or a text without quote, backslash or control character. What fits is
what any other producer of records would read, and what does not (a text with an escape, a partial image, a cut) is left
to it. That one is not as fast: it looks at all bytes and at each value before the row, which takes 1.4 times as long.

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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.json_records import json_value, print_json
from cdc_assets.formats.records import CellKind, Kinds, Marks, RecordColumn, Records
from cdc_assets.formats.words import is_utf8, pieces
from cdc_assets.model.schema import TableSchema
from cdc_assets.types.families import MEMBERS

__all__ = ["KINDS", "FileRecords", "RecordFrame", "cut_file", "file_records"]

Positions = npt.NDArray[np.int64]

_BLOCK_BYTES = 32 << 20
_CACHED_BYTES = 1 << 18
_MOST_BYTES = (1 << 31) - 1
_QUOTE, _BACKSLASH, _SPACE, _N, _BRACKET = b'"\\ n['
_LAST_ASCII = 0x7F
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
"""In TiCDC's order; the extension follows them."""
_TSO_DIGITS = 18
_BOM = b"\xef\xbb\xbf"
_LF, _CR = b"\n\r"
_MOST_ARRAY_BYTES = 1 << 25
"""So many bytes of records are copied into an array: their memory is used again for the next ones."""
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
        found = [np.flatnonzero(self._bytes[at : at + _CACHED_BYTES] == _LF) + at for at in parts]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    @cached_property
    def _bytes(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.body, np.uint8)

    @cached_property
    def starts(self) -> Positions:
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

    def arrays(self, places: Positions) -> Iterator[tuple[Positions, pa.BinaryArray]]:
        """Yield the records at ascending places without their terminators, so many at a time as an array holds."""
        starts, ends = self.starts[places], self.starts[places + 1]
        cuts = np.searchsorted(ends, np.arange(_MOST_ARRAY_BYTES, len(self.body), _MOST_ARRAY_BYTES))
        for low, high in pairwise([0, *np.unique(cuts).tolist(), len(places)]):
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
    """Return where a record that is not an object ends: before the terminator of the next object, or at the end."""
    if not terminator:
        found = text.find("}{", position - 1)
        return found + 1 if found >= 0 else -1
    found = text.find(terminator + "{", position)
    if found < 0 and text.endswith(terminator) and position <= len(text) - len(terminator):
        return len(text) - len(terminator)
    return found


# --- what records have in common --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _FileShape:
    """What is the same in all records: `lead` comes before the type, `middle` between `ts` and the types of columns.

    `head` is how many bytes come before the value of `old`, give or take one for each of `columns` (the number of a
    type has one digit or two). `members` has to be among the types. `names` are the columns of a row in their order.
    """

    lead: bytes
    middle: bytes
    head: int
    columns: int
    members: tuple[str, ...]
    names: tuple[str, ...]
    record: dict[str, Any]

    @property
    def extended(self) -> bool:
        """Return whether a commit-ts ends each record."""
        return "_tidb" in self.record

    @property
    def kind(self) -> int:
        """Where the type stands, which ends before `es`."""
        return len(self.lead)

    @property
    def moments(self) -> tuple[int, int]:
        """Where the digits of `es` and of `ts` stand."""
        es = self.kind + _KIND_BYTES + len(_ES)
        return es, es + _MOMENT_DIGITS + len(_TS)

    @property
    def types(self) -> int:
        """Where the types of columns begin."""
        return self.moments[1] + _MOMENT_DIGITS + len(self.middle)

    @property
    def fixed(self) -> tuple[tuple[int, bytes], ...]:
        """What stands where in each record, before the types."""
        es, ts = self.moments
        between = ((self.kind + _KIND_BYTES, _ES), (es + _MOMENT_DIGITS, _TS), (ts + _MOMENT_DIGITS, self.middle))
        return ((0, self.lead), *between)

    @property
    def beyond(self) -> int:
        """How many bytes after the end of all data may be looked at."""
        return max(len(name.encode()) for name in self.names) + 128


def _find_shape(frame: RecordFrame, schema: TableSchema) -> _FileShape | None:
    """Return the shape of the first records, None if it is not a known one."""
    first = next((raw for raw in map(frame.__getitem__, range(min(_TRIED, len(frame)))) if b"\\" not in raw), b"")
    try:
        record = json_value(first)
        if print_json(record).encode() != first or not _is_known(record, schema):
            return None
    except ValueError:
        return None
    lead = _dumps({name: record[name] for name in _NAMES[:5]})[:-1] + b',"type":"'
    middle = b',"sql":' + _dumps(record["sql"]) + b',"sqlType":{'
    named = [column.name for column in schema.stored if column.type in MEMBERS]
    members = [_dumps({name: record["mysqlType"][name]})[1:-1].decode() for name in named]
    head = first.index(_OLD, len(lead) + len(middle)) + len(_OLD)
    return _FileShape(lead, middle, head, len(record["sqlType"]), tuple(members), tuple(record["data"][0]), record)


def _is_known(record: Any, schema: TableSchema) -> bool:
    """Return whether a record is a row change as TiCDC writes it."""
    if not isinstance(record, dict) or tuple(record) not in (_NAMES, (*_NAMES, "_tidb")):
        return False
    named = {column.name for column in schema.stored if column.type in MEMBERS}
    extension, types = record.get("_tidb", {"commitTs": 0}), record["mysqlType"]
    return (
        isinstance(record["database"], str)
        and isinstance(record["table"], str)
        and record["isDdl"] is False
        and record["type"] in KINDS
        and all(type(record[name]) is not str and len(str(record[name])) == _MOMENT_DIGITS for name in ("es", "ts"))
        and isinstance(record["sqlType"], dict)
        and isinstance(types, dict)
        and all(isinstance(types.get(name), str) for name in named)
        and _is_row(record["data"], schema)
        and isinstance(extension, dict)
        and list(extension) == ["commitTs"]
    )


def _is_row(data: Any, schema: TableSchema) -> bool:
    if not isinstance(data, list) or len(data) != 1 or not isinstance(data[0], dict) or not data[0]:
        return False
    return data[0].keys() <= {column.name for column in schema.stored}


def _dumps(value: Any) -> bytes:
    return print_json(value).encode()


# --- reading ----------------------------------------------------------------------------------------------------------


def file_records(frame: RecordFrame, schema: TableSchema) -> Iterator[FileRecords]:
    """Yield the records of a file that are all alike, but for an `old`; other records are left out."""
    shape, starts = _find_shape(frame, schema), frame.starts
    if shape is None:
        return
    blocks = np.searchsorted(starts, np.arange(0, starts[-1], _BLOCK_BYTES))
    for low, high in pairwise([*np.unique(blocks).tolist(), len(frame)]):
        if starts[high] - starts[low] > _MOST_BYTES:
            continue
        block = _FileBlock(frame, low, high, shape)
        for mask in (block.fit & block.updates, block.fit & ~block.updates):
            rows = np.flatnonzero(mask)
            if len(rows):
                yield FileRecords(block, rows, rows + low)


class FileRecords(Records):
    """Records that are alike, all of them with an image before or none."""

    def __init__(self, block: _FileBlock, rows: Positions, messages: Positions) -> None:
        super().__init__(messages)
        self._block, self._rows = block, rows
        self._old = bool(len(rows) and block.updates[rows[0]])

    def _some(self, mask: Marks) -> FileRecords:
        found = FileRecords(self._block, self._rows[mask], self.messages[mask])
        found._old = self._old
        return found

    def _at(self, path: tuple[str | int, ...]) -> Any:
        """Return what the first record has at a path, None for nothing; of `old` that is what `data` has."""
        if path[0] == "old":
            if not self._old:
                return None
            path = ("data", *path[1:])
        held: Any = self._block.shape.record
        for step in path:
            if isinstance(held, list):
                held = held[int(step)] if int(step) < len(held) else None
            else:
                held = held.get(step) if isinstance(held, dict) else None
        return held

    def _is_value(self, path: tuple[str | int, ...]) -> bool:
        sides = (("data", 0), ("old", 0)) if self._old else (("data", 0),)
        return len(path) == 3 and path[:2] in sides and path[2] in self._block.shape.names

    def members(self, *path: str | int) -> tuple[str, ...]:
        held = self._at(path)
        return tuple(held) if isinstance(held, dict) else ()

    def kinds(self, *path: str | int) -> Kinds:
        return self.column(*path).kinds

    def column(self, *path: str | int) -> RecordColumn:
        count, block = len(self), self._block
        text = np.full(count, CellKind.TEXT, np.uint8)
        if path == ("type",):
            return RecordColumn(text, block.kinds.take(pa.array(self._rows)))
        if path == ("_tidb", "commitTs") and block.shape.extended:
            return RecordColumn(np.full(count, CellKind.NUMBER, np.uint8), block.commit_ts(self._rows))
        if self._is_value(path):
            return block.value(str(path[2]), self._rows, before=path[0] == "old")
        held = self._at(path)
        if held is None:
            kind = CellKind.NULL if path == ("old",) else CellKind.ABSENT
            return RecordColumn(np.full(count, kind, np.uint8), pa.nulls(count, pa.string()))
        kind = CellKind.BOOL if isinstance(held, bool) else CellKind.TEXT
        kind = CellKind.JSON if isinstance(held, dict | list) else kind
        shown = held if isinstance(held, str) else print_json(held)
        return RecordColumn(np.full(count, kind, np.uint8), pa.repeat(shown, count))

    def by_members(self, *path: str | int) -> Iterator[Marks]:
        yield np.ones(len(self), bool)

    def lengths(self, *path: str | int) -> Positions:
        held = self._at(path)
        return np.full(len(self), len(held) if isinstance(held, list) else -1)

    def are_objects(self, *path: str | int) -> Marks:
        return np.full(len(self), isinstance(self._at(path), dict))

    def whole_numbers(self, *path: str | int) -> tuple[npt.NDArray[np.uint64], Marks]:
        column = self.column(*path)
        whole = column.are(CellKind.NUMBER)
        if not whole.any():
            return np.zeros(len(self), np.uint64), whole
        return column.texts.cast(pa.uint64()).to_numpy(), whole


class _FileBlock:
    """Some records of a frame held against a shape: `fit` marks those that have it."""

    def __init__(self, frame: RecordFrame, low: int, high: int, shape: _FileShape) -> None:
        self.shape = shape
        starts = frame.starts[low : high + 1]
        body = pa.py_buffer(memoryview(frame.body)[starts[0] : starts[-1]])
        begin, stop = starts[:-1] - starts[0], starts[1:] - starts[0] - len(frame.end)
        self.fit: Marks = stop - begin > shape.head
        self.kinds = self._heads(body, begin, stop)
        olds = np.minimum(self._olds(body, begin), stop)
        for text in shape.members:
            types = pieces(body, np.minimum(begin + shape.types, olds), olds, pa.string())
            self.fit &= _marks(pc.match_substring(types, text))
        rests = pieces(body, olds, stop)
        self.bounds: Positions = np.frombuffer(rests.buffers()[1], np.int32, len(rests) + 1).astype(np.int64)
        self.data = np.zeros(self.bounds[-1] + shape.beyond, np.uint8)
        self.data[: self.bounds[-1]] = np.frombuffer(rests.buffers()[2], np.uint8, self.bounds[-1])
        self.words = np.ndarray((len(self.data) - 7,), "<u8", self.data, strides=(1,))
        self._refuse_special()
        # Records of another shape may ask for more quotes than there are.
        beyond = np.full(8 * len(shape.names) + 8, self.bounds[-1])
        self.quotes = np.concatenate([*(np.flatnonzero(part == _QUOTE) + at for at, part in self._parts()), beyond])
        self._rests()

    def _parts(self) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
        """Pieces of the rests that a processor's cache holds, and where they begin."""
        for at in range(0, int(self.bounds[-1]), _CACHED_BYTES):
            yield at, self.data[at : min(at + _CACHED_BYTES, int(self.bounds[-1]))]

    def _heads(self, body: pa.Buffer, begin: Positions, stop: Positions) -> pa.Array:
        """Hold what comes before `old` against the shape; return the types."""

        def piece(at: int, length: int, kind: pa.DataType) -> pa.Array:
            return pieces(body, np.minimum(begin + at, stop), np.minimum(begin + at + length, stop), kind)

        for at, text in self.shape.fixed:
            self.fit &= _marks(pc.equal(piece(at, len(text), pa.binary()), pa.scalar(text, pa.binary())))
        for at in self.shape.moments:
            self.fit &= _are_numbers(piece(at, _MOMENT_DIGITS, pa.string()))
        kinds = piece(self.shape.kind, _KIND_BYTES, pa.string())
        self.fit &= _marks(pc.is_in(kinds, pa.array(KINDS)))
        return kinds

    def _olds(self, body: pa.Buffer, begin: Positions) -> Positions:
        """Return where the value of `old` begins in each record; those without it do not fit."""
        olds, left = begin + self.shape.head, np.flatnonzero(self.fit)
        if not len(left):
            return olds
        words = np.ndarray((len(body) - 7,), "<u8", np.frombuffer(body, np.uint8), strides=(1,))
        for more in sorted(range(-self.shape.columns, self.shape.columns + 1), key=abs):
            at = np.clip(olds[left] + more, len(_OLD), len(words) - 1 + len(_OLD))
            found = words[at - len(_OLD)] == int.from_bytes(_OLD, "little")
            olds[left[found]] += more
            left = left[~found]
            if not len(left):
                break
        self.fit[left] = False
        return olds

    def _refuse_special(self) -> None:
        """Leave out records with a backslash or a control character, and those that may be no UTF-8.

        In the others a quote begins or ends a text.
        """
        for at, part in self._parts():
            self._refuse(np.flatnonzero((part < _SPACE) | (part == _BACKSLASH)) + at)
        if not is_utf8(self.data[: self.bounds[-1]]):
            self._refuse(np.flatnonzero(self.data[: self.bounds[-1]] > _LAST_ASCII))

    def _refuse(self, where: Positions) -> None:
        self.fit[np.searchsorted(self.bounds, where, side="right") - 1] = False

    def _rests(self) -> None:
        """Go through `old`, `data` and the extension of all records side by side."""
        at, limits = self.bounds[:-1].copy(), self.bounds[1:]
        quote = np.searchsorted(self.quotes, at)
        self.updates = self.data[at] == _BRACKET
        with_old = np.flatnonzero(self.updates)
        without = np.flatnonzero(~self.updates)
        self.fit[without] &= self._have(at[without], b"null")
        at[without] += 4
        self.before, ended, fit, quote[with_old] = self._row(at[with_old], quote[with_old])
        at[with_old] = ended
        self.fit[with_old] &= fit
        self.fit &= self._have(at, b',"data":')
        self.after, at, fit, quote = self._row(at + 8, quote + 2)
        self.fit &= fit
        if not self.shape.extended:
            self.fit &= self._have(at, b"}") & (at + 1 == limits)
            return
        text = b',"_tidb":{"commitTs":'
        self.tso = at + len(text), limits - 2
        self.fit &= self._have(at, text) & (self.tso[0] < self.tso[1]) & (self.tso[1] - self.tso[0] <= _TSO_DIGITS)
        rows = np.flatnonzero(self.fit)
        self.fit[rows] &= self._have(limits[rows] - 2, b"}}") & _are_numbers(self.commit_ts(rows))

    def commit_ts(self, rows: Positions) -> pa.Array:
        return pieces(pa.py_buffer(self.data), self.tso[0][rows], self.tso[1][rows], pa.string())

    def _row(self, at: Positions, quote: Positions) -> tuple[_Values, Positions, Marks, Positions]:
        """Read `[{…}]` of some records from where it begins, with the first quote at or after that.

        Returns the values, where the rows end, which have the shape, and their next quotes.
        """
        fit = np.ones(len(at), dtype=bool)
        values = _Values([], [], [])
        text = b"[{"
        for name in self.shape.names:
            text += _dumps(name) + b":"
            fit &= self._have(at, text)
            at = at + len(text)
            quote = quote + 2
            null = self.data[at] == _N
            values.nulls.append(null)
            if null.any():
                fit &= np.where(null, self._have(at, b"null"), self.quotes[quote] == at)
                values.starts.append(np.where(null, at, at + 1))
                values.ends.append(np.where(null, at + 4, self.quotes[quote + 1]))
                at = np.where(null, at + 4, values.ends[-1] + 1)
                quote = np.where(null, quote, quote + 2)
            else:
                fit &= self.quotes[quote] == at
                values.starts.append(at + 1)
                values.ends.append(self.quotes[quote + 1])
                at = values.ends[-1] + 1
                quote = quote + 2
            text = b","
        fit &= self._have(at, b"}]")
        return values, at + 2, fit, quote

    def _have(self, at: Positions, text: bytes) -> Marks:
        """Mark the positions where the data goes on with a text; a word of eight bytes at a time."""
        found = np.ones(len(at), dtype=bool)
        for start in range(0, len(text), 8):
            piece = text[start : start + 8]
            mask = np.uint64((1 << 8 * len(piece)) - 1)
            found &= (self.words[at + start] & mask) == np.uint64(int.from_bytes(piece, "little"))
        return found

    def value(self, name: str, rows: Positions, *, before: bool) -> RecordColumn:
        """Return a column of some records, or of what was before them."""
        values = self.before if before else self.after
        rows = (np.cumsum(self.updates) - 1)[rows] if before else rows
        place = self.shape.names.index(name)
        texts = pieces(pa.py_buffer(self.data), values.starts[place][rows], values.ends[place][rows], pa.string())
        null = values.nulls[place][rows]
        kinds = np.where(null, np.uint8(CellKind.NULL), np.uint8(CellKind.TEXT))
        none = pa.scalar(None, pa.string())
        return RecordColumn(kinds, pc.if_else(pa.array(null), none, texts) if null.any() else texts)


class _Values(NamedTuple):
    """Where the texts of each column begin and end, and which are null."""

    starts: list[Positions]
    ends: list[Positions]
    nulls: list[Marks]


def _marks(mask: pa.Array) -> Marks:
    found: Marks = mask.to_numpy(zero_copy_only=False)
    return found


def _are_numbers(texts: pa.Array) -> Marks:
    """Mark texts that are integers above zero as JSON has them."""
    return _marks(pc.and_not(pc.ascii_is_decimal(texts), pc.starts_with(texts, "0")))
