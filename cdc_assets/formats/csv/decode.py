"""TiCDC's CSV: bytes of a data file -> changes, whatever the options of `[sink.csv]` are.

    op, table, schema, [commit-ts], [is-update], [handle-key], data columns in table order

pyarrow converts the values while it reads; only when one does not fit is the file read again as bytes, so that
`mysql_types.values` can say which. Which columns a row has is said by the options and the schema. Nothing in a file
says it unless it has a header; a first record that contradicts them is met with a sentence that names the setting which
would explain it. Line numbers are record numbers: a record over several lines counts once, a header
counts.

TiCDC quotes every string and prints numbers, booleans and NULL bare; a quote inside is doubled, everything else is raw,
so records may span lines. Without quotes it escapes backslash, CR, LF and each byte of a whole delimiter instead; then
markers may look like structure and texts may meet the delimiter: a record that can be read in several ways is refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import BadSettings, MalformedData
from cdc_assets.formats.changes import ChangeBuilder, Faults, Images, apart_from_null, shape_of
from cdc_assets.formats.csv.options import CsvOptions
from cdc_assets.formats.decoded import NOT_WRITTEN, Decoded, Op
from cdc_assets.formats.dialect import (
    MOST_BYTES,
    Dialect,
    Rows,
    Undo,
    cut_all,
    cut_each,
    fields,
    leading,
    numbered,
    overlaps_itself,
    plainly,
    records,
    records_end,
    undone,
)
from cdc_assets.model.reports import Reject
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.table_filter import hidden_columns
from cdc_assets.model.wording import counted
from cdc_assets.types.mysql_types import finish, values, wire_type
from cdc_assets.types.mysql_values import Binary, Values

__all__ = [
    "EXTENSION",
    "FILE_EXPANSION",
    "commit_stamps",
    "decode",
    "raw_records",
    "record_beginning",
    "record_identity",
    "row_columns",
]

EXTENSION = ".csv"

FILE_EXPANSION = 1
"""Bytes in a file for one in memory."""

BOM_SKIPPED = "a byte-order mark was skipped; TiCDC writes none, so the file was changed after it"
_BOM = b"\xef\xbb\xbf"
_BLOCK_BYTES = 8 << 20
_OPS = {b"I": Op.INSERT, b"U": Op.UPDATE, b"D": Op.DELETE}
_COMMIT_TS = Column("commit-ts", "BIGINT", nullable=False)
_WORDS = pa.dictionary(pa.int32(), pa.binary())
_OWN_TYPES = {"commit-ts": pa.int64(), "handle-key": pa.binary()}


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
        """Return a copy of the columns without TiCDC's own column `name`."""
        return RowColumns(tuple(column for column in self.meta if column != name), self.columns, self.absent)


@dataclass(frozen=True, slots=True)
class _CsvFile:
    """Facts known before the first row is read. Rows stand between `start` and `end`; `first` is their first line."""

    data: bytes
    path: str
    table: TableId
    schema: TableSchema
    options: CsvOptions
    dialect: Dialect
    columns: RowColumns
    first: int
    start: int
    end: int

    def error(self, message: str, line: int) -> MalformedData:
        return MalformedData(message, path=self.path, line=line, table=str(self.table))


def decode(data: bytes, path: str, table: TableId, schema: TableSchema, options: CsvOptions) -> Decoded:
    """Return the changes of a CSV file.

    Columns hidden by a column selector, virtual ones, and those that the file's header does not name are absent from
    `changes`. A row that does not fit is a Reject with the record's exact bytes, without terminator; `tail` is a last
    record without terminator. Key columns are never changed by a lossy rule of the type table: such a row is a Reject.

    Raises MalformedData when the bytes contradict the options (quote, delimiter, terminator, header, optional columns),
    when every row has another number of fields than the schema promises, and when a row names another table;
    BadSettings for options that TiCDC itself refuses.
    """
    notes = Counter({("", BOM_SKIPPED): 1} if data.startswith(_BOM) else {})
    file = _opened(data, path, table, schema, options)
    for column in file.columns.absent:
        notes[column.name, NOT_WRITTEN] += 1
    if file.start == file.end:
        no_rows = shape_of(column for column in schema.columns if column in file.columns.columns).empty_table()
        return Decoded(no_rows, (), _tail(file, 0), notes)
    file = _with_handle_key_settled(file)
    blocks, parts = _rows(file), list[pa.Table]()
    faults = Faults.of_file(path, lambda: enumerate(records(data, file.dialect, file.start, file.end), file.first))
    for rows in blocks:
        for batch, numbers in numbered(rows):
            changes, counts = _part(batch, numbers, rows.undo, file, faults)
            parts.append(changes)
            notes.update(counts)
        for number, reason in rows.broken:
            faults.add(number + file.first, reason)
    _refuse_cut_texts(file, faults)
    total = sum(len(rows.lines) + len(rows.broken) for rows in blocks)
    rejects = (
        replace(reject, commit_ts=reject.commit_ts or _commit_ts(reject.raw, file)) for reject in faults.in_order()
    )
    return Decoded(pa.concat_tables(parts), tuple(rejects), _tail(file, total), notes)


def raw_records(data: bytes, lines: Collection[int] | None, options: CsvOptions) -> dict[int, bytes]:
    """Return the bytes of the records with these numbers (None: all), without terminator; a header is number 1."""
    syntax = dialect(options)
    start, first = _first_record(data, syntax, options)
    numbered = enumerate(records(data, syntax, start, records_end(data, syntax, start)), first)
    return {line: raw for line, raw in numbered if lines is None or line in lines}


def commit_stamps(data: bytes, options: CsvOptions) -> list[int | None]:
    """Return the commit-ts of each record, whatever its columns are; None where it cannot be read, or the end is."""
    syntax = dialect(options)
    start, _ = _first_record(data, syntax, options)
    end = records_end(data, syntax, start)
    stamps = [_stamp(raw, syntax) if options.include_commit_ts else None for raw in records(data, syntax, start, end)]
    return [*stamps, *([None] if end < len(data) else [])]


def _first_record(data: bytes, syntax: Dialect, options: CsvOptions) -> tuple[int, int]:
    """Return the start of the first record, and its number."""
    start = len(_BOM) if data.startswith(_BOM) else 0
    if options.output_field_header and (cut := data.find(syntax.terminator, start)) >= 0:
        return cut + len(syntax.terminator), 2
    return start, 1


def record_beginning(raw: bytes) -> bytes:
    """Return the record itself: it is written alike each time."""
    return raw


def record_identity(raw: bytes) -> object:
    """Return the record itself: it is written alike each time."""
    return raw


# --- before the first row ---------------------------------------------------------------------------------------------


def _opened(data: bytes, path: str, table: TableId, schema: TableSchema, options: CsvOptions) -> _CsvFile:
    syntax = dialect(options)
    start = len(_BOM) if data.startswith(_BOM) else 0
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise MalformedData(
            f"{path} starts with the mark of UTF-16; TiCDC writes UTF-8. Restore the original file.", path=path
        )
    columns, first = row_columns(options, table, schema), 1
    if options.output_field_header and start < len(data):
        names = syntax.delimiter.join(column.name.encode() for column in columns.columns)
        at = data.find(names + syntax.terminator, start)  # a column's name may hold the terminator
        cut = data.find(syntax.terminator, start) if at < 0 else at + len(names)
        if cut < 0:
            return _CsvFile(data, path, table, schema, options, syntax, columns, 1, start, start)
        columns = columns_of_header(data[start:cut], syntax, columns, schema, path)
        first, start = 2, cut + len(syntax.terminator)
    file = _CsvFile(data, path, table, schema, options, syntax, columns, first, start, records_end(data, syntax, start))
    head, quote = file.data[file.start : file.start + 40].partition(b"\n")[0].rstrip(b"\r"), file.dialect.quote
    if head and not (head.startswith(quote) if quote else head[:1] in _OPS):
        if head.startswith(b"ticdc-meta$"):
            raise file.error(
                f"{file.path} starts with a header line. Set output-field-header under [sink.csv] of the changefeed "
                "TOML.",
                file.first,
            )
        expected = f"the quote {quote.decode()}" if quote else "I, U or D without quotes"
        raise file.error(
            f'{file.path} line {file.first} starts with "{_shown(head)}" where {expected} is expected. '
            f"The file was read with quote {quote.decode()!r}; if the changefeed has another, set it under "
            "[sink.csv] of the changefeed TOML.",
            file.first,
        )
    _check_terminator(file)
    return file


def row_columns(options: CsvOptions, table: TableId, schema: TableSchema) -> RowColumns:
    """Return the columns that the options and the schema promise."""
    names = (column.name for column in schema.stored)
    hidden = hidden_columns(options.column_selectors, (table.schema, table.table), names)
    has_flag = options.output_old_value and options.output_is_update
    optional = {"commit-ts": options.include_commit_ts, "is-update": has_flag, "handle-key": options.output_handle_key}
    return RowColumns(
        ("op", "table", "schema", *(name for name, is_present in optional.items() if is_present)),
        tuple(column for column in schema.stored if column.name not in hidden),
    )


def _check_terminator(file: _CsvFile) -> None:
    """Refuse a file whose records end otherwise: CR LF are only in quoted values, and LF is the end of CRLF too."""
    expected = file.dialect.terminator
    rest = file.data[file.end :]
    if expected == b"\n" and file.data[file.start : file.end].endswith(b"\r\n"):
        line_end = "CRLF"
    elif expected != b"\n" and next(records(rest, replace(file.dialect, terminator=b"\n")), None) is not None:
        line_end = "LF"
    else:
        return
    raise file.error(
        f"{file.path} ends its records with {line_end}, and terminator {expected.decode()!r} was expected. "
        "Set terminator under [sink] of the changefeed TOML as the changefeed has it; TiCDC's default is CRLF.",
        file.first,
    )


def _with_handle_key_settled(file: _CsvFile) -> _CsvFile:
    """The new architecture takes output-handle-key and writes no such column: find out which writer it was.

    A header and the number of fields show it. Without a header a virtual column may be missing in its place; then the
    fourth or later field has to look unlike a handle: bare, or neither an integer nor in braces.
    """
    without = file.columns.without("handle-key")
    if "handle-key" not in file.columns.meta or len(_first(file)) != without.size:
        return file
    if not file.options.output_field_header:
        record = next(records(file.data, file.dialect, file.start, file.end))
        first_fields, _ = leading(record, file.dialect, len(without.meta) + 1)
        text = first_fields[-1] or b""
        bare = file.dialect.quote and not record[leading(record, file.dialect, len(without.meta))[1] :].startswith(
            file.dialect.quote
        )
        if not bare and (text.startswith(b"{") or text.lstrip(b"-").isdigit()):
            raise file.error(
                f"{file.path} line {file.first} has one field less than output-handle-key and the schema promise: the "
                "handle key or a virtual generated column may be missing. The new architecture never writes the handle "
                "key: take the option out for it, or turn output-field-header on.",
                file.first,
            )
    return replace(file, columns=without)


def _first(file: _CsvFile) -> list[bytes | None]:
    record = next(records(file.data, file.dialect, file.start, file.end))
    try:
        return [value for value, _ in fields(record, file.dialect)]
    except ValueError:
        return [*record.split(file.dialect.delimiter)]


# --- how records are cut ----------------------------------------------------------------------------------------------


def dialect(options: CsvOptions) -> Dialect:
    """Return the options as bytes. Raises BadSettings for what TiCDC itself refuses, or what cannot be read back."""
    if options.complaint:
        raise BadSettings(f"{options.complaint}. Give the changefeed TOML exactly as TiCDC has it.")
    delimiter, quote = options.delimiter.encode(), options.quote.encode()
    escapes = {} if quote else _escapes(delimiter)
    return Dialect(delimiter, quote, options.null.encode(), options.terminator.encode(), escapes)


def _escapes(delimiter: bytes) -> dict[bytes, bytes]:
    """TiCDC writes a backslash before each byte of a delimiter, and each byte as a rune: those above 127 take two."""
    runes = b"".join(b"\\" + chr(byte).encode() for byte in delimiter)
    plain = b"".join(b"\\" + delimiter[at : at + 1] for at in range(len(delimiter)))
    return {b"\\\\": b"\\", runes: delimiter, plain: delimiter, b"\\r": b"\r", b"\\n": b"\n"}


def _blocks(data: bytes, start: int, end: int, syntax: Dialect) -> Iterator[tuple[int, int]]:
    """Yield the offsets of pieces of about `_BLOCK_BYTES` that end where a record ends, whatever a text may hold."""
    size = end - start if overlaps_itself(syntax.terminator) else _BLOCK_BYTES
    while start < end:
        stop = end if end - start <= size else records_end(data, syntax, start, start + size)
        if stop - start > MOST_BYTES or (stop == start and size > MOST_BYTES):
            raise MalformedData(f"a record of more than {MOST_BYTES} bytes cannot be read")
        if stop == start:
            size *= 2
            continue
        yield start, stop
        start = stop


def _row(record: bytes, syntax: Dialect, size: int) -> list[bytes | None]:
    """Return the fields of a record that has so many. Raises ValueError that says what is wrong."""
    if not syntax.quote:
        readings = _readings(record, syntax, size)
        if len(readings) > 1:
            raise ValueError(f'it can be read in several ways: texts meet the delimiter "{syntax.delimiter.decode()}"')
        if readings:
            return [None if written == syntax.null else syntax.unescaped(written) for written in readings[0]]
    field_pairs = fields(record, syntax)
    if len(field_pairs) == size and not syntax.quote:
        raise ValueError("its fields are not as TiCDC writes them")
    for number, (value, quoted) in enumerate(field_pairs, 1):
        if value and not quoted and syntax.quote and syntax.quote in value:
            raise ValueError(f"field {number} has a quote within")
    return [value for value, _ in field_pairs]


def _readings(record: bytes, syntax: Dialect, size: int) -> list[list[bytes]]:
    """Return up to two ways to cut a record without quotes into so many fields, each as TiCDC writes one."""
    readings: dict[int, list[list[bytes]]] = {0: [[]]}
    for number in range(size):
        longer: dict[int, list[list[bytes]]] = {}
        for at, rows in readings.items():
            for stop in _stops(record, syntax, at, last=number == size - 1):
                ways = longer.setdefault(stop + len(syntax.delimiter), [])
                ways += [[*row, record[at:stop]] for row in rows][: 2 - len(ways)]
        readings = longer
    return next(iter(readings.values()), [])


@cache
def _text_pattern(syntax: Dialect) -> re.Pattern[bytes]:
    """Return the pattern of a text that TiCDC writes without quotes, which holds no unescaped delimiter."""
    escapes = b"|".join(map(re.escape, syntax.escapes))
    return re.compile(rb"(?:%b|(?!%b)[^\\\r\n])*" % (escapes, re.escape(syntax.delimiter)), re.DOTALL)


def _stops(record: bytes, syntax: Dialect, at: int, *, last: bool) -> set[int]:
    """Return the possible ends of the field at an offset: the record's if it is the `last`, else before a delimiter."""
    text = _text_pattern(syntax)
    written = text.match(record, at)
    plain = written.end() if written is not None else at
    # A text may end with a part of a delimiter, so the next one may begin later than where one can be seen.
    near = range(plain, min(plain + len(syntax.delimiter), len(record) + 1))
    stops = {stop for stop in near if text.fullmatch(record[at:stop])}
    if record.startswith(syntax.null, at):
        stops.add(at + len(syntax.null))
    return stops & {len(record)} if last else {stop for stop in stops if record.startswith(syntax.delimiter, stop)}


# --- rows -------------------------------------------------------------------------------------------------------------


def _rows(file: _CsvFile) -> list[Rows]:
    """Read the rows, converted where all values of a block fit, else as bytes."""
    own = {name: _OWN_TYPES.get(name, _WORDS) for name in file.columns.meta}
    kinds = {f"#{place}": wire_type(column) for place, column in enumerate(file.columns.columns)}
    syntax = file.dialect
    types = {**own, **kinds}
    # Values are converted while reading; a block with one that does not fit comes as binary.
    blocks: list[Rows] = []
    total = 0
    for begin, stop in _blocks(file.data, file.start, file.end, syntax):
        block = memoryview(file.data)[begin:stop]
        plain = plainly(block, syntax)
        rows = None if plain is None else cut_all(plain, types)
        if rows is None:
            rows = cut_each(records(bytes(block), syntax), partial(_row, syntax=syntax, size=len(types)), list(types))
        lines = pc.add(rows.lines, pa.scalar(total, pa.int64()))
        blocks.append(rows._replace(lines=lines, broken=[(number + total, reason) for number, reason in rows.broken]))
        total += len(rows.lines) + len(rows.broken)
    if not any(len(rows.lines) for rows in blocks):
        first, reason = _first(file), blocks[0].broken[0][1]
        uneven = len(first) != file.columns.size
        message = explain(first, file.dialect, file.columns, file.options, file.path)
        raise file.error(message if uneven else f"{file.path} line {file.first}: {reason}", file.first)
    return blocks


def _part(
    batch: pa.RecordBatch, numbers: pa.Int64Array, undo: Undo, file: _CsvFile, faults: Faults
) -> tuple[pa.Table, Counter[tuple[str, str]]]:
    """Return the changes of a batch, and notes of them."""
    ops, stamps = _ops(batch, numbers, file), _commit_stamps(batch)
    # A file with rows of another table is refused; where the operation does not fit either, the row is just
    # broken.
    for name, expected in (("schema", file.table.schema), ("table", file.table.table)):
        words = _words(batch.column(name))
        other = [_restored(word, undo) != expected.encode() for word in words.dictionary.to_pylist()]
        if not any(other) and not words.null_count:
            continue
        strange = pc.and_(pa.array(other, pa.bool_()).take(words.indices).fill_null(True), pc.is_valid(ops))
        row = pc.index(strange, True).as_py()
        if row >= 0:
            line = numbers[row].as_py() + file.first
            named = _shown(_restored(words[row].as_py() or b"", undo))
            raise file.error(
                f'{file.path} line {line} names the {name} "{named}" where {file.table} is expected: it is a file of '
                "another table, or its columns are others than the options say. Put the file back where TiCDC wrote "
                "it, or correct [sink.csv] of the changefeed TOML.",
                line,
            )
    images = Images.alone(numbers.to_numpy() + file.first, ops.fill_null(0).to_numpy(), stamps)
    if ops.null_count:
        reason = "is not an operation; I, U or D is expected"
        faults.mark_sent(ops.is_null(), images, batch.column("op"), reason)
    if "commit-ts" in file.columns.meta:
        faults.mark_sent(stamps < 0, images, batch.column("commit-ts"), "is not a commit-ts")
    if "is-update" in file.columns.meta:
        wrong = _wrong_flags(batch, file)
        reason = "is not an is-update flag; true or false is expected"
        faults.mark_sent(wrong, images, batch.column("is-update"), reason)
    builder = ChangeBuilder(images, file.schema, faults)
    for place, column in enumerate(file.columns.columns):
        null = file.dialect.null_text if wire_type(column) in (pa.string(), pa.binary()) else None
        texts, note = apart_from_null(undone(batch.column(f"#{place}"), undo), column, file.schema, null)
        builder.add(column, _converted(texts, column, file.options), texts, note)
    return builder.changes()


def _ops(batch: pa.RecordBatch, numbers: pa.Int64Array, file: _CsvFile) -> pa.Int8Array:
    words = _words(batch.column("op"))
    codes = pa.array([_OPS.get(word) for word in words.dictionary.to_pylist()], pa.int8())
    ops = pa.repeat(codes[0], len(words)) if len(codes) == 1 and not words.null_count else codes.take(words.indices)
    if ops.null_count == len(ops):
        line = numbers[0].as_py() + file.first
        raise file.error(
            f'{file.path} line {line} has the operation "{_shown(words[0].as_py())}" where I, U or D is expected. '
            f'The file was read with delimiter "{file.options.delimiter}" and quote {file.options.quote!r}. '
            "If the changefeed uses others, set them under [sink.csv] of the changefeed TOML.",
            line,
        )
    return ops


def _words(array: pa.Array) -> pa.DictionaryArray:
    return array if pa.types.is_dictionary(array.type) else array.dictionary_encode()


def _shown(raw: bytes | None) -> str:
    return "" if raw is None else raw[:80].decode("utf-8", "replace")


def _restored(word: bytes, undo: Undo) -> bytes:
    for stand_in, meant in undo:
        word = word.replace(stand_in, meant)
    return word


def _commit_stamps(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Return the commit-ts of rows, -1 for none and for what is no commit-ts."""
    if "commit-ts" not in batch.schema.names:
        return np.full(batch.num_rows, -1)
    texts = batch.column("commit-ts")
    stamps = texts if pa.types.is_int64(texts.type) else values(texts, _COMMIT_TS).array
    numbers: npt.NDArray[np.int64] = stamps.fill_null(-1).to_numpy()
    return numbers


def _wrong_flags(batch: pa.RecordBatch, file: _CsvFile) -> pa.BooleanArray:
    words = _words(batch.column("is-update"))
    wrong = pa.array([word not in (b"true", b"false") for word in words.dictionary.to_pylist()], pa.bool_())
    wrong = wrong.take(words.indices).fill_null(True)
    if wrong.true_count == len(wrong):
        raise file.error(explain(_first(file), file.dialect, file.columns, file.options, file.path), file.first)
    return wrong


def _converted(texts: pa.Array, column: Column, options: CsvOptions) -> Values:
    if pa.types.is_binary(texts.type):
        method = cast("Binary", options.binary_encoding_method)
        return values(texts, column, timezone=options.timezone, binary=method)
    return finish(texts, column, timezone=options.timezone)


# --- what comes out ---------------------------------------------------------------------------------------------------


def _refuse_cut_texts(file: _CsvFile, faults: Faults) -> None:
    """Raise MalformedData where a terminator may stand in a text: what is before it looks like a whole row.

    Without quotes CR and LF are escaped, and other terminators are not.
    """
    if file.dialect.quote or set(file.dialect.terminator) & set(b"\r\n"):
        return
    _, *broken, rest = file.data[file.start : file.end].split(file.dialect.terminator)
    if rest:
        faults.add(file.first + len(broken) + 1, f"it is {rest!r}, part of a terminator")
    if faults.rejects:
        line = min(faults.rejects)
        raise file.error(
            f"{file.path} record {line}: {faults.rejects[line].reason}. Without quotes the terminator "
            f"{file.options.terminator!r} is not escaped, so a text that holds it is cut, and the row before this "
            "record may be the first part of one. Let the changefeed write with a quote, or with CR and LF at the end.",
            line,
        )


def _tail(file: _CsvFile, total: int) -> Reject | None:
    raw = file.data[file.end :]
    if not raw:
        return None
    reason = "the last record has no terminator after it: the file was cut off, or is still being written"
    return Reject(file.path, file.first + total, reason, raw, commit_ts=_least_commit_ts(raw, file))


def _least_commit_ts(raw: bytes, file: _CsvFile) -> int | None:
    """Return the commit-ts of a record that was cut off, or the least that it can be where its last digits are gone.

    A TSO of our time has 18 digits.
    """
    commit_ts = _commit_ts(raw, file)
    if commit_ts is not None or "commit-ts" not in file.columns.meta:
        return commit_ts
    first_fields, at = leading(raw, file.dialect, 3)
    rest = raw[at:]
    return _tso(rest.ljust(18, b"0")) if len(first_fields) == 3 and rest else None


def _commit_ts(raw: bytes, file: _CsvFile) -> int | None:
    """Return the commit-ts of a record that may be broken or cut off, None where it cannot be read."""
    return _stamp(raw, file.dialect) if "commit-ts" in file.columns.meta else None


def _stamp(raw: bytes, syntax: Dialect) -> int | None:
    first_fields, _ = leading(raw, syntax, 4)
    return _tso(first_fields[3] or b"") if len(first_fields) == 4 else None


def _tso(text: bytes) -> int | None:
    """Return a TSO, None for any other text; all TSOs are below 2^63."""
    return int(text) if text.isdigit() and len(text) < 20 and int(text) < 1 << 63 else None


_HEADER = "ticdc-meta$"
_TITLES = {"op": "operation"}


# --- header -----------------------------------------------------------------------------------------------------------


def columns_of_header(line: bytes, syntax: Dialect, promised: RowColumns, schema: TableSchema, path: str) -> RowColumns:
    """Return the columns that a header line names; it knows which columns are really written, and in which order.

    TiCDC joins the names with the delimiter and never quotes them; the handle key has no name there. Raises
    MalformedData for a line that is not a header, lacks or has a column of TiCDC's own against the options, or names a
    column that the schema does not have.
    """
    named = tuple(name for name in promised.meta if name != "handle-key")
    text = line.decode("utf-8", "replace")
    between = syntax.delimiter.decode()
    head = between.join(f"{_HEADER}{_TITLES.get(name, name)}" for name in named) + between
    if not text.startswith(_HEADER):
        raise MalformedData(
            f'{path} line 1 is "{_shortened(text)}" where the header "{_shortened(head)}" is expected, because '
            "output-field-header is on. If the changefeed writes none, take it out of [sink.csv] of its TOML.",
            path=path,
            line=1,
        )
    if not text.startswith(head):
        raise MalformedData(
            f'{path} has the header "{_shortened(text)}"; by the options it starts with "{_shortened(head)}". '
            "Check include-commit-ts, output-old-value and the delimiter under [sink.csv] of the changefeed TOML.",
            path=path,
            line=1,
        )
    return _named_columns(text[len(head) :], between, promised, schema, path)


def _named_columns(text: str, between: str, promised: RowColumns, schema: TableSchema, path: str) -> RowColumns:
    columns = {column.name: column for column in schema.columns}
    names = _cut_names(text, between, sorted(columns, key=len, reverse=True))
    foreign = [name for name in names if name not in columns]
    if foreign or len(set(names)) != len(names):
        problem = f'names "{_shortened(foreign[0])}"' if foreign else "names a column twice"
        raise MalformedData(
            f"{path}: the header {problem}; the schema file of this version has {', '.join(columns)}. "
            "The file lies under another version than it was written for, or was changed after it.",
            path=path,
            line=1,
        )
    absent = tuple(column for column in promised.columns if column.name not in names)
    return RowColumns(promised.meta, tuple(columns[name] for name in names), absent)


def _cut_names(text: str, between: str, column_names: Sequence[str]) -> list[str]:
    """Cut a header, where nothing is quoted: a known name is taken whole, also when it holds the delimiter."""
    names = []
    text += between
    while text:
        whole = (name for name in column_names if text.startswith(name + between))
        names.append(next(whole, text.partition(between)[0]))
        text = text[len(names[-1]) + len(between) :]
    return names


def _shortened(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:120]}…"


# --- what the first record says ---------------------------------------------------------------------------------------


def explain(
    first: Sequence[bytes | None], syntax: Dialect, expected: RowColumns, options: CsvOptions, path: str
) -> str:
    """Return the sentences for a file whose rows have another number of fields than the options and schema promise."""
    field_count, size = len(first), expected.size
    delimiter = syntax.delimiter.decode()
    expected_names = ", ".join((*expected.meta, *(column.name for column in expected.columns)))
    came = (
        f"{path} line 1 has {counted(field_count, 'field')} where {size} {'is' if size == 1 else 'are'} expected "
        f"({expected_names})."
    )
    read = f'The file was read with delimiter "{delimiter}" and quote {syntax.quote.decode()!r}.'
    if field_count < 4:
        return f"{came} {read} If the changefeed uses others, set them under [sink.csv] of the changefeed TOML."
    hints = [*_meta_hints(first, expected, options)]
    if not hints and field_count < size:
        hints.append(
            f"{counted(size - field_count, 'column is', 'columns are')} never written: virtual generated columns are "
            "in the schema file but not in the rows, and so are columns hidden by a column selector. Which ones is "
            "known from the text of the CREATE or ALTER statement, from a header (output-field-header) or from the "
            "changefeed's column-selectors."
        )
    if not hints:
        hints.append("The schema file of this version and the file do not belong together.")
    return f"{came} {' '.join(hints)} {read}"


def _meta_hints(first: Sequence[bytes | None], expected: RowColumns, options: CsvOptions) -> list[str]:
    extra, at = len(first) - expected.size, 3
    hints = []
    is_tso = re.fullmatch(rb"\d{17,20}", first[at] or b"") is not None
    if "commit-ts" in expected.meta and not is_tso:
        hints.append("The fourth field is not a commit-ts: include-commit-ts seems to be off in this changefeed.")
    if "commit-ts" not in expected.meta and is_tso and extra > 0:
        hints.append("The fourth field looks like a commit-ts: include-commit-ts seems to be on in this changefeed.")
    at += is_tso
    is_flag = at < len(first) and first[at] in (b"true", b"false")
    if "is-update" in expected.meta and not is_flag:
        hints.append(
            "There is no is-update column: TiCDC 7.5.2 to 7.6.0 writes old values without it (output_is_update false), "
            "or output-old-value is off in this changefeed."
        )
    if "is-update" not in expected.meta and is_flag and extra > 0:
        hints.append(
            "There is an is-update column: output-old-value is on in this changefeed, and TiCDC is 8.0 or later."
        )
    if "handle-key" not in expected.meta and extra == 1 and not hints:
        hints.append("One field more could be the handle key, written when output-handle-key is on.")
    return hints
