"""Runs of Dagster on a store, a catalog with OAuth and a database: none of their credentials is shown anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from cdc_assets.defs import build_changefeed_defs
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.kills import Trap, trapped
from cdc_assets_tests.lake.test_stores import shown
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.postgres import PASSWORD
from cdc_assets_tests.servers.lakes import Stores
from cdc_assets_tests.servers.object_store import BUCKET, OWNER

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),  # Dagster says what is new in it
]


class Fed:
    """A changefeed in the store, read with keys in its sink URI, and its location in Dagster."""

    def __init__(self, directory: Path, stores: Stores, lake: LakeSettings) -> None:
        self.name, self._stores = f"secret_{uuid4().hex[:8]}", stores
        self.feed = LittleFeed(directory)
        self.lake = lake

    def apply(self, instance: dg.DagsterInstance, key: str) -> dg.ExecuteInProcessResult:
        """Bring the feed's files into the store, and apply them with a key to it."""
        for path in self.feed.bucket.rglob("*"):
            if path.is_file():
                place = f"{BUCKET}/{self.name}/{path.relative_to(self.feed.bucket)}"
                self._stores.store.files.pipe_file(place, path.read_bytes())
        uri = f"s3://{BUCKET}/{self.name}?protocol=csv&endpoint={self._stores.store.endpoint}&region=us-east-1"
        login = f"&access-key={OWNER[0]}&secret-access-key={key}"
        settings: dict[str, Any] = {"sink_uri": uri + login, "changefeed_config": self.feed.toml, "name": self.name}
        feed = ChangefeedSettings(**settings, namespace=f"{self.name}_{{schema}}")
        job = build_changefeed_defs(feed, self.lake).resolve_job_def(f"{self.name}_catch_up")
        config: dict[str, Any] = {"ops": {f"{self.name}_catch_up_tables": {"config": {"tables": []}}}}
        return job.execute_in_process(run_config=config, instance=instance, raise_on_error=False)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["rest", "vended", "postgres"])
def test_a_run_of_dagster_shows_no_secret_in_events_logs_stages_and_files(
    kind: str,
    stores: Stores,
    spark: SparkSession,
    instance: dg.DagsterInstance,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    database = stores.database.removeprefix("jdbc:postgresql://")
    ledger = f"postgresql+psycopg2://dagster:{PASSWORD}@{database}"
    fed = Fed(tmp_path, stores, stores.settings(kind).model_copy(update={"ledger": ledger}))
    staged: list[str] = []

    def looks(number: int, name: str) -> bool:
        if "after _write_manifest" in name:
            paths = [path for path in stores.store.files.find(BUCKET) if "/_cdc_stage/" in path]
            staged.extend(stores.store.files.cat_file(path).decode("latin-1") for path in paths)
        return False

    fed.feed.create("shop.a")
    fed.feed.rows("shop.a", FIRST, [("I", FIRST + 1, 1, "x"), ("I", FIRST + 2, 2, "y")])
    fed.feed.publish(FIRST + 9)
    with trapped(Trap(looks)):
        assert fed.apply(instance, OWNER[1]).success
        fed.feed.rows("shop.a", FIRST, [("U", FIRST + 11, 1, "z"), ("I", FIRST + 12, "no number", "y")])
        fed.feed.publish(FIRST + 19)
        assert not fed.apply(instance, OWNER[1]).success
    wrong = f"{OWNER[1][:-6]}000000"
    assert not fed.apply(instance, wrong).success
    events = [repr(entry) for run in instance.get_runs() for entry in instance.all_logs(run.run_id)]
    files = [path.read_bytes().decode("latin-1") for path in Path(instance.root_directory).rglob("*") if path.is_file()]
    objects = [stores.store.files.cat_file(path).decode("latin-1") for path in stores.store.files.find(BUCKET)]
    texts = [*staged, *events, *files, *objects, *capfd.readouterr()]
    assert staged
    assert len(events) > 20
    assert shown(texts) == []
    assert not [text for text in texts if wrong in text]
