"""Every recorded changefeed, in every configuration, ends equal to the source on the in-memory lake."""

from __future__ import annotations

import pytest

from cdc_assets.ledger import Ledger
from cdc_assets_tests.cases import Config, cases
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.replay import compare, replay

CONFIGS = [config for case in cases() for config in case.configs]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_one_go_ends_equal_to_the_source(config: Config) -> None:
    final = config.checkpoints[-1]
    assert final.expected is not None
    lake = MemoryLake()
    outcome = replay(config, final, lake)
    assert compare(config, final.expected, lake, outcome) == []


@pytest.mark.parametrize("config", [c for c in CONFIGS if c.options.wire.has_commit_ts], ids=str)
def test_every_checkpoint_is_equal_to_the_source(config: Config) -> None:
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    for checkpoint in config.replayable:
        outcome = replay(config, checkpoint, lake, ledger)
        if checkpoint.expected is not None:
            assert compare(config, checkpoint.expected, lake, outcome) == [], checkpoint.note
