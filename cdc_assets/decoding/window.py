"""One window of one table: files -> decoded, checked, filtered and reduced changes. Runs on Spark executors.

A record that does not fit makes the window fail, or is handed over for the quarantine. A file that cannot be trusted at
all, and a record that was cut off, fail the window in any case: what else is missing is not known then.

The same functions serve the lake's tasks, which give them a share of the files, and everything that has no Spark:

    decode_window   files -> one row per row image
    reduced         such windows -> one row per key, or counted rows
    read_window     both, for what one task reads alone
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding.cut_off import lost_tail
from cdc_assets.decoding.dedupe import reduce_changes
from cdc_assets.decoding.deliveries import Deliveries
from cdc_assets.decoding.dispatchers import writers
from cdc_assets.decoding.filter import due
from cdc_assets.decoding.read import Split, read_splits
from cdc_assets.decoding.reports import MAX_REJECTS, file_stats, merge_reports
from cdc_assets.decoding.upgrade import empty, upgraded
from cdc_assets.decoding.validate import validated
from cdc_assets.formats import COMMIT_TS, LINE, SplitReader, raw_records
from cdc_assets.model.reports import FileStats, Reject, Report
from cdc_assets.model.steps import ApplyRows

__all__ = ["Window", "decode_window", "look_beside", "read_window", "reduced"]


@dataclass(frozen=True, slots=True)
class Window:
    """Changes of a step, with what reading them told. `rejects` are all records for the quarantine, with raw bytes."""

    changes: pa.Table
    report: Report = field(default_factory=Report)
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
    return reduced(step, [decode_window(step, reader, share, quarantine)])


def decode_window(
    step: ApplyRows,
    reader: SplitReader,
    share: Iterable[int] | None = None,
    quarantine: bool = False,
) -> Window:
    """Do what `read_window` does, but for the reduction: one row per row image, with FILE and DELIVERY."""
    started = time.monotonic()
    deliveries = Deliveries(step)
    splits = read_splits(step, range(len(step.files)) if share is None else share, reader)
    numbered = (split.through(deliveries.number) for split in splits)
    filtered = (split.through(partial(due, step)) for split in numbered)
    # A row of a table without key that was kept aside is not there to leave: what it leaves by is kept aside too.
    sound = validated(filtered, every=quarantine, leaving_too=quarantine and not step.schema.key)
    present = (split.through(partial(upgraded, step)) for split in sound)
    windows = [_window(split, step, reader, quarantine) for split in present]
    changes = pa.concat_tables([empty(step), *(window.changes for window in windows)])
    told = Report(joints=tuple(deliveries.joints))
    return _together(changes, windows, told, time.monotonic() - started)


def reduced(step: ApplyRows, windows: Sequence[Window]) -> Window:
    """Reduce what readings of one step found, which may have gone on side by side; what they told adds up.

    Windows of a table without key hold whole sequences of files. Raises TableHeld for changes that such a table cannot
    take.
    """
    started, longest = time.monotonic(), max(window.report.seconds for window in windows)
    changes = pa.concat_tables([window.changes for window in windows])
    found = reduce_changes(changes, step.schema, step.life.born_as, writers(step.files))
    return _together(
        found.changes,
        windows,
        Report(undecided=found.undecided, alike=found.alike),
        longest + time.monotonic() - started,
    )


def look_beside(step: ApplyRows, known: Mapping[str, FileStats], reader: SplitReader) -> Report:
    """Look for rows of the step in the files that it does not take; its report fails where there are some.

    `known` tells what earlier readings found, those of the same run included.
    """
    files = [file for file in step.beside if file.may_hold(known.get(file.path), step.lo, step.hi)]
    if not files:
        return Report()
    found = decode_window(replace(step, files=tuple(files), beside=(), evolutions=()), reader)
    return replace(found.report, rows=0, newest=None, joints=())


def _window(split: Split, step: ApplyRows, reader: SplitReader, quarantine: bool) -> Window:
    """What the stages made of a file, and what is to be told of it."""
    if split.refused is not None:
        return Window(empty(step), Report(reject_count=1, rejects=(split.refused,)))
    stats = file_stats(split)
    if split.foreign:
        return Window(empty(step), Report(files=(stats,)))
    lost = lost_tail(split, stats.max_commit_ts, step, reader)
    kept_aside = _with_raw(split) if quarantine else ()
    stopping = [reject for reject in (split.stray, lost) if reject is not None]
    first = [reject for reject in (split.stray, *split.rejects[:MAX_REJECTS], lost) if reject is not None]
    last = pc.max(split.changes.column(COMMIT_TS)).as_py()
    report = Report(
        stats.rows,
        split.reject_count + len(stopping),
        tuple(first[:MAX_REJECTS]),
        stats.notes,
        (stats,),
        quarantined=len(kept_aside),
        newest=None if last is None else (last, split.file.path),
    )
    changes = split.changes if split.stray is None else empty(step)
    return Window(changes if step.positions is None else _ordered_by_file(changes, split.position), report, kept_aside)


def _with_raw(split: Split) -> tuple[Reject, ...]:
    """Give the records that a check refused their bytes: decoding has gone past them."""
    wanted = {reject.line for reject in split.rejects if not reject.raw}
    found = raw_records(split.wire, split.data, wanted) if wanted else {}
    return tuple(r if r.raw else replace(r, raw=found.get(r.line, b"")) for r in split.rejects)


def _ordered_by_file(changes: pa.Table, position: int) -> pa.Table:
    """Without commit-ts the place in the files is the order: it stands in for the commit-ts until they are written."""
    base = pa.scalar(position << 40, pa.int64())
    ordinal = pc.add(changes.column(LINE), base)
    return changes.set_column(changes.schema.get_field_index(COMMIT_TS), pa.field(COMMIT_TS, pa.int64()), ordinal)


def _together(changes: pa.Table, windows: Sequence[Window], told: Report, seconds: float) -> Window:
    """What is left of the changes of some windows, whose reports add up with what is `told` of all of them."""
    report = merge_reports([*(window.report for window in windows), told], seconds)
    return Window(changes, report, tuple(reject for window in windows for reject in window.rejects))
