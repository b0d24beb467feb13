"""Mirrors that mark deleted rows, in Iceberg: rows marked by a DDL, and those that the source has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from cdc_assets.decoding import PLACE
from cdc_assets.decoding.own_columns import OF_DDL
from cdc_assets.formats.decoded import COMMIT_TS
from cdc_assets.lake.commit import CommitTarget
from cdc_assets.lake.key_matching import key_equality
from cdc_assets.lake.spark.session import quoted
from cdc_assets.model.layout import DELETED_AT, INGESTED_AT, LIVING
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.tso import Tso

__all__ = ["after_exchange", "living", "mark_where", "marked", "marks", "marks_deletes"]


def marks_deletes(table: Any) -> bool:
    """Return whether Iceberg's `Table` is a mirror that marks deleted rows."""
    return table.schema().findField(DELETED_AT) is not None


def living(rows: DataFrame) -> DataFrame:
    """Return the rows of a mirror that the source has."""
    return rows.where(LIVING) if DELETED_AT in rows.columns else rows


def marks(columns: Sequence[str], at: Tso) -> dict[str, str]:
    """Return the values, in SQL, of those of the columns that change in a row that a DDL deletes."""
    values = {
        DELETED_AT: f"timestamp_millis({at >> 18})",
        COMMIT_TS: str(at),
        PLACE: f"'{OF_DDL}{at}'",
        INGESTED_AT: "CAST(NULL AS timestamp)",
    }
    return {name: value for name, value in values.items() if name in columns}


def marked(rows: DataFrame, gone: str, at: Tso) -> DataFrame:
    """Return rows of which those that fulfil a condition and live are marked by a DDL."""
    leaves = sql.expr(f"coalesce({gone}, false) AND {LIVING}")

    def value(name: str) -> Column:
        return sql.when(leaves, sql.expr(values[name])).otherwise(sql.col(name)).alias(name)

    values = marks(rows.columns, at)
    return rows.select(*(value(name) if name in values else sql.col(quoted(name)) for name in rows.columns))


def mark_where(target: CommitTarget, conditions: Sequence[str], at: Tso) -> None:
    """Mark the rows for which one of the conditions holds and that live."""
    columns = [field.name() for field in target.table.schema().columns()]
    sets = ", ".join(f"_cdc_t.{name} = {value}" for name, value in marks(columns, at).items())
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
    same = [key_equality(schema.column(name), f"_cdc_s.{quoted(name)}") for name in schema.key]
    places = own.columns
    left = own.where(gone).alias("_cdc_t").join(entering.alias("_cdc_s"), sql.expr(" AND ".join(same)), "left_anti")
    parts = [own.where(f"NOT {gone}"), marked(left, "true", at), entering]
    return reduce(DataFrame.unionByName, [part.select(*map(quoted, places)) for part in parts])
