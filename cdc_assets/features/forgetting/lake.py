"""Rows of given keys taken out of a table for good: out of every snapshot that nobody keeps, and out of the files.

    rewrite   the data files of main that have rows of the keys, hidden ones too, are replaced by copies without them
    expire    all snapshots that have such rows, but for those with a tag: a person lets cuts go before (`operations`)
    sweep     files that no snapshot refers to and that have such rows, and empty directories of partitions
    search    every snapshot and data file that is left is asked for rows of the keys

A deletion vector only hides a row, so data files are replaced. The rewrite is one transaction, guarded like a step's:
readers see the old state or the new one. Its snapshot carries the label, so no progress is lost with what expires.

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

import os
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from pyarrow.fs import LocalFileSystem

from cdc_assets.errors import TableHeld, TableMoved
from cdc_assets.features.forgetting.lake_search import SearchedTable, stage_has_keys, stages
from cdc_assets.io.retries import retrying
from cdc_assets.lake.commit import data_file, expire, guard, set_properties
from cdc_assets.lake.failures import answering
from cdc_assets.lake.label import Label
from cdc_assets.lake.lake_table import FORGOTTEN, FORGOTTEN_THROUGH, REPLAY
from cdc_assets.lake.layout import partition_data
from cdc_assets.lake.row_groups import copy_without
from cdc_assets.lake.spark.failures import races
from cdc_assets.lake.staging.stage import age_of, discard
from cdc_assets.lake.staging.storage import storage
from cdc_assets.lake.staging.tasks import DataFileWritten
from cdc_assets.lake.table_files import referenced_files
from cdc_assets.lake.tables import Lake
from cdc_assets.lake.tickets import FORGET, REBUILD, LakeTickets, hold_back
from cdc_assets.lake.windows import STAGED
from cdc_assets.lake.workbench import Work
from cdc_assets.model.forgetting import RemovedRows, SearchedFiles
from cdc_assets.model.progress import Life, Progress
from cdc_assets.model.quarantine import HasKeys, QuarantinedRow
from cdc_assets.model.tickets import STALE_SECONDS, Ticket

if TYPE_CHECKING:
    from cdc_assets.decoding.keyed_rows import WantedKeys

__all__ = ["LakeForgetting"]

_ATTEMPTS = 4


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
        """Return the reasons why old snapshots of tables are still needed, in sentences: unfinished work."""
        tables, reasons = self.lake.state.tables(), dict[Life, str]()
        for ticket in LakeTickets(self.lake.state, REBUILD).tickets():
            reason = f"a rebuild that began at {ticket.since} is not finished: run it again"
            reasons |= dict.fromkeys(tables, f"{reason}, or let maintain remove what is left of it")
        records = self.lake.workbench.records
        for life in tables if records.counts() else ():
            if any(tokens for tokens in records.tokens(life).values()):
                reasons[life] = f"a replay of records of {life} is not finished: run it again"
        return reasons

    # --- tables ---

    def forget(self, life: Life, sought: WantedKeys, at: Progress, mark: str, *, kept_out: bool) -> RemovedRows:
        """Take the rows of keys out of a table and all of its snapshots without a tag; repeated, it does what is left.

        `mark` is that of this run. Of keys that are not `kept_out` the table says through which position it had rows.
        Raises TableMoved where the table is not applied as far as `at`, or another writer commits meanwhile, and
        TableHeld where it cannot be rewritten.
        """
        bench = self.lake.workbench
        with bench.on(life) as work, _undisturbed(life):
            if work.label.progress != at:
                tso = work.label.progress.tso
                raise TableMoved(f"{life} is applied to {tso}, and was at {at.tso}.", table=str(life))
            if work.target.table.properties().get("gc.enabled") == "false":
                raise TableHeld(
                    f"{life}: its property gc.enabled is false, so no file of it may be removed. Set it to true, and "
                    "try again.",
                    table=str(life),
                )
            io, identifier = bench.state.io(work.lake_table), work.lake_table.identifier
            searched = SearchedTable(work.lake_table.metadata_location, io, sought)
            branches = [name for name, is_tag in searched.refs.items() if not is_tag]
            if branches:
                raise TableHeld(
                    f"{life}: its branch {branches[0]} has rows that are to be forgotten, and is not rewritten. Remove "
                    "the branch, and forget the rows again.",
                    table=str(life),
                )
            moved, keys = searched.moved(), len(searched.keys_there())  # before the transaction begins
            properties = {FORGOTTEN: mark}
            if not kept_out:
                properties[FORGOTTEN_THROUGH] = str(max(at.tso, work.lake_table.forgotten_through))
            written, passing = self._rewrite(work, searched, properties)
            retained = {work.lake_table.tags[name] for name in searched.refs}
            chosen = {*(searched.places.keys() - retained), *passing}
            table, expired = _expired(work, life, chosen)
            retained |= chosen - expired
            kept_files = {path for snapshot_id in retained for path in searched.places.get(snapshot_id, ())}
            current = work.lake_table.snapshot_id
            main_files = searched.places.get(current, frozenset()) if current is not None else frozenset()
            metadata_location = bench.table_after_commit(table.operations(), identifier).metadata_location
            orphans = _sweep(SearchedTable(metadata_location, io, sought), metadata_location)
        return RemovedRows(
            life,
            rows=sum(
                len(numbers)
                for path, numbers in searched.holding.items()
                if path in main_files or path not in kept_files  # a file of a kept cut alone stays
            ),
            keys=keys,
            files_rewritten=len(written),
            bytes_rewritten=sum(file.file_bytes for file in written),
            snapshots_expired=len(expired),
            orphans=orphans,
            moved=moved,
        )

    def _rewrite(
        self, work: Work, searched: SearchedTable, properties: Mapping[str, str]
    ) -> tuple[list[DataFileWritten], list[int]]:
        """Replace the data files of main that have rows of the keys, in one transaction with the table's properties.

        Manifests keep the bounds of a removed file's columns, so those that mention one are written anew, too. Returns
        the files that were written, and the snapshots that were needed on the way only. Raises TableMoved where another
        writer commits meanwhile.
        """
        java, metadata = work.session.iceberg.java, self.lake.state.file(work.lake_table.metadata_location)
        transaction = work.session.iceberg.transaction(work.target.table)
        guard(work.target, transaction)
        snapshots = sorted(metadata.snapshots.values(), key=lambda snapshot: snapshot.made_ms)
        marks = {
            name: snapshot.summary[name]
            for snapshot in snapshots
            for name in (STAGED, REPLAY)
            if name in snapshot.summary
        }

        def commit(change: Any) -> int:
            """Commit a change of main with its label, and the marks by which a killed run knows its own commit."""
            for name, value in {**marks, **work.label.properties()}.items():
                change.set(name, value)
            change.commit()
            return int(transaction.table().currentSnapshot().snapshotId())

        written, passing, main = list[DataFileWritten](), list[int](), metadata.snapshot
        if main is not None and main.snapshot_id in searched.places:
            files = searched.files_of(main.snapshot_id)
            holding = sorted(files.keys() & searched.holding.keys())
            hidden = searched.hidden(main.snapshot_id, holding) if holding else {}
            change = transaction.newOverwrite()
            for path in holding:
                file, partition = files[path], searched.partition_of(files[path])
                spec = work.target.table.specs().get(file.spec_id)
                former = java("org.apache.iceberg.DataFiles").builder(spec).withPath(path).withFormat("parquet")
                former = former.withRecordCount(file.record_count).withFileSizeInBytes(file.file_size_in_bytes)
                if partition:
                    former = former.withPartition(partition_data(work.session, spec, partition))
                change.deleteFile(former.build())
                location = f"{path.rsplit('/', 1)[0]}/cdc-{int(time.time())}-{uuid.uuid4().hex}.parquet"
                gone = np.union1d(searched.holding[path], hidden.get(path, np.empty(0, np.int64)))
                with answering():
                    size = copy_without(searched.io, path, location, gone)
                if size:
                    written.append(DataFileWritten(location, size, partition))
                    change.addFile(data_file(work.target, transaction.table(), written[-1], spec))
            if holding:
                passing.append(commit(change))
            manifests = transaction.table().currentSnapshot().dataManifests(transaction.table().io())
            stale, equal = None, java("java.util.function.Predicate").isEqual
            for manifest in (manifests.get(number) for number in range(manifests.size())):
                if manifest.hasDeletedFiles():
                    stale = equal(manifest) if stale is None else getattr(stale, "or")(equal(manifest))
            if stale is not None:
                together = java("com.google.common.base.Functions").constant("")
                commit(transaction.rewriteManifests().clusterBy(together).rewriteIf(stale))
            else:
                passing.clear()
        elif main is not None and searched.places and Label.parse(main.summary) is None:
            commit(transaction.newFastAppend())  # the newest label may be one that expires
        set_properties(transaction, properties)
        transaction.commitTransaction()
        return written, passing

    def search(self, life: Life, sought: WantedKeys) -> SearchedFiles:
        """Ask every snapshot that a table has, and files to which none refers, for rows of the keys."""

        def look() -> tuple[SearchedTable, set[str], set[str]]:
            lake_table = self.lake.state.find(life)
            with _undisturbed(life):
                searched = SearchedTable(lake_table.metadata_location, self.lake.state.io(lake_table), sought)
                having = {path for paths in searched.places.values() for path in paths}
                return searched, having, referenced_files(searched.table, searched.io)

        searched, having, used = retrying(look, _ATTEMPTS, TableMoved, pause_seconds=0.2)  # upkeep has removed a file
        files = list(searched.files())
        having |= {file.location for file in files if file.info.path not in used and searched.is_in(file)}
        size = sum(file.info.size for file in files)
        tags = tuple(sorted(name for name, is_tag in searched.refs.items() if is_tag))
        return SearchedFiles(str(life), len(files), size, tuple(sorted(having)), tags)

    def untag(self, life: Life, tag: str) -> None:
        """Remove a tag of a table."""
        self.lake.workbench.untag(life, tag)

    # --- stages and records ---

    def quarantined(self) -> tuple[QuarantinedRow, ...]:
        """Return the open records of the quarantine, with their bytes and keys."""
        return self.lake.workbench.records.read(raw=True)

    def forget_stages(self, targets: Mapping[Life, WantedKeys], has: HasKeys) -> int:
        """Remove the stages that have rows of the keys, and old ones that cannot be read; return how many.

        The run at work on one was planned before, and is refused by its table. What cannot be read and is young may be
        a stage that is written just now.
        """
        removed = 0
        for path, (io, files) in stages(self.lake, targets).items():
            is_old = age_of(path) > STALE_SECONDS
            if any(stage_has_keys(file, targets, has, unread=is_old) for file in files):
                discard(io, path)
                removed += 1
        return removed

    def search_stages(self, targets: Mapping[Life, WantedKeys], has: HasKeys) -> SearchedFiles:
        """Search the staged files of uncommitted windows; return those that have rows of the keys, or may have."""
        files = [file for _, some in stages(self.lake, targets).values() for file in some]
        having = tuple(file.location for file in files if stage_has_keys(file, targets, has, unread=True))
        return SearchedFiles("stages", len(files), sum(file.info.size for file in files), having)

    def forget_records(self, has: HasKeys, may_have: HasKeys) -> tuple[str, ...]:
        """Remove the records of the quarantine that have what is to be forgotten; return where they stand.

        Of those that are not open any more, also such as may have it.
        """
        records = self.lake.workbench.records.remove(has, may_have)
        return tuple(f"{file} line {line}" for file, line in records)

    def search_records(self, has: HasKeys) -> SearchedFiles:
        """Read every file of the quarantine, and tell which have such records."""
        return SearchedFiles("quarantine", *self.lake.workbench.records.search(has))


@contextmanager
def _undisturbed(life: Life) -> Iterator[None]:
    """Raise TableMoved where upkeep or another run has removed a file that was to be read."""
    try:
        yield
    except FileNotFoundError as gone:
        raise TableMoved(f"{life}: a file was removed meanwhile ({gone}). Run it again.", table=str(life)) from gone


def _expired(work: Work, life: Life, snapshots: Collection[int]) -> tuple[Any, set[int]]:
    """Expire snapshots, but for those that have got a tag since they were searched: it keeps them, as a cut does.

    Returns the table, and the snapshots that expired.
    """

    def attempt() -> tuple[Any, set[int]]:
        with races(str(life)):
            table = work.session.load(work.lake_table.identifier)
            refs = table.refs()
            expired = {*snapshots} - {int(refs[name].snapshotId()) for name in refs}
            expire(table, expired)
            return table, expired

    return retrying(attempt, _ATTEMPTS, TableMoved, pause_seconds=0.2)


def _sweep(searched: SearchedTable, metadata_location: str) -> int:
    """Remove metadata files, and files with the keys, that are older than the newest one and that it does not refer to.

    Return how many. No commit can take them in any more: it would be of a state from before, and is refused.
    """
    system, newest = storage(searched.io, metadata_location)
    used, removed = {newest, *referenced_files(searched.table, searched.io)}, 0
    written = system.get_file_info(newest).mtime
    for file in searched.files():
        is_old = file.info.path not in used and file.info.mtime < written
        if is_old and (file.location.endswith(".metadata.json") or searched.is_in(file)):
            with suppress(FileNotFoundError):
                file.system.delete_file(file.info.path)
            removed += 1
    for root in searched.roots:
        _remove_empty_partitions(searched.io, root)
    return removed


def _remove_empty_partitions(io: Mapping[str, str], root: str) -> None:
    """Remove the directories of partitions without files: their names are values of rows. Object stores have none."""
    system, path = storage(io, root)
    if isinstance(system, LocalFileSystem):
        for directory, _, _ in os.walk(path, topdown=False):
            if "=" in os.path.basename(directory):
                with suppress(OSError):  # one that has files
                    os.rmdir(directory)
