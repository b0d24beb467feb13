"""The files of a landing: rows expire, small files are put together, what nothing refers to is removed.

    landing_due        what is due, without doing it
    maintain_landing   do what is due, and return what that was

`landing.retention` says which rows stay. Events are kept for ever. A split keeps its offsets through all of this: what
was written down about it stays true, only the file it lies in is another one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from cdc_assets.errors import TableMoved
from cdc_assets.lake.row_groups import is_packed
from cdc_assets.landing.files import NewFiles, RowGroup, TableFiles, digest_of, event_rows, splits_of
from cdc_assets.landing.landing import Landing
from cdc_assets.landing.retention import Needs, Retention, reason_to_keep
from cdc_assets.model.landed import Landed, LandedSplit
from cdc_assets.model.wording import counted

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class LandingLimits:
    """Limits at which files of a landing are rewritten, and at which they are removed.

    Rows that the `retention` does not keep expire, and files that it wants packed are packed. Files below a quarter of
    `file_bytes` are put together once they are `small_files`, and so are files of events. What nothing refers to is
    removed after `removed_days`: no run may take longer.
    """

    retention: Retention = field(default_factory=Retention)
    small_files: int = 12
    file_bytes: int = 64 << 20
    removed_days: float = 3.0


_DEFAULT = LandingLimits()


@dataclass(frozen=True, slots=True)
class LandingUpkeep:
    """Result of maintenance: files before and after, rows that expired, files that nothing referred to."""

    row_files_before: int = 0
    row_files: int = 0
    event_files_before: int = 0
    event_files: int = 0
    rows_expired: int = 0
    bytes_expired: int = 0
    files_removed: int = 0

    def figures(self) -> dict[str, int]:
        """Return the figures by name, for plots and programs."""
        return {f"landing_{name}": value for name, value in dataclasses.asdict(self).items()}

    def __str__(self) -> str:
        rows, events = (
            f"{before:,} → {after:,}"
            for before, after in (
                (self.row_files_before, self.row_files),
                (self.event_files_before, self.event_files),
            )
        )
        expired = f"{counted(self.rows_expired, 'row')} expired ({self.bytes_expired:,} bytes)"
        removed = counted(self.files_removed, "orphan file")
        return f"landing: files of rows {rows}, of events {events}; {expired}; {removed} removed"


@dataclass(frozen=True, slots=True)
class LandingDue:
    """Due maintenance: rows that expire, and the number of files of rows and of events to rewrite."""

    rows_expire: int = 0
    row_files: int = 0
    event_files: int = 0

    def __bool__(self) -> bool:
        return bool(self.row_files or self.event_files)

    def __str__(self) -> str:
        expire = f"; {counted(self.rows_expire, 'row')} to expire" if self.rows_expire else ""
        return f"landing: files to write anew: {self.row_files:,} of rows, {self.event_files:,} of events{expire}"


def landing_due(landing: Landing, needs: Needs, now_ms: int, limits: LandingLimits = _DEFAULT) -> LandingDue:
    """Return the files that `maintain_landing` would write anew. Unreferenced files are removed at that occasion."""
    due = _due(landing, needs, now_ms, limits)
    if due is None:
        return LandingDue()
    events = len(due.stored.events)
    files = sum(len(batch) for batch in due.batches)
    return LandingDue(due.rows_expired, files, events if events >= limits.small_files else 0)


def maintain_landing(landing: Landing, needs: Needs, now_ms: int, limits: LandingLimits = _DEFAULT) -> LandingUpkeep:
    """Do what is due for a landing's files. A landing that comes between makes it begin again at the next run.

    Raises TableMoved where others land all the time.
    """
    due = _due(landing, needs, now_ms, limits)
    if due is None:
        return LandingUpkeep()
    landed = due.landed
    for files in due.batches:
        # The rows of these files that did not expire go into one, by table; the others are forgotten.
        old_files = frozenset(files)
        splits = sorted(
            (split for split in landed.splits if split.file in old_files and split not in due.expired),
            key=lambda kept_split: (kept_split.table, kept_split.partition, kept_split.first),
        )
        groups = [RowGroup(landing.store.fetch(split.file, split.group), split.size) for split in splits]
        gone, emptied = dict(landed.expired), dict(landed.emptied)
        for split in landed.splits:
            if split.file in old_files and split in due.expired:
                place = split.partition, split.table
                gone[split.table] = max(split.high, gone.get(split.table, 0))
                emptied[place] = min((split.low, split.first), emptied.get(place, (split.low, split.first)))
        rewritten = replace(landed, expired=gone, emptied=emptied)
        landed = _commit(landing, rewritten, groups, files, before=landed, packed=limits.retention.packed)
    if len(landing.store.stored().events) >= limits.small_files:
        _commit(landing, landed, (), landing.store.stored().events)
    removed = landing.store.sweep(int(now_ms - limits.removed_days * _DAY_MS))
    after = landing.store.stored()
    return LandingUpkeep(
        len(due.stored.rows),
        len(after.rows),
        len(due.stored.events),
        len(after.events),
        due.rows_expired,
        sum(split.size for split in due.expired),
        removed,
    )


@dataclass(frozen=True, slots=True)
class _Due:
    """A landing as it is, the splits of it that expire, and the files that are written anew together."""

    stored: TableFiles
    landed: Landed
    expired: frozenset[LandedSplit]
    batches: Sequence[Sequence[str]]

    @property
    def rows_expired(self) -> int:
        return sum(split.rows for split in self.expired)


def _due(landing: Landing, needs: Needs, now_ms: int, limits: LandingLimits) -> _Due | None:
    """Return the chores that are due for a landing's files, None where nothing was ever landed."""
    stored = landing.store.stored()
    if not stored.identity:
        return None
    landed = landing.landed()
    expired = frozenset(
        split for split in landed.splits if not reason_to_keep(split, needs(split.table), limits.retention, now_ms)
    )
    return _Due(stored, landed, expired, tuple(_batches(landed, expired, limits)))


def _batches(landed: Landed, expired: frozenset[LandedSplit], limits: LandingLimits) -> Iterable[Sequence[str]]:
    """Yield the files that are written anew together: those of which rows expire, and small ones once they are many.

    Of a retention that packs, files that are not packed yet are among them.
    """
    sizes: dict[str, int] = {}
    for split in landed.splits:
        sizes[split.file] = sizes.get(split.file, 0) + (0 if split in expired else split.size)
    touched = {split.file for split in expired}
    small = [file for file, size in sizes.items() if size < limits.file_bytes // 4]
    chosen = touched | set(small if len(small) >= limits.small_files else ())
    if limits.retention.packed:
        chosen |= {file for file in sizes if not is_packed(file)}
    batch, size = list[str](), 0
    for file in (file for file in sizes if file in chosen):
        if batch and size + sizes[file] > limits.file_bytes:
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += sizes[file]
    if batch:
        yield batch


def _commit(
    landing: Landing,
    landed: Landed,
    groups: Sequence[RowGroup],
    old: Sequence[str],
    *,
    before: Landed | None = None,
    packed: bool = False,
) -> Landed:
    """Put row groups in place of files in one commit, or all events where `before`, what was landed, is not given.

    Raises TableMoved, with nothing done, where messages were landed meanwhile: what stands is as it was looked at.
    """
    store = landing.store
    written = (store.write_rows(groups, packed=packed),) if groups else ()
    splits = splits_of(groups, written[0][0]) if written else []
    events = (
        event_rows(landed.events, landed, landed.splits) if before is None else event_rows((), landed, splits, before)
    )
    added = NewFiles(written, (store.write_events(events),))
    try:
        store.replace(added, old, digest_of(landed.next) if landed.next else "")
    except TableMoved as error:
        if not error.where.get("unsettled"):
            store.discard(added)
        raise
    return landing.landed()
