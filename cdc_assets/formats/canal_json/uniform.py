"""Canal-JSON records that are all alike, as TiCDC writes those of a table, without a parser's look at every byte.

In a file all records have the same members in the same order, and three quarters of their bytes are repeated:
names, types, the table. So the first record has a shape, and every other is held against it: equal bytes where they
have to be equal, and between them digits, `null`, or a text without quote, backslash or control character. What fits is
what a parser would read, and what does not (a text with an escape, a partial image, a cut) is left to the parser.

`sqlType` and `mysqlType` repeat what the schema file says, the latter in another order in each record (a map of Go's).
They are passed over but for the types of ENUM and SET columns, which say how numbers are to be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats import json_lines
from cdc_assets.formats.json_lines import Frame, pieces
from cdc_assets.model.schema import TableSchema

__all__ = ["KINDS", "MEMBERS", "Shape", "find_shape", "read_alike"]

Positions = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]

_BLOCK_BYTES = 32 << 20
_CACHED_BYTES = 1 << 18
_MOST_BYTES = (1 << 31) - 1
_QUOTE, _BACKSLASH, _SPACE, _N, _BRACKET = b'"\\ n['
_LAST_ASCII = 0x7F
KINDS = ("INSERT", "UPDATE", "DELETE")
MEMBERS = ("ENUM", "SET")
"""Types whose values are numbers of members."""
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
_TRIED = 100
"""Records that are tried for a shape: one with a backslash has none."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is the same in all records: `lead` comes before the type, `middle` between `ts` and the types of columns.

    `head` is how many bytes come before the value of `old`, give or take one for each of `columns` (the number of a
    type has one digit or two). `said` has to be among the types. `names` are the columns of a row in their order.
    """

    lead: bytes
    middle: bytes
    head: int
    columns: int
    said: tuple[str, ...]
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


def find_shape(frame: Frame, schema: TableSchema) -> Shape | None:
    """Return the shape of the first records, None if it is not a known one."""
    first = next((raw for raw in map(frame.__getitem__, range(min(_TRIED, len(frame)))) if b"\\" not in raw), b"")
    try:
        record = json_lines.loads(first)
        if json_lines.dumps(record) != first or not _is_known(record, schema):
            return None
    except ValueError:
        return None
    lead = json_lines.dumps({name: record[name] for name in _NAMES[:5]})[:-1] + b',"type":"'
    middle = b',"sql":' + json_lines.dumps(record["sql"]) + b',"sqlType":{'
    named = [column.name for column in schema.stored if column.type in MEMBERS]
    said = [json_lines.dumps({name: record["mysqlType"][name]})[1:-1].decode() for name in named]
    head = first.index(_OLD, len(lead) + len(middle)) + len(_OLD)
    return Shape(lead, middle, head, len(record["sqlType"]), tuple(said), tuple(record["data"][0]), record)


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
        and all(type(record[name]) is int and len(str(record[name])) == _MOMENT_DIGITS for name in ("es", "ts"))
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


# --- reading ----------------------------------------------------------------------------------------------------------


def read_alike(frame: Frame, shape: Shape, schema: TableSchema) -> Iterator[tuple[pa.RecordBatch, Positions]]:
    """Yield the members of the records of that shape, and their positions; other records are left out.

    A batch has the columns database, table, isDdl, type, old, data, mysqlType (of MEMBERS) and _tidb; a null that was
    written is `json_lines.NULL`, one of Arrow's a missing member.
    """
    starts = frame.starts
    blocks = np.searchsorted(starts, np.arange(0, starts[-1], _BLOCK_BYTES))
    for low, high in pairwise([*np.unique(blocks).tolist(), len(frame)]):
        if starts[high] - starts[low] > _MOST_BYTES:
            continue
        block = _Block(frame, low, high, shape)
        fit = np.flatnonzero(block.fit)
        if len(fit):
            yield block.members(fit, schema), fit + low


class _Block:
    """Some records of a frame held against a shape: `fit` marks those that have it."""

    def __init__(self, frame: Frame, low: int, high: int, shape: Shape) -> None:
        self.shape = shape
        starts = frame.starts[low : high + 1]
        body = pa.py_buffer(memoryview(frame.body)[starts[0] : starts[-1]])
        begin, stop = starts[:-1] - starts[0], starts[1:] - starts[0] - len(frame.end)
        self.fit: Marks = stop - begin > shape.head
        self.kinds = self._heads(body, begin, stop)
        olds = np.minimum(self._olds(body, begin), stop)
        for text in shape.said:
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
        if not json_lines.is_utf8(self.data[: self.bounds[-1]]):
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
        self.fit[rows] &= self._have(limits[rows] - 2, b"}}") & _are_numbers(self._commit_ts(rows))

    def _commit_ts(self, rows: Positions) -> pa.Array:
        return pieces(pa.py_buffer(self.data), self.tso[0][rows], self.tso[1][rows], pa.string())

    def _row(self, at: Positions, quote: Positions) -> tuple[_Values, Positions, Marks, Positions]:
        """Read `[{…}]` of some records from where it begins, with the first quote at or after that.

        Returns the values, where the rows end, which have the shape, and their next quotes.
        """
        fit = np.ones(len(at), dtype=bool)
        values = _Values([], [], [])
        text = b"[{"
        for name in self.shape.names:
            text += json_lines.dumps(name) + b":"
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

    # --- members ---

    def members(self, fit: Positions, schema: TableSchema) -> pa.RecordBatch:
        """Return the members of the records that fit."""
        count, record = len(fit), self.shape.record
        updates = self.updates[fit]
        old = self._structs(self.before, np.flatnonzero(self.fit[self.updates]), schema)
        data = self._structs(self.after, fit, schema)
        sizes = np.concatenate([[0], np.cumsum(updates)]).astype(np.int32)
        commit_ts = pa.nulls(count, pa.int64())
        if self.shape.extended:
            commit_ts = self._commit_ts(fit).cast(pa.int64())
        types = {column.name: record["mysqlType"][column.name] for column in schema.stored if column.type in MEMBERS}
        return pa.RecordBatch.from_pydict(
            {
                "database": pa.repeat(record["database"], count),
                "table": pa.repeat(record["table"], count),
                "isDdl": pa.repeat(False, count),
                "type": self.kinds.take(pa.array(fit)),
                "old": pa.ListArray.from_arrays(sizes, old, mask=pa.array(~updates)),
                "data": pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32), data),
                "mysqlType": pa.StructArray.from_arrays(
                    [pa.repeat(pa.scalar(types.get(c.name), pa.string()), count) for c in schema.stored],
                    [c.name for c in schema.stored],
                ),
                "_tidb": pa.StructArray.from_arrays([commit_ts], ["commitTs"]),
            }
        )

    def _structs(self, values: _Values, rows: Positions, schema: TableSchema) -> pa.StructArray:
        """The texts of some rows, in the schema's order; a column that the shape lacks is missing in all."""
        arrays, buffer = {}, pa.py_buffer(self.data)
        for name, starts, ends, nulls in zip(self.shape.names, *values, strict=True):
            texts = pieces(buffer, starts[rows], ends[rows], pa.string())
            null = nulls[rows]
            arrays[name] = pc.if_else(pa.array(null), json_lines.NULL, texts) if null.any() else texts
        names = [column.name for column in schema.stored]
        missing = pa.nulls(len(rows), pa.string())
        return pa.StructArray.from_arrays([arrays.get(name, missing) for name in names], names)


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
