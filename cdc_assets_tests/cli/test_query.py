"""Rows of the lake: the command that shows them, the lines by which engines connect, and the blocks of their page."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from pyspark.sql import SparkSession

from cdc_assets.cli.query import query_line
from cdc_assets.operations.engines import connections, snapshot_statements
from cdc_assets.settings.config import Settings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.command_line import Commands, commands_here
from cdc_assets_tests.little_feed import FIRST, LittleFeed

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "query.md").read_text()
LAKES = re.findall(
    r"^## ([^\n]+)\n\n```yaml\n(lake:\n.*?)```", (DOCS / "lakes.md").read_text(), re.MULTILINE | re.DOTALL
)
PYTHON = re.findall(r"^```python\n(.*?)^```", PAGE.partition("## Other catalogs")[0], re.MULTILINE | re.DOTALL)


@pytest.fixture
def run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Commands]:
    with commands_here(spark, monkeypatch, capsys) as commands:
        yield commands


def applied(run: Commands, directory: Path) -> str:
    """Apply a table to `lake` in the directory: a row updated, one deleted, a column added with a default later."""
    feed = LittleFeed(directory)
    feed.create("shop.orders")
    feed.rows("shop.orders", FIRST, [("I", FIRST + n, n, "a") for n in range(1, 5)])
    feed.publish(FIRST + 10)
    feed_of = ["--sink-uri", f"file://{feed.bucket}?protocol=csv&date-separator=none", "--config", str(feed.toml)]
    apply = ["apply", *feed_of, "--warehouse", str(directory / "lake")]
    assert run(*apply).returncode == 0
    feed.create("shop.part", FIRST + 11)
    feed.ddl("shop.piece", FIRST + 12, "RENAME TABLE `shop`.`part` TO `shop`.`piece`", 14)
    feed.ddl("shop.thing", FIRST + 13, "RENAME TABLE `shop`.`piece` TO `shop`.`thing`", 14)
    feed.create("shop.gone", FIRST + 11)
    feed.ddl("shop.gone", FIRST + 14, "DROP TABLE `gone`", 4)
    feed.rows("shop.orders", FIRST, [("U", FIRST + 11, 2, "b"), ("D", FIRST + 12, 3, "a")])
    feed.publish(FIRST + 20)
    return run(*apply).stdout


def test_rows_are_shown_and_selected_and_every_block_of_the_page_runs(
    run: Commands, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = next(line for line in applied(run, tmp_path).splitlines() if line.startswith("See rows: "))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # else it warns that another package plans faster
    shown = run(*shlex.split(last.partition("See rows: cdc-assets ")[2]))
    heads, *rows, count = [line.split()[:2] for line in shown.stdout.splitlines()]
    assert (heads, sorted(rows), count) == (["id", "v"], [["1", "a"], ["2", "b"], ["4", "a"]], ["3", "rows"])
    for line in re.findall(r"^cdc-assets (query .*)$", PAGE, re.MULTILINE):
        assert run(*shlex.split(line)).returncode == 0
    lake = ["--warehouse", "lake"]
    counted = run("query", "--sql", "SELECT v, count(*) AS n FROM orders GROUP BY v ORDER BY v", "--json", *lake)
    assert json.loads(counted.stdout) == [{"v": "a", "n": 2}, {"v": "b", "n": 1}]
    broken_line = run("query", "--sql", "SELECT 'a' || chr(10) || 'b' AS v", *lake).stdout
    assert broken_line.splitlines()[1] == r"a\nb"
    binary = ["query", "--sql", "SELECT 'zz'::BLOB AS b, NULL::BLOB AS n", *lake]
    assert json.loads(run(*binary, "--json").stdout) == [{"b": "0x7a7a", "n": None}]
    assert run(*binary).stdout.splitlines()[1].split() == ["0x7a7a", "NULL"]
    joined = "WITH x AS (FROM shop.orders) SELECT * FROM x JOIN lake.shop.orders USING (id)"
    assert json.loads(run("query", "--sql", joined, "--json", *lake).stdout)[0].keys() >= {"id", "v", "_cdc_commit_ts"}
    for wrong, sentence in [
        (["shop.nothing"], "known are shop.orders, shop.thing"),
        (["shop.part"], "shop.part is called shop.thing now"),
        (["shop.piece"], "shop.piece is called shop.thing now"),
        (["shop.gone"], "shop.gone was dropped"),
        (["--sql", "SELECT * FROM shop.part"], "shop.part is called shop.thing now"),
        (["--sql", "DELETE FROM shop.orders"], "one SELECT is expected"),
        (["--sql", "SELECT * FROM nothing"], "shop.orders"),
        ([], "one table or one query"),
    ]:
        refused = run("query", *wrong, *lake)
        assert refused.returncode == 2
        assert sentence in refused.stderr
    feed = {"sink_uri": f"file://{tmp_path}/bucket?protocol=csv", "changefeed_config": "changefeed.toml"}
    changefeeds = [{**feed, "tables": {"exclude": ["shop.thing", "shop.not*"]}}]
    Path("excluding.yaml").write_text(json.dumps({"lake": {"warehouse": "lake"}, "changefeeds": changefeeds}))
    excluding = ["--settings", "excluding.yaml"]
    assert 'exclude: ["shop.not*"]' in run("query", "shop.nothing", *excluding).stderr
    assert 'exclude: ["shop.not*"]' in run("query", "--sql", "FROM shop.nothing", *excluding).stderr
    assert 'exclude: ["shop.not*"]' in run("as-of", str(FIRST + 9), "shop.nothing", *excluding).stderr
    assert run("apply", *excluding).returncode == 0
    assert "shop.thing is frozen" in run("query", "shop.thing", *excluding).stderr

    for block in PYTHON:
        names: dict[str, Any] = {}
        if "SparkSession" not in block:
            exec(block, names)
            assert len(names["orders"] if "duckdb" in block else names["rows"]) == 3
    read = run("as-of", str(FIRST + 10), "--engine", "pyiceberg", *lake).stdout
    assert "load_catalog" in read
    *lines, statement = read.partition("-- pyiceberg\n")[2].partition("\nas of")[0].strip().splitlines()
    exec("\n".join([*lines, f"result = {statement}"]), names)
    assert sorted(names["result"]["id"].to_pylist()) == [1, 2, 3, 4]

    second = LittleFeed(tmp_path / "second")
    second.create("shop.orders")
    second.rows("shop.orders", FIRST, [("I", FIRST + 1, 7, "z")])
    second.publish(FIRST + 10)
    feed = {"sink_uri": f"file://{second.bucket}?protocol=csv&date-separator=none", "namespace": "second_{schema}"}
    changefeeds = [{**feed, "name": "second", "changefeed_config": str(second.toml)}]
    Path("second.yaml").write_text(json.dumps({"lake": {"warehouse": "lake"}, "changefeeds": changefeeds}))
    assert "query second_shop.orders --settings second.yaml" in run("apply", "--settings", "second.yaml").stdout
    for name, place, number in [
        ("second_shop.orders", lake, 1),
        ("shop.orders", lake, 3),
        ("shop.orders", ["--settings", "second.yaml"], 1),
    ]:
        assert len(json.loads(run("query", name, "--json", *place).stdout)) == number


def test_the_spark_block_of_the_page_names_what_the_command_line_of_spark_does() -> None:
    (block,) = (block for block in PYTHON if "SparkSession" in block)
    stated = dict(re.findall(r'config\(\s*"([^"]+)",\s*"([^"]+)"', block))
    line = shlex.split(connections(LakeSettings.from_warehouse("lake"))["spark"])
    options = dict(argument.split("=", 1) for argument in line if argument.startswith("spark."))
    assert stated.pop("spark.jars.packages") == line[line.index("--packages") + 1]
    here = f"{Path.cwd()}/lake"
    assert {name: value.replace(here, "lake") for name, value in options.items()}.items() >= stated.items()


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variables that the lakes of `lakes.md` take secrets from."""
    for name in ("CATALOG_CREDENTIAL", "LEDGER", "LAKE_PASSWORD", "S3_KEY", "S3_SECRET", "AZURE_KEY"):
        monkeypatch.setenv(name, f"secret-of-{name}")


@pytest.mark.usefixtures("secrets")
def test_the_page_has_the_connections_of_every_type_of_catalog_as_they_are_printed() -> None:
    text = page_of_connections()
    assert "secret-of" not in text
    assert text == PAGE.partition("<!-- connections -->\n")[2].partition("<!-- end of connections -->")[0]
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        ast.parse(block)
    for block in re.findall(r"^```sql\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        duckdb.extract_statements(block)


@pytest.mark.usefixtures("secrets")
def test_each_catalog_has_a_statement_of_trino_but_the_one_in_a_file_which_trino_cannot_read() -> None:
    lakes = [Settings.model_validate(yaml.safe_load(settings)).needed_lake() for _, settings in LAKES]
    for lake in [*lakes, LakeSettings.from_warehouse("lake")]:
        read = snapshot_statements(lake, ("shop", "orders"), "m.json", 7)
        assert set(read) == {"spark", "duckdb", "pyiceberg", *(["trino"] if lake.catalog_file is None else [])}
        if "trino" in read:
            assert read["trino"] == f'SELECT * FROM "{lake.name}"."shop"."orders" FOR VERSION AS OF 7'


def page_of_connections() -> str:
    """Return the generated part of the page: the first lake of `lakes.md` of each type of catalog."""
    languages = {"spark": "sh", "trino": "properties", "duckdb": "sql", "pyiceberg": "python"}
    text = ""
    types = set[str]()
    for title, settings in LAKES:
        lake = Settings.model_validate(yaml.safe_load(settings)).lake
        assert lake is not None
        if lake.catalog["type"] in types:
            continue
        types.add(lake.catalog["type"])
        text += f"\n### {title}\n"
        for engine, lines in connections(lake).items():
            body = re.sub(r"^-- +", "", lines, flags=re.MULTILINE) if engine == "trino" else lines
            body = f"# {body}" if engine == "trino" else body
            text += f"\n```{languages[engine]}\n{body}\n```\n"
    return f"{text}\n"


@pytest.mark.parametrize("program_on_path", ["the same", "another", "none"])
def test_the_line_that_shows_rows_starts_the_program_as_this_one_was(
    program_on_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for directory in ("bin", "other", "empty"):
        (tmp_path / directory).mkdir()
    for directory in ("bin", "other"):
        (tmp_path / directory / "cdc-assets").touch(mode=0o755)
    monkeypatch.setenv(
        "PATH", str(tmp_path / {"the same": "bin", "another": "other", "none": "empty"}[program_on_path])
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bin/cdc-assets", "apply"])
    line = query_line(LakeSettings.from_warehouse("lake"), None, ["shop.orders"])
    started = "cdc-assets" if program_on_path == "the same" else "bin/cdc-assets"
    assert line == f"See rows: {started} query shop.orders --warehouse {tmp_path / 'lake'}"
