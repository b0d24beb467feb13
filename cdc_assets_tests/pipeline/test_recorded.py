"""Every recorded changefeed, in every configuration, ends equal to the source on the in-memory lake.

In one go or by checkpoint, in turns: the neighbour of a configuration goes the other way, and in the soak all go both.
"""

from __future__ import annotations

import pytest

from cdc_assets.ledger import Ledger
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.replay import compare, replay

LONG = {"H_bank": ("csv-ts",)}
"""Of a case that takes seconds, a configuration; the soak has all, in both ways."""

CONFIGS = [
    (config, (place + number) % 2 == 0, config.name in LONG.get(case.name, (config.name,)))
    for place, case in enumerate(cases())
    for number, config in enumerate(case.configs)
]
"""Each with the way that is tried first, whether it is one go, and whether it is always tried."""

ONE_GO = [
    pytest.param(
        config,
        marks=() if always and (once or not config.options.wire.has_commit_ts) else pytest.mark.soak,
        id=str(config),
    )
    for config, once, always in CONFIGS
]
BY_CHECKPOINT = [
    pytest.param(config, marks=() if always and not once else pytest.mark.soak, id=str(config))
    for config, once, always in CONFIGS
    if config.options.wire.has_commit_ts
]


@pytest.mark.parametrize("config", ONE_GO)
def test_one_go_ends_equal_to_the_source(config: Config) -> None:
    final = config.checkpoints[-1]
    assert final.expected is not None
    lake = MemoryLake()
    lake.may_lack_rows = config.loses_rows
    outcome = replay(config, final, lake)
    assert compare(config, final.expected, lake, outcome) == []


@pytest.mark.parametrize("config", BY_CHECKPOINT)
def test_every_checkpoint_is_equal_to_the_source(config: Config) -> None:
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    lake.may_lack_rows = config.loses_rows
    for checkpoint in config.replayable:
        outcome = replay(config, checkpoint, lake, ledger)
        if checkpoint.expected is not None:
            assert compare(config, checkpoint.expected, lake, outcome) == [], checkpoint.note
