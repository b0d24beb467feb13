"""Jobs and schedules of operations: a launch form with the fields of the request, and one op that carries it out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import partial
from typing import Any, TypeVar

import dagster as dg
from dagster_aws.s3 import S3Resource
from dagster_pyspark import LazyPySparkResource

from cdc_assets.defs.failures import as_failure
from cdc_assets.defs.resources import ConfiguredFeed, OpenFeed
from cdc_assets.errors import BadSettings, MetadataMissing
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.requests import Request

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
