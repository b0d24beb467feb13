"""Which lakes have begun, and when Java starts while modules are still imported: where it is sure to be needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_assets.errors import MetadataMissing
from cdc_assets.operations.opening import begun, open_pipeline
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
