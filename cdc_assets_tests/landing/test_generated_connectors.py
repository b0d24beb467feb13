"""Connectors by their rules: whatever happens to rows and columns, and however it is sent, tables equal the source."""

from __future__ import annotations

from typing import Any

import pytest

from cdc_assets.formats import landed
from cdc_assets.model.schema import TableId
from cdc_assets_tests.connector_writer import URI, Source
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

TABLE = TableId("public", "t")


def held(feed: TopicFeed, source: Source) -> dict[int, dict[str, Any]]:
    rows = feed.lake.read(TABLE).to_pylist()
    return {row["id"]: {name: row.get(name) for name in source.columns} for row in rows}


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed in (0, 10) else pytest.mark.soak) for seed in range(40)]
)
def test_a_generated_stream_equals_its_table_after_every_landing(
    seed: int, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if partitions == 1:  # each message is read by itself
        monkeypatch.setattr(landed, "_BATCH_BYTES", 1)
    follow(Source(seed, partitions))


@pytest.mark.parametrize("connector", ["oracle", "sqlserver"])
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed == 3 else pytest.mark.soak) for seed in range(10)]
)
def test_positions_of_other_connectors_show_what_is_sent_again(seed: int, connector: str) -> None:
    follow(Source(seed, 3, connector=connector))


def follow(source: Source) -> None:
    log = MemoryLog([])
    feed = TopicFeed.of(log, sink_uri=URI, name="c")
    for turn in range(5):
        for _ in range(source.random.randint(5, 25)):
            source.step()
        if turn and source.random.random() < 0.6:
            source.send_again(log)
        source.send(log)
        outcome = feed.apply()
        assert [one.reason for one in outcome.tables if one.reason] == []
        if TABLE in feed.lake.names():
            assert held(feed, source) == source.rows
