"""The assets `ddl` and `dml` of a changefeed, partitioned by schema file.

`ddl` brings a table to a version, `dml` applies the rows from there to the next one. Steps that a partition needs
first, of the same table or of tables that it exchanged names or rows with, are applied in the same run and logged too.
Order is guaranteed by the lake's own progress, read at the start: whatever the order of runs, a done step is not
planned again.
"""

import warnings
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import dagster as dg
from dagster_aws.s3 import S3Resource
from dagster_pyspark import LazyPySparkResource

from cdc_assets.defs.checks import COLUMN_TYPES, evaluations
from cdc_assets.defs.events import RunEvents
from cdc_assets.defs.failures import as_failure
from cdc_assets.defs.landing_assets import landing_events
from cdc_assets.defs.metadata import APPLIED_FIGURES, ddl_metadata, dml_metadata, lake_table, report_metadata
from cdc_assets.defs.names import asset_key, shown
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.errors import TableMoved
from cdc_assets.features.dumps.defs import log_imported, upstream_of_ddl
from cdc_assets.model.progress import Life, Phase, Progress
from cdc_assets.model.reports import StagedWindow
from cdc_assets.model.steps import ApplyRows, Step
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import reason_of
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.pipeline.outcome import NO_HOOKS, Outcome, RunHooks, TableOutcome
from cdc_assets.planning.partitions import PartitionKey, format_partition_key, life_of, limit_of, parse_partition_key
from cdc_assets.planning.plan import Plan, step_order
from cdc_assets.report.plan_text import log_steps
from cdc_assets.report.text import options_lines, stop_lines


def related(planned: Plan, life: Life, limit: Progress) -> tuple[Step, ...]:
    """The steps up to `limit` of a life and of every life whose names or rows it depends on, in TSO order."""
    lives = planned.history.lives
    group: set[Life] = set()
    border = [life]
    while border:
        next_life = border.pop()
        if next_life in group:
            continue
        group.add(next_life)
        names = {name.folded for name, _, _ in lives[next_life].names}
        partner_lives = {other for _, other in lives[next_life].exchanges}
        border += [
            other
            for other, table in lives.items()
            if other in partner_lives or names & {name.folded for name, _, _ in table.names}
        ]
    last = (limit.tso, int(limit.phase))
    return tuple(
        step
        for step in planned.steps
        if step.life in group
        and (
            step_order(step)[:2] <= last
            or (step.life == life and isinstance(step, ApplyRows) and step.lo < limit.tso and limit.phase)
        )
    )


def check_spec(name: str, partitions: dg.PartitionsDefinition[str]) -> dg.AssetCheckSpec:
    """Return the check on `dml`. Partitioned checks are a preview in Dagster, which warns at each one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return dg.AssetCheckSpec(
            COLUMN_TYPES,
            asset=asset_key(name, "dml"),
            blocking=True,
            partitions_def=partitions,
            description="Fails for a value that does not fit its column's type: nothing of the window is written then.",
        )


def changefeed_assets(source: ConfiguredFeed, partitions: dg.DynamicPartitionsDefinition) -> list[dg.AssetsDefinition]:
    """Return `ddl` and `dml` of one changefeed."""
    return [_ddl_asset(source, partitions), _dml_asset(source, partitions)]


def _ddl_asset(source: ConfiguredFeed, partitions: dg.DynamicPartitionsDefinition) -> dg.AssetsDefinition:
    name = source.changefeed.name

    @dg.asset(
        key=asset_key(name, "ddl"),
        partitions_def=partitions,
        deps=upstream_of_ddl(source),
        group_name=source.group,
        kinds={"tidb", "iceberg"},
        owners=list(source.changefeed.owners),
        description="The table's schema as of this version: created, changed, renamed or dropped in the lake. Steps "
        "that it needs first, of the same table or of others, are applied in the same run.",
    )
    def ddl(
        context: dg.AssetExecutionContext, pyspark: LazyPySparkResource, s3: S3Resource
    ) -> dg.MaterializeResult[None]:
        key = parse_partition_key(context.partition_key)
        with as_failure(), source.pipeline(s3, pyspark, log_steps(context.log.info), fuse=False) as pipeline:
            hooks = _of_others(context, source, pipeline, key)
            lives, outcome = _through(pipeline, key, Phase.DDL, context.run_id, hooks)
            _log_lake_tables(context, source, pipeline, outcome)
            _raise_unless_applied(context, source, pipeline, outcome, lives, key.version)
            return dg.MaterializeResult(metadata=ddl_metadata(outcome.plan, key, pipeline.ledger.journal(name)))

    return ddl


def _dml_asset(source: ConfiguredFeed, partitions: dg.DynamicPartitionsDefinition) -> dg.AssetsDefinition:
    name = source.changefeed.name
    types = check_spec(name, partitions)
    decode, validate, apply = _decode_op(source), _validate_op(source), _apply_op(source)

    @dg.graph_asset(
        key=asset_key(name, "dml"),
        partitions_def=partitions,
        ins={"ddl": dg.AssetIn(asset_key(name, "ddl"), dagster_type=dg.Nothing)},
        check_specs=[types],
        group_name=source.group,
        kinds={"pyspark", "iceberg"},
        owners=list(source.changefeed.owners),
        description="The rows from this version up to the next one or the checkpoint, decoded, checked and merged. "
        "Running a partition again whose rows are applied changes nothing.",
    )
    def dml(ddl: Any) -> Any:
        result, check = apply(validate(decode(after=ddl)))
        return {"result": result, types.get_python_identifier(): check}

    return dml


class _Work(NamedTuple):
    """State that the ops of one run share: the partition's last window, its staged data, and the time of its
    checkpoint.

    Of a table with history tables that read the same, it is one window for each of them, the mirror's first.
    """

    steps: tuple[ApplyRows, ...]
    windows: tuple[StagedWindow, ...]
    published: float

    @property
    def step(self) -> ApplyRows:
        """The first of the windows."""
        return self.steps[0]

    @property
    def staged(self) -> StagedWindow:
        """The staged data of the window."""
        return self.windows[0]


def _decode_op(source: ConfiguredFeed) -> dg.OpDefinition:
    @dg.op(name=f"{source.group}_decode", ins={"after": dg.In(dg.Nothing)}, pool="spark")
    def decode(context: dg.OpExecutionContext, pyspark: LazyPySparkResource, s3: S3Resource) -> Any:
        """Read, decode, check and stage the rows of the partition that are due."""
        key = parse_partition_key(context.partition_key)
        with as_failure(), source.pipeline(s3, pyspark, log_steps(context.log.info), fuse=False) as pipeline:
            before, last = _split(pipeline, key)
            if before:
                hooks = _of_others(context, source, pipeline, key)
                outcome = pipeline.apply(context.run_id, lambda plan: _still(plan, before), hooks)
                _log_lake_tables(context, source, pipeline, outcome)
                _raise_unless_applied(context, source, pipeline, outcome, {step.life for step in before})
            if not last:
                return None
            windows = pipeline.stage_all(last)
            windows += [pipeline.stage(step) for step in last[len(windows) :]]
            return _Work(last, tuple(windows), pipeline.planner.published)

    return decode


def _validate_op(source: ConfiguredFeed) -> dg.OpDefinition:
    @dg.op(name=f"{source.group}_validate")
    def validate(context: dg.OpExecutionContext, work: Any) -> Any:
        """Show the results of the checks in the decoding pass."""
        if work is not None:
            context.add_output_metadata(report_metadata(work.staged.report))
        return work

    return validate


def _apply_op(source: ConfiguredFeed) -> dg.OpDefinition:
    @dg.op(
        name=f"{source.group}_apply",
        out={"result": dg.Out(dg.Nothing, is_required=False), COLUMN_TYPES: dg.Out()},
        pool="spark",
    )
    def apply(context: dg.OpExecutionContext, work: Any, pyspark: LazyPySparkResource, s3: S3Resource) -> Iterator[Any]:
        """Write the staged window in one commit, or nothing if a check failed."""
        with as_failure(), source.pipeline(s3, pyspark, fuse=False) as pipeline:
            if work is not None and work.staged.report.failed:
                for step, window in list(zip(work.steps, work.windows, strict=True))[1:]:
                    pipeline.lake.discard(step, window)
                _report(context, source, pipeline, pipeline.refuse(work.step, work.staged, context.run_id))
                yield _checked(work, passed=False)
                return
            if work is not None:
                _commit(context, source, pipeline, work)
            yield dg.Output(None, "result", metadata=_recorded(context, source, pipeline, work))
            yield _checked(work, passed=True)

    return apply


def _checked(work: _Work | None, *, passed: bool) -> dg.AssetCheckResult:
    report = None if work is None else work.staged.report
    return dg.AssetCheckResult(check_name=COLUMN_TYPES, passed=passed, metadata=report_metadata(report))


def _commit(context: dg.OpExecutionContext, source: ConfiguredFeed, pipeline: LakePipeline, work: _Work) -> None:
    """Commit a staged window; where its table has moved meanwhile, plan the partition anew and apply that."""
    windows = list(zip(work.steps, work.windows, strict=True))
    try:
        while windows:
            pipeline.commit(*windows.pop(0), context.run_id, work.published)  # which removes what it does not commit
    except TableMoved as moved:  # the table is no longer where the staged window begins
        context.log.info(str(moved))
        for step, window in windows:
            pipeline.lake.discard(step, window)
        key = parse_partition_key(context.partition_key)
        concerned, again = _through(pipeline, key, Phase.ROWS, context.run_id)
        _raise_unless_applied(context, source, pipeline, again, concerned)


def _recorded(
    context: dg.OpExecutionContext, source: ConfiguredFeed, pipeline: LakePipeline, work: _Work | None
) -> dict[str, Any]:
    """Record how the partition's tables stand after the run, log their events, and return the figures of `dml`."""
    key = parse_partition_key(context.partition_key)
    outcome = pipeline.record_status(context.run_id)
    step, changed = (None, 0) if work is None else (work.step, work.staged.rows)
    if work is not None:
        log_imported(context, source, outcome.plan, work.step, work.staged.report, changed)
    lives = life_of(outcome.plan, key)
    _log_lake_tables(context, source, pipeline, outcome, lives if work is not None else (), changed)
    _report(context, source, pipeline, outcome, lives)
    figures = dml_metadata(outcome.plan, key, step, changed)
    return figures if work is not None else {**figures, **_figures_before(context, source)}


def _figures_before(context: dg.OpExecutionContext, source: ConfiguredFeed) -> dict[str, Any]:
    """Return the figures of the run that applied the partition: one with nothing left to do has none of its own."""
    asset = asset_key(source.changefeed.name, "dml")
    newest = dg.AssetRecordsFilter(asset_key=asset, asset_partitions=[context.partition_key])
    for record in context.instance.fetch_materializations(newest, limit=1).records:
        if (event := record.asset_materialization) is not None:
            return {name: value for name, value in event.metadata.items() if name in APPLIED_FIGURES}
    return {}


def _of_others(context: Any, source: ConfiguredFeed, pipeline: LakePipeline, key: PartitionKey) -> RunHooks:
    """Return hooks that log the partitions that a run applies because its own needs them."""
    events = RunEvents(context, source, pipeline, own=key)
    events.begin()
    return RunHooks(events.after)


def _log_lake_tables(
    context: Any,
    source: ConfiguredFeed,
    pipeline: LakePipeline,
    outcome: Outcome,
    lives: Iterable[Life] = (),
    changed: int = 0,
) -> None:
    """Log what was landed, and an event for every lake table that got a window or a DDL here or is in `lives`."""
    for event in landing_events(source, pipeline):
        context.log_event(event)
    moved = {table.life for table in outcome.tables if table.steps} | pipeline.accounts.keys() | set(lives)
    if not moved:
        return
    for life, table in source.lake_tables().items():
        if life in moved:
            for event in lake_table(source, pipeline, outcome.plan, table, changed):
                context.log_event(event)


def _report(
    context: Any,
    source: ConfiguredFeed,
    pipeline: LakePipeline,
    outcome: Outcome,
    lives: Collection[Life] | None = None,
) -> None:
    """Log the checks of the changefeed and of the tables that the run moved, as a catch-up run does."""
    for evaluation in evaluations(source, pipeline, outcome, lives):
        context.log_event(evaluation)


# --- which steps a partition needs ------------------------------------------------------------------------------------


def _through(
    pipeline: LakePipeline, key: PartitionKey, phase: Phase, run: str, hooks: RunHooks = NO_HOOKS
) -> tuple[set[Life], Outcome]:
    lives: set[Life] = set()

    def select(plan: Plan) -> Iterable[Step]:
        lives.update(life_of(plan, key))
        return _needed(plan, key, phase)

    outcome = pipeline.apply(run, select, hooks)
    return lives, outcome


def _needed(plan: Plan, key: PartitionKey, phase: Phase) -> list[Step]:
    planned_steps: set[Step] = set()
    for life in life_of(plan, key):
        through = key.version if phase is Phase.DDL else limit_of(plan, life, key.version)
        planned_steps.update(related(plan, life, Progress(through, phase)))
    return [step for step in plan.steps if step in planned_steps]


def _split(pipeline: LakePipeline, key: PartitionKey) -> tuple[list[Step], tuple[ApplyRows, ...]]:
    """Split the partition's steps: the last window is staged for the check, the steps before it are applied."""
    _, plan = pipeline.planner.plan()
    steps, last = _needed(plan, key, Phase.ROWS), list[ApplyRows]()
    while steps and isinstance(step := steps[-1], ApplyRows) and step.life in life_of(plan, key):
        if last and not step.reads_like(last[0]):
            break
        last.insert(0, step)
        steps = steps[:-1]
    return steps, tuple(last)


def _still(plan: Plan, planned_steps: list[Step]) -> list[Step]:
    """The wanted steps that a fresh plan still has."""
    places = {(step.life, step.at, type(step)) for step in planned_steps}
    return [step for step in plan.steps if (step.life, step.at, type(step)) in places]


def _raise_unless_applied(
    context: Any,
    source: ConfiguredFeed,
    pipeline: LakePipeline,
    outcome: Outcome,
    lives: set[Life],
    through: Tso | None = None,
) -> None:
    """Raise Failure for tables that stopped, with `through` at or before that position only."""
    stopped = [
        table
        for table in outcome.tables
        if table.life in lives and table.state.stopped
        if through is None or table.stopped_at is None or table.stopped_at <= through
    ]
    if stopped:
        _report(context, source, pipeline, outcome)
        raise failure(source, stopped, outcome.plan, parse_partition_key(context.partition_key))


def failure(
    source: ConfiguredFeed,
    stopped: Iterable[TableOutcome],
    plan: Plan | None = None,
    partition: PartitionKey | None = None,
) -> dg.Failure:
    """Return one failure that names every table that stopped, with its reason and ways out.

    All of it is text: Dagster shows that wherever it shows that the run failed, metadata in the step's event alone.
    For a run of one partition it names the earlier one that this one waits for.
    """
    lines = list(
        stop_lines(
            (reason_of([shown(table.name)], f"{_waits(table, plan, partition)}{table.reason}"), table.ways)
            for table in stopped
        )
    )
    lines += options_lines(lines, source.command_options)
    return dg.Failure("\n".join(lines), allow_retries=False)


def _waits(table: TableOutcome, plan: Plan | None, partition: PartitionKey | None) -> str:
    if plan is None or partition is None or table.stopped_at is None:
        return ""
    before = [event for event in plan.history.lives[table.life].events if event.at <= table.stopped_at]
    if not before or before[-1].at >= partition.version:
        return ""
    stuck = format_partition_key(PartitionKey(before[-1].file.table, before[-1].at))
    return f"version {partition.version} waits for {stuck}, which is {table.state}: "
