"""Which lakes have begun, and when Java starts while modules are still imported: where it is sure to be needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.errors import InputError, MetadataMissing, SetupError
from cdc_assets.operations.opening import begun, open_pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.little_feed import FIRST, LittleFeed


@pytest.mark.parametrize(
    ("applies", "is_known", "starts"),
    [(True, False, 1), (False, False, 0), (True, True, 0)],
    ids=["a new lake", "not to apply it", "a known lake"],
)
def test_java_starts_at_once_where_a_feed_is_applied_to_a_new_lake(
    applies: bool, is_known: bool, starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[LakeSettings] = []
    monkeypatch.setattr("cdc_assets.lake.spark.session.start_jvm_aside", started.append)
    feed, lake = LittleFeed(tmp_path), LakeSettings.from_warehouse(tmp_path / "lake")
    feed.create("s.t")
    feed.publish(FIRST + 9)
    if is_known:
        (tmp_path / "lake").mkdir()
        (tmp_path / "lake" / "catalog.db").touch()
    with open_pipeline(feed.settings(), lake, applies=applies):
        assert len(started) == starts


def test_no_lake_is_made_for_a_feed_without_checkpoint(tmp_path: Path) -> None:
    lake = LakeSettings.from_warehouse(tmp_path / "lake")
    with (
        pytest.raises(MetadataMissing),
        open_pipeline(LittleFeed(tmp_path).settings(), lake, applies=True),
    ):
        pytest.fail("it is opened")
    assert not (tmp_path / "lake").exists()


UNREADABLE: dict[str, dict[str, Any]] = {
    "files that another protocol writes": {"sink_uri": "file://BUCKET?protocol=canal-json&enable-tidb-extension=true"},
    "rows without commit-ts": {"changefeed_config": None},
    "a dump that is not there": {"initial": {"dump": "file://BUCKET/none"}},
    "topics of another protocol": {"sink_uri": "kafka://127.0.0.1:9/t?protocol=canal-json"},
    "topics that are not there": {"sink_uri": "kafka://127.0.0.1:9/none?protocol=craft"},
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_no_lake_is_left_by_a_feed_that_cannot_be_read(case: str, tmp_path: Path) -> None:
    feed = LittleFeed(tmp_path)
    feed.create("s.t")
    feed.rows("s.t", FIRST, [("I", FIRST + 1, 1, "a")])
    feed.publish(FIRST + 9)
    given = json.loads(json.dumps(UNREADABLE[case]).replace("BUCKET", str(feed.bucket)))
    if given.get("sink_uri", "").startswith("kafka"):
        message = {"topic": "t", "partition": 0, "offset": 0, "timestamp_ms": 1, "key_b64": None, "value_b64": "AZiA"}
        (tmp_path / "archive").mkdir()
        (tmp_path / "archive" / "0.jsonl").write_text(json.dumps({**message, "headers": []}))
        given |= {"archive": {"uri": str(tmp_path / "archive"), "layout": "records"}, "changefeed_config": None}
    settings = ChangefeedSettings(**{**feed.settings().model_dump(exclude_unset=True), **given})
    lake = LakeSettings.from_warehouse(tmp_path / "lake")
    with pytest.raises((SetupError, InputError)), open_pipeline(settings, lake, applies=True) as pipeline:
        pipeline.apply("test")
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("spelling", ["jdbc:sqlite:{}", "sqlite:///{}", "sqlite:///{}?timeout=30"])
def test_a_lake_whose_catalog_is_a_file_has_begun_once_that_is_there(spelling: str, tmp_path: Path) -> None:
    file = tmp_path / "elsewhere.db"
    lake = LakeSettings(catalog={"type": "jdbc", "uri": spelling.format(file)}, warehouse=str(tmp_path / "lake"))
    assert begun(lake) is None
    file.touch()
    assert begun(lake) is lake


@pytest.mark.parametrize(
    "catalog",
    [
        {"type": "rest", "uri": "http://c:1"},
        {"type": "jdbc", "uri": "postgresql://c/d"},
        {"type": "jdbc", "uri": "jdbc:sqlite:file:c.db"},
    ],
)
def test_a_lake_in_a_directory_whose_catalog_is_not_named_by_a_path_may_have_begun(
    catalog: dict[str, str], tmp_path: Path
) -> None:
    lake = LakeSettings(catalog=catalog, warehouse=str(tmp_path))
    assert begun(lake) is lake
