"""Generated histories: every state that a row ever had, in one go and checkpoint by checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hypothesis import note
from hypothesis import strategies as st

from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.generated import PICKS, STEPS, STYLES, Feed, each_case, feeds, how_many
from cdc_assets_tests.histories import history
from cdc_assets_tests.source import Source
from cdc_assets_tests.states import differences, states_of
from cdc_assets_tests.writer import Publication, publications

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


def check_states(case: Mapping[str, Any], tomls: Mapping[str, Path]) -> None:
    style = case["style"]
    source = history(case["steps"], style.old_values)
    note(f"{style}\n{source.script}")
    with feeds(style, tomls[style.rendering], history=case["rules"]) as (often, once):
        for publication in publications(source, style, Picks(case["raw"])):
            assert [*faults(often, source, publication)] == [], publication.checkpoint
        assert [*faults(once, source, publication)] == [], "in one go"


CASES = st.fixed_dictionaries(
    {"steps": STEPS, "style": STYLES, "raw": PICKS, "rules": st.sampled_from([STATES, ALONE])}
)


@how_many(5, 3000)
def test_the_states_of_a_generated_history_are_those_of_the_source(tomls: Mapping[str, Path], count: int) -> None:
    each_case(count, lambda case: check_states(case, tomls), CASES, "states")
