"""Rows of the lake that are not the source's, made so: what a comparison found, as a window of no files.

The images of the rows are what decoding would give at the position of the comparison, so each kind of table takes them
in as it takes any window: by key, by count, as changes of a log, as states. A table is committed alone, under the label
that it has; its history tables before it, so that one that a crash leaves out is found again with it.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl
import pyarrow as pa

from cdc_assets.decoding import DELIVERY, FILE, PLACE
from cdc_assets.decoding.keyed_rows import of_keys
from cdc_assets.decoding.own_columns import CHANGE_TYPE
from cdc_assets.errors import TableHeld
from cdc_assets.features.columns.planning import standing_columns
from cdc_assets.features.kinds.decoding import kind_of
from cdc_assets.features.kinds.planning import rule_of
from cdc_assets.features.verification.operations_rows import frame_of, row_hashes, rows_of
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP, UNCHANGED, Op
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.steps import ApplyRows, RowReading
from cdc_assets.model.table_history import TableHistory
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted
from cdc_assets.operations.table_rows import LEAVES, LakeRows, ScannedLake
from cdc_assets.pipeline.journal import Journal
from cdc_assets.pipeline.outcome import deficits_at
from cdc_assets.types.mysql_types import arrow_type

if TYPE_CHECKING:
    from cdc_assets.features.verification.operations_rows import Row
    from cdc_assets.landing.landing import Executors
    from cdc_assets.ledger import Ledger
    from cdc_assets.model.reports import StepResult
    from cdc_assets.pipeline.pipeline import Pipeline
    from cdc_assets.planning.plan import Plan

REPAIR, REBUILD = "repair", "rebuild"
"""Names of repairs and rebuilds in the journal."""


class RepairableLake(ScannedLake, Protocol):
    """A lake whose tables can be given the source's rows."""

    def pinned(self, life: Life, snapshot_id: int) -> AbstractContextManager[None]:
        """Keep a snapshot from expiring while it is read."""

    def executors(self, what: str, only_elsewhere: bool = False) -> Executors:
        """Return the executors that read large tables, for work called `what` in errors; maybe other machines only."""

    def repair(self, step: ApplyRows, changes: pa.Table, repair: str, snapshot: int | None = None) -> StepResult:
        """Write the source's rows of some keys in one commit, under the label that the table has.

        A step with `whole_at` leaves a table that lacks no rows.
        """


@dataclass(frozen=True, slots=True)
class UnequalRows:
    """Rows of a table that differ, by the `columns` that were compared, as (the lake's, the source's).

    `left_out` are columns of the lake that were not compared, though they may have values. `is_whole` says that all
    rows of the table were compared, and each that differs is here.
    """

    columns: Sequence[Column]
    rows: Sequence[tuple[Row | None, Row | None]]
    left_out: Sequence[str] = ()
    is_whole: bool = False

    def refusal(self, key: Sequence[str]) -> str:
        """Return the reason why the rows cannot be written, "" if they can."""
        if not self.left_out:
            return ""
        names = ", ".join(self.left_out)
        if not key or any(lake_row is None for lake_row, _ in self.rows):
            return f"the source's values of {names} are not known, so no row can be added that has them"
        return ""

    def text(self) -> str:
        """Return the number of rows that differ, and the columns of their values; no value is shown."""
        values = Counter(
            column.name
            for lake_row, source_row in self.rows
            if lake_row is not None and source_row is not None
            for column, lake_value, other in zip(self.columns, lake_row, source_row, strict=True)
            if lake_value != other
        )
        named = ", ".join(f"{name} ({count:,})" for name, count in sorted(values.items()))
        return f"{counted(len(self.rows), 'row')}{f'; values of {named}' if named else ''}"


def repair(
    pipeline: Pipeline,
    lake: RepairableLake,
    plan: Plan,
    life: Life,
    at: Tso,
    unequal: UnequalRows,
    snapshot: int | None,
    run: str,
) -> str:
    """Give a table that was compared at `at`, and its history tables, the source's rows; return what was done.

    Where all of its rows were compared, it lacks none from then on: a gap of before ends, one of values that were not
    read only if all columns were compared, too.
    Raises TableHeld for a table that has to stay as it is, and TableMoved where another writer was first.
    """
    history, name = plan.history.lives[life], f"{REPAIR}:{uuid.uuid4().hex[:12]}"
    if any(deficit.cause == "records" for deficit in deficits_at(pipeline.lake, plan, life, at)):
        raise TableHeld(
            "records of it in quarantine would come once more when replayed. Replay or rebuild first.", table=str(life)
        )
    if reason := unequal.refusal(history.schema.key):
        raise TableHeld(f"{reason}. Rebuild it.", table=str(life))
    schema = history.schema.in_lake
    same_key = _rows_of_same_key(lake.scan(life), schema, unequal) if schema.key else []
    if same_key and unequal.left_out:
        raise TableHeld(
            f"rows of one key are there twice, and which of them has the source's values of "
            f"{', '.join(unequal.left_out)} is not known. Rebuild it.",
            table=str(life),
        )
    whole = replace(unequal, rows=[*unequal.rows, *((None, row) for row in same_key)])
    tables = sorted(
        (sibling for sibling in plan.history.lives if sibling.source == life and sibling in plan.applied), reverse=True
    )
    is_whole = unequal.is_whole and (history.missing is not None or not unequal.left_out)
    for table in tables:  # the mirror comes last
        step = replace(_step(pipeline, plan, plan.history.lives[table], at), whole_at=at if is_whole else None)
        rows = whole
        if kind_of(step).PLACES and not step.schema.key and plan.applied[table].since is None:
            rows = _lacking(lake, step, unequal)
        changes = _images(step, rows, name)
        result = lake.repair(step, changes, name, snapshot if table == life else None)
        named = plan.history.lives[table].name or table.born_as
        text = f"{name} as of {at}: {unequal.text()}"
        Journal(pipeline.ledger, pipeline.settings.name).note(table, named, REPAIR, text, run, result)
    return f"{name}: {unequal.text()}"


def repairs_since_rebuild(ledger: Ledger, changefeed: str, life: Life, moment: Tso) -> list[str]:
    """Return the repairs of a table that a rebuild which began at a moment loses: those after the rebuild before it."""
    entries = [entry for entry in ledger.journal(changefeed) if entry.life == str(life)]
    before = max((entry.tso for entry in entries if entry.action == REBUILD and entry.tso < moment), default=-1)
    return [entry.query.partition(" ")[0] for entry in entries if entry.action == REPAIR and entry.tso > before]


def _step(pipeline: Pipeline, plan: Plan, history: TableHistory, at: Tso) -> ApplyRows:
    life, rule = history.life, None
    if life.kind:
        source = plan.history.lives[life.source]
        rule = rule_of(pipeline.settings.history_rules, source.last_name or life.born_as)
    schema = history.schema.in_lake
    state = plan.applied[life]
    columns = standing_columns(life, pipeline.settings.columns.names, state.layout)
    return ApplyRows(life, at, at, (), RowReading(), schema, state.ddl, history=rule, lake_columns=columns)


def _images(step: ApplyRows, unequal: UnequalRows, place: str) -> pa.Table:
    """Return the images of the rows as decoding gives them for a table's kind, with the columns of its schema."""
    kind, names = kind_of(step), {column.name: number for number, column in enumerate(unequal.columns)}
    both = kind.PLACES or not step.schema.key
    images = [image for pair in unequal.rows for image in _directions(pair, both=both)]
    columns: dict[str, Any] = {
        OP: pa.array([int(op) for op, _ in images], pa.int8()),
        COMMIT_TS: pa.repeat(pa.scalar(step.hi, pa.int64()), len(images)),
        LINE: pa.array(range(1, len(images) + 1), pa.int64()),
        FILE: pa.repeat(pa.scalar(0, pa.int32()), len(images)),
    }
    if not step.schema.key:
        columns[DELIVERY] = pa.repeat(pa.scalar(0, pa.int32()), len(images))
    if kind.PLACES:
        columns[PLACE] = pa.repeat(pa.scalar(place), len(images))
    absent = []
    for column in step.schema.stored:
        number = None if column.kept else names.get(column.source_name)
        if number is None and not column.kept and column.source_name in unequal.left_out:
            absent.append(column.name)
        values = [None if number is None else row[number] for _, row in images]
        columns[column.name] = pa.array(values, arrow_type(column))
    if absent:
        unchanged = [absent if op > 0 else None for op, _ in images]
        columns[UNCHANGED] = pa.array(unchanged, pa.list_(pa.string()))
    return pa.table(columns)


def _rows_of_same_key(scan: LakeRows, schema: TableSchema, unequal: UnequalRows) -> list[Row]:
    """Return the rows that are the source's, and have the key of one that is not.

    Where the collation makes the keys of two rows equal, one that leaves would take the other with it. Where a row
    has columns that were not compared, there may be no other one of its key at all.
    """
    rows = [
        lake_row
        for lake_row, source_row in unequal.rows
        if lake_row is not None and (source_row is None or unequal.left_out)
    ]
    if not rows or not (unequal.left_out or any(schema.column(name).compares_by for name in schema.key)):
        return []
    shape = pa.schema([(column.name, arrow_type(column)) for column in unequal.columns])
    places = {name: shape.get_field_index(name) for name in schema.key}
    values = [pa.array([row[place] for row in rows], shape.field(name).type) for name, place in places.items()]
    keys, numbers = pa.table(values, names=list(places)), Counter(rows)
    source_rows: list[Row] = []
    for piece in scan.pieces():
        for block in scan.read_file(piece, shape.names):
            for row in rows_of(frame_of(of_keys(block.cast(shape), keys, schema))):
                if not numbers[row]:
                    source_rows.append(row)
                numbers[row] -= bool(numbers[row])
    return source_rows


def _lacking(lake: RepairableLake, step: ApplyRows, unequal: UnequalRows) -> UnequalRows:
    """Return the rows that a log of a table without key lacks or has too often: it may be right where the mirror
    is not, or wrong by less. Its rows are those that its changes lead to.
    """
    directed = [(lake_row, -1) if lake_row is not None else (source_row, 1) for lake_row, source_row in unequal.rows]
    directed_rows = list(dict.fromkeys(row for row, _ in directed if row is not None))
    names = [column.name for column in unequal.columns]
    own = step.schema.lake_names
    of_mirror = _counts(lake.scan(step.life.source), unequal.columns, directed_rows, names)
    of_log = _counts(lake.scan(step.life), unequal.columns, directed_rows, [own[name] for name in names], CHANGE_TYPE)
    spare = {row: in_log - in_mirror for row, in_mirror, in_log in zip(directed_rows, of_mirror, of_log, strict=True)}
    remaining: list[tuple[Row | None, Row | None]] = []
    for pair, (row, direction) in zip(unequal.rows, directed, strict=True):
        if row is not None and spare[row] * direction > 0:
            spare[row] -= direction
        else:
            remaining.append(pair)
    return replace(unequal, rows=remaining)


def _counts(
    scan: LakeRows, columns: Sequence[Column], rows: Sequence[Row], names: Sequence[str], change_type: str = ""
) -> list[int]:
    """Return the number of times that each row stands in a table, by these columns; in a log, by its changes."""
    kinds = pa.schema([pa.field(str(at), arrow_type(column)) for at, column in enumerate(columns)])
    values = [pa.array(each, kind) for each, kind in zip(zip(*rows, strict=True), kinds.types, strict=True)]
    row_hashes = _hashes(pa.Table.from_arrays(values, schema=kinds)).with_row_index("row")
    counts = [0] * len(rows)
    for piece in scan.pieces():
        for block in scan.read_file(piece, [*names, *([change_type] if change_type else [])]):
            hashes = _hashes(block.select(list(names)).rename_columns(kinds.names).cast(kinds))
            signs = pl.repeat(1, len(hashes), dtype=pl.Int64, eager=True)
            if change_type:
                words = pl.Series(block.column(change_type).to_pylist(), dtype=pl.String)
                signs = words.is_in(LEAVES).replace_strict({True: -1, False: 1}, return_dtype=pl.Int64)
            summed = hashes.with_columns(signs.alias("n")).join(row_hashes, on=["first", "second"])
            for row, number in summed.group_by("row").agg(pl.col("n").sum()).rows():
                counts[row] += number
    return counts


def _hashes(rows: pa.Table) -> pl.DataFrame:
    first, second = row_hashes(frame_of(rows))
    return pl.DataFrame({"first": first, "second": second})


def _directions(pair: tuple[Row | None, Row | None], *, both: bool) -> Iterator[tuple[Op, Row]]:
    lake_row, source_row = pair
    if lake_row is not None and (both or source_row is None):
        yield Op.DELETE, lake_row
    if source_row is not None:
        yield (Op.INSERT if lake_row is None or both else Op.UPDATE), source_row
