"""Many tables in one run: they share one Spark, and each partition that moved is logged as if by its own run.

A run may live on: while the checkpoint keeps moving it applies the next window of all its tables, round after round,
so that one warm process serves many windows. It ends between two rounds, when its time is over or nothing came for a
while, when another run waits in the queue, when the files of its settings changed, when Dagster has it as ended or an
older run does the same, and when a table stopped; where a store or the catalog is away, it waits for them. A run that
waits and that no sensor requested, such as a rebuild, ends it between two windows already: what is left is due again.
Its rounds are logged together, at most one event a table and minute.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import dagster as dg
from dagster._core.storage.tags import SENSOR_NAME_TAG
from dagster_aws.s3 import S3Resource
from dagster_pyspark import LazyPySparkResource

from cdc_assets.defs.assets import failure
from cdc_assets.defs.catch_up_config import CatchUpConfig, does_it_all, op_of
from cdc_assets.defs.events import TOGETHER_SECONDS, RunEvents
from cdc_assets.defs.failures import Interrupts, as_failure
from cdc_assets.defs.landing_assets import landing_events
from cdc_assets.defs.names import add_keys, new_keys
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.defs.watching import has_more
from cdc_assets.errors import BadSettings, InputError, MetadataMissing, Retryable
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import ApplyRows, Step
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted, seconds_text
from cdc_assets.operations.lake_pipeline import LakePipeline
from cdc_assets.operations.maintenance import MOVE_HEADS, compact_overdue, expire_snapshots
from cdc_assets.operations.named import table_called
from cdc_assets.operations.release import propose_release
from cdc_assets.pipeline.outcome import Outcome, RunHooks, TableOutcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.planning.partitions import PartitionKey, partition_keys
from cdc_assets.planning.plan import Plan
from cdc_assets.planning.run_batches import families, steps_of
from cdc_assets.report.plan_text import log_steps
from cdc_assets.run_coordinator import CHANGEFEED_TAG, GAVE_WAY_TAG

_LOOK_SECONDS, _REST_SECONDS = 0.5, 5.0
"""Between two looks at the feed by a run that lives on, and at most where the last rounds had nothing to do."""

_QUEUED_SECONDS = 3.0
"""A run that waits in the queue for longer has no place: the queue looks every second."""

_RUNS_SECONDS = 5.0
"""Between two looks at Dagster's runs by a run that waits for its next round."""

_COMPACT_SECONDS = 300.0
"""Between two compactions by a run that lives on: it applies nothing meanwhile."""

_SEEN = 100
"""Most runs of the queue that are examined."""


def catch_up_job(source: ConfiguredFeed, job_name: str) -> dg.JobDefinition:
    """Return the unpartitioned job that brings tables to the checkpoint."""

    @dg.op(name=op_of(job_name), out=dg.Out(dg.Nothing), pool="spark")
    def catch_up(
        context: dg.OpExecutionContext, config: CatchUpConfig, pyspark: LazyPySparkResource, s3: S3Resource
    ) -> Iterator[Any]:
        """Apply DDL and rows in TSO order over all chosen tables; a table that stops does not stop the others."""
        rounds = _Rounds(context, source, config)
        rounds.interrupts.listen()
        with as_failure(), source.pipeline(s3, pyspark, rounds.watch) as pipeline:
            for held, decision in config.releases.items():
                context.log.info(f"releasing {held}: {decision}")
                _release(pipeline, held, decision, confirmed=config.confirmed)
            events = RunEvents(context, source, pipeline, lives_on=config.keep_alive)
            hooks = RunHooks(events.after, rounds.give_way if config.keep_alive else rounds.is_interrupted)
            try:
                for outcome in _outcomes(context, config, pipeline, events, rounds, hooks):
                    try:
                        yield from events.finish(outcome)
                    except Retryable as error:  # what was not logged is logged after a later round
                        if not (config.keep_alive and rounds.outlast(error)):
                            raise
            finally:
                rounds.log_landing(pipeline)
            yield from events.close()
            if rounds.stopped:
                events.fail(rounds.stopped.values())
                raise failure(source, rounds.stopped.values())

    description = "Applies all tables, or the named ones, to the checkpoint in one run."
    return source.job(job_name, catch_up, description)


# --- which tables, and how long ---------------------------------------------------------------------------------------


def _outcomes(
    context: dg.OpExecutionContext,
    config: CatchUpConfig,
    pipeline: LakePipeline,
    events: RunEvents,
    rounds: "_Rounds",
    hooks: RunHooks,
) -> Iterator[Outcome]:
    """Apply the tables to the checkpoint, again and again while the run lives."""
    partitions: set[PartitionKey] = set()

    def select(plan: Plan) -> list[Step]:
        name = pipeline.settings.name  # schema files may have appeared after the sensor's tick
        if partitions != (keys := set(partition_keys(plan))):
            add_keys(context.instance, name, new_keys(context.instance, name, plan))
            partitions.update(keys)
        return steps_of(plan, _chosen(plan, config)[0])

    while True:
        rounds.interrupts.listen()
        rounds.begin()
        try:
            events.begin()
            outcome = pipeline.apply(context.run_id, select, hooks)
        except MetadataMissing as missing:
            if pipeline.landing is None:
                raise
            context.log.info(f"landed {counted(pipeline.advanced.messages, 'message')}: {missing}")
            return
        except InputError as error:
            if pipeline.landing is None:
                raise
            raise dg.Failure(str(error), allow_retries=False) from None
        except Retryable as error:
            if not (config.keep_alive and rounds.outlast(error)):
                raise
            continue
        rounds.log_landing(pipeline, TOGETHER_SECONDS)
        rounds.end(outcome, _chosen(outcome.plan, config)[1])
        yield outcome
        rounds.interrupts.raise_lost()
        if config.keep_alive:
            with suppress(Retryable):  # due again after the next round
                expire_snapshots(pipeline, outcome.plan, int(time.time() * 1000))
            rounds.compact(pipeline, outcome.plan)
        if not config.keep_alive or not rounds.has_next(pipeline, outcome.checkpoint):
            return


class _Rounds:
    """Decides when a long-lived run begins its next round, and when it ends. `stopped` are the tables that did not go
    on.
    """

    def __init__(self, context: dg.OpExecutionContext, source: ConfiguredFeed, config: CatchUpConfig) -> None:
        self.stopped: dict[Life, TableOutcome] = {}
        self.interrupts = Interrupts()
        self._context = context
        self._source = source
        self._config = config
        self._settings = source.changefeed
        self._begun = self._worked = time.monotonic()
        self._ends = self._begun + self._settings.run_keep_alive_seconds
        self._pause = _LOOK_SECONDS
        self._count = 0
        self._landing_logged = self._queue_seen = self._compacted = self._runs_seen = float("-inf")
        self._first_seen: dict[str, float] = {}  # when each run was first seen in the queue

    def begin(self) -> None:
        """Begin a round."""
        self._begun = time.monotonic()
        self._count += 1

    def watch(self, step: Step, table: TableId, number: int, count: int) -> None:
        """Log a step in a line; windows only of the first round, since each line is a row of Dagster's event log."""
        if self._count <= 1 or not isinstance(step, ApplyRows):
            log_steps(self._context.log.info)(step, table, number, count)

    def log_landing(self, pipeline: Pipeline, every: float = 0.0) -> None:
        """Log what was landed since the last time, unless that was less than so many seconds ago."""
        if time.monotonic() >= self._landing_logged + every:
            for event in landing_events(self._source, pipeline):
                self._context.log_event(event)
                self._landing_logged = time.monotonic()

    def end(self, outcome: Outcome, lives: set[Life]) -> None:
        """Take note of what a round did; less happens the longer there is nothing to do."""
        self.stopped = {
            table.life: table
            for table in outcome.tables
            if table.error is not None or (table.state.stopped and table.life in lives)
        }
        worked = any(table.steps for table in outcome.tables)
        if worked and not self.stopped:
            self._worked, self._pause = time.monotonic(), _LOOK_SECONDS
        else:
            self._slow_down()

    def compact(self, pipeline: LakePipeline, plan: Plan) -> None:
        """Compact a table that has been in need of it for long; nothing of the run goes on meanwhile, which is said."""
        now = time.monotonic()
        if now < self._compacted + _COMPACT_SECONDS:
            return
        try:
            done = compact_overdue(pipeline, plan, int(time.time() * 1000))
        except Retryable as error:
            self._compacted = now
            self._context.log.warning(f"{error} The table is compacted later.")
            return
        if done is not None:
            self._compacted = now
            moves = ", ".join(f"{name} {move}" for name, move in zip(MOVE_HEADS, done.moves, strict=True))
            self._context.log.info(f"compacted {done.before.table} in {seconds_text(done.seconds)}: {moves}")

    def outlast(self, error: Retryable) -> bool:
        """Wait for a store or the catalog that did not answer; return False if the run is to end by that."""
        self._slow_down()
        if why := self._why_over():
            self._context.log.info(f"{why}: this run ends")
            return False
        self._context.log.warning(f"{error} This run tries again in {seconds_text(self._pause)}.")
        time.sleep(self._pause)
        return True

    def _slow_down(self) -> None:
        self._pause = min(2 * self._pause, _REST_SECONDS)

    def has_next(self, pipeline: Pipeline, checkpoint: Tso) -> bool:
        """Wait until there is more to apply; return False if the run is to end."""
        again = bool(self.stopped)
        wait = max(0.0, self._begun + self._settings.commit_interval_seconds - time.monotonic())
        while not (why := self._why_over()):
            time.sleep(max(wait, self._pause if again else 0.0))
            try:
                if again or has_more(pipeline.landing) or pipeline.source.fence() > checkpoint:
                    return True
            except InputError as error:
                why = f"{error} All windows so far are applied"
                break
            except Retryable as error:
                if not self.outlast(error):
                    return False
            wait = self._pause
        self._context.log.info(f"{why}: this run ends")
        return False

    def _why_over(self) -> str:
        """Return the reason to end the run, "" if it is to live on."""
        self.interrupts.raise_lost()
        now = time.monotonic()
        if any(not isinstance(table.error, Retryable) for table in self.stopped.values()):
            return "a table stopped"
        if now >= self._ends:
            return "its time is over"
        if now >= self._worked + min(self._settings.run_idle_seconds, self._settings.run_keep_alive_seconds):
            return "nothing came for a while"
        if self._source.read != self._source.stamps():
            return "the settings changed (the sensor has the new ones once the code location is reloaded)"
        if now >= self._runs_seen + _RUNS_SECONDS:
            self._runs_seen = now
            if why := self._why_needless():
                return why
        return "other runs wait in the queue" if self._queued() else ""

    def _why_needless(self) -> str:
        """Return the reason why nobody waits for this run: it ended without its process, or another one does its work.

        It is ended so by force, by the monitor of runs, or by deletion. Two do the same where a run was requested by
        hand or by Dagster's retry beside that of the sensor: the older one goes on.
        """
        instance, run_id = self._context.instance, self._context.run_id
        run_record = instance.get_run_record_by_id(run_id)
        if run_record is None or run_record.dagster_run.is_finished:
            return "Dagster has it as ended"
        job = run_record.dagster_run.job_name
        started = dg.RunsFilter(
            job_name=job, statuses=[dg.DagsterRunStatus.STARTED], tags={CHANGEFEED_TAG: self._source.group}
        )
        older = [
            record.dagster_run
            for record in instance.get_run_records(started, limit=_SEEN)
            if record.storage_id < run_record.storage_id
            and does_it_all(job, record.dagster_run.run_config, self._config)
        ]
        return f"run {older[0].run_id} lives on for the same tables" if older else ""

    def is_interrupted(self) -> bool:
        """Return whether a signal came that is to end the run."""
        return self.interrupts.came

    def give_way(self) -> bool:
        """Return whether a run waits that no sensor requested; the queue is looked at once a second at most.

        A sensor requests a run for what is due, and at each turn of such runs a process would start for a window. A run
        that gives way gets a tag: the sensor requests what it leaves without a rest. So ends a run nobody waits for.
        """
        now = time.monotonic()
        if self.is_interrupted():
            return True
        if now < self._queue_seen + 1:
            return False
        self._queue_seen = now
        if self._why_needless():
            return True
        gives_way = any(SENSOR_NAME_TAG not in run.tags for run in self._queued())
        if gives_way:
            self._context.instance.add_run_tags(self._context.run_id, {GAVE_WAY_TAG: "true"})
        return gives_way

    def _queued(self) -> list[dg.DagsterRun]:
        """Return the oldest runs that have no place: by the clock, or by what was seen of them if that was set back."""
        queued = dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED])
        records = self._context.instance.get_run_records(queued, limit=_SEEN, ascending=True)
        now, before = time.monotonic(), time.time() - _QUEUED_SECONDS
        runs = {record.dagster_run.run_id: record for record in records}
        self._first_seen = {run_id: self._first_seen.get(run_id, now) for run_id in runs}
        return [
            record.dagster_run
            for run_id, record in runs.items()
            if record.create_timestamp.timestamp() < before or self._first_seen[run_id] < now - _QUEUED_SECONDS
        ]


def _chosen(plan: Plan, config: CatchUpConfig) -> tuple[set[Life], set[Life]]:
    """Return the tables of a run, and those of them that were requested; raises BadSettings."""
    lives_by_text = {str(life): life for life in plan.history.lives}

    def named(texts: list[str]) -> set[Life]:
        return {lives_by_text.get(text) or table_called(text, plan.history.lives, plan).life for text in texts}

    if not config.tables:
        taken = set(plan.history.lives) - named(config.exclude)
        return taken, taken
    family = families(plan.history)
    lives = named(config.tables)
    return {other for life in lives for other in family[life]}, lives


# --- a person's decisions ---------------------------------------------------------------------------------------------


def _release(pipeline: Pipeline, held: str, decision: str, *, confirmed: bool) -> None:
    table, _, version = held.rpartition("@")
    way, _, text = decision.partition(":")
    if not table or not version.isdigit():
        raise BadSettings(f'releases names "{held}"; expected schema.table@version, the version of the held DDL.')
    proposal = propose_release(pipeline, table, int(version), way.strip(), text.strip(), who="run config")
    if proposal.deletes_rows and not confirmed:
        raise BadSettings(
            f"the release of {held} by {way.strip()} deletes rows, which cannot be undone once it is applied. Set "
            "confirmed to true, and launch the job again."
        )
    proposal.record(pipeline)
