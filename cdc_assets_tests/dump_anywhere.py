"""A dump of a recorded source as of any TSO: its contents are what the feed alone gives through then, in MySQL's texts.

Between recorded checkpoints nothing else has them; that the feed alone is right is what other tests hold it to.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from cdc_assets.ddl import created
from cdc_assets.history.history import read_history
from cdc_assets.model.dumps import DumpOptions
from cdc_assets.model.schema import Column, Partitioning, TableId, TablePartition, TableSchema
from cdc_assets.model.tso import Tso
from cdc_assets.types.mysql_types import type_text
from cdc_assets_tests.cases import Checkpoint, Config
from cdc_assets_tests.dump_writer import Cell, Row, Writing, dumped, show_create, write_dump
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.records import records
from cdc_assets_tests.replay import replay

__all__ = ["FLAVOURS", "Flavour", "cut_rows", "dump_at", "moments"]


@dataclass(frozen=True)
class Flavour:
    """How a dump is written, and the settings `initial` that say so."""

    kind: str = "csv"
    compression: str = ""
    how: Writing = field(default_factory=Writing)

    @property
    def initial(self) -> dict[str, Any]:
        options = self.how.options
        csv = {
            "separator": options.separator,
            "delimiter": options.delimiter,
            "null-value": options.null_value,
            "escape-backslash": options.escape_backslash,
            "dialect": options.output_dialect,
            "header": options.header,
        }
        return {"tz": options.timezone, "csv": csv}


FLAVOURS = {
    "csv": Flavour(),
    "csv in gzip for snowflake": Flavour(
        "csv",
        "gzip",
        Writing(options=DumpOptions(header=False, escape_backslash=False, output_dialect="snowflake"), terminator="\n"),
    ),
    "sql": Flavour("sql", "", Writing(complete_insert=True, statement_bytes=60)),
    "sql in zstd without escapes": Flavour(
        "sql", "zstd", Writing(options=DumpOptions(escape_backslash=False, timezone="Asia/Shanghai"))
    ),
    "parquet": Flavour("parquet", "", Writing(options=DumpOptions(timezone="America/New_York"))),
    "csv in snappy with long marks": Flavour(
        "csv",
        "snappy",
        Writing(options=DumpOptions(separator="|+|", delimiter="'", null_value="", timezone="Asia/Tokyo")),
    ),
    "csv for bigquery": Flavour(
        "csv", "", Writing(options=DumpOptions(output_dialect="bigquery"), quoted_unsigned=True)
    ),
}


# --- when -------------------------------------------------------------------------------------------------------------


def moments(config: Config, count: int) -> list[Tso]:
    """Return so many TSOs over the whole feed: of rows, of DDL, and right before DDL."""
    listing = config.settings().open_source().listing()
    ddl = {file.version for file in listing.schema_files}
    rows: set[Tso] = set()
    for file in listing.data_files:
        rows |= {record.ts for record in records((config.bucket() / file.path).read_bytes(), config.options)[1]}
    last = config.checkpoints[-1].ts
    known = sorted(ts for ts in {*ddl, *(ts - 1 for ts in ddl), *rows} if min(ddl) < ts < last)
    return [known[(2 * number + 1) * len(known) // (2 * count)] for number in range(count)]


# --- the dump ---------------------------------------------------------------------------------------------------------


def dump_at(config: Config, at: Tso, into: Path, flavour: Flavour) -> None:
    """Write a dump of what the source held at a TSO."""
    lake = MemoryLake()
    replay(config, Checkpoint(at, "", config.bucket(), False, None), lake)
    lives = read_history(config.settings().open_source().listing().schema_files, at).lives.values()
    parted = {life.name: life.schema.partitioning for life in lives}
    tables: dict[TableId, tuple[TableSchema, list[Row]]] = {}
    texts: dict[TableId, str] = {}
    for table in lake.tables.values():
        if table.name is not None:
            texts[table.name] = _text(table.schema, table.name) + _partitions(parted[table.name])
            schema = created(texts[table.name])
            zone = ZoneInfo(flavour.how.options.timezone)
            rows = [tuple(_cell(row[c.name], c, zone) for c in dumped(schema)) for row in table.rows.to_pylist()]
            tables[table.name] = (schema, list(rows))
    write_dump(into, tables, at, flavour.how, flavour.kind, flavour.compression, chunk_rows=7, texts=texts)
    (into / "empty-schema-create.sql").write_bytes(b"CREATE DATABASE `empty`;\n")


def _text(schema: TableSchema, name: TableId) -> str:
    """Return SHOW CREATE TABLE with what the feed has: collations, widths that mean something, and the key."""
    text = show_create(schema, name.table).split("*/;\n")[-1].rstrip(";\n")
    for column in schema.columns:
        head = f"  `{column.name.replace('`', '``')}` "
        kind = type_text(column).lower()
        at = text.index(head) + len(head)
        full = kind
        if column.type in ("FLOAT", "DOUBLE") and column.scale:
            full = kind.replace(column.type.lower(), f"{column.type.lower()}({column.precision},{column.scale})")
        elif column.type == "TINYINT" and column.precision:
            full = kind.replace("tinyint", f"tinyint({column.precision})")
        elif column.collation and kind.split("(")[0].endswith(("char", "text")):
            full = f"{kind} COLLATE {column.collation}"
        text = text[:at] + full + text[at + len(kind) :]
    if not all(schema.column(key).is_pk for key in schema.key):
        text = text.replace("  PRIMARY KEY (", "  UNIQUE KEY `u` (").replace(" /*T![clustered_index] CLUSTERED */", "")
    return text


def _partitions(parted: Partitioning | None) -> str:
    """Return the clause PARTITION BY of SHOW CREATE TABLE."""
    if parted is None:
        return ""
    clause = f"\nPARTITION BY {parted.kind} ({','.join(parted.expressions)})"
    if not parted.kind.startswith(("RANGE", "LIST")):
        return f"{clause} PARTITIONS {parted.count}"
    return f"{clause}\n(" + ",\n ".join(map(_partition, parted.partitions)) + ")"


def _partition(part: TablePartition) -> str:
    if part.less_than:
        return f"PARTITION `{part.name}` VALUES LESS THAN ({','.join(text or 'MAXVALUE' for text in part.less_than)})"
    rows = [f"({','.join(row)})" if len(row) > 1 else row[0] for row in part.values]
    return f"PARTITION `{part.name}` VALUES IN ({','.join(rows)})"


def _cell(value: Any, column: Column, zone: ZoneInfo) -> Cell:
    """Return what the server prints for a value of the lake."""
    if value is None or isinstance(value, bytes):
        return value
    if column.type == "BIT":
        return int(value).to_bytes(((column.precision or 1) + 7) // 8, "big")
    if isinstance(value, dt.datetime):
        local = value.astimezone(zone).replace(tzinfo=None) if value.tzinfo else value
        text, _, fraction = local.isoformat(" ", "microseconds").partition(".")
        return f"{text}.{fraction[: column.scale]}" if column.scale else text
    if column.type == "FLOAT":
        return np.format_float_positional(np.float32(value), trim="0")
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, list):
        return json.dumps(value)
    return f"{value:04d}" if column.type == "YEAR" else str(value)


# --- the feed ---------------------------------------------------------------------------------------------------------


def cut_rows(config: Config, bucket: Path, start: Tso) -> None:
    """Take the rows at or below a TSO out of a feed, and with them the schema files of directories that had no others.

    What is left of that time has no DDL, as a changefeed that began then would write it.
    """
    listing = config.settings(bucket).open_source().listing()
    left: set[tuple[str, Tso]] = set()
    for file in (file for file in listing.data_files if file.version <= start):
        kept = _later(config, (bucket / file.path).read_bytes(), start)
        if kept is None:
            (bucket / file.path).unlink()
        else:
            (bucket / file.path).write_bytes(kept)
            left.add((file.root, file.version))
    for schema in (schema for schema in listing.schema_files if schema.version <= start):
        path = bucket / schema.path
        if (schema.root, schema.version) in left:
            path.write_text(json.dumps(json.loads(path.read_text()) | {"Query": "", "Type": 0}))
        else:
            path.unlink()


def _later(config: Config, data: bytes, start: Tso) -> bytes | None:
    header, file_records = records(data, config.options)
    rest = data[len(header) + sum(len(record.raw) for record in file_records) :]
    kept: Iterator[bytes] = (record.raw for record in file_records if record.ts > start)
    body = b"".join(kept) + rest
    return header + body if body else None
