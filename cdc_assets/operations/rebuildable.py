"""Why a table cannot be rebuilt from the existing files: one sentence for each reason."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cdc_assets.ledger import FileEntry
from cdc_assets.model.gaps import gap_text
from cdc_assets.model.progress import AppliedState, Life
from cdc_assets.model.splits import Listing
from cdc_assets.model.steps import HoldTable
from cdc_assets.model.tso import Tso, seconds_between
from cdc_assets.model.wording import range_text
from cdc_assets.planning.plan import Plan
from cdc_assets.preflight.files import missing_numbers
from cdc_assets.sources import Source

__all__ = ["EarlierRuns", "missing_files", "refusals"]


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """Results of earlier runs: the ledger's files, the progress of live tables."""

    entries: Collection[FileEntry] = ()
    schema_files: Collection[str] = ()
    applied: Mapping[Life, AppliedState] = field(default_factory=dict)


def refusals(
    source: Source, listing: Listing, planned: Plan, lives: Iterable[Life], seen: EarlierRuns, retention_days: int = 0
) -> tuple[str, ...]:
    """Return one sentence for each reason why these tables cannot be rebuilt from the bucket.

    `planned` starts from an empty lake. The feed removes its files after `retention_days` (0: never).
    """
    wanted = tuple(lives)
    found = [sentence for life in wanted for sentence in _refusals_of(life, planned, seen, retention_days)]
    return (*found, *missing_files(source, listing, planned, wanted, seen.entries, seen.schema_files))


def _refusals_of(life: Life, planned: Plan, seen: EarlierRuns, retention_days: int) -> Iterator[str]:
    table, applied = planned.history.lives[life], seen.applied.get(life)
    begun = life.version if table.base is None else table.base.at
    days = seconds_between(begun, planned.checkpoint) // 86_400
    if table.gap is not None:
        yield f"{life} cannot be built from the feed alone. {gap_text(table.gap, life)}"
    elif retention_days and days >= retention_days:
        yield (
            f"{life} is {days:.0f} days old, and the changefeed removes its files after {retention_days} "
            "(file-expiration-days); expected all files since its CREATE or its dump."
        )
    if applied is not None and (life in planned.behind or applied.progress.tso > planned.checkpoint):
        yield (
            f"{life} is applied through {applied.progress.tso}, above the checkpoint {planned.checkpoint}: the bucket "
            "is an older copy. Rebuild from the one that the table was applied from."
        )
    if applied is not None and applied.ddl > begun and applied.ddl not in {event.at for event in table.events}:
        yield f"{life} has the schema of version {applied.ddl}, of which no schema file is left. Restore it."
    yield from (step.reason for step in planned.of(life) if isinstance(step, HoldTable))


def missing_files(
    source: Source,
    listing: Listing,
    planned: Plan,
    lives: Collection[Life],
    entries: Collection[FileEntry],
    schema_files: Iterable[str],
) -> Iterator[str]:
    """Yield one sentence for each gap in the numbers of these tables' files, and for each missing file."""
    roots = _roots(planned, lives)
    bases = {str(life): planned.history.lives[life].base for life in lives}
    wanted = {life: -1 if base is None else base.at for life, base in bases.items()}  # rows of its dump are not needed
    yield from _lost_numbers(listing, roots, _numbers_before(source, entries, wanted))
    there = {file.path for file in listing.data_files} | set(listing.problems)
    for entry in entries:
        if entry.life in wanted and entry.rows and entry.path not in there and not _is_before(entry, wanted):
            yield f"{entry.path} existed and is missing now. Restore it."
    there = {file.path for file in listing.schema_files} | set(listing.problems)
    for path in schema_files:
        named = source.place(path)
        if path not in there and named is not None and named.root in roots and named.version > min(wanted.values()):
            yield f"the schema file {path} existed and is missing now. Restore it."


def _is_before(entry: FileEntry, dumps: Mapping[str, Tso]) -> bool:
    """Return whether all rows of a recorded file are older than the dump that its table is built from."""
    return entry.max_commit_ts is not None and entry.max_commit_ts <= dumps[entry.life]


def _numbers_before(
    source: Source, entries: Iterable[FileEntry], dumps: Mapping[str, Tso]
) -> set[tuple[str, str, int]]:
    """Directory, dispatcher and number of the recorded files that are older than the dump of their table."""
    older = [entry.path for entry in entries if entry.life in dumps and _is_before(entry, dumps)]
    places = (source.place(path) for path in older)
    return {(place.directory, place.dispatcher, place.number) for place in places if place is not None}


def _roots(planned: Plan, lives: Iterable[Life]) -> set[str]:
    """The roots of every name that these tables had."""
    names = {name for life in lives for name, _, _ in planned.history.lives[life].names}
    folded = {name.folded for name in names}
    decoding = planned.history.decoding.items()
    roots = {root for (root, _), tables in decoding if any(name.folded in folded for name, _ in tables)}
    return roots | {f"{name.schema}/{name.table}" for name in names}


def _lost_numbers(listing: Listing, roots: set[str], older: set[tuple[str, str, int]]) -> Iterator[str]:
    """Numbers of a directory begin at 1, unless files were removed."""
    first: dict[tuple[str, str], int] = {}
    for file in listing.data_files:
        if file.root in roots:
            place = file.directory, file.dispatcher
            first[place] = min(first.get(place, file.number), file.number)
    gaps = missing_numbers(listing)
    for (directory, dispatcher), number in sorted(first.items()):
        ranges = [*([range(1, number)] if number > 1 else []), *gaps.get((directory, dispatcher), ())]
        lost = [one for one in ranges if any((directory, dispatcher, each) not in older for each in one)]
        if lost:
            numbers = ", ".join(map(range_text, lost[:5]))
            of = f" of dispatcher {dispatcher}" if dispatcher else ""
            yield f"{directory}: the files with the numbers {numbers}{of} are missing. Restore them."
