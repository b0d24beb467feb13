"""Tables created, changed and rewritten. What Iceberg can do in metadata is one Java transaction, the rest a rewrite.

A rewrite (`REPLACE TABLE … AS SELECT` in one commit, with MySQL's conversion rules) has no parent snapshot:
older ones stay readable by id, rollback across it is not possible. Iceberg lets it win over a concurrent commit; that
commit's label is lost with its rows, so by the progress they are due again.

A column that only became narrower is read first: none of its values changes, unless the source cut some, and then the
table is held.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from cdc_assets.ddl.kept_columns import column_lives, first_lives
from cdc_assets.decoding.own_columns import OwnColumn
from cdc_assets.decoding.upgrade import default_array
from cdc_assets.errors import TableHeld, TableMoved
from cdc_assets.features.columns.decoding import marks_stay, mirror_columns
from cdc_assets.features.columns.lake import living_rows, mark_rows, mark_where, marks_deletes
from cdc_assets.features.kinds.decoding import own_columns, partition_column
from cdc_assets.features.kinds.lake import history_writer
from cdc_assets.lake.commit import (
    CommitTarget,
    MovedRows,
    delete_where,
    publish,
    refuse_moved,
    refuse_undated,
    sql_condition,
)
from cdc_assets.lake.label import Label
from cdc_assets.lake.lake_table import (
    BEGINS,
    CHANGEFEED,
    GIVEN,
    IDENTITY,
    KEYED_SINCE,
    NAME,
    SINCE,
    format_base,
    format_gap,
    format_lives,
    parse_lives,
)
from cdc_assets.lake.layout import known_layout, ordered, partition_spec, sort_order, write_anew
from cdc_assets.lake.names import Identifier, format_identity, format_name
from cdc_assets.lake.spark.session import StepSession, quoted
from cdc_assets.lake.staging.executors import alike
from cdc_assets.lake.staging.partitions import history_partition
from cdc_assets.model.layout import DELETED_AT, LIVING, OWN_PROPERTIES
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.schema_changes import (
    AddColumn,
    DeleteRows,
    DropColumn,
    Predicate,
    Rekey,
    RenameColumn,
    RetypeColumn,
    SchemaChange,
)
from cdc_assets.model.steps import ChangeTable, CreateTable
from cdc_assets.types.conversions import convert_past, narrows, needs_conversion
from cdc_assets.types.mysql_types import arrow_type, iceberg_type, spark_type, type_text

# --- creation ---------------------------------------------------------------------------------------------------------


def begin(session: StepSession, identifier: Identifier, step: CreateTable, changefeed: str, place: str) -> Any:
    """Return the transaction that creates a table at `place` with its identity; nothing is written yet."""
    refuse_names(step.schema, step)
    layout = step.layout if not step.life.kind else replace(step.layout, partition=history_partition(step.life.kind))
    properties = {
        **OWN_PROPERTIES,
        **given_properties(layout.properties),
        CHANGEFEED: changefeed,
        IDENTITY: format_identity(step.life),
        NAME: format_name(step.name),
        **(format_lives(step.lives or first_lives(step.schema, step.at)) if step.life.kind else {}),
        **format_gap(step.gap),
        **format_base(step.base),
        **({} if step.begun is None else {SINCE: str(step.begun)}),
        **({} if step.begins is None else {BEGINS: str(step.begins)}),
    }
    parser = session.iceberg.java("org.apache.iceberg.SchemaParser")
    schema = parser.fromJson(json.dumps(schema_json(step.schema, step.life.kind, step.lake_columns)))
    builder = session.iceberg.builder(identifier, schema).withLocation(place)
    if layout.partition:
        builder = builder.withPartitionSpec(partition_spec(session, schema, layout))
    if layout.sort:
        builder = builder.withSortOrder(sort_order(session, schema, layout))
    texts = {name: value for name, value in properties.items() if value is not None}
    return builder.withProperties(session.iceberg.java_map(texts)).createTransaction()


def create(session: StepSession, identifier: Identifier, step: CreateTable, work: Any) -> Any:
    """Create an empty table, begun as `work`, with its first label, in one commit; return its operations."""
    snapshot = work.newFastAppend()
    for key, value in Label(step.progress, step.ddl, recipe=step.recipe).properties().items():
        snapshot.set(key, value)
    snapshot.commit()
    work.commitTransaction()
    columns = _columns_text(step.schema.stored, mirror_columns(step.life.kind, step.lake_columns))
    session.statements.append(f"CREATE TABLE {session.name(identifier)} ({columns}) USING iceberg")
    return work.underlyingOps()


def given_properties(own: Mapping[str, str], before: Mapping[str, str] = {}) -> dict[str, str | None]:
    """Return the properties of a table that a person gives it, with their record, in place of those given before."""
    if own == before:
        return {}
    return {**dict.fromkeys(before), **own, GIVEN: json.dumps(dict(own), sort_keys=True) if own else None}


def _columns_text(columns: Iterable[Column], own: Iterable[OwnColumn]) -> str:
    """Return the columns of a table as a statement lists them, the lake's own last."""
    own_texts = (f"{column.name} {column.spark}" for column in own)
    return ", ".join((*(f"{quoted(column.name)} {spark_type(column)}" for column in columns), *own_texts))


def schema_json(schema: TableSchema, kind: str = "", names: Collection[str] = ()) -> dict[str, object]:
    """Return the lake's schema in Iceberg's JSON form, for a mirror with the optional columns of these names.

    All columns are nullable: the checks enforce NOT NULL.
    """
    fields: list[dict[str, object]] = [
        {"name": column.name, "type": iceberg_type(column), "doc": column_doc(column)} for column in schema.stored
    ]
    own = mirror_columns(kind, names)
    fields += [{"name": column.name, "type": column.iceberg, "doc": column.doc} for column in own]
    inner = len(fields)
    for position, field in enumerate(fields, 1):
        field.update({"id": position, "required": False})
        if str(field["type"]).startswith("list<"):
            inner += 1
            inside = str(field["type"]).removeprefix("list<").removesuffix(">")
            field["type"] = {"type": "list", "element-id": inner, "element": inside, "element-required": False}
    return {"type": "struct", "schema-id": 0, "fields": fields}


def column_doc(column: Column) -> str:
    """Return a column's documentation: its type in the source."""
    text = type_text(column)
    if column.elems is not None and column.type in ("ENUM", "SET"):
        text += "(" + ",".join("'" + member.replace("'", "''") + "'" for member in column.elems) + ")"
    text += "" if column.nullable else " NOT NULL"
    return text if column.default is None else f"{text} DEFAULT {json.dumps(column.default, ensure_ascii=False)}"


# --- changes ----------------------------------------------------------------------------------------------------------


def change(
    target: CommitTarget,
    step: ChangeTable,
    label: Label,
    refuse_beside: Callable[[], None],
    rows: MovedRows | None = None,
) -> None:
    """Carry out the changes of one DDL in one commit.

    A history table keeps its rows; `rows` gives those of the mirrors that the DDL moves. `refuse_beside` is called
    before a table is replaced, and raises where something runs beside that must not be undone.
    """
    refuse_names(step.schema, step)
    gone = [schema_change.predicate for schema_change in step.changes if isinstance(schema_change, DeleteRows)]
    some = [predicate for predicate in gone if predicate is not None]
    all_rows = len(some) < len(gone)
    moved = history_writer(step.life.kind).moved(target, step, rows) if rows is not None else None
    if rows is None and some and not all_rows and not target.empty:
        refuse_undated(living_rows(_rows(target)), some, step)
    if needs_rewrite(step) or _cuts_values(target, step):
        _rewrite(target, step, label, refuse_beside, rows)
        return
    for schema_change in step.changes:
        if isinstance(schema_change, RetypeColumn) and schema_change.approximate:
            target.session.statements.append(_guess_comment(schema_change))
    if rows is None:
        all_go = all_rows and not (marks_deletes(target.table) and marks_stay(step))
        moved = None if all_go else _deleted(target, step, some, all_rows)
    publish(
        target,
        label,
        rows=moved,
        schema=lambda work: _alter(target, work, step),
        properties=_described(target, step),
        delete_all=all_rows and rows is None and moved is None,
    )


def _deleted(
    target: CommitTarget, step: ChangeTable, some: Sequence[Predicate], all_rows: bool
) -> Callable[[], None] | None:
    """Return a function that takes rows of a mirror away, or marks them; None where none go."""
    conditions = ["true"] if all_rows else [sql_condition(target, predicate) for predicate in some]
    if not marks_deletes(target.table):
        return (lambda: delete_where(target, conditions)) if conditions else None
    if target.empty:
        return None
    if marks_stay(step):
        return (lambda: mark_where(target, conditions, step.at)) if conditions else None
    return lambda: delete_where(target, [*conditions, f"NOT {LIVING}"])


def _described(target: CommitTarget, step: ChangeTable) -> dict[str, str]:
    """Return the properties that describe a table's columns after a DDL."""
    described = dict[str, str]()
    if step.life.kind:
        lives = parse_lives(dict(target.table.properties()))
        described |= format_lives(column_lives(lives, step.schema, step.changes, step.at))
        if any(isinstance(change, Rekey) for change in step.changes):
            described[KEYED_SINCE] = str(step.at)
    return described


def _rows(target: CommitTarget) -> DataFrame:
    """Return the rows as the step found them."""
    return target.session.spark.read.option("versionAsOf", str(target.snapshot)).table(target.name)


def needs_rewrite(step: ChangeTable) -> bool:
    """Return whether existing values must be converted, or a default cannot be stored in Iceberg's schema."""
    empties = _empties(step)
    return any(_rewrites(change, empties) for change in step.changes)


def _empties(step: ChangeTable) -> bool:
    return not step.life.kind and any(
        isinstance(change, DeleteRows) and change.predicate is None for change in step.changes
    )


def _cuts_values(target: CommitTarget, step: ChangeTable) -> bool:
    """Read the columns that became narrower, and return whether a text loses blanks beyond it, or NULL is filled.

    Raises TableHeld for a value that does not fit.
    """
    present = partition_column(step.life.kind) or (DELETED_AT if marks_deletes(target.table) else "")
    if target.empty or _empties(step) or (step.life.kind and not present):
        return False
    rows = _rows(target).where(f"{present} IS NULL") if present else _rows(target)
    sources = [source for source in _sources(step, rows.columns) if source.retype is not None]
    if not sources:
        return False
    pairs = [(source.retype.old, source.column) for source in sources if source.retype is not None]
    if not any(narrows(replace(old, nullable=False), new) for old, new in pairs):
        names = [rows.columns[source.position] for source in sources if source.position is not None]
        rows = rows.where(" OR ".join(f"{quoted(name)} IS NULL" for name in names))
    place = {source.position: f"c{number}" for number, source in enumerate(sources)}
    columns = [sql.col(quoted(rows.columns[position])).alias(name) for position, name in place.items()]  # type: ignore[index]
    losses = rows.select(*columns).mapInArrow(alike(_comparer(tuple(sources))), "cut boolean")
    with _conversion_errors():
        return losses.where("cut").head() is not None


def _comparer(sources: tuple[_Source, ...]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            is_same, everything = True, pa.repeat(pa.scalar(True), batch.num_rows)
            for place, source in enumerate(sources):
                before = batch.column(place).cast(arrow_type(source.column))
                is_same = is_same and _column(batch, replace(source, position=place), everything).equals(before)
            yield pa.RecordBatch.from_arrays([pa.array([not is_same])], names=["cut"])

    return run


@contextmanager
def _conversion_errors() -> Iterator[None]:
    """Restore the TableHeld that an executor raised, which Spark passes on as a text."""
    try:
        yield
    except PySparkException as error:
        held = _HELD.search(str(error))
        if held is None:
            raise
        raise TableHeld(held[1]) from error


_HELD = re.compile(r"cdc_assets\.errors\.TableHeld: ([^\n]+)")


def _rewrites(schema_change: SchemaChange, empties: bool) -> bool:
    if isinstance(schema_change, RetypeColumn) and not schema_change.new.virtual:
        converts = needs_conversion(schema_change.old, schema_change.new) and not empties
        return converts or not _widens(arrow_type(schema_change.old), arrow_type(schema_change.new))
    if isinstance(schema_change, AddColumn) and not schema_change.column.virtual:
        return schema_change.default is not None and pa.types.is_list(arrow_type(schema_change.column))
    return False


def _widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether Iceberg makes the type change in metadata."""
    if old == new or (old, new) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64())):
        return True
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(old.scale == new.scale and old.precision <= new.precision)
    return False


def _alter(target: CommitTarget, work: Any, step: ChangeTable) -> None:
    """Bring the columns to `step.schema` in one transaction: drops, renames at once, adds, types, docs, order."""
    names = _column_names(work.table())
    say = target.session.statements.append
    where = f"ALTER TABLE {target.name}"
    drops = [change.name for change in step.changes if isinstance(change, DropColumn) and change.name in names]
    renames = [
        change
        for change in step.changes
        if isinstance(change, RenameColumn) and change.old in names and change.old not in drops
    ]
    adds = [change for change in step.changes if isinstance(change, AddColumn) and not change.column.virtual]
    update = work.updateSchema()
    for name in drops:
        update.deleteColumn(name)
        say(f"{where} DROP COLUMN {quoted(name)}")
    for rename in renames:
        update.renameColumn(rename.old, rename.new)
        say(f"{where} RENAME COLUMN {quoted(rename.old)} TO {quoted(rename.new)}")
    update.commit()
    update = work.updateSchema()
    for add in adds:
        say(f"{where} ADD COLUMN {quoted(add.column.name)} {spark_type(add.column)}" + _default_clause(add))
        kind, doc = _java_type(target.session, add.column), column_doc(add.column)
        value = default_array(add.column, add.default, 1)[0].as_py()
        if value is None:
            update.addColumn(None, add.column.name, kind, doc)
        else:
            update.addColumn(None, add.column.name, kind, doc, _literal(target.session, value).to(kind))
    update.commit()
    _settle_columns(target, work, step)


def _default_clause(add: AddColumn) -> str:
    if add.default is None:
        return ""
    default = add.default.hex() if isinstance(add.default, bytes) else str(add.default)
    return f" DEFAULT {default!r}{f' -- {add.approximate}' if add.approximate else ''}"


def _settle_columns(target: CommitTarget, work: Any, step: ChangeTable) -> None:
    """Set types, docs and order as in the schema; a missing or surplus column holds the table."""
    stored = [column.name for column in step.schema.stored]
    names = _column_names(work.table())
    own = [column.name for column in mirror_columns(step.life.kind, names)]
    if sorted(names) != sorted([*stored, *own]):
        present_names = [name for name in names if name not in own]
        raise TableHeld(
            f"{step.life}: after the DDL of version {step.at} the lake table would have the columns {present_names}, "
            f"but the schema file says {stored}. A schema file in between may be missing; rebuild the table.",
            table=str(step.life),
        )
    update = work.updateSchema()
    schema = work.table().schema()
    for column in step.schema.stored:
        field = schema.findField(column.name)
        kind, doc = _java_type(target.session, column), column_doc(column)
        if not pa.types.is_list(arrow_type(column)) and not field.type().equals(kind):
            update.updateColumn(column.name, kind)
            target.session.statements.append(
                f"ALTER TABLE {target.name} ALTER COLUMN {quoted(column.name)} TYPE {spark_type(column)}"
            )
        if field.doc() != doc:
            update.updateColumnDoc(column.name, doc)
    order, before = list(names), None
    for position, name in enumerate([*stored, *own]):
        if order[position] != name:
            order.remove(name)
            order.insert(position, name)
            if before is None:
                update.moveFirst(name)
            else:
                update.moveAfter(name, before)
        before = name
    update.commit()


def _column_names(table: Any) -> list[str]:
    return [field.name() for field in table.schema().columns()]


def _java_type(session: StepSession, column: Column) -> Any:
    schema = schema_json(TableSchema((column,)))
    return session.jvm.org.apache.iceberg.SchemaParser.fromJson(json.dumps(schema)).columns().get(0).type()


def _literal(session: StepSession, value: Any) -> Any:
    """Return a value as Iceberg's literal; decimals and times as texts, which it converts exactly."""
    lit = session.jvm.org.apache.iceberg.expressions.Expressions.lit
    if isinstance(value, bytes):
        return lit(session.jvm.java.nio.ByteBuffer.wrap(value))
    if isinstance(value, bool | int | float | str):
        return lit(value)
    return lit(f"{value:f}" if isinstance(value, Decimal) else value.isoformat())


# --- rewriting --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Source:
    """The source of a rewritten column: a position in the old table, converted by `retype`, or a default."""

    column: Column
    position: int | None
    retype: RetypeColumn | None = None
    default: object = None


def _rewrite(
    target: CommitTarget,
    step: ChangeTable,
    label: Label,
    refuse_beside: Callable[[], None],
    moved: MovedRows | None,
) -> None:
    """Rewrite the rows as the step found them: later commits of another writer must not be converted twice.

    Iceberg lets it win over such a commit, so nobody may take rows out for good meanwhile: who begins to finds the DDL
    due, and who has begun is found here.
    """
    rows = _rows(target)
    if moved is not None:
        rows = history_writer(step.life.kind).rewritten(target, step, moved, rows)
    names = rows.columns
    sources = list(_sources(step, names))
    marking = marks_deletes(target.table) and marks_stay(step)
    rows = rows if marking else living_rows(rows)
    for change in step.changes:
        if isinstance(change, DeleteRows) and not step.life.kind:
            gone = "true" if change.predicate is None else sql_condition(target, change.predicate)
            rows = mark_rows(rows, gone, step.at) if marking else rows.where(f"NOT coalesce({gone}, false)")
    converted = _converted(rows, sources, names, step.life.kind)
    properties = {"location": target.table.location(), "format-version": "3", **_described(target, step)}
    renames = {change.old: change.new for change in step.changes if isinstance(change, RenameColumn)}
    layout = known_layout(target.session, target.table).renamed(renames)
    own = mirror_columns(step.life.kind, names)
    columns = _columns_text((source.column for source in sources), own)
    target.session.statements.append(f"REPLACE TABLE {target.name} ({columns}) AS SELECT …")
    target.session.statements += [
        _guess_comment(change) for change in step.changes if isinstance(change, RetypeColumn) and change.approximate
    ]
    refuse_beside()
    refuse_moved(target, target.session.load(target.identifier))
    with _conversion_errors():  # never `CREATE OR REPLACE`: a table that was renamed meanwhile would be created again
        write_anew(target.session, "replace", target.name, converted, layout, properties, label.properties())
    target.table.refresh()
    _refuse_lost(target, step)
    work = target.table.newTransaction()
    _settle_columns(target, work, step)
    if layout.sort:
        ordered(target.session, work.replaceSortOrder(), layout).commit()
    work.commitTransaction()


def _refuse_lost(target: CommitTarget, step: ChangeTable) -> None:
    """Raise TableMoved if a commit was made between reading the rows and replacing them."""
    history = [entry.snapshotId() for entry in target.table.history()]
    if len(history) > 1 and history[-2] != target.snapshot:
        raise TableMoved(
            f"{step.life}: another writer committed while the table was rewritten for the DDL of version {step.at}; "
            "what it wrote is due again. Read the progress again and plan again.",
            table=str(step.life),
        )


def _sources(step: ChangeTable, names: Sequence[str]) -> Iterator[_Source]:
    """Yield the source of each column of the new schema. Renames come first, so a type change has either name."""
    renames = {change.new: change.old for change in step.changes if isinstance(change, RenameColumn)}
    dropped = {change.name for change in step.changes if isinstance(change, DropColumn)}
    adds = {change.column.name: change for change in step.changes if isinstance(change, AddColumn)}
    retypes = {change.new.name: change for change in step.changes if isinstance(change, RetypeColumn)}
    for column in step.schema.stored:
        name, retype = column.name, retypes.get(column.name)
        if name in adds:
            yield _Source(column, None, default=adds[name].default)
            continue
        was = renames.get(name, retype.old.name if retype is not None and name not in names else name)
        if was not in names or (was in dropped and was == name):
            raise TableHeld(
                f'{step.life}: the schema file of version {step.at} has the column "{name}", which neither the lake '
                "table nor the DDL has. A schema file in between may be missing; rebuild the table.",
                table=str(step.life),
                column=name,
            )
        turns = retype is not None and (needs_conversion(retype.old, column) or narrows(retype.old, column))
        yield _Source(column, names.index(was), retype if turns else None)


def _converted(rows: DataFrame, sources: Sequence[_Source], names: Sequence[str], kind: str) -> DataFrame:
    """Return the rows in the new columns. They are passed to Python by position, so that any name works."""
    places = [f"c{position}" for position in range(len(names))]
    renamed = rows.select(*[sql.col(quoted(name)).alias(place) for name, place in zip(names, places, strict=True)])
    fields = [f"c{position} {spark_type(source.column)}" for position, source in enumerate(sources)]
    own = mirror_columns(kind, names)
    passing = {column.name: names.index(column.name) for column in own}
    fields += [f"{column.name} {column.spark}" for column in own]
    out = renamed.mapInArrow(alike(_converter(tuple(sources), passing, kind)), ", ".join(fields))
    aliases = [
        sql.col(f"c{position}").alias(source.column.name, metadata={"comment": column_doc(source.column)})
        for position, source in enumerate(sources)
    ]
    return out.select(*aliases, *map(sql.col, passing))


def _converter(
    sources: tuple[_Source, ...], passing: Mapping[str, int], kind: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            present = _present(batch, passing, kind)
            arrays = [_column(batch, source, present) for source in sources]
            fields = [f"c{position}" for position in range(len(sources))]
            own = [batch.column(place) for place in passing.values()]
            yield pa.RecordBatch.from_arrays([*arrays, *own], names=[*fields, *passing])

    return run


def _present(batch: pa.RecordBatch, own: Mapping[str, int], kind: str) -> pa.Array:
    """Mark the rows that the source has now; those of a history table may all be of the past."""
    column = partition_column(kind) or (DELETED_AT if DELETED_AT in own else "")
    return pc.is_null(batch.column(own[column])) if column else pa.repeat(pa.scalar(not kind), batch.num_rows)


def _column(batch: pa.RecordBatch, source: _Source, present: pa.Array) -> pa.Array:
    if source.position is None:
        return default_array(source.column, source.default, batch.num_rows)
    array = batch.column(source.position)
    if source.retype is None:
        return array.cast(arrow_type(source.column))
    old = source.retype.old
    return convert_past(array.cast(arrow_type(old)), present, old, source.column, source.retype.timezone)


def _guess_comment(schema_change: RetypeColumn) -> str:
    return f"-- {schema_change.new.name} is approximate: {schema_change.approximate}"


_OF_ICEBERG = frozenset(
    ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")
)
"""Columns that Iceberg shows of every table, by which Spark finds the rows that change: of a table with a column of
such a name it reads none."""


def refuse_names(schema: TableSchema, step: CreateTable | ChangeTable) -> None:
    """Raise TableHeld for a column with a name of the lake's own, or with that of another one but for its case."""
    names, own = dict[str, str](), {column.name.lower() for column in own_columns(step.life.kind)}
    for column in schema.stored:
        folded = column.name.lower()
        other = names.setdefault(folded, column.name)
        reason = ""
        if other != column.name:
            reason = (
                f'the columns "{other}" and "{column.name}" differ only in the case of letters, and the lake '
                "does not distinguish such names. Leave one of them out at the source (column.exclude.list), or give "
                "it another name there."
            )
        elif folded.startswith("_cdc_") or folded in own or folded in _OF_ICEBERG:
            reason = (
                f'the column name "{column.name}" is reserved for the lake\'s own columns. '
                "Exclude the column with the changefeed's column selectors."
            )
        if reason:
            raise TableHeld(f"{step.life}: {reason}", table=str(step.life), column=column.name)
