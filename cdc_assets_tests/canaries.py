"""Looks for values of masked columns in all that a run leaves: files, those in archives and columns, and what is said.

Tokens are the values themselves, as long as nothing else can be equal by chance: texts and bytes of eight or more. Each
is looked for as it is, in UTF-16, in hex, in base64 at any place of a longer text, and escaped as JSON and Python do
it; a number also as eight bytes.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import fastavro
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["contents", "distinctive", "forms", "found_in", "leaks", "tokens_of"]

_LEAST = 8


def tokens_of(tables: Iterable[pa.Table]) -> set[bytes]:
    """Return the distinctive values of tables."""
    return {token for table in tables for column in table.columns for token in _tokens(column)}


def _tokens(column: pa.ChunkedArray) -> Iterator[bytes]:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        for value in column.unique().to_pylist():
            data = value.encode() if isinstance(value, str) else value
            if data is not None and distinctive(data):
                yield data


def distinctive(value: bytes) -> bool:
    """Return whether nothing else can be equal to a value by chance."""
    return len(value) >= _LEAST and len(set(value)) > 3


def forms(token: bytes) -> set[bytes]:
    """Return how a token may stand in a file."""
    byte_forms = {token, token.hex().encode(), token.hex().upper().encode()}
    for shift in range(3):  # what stands before it moves the letters of base64
        letters = base64.b64encode(b"\0" * shift + token)
        byte_forms.add(letters[4 if shift else 0 : len(letters) // 4 * 4 - 4])
    text = token.decode("utf-8", "replace")
    byte_forms |= {json.dumps(text)[1:-1].encode(), repr(text)[1:-1].encode(), repr(token)[2:-1].encode()}
    byte_forms.add(text.encode("utf-16-le")[:-1])  # in either order
    if re.fullmatch(r"-?[1-9]\d{9,17}", text):
        byte_forms |= {int(text).to_bytes(8, order, signed=True) for order in ("little", "big")}
    return {form for form in byte_forms if len(form) >= _LEAST}


def found_in(data: bytes, tokens: Iterable[bytes]) -> list[bytes]:
    """Return the tokens that stand in some bytes, in any form."""
    return _found_in([data], tokens)[0]


def _found_in(parts: Sequence[bytes], tokens: Iterable[bytes]) -> list[list[bytes]]:
    """Return the tokens in each of several parts, all of them looked for at once."""
    every = {form.decode("latin-1"): token for token in tokens for form in forms(token)}
    if not every:
        return [[] for _ in parts]
    texts = pl.Series([part.decode("latin-1") for part in parts], dtype=pl.String)
    matches = texts.str.extract_many([*every], overlapping=True)
    return [sorted({every[form] for form in some}) for some in matches]


def leaks(directory: Path, tokens: set[bytes]) -> list[str]:
    """Return which files below a directory have a token, and which."""
    files = (file for file in sorted(directory.rglob("*")) if file.is_file())
    parts = [(f"{file.relative_to(directory)}{what}", data) for file in files for what, data in contents(file)]
    matches = _found_in([data for _, data in parts], tokens)
    return [f"{name}: {token!r}" for (name, _), some in zip(parts, matches, strict=True) for token in some]


def contents(file: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the bytes of a file, and what they are once they are decompressed."""
    data = file.read_bytes()
    yield "", data
    if file.suffix == ".parquet":
        yield " (its columns)", _text(pq.read_table(file, partitioning=None).to_pylist())
    elif file.suffix == ".avro":
        with file.open("rb") as source:
            yield " (its records)", _text(list(fastavro.reader(source)))
    elif data.startswith(b"\x1f\x8b"):
        yield " (gunzipped)", gzip.decompress(data)
    elif data.startswith(b"\x28\xb5\x2f\xfd"):
        yield " (decompressed)", pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
    elif data[:1] == b"\x78":
        yield " (inflated)", zlib.decompressobj().decompress(data)


def _text(rows: list[Any]) -> bytes:
    """Return rows as text, their bytes as they are."""

    def parts(value: Any) -> Iterator[bytes]:
        if isinstance(value, dict):
            for element in value.values():
                yield from parts(element)
        elif isinstance(value, (list, tuple)):
            for element in value:
                yield from parts(element)
        else:
            yield value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")

    return b"\n".join(parts(rows))
