"""Generated histories on Spark and Iceberg: a chosen few always, as many as asked for in `make soak`.

The same histories as in memory, with more of what only this lake has: deletion vectors and tables that they leave
empty, rewrites, snapshots that expire, and compaction between windows. A history is made from a number, so that one
that fails is named by it: `CDC_ASSETS_HISTORIES=1200-1400 make soak` tries others than the soak's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdc_assets.lake import Lake
from cdc_assets.lake.maintenance import LakeMaintenance
from cdc_assets.model.schema_changes import ContinueColumn, Rekey
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.maintenance import maintain
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.settings.sections import MaintenanceSettings
from cdc_assets_tests.folding import differences
from cdc_assets_tests.generated import Feed, Trial, faults
from cdc_assets_tests.pipeline.test_history_tables import stopped
from cdc_assets_tests.pipeline.test_states_of_histories import faults as state_faults
from cdc_assets_tests.source import Source
from cdc_assets_tests.writer import Publication

pytestmark = pytest.mark.timeout(900)

CHOSEN = (("mirrors", 13), ("mirrors", 53), ("history tables", 13))
"""Kinds of tables and numbers of histories that are always tried: short, and together of most kinds of DDL."""

_FIRST, _, _LAST = os.environ.get("CDC_ASSETS_HISTORIES", "1-200").partition("-")
NUMBERS = range(int(_FIRST), int(_LAST or _FIRST) + 1)

_EAGER = {"small_files": 2, "manifests": 4, "deleted_share": 0.01, "snapshots_kept": 1, "expire_at_least": 1}
_DAY_MS = 86_400_000


def tidy(feed: Feed) -> list[str]:
    """Compact and expire all that may go, as if days had passed, and say what went wrong."""
    settings = MaintenanceSettings.model_validate(_EAGER)
    feed.settings = feed.settings.model_copy(update={"maintenance": settings})
    newest = max(
        (snapshot.made_ms for fact in LakeMaintenance(feed.lake, settings).facts() for snapshot in fact.lineage),
        default=0,
    )
    done = maintain(cast("LakePipeline", feed.pipeline), newest + 30 * _DAY_MS)
    return [f"{table.before.table}: {table.problem}" for table in done.tables if table.problem]


def mirror_faults(feed: Feed, source: Source, state: Publication) -> Iterable[str]:
    """Apply a publication, and say where the mirrors are not the source's tables."""
    return faults(feed, state, source.contents(state.shown))


def history_faults(feed: Feed, source: Source, state: Publication) -> Iterable[str]:
    """Apply a publication, and say which states are not those of the source, and which logs lead to other rows."""
    yield from state_faults(feed, source, state)
    yield from (fault for fault in stopped(feed, state) if "no key" not in fault)
    yield from unlike(feed)


def unlike(feed: Feed) -> Iterator[str]:
    """Say which logs of a lake do not lead to the rows of their mirrors."""
    tables, history = feed.lake.state.tables(), feed.pipeline.planner.plan()[1].history
    for life, log in tables.items():
        if life.kind != "log":
            continue
        mirror = tables[life.source]
        events = history.lives[life].events
        if any(isinstance(change, Rekey) for event in events for change in event.changes):
            continue  # older changes are upserts by another key
        back = {
            change.column.name for event in events for change in event.changes if isinstance(change, ContinueColumn)
        }
        rows = read(feed.lake, mirror) if mirror.name is not None else None
        yield from differences(str(life), read(feed.lake, log), history.lives[life].schema, rows, back)


def read(lake: Lake, table: Any) -> pa.Table:
    rows: pa.Table = lake.state.catalog.load_table(table.identifier).scan().to_arrow()
    return rows


KINDS: dict[str, tuple[Callable[[Feed, Source, Publication], Iterable[str]], dict[str, Any]]] = {
    "mirrors": (mirror_faults, {}),
    "history tables": (history_faults, {"history": {"*.*": ["log", "scd2"]}}),
}


@pytest.mark.parametrize(
    ("kinds", "number"),
    [
        *CHOSEN,
        *(pytest.param(*each, marks=pytest.mark.soak) for each in product(KINDS, NUMBERS) if each not in CHOSEN),
    ],
)
def test_a_generated_history_ends_equal_to_the_source(
    spark: SparkSession, tmp_path: Path, tomls: Mapping[str, Path], kinds: str, number: int
) -> None:
    """By checkpoint with upkeep in between, and in one go."""
    trial, (faults_of, given) = Trial(number), KINDS[kinds]
    source = trial.source
    states = trial.publications(source)
    print(f"{trial.style}\n{source.script}")  # what pytest shows of a history that fails
    often, once = (
        Feed(
            trial.style,
            tomls[trial.style.rendering],
            Lake(LakeSettings.from_warehouse(tmp_path / name), "default", lambda: spark),
            **given,
        )
        for name in ("often", "once")
    )
    try:
        for state, tidies in zip(states, trial.tidies(len(states)), strict=True):
            assert [*faults_of(often, source, state)] == [], state.checkpoint
            assert not tidies or tidy(often) == []
        assert [*faults_of(once, source, states[-1])] == [], "in one go"
        assert often.journal == once.journal
    finally:
        for feed in (often, once):
            feed.lake.close()
            feed.close()
