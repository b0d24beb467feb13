"""Records of CSV -> rows. What Dumpling writes in its CSV and, between parentheses, in its INSERT statements.

pyarrow cuts whatever can be rewritten into a form that it reads; delimiters and backslashes are counted afterwards,
because a wrong option would give other texts without a word. Only where a count is off each record is looked at.

What CSV and SQL share. The columns of a file are found by their names, in a header, a column list or the schema; a dump
leaves out generated columns, so their number alone says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import MalformedData
from cdc_assets.formats.changes import SIX_DIGITS, ChangeBuilder, Faults, Images, apart_from_null, shape_of
from cdc_assets.formats.decoded import Decoded
from cdc_assets.formats.dialect import (
    Dialect,
    Plain,
    Rows,
    count_byte,
    cut_all,
    cut_each,
    fields,
    numbered,
    plainly,
    records,
    undone,
)
from cdc_assets.model.dumps import DumpOptions
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.types.families import BINARY, FLOATING, INTEGER
from cdc_assets.types.mysql_types import bit_values, finish, values, wire_type
from cdc_assets.types.mysql_values import Binary, Values, either

__all__ = [
    "Cutting",
    "Lot",
    "Target",
    "assembled",
    "bare_records",
    "columns_by_count",
    "columns_by_name",
    "cut_off",
    "decoded",
    "is_bytes",
    "is_quoted",
    "reading_type",
    "shown",
    "take_column",
]

_BYTES = (*BINARY, "BIT")
_BARE = (*INTEGER, *FLOATING, "DECIMAL")
_MANY = 100
"""From this many rows of which none fits, the options are wrong and not the rows."""


@dataclass(frozen=True)
class Target:
    """The target of a file's rows: rows of `schema` at the TSO `at`. `columns` are those the file has, in its order.

    None stands for one that is not in the lake. `offset` is asked for the lines before the split only when a message
    names one.
    """

    path: str
    table: TableId
    schema: TableSchema
    options: DumpOptions
    at: Tso
    columns: tuple[Column | None, ...]
    offset: Callable[[], int]

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The shape of what is decoded."""
        written = {column.name for column in self.columns if column is not None}
        return shape_of(column for column in self.schema.columns if column.name in written)

    def error(self, message: str, line: int) -> MalformedData:
        """Return the error of a file that cannot be trusted; `{line}` in the message is the line in the file."""
        number = line + self.offset()
        return MalformedData(message.replace("{line}", str(number)), path=self.path, line=number, table=str(self.table))


def cut_off(path: str, data: bytes, line: int, doubt: str = "") -> MalformedData:
    """Return the error of a file whose last record does not end; `doubt` is another sentence on why."""
    return MalformedData(
        f"{path} line {line} is the last one and does not end: the file was cut off while it was written or copied, "
        f"and nobody knows what else is missing. Dump the table again.{doubt} The line is: {shown(data)}",
        path=path,
        line=line,
    )


def shown(raw: bytes) -> str:
    """Return the beginning of a record for a message."""
    text = raw[:160].decode("utf-8", "replace")
    return f"{text}…" if len(raw) > 160 else text


def is_bytes(column: Column) -> bool:
    """Return whether Dumpling writes the column as bytes: BIT too."""
    return column.type in _BYTES


def is_quoted(column: Column) -> bool:
    """Return whether Dumpling quotes the column's values: all but numbers, YEAR too."""
    return column.type not in _BARE


def reading_type(column: Column) -> pa.DataType:
    """Return the type into which Arrow's CSV reader may convert the column's texts."""
    return pa.binary() if is_bytes(column) else wire_type(column)


# --- which columns a file has -----------------------------------------------------------------------------------------


def columns_by_name(names: Sequence[str], schema: TableSchema, path: str, line: int) -> tuple[Column | None, ...]:
    """Return the columns that a header or a column list names. Raises MalformedData where they are not the table's.

    A virtual column is not in the lake. All that the table stores has to be there but for generated columns.
    """
    exact = {column.name: column for column in schema.columns}
    loose = {column.name.lower(): column for column in schema.columns}
    columns = [exact.get(name) or loose.get(name.lower()) for name in names]
    foreign = [name for name, column in zip(names, columns, strict=True) if column is None]
    named = [column.name for column in columns if column is not None]
    lacking = [column.name for column in schema.stored if not column.generated and column.name not in named]
    twice = [name for name, count in Counter(named).items() if count > 1]
    problem = (
        f'names the column "{foreign[0][:80]}"'
        if foreign
        else f'names the column "{twice[0]}" twice'
        if twice
        else f'lacks the column "{lacking[0]}"'
        if lacking
        else ""
    )
    if problem:
        have = ", ".join(column.name for column in schema.columns)
        raise MalformedData(
            f"{path} line {line} {problem}; the table's schema file has {have}. The file is of another dump or another "
            "table than its schema file, or is read with other CSV options than it was written with.",
            path=path,
            line=line,
        )
    return tuple(None if column is None or column.virtual else column for column in columns)


def columns_by_count(count: int, schema: TableSchema) -> tuple[Column | None, ...] | None:
    """Return the columns of a file that does not name them, by the schema's order; None where no reading has so many.

    Dumpling leaves generated columns out, or takes the stored ones along where it is configured to.
    """
    own = tuple(column for column in schema.columns if not column.virtual and not column.generated)
    return next((some for some in (own, schema.stored) if len(some) == count), None)


# --- values -----------------------------------------------------------------------------------------------------------


Part = tuple[pa.Table, Mapping[tuple[str, str], int]]
"""Changes, and notes of them."""


def rows_of(arrays: Sequence[pa.Array], lines: pa.Int64Array, cutting: Cutting, faults: Faults) -> Part:
    """Return the rows of one batch: an array of texts, or of `reading_type`, for each column of the file."""
    target = cutting.target
    builder = ChangeBuilder(Images.inserted(lines.to_numpy(), target.at), target.schema, faults)
    for column, array in zip(target.columns, arrays, strict=True):
        if column is not None:
            null = cutting.dialect.null_text if is_quoted(column) else None
            texts, note = apart_from_null(array, column, target.schema, null)
            take_column(builder, column, _converted(texts, column, target.options, cutting.binary), texts, note)
    return builder.changes()


def take_column(
    builder: ChangeBuilder,
    column: Column,
    values: Values,
    sent: pa.Array,
    notes: Mapping[str, pa.BooleanArray] = MappingProxyType({}),
) -> None:
    """Add the values of a column to the changes, with a note on digits that a dump has lost."""
    rounded = _rounded(values.array) if column.type == "FLOAT" else None
    lost = rounded is not None and rounded.true_count
    builder.add(column, values, sent, {**notes, SIX_DIGITS: rounded} if lost else notes)


def _rounded(floats: pa.FloatArray) -> pa.BooleanArray:
    """The server prints a FLOAT with an exponent from 1e15 on and below 1e-15, and with six digits then."""
    size = pc.abs(floats)
    small = pc.and_(pc.less(size, 1e-15), pc.not_equal(size, 0))
    return pc.or_(small, pc.greater_equal(size, 1e15)).fill_null(False)


def _converted(texts: pa.Array, column: Column, options: DumpOptions, binary: Binary) -> Values:
    if column.type == "BIT":
        read = values(texts, _AS_BLOB, binary=binary)
        done = bit_values(read.array, column)
        return done._replace(bad=either(read.bad, done.bad))
    if pa.types.is_binary(texts.type):
        return values(texts, column, timezone=options.timezone, binary=binary)
    return finish(texts, column, timezone=options.timezone)


_AS_BLOB = Column("", "BLOB")


# --- what comes out ---------------------------------------------------------------------------------------------------


def assembled(parts: Sequence[Part], broken: Iterable[tuple[int, str]], faults: Faults, target: Target) -> Decoded:
    """Return one block. `broken` are (line, what is wrong) of records that could not be cut.

    Raises MalformedData where no record of the block can be cut, or not one row of many fits: the file is read in a
    wrong way.
    """
    uneven = list(broken)
    for line, reason in uneven:
        faults.add(line, reason, "", target.at)
    changes = pa.concat_tables([changes for changes, _ in parts] or [target.arrow_schema.empty_table()])
    notes = Counter[tuple[str, str]]()
    for _, counts in parts:
        notes.update(counts)
    rejects = faults.in_order()
    if not rejects:
        return Decoded(changes, (), None, notes)
    if changes.num_rows == 0 and (len(uneven) == len(rejects) or len(rejects) >= _MANY):
        first = rejects[0]
        where = f', column "{first.column}"' if first.column else ""
        raise target.error(
            f"{target.path} line {{line}}{where}: {first.reason}. No row fits: the file is read with other options "
            f"than it was written with, or belongs to another table. The row is: {shown(first.raw)}",
            first.line,
        )
    offset = target.offset()
    return Decoded(changes, tuple(replace(reject, line=reject.line + offset) for reject in rejects), None, notes)


# --- records of CSV ---------------------------------------------------------------------------------------------------


_SAMPLE = 20


@dataclass(frozen=True)
class Cutting:
    """Rules for cutting and reading the records of a file. `advice` describes the settings used, and what to change."""

    target: Target
    dialect: Dialect
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


def bare_records(data: bytes, dialect: Dialect) -> Iterator[bytes]:
    """Yield records without LF or CRLF."""
    return (record.removesuffix(b"\r") for record in records(data, dialect))


def decoded(lot: Lot, cutting: Cutting) -> tuple[Decoded, int]:
    """Return the rows of a lot and how many records it has."""
    target = cutting.target
    faults = Faults.of_file(target.path, lot.numbered_raws)
    if not target.columns:
        count = lot.data.count(b"\n")
        lines = lot.lines(pa.array(range(count), pa.int64()))
        return assembled([rows_of((), lines, cutting, faults)], (), faults, target), count
    # With backslash escapes neither NUL nor CR is raw in a row.
    if cutting.dialect.escapes:
        ends = count_byte(lot.data, b"\n") if lot.data.endswith(b"\r\n") else 0
        for raw, name, expected in ((b"\0", "NUL", 0), (b"\r", "CR", ends)):
            if count_byte(lot.data, raw) <= expected:
                continue
            for number, record in enumerate(bare_records(lot.data, cutting.dialect)):
                if raw in record:  # an end may be LF and another CRLF, in a file that somebody edited
                    raise cutting.error(f" has a {name} that is not escaped", record, lot.line(number))
    rows, parts = _rows(lot, cutting), list[Part]()
    for batch, numbers in numbered(rows):
        arrays = [undone(array, rows.undo) for array in batch.columns]
        parts.append(rows_of(arrays, lot.lines(numbers), cutting, faults))
    broken = ((lot.line(number), reason) for number, reason in rows.broken)
    return assembled(parts, broken, faults, target), len(rows.lines) + len(rows.broken)


def _rows(lot: Lot, cutting: Cutting) -> Rows:
    """Read the rows, converted where all values fit, else as bytes; refuse what the options cannot have written."""
    data, dialect, columns = lot.data, cutting.dialect, cutting.target.columns
    types = (pa.binary() if column is None else reading_type(column) for column in columns)
    kinds = {f"#{place}": kind for place, kind in enumerate(types)}
    plain = plainly(data, dialect)
    rows = None if plain is None else cut_all(plain, kinds)
    if plain is None or rows is None:
        rows = cut_each(bare_records(data, dialect), partial(_values, dialect=dialect), list(kinds))
        _check_each(lot, rows, cutting)
    elif _is_doubtful(rows, plain, data, cutting):
        _check_each(lot, rows, cutting)
    return rows


def _values(record: bytes, dialect: Dialect) -> list[bytes | None]:
    return [value for value, _ in fields(record, dialect)]


def _is_doubtful(rows: Rows, plain: Plain, data: bytes, cutting: Cutting) -> bool:
    """Count the lines and the delimiters: there are as many as the values have to have."""
    if cutting.dialect.escapes and len(rows.lines) != count_byte(data, b"\n"):
        return True
    if not plain.quote:
        return False
    quote, expected = str(plain.quote), 0
    # The columns whose values are quoted are all but numbers, and what the first records quote.
    columns = cutting.target.columns
    places = {place for place, column in enumerate(columns) if column is not None and is_quoted(column)}
    with suppress(ValueError):
        for record in islice(bare_records(data, cutting.dialect), _SAMPLE):
            places.update(place for place, (_, quoted) in enumerate(fields(record, cutting.dialect)) if quoted)
    for place in places:
        for batch in rows.batches:
            array = batch.column(place)
            expected += 2 * (len(array) - array.null_count)
            if plain.doubled and (pa.types.is_string(array.type) or pa.types.is_binary(array.type)):
                expected += 2 * (pc.sum(pc.count_substring(array, quote)).as_py() or 0)
    return count_byte(plain.data, quote.encode()) != expected


def _check_each(lot: Lot, rows: Rows, cutting: Cutting) -> None:
    """Refuse the first record that the options cannot have written: a bare text, a backslash that escapes nothing.

    Records that are broken anyway are reported one by one, unless a backslash says why.
    """
    broken = {number for number, _ in rows.broken}
    for number, record in enumerate(bare_records(lot.data, cutting.dialect)):
        try:
            record_fields = fields(record, cutting.dialect)
        except ValueError as problem:
            if number in broken and "backslash" not in str(problem):
                continue
            raise cutting.error(f" has {problem}", record, lot.line(number)) from None
        for (value, quoted), column in zip(record_fields, cutting.target.columns, strict=False):
            if cutting.dialect.quote and value is not None and not quoted and column is not None and is_quoted(column):
                reason = f', column "{column.name}": "{shown(value)}" is neither in delimiters nor the null-value'
                raise cutting.error(reason, record, lot.line(number))
