"""Tables with a key: a MERGE, or for an empty table an overwrite."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from cdc_assets.decoding.moved import BASE
from cdc_assets.decoding.patches import lost_row
from cdc_assets.features.columns.lake import marks_deletes, own_names
from cdc_assets.formats.decoded import COMMIT_TS, OP, UNCHANGED, Op
from cdc_assets.lake.commit import CommitTarget, overwrite
from cdc_assets.lake.key_matching import key_equality, key_expression, place_of, text_literal
from cdc_assets.lake.spark.session import quoted
from cdc_assets.lake.staging.stage import Batch
from cdc_assets.model.layout import DELETED_AT, LIVING
from cdc_assets.model.reports import AlikeKeys
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.steps import ApplyRows

_FOUND, _LEAVES = "_cdc_found", "_cdc_leaves"
_MAKE_ROWS = f"({int(Op.INSERT)}, {int(Op.UPDATE)})"
"""Operations that insert a row if there is none; a patch without its row was refused before."""


def write(target: CommitTarget, changes: DataFrame, step: ApplyRows, batch: Batch) -> int:
    """Insert, update or delete the row of each key of the changes; return how many patches have no row."""
    passed = 0
    if batch.bases:
        # Images of rows that had another key get the columns that they leave out. One whose old row is not there makes
        # a row of what it has if it may; else the old row of its own key, if there is one, is not its: that had left
        # before, and leaves where the change is passed over.
        changes.createOrReplaceTempView("moved")
        on = " AND ".join(
            key_equality(step.schema.column(name), f"_cdc_s.{BASE}.k{at}", "_cdc_b")
            for at, name in enumerate(step.schema.key)
        )
        values = [
            f"CASE WHEN _cdc_b.{_FOUND} AND array_contains(_cdc_s.{UNCHANGED}, {text_literal(column.name)}) "
            f"THEN _cdc_b.{quoted(column.name)} ELSE _cdc_s.c{at} END AS c{at}"
            for at, column in enumerate(step.schema.stored)
        ]
        made = f"(_cdc_b.{_FOUND} OR _cdc_s.{OP} = {int(Op.INSERT)})"
        changes = target.session.spark.sql(
            f"SELECT CAST(CASE WHEN _cdc_b.{_FOUND} THEN {int(Op.UPDATE)} ELSE _cdc_s.{OP} END AS tinyint) AS {OP}, "
            f"{', '.join(f'_cdc_s.{name}' for name in own_names(target.table))}, "
            f"CASE WHEN _cdc_s.{BASE} IS NULL OR NOT coalesce({made}, false) THEN _cdc_s.{UNCHANGED} END AS "
            f"{UNCHANGED}, _cdc_s.{BASE}, "
            f"{', '.join(values)} FROM moved _cdc_s "
            f"LEFT JOIN (SELECT *, true AS {_FOUND} FROM {_living(target)}) _cdc_b ON {on}"
        )
    if batch.patches:
        passed = _without_row(target, changes, step, batch)
    if not target.empty:
        if step.is_repair and not batch.patches:
            _replace(target, changes, step.schema, batch)
        else:
            _merge(target, changes, step.schema, batch)
        return passed
    names, own = [column.name for column in step.schema.stored], own_names(target.table)
    columns = [sql.col(f"c{position}").alias(name) for position, name in enumerate(names)]
    entering = changes.where(f"{OP} IN {_MAKE_ROWS}").select(*columns, *own)
    overwrite(target, entering, f"INSERT OVERWRITE {target.name} SELECT … FROM changes")
    return passed


def alike_keys(target: CommitTarget, changes: Callable[[], DataFrame], schema: TableSchema) -> AlikeKeys:
    """Count the new keys of reduced changes that equal a row's key by collation only.

    Nothing is read for a table whose keys compare byte for byte, or if no key of the window is new.
    """
    columns = [(schema.column(name), f"_cdc_t.{quoted(name)}", place_of(schema, name)) for name in schema.key]
    differ = [
        f"NOT ({lake_place} <=> {change_place})"
        for column, lake_place, change_place in columns
        if key_expression(column, lake_place) != lake_place
    ]
    if not differ or target.empty:
        return AlikeKeys()
    new = changes().where(f"{OP} = {int(Op.INSERT)}")
    if new.head() is None:
        return AlikeKeys()
    new.createOrReplaceTempView("new_keys")
    on = " AND ".join(key_equality(column, change_place) for column, _, change_place in columns)
    places = ", ".join(change_place for _, _, change_place in columns)
    row = target.session.spark.sql(
        f"SELECT count(*), min(struct({places})) FROM {_living(target)} _cdc_t JOIN new_keys _cdc_s ON {on} "
        f"WHERE {' OR '.join(differ)}"
    ).head()
    return AlikeKeys.such_as(row[0], row[1]) if row is not None and row[0] else AlikeKeys()


def _without_row(target: CommitTarget, changes: DataFrame, step: ApplyRows, batch: Batch) -> int:
    """Count patches whose row is not there, and that are passed over then; raises TableHeld for those that are not."""
    schema = step.schema
    changes.where(f"{UNCHANGED} IS NOT NULL AND {OP} <> {int(Op.INSERT)}").createOrReplaceTempView("patches")
    on = " AND ".join(key_equality(schema.column(name), place_of(schema, name)) for name in schema.key)
    key = ", ".join(place_of(schema, name) for name in schema.key)
    base = f"_cdc_s.{BASE} IS NOT NULL OR " if batch.bases else ""
    without_row = "" if target.empty else f"WHERE {base}NOT EXISTS (SELECT 1 FROM {_living(target)} _cdc_t WHERE {on})"
    groups = target.session.spark.sql(
        f"SELECT {OP}, count(*), min(struct({key})) FROM patches _cdc_s {without_row} GROUP BY {OP}"
    ).collect()
    passed = 0
    for op, count, first in groups:
        if op == int(Op.UPDATE):
            raise lost_row(str(step.life), count, tuple(first))
        passed += count
    return passed


def _on(schema: TableSchema, batch: Batch) -> list[str]:
    """Return the conditions that a row has the key of a change.

    `ranges` of the batch bounds integer key columns over all changes: literals, by which Iceberg skips files.
    """
    on = [key_equality(schema.column(name), place_of(schema, name)) for name in schema.key]
    ranges = sorted(batch.ranges.items())
    return on + [f"_cdc_t.{quoted(name)} BETWEEN {low} AND {high}" for name, (low, high) in ranges]


def _replace(target: CommitTarget, changes: DataFrame, schema: TableSchema, batch: Batch) -> None:
    """Let the row of each change be the only one of its key, however many the table has: every one of them leaves.

    In a table that marks deleted rows one of those of a key that leaves comes back, marked: of several the next change
    of the key would make as many living ones.
    """
    changes.createOrReplaceTempView("changes")
    own, on, names = own_names(target.table), _on(schema, batch), [column.name for column in schema.stored]
    columns = [*map(quoted, names), *own]
    listed = ", ".join([*(f"c{position}" for position in range(len(names))), *own])
    values = ", ".join(f"_cdc_s.{place}" for place in listed.split(", "))
    marked = ""
    if DELETED_AT in own:
        by = ", ".join(place_of(schema, name) for name in schema.key)
        chosen = [f"_cdc_t.{quoted(name)} AS c{position}" for position, name in enumerate(names)]
        chosen += [
            f"CASE WHEN _cdc_t.{LIVING} THEN {value} ELSE _cdc_t.{name} END AS {name}"
            for name, value in _marks(own).items()
        ]
        marked = (
            f" UNION ALL SELECT false, {listed} FROM (SELECT {', '.join(chosen)}, row_number() OVER "
            f"(PARTITION BY {by} ORDER BY _cdc_t.{DELETED_AT} IS NOT NULL) AS _cdc_turn FROM {target.name} _cdc_t "
            f"JOIN (SELECT * FROM changes WHERE {OP} < 0) _cdc_s ON {' AND '.join(on)}) WHERE _cdc_turn = 1"
        )
    target.session.sql(
        f"MERGE INTO {target.name} _cdc_t USING (SELECT true AS {_LEAVES}, {listed} FROM changes UNION ALL "
        f"SELECT false, {listed} FROM changes WHERE {OP} IN {_MAKE_ROWS}{marked}) _cdc_s "
        f"ON {' AND '.join([f'_cdc_s.{_LEAVES}', *on])} WHEN MATCHED THEN DELETE "
        f"WHEN NOT MATCHED AND NOT _cdc_s.{_LEAVES} THEN INSERT ({', '.join(columns)}) VALUES ({values})"
    )


def _merge(target: CommitTarget, changes: DataFrame, schema: TableSchema, batch: Batch) -> None:
    """MERGE reduced changes, whose columns are `c0`, `c1`, … in table order beside OP and the lake's own.

    A column that a patch leaves out keeps the table's value; what a marked row has is no value of the source.
    """
    changes.createOrReplaceTempView("changes")
    columns = [column.name for column in schema.stored]
    places = {name: f"_cdc_s.c{position}" for position, name in enumerate(columns)}
    values, own = dict(places), own_names(target.table)
    alive = f" AND _cdc_t.{LIVING}" if DELETED_AT in own else ""
    if batch.patches:
        for name in set(columns) - set(schema.key):
            keeps_value = f"coalesce(array_contains(_cdc_s.{UNCHANGED}, {text_literal(name)}), false){alive}"
            values[name] = f"CASE WHEN {keeps_value} THEN _cdc_t.{quoted(name)} ELSE {places[name]} END"
    emptied = f" OR (_cdc_s.{OP} = {int(Op.PATCH)} AND _cdc_s.{BASE} IS NOT NULL)" if batch.bases else ""
    gone = f"(_cdc_s.{OP} < 0{emptied})"
    sets = [f"_cdc_t.{quoted(name)} = {values[name]}" for name in columns]
    sets += [f"_cdc_t.{name} = _cdc_s.{name}" for name in own]
    matched = f"WHEN MATCHED AND {gone} THEN DELETE WHEN MATCHED"
    if alive:  # a patch that needs a row is passed over where that is marked
        passed = f"(_cdc_s.{OP} = {int(Op.PATCH)} AND NOT _cdc_t.{LIVING})"
        matched = f"{_marking(own, gone)} WHEN MATCHED AND NOT ({gone} OR {passed})"
    target.session.sql(
        f"MERGE INTO {target.name} _cdc_t USING changes _cdc_s ON {' AND '.join(_on(schema, batch))} "
        f"{matched} THEN UPDATE SET {', '.join(sets)} "
        f"WHEN NOT MATCHED AND _cdc_s.{OP} IN {_MAKE_ROWS} "
        f"THEN INSERT ({', '.join([*map(quoted, columns), *own])}) "
        f"VALUES ({', '.join([*places.values(), *(f'_cdc_s.{name}' for name in own)])})"
    )


def _living(target: CommitTarget) -> str:
    """Return the relation from which a query reads the source's rows of a mirror."""
    if not marks_deletes(target.table):
        return target.name
    return f"(SELECT * FROM {target.name} WHERE {LIVING})"


def _marking(own: Sequence[str], condition: str) -> str:
    """Return the clause of a MERGE that marks the living row of a change that fulfils a condition."""
    listed = ", ".join(f"_cdc_t.{name} = {value}" for name, value in _marks(own).items())
    return f"WHEN MATCHED AND {condition} AND _cdc_t.{LIVING} THEN UPDATE SET {listed}"


def _marks(own: Sequence[str]) -> dict[str, str]:
    """Return the marks that a change gives a row: the values of the lake's own columns."""
    moment = f"timestamp_millis(shiftright(_cdc_s.{COMMIT_TS}, 18)), current_timestamp()"
    return {name: f"_cdc_s.{name}" for name in own} | {DELETED_AT: f"coalesce(_cdc_s.{DELETED_AT}, {moment})"}
