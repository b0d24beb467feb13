"""The freshness sensor: it reports when a lake table begins or ceases to be late, without starting a run.

Runs report freshness too, but there are none when the changefeed stalls, the sensor on its checkpoint is off or runs
fail, which is when an alert is needed.
"""

import json
import time
from collections.abc import Iterable

import dagster as dg
from dagster_aws.s3 import S3Resource

from cdc_assets.defs.checks import Freshness, evaluation, freshness_of
from cdc_assets.defs.resources import ConfiguredFeed, read_credentials
from cdc_assets.errors import MetadataMissing
from cdc_assets.ledger import TableState
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted
from cdc_assets.pipeline.outcome import TableOutcome
from cdc_assets.planning.partitions import format_table

INTERVAL_SECONDS = 60
MAX_EVENTS = 200
"""Events of one tick; each costs the daemon 10 to 20 ms. The rest follows with the next one."""


def freshness_sensor(source: ConfiguredFeed, s3: S3Resource) -> dg.SensorDefinition:
    """Return the sensor of a changefeed that has lag targets; it runs from the start where `sensor_running` is set.

    It takes no resource as an argument (see `checkpoint_sensor`).
    """
    running = source.changefeed.sensor_running

    @dg.sensor(
        name=f"{source.group}_freshness",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING if running else dg.DefaultSensorStatus.STOPPED,
        description="Reports the check `freshness` of a lake table when it begins or ceases to miss its lag target.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            checks = _now(source, read_credentials(s3))
        except MetadataMissing as missing:
            return dg.SkipReason(str(missing))
        reported: dict[str, bool] = json.loads(context.cursor or "{}")
        news = [check for check in checks if reported.get(format_table(check.table)) != check.passed][:MAX_EVENTS]
        if not news:
            late = sum(not check.passed for check in checks)
            verb = "is" if late == 1 else "are"
            return dg.SkipReason(f"{late} of {counted(len(checks), 'table')} {verb} late, as before")
        reported = {
            name: reported[name] for name in (format_table(check.table) for check in checks) if name in reported
        }
        return dg.SensorResult(
            cursor=json.dumps({**reported, **{format_table(check.table): check.passed for check in news}}),
            asset_events=[evaluation(check.key, check.result()) for check in news],
        )

    return sensor


def _now(source: ConfiguredFeed, s3: S3Resource) -> list[Freshness]:
    """Return how fresh every table with a target is. The bucket is listed only if one is late by the ledger."""
    now, name = time.time(), source.changefeed.name
    with source.pipeline(s3) as pipeline:
        checkpoint = pipeline.source.fence()
        states = pipeline.ledger.states().get(name, ())
        checks = _of(source, states, checkpoint, now)
        if all(check.passed for check in checks) or all(state.checkpoint == checkpoint for state in states):
            return checks
        return _of(source, pipeline.status().tables, checkpoint, now)


def _of(
    source: ConfiguredFeed, tables: Iterable[TableState | TableOutcome], checkpoint: Tso, now: float
) -> list[Freshness]:
    every = (freshness_of(source, table, checkpoint, now) for table in tables)
    return [check for check in every if check is not None]
