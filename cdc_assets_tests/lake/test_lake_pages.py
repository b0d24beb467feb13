"""The settings on the page about lakes: each block applies a changefeed, from the text of the page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from cdc_assets.lake import Lake
from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import settings_of
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.postgres import PASSWORD
from cdc_assets_tests.servers.azure import ACCOUNT, ACCOUNT_KEY, CONTAINER
from cdc_assets_tests.servers.lakes import CLIENT, GLUE_SECRET, WAREHOUSE_NAME, Stores
from cdc_assets_tests.servers.object_store import BUCKET, OWNER, VENDED_FOR

pytestmark = pytest.mark.timeout(900)

PAGE = Path(__file__).parents[2] / "docs" / "lakes.md"
BLOCKS = re.findall(r"^## ([^\n]+)\n+```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
OPTIONS = "?protocol=canal-json&enable-tidb-extension=true"


def here(title: str, stores: Stores) -> Iterator[tuple[str, str]]:
    """Yield what stands on the page, and what is in its place here."""
    place = f"s3://{VENDED_FOR if 'REST' in title else BUCKET}/page-{re.sub('[^a-z]', '', title.lower())}"
    yield "s3://company-lake/tables", place
    if "REST" in title:
        yield "https://polaris.example/api/catalog", stores.vending.uri
        yield "https://lakekeeper.example/catalog", stores.vending.uri
        yield (
            "https://login.example/realms/iceberg/protocol/openid-connect/token",
            f"{stores.vending.uri}/v1/oauth/tokens",
        )
        yield "warehouse: prod\n", f"warehouse: {WAREHOUSE_NAME}\n"
    if "Glue" in title:
        reach = f"glue.endpoint: '{stores.glue}', s3.endpoint: '{stores.store.endpoint}'"
        yield "client.region: eu-west-1", f"client.region: eu-west-1, {reach}"
    if "REST" not in title and "Glue" not in title:
        yield "jdbc:postgresql://postgres.example:5432/lake", stores.database
        yield "jdbc.user: lake", "jdbc.user: dagster"
    if "Hive" in title:
        yield "thrift://metastore.example:9083", stores.hive
    if "Postgres" in title:
        yield "https://minio.example:9000", stores.store.endpoint
    if "Google" in title:
        yield "gs://company-lake/tables", f"gs://{BUCKET}/page"
        yield "    jdbc.user", f"    gcs.service.host: {stores.gcs}\n    jdbc.user"
    if "Azure" in title:
        yield "lake@companylake.dfs", f"{CONTAINER}@{ACCOUNT}.dfs"
        yield "adls.account-name: companylake", f"adls.account-name: {ACCOUNT}\n    adls.endpoint: {stores.azure}"


def environment(title: str) -> Mapping[str, str]:
    """What a person has set for the block; Glue's and its S3's credentials are those of the process."""
    given = {"CATALOG_CREDENTIAL": CLIENT, "LAKE_PASSWORD": PASSWORD, "S3_KEY": OWNER[0], "S3_SECRET": OWNER[1]}
    return given | {"AZURE_KEY": ACCOUNT_KEY, "LEDGER": "sqlite://"}


def _often(title: str) -> tuple[pytest.MarkDecorator, ...]:
    return (pytest.mark.soak,) if any(vendor in title for vendor in ("Google", "Azure", "Hive")) else ()


@pytest.mark.parametrize(
    ("title", "text"), [pytest.param(title, text, id=title, marks=_often(title)) for title, text in BLOCKS]
)
def test_a_block_of_the_page_applies_a_changefeed(
    title: str, text: str, stores: Stores, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(title).items():
        monkeypatch.setenv(name, value)
    for there, replacement in here(title, stores):
        text = text.replace(there, replacement)
    document = yaml.safe_load(text)
    if "Glue" in title:  # the process's own credentials, which this JVM was not started with
        document["lake"]["catalog"] |= {"client.access-key-id": "AKGLUE", "client.secret-access-key": GLUE_SECRET}
    if "Glue" in title or "Hive" in title:
        document["lake"]["catalog"] |= stores.store.properties()
    name = f"page{abs(hash(title)) % 10**8}"
    feed = LittleFeed(tmp_path, "canal-json")
    feed.create(f"{name}.a")
    feed.rows(f"{name}.a", FIRST, [("I", FIRST + 1, 1, "x"), ("I", FIRST + 2, 2, "y")])
    feed.publish(FIRST + 9)
    document["changefeeds"][0] |= {"name": name, "sink_uri": f"file://{feed.bucket}{OPTIONS}"}
    settings = settings_of(document, tmp_path)
    changefeed = settings.changefeeds[0]
    lake = Lake(settings.needed_lake(), changefeed.name, lambda: spark)
    outcome = Pipeline(changefeed, changefeed.open_source(), lake, Ledger("sqlite://")).apply("test")
    assert [(table.state, table.reason) for table in outcome.tables] == [("applied", "")]
    assert sorted(lake.read(TableId(name, "a")).column("id").to_pylist()) == [1, 2]
    lake.close()


def test_the_page_has_a_block_for_each_kind_of_lake() -> None:
    kinds = [yaml.safe_load(text)["lake"]["catalog"]["type"] for _, text in BLOCKS]
    assert kinds == ["glue", "rest", "rest", "hive", "jdbc", "jdbc", "jdbc"]
