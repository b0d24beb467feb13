"""Describe a plan in words that the command line, Dagster's metadata and `--json` share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_assets.model.schema_changes import (
    AddColumn,
    ContinueColumn,
    DeleteRows,
    DropColumn,
    MoveColumns,
    Predicate,
    Rekey,
    RenameColumn,
    RetypeColumn,
    SchemaChange,
    SetDefault,
)
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
from cdc_assets.model.tso import Tso, tso_time
from cdc_assets.model.wording import counted
from cdc_assets.report.tables import column_type, ranges_of

if TYPE_CHECKING:
    from cdc_assets.model.offsets import Partition
    from cdc_assets.model.releases import Release
    from cdc_assets.model.schema import TableId
    from cdc_assets.model.splits import DataFile
    from cdc_assets.pipeline.pipeline import Watch
    from cdc_assets.planning.plan import Plan

METADATA_ONLY = "metadata only"
ALL_ROWS = "rewrite of all rows"
_NAMED_PARTITIONS = 3
"""The number of partitions of which offsets are named."""


@dataclass(frozen=True, slots=True)
class StepText:
    """One line of a plan. `undo` says how the effect can be undone, "" if there is nothing to undo.

    `in_create` is true of DDL that a new table includes from the start: it is no step of its own. `ways` are those out
    of a hold.
    """

    at: Tso
    time: str
    table: str
    action: str
    detail: str
    query: str = ""
    cost: str = METADATA_ONLY
    undo: str = ""
    in_create: bool = False
    ways: tuple[str, ...] = ()


def describe_plan(plan: Plan, rows: Mapping[str, int | None] | None = None) -> list[StepText]:
    """Describe every step, in order; DDL that a new table includes from the start follows its creation.

    `rows` are the current row counts of tables, by the text of their life, for the cost of a rewrite.
    """
    texts: list[StepText] = []
    for step in plan.steps:
        count = (rows or {}).get(str(step.life))
        text = describe_step(step, plan)
        if count is not None and text.cost == ALL_ROWS:
            text = dataclasses.replace(text, cost=f"rewrite of {counted(count, 'row')}")
        texts += [text, *_taken(step, plan)]
    return texts


def _taken(step: Step, plan: Plan) -> list[StepText]:
    if not isinstance(step, CreateTable) or not step.takes:
        return []
    history = plan.history.lives[step.life]
    return [
        StepText(
            event.at,
            tso_time(event.at),
            str(history.called_at(event.at)),
            event.action,
            "; ".join(_change(change) for change in event.changes)
            + "; applied when the table is created"
            + (f" ({_released(event.release)})" if event.release is not None else ""),
            event.file.query,
            in_create=True,
        )
        for event in history.events
        if event.at in step.takes
    ]


def describe_step(step: Step, plan: Plan) -> StepText:
    """Describe what a step does, the DDL text that it comes from, its cost and whether it can be undone."""
    history = plan.history.lives[step.life]
    event = next((e for e in history.events if e.at == step.at), None)
    query = event.file.query if event is not None and not isinstance(step, ApplyRows) else ""
    action, detail, cost, undo = _words(step)
    if isinstance(step, RenameTable):
        detail = f"{history.called_at(step.at - 1)} → {step.to}"
    if event is not None and event.release is not None and not isinstance(step, ApplyRows):
        detail = f"{detail} ({_released(event.release)})"
    ways = step.ways if isinstance(step, HoldTable) else ()
    name = str(history.called_at(step.at))
    return StepText(step.at, tso_time(step.at), name, action, detail, query, cost, undo, ways=ways)


def _released(release: Release) -> str:
    """Describe a release without its text, which is the query of the step."""
    return f"released: {release.way}" + (" a text of yours" if release.text else "")


def step_title(step: Step) -> str:
    """Describe in a few words what a step does to its table, as a plan calls it: `create`, `delete all rows`."""
    match step:
        case ChangeTable(dropped=False) | RenameTable():
            action, detail, _, _ = _words(step)
            return detail if action == "change" else f"{action} to {detail}"
        case ExchangePartition(_, other):
            return f"exchange with {other.born_as}"
    return _words(step)[0]


def log_steps(say: Callable[[str], object]) -> Watch:
    """Return a `watch` for a pipeline that logs each step in a line: `3/17 shop.orders: create (2026-01-01T…)`."""

    def watch(step: Step, table: TableId, number: int, count: int) -> None:
        say(f"{number + 1}/{count} {table}: {step_title(step)} ({tso_time(step.at)})")

    return watch


def _words(step: Step) -> tuple[str, str, str, str]:
    snapshot = "roll back to the snapshot before"
    match step:
        case CreateTable(_, _, name, schema, _, gap=gap, base=base, begun=begun):
            key = f"key ({', '.join(schema.key)})" if schema.key else "no key: a multiset"
            shape = f"{name}: {counted(len(schema.stored), 'column')}, {key}"
            based = f", as it was at {base.at} by {base.uri}" if base is not None and begun is None else ""
            late = f", with what changes after {begun}" if begun is not None else ""
            lacks = f", incomplete: without {gap.without(begun)}" if gap is not None and not based else ""
            return "create", shape + late + lacks + based, METADATA_ONLY, "drop it"
        case ChangeTable(dropped=True):
            return "keep", "the source drops it, the lake keeps it", METADATA_ONLY, snapshot
        case ChangeTable(_, _, changes):
            rewrite = any(_rewrites(change) for change in changes)
            deletes = any(isinstance(change, DeleteRows) for change in changes)
            cost = ALL_ROWS if rewrite else "delete of rows" if deletes else METADATA_ONLY
            undo = "none, old snapshots stay readable by id" if rewrite or deletes else snapshot
            return "change", "; ".join(_change(change) for change in changes) or "nothing", cost, undo
        case RenameTable(_, _, to, begins=True):
            return "rename", str(to), "rewrite of the open states, with which it begins", snapshot
        case RenameTable(_, _, to):
            return "rename", str(to), METADATA_ONLY, "rename back"
        case DropTable():
            return "drop", "moved aside, not purged", METADATA_ONLY, "rename back"
        case RecoverTable(_, _, to):
            return "recover", f"restored as {to}", METADATA_ONLY, "rename back"
        case ExchangePartition(_, other, _, predicate, partitioned, _):
            exchanged_rows = f"rows where {_condition(predicate)} and all rows of {other.born_as}"
            return (
                "exchange",
                exchanged_rows if partitioned else f"with rows of {other.born_as}",
                "rewrite of those rows",
                snapshot,
            )
        case AddedStep():
            return step.description
        case HoldTable(_, _, reason):
            return "hold", reason, "", ""
        case ApplyRows(_, lo, hi, files):
            cost = input_text(files)
            window = f"position <= {hi}" if lo < 0 else f"{lo} < position <= {hi}"
            window = f"of {hi}, from {files[0].directory}" if step.is_snapshot else window
            return "rows", window, cost, snapshot
    raise TypeError(step)


def input_text(files: Sequence[DataFile]) -> str:
    """Say out of how many files rows come, or out of which messages of topics, and of how many bytes."""
    ranges = ranges_of(files)
    if not ranges:
        return f"{counted(len(files), 'file')}, {counted(sum(file.size for file in files), 'byte')}"
    size = counted(sum(ranges.values()), "byte")
    ends: dict[Partition, tuple[int, int]] = {}
    for span in ranges:
        first, last = ends.get(span.partition, (span.start, span.stop - 1))
        ends[span.partition] = min(first, span.start), max(last, span.stop - 1)
    if len(ends) > _NAMED_PARTITIONS:
        return f"messages of {len(ends):,} partitions, {size}"
    places = (f"{partition} {first}..{last}" for partition, (first, last) in sorted(ends.items()))
    return f"messages of {', '.join(places)}, {size}"


def _rewrites(change: SchemaChange) -> bool:
    from cdc_assets.types.conversions import needs_conversion
    from cdc_assets.types.mysql_types import widens

    retypes = [change] if isinstance(change, RetypeColumn) else []
    return any(needs_conversion(retype.old, retype.new) or not widens(retype.old, retype.new) for retype in retypes)


def _condition(predicate: Predicate) -> str:
    from cdc_assets.ddl.predicate import spark_sql

    return spark_sql(predicate)


def _change(change: SchemaChange) -> str:
    match change:
        case AddColumn(column, default, approximate):
            old_rows = "" if default is None else f", old rows read {default!r}"
            guess = f" ({approximate})" if approximate else ""
            return f"add column {column.name} {column_type(column)}{old_rows}{guess}"
        case ContinueColumn(column, default):
            return f"column {column.name} is there again, rows that are there read {default!r} from here on"
        case DropColumn(name):
            return f"drop column {name}"
        case RenameColumn(old, new):
            return f"rename column {old} to {new}"
        case RetypeColumn(old, new) if column_type(old) == column_type(new) and old.nullable and not new.nullable:
            return f"fill NULL in {new.name}, which is NOT NULL from now on"
        case RetypeColumn(old, new, _, approximate):
            guess = f" (approximate: {approximate})" if approximate else ""
            return f"change {new.name} from {column_type(old)} to {column_type(new)}{guess}"
        case MoveColumns(order):
            return f"order columns as {', '.join(order)}"
        case SetDefault(name, default):
            return f"default of {name} is {default!r}"
        case Rekey(key):
            return f"match rows by ({', '.join(key)})" if key else "match rows as a multiset"
        case DeleteRows(None):
            return "delete all rows"
        case DeleteRows(Predicate() as predicate):
            return f"delete rows where {_condition(predicate)}"
    raise TypeError(change)
