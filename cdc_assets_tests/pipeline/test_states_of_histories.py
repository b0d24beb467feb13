"""Generated histories: every state that a row ever had, in one go and checkpoint by checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.generated import CHECKS, PICKS, STEPS, STYLES, Feed, feeds
from cdc_assets_tests.histories import history
from cdc_assets_tests.source import Source
from cdc_assets_tests.states import differences, states_of
from cdc_assets_tests.writer import Publication, Style, publications

STATES: dict[str, object] = {"*.*": "scd2"}
ALONE: dict[str, object] = {"*.*": {"kinds": ["scd2"], "mirror": False}}


def faults(feed: Feed, source: Source, publication: Publication) -> Iterator[str]:
    """Apply a publication, and say what is wrong with the states afterwards."""
    outcome = feed.apply(publication)
    tables = {table.life: table for table in outcome.tables}
    stopped = {life for life, table in tables.items() if table.state in ("held", "failed")}
    for life in stopped:
        if life.kind and "no key" not in tables[life].reason:
            yield f"{life} is {tables[life].state}: {tables[life].reason}"
    for table in states_of(feed.lake):
        if table.life not in stopped:
            yield from (f"{table.life}: {difference}" for difference in differences(source, table, publication.shown))


def check_states(
    steps: list[tuple[str, bytes]], style: Style, raw: bytes, tomls: Mapping[str, Path], rules: dict[str, object]
) -> None:
    source = history(steps, style.old_values)
    note(f"{style}\n{source.script}")
    with feeds(style, tomls[style.rendering], history=rules) as (often, once):
        for publication in publications(source, style, Picks(raw)):
            assert [*faults(often, source, publication)] == [], publication.checkpoint
        assert [*faults(once, source, publication)] == [], "in one go"


@settings(CHECKS, max_examples=5, derandomize=True, database=None)
@given(steps=STEPS, style=STYLES, raw=PICKS, rules=st.sampled_from([STATES, ALONE]))
def test_the_states_of_a_generated_history_are_those_of_the_source(
    tomls: Mapping[str, Path], steps: list[tuple[str, bytes]], style: Style, raw: bytes, rules: dict[str, object]
) -> None:
    check_states(steps, style, raw, tomls, rules)


@pytest.mark.soak
@pytest.mark.timeout(0)
@settings(CHECKS, max_examples=3000)
@given(steps=STEPS, style=STYLES, raw=PICKS, rules=st.sampled_from([STATES, ALONE]))
def test_the_states_of_thousands_of_generated_histories_are_those_of_the_source(
    tomls: Mapping[str, Path], steps: list[tuple[str, bytes]], style: Style, raw: bytes, rules: dict[str, object]
) -> None:
    check_states(steps, style, raw, tomls, rules)
