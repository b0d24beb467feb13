"""Snapshots that somebody reads for long are kept by maintenance, and those of readers that were killed for a day."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

from cdc_assets.lake.maintenance import LakeMaintenance
from cdc_assets.lake.tables import Lake
from cdc_assets.model.decisions import SnapshotPin
from cdc_assets.settings.sections import MaintenanceSettings
from cdc_assets_tests.bench.feeds import Feed
from cdc_assets_tests.bench.knowing import know


def test_a_snapshot_that_is_read_is_needed_until_its_reader_is_done_or_a_day_has_passed(tmp_path: Path) -> None:
    feed = Feed(tmp_path / "feed", tables=2)
    feed.directory.mkdir()
    feed.create().append(2, 2, fill=2)
    lake = Lake(know(feed, tmp_path / "lake"), feed.settings.name)
    keeper, (life, other) = LakeMaintenance(lake, MaintenanceSettings()), sorted(lake.applied())

    def needed() -> list[frozenset[int]]:
        return [facts.needed for facts in keeper.facts() if facts.life in (life, other)]

    assert needed() == [frozenset(), frozenset()]
    with lake.pinned(life, 1), lake.pinned(life, 1):
        assert sorted(needed(), key=len) == [frozenset(), frozenset({1})]
        assert len(lake.state.decisions.read().of(SnapshotPin)) == 2
    assert needed() == [frozenset(), frozenset()]
    old = datetime.now(timezone.utc) - timedelta(hours=25)
    lake.keep_decision(SnapshotPin(life, 1, "killed", old.isoformat(timespec="seconds")))
    assert needed() == [frozenset(), frozenset()]
    keeper.sweep()
    assert lake.state.decisions.read().of(SnapshotPin) == ()
    lake.close()
