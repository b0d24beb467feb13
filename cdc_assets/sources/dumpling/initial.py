"""A dump's directory, opened for reading what was in the tables."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_assets.io.storage import Opener
from cdc_assets.model.dumps import Dump, DumpFile, DumpOptions, DumpSplit, DumpTable
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.sources import Generators
from cdc_assets.sources.dumpling.directory import read_dump
from cdc_assets.sources.dumpling.generated import generators, promised
from cdc_assets.sources.dumpling.splits import DirectoryReader, splits_of

__all__ = ["Directory", "connect"]


@dataclass(frozen=True, slots=True)
class Directory:
    """A dump's directory. `stated` is the TSO that a person states of it."""

    reader: DirectoryReader
    stated: Tso | None

    @property
    def uri(self) -> str:
        """The directory's address without parameters, for messages."""
        return self.reader.opener.uri

    def dump(self) -> Dump:
        """Return what lies in the directory; raises MalformedDump, BucketMissing."""
        return read_dump(self.reader.opener, self.stated, self.reader.options.timezone)

    def splits(self, file: DumpFile) -> tuple[DumpSplit, ...]:
        """Return a data file in pieces for tasks."""
        return splits_of(file, self.reader.options)

    def generators(self, table: DumpTable) -> Generators:
        """Return how stored generated columns get their values, which Dumpling leaves out."""
        return generators(table.schema)

    def promised(self, table: DumpTable) -> TableSchema:
        """Return the table's schema, whose generated columns may be NULL."""
        return promised(table.schema, generators(table.schema))


def connect(opener: Opener, options: DumpOptions, stated: Tso | None) -> Directory:
    """Open a dump's directory; reads nothing yet."""
    return Directory(DirectoryReader(opener, options), stated)
