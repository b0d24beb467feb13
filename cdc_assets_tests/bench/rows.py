"""The right rows, by DuckDB from the same files; and whether a lake's table has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb as duck
import pyarrow as pa

from cdc_assets.lake.state import LakeState
from cdc_assets.model.schema import Column
from cdc_assets.model.tso import Tso
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.bench.feeds import Feed

__all__ = [
    "Fingerprint",
    "duck",
    "fingerprint",
    "fingerprint_of_files",
    "fingerprint_of_lake",
    "fingerprint_of_rows",
    "last_changes_sql",
    "rows_of_lake",
    "spark_type_of",
    "write_last_changes",
]

Fingerprint = tuple[int, str]
"""Count of rows, and the sum of their hashes."""

_TYPES = {"INT": "INTEGER", "DATETIME": "TIMESTAMP", "TIMESTAMP": "TIMESTAMP", "CHAR": "VARCHAR"}


def duck_type_of(column: Column) -> str:
    """Return DuckDB's type for a bench column."""
    if column.type == "DECIMAL":
        return f"DECIMAL({column.precision},{column.scale})"
    return "BIGINT" if column.unsigned else _TYPES.get(column.type, column.type)


def spark_type_of(column: Column) -> str:
    """Return Spark's type for a bench column."""
    name = duck_type_of(column)
    return {"VARCHAR": "STRING", "INTEGER": "INT"}.get(name, "TIMESTAMP_NTZ" if column.type == "DATETIME" else name)


def last_changes_sql(feed: Feed, files: Sequence[Path], deletes: bool = False, through: Tso | None = None) -> str:
    """Return the query of the last change of each key: op, ts and the columns; deleted keys only with `deletes`.

    Of changes above `through` it knows nothing.
    """
    known = "" if through is None else f" WHERE ts <= {through}"
    heads = {"op": "VARCHAR", "t": "VARCHAR", "s": "VARCHAR", "ts": "BIGINT"}
    heads |= {column.name: duck_type_of(column) for column in feed.schema}
    listed = ", ".join(f"'{path}'" for path in files)
    return (
        f"SELECT * EXCLUDE (t, s, n) FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY ts DESC) AS n FROM "
        f"read_csv([{listed}], columns={heads}, header=false, delim=',', quote='\"', escape='\"', nullstr='\\N', "
        f"auto_detect=false, new_line='\\r\\n', allow_quoted_nulls=false){known}) WHERE n = 1"
        + ("" if deletes else " AND op <> 'D'")
    )


def write_last_changes(feed: Feed, target: Path, *, deletes: bool = False, files: Sequence[Path] = ()) -> None:
    """Write the last change of each key as Parquet."""
    with duck.connect() as connection:
        query = last_changes_sql(feed, files or feed.files(), deletes)
        connection.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet)")


def fingerprint_of_files(feed: Feed, table: int = 0, through: Tso | None = None, stamped: bool = True) -> Fingerprint:
    """What the table must hold, through a checkpoint if one is given, as DuckDB reads it from the feed's CSV files.

    `stamped` rows count with their commit-ts.
    """
    with duck.connect() as connection:
        source = f"({last_changes_sql(feed, feed.files(table), through=through)})"
        return fingerprint(connection, feed, source, stamped)


def fingerprint_of_lake(
    feed: Feed, lake: LakeSettings, table: int = 0, kind: str = "", stamped: bool = True
) -> Fingerprint:
    """What the lake's table holds, read without Spark; of a history table what the rows are now."""
    return fingerprint_of_rows(feed, rows_of_lake(feed, lake, table, kind), kind, stamped)


def rows_of_lake(feed: Feed, lake: LakeSettings, table: int = 0, kind: str = "") -> pa.Table:
    """Return the rows of the lake's table, read without Spark."""
    state, name = LakeState(lake, feed.settings.name), feed.name(table)
    held = state.read(replace(name, table=f"{name.table}__{kind}") if kind else name)
    state.close()
    return held


_NOW = {
    "": "SELECT * FROM held",
    "scd2": "SELECT * FROM held WHERE _cdc_end_ts IS NULL",
    "log": "SELECT * FROM (SELECT * FROM held QUALIFY row_number() OVER (PARTITION BY id ORDER BY ts DESC, "
    "_change_type IN ('DELETE', 'UPDATE_BEFORE')) = 1) WHERE _change_type NOT IN ('DELETE', 'UPDATE_BEFORE')",
}
"""The rows as they are now, by the kind of a table."""


def fingerprint_of_rows(feed: Feed, held: pa.Table, kind: str = "", stamped: bool = True) -> Fingerprint:
    """What rows of a lake table are, if they are `stamped` with their commit-ts."""
    rows = held.rename_columns(["ts" if name == "_cdc_commit_ts" else name for name in held.column_names])
    fields = [
        pa.field(field.name, pa.timestamp("us") if pa.types.is_timestamp(field.type) else field.type)
        for field in rows.schema
    ]
    rows = rows.cast(pa.schema(fields))
    with duck.connect() as connection:
        connection.register("held", rows)
        return fingerprint(connection, feed, f"({_NOW[kind]})", stamped)


def fingerprint(connection: duck.DuckDBPyConnection, feed: Feed, source: str, stamped: bool = True) -> Fingerprint:
    """What the rows of a query are that gives the columns of a feed's table and `ts`, which is of `stamped` rows."""
    columns = ", ".join(f"{column.name}::{duck_type_of(column)}" for column in feed.schema)
    row = connection.execute(
        f"SELECT count(*), sum(hash({'ts' if stamped else '0'}, {columns})::HUGEINT) FROM {source}"
    ).fetchone()
    assert row is not None
    return int(row[0]), str(row[1])
