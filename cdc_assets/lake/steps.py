"""Steps that create, change, rename and drop tables; each is one guarded and labelled commit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from cdc_assets.decoding.states import END_TS, START_TS
from cdc_assets.errors import BadSettings, TableHeld, TableMoved
from cdc_assets.features.columns.decoding import OPTIONAL, marks_stay
from cdc_assets.features.columns.lake import after_exchange, living_rows, marks_deletes, own_names, with_missing_columns
from cdc_assets.features.kinds.decoding import keeps_states
from cdc_assets.features.kinds.lake import history_writer
from cdc_assets.formats.decoded import COMMIT_TS
from cdc_assets.lake import schema, table_renames
from cdc_assets.lake.commit import (
    DdlStep,
    MovedRows,
    columns_of,
    exchange,
    overwrite,
    publish,
    refuse_undated,
    sql_condition,
)
from cdc_assets.lake.label import Label
from cdc_assets.lake.lake_table import GAP, GONE, NAME, LakeTable, format_base, format_gap, parse_lives, snapshot_below
from cdc_assets.lake.names import format_name, location
from cdc_assets.lake.spark.failures import races
from cdc_assets.lake.spark.gateway import has_files
from cdc_assets.lake.spark.session import quoted
from cdc_assets.lake.tickets import FORGET, LakeTickets
from cdc_assets.lake.workbench import Work, Workbench
from cdc_assets.model.features import module_of
from cdc_assets.model.progress import Life
from cdc_assets.model.reports import StepResult
from cdc_assets.model.schema import TableId
from cdc_assets.model.schema_changes import DeleteRows
from cdc_assets.model.steps import (
    AddedStep,
    ApplyRows,
    ChangeTable,
    CreateTable,
    DropTable,
    ExchangePartition,
    HoldTable,
    RecoverTable,
    RenameTable,
    Step,
)


def carry_out(bench: Workbench, step: Step) -> StepResult:
    """Carry out a step other than ApplyRows; repeated, it changes nothing.

    Raises TableMoved when another writer committed since `applied`, TableHeld for what cannot be done faithfully.
    """
    if isinstance(step, HoldTable):
        raise TableHeld(step.reason, table=str(step.life), ways=step.ways)
    if isinstance(step, ApplyRows):
        raise TypeError("rows are staged and committed")
    started = time.monotonic()
    if isinstance(step, CreateTable):
        return _create(bench, step, started)
    if isinstance(step, AddedStep):
        result: StepResult = module_of("lake", step.FEATURE).carry_out(bench, step, started)
        return result
    with bench.on(step.life) as work:
        ddl = step.ddl if isinstance(step, ChangeTable) else step.at
        lake_table = work.lake_table
        own_name = isinstance(step, RenameTable) and step.life.kind and lake_table.name != step.to
        unrecorded = isinstance(step, ChangeTable) and step.dropped and lake_table.dropped is None
        if ddl > work.label.ddl or own_name or unrecorded:  # a history table's name may be the settings' to change
            if not own_name:
                _refuse_passed(bench, step, work)
            label = work.label.through_ddl(step.at, ddl)
            if isinstance(step, ChangeTable):
                emptied = DeleteRows(None) in step.changes and not step.life.kind
                emptied = emptied and not (work.lake_table.layout.marks_deletes and marks_stay(step))
                label = work.label.through_ddl(step.at, ddl, step.recipe, emptied=emptied)
            _run_ddl(bench, step, work, label)
        result = bench.result(work, started)
    if isinstance(step, (RenameTable, DropTable, RecoverTable)):
        table_renames.apply_renames(bench.state, step.life)
    return result


def _refuse_passed(bench: Workbench, step: Step, work: Work) -> None:
    """Refuse a DDL below the rows, unless it was planned from this very state: then it is late and due now."""
    if work.label.progress.tso > step.at and not bench.expects(step.life):
        raise TableMoved(
            f"{step.life} is already applied to {work.label.progress.tso}, past the DDL of version {step.at}. Plan "
            "again.",
            table=str(step.life),
        )


def _refuse_forgetting(bench: Workbench, life: Life) -> None:
    """Raise TableMoved while a run takes rows out of this changefeed's tables for good."""
    for ticket in LakeTickets(bench.state, FORGET).tickets():
        if ticket.runs():
            raise TableMoved(
                f"a run that began at {ticket.since} forgets rows of {ticket.table or 'a table'}; {life} is not "
                "replaced meanwhile, as that would bring them back. Try again when it has ended.",
                table=str(life),
            )


def _run_ddl(bench: Workbench, step: Step, work: Work, label: Label) -> None:
    beside, gone = partial(_refuse_forgetting, bench, step.life), work.lake_table.gone
    absence = {GONE: json.dumps(gone if work.lake_table.dropped is not None else [*gone, (step.at, None)])}
    back = {GONE: json.dumps([(since, step.at if until is None else until) for since, until in gone])} if gone else {}
    match step:
        case ChangeTable(dropped=True):
            publish(work.target, label, properties=absence)
        case ChangeTable(life=Life(kind=kind)) if kind:
            schema.change(work.target, step, label, beside, _moved_rows(bench, step, work))
        case ChangeTable():
            schema.change(work.target, step, label, beside)
        case RecoverTable(life, _, to) if life.kind:
            _refuse_taken(bench, to, life)
            publish(work.target, label, rows=_moved(bench, step, work), properties={NAME: format_name(to), **back})
        case DropTable(life) if life.kind:
            publish(work.target, label, rows=_moved(bench, step, work), properties={NAME: "", **absence})
        case ExchangePartition(life) if life.kind:
            publish(work.target, label, rows=_moved(bench, step, work))
        case RenameTable(life, _, to) | RecoverTable(life, _, to):
            _refuse_taken(bench, to, life)
            begins = isinstance(step, RenameTable) and step.begins
            rows = history_writer(step.life.kind).begun(work.target, step.at) if begins else None
            publish(work.target, label, rows=rows, properties={NAME: format_name(to), **back})
            if work.lake_table.name != to:
                work.session.statements.append(
                    f"ALTER TABLE {work.target.name} RENAME TO {quoted(*bench.state.places.home(to))}"
                )
        case DropTable():
            publish(work.target, label, properties={NAME: "", **absence})
            aside = quoted(*bench.state.places.aside(step.life))
            work.session.statements.append(f"ALTER TABLE {work.target.name} RENAME TO {aside}")
        case ExchangePartition():
            _exchange(bench, step, work, label)
        case _:
            raise TypeError(f"no way to carry out {step!r}")


def _refuse_taken(bench: Workbench, name: TableId, life: Life) -> None:
    """Refuse a name that is not free for a changefeed; one of its own tables may have it until names are settled."""
    bench.state.places.refuse_reserved(name, life)
    home = bench.state.places.home(name)
    if bench.state.exists(home) and all(lake_table.identifier != home for lake_table in bench.state.tables().values()):
        raise bench.state.foreign(home, life)


def _create(bench: Workbench, step: CreateTable, started: float) -> StepResult:
    if bench.state.seen(step.life) is None:
        made = _made(bench, step, started)
        if made is not None:
            return made
    lake_table = bench.state.last(step.life)
    if lake_table.applied.awaits_rows and step.base is not None and lake_table.base != step.base:
        return _make_anew(bench, step, started)
    return StepResult(seconds=time.monotonic() - started)


def _made(bench: Workbench, step: CreateTable, started: float) -> StepResult | None:
    """Create a table; None if another run has created it since the last look.

    It may have another name by then: whether it is there its own directory says, which costs no listing of the catalog.
    """
    bench.state.places.refuse_reserved(step.name, step.life)
    home = bench.state.places.home(step.name)
    bench.free(home, step)
    bench.state.ensure_namespace(home[0])
    place = location(bench.settings.root, bench.changefeed, step.life)
    with bench.sessions.step() as session:
        try:
            with races(str(step.life)):
                work = schema.begin(session, home, step, bench.changefeed, place)
                if has_files(work.table().io(), place) and step.life in bench.state.tables():
                    return None
                lake_table = bench.table_after_commit(schema.create(session, home, step, work), home)
        except Exception:  # catalogs differ in how they report that another run created it first
            if step.life in bench.state.tables():
                return None
            bench.free(home, step)
            raise
        statements = tuple(session.statements)
    return StepResult(statements, None, lake_table.snapshot_id, seconds=time.monotonic() - started)


def _make_anew(bench: Workbench, step: CreateTable, started: float) -> StepResult:
    """Base a table that never got its rows on another dump, with that label, in one guarded commit.

    Raises TableHeld if the other dump has other columns.
    """
    with bench.on(step.life) as work:
        if work.lake_table.applied.awaits_rows and work.lake_table.base != step.base:
            parser = work.session.iceberg.java("org.apache.iceberg.SchemaParser")
            present_columns = columns_of(work.target.table)
            columns = schema.schema_json(step.schema, step.life.kind, [name for name, _ in present_columns])
            expected = parser.fromJson(json.dumps(columns)).columns()
            if [(field.name(), field.type().toString()) for field in expected] != present_columns:
                raise TableHeld(
                    f"{step.life} was created with the columns of another dump, whose rows were never imported, and "
                    f"the present dump has others. Rebuild it: cdc-assets rebuild {step.life}.",
                    table=str(step.life),
                )
            changed = {**format_gap(step.gap), **format_base(step.base)}
            label = Label(step.progress, step.ddl, recipe=step.recipe)
            publish(work.target, label, properties={**dict.fromkeys(GAP), **changed})
        return bench.result(work, started)


def purge(bench: Workbench, life: Life) -> StepResult:
    """Remove a dropped table with its files for good; its progress stays, and RECOVER is no longer possible.

    Raises BadSettings for a table that is not dropped; nothing happens if it was already purged.
    """
    started = time.monotonic()
    lake_table = bench.state.tables().get(life)
    if lake_table is None:
        return StepResult()
    if lake_table.name is not None:
        raise BadSettings(f"{life} is {lake_table.name} now and was not dropped, so it is not purged.")
    bench.state.bury(life, lake_table.label.ddl)
    with races(str(life)), bench.sessions.step() as session:
        session.iceberg.drop(lake_table.identifier)
        statement = f"DROP TABLE {session.name(lake_table.identifier)} PURGE"
    bench.state.discard_listing()
    return StepResult((statement,), lake_table.snapshot_id, seconds=time.monotonic() - started)


# --- rows that go or come without row events, for history tables ------------------------------------------------------


def _moved(bench: Workbench, step: DdlStep, work: Work) -> Callable[[], None] | None:
    return history_writer(step.life.kind).moved(work.target, step, _moved_rows(bench, step, work))


def _moved_rows(bench: Workbench, step: DdlStep, work: Work) -> MovedRows:
    """Return the rows that a DDL moves, as the mirrors had them before it, by the names of the table's columns.

    Raises TableHeld while a mirror has not seen the DDL: its rows may still be due.
    """
    if not isinstance(step, history_writer(step.life.kind).ASKS):
        return MovedRows()
    if isinstance(step, ChangeTable):
        deletes = [change for change in step.changes if isinstance(change, DeleteRows)]
        predicates = [delete.predicate for delete in deletes]
        leaving = _before(bench, step, step.life.source, work) if deletes else None
        if leaving is not None and None not in predicates:
            leaving = leaving.where(
                " OR ".join(
                    f"({sql_condition(work.target, predicate)})" for predicate in predicates if predicate is not None
                )
            )
        named = tuple(name for delete in deletes for name in delete.partitions)
        unknown = bool(deletes) and leaving is None
        return MovedRows(leaving, None, unknown, named)
    if isinstance(step, DropTable):
        own_rows = _before(bench, step, step.life.source, work)
        return MovedRows(own_rows, all_unknown=own_rows is None)
    if isinstance(step, RecoverTable):
        return MovedRows(None, _before(bench, step, step.life.source, work))
    theirs, condition = _before(bench, step, step.other, work), sql_condition(work.target, step.predicate)
    entering = theirs if theirs is None or step.partitioned else theirs.where(condition)
    if keeps_states(step.life.kind):  # which know themselves what leaves
        return MovedRows(None, entering)
    own_rows = _before(bench, step, step.life.source, work)
    if step.partitioned:
        leaving = None if own_rows is None else own_rows.where(condition)
        return MovedRows(leaving, entering, all_unknown=own_rows is None)
    return MovedRows(own_rows, entering, all_unknown=own_rows is None)


def _before(bench: Workbench, step: DdlStep, life: Life, work: Work) -> DataFrame | None:
    """Return the rows of a mirror, or of a table of states in its place, as they were before a DDL.

    Their columns have the names that the step's table has for them. None where the lake does not have these rows, or
    not with the masks of now: values from before a mask are not to come into a table that never had them.
    """
    table = bench.state.tables().get(life) if life in step.masks else None
    if table is None:
        return None
    rows = _states_before(bench, step, table, work) if life.kind else _mirrored(bench, step, table, work)
    if rows is None:
        return None
    lives = parse_lives(dict(work.target.table.properties()))
    names = {column_life.source: column_life.column for column_life in lives if column_life.until is None}
    return rows.select(*(sql.col(quoted(name)).alias(names.get(name, name)) for name in rows.columns))


def _mirrored(bench: Workbench, step: DdlStep, table: LakeTable, work: Work) -> DataFrame | None:
    if table.label.ddl < step.at:
        raise TableHeld(
            f"{step.life} waits for {table.life}, which has not reached the DDL of version {step.at}: its rows of then "
            "are what this DDL moves.",
            table=str(step.life),
        )
    try:
        snapshot, label = snapshot_below(bench.state.file(table.metadata_location), table, step.at)
    except TableHeld:
        return None
    if not label.recipe.has_masks(step.masks[table.life]):
        return None
    name = work.session.name(table.identifier)
    rows = work.session.spark.read.option("versionAsOf", str(snapshot)).table(name)
    return living_rows(rows).drop(*(column.name for column in OPTIONAL))


def _states_before(bench: Workbench, step: DdlStep, table: LakeTable, work: Work) -> DataFrame | None:
    """Return the rows of right before a DDL, as the states tell them, by the source's names of then.

    A plan has every window up to there before the step. Raises TableHeld for a column whose values have another type
    since: what was converted may not be what it was.
    """
    if not table.label.recipe.has_masks(step.masks.get(table.life, {})):
        return None
    lives = parse_lives(bench.state.file(table.metadata_location).properties)
    former_lives = [life for life in lives if life.was_there(step.at)]
    for column_life in former_lives:
        if column_life.former_type(step.at) is not None:
            raise TableHeld(
                f"{step.life}: the rows that come into it from {table.life} have values of the column "
                f'"{column_life.column}" '
                f"that were converted since, from {column_life.former_type(step.at)}. Read them anew: cdc-assets "
                f"rebuild {step.life}.",
                table=str(step.life),
            )
    rows = work.session.spark.read.table(work.session.name(table.identifier))
    rows = rows.where(f"{START_TS} < {step.at} AND ({END_TS} IS NULL OR {END_TS} >= {step.at})")
    names = {column_life.column: column_life.name_at(step.at) for column_life in former_lives}
    return rows.select(*(sql.col(quoted(name)).alias(of) for name, of in names.items()), COMMIT_TS)


def _exchange(bench: Workbench, step: ExchangePartition, work: Work, label: Label) -> None:
    """Both inputs are read as they were before the DDL, so a crash between the two tables' commits does no harm."""
    other = bench.state.find(step.other)
    label = replace(label, recipe=other.label.recipe.joined(label.recipe))  # each has rows of the other
    name, rows = work.session.name(other.identifier), None
    if step.other.kind:
        rows = _states_before(bench, step, other, work)
        name += f" AS OF {step.at}"
    else:
        theirs, then = snapshot_below(bench.state.file(other.metadata_location), other, step.at)
        if then.recipe.has_masks(step.masks.get(step.other, {})):
            rows = living_rows(work.session.spark.read.option("versionAsOf", str(theirs)).table(name))
        name += f" VERSION AS OF {theirs}"
    if rows is None:
        raise TableHeld(
            f"{step.life}: the rows that come into it from {step.other} have values of columns that are masked "
            f"otherwise now. Read these rows anew: cdc-assets rebuild {step.other}, together with {step.life}.",
            table=str(step.life),
        )
    own = work.session.spark.read.table(work.target.name)
    refuse_undated(living_rows(own) if step.partitioned else rows, [step.predicate], step)
    rows = with_missing_columns(work.target, rows).select(
        *map(quoted, (*(column.name for column in step.schema.stored), *own_names(work.target.table)))
    )
    condition = sql_condition(work.target, step.predicate)
    if marks_deletes(work.target.table) and step.schema.key:
        entering, leaves = (rows, condition) if step.partitioned else (rows.where(condition), "true")
        after = after_exchange(own, entering, leaves, step.schema, step.at)
        statement = f"INSERT OVERWRITE {work.target.name} SELECT … FROM {name}, and rows that left it, marked"
        publish(work.target, label, rows=lambda: overwrite(work.target, after, statement))
        return
    if step.partitioned:
        publish(work.target, label, rows=lambda: exchange(work.target, rows, step.predicate))
        return
    entering = rows.where(condition)
    statement = f"INSERT OVERWRITE {work.target.name} SELECT … FROM {name} WHERE {condition}"
    publish(work.target, label, rows=lambda: overwrite(work.target, entering, statement))
