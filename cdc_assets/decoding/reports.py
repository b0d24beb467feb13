"""What reading told: of a file, of several added up, and in a sentence."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow.compute as pc

from cdc_assets.decoding.read import Split
from cdc_assets.errors import MalformedData
from cdc_assets.formats import COMMIT_TS, LINE
from cdc_assets.model.reports import AlikeKeys, FileStats, Reject, Report
from cdc_assets.model.steps import ApplyRows
from cdc_assets.model.tso import Tso

__all__ = ["MAX_REJECTS", "file_stats", "merge_reports", "rejected", "sentence"]

MAX_REJECTS = 20
"""Rejects that a report carries in full; all are counted."""


def file_stats(split: Split) -> FileStats:
    """Return what a file told, under the size that was read: one that was seen half will not be taken for known."""
    decoded = split.decoded
    bounds = pc.min_max(decoded.changes.column(COMMIT_TS)).as_py()
    seen = [r.commit_ts for r in (*decoded.rejects, decoded.tail) if r is not None and r.commit_ts is not None]
    lows = [t for t in (bounds["min"], *seen) if t is not None]
    highs = [t for t in (bounds["max"], *seen) if t is not None]
    lines = decoded.changes.column(LINE)
    rows = (pc.count_distinct(lines).as_py() if len(lines) else 0) + len(decoded.rejects)
    low, high = min(lows) if lows else None, max(highs) if highs else None
    return FileStats(split.file.path, len(split.data), split.file.etag, rows, low, high, decoded.notes)


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


def sentence(reject: Reject) -> str:
    """Say where a record does not fit and why, unless the reason already does."""
    if reject.reason.startswith(reject.path):
        return reject.reason
    place = f"{reject.path} line {reject.line}" if reject.line else reject.path
    column = f', column "{reject.column}"' if reject.column else ""
    return f"{place}{column}: {reject.reason}"


def rejected(step: ApplyRows, report: Report) -> MalformedData:
    """Return the error of a window that was refused: how many records, and the first of them in full."""
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
