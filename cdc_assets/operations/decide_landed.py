"""Decide about messages of topics: `cdc-assets landing release | accept-loss | declare-dead`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from cdc_assets.errors import BadSettings, CdcError
from cdc_assets.landing import decisions
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.operations.opening import read_ledger
from cdc_assets.report.landings import DecisionText, UnreadText, describe_decisions, describe_unread

if TYPE_CHECKING:
    from cdc_assets.landing.landing import Landing
    from cdc_assets.pipeline.pipeline import Pipeline
    from cdc_assets.settings.lake import LakeSettings


def release_message(
    pipeline: Pipeline, partition: Partition, offset: int, *, again: bool = False, who: str = "", run: str = ""
) -> tuple[TableId, ...]:
    """Go past a message that cannot be read, or read it `again`.

    Returns the tables that are applied beyond rows of it: they hold until they are rebuilt. Raises BadSettings for a
    message that holds nothing, MalformedData for one that still cannot be read.
    """
    landing = _landing(pipeline.landing, pipeline.settings.name)
    late = decisions.release(
        landing, partition, offset, again=again, applied=_through(pipeline), by=decisions.DecidedBy.now(who)
    )
    decision_text = "read again" if again else "passed over"
    _journal(pipeline, partition, offset, "landing release", f"{partition} offset {offset} {decision_text}", who, run)
    return late


def accept_loss(pipeline: Pipeline, lost: OffsetRange, who: str = "", run: str = "") -> None:
    """Write down that messages are gone for good. Raises BadSettings for those that are landed, or that are there."""
    decisions.accept_loss(_landing(pipeline.landing, pipeline.settings.name), lost, decisions.DecidedBy.now(who))
    decision_text = f"{lost.partition}: the loss of {lost.start}..{lost.stop - 1} accepted"
    _journal(pipeline, lost.partition, lost.start, "landing accept-loss", decision_text, who, run)


def declare_dead(pipeline: Pipeline, partition: Partition, who: str = "", run: str = "") -> None:
    """Write down that nothing comes to a partition of an archive any more. Raises BadSettings for any other."""
    decisions.declare_dead(_landing(pipeline.landing, pipeline.settings.name), partition, decisions.DecidedBy.now(who))
    _journal(pipeline, partition, 0, "landing declare-dead", f"{partition} declared dead", who, run)


def decided(lake: LakeSettings, names: Iterable[str]) -> tuple[list[DecisionText], list[UnreadText]]:
    """Return the decisions of people about messages of changefeeds, by time, and the messages that wait for one."""
    from cdc_assets.landing.iceberg import LandingTable
    from cdc_assets.landing.landing import landed_in

    with read_ledger(lake):  # a missing lake is an error, and not created
        pass
    done: list[DecisionText] = []
    open_ones: list[UnreadText] = []
    for name in names:
        with closing(LandingTable(lake, name)) as table:
            landed = landed_in(table)
        done += describe_decisions(name, landed)
        open_ones += describe_unread(name, landed)
    return sorted(done, key=lambda decision: decision.when), open_ones


def _landing(landing: Landing | None, changefeed: str) -> Landing:
    if landing is None:
        raise BadSettings(
            f"the changefeed {changefeed} is files in a bucket: nothing of it is landed, and there is no message to "
            "decide about. `cdc-assets release` decides its DDL."
        )
    return landing


def _through(pipeline: Pipeline) -> Callable[[TableId], Tso]:
    """Return through which TSO a table is applied, by any name that it ever had."""
    applied = pipeline.lake.applied()
    names = {
        life: {life.born_as.folded, *((state.name.folded,) if state.name else ())} for life, state in applied.items()
    }
    is_known = False
    with suppress(CdcError):
        lives = pipeline.planner.plan()[1].history.lives
        is_known = True
        for life in names.keys() & lives.keys():
            names[life] |= {name.folded for name, _, _ in lives[life].names}

    def through(table: TableId) -> Tso:
        named_lives = [life for life in applied if table.folded in names[life]]
        of = named_lives if named_lives or is_known else applied  # of which table the rows are is not known
        return max((applied[life].progress.tso for life in of), default=0)

    return through


def _journal(pipeline: Pipeline, partition: Partition, offset: int, action: str, what: str, who: str, run: str) -> None:
    place = TableId(str(partition), "")
    text = f"{what}, says {who}" if who else what
    pipeline.journal.note(Life(place, offset), place, action, text, run)
