"""A feed with what was in its tables before it: one source that lists both, and one reader that reads both.

    JoinedSource.listing() = the feed's listing + of each dump its tables as imports

Nothing of a dump is read for the fence, and rows only by whoever applies them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cdc_assets.errors import CdcError, MalformedData
from cdc_assets.formats import SplitReader, Wire
from cdc_assets.formats.decoded import Content, Decoded
from cdc_assets.model.dumps import Dump, DumpTable
from cdc_assets.model.progress import Base
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.splits import DataFile, Import, Listing, Place, SettledFiles
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import first_of
from cdc_assets.sources import DumpReader, Generators, InitialSource, KnownFiles, Source

if TYPE_CHECKING:
    from cdc_assets.sources.replicated import ReplicatedTables


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of one dump. `generated` says, by root, how columns that it leaves out get their values."""

    reader: DumpReader
    generated: Mapping[str, Generators] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JoinedReader:
    """Reads a feed's splits as its own reader does, and those of dumps by the dump that they are of."""

    feed: SplitReader
    dumps: Mapping[str, _Rows]

    def read(self, path: str) -> Content:
        """Return the contents of a feed's split."""
        return self.feed.read(path)

    def wire(self, path: str) -> Wire:
        """Return the wire format of a feed's split."""
        return self.feed.wire(path)

    def rows(self, file: DataFile, table: TableId, schema: TableSchema) -> Iterator[Decoded]:
        """Yield the rows of a dump's split block by block; what does not fit names the file with the dump's URI."""
        assert file.piece is not None
        dump, path = self.dumps[file.directory], file.piece.file.path
        dumped, columns = DumpTable(table, schema, (), ""), dump.generated.get(file.root, {})
        try:
            for block in dump.reader.read(file.piece, dumped, file.version, columns):
                rejects = tuple(replace(reject, path=file.name) for reject in block.rejects)
                yield replace(block, rejects=rejects) if rejects else block
        except MalformedData as error:
            message = f"{file.directory}/{error.message}" if error.message.startswith(path) else error.message
            raise MalformedData(message, **{**error.where, "path": file.name}) from error

    def lines_before(self, file: DataFile) -> int:
        """Return the number of records of its file before a dump's split."""
        assert file.piece is not None
        return self.dumps[file.directory].reader.lines_before(file.piece)

    def records(self, file: DataFile, lines: Collection[int]) -> dict[int, bytes]:
        """Return records of a dump's split by their numbers in it."""
        assert file.piece is not None
        return self.dumps[file.directory].reader.records(file.piece, lines)


class JoinedSource:
    """A feed, and what was in its tables before. All else that a source does is the feed's."""

    def __init__(self, feed: Source, initial: Sequence[InitialSource], tables: ReplicatedTables) -> None:
        self.feed = feed
        self.initial = tuple(initial)
        self.tables = tables
        self._rows: dict[str, _Rows] = {}

    @property
    def reader(self) -> JoinedReader:
        """Reads whatever was listed when a split is read, or when it goes to another process."""
        return JoinedReader(self.feed.reader, self._rows)

    def fence(self) -> Tso:
        """Return the feed's fence."""
        return self.feed.fence()

    def listing(self, contents: KnownFiles | None = None, settled: Sequence[SettledFiles] = ()) -> Listing:
        """Return the feed's listing with the tables of the dumps; one that cannot be read is in `lost_dumps`.

        Raises what the feed's listing raises.
        """
        listing = self.feed.listing(contents, settled)
        imports: list[Import] = []
        warnings: list[str] = []
        lost: dict[str, Exception] = {}
        in_feed = {file.table.folded for file in listing.schema_files}
        for source in self.initial:
            try:
                dump, left_out = _of_feed(source.dump(), self.tables, in_feed)
            except CdcError as error:
                lost[source.uri] = error
                continue
            generated: dict[str, Generators] = {}
            for table in dump.tables:
                root = f"{dump.uri}#{table.id}"
                columns = source.generators(table)
                if columns:
                    generated[root] = columns
                unknown = {name: value for name, value in columns.items() if isinstance(value, str)}
                base = Base(dump.at, table.id, dump.uri, table.query, table.collation, table.timezone)
                files = tuple(_files(source, dump, table, root))
                promised = source.promised(table)
                imports.append(Import(base, table.schema, root, files, promised, unknown, rowless=dump.rowless))
            for name, problem in dump.problems.items():
                base = Base(dump.at, name, dump.uri, "")
                imports.append(Import(base, TableSchema(()), problem=f"{dump.uri}: {problem}", rowless=dump.rowless))
            self._rows[dump.uri] = _Rows(source.reader, generated)
            warnings += [f"{dump.uri}: {text}" for text in (*dump.warnings, *left_out)]
        warnings = [*listing.warnings, *warnings]
        return replace(listing, imports=tuple(imports), warnings=tuple(warnings), lost_dumps=lost)

    def head(self, path: str, size: int) -> Content:
        """Return the first bytes of a feed's split."""
        return self.feed.head(path, size)

    def place(self, path: str, listing: Listing | None = None) -> Place | None:
        """Return the place that the name of a feed's file gives."""
        return self.feed.place(path, listing)


def _of_feed(dump: Dump, tables: ReplicatedTables, in_feed: Collection[TableId]) -> tuple[Dump, list[str]]:
    """Return a dump with the tables that the feed replicates, and sentences about those that would never change.

    `in_feed` are the folded names of tables that the feed has: it replicates them whether or not they have a key.
    """
    names = {*(table.id for table in dump.tables), *dump.problems}
    out = sorted(name for name in names if not tables.names(name))
    keyless = [table.id for table in dump.tables if not table.schema.key and table.id.folded not in in_feed]
    keyless = [name for name in keyless if name not in out and not tables.keyless]
    omitted = {*out, *(() if tables.keyless is None else keyless)}
    imported = tuple(table for table in dump.tables if table.id not in omitted)
    problems = {name: problem for name, problem in dump.problems.items() if name not in omitted}
    groups = ((out, _FILTERED), (keyless, _DOUBTFUL if tables.keyless is None else _KEYLESS))
    findings = [
        text.format(first_of([str(table_name) for table_name in of], "table", _SHOWN)) for of, text in groups if of
    ]
    return replace(dump, tables=imported, problems=problems), findings


_FILTERED = (
    "the changefeed's filter excludes {}, so nothing of that is imported: it would never change here. If TiCDC "
    "replicates it, give the changefeed TOML exactly as TiCDC has it."
)
_KEYLESS = (
    "the changefeed has force-replicate = false, so it does not replicate tables without a PRIMARY KEY or a UNIQUE "
    "key of NOT NULL columns: {}. Nothing of that is imported: it would never change here."
)
_DOUBTFUL = (
    "TiCDC replicates tables without a PRIMARY KEY or a UNIQUE key of NOT NULL columns only if force-replicate is "
    "true, and no changefeed TOML that is given says so: {}. What is not replicated stays as the dump has it: exclude "
    "it from the dump, or give the TOML exactly as TiCDC has it."
)
_SHOWN = 5


def _files(initial: InitialSource, dump: Dump, table: DumpTable, root: str) -> Iterator[DataFile]:
    pieces = ((file, piece) for file in table.files for piece in initial.splits(file))
    for number, (file, piece) in enumerate(pieces):
        path, size = f"{dump.uri}/{file.path}{piece.suffix}", piece.end - piece.start
        yield DataFile(path, root, dump.at, dump.uri, number, size, file.etag, piece=piece)
