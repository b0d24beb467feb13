"""Cuts on the command line: the commands of their page, what they print, and how they end."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from cdc_assets.errors import BadSettings
from cdc_assets.operations.moments import parse_moment
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets_tests.command_line import Commands, commands_here
from cdc_assets_tests.little_feed import FIRST, LittleFeed

PAGE = (Path(__file__).parents[2] / "docs" / "cuts.md").read_text()
LINES = re.findall(r"^cdc-assets (cut|status) (.*?)(?: {2,}#.*)?$", PAGE, re.MULTILINE)


@pytest.fixture
def run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Commands]:
    with commands_here(spark, monkeypatch, capsys) as commands:
        yield commands


class Shop(LittleFeed):
    """A bucket with three tables, and a settings file."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        for name in ("shop.orders", "shop.items", "shop.audit"):
            self.create(name)
            self.rows(name, FIRST, [("I", FIRST + 1, 1, "one")])
        self.publish(FIRST + 10)
        self.file = directory / "changefeeds.yaml"
        uri = f"file://{self.bucket}?protocol=csv"
        feed = {"name": "shop", "sink_uri": uri, "changefeed_config": str(self.toml)}
        self.file.write_text(yaml.safe_dump({"lake": {"warehouse": str(directory / "lake")}, "changefeeds": [feed]}))


def test_the_commands_of_the_page_run_and_say_what_they_did(run: Commands, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    printed = []
    for command, rest in LINES:
        process = run(command, *shlex.split(rest.replace("changefeeds.yaml", str(shop.file))))
        assert process.returncode == 0, process.stderr
        printed.append(process.stdout)
    assert [command for command, _ in LINES] == ["cut", "cut", "status", "cut"]
    assert f"month-end: 3 tables as of {FIRST + 9}" in printed[0]
    assert printed[2].splitlines()[0].split()[-3:] == ["tables", "inexact", "without"]
    assert "month-end of" in printed[3]
    left = run("status", "--settings", str(shop.file))
    assert "month-end" not in left.stdout
    assert f"cut-{FIRST + 9}" in left.stdout


def test_a_table_as_of_a_moment_says_how_exact_it_is_and_how_to_read_it(run: Commands, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    run("cut", "--name", "month-end", "--settings", str(shop.file))
    commands = re.findall(r"^cdc-assets (as-of .*)$", PAGE, re.MULTILINE)
    processes = [run(*shlex.split(command.replace("./lake", str(tmp_path / "lake")))) for command in commands]
    assert [process.returncode for process in processes] == [1, 1, 0], [process.stderr for process in processes]
    shown = json.loads(run("as-of", "month-end", "--json", "--settings", str(shop.file)).stdout)[0]
    assert (shown["exact"], shown["at"], len(shown["tables"])) == (True, FIRST + 9, 3)
    assert all(set(table["read"]) == {"spark", "duckdb", "pyiceberg"} for table in shown["tables"])
    assert set(shown["connect"]) == {"spark", "trino", "duckdb", "pyiceberg"}
    assert "no catalog of the type JDBC on SQLite" in shown["connect"]["trino"]
    late = run("as-of", "2100-01-01", "shop.orders", "--settings", str(shop.file))
    assert (late.returncode, "may be missing" in late.stderr) == (1, True)
    early = run("as-of", "2001-01-01T00:00:00+02:00", "--settings", str(shop.file))
    assert (early.returncode, "the lake has no state of any table as of" in early.stderr) == (2, True)
    wrong = run("as-of", "yesterday", "--settings", str(shop.file))
    assert '"yesterday" is no moment; expected a TSO, a time such as 2026-01-31' in wrong.stderr


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("465283339517952001", 465283339517952001),
        ("1970-01-01", 0x3FFFF),
        ("1970-01-01T00:00:01Z", (1000 << 18) | 0x3FFFF),
        ("1970-01-01T02:00:01.5+02:00", (1500 << 18) | 0x3FFFF),
        ("report", 7),
    ],
)
def test_a_moment_is_a_tso_a_time_or_a_cut(text: str, position: int) -> None:
    assert parse_moment(text, {"report": 7}) == position


@pytest.mark.parametrize("text", ["-5", "9" * 23, "²", "2026-13-01", "month-end"])
def test_what_is_no_moment_is_said_to_be_none(text: str) -> None:
    with pytest.raises(BadSettings, match=f'"{text}" is no moment; expected a TSO.*the name of a cut'):
        parse_moment(text, {})
    with pytest.raises(BadSettings, match=r"or the name of a cut: before, report\.$"):
        parse_moment(text, {"report": 7, "before": 6})


def test_the_extracts_of_the_page_are_written_and_a_filled_directory_is_refused(run: Commands, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    run("cut", "--name", "month-start", "--settings", str(shop.file))
    shop.rows("shop.orders", FIRST, [("I", FIRST + 12, 2, "two"), ("U", FIRST + 14, 2, "three")])
    later = FIRST + (3_600_000 << 18)
    shop.publish(later)
    run("cut", "--name", "month-end", "--settings", str(shop.file))
    lines = re.findall(r"^cdc-assets (extract .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 2
    for line in lines:
        command = line.replace("changefeeds.yaml", str(shop.file)).replace("./", f"{tmp_path}/")
        process = run(*shlex.split(command))
        assert process.returncode == 0, process.stderr
        again = run(*shlex.split(command))
        assert (again.returncode, "has files already" in again.stderr) == (2, True)
    hour, net = (json.loads((tmp_path / name / "extract.json").read_text()) for name in ("hour", "net"))
    assert (hour["rows"], hour["net"], hour["source"]) == (3, False, "feed")
    assert (net["rows"], net["from"]) == (1, FIRST + 9)
    (row,) = [json.loads(line) for line in (tmp_path / "net" / "changes.jsonl").read_text().splitlines()]
    assert (row["id"], row["v"], row["_cdc_position"]) == (2, "three", FIRST + 14)
    early = ["extract", "shop.orders", "--from", "month-end", "--to", "2100-01-01", "--out", str(tmp_path / "other")]
    beyond = run(*early, "--settings", str(shop.file))
    assert (beyond.returncode, "the feed is complete through" in beyond.stderr) == (1, True)


def test_of_several_changefeeds_those_are_asked_that_have_the_cut_or_the_table(run: Commands, tmp_path: Path) -> None:
    shop, till = Shop(tmp_path), LittleFeed(tmp_path / "till")
    assert run("cut", "--name", "one", "--settings", str(shop.file)).returncode == 0
    till.create("till.sales", FIRST + 20)
    till.publish(FIRST + 30)
    lake, flags = ["--warehouse", str(tmp_path / "lake")], ["--config", str(till.toml), "--name", "till"]
    assert run("apply", "--sink-uri", f"file://{till.bucket}?protocol=csv", *flags, *lake).returncode == 0

    def asked(*words: str) -> list[list[str]]:
        states = json.loads(run("as-of", *words, "--json", *lake).stdout)
        return [[table["table"] for table in state["tables"]] for state in states]

    assert asked("one") == [["shop.audit", "shop.items", "shop.orders"]]
    assert asked(str(FIRST + 25), "till.sales") == [["till.sales"]]
    early = run("as-of", str(FIRST + 5), *lake)
    assert "till: the lake has no state of any table" in early.stderr
    nowhere = run("as-of", "two", *lake)
    assert (nowhere.returncode, nowhere.stderr.count('"two" is no moment')) == (2, 2)


def test_json_of_cuts_and_of_tables_names_them(run: Commands, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    made = json.loads(run("cut", "--name", "one", "--json", "--settings", str(shop.file)).stdout)
    assert (made["name"], made["position"], made["changefeed"]) == ("one", FIRST + 9, "shop")
    assert {table["name"] for table in made["tables"]} == {"shop.orders", "shop.items", "shop.audit"}
    assert json.loads(run("status", "--cuts", "--json", "--settings", str(shop.file)).stdout) == [made]
    rows = json.loads(run("status", "--json", "--settings", str(shop.file)).stdout)
    assert {tuple(row["cuts"]) for row in rows} == {("one",)}


def test_a_table_with_other_rows_than_its_source_is_marked_in_cuts_and_status(run: Commands, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    settings = ["--settings", str(shop.file)]
    shop.file.write_text(shop.file.read_text().replace("sink_uri", "policies: {truncate table: skip}\n  sink_uri", 1))
    shop.ddl("shop.orders", FIRST + 20, "TRUNCATE TABLE `orders`", 11)
    shop.publish(FIRST + 30)
    assert run("cut", "--name", "one", *settings).returncode == 0
    (line,) = [line for line in run("status", "--cuts", *settings).stdout.splitlines() if " one " in line]
    assert line.split()[-1] == "shop.orders"
    status = run("status", *settings).stdout
    assert ", inexact" in status
    assert "incomplete" not in status


def test_a_held_table_and_a_name_given_twice_end_with_what_to_do(run: Commands, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    assert run("cut", "--name", "one", "--settings", str(shop.file)).returncode == 0
    twice = run("cut", "--name", "one", "--settings", str(shop.file))
    assert twice.returncode == 2
    assert "cdc-assets cut --remove one" in twice.stderr
    shop.ddl("shop.audit", FIRST + 20, "ALTER TABLE `audit` FROBNICATE", 99)
    shop.publish(FIRST + 30)
    refused = run("cut", "--name", "two", "--require-all", "--settings", str(shop.file))
    assert (refused.returncode, "shop.audit: it is held" in refused.stderr) == (1, True)
    assert "Nothing is left of it" in refused.stderr
    held = run("cut", "--name", "two", "--settings", str(shop.file))
    assert (held.returncode, "two: 2 tables" in held.stdout) == (1, True)
    assert "without shop.audit: it is held" in held.stderr
    both = run("cut", "--remove", "one", "--name", "two", "--settings", str(shop.file))
    assert (both.returncode, "--remove is given alone" in both.stderr) == (2, True)


def test_the_feed_of_flags_has_a_name_of_its_own(run: Commands, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    flags = ["--sink-uri", f"file://{shop.bucket}?protocol=csv", "--config", str(shop.toml), "--feed-name", "shop"]
    assert run("cut", "--name", "one", *flags, "--warehouse", str(tmp_path / "lake")).returncode == 0
    assert "one" in run("status", "--cuts", "--warehouse", str(tmp_path / "lake")).stdout


def test_the_settings_of_the_page_are_taken(tmp_path: Path) -> None:
    cuts, extracts = (
        yaml.safe_load(text)["changefeeds"][0] for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    )
    assert ChangefeedSettings(**cuts).cuts.every_seconds == 86_400
    assert ChangefeedSettings(**extracts).extracts["shop.orders"].every == "1h"
