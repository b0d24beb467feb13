"""What cannot be undone is done for a person who was asked, or for a script that said so."""

from __future__ import annotations

import io
import sys

import click
import pytest

from cdc_assets.cli.options import confirm
from cdc_assets.errors import BadSettings


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
