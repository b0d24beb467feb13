"""Names from the source are just names: none leaves the warehouse, becomes SQL, or meets another one's files."""

from __future__ import annotations

import json
import posixpath
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

from cdc_assets.lake.names import format_identity, location, parse_identity
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings, from_flags
from cdc_assets.sources.storage_sink.options import SinkOptions
from cdc_assets.sources.storage_sink.paths import (
    DataPath,
    SchemaPath,
    format_data_path,
    format_schema_path,
    parse_data_path,
    parse_schema_path,
)
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.schema_documents import document, file_column

if TYPE_CHECKING:
    from cdc_assets.lake import Lake

V = 449_000_000_000_000_000
NAMES = (
    "a`; DROP TABLE x; --",
    "../x",
    "../../etc/passwd",
    ".",
    "...",
    "x/../y",
    "it's",
    'say "hi"',
    "two\nlines",
    "tab\there",
    "\x01\x1f\x7f",
    "😀" * 64,
    "Case",
    "cASE",
    "50%41",
    "a.b",
    "$(reboot)",
    "${spark.x}",
    "meta",
    "metadata",
    "?a=1#b",
    "back\\slash",
    " padded ",
    "*",
    "449000000000000000",
    "CDC000001.csv",
)
"""Table names that TiDB takes, and that mean something elsewhere."""


def below(path: str) -> str:
    """What TiCDC's path cleaner makes of a joined path."""
    return posixpath.normpath("/" + path).strip("/")


def schema_file(table: TableId, version: int, query: str) -> tuple[str, bytes]:
    columns = [
        file_column("id", "INT", "11", is_key=True),
        file_column(table.table or "v", "VARCHAR", "64"),
    ]
    content = document(table.schema, table.table, version, Query=query, Type=3, TableColumns=columns)
    data = json.dumps(content, ensure_ascii=False).encode()
    root = below(f"{table.schema}/{table.table}")
    return format_schema_path(SchemaPath(root, version, zlib.crc32(data))), data


def bucket_of(names: tuple[str, ...], schema: str = "db") -> dict[str, bytes]:
    """A feed with one row for each table; the row's text is the table's own name."""
    files = {"metadata": json.dumps({"checkpoint-ts": V + 10_000}).encode()}
    for number, name in enumerate(names):
        version = V + number
        quoted = "`" + name.replace("`", "``") + "`"
        path, data = schema_file(
            TableId(schema, name), version, f"CREATE TABLE {quoted} (`id` INT PRIMARY KEY,{quoted} VARCHAR(64))"
        )
        files[path] = data
        text = name.replace('"', '""')
        row = f'"I","{text}","{schema}",{V + 5_000},{number},"{text}"\r\n'
        files[f"{below(f'{schema}/{name}')}/{version}/CDC{1:020d}.csv"] = row.encode()
    return files


@pytest.fixture
def put() -> Iterator[Callable[[Mapping[str, bytes]], ChangefeedSettings]]:
    """Lay a bucket into memory; no disk takes all of these names."""
    MemoryFileSystem.store.clear()
    system = fsspec.filesystem("memory")

    def lay(files: Mapping[str, bytes]) -> ChangefeedSettings:
        for path, data in files.items():
            system.pipe_file(f"/feed/{path}", data)
        return opened("memory://feed")

    yield lay
    MemoryFileSystem.store.clear()


def opened(uri: str) -> ChangefeedSettings:
    (settings,) = from_flags(sink_uri=f"{uri}?protocol=csv&date-separator=none", accept_unordered=True).changefeeds
    return settings


def settled(settings: ChangefeedSettings, tmp_path: Path) -> ChangefeedSettings:
    """The same with commit-ts in the rows."""
    toml = tmp_path / "changefeed.toml"
    toml.write_text('[sink]\nprotocol = "csv"\n[sink.csv]\ninclude-commit-ts = true\n')
    uri = settings.sink_uri.get_secret_value()
    return from_flags(sink_uri=uri, changefeed_config=toml).changefeeds[0]


def apply(settings: ChangefeedSettings, lake: Any, ledger: Ledger | None = None) -> Outcome:
    return Pipeline(settings, settings.open_source(), lake, ledger or Ledger("sqlite://")).apply()


# --- end to end -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_a_table_of_any_name_is_just_a_table(
    name: str, put: Callable[[Mapping[str, bytes]], ChangefeedSettings], tmp_path: Path
) -> None:
    lake = MemoryLake()
    outcome = apply(settled(put(bucket_of((name,))), tmp_path), lake)
    assert outcome.complete, (outcome.problems, [t.reason for t in outcome.tables])
    rows = lake.read(TableId("db", name)).to_pylist()
    assert [row[name] for row in rows] == [name]


def test_all_of_them_together_do_not_meet(
    put: Callable[[Mapping[str, bytes]], ChangefeedSettings], tmp_path: Path
) -> None:
    lake = MemoryLake()
    plain = (name for name in NAMES if "/" not in name and name != ".")
    apart = tuple({name.lower(): name for name in plain}.values())  # in TiDB one name, in whatever letter case
    outcome = apply(settled(put(bucket_of(apart)), tmp_path), lake)
    assert outcome.complete, (outcome.problems, [t.reason for t in outcome.tables])
    assert {name.table for name in lake.names()} == set(apart)
    for name in apart:
        assert [row[name] for row in lake.read(TableId("db", name)).to_pylist()] == [name]


def test_a_table_that_climbs_out_of_the_prefix_is_reported_and_not_guessed(
    put: Callable[[Mapping[str, bytes]], ChangefeedSettings], tmp_path: Path
) -> None:
    lake = MemoryLake()
    outcome = apply(settled(put(bucket_of(("..", "good"))), tmp_path), lake)
    assert not outcome.complete
    assert any(f"{V}/CDC" in path for path in outcome.problems)
    assert lake.names() == {TableId("db", "good")}


def test_a_tables_ddl_is_written_down_as_it_came(
    put: Callable[[Mapping[str, bytes]], ChangefeedSettings], tmp_path: Path
) -> None:
    ledger = Ledger("sqlite://")
    files = bucket_of(NAMES[:1])
    apply(settled(put(files), tmp_path), MemoryLake(), ledger)
    (query,) = [json.loads(data)["Query"] for path, data in files.items() if "/meta/schema_" in path]
    (entry,) = ledger.journal("default")
    assert entry.query == query


# --- the grammar of paths ---------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=64)


@given(TEXTS, TEXTS, st.integers(1, 2**62))
def test_a_path_leads_back_to_its_root_whatever_the_name(schema: str, table: str, version: int) -> None:
    root = below(f"{schema}/{table}")
    if not root or ".tmp" in root:
        return
    path = format_data_path(DataPath(root, version, 7, ".csv"))
    options = SinkOptions(date_separator="none")
    parsed = parse_data_path(path, options, {(root, version)})
    assert parsed is not None
    assert (parsed.root, parsed.version, parsed.number) == (root, version, 7)
    assert parse_schema_path(format_schema_path(SchemaPath(root, version, 1))) == SchemaPath(root, version, 1)


@given(TEXTS, TEXTS, TEXTS)
def test_a_lake_path_is_one_component_below_the_changefeeds_own(changefeed: str, schema: str, table: str) -> None:
    place = location("/lake", changefeed, Life(TableId(schema, table), V))
    parts = place.split("/")
    assert parts[:2] == ["", "lake"]
    assert len(parts) == 4
    assert ".." not in parts
    assert "." not in parts
    assert len(parts[3].encode()) <= 255


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=2, max_size=2, unique=True))
def test_two_tables_never_share_a_lake_path_nor_an_identity(tables: list[tuple[str, str]]) -> None:
    life, other_life = (Life(TableId(*names), V) for names in tables)
    assert format_identity(life) != format_identity(other_life)
    assert location("/lake", "f", life) != location("/lake", "f", other_life)
    assert parse_identity(format_identity(life)) == life


# --- on Spark and Iceberg ---------------------------------------------------------------------------------------------


def test_nothing_is_written_beside_the_warehouse(open_lake: Callable[..., Lake], tmp_path: Path) -> None:
    MemoryFileSystem.store.clear()
    bucket = tmp_path / "feed"
    names = ("a`; DROP TABLE x; --", "../x", "it's", 'say "hi"', "two\nlines", "a.b", "50%41", "${spark.x}")
    for path, data in bucket_of(names).items():
        (bucket / path).parent.mkdir(parents=True, exist_ok=True)
        (bucket / path).write_bytes(data)
    settings = settled(opened(str(bucket)), tmp_path)
    before = {p for p in tmp_path.rglob("*") if not p.is_relative_to(tmp_path / "lake")}
    ledger = Ledger("sqlite://")
    lake = open_lake()
    outcome = apply(settings, lake, ledger)
    assert outcome.complete, [(t.name, t.reason) for t in outcome.tables if t.reason]
    assert {p for p in tmp_path.rglob("*") if not p.is_relative_to(tmp_path / "lake")} == before
    assert list(lake.state.row_counts().values()) == [1] * len(names)
    for entry in ledger.journal("default"):
        assert not [statement for statement in entry.statements if entry.query in statement]
