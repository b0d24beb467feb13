"""Forgetting beside everything else that is done to a lake, in orders by a seed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from cdc_assets.lake import Lake
from cdc_assets_tests.forget_orders import LakeOrders, LakeTopicOrders

pytestmark = [pytest.mark.timeout(900), pytest.mark.soak]


@pytest.mark.parametrize("seed", range(20))
def test_in_any_order_nothing_is_left_of_forgotten_keys_nor_comes_back_and_all_else_is_there(
    seed: int, open_lake: Callable[..., Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVACY_KEY", "one key")
    run(LakeOrders(seed, tmp_path, open_lake))


@pytest.mark.parametrize("seed", range(20))
def test_neither_is_anything_of_a_topic_nor_of_its_landing(
    seed: int, open_lake: Callable[..., Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVACY_KEY", "one key")
    with closing(LakeTopicOrders(seed, tmp_path, open_lake)) as orders:
        run(orders)


def run(orders: LakeOrders) -> None:
    orders.put()
    orders.apply()
    for _ in range(10):
        orders.step()
    orders.check()
