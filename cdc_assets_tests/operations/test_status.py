"""The states of tables after runs that were interrupted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_assets.model.progress import State
from cdc_assets.model.steps import ApplyRows, CreateTable, Step
from cdc_assets.operations.opening import open_pipeline
from cdc_assets.operations.status import lake_status
from cdc_assets.pipeline.outcome import RunHooks
from cdc_assets.report.metrics import table_samples
from cdc_assets.report.text import status_lines
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.command_line import commands_here
from cdc_assets_tests.little_feed import FIRST, LittleFeed


def test_a_plan_names_tables_that_stopped_at_their_rows(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("s.t")
    rows = feed.rows("s.t", FIRST, [("I", FIRST + 1, 1, "a")])
    whole = rows.read_bytes()
    rows.write_bytes(whole.replace(b",1,", b",one,"))
    feed.publish(FIRST + 10)
    of_feed = ["--sink-uri", f"file://{feed.bucket}?protocol=csv&date-separator=none", "--config", str(feed.toml)]
    of_feed += ["--warehouse", str(tmp_path / "lake")]
    with commands_here(spark, monkeypatch, capsys) as run:
        assert run("plan", *of_feed).returncode == 1  # it reads the first rows of a new table
        assert run("apply", *of_feed).returncode == 1
        assert run("apply", *of_feed).stdout.rstrip().endswith(" s; 1 table held")
        held = run("plan", *of_feed)
        assert held.returncode == 1
        assert "held when last applied: s.t: " in held.stdout
        assert json.loads(run("plan", *of_feed, "--json").stdout)["held"].keys() == {"s.t"}
        rows.write_bytes(whole)
        assert run("apply", *of_feed).returncode == 0
        assert run("plan", *of_feed).returncode == 0
        status = run("status", "--warehouse", str(tmp_path / "lake")).stdout
    assert f"checkpoint of the last run: {FIRST + 10} (2026-03-30T" in status


def test_a_table_that_lacks_late_rows_stands_before_them_and_a_plan_names_missing_files(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("s.t")
    feed.rows("s.t", FIRST, [("I", FIRST + 1, 1, "a"), ("I", FIRST + 9, 9, "a")])
    feed.publish(FIRST + 10)
    of_feed = ["--sink-uri", f"file://{feed.bucket}?protocol=csv&date-separator=none", "--config", str(feed.toml)]
    of_feed += ["--warehouse", str(tmp_path / "lake")]
    with commands_here(spark, monkeypatch, capsys) as run:
        assert run("apply", *of_feed).returncode == 0
        feed.rows("s.t", FIRST, []).unlink()  # a number that nobody saw
        feed.rows("s.t", FIRST, [("I", FIRST + 5, 5, "late")])
        feed.publish(FIRST + 20)
        assert "numbers of files are missing" in run("plan", *of_feed).stdout
        (applied,) = json.loads(run("apply", *of_feed, "--json").stdout)["tables"]
        (shown,) = json.loads(run("status", "--warehouse", str(tmp_path / "lake"), "--json").stdout)
    assert (applied["state"], applied["through"]) == ("held", FIRST + 4)
    assert (shown["state"], shown["through"]) == ("held", FIRST + 4)


def test_a_wrong_terminator_is_in_the_first_plan_and_said_once_of_each_table(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed = LittleFeed(tmp_path)
    for name in ("s.t", "s.u"):
        feed.create(name)
        rows = feed.rows(name, FIRST, [("I", FIRST + 1, 1, "a"), ("I", FIRST + 2, 2, "b")])
        rows.write_bytes(rows.read_bytes().replace(b"\r\n", b"\n"))
    feed.publish(FIRST + 10)
    lake = str(tmp_path / "lake")
    of_feed = ["--sink-uri", f"file://{feed.bucket}?protocol=csv&date-separator=none", "--config", str(feed.toml)]
    with commands_here(spark, monkeypatch, capsys) as run:
        runs = {command: run(command, *of_feed, "--warehouse", lake) for command in ("plan", "apply")}
        runs |= {"status": run("status", "--warehouse", lake), "second": run("plan", *of_feed, "--warehouse", lake)}
    for command, ended in runs.items():
        text = ended.stdout + ended.stderr
        assert (ended.returncode, text.count("terminator under [sink]")) == (1, 2), (command, text)


def interrupted_at(kind: type[Step], feed: LittleFeed, lake: LakeSettings, spark: SparkSession) -> None:
    """Apply a feed until a step of a kind was carried out."""

    def interrupt(step: Step, *_: object) -> None:
        if isinstance(step, kind):
            raise KeyboardInterrupt

    little = feed.settings("little")
    with open_pipeline(little, lake, spark=lambda: spark) as pipeline, pytest.raises(KeyboardInterrupt):
        pipeline.apply("run", hooks=RunHooks(after=interrupt))


def filled_feed(directory: Path) -> LittleFeed:
    feed = LittleFeed(directory)
    feed.create("s.t")
    feed.rows("s.t", FIRST, [("I", FIRST + 1, 1, "a")])
    feed.publish(FIRST + 10)
    return feed


def test_what_an_interrupted_run_has_committed_is_shown(tmp_path: Path, spark: SparkSession) -> None:
    feed, lake = filled_feed(tmp_path), LakeSettings.from_warehouse(tmp_path / "lake")
    with open_pipeline(feed.settings("little"), lake, spark=lambda: spark) as pipeline:
        assert pipeline.apply("run").complete
    feed.rows("s.t", FIRST, [("I", FIRST + 11, 2, "b")])
    feed.publish(FIRST + 20)
    interrupted_at(ApplyRows, feed, lake, spark)
    (applied,) = lake_status(lake)
    assert (applied.rows, applied.through, applied.checkpoint) == (2, FIRST + 20, FIRST + 20)


def test_tables_of_which_no_run_has_ended_are_loading(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed, lake = filled_feed(tmp_path), LakeSettings.from_warehouse(tmp_path / "lake")
    interrupted_at(CreateTable, feed, lake, spark)
    (row,) = lake_status(lake)
    assert (row.changefeed, row.table, row.state, row.check) == ("little", "s.t", State.LOADING, "")
    assert (row.through, row.checkpoint, row.behind_checkpoint_seconds) == (FIRST - 1, 0, None)
    assert [sample.name for sample in table_samples(row) if "checkpoint" in sample.name] == []
    with commands_here(spark, monkeypatch, capsys) as run:
        shown = run("status", "--warehouse", str(tmp_path / "lake"))
        assert (shown.returncode, "loading: s.t: no run that looked at it has ended." in shown.stdout) == (1, True)
        with open_pipeline(feed.settings("little"), lake, spark=lambda: spark) as pipeline:
            assert pipeline.apply("run").complete
        assert run("status", "--warehouse", str(tmp_path / "lake")).returncode == 0
        (tmp_path / "lake" / "ledger.db").unlink()
        assert run("query", "s.t", "--warehouse", str(tmp_path / "lake")).stderr.startswith("s.t is loading, applied")
    (row,) = lake_status(lake)
    assert (row.state, row.rows, row.through) == (State.LOADING, 1, FIRST + 10)


def test_a_table_to_which_nothing_is_applied_is_neither_checked_nor_up_to_date(
    tmp_path: Path, spark: SparkSession
) -> None:
    feed, lake = filled_feed(tmp_path), LakeSettings.from_warehouse(tmp_path / "lake")
    feed.create("s.u")
    with open_pipeline(feed.settings("little"), lake, spark=lambda: spark) as pipeline:
        pipeline.apply("run", lambda planned: [step for step in planned.steps if step.life.born_as.table == "t"])
    by_table = {row.table: (row.check, row.behind_checkpoint_seconds) for row in lake_status(lake)}
    assert by_table == {"s.t": ("passed", 0.0), "s.u": ("", None)}
    (line,) = (line for line in status_lines(lake_status(lake)) if line.startswith("s.u"))
    assert line.split() == ["s.u", str(FIRST), "unknown", "not", "begun", "0"]
