"""The assets `ddl` and `dml` of a changefeed, partitioned by schema file.

`ddl` brings a table to a version, `dml` applies the rows from there to the next one. What a partition needs first, of
the same table or of tables that it exchanged names or rows with, is applied in the same run and logged too. Order is
guaranteed by the lake's own progress, read at the start: whatever order runs come in, a done step is planned no more.
"""

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import dagster as dg
from dagster_aws.s3 import S3Resource
from dagster_pyspark import LazyPySparkResource

from cdc_assets.defs.metadata import ddl_metadata, dml_metadata, lake_table, report_metadata
from cdc_assets.defs.resources import Source
from cdc_assets.model import ApplyRows, Life, Phase, Progress, Report, Step
from cdc_assets.outcome import Outcome, TableOutcome
from cdc_assets.partitions import PartitionKey, life_of, limit_of, parse_partition_key
from cdc_assets.pipeline import Pipeline, related
from cdc_assets.plan import Plan

__all__ = ["CHECK", "changefeed_assets", "check_spec"]

CHECK = "column_types"
"""Name of the check that gates the write."""


def check_spec(name: str, partitions: dg.PartitionsDefinition[str]) -> dg.AssetCheckSpec:
    """Return the check on `dml`. Partitioned checks are a preview in Dagster, which says so at each one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return dg.AssetCheckSpec(
            CHECK,
            asset=dg.AssetKey([name, "dml"]),
            blocking=True,
            partitions_def=partitions,
            description="Every value fits its column's type. When it fails nothing of the window is written.",
        )


def changefeed_assets(source: Source, partitions: dg.DynamicPartitionsDefinition) -> list[dg.AssetsDefinition]:
    """Return `ddl` and `dml` of one changefeed."""
    name = source.changefeed.name

    @dg.asset(
        key=[name, "ddl"],
        partitions_def=partitions,
        deps=[dg.AssetKey([name, "bucket"])],
        group_name=_group(name),
        kinds={"tidb", "iceberg"},
        description="The table's schema as of this version: created, changed, renamed or dropped in the lake.",
    )
    def ddl(
        context: dg.AssetExecutionContext, pyspark: LazyPySparkResource, s3: S3Resource
    ) -> dg.MaterializeResult[None]:
        key = parse_partition_key(context.partition_key)
        with source.pipeline(s3, pyspark, _log(context), fuse=False) as pipeline:
            lives, outcome = _through(pipeline, key, Phase.DDL, context.run_id)
            _raise_unless_applied(outcome, lives)
            return dg.MaterializeResult(metadata=ddl_metadata(outcome.plan, key, pipeline.ledger.journal(name)))

    @dg.op(name=f"{_group(name)}_decode", ins={"after": dg.In(dg.Nothing)}, pool="spark")
    def decode(context: dg.OpExecutionContext, pyspark: LazyPySparkResource, s3: S3Resource) -> Any:
        """Read, decode and check the rows of the partition that are due; they wait in the lake's stage."""
        key = parse_partition_key(context.partition_key)
        with source.pipeline(s3, pyspark, _log(context), fuse=False) as pipeline:
            before, last = _split(pipeline, key)
            if before:
                outcome = pipeline.apply(context.run_id, lambda plan: _still(plan, before))
                _raise_unless_applied(outcome, {step.life for step in before})
            return (last, pipeline.stage(last)) if last is not None else None

    @dg.op(name=f"{_group(name)}_validate")
    def validate(context: dg.OpExecutionContext, work: Any) -> Any:
        """Show what the checks of the decoding pass found."""
        if work is not None:
            context.add_output_metadata(report_metadata(work[1].report))
        return work

    @dg.op(
        name=f"{_group(name)}_apply",
        out={"result": dg.Out(dg.Nothing, is_required=False), CHECK: dg.Out()},
        pool="spark",
    )
    def apply(context: dg.OpExecutionContext, work: Any, pyspark: LazyPySparkResource, s3: S3Resource) -> Iterator[Any]:
        """Write the staged window in one commit, unless a check failed: then nothing is written."""
        key = parse_partition_key(context.partition_key)
        with source.pipeline(s3, pyspark, fuse=False) as pipeline:
            report: Report | None = work[1].report if work is not None else None
            if report is not None and report.failed:
                pipeline.lake.discard(work[1])
                yield dg.AssetCheckResult(check_name=CHECK, passed=False, metadata=report_metadata(report))
                return
            changed = work[1].rows if work is not None else 0
            if work is not None:
                pipeline.commit(work[0], work[1], context.run_id)
            plan = pipeline.settle(context.run_id).plan
            held_tables = source.held_tables()
            for life in life_of(plan, key):
                for event in lake_table(source, pipeline, plan, held_tables[life], changed):
                    context.log_event(event)
            yield dg.Output(None, "result", metadata=dml_metadata(plan, key, work[0] if work else None, changed))
            yield dg.AssetCheckResult(check_name=CHECK, passed=True, metadata=report_metadata(report))

    @dg.graph_asset(
        key=[name, "dml"],
        partitions_def=partitions,
        ins={"ddl": dg.AssetIn(dg.AssetKey([name, "ddl"]), dagster_type=dg.Nothing)},
        check_specs=[check_spec(name, partitions)],
        group_name=_group(name),
        kinds={"pyspark", "iceberg"},
        description="The rows from this version up to the next one or the checkpoint, decoded, checked and merged.",
    )
    def dml(ddl: Any) -> Any:
        result, check = apply(validate(decode(after=ddl)))
        return {"result": result, f"{name}__dml_{CHECK}": check}

    return [ddl, dml]


def _group(name: str) -> str:
    return "".join(sign if sign.isalnum() or sign == "_" else "_" for sign in name)


def _log(context: Any) -> Any:
    def watch(step: Step, number: int, count: int) -> None:
        context.log.info(f"{number + 1}/{count} {type(step).__name__} {step.life} at {step.at}")

    return watch


# --- which steps a partition needs ------------------------------------------------------------------------------------


def _through(pipeline: Pipeline, key: PartitionKey, phase: Phase, run: str) -> tuple[set[Life], Outcome]:
    lives: set[Life] = set()

    def select(plan: Plan) -> Iterable[Step]:
        lives.update(life_of(plan, key))
        return _needed(plan, key, phase)

    outcome = pipeline.apply(run, select)
    return lives, outcome


def _needed(plan: Plan, key: PartitionKey, phase: Phase) -> list[Step]:
    wanted: set[int] = set()
    for life in life_of(plan, key):
        through = key.version if phase is Phase.DDL else limit_of(plan, life, key.version)
        wanted |= {id(step) for step in related(plan, life, Progress(through, phase))}
    return [step for step in plan.steps if id(step) in wanted]


def _split(pipeline: Pipeline, key: PartitionKey) -> tuple[list[Step], ApplyRows | None]:
    """The last window of the partition is staged for the check; whatever comes before it is applied."""
    _, plan = pipeline.look()
    steps = _needed(plan, key, Phase.ROWS)
    if steps and isinstance(steps[-1], ApplyRows) and steps[-1].life in life_of(plan, key):
        return steps[:-1], steps[-1]
    return steps, None


def _still(plan: Plan, wanted: list[Step]) -> list[Step]:
    """The wanted steps that a fresh plan still has."""
    places = {(step.life, step.at, type(step)) for step in wanted}
    return [step for step in plan.steps if (step.life, step.at, type(step)) in places]


def _raise_unless_applied(outcome: Outcome, lives: set[Life]) -> None:
    stopped = [table for table in outcome.tables if table.life in lives and table.state in ("held", "failed")]
    if stopped:
        raise failure(stopped)


def failure(stopped: Iterable[TableOutcome]) -> dg.Failure:
    """One failure that names every table that stopped, with its reason and ways out."""
    lines = [f"{table.name}: {table.reason}" for table in stopped]
    ways = {
        str(table.name): dg.MetadataValue.md("\n".join(f"- {way}" for way in table.ways))
        for table in stopped
        if table.ways
    }
    return dg.Failure("\n".join(lines), metadata=ways, allow_retries=False)
