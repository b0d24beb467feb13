"""Snapshots of a table made anew without some rows, with the labels that they have, in one transaction.

Data files are written anew row group by row group, and no others. Manifests keep the bounds of a removed file's
columns, so those that mention one are written anew, too.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cdc_assets.lake.commit import data_file, guard, set_properties
from cdc_assets.lake.commit_stage import STAGED
from cdc_assets.lake.failures import answering
from cdc_assets.lake.forgetting.rows import RowNumbers
from cdc_assets.lake.forgetting.searched_table import SearchedTable
from cdc_assets.lake.label import Label
from cdc_assets.lake.lake_table import FORGOTTEN, REPLAY
from cdc_assets.lake.metadata_file import MetadataFile
from cdc_assets.lake.staging.storage import make_directory, storage
from cdc_assets.lake.staging.tasks import DataFileWritten

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

    from cdc_assets.lake.state import LakeState
    from cdc_assets.lake.workbench import Work

__all__ = ["Remaking"]

_Gone = bytes
"""The numbers of the rows that a copy of a file lacks."""


@dataclass
class Remaking:
    """Makes main and tags of a table anew. `properties` are such that the table has from then on.

    `files` and `bytes` count what was written, `passing` are snapshots that were needed on the way only.
    """

    state: LakeState
    work: Work
    searched: SearchedTable
    properties: Mapping[str, str]
    files: int = 0
    bytes: int = 0
    passing: list[int] = field(default_factory=list)
    _copies: dict[tuple[str, _Gone], DataFileWritten | None] = field(default_factory=dict)

    @cached_property
    def _metadata(self) -> MetadataFile:
        return self.state.file(self.work.lake_table.metadata_location)

    def commit(self, tagged: Mapping[int, Sequence[str]]) -> dict[int, int]:
        """Make main anew, and the snapshots with these tags; return the tagged ones by those whose place they take.

        Raises TableMoved where another writer commits meanwhile.
        """
        transaction = self.work.session.iceberg.transaction(self.work.target.table)
        guard(self.work.target, transaction)
        made: dict[int, int] = {}
        for snapshot_id, names in tagged.items():
            label = self.state.label_of(self.work.lake_table, snapshot_id)
            made[snapshot_id] = self._remade(transaction, snapshot_id, label)
            for name in names:
                transaction.manageSnapshots().replaceTag(name, made[snapshot_id]).commit()
        if (main := self._metadata.snapshot) is not None:
            self._turn_to(transaction, main.snapshot_id)
            if main.snapshot_id in self.searched.stale:
                self._remade(transaction, main.snapshot_id, self.work.label)
            elif self.searched.stale and Label.parse(main.summary) is None:
                self._commit(transaction.newFastAppend(), self.work.label)  # the newest label may be one that expires
        set_properties(transaction, self.properties)
        transaction.commitTransaction()
        return made

    def _remade(self, transaction: Any, snapshot_id: int, label: Label) -> int:
        """Make a snapshot anew without the rows, with the columns that it has, and make it that of main."""
        self._turn_to(transaction, snapshot_id)
        files = self.searched.mentioned[snapshot_id].files
        if holding := sorted(self.searched.holding & files.keys()):
            hidden, change = self.searched.hidden(snapshot_id, holding), transaction.newOverwrite()
            for path in holding:
                spec = self.work.target.table.specs().get(files[path].spec_id)
                partition = self.searched.partition_of(files[path])
                change.deleteFile(self._described(files[path], partition, spec))
                gone = np.union1d(self.searched.rows[path], hidden.get(path, np.empty(0, np.int64)))
                if (written := self._written(path, gone, partition)) is not None:
                    change.addFile(data_file(self.work.target, transaction.table(), written, spec))
            self._commit(change, label)
            self.passing.append(_newest_of(transaction))
        self._without_removed(transaction, label)
        return _newest_of(transaction)

    def _turn_to(self, transaction: Any, snapshot_id: int) -> None:
        """Let a snapshot be that of main within the transaction, with its own columns."""
        current = transaction.table().currentSnapshot()
        if current is None or int(current.snapshotId()) != snapshot_id:
            transaction.manageSnapshots().setCurrentSnapshot(snapshot_id).commit()
        table = self.searched.table
        snapshot = None if snapshot_id == self._metadata.snapshot_id else table.snapshot_by_id(snapshot_id)
        schema = table.metadata.current_schema_id if snapshot is None else snapshot.schema_id
        if schema is not None and schema != int(transaction.table().schema().schemaId()):
            operations = transaction.table().operations()
            builder = self.work.session.iceberg.java("org.apache.iceberg.TableMetadata")
            changed = builder.buildFrom(operations.current()).setCurrentSchema(schema).build()
            operations.commit(operations.current(), changed)

    def _described(self, file: DataFile, partition: str, spec: Any) -> Any:
        """Return a data file as Iceberg's API has it, as far as that is needed to remove it from a snapshot."""
        builder = self.work.session.iceberg.java("org.apache.iceberg.DataFiles").builder(spec)
        builder = builder.withPath(file.file_path).withFormat("parquet").withRecordCount(file.record_count)
        builder = builder.withFileSizeInBytes(file.file_size_in_bytes)
        return (builder.withPartitionPath(partition) if partition else builder).build()

    def _written(self, path: str, gone: RowNumbers, partition: str) -> DataFileWritten | None:
        """Write a data file anew without some rows, once for all snapshots; None where none is left."""
        copy = path, gone.tobytes()
        if copy not in self._copies:
            self._copies[copy] = self._copied(path, gone, partition)
        return self._copies[copy]

    def _copied(self, path: str, gone: RowNumbers, partition: str) -> DataFileWritten | None:
        location = f"{path.rsplit('/', 1)[0]}/cdc-{int(time.time())}-{uuid.uuid4().hex}.parquet"
        size = _copy_without(self.searched.io, path, location, gone)
        if not size:
            return None
        self.files, self.bytes = self.files + 1, self.bytes + size
        return DataFileWritten(location, size, partition)

    def _without_removed(self, transaction: Any, label: Label) -> None:
        """Write manifests anew that mention files which were removed: they have the bounds of these."""
        java = self.work.session.iceberg.java
        manifests = transaction.table().currentSnapshot().dataManifests(transaction.table().io())
        kinds, chosen = java("java.util.function.Predicate"), None
        for number in range(manifests.size()):
            if manifests.get(number).hasDeletedFiles():
                same = kinds.isEqual(manifests.get(number))
                chosen = same if chosen is None else getattr(chosen, "or")(same)
        if chosen is not None:
            together = java("com.google.common.base.Functions").constant("")
            self._commit(transaction.rewriteManifests().clusterBy(together).rewriteIf(chosen), label)

    def _commit(self, change: Any, label: Label) -> None:
        """Commit a change within the transaction, with a label and what the newest snapshots say of runs."""
        said = {**self._marks, **label.properties(), FORGOTTEN: self.properties[FORGOTTEN]}
        for name, value in said.items():
            change.set(name, value)
        change.commit()

    @cached_property
    def _marks(self) -> dict[str, str]:
        """The newest marks by which a run that was killed knows that it was committed."""
        snapshots = sorted(self._metadata.snapshots.values(), key=lambda snapshot: snapshot.made_ms)
        return {name: one.summary[name] for one in snapshots for name in (STAGED, REPLAY) if name in one.summary}


def _newest_of(transaction: Any) -> int:
    return int(transaction.table().currentSnapshot().snapshotId())


def _copy_without(io: Mapping[str, str], path: str, location: str, gone: RowNumbers) -> int:
    """Copy a Parquet file row group by row group without some rows, and return its bytes; 0, and no file, for none."""
    (system, old), (_, new) = storage(io, path), storage(io, location)
    with answering(), system.open_input_file(old) as source:
        file = pq.ParquetFile(source)
        if len(gone) >= file.metadata.num_rows:
            return 0
        make_directory(system, new.rsplit("/", 1)[0])
        with system.open_output_stream(new) as sink:
            with pq.ParquetWriter(sink, file.schema_arrow, **_as_written(file)) as writer:
                start = 0
                for group in range(file.num_row_groups):
                    rows = file.read_row_group(group)
                    kept = np.ones(rows.num_rows, np.bool_)
                    kept[gone[(gone >= start) & (gone < start + rows.num_rows)] - start] = False
                    start += rows.num_rows
                    rows = rows if kept.all() else rows.filter(pa.array(kept))
                    if rows.num_rows:
                        writer.write_table(rows, row_group_size=rows.num_rows)
            return int(sink.tell())


def _as_written(file: pq.ParquetFile) -> dict[str, Any]:
    """Return the options with which a file was written, to write another one alike."""
    columns = [file.metadata.row_group(0).column(number) for number in range(file.metadata.num_columns)]
    kinds = [file.schema.column(number) for number in range(file.metadata.num_columns)]
    whole = any(one.logical_type.type == "DECIMAL" and one.physical_type.startswith("INT") for one in kinds)
    codec = columns[0].compression.lower()
    return {"compression": "none" if codec == "uncompressed" else codec, "store_decimal_as_integer": whole}
