r"""Names of a dump's files, both ways. A dump is flat; files in directories below it do not belong to it.

    {db}-schema-create.sql            {db}.{table}-schema.sql           metadata
    {db}.{view}-schema-view.sql       {db}.{sequence}-schema-sequence.sql       {policy}-placement-policy-create.sql
    {db}.{table}.{number}.{kind}      {db}.{table}.{number}.{codec}.parquet     (TiDB Cloud)

and `.gz`, `.snappy` or `.zst` after all but `metadata` and Parquet. Control characters and `% " * . / : < > ? \ |` in a
name are written as `%` and two digits, and so is the `-` of `-schema`, so the first dot ends the database's name
(`tidb:dumpling/export/prepare.go`). Names are matched as Lightning matches them, in any letter case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from cdc_assets.model.schema import TableId

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
    """Return what a file's name below the dump's URI says."""
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
        return _uncompressed(table, match[0], suffix)
    compression = _COMPRESSIONS[suffix]
    if kind == "database":
        return DatabaseName(table.schema, compression)
    if kind in ("view", "sequence"):
        return ViewName(table) if kind == "view" else SequenceName(table)
    if kind == "schema":
        return SchemaName(table, compression)
    return DataName(table, part["number"] or "", part["kind"].lower(), compression)


def _uncompressed(table: TableId, name: str, suffix: str) -> Name:
    if suffix in _COMPRESSIONS:
        return StrangeName(table, f"{name} is Parquet that was compressed as a whole. Take it apart with {suffix}")
    if suffix not in _UNREADABLE:
        return StrangeName(table, f"{name} ends in .{suffix}, which is not a known compression")
    return StrangeName(table, f"{name} is compressed with {suffix}, which cannot be read; known are gz, snappy and zst")
