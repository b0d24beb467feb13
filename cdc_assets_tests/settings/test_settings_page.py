"""The page of all settings is generated from their fields, each of which says what it is for."""

from __future__ import annotations

from pathlib import Path

from cdc_assets.features.dumps import settings as initial
from cdc_assets.features.masks import settings as privacy
from cdc_assets.report.settings_page import settings_page
from cdc_assets.settings import config, lake, sections
from cdc_assets.settings.model import Model

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_is_that_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == settings_page()


def test_every_setting_has_a_description() -> None:
    classes = {
        value
        for module in (config, initial, lake, privacy, sections)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Model) and value is not Model
    }
    undocumented = [
        f"{section.__name__}.{name}"
        for section in classes
        for name, field in section.model_fields.items()
        if not field.description
    ]
    assert undocumented == []


def test_every_setting_of_a_changefeed_is_on_the_page() -> None:
    page = settings_page()
    assert [name for name in config.ChangefeedSettings.model_fields if f"| `{name}` |" not in page] == []
