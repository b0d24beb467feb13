"""Recorded connectors: every variant equals the database at every mark, but for what its messages cannot give."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from cdc_assets.formats.debezium_json.envelope import envelopes
from cdc_assets_tests.connector_topics import Recording, recordings
from cdc_assets_tests.topic_feed import TopicFeed, sent_again

RECORDINGS = recordings()
ALWAYS = ("M_mariadb/iso3", "P_postgres/default")
"""What is always tried; the others are the same database in other settings, and are part of the soak."""
HELD = {"P_postgres/iso3": ("public.visit_log", "public.visit_archive")}
"""Tables that are held: a key change with values that are left out, and rows without key that come again elsewhere."""


def some_connectors(always: Collection[str]) -> list[object]:
    return [
        pytest.param(recording, id=str(recording), marks=() if str(recording) in always else (pytest.mark.soak,))
        for recording in RECORDINGS
    ] or [pytest.param(None, marks=pytest.mark.skip(reason="no recorded connectors beside the checkout"))]


@pytest.mark.parametrize("between", [", ", ","])
@pytest.mark.parametrize("around", [": ", ":"])
def test_messages_are_json_however_it_is_spaced(between: str, around: str) -> None:
    fields = [{"type": "int32", "optional": False, "field": "id"}]
    block = {"type": "struct", "fields": [{"type": "struct", "fields": fields, "optional": True, "field": "after"}]}
    whole = json.dumps({"schema": block, "payload": {"after": {"id": 1}}}, separators=(between, around))
    for _ in range(2):
        (records,) = envelopes(pa.array([whole.encode()], pa.binary()))
        assert records.column("after", "id").texts.to_pylist() == ["1"]
        assert list(records.block.columns) == ["id"]


@pytest.mark.parametrize(
    "recording",
    [recording for recording in RECORDINGS if recording.postgres and not recording.has_schemas][:1],
    ids=str,
)
def test_names_without_quotes_in_schemas_are_those_that_postgresql_makes_of_them(
    recording: Recording, tmp_path: Path
) -> None:
    shouted = re.sub('"([a-z_]+)"', lambda name: name[1].upper(), recording.schemas)
    (tmp_path / "schemas.sql").write_text(shouted)
    assert shouted.count('"') < recording.schemas.count('"') / 4
    feed, mark = recording.feed(schemas=tmp_path / "schemas.sql"), next(iter(recording.marks))
    feed.log.lines = recording.lines_at(mark)
    assert [table.reason for table in feed.apply().tables if table.reason] == []
    assert list(recording.differences(feed, mark)) == []


def recorded_feed(recording: Recording, directory: Path) -> TopicFeed:
    """Return the feed of a recording, with the schemas that its messages do not tell."""
    given = {}
    if recording.postgres and not recording.has_schemas:
        given["schemas"] = directory / "schemas.sql"
        given["schemas"].write_text(recording.schemas)
    return recording.feed(**given)


@pytest.mark.parametrize("recording", some_connectors(ALWAYS))
def test_a_connector_s_topics_equal_its_database_at_every_mark(recording: Recording, tmp_path: Path) -> None:
    feed = recorded_feed(recording, tmp_path)
    held = HELD.get(str(recording), HELD.get(recording.case, ()))
    for mark in recording.marks:
        feed.log.lines = recording.lines_at(mark)
        outcome = feed.apply()
        stopped = {str(table.name) for table in outcome.tables if table.reason}
        assert stopped <= {*held, "public.short_lived"}
        mismatches = [difference for difference in recording.differences(feed, mark) if not difference.startswith(held)]
        assert (mark.number, mismatches) == (mark.number, [])


WITH_DDL_TOPIC = ("M_mariadb/plain",)


@pytest.mark.parametrize(
    "recording",
    [
        recording
        for recording in some_connectors(WITH_DDL_TOPIC)
        if "M_mariadb/plain" in str(getattr(recording, "id", ""))
    ],
)
@pytest.mark.parametrize("cut", [10, 52])
def test_a_landing_amid_the_ddl_of_a_snapshot_holds_no_table(recording: Recording, cut: int, tmp_path: Path) -> None:
    feed = recorded_feed(recording, tmp_path)
    mark = next(iter(recording.marks))
    whole = recording.lines_at(mark)
    for lines in (whole[:cut], whole):
        feed.log.lines = lines
        outcome = feed.apply()
    assert [table.reason for table in outcome.tables if table.reason] == []
    assert list(recording.differences(feed, mark)) == []


SENT_AGAIN = ("M_mariadb/iso3", "P_postgres/iso3")
"""Those that have rows of incremental snapshots, which have no place in the log."""


@pytest.mark.parametrize("recording", some_connectors(SENT_AGAIN))
def test_a_half_that_comes_again_changes_nothing_and_what_follows_ends_equal(
    recording: Recording, tmp_path: Path
) -> None:
    feed, lines = recorded_feed(recording, tmp_path), recording.lines
    held = (*HELD.get(str(recording), ()), "public.short_lived")
    start, stop = len(lines) // 4, 3 * len(lines) // 4
    again = sent_again(lines, start, stop)
    seen = []
    for cut in (stop, stop + stop - start, len(again)):
        feed.log.lines = again[:cut]
        assert {str(table.name) for table in feed.apply().tables if table.reason} <= set(held)
        frames = {str(name): pl.DataFrame(feed.lake.read(name)) for name in feed.lake.names()}
        seen.append({name: frame for name, frame in frames.items() if name not in held})
    assert seen[0].keys() == seen[1].keys()
    assert [name for name, frame in seen[0].items() if not frame.equals(seen[1][name])] == []
    (*_, mark) = recording.marks
    assert [difference for difference in recording.differences(feed, mark) if not difference.startswith(held)] == []
