"""Tables with a key: a MERGE, or for an empty table an overwrite."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as sql

from cdc_assets.decoding.patches import lost_row
from cdc_assets.formats import COMMIT_TS, OP, UNCHANGED, Op
from cdc_assets.lake.commit import Target, overwrite
from cdc_assets.lake.spark.session import quoted
from cdc_assets.lake.staging.stage import Batch
from cdc_assets.model.reports import AlikeKeys
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.steps import ApplyRows
from cdc_assets.types.collations import is_plain, spark_normal_form
from cdc_assets.types.mysql_types import arrow_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["alike_keys", "write"]


def write(target: Target, changes: DataFrame, step: ApplyRows, batch: Batch) -> None:
    """Insert, update or delete the row of each key of the changes."""
    if batch.patches:
        _refuse_lost(target, changes, step)
    if not target.empty:
        _merge(target, changes, step.schema, batch)
        return
    names = [column.name for column in step.schema.stored]
    columns = [sql.col(f"c{position}").alias(name) for position, name in enumerate(names)]
    entering = changes.where(f"{OP} > 0").select(*columns, COMMIT_TS)
    overwrite(target, entering, f"INSERT OVERWRITE {target.name} SELECT … FROM changes")


def alike_keys(target: Target, changes: Callable[[], DataFrame], schema: TableSchema) -> AlikeKeys:
    """Count the new keys of reduced changes that equal a row's key by collation only.

    Nothing is read for a table whose keys compare byte for byte, or if no key of the window is new.
    """
    columns = [(schema.column(name), f"t.{quoted(name)}", _place(schema, name)) for name in schema.key]
    differ = [f"NOT ({ours} <=> {theirs})" for column, ours, theirs in columns if _key_form(column, ours) != ours]
    if not differ or target.empty:
        return AlikeKeys()
    new = changes().where(f"{OP} = {int(Op.INSERT)}")
    if new.head() is None:
        return AlikeKeys()
    new.createOrReplaceTempView("new_keys")
    on = " AND ".join(_key_equality(column, theirs) for column, _, theirs in columns)
    places = ", ".join(theirs for _, _, theirs in columns)
    found = target.session.spark.sql(
        f"SELECT count(*), min(struct({places})) FROM {target.name} t JOIN new_keys s ON {on} "
        f"WHERE {' OR '.join(differ)}"
    ).head()
    return AlikeKeys.such_as(found[0], found[1]) if found is not None and found[0] else AlikeKeys()


def _refuse_lost(target: Target, changes: DataFrame, step: ApplyRows) -> None:
    """Refuse patches whose row is not there and that cannot make one; raises TableHeld."""
    schema = step.schema
    changes.where(f"{UNCHANGED} IS NOT NULL AND {OP} = {int(Op.UPDATE)}").createOrReplaceTempView("patches")
    on = " AND ".join(_key_equality(schema.column(name), _place(schema, name)) for name in schema.key)
    key = ", ".join(_place(schema, name) for name in schema.key)
    there = "" if target.empty else f"WHERE NOT EXISTS (SELECT 1 FROM {target.name} t WHERE {on})"
    found = target.session.spark.sql(f"SELECT count(*), min(struct({key})) FROM patches s {there}").head()
    if found is not None and found[0]:
        raise lost_row(str(step.life), found[0], tuple(found[1]))


def _merge(target: Target, changes: DataFrame, schema: TableSchema, batch: Batch) -> None:
    """MERGE reduced changes, whose columns are `c0`, `c1`, … in table order beside OP and COMMIT_TS.

    `ranges` of the batch bounds integer key columns over all changes: literals, by which Iceberg skips files. A column
    that a patch leaves out keeps the table's value.
    """
    changes.createOrReplaceTempView("changes")
    columns = [column.name for column in schema.stored]
    places = {name: f"s.c{position}" for position, name in enumerate(columns)}
    on = [_key_equality(schema.column(name), places[name]) for name in schema.key]
    on += [f"t.{quoted(name)} BETWEEN {low} AND {high}" for name, (low, high) in sorted(batch.ranges.items())]
    values = dict(places)
    if batch.patches:
        for name in set(columns) - set(schema.key):
            same = f"coalesce(array_contains(s.{UNCHANGED}, {_text(name)}), false)"
            values[name] = f"CASE WHEN {same} THEN t.{quoted(name)} ELSE {places[name]} END"
    sets = ", ".join(f"t.{quoted(name)} = {values[name]}" for name in columns)
    target.session.sql(
        f"MERGE INTO {target.name} t USING changes s ON {' AND '.join(on)} "
        f"WHEN MATCHED AND s.{OP} < 0 THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {sets}, t.{COMMIT_TS} = s.{COMMIT_TS} "
        f"WHEN NOT MATCHED AND s.{OP} > 0 THEN INSERT ({', '.join(map(quoted, columns))}, {COMMIT_TS}) "
        f"VALUES ({', '.join(places.values())}, s.{COMMIT_TS})"
    )


def _text(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _place(schema: TableSchema, name: str) -> str:
    return f"s.c{[column.name for column in schema.stored].index(name)}"


def _key_equality(column: Column, place: str) -> str:
    ours, theirs = _key_form(column, f"t.{quoted(column.name)}"), _key_form(column, place)
    return f"{ours} {'<=>' if column.nullable else '='} {theirs}"


def _key_form(column: Column, place: str) -> str:
    """Return the SQL expression by which a key column's values are equal: its collation's normal form."""
    collation = column.compares_by
    if not collation or is_plain(collation) or not pa.types.is_string(arrow_type(column)):
        return place
    return str(spark_normal_form(place, collation))
