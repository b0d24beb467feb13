"""Jobs and schedules of operations: a launch form with the fields of the request, and one op that carries it out."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import partial
from typing import Any, TypeVar

import dagster as dg
from dagster_aws.s3 import S3Resource
from dagster_pyspark import LazyPySparkResource

from cdc_assets.defs.checks import evaluation, evaluations, states_result
from cdc_assets.defs.failures import as_failure
from cdc_assets.defs.metadata import ddl_metadata, dml_metadata, sql_text, text_table
from cdc_assets.defs.names import add_keys, asset_key, lake_key, new_keys
from cdc_assets.defs.resources import ConfiguredFeed, OpenFeed
from cdc_assets.errors import BadSettings, MetadataMissing
from cdc_assets.features.dumps.defs import log_rebuilt
from cdc_assets.features.kinds.decoding import keeps_states
from cdc_assets.model.tso import tso_time
from cdc_assets.model.wording import counted
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.maintenance import MOVE_HEADS, MaintenanceResult, maintain
from cdc_assets.operations.rebuild import SwappedTable, rebuild, requested_tables
from cdc_assets.operations.requests import MaintenanceRequest, RebuildRequest, Request
from cdc_assets.planning.partitions import format_partition_key, format_table
from cdc_assets.planning.plan import Plan
from cdc_assets.run_coordinator import TABLE_TAG, TABLES_TAG

R = TypeVar("R", bound=Request)

Body = Callable[[dg.OpExecutionContext, R, OpenFeed], Iterator[Any]]
"""Carries out a request on a feed that it opens, and yields the events of it."""


def operation_job(
    source: ConfiguredFeed,
    op_name: str,
    request: type[R],
    body: Body[R],
    description: str,
    *,
    writes: bool = True,
    scaffold: Mapping[str, Any] | None = None,
) -> dg.JobDefinition:
    """Return the job of an operation; its name is that of its op, less the last word.

    Args:
        source: The changefeed.
        op_name: The op's name: the job's, and a word.
        request: Its fields are those of the launch form.
        body: Carries out a request; its docstring describes the op.
        description: What people read of the job.
        writes: Whether the job takes the writers' slot (pool `spark`).
        scaffold: The config with which the launch form opens.
    """

    @dg.op(
        name=op_name,
        description=body.__doc__,
        config_schema=_launch_form(request),
        out=dg.Out(dg.Nothing),
        pool="spark" if writes else None,
    )
    def carry_out(context: dg.OpExecutionContext, pyspark: LazyPySparkResource, s3: S3Resource) -> Iterator[Any]:
        with as_failure():
            wanted = request(**context.op_config)
            wanted.check()
            yield from body(context, wanted, partial(source.pipeline, s3, pyspark))

    return source.job(op_name.rpartition("_")[0], carry_out, description, scaffold)


def _launch_form(request: type[Request]) -> dict[str, dg.Field]:
    form = {}
    for field in fields(request):
        given = None if field.default is MISSING else field.default
        kind: Any = dg.Array(str) if given == () else bool if given is False else str
        default: Any = {} if given is None else {"default_value": [] if given == () else given}
        form[field.name] = dg.Field(kind, description=field.metadata["description"], **default)
    return form


def operation_schedule(
    source: ConfiguredFeed,
    job: dg.JobDefinition,
    name: str,
    setting: str,
    description: str,
    due: Callable[[LakePipeline], dg.RunRequest | dg.SkipReason] | None = None,
) -> dg.ScheduleDefinition:
    """Return the schedule of the section `setting`, stopped unless that says `running`; `due` may skip a tick.

    Raises BadSettings for a cron expression that Dagster does not know.
    """
    section = getattr(source.changefeed, setting)

    def requested(context: dg.ScheduleEvaluationContext, s3: S3Resource) -> dg.RunRequest | dg.SkipReason:
        if due is None:
            return dg.RunRequest()
        try:
            with source.pipeline(s3) as pipeline:
                return due(pipeline)
        except MetadataMissing as missing:
            return dg.SkipReason(str(missing))

    status = dg.DefaultScheduleStatus.RUNNING if section.running else dg.DefaultScheduleStatus.STOPPED
    schedule = dg.schedule(
        name=name, job=job, cron_schedule=section.cron, default_status=status, description=description
    )
    try:
        return schedule(requested)
    except dg.DagsterInvalidDefinitionError:
        example = type(section).model_fields["cron"].default
        raise BadSettings(
            f'setting "{setting}.cron" of the changefeed {source.changefeed.name} is {section.cron!r}; expected the '
            f'five fields of cron, such as "{example}". Correct the settings.'
        ) from None


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


def rebuild_job(source: ConfiguredFeed, job_name: str) -> dg.JobDefinition:
    """Return the job, with a description of its options for the launch form."""

    def rebuild_tables(context: dg.OpExecutionContext, request: RebuildRequest, open_feed: OpenFeed) -> Iterator[Any]:
        """Build the tables aside, swap each in one commit, and remove the aside tables."""
        with open_feed() as pipeline:
            done = _rebuilt(context, request, pipeline)
            if not done:
                return
            tables = source.lake_tables()
            yield from _events(context, source, pipeline, done)
        for table in done:
            if table.name is not None:
                yield dg.AssetMaterialization(
                    lake_key(source.changefeed, table.name),
                    description=f"rebuilt from its history through {tso_time(table.through)}",
                    metadata=_swap_figures(table, tables[table.life].rows),
                )

    description = (
        "Builds tables aside from the changefeed's whole recorded history and swaps each in one commit: "
        "readers see the old rows or the new ones, never none. Refused, with nothing changed, if the history begins "
        "with neither CREATE TABLE nor a dump, if files of it are missing, if a table is held or if records are in "
        "quarantine. A killed run is continued by the next one. Writers may go on meanwhile, and wait where one was "
        "faster than a swap; with the tag "
        f"`{TABLE_TAG}` = `schema.table`, written as in the table's partitions, its partitions wait in the queue."
    )
    scaffold: dict[str, Any] = {"tables": []}
    return operation_job(source, f"{job_name}_tables", RebuildRequest, rebuild_tables, description, scaffold=scaffold)


def _rebuilt(context: dg.OpExecutionContext, request: RebuildRequest, pipeline: LakePipeline) -> Sequence[SwappedTable]:
    """Rebuild the tables that the run is asked for."""
    from cdc_assets.lake.swap import Rebuilds

    tables = requested_tables(pipeline, request)
    if tables is None:
        context.log.info("no incomplete table is in a dump: nothing is to be imported")
        return ()

    def consent(losses: str) -> None:
        if not request.confirmed:
            raise BadSettings(f"{losses}\nThat cannot be undone. Set confirmed to true, and launch the job again.")

    return rebuild(pipeline, Rebuilds(pipeline.lake), tables, context.run_id, context.log.info, consent)


def _events(
    context: dg.OpExecutionContext, source: ConfiguredFeed, pipeline: LakePipeline, done: Sequence[SwappedTable]
) -> Iterator[Any]:
    """Add partitions that are new, and yield the events and checks of what was rebuilt."""
    name, outcome = source.changefeed.name, pipeline.status()
    add_keys(context.instance, name, new_keys(context.instance, name, outcome.plan))
    for table in done:
        yield from _partitions(context, source, pipeline, outcome.plan, table)
    yield from evaluations(source, pipeline, outcome, {table.life for table in done})


def _partitions(
    context: dg.OpExecutionContext, source: ConfiguredFeed, pipeline: LakePipeline, plan: Plan, table: SwappedTable
) -> Iterator[dg.AssetMaterialization]:
    """Yield the events of `ddl` and `dml` for a table that begins with a dump now: its first partition."""
    key = log_rebuilt(context, source, plan, table.life)
    if key is None:
        return
    name, partition = source.changefeed.name, format_partition_key(key)
    description = "built anew from the dump, with all that came since"
    ddl = ddl_metadata(plan, key, pipeline.ledger.journal(name, key.version))
    dml = dml_metadata(plan, key, None, 0)
    for asset, metadata in (("ddl", ddl), ("dml", dml)):
        yield dg.AssetMaterialization(asset_key(name, asset), description, metadata, partition)


def _swap_figures(table: SwappedTable, rows: int | None) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "rebuilt": True,
        "applied_ts": table.through,
        "applied_time": tso_time(table.through),
        "statements": sql_text(table.result.statements),
        "snapshot_before": str(table.result.snapshot_before),
        "snapshot_after": str(table.result.snapshot_after),
        "swap_seconds": table.result.seconds,
    }
    return figures if rows is None else {**figures, "dagster/row_count": dg.MetadataValue.int(rows)}
