"""Rows of dumps: what reads a data file or a split of a dump, and its rows as the schema's masks have them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from cdc_assets.errors import BadSettings
from cdc_assets.formats import ReadRange, SplitReader, conceal_blocks
from cdc_assets.formats.decoded import Decoded
from cdc_assets.model.dumps import DumpOptions, DumpSplit
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.tso import Tso

if TYPE_CHECKING:
    from cdc_assets.model.splits import DataFile


class DumpFormat(Protocol):
    """A kind of data file of a dump. Lines count records from the first row of a split."""

    def read(
        self,
        split: DumpSplit,
        read_range: ReadRange,
        table: TableId,
        schema: TableSchema,
        options: DumpOptions,
        at: Tso,
    ) -> Iterator[Decoded]:
        """Yield the rows of a split, block by block, as inserts of commit-ts `at`.

        Raises MalformedData for a file that cannot be trusted, also behind rows that were yielded before.
        """

    def can_cut(self, options: DumpOptions) -> bool:
        """Return whether a file that is not compressed can be read from its middle."""

    def lines_before(self, split: DumpSplit, read_range: ReadRange, options: DumpOptions) -> int:
        """Return the number of records of the file before the split's first row; reads all that is before it."""

    def raw_records(
        self, split: DumpSplit, read_range: ReadRange, lines: Collection[int], options: DumpOptions
    ) -> dict[int, bytes]:
        """Return the split's records with these numbers, without terminator."""


@runtime_checkable
class DumpRows(Protocol):
    """The attributes of a split that also describe rows of dumps: `piece` is set only there."""

    def rows(self, file: DataFile, table: TableId, schema: TableSchema) -> Iterator[Decoded]:
        """Yield the rows of a split block by block, as inserts of the dump's TSO; lines count from its first record.

        Rejects have the lines of the whole file. Raises MalformedData for a split that cannot be trusted, also behind
        rows that were yielded before.
        """

    def lines_before(self, file: DataFile) -> int:
        """Return the number of records of the whole file before the split's first one."""

    def records(self, file: DataFile, lines: Collection[int]) -> dict[int, bytes]:
        """Return the split's records with these numbers, where the dump has any bytes of them."""


def snapshot_rows(reader: SplitReader, file: DataFile, table: TableId, schema: TableSchema) -> Iterator[Decoded]:
    """Yield the rows of a dump's split as `DumpRows.rows` does, as the schema's masks have them."""
    yield from conceal_blocks(_dump_rows(reader).rows(file, table, schema), file.name, schema)


def lines_before(reader: SplitReader, file: DataFile) -> int:
    """Return by how much the line numbers of a split are smaller than those of its file: 0 but for parts of a dump."""
    return _dump_rows(reader).lines_before(file) if file.piece is not None else 0


def raw_rows(reader: SplitReader, file: DataFile, lines: Collection[int]) -> dict[int, bytes]:
    """Return the records of a dump's split with these numbers, where the dump has any bytes of them."""
    return _dump_rows(reader).records(file, lines)


def _dump_rows(reader: SplitReader) -> DumpRows:
    """Return the reader of splits of dumps."""
    if not isinstance(reader, DumpRows):
        raise TypeError(f"{type(reader).__name__} reads no dumps")
    return reader


DUMP_FORMATS: Mapping[str, str] = {
    "csv": "cdc_assets.formats.dump.csv",
    "sql": "cdc_assets.formats.dump.sql",
    "parquet": "cdc_assets.formats.dump.parquet",
}
"""Kind of a dump's data file -> module that is a DumpFormat."""


def dump_format(kind: str) -> DumpFormat:
    """Return the format that reads a kind of data file of a dump; raises BadSettings that lists the known ones."""
    if kind not in DUMP_FORMATS:
        raise BadSettings(
            f'data files of the kind "{kind}" cannot be read; known are {", ".join(sorted(DUMP_FORMATS))}.'
        )
    return cast("DumpFormat", import_module(DUMP_FORMATS[kind]))
