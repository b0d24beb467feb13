"""Records that were set aside because they do not fit."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

OPEN, REPLAYED, PURGED = "open", "replayed", "purged"
"""States of a record: it waits; its table has it; its table was purged after its DROP."""


@dataclass(frozen=True, slots=True)
class QuarantinedRow:
    """A record that was set aside. `line` counts records of the file; `lo` is the TSO at which its window began.

    `table` is the name of the record's directory. `raw` is the record's bytes without terminator, b"" if they were
    not requested.
    """

    life: Life
    table: TableId
    file: str
    line: int
    column: str
    reason: str
    schema_version: Tso
    commit_ts: Tso | None
    lo: Tso
    run: str
    quarantined_at: dt.datetime
    state: str = OPEN
    raw: bytes = b""

    @property
    def place(self) -> tuple[str, int]:
        """The file and line."""
        return self.file, self.line

    def is_within(self, lo: Tso, hi: Tso) -> bool:
        """Return whether it is of a window (lo, hi]; one of unknown commit-ts is of that in which it was set aside."""
        return self.lo >= lo if self.commit_ts is None else lo < self.commit_ts <= hi
