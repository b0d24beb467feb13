"""Records of CSV -> rows. What Dumpling writes in its CSV and, between parentheses, in its INSERT statements.

pyarrow cuts whatever can be rewritten into a form that it reads; delimiters and backslashes are counted afterwards,
because a wrong option would give other texts without a word. Only where a count is off each record is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import MalformedData
from cdc_assets.formats import Decoded
from cdc_assets.formats.dialect import (
    Dialect,
    Plain,
    Rows,
    cut_all,
    cut_each,
    fields,
    numbered,
    plainly,
    records,
    undone,
)
from cdc_assets.formats.dump.rows import Target, assembled, is_quoted, reading_type, rows_of, shown
from cdc_assets.formats.sifting import NULL_OR_TEXT, Mask
from cdc_assets.types.mysql_values import Binary

__all__ = ["Cutting", "Lot", "bare_records", "decoded"]

_SAMPLE = 20


@dataclass(frozen=True)
class Cutting:
    """How the records of a file are cut and read. `advice` says how they were read, and what to change."""

    target: Target
    how: Dialect
    binary: Binary
    advice: str

    def error(self, reason: str, record: bytes, line: int) -> MalformedData:
        """Return the error of a file that the options cannot have written."""
        return self.target.error(
            f"{self.target.path} line {{line}}{reason}. {self.advice} The line is: {shown(record)}", line
        )


@dataclass(frozen=True)
class Lot:
    """Whole records in the form that is cut. `lines` turns their numbers, from 0, into lines; `raws` are they as they
    stand in the file.
    """

    data: bytes
    lines: Callable[[pa.Int64Array], pa.Int64Array]
    raws: Callable[[], Iterable[bytes]]

    def line(self, number: int) -> int:
        """Return the line of one record."""
        return int(self.lines(pa.array([number], pa.int64()))[0].as_py())

    def numbered_raws(self) -> Iterator[tuple[int, bytes]]:
        """Yield each record with its line."""
        return ((self.line(number), raw) for number, raw in enumerate(self.raws()))


def bare_records(data: bytes, how: Dialect) -> Iterator[bytes]:
    """Yield records without LF or CRLF."""
    return (record.removesuffix(b"\r") for record in records(data, how))


def decoded(lot: Lot, cutting: Cutting) -> tuple[Decoded, int]:
    """Return the rows of a lot and how many records it has."""
    target = cutting.target
    if not target.columns:
        count = lot.data.count(b"\n")
        lines = lot.lines(pa.array(range(count), pa.int64()))
        return assembled([rows_of((), lines, target, cutting.binary)], (), (), target), count
    _check_raw(lot, cutting)
    rows = _rows(lot, cutting)
    parts = []
    for batch, numbers in numbered(rows):
        arrays, masks = _apart_from_null([undone(array, rows.undo) for array in batch.columns], cutting)
        parts.append(rows_of(arrays, lot.lines(numbers), target, cutting.binary, masks))
    broken = [(lot.line(number), reason) for number, reason in rows.broken]
    return assembled(parts, broken, lot.numbered_raws(), target), len(rows.lines) + len(rows.broken)


def _check_raw(lot: Lot, cutting: Cutting) -> None:
    """With backslash escapes neither NUL nor CR is raw in a row."""
    if not cutting.how.escapes:
        return
    ends = _count(lot.data, b"\n") if lot.data.endswith(b"\r\n") else 0
    for raw, name, expected in ((b"\0", "NUL", 0), (b"\r", "CR", ends)):
        if _count(lot.data, raw) <= expected:
            continue
        for number, record in enumerate(bare_records(lot.data, cutting.how)):
            if raw in record:  # an end may be LF and another CRLF, in a file that somebody edited
                raise cutting.error(f" has a {name} that is not escaped", record, lot.line(number))


def _rows(lot: Lot, cutting: Cutting) -> Rows:
    """Read the rows, converted where all values fit, else as bytes; refuse what the options cannot have written."""
    data, how, columns = lot.data, cutting.how, cutting.target.columns
    types = (pa.binary() if column is None else reading_type(column) for column in columns)
    kinds = {f"#{place}": kind for place, kind in enumerate(types)}
    plain = plainly(data, how)
    rows = None if plain is None else cut_all(plain, kinds)
    if plain is None or rows is None:
        rows = cut_each(bare_records(data, how), partial(_values, how=how), list(kinds))
        _check_each(lot, rows, cutting)
    elif _is_doubtful(rows, plain, data, cutting):
        _check_each(lot, rows, cutting)
    return rows


def _values(record: bytes, how: Dialect) -> list[bytes | None]:
    return [value for value, _ in fields(record, how)]


def _is_doubtful(rows: Rows, plain: Plain, data: bytes, cutting: Cutting) -> bool:
    """Count the lines and the delimiters: there are as many as the values have to have."""
    if cutting.how.escapes and len(rows.lines) != _count(data, b"\n"):
        return True
    if not plain.quote:
        return False
    quote, expected = str(plain.quote), 0
    for place in _quoted_places(data, cutting):
        for batch in rows.batches:
            array = batch.column(place)
            expected += 2 * (len(array) - array.null_count)
            if plain.doubled and (pa.types.is_string(array.type) or pa.types.is_binary(array.type)):
                expected += 2 * (pc.sum(pc.count_substring(array, quote)).as_py() or 0)
    return _count(plain.data, quote.encode()) != expected


def _count(data: bytes | pa.Buffer, byte: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == byte[0]))


def _quoted_places(data: bytes, cutting: Cutting) -> set[int]:
    """Return the columns whose values are quoted: all but numbers, and what the first records quote."""
    columns = cutting.target.columns
    places = {place for place, column in enumerate(columns) if column is not None and is_quoted(column)}
    with suppress(ValueError):
        for record in islice(bare_records(data, cutting.how), _SAMPLE):
            places.update(place for place, (_, quoted) in enumerate(fields(record, cutting.how)) if quoted)
    return places


def _check_each(lot: Lot, rows: Rows, cutting: Cutting) -> None:
    """Refuse the first record that the options cannot have written: a bare text, a backslash that escapes nothing.

    Records that are broken anyway are reported one by one, unless a backslash says why.
    """
    broken = {number for number, _ in rows.broken}
    for number, record in enumerate(bare_records(lot.data, cutting.how)):
        try:
            found = fields(record, cutting.how)
        except ValueError as problem:
            if number in broken and "backslash" not in str(problem):
                continue
            raise cutting.error(f" has {problem}", record, lot.line(number)) from None
        for (value, quoted), column in zip(found, cutting.target.columns, strict=False):
            if cutting.how.quote and value is not None and not quoted and column is not None and is_quoted(column):
                reason = f', column "{column.name}": "{shown(value)}" is neither in delimiters nor the null-value'
                raise cutting.error(reason, record, lot.line(number))


def _apart_from_null(arrays: list[pa.Array], cutting: Cutting) -> tuple[list[pa.Array], list[Mask]]:
    """Without delimiters a text may look like the NULL marker: it is the text where NULL cannot be, else a note."""
    null = cutting.how.null_text
    masks: list[Mask] = []
    for place, column in enumerate(cutting.target.columns):
        texts = arrays[place]
        if null is None or column is None or not is_quoted(column) or not texts.null_count:
            continue
        if pa.types.is_string(texts.type) or pa.types.is_binary(texts.type):
            if not column.nullable or column.name in cutting.target.schema.exact:
                arrays[place] = texts.fill_null(pa.scalar(null, pa.binary()).cast(texts.type))
            else:
                masks.append((column.name, NULL_OR_TEXT, texts.is_null()))
    return arrays, masks
