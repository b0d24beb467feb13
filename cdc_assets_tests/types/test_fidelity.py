"""The fidelity report and the page of the type table."""

from __future__ import annotations

from pathlib import Path

from cdc_assets.model.schema import Column, TableSchema
from cdc_assets.report.type_page import format_report, type_page
from cdc_assets.types.fidelity import fidelity_report
from cdc_assets.types.mysql_types import TYPES
from cdc_assets.types.mysql_values import ZERO_DATE
from cdc_assets.types.rules import Grade

DOCS = Path(__file__).parents[2] / "docs"


def test_the_committed_page_is_the_generated_one() -> None:
    assert (DOCS / "types.md").read_text(encoding="utf-8") == type_page()


def test_the_page_has_every_type() -> None:
    listed = {line.split("|")[1].split("(")[0].split()[0] for line in type_page().splitlines() if line.startswith("| ")}
    assert listed >= TYPES.keys()


def test_each_column_has_its_grade_and_what_was_seen() -> None:
    schema = TableSchema(
        (
            Column("id", "BIGINT", unsigned=True),
            Column("wide", "DECIMAL", precision=65, scale=30),
            Column("born", "DATE"),
            Column("twice", "INT", virtual=True),
        )
    )
    rows = fidelity_report(schema, {("born", ZERO_DATE): 3})
    assert [row.grade for row in rows] == [Grade.LOSSLESS, Grade.TEXT, Grade.CHANGED, Grade.ABSENT]
    assert [row.lake for row in rows] == ["decimal(20,0)", "string", "date", ""]
    assert rows[2].notes == {ZERO_DATE: 3}
    assert f"{ZERO_DATE}: 3" in format_report(rows)


def test_names_cannot_break_the_report() -> None:
    report = format_report(fidelity_report(TableSchema((Column("a|b\nc\\", "INT"),)), {}))
    assert report.splitlines()[2].startswith("| a\\|b c\\\\ | INT |")
