"""A table cut by its key, for tasks: conditions of which every row of the table meets exactly one.

    regions     on TiDB: the first row of every region is a border (TABLESAMPLE), unless finer ranges are wanted
    equal steps between the least and the greatest value of an integer
    seek        by the key, so many rows at a time

Borders are values that were read once, and the conditions on both sides of one are each other's opposite, so it does
not matter where they lie. Only keys are cut by whose values are compared as they are ordered: not ENUM, say, which is
ordered by number and compared by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from cdc_assets.errors import InputError
from cdc_assets.model.dumps import DumpFile, DumpTable, RowCondition
from cdc_assets.model.schema import Column
from cdc_assets.sources.mysql_protocol.session import Row, Session, identifier

KIND = "rows"
"""The kind of data file for rows of a query."""
ORDERED = " ORDER BY "

RANGE_BYTES = 64 << 20
"""About so many bytes of a table are read by one task."""
_MOST = 4096
"""Ranges of one table."""
_BYTES_A_ROW = 100
"""Bytes a row, where a server returns the rows of a table and not its bytes."""

_INTEGERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
_NUMBERS = (*_INTEGERS, "DECIMAL")
_TEXTS = ("CHAR", "VARCHAR")
_BYTES = ("BINARY", "VARBINARY")
_TIMES = ("DATE", "DATETIME", "TIMESTAMP")
_NUMBER = re.compile(rb"-?[0-9]+(\.[0-9]+)?")
_TIME = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?)?")
_ROW_ID = Column("_tidb_rowid", "BIGINT")

Border = tuple[str, ...]
"""Values of the columns that a table is cut by, as SQL writes them."""


class Size(NamedTuple):
    """About how large a table is, by the server's statistics; 0 where nobody knows."""

    rows: int = 0
    bytes: int = 0


def cut(session: Session, table: DumpTable, size: Size, range_bytes: int = RANGE_BYTES) -> tuple[DumpFile, ...]:
    """Return the rows of a table as files, each with the query for those of a range in the order of the key."""
    name = f"{identifier(table.id.schema)}.{identifier(table.id.table)}"
    handle = _handle(session, table, name)
    order = f"{ORDERED}{_names(handle)}" if handle else ""
    # The first columns whose values are compared as they are ordered.
    types = (*_NUMBERS, *_TEXTS, *_BYTES, *_TIMES)
    count = next((place for place, column in enumerate(handle) if column.type not in types), len(handle))
    columns = tuple(handle[:count])
    borders = _borders(session, name, columns, size, range_bytes) if columns else []
    selected = ", ".join(_selected(column) for column in table.schema.stored) or "1"
    conditions = list(_conditions(columns, borders))
    share = max(1, size.bytes // len(conditions))
    return tuple(
        DumpFile(
            f"{table.id}.{number:09d}.{KIND}",
            table.id,
            KIND,
            "",
            f"{number:09d}",
            share,
            query=f"SELECT {selected} FROM {name}",
            condition=condition,
            order=order,
            ordered_by=handle[0].name if handle else "",
        )
        for number, condition in enumerate(conditions)
    )


def narrowed(file: DumpFile, conditions: Iterable[RowCondition]) -> DumpFile:
    """Return the rows of a range that fulfil all conditions."""
    parts = [file.condition] if file.condition else []
    for condition in conditions:
        name, value = identifier(condition.column), condition.value
        quoted = value if _NUMBER.fullmatch(value.encode()) else f"'{value}'"
        if not (_NUMBER.fullmatch(value.encode()) or _TIME.fullmatch(value.encode())):
            raise ValueError("a condition has a number or a time")
        if condition.operator == "%":  # of a negative number it is negative
            parts.append(f"MOD({name}, {quoted}) IN ({condition.remainder}, {condition.remainder} - {quoted})")
        else:
            parts.append(f"{name} {condition.operator} {quoted}")
    return replace(file, condition=" AND ".join(f"({part})" for part in parts) if len(parts) > 1 else "".join(parts))


def statement(file: DumpFile) -> str:
    """Return the query for the rows of a range."""
    return f"{file.query}{f' WHERE {file.condition}' if file.condition else ''}{file.order}"


def _selected(column: Column) -> str:
    """A FLOAT is printed with six digits where it is large, small or MySQL's; as a DOUBLE it has all of them."""
    name = identifier(column.name)
    return f"{name} + 0E0" if column.type == "FLOAT" else name


def _handle(session: Session, table: DumpTable, name: str) -> tuple[Column, ...]:
    """Return the columns in whose order the server keeps the rows, () where none is known."""
    if session.is_tidb:
        with suppress(InputError):
            session.query(f"SELECT _tidb_rowid FROM {name} LIMIT 0")
            return (_ROW_ID,)
    primary = next((index for index in table.schema.indexes if index.primary and not index.partial), None)
    names = primary.columns if primary else ()
    return tuple(table.schema.column(column_name) for column_name in names)


# --- borders ----------------------------------------------------------------------------------------------------------


def _borders(session: Session, name: str, columns: Sequence[Column], size: Size, range_bytes: int) -> list[Border]:
    fine = range_bytes < RANGE_BYTES and columns[0].type in _INTEGERS
    if session.is_tidb and not fine:
        with suppress(InputError):
            sample = f"SELECT {_names(columns)} FROM {name} TABLESAMPLE REGIONS() ORDER BY {_names(columns)}"
            return _distinct(session.query(sample)[1:], columns)
    count = min(_MOST, round(max(size.bytes, size.rows * _BYTES_A_ROW) / range_bytes))
    if count < 2 or size.rows < 2:
        return []
    if columns[0].type in _INTEGERS:
        column = columns[0]
        key = identifier(column.name)
        least, greatest = session.query(f"SELECT MIN({key}), MAX({key}) FROM {name}")[0]
        if least is None or greatest is None:
            return []
        start, span = int(least), int(greatest) - int(least) + 1
        values = sorted({start + span * number // count for number in range(1, count)} - {start})
        return [(str(value),) for value in values]
    rows_apart = max(1, size.rows // count)
    border_rows: list[Row] = []
    condition = ""
    while len(border_rows) < _MOST:
        rows = session.query(
            f"SELECT {_names(columns)} FROM {name}{condition} ORDER BY {_names(columns)} LIMIT 1 OFFSET {rows_apart}"
        )
        border = _distinct(rows, columns)
        if not border:
            break
        border_rows += rows
        condition = f" WHERE {_at_or_behind(columns, border[0])}"
    return _distinct(border_rows, columns)


def _distinct(rows: Iterable[Row], columns: Sequence[Column]) -> list[Border]:
    """Return borders as SQL writes them, up to one that it cannot write."""
    borders: list[Border] = []
    for row in rows:
        border = tuple(_literal(value, column) for value, column in zip(row, columns, strict=True))
        if "" in border:
            break
        if not borders or borders[-1] != border:
            borders.append(border)
    return borders


def _literal(value: bytes | None, column: Column) -> str:
    """Return a value as SQL writes it, "" for one that cannot be written without a doubt."""
    if value is None:
        return ""
    if column.type in _NUMBERS:
        return value.decode() if _NUMBER.fullmatch(value) else ""
    if column.type in _TIMES:
        return f"'{value.decode()}'" if _TIME.fullmatch(value) else ""
    if column.type in _BYTES:
        return f"x'{value.hex()}'"
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    return "'" + _ESCAPED.sub(lambda match: _ESCAPES[match[0]], text) + "'"


_ESCAPES = {"\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z", "'": "\\'", '"': '\\"', "\\": "\\\\"}
_ESCAPED = re.compile(r"[\0\n\r\x1a'\"\\]")


# --- conditions -------------------------------------------------------------------------------------------------------


def _conditions(columns: Sequence[Column], borders: Sequence[Border]) -> Iterable[str]:
    """Yield the condition of every range: from a border on, and before the next one."""
    for lower, upper in pairwise([None, *borders, None]):
        parts = [_at_or_behind(columns, lower)] if lower is not None else []
        parts += [_before(columns, upper)] if upper is not None else []
        yield " AND ".join(f"({part})" for part in parts) if len(parts) > 1 else "".join(parts)


def _at_or_behind(columns: Sequence[Column], border: Border) -> str:
    return _nested(columns, border, ">", ">=")


def _before(columns: Sequence[Column], border: Border) -> str:
    return _nested(columns, border, "<", "<")


def _nested(columns: Sequence[Column], border: Border, beyond: str, last: str) -> str:
    """Compare as the key is ordered: the first column decides, where it is equal the second, and so on."""
    name, value = identifier(columns[0].name), border[0]
    if len(border) == 1:
        return f"{name} {last} {value}"
    inner = _nested(columns[1:], border[1:], beyond, last)
    return f"{name} {beyond} {value} OR ({name} = {value} AND ({inner}))"


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(identifier(column.name) for column in columns)
