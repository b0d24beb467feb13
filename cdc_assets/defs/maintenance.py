"""The job that maintains the lake's files, and its schedule, which requests a run only if something is due."""

import time
from collections.abc import Iterator
from typing import Any

import dagster as dg

from cdc_assets.defs.checks import evaluation, states_result
from cdc_assets.defs.metadata import text_table
from cdc_assets.defs.names import lake_key
from cdc_assets.defs.operations import operation_job, operation_schedule
from cdc_assets.defs.resources import ConfiguredFeed, OpenFeed
from cdc_assets.features.kinds.decoding import keeps_states
from cdc_assets.model.wording import counted
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.maintenance import MOVE_HEADS, MaintenanceResult, maintain
from cdc_assets.operations.requests import MaintenanceRequest
from cdc_assets.planning.partitions import format_table
from cdc_assets.run_coordinator import TABLE_TAG, TABLES_TAG


def maintenance_job(source: ConfiguredFeed, job_name: str) -> dg.JobDefinition:
    """Return the job; it takes the writers' slot (pool `spark`)."""

    def maintain_tables(
        context: dg.OpExecutionContext, request: MaintenanceRequest, open_feed: OpenFeed
    ) -> Iterator[Any]:
        """Compact, rewrite manifests, expire snapshots, remove orphan files, as far as due, table by table."""
        with open_feed() as pipeline:
            upkept = maintain(pipeline, _now_ms(), request.tables, request.dry_run, context.log.info)
        context.add_output_metadata(_figures(upkept), output_name="result")
        for table in upkept.tables:
            if table.name is not None:
                key = lake_key(source.changefeed, table.name)
                if table.looked and table.life is not None and keeps_states(table.life.kind):
                    yield evaluation(key, states_result(key, table.problem, "All states were looked at."))
                yield dg.AssetObservation(key, description=f"maintenance: {table.due}", metadata={**table.figures()})
        problems = [f"{table.before.table}: {table.problem}" for table in upkept.tables if table.problem]
        if problems:
            raise dg.Failure("\n".join(problems), allow_retries=False)
        yield dg.Output(None)

    description = (
        "Compacts small files and deleted rows, rewrites manifests, expires snapshots and removes orphan "
        "files, if that is due by the changefeed's `maintenance` settings. Progress is kept, and so are snapshots that "
        "an open partition exchange reads. In a race with a writer one of the two wins, and the other retries."
    )
    return operation_job(source, f"{job_name}_tables", MaintenanceRequest, maintain_tables, description)


def maintenance_schedule(source: ConfiguredFeed, job: dg.JobDefinition, name: str) -> dg.ScheduleDefinition:
    """Return the schedule of the changefeed's maintenance settings. Raises BadSettings."""

    def requested(pipeline: LakePipeline) -> dg.RunRequest | dg.SkipReason:
        due = maintain(pipeline, _now_ms(), dry=True)
        if due.is_idle:
            return dg.SkipReason(f"nothing is due for {counted(due.idle, 'table')}")
        tags = {TABLES_TAG: str(len(due.tables))}
        names = [table.name for table in due.tables if table.name is not None]
        if len(due.tables) == len(names) == 1:
            tags[TABLE_TAG] = format_table(names[0])  # the queue serializes it with the table's writers
        return dg.RunRequest(tags=tags)

    description = "Requests a run of maintenance if something is due; checking that takes no Spark."
    return operation_schedule(source, job, name, "maintenance", description, requested)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _figures(upkept: MaintenanceResult) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "tables_maintained": len(upkept.tables),
        "tables_idle": upkept.idle,
        "stages_removed": upkept.stages,
        "rebuild_tables_removed": upkept.aside,
        **{f"{what}_removed": len(names) for what, names in upkept.removed.items()},
        "orphan_files_removed": sum(table.orphans for table in upkept.tables),
        **(upkept.landing.figures() if upkept.landing is not None else {}),
        **({"landing_due": str(upkept.landing_due)} if upkept.landing_due else {}),
    }
    for name in ("data_files", "data_bytes", "delete_files", "snapshots"):
        figures[f"{name}_before"] = sum(getattr(table.before, name) for table in upkept.tables)
        figures[name] = sum(getattr(table.after, name) for table in upkept.tables)
    columns = ["table", "done", *MOVE_HEADS, "problem"]
    rows = [(table.before.table, str(table.due), *table.moves, table.problem) for table in upkept.tables]
    return {**figures, "tables": text_table(columns, rows)} if rows else figures
