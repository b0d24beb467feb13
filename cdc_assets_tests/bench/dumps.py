"""The rows of a generated changefeed as a dump of its table, and the changefeed as it goes on after that dump.

For speed only, and by Dumpling's written rules: what it writes in all its corners is `cdc_assets_tests.dump_writer`'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb as duck
import polars as pl

from cdc_assets.model.schema import Column
from cdc_assets.model.tso import Tso
from cdc_assets_tests.bench.feeds import Feed, create_table
from cdc_assets_tests.bench.rows import Fingerprint, fingerprint, last_changes_sql
from cdc_assets_tests.dump_writer import metadata_file

__all__ = ["dump", "fingerprint_of_dumped", "quiet"]

_BARE = ("BIGINT", "DECIMAL", "DOUBLE", "FLOAT", "INT")
_STATEMENT_ROWS = 6_000
"""Rows that make a statement of Dumpling's million bytes, about."""


def quiet(feed: Feed, directory: Path) -> Feed:
    """Return a changefeed of the same tables in which nothing has changed by the time of a feed's last change."""
    made = Feed(directory, feed.protocol, feed.tables, feed.columns).create()
    (made.bucket / "metadata").write_bytes((feed.bucket / "metadata").read_bytes())
    return made


def dump(feed: Feed, into: Path, kind: str = "csv") -> Path:
    """Write the table of a CSV feed that has inserted only, as of its checkpoint: as many files as the feed has."""
    name = feed.name(0)
    table = f"{name.schema}.{name.table}"
    (into / f"{name.schema}-schema-create.sql").write_text(f"CREATE DATABASE `{name.schema}`;\n")
    statement = create_table(name, feed.schema)
    (into / f"{table}-schema.sql").write_text(f"/*!40101 SET NAMES binary*/;\n{statement};\n")
    for number, path in enumerate(feed.files()):
        lines = _lines(path, feed.schema, kind)
        text = _sql(name.table, lines) if kind == "sql" else _csv(feed.schema, lines)
        with (into / f"{table}.{number:09d}.{kind}").open("wb") as file:
            file.writelines(text)
    (into / "metadata").write_bytes(metadata_file(_checkpoint(feed)))
    return into


def _checkpoint(feed: Feed) -> Tso:
    return int(json.loads((feed.bucket / "metadata").read_text())["checkpoint-ts"])


def _lines(path: Path, columns: Sequence[Column], kind: str) -> pl.Series:
    """The rows of a feed's file, without what ends them."""
    names = [column.name for column in columns]
    rows = pl.read_csv(
        path,
        has_header=False,
        new_columns=["op", "t", "s", "ts", *names],
        infer_schema=False,
        null_values="\\N",
    )
    assert rows["op"].unique().to_list() == ["I"]
    quote, null = ("'", "NULL") if kind == "sql" else ('"', "\\N")
    cells = [
        (pl.col(column.name) if column.type in _BARE else pl.format(f"{quote}{{}}{quote}", pl.col(column.name)))
        .fill_null(null)
        for column in columns
    ]  # fmt: skip
    return rows.select(pl.concat_str(cells, separator=",")).to_series()


def _csv(columns: Sequence[Column], lines: pl.Series) -> Iterator[bytes]:
    yield ",".join(f'"{column.name}"' for column in columns).encode() + b"\r\n"
    for part in lines.to_frame().iter_slices(100_000):
        yield "".join(f"{line}\r\n" for line in part.to_series()).encode()


def _sql(table: str, lines: pl.Series) -> Iterator[bytes]:
    yield b"/*!40014 SET FOREIGN_KEY_CHECKS=0*/;\n/*!40101 SET NAMES binary*/;\n"
    for part in lines.to_frame().iter_slices(_STATEMENT_ROWS):
        rows = ",\n".join(f"({line})" for line in part.to_series())
        yield f"INSERT INTO `{table}` VALUES\n{rows};\n".encode()


def fingerprint_of_dumped(feed: Feed) -> Fingerprint:
    """Return what a table must hold that a dump of a feed brought: its rows, each as of the dump's TSO."""
    rows = last_changes_sql(feed, feed.files())
    with duck.connect() as connection:
        return fingerprint(connection, feed, f"(SELECT * REPLACE ({_checkpoint(feed)}::BIGINT AS ts) FROM ({rows}))")
