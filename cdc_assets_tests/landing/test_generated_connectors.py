"""Connectors by their rules: whatever happens to rows and columns, and however it is sent, tables equal the source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow.compute as pc
import pytest

from cdc_assets.decoding.states import END_TS, START_TS
from cdc_assets.formats import landed
from cdc_assets.model.schema import TableId
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets_tests.connector_writer import URI, Source
from cdc_assets_tests.folding import fold_differences
from cdc_assets_tests.states import state_differences, states_of
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


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed == 0 else pytest.mark.soak) for seed in range(100)]
)
def test_logs_and_states_of_a_generated_stream_lead_to_what_its_table_held(seed: int, partitions: int) -> None:
    follow(Source(seed, partitions), history={"*.*": ["log", "scd2"]})


def past_faults(feed: TopicFeed, past: dict[int, dict[int, dict[str, Any]]]) -> Iterator[str]:
    """Say what is wrong with the states of the table, as of each landing too; `past` is what it held then."""
    for table in states_of(feed.lake):
        yield from state_differences(table.rows, table.lives, table.mirror)
        for at, rows in past.items():
            there = {life.name_at(at): life.column for life in table.lives if life.was_there(at)}
            ended = table.rows.column(END_TS)
            lasts = pc.or_(pc.is_null(ended), pc.greater(pc.fill_null(ended, 0), at))
            states = table.rows.filter(pc.and_(pc.less_equal(table.rows.column(START_TS), at), lasts)).to_pylist()
            rows_by_id = {row["id"]: row for row in states}
            if rows_by_id.keys() != rows.keys():
                yield f"as of {at}: the keys {sorted(rows_by_id)}, not {sorted(rows)}"
            for key in rows_by_id.keys() & rows.keys():
                wanted = {name: value for name, value in rows[key].items() if name in there}
                held = {name: rows_by_id[key][there[name]] for name in wanted}
                if held != wanted:
                    yield f"as of {at}: {key} is {held}, not {wanted}"


def turns(source: Source, log: MemoryLog, feed: TopicFeed) -> Iterator[Outcome]:
    """Let a source go on, and send and apply what it did, some of it twice: nothing stops, rows are the source's."""
    for turn in range(5):
        for _ in range(source.random.randint(5, 25)):
            source.step()
        if turn and source.random.random() < 0.6:
            source.send_again(log)
        source.send(log)
        outcome = feed.apply()
        assert [table.reason for table in outcome.tables if table.reason] == []
        if TABLE in feed.lake.names():
            assert held(feed, source) == source.rows
        yield outcome


def follow(source: Source, **given: Any) -> None:
    log = MemoryLog([])
    feed = TopicFeed.of(log, sink_uri=URI, name="c", **given)
    past: dict[int, dict[int, dict[str, Any]]] = {}
    for outcome in turns(source, log, feed):
        if TABLE in feed.lake.names():
            past[outcome.checkpoint] = {key: dict(row) for key, row in source.rows.items()}
            assert [*fold_differences(feed.lake), *past_faults(feed, past)] == []
