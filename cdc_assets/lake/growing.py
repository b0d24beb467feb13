"""A table of the lake itself that only grows: finished Parquet files, appended in guarded commits, without a JVM.

PyIceberg writes it, in format version 2: there are no deletes, no schema changes and no defaults, and landing messages
every few seconds must not wait for a JVM. Each file is of one part (the column of that name), by which the table is
partitioned, and holds row groups as they were given. Iceberg's own retries are off: they would commit again what
another writer has appended meanwhile. Here a commit is retried only while `still` allows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import RemoveSnapshotsUpdate

from cdc_assets.errors import CdcError, TableMoved
from cdc_assets.lake.catalogs.catalog import LazyCatalog, entry, io_of
from cdc_assets.lake.failures import answering
from cdc_assets.lake.names import Identifier
from cdc_assets.lake.namespaces import ensure_namespace
from cdc_assets.lake.row_groups import RowFiles, RowGroups, WrittenFile, read_rows
from cdc_assets.lake.staging.storage import storage
from cdc_assets.lake.table_files import referenced_files, stored_files
from cdc_assets.settings.lake import LakeSettings

_PROPERTIES = {
    "format-version": "2",
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "50",
    "write.metadata.metrics.default": "none",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    "write.parquet.compression-codec": "zstd",
}
_ATTEMPTS = 10
_MOST_PAST = 16
"""Snapshots to which files were only added that may be there: a commit writes all snapshots, and tells of each."""


@dataclass(frozen=True, slots=True)
class AppendOnlyState:
    """The table's current state: its id, the files of each part in commit order, and the newest commit's properties.

    `properties` are those of the newest snapshot that has any with the prefix of the table; `at_ms` is when it was
    committed.
    """

    identity: str
    files: Mapping[str, tuple[str, ...]]
    properties: Mapping[str, str]
    at_ms: int = 0


class _Commit(Transaction):
    """A transaction that copies the table's metadata only once it has changes of its own, and deletes no file.

    PyIceberg copies the metadata, with all snapshots, at each of 16 looks: more work than the rest of a commit. It
    deletes the manifests of a commit that a catalog refuses; but a client or proxy that lost the answer asks again, and
    is refused because the commit took effect. Files that no snapshot has are removed by `remove_unreferenced`.
    """

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata with the changes so far."""
        return super().table_metadata if self._updates else self._table.metadata

    def _register_snapshot_producer(self, producer: Any) -> None:
        """Leave a snapshot's manifests where they are, whatever comes of the commit."""

    def remove(self, snapshots: Iterable[int]) -> None:
        """Remove snapshots: each in a change of its own, since catalogs on Iceberg 1.9 and before take no list."""
        for snapshot in snapshots:
            self._apply((RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [snapshot]}),))


class GrowingTable:
    """One such table. `part` is the column that partitions it, `location` its directory; `schema` creates it.

    Properties of commits begin with `prefix`. The table is created by its first commit. `catalog` is that of an owner
    who has one open.
    """

    def __init__(
        self,
        settings: LakeSettings,
        identifier: Identifier,
        schema: pa.Schema | None,
        part: str,
        prefix: str,
        location: str,
        catalog: LazyCatalog | None = None,
    ) -> None:
        self.settings = settings
        self.identifier = identifier
        self.location = location
        self._schema, self._part, self._prefix = schema, part, prefix
        self._lazy = catalog or LazyCatalog(settings)
        self._manifests: dict[str, tuple[tuple[str, str, int], ...]] = {}
        self._looked: tuple[str, AppendOnlyState] | None = None
        self._most_past = _MOST_PAST

    @property
    def io(self) -> dict[str, str]:
        """PyIceberg's properties for the table's files; of a catalog that vends credentials, once it was created."""
        place = entry(self._catalog, self.identifier) if self.settings.kind.vends else None
        if place is None:
            return self.settings.pyiceberg_properties()
        return io_of(self._catalog, self.identifier, place)

    @property
    def fetch(self) -> RowGroups:
        """Reads row groups of its files."""
        return RowGroups(self.io)

    # --- looking ---

    def look(self) -> AppendOnlyState | None:
        """Return the table's current state, None before it was created; an unchanged state is not read again."""
        place = entry(self._catalog, self.identifier)
        if place is None:
            return None
        if self._looked is None or self._looked[0] != place:
            self._looked = (place, self._grown(self.load()))
        return self._looked[1]

    def _grown(self, table: Table) -> AppendOnlyState:
        snapshot = table.current_snapshot()
        entries: list[tuple[int, str, str]] = []
        cached_entries: dict[str, tuple[tuple[str, str, int], ...]] = {}
        if snapshot is not None:
            for manifest in snapshot.manifests(table.io):
                path = manifest.manifest_path
                if manifest.content == ManifestContent.DATA:
                    cached_entries[path] = self._manifests.get(path) or tuple(
                        (entry.data_file.file_path, str(entry.data_file.partition[0]), int(entry.sequence_number or 0))
                        for entry in manifest.fetch_manifest_entry(table.io)
                    )
                    entries += [(sequence, location, part) for location, part, sequence in cached_entries[path]]
        self._manifests = cached_entries
        files: dict[str, list[str]] = {}
        for _, location, part in sorted(entries):
            files.setdefault(part, []).append(location)
        properties, at_ms = self._said(table)
        return AppendOnlyState(
            str(table.metadata.table_uuid), {part: tuple(some) for part, some in files.items()}, properties, at_ms
        )

    def _said(self, table: Table) -> tuple[dict[str, str], int]:
        snapshot = table.current_snapshot()
        while snapshot is not None:
            summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
            properties = {key: value for key, value in summary.items() if key.startswith(self._prefix)}
            if properties:
                return properties, snapshot.timestamp_ms
            parent = snapshot.parent_snapshot_id
            snapshot = table.metadata.snapshot_by_id(parent) if parent is not None else None
        return {}, 0

    # --- writing ---

    def files(self, part: str) -> RowFiles:
        """Return the writer of data files of a part, for use in any task; the table is created if there is none."""
        schema = schema_to_pyarrow(self._table().schema())
        return RowFiles(self.io, f"{self.location}/data/{self._part}={part}", schema)

    def write(self, part: str, groups: Iterable[pa.Table]) -> WrittenFile:
        """Write rows as a data file of the table with these row groups, each as it comes; raises LakeUnavailable.

        What `groups` raises is raised, and no file is left then.
        """
        return self.files(part).write(groups)

    def read(self, location: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows of a file, with these columns only if any are named."""
        return read_rows(self.io, location, columns)

    def remove(self, files: Sequence[WrittenFile]) -> None:
        """Remove files that were never committed."""
        for file in files:
            system, path = storage(self.io, file.location)
            with suppress(OSError):
                system.delete_file(path)

    def append(
        self, files: Sequence[WrittenFile], properties: Mapping[str, str], still: Callable[[Mapping[str, str]], bool]
    ) -> None:
        """Add files in one commit with these properties.

        `still` is called with the newest commit's properties before each attempt. Raises TableMoved if it returns
        False; `unsettled` if it is not known whether the commit took effect, so that the files have to stay.
        """
        self.replace(files, (), properties, still)

    def add(self, part: str, groups: Iterable[pa.Table]) -> None:
        """Append rows as a file, whatever others append meanwhile; no file is left where that fails.

        Raises what `write` and `append` raise.
        """
        file = self.write(part, groups)
        try:
            self.append([file], {}, lambda _: True)
        except TableMoved as error:
            if not error.where.get("unsettled"):
                self.remove([file])
            raise

    def replace(
        self,
        files: Sequence[WrittenFile],
        old: Sequence[str],
        properties: Mapping[str, str],
        still: Callable[[Mapping[str, str]], bool],
    ) -> None:
        """Replace files by others in one commit; raises what `append` raises, and TableMoved where one is not there."""
        for attempt in range(_ATTEMPTS):
            table = self._table()
            if attempt and self._has(table, files):  # a client whose answer was lost asks again, and is refused then
                self._looked = None
                return
            if not still(self._said(table)[0]):
                raise TableMoved(f"{'.'.join(self.identifier)}: another run committed first. Look again.")
            try:
                with answering():
                    self.try_once(table, files, old, properties)
            except CommitFailedException:
                continue
            except CommitStateUnknownException as error:
                name = ".".join(self.identifier)
                raise TableMoved(f"{name}: a commit may have taken effect ({error}).", unsettled=True) from error
            self._looked = None
            self._thin_out(table, properties)
            return
        raise self._never_free()

    def _never_free(self) -> TableMoved:
        return TableMoved(f"{'.'.join(self.identifier)}: others commit all the time. Try again.")

    def _has(self, table: Table, files: Sequence[WrittenFile]) -> bool:
        known_locations = {location for some in self._grown(table).files.values() for location in some}
        return any(file.location in known_locations for file in files)

    def try_once(
        self, table: Table, files: Sequence[WrittenFile], old: Sequence[str], properties: Mapping[str, str]
    ) -> None:
        """Commit against the table as loaded; raises PyIceberg's exceptions if it has moved.

        Raises TableMoved where an old file is not in it any more: its rows are in another one, and would stand twice.
        """
        gone = frozenset(old)
        leaving = _leaving(table, gone) if gone else []
        work = _Commit(table)
        with work:
            update = work.update_snapshot(snapshot_properties=dict(properties))
            snapshot: Any = update.overwrite() if gone else update.merge_append()
            with snapshot as change:
                for file in files:
                    change.append_data_file(parquet_file_to_data_file(table.io, table.metadata, file.location))
                for data_file in leaving:
                    change.delete_data_file(data_file)

    def _thin_out(self, table: Table, properties: Mapping[str, str]) -> None:
        """Remove snapshots to which files were only added, once there are many, after a commit with `properties`.

        A catalog may refuse it (Nessie does), and others may do the same: the commit that was made does not depend on
        it. After a refusal twice as many may be there.
        """
        if properties and len(self._appended_to(table.metadata)) >= self._most_past:
            try:
                self._remove_snapshots(self._appended_to)
            except (CdcError, CommitFailedException, RESTError):
                self._most_past *= 2

    def _appended_to(self, metadata: TableMetadata) -> list[int]:
        """Return the snapshots that only lack files of the next one, which has properties of its own.

        Those before a replacement keep its old files.
        """
        parents = set[int | None]()
        for snapshot in metadata.snapshots:
            summary = snapshot.summary
            if summary is not None and summary.operation is Operation.APPEND:
                has_own = any(key.startswith(self._prefix) for key in summary.additional_properties)
                parents.add(snapshot.parent_snapshot_id if has_own else None)
        return [snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id in parents]

    def _remove_snapshots(self, choose: Callable[[TableMetadata], list[int]]) -> None:
        """Remove the chosen snapshots, but for those with a name; raises CommitFailedException in a race."""
        table = self.load()
        named = {ref.snapshot_id for ref in table.metadata.refs.values()}
        chosen = [snapshot_id for snapshot_id in choose(table.metadata) if snapshot_id not in named]
        work = _Commit(table)
        try:
            with answering(), work:
                work.remove(chosen)
        except ValueError as error:  # PyIceberg's word on a snapshot that is not there any more
            if {snapshot.snapshot_id for snapshot in self.load().metadata.snapshots}.issuperset(chosen):
                raise
            raise CommitFailedException(str(error)) from error
        self._looked = None

    # --- upkeep ---

    def compact(self, file_bytes: int) -> None:
        """Put the rows of files below a size, in their order, into one file of each part: nothing is left out.

        Raises TableMoved where another run does the same.
        """
        state = self.look()
        for part, files in state.files.items() if state is not None else ():
            small = [file for file in files if self._size(file) < file_bytes]
            if len(small) > 1:
                written = self.write(part, (self.read(file) for file in small))
                self.replace([written], small, {}, lambda _: True)

    def _size(self, location: str) -> int:
        system, path = storage(self.io, location)
        return int(system.get_file_info(path).size or 0)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties of the table; raises TableMoved where another run comes between."""
        try:
            with answering(), self.load().transaction() as work:
                work.set_properties(dict(properties))
        except CommitFailedException as error:
            raise TableMoved(f"{'.'.join(self.identifier)}: another run committed first. Look again.") from error

    def expire(self, before_ms: int) -> None:
        """Expire snapshots older than `before_ms`, but for the newest and those with a name.

        Raises TableMoved where others commit all the time.
        """

        def is_old(metadata: TableMetadata) -> list[int]:
            return [snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.timestamp_ms < before_ms]

        for _ in range(_ATTEMPTS):
            with suppress(CommitFailedException):
                self._remove_snapshots(is_old)
                return
        raise self._never_free()

    def filter(self, part: str, keep: Callable[[pa.Table], pa.Array]) -> int:
        """Write files of a part anew without the rows that are not kept, and remove the old ones; return how many rows.

        `keep` marks the rows of a file that stay. Repeated after a crash, it does what is left. Raises TableMoved where
        another run replaces the same files.
        """
        state, dropped = self.look(), 0
        for file in state.files.get(part, ()) if state is not None else ():
            rows = self.read(file)
            mask = keep(rows)
            if removed := rows.num_rows - pc.sum(mask).as_py():
                rows = rows.filter(mask)
                self.replace([self.write(part, [rows])] if rows.num_rows else [], [file], {}, lambda _: True)
                dropped += removed
        self.drop_past()
        return dropped

    def drop_past(self) -> None:
        """Remove all that only earlier states of the table have: their data files, then their snapshots.

        A crash in between leaves snapshots without files, which the next call removes.
        """
        if self.look() is None:
            return
        table = self.load()
        current = table.metadata.current_snapshot_id
        files: dict[bool, set[str]] = {True: set(), False: set()}
        for snapshot in table.metadata.snapshots:
            for manifest in snapshot.manifests(table.io):
                entries = manifest.fetch_manifest_entry(table.io)
                files[snapshot.snapshot_id == current].update(entry.data_file.file_path for entry in entries)
        self.remove([WrittenFile(file, 0) for file in files[False] - files[True]])
        self.expire(int(time.time() * 1000) + 1)

    def stored_files(self) -> Iterator[tuple[str, int]]:
        """Yield the files below the table's directory, whatever refers to them, each with its bytes."""
        for file in stored_files(self.io, self.location):
            yield file.location, file.info.size

    def remove_unreferenced(self, before_ms: int) -> int:
        """Remove files below the table's directory that no snapshot refers to and that are older; return how many."""
        used, removed = referenced_files(self.load(), self.io), 0
        for file in stored_files(self.io, self.location):
            is_own_file = file.location.endswith((".parquet", ".avro"))
            if is_own_file and file.info.path not in used and file.info.mtime.timestamp() * 1000 < before_ms:
                with suppress(OSError):
                    file.system.delete_file(file.info.path)
                    removed += 1
        return removed

    # --- the catalog ---

    @property
    def _catalog(self) -> Catalog:
        return self._lazy.open()

    def close(self) -> None:
        """Close the catalog's connections."""
        self._lazy.close()

    def load(self) -> Table:
        """Return the table as PyIceberg has it now."""
        with answering():
            return self._catalog.load_table(self.identifier)

    def _table(self) -> Table:
        """Return the table, created if there is none."""
        if entry(self._catalog, self.identifier) is None:
            ensure_namespace(self._lazy.make(), self.identifier[0])
            with suppress(TableAlreadyExistsError, CommitFailedException), answering():
                self._create()
        return self.load()

    def _create(self) -> None:
        properties = {**_PROPERTIES, f"write.metadata.metrics.column.{self._part}": "full"}
        with (
            self._catalog.create_table_transaction(
                self.identifier, self._schema, location=self.location, properties=properties
            ) as work,
            work.update_spec() as spec,
        ):
            spec.add_identity(self._part)


def _leaving(table: Table, gone: frozenset[str]) -> list[Any]:
    """Return files of a table as it was loaded. Raises TableMoved where one is not in it any more."""
    current = table.current_snapshot()
    manifests = current.manifests(table.io) if current is not None else []
    entries = (entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io))
    data_files = [entry.data_file for entry in entries if entry.data_file.file_path in gone]
    if len(data_files) < len(gone):
        raise TableMoved(f"{'.'.join(table.name())}: another run has replaced the same files. Look again.")
    return data_files
