"""A dump's directory, opened for reading what was in the tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from cdc_assets.errors import CdcError
from cdc_assets.io.storage import Opener
from cdc_assets.model.dumps import Dump, DumpFile, DumpOptions, DumpSplit, DumpTable, Glance, RowCondition
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.sources import Generators
from cdc_assets.sources.dumpling.directory import Entries, read_dump
from cdc_assets.sources.dumpling.generated import generators, promised
from cdc_assets.sources.dumpling.splits import DirectoryReader, read_split, splits_of

_GLANCE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Directory:
    """A dump's directory. `stated` is the TSO that a person states of it. Files that are as they were are read once."""

    reader: DirectoryReader
    stated: Tso | None
    _known: dict[Entries, Dump] = field(default_factory=dict, repr=False, compare=False)

    @property
    def uri(self) -> str:
        """The directory's address without parameters, for messages."""
        return self.reader.opener.uri

    def dump(self) -> Dump:
        """Return the contents of the directory; raises MalformedDump, BucketMissing."""
        entries = tuple(sorted(self.reader.opener.entries()))
        if entries not in self._known:
            parsed_dump = read_dump(self.reader.opener, self.stated, self.reader.options.timezone, entries)
            files = [(path, size, etag) for path, size, etag, _ in entries]
            digest = sha256(repr((self.reader.options, files)).encode()).hexdigest()
            parsed_dump = replace(parsed_dump, identity=f"{self.uri} {digest}")
            self._known.clear()
            self._known[entries] = parsed_dump
        return self._known[entries]

    def splits(self, file: DumpFile, conditions: Sequence[RowCondition] = ()) -> tuple[DumpSplit, ...]:
        """Return a data file in pieces for tasks."""
        return splits_of(file, self.reader.options)

    def generators(self, table: DumpTable) -> Generators:
        """Return the generators of stored generated columns, which Dumpling leaves out."""
        return generators(table.schema)

    def is_written(self, table: DumpTable, seconds: float) -> bool:
        """Return False: files of a dump stay what they are."""
        return False

    def glance(self, table: DumpTable) -> Glance:
        """Read the beginning of the first file; rows are counted by the bytes that this took."""
        if not table.files:
            return Glance(0)
        split, fetched, rows, reject = self.splits(table.files[0])[0], [0], 0, None

        def counted(path: str, start: int, end: int) -> bytes:
            data = self.reader.opener.read_range(path, start, end)
            fetched[0] += len(data)
            return data

        options, columns = self.reader.options, self.generators(table)
        try:
            for block in read_split(split, counted, table, options, self.stated or 0, columns):
                rows += block.changes.num_rows + len(block.rejects)
                reject = reject or next(iter(block.rejects), None)
                if fetched[0] >= _GLANCE_BYTES:
                    break
        except CdcError as error:
            return Glance(None, error.message)
        if not rows:
            return Glance(None, f"{split.file.path} has no row, and Dumpling writes no file without rows.")
        whole = round(rows * table.size / max(1, min(fetched[0], split.end - split.start)))
        return Glance(whole, f"{reject.path} line {reject.line}: {reject.reason}." if reject else "")

    def promised(self, table: DumpTable) -> TableSchema:
        """Return the table's schema, whose generated columns may be NULL."""
        return promised(table.schema, generators(table.schema))


def connect(opener: Opener, options: DumpOptions, stated: Tso | None) -> Directory:
    """Open a dump's directory; reads nothing yet."""
    return Directory(DirectoryReader(opener, options), stated)
