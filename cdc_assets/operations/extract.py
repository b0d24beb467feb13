"""The changes of a table between two positions: decoded again from the feed, or read from its log table.

    from the log     where it has all of them: its rows, filtered by position
    from the feed    the input is decoded again as the table's log would have it, and carried through the DDL that
                     follows. No record tells which rows come and go by EXCHANGE PARTITION and RECOVER TABLE: these
                     are folded from the table's beginning, in memory
    net              one row a key: the last image that enters, or that the key has left

Changes come in pieces, in the order of their positions, and are read when they are asked for: however great the range
is, a piece of it is in memory, and the rest on disk (`position_sort`). Of a table without key each window is decoded at
once, because only all of it says what came twice; and a net is as large as the keys that changed.

Nothing of the lake is changed, and no Spark is needed. What is not covered is refused with what is.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.ddl import polars_expr, undated
from cdc_assets.decoding import PLACE
from cdc_assets.decoding.own_columns import ABSENT, CHANGE_TYPE, COMMIT_TIME, OF_DDL
from cdc_assets.decoding.position_sort import PositionSort
from cdc_assets.errors import BadSettings, ExtractRefused
from cdc_assets.features.forgetting.planning import forgotten_of
from cdc_assets.features.kinds.decoding import own_columns
from cdc_assets.formats.changes import patch_op
from cdc_assets.formats.decoded import COMMIT_TS, POSITION, Op
from cdc_assets.io.scratch import scratch
from cdc_assets.model.forgetting import kept_out
from cdc_assets.model.kinds import HISTORY_KINDS
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.schema_changes import DeleteRows, Predicate, Rekey
from cdc_assets.model.splits import Listing
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
from cdc_assets.model.table_history import TableHistory
from cdc_assets.model.tso import Tso, tso_time
from cdc_assets.operations.named import is_called, no_such_table
from cdc_assets.operations.net_changes import Fold, NetChanges, counted_rows
from cdc_assets.operations.table_rows import (
    LEAVES,
    LOG,
    all_leave,
    evolved_rows,
    in_order,
    in_source_names,
    no_log_rows,
    of_source,
    with_returned_columns,
)
from cdc_assets.pipeline.missing_files import entries_of
from cdc_assets.pipeline.outcome import deficits_at
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.pipeline.replay import Replay, ReplayRequest, plan_replay
from cdc_assets.planning.plan import Plan
from cdc_assets.planning.recipe import masked_since
from cdc_assets.types.mysql_types import arrow_type

_SUFFIX = "__of_an_extract"
"""Suffix of a table's log in the plan of an extract: no table of a feed has such a name."""


@dataclass(frozen=True, slots=True)
class Extract:
    """The changes of a table in (since, until], by position, with the columns that the table has at `until`.

    The columns of the log follow those of the table; `net` says that there is one row a key. `source` is `log` or
    `feed`. Of keys that were forgotten there are no changes at or below `forgotten_through`, -1 where all are there.
    `lacks` are the reasons why the table is not exactly its source at `until`, so that changes may be missing.
    `pieces` reads the changes, in the order of their positions; it raises MalformedData for records that do not
    fit, and ExtractRefused where a net cannot be told.
    """

    table: TableId
    life: Life
    since: Tso
    until: Tso
    net: bool
    source: str
    forgotten_through: Tso
    lacks: tuple[str, ...]
    columns: pa.Schema
    key: tuple[str, ...]
    pieces: Callable[[], Iterator[pa.Table]] = field(repr=False)

    @property
    def changes(self) -> pa.Table:
        """All changes, in memory: for small ranges."""
        return pa.concat_tables([self.columns.empty_table(), *self.pieces()])

    def description(self) -> dict[str, object]:
        """Return the description of the file, for programs."""
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
            "forgotten_through": self.forgotten_through if self.forgotten_through >= 0 else None,
            "lacks": list(self.lacks),
        }


def extract(pipeline: Pipeline, table: str, since: Tso, until: Tso, *, net: bool = False) -> Extract:
    """Return the changes of a table in (since, until]; `table` is a present name or an identity.

    The name of a history table stands for its source table. Raises BadSettings for a table or range that is none,
    ExtractRefused for a range of which something is missing.
    """
    if since >= until:
        begins, ends = (f"{at} ({tso_time(at)})" for at in (since, until))
        raise BadSettings(f"the range begins at {begins} and ends at {ends}: give an end behind the beginning.")
    if not pipeline.settings.source_options.wire.has_positions:
        raise BadSettings("the rows of this changefeed carry no commit-ts: no change has a place in time.")
    listing, present = pipeline.planner.plan(whole=True)
    history = _named(present, table)
    name = history.last_name or history.life.born_as
    if until > listing.checkpoint:
        raise ExtractRefused(
            f"{name}: the feed is complete through {listing.checkpoint} ({tso_time(listing.checkpoint)}), and the "
            f"range ends at {until}. Ask for changes through there, or wait."
        )
    lives = present.sources
    identities = [replace(history.life, kind=kind) for kind in ("", *HISTORY_KINDS)]
    anew = not is_called(table, identities) and _begins_anew(lives, history, since, until)
    patch = _patch_op(pipeline)
    logged = _from_log(pipeline, present, history, since, until)
    reaches = (min(decision.until, until) for decision in forgotten_of(kept_out(pipeline.planner.decided), history))
    forgotten = max((at for at in reaches if at > since), default=-1)
    if logged is not None:
        source, schema, pieces, life = LOG, logged.schema, logged.pieces, replace(history.life, kind=LOG)
        forgotten = max(forgotten, logged.forgotten_through)
    else:
        source, feed, life = "feed", _FeedChanges(pipeline, listing, lives, patch), history.life
        schema, pieces = feed.changes(history, since, until, exact=net)
    deficits = deficits_at(pipeline.lake, present, life, until)
    lacks = tuple(deficit.reason for deficit in deficits if logged is not None or deficit.cause == "rows")
    own = {column.name.lower() for column in own_columns(LOG)}
    if taken := [
        column.name for column in schema.stored if column.name.lower().startswith("_cdc_") or column.name.lower() in own
    ]:
        raise ExtractRefused(
            f'{name} has a column "{taken[0]}", as an extract has one of its own. Leave the column out with the '
            "changefeed's column selectors."
        )
    first = [all_leave(schema, history.life.version)] if anew else []
    columns, key = no_log_rows(schema).schema, schema.key
    if net and not key:
        raise BadSettings(
            f"{name} has no key, so no row can be told from another: its changes have no net. Leave out --net, or name "
            "columns that identify a row in the setting keys."
        )

    def changes() -> Iterator[pa.Table]:
        all_changes = chain(first, pieces())
        return (
            NetChanges(name, schema, patch, _keyed_since(history, until)).of_pieces(all_changes) if net else all_changes
        )

    return Extract(name, history.life, since, until, net, source, forgotten, lacks, columns, key, changes)


def _begins_anew(lives: Mapping[Life, TableHistory], history: TableHistory, since: Tso, until: Tso) -> bool:
    """Return whether the table that has a name now began after `since`, when another one had the name.

    Raises ExtractRefused where it was there already, under another name: its rows came to this name as a whole. So it
    does where the name is another's at `until`, or nobody's yet.
    """
    name = history.last_name or history.life.born_as

    def owner(at: Tso) -> Life | None:
        named = ((life, table.name_at(at)) for life, table in lives.items())
        return next((life for life, then in named if then is not None and then.folded == name.folded), None)

    before, after, own = owner(since), owner(until), (None, history.life)
    other, at = (after, until) if after not in own else (before, since)
    if other not in own and (at == until or history.life.version <= since):
        raise ExtractRefused(
            f"{name} was another table at {at}: {other}. The one that has the name now is {history.life}. Extract "
            "the changes of each by its identity."
        )
    if before not in own and after is None and history.name_at(until) is not None:
        raise ExtractRefused(
            f"no table was called {name} at {until}. The one that has the name now is {history.life}. Extract its "
            "changes by its identity."
        )
    return before not in own


def _keyed_since(history: TableHistory, until: Tso) -> Tso:
    """Return the position from which on a table has the key that it has at `until`, 0 if it always had."""
    made = [(event.at, (*event.hidden, *event.changes)) for event in history.events if event.at <= until]
    return max((at for at, changes in made if any(isinstance(change, Rekey) for change in changes)), default=0)


def _patch_op(pipeline: Pipeline) -> Op:
    """Return the treatment of a patch whose row is not there: by the policy, else by the feed."""
    own = Op.UPDATE if pipeline.settings.source_options.wire.tells_inserts else Op.INSERT
    return patch_op(pipeline.settings.policies.get("patch without row", ""), own)


def _named(present: Plan, table: str) -> TableHistory:
    sources, lives = present.sources, present.history.lives
    beside = {life: history for life, history in lives.items() if life.kind and life.source in sources}
    for names in (
        lambda life, history: (life, history.name),
        lambda _, history: (history.last_name,),
    ):  # living tables first
        for life, history in (*sources.items(), *beside.items()):
            if is_called(table, names(life, history)):
                return sources[life.source]
    raise no_such_table(table, (history.name for history in sources.values()))


_Pieces = Callable[[], Iterator[pa.Table]]


@dataclass(frozen=True, slots=True)
class LogChanges:
    """Changes of a log in pieces, in their order, and the columns that they have.

    Of forgotten keys it has none at or below `forgotten_through`, -1 where it has all of the range.
    """

    schema: TableSchema
    pieces: _Pieces = field(repr=False)
    forgotten_through: Tso = -1


def _from_log(pipeline: Pipeline, present: Plan, history: TableHistory, since: Tso, until: Tso) -> LogChanges | None:
    """Return the changes of the table's log as its rows read after later DDL, None where it lacks some of them.

    A log with records in quarantine lacks these.
    """
    log = present.history.lives.get(replace(history.life, kind=LOG))
    if log is None:
        return None
    if any(deficit.cause == "records" for deficit in deficits_at(pipeline.lake, present, log.life, until)):
        return None
    shown = partial(with_returned_columns, log=log, since=since)
    return changes_of_log(pipeline, present, history, since, until, shown)


def changes_of_log(
    pipeline: Pipeline,
    present: Plan,
    history: TableHistory,
    since: Tso,
    until: Tso,
    shown: Callable[[pa.Table], pa.Table],
    equal: Mapping[str, object] = {},
) -> LogChanges | None:
    """Return the changes of a table's log, but for what is in quarantine: what `shown` makes of its rows.

    That gets them by the source's names, and only needs those whose values in some columns are `equal` to these.

    None where it does not cover the range or has other columns by now, or has values of other settings there: it is
    held where it stands, or a person said that later rows alone are masked otherwise.
    """
    life = replace(history.life, kind=LOG)
    log, state = present.history.lives.get(life), present.applied.get(life)
    if log is None or state is None or any(_begins(step) < until for step in present.of(life)):
        return None
    if history.life.version > until:  # it is another one that had its name then, or none
        return None
    if any(isinstance(step, HoldTable) and step.at <= state.progress.tso + 1 for step in present.of(life)):
        return None
    begins = state.since if state.since is not None else life.version - 1 if history.gap is not None else 0
    masked = masked_since(log, state.progress.tso, state.recipe)
    if masked is None or since < max(begins, masked - 1) or any(at > until and changes for at, changes in log.changes):
        return None
    schema = log.schema.in_lake
    renamed = {name for column in schema.columns if column.origin for name in (column.name, column.origin)}
    log_columns, schema_columns = (
        {column.name: column for column in schema.stored},
        {source_column.name: source_column for source_column in history.schema.stored},
    )
    same_columns = {
        name: value
        for name, value in equal.items()
        if name not in renamed
        and name in log_columns
        and arrow_type(log_columns[name]) == arrow_type(schema_columns[name])
    }

    def pieces() -> Iterator[pa.Table]:
        with scratch() as directory:
            position_sort = PositionSort(directory, POSITION)
            for rows in pipeline.lake.changes(life, since, until, same_columns):
                position_sort.add(shown(in_source_names(rows, schema)))
            for rows in position_sort.ranges():
                yield in_order(rows)

    return LogChanges(of_source(schema), pieces, state.forgotten if state.forgotten > since else -1)


def _begins(step: Step) -> Tso:
    return step.lo if isinstance(step, ApplyRows) else step.at - 1


# --- from the feed ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _TableRows:
    """The rows of a table once all at or below a position is applied, as inserts of its log, in the log's columns."""

    at: Tso
    schema: TableSchema
    rows: pa.Table


class _FeedChanges:
    """The changes of tables of a listed feed, decoded again as a log of each table would have them.

    `lives` are the tables of the source, by their mirrors' identities.
    """

    def __init__(self, pipeline: Pipeline, listing: Listing, lives: Mapping[Life, TableHistory], patch: Op) -> None:
        self._pipeline, self._listing, self._lives, self._patch = pipeline, listing, lives, patch
        self._replay, self._plans = Replay(pipeline), dict[Life, Plan]()
        self._rows: dict[Life, list[_TableRows]] = {}

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
                pieces = self._replay.changes(step, since, until)
            else:
                pieces = self._of_ddl(step, columns, exact) if since < step.at else iter(())
            for rows in pieces:
                for change in later:
                    rows = evolved_rows(rows, change.changes, change.schema)
                yield in_source_names(rows, at_end)

    # --- what is there ---

    def _of(self, history: TableHistory, since: Tso, until: Tso) -> Sequence[Step]:
        """Return the steps of a log of the table; raises ExtractRefused for a range of which something is missing."""
        pipeline, life = self._pipeline, replace(history.life, kind=LOG)
        if life.source not in self._plans:
            pattern = glob.escape(str(history.last_name or history.life.born_as))
            settings = pipeline.settings.with_history({pattern: {"kinds": [LOG], "suffix": {LOG: _SUFFIX}}})
            bases = {mirror: state.base for mirror, state in pipeline.lake.applied().items() if not mirror.kind}
            request = ReplayRequest(self._listing, bases, settings, renames={life: None})
            self._plans[life.source] = plan_replay(pipeline, request)
        steps = self._plans[life.source].of(life)
        steps = tuple(step for step in steps if not isinstance(step, HoldTable) or step.at <= until)
        # The newest position of a file of the table that was read once and is in none of the windows now.
        there = {file.path for step in steps if isinstance(step, ApplyRows) for file in step.files}
        listed, own = {file.path for file in self._listing.data_files}, str(history.life.source)
        entries = self._pipeline.ledger.files(self._pipeline.settings.name)
        vanished = (
            file_entry for file_entry in entries if file_entry.path not in (there if file_entry.life == own else listed)
        )
        feed = self._plans[history.life.source].history
        gone_entries = entries_of(self._pipeline.source, feed, history.life.source, vanished)
        gone = max((entry.max_commit_ts or 0 for entry in gone_entries), default=0)
        name = history.last_name or history.life.born_as
        for step in steps:
            if isinstance(step, HoldTable):
                raise ExtractRefused(f"{name} is held at {step.at}, within the range: {step.reason}")
        gap = history.gap_at(until, until)
        begins = history.life.version if gap is not None and history.base is None else 0
        expired = max((self._listing.gone.get(table, 0) for table, _, _ in history.names), default=0)
        covered = max(begins - 1 if begins else 0, expired, gone)
        if since < covered:
            why = "expired" if expired == covered else "left the feed" if gone == covered else "are not in the feed"
            raise ExtractRefused(
                f"{name}: changes through {covered} ({tso_time(covered)}) {why}. Covered is what comes after: give a "
                f"range that begins there, or later."
            )
        return steps

    # --- rows that no record tells ---

    def _of_ddl(self, step: Step, schema: TableSchema, exact: bool) -> Iterator[pa.Table]:
        """Yield the changes that a DDL makes: rows that go, and rows that come."""
        match step:
            case ExchangePartition():
                table_rows = self._rows_before(step.life, step.at)
                leaves, enters = self._exchanged(step, table_rows)
                yield _by_ddl(table_rows.rows.filter(leaves), "DELETE", step.at)
                yield _by_ddl(enters, "INSERT", step.at)
            case RecoverTable():
                yield _by_ddl(self._rows_before(step.life, step.at).rows, "INSERT", step.at)
            case ChangeTable() if exact and any(delete.partitions for delete in _deletes(step)):
                table_rows = self._rows_before(step.life, step.at)
                yield _by_ddl(table_rows.rows.filter(self._deleted(step, table_rows)), "DELETE", step.at)
            case _:
                deletes = _deletes(step)
                if deletes or isinstance(step, DropTable):
                    yield all_leave(schema, step.at, [name for delete in deletes for name in delete.partitions])

    def _rows_before(self, life: Life, at: Tso) -> _TableRows:
        """Return the rows of a table right before a DDL; raises ExtractRefused where the feed lacks some."""
        history, until = self._lives.get(life.source), at - 1
        table_states = [table_rows for table_rows in self._rows.get(life.source, ()) if table_rows.at <= until]
        begun = max(table_states, key=lambda table_rows: table_rows.at, default=None)
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
            due_step
            for due_step in steps
            if due_step.at > begins and (due_step.lo if isinstance(due_step, ApplyRows) else due_step.at - 1) < until
        )
        for schema, alike in groupby(due, lambda step: step.schema if isinstance(step, ApplyRows) else None):
            for step in alike if schema is None else ():
                if isinstance(step, CreateTable):
                    state = _TableRows(step.at, step.schema, no_log_rows(step.schema))
                elif state is not None:
                    state = self._after_ddl(step, state)
            if schema is not None and state is not None:
                net = NetChanges(history.life.born_as, schema, self._patch)
                fold, through = Fold(partial(_living, net), state.rows), state.at
                for window in alike:
                    assert isinstance(window, ApplyRows)
                    for changes in self._replay.changes(
                        window, max(through, window.lo) if window.lo >= 0 else -1, until
                    ):
                        fold.add(changes.select(state.rows.column_names).cast(state.rows.schema))
                    through = min(window.at, until)
                state = _TableRows(through, net.schema, fold.result())
        assert state is not None, f"{life} has a DDL at {at} before it begins"
        self._rows.setdefault(life.source, []).append(replace(state, at=until))
        return self._rows[life.source][-1]

    def _after_ddl(self, step: Step, state: _TableRows) -> _TableRows:
        rows, schema = state.rows, state.schema
        match step:
            case ChangeTable():
                remaining_rows = rows.filter(pc.invert(self._deleted(step, state)))
                schema = step.schema
                rows = evolved_rows(remaining_rows, step.changes, schema, living=True).select(
                    no_log_rows(schema).column_names
                )
            case ExchangePartition():
                self._rows.setdefault(step.life.source, []).append(replace(state, at=step.at - 1))
                leaves, enters = self._exchanged(step, state)
                rows = pa.concat_tables([rows.filter(pc.invert(leaves)), enters])
        return _TableRows(step.at, schema, rows)

    def _exchanged(self, step: ExchangePartition, table_rows: _TableRows) -> tuple[pa.Array, pa.Table]:
        """Return the rows that an exchange takes away, and the rows that come, in the table's columns."""
        if step.masks.get(step.life.source, {}) != step.masks.get(step.other.source, {}):
            raise ExtractRefused(
                f"{step.life.source}: the rows that came at {step.at} from {step.other.source} are masked otherwise. "
                f"Extract the changes through {step.at - 1}, and those after {step.at}."
            )
        partner_rows = self._rows_before(step.other, step.at)
        other = in_source_names(partner_rows.rows, partner_rows.schema)
        names = table_rows.schema.lake_names
        other = other.rename_columns([names.get(name, name) for name in other.column_names])
        if step.partitioned:
            leaves = _matching(table_rows.rows, step.predicate, table_rows)
        else:
            leaves = pa.repeat(pa.scalar(True), table_rows.rows.num_rows)
            other = other.filter(_matching(other, step.predicate, partner_rows))
        columns = [
            other.column(field.name).cast(field.type)
            if field.name in other.column_names
            else pa.nulls(other.num_rows, field.type)
            for field in table_rows.rows.schema
        ]
        return leaves, pa.table(columns, schema=table_rows.rows.schema)

    def _deleted(self, step: ChangeTable, state: _TableRows) -> pa.Array:
        """Return the rows that an ALTER takes away; its conditions are about the columns that the log has."""
        gone = pa.repeat(pa.scalar(False), state.rows.num_rows)
        for delete in _deletes(step):
            all_rows = pa.repeat(pa.scalar(True), state.rows.num_rows)
            gone = pc.or_(
                gone, all_rows if delete.predicate is None else _matching(state.rows, delete.predicate, state)
            )
        return gone


# --- the plan, and what is missing ------------------------------------------------------------------------------------


# --- rows that go and come by a DDL -----------------------------------------------------------------------------------


def _deletes(step: Step) -> list[DeleteRows]:
    return (
        [change for change in step.changes if isinstance(change, DeleteRows)] if isinstance(step, ChangeTable) else []
    )


def _living(net: NetChanges, rows: pa.Table) -> pa.Table:
    """Return the rows that are left of inserts and changes behind them."""
    if not net.schema.key:
        return counted_rows(rows, net.schema)
    net_rows = net.of(rows)
    net_rows = net_rows.filter(pc.invert(pc.is_in(net_rows.column(CHANGE_TYPE), pa.array(LEAVES))))
    if net_rows.column(ABSENT).null_count < net_rows.num_rows:
        raise ExtractRefused(
            f"{net.name}: rows came or went by a DDL without changes of their own, and of some only a part of the "
            "columns is in the feed."
        )
    return net_rows


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
