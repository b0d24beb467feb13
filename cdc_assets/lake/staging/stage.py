"""Staging of a window's changes: decoded, checked, reduced and written as Parquet, for a commit to apply.

    <warehouse>/_cdc_stage/<seconds since 1970>-<uuid>/part-00000.parquet …, rejects-00000.parquet …, _stage.json
    <table>/data/cdc-<seconds since 1970>-<uuid>-00000.parquet …     where the table is empty: its own data files

A small window is read in the driver, and a large one too where executors would be the same few cores; any other is read
by executors. Several tasks that share a window reduce it twice: each what it read, written by the key's hash, then each
hash what all of them wrote. Columns of the source are in a stage by position (`c0`, `c1`, …), so any name works. Only
reports are returned to the driver.

The stage of a dead run is removed by the next commit of any run once it is a day old. Data files of such a run are
named like its stage and belong to no snapshot.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs

from cdc_assets.decoding import FILE
from cdc_assets.decoding.first_images import together
from cdc_assets.decoding.moved import BASE
from cdc_assets.decoding.split import hash_probe
from cdc_assets.decoding.window import Window, decode_windows, merge_reports, reduced
from cdc_assets.errors import LakeUnavailable
from cdc_assets.features.columns.decoding import optional_columns
from cdc_assets.features.kinds.decoding import kind_of
from cdc_assets.formats import SplitReader, file_expansion
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP
from cdc_assets.io.memory import release_unused
from cdc_assets.lake.staging.executors import refuse_unshared, run_tasks
from cdc_assets.lake.staging.storage import make_directory, storage
from cdc_assets.lake.staging.tasks import (
    DataFileWritten,
    FirstLoad,
    Part,
    Ranges,
    StagePlace,
    attempts,
    begun_at,
    gather,
    name_of,
    part_reader,
    scatter,
    write_window,
)
from cdc_assets.model.progress import MissingRows
from cdc_assets.model.reports import StagedWindow
from cdc_assets.model.steps import ApplyRows
from cdc_assets.types.mysql_types import spark_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Places = Sequence[StagePlace]
"""Stage locations of the windows of one source table that are read together: one for each table of the lake."""

Work = Callable[[Places, int], list[Part]]
"""A task by its number: the part that it writes to each place."""

Run = Callable[[Places, int, Work], list[list[Part]]]
"""Runs a number of tasks, and returns their parts in order."""

STAGE = "_cdc_stage"
_TASK_BYTES = 256 << 20
_SMALL_BYTES = 8 << 20
_ONCE_BYTES = 256 << 20
"""Windows up to this size in bytes are held in memory as a whole when the driver reads them."""
_SHARE_BYTES = 128 << 20
"""The bytes that one thread of the driver reads of a larger window at a time."""
_HERE_BYTES_REMOTE = 16 << 20
"""Windows up to this size in bytes are read in the driver when executors are other machines."""
_HERE_THREADS = 2
_FEW_CORES = 4
"""Up to this many cores, executors in the driver's process would read no faster than its threads."""
_DUMP_EXPANSION = 2
"""Rows of a dump may be compressed."""
_STALE_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class Engine:
    """Decides where windows are read: by `decode` in the driver, on executors, or (auto) where it is done sooner.

    `spark` starts a session, for which a small window need not wait.
    """

    spark: Callable[[], SparkSession]
    local: Callable[[], bool]
    decode: str = "auto"

    def reads_here(self, step: ApplyRows, reader: SplitReader) -> bool:
        """Return whether the driver reads a window itself."""
        return self._reads_here(sum(file.size for file in step.files), _loaded_bytes(step, reader))

    def is_large(self, size: int) -> bool:
        """Return whether executors read so many bytes that are no window: nothing small, whatever `decode` is."""
        return size > _HERE_BYTES_REMOTE and not self._reads_here(size, size)

    def _reads_here(self, size: int, loaded: int) -> bool:
        if self.decode != "auto":
            return self.decode == "driver"
        few = loaded <= _ONCE_BYTES or (os.cpu_count() or 1) <= _FEW_CORES
        return size <= _HERE_BYTES_REMOTE or (few and self.local())


def is_small(step: ApplyRows) -> bool:
    """Return whether a window is read in the driver wherever executors are."""
    return sum(file.size for file in step.files) <= _HERE_BYTES_REMOTE


def _loaded_bytes(step: ApplyRows, reader: SplitReader) -> int:
    return sum(
        file.size * _DUMP_EXPANSION if file.piece else file.size // file_expansion(reader.wire(file.path))
        for file in step.files
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """A staged window: `entering` and `leaving` count reduced changes, `ranges` bounds integer key columns.

    `parts` are locations of Parquet files, `files` data files of the table, written for its schema of `schema_id` while
    it was `empty` or not. `patches` says whether some changes leave columns as they were, `bases` whether they do so
    under another key. `rejects` are the names in the stage of Parquet files of records for the quarantine. `unmade` are
    the keys that need a row from before the window.
    """

    parts: tuple[str, ...] = ()
    files: tuple[DataFileWritten, ...] = ()
    entering: int = 0
    leaving: int = 0
    ranges: Ranges = field(default_factory=dict)
    rejects: tuple[str, ...] = ()
    schema_id: int | None = None
    empty: bool = False
    patches: bool = False
    bases: bool = False
    unmade: MissingRows | None = None


# --- writing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WindowPlace:
    """A window to be staged: below `warehouse`, whose properties for PyIceberg are `io`.

    With `landing` its changes become data files of that table.
    """

    step: ApplyRows
    warehouse: str
    io: Mapping[str, str]
    landing: FirstLoad | None = None


def stage(engine: Engine, windows: Sequence[WindowPlace], reader: SplitReader) -> list[StagedWindow]:
    """Decode the windows of a source table's tables, which read the same, and write them reduced.

    Rows that do not fit are in the report, and in Parquet files beside the changes if they are set aside. Raises the
    format's errors about the whole window: TableHeld, InputError.
    """
    places = [_place(window.warehouse, window.io, window.step, window.landing) for window in windows]
    steps = tuple(window.step for window in windows)
    step, whole = steps[0], range(len(steps[0].files))
    task = partial(_read, steps, reader)
    if not engine.reads_here(step, reader):
        spark = engine.spark()
        tasks = shares(step, spark.sparkContext.defaultParallelism)
        return _staged(places, lambda: _run_tasks(partial(_on_executors, spark), places, task, tasks, whole))
    size = _loaded_bytes(step, reader)
    if size <= _ONCE_BYTES:
        return _staged(places, lambda: _read_here(places, reader))
    tasks = shares(step, -(-size // _SHARE_BYTES))
    return _staged(places, lambda: _run_tasks(_in_threads, places, task, tasks, whole))


def stage_tasks(
    spark: SparkSession,
    warehouse: str,
    io: Mapping[str, str],
    step: ApplyRows,
    reader: Callable[[Any], Window],
    tasks: Sequence[Any],
) -> StagedWindow:
    """Write the windows that `reader` makes of the tasks on executors, with the columns of the step's schema."""
    places = [_place(warehouse, io, step, None)]
    run = partial(_on_executors, spark)
    return _staged(places, lambda: _run_tasks(run, places, lambda task: [reader(task)], tasks))[0]


def stage_changes(window: WindowPlace, changes: pa.Table) -> StagedWindow:
    """Write changes that were decoded already as a window of one table, reduced. Raises TableHeld as `stage` does."""
    place = _place(window.warehouse, window.io, window.step, window.landing)
    return _staged([place], lambda: [[write_window(place, reduced(window.step, [Window(changes)]), 0)]])[0]


def _place(warehouse: str, io: Mapping[str, str], step: ApplyRows, landing: FirstLoad | None) -> StagePlace:
    path = f"{warehouse.rstrip('/')}/{STAGE}/{int(time.time())}-{uuid.uuid4().hex}"
    return StagePlace(path, dict(io), step, landing)


def _read(steps: Sequence[ApplyRows], reader: SplitReader, share: Sequence[int]) -> list[Window]:
    """Read a share of the files, and reduce what each table gets of it."""
    windows, is_part = decode_windows(steps, reader, share), len(share) < len(steps[0].files)
    return [reduced(step, [window], is_part=is_part) for step, window in zip(steps, windows, strict=True)]


def _staged(places: Places, write: Callable[[], Sequence[Sequence[Part]]]) -> list[StagedWindow]:
    """Write the parts and their manifests; everything of a window that will not be committed is removed."""
    started = time.monotonic()
    try:
        parts = write()
        seconds = time.monotonic() - started
        return [_with_manifest(place, [some[at] for some in parts], seconds) for at, place in enumerate(places)]
    except BaseException:
        for place in places:
            _discard_all(place)
        raise


def _with_manifest(place: StagePlace, parts: Sequence[Part], seconds: float) -> StagedWindow:
    report = merge_reports([part.report for part in parts], seconds)
    batch = Batch(
        tuple(part.name for part in parts if part.name),
        tuple(file for part in parts for file in part.files),
        sum(part.entering for part in parts),
        sum(part.leaving for part in parts),
        _bounds([part.ranges or {} for part in parts if part.name or part.files]),
        tuple(part.rejects for part in parts if part.rejects),
        place.landing.schema_id if place.landing is not None else None,
        place.landing is not None and place.landing.empty,
        any(part.patches for part in parts),
        any(part.bases for part in parts),
        together([part.unmade for part in parts]),
    )
    rows = batch.entering + batch.leaving
    if report.failed or (not rows and not batch.rejects):
        _discard_all(place)
        return StagedWindow("", 0, report)
    _write_manifest(place.io, place.path, batch)
    return StagedWindow(place.path, rows, report)


def _read_here(places: Places, reader: SplitReader) -> list[list[Part]]:
    """Read windows in this process, files in parallel, and reduce and write each once, side by side."""
    places = [dataclasses.replace(place, writers=_HERE_THREADS) for place in places]
    steps = [place.step for place in places]
    cut = shares(steps[0], _HERE_THREADS)
    with ThreadPoolExecutor(_HERE_THREADS, "cdc-assets-read") as pool:
        window_lists = list(pool.map(lambda share: decode_windows(steps, reader, share), cut))
        return [
            list(
                pool.map(
                    lambda place, *windows: write_window(place, reduced(place.step, windows), 0), places, *window_lists
                )
            )
        ]


def _run_tasks(
    run: Run, places: Places, reader: Callable[[Any], Sequence[Window]], tasks: Sequence[Any], whole: Any = None
) -> Sequence[Sequence[Part]]:
    """Read windows in tasks; what several tasks read is reduced once more if the kind allows it.

    `whole` is the task that reads what all of them do, for changes that can be reduced together only.
    """

    def write(where: Places, task: Any, number: int) -> list[Part]:
        return [write_window(place, window, number) for place, window in zip(where, reader(task), strict=True)]

    step = places[0].step
    if len(tasks) == 1 or not step.schema.key:
        return run(places, len(tasks), lambda where, number: write(where, tasks[number], number))
    count, probe = len(tasks), hash_probe()

    def read(where: Places, number: int) -> list[Part]:
        if hash_probe() != probe:
            raise LakeUnavailable(
                "the driver and an executor hash keys differently, so they cannot share a window: let them run the "
                "same version of polars on the same kind of machine."
            )
        windows = zip(where, reader(tasks[number]), strict=True)
        return [scatter(place, window, number, count) for place, window in windows]

    first = run(places, count, read)
    if any(part.report.failed for parts in first for part in parts):
        return first
    if whole is not None and any(part.moves for parts in first for part in parts):
        return run(places, 1, lambda where, number: write(where, whole, number))
    names = [[parts[at].buckets for parts in first] for at in range(len(places))]
    buckets = [[[name for name in some if name] for some in zip(*place_names, strict=True)] for place_names in names]
    full = [number for number in range(count) if any(place_buckets[number] for place_buckets in buckets)]

    def collect(where: Places, number: int) -> list[Part]:
        return [
            gather(place, place_buckets[full[number]], number)
            for place, place_buckets in zip(where, buckets, strict=True)
        ]

    return [*first, *run(places, len(full), collect)]


def _in_threads(places: Places, count: int, work: Work) -> list[list[Part]]:
    """Run tasks 0 … count-1 in this process. The memory that one has left unused is not kept beside the next one's."""

    def run(number: int) -> list[Part]:
        release_unused()
        return work(places, number)

    with ThreadPoolExecutor(_HERE_THREADS, "cdc-assets-task") as pool:
        return list(pool.map(run, range(count)))


def _on_executors(spark: SparkSession, places: Places, count: int, work: Work) -> list[list[Part]]:
    """Run tasks 0 … count-1 on the executors; raises the error of one of them."""
    parts = run_tasks(spark, count, attempts(places, work))
    for part in (part for some in parts for part in some):
        for name in (part.name, *part.buckets, *(file.location for file in part.files)):
            refuse_unshared(name)
    return parts


def shares(step: ApplyRows, tasks: int) -> list[list[int]]:
    """Divide the files, by position and in order, into few shares of about equal bytes.

    A table without key needs all files in one share: only together do they show what was delivered twice.
    A dump has each row once.
    """
    sizes = [max(file.size, 1) for file in step.files]
    total = sum(sizes)
    together = not step.schema.key and not step.is_snapshot
    if together or total <= _SMALL_BYTES:
        return [list(range(len(sizes)))]
    count = min(len(sizes), max(tasks, -(-total // _TASK_BYTES)))
    cut: list[list[int]] = [[] for _ in range(count)]
    before = 0
    for position, size in enumerate(sizes):
        cut[min(count - 1, (before + size // 2) * count // total)].append(position)
        before += size
    return [share for share in cut if share]


def _bounds(ranges: Sequence[Mapping[str, tuple[int, int]]]) -> dict[str, tuple[int, int]]:
    names = set.intersection(*(set(span) for span in ranges)) if ranges else set()
    return {name: (min(span[name][0] for span in ranges), max(span[name][1] for span in ranges)) for name in names}


# --- reading ----------------------------------------------------------------------------------------------------------


def read_batch(spark: SparkSession, io: Mapping[str, str], step: ApplyRows, batch: Batch) -> DataFrame:
    """Return the staged changes, one per key."""
    fields = [f"{OP} tinyint", f"{COMMIT_TS} bigint", f"{LINE} bigint", f"{FILE} int"]
    fields += [f"{name} {kind}" for name, kind in kind_of(step).STAGED.items()]
    fields += [f"{column.name} {column.spark}" for column in optional_columns(step.lake_columns)]
    if batch.bases:
        key = (f"k{at}: {spark_type(step.schema.column(name))}" for at, name in enumerate(step.schema.key))
        fields.append(f"{BASE} struct<{', '.join(key)}>")
    fields += [f"c{position} {spark_type(column)}" for position, column in enumerate(step.schema.stored)]
    return read_parts(spark, io, batch.parts, ", ".join(fields))


def read_parts(spark: SparkSession, io: Mapping[str, str], files: Sequence[str], types: str) -> DataFrame:
    """Return the rows of staged Parquet files, whose columns are those of `types` in that order."""
    patterns = re.search(r"[][{}*?\\]", files[0])  # Spark takes a name with one of these for a pattern
    if storage(io, files[0])[0].type_name == "local" and not patterns:
        return spark.read.schema(types).parquet(*(storage(io, file)[1] for file in files))
    return spark.range(0, len(files), 1, len(files)).mapInArrow(part_reader(dict(io), files), types)


# --- storage ----------------------------------------------------------------------------------------------------------


def _write_manifest(io: Mapping[str, str], path: str, batch: Batch) -> None:
    system, place = storage(io, path)
    fields = dataclasses.asdict(batch)
    make_directory(system, place)
    with system.open_output_stream(f"{place}/_stage.json") as sink:
        sink.write(json.dumps(fields).encode())


def read_manifest(io: Mapping[str, str], path: str) -> Batch:
    """Return a stage's manifest."""
    system, place = storage(io, path)
    with system.open_input_stream(f"{place}/_stage.json") as source:
        fields = json.loads(source.readall())
    ranges = {name: (int(low), int(high)) for name, (low, high) in fields["ranges"].items()}
    lists: dict[str, Any] = {name: tuple(fields[name]) for name in ("parts", "rejects")}
    lists["files"] = tuple(DataFileWritten(*file) for file in fields["files"])
    needing = fields["unmade"] and MissingRows(**fields["unmade"])
    return Batch(**{**fields, **lists, "ranges": ranges, "unmade": needing})


def rejects_of(io: Mapping[str, str], staged: StagedWindow) -> list[str]:
    """Return the files of a stage that have the records that were set aside."""
    names = read_manifest(io, staged.path).rejects if staged.report.set_aside else ()
    return [f"{staged.path}/{name}" for name in names]


def discard(io: Mapping[str, str], path: str) -> None:
    """Remove a stage, if it still exists. Data files stay: a snapshot may have them."""
    if path:
        system, place = storage(io, path)
        with suppress(OSError):
            system.delete_dir(place)


def remove_files(io: Mapping[str, str], locations: Iterable[str]) -> None:
    """Remove data files that no snapshot has; those that cannot be removed are orphans for maintenance."""
    for location in locations:
        system, place = storage(io, location)
        with suppress(OSError):
            system.delete_file(place)


def _discard_all(place: StagePlace) -> None:
    """Remove everything that the tasks of a stage wrote, known or not: one may have failed while others wrote."""
    discard(place.io, place.path)
    if place.landing is None:
        return
    system, directory = storage(place.io, place.landing.directory)
    mark = f"cdc-{name_of(place.path)}-"
    with suppress(OSError):
        for info in system.get_file_info(pafs.FileSelector(directory, allow_not_found=True)):
            if info.base_name.startswith(mark):
                system.delete_file(info.path)


def age_of(path: str) -> float:
    """Return the age of a stage in seconds, by its name; 0 for what is not called like one."""
    begun = begun_at(path)
    return time.time() - begun if begun else 0


def remove_stale(io: Mapping[str, str], warehouse: str) -> int:
    """Remove stages that are more than a day old, by the time in their names; return how many."""
    removed = 0
    system, place = storage(io, f"{warehouse.rstrip('/')}/{STAGE}")
    with suppress(OSError):
        for info in system.get_file_info(pafs.FileSelector(place, allow_not_found=True)):
            if age_of(info.path) > _STALE_SECONDS:
                system.delete_dir(info.path)
                removed += 1
    return removed
