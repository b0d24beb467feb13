"""Sensors beside the way of the data: failed runs to a webhook, metrics into a file, tables that are late.

The webhook's address comes from the environment variable CDC_ASSETS_WEBHOOK. It receives a JSON object with `text` (as
Slack, Mattermost and Teams' incoming webhooks do), `run_id`, `changefeed` and `attempt`. Switch that sensor on in the
UI, or copy it.
"""

import json
import os
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterable, Mapping, Sequence

import dagster as dg
from dagster_aws.s3 import S3Resource

from cdc_assets.defs.checks import Freshness, evaluation, freshness_of
from cdc_assets.defs.failures import step_reasons
from cdc_assets.defs.names import feed_name
from cdc_assets.defs.resources import ConfiguredFeed, read_credentials
from cdc_assets.errors import BadSettings, MetadataMissing
from cdc_assets.model.ledger_entries import TableState
from cdc_assets.model.tso import Tso
from cdc_assets.model.wording import counted
from cdc_assets.operations.metrics import metrics_text, replace_file
from cdc_assets.operations.opening import refuse_missing
from cdc_assets.pipeline.outcome import TableOutcome
from cdc_assets.planning.partitions import format_table
from cdc_assets.run_coordinator import ATTEMPT_TAG, CHANGEFEED_TAG
from cdc_assets.settings.config import Settings

WEBHOOK_VARIABLE = "CDC_ASSETS_WEBHOOK"
PATIENCE_SECONDS = 10


def failure_alerts(changefeeds: Iterable[str], name: str = "cdc_alerts") -> dg.SensorDefinition:
    """Return a sensor, stopped by default, that posts every failed run of these changefeeds to the webhook."""
    feed_names = {feed_name(changefeed): changefeed for changefeed in changefeeds}

    def alerts(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
        changefeed = _changefeed(context.dagster_run, feed_names)
        if changefeed is None:
            return dg.SkipReason("not a run of a changefeed")
        address = os.environ.get(WEBHOOK_VARIABLE)
        if not address:
            return dg.SkipReason(f"{WEBHOOK_VARIABLE} is not set; set it to the address of a webhook")
        run = context.dagster_run
        attempt = run.tags.get(ATTEMPT_TAG, "1")
        text = failure_text(changefeed, run.job_name, attempt, context.get_step_failure_events(), context.failure_event)
        _post(address, {"text": text, "run_id": run.run_id, "changefeed": changefeed, "attempt": attempt})
        return None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # a parameter that is not given here
        return dg.run_failure_sensor(
            name=name,
            default_status=dg.DefaultSensorStatus.STOPPED,
            description=f"Posts failed runs to the address in {WEBHOOK_VARIABLE}: table, reason, ways out.",
        )(alerts)


def _changefeed(run: dg.DagsterRun, feed_names: Mapping[str, str]) -> str | None:
    """The changefeed of a run: by its tag, or by the assets that it materializes."""
    feeds = {key.path[0] for key in run.asset_selection or ()} | {run.tags.get(CHANGEFEED_TAG, "")}
    return feed_names.get(min(feeds & feed_names.keys(), default=""))


def failure_text(
    changefeed: str, job_name: str, attempt: str, steps: Sequence[dg.DagsterEvent], run_event: dg.DagsterEvent
) -> str:
    """Return the text about a failed run: each table with its reason and the ways out."""
    lines = [f"changefeed {changefeed}: {job_name} failed (attempt {attempt})"]
    for event in steps:
        lines += step_reasons(event)
    if len(lines) == 1:
        lines.append(run_event.message or "the run ended without a message: its process died")
    return "\n".join(lines)


def _post(address: str, message: dict[str, str]) -> None:
    """Post a message; raises on the webhook's error, so that the tick fails and Dagster shows why."""
    if not address.startswith(("http://", "https://")):
        raise dg.DagsterInvariantViolationError(
            f"{WEBHOOK_VARIABLE} must be an address that begins with http:// or https://."
        )
    body = json.dumps(message, ensure_ascii=False).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})  # noqa: S310  # checked above
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS):  # noqa: S310
            return
    except urllib.error.URLError as error:
        raise dg.DagsterInvariantViolationError(
            f"the webhook of {WEBHOOK_VARIABLE} did not accept the message ({error}). Check the address."
        ) from None


INTERVAL_SECONDS = 60
"""Pause between two looks of the sensors on metrics and on late tables."""


def metrics_sensors(settings: Settings) -> list[dg.SensorDefinition]:
    """Return the sensor `cdc_metrics` where the settings name a `metrics_file`; it runs from the start.

    A tick fails with the reason where the lake cannot be read or the file cannot be written, so that alerts on old
    values (`node_textfile_mtime_seconds`) and Dagster's page of the sensor agree.
    """
    path = settings.metrics_file
    if path is None:
        return []
    lake = settings.needed_lake()

    @dg.sensor(
        name="cdc_metrics",
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Writes the metrics of the lake to {path}, as `cdc-assets metrics --output` does.",
    )
    def sensor() -> dg.SkipReason:
        try:
            refuse_missing(lake)
        except BadSettings as missing:
            return dg.SkipReason(str(missing))
        replace_file(path, metrics_text(lake, settings.changefeeds))
        return dg.SkipReason(f"wrote {path}")

    return [sensor]


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
    """Return the freshness of every table with a target. The bucket is listed only if one is late by the ledger."""
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
    freshness = (freshness_of(source, table, checkpoint, now) for table in tables)
    return [check for check in freshness if check is not None]
