"""Records that do not fit, kept aside so that the rest of their window can be applied, and replayed after a fix.

    window ──rejects──▶ stage ──▶ lake table `_cdc.quarantine`, one row for each (changefeed, file, line)
    replay: open rows ──▶ files read again from their window to the applied TSO ──▶ keys of those rows ──▶ one commit

What was kept aside is written before its window, so a crash in between loses nothing: the window is read again and
finds the same records. A replay takes all changes of the keys from the record's window on and reduces them together, so
that an old record cannot undo newer ones. A table without key gets the difference that the records make instead.

Until it is replayed, the lake's row of such a key may be one that the source no longer has, or be missing.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.collation import is_plain, normal_form
from cdc_assets.errors import CdcError, InputError, Retryable, TableHeld
from cdc_assets.evolution import evolve_rows
from cdc_assets.formats import LINE, OP, Op
from cdc_assets.model import (
    Applied,
    ApplyRows,
    ChangeTable,
    DeleteRows,
    ExchangePartition,
    FileStats,
    HoldTable,
    Life,
    Listing,
    Phase,
    Progress,
    Reject,
    Rekey,
    SinkOptions,
    TableId,
    TableSchema,
    Tso,
)
from cdc_assets.plan import number_sequence, plan
from cdc_assets.reduce import COUNT, FILE, reduce_changes
from cdc_assets.release import Releases
from cdc_assets.window import Window, decode_window, rejected

if TYPE_CHECKING:
    from cdc_assets.pipeline import Pipeline

__all__ = [
    "OPEN",
    "REPLAYED",
    "Found",
    "QuarantinedRow",
    "Replay",
    "Replayed",
    "carried",
    "find_keys",
    "plan_replay",
    "read_replay",
    "rejects_table",
    "replay",
    "replay_tasks",
]

OPEN, REPLAYED = "open", "replayed"

MAX_KEYS = 100_000
"""With more keys than this a replay merges all that it reads, which is as right and no dearer."""

Read = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class QuarantinedRow:
    """A record that was kept aside. `line` counts records of the file; `lo` is the TSO at which its window began.

    `table` is the name that the record's directory has. `raw` is the record's bytes without terminator, b"" where they
    were not asked for.
    """

    life: Life
    table: TableId
    file: str
    line: int
    column: str
    reason: str
    schema_version: Tso
    commit_ts: Tso | None
    lo: Tso
    run: str
    quarantined_at: dt.datetime
    state: str = OPEN
    raw: bytes = b""


REJECTS = pa.schema(
    [
        ("file", pa.string()),
        ("line", pa.int64()),
        ("column", pa.string()),
        ("reason", pa.string()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("schema_version", pa.int64()),
        ("commit_ts", pa.int64()),
        ("raw", pa.binary()),
    ]
)
"""Columns of staged records for the quarantine."""


def rejects_table(rejects: Iterable[Reject], step: ApplyRows) -> pa.Table:
    """Return records of a step's files with the columns of REJECTS."""
    files = {file.path: file for file in step.files}
    rows = []
    for reject in rejects:
        file = files[reject.path]
        name = step.schemas[file.root, file.version][0]
        place = {"file": reject.path, "line": reject.line, "column": reject.column, "reason": reject.reason}
        origin = {"schema": name.schema, "table": name.table, "schema_version": file.version}
        rows.append({**place, **origin, "commit_ts": reject.commit_ts, "raw": reject.raw})
    return pa.Table.from_pylist(rows, schema=REJECTS)


# --- planning a replay ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replay:
    """What is read again: windows and changes of a table from `frame.lo` to `frame.hi`, which it is applied through.

    `frame` has the table's present schema and no files. `targets` are the lines of quarantined records by file. `keys`
    are those to be merged, None for all; `whole` says that the files no longer are what they were, so that lines do not
    tell the keys.
    """

    frame: ApplyRows
    steps: tuple[ApplyRows | ChangeTable, ...]
    targets: Mapping[str, frozenset[int]]
    whole: bool = False
    keys: pa.Table | None = None

    @property
    def windows(self) -> tuple[tuple[int, ApplyRows], ...]:
        """The windows with their places in `steps`."""
        return tuple((place, step) for place, step in enumerate(self.steps) if isinstance(step, ApplyRows))


def plan_replay(
    rows: Sequence[QuarantinedRow],
    listing: Listing,
    applied: Applied,
    *,
    keys: Mapping[str, tuple[str, ...]] | None = None,
    commit_ts: bool = True,
    read_before: Iterable[FileStats] = (),
    policies: Mapping[str, str] | None = None,
    releases: Releases | None = None,
) -> Replay:
    """Plan the replay of one table's open records. `read_before` is what reading the table's files told.

    Raises InputError that names files which are gone, and TableHeld where rows cannot be carried over what happened to
    the table since.
    """
    life, lo = rows[0].life, min(row.lo for row in rows)
    before = {stats.path: stats for stats in read_before}
    _refuse_gone(life, {row.file for row in rows}, before, lo, listing)
    known = tuple(file for file in listing.schema_files if file.version <= applied.ddl)
    through = applied.progress.tso
    start = Applied(Progress(lo, Phase.ROWS), lo, applied.name)
    past = replace(listing, schema_files=known, checkpoint=through)
    planned = plan(past, {life: start}, keys=keys, commit_ts=commit_ts, policies=policies, releases=releases)
    table = planned.history.lives.get(life)
    if table is None or table.name is None:
        raise TableHeld(f"{life} is dropped, so its quarantined records have no table to go to.", table=str(life))
    steps = tuple(_taken(step, applied) for step in planned.of(life) if isinstance(step, (ApplyRows, ChangeTable)))
    for step in planned.of(life):
        if isinstance(step, (HoldTable, ExchangePartition)):
            raise _not_carried(life, step.at)
    _refuse_changes(life, steps, table.schema)
    targets: dict[str, frozenset[int]] = {}
    for row in rows:
        targets[row.file] = targets.get(row.file, frozenset()) | {row.line}
    now = {file.path: (file.size, file.etag) for file in listing.data_files}
    whole = any(path not in before or now[path] != (before[path].size, before[path].etag) for path in targets)
    positions = applied.positions if not commit_ts else None
    frame = ApplyRows(life, lo, through, (), {}, table.schema, applied.ddl, (), positions)
    return Replay(frame, steps, targets, whole)


def _refuse_gone(life: Life, files: set[str], before: Mapping[str, FileStats], lo: Tso, listing: Listing) -> None:
    there = {file.path for file in listing.data_files}
    later = {path for path, stats in before.items() if stats.max_commit_ts is None or stats.max_commit_ts > lo}
    gone = sorted((files | later) - there)
    if gone:
        shown = ", ".join(gone[:5]) + (f" and {len(gone) - 5} more" if len(gone) > 5 else "")
        raise InputError(
            f"{life}: the records cannot be replayed, because files that their changes stand in are gone: {shown}. "
            "Restore them, or rebuild the table from a changefeed that has all of its rows.",
            table=str(life),
        )


def _taken(step: ApplyRows | ChangeTable, applied: Applied) -> ApplyRows | ChangeTable:
    """Without commit-ts, leave out files that the table has not taken in yet."""
    if isinstance(step, ChangeTable) or step.positions is None:
        return step
    files = tuple(file for file in step.files if file.number <= applied.positions.get(number_sequence(file), 0))
    return replace(step, files=files)


def _refuse_changes(life: Life, steps: Sequence[ApplyRows | ChangeTable], schema: TableSchema) -> None:
    """Refuse a table whose rows cannot be carried over its DDL one by one."""
    changes = [step for step in steps if isinstance(step, ChangeTable) and step.changes]
    windows = [step for step in steps if isinstance(step, ApplyRows)]
    unordered = any(step.positions is not None for step in windows)
    for step in changes:
        if not schema.key or unordered or any(isinstance(change, Rekey) for change in step.changes):
            raise _not_carried(life, step.at)


def _not_carried(life: Life, at: Tso) -> TableHeld:
    return TableHeld(
        f"{life}: the records are older than the DDL of version {at}, and this table's rows cannot be carried over it "
        "one by one. Rebuild the table.",
        table=str(life),
    )


# --- reading again ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """What the files now say of quarantined records: the keys of those that fit, and (file, line) of those that do not.

    `keys` is None where all keys of the range are to be merged.
    """

    keys: pa.Table | None
    bad: frozenset[tuple[str, int]] = frozenset()


def find_keys(replay: Replay, options: SinkOptions, read: Read) -> Found:
    """Read the quarantined records' files again. Raises MalformedData for a file that cannot be trusted at all."""
    bad: set[tuple[str, int]] = set()
    seen: set[tuple[str, int]] = set()
    keys: list[pa.Table] = []
    for place, step in replay.windows:
        share = [position for position, file in enumerate(step.files) if file.path in replay.targets]
        window = decode_window(step, options, read, share, quarantine=True)
        _refuse_failed(step, window)
        bad.update((r.path, r.line) for r in window.rejects if r.line in replay.targets[r.path])
        changes = window.changes.filter(_targets(window.changes, step, replay.targets))
        paths = [step.files[position].path for position in changes.column(FILE).to_pylist()]
        seen.update(zip(paths, changes.column(LINE).to_pylist(), strict=True))
        if replay.frame.schema.key:
            keys.append(_to_present(changes, replay, place).select(list(replay.frame.schema.key)))
    lost = any((path, line) not in seen | bad for path, lines in replay.targets.items() for line in lines)
    if replay.whole or lost or not keys or sum(table.num_rows for table in keys) > MAX_KEYS:
        return Found(None, frozenset(bad))
    return Found(pa.concat_tables(keys), frozenset(bad))


def replay_tasks(replay: Replay) -> list[tuple[int, list[int]]]:
    """Cut a replay into tasks for `read_replay`: a place in `steps` and positions of that window's files."""
    return [(place, list(range(len(step.files)))) for place, step in replay.windows]


def read_replay(replay: Replay, options: SinkOptions, read: Read, task: tuple[int, Sequence[int]]) -> Window:
    """Return one task's share of the changes to be merged, reduced, with the columns of the present schema.

    Records that still do not fit are left out. The report fails for a file that cannot be trusted at all.
    """
    place, share = task
    step = replay.steps[place]
    assert isinstance(step, ApplyRows)
    window = decode_window(step, options, read, share, quarantine=True)
    changes = window.changes
    if not replay.frame.schema.key:
        return Window(_difference(changes, step, replay.targets), window.report)
    changes = _to_present(reduce_changes(changes, step.schema, step.life.born_as), replay, place)
    offset = sum(len(earlier.files) for earlier_place, earlier in replay.windows if earlier_place < place)
    files = pc.add(changes.column(FILE), pa.scalar(offset, pa.int32()))
    changes = changes.set_column(changes.schema.get_field_index(FILE), pa.field(FILE, pa.int32()), files)
    return Window(_of_keys(changes, replay.keys, replay.frame.schema), window.report)


def _refuse_failed(step: ApplyRows, window: Window) -> None:
    if window.report.failed:
        raise rejected(step, window.report)


def _targets(changes: pa.Table, step: ApplyRows, targets: Mapping[str, Collection[int]]) -> pa.Array:
    """Mark the rows of quarantined records."""
    mask = pa.repeat(pa.scalar(False), changes.num_rows)
    for position, file in enumerate(step.files):
        if file.path in targets:
            lines = pa.array(sorted(targets[file.path]), pa.int64())
            here = pc.equal(changes.column(FILE), pa.scalar(position, pa.int32()))
            mask = pc.or_(mask, pc.and_(here, pc.is_in(changes.column(LINE), lines)))
    return mask


def _of_keys(changes: pa.Table, keys: pa.Table | None, schema: TableSchema) -> pa.Table:
    if keys is None:
        return changes
    names = list(schema.key)
    rows = _normal(changes, schema).with_row_index("_cdc_row")
    kept = rows.join(_normal(keys, schema), on=names, how="semi", nulls_equal=True)
    return changes.take(kept.get_column("_cdc_row").to_arrow())


def _normal(rows: pa.Table, schema: TableSchema) -> pl.DataFrame:
    """The key columns, with equal texts of a collation made one."""
    arrays = []
    for name in schema.key:
        array, collation = rows.column(name), schema.column(name).collation
        if collation and not is_plain(collation) and pa.types.is_string(array.type):
            array = normal_form(array.combine_chunks(), collation)
        arrays.append(array)
    frame = pl.from_arrow(pa.table(arrays, names=list(schema.key)))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _difference(changes: pa.Table, step: ApplyRows, targets: Mapping[str, Collection[int]]) -> pa.Table:
    """What the records add to the net of all others: rows of a table without key are counted, not identified."""
    mine = _targets(changes, step, targets)
    with_them = reduce_changes(changes, step.schema, step.life.born_as)
    without = reduce_changes(changes.filter(pc.invert(mine)), step.schema, step.life.born_as)
    negated = pc.negate(without.column(COUNT))
    without = without.set_column(without.schema.get_field_index(COUNT), pa.field(COUNT, pa.int64()), negated)
    both = pa.concat_tables([with_them, without])
    values = [column.name for column in step.schema.stored]
    frame = pl.from_arrow(both.select([*values, COUNT]))
    assert isinstance(frame, pl.DataFrame)
    lists = [name for name in values if isinstance(frame.schema[name], pl.List)]
    by = frame.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join(",")) if lists else frame
    summed = by.with_row_index("_cdc_row").group_by(values).agg(pl.col(COUNT).sum(), pl.col("_cdc_row").first())
    summed = summed.filter(pl.col(COUNT) != 0)
    kept = both.take(summed.get_column("_cdc_row").to_arrow())
    counts = summed.get_column(COUNT).to_arrow().cast(pa.int64())
    return kept.set_column(kept.schema.get_field_index(COUNT), pa.field(COUNT, pa.int64()), counts)


# --- over a DDL -------------------------------------------------------------------------------------------------------


def _to_present(changes: pa.Table, replay: Replay, place: int) -> pa.Table:
    """Carry changes of a window over all that was done to the table's columns after it."""
    for step in replay.steps[place + 1 :]:
        if isinstance(step, ChangeTable):
            changes = carried(changes, step)
    names = [name for name in changes.column_names if name.startswith("_cdc_")]
    return changes.select([*names, *(column.name for column in replay.frame.schema.stored)])


def carried(changes: pa.Table, step: ChangeTable) -> pa.Table:
    """Return row changes from before a DDL as it leaves them: a row that it deletes becomes a delete of its key."""
    columns = []
    for change in step.changes:
        if isinstance(change, DeleteRows):
            changes = _deleted(changes, change)
        elif not isinstance(change, Rekey):
            columns.append(change)
    return evolve_rows(changes, columns, step.schema)


def _deleted(changes: pa.Table, change: DeleteRows) -> pa.Table:
    from cdc_assets.ddl import polars_expr

    gone = pa.repeat(pa.scalar(True), changes.num_rows)
    if change.predicate is not None:
        frame = pl.from_arrow(changes)
        assert isinstance(frame, pl.DataFrame)
        chosen = frame.select(polars_expr(change.predicate).fill_null(value=False).alias("gone"))
        gone = chosen.get_column("gone").to_arrow()
    ops = pc.if_else(gone, pa.scalar(int(Op.DELETE), pa.int8()), changes.column(OP))
    return changes.set_column(changes.schema.get_field_index(OP), pa.field(OP, pa.int8()), ops)


# --- doing it ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replayed:
    """How the replay of one table's records went. `left` are still open, `reason` says why when nothing was done."""

    life: Life
    table: TableId
    rows: int = 0
    left: int = 0
    reason: str = ""
    error: CdcError | None = field(default=None, compare=False)


def replay(pipeline: Pipeline, table: str = "") -> tuple[Replayed, ...]:
    """Replay the open records of a changefeed, or of one table (`schema.table`); one that fails stops no other."""
    lives: dict[Life, list[QuarantinedRow]] = {}
    for row in pipeline.lake.quarantined():
        if row.state == OPEN and table in ("", str(row.table), str(row.life.born_as)):
            lives.setdefault(row.life, []).append(row)
    if not lives:
        return ()
    listing, applied = pipeline.feed.listing(), pipeline.lake.applied()
    done = []
    for life, rows in sorted(lives.items()):
        name = rows[-1].table
        try:
            if life not in applied:
                raise TableHeld(f"{life} is not in the lake. Apply the changefeed first.", table=str(life))
            left = _replay_one(pipeline, rows, listing, applied[life])
            done.append(Replayed(life, name, len(rows) - left, left))
        except (InputError, Retryable) as error:
            done.append(Replayed(life, name, 0, len(rows), error.message, error))
    return tuple(done)


def _replay_one(pipeline: Pipeline, rows: Sequence[QuarantinedRow], listing: Listing, applied: Applied) -> int:
    settings = pipeline.settings
    planned = plan_replay(
        rows,
        listing,
        applied,
        keys=settings.keys,
        commit_ts=settings.sink_options.has_commit_ts,
        policies=settings.policies,
        releases=pipeline.lake.releases(),
        read_before=pipeline.ledger.files_of(settings.name, rows[0].life),
    )
    return len(pipeline.lake.replay(planned, settings.sink_options, pipeline.feed.opener).bad)
