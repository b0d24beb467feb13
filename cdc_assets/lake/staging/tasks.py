"""One task's part of a stage: what runs on the executors, or in the driver. No JVM here, and no catalog.

    read          files -> reduced changes                     a window that one task reads alone
    scatter       files -> reduced changes by the key's hash   a window that several tasks read …
    gather        one hash's changes -> reduced changes        … and share once more by key

The result is written as staged changes for a MERGE, or, if the table is empty, as its own data files.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_assets.decoding import FILE
from cdc_assets.decoding.first_images import FIRST_IMAGE, unmade
from cdc_assets.decoding.moved import BASE, has_bases, has_moves, without_base
from cdc_assets.decoding.patches import with_rows
from cdc_assets.decoding.split import bounds, split
from cdc_assets.decoding.states import FIRST
from cdc_assets.decoding.window import Window, reduced, rejects_table
from cdc_assets.errors import LakeUnavailable
from cdc_assets.features.columns.decoding import mirror_columns, with_ingestion_times
from cdc_assets.features.kinds.decoding import kind_of
from cdc_assets.formats.changes import has_patches
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP, UNCHANGED
from cdc_assets.lake.names import format_identity
from cdc_assets.lake.staging.executors import Batches, alike
from cdc_assets.lake.staging.partitions import history_partition, partitions, sorted_rows
from cdc_assets.lake.staging.storage import make_directory, storage
from cdc_assets.model.layout import PLAIN, TableLayout, parquet_options
from cdc_assets.model.progress import MissingRows
from cdc_assets.model.reports import Report
from cdc_assets.model.steps import ApplyRows
from cdc_assets.types.mysql_types import iceberg_type

Ranges = Mapping[str, tuple[int, int]]

_GROUP_BYTES = 64 << 20
"""Row groups of data files, before they are encoded."""
_SAMPLE_ROWS, _REPEATED = 1 << 14, 0.8
"""Values of a column repeat where of its first rows at most so many are different."""
OF, KEYED_BY = "cdc.identity", "cdc.key"
"""Metadata of a stage's files: whose rows they have, and the columns of its key, each with its name in parts (JSON)."""
_BRIEFLY = pa.ipc.IpcWriteOptions(compression="lz4")
"""Options for changes that the next task reads: encoding them as Parquet took a quarter of a large load."""


@dataclass(frozen=True, slots=True)
class FirstLoad:
    """The directory of a table's data files, and its columns: name -> (Iceberg's type, field id, list element's id).

    `empty` says that it has no rows. Files are written by its `layout`, with properties that anybody set.
    """

    directory: str
    schema_id: int
    columns: Mapping[str, tuple[str, int, int | None]]
    empty: bool = True
    layout: TableLayout = PLAIN

    def takes(self, step: ApplyRows) -> bool:
        """Return whether the table has exactly the columns of a step's schema, and the lake's own, and its files."""
        own = {column.name: column.iceberg for column in mirror_columns(step.life.kind, step.lake_columns)}
        expected = {column.name: iceberg_type(column) for column in step.schema.stored} | own
        if step.life.kind and self.layout.partition != history_partition(step.life.kind):
            return False
        return expected == {name: kind for name, (kind, _, _) in self.columns.items()}


@dataclass(frozen=True, slots=True)
class StagePlace:
    """Output locations of the tasks of one stage: its directory, and the table's own where tasks write data files.

    `attempt` ends the names of what one attempt at a task writes. Executors that are believed dead may go on writing,
    and must not write into the files of those that took their tasks over. Data files of many row groups are written as
    up to `writers`, side by side.
    """

    path: str
    io: Mapping[str, str]
    step: ApplyRows
    landing: FirstLoad | None = None
    attempt: str = ""
    writers: int = 1

    def part_path(self, number: int) -> str:
        """Return the location of a part of the stage."""
        return f"{self.path}/part-{number:05d}{self.attempt}.parquet"

    def data_path(self, landing: FirstLoad, number: int, suffix: str = "") -> str:
        """Return the location of a data file, named after the stage: `cdc-<seconds>-<uuid>-<number>`."""
        return f"{landing.directory}/cdc-{name_of(self.path)}-{number:05d}{self.attempt}{suffix}.parquet"


class DataFileWritten(NamedTuple):
    """A data file of a table that no snapshot has yet; `partition` has the values of its partition, a list in JSON."""

    location: str
    file_bytes: int
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """The result of one task. `name` is the location of its file, `buckets` those by the key's hash, "" for none.

    `files` are the data files of the table that it wrote. `moves` says that changes have to be reduced together with
    all others of the window. `unmade` are the keys that need a row from before the window.
    """

    report: Report
    name: str = ""
    files: tuple[DataFileWritten, ...] = ()
    entering: int = 0
    leaving: int = 0
    ranges: Ranges | None = None
    rejects: str = ""
    buckets: tuple[str, ...] = ()
    patches: bool = False
    bases: bool = False
    moves: bool = False
    unmade: MissingRows | None = None


def name_of(path: str) -> str:
    """Return a stage's own name, the prefix of the data files that were written with it."""
    return path.rsplit("/", 1)[-1]


def begun_at(path: str) -> int:
    """Return the time at which a stage began, by its name, in seconds since 1970; 0 for what is not called like one."""
    begun = name_of(path).partition("-")[0]
    return int(begun) if begun.isdigit() else 0


def attempts(
    places: Sequence[StagePlace], work: Callable[[Sequence[StagePlace], int], list[Part]]
) -> Callable[[int], list[Part]]:
    """Return the work on a task by its number, each attempt at which writes files of its own."""

    def attempt(number: int) -> list[Part]:
        own = f"_{uuid.uuid4().hex[:8]}"
        return work([replace(place, attempt=own) for place in places], number)

    return attempt


def write_window(place: StagePlace, window: Window, number: int) -> Part:
    """Write a reduced window as part `number`, with its records for the quarantine."""
    if window.report.failed:
        return Part(window.report)
    rejects = _write_rejects(place, window, number)
    return _written(place, window.changes, window.report, number, rejects)


def scatter(place: StagePlace, window: Window, number: int, buckets: int) -> Part:
    """Write the changes that one task reduced into files by the hash of the key."""
    if window.report.failed:
        return Part(window.report)
    rejects = _write_rejects(place, window, number)
    names = []
    for bucket, changes in enumerate(split(window.changes, place.step.schema, buckets)):
        name = f"{place.path}/bucket-{bucket:05d}-{number:05d}{place.attempt}.arrow" if changes.num_rows else ""
        if name:
            changes = _marked(changes, place.step)
            with _sink(place, name) as sink, pa.ipc.new_file(sink, changes.schema, options=_BRIEFLY) as writer:
                writer.write_table(changes)
        names.append(name)
    return Part(window.report, rejects=rejects, buckets=tuple(names), moves=has_moves(window.changes))


def gather(place: StagePlace, files: Sequence[str], number: int) -> Part:
    """Reduce the changes that several tasks wrote for one hash, and write them as part `number`."""
    if not files:
        return Part(Report())
    windows = []
    for file in files:
        system, path = storage(place.io, file)
        with system.open_input_file(path) as source, pa.ipc.open_file(source) as reader:
            windows.append(Window(reader.read_all()))
    window = reduced(place.step, windows)
    return _written(place, window.changes, window.report, number, "")


def _write_rejects(place: StagePlace, window: Window, number: int) -> str:
    if not window.rejects:
        return ""
    name = f"rejects-{number:05d}{place.attempt}.parquet"
    _write(place, f"{place.path}/{name}", _marked(rejects_table(window.rejects, place.step), place.step))
    return name


def _written(place: StagePlace, changes: pa.Table, report: Report, number: int, rejects: str) -> Part:
    kind = kind_of(place.step)
    if has_patches(changes) and UNCHANGED in kind.STAGED:
        changes, passed = _with_rows(changes, place)
        report = replace(report, passed_over=report.passed_over + passed)
    changes = kind.finished(changes, place.step) if changes.num_rows else changes
    if place.step.lake_columns:
        changes = with_ingestion_times(changes, place.step.lake_columns, begun_at(place.path))
    entering, leaving = kind.count_directions(changes) if changes.num_rows else (0, 0)
    needing = None
    if FIRST_IMAGE in changes.column_names and changes.num_rows:
        needing = unmade(changes, place.step, changes.column(FIRST) if FIRST in changes.column_names else None)
    staged, name, files = changes, "", tuple[DataFileWritten, ...]()
    if place.landing is not None and changes.num_rows:
        rows, staged = kind.apart(changes, place.step, place.landing.empty)
        rows = table_rows(rows, place.step, place.landing)
        files = tuple(write_data_files(place, place.landing, rows, number))
    if staged.num_rows:
        name = place.part_path(number)
        _write(place, name, _marked(_by_position(staged, place.step), place.step))
    ranges = bounds(changes, place.step.schema) if name or files else None
    patches, bases = has_patches(staged), has_bases(staged)
    return Part(
        report, name, files, entering, leaving, ranges, rejects=rejects, patches=patches, bases=bases, unmade=needing
    )


def write_data_files(place: StagePlace, landing: FirstLoad, rows: pa.Table, number: int) -> Iterator[DataFileWritten]:
    """Write rows in their table's own form as data files of it, for each partition that has some."""
    rows = sorted_rows(rows, landing.layout.sort)
    for at, (partition, part) in enumerate(partitions(rows, landing.layout.partition)):
        if not part.num_rows:
            continue
        each = max(1, part.nbytes // part.num_rows)
        options = {**parquet_options(landing.layout.properties), "row_group_size": max(1000, _GROUP_BYTES // each)}
        options |= {"use_dictionary": _repeated_columns(part), "store_decimal_as_integer": True}
        files = max(1, min(place.writers, part.nbytes // _GROUP_BYTES, part.num_rows))
        size = -(-part.num_rows // files)
        suffixes = [f"{f'-{at}' if at else ''}{f'-part{file}' if file else ''}" for file in range(files)]
        locations = [place.data_path(landing, number, suffix) for suffix in suffixes]
        pieces = [part.slice(file * size, size) for file in range(files)]
        with ThreadPoolExecutor(files, "cdc-assets-write") as pool:
            sizes = pool.map(partial(_write, place, **options), locations, pieces)
            for location, written in zip(locations, sizes, strict=True):
                yield DataFileWritten(location, written, partition)


def _repeated_columns(rows: pa.Table) -> list[str]:
    """Return the columns, by their paths in Parquet, of which values repeat, as the first rows show.

    Of others pyarrow makes a dictionary as large as they are, gives it up within each row group, and keeps it in the
    file: files of orders become a seventh larger by it, and take half as long again to write.
    """
    paths, sample = [], rows.slice(0, _SAMPLE_ROWS)
    for field, column in zip(rows.schema, sample.columns, strict=True):
        if pa.types.is_list(field.type):
            paths.append(f"{field.name}.list.element")
        elif pc.count_distinct(column, mode="all").as_py() <= _REPEATED * len(column):
            paths.append(field.name)
    return paths


def _with_rows(changes: pa.Table, place: StagePlace) -> tuple[pa.Table, int]:
    """Settle patches of which is known by now that their row is not there; an empty table has none."""
    if place.landing is not None and place.landing.empty:
        rowless = pc.is_valid(changes.column(UNCHANGED))
    elif BASE in changes.column_names:
        rowless = without_base(changes)
    else:
        return changes, 0
    return with_rows(changes, rowless, place.step.schema, str(place.step.life))


def _write(place: StagePlace, location: str, rows: pa.Table, **options: Any) -> int:
    """Write a Parquet file and return its bytes."""
    with _sink(place, location) as sink:
        pq.write_table(rows, sink, **options)
        return int(sink.tell())


@contextmanager
def _sink(place: StagePlace, location: str) -> Iterator[Any]:
    """Open a file for writing; raises LakeUnavailable if that fails."""
    try:
        system, path = storage(place.io, location)
        make_directory(system, path.rsplit("/", 1)[0])
        with system.open_output_stream(path) as sink:
            yield sink
    except OSError as error:
        raise LakeUnavailable(
            f"{location}: the warehouse cannot be written ({error}). Nothing was applied. Correct that and try again."
        ) from error


def _marked(rows: pa.Table, step: ApplyRows) -> pa.Table:
    """Let a file of a stage say whose rows it has, for who looks into one that a dead run left."""
    key = {name: f"c{place}" for place, name in enumerate(column.name for column in step.schema.stored)}
    metadata = {OF: format_identity(step.life), KEYED_BY: json.dumps([[name, key[name]] for name in step.schema.key])}
    return rows.replace_schema_metadata(metadata)


def _by_position(changes: pa.Table, step: ApplyRows) -> pa.Table:
    staged = kind_of(step).STAGED
    for name, type_ in ((UNCHANGED, pa.list_(pa.string())), (FIRST_IMAGE, pa.int64())):
        if name in staged and name not in changes.column_names:
            changes = changes.append_column(name, pa.nulls(changes.num_rows, type_))
    names = [OP, COMMIT_TS, LINE, FILE, *staged, *step.lake_columns, *((BASE,) if has_bases(changes) else ())]
    columns = [column.name for column in step.schema.stored]
    places = [f"c{position}" for position in range(len(columns))]
    return changes.select([*names, *columns]).rename_columns([*names, *places])


def table_rows(changes: pa.Table, step: ApplyRows, landing: FirstLoad) -> pa.Table:
    """Rows in the table's own form: its columns by their field ids, then the lake's own."""
    arrays, fields = [], []
    names = [column.name for column in step.schema.stored]
    for name in (*names, *(column.name for column in mirror_columns(step.life.kind, step.lake_columns))):
        array = changes.column(name)
        _, field_id, element_id = landing.columns[name]
        kind = array.type
        if element_id is not None:
            kind = pa.list_(pa.field("element", kind.value_type, metadata=_field_id(element_id)))
            array = array.cast(kind)
        arrays.append(array)
        fields.append(pa.field(name, kind, metadata=_field_id(field_id)))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _field_id(number: int) -> dict[str, str]:
    return {"PARQUET:field_id": str(number)}


def part_reader(io: dict[str, str], files: Sequence[str]) -> Batches:
    """Read parts in Python: Spark's own readers may not support an object store that Iceberg supports."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                system, place = storage(io, files[number])
                with system.open_input_file(place) as source:
                    yield from pq.ParquetFile(source).iter_batches()

    return alike(run)
