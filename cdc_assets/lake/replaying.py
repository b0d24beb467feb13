"""Quarantined records that fit now, applied to their table in one commit.

In a table that may have equal rows a replay must not be added twice: its commit carries a token, under which the
records are marked before.
"""

from __future__ import annotations

import dataclasses

from cdc_assets.decoding.kinds import kind_of
from cdc_assets.decoding.replay import Found, Replay
from cdc_assets.decoding.window import rejected
from cdc_assets.errors import TableMoved
from cdc_assets.formats import SplitReader
from cdc_assets.lake import quarantine
from cdc_assets.lake.commit_stage import commit_stage
from cdc_assets.lake.staging import stage
from cdc_assets.lake.windows import discard_window
from cdc_assets.lake.workbench import Workbench

__all__ = ["REPLAY", "replay_records"]

REPLAY = "cdc.replay"
"""Snapshot property: the token of a replay, which proves that it was committed."""


def replay_records(bench: Workbench, replay: Replay, reader: SplitReader) -> Found:
    """Merge the changes of quarantined records' keys in one commit, and mark the records that fit now.

    Raises TableMoved if the table's progress is no longer `replay.frame.hi`.
    """
    life, spark = replay.frame.life, bench.sessions.side().spark
    if kind_of(replay.frame.schema).EQUAL_ROWS:
        replay = _without_done(bench, replay)
    found = quarantine.find(spark, replay, reader)
    fitting = [(path, n) for path, lines in replay.targets.items() for n in lines if (path, n) not in found.bad]
    if not fitting:
        return found
    staged = quarantine.stage_replay(
        spark, *bench.storage(bench.state.find(life)), dataclasses.replace(replay, keys=found.keys), reader
    )
    try:
        if staged.report.failed:
            raise rejected(replay.frame, staged.report)
        with bench.on(life) as work:
            if work.label.progress.tso != replay.frame.hi:
                raise TableMoved(
                    f"{life} advanced to {work.label.progress.tso} meanwhile. Plan again.", table=str(life)
                )
            if staged.rows and kind_of(replay.frame.schema).EQUAL_ROWS:
                work.session.label({REPLAY: quarantine.replaying(bench.sessions.side, bench.state, life, fitting)})
            if staged.rows:
                io = bench.storage(work.lake_table)[1]
                batch = stage.read_manifest(io, staged.path)
                commit_stage(work.target, work.label, replay.frame, staged, batch, io)
    finally:
        discard_window(bench, staged)
    quarantine.close(bench.sessions.side, bench.state, life, fitting)
    return found


def _without_done(bench: Workbench, replay: Replay) -> Replay:
    """Leave out records whose replay was committed by a run that was killed before it could mark them."""
    life = replay.frame.life
    done: set[tuple[str, int]] = set()
    for token, lines in quarantine.begun(bench.state, life).items():
        if bench.state.snapshot_with(life, REPLAY, token) is not None:
            quarantine.close(bench.sessions.side, bench.state, life, lines)
            done.update(lines)
    left = {path: frozenset(n for n in lines if (path, n) not in done) for path, lines in replay.targets.items()}
    return dataclasses.replace(replay, targets={path: lines for path, lines in left.items() if lines})
