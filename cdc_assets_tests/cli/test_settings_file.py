"""Which settings file a command reads where no option names one: it says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_assets.cli.options import load_settings
from cdc_assets.settings.config import CONFIG_VARIABLE

SETTINGS = "lake: {warehouse: lake}\nchangefeeds: [{name: shop, sink_uri: 'file:///feed?protocol=csv'}]\n"


@pytest.mark.parametrize("given", ["option", "variable", "here"])
def test_a_file_that_no_option_names_is_named(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "changefeeds.yaml"
    file.write_text(SETTINGS)
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path if given == "here" else tmp_path.parent)
    if given == "variable":
        monkeypatch.setenv(CONFIG_VARIABLE, str(file))
    loaded = load_settings(str(file) if given == "option" else None)
    assert [feed.name for feed in loaded.changefeeds] == ["shop"]
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == ("" if given == "option" else f"settings: {file}\n")
