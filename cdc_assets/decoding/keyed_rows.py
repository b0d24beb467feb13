"""Rows of given keys, which are equal as the collations of the columns compare.

rows_of_keys  which rows have one of some keys
WantedKeys    the same of rows whose key had other types at their time
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.decoding.split import with_key
from cdc_assets.model.schema import TableSchema

_ROW = "_cdc_row"


def rows_of_keys(rows: pa.Table, keys: pa.Table, schema: TableSchema) -> pa.Array:
    """Return the numbers of the rows whose key is among `keys`, in their order."""
    return _rows_of(rows, with_key(keys, schema, ())[0], schema)


def _rows_of(rows: pa.Table, wanted: pl.DataFrame, schema: TableSchema) -> pa.Array:
    frame, by = with_key(rows, schema, ())
    return frame.with_row_index(_ROW).join(wanted, on=by, how="semi", nulls_equal=True).get_column(_ROW).to_arrow()


def of_keys(rows: pa.Table, keys: pa.Table, schema: TableSchema) -> pa.Table:
    """Return the rows whose key is among `keys`."""
    return rows.take(rows_of_keys(rows, keys, schema))


def keys_like(keys: pa.Table, rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Return keys in the types that rows of an earlier or a later time have; those that are no value there are none."""
    return _alike(keys, rows, schema).drop_null()


def _alike(keys: pa.Table, rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Return the same with NULL for what is no value there."""
    columns = []
    for name, values in zip(schema.key, keys.columns, strict=True):
        kind = rows.schema.field(name).type
        try:
            columns.append(values.cast(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            columns.append(pa.chunked_array([_cast(value, kind) for value in values], kind))
    return pa.table(columns, names=list(schema.key))


def _cast(value: pa.Scalar, kind: pa.DataType) -> pa.Array:
    try:
        return pa.array([value.cast(kind).as_py()], kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(1, kind)


@dataclass(frozen=True)
class WantedKeys:
    """Keys whose rows are looked for: columns of a table's key in the types of now, and how their values compare."""

    keys: pa.Table
    schema: TableSchema

    @cached_property
    def _compared(self) -> pl.DataFrame:
        return with_key(self.keys, self.schema, ())[0]

    def numbers(self, rows: pa.Table) -> pa.Array:
        """Return which of the rows, by their number, have one of the keys.

        Values of before a DDL are those that they became, or become those that are meant.
        """
        cast = self._as_now(rows)
        became = _rows_of(cast, self._compared, self.schema)
        if rows.schema.types == cast.schema.types:
            return became
        were = rows_of_keys(rows, keys_like(self.keys, rows, self.schema), self.schema)
        return pc.unique(pa.concat_arrays([became, were])).sort()

    def among(self, rows: pa.Table) -> set[int]:
        """Return which of the keys, by their number, some of the rows have."""
        cast = self._as_now(rows)
        found = rows_of_keys(self.keys, cast, self.schema).to_pylist()
        if rows.schema.types != cast.schema.types:
            found += rows_of_keys(_alike(self.keys, rows, self.schema), rows, self.schema).to_pylist()
        return set(found)

    def _as_now(self, rows: pa.Table) -> pa.Table:
        """Return rows in the types of the keys."""
        frame, like = pl.from_arrow(rows), pl.from_arrow(self.keys.schema.empty_table())
        assert isinstance(frame, pl.DataFrame)
        assert isinstance(like, pl.DataFrame)
        cast = pl.DataFrame([frame.get_column(name).cast(kind, strict=False) for name, kind in like.schema.items()])
        return cast.to_arrow().cast(self.keys.schema)
