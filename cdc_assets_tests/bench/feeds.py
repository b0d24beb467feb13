"""Large changefeeds by the written format rules: a million changes in seconds, the same ones for the same seed.

    <directory>/bucket/metadata
    <directory>/bucket/bench/t0000/meta/schema_{version}_{checksum}.json
    <directory>/bucket/bench/t0000/{version}/2026-03-30/CDC00000000000000000001.csv … meta/CDC.index
    <directory>/changefeed.toml

For speed only: what TiCDC writes in all its corners is in the recorded feeds. A key changes at most once in a
transaction, an absent key is inserted, a present one updated or deleted, and commit-ts grows with the rows.
"""

from __future__ import annotations

import functools
import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from cdc_assets.model.schema import Column, TableId
from cdc_assets.model.tso import Tso, wall_clock_ms
from cdc_assets.settings.config import ChangefeedSettings, from_flags
from cdc_assets_tests.schema_documents import document, write_schema

__all__ = ["VERSION", "Feed", "columns_of", "create_table"]

VERSION: Tso = 465283339517952001
"""Of every table: all are made by one DDL."""

_STEP = 26214  # a tenth of a millisecond between transactions
_TRANSACTION = 50
_ORDERS = 1000
_DATE = f"{datetime.fromtimestamp(wall_clock_ms(VERSION) / 1000, timezone.utc):%Y-%m-%d}"
_DAY = 86_400

Numbers = npt.NDArray[np.int64]
Make = Callable[[np.random.Generator, Numbers], pl.Series]


# --- values -----------------------------------------------------------------------------------------------------------


@functools.cache
def _seconds() -> pl.Series:
    """Return every second of March 2026's first days as text."""
    start = np.datetime64("2026-03-01T00:00:00")
    return pl.Series(np.datetime_as_string(start + np.arange(3 * _DAY)).astype(str)).str.replace("T", " ")


def _days() -> pl.Series:
    return pl.Series([f"2026-03-{day:02d}" for day in range(1, 29)])


def _states() -> pl.Series:
    return pl.Series(["new", "paid", "sent", "returned"])


def _hundredths(rng: np.random.Generator, numbers: Numbers) -> pl.Series:
    """DECIMAL(15,2) as text."""
    cents = pl.Series(rng.integers(10**9, size=len(numbers)))
    return pl.select(pl.format("{}.{}", cents // 100, (cents % 100).cast(pl.String).str.zfill(2))).to_series()


def _note(rng: np.random.Generator, numbers: Numbers) -> pl.Series:
    """A sentence, NULL one time in ten."""
    text = pl.format("note {} of the order, with some words that a person wrote", pl.Series(numbers))
    return pl.select(pl.when(pl.Series(rng.random(len(numbers)) >= 0.1)).then(text)).to_series()


def _moment(rng: np.random.Generator, numbers: Numbers) -> pl.Series:
    """DATETIME(3) as text."""
    second = _any_of(_seconds)(rng, numbers)
    thousandth = pl.Series(numbers % 1000).cast(pl.String).str.zfill(3)
    return pl.select(pl.concat_str([second, thousandth], separator=".")).to_series()


def _any_of(texts: Callable[[], pl.Series]) -> Make:
    return lambda rng, numbers: texts().gather(rng.integers(len(texts()), size=len(numbers)))


def _code(rng: np.random.Generator, numbers: Numbers) -> pl.Series:
    code = pl.Series(rng.integers(10**6, size=len(numbers))).cast(pl.String).str.zfill(6)
    return pl.select(pl.format("C{}", code)).to_series()


def _below(limit: int) -> Make:
    return lambda rng, numbers: pl.Series(rng.integers(limit, size=len(numbers)))


def _odd_parts(limit: int, of: int) -> Make:
    """Numbers with a fraction that is exact in binary, printed alike by everybody."""
    return lambda rng, numbers: pl.Series((2 * rng.integers(limit, size=len(numbers)) + 1) / of)


_ID = Column("id", "BIGINT", precision=20, nullable=False, is_pk=True)
_KINDS: tuple[tuple[Column, Make], ...] = (
    (Column("customer", "INT", precision=11), _below(10**6)),
    (Column("amount", "DECIMAL", precision=15, scale=2), _hundredths),
    (Column("price", "DOUBLE", precision=22), _odd_parts(500_000, 16)),
    (Column("status", "VARCHAR", precision=20), _any_of(_states)),
    (Column("note", "VARCHAR", precision=200), _note),
    (Column("created", "DATETIME", scale=3), _moment),
    (Column("updated", "TIMESTAMP"), _any_of(_seconds)),
    (Column("day", "DATE"), _any_of(_days)),
    (Column("quantity", "INT", precision=10, unsigned=True), _below(1000)),
    (Column("weight", "FLOAT", precision=12), _odd_parts(500, 8)),
    (Column("code", "CHAR", precision=8), _code),
)


def _kinds(count: int) -> Iterator[tuple[Column, Make]]:
    for number in range(count - 1):
        column, make = _KINDS[number % len(_KINDS)]
        name = column.name if number < len(_KINDS) else f"{column.name}_{number // len(_KINDS) + 1}"
        yield replace(column, name=name), make


def columns_of(count: int) -> tuple[Column, ...]:
    """Return the columns of a table that has `count` of them; the first is its key."""
    return (_ID, *(column for column, _ in _kinds(count)))


# --- changes ----------------------------------------------------------------------------------------------------------


@dataclass
class _Table:
    """A table while its feed grows: which keys are there, and how many rows and files were written."""

    name: TableId
    rng: np.random.Generator
    alive: npt.NDArray[np.bool_]
    rows: int = 0
    files: int = 0


@dataclass(frozen=True)
class _Changes:
    """Rows in the order of their commit-ts: `op` is 0 insert, 1 update, 2 delete; `before` the row's predecessor."""

    op: npt.NDArray[np.int8]
    ts: Numbers
    before: Numbers
    values: pl.DataFrame


def _drawn(rng: np.random.Generator, count: int, keys: int, zipf: float) -> Numbers:
    """Draw keys: all alike, or the n-th most frequent as often as n to the power of -zipf."""
    if not zipf:
        return rng.integers(keys, size=count)
    shares = np.cumsum(np.arange(1, keys + 1, dtype=float) ** -zipf)
    ranks = np.searchsorted(shares, rng.random(count) * shares[-1])
    drawn: Numbers = rng.permutation(keys)[np.minimum(ranks, keys - 1)]
    return drawn


def _operations(
    keys: Numbers, alive: npt.NDArray[np.bool_], wanted: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int8], Numbers]:
    """Return what happens to each key and the row before it (-1 for none), and bring `alive` up to date.

    `wanted` marks rows that would delete; of several of a key in a row every second does.
    """
    order = np.argsort(keys, kind="stable")
    of, count = keys[order], len(keys)
    first = np.ones(count, bool)
    first[1:] = of[1:] != of[:-1]
    leaving = wanted[order] & ~(first & ~alive[of])
    begins = leaving & (first | ~np.concatenate(([False], leaving[:-1])))
    at = np.arange(count)
    gone = leaving & ((at - np.maximum.accumulate(np.where(begins, at, 0))) % 2 == 0)
    absent = np.where(first, ~alive[of], np.concatenate(([False], gone[:-1])))
    op, before = np.empty(count, np.int8), np.full(count, -1)
    op[order] = np.where(gone, 2, np.where(absent, 0, 1))
    before[order[1:]] = np.where(first[1:], -1, order[:-1])
    last = np.concatenate((first[1:], [True]))
    alive[of[last]] = ~gone[last]
    return op, before


def _transactions(before: Numbers) -> Numbers:
    """Number the transactions of rows; none holds a key twice."""
    at = np.arange(len(before))
    return np.cumsum((at % _TRANSACTION == 0) | (before >= at - at % _TRANSACTION)) - 1


# --- files ------------------------------------------------------------------------------------------------------------


@dataclass
class Feed:
    """A changefeed in a directory, which grows with every `append`. `tables` tables of `columns` columns."""

    directory: Path
    protocol: str = "csv"
    tables: int = 1
    columns: int = 12
    seed: int = 7
    _open: dict[int, _Table] = field(default_factory=dict)
    _newest: Tso = VERSION

    @property
    def bucket(self) -> Path:
        """The changefeed's prefix."""
        return self.directory / "bucket"

    @property
    def uri(self) -> str:
        """The sink URI."""
        extension = "&enable-tidb-extension=true" if self.protocol == "canal-json" else ""
        return f"file://{self.bucket}?protocol={self.protocol}{extension}"

    @property
    def flags(self) -> list[str]:
        """The command line's words for this changefeed."""
        return ["--sink-uri", self.uri, "--config", str(self.directory / "changefeed.toml")]

    @property
    def settings(self) -> ChangefeedSettings:
        """The settings of this changefeed."""
        return from_flags(sink_uri=self.uri, changefeed_config=self.directory / "changefeed.toml").changefeeds[0]

    @property
    def schema(self) -> tuple[Column, ...]:
        """The columns of each table."""
        return columns_of(self.columns)

    @property
    def spec(self) -> dict[str, Any]:
        """What another process needs to open the same feed."""
        shape = {"tables": self.tables, "columns": self.columns}
        return {"directory": str(self.directory), "protocol": self.protocol, **shape}

    def name(self, table: int) -> TableId:
        """Return the source name of a table."""
        return TableId("bench", f"t{table:04d}")

    def files(self, table: int = 0) -> list[Path]:
        """Return the data files of a table in order."""
        name = self.name(table)
        return sorted((self.bucket / name.schema / name.table / str(VERSION)).glob("*/CDC*.*[nv]"))

    def keep(self) -> None:
        """Write down what grows on, for another process that takes it up by `resumed`."""
        (self.directory / "feed.pickle").write_bytes(pickle.dumps(self))

    @staticmethod
    def resumed(directory: Path) -> Feed:
        """Return the feed of a directory as it was kept."""
        kept: Feed = pickle.loads((directory / "feed.pickle").read_bytes())
        return kept

    def create(self) -> Feed:
        """Write the schema files of all tables and a checkpoint; return the feed."""
        self.bucket.mkdir(parents=True, exist_ok=True)
        toml = f'[sink]\nprotocol = "{self.protocol}"\n[sink.csv]\ninclude-commit-ts = true\n'
        (self.directory / "changefeed.toml").write_text(toml)
        for table in range(self.tables):
            name = self.name(table)
            write_schema(self.bucket, _schema_document(name, columns_of(self.columns)))
        self._publish()
        return self

    def append(
        self,
        changes: int,
        keys: int,
        *,
        fill: int = 0,
        files: int = 1,
        zipf: float = 0.0,
        deletes: float = 0.03,
        tables: Iterable[int] | None = None,
    ) -> Tso:
        """Write `changes` of each table (default: all) over its first `keys` keys; return the new checkpoint.

        The first `fill` changes insert the keys 0, 1, …; the others draw from all.
        """
        through = self._newest
        for number in range(self.tables) if tables is None else tables:
            table = self._open.get(number)
            if table is None:
                rng = np.random.default_rng([self.seed, number])
                table = self._open[number] = _Table(self.name(number), rng, np.zeros(keys, bool))
            if keys > len(table.alive):
                table.alive = np.concatenate((table.alive, np.zeros(keys - len(table.alive), bool)))
            made = self._changes(table, through, changes, keys, fill, zipf, deletes)
            self._write(table, made, files)
        self._publish()
        return self._newest

    def _changes(
        self, table: _Table, through: Tso, count: int, keys: int, fill: int, zipf: float, deletes: float
    ) -> _Changes:
        rng, filled = table.rng, min(fill, count)
        drawn = np.concatenate((np.arange(filled), _drawn(rng, count - filled, keys, zipf)))
        op, before = _operations(drawn, table.alive, rng.random(count) < deletes)
        numbers = table.rows + np.arange(count)
        made = {column.name: make(rng, numbers) for column, make in _kinds(self.columns)}
        table.rows += count
        ts = through + _STEP * (1 + _transactions(before))
        self._newest = max(self._newest, int(ts[-1]))
        return _Changes(op, ts, before, pl.DataFrame({"id": drawn, **made}))

    def _write(self, table: _Table, made: _Changes, files: int) -> None:
        lines = self._csv(table, made) if self.protocol == "csv" else self._canal(table, made)
        place = self.bucket / table.name.schema / table.name.table / str(VERSION) / _DATE
        (place / "meta").mkdir(parents=True, exist_ok=True)
        size, extension = -(-len(lines) // files), {"csv": "csv", "canal-json": "json"}[self.protocol]
        quotes: Literal["non_numeric", "never"] = "non_numeric" if self.protocol == "csv" else "never"
        name = ""
        for part in lines.iter_slices(max(size, 10_000)):
            data = part.write_csv(
                include_header=False, line_terminator="\r\n", null_value="\\N", quote_style=quotes
            ).encode()
            records = [data] if len(part) <= size else data.splitlines(keepends=True)
            step = 1 if len(part) <= size else size
            for at in range(0, len(records), step):
                table.files += 1
                name = f"CDC{table.files:020d}.{extension}"
                self._put(place / name, b"".join(records[at : at + step]))
        self._put(place / "meta" / "CDC.index", f"{name}\n".encode())

    def _put(self, path: Path, data: bytes) -> None:
        """Write a file so that a reader sees all of it or nothing."""
        aside = self.directory / "aside"
        aside.write_bytes(data)
        aside.replace(path)

    def _csv(self, table: _Table, made: _Changes) -> pl.DataFrame:
        """op, table, schema, commit-ts, values; text quoted and numbers bare."""
        count = len(made.op)
        head = pl.DataFrame(
            {
                "_op": pl.Series(["I", "U", "D"]).gather(made.op),
                "_table": pl.repeat(table.name.table, count, eager=True),
                "_schema": pl.repeat(table.name.schema, count, eager=True),
                "_ts": made.ts,
            }
        )
        return head.hstack(made.values)

    def _canal(self, table: _Table, made: _Changes) -> pl.DataFrame:
        """One message a row; where the row before an update is of an earlier append, its image is the one after."""
        columns = columns_of(self.columns)
        members = [_member(column.name, column.nullable) for column in columns]
        row = pl.concat_str(pl.lit("[{"), pl.concat_str(members, separator=","), pl.lit("}]"))
        image = made.values.select(row).to_series()
        earlier = image.gather(np.where(made.before < 0, np.arange(len(image)), made.before))
        old = pl.select(pl.when(pl.Series(made.op == 1)).then(earlier).otherwise(pl.lit("null"))).to_series()
        types = {c.name: c.type.lower() + (" unsigned" if c.unsigned else "") for c in columns}
        numbers = json.dumps(dict.fromkeys(types, 12), separators=(",", ":"))
        # The order of a map of Go's is another one each time; the rows stay those of the same feed as CSV.
        rng = np.random.default_rng([self.seed, len(made.op)])
        orders = [rng.permutation(sorted(types.items())).tolist() for _ in range(_ORDERS)]
        named = pl.Series([json.dumps(dict(order), separators=(",", ":")) for order in orders])
        ms = pl.Series(made.ts >> 18)
        line = pl.concat_str(
            [
                pl.lit(
                    f'{{"id":0,"database":"{table.name.schema}","table":"{table.name.table}","pkNames":["id"],'
                    '"isDdl":false,"type":"'
                ),
                pl.Series(["INSERT", "UPDATE", "DELETE"]).gather(made.op),
                pl.lit('","es":'),
                ms,
                pl.lit(',"ts":'),
                ms,
                pl.lit(f',"sql":"","sqlType":{numbers},"mysqlType":'),
                named.gather(rng.integers(_ORDERS, size=len(made.op))),
                pl.lit(',"old":'),
                old,
                pl.lit(',"data":'),
                image,
                pl.lit(',"_tidb":{"commitTs":'),
                pl.Series(made.ts),
                pl.lit("}}"),
            ]
        )
        return pl.select(line=line)

    def _publish(self) -> None:
        self._put(self.bucket / "metadata", json.dumps({"checkpoint-ts": self._newest}).encode())


def _member(name: str, nullable: bool) -> pl.Expr:
    text = pl.format(f'"{name}":"{{}}"', pl.col(name))
    return text.fill_null(f'"{name}":null') if nullable else text


def _schema_document(name: TableId, columns: tuple[Column, ...]) -> dict[str, Any]:
    listed = [_column_document(column) for column in columns]
    query = create_table(name, columns)
    return document(name.schema, name.table, VERSION, Query=query, Type=3, TableColumns=listed)


def create_table(name: TableId, columns: tuple[Column, ...]) -> str:
    """Return the CREATE TABLE of a table, as TiDB restores it."""
    definitions = f"{_definitions(columns)},PRIMARY KEY(`id`) /*T![clustered_index] CLUSTERED */"
    return f"CREATE TABLE `{name.table}` ({definitions})"


def _definitions(columns: tuple[Column, ...]) -> str:
    texts = []
    for column in columns:
        sizes = [str(size) for size in (column.precision, column.scale) if size is not None]
        size = f"({','.join(sizes)})" if column.type in ("DECIMAL", "VARCHAR", "CHAR", "DATETIME") else ""
        sign, null = " UNSIGNED" if column.unsigned else "", "" if column.nullable else " NOT NULL"
        texts.append(f"`{column.name}` {column.type}{size}{sign}{null}")
    return ",".join(texts)


def _column_document(column: Column) -> dict[str, Any]:
    document: dict[str, Any] = {
        "ColumnName": column.name,
        "ColumnType": column.type + (" UNSIGNED" if column.unsigned else ""),
    }
    if column.precision is not None:
        document["ColumnPrecision"] = str(column.precision)
    if column.scale is not None:
        document["ColumnScale"] = str(column.scale)
    if not column.nullable:
        document["ColumnNullable"] = "false"
    if column.is_pk:
        document["ColumnIsPk"] = "true"
    return document
