"""Entries of the ledger: files that were read, DDL that was carried out, states of tables."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_assets.model.progress import TableStanding
from cdc_assets.model.tso import Tso


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One data file as of its last reading: its contents, its table, the run and the snapshot, and the time.

    `rows` is UNREAD for a file that was listed, or named by an index, and gone before it was read, and NOTED for one
    that was not read: an index named it and it may still be written, or it has rows from before its window. `read_at`
    is seconds since 1970.
    """

    path: str
    life: str
    size: int
    etag: str
    rows: int
    min_commit_ts: Tso | None
    max_commit_ts: Tso | None
    run: str
    snapshot: int | None
    read_at: float


UNREAD = -1
"""Stands for a row count: the contents of the file are unknown."""
NOTED = -2
"""Stands for a row count: whether rows of the file are missing is looked at once it is there."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One DDL as it was carried out for one table."""

    life: str
    tso: Tso
    name: str
    action: str
    query: str
    statements: tuple[str, ...]
    snapshot_before: int | None
    snapshot_after: int | None
    seconds: float
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState(TableStanding):
    """The standing of a table after the last run that looked at it. `life` is the text of its `Life`.

    `checkpoint` is the changefeed's at that time, 0 where it is not known, and `run` the run's id. `complete_by` is
    what made the table complete (the value of a `Whole`), "" for an incomplete one. `points` are the ends of the newest
    runs that brought it forward (seconds since 1970), with `through` of then. `by_step` says that one of its steps
    stopped it, such as rows that do not fit, which no plan foresees.
    """

    life: str
    checkpoint: Tso
    run: str = ""
    complete_by: str = ""
    points: tuple[tuple[float, Tso], ...] = ()
    by_step: bool = False
