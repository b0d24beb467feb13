"""Quarantined records of one table -> what is read again to apply them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from cdc_assets.decoding.kinds import history_kind
from cdc_assets.decoding.replay import Replay
from cdc_assets.errors import InputError, TableHeld
from cdc_assets.model.progress import AppliedState, Life, Phase, Progress
from cdc_assets.model.quarantine import QuarantinedRow
from cdc_assets.model.reports import FileStats
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.schema_changes import ContinueColumn, DeleteRows, Rekey, SchemaChange
from cdc_assets.model.splits import DataFile, Listing
from cdc_assets.model.steps import ApplyRows, ChangeTable, ExchangePartition, HoldTable
from cdc_assets.model.table_history import TableHistory
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import first_of
from cdc_assets.planning.inputs import FeedFacts, TableRules
from cdc_assets.planning.kinds import rule_of
from cdc_assets.planning.plan import Plan, number_sequence, plan

__all__ = ["plan_replay"]


def plan_replay(
    rows: Sequence[QuarantinedRow],
    listing: Listing,
    applied: AppliedState,
    rules: TableRules,
    *,
    positions: bool = True,
    read_before: Iterable[FileStats] = (),
) -> Replay:
    """Plan the replay of one table's open records. `read_before` are the statistics of the table's files.

    Without `positions` rows carry no commit-ts. Cuts are passed over: their tags are where they are.

    Raises InputError with the names of missing files, and TableHeld if rows cannot be converted through the table's
    later changes.
    """
    life, lo = rows[0].life, min(row.lo for row in rows)
    before = {stats.path: stats for stats in read_before}
    _refuse_gone(life, {row.file for row in rows}, before, lo, listing)
    known = tuple(file for file in listing.schema_files if file.version <= applied.ddl)
    through = applied.progress.tso
    start = AppliedState(Progress(lo, Phase.ROWS), lo, applied.name, base=applied.base)
    past = replace(listing, schema_files=known, checkpoint=through)
    values = None if rules.values is None else replace(rules.values, compared=False)  # the present label is, below
    planned = plan(past, {life: start}, replace(rules, values=values, cuts=(), fuse=False), FeedFacts(positions))
    table = _living(planned, life, lo)
    if rules.values is not None:
        for hold in rules.values.holds(planned.history, {life: applied}):
            raise TableHeld(f"{life}: {hold.reason}", table=str(life), ways=hold.ways)
    steps = _carried(planned, table, applied)
    targets, numbers = _targets(rows), None if positions else applied.positions
    source = planned.sources[life.source]
    _refuse_lost(life, max((listing.gone.get(name, 0) for name, _, _ in source.names), default=0), lo)
    rule = rule_of(rules.kinds, source.last_name or life.born_as) if life.kind else None
    frame = ApplyRows(life, lo, through, (), {}, table.schema.in_lake, applied.ddl, (), numbers, history=rule)
    return Replay(frame, steps, targets, _changed_since(targets, before, listing), alone=lo < applied.forgotten)


def _living(planned: Plan, life: Life, lo: Tso) -> TableHistory:
    """Return a table's history; raises TableHeld for one that is dropped, whose rows may be another's by then."""
    table = planned.history.lives.get(life)
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
        if isinstance(step, (HoldTable, ExchangePartition)):
            raise _not_carried(life, step.at)
    steps = tuple(_taken(step, applied) for step in planned.of(life) if isinstance(step, (ApplyRows, ChangeTable)))
    _refuse_changes(life, steps, table.schema)
    return steps


def _targets(rows: Iterable[QuarantinedRow]) -> dict[str, frozenset[int]]:
    """The records' lines by file."""
    targets: dict[str, frozenset[int]] = {}
    for row in rows:
        targets[row.file] = targets.get(row.file, frozenset()) | {row.line}
    return targets


def _changed_since(paths: Iterable[str], before: Mapping[str, FileStats], listing: Listing) -> bool:
    """Return whether one of the files has changed since it was read; the lines of landed messages stay what they were.

    Some of these may be emptied, of rows that were forgotten.
    """
    files = {file.name: file for file in (*listing.data_files, *_brought(listing))}

    def as_read(file: DataFile) -> bool:
        known = before.get(file.name)
        return known is not None and (file.size, file.etag) == (known.size, known.etag)

    return any(files[path].messages is None and not as_read(files[path]) for path in paths)


def _brought(listing: Listing) -> Iterator[DataFile]:
    """The files of dumps."""
    return (file for one in listing.imports for file in one.files)


def _refuse_gone(life: Life, files: set[str], before: Mapping[str, FileStats], lo: Tso, listing: Listing) -> None:
    there = {file.name for file in (*listing.data_files, *_brought(listing))}
    later = {path for path, stats in before.items() if stats.max_commit_ts is None or stats.max_commit_ts > lo}
    gone = sorted((files | later) - there)
    if gone:
        raise InputError(
            f"{life}: the records cannot be replayed, because the files with their changes are missing: "
            f"{first_of(gone, 'file', 5)}. "
            "Restore them, or rebuild the table from a changefeed that has all of its rows.",
            table=str(life),
        )


def _refuse_lost(life: Life, gone: Tso, lo: Tso) -> None:
    """Raise InputError where rows through a position are not landed any more, of which some are to be read again."""
    if gone > lo:
        raise InputError(
            f"{life}: the records cannot be replayed, because other rows of it through {gone} are not landed any more: "
            "they have expired, or stood in messages with rows that were forgotten. Base the table on a dump from then "
            "or later.",
            table=str(life),
        )


def _taken(step: ApplyRows | ChangeTable, applied: AppliedState) -> ApplyRows | ChangeTable:
    """Without commit-ts, leave out files that are not applied to the table yet."""
    if isinstance(step, ChangeTable) or step.positions is None:
        return step
    files = tuple(file for file in step.files if file.number <= applied.positions.get(number_sequence(file), 0))
    return replace(step, files=files)


def _refuse_changes(life: Life, steps: Sequence[ApplyRows | ChangeTable], schema: TableSchema) -> None:
    """Refuse a table whose rows cannot be converted through its DDL one by one."""
    changes = [step for step in steps if isinstance(step, ChangeTable) and step.changes]
    windows = [step for step in steps if isinstance(step, ApplyRows)]
    unordered = any(step.positions is not None for step in windows)
    for step in changes:
        ends = life.kind and history_kind(life.kind).PARTITION and any(map(_moves_rows, step.changes))
        if not schema.key or unordered or ends or any(isinstance(change, Rekey) for change in step.changes):
            raise _not_carried(life, step.at)


def _moves_rows(change: SchemaChange) -> bool:
    """Return whether a change ends states, which those of a replay would have to end at as well."""
    return isinstance(change, (DeleteRows, ContinueColumn))


def _not_carried(life: Life, at: Tso) -> TableHeld:
    return TableHeld(
        f"{life}: the records are older than the DDL of version {at}, and this table's rows cannot be converted "
        "through it one by one. Rebuild the table.",
        table=str(life),
    )
