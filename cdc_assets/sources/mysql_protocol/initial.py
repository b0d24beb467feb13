"""A server, opened for reading what was in its tables at a TSO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from cdc_assets.errors import CdcError
from cdc_assets.model.dumps import Dump, DumpFile, DumpSplit, DumpTable, Glance, RowCondition
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.sources import Generators
from cdc_assets.sources.mysql_protocol.address import parse_address
from cdc_assets.sources.mysql_protocol.ranges import RANGE_BYTES, narrowed
from cdc_assets.sources.mysql_protocol.rows import ServerReader
from cdc_assets.sources.mysql_protocol.session import session
from cdc_assets.sources.mysql_protocol.tables import is_written, read_tables, sizes


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is read at a TSO; `patterns` (`shop.*`) are the tables to read, () for all.

    With `range_bytes` its tables are asked for whenever they are wanted, and cut into ranges of about so many bytes.
    """

    reader: ServerReader
    patterns: tuple[str, ...] = ()
    range_bytes: int = 0

    @property
    def at(self) -> Tso:
        """The TSO to read at."""
        return self.reader.at

    @property
    def uri(self) -> str:
        """The server's address without login, for messages."""
        return self.reader.address.uri

    def dump(self) -> Dump:
        """Return the tables of the server, asked for once in a process: at a TSO they do not change.

        Raises StorageUnavailable, BadSettings, MalformedDump where no table is wanted, and BucketMissing where the
        server has garbage-collected what was there.
        """
        return _read(self) if self.range_bytes else _tables(self)

    def splits(self, file: DumpFile, conditions: Sequence[RowCondition] = ()) -> tuple[DumpSplit, ...]:
        """Return a range as it is, or those of its rows that fulfil all conditions."""
        return (DumpSplit(narrowed(file, conditions), 0, file.size),)

    def generators(self, table: DumpTable) -> Generators:
        """Return nothing: stored generated columns are read."""
        return {}

    def glance(self, table: DumpTable) -> Glance:
        """Estimate the rows by the server's statistics, and say what does not fit in the first of them."""
        try:
            block = next(self.reader.read(self.splits(table.files[0])[0], table, self.at, {}), None)
            with session(self.reader.address, self.at) as opened:
                size = sizes(opened, table.id.schema).get(table.id.table)
        except CdcError as error:
            return Glance(None, error.message)
        first = next(iter(block.rejects), None) if block is not None else None
        return Glance(
            0 if block is None else size.rows if size is not None else None,
            f"{first.path} row {first.line}: {first.reason}." if first else "",
        )

    def promised(self, table: DumpTable) -> TableSchema:
        """Return the table's schema: all of it is read."""
        return table.schema

    def is_written(self, table: DumpTable, seconds: float) -> bool:
        """Return whether the server says that a table was written to in the last seconds."""
        with session(self.reader.address, self.at) as opened:
            return is_written(opened, table.id, seconds)

    def wants(self, table: TableId) -> bool:
        """Return whether a table is to be read."""
        name = str(table).lower()
        return not self.patterns or any(fnmatchcase(name, pattern.lower()) for pattern in self.patterns)


@lru_cache(maxsize=8)
def _tables(server: Server) -> Dump:
    return _read(server)


def _read(server: Server) -> Dump:
    with session(server.reader.address, server.at) as opened:
        return read_tables(opened, server.at, server.wants, server.range_bytes or RANGE_BYTES)


def connect(uri: str, password: str, at: Tso, patterns: Sequence[str], range_bytes: int) -> Server:
    """Open a server; connects to nothing yet. Raises BadSettings for a URI that is not that of a server."""
    return Server(ServerReader(parse_address(uri, password), at), tuple(patterns), range_bytes)
