"""Small data files of a table put together, and what deletion vectors hide left out, without Spark.

Every small window brings a data file, and hides rows of those before it. So each `EVERY`-th file the writer of windows
puts those together that cost readers and the next windows more than they hold: what is small, and what is hidden for a
good part. A larger file joins only where the smaller ones come to a quarter of it, so a row is written a few times and
not at every turn. What is too large, or has other columns, is left to Spark, once it is overdue, and to maintenance.

It is the same rows, with their row ids, in a snapshot of its own without a label. Done by whoever writes the table it
loses no race against its windows, as a compaction beside them does.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap

from cdc_assets.formats.decoded import POSITION
from cdc_assets.lake.commit import CommitTarget, data_file
from cdc_assets.lake.row_delta import PlannedFile, field_id, hidden_rows, plain_table, planned_files
from cdc_assets.lake.staging.storage import storage
from cdc_assets.lake.staging.tasks import StagePlace, write_data_files
from cdc_assets.model.steps import ApplyRows

EVERY = 16
"""Looked at whenever the count of a table's data files passes a multiple of this."""

_BYTES, _ROWS = 32 << 20, 1_000_000
"""The most bytes and rows that are put together at once, in memory."""

_SMALL = 1 << 20
"""Bytes of a file that is always worth it."""

_TIER = 4
_HIDDEN = 0.15
"""A file is written anew where so many of its rows are hidden: every reader has to skip them."""

_ROW_ID, _SEQUENCE = 2147483540, 2147483539
_LINEAGE = {_ROW_ID: "_row_id", _SEQUENCE: "_last_updated_sequence_number"}
"""Iceberg's reserved field ids of a row's id, and of the sequence number of its last change."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A data file with its bytes, and the rows that are hidden in it."""

    planned: PlannedFile
    file_bytes: int
    hidden: int

    @property
    def mostly_hidden(self) -> bool:
        return self.hidden >= _HIDDEN * self.planned.rows


def compact(target: CommitTarget, step: ApplyRows, io: Mapping[str, str]) -> bool:
    """Put data files of a step's table together, and return whether there were any; `io` are PyIceberg's properties.

    Raises TableMoved where another writer changed them meanwhile, LakeUnavailable, OSError, ArrowException or
    ValueError where one cannot be read or written: nothing is committed then, and what was written is an orphan.
    """
    table, snapshot = plain_table(target), target.table.currentSnapshot()
    scan = target.table.newScan().useSnapshot(snapshot.snapshotId())
    planned = None if table is None else planned_files(target.session.iceberg.java, scan)
    if table is None or not planned:
        return False
    names = {number: name for name, (_, number, _) in table.columns.items()}
    files = _chosen(planned)
    ids = set(names)
    # Files are chosen that have all columns of the table, each in the type that it has in the newest such file.
    kinds: dict[int, pa.DataType] = {}
    chosen = []
    for candidate in sorted(files, key=lambda candidate: -int(candidate.planned.file.dataSequenceNumber())):
        system, path = storage(io, candidate.planned.path)
        with system.open_input_file(path) as source:
            own = {field_id(field): field.type for field in pq.ParquetFile(source).schema_arrow}
        lineage = {number: own.pop(number) for number in _LINEAGE if number in own}
        kinds = kinds or (own if set(own) == ids else {})
        if own == kinds and all(pa.types.is_int64(kind) for kind in lineage.values()):
            chosen.append(candidate)
    places = (
        [_partition(target, candidate.planned) for candidate in chosen]
        if table.layout.partition
        else [""] * len(chosen)
    )
    crowded = {place for place, count in Counter(places).items() if count > 1}
    chosen = [
        candidate
        for candidate, place in zip(chosen, places, strict=True)
        if place in crowded or candidate.mostly_hidden
    ]
    if not chosen:
        return False
    rows = pa.concat_tables([_rows(io, candidate.planned, names) for candidate in chosen])
    if POSITION in rows.column_names:
        rows = rows.sort_by(POSITION)  # a log stays in the order of its changes
    rewrite = target.table.newRewrite().validateFromSnapshot(snapshot.snapshotId())
    for candidate in chosen:
        rewrite.deleteFile(candidate.planned.file)
        if candidate.planned.vector is not None:
            rewrite.deleteFile(candidate.planned.vector_file)
    place = StagePlace(f"compacted-{uuid.uuid4().hex}", io, step, table)
    for written in write_data_files(place, table, rows, 0):
        rewrite.addFile(data_file(target, target.table, written))
    rewrite.commit()
    return True


def _partition(target: CommitTarget, planned: PlannedFile) -> str:
    """Return the partition of a file, with that of its spec."""
    spec = target.table.specs().get(planned.file.specId())
    return f"{spec.specId()} {spec.partitionToPath(planned.file.partition())}"


def _chosen(planned: Sequence[PlannedFile]) -> list[_Candidate]:
    """Return the files that are worth to be put together."""
    candidates = [
        _Candidate(
            planned_file,
            int(planned_file.file.fileSizeInBytes()),
            0 if planned_file.vector is None else planned_file.vector.rows,
        )
        for planned_file in planned
    ]
    chosen: list[_Candidate] = []
    file_bytes = rows = 0
    for candidate in sorted(candidates, key=lambda candidate: candidate.file_bytes):
        in_tier = candidate.mostly_hidden or candidate.file_bytes <= max(_SMALL, _TIER * file_bytes)
        if in_tier and file_bytes + candidate.file_bytes <= _BYTES and rows + candidate.planned.rows <= _ROWS:
            chosen.append(candidate)
            file_bytes += candidate.file_bytes
            rows += candidate.planned.rows
    return chosen


def _rows(io: Mapping[str, str], planned: PlannedFile, names: Mapping[int, str]) -> pa.Table:
    """Return the rows of a file that are not hidden: the table's columns, then each row's id and sequence number."""
    system, place = storage(io, planned.path)
    with system.open_input_file(place) as source:
        read = pq.ParquetFile(source).read()
    numbers = {field_id(field): position for position, field in enumerate(read.schema)}
    columns = {number: read.column(numbers[number]) for number in names}
    first, sequence = planned.file.firstRowId(), planned.file.dataSequenceNumber()
    inherited = {
        _ROW_ID: pa.nulls(read.num_rows, pa.int64()) if first is None else pa.array(first + np.arange(read.num_rows)),
        _SEQUENCE: pa.array(np.full(read.num_rows, sequence)),
    }
    for number, values in inherited.items():
        columns[number] = pc.coalesce(read.column(numbers[number]), values) if number in numbers else values
    fields = [
        pa.field(name, columns[number].type, metadata={"PARQUET:field_id": str(number)})
        for number, name in {**names, **_LINEAGE}.items()
    ]
    rows = pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))
    hidden = hidden_rows(io, planned.vector)
    return rows.take(pa.array(BitMap(range(read.num_rows)) - hidden, pa.int64())) if hidden else rows
