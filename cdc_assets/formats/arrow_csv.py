"""pyarrow's CSV reader with the numbers of the records, for every format that can be brought into a form it reads.

pyarrow knows one delimiter byte, one quote byte or none, quotes that are doubled or nothing, and LF or CRLF. What a
format has beyond that is rewritten before (`Plain`) and undone in the values afterwards (`Rows.undo`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from cdc_assets.errors import MalformedData

__all__ = ["Plain", "Rows", "Undo", "numbered", "one_by_one", "read_plain", "undone"]

_BLOCK_BYTES = 8 << 20
_CARELESS_ROWS = 1 << 16

Undo = Sequence[tuple[bytes, bytes]]
"""(stand-in, what it stands for), to be undone in this order in every value that is text."""


class Rows(NamedTuple):
    """Records as batches of columns, `lines` their numbers from 0 in the same order.

    `broken` holds (number from 0, what is wrong) of records that are not in the batches; `undo` is still to be done.
    """

    batches: list[pa.RecordBatch]
    lines: pa.Int64Array
    broken: list[tuple[int, str]]
    undo: Undo


class Plain(NamedTuple):
    """Bytes that pyarrow can cut. `doubled` tells whether a quote inside a value is written twice."""

    data: pa.Buffer
    delimiter: str
    quote: str | bool
    null: str
    undo: Undo
    doubled: bool = True


def read_plain(plain: Plain, names: Sequence[str], types: Mapping[str, pa.DataType]) -> Rows:
    """Cut whole records into the columns of `types`, a selection of `names`.

    Types other than binary are converted while reading: raises ArrowInvalid when a value does not fit, and the caller
    reads again as binary. Raises MalformedData for a record that is too big for one block.
    """
    uneven: list[tuple[int, int]] = []

    def note(row: pacsv.InvalidRow) -> str:
        uneven.append((row.number, row.actual_columns))
        return "skip"

    table = _read(plain, names, types, note, threads=True)
    if uneven:  # only a reader without threads knows the numbers of the rows that it skips
        uneven.clear()
        table = _read(plain, names, types, note, threads=False)
    skipped = {number - 1 for number, _ in uneven}
    lines = _count(table.num_rows + len(skipped))
    if skipped:
        lines = lines.filter(pc.invert(pc.is_in(lines, value_set=pa.array(sorted(skipped), pa.int64()))))
    broken = [(number - 1, _uneven(found, len(names))) for number, found in uneven]
    return Rows(table.to_batches(), lines, broken, plain.undo)


def _uneven(found: int, expected: int) -> str:
    return f"{found} field{'s' * (found != 1)} where {expected} are expected"


def _count(size: int) -> pa.Int64Array:
    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), size), start=-1)


def _read(
    plain: Plain, names: Sequence[str], types: Mapping[str, pa.DataType], note: object, *, threads: bool
) -> pa.Table:
    block = _BLOCK_BYTES
    while True:
        try:
            return pacsv.read_csv(
                pa.BufferReader(plain.data),
                pacsv.ReadOptions(column_names=list(names), block_size=block, use_threads=threads),
                pacsv.ParseOptions(
                    delimiter=plain.delimiter,
                    quote_char=plain.quote,
                    double_quote=plain.doubled,
                    escape_char=False,
                    newlines_in_values=bool(plain.quote),
                    ignore_empty_lines=False,
                    invalid_row_handler=note,
                ),
                pacsv.ConvertOptions(
                    column_types=types,
                    include_columns=list(types),
                    null_values=[plain.null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error):
                raise
            if block >= min(plain.data.size, (1 << 31) - 1):
                raise MalformedData(f"a record of more than {block} bytes cannot be read") from error
            block = min(plain.data.size, (1 << 31) - 1)


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
                raise ValueError(_uneven(len(row), len(names)))
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
    if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
        for stand_in, meant in undo:
            array = pc.replace_substring(array, stand_in.decode(), meant.decode())
    return array
