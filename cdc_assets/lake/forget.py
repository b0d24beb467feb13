"""Rows of given keys taken out of a table for good: out of every snapshot, and out of every file that has them.

    look      which data files of any snapshot have rows of the keys, hidden ones too, and which snapshots show them
    replace   main and every tag that has them are made anew from the same files but those, and these without the rows
    expire    all other snapshots that have them, so that Iceberg removes what only they refer to
    sweep     files that no snapshot refers to and that have them
    prove     every file that is left is read

A deletion vector only hides a row, so data files are written anew (`forgetting.remake`). All of `replace` is one
transaction, guarded like a step's: readers see the old state or the new one, of tags and of main. The new snapshots
carry the labels of those whose place they take, so no progress is lost with what expires.

Killed at any line, the table has its old state or its new one, and what is left to expire or to sweep is found again by
looking: a repeated run does the rest. FORGOTTEN, a property of the table, changes with every run. Whoever else writes
to a table brings no row back:

    windows, replays, repairs   `Workbench.on` refuses what was planned with another FORGOTTEN, `publish` a table that
    and DDL                     moved since it was loaded
    DDL that replaces a table   wins over other commits, so it asks for tickets, and is due to who begins to forget
    rebuilds                    each looks for the other's ticket, and a swap for the FORGOTTEN of when it was begun
    records set aside           are taken back by who finds another FORGOTTEN once they are there
    compaction, manifests       Iceberg refuses to replace files that are not there any more
    tags of cuts                are of snapshots that are there
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pyiceberg.table.refs import SnapshotRefType

from cdc_assets.errors import TableHeld, TableMoved
from cdc_assets.formats import POSITION
from cdc_assets.lake.commit import expire
from cdc_assets.lake.cuts import LakeCuts
from cdc_assets.lake.forgetting.remake import Remaking
from cdc_assets.lake.forgetting.searched_table import SearchedTable
from cdc_assets.lake.forgetting.stages import KeysOfStages, stages
from cdc_assets.lake.lake_table import FORGOTTEN, FORGOTTEN_THROUGH
from cdc_assets.lake.quarantine import Quarantine
from cdc_assets.lake.staging.storage import storage
from cdc_assets.lake.table_files import referenced_files
from cdc_assets.lake.tables import Lake
from cdc_assets.lake.tickets import FORGET, REBUILD, LakeTickets, hold_back
from cdc_assets.lake.workbench import Work
from cdc_assets.model.forgetting import RemovedRows, SearchedFiles
from cdc_assets.model.progress import Life, Progress
from cdc_assets.model.quarantine import HasKeys, QuarantinedRow
from cdc_assets.model.tickets import Ticket

if TYPE_CHECKING:
    from cdc_assets.decoding.keyed_rows import WantedKeys

__all__ = ["LakeForgetting"]


class LakeForgetting:
    """Forgets rows of the tables of one changefeed's lake."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self._tickets = LakeTickets(lake.state, FORGET)

    def tickets(self) -> tuple[Ticket, ...]:
        """Return the runs of this changefeed that began to forget rows and did not end, oldest first."""
        return self._tickets.tickets()

    def touch(self, ticket: Ticket) -> None:
        """Write a ticket, or renew it."""
        self._tickets.touch(ticket)

    def end(self, token: str) -> None:
        """Remove a ticket, and those of tables that a run that was killed let wait."""
        self.hold_back(token, ())
        self._tickets.end(token)

    def hold_back(self, token: str, lives: Iterable[Life]) -> None:
        """Let the windows of these tables, and of no others, wait for the run with that token."""
        hold_back(self.lake.state, token, lives)

    def unfinished(self) -> dict[Life, str]:
        """Return why old snapshots of tables are still needed, a sentence each: what was begun has to be finished."""
        tables, reasons = self.lake.state.tables(), dict[Life, str]()
        for ticket in LakeTickets(self.lake.state, REBUILD).tickets():
            reason = f"a rebuild that began at {ticket.since} is not finished: run it again"
            reasons |= dict.fromkeys(tables, f"{reason}, or let maintain remove what is left of it")
        records = Quarantine(self.lake.state)
        for life in tables if records.counts() else ():
            if any(tokens for tokens in records.tokens(life).values()):
                reasons[life] = f"a replay of records of {life} is not finished: run it again"
        return reasons

    def forget(self, life: Life, wanted: WantedKeys, at: Progress, mark: str, *, kept_out: bool) -> RemovedRows:
        """Take the rows of keys out of a table, of all its snapshots and of its tags; repeated, it does what is left.

        `mark` is that of this run. Of keys that are not `kept_out` the table says through which position it had rows.
        Raises TableMoved where the table is not applied as far as `at`, or another writer commits meanwhile, and
        TableHeld where it cannot be rewritten.
        """
        bench = self.lake.workbench
        with bench.on(life) as work, _undisturbed(life):
            _refuse_unfit(work, at)
            io, identifier = bench.state.io(work.lake_table), work.lake_table.identifier
            searched = SearchedTable.open(work.lake_table.metadata_location, io, wanted)
            stale = searched.stale  # whatever is read of the table is read before the transaction begins
            tagged, moved, there = _stale_tags(searched, life), _moved(searched), searched.keys_there
            properties = {FORGOTTEN: mark}
            if not kept_out:
                properties[FORGOTTEN_THROUGH] = str(max(at.tso, work.lake_table.forgotten_through))
            remaking = Remaking(bench.state, work, searched, properties)
            made = remaking.commit(tagged)
            table, expired = work.session.load(identifier), [*stale, *remaking.passing]
            expire(table, expired)
            metadata_location = bench.table_after_commit(table.operations(), identifier).metadata_location
            swept = _sweep(SearchedTable.open(metadata_location, io, wanted), metadata_location)
        return RemovedRows(
            life,
            rows=sum(map(len, searched.rows.values())),
            keys=len(there),
            files_rewritten=remaking.files,
            bytes_rewritten=remaking.bytes,
            snapshots_expired=len(expired),
            tags={name: made[snapshot_id] for snapshot_id, names in tagged.items() for name in names},
            orphans=swept,
            moved=moved,
        )

    def search(self, life: Life, wanted: WantedKeys) -> SearchedFiles:
        """Read every file of a table, whether anything refers to it or not, and tell which have rows of the keys."""
        lake_table = self.lake.state.find(life)
        searched = SearchedTable.open(lake_table.metadata_location, self.lake.state.io(lake_table), wanted)
        files = list(searched.files())
        data = {file.info.path for file in files if file.location.endswith(".parquet")}
        having = tuple(file.location for file in files if searched.is_left_in(file, data))
        return SearchedFiles(str(life), len(files), sum(file.info.size for file in files), having)

    def quarantined(self) -> tuple[QuarantinedRow, ...]:
        """Return the open records of the quarantine, with their bytes and keys."""
        return Quarantine(self.lake.state).read(raw=True)

    def forget_stages(self, targets: Mapping[Life, WantedKeys], has: HasKeys) -> int:
        """Remove the stages that have rows of the keys, and old ones that cannot be read; return how many.

        Whoever is at work on one was planned before, and is refused by its table. What cannot be read and is young may
        be a stage that is written just now.
        """
        keys, removed = KeysOfStages(targets, has), 0
        for stage in stages(self.lake, targets):
            if stage.having(keys, unread=stage.is_old):
                stage.remove()
                removed += 1
        return removed

    def search_stages(self, targets: Mapping[Life, WantedKeys], has: HasKeys) -> SearchedFiles:
        """Read what windows that are not committed have staged, and tell which have rows of the keys, or may have."""
        keys, searched = KeysOfStages(targets, has), list(stages(self.lake, targets))
        having = tuple(location for stage in searched for location in stage.having(keys, unread=True))
        sizes = [file.info.size for stage in searched for file in stage.files]
        return SearchedFiles("stages", len(sizes), sum(sizes), having)

    def forget_records(self, has: HasKeys, may_have: HasKeys) -> tuple[str, ...]:
        """Remove the records of the quarantine that have what is to be forgotten; return where they stand.

        Of those that are not open any more, also such as may have it.
        """
        records = Quarantine(self.lake.state).forget(has, may_have)
        return tuple(f"{file} line {line}" for file, line in records)

    def search_records(self, has: HasKeys) -> SearchedFiles:
        """Read every file of the quarantine, and tell which have such records."""
        return SearchedFiles("quarantine", *Quarantine(self.lake.state).search(has))

    def follow_tags(self) -> tuple[str, ...]:
        """List in cuts the snapshots that their tags have now; return the cuts that changed."""
        return LakeCuts(self.lake.state).follow_tags()


def _refuse_unfit(work: Work, at: Progress) -> None:
    life = work.lake_table.life
    if work.label.progress != at:
        raise TableMoved(f"{life} is applied to {work.label.progress.tso}, and was at {at.tso}.", table=str(life))
    if work.target.table.properties().get("gc.enabled") == "false":
        raise TableHeld(
            f"{life}: its property gc.enabled is false, so no file of it may be removed. Set it to true, and try "
            "again.",
            table=str(life),
        )


@contextmanager
def _undisturbed(life: Life) -> Iterator[None]:
    """Raise TableMoved where upkeep or another run has removed a file that was to be read."""
    try:
        yield
    except FileNotFoundError as gone:
        raise TableMoved(f"{life}: a file was removed meanwhile ({gone}). Look again.", table=str(life)) from gone


def _stale_tags(searched: SearchedTable, life: Life) -> dict[int, list[str]]:
    """Return the tags of snapshots that have to be made anew, by these. Raises TableHeld for a branch that has rows."""
    tagged: dict[int, list[str]] = {}
    for name, ref in searched.table.metadata.refs.items():
        if name == "main" or ref.snapshot_id not in searched.stale:
            continue
        if ref.snapshot_ref_type != SnapshotRefType.TAG:
            raise TableHeld(
                f"{life}: its branch {name} has rows that are to be forgotten, and is not made anew. Remove the "
                "branch, and forget the rows again.",
                table=str(life),
            )
        tagged.setdefault(ref.snapshot_id, []).append(name)
    return tagged


def _moved(searched: SearchedTable) -> tuple[tuple[str, ...], ...]:
    """Return keys that rows had before one of the keys or after it, as a log tells."""
    logged = searched.holding if POSITION in searched.table.schema().column_names else ()
    files = ((storage(searched.io, path), searched.rows[path]) for path in logged)
    return tuple(sorted({key for file, rows in files for key in searched.keys.moved(*file, rows)}))


def _sweep(searched: SearchedTable, metadata_location: str) -> int:
    """Remove metadata files, and files with the keys, that are older than the newest one and that it does not refer to.

    Return how many. No commit can take them in any more: it would be of a state from before, and is refused.
    """
    system, newest = storage(searched.io, metadata_location)
    used, removed = {newest, *referenced_files(searched.table, searched.io)}, 0
    written = system.get_file_info(newest).mtime
    for file in searched.files():
        is_old = file.info.path not in used and file.info.mtime < written
        if is_old and (file.location.endswith(".metadata.json") or searched.is_left_in(file)):
            with suppress(FileNotFoundError):
                file.system.delete_file(file.info.path)
            removed += 1
    return removed
