"""Rows of a log table: the columns that they have, by the names of the lake and of the source, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding import PLACE
from cdc_assets.decoding.kinds import own_columns
from cdc_assets.decoding.own_columns import ABSENT, CHANGE_TYPE, OF_DDL, PARTITIONS
from cdc_assets.formats import COMMIT_TS, POSITION
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.types.mysql_types import arrow_type

LOG = "log"
"""The kind."""

LEAVES, ALL_LEAVE = ["DELETE", "UPDATE_BEFORE"], "TRUNCATE"


def in_order(rows: pa.Table) -> pa.Table:
    """Return the changes of whole positions in their order: what a DDL takes and brings, what leaves, what enters."""
    leaves = pc.is_in(rows.column(CHANGE_TYPE), pa.array([*LEAVES, ALL_LEAVE]))
    of_ddl = pc.fill_null(pc.starts_with(rows.column(PLACE), OF_DDL), False)
    turn = pc.add(pc.multiply(pc.cast(pc.invert(of_ddl), pa.int8()), 2), pc.cast(pc.invert(leaves), pa.int8()))
    order = pa.table({POSITION: rows.column(POSITION), "turn": turn})
    return rows.take(pc.sort_indices(order, [(POSITION, "ascending"), ("turn", "ascending")]))


def of_source(schema: TableSchema) -> TableSchema:
    """Return the columns that the source has, by its names."""
    names = {column.name: column.source_name for column in schema.columns}
    columns = (replace(column, name=names[column.name], origin="") for column in schema.columns if not column.kept)
    return replace(schema, columns=tuple(columns), key=tuple(names[name] for name in schema.key)).in_lake


def in_source_names(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Return rows of a log with the columns that the source has, by its names."""
    of = {column.name: column.origin for column in schema.columns if column.origin and not column.kept}
    if of:
        absent = [one and [of.get(name, name) for name in one] for one in rows.column(ABSENT).to_pylist()]
        place = rows.column_names.index(ABSENT)
        rows = rows.set_column(place, rows.schema.field(place), pa.array(absent, pa.list_(pa.string())))
        mine = [name for name in rows.column_names if name not in of.values()]
        rows = rows.select(mine).rename_columns([of.get(name, name) for name in mine])
    empty = no_log_rows(of_source(schema))
    return rows.select(empty.column_names).cast(empty.schema)


def no_log_rows(schema: TableSchema) -> pa.Table:
    """Return an empty table with the stored columns of a schema and those of a log."""
    fields = [pa.field(column.name, arrow_type(column)) for column in schema.stored]
    return pa.schema([*fields, *(pa.field(one.name, one.type) for one in own_columns(LOG))]).empty_table()


def all_leave(schema: TableSchema, at: Tso, partitions: Sequence[str] = ()) -> pa.Table:
    """Return the one change that all rows go by a DDL, or those of partitions."""
    own = {CHANGE_TYPE: ALL_LEAVE, POSITION: at, COMMIT_TS: at, PLACE: f"{OF_DDL}{at}"}
    return pa.Table.from_pylist([{**own, PARTITIONS: list(partitions) or None}], no_log_rows(schema).schema)
