"""Commits to one table: each is guarded, labelled and all there is to see of a step.

    rows        MERGE, or an overwrite of an empty table, as a snapshot that nobody sees yet (write-audit-publish)
    publish     one Java transaction: that snapshot, or one with the label and no files, or with data files that were
                written for an empty table, with schema and properties

What Iceberg validates of a MERGE is its rows only: one that races with a DDL, or with rows of other keys, would go
through. So the guard is in `publish`: it refuses a table whose snapshot or schema is not the one that the step began
with, and its updateSchema makes Iceberg refuse whatever is committed from there on. A crash before it leaves a snapshot
that nothing refers to, which expires as others do.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as sql

from cdc_assets.decoding import COUNT
from cdc_assets.decoding.alike_keys import example_of
from cdc_assets.errors import TableHeld, TableMoved
from cdc_assets.formats import COMMIT_TS, OP, Op
from cdc_assets.lake.names import Identifier
from cdc_assets.lake.spark.session import StepSession, quoted
from cdc_assets.lake.state import Label
from cdc_assets.model.reports import AlikeKeys
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import Predicate
from cdc_assets.model.wording import counted
from cdc_assets.types.mysql_types import arrow_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "Target",
    "alike_keys",
    "columns_of",
    "delete_where",
    "exchange",
    "key_form",
    "merge_rows",
    "net_rows",
    "overwrite",
    "publish",
    "refuse_moved",
    "target",
]


@dataclass(frozen=True, slots=True)
class Target:
    """A table in a step's session: its name in SQL, Iceberg's `Table`, and the state that the step began with."""

    session: StepSession
    identifier: Identifier
    table: Any
    snapshot: int | None
    schema_id: int
    empty: bool

    @property
    def name(self) -> str:
        """The table's name in Spark SQL."""
        return self.session.name(self.identifier)


def target(session: StepSession, identifier: Identifier, table: Any, empty: bool) -> Target:
    """Return a table for a step, as it was just loaded; `empty` is what its metadata file tells."""
    return Target(session, identifier, table, _snapshot_id(table), table.schema().schemaId(), empty)


def _snapshot_id(table: Any) -> int | None:
    snapshot = table.currentSnapshot()
    return None if snapshot is None else int(snapshot.snapshotId())


def publish(
    target: Target,
    label: Label,
    *,
    rows: Callable[[], None] | None = None,
    files: Mapping[str, int] | None = None,
    schema: Callable[[Any], None] | None = None,
    properties: Mapping[str, str] | None = None,
    delete_all: bool = False,
    mark: Mapping[str, str] | None = None,
) -> None:
    """Commit rows, schema, properties and label at once. Raises TableMoved, with nothing done, when the table moved.

    `rows` writes to the table in the step's session; `files` are data files of the table that are written already, with
    their bytes; `schema` is given the transaction. `mark` stands beside the label on the snapshot, where `rows` is not
    given. The snapshot that is main's afterwards has the columns that the table has then.
    """
    staged = _staged(target, label, rows) if rows is not None else None
    work = target.table.newTransaction()  # reads the table's newest state
    refuse_moved(target, work.table())
    before = columns_of(work.table()) if staged is not None and schema is not None else []
    work.updateSchema().commit()
    if schema is not None:
        schema(work)
    if properties:
        update = work.updateProperties()
        for key, value in sorted(properties.items()):
            update.set(key, value)
        update.commit()
    if staged is not None:
        work.manageSnapshots().setCurrentSnapshot(staged).commit()
    if staged is None or (before and columns_of(work.table()) != before):
        # Rows that were written aside have the columns of before, and who reads a table as of a snapshot gets its.
        _mark(target, work, {**label.properties(), **(mark or {})}, files or {}, delete_all)
    work.commitTransaction()


def columns_of(table: Any) -> list[tuple[str, str]]:
    """Return names and types of the columns that Iceberg's `Table` has now."""
    return [(field.name(), field.type().toString()) for field in table.schema().columns()]


def refuse_moved(target: Target, table: Any) -> None:
    """Raise TableMoved when a table, as just loaded, is not what the step began with."""
    if (_snapshot_id(table), table.schema().schemaId()) != (target.snapshot, target.schema_id):
        raise TableMoved(
            f"{target.name}: another writer committed first. Read the progress again and plan again.",
            table=".".join(target.identifier),
        )


def _mark(target: Target, work: Any, said: Mapping[str, str], files: Mapping[str, int], delete_all: bool) -> None:
    """Add a snapshot with these properties: of some files, of none, or one that deletes all rows."""
    if delete_all:
        expressions = target.session.iceberg.java("org.apache.iceberg.expressions.Expressions")
        snapshot = work.newDelete().deleteFromRowFilter(expressions.alwaysTrue())
    else:
        snapshot = work.newFastAppend()
    if files:
        target.session.statements.append(f"APPEND {counted(len(files), 'data file')} TO {target.name}")
    for location, size in files.items():
        snapshot.appendFile(_data_file(target, work.table(), location, size))
    for key, value in said.items():
        snapshot.set(key, value)
    snapshot.commit()


def _data_file(target: Target, table: Any, location: str, size: int) -> Any:
    """Describe a Parquet file as Iceberg does those that it wrote: counts and bounds from the file's own footer."""
    java = target.session.iceberg.java
    file = table.io().newInputFile(location, size)
    config = java("org.apache.iceberg.MetricsConfig").forTable(table)
    metrics = java("org.apache.iceberg.parquet.ParquetUtil").fileMetrics(file, config)
    builder = java("org.apache.iceberg.DataFiles").builder(table.spec()).withInputFile(file).withFormat("parquet")
    return builder.withMetrics(metrics).build()


def _staged(target: Target, label: Label, rows: Callable[[], None]) -> int | None:
    """Write rows as a labelled snapshot beside main, and return it; raises TableHeld where main would take them."""
    if target.table.properties().get("write.wap.enabled") != "true":
        raise TableHeld(
            f"{target.name}: its property write.wap.enabled is not true any more, so rows cannot be written aside and "
            "published in one guarded commit. Set it to true again.",
            table=".".join(target.identifier),
        )
    mark = uuid.uuid4().hex
    target.session.label(label.properties())
    target.session.set("spark.wap.id", mark)
    rows()
    target.table.refresh()
    snapshots = target.table.operations().current().snapshots()
    for position in range(snapshots.size() - 1, -1, -1):
        snapshot = snapshots.get(position)
        if snapshot.summary().get("wap.id") == mark:
            return int(snapshot.snapshotId())
    raise RuntimeError(f"{target.name} has no snapshot of the rows that were just written")


def overwrite(target: Target, rows: DataFrame, told: str) -> None:
    """Replace all rows; `told` is what the journal says of it."""
    target.session.statements.append(told)
    rows.writeTo(target.name).overwrite(sql.lit(True))


# --- rows of a table with a key ---------------------------------------------------------------------------------------


def merge_rows(target: Target, changes: DataFrame, schema: TableSchema, ranges: Mapping[str, tuple[int, int]]) -> None:
    """MERGE reduced changes, whose columns are `c0`, `c1`, … in table order beside OP and COMMIT_TS.

    `ranges` bounds integer key columns over all changes: literals, by which Iceberg skips files.
    """
    changes.createOrReplaceTempView("changes")
    columns = [column.name for column in schema.stored]
    places = {name: f"s.c{position}" for position, name in enumerate(columns)}
    on = [_key_equality(schema.column(name), places[name]) for name in schema.key]
    on += [f"t.{quoted(name)} BETWEEN {low} AND {high}" for name, (low, high) in sorted(ranges.items())]
    sets = ", ".join(f"t.{quoted(name)} = {places[name]}" for name in columns)
    target.session.sql(
        f"MERGE INTO {target.name} t USING changes s ON {' AND '.join(on)} "
        f"WHEN MATCHED AND s.{OP} < 0 THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {sets}, t.{COMMIT_TS} = s.{COMMIT_TS} "
        f"WHEN NOT MATCHED AND s.{OP} > 0 THEN INSERT ({', '.join(map(quoted, columns))}, {COMMIT_TS}) "
        f"VALUES ({', '.join(places.values())}, s.{COMMIT_TS})"
    )


def alike_keys(target: Target, changes: DataFrame, schema: TableSchema) -> AlikeKeys:
    """Count the keys of reduced changes that are new and meet a row whose key only its collation makes equal.

    Nothing is read for a table whose keys compare byte for byte, or where no key of the window is new.
    """
    columns = [(schema.column(name), f"t.{quoted(name)}", _place(schema, name)) for name in schema.key]
    differ = [f"NOT ({ours} <=> {theirs})" for column, ours, theirs in columns if key_form(column, ours) != ours]
    if not differ or target.empty:
        return AlikeKeys()
    new = changes.where(f"{OP} = {int(Op.INSERT)}")
    if new.head() is None:
        return AlikeKeys()
    new.createOrReplaceTempView("new_keys")
    on = " AND ".join(_key_equality(column, theirs) for column, _, theirs in columns)
    places = ", ".join(theirs for _, _, theirs in columns)
    found = target.session.spark.sql(
        f"SELECT count(*), min(struct({places})) FROM {target.name} t JOIN new_keys s ON {on} "
        f"WHERE {' OR '.join(differ)}"
    ).head()
    return AlikeKeys(found[0], example_of(found[1])) if found is not None and found[0] else AlikeKeys()


def _place(schema: TableSchema, name: str) -> str:
    return f"s.c{[column.name for column in schema.stored].index(name)}"


def _key_equality(column: Column, place: str) -> str:
    ours, theirs = key_form(column, f"t.{quoted(column.name)}"), key_form(column, place)
    return f"{ours} {'<=>' if column.nullable else '='} {theirs}"


def key_form(column: Column, place: str) -> str:
    """Return the SQL expression by which a key column's values are equal: its collation's normal form."""
    from cdc_assets.types.collations import is_plain, spark_normal_form

    collation = column.compares_by
    if not collation or is_plain(collation) or not pa.types.is_string(arrow_type(column)):
        return place
    return str(spark_normal_form(place, collation))


# --- rows of a table without a key ------------------------------------------------------------------------------------


def net_rows(target: Target, changes: DataFrame, schema: TableSchema, table: str) -> None:
    """Let COUNT equal rows enter (> 0) or leave (< 0) for each row of `changes`; which of equal rows leave is all one.

    Raises TableHeld when there are fewer equal rows than are to leave.
    """
    session, columns = target.session, [column.name for column in schema.stored]
    places = [f"c{position}" for position in range(len(columns))]
    changes.createOrReplaceTempView("changes")
    same = " AND ".join(f"t.{quoted(name)} <=> d.{place}" for name, place in zip(columns, places, strict=True))
    by = ", ".join(f"d.{place}" for place in places)
    session.spark.sql(
        f"SELECT d.{COUNT} AS n, t._file AS f, t._pos AS p, "
        f"row_number() OVER (PARTITION BY {by} ORDER BY t._file, t._pos) AS r FROM {target.name} t "
        f"JOIN (SELECT * FROM changes WHERE {COUNT} < 0) d ON {same}"
    ).where("r <= -n").createOrReplaceTempView("leaving")
    _refuse_missing(session, table)
    values = ", ".join(f"s.{place}" for place in places)
    nulls = ", ".join(f"NULL AS {place}" for place in places)
    session.sql(
        f"MERGE INTO {target.name} t USING ("
        f"SELECT f, p, {nulls}, NULL AS ts FROM leaving UNION ALL "
        f"SELECT NULL, NULL, {', '.join(places)}, {COMMIT_TS} FROM "
        f"(SELECT *, explode(sequence(1L, {COUNT})) FROM changes WHERE {COUNT} > 0)) s "
        "ON t._file = s.f AND t._pos = s.p WHEN MATCHED THEN DELETE "
        f"WHEN NOT MATCHED THEN INSERT ({', '.join(map(quoted, columns))}, {COMMIT_TS}) VALUES ({values}, s.ts)"
    )


def _refuse_missing(session: StepSession, table: str) -> None:
    """Compare how many are to leave with how many were found, on the state that the commit is validated against."""
    due = session.spark.sql(f"SELECT coalesce(sum(-{COUNT}), 0) FROM changes WHERE {COUNT} < 0").head()
    found = session.spark.sql("SELECT count(*) FROM leaving").head()
    assert due is not None
    assert found is not None
    if due[0] != found[0]:
        raise TableHeld(
            f"{table} has no key, and {due[0] - found[0]} of {due[0]} deleted rows equal no row of the lake table. "
            "Rows of it are missing: are they in quarantine (then replay them), was the changefeed started later than "
            "the table, or were files removed? Else rebuild the table from a changefeed that has all of its rows.",
            table=table,
        )


# --- rows by a condition ----------------------------------------------------------------------------------------------


def sql_condition(target: Target, predicate: Predicate) -> str:
    """Return a condition as Spark SQL over the table's columns, or over equal ones of another table."""
    from cdc_assets.ddl import spark_sql

    columns = target.table.schema().columns()
    return str(spark_sql(predicate, {one.name() for one in columns if one.type().toString() == "int"}))


def refuse_undated(rows: DataFrame, predicates: Iterable[Predicate], table: str) -> None:
    """Raise TableHeld when a row has no value in a date that one of the conditions uses."""
    from cdc_assets.ddl import spark_sql, undated, undated_rows

    for predicate in predicates:
        missing = undated(predicate)
        if missing is not None and rows.where(spark_sql(missing)).head() is not None:
            raise undated_rows(table, predicate)


def delete_where(target: Target, predicates: Sequence[Predicate]) -> None:
    """Delete rows for which one of the predicates holds. As MERGE: a `DELETE FROM` may drop the label."""
    condition = " OR ".join(f"({sql_condition(target, predicate)})" for predicate in predicates)
    target.session.sql(f"MERGE INTO {target.name} USING (SELECT 1 AS _cdc_one) ON {condition} WHEN MATCHED THEN DELETE")


def exchange(target: Target, entering: DataFrame, schema: TableSchema, predicate: Predicate) -> None:
    """In one MERGE, delete the rows that satisfy the predicate and insert `entering` (the table's columns, by name)."""
    names = [*(column.name for column in schema.stored), COMMIT_TS]
    places = [f"c{position}" for position in range(len(names))]
    entering.select(*map(quoted, names)).toDF(*places).createOrReplaceTempView("entering")
    nulls = ", ".join(f"NULL AS {place}" for place in places)
    values = ", ".join(f"s.{place}" for place in places)
    target.session.sql(
        f"MERGE INTO {target.name} t USING ("
        f"SELECT 1 AS _cdc_leaves, {nulls} UNION ALL SELECT NULL, {', '.join(places)} FROM entering) s "
        f"ON CASE WHEN {sql_condition(target, predicate)} THEN 1 END = s._cdc_leaves WHEN MATCHED THEN DELETE "
        f"WHEN NOT MATCHED AND s._cdc_leaves IS NULL THEN INSERT ({', '.join(map(quoted, names))}) VALUES ({values})"
    )
