"""What cannot be undone is done for a person who was asked, or for a script that said so."""

from __future__ import annotations

import dataclasses
import io
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cdc_assets.cli import commands
from cdc_assets.cli.options import confirm
from cdc_assets.errors import BadSettings
from cdc_assets.operations.requests import operations


class Terminal(io.StringIO):
    """A standard stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def answering(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(text))
    monkeypatch.setattr(sys, "stderr", Terminal())


def test_a_script_without_yes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(BadSettings, match="--yes"):
        confirm("Remove it?", yes=False)
    confirm("Remove it?", yes=True)


def test_a_person_is_asked_and_no_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(click, "confirm", lambda *_, **__: True)
    answering(monkeypatch, "")
    confirm("Remove it?", yes=False)
    monkeypatch.setattr(click, "confirm", lambda *_, **__: False)
    with pytest.raises(click.exceptions.Exit) as ended:
        confirm("Remove it?", yes=False)
    assert ended.value.exit_code == 1


ARGUMENTS = {"extract": ("s.t",), "forget": ("s.t", "1", "--yes")}
TEXTS = [
    (operation.name, field.metadata["flag"] or f"--{field.name.replace('_', '-')}")
    for operation in operations()
    for field in dataclasses.fields(operation.request)
    if field.metadata["place"] != "form"
    and not field.metadata["argument"]
    and not field.metadata["choices"]
    and field.default in ("", dataclasses.MISSING)
]


@pytest.mark.parametrize(("command", "option"), TEXTS)
def test_an_option_without_a_value_is_refused_before_anything_is_done(
    command: str, option: str, tmp_path: Path
) -> None:
    """A variable of the shell that is not set would change what is asked for: `--until "$UNTIL"`."""
    given = {"--from": "1", "--to": "2", "--out": str(tmp_path / "out")} if command == "extract" else {}
    options = [part for name, value in {**given, option: ""}.items() for part in (name, value)]
    lake = ["--warehouse", str(tmp_path / "lake"), "--sink-uri", f"file://{tmp_path}/feed?protocol=csv"]
    result = CliRunner().invoke(commands, [command, *ARGUMENTS.get(command, ()), *options, *lake])
    assert result.exit_code == 2
    assert f"'{option}': it is empty" in result.output
