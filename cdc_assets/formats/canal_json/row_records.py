"""Rows as messages or lines of files -> Records, also where `old` has other columns from row to row.

With content-compatible, `old` has the columns that an UPDATE changed. Records are read side by side where they have one
shape, and hardly two of these have, although they differ within `old` alone. So `old` is cut out of them: what is left
is of one shape again, and the texts of `old` are short, whether they are of one shape or parsed one by one.

    row_records(values)  all records
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.formats.json_records import FEW, json_records, parsed_records, same_shapes
from cdc_assets.formats.records import Kinds, Marks, Path, RecordColumn, Records, bounds
from cdc_assets.formats.words import pieces

__all__ = ["TYPES", "row_records"]

Places = npt.NDArray[np.int64]

TYPES = ("sqlType", "mysqlType")
"""Members that repeat what the schema file says, the latter in another order in each record (a map of Go's)."""
_OLD, _DATA = b',"old":[{', b'}],"data":[{'
"""Text before and after the columns of `old`. No text of JSON has a quote of its own in it, so that these are members
of the record wherever no object has another one in it, as in rows."""


def row_records(values: pa.BinaryArray) -> Iterator[Records]:
    """Yield JSON objects that are rows: those of one shape, then those of one shape but for `old`, then all others.

    `values` are the records in UTF-8. Records that are no JSON objects are yielded as refused ones.
    """
    left = np.ones(len(values), bool)
    for records in same_shapes(values, unordered=TYPES):
        left[records.messages] = False
        yield records
    places = np.flatnonzero(left)
    if len(places) >= FEW:
        for rows in _without_old(values.take(pa.array(places))):
            rows = rows.moved(places[rows.messages])
            left[rows.messages] = False
            yield rows
    places = np.flatnonzero(left)
    if len(places) or not len(values):
        for parsed in parsed_records(values.take(pa.array(places))):
            yield parsed.moved(places[parsed.messages])


def _without_old(values: pa.BinaryArray) -> Iterator[Records]:
    """Yield the records whose `old` can be cut out and read apart; the others are left out."""
    starts, ends = (pc.find_substring(values, text).fill_null(-1).to_numpy().astype(np.int64) for text in (_OLD, _DATA))
    places = np.flatnonzero((starts >= 0) & (ends >= starts + len(_OLD)))
    if len(places) < FEW:
        return
    begins, stops = (bound[places] for bound in bounds(values))
    first, behind = begins + starts[places] + len(_OLD), begins + ends[places]
    data = values.buffers()[2]
    heads, olds, tails = pieces(data, begins, first), pieces(data, first, behind), pieces(data, behind, stops)
    olds = _OldColumns(pc.binary_join_element_wise(b'{"old":[{', olds, b"}]}", b""))
    for rows in json_records(pc.binary_join_element_wise(heads, tails, b""), unordered=TYPES):
        rows = rows.among(rows.sound & olds.sound[rows.messages])
        if len(rows):
            yield _RowsWithOld(places[rows.messages], rows, olds, rows.messages)


class _OldColumns:
    """The columns of `old` of records: `sound` marks those that can be read."""

    def __init__(self, values: pa.BinaryArray) -> None:
        self._parts = list(json_records(values))
        messages = np.concatenate([part.messages for part in self._parts])
        self._order = np.argsort(messages)
        self.sound: Marks = np.concatenate([part.sound for part in self._parts])[self._order]
        self._columns = dict[Path, RecordColumn]()

    def column(self, path: Path) -> RecordColumn:
        if path not in self._columns:
            column = RecordColumn.joined([part.column(*path) for part in self._parts])
            self._columns[path] = RecordColumn(column.kinds[self._order], column.texts.take(pa.array(self._order)))
        return self._columns[path]

    def kinds(self, path: Path) -> Kinds:
        kinds: Kinds = np.concatenate([part.kinds(*path) for part in self._parts])[self._order]
        return kinds

    def members(self, path: Path) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self._parts for name in part.members(*path)))

    def lengths(self, path: Path) -> Places:
        return np.concatenate([part.lengths(*path) for part in self._parts])[self._order]

    def are_objects(self, path: Path) -> Marks:
        marks: Marks = np.concatenate([part.are_objects(*path) for part in self._parts])[self._order]
        return marks


class _RowsWithOld(Records):
    """Rows that have an empty `old`, and the places of their columns of `old` among those of all."""

    def __init__(self, messages: Places, rows: Records, olds: _OldColumns, places: Places) -> None:
        super().__init__(messages)
        self._rows, self._olds, self._places = rows, olds, places

    def _some(self, mask: Marks) -> _RowsWithOld:
        return _RowsWithOld(self.messages[mask], self._rows.among(mask), self._olds, self._places[mask])

    def _refuse_unread(self) -> None:
        """Refuse the rows of which a member that is read only where it is asked for turned out to be damaged."""
        for place, _, reason in self._rows.refused():
            self.refuse(place, reason)

    def members(self, *path: str | int) -> tuple[str, ...]:
        return self._olds.members(path) if path[:1] == ("old",) else self._rows.members(*path)

    def kinds(self, *path: str | int) -> Kinds:
        if path[:1] == ("old",):
            return self._olds.kinds(path)[self._places]
        kinds = self._rows.kinds(*path)
        self._refuse_unread()
        return kinds

    def column(self, *path: str | int) -> RecordColumn:
        if path[:1] == ("old",):
            column = self._olds.column(path)
            return RecordColumn(column.kinds[self._places], column.texts.take(pa.array(self._places)))
        column = self._rows.column(*path)
        self._refuse_unread()
        return column

    def lengths(self, *path: str | int) -> Places:
        return self._olds.lengths(path)[self._places] if path[:1] == ("old",) else self._rows.lengths(*path)

    def are_objects(self, *path: str | int) -> Marks:
        return self._olds.are_objects(path)[self._places] if path[:1] == ("old",) else self._rows.are_objects(*path)

    def whole_numbers(self, *path: str | int) -> tuple[npt.NDArray[np.uint64], Marks]:
        return self._rows.whole_numbers(*path)

    def by_members(self, *path: str | int) -> Iterator[Marks]:
        yield from self._rows.by_members(*path)
