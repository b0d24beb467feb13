"""Generated histories of which a dump has the beginning: logs and states from the dump on are what the source had."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, note, settings

from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.dump_anywhere import FLAVOURS
from cdc_assets_tests.folding import fold_differences
from cdc_assets_tests.generated import CHECKS, feeds
from cdc_assets_tests.histories import history
from cdc_assets_tests.pipeline.test_joined_histories import CASES, write_source
from cdc_assets_tests.pipeline.test_states_of_histories import faults
from cdc_assets_tests.writer import publications

RULES: dict[str, object] = {"*.*": ["log", "scd2"]}


def check(case: Mapping[str, Any], tomls: Mapping[str, Path], directory: Path) -> None:
    """Dump a source after some steps, and join the rest of its history, or all of it, to that."""
    steps, after, style, flavour = (case[name] for name in ("steps", "after", "style", "flavour"))
    if case["begun"]:  # a table that was dropped before is in neither
        steps = [*steps[:after], *((kind, step) for kind, step in steps[after:] if kind != "recover table")]
    before, source = (history(some, style.old_values) for some in (steps[:after], steps))
    at = before.log[-1].ts
    if source.log[-1].ts == at:
        return
    note(f"{style} {flavour}, dumped at {at}\n{source.script}")
    shutil.rmtree(directory, ignore_errors=True)
    write_source(before, at, directory, flavour)
    source.past = [(ts, tables) for ts, tables in source.past if ts >= at]
    initial = {**FLAVOURS[flavour].initial, "dump": str(directory), "start_ts": at}
    with feeds(style, tomls[style.rendering], initial=initial, history=RULES) as (often, once):
        for publication in publications(source, style, Picks(case["raw"]), start=at if case["begun"] else 0):
            if publication.shown >= at:
                problems = [*faults(often, source, publication), *fold_differences(often.lake)]
                assert problems == [], publication.checkpoint
        assert [*faults(once, source, publication), *fold_differences(once.lake)] == [], "in one go"


@settings(CHECKS, max_examples=4, derandomize=True, database=None)
@given(case=CASES)
def test_the_states_of_a_generated_history_with_a_dump_are_those_of_the_source(
    tomls: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory, case: dict[str, Any]
) -> None:
    check(case, tomls, tmp_path_factory.getbasetemp() / "dump")


@pytest.mark.soak
@pytest.mark.timeout(0)
@settings(CHECKS, max_examples=3000)
@given(case=CASES)
def test_the_states_of_thousands_of_generated_histories_with_dumps_are_those_of_the_source(
    tomls: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory, case: dict[str, Any]
) -> None:
    check(case, tomls, tmp_path_factory.getbasetemp() / "dump")
