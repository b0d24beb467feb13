"""Plans, inspections, outcomes and statuses as lines of text."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc_assets.model.findings import INCOMPLETE, Finding, Severity
from cdc_assets.model.layout import LIVING
from cdc_assets.model.progress import State
from cdc_assets.model.tso import Tso, iso_time, tso_time
from cdc_assets.model.window_metrics import LAG_HEADS, LANDED_LAG_HEADS, lag_cells
from cdc_assets.model.wording import counted, first_of, reason_of, seconds_text, with_column
from cdc_assets.report.columns import OUTCOME, STATUS
from cdc_assets.report.findings import beside_holds, group_lines, grouped, incomplete_lines
from cdc_assets.report.plan_text import StepText

if TYPE_CHECKING:
    from cdc_assets.model.ledger_entries import FileEntry, TableState
    from cdc_assets.model.quarantine import QuarantinedRow
    from cdc_assets.model.schema import TableId
    from cdc_assets.model.splits import Listing
    from cdc_assets.pipeline.outcome import Outcome
    from cdc_assets.report.tables import Inspection, TableStatus, TableText

WAY_OUT = "  way out: "
"""Prefix of the line that says what to do about the tables in the lines before."""

_MESSAGE = re.compile(r"([^\s:]+\[\d+\] offset \d+): (.*)", re.DOTALL)
"""The reason of a message begins with its topic, partition and offset."""


def plan_lines(
    steps: Sequence[StepText],
    listing: Listing,
    waiting: int,
    held: Iterable[TableState],
    incomplete: Iterable[tuple[str, str, str]],
    findings: Iterable[Finding] = (),
    options: str = "",
) -> Iterator[str]:
    """Yield a plan with its warnings as lines of text, for the command `plan`.

    `waiting` messages are not landed, `held` are tables that stopped at their rows, `incomplete` as in its lines,
    `findings` say what would stop or hold tables, `options` are as in `outcome_lines`.
    """
    yield from step_lines(steps)
    idle = "Nothing to do with what is landed." if waiting else "Nothing to do."
    holds = sum(step.action == "hold" for step in steps)
    carried_out = sum(not step.in_create for step in steps) - holds
    counts = counted(carried_out, "step") + (f" and {counted(holds, 'hold')}" if holds else "")
    yield f"{counts} through checkpoint {listing.checkpoint}" if steps else idle
    if any(step.action == "rows" for step in steps):
        yield "Values are read by `apply` only, which holds a table with one that does not fit."
    if waiting:
        yield f"{counted(waiting, 'message')} not landed yet: `apply` lands them first and may have more to do."
    reasons = {step.table: step.detail for step in steps if step.action == "hold"}
    stopped: list[tuple[str, tuple[str, ...]]] = []
    for state in held:
        reasons[str(state.name)] = state.reason
        stopped.append((f"held when last applied: {reason_of([str(state.name)], state.reason)}", state.ways))
    stops = list(stop_lines(stopped))
    yield from stops
    yield from group_lines(beside_holds(grouped(findings), reasons))
    lacking = list(incomplete_lines(incomplete))
    yield from lacking
    yield from options_lines((*(way for step in steps for way in step.ways), *stops, *lacking), options)


def step_lines(steps: Iterable[StepText]) -> Iterator[str]:
    """Yield a plan as lines of text."""
    for step in steps:
        yield f"{step.at}  {step.time}  {step.table}  {step.action}: {step.detail}"
        yield from (f"{WAY_OUT}{way}" for way in step.ways)
        if step.query:
            yield f"    from   {step.query}"
        if step.cost:
            yield f"    cost   {step.cost}" + (f"; undo: {step.undo}" if step.undo else "")


def inspection_lines(inspection: Inspection) -> Iterator[str]:
    """Yield the contents of a changefeed's prefix, or of its topics, as lines of text."""
    yield f"checkpoint {inspection.checkpoint} ({inspection.checkpoint_time})"
    if inspection.partitions:
        ends = [(f"{o.topic}[{o.partition}]", o.end, o.mark or "none", o.mark_time) for o in inspection.partitions]
        yield from grid_lines(("topic", "log ends at", "newest mark", "its time"), ends)
        yield ""
    pieces = "ranges of offsets" if inspection.partitions else "files"
    heads = ("table", "state", "key", "columns", "versions", "newest version", pieces, "bytes")
    cells = [(_state(t.state, t.incomplete), ", ".join(t.key) or "none") for t in inspection.tables]
    rows = [
        (t.table, *cell, t.columns, t.versions, t.newest_version, t.files, f"{t.file_bytes:,}")
        for t, cell in zip(inspection.tables, cells, strict=True)
    ]
    if rows:
        yield from grid_lines(heads, rows)
    elif not inspection.problems:
        yield "There are no tables yet."
    yield from (f"  {table.table}: {' '.join(ddl.split())}" for table in inspection.tables for ddl in table.ddl)
    yield from (f"ignored {count:,}: {reason}" for reason, count in sorted(inspection.ignored.items()))
    yield from (f"held: {table.table}: {table.reason}" for table in inspection.tables if table.reason)
    yield from _fidelity_lines(inspection.tables)
    yield from _mask_lines(inspection.tables)
    yield from group_lines(inspection.findings)


def _fidelity_lines(tables: Iterable[TableText]) -> Iterator[str]:
    """Yield one line for all columns with the same loss, and the number of lossless ones; none of masked columns."""
    from cdc_assets.types.rules import Grade  # `status` needs no types, which load Arrow

    whole, other_rows = 0, dict[tuple[str, str], tuple[dict[str, None], list[str]]]()
    for table in tables:
        for row in table.fidelity:
            if row.grade is Grade.LOSSLESS and not row.notes:
                whole += 1
            elif row.grade is not Grade.MASKED:
                sources, columns = other_rows.setdefault((row.lake, f"{row.grade.value}, {row.rule}"), ({}, []))
                sources[row.source] = None
                counts = "".join(f" ({count:,} {what})" for what, count in row.notes.items())
                columns.append(f"{table.table}.{row.column}{counts}")
    for (lake, loss), (sources, columns) in other_rows.items():
        yield f"  {first_of(list(sources), 'type')} -> {lake or 'none'}: {loss}: {first_of(columns, 'column')}"
    if whole:
        yield f"  {counted(whole, 'column is', 'columns are')} lossless"


def _mask_lines(tables: Iterable[TableText]) -> Iterator[str]:
    """Yield the masks, each with the line of the settings that asks for it, and below it every column that has it."""
    from cdc_assets.types.rules import Grade

    by_rule: dict[str, list[str]] = {}
    for table in tables:
        for row in (row for row in table.fidelity if row.grade is Grade.MASKED):
            counts = "".join(f", {note_name}: {count:,}" for note_name, count in row.notes.items())
            types = f"{row.source} -> {row.lake or 'none'}"
            by_rule.setdefault(row.rule, []).append(f"{table.table}.{row.column}: {types}{counts}")
    for rule, columns in by_rule.items():
        yield f"  {rule}:"
        yield from (f"    {column}" for column in columns)


def outcome_lines(outcome: Outcome, options: str = "") -> Iterator[tuple[str, bool]]:
    """Yield the outcome of a run as lines of text, each with whether it goes to the error output.

    `options` are those with which the commands of the ways out have to be given, "" for none.
    """
    shown = [table for table in outcome.tables if table.state is not State.DROPPED or table.steps]
    times = [tso_time(table.through) if table.through > 0 else "" for table in shown]
    rows = [
        (t.name, t.version, _state(t.state, t.incomplete), t.through if time else "", time, t.steps, t.changes)
        for t, time in zip(shown, times, strict=True)
    ]
    yield from ((line, False) for line in grid_lines(tuple(OUTCOME), rows))
    stopped = ((table.state, str(table.name), table.reason, table.ways) for table in outcome.tables if table.reason)
    stops = list(_stopped_lines(stopped))
    yield from ((line, True) for line in stops)
    for table in outcome.tables:
        if table.excluded:
            yield f"kept out: {table.name}: {counted(table.excluded, 'record')} of forgotten keys", False
        if table.quarantined:
            records = counted(table.quarantined, "record")
            yield f"quarantined: {table.name}: {records}; see `cdc-assets quarantine`", True
    before = {finding.table for finding in outcome.known_findings if finding.rule == INCOMPLETE}
    lacking = [(str(t.name), t.incomplete, t.incomplete_cause) for t in outcome.tables if t.incomplete]
    gaps = list(incomplete_lines(lack for lack in lacking if lack[0] not in before))
    yield from ((line, True) for line in gaps)
    if still := [name for name, _, _ in lacking if name in before]:
        yield f"incomplete as before: {first_of(still, 'table')}: see `cdc-assets status`", True
    yield from ((line, True) for line in options_lines((*stops, *gaps), options))
    new, standing_findings = (
        [finding for finding in findings if finding.rule != INCOMPLETE]
        for findings in (outcome.new_findings, outcome.known_findings)
    )
    reasons = {str(table.name): table.reason for table in outcome.tables}
    new += [finding for finding in standing_findings if finding.severity is Severity.STOP]
    yield from ((line, True) for line in group_lines(beside_holds(grouped(new), reasons)))
    warnings = (finding for finding in standing_findings if finding.severity is not Severity.STOP)
    standing = len(beside_holds(grouped(warnings), reasons))
    if standing:
        some = counted(standing, "warning of earlier runs stands", "warnings of earlier runs stand")
        yield f"{some}: see `cdc-assets status --warnings`", True
    stopped_states = Counter(str(table.state) for table in outcome.tables if table.state.stopped)
    end = "; ".join(f"{counted(count, 'table')} {state}" for state, count in stopped_states.items())
    if not end and not any(table.steps for table in outcome.tables):
        end = "nothing new"
    yield f"checkpoint {outcome.checkpoint}, {outcome.seconds:.1f} s{'; ' if end else ''}{end}", False


def _stopped_lines(tables: Iterable[tuple[State, str, str, tuple[str, ...]]]) -> Iterator[str]:
    """Yield the reasons why tables stopped and the ways out, once for all with equal words."""
    by_reason: dict[tuple[State, str, tuple[str, ...]], list[str]] = {}
    for state, name, reason, ways in tables:
        by_reason.setdefault((state, reason, ways), []).append(name)
    yield from stop_lines(
        (f"{state}: {reason_of(names, reason)}", ways) for (state, reason, ways), names in by_reason.items()
    )


def stop_lines(stops: Iterable[tuple[str, tuple[str, ...]]]) -> Iterator[str]:
    """Yield reasons why tables stopped, each with its ways out: those with equal ways together, and the ways once."""
    by_ways: dict[tuple[str, ...], list[str]] = {}
    for reason, ways in stops:
        by_ways.setdefault(ways, []).append(reason)
    for ways, reasons in by_ways.items():
        yield from reasons
        yield from (f"{WAY_OUT}{way}" for way in ways)


def options_lines(lines: Iterable[str], options: str) -> Iterator[str]:
    """Yield the options that the commands in lines on held and incomplete tables need, where there are commands."""
    if options and any("cdc-assets " in line for line in lines):
        yield f"give these commands: {options}"


def status_lines(
    rows: Sequence[TableStatus], landed: Collection[str] | None = None, options: str = ""
) -> Iterator[str]:
    """Yield each table's progress as lines of text, then the held tables and the ways out.

    Args:
        rows: The tables, with the name of each changefeed where there are several.
        landed: The changefeeds that read topics: their stages have other names. None leaves the lag by stage out.
        options: Those with which the commands of the ways out have to be given.
    """
    heads = tuple(STATUS)
    counts = ["" if row.rows is None else f"{row.rows:,}" for row in rows]
    cells = [
        (
            r.table,
            r.version,
            count,
            r.through if r.through > 0 else "",
            r.through_time,
            "unknown" if r.behind_checkpoint_seconds is None else seconds_text(r.behind_checkpoint_seconds),
            _state(r.state if r.state in (State.FROZEN, State.LOADING) else r.check or "not begun", r.incomplete),
            r.quarantined,
        )
        for r, count in zip(rows, counts, strict=True)
    ]
    if len({row.changefeed for row in rows}) > 1:
        feeds = [row.changefeed for row in rows]
        yield from grid_lines(("changefeed", *heads), [(feed, *cell) for feed, cell in zip(feeds, cells, strict=True)])
    else:
        yield from grid_lines(heads, cells)
    checkpoints: dict[str, Tso] = {}
    for row in rows:
        checkpoints[row.changefeed] = max(row.checkpoint, checkpoints.get(row.changefeed, 0))
    for feed, checkpoint in checkpoints.items():
        if checkpoint > 0:
            of_feed = f" of {feed}" if len(checkpoints) > 1 else ""
            yield f"checkpoint of the last run{of_feed}: {checkpoint} ({tso_time(checkpoint)})"
    if landed is not None:
        yield from _lag_lines([row for row in rows if row.changefeed not in landed], LAG_HEADS)
        yield from _lag_lines([row for row in rows if row.changefeed in landed], LANDED_LAG_HEADS)
    yield from (f"{row.table} {row.forecast.sentence}." for row in rows if row.forecast and row.forecast.sentence)
    for row in rows:
        if row.left_out:
            yield f"left out of {row.table} on purpose: {'; '.join(row.left_out)}"
        if row.marks_deletes:
            yield f"{row.table} keeps deleted rows, counted here: those of the source are WHERE {LIVING}"
        if row.miscounted:
            yield f"rows do not add up: {row.table}: {row.miscounted}"
        if row.set_aside:
            yield f"{row.table}: {row.set_aside}"
        if row.unfinished:
            yield row.unfinished
    stops = [
        *_stopped_lines((row.state, row.table, row.reason, row.ways) for row in rows if row.reason),
        *incomplete_lines((row.table, row.incomplete, row.incomplete_cause) for row in rows if row.incomplete),
    ]
    yield from stops
    yield from options_lines((*stops, *(row.unfinished for row in rows)), options)


def record_lines(row: QuarantinedRow) -> Iterator[str]:
    """Yield a record of the quarantine as lines of text: its place, what does not fit, and its bytes."""
    message = _MESSAGE.fullmatch(row.reason)
    place, reason = message.groups() if message else (f"{row.file} line {row.line}", row.reason)
    kind = f" ({row.life.kind})" if row.life.kind else ""
    yield f"{row.state}  {row.table}{kind}  {with_column(place, row.column, reason)}: {reason}"
    yield f"    {_printed(row.raw)}"


def _printed(raw: bytes) -> str:
    """Return bytes as text in one line: what is no UTF-8 or cannot be printed as \\xNN, \\n and the like."""
    return _in_one_line(raw[:1000].decode("utf-8", "backslashreplace"))


def _in_one_line(text: str) -> str:
    """Return a text with what cannot be printed as Python writes it: a line break as \\n."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _state(state: str, incomplete: str) -> str:
    """Return a table's state with the first word of the sentence on an incomplete one."""
    return f"{state}, {incomplete.split(maxsplit=1)[0].rstrip(':')}" if incomplete else state


def _lag_lines(rows: Iterable[TableStatus], heads: Sequence[str]) -> Iterator[str]:
    """Yield the lag of each table's newest applied change, by stage."""
    newest = [(row.table, tso_time(row.stages.commit_ts), *lag_cells(row.stages)) for row in rows if row.stages]
    if newest:
        yield ""
        yield from grid_lines(("newest change of", "committed", *heads), newest)


def grid_lines(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield a table of text, its columns padded; a line break or the like within a cell is shown as \\n."""
    cells = [[_in_one_line(str(cell)) for cell in row] for row in rows]
    widths = [max(len(head), *(len(row[i]) for row in cells)) if cells else len(head) for i, head in enumerate(heads)]
    for line in [list(heads), *cells]:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


@dataclass(frozen=True, slots=True)
class FileText:
    """A data file as `table` read it last. `rows` is None for one that vanished unread; `time` is `last_position`'s."""

    changefeed: str
    path: str
    table: str
    rows: int | None
    file_bytes: int
    first_position: Tso | None
    last_position: Tso | None
    time: str
    run: str
    snapshot: int | None
    read_at: str


def file_texts(changefeed: str, entries: Iterable[FileEntry], names: Mapping[str, TableId]) -> list[FileText]:
    """Describe the ledger's files, ordered by the position of their last row; `names` has each life's newest name."""
    ordered = sorted(entries, key=lambda entry: (entry.max_commit_ts or 0, entry.path))
    return [
        FileText(
            changefeed,
            entry.path,
            str(names.get(entry.life, entry.life)),
            None if entry.rows < 0 else entry.rows,
            entry.size,
            entry.min_commit_ts,
            entry.max_commit_ts,
            tso_time(entry.max_commit_ts) if entry.max_commit_ts else "",
            entry.run,
            entry.snapshot,
            iso_time(dt.datetime.fromtimestamp(entry.read_at, dt.timezone.utc)),
        )
        for entry in ordered
    ]
