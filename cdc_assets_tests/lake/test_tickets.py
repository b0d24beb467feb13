"""Tickets of work on a lake, and the tables whose windows wait for it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cdc_assets.features.forgetting.lake import LakeForgetting
from cdc_assets.lake import Lake
from cdc_assets.lake.state import LakeState
from cdc_assets.lake.tickets import FORGET, REBUILD, WAIT, LakeTickets, held_back, hold_back
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.tickets import STALE_SECONDS, Ticket
from cdc_assets.settings.lake import LakeSettings

ONE, OTHER = (Life(TableId("s", name), 1) for name in ("one", "other"))


@pytest.mark.parametrize("work", [REBUILD, FORGET])
def test_tables_are_held_back_by_work_that_runs_until_it_names_others_or_dies(tmp_path: Path, work: str) -> None:
    state = LakeState(LakeSettings.from_warehouse(tmp_path), "shop")
    tickets, now = LakeTickets(state, work), time.time()
    assert held_back(state) == frozenset()
    hold_back(state, "token", [ONE, OTHER])
    assert held_back(state) == frozenset(), "no work has that token"
    tickets.touch(Ticket("token", "", "", now, now))
    assert held_back(state) == {str(ONE), str(OTHER)}
    assert held_back(LakeState(state.settings, "shop~token")) == frozenset(), "of another changefeed"
    hold_back(state, "token", [OTHER])
    assert held_back(state) == {str(OTHER)}
    tickets.end("token")
    assert held_back(state) == frozenset()


def test_a_rebuild_that_died_holds_nothing_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = LakeState(LakeSettings.from_warehouse(tmp_path), "shop")
    LakeTickets(state, REBUILD).touch(Ticket("token", "", "", 0, 0))
    hold_back(state, "token", [ONE])
    assert held_back(state) == {str(ONE)}
    later = time.time() + STALE_SECONDS + 1
    monkeypatch.setattr("cdc_assets.model.tickets.time.time", lambda: later)
    assert held_back(state) == frozenset()


def test_nothing_is_left_of_a_run_that_was_killed_while_tables_waited_for_it(tmp_path: Path) -> None:
    lake = Lake(LakeSettings.from_warehouse(tmp_path), "shop")
    forgetting, now = LakeForgetting(lake), time.time()
    forgetting.touch(Ticket("token", "", "", now, now))
    forgetting.hold_back("token", [ONE])
    forgetting.end("token")
    assert [LakeTickets(lake.state, work).tickets() for work in (FORGET, WAIT)] == [(), ()]
