"""Files that no window needs any more: later looks leave them out, so that a look costs what is new.

    settle        after a run: directories, and beginnings of directories, whose rows are applied to all their tables
    recalled      before a look: what is settled, and what of it need not be looked at
    is_outdated   after planning: does a table need rows of them all the same? Then everything is listed
    late_rows     rows that came into a directory after it was passed over, or before rows that were read

A data directory of a date takes files for as long as that date lasts in the zone of the TiCDC server, by the clock of
PD, which gives out the checkpoints too. It is closed when a checkpoint is two and a half days later: half a day for the
zone, two days for uploads under way. Closed directories are passed over, and looked at once a day in spite of that:
what came into one holds its table, if rows may have been missed. Any other directory is looked at every time. Its
settled files are counted and their fingerprints added up, so that nothing is kept of them, and nothing is missed.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat, takewhile

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.errors import CdcError
from cdc_assets.formats import Wire, decode_among
from cdc_assets.formats.changes import position_column
from cdc_assets.formats.decoded import LINE, Decoded
from cdc_assets.model.progress import AppliedState, Life
from cdc_assets.model.reports import FileStats, has_rows
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.splits import DIGEST_MASK, DataFile, LateFile, Listing, SettledFiles, fingerprint
from cdc_assets.model.steps import ApplyRows, Step
from cdc_assets.model.table_history import History
from cdc_assets.model.tso import Tso, tso_moment
from cdc_assets.planning.plan import Plan
from cdc_assets.sources import Source
from cdc_assets.sources.unchanged import SettledTally

LEAST_FILES = 100
"""Minimum files before a directory is summarised: remembering fewer would take as much."""
_OPEN_FILES = 10
"""Number of files at the end of a directory that stay unsettled: a writer may rewrite the newest ones."""
_SHARED = 2
"""Number of transactions that a file may share with other ones: its first and its last."""
LOOK_AGAIN_SECONDS = 24 * 3600.0
_CLOSED_AFTER = dt.timedelta(hours=60)


@dataclass(frozen=True, slots=True)
class _Claim:
    """Rows that a table needs of those under its name: [since, until), and above what is applied."""

    life: Life
    since: Tso
    until: Tso
    applied: Tso

    def needs(self, low: Tso, high: Tso) -> bool:
        """Return whether it may need one of the rows in [low, high]."""
        return max(self.since, self.applied + 1, low) <= min(self.until - 1, high)


def recalled(settled: Iterable[SettledFiles], now: float) -> tuple[SettledFiles, ...]:
    """Return the settled directories, each with whether it may be passed over.

    What was seen later than now, by a clock that was wrong then, is looked at.
    """
    return tuple(
        replace(
            settled_files,
            passed_over=settled_files.closed
            and settled_files.seen_at <= now < settled_files.seen_at + LOOK_AGAIN_SECONDS,
        )
        for settled_files in settled
    )


def with_reopened(whole: Listing, before: Iterable[SettledFiles]) -> Listing:
    """Return a listing of all files with which closed directories are not what they were: rows may be late there."""
    closed = SettledTally(settled for settled in before if settled.closed)
    for file in whole.data_files:
        closed.takes(file.directory, file.path, file.size, file.etag)
    changed = closed.verdict(whole.checkpoint)[1]
    return replace(whole, reopened=tuple(changed)) if changed else whole


def seen_again(before: Iterable[SettledFiles], listing: Listing, now: float) -> dict[SettledFiles, tuple[str, ...]]:
    """Return, to be kept, the closed directories that were looked at once more.

    Those that do not hold what they held are looked at every time from then on, until they are settled anew.
    """
    due = {settled.directory for settled in before if settled.closed and not settled.passed_over}
    alike = [replace(settled, seen_at=now) for settled in listing.settled if settled.directory in due]
    changed = [replace(settled, seen_at=0.0) for settled in listing.reopened if settled.closed and settled.seen_at]
    return dict.fromkeys((*alike, *changed), ())


def is_outdated(listing: Listing, planned: Plan) -> bool:
    """Return whether a table may need files that are settled: it was made anew, say, or its name changed.

    A table without key needs those between two of a window, too: they show where a delivery begins.
    """
    claims = _claims(planned, planned.history.lives) if listing.settled else {}
    return _is_torn(listing.settled, planned.steps) or any(
        directory_claims is None or any(claim.needs(settled.since, settled.through) for claim in directory_claims)
        for settled in listing.settled
        for directory_claims in [_of(claims, planned.history, settled.root, settled.version)]
    )


def _is_torn(settled: Sequence[SettledFiles], steps: Iterable[Step]) -> bool:
    """Return whether directories are left out between the dates of files that a table without key takes."""
    left_out: dict[str, list[str]] = {}
    for settled_files in settled:
        left_out.setdefault(_before_date(settled_files.directory, settled_files.date), []).append(settled_files.date)
    for step in steps if left_out else ():
        if not isinstance(step, ApplyRows) or step.schema.key:
            continue
        dates: dict[str, list[str]] = {}
        for file in step.files:
            dates.setdefault(_before_date(file.directory, file.date), []).append(file.date)
        if any(
            min(file_dates) < date <= max(file_dates)
            for place, file_dates in dates.items()
            for date in left_out.get(place, ())
        ):
            return True
    return False


def _before_date(directory: str, date: str) -> str:
    return directory.removesuffix(f"/{date}") if date else directory


def settle(
    listing: Listing, planned: Plan, stats: Mapping[str, FileStats], now: float, vanished: Iterable[str] = ()
) -> dict[SettledFiles, list[str]]:
    """Return the directories that are settled from now on, with the paths that are new in them.

    `planned` holds the lake's progress, `stats` what is known of files that were read. Nothing is settled of sources
    that do not say which directories are mixed, nor in directories to which a person may bring back a file of
    `vanished`, the paths of files that went unread. Those with rows that came too late stay as they were, until the
    tables have these rows.
    """
    if listing.mixed is None:
        return {}
    claims, new_paths = _claims(planned, planned.history.lives), dict[SettledFiles, list[str]]()
    settled_by_directory = {settled.directory: settled for settled in listing.settled}
    day = _day_before(listing.checkpoint)
    awaited = {path.rpartition("/")[0] for path in (*vanished, *listing.late)}
    files_by_directory: dict[str, list[DataFile]] = {}
    for file in listing.data_files:
        files_by_directory.setdefault(file.directory, []).append(file)
    for directory, files in files_by_directory.items():
        directory_claims = _of(claims, planned.history, files[0].root, files[0].version)
        if not directory_claims or directory in awaited:
            continue
        files.sort(key=lambda file: file.path)
        closed = _is_closed(files[0].date, day) and directory not in listing.mixed
        done = _done(files, stats, directory_claims)
        if not closed or len(done) < len(files):
            closed, done = False, done[: max(len(done) - _OPEN_FILES, 0)]
        settled_files = _settled(done, settled_by_directory.get(directory), stats, closed)
        if settled_files is not None:
            new_paths[replace(settled_files, checkpoint=listing.checkpoint, seen_at=now)] = [file.path for file in done]
    return new_paths


def late_rows(
    source: Source,
    wire: Wire,
    listing: Listing,
    planned: Plan,
    stats: Mapping[str, FileStats],
    noted: Callable[[], Collection[str]],
    recorded: Callable[[], Mapping[str, FileStats]],
) -> Iterator[tuple[str, LateFile]]:
    """Yield the files with rows that were not there when their tables were applied beyond them, and these tables.

    They came into closed directories that were passed over; or before files that were read; or an index had named
    them, or a window had such rows of theirs (`noted`, paths). What a writer that begins anew sends again may
    stand there, too: its rows are in files that were read (`recorded`, settled ones included). Reads files whole.
    """
    reopened = {settled.directory: settled for settled in listing.reopened if settled.closed}
    restored = _restored(listing, stats, noted)
    claims = _claims(planned, (*planned.history.lives, *planned.idle)) if reopened or restored else {}
    for file in listing.data_files if claims else ():
        settled_files, read = reopened.get(file.directory), stats.get(file.path)
        if (settled_files is None and file.path not in restored) or _is_as_read(file, read):
            continue
        file_claims = _of(claims, planned.history, file.root, file.version) or ()
        tables = planned.history.decoding[file.root, file.version] if file_claims and wire.has_positions else ()
        decoded = _decoded(source, wire, file.path, tables)
        rows = None if decoded is None else _commit_ts(decoded)
        after = -1 if settled_files is None else settled_files.checkpoint
        late = [claim for claim in file_claims if _is_late(rows, after, claim)]
        if late and settled_files is None:
            recorded_stats = recorded()
            if _is_as_read(file, recorded_stats.get(file.path)):
                continue  # by another run, meanwhile
            if decoded is not None and not decoded.rejects:
                keyed = all(schema.key for _, schema in tables)
                copies = _Copies(
                    decoded.changes, max(claim.applied for claim in late), keyed, again=not restored[file.path]
                )
                late = late if _lacks(source, wire, planned, recorded_stats, file, copies) else []
        if late:
            sentence = _RESTORED if settled_files is None else _LATE
            reason = sentence.format(file.path, max(claim.applied for claim in late), after)
            least = 0 if rows is None else pc.min(rows).as_py()
            lives = frozenset(claim.life for claim in file_claims if _are_some_in(rows, claim.since, claim.until - 1))
            yield file.path, LateFile(reason, max(after + 1, least), lives)


def _is_as_read(file: DataFile, read: FileStats | None) -> bool:
    return read is not None and (read.size, read.etag) == (file.size, file.etag)


def _restored(
    listing: Listing, stats: Mapping[str, FileStats], noted: Callable[[], Collection[str]]
) -> dict[str, bool]:
    """Return the paths of files that were not read and may have rows from before their window.

    Each with whether it stands before a file that was read: there it should have been at an earlier look. Behind them a
    writer sends again what it had sent before its restart.
    """
    unread = {
        file.path: file
        for file in listing.data_files
        if not (has_rows(stats.get(file.path)) or file.messages or file.piece)
    }
    if not unread:
        return {}
    newest = dict[tuple[str, str, str, int], tuple[Tso, str, int]]()
    sequences = {_sequence(file) for file in unread.values()}
    for file in listing.data_files:
        sequence = _sequence(file)
        if sequence in sequences and file.path in stats:
            newest[sequence] = max(_order(file), newest.get(sequence, (0, "", 0)))
    noted_paths = noted()
    before = {path: _order(file) < newest.get(_sequence(file), (0, "", 0)) for path, file in unread.items()}
    return {path: is_before for path, is_before in before.items() if is_before or path in noted_paths}


def _sequence(file: DataFile) -> tuple[str, str, str, int]:
    """Equal for files of a table whose order is that in which they were written."""
    root, _, partition, dispatcher, width = file.sequence
    return root, partition, dispatcher, width


def _order(file: DataFile) -> tuple[Tso, str, int]:
    return file.version, file.date, file.number


_RESTORED = (
    "{} was not there when rows behind it were read, and its table is applied through {} without it: rows of it at or "
    "below that may be missing. Rebuild the table; or remove the file, where it is not of this changefeed."
)
_LATE = (
    "{} came into a directory whose date had passed, and its table is applied through {} without it: rows above {} in "
    "it may be missing. Check that the clocks of the TiCDC servers are right and that nobody else writes there, then "
    "rebuild the table."
)


def _is_late(rows: pa.ChunkedArray | None, after: Tso, claim: _Claim) -> bool:
    return _are_some_in(rows, max(after + 1, claim.since), min(claim.applied, claim.until - 1))


def _are_some_in(rows: pa.ChunkedArray | None, low: Tso, high: Tso) -> bool:
    """Return whether one of these commit-ts is in a range; with None it may be."""
    if rows is None:
        return low <= high
    return bool(pc.any(pc.and_(pc.greater_equal(rows, low), pc.less_equal(rows, high))).as_py())


def _decoded(source: Source, wire: Wire, path: str, tables: Sequence[tuple[TableId, TableSchema]]) -> Decoded | None:
    """Return the changes of a file, None where it cannot be read or is of none of these tables."""
    try:
        return decode_among(wire, source.reader.read(path), path, tables)[1] if tables else None
    except CdcError:
        return None


def _commit_ts(decoded: Decoded) -> pa.ChunkedArray | None:
    """Return the commit-ts of the rows in a file, None where one cannot be read."""
    broken = pa.array([reject.commit_ts for reject in decoded.rejects], pa.int64())
    at = decoded.changes[position_column(decoded.changes)]
    return None if broken.null_count else pa.chunked_array([*at.chunks, broken], pa.int64())


class _Copies:
    """The changes of a file through a position, to be looked for in others.

    Equal rows of a table without key may be of one transaction, the rest of which is in the next file. So only whole
    transactions tell copies of them: no file has more than two that it shares with others. In a file behind those that
    were read, which may have everything `again` and more than once, each row tells itself.
    """

    def __init__(self, changes: pa.Table, through: Tso, keyed: bool, *, again: bool) -> None:
        at = changes[position_column(changes)]
        self._commits = pc.unique(at.filter(pc.less_equal(at, through)))
        self._left = Counter(self._rows(changes))
        self.again = again
        self._too_few = not (again or keyed) and len(self._commits) < _SHARED + 1

    def __bool__(self) -> bool:
        """Return whether rows are left that were in no other file."""
        return self._too_few or bool(self._left)

    @property
    def bounds(self) -> tuple[Tso, Tso]:
        """The first and the last of their commit-ts."""
        bounds = pc.min_max(self._commits).as_py()
        return bounds["min"], bounds["max"]

    def take_away(self, changes: pa.Table) -> None:
        """Leave out rows that are in another file."""
        if self.again:
            for row in self._rows(changes):
                self._left.pop(row, None)
        else:
            self._left -= Counter(self._rows(changes))

    def _rows(self, changes: pa.Table) -> Iterator[str]:
        some = changes.filter(pc.is_in(changes[position_column(changes)], self._commits))
        names = sorted(name for name in some.column_names if name != LINE)
        return map(repr, zip(*(zip(repeat(name), some[name].to_pylist()) for name in names), strict=True))


def _lacks(
    source: Source, wire: Wire, planned: Plan, recorded: Mapping[str, FileStats], file: DataFile, copies: _Copies
) -> bool:
    """Return whether a file has rows that are in no file of its table that was read."""
    low, high = copies.bounds
    for path, read in recorded.items():
        if read.max_commit_ts is None or read.min_commit_ts is None or not path.startswith(f"{file.root}/"):
            continue
        place = source.place(path) if read.min_commit_ts <= high and read.max_commit_ts >= low else None
        if place is not None and place.root == file.root and path != file.path:
            tables = planned.history.decoding.get((place.root, place.version), ())
            other = _decoded(source, wire, path, tables)
            if other is not None:
                copies.take_away(other.changes)
            if not copies or (other is None and copies.again):  # where a file is gone by now, nobody can tell
                return False
    return bool(copies)


def _claims(planned: Plan, lives: Iterable[Life]) -> dict[TableId, list[_Claim]]:
    """Return the rows of each name, folded, that these tables still need."""
    claims, sources = dict[TableId, list[_Claim]](), planned.sources
    for life in lives:
        table = planned.history.lives.get(life) or sources[life.source]
        through, begun = _applied(planned.applied.get(life)), -1 if table.base is None else table.base.at + 1
        for name, since, until in table.names:
            claims.setdefault(name.folded, []).append(_Claim(life, max(since, begun), until, through))
    return claims


def _applied(state: AppliedState | None) -> Tso:
    """The TSO through which all rows are in a table, -1 for one that does not stand."""
    return -1 if state is None else state.progress.through


def _of(claims: Mapping[TableId, Sequence[_Claim]], history: History, root: str, version: Tso) -> list[_Claim] | None:
    """Return the rows of a directory that are still needed, None if nothing says whose they are."""
    tables = history.decoding.get((root, version))
    return None if tables is None else [claim for name, _ in tables for claim in claims.get(name.folded, ())]


def _day_before(checkpoint: Tso) -> str:
    return (tso_moment(checkpoint) - _CLOSED_AFTER).date().isoformat()


def _is_closed(date: str, day: str) -> bool:
    """Return whether a date or month is over; a year is spelled as a table id might be."""
    return "-" in date and date < day[: len(date)]


def _done(files: Sequence[DataFile], stats: Mapping[str, FileStats], claims: Sequence[_Claim]) -> list[DataFile]:
    """The first of these files, those that were read as they are and have no row that is still needed."""
    newest = max(claim.applied for claim in claims)

    def is_done(file: DataFile) -> bool:
        read = stats.get(file.path)
        if read is None or not _is_as_read(file, read):
            return False
        if read.min_commit_ts is None or read.max_commit_ts is None:
            return not read.rows
        low, high = read.min_commit_ts, read.max_commit_ts
        return high <= newest and not any(claim.needs(low, high) for claim in claims)

    return list(takewhile(is_done, files))


def _settled(
    files: Sequence[DataFile], before: SettledFiles | None, stats: Mapping[str, FileStats], closed: bool
) -> SettledFiles | None:
    """Return these files as settled, together with those of their directory that were before; None if they cannot be.

    Only files whose numbers are all there can be: what is missing is reported by their names.
    """
    bounds = [
        (file_stats.min_commit_ts, file_stats.max_commit_ts) for file_stats in (stats[file.path] for file in files)
    ]
    lows, highs = [low for low, _ in bounds if low is not None], [high for _, high in bounds if high is not None]
    begun = before.number if before is not None else 0
    if len(files) < LEAST_FILES and not (closed and before) or not lows or not _are_all_there(files, begun, closed):
        return None
    first, last = files[0], files[-1]
    digest = sum(fingerprint(file.path, file.size, file.etag) for file in files)
    return SettledFiles(
        directory=first.directory,
        root=first.root,
        version=first.version,
        date=first.date,
        last="" if closed else last.path,
        number=last.number,
        files=len(files) + (before.files if before else 0),
        digest=(digest + (before.digest if before else 0)) & DIGEST_MASK,
        since=min(lows + ([before.since] if before else [])),
        through=max(highs + ([before.through] if before else [])),
        checkpoint=0,
        seen_at=0.0,
    )


def _are_all_there(files: Sequence[DataFile], begun: int, closed: bool) -> bool:
    """Return whether numbers go on without gaps after `begun`; in an open directory in the order of the names, too."""
    by_dispatcher: dict[str, list[int]] = {}
    for file in files:
        by_dispatcher.setdefault(file.dispatcher, []).append(file.number)
    if not closed:
        return list(by_dispatcher) == [""] and by_dispatcher[""] == list(range(begun + 1, begun + 1 + len(files)))
    return all(
        sorted(numbers) == list(range(at, at + len(numbers)))
        for dispatcher, numbers in by_dispatcher.items()
        for at in [1 if dispatcher else begun + 1]
    )
