"""The sensor on the checkpoint: it compares what is available with what is applied and asks for what is due.

It keeps no history of its own. A tick without a new checkpoint costs one small read. Whatever a crash or a failed run
left behind is due again at a later tick.
"""

import json
from collections.abc import Sequence

import dagster as dg
from dagster_aws.s3 import S3Resource

from cdc_assets.defs.resources import Source
from cdc_assets.errors import MetadataMissing
from cdc_assets.model import HoldTable, Life
from cdc_assets.partitions import format_partition_key, partition_keys
from cdc_assets.plan import Plan

__all__ = ["checkpoint_sensor"]

MAX_NEW_KEYS = 500
"""Keys asked of the daemon in one tick; more are added directly, which is a hundred times cheaper."""

_UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def checkpoint_sensor(
    source: Source, partitions: dg.DynamicPartitionsDefinition, job: dg.JobDefinition, name: str
) -> dg.SensorDefinition:
    """Return the sensor of one changefeed; it runs from the start where the settings say `sensor_running`."""
    running = source.changefeed.sensor_running

    @dg.sensor(
        name=name,
        job=job,
        minimum_interval_seconds=source.changefeed.sensor_interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING if running else dg.DefaultSensorStatus.STOPPED,
        description="Watches the changefeed's checkpoint, adds partitions for new schema files, requests what is due.",
    )
    def sensor(context: dg.SensorEvaluationContext, s3: S3Resource) -> dg.SensorResult | dg.SkipReason:
        cursor = json.loads(context.cursor) if context.cursor else {}
        with source.pipeline(s3) as pipeline:
            try:
                checkpoint = pipeline.feed.read_checkpoint()
            except MetadataMissing as missing:
                return dg.SkipReason(str(missing))
            if cursor.get("checkpoint") == checkpoint and not cursor.get("open"):
                return dg.SkipReason(f"checkpoint {checkpoint} is applied")
            busy = context.instance.get_runs(
                dg.RunsFilter(statuses=_UNFINISHED, tags={"cdc/changefeed": source.changefeed.name}), limit=1
            )
            if busy:
                return dg.SkipReason("a run of this changefeed is under way; it takes what is there when it starts")
            _, plan = pipeline.look()
        due = due_lives(plan)
        new = _new_keys(context, partitions, plan)
        attempt = cursor.get("attempt", 0) + 1 if cursor.get("checkpoint") == checkpoint else 1
        give_up = attempt > 3
        requests = [] if not due or give_up else [_request(source, plan, due, attempt, job.name)]
        return dg.SensorResult(
            dynamic_partitions_requests=[partitions.build_add_request(new)] if new else [],
            run_requests=requests,
            cursor=json.dumps({"checkpoint": checkpoint, "open": bool(requests), "attempt": attempt}),
        )

    return sensor


def due_lives(plan: Plan) -> list[Life]:
    """The lives with something to do before any hold, in TSO order."""
    return list(dict.fromkeys(step.life for step in plan.steps if not isinstance(step, HoldTable)))


def _new_keys(
    context: dg.SensorEvaluationContext, partitions: dg.DynamicPartitionsDefinition, plan: Plan
) -> Sequence[str]:
    assert partitions.name is not None
    known = set(context.instance.get_dynamic_partitions(partitions.name))
    new = [key for key in map(format_partition_key, partition_keys(plan)) if key not in known]
    if len(new) > MAX_NEW_KEYS:
        context.instance.add_dynamic_partitions(partitions.name, new)
        return []
    return new


def _request(source: Source, plan: Plan, due: Sequence[Life], attempt: int, job_name: str) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=f"{source.changefeed.name}:{plan.checkpoint}:{attempt}",
        run_config={"ops": {f"{job_name}_tables": {"config": {"tables": [str(life) for life in due]}}}},
        tags={"cdc/changefeed": source.changefeed.name, "cdc/tables": str(len(due))},
    )
