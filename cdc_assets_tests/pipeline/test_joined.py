"""Recorded changefeeds joined to a dump of their source: equal to the source at every checkpoint after the dump."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_assets.ledger import Ledger
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.cases import Checkpoint, Config, cases
from cdc_assets_tests.joined_feed import FEEDS, dump_of, feed_from, joined_settings
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.replay import compare

CHOSEN = {
    ("A_all_types/csv-ts", 1, "csv", "begun"),
    ("A_all_types/na-canal-ext", 1, "sql", "overlap"),
    ("B_ddl_columns/csv-old", 0, "sql", "begun"),
    ("C_ddl_tables/csv-ts", 2, "csv", "begun"),
    ("C_ddl_tables/na-tableid", 1, "sql", "overlap"),
    ("D_keys/csv-old", 0, "sql", "begun"),
    ("D_keys/na-across", 1, "csv", "overlap"),
    ("E_partitions/csv-ts", 1, "csv", "begun"),
    ("E_partitions/na-canal-ext", 0, "sql", "bare"),
    ("B_ddl_columns/csv-ts", 2, "csv", "bare"),
    ("F_names/csv-ts", 0, "csv", "overlap"),
    ("G_redelivery/csv-ts", 2, "csv", "overlap"),
    ("M_slash_names/csv-ts", 0, "sql", "overlap"),
}
"""(configuration, number of the checkpoint, kind of dump, what the feed has of the time before) in every run."""


def joins() -> Iterator[object]:
    for config in (config for case in cases() for config in case.configs if config.options.wire.has_commit_ts):
        known = [checkpoint for checkpoint in config.replayable if checkpoint.expected is not None]
        for number in range(len(known)):
            for kind in ("csv", "sql"):
                for way in FEEDS:
                    chosen = (str(config), number, kind, way) in CHOSEN
                    marks = () if chosen else pytest.mark.soak
                    yield pytest.param(
                        config, tuple(known[number:]), kind, way, id=f"{config}-{number}-{kind}-{way}", marks=marks
                    )


@pytest.mark.parametrize(("config", "checkpoints", "kind", "way"), list(joins()))
def test_every_checkpoint_after_the_dump_is_equal_to_the_source(
    config: Config, checkpoints: tuple[Checkpoint, ...], kind: str, way: str, tmp_path: Path
) -> None:
    dump_of(checkpoints[0], tmp_path / "dump", kind)
    lake, ledger = MemoryLake(), Ledger("sqlite://")
    for number, checkpoint in enumerate(checkpoints):
        feed = tmp_path / f"feed{number}"
        feed_from(config, checkpoint, checkpoints[0], feed, way)
        settings = joined_settings(config, feed, tmp_path / "dump", start_ts=checkpoints[0].ts)
        outcome = Pipeline(settings, settings.open_source(), lake, ledger).apply("test")
        assert checkpoint.expected is not None
        assert compare(config, checkpoint.expected, lake, outcome) == [], checkpoint.note
        assert [table.name for table in outcome.tables if table.gap is not None] == []
