r"""Delimited text: where records end, how one is cut into fields, and pyarrow's CSV reader for all of them at once.

One `Dialect` describes the CSV of TiCDC and of Dumpling and the tuples of an INSERT. A quote inside a text is doubled,
or a backslash escapes it; with escapes a line end never stands in a text.

pyarrow knows one delimiter byte, one quote byte or none, quotes that are doubled or nothing, and LF or CRLF. What a
dialect has beyond that is rewritten before (`plainly`) with stand-ins, bytes that occur nowhere in the block, and
undone in the values afterwards (`undone`): exact, and still at pyarrow's speed. Where no byte is free, or the bytes are
not as the dialect's writer writes them, records are cut one by one (`fields`).

pyarrow is given whole records and reads them as one block: between two blocks it would take the CR and LF of a text for
one end. And it is given `_is_sound` bytes, because it takes damaged ones for something else without a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from cdc_assets.model.wording import counted

__all__ = [
    "MOST_BYTES",
    "Dialect",
    "Field",
    "Plain",
    "Rows",
    "Undo",
    "count_byte",
    "cut_all",
    "cut_each",
    "fields",
    "leading",
    "numbered",
    "overlaps_itself",
    "plainly",
    "records",
    "records_end",
    "undone",
]

MOST_BYTES = (1 << 31) - 1
"""Most bytes that pyarrow reads as one block."""
_LF, _CR, _BACKSLASH = b"\n\r\\"
_CARELESS_ROWS = 1 << 16
_NEAR_BYTES = 1 << 18
"""Bytes that are compared at once: what is made of them stays in a core's cache, and takes no new memory."""
_STAND_INS = [bytes([code]) for code in (*range(9), 11, 12, *range(14, 32), 127)]
"""NUL comes first: Dumpling escapes it, so it is free even in bytes of a BLOB; pyarrow takes none as a delimiter."""
_CODES = b"abcdefghijklmnopqrstuvwxyz"

Undo = Sequence[tuple[bytes, bytes]]
"""(stand-in, what it stands for), to be undone in this order in every value that is text."""

Field = tuple["bytes | None", bool]
"""(value, None for NULL; whether it was quoted)."""


@dataclass(frozen=True)
class Dialect:
    """The quoting rules of delimited fields, as bytes: `escapes` maps what is written to what it means; without any, a
    quote is doubled.

    `quote` is empty where texts stand bare. Each escape begins with a backslash.
    """

    delimiter: bytes
    quote: bytes
    null: bytes
    terminator: bytes
    escapes: Mapping[bytes, bytes] = field(default_factory=dict, hash=False)

    @property
    def multiline_quote(self) -> bytes:
        """The quote within which a terminator ends no record; empty where every terminator ends one."""
        return b"" if self.escapes else self.quote

    @cached_property
    def null_text(self) -> bytes | None:
        """The text that is written like NULL; None where quotes or an escape set all texts apart."""
        if self.quote:
            return None
        try:
            text = self.unescaped(self.null)
        except ValueError:
            return None
        return text if self._escaped(text) == self.null else None

    def _escaped(self, text: bytes) -> bytes:
        for written, bare in self.escapes.items():
            text = text.replace(bare, written)
        return text

    def unescaped(self, written: bytes) -> bytes:
        """Return the value of a text. Raises ValueError for a backslash that the writer would not write so."""
        return self._escape.sub(self._meaning, written) if self.escapes and b"\\" in written else written

    def _meaning(self, escape: re.Match[bytes]) -> bytes:
        if (meant := self.escapes.get(escape[0])) is None:
            behind = escape[0][1:].decode("utf-8", "replace") or "nothing"
            raise ValueError(f'a backslash before "{behind}", which its writer does not write with these options')
        return meant

    @cached_property
    def _escape(self) -> re.Pattern[bytes]:
        return re.compile(b"|".join(map(re.escape, self.escapes)) + rb"|\\.?", re.DOTALL)

    @cached_property
    def one_field(self) -> re.Pattern[bytes]:
        """One field and what must follow it."""
        delimiter, null, quote = re.escape(self.delimiter), re.escape(self.null), re.escape(self.quote)
        end = rb"(?=%b|\Z)" % delimiter
        if quote:
            byte = rb"(?:\\.|(?!%b)[^\\])" % quote if self.escapes else rb"(?:%b|(?!%b).)" % (quote * 2, quote)
            pattern = rb"%b(?P<quoted>%b*)%b|(?P<null>%b)|(?P<bare>(?!%b).*?)" % (quote, byte, quote, null, quote)
        elif self.escapes:
            pattern = rb"(?P<null>%b)%b|(?P<text>(?:\\.|(?!%b).)*)" % (null, end, delimiter)
        else:
            pattern = rb"(?P<null>%b)|(?P<bare>.*?)" % null
        return re.compile(rb"(?:%b)%b" % (pattern, end), re.DOTALL)


# --- where records end ------------------------------------------------------------------------------------------------


def records_end(data: bytes, dialect: Dialect, start: int = 0, end: int | None = None) -> int:
    """Return the end of the whole records between two offsets; what follows there has no terminator before `end`."""
    end = len(data) if end is None else end
    odd = _count(data, dialect.multiline_quote, start, end) & 1 if dialect.multiline_quote else 0
    while (offset := data.rfind(dialect.terminator, start, end)) >= 0:
        odd ^= data.count(dialect.multiline_quote, offset, end) & 1 if dialect.multiline_quote else 0
        if not odd:
            return offset + len(dialect.terminator)
        end = offset
    return start


def _count(data: bytes, quote: bytes, start: int, end: int) -> int:
    return count_byte(data, quote, start, end) if len(quote) == 1 else data.count(quote, start, end)


def count_byte(data: bytes | pa.Buffer, byte: bytes, start: int = 0, end: int | None = None) -> int:
    """Count a byte that is frequent: comparing all bytes is faster than looking for the next one."""
    codes = np.frombuffer(data, np.uint8)[start:end]
    pieces = (codes[at : at + _NEAR_BYTES] for at in range(0, len(codes), _NEAR_BYTES))
    return sum(int(np.count_nonzero(piece == byte[0])) for piece in pieces)


def records(data: bytes, dialect: Dialect, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """Yield the records between two offsets, each without its terminator."""
    end, scan, odd = len(data) if end is None else end, start, 0
    while (offset := data.find(dialect.terminator, scan, end)) >= 0:
        if dialect.multiline_quote:
            odd ^= data.count(dialect.multiline_quote, scan, offset) & 1
        scan = offset + len(dialect.terminator)
        if not odd:
            yield data[start:offset]
            start = scan


# --- record by record -------------------------------------------------------------------------------------------------


def fields(record: bytes, dialect: Dialect) -> list[Field]:
    """Return the fields of one record without terminator. Raises ValueError that says what is wrong with it."""
    record_fields, at = _fields(record, dialect, len(record) + 1)
    if at <= len(record):
        raise ValueError(f"field {len(record_fields) + 1} goes on behind its closing quote, or has none")
    return record_fields


def leading(record: bytes, dialect: Dialect, count: int) -> tuple[list[bytes | None], int]:
    """Return up to `count` values that have a delimiter after them, and where the rest of the record starts."""
    try:
        record_fields, at = _fields(record, dialect, count)
    except ValueError:
        return [], 0
    values = [value for value, _ in record_fields]
    return (values, at) if at <= len(record) else (values[:-1], len(record))


def _fields(record: bytes, dialect: Dialect, count: int) -> tuple[list[Field], int]:
    """Return at most `count` fields and where the next one starts; that is behind the end after the last.

    A record that ends with a delimiter has an empty field behind it.
    """
    record_fields: list[Field] = []
    at = 0
    while (
        at <= len(record) and len(record_fields) <= count and (match := dialect.one_field.match(record, at)) is not None
    ):
        if len(record_fields) == count:
            break
        named = match.groupdict()
        quoted = named.get("quoted")
        written = named.get("text") if quoted is None else quoted
        if named["null"] is not None:
            record_fields.append((None, False))
        elif written is None:
            record_fields.append((named["bare"], False))
        else:
            text = dialect.unescaped(written) if dialect.escapes else written.replace(dialect.quote * 2, dialect.quote)
            record_fields.append((text, quoted is not None))
        at = match.end() + len(dialect.delimiter)
    return record_fields, at


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
    doubled: bool


def plainly(data: bytes | memoryview, dialect: Dialect) -> Plain | None:
    """Return bytes that pyarrow cuts as their writer meant them, or None where no rewriting is exact.

    A backslash that escapes nothing is left in them, as is that of a NULL marker.
    """
    structure = set(dialect.delimiter + dialect.terminator + dialect.quote + b"\r\n")
    if set(dialect.null) & structure or set(dialect.delimiter) & set(dialect.terminator):
        return None
    if dialect.escapes and (b"\\" in dialect.delimiter + dialect.terminator or dialect.null.endswith(b"\\")):
        return None
    if dialect.escapes and not dialect.quote and overlaps_itself(dialect.delimiter):
        return None
    ended = dialect.terminator in (b"\n", b"\r\n")
    swaps = dict(dialect.escapes) if ended else {**dialect.escapes, b"\n": b"\n", b"\r": b"\r"}
    long = [part for part in (dialect.delimiter, dialect.quote) if len(part) > 1]
    if not (swaps or long):
        return Plain(
            pa.py_buffer(data),
            dialect.delimiter.decode(),
            dialect.quote.decode() or False,
            dialect.null.decode(),
            (),
            True,
        )
    body, null = bytes(data), dialect.null
    behind = _behind_backslashes(body)
    present = {part: meant for part, meant in swaps.items() if (part[1] in behind if len(part) > 1 else part in body)}
    count = bool(present) + (not ended) + len(long)
    taken = structure.union(null)
    candidates = _STAND_INS if present else _STAND_INS[1:]
    stand_ins = list(islice((b for b in candidates if b not in body and b[0] not in taken), count))
    if len(stand_ins) < count:
        return None
    mark = stand_ins.pop(0) if present else b""
    ending = dialect.terminator if ended else stand_ins.pop(0)
    body = body.replace(dialect.terminator, ending) if not ended else body
    coded = []
    for (written, meant), letter in zip(present.items(), (c for c in _CODES if c not in taken), strict=False):
        code = mark + bytes([letter])
        body, null = body.replace(written, code), null.replace(written, code)
        coded.append((code, meant))
    undo = [] if ended else [(b"\n", dialect.terminator)]
    undo += sorted(coded, key=lambda pair: mark in pair[1])  # what means the mark itself comes last
    parts = {part: part for part in (dialect.delimiter, dialect.quote)}
    for part, stand_in in zip(long, stand_ins, strict=True):
        body = body.replace(part, stand_in)
        undo.insert(0, (stand_in, part))
        parts[part] = stand_in
    body = body if ended else body.replace(ending, b"\n")
    delimiter, quote = parts[dialect.delimiter].decode(), parts[dialect.quote].decode() or False
    return Plain(pa.py_buffer(body), delimiter, quote, null.decode(), undo, not dialect.escapes)


def _behind_backslashes(body: bytes) -> frozenset[int]:
    codes = np.frombuffer(body, np.uint8)
    return frozenset(np.flatnonzero(np.bincount(codes[1:][codes[:-1] == _BACKSLASH], minlength=256)).tolist())


def overlaps_itself(part: bytes) -> bool:
    """Return whether an end of it is a beginning of it, so that two of them can share bytes."""
    return any(part[:size] == part[-size:] for size in range(1, len(part)))


def cut_all(plain: Plain, types: Mapping[str, pa.DataType]) -> Rows | None:
    """Let pyarrow cut whole records, at most MOST_BYTES, into all their columns; None where it would cut elsewhere.

    Values are converted while reading; where one does not fit, all but dictionaries come as binary.
    """
    if not _is_sound(plain):
        return None
    raw = {name: kind if pa.types.is_dictionary(kind) else pa.binary() for name, kind in types.items()}
    for kinds in (types, raw):
        with suppress(pa.ArrowInvalid):  # a value does not fit, or a record has another number of fields
            rows = _read(plain, kinds)
            return rows if plain.doubled or _has_markers_only(plain, rows) else None
    return None


def _has_markers_only(plain: Plain, rows: Rows) -> bool:
    """Return whether every backslash that is left belongs to a NULL marker, which is all of a field."""
    nulls: int = sum(array.null_count for batch in rows.batches for array in batch.columns)
    return count_byte(plain.data, b"\\") == nulls * plain.null.count("\\")


def _read(plain: Plain, types: Mapping[str, pa.DataType]) -> Rows:
    table = pacsv.read_csv(
        pa.BufferReader(plain.data),
        pacsv.ReadOptions(column_names=list(types), block_size=plain.data.size),
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
            null_values=[plain.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return Rows(table.to_batches(), pa.array(np.arange(table.num_rows)), [], plain.undo)


def _is_sound(plain: Plain) -> bool:
    """Return whether pyarrow cuts records where they were meant to be cut.

    It takes every CR, LF and CRLF outside quotes for an end and lets a quote stand anywhere; meant are quotes around a
    text only, doubled within, and one kind of end.
    """
    codes = np.frombuffer(plain.data, np.uint8)
    end = b"\r\n" if codes[-2:].tobytes() == b"\r\n" else b"\n"
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


def _are_among(codes: npt.NDArray[np.uint8], allowed: Iterable[int]) -> bool:
    table = np.zeros(256, np.bool_)
    table[list(allowed)] = True
    return bool(table[codes].all())


def cut_each(records: Iterable[bytes], cut: Callable[[bytes], list[bytes | None]], names: Sequence[str]) -> Rows:
    """Do the same as bytes, record by record, where no form that pyarrow reads is exact.

    `cut` returns the fields of a record, None for NULL, and raises ValueError that says what is wrong with it.
    """
    batches: list[pa.RecordBatch] = []
    numbers: list[int] = []
    broken: list[tuple[int, str]] = []
    sound_rows: list[list[bytes | None]] = []
    schema = pa.schema([(name, pa.binary()) for name in names])

    def close() -> None:
        columns = [pa.array([row[place] for row in sound_rows], pa.binary()) for place in range(len(names))]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=schema))
        sound_rows.clear()

    for number, record in enumerate(records):
        try:
            row = cut(record)
            if len(row) != len(names):
                raise ValueError(f"{counted(len(row), 'field')} where {len(names)} are expected")
        except ValueError as error:
            broken.append((number, str(error)))
            continue
        sound_rows.append(row)
        numbers.append(number)
        if len(sound_rows) == _CARELESS_ROWS:
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
