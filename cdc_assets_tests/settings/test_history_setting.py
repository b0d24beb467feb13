"""The setting history: a kind, a list or all in full, and sentences on what cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from cdc_assets.errors import BadSettings
from cdc_assets.model.kinds import HistoryRule
from cdc_assets.settings.config import ChangefeedSettings, from_flags

URI = "file:///feed?protocol=csv"


@pytest.mark.parametrize("given", ["log", ["log"], {"kinds": ["log"]}])
def test_a_kind_may_be_given_alone_as_a_list_or_in_full(given: Any) -> None:
    settings = ChangefeedSettings(sink_uri=SecretStr(URI), history={"shop.*": given})
    assert settings.history_rules == (HistoryRule("shop.*", ("log",)),)


def test_flags_name_kinds_by_pattern() -> None:
    (feed,) = from_flags(sink_uri=URI, history={"shop.*": ["scd2", "log"]}).changefeeds
    assert feed.history_rules == (HistoryRule("shop.*", ("scd2", "log")),)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("logs", "'log' or 'scd2'"),
        ([], "at least one kind"),
        (["log", "scd3"], "'scd3': Input should be 'log' or 'scd2'. Correct the settings."),
        ({"kinds": ["log"], "track": ["a"]}, "are for scd2, which is not among the kinds"),
        ({"kinds": ["scd2"], "track": ["a"], "track_except": ["b"]}, "give track or track_except, not both"),
        ({"kinds": ["log"], "suffix": {"log": ""}}, "the name of its source table"),
        ({"kinds": ["log", "scd2"], "suffix": {"log": "__scd2"}}, "their suffixes are equal"),
        ({"kind": "log"}, 'unknown setting "history.kind"'),
    ],
)
def test_what_cannot_be_is_said_with_its_pattern(given: Any, sentence: str) -> None:
    with pytest.raises(BadSettings) as refused:
        ChangefeedSettings(sink_uri=SecretStr(URI), history={"shop.*": given})
    assert 'history, pattern "shop.*"' in refused.value.message
    assert sentence in refused.value.message
