"""What nobody foresaw in the rows of one table fails that table, with the reason, and no other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.decoding.kinds import keyed
from cdc_assets.errors import StepFailed
from cdc_assets.ledger import Ledger
from cdc_assets.model.reports import Report
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.memory_lake import MemoryLake


def test_an_error_of_reducing_fails_its_table_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = LittleFeed(tmp_path)
    for name in ("shop.a", "shop.b", "shop.c"):
        feed.create(name)
        feed.rows(name, FIRST, [("I", FIRST + 1, 1, "x")])
    feed.publish(FIRST + 9)

    sound = keyed.reduce

    def reduce(changes: pa.Table, schema: TableSchema, table: TableId, files: object) -> tuple[pa.Table, Report]:
        if table.table == "b":
            raise ZeroDivisionError("nobody foresaw it")
        return sound(changes, schema, table)

    monkeypatch.setattr(keyed, "reduce", reduce)
    settings = feed.settings()
    outcome = Pipeline(settings, settings.open_source(), MemoryLake(), Ledger("sqlite://"), fuse=False).apply("test")
    a, b, c = sorted(outcome.tables, key=lambda table: table.name)
    assert (a.state, b.state, c.state) == ("applied", "failed", "applied")
    assert isinstance(b.error, StepFailed)
    assert "ZeroDivisionError: nobody foresaw it" in b.reason
