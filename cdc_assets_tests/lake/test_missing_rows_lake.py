"""Rows that a window proves to be missing, in Iceberg: by row delta, by MERGE and by a first load as in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from cdc_assets.features.completeness.operations import accept_incomplete
from cdc_assets.lake import Lake, row_delta, windows
from cdc_assets.ledger import Ledger
from cdc_assets.model.progress import Lack
from cdc_assets.pipeline.pipeline import Pipeline, PipelineLake
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.pipeline.test_missing_rows import LackingLake

KINDS = {"s.some": ["log", "scd2"], "s.none": ["scd2"]}
HIDDEN = [("U", FIRST + 21, 2, "B"), ("U", FIRST + 22, 8, "x"), ("D", FIRST + 23, 7, "x"), ("D", FIRST + 24, 3, "c")]
HIDDEN += [("D", FIRST + 25, 2, "B"), ("U", FIRST + 26, 2, "b")]


@pytest.mark.parametrize("merges", [False, True], ids=["row delta", "MERGE"])
def test_a_lake_of_iceberg_proves_what_one_in_memory_does(
    tmp_path: Path, open_lake: Callable[..., Lake], merges: bool
) -> None:
    feed, lake, memory = LittleFeed(tmp_path), open_lake(), LackingLake()
    ledgers = dict[int, Ledger]()

    def pipeline(pipeline_lake: PipelineLake) -> Pipeline:
        ledger = ledgers.setdefault(id(pipeline_lake), Ledger("sqlite://"))
        return feed.pipeline_into(pipeline_lake, ledger, name=lake.changefeed, history=KINDS)

    def applied() -> None:
        outcomes = []
        for pipeline_lake in (lake, memory):
            with patch.object(
                windows,
                "row_delta_of",
                **({"return_value": None} if merges else {"wraps": row_delta.row_delta_of}),
            ):
                outcomes.append(pipeline(pipeline_lake).apply("run"))
        gaps, wanted = ({str(t.name): (t.gap, t.incomplete) for t in outcome.tables} for outcome in outcomes)
        assert gaps == wanted
        assert outcomes[0].complete == outcomes[1].complete

    for name in ("s.some", "s.none"):
        feed.create(name)
    feed.rows("s.some", FIRST, [("I", FIRST + 1, 1, "a"), ("I", FIRST + 2, 2, "b"), ("I", FIRST + 3, 3, "c")])
    feed.publish(FIRST + 10)
    applied()
    feed.rows("s.some", FIRST, HIDDEN)
    feed.rows("s.none", FIRST, HIDDEN)  # of a table without rows
    feed.publish(FIRST + 30)
    applied()
    missing_rows = {life: state.missing for life, state in lake.applied().items()}
    assert missing_rows == {life: state.missing for life, state in memory.applied().items()}
    assert {str(life): missing and missing.count for life, missing in missing_rows.items()} == {
        f"s.some@{FIRST}": 3,
        f"s.some@{FIRST}.log": None,
        f"s.some@{FIRST}.scd2": 3,
        f"s.none@{FIRST}": 4,
        f"s.none@{FIRST}.scd2": 4,
    }
    assert {state.gap.filling.lack for state in lake.applied().values() if state.gap} == {Lack.PROVEN}
    accept_incomplete(pipeline(lake), "s.*")
    assert pipeline(lake).apply("run").complete
    assert all(state.gap is not None and state.gap.accepted for state in lake.applied().values())
    feed.ddl("s.none", FIRST + 31, "TRUNCATE TABLE `none`", 11)
    feed.rows("s.none", FIRST + 31, [("I", FIRST + 32, 1, "a")])
    feed.publish(FIRST + 40)
    pipeline(lake).apply("run")
    assert {life.born_as.table for life, state in lake.applied().items() if state.gap} == {"some"}
