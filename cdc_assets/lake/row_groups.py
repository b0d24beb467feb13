"""Row groups of Parquet files, written and read wherever a task runs: no catalog here, and no JVM.

RowFiles      row groups -> a file of its own, in no snapshot yet
is_packed     whether a file was written with the stronger compression
RowGroups     a file, a number -> that row group
read_rows     a file -> all of its rows
copy_without  a file, the numbers of some rows -> a copy without these
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from cdc_assets.errors import InputError, LakeUnavailable
from cdc_assets.lake.staging.storage import make_directory, storage


class WrittenFile(NamedTuple):
    """A file that no snapshot has yet."""

    location: str
    file_bytes: int


@dataclass(frozen=True, slots=True)
class RowFiles:
    """Writes files of these columns into a directory: picklable. `io` is PyIceberg's properties."""

    io: Mapping[str, str] = field(repr=False)
    directory: str
    schema: pa.Schema

    def write(self, groups: Iterable[pa.Table], *, packed: bool = False) -> WrittenFile:
        """Write a file with these row groups, each as it comes; raises LakeUnavailable.

        A `packed` file has fewer bytes and takes much more CPU to write; its name says so (`is_packed`). What `groups`
        raises is raised, and no file is left then.
        """
        location = f"{self.directory}/{uuid.uuid4().hex}{_PACKED if packed else '.parquet'}"
        options = {**_as_written(self.schema), **(_PACKING if packed else {})}
        try:
            system, path = storage(self.io, location)
            make_directory(system, path.rsplit("/", 1)[0])
            with system.open_output_stream(path) as sink:
                with pq.ParquetWriter(sink, self.schema, store_schema=False, **options) as writer:
                    for group in groups:
                        rows = group if group.schema.equals(self.schema) else group.cast(self.schema)
                        writer.write_table(rows, row_group_size=max(1, rows.num_rows))
                size = int(sink.tell())
        except BaseException as error:
            self.remove([location])
            if not isinstance(error, OSError):
                raise
            raise LakeUnavailable(
                f"{location}: the warehouse cannot be written ({error}). Nothing was committed. Correct that and try "
                "again."
            ) from error
        return WrittenFile(location, size)

    def remove(self, locations: Iterable[str]) -> None:
        """Remove files that were never committed; those that cannot be removed are left for maintenance."""
        for location in locations:
            system, path = storage(self.io, location)
            with suppress(OSError):
                system.delete_file(path)


def _as_written(schema: pa.Schema) -> dict[str, Any]:
    """Return the Parquet options of files: bytes are mostly distinct, so they have no dictionary or statistics."""
    texts = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]
    numbers = [field.name for field in schema if pa.types.is_integer(field.type)]
    differences = dict.fromkeys(numbers, "DELTA_BINARY_PACKED")  # offsets and positions mostly grow in small steps
    return {
        "compression": "zstd",
        "use_dictionary": texts,
        "write_statistics": numbers + texts,
        "column_encoding": differences,
    }


_PACKED = "-packed.parquet"
_PACKING = {"compression_level": 12, "data_page_size": 8 << 20}


def is_packed(location: str) -> bool:
    """Return whether a file was written as a packed one."""
    return location.endswith(_PACKED)


_FOOTERS = 8
_footers: dict[str, pq.FileMetaData] = {}
"""Footers of the files read last, which never change: reading a footer takes as long as reading a small row group."""


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Reads single row groups of data files: picklable. `io` is PyIceberg's properties."""

    io: Mapping[str, str] = field(repr=False)

    def __call__(self, location: str, group: int) -> pa.Table:
        """Return one row group; raises InputError if the file does not exist."""
        try:
            system, path = storage(self.io, location)
            with system.open_input_file(path) as source:
                file = pq.ParquetFile(source, metadata=_footers.get(location))
                if location not in _footers:
                    _footers[location] = file.metadata
                    for oldest in list(_footers)[:-_FOOTERS]:
                        _footers.pop(oldest, None)
                return file.read_row_group(group)
        except FileNotFoundError:
            raise InputError(
                f"{location} no longer exists: its rows expired, or were compacted meanwhile. Plan again.",
                file=location,
                gone=True,
            ) from None


def read_rows(io: Mapping[str, str], location: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return all rows of a Parquet file, with these columns only if any are named. `io` is PyIceberg's properties."""
    system, path = storage(io, location)
    with system.open_input_file(path) as source:
        return pq.ParquetFile(source).read(columns)


def copy_without(io: Mapping[str, str], path: str, location: str, gone: npt.NDArray[np.int64]) -> int:
    """Copy a Parquet file row group by row group without some rows, and return its bytes; 0, and no file, for none."""
    (system, old), (_, new) = storage(io, path), storage(io, location)
    with system.open_input_file(old) as source:
        file = pq.ParquetFile(source)
        if len(gone) >= file.metadata.num_rows:
            return 0
        columns = [file.schema.column(number) for number in range(file.metadata.num_columns)]
        whole = any(
            column.logical_type.type == "DECIMAL" and column.physical_type.startswith("INT") for column in columns
        )
        codec = file.metadata.row_group(0).column(0).compression.lower().replace("uncompressed", "none")
        make_directory(system, new.rsplit("/", 1)[0])
        with system.open_output_stream(new) as sink:
            with pq.ParquetWriter(sink, file.schema_arrow, compression=codec, store_decimal_as_integer=whole) as writer:
                start = 0
                for group in range(file.num_row_groups):
                    rows = file.read_row_group(group)
                    is_living = np.ones(rows.num_rows, np.bool_)
                    is_living[gone[(gone >= start) & (gone < start + rows.num_rows)] - start] = False
                    start += rows.num_rows
                    rows = rows if is_living.all() else rows.filter(pa.array(is_living))
                    if rows.num_rows:
                        writer.write_table(rows, row_group_size=rows.num_rows)
            return int(sink.tell())
