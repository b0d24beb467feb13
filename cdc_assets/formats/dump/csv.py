"""Dumpling's CSV: a split of a file -> its rows. Every option is read; `dialect` says what they mean.

What contradicts the options is refused with the first line that does: without that a file that was written with
another delimiter would give texts with quotes in them, and one with other escapes would give texts with backslashes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache, partial

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.formats import ReadRange
from cdc_assets.formats.decoded import Decoded
from cdc_assets.formats.dialect import Dialect, fields
from cdc_assets.formats.dump.blocks import blocks, head_of, lines_in_front
from cdc_assets.formats.dump.dialect import DIALECTS, csv_dialect
from cdc_assets.formats.dump.rows import (
    Cutting,
    Lot,
    Target,
    bare_records,
    columns_by_count,
    columns_by_name,
    cut_off,
    decoded,
    is_quoted,
    shown,
)
from cdc_assets.model.dumps import DumpOptions, DumpSplit
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted
from cdc_assets.types.mysql_values import Binary

__all__ = ["can_cut", "lines_before", "raw_records", "read"]

_BOM = b"\xef\xbb\xbf"


def can_cut(options: DumpOptions) -> bool:
    """Return whether every line end ends a row, wherever one begins to read."""
    return csv_dialect(options).multiline_quote == b""


def lines_before(split: DumpSplit, read_range: ReadRange, options: DumpOptions) -> int:
    """Return the number of records before the split's first row, the header among them."""
    return lines_in_front(split, read_range) if split.start else int(options.header)


def raw_records(
    split: DumpSplit, read_range: ReadRange, lines: Collection[int], options: DumpOptions
) -> dict[int, bytes]:
    """Return the bytes of the split's records with these numbers, without terminator."""
    dialect, first = csv_dialect(options), 0 if split.start == 0 and options.header else 1
    records: dict[int, bytes] = {}
    for block in blocks(split, read_range, dialect):
        for line, raw in enumerate(bare_records(block.data, dialect), first):
            if line in lines:
                records[line] = raw
            first = line + 1
    return records


def read(
    split: DumpSplit, read_range: ReadRange, table: TableId, schema: TableSchema, options: DumpOptions, at: Tso
) -> Iterator[Decoded]:
    """Yield the rows of a split, block by block.

    Raises MalformedData when the file contradicts the options, has other columns than the schema, was cut off, or not
    one row fits; BadSettings for options with which rows cannot be separated.
    """
    dialect, path, line = csv_dialect(options), split.file.path, 1
    texts = [column.name for column in schema.stored if is_quoted(column)]
    if texts and not options.delimiter and not options.escape_backslash:
        raise BadSettings(
            f"{path} was written without delimiter and without escape-backslash, so it is unknown where a value of "
            f'"{texts[0]}" ends. Dump the table again with one of them.'
        )
    before = cache(partial(lines_before, split, read_range, options))
    cutting: Cutting | None = None
    for block in blocks(split, read_range, dialect):
        if block.cut:
            doubt = "" if dialect.escapes else f' Or its texts are not in the delimiter "{options.delimiter}".'
            raise cut_off(path, block.data, line + (0 if cutting is None else before()), doubt)
        start = 0
        if cutting is None:
            columns, end = _columns(split, read_range, block.data, schema, options, dialect)
            start = end if split.start == 0 else 0
            cutting = _cutting(Target(path, table, schema, options, at, columns, before), dialect)
        if start < len(block.data):
            decoded_rows, count = decoded(_lot(block.data[start:], line, dialect), cutting)
            yield decoded_rows
            line += count


def _cutting(target: Target, dialect: Dialect) -> Cutting:
    binary: Binary = DIALECTS[target.options.output_dialect.lower()]
    return Cutting(target, dialect, binary, _advice(dialect))


def _lot(data: bytes, line: int, dialect: Dialect) -> Lot:
    return Lot(data, lambda numbers: pc.add(numbers, pa.scalar(line, pa.int64())), lambda: bare_records(data, dialect))


def _advice(dialect: Dialect) -> str:
    return (
        f'It was read with separator "{dialect.delimiter.decode()}", delimiter "{dialect.quote.decode()}", null-value '
        f'"{dialect.null.decode()}" and escape-backslash {str(bool(dialect.escapes)).lower()}; give the CSV options '
        "that Dumpling had."
    )


# --- before the first row ---------------------------------------------------------------------------------------------


def _columns(
    split: DumpSplit, read_range: ReadRange, data: bytes, schema: TableSchema, options: DumpOptions, dialect: Dialect
) -> tuple[tuple[Column | None, ...], int]:
    """Return the columns of the file, and where in its first block the rows begin."""
    head = data if split.start == 0 else head_of(read_range, dialect.terminator)
    start = len(_BOM) if head.startswith(_BOM) else 0
    first = next(bare_records(head[start:], dialect))
    if not options.header:
        return _columns_of_row(first, schema, dialect, split.file.path), start
    columns = _columns_of_header(first, schema, dialect, split.file.path)
    return columns, head.find(dialect.terminator, start + len(first)) + 1


def _columns_of_header(record: bytes, schema: TableSchema, dialect: Dialect, path: str) -> tuple[Column | None, ...]:
    own = _own(schema)
    if not own and not record:
        return ()
    try:
        header_fields = fields(record, dialect)
    except ValueError:
        header_fields = []
    names = [(value or b"").decode("utf-8", "replace") for value, _ in header_fields]
    own_names = {column.name.lower() for column in schema.columns}
    bare = dialect.quote and not all(quoted for _, quoted in header_fields)
    if bare or not own_names.intersection(name.lower() for name in names):
        expected = dialect.delimiter.join(
            dialect.quote + column.name.encode() + dialect.quote for column in own
        ).decode()
        raise MalformedData(
            f'{path} line 1 is "{shown(record)}" where a header is expected, such as "{expected}". {_advice(dialect)} '
            "If it was run with --no-header, set header to false.",
            path=path,
            line=1,
        )
    return columns_by_name(names, schema, path, 1)


def _columns_of_row(record: bytes, schema: TableSchema, dialect: Dialect, path: str) -> tuple[Column | None, ...]:
    own = _own(schema)
    if not own and not record:
        return own
    try:
        record_fields = fields(record, dialect)
    except ValueError as problem:
        raise _unlike(str(problem), record, dialect, path) from None
    columns = columns_by_count(len(record_fields), schema)
    if columns is None:
        expected = f"{len(own)} are expected ({', '.join(column.name for column in own)})"
        raise _unlike(f"it has {counted(len(record_fields), 'field')} where {expected}", record, dialect, path)
    names = [value.decode("utf-8", "replace") for value, _ in record_fields if value is not None]
    if names == [column.name for column in columns if column is not None]:
        raise MalformedData(
            f'{path} line 1 is a header: "{shown(record)}". It was read with header false; take that out.',
            path=path,
            line=1,
        )
    return columns


def _own(schema: TableSchema) -> tuple[Column, ...]:
    return tuple(column for column in schema.stored if not column.generated)


def _unlike(reason: str, record: bytes, dialect: Dialect, path: str) -> MalformedData:
    message = f"{path} line 1: {reason}. {_advice(dialect)} The line is: {shown(record)}"
    return MalformedData(message, path=path, line=1)
