"""Notify a webhook when a run of a changefeed fails: the table, the reason and the ways out.

A sensor for alerts; switch it on in the UI, or copy it. The address comes from the environment variable
CDC_ASSETS_WEBHOOK and receives a JSON object with `text` (as Slack, Mattermost and Teams' incoming webhooks do),
`run_id`, `changefeed` and `attempt`.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterable, Mapping, Sequence

import dagster as dg

from cdc_assets.defs.failures import step_reasons
from cdc_assets.defs.names import feed_name
from cdc_assets.run_coordinator import ATTEMPT_TAG, CHANGEFEED_TAG

WEBHOOK_VARIABLE = "CDC_ASSETS_WEBHOOK"
PATIENCE_SECONDS = 10


def failure_alerts(changefeeds: Iterable[str], name: str = "cdc_alerts") -> dg.SensorDefinition:
    """Return a sensor, stopped by default, that posts every failed run of these changefeeds to the webhook."""
    known = {feed_name(changefeed): changefeed for changefeed in changefeeds}

    def alerts(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
        changefeed = _changefeed(context.dagster_run, known)
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


def _changefeed(run: dg.DagsterRun, known: Mapping[str, str]) -> str | None:
    """The changefeed of a run: by its tag, or by the assets that it materializes."""
    feeds = {key.path[0] for key in run.asset_selection or ()} | {run.tags.get(CHANGEFEED_TAG, "")}
    return known.get(min(feeds & known.keys(), default=""))


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
