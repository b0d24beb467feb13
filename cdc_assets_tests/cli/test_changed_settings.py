"""A person changes the zone in the settings, sets it back, says from when it is in force, and rebuilds: on Iceberg."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from cdc_assets.operations.opening import open_state
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.command_line import Commands, Said
from cdc_assets_tests.little_feed import FIRST
from cdc_assets_tests.pipeline.test_value_settings import NOON, TOKYO, ZonedFeed

pytestmark = pytest.mark.timeout(900)


def test_a_zone_is_changed_set_back_released_and_the_table_rebuilt(run: Commands, tmp_path: Path) -> None:
    feed, lake = ZonedFeed(tmp_path), str(tmp_path / "lake")
    feed.table("shop.t", [("a", "TIMESTAMP")])
    feed.lines("shop.t", [("I", FIRST + 5, ["1", f'"{NOON}"'])])

    def command(verb: str, zone: str, *more: str) -> Said:
        uri = f"file://{feed.bucket}?protocol=csv"
        given = ("--sink-uri", uri, "--config", str(feed.toml), "--warehouse", lake, "--tz", zone)
        return run(*verb.split(), *more, *given)

    def hours() -> dict[int, str]:
        with open_state(LakeSettings.from_warehouse(lake), "default") as state:
            rows = next(iter(state.tables().values()))
            assert rows.name is not None
            return {row["id"]: _hour(row["a"]) for row in state.read(rows.name).to_pylist()}

    feed.publish(FIRST + 9)
    assert command("apply", "UTC").returncode == 0
    feed.lines("shop.t", [("I", FIRST + 15, ["2", f'"{NOON}"']), ("I", FIRST + 25, ["3", f'"{NOON}"'])])
    feed.publish(FIRST + 30)

    held = command("apply", TOKYO)
    assert held.returncode == 1
    assert 'tz "UTC"' in held.stderr
    assert 'tz "Asia/Tokyo"' in held.stderr
    assert "--new-settings" in held.stderr
    assert hours() == {1: "12"}
    assert command("plan", TOKYO).returncode == 1
    status = json.loads(run("status", "--warehouse", lake, "--json").stdout)
    assert [table["state"] for table in _tables(status)] == ["held"]
    assert "initial" not in held.stderr

    assert command("plan", "Etc/UTC").returncode == 0
    released = command("release", TOKYO, "shop.t", str(FIRST + 20), "--new-settings", "--who", "me")
    assert (released.returncode, released.stderr) == (0, "")
    listed = json.loads(run("release", "--list", "--warehouse", lake, "--json").stdout)
    assert [(release["way"], release["version"], release["who"]) for release in listed] == [
        ("new-settings", FIRST + 20, "me")
    ]
    assert command("apply", TOKYO).returncode == 0
    assert hours() == {1: "12", 2: "12", 3: "03"}
    assert command("apply", "UTC").returncode == 1

    assert command("rebuild", TOKYO, "shop.t").returncode == 0
    assert hours() == {1: "12", 2: "12", 3: "03"}
    assert command("release", TOKYO, "shop.t", str(FIRST + 20), "--undo").returncode == 1
    assert command("rebuild", TOKYO, "shop.t").returncode == 0
    assert hours() == {1: "03", 2: "03", 3: "03"}
    assert command("apply", TOKYO).returncode == 0


def _hour(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%H")


def _tables(status: object) -> list[dict[str, object]]:
    tables: list[dict[str, object]] = status["tables"] if isinstance(status, dict) else list(status)  # type: ignore[call-overload]
    return tables
