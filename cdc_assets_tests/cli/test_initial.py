"""What was there before the changefeed, on the command line and in the page that explains it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from cdc_assets.cli import commands
from cdc_assets.cli.options import initial_of
from cdc_assets.ddl import created
from cdc_assets.errors import BadSettings
from cdc_assets.lake import LakeState
from cdc_assets.model.schema import TableId
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.command_line import Commands
from cdc_assets_tests.command_line import run as run_apart
from cdc_assets_tests.dump_writer import Writing, write_dump
from cdc_assets_tests.little_feed import LittleFeed
from cdc_assets_tests.mariadb import PASSWORD, Server
from cdc_assets_tests.servers.object_store import OWNER, ObjectStore

AT = 434217889191428107
PAGE = (Path(__file__).parents[2] / "docs" / "initial.md").read_text()
LINES = re.findall(r"^cdc-assets .*$", PAGE.replace("\\\n", ""), re.MULTILINE)
SERVER = "mysql://reader@127.0.0.1"


def given(*uris: str, **options: str) -> dict[str, Any]:
    texts = tuple(f"{name.replace('_', '-')}={value}" for name, value in options.items())
    return initial_of({"initial": uris, "initial_options": texts})


def test_the_flags_say_what_the_setting_says() -> None:
    assert given("s3://a", "s3://b") == {"dump": ["s3://a", "s3://b"]}
    assert given("d", at="7", header="false") == {"dump": ["d"], "at": "7", "csv": {"header": "false"}}
    assert given(SERVER, at="7", tables="a.*,b.*", password_env="P") == {
        "source": {"uri": SERVER, "at": "7", "tables": ["a.*", "b.*"], "password": {"env": "P"}}
    }


@pytest.mark.parametrize(
    ("uris", "options", "sentence"),
    [
        ((), {"at": "7"}, "--initial-option belongs to --initial"),
        (("d",), {"password-env": "P"}, '"password-env" is not known here'),
        ((SERVER,), {}, "A server needs the TSO to read at"),
        ((SERVER, "d"), {"at": "7"}, "a server and something else"),
    ],
)
def test_flags_that_do_not_fit_are_one_sentence(uris: tuple[str, ...], options: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadSettings, match=sentence):
        given(*uris, **options)


def test_a_dump_is_inspected_without_a_changefeed(tmp_path: Path) -> None:
    schema = created("create table t (id int primary key, v int)")
    write_dump(tmp_path / "dump", {TableId("s", "t"): (schema, [("1", "2")])}, AT, Writing())
    process = run_apart("inspect", "--initial", str(tmp_path / "dump"))
    assert (process.returncode, process.stderr) == (0, "")
    assert "s.t" in process.stdout
    assert str(AT) in process.stdout
    wrong = run_apart("inspect", "--initial", str(tmp_path / "dump"), "--initial-option", "separator=;", "--json")
    assert wrong.returncode == 1
    assert "line 1 is" in wrong.stdout
    assert run_apart("inspect", "--initial", str(tmp_path / "none")).returncode == 2


def test_a_server_is_inspected_with_its_password_from_the_environment(
    mariadb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    mariadb.run("CREATE DATABASE seen", "CREATE TABLE seen.t (id INT PRIMARY KEY)")
    monkeypatch.setenv("SEEN_PASSWORD", PASSWORD)
    options = [f"--initial-option={text}" for text in (f"at={AT}", "tables=seen.*", "password-env=SEEN_PASSWORD")]
    process = run_apart("inspect", "--initial", mariadb.uri, *options)
    assert process.returncode == 0, process.stderr
    assert "seen.t" in process.stdout
    assert PASSWORD not in process.stdout


@pytest.mark.parametrize("line", LINES)
def test_commands_of_the_page_are_commands(line: str) -> None:
    name, *arguments = shlex.split(line)[1:]
    context = commands.commands[name].make_context(name, arguments)
    assert isinstance(context, click.Context)
    assert initial_of(context.params)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_commands_of_the_page_do_what_it_says(
    run: Commands, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One table is imported with the first run; two others are incomplete then, and dumped later."""
    environment = {"AWS_ACCESS_KEY_ID": OWNER[0], "AWS_SECRET_ACCESS_KEY": OWNER[1], "AWS_ENDPOINT_URL": store.endpoint}
    for name, value in {**environment, "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    feed, begin = LittleFeed(tmp_path), 449912345678901234
    for table in ("shop.orders", "shop.invoices"):
        feed.ddl(table, begin, "", 0)
        feed.rows(table, begin, [("I", begin + 5, 2, "later")])
    feed.publish(begin + 100)
    feed.toml.write_text('[sink]\ndate-separator = "none"\n[sink.csv]\ninclude-commit-ts = true\n')
    schema = created("create table t (id int primary key, v varchar(40))")
    for place, at, tables in (("shop", begin, ("customers",)), ("shop-now", begin + 50, ("orders", "invoices"))):
        rows = [("1", "before"), *([("2", "later")] if at > begin else [])]
        write_dump(tmp_path / place, {TableId("shop", name): (schema, rows) for name in tables}, at, Writing())
        store.files.put(str(tmp_path / place), f"dumps/{place}", recursive=True)
    store.files.put(f"{feed.bucket}/", "feeds/shop", recursive=True)
    monkeypatch.chdir(tmp_path)
    lines = [line for line in LINES if "s3://" in line]
    processes = [run(*shlex.split(line)[1:]) for line in lines]
    assert [process.returncode for process in processes] == [0, 1, 0, 0], processes
    assert "shop.customers" in processes[0].stdout
    assert "existed before its changefeed began" in processes[1].stdout + processes[1].stderr
    state = LakeState(LakeSettings.from_warehouse(tmp_path / "lake"), "shop")
    for name, values in {"customers": ["before"], "orders": ["before", "later"]}.items():
        assert sorted(state.read(TableId("shop", name)).column("v").to_pylist()) == values
    assert state.read(TableId("shop", "invoices")).num_rows == 2
    state.close()


@pytest.mark.parametrize("text", re.findall(r"```yaml\n(changefeeds:.*?)```", PAGE, re.DOTALL))
def test_settings_of_the_page_are_settings(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDB_PASSWORD", "x")
    (given,) = yaml.safe_load(text)["changefeeds"]
    given.pop("changefeed_config", None)
    dumps = given["initial"].get("dump", "")
    assert len(ChangefeedSettings(**given).open_initial()) == (len(dumps) if isinstance(dumps, list) else 1)


def test_a_password_in_settings_is_refused_and_not_shown() -> None:
    given: dict[str, Any] = {"name": "shop", "sink_uri": "/tmp/x?protocol=csv"}
    given["initial"] = {"source": {"uri": SERVER, "at": AT, "password": "topsecret"}}
    with pytest.raises(BadSettings, match="settings contain no passwords") as caught:
        ChangefeedSettings(**given)
    assert "topsecret" not in str(caught.value)
