"""Records that were set aside because they do not fit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field

from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

OPEN, REPLAYED, PURGED = "open", "replayed", "purged"
"""States of a record: it waits; its table has it; its table was purged after its DROP."""


@dataclass(frozen=True, slots=True)
class RecordContent:
    """Stored content of a quarantined record: its place, its bytes, and the keys of its rows as decoded.

    Bytes and keys are encrypted where a table is masked; `keys` are b"" where they could not be decoded.
    """

    file: str
    line: int
    version: Tso
    raw: bytes = field(repr=False)
    keys: bytes = field(default=b"", repr=False)

    @property
    def place(self) -> str:
        """The file and line, as reports name them."""
        return f"{self.file} line {self.line}"


HasKeys = Callable[[Life, RecordContent], bool]
"""Says whether a record of a table has keys that are looked for, or may have them."""


@dataclass(frozen=True, slots=True)
class QuarantinedRow:
    """A record that was set aside. `line` counts records of the file; `lo` is the TSO at which its window began.

    `table` is the name of the record's directory. `raw` is the record's bytes without terminator, b"" if they were
    not requested, and so are `keys`, those of its rows, which are b"" also where they could not be decoded.
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
    keys: bytes = field(default=b"", repr=False)

    @property
    def place(self) -> tuple[str, int]:
        """The file and line."""
        return self.file, self.line

    @property
    def earliest(self) -> Tso:
        """The position of the record, or the first one that it may have."""
        return self.lo + 1 if self.commit_ts is None else self.commit_ts

    @property
    def content(self) -> RecordContent:
        """Stored content of the record."""
        return RecordContent(self.file, self.line, self.schema_version, self.raw, self.keys)

    def is_within(self, lo: Tso, hi: Tso) -> bool:
        """Return whether it is of a window (lo, hi]; one of unknown commit-ts is of that in which it was set aside."""
        return self.lo >= lo if self.commit_ts is None else lo < self.commit_ts <= hi
