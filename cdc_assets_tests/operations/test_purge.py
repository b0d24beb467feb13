"""Dropped tables are removed on request, but for those that a planned step still needs. On the lake in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.errors import BadSettings
from cdc_assets.ledger import Ledger
from cdc_assets.model.kinds import NOT_ASKED_FOR
from cdc_assets.model.progress import AppliedState, Life
from cdc_assets.model.reports import StepResult
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import wall_clock_ms
from cdc_assets.operations.purge import purge
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake

OLD, ORDERS = Life(TableId("s", "old"), FIRST), Life(TableId("s", "orders"), FIRST)
DROP, RECOVER = 4, 81
"""TiDB's numbers of the actions."""
DAY = 86_400_000 << 18


@dataclass
class Dropped(MemoryLake):
    """Which of its dropped tables were purged."""

    purged: list[Life] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def dropped(self) -> Mapping[Life, AppliedState]:
        return {life: state for life, state in self.applied().items() if state.name is None and life not in self.purged}

    def purge(self, life: Life) -> StepResult:
        self.purged.append(life)
        return StepResult(("DROP TABLE",))


@dataclass
class Shop:
    """`s.old` is dropped a day after `s.orders` was."""

    feed: LittleFeed
    lake: Dropped = field(default_factory=Dropped)
    ledger: Ledger = field(default_factory=lambda: Ledger("sqlite://"))

    def pipeline(self, **given: Any) -> Pipeline:
        return self.feed.pipeline_into(self.lake, self.ledger, **given)

    def apply(self, checkpoint: int) -> None:
        self.feed.publish(checkpoint)
        self.pipeline().apply(f"through {checkpoint}")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(LittleFeed(tmp_path))
    for name in ("s.old", "s.orders", "s.live"):
        made.feed.create(name)
    made.feed.ddl("s.orders", FIRST + 10, "DROP TABLE `orders`", DROP)
    made.feed.ddl("s.old", FIRST + DAY, "DROP TABLE `old`", DROP)
    made.apply(FIRST + 2 * DAY)
    return made


def test_all_dropped_tables_are_removed_and_journaled(shop: Shop) -> None:
    assert [dropped_table.life for dropped_table in purge(shop.pipeline(), shop.lake, "run")] == [OLD, ORDERS]
    assert shop.lake.purged == [OLD, ORDERS]
    assert {entry.life for entry in shop.ledger.journal("little") if entry.action == "purge"} == {str(OLD), str(ORDERS)}
    assert purge(shop.pipeline(), shop.lake, "again") == ()


@pytest.mark.parametrize("text", ["s.orders", "S.Orders", str(ORDERS)])
def test_a_table_is_named_by_its_former_name_or_its_identity(shop: Shop, text: str) -> None:
    purge(shop.pipeline(), shop.lake, "run", [text])
    assert shop.lake.purged == [ORDERS]


def test_a_dry_run_removes_nothing(shop: Shop) -> None:
    assert len(purge(shop.pipeline(), shop.lake, "run", dry=True)) == 2
    assert shop.lake.purged == []


def test_only_tables_dropped_before_a_moment_are_removed(shop: Shop) -> None:
    purge(shop.pipeline(), shop.lake, "run", before_ms=wall_clock_ms(FIRST + DAY // 2))
    assert shop.lake.purged == [ORDERS]


@pytest.mark.parametrize("text", ["s.live", "s.nothing"])
def test_what_is_not_dropped_is_refused(shop: Shop, text: str) -> None:
    with pytest.raises(BadSettings, match=rf"{text} is not a dropped table of the lake; those are: s\.old@"):
        purge(shop.pipeline(), shop.lake, "run", ["s.old", text])
    assert shop.lake.purged == []


def test_a_table_that_a_recover_brings_back_is_kept(shop: Shop) -> None:
    shop.feed.ddl("s.old", FIRST + 2 * DAY + 5, "RECOVER TABLE `old`", RECOVER)
    shop.feed.publish(FIRST + 3 * DAY)
    kept = {dropped_table.life: dropped_table.kept for dropped_table in purge(shop.pipeline(), shop.lake, "run")}
    assert kept == {OLD: "the next apply changes it", ORDERS: ""}
    assert shop.lake.purged == [ORDERS]


def test_a_table_that_was_recovered_while_the_settings_leave_it_out_is_kept(shop: Shop) -> None:
    shop.feed.ddl("s.orders", FIRST + 2 * DAY + 1, "RECOVER TABLE `orders`", RECOVER)
    shop.feed.publish(FIRST + 3 * DAY)
    excluded = {"exclude": ["s.orders"]}
    shop.pipeline(tables=excluded).apply("without orders")
    results = purge(shop.pipeline(tables=excluded), shop.lake, "run")
    assert {result.life: NOT_ASKED_FOR in result.kept for result in results} == {OLD: False, ORDERS: True}
    assert shop.lake.purged == [OLD]
    shop.pipeline().apply("with orders")
    assert [str(state.name) for state in shop.lake.applied().values() if state.name] == ["s.live", "s.orders"]
