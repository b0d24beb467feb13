"""A small window into a table with a key, without Spark: what leaves by its place, what enters as a file.

    row_delta_of   finds the places of a window's keys, and writes what a commit takes in beside the table's files
    RowDelta       that: a data file, deletion vectors, and those that they stand for

Spark spends more than a second of CPU on the plan of a MERGE, whatever it reads. Here the columns of the key are read
from the table's Parquet files; a row whose key the window has is hidden by a deletion vector, the union of the file's
old one and the new places, and the rows that the window brings are one more data file. That is what Spark's
merge-on-read commits too, but that it keeps the row id of an updated row.

Only where keys are equal if their values are: no collation, no floating point, no change that leaves columns out. And
only tables as they are made here: format 3, Parquet, no partitions, no delete files but vectors. The rest is Spark's.
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap

from cdc_assets.errors import LakeUnavailable
from cdc_assets.formats import COMMIT_TS, OP
from cdc_assets.lake.commit import CommitTarget, RowDelta, data_file
from cdc_assets.lake.staging.stage import Batch, name_of
from cdc_assets.lake.staging.storage import make_directory, storage
from cdc_assets.lake.staging.tasks import DataFileWritten, FirstLoad, table_rows
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.steps import ApplyRows
from cdc_assets.types.collations import is_plain
from cdc_assets.types.mysql_types import arrow_type

__all__ = ["row_delta_of"]

_CHANGES, _ROWS, _FILES = 200_000, 10_000_000, 1_000
"""The most changes of a window, and rows and files of a table that may have its keys, that are dealt with here."""

_KEPT_BYTES = 64 << 20
"""Columns of keys that are kept in memory: the files of a table do not change."""

_PUFFIN, _VECTOR = b"PFA1", b"\xd1\xd3\x39\x64"
_ROW_POSITION = 2147483645
"""Iceberg's reserved field id of a row's position."""


@dataclass(frozen=True, slots=True)
class _DataFile:
    """A data file of the table: its path, rows, and the deletion vector that hides some, as Iceberg's API has it."""

    path: str
    rows: int
    vector: Any | None


def row_delta_of(target: CommitTarget, step: ApplyRows, batch: Batch, io: Mapping[str, str]) -> RowDelta | None:
    """Write what a commit of a staged window takes in; None, with nothing written, where that is Spark's to do.

    Files that are written and not committed in the end are orphans. `io` are PyIceberg's properties of the table.
    Raises LakeUnavailable where the table's files cannot be read or written.
    """
    key = [step.schema.column(name) for name in step.schema.key]
    small = 0 < batch.entering + batch.leaving <= _CHANGES
    if step.life.kind or not small or batch.patches or batch.bases or not key or not all(map(_compares_by_value, key)):
        return None
    table = _table_of(target)
    files = None if table is None or not table.takes(step) else _files(target, batch)
    if table is None or files is None:
        return None
    try:
        return _written(target, step, batch, io, table, files)
    except (_SparksError, pa.ArrowException, ValueError, LookupError):
        return None  # Spark reads the files, or reports those that cannot be read
    except OSError as error:
        raise LakeUnavailable(
            f"{target.name}: its files cannot be read or written ({error}). Nothing was applied. Correct that and "
            "try again.",
            table=str(step.life),
        ) from error


class _SparksError(Exception):
    """The table is not as this module expects it."""


def _compares_by_value(column: Column) -> bool:
    kind = arrow_type(column)
    by_bytes = not column.compares_by or is_plain(column.compares_by) or not pa.types.is_string(kind)
    return by_bytes and not (pa.types.is_floating(kind) or pa.types.is_nested(kind))


def _table_of(target: CommitTarget) -> FirstLoad | None:
    """Return where data files of the table go and its columns; None for a table that only Spark may write."""
    java, table = target.session.iceberg.java, target.table
    properties = json.loads(java("org.apache.iceberg.util.JsonUtil").mapper().writeValueAsString(table.properties()))
    wanted = {"write.merge.mode": "merge-on-read", "write.format.default": "parquet"}
    plain = all(properties.get(name, value) == value for name, value in wanted.items())
    plain = plain and properties.get("write.object-storage.enabled", "false") != "true"
    plain = plain and "write.merge.mode" in properties and int(table.operations().current().formatVersion()) == 3
    if not plain or int(table.specs().size()) != 1 or not table.spec().isUnpartitioned():
        return None
    columns: dict[str, tuple[str, int, int | None]] = {}
    kind: Any
    for field in json.loads(java("org.apache.iceberg.SchemaParser").toJson(table.schema()))["fields"]:
        kind, element = field["type"], None
        if isinstance(kind, dict):
            kind, element = f"list<{kind.get('element')}>", kind.get("element-id")
        columns[field["name"]] = (kind, field["id"], element)
    directory = properties.get("write.data.path") or f"{table.location()}/data"
    return FirstLoad(directory.rstrip("/"), target.schema_id, columns)


def _files(target: CommitTarget, batch: Batch) -> list[_DataFile] | None:
    """Return the data files that may have keys of the window; None if they are too many, or not as expected."""
    expressions = target.session.iceberg.java("org.apache.iceberg.expressions.Expressions")
    scan = target.table.newScan().useSnapshot(target.snapshot)
    for name, (low, high) in batch.ranges.items():
        scan = scan.filter(expressions.greaterThanOrEqual(name, low)).filter(expressions.lessThanOrEqual(name, high))
    found: list[_DataFile] = []
    rows = 0
    tasks = scan.planFiles()
    try:
        for task in _each(tasks):
            file, deletes = task.file(), task.deletes()
            hidden = [deletes.get(place) for place in range(deletes.size())]
            if file.format().toString() != "PARQUET" or any(one.format().toString() != "PUFFIN" for one in hidden):
                return None
            rows += int(file.recordCount())
            if len(hidden) > 1 or len(found) == _FILES or rows > _ROWS:
                return None
            found.append(_DataFile(str(file.location()), int(file.recordCount()), hidden[0] if hidden else None))
    finally:
        tasks.close()
    return found


def _each(tasks: Any) -> Iterator[Any]:
    iterator = tasks.iterator()
    while iterator.hasNext():
        yield iterator.next()


# --- reading ----------------------------------------------------------------------------------------------------------


def _staged(io: Mapping[str, str], schema: TableSchema, batch: Batch) -> pa.Table:
    """Return the staged changes with the names of the table's columns."""
    names = [column.name for column in schema.stored]
    places = [f"c{position}" for position in range(len(names))]
    parts = []
    for location in batch.parts:
        system, path = storage(io, location)
        with system.open_input_file(path) as source:
            parts.append(pq.ParquetFile(source).read(columns=[OP, COMMIT_TS, *places]))
    changes = pa.concat_tables(parts)
    return changes.select([OP, COMMIT_TS, *places]).rename_columns([OP, COMMIT_TS, *names])


class _KeyColumns:
    """The columns of keys of the files that were read last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, tuple[int, ...]], pa.Table] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def read(self, io: Mapping[str, str], path: str, ids: tuple[int, ...]) -> pa.Table:
        """Return the columns of these field ids of a whole file, in that order."""
        with self._lock:
            if (path, ids) in self._kept:
                self._kept.move_to_end((path, ids))
                return self._kept[path, ids]
        table = _columns(io, path, ids)
        if table.nbytes < _KEPT_BYTES // 4:
            with self._lock:
                if (path, ids) not in self._kept:
                    self._kept[path, ids] = table
                    self._bytes += table.nbytes
                while self._bytes > _KEPT_BYTES:
                    self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return table


_key_columns = _KeyColumns()


def _columns(io: Mapping[str, str], path: str, ids: Sequence[int]) -> pa.Table:
    system, place = storage(io, path)
    with system.open_input_file(place) as source:
        file = pq.ParquetFile(source)
        named = {_field_id(field): field.name for field in file.schema_arrow}
        if not all(number in named for number in ids):
            raise _SparksError  # a column that was added later has no values in the file
        return file.read(columns=[named[number] for number in ids]).select([named[number] for number in ids])


def _field_id(field: pa.Field) -> int:
    return int((field.metadata or {}).get(b"PARQUET:field_id", -1))


def _places(columns: pa.Table, keys: pl.DataFrame, kinds: pa.Schema) -> pl.DataFrame:
    """Return at which places of a file's columns which of the keys is: _cdc_place, _cdc_key."""
    frame = pl.from_arrow(columns.rename_columns(kinds.names).cast(kinds))
    assert isinstance(frame, pl.DataFrame)
    found = frame.with_row_index("_cdc_place").join(keys, on=kinds.names, nulls_equal=True)
    return found.select("_cdc_place", "_cdc_key")


def _hidden(io: Mapping[str, str], vector: Any | None) -> BitMap:
    """Return the places that a deletion vector hides: a part of a Puffin file."""
    if vector is None:
        return BitMap()
    system, path = storage(io, str(vector.location()))
    with system.open_input_file(path) as source:
        blob = source.read_at(int(vector.contentSizeInBytes()), int(vector.contentOffset()))
    body = blob[4:-4]
    if body[:4] != _VECTOR or struct.unpack(">I", blob[-4:])[0] != zlib.crc32(body):
        raise LakeUnavailable(f"{vector.location()}: a deletion vector in it is broken. Restore the file.")
    count, high = struct.unpack("<QI", body[4:16]) if len(body) >= 16 else (0, 0)
    if not count:
        return BitMap()
    if count > 1 or high:
        raise _SparksError  # of a file of more than four billion rows
    return BitMap.deserialize(body[16:])


# --- writing ----------------------------------------------------------------------------------------------------------


def _written(
    target: CommitTarget,
    step: ApplyRows,
    batch: Batch,
    io: Mapping[str, str],
    table: FirstLoad,
    files: Sequence[_DataFile],
) -> RowDelta:
    changes, names = _staged(io, step.schema, batch), step.schema.key
    kinds = pa.schema([(name, arrow_type(step.schema.column(name))) for name in names])
    keys = pl.from_arrow(changes.select(list(names)).cast(kinds))
    assert isinstance(keys, pl.DataFrame)
    keys = keys.unique().with_row_index("_cdc_key")
    ids = tuple(table.columns[name][1] for name in names)
    hiding: list[tuple[_DataFile, BitMap]] = []
    seen = BitMap()
    for file in files:
        found = _places(_key_columns.read(io, file.path, ids), keys, kinds)
        before = _hidden(io, file.vector) if len(found) else BitMap()
        found = found.filter([place not in before for place in found.get_column("_cdc_place")])
        if not len(found):
            continue
        there = BitMap(found.get_column("_cdc_key"))
        if len(there) < len(found) or there & seen:
            raise _SparksError  # the table has a row twice: a MERGE writes both, and its counts tell of it
        seen |= there
        hiding.append((file, BitMap(found.get_column("_cdc_place")) | before))
    place = f"{table.directory}/cdc-{name_of(batch.parts[0].rpartition('/')[0])}-{uuid.uuid4().hex[:8]}"
    entering = changes.filter(pc.greater(changes.column(OP), pa.scalar(0, pa.int8())))
    added = []
    if entering.num_rows:
        sink = pa.BufferOutputStream()
        pq.write_table(table_rows(entering, step, table), sink, compression="zstd", store_decimal_as_integer=True)
        size = _write(io, f"{place}.parquet", sink.getvalue())
        added.append(data_file(target, target.table, DataFileWritten(f"{place}.parquet", size)))
    vectors = _write_vectors(target, io, f"{place}.puffin", hiding) if hiding else []
    replaced = [file.vector for file, _ in hiding if file.vector is not None]
    target.session.statements.append(
        f"ROW DELTA INTO {target.name}: {entering.num_rows} rows in, rows of {len(hiding)} data files out"
    )
    return RowDelta(added, vectors, replaced)


def _write(io: Mapping[str, str], location: str, data: Any) -> int:
    system, path = storage(io, location)
    make_directory(system, path.rsplit("/", 1)[0])
    with system.open_output_stream(path) as sink:
        sink.write(data)
    return len(data)


def _write_vectors(
    target: CommitTarget, io: Mapping[str, str], location: str, hiding: Sequence[tuple[_DataFile, BitMap]]
) -> list[Any]:
    """Write one Puffin file of deletion vectors, and return them as Iceberg's API has them."""
    blobs, described = bytearray(_PUFFIN), []
    for file, places in hiding:
        body = _VECTOR + struct.pack("<QI", 1, 0) + places.serialize()
        blob = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
        described.append(
            {
                "type": "deletion-vector-v1",
                "fields": [_ROW_POSITION],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(blobs),
                "length": len(blob),
                "properties": {"referenced-data-file": file.path, "cardinality": str(len(places))},
            }
        )
        blobs += blob
    footer = json.dumps({"blobs": described, "properties": {"created-by": "cdc-assets"}}).encode()
    data = bytes(blobs) + _PUFFIN + footer + struct.pack("<I", len(footer)) + bytes(4) + _PUFFIN
    size, found = _write(io, location, data), []
    metadata = target.session.iceberg.java("org.apache.iceberg.FileMetadata")
    for (file, places), blob_at in zip(hiding, described, strict=True):
        builder = metadata.deleteFileBuilder(target.table.spec()).ofPositionDeletes().withFormat("puffin")
        builder = builder.withPath(location).withFileSizeInBytes(size).withReferencedDataFile(file.path)
        builder = builder.withContentOffset(blob_at["offset"]).withContentSizeInBytes(blob_at["length"])
        found.append(builder.withRecordCount(len(places)).build())
    return found
