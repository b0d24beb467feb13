"""Forgetting beside everything else that is done to a lake in memory, of files and of a topic, in orders by a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from cdc_assets_tests.forget_orders import MemoryOrders, TopicOrders
from cdc_assets_tests.memory_lake import MemoryLake


@pytest.mark.parametrize("orders_of", [MemoryOrders, TopicOrders])
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 60))])
def test_in_any_order_nothing_is_left_nor_comes_back_and_a_rebuild_gives_the_same(
    seed: int, orders_of: type[MemoryOrders], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVACY_KEY", "one key")
    lake = cast("Any", MemoryLake())
    orders = orders_of(seed, tmp_path, lambda: lake)
    orders.put()
    orders.apply()
    for _ in range(10):
        orders.step()
    orders.check()
    orders.ledger.close()
