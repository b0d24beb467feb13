"""Which settings file a command reads where no option names one: it says so."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from cdc_assets import definitions
from cdc_assets.cli import demo
from cdc_assets.cli.options import load_settings
from cdc_assets.errors import SetupError
from cdc_assets.settings.config import CONFIG_VARIABLE
from cdc_assets_tests.command_line import Commands

SETTINGS = "lake: {warehouse: lake}\nchangefeeds: [{name: shop, sink_uri: 'file:///feed?protocol=csv'}]\n"


@pytest.fixture
def file(given: str, here: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A settings file that the variable names, or of the current directory, or neither, as `given`."""
    file = tmp_path / "changefeeds.yaml"
    file.write_text(SETTINGS)
    monkeypatch.chdir(tmp_path if given in ("here", "directory") else tmp_path.parent)
    if given == "variable":
        monkeypatch.setenv(CONFIG_VARIABLE, str(file))
    return file


@pytest.mark.parametrize("given", ["option", "variable", "here"])
def test_a_file_that_no_option_names_is_named(given: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = load_settings(str(file) if given == "option" else None)
    assert [feed.name for feed in loaded.changefeeds] == ["shop"]
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == ("" if given == "option" else f"settings: {file}\n")


@pytest.mark.parametrize("given", ["option", "variable", "here", "nothing", "directory"])
def test_dagster_opens_on_the_settings_and_on_the_demo_where_there_are_none(
    given: str, file: Path, here: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path | None] = []
    monkeypatch.setattr(demo, "run_ui", lambda _, __, file: opened.append(file))
    options = {"option": ["--settings", str(file)], "directory": ["--directory", "demo"]}.get(given, [])
    printed = here("ui", *options).stderr
    assert opened == [None if given in ("nothing", "directory") else file]
    assert printed == (f"settings: {file}\n" if given in ("variable", "here") else "")


def test_a_directory_of_a_demo_excludes_settings(here: Commands) -> None:
    assert here("ui", "--directory", "demo", "--settings", "changefeeds.yaml").returncode == 2


@pytest.mark.parametrize("given", ["variable", "here", "nothing"])
def test_the_code_location_reads_the_same_file_as_commands(
    given: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_demo() -> None:
        raise SetupError("the demo is asked for")

    read: list[str] = []
    monkeypatch.setattr(definitions, "demo_settings", no_demo)
    monkeypatch.setattr(definitions, "build_defs", lambda settings: read.append(settings.changefeed().name))
    with pytest.raises(SetupError if given == "nothing" else dg.DagsterInvariantViolationError):
        definitions.defs()  # what is built is no Definitions here
    assert read == ([] if given == "nothing" else ["shop"])
