"""Words for what is there and what will be done: the same for the command line, Dagster's metadata and `--json`.

What reads DDL and types is imported where it is needed: `status` shows lines without them.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc_assets.account import LAG_HEADS, lag_cells
from cdc_assets.errors import MalformedData
from cdc_assets.model import (
    AddColumn,
    ApplyRows,
    ChangeTable,
    Column,
    CreateTable,
    DeleteRows,
    DropColumn,
    DropTable,
    ExchangePartition,
    HoldTable,
    Listing,
    MoveColumns,
    RecoverTable,
    Rekey,
    RenameColumn,
    RenameTable,
    RetypeColumn,
    SchemaChange,
    SetDefault,
    Step,
    TableSchema,
    Tso,
    wall_clock_ms,
)

if TYPE_CHECKING:
    from cdc_assets.fidelity import ColumnFidelity
    from cdc_assets.history import History, TableHistory
    from cdc_assets.ledger import FileEntry
    from cdc_assets.opening import Inspection, TableStatus
    from cdc_assets.outcome import Outcome
    from cdc_assets.plan import Plan
    from cdc_assets.quarantine import QuarantinedRow

__all__ = [
    "FileText",
    "StepText",
    "TableText",
    "column_fidelity",
    "column_type",
    "describe_plan",
    "describe_step",
    "describe_tables",
    "file_texts",
    "grid_lines",
    "inspection_lines",
    "outcome_json",
    "outcome_lines",
    "record_json",
    "status_lines",
    "step_lines",
    "tso_time",
    "watching",
]

METADATA_ONLY = "metadata only"
ALL_ROWS = "rewrite of all rows"


@dataclass(frozen=True, slots=True)
class StepText:
    """One line of a plan. `undo` says how the effect can be taken back, `` when there is nothing to take back."""

    at: Tso
    time: str
    table: str
    action: str
    detail: str
    query: str = ""
    cost: str = METADATA_ONLY
    undo: str = ""


@dataclass(frozen=True, slots=True)
class TableText:
    """One table of a changefeed as its files tell: versions are schema files, bytes those of data files."""

    table: str
    born: Tso
    state: str
    key: tuple[str, ...]
    columns: int
    versions: int
    newest_version: Tso
    files: int
    file_bytes: int
    ddl: tuple[str, ...]
    reason: str = ""
    fidelity: tuple[ColumnFidelity, ...] = ()


@dataclass(frozen=True, slots=True)
class FileText:
    """One data file as it was read last. `rows` is None for one that vanished unread; `time` is `max_commit_ts`'s."""

    changefeed: str
    path: str
    table: str
    rows: int | None
    file_bytes: int
    min_commit_ts: Tso | None
    max_commit_ts: Tso | None
    time: str
    run: str
    snapshot: int | None
    read_at: str


def file_texts(changefeed: str, entries: Iterable[FileEntry]) -> list[FileText]:
    """Describe what the ledger knows of files, in the order in which their rows end."""
    ordered = sorted(entries, key=lambda entry: (entry.max_commit_ts or 0, entry.path))
    return [
        FileText(
            changefeed,
            entry.path,
            entry.life.rpartition("@")[0],
            None if entry.rows < 0 else entry.rows,
            entry.size,
            entry.min_commit_ts,
            entry.max_commit_ts,
            tso_time(entry.max_commit_ts) if entry.max_commit_ts else "",
            entry.run,
            entry.snapshot,
            dt.datetime.fromtimestamp(entry.read_at, dt.timezone.utc).isoformat(" ", "seconds"),
        )
        for entry in ordered
    ]


def tso_time(tso: Tso) -> str:
    """Return the wall-clock time of a TSO as ISO text in UTC, to the millisecond."""
    moment = dt.datetime.fromtimestamp(wall_clock_ms(tso) / 1000, dt.timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def column_type(column: Column) -> str:
    """Return the column's source type as MySQL writes it."""
    sizes = [str(size) for size in (column.precision, column.scale) if size is not None]
    if column.type in ("DATETIME", "TIMESTAMP", "TIME"):
        sizes = [str(column.scale)] if column.scale else []
    if column.type in ("ENUM", "SET") and column.elems is not None:
        sizes = ["'" + elem.replace("'", "''") + "'" for elem in column.elems]
    if column.type.endswith(("TEXT", "BLOB")):
        sizes = []
    name = column.type + (f"({','.join(sizes)})" if sizes else "")
    return name + (" UNSIGNED" if column.unsigned else "")


def describe_plan(plan: Plan, rows: Mapping[str, int | None] | None = None) -> list[StepText]:
    """Describe every step, in order; DDL that a new table takes from the start stand behind its creation.

    `rows` tells how many rows a table has now, by the text of its life, for the cost of a rewrite.
    """
    texts: list[StepText] = []
    for step in plan.steps:
        count = (rows or {}).get(str(step.life))
        text = describe_step(step, plan)
        if count is not None and text.cost == ALL_ROWS:
            text = dataclasses.replace(text, cost=f"rewrite of {count:,} rows")
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
            str(_name_at(history, event.at)),
            event.action,
            "; ".join(_change(change) for change in event.changes)
            + "; taken when the table is created"
            + (f" ({event.release})" if event.release is not None else ""),
            event.file.query,
        )
        for event in history.events
        if event.at in step.takes
    ]


def describe_step(step: Step, plan: Plan) -> StepText:
    """Say what a step does, from which DDL text it comes, what it costs and whether it can be undone."""
    history = plan.history.lives[step.life]
    event = next((e for e in history.events if e.at == step.at), None)
    query = event.file.query if event is not None and not isinstance(step, ApplyRows) else ""
    action, detail, cost, undo = _words(step)
    if event is not None and event.release is not None and not isinstance(step, ApplyRows):
        detail = f"{detail} ({event.release})"
    return StepText(step.at, tso_time(step.at), str(_name_at(history, step.at)), action, detail, query, cost, undo)


def _words(step: Step) -> tuple[str, str, str, str]:
    snapshot = "roll back to the snapshot before"
    match step:
        case CreateTable(_, _, name, schema, _):
            key = f"key ({', '.join(schema.key)})" if schema.key else "no key: a multiset"
            return "create", f"{name}: {len(schema.stored)} columns, {key}", METADATA_ONLY, "drop it"
        case ChangeTable(_, _, changes):
            rewrite = any(_rewrites(change) for change in changes)
            deletes = any(isinstance(change, DeleteRows) for change in changes)
            cost = ALL_ROWS if rewrite else "delete of rows" if deletes else METADATA_ONLY
            undo = "old snapshots stay readable by id" if rewrite else snapshot
            return "change", "; ".join(_change(change) for change in changes) or "nothing", cost, undo
        case RenameTable(_, _, to):
            return "rename", f"to {to}", METADATA_ONLY, "rename back"
        case DropTable():
            return "drop", "moved aside, not purged", METADATA_ONLY, "rename back"
        case RecoverTable(_, _, to):
            return "recover", f"back as {to}", METADATA_ONLY, "rename back"
        case ExchangePartition(_, other, _, predicate, partitioned, _):
            what = f"rows where {predicate} and all rows of {other.born_as}"
            return (
                "exchange",
                what if partitioned else f"with rows of {other.born_as}",
                "rewrite of those rows",
                snapshot,
            )
        case HoldTable(_, _, reason, ways):
            return "hold", reason + ("" if not ways else " Ways out: " + "; ".join(ways)), "", ""
        case ApplyRows(_, lo, hi, files):
            size = sum(file.size for file in files)
            return "rows", f"{lo} < commit-ts <= {hi}", f"{len(files)} files, {size:,} bytes", snapshot
    raise TypeError(step)


def _rewrites(change: SchemaChange) -> bool:
    from cdc_assets.mysql_types import widens

    return isinstance(change, RetypeColumn) and not widens(change.old, change.new)


def _change(change: SchemaChange) -> str:
    match change:
        case AddColumn(column, default, approximate):
            told = "" if default is None else f", old rows read {default!r}"
            return (
                f"add column {column.name} {column_type(column)}{told}{' (' + approximate + ')' if approximate else ''}"
            )
        case DropColumn(name):
            return f"drop column {name}"
        case RenameColumn(old, new):
            return f"rename column {old} to {new}"
        case RetypeColumn(old, new):
            return f"change {new.name} from {column_type(old)} to {column_type(new)}"
        case MoveColumns(order):
            return f"order columns as {', '.join(order)}"
        case SetDefault(name, default):
            return f"default of {name} is {default!r}"
        case Rekey(key):
            return f"match rows by ({', '.join(key)})" if key else "match rows as a multiset"
        case DeleteRows(None):
            return "delete all rows"
        case DeleteRows(predicate):
            return f"delete rows where {predicate}"
    raise TypeError(change)


def _name_at(history: TableHistory, tso: Tso) -> object:
    held = [name for name, since, until in history.names if since <= tso < until]
    return held[0] if held else history.names[-1][0] if history.names else history.life.born_as


def describe_tables(listing: Listing, history: History) -> list[TableText]:
    """Describe every table that the schema files tell of, with the data files that lie under its names."""
    return [_table(table, listing, history) for table in sorted(history.lives.values(), key=lambda t: t.life)]


def _table(table: TableHistory, listing: Listing, history: History) -> TableText:
    name = table.name or table.names[-1][0]
    hold = next((event.reason for event in table.events if event.action == "hold"), "")
    versions = {event.at for event in table.events}
    files = [
        file
        for file in listing.data_files
        if (known := history.decoding.get((file.root, file.version))) is not None
        and any(known[0] == n and since <= file.version < until for n, since, until in table.names)
    ]
    return TableText(
        str(name),
        table.life.version,
        "held" if hold else "dropped" if table.name is None else "kept" if table.events[-1].kept else "live",
        table.schema.key,
        len(table.schema.columns),
        len(versions),
        max(versions),
        len(files),
        sum(file.size for file in files),
        tuple(f"{event.at} {event.file.query}" for event in table.events if event.file.query),
        hold,
        column_fidelity(table.schema),
    )


def column_fidelity(schema: TableSchema) -> tuple[ColumnFidelity, ...]:
    """Return what the lake keeps of each column; none for a table with a type that is not known."""
    from cdc_assets.fidelity import fidelity_report
    from cdc_assets.mysql_types import Grade

    try:
        rows = fidelity_report(schema, {})
    except MalformedData:
        return ()
    kept = {column.name: column.kept for column in schema.columns if column.kept}
    return tuple(
        dataclasses.replace(row, grade=Grade.CHANGED, rule=f"{_KEPT.format(kept[row.column])} {row.rule}".strip())
        if row.column in kept
        else row
        for row in rows
    )


_KEPT = "the source dropped it at {} and the lake keeps it: old values, NULL in rows written since;"


# --- for people -------------------------------------------------------------------------------------------------------


def step_lines(steps: Iterable[StepText]) -> Iterator[str]:
    """Yield a plan as lines of text."""
    for step in steps:
        yield f"{step.at}  {step.time}  {step.table}  {step.action}: {step.detail}"
        if step.query:
            yield f"    from   {step.query}"
        if step.cost:
            yield f"    cost   {step.cost}" + (f"; undo: {step.undo}" if step.undo else "")


def inspection_lines(found: Inspection) -> Iterator[str]:
    """Yield what lies under a changefeed's prefix as lines of text."""
    yield f"checkpoint {found.checkpoint} ({found.checkpoint_time})"
    heads = ("table", "state", "key", "columns", "versions", "newest version", "files", "bytes")
    keys = [", ".join(t.key) or "none" for t in found.tables]
    rows = [
        (t.table, t.state, key, t.columns, t.versions, t.newest_version, t.files, f"{t.file_bytes:,}")
        for t, key in zip(found.tables, keys, strict=True)
    ]
    yield from grid_lines(heads, rows)
    yield from (f"  {table.table}: {line}" for table in found.tables for line in table.ddl)
    yield from (f"ignored {count}: {reason}" for reason, count in sorted(found.ignored.items()))
    yield from (f"held: {table.table}: {table.reason}" for table in found.tables if table.reason)
    for table in found.tables:
        for one in table.fidelity:
            yield f"  {table.table}.{one.column}: {one.source} -> {one.lake}: {one.grade.value}, {one.rule}"
    yield from (f"{finding.severity.value}: {finding.text}" for finding in found.findings)
    yield from (f"problem: {message}" for message in found.problems.values())


def outcome_lines(outcome: Outcome) -> Iterator[tuple[str, bool]]:
    """Yield what a run did as lines of text, each with whether it belongs on the error output."""
    heads = ("table", "version", "state", "applied through", "its time", "steps", "changes")
    shown = [table for table in outcome.tables if table.state != "dropped" or table.steps]
    times = [tso_time(table.through) if table.through else "" for table in shown]
    rows = [
        (t.name, t.version, t.state, t.through, time, t.steps, t.changes) for t, time in zip(shown, times, strict=True)
    ]
    yield from ((line, False) for line in grid_lines(heads, rows))
    for table in outcome.tables:
        if table.reason:
            yield f"{table.state}: {table.name}: {table.reason}", True
            yield from ((f"  way out: {way}", True) for way in table.ways)
        if table.quarantined:
            yield f"quarantined: {table.name}: {table.quarantined:,} records; see `cdc-assets quarantine`", True
    yield from ((f"warning: {warning}", True) for warning in outcome.warnings)
    yield from ((f"problem: {message}", True) for message in outcome.problems.values())
    idle = "" if any(table.steps for table in outcome.tables) else "; nothing new"
    yield f"checkpoint {outcome.checkpoint}, {outcome.seconds:.1f} s{idle}", False


def status_lines(rows: Sequence[TableStatus]) -> Iterator[str]:
    """Yield each table's progress as lines of text, then what is held and the ways out."""
    heads = ("table", "version", "rows", "applied through", "its time", "lag", "check", "quarantine")
    counts = ["" if row.rows is None else f"{row.rows:,}" for row in rows]
    cells = [
        (r.table, r.version, count, r.through, r.through_time, f"{r.lag_seconds:.1f} s", r.check, r.quarantined)
        for r, count in zip(rows, counts, strict=True)
    ]
    yield from grid_lines(heads, cells)
    yield from _lag_lines(rows)
    for row in rows:
        if row.miscounted:
            yield f"rows do not add up: {row.table}: {row.miscounted}"
        if row.reason:
            yield f"{row.state}: {row.table}: {row.reason}"
            yield from (f"  way out: {way}" for way in row.ways)


def _lag_lines(rows: Sequence[TableStatus]) -> Iterator[str]:
    """Yield how long each table's newest applied change was under way, by stage."""
    told = [(row.table, tso_time(row.stages.commit_ts), *lag_cells(row.stages)) for row in rows if row.stages]
    if told:
        yield ""
        yield from grid_lines(("newest change of", "committed", *LAG_HEADS), told)


def grid_lines(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield a table of text, its columns padded."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(head), *(len(row[i]) for row in cells)) if cells else len(head) for i, head in enumerate(heads)]
    for line in [list(heads), *cells]:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


# --- for programs -----------------------------------------------------------------------------------------------------


def outcome_json(name: str, outcome: Outcome) -> dict[str, Any]:
    """Return what a run did as plain JSON values."""
    tables = [
        {
            "table": str(t.name),
            "born": t.life.version,
            "version": t.version,
            "state": t.state,
            "through": t.through,
            "reason": t.reason,
            "ways": t.ways,
            "steps": t.steps,
            "changes": t.changes,
            "inserted": t.inserted,
            "updated": t.updated,
            "deleted": t.deleted,
            "quarantined": t.quarantined,
        }
        for t in outcome.tables
    ]
    return {
        "changefeed": name,
        "checkpoint": outcome.checkpoint,
        "complete": outcome.complete,
        "tables": tables,
        "problems": dict(outcome.problems),
        "warnings": outcome.warnings,
        "seconds": round(outcome.seconds, 3),
    }


def record_json(changefeed: str, row: QuarantinedRow) -> dict[str, Any]:
    """Return a quarantined record as plain JSON values, its bytes in base64."""
    told = {**dataclasses.asdict(row), "changefeed": changefeed, "identity": str(row.life), "table": str(row.table)}
    del told["life"]
    return {**told, "raw": base64.b64encode(row.raw).decode(), "quarantined_at": row.quarantined_at.isoformat()}


# --- while it runs ----------------------------------------------------------------------------------------------------


@contextmanager
def watching(quiet: bool) -> Iterator[Callable[..., None] | None]:
    """A progress display where a person watches, plain lines where not."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():

        def line(step: Any, number: int, count: int) -> None:
            told = f"{number + 1}/{count} {type(step).__name__} {step.life.born_as} {tso_time(step.at)}"
            print(told, file=sys.stderr, flush=True)

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("reading the changefeed", total=None)

        def bar(step: Any, number: int, count: int) -> None:
            display.update(
                task, description=f"{type(step).__name__} {step.life.born_as}", completed=number, total=count
            )

        yield bar
