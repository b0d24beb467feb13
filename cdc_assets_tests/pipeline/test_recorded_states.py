"""Every recorded changefeed with states for every table: those that are open are the rows of the source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.replay import compare, replay
from cdc_assets_tests.states import state_differences, states_of

FIRST = {case.configs[0] for place, case in enumerate(cases()) if place == 1}
CONFIGS = [
    pytest.param(config, marks=() if config in FIRST else pytest.mark.soak, id=str(config))
    for case in cases()
    for config in case.configs
    if config.options.wire.has_commit_ts
]


class Mirrors(MemoryLake):
    """A lake that shows its mirrors only."""

    def names(self) -> set[TableId]:
        return {table.name for life, table in self.tables.items() if table.name is not None and not life.kind}


@pytest.mark.parametrize("config", CONFIGS)
def test_the_states_that_are_open_are_the_rows_of_the_source(config: Config) -> None:
    often, ledger, once = Mirrors(), Ledger("sqlite://"), Mirrors()
    rules = {"*.*": "scd2"}
    last = config.checkpoints[-1]
    seen_often = [replay(config, checkpoint, often, ledger, history=rules) for checkpoint in config.replayable]
    for lake, seen in ((often, seen_often[-1:]), (once, [replay(config, last, once, history=rules)])):
        for outcome in seen:
            check(config, lake, outcome)


def check(config: Config, lake: Mirrors, seen: Outcome) -> None:
    mirrors = [table for table in seen.tables if not table.life.kind]
    stopped = {table.life for table in seen.tables if table.state in ("held", "failed")}
    held = {table.life: table.reason for table in seen.tables if table.life in stopped and table.life.kind}
    expected = config.checkpoints[-1].expected
    assert expected is not None
    assert compare(config, expected, lake, replace(seen, tables=tuple(mirrors))) == []
    assert [reason for life, reason in held.items() if "no key" not in reason and life.source not in stopped] == []
    mismatches = [
        (str(table.life), *state_differences(table.rows, table.lives, table.mirror))
        for table in states_of(lake)
        if table.life not in stopped
    ]
    assert [mismatch for mismatch in mismatches if len(mismatch) > 1] == []
