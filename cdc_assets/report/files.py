"""Data files as they were read, for a person."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_assets.model.times import iso_time
from cdc_assets.model.tso import Tso, tso_time

if TYPE_CHECKING:
    from cdc_assets.ledger import FileEntry
    from cdc_assets.model.schema import TableId


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
