"""What a webhook gets of a failed run: the table, the reason, and the ways out."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.storage.defs_state.base import set_defs_state_storage

from cdc_assets.defs import build_defs
from cdc_assets.defs.monitoring import WEBHOOK_VARIABLE, failure_alerts
from cdc_assets.settings.config import Settings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.little_feed import LittleFeed


class Webhook(BaseHTTPRequestHandler):
    """Keeps what it is sent."""

    posted: list[dict[str, Any]]

    def do_POST(self) -> None:
        self.server.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    server = HTTPServer(("127.0.0.1", 0), Webhook)
    server.posted = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv(WEBHOOK_VARIABLE, f"http://127.0.0.1:{server.server_port}/hook")
    try:
        yield server.posted  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dg.op
def stops() -> None:
    """Fails as a run does whose tables stopped."""
    raise dg.Failure(
        "shop.orders: the DDL is held\n  way out: release it\nshop.items: line 7 is not an INT", allow_retries=False
    )


@dg.op
def breaks() -> None:
    raise ValueError("the disk is full")


def alert(operation: dg.OpDefinition, **tags: str) -> dg.SkipReason | None:
    """Let a run of this operation fail, and hand it to the sensor."""

    @dg.job(name="shop_catch_up", executor_def=dg.in_process_executor)
    def job() -> None:
        operation()

    with dg.DagsterInstance.ephemeral() as instance:
        named = {key.replace("_", "/"): value for key, value in tags.items()}
        result = job.execute_in_process(instance=instance, raise_on_error=False, tags=named)
        context = dg.build_run_status_sensor_context(
            sensor_name="cdc_alerts",
            dagster_instance=instance,
            dagster_run=result.dagster_run,
            dagster_event=result.get_run_failure_event(),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            skip_reason = failure_alerts(["shop"])(context.for_run_failure())
    assert skip_reason is None or isinstance(skip_reason, dg.SkipReason)
    return skip_reason


def test_a_failed_run_is_posted_with_table_reason_and_ways_out(posted: list[dict[str, Any]]) -> None:
    assert alert(stops, cdc_changefeed="shop", cdc_attempt="3") is None
    (message,) = posted
    assert (message["changefeed"], message["attempt"]) == ("shop", "3")
    assert message["text"].splitlines() == [
        "changefeed shop: shop_catch_up failed (attempt 3)",
        "shop.orders: the DDL is held",
        "  way out: release it",
        "shop.items: line 7 is not an INT",
    ]


def test_an_error_is_posted_by_its_message(posted: list[dict[str, Any]]) -> None:
    alert(breaks, cdc_changefeed="shop")
    assert "the disk is full" in posted[0]["text"]


def test_runs_of_others_are_not_posted(posted: list[dict[str, Any]]) -> None:
    assert isinstance(alert(stops), dg.SkipReason)
    assert isinstance(alert(stops, cdc_changefeed="another"), dg.SkipReason)
    assert posted == []


def test_without_an_address_the_sensor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WEBHOOK_VARIABLE, raising=False)
    skipped = alert(stops, cdc_changefeed="shop")
    assert skipped is not None
    assert WEBHOOK_VARIABLE in (skipped.skip_message or "")


def test_a_webhook_that_is_not_there_fails_the_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WEBHOOK_VARIABLE, "http://127.0.0.1:9/")
    with pytest.raises(Exception, match="did not accept the message"):
        alert(stops, cdc_changefeed="shop")


def test_every_settings_file_has_the_alerts_stopped_and_its_changefeeds_side_by_side(tmp_path: Path) -> None:
    feeds = [LittleFeed(tmp_path / name).settings(name) for name in ("one", "two")]
    defs = build_defs(Settings(lake=LakeSettings.from_warehouse(tmp_path / "lake"), changefeeds=tuple(feeds)))
    # An instance that an earlier test closed may still be where Dagster keeps what definitions load by.
    with warnings.catch_warnings(), set_defs_state_storage(None):
        warnings.simplefilter("ignore")  # Dagster warns of a parameter that it gives itself
        sensors = {sensor.name: sensor for sensor in defs.get_repository_def().sensor_defs}
    assert {"one_checkpoint", "two_checkpoint", "cdc_alerts"} <= set(sensors)
    assert sensors["cdc_alerts"].default_status == dg.DefaultSensorStatus.STOPPED
