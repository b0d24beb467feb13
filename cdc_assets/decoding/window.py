"""One window of one table: files -> decoded, checked, filtered and reduced changes. Runs on Spark executors.

    read ──▶ decode ──▶ number deliveries ──▶ filter ──▶ validate ──▶ upgrade ──▶ reduce

A record that does not fit makes the window fail, or is handed over for the quarantine. A file that cannot be trusted at
all, and a record that was cut off, fail the window in any case: what else is missing is not known then.

The same functions serve the lake's tasks, which give them a share of the files, and everything that has no Spark:

    decode_window   files -> one row per row image; decode_windows for several tables of one source table
    reduced         such windows -> one row per key, or counted rows
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding import PLACE
from cdc_assets.decoding.deliveries import Deliveries
from cdc_assets.decoding.first_images import FIRST_IMAGE, compared, noted, parted
from cdc_assets.decoding.split import (
    MAX_REJECTS,
    Split,
    due,
    file_stats,
    in_shape,
    may_be_due,
    may_quote,
    no_changes,
    read_splits,
    without_excluded,
    without_reason,
)
from cdc_assets.decoding.upgrade import upgraded
from cdc_assets.decoding.validate import validated
from cdc_assets.errors import MalformedData, StepFailed, as_cdc_error
from cdc_assets.features.columns.decoding import reduced_with_marks, with_places
from cdc_assets.features.dumps.formats import lines_before, raw_rows
from cdc_assets.features.kinds.decoding import kind_of
from cdc_assets.formats import SplitReader, raw_records, record_beginning, record_identity, record_places
from cdc_assets.formats.changes import position_column
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP, POSITION, Decoded, Op
from cdc_assets.io.encryption import encrypt
from cdc_assets.model.encryption import EncryptionKey
from cdc_assets.model.layout import DELETED_AT
from cdc_assets.model.reports import AlikeKeys, FileStats, Reject, Report
from cdc_assets.model.splits import DataFile, in_shares
from cdc_assets.model.steps import ApplyRows
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import with_column


def lost_tail(split: Split, tail: Reject, step: ApplyRows, reader: SplitReader) -> Reject | None:
    """Return the record that a file was cut off in, where the window may have lost something with it.

    A writer that dies while a file is not yet flushed goes on from its checkpoint, below every row of the file: all
    that the file would have held comes again, in the order of commit-ts. What a file lost that was cut off by anything
    else is nowhere. So nothing is lost if later files have two whole records: one from before the cut, which proves
    that the feed was repeated from below it on, and one of which the cut record may be the beginning.
    """
    if not may_be_due(tail, split, step) or _is_delivered_again(split, tail, step, reader):
        return None
    return tail


def _is_delivered_again(split: Split, tail: Reject, step: ApplyRows, reader: SplitReader) -> bool:
    """Return whether later files repeat the feed from before the record that was cut off.

    False where there is no whole record to go by, and without commit-ts: rows may be alike then.
    """
    line = _witness(split.decoded, step)
    if line is None:
        return False
    witness, begun = raw_records(split.wire, split.data, {line})[line], record_beginning(split.wire, tail.raw)
    start, identity = record_beginning(split.wire, witness), record_identity(split.wire, witness)
    proven = continued = False
    for file in _later(split.position, step):
        for record in raw_records(split.wire, reader.read(file.path), None).values():
            if not proven and record.startswith(start) and record_identity(split.wire, record) == identity:
                proven = True
            else:
                continued = continued or record.startswith(begun)
        if proven and continued:
            return True
    return False


def _witness(decoded: Decoded, step: ApplyRows) -> int | None:
    """Return the line of a row that comes again only if the feed is repeated from below it.

    With a key that is any, so the last one. Without, rows of one transaction may be alike, but not one of an older
    transaction than the last.
    """
    changes = decoded.changes
    if not changes.num_rows or step.positions is not None:
        return None
    if not step.schema.key:
        at = changes.column(position_column(changes))
        changes = changes.filter(pc.less(at, pc.max(at)))
    line: int | None = pc.max(changes.column(LINE)).as_py()
    return line


def _later(position: int, step: ApplyRows) -> Iterator[DataFile]:
    """Yield the files that were written after one, by their numbers and the storage's clock."""
    earlier_file = step.files[position]
    for place, file in enumerate(step.files):
        if file.size == 0 or place == position:
            continue
        if file.sequence == earlier_file.sequence:
            later = place > position
        elif not step.schema.key:
            later = False  # two writers may have rows that are alike
        else:
            later = not file.modified or not earlier_file.modified or file.modified >= earlier_file.modified
        if later:
            yield file


_BATCH_FILES, _BATCH_BYTES = 200, 16 << 20
"""Files that go through the stages together: a check costs as much for ten rows as for ten thousand."""

_NO_ROWS = pa.table({})


@dataclass(frozen=True, slots=True)
class Window:
    """Changes of a step, and what reading them showed. `rejects` are all records for the quarantine, with raw bytes."""

    changes: pa.Table
    report: Report = field(default_factory=Report)
    rejects: tuple[Reject, ...] = ()


# --- the river --------------------------------------------------------------------------------------------------------


def decode_window(
    step: ApplyRows,
    reader: SplitReader,
    share: Iterable[int] | None = None,
) -> Window:
    """Decode the step's files (or the `share` of them, by position): a row per row image of (lo, hi], with FILE.

    Where there is no key they have DELIVERY, too. Rows that do not fit are in the report, and in `rejects` if the
    step sets them aside; a file that cannot be trusted at all is one reject.
    """
    return decode_windows((step,), reader, share)[0]


def decode_windows(
    steps: Sequence[ApplyRows],
    reader: SplitReader,
    share: Iterable[int] | None = None,
) -> list[Window]:
    """Decode the window of several tables of one source table, which is read and checked once; a window for each."""
    with concerning_table(steps[0]):
        started, first = time.monotonic(), steps[0]
        numbering = None if first.schema.key else Deliveries(first)
        # A row found by its values only cannot be deleted while it is set aside, so its delete is set aside, too.
        leaving_too = first.sets_aside and not first.schema.key
        windows: list[list[Window]] = [[] for _ in steps]

        read = read_splits(first, range(len(first.files)) if share is None else share, reader)
        for splits in in_shares(read, lambda split: split.changes.nbytes + len(split.data), _BATCH_FILES, _BATCH_BYTES):
            if numbering is not None:
                splits = [split.through(numbering.number) for split in splits]
            splits = [split.through(partial(due, first)) for split in splits]
            if first.reading.excluded:
                splits = [without_reason(split.through(partial(without_excluded, first))) for split in splits]
            if any(split.changes.num_rows for split in splits):
                splits = validated(splits, every=first.sets_aside, leaving_too=leaving_too)
            files = [file_stats(split) if split.refused is None else None for split in splits]
            for step, step_windows in zip(steps, windows, strict=True):
                shaped = (split.through(partial(upgraded if step.evolutions else _shaped, step)) for split in splits)
                pairs = zip(shaped, files, strict=True)
                step_windows += [_window(split, stats, step, reader) for split, stats in pairs]
            del splits, shaped, pairs
        more = Report(joints=tuple(numbering.joints)) if numbering is not None else Report()
        seconds = time.monotonic() - started
        return [
            _together(_concatenated(step, step_windows, numbering is not None), step_windows, more, seconds)
            for step, step_windows in zip(steps, windows, strict=True)
        ]


def _concatenated(step: ApplyRows, windows: Sequence[Window], deliveries: bool) -> pa.Table:
    tables = [window.changes for window in windows if window.changes.num_rows]
    if not tables:
        return no_changes(step.schema, deliveries)
    changes = pa.concat_tables(tables, promote_options="default")
    in_parts = len(windows) < len(step.files)
    if step.whole_at is None or not (in_parts or not pc.all(pc.equal(changes.column(OP), int(Op.INSERT))).as_py()):
        return changes
    return noted(changes, step.whole_at)


def reduced(step: ApplyRows, windows: Sequence[Window], *, is_part: bool = False) -> Window:
    """Reduce what readings of one step found, which may have gone on side by side; what they report adds up.

    What `is_part` of a window is reduced once more with its other parts. Windows of a kind that cannot split changes
    hold all files of the step. Raises TableHeld for changes that the kind cannot take.
    """
    started, longest = time.monotonic(), max(window.report.seconds for window in windows)
    changes, more = pa.concat_tables([window.changes for window in windows], promote_options="default"), Report()
    if changes.num_rows:
        size, rest = changes.num_rows, changes.slice(0, 0)
        if FIRST_IMAGE in changes.column_names and is_part:
            changes, rest = parted(changes, step.schema)
        elif FIRST_IMAGE in changes.column_names:
            changes = compared(changes, step.schema)
        if changes.num_rows:
            reduce = partial(kind_of(step).reduce, schema=step.schema, table=step.life.born_as, files=step.files)
            if DELETED_AT in step.lake_columns and step.schema.key:
                changes, more = reduced_with_marks(changes, step, reduce, is_part=is_part)
            else:
                changes, more = reduce(changes)
        changes = pa.concat_tables([changes, rest], promote_options="default") if rest.num_rows else changes
        if step.is_snapshot and not kind_of(step).EQUAL_ROWS:
            more = replace(more, doubled=size - changes.num_rows)
    return _together(changes, windows, more, longest + time.monotonic() - started)


def look_beside(step: ApplyRows, statistics: Mapping[str, FileStats], reader: SplitReader) -> Report:
    """Look for rows of the step in the files that it does not take; its report fails where there are some.

    `statistics` are those of files that were read before, in the same run too.
    """
    files = [file for file in step.reading.beside if file.may_hold(statistics.get(file.path), step.lo, step.hi)]
    if not files:
        return Report()
    reading = replace(step.reading, beside=())
    step = replace(step, files=tuple(files), reading=reading, evolutions=(), sets_aside=False)
    window = decode_window(step, reader)
    return replace(window.report, rows=0, newest=None, joints=())


def _shaped(step: ApplyRows, split: Split) -> Split:
    if not split.changes.num_rows:  # the file's columns may be of types that none of the window's become
        return split
    return replace(split, changes=in_shape(split.changes, step.schema))


def _window(split: Split, stats: FileStats | None, step: ApplyRows, reader: SplitReader) -> Window:
    """Build the window from the results of the stages for a file, with its report."""
    if split.refused is not None:
        return Window(_NO_ROWS, Report(reject_count=1, rejects=(split.refused,)))
    assert stats is not None
    lost = None
    if split.foreign:
        return Window(_NO_ROWS, Report(files=(stats,)))
    if split.file.piece and split.rejects:
        split = _in_whole_file(
            split, reader, step.sets_aside and (step.encryption_key is not None or not split.confidential)
        )
    elif split.rejects:
        # Each record that does not fit says in which message of its topic it came; those of files came in none.
        messages = record_places(split.wire, split.data, {reject.line for reject in split.rejects})
        split = replace(
            split, rejects=tuple(replace(reject, place=messages.get(reject.line, "")) for reject in split.rejects)
        )
    if split.decoded.tail is not None:  # it is no older than the file's last whole record
        lost = lost_tail(split, replace(split.decoded.tail, commit_ts=stats.max_commit_ts), step, reader)
        lost = replace(lost, raw=b"") if lost is not None and split.confidential else lost
    kept_aside = _with_raw(split, step.encryption_key) if step.sets_aside and split.rejects else ()
    stopping = [reject for reject in (split.stray, lost) if reject is not None]
    shown = (split.stray, *split.rejects[:MAX_REJECTS], lost)
    first = [replace(reject, keys=b"") for reject in shown if reject is not None]
    last = pc.max(split.changes.column(COMMIT_TS)).as_py()
    used = (
        frozenset(step.reading.recipe.settings) - split.decoded.stated
        if last is not None or split.rejects
        else frozenset()
    )
    report = Report(
        stats.rows,
        split.reject_count + len(stopping),
        tuple(first[:MAX_REJECTS]),
        stats.notes,
        (stats,),
        set_aside=len(kept_aside),
        newest=None if last is None else (last, split.file.path),
        settings=used,
        excluded=split.excluded,
    )
    if split.stray is not None or not split.changes.num_rows:
        return Window(_NO_ROWS, report, kept_aside)
    changes = split.changes if step.positions is None else _ordered_by_file(split.changes, split.position)
    places = kind_of(step).PLACES
    if places and not split.file.piece and not split.wire.tells_inserts:  # whether the row is new is not known
        ops = pc.if_else(pc.greater(changes.column(OP), 0), pa.scalar(int(Op.UPDATE), pa.int8()), changes.column(OP))
        changes = changes.set_column(changes.schema.get_field_index(OP), pa.field(OP, pa.int8()), ops)
    if places or PLACE in step.lake_columns:
        piece = split.file.piece  # to count the records before a later part would read all of them
        heading = lines_before(reader, split.file) if piece is not None and piece.start == 0 else 0
        changes = with_places(changes, split, heading)
    return Window(changes, report, kept_aside)


def _in_whole_file(split: Split, reader: SplitReader, with_raw: bool) -> Split:
    """Give records of a dump that a check refused the name of their file, their lines in it, and their bytes."""
    decoded = {id(reject) for reject in split.decoded.rejects}
    checked = [reject.line for reject in split.rejects if id(reject) not in decoded]
    if not checked:
        return split
    before = lines_before(reader, split.file)
    records = raw_rows(reader, split.file, checked) if with_raw else {}
    rejects = tuple(
        r if id(r) in decoded else replace(r, path=split.file.name, line=r.line + before, raw=records.get(r.line, b""))
        for r in split.rejects
    )
    return replace(split, rejects=rejects)


def _with_raw(split: Split, key: EncryptionKey | None) -> tuple[Reject, ...]:
    """Give the records that a check refused their bytes: decoding has gone past them. Those of masks are encrypted.

    So are their keys: damage may have moved a value from its column into another.
    """
    if split.confidential and key is None:
        return tuple(replace(reject, keys=b"") for reject in split.rejects)
    rejects = split.rejects
    if not split.file.piece:
        lines = {reject.line for reject in rejects if not reject.raw}
        records = raw_records(split.wire, split.data, lines) if lines else {}
        rejects = tuple(r if r.raw else replace(r, raw=records.get(r.line, b"")) for r in rejects)
    if not split.confidential or key is None:
        return rejects
    encrypted = [[encrypt(data, key) if data else b"" for data in (reject.raw, reject.keys)] for reject in rejects]
    return tuple(replace(reject, raw=raw, keys=keys) for reject, (raw, keys) in zip(rejects, encrypted, strict=True))


def _ordered_by_file(changes: pa.Table, position: int) -> pa.Table:
    """Order changes without commit-ts by their place in the files."""
    ordinal = pc.add(changes.column(LINE), pa.scalar(position << 40, pa.int64()))
    return changes.append_column(pa.field(POSITION, pa.int64()), ordinal)


def _together(changes: pa.Table, windows: Sequence[Window], more: Report, seconds: float) -> Window:
    """Return one window with these changes: the reports of `windows` add up, `more` is reported of all of them."""
    report = merge_reports([*(window.report for window in windows), more], seconds)
    return Window(changes, report, tuple(reject for window in windows for reject in window.rejects))


def concerning_table(step: ApplyRows) -> AbstractContextManager[None]:
    """Raise an unforeseen error in the rows of one table as StepFailed, which stops that table only."""

    def meaning(cause: str) -> StepFailed:
        return StepFailed(
            f"{step.life}: its rows from {step.lo} to {step.hi} cannot be prepared ({cause}). Nothing of them was "
            "written, and other tables go on. Try again; if it fails again, report it with this text.",
            table=str(step.life),
        )

    return as_cdc_error(meaning, may_quote(step))


# --- reports ----------------------------------------------------------------------------------------------------------


_COUNTS = ("rows", "reject_count", "set_aside", "undecided", "run_again", "doubled", "passed_over", "excluded")


def merge_reports(reports: Iterable[Report], seconds: float) -> Report:
    """Add reports up; the first rejects in file order are kept."""
    all_reports = list(reports)
    rejects: list[Reject] = []
    notes: dict[tuple[str, str], int] = {}
    files: list[FileStats] = []
    newest: tuple[Tso, str] | None = None
    alike = AlikeKeys()
    for report in all_reports:
        if report.newest is not None and (newest is None or report.newest[0] > newest[0]):
            newest = report.newest
        alike += report.alike
        rejects.extend(report.rejects[: MAX_REJECTS - len(rejects)])
        _add_files(files, report.files)
        for rule, n in report.notes.items():
            notes[rule] = notes.get(rule, 0) + n
    return Report(
        rejects=tuple(rejects),
        notes=notes,
        files=tuple(files),
        seconds=seconds,
        newest=newest,
        joints=tuple(joint for report in all_reports for joint in report.joints),
        alike=alike,
        settings=frozenset().union(*(report.settings for report in all_reports)),
        **{name: sum(getattr(report, name) for report in all_reports) for name in _COUNTS},
    )


def _add_files(files: list[FileStats], more: Iterable[FileStats]) -> None:
    """Add what files hold; the blocks of one file follow each other, and are one, also where all of one is refused."""
    for stats in more:
        last = files[-1] if files else None
        if last is None or last.path != stats.path:
            files.append(stats)
            continue
        notes = {**last.notes}
        for rule, count in stats.notes.items():
            notes[rule] = notes.get(rule, 0) + count
        low = min((ts for ts in (last.min_commit_ts, stats.min_commit_ts) if ts is not None), default=None)
        high = max((ts for ts in (last.max_commit_ts, stats.max_commit_ts) if ts is not None), default=None)
        # The ranges of two blocks together, of the columns that have one in both.
        other_ranges = {(key_range.column, key_range.unit): key_range for key_range in stats.keys}
        keys = tuple(
            replace(key_range, low=min(key_range.low, other.low), high=max(key_range.high, other.high))
            for key_range in last.keys
            if (other := other_ranges.get((key_range.column, key_range.unit))) is not None
        )
        rows = last.rows + stats.rows
        files[-1] = replace(last, rows=rows, min_commit_ts=low, max_commit_ts=high, notes=notes, keys=keys)


def sentence(reject: Reject) -> str:
    """Return the sentence on where a record does not fit and why, unless the reason already has both."""
    if reject.reason.startswith(reject.place or reject.path):
        return reject.reason
    place = reject.place or (f"{reject.path} line {reject.line}" if reject.line else reject.path)
    return f"{with_column(place, reject.column, reject.reason)}: {reject.reason}"


def way_to_fit(reject: Reject | None) -> str:
    """Return the way to make a record fit, as a clause: files can be restored, messages are as they are."""
    if reject is not None and reject.place:
        return (
            "The message is kept in the landing as it came: correct the settings by which it is read (the sink URI, "
            "the changefeed TOML, tz, schemas)"
        )
    return "Restore the file as TiCDC wrote it, or correct the settings by which it is read"


def rejected(step: ApplyRows, report: Report, effect: str = "", way: str = "") -> MalformedData:
    """Return the error of a refused window: how many records, and the first of them in full.

    `effect` says what is not done where the window was not to be written, and `way` what helps then.
    """
    first = report.rejects[0] if report.rejects else None
    more = f" ({report.reject_count:,} such records in this window)" if report.reject_count > 1 else ""
    text = sentence(first).rstrip(".") if first is not None else "records do not fit"
    aside = "Let records that do not fit be set aside and the rest be applied: setting quarantine, or --quarantine."
    if way:
        aside = way
    elif first is None or not first.place:
        aside += " A file that was truncated, or that cannot be trusted at all, stops its table even so."
    stays = f"the table stays at {step.lo}" if step.lo >= 0 else "the table has no rows yet"
    return MalformedData(
        f"{text}{more}. {effect or f'Nothing of this window was written; {stays}'}.",
        ways=(f"{way_to_fit(first)}.", aside),
        file=first.path if first else None,
        line=first.line if first else None,
        column=first.column if first else None,
        table=str(step.life.born_as),
        commit_ts=first.commit_ts if first else None,
    )


# --- for the quarantine -----------------------------------------------------------------------------------------------

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
        ("keys", pa.binary()),
    ]
)
"""Columns of staged records for the quarantine; `keys` are those of its rows, NULL where they were not decoded."""


def rejects_table(rejects: Iterable[Reject], step: ApplyRows) -> pa.Table:
    """Return records of a step's files with the columns of REJECTS."""
    files = {file.name: file for file in step.files}
    rows = []
    for reject in rejects:
        file = files[reject.path]
        name = step.reading.schemas[file.root, file.version][0]
        has_place = reject.reason.startswith(reject.place)
        reason = reject.reason if has_place else f"{reject.place}: {reject.reason}"
        place = {"file": reject.path, "line": reject.line, "column": reject.column, "reason": reason}
        origin = {"schema": name.schema, "table": name.table, "schema_version": file.version}
        rows.append({**place, **origin, "commit_ts": reject.commit_ts, "raw": reject.raw, "keys": reject.keys or None})
    return pa.Table.from_pylist(rows, schema=REJECTS)
