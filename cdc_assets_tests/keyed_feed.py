"""A changefeed of small tables, one for each way in which keys compare, and dumps of what their source has.

    feed = KeyedFeed(directory)
    feed.write([("I", "whole", 1, "a")])       rows of one commit each, into all history of the tables
    feed.publish()
    feed.dump(into)                            what the source has then

Every table is `k` (its key, but for `keyless`), `v` and three columns that follow from `v`, to be masked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from cdc_assets.ddl import created
from cdc_assets.features.verification.operations import VerifyOptions, verify
from cdc_assets.features.verification.operations_choice import EVERY_ROW, RowChoice
from cdc_assets.ledger import Ledger
from cdc_assets.model.comparison import TableComparison
from cdc_assets.model.dumps import Dump, DumpOptions
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources import InitialSource, connect_dump
from cdc_assets_tests.dump_cases import opener
from cdc_assets_tests.dump_writer import Writing, write_dump
from cdc_assets_tests.little_feed import FIRST
from cdc_assets_tests.schema_documents import document, file_column, write_schema

__all__ = ["KEYS", "PRIVACY", "VALUES", "Key", "KeyedFeed", "Mended", "name_of"]

Key = int | str | float
KEYS = {
    "whole": ("INT", "11", ""),
    "folded": ("VARCHAR", "20", " COLLATE utf8mb4_general_ci"),
    "floating": ("DOUBLE", "22", ""),
    "keyless": ("INT", "11", ""),
}
"""By table: type, precision and collation of `k`."""
VALUES: dict[str, list[Key]] = {
    "whole": [1, 2, 3, 4, 5, 6, 7],
    "folded": ["ant", "bee", "cat", "dog", "eel", "fox", "gnu"],
    "floating": [0.5, 1.25, -3.0, 1e300, 5.0, 6.5, 7.75],
    "keyless": [1, 2, 3, 4, 5, 6, 7],
}
TEXTS = ("v", "mail", "card", "note")
PRIVACY: dict[str, Any] = {
    "shop.*.mail": {"hash": {"key": {"env": "MASK_KEY"}}}, "shop.*.card": {"redact": "last4"}, "shop.*.note": None,
}  # fmt: skip


def name_of(table: str) -> TableId:
    return TableId("shop", table)


def texts_of(v: str) -> list[str]:
    """The values of the texts of a row."""
    return [v, f"{v}@mail.example", f"4000-1234-{v}", f"about {v}"]


class KeyedFeed:
    """A bucket under `directory`. `rows` are the source's by table: their keys with the value of `v`."""

    def __init__(self, directory: Path, tables: Iterable[str] = KEYS) -> None:
        self.bucket = directory / "bucket"
        self.bucket.mkdir(parents=True)
        self.toml = directory / "changefeed.toml"
        self.toml.write_text("[sink.csv]\ninclude-commit-ts = true\n")
        self.rows: dict[str, list[tuple[Key, str]]] = {table: [] for table in tables}
        self.at: Tso = FIRST
        self.files = 0
        self.columns: dict[str, list[dict[str, Any]]] = {}
        for table in tables:
            kind, size, _ = KEYS[table]
            key = file_column("k", kind, size)
            if table != "keyless":
                key |= {"ColumnNullable": "false", "ColumnIsPk": "true"}
            texts = [file_column(name, "VARCHAR", "40") for name in TEXTS]
            self.columns[table] = [key, *texts]
            self.ddl(table, _create(table), 3)

    def ddl(self, table: str, text: str, kind: int) -> None:
        """Write a DDL that leaves the columns of a table as they are."""
        write_schema(
            self.bucket, document("shop", table, self.at, Query=text, Type=kind, TableColumns=self.columns[table])
        )

    def settings(self, **more: Any) -> ChangefeedSettings:
        uri: Any = f"file://{self.bucket}?protocol=csv"
        return ChangefeedSettings(name="keyed", sink_uri=uri, changefeed_config=self.toml, **more)

    def write(self, changes: Iterable[tuple[str, str, Key, str]], *, lost: bool = False) -> None:
        """Write rows (I, U or D; table; key; v), of which the source knows nothing if they are `lost` on it."""
        lines: dict[str, list[str]] = {}
        for op, table, key, v in changes:
            self.at += 1 << 18
            texts = ",".join(f'"{text}"' for text in [*([key] if isinstance(key, str) else []), *texts_of(v)])
            bare = "" if isinstance(key, str) else f"{key},"
            lines.setdefault(table, []).append(f'"{op}","{table}","shop",{self.at},{bare}{texts}\r\n')
            if lost:
                continue
            there = self.rows[table]
            if op != "I":
                there.remove(next(row for row in there if row[0] == key and (table != "keyless" or row[1] == v)))
            if op != "D":
                there.append((key, v))
        self.files += 1
        for table, text in lines.items():
            path = self.bucket / "shop" / table / str(FIRST) / f"CDC{self.files:020d}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(text), newline="")

    def publish(self) -> Tso:
        """Let everything that was written be complete; return the checkpoint."""
        self.at += 1 << 18
        (self.bucket / "metadata").write_text(json.dumps({"checkpoint-ts": self.at}))
        return self.at

    def dump(self, into: Path, present: bool = False) -> InitialSource:
        """Write a dump of what the source has, taken at the checkpoint, and open it; as a server that is read now."""
        texts = {name_of(table): _create(table) for table in self.rows}
        tables = {
            name_of(table): (created(texts[name_of(table)]), [(str(key), *texts_of(v)) for key, v in rows])
            for table, rows in self.rows.items()
        }
        write_dump(into, tables, self.at, Writing(), texts=texts)
        source = connect_dump(opener(into), DumpOptions())
        return cast("InitialSource", Present(source)) if present else source


class Present:
    """A dump in the place of a server that has no TSO."""

    def __init__(self, source: InitialSource) -> None:
        self.source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def dump(self) -> Dump:
        return replace(self.source.dump(), at=0, present=True)


def _create(table: str) -> str:
    kind, size, collation = KEYS[table]
    of = f"{kind}({size})" if kind == "VARCHAR" else kind
    key = "" if table == "keyless" else " NOT NULL PRIMARY KEY"
    texts = ", ".join(f"`{name}` VARCHAR(40)" for name in TEXTS)
    return f"CREATE TABLE `{table}` (`k` {of}{collation}{key}, {texts})"


class Mended:
    """The feed applied to a lake, of which its source has some other rows, and compared with that."""

    def __init__(self, directory: Path, lake: Any, tables: Iterable[str] = KEYS, **more: Any) -> None:
        self.directory, self.lake, self.more = directory, lake, more
        self.feed, self.ledger, self.dumps = KeyedFeed(directory, tables), Ledger("sqlite://"), 0
        for table in self.feed.rows:
            self.feed.write(("I", table, key, f"v{number}") for number, key in enumerate(VALUES[table][:6]))
        self.apply()

    def pipeline(self) -> Pipeline:
        settings = self.feed.settings(**self.more)
        return Pipeline(settings, settings.open_source(), self.lake, self.ledger)

    def apply(self) -> None:
        self.feed.publish()
        assert [table.reason for table in self.pipeline().apply("test").tables if table.reason] == []

    def differ(self) -> None:
        """Let the source have another value of a row, and another row."""
        for table, rows in self.feed.rows.items():
            rows[2], rows[3] = (VALUES[table][2], "other"), (VALUES[table][6], "new")

    def compared(
        self, repair: bool = False, quiet: bool = False, cut: str = "", choice: RowChoice = EVERY_ROW, **more: Any
    ) -> dict[str, TableComparison]:
        """Compare all tables with a dump of the source, which stands for a server if that is to be quiet."""
        self.dumps += 1
        source = self.feed.dump(self.directory / f"dump{self.dumps}", present=quiet)
        options = VerifyOptions(repair=repair, quiet=quiet, run="test", cut=cut, choice=choice)
        comparisons = verify(self.pipeline(), self.lake, lambda at: source, options, **more)
        return {comparison.table.table: comparison for comparison in comparisons}
