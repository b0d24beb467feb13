"""The job that maintains the lake's files, and its schedule, which requests a run only if something is due."""

import time
from collections.abc import Iterator
from typing import Any

import dagster as dg
from dagster_aws.s3 import S3Resource
from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from cdc_assets.decoding.kinds import keeps_states
from cdc_assets.defs.checks import evaluation, states_result
from cdc_assets.defs.failures import as_failure, known_cron
from cdc_assets.defs.metadata import text_table
from cdc_assets.defs.names import lake_key
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.errors import MetadataMissing
from cdc_assets.model.wording import counted
from cdc_assets.operations.maintenance import MOVE_HEADS, MaintenanceResult, maintain
from cdc_assets.planning.partitions import format_table
from cdc_assets.run_coordinator import TABLE_TAG, TABLES_TAG


class MaintenanceConfig(dg.Config):
    """Which tables are maintained; default: all, and those of the lake itself."""

    tables: list[str] = Field(
        default_factory=list,
        description="Only these tables, as `schema.table`, `schema.table@first version`, or by their names in the "
        "lake (`_cdc.quarantine`).",
    )
    dry_run: bool = Field(default=False, description="Only show what is due.")


def maintenance_job(source: ConfiguredFeed, job_name: str) -> dg.JobDefinition:
    """Return the job; it takes the writers' slot (pool `spark`)."""

    @dg.op(name=f"{job_name}_tables", out=dg.Out(dg.Nothing), pool="spark")
    def maintain_tables(
        context: dg.OpExecutionContext, config: MaintenanceConfig, pyspark: LazyPySparkResource, s3: S3Resource
    ) -> Iterator[Any]:
        """Compact, rewrite manifests, expire snapshots, remove orphan files, as far as due, table by table."""
        with as_failure(), source.pipeline(s3, pyspark) as pipeline:
            upkept = maintain(pipeline, _now_ms(), config.tables, config.dry_run, context.log.info)
        context.add_output_metadata(_figures(upkept), output_name="result")
        for table in upkept.tables:
            if table.name is not None and table.looked and table.life is not None and keeps_states(table.life.kind):
                key = lake_key(source.changefeed, table.name)
                yield evaluation(key, states_result(key, table.problem, "All states were looked at."))
            if table.name is not None:
                metadata: dict[str, Any] = table.figures()
                yield dg.AssetObservation(
                    lake_key(source.changefeed, table.name), description=f"maintenance: {table.due}", metadata=metadata
                )
        problems = [f"{table.before.table}: {table.problem}" for table in upkept.tables if table.problem]
        if problems:
            raise dg.Failure("\n".join(problems), allow_retries=False)
        yield dg.Output(None)

    description = (
        "Compacts small files and deleted rows, rewrites manifests, expires snapshots and removes orphan "
        "files, if that is due by the changefeed's `maintenance` settings. Progress is kept, and so are snapshots that "
        "an open partition exchange reads. In a race with a writer one of the two wins, and the other retries."
    )
    return source.job(job_name, maintain_tables, description)


def maintenance_schedule(source: ConfiguredFeed, job: dg.JobDefinition, name: str) -> dg.ScheduleDefinition:
    """Return the schedule of the changefeed's maintenance settings; it is stopped unless they say `running`.

    Raises BadSettings for a cron expression that Dagster does not know.
    """
    settings = source.changefeed.maintenance

    def requested(context: dg.ScheduleEvaluationContext, s3: S3Resource) -> dg.RunRequest | dg.SkipReason:
        try:
            with source.pipeline(s3) as pipeline:
                due = maintain(pipeline, _now_ms(), dry=True)
        except MetadataMissing as missing:
            return dg.SkipReason(str(missing))
        if due.is_idle:
            return dg.SkipReason(f"nothing is due for {counted(due.idle, 'table')}")
        tags = {TABLES_TAG: str(len(due.tables))}
        names = [table.name for table in due.tables if table.name is not None]
        if len(due.tables) == len(names) == 1:
            tags[TABLE_TAG] = format_table(names[0])  # the queue serializes it with the table's writers
        return dg.RunRequest(tags=tags)

    schedule = dg.schedule(
        name=name,
        job=job,
        cron_schedule=settings.cron,
        default_status=dg.DefaultScheduleStatus.RUNNING if settings.running else dg.DefaultScheduleStatus.STOPPED,
        description="Requests a run of maintenance if something is due; checking that takes no Spark.",
    )
    with known_cron(source.changefeed.name, "maintenance.cron", settings.cron, "17 3 * * *"):
        return schedule(requested)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _figures(upkept: MaintenanceResult) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "tables_maintained": len(upkept.tables),
        "tables_idle": upkept.idle,
        "stages_removed": upkept.stages,
        "rebuild_tables_removed": upkept.aside,
        "cuts_removed": len(upkept.cuts),
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
