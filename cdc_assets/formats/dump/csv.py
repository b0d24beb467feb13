"""Dumpling's CSV: a split of a file -> its rows. Every option is read; `dialect` says what they mean.

What contradicts the options is refused with the first line that does: without that a file that was written with
another delimiter would give texts with quotes in them, and one with other escapes would give texts with backslashes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.formats import Decoded
from cdc_assets.formats.arrow_csv import Plain, Rows, is_sound, numbered, one_by_one, read_plain, undone
from cdc_assets.formats.dump.blocks import Block, ReadRange, blocks, lines_in_front
from cdc_assets.formats.dump.dialect import DIALECTS, Dialect, dialect, fields, plainly, strange_escapes
from cdc_assets.formats.dump.rows import (
    Target,
    assembled,
    columns_by_count,
    columns_by_name,
    is_quoted,
    reading_type,
    rows_of,
    shown,
)
from cdc_assets.formats.quoted_records import records
from cdc_assets.formats.sifting import NULL_OR_TEXT, Mask
from cdc_assets.model.dumps import DumpOptions, DumpSplit
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.types.mysql_values import Binary

__all__ = ["can_cut", "lines_before", "raw_records", "read"]

_BOM = b"\xef\xbb\xbf"
_HEAD_BYTES = 1 << 16


def can_cut(options: DumpOptions) -> bool:
    """Tell whether every line end ends a row, wherever one begins to read."""
    return dialect(options).quote == b""


def lines_before(split: DumpSplit, read_range: ReadRange, options: DumpOptions) -> int:
    """Return how many records stand before the split's first row, the header among them."""
    return lines_in_front(split, read_range) if split.start else int(options.header)


def raw_records(
    split: DumpSplit, read_range: ReadRange, lines: Collection[int], options: DumpOptions
) -> dict[int, bytes]:
    """Return the bytes of the split's records with these numbers, without terminator."""
    how, first = dialect(options), 0 if split.start == 0 and options.header else 1
    found: dict[int, bytes] = {}
    for block in blocks(split, read_range, how):
        for line, raw in enumerate(_records(block.data, how), first):
            if line in lines:
                found[line] = raw
            first = line + 1
    return found


def read(
    split: DumpSplit, read_range: ReadRange, table: TableId, schema: TableSchema, options: DumpOptions, at: Tso
) -> Iterator[Decoded]:
    """Yield the rows of a split, block by block.

    Raises MalformedData when the file contradicts the options, has other columns than the schema, was cut off, or not
    one row fits; BadSettings for options with which rows cannot be told apart.
    """
    how, line = dialect(options), 1
    file: _File | None = None
    for block in blocks(split, read_range, how):
        if file is None and block.cut:
            raise _cut_off(split.file.path, block.data, line, how)
        if file is None:
            head = block.data if split.start == 0 else _head(split, read_range)
            file = _opened(split, read_range, table, schema, options, at, how, head)
            if split.start == 0:
                block = Block(block.data[file.start :], block.cut)
        if block.cut:
            raise _cut_off(split.file.path, block.data, line + file.target.offset(), how)
        if block.data:
            decoded, count = _decoded(block.data, line, file)
            yield decoded
            line += count


@dataclass(frozen=True)
class _File:
    """What is known before the first row is read; `start` is where the header ends."""

    target: Target
    how: Dialect
    start: int
    binary: Binary


def _head(split: DumpSplit, read_range: ReadRange) -> bytes:
    """Return the beginning of the file with its first record."""
    size = _HEAD_BYTES
    while True:
        head = read_range(0, size)
        if b"\n" in head or len(head) < size:
            return head
        size *= 4


# --- before the first row ---------------------------------------------------------------------------------------------


def _opened(
    split: DumpSplit,
    read_range: ReadRange,
    table: TableId,
    schema: TableSchema,
    options: DumpOptions,
    at: Tso,
    how: Dialect,
    head: bytes,
) -> _File:
    path = split.file.path
    _check_readable(schema, options, path)
    start = len(_BOM) if head.startswith(_BOM) else 0
    first = next(_records(head[start:], how), None)
    end = head.find(how.terminator, start + len(first or b"")) + 1
    if options.header:
        columns = _columns_of_header(first or b"", schema, how, path)
        start = end
    else:
        columns = _columns_of_row(first, schema, how, path)
    offset = cache(partial(lines_before, split, read_range, options))
    target = Target(path, table, schema, options, at, columns, offset)
    binary: Binary = DIALECTS[options.output_dialect.lower()]  # type: ignore[assignment]
    return _File(target, how, start, binary)


def _check_readable(schema: TableSchema, options: DumpOptions, path: str) -> None:
    if options.delimiter or options.escape_backslash:
        return
    texts = [column.name for column in schema.stored if is_quoted(column)]
    if texts:
        raise BadSettings(
            f"{path} was written without delimiter and without escape-backslash, so nothing tells where a value of "
            f'"{texts[0]}" ends. Dump the table again with one of them.'
        )


def _columns_of_header(record: bytes, schema: TableSchema, how: Dialect, path: str) -> tuple[Column | None, ...]:
    own = _own(schema)
    if not own and not record:
        return ()
    try:
        found = fields(record, how)
    except ValueError:
        found = []
    names = [(value or b"").decode("utf-8", "replace") for value, _ in found]
    known = {column.name.lower() for column in schema.columns}
    bare = how.delimiter and not all(quoted for _, quoted in found)
    if bare or not known.intersection(name.lower() for name in names):
        expected = how.separator.join(how.delimiter + one.name.encode() + how.delimiter for one in own).decode()
        raise MalformedData(
            f'{path} line 1 is "{shown(record)}" where a header is expected, such as "{expected}". It was read with '
            f'separator "{how.separator.decode()}" and delimiter "{how.delimiter.decode()}". Give the CSV options that '
            "Dumpling had; if it was run with --no-header, set header to false.",
            path=path,
            line=1,
        )
    return columns_by_name(names, schema, path, 1)


def _columns_of_row(record: bytes | None, schema: TableSchema, how: Dialect, path: str) -> tuple[Column | None, ...]:
    own = _own(schema)
    if record is None or (not own and not record):
        return own
    try:
        found = fields(record, how)
    except ValueError as problem:
        raise MalformedData(_unlike(path, record, str(problem), how), path=path, line=1) from None
    columns = columns_by_count(len(found), schema)
    if columns is None:
        wanted = f"{len(own)} are expected ({', '.join(column.name for column in own)})"
        reason = f"it has {len(found)} field{'s' * (len(found) != 1)} where {wanted}"
        raise MalformedData(_unlike(path, record, reason, how), path=path, line=1)
    names = [value.decode("utf-8", "replace") for value, _ in found if value is not None]
    if names == [column.name for column in columns if column is not None]:
        raise MalformedData(
            f'{path} line 1 is a header: "{shown(record)}". It was read with header false; take that out.',
            path=path,
            line=1,
        )
    return columns


def _own(schema: TableSchema) -> tuple[Column, ...]:
    return tuple(column for column in schema.stored if not column.generated)


def _unlike(path: str, record: bytes, reason: str, how: Dialect) -> str:
    return (
        f'{path} line 1: {reason}. It was read with separator "{how.separator.decode()}" and delimiter '
        f'"{how.delimiter.decode()}"; give the CSV options that Dumpling had. The line is: {shown(record)}'
    )


def _records(data: bytes, how: Dialect) -> Iterator[bytes]:
    return (record.removesuffix(b"\r") for record in records(data, how))


# --- rows -------------------------------------------------------------------------------------------------------------


def _decoded(data: bytes, line: int, file: _File) -> tuple[Decoded, int]:
    """Return the rows of a block and how many records it has."""
    target = file.target
    if not target.columns:
        count = data.count(b"\n")
        lines = pa.array(range(line, line + count), pa.int64())
        return assembled([rows_of((), lines, target, file.binary)], (), (), target), count
    _check_raw(data, line, file)
    rows = _rows(data, line, file)
    parts = []
    for batch, numbers in numbered(rows):
        arrays, masks = _told_from_null([undone(array, rows.undo) for array in batch.columns], file)
        lines = pc.add(numbers, pa.scalar(line, pa.int64()))
        parts.append(rows_of(arrays, lines, target, file.binary, masks))
    broken = [(number + line, reason) for number, reason in rows.broken]
    count = len(rows.lines) + len(rows.broken)
    return assembled(parts, broken, enumerate(_records(data, file.how), line), target), count


def _check_raw(data: bytes, line: int, file: _File) -> None:
    """With backslash escapes neither NUL nor CR is raw in a row."""
    if not file.how.escape:
        return
    for raw, name in ((b"\0", "NUL"), (b"\r", "CR")):
        if data.count(raw) == (data.count(b"\r\n") if raw == b"\r" else 0):
            continue
        at = next(number for number, record in enumerate(_records(data, file.how)) if raw in record)
        raise file.target.error(
            f"{file.target.path} line {{line}} has a {name} that is not escaped: it was written with "
            "--escape-backslash=false, or changed later. Give escape-backslash false if Dumpling had it.",
            line + at,
        )


def _rows(data: bytes, line: int, file: _File) -> Rows:
    """Read the rows, converted where all values fit, else as bytes; refuse what the options cannot have written."""
    names = [f"#{place}" for place in range(len(file.target.columns))]
    types = (pa.binary() if column is None else reading_type(column) for column in file.target.columns)
    kinds = dict(zip(names, types, strict=True))
    plain = plainly(data, file.how)
    rows = None if plain is None else _cut_fast(plain, data, (kinds, dict.fromkeys(names, pa.binary())))
    if plain is None or rows is None:
        rows = one_by_one(_records(data, file.how), partial(_values, how=file.how), names, kinds)
        _check_each(data, line, rows, file)
    elif _is_doubtful(rows, plain, data, file):
        _check_each(data, line, rows, file)
    return rows


def _cut_fast(plain: Plain, data: bytes, kinds: Iterable[Mapping[str, pa.DataType]]) -> Rows | None:
    """Let pyarrow cut, into the first kinds of columns that take all values; None where it would cut in a wrong way."""
    if is_sound(plain, b"\r\n" if data.endswith(b"\r\n") else b"\n"):
        for some in kinds:
            with suppress(pa.ArrowInvalid):
                return read_plain(plain, list(some), some)
    return None


def _values(record: bytes, how: Dialect) -> list[bytes | None]:
    return [value for value, _ in fields(record, how)]


def _is_doubtful(rows: Rows, plain: Plain, data: bytes, file: _File) -> bool:
    """Count the delimiters and backslashes: there are as many as the values have to have."""
    if file.how.escape and strange_escapes(plain, _nulls(rows)):
        return True
    if not plain.quote:
        return False
    try:
        first = fields(next(_records(data, file.how)), file.how)
    except ValueError:
        return True
    quote = str(plain.quote)
    expected = 0
    for place, column in enumerate(file.target.columns):
        if not first[place][1] and (column is None or not is_quoted(column)):
            continue
        for batch in rows.batches:
            array = batch.column(place)
            expected += 2 * (len(array) - array.null_count)
            if plain.doubled and (pa.types.is_string(array.type) or pa.types.is_binary(array.type)):
                expected += 2 * (pc.sum(pc.count_substring(array, quote)).as_py() or 0)
    return bool(plain.data.to_pybytes().count(quote.encode()) != expected)


def _nulls(rows: Rows) -> int:
    return sum(array.null_count for batch in rows.batches for array in batch.columns)


def _check_each(data: bytes, line: int, rows: Rows, file: _File) -> None:
    """Refuse the first record that the options cannot have written: a bare text, a backslash that escapes nothing.

    Records that are broken anyway are told one by one, unless a backslash says why.
    """
    broken = {number for number, _ in rows.broken}
    for number, record in enumerate(_records(data, file.how)):
        try:
            found = fields(record, file.how)
        except ValueError as problem:
            if number in broken and "backslash" not in str(problem):
                continue
            raise _unlike_options(f" has {problem}", record, number + line, file) from None
        for (value, quoted), column in zip(found, file.target.columns, strict=False):
            if file.how.delimiter and value is not None and not quoted and column is not None and is_quoted(column):
                reason = f', column "{column.name}": "{shown(value)}" is neither in delimiters nor the null-value'
                raise _unlike_options(reason, record, number + line, file)


def _unlike_options(reason: str, record: bytes, line: int, file: _File) -> MalformedData:
    how = file.how
    return file.target.error(
        f'{file.target.path} line {{line}}{reason}. It was read with separator "{how.separator.decode()}", delimiter '
        f'"{how.delimiter.decode()}", null-value "{how.null.decode()}" and escape-backslash {str(how.escape).lower()}; '
        f"give the CSV options that Dumpling had. The line is: {shown(record)}",
        line,
    )


def _told_from_null(arrays: list[pa.Array], file: _File) -> tuple[list[pa.Array], list[Mask]]:
    """Without delimiters a text may look like the NULL marker: it is the text where NULL cannot be, else a note."""
    null = file.how.null_text
    masks: list[Mask] = []
    for place, column in enumerate(file.target.columns):
        texts = arrays[place]
        if null is None or column is None or not is_quoted(column) or not texts.null_count:
            continue
        if pa.types.is_string(texts.type) or pa.types.is_binary(texts.type):
            if not column.nullable or column.name in file.target.key:
                arrays[place] = texts.fill_null(pa.scalar(null, pa.binary()).cast(texts.type))
            else:
                masks.append((column.name, NULL_OR_TEXT, texts.is_null()))
    return arrays, masks


def _cut_off(path: str, data: bytes, line: int, how: Dialect) -> MalformedData:
    doubt = "" if how.escape else f' Or its texts are not in the delimiter "{how.delimiter.decode()}".'
    return MalformedData(
        f"{path} line {line} is the last one and does not end: the file was cut off while it was written or copied, "
        f"and nobody knows what else is missing. Dump the table again.{doubt} The line is: {shown(data)}",
        path=path,
        line=line,
    )
