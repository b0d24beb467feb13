"""Columns of mirrors by settings, in Iceberg: added, dropped, filled where rows lack them; rows marked by a DDL."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from cdc_assets.decoding import PLACE
from cdc_assets.decoding.own_columns import OF_DDL, OwnColumn
from cdc_assets.features.columns.decoding import OPTIONAL, mirror_columns
from cdc_assets.features.kinds.decoding import own_columns
from cdc_assets.formats.decoded import COMMIT_TS
from cdc_assets.lake.commit import CommitTarget
from cdc_assets.lake.key_matching import key_equality
from cdc_assets.lake.spark.session import quoted
from cdc_assets.model.layout import DELETED_AT, INGESTED_AT, LIVING
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.tso import Tso


def lake_columns_of(table: Any) -> tuple[OwnColumn, ...]:
    """Return the columns that Iceberg's `Table` of a mirror has after those of the source."""
    schema = table.schema()
    return mirror_columns("", {column.name for column in OPTIONAL if schema.findField(column.name) is not None})


def own_names(table: Any) -> list[str]:
    """Return the names of the columns that Iceberg's `Table` of a mirror has after those of the source."""
    return [column.name for column in lake_columns_of(table)]


def set_lake_columns(target: CommitTarget, names: Collection[str]) -> CommitTarget:
    """Give a mirror these optional columns and no others, in a commit of its metadata; return it as it is then.

    Columns that are new are NULL in the rows that are there. A crash behind the commit leaves them so, and the window
    comes again.
    """
    before, after = lake_columns_of(target.table), mirror_columns("", names)
    if before == after:
        return target
    update = target.table.updateSchema()
    for column in before:
        if column not in after:
            update.deleteColumn(column.name)
            target.session.statements.append(f"ALTER TABLE {target.name} DROP COLUMN {column.name}")
    for place, column in enumerate(after):
        if column not in before:
            field = {"id": 1, "name": column.name, "required": False, "type": column.iceberg}
            text = json.dumps({"type": "struct", "schema-id": 0, "fields": [field]})
            kind = target.session.iceberg.java("org.apache.iceberg.SchemaParser").fromJson(text).columns().get(0).type()
            update.addColumn(None, column.name, kind, column.doc)
            update.moveAfter(column.name, after[place - 1].name)
            target.session.statements.append(f"ALTER TABLE {target.name} ADD COLUMN {column.name} {column.spark}")
    update.commit()
    target.table.refresh()
    return replace(target, schema_id=target.table.schema().schemaId())


def with_missing_columns(target: CommitTarget, rows: DataFrame) -> DataFrame:
    """Return rows for a mirror with each optional column that it has, NULL where they lack it."""
    for column in lake_columns_of(target.table)[len(own_columns("")) :]:
        if column.name not in rows.columns:
            rows = rows.withColumn(column.name, sql.lit(None).cast(column.spark))
    return rows


def marks_deletes(table: Any) -> bool:
    """Return whether Iceberg's `Table` is a mirror that marks deleted rows."""
    return table.schema().findField(DELETED_AT) is not None


def living_rows(rows: DataFrame) -> DataFrame:
    """Return the rows of a mirror that the source has."""
    return rows.where(LIVING) if DELETED_AT in rows.columns else rows


def mark_values(columns: Sequence[str], at: Tso) -> dict[str, str]:
    """Return the values, in SQL, of those of the columns that change in a row that a DDL deletes."""
    values = {
        DELETED_AT: f"timestamp_millis({at >> 18})",
        COMMIT_TS: str(at),
        PLACE: f"'{OF_DDL}{at}'",
        INGESTED_AT: "CAST(NULL AS timestamp)",
    }
    return {name: value for name, value in values.items() if name in columns}


def mark_rows(rows: DataFrame, gone: str, at: Tso) -> DataFrame:
    """Return rows of which those that fulfil a condition and live are marked by a DDL."""
    leaves = sql.expr(f"coalesce({gone}, false) AND {LIVING}")

    def value(name: str) -> Column:
        return sql.when(leaves, sql.expr(values[name])).otherwise(sql.col(name)).alias(name)

    values = mark_values(rows.columns, at)
    return rows.select(*(value(name) if name in values else sql.col(quoted(name)) for name in rows.columns))


def mark_where(target: CommitTarget, conditions: Sequence[str], at: Tso) -> None:
    """Mark the rows for which one of the conditions holds and that live."""
    columns = [field.name() for field in target.table.schema().columns()]
    sets = ", ".join(f"_cdc_t.{name} = {value}" for name, value in mark_values(columns, at).items())
    condition = " OR ".join(f"({condition})" for condition in conditions)
    target.session.sql(
        f"MERGE INTO {target.name} _cdc_t USING (SELECT 1 AS _cdc_one) ON ({condition}) AND _cdc_t.{LIVING} "
        f"WHEN MATCHED THEN UPDATE SET {sets}"
    )


def after_exchange(own: DataFrame, entering: DataFrame, leaves: str, schema: TableSchema, at: Tso) -> DataFrame:
    """Return all rows of a mirror after an exchange: those that leave stay marked, but for keys that come.

    A key that comes may be that of a row that was marked in another partition: columns of the setting `keys` need not
    say in which one a row is.
    """
    gone = f"(coalesce({leaves}, false) OR NOT {LIVING})"
    key_conditions = [key_equality(schema.column(name), f"_cdc_s.{quoted(name)}") for name in schema.key]
    places = own.columns
    marked = (
        own.where(gone)
        .alias("_cdc_t")
        .join(entering.alias("_cdc_s"), sql.expr(" AND ".join(key_conditions)), "left_anti")
    )
    parts = [own.where(f"NOT {gone}"), mark_rows(marked, "true", at), entering]
    return reduce(DataFrame.unionByName, [part.select(*map(quoted, places)) for part in parts])
