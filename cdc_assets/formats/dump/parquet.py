"""Parquet of Dumpling and of TiDB Cloud's exports: a split of a file -> its rows.

The types are those of the file's own schema: the two writers differ (DECIMAL of 19 digits or more, FLOAT, VECTOR), and
the documentation of the cloud's disagrees with both. What Parquet has lost is reported: neither writer can hold a zero
DATETIME or TIMESTAMP, which is NULL in the file whatever the column allows. A split reads the row groups that begin in
it; lines are rows.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cdc_assets.errors import MalformedData
from cdc_assets.formats import ReadRange
from cdc_assets.formats.changes import ChangeBuilder, Faults, Images
from cdc_assets.formats.decoded import Decoded
from cdc_assets.formats.dump.rows import Target, assembled, columns_by_name, take_column
from cdc_assets.formats.json_records import print_json
from cdc_assets.model.dumps import DUMP_ZONE, DumpOptions, DumpSplit
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.types.families import BINARY, FLOATING, INTEGER
from cdc_assets.types.mysql_types import arrow_type, bit_values, finish, type_text, values, wire_type
from cdc_assets.types.mysql_values import ZERO_DATE, Values

__all__ = ["NULL_OR_ZERO_DATE", "can_cut", "lines_before", "raw_records", "read"]

NULL_OR_ZERO_DATE = "NULL, or a zero date, which Parquet has as NULL"
_BATCH_ROWS = 1 << 16


def can_cut(options: DumpOptions) -> bool:
    """Row groups can be read from any place on."""
    return True


def lines_before(split: DumpSplit, read_range: ReadRange, options: DumpOptions) -> int:
    """Return the number of rows before the split's first row."""
    if not split.start:
        return 0
    file = _opened(split, read_range)
    first = next(iter(_row_groups(file, split)), 0)
    return sum(file.metadata.row_group(number).num_rows for number in range(first))


def raw_records(
    split: DumpSplit, read_range: ReadRange, lines: Collection[int], options: DumpOptions
) -> dict[int, bytes]:
    """Return the split's rows with these numbers, as JSON: a row of Parquet has no bytes of its own."""
    file = _opened(split, read_range)
    batches = file.iter_batches(_BATCH_ROWS, row_groups=_row_groups(file, split))
    numbered = enumerate(chain.from_iterable(map(_records, batches)), 1)
    return {line: raw for line, raw in numbered if line in lines}


def read(
    split: DumpSplit, read_range: ReadRange, table: TableId, schema: TableSchema, options: DumpOptions, at: Tso
) -> Iterator[Decoded]:
    """Yield the rows of a split, batch by batch.

    Raises MalformedData when the file is not a whole Parquet file, or has other columns or types than the schema.
    """
    file, path = _opened(split, read_range), split.file.path
    columns = columns_by_name(file.schema_arrow.names, schema, path, 1)
    before = cache(partial(lines_before, split, read_range, options))
    target = Target(path, table, schema, options, at, columns, before)
    names = [name for name, column in zip(file.schema_arrow.names, columns, strict=True) if column is not None]
    batches = file.iter_batches(_BATCH_ROWS, row_groups=_row_groups(file, split), columns=names)
    pairs = zip(columns, file.schema_arrow, strict=True)
    zoned = [field.type for column, field in pairs if column is not None and column.type == "TIMESTAMP"]
    instants = all(pa.types.is_timestamp(kind) and kind.tz is not None for kind in zoned)
    line = 1
    try:
        for batch in batches:
            block = _block(batch, line, target)
            yield replace(block, stated=frozenset({DUMP_ZONE})) if instants else block
            line += batch.num_rows
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(path, error) from None


# --- files ------------------------------------------------------------------------------------------------------------


class _Ranges(io.RawIOBase):
    """A file of which ranges are read."""

    def __init__(self, read_range: ReadRange, size: int) -> None:
        self._read_range, self._size, self._at = read_range, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = origin + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._at + size, self._size)
        data = self._read_range(self._at, end) if end > self._at else b""
        self._at += len(data)
        return data


def _opened(split: DumpSplit, read_range: ReadRange) -> pq.ParquetFile:
    try:
        source = pa.PythonFile(_Ranges(read_range, split.file.size), "r")
        return pq.ParquetFile(source, page_checksum_verification=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(split.file.path, error) from None


def _damaged(path: str, error: Exception) -> MalformedData:
    return MalformedData(
        f"{path} is not a whole Parquet file ({error}): it was cut off, damaged, or misnamed. Copy "
        "it again from where it was written, or dump again.",
        path=path,
    )


def _row_groups(file: pq.ParquetFile, split: DumpSplit) -> list[int]:
    groups = []
    for number in range(file.metadata.num_row_groups):
        chunk = file.metadata.row_group(number).column(0)
        begins = min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)), default=0)
        if split.start <= begins < split.end:
            groups.append(number)
    return groups


def _records(batch: pa.RecordBatch) -> Iterator[bytes]:
    for row in batch.to_pylist():
        yield print_json({name: _shown(value) for name, value in row.items()}).encode()


def _shown(value: object) -> object:
    if value is None or isinstance(value, bool | int | float | list):
        return value
    return value.hex() if isinstance(value, bytes) else str(value)


# --- values -----------------------------------------------------------------------------------------------------------


def _block(batch: pa.RecordBatch, line: int, target: Target) -> Decoded:
    """Return the rows of a batch, of which the first is that line."""
    faults = Faults.of_file(target.path, lambda: enumerate(_records(batch), line))
    images = Images.inserted(np.arange(line, line + batch.num_rows), target.at)
    builder = ChangeBuilder(images, target.schema, faults)
    columns = (column for column in target.columns if column is not None)
    for array, column in zip(batch.columns, columns, strict=True):
        take_column(builder, column, _converted(array, column, target), array)
    return assembled([builder.changes()], (), faults, target)


_BYTES = ("BIT", *BINARY)

_KINDS: Mapping[str, tuple[Callable[[pa.DataType], bool], Callable[[Column], bool]]] = {
    "text": (lambda kind: kind in (pa.string(), pa.large_string()), lambda column: column.type not in _BYTES),
    "bytes": (lambda kind: kind in (pa.binary(), pa.large_binary()), lambda column: True),
    "moment": (pa.types.is_timestamp, lambda column: column.type in ("DATETIME", "TIMESTAMP")),
    "date": (pa.types.is_date32, lambda column: column.type == "DATE"),
    "integer": (pa.types.is_integer, lambda column: column.type in (*INTEGER, "YEAR", "DECIMAL")),
    "decimal": (pa.types.is_decimal, lambda column: column.type in (*INTEGER, "DECIMAL")),
    "float": (pa.types.is_floating, lambda column: column.type in FLOATING),
}
"""Kind of a column in the file -> its Arrow types, and the columns of a table that it may be."""


def _converted(array: pa.Array, column: Column, target: Target) -> Values:
    kind = next((name for name, (fits, may_be) in _KINDS.items() if fits(array.type) and may_be(column)), "")
    if not kind:
        raise _strange(array.type, column, target)
    if column.type == "BIT":
        return bit_values(array.cast(pa.binary()), column)
    if kind in ("text", "bytes"):
        return values(array.cast(pa.binary()), column, timezone=target.options.timezone)  # nobody checked its UTF-8
    return _moments(array, column, target) if kind == "moment" else _numbers(array, column)


def _moments(array: pa.Array, column: Column, target: Target) -> Values:
    """A TIMESTAMP is an instant where the file says so, else in the zone of the sessions that read it."""
    if array.type.tz is not None and column.type == "DATETIME":
        raise _strange(array.type, column, target)
    if array.type.tz is not None:
        done = Values(array.cast(arrow_type(column)))
    else:
        done = finish(array.cast(wire_type(column)), column, timezone=target.options.timezone)
    rule = NULL_OR_ZERO_DATE if column.nullable else ZERO_DATE
    missing = array.is_null()
    return done._replace(notes={**done.notes, rule: missing}) if missing.true_count else done


def _numbers(array: pa.Array, column: Column) -> Values:
    """Numbers and dates go over as they are; one that the column cannot hold is bad."""
    lake = arrow_type(column)
    if not pa.types.is_string(lake):
        with suppress(pa.ArrowInvalid):
            return finish(array.cast(lake, safe=not pa.types.is_floating(lake)), column)
    return values(array.cast(pa.string()), column)


def _strange(kind: pa.DataType, column: Column, target: Target) -> MalformedData:
    return MalformedData(
        f'{target.path}: the column "{column.name}" is {kind} in the file, and {type_text(column)} in the schema file. '
        "The file is of another dump or another table than its schema file.",
        path=target.path,
        table=str(target.table),
        column=column.name,
    )
