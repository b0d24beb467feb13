"""Delimited text: where its records end, and pyarrow's CSV reader with their numbers.

Every dialect is read that can be brought into a form which pyarrow reads. pyarrow knows one delimiter byte, one quote
byte or none, quotes that are doubled or nothing, and LF or CRLF. What a dialect has beyond that is rewritten before
(`Plain`) and undone in the values afterwards (`Rows.undo`).

pyarrow is given whole records and reads them as one block: between two blocks it would take the CR and LF of a text for
one end. And it is given `is_sound` bytes, because it takes damaged ones for something else without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from cdc_assets.model.wording import counted

__all__ = [
    "MOST_BYTES",
    "Plain",
    "Quoting",
    "Rows",
    "Undo",
    "complete_bytes",
    "is_sound",
    "numbered",
    "one_by_one",
    "read_plain",
    "records",
    "undone",
]

MOST_BYTES = (1 << 31) - 1
"""What pyarrow reads as one block."""
_LF, _CR = b"\n\r"
_CARELESS_ROWS = 1 << 16

Undo = Sequence[tuple[bytes, bytes]]
"""(stand-in, what it stands for), to be undone in this order in every value that is text."""


# --- where records end ------------------------------------------------------------------------------------------------


class Quoting(Protocol):
    """What decides where a record ends; without `quote` every terminator does."""

    @property
    def quote(self) -> bytes: ...

    @property
    def terminator(self) -> bytes: ...


def complete_bytes(data: bytes, how: Quoting, start: int = 0, end: int | None = None) -> int:
    """Return where the whole records between two offsets end; what follows there has no terminator before `end`."""
    end = len(data) if end is None else end
    odd = _count(data, how.quote, start, end) & 1 if how.quote else 0
    while (found := data.rfind(how.terminator, start, end)) >= 0:
        odd ^= data.count(how.quote, found, end) & 1 if how.quote else 0
        if not odd:
            return found + len(how.terminator)
        end = found
    return start


def _count(data: bytes, quote: bytes, start: int, end: int) -> int:
    """Count a byte that is frequent: comparing all bytes is faster than looking for the next one."""
    if len(quote) > 1:
        return data.count(quote, start, end)
    return int(np.count_nonzero(np.frombuffer(data, np.uint8, max(end - start, 0), start) == quote[0]))


def records(data: bytes, how: Quoting, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Yield the records between two offsets, each without its terminator."""
    end, scan, odd = len(data) if end is None else end, start, 0
    while (found := data.find(how.terminator, scan, end)) >= 0:
        if how.quote:
            odd ^= data.count(how.quote, scan, found) & 1
        scan = found + len(how.terminator)
        if not odd:
            yield data[start:found]
            start = scan


# --- pyarrow's reader -------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Records as batches of columns, `lines` their numbers from 0 in the same order.

    `broken` holds (number from 0, what is wrong) of records that are not in the batches; `undo` is still to be done.
    """

    batches: list[pa.RecordBatch]
    lines: pa.Int64Array
    broken: list[tuple[int, str]]
    undo: Undo


class Plain(NamedTuple):
    """Bytes that pyarrow can cut. `doubled` says whether a quote inside a value is written twice."""

    data: pa.Buffer
    delimiter: str
    quote: str | bool
    null: str
    undo: Undo
    doubled: bool = True


def read_plain(plain: Plain, names: Sequence[str], types: Mapping[str, pa.DataType]) -> Rows:
    """Cut whole records, at most MOST_BYTES, into the columns of `types`, a selection of `names`.

    Types other than binary are converted while reading: raises ArrowInvalid when a value does not fit, and the caller
    reads again as binary; and when a record has another number of fields, and the caller reads `one_by_one`.
    """
    table = pacsv.read_csv(
        pa.BufferReader(plain.data),
        pacsv.ReadOptions(column_names=list(names), block_size=plain.data.size),
        pacsv.ParseOptions(
            delimiter=plain.delimiter,
            quote_char=plain.quote,
            double_quote=plain.doubled,
            escape_char=False,
            newlines_in_values=bool(plain.quote),
            ignore_empty_lines=False,
        ),
        pacsv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=[plain.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return Rows(table.to_batches(), pa.array(np.arange(table.num_rows)), [], plain.undo)


def is_sound(plain: Plain, end: bytes) -> bool:
    """Return whether pyarrow cuts records with `end` (LF or CRLF) after each where they were meant to be cut.

    It takes every CR, LF and CRLF outside quotes for an end and lets a quote stand anywhere; meant are quotes around a
    text only, doubled within, and one kind of end.
    """
    codes = np.frombuffer(plain.data, np.uint8)
    if not isinstance(plain.quote, str):
        return _has_one_end(codes, (), end)
    quote, delimiter = plain.quote.encode()[0], plain.delimiter.encode()[0]
    quotes = np.flatnonzero(codes == quote)
    before, after = codes[quotes[::2] - 1], codes[quotes[1::2] + 1]  # before the first byte is the last one, an end
    return (
        not len(quotes) & 1
        and _are_among(before, (delimiter, _LF, quote))
        and _are_among(after, (delimiter, end[0], quote))
        and _has_one_end(codes, quotes, end)
    )


def _has_one_end(codes: npt.NDArray[np.uint8], quotes: npt.ArrayLike, end: bytes) -> bool:
    """Return whether every CR and LF outside quotes belongs to an end of a record."""
    feeds = codes == _LF
    if end == b"\r\n":
        places = np.flatnonzero(feeds)
        ends = np.count_nonzero(codes[places - 1] == _CR)  # before the first byte is the last one, an end's LF
        if ends == len(places) == np.count_nonzero(codes == _CR):
            return True
    returns = codes == _CR
    if end == b"\n":
        strange = returns
    else:
        strange = feeds.copy()
        strange[1:] ^= returns[:-1]  # the last byte is an end's LF
    if not strange.any():
        return True
    return bool((np.searchsorted(quotes, np.flatnonzero(strange)) & 1).all())


def _are_among(codes: npt.NDArray[np.uint8], known: Iterable[int]) -> bool:
    table = np.zeros(256, np.bool_)
    table[list(known)] = True
    return bool(table[codes].all())


def one_by_one(
    records: Iterable[bytes],
    cut: Callable[[bytes], list[bytes | None]],
    names: Sequence[str],
    types: Mapping[str, pa.DataType],
) -> Rows:
    """Do the same as bytes, record by record, where no form that pyarrow reads is exact.

    `cut` returns the fields of a record, None for NULL, and raises ValueError that says what is wrong with it.
    """
    batches: list[pa.RecordBatch] = []
    numbers: list[int] = []
    broken: list[tuple[int, str]] = []
    kept: list[list[bytes | None]] = []
    schema = pa.schema([(name, pa.binary()) for name in types])
    places = [names.index(name) for name in types]

    def close() -> None:
        columns = [pa.array([row[place] for row in kept], pa.binary()) for place in places]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=schema))
        kept.clear()

    for number, record in enumerate(records):
        try:
            row = cut(record)
            if len(row) != len(names):
                raise ValueError(f"{counted(len(row), 'field')} where {len(names)} are expected")
        except ValueError as error:
            broken.append((number, str(error)))
            continue
        kept.append(row)
        numbers.append(number)
        if len(kept) == _CARELESS_ROWS:
            close()
    close()
    return Rows(batches, pa.array(numbers, pa.int64()), broken, ())


def numbered(rows: Rows) -> Iterator[tuple[pa.RecordBatch, pa.Int64Array]]:
    """Yield the batches that have rows, each with the numbers of its records."""
    start = 0
    for batch in rows.batches:
        if batch.num_rows:
            yield batch, rows.lines.slice(start, batch.num_rows)
        start += batch.num_rows


def undone(array: pa.Array, undo: Undo) -> pa.Array:
    """Return a column with the stand-ins of its texts turned back."""
    texts = pa.types.is_string(array.type) or pa.types.is_binary(array.type)
    if not texts or not undo or array.buffers()[2] is None:
        return array
    seen = np.zeros(256, np.bool_)
    seen[np.frombuffer(array.buffers()[2], np.uint8)] = True
    for stand_in, meant in undo:
        if seen[stand_in[0]]:
            array = pc.replace_substring(array, stand_in, meant)
    return array
