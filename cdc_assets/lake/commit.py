"""Commits to one table: each is guarded and labelled, and is a step's only visible effect.

    rows        written by the writer of the table's kind, as a snapshot that is not visible yet (write-audit-publish)
    publish     one Java transaction: that snapshot, or one with the label and no files, or with files that are written
                already (the first rows of an empty table, the row delta of a small window), with schema and properties

Iceberg validates only the rows of a MERGE: one that races with a DDL, or with rows of other keys, would be committed.
So the guard is in `publish`: it refuses a table whose snapshot or schema is not the one that the step began with, and
its updateSchema makes Iceberg refuse whatever is committed after the state on which the transaction began. A crash
before it leaves an unreferenced snapshot, which expires like any other.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sql

from cdc_assets.errors import TableHeld, TableMoved
from cdc_assets.history.policies import WAYS, ways_out
from cdc_assets.lake.label import Label
from cdc_assets.lake.layout import partition_data
from cdc_assets.lake.names import Identifier
from cdc_assets.lake.spark.session import StepSession, quoted
from cdc_assets.model.progress import MissingRows
from cdc_assets.model.schema_changes import Predicate
from cdc_assets.model.steps import ChangeTable, DropTable, ExchangePartition, RecoverTable
from cdc_assets.model.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc_assets.lake.staging.tasks import DataFileWritten


DdlStep = ChangeTable | DropTable | ExchangePartition | RecoverTable
"""Steps that may move rows without row events."""


@dataclass(frozen=True, slots=True)
class CommitTarget:
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


@dataclass(frozen=True, slots=True)
class RowDelta:
    """Data files and deletion vectors to add, and vectors to remove, as Iceberg's API has them.

    `missing` are rows that its changes need and the table does not have.
    """

    files: Sequence[Any]
    vectors: Sequence[Any]
    replaced: Sequence[Any]
    missing: MissingRows | None = None


@dataclass(frozen=True, slots=True)
class MovedRows:
    """The rows that leave and enter a history table by a DDL, without row events, in its columns.

    They are those of mirrors as they were before it.
    Those `leaving` and `entering` are None where no rows move that way, and where no mirror has them: `all_unknown`
    says that some leave then. `partitions` are named by the DDL, where it does.
    """

    leaving: DataFrame | None = None
    entering: DataFrame | None = None
    all_unknown: bool = False
    partitions: Sequence[str] = ()


def target(session: StepSession, identifier: Identifier, table: Any, empty: bool) -> CommitTarget:
    """Return a table for a step, as it was just loaded; `empty` comes from its metadata file."""
    return CommitTarget(session, identifier, table, _snapshot_id(table), table.schema().schemaId(), empty)


def _snapshot_id(table: Any) -> int | None:
    snapshot = table.currentSnapshot()
    return None if snapshot is None else int(snapshot.snapshotId())


def publish(
    target: CommitTarget,
    label: Label,
    *,
    rows: Callable[[], None] | None = None,
    files: Sequence[DataFileWritten] = (),
    delta: RowDelta | None = None,
    schema: Callable[[Any], None] | None = None,
    properties: Mapping[str, str | None] | None = None,
    delete_all: bool = False,
    mark: Mapping[str, str] | None = None,
) -> None:
    """Commit rows, schema, properties and label at once. Raises TableMoved, with nothing done, if the table moved.

    `rows` writes to the table in the step's session; `files` are data files of the table that are already written, and
    `delta` what else is; `schema` is called with the transaction; `properties` that are None are removed. `mark` are
    properties beside the label on the snapshot. Main's snapshot afterwards has the table's new columns.
    """
    summary = {**label.properties(), **(mark or {})}
    if rows is None:
        staged, work = None, target.session.iceberg.transaction(target.table)
    else:
        mark_aside = _staged(target, {} if files else summary, rows)
        work = target.table.newTransaction()  # reads the table's newest state
        staged = _snapshot_of(work, mark_aside)
    guard(target, work)
    before = columns_of(work.table()) if staged is not None and schema is not None else []
    if schema is not None:
        schema(work)
    if properties:
        set_properties(work, properties)
    if staged is not None:
        work.manageSnapshots().setCurrentSnapshot(staged).commit()
    if staged is None or files or (before and columns_of(work.table()) != before):
        # Rows that were written aside have the old columns, and a reader as of a snapshot gets that snapshot's columns.
        _mark(target, work, summary, files, delta, delete_all)
    work.commitTransaction()


def set_properties(work: Any, properties: Mapping[str, str | None]) -> None:
    """Set properties of a transaction's table; those that are None are removed."""
    update = work.updateProperties()
    for key, value in sorted(properties.items()):
        if value is None:
            update.remove(key)
        else:
            update.set(key, value)
    update.commit()


def columns_of(table: Any) -> list[tuple[str, str]]:
    """Return names and types of the columns that Iceberg's `Table` has now."""
    return [(field.name(), field.type().toString()) for field in table.schema().columns()]


def guard(target: CommitTarget, work: Any) -> None:
    """Raise TableMoved if a transaction's table is not what the step began with; Iceberg refuses later commits."""
    refuse_moved(target, work.table())
    work.updateSchema().commit()


def refuse_moved(target: CommitTarget, table: Any) -> None:
    """Raise TableMoved if a table, as just loaded, is not what the step began with."""
    if (_snapshot_id(table), table.schema().schemaId()) != (target.snapshot, target.schema_id):
        raise TableMoved(
            f"{target.name}: another writer committed first. Read the progress again and plan again.",
            table=".".join(target.identifier),
        )


def _mark(
    target: CommitTarget,
    work: Any,
    summary: Mapping[str, str],
    files: Sequence[DataFileWritten],
    delta: RowDelta | None,
    delete_all: bool,
) -> None:
    """Add a snapshot with these properties: of some files, of none, of a row delta, or one that deletes all rows."""
    if delete_all:
        expressions = target.session.iceberg.java("org.apache.iceberg.expressions.Expressions")
        snapshot = work.newDelete().deleteFromRowFilter(expressions.alwaysTrue())
    elif delta is not None:
        snapshot = work.newRowDelta().validateFromSnapshot(target.snapshot)
        for add, added in ((snapshot.addRows, delta.files), (snapshot.addDeletes, delta.vectors)):
            for file in added:
                add(file)
        for file in delta.replaced:
            snapshot.removeDeletes(file)
    else:
        snapshot = work.newFastAppend()
    if files:
        target.session.statements.append(f"APPEND {counted(len(files), 'data file')} TO {target.name}")
    add = snapshot.appendFile if delta is None else snapshot.addRows
    for file in files:
        add(data_file(target, work.table(), file))
    for key, value in summary.items():
        snapshot.set(key, value)
    snapshot.commit()


def data_file(target: CommitTarget, table: Any, written: DataFileWritten, spec: Any = None) -> Any:
    """Describe a Parquet file as Iceberg describes its own: counts and bounds from the file's footer.

    `spec` is that of its partition, the table's present one where none is given.
    """
    java = target.session.iceberg.java
    file = table.io().newInputFile(written.location, written.file_bytes)
    config = java("org.apache.iceberg.MetricsConfig").forTable(table)
    metrics = java("org.apache.iceberg.parquet.ParquetUtil").fileMetrics(file, config)
    builder = java("org.apache.iceberg.DataFiles").builder(spec or table.spec())
    builder = builder.withInputFile(file).withFormat("parquet")
    if written.partition:
        builder = builder.withPartition(partition_data(target.session, spec or table.spec(), written.partition))
    return builder.withMetrics(metrics).build()


def _staged(target: CommitTarget, summary: Mapping[str, str], rows: Callable[[], None]) -> str:
    """Write rows as a snapshot with these properties beside main, and return its `wap.id`.

    Raises TableHeld if main would get the rows at once.
    """
    if target.table.properties().get("write.wap.enabled") != "true":
        raise TableHeld(
            f"{target.name}: its property write.wap.enabled is no longer true, so rows cannot be written aside and "
            "published in one guarded commit. Set it to true again.",
            table=".".join(target.identifier),
        )
    mark = uuid.uuid4().hex
    target.session.label(summary)
    target.session.set("spark.wap.id", mark)
    rows()
    return mark


def _snapshot_of(work: Any, mark: str) -> int:
    """Return the snapshot with that `wap.id` in the state that a transaction began with."""
    snapshots = work.startMetadata().snapshots()
    for position in range(snapshots.size() - 1, -1, -1):
        snapshot = snapshots.get(position)
        if snapshot.summary().get("wap.id") == mark:
            return int(snapshot.snapshotId())
    raise RuntimeError(f"{work.tableName()} has no snapshot of the rows that were just written")


def expire(table: Any, snapshots: Iterable[int]) -> None:
    """Expire exactly these snapshots of Iceberg's `Table`, with the files that only they refer to."""
    chosen = set(snapshots)
    if chosen:
        expiring = table.expireSnapshots().expireOlderThan(1)  # else those above Iceberg's default age expire too
        for snapshot_id in chosen:
            expiring = expiring.expireSnapshotId(snapshot_id)
        expiring.commit()


def overwrite(target: CommitTarget, rows: DataFrame, statement: str) -> None:
    """Replace all rows; `statement` is its text for the journal."""
    target.session.statements.append(statement)
    rows.writeTo(target.name).overwrite(sql.lit(True))


# --- rows by a condition ----------------------------------------------------------------------------------------------


def sql_condition(target: CommitTarget, predicate: Predicate) -> str:
    """Return a condition as Spark SQL over the table's columns, or over equal ones of another table."""
    from cdc_assets.ddl import spark_sql

    columns = target.table.schema().columns()
    return str(spark_sql(predicate, {column.name() for column in columns if column.type().toString() == "int"}))


def refuse_undated(rows: DataFrame, predicates: Iterable[Predicate], step: ChangeTable | ExchangePartition) -> None:
    """Raise TableHeld when a row has no value in a date that one of the conditions uses."""
    from cdc_assets.ddl import spark_sql, undated, undated_rows

    for predicate in predicates:
        missing = undated(predicate)
        if missing is not None and rows.where(spark_sql(missing)).head() is not None:
            raise undated_rows(str(step.life), predicate, ways_out(step.life, step.at, WAYS))


def delete_where(target: CommitTarget, conditions: Sequence[str]) -> None:
    """Delete rows for which one of the conditions holds. As MERGE: a `DELETE FROM` may drop the label."""
    condition = " OR ".join(f"({condition})" for condition in conditions)
    target.session.sql(f"MERGE INTO {target.name} USING (SELECT 1 AS _cdc_one) ON {condition} WHEN MATCHED THEN DELETE")


def exchange(target: CommitTarget, entering: DataFrame, predicate: Predicate) -> None:
    """Delete the rows that satisfy the predicate and insert `entering` in one MERGE (the table's columns, by name)."""
    names = entering.columns
    places = [f"_cdc_c{position}" for position in range(len(names))]
    entering.toDF(*places).createOrReplaceTempView("entering")
    nulls = ", ".join(f"NULL AS {place}" for place in places)
    values = ", ".join(f"_cdc_s.{place}" for place in places)
    target.session.sql(
        f"MERGE INTO {target.name} _cdc_t USING ("
        f"SELECT 1 AS _cdc_leaves, {nulls} UNION ALL SELECT NULL, {', '.join(places)} FROM entering) _cdc_s "
        f"ON CASE WHEN {sql_condition(target, predicate)} THEN 1 END = _cdc_s._cdc_leaves WHEN MATCHED THEN DELETE "
        f"WHEN NOT MATCHED AND _cdc_s._cdc_leaves IS NULL "
        f"THEN INSERT ({', '.join(map(quoted, names))}) VALUES ({values})"
    )
