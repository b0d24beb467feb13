"""Maintenance that is due for a table's files. Pure: no I/O, no clock, no Spark.

    compact     many small files, or many deleted rows that every reader has to skip
    manifests   many small ones, which every plan of a read opens
    expire      snapshots that are no longer needed, with the files that only they refer to
    orphans     files that no snapshot refers to, left by runs that were killed

Snapshots expire from the old end: the rest of a table's lineage has no holes, from the newest to the oldest that is
needed, so progress and exchanges find theirs. Behind that only what a branch or tag refers to is left, such as cuts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_assets.model.progress import Life
from cdc_assets.model.wording import counted

if TYPE_CHECKING:
    from cdc_assets.settings.sections import MaintenanceSettings

_DAY_MS = 86_400_000
_MANIFEST_BYTES = 4 << 20
"""Manifests of this size are worth opening one by one; Iceberg's target is twice this size."""

_READING_MS = 600_000
"""Milliseconds for which a snapshot stays for its readers, however many snapshots there are."""

_FEW_ROWS = 1000
"""Deleted rows that cost a reader nothing, whatever their share of the table."""

_OVERDUE, _MANY_ROWS = 0.15, 100_000
"""The share of hidden rows, and how many, from which on a table is compacted whatever else waits."""


@dataclass(frozen=True, slots=True)
class SnapshotFact:
    """A snapshot: its time (ms since 1970), and whether it carries a label or is referenced by a branch or tag."""

    id: int
    made_ms: int
    labelled: bool = False
    referenced: bool = False


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A lake table's files and snapshots. `life` is None for tables of the lake itself.

    `lineage` is main's snapshot and those before it, newest first, across rewrites; `strays` are all others. `needed`
    are snapshots that something open refers to. `small_files` counts data files below three quarters of the target.
    """

    table: str
    life: Life | None
    rows: int
    data_files: int
    data_bytes: int
    small_files: int
    deleted_rows: int
    delete_files: int
    manifests: int
    manifest_bytes: int
    lineage: tuple[SnapshotFact, ...] = ()
    strays: tuple[SnapshotFact, ...] = ()
    needed: frozenset[int] = frozenset()
    swept_ms: int = 0

    @property
    def snapshots(self) -> int:
        """Number of snapshots."""
        return len(self.lineage) + len(self.strays)


@dataclass(frozen=True, slots=True)
class Chores:
    """Due maintenance of one table; `expire` names snapshots."""

    compact: bool = False
    manifests: bool = False
    orphans: bool = False
    expire: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return self.compact or self.manifests or self.orphans or bool(self.expire)

    def __str__(self) -> str:
        due = [name for name in ("compact", "manifests", "orphans") if getattr(self, name)]
        due += [f"expire {counted(len(self.expire), 'snapshot')}"] if self.expire else []
        return ", ".join(due) or "nothing"


def chores(facts: TableFacts, settings: MaintenanceSettings, now_ms: int) -> Chores:
    """Return the chores that are due for a table at a moment (ms since 1970)."""
    snapshot_ids = expirable(facts, settings, now_ms)
    oldest = min((snapshot.made_ms for snapshot in (*facts.lineage, *facts.strays)), default=now_ms)
    return Chores(
        compact=facts.small_files >= settings.small_files
        or has_many_hidden(facts.rows, facts.deleted_rows, settings.deleted_share),
        manifests=facts.manifests >= settings.manifests and facts.manifest_bytes < facts.manifests * _MANIFEST_BYTES,
        orphans=now_ms - (facts.swept_ms or oldest) >= settings.orphan_days * _DAY_MS,
        expire=snapshot_ids if len(snapshot_ids) >= settings.expire_at_least else (),
    )


def has_many_hidden(rows: int, hidden: int, share: float) -> bool:
    """Return whether deletion vectors hide at least that share of the rows in a table's files, and not just a few."""
    return hidden >= max(_FEW_ROWS, share * (rows + hidden))


def is_overdue(rows: int, hidden: int, share: float) -> bool:
    """Return whether so many rows are hidden, more than that share, that readers are not to wait for a quiet hour.

    What windows put together themselves stays below, but for files that are too large for that or have other columns.
    """
    return hidden >= max(_MANY_ROWS, max(_OVERDUE, share) * (rows + hidden))


def expirable(facts: TableFacts, settings: MaintenanceSettings, now_ms: int) -> tuple[int, ...]:
    """Return the snapshots that may expire: the lineage's old end, and strays, both past the retention.

    Kept are the newest labelled one and all after it, all after one that is needed or young, and the newest few. Of
    many only the newest count as young, and those that somebody may be reading. What a branch or tag refers to is kept
    by itself: those before and after it expire.
    """
    young = now_ms - settings.snapshot_days * _DAY_MS
    last = min(settings.snapshots_kept, len(facts.lineage)) - 1
    labelled = False
    for place, snapshot in enumerate(facts.lineage):
        recent = snapshot.made_ms > (young if place < settings.snapshots_most else now_ms - _READING_MS)
        if (snapshot.labelled and not labelled) or snapshot.id in facts.needed or recent:
            last = max(last, place)
        labelled = labelled or snapshot.labelled
    old = (*facts.lineage[max(last, 0) + 1 :], *(stray for stray in facts.strays if stray.made_ms <= young))
    return tuple(snapshot.id for snapshot in old if not snapshot.referenced and snapshot.id not in facts.needed)
