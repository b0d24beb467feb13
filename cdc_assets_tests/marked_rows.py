"""Mirrors that mark deleted rows, beside their tables of states: which rows have to be marked, and as of when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding.states import END_AT, END_TS
from cdc_assets.features.columns.decoding import living_rows, marks_stay
from cdc_assets.formats.decoded import COMMIT_TS
from cdc_assets.model.layout import DELETED_AT
from cdc_assets.model.progress import Life
from cdc_assets.model.reports import StepResult
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.steps import ChangeTable, Step
from cdc_assets.model.tso import Tso
from cdc_assets.types.collations import is_plain, normal_form
from cdc_assets_tests.memory_lake import MemoryLake

__all__ = ["MarkingLake", "mark_differences", "marked_rows", "source_rows"]


def source_rows(rows: pa.Table) -> pa.Table:
    """Return the rows of a mirror that the source has, without the mark."""
    return living_rows(rows).drop_columns([DELETED_AT] * (DELETED_AT in rows.column_names))


def marked_rows(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.is_valid(rows.column(DELETED_AT)))


class MarkingLake(MemoryLake):
    """A lake whose readers leave marked rows out; it knows since when the marks of a table are there."""

    def __init__(self) -> None:
        super().__init__()
        self.unmarked: dict[Life, Tso] = {}

    def run(self, step: Step) -> StepResult:
        if isinstance(step, ChangeTable) and not marks_stay(step) and step.ddl > self.tables[step.life].ddl:
            self.unmarked[step.life] = step.at
        return super().run(step)

    def read(self, name: TableId) -> pa.Table:
        return source_rows(super().read(name))


def mark_differences(lake: MarkingLake) -> Iterator[str]:
    """Say where marked rows are not those of the states that ended last, of keys that have no open state."""
    for life, table in lake.tables.items():
        states = lake.tables.get(Life(life.born_as, life.version, "scd2"))
        if life.kind or table.name is None or not table.schema.key or states is None:
            continue
        if table.progress != states.progress or DELETED_AT not in table.rows.column_names:
            continue
        live = [column for column in states.schema.live if column.name not in states.continued]
        ended = _ended(states.rows, states.schema, lake.unmarked.get(life, -1))
        wanted = _comparable(ended, [column.name for column in live])
        rows = _comparable(marked_rows(table.rows), [column.source_name for column in live])
        if rows != wanted:
            yield f"{life}: marked are {rows}, and the states that ended are {wanted}"


def _ended(states: pa.Table, schema: TableSchema, since: Tso) -> pa.Table:
    """Return the last state of each key that has no open one, as a marked row."""
    frame = pl.from_arrow(states.select([END_TS]))
    assert isinstance(frame, pl.DataFrame)
    for at, name in enumerate(schema.key):
        values, collation = states.column(name).combine_chunks(), schema.column(name).compares_by
        if collation and not is_plain(collation) and pa.types.is_string(values.type):
            values = normal_form(values, collation)
        frame = frame.with_columns(pl.Series(f"k{at}", values))
    by = [f"k{at}" for at in range(len(schema.key))]
    frame = frame.with_row_index("row").with_columns(pl.col(END_TS).is_null().any().over(by).alias("open"))
    last = frame.filter(~pl.col("open") & (pl.col(END_TS) > since)).sort(END_TS).unique(by, keep="last")
    rows = states.take(last.get_column("row").to_arrow())
    stamps = pc.shift_left(pc.divide(rows.column(END_AT).cast(pa.int64()), 1000), 18)
    rows = rows.set_column(rows.column_names.index(COMMIT_TS), COMMIT_TS, stamps)
    return rows.append_column(DELETED_AT, rows.column(END_AT))


def _comparable(rows: pa.Table, names: list[str]) -> list[tuple[Any, ...]]:
    frame = pl.from_arrow(rows.select([*names, COMMIT_TS, DELETED_AT]))
    assert isinstance(frame, pl.DataFrame)
    stamps = pl.col(COMMIT_TS) // 2**18  # the rest is a count: positions that landing gives have another one
    return sorted(frame.with_columns(pl.selectors.temporal().to_physical(), stamps).rows(), key=repr)
