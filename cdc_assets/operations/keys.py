"""Keys as people give them -> rows of the key's columns as the lake has them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from cdc_assets.decoding.keyed_rows import WantedKeys
from cdc_assets.errors import BadSettings
from cdc_assets.io.encryption import decrypt
from cdc_assets.model.encryption import EncryptionKey
from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.model.table_history import TableHistory
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted
from cdc_assets.types.key_digests import keys_in
from cdc_assets.types.masks import masked_array
from cdc_assets.types.mysql_types import arrow_type, values


class KeyOfFile(list[str]):
    """The values of a key, and where they stand: `keys.csv line 7`."""

    def __init__(self, values: Sequence[str], place: str) -> None:
        super().__init__(values)
        self.place = place


def parse_keys(content: bytes | str, place: str) -> list[KeyOfFile]:
    """Return the keys in a text or a file's bytes: CSV without heading, in UTF-8, a key in each line.

    Raises BadSettings where there is no key, or no text, and shows none.
    """
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise BadSettings(f"{place} line {line} is no UTF-8; expected keys in it. Write the file in UTF-8.") from None
    reader, keys, line = csv.reader(io.StringIO(text, newline="")), list[KeyOfFile](), 1
    try:
        for row in reader:
            keys += [KeyOfFile(row, f"{place} line {line}")] if row else []
            line = reader.line_num + 1
    except csv.Error as error:
        raise BadSettings(f"{place} line {line} is no CSV: {error}. Expected a key in each line.") from None
    if not keys:
        raise BadSettings(f"{place} has no key; expected CSV without heading, with a key in each line.")
    return keys


def keys_of(schema: TableSchema, keys: Sequence[Sequence[str]], table: str) -> pa.Table:
    """Return keys in the types of the lake, before any mask.

    The values of a key are texts as MySQL prints them, in the order of the key; of binary columns hexadecimal digits as
    x'…', and TIMESTAMP in UTC. Raises BadSettings for a table without key, and for keys that do not fit it; it shows no
    value.
    """
    if not schema.key:
        raise BadSettings(
            f"{table} has no key, so nothing says which of its rows is meant. If columns identify its rows, name them "
            "in the setting keys (--key) and rebuild the table."
        )
    places = [key.place if isinstance(key, KeyOfFile) else f"key {number}" for number, key in enumerate(keys, 1)]
    for place, key in zip(places, keys, strict=True):
        if len(key) != len(schema.key):
            raise BadSettings(
                f"{place}: the key of {table} is ({', '.join(schema.key)}), and {counted(len(key), 'value')} came. "
                "Give one for each."
            )
    columns = [schema.column(name) for name in schema.key]
    arrays = [_values(column, [key[number] for key in keys], places) for number, column in enumerate(columns)]
    return pa.table(dict(zip(schema.key, arrays, strict=True)))


def masked_keys(keys: pa.Table, schema: TableSchema) -> pa.Table:
    """Return keys as the lake has them: those of a masked table are looked for, and shown, by their hashes alone."""
    for place, name in enumerate(keys.column_names):
        column = schema.column(name)
        if column.mask is not None:
            hashes = masked_array(keys.column(place), column)
            keys = keys.set_column(place, pa.field(name, hashes.type), hashes)
    return keys


def _values(column: Column, texts: Sequence[str], places: Sequence[str]) -> pa.Array:
    hexadecimal = pa.types.is_binary(arrow_type(column))  # a text key may look like it
    raw = [
        _bytes(column, text, place) if hexadecimal and text.startswith("x'") and text.endswith("'") else text
        for text, place in zip(texts, places, strict=True)
    ]
    binary = any(isinstance(raw_value, bytes) for raw_value in raw)
    raw_values = [raw_value.encode() if binary and isinstance(raw_value, str) else raw_value for raw_value in raw]
    read = values(pa.array(raw_values, pa.binary() if binary else pa.string()), column).array
    if read.null_count:
        place = next(place for place, value in zip(places, read.to_pylist(), strict=True) if value is None)
        raise BadSettings(
            f"{place}: what it has is no value of the key column {column.name}, which is {column.type}. "
            "Give the values alone, in the order of the key's columns."
        )
    return read


def _bytes(column: Column, text: str, place: str) -> bytes:
    try:
        return bytes.fromhex(text[2:-1])
    except ValueError:
        raise BadSettings(f"{place}: x'…' of the key column {column.name} has no hexadecimal digits.") from None


def keyed_alike(schema: TableSchema, keys: pa.Table, table: TableHistory, version: Tso) -> TableSchema | None:
    """Return the columns of rows of a version with those as their key that `keys` have, by the names that stay.

    None where rows of then lack one of these.
    """
    column_names = {column.name for column in schema.columns}
    names = {origin: name for name, origin in table.origins_at(version).items() if name in column_names}
    if not names.keys() >= set(keys.column_names):
        return None
    return replace(schema, key=tuple(names[origin] for origin in keys.column_names))


def record_has_key(
    data: bytes, schema: TableSchema, keys: pa.Table, encryption_key: EncryptionKey | None
) -> bool | None:
    """Return whether rows of a record that was set aside have one of `keys`; None where its keys say nothing.

    `data` are the keys as they were decoded (`types.record_keys`), `schema` has the columns of the record's version,
    as the lake has them, with those of `keys` as its key.
    """
    try:
        rows = keys_in(decrypt(data, encryption_key)) if data else None
    except BadSettings:
        return None
    if rows is None or not set(schema.key) <= set(rows.column_names):
        return None
    return len(WantedKeys(keys.rename_columns(schema.key), schema).numbers(rows.select(schema.key))) > 0
