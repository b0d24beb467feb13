"""Columns that mirrors have by the setting `columns`, in Iceberg: added, dropped, and filled where rows lack them."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from cdc_assets.decoding.lake_columns import mirror_columns
from cdc_assets.decoding.own_columns import OwnColumn
from cdc_assets.features.kinds.decoding import own_columns
from cdc_assets.lake.commit import CommitTarget


def lake_columns_of(table: Any) -> tuple[OwnColumn, ...]:
    """Return the columns that Iceberg's `Table` of a mirror has after those of the source."""
    return mirror_columns("", {field.name() for field in table.schema().columns()})


def own_names(table: Any) -> list[str]:
    """Return the names of the columns that Iceberg's `Table` of a mirror has after those of the source."""
    return [column.name for column in lake_columns_of(table)]


def settled(target: CommitTarget, names: Collection[str]) -> CommitTarget:
    """Give a mirror these optional columns and no others, in a commit of its metadata; return it as it is then.

    Columns that are new are NULL in the rows that are there. A crash behind the commit leaves them so, and the window
    comes again.
    """
    before, wanted = lake_columns_of(target.table), mirror_columns("", names)
    if before == wanted:
        return target
    update = target.table.updateSchema()
    for column in before:
        if column not in wanted:
            update.deleteColumn(column.name)
            target.session.statements.append(f"ALTER TABLE {target.name} DROP COLUMN {column.name}")
    for place, column in enumerate(wanted):
        if column not in before:
            field = {"id": 1, "name": column.name, "required": False, "type": column.iceberg}
            text = json.dumps({"type": "struct", "schema-id": 0, "fields": [field]})
            kind = target.session.iceberg.java("org.apache.iceberg.SchemaParser").fromJson(text).columns().get(0).type()
            update.addColumn(None, column.name, kind, column.doc)
            update.moveAfter(column.name, wanted[place - 1].name)
            target.session.statements.append(f"ALTER TABLE {target.name} ADD COLUMN {column.name} {column.spark}")
    update.commit()
    target.table.refresh()
    return replace(target, schema_id=target.table.schema().schemaId())


def filled(target: CommitTarget, rows: DataFrame) -> DataFrame:
    """Return rows for a mirror with each optional column that it has, NULL where they lack it."""
    for column in lake_columns_of(target.table)[len(own_columns("")) :]:
        if column.name not in rows.columns:
            rows = rows.withColumn(column.name, sql.lit(None).cast(column.spark))
    return rows
