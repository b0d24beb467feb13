"""How a CSV file of TiCDC is cut into records and columns.

TiCDC quotes every string and prints numbers, booleans and NULL bare; a quote inside is doubled, everything else is raw,
so records may span lines. Without quotes it escapes backslash, CR, LF and each byte of a whole delimiter instead; then
markers may look like structure and texts may meet the delimiter: a record that can be read in several ways is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.formats.csv.options import CsvOptions
from cdc_assets.formats.dialect import (
    MOST_BYTES,
    Dialect,
    Rows,
    complete_bytes,
    cut_all,
    cut_each,
    fields,
    overlaps_itself,
    plainly,
    records,
)
from cdc_assets.model.schema import Column

__all__ = ["RowColumns", "dialect", "read"]

_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class RowColumns:
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

    def without(self, name: str) -> RowColumns:
        """Return the same without one of TiCDC's own columns."""
        return RowColumns(tuple(one for one in self.meta if one != name), self.columns, self.absent)


def dialect(options: CsvOptions) -> Dialect:
    """Return the options as bytes. Raises BadSettings for what TiCDC itself refuses or what cannot be read back."""
    delimiter, quote = options.delimiter.encode(), options.quote.encode()
    escapes = {} if quote else _escapes(delimiter)
    found = Dialect(delimiter, quote, options.null.encode(), options.terminator.encode(), escapes)
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


def _escapes(delimiter: bytes) -> dict[bytes, bytes]:
    """TiCDC writes a backslash before each byte of a delimiter, and each byte as a rune: those above 127 take two."""
    runes = b"".join(b"\\" + chr(byte).encode() for byte in delimiter)
    plain = b"".join(b"\\" + delimiter[at : at + 1] for at in range(len(delimiter)))
    return {b"\\\\": b"\\", runes: delimiter, plain: delimiter, b"\\r": b"\r", b"\\n": b"\n"}


def read(data: bytes, start: int, end: int, how: Dialect, types: Mapping[str, pa.DataType]) -> list[Rows]:
    """Cut the whole records between two offsets into the columns of `types`, which are all; block by block.

    Values are converted while reading; a block with one that does not fit comes as binary. Raises MalformedData for a
    record that is too big.
    """
    found: list[Rows] = []
    total = 0
    for begin, stop in _blocks(data, start, end, how):
        block = memoryview(data)[begin:stop]
        plain = plainly(block, how)
        rows = None if plain is None else cut_all(plain, types)
        if rows is None:
            rows = cut_each(records(bytes(block), how), partial(_row, how=how, size=len(types)), list(types))
        lines = pc.add(rows.lines, pa.scalar(total, pa.int64()))
        found.append(rows._replace(lines=lines, broken=[(number + total, reason) for number, reason in rows.broken]))
        total += len(rows.lines) + len(rows.broken)
    return found


def _blocks(data: bytes, start: int, end: int, how: Dialect) -> Iterator[tuple[int, int]]:
    """Yield the offsets of pieces of about `_BLOCK_BYTES` that end where a record ends, whatever a text may hold."""
    size = end - start if overlaps_itself(how.terminator) else _BLOCK_BYTES
    while start < end:
        stop = end if end - start <= size else complete_bytes(data, how, start, start + size)
        if stop - start > MOST_BYTES or (stop == start and size > MOST_BYTES):
            raise MalformedData(f"a record of more than {MOST_BYTES} bytes cannot be read")
        if stop == start:
            size *= 2
            continue
        yield start, stop
        start = stop


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
    for number, (value, quoted) in enumerate(found, 1):
        if value and not quoted and how.quote and how.quote in value:
            raise ValueError(f"field {number} has a quote within")
    return [value for value, _ in found]


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


@cache
def _text_pattern(how: Dialect) -> re.Pattern[bytes]:
    """What TiCDC writes for a text without quotes, which holds no delimiter that is not escaped."""
    escapes = b"|".join(map(re.escape, how.escapes))
    return re.compile(rb"(?:%b|(?!%b)[^\\\r\n])*" % (escapes, re.escape(how.delimiter)), re.DOTALL)


def _stops(record: bytes, how: Dialect, at: int, *, last: bool) -> set[int]:
    """Return where the field at an offset may end: at the record's end if it is the `last`, else before a delimiter."""
    text = _text_pattern(how)
    written = text.match(record, at)
    plain = written.end() if written is not None else at
    # A text may end with a part of a delimiter, so the next one may begin later than where one can be seen.
    near = range(plain, min(plain + len(how.delimiter), len(record) + 1))
    stops = {stop for stop in near if text.fullmatch(record[at:stop])}
    if record.startswith(how.null, at):
        stops.add(at + len(how.null))
    return stops & {len(record)} if last else {stop for stop in stops if record.startswith(how.delimiter, stop)}
