"""How much a run that lives on writes into Dagster's event log: rows of a database that nobody prunes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from cdc_assets.defs import events as run_events
from cdc_assets.defs.events import RunEvents
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.ledger import Ledger
from cdc_assets.pipeline.outcome import RunHooks
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake

NAME = "little"
EVERY, MINUTES = 14, 5


@pytest.mark.parametrize("pause", [0, 3], ids=["a window every round", "rounds without a window of the table"])
def test_windows_of_a_table_are_logged_once_a_minute_and_its_ddl_once(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, pause: int
) -> None:
    feed, logged, now = LittleFeed(tmp_path), list[Any](), 1000.0
    for name in ("s.t", "s.other"):
        feed.create(name)
    settings = feed.settings(NAME)
    pipeline: Any = Pipeline(settings, settings.open_source(), MemoryLake(), Ledger("sqlite://"))
    source = ConfiguredFeed(settings, LakeSettings.from_warehouse(tmp_path / "lake"))
    context: Any = SimpleNamespace(instance=instance, log_event=logged.append)
    monkeypatch.setattr(run_events, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(run_events, "evaluations", lambda *_: ())
    events = RunEvents(context, source, pipeline)
    rounds = MINUTES * 60 // EVERY
    for number in range(rounds):
        now += EVERY
        at = FIRST + 10 * number
        feed.rows("s.other", FIRST, [("I", at + 1, number, "b")])
        if not pause or number % pause == 0:
            feed.rows("s.t", FIRST, [("I", at + 1, number, "a")])
        feed.publish(at + 9)
        events.begin()
        assert list(events.finish(pipeline.apply("run", hooks=RunHooks(events.after)))) == []
    assert list(events.close()) == []
    logs = [event for event in logged if getattr(event, "partition", None) == f"s.t@{FIRST:020d}"]
    kinds = Counter(
        "check" if isinstance(event, dg.AssetCheckEvaluation) else event.asset_key.path[-1] for event in logs
    )
    assert kinds["ddl"] == 1
    assert MINUTES <= kinds["dml"] <= MINUTES + 2
    assert kinds["check"] == kinds["dml"]
    changes = [event.metadata["changes"].value for event in logs if "changes" in getattr(event, "metadata", {})]
    assert sum(changes) == -(-rounds // max(1, pause))
