"""Contents of a dump's directory: its tables, their schemas and files, and problems.

    read_dump = entries ─▶ paths ─▶ metadata ─▶ schema files ─▶ tables | problems

A table whose files do not belong together, or cannot be read, is a problem and holds; the others go on. Numbers of
chunks say nothing about completeness: Dumpling writes no file for a chunk without rows, and none for an empty table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import unquote

from cdc_assets.ddl import CreateDatabase, Unreadable, created, created_name, statement, statements
from cdc_assets.errors import BucketMissing, MalformedData, MalformedDump
from cdc_assets.io.compression import decompressed
from cdc_assets.io.storage import Opener
from cdc_assets.model.dumps import Dump, DumpFile, DumpTable
from cdc_assets.model.schema import ByName, TableId, TableSchema
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted

_BLOCK = re.compile(r"SHOW (?:MASTER|BINARY LOG) STATUS:[^\n]*\n((?:[ \t]+[^\n]*(?:\n|\Z))*)", re.IGNORECASE)
_MEMBER = re.compile(r"^[ \t]+(Log|Pos|GTID): ?(.*)$", re.MULTILINE | re.IGNORECASE)
_TIMES = re.compile(r"^(Started|Finished) dump at: (.*)$", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DumpMetadata:
    """The contents of `metadata`, as texts: times are of the machine that dumped, in an unknown zone.

        Started dump at: 2022-06-28 17:49:54
        SHOW MASTER STATUS:
                Log: tidb-binlog
                Pos: 434217889191428107
                GTID:

        Finished dump at: 2022-06-28 17:49:57

    Dumpling writes it last, and only when the dump succeeded. Pos is the text of `--snapshot` where that was given: a
    TSO, or a time in the server's zone. A second block of a replica or after the connections is not the dump's position
    (`tidb:dumpling/export/metadata.go`).
    """

    log: str
    position: str
    started: str
    finished: str


def parse_metadata(data: bytes) -> DumpMetadata:
    """Return the first block and the times of `metadata`, "" for what is not there."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    block = _BLOCK.search(text)
    members = {name.lower(): value.strip() for name, value in _MEMBER.findall(block[1] if block else "")}
    times = {name.lower(): value.strip() for name, value in _TIMES.findall(text)}
    return DumpMetadata(
        members.get("log", ""), members.get("pos", ""), times.get("started", ""), times.get("finished", "")
    )


def snapshot_tso(metadata: DumpMetadata | None, stated: Tso | None, uri: str) -> Tso:
    """Return the TSO at which the dump was taken: that of `metadata`, or the one that a person states.

    Raises MalformedDump where neither is there, where they differ, and where the dump is not finished.
    """
    if metadata is None:
        if stated is not None:
            return stated
        raise _refused(
            uri,
            "it has no `metadata`: the dump is not finished, failed, or is an export of TiDB Cloud",
            "If it is whole, state the TSO at which it was taken",
        )
    recorded = int(metadata.position) if re.fullmatch(r"[0-9]{1,18}", metadata.position) else None
    if stated is None and not metadata.finished:
        raise _refused(uri, "its `metadata` has no `Finished dump at`", "If it is whole, state its TSO")
    if stated is not None and recorded is not None and metadata.log == _TIDB and stated != recorded:
        raise _refused(uri, f"its `metadata` has the TSO {recorded}, and {stated} is given", "Correct")
    if stated is not None:
        return stated
    if metadata.log != _TIDB:
        position_text = (
            f'the log "{metadata.log}", which is not of TiDB' if metadata.log else "no position of a TiDB cluster"
        )
        raise _refused(uri, f"its `metadata` has {position_text}", "If it is TiDB's, give its TSO")
    if recorded is None:
        raise _refused(
            uri,
            f'its `metadata` has the position "{metadata.position}", as Dumpling writes it when --snapshot is a time',
            "State the TSO that the source gives for that time in its zone",
        )
    return recorded


_TIDB = "tidb-binlog"


def _refused(uri: str, what: str, way: str) -> MalformedDump:
    return MalformedDump(f"{uri}: {what}. {way} as initial.at (at=TSO on the command line), or dump again.", file=uri)


Entries = tuple[tuple[str, int, str, float], ...]
"""(path, bytes, etag, seconds since 1970) of every file, by path."""

_WORKERS = 16
_LATE_SECONDS = 300
"""Clocks of the storage and of the machine that dumped may differ by so much."""


@dataclass(frozen=True, slots=True)
class _Text:
    """A file of SQL: a schema, or a database."""

    path: str
    compression: str


@dataclass(slots=True)
class _DumpNames:
    """The names of a dump by kind."""

    databases: dict[str, _Text] = field(default_factory=dict)
    schemas: ByName[list[_Text]] = field(default_factory=ByName)
    files: ByName[list[DumpFile]] = field(default_factory=ByName)
    left_out: ByName[None] = field(default_factory=ByName)
    strange: ByName[str] = field(default_factory=ByName)
    ignored: Counter[str] = field(default_factory=Counter)
    written: dict[str, float] = field(default_factory=dict)
    metadata: bool = False
    below: str = ""
    """`metadata` of a dump in a directory below."""


def read_dump(
    opener: Opener, stated: Tso | None = None, timezone: str | None = None, entries: Entries | None = None
) -> Dump:
    """Return the contents of a dump's URI. Costs a listing, unless `entries` are given, and a read a schema file.

    `stated` is the TSO that a person states, which also says that the dump is finished. `timezone` is the zone of the
    sessions that read the dump, for the defaults of TIMESTAMP columns. Raises MalformedDump where the TSO is not known,
    the dump is not finished, or nothing in it is of a dump; BucketMissing where there is nothing.
    """
    names = _sorted_out(opener, tuple(sorted(opener.entries())) if entries is None else entries)
    metadata = parse_metadata(opener.read(METADATA)) if names.metadata else None
    if metadata is None and names.below:
        raise MalformedDump(
            f"{opener.uri} has no `metadata`, and {names.below} is there: give the directory of that dump.",
            file=opener.uri,
        )
    at = snapshot_tso(metadata, stated, opener.uri)
    collations = {database: _collation(opener, database, text) for database, text in names.databases.items()}
    tables, problems = _tables(opener, names, collations, timezone)
    whole = metadata is not None and bool(metadata.finished) and bool(names.databases)
    if not tables and not problems and not whole:
        raise MalformedDump(
            f"{opener.uri} has no file of a table; expected the directory that Dumpling was given with --output. "
            "Check the URI.",
            file=opener.uri,
        )
    return Dump(
        opener.uri,
        at,
        tuple(tables),
        dict(problems),
        tuple(_warnings(names, metadata)),
        dict(names.ignored),
        tuple(sorted(names.left_out)),
        metadata.started if metadata else "",
        metadata.finished if metadata else "",
        _is_rowless(names),
    )


# --- names ------------------------------------------------------------------------------------------------------------


def _sorted_out(opener: Opener, entries: Entries) -> _DumpNames:
    names = _DumpNames()
    if not entries:
        raise BucketMissing(
            f"{opener.uri} holds nothing; expected the directory that Dumpling was given with --output. Check the URI, "
            "and that its objects may be listed.",
            file=opener.uri,
        )
    for path, size, etag, modified in entries:
        names.written[path] = modified
        if path == METADATA:
            names.metadata = True
            continue
        if path.endswith(f"/{METADATA}"):
            names.below = names.below or path
        match parse_name(path):
            case DatabaseName(database, compression):
                names.databases[database] = _Text(path, compression)
            case SchemaName(table, compression):
                names.schemas.setdefault(table, []).append(_Text(path, compression))
            case ViewName(table) | SequenceName(table):
                names.left_out[table] = None
            case DataName(table, number, kind, compression):
                file = DumpFile(path, table, kind, compression, number, size, etag)
                names.files.setdefault(table, []).append(file)
            case StrangeName(table, reason):
                names.strange[table] = reason
            case IgnoredName(reason):
                names.ignored[reason] += 1
    return names


def _mixed(files: Sequence[DumpFile], schemas: Sequence[_Text]) -> str:
    """Return the reason why files of a table cannot be of one dump, "" where they can."""
    if len(schemas) > 1:
        return f"it has {counted(len(schemas), 'schema file')}, {schemas[0].path} and {schemas[1].path}"
    by_number: dict[str, DumpFile] = {}
    for file in files:
        twin = by_number.setdefault(file.number, file)
        if twin is not file:
            return f"{twin.path} and {file.path} are the same chunk"
        if (file.kind, file.compression) != (files[0].kind, files[0].compression):
            return f"{files[0].path} and {file.path} were written in different ways"
    padded = {len(file.number): file for file in files if not file.number or file.number.startswith("0")}
    if len(padded) > 1:
        first_file, other = list(padded.values())[:2]
        return f"{first_file.path} and {other.path} are numbered in different ways"
    return ""


def _warnings(names: _DumpNames, metadata: DumpMetadata | None) -> Iterator[str]:
    """Warn of a dump without tables or rows, and of files that were written before the dump began.

    `metadata` is written last, and says how long the dump took.
    """
    if not names.schemas and not names.files and not names.strange:
        yield "it has databases and no table. Check its URI and the filters that Dumpling was given if there were any."
    if _is_rowless(names):
        yield (
            "no table of it has a file of rows, so all of them count as empty: Dumpling writes no file for an empty "
            "table. With --no-data it writes none for any table: if it was given that, dump again without it."
        )
    took = _seconds(metadata) if metadata is not None else None
    began = names.written.get(METADATA, 0.0) - (took or 0.0) - _LATE_SECONDS
    old = [path for path, written in names.written.items() if 0 < written < began] if took is not None else []
    if old:
        yield (
            f"{counted(len(old), 'file')} of the dump, {old[0]} first, are older than its beginning: they may be of "
            "an earlier dump into the same directory. Dump into an empty one if that is so."
        )


def _is_rowless(names: _DumpNames) -> bool:
    return bool(names.schemas) and not names.files and not names.strange


def _seconds(metadata: DumpMetadata) -> float | None:
    try:
        started, finished = (datetime.fromisoformat(text) for text in (metadata.started, metadata.finished))
    except ValueError:
        return None
    return (finished - started).total_seconds()


# --- schemas ----------------------------------------------------------------------------------------------------------


def _tables(
    opener: Opener, names: _DumpNames, collations: Mapping[str, str | None], timezone: str | None
) -> tuple[list[DumpTable], dict[TableId, str]]:
    table_ids = sorted({*names.schemas, *(names.schemas.spelled(table) for table in (*names.files, *names.strange))})
    table_ids = [table for table in table_ids if table not in names.left_out]

    def read(table: TableId) -> DumpTable | str:
        return _table(opener, table, names, collations.get(table.schema), timezone)

    workers = 1 if opener.protocol in ("file", "memory") else _WORKERS
    with ThreadPoolExecutor(workers) as pool:
        results = dict(zip(table_ids, pool.map(read, table_ids), strict=True))
    problems = {table: result for table, result in results.items() if isinstance(result, str)}
    return [result for result in results.values() if isinstance(result, DumpTable)], problems


def _table(
    opener: Opener, table: TableId, names: _DumpNames, collation: str | None, timezone: str | None
) -> DumpTable | str:
    """Return a table, or the sentence that says why it cannot be taken."""
    files, texts = names.files.get(table, []), names.schemas.get(table, [])
    if table in names.strange:
        return f"{names.strange[table]}. Restore the file as it was dumped"
    if not texts:
        return (
            f"{files[0].path} has no schema file {files[0].path.partition('.')[0]}.*-schema.sql beside it, so its "
            "columns are not known. Dump without --no-schemas, and without --sql"
        )
    if mixed := _mixed(files, texts):
        return f"{mixed}: two dumps are mixed in one directory. Dump into an empty one"
    empty = next((file.path for file in files if not file.size), None)
    if empty is not None:
        return f"{empty} is empty, and Dumpling writes no file without rows: it was not written to its end. Dump again"
    try:
        query, schema = _schema(_sql(opener, texts[0]), table, collation, timezone)
    except (Unreadable, MalformedData, UnicodeDecodeError) as problem:
        return f"{texts[0].path} cannot be read ({problem}). Restore it as Dumpling wrote it"
    return DumpTable(table, schema, tuple(files), query, collation, timezone)


def _schema(sql: str, table: TableId, collation: str | None, timezone: str | None) -> tuple[str, TableSchema]:
    create_statements = [statement_text for statement_text in statements(sql) if _names_a_table(statement_text)]
    if len(create_statements) != 1:
        raise Unreadable(f"it has {counted(len(create_statements), 'CREATE TABLE')} where one is expected")
    _, name = created_name(create_statements[0])
    if name != table.table:
        raise Unreadable(f'it creates the table "{name}" and not "{table.table}" of its name')
    return create_statements[0], created(
        create_statements[0], database_collation=collation, timezone=timezone, shown=True
    )


def _names_a_table(sql: str) -> bool:
    try:
        created_name(sql)
    except Unreadable:
        return False
    return True


def _sql(opener: Opener, text: _Text) -> str:
    return b"".join(decompressed([opener.read(text.path)], text.compression, text.path)).decode("utf-8")


def _collation(opener: Opener, database: str, text: _Text) -> str | None:
    """Return the default collation of a database; None where its file cannot be read, as where there is none."""
    try:
        texts: Iterable[str] = statements(_sql(opener, text))
    except (Unreadable, MalformedData, UnicodeDecodeError):
        return None
    for statement_text in texts:
        database_ddl = statement(SchemaFile(text.path, database, TableId(database, ""), 0, statement_text, 1, ()))
        if isinstance(database_ddl, CreateDatabase) and database_ddl.collation:
            return database_ddl.collation
    return None


METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class DatabaseName:
    """The text of CREATE DATABASE."""

    database: str
    compression: str


@dataclass(frozen=True, slots=True)
class SchemaName:
    """The text of SHOW CREATE TABLE; for a view that of a table that stands in for it."""

    table: TableId
    compression: str


@dataclass(frozen=True, slots=True)
class ViewName:
    """The text of CREATE VIEW: a view has no rows."""

    view: TableId


@dataclass(frozen=True, slots=True)
class SequenceName:
    """The text of CREATE SEQUENCE, which has no rows either."""

    sequence: TableId


@dataclass(frozen=True, slots=True)
class DataName:
    """Rows. `number` are the digits of the chunk as they stand there, "" for none."""

    table: TableId
    number: str
    kind: str
    compression: str


@dataclass(frozen=True, slots=True)
class IgnoredName:
    """A name that means no rows and no schema of a table."""

    reason: str


@dataclass(frozen=True, slots=True)
class StrangeName:
    """A name of a table's file that cannot be read, and why; the table holds."""

    table: TableId
    reason: str


Name = DatabaseName | SchemaName | ViewName | SequenceName | DataName | IgnoredName | StrangeName

_SUFFIX = r"(?:\.(?P<suffix>\w+))?"
_COMPRESSIONS = {"": "", "gz": "gzip", "gzip": "gzip", "snappy": "snappy", "zst": "zstd", "zstd": "zstd"}
_UNREADABLE = ("lz4", "xz", "lzo", "bz2", "br", "lz", "z", "zip")
_CODECS = ("snappy", "gzip", "gz", "zstd", "zst", "lz4", "brotli", "none", "uncompressed")

_PATTERNS = [
    (kind, re.compile(pattern, re.IGNORECASE | re.DOTALL))
    for kind, pattern in (
        ("ignored", r".*(?:-schema-triggers?|-schema-post)\.sql" + _SUFFIX),
        ("ignored", r".*\.(?:sql|csv|parquet)(?:\.\w+)?\.bak"),
        ("policy", r".*-placement-policy-create\.sql" + _SUFFIX),
        ("database", r"(?P<db>[^.]+)-schema-create\.sql" + _SUFFIX),
        ("view", r"(?P<db>[^.]+)\.(?P<table>.+)-schema-view\.sql" + _SUFFIX),
        ("sequence", r"(?P<db>[^.]+)\.(?P<table>.+)-schema-sequence\.sql" + _SUFFIX),
        ("schema", r"(?P<db>[^.]+)\.(?P<table>.+)-schema\.sql" + _SUFFIX),
        (
            "parquet",
            rf"(?P<db>[^.]+)\.(?P<table>.+)\.(?P<number>[0-9]+)\.(?P<codec>{'|'.join(_CODECS)})\.(?P<kind>parquet)",
        ),
        ("data", r"(?P<db>[^.]+)\.(?P<table>.+?)(?:\.(?P<number>[0-9]+))?\.(?P<kind>sql|csv|parquet)" + _SUFFIX),
    )
]
_ESCAPED = re.compile(r"[\x00-\x1f%\"*./:<>?\\|]|-(?=schema)", re.IGNORECASE)


def escaped(name: str) -> str:
    """Return a name of a database or a table as it stands in the name of a file."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", name)


def unescaped(text: str) -> str:
    """Return the name that an escaped one stands for. Raises ValueError for a `%` that escapes nothing."""
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise ValueError("it has a % that escapes nothing")
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("its escapes are not UTF-8") from None


def format_data_name(name: DataName) -> str:
    """Return the name that Dumpling gives a data file."""
    suffix = {"": "", "gzip": ".gz", "snappy": ".snappy", "zstd": ".zst"}[name.compression]
    number = f".{name.number}" if name.number else ""
    return f"{escaped(name.table.schema)}.{escaped(name.table.table)}{number}.{name.kind}{suffix}"


def parse_name(name: str) -> Name:
    """Return the parts of a file's name below the dump's URI."""
    if "/" in name:
        return IgnoredName("in a directory below the dump's")
    for kind, pattern in _PATTERNS:
        match = pattern.fullmatch(name)
        if match is not None:
            return _named(kind, match)
    return IgnoredName("no name of a dump's file")


def _named(kind: str, match: re.Match[str]) -> Name:
    if kind == "ignored":
        return IgnoredName("no rows in it: triggers, routines or a copy that was put aside")
    if kind == "policy":
        return IgnoredName("a placement policy")
    part = match.groupdict()
    try:
        table = TableId(unescaped(part["db"]), unescaped(part.get("table") or ""))
    except ValueError as problem:
        return StrangeName(TableId(part["db"], part.get("table") or ""), f"{problem} in the name {match[0]}")
    suffix = (part.get("suffix") or "").lower()
    if suffix not in _COMPRESSIONS or (suffix and (part.get("kind") or "").lower() == "parquet"):
        name = match[0]
        if suffix in _COMPRESSIONS:
            return StrangeName(table, f"{name} is Parquet that was compressed as a whole. Take it apart with {suffix}")
        if suffix not in _UNREADABLE:
            return StrangeName(table, f"{name} ends in .{suffix}, which is not a known compression")
        return StrangeName(
            table, f"{name} is compressed with {suffix}, which cannot be read; known are gz, snappy and zst"
        )
    compression = _COMPRESSIONS[suffix]
    if kind == "database":
        return DatabaseName(table.schema, compression)
    if kind in ("view", "sequence"):
        return ViewName(table) if kind == "view" else SequenceName(table)
    if kind == "schema":
        return SchemaName(table, compression)
    return DataName(table, part["number"] or "", part["kind"].lower(), compression)
