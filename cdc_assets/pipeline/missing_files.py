"""Files of a feed that were there and are gone: without them tables cannot be built from their beginning."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from cdc_assets.ledger import FileEntry
from cdc_assets.model.progress import Life
from cdc_assets.model.splits import Listing
from cdc_assets.model.table_history import History
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import range_text
from cdc_assets.preflight.files import missing_numbers
from cdc_assets.sources import Source

__all__ = ["entries_of", "missing_files"]


def missing_files(
    source: Source,
    listing: Listing,
    history: History,
    lives: Collection[Life],
    entries: Collection[FileEntry],
    schema_files: Iterable[str],
) -> Iterator[str]:
    """Yield one sentence for each gap in the numbers of these tables' files, and for each missing file."""
    roots = _roots(history, lives)
    wanted = dict[str, Tso]()
    for life in lives:
        base = history.lives[life].base
        begin = -1 if base is None else base.at  # rows of its dump are not needed
        wanted[str(life.source)] = min(begin, wanted.get(str(life.source), begin))
    yield from _lost_numbers(listing, roots, _numbers_before(source, entries, wanted))
    there = {file.path for file in listing.data_files} | set(listing.problems)
    gone = [entry for entry in entries if entry.rows and entry.path not in there]
    for life in dict.fromkeys(life.source for life in lives):
        for entry in entries_of(source, history, life, gone):
            if entry.max_commit_ts is None or entry.max_commit_ts > wanted[str(life)]:
                yield f"{entry.path} existed and is missing now. Restore it."
    there = {file.path for file in listing.schema_files} | set(listing.problems)
    for path in schema_files:
        named = source.place(path)
        if path not in there and named is not None and named.root in roots and named.version > min(wanted.values()):
            yield f"the schema file {path} existed and is missing now. Restore it."


def entries_of(source: Source, history: History, life: Life, entries: Iterable[FileEntry]) -> Iterator[FileEntry]:
    """Yield the recorded files that have rows of a table of the source.

    Those are also files that another table, which had the name before or after it, was read from last.
    """
    table = next((one for own, one in history.lives.items() if own.source == life), None)
    names = () if table is None else table.names
    for entry in entries:
        place = None if entry.max_commit_ts is None or entry.life == str(life) else source.place(entry.path)
        carried = () if place is None else history.decoding.get((place.root, place.version), ())
        folded = {name.folded for name, _ in carried}
        first, last = entry.min_commit_ts or 0, entry.max_commit_ts or 0
        if entry.life == str(life) or any(
            name.folded in folded and since <= last and first < until for name, since, until in names
        ):
            yield entry


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


def _roots(history: History, lives: Iterable[Life]) -> set[str]:
    """The roots of every name that these tables had."""
    names = {name for life in lives for name, _, _ in history.lives[life].names}
    folded = {name.folded for name in names}
    decoding = history.decoding.items()
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
