"""Recorded changefeeds for tests: what the real producer wrote, and what the source held at each checkpoint.

A case is an archive in `corpus/` beside this file or in `../shared/corpus` beside the checkout; each is unpacked once a
machine, into a cache named by the archive's hash. The comparison with the recorded source contents is here too:

    for case in cases():
        for config in case.configs:
            for checkpoint in config.checkpoints:      # bucket as of then -> expected contents
                expected_tables(checkpoint.expected)
"""

from __future__ import annotations

import datetime as dt
import decimal
import fcntl
import functools
import hashlib
import json
import os
import re
import struct
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources.storage_sink.options import SinkOptions
from cdc_assets_tests.changefeed import sink_options

__all__ = [
    "Allowed",
    "Case",
    "Checkpoint",
    "Config",
    "ExpectedTable",
    "archives",
    "assert_equal_tables",
    "canonical",
    "cases",
    "differences",
    "expected_tables",
    "in_turn",
    "unpacked",
]

_HERE = Path(__file__).resolve().parent
_DIRECTORIES = (_HERE / "corpus", _HERE.parents[1] / "shared" / "corpus")


@functools.cache
def archives() -> Mapping[str, Path]:
    """Return the archive of every case by its name; a case that ships with the project comes from there."""
    paths_by_name: dict[str, Path] = {}
    for directory in reversed(_DIRECTORIES):
        for archive in sorted(directory.glob("*.tar.xz")):
            paths_by_name[archive.name.removesuffix(".tar.xz")] = archive
    return dict(sorted(paths_by_name.items()))


def cases() -> tuple[Case, ...]:
    """Return all cases that are in reach."""
    return tuple(Case(name) for name in archives())


@functools.cache
def unpacked(archive: Path) -> Path:
    """Return the directory of a case or of recorded topics, unpacked by the first process that asks."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:16]
    cache = Path(tempfile.gettempdir()) / f"cdc_assets_cases_{os.getuid()}"
    place = cache / f"{archive.name.removesuffix('.tar.xz')}-{digest}"
    if not place.exists():
        cache.mkdir(mode=0o700, exist_ok=True)
        with in_turn(cache / f"{place.name}.lock"):
            if not place.exists():
                fresh = Path(tempfile.mkdtemp(dir=cache))
                with tarfile.open(archive) as tar:
                    tar.extraction_filter = lambda member, _: member  # our own; to look at each costs as much again
                    tar.extractall(fresh)
                fresh.rename(place)
    (directory,) = place.iterdir()
    return directory


@contextmanager
def in_turn(file: Path) -> Iterator[None]:
    """Let the processes that name a file run a block one after another."""
    with file.open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- cases ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Allowed:
    """What the files alone cannot give: whole tables, and columns by table."""

    tables: frozenset[TableId] = frozenset()
    columns: Mapping[TableId, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in the life of a config: the bucket as it stood then, and the contents of the source at it.

    `bucket` is the final bucket where no copy was kept; `expected` is None for what a crash left behind.
    """

    ts: Tso
    note: str
    bucket: Path
    has_copy: bool
    expected: Path | None


@dataclass(frozen=True)
class ExpectedTable:
    """One table of an expected directory: its columns as `tables.json` has them, and its rows as texts.

    `show_create` is the text of the SQL engine that stood in for TiDB: the only place with generated expressions.
    """

    id: TableId
    columns: tuple[Mapping[str, Any], ...]
    primary_key: tuple[str, ...]
    rows: tuple[Mapping[str, str | None], ...]
    show_create: str = ""

    @property
    def stored(self) -> tuple[Mapping[str, Any], ...]:
        """The columns that rows of a bucket carry: all but virtual generated ones."""
        return tuple(column for column in self.columns if column.get("generated") != "virtual")


@dataclass(frozen=True)
class Case:
    """A recorded SQL history with its buckets."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> Path:
        """Where the case is unpacked."""
        return unpacked(archives()[self.name])

    @property
    def configs(self) -> tuple[Config, ...]:
        """The changefeed configurations that the history was recorded with."""
        return _configs(self)

    def config(self, name: str) -> Config:
        """Return one configuration; raises KeyError that lists the known ones."""
        known = {config.name: config for config in self.configs}
        if name not in known:
            raise KeyError(f"{self.name} has no config {name}; known are {', '.join(known)}")
        return known[name]

    def expected(self, ts: Tso | None = None) -> dict[TableId, ExpectedTable]:
        """Return the contents of the source as of a checkpoint, or at the end."""
        return expected_tables(self.path / "expected" / "checkpoints" / str(ts) if ts else self.path / "expected")


@dataclass(frozen=True)
class Config:
    """One changefeed configuration of a case."""

    case: Case
    name: str

    def __str__(self) -> str:
        return f"{self.case.name}/{self.name}"

    @property
    def path(self) -> Path:
        """The directory of the configuration."""
        return self.case.path / self.name

    def bucket(self, ts: Tso | str | None = None) -> Path:
        """Return the sink's tree at the end, or the copy of a checkpoint (`"crash1"` for what a crash left)."""
        return self.path / ("bucket" if ts is None else f"bucket@{ts}")

    @functools.cached_property
    def recorded_options(self) -> Mapping[str, Any]:
        """What options.json says: sink_uri_params, timezone, …"""
        options: dict[str, Any] = json.loads((self.path / "options.json").read_text(encoding="utf-8"))
        return options

    @functools.cached_property
    def options(self) -> SinkOptions:
        """How the rows and paths are written."""
        return sink_options(self.settings())

    @functools.cached_property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The checkpoints in order, the final one last; crashes among them have no expected contents."""
        recorded = json.loads((self.path / "checkpoints.json").read_text(encoding="utf-8"))
        return tuple(
            Checkpoint(
                ts=checkpoint["checkpoint_ts"],
                note=checkpoint.get("note", ""),
                bucket=self.path / checkpoint.get("bucket_copy", "bucket"),
                has_copy="bucket_copy" in checkpoint,
                expected=self.case.path / checkpoint["expected"] if checkpoint.get("expected") else None,
            )
            for checkpoint in recorded
            if "checkpoint_ts" in checkpoint
        )

    @property
    def replayable(self) -> tuple[Checkpoint, ...]:
        """The checkpoints at which the bucket is known: a copy was kept, or no file of it was overwritten later.

        Without a partition separator the partitions of a table overwrite each other's files.
        """
        return tuple(c for c in self.checkpoints if c.has_copy or self.options.enable_partition_separator)

    def settings(self, bucket: Path | None = None, **given: Any) -> ChangefeedSettings:
        """Return the settings of this changefeed, reading `bucket` (the final one by default).

        Tables that stood before a recording began had no rows then, as its expected contents show.
        """
        plain = {
            "sink_uri": f"{bucket or self.bucket()}?{self.recorded_options['sink_uri_params']}",
            "changefeed_config": self.path / "changefeed.toml",
            "tz": self.recorded_options.get("timezone", "UTC"),
            "initial": {"complete": ["*"]},
        }
        settings = ChangefeedSettings(**{**plain, **given})
        if settings.source_options.wire.has_commit_ts or "accept_unordered" in given:
            return settings
        return ChangefeedSettings(**{**plain, **given, "accept_unordered": True})

    @property
    def loses_rows(self) -> bool:
        """Whether the sink itself lost rows on the way into the files."""
        return any(part in self.name for part in ("nopart", "cf3", "raw"))

    @functools.cached_property
    def allow(self) -> Allowed:
        """What this configuration cannot give, from allow.json."""
        file = self.case.path / "allow.json"
        named = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        tables, columns = set(), dict[TableId, frozenset[str]]()
        for text in (*named.get("*", ()), *named.get(self.name, ())):
            table, _, column = text.partition(":")
            schema, _, name = table.partition(".")
            key = TableId(schema, name)
            if column:
                columns[key] = columns.get(key, frozenset()) | {column}
            else:
                tables.add(key)
        return Allowed(frozenset(tables), columns)

    @property
    def hidden_columns(self) -> frozenset[str]:
        """Columns that a column selector keeps out of the rows."""
        hidden = self.recorded_options.get("column_selector_hides", "")
        return frozenset(part for part in re.split(r"[,\s]+", hidden) if part)


@functools.cache
def _configs(case: Case) -> tuple[Config, ...]:
    return tuple(Config(case, path.parent.name) for path in sorted(case.path.glob("*/checkpoints.json")))


@functools.cache
def expected_tables(directory: Path) -> dict[TableId, ExpectedTable]:
    """Return every table of an expected directory by its name."""
    described = json.loads((directory / "tables.json").read_text(encoding="utf-8"))
    result = {}
    for described_table in described["tables"]:
        # Split at "\n" only: texts may hold other characters that count as line ends.
        lines = (directory / described_table["file"]).read_bytes().decode("utf-8").split("\n")
        table = ExpectedTable(
            id=TableId(described_table["schema"], described_table["table"]),
            columns=tuple(described_table["columns"]),
            primary_key=tuple(described_table.get("primary_key") or ()),
            rows=tuple(json.loads(line) for line in lines if line),
            show_create=described_table.get("show_create_table_mariadb", ""),
        )
        result[table.id] = table
    return result


# --- comparison -------------------------------------------------------------------------------------------------------

_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
_BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_METADATA_COLUMN = "_cdc_commit_ts"


@dataclass(frozen=True)
class _Type:
    """A column's type text, taken apart: `decimal(10,2) unsigned` -> decimal, (10, 2)."""

    base: str
    arguments: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> _Type:
        match = re.match(r"([a-z]+)(?:\(([0-9, ]+)\))?", text.lower())
        assert match, f"no type: {text!r}"
        return cls(match[1], tuple(int(part) for part in (match[2] or "").split(",") if part.strip()))


def canonical(value: Any, column: Mapping[str, Any]) -> Any:
    """Return an expected text or a lake's Python value in the form in which the two are compared.

    Integers, YEAR and BIT as int, FLOAT as the 32-bit number, DOUBLE as the 64-bit one, DECIMAL as its digits, binary
    as bytes, TIMESTAMP in UTC, vectors as tuples of 32-bit numbers, all else as text. A date that the calendar does not
    have (zero or partial) is None, which is what the lake holds for it.
    """
    if value is None:
        return None
    kind = _Type.parse(column["type"])
    if kind.base in _INTEGERS:
        return int(value)
    if kind.base == "bit":
        return int(value, 16) if isinstance(value, str) else int(value)
    if kind.base in ("float", "double", "real"):
        number = float(value)
        return _float32(number) if kind.base == "float" else number
    if kind.base in ("decimal", "numeric"):
        return _digits(value)
    if kind.base in _BINARY:
        return bytes.fromhex(value) if isinstance(value, str) else bytes(value)
    if kind.base in ("date", "datetime", "timestamp"):
        return _moment(value, kind)
    if kind.base == "vector":
        numbers = json.loads(value) if isinstance(value, str) else value
        return tuple(_float32(float(number)) for number in numbers)
    return value


def _float32(number: float) -> float:
    try:
        result: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return number
    return result


def _digits(value: Any) -> str:
    # The declared scale is part of the value: 1.50 is not 1.5.
    return format(value, "f") if isinstance(value, decimal.Decimal) else str(value)


def _moment(value: Any, kind: _Type) -> str | None:
    if isinstance(value, str):
        try:
            dt.datetime.fromisoformat(value[:19])
        except ValueError:
            return None
        return value
    if isinstance(value, dt.datetime):
        if kind.base == "timestamp":
            assert value.tzinfo is not None, "a TIMESTAMP has to be an instant"
            value = value.astimezone(dt.timezone.utc)
        elif value.tzinfo is not None:
            return f"{value.isoformat()} (an instant, where a local time was expected)"
        fraction = kind.arguments[0] if kind.arguments else 0
        whole = f"{value.year:04d}-{value:%m-%d %H:%M:%S}"
        beyond = f"{value.microsecond:06d}"
        assert not beyond[fraction:].strip("0"), f"{value} has more digits than {kind}"
        return f"{whole}.{beyond[:fraction]}" if fraction else whole
    return f"{value.year:04d}-{value:%m-%d}"


def differences(table: ExpectedTable, actual: pa.Table, *, skip: Iterable[str] = (), limit: int = 10) -> list[str]:
    """Return one line for each difference between the recorded contents and a lake table, at most `limit` of rows.

    `skip` names columns that are not compared (Allowed.columns, hidden columns). Column names and their order are
    compared; `_cdc_commit_ts` and virtual generated columns are left out. Rows are a multiset.
    """
    skipped = set(skip)
    columns = [column for column in table.stored if column["name"] not in skipped]
    wanted = [column["name"] for column in columns]
    names = [name for name in actual.column_names if name != _METADATA_COLUMN and name not in skipped]
    if names != wanted:
        return [f"{table.id}: columns are {names}, expected {wanted}"]
    expected_rows = Counter(_row((row[column["name"]] for column in columns), columns) for row in table.rows)
    values = [actual.column(name).to_pylist() for name in wanted]
    actual_rows = Counter(_row(row, columns) for row in zip(*values, strict=True)) if wanted else Counter()
    missing, surplus = list((expected_rows - actual_rows).elements()), list((actual_rows - expected_rows).elements())
    if not missing and not surplus:
        return []
    lines = [f"{table.id}: {len(missing)} rows are missing or different, {len(surplus)} are too many"]
    return lines + _row_differences(table, wanted, missing, surplus, limit)


def _row(values: Iterable[Any], columns: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    return tuple(canonical(value, column) for value, column in zip(values, columns, strict=True))


def _row_differences(
    table: ExpectedTable,
    names: Sequence[str],
    missing: list[tuple[Any, ...]],
    surplus: list[tuple[Any, ...]],
    limit: int,
) -> list[str]:
    key = [names.index(name) for name in table.primary_key if name in names] or list(range(min(1, len(names))))
    by_key: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in surplus:
        by_key.setdefault(tuple(row[i] for i in key), []).append(row)
    lines = []
    for row in missing:
        same = by_key.get(tuple(row[i] for i in key))
        where = ", ".join(f"{names[i]}={row[i]!r}" for i in key)
        if same:
            other = same.pop(0)
            changed = [f"{n}: {a!r}, expected {e!r}" for n, a, e in zip(names, other, row, strict=True) if a != e]
            lines.append(f"  {where}: {'; '.join(changed)}")
        else:
            lines.append(f"  missing {_shown(names, row)}")
    lines += [f"  too many {_shown(names, row)}" for rows in by_key.values() for row in rows]
    return lines[:limit] + ([f"  … and {len(lines) - limit} more"] if len(lines) > limit else [])


def _shown(names: Sequence[str], row: tuple[Any, ...]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in zip(names, row, strict=True) if value is not None)[:400]


def assert_equal_tables(table: ExpectedTable, actual: pa.Table, *, skip: Iterable[str] = ()) -> None:
    """Assert that a lake table holds what the source held; the message is a readable difference."""
    mismatches = differences(table, actual, skip=skip)
    assert not mismatches, "\n".join(mismatches)
