"""Rows of the lake's tables as of one snapshot, and of logs: their columns, by both names, and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding import PLACE
from cdc_assets.decoding.own_columns import ABSENT, CHANGE_TYPE, OF_DDL, PARTITIONS
from cdc_assets.decoding.upgrade import default_array, evolve_rows
from cdc_assets.features.kinds.decoding import own_columns
from cdc_assets.formats.decoded import COMMIT_TS, POSITION
from cdc_assets.model.progress import Life, Progress
from cdc_assets.model.recipe import Recipe
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.schema_changes import ContinueColumn, RenameColumn, SchemaChange
from cdc_assets.model.table_history import TableHistory
from cdc_assets.model.tso import Tso
from cdc_assets.types.masks import masked_array
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
    kept_names = {column.name for column in schema.columns if column.kept}
    if of or kept_names:
        rows = _with_absent(rows, lambda names: [of.get(name, name) for name in names if name not in kept_names])
    if of:
        own_names = [name for name in rows.column_names if name not in of.values()]
        rows = rows.select(own_names).rename_columns([of.get(name, name) for name in own_names])
    empty = no_log_rows(of_source(schema))
    return rows.select(empty.column_names).cast(empty.schema)


def evolved_rows(
    rows: pa.Table, changes: Sequence[SchemaChange], after: TableSchema, *, living: bool = False
) -> pa.Table:
    """Return changes from before a DDL of a log as the source's rows of then read after it.

    A log keeps in a column that comes back what changes from before held. In the source such a column begins anew, so
    each row has its default there. A value that a new type does not take is NULL, because no row had it any more;
    among `living` rows it raises TableHeld.
    """
    rows = evolve_rows(rows, changes, after, pa.repeat(pa.scalar(living), rows.num_rows))
    for change in changes:
        if isinstance(change, ContinueColumn):
            value = default_array(change.column, change.default, 1)[0]
            rows = _continued(rows, change.column.name, value, pa.repeat(pa.scalar(True), rows.num_rows))
    return rows


def with_returned_columns(rows: pa.Table, log: TableHistory, since: Tso) -> pa.Table:
    """Return rows of a log after `since`, by the source's names, as they read after DROP and ADD of a column.

    Changes from before a column came back have its default of then, carried through later DDL and masked as values are.
    """
    row: pa.Table | None = None
    returned = dict[str, Tso]()
    for event in log.events:
        changes = (*event.hidden, *event.changes)
        if event.at <= since or not changes:
            continue
        if row is None:
            row = pa.table(
                {stored_column.name: pa.nulls(1, arrow_type(stored_column)) for stored_column in event.before.stored}
            )
        row = evolved_rows(row, changes, event.after)
        renames = {change.old: change.new for change in changes if isinstance(change, RenameColumn)}
        returned = {renames.get(name, name): at for name, at in returned.items()}
        returned |= {change.column.name: event.at for change in changes if isinstance(change, ContinueColumn)}
    for name, at in returned.items():
        column = log.schema.column(name)
        if row is not None and not column.kept and column.source_name in rows.column_names:
            value = masked_array(row.column(name), column) if column.mask is not None else row.column(name)
            rows = _continued(rows, column.source_name, value[0], pc.less(rows.column(POSITION), at))
    return rows


def _continued(rows: pa.Table, name: str, value: pa.Scalar, where: pa.Array) -> pa.Table:
    """Return rows with a value in a column, which they do not leave out then."""
    place = rows.column_names.index(name)
    rows = rows.set_column(place, rows.schema.field(place), pc.if_else(where, value, rows.column(name)))
    if ABSENT not in rows.column_names:
        return rows
    absent = _with_absent(rows, lambda names: [other_name for other_name in names if other_name != name])
    place = rows.column_names.index(ABSENT)
    return rows.set_column(place, rows.schema.field(place), pc.if_else(where, absent.column(ABSENT), rows[ABSENT]))


def _with_absent(rows: pa.Table, named: Callable[[list[str]], list[str]]) -> pa.Table:
    """Return rows whose names of absent columns are those that a function makes of them, NULL where none is left."""
    place, absent = rows.column_names.index(ABSENT), rows.column(ABSENT)
    if absent.null_count == rows.num_rows:
        return rows
    lists = [(names and named(names)) or None for names in absent.to_pylist()]
    return rows.set_column(place, rows.schema.field(place), pa.array(lists, absent.type))


def no_log_rows(schema: TableSchema) -> pa.Table:
    """Return an empty table with the stored columns of a schema and those of a log."""
    fields = [pa.field(column.name, arrow_type(column)) for column in schema.stored]
    return pa.schema(
        [*fields, *(pa.field(own_column.name, own_column.type) for own_column in own_columns(LOG))]
    ).empty_table()


def all_leave(schema: TableSchema, at: Tso, partitions: Sequence[str] = ()) -> pa.Table:
    """Return the one change that all rows go by a DDL, or those of partitions."""
    own = {CHANGE_TYPE: ALL_LEAVE, POSITION: at, COMMIT_TS: at, PLACE: f"{OF_DDL}{at}"}
    return pa.Table.from_pylist([{**own, PARTITIONS: list(partitions) or None}], no_log_rows(schema).schema)


class LakeRows(Protocol):
    """The rows of a table as of one snapshot."""

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot, None for a table without any."""

    @property
    def progress(self) -> Progress:
        """Progress of the table in that snapshot."""

    @property
    def recipe(self) -> Recipe:
        """The recipe of its rows then, as its label has it."""

    @property
    def rows(self) -> int | None:
        """Number of rows, None if it is not known."""

    @property
    def columns(self) -> Mapping[str, str]:
        """The types of its columns in Iceberg's words, by name in their order."""

    def pieces(self, equal: Mapping[str, object] = {}) -> Sequence[Any]:
        """Return its data files; of those that have no row with these numbers by column, none need be there."""

    def read_file(self, piece: Any, columns: Sequence[str], equal: Mapping[str, object] = {}) -> Iterator[pa.Table]:
        """Yield the rows of a data file; of those without these numbers, none need be there."""


class ScannedLake(Protocol):
    """A lake whose tables can be read as of one snapshot."""

    def scan(self, life: Life, snapshot_id: int | None = None) -> LakeRows:
        """Open a table as it is now, or as it was in a snapshot."""
