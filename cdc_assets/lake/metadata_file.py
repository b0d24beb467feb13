"""An Iceberg table's metadata file: the few members that say how far a table is applied.

PyIceberg's own model reads and validates everything, which takes ten times as long. That matters with thousands of
tables, so it is used only where schemas, partition specs or manifests are needed.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cdc_assets.model.layout import DELETED_AT, Transform, transforms_of

GZIP = b"\x1f\x8b"
_NO_SNAPSHOT = -1
"""The current snapshot that some writers give to a table without any."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot: its time (ms since 1970), and its summary with the properties of its commit.

    `marks_deletes` says that its columns are those of a table that marks deleted rows.
    """

    snapshot_id: int
    parent_id: int | None
    made_ms: int
    summary: Mapping[str, str]
    marks_deletes: bool = False

    def number(self, name: str) -> int | None:
        """Return a number of the summary, None if it lacks it."""
        value = self.summary.get(name)
        return None if value is None else int(value)

    @property
    def rows(self) -> int | None:
        """The table's rows, None if the summary lacks them."""
        total = self.number("total-records")
        if total is None or self.number("total-equality-deletes"):
            return None
        return total - (self.number("total-position-deletes") or 0)

    @property
    def empty(self) -> bool:
        """Return whether no data file has a row, so that new rows meet none, whatever delete files remain.

        Rows that deletion vectors hide count as rows, and a summary without counts counts as not empty.
        """
        return self.number("total-records") == 0


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """A table's current state. `snapshot_id` is main's, None without any; `log` are main's past ones, oldest first.

    `refs` are the snapshots of branches and tags by name. `partition` and `sort` are the transforms by which files are
    partitioned, and rows sorted; none where one of them is not known.
    """

    location: str
    properties: Mapping[str, str]
    snapshot_id: int | None
    snapshots: Mapping[int, Snapshot]
    log: tuple[int, ...]
    refs: Mapping[str, int]
    partition: tuple[Transform, ...] = ()
    sort: tuple[Transform, ...] = ()

    @property
    def tags(self) -> dict[str, int]:
        """The snapshots of its tags, and of branches beside main, by name."""
        return {name: snapshot_id for name, snapshot_id in self.refs.items() if name != "main"}

    @property
    def snapshot(self) -> Snapshot | None:
        """The snapshot of main."""
        return None if self.snapshot_id is None else self.snapshots.get(self.snapshot_id)

    def lineage(self, across_rewrites: bool = False) -> Iterator[Snapshot]:
        """Yield main's snapshot and its ancestors, newest first; across a rewrite, which has no parent, by the log."""
        return self._before(self.snapshot_id, *(reversed(self.log) if across_rewrites else ()))

    def lineage_of(self, snapshot_id: int) -> Iterator[Snapshot]:
        """Yield a snapshot and its ancestors, newest first, as far as they did not expire."""
        return self._before(snapshot_id)

    def _before(self, *starts: int | None) -> Iterator[Snapshot]:
        seen: set[int] = set()
        for start in starts:
            snapshot = None if start is None else self.snapshots.get(start)
            while snapshot is not None and snapshot.snapshot_id not in seen:
                seen.add(snapshot.snapshot_id)
                yield snapshot
                snapshot = None if snapshot.parent_id is None else self.snapshots.get(snapshot.parent_id)


def parse_metadata_file(data: bytes) -> MetadataFile:
    """Read a metadata file of any format version, compressed or not.

    Raises ValueError, TypeError or KeyError for anything else.
    """
    document = json.loads(gzip.decompress(data) if data.startswith(GZIP) else data)
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    current = document.get("current-snapshot-id")
    marking = {
        schema["schema-id"]
        for schema in document.get("schemas") or ()
        if any(column["name"] == DELETED_AT for column in schema["fields"])
    }
    snapshots = (_snapshot(snapshot, marking) for snapshot in document.get("snapshots") or ())
    return MetadataFile(
        document["location"],
        document.get("properties") or {},
        None if current == _NO_SNAPSHOT else current,
        {snapshot.snapshot_id: snapshot for snapshot in snapshots},
        tuple(entry["snapshot-id"] for entry in document.get("snapshot-log") or ()),
        {name: ref["snapshot-id"] for name, ref in (document.get("refs") or {}).items()},
        _transforms(document, "partition-specs", "spec-id", "default-spec-id"),
        _transforms(document, "sort-orders", "order-id", "default-sort-order-id"),
    )


def _transforms(document: Mapping[str, Any], kind: str, number: str, present: str) -> tuple[Transform, ...]:
    """Return the transforms of the present partition spec, or sort order."""
    chosen: Mapping[str, Any] = next(
        (entry for entry in document.get(kind) or () if entry.get(number) == document.get(present)), {}
    )
    if not chosen.get("fields"):
        return ()
    schema = next(entry for entry in document["schemas"] if entry["schema-id"] == document["current-schema-id"])
    names = {column["id"]: column["name"] for column in schema["fields"]}
    fields = [(field["transform"], field["source-id"]) for field in chosen["fields"]]
    labels = [field["name"] for field in chosen["fields"] if "name" in field]  # fields of a sort order have none
    return transforms_of(fields, names, labels) or ()


def _snapshot(entry: Mapping[str, Any], marking: Collection[int]) -> Snapshot:
    """Return a snapshot; `marking` are the ids of schemas of a table that marks deleted rows."""
    summary, marks = entry.get("summary") or {}, entry.get("schema-id") in marking
    return Snapshot(entry["snapshot-id"], entry.get("parent-snapshot-id"), entry["timestamp-ms"], summary, marks)
