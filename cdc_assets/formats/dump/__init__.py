"""Data files of dumps: a split of a file -> its rows as changes, block by block. Runs on Spark executors.

    csv      Dumpling's CSV in every dialect                sql      its INSERT statements
    blocks   bytes of a split, whole records at a time      dialect  what the options of CSV mean
    cutting  records -> columns of texts                    rows     texts -> changes
    parquet  Parquet of Dumpling and TiDB Cloud

Every reader yields `Decoded`: all rows are inserts, and all have the dump's TSO as commit-ts. `_cdc_line` counts
records from the first row of the split; `lines_before` says what to add for the line in the file. A file that cannot be
trusted raises MalformedData, also behind rows that were yielded before: nothing may be committed until a split is read
through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module

from cdc_assets.errors import BadSettings
from cdc_assets.formats import Decoded
from cdc_assets.formats.dump.blocks import ReadRange
from cdc_assets.model.dumps import DumpOptions, DumpSplit
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.tso import Tso

__all__ = ["KINDS", "ReadRange", "Reader", "can_cut", "lines_before", "raw_records", "reader"]

Reader = Callable[[DumpSplit, ReadRange, TableId, TableSchema, DumpOptions, Tso], Iterator[Decoded]]
"""(split, bytes of its file by range, table, its schema in the dump, options, the dump's TSO) -> blocks of changes."""

KINDS: Mapping[str, str] = {
    "csv": "cdc_assets.formats.dump.csv",
    "sql": "cdc_assets.formats.dump.sql",
    "parquet": "cdc_assets.formats.dump.parquet",
}
"""`DumpFile.kind` -> module with `read`, `can_cut`, `lines_before` and `raw_records`."""


def reader(kind: str) -> Reader:
    """Return the reader of a kind of data file; raises BadSettings that lists the known ones."""
    if kind not in KINDS:
        raise BadSettings(f'data files of the kind "{kind}" cannot be read; known are {", ".join(sorted(KINDS))}.')
    read: Reader = import_module(KINDS[kind]).read
    return read


def can_cut(kind: str, options: DumpOptions) -> bool:
    """Tell whether a file that is not compressed can be read from its middle."""
    return bool(import_module(KINDS[kind]).can_cut(options))


def lines_before(split: DumpSplit, read_range: ReadRange, options: DumpOptions) -> int:
    """Return how many records of the file stand before the split's first row. Reads all that is before it."""
    return int(import_module(KINDS[split.file.kind]).lines_before(split, read_range, options))


def raw_records(
    split: DumpSplit, read_range: ReadRange, lines: Collection[int], options: DumpOptions
) -> dict[int, bytes]:
    """Return the bytes of the split's records with these numbers, without terminator; () for a kind without text."""
    found: dict[int, bytes] = import_module(KINDS[split.file.kind]).raw_records(split, read_range, lines, options)
    return found
