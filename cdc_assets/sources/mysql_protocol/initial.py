"""A server, opened for reading what was in its tables at a TSO."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache

from cdc_assets.ddl import Unreadable, created
from cdc_assets.errors import BadSettings, CdcError, InputError, MalformedData, MalformedDump
from cdc_assets.model.dumps import Dump, DumpFile, DumpSplit, DumpTable, Glance, RowCondition
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.sources import Generators
from cdc_assets.sources.mysql_protocol.address import parse_address
from cdc_assets.sources.mysql_protocol.ranges import RANGE_BYTES, Size, cut, narrowed
from cdc_assets.sources.mysql_protocol.rows import ServerReader
from cdc_assets.sources.mysql_protocol.session import Session, identifier, session

_SYSTEM = frozenset(("information_schema", "performance_schema", "mysql", "sys", "inspection_schema", "metrics_schema"))
_NO_ROWS = ("VIEW", "SYSTEM VIEW", "SEQUENCE")
_QUIET = (
    "which has no TSO to read at: what is read are the tables as they are now. Let nothing write into them from the "
    "TSO on until they are read"
)


def read_tables(session: Session, at: Tso, is_chosen: Callable[[TableId], bool], range_bytes: int) -> Dump:
    """Return the tables of a server that are wanted, each with a file for every range of its key, of about that size.

    Raises MalformedDump where there is none, BadSettings where the user may not see the one database of the address.
    """
    tables: list[DumpTable] = []
    problems: dict[TableId, str] = {}
    left_out: list[TableId] = []
    ranges: dict[str, dict[str, Size]] = {}
    for table, kind in _listed(session):
        if not is_chosen(table):
            continue
        if kind in _NO_ROWS:
            left_out.append(table)
            continue
        if table.schema not in ranges:
            ranges[table.schema] = sizes(session, table.schema)
        result = _table(session, table, ranges[table.schema].get(table.table, Size()), range_bytes)
        if isinstance(result, DumpTable):
            tables.append(result)
        else:
            problems[table] = result
    if not tables and not problems:
        raise MalformedDump(
            f"{session.address.uri} shows no table that is wanted. Check the URI of the source, which of its tables "
            "are named, and that the user may read them.",
            file=session.address.uri,
        )
    warnings = () if session.is_tidb else (f"the server is {session.version}, {_QUIET}.",)
    present = not session.is_tidb or not at
    identity = " ".join([session.address.uri, *_names_of_its_own(session)])
    return Dump(
        session.address.uri,
        at,
        tuple(tables),
        problems,
        warnings,
        {},
        tuple(left_out),
        present=present,
        identity=identity,
    )


def _names_of_its_own(session: Session) -> Iterator[str]:
    """Yield the names that a server has had since it was made: the same address may lead to another one later.

    MySQL has `server_uuid`, MariaDB `server_uid`; the id of a cluster is in `mysql.tidb` since TiDB v9.0.
    """
    queries = ["SELECT @@server_uuid", "SELECT @@server_uid"]
    if session.is_tidb:
        queries = ["SELECT VARIABLE_VALUE FROM mysql.tidb WHERE VARIABLE_NAME = 'cluster_id'"]
    for query in queries:
        with suppress(InputError, BadSettings):  # it has none, or the user may not see it
            yield from (_text(row[0]) for row in session.query(query))


def _listed(session: Session) -> Iterator[tuple[TableId, str]]:
    """Yield tables with their kinds, in the order of their names."""
    # SHOW heeds the snapshot, which information_schema did not in every TiDB.
    names = [_text(row[0]) for row in session.query("SHOW DATABASES")]
    wanted_database = session.address.database
    databases = [name for name in names if name.lower() not in _SYSTEM]
    if wanted_database:
        databases = [name for name in databases if name.lower() == wanted_database.lower()]
    if wanted_database and not databases:
        raise BadSettings(f"{session.address.uri}: the user may see no database of that name. Correct the URI.")
    for database in sorted(databases):
        rows = session.query(f"SHOW FULL TABLES FROM {identifier(database)}")
        for name, kind in sorted((_text(row[0]), _text(row[1])) for row in rows):
            yield TableId(database, name), kind.upper()


def _table(session: Session, table: TableId, size: Size, range_bytes: int) -> DumpTable | str:
    """Return a table, or the sentence that says why it cannot be taken."""
    name = f"{identifier(table.schema)}.{identifier(table.table)}"
    try:
        query = _text(session.query(f"SHOW CREATE TABLE {name}")[0][1])
        schema = created(query, timezone="UTC", shown=True)
        dump_table = DumpTable(table, schema, (), query)
        return replace(dump_table, files=cut(session, dump_table, size, range_bytes))
    except (Unreadable, MalformedData, UnicodeDecodeError) as problem:
        return f"its CREATE TABLE cannot be read ({problem}). Take a dump of it, or leave it out"
    except InputError as problem:
        if isinstance(problem, MalformedDump):
            raise
        return str(problem)


def sizes(session: Session, database: str) -> dict[str, Size]:
    """Return about how large the tables of a database are, by the server's statistics; nothing where it has none."""
    try:
        rows = session.query(f"SHOW TABLE STATUS FROM {identifier(database)}")
    except InputError:
        return {}
    return {_text(row[0]): Size(int(row[4] or 0), int(row[6] or 0)) for row in rows}


def is_written(session: Session, table: TableId, seconds: float) -> bool:
    """Return whether a table was written to in the last seconds, of which the first may be missed; False if unknown."""
    rows = session.query(f"SHOW TABLE STATUS FROM {identifier(table.schema)}")
    newest = next((row[12] for row in rows if _text(row[0]) == table.table), None)
    if newest is None:
        return False
    begin = datetime.fromisoformat(session.scalar("SELECT NOW(6)")) - timedelta(seconds=seconds)
    return datetime.fromisoformat(_text(newest)) > begin.replace(microsecond=0)


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8")


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
