"""A table's snapshots and files, and which of them have rows of keys. Read with PyIceberg."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from pyiceberg.io.pyarrow import _read_all_delete_files
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import StaticTable
from pyiceberg.types import PrimitiveType

from cdc_assets.lake.failures import answering
from cdc_assets.lake.forgetting.rows import KeyRows, RowNumbers
from cdc_assets.lake.staging.storage import storage
from cdc_assets.lake.staging.tasks import NULL_PARTITION
from cdc_assets.lake.table_files import StoredFile, stored_files

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

    from cdc_assets.decoding.keyed_rows import WantedKeys

__all__ = ["SearchedTable"]


@dataclass
class _Mentioned:
    """Data files that manifests mention: such that are in a snapshot, and such that were removed by its time."""

    files: dict[str, DataFile] = field(default_factory=dict)
    removed: dict[str, DataFile] = field(default_factory=dict)


@dataclass(frozen=True)
class SearchedTable:
    """A table by one of its metadata files. What it has is read when it is asked for, and once."""

    table: StaticTable
    io: Mapping[str, str]
    keys: KeyRows

    @classmethod
    def open(cls, metadata_location: str, io: Mapping[str, str], keys: WantedKeys) -> SearchedTable:
        """Return the table of a metadata file, to be searched for keys. `io` are PyIceberg's properties."""
        with answering():
            table = StaticTable.from_metadata(metadata_location, dict(io))
        types: dict[int, dict[str, PrimitiveType]] = {}
        for schema in table.schemas().values():
            for column in schema.fields:
                if isinstance(column.field_type, PrimitiveType):
                    types.setdefault(column.field_id, {})[str(column.field_type)] = column.field_type
        kinds = {number: tuple(kinds.values()) for number, kinds in types.items()}
        return cls(table, io, KeyRows(keys.keys, keys.schema, table.schema(), kinds))

    # --- snapshots ---

    @cached_property
    def mentioned(self) -> dict[int, _Mentioned]:
        """The data files that each snapshot's manifests mention; snapshots share manifests, and each is read once."""
        manifests: dict[str, _Mentioned] = {}
        snapshots = {}
        with answering():
            for snapshot in self.table.metadata.snapshots:
                every = snapshots[snapshot.snapshot_id] = _Mentioned()
                for manifest in snapshot.manifests(self.table.io):
                    if manifest.content == ManifestContent.DATA:
                        if manifest.manifest_path not in manifests:
                            manifests[manifest.manifest_path] = self._mentioned_in(manifest)
                        every.files.update(manifests[manifest.manifest_path].files)
                        every.removed.update(manifests[manifest.manifest_path].removed)
        return snapshots

    def _mentioned_in(self, manifest: ManifestFile) -> _Mentioned:
        mentioned = _Mentioned()
        for entry in manifest.fetch_manifest_entry(self.table.io, discard_deleted=False):
            if entry.data_file.content == DataFileContent.DATA:
                is_removed = entry.status == ManifestEntryStatus.DELETED
                files = mentioned.removed if is_removed else mentioned.files
                files[entry.data_file.file_path] = entry.data_file
        return mentioned

    @cached_property
    def rows(self) -> dict[str, RowNumbers]:
        """The rows of the keys in every data file that any snapshot has, hidden ones too; empty for a file without."""
        files = {path: file for mentioned in self.mentioned.values() for path, file in mentioned.files.items()}
        return {
            path: self.keys.in_file(*storage(self.io, path)) if self.keys.may_be_in(file) else np.empty(0, np.int64)
            for path, file in files.items()
        }

    @cached_property
    def holding(self) -> frozenset[str]:
        """The data files that have rows of the keys."""
        return frozenset(path for path, rows in self.rows.items() if len(rows))

    @cached_property
    def keys_there(self) -> frozenset[int]:
        """The keys, by their number, of which a data file has rows."""
        files = ((*storage(self.io, path), self.rows[path]) for path in self.holding)
        return frozenset(number for file in files for number in self.keys.keys_in_file(*file))

    @cached_property
    def stale(self) -> frozenset[int]:
        """The snapshots that have a row of the keys, or a manifest with the bounds of a file that may have had one.

        What was in a removed file is not known once it is gone.
        """

        def has(mentioned: _Mentioned) -> bool:
            return not self.holding.isdisjoint(mentioned.files) or any(
                path in self.holding or (path not in self.rows and self.keys.may_be_in(file))
                for path, file in mentioned.removed.items()
            )

        return frozenset(snapshot_id for snapshot_id, mentioned in self.mentioned.items() if has(mentioned))

    def hidden(self, snapshot_id: int, paths: Collection[str]) -> dict[str, RowNumbers]:
        """Return which rows of data files deletion vectors hide in a snapshot."""
        with answering():
            tasks = [t for t in self.table.scan(snapshot_id=snapshot_id).plan_files() if t.file.file_path in paths]
            deletes = _read_all_delete_files(self.table.io, tasks)
        return {
            path: np.concatenate([some.to_numpy() for some in hidden]).astype(np.int64)
            for path, hidden in deletes.items()
        }

    def partition_of(self, file: DataFile) -> str:
        """Return the partition of a data file as Iceberg's paths have it."""
        spec = self.table.specs()[file.spec_id]
        if not spec.fields:
            return ""
        parts = spec.partition_to_path(file.partition, self.table.schema()).split("/")
        return "/".join(
            f"{part.partition('=')[0]}={NULL_PARTITION}" if file.partition[number] is None else part
            for number, part in enumerate(parts)
        )

    # --- files ---

    def files(self) -> Iterator[StoredFile]:
        """Yield the files below the table's directories, whether anything refers to them or not."""
        metadata = self.table.metadata
        others = (metadata.properties.get(name) for name in ("write.data.path", "write.metadata.path"))
        roots = {root.rstrip("/") for root in (metadata.location, *others) if root}
        for root in sorted(root for root in roots if not any(root.startswith(f"{other}/") for other in roots)):
            yield from stored_files(self.io, root)

    def is_left_in(self, file: StoredFile, clean: Collection[str] = ()) -> bool:
        """Return whether a file has the keys.

        Of data files the columns of the key are compared by their types; manifests must not show a key as a bound of a
        file that is not `clean`, and in all other bytes values of eight bytes and more are looked for.
        """
        with suppress(FileNotFoundError):  # upkeep, or whoever wrote it, has removed it
            if file.location.endswith(".parquet"):
                return bool(len(self.keys.in_file(file.system, file.info.path)))
            with answering(), file.system.open_input_stream(file.info.path) as source:
                data = source.read()
            has_token = any(token in data for token in self.keys.tokens)
            is_manifest = file.location.endswith(".avro") and not file.info.base_name.startswith("snap-")
            return has_token or (is_manifest and self._is_bound_in(file.location, len(data), clean))
        return False

    def _is_bound_in(self, location: str, size: int, clean: Collection[str]) -> bool:
        manifest = ManifestFile.from_args(
            manifest_path=location, manifest_length=size, content=ManifestContent.DATA, partition_spec_id=0,
            sequence_number=0, min_sequence_number=0, added_snapshot_id=0,
        )  # fmt: skip
        with answering():
            entries = manifest.fetch_manifest_entry(self.table.io, discard_deleted=False)
        return any(
            self.keys.is_shown(entry.data_file)
            for entry in entries
            if storage(self.io, entry.data_file.file_path)[1] not in clean
        )
