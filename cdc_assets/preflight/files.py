"""Findings about the files: missing numbers, files that changed or vanished. Pure.

The sentences go into the outcome's warnings and a check, which report rows that may be lost. Only a file that was
listed, or is named by an index, and was gone before it was read stops its table, for as long as the ledger has its
entry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise

from cdc_assets.model.findings import Finding, Severity
from cdc_assets.model.ledger_entries import UNREAD, FileEntry
from cdc_assets.model.progress import AppliedState, Life
from cdc_assets.model.reports import FileStats
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import DataFile, Listing
from cdc_assets.model.table_history import History
from cdc_assets.model.tso import FOREVER, Tso
from cdc_assets.sources import Source

CHANGED_RULE = "files-changed"
"""The rule about files that are read again; the others about files may mean lost rows."""

_OLDER_WAY = "a table that is older than the changefeed can also be rebuilt from a dump taken since (setting initial)"
_UNREAD = (
    "was listed, or named by the index file of its directory, and was gone before it was read, so its contents are "
    f"not known. Restore it ({_OLDER_WAY}); if its rows do not matter, remove its entry with `cdc-assets files "
    "--forget`."
)
_MISSING = (
    "numbers of files are missing between existing files, so rows may be lost; expected numbers without gaps. Restore "
    f"the files ({_OLDER_WAY}); where one does not matter, or was never written: cdc-assets files --forget PATH."
)
_UNWRITTEN = (
    "a file is missing, and the index file of its directory names it; expected that it is written soon. Writers before "
    "v8.5.5 name a file before they write it, and use its number again after a crash. If it stays missing and "
    f"something removed it, restore it ({_OLDER_WAY})."
)
_CHANGED = (
    "a file has changed since it was read; expected that a file never changes. Writers before v8.5.5 can rewrite a "
    "number after a restart: its new rows are applied, and nothing needs to be done. If something else wrote it, rows "
    "through what was applied stay as they were: bring them with cdc-assets rebuild."
)
_UNKNOWN = (
    "the columns of that table are not known, neither from a DDL in the topics nor from the rows themselves. Give its "
    "CREATE TABLE, by the name that it had before, in the setting `schemas`, or let a connector with a new "
    "topic.prefix bring the table by a snapshot, as a feed of its own."
)
_NAMELESS = (
    "No table has had that name since the DROP or RENAME at {}, and no DDL in the changefeed gives it to another one, "
    "as where an event filter hides a CREATE TABLE. The row is not applied. Let the changefeed have that DDL, and "
    "bring the table by a dump from after it (setting initial)."
)
_VANISHED = (
    "a file no longer exists, and its last rows are not applied; expected that files stay until they are. Restore it "
    f"({_OLDER_WAY})."
)


def file_findings(
    source: Source, listing: Listing, entries: Iterable[FileEntry], applied: Mapping[Life, AppliedState]
) -> tuple[Finding, ...]:
    """Return a finding, by a rule of ABOUT_FILES, for each gap in the numbers and each file that changed or vanished.

    `entries` are the ledger's files, `applied` the progress of the lake's tables: of a table's kinds the one that is
    least far counts. A recorded file that no longer exists
    is not a finding if all of its rows are applied, nor is the gap that it leaves.
    """
    entries_by_path = {entry.path: entry for entry in entries}
    through = dict[str, Tso]()
    for life, state in applied.items():
        through[str(life.source)] = min(state.progress.tso, through.get(str(life.source), state.progress.tso))
    gaps, vanished = _gaps(source, listing, entries_by_path, through), _vanished(listing, entries_by_path, through)
    return (
        *(Finding("files-missing", severity, "", *problem) for severity, *problem in gaps),
        *changed_files(listing, entries_by_path.values()),
        *(Finding("files-vanished", Severity.WARNING, "", *problem) for problem in vanished),
    )


def unreadable_files(problems: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings about files and messages that cannot be used; `problems` are sentences by their place.

    A problem that names the place of another one follows from it and is left out.
    """
    for place, message in problems.items():
        if not {word.rstrip(".,;:") for word in message.split()} & problems.keys() - {place}:
            yield Finding("unreadable", Severity.STOP, "", message.removeprefix(place).lstrip(": "), place)


def changed_files(listing: Listing, entries: Iterable[FileEntry]) -> Iterator[Finding]:
    """Yield a finding for each file that is no longer what it was when it was read; `entries` are the ledger's."""
    entries_by_path = {entry.path: entry for entry in entries}
    for file in listing.data_files:
        entry = entries_by_path.get(file.path)
        if entry is None or entry.rows == UNREAD or (entry.size, entry.etag) == (file.size, file.etag):
            continue
        was, now = (f"{file_state.size} bytes (etag {file_state.etag})" for file_state in (entry, file))
        detail = f"{file.path}: read with {was}, now {now}"
        yield Finding(CHANGED_RULE, Severity.WARNING, "", _CHANGED, detail)


def unread_files(source: Source, listing: Listing, entries: Iterable[FileEntry]) -> Iterator[tuple[str, Tso, str]]:
    """Yield (root, version, why) of files that an earlier run listed and that vanished before it read them."""
    unread = [entry for entry in entries if entry.rows == UNREAD]
    listed = {file.path for file in listing.data_files} if unread else set()
    for entry in unread:
        place = source.place(entry.path, listing)
        if place is not None and entry.path not in listed:
            yield place.root, place.version, f"{entry.path} {_UNREAD}"


def broken_files(source: Source, listing: Listing) -> Iterator[tuple[str, Tso, str]]:
    """Yield (root, version, why) of files that should be readable and are not.

    What is in a directory of version 0 stops its table where its rows begin (see `versionless_holds`).
    """
    for path, why in listing.problems.items():
        place = source.place(path)
        if place is not None and (place.version or place.number == 0):
            yield place.root, place.version, why


def rows_of_no_table(
    listing: Listing, history: History, newest_row: Callable[[DataFile, Tso], Tso | None]
) -> Iterator[tuple[str, str]]:
    """Yield files with rows that are those of no table, with a sentence for the user.

    They are behind a DDL of a table of which nobody knows the columns, as behind a RENAME from a table that the feed
    never had: such a table begins with the first DDL that has its columns, and none followed before its rows. Or they
    have the name of a table after it was dropped or renamed, and no table has that name since. `newest_row` returns the
    commit-ts of the newest row of a file that is known, None where there is none; the name was given up at the second
    argument.
    """
    yield from _behind_unknown(listing, history)
    ends = dict[TableId, Tso]()
    for table in (*history.lives.values(), *history.unneeded.values()):
        for name, _, until in table.names:
            ends[name.folded] = max(until, ends.get(name.folded, 0))
    versions = {(file.root, file.version) for file in listing.schema_files}
    for file in listing.data_files:
        names = history.decoding.get((file.root, file.version), ())
        until = ends.get(names[0][0].folded, FOREVER) if len(names) == 1 else FOREVER
        at = newest_row(file, until) if until <= listing.checkpoint else None
        if at is not None and until <= at <= listing.checkpoint and (file.root, at) not in versions:
            yield file.path, f"{names[0][0]} has a row at {at}. {_NAMELESS.format(until)}"


def _behind_unknown(listing: Listing, history: History) -> Iterator[tuple[str, str]]:
    unknown = [file for file in listing.data_files if (file.root, file.version) not in history.decoding]
    texts = {(file.root, file.version): file for file in listing.schema_files if file.by_text} if unknown else {}
    newest = dict(sorted(texts))
    for file in unknown:
        ddl = texts.get((file.root, file.version))
        # Rows that were landed together lie behind each DDL between their ends, though none need be right behind it.
        is_certain = newest.get(file.root) == file.version or (
            file.bounds is not None and file.bounds[0] > file.version + 1
        )
        if ddl is not None and ddl.table.table and file.version <= listing.checkpoint and is_certain:
            yield file.path, f"{ddl.table} has rows behind {ddl.query}: {_UNKNOWN}"


def missing_numbers(listing: Listing) -> dict[tuple[str, str], tuple[range, ...]]:
    """Return the gaps in the numbers of each (directory, dispatcher), between existing files.

    A directory may begin above 1 (files were cleaned up), and the file that an index names may still be to come.
    """
    numbers: dict[tuple[str, str], set[int]] = {
        (settled.directory, ""): {settled.number} for settled in listing.settled
    }
    for file in listing.data_files:
        numbers.setdefault((file.directory, file.dispatcher), set()).add(file.number)
    gaps = {}
    for place, seen in numbers.items():
        if max(seen) - min(seen) + 1 > len(seen):
            ordered = sorted(seen)
            gaps[place] = tuple(range(a + 1, b) for a, b in pairwise(ordered) if b > a + 1)
    return gaps


def is_lost(path: str, before: Listing, now: Listing, stats: FileStats | None, applied: AppliedState | None) -> bool:
    """Return whether a file that was listed `before` is missing `now`, unless all its rows are known to be applied.

    What is landed is never lost like that: a landing tells itself which of its rows have expired.
    """
    if any(file.path == path for file in now.data_files):
        return False
    if any(file.path == path and file.messages is not None for file in before.data_files):
        return False
    listed = {(file.path, file.size, file.etag) for file in before.data_files}
    if stats is None or applied is None or (path, stats.size, stats.etag) not in listed:
        return True
    return stats.max_commit_ts is not None and stats.max_commit_ts > applied.progress.tso


def _gaps(
    source: Source, listing: Listing, entries_by_path: Mapping[str, FileEntry], through: Mapping[str, Tso]
) -> Iterator[tuple[Severity, str, str]]:
    gaps = missing_numbers(listing)
    torn = {directory for directory, _ in gaps}
    done = set()
    paths = {(file.directory, file.dispatcher): file.path for file in listing.data_files} if gaps else {}
    for path, entry in entries_by_path.items() if torn else ():
        directory = path.rpartition("/")[0]
        where = source.place(path) if directory in torn else None
        if where is not None and _is_done(entry, through):
            done.add((directory, where.dispatcher, where.number))
    for path in listing.unwritten:
        if path not in entries_by_path:
            yield Severity.WARNING, _UNWRITTEN, path
    for (directory, dispatcher), ranges in sorted(gaps.items()):
        for numbers in ranges:
            lost = [number for number in numbers if (directory, dispatcher, number) not in done]
            if lost:
                first, last = (_numbered(paths[directory, dispatcher], number) for number in (lost[0], lost[-1]))
                yield Severity.STOP, _MISSING, first if first == last else f"{first} to {last.rpartition('/')[2]}"


def _numbered(path: str, number: int) -> str:
    """Return the path of the file of another number beside a file."""
    return re.sub(r"\d+(?=\.[^./]*$)", lambda digits: str(number).zfill(len(digits[0])), path)


def _vanished(
    listing: Listing, entries_by_path: Mapping[str, FileEntry], through: Mapping[str, Tso]
) -> Iterator[tuple[str, str]]:
    listed = {file.path for file in listing.data_files} | set(listing.problems)
    for path, entry in sorted(entries_by_path.items()):
        if path in listed or _is_done(entry, through):
            continue
        if entry.rows == UNREAD:
            yield f"a file {_UNREAD}", path
        elif entry.life in through:
            rows = f"rows through {entry.max_commit_ts}, {entry.life} is applied through {through[entry.life]}"
            yield _VANISHED, f"{path}: {rows}"


def _is_done(entry: FileEntry, through: Mapping[str, Tso]) -> bool:
    """Return whether all rows of a recorded file are applied."""
    if entry.rows == UNREAD:
        return False
    return entry.max_commit_ts is None or entry.max_commit_ts <= through.get(entry.life, -1)
