"""Tables of states against the source's past: what a row was at every position, in the columns that it had then.

The model is the small source's own record of its tables after each event, and of what each ALTER did to columns. It
knows nothing of changes, windows and intervals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding.states import END_AT, END_TS, START_AT, START_TS
from cdc_assets.formats.decoded import COMMIT_TS
from cdc_assets.lake.lake_table import parse_lives
from cdc_assets.model.kinds import ColumnLife
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets_tests.lake_contents import plain_values
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.source import Source, Value

__all__ = ["StateTable", "differences", "state_differences", "states_of"]

STATES = (START_TS, END_TS, START_AT, END_AT)


@dataclass(frozen=True)
class PastColumn:
    """A column of rows of the past as it reads after the DDL that followed.

    `late` says that the source had it later only, `gone` from when on no longer.
    """

    name: str
    values: tuple[Value, ...]
    late: bool = False
    gone: Tso | None = None


def past_columns(source: Source, life: int, at: Tso, through: Tso) -> list[PastColumn]:
    """Return the rows that a table had at a position, with the values that its DDL until another makes of them."""
    tables = [tables for ts, tables in source.past if ts <= at]
    table = tables[-1].get(life) if tables else None
    if table is None:
        return []
    rows = list(table.rows.values())
    columns = [PastColumn(col.name, tuple(row[col.name] for row in rows)) for col in table.columns]
    for ts, of, changes in source.column_changes:
        for change in changes if of == life and at < ts <= through else ():
            if not change.old:
                columns.append(PastColumn(change.new, (change.value,) * len(rows), late=True))
                continue
            (place,) = (n for n, column in enumerate(columns) if column.name == change.old and column.gone is None)
            column, turn = columns[place], change.turn
            if turn is not None:
                column = replace(
                    column, values=tuple(None if value is None else turn(value) for value in column.values)
                )
            gone = ts if not change.new else None
            columns[place] = replace(column, name=change.new or column.name, gone=gone)
    return columns


def past_differences(
    source: Source, life: int, states: pa.Table, lives: Sequence[ColumnLife], positions: Sequence[Tso]
) -> Iterator[str]:
    """Say at which positions a table of states does not have the rows that the source had."""
    for at in positions:
        columns = past_columns(source, life, at, positions[-1])
        ended = states.column(END_TS)
        inside = pc.and_(
            pc.less_equal(states.column(START_TS), at),
            pc.or_(pc.is_null(ended), pc.greater(pc.fill_null(ended, 0), at)),
        )
        valid_rows = states.filter(inside)
        names = [(column, name) for column in columns if (name := _lake_name(column, lives, at)) is not None]
        wanted = Counter(zip(*(column.values for column, _ in names), strict=True))
        value_counts = _counted(valid_rows.column(name) for _, name in names)
        if not columns and valid_rows.num_rows:
            yield f"as of {at} there are {valid_rows.num_rows} rows, and the source had none"
        if wanted != value_counts:
            listed = [name for _, name in names]
            yield f"as of {at}, {listed}: missing {list(wanted - value_counts)}, too many {list(value_counts - wanted)}"


def _lake_name(column: PastColumn, lives: Sequence[ColumnLife], at: Tso) -> str | None:
    """The lake's column that has a past one's values, None where none needs to have them as they are here.

    In a column that came back rows from between read NULL, and those from before what they held then.
    """
    column_lives = [life for life in lives if life.source == column.name and life.until == column.gone]
    assert column_lives, f"no column of the lake is {column}: {lives}"
    came_back = sum(life.column == column_lives[0].column for life in lives) > 1
    if column.late:
        return None if came_back or column.gone is not None else column_lives[0].column
    assert column_lives[0].since <= at or not came_back, (column, lives, at)
    return None if came_back and column.gone is not None else column_lives[0].column


def state_differences(states: pa.Table, lives: Sequence[ColumnLife], mirror: pa.Table | None) -> Iterator[str]:
    """Say which states are none, and how those that are open differ from the rows of the mirror."""
    rows: list[dict[str, Any]] = states.select(list(STATES)).to_pylist()
    for row in rows:
        if (row[END_TS] is None) != (row[END_AT] is None) or (row[END_TS] or row[START_TS] + 1) <= row[START_TS]:
            yield f"there is the state {row}"
    if mirror is not None:
        newest_last = sorted(lives, key=lambda life: (life.until is None, life.until or 0))
        of = {life.source: life.column for life in newest_last}  # a mirror may keep what the source dropped
        open_ = states.filter(pc.is_null(states.column(END_TS)))
        value_counts = _counted(open_.column(of.get(name, name)) for name in mirror.column_names)
        wanted = _counted(mirror.columns)
        if wanted != value_counts:
            yield f"missing now {list(wanted - value_counts)}, too many {list(value_counts - wanted)}"


def _counted(columns: Iterable[pa.ChunkedArray]) -> Counter[tuple[Any, ...]]:
    plain = (
        [tuple(value) if isinstance(value, list) else value for value in plain_values(column)] for column in columns
    )
    return Counter(zip(*plain, strict=True))


@dataclass(frozen=True)
class StateTable:
    """A table of states in a lake, when the source had which of its columns, and the mirror's rows and name."""

    life: Life
    rows: pa.Table
    lives: Sequence[ColumnLife]
    mirror: pa.Table | None
    name: TableId | None


def states_of(lake: Any) -> Iterator[StateTable]:
    """Yield the tables of states of a lake, in memory or not."""
    if isinstance(lake, MemoryLake):
        for life, table in lake.tables.items():
            mirror = lake.tables.get(life.source)
            rows = None if mirror is None or mirror.name is None else mirror.rows
            if life.kind == "scd2":
                yield StateTable(life, table.rows, table.lives, rows, _source_name(table.name))
        return
    tables = lake.state.tables()
    for life, lake_table in tables.items():
        if life.kind == "scd2":
            lives = parse_lives(lake.state.file(lake_table.metadata_location).properties)
            of = tables.get(life.source)
            rows = None if of is None or of.name is None else lake.read(of.name)
            state_rows = lake.state.catalog.load_table(lake_table.identifier).scan().to_arrow()
            yield StateTable(life, state_rows, lives, rows, _source_name(lake_table.name))


def _source_name(name: TableId | None) -> TableId | None:
    return None if name is None else replace(name, table=name.table.removesuffix("__scd2"))


def differences(source: Source, table: StateTable, shown: Tso) -> Iterator[str]:
    """Say what is wrong with a table of states that is applied through a position."""
    none = table.rows.schema.empty_table().select([COMMIT_TS])
    yield from state_differences(table.rows, table.lives, none if table.name is None else table.mirror)
    past = [(ts, tables) for ts, tables in source.past if ts <= shown]
    of = {column.name: number for number, column in (past[-1][1].items() if past else ())}
    if table.name is not None:
        yield from past_differences(source, of[table.name], table.rows, table.lives, [ts for ts, _ in past])
