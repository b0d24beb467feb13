"""Where a landing keeps what it landed: files of rows and of events, added in one guarded commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from cdc_assets.landing.rows import Group

__all__ = ["Added", "Files", "Store", "Stored"]


@dataclass(frozen=True, slots=True)
class Stored:
    """The files of a landing table as it stands: `events` in the order in which they were added.

    `identity` is the table's own id, "" where there is no table. `digest` is that of all next offsets, "" before the
    first landing. `landed_ms` is when the newest landing was committed.
    """

    identity: str = ""
    events: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    digest: str = ""
    landed_ms: int = 0


@dataclass(frozen=True, slots=True)
class Added:
    """Files that are written and in no snapshot yet: names with their bytes."""

    rows: tuple[tuple[str, int], ...] = ()
    events: tuple[tuple[str, int], ...] = ()


class Files(Protocol):
    """Writes files of rows of one feed's landing."""

    def write_rows(self, groups: Iterable[Group]) -> tuple[str, int]:
        """Write rows as one file, a row group each as it comes; return its name and bytes.

        Raises what `groups` raises, and leaves no file then.
        """

    def discard(self, added: Added) -> None:
        """Remove files that will not be committed."""


class Store(Files, Protocol):
    """A place for one feed's landing."""

    def stored(self) -> Stored:
        """Return what is there now."""

    def read_events(self, files: Sequence[str]) -> pa.Table:
        """Return the events of files, in the order of the files."""

    @property
    def fetch(self) -> Callable[[str, int], pa.Table]:
        """Reads a row group of a file, on executors too; raises InputError when the file is gone."""

    def elsewhere(self) -> Files:
        """Return the part of it that writes rows wherever a task runs: picklable."""

    def write_events(self, events: pa.Table) -> tuple[str, int]:
        """Write events as one file; return its name and bytes."""

    def commit(self, added: Added, before: str, digest: str, changed: str) -> None:
        """Add files in one commit that carries `digest` and the text of what `changed`.

        Raises TableMoved, with nothing done, where the digest of all next offsets is not `before`.
        """

    def replace(self, added: Added, old: Sequence[str], digest: str) -> None:
        """Put files in place of others in one commit, and say the same of the next offsets as before.

        Raises TableMoved, with nothing done, where the digest of all next offsets is another one, or an old file is not
        there any more.
        """

    def sweep(self, before_ms: int) -> int:
        """Expire snapshots older than `before_ms`, and remove older files that none refers to; return how many."""
