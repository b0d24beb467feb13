"""Jobs and schedules of operations, each built from its value."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

import dagster as dg
from dagster_aws.s3 import S3Resource
from dagster_pyspark import LazyPySparkResource

from cdc_assets.defs.checks import evaluation, evaluations, states_result
from cdc_assets.defs.failures import as_failure
from cdc_assets.defs.metadata import ddl_metadata, dml_metadata, metadata_of, sql_text
from cdc_assets.defs.names import add_keys, asset_key, lake_key, new_keys
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.errors import BadSettings, MetadataMissing
from cdc_assets.features.dumps.defs import log_rebuilt
from cdc_assets.features.kinds.decoding import keeps_states
from cdc_assets.model.features import parts
from cdc_assets.model.tso import tso_time
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.maintenance import MaintenanceResult
from cdc_assets.operations.rebuild import SwappedTable
from cdc_assets.operations.requests import REQUIRED, Operation, OperationRun, Request
from cdc_assets.pipeline.outcome import RunHooks
from cdc_assets.planning.partitions import format_partition_key, format_table
from cdc_assets.report.plan_text import log_steps
from cdc_assets.run_coordinator import TABLE_TAG, TABLES_TAG

Events = Callable[[dg.OpExecutionContext, ConfiguredFeed, LakePipeline, Callable[..., Iterator[Any]]], Iterator[Any]]
"""Yields the events of an operation; the last argument, called with hooks or none, carries it out part by part."""


def operation_job(source: ConfiguredFeed, operation: Operation[Any]) -> dg.JobDefinition:
    """Return the job of an operation: its request as launch form, and its report as metadata."""
    name = f"{source.group}_{operation.name}"

    @dg.op(
        name=f"{name}_{operation.op}",
        description=operation.work,
        config_schema=launch_form(operation.request),
        out=dg.Out(dg.Nothing),
        pool="spark" if operation.writes else None,
    )
    def carry_out(context: dg.OpExecutionContext, pyspark: LazyPySparkResource, s3: S3Resource) -> Iterator[Any]:
        def consent(question: str) -> None:
            if not request.confirmed:
                raise BadSettings(f"{question} That cannot be undone. Set confirmed to true, and launch the job again.")

        def carried_out(hooks: RunHooks | None = None) -> Iterator[Any]:
            run = OperationRun(context.run_id, context.log.info, consent, "dagster", hooks=hooks)
            for part in operation.carry_out(pipeline, run, request):
                parts_done.append(part)
                yield part

        with as_failure():
            request, parts_done = operation.request(**context.op_config), list[Any]()
            request.check()
            request.check_settings(source.changefeed)
            with source.pipeline(s3, pyspark, log_steps(context.log.info)) as pipeline:
                yield from _events_of(operation.name)(context, source, pipeline, carried_out)
            request.check_done(parts_done)
            report = operation.report(source.changefeed.name, request, parts_done)
            metadata = metadata_of(report.figures)
            if report.failure:
                raise dg.Failure(report.failure, metadata, allow_retries=report.repeatable)
            yield dg.Output(None, metadata=metadata)

    return source.job(name, carry_out, operation.job, operation.scaffold)


def launch_form(request: type[Request]) -> dict[str, dg.Field]:
    """Return the fields of a request that people fill in, as an op's config."""
    form = {}
    for field in fields(request):
        if field.metadata["place"] == "command":
            continue
        default_value = field.default
        kind: Any = dg.Array(str) if default_value == () else bool if default_value is False else str
        default: Any = (
            {} if default_value is REQUIRED else {"default_value": [] if default_value == () else default_value}
        )
        form[field.name] = dg.Field(kind, description=field.metadata["description"], **default)
    return form


def operation_schedule(
    source: ConfiguredFeed, operation: Operation[Any], job: dg.JobDefinition
) -> dg.ScheduleDefinition:
    """Return the schedule of an operation that has one, stopped unless its section of the settings says `running`.

    Raises BadSettings for a cron expression that Dagster does not know.
    """
    regular = operation.schedule
    assert regular is not None
    section = getattr(source.changefeed, regular.section)

    def requested(context: dg.ScheduleEvaluationContext, s3: S3Resource) -> dg.RunRequest | dg.SkipReason:
        if not regular.checks:
            return dg.RunRequest()
        try:
            with source.pipeline(s3) as pipeline:
                work = operation.due(pipeline)
        except MetadataMissing as missing:
            return dg.SkipReason(str(missing))
        if work.why_none:
            return dg.SkipReason(work.why_none)
        tags = {TABLES_TAG: str(len(work.tables))}
        if len(work.tables) == 1 and work.tables[0] is not None:
            tags[TABLE_TAG] = format_table(work.tables[0])  # the queue serializes it with the table's writers
        return dg.RunRequest(tags=tags)

    schedule = dg.schedule(
        name=f"{source.group}_{regular.word}",
        job=job,
        cron_schedule=section.cron,
        default_status=dg.DefaultScheduleStatus.RUNNING if section.running else dg.DefaultScheduleStatus.STOPPED,
        description=regular.description,
    )
    try:
        return schedule(requested)
    except dg.DagsterInvalidDefinitionError:
        example = type(section).model_fields["cron"].default
        raise BadSettings(
            f'setting "{regular.section}.cron" of the changefeed {source.changefeed.name} is {section.cron!r}; '
            f'expected the five fields of cron, such as "{example}". Correct the settings.'
        ) from None


# --- what Dagster logs of each part -----------------------------------------------------------------------------------


def _events_of(name: str) -> Events:
    of_features = {name: events for _, module in parts("defs") for name, events in module.JOB_EVENTS.items()}
    events_by_name: Mapping[str, Events] = {"maintain": _maintained, "rebuild": _rebuilt, **of_features}
    return events_by_name.get(name, _no_events)


def _no_events(
    context: dg.OpExecutionContext,
    source: ConfiguredFeed,
    pipeline: LakePipeline,
    carry_out: Callable[[], Iterator[Any]],
) -> Iterator[Any]:
    for _ in carry_out():
        yield from ()


def _maintained(
    context: dg.OpExecutionContext,
    source: ConfiguredFeed,
    pipeline: LakePipeline,
    carry_out: Callable[[], Iterator[MaintenanceResult]],
) -> Iterator[Any]:
    """Yield an observation of each table, and the check of its rows where these were looked at."""
    for done in carry_out():
        for table in done.tables:
            if table.name is not None:
                key = lake_key(source.changefeed, table.name)
                if table.looked and table.life is not None and keeps_states(table.life.kind):
                    yield evaluation(key, states_result(key, table.problem, "All states were looked at."))
                yield dg.AssetObservation(key, description=f"maintenance: {table.due}", metadata={**table.figures()})


def _rebuilt(
    context: dg.OpExecutionContext,
    source: ConfiguredFeed,
    pipeline: LakePipeline,
    carry_out: Callable[[], Iterator[SwappedTable]],
) -> Iterator[Any]:
    """Add partitions that are new, and yield the events and checks of the tables that were swapped."""
    done = list(carry_out())
    if not done:
        return
    tables = source.lake_tables()
    name, outcome = source.changefeed.name, pipeline.status()
    add_keys(context.instance, name, new_keys(context.instance, name, outcome.plan))
    for table in done:
        key = log_rebuilt(context, source, outcome.plan, table.life)
        if key is None:
            continue
        # The table begins with a dump now: these are the events of its first partition.
        description, partition = "built anew from the dump, with all that came since", format_partition_key(key)
        ddl = ddl_metadata(outcome.plan, key, pipeline.ledger.journal(name, key.version))
        dml = dml_metadata(outcome.plan, key, None, 0)
        for asset, metadata in (("ddl", ddl), ("dml", dml)):
            yield dg.AssetMaterialization(asset_key(name, asset), description, metadata, partition)
    yield from evaluations(source, pipeline, outcome, {table.life for table in done})
    for table in done:
        if table.name is not None:
            yield dg.AssetMaterialization(
                lake_key(source.changefeed, table.name),
                description=f"rebuilt from its history through {tso_time(table.through)}",
                metadata=_swap_figures(table, tables[table.life].rows),
            )


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
