"""One window of one table: files -> decoded, checked, filtered and reduced changes. Runs on Spark executors.

A record that does not fit makes the window fail, or is handed over for the quarantine. A file that cannot be trusted at
all, and a record that was cut off, fail the window in any case: what else is missing is not known then.

The same function serves the lake's tasks, which give it a share of the files, and everything that has no Spark.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding.cut_off import is_delivered_again, sequence_of
from cdc_assets.decoding.dedupe import FILE, SEQUENCE, count_undecided, reduce_counted
from cdc_assets.decoding.dispatchers import writers
from cdc_assets.decoding.upgrade import evolve_rows
from cdc_assets.decoding.validate import check
from cdc_assets.errors import CdcError, MalformedData
from cdc_assets.formats import COMMIT_TS, LINE, OP, Decoded, SplitReader, Wire, decode_among, raw_records
from cdc_assets.model.reports import AlikeKeys, FileStats, Reject, Report
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.schema_changes import SetDefault
from cdc_assets.model.splits import DataFile
from cdc_assets.model.steps import ApplyRows
from cdc_assets.model.tso import Tso
from cdc_assets.types.mysql_types import arrow_type

__all__ = [
    "MAX_REJECTS",
    "Window",
    "decode_window",
    "look_beside",
    "merge_reports",
    "read_window",
    "rejected",
    "sentence",
    "sequences",
]

_BATCH_FILES, _BATCH_BYTES = 200, 16 << 20
"""Files that are decoded before they are checked together."""

MAX_REJECTS = 20
"""Rejects that a report carries in full; all are counted."""


@dataclass(frozen=True, slots=True)
class Window:
    """Changes of a step, with what reading them told. `rejects` are all records for the quarantine, with raw bytes."""

    changes: pa.Table
    report: Report
    rejects: tuple[Reject, ...] = ()


def read_window(
    step: ApplyRows,
    reader: SplitReader,
    share: Iterable[int] | None = None,
    quarantine: bool = False,
) -> Window:
    """Decode the step's files (or the `share` of them, by position) and reduce their changes of (lo, hi].

    Rows that do not fit are in the report, and with `quarantine` in `rejects`; a file that cannot be trusted at all is
    one reject. Raises TableHeld for changes that a table without key cannot take.
    """
    started = time.monotonic()
    found = decode_window(step, reader, share, quarantine)
    reduced, alike = reduce_counted(found.changes, step.schema, step.life.born_as, writers(step.files))
    report = replace(found.report, seconds=time.monotonic() - started, alike=alike)
    return replace(found, changes=reduced, report=report)


def decode_window(
    step: ApplyRows,
    reader: SplitReader,
    share: Iterable[int] | None = None,
    quarantine: bool = False,
) -> Window:
    """Do what `read_window` does, but for the reduction: one row per row image, with FILE and SEQUENCE."""
    started = time.monotonic()
    deliveries = _Deliveries(step)
    tables: list[pa.Table] = [_empty(step)]
    reports: list[Report] = []
    rejects: list[Reject] = []
    # A row of a table without key that was kept aside is not there to leave: what it leaves by is kept aside too.
    leaving_too = quarantine and not step.schema.key
    for found in _read_files(step, range(len(step.files)) if share is None else share, reader, leaving_too):
        position, file = found.position, step.files[found.position]
        changes, report, tail, kept_aside = _sorted_out(step, found, reader, quarantine, deliveries)
        reports.append(report)
        rejects.extend(kept_aside)
        if tail is not None:  # what was cut off is no older than the file's last whole record
            tail = replace(tail, commit_ts=report.files[0].max_commit_ts)
        if (
            tail is not None
            and isinstance(found.decoded, Decoded)
            and _may_be_due(tail, step, _intervals(step, step.schemas[file.root, file.version][0]))
            and not is_delivered_again(tail, position, found.data, found.decoded, step, reader)
        ):
            reports.append(Report(reject_count=1, rejects=(tail,)))
        if changes.num_rows:
            tables.append(changes if step.positions is None else _ordered_by_file(changes, position))
    all_changes = pa.concat_tables(tables)
    joints = tuple(step.files[position].path for position in deliveries.joints)
    undecided = 0 if step.schema.key else count_undecided(all_changes, writers(step.files))
    reports.append(Report(joints=joints, undecided=undecided))
    return Window(all_changes, merge_reports(reports, time.monotonic() - started), tuple(rejects))


def look_beside(step: ApplyRows, known: Mapping[str, FileStats], reader: SplitReader) -> Report:
    """Look for rows of the step in the files that it does not take; its report fails where there are some.

    `known` tells what earlier readings found, those of the same run included.
    """
    files = [file for file in step.beside if file.may_hold(known.get(file.path), step.lo, step.hi)]
    if not files:
        return Report()
    found = decode_window(replace(step, files=tuple(files), beside=(), evolutions=()), reader)
    return replace(found.report, rows=0, newest=None, joints=())


def sequences(files: Sequence[DataFile]) -> tuple[int, ...]:
    """Number the sequence of each file: the dates of one directory belong together, versions and dispatchers do not."""
    known: dict[tuple[object, ...], int] = {}
    return tuple(known.setdefault(sequence_of(file), len(known)) for file in files)


def merge_reports(reports: Iterable[Report], seconds: float) -> Report:
    """Add reports up; the first rejects in file order are kept."""
    rejects: list[Reject] = []
    notes: dict[tuple[str, str], int] = {}
    files: list[FileStats] = []
    rows = count = quarantined = undecided = 0
    joints: list[str] = []
    newest: tuple[Tso, str] | None = None
    alike = AlikeKeys()
    for report in reports:
        if report.newest is not None and (newest is None or report.newest[0] > newest[0]):
            newest = report.newest
        rows += report.rows
        count += report.reject_count
        quarantined += report.quarantined
        undecided += report.undecided
        alike += report.alike
        rejects.extend(report.rejects[: MAX_REJECTS - len(rejects)])
        files.extend(report.files)
        joints.extend(report.joints)
        for rule, n in report.notes.items():
            notes[rule] = notes.get(rule, 0) + n
    return Report(
        rows, count, tuple(rejects), notes, tuple(files), seconds, quarantined, newest, tuple(joints), undecided, alike
    )


class _Deliveries:
    """Says for each row of a step's files to which run of growing commit-ts it belongs.

    A table with a key needs to know the number sequence only. For one without, a commit-ts that steps back starts a new
    delivery; rows outside the window tell that too, so they are looked at before they are left out.
    """

    def __init__(self, step: ApplyRows) -> None:
        self._sequence_of = sequences(step.files)
        self._tell_apart = not step.schema.key and step.positions is None
        self._lo, self._hi = step.lo, step.hi
        self.joints: list[int] = []
        self._last: dict[int, tuple[Tso, int]] = {}
        self._count = 0

    def of(self, position: int, changes: pa.Table) -> pa.Array:
        """Return the delivery (int32) of each row of the file at `position`; files have to come in their order."""
        sequence, n = self._sequence_of[position], changes.num_rows
        if not self._tell_apart or not n:
            return pa.repeat(pa.scalar(sequence, pa.int32()), n)
        order = np.argsort(changes.column(LINE).to_numpy(), kind="stable")
        ts = changes.column(COMMIT_TS).to_numpy()[order]
        before, current = self._last.get(sequence, (ts[0] + 1, 0))
        if ts[0] == before and self._lo < before <= self._hi:
            self.joints.append(position)
        back = np.diff(ts, prepend=before) < 0
        fresh = np.cumsum(back)
        numbers = np.where(fresh > 0, fresh + self._count, current)
        self._count += int(fresh[-1])
        self._last[sequence] = (int(ts[-1]), int(numbers[-1]))
        placed = np.empty(n, np.int32)
        placed[order] = numbers
        return pa.array(placed)


def sentence(reject: Reject) -> str:
    """Say where a record does not fit and why, unless the reason already does."""
    if reject.reason.startswith(reject.path):
        return reject.reason
    place = f"{reject.path} line {reject.line}" if reject.line else reject.path
    column = f', column "{reject.column}"' if reject.column else ""
    return f"{place}{column}: {reject.reason}"


def rejected(step: ApplyRows, report: Report) -> MalformedData:
    """The error of a window that was refused: how many records, and the first of them in full."""
    first = report.rejects[0] if report.rejects else None
    more = f" ({report.reject_count:,} such records in this window)" if report.reject_count > 1 else ""
    text = sentence(first).rstrip(".") if first is not None else "records do not fit"
    return MalformedData(
        f"{text}{more}. Nothing of this window was written; the table stays at {step.lo}.",
        ways=(
            "Restore the file as TiCDC wrote it, or correct the settings that it is read by.",
            "Let records that do not fit be kept aside and the rest be applied: setting quarantine, or --quarantine. "
            "A file that was cut off, or that cannot be trusted at all, stops its table even so.",
        ),
        file=first.path if first else None,
        line=first.line if first else None,
        column=first.column if first else None,
        table=str(step.life.born_as),
        commit_ts=first.commit_ts if first else None,
    )


@dataclass(slots=True)
class _Read:
    """A file that was read and decoded, or what is wrong with all of it. `sound` files need no check of their own.

    The rows of a `foreign` file are those of another table of its directory.
    """

    position: int
    data: bytes
    decoded: Decoded | MalformedData
    foreign: bool = False
    sound: bool = False


def _read_files(step: ApplyRows, positions: Iterable[int], reader: SplitReader, leaving_too: bool) -> Iterator[_Read]:
    """Decode files in order. They are checked together: a check costs as much for ten rows as for ten thousand."""
    batch: list[_Read] = []
    for position in positions:
        file = step.files[position]
        own, siblings = step.schemas[file.root, file.version], step.siblings.get((file.root, file.version), ())
        data = reader.read(file.path)
        decoded: Decoded | MalformedData
        try:
            with _concerning(file):
                table, decoded = decode_among(reader.wire(file.path), data, file.path, (own, *siblings))
        except MalformedData as error:
            table, decoded = own[0], error
        batch.append(_Read(position, data, decoded, foreign=table != own[0]))
        if len(batch) == _BATCH_FILES or sum(len(one.data) for one in batch) >= _BATCH_BYTES:
            yield from _screened(batch, step, leaving_too)
            batch = []
    yield from _screened(batch, step, leaving_too)


@contextmanager
def _concerning(file: DataFile) -> Iterator[None]:
    """Let whatever goes wrong with the bytes of a file concern that file: damage has more forms than are foreseen."""
    try:
        yield
    except (CdcError, ImportError, MemoryError):
        raise
    except Exception as error:
        raise MalformedData(
            f"{file.path} cannot be decoded ({type(error).__name__}: {error}). If it is as TiCDC wrote it, report this "
            "with the file; else restore it.",
            path=file.path,
        ) from error


def _screened(batch: list[_Read], step: ApplyRows, leaving_too: bool) -> list[_Read]:
    """Mark the files of a batch that are sound; files of which one is not are checked one by one later."""
    alike: dict[tuple[str, Tso], list[_Read]] = {}
    for one in batch:
        # What decoding noted of one file would loosen the check of the others.
        if isinstance(one.decoded, Decoded) and not one.decoded.notes and not one.foreign:
            file = step.files[one.position]
            alike.setdefault((file.root, file.version), []).append(one)
    for where, files in alike.items():
        tables = [one.decoded.changes for one in files if isinstance(one.decoded, Decoded)]
        if len(files) < 2 or any(table.schema != tables[0].schema for table in tables):
            continue
        try:
            with _concerning(step.files[files[0].position]):
                together, schema = pa.concat_tables(tables), step.schemas[where][1]
                sound = check(together, schema, "", notes={}, limit=1, leaving_too=leaving_too).total == 0
        except MalformedData:
            sound = False
        for one in files:
            one.sound = sound
    return batch


def _sorted_out(
    step: ApplyRows, found: _Read, reader: SplitReader, quarantine: bool, deliveries: _Deliveries
) -> tuple[pa.Table, Report, Reject | None, tuple[Reject, ...]]:
    position, data, decoded = found.position, found.data, found.decoded
    file = step.files[position]
    table, schema = step.schemas[file.root, file.version]
    intervals = _intervals(step, table)
    if found.foreign and isinstance(decoded, Decoded):
        return _empty(step), Report(files=(_stats(file, decoded, len(data)),)), None, ()
    try:
        if isinstance(decoded, MalformedData):
            raise decoded
        with _concerning(file):
            # Rows that do not fit, and those of other windows, tell all the same where a delivery begins.
            changes = decoded.changes.append_column(SEQUENCE, deliveries.of(position, decoded.changes))
            failed: Sequence[Reject] = ()
            failed_count = 0
            if not found.sound:
                checked = partial(
                    check,
                    schema=schema,
                    path=file.path,
                    notes=decoded.notes,
                    limit=None if quarantine else MAX_REJECTS,
                    leaving_too=quarantine and not step.schema.key,
                )
                everything = changes
                changes, failed, failed_count = checked(everything)
                if failed_count > len(failed) and step.positions is None:
                    _, failed, failed_count = checked(_in_window(everything, step, intervals))
            due = changes if step.positions is not None else _in_window(changes, step, intervals)
            stray = _stray(decoded.changes, step, file)
            rows = _evolved(due, step, position) if stray is None else _empty(step)
    except MalformedData as error:
        reject = Reject(
            file.path, int(error.where.get("line", 0)), error.message, column=str(error.where.get("column", ""))
        )
        return _empty(step), Report(reject_count=1, rejects=(reject,)), None, ()
    stats = _stats(file, decoded, len(data))
    rejects = tuple(r for r in (*decoded.rejects, *failed) if _due(r, step, intervals))
    extra = max(0, failed_count - len(failed))
    first = rejects[:MAX_REJECTS]
    kept_aside = _with_raw(rejects, data, reader.wire(file.path)) if quarantine else ()
    last = pc.max(due.column(COMMIT_TS)).as_py()
    report = Report(
        stats.rows,
        len(rejects) + extra,
        first,
        decoded.notes,
        (stats,),
        quarantined=len(kept_aside),
        newest=None if last is None else (last, file.path),
    )
    if stray is not None:
        report = replace(report, reject_count=report.reject_count + 1, rejects=(stray, *first)[:MAX_REJECTS])
    return rows, report, decoded.tail, kept_aside


def _with_raw(rejects: Iterable[Reject], data: bytes, wire: Wire) -> tuple[Reject, ...]:
    """Give the records that a check refused their bytes: decoding has gone past them."""
    rejects = tuple(rejects)
    wanted = {reject.line for reject in rejects if not reject.raw}
    found = raw_records(wire, data, wanted) if wanted else {}
    return tuple(reject if reject.raw else replace(reject, raw=found.get(reject.line, b"")) for reject in rejects)


def _intervals(step: ApplyRows, table: TableId) -> list[tuple[Tso, Tso]]:
    return [(since, until) for name, since, until in step.names if name.folded == table.folded]


def _in_window(changes: pa.Table, step: ApplyRows, intervals: list[tuple[Tso, Tso]]) -> pa.Table:
    ts = changes.column(COMMIT_TS)
    held = None
    for since, until in intervals:
        lo, hi = max(step.lo, since - 1), min(step.hi, until - 1)
        inside = pc.and_(pc.greater(ts, pa.scalar(lo, pa.int64())), pc.less_equal(ts, pa.scalar(hi, pa.int64())))
        held = inside if held is None else pc.or_(held, inside)
    return changes.slice(0, 0) if held is None else changes.filter(held)


def _due(reject: Reject, step: ApplyRows, intervals: Iterable[tuple[Tso, Tso]] = ()) -> bool:
    """A record of unknown commit-ts is due in every window; one of a name's other holder is not this table's."""
    ts = reject.commit_ts
    if ts is None or step.positions is not None:
        return True
    return step.lo < ts <= step.hi and any(since <= ts < until for since, until in intervals)


def _may_be_due(tail: Reject, step: ApplyRows, intervals: Iterable[tuple[Tso, Tso]]) -> bool:
    """Tell whether a window may have lost something with a tail, whose commit-ts is the least that it can be."""
    ts = tail.commit_ts
    if ts is None or step.positions is not None:
        return True
    return ts <= step.hi and any(ts < until for _, until in intervals)


def _stats(file: DataFile, decoded: Decoded, read_bytes: int) -> FileStats:
    """What the file told, under the size that was read: a file that was seen half will not be taken for known."""
    bounds = pc.min_max(decoded.changes.column(COMMIT_TS)).as_py()
    seen = [r.commit_ts for r in (*decoded.rejects, decoded.tail) if r is not None and r.commit_ts is not None]
    lows = [t for t in (bounds["min"], *seen) if t is not None]
    highs = [t for t in (bounds["max"], *seen) if t is not None]
    lines = decoded.changes.column(LINE)
    rows = (pc.count_distinct(lines).as_py() if len(lines) else 0) + len(decoded.rejects)
    low, high = min(lows) if lows else None, max(highs) if highs else None
    return FileStats(file.path, read_bytes, file.etag, rows, low, high, decoded.notes)


def _evolved(changes: pa.Table, step: ApplyRows, position: int) -> pa.Table:
    """Rows in the step's schema: those from before a DDL that the table took ahead go through it."""
    if not changes.num_rows:
        return _empty(step)
    if not step.evolutions:
        return _mapped(changes, step.schema, position)
    parts = [_empty(step)]
    since, before = step.lo, step.evolutions[0].before
    for number, evolution in enumerate(step.evolutions):
        if not all(isinstance(change, SetDefault) for change in evolution.changes):
            parts.append(_carried(_between(changes, since, evolution.at - 1), before, step, number, position))
            since = evolution.at - 1
        before = evolution.after
    rest = _between(changes, since, step.hi)
    if rest.num_rows:  # else the file's columns may be of types that none of the window's become
        parts.append(_mapped(rest, step.schema, position))
    return pa.concat_tables(parts)


def _carried(rows: pa.Table, before: TableSchema, step: ApplyRows, number: int, position: int) -> pa.Table:
    """Rows of before the step's DDL of that number, as they read after the last one."""
    if not rows.num_rows:
        return _empty(step)
    rows = _mapped(rows, before, position)
    for evolution in step.evolutions[number:]:
        rows = evolve_rows(rows, evolution.changes, evolution.after)
    return _mapped(rows, step.schema, position)


def _between(changes: pa.Table, lo: Tso, hi: Tso) -> pa.Table:
    ts = changes.column(COMMIT_TS)
    return changes.filter(
        pc.and_(pc.greater(ts, pa.scalar(lo, pa.int64())), pc.less_equal(ts, pa.scalar(hi, pa.int64())))
    )


def _stray(changes: pa.Table, step: ApplyRows, file: DataFile) -> Reject | None:
    """The first row that cannot have been written with the columns of its directory."""
    ts = changes.column(COMMIT_TS)
    for since, until in step.unexplained.get((file.root, file.version), ()):
        rows = _between(changes, since - 1, min(until - 1, step.hi)) if since <= step.hi and len(ts) else None
        if rows is not None and rows.num_rows:
            at, line = rows.column(COMMIT_TS)[0].as_py(), rows.column(LINE)[0].as_py()
            reason = (
                f"the row of commit-ts {at} is filed under version {file.version}, whose columns were not in force "
                "then: a DDL is not in the changefeed, because an event filter hides it or its schema file was "
                "removed. Restore that schema file, or rebuild the table."
            )
            return Reject(file.path, line, reason, commit_ts=at)
    return None


def _mapped(changes: pa.Table, schema: TableSchema, position: int) -> pa.Table:
    """Columns by name in the order of the schema, then the file and delivery; hidden columns become null."""
    arrays = [changes.column(name) for name in (OP, COMMIT_TS, LINE)]
    names = [OP, COMMIT_TS, LINE]
    for column in schema.stored:
        kind = arrow_type(column)
        if column.name in changes.column_names:
            array = changes.column(column.name)
            arrays.append(array if array.type == kind else array.cast(kind))
        else:
            arrays.append(pa.chunked_array([pa.nulls(changes.num_rows, kind)]))
        names.append(column.name)
    place = pa.chunked_array([pa.repeat(pa.scalar(position, pa.int32()), changes.num_rows)])
    return pa.table([*arrays, place, changes.column(SEQUENCE)], names=[*names, FILE, SEQUENCE])


def _ordered_by_file(changes: pa.Table, position: int) -> pa.Table:
    """Without commit-ts the place in the files is the order: it stands in for the commit-ts until they are written."""
    base = pa.scalar(position << 40, pa.int64())
    ordinal = pc.add(changes.column(LINE), base)
    return changes.set_column(changes.schema.get_field_index(COMMIT_TS), pa.field(COMMIT_TS, pa.int64()), ordinal)


def _empty(step: ApplyRows) -> pa.Table:
    fields = [pa.field(OP, pa.int8()), pa.field(COMMIT_TS, pa.int64()), pa.field(LINE, pa.int64())]
    fields += [pa.field(column.name, arrow_type(column)) for column in step.schema.stored]
    fields += [pa.field(FILE, pa.int32()), pa.field(SEQUENCE, pa.int32())]
    return pa.schema(fields).empty_table()
