"""Masks beside what else tables have: columns that come back in history tables, and rows that are explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_assets.ledger import Ledger
from cdc_assets.operations.explain import explain
from cdc_assets.operations.extract import extract
from cdc_assets.operations.release import release
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.report.explanation import explanation_lines
from cdc_assets_tests.little_feed import FIRST, LittleFeed
from cdc_assets_tests.masked import KEY
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.pipeline.test_imported import exchanged
from cdc_assets_tests.schema_documents import document, write_schema

TEXT = {"ColumnName": "w", "ColumnType": "VARCHAR", "ColumnPrecision": "40", "ColumnDefault": "a secret"}
NUMBER = {"ColumnName": "w", "ColumnType": "INT", "ColumnPrecision": "11", "ColumnDefault": "5"}
BARE = [
    {"ColumnName": "id", "ColumnType": "INT", "ColumnPrecision": "11", "ColumnNullable": "false", "ColumnIsPk": "true"},
    {"ColumnName": "v", "ColumnType": "VARCHAR", "ColumnPrecision": "40"},
]


@pytest.mark.parametrize("mask", ["drop", {"redact": "length"}, {"hash": {"key": {"env": "MASK_KEY"}}}], ids=repr)
@pytest.mark.parametrize("first", [TEXT, NUMBER], ids=["one type", "another type"])
def test_the_default_of_a_masked_column_that_comes_back_is_masked_in_history_tables(
    tmp_path: Path, mask: object, first: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASK_KEY", KEY)
    feed, lake, ledger = LittleFeed(tmp_path), MemoryLake(), Ledger("sqlite://")
    feed.create("shop.t")
    feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "one")])
    kind = "INT DEFAULT 5" if first is NUMBER else "VARCHAR(40) DEFAULT 'a secret'"
    for at, query, columns in (
        (10, f"ALTER TABLE `t` ADD COLUMN `w` {kind}", [*BARE, first]),
        (20, "ALTER TABLE `t` DROP COLUMN `w`", BARE),
        (30, "ALTER TABLE `t` ADD COLUMN `w` VARCHAR(40) DEFAULT 'a secret'", [*BARE, TEXT]),
    ):
        write_schema(feed.bucket, document("shop", "t", FIRST + at, Query=query, Type=5, TableColumns=columns))
    path = feed.bucket / "shop" / "t" / str(FIRST + 30) / "CDC00000000000000000001.csv"
    path.parent.mkdir()
    path.write_text(f'"I","t","shop",{FIRST + 32},2,"two","a secret"\r\n', newline="")
    feed.publish(FIRST + 40)
    outcome = feed.pipeline_into(lake, ledger, privacy={"shop.t.w": mask}, history={"shop.t": ["log", "scd2"]}).apply()
    assert [table.reason for table in outcome.tables] == ["", "", ""]
    rows_by_kind = {life.kind: table.rows.to_pylist() for life, table in lake.tables.items()}
    assert "a secret" not in repr((rows_by_kind, ledger.journal("little")))
    here = "w" if first is TEXT else "w__2"
    masked = [row.get("w") for row in rows_by_kind[""]]
    assert len(set(masked)) == 1  # of the default as of the row
    assert [row.get(here) for row in rows_by_kind["log"]] == masked
    assert [row.get(here) for row in rows_by_kind["scd2"] if row["__END_AT"] is None] == masked


def test_a_row_from_before_a_mask_is_not_shown_by_explain(tmp_path: Path) -> None:
    feed, lake, ledger = LittleFeed(tmp_path), MemoryLake(), Ledger("sqlite://")
    feed.create("shop.t")
    feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "a secret")])
    feed.publish(FIRST + 10)
    plain, masked = feed.settings(), feed.settings(privacy={"shop.t.v": {"constant": "hidden"}})
    Pipeline(plain, plain.open_source(), lake, ledger).apply()
    shown = explain(Pipeline(plain, plain.open_source(), lake, ledger), lake, "shop.t", ["1"])
    assert shown.row == {"id": "1", "v": "a secret"}
    explanation = explain(Pipeline(masked, masked.open_source(), lake, ledger), lake, "shop.t", ["1"])
    assert (explanation.row, [change.changed["v"][1] for change in explanation.changes]) == (None, ["hidden"])
    assert "masked otherwise now" in explanation.gone[-1]
    assert not any("no such row" in line for line in explanation_lines(explanation))


@pytest.mark.parametrize("history", [[], ["log", "scd2"], {"kinds": ["log"], "mirror": False}], ids=repr)
def test_values_from_before_a_mask_that_later_rows_alone_have_are_neither_explained_nor_extracted(
    tmp_path: Path, history: object
) -> None:
    feed, lake, ledger = LittleFeed(tmp_path), MemoryLake(), Ledger("sqlite://")

    def pipeline(**more: Any) -> Pipeline:
        return feed.pipeline_into(lake, ledger, **({"history": {"shop.t": history}} if history else {}) | more)

    feed.create("shop.t")
    feed.rows("shop.t", FIRST, [("I", FIRST + at, key, f"secret {at}") for at, key in ((1, 1), (2, 2), (3, 3))])
    feed.publish(FIRST + 10)
    pipeline().apply()
    masked = pipeline(privacy={"shop.t.v": {"constant": "hidden"}})
    release(masked, "shop.t", FIRST + 11, "new-settings")
    printed_texts = []
    for through in (FIRST + 10, FIRST + 20):
        for key in "12" if not isinstance(history, dict) else "":
            explanation = explain(masked, lake, "shop.t", [key])
            printed_texts += [repr(explanation), *explanation_lines(explanation)]
        printed_texts += [
            repr(extract(masked, "shop.t", FIRST, through, net=net).changes.to_pylist()) for net in (False, True)
        ]
        feed.rows("shop.t", FIRST, [("U", FIRST + 12, 1, "secret 12"), ("I", FIRST + 13, 4, "secret 13")])
        feed.publish(FIRST + 20)
        masked.apply()
    later = extract(masked, "shop.t", FIRST + 10, FIRST + 20)
    assert (later.source, later.changes.column("v").to_pylist()) == ("log" if history else "feed", ["hidden"] * 2)
    assert "secret 2" in repr([table.rows.to_pylist() for table in lake.tables.values()])  # as that was agreed to
    assert ("hidden" in repr(printed_texts), "secret" in repr(printed_texts)) == (True, False)


@pytest.mark.parametrize(
    ("query", "kind", "back"),
    [("TRUNCATE TABLE `t`", 11, ""), ("DROP TABLE `t`", 4, ""), ("DROP TABLE `t`", 4, "RECOVER TABLE `t`")],
    ids=["truncate", "drop", "recover"],
)
@pytest.mark.parametrize("history", [["log"], ["log", "scd2"]], ids=repr)
def test_a_ddl_moves_no_row_into_a_history_table_that_its_mirror_has_from_before_the_mask(
    tmp_path: Path, query: str, kind: int, back: str, history: list[str]
) -> None:
    feed, lake, ledger = LittleFeed(tmp_path), MemoryLake(), Ledger("sqlite://")
    feed.create("shop.t")
    feed.rows("shop.t", FIRST, [("I", FIRST + 1, 1, "a secret")])
    feed.publish(FIRST + 10)
    feed.pipeline_into(lake, ledger).apply()
    masked = feed.settings(privacy={"shop.t.v": {"constant": "hidden"}}, history={"shop.t": history})
    release(Pipeline(masked, masked.open_source(), lake, ledger), "shop.t", FIRST + 11, "new-settings")
    feed.rows("shop.t", FIRST, [("I", FIRST + 12, 2, "another secret")])
    feed.ddl("shop.t", FIRST + 20, query, kind)
    if back:
        feed.ddl("shop.t", FIRST + 30, back, 25)
    feed.publish(FIRST + 40)
    Pipeline(masked, masked.open_source(), lake, ledger).apply()
    tables = {life.kind: table.rows.to_pylist() for life, table in lake.tables.items()}
    assert len(tables) == 1 + len(history)
    assert "secret" not in repr([rows for of, rows in tables.items() if of])
    assert "hidden" in repr(tables["log"])


@pytest.mark.parametrize("applied", [False, True], ids=["at once", "rows before"])
@pytest.mark.parametrize("masked", ["parted", "plain", "*"])
@pytest.mark.parametrize("history", [["log", "scd2"], {"kinds": ["scd2"], "mirror": False}], ids=repr)
def test_an_exchange_brings_no_value_into_a_table_where_it_is_masked(
    tmp_path: Path, masked: str, applied: bool, history: object
) -> None:
    feed, lake, ledger = exchanged(tmp_path, "parted", "plain"), MemoryLake(), Ledger("sqlite://")
    settings = feed.settings(history={"s.*": history})
    if applied:
        feed.publish(FIRST + 3)
        assert Pipeline(settings, settings.open_source(), lake, ledger).apply().complete
        before = {life: table.rows for life, table in lake.tables.items()}
    settings = feed.settings(privacy={f"s.{masked}.v": {"constant": "hidden"}}, history={"s.*": history})
    if applied:
        released = ["s.parted", "s.plain"] if masked == "*" else [f"s.{masked}"]
        for name in released:
            release(Pipeline(settings, settings.open_source(), lake, ledger), name, FIRST + 4, "new-settings")
    feed.publish(FIRST + 9)
    outcome = Pipeline(settings, settings.open_source(), lake, ledger).apply()
    for life, table in lake.tables.items():
        if masked in ("*", life.born_as.table):
            there = before[life].column("v").to_pylist() if applied else []
            assert {"parted", "plain"} & set(table.rows.column("v").to_pylist()) <= set(there), life
    assert applied or (masked == "*") == outcome.complete, outcome.tables
