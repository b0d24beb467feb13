"""Generated histories through TiCDC's message sinks: tables equal the source at every mark, however it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.histories import KINDS, history
from cdc_assets_tests.lake_contents import contents_of
from cdc_assets_tests.message_writer import MessageStyle, marks
from cdc_assets_tests.source import Contents, Ddl, Source
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
    )


def faults(feed: TopicFeed, *shown: Contents) -> Iterator[str]:
    """Apply what was sent and yield what is wrong; the tables may be as any of `shown` says."""
    outcome = feed.apply()
    yield from (f"{one.name}: {one.reason}" for one in outcome.tables if one.reason)
    yield from outcome.problems.values()
    actual = {name: contents_of(feed.lake.read(name)) for name in feed.lake.names()}
    if actual not in shown:
        yield f"tables are {actual}, expected {shown[-1]}"


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=() if n in (1, 48, 7) else pytest.mark.soak) for n in range(300)]
)
def test_a_generated_history_equals_its_source_at_every_mark(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    source, style = any_history(random), any_style(random)
    toml = tmp_path / "changefeed.toml"
    toml.write_text(style.toml)
    log = MemoryLog([])
    often, once = (TopicFeed.of(log, sink_uri=style.uri, changefeed_config=toml, name="c") for _ in range(2))
    ddl = {event.ts for event in source.log if isinstance(event, Ddl)}
    for mark, _ in marks(source, style, Picks(random.randbytes(600)), log):
        if random.random() < 0.7:
            before = [source.contents(mark - 1)] if mark in ddl else []  # the mark of a DDL may come before it
            assert list(faults(often, *before, source.contents(mark))) == [], (style, mark)
            assert often.fence == mark
    assert list(faults(once, source.contents(mark))) == [], (style, "in one go")
