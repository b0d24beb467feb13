"""The log of a table's changes: windows are appended, and what a DDL does to rows is written as changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from cdc_assets.decoding import PLACE
from cdc_assets.decoding.own_columns import ABSENT, CHANGE_TYPE, COMMIT_TIME, OF_DDL, PARTITIONS
from cdc_assets.errors import TableHeld
from cdc_assets.features.kinds.decoding import own_columns
from cdc_assets.formats.decoded import COMMIT_TS, POSITION
from cdc_assets.lake.commit import CommitTarget, DdlStep, MovedRows
from cdc_assets.lake.key_matching import text_literal
from cdc_assets.lake.spark.session import quoted
from cdc_assets.model.reports import AlikeKeys
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.schema_changes import RenameColumn
from cdc_assets.model.steps import ChangeTable, DropTable, ExchangePartition, RecoverTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from cdc_assets.lake.staging.stage import Batch
    from cdc_assets.model.steps import ApplyRows
    from cdc_assets.model.tso import Tso


ASKS = (ChangeTable, DropTable, RecoverTable, ExchangePartition)


def alike_keys(target: CommitTarget, changes: Callable[[], DataFrame], schema: TableSchema) -> AlikeKeys:
    """Return none: no row is found by its key."""
    return AlikeKeys()


def write(target: CommitTarget, changes: DataFrame, step: ApplyRows, batch: Batch) -> int:
    """Append the changes."""
    columns = [sql.col(f"c{place}").alias(column.name) for place, column in enumerate(step.schema.stored)]
    own = [sql.col(column.name) for column in own_columns(step.life.kind)]
    _append(target, changes.select(*columns, *own), "changes")
    return 0


def moved(target: CommitTarget, step: DdlStep, rows: MovedRows) -> Callable[[], None] | None:
    """Append what a DDL does to rows: those that leave as DELETE, those that come as INSERT; else one TRUNCATE.

    One that moves none may give columns other names, which they then have where changes say what they left out.
    """
    ddl_rows, renames = _of_ddl(target, step, rows), _renames(step)
    if ddl_rows is not None:
        return lambda: _append(target, ddl_rows, "the rows that the DDL moves")
    if not renames or target.empty:
        return None
    return lambda: _rename_absent(target, renames)


def begun(target: CommitTarget, at: Tso) -> Callable[[], None] | None:
    """Return None: a log that begins later than its source has no changes from before."""
    return None


def rewritten(target: CommitTarget, step: DdlStep, rows: MovedRows, table: DataFrame) -> DataFrame:
    """Return the changes of the log, and those that the DDL makes."""
    ddl_rows, renames = _of_ddl(target, step, rows), _renames(step)
    if renames:
        table = table.withColumn(ABSENT, sql.expr(_renamed(renames)))
    return table if ddl_rows is None else table.unionByName(_shaped(ddl_rows, table))


def _renames(step: DdlStep) -> dict[str, str]:
    changes = step.changes if isinstance(step, ChangeTable) else ()
    return {change.old: change.new for change in changes if isinstance(change, RenameColumn)}


def _renamed(renames: Mapping[str, str]) -> str:
    """Return the expression of the names of absent columns after a DDL."""
    cases = " ".join(f"WHEN {text_literal(old)} THEN {text_literal(new)}" for old, new in renames.items())
    return f"transform({ABSENT}, name -> CASE name {cases} ELSE name END)"


def _rename_absent(target: CommitTarget, renames: Mapping[str, str]) -> None:
    old = ", ".join(map(text_literal, renames))
    target.session.sql(
        f"UPDATE {target.name} SET {ABSENT} = {_renamed(renames)} WHERE arrays_overlap({ABSENT}, array({old}))"
    )


def _of_ddl(target: CommitTarget, step: DdlStep, rows: MovedRows) -> DataFrame | None:
    is_lacking = isinstance(step, (ExchangePartition, RecoverTable)) and rows.entering is None
    if is_lacking or (isinstance(step, ExchangePartition) and step.partitioned and rows.all_unknown):
        raise TableHeld(
            f"{step.life}: the rows that the DDL of version {step.at} moves are not in the lake as they were, and no "
            "row of the feed tells them. Rebuild it together with a mirror (without mirror: false), which has them.",
            table=str(step.life),
        )
    sides = ((rows.leaving, "DELETE"), (rows.entering, "INSERT"))
    frames = [
        frame.select(*(_column(name) for name in frame.columns if name != COMMIT_TS), *_own(step, word))
        for frame, word in sides
        if frame is not None
    ]
    if rows.all_unknown:
        frames.append(target.session.spark.range(1).select(*_own(step, "TRUNCATE", rows.partitions)))
    if not frames:
        return None
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1], allowMissingColumns=True)


def _own(step: DdlStep, word: str, partitions: Sequence[str] = ()) -> list[Column]:
    """Return the log's own columns for a change that a DDL makes."""
    values = {
        CHANGE_TYPE: sql.lit(word),
        POSITION: sql.lit(step.at),
        COMMIT_TS: sql.lit(step.at),
        COMMIT_TIME: sql.timestamp_millis(sql.lit(step.at >> 18)),
        PLACE: sql.lit(f"{OF_DDL}{step.at}"),
        PARTITIONS: sql.array(*map(sql.lit, partitions)) if partitions else sql.lit(None),
    }
    return [
        values.get(column.name, sql.lit(None)).cast(column.spark).alias(column.name)
        for column in own_columns(step.life.kind)
    ]


def _column(name: str) -> Column:
    return sql.col(quoted(name))


def _append(target: CommitTarget, rows: DataFrame, rows_text: str) -> None:
    """Append rows by the names of their columns."""
    target.session.statements.append(f"INSERT INTO {target.name} SELECT … FROM {rows_text}")
    _shaped(rows, target.session.spark.read.table(target.name)).writeTo(target.name).append()


def _shaped(rows: DataFrame, table: DataFrame) -> DataFrame:
    """Return rows with the columns of a table, by name; those that are not among them are NULL."""
    columns = [
        (_column(field.name) if field.name in rows.columns else sql.lit(None)).cast(field.dataType).alias(field.name)
        for field in table.schema.fields
    ]
    return rows.select(*columns)
