"""How many files a row passes: who follows one opens few of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_assets.ledger import Ledger
from cdc_assets.model.steps import ApplyRows
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.trips import files_of

GOOD, BAD = ("U", FIRST + 12, 1, "b"), ("I", FIRST + 12, 2, "longer than 40 characters, which is refused")
UNREAD = ("I", FIRST + 12, "x", "b")

TO_COMMIT, TO_QUARANTINE = 14, 10
PROTOCOLS = ("csv", "canal-json")


def trip(directory: Path, protocol: str, row: tuple[str, int, int | str, str], to_commit: bool) -> set[str]:
    """Return the files that a row of a running changefeed passes, from its window's reading on."""
    feed = LittleFeed(directory, protocol)
    feed.create("shop.orders")
    feed.rows("shop.orders", FIRST, [("I", FIRST + 5, 1, "a")])
    feed.publish(FIRST + 9)
    settings, lake = feed.settings(quarantine=True), MemoryLake()
    pipeline = Pipeline(settings, settings.open_source(), lake, Ledger("sqlite://"))
    pipeline.apply("first")
    feed.rows("shop.orders", FIRST, [row])
    feed.publish(FIRST + 30)
    _, planned = pipeline.plan()
    (step,) = planned.steps
    assert isinstance(step, ApplyRows)

    def read() -> None:
        staged = pipeline.stage(step)
        if to_commit:
            assert pipeline.commit(step, staged, "second").report == staged.report
            assert lake.quarantined() == []
        else:
            lake.quarantine(step, staged, "second")
            assert [kept.line for kept in lake.quarantined()] == [1]

    return files_of(read)[0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_row_passes_few_files_on_its_way_to_its_commit(tmp_path: Path, protocol: str) -> None:
    files = trip(tmp_path, protocol, GOOD, to_commit=True)
    assert len(files) <= TO_COMMIT, sorted(files)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_row_that_cannot_be_read_passes_few_files_on_its_way_to_the_quarantine(tmp_path: Path, protocol: str) -> None:
    files = trip(tmp_path, protocol, UNREAD, to_commit=False)
    assert len(files) <= TO_QUARANTINE, sorted(files)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_row_that_breaks_a_promise_passes_few_files(tmp_path: Path, protocol: str) -> None:
    files = trip(tmp_path, protocol, BAD, to_commit=False)
    assert len(files) <= TO_QUARANTINE, sorted(files)
