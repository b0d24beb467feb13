"""An Iceberg table's metadata file: the few members that tell how far a table is.

PyIceberg's own model reads and validates everything, which takes ten times as long. That counts with thousands of
tables, so it is used only where schemas, partition specs or manifests are needed.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["GZIP", "MetadataFile", "Snapshot", "parse_metadata_file"]

GZIP = b"\x1f\x8b"
_NO_SNAPSHOT = -1
"""What some writers give as the current snapshot of a table that has none."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot: when it was made (ms since 1970), and its summary with the properties that a commit gave it."""

    snapshot_id: int
    parent_id: int | None
    made_ms: int
    summary: Mapping[str, str]

    def number(self, name: str) -> int | None:
        """Return a number of the summary, None where it says nothing."""
        told = self.summary.get(name)
        return None if told is None else int(told)

    @property
    def rows(self) -> int | None:
        """The table's rows, None where the summary does not tell."""
        total = self.number("total-records")
        if total is None or self.number("total-equality-deletes"):
            return None
        return total - (self.number("total-position-deletes") or 0)

    @property
    def empty(self) -> bool:
        """Tell whether no data file has a row: what is written then meets none, whatever deletes are left behind.

        Rows that deletion vectors hide count here, and so does a summary that does not tell.
        """
        return self.number("total-records") == 0


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """What a table is now. `snapshot_id` is main's, None without any; `log` is what main was, oldest first.

    `refs` are the snapshots of branches and tags by name.
    """

    location: str
    properties: Mapping[str, str]
    snapshot_id: int | None
    snapshots: Mapping[int, Snapshot]
    log: tuple[int, ...]
    refs: Mapping[str, int]

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot of main."""
        return None if self.snapshot_id is None else self.snapshots.get(self.snapshot_id)

    def lineage(self, across_rewrites: bool = False) -> Iterator[Snapshot]:
        """Yield main's snapshot and its ancestors, newest first; before a rewrite, which has no parent, by the log."""
        seen: set[int] = set()
        for start in (self.snapshot_id, *(reversed(self.log) if across_rewrites else ())):
            snapshot = None if start is None else self.snapshots.get(start)
            while snapshot is not None and snapshot.snapshot_id not in seen:
                seen.add(snapshot.snapshot_id)
                yield snapshot
                snapshot = None if snapshot.parent_id is None else self.snapshots.get(snapshot.parent_id)


def parse_metadata_file(data: bytes) -> MetadataFile:
    """Read a metadata file of any format version, compressed or not.

    Raises ValueError, TypeError or KeyError for what is none.
    """
    told = json.loads(gzip.decompress(data) if data.startswith(GZIP) else data)
    if not isinstance(told, dict):
        raise ValueError("it is no JSON object")
    current = told.get("current-snapshot-id")
    snapshots = (_snapshot(one) for one in told.get("snapshots") or ())
    return MetadataFile(
        told["location"],
        told.get("properties") or {},
        None if current == _NO_SNAPSHOT else current,
        {one.snapshot_id: one for one in snapshots},
        tuple(one["snapshot-id"] for one in told.get("snapshot-log") or ()),
        {name: one["snapshot-id"] for name, one in (told.get("refs") or {}).items()},
    )


def _snapshot(told: Mapping[str, Any]) -> Snapshot:
    summary = told.get("summary") or {}
    return Snapshot(told["snapshot-id"], told.get("parent-snapshot-id"), told["timestamp-ms"], summary)
