"""Generated histories: random DDL and rows end equal to a small oracle, in one go and checkpoint by checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_assets.model.schema import TableId
from cdc_assets_tests.alterations import values
from cdc_assets_tests.generated import Generated, each_history, faults, feeds, how_many
from cdc_assets_tests.source import Col, Source, Table
from cdc_assets_tests.writer import TOMLS, Publication, Style, Writer

# --- the truth --------------------------------------------------------------------------------------------------------


def play_back(source: Source, style: Style, tomls: Mapping[str, Path], since: int) -> list[str]:
    """Write the whole log, restart before its event number `since`, and say what is wrong in the end."""
    writer = Writer(style, lambda below: 0)
    for event in source.log:
        writer.write(event)
    writer.restart(source.log[since - 1].ts)
    for event in source.log[since:]:
        writer.write(event)
    writer.flush()
    end = source.log[-1].ts
    with feeds(style, tomls[style.rendering]) as (feed, _):
        return faults(feed, Publication(end, end, writer.files), source.contents(end))


def small(*columns: Col) -> tuple[Source, Table]:
    """A table keyed by `i` with the rows 1 and 2, each of a transaction of its own."""
    source = Source()
    source.create_database("one")
    numbered = tuple(replace(col, id=n + 1) for n, col in enumerate((Col("i", "INT", nullable=False), *columns)))
    table = Table(TableId("one", "a"), source.number(), numbered, ("i",), True, numbered=len(numbered))
    source.create(table)
    for number in (1, 2):
        row = {col.name: values(col)[number % len(values(col))] for col in columns}
        source.commit({table.name: {**table.rows, (number,): {"i": number, **row}}})
    return source, table


@pytest.mark.parametrize("rendering", TOMLS)
def test_rows_of_before_a_reordering_are_read_right_in_the_directory_of_after_it(
    tomls: Mapping[str, Path], rendering: str
) -> None:
    source, table = small(Col("p", "INT"), Col("q", "BIGINT"))
    i, p, q = table.columns
    source.alter(table, "MODIFY COLUMN `q` BIGINT FIRST", 12, replace(table, columns=(q, i, p)))
    assert play_back(source, Style(rendering), tomls, since=3) == []


@pytest.mark.parametrize("rendering", TOMLS)
def test_rows_of_before_a_renumbering_of_members_are_read_right_in_the_directory_of_after_it(
    tomls: Mapping[str, Path], rendering: str
) -> None:
    source, table = small(Col("e", "ENUM", elems=("x", "y")))
    i, e = table.columns
    turned = replace(e, elems=("y", "x"))
    source.alter(table, f"MODIFY COLUMN {turned.sql}", 12, replace(table, columns=(i, turned)))
    assert play_back(source, Style(rendering), tomls, since=3) == []


def check_history(generated: Generated, tomls: Mapping[str, Path]) -> None:
    source, style = generated.source, generated.style
    with feeds(style, tomls[style.rendering]) as (often, once):
        for publication in generated.publications():
            assert faults(often, publication, source.contents(publication.shown)) == [], publication.checkpoint
        assert faults(once, publication, source.contents(publication.shown)) == [], "in one go"
        assert often.journal == once.journal


@how_many(7, 5000)
def test_a_generated_history_ends_equal_to_the_source(tomls: Mapping[str, Path], count: int) -> None:
    each_history(count, lambda generated: check_history(generated, tomls))
