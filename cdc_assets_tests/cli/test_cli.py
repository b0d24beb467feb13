"""The command line as a user meets it: what it prints, how it ends, what it says of wrong input."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from cdc_assets.cli import commands
from cdc_assets.cli.options import run_options
from cdc_assets.ledger import Ledger
from cdc_assets.model.ledger_entries import TableState
from cdc_assets.model.progress import State
from cdc_assets.model.schema import TableId
from cdc_assets_tests.cases import Case, differences
from cdc_assets_tests.command_line import Commands, run
from cdc_assets_tests.joined_feed import dump_of
from cdc_assets_tests.little_feed import FIRST, LittleFeed

B = Case("B_ddl_columns").config("csv-ts")


LOADED = """
import sys
from cdc_assets.cli import main
try:
    main()
finally:
    heavy = ("dagster", "pyspark", "pyarrow", "pandas", "sqlglot")
    print("loaded:", [name for name in heavy if name in sys.modules], file=sys.stderr)
"""
"""Runs a command and names the heavy libraries that it imported."""

CTRL_C = """
import os, signal, sys, threading
from cdc_assets.cli import main
from cdc_assets.lake.spark import session
from pyspark import SparkContext

def interrupted(begin, *given, **conf):
    begun = begin(*given, **conf)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    SparkContext._active_spark_context._jvm.java.lang.Thread.sleep(3_600_000)
    return begun

def at_start(context, *given, **conf):
    interrupted(begin_context, context, *given, **conf)

def at_step(*given, **conf):
    return interrupted(begin_step, *given, **conf)

signal.signal(signal.SIGINT, signal.default_int_handler)
begin_context, begin_step = SparkContext._do_init, session.step_spark
if sys.argv.pop(1) == "start":
    SparkContext._do_init = at_start
else:
    session.step_spark = at_step
main()
"""
"""The command line, interrupted while it waits for the JVM: as Spark starts, or later in a step; else for an hour."""

CTRL_C_AT_LAUNCH = """
import os, signal, sys
from cdc_assets.lake.spark.session import start_jvm
from cdc_assets.settings.config import LakeSettings
signal.signal(signal.SIGINT, signal.default_int_handler)
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))
try:
    start_jvm(LakeSettings.from_warehouse(sys.argv[1]))
except KeyboardInterrupt:
    sys.exit(130)
"""
"""A JVM is started, and the interrupt comes at the moment of the fork, where Python runs hooks of modules."""


def feed(bucket: Path | None = None) -> list[str]:
    uri = f"file://{bucket or B.bucket()}?{B.recorded_options['sink_uri_params']}"
    return ["--sink-uri", uri, "--config", str(B.path / "changefeed.toml")]


@pytest.mark.parametrize("command", sorted(commands.commands))
def test_every_command_explains_itself(command: str, here: Commands) -> None:
    process = here(command, "--help")
    assert process.returncode == 0
    assert process.stdout.startswith("Usage: cdc-assets")
    assert "Options:" in process.stdout


def test_help_loads_nothing_heavy() -> None:
    heavy = ("dagster", "pyspark", "pyarrow", "polars", "pydantic")
    code = f"import sys, cdc_assets.cli; print([m for m in {heavy} if m in sys.modules])"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


def test_inspect_shows_tables_versions_and_ddl() -> None:
    process = run("inspect", *feed())
    assert process.returncode == 0, process.stderr
    assert "cols.t" in process.stdout
    assert "ALTER TABLE `t` ADD COLUMN `c` INT" in process.stdout


@pytest.mark.parametrize("words", ["hold: ", "held: ", "incomplete: ", "stop: ", "", "no tables yet"])
def test_inspect_ends_with_1_where_something_stops_is_held_or_incomplete(words: str, tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    query = "" if words == "incomplete: " else "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(40))"
    if words != "no tables yet":
        feed.ddl("shop.t", FIRST, query, 3 if query else 0, keyed=words != "hold: ")
        feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "a")])
    if words == "held: ":
        feed.ddl("shop.t", FIRST + 5, "ALTER TABLE `t` FROBNICATE `v`", 5)
    feed.publish(FIRST + 9)
    toml = {"hold: ": "output-old-value = false\ninclude-commit-ts = true", "stop: ": "include-commit-ts = false"}
    feed.toml.write_text(f"[sink.csv]\n{toml.get(words, 'include-commit-ts = true')}\n")
    uri = f"file://{feed.bucket}?protocol=csv"
    arguments = ["inspect", "--sink-uri", uri, "--config", str(feed.toml)]
    cli_result = CliRunner().invoke(commands, arguments, standalone_mode=False)
    assert words in cli_result.output
    assert cli_result.return_value == (1 if words.endswith(": ") else 0)


def test_an_empty_name_of_a_changefeed_is_none(here: Commands) -> None:
    """As of a variable that is not set: another changefeed would be meant."""
    process = here("inspect", *feed(), "--name", "")
    assert (process.returncode, "a changefeed's name consists of" in process.stderr) == (2, True)


def test_inspect_has_json_for_programs(here: Commands) -> None:
    report = json.loads(here("inspect", *feed(), "--json").stdout)
    assert {table["table"] for table in report["tables"]} == {"cols.t", "cols.conv", "cols.gen", "cols.pkadd"}
    assert report["checkpoint"] == B.checkpoints[-1].ts


def test_plan_names_each_ddl_with_its_cost_and_touches_nothing(tmp_path: Path, here: Commands) -> None:
    process = here("plan", *feed(), "--warehouse", str(tmp_path / "lake"))
    assert process.returncode == 0, process.stderr
    assert "from   ALTER TABLE `t` ADD COLUMN `c` INT" in process.stdout
    assert "metadata only" in process.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_plan_tells_settings_that_do_nothing(tmp_path: Path, here: Commands) -> None:
    feed, file = LittleFeed(tmp_path), tmp_path / "feeds.yaml"
    feed.create("shop.t")
    feed.publish(FIRST + 9)
    feed_settings = {"sink_uri": f"file://{feed.bucket}?protocol=csv", "changefeed_config": str(feed.toml)}
    lines = {"lag_targets": {"shop.tt": 60}, "sort_by": {"shop.*": ["id"]}}
    file.write_text(
        json.dumps({"lake": {"warehouse": str(tmp_path / "lake")}, "changefeeds": [{**feed_settings, **lines}]})
    )
    process = here("plan", "--settings", str(file))
    assert process.returncode == 0, process.stderr
    assert "    lag_targets: shop.tt (is shop.t meant?)" in process.stdout.splitlines()
    assert "sort_by" not in process.stdout


def test_apply_then_apply_again_then_status(tmp_path: Path, here: Commands) -> None:
    from cdc_assets.lake.state import LakeState
    from cdc_assets.settings.lake import LakeSettings

    lake = str(tmp_path / "lake")
    first = run("apply", *feed(), "--warehouse", lake)
    assert first.returncode == 0, first.stderr
    state = LakeState(LakeSettings.from_warehouse(lake), "default")
    for name, table in B.case.expected().items():
        assert differences(table, state.read(name), skip=B.allow.columns.get(name, ())) == []
    again = here("apply", *feed(), "--warehouse", lake, "--json")
    report = json.loads(again.stdout)
    assert report["complete"]
    assert sum(table["steps"] for table in report["tables"]) == 0
    program = [sys.executable, "-c", LOADED, "status", "--warehouse", lake]
    dump_of(B.checkpoints[-1], tmp_path / "dump")
    equal = here("verify", *feed(), "--warehouse", lake, "--dump", str(tmp_path / "dump"))
    assert equal.returncode == 0, equal.stdout + equal.stderr
    assert equal.stdout.splitlines()[-1] == "4 tables: 4 equal"
    none = here("verify", "cols.x*", *feed(), "--warehouse", lake, "--dump", str(tmp_path / "dump"))
    assert (none.returncode, "no table is called like cols.x*" in none.stderr) == (2, True)
    key = B.case.expected()[TableId("cols", "t")].rows[0]["id"] or ""
    times = ("--since", "2001-01-01", "--until", "2100-01-01T00:00:00+02:00")
    explained = json.loads(here("explain", "cols.t", key, *times, *feed(), "--warehouse", lake, "--json").stdout)
    assert explained["row"]["id"] == key
    assert explained["changes"][-1]["position"] == explained["position"]
    status = subprocess.run(program, capture_output=True, text=True)
    assert status.returncode == 0, status.stderr
    assert "passed" in status.stdout
    assert status.stderr.splitlines()[-1] == "loaded: []"


WRONG = {
    "no sink URI and no settings": (["inspect"], "changefeeds.yaml"),
    "a bucket that is not there": (["inspect", "--sink-uri", "file:///no/such/place?protocol=csv"], "does not exist"),
    "a protocol that storage never has": (["inspect", "--sink-uri", "file:///tmp?protocol=avro"], "protocol"),
    "an unknown zone": (["inspect", *feed(), "--tz", "Mars/Olympus"], "time zone"),
    "a key without columns": (["inspect", *feed(), "--key", "orders"], "NAME=VALUE"),
    "an unknown option": (["inspect", "--frobnicate"], "frobnicate"),
    "no lake": (["apply", *feed()], "--warehouse"),
    "a port that is none": (["ui", "--port", "70000"], "not in the range 1<=x<=65535"),
    "nothing to compare with": (["verify", *feed(), "--warehouse", "lake"], "no source to compare with is named"),
    "options of a changefeed beside a settings file": (
        ["plan", "--settings", "c.yaml", "--tz", "Asia/Shanghai", "--old-collations"],
        "--new-collations/--old-collations, --tz would not be read: without --sink-uri",
    ),
    "a variable that is not set": (["plan", "--sink-uri", "", "--warehouse", "lake"], "it is empty"),
    "a settings file beside a changefeed": (["plan", *feed(), "--settings", "c.yaml"], "--settings would not be read"),
}


@pytest.mark.parametrize("moment", [pytest.param("start", marks=pytest.mark.soak), "step"])  # the start is tried below
def test_ctrl_c_ends_a_command_in_the_middle_of_a_call_to_the_jvm(moment: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CTRL_C, moment, "apply", *feed(), "--warehouse", str(tmp_path / "lake")]
    process = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert process.returncode == 130, process.stderr
    assert process.stderr.splitlines()[-1].startswith("Interrupted. Every table is at its last complete window")
    assert process.stderr.endswith("Run the same command again to finish what it began.\n")
    assert "Traceback" not in process.stderr


def test_ctrl_c_ends_a_command_whose_windows_in_other_threads_wait_for_the_jvm(tmp_path: Path) -> None:
    little = LittleFeed(tmp_path)
    arguments = ["apply", "--sink-uri", f"file://{little.bucket}?protocol=csv", "--config", str(little.toml)]
    command = [sys.executable, "-c", CTRL_C, "start", *arguments, "--warehouse", str(tmp_path / "lake")]
    for name in ("s.a", "s.b"):
        little.create(name, keyed=False)
        little.rows(name, FIRST, [("I", FIRST + 1, 1, "x"), ("I", FIRST + 1, 2, "x")])
    little.publish(FIRST + 9)
    process = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert process.returncode == 130, process.stderr
    assert process.stderr.endswith("Run the same command again to finish what it began.\n")


def test_ctrl_c_at_the_launch_of_the_jvm_is_not_lost(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CTRL_C_AT_LAUNCH, str(tmp_path / "lake")]
    process = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert (process.returncode, process.stderr) == (130, "")


@pytest.mark.parametrize("case", sorted(WRONG))
def test_wrong_usage_is_an_error_sentence_and_exit_code_2(
    case: str, tmp_path: Path, here: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, part = WRONG[case]
    monkeypatch.chdir(tmp_path)
    process = here(*arguments)
    assert process.returncode == 2, process.stdout + process.stderr
    assert part in process.stderr
    assert "Traceback" not in process.stderr


def file_for_a_directory(lake: Path) -> None:
    lake.write_text("")


def no_database(name: str) -> Callable[[Path], None]:
    def write(lake: Path) -> None:
        lake.mkdir()
        (lake / name).write_text("this is no database at all")

    return write


@pytest.mark.parametrize("command", ["status", "journal", "files"])
def test_a_lake_is_also_named_by_a_settings_file(command: str, tmp_path: Path, here: Commands) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "ledger.db").touch()
    file = tmp_path / "shop.yaml"
    file.write_text("lake: {warehouse: lake}\nchangefeeds: [{sink_uri: 'file:///f?protocol=csv'}]")
    process = here(command, "--settings", str(file))
    assert (process.returncode, process.stderr) == (int(command == "status"), "")
    assert ("The lake has no table yet." in process.stdout) == (command == "status")
    assert here("release", "--list", "--settings", str(file)).stdout == "No decision was recorded yet.\n"
    assert [path.name for path in (tmp_path / "lake").iterdir()] == ["ledger.db"]


LOOKS = [["status"], ["journal"], ["files"], ["query", "s.t"], ["quarantine"], ["release", "--list"]]


@pytest.mark.parametrize("arguments", LOOKS, ids=lambda arguments: arguments[0])
def test_a_directory_without_a_lake_is_told_as_such(arguments: list[str], tmp_path: Path, here: Commands) -> None:
    (tmp_path / "note.txt").touch()
    process = here(*arguments, "--warehouse", str(tmp_path))
    assert (process.returncode, f"there is no lake in {tmp_path}" in process.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


NEEDED = {
    "release": ["s.t", "1", "--skip"], "explain": ["s.t", "1"], "as-of": ["1"], "forget": ["s.t", "1", "--yes"],
    "extract": ["s.t", "--from", "1", "--to", "2", "--out", "x"], "purge": ["s.t"], "rebuild": ["s.t"],
    "query": ["s.t"],
}  # fmt: skip
"""Arguments without which a command says that they are missing."""


@pytest.mark.parametrize("name", sorted({*commands.commands} - {"demo", "ui", "setup", "landing"}))
@pytest.mark.parametrize("settings", ["none", "a lake of none"])
def test_advice_names_options_of_the_command(
    settings: str, name: str, tmp_path: Path, here: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if settings != "none":
        (tmp_path / "changefeeds.yaml").write_text("changefeeds: [{sink_uri: 'file:///none?protocol=csv'}]")
    process = here(name, *NEEDED.get(name, []))
    assert process.returncode in (1, 2), process.stdout + process.stderr
    command = commands.commands[name]
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)} | {"--help"}
    advised = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", process.stderr))
    assert advised - known == set(), process.stderr
    assert "Usage" not in process.stderr


def test_status_says_that_all_tables_are_dropped(tmp_path: Path, here: Commands) -> None:
    with closing(Ledger(f"sqlite:///{tmp_path / 'ledger.db'}")) as ledger:
        ledger.record_states(
            "shop", [TableState(TableId("shop", "t"), 1, 2, State.DROPPED, life="shop.t@1", checkpoint=2)], {}
        )
    process = here("status", "--warehouse", str(tmp_path))
    assert (process.returncode, "All tables of the lake are dropped; --all shows them." in process.stdout) == (0, True)
    assert "shop.t" in here("status", "--warehouse", str(tmp_path), "--all").stdout


@pytest.mark.parametrize(("command", "option"), [("plan", "--name"), ("cut", "--feed-name")])
def test_a_lake_whose_changefeeds_have_names_asks_for_one(
    command: str, option: str, tmp_path: Path, here: Commands
) -> None:
    little, lake = LittleFeed(tmp_path), tmp_path / "lake"
    little.publish(FIRST)
    lake.mkdir()
    with closing(Ledger(f"sqlite:///{lake / 'ledger.db'}")) as ledger:
        ledger.record_states(
            "shop", [TableState(TableId("s", "t"), 1, 2, State.APPLIED, life="s.t@1", checkpoint=2)], {}
        )
    given = ["--sink-uri", f"file://{little.bucket}?protocol=csv", "--config", str(little.toml)]
    refused = here(command, *given, "--warehouse", str(lake))
    assert (refused.returncode, "shop" in refused.stderr, option in refused.stderr) == (2, True, True), refused.stderr
    named = here("plan", *given, "--warehouse", str(lake), "--name", "another")
    assert "no name is given" not in named.stderr


UNUSABLE: dict[str, tuple[Callable[[Path], None], tuple[str, ...], str]] = {
    "a file": (file_for_a_directory, ("status",), "is no directory that may be read"),
    "a file, to be written to": (file_for_a_directory, ("apply", *feed()), "cannot be made (File exists)"),
    "a catalog that is none": (no_database("catalog.db"), ("status",), "catalog's file cannot be opened"),
    "a ledger that is none": (no_database("ledger.db"), ("journal",), "ledger.db cannot be used (file is not a data"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_lake_that_cannot_be_used_is_a_setup_to_correct(case: str, tmp_path: Path, here: Commands) -> None:
    make, arguments, sentence = UNUSABLE[case]
    make(tmp_path / "lake")
    process = here(*arguments, "--warehouse", str(tmp_path / "lake"))
    assert (process.returncode, "Traceback" in process.stderr) == (2, False), process.stderr
    assert sentence in process.stderr


@pytest.mark.parametrize("command", ["status", "journal", "files"])
def test_a_missing_lake_is_reported_and_not_created(command: str, tmp_path: Path, here: Commands) -> None:
    process = here(command, "--warehouse", str(tmp_path / "lake"))
    assert process.returncode == 2
    assert "does not exist" in process.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_changefeed_without_its_first_checkpoint_is_named_as_such(tmp_path: Path, here: Commands) -> None:
    process = here("inspect", "--sink-uri", f"file://{tmp_path}?protocol=csv")
    assert process.returncode == 1
    assert "metadata" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize("bucket", ["empty", "missing"])
def test_a_changefeed_that_has_not_begun_leaves_no_lake(bucket: str, tmp_path: Path, here: Commands) -> None:
    (tmp_path / "empty").mkdir()
    uri = f"file://{tmp_path / bucket}?protocol=csv"
    output = here("apply", "--sink-uri", uri, "--accept-unordered", "--warehouse", str(tmp_path / "lake"))
    assert (output.returncode, "Traceback" in output.stderr) == (1 if bucket == "empty" else 2, False)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_rows_without_commit_ts_want_the_users_word_for_it(tmp_path: Path, here: Commands) -> None:
    plain = Case("A_all_types").config("csv-plain")
    uri = f"file://{plain.bucket()}?{plain.recorded_options['sink_uri_params']}"
    process = here("plan", "--sink-uri", uri, "--config", str(plain.path / "changefeed.toml"))
    assert process.returncode == 2
    assert "--accept-unordered" in process.stderr
    assert "--config" in process.stderr


@pytest.mark.parametrize("command", ["inspect", "plan", "apply"])
def test_files_of_another_protocol_are_told_before_what_its_rows_would_lack(
    command: str, tmp_path: Path, here: Commands
) -> None:
    feed = Case("B_ddl_columns").config("canal-ext")
    lake = [] if command == "inspect" else ["--warehouse", str(tmp_path / "lake")]
    process = here(command, "--sink-uri", f"file://{feed.bucket()}?protocol=csv", *lake)
    assert process.returncode == 2
    assert "protocol csv does not write" in process.stderr


GIVE = "give these commands: "


def held_feed(directory: Path) -> tuple[LittleFeed, int]:
    """Return a feed whose second DDL nobody can read, and the version of that."""
    feed, at = LittleFeed(directory), FIRST + 5
    feed.create("s.t")
    feed.ddl("s.t", at, "ALTER TABLE `t` FROBNICATE `v`", 5)
    feed.publish(FIRST + 9)
    return feed, at


@pytest.mark.parametrize("form", ["options", "settings", "settings of several"])
def test_a_plan_with_holds_ends_with_the_options_that_its_commands_need(
    form: str, tmp_path: Path, here: Commands
) -> None:
    feed, at = held_feed(tmp_path)
    file, lake = tmp_path / "our feeds.yaml", str(tmp_path / "lake")
    uri = f"file://{feed.bucket}?protocol=csv"
    if form == "options":
        given = ["--sink-uri", uri, "--config", str(feed.toml), "--warehouse", lake]
    else:
        feeds = [{"name": "shop", "sink_uri": uri, "changefeed_config": str(feed.toml)}]
        feeds += [{**feeds[0], "name": "other", "namespace": "o_{schema}"}] if "several" in form else []
        file.write_text(json.dumps({"lake": {"warehouse": lake}, "changefeeds": feeds}))
        given = ["--settings", str(file)]
    lines = here("plan", *given).stdout.splitlines()
    options = [line.removeprefix(GIVE) for line in lines if line.startswith(GIVE)]
    assert len(options) == (2 if "several" in form else 1)
    released = here("release", "s.t", str(at), "--skip", "--dry-run", *shlex.split(options[0]))
    assert (released.returncode, "Nothing was recorded" in released.stdout) == (0, True), released.stderr
    question = here("release", "s.t", str(at), "--rebuild", *shlex.split(options[0])).stderr
    assert "delete rows of s.t?" in question


def test_options_for_other_commands_have_no_secrets() -> None:
    uri = "s3://b/p?protocol=csv&secret-access-key=Xy1Xy1&region=r"
    given = ["--sink-uri", uri, "--kafka", "sasl.password=Xy1Xy1", "--kafka", "sasl.username=@USER"]
    given += ["--initial", "mysql://me:Xy1Xy1@host:4000", "--key", "s.keys=id", "--accept-unordered"]
    given += ["--initial", "mysql://me:pw@Xy1Xy1@other:4000", "--storage-option", "sas=Xy1Xy1"]
    given += ["--kafka", "sasl.mechanism=PLAIN"]
    with commands.commands["plan"].make_context("plan", given):
        options = run_options()
    assert "Xy1" not in options
    assert shlex.split(options)[:2] == ["--sink-uri", uri.replace("Xy1Xy1", "***")]
    assert {"s.keys=id", "sasl.username=@USER", "sasl.password=***", "mysql://***@host:4000"} < set(
        shlex.split(options)
    )
    assert {"mysql://***@other:4000", "sas=***", "sasl.mechanism=PLAIN"} < set(shlex.split(options))
    assert "--accept-unordered" in options
