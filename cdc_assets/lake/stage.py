"""A window's changes on their way: executors decode, check, reduce and write Parquet; the commit reads it.

    <warehouse>/_cdc_stage/<seconds since 1970>-<uuid>/part-00000.parquet …, rejects-00000.parquet …, _stage.json

Columns of the source stand there by position (`c0`, `c1`, …), so no name can get in the way. Only reports cross to the
driver. A stage whose run died is removed by the next commit of anybody once it is a day old.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow.fs as pafs
from pyspark.sql import DataFrame, SparkSession

from cdc_assets.formats import COMMIT_TS, LINE, OP
from cdc_assets.lake.commit import key_form
from cdc_assets.lake.part import Ranges, Read, part_reader, part_writer, storage
from cdc_assets.model import ApplyRows, SinkOptions, Staged, TableSchema
from cdc_assets.mysql_types import spark_type
from cdc_assets.reduce import COUNT, FILE
from cdc_assets.window import Window, merge_reports, read_window

__all__ = [
    "Batch",
    "discard",
    "read_batch",
    "read_manifest",
    "read_parts",
    "remove_stale",
    "shares",
    "stage",
    "stage_tasks",
]

STAGE = "_cdc_stage"
_TASK_BYTES = 256 << 20
_SMALL_BYTES = 8 << 20
_STALE_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class Batch:
    """A staged window: `entering` and `leaving` count reduced changes, `ranges` bounds integer key columns.

    `rejects` are the Parquet files of records for the quarantine.
    """

    parts: tuple[str, ...]
    entering: int
    leaving: int
    ranges: Ranges
    rejects: tuple[str, ...] = ()


# --- writing ----------------------------------------------------------------------------------------------------------


def stage(
    spark: SparkSession,
    warehouse: str,
    io: Mapping[str, str],
    step: ApplyRows,
    options: SinkOptions,
    read: Read,
    quarantine: bool = False,
) -> Staged:
    """Decode a window on the executors and write it reduced. `io` is PyIceberg's properties of the warehouse.

    Rows that do not fit are in the report, and with `quarantine` in Parquet files beside the changes. Raises what the
    format raises for the whole window: TableHeld, InputError.
    """
    reader = partial(read_window, step, options, read, quarantine=quarantine)
    return stage_tasks(spark, warehouse, io, step, reader, shares(step, spark.sparkContext.defaultParallelism))


def stage_tasks(
    spark: SparkSession,
    warehouse: str,
    io: Mapping[str, str],
    step: ApplyRows,
    reader: Callable[[Any], Window],
    tasks: Sequence[Any],
) -> Staged:
    """Let executors write the windows that `reader` makes of the tasks, all with the columns of the step's schema."""
    started = time.monotonic()
    path = f"{warehouse.rstrip('/')}/{STAGE}/{int(time.time())}-{uuid.uuid4().hex}"
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    try:
        rows = numbers.mapInArrow(part_writer(path, dict(io), step, reader, tasks), "part binary").collect()
        parts = [pickle.loads(bytes(row[0])) for row in rows]  # noqa: S301  # our own executors wrote them
        for part in parts:
            if part.error is not None:
                raise part.error
        report = merge_reports([part.report for part in parts], time.monotonic() - started)
        written = [part for part in parts if part.name]
        rejects = tuple(part.rejects for part in parts if part.rejects)
        if not written and not rejects:
            return Staged("", 0, report)
        batch = Batch(
            tuple(part.name for part in written),
            sum(part.entering for part in written),
            sum(part.leaving for part in written),
            _bounds([part.ranges or {} for part in written]),
            rejects,
        )
        _write_manifest(io, path, batch)
    except BaseException:
        discard(io, path)
        raise
    return Staged(path, batch.entering + batch.leaving, report)


def shares(step: ApplyRows, tasks: int) -> list[list[int]]:
    """Cut the files, by position and in order, into few shares of about equal bytes.

    A table without key needs all of its files in one share: only together do they tell what was delivered twice.
    """
    sizes = [max(file.size, 1) for file in step.files]
    total = sum(sizes)
    if not step.schema.key or total <= _SMALL_BYTES:
        return [list(range(len(sizes)))]
    count = min(len(sizes), max(tasks, -(-total // _TASK_BYTES)))
    cut: list[list[int]] = [[] for _ in range(count)]
    before = 0
    for position, size in enumerate(sizes):
        cut[min(count - 1, (before + size // 2) * count // total)].append(position)
        before += size
    return [share for share in cut if share]


def _bounds(ranges: Sequence[Mapping[str, tuple[int, int]]]) -> dict[str, tuple[int, int]]:
    names = set.intersection(*(set(one) for one in ranges)) if ranges else set()
    return {name: (min(one[name][0] for one in ranges), max(one[name][1] for one in ranges)) for name in names}


# --- reading ----------------------------------------------------------------------------------------------------------


def read_batch(spark: SparkSession, io: Mapping[str, str], step: ApplyRows, staged: Staged) -> tuple[DataFrame, Batch]:
    """Return the staged changes, one per key, and what is known of them."""
    batch = read_manifest(io, staged.path)
    fields = [f"{OP} tinyint", f"{COMMIT_TS} bigint", f"{LINE} bigint", f"{FILE} int"]
    fields += [] if step.schema.key else [f"{COUNT} bigint"]
    fields += [f"c{position} {spark_type(column)}" for position, column in enumerate(step.schema.stored)]
    rows = read_parts(spark, io, [f"{staged.path}/{part}" for part in batch.parts], ", ".join(fields))
    return (_last_per_key(spark, rows, step.schema) if len(batch.parts) > 1 else rows), batch


def read_parts(spark: SparkSession, io: Mapping[str, str], files: Sequence[str], types: str) -> DataFrame:
    """Return the rows of staged Parquet files, whose columns are those of `types` in that order."""
    if storage(io, files[0])[0].type_name == "local":
        return spark.read.schema(types).parquet(*(storage(io, file)[1] for file in files))
    return spark.range(0, len(files), 1, len(files)).mapInArrow(part_reader(dict(io), files), types)


def _last_per_key(spark: SparkSession, rows: DataFrame, schema: TableSchema) -> DataFrame:
    """Reduce what several tasks reduced for themselves: the same order as `reduce.reduce_keyed`."""
    rows.createOrReplaceTempView("parts")
    places = {column.name: f"c{position}" for position, column in enumerate(schema.stored)}
    key = ", ".join(key_form(schema.column(name), places[name]) for name in schema.key)
    order = f"{COMMIT_TS} DESC, {OP} > 0 DESC, {FILE} DESC, {LINE} DESC"
    ranked = f"SELECT *, row_number() OVER (PARTITION BY {key} ORDER BY {order}) AS _cdc_rank FROM parts"
    return spark.sql(f"SELECT * FROM ({ranked}) WHERE _cdc_rank = 1").drop("_cdc_rank")


# --- storage ----------------------------------------------------------------------------------------------------------


def _write_manifest(io: Mapping[str, str], path: str, batch: Batch) -> None:
    system, place = storage(io, path)
    told = dataclasses.asdict(batch)
    with system.open_output_stream(f"{place}/_stage.json") as sink:
        sink.write(json.dumps(told).encode())


def read_manifest(io: Mapping[str, str], path: str) -> Batch:
    """Return what a stage tells of itself."""
    system, place = storage(io, path)
    with system.open_input_stream(f"{place}/_stage.json") as source:
        told = json.loads(source.readall())
    ranges = {name: (int(low), int(high)) for name, (low, high) in told["ranges"].items()}
    return Batch(tuple(told["parts"]), told["entering"], told["leaving"], ranges, tuple(told["rejects"]))


def discard(io: Mapping[str, str], path: str) -> None:
    """Remove a stage; nothing happens when it is gone already."""
    if path:
        system, place = storage(io, path)
        with suppress(OSError):
            system.delete_dir(place)


def remove_stale(io: Mapping[str, str], warehouse: str) -> None:
    """Remove stages of runs that died more than a day ago, by the time in their names."""
    system, place = storage(io, f"{warehouse.rstrip('/')}/{STAGE}")
    with suppress(OSError):
        for info in system.get_file_info(pafs.FileSelector(place, allow_not_found=True)):
            begun = info.base_name.partition("-")[0]
            if begun.isdigit() and int(begun) < time.time() - _STALE_SECONDS:
                system.delete_dir(info.path)
