"""Quarantined records applied after a fix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from cdc_assets.decoding.keyed_rows import RecordReplay
from cdc_assets.errors import CdcError, InputError, Retryable, TableHeld
from cdc_assets.features.columns.planning import standing_columns
from cdc_assets.features.kinds.decoding import history_kind
from cdc_assets.features.kinds.planning import rule_of
from cdc_assets.model.kinds import NOT_ASKED_FOR
from cdc_assets.model.layout import DELETED_AT
from cdc_assets.model.progress import AppliedState, Life, Phase, Progress
from cdc_assets.model.quarantine import OPEN, QuarantinedRow
from cdc_assets.model.reports import FileStats
from cdc_assets.model.schema import TableId
from cdc_assets.model.schema_changes import ContinueColumn, DeleteRows, Rekey, SchemaChange
from cdc_assets.model.splits import DataFile, Listing
from cdc_assets.model.steps import ApplyRows, ChangeTable, ExchangePartition, HoldTable, RenameTable, RowReading
from cdc_assets.model.table_history import TableHistory
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted, first_of
from cdc_assets.operations.named import is_called
from cdc_assets.pipeline.pipeline import looking_again
from cdc_assets.pipeline.replay import ReplayRequest, plan_replay
from cdc_assets.planning.plan import number_sequence

if TYPE_CHECKING:
    from cdc_assets.pipeline.pipeline import Pipeline
    from cdc_assets.planning.plan import Plan

__all__ = ["ReplayResult", "replay"]


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of replaying one table's records: `waiting` stay open, `reason` says why some were not replayed."""

    life: Life
    table: TableId
    rows: int = 0
    waiting: int = 0
    reason: str = ""
    error: CdcError | None = field(default=None, compare=False)


def needed(pipeline: Pipeline, planned: Plan) -> dict[Life, str]:
    """Return the tables whose records may be rows of another table, with the reason why they stay."""
    waiting, lives = pipeline.lake.quarantined_counts(), planned.history.lives
    others = {
        life: lives[life].exchanges[-1][1]
        for life, count in waiting.items()
        if count and life in lives and lives[life].exchanges
    }
    return {
        life: f"its records in quarantine may be rows of {other}, with which it exchanged rows: rebuild that one first"
        for life, other in others.items()
    }


def replay(pipeline: Pipeline, table: str = "") -> tuple[ReplayResult, ...]:
    """Replay the open records of a changefeed, or of one table (`schema.table`); a failed table stops no other."""
    applied = pipeline.lake.applied()  # before the records: tables of which rows are forgotten from here on refuse them
    lives: dict[Life, list[QuarantinedRow]] = {}
    for row in pipeline.lake.quarantined():
        if row.state == OPEN and (not table or is_called(table, (row.table, row.life, row.life.born_as))):
            lives.setdefault(row.life, []).append(row)
    if not lives:
        return ()
    done = []
    for life, rows in sorted(lives.items()):
        name, waiting, reasons = rows[-1].table, len(rows), list[str]()
        try:
            if life not in applied:
                raise TableHeld(f"{life} is not in the lake. Apply the changefeed first.", table=str(life))
            due = [row for row in rows if _is_left_out(row, applied[life])]
            if not due:
                raise TableHeld(
                    f"{life} is not applied through the window of its quarantined records. Apply the changefeed first.",
                    table=str(life),
                )
            # A replay reads from the earliest window of its records on, and the files have the rows that were forgotten
            # since: records from before that are replayed by themselves.
            for older in (False, True):
                some = [row for row in due if (row.lo < applied[life].forgotten) == older]
                if not some:
                    continue
                bad = looking_again(partial(_replayed, pipeline, some, applied[life]))
                waiting -= len(some) - len(bad)
                reasons += bad
            more_text = f"; {counted(len(reasons) - 1, 'more record')} of it" if reasons[1:] else ""
            done.append(
                ReplayResult(life, name, len(rows) - waiting, waiting, f"{reasons[0]}{more_text}" if reasons else "")
            )
        except (InputError, Retryable) as error:
            done.append(ReplayResult(life, name, len(rows) - waiting, waiting, error.message, error))
    return tuple(done)


def _is_left_out(row: QuarantinedRow, applied: AppliedState) -> bool:
    """Return whether the table has a window without a record: that in which it was set aside may not be applied."""
    through = applied.progress.through
    return row.lo < through if row.commit_ts is None else row.commit_ts <= through


def _replayed(pipeline: Pipeline, rows: Sequence[QuarantinedRow], applied: AppliedState) -> tuple[str, ...]:
    """Replay records of one table, and return why those that do not fit yet do not."""
    lookup = pipeline.lake.replay(_plan_replay(pipeline, rows, applied), pipeline.source.reader)
    return tuple(lookup.bad.values())


def read_again(pipeline: Pipeline) -> frozenset[Life]:
    """Return the tables of the source of which records are in quarantine: a replay reads their input again."""
    return frozenset(life.source for life, count in pipeline.lake.quarantined_counts().items() if count)


def _plan_replay(pipeline: Pipeline, rows: Sequence[QuarantinedRow], applied: AppliedState) -> RecordReplay:
    """Plan what is read again for records of one table.

    Raises InputError with the names of missing files, and TableHeld if rows cannot be converted through the table's
    later changes.
    """
    life, lo, through = rows[0].life, min(row.lo for row in rows), applied.progress.tso
    name, positions = pipeline.settings.name, pipeline.settings.source_options.wire.has_positions
    listing, rules = pipeline.source.listing(), pipeline.planner.rules(pipeline.lake.decisions())
    before = {stats.path: stats for stats in pipeline.ledger.files_of(name, life.source)}
    files = {row.file for row in rows}
    there = {file.name for file in (*listing.data_files, *_brought(listing))}
    later = {path for path, stats in before.items() if stats.max_commit_ts is None or stats.max_commit_ts > lo}
    missing = sorted((files | later) - there)
    if missing:
        raise InputError(
            f"{life}: the records cannot be replayed, because the files with their changes are missing: "
            f"{first_of(missing, 'file', 5)}. "
            "Restore them, or rebuild the table from a changefeed that has all of its rows.",
            table=str(life),
        )
    past_files = tuple(file for file in listing.schema_files if file.version <= applied.ddl)
    past = replace(listing, schema_files=past_files, checkpoint=through)
    begun = replace(AppliedState(Progress(lo, Phase.ROWS), lo, applied.name), base=applied.base, layout=applied.layout)
    begun = replace(begun, begins=applied.begins)
    planned = plan_replay(pipeline, ReplayRequest(past, {}, begins={life: begun}))
    table = _living(planned, life, lo)
    for hold in rules.recipes.holds(planned.history, {life: applied}):
        raise TableHeld(f"{life}: {hold.reason}", table=str(life), ways=hold.ways)
    steps = _carried(planned, table, applied)
    targets: dict[str, frozenset[int]] = {}
    for row in rows:
        targets[row.file] = targets.get(row.file, frozenset()) | {row.line}
    source, numbers = planned.sources[life.source], None if positions else applied.positions
    gone = max((listing.gone.get(name, 0) for name, _, _ in source.names), default=0)
    # Some of the rows to be read again may not be landed any more.
    if gone > lo:
        raise InputError(
            f"{life}: the records cannot be replayed, because other rows of it through {gone} are not landed any more: "
            "they have expired, or stood in messages with rows that were forgotten. Base the table on a dump from then "
            "or later.",
            table=str(life),
        )
    rule = rule_of(rules.kinds, source.last_name or life.born_as) if life.kind else None
    frame = ApplyRows(life, lo, through, (), RowReading(), table.schema.in_lake, applied.ddl, numbers, history=rule)
    frame = replace(frame, lake_columns=standing_columns(life, rules.lake_columns, applied.layout))
    changed = _changed_since(targets, before, listing)
    return RecordReplay(frame, steps, targets, changed, alone=lo < applied.forgotten)


def _living(planned: Plan, life: Life, lo: Tso) -> TableHistory:
    """Return a table's history; raises TableHeld for one that is dropped, whose rows may be another's by then.

    So it does for one that the settings leave out.
    """
    table = planned.history.lives.get(life)
    if table is None and planned.sources[life.source].name is not None:
        raise TableHeld(f"{life} takes no records in: {NOT_ASKED_FOR}", table=str(life))
    partners = () if table is None else tuple(other for at, other in table.exchanges if at > lo)
    if partners and (table is None or table.name is None):
        raise TableHeld(
            f"{life} is dropped, and exchanged rows with {partners[0]} before: its quarantined records may be rows of "
            f"that one now. Rebuild it: cdc-assets rebuild {partners[0]}.",
            table=str(life),
        )
    if table is None or table.name is None:
        raise TableHeld(
            f"{life} is dropped, so its quarantined records have no table to go to. They go when it is purged: "
            f"cdc-assets purge {life}.",
            table=str(life),
        )
    return table


def _carried(planned: Plan, table: TableHistory, applied: AppliedState) -> tuple[ApplyRows | ChangeTable, ...]:
    """The table's later steps, by which rows are converted one by one; raises TableHeld for one that needs all rows."""
    life = table.life
    for step in planned.of(life):
        if isinstance(step, (HoldTable, ExchangePartition)) or (isinstance(step, RenameTable) and step.begins):
            raise _not_carried(life, step.at)
    steps = tuple(_taken(step, applied) for step in planned.of(life) if isinstance(step, (ApplyRows, ChangeTable)))
    changes = [changed for changed in steps if isinstance(changed, ChangeTable) and changed.changes]
    windows = [changed for changed in steps if isinstance(changed, ApplyRows)]
    unordered = any(changed.positions is not None for changed in windows)
    marks = any(DELETED_AT in changed.lake_columns for changed in windows)
    for changed in changes:
        ends = life.kind and history_kind(life.kind).PARTITION and any(map(_moves_rows, changed.changes))
        ends = ends or (marks and any(isinstance(change, DeleteRows) for change in changed.changes))
        if not table.schema.key or unordered or ends or any(isinstance(change, Rekey) for change in changed.changes):
            raise _not_carried(life, changed.at)
    return steps


def _changed_since(paths: Iterable[str], before: Mapping[str, FileStats], listing: Listing) -> bool:
    """Return whether one of the files has changed since it was read; the lines of landed messages stay what they were.

    Some of these may be emptied, of rows that were forgotten.
    """
    files = {file.name: file for file in (*listing.data_files, *_brought(listing))}

    def as_read(file: DataFile) -> bool:
        read_before = before.get(file.name)
        return read_before is not None and (file.size, file.etag) == (read_before.size, read_before.etag)

    return any(files[path].messages is None and not as_read(files[path]) for path in paths)


def _brought(listing: Listing) -> Iterator[DataFile]:
    """The files of dumps."""
    return (file for chosen_rows in listing.imports for file in chosen_rows.files)


def _taken(step: ApplyRows | ChangeTable, applied: AppliedState) -> ApplyRows | ChangeTable:
    """Leave out files that are not applied to the table yet, for feeds without commit-ts."""
    if isinstance(step, ChangeTable) or step.positions is None:
        return step
    files = tuple(file for file in step.files if file.number <= applied.positions.get(number_sequence(file), 0))
    return replace(step, files=files)


def _moves_rows(change: SchemaChange) -> bool:
    """Return whether a change ends states, which those of a replay would have to end at as well."""
    return isinstance(change, (DeleteRows, ContinueColumn))


def _not_carried(life: Life, at: Tso) -> TableHeld:
    return TableHeld(
        f"{life}: the records are older than the DDL of version {at}, and this table's rows cannot be converted "
        "through it one by one. Rebuild the table.",
        table=str(life),
    )
