"""Cuts in Dagster: an asset with an event for each, and a schedule for regular ones.

Regular cuts are made by whichever run comes first after the end of an interval; the schedule asks for one where none
came, because nothing was committed.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg
from dagster._core.storage.tags import RUN_KEY_TAG, SCHEDULE_NAME_TAG
from dagster_aws.s3 import S3Resource

from cdc_assets.defs.events import RunEvents
from cdc_assets.defs.metadata import text_table
from cdc_assets.defs.names import asset_key
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.defs.sensor import UNFINISHED
from cdc_assets.errors import MetadataMissing
from cdc_assets.features.cuts.operations import waiting_cut
from cdc_assets.model.cuts import Cut, CutOutcome
from cdc_assets.model.tso import tso_time
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.pipeline.outcome import RunHooks

_TICKS = "*/5 * * * *"

_ASKED_SECONDS = 3600
"""Seconds for which the schedule leaves a cut to the run that it requested: a cut that a held table prevents stays
due."""


def cut_specs(source: ConfiguredFeed) -> list[dg.AssetSpec]:
    """Return the asset of a changefeed's cuts, where regular ones are made."""
    changefeed = source.changefeed
    if changefeed.cuts.every is None:
        return []
    return [
        dg.AssetSpec(
            asset_key(changefeed.name, "cuts"),
            deps=[asset_key(changefeed.name, "dml")],
            group_name=source.group,
            kinds={"iceberg"},
            owners=list(changefeed.owners),
            description=f"One state of all tables at one position, every {changefeed.cuts.every}; the newest "
            f"{changefeed.cuts.keep} are kept. Any engine reads a table of one with `VERSION AS OF '<its name>'`.",
        )
    ]


def job_events(
    context: dg.OpExecutionContext,
    source: ConfiguredFeed,
    pipeline: LakePipeline,
    carry_out: Callable[[RunHooks], Iterator[Cut]],
) -> Iterator[Any]:
    """Yield the events of the tables that were applied for a cut, and log that of the cut."""
    events = RunEvents(context, source, pipeline)
    events.begin()
    for made in carry_out(RunHooks(events.after)):
        context.log_event(_made(source.changefeed.name, made))
    yield from events.finish(pipeline.status())
    yield from events.close()


JOB_EVENTS = {"cut": job_events}


def events(changefeed: str, outcome: CutOutcome) -> list[dg.AssetMaterialization]:
    """Return the events of a cut that a run made."""
    return [] if outcome.cut is None else [_made(changefeed, outcome.cut)]


def _made(changefeed: str, cut: Cut) -> dg.AssetMaterialization:
    """Return the event of a cut: its position, and its tables with their snapshots."""
    heads = ("table", "snapshot", "applied_ts", "left_out", "lacks")
    rows = [
        (str(table.name), str(table.snapshot_id or ""), str(table.applied_ts or ""), table.why_not, table.lacks)
        for table in cut.tables
    ]
    metadata = {
        "cut": cut.name,
        "position": str(cut.at),
        "position_time": tso_time(cut.at),
        "tables": text_table(heads, rows) if rows else "none",
        "table_count": len(cut.taken),
        "left_out": len(cut.left_out),
        "exact": cut.exact,
        "read": dg.MetadataValue.md(f"`SELECT * FROM … VERSION AS OF '{cut.name}'`"),
    }
    return dg.AssetMaterialization(
        asset_key(changefeed, "cuts"), description=f"{cut.name}, as of {tso_time(cut.at)}", metadata=metadata
    )


def cut_schedules(source: ConfiguredFeed, catch_up: dg.JobDefinition, name: str) -> list[dg.ScheduleDefinition]:
    """Return the schedule of regular cuts, where the settings want any: it asks for a run that makes the one due."""
    settings = source.changefeed
    if settings.cuts.every is None:
        return []

    @dg.schedule(
        name=name,
        job=catch_up,
        cron_schedule=_TICKS,
        default_status=dg.DefaultScheduleStatus.RUNNING
        if settings.sensor_running
        else dg.DefaultScheduleStatus.STOPPED,
        description=f"Asks for a run where the cut of every {settings.cuts.every} is due and no run has made it; "
        "checking that takes no Spark.",
    )
    def schedule(context: dg.ScheduleEvaluationContext, s3: S3Resource) -> dg.RunRequest | dg.SkipReason:
        try:
            with source.pipeline(s3) as pipeline:
                position = waiting_cut(pipeline)
        except MetadataMissing as missing:
            return dg.SkipReason(str(missing))
        if position is None:
            return dg.SkipReason("no cut is due")
        if _is_asked(context.instance, name, str(position)):
            return dg.SkipReason("a run was asked for")
        return dg.RunRequest(str(position))

    return [schedule]


def _is_asked(instance: dg.DagsterInstance, schedule: str, key: str) -> bool:
    """Return whether a run that the schedule requested with that key has not ended, or was created lately.

    Dagster looks only whether the same tick has requested one: another tick requests a run with the same key again.
    """
    run_filter = dg.RunsFilter(tags={SCHEDULE_NAME_TAG: schedule, RUN_KEY_TAG: key})
    newest = next(iter(instance.get_run_records(run_filter, limit=1)), None)
    if newest is None:
        return False
    lately = time.time() - newest.create_timestamp.timestamp() < _ASKED_SECONDS
    status = newest.dagster_run.status  # a run that was not started by then was lost with the daemon
    return lately or (status in UNFINISHED and status is not dg.DagsterRunStatus.NOT_STARTED)
