"""Generated histories through TiCDC's message sinks: tables equal the source at every mark, however it is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.histories import KINDS, history
from cdc_assets_tests.lake_contents import contents_of
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.message_writer import MessageStyle, marks
from cdc_assets_tests.source import Col, Contents, Ddl, Parts, Source, Table
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

_STEPS = ["rows"] * 12 + [*KINDS] + ["create", "rename tables", "exchange partition"] * 2


def any_history(random: Random, old_values: bool = True) -> Source:
    steps = [("create", random.randbytes(24)) for _ in range(random.randint(1, 4))]
    steps += [(random.choice(_STEPS), random.randbytes(24)) for _ in range(random.randint(12, 40))]
    return history(steps, old_values)


def any_style(random: Random) -> MessageStyle:
    protocol = random.choice(["canal-json", "open-protocol", "craft", "debezium", "simple"])
    return MessageStyle(
        protocol,
        random.choice(["table", "index-value", "ts"]),
        random.choice([1, 2, 3]),
        routed=random.random() < 0.4,
        partial=protocol in ("canal-json", "open-protocol") and random.random() < 0.4,
        keys_of_deletes=random.random() < 0.3,
        names_the_other=random.random() < 0.5,
    )


def faults(feed: TopicFeed, *shown: Contents) -> Iterator[str]:
    """Apply what was sent and yield what is wrong; the tables may be as any of `shown` says."""
    outcome = feed.apply()
    yield from (f"{table.name}: {table.reason}" for table in outcome.tables if table.reason)
    yield from outcome.problems.values()
    actual = {name: contents_of(feed.lake.read(name)) for name in feed.lake.names()}
    if actual not in shown:
        yield f"tables are {actual}, expected {shown[-1]}"


def at_marks(
    seed: int, directory: Path, lake: Callable[[], MemoryLake] = MemoryLake, **given: Any
) -> Iterator[tuple[TopicFeed, Tso, list[Contents]]]:
    """Send a generated history, and yield a feed of it at some marks, and at the last one another feed.

    With the mark, and with what the tables may be: the mark of a DDL may come before it.
    """
    random = Random(seed)
    source, style = any_history(random), any_style(random)
    print(f"{style}\n{source.script}")  # what pytest shows of a history that fails
    (toml := directory / "changefeed.toml").write_text(style.toml)
    log = MemoryLog([])
    often, once = (TopicFeed.of(log, sink_uri=style.uri, changefeed_config=toml, name="c", **given) for _ in range(2))
    often.lake, once.lake = lake(), lake()
    ddl = {event.ts for event in source.log if isinstance(event, Ddl)}
    for mark, _ in marks(source, style, Picks(random.randbytes(600)), log):
        if random.random() < 0.7:
            before = [source.contents(mark - 1)] if mark in ddl else []
            yield often, mark, [*before, source.contents(mark)]
    yield once, mark, [source.contents(mark)]


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=() if n in (1, 48, 7) else pytest.mark.soak) for n in range(300)]
)
def test_a_generated_history_equals_its_source_at_every_mark(seed: int, tmp_path: Path) -> None:
    for feed, mark, shown in at_marks(seed, tmp_path):
        assert list(faults(feed, *shown)) == [], mark
        assert feed.fence == mark


@pytest.mark.parametrize("names_the_other", [False, True], ids=["old architecture", "new architecture"])
@pytest.mark.parametrize("protocol", ["canal-json", "open-protocol", "craft", "debezium", "simple"])
def test_an_exchange_is_that_of_the_tables_in_its_text(protocol: str, names_the_other: bool) -> None:
    source, ints = Source(), tuple(Col(name, "INT", 11, nullable=name != "id") for name in ("id", "v"))
    parts = Parts("RANGE", "id", (("p0", 1, (10,)), ("p1", 2, (20,))))
    for name in ("shop", "other"):
        source.create_database(name)
    whole, normal = (
        Table(TableId(*name), source.number(), ints, ("id",), clustered=True, parts=own)
        for name, own in ((("shop", "p"), parts), (("other", "n"), None))
    )
    for table, rows in ((whole, {1: 10, 11: 11}), (normal, {2: 20})):
        source.create(table)
        source.commit({table.name: {(key,): {"id": key, "v": v} for key, v in rows.items()}})
    source.exchange(whole, 0, normal)
    for table, key in ((whole, 3), (normal, 4)):
        source.commit({table.name: {**table.rows, (key,): {"id": key, "v": key}}})
    feed = TopicFeed.of(
        log := MemoryLog([]), sink_uri=(style := MessageStyle(protocol, names_the_other=names_the_other)).uri
    )
    for _ in marks(source, style, Picks(b""), log):
        pass
    assert list(faults(feed, source.contents(source.log[-1].ts))) == []
