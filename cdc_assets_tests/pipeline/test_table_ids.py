"""Table ids as path: a directory is a physical table's, and EXCHANGE PARTITION gives it to another table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st

from cdc_assets.model.schema import TableId
from cdc_assets_tests.generated import RAW, Feed, each_history, faults, feeds, how_many
from cdc_assets_tests.histories import KINDS
from cdc_assets_tests.pipeline.test_histories import check_history
from cdc_assets_tests.source import Col, Parts, Rows, Source, Table
from cdc_assets_tests.writer import TOMLS, Publication, Style, Writer

RINT, PLAIN = TableId("slices", "rint"), TableId("slices", "plain")


def exchanged() -> Source:
    """`rint` exchanges its first partition for the rows of `plain`, and both take more rows."""
    source = Source()
    source.create_database("slices")
    columns = (Col("i", "INT", nullable=False, id=1), Col("p", "VARCHAR", 12, id=2))
    parts = Parts("RANGE", "i", (("r0", source.number(), (10,)), ("r1", source.number(), (100,))))
    rint = Table(RINT, source.number(), columns, ("i",), True, parts=parts, numbered=2)
    plain = Table(PLAIN, source.number(), columns, ("i",), True, numbered=2)
    for table in (rint, plain):
        source.create(table)
    source.commit({RINT: rows(1, 12), PLAIN: rows(2, 3)})
    source.exchange(rint, 0, plain)
    source.commit({RINT: {**rint.rows, **rows(4)}, PLAIN: {**plain.rows, **rows(5, 50)}})
    return source


def rows(*numbers: int) -> Rows:
    return {(number,): {"i": number, "p": f"v{number}"} for number in numbers}


def written(source: Source, rendering: str) -> list[Publication]:
    """The bucket after every event of the source."""
    writer = Writer(Style(rendering, new=True, table_ids=True), lambda below: 0)
    publications = []
    for event in source.log:
        writer.write(event)
        writer.flush()
        publications.append(Publication(event.ts, event.ts, dict(writer.files)))
    return publications


def shared(publication: Publication) -> list[str]:
    """Directories with schema files of two tables under one version."""
    places = [path.rpartition("_")[0] for path in publication.files if "/meta/schema_" in path]
    return sorted({place for place in places if places.count(place) > 1})


@pytest.mark.parametrize("rendering", TOMLS)
def test_rows_name_their_table_in_a_directory_that_two_tables_have(tomls: Mapping[str, Path], rendering: str) -> None:
    source = exchanged()
    states = written(source, rendering)
    assert shared(states[-1])
    with feeds(Style(rendering, new=True, table_ids=True), tomls[rendering]) as (often, once):
        for state in states:
            assert faults(often, state, source.contents(state.shown)) == [], state.checkpoint
        assert faults(once, states[-1], source.contents(states[-1].shown)) == []


def test_what_a_shared_directory_holds_is_known_before_the_exchange_is_due(tomls: Mapping[str, Path]) -> None:
    source = exchanged()
    last = written(source, "csv")[-1]
    assert shared(last)
    for event in source.log:
        feed = Feed(Style("csv", new=True, table_ids=True), tomls["csv"])
        early = replace(last, checkpoint=event.ts, shown=event.ts)
        assert faults(feed, early, source.contents(event.ts)) == []
        feed.close()


def test_a_file_with_rows_of_both_tables_holds_them(tomls: Mapping[str, Path]) -> None:
    source = exchanged()
    last = written(source, "csv")[-1]
    (place,) = shared(last)
    root, version = place.split("/meta/schema_")
    path = next(path for path in last.files if path.startswith(f"{root}/{version}/") and path.endswith(".csv"))
    mixed = last.files[path] + last.files[path].replace(b'"rint"', b'"plain"').replace(b",4,", b",9,")
    assert mixed.count(b'"plain"') == mixed.count(b'"rint"') > 0
    feed = Feed(Style("csv", new=True, table_ids=True), tomls["csv"])
    outcome = feed.apply(replace(last, files={**last.files, path: mixed}))
    assert {str(table.life.born_as): table.state for table in outcome.tables} == dict.fromkeys(
        ("slices.rint", "slices.plain"), "held"
    )
    feed.close()


STYLES = st.builds(
    Style,
    rendering=st.sampled_from(sorted(TOMLS)),
    new=st.just(True),
    dates=st.booleans(),
    ids=st.booleans(),
    dispatchers=st.sampled_from([0, 0, 3]),
    table_ids=st.just(True),
)
WITHOUT = [kind for kind in KINDS if kind != "drop database"]
"""Where table ids are the path, DROP DATABASE leaves no file."""
KIND = st.sampled_from([*["rows"] * 12, *WITHOUT, *["create", "rename tables"] * 2, *["exchange partition"] * 8])
STEPS = st.builds(
    lambda tables, steps: [("create", raw) for raw in tables] + steps,
    st.lists(RAW, min_size=2, max_size=4),
    st.lists(st.tuples(KIND, RAW), min_size=12, max_size=40),
)


@how_many(6, 2000)
def test_a_generated_history_ends_equal_to_the_source(tomls: Mapping[str, Path], count: int) -> None:
    each_history(count, lambda generated: check_history(generated, tomls), STEPS, STYLES)
