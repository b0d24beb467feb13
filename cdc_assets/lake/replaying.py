"""Quarantined records that fit now, applied to their table in one commit.

In a table that may have equal rows a replay must not be added twice: its commit carries a token, under which the
records are marked before. Whoever replays them again looks for the commits of all their tokens, in the table as it is
loaded for the commit too: another run may replay the same records at the same time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from cdc_assets.decoding.kinds import kind_of
from cdc_assets.decoding.replay import RecordLookup, Replay, find_keys, read_replay, replay_tasks
from cdc_assets.decoding.window import rejected
from cdc_assets.errors import TableMoved
from cdc_assets.formats import SplitReader
from cdc_assets.lake.commit_stage import commit_stage
from cdc_assets.lake.quarantine import REPLAY, Quarantine
from cdc_assets.lake.staging import stage
from cdc_assets.lake.staging.executors import run_tasks
from cdc_assets.lake.windows import discard_window
from cdc_assets.lake.workbench import Workbench
from cdc_assets.model.reports import Report, StagedWindow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["replay_records"]


def replay_records(bench: Workbench, replay: Replay, reader: SplitReader) -> RecordLookup:
    """Merge the changes of quarantined records' keys in one commit, and close the records that fit now.

    Raises TableMoved if the table's progress is no longer `replay.frame.hi`, or if another run has replayed them.
    """
    life, spark, quarantine = replay.frame.life, bench.sessions.side().spark, Quarantine(bench.state)
    equal_rows = kind_of(replay.frame).EQUAL_ROWS
    if equal_rows:
        done = _done(bench, quarantine, replay)
        quarantine.close(life, done)
        left = {path: frozenset(n for n in lines if (path, n) not in done) for path, lines in replay.targets.items()}
        replay = dataclasses.replace(replay, targets={path: lines for path, lines in left.items() if lines})
    (found,) = run_tasks(spark, 1, lambda _: find_keys(replay, reader))
    fitting = [(path, n) for path, lines in replay.targets.items() for n in lines if (path, n) not in found.bad]
    if not fitting:
        return found
    staged = _stage(spark, *bench.storage(bench.state.find(life)), dataclasses.replace(replay, keys=found.keys), reader)
    try:
        if staged.report.failed:
            raise rejected(replay.frame, staged.report)
        mark = {REPLAY: quarantine.begin_replay(life, fitting)} if staged.rows and equal_rows else {}
        with bench.on(life) as work:
            if work.label.progress.tso != replay.frame.hi:
                raise TableMoved(
                    f"{life} advanced to {work.label.progress.tso} meanwhile. Plan again.", table=str(life)
                )
            if mark and _done(bench, quarantine, replay):
                raise TableMoved(f"{life}: another run has replayed records meanwhile. Plan again.", table=str(life))
            if staged.rows:
                io = bench.storage(work.lake_table)[1]
                batch = stage.read_manifest(io, staged.path)
                commit_stage(work.target, work.label, replay.frame, staged, batch, io, mark)
    finally:
        discard_window(bench, staged)
    quarantine.close(life, fitting)
    return found


def _done(bench: Workbench, quarantine: Quarantine, replay: Replay) -> set[tuple[str, int]]:
    """Return the records that are closed by now, or that a commit has added to the table without closing them."""
    life, waiting = replay.frame.life, quarantine.tokens(replay.frame.life)
    tokens = {token for some in waiting.values() for token in some}
    committed = {token for token in tokens if bench.state.snapshot_with(life, REPLAY, token) is not None}
    places = {(path, n) for path, lines in replay.targets.items() for n in lines}
    return {place for place in places if place not in waiting or waiting[place] & committed}


def _stage(
    spark: SparkSession, warehouse: str, io: Mapping[str, str], replay: Replay, reader: SplitReader
) -> StagedWindow:
    """Stage the changes of a replay's keys, with the columns of the table's present schema."""
    tasks = replay_tasks(replay)
    if not tasks:
        return StagedWindow("", 0, Report())
    return stage.stage_tasks(spark, warehouse, io, replay.frame, partial(read_replay, replay, reader), tasks)
