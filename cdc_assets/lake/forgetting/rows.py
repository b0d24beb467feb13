"""Rows of keys in Parquet files, found by the field ids of the key's columns, and what manifests show of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import InvalidOperation
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.types import PrimitiveType

from cdc_assets.decoding import PLACE
from cdc_assets.decoding.keyed_rows import WantedKeys
from cdc_assets.formats import POSITION
from cdc_assets.lake.failures import answering
from cdc_assets.lake.row_delta import field_id
from cdc_assets.types.collations import is_plain
from cdc_assets.types.mysql_types import arrow_type

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema

__all__ = ["KeyRows", "RowNumbers"]

_DISTINCTIVE = 8
"""Bytes that a value has to have that is nowhere else by chance."""

_BOUNDED = ("int", "long", "string")
"""Iceberg's types whose bounds are compared as the values are."""

RowNumbers = npt.NDArray[np.int64]
"""Row numbers in a file, from 0."""


@dataclass(frozen=True)
class KeyRows(WantedKeys):
    """Finds the rows of keys in files of a table.

    `columns` are those of now, `types` those that fields have or had, by their ids: files may have values of each.
    """

    columns: Schema
    types: Mapping[int, Sequence[PrimitiveType]]

    @cached_property
    def tokens(self) -> tuple[bytes, ...]:
        """The values that are long enough to be looked for in bytes of any kind."""
        values = (value for column in self.keys.columns for value in column.to_pylist())
        encoded = (value.encode() if isinstance(value, str) else value for value in values)
        return tuple(value for value in encoded if isinstance(value, bytes) and len(value) >= _DISTINCTIVE)

    @cached_property
    def _fields(self) -> dict[str, Any]:
        return {name: self.columns.find_field(name) for name in self.keys.column_names}

    # --- what manifests have of a data file ---

    def may_be_in(self, file: DataFile) -> bool:
        """Return whether the bounds of a data file allow for one of the keys; those of collated texts tell nothing."""
        for name, field in self._fields.items():
            low, high = ((bounds or {}).get(field.field_id) for bounds in (file.lower_bounds, file.upper_bounds))
            column = self.schema.column(name)
            compared = pa.types.is_integer(arrow_type(column)) or is_plain(column.compares_by or "")
            if len(self.types[field.field_id]) > 1 or low is None or high is None or not compared:
                continue
            if str(field.field_type) not in _BOUNDED:
                continue
            lowest, highest = from_bytes(field.field_type, low), from_bytes(field.field_type, high)
            if not any(lowest <= value <= highest for value in self.keys.column(name).to_pylist()):
                return False
        return True

    def is_shown(self, file: DataFile) -> bool:
        """Return whether the bounds of a data file, as a manifest has it, show one of the keys."""
        shown = []
        for name, field in self._fields.items():
            bounds = ((some or {}).get(field.field_id) for some in (file.lower_bounds, file.upper_bounds))
            values = {value for bound in bounds if bound is not None for value in self._values(field.field_id, bound)}
            values |= {str(value) for value in values}
            keys = enumerate(self.keys.column(name).to_pylist())
            shown.append({number for number, key in keys if not values.isdisjoint({key, str(key)})})
        return bool(set.intersection(*shown))

    def _values(self, number: int, bound: bytes) -> Iterator[Any]:
        """Yield the possible values of a bound of a field, one for each type that the column had."""
        for kind in self.types.get(number, ()):
            with suppress(ValueError, struct.error, InvalidOperation):
                yield from_bytes(kind, bound)

    # --- data files ---

    def in_file(self, system: Any, path: str) -> RowNumbers:
        """Return the numbers of a Parquet file's rows that are of one of the keys."""
        with answering(), system.open_input_file(path) as source:
            file = pq.ParquetFile(source)
            names = self._names_in(file)
            numbers, start = [np.empty(0, np.int64)], 0
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, columns=list(names.values()))
                count = file.metadata.row_group(group).num_rows
                numbers.append(np.asarray(self.numbers(self._filled(rows, names, count)), np.int64) + start)
                start += count
        return np.concatenate(numbers)

    def keys_in_file(self, system: Any, path: str, numbers: RowNumbers) -> set[int]:
        """Return which of the keys, by their number, the rows of a Parquet file with these numbers have."""
        with answering(), system.open_input_file(path) as source:
            file = pq.ParquetFile(source)
            names = self._names_in(file)
            rows = file.read(columns=list(names.values()))
        return self.among(self._filled(rows, names, file.metadata.num_rows).take(numbers))

    def _names_in(self, file: pq.ParquetFile) -> dict[str, str]:
        """Return what the key's columns are called in a file, without those that it does not have."""
        names = {field_id(column): column.name for column in file.schema_arrow}
        return {name: names[field.field_id] for name, field in self._fields.items() if field.field_id in names}

    def _filled(self, rows: pa.Table, names: Mapping[str, str], count: int) -> pa.Table:
        """Return the key's columns; one that was added after the file was written has its default in all rows."""
        columns = {}
        for name, field in self._fields.items():
            if name in names:
                columns[name] = rows.column(names[name])
            else:
                columns[name] = pa.repeat(pa.scalar(field.initial_default, self.keys.schema.field(name).type), count)
        return pa.table(columns)

    def moved(self, system: Any, path: str, numbers: RowNumbers) -> set[tuple[str, ...]]:
        """Return other keys of which a file of a log has rows at the places of these: those of updates of a key."""
        with answering(), system.open_input_file(path) as source:
            file = pq.ParquetFile(source)
            names = list(self._names_in(file).values())
            rows = pl.from_arrow(file.read(columns=[*names, POSITION, PLACE]))
        assert isinstance(rows, pl.DataFrame)
        is_of_keys = pl.int_range(rows.height, eager=True).is_in(numbers.tolist())
        others = rows.filter(~is_of_keys).join(rows.filter(is_of_keys), on=[POSITION, PLACE], how="semi")
        return {tuple(map(str, key)) for key in zip(*(others.get_column(name) for name in names), strict=True)}
