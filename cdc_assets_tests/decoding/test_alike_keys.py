"""Keys that only their collation makes equal: what changes its letters is one row, what lives beside it is reported."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.decoding import FILE
from cdc_assets.defs.checks import conformance_result
from cdc_assets.defs.resources import ConfiguredFeed
from cdc_assets.features.kinds.keyed import decoding as keyed
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP
from cdc_assets.model.reports import AlikeKeys
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.model.wording import counted
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.settings.lake import LakeSettings
from cdc_assets_tests.ddl.test_rows import Feed, states
from cdc_assets_tests.schema_documents import file_column

K = file_column("k", "VARCHAR", "9", is_key=True)
V = file_column("v", "INT", "11")

BESIDE: list[tuple[str, int]] = [
    ("I a@3 / I A@5", 1),
    ("I a@3 I A@5", 1),
    ("I A@3 I a@4 D A@5", 1),
    ("I a@3 I A@4 D A@5", 1),
    ("I a@3 / I A@5 U A@6", 1),
    ("I a@3 I b@3 / I A@5 I B@6 I c@6", 2),
    ("I a@3 / U a@5 I A@6", 1),
]
ONE_ROW = [
    "I a@3 / D a@5 I A@5",
    "I a@3 D a@5 I A@5",
    "I a@3 / D a@4 / I A@6",
    "I a@3 / U A@5",
    "I a@3 / U A@5 D A@6 I A@7",
    "I a@3 D a@4 I A@4 / D A@5 I a@5 D a@6 I A@6",
    "I a@3 I a@3 D a@4 I A@4 I a@3 D a@4 I A@4",
    "I a@3 / I a@3 D a@5 I a@5 / D a@7",
]


def applied(directory: Path, changes: str, **settings: Any) -> list[Outcome]:
    """Apply windows, cut by "/": rows such as `I a@3`."""
    feed = Feed(directory, **settings)
    feed.ddl(2, "CREATE TABLE `t` (`k` VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY,`v` INT)", 3, (K, V))
    outcomes = []
    for window in changes.split(" / "):
        for op, row in list(pairwise(window.split()))[::2]:
            key, _, ts = row.partition("@")
            feed.rows(2, (op, int(ts), {"k": key, "v": 1}))
        outcomes.append(feed.apply(int(ts)))
        assert states(outcomes[-1]) == {"applied"}
    return outcomes


def alike(outcomes: list[Outcome]) -> list[str]:
    return [finding.text for outcome in outcomes for finding in outcome.findings if finding.rule == "alike-keys"]


@pytest.mark.parametrize(("changes", "count"), BESIDE)
def test_a_key_that_meets_a_living_one_of_other_letters_is_reported(tmp_path: Path, changes: str, count: int) -> None:
    outcomes = applied(tmp_path, changes)
    (text,) = alike(outcomes)
    subject = f's.t ({counted(count, "key")}, such as "A")'
    assert text.startswith("s.t: keys arrived while another one existed")
    assert "new_collations: false" in text
    settings = ChangefeedSettings.model_validate({"sink_uri": "s3://feed?protocol=csv"})
    source = ConfiguredFeed(settings, LakeSettings.from_warehouse(tmp_path))
    check = conformance_result(source, outcomes[-1].findings)
    assert not check.passed
    assert subject in str(check.metadata["findings"].value)


@pytest.mark.parametrize("changes", ONE_ROW)
def test_a_key_that_changes_its_letters_is_one_row(tmp_path: Path, changes: str) -> None:
    assert alike(applied(tmp_path, changes)) == []


def test_keys_that_compare_byte_for_byte_are_never_alike(tmp_path: Path) -> None:
    outcomes = applied(tmp_path, "I a@3 I A@4 / I á@5", new_collations=False)
    assert alike(outcomes) == []


def test_of_a_key_of_several_columns_only_texts_may_be_alike() -> None:
    columns = (
        Column("n", "INT", is_pk=True, nullable=False),
        Column("k", "VARCHAR", precision=9, collation="utf8mb4_general_ci"),
    )
    rows = [(1, "a"), (1, "A"), (2, "b"), (2, None), (2, None), (3, "a")]
    changes = pa.table(
        {
            OP: pa.array([1] * len(rows), pa.int8()),
            COMMIT_TS: range(len(rows)),
            LINE: range(len(rows)),
            FILE: [0] * len(rows),
            "n": [n for n, _ in rows],
            "k": [k for _, k in rows],
        }
    )
    reduced, report = keyed.KIND.reduce(changes, TableSchema(columns, ("n", "k")), TableId("s", "t"))
    assert reduced.num_rows == 4
    assert report.alike == AlikeKeys(1, '1, "A"')
