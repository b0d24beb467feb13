"""A landing may be stopped anywhere, and others may land at the same time: each message is landed once all the same."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from cdc_assets.errors import MetadataMissing, TableMoved
from cdc_assets.landing.iceberg import LandingTable
from cdc_assets.landing.landing import Landing
from cdc_assets.landing.maintenance import LandingLimits, maintain_landing
from cdc_assets.landing.retention import Retention, TableNeed
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.kills import Killed, Trap, trapped
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed, settings_of
from cdc_assets_tests.topic_kills import FEEDS, SEAMS, Chain, landed_offsets, soak
from cdc_assets_tests.topics import Topic, topics

TOPIC = next(topic for topic in topics("simple") if topic.case.name == "D_keys")


class Process:
    """A process of its own over one log, one landing table and one lake."""

    def __init__(self, topic: Topic, directory: Path, before: TopicFeed | None = None) -> None:
        self.table = LandingTable(LakeSettings.from_warehouse(directory), "shop")
        self.feed = TopicFeed(settings_of(topic), topic=topic, store=self.table)
        if before is not None:
            self.feed.log, self.feed.lake, self.feed.ledger = before.log, before.lake, before.ledger
        self.feed.landing = self.feed.landed_in(commit_bytes=20_000)

    def run(self) -> None:
        """Land, apply, and put the landing's files together."""
        with suppress(MetadataMissing):
            self.feed.apply()
        limits = LandingLimits(Retention(1e6), small_files=2, removed_days=0)
        maintain_landing(self.feed.landing, lambda _: TableNeed(None), 1 << 42, limits)


def stopped_at(due: Callable[[str], bool], directory: Path, stops: int) -> set[str]:
    """Stop runs where `due` says while the topic comes in pieces; what they leave is the source in the end."""
    process, killed = Process(TOPIC, directory), set[str]()
    lines = len(TOPIC.lines)
    for sent in (lines // 3, 2 * lines // 3, lines):
        process.feed.send(sent)
        for _ in range(stops):
            trap = Trap(lambda _, name: due(name))
            try:
                with trapped(trap, SEAMS):
                    process.run()
                break
            except Killed:
                killed.add(trap.killed)
            finally:
                process.table.close()  # a process that is killed loses its connections
                process = Process(TOPIC, directory, process.feed)
        process.run()
    assert process.feed.differences() == []
    assert process.feed.landing.behind() == 0
    offsets = landed_offsets(process.table)
    assert len(offsets) == len(set(offsets)) > 0
    kept = process.table.stored()
    there = {path.name for path in directory.rglob("*.parquet")}
    assert {name.rsplit("/", 1)[-1] for name in (*kept.events, *kept.rows)} == there
    process.table.close()
    return killed


CHOSEN = ("after LandingTable.write_rows", "after GrowingTable.try_once", "after Landing._commit", "before Landing")
"""Files without a commit, a commit that nobody knows of, one that is known and not applied, and a start."""


@pytest.mark.parametrize("places", [CHOSEN, pytest.param(("",), marks=pytest.mark.soak)], ids=["chosen", "every"])
def test_a_landing_that_is_stopped_at_places_lands_each_message_once(places: tuple[str, ...], tmp_path: Path) -> None:
    before = set[str]()

    def due(name: str) -> bool:
        fresh = name.startswith(places) and name not in before
        before.add(name)
        return fresh

    assert len(stopped_at(due, tmp_path, 60)) >= (5 if places == CHOSEN else 20)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
def test_a_landing_that_is_stopped_anywhere_lands_each_message_once(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    assert stopped_at(lambda _: chance.random() < 0.08, tmp_path, 30)


def test_landings_that_race_land_each_message_once(tmp_path: Path) -> None:
    log, lines, over = MemoryLog(), TOPIC.lines, threading.Event()
    settings, options = LakeSettings.from_warehouse(tmp_path), TopicFeed.recording(TOPIC).source.options.messages

    def landing_on(table: LandingTable) -> Landing:
        return Landing(lambda: log, options, table, lambda _: True, lambda _: b"")

    def land_all() -> None:
        with closing(LandingTable(settings, "shop")) as table:
            landing = landing_on(table)
            while not over.is_set() or landing.behind():
                with suppress(TableMoved):
                    landing.advance()

    with closing(LandingTable(settings, "shop")) as table, ThreadPoolExecutor(2) as pool:
        log.lines = lines[:1]
        landing_on(table).advance()
        racing = [pool.submit(land_all) for _ in range(2)]
        for sent in range(1, len(lines), 40):
            log.lines = lines[:sent]
            landing_on(table).landed()
        log.lines = list(lines)
        over.set()
        for future in racing:
            future.result(120)
        offsets = landed_offsets(table)
        assert len(offsets) == len(set(offsets)) > 100
        assert landing_on(table).behind() == 0


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(3))
def test_processes_that_are_killed_anywhere_leave_what_the_next_one_completes(seed: int) -> None:
    assert soak(15, seed, FEEDS, lambda _: None) == []


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_process_that_is_killed_between_a_landing_and_its_windows_is_followed_by_one_that_applies_them(
    tmp_path: Path,
) -> None:
    chain = Chain(TOPIC, tmp_path)
    chain.feed.write()
    assert chain.victim(seam="after Landing._commit")
    assert chain.wrong() == []
