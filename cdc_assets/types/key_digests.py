"""Keys of rows as HMACs, by which a row is known whose key is kept nowhere; keys of records that are set aside.

A key has one digest however wide its columns are and however its texts are spelled, as far as the table takes them for
equal. What makes another digest of a key that is the same to the source is in `key_form`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from cdc_assets.model.masks import Mask
from cdc_assets.model.recipe import ExcludedKeys
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.types.collations import is_plain
from cdc_assets.types.masks import family_of, masked_array
from cdc_assets.types.mysql_types import type_text

_DIGITS = 32
"""128 bits in hex: none of a thousand million keys has the digest of another one by chance."""

_NULL = "null"


def key_digests(keys: pa.Table, schema: TableSchema, key: bytes) -> pa.Array:
    """Return the digests of keys by an HMAC with `key`, in hex.

    `keys` are columns of a table with the lake's values, in the order of its key; NULL is a value of its own.
    """
    parts = [
        pc.fill_null(masked_array(keys.column(place), replace(schema.column(name), mask=Mask("hash", key=key))), _NULL)
        for place, name in enumerate(keys.column_names)
    ]
    if len(parts) > 1:
        together = Column("key", "VARCHAR", collation="binary", mask=Mask("hash", key=key))
        parts = [masked_array(pc.binary_join_element_wise(*parts, ","), together)]
    return pc.utf8_slice_codeunits(parts[0], 0, _DIGITS)


def excluded_rows(
    rows: pa.Table, schema: TableSchema, excluded_keys: ExcludedKeys, position: pa.ChunkedArray | Tso
) -> pa.Array:
    """Mark the rows of forgotten keys at positions through which they are kept out."""
    digests = key_digests(rows.select(list(schema.key)), schema, excluded_keys.key)
    place = pc.index_in(digests, value_set=pa.array(excluded_keys.until.keys(), pa.string()))
    until = pa.array(excluded_keys.until.values(), pa.int64()).take(place)
    return pc.fill_null(pc.greater_equal(until, position), False)


def key_form(schema: TableSchema, origins: Mapping[str, str]) -> tuple[str, ...]:
    """Return the form in which a table's keys are hashed: tables of equal forms have equal digests for a key.

    `origins` are names of columns that stay, by the present ones.
    """
    return tuple(_form(schema.column(name), origins.get(name, name)) for name in schema.key)


def _form(column: Column, origin: str) -> str:
    lake_column = column.in_lake
    if lake_column is None:
        return f"{origin} is not in the lake"
    family = family_of(lake_column)
    match family:
        case "integer":
            sense = ""
        case "decimal":
            sense = f" with {lake_column.scale} digits"
        case "text":
            sense = "" if is_plain(lake_column.compares_by or "") else f" by {lake_column.compares_by}"
        case _:
            sense = f" ({type_text(lake_column)})"
    masked = "" if column.mask is None else f", {column.mask.fingerprint}"
    return f"{origin}: {family}{sense}{masked}"


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
