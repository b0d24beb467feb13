"""Assets with the changes of each hour, and an asset of a user's that depends on them, as on the page about cuts."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.test_utils import create_run_for_test
from pydantic import SecretStr

from cdc_assets.defs import build_changefeed_defs
from cdc_assets.errors import BadSettings
from cdc_assets.model.tso import last_tso
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.little_feed import FIRST, LittleFeed

pytestmark = pytest.mark.filterwarnings("ignore")  # Dagster says what is new in it

PAGE = (Path(__file__).parents[2] / "docs" / "cuts.md").read_text().partition("## The changes of an hour")[2]
SETTINGS = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0])["changefeeds"][0]
HOUR, NEXT = "2026-03-30-23:00", "2026-03-31-00:00"
MIDNIGHT = last_tso((FIRST >> 18) // 3_600_000 * 3_600_000 + 3_600_000)
CHANGES, DAYS = (dg.AssetKey(["changes", "shop", table]) for table in ("orders", "items"))


class Shop(LittleFeed):
    """A feed of one table with changes in two hours, and the definitions of the page."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.create("shop.orders")
        changes = [("I", FIRST + 1, 1, "a"), ("U", MIDNIGHT, 1, "b"), ("D", MIDNIGHT + 1, 1, "b")]
        self.rows("shop.orders", FIRST, changes)
        self.publish(MIDNIGHT + 5)
        by_day = {"shop.items": {"out": "extracts/items", "since": "2026-03-30", "every": "1d", "format": "csv"}}
        settings = self.settings("shop", extracts={**SETTINGS["extracts"], **by_day})
        page: dict[str, Any] = {}
        text = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
        exec(compile(text, "cuts.md", "exec", dont_inherit=True), page)
        job = dg.define_asset_job("both", [CHANGES, page["orders_changed"].key])
        self.defs = dg.Definitions.merge(
            build_changefeed_defs(settings, LakeSettings.from_warehouse(directory / "lake")),
            dg.Definitions([page["orders_changed"]], jobs=[job]),
        )


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.chdir(tmp_path)
    return Shop(tmp_path)


def run(shop: Shop, instance: dg.DagsterInstance, partition: str) -> dg.ExecuteInProcessResult:
    job = shop.defs.resolve_job_def("both")
    return job.execute_in_process(partition_key=partition, instance=instance, raise_on_error=False)


def asked(shop: Shop, instance: dg.DagsterInstance) -> list[tuple[str | None, Any]]:
    """What the sensor asks for in a tick."""
    with dg.build_sensor_context(instance, definitions=shop.defs) as context:
        tick = shop.defs.resolve_sensor_def("shop_extracts").evaluate_tick(context)
    return [(run_request.partition_key, run_request.asset_selection) for run_request in tick.run_requests or ()]


def test_an_asset_depends_on_the_changes_of_its_hour(shop: Shop, instance: dg.DagsterInstance) -> None:
    asset_key = dg.AssetKey("orders_changed")
    mapping = shop.defs.resolve_asset_graph().get_partition_mapping(asset_key, parent_asset_key=CHANGES)
    assert isinstance(mapping, dg.TimeWindowPartitionMapping)
    for _ in range(2):  # what is materialized again is written anew
        result = run(shop, instance, HOUR)
        assert result.success
        (seen,) = result.asset_materializations_for_node("orders_changed")
        assert seen.metadata["changes"].value == 2
    assert sorted(path.name for path in Path("extracts", "orders", HOUR).iterdir()) == [
        "changes.parquet",
        "extract.json",
    ]
    assert instance.get_materialized_partitions(CHANGES) == {HOUR}
    late = run(shop, instance, NEXT)
    (event, *_) = late.get_step_failure_events()
    assert "the feed is complete through" in str(event.step_failure_data.error)


def never(*_: object) -> None:
    raise AssertionError("an idle tick opens no storage of Dagster: it takes 50 ms")


def test_the_sensor_asks_for_the_windows_that_the_feed_has_passed(
    shop: Shop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = shop.defs.resolve_sensor_def("shop_extracts")

    assert asked(shop, instance)[0] == (HOUR, [CHANGES])
    assert run(shop, instance, HOUR).success
    shop.publish(MIDNIGHT + (3_600_000 << 18))
    assert asked(shop, instance) == [(NEXT, [CHANGES]), ("2026-03-30", [DAYS])]
    for key, partition in ((CHANGES, NEXT), (DAYS, "2026-03-30")):
        instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=partition))
    assert asked(shop, instance) == []
    assert not sensor.required_resource_keys, "Dagster opens its instance to make resources"
    with monkeypatch.context() as patch:
        patch.setattr(dg.SensorEvaluationContext, "instance", property(never))
        assert asked(shop, instance) == []
        shop.publish(MIDNIGHT + (7_200_000 << 18) - 1)
        assert asked(shop, instance) == []
    shop.publish(MIDNIGHT + (7_200_000 << 18))
    assert asked(shop, instance) == [("2026-03-31-01:00", [CHANGES])]
    shutil.rmtree(shop.bucket)
    (shop.bucket).mkdir()
    assert asked(shop, instance) == []


def test_a_window_that_is_being_written_or_whose_run_just_failed_is_not_asked_for(
    shop: Shop, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = ("2026-03-30", [DAYS])
    assert asked(shop, instance) == [(HOUR, [CHANGES]), day]
    tags, selection = {"dagster/partition": HOUR, "dagster/sensor_name": "shop_extracts"}, frozenset([CHANGES])
    failed_run = create_run_for_test(instance, tags=tags, asset_selection=selection, status=dg.DagsterRunStatus.STARTED)
    assert asked(shop, instance) == [day]
    instance.report_run_failed(failed_run)
    assert asked(shop, instance) == [day]
    clock = time.time() + 3700
    monkeypatch.setattr(time, "time", lambda: clock)
    assert asked(shop, instance) == [(HOUR, [CHANGES]), day]
    for _ in range(4):
        other = create_run_for_test(instance, tags=tags, asset_selection=selection)
        instance.report_run_failed(other)
    assert asked(shop, instance) == [day]
    clock += 15 * 3600
    assert asked(shop, instance) == [day]
    clock += 2 * 3600
    assert asked(shop, instance) == [(HOUR, [CHANGES]), day]


def test_a_window_that_a_backfill_in_progress_has_is_left_to_it(shop: Shop, instance: dg.DagsterInstance) -> None:
    graph = shop.defs.resolve_asset_graph()
    backfill = PartitionBackfill.from_asset_partitions(
        "mine",
        graph,
        [HOUR],
        [CHANGES],
        0.0,
        {},
        instance,
        False,
        None,
        None,
        None,
    )
    instance.add_backfill(backfill)
    assert asked(shop, instance) == [("2026-03-30", [DAYS])]
    instance.update_backfill(backfill.with_status(BulkActionStatus.CANCELED))  # type: ignore[no-untyped-call]
    assert asked(shop, instance) == [(HOUR, [CHANGES]), ("2026-03-30", [DAYS])]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"shop.orders": {"out": "x", "since": "2026-03-30T23:10:00Z"}}, "expected a whole hour"),
        ({"shop.*": {"out": "x", "since": "2026-03-30"}}, "is no name of a table"),
        ({"shop.orders": {"since": "2026-03-30"}}, 'setting "extracts.out" is missing'),
    ],
)
def test_what_cannot_be_extracted_by_the_hour_is_said(entry: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSettings, match=reason):
        ChangefeedSettings(sink_uri=SecretStr("/somewhere?protocol=csv"), extracts=entry)
