"""Mirrors that mark deleted rows: the living ones are the source's, the others those that it deleted last."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from cdc_assets.ledger import Ledger
from cdc_assets.model.layout import DELETED_AT
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets_tests.connector_writer import URI
from cdc_assets_tests.connector_writer import Source as ConnectorSource
from cdc_assets_tests.generated import Feed, Generated, each_history, feeds, how_many
from cdc_assets_tests.lake_contents import contents_of
from cdc_assets_tests.landing.test_barriers import Lines, feed_of
from cdc_assets_tests.landing.test_generated_connectors import TABLE, turns
from cdc_assets_tests.landing.test_generated_topics import at_marks
from cdc_assets_tests.marked_rows import MarkingLake, mark_differences, marked_rows
from cdc_assets_tests.patched import ADDRESS, published_patches, records_feed
from cdc_assets_tests.source import Contents, Source
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed
from cdc_assets_tests.writer import Publication

SOFT: dict[str, Any] = {"deletes": "soft"}


def faults(feed: Feed, source: Source, publication: Publication) -> list[str]:
    """Apply a publication, and say what of its mirrors is wrong afterwards."""
    outcome = feed.apply(publication)
    problems = [f"{t.life} is {t.state}: {t.reason}" for t in outcome.tables if t.state == "held" and not t.life.kind]
    problems += [f"{t.life} failed: {t.reason}" for t in outcome.tables if t.state == "failed"]
    expected, actual = source.contents(publication.shown), feed.contents
    problems += [
        f"{name}: {actual.get(name)}, expected {wanted}"
        for name, wanted in expected.items()
        if actual.get(name) != wanted
    ]
    return [*problems, *mark_differences(feed.lake)]


@how_many(6, 3000)
def test_rows_of_generated_histories_are_those_of_the_source_and_deleted_ones_are_marked(
    count: int, tomls: Mapping[str, Path]
) -> None:
    marked = 0

    def check(generated: Generated) -> None:
        nonlocal marked
        source, style = generated.source, generated.style
        with feeds(style, tomls[style.rendering], **SOFT, history={"*.*": ["scd2"]}) as (often, once):
            often.lake, once.lake = MarkingLake(), MarkingLake()
            for publication in generated.publications():
                assert faults(often, source, publication) == [], publication.checkpoint
            assert faults(once, source, publication) == [], "in one go"
            keeping = [table.rows for table in often.lake.tables.values() if DELETED_AT in table.rows.column_names]
            marked += sum(marked_rows(rows).num_rows for rows in keeping)

    each_history(count, check)
    assert marked


# --- feeds of other kinds ---------------------------------------------------------------------------------------------


def row_faults(lake: MarkingLake, expected: Contents, outcome: Outcome) -> list[str]:
    """Say what is wrong with the mirrors of a lake after a run."""
    problems = [f"{t.life}: {t.reason}" for t in outcome.tables if t.reason and "no key" not in t.reason]
    mirrors = {t.name for life, t in lake.tables.items() if t.name is not None and not life.kind}
    actual = {name: contents_of(lake.read(name)) for name in mirrors}
    if actual != expected:
        problems.append(f"mirrors are {actual}, expected {expected}")
    return [*problems, *mark_differences(lake)]


@pytest.mark.parametrize("seed", [pytest.param(n, marks=() if n < 3 else pytest.mark.soak) for n in range(400)])
def test_changes_that_leave_columns_out_mark_rows_with_all_of_their_values(
    seed: int, tomls: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = records_feed(monkeypatch)
    settings = ChangefeedSettings(sink_uri=SecretStr(ADDRESS), name="p", **SOFT, history={"*.*": "scd2"})
    lakes = [(MarkingLake(), Ledger("sqlite://")) for _ in range(2)]

    def faults_of(number: int, expected: Contents) -> list[str]:
        lake, ledger = lakes[number]
        outcome = Pipeline(settings, settings.open_source(), lake, ledger).apply()
        return row_faults(lake, expected, outcome)

    for source, shown in published_patches(seed, tomls["csv"], records, moving=False):
        assert faults_of(0, source.contents(shown)) == [], shown
    assert faults_of(1, source.contents(shown)) == [], "in one go"


@pytest.mark.parametrize("seed", [pytest.param(n, marks=() if n in (1, 7) else pytest.mark.soak) for n in range(300)])
def test_messages_of_ticdc_mark_rows(seed: int, tmp_path: Path) -> None:
    for feed, mark, shown in at_marks(seed, tmp_path, MarkingLake, **SOFT, history={"*.*": "scd2"}):
        if len(shown) == 1:
            assert isinstance(feed.lake, MarkingLake)
            assert row_faults(feed.lake, shown[0], feed.apply()) == [], mark


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("seed", [pytest.param(n, marks=() if n < 2 else pytest.mark.soak) for n in range(100)])
def test_messages_of_a_connector_mark_rows(seed: int, partitions: int) -> None:
    source, log = ConnectorSource(seed, partitions), MemoryLog([])
    feed = TopicFeed.of(log, sink_uri=URI, name="c", **SOFT, history={"*.*": "scd2"})
    feed.lake = MarkingLake()
    for _ in turns(source, log, feed):
        if TABLE in feed.lake.names():
            assert list(mark_differences(feed.lake)) == []


def test_messages_of_ydb_mark_rows(tmp_path: Path) -> None:
    lines = Lines()
    feed = feed_of(lines, tmp_path, **SOFT)
    feed.lake = MarkingLake()

    def sent(step: int, *changes: tuple[int, dict[str, Any]]) -> list[tuple[Any, ...]]:
        for key, change in changes:
            lines.send(0, {**change, "key": [key], "ts": [step, len(lines.log.lines)]})
        lines.barrier(step + 1, 0)
        feed.apply()
        (table,) = feed.lake.tables.values()
        rows = table.rows.to_pylist()
        moments = [None if row[DELETED_AT] is None else int(row[DELETED_AT].timestamp() * 1000) for row in rows]
        return sorted((row["id"], row["a"], moment) for row, moment in zip(rows, moments, strict=True))

    made: list[tuple[int, dict[str, Any]]] = [
        (1, {"update": {"a": 1}}),
        (2, {"update": {"a": 2}}),
        (4, {"update": {"a": 4}}),
        (4, {"erase": {}}),
    ]
    assert sent(1000, *made) == [(1, 1, None), (2, 2, None), (4, 4, 1000)]
    assert sent(1002, (1, {"erase": {}}), (3, {"erase": {}})) == [(1, 1, 1002), (2, 2, None), (4, 4, 1000)]
    assert sent(1004, (1, {"update": {"a": 7}}), (2, {"erase": {}})) == [(1, 7, None), (2, 2, 1004), (4, 4, 1000)]
