"""The demos, as far as they need no Spark: each play brings the feed, or the landing, to its checkpoint."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from cdc_assets.cli.demo import Demo, TopicDemo
from cdc_assets.errors import BadSettings
from cdc_assets.operations.opening import open_pipeline
from cdc_assets.settings.config import load


def test_each_play_is_a_bucket_in_which_nothing_is_missing(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "demo")
    for play in demo.prepare():
        assert demo.play(play) > 10
        indexes = list(demo.bucket.rglob("CDC.index"))
        assert indexes
        for index in indexes:
            assert (index.parents[1] / index.read_text().strip()).exists()
    assert demo.is_played()


def test_the_feed_is_unpacked_by_a_python_that_takes_no_filter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extract = tarfile.TarFile.extractall
    monkeypatch.setattr(tarfile.TarFile, "extractall", lambda archive, path: extract(archive, path))
    assert Demo(tmp_path / "demo").prepare()


def test_a_demo_that_was_broken_off_begins_anew_in_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(tarfile.TarFile, "extractall", broken_off)
        with pytest.raises(KeyboardInterrupt):
            Demo(tmp_path / "demo").prepare()
    assert Demo(tmp_path / "demo").prepare()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadSettings, match="cannot be made"):
        Demo(tmp_path / "file" / "demo").prepare()


def test_each_play_brings_the_landing_to_its_checkpoint(tmp_path: Path) -> None:
    demo = TopicDemo(tmp_path / "demo")
    plays = demo.prepare()
    settings = load(demo.settings_file)
    fences = []
    for play in plays:
        assert demo.play(play) > 400
        with open_pipeline(settings.changefeed(), settings.needed_lake()) as pipeline:
            pipeline.land()
            fences.append(pipeline.source.fence())
    assert fences == [play["checkpoint_ts"] for play in plays]
    assert demo.is_played()
