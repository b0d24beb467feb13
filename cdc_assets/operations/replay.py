"""Quarantined records applied after a fix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from cdc_assets.errors import CdcError, InputError, Retryable, TableHeld
from cdc_assets.model.progress import AppliedState, Life, Phase
from cdc_assets.model.quarantine import OPEN, QuarantinedRow
from cdc_assets.model.schema import TableId
from cdc_assets.operations.named import is_called
from cdc_assets.pipeline.pipeline import looking_again
from cdc_assets.planning.replay import plan_replay

if TYPE_CHECKING:
    from cdc_assets.pipeline.pipeline import Pipeline

__all__ = ["ReplayResult", "replay"]


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of replaying one table's records. `left` are still open; `reason` says why some were not replayed."""

    life: Life
    table: TableId
    rows: int = 0
    left: int = 0
    reason: str = ""
    error: CdcError | None = field(default=None, compare=False)


def replay(pipeline: Pipeline, table: str = "") -> tuple[ReplayResult, ...]:
    """Replay the open records of a changefeed, or of one table (`schema.table`); a failed table stops no other."""
    applied = pipeline.lake.applied()  # before the records: tables of which rows are forgotten from here on refuse them
    lives: dict[Life, list[QuarantinedRow]] = {}
    for row in pipeline.lake.quarantined():
        if row.state == OPEN and (not table or is_called(table, (row.table, row.life, row.life.born_as))):
            lives.setdefault(row.life, []).append(row)
    if not lives:
        return ()
    done = []
    for life, rows in sorted(lives.items()):
        name, left = rows[-1].table, len(rows)
        try:
            if life not in applied:
                raise TableHeld(f"{life} is not in the lake. Apply the changefeed first.", table=str(life))
            due = [row for row in rows if _is_left_out(row, applied[life])]
            if not due:
                raise TableHeld(
                    f"{life} is not applied through the window of its quarantined records. Apply the changefeed first.",
                    table=str(life),
                )
            for some in _apart(due, applied[life]):
                left -= len(some) - looking_again(partial(_replay_one, pipeline, some, applied[life]))
            done.append(ReplayResult(life, name, len(rows) - left, left))
        except (InputError, Retryable) as error:
            done.append(ReplayResult(life, name, len(rows) - left, left, error.message, error))
    return tuple(done)


def _is_left_out(row: QuarantinedRow, applied: AppliedState) -> bool:
    """Return whether the table has a window without a record: that in which it was set aside may not be applied."""
    through = applied.progress.tso - (applied.progress.phase is Phase.DDL)
    return row.lo < through if row.commit_ts is None else row.commit_ts <= through


def _apart(rows: Sequence[QuarantinedRow], applied: AppliedState) -> Iterator[Sequence[QuarantinedRow]]:
    """Yield the records that were set aside after rows of their table were forgotten, and those from before that.

    A replay reads from the earliest window of its records on, and the files have the forgotten rows.
    """
    for older in (False, True):
        if some := [row for row in rows if (row.lo < applied.forgotten) == older]:
            yield some


def _replay_one(pipeline: Pipeline, rows: Sequence[QuarantinedRow], applied: AppliedState) -> int:
    settings = pipeline.settings
    planned = plan_replay(
        rows,
        pipeline.source.listing(),
        applied,
        pipeline.planner.rules(),
        positions=settings.source_options.wire.has_positions,
        read_before=pipeline.ledger.files_of(settings.name, rows[0].life.source),
    )
    return len(pipeline.lake.replay(planned, pipeline.source.reader).bad)
