"""Keys of the rows of a record that is set aside, as they were decoded: what tells later whose record it is."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from cdc_assets.model.schema import TableSchema
from cdc_assets.types.masks import masked_array

__all__ = ["encoded_keys", "keys_in", "masked_keys"]


def encoded_keys(rows: pa.Table, key: Sequence[str]) -> bytes:
    """Return the keys of a record's rows as an Arrow stream; b"" where there is no row, or one without a whole key."""
    if not key or not rows.num_rows or any(rows.column(name).null_count for name in key):
        return b""
    sink = pa.BufferOutputStream()
    keys = rows.select(list(key)).combine_chunks()
    with pa.ipc.new_stream(sink, keys.schema) as stream:
        stream.write_table(keys)
    return bytes(sink.getvalue())


def keys_in(data: bytes) -> pa.Table:
    """Return the keys that `encoded_keys` wrote."""
    return pa.ipc.open_stream(data).read_all()


def masked_keys(data: bytes, schema: TableSchema) -> bytes:
    """Return keys with the values that the masks of their columns make of them."""
    masks = [column for column in schema.columns if column.mask is not None]
    keys = keys_in(data) if data and masks else None
    if keys is None:
        return data
    for column in masks:
        if column.name in keys.column_names:
            values = masked_array(keys.column(column.name), column)
            keys = keys.set_column(keys.column_names.index(column.name), column.name, values)
    return encoded_keys(keys, keys.column_names)
