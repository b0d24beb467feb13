"""The checkpoint sensor: it compares what is available with what is applied and requests runs for what is due.

    same checkpoint, nothing to wait for ──▶ skip, after one small read
    enough runs in progress              ──▶ skip: they apply what is available
    else list and plan ──▶ new partitions, and a run for each batch of due tables

Every run first lands what topics hold. Where they hold more than marks and no table is due, a run is requested all the
same; after a run in vain the next one waits, longer each time, as for tables.

The lake's own progress decides what is due, so the rest of a crash or a failed run is due again. The cursor only has
how often runs failed to advance tables (they wait, longer each time) and when to check again.
"""

import base64
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dagster as dg
from dagster._core.storage.tags import PARTITION_NAME_TAG
from dagster_aws.s3 import S3Resource

from cdc_assets.defs.catch_up_config import format_run_config, parse_run_config
from cdc_assets.defs.failures import run_reasons, short_reason
from cdc_assets.defs.lost_runs import fail_lost_runs
from cdc_assets.defs.names import add_keys, feed_key, new_keys
from cdc_assets.defs.resources import ConfiguredFeed, read_credentials
from cdc_assets.defs.watching import FeedNow, Watch
from cdc_assets.errors import BadSettings, MetadataMissing
from cdc_assets.features.dumps.defs import seen_in_dumps
from cdc_assets.model.progress import Life, State
from cdc_assets.model.splits import Listing
from cdc_assets.model.steps import HoldTable
from cdc_assets.model.tso import Tso, seconds_behind, tso_time
from cdc_assets.model.wording import counted, seconds_text
from cdc_assets.operations.named import is_called
from cdc_assets.planning.partitions import PartitionKey, format_table, life_of, parse_partition_key
from cdc_assets.planning.plan import Plan
from cdc_assets.planning.run_batches import (
    MARK_SIGNS,
    Attempt,
    Due,
    RunBatch,
    backoff,
    batches,
    due,
    families,
    open_attempts,
)
from cdc_assets.run_coordinator import ATTEMPT_TAG, CHANGEFEED_TAG, GAVE_WAY_TAG, TABLE_TAG, TABLES_TAG

MAX_NEW_KEYS = 50
"""Keys that the daemon adds in one tick, 14 ms each on Postgres; more are added directly, a hundred times cheaper."""

MAX_MARKS = 1000
"""The number of marks in the cursor; Dagster copies it into every tick."""

HELD_SECONDS, ANYWAY_SECONDS, LOGGED_SECONDS = 60, 600, 300
"""Seconds until the same checkpoint is checked again: while tables are held, and always. How often lag is logged."""

MAX_GIVEN_WAY = 20
"""Most runs that a tick searches for one that gave way to another."""

MAX_FAILED_RUNS, MAX_REASONS = 20, 2
"""Most failed runs that a tick searches for the reasons of waiting tables, and most reasons that it shows."""

UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


@dataclass(frozen=True, slots=True)
class SensorCursor:
    """The state that a tick passes to the next. Times are seconds since 1970; `look_at` is when to check again."""

    checkpoint: Tso = 0
    look_at: int = 0
    logged_at: int = 0
    stalled: bool = False
    standing: str = ""
    """Why tables wait: a failed run, a hold."""
    attempts: tuple[Attempt, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> "SensorCursor":
        """Parse a cursor; an unknown one, of another version or edited by hand, counts as none."""
        try:
            fields = json.loads(text or "{}")
            attempts = [Attempt(at, attempt, tuple(_cut(marks))) for at, attempt, marks in fields.pop("attempts", ())]
            return cls(**fields, attempts=tuple(attempts))
        except (TypeError, ValueError, AttributeError):
            return cls()

    def format(self) -> str:
        """Return the cursor's text, a few bytes for each waiting table."""
        attempts = [(attempt.at, attempt.attempt, "".join(attempt.marks)) for attempt in self.attempts]
        return json.dumps(
            {
                "checkpoint": self.checkpoint,
                "look_at": self.look_at,
                "logged_at": self.logged_at,
                "stalled": self.stalled,
                "standing": self.standing,
                "attempts": attempts,
            }
        )


def _cut(marks: str) -> Iterable[str]:
    return (marks[at : at + MARK_SIGNS] for at in range(0, len(marks), MARK_SIGNS))


def checkpoint_sensor(
    source: ConfiguredFeed,
    partitions: dg.DynamicPartitionsDefinition,
    job: dg.JobDefinition,
    name: str,
    s3: S3Resource,
    clock: Callable[[], float] = time.time,
) -> dg.SensorDefinition:
    """Return the sensor of one changefeed; it runs from the start where the settings say `sensor_running`.

    It takes no resource as an argument: for these Dagster opens its storage at every tick, which is 50 ms of CPU.
    """
    running = source.changefeed.sensor_running
    watch = Watch(source)

    @dg.sensor(
        name=name,
        job=job,
        minimum_interval_seconds=source.changefeed.sensor_interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING if running else dg.DefaultSensorStatus.STOPPED,
        description="Watches the changefeed's checkpoint, adds partitions for new schema files, requests due runs.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            seen = watch.look(lambda: read_credentials(s3))
        except MetadataMissing as missing:
            return dg.SkipReason(str(missing))
        tick = _Tick(source, context, job.name, SensorCursor.parse(context.cursor), seen, int(clock()))
        if tick.idle:
            return tick.skipped(tick.at_checkpoint(tick.cursor.standing or "nothing is due"))
        underway = _Underway.of(context.instance, source.group, job.name)
        if underway.runs and seen.checkpoint == tick.cursor.checkpoint:
            return tick.busy(f"{counted(underway.runs, 'run')} of this changefeed in progress")
        if underway.caught_up_by >= source.changefeed.runs_at_once or underway.all_of_it:
            return tick.busy(
                f"{counted(underway.caught_up_by, 'run')} of all tables in progress, including what is new"
            )
        return tick.reconciled(read_credentials(s3), underway, partitions) if seen.checkpoint else tick.begun()

    return sensor


@dataclass(frozen=True, slots=True)
class _Underway:
    """The runs of a changefeed that advance tables and have not ended, with their tables."""

    runs: int = 0
    caught_up_by: int = 0
    tables: frozenset[str] = frozenset()
    left_out: frozenset[str] | None = None
    """Set when a run takes all tables: those that it leaves out."""
    partitions: tuple[PartitionKey, ...] = ()

    @classmethod
    def of(cls, instance: dg.DagsterInstance, group: str, job_name: str) -> "_Underway":
        runs = instance.get_runs(dg.RunsFilter(statuses=UNFINISHED, tags={CHANGEFEED_TAG: group}))
        lost = fail_lost_runs(instance, runs)
        return cls.taken_by((run for run in runs if run.run_id not in lost), job_name)

    @classmethod
    def taken_by(cls, runs: Iterable[dg.DagsterRun], job_name: str) -> "_Underway":
        run_state = cls()
        for run in runs:
            if run.job_name == job_name:
                tables, excluded_tables = parse_run_config(job_name, run.run_config)
                run_state = replace(run_state, runs=run_state.runs + 1, caught_up_by=run_state.caught_up_by + 1)
                if tables:
                    run_state = replace(run_state, tables=run_state.tables | tables)
                else:
                    run_state = replace(
                        run_state,
                        left_out=excluded_tables
                        if run_state.left_out is None
                        else run_state.left_out & excluded_tables,
                    )
            elif key := run.tags.get(PARTITION_NAME_TAG):
                try:
                    partitions = (*run_state.partitions, parse_partition_key(key))
                except BadSettings:
                    continue  # a run of a partition of another project
                run_state = replace(run_state, runs=run_state.runs + 1, partitions=partitions)
        return run_state

    @property
    def all_of_it(self) -> bool:
        """Return whether a run includes every table."""
        return self.left_out is not None and not self.left_out

    def lives(self, plan: Plan) -> set[Life]:
        """The tables of a run, with all that are applied together with them."""
        family = families(plan.history)
        by_partition = {life for key in self.partitions for life in life_of(plan, key)}
        together = {other for life in _named(plan, self.tables) | by_partition for other in family[life]}
        if self.left_out is not None:
            together |= family.keys() - _named(plan, self.left_out)
        return together


@dataclass(frozen=True, slots=True)
class _Tick:
    """One evaluation of the sensor."""

    source: ConfiguredFeed
    context: dg.SensorEvaluationContext
    job_name: str
    cursor: SensorCursor
    seen: FeedNow
    now: int

    @property
    def instance(self) -> dg.DagsterInstance:
        """Dagster's instance, which is opened when it is first asked for: 50 ms."""
        return self.context.instance

    @property
    def checkpoint(self) -> Tso:
        """The feed's fence, 0 where topics have none yet."""
        return self.seen.checkpoint

    @property
    def idle(self) -> bool:
        """Return whether the last look at this checkpoint left nothing to come back for yet, and nothing came since."""
        news = self.seen.has_news and self._landing_mark not in self._paused()
        return self.cursor.checkpoint == self.checkpoint and self.now < self.cursor.look_at and not news

    @property
    def lag_seconds(self) -> float:
        return seconds_behind(self.checkpoint, self.now) if self.checkpoint else 0.0

    @property
    def stalled(self) -> bool:
        return self.lag_seconds > self.source.changefeed.stalled_after_seconds

    def at_checkpoint(self, standing: str) -> str:
        """Return the sentence on the position through which the feed is complete, and on tables that wait."""
        at = f"checkpoint {self.checkpoint} ({tso_time(self.checkpoint)})" if self.checkpoint else self.seen.missing
        return f"{at}: {'; '.join(filter(None, (self.seen.sentence, standing)))}"

    def skipped(self, why: str) -> dg.SensorResult | dg.SkipReason:
        """Skip; the lag of the checkpoint is logged now and then, and when it begins or ends to be stalled."""
        if not self._logs:
            return dg.SkipReason(self._with_lag(why))
        cursor = replace(self.cursor, logged_at=self.now, stalled=self.stalled)
        return dg.SensorResult(skip_reason=self._with_lag(why), cursor=cursor.format(), asset_events=[self._observed()])

    def busy(self, why: str) -> dg.SensorResult | dg.SkipReason:
        """Skip because of runs in progress, with the reasons of waiting tables."""
        return self.skipped(f"{why}; {self.cursor.standing}" if self.cursor.standing else why)

    def begun(self) -> dg.SensorResult | dg.SkipReason:
        """Request a run that lands topics, before it is known how far they are complete."""
        batch = self._landing()
        if batch is None:
            return self.skipped(self.at_checkpoint(""))
        attempts = (Attempt(self.now, batch.attempt, (self._landing_mark,)),)
        cursor = replace(self.cursor, attempts=attempts).format()
        self.context.log.info(self._with_lag(self.at_checkpoint("a run is requested that lands this")))
        return dg.SensorResult(run_requests=[self._request(None, batch, 0, [])], cursor=cursor)

    def _landing(self) -> RunBatch | None:
        """Return a run for what is to be landed, unless it backs off after a run in vain."""
        mark = self._landing_mark
        if not self.seen.has_news or mark in self._paused():
            return None
        attempts = [attempt.attempt for attempt in self.cursor.attempts if mark in attempt.marks]
        return RunBatch((), max(attempts, default=0) + 1, everything=True)

    @property
    def _landing_mark(self) -> str:
        """A mark that stays the same while nothing is landed."""
        news = self.seen.news
        digest = "lost" if news is None else news.digest
        return base64.urlsafe_b64encode(hashlib.sha256(digest.encode()).digest())[:MARK_SIGNS].decode()

    def reconciled(
        self, s3: S3Resource, underway: _Underway, partitions: dg.DynamicPartitionsDefinition
    ) -> dg.SensorResult:
        """List, plan, and request runs for tables that are due, not in a run and not waiting."""
        name = self.source.changefeed.name
        with self.source.pipeline(s3) as pipeline:
            listing, plan = pipeline.planner.plan()
            reported = {s.life: s.reason for s in pipeline.ledger.states().get(name, ()) if s.state is State.HELD}
            dues = due(plan, reported)
            if not dues and not underway.runs:
                pipeline.record_status("sensor", (listing, plan))
        tick = replace(self, cursor=replace(self.cursor, attempts=self._in_vain(plan, dues)))
        return tick._requesting(listing, plan, dues, underway, partitions)

    def _requesting(
        self,
        listing: Listing,
        plan: Plan,
        dues: Sequence[Due],
        underway: _Underway,
        partitions: dg.DynamicPartitionsDefinition,
    ) -> dg.SensorResult:
        name = self.source.changefeed.name
        made, look_at = self._chosen(plan, dues, underway)
        standing = self._standing(plan, dues)
        landing = self._landing()
        if landing is not None and not made and not underway.caught_up_by:
            made = [landing]
        lands = [self._landing_mark] if made and landing is not None else []
        attempts = [Attempt(self.now, batch.attempt, (*(due.mark for due in batch.dues), *lands)) for batch in made]
        waits = [*dues, Due((), self._landing_mark, 0, 0)] if self.seen.has_news else dues
        attempts = [
            *open_attempts(self.cursor.attempts, waits, [mark for attempt in attempts for mark in attempt.marks]),
            *attempts,
        ]
        cursor = SensorCursor(
            self.checkpoint, look_at, self.cursor.logged_at, self.cursor.stalled, standing, _bounded(attempts)
        )
        if self._logs:
            cursor = replace(cursor, logged_at=self.now, stalled=self.stalled)
        requests = [
            self._request(plan, batch, number, _leave(plan, batch, dues, underway)) for number, batch in enumerate(made)
        ]
        dumped = seen_in_dumps(self.instance, self.source, listing, plan)
        sentence = self._with_lag(self.at_checkpoint(self._sentence(dues, standing, made)))
        if requests:  # Dagster shows no reason beside requests, but the log of the tick
            self.context.log.info(sentence)
        return dg.SensorResult(
            dynamic_partitions_requests=[*self._new_partitions(plan, partitions), *dumped.requests(name)],
            run_requests=requests,
            skip_reason=None if requests else sentence,
            cursor=cursor.format(),
            asset_events=[*dumped.events, *([self._observed(plan, dues)] if self._logs else [])],
        )

    def _new_partitions(self, plan: Plan, partitions: dg.DynamicPartitionsDefinition) -> list[Any]:
        """Return the request for new partitions; many are added here instead."""
        new = new_keys(self.instance, self.source.changefeed.name, plan)
        if len(new) > MAX_NEW_KEYS:
            add_keys(self.instance, self.source.changefeed.name, new)
            return []
        return [partitions.build_add_request(new)] if new else []

    def _chosen(self, plan: Plan, dues: Sequence[Due], underway: _Underway) -> tuple[list[RunBatch], int]:
        """The runs to request now, and when to check the same checkpoint again."""
        settings, paused = self.source.changefeed, self._paused()
        attempts = {mark: attempt.attempt for attempt in self.cursor.attempts for mark in attempt.marks}
        busy = underway.lives(plan) | self._just_run(plan)
        ready = [due for due in dues if due.mark not in paused and not busy.intersection(due.lives)]
        made = batches(
            ready,
            lambda due: attempts.get(due.mark, 0) + 1,
            tables=settings.run_tables,
            file_bytes=settings.run_bytes,
            everything=underway.left_out is None,
        )
        waiting = [due for due in dues if due.mark not in paused]
        held = any(isinstance(step, HoldTable) for step in plan.steps)
        look_at = self.now if waiting else min(paused[due.mark] for due in dues) if dues else self.now + ANYWAY_SECONDS
        soon = held or bool(self.source.outdated())
        look_at = min(look_at, self.now + (HELD_SECONDS if soon else ANYWAY_SECONDS))
        return list(made[: settings.runs_at_once - underway.caught_up_by]), look_at

    def _paused(self) -> dict[str, int]:
        """The marks that wait after a run in vain, with the second at which they may be requested again."""
        settings = self.source.changefeed
        return backoff(self.cursor.attempts, self.now, settings.retry_seconds, settings.retry_max_seconds)

    def _in_vain(self, plan: Plan, dues: Sequence[Due]) -> tuple[Attempt, ...]:
        """Return the requests without the tables that their run left undone because it gave way to another run."""
        if not self._paused():
            return self.cursor.attempts
        gave_way = self.instance.get_run_records(
            dg.RunsFilter(
                job_name=self.job_name,
                statuses=[dg.DagsterRunStatus.SUCCESS],
                tags={CHANGEFEED_TAG: self.source.group, GAVE_WAY_TAG: "true"},
            ),
            limit=MAX_GIVEN_WAY,
        )
        standing = []
        for attempt in self.cursor.attempts:
            since = [record.dagster_run for record in gave_way if record.create_timestamp.timestamp() >= attempt.at]
            yielded_lives = _Underway.taken_by(since, self.job_name).lives(plan) if since else set()
            left_marks = {due.mark for due in dues if yielded_lives.intersection(due.lives)}
            standing.append(replace(attempt, marks=tuple(mark for mark in attempt.marks if mark not in left_marks)))
        return tuple(standing)

    def _just_run(self, plan: Plan) -> set[Life]:
        """The tables whose last run ended less than the table interval ago."""
        settings = self.source.changefeed
        if not settings.table_interval_seconds:
            return set()
        records = self.instance.get_run_records(
            dg.RunsFilter(job_name=self.job_name, tags={CHANGEFEED_TAG: self.source.group}), limit=100
        )
        since = self.now - settings.table_interval_seconds
        ended = [record.dagster_run for record in records if record.end_time and record.end_time > since]
        return _Underway.taken_by(ended, self.job_name).lives(plan)

    def _request(self, plan: Plan | None, batch: RunBatch, number: int, exclude: list[str]) -> dg.RunRequest:
        name = self.source.changefeed.name
        lives = [str(life) for life in batch.lives]
        tables = [] if batch.everything else lives
        keep_alive = batch.everything or (len(batch.dues) == 1 and batch.attempt == 1)
        tags = {CHANGEFEED_TAG: self.source.group, TABLES_TAG: str(len(lives)), ATTEMPT_TAG: str(batch.attempt)}
        if plan is not None and len(lives) == 1 and not batch.everything:
            event = plan.history.lives[batch.lives[0]].events[-1]
            tags[TABLE_TAG] = format_table(event.file.table)
        return dg.RunRequest(
            run_key=f"{name}:{self.checkpoint if plan is None else plan.checkpoint}:{self.now}:{number}",
            run_config=format_run_config(self.job_name, tables, exclude, keep_alive=keep_alive),
            tags=tags,
        )

    # --- what waits ---

    def _sentence(self, dues: Sequence[Due], standing: str, made: Sequence[RunBatch]) -> str:
        """Describe a tick: the runs that it requests, and the tables that wait."""
        paused, parts = self._paused(), list[str]()
        taken = {due.mark for batch in made for due in batch.dues}
        if made:
            tables = counted(sum(len(batch.lives) for batch in made), "table")
            parts.append(f"{counted(len(made), 'run is', 'runs are')} requested for {tables}")
        ready = sum(len(due.lives) for due in dues if due.mark not in paused and due.mark not in taken)
        if ready:
            parts.append(f"{counted(ready, 'table waits', 'tables wait')} for a run")
        return ", ".join([*parts, *([standing] if standing else [])]) or "nothing is due"

    def _standing(self, plan: Plan, dues: Sequence[Due]) -> str:
        """Why tables wait until the next check: failed runs, with their reasons, and holds."""
        paused = self._paused()
        waiting = [due for due in dues if due.mark in paused]
        held = len({step.life for step in plan.steps if isinstance(step, HoldTable)})
        parts = []
        if waiting:
            number = counted(sum(len(due.lives) for due in waiting), "table waits", "tables wait")
            retry_time = tso_time(min(paused[due.mark] for due in waiting) * 1000 << 18)
            reasons = "; ".join(self._failures(plan, waiting))
            parts.append(f"{number} after a failed run, retried at {retry_time}{reasons and f': {reasons}'}")
        if held:
            where = feed_key(self.source.changefeed).to_user_string()
            parts.append(f"{counted(held, 'table is', 'tables are')} on hold (see the check `holds` of {where})")
        return ", ".join([*parts, *self.source.outdated()])

    def _failures(self, plan: Plan, waiting: Sequence[Due]) -> list[str]:
        """The reasons of the newest failed runs of these tables, a few of them, without duplicates."""
        run_filter = dg.RunsFilter(
            job_name=self.job_name, statuses=[dg.DagsterRunStatus.FAILURE], tags={CHANGEFEED_TAG: self.source.group}
        )
        waiting_lives = {life for due in waiting for life in due.lives}
        reasons: dict[str, None] = {}
        for run in self.instance.get_runs(run_filter, limit=MAX_FAILED_RUNS):
            if taken := waiting_lives & _Underway.taken_by([run], self.job_name).lives(plan):
                waiting_lives -= taken
                names = [plan.history.lives[life].events[-1].file.table for life in sorted(taken)]
                reasons.setdefault(short_reason(run_reasons(self.instance, run.run_id), names))
            if not waiting_lives or len(reasons) == MAX_REASONS:
                break
        return [reason for reason in reasons if reason]

    # --- lag ---

    @property
    def _logs(self) -> bool:
        return self.stalled != self.cursor.stalled or self.now >= self.cursor.logged_at + LOGGED_SECONDS

    def _with_lag(self, why: str) -> str:
        if not self.stalled:
            return why
        limit = seconds_text(self.source.changefeed.stalled_after_seconds)
        return (
            f"{why}. The checkpoint is {seconds_text(self.lag_seconds)} behind the clock, more than {limit} "
            "(stalled_after_seconds): the changefeed seems to be "
            "stalled or paused. Check its state with `cdc cli changefeed query`."
        )

    def _observed(self, plan: Plan | None = None, dues: Sequence[Due] = ()) -> dg.AssetObservation:
        metadata: dict[str, Any] = {
            "checkpoint_ts": self.checkpoint,
            "checkpoint_time": tso_time(self.checkpoint),
            "checkpoint_lag_seconds": self.lag_seconds,
            "stalled": self.stalled,
        }
        if plan is not None:
            metadata["tables"] = sum(table.name is not None for table in plan.history.lives.values())
            metadata["tables_due"] = sum(len(due.lives) for due in dues)
            metadata["tables_held"] = len({step.life for step in plan.steps if isinstance(step, HoldTable)})
            if outdated := self.source.outdated():
                metadata["definitions"] = "; ".join(outdated)
        return dg.AssetObservation(feed_key(self.source.changefeed), metadata=metadata)


def _leave(plan: Plan, batch: RunBatch, dues: Iterable[Due], underway: _Underway) -> list[str]:
    """The tables that a run over all tables excludes: waiting ones, those in runs, and holds already reported."""
    if not batch.everything:
        return []
    batch_lives = set(batch.lives)
    other_lives = {life for due in dues for life in due.lives} | {
        s.life for s in plan.steps if isinstance(s, HoldTable)
    }
    return sorted(str(life) for life in (other_lives - batch_lives) | _named(plan, underway.tables))


def _named(plan: Plan, texts: frozenset[str]) -> set[Life]:
    """Return the lives that a run config names, by identity or by present name."""
    lives = plan.history.lives.items() if texts else ()
    return {life for life, table in lives if any(is_called(text, (life, table.name)) for text in texts)}


def _bounded(attempts: Sequence[Attempt]) -> tuple[Attempt, ...]:
    """The newest requests, as many as fit into the cursor."""
    room, newest_attempts = MAX_MARKS, []
    for attempt in sorted(attempts, key=lambda attempt: -attempt.at):
        if room > 0:
            newest_attempts.append(Attempt(attempt.at, attempt.attempt, attempt.marks[:room]))
        room -= len(attempt.marks)
    return tuple(reversed(newest_attempts))
