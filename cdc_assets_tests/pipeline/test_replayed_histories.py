"""Generated histories read again: a rebuild, an extract and the story of a row agree, and records that fit come in."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import patch

from hypothesis import strategies as st

from cdc_assets.errors import ExtractRefused, RebuildRefused
from cdc_assets.features.quarantine.operations import replay
from cdc_assets.features.verification.operations_rows import python_rows, value_text
from cdc_assets.formats import UniformReader
from cdc_assets.operations.explain import explain
from cdc_assets.operations.extract import extract
from cdc_assets.operations.rebuild import rebuild
from cdc_assets_tests.generated import RAW, STYLES, Feed, Generated, each_history, how_many
from cdc_assets_tests.histories import KINDS
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds

LEAVES = ("DELETE", "UPDATE_BEFORE")


def steps_without(*kinds: str) -> st.SearchStrategy[list[tuple[str, bytes]]]:
    """Return the steps of histories in which some kinds of statements do not occur."""
    kind = st.sampled_from([*["rows"] * 24, *(kind for kind in KINDS if kind not in kinds), "create", "create"])
    return st.builds(
        lambda tables, steps: [("create", raw) for raw in tables] + steps,
        st.lists(RAW, min_size=2, max_size=4),
        st.lists(st.tuples(kind, RAW), min_size=16, max_size=40),
    )


# --- one input, several questions -------------------------------------------------------------------------------------

WITHOUT_CONVERSIONS = steps_without("modify column", "several changes", "exchange partition", "drop database")
"""Values of a key stay what they are, so that a row of an extract is found by the key that it has in the end."""


def check_agreement(generated: Generated, tomls: Mapping[str, Path]) -> None:
    feed = Feed(generated.style, tomls[generated.style.rendering])
    with closing(feed):
        for publication in generated.publications():
            feed.apply(publication)
        for life, table in list(feed.lake.tables.items()):
            if table.name is not None and table.schema.key:
                stories_agree(feed, str(life), table.schema.key, publication.checkpoint)
        before = feed.contents
        try:
            rebuild(feed.pipeline, MemoryRebuilds(feed.lake))
        except RebuildRefused:
            return
        assert feed.contents == before


def stories_agree(feed: Feed, table: str, key: tuple[str, ...], end: int) -> None:
    """The changes that are told of a key are those that an extract has, and lead to the row that is there."""
    try:
        changes = extract(feed.pipeline, table, 0, end).changes
    except ExtractRefused:
        return
    images_of: dict[tuple[str | None, ...], list[tuple[int, bool]]] = {}
    for row in python_rows(changes):
        if not (row["_cdc_place"] or "").startswith("DDL"):
            there = row["_change_type"] not in LEAVES
            images_of.setdefault(tuple(value_text(row[name]) for name in key), []).append((row["_cdc_position"], there))
    for values, images in list(images_of.items())[:8]:
        if any(value is None or not re.fullmatch(r"-?\d+", value) for value in values):
            continue  # texts that are not equal may be one key
        explanation = explain(feed.pipeline, feed.lake, table, [str(value) for value in values])
        if explanation.gone:  # rows had another key before
            continue
        known = [change for change in explanation.changes if not change.place.startswith("DDL")]
        assert [change.position for change in known] == sorted({at for at, _ in images}), (table, values)
        ends = [there for at, there in images if at == images[-1][0]]
        if known and explanation.changes[-1] is known[-1]:
            assert (explanation.row is not None) == any(ends), (table, values)


@how_many(4, 2000)
def test_a_rebuild_an_extract_and_what_is_told_of_a_row_agree(tomls: Mapping[str, Path], count: int) -> None:
    each_history(count, lambda generated: check_agreement(generated, tomls), WITHOUT_CONVERSIONS)


# --- records that fit later -------------------------------------------------------------------------------------------


@contextmanager
def misread(one_in: int) -> Iterator[None]:
    """Let some records of CSV be read as ones whose last number is none."""
    read = UniformReader.read

    def misreading(reader: UniformReader, path: str) -> bytes:
        def broken(line: bytes) -> bytes:
            is_meant = zlib.crc32(line) % one_in == 0
            return re.sub(rb",(\d+)(\r?\n)$", rb",x\1\2", line) if is_meant else line

        data = read(reader, path)
        return b"".join(map(broken, data.splitlines(keepends=True))) if path.endswith(".csv") else data

    with patch.object(UniformReader, "read", misreading):
        yield


WITHOUT_MOVES = steps_without("exchange partition", "recover table", "drop database")
"""Rows stay in their table, so that a table whose records cannot be replayed is the only one that lacks them."""


def check_records(generated: Generated, tomls: Mapping[str, Path]) -> None:
    source, style = generated.source, generated.style
    feed = Feed(style, tomls[style.rendering], quarantine=True)
    with closing(feed):
        with misread(3):
            for publication in generated.publications():
                outcome = feed.apply(publication)
        stopped = {table.name for table in outcome.tables if table.state in ("held", "failed")}
        replay(feed.pipeline)
        lacking = {row.life for row in feed.lake.quarantined()}
        names = {feed.lake.tables[life].name for life in lacking if life in feed.lake.tables}
        expected = source.contents(publication.shown)
        for name, contents in feed.contents.items():
            if name not in stopped | names:
                assert contents == expected[name], name


@how_many(6, 2000)
def test_records_that_fit_later_lead_to_the_rows_of_the_source(tomls: Mapping[str, Path], count: int) -> None:
    styles = STYLES.filter(lambda style: style.rendering.startswith("csv"))
    each_history(count, lambda generated: check_records(generated, tomls), WITHOUT_MOVES, styles)
