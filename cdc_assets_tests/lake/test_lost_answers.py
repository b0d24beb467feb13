"""A catalog does what it was asked and its answer is lost: nothing is done twice, and nothing is missing."""

from __future__ import annotations

from contextlib import closing

import pytest
from pyspark.sql import SparkSession

from cdc_assets.lake import Lake
from cdc_assets.ledger import Ledger
from cdc_assets_tests.kills import named
from cdc_assets_tests.replay import compare, replay
from cdc_assets_tests.servers.counted import counted
from cdc_assets_tests.servers.lakes import Stores

pytestmark = [pytest.mark.timeout(900), pytest.mark.soak]

RUNS = 10
ONLY_READ = (b"awsglue.get", b"awsglue.search", b"/metrics", b"/oauth/")


def changes_something(head: list[bytes]) -> bool:
    """Return whether a request, by its head, changes the catalog: all of Glue's are POST."""
    request = b"".join(head).lower()
    return request.startswith((b"post ", b"delete ")) and not any(marker in request for marker in ONLY_READ)


@pytest.mark.parametrize(("kind", "server"), [("rest", "uri"), ("glue", "glue.endpoint")])
@pytest.mark.parametrize("feed", ["C_ddl_tables/csv-ts", "G_redelivery/csv-ts"])
def test_a_feed_whose_catalog_loses_every_fifth_answer_is_equal(
    kind: str, server: str, feed: str, spark: SparkSession, stores: Stores
) -> None:
    config, ledger, lost = named(feed), Ledger("sqlite://"), list[bool]()
    checkpoint = config.checkpoints[-1]
    assert checkpoint.expected is not None

    def is_lost(head: list[bytes]) -> bool:
        if changes_something(head):
            lost.append(len(lost) % 5 == 4)
            return lost[-1]
        return False

    with counted(stores.rest.uri if kind == "rest" else stores.glue, is_lost) as way:
        settings = stores.settings(kind, **{server: way.endpoint})
        for _ in range(RUNS):
            with closing(Lake(settings, settings.name, lambda: spark, "{schema}")) as lake:
                outcome = replay(config, checkpoint, lake, ledger)
                if not any(table.state == "failed" for table in outcome.tables):
                    assert compare(config, checkpoint.expected, lake, outcome) == []
                    break
        else:
            pytest.fail(f"not done in {RUNS} runs: {outcome}")
    assert any(lost)
