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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import pyarrow as pa

from cdc_assets.decoding.kinds import own_columns
from cdc_assets.errors import BadSettings, ExtractRefused
from cdc_assets.formats import POSITION, Op
from cdc_assets.formats.changes import patch_op
from cdc_assets.io.scratch import scratch
from cdc_assets.model.kinds import HISTORY_KINDS
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.schema_changes import Rekey
from cdc_assets.model.steps import ApplyRows, HoldTable, Step
from cdc_assets.model.table_history import TableHistory
from cdc_assets.model.tso import Tso, tso_time
from cdc_assets.operations.feed_changes import FeedChanges
from cdc_assets.operations.log_rows import (
    LOG,
    all_leave,
    in_order,
    in_source_names,
    no_log_rows,
    of_source,
    with_returned_columns,
)
from cdc_assets.operations.named import is_called, no_such_table
from cdc_assets.operations.net_changes import NetChanges
from cdc_assets.operations.position_sort import PositionSort
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.planning.plan import Plan
from cdc_assets.planning.value_settings import masked_since
from cdc_assets.types.mysql_types import arrow_type


@dataclass(frozen=True, slots=True)
class Extract:
    """The changes of a table in (since, until], by position, with the columns that the table has at `until`.

    The columns of the log follow those of the table; `net` says that there is one row a key. `source` is `log` or
    `feed`. Of keys that were forgotten a log has no changes at or below `forgotten_through`, -1 where it has all.
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
            "forgotten_through": self.forgotten_through if self.forgotten_through >= 0 else None,
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
    listing, present = pipeline.plan(whole=True)
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
    if logged is not None:
        source, schema, pieces, forgotten = LOG, logged.schema, logged.pieces, logged.forgotten_through
    else:
        source, forgotten, feed = "feed", -1, FeedChanges(pipeline, listing, lives, patch)
        schema, pieces = feed.changes(history, since, until, exact=net)
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
        every = chain(first, pieces())
        return NetChanges(name, schema, patch, _keyed_since(history, until)).of_pieces(every) if net else every

    return Extract(name, history.life, since, until, net, source, forgotten, columns, key, changes)


def _begins_anew(lives: Mapping[Life, TableHistory], history: TableHistory, since: Tso, until: Tso) -> bool:
    """Return whether the table that has a name now began after `since`, when another one had the name.

    Raises ExtractRefused where it was there already, under another name: its rows came to this name as a whole. So it
    does where the name is another's at `until`, or nobody's yet.
    """
    name = history.last_name or history.life.born_as

    def owner(at: Tso) -> Life | None:
        named = ((life, one.name_at(at)) for life, one in lives.items())
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
    return max((at for at, changes in made if any(isinstance(one, Rekey) for one in changes)), default=0)


def _patch_op(pipeline: Pipeline) -> Op:
    """Return what becomes of a patch whose row is not there: what the policy says, else what the feed means by it."""
    own = Op.UPDATE if pipeline.settings.source_options.wire.tells_inserts else Op.INSERT
    return patch_op(pipeline.settings.policies.get("patch without row", ""), own)


def _named(present: Plan, table: str) -> TableHistory:
    sources, lives = present.sources, present.history.lives
    beside = {life: one for life, one in lives.items() if life.kind and life.source in sources}
    for names in (lambda life, one: (life, one.name), lambda _, one: (one.last_name,)):  # living tables first
        for life, one in (*sources.items(), *beside.items()):
            if is_called(table, names(life, one)):
                return sources[life.source]
    raise no_such_table(table, (one.name for one in sources.values()))


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
    if log is None or pipeline.lake.quarantined_counts().get(log.life):
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
    masked = masked_since(log, state.progress.tso, state.settings)
    if masked is None or since < max(begins, masked - 1) or any(at > until and changes for at, changes in log.changes):
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
        with scratch() as directory:
            found = PositionSort(directory, POSITION)
            for rows in pipeline.lake.changes(life, since, until, same):
                found.add(shown(in_source_names(rows, schema)))
            for rows in found.ranges():
                yield in_order(rows)

    return LogChanges(of_source(schema), pieces, state.forgotten if state.forgotten > since else -1)


def _begins(step: Step) -> Tso:
    return step.lo if isinstance(step, ApplyRows) else step.at - 1
