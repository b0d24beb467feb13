"""Generated topics that are cut anywhere, by runs that are stopped anywhere and overtaken by others while they land.

What such runs leave is the source at the fence, as soon as one run comes to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cdc_assets.errors import MetadataMissing, TableMoved
from cdc_assets.landing.maintenance import LandingLimits, maintain_landing
from cdc_assets.landing.retention import Retention, TableNeed
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets_tests import connector_writer
from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.kills import Killed, Trap, trapped
from cdc_assets_tests.lake_contents import contents_of
from cdc_assets_tests.landing.test_generated_connectors import TABLE, held
from cdc_assets_tests.landing.test_generated_topics import any_history, any_style
from cdc_assets_tests.memory_landing import MemoryStore
from cdc_assets_tests.message_writer import marks
from cdc_assets_tests.source import Ddl
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

LANDING = (
    "cdc_assets.landing.landing:Landing.landed",
    "cdc_assets.landing.landing:Landing._commit",
    "cdc_assets_tests.memory_landing:MemoryStore.write_events",
    "cdc_assets_tests.memory_landing:MemoryStore.commit",
    "cdc_assets_tests.memory_landing:MemoryStore.replace",
)
"""Where another run may come between: what has been looked at is written, or is about to be."""

SEAMS = (
    *LANDING,
    "cdc_assets_tests.memory_landing:MemoryStore.write_rows",  # in a thread of its own
    "cdc_assets.pipeline.pipeline:Pipeline.land",
    "cdc_assets.pipeline.planner:Planner.plan",
    "cdc_assets.pipeline.pipeline:Pipeline.run_step",
    "cdc_assets_tests.memory_lake:MemoryLake.run",
    "cdc_assets_tests.memory_lake:MemoryLake.stage",
    "cdc_assets_tests.memory_lake:MemoryLake.commit",
    "cdc_assets.ledger:Ledger.record_files",
    "cdc_assets.ledger:Ledger.record_ddl",
)
_OVERTAKEN = tuple(seam.partition(":")[2] for seam in LANDING)


class Unswept(MemoryStore):
    """Removes no file: none is older than a run may take."""

    def sweep(self, before_ms: int) -> int:
        return 0


class Runs:
    """Runs of one feed, each in a process of its own: what they share is the log, the landing, the lake, the ledger.

    `least` is the least number of bytes that they land in one commit.
    """

    def __init__(self, random: Random, least: int = 1, **given: Any) -> None:
        self.random, self.given, self.least = random, given, least
        self.log = MemoryLog([])
        self.first = self.newest = TopicFeed.of(self.log, store=Unswept(), name="c", **given)
        self.stopped = self.overtaken = 0
        self._inside = False

    def begun(self) -> TopicFeed:
        """A process that knows nothing yet, and lands as much at once as it likes."""
        feed = TopicFeed.of(self.log, store=self.first.store, name="c", **self.given)
        feed.lake, feed.ledger = self.first.lake, self.first.ledger
        feed.landing = feed.landed_in(commit_bytes=self.random.choice([self.least, 20_000, 1 << 28]))
        return feed

    def run(self) -> Outcome | None:
        """Land, apply and put files together in a process that nothing stops; None before there is a fence."""
        self.newest, outcome = self.begun(), None
        with suppress(MetadataMissing):
            outcome = self.newest.apply()
        if self.random.random() < 0.3:
            limits = LandingLimits(Retention(1e6), small_files=2)
            maintain_landing(self.newest.landing, lambda _: TableNeed(None), 1 << 42, limits)
        return outcome

    def stop_some(self) -> None:
        """Start some processes that are stopped or overtaken."""
        self.log.at_once = self.random.choice([1, 7, 50])
        for _ in range(self.random.randint(0, 3)):
            with suppress(Killed, TableMoved), self._faults():
                self.run()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        def due(_: int, name: str) -> bool:
            if self._inside:
                return False
            if any(seam in name for seam in _OVERTAKEN) and self.random.random() < 0.08:
                self._inside = True
                self.run()
                self._inside = False
                self.overtaken += 1
            stops = self.random.random() < 0.05
            self.stopped += stops
            return stops

        with trapped(Trap(due), SEAMS):
            yield


@pytest.mark.parametrize("seed", [pytest.param(n, marks=() if n == 3 else pytest.mark.soak) for n in range(60)])
def test_a_topic_cut_anywhere_equals_its_source_at_the_fence_after_any_faults(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    source, style = any_history(random), any_style(random)
    if (
        style.rule == "ts"
    ):  # one transaction of a table without key that comes again in a partition looks like one split
        style = replace(style, rule="table")
    toml = tmp_path / "changefeed.toml"
    toml.write_text(style.toml)
    sent = MemoryLog([])
    assert list(marks(source, style, Picks(random.randbytes(600)), sent))
    ddl = {event.ts for event in source.log if isinstance(event, Ddl)}
    runs, count = Runs(random, sink_uri=style.uri, changefeed_config=toml), len(sent.lines)
    for cut in (*sorted(random.choices(range(1, count + 1), k=6)), count):
        runs.log.lines = sent.lines[:cut]
        runs.stop_some()
        outcome = runs.run()
        if outcome is None:
            continue
        fence, lake = runs.newest.fence, runs.first.lake
        assert [table.reason for table in outcome.tables if table.reason] == [], (style, cut)
        shown = [source.contents(fence), *([source.contents(fence - 1)] if fence in ddl else [])]
        assert {name: contents_of(lake.read(name)) for name in lake.names()} in shown, (style, cut, fence)
    assert runs.newest.landing.behind() == 0
    assert runs.stopped + runs.overtaken


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("seed", [pytest.param(n, marks=() if n == 3 else pytest.mark.soak) for n in range(30)])
def test_a_connector_cut_anywhere_equals_its_table_after_any_faults(seed: int, partitions: int) -> None:
    source = connector_writer.Source(seed, partitions)
    # Beyond four commits messages are landed though a partition has only such without a place, as tombstones.
    runs = Runs(Random(seed), 20_000, sink_uri=connector_writer.URI)
    sent = MemoryLog([])
    for turn in range(4):
        for _ in range(source.random.randint(5, 25)):
            source.step()
        if turn and source.random.random() < 0.6:
            source.send_again(sent)
        source.send(sent)
        known = len(runs.log.lines)
        for cut in (*sorted(runs.random.choices(range(known, len(sent.lines) + 1), k=2)), len(sent.lines)):
            runs.log.lines = sent.lines[:cut]
            runs.stop_some()
        outcome = runs.run()
        assert outcome is not None
        assert [table.reason for table in outcome.tables if table.reason] == []
        if TABLE in runs.first.lake.names():
            assert held(runs.first, source) == source.rows
