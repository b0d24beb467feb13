"""NULL in keys, as YDB has it, on Spark and Iceberg: such rows are found again by every kind of change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_assets.lake.state import LakeState
from cdc_assets.operations.opening import open_pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.formats.test_ydb_keys import (
    TABLE,
    TOPIC,
    YQL,
    line_of,
    rows_by_key,
    some_operations,
    table_after,
)
from cdc_assets_tests.topic_feed import archive_of

pytestmark = pytest.mark.timeout(900)


def test_rows_with_null_in_their_key_are_loaded_patched_replaced_and_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "s.sql").write_text(YQL)
    archive: dict[str, Any] = {"uri": str(tmp_path / "archive"), "layout": "records"}
    given: dict[str, Any] = {"archive": archive, "schemas": tmp_path / "s.sql", "initial": {"complete": ["*"]}}
    uri: Any = f"kafka://127.0.0.1:2135/{TOPIC}?protocol=ydb-json"
    settings, lake = ChangefeedSettings(sink_uri=uri, name="y", **given), LakeSettings.from_warehouse(tmp_path / "lake")
    operations = some_operations(1, 60)
    lines = [line_of(number, operation) for number, operation in enumerate(operations)]
    start = 0
    for count in (12, 13, 20, len(lines)):
        archive_of(lines[start:count], tmp_path / "archive", f"{count}.jsonl")
        start = count
        with open_pipeline(settings, lake, spark=lambda: spark) as pipeline:
            outcome = pipeline.apply()
        assert [table.reason for table in outcome.tables if table.reason] == []
        assert rows_by_key(LakeState(lake, "y").read(TABLE)) == table_after(operations[:count])
