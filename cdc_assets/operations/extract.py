"""The changes of a table between two positions: decoded again from the feed, or read from its log table.

    from the log     where it has all of them: its rows, filtered by position
    from the feed    the table's log is planned once more, as if nothing were applied; the windows that reach into the
                     range are decoded by the functions that windows use, and carried through the DDL that follows
    net              one row a key: the last image that enters, or that the key has left

Changes come in pieces, in the order of their positions, and are read when they are asked for: however great the range
is, a piece of it is in memory, and the rest on disk (`position_sort`). Of a table without key each window is decoded at
once, because only all of it says what came twice; and a net is as large as the keys that changed.

Nothing of the lake is changed, and no Spark is needed. What is not covered is refused with what is.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding.kinds import keyed, kind_of, own_columns
from cdc_assets.decoding.upgrade import evolve_rows
from cdc_assets.decoding.window import Window, decode_window, look_beside, merge_reports, reduced, rejected
from cdc_assets.errors import BadSettings, ExtractRefused
from cdc_assets.formats import COMMIT_TS, OP, POSITION, Op, position_column
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Life
from cdc_assets.model.reports import FileStats
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.schema_changes import DeleteRows
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
from cdc_assets.model.tso import Tso, tso_time
from cdc_assets.operations.named import is_called, no_such_table
from cdc_assets.operations.opening import EmptyLake
from cdc_assets.operations.position_sort import PositionSort
from cdc_assets.pipeline.planner import Planner
from cdc_assets.types.mysql_types import arrow_type

if TYPE_CHECKING:
    from cdc_assets.model.splits import Listing
    from cdc_assets.model.table_history import TableHistory
    from cdc_assets.pipeline.pipeline import Pipeline
    from cdc_assets.planning.plan import Plan

__all__ = ["ABSENT", "CHANGE_TYPE", "LEAVES", "PLACE", "Extract", "changes_of_log", "extract"]

_SHARE_FILES, _SHARE_BYTES = 200, 16 << 20
"""Files of a window that are decoded at once."""

_LOG = "log"
_SUFFIX = "__of_an_extract"
LEAVES, _ALL_LEAVE = ["DELETE", "UPDATE_BEFORE"], "TRUNCATE"
_OF_DDL = "DDL of version "
CHANGE_TYPE, PLACE = "_change_type", "_cdc_place"
ABSENT, PARTITIONS = "_cdc_absent", "_cdc_partitions"


@dataclass(frozen=True, slots=True)
class Extract:
    """The changes of a table in (since, until], by position, with the columns that the table has at `until`.

    The columns of the log follow those of the table; `net` says that there is one row a key. `source` is `log` or
    `feed`. `pieces` reads the changes, in the order of their positions; it raises MalformedData for records that do not
    fit, and ExtractRefused where a net cannot be told.
    """

    table: TableId
    life: Life
    since: Tso
    until: Tso
    net: bool
    source: str
    columns: pa.Schema
    key: tuple[str, ...]
    pieces: Callable[[], Iterator[pa.Table]] = field(repr=False)

    @property
    def changes(self) -> pa.Table:
        """All changes, in memory: for small ranges."""
        return pa.concat_tables([self.columns.empty_table(), *self.pieces()])

    def description(self) -> dict[str, object]:
        """Return what it is, for programs."""
        return {
            "table": str(self.table),
            "identity": str(self.life),
            "key": list(self.key),
            "from": self.since,
            "from_time": tso_time(self.since) if self.since > 0 else "",
            "to": self.until,
            "to_time": tso_time(self.until),
            "net": self.net,
            "source": self.source,
        }


def extract(pipeline: Pipeline, table: str, since: Tso, until: Tso, *, net: bool = False) -> Extract:
    """Return the changes of a table in (since, until]; `table` is a present name or an identity.

    The name of a history table stands for its source table. Raises BadSettings for a table or range that is none,
    ExtractRefused for a range of which something is missing.
    """
    if since >= until:
        raise BadSettings(f"the range begins at {since} and ends at {until}: give an end behind the beginning.")
    if not pipeline.settings.source_options.wire.has_positions:
        raise BadSettings("the rows of this changefeed carry no commit-ts: no change has a place in time.")
    listing, present = pipeline.plan(whole=True)
    history = _named(present, table)
    name = history.last_name or history.life.born_as
    if until > listing.checkpoint:
        raise ExtractRefused(
            f"{name}: the feed is complete through {listing.checkpoint} ({tso_time(listing.checkpoint)}), and the "
            f"range ends at {until}. Ask for changes through there, or wait."
        )
    source, (schema, pieces) = "log", _from_log(pipeline, present, history, since, until) or (None, None)
    if schema is None or pieces is None:
        source, (schema, pieces) = "feed", _from_feed(pipeline, listing, history, since, until)
    own = {column.name.lower() for column in own_columns(_LOG)}
    if taken := [
        column.name for column in schema.stored if column.name.lower().startswith("_cdc_") or column.name.lower() in own
    ]:
        raise ExtractRefused(
            f'{name} has a column "{taken[0]}", as an extract has one of its own. Leave the column out with the '
            "changefeed's column selectors."
        )
    columns, key, every = _empty(schema, _LOG).schema, schema.key, pieces
    if net and not key:
        raise BadSettings(
            f"{name} has no key, so no row can be told from another: its changes have no net. Leave out --net, or name "
            "columns that identify a row in the setting keys."
        )
    if net:
        pieces = lambda: _net_pieces(every(), schema, name)  # noqa: E731
    return Extract(name, history.life, since, until, net, source, columns, key, pieces)


def _named(present: Plan, table: str) -> TableHistory:
    lives = present.history.lives
    mirrors = {life: one for life, one in (present.feed or present.history).lives.items() if not life.kind}
    beside = {life: one for life, one in lives.items() if life.kind and life.source in mirrors}
    for names in (lambda life, one: (life, one.name), lambda _, one: (one.last_name,)):  # living tables first
        for life, one in (*mirrors.items(), *beside.items()):
            if is_called(table, names(life, one)):
                return mirrors[life.source]
    raise no_such_table(table, (one.name for one in mirrors.values()))


_Pieces = Callable[[], Iterator[pa.Table]]


def _from_log(
    pipeline: Pipeline, present: Plan, history: TableHistory, since: Tso, until: Tso
) -> tuple[TableSchema, _Pieces] | None:
    """Return the columns and changes of the table's log, None where it lacks some: those in quarantine, too."""
    if pipeline.lake.quarantined_counts().get(replace(history.life, kind=_LOG)):
        return None
    return changes_of_log(pipeline, present, history, since, until)


def changes_of_log(
    pipeline: Pipeline,
    present: Plan,
    history: TableHistory,
    since: Tso,
    until: Tso,
    keys: Callable[[pa.Table], pa.Table] | None = None,
    equal: Mapping[str, object] = {},
) -> tuple[TableSchema, _Pieces] | None:
    """Return the columns and changes of a table's log, or those that `keys` picks, but for what is in quarantine.

    What `keys` picks has values in some columns of the source that are `equal` to these, so no others need be read.

    None where it does not cover the range or has other columns by now, or is held where it stands: it has values of
    other settings then.
    """
    life = replace(history.life, kind=_LOG)
    log, state = present.history.lives.get(life), present.applied.get(life)
    if log is None or state is None or any(_begins(step) < until for step in present.of(life)):
        return None
    if any(isinstance(step, HoldTable) and step.at <= state.progress.tso + 1 for step in present.of(life)):
        return None
    begins = state.since if state.since is not None else life.version - 1 if history.gap is not None else 0
    if since < begins or any(event.at > until and event.changes for event in log.events):
        return None
    schema = log.schema.in_lake
    renamed = {name for column in schema.columns if column.origin for name in (column.name, column.origin)}
    mine, theirs = {column.name: column for column in schema.stored}, {one.name: one for one in history.schema.stored}
    same = {
        name: value
        for name, value in equal.items()
        if name not in renamed and name in mine and arrow_type(mine[name]) == arrow_type(theirs[name])
    }

    def pieces() -> Iterator[pa.Table]:
        with TemporaryDirectory() as directory:
            found = PositionSort(Path(directory), POSITION)
            for rows in pipeline.lake.changes(life, since, until, same):
                rows = _shown(rows, schema)
                found.add(rows if keys is None else keys(rows))
            for rows in found.ranges():
                yield _in_order(rows)

    return _of_source(schema), pieces


def _in_order(rows: pa.Table) -> pa.Table:
    """Return the changes of whole positions in their order: what a DDL takes and brings, what leaves, what enters."""
    leaves = pc.is_in(rows.column(CHANGE_TYPE), pa.array([*LEAVES, _ALL_LEAVE]))
    of_ddl = pc.fill_null(pc.starts_with(rows.column(PLACE), _OF_DDL), False)
    turn = pc.add(pc.multiply(pc.cast(pc.invert(of_ddl), pa.int8()), 2), pc.cast(pc.invert(leaves), pa.int8()))
    order = pa.table({POSITION: rows.column(POSITION), "turn": turn})
    return rows.take(pc.sort_indices(order, [(POSITION, "ascending"), ("turn", "ascending")]))


def _begins(step: Step) -> Tso:
    return step.lo if isinstance(step, ApplyRows) else step.at - 1


def _planned(pipeline: Pipeline, listing: Listing, history: TableHistory) -> Plan:
    """Return the plan of an empty lake with a log of the table."""
    pattern = glob.escape(str(history.last_name or history.life.born_as))
    settings = pipeline.settings.with_history({pattern: {"kinds": [_LOG], "suffix": {_LOG: _SUFFIX}}})
    lake, applied = pipeline.lake, pipeline.lake.applied()
    with closing(Ledger("sqlite://")) as ledger:
        empty = Planner(
            settings,
            pipeline.source,
            EmptyLake(lake.said_complete(), lake.settings_changes(), lake.forgotten_keys()),
            ledger,
            fuse=False,
        )
        empty.bases = {life: state.base for life, state in applied.items() if not life.kind}
        empty.from_nothing = True
        return empty.plan(replace(listing, gone={}), lake.releases())[1]


# --- what is there ----------------------------------------------------------------------------------------------------


def _refuse_missing(
    pipeline: Pipeline, listing: Listing, history: TableHistory, steps: Sequence[Step], since: Tso, until: Tso
) -> None:
    """Raise ExtractRefused for a range of which changes are not in the feed, or not to be told."""
    name = history.last_name or history.life.born_as
    for step in steps:
        if isinstance(step, HoldTable):
            raise ExtractRefused(f"{name} is held at {step.at}, within the range: {step.reason}")
        if isinstance(step, (ExchangePartition, RecoverTable)) and since < step.at <= until:
            raise ExtractRefused(
                f"{name}: rows came or went at {step.at} without changes of their own, by EXCHANGE PARTITION or "
                f"RECOVER, and the feed does not tell which. Extract the changes through {step.at - 1}, and those "
                f"after {step.at}; or keep a log beside the mirror (setting history), which has these rows, and from "
                "which an extract takes them."
            )
    gap = history.gap_at(until, until)
    begins = history.life.version if gap is not None and history.base is None else 0
    expired = max((listing.gone.get(one, 0) for one, _, _ in history.names), default=0)
    there = {file.path for step in steps if isinstance(step, ApplyRows) for file in step.files}
    entries = pipeline.ledger.files(pipeline.settings.name)
    lost = max(
        (
            entry.max_commit_ts
            for entry in entries
            if entry.life == str(history.life.source) and entry.path not in there and entry.max_commit_ts is not None
        ),
        default=0,
    )
    covered = max(begins - 1 if begins else 0, expired, lost)
    if since < covered:
        why = "expired" if expired == covered else "left the feed" if lost == covered else "are not in the feed"
        raise ExtractRefused(
            f"{name}: changes through {covered} ({tso_time(covered)}) {why}. Covered is what comes after: give a range "
            f"that begins there, or later."
        )


# --- the changes ------------------------------------------------------------------------------------------------------


def _from_feed(
    pipeline: Pipeline, listing: Listing, history: TableHistory, since: Tso, until: Tso
) -> tuple[TableSchema, _Pieces]:
    """Return the columns that the table has at the end of a range, and its changes, decoded again."""
    name, log = history.last_name or history.life.born_as, replace(history.life, kind=_LOG)
    steps = [
        step
        for step in _planned(pipeline, listing, history).of(log)
        if not isinstance(step, HoldTable) or step.at <= until
    ]
    _refuse_missing(pipeline, listing, history, steps, since, until)
    work, schema = list[tuple[Step, TableSchema]](), None
    for step in steps:
        if isinstance(step, CreateTable | ChangeTable) and step.at <= until:
            schema = step.schema
        if schema is None:
            continue
        if isinstance(step, ApplyRows) and step.hi > since and step.lo < until:
            schema = step.schema
            work.append((step, schema))
        elif isinstance(step, ChangeTable | DropTable) and step.at <= until:
            work.append((step, schema))
    if schema is None:
        raise ExtractRefused(f"{name} does not exist at {until}: it begins at {history.life.version}.")
    stats, at_end = pipeline.ledger.file_stats(pipeline.settings.name), schema

    def pieces() -> Iterator[pa.Table]:
        for place, (step, columns) in enumerate(work):
            later = [one for one, _ in work[place + 1 :] if isinstance(one, ChangeTable)]
            if isinstance(step, ApplyRows):
                found = _decoded(pipeline, step, since, until, stats)
            else:
                found = iter(_emptied(step, columns) if since < step.at else ())
            for rows in found:
                for change in later:  # a value that the new type does not take was no row's any more
                    gone = pa.repeat(pa.scalar(False), rows.num_rows)
                    rows = evolve_rows(rows, change.changes, change.schema, gone)
                yield _shown(rows, at_end)

    return _of_source(schema), pieces


def _decoded(
    pipeline: Pipeline, step: ApplyRows, since: Tso, until: Tso, stats: Mapping[str, FileStats]
) -> Iterator[pa.Table]:
    """Yield the changes of a window that are in the range."""
    reader = pipeline.source.reader
    if step.schema.key and not step.is_import:  # without key only all of a window says what came twice
        step = replace(step, lo=max(step.lo, since), hi=min(step.hi, until))
        step = replace(step, files=tuple(f for f in step.files if f.may_hold(stats.get(f.path), step.lo, step.hi)))
    if not step.files:
        return
    kind, reports = kind_of(step), [look_beside(step, stats, reader)]
    with TemporaryDirectory() as directory:
        found: PositionSort | None = None
        for share in _shares(step):
            window = decode_window(step, reader, share)
            reports.append(window.report)
            if window.changes.num_rows:
                found = found or PositionSort(Path(directory), position_column(window.changes))
                found.add(window.changes)
        report = merge_reports(reports, 0)
        if report.failed:
            raise rejected(step, report)
        if found is None:
            return
        for changes in found.ranges() if kind.shares(step.schema) else [window.changes]:
            rows = kind.finished(reduced(step, [Window(changes)]).changes, step)
            at = rows.column(POSITION)
            yield rows.filter(pc.and_(pc.greater(at, since), pc.less_equal(at, until)))


def _shares(step: ApplyRows) -> Iterator[Sequence[int]]:
    """Yield the files that are decoded at once, by their numbers."""
    every = range(len(step.files))
    if not kind_of(step).shares(step.schema):
        yield every
        return
    share, size = list[int](), 0
    for number in every:
        share.append(number)
        size += step.files[number].size
        if len(share) == _SHARE_FILES or size >= _SHARE_BYTES:
            yield share
            share, size = [], 0
    if share:
        yield share


def _of_source(schema: TableSchema) -> TableSchema:
    """Return the columns that the source has, by its names."""
    names = {column.name: column.origin or column.name for column in schema.columns}
    columns = (replace(column, name=names[column.name], origin="") for column in schema.columns if not column.kept)
    return replace(schema, columns=tuple(columns), key=tuple(names[name] for name in schema.key)).in_lake


def _shown(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Return rows of a log with the columns that the source has, by its names."""
    of = {column.name: column.origin for column in schema.columns if column.origin and not column.kept}
    if of:
        absent = [one and [of.get(name, name) for name in one] for one in rows.column(ABSENT).to_pylist()]
        place = rows.column_names.index(ABSENT)
        rows = rows.set_column(place, rows.schema.field(place), pa.array(absent, pa.list_(pa.string())))
        mine = [name for name in rows.column_names if name not in of.values()]
        rows = rows.select(mine).rename_columns([of.get(name, name) for name in mine])
    empty = _empty(_of_source(schema), _LOG)
    return rows.select(empty.column_names).cast(empty.schema)


def _empty(schema: TableSchema, kind: str) -> pa.Table:
    fields = [pa.field(column.name, arrow_type(column)) for column in schema.stored]
    return pa.schema([*fields, *(pa.field(one.name, one.type) for one in own_columns(kind))]).empty_table()


def _emptied(step: Step, schema: TableSchema) -> Iterator[pa.Table]:
    """Yield the change that rows went by a DDL, in a row of its own."""
    deletes = [one for one in step.changes if isinstance(one, DeleteRows)] if isinstance(step, ChangeTable) else []
    if not deletes and not isinstance(step, DropTable):
        return
    row: dict[str, object] = {
        CHANGE_TYPE: _ALL_LEAVE,
        POSITION: step.at,
        COMMIT_TS: step.at,
        PLACE: f"{_OF_DDL}{step.at}",
        PARTITIONS: [name for one in deletes for name in one.partitions] or None,
    }
    yield pa.Table.from_pylist([row], _empty(schema, _LOG).schema)


_NET_ROWS = 100_000


def _net_pieces(pieces: Iterable[pa.Table], schema: TableSchema, name: TableId) -> Iterator[pa.Table]:
    """Yield the net of changes that come in the order of their positions."""
    waiting, count, kept = list[pa.Table](), 0, 0
    for piece in pieces:
        waiting.append(piece)
        count += piece.num_rows
        if count >= max(_NET_ROWS, 2 * kept):
            waiting = [_net(pa.concat_tables(waiting), schema, name)]
            count = kept = waiting[0].num_rows
    if not waiting:
        return
    net = _net(pa.concat_tables(waiting), schema, name)
    entering = net.filter(pc.invert(pc.is_in(net.column(CHANGE_TYPE), pa.array(LEAVES))))
    if any(entering.column(ABSENT).to_pylist()):
        raise ExtractRefused(
            f"{name}: some changes have only some of the columns, so the last one is no whole row. Leave out --net."
        )
    yield net


def _net(changes: pa.Table, schema: TableSchema, name: TableId) -> pa.Table:
    """Return the last change of each key since the last TRUNCATE of all rows, which is there too."""
    if any(changes.column(PARTITIONS).to_pylist()):
        raise ExtractRefused(
            f"{name}: partitions were emptied within the range, and no change says which rows went. Extract without "
            "--net, or up to there and from there on."
        )
    words = changes.column(CHANGE_TYPE).to_pylist()
    last = max((place for place, word in enumerate(words) if word == _ALL_LEAVE), default=-1)
    rows = changes.slice(last + 1)
    leaves = pc.is_in(rows.column(CHANGE_TYPE), pa.array(LEAVES))
    ops = pc.if_else(leaves, pa.scalar(int(Op.DELETE), pa.int8()), pa.scalar(int(Op.UPDATE), pa.int8()))
    numbered = rows.append_column(OP, ops).append_column("_cdc_line", pa.array(range(rows.num_rows), pa.int64()))
    numbered = numbered.append_column("_cdc_file", pa.array([0] * rows.num_rows, pa.int32()))
    kept = keyed.reduce(numbered, schema, name)[0] if rows.num_rows else numbered
    kept = kept.sort_by([(POSITION, "ascending")]).drop_columns([OP, "_cdc_line", "_cdc_file"])
    words = pc.if_else(pc.equal(kept.column(CHANGE_TYPE), "UPDATE_BEFORE"), "DELETE", kept.column(CHANGE_TYPE))
    kept = kept.set_column(kept.column_names.index(CHANGE_TYPE), CHANGE_TYPE, words)
    return pa.concat_tables([changes.slice(last, 1) if last >= 0 else changes.slice(0, 0), kept])
