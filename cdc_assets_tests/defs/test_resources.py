"""Dagster's S3 resource fills what sink URI and storage options leave out, and takes nothing of theirs away."""

from __future__ import annotations

import gc
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.defs_state.base import DefsStateStorage

from cdc_assets.defs.resources import ConfiguredFeed, S3Credentials, read_credentials
from cdc_assets.settings.config import CONFIG_VARIABLE, ChangefeedSettings, load
from cdc_assets.settings.lake import LakeSettings


def storage(uri: str, s3: S3Credentials, **more: object) -> dict[str, object]:
    feed = ChangefeedSettings.model_validate({"sink_uri": uri, "storage_options": more})
    return ConfiguredFeed(feed, LakeSettings.from_warehouse(Path("lake"))).with_credentials(s3).storage()


def test_a_region_in_the_uri_leaves_the_resources_endpoint() -> None:
    s3 = S3Credentials(endpoint_url="http://store:9000", region_name="eu-1", aws_access_key_id="k")
    assert storage("s3://b/p?protocol=csv&region=us-2", s3) == {
        "endpoint_url": "http://store:9000",
        "key": "k",
        "client_kwargs": {"region_name": "us-2"},
    }


def test_an_endpoint_in_the_uri_leaves_the_resources_region() -> None:
    s3 = S3Credentials(endpoint_url="http://other:9000", region_name="eu-1")
    storage_options = storage("s3://b/p?protocol=csv&endpoint=http://store:1", s3, key="own")
    assert (storage_options["endpoint_url"], storage_options["key"]) == ("http://store:1", "own")
    assert storage_options["client_kwargs"] == {"region_name": "eu-1"}


def test_the_resource_is_for_s3_only(tmp_path: Path) -> None:
    assert storage(f"file://{tmp_path}?protocol=csv", S3Credentials(aws_access_key_id="k")) == {}


def test_credentials_are_read_without_an_instance_of_dagster_that_is_closed_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OWN_KEY", "k")
    with dg.instance_for_test():
        credentials = read_credentials(S3Credentials(aws_access_key_id=dg.EnvVar("OWN_KEY")))
    assert credentials.aws_access_key_id == "k"
    del credentials
    gc.collect()
    assert DefsStateStorage.get() is None


def test_a_change_of_the_settings_file_is_seen_whichever_file_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "other.yaml"))
    file = tmp_path / "own.yaml"
    file.write_text("changefeeds: [{name: shop, sink_uri: 's3://b/p?protocol=csv'}]")
    (feed,) = load(file).changefeeds
    source = ConfiguredFeed(feed, LakeSettings.from_warehouse(tmp_path / "lake"))
    assert source.outdated() == []
    file.write_text(file.read_text() + "\n")
    assert len(source.outdated()) == 1
