"""Streams that describe themselves, on Spark and Iceberg: a column that is gone and there again in one landing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.formats.decoded import COMMIT_TS
from cdc_assets.lake.state import LakeState
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import wall_clock_ms
from cdc_assets.operations.opening import open_pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.landing.test_connector_corners import ID, TABLE, Stream, V
from cdc_assets_tests.topic_feed import archive_of

pytestmark = pytest.mark.timeout(900)

AGAIN = {
    "text": ({"type": "string", "optional": True, "field": "v"}, "x", "y"),
    "wider": ({"type": "int64", "optional": True, "field": "v"}, 1 << 40, 8),
    "same": (V, 7, 8),
}
"""Table -> the column that is there again, and values of it."""


@pytest.mark.parametrize("landings", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_a_column_that_is_dropped_and_added_again_in_one_landing_has_new_values_only(
    landings: int, spark: SparkSession, tmp_path: Path
) -> None:
    """Columns by their ids: what rows had under the name before is not seen under the other type."""
    stream, lake = Stream(), LakeSettings.from_warehouse(tmp_path / "lake")
    archive: dict[str, Any] = {"uri": str(tmp_path / "archive"), "layout": "records"}
    given: dict[str, Any] = {"archive": archive, "topics": ["px.*"], "initial": {"complete": ["*"]}}
    uri: Any = "kafka://127.0.0.1:9092/px?protocol=debezium-json"
    settings = ChangefeedSettings(sink_uri=uri, name="c", **given)

    def apply(number: int) -> None:
        archive_of(stream.log.lines, tmp_path / "archive", f"{number}.jsonl")
        with open_pipeline(settings, lake, spark=lambda: spark) as pipeline:
            outcome = pipeline.apply()
        assert [table.reason for table in outcome.tables if table.reason] == []

    for table in AGAIN:
        stream.send("c", 1, table=table, id=1, v=5)
        stream.send("c", 2, table=table, id=2, v=6)
    if landings > 1:
        apply(0)
    for table, (field, value, changed) in AGAIN.items():
        stream.fields = (ID,)
        stream.send("c", 3, table=table, id=3)
        stream.fields = (ID, field)
        stream.send("c", 4, table=table, id=4, v=value)
        stream.send("u", 5, table=table, id=1, v=changed)
    apply(1)
    for table, (_, value, changed) in AGAIN.items():
        rows = LakeState(lake, "c").read(TableId("public", table)).to_pylist()
        assert {row["id"]: row["v"] for row in rows} == {1: changed, 2: None, 3: None, 4: value}, table


@pytest.mark.parametrize("several_tasks", ["executors"], indirect=True)
def test_rows_have_the_source_s_time_and_the_last_one_landed_counts(
    several_tasks: None, spark: SparkSession, tmp_path: Path
) -> None:
    """A first load, then a window into rows, each of a table with a key and of one without."""
    stream, lake = Stream(), LakeSettings.from_warehouse(tmp_path / "lake")
    archive: dict[str, Any] = {"uri": str(tmp_path / "archive"), "layout": "records"}
    given: dict[str, Any] = {"archive": archive, "topics": ["px.*"], "initial": {"complete": ["*"]}}
    uri: Any = "kafka://127.0.0.1:9092/px?protocol=debezium-json"
    settings = ChangefeedSettings(sink_uri=uri, name="c", **given)
    bare = TableId("public", "bare")
    expected = [{1: (5, 9000), 2: (6, 3000)}, {1: (7, 4000), 3: (8, 2000)}]
    for number, changes in enumerate([[("c", 1, 5, 9000), ("c", 2, 6, 3000)], [("u", 1, 7, 4000), ("c", 3, 8, 2000)]]):
        for op, key, v, made in changes:
            stream.send(op, 10 * number + v, made=made, id=key, v=v)
            stream.send("c", 10 * number + v, made=made, keyed=False, table="bare", id=key, v=v)
        if number:
            stream.send("d", 20, made=1, id=2, v=None)
        archive_of(stream.log.lines, tmp_path / "archive", f"{number}.jsonl")
        with open_pipeline(settings, lake, spark=lambda: spark) as pipeline:
            outcome = pipeline.apply()
        assert [table.reason for table in outcome.tables if table.reason] == []
        rows = LakeState(lake, "c").read(TABLE).to_pylist()
        assert {row["id"]: (row["v"], wall_clock_ms(row[COMMIT_TS])) for row in rows} == expected[number]
        rows = LakeState(lake, "c").read(bare).to_pylist()
        assert {row["v"]: wall_clock_ms(row[COMMIT_TS]) for row in rows} == dict(
            [*expected[0].values(), *expected[number].values()]
        )
