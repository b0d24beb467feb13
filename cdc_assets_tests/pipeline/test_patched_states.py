"""Generated histories whose changes leave columns out: mirrors, logs and states are what the source had."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import Column
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets_tests.folding import fold_differences
from cdc_assets_tests.lake_contents import contents_of
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.patched import ADDRESS, published_patches, records_feed
from cdc_assets_tests.source import Source
from cdc_assets_tests.states import differences, states_of

RULES: list[dict[str, Any]] = [
    {"kinds": ["log", "scd2"]},
    {"kinds": ["scd2"], "mirror": False},
    {"kinds": ["log", "scd2"], "mirror": False},
]


class Patches:
    """A lake of a feed of patches."""

    def __init__(self, rule: dict[str, Any]) -> None:
        self.lake, self.ledger = MemoryLake(), Ledger("sqlite://")
        self.settings = ChangefeedSettings(sink_uri=ADDRESS, name="p", history={"*.*": rule})  # type: ignore[arg-type]

    def apply(self) -> Outcome:
        return Pipeline(self.settings, self.settings.open_source(), self.lake, self.ledger).apply()

    def faults(self, source: Source, shown: int) -> Iterator[str]:
        outcome = self.apply()
        stopped = {table.life: table.reason for table in outcome.tables if table.reason}
        known = ("no key", "no row tells the rows that the DDL moves")  # states without key; a log without mirror
        yield from (f"{life}: {why}" for life, why in stopped.items() if not any(reason in why for reason in known))
        yield from fold_differences(self.lake)
        for table in states_of(self.lake):
            if table.life not in stopped:
                yield from (f"{table.life}: {difference}" for difference in differences(source, table, shown))
        mirrors = {t.name: contents_of(t.rows) for life, t in self.lake.tables.items() if t.name and not life.kind}
        if mirrors and mirrors != source.contents(shown):
            yield f"mirrors are {mirrors}, expected {source.contents(shown)}"


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=() if n in (1, 2, 3) else pytest.mark.soak) for n in range(2000)]
)
def test_a_generated_history_of_patches_has_the_states_of_its_source(
    seed: int, tomls: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    records, rule = records_feed(monkeypatch), RULES[seed % 3]
    often, once = Patches(rule), Patches(rule)
    moving = "log" not in rule["kinds"]
    for source, shown in published_patches(seed, tomls["csv"], records, moving=moving):
        assert [*often.faults(source, shown)] == [], (rule, shown)
    assert [*once.faults(source, shown)] == [], (rule, "in one go")


def test_a_patch_leaves_a_column_out_that_has_another_name_at_the_end_of_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = records_feed(monkeypatch)
    records.fence = 200
    key, v, w = (Column(name, "BIGINT", nullable=name != "i", is_pk=name == "i") for name in ("i", "v", "w"))
    records.ddl("s.t", 100, "CREATE TABLE `t` (`i` BIGINT PRIMARY KEY,`v` BIGINT,`w` BIGINT)", 3, key, v, w)
    records.rows("s.t", 100, ["I", 101, 1, 7, 8], ["U", 102, 1, [], 9], ["I", 103, 2, 5, 6])
    u = replace(v, name="u")
    records.ddl("s.t", 110, "ALTER TABLE `t` RENAME COLUMN `v` TO `u`", 28, key, u, w)
    records.rows("s.t", 110, ["P", 111, 2, [], 1])
    lake = Patches({"kinds": ["log", "scd2"]})
    lake.apply()
    tables = {life.kind: table.rows.to_pylist() for life, table in lake.lake.tables.items()}
    assert sorted((row["i"], row["u"], row["w"]) for row in tables[""]) == [(1, 7, 9), (2, 5, 1)]
    assert sorted((row["i"], row["u"], row["w"]) for row in tables["scd2"]) == [
        (1, 7, 8),
        (1, 7, 9),
        (2, 5, 1),
        (2, 5, 6),
    ]
    assert [row["_cdc_absent"] for row in tables["log"] if row["_cdc_absent"]] == [["u"], ["u"]]
    assert fold_differences(lake.lake) == []
