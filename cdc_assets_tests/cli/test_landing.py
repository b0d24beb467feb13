"""Decisions about messages of topics on the command line: each by the very command that an error or a hold names."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cdc_assets.cli import commands
from cdc_assets.errors import BadSettings, CdcError
from cdc_assets.operations.opening import open_pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.landing.test_landing import URI, Broker, ddl, mark, row
from cdc_assets_tests.topic_feed import archive_of

ARCHIVE = "kafka://127.0.0.1:9092/cdc?protocol=canal-json&enable-tidb-extension=true"


class Feed:
    """An archive that a test writes, and the commands over it."""

    def __init__(self, directory: Path) -> None:
        self.log = Broker()
        self.archive = directory / "archive"
        self.lake = str(directory / "lake")
        self.files = 0

    def write(self, *gone: int) -> None:
        """Let what was sent since appear as a file, but for the offsets that are gone."""
        archive_of([line for line in self.log.lines if line["offset"] not in gone], self.archive, f"{self.files}.jsonl")
        self.files, self.log.lines = self.files + 1, self.log.lines[-1:]

    def run(self, *arguments: str) -> Any:
        """Run a command over the archive; returns its exit code, and what it printed or the error that ended it."""
        options = ["--sink-uri", ARCHIVE, "--archive", str(self.archive), "--warehouse", self.lake, "--complete", "*"]
        ended = CliRunner().invoke(commands, [*arguments, *options], standalone_mode=False)
        if isinstance(ended.exception, CdcError):
            return 2, ended.exception.message
        assert ended.exception is None, ended.exception
        return ended.return_value, ended.output

    def land(self) -> str:
        """Land what is there; return the error that ended it."""
        given: dict[str, Any] = {"sink_uri": URI, "initial": {"complete": ["*"]}}
        given["archive"] = {"uri": str(self.archive), "layout": "records"}
        settings = ChangefeedSettings(**given)
        with open_pipeline(settings, LakeSettings.from_warehouse(self.lake)) as pipeline:
            try:
                pipeline.land()
            except CdcError as error:
                return error.message
            return "; ".join((pipeline.source.listing().warnings) + tuple(pipeline.source.listing().problems.values()))


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path)


def command_in(sentence: str, verb: str) -> list[str]:
    """Return the arguments of the command that a sentence names."""
    (command,) = set(re.findall(rf"`cdc-assets (landing {verb})`", sentence))
    return shlex.split(command)


def test_a_message_that_cannot_be_read_is_released_by_the_command_that_it_names(feed: Feed) -> None:
    feed.log.send(0, ddl(100), row(120, 1, 7), mark(150), b"\x00no message", row(160, 2, 8), mark(170))
    feed.write()
    output = feed.land()
    assert "the fence stays at 150: cdc[0] offset 3 cannot be read" in output
    code, listed = feed.run("landing", "list")
    assert code == 1
    assert "value b'\\x00no message'" in listed
    assert "way out: go past it: cdc-assets landing release cdc 0 3" in listed
    code, output = feed.run(*command_in(feed.land(), "release cdc 0 3 --again"))
    assert (code, "still cannot be read" in output) == (2, True)
    assert feed.run(*command_in(feed.land(), "release cdc 0 3"), "--who", "ann")[0] == 0
    assert feed.land() == ""
    code, listed = feed.run("landing", "list", "--json")
    assert code == 0
    shown = json.loads(listed)
    (decision,) = shown["decisions"]
    assert shown["unread"] == []
    assert (decision["place"], decision["what"], decision["who"]) == ("cdc[0] offset 3", "passed over", "ann")
    assert decision["when"].startswith("20")
    status = CliRunner().invoke(commands, ["status", "--warehouse", feed.lake], standalone_mode=False).output
    assert "1 decision leaves messages out on purpose" in status
    journal = CliRunner().invoke(commands, ["journal", "--warehouse", feed.lake], standalone_mode=False).output
    assert "landing release" in journal
    assert "  cdc[0]  landing release  " in journal
    assert "cdc[0] offset 3 passed over, says ann" in journal


def test_a_loss_is_accepted_by_the_command_that_the_error_names(feed: Feed) -> None:
    feed.log.send(0, ddl(100), row(120, 1, 7), mark(150), row(155, 2, 8), row(156, 3, 9), mark(170))
    feed.write(3, 4)
    assert feed.run(*command_in(feed.land(), "accept-loss [^`]*"))[0] == 0
    assert feed.land() == ""


def test_a_partition_is_declared_dead_by_the_command_that_the_fence_names(feed: Feed) -> None:
    feed.log.send(0, ddl(100), mark(150))
    feed.log.send(1, row(120, 1, 7), mark(130))
    feed.write()
    assert feed.run(*command_in(feed.land(), "declare-dead [^`]*"))[0] == 0
    assert feed.land() == ""


def test_topics_are_shown_by_offsets_and_never_as_files(feed: Feed) -> None:
    feed.log.send(0, ddl(100), row(120, 1, 7), row(125, 2, 8), mark(150))
    feed.write()
    options = ["--sink-uri", ARCHIVE, "--archive", str(feed.archive), "--complete", "*"]
    inspected, planned = (
        CliRunner().invoke(commands, [command, *options], standalone_mode=False).output
        for command in ("inspect", "plan")
    )
    assert re.search(r"cdc\[0\] +4 +150 ", inspected)
    assert "ranges of offsets" in inspected
    assert re.search(r"rows: 99 < position <= 150", planned)
    assert re.search(r"cost   messages of cdc\[0\] 1\.\.2, [\d,]+ bytes", planned)
    assert "files" not in inspected + planned


def test_a_plan_that_knows_nothing_of_what_waits_says_of_what_there_is_nothing_to_do(feed: Feed) -> None:
    feed.log.send(0, mark(150))
    feed.write()
    assert feed.land() == ""
    feed.log.send(0, ddl(160), row(170, 1, 7), mark(180))
    feed.write()
    _, output = feed.run("plan")
    assert "Nothing to do with what is landed.\n3 messages not landed yet" in output


WRONG = {
    "a message that holds nothing": (["release", "cdc", "0", "1"], "is not a message that holds anything"),
    "a message that is there": (
        ["accept-loss", "cdc", "0", "9", "9"],
        "cdc[0] 9..9 is not a loss: cdc[0] ends at offset 3",
    ),
    "an unknown partition": (["declare-dead", "cdc", "7"], "known partitions are: cdc[0]"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_decision_is_refused_and_decides_nothing(case: str, feed: Feed) -> None:
    arguments, part = WRONG[case]
    feed.log.send(0, ddl(100), row(120, 1, 7), mark(150))
    feed.write()
    feed.land()
    code, output = feed.run("landing", *arguments)
    assert (code, part in output) == (2, True), output
    assert json.loads(feed.run("landing", "list", "--json")[1])["decisions"] == []


@pytest.mark.parametrize("arguments", [["list"], ["release", "cdc", "0", "1"]])
def test_a_missing_lake_is_reported_and_not_made(arguments: list[str], feed: Feed) -> None:
    code, output = feed.run("landing", *arguments)
    assert code == 2
    assert not Path(feed.lake).exists(), output


def test_a_changefeed_of_files_has_no_messages(feed: Feed, tmp_path: Path) -> None:
    feed.log.send(0, ddl(100), mark(150))
    feed.write()
    feed.land()
    uri = f"file://{tmp_path}?protocol=canal-json&enable-tidb-extension=true"
    options = ["--sink-uri", uri, "--warehouse", feed.lake]
    ended = CliRunner().invoke(commands, ["landing", "declare-dead", "cdc", "0", *options], standalone_mode=False)
    assert "is files in a bucket" in str(ended.exception)


@pytest.mark.parametrize("command", ["list", "release", "accept-loss", "declare-dead"])
def test_every_command_explains_itself(command: str) -> None:
    cli_result = CliRunner().invoke(commands, ["landing", command, "--help"])
    assert cli_result.exit_code == 0
    assert "Options:" in cli_result.output


def test_bytes_are_shown_as_they_are(feed: Feed) -> None:
    feed.log.send(0, ddl(100), mark(150), b"\xff" * 1000, None)
    feed.write()
    feed.land()
    unread = json.loads(feed.run("landing", "list", "--json")[1])["unread"]
    assert unread[0]["value"] == repr(b"\xff" * 400) + "… (1,000 bytes)"
    assert unread[1]["value"] == "None"


def test_a_dry_run_of_maintenance_says_what_is_due_for_the_landing(feed: Feed, tmp_path: Path) -> None:
    feed.log.send(0, ddl(100))
    for at in (110, 111):
        feed.log.send(0, row(at, 1, at), mark(at))
        feed.write()
        feed.land()
    archive = {"uri": str(feed.archive), "layout": "records"}
    changefeed = {"sink_uri": ARCHIVE, "archive": archive, "maintenance": {"small_files": 2}}
    file = tmp_path / "changefeeds.yaml"
    file.write_text(json.dumps({"lake": {"warehouse": feed.lake}, "changefeeds": [changefeed]}))

    def maintain(*options: str) -> str:
        return (
            CliRunner().invoke(commands, ["maintain", *options, "--settings", str(file)], standalone_mode=False).output
        )

    assert "landing: files to write anew: 2 of rows, 2 of events." in maintain("--dry-run")
    (report,) = json.loads(maintain("--dry-run", "--json"))
    assert report["landing_due"] == {"rows_expire": 0, "row_files": 2, "event_files": 2}
    assert "landing: files of rows 2 → 1, of events 2 → 1" in maintain()
    assert "landing" not in maintain("--dry-run")


@pytest.mark.parametrize("command", [("quarantine",), ("release", "--list"), ("landing", "list"), ("status",)])
def test_a_lake_that_is_not_there_is_not_an_empty_one(command: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="none does not exist; expected the directory of a lake"):
        CliRunner().invoke(commands, [*command, "--warehouse", str(tmp_path / "none")], catch_exceptions=False)
