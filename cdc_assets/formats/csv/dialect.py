"""How a CSV file is cut into records and columns: TiCDC's four options as bytes, and two ways to read them.

TiCDC quotes every string and prints numbers, booleans and NULL bare; a quote inside is doubled, everything else is raw,
so records may span lines. Without quotes it escapes backslash, CR, LF and each byte of a whole delimiter instead.

`read` hands blocks of whole records to pyarrow. Where pyarrow cannot know the option (delimiters of two or three bytes,
other terminators, backslash escapes) the bytes are first rewritten with stand-ins, bytes that occur nowhere in the
block, and the values get their own bytes back afterwards: exact, and still at pyarrow's speed. What is left (markers
that look like structure, delimiters that overlap themselves without quotes), and a block that pyarrow would cut
elsewhere than TiCDC wrote, because a byte of it is damaged, is cut record by record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.formats.csv.options import CsvOptions
from cdc_assets.formats.delimited import (
    MOST_BYTES,
    Plain,
    Rows,
    complete_bytes,
    is_sound,
    one_by_one,
    read_plain,
    records,
)
from cdc_assets.model.schema import Column

__all__ = ["Dialect", "Layout", "dialect", "fields", "leading", "read"]

_BLOCK_BYTES = 8 << 20
_LF, _CR, _BACKSLASH = b"\n\r\\"
_STAND_INS = [bytes([code]) for code in (*range(1, 9), *range(14, 32), 127)]


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a row: TiCDC's own by name, and the table's in the order of the file.

    `absent` are stored columns that neither the file's header nor a column selector explains: virtual ones, as a rule.
    """

    meta: tuple[str, ...]
    columns: tuple[Column, ...]
    absent: tuple[Column, ...] = ()

    @property
    def size(self) -> int:
        """The number of fields of a row."""
        return len(self.meta) + len(self.columns)

    def without(self, name: str) -> Layout:
        """Return the same without one of TiCDC's own columns."""
        return Layout(tuple(one for one in self.meta if one != name), self.columns, self.absent)


@dataclass(frozen=True)
class Dialect:
    """The four options as bytes; `quote` is empty in no-quote mode."""

    delimiter: bytes
    quote: bytes
    null: bytes
    terminator: bytes

    @cached_property
    def null_text(self) -> bytes | None:
        """The text that is printed like the NULL marker; None where quotes or an escape set all texts apart."""
        if self.quote:
            return None
        try:
            text = self.unescaped(self.null)
        except ValueError:
            return None
        for written, bare in self._escapes.items():
            text = text.replace(bare, written)
        return self.unescaped(self.null) if text == self.null else None

    def unescaped(self, written: bytes) -> bytes:
        """Return what a field without quotes stands for. Raises ValueError for an escape that TiCDC does not write."""
        return self._escaped.sub(lambda escape: _unescape(escape[0], self), written)

    @cached_property
    def _escapes(self) -> Mapping[bytes, bytes]:
        """No-quote mode: what is written -> what it stands for.

        TiCDC writes a backslash before each byte of a delimiter, and each byte as a rune: those above 127 take two.
        """
        runes = b"".join(b"\\" + chr(byte).encode() for byte in self.delimiter)
        plain = b"".join(b"\\" + self.delimiter[at : at + 1] for at in range(len(self.delimiter)))
        return {b"\\\\": b"\\", runes: self.delimiter, plain: self.delimiter, b"\\r": b"\r", b"\\n": b"\n"}

    @cached_property
    def _escaped(self) -> re.Pattern[bytes]:
        return re.compile(b"|".join(map(re.escape, self._escapes)) + rb"|\\", re.DOTALL)

    @cached_property
    def _field(self) -> re.Pattern[bytes]:
        end, null, quote = rb"(?=%b|\Z)" % re.escape(self.delimiter), re.escape(self.null), re.escape(self.quote)
        if quote:
            text = rb"%b(?P<text>[^%b]*(?:%b%b[^%b]*)*)%b" % (quote, quote, quote, quote, quote, quote)
            return re.compile(rb"(?:%b|(?P<null>%b)|(?P<bare>[^%b]*?))%b" % (text, null, quote, end), re.DOTALL)
        bare = rb"(?:\\.|(?!%b).)*" % re.escape(self.delimiter)
        return re.compile(rb"(?:(?P<null>%b)|(?P<text>%b))%b" % (null, bare, end), re.DOTALL)

    @cached_property
    def _written(self) -> re.Pattern[bytes]:
        """No-quote mode: what TiCDC writes for a text, which holds no delimiter that is not escaped."""
        escapes = b"|".join(map(re.escape, self._escapes))
        return re.compile(rb"(?:%b|(?!%b)[^\\\r\n])*" % (escapes, re.escape(self.delimiter)), re.DOTALL)


def dialect(options: CsvOptions) -> Dialect:
    """Return the options as bytes. Raises BadSettings for what TiCDC itself refuses or what cannot be read back."""
    found = Dialect(*(text.encode() for text in (options.delimiter, options.quote, options.null, options.terminator)))
    wrong = ""
    if not 1 <= len(found.delimiter) <= 3 or set(found.delimiter) & set(b"\r\n"):
        wrong = f'delimiter "{options.delimiter}": 1 to 3 bytes without CR and LF are expected'
    elif len(found.quote) > 1 or found.quote in (b"\r", b"\n"):
        wrong = f'quote "{options.quote}": one character or none is expected'
    elif set(found.quote) & set(found.delimiter):
        wrong = f'quote "{options.quote}" is part of the delimiter "{options.delimiter}"'
    elif not found.terminator:
        wrong = "an empty terminator: records run together and cannot be separated"
    elif set(found.terminator) & set(found.quote):
        wrong = f'quote "{options.quote}" is part of the terminator'
    elif not found.quote and set(found.delimiter) <= set(b"rn\\"):
        wrong = f'delimiter "{options.delimiter}" without quotes: it is escaped like CR, LF or a backslash'
    elif found.quote and found.quote in found.null:
        wrong = f'null "{options.null}" with the quote in it: NULL cannot be distinguished from a text'
    elif found.terminator in found.null:
        wrong = f'null "{options.null}" with the terminator in it: records cannot be separated'
    elif re.fullmatch(r"[-+]?(\d|\.\d|inf|nan)[-+.\w]*|true|false", options.null, re.IGNORECASE):
        wrong = f'null "{options.null}": a number or boolean of that text is printed alike, so NULL is ambiguous'
    if wrong:
        raise BadSettings(
            f"The CSV options have {wrong}. Give the changefeed TOML that the changefeed was created with."
        )
    return found


# --- records and fields, one by one -----------------------------------------------------------------------------------


def fields(record: bytes, how: Dialect) -> list[bytes | None]:
    """Return the fields of one record as raw values, None for NULL. Raises ValueError that says what is wrong."""
    found, at = _cut(record, how, len(record))
    if at <= len(record):
        raise ValueError(f"field {len(found) + 1} has a quote within, or goes on after its closing quote")
    return found


def leading(record: bytes, how: Dialect, count: int) -> tuple[list[bytes | None], int]:
    """Return up to `count` fields that have a delimiter after them, and where the rest of the record starts."""
    try:
        found, at = _cut(record, how, count)
    except ValueError:
        return [], 0
    return (found, at) if at <= len(record) else (found[:-1], len(record))


def _cut(record: bytes, how: Dialect, count: int) -> tuple[list[bytes | None], int]:
    """Return at most `count` fields and where the next one starts; that is behind the end after the last."""
    found: list[bytes | None] = []
    at = 0
    while at <= len(record) and len(found) <= count and (match := how._field.match(record, at)) is not None:
        if len(found) == count:
            break
        named = match.groupdict()
        if named["null"] is not None:
            found.append(None)
        elif named["text"] is None:
            found.append(named["bare"])
        elif how.quote:
            found.append(named["text"].replace(how.quote * 2, how.quote))
        else:
            found.append(how.unescaped(named["text"]))
        at = match.end() + len(how.delimiter)
    return found, at


def _unescape(escape: bytes, how: Dialect) -> bytes:
    if escape == b"\\":
        raise ValueError("a backslash that escapes nothing; TiCDC doubles it where quote is empty")
    return how._escapes[escape]


# --- all records at once ----------------------------------------------------------------------------------------------


def read(
    data: bytes, start: int, end: int, how: Dialect, names: Sequence[str], types: Mapping[str, pa.DataType]
) -> list[Rows]:
    """Cut the whole records between two offsets into the columns of `types`, a selection of `names`; block by block.

    Values are converted while reading; a block with one that does not fit comes as binary. Raises MalformedData for a
    record that is too big.
    """
    found: list[Rows] = []
    total = 0
    for begin, stop in _blocks(data, start, end, how):
        rows = _read_block(memoryview(data)[begin:stop], how, names, types)
        lines = pc.add(rows.lines, pa.scalar(total, pa.int64()))
        found.append(rows._replace(lines=lines, broken=[(number + total, reason) for number, reason in rows.broken]))
        total += len(rows.lines) + len(rows.broken)
    return found


def _blocks(data: bytes, start: int, end: int, how: Dialect) -> Iterator[tuple[int, int]]:
    """Yield the offsets of pieces of about `_BLOCK_BYTES` that end where a record ends, whatever a text may hold."""
    size = end - start if _overlaps_itself(how.terminator) else _BLOCK_BYTES
    while start < end:
        stop = end if end - start <= size else complete_bytes(data, how, start, start + size)
        if stop - start > MOST_BYTES or (stop == start and size > MOST_BYTES):
            raise MalformedData(f"a record of more than {MOST_BYTES} bytes cannot be read")
        if stop == start:
            size *= 2
            continue
        yield start, stop
        start = stop


def _read_block(block: memoryview, how: Dialect, names: Sequence[str], types: Mapping[str, pa.DataType]) -> Rows:
    plain = _plainly(block, how)
    if plain is not None and _is_sound(plain, how):
        raw = {name: kind if pa.types.is_dictionary(kind) else pa.binary() for name, kind in types.items()}
        for kinds in (types, raw):
            try:
                return read_plain(plain, names, kinds)
            except pa.ArrowInvalid:
                continue  # a value does not fit, or a record has another number of fields
    return one_by_one(records(bytes(block), how), partial(_row, how=how, size=len(names)), names, types)


def _is_sound(plain: Plain, how: Dialect) -> bool:
    """Return whether the parser cuts a block as TiCDC did; without quotes no backslash is left outside NULL markers."""
    if not is_sound(plain, how.terminator if how.terminator == b"\r\n" else b"\n"):
        return False
    if how.quote:
        return True
    return _has_markers_only(plain.data, plain.null.encode(), plain.delimiter.encode())


def _has_markers_only(body: pa.Buffer, null: bytes, delimiter: bytes) -> bool:
    """Return whether every backslash belongs to a NULL marker, which is all of a field."""
    codes = np.frombuffer(body, np.uint8)
    places = np.flatnonzero(codes == _BACKSLASH)
    if not len(places):
        return True
    if null.count(b"\\") == 1:
        begin = places - null.index(b"\\")
        after = begin + len(null)
        if begin[0] < 0 or after[-1] >= len(codes):
            return False
        alike = all((codes[begin + at] == byte).all() for at, byte in enumerate(null))
        before = (begin == 0) | np.isin(codes[begin - 1], [_LF, delimiter[0]])
        return alike and bool(before.all()) and bool(np.isin(codes[after], [_LF, _CR, delimiter[0]]).all())
    between = re.escape(delimiter)
    return b"\\" not in re.sub(
        rb"(?:(?<=[\n%b])|\A)%b(?=[\r\n%b])" % (between, re.escape(null), between), b"", body.to_pybytes()
    )


def _plainly(block: memoryview, how: Dialect) -> Plain | None:
    """Return bytes that pyarrow cuts as TiCDC meant them, or None where no rewriting is exact."""
    structure = set(how.delimiter) | set(how.terminator) | set(how.quote) | set(b"\r\n")
    if set(how.null) & structure or set(how.delimiter) & set(how.terminator):
        return None
    ended = how.terminator in (b"\n", b"\r\n")
    quote: str | bool = how.quote.decode() or False
    single = len(how.delimiter) == 1
    if quote and single and ended:
        return Plain(pa.py_buffer(block), how.delimiter.decode(), quote, how.null.decode(), ())
    body = bytes(block)
    ambiguous = how.null.endswith(b"\\") or _overlaps_itself(how.delimiter) or b"\\" in how.delimiter + how.terminator
    if not quote and ambiguous:
        return None
    taken = how.null + how.delimiter + how.terminator
    free = list(islice((byte for byte in _STAND_INS if byte not in taken and byte not in body), 8))
    if len(free) < 8:
        return None
    delimiter, ending, *rest = free
    null = how.null
    undo = [] if ended else [(b"\n", how.terminator)]
    swaps = [] if quote else list(how._escapes.items())
    if not ended:
        body = body.replace(how.terminator, ending)
        swaps += [(b"\n", b"\n"), (b"\r", b"\r")]
    for (written, meant), stand_in in zip(swaps, rest, strict=False):
        null = null.replace(written, stand_in)
        if written in body:
            body = body.replace(written, stand_in)
            undo.append((stand_in, meant))
    if not single:
        body = body.replace(how.delimiter, delimiter)
        undo.insert(0, (delimiter, how.delimiter))
    if not ended:
        body = body.replace(ending, b"\n")
    between = how.delimiter if single else delimiter
    return Plain(pa.py_buffer(body), between.decode(), quote, null.decode(), undo)


def _overlaps_itself(delimiter: bytes) -> bool:
    return any(delimiter[:size] == delimiter[-size:] for size in range(1, len(delimiter)))


def _row(record: bytes, how: Dialect, size: int) -> list[bytes | None]:
    """Return the fields of a record that has so many. Raises ValueError that says what is wrong."""
    if not how.quote:
        readings = _readings(record, how, size)
        if len(readings) > 1:
            raise ValueError(f'it can be read in several ways: texts meet the delimiter "{how.delimiter.decode()}"')
        if readings:
            return [None if written == how.null else how.unescaped(written) for written in readings[0]]
    found = fields(record, how)
    if len(found) == size and not how.quote:
        raise ValueError("its fields are not as TiCDC writes them")
    return found


def _readings(record: bytes, how: Dialect, size: int) -> list[list[bytes]]:
    """Return up to two ways to cut a record without quotes into so many fields, each as TiCDC writes one."""
    found: dict[int, list[list[bytes]]] = {0: [[]]}
    for number in range(size):
        longer: dict[int, list[list[bytes]]] = {}
        for at, rows in found.items():
            for stop in _stops(record, how, at, last=number == size - 1):
                ways = longer.setdefault(stop + len(how.delimiter), [])
                ways += [[*row, record[at:stop]] for row in rows][: 2 - len(ways)]
        found = longer
    return next(iter(found.values()), [])


def _stops(record: bytes, how: Dialect, at: int, *, last: bool) -> set[int]:
    """Return where the field at an offset may end: at the record's end if it is the `last`, else before a delimiter."""
    written = how._written.match(record, at)
    plain = written.end() if written is not None else at
    # A text may end with a part of a delimiter, so the next one may begin later than where one can be seen.
    near = range(plain, min(plain + len(how.delimiter), len(record) + 1))
    stops = {stop for stop in near if how._written.fullmatch(record[at:stop])}
    if record.startswith(how.null, at):
        stops.add(at + len(how.null))
    return stops & {len(record)} if last else {stop for stop in stops if record.startswith(how.delimiter, stop)}
