"""Steps by the source's columns -> the same by the lake's: what a DDL does to columns whose values are masked. Pure.

The plan is made of the columns of the source, for these say how rows are read. What a step does to its table is said
here in the columns that the lake has: defaults are masked as values are, dropped columns are in no change, and a type
that changes only matters if the masked value of an existing row would be another one: then the table is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cdc_assets.decoding.upgrade import default_array
from cdc_assets.errors import CdcError
from cdc_assets.model.masks import MaskPolicy
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import (
    AddColumn,
    ContinueColumn,
    DropColumn,
    Evolution,
    MoveColumns,
    RenameColumn,
    RetypeColumn,
    SchemaChange,
    SetDefault,
)
from cdc_assets.model.steps import ApplyRows, ChangeTable, CreateTable, ExchangePartition, HoldTable, Step
from cdc_assets.types.masks import masked_array, same_masked

__all__ = ["in_lake"]


class _Unmaskable(Exception):
    """A DDL after which masked values of rows that are there would have to be others."""


def in_lake(steps: Iterable[Step], masks: MaskPolicy) -> Iterator[Step]:
    """Yield one table's steps by what the lake has of their columns, as far as they can be carried out so."""
    for step in steps:
        try:
            step = _in_lake(step)
            yield replace(step, encryption_key=masks.encryption_key) if isinstance(step, ApplyRows) else step
        except _Unmaskable as problem:
            yield _held(step.life, step.at, str(problem))
            return


def _held(life: Life, at: int, reason: str) -> HoldTable:
    ways = (
        f"base the table on a dump from after it: cdc-assets rebuild '{life.born_as}'",
        "mask the column by null or constant",
    )
    return HoldTable(life, at, reason, ways)


def _in_lake(step: Step) -> Step:
    match step:
        case CreateTable():
            return replace(step, schema=step.schema.in_lake)
        case ExchangePartition():
            return replace(step, schema=step.schema.in_lake)
        case ChangeTable():
            changes = _changes(step.changes, step.before, step.schema)
            return replace(step, changes=changes, before=step.before.in_lake, schema=step.schema.in_lake)
        case ApplyRows():
            evolutions = tuple(
                Evolution(
                    evolution.at,
                    _changes(evolution.changes, evolution.before, evolution.after),
                    evolution.before.in_lake,
                    evolution.after.in_lake,
                )
                for evolution in step.evolutions
            )
            schemas = {
                where: (name, _with_masks(schema, step)) for where, (name, schema) in step.reading.schemas.items()
            }
            reading = replace(step.reading, schemas=schemas)
            return replace(step, schema=step.schema.in_lake, evolutions=evolutions, reading=reading)
    return step


def _with_masks(schema: TableSchema, step: ApplyRows) -> TableSchema:
    """Return the columns of a directory, each masked that is masked in the window under its name: none is forgotten."""
    own = (step.schema, *(evolution.before for evolution in step.evolutions))
    masks = {column.name: column.mask for schema in own for column in schema.columns if column.mask is not None}
    if not masks:
        return schema
    return replace(schema, columns=tuple(replace(c, mask=c.mask or masks.get(c.name)) for c in schema.columns))


def _changes(changes: tuple[SchemaChange, ...], before: TableSchema, after: TableSchema) -> tuple[SchemaChange, ...]:
    if not before.confidential and not after.confidential:
        return changes
    gone = {c.name for c in before.columns if c.in_lake is None}
    absent = {c.name for c in after.columns if c.in_lake is None}
    columns = {column.name: column for column in after.columns}
    lake_changes: list[SchemaChange] = []
    for change in changes:
        match change:
            case AddColumn(column) | ContinueColumn(column) if column.name in absent:
                continue
            case AddColumn(column, default) | ContinueColumn(column, default) if columns[column.name].mask is not None:
                lake_column, value = _default(columns[column.name], default)
                lake_changes.append(replace(change, column=lake_column, default=value))
            case DropColumn(name) if name in gone:
                continue
            case RenameColumn(old) if old in gone:
                continue
            case SetDefault(name) if name in absent:
                continue
            case SetDefault(name) if columns[name].mask is not None:
                lake_changes.append(SetDefault(name, None))
            case MoveColumns(order):
                lake_changes.append(MoveColumns(tuple(name for name in order if name not in absent)))
            case RetypeColumn(old, new) if columns[new.name].mask is not None:
                lake_changes += _retyped(change, columns[new.name])
            case _:
                lake_changes.append(change)
    return tuple(lake_changes)


def _default(column: Column, default: object) -> tuple[Column, object]:
    """Return the column with its default for rows that are there masked, as it would be in a row that is read."""
    lake_column = column.in_lake
    assert lake_column is not None
    try:
        value = masked_array(default_array(replace(column, mask=None), default, 1), column)[0].as_py()
    except CdcError:
        raise _Unmaskable(
            f'the default of the new column "{column.name}" is none of its type, so the masked values of rows that are '
            "there are not known."
        ) from None
    return lake_column, value


def _retyped(change: RetypeColumn, column: Column) -> Iterator[SchemaChange]:
    """Yield the changes that another type of a masked column makes; raise where its masked values would change."""
    mask, lake_column = column.mask, column.in_lake
    if mask is None or lake_column is None:
        return
    old, new = replace(change.old, mask=mask).in_lake, lake_column
    assert old is not None
    if mask.leaves_types and not mask.types and not same_masked(change.old, change.new):
        raise _Unmaskable(
            f'the column "{column.name}" has another type, and is masked by {mask}: the masked values of rows that are '
            "there would be others, which cannot be made of them."
        )
    if old != new:
        yield RetypeColumn(old, new)
