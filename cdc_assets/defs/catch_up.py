"""Many tables in one run: they share one Spark, and each partition that moved is logged as if by its own run.

A run may be kept alive: while the checkpoint keeps moving it applies the next window of all its tables, so that one
warm Spark serves many windows. It ends when its time is over, when the checkpoint stops, and when another run waits in
the queue.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import dagster as dg
from dagster_aws.s3 import S3Resource
from dagster_pyspark import LazyPySparkResource

from cdc_assets.defs.assets import failure
from cdc_assets.defs.catch_up_config import CatchUpConfig, op_of
from cdc_assets.defs.checks import evaluations
from cdc_assets.defs.events import RunEvents
from cdc_assets.defs.keys import add_keys, new_keys
from cdc_assets.defs.landing_assets import landing_events
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.defs.watching import has_more
from cdc_assets.errors import BadSettings, InputError, MetadataMissing, Retryable
from cdc_assets.model.progress import Life
from cdc_assets.model.steps import Step
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted
from cdc_assets.operations.release import release
from cdc_assets.pipeline.outcome import Outcome, TableOutcome
from cdc_assets.pipeline.pipeline import Pipeline, log_steps
from cdc_assets.planning.plan import Plan
from cdc_assets.planning.run_batches import families
from cdc_assets.run_coordinator import CHANGEFEED_TAG

__all__ = ["catch_up_job"]


def catch_up_job(source: ConfiguredFeed, job_name: str) -> dg.JobDefinition:
    """Return the unpartitioned job that brings tables to the checkpoint."""

    @dg.op(name=op_of(job_name), out=dg.Out(dg.Nothing), pool="spark")
    def catch_up(
        context: dg.OpExecutionContext, config: CatchUpConfig, pyspark: LazyPySparkResource, s3: S3Resource
    ) -> Iterator[Any]:
        """Apply DDL and rows in TSO order over all chosen tables; a table that stops does not stop the others."""
        stopped: dict[Life, TableOutcome] = {}
        with source.pipeline(s3, pyspark, log_steps(context.log.info)) as pipeline:
            for held, decision in config.releases.items():
                context.log.info(f"releasing {held}: {decision}")
                _release(pipeline, held, decision)
            events = RunEvents(context, source, pipeline)
            pipeline.after = events.after
            for outcome in _passes(context, config, source, pipeline, events, stopped):
                events.finish(outcome)
                asked = _chosen(outcome.plan, config)[1]
                for table in outcome.tables:
                    if table.error is not None or (table.state.stopped and table.life in asked):
                        stopped[table.life] = table
                yield from evaluations(source, pipeline, outcome)
        if stopped:
            raise failure(stopped.values())

    @dg.job(
        name=job_name,
        executor_def=dg.in_process_executor,
        tags={CHANGEFEED_TAG: source.group},
        description="Applies all tables, or the named ones, to the checkpoint in one run.",
    )
    def job() -> None:
        catch_up()

    return job


# --- which tables, and how long ---------------------------------------------------------------------------------------


def _passes(
    context: dg.OpExecutionContext,
    config: CatchUpConfig,
    source: ConfiguredFeed,
    pipeline: Pipeline,
    events: RunEvents,
    stopped: Iterable[Life],
) -> Iterator[Outcome]:
    """Apply the tables to the checkpoint, again while the run is kept alive; a later run retries stopped tables."""

    def select(plan: Plan) -> list[Step]:
        name = source.changefeed.name  # schema files may have appeared after the sensor's tick
        add_keys(context.instance, name, new_keys(context.instance, name, plan))
        lives = _chosen(plan, config)[0].difference(stopped)
        return [step for step in plan.steps if step.life in lives]

    end = None
    while True:
        events.begin()
        try:
            outcome = pipeline.apply(context.run_id, select)
        except MetadataMissing as missing:
            if pipeline.landing is None:
                raise
            context.log.info(f"landed {counted(pipeline.advanced.messages, 'message')}: {missing}")
            return
        except InputError as error:
            if pipeline.landing is None:
                raise
            raise dg.Failure(str(error), allow_retries=False) from None
        finally:
            for event in landing_events(source, pipeline):
                context.log_event(event)
        yield outcome
        if not config.keep_alive:
            return
        end = end or time.monotonic() + source.changefeed.run_keep_alive_seconds
        if not _moves(context, source, pipeline, outcome.checkpoint, end):
            return


def _chosen(plan: Plan, config: CatchUpConfig) -> tuple[set[Life], set[Life]]:
    """Return the tables of a run, and those of them that were requested; raises BadSettings."""
    known = {str(life): life for life in plan.history.lives}
    if not config.tables:
        taken = {life for text, life in known.items() if text not in config.exclude}
        return taken, taken
    if unknown := [text for text in config.tables if text not in known]:
        raise BadSettings(
            f"no table of the changefeed is {', '.join(unknown)}; expected schema.table@first version, such as "
            f"{', '.join(sorted(known)[:5])}. `cdc-assets inspect` lists them."
        )
    family = families(plan.history)
    asked = {known[text] for text in config.tables}
    return {other for life in asked for other in family[life]}, asked


def _moves(
    context: dg.OpExecutionContext, source: ConfiguredFeed, pipeline: Pipeline, checkpoint: Tso, end: float
) -> bool:
    """Wait until the checkpoint moves; return False if the run is to end."""
    waiting = dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED])
    while (left := end - time.monotonic()) > 0:
        if context.instance.get_runs_count(waiting):
            context.log.info("other runs wait in the queue: this one ends")
            return False
        time.sleep(min(left, source.changefeed.sensor_interval_seconds))
        try:
            if has_more(pipeline.landing) or pipeline.source.fence() > checkpoint:
                return True
        except (InputError, Retryable) as error:
            context.log.warning(f"{error} All windows so far are applied: this run ends.")
            return False
    return False


# --- a person's decisions ---------------------------------------------------------------------------------------------


def _release(pipeline: Pipeline, held: str, decision: str) -> None:
    table, _, version = held.rpartition("@")
    way, _, text = decision.partition(":")
    if not table or not version.isdigit():
        raise BadSettings(f'releases names "{held}"; expected schema.table@version, the version of the held DDL.')
    release(pipeline, table, int(version), way.strip(), text.strip(), who="run config")
