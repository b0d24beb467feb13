"""Masked columns on Spark and Iceberg: nothing that is there after commands, faults and kills has a value of theirs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from cdc_assets.defs import build_changefeed_defs
from cdc_assets.settings.config import load
from cdc_assets_tests.canaries import contents, leaks
from cdc_assets_tests.command_line import ROOT, Commands, Said
from cdc_assets_tests.kills import Killed, Trap, trapped
from cdc_assets_tests.little_feed import FIRST
from cdc_assets_tests.schema_documents import document, file_column, write_schema

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.soak,
    pytest.mark.filterwarnings("ignore"),  # Dagster says what is new in it
]

KEY = {"hash": {"key": {"env": "MASK_KEY"}}}
SECRET = "a key of the tests"
"""What MASK_KEY is: the key of hashes and of encryption."""
PRIVACY: dict[str, Any] = {
    "shop.*.id": KEY, "shop.*.mail": KEY, "shop.*.card": {"redact": "last4"}, "shop.*.home": {"redact": "domain"},
    "shop.*.note": None, "shop.*.free": "drop", "shop.*.tag": {"redact": "length"}, "shop.*.phone": {"constant": "-"},
    "shop.*.born": KEY, "shop.*.late": KEY, "shop.*.gone": "drop",
}  # fmt: skip
COLUMNS = {
    "id": ("BIGINT", "20"), "mail": ("VARCHAR", "80"), "card": ("VARCHAR", "80"), "home": ("VARCHAR", "80"),
    "note": ("TEXT", ""), "free": ("VARCHAR", "80"), "tag": ("ENUM", ""), "phone": ("BIGINT", "20"),
    "born": ("DATETIME", ""), "seen": ("INT", "11"),
}  # fmt: skip
MEMBERS = ("member-alpha-7431", "member-omega-8842")
TYPES = {
    name: {"ENUM": f"ENUM('{MEMBERS[0]}','{MEMBERS[1]}')", "VARCHAR": "VARCHAR(80)"}.get(of, of)
    for name, (of, _) in COLUMNS.items()
}
"""As CREATE TABLE has them."""


class Canaries:
    """A feed in whose masked columns no value is twice, and all that may not be found of them."""

    def __init__(self, bucket: Path) -> None:
        self.bucket, self.tokens = bucket, {secret.encode() for secret in (*MEMBERS, SECRET)}
        bucket.mkdir()

    def schema(self, table: str, at: int, query: str, kind: int, **more: tuple[str, str, str]) -> None:
        """Write the schema file of a DDL; `more` are columns beside the common ones: type, precision and default."""
        columns = [
            file_column(name, of, size, ColumnIsPk=str(name == "id").lower(), ColumnNullable=str(name != "id").lower())
            for name, (of, size) in COLUMNS.items()
        ]  # fmt: skip
        for name, (of, size, default) in more.items():
            columns.append(file_column(name, of, size, ColumnDefault=default))
            self.tokens.add(default.encode())
        write_schema(self.bucket, document("shop", table, at, Query=query, Type=kind, TableColumns=columns))

    def create(self, table: str) -> None:
        columns = ", ".join(f"`{name}` {of}" for name, of in TYPES.items())
        self.schema(table, FIRST, f"CREATE TABLE `{table}` ({columns}, PRIMARY KEY (`id`))", 3)

    def values(self, ts: int, number: int) -> dict[str, str]:
        """Return a row, whose values depend on its number and the time, and look for them from now on."""
        own = f"{number:03d}{ts - FIRST:04d}"
        values = {
            "id": f"8800{number:06d}", "mail": f"ann{own}@hidden{own}.example", "card": f"4000-{own}-9999-{own}",
            "home": f"carol{own}@open.example", "note": f'say "{own}" never', "free": f"free-{own}-ünï",
            "tag": MEMBERS[number % 2], "phone": f"4917{own}",
            "born": f"19{ts % 90 + 10}-03-04 05:06:{number % 60:02d}", "seen": "1" if number >= 0 else "no number",
        }  # fmt: skip
        self.tokens |= {values[name].encode() for name in values if name not in ("born", "tag", "home", "seen")}
        self.tokens.add(f"carol{own}".encode())
        return values

    def rows(self, table: str, version: int, rows: Sequence[tuple[str, int, int]], *more: str, end: str = "") -> Path:
        """Write a file of (operation, commit-ts, number of the row)."""
        directory, lines = self.bucket / "shop" / table / str(version), []
        directory.mkdir(parents=True, exist_ok=True)
        for op, ts, number in rows:
            values = [text.replace('"', '""') for text in self.values(ts, number).values()]
            fields = ",".join(f'"{name}"' for name in [*values, *more])
            lines.append(f'"{op}","{table}","shop",{ts},{fields}\r\n')
        path = directory / f"CDC{len(list(directory.iterdir())) + 1:020d}.csv"
        path.write_text("".join(lines) + end, newline="")
        return path

    def publish(self, through: int) -> None:
        (self.bucket / "metadata").write_text(json.dumps({"checkpoint-ts": through}))


ADDED = {"late": ("VARCHAR", "80", "default-late-55190"), "gone": ("VARCHAR", "80", "default-gone-66120")}
ADD = "ALTER TABLE `t` ADD COLUMN `late` VARCHAR(80) DEFAULT '{}', ADD COLUMN `gone` VARCHAR(80) DEFAULT '{}'"


class Site:
    """The feed, a lake with masks, and all that commands say of it."""

    def __init__(self, directory: Path, run: Commands) -> None:
        self.feed, self.left, self._run = Canaries(directory / "feed"), directory / "left", run
        self.left.mkdir()
        toml, self.file = directory / "changefeed.toml", directory / "changefeeds.yaml"
        toml.write_text("[sink.csv]\ninclude-commit-ts = true\n")
        self._feed: dict[str, Any] = {
            "name": "shop", "sink_uri": f"file://{self.feed.bucket}?protocol=csv", "changefeed_config": str(toml),
            "privacy": PRIVACY, "privacy_key": {"env": "MASK_KEY"}, "history": {"shop.*": ["log", "scd2"]},
        }  # fmt: skip
        self.set()

    def set(self, **more: Any) -> None:
        """Write the settings, with more of them."""
        lake = {"warehouse": str(self.left / "lake")}
        self.file.write_text(yaml.safe_dump({"lake": lake, "changefeeds": [{**self._feed, **more}]}))

    def do(self, *words: str, ends: int | None = 0) -> str:
        """Run a command; what it prints is kept."""
        process = self._run(*words, "--settings", str(self.file))
        with (self.left / "said.txt").open("a") as out:
            out.write(f"{words[0]}\n{process.stdout}\n{process.stderr}\n")
        assert ends is None or process.returncode == ends, process
        return process.stdout

    def go(self, through: int) -> None:
        """Apply through a checkpoint, with what is to be done shown before and after it."""
        self.feed.publish(through)
        for words in (("plan", "--json"), ("apply",), ("status", "--json")):
            self.do(*words, ends=None)


def everywhere(site: Site) -> None:
    """Ask all that can be asked of the tables."""
    key = f"8800{3:06d}"
    for words in (
        ("inspect",), ("inspect", "--json"), ("plan",), ("status",), ("files",), ("journal",), ("quarantine",),
        ("explain", "shop.t", key), ("explain", "shop.t", key, "--json"), ("explain", "shop.t", "no-number", "--debug"),
        ("as-of", str(FIRST + 60), "--json"), ("maintain", "--dry-run"),
        *(("extract", "shop.u", "--from", str(FIRST), "--to", str(FIRST + 50), "--format", of,
           "--out", str(site.left / of)) for of in ("parquet", "jsonl", "csv")),
    ):  # fmt: skip
        site.do(*words, ends=None)


def test_no_command_fault_or_kill_leaves_a_value_of_a_masked_column(
    run: Commands, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASK_KEY", SECRET)
    site = Site(tmp_path, run)
    feed = site.feed
    for table in "tu":
        feed.create(table)
        feed.rows(table, FIRST, [("I", FIRST + 1 + number, number) for number in range(12)])
    site.go(FIRST + 20)
    assert "hash" in site.do("inspect")
    feed.rows("t", FIRST, [("U", FIRST + 21, 3), ("D", FIRST + 22, 4), ("I", FIRST + 23, -7)])
    cut = feed.rows("u", FIRST, [("U", FIRST + 24, 5)], end='"I","u","shop",' + f'{FIRST + 25},"cut-off-9917')
    feed.tokens.add(b"cut-off-9917")
    site.go(FIRST + 30)
    everywhere(site)
    cut.write_bytes(cut.read_bytes().rpartition(b'"I"')[0])
    site.set(quarantine=True)
    feed.schema("t", FIRST + 31, ADD.format(*(default for *_, default in ADDED.values())), 5, **ADDED)
    feed.rows("t", FIRST + 31, [("I", FIRST + 35, 40)], "late-value-40771", "gone-value-40772")
    feed.tokens |= {b"late-value-40771", b"gone-value-40772"}
    with pytest.raises(Killed), trapped(Trap(lambda number, name: "after _write_manifest" in name)):
        site.go(FIRST + 40)
    site.go(FIRST + 40)
    feed.schema("u", FIRST + 41, "TRUNCATE TABLE `u`", 11)
    feed.rows("u", FIRST + 41, [("I", FIRST + 45, 60)])
    site.go(FIRST + 50)
    site.do("cut", "--name", "one")
    everywhere(site)
    extracts = ("parquet", "jsonl", "csv")
    assert [bool(list((site.left / of).glob("*"))) for of in extracts] == [True] * len(extracts)
    for command in ("rebuild", "maintain"):
        site.do(command, "shop.t", ends=None)
    settings = load(site.file)
    job = build_changefeed_defs(settings.changefeeds[0], settings.lake).resolve_job_def("shop_catch_up")
    feed.rows("t", FIRST + 31, [("U", FIRST + 55, 40), ("I", FIRST + 56, -8)], "late-value-50771", "gone-value-50772")
    feed.tokens |= {b"late-value-50771", b"gone-value-50772"}
    feed.publish(FIRST + 60)
    config: dict[str, Any] = {"ops": {"shop_catch_up_tables": {"config": {"tables": []}}}}
    job.execute_in_process(run_config=config, instance=instance, raise_on_error=False)
    events = [repr(entry) for run in instance.get_runs() for entry in instance.all_logs(run.run_id)]
    (site.left / "events.txt").write_text("\n".join(events))
    everywhere(site)
    assert len(events) > 10
    assert [*leaks(site.left, feed.tokens), *leaks(Path(instance.root_directory), feed.tokens)] == []


MERGING = "from cdc_assets.lake import row_delta; row_delta._CHANGES = 0; from cdc_assets.cli import main; main()"


def merging(*arguments: str) -> Said:
    """Run a command in a process of its own, which leaves small windows to Spark, too."""
    words = [sys.executable, "-c", MERGING, *arguments]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    return Said(done.returncode, done.stdout, done.stderr)


def test_neither_spark_s_log_nor_its_events_have_a_value_of_a_masked_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command has a JVM of its own, which says all that it has to say at INFO and keeps its events."""
    monkeypatch.setenv("MASK_KEY", SECRET)
    monkeypatch.setenv("CDC_ASSETS_SPARK_LOG", "INFO")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf := tmp_path / "conf"))
    conf.mkdir()
    site = Site(tmp_path, merging)
    (events := site.left / "events").mkdir()
    (conf / "spark-defaults.conf").write_text(f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\n")
    feed = site.feed
    feed.create("t")
    feed.rows("t", FIRST, [("I", FIRST + 1 + number, number) for number in range(40)])
    site.go(FIRST + 50)
    feed.schema("t", FIRST + 51, ADD.format(*(default for *_, default in ADDED.values())), 5, **ADDED)
    changes = [*(("U", FIRST + 52 + number, number) for number in range(30)), ("D", FIRST + 90, 35)]
    feed.rows("t", FIRST + 51, changes, "late-value-40771", "gone-value-40772")
    feed.tokens |= {b"late-value-40771", b"gone-value-40772"}
    site.go(FIRST + 100)
    site.do("rebuild", "shop.t")
    feed.rows("t", FIRST + 51, [("I", FIRST + 101, -8)], "late-value-50771", "gone-value-50772")
    feed.tokens |= {b"late-value-50771", b"gone-value-50772"}
    site.go(FIRST + 110)
    output = (site.left / "said.txt").read_text()
    kept = b"".join(data for file in events.rglob("*") if file.is_file() for _, data in contents(file))
    assert " INFO " in output
    assert b"SparkListenerSQLExecutionStart" in kept
    assert b"MergeRows" in kept
    assert leaks(site.left, feed.tokens) == []
