"""The changes of a table from its feed: planned once more as if nothing were applied, decoded and carried through DDL.

steps     what a log of the table would be made of, refused where something of the range is missing
changes   their changes, in the order of positions, with the columns that the table has at the end
rows      the rows of a table at a position, folded from its beginning, in memory: no record tells which rows come and
          go by EXCHANGE PARTITION and RECOVER TABLE
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.ddl import polars_expr, undated
from cdc_assets.decoding import PLACE
from cdc_assets.decoding.kinds import kind_of
from cdc_assets.decoding.own_columns import ABSENT, CHANGE_TYPE, COMMIT_TIME, OF_DDL
from cdc_assets.decoding.window import Window, decode_window, look_beside, merge_reports, reduced, rejected
from cdc_assets.errors import ExtractRefused
from cdc_assets.formats import COMMIT_TS, POSITION, Op, position_column
from cdc_assets.io.scratch import scratch
from cdc_assets.model.progress import Life
from cdc_assets.model.reports import FileStats
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.schema_changes import DeleteRows, Predicate
from cdc_assets.model.splits import Listing, in_shares
from cdc_assets.model.steps import (
    ApplyRows,
    ChangeTable,
    CreateTable,
    DropTable,
    ExchangePartition,
    HoldTable,
    RecoverTable,
    Step,
)
from cdc_assets.model.table_history import History, TableHistory
from cdc_assets.model.tso import Tso, tso_time
from cdc_assets.operations.log_rows import LEAVES, LOG, all_leave, evolved_rows, in_source_names, no_log_rows, of_source
from cdc_assets.operations.net_changes import Fold, NetChanges, counted_rows
from cdc_assets.operations.position_sort import PositionSort
from cdc_assets.operations.rebuild import planned_from_nothing
from cdc_assets.pipeline.missing_files import entries_of
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.planning.plan import Plan

_SHARE_FILES, _SHARE_BYTES = 200, 16 << 20
"""Files of a window that are decoded at once."""

_SUFFIX = "__of_an_extract"


@dataclass(frozen=True, slots=True)
class _TableRows:
    """The rows of a table once all at or below a position is applied, as inserts of its log, in the log's columns."""

    at: Tso
    schema: TableSchema
    rows: pa.Table


class FeedChanges:
    """The changes of tables of a listed feed. `lives` are the tables of the source, by their mirrors' identities."""

    def __init__(self, pipeline: Pipeline, listing: Listing, lives: Mapping[Life, TableHistory], patch: Op) -> None:
        self._pipeline, self._listing, self._lives, self._patch = pipeline, listing, lives, patch
        self._steps: dict[Life, tuple[Step, ...]] = {}
        self._rows: dict[Life, list[_TableRows]] = {}
        self._feed = History({}, {})

    @cached_property
    def _stats(self) -> Mapping[str, FileStats]:
        return self._pipeline.ledger.file_stats(self._pipeline.settings.name)

    def changes(
        self, history: TableHistory, since: Tso, until: Tso, *, exact: bool = False
    ) -> tuple[TableSchema, Callable[[], Iterator[pa.Table]]]:
        """Return the columns that the table has at the end of a range, by the source's names, and its changes.

        With `exact`, rows of partitions that were emptied are told one by one. Raises ExtractRefused for a range of
        which something is missing; so does reading the changes, and MalformedData for records that do not fit.
        """
        steps, schema, work = self._of(history, since, until), None, list[tuple[Step, TableSchema]]()
        for step in steps:
            if isinstance(step, CreateTable | ChangeTable) and step.at <= until:
                schema = step.schema
            if schema is None:
                continue
            if isinstance(step, ApplyRows) and step.hi > since and step.lo < until:
                schema = step.schema
                work.append((step, schema))
            elif isinstance(step, ChangeTable | DropTable | RecoverTable | ExchangePartition) and step.at <= until:
                work.append((step, schema))
        if schema is None:
            name = history.last_name or history.life.born_as
            raise ExtractRefused(f"{name} does not exist at {until}: it begins at {history.life.version}.")
        return of_source(schema), partial(self._pieces, work, schema, since, until, exact)

    def _pieces(
        self, work: Sequence[tuple[Step, TableSchema]], at_end: TableSchema, since: Tso, until: Tso, exact: bool
    ) -> Iterator[pa.Table]:
        later = [step for step, _ in work if isinstance(step, ChangeTable)]
        for step, columns in work:
            if isinstance(step, ChangeTable):
                later = later[1:]
            if isinstance(step, ApplyRows):
                found = self._decoded(step, since, until)
            else:
                found = self._of_ddl(step, columns, exact) if since < step.at else iter(())
            for rows in found:
                for change in later:
                    rows = evolved_rows(rows, change.changes, change.schema)
                yield in_source_names(rows, at_end)

    # --- what is there ---

    def _of(self, history: TableHistory, since: Tso, until: Tso) -> list[Step]:
        """Return the steps of a log of the table; raises ExtractRefused for a range of which something is missing."""
        if history.life not in self._steps:
            planned = _planned(self._pipeline, self._listing, history)
            self._steps[history.life], self._feed = planned.of(replace(history.life, kind=LOG)), planned.history
        steps = [step for step in self._steps[history.life] if not isinstance(step, HoldTable) or step.at <= until]
        gone = self._gone(history, steps)
        _refuse_missing(self._listing, history, steps, gone, since, until)
        return steps

    def _gone(self, history: TableHistory, steps: Sequence[Step]) -> Tso:
        """Return the newest position of a file of the table that was read once and is in none of the windows now."""
        there = {file.path for step in steps if isinstance(step, ApplyRows) for file in step.files}
        listed, own = {file.path for file in self._listing.data_files}, str(history.life.source)
        entries = self._pipeline.ledger.files(self._pipeline.settings.name)
        gone = (one for one in entries if one.path not in (there if one.life == own else listed))
        mine = entries_of(self._pipeline.source, self._feed, history.life.source, gone)
        return max((entry.max_commit_ts or 0 for entry in mine), default=0)

    # --- rows that no record tells ---

    def _of_ddl(self, step: Step, schema: TableSchema, exact: bool) -> Iterator[pa.Table]:
        """Yield the changes that a DDL makes: rows that go, and rows that come."""
        match step:
            case ExchangePartition():
                mine = self._rows_before(step.life, step.at)
                leaves, enters = self._exchanged(step, mine)
                yield _by_ddl(mine.rows.filter(leaves), "DELETE", step.at)
                yield _by_ddl(enters, "INSERT", step.at)
            case RecoverTable():
                yield _by_ddl(self._rows_before(step.life, step.at).rows, "INSERT", step.at)
            case ChangeTable() if exact and any(one.partitions for one in _deletes(step)):
                mine = self._rows_before(step.life, step.at)
                yield _by_ddl(mine.rows.filter(self._deleted(step, mine)), "DELETE", step.at)
            case _:
                yield from _emptied(step, schema)

    def _rows_before(self, life: Life, at: Tso) -> _TableRows:
        """Return the rows of a table right before a DDL; raises ExtractRefused where the feed lacks some."""
        history, until = self._lives.get(life.source), at - 1
        known = [one for one in self._rows.get(life.source, ()) if one.at <= until]
        begun = max(known, key=lambda one: one.at, default=None)
        try:
            if history is None or history.gap_at(until, until) is not None:
                raise ExtractRefused(f"{life.source}: rows from before the feed began are missing.")
            steps = self._of(history, 0, until)
        except ExtractRefused as error:
            raise ExtractRefused(
                f"rows came or went at {at} without changes of their own, and the feed does not have all that were "
                f"there then. {error} Extract the changes through {until}, and those after {at}; or keep a log beside "
                "the mirror (setting history), which has these rows, and from which an extract takes them."
            ) from error
        state, begins = begun, begun.at if begun is not None else -1
        due = (
            one for one in steps if one.at > begins and (one.lo if isinstance(one, ApplyRows) else one.at - 1) < until
        )
        for schema, alike in groupby(due, lambda step: step.schema if isinstance(step, ApplyRows) else None):
            for step in alike if schema is None else ():
                if isinstance(step, CreateTable):
                    state = _TableRows(step.at, step.schema, no_log_rows(step.schema))
                elif state is not None:
                    state = self._after_ddl(step, state)
            if schema is not None and state is not None:
                net = NetChanges(history.life.born_as, schema, self._patch)
                state = self._after_windows(alike, net, state, until)
        assert state is not None, f"{life} has a DDL at {at} before it begins"
        self._rows.setdefault(life.source, []).append(replace(state, at=until))
        return self._rows[life.source][-1]

    def _after_windows(self, windows: Iterable[Step], net: NetChanges, state: _TableRows, until: Tso) -> _TableRows:
        """Return the rows after windows of one schema."""
        fold, at = Fold(partial(_living, net), state.rows), state.at
        for step in windows:
            assert isinstance(step, ApplyRows)
            for changes in self._decoded(step, max(at, step.lo) if step.lo >= 0 else -1, until):
                fold.add(changes.select(state.rows.column_names).cast(state.rows.schema))
            at = min(step.at, until)
        return _TableRows(at, net.schema, fold.result())

    def _after_ddl(self, step: Step, state: _TableRows) -> _TableRows:
        rows, schema = state.rows, state.schema
        match step:
            case ChangeTable():
                kept = rows.filter(pc.invert(self._deleted(step, state)))
                schema = step.schema
                rows = evolved_rows(kept, step.changes, schema, living=True).select(no_log_rows(schema).column_names)
            case ExchangePartition():
                self._rows.setdefault(step.life.source, []).append(replace(state, at=step.at - 1))
                leaves, enters = self._exchanged(step, state)
                rows = pa.concat_tables([rows.filter(pc.invert(leaves)), enters])
        return _TableRows(step.at, schema, rows)

    def _exchanged(self, step: ExchangePartition, mine: _TableRows) -> tuple[pa.Array, pa.Table]:
        """Return which rows an exchange takes away, and the rows that come, in the table's columns."""
        if step.masks.get(step.life.source, {}) != step.masks.get(step.other.source, {}):
            raise ExtractRefused(
                f"{step.life.source}: the rows that came at {step.at} from {step.other.source} are masked otherwise. "
                f"Extract the changes through {step.at - 1}, and those after {step.at}."
            )
        theirs = self._rows_before(step.other, step.at)
        other = in_source_names(theirs.rows, theirs.schema)
        names = mine.schema.lake_names
        other = other.rename_columns([names.get(name, name) for name in other.column_names])
        if step.partitioned:
            leaves = _matching(mine.rows, step.predicate, mine)
        else:
            leaves = pa.repeat(pa.scalar(True), mine.rows.num_rows)
            other = other.filter(_matching(other, step.predicate, theirs))
        columns = [
            other.column(field.name).cast(field.type)
            if field.name in other.column_names
            else pa.nulls(other.num_rows, field.type)
            for field in mine.rows.schema
        ]
        return leaves, pa.table(columns, schema=mine.rows.schema)

    def _deleted(self, step: ChangeTable, state: _TableRows) -> pa.Array:
        """Return which rows an ALTER takes away; its conditions are about the columns that the log has."""
        gone = pa.repeat(pa.scalar(False), state.rows.num_rows)
        for one in _deletes(step):
            every = pa.repeat(pa.scalar(True), state.rows.num_rows)
            gone = pc.or_(gone, every if one.predicate is None else _matching(state.rows, one.predicate, state))
        return gone

    def _decoded(self, step: ApplyRows, since: Tso, until: Tso) -> Iterator[pa.Table]:
        """Yield the changes of a window that are in the range."""
        reader, stats = self._pipeline.source.reader, self._stats
        if step.schema.key and not step.is_import:  # without key only all of a window says what came twice
            step = replace(step, lo=max(step.lo, since), hi=min(step.hi, until))
            step = replace(step, files=tuple(f for f in step.files if f.may_hold(stats.get(f.path), step.lo, step.hi)))
        if not step.files:
            return
        kind, reports = kind_of(step), [look_beside(step, stats, reader)]
        with scratch() as directory:
            found: PositionSort | None = None
            for share in _shares(step):
                window = decode_window(step, reader, share)
                reports.append(window.report)
                if window.changes.num_rows:
                    found = found or PositionSort(directory, position_column(window.changes))
                    found.add(window.changes)
            report = merge_reports(reports, 0)
            if report.failed:
                raise rejected(step, report)
            if found is None:
                return
            for changes in found.ranges() if step.schema.key else [window.changes]:
                rows = kind.finished(reduced(step, [Window(changes)]).changes, step)
                at = rows.column(POSITION)
                yield rows.filter(pc.and_(pc.greater(at, since), pc.less_equal(at, until)))


# --- the plan, and what is missing ------------------------------------------------------------------------------------


def _planned(pipeline: Pipeline, listing: Listing, history: TableHistory) -> Plan:
    """Return the plan of an empty lake with a log of the table."""
    pattern = glob.escape(str(history.last_name or history.life.born_as))
    settings = pipeline.settings.with_history({pattern: {"kinds": [LOG], "suffix": {LOG: _SUFFIX}}})
    bases = {life: state.base for life, state in pipeline.lake.applied().items() if not life.kind}
    return planned_from_nothing(pipeline, replace(listing, gone={}), bases, fuse=False, settings=settings)


def _refuse_missing(
    listing: Listing, history: TableHistory, steps: Sequence[Step], lost: Tso, since: Tso, until: Tso
) -> None:
    """Raise ExtractRefused for a range of which changes are not in the feed, as those through `lost`, or not told."""
    name = history.last_name or history.life.born_as
    for step in steps:
        if isinstance(step, HoldTable):
            raise ExtractRefused(f"{name} is held at {step.at}, within the range: {step.reason}")
    gap = history.gap_at(until, until)
    begins = history.life.version if gap is not None and history.base is None else 0
    expired = max((listing.gone.get(table, 0) for table, _, _ in history.names), default=0)
    covered = max(begins - 1 if begins else 0, expired, lost)
    if since < covered:
        why = "expired" if expired == covered else "left the feed" if lost == covered else "are not in the feed"
        raise ExtractRefused(
            f"{name}: changes through {covered} ({tso_time(covered)}) {why}. Covered is what comes after: give a range "
            f"that begins there, or later."
        )


def _shares(step: ApplyRows) -> Iterator[Sequence[int]]:
    """Return the files that are decoded at once, by their numbers."""
    every = range(len(step.files))
    if not step.schema.key:
        return iter([every])
    return in_shares(every, lambda place: step.files[place].size, _SHARE_FILES, _SHARE_BYTES)


# --- rows that go and come by a DDL -----------------------------------------------------------------------------------


def _deletes(step: Step) -> list[DeleteRows]:
    return (
        [change for change in step.changes if isinstance(change, DeleteRows)] if isinstance(step, ChangeTable) else []
    )


def _living(net: NetChanges, rows: pa.Table) -> pa.Table:
    """Return the rows that are left of inserts and changes behind them."""
    if not net.schema.key:
        return counted_rows(rows, net.schema)
    kept = net.of(rows)
    kept = kept.filter(pc.invert(pc.is_in(kept.column(CHANGE_TYPE), pa.array(LEAVES))))
    if kept.column(ABSENT).null_count < kept.num_rows:
        raise ExtractRefused(
            f"{net.name}: rows came or went by a DDL without changes of their own, and of some only a part of the "
            "columns is in the feed."
        )
    return kept


def _matching(rows: pa.Table, predicate: Predicate, state: _TableRows) -> pa.Array:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)

    def mask(condition: Predicate) -> pl.Series:
        return frame.select(polars_expr(condition).fill_null(False).alias("m")).get_column("m")

    missing = undated(predicate)
    if missing is not None and mask(missing).any():
        raise ExtractRefused(
            f"rows of a partition went at {state.at + 1}, and some rows have no value in a date by which the table is "
            "partitioned, so whether they were in it is not known. Keep a log beside the mirror (setting history)."
        )
    return mask(predicate).to_arrow()


def _by_ddl(rows: pa.Table, word: str, at: Tso) -> pa.Table:
    """Return rows as changes that a DDL made."""
    moment = (at >> 18) * 1000  # a log has microseconds
    own = {CHANGE_TYPE: word, POSITION: at, COMMIT_TS: at, COMMIT_TIME: moment, PLACE: f"{OF_DDL}{at}"}
    for name, value in own.items():
        place, column = rows.schema.get_field_index(name), rows.schema.field(name)
        rows = rows.set_column(place, column, pa.repeat(pa.scalar(value), rows.num_rows).cast(column.type))
    return rows


def _emptied(step: Step, schema: TableSchema) -> Iterator[pa.Table]:
    """Yield the change that rows went by a DDL, in a row of its own."""
    deletes = _deletes(step)
    if not deletes and not isinstance(step, DropTable):
        return
    yield all_leave(schema, step.at, [name for delete in deletes for name in delete.partitions])
