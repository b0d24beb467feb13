"""Files of a feed that were there and are gone: without them tables cannot be built from their beginning.

missing_files   those that numbers or the ledger's entries show
expired_files   those that the changefeed itself removes by now
is_unrecorded   whether nobody knows which were there
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from cdc_assets.model.ledger_entries import FileEntry
from cdc_assets.model.progress import AppliedState, Life, Phase, Progress
from cdc_assets.model.splits import Listing
from cdc_assets.model.table_history import History, TableHistory
from cdc_assets.model.tso import Tso, seconds_between
from cdc_assets.model.wording import range_text
from cdc_assets.preflight.files import missing_numbers
from cdc_assets.sources import Source

_WAYS = "Restore what is missing; for a table that is older than the changefeed a dump taken since will do (initial)."


def missing_files(
    source: Source,
    listing: Listing,
    history: History,
    lives: Collection[Life],
    entries: Collection[FileEntry],
    schema_files: Iterable[str],
) -> Iterator[str]:
    """Yield one sentence for each gap in the numbers of these tables' files, and for each missing file.

    Directories and schema files of tables that had a name before them are none of theirs.
    """
    own_names = {name for life in lives for name, _, _ in history.lives[life].names}
    folded = {name.folded for name in own_names}
    decoding = history.decoding.items()
    roots = {root for (root, _), tables in decoding if any(name.folded in folded for name, _ in tables)}
    roots |= {f"{name.schema}/{name.table}" for name in own_names}
    positions, born = dict[str, Tso](), list[Tso]()
    for life in lives:
        base = history.lives[life].base
        begin = -1 if base is None else base.at  # rows of its dump are not needed
        positions[str(life.source)] = min(begin, positions.get(str(life.source), begin))
        born.append(life.version if base is None else -1)  # what comes after a dump may be in any older directory
    first = min(born, default=-1)
    older = [
        entry.path for entry in entries if entry.life in positions and _is_before(entry, positions)
    ]  # than its dump
    places = (place for path in older if (place := source.place(path)) is not None)
    past_numbers = {(place.directory, place.dispatcher, place.number) for place in places}
    yield from _lost_numbers(listing, roots, first, past_numbers)
    listed_paths = {file.path for file in listing.data_files} | set(listing.problems)
    gone = [entry for entry in entries if entry.rows and entry.path not in listed_paths]
    expired = {name.folded: at for name, at in listing.gone.items()}
    for life in dict.fromkeys(life.source for life in lives):
        tables = (table for table in history.lives.values() if expired and table.life.source == life)
        names = (name for table in tables for name, _, _ in table.names)
        through = max([positions[str(life)], *(expired.get(name.folded, -1) for name in names)])  # told as expired
        for entry in entries_of(source, history, life, gone):
            if entry.max_commit_ts is None or entry.max_commit_ts > through:
                yield f"{entry.path} existed and is missing now. {_WAYS}"
    listed_paths = {file.path for file in listing.schema_files} | set(listing.problems)
    for path in schema_files:
        named = source.place(path)
        needed = named is not None and named.root in roots and named.version > max(first - 1, min(positions.values()))
        if path not in listed_paths and needed:
            yield f"the schema file {path} existed and is missing now. {_WAYS}"


def expired_files(table: TableHistory, checkpoint: Tso, retention_days: int) -> str:
    """Return the sentence on a table whose first files the changefeed has removed, after so many days (0: never)."""
    begun = table.life.version if table.base is None else table.base.at
    days = seconds_between(begun, checkpoint) // 86_400
    if not retention_days or days < retention_days:
        return ""
    return (
        f"{table.life} is {days:.0f} days old, and the changefeed removes its files after {retention_days} "
        "(file-expiration-days); expected all files since its CREATE or its dump."
    )


def is_unrecorded(table: TableHistory, state: AppliedState, entries: Iterable[FileEntry]) -> bool:
    """Return whether a table of the source stands with rows of the feed, and no entry says of which files.

    The ledger is a new one then, and whether other files were there before nobody knows. `entries` are the table's.
    """
    begun = table.life.version if table.base is None else table.base.at
    has_rows = state.progress > Progress(begun, Phase.ROWS) and state.progress.phase is Phase.ROWS
    return has_rows and not state.is_unread and not any(entries)


def entries_of(source: Source, history: History, life: Life, entries: Iterable[FileEntry]) -> Iterator[FileEntry]:
    """Yield the recorded files that have rows of a table of the source.

    Those are also files that another table, which had the name before or after it, was read from last.
    """
    table = next((table for own, table in history.lives.items() if own.source == life), None)
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


def _lost_numbers(listing: Listing, roots: set[str], version: Tso, older: set[tuple[str, str, int]]) -> Iterator[str]:
    """Numbers of a directory, of those from a version on, begin at 1, unless files were removed."""
    first: dict[tuple[str, str], int] = {}
    for file in listing.data_files:
        if file.root in roots and file.version >= version:
            place = file.directory, file.dispatcher
            first[place] = min(first.get(place, file.number), file.number)
    gaps = missing_numbers(listing)
    for (directory, dispatcher), number in sorted(first.items()):
        ranges = [*([range(1, number)] if number > 1 else []), *gaps.get((directory, dispatcher), ())]
        lost = [
            number_range
            for number_range in ranges
            if any((directory, dispatcher, each) not in older for each in number_range)
        ]
        if lost:
            numbers = ", ".join(map(range_text, lost[:5]))
            of = f" of dispatcher {dispatcher}" if dispatcher else ""
            yield f"{directory}: the files with the numbers {numbers}{of} are missing. {_WAYS}"
