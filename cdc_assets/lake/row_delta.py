"""A small window into a table with a key, without Spark: what leaves by its place, what enters as a file.

    row_delta_of   finds the places of a window's keys, and writes what a commit takes in beside the table's files
    RowDelta       that: a data file, deletion vectors, and those that they stand for

Spark spends more than a second of CPU on the plan of a MERGE, whatever it reads. Here the columns of the key are read
from the table's Parquet files; a row whose key the window has is hidden by a deletion vector, the union of the file's
old one and the new places, and the rows that the window brings are one more data file. That is what Spark's
merge-on-read commits too, but that it keeps the row id of an updated row.

Of a table of states only the files with open ones are looked at. A state that ends is read whole, for it is written
again with its end, with the columns that its file has: what a file lacks reads as the column's default in either. That
is half of what such a window costs where its keys lie all over a large table.

Only where keys are equal if their values are: no collation, no floating point, no change that leaves columns out. And
only tables as they are made here: format 3, Parquet, partitions by transforms that are known here, no delete files but
vectors. The rest is Spark's.
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from threading import Lock
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyroaring import BitMap

from cdc_assets.decoding import FILE
from cdc_assets.decoding.first_images import FIRST_IMAGE, unmade
from cdc_assets.decoding.states import END_AT, END_TS, LANDED, START_AT, START_TS, tracked
from cdc_assets.errors import LakeUnavailable
from cdc_assets.features.columns.decoding import mirror_columns
from cdc_assets.features.kinds.decoding import partition_column
from cdc_assets.formats.decoded import COMMIT_TS, OP
from cdc_assets.lake.commit import CommitTarget, RowDelta, data_file
from cdc_assets.lake.layout import layout_of_table
from cdc_assets.lake.staging.stage import Batch
from cdc_assets.lake.staging.storage import make_directory, storage
from cdc_assets.lake.staging.tasks import FirstLoad, StagePlace, table_rows, write_data_files
from cdc_assets.model.layout import DELETED_AT
from cdc_assets.model.schema import Column
from cdc_assets.model.splits import in_shares
from cdc_assets.model.steps import ApplyRows
from cdc_assets.types.collations import is_plain
from cdc_assets.types.mysql_types import arrow_type

_CHANGES, _ROWS, _FILES = 200_000, 10_000_000, 1_000
"""The most changes of a window, and rows and files of a table that may have its keys, that are dealt with here."""

_ROWS_AT_ONCE = 1 << 18
"""Rows of files that are searched together for keys."""

_KEPT_BYTES = 128 << 20
"""Columns of keys that are kept in memory: the files of a table do not change."""

_PLACE, _CHANGE = "_cdc_row_place", "_cdc_change"
_PUFFIN, _VECTOR = b"PFA1", b"\xd1\xd3\x39\x64"
_ROW_POSITION = 2147483645
"""Iceberg's reserved field id of a row's position."""


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """Location of a deletion vector in a Puffin file, and the number of rows that it hides."""

    location: str
    offset: int
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A data file of a table, and the deletion vector that hides some of its rows.

    `task` is Iceberg's own task of a scan, which is asked for its objects only where these are needed: each answer of
    Java costs as much as reading a few hundred rows.
    """

    task: Any
    path: str
    rows: int
    vector: DeletionVector | None
    partition: Mapping[str, Any]
    """The members of Iceberg's JSON of a file that say in which partition it is."""

    @property
    def file(self) -> Any:
        """The data file as Iceberg's API has it."""
        return self.task.file()

    @property
    def vector_file(self) -> Any:
        """The deletion vector as Iceberg's API has it."""
        return self.task.deletes().get(0)


@dataclass(frozen=True, slots=True)
class _Replaced:
    """Rows of a data file that leave it: their places, those of the changes that replace them, and what was hidden."""

    file: PlannedFile
    places: pl.Series
    changes: pl.Series
    before: BitMap

    def only(self, mask: pl.Series) -> _Replaced | None:
        """Return those of its rows that a mask has; None for none."""
        return replace(self, places=self.places.filter(mask), changes=self.changes.filter(mask)) if mask.any() else None


def row_delta_of(target: CommitTarget, step: ApplyRows, batch: Batch, io: Mapping[str, str]) -> RowDelta | None:
    """Write the files that a commit of a staged window takes in; None, with nothing written, where Spark has to.

    Files that are written and not committed in the end are orphans. `io` are PyIceberg's properties of the table.
    Raises LakeUnavailable where the table's files cannot be read or written.
    """
    key = [step.schema.column(name) for name in step.schema.key]
    small = 0 < batch.entering + batch.leaving <= _CHANGES
    if not small or batch.patches or batch.bases or not key or not all(map(_compares_by_value, key)):
        return None
    if step.life.kind and (batch.schema_id is None or not step.files):
        return None  # what begins is no data file yet, or what the table has of a range of positions is replaced
    table = plain_table(target)
    open_states = partition_column(step.life.kind)
    files = None if table is None or not table.takes(step) else _files(target, batch, open_states)
    if table is None or files is None:
        return None
    try:
        return _written(target, step, batch, io, table, files)
    except (_SparksError, pa.ArrowException, pl.exceptions.PolarsError, ValueError, LookupError):
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


def plain_table(target: CommitTarget) -> FirstLoad | None:
    """Return the location of the table's data files and its columns; None for a table that only Spark may write."""
    java, table = target.session.iceberg.java, target.table
    properties = target.session.iceberg.texts_of(table.properties())
    defaults = {"write.merge.mode": "merge-on-read", "write.format.default": "parquet"}
    plain = all(properties.get(name, value) == value for name, value in defaults.items())
    plain = plain and properties.get("write.object-storage.enabled", "false") != "true"
    plain = plain and "write.merge.mode" in properties and int(table.operations().current().formatVersion()) == 3
    layout = layout_of_table(target.session, table) if plain else None
    if layout is None:
        return None
    columns: dict[str, tuple[str, int, int | None]] = {}
    kind: Any
    for field in json.loads(java("org.apache.iceberg.SchemaParser").toJson(table.schema()))["fields"]:
        kind, element = field["type"], None
        if isinstance(kind, dict):
            kind, element = f"list<{kind.get('element')}>", kind.get("element-id")
        columns[field["name"]] = (kind, field["id"], element)
    directory = properties.get("write.data.path") or f"{table.location()}/data"
    return FirstLoad(directory.rstrip("/"), target.schema_id, columns, False, replace(layout, properties=properties))


def _files(target: CommitTarget, batch: Batch, partition: str) -> list[PlannedFile] | None:
    """Return the data files that may have keys of the window; None if they are too many, or not as expected.

    Of a table with a partition column only those where it is NULL.
    """
    expressions = target.session.iceberg.java("org.apache.iceberg.expressions.Expressions")
    scan = target.table.newScan().useSnapshot(target.snapshot)
    if partition:
        scan = scan.filter(expressions.isNull(partition))
    for name, (low, high) in batch.ranges.items():
        scan = scan.filter(expressions.greaterThanOrEqual(name, low)).filter(expressions.lessThanOrEqual(name, high))
    return planned_files(target.session.iceberg.java, scan)


def planned_files(java: Callable[[str], Any], scan: Any) -> list[PlannedFile] | None:
    """Return the data files of a scan; None if they are too many, or not all Parquet with deletion vectors at most."""
    files: list[PlannedFile] = []
    rows = 0
    tasks = scan.planFiles()
    try:
        for task in _each(tasks):
            described = json.loads(java("org.apache.iceberg.ScanTaskParser").toJson(task))
            file, hidden = described["data-file"], described.get("delete-files", ())
            if file["file-format"].upper() != "PARQUET" or any(
                vector["file-format"].upper() != "PUFFIN" for vector in hidden
            ):
                return None
            rows += file["record-count"]
            if len(hidden) > 1 or len(files) == _FILES or rows > _ROWS:
                return None
            vector = None
            for entry in hidden:
                vector = DeletionVector(
                    entry["file-path"], entry["content-offset"], entry["content-size-in-bytes"], entry["record-count"]
                )
            partition = {name: file[name] for name in ("spec-id", "partition") if name in file}
            files.append(PlannedFile(task, file["file-path"], file["record-count"], vector, partition))
    finally:
        tasks.close()
    return files


def _each(tasks: Any) -> Iterator[Any]:
    iterator = tasks.iterator()
    while iterator.hasNext():
        yield iterator.next()


# --- reading ----------------------------------------------------------------------------------------------------------


def _staged(io: Mapping[str, str], step: ApplyRows, batch: Batch) -> pa.Table:
    """Return the staged changes with the names of the table's columns."""
    names = [column.name for column in step.schema.stored]
    own = [OP, COMMIT_TS, *((LANDED, *_MOMENTS) if step.life.kind else step.lake_columns)]
    own += [] if batch.unmade is None else [FIRST_IMAGE, FILE]
    places = [f"c{position}" for position in range(len(names))]
    parts = []
    for location in batch.parts:
        system, path = storage(io, location)
        with system.open_input_file(path) as source:
            parts.append(pq.ParquetFile(source).read(columns=[*own, *places]))
    changes = pa.concat_tables(parts)
    return changes.select([*own, *places]).rename_columns([*own, *names])


def _enters(changes: pa.Table) -> pa.ChunkedArray:
    return pc.greater(changes.column(OP), pa.scalar(0, pa.int8()))


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
        named = {field_id(field): field.name for field in file.schema_arrow}
        if not all(number in named for number in ids):
            raise _SparksError  # a column that was added later has no values in the file
        return file.read(columns=[named[number] for number in ids]).select([named[number] for number in ids])


def field_id(field: pa.Field) -> int:
    """Return the number by which Iceberg knows a column of a Parquet file, -1 for none."""
    return int((field.metadata or {}).get(b"PARQUET:field_id", -1))


def _replaced(
    io: Mapping[str, str], files: Sequence[PlannedFile], changes: pa.Table, step: ApplyRows, table: FirstLoad
) -> list[_Replaced]:
    """Return the rows of the files that match changes by key, as pairs of places.

    Raises _SparksError where several have the same, which only a repair replaces, and one that marks rows does not.
    """
    names = step.schema.key
    kinds = pa.schema([(f"k{place}", arrow_type(step.schema.column(name))) for place, name in enumerate(names)])
    keys = pl.from_arrow(changes.select(list(names)).rename_columns(kinds.names).cast(kinds))
    assert isinstance(keys, pl.DataFrame)
    if keys.is_duplicated().any():
        raise _SparksError  # a MERGE says of which row
    keys = keys.with_row_index(_CHANGE)
    ids = tuple(table.columns[name][1] for name in names)
    replaced, matched = list[_Replaced](), list[tuple[PlannedFile, pl.DataFrame]]()
    seen = BitMap()
    for share in in_shares(files, lambda file: file.rows, _FILES, _ROWS_AT_ONCE):
        columns = [_key_columns.read(io, file.path, ids) for file in share]
        matched += zip(share, _places(columns, keys, kinds), strict=True)
    for file, matches in matched:
        before = hidden_rows(io, file.vector) if len(matches) else BitMap()
        if gone := BitMap(matches.get_column(_PLACE)) & before:
            matches = matches.filter(~pl.col(_PLACE).is_in(list(gone)))
        if not len(matches):
            continue
        matched_changes = BitMap(matches.get_column(_CHANGE))
        if (len(matched_changes) < len(matches) or matched_changes & seen) and not (
            step.is_repair and DELETED_AT not in step.lake_columns
        ):
            raise _SparksError  # the table has a row twice: a MERGE writes both, and its counts tell of it
        seen |= matched_changes
        places, of = matches.get_columns()
        replaced.append(_Replaced(file, places, of, before))
    return replaced


def _places(columns: Sequence[pa.Table], keys: pl.DataFrame, kinds: pa.Schema) -> list[pl.DataFrame]:
    """Return for the columns of each file at which of its places is which of the keys: _cdc_place, _cdc_change.

    Column by column first, which leaves few rows: to join all of them takes several times as long. Files are searched
    together: to search one of ten rows takes as long as one of ten thousand.
    """
    frame = pl.from_arrow(pa.concat_tables([table.rename_columns(kinds.names).cast(kinds) for table in columns]))
    assert isinstance(frame, pl.DataFrame)
    among_keys = [pl.col(name).is_in(keys.get_column(name).implode(), nulls_equal=True) for name in kinds.names]
    matches = frame.with_row_index(_PLACE).filter(among_keys).join(keys, on=kinds.names, nulls_equal=True)
    matches = matches.select(_PLACE, _CHANGE).sort(_PLACE)
    starts = list(accumulate((table.num_rows for table in columns), initial=0))
    bounds = np.searchsorted(matches.get_column(_PLACE).to_numpy(), starts).tolist()
    return [
        matches.slice(first, last - first).with_columns(pl.col(_PLACE) - start)
        for start, (first, last) in zip(starts, pairwise(bounds), strict=False)
    ]


def hidden_rows(io: Mapping[str, str], vector: DeletionVector | None) -> BitMap:
    """Return the places that a deletion vector hides: a part of a Puffin file."""
    if vector is None:
        return BitMap()
    system, path = storage(io, vector.location)
    with system.open_input_file(path) as source:
        blob = source.read_at(vector.size, vector.offset)
    body = blob[4:-4]
    if body[:4] != _VECTOR or struct.unpack(">I", blob[-4:])[0] != zlib.crc32(body):
        raise LakeUnavailable(f"{vector.location}: a deletion vector in it is broken. Restore the file.")
    count, high = struct.unpack("<QI", body[4:16]) if len(body) >= 16 else (0, 0)
    if not count:
        return BitMap()
    if count > 1 or high:
        raise _SparksError  # of a file of more than four billion rows
    return BitMap.deserialize(body[16:])


# --- states -----------------------------------------------------------------------------------------------------------

_MOMENTS = (START_TS, START_AT, END_TS, END_AT)


def _states(
    io: Mapping[str, str], changes: pa.Table, replaced: Sequence[_Replaced], step: ApplyRows, table: FirstLoad
) -> list[pa.Table]:
    """Return the states that changes end, by the columns that their files have, and last those that begin or go on.

    A state that would have no length is none.
    """
    ended: dict[pa.Schema, list[pa.Table]] = {}
    going_on, unchanged_states, track = list[pa.Table](), BitMap(), tracked(step)
    for replacement in replaced:
        rows, row_changes = _rows(io, replacement, table), changes.take(replacement.changes.to_arrow())
        ends = pc.less(rows.column(START_TS), row_changes.column(START_TS))
        if track is not None:
            on = _goes_on(rows, row_changes, track, step)
            ends = pc.and_not(ends, on)
            unchanged_states |= BitMap(replacement.changes.filter(pl.Series(on)))
            going_on.append(_with(row_changes, rows, {START_TS: START_TS, START_AT: START_AT}).filter(on))
        closed = _with(rows, row_changes, {END_TS: START_TS, END_AT: START_AT}).filter(ends)
        ended.setdefault(closed.schema, []).append(closed)
    begins = pc.and_not(_enters(changes), changes.column(LANDED))
    if unchanged_states:
        is_same = pc.is_in(pa.array(range(changes.num_rows), pa.uint32()), pa.array(unchanged_states, pa.uint32()))
        begins = pc.and_not(begins, is_same)
    entering = pa.concat_tables([changes.filter(begins), *going_on])
    return [*(pa.concat_tables(parts) for parts in ended.values()), table_rows(entering, step, table)]


def _with(rows: pa.Table, others: pa.Table, names: Mapping[str, str]) -> pa.Table:
    """Return rows with columns of as many others in the place of theirs."""
    for name, other in names.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), others.column(other).cast(rows.schema.field(at).type))
    return rows


def _goes_on(rows: pa.Table, changes: pa.Table, track: Sequence[str], step: ApplyRows) -> pa.ChunkedArray:
    """Mark the open states that go on: the change of their key brings equal values in the columns of `track`."""
    is_same_value = pl.Series(_enters(changes))
    for name in track:
        kind = arrow_type(step.schema.column(name))
        if name not in rows.column_names or pa.types.is_nested(kind):
            raise _SparksError
        old, new = (pl.Series(side.column(name).cast(kind)) for side in (rows, changes))
        is_same_value &= old.eq_missing(new)
    return pa.chunked_array([is_same_value.to_arrow()])


def _rows(io: Mapping[str, str], of: _Replaced, table: FirstLoad, open_while: str = END_TS) -> pa.Table:
    """Return the rows of a file that are replaced, with those of the table's columns that the file has.

    Few of many: polars takes the values at their places out of each page, and makes no column of all rows. It does so
    only where the condition has a column of the file, and no row that is replaced has a value in `open_while`.
    """
    names = {number: name for name, (_, number, _) in table.columns.items()}
    system, path = storage(io, of.file.path)
    with system.open_input_file(path) as source:
        file_schema = pq.read_schema(source)
        fields = [field for field in file_schema if field_id(field) in names]
        stored = pa.schema([field.with_name(names[field_id(field)]) for field in fields])
        if not {*_MOMENTS} <= {*stored.names} and open_while == END_TS:
            raise _SparksError
        (end,) = (field.name for field in fields if names[field_id(field)] == open_while)
        source.seek(0)
        place = path if isinstance(system, pafs.LocalFileSystem) else source.read()
        rows = pl.scan_parquet(place, row_index_name=_PLACE, glob=False, hive_partitioning=False)
        frame = rows.filter(pl.col(end).is_null() & pl.col(_PLACE).is_in(of.places.implode())).collect()
    if not frame.get_column(_PLACE).equals(of.places):
        raise _SparksError
    return frame.to_arrow().select([field.name for field in fields]).rename_columns(stored.names).cast(stored)


# --- marked rows ------------------------------------------------------------------------------------------------------


def _marked(
    io: Mapping[str, str], changes: pa.Table, replaced: Sequence[_Replaced], step: ApplyRows, table: FirstLoad
) -> tuple[list[pa.Table], list[_Replaced], list[_Replaced]]:
    """Return the rows that changes delete, marked, by the columns that their files have; and which rows are replaced.

    A row that was marked before stays as it is where its key is deleted. The last are the matches of living rows.
    """
    own, enters = [column.name for column in mirror_columns("", step.lake_columns)], pl.Series(_enters(changes))
    marked: dict[pa.Schema, list[pa.Table]] = {}
    remaining, living = list[_Replaced](), list[_Replaced]()
    number = table.columns[DELETED_AT][1]
    for match in replaced:
        places = match.places.to_arrow()
        is_living = pl.Series(pc.is_null(_columns(io, match.file.path, (number,)).column(0).take(places)))
        comes = enters.gather(match.changes)
        if (leaving := match.only(is_living & ~comes)) is not None:
            rows = _rows(io, leaving, table, DELETED_AT)
            for name in own:
                if name not in rows.column_names:  # it was switched on after the file was written
                    field_id = {"PARQUET:field_id": str(table.columns[name][1])}
                    kind = changes.schema.field(name).type
                    rows = rows.append_column(pa.field(name, kind, metadata=field_id), pa.nulls(rows.num_rows, kind))
            rows = _with(rows, changes.take(leaving.changes.to_arrow()), {name: name for name in own})
            marked.setdefault(rows.schema, []).append(rows)
        remaining += filter(None, [match.only(is_living | comes)])
        living += filter(None, [match.only(is_living)])
    return [pa.concat_tables(parts) for parts in marked.values()], remaining, living


# --- writing ----------------------------------------------------------------------------------------------------------


def _written(
    target: CommitTarget,
    step: ApplyRows,
    batch: Batch,
    io: Mapping[str, str],
    table: FirstLoad,
    files: Sequence[PlannedFile],
) -> RowDelta:
    changes = _staged(io, step, batch)
    replaced = matched = _replaced(io, files, changes, step, table)
    if step.life.kind:
        parts = _states(io, changes, replaced, step, table)
    else:
        parts = [table_rows(changes.filter(_enters(changes)), step, table)]
    if DELETED_AT in step.lake_columns:
        marked, replaced, matched = _marked(io, changes, replaced, step, table)
        parts = [*marked, *parts]
    place = StagePlace(batch.parts[0].rpartition("/")[0], io, step, table, f"-{uuid.uuid4().hex[:8]}")
    added = [file for number, rows in enumerate(parts) for file in write_data_files(place, table, rows, number)]
    vectors = _write_vectors(target, io, place.data_path(table, 0), table, replaced) if replaced else []
    target.session.statements.append(
        f"ROW DELTA INTO {target.name}: {sum(rows.num_rows for rows in parts)} rows in, rows of {len(replaced)} data "
        "files out"
    )
    hidden = [replacement.file.vector_file for replacement in replaced if replacement.file.vector is not None]
    missing = None
    if batch.unmade is not None:
        matched_changes = BitMap().union(*(BitMap(match.changes) for match in matched))
        missing = unmade(
            changes, step, pa.array([place not in matched_changes for place in range(changes.num_rows)], pa.bool_())
        )
    return RowDelta([data_file(target, target.table, file) for file in added], vectors, hidden, missing)


def write_file(io: Mapping[str, str], location: str, data: Any) -> int:
    """Write a file of a table, and return its bytes."""
    system, path = storage(io, location)
    make_directory(system, path.rsplit("/", 1)[0])
    with system.open_output_stream(path) as sink:
        sink.write(data)
    return len(data)


def _write_vectors(
    target: CommitTarget, io: Mapping[str, str], data: str, table: FirstLoad, replaced: Sequence[_Replaced]
) -> list[Any]:
    """Write one Puffin file of deletion vectors beside a data file, and return them as Iceberg's API has them."""
    location = f"{data.removesuffix('.parquet')}.puffin"
    hiding = [(replacement.file, BitMap(replacement.places) | replacement.before) for replacement in replaced]
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
    puffin = bytes(blobs) + _PUFFIN + footer + struct.pack("<I", len(footer)) + bytes(4) + _PUFFIN
    size, vectors = write_file(io, location, puffin), []
    iceberg, specs = target.session.iceberg, target.table.specs()
    parse = iceberg.java("org.apache.iceberg.ContentFileParser").fromJson
    for (file, places), blob_at in zip(hiding, described, strict=True):
        vector = {
            **file.partition,
            "content": "position-deletes",
            "file-path": location,
            "file-format": "puffin",
            "file-size-in-bytes": size,
            "record-count": len(places),
            "referenced-data-file": file.path,
            "content-offset": blob_at["offset"],
            "content-size-in-bytes": blob_at["length"],
        }
        vectors.append(parse(iceberg.json_node(vector), specs))
    return vectors
