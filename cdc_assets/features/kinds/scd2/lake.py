"""The states of rows: one MERGE ends those that are open and adds those that begin.

The table has two partitions (`PARTITION` of the kind): the states that are open, and those that have ended, whose files
no window reads. A state that would have no length, since something else happened at the position at which it began, is
removed.

    write     the states of a window's changes
    moved     what a DDL does to states: those of rows that go end there, those of rows that come begin
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sql

from cdc_assets.decoding.moved import BASE
from cdc_assets.decoding.patches import lost_row
from cdc_assets.decoding.states import END_AT, END_TS, FIRST, LANDED, START_AT, START_TS, tracked
from cdc_assets.decoding.upgrade import default_array
from cdc_assets.errors import TableHeld
from cdc_assets.formats.decoded import COMMIT_TS, OP, UNCHANGED, Op
from cdc_assets.lake.commit import CommitTarget, DdlStep, MovedRows, overwrite, refuse_undated, sql_condition
from cdc_assets.lake.key_matching import key_equality, place_of, text_literal
from cdc_assets.lake.label import Label
from cdc_assets.lake.spark.session import quoted
from cdc_assets.model.reports import AlikeKeys
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.schema_changes import ContinueColumn, DeleteRows, Rekey
from cdc_assets.model.steps import ChangeTable, DropTable, ExchangePartition, RecoverTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc_assets.lake.staging.stage import Batch
    from cdc_assets.model.steps import ApplyRows
    from cdc_assets.model.tso import Tso

ASKS = (ExchangePartition,)

_FOUND, _SAME, _ENDS = "_cdc_found", "_cdc_same", "_cdc_ends"
_FEW = 500_000
"""Up to so many changes are sent to every task, and the table's rows stay where they are read."""
_OPEN = f"{END_TS} IS NULL"
_MOMENTS = (START_AT, END_AT, START_TS, END_TS)


def alike_keys(target: CommitTarget, changes: Callable[[], DataFrame], schema: TableSchema) -> AlikeKeys:
    """Return none: the mirror counts them."""
    return AlikeKeys()


def write(target: CommitTarget, changes: DataFrame, step: ApplyRows, batch: Batch) -> int:
    """End the open state of each key of the changes where their first begins, and add those that they make.

    Returns how many changes were passed over because the row that they leave columns of is not there; raises TableHeld
    for one that says that it is.
    """
    schema, track = step.schema, tracked(step)
    names = [column.name for column in schema.stored]
    passed = 0
    if batch.patches or (track is not None and not target.empty):
        changes = _beside_open(target, changes, step, track or ()).persist()
    else:
        changes = changes.withColumn(_SAME, sql.lit(False))
    try:
        if batch.patches:
            key = [place_of(schema, name).removeprefix("_cdc_s.") for name in schema.key]
            lost = changes.where(f"{UNCHANGED} IS NOT NULL AND NOT {_FOUND} AND {OP} <> {int(Op.INSERT)}")
            for op, count, first in lost.groupBy(OP).agg(sql.count("*"), sql.min(sql.struct(*key))).collect():
                if op == int(Op.UPDATE):
                    raise lost_row(str(step.life), count, tuple(first))
                passed += count
            changes = changes.where(f"NOT ({_is_passed_over()})")
        if target.empty:
            columns = [sql.col(f"c{at}").alias(name) for at, name in enumerate(names)]
            entering = changes.where(f"{OP} > 0 AND NOT {LANDED}").select(*columns, COMMIT_TS, *_MOMENTS)
            overwrite(target, entering, f"INSERT OVERWRITE {target.name} SELECT … FROM changes")
        else:
            _merge(target, changes, step, batch)
    finally:
        changes.unpersist()
    return passed


def _merge(target: CommitTarget, changes: DataFrame, step: ApplyRows, batch: Batch) -> None:
    """MERGE the states: a change that is the first of its key stands twice, once for the state that it ends.

    `ranges` of the batch bounds integer key columns over all changes: literals, by which Iceberg skips files. Where all
    states that begin are data files, only the ends are left, whose keys need no sorting with all rows of the table.
    """
    schema, ends_only = step.schema, batch.schema_id is not None and not batch.patches and tracked(step) is None
    few = batch.entering + batch.leaving <= _FEW
    (changes.hint("broadcast") if ends_only and few else changes).createOrReplaceTempView("changes")
    names = [column.name for column in schema.stored]
    places = [f"c{at}" for at in range(len(names))]
    on = [
        f"_cdc_s.{_ENDS}",
        f"(_cdc_t.{_OPEN} OR _cdc_t.{END_TS} > {step.lo})" if _repeats(step) else f"_cdc_t.{_OPEN}",
    ]
    on += [key_equality(schema.column(name), place_of(schema, name)) for name in schema.key]
    on += [f"_cdc_t.{quoted(name)} BETWEEN {low} AND {high}" for name, (low, high) in sorted(batch.ranges.items())]
    all_places = [*places, COMMIT_TS, *_MOMENTS]
    columns = [*map(quoted, names), COMMIT_TS, *_MOMENTS]
    goes_on = ", ".join(
        f"_cdc_t.{column} = _cdc_s.{place}"
        for column, place in zip(columns, all_places, strict=True)
        if place not in (START_AT, START_TS)
    )
    listed = ", ".join([OP, _SAME, *all_places])
    source, begins = f"SELECT true AS {_ENDS}, {listed} FROM changes WHERE {FIRST}", ""
    if not ends_only:
        source += f" UNION ALL SELECT false, {listed} FROM changes WHERE {OP} > 0 AND NOT {LANDED} AND NOT {_SAME}"
        values = ", ".join(f"_cdc_s.{place}" for place in all_places)
        begins = f"WHEN NOT MATCHED AND NOT _cdc_s.{_ENDS} THEN INSERT ({', '.join(columns)}) VALUES ({values})"
    gone = f" OR _cdc_t.{START_TS} > {step.lo}" if _repeats(step) else ""
    target.session.sql(
        f"MERGE INTO {target.name} _cdc_t USING ({source}) _cdc_s ON {' AND '.join(on)} "
        f"WHEN MATCHED AND _cdc_s.{_SAME}{f' AND _cdc_t.{START_TS} <= {step.lo}' if gone else ''} "
        f"THEN UPDATE SET {goes_on} "
        f"WHEN MATCHED AND (_cdc_t.{START_TS} >= _cdc_s.{START_TS}{gone}) THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET "
        f"_cdc_t.{END_TS} = _cdc_s.{START_TS}, _cdc_t.{END_AT} = _cdc_s.{START_AT} {begins}"
    )


# --- changes that need the state before them --------------------------------------------------------------------------


def _repeats(step: ApplyRows) -> bool:
    """Return whether changes are read again from `lo` on: what the lake has of their keys from then on is replaced."""
    return not step.files


def _beside_open(target: CommitTarget, changes: DataFrame, step: ApplyRows, track: Sequence[str]) -> DataFrame:
    """Give changes what they leave out of the open states of their rows; FOUND and SAME say what is there.

    A row that had another key has its state under that (BASE).
    """
    schema, moves = step.schema, BASE in changes.columns
    changes.createOrReplaceTempView("staged")
    on = []
    for at, name in enumerate(schema.key):
        place = place_of(schema, name)
        on.append(
            key_equality(
                schema.column(name),
                f"CASE WHEN _cdc_s.{BASE} IS NULL THEN {place} ELSE _cdc_s.{BASE}.k{at} END",
                "_cdc_b",
            )
            if moves
            else key_equality(schema.column(name), place, "_cdc_b")
        )
    values = {
        column.name: f"CASE WHEN _cdc_b.{_FOUND} AND array_contains(_cdc_s.{UNCHANGED}, {text_literal(column.name)}) "
        f"THEN _cdc_b.{quoted(column.name)} ELSE _cdc_s.c{at} END"
        for at, column in enumerate(schema.stored)
    }
    equal = [
        f"coalesce(_cdc_b.{_FOUND}, false) AND _cdc_s.{FIRST} AND _cdc_s.{OP} > 0",
        *([f"_cdc_s.{BASE} IS NULL"] if moves else []),
    ]
    equal += [f"_cdc_b.{quoted(name)} <=> {values[name]}" for name in track]
    is_unchanged = " AND ".join(equal) if track else "false"
    listed = [f"{value} AS c{at}" for at, value in enumerate(values.values())]
    change_columns = [f"_cdc_s.{name}" for name in changes.columns if not name.startswith("c")]
    open_ = f"{START_TS} <= {step.lo} AND ({_OPEN} OR {END_TS} > {step.lo})" if _repeats(step) else _OPEN
    none = "" if target.empty else f"WHERE {open_}"
    return target.session.spark.sql(
        f"SELECT {', '.join(change_columns)}, {', '.join(listed)}, coalesce(_cdc_b.{_FOUND}, false) AS {_FOUND}, "
        f"({is_unchanged}) AS {_SAME} FROM staged _cdc_s "
        f"LEFT JOIN (SELECT *, true AS {_FOUND} FROM {target.name} {none}) _cdc_b "
        f"ON {' AND '.join(on)}"
    )


def _is_passed_over() -> str:
    return f"{UNCHANGED} IS NOT NULL AND {OP} = {int(Op.PATCH)} AND NOT {_FOUND}"


# --- DDL --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StateChange:
    """The effect of a DDL on states: open states that satisfy a condition end at its position, and others begin with
    some rows.
    """

    at: Tso
    ends: str
    begins: DataFrame | None = None


def moved(target: CommitTarget, step: DdlStep, rows: MovedRows) -> Callable[[], None] | None:
    """End and begin states at a DDL: those of rows that go and come, and all where rows get another key.

    Raises TableHeld where rows come that no table of the lake has.
    """
    change = _change(target, step, rows)
    if change is None or (target.empty and change.begins is None):
        return None
    return lambda: _write_change(target, change)


def begun(target: CommitTarget, at: Tso) -> Callable[[], None] | None:
    """Let the open states of a table begin at a position, and remove all others."""
    if target.empty:
        return None
    table = target.session.spark.read.table(target.name)
    own = {START_TS: sql.lit(at), START_AT: sql.timestamp_millis(sql.lit(at >> 18))}
    columns = [own[name].alias(name) if name in own else sql.col(quoted(name)) for name in table.columns]
    statement = f"INSERT OVERWRITE {target.name} SELECT … FROM {target.name} WHERE {_OPEN}"
    return lambda: overwrite(target, table.where(_OPEN).select(*columns), statement)


def rewritten(target: CommitTarget, step: DdlStep, rows: MovedRows, table: DataFrame) -> DataFrame:
    """Return the states with those that end and begin at a DDL."""
    change = _change(target, step, rows)
    if change is None:
        return table
    ends = sql.expr(f"{_OPEN} AND ({change.ends})")
    states = table.where(f"NOT ({_OPEN} AND ({change.ends}) AND {START_TS} >= {change.at})")
    values = {END_TS: sql.lit(change.at), END_AT: sql.timestamp_millis(sql.lit(change.at >> 18))}
    columns = [
        sql.when(ends, values[name]).otherwise(sql.col(name)).alias(name) if name in values else sql.col(quoted(name))
        for name in table.columns
    ]
    states = states.select(*columns)
    return states if change.begins is None else states.unionByName(_beginning(change, table))


def _beginning(change: StateChange, table: DataFrame) -> DataFrame:
    """Return the rows with which states begin, with the columns of the table."""
    assert change.begins is not None
    own = {START_TS: sql.lit(change.at), START_AT: sql.timestamp_millis(sql.lit(change.at >> 18))}
    own |= {END_TS: sql.lit(None), END_AT: sql.lit(None)}
    state_columns = {name: sql.col(quoted(name)) for name in change.begins.columns}
    return change.begins.select(
        *(
            {**state_columns, **own}.get(field.name, sql.lit(None)).cast(field.dataType).alias(field.name)
            for field in table.schema.fields
        )
    )


def _change(target: CommitTarget, step: DdlStep, rows: MovedRows) -> StateChange | None:
    match step:
        case ChangeTable():
            return _altered(target, step)
        case DropTable():
            return StateChange(step.at, "true")
        case RecoverTable():
            # The states that ended when the table was dropped, which its newest label names.
            snapshot, label = target.table.currentSnapshot(), None
            while snapshot is not None and label is None:
                label = Label.parse(dict(snapshot.summary()))
                snapshot = target.table.snapshot(snapshot.parentId()) if snapshot.parentId() is not None else None
            at = label.ddl if label is not None else -1
            return StateChange(step.at, "false", target.session.spark.read.table(target.name).where(f"{END_TS} = {at}"))
        case ExchangePartition():
            if rows.entering is None:
                raise TableHeld(
                    f"{step.life}: the rows that come into it from {step.other} are not in the lake as they were. "
                    "Rebuild it.",
                    table=str(step.life),
                )
            if step.partitioned:
                refuse_undated(target.session.spark.read.table(target.name).where(_OPEN), [step.predicate], step)
            ends = sql_condition(target, step.predicate) if step.partitioned else "true"
            return StateChange(step.at, ends, rows.entering)


def _altered(target: CommitTarget, step: ChangeTable) -> StateChange | None:
    """Return the states after an ALTER; a column that comes back has its default in all rows from here on."""
    deletes = [ddl_change.predicate for ddl_change in step.changes if isinstance(ddl_change, DeleteRows)]
    gone = (
        " OR ".join("true" if delete is None else f"({sql_condition(target, delete)})" for delete in deletes) or "false"
    )
    open_ = target.session.spark.read.table(target.name).where(_OPEN)
    refuse_undated(open_, [delete for delete in deletes if delete is not None], step)
    kinds = {field.name.lower(): (field.name, field.dataType.simpleString()) for field in open_.schema.fields}
    defaults: dict[str, str] = {}
    for change in step.changes:
        if isinstance(change, ContinueColumn):
            name, kind = kinds[change.column.name.lower()]
            defaults[name] = _literal(default_array(change.column, change.default, 1)[0].as_py(), kind)
    differs = " OR ".join(f"NOT ({quoted(name)} <=> {value})" for name, value in defaults.items())
    anew = "true" if any(isinstance(ddl_change, Rekey) for ddl_change in step.changes) else differs
    if not anew:
        return StateChange(step.at, gone) if deletes else None
    living = open_.where(f"NOT ({gone}) AND ({anew})")
    for name, value in defaults.items():
        living = living.withColumn(name, sql.expr(value))
    return StateChange(step.at, f"({gone}) OR ({anew})", living)


def _literal(value: Any, kind: str) -> str:
    """Return a value of a Spark type as Spark SQL writes it."""
    if value is None:
        return f"CAST(NULL AS {kind})"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return f"CAST({text_literal(value.isoformat() if hasattr(value, 'isoformat') else str(value))} AS {kind})"


def _write_change(target: CommitTarget, change: StateChange) -> None:
    table = target.session.spark.read.table(target.name)
    names = table.columns
    places = [f"_cdc_c{place}" for place in range(len(names))]
    nulls = ", ".join(
        f"CAST(NULL AS {field.dataType.simpleString()}) AS {place}"
        for place, field in zip(places, table.schema.fields, strict=True)
    )
    source, begins = f"SELECT true AS {_ENDS}, {nulls}", ""
    if change.begins is not None:
        _beginning(change, table).toDF(*places).createOrReplaceTempView("beginning")
        source += f" UNION ALL SELECT false, {', '.join(places)} FROM beginning"
        values = ", ".join(f"_cdc_s.{place}" for place in places)
        begins = (
            f"WHEN NOT MATCHED AND NOT _cdc_s.{_ENDS} THEN INSERT ({', '.join(map(quoted, names))}) VALUES ({values})"
        )
    target.session.sql(
        f"MERGE INTO {target.name} _cdc_t USING ({source}) _cdc_s "
        f"ON CASE WHEN _cdc_t.{_OPEN} AND ({change.ends}) THEN true END = _cdc_s.{_ENDS} "
        f"WHEN MATCHED AND _cdc_t.{START_TS} >= {change.at} THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET _cdc_t.{END_TS} = {change.at}, "
        f"_cdc_t.{END_AT} = timestamp_millis({change.at >> 18}) "
        f"{begins}"
    )
