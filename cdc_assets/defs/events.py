"""The events that a run over many tables logs: those of each partition as soon as its step is done."""

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.events import AssetMaterializationPlannedData

from cdc_assets.defs.checks import COLUMN_TYPES, evaluations
from cdc_assets.defs.metadata import ddl_metadata, dml_metadata, lake_table, report_metadata
from cdc_assets.defs.names import asset_key
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.errors import Retryable
from cdc_assets.features.dumps.defs import log_imported
from cdc_assets.lake.lake_table import LakeTable
from cdc_assets.model.features import module_of
from cdc_assets.model.progress import AppliedState, Life
from cdc_assets.model.reports import Report
from cdc_assets.model.steps import AddedStep, ApplyRows, CreateTable, Step
from cdc_assets.model.table_history import Event
from cdc_assets.model.tso import Tso
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.pipeline.outcome import Outcome, TableOutcome, TableRun
from cdc_assets.planning.partitions import PartitionKey, format_partition_key
from cdc_assets.planning.plan import Plan

TOGETHER_SECONDS = 60
"""Windows of a table that follow each other sooner are logged together, and so are the checks of rounds."""

AGAIN_SECONDS = 600
"""Seconds after which an unchanged check result is logged again: each is a row of Dagster's event log."""


@dataclass
class _Windows:
    """Windows of a table that are not logged yet, as one, with the changes in them and what was found in the last."""

    step: ApplyRows
    plan: Plan
    changes: int
    report: Report | None


class RunEvents:
    """Logs materializations and checks of one run into its context; `after` is for `RunHooks`.

    `own` is the partition whose events Dagster logs itself; a run of one logs each window of others as it comes. Of a
    run that `lives_on` Dagster's process keeps none of these events, which it does until the end of a step otherwise.
    """

    def __init__(
        self,
        context: dg.OpExecutionContext,
        source: ConfiguredFeed,
        pipeline: LakePipeline,
        own: PartitionKey | None = None,
        lives_on: bool = False,
    ) -> None:
        self._own = own
        self._lives_on = lives_on
        self._context = context
        self._source = source
        self._pipeline = pipeline
        self._name = source.changefeed.name
        self._before: Mapping[Life, AppliedState] = {}
        self._done: set[tuple[str, str]] = set()
        self._changes: dict[Life, int] = {}
        self._pending: dict[Life, int] = {}
        self._read_at = time.monotonic()
        self._tableless_logged: set[str] | None = None
        self._logged: dict[Life, tuple[float, Tso]] = {}  # when a table's window was last logged, and of which version
        self._windows: dict[Life, _Windows] = {}
        self._touched: set[Life] = set()
        self._newest: Outcome | None = None
        self._checked_at: float | None = None
        self._results: dict[dg.AssetCheckKey, tuple[bool, float]] = {}  # of each check, and when it was logged

    def begin(self) -> None:
        """Record how far the tables are applied before a round over them."""
        self._before = self._pipeline.lake.applied()
        self._done = {place for place in self._done if place[0] == "ddl"}  # that of a version is logged once a run
        self._changes.clear()

    def after(self, step: Step, plan: Plan, table: TableRun) -> None:
        """Log a step that was carried out: a DDL's partition, or those that a window filled.

        A window soon after another of the same version waits for those that follow.
        """
        if isinstance(step, AddedStep):
            return
        events = plan.history.lives[step.life].events
        rows = table.changes - self._changes.get(step.life, 0)
        self._changes[step.life] = table.changes
        log_imported(self._context, self._source, plan, step, table.report, rows)
        self._pending[step.life] = self._pending.get(step.life, 0) + rows
        if isinstance(step, ApplyRows):
            logged_at, version = self._logged.get(step.life, (0.0, -1))
            if version == step.ddl and self._own is None:
                self._wait(step, plan, table, rows)
                if time.monotonic() < logged_at + TOGETHER_SECONDS:
                    return
                self._log_windows(step.life)
            else:
                self._log_windows(step.life)
                self._window(step, plan, rows, table.report)
        else:
            self._log_windows(step.life)
            versions = {step.at, *(step.takes if isinstance(step, CreateTable) else ())}
            for event in events:
                if event.at in versions:
                    self._ddl(plan, event)
        with suppress(Retryable):  # the windows of other tables go on; it is logged later
            self._lake_tables(plan, TOGETHER_SECONDS)

    def finish(self, outcome: Outcome) -> Iterator[dg.AssetCheckEvaluation]:
        """Log the rest of a round: versions without rows, windows that were refused; and what has waited for long.

        Yields the results of the checks as often.
        """
        for part in outcome.parts:
            for event in module_of("defs", part.FEATURE).events(self._name, part):
                self._context.log_event(event)
        stopped = False
        for table in outcome.tables:
            if table.steps or table.error is not None:
                self._touched.add(table.life)
                if table.error is not None:
                    self._log_windows(table.life)
                stopped = stopped or table.error is not None
                self._rest(table, outcome.plan)
        # Partitions of databases and views are logged once: there is nothing to do for them.
        files = outcome.plan.history.other_files
        if files:
            if self._tableless_logged is None:
                ddl = asset_key(self._name, "ddl")
                self._tableless_logged = self._context.instance.get_materialized_partitions(ddl)
            for file in files:
                key = PartitionKey(file.table, file.version)
                if format_partition_key(key) not in self._tableless_logged:
                    self._tableless_logged.add(format_partition_key(key))
                    self._materialize("ddl", key, ddl_metadata(outcome.plan, key, ()))
                    self._materialize("dml", key, dml_metadata(outcome.plan, key, None, 0))
        self._newest = outcome
        self._let_go()
        now = time.monotonic()
        for life in [life for life in self._windows if now >= self._logged[life][0] + TOGETHER_SECONDS]:
            self._log_windows(life)
        if stopped or self._checked_at is None:
            yield from self._checks()
        elif now >= self._checked_at + TOGETHER_SECONDS:
            yield from self._checks(TOGETHER_SECONDS)

    def close(self) -> Iterator[dg.AssetCheckEvaluation]:
        """Log all that waits, at the end of a run."""
        for life in list(self._windows):
            self._log_windows(life)
        if self._touched or self._pending:
            yield from self._checks()

    def fail(self, stopped: Iterable[TableOutcome]) -> None:
        """Show the partitions at which tables stopped as failed, in the run that fails for them.

        Dagster shows a partition as failed whose newest event is that a failed run was to materialize it. Without such
        an event it stays as it was: green where its table stopped by later rows.
        """
        assert self._newest is not None
        applied = self._pipeline.lake.applied()
        for table in stopped:
            events = self._newest.plan.history.lives[table.life].events
            due = [event for event in events if table.stopped_at is None or event.at <= table.stopped_at]
            if not due:
                continue
            partition = format_partition_key(PartitionKey(due[-1].file.table, due[-1].at))
            has_ddl = table.life in applied and applied[table.life].ddl >= due[-1].at
            for asset in ("dml",) if has_ddl else ("ddl", "dml"):
                planned = AssetMaterializationPlannedData(asset_key(self._name, asset), partition)
                event = dg.DagsterEvent.build_asset_materialization_planned_event(
                    self._context.job_name, str(self._context.op_handle), planned
                )
                self._context.instance.report_dagster_event(event, self._context.run_id)

    def _checks(self, every: float = 0.0) -> Iterator[dg.AssetCheckEvaluation]:
        assert self._newest is not None
        self._lake_tables(self._newest.plan, every)
        now = time.monotonic()
        for evaluation in evaluations(self._source, self._pipeline, self._newest, self._touched):
            before, logged_at = self._results.get(evaluation.asset_check_key, (None, 0.0))
            if before != evaluation.passed or now >= logged_at + AGAIN_SECONDS:
                self._results[evaluation.asset_check_key] = (evaluation.passed, now)
                self._let_go()
                yield evaluation
        self._touched = set()
        self._checked_at = now

    def _let_go(self) -> None:
        """Take what was logged from Dagster's process: it would keep 15 KB for an event of a table of 10 columns."""
        if self._lives_on:
            for _ in self._context.consume_events():
                pass

    # --- partitions ---

    def _wait(self, step: ApplyRows, plan: Plan, table: TableRun, changes: int) -> None:
        """Put a window together with those before it that are not logged yet."""
        before = self._windows.get(step.life)
        if before is not None:
            step = replace(step, lo=before.step.lo, files=(*before.step.files, *step.files))
            changes += before.changes
        self._windows[step.life] = _Windows(step, plan, changes, table.report)
        for event in plan.history.lives[step.life].events:
            if event.at <= step.ddl:
                for asset in ("ddl", "dml"):
                    self._first(asset, PartitionKey(event.file.table, event.at))

    def _log_windows(self, life: Life) -> None:
        """Log a table's windows that wait, as one."""
        waiting = self._windows.pop(life, None)
        if waiting is not None:
            self._window(waiting.step, waiting.plan, waiting.changes, waiting.report)

    def _window(self, step: ApplyRows, plan: Plan, changes: int, report: Report | None) -> None:
        filled = [event for event in plan.history.lives[step.life].events if event.at <= step.ddl]
        self._logged[step.life] = (time.monotonic(), step.ddl)
        for number, event in enumerate(filled):
            head = number == len(filled) - 1
            if head or event.at > self._seen(step.life):
                self._ddl(plan, event)
                self._dml(plan, event, step if head else None, changes if head else 0, again=head)
                self._check(event, True, report if head else None)

    def _rest(self, table: TableOutcome, plan: Plan) -> None:
        events = [event for event in plan.history.lives[table.life].events if event.at <= table.version]
        for number, event in enumerate(events):
            head = number == len(events) - 1
            if not head and event.at <= self._seen(table.life):
                continue
            self._ddl(plan, event)
            if head and table.error is not None:
                self._check(event, False, table.report, table.reason)
            elif self._dml(plan, event, None, 0):
                self._check(event, True, table.report if head else None)

    def _seen(self, life: Life) -> Tso:
        applied = self._before.get(life)
        return applied.ddl if applied is not None else -1

    def _ddl(self, plan: Plan, event: Event) -> None:
        key = PartitionKey(event.file.table, event.at)
        if self._first("ddl", key):
            self._materialize("ddl", key, ddl_metadata(plan, key, self._pipeline.ledger.journal(self._name, event.at)))

    def _dml(self, plan: Plan, event: Event, step: ApplyRows | None, changes: int, again: bool = False) -> bool:
        key = PartitionKey(event.file.table, event.at)
        if not self._first("dml", key) and not again:
            return False
        self._materialize("dml", key, dml_metadata(plan, key, step, changes))
        return True

    def _first(self, asset: str, key: PartitionKey) -> bool:
        place = (asset, format_partition_key(key))
        first = place not in self._done
        self._done.add(place)
        return first

    def _materialize(self, asset: str, key: PartitionKey, metadata: dict[str, Any]) -> None:
        if key == self._own:
            return
        partition = format_partition_key(key)
        self._context.log_event(
            dg.AssetMaterialization(asset_key(self._name, asset), partition=partition, metadata=metadata)
        )

    def _check(self, event: Event, passed: bool, report: Report | None, reason: str = "") -> None:
        """Log the check of a partition; it counts only with the materialization that it refers to."""
        if PartitionKey(event.file.table, event.at) == self._own:
            return
        dml = asset_key(self._name, "dml")
        partition = format_partition_key(PartitionKey(event.file.table, event.at))
        records_filter = dg.AssetRecordsFilter(asset_key=dml, asset_partitions=[partition])
        records = self._context.instance.fetch_materializations(records_filter, limit=1).records
        target = None
        if records:
            target = AssetCheckEvaluationTargetMaterializationData(
                storage_id=records[0].storage_id, run_id=records[0].run_id, timestamp=records[0].timestamp
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.PreviewWarning)
            self._context.log_event(
                dg.AssetCheckEvaluation(  # type: ignore[arg-type]  # log_event takes it, its annotation lags behind
                    asset_key=dml,
                    check_name=COLUMN_TYPES,
                    passed=passed,
                    metadata={**report_metadata(report), **({"reason": reason} if reason else {})},
                    target_materialization_data=target,
                    partition=partition,
                )
            )

    # --- lake tables ---

    def _lake_tables(self, plan: Plan, every: float) -> None:
        """Log the lake tables that got rows, unless that was done less than so many seconds ago."""
        if time.monotonic() < self._read_at + every:
            return
        if self._pending:
            tables = self._source.lake_tables()
            for event in self._events_of(tables, plan):
                self._context.log_event(event)
        self._pending.clear()
        self._read_at = time.monotonic()

    def _events_of(self, tables: Mapping[Life, LakeTable], plan: Plan) -> Iterator[dg.AssetMaterialization]:
        for life, changes in self._pending.items():
            if life in tables:
                yield from lake_table(self._source, self._pipeline, plan, tables[life], changes)
