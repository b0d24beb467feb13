"""Lines of JSON -> changes. An empty list stands for a value that did not change; MOVED stands behind the columns."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pyarrow as pa

from cdc_assets.formats.decoded import COMMIT_TS, LINE, MOVED, OP, UNCHANGED, Decoded, Op
from cdc_assets.model.reports import Reject
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.types.mysql_types import arrow_type, values
from cdc_assets_tests.record_feed.options import RecordOptions

__all__ = [
    "EXTENSION",
    "FILE_EXPANSION",
    "commit_stamps",
    "decode",
    "raw_records",
    "record_beginning",
    "record_identity",
]

EXTENSION = ".records"
FILE_EXPANSION = 1
_OPS = {"I": Op.INSERT, "U": Op.UPDATE, "D": Op.DELETE, "P": Op.PATCH}


def decode(data: bytes, path: str, table: TableId, schema: TableSchema, options: RecordOptions) -> Decoded:
    good: list[tuple[int, list[Any]]] = []
    rejects = []
    for line, raw in raw_records(data, None, options).items():
        try:
            good.append((line, json.loads(raw)))
        except ValueError:
            rejects.append(Reject(path, line, "it is not JSON", raw))
    arrays = [
        pa.array([int(_OPS[record[0]]) for _, record in good], pa.int8()),
        pa.array([record[1] for _, record in good], pa.int64()),
        pa.array([line for line, _ in good], pa.int64()),
    ]
    for place, column in enumerate(schema.stored, 2):
        texts = [None if record[place] in (None, []) else str(record[place]) for _, record in good]
        if arrow_type(column) == pa.binary():  # a character for each byte
            arrays.append(pa.array([None if text is None else text.encode("latin-1") for text in texts], pa.binary()))
            continue
        arrays.append(values(pa.array(texts, pa.string()), column, timezone=options.timezone).array)
    names = [OP, COMMIT_TS, LINE, *(column.name for column in schema.stored)]
    changes = pa.table(arrays, names=names)
    columns = [column.name for column in schema.stored]
    kept = [[name for name, value in zip(columns, record[2:], strict=False) if value == []] for _, record in good]
    if any(kept):
        changes = changes.append_column(
            UNCHANGED, pa.array([unchanged or None for unchanged in kept], pa.list_(pa.string()))
        )
    halves = [record[len(columns) + 2] if len(record) > len(columns) + 2 else None for _, record in good]
    if any(halves):
        changes = changes.append_column(MOVED, pa.array(halves, pa.string()))
    return Decoded(changes, tuple(rejects))


def raw_records(data: bytes, lines: Collection[int] | None, options: RecordOptions) -> dict[int, bytes]:
    return {n: raw for n, raw in enumerate(data.splitlines(), 1) if lines is None or n in lines}


def commit_stamps(data: bytes, options: RecordOptions) -> list[int | None]:
    return [json.loads(raw)[1] for raw in raw_records(data, None, options).values()]


def record_beginning(raw: bytes) -> bytes:
    return raw


def record_identity(raw: bytes) -> object:
    return raw
