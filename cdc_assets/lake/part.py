"""One task's part of a stage: what runs on the executors. No JVM here, and no catalog."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from cdc_assets.errors import CdcError, LakeUnavailable
from cdc_assets.formats import COMMIT_TS, LINE, OP
from cdc_assets.model import ApplyRows, Report, TableSchema
from cdc_assets.reduce import COUNT, FILE
from cdc_assets.window import Window

__all__ = ["Part", "Ranges", "Read", "part_reader", "part_writer", "storage"]

Read = Callable[[str], bytes]
Ranges = Mapping[str, tuple[int, int]]
Batches = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Part:
    """What one task did."""

    report: Report
    name: str = ""
    entering: int = 0
    leaving: int = 0
    ranges: Ranges | None = None
    error: CdcError | None = None
    rejects: str = ""


def part_writer(
    path: str, io: dict[str, str], step: ApplyRows, reader: Callable[[Any], Window], tasks: Sequence[Any]
) -> Batches:
    """Return what a task runs: it gets numbers of `tasks`, writes their windows and yields a pickled Part for each."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                part = _write_part(path, io, step, partial(reader, tasks[number]), number)
                yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(part)], pa.binary())], names=["part"])

    return run


def _write_part(path: str, io: Mapping[str, str], step: ApplyRows, read: Callable[[], Window], number: int) -> Part:
    try:
        return _written(path, io, step, read(), number)
    except CdcError as error:  # Spark would turn it into text
        return Part(Report(), error=error)


def _written(path: str, io: Mapping[str, str], step: ApplyRows, window: Window, number: int) -> Part:
    changes = window.changes
    if window.report.failed:
        return Part(window.report)
    rejects = ""
    if window.rejects:
        from cdc_assets.quarantine import rejects_table

        rejects = f"rejects-{number:05d}.parquet"
        _write(io, path, rejects, rejects_table(window.rejects, step))
    if not changes.num_rows:
        return Part(window.report, rejects=rejects)
    name = f"part-{number:05d}.parquet"
    _write(io, path, name, _by_position(changes, step))
    entering, leaving = _directions(changes)
    return Part(window.report, name, entering, leaving, _ranges(changes, step.schema), rejects=rejects)


def _write(io: Mapping[str, str], path: str, name: str, rows: pa.Table) -> None:
    try:
        system, place = storage(io, path)
        system.create_dir(place, recursive=True)
        with system.open_output_stream(f"{place}/{name}") as sink:
            pq.write_table(rows, sink)
    except OSError as error:
        raise LakeUnavailable(
            f"{path}: the warehouse takes no files ({error}). Nothing was applied. Correct that and try again."
        ) from error


def _by_position(changes: pa.Table, step: ApplyRows) -> pa.Table:
    names = [OP, COMMIT_TS, LINE, FILE] + ([COUNT] if COUNT in changes.column_names else [])
    columns = [column.name for column in step.schema.stored]
    places = [f"c{position}" for position in range(len(columns))]
    return changes.select([*names, *columns]).rename_columns([*names, *places])


def _directions(changes: pa.Table) -> tuple[int, int]:
    if COUNT in changes.column_names:
        counts = changes.column(COUNT)
        entering = pc.sum(pc.if_else(pc.greater(counts, 0), counts, 0)).as_py() or 0
        return entering, entering - (pc.sum(counts).as_py() or 0)
    entering = pc.sum(pc.greater(changes.column(OP), pa.scalar(0, pa.int8()))).as_py() or 0
    return entering, changes.num_rows - entering


def _ranges(changes: pa.Table, schema: TableSchema) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for name in schema.key:
        array = changes.column(name)
        if pa.types.is_integer(array.type) and array.null_count == 0 and len(array):
            bounds = pc.min_max(array).as_py()
            found[name] = (bounds["min"], bounds["max"])
    return found


def part_reader(io: dict[str, str], files: Sequence[str]) -> Batches:
    """Read parts in Python: object stores that Iceberg reaches need not be known to Spark's own readers."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                system, place = storage(io, files[number])
                with system.open_input_file(place) as source:
                    yield from pq.ParquetFile(source).iter_batches()

    return run


def storage(io: Mapping[str, str], location: str) -> tuple[Any, str]:
    """Return the Arrow file system that PyIceberg would use for a location, and the path in it."""
    if location.startswith("/"):
        return pafs.LocalFileSystem(), location
    from pyiceberg.io.pyarrow import PyArrowFileIO

    scheme, host, path = PyArrowFileIO.parse_location(location, dict(io))
    return PyArrowFileIO(dict(io)).fs_by_scheme(scheme, host), path
