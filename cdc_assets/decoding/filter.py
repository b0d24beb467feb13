"""The rows of a window: those with lo < commit-ts <= hi, of a name while the table had it.

They are filtered before they are validated, so that a row is validated by the windows that take it only. A record's
images share their commit-ts, so no record is cut in two. Without commit-ts every row of a file is due.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding.read import Split
from cdc_assets.formats import COMMIT_TS, LINE
from cdc_assets.model.reports import Reject
from cdc_assets.model.steps import ApplyRows
from cdc_assets.model.tso import Tso

__all__ = ["between", "due", "may_be_due"]

Interval = tuple[Tso, Tso]
"""[since, until) in which the table had a name."""


def due(step: ApplyRows, split: Split) -> Split:
    """Leave the rows of the window, and say which of its records decoding found broken and which row is a stray."""
    intervals = _intervals(step, split)
    changes = split.changes if step.positions is not None else _in_window(split.changes, step, intervals)
    rejects = tuple(reject for reject in split.decoded.rejects if _is_due(reject, step, intervals))
    stray = _stray(split, step)
    return replace(split, changes=changes, rejects=rejects, reject_count=len(rejects), stray=stray)


def may_be_due(tail: Reject, split: Split, step: ApplyRows) -> bool:
    """Tell whether a window may have lost something with a tail, whose commit-ts is the least that it can be."""
    ts = tail.commit_ts
    if ts is None or step.positions is not None:
        return True
    return ts <= step.hi and any(ts < until for _, until in _intervals(step, split))


def between(changes: pa.Table, lo: Tso, hi: Tso) -> pa.Table:
    """Return the rows with lo < commit-ts <= hi."""
    return changes.filter(_inside(changes, lo, hi))


def _inside(changes: pa.Table, lo: Tso, hi: Tso) -> pa.ChunkedArray:
    ts = changes.column(COMMIT_TS)
    return pc.and_(pc.greater(ts, pa.scalar(lo, pa.int64())), pc.less_equal(ts, pa.scalar(hi, pa.int64())))


def _intervals(step: ApplyRows, split: Split) -> list[Interval]:
    return [(since, until) for name, since, until in step.names if name.folded == split.table.folded]


def _in_window(changes: pa.Table, step: ApplyRows, intervals: Iterable[Interval]) -> pa.Table:
    held = None
    for since, until in intervals:
        inside = _inside(changes, max(step.lo, since - 1), min(step.hi, until - 1))
        held = inside if held is None else pc.or_(held, inside)
    return changes.slice(0, 0) if held is None else changes.filter(held)


def _is_due(reject: Reject, step: ApplyRows, intervals: Iterable[Interval]) -> bool:
    """A record of unknown commit-ts is due in every window; one of a name's other holder is not this table's."""
    ts = reject.commit_ts
    if ts is None or step.positions is not None:
        return True
    return step.lo < ts <= step.hi and any(since <= ts < until for since, until in intervals)


def _stray(split: Split, step: ApplyRows) -> Reject | None:
    """The first row that cannot have been written with the columns of its directory."""
    file, changes = split.file, split.changes
    for since, until in step.unexplained.get((file.root, file.version), ()):
        if since > step.hi or not changes.num_rows:
            continue
        rows = between(changes, since - 1, min(until - 1, step.hi))
        if rows.num_rows:
            at, line = rows.column(COMMIT_TS)[0].as_py(), rows.column(LINE)[0].as_py()
            reason = (
                f"the row of commit-ts {at} is filed under version {file.version}, whose columns were not in force "
                "then: a DDL is not in the changefeed, because an event filter hides it or its schema file was "
                "removed. Restore that schema file, or rebuild the table."
            )
            return Reject(file.path, line, reason, commit_ts=at)
    return None
