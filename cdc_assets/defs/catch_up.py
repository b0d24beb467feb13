"""Many tables in one run: one Spark serves them all, and each partition that moved is logged as if by its own run."""

import warnings
from collections.abc import Iterator
from typing import Any

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster_aws.s3 import S3Resource
from dagster_pyspark import LazyPySparkResource
from pydantic import Field

from cdc_assets.defs.assets import CHECK, failure
from cdc_assets.defs.checks import conformance_result, holds_result, quarantine_result, standing
from cdc_assets.defs.metadata import ddl_metadata, dml_metadata, lake_table, report_metadata
from cdc_assets.defs.resources import Source
from cdc_assets.errors import BadSettings
from cdc_assets.ledger import JournalEntry
from cdc_assets.model import Applied, Life, Step
from cdc_assets.outcome import TableOutcome
from cdc_assets.partitions import PartitionKey, format_partition_key, partition_keys
from cdc_assets.pipeline import Pipeline
from cdc_assets.plan import Plan
from cdc_assets.release import release

__all__ = ["CatchUpConfig", "catch_up_job"]


class CatchUpConfig(dg.Config):
    """What a run does beside bringing every table to the checkpoint; both may be left out."""

    tables: list[str] = Field(
        default_factory=list, description="Only these tables, as `schema.table@version of birth`; none named means all."
    )
    releases: dict[str, str] = Field(
        default_factory=dict,
        description="Held DDL to let go on: `schema.table@version` of the DDL -> skip, rebuild, apply, or "
        "`apply: <the DDL text that says what really happened>`.",
    )


def catch_up_job(source: Source, job_name: str) -> dg.JobDefinition:
    """Return the unpartitioned job that brings tables to the checkpoint."""
    name = source.changefeed.name

    @dg.op(name=f"{job_name}_tables", out=dg.Out(dg.Nothing), pool="spark")
    def catch_up(
        context: dg.OpExecutionContext, config: CatchUpConfig, pyspark: LazyPySparkResource, s3: S3Resource
    ) -> Iterator[Any]:
        """Apply DDL and rows in TSO order over all chosen tables; a table that stops does not stop the others."""

        def chosen(life: Life) -> bool:
            return not config.tables or str(life) in config.tables

        def watch(step: Step, number: int, count: int) -> None:
            context.log.info(f"{number + 1}/{count} {type(step).__name__} {step.life} at {step.at}")

        with source.pipeline(s3, pyspark, watch) as pipeline:
            for held, decision in config.releases.items():
                context.log.info(f"releasing {held}: {decision}")
                _release(pipeline, held, decision)
            before = pipeline.lake.applied()
            outcome = pipeline.apply(context.run_id, lambda plan: [step for step in plan.steps if chosen(step.life)])
            plan = outcome.plan
            _add_partitions(context, plan, name)
            journal = pipeline.ledger.journal(name)
            held_tables = source.held_tables()
            for table in outcome.tables:
                moved = list(_moved(table, plan, before.get(table.life)))
                for key, head in moved:
                    yield from _materializations(plan, key, table, head, journal, name)
                for key, head in moved:
                    yield _evaluation(context, format_partition_key(key), table, table.error is None or not head, name)
                if table.steps and table.life in held_tables:
                    yield from lake_table(source, pipeline, plan, held_tables[table.life], table.changes)
        for result in (conformance_result(outcome.findings), *_standing_results(source)):
            yield _evaluation_of_changefeed(name, result)
        stopped = [t for t in outcome.tables if t.state in ("held", "failed") and chosen(t.life)]
        if stopped:
            raise failure(stopped)

    @dg.job(name=job_name, executor_def=dg.in_process_executor, tags={"cdc/changefeed": name})
    def job() -> None:
        catch_up()

    return job


def _standing_results(source: Source) -> tuple[dg.AssetCheckResult, dg.AssetCheckResult]:
    """Return how the changefeed's tables stand after a run: holds and quarantine."""
    tables = standing(source)
    return holds_result(tables), quarantine_result(tables)


def _release(pipeline: Pipeline, held: str, decision: str) -> None:
    table, _, version = held.rpartition("@")
    way, _, text = decision.partition(":")
    if not table or not version.isdigit():
        raise BadSettings(f'releases names "{held}"; expected schema.table@version, the version of the held DDL.')
    release(pipeline, table, int(version), way.strip(), text.strip(), who="run config")


def _evaluation_of_changefeed(name: str, result: dg.AssetCheckResult) -> dg.AssetCheckEvaluation:
    assert result.check_name is not None
    return dg.AssetCheckEvaluation(
        asset_key=dg.AssetKey([name, "bucket"]),
        check_name=result.check_name,
        passed=result.passed,
        severity=result.severity,
        metadata=result.metadata,
    )


def _add_partitions(context: dg.OpExecutionContext, plan: Plan, name: str) -> None:
    """Partitions of schema files that appeared after the sensor's tick."""
    known = set(context.instance.get_dynamic_partitions(f"cdc_{name}"))
    new = [key for key in map(format_partition_key, partition_keys(plan)) if key not in known]
    if new:
        context.instance.add_dynamic_partitions(f"cdc_{name}", new)


def _moved(table: TableOutcome, plan: Plan, before: Applied | None) -> Iterator[tuple[PartitionKey, bool]]:
    """The partitions a run moved: versions taken in, and the head, which rows move (True)."""
    if not table.steps and table.error is None:
        return
    events = [event for event in plan.history.lives[table.life].events if event.at <= table.version]
    seen = before.ddl if before is not None else -1
    for number, event in enumerate(events):
        head = number == len(events) - 1
        if event.at > seen or head:
            yield PartitionKey(event.file.table, event.at), head


def _materializations(
    plan: Plan, key: PartitionKey, table: TableOutcome, head: bool, journal: tuple[JournalEntry, ...], name: str
) -> Iterator[dg.AssetMaterialization]:
    """One event of `ddl`, and one of `dml` unless the partition's rows were refused."""
    partition = format_partition_key(key)
    yield dg.AssetMaterialization([name, "ddl"], partition=partition, metadata=ddl_metadata(plan, key, journal))
    if table.error is None or not head:
        metadata = dml_metadata(plan, key, None, table.changes if head else 0)
        yield dg.AssetMaterialization([name, "dml"], partition=partition, metadata=metadata)


def _evaluation(
    context: dg.OpExecutionContext, partition: str, table: TableOutcome, passed: bool, name: str
) -> dg.AssetCheckEvaluation:
    """Return the check of a partition; it counts there only with the materialization that it is about."""
    dml = dg.AssetKey([name, "dml"])
    records = context.instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=dml, asset_partitions=[partition]), limit=1
    ).records
    target = None
    if records:
        target = AssetCheckEvaluationTargetMaterializationData(
            storage_id=records[0].storage_id, run_id=records[0].run_id, timestamp=records[0].timestamp
        )
    reason = {} if passed else {"reason": table.reason}
    metadata = {**report_metadata(table.report), **reason}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return dg.AssetCheckEvaluation(
            asset_key=dml,
            check_name=CHECK,
            passed=passed,
            metadata=metadata,
            target_materialization_data=target,
            partition=partition,
        )
