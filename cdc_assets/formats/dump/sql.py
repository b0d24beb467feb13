r"""INSERT statements of Dumpling: a split of a file -> its rows.

    /*!40014 SET FOREIGN_KEY_CHECKS=0*/;
    INSERT INTO `employee` (`id`,`name`) VALUES
    (1,'male'),
    (2,NULL);

What stands between parentheses is CSV with another quote, so rows are brought into that form, all of a block at once,
and cut by it. With backslash escapes a row is a line; without them a line end within quotes ends none. Bytes are
`x'3132'`: the x goes where a value begins with it. Every line counts as a record, those of statements too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdc_assets.errors import MalformedData
from cdc_assets.formats import ReadRange
from cdc_assets.formats.decoded import Decoded
from cdc_assets.formats.dialect import Dialect
from cdc_assets.formats.dump.blocks import Block, blocks, head_of, lines_in_front, starts_in
from cdc_assets.formats.dump.dialect import sql_dialect
from cdc_assets.formats.dump.rows import (
    Cutting,
    Lot,
    Target,
    columns_by_count,
    columns_by_name,
    cut_off,
    decoded,
    shown,
)
from cdc_assets.model.dumps import DumpOptions, DumpSplit
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.tso import Tso

__all__ = ["can_cut", "lines_before", "raw_records", "read"]

_NAME = rb"`((?:[^`]|``)*)`"
_HEAD = re.compile(rb"INSERT INTO (?:%b\.)?%b ?(\((?:%b,?)*\) ?)?VALUES *" % (_NAME, _NAME, _NAME))
_COMMENT = re.compile(rb"/\*.*\*/;|", re.DOTALL)
_LF, _QUOTE, _X = b"\n'x"
_OPENS, _CLOSES, _COMMA, _SEMICOLON = b"(),;"

Offsets = npt.NDArray[np.int64]


def can_cut(options: DumpOptions) -> bool:
    """Return whether every line end ends a row, wherever one begins to read."""
    return options.escape_backslash


def lines_before(split: DumpSplit, read_range: ReadRange, options: DumpOptions) -> int:
    """Return the number of lines before the split's first row."""
    return lines_in_front(split, read_range) if split.start else 0


def raw_records(
    split: DumpSplit, read_range: ReadRange, lines: Collection[int], options: DumpOptions
) -> dict[int, bytes]:
    """Return the bytes of the split's lines with these numbers, without line end."""
    dialect, first = sql_dialect(options), 1
    records: dict[int, bytes] = {}
    for block in blocks(split, read_range, dialect):
        starts, ends = _lines(block.data, dialect)
        for line, start, end in zip(range(first, first + len(starts)), starts, ends, strict=True):
            if line in lines:
                records[line] = block.data[start:end]
        first += len(starts)
    return records


def read(
    split: DumpSplit, read_range: ReadRange, table: TableId, schema: TableSchema, options: DumpOptions, at: Tso
) -> Iterator[Decoded]:
    """Yield the rows of a split, block by block.

    Raises MalformedData when the statements are of another table, name other columns than the schema or contradict the
    options, when the file was cut off, or not one row fits.
    """
    dialect, path, line = sql_dialect(options), split.file.path, 1
    before = cache(partial(lines_before, split, read_range, options))
    target = Target(path, table, schema, options, at, (), before)
    file: _InsertFile | None = None
    open_statement: bool | None = None if split.start else False
    for block in blocks(split, read_range, dialect):
        if file is None or not file.head:
            head = block.data if split.start == 0 else head_of(read_range, b"VALUES\n")
            file = _opened(head, target, dialect)
        if block.cut:
            raise cut_off(path, block.data, line + before())
        lines = _found_lines(block, line, open_statement, file)
        open_statement = lines.open_statement
        if len(lines.starts):
            yield decoded(_lot(block.data, lines, line, dialect), file.cutting)[0]
        line += lines.count
    if file is not None and open_statement and starts_in(split, read_range)[1] == split.file.size:
        raise file.cutting.target.error(
            f"{path} line {{line}} ends with a comma, and no row follows: the file was cut off while it was written or "
            "copied, and nobody knows what else is missing. Dump the table again.",
            line - 1,
        )


# --- statements -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _InsertFile:
    """Facts known before the first row is read: the columns, and the line that begins every statement."""

    cutting: Cutting
    head: bytes


def _opened(data: bytes, target: Target, dialect: Dialect) -> _InsertFile:
    match = _HEAD.search(data)
    if match is None:
        advice = "It was read as INSERT statements of Dumpling; put the file back as Dumpling wrote it."
        return _InsertFile(Cutting(target, dialect, "hex", advice), b"")
    if b"\n" in match[0] or (not dialect.escapes and match[0].count(b"'") & 1):
        raise MalformedData(
            f"{target.path}: a name in {shown(match[0])} has a line end or a quote in it, with which the ends of rows "
            "cannot be found. Dump the table as CSV.",
            path=target.path,
        )
    schema, name = (None if part is None else _unquoted(part) for part in match.group(1, 2))
    if name != target.table.table or (schema is not None and schema != target.table.schema):
        where = data.count(b"\n", 0, match.start()) + 1
        raise MalformedData(
            f"{target.path} line {where} inserts into {shown(match[0])} where {target.table} is expected. Put the file "
            "back under the name that Dumpling gave it.",
            path=target.path,
            line=where,
        )
    columns = _columns(match, data, target)
    names = ", ".join("(none)" if column is None else column.name for column in columns)
    advice = (
        f"It was read with escape-backslash {str(bool(dialect.escapes)).lower()} and the columns {names}; give "
        "escape-backslash as Dumpling had it."
    )
    return _InsertFile(Cutting(replace(target, columns=columns), dialect, "hex", advice), match[0].rstrip())


def _unquoted(name: bytes) -> str:
    return name.replace(b"``", b"`").decode("utf-8", "replace")


def _columns(head: re.Match[bytes], data: bytes, target: Target) -> tuple[Column | None, ...]:
    """Return the columns of the column list; without one they are the table's, but for generated ones."""
    line = data.count(b"\n", 0, head.start()) + 1
    if head[3] is not None:
        names = [_unquoted(name) for name in re.findall(_NAME, head[3])]
        return columns_by_name(names, target.schema, target.path, line)
    own = tuple(column for column in target.schema.stored if not column.generated)
    return columns_by_count(len(own), target.schema) or own


# --- lines ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lines:
    """Lines of a block: `starts` and `ends` of those that are rows, `numbers` which lines they are, `count` all."""

    starts: Offsets
    ends: Offsets
    numbers: Offsets
    count: int
    open_statement: bool | None


def _lines(data: bytes, dialect: Dialect) -> tuple[Offsets, Offsets]:
    """Return the starts and ends of lines, without their line ends; one within quotes ends no line."""
    codes = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(codes == _LF)
    if dialect.multiline_quote:
        quotes = np.flatnonzero(codes == _QUOTE)
        ends = ends[np.searchsorted(quotes, ends) & 1 == 0]
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])
    return starts, ends


def _found_lines(block: Block, line: int, open_statement: bool | None, file: _InsertFile) -> _Lines:
    """Separate rows from the beginnings of statements. Raises MalformedData for anything else, and for a row too many.

    `open_statement` says whether the lines before end in one, None where they were not seen.
    """
    data, (starts, ends) = block.data, _lines(block.data, file.cutting.dialect)
    codes = np.frombuffer(data, np.uint8)
    rows = codes[starts] == _OPENS
    last, before = codes[np.maximum(ends - 1, 0)], codes[np.maximum(ends - 2, 0)]
    goes_on = rows & (last == _COMMA)
    whole = (before == _CLOSES) & (goes_on | (last == _SEMICOLON)) & (ends - starts > 2)
    other_lines = np.flatnonzero(~rows)
    texts = [data[starts[number] : ends[number]].rstrip() for number in other_lines.tolist()]
    heads, foreign = np.zeros(len(starts), np.bool_), np.zeros(len(starts), np.bool_)
    heads[other_lines] = [text == file.head for text in texts]
    foreign[other_lines] = [text != file.head and not _COMMENT.fullmatch(text) for text in texts]
    expected = np.concatenate([[bool(open_statement)], (goes_on | heads)[:-1]])
    misplaced = rows != expected
    if open_statement is None:
        misplaced[0] = False
    problems = (
        (foreign, "is neither a row nor the beginning of the file's statement"),
        (rows & ~whole, "does not end as a row"),
        (misplaced, "is not where it belongs"),
    )
    wrong = [(int(np.flatnonzero(mask)[0]), reason) for mask, reason in problems if mask.any()]
    if wrong:
        number, reason = min(wrong, key=lambda fault: fault[0])
        raise file.cutting.error(f" {reason}", data[starts[number] : ends[number]], line + number)
    return _Lines(starts[rows], ends[rows], np.flatnonzero(rows), len(starts), bool((goes_on | heads)[-1]))


def _lot(data: bytes, row_lines: _Lines, line: int, dialect: Dialect) -> Lot:
    codes = np.frombuffer(data, np.uint8)
    keep = np.zeros(len(codes) + 1, np.int8)
    keep[row_lines.starts + 1] += 1
    keep[row_lines.ends - 2] -= 1
    inside = np.cumsum(keep[:-1], dtype=np.int8).astype(np.bool_)
    inside[row_lines.ends] = True
    lines = pa.array(row_lines.numbers + line)

    def raws() -> Iterator[bytes]:
        return (data[start:end] for start, end in zip(row_lines.starts, row_lines.ends, strict=True))

    return Lot(_without_x(codes[inside].tobytes(), dialect), lines.take, raws)


def _without_x(data: bytes, dialect: Dialect) -> bytes:
    """Leave out the x before a value of bytes: it stands between a comma, or the row's beginning, and a quote."""
    if b"x'" not in data:
        return data
    codes = np.frombuffer(data.replace(rb"\\", b"..").replace(rb"\'", b"..") if dialect.escapes else data, np.uint8)
    opening = np.flatnonzero(codes == _QUOTE)[::2]
    opening = opening[opening > 0]
    marks = opening[codes[opening - 1] == _X] - 1
    first = np.isin(codes[np.maximum(marks - 1, 0)], (_COMMA, _LF)) | (marks == 0)
    keep = np.ones(len(codes), np.bool_)
    keep[marks[first]] = False
    return np.frombuffer(data, np.uint8)[keep].tobytes()
