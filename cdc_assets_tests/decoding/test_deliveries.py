"""What comes twice counts once: deliveries of a table without key, files that grow, schema files written anew."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cdc_assets.decoding.split import MAX_REJECTS
from cdc_assets.ledger import Ledger
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import Listing, SettledFiles
from cdc_assets.pipeline.outcome import Outcome
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings, from_flags
from cdc_assets.sources import KnownFiles
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.schema_documents import document, file_column

T = TableId("db", "t")


class Feed:
    """A keyless table `t (v INT)` born at 1, and what a reader makes of its files."""

    def __init__(self, place: Path) -> None:
        self.column = file_column("v", "INT", "11")
        self.place, self.lake, self.ledger = place / "feed", MemoryLake(), Ledger("sqlite://")
        toml = place / "changefeed.toml"
        toml.write_text('[sink]\nprotocol = "csv"\n[sink.csv]\ninclude-commit-ts = true\noutput-old-value = true\n')
        uri = f"{self.place}?protocol=csv&date-separator=none"
        self.settings: ChangefeedSettings = from_flags(sink_uri=uri, changefeed_config=toml).changefeeds[0]
        self.schema("CREATE TABLE `t` (`v` INT)")

    def schema(self, query: str, checksum: int = 1, version: int = 1) -> None:
        kind = {"CREATE": 3, "TRUNCATE": 11}.get(query.partition(" ")[0], 0)
        content = document("db", "t", version, Query=query, Type=kind, TableColumns=[self.column])
        self.put(f"db/t/meta/schema_{version}_{checksum:010d}.json", json.dumps(content).encode())

    def file(self, number: int, *commits: int, size: int | None = None) -> None:
        """Write a file with one row for each commit-ts."""
        data = b"".join(b'"I","t","db",%d,false,%d\r\n' % (ts, ts) for ts in commits)
        self.put(f"db/t/1/CDC{number:020d}.csv", data[:size])

    def put(self, path: str, data: bytes) -> None:
        (self.place / path).parent.mkdir(parents=True, exist_ok=True)
        (self.place / path).write_bytes(data)

    def run(self, checkpoint: int) -> Outcome:
        """Apply through a checkpoint in a new process."""
        self.put("metadata", b'{"checkpoint-ts":%d}' % checkpoint)
        return Pipeline(self.settings, self.settings.open_source(), self.lake, self.ledger).apply()

    def apply(self, checkpoint: int) -> Sequence[int]:
        """Apply through a checkpoint, and return the values that the table holds then."""
        outcome = self.run(checkpoint)
        assert outcome.complete, [table.reason for table in outcome.tables]
        return sorted(row["v"] for row in self.lake.read(T).to_pylist())


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return Feed(tmp_path)


def test_rows_below_the_window_show_that_a_delivery_begins(feed: Feed) -> None:
    feed.file(1, 10, 20)
    assert feed.apply(10) == [10]
    feed.file(2, 10, 20)
    assert feed.apply(20) == [10, 20]


def test_rows_above_the_window_show_it_too(feed: Feed) -> None:
    feed.file(1, 10, 30)
    feed.file(2, 10)
    assert feed.apply(10) == [10]


def test_a_known_file_between_two_others_shows_it(feed: Feed) -> None:
    feed.file(1, 12, 20)
    feed.file(2, 11)
    assert feed.apply(15) == [11, 12]
    feed.file(3, 20)
    assert feed.apply(20) == [11, 12, 20]


def test_a_known_file_that_is_read_for_that_may_be_gone(feed: Feed) -> None:
    feed.file(1, 12, 20)
    feed.file(2, 11)
    feed.apply(15)
    feed.file(3, 25)
    changefeed = feed.settings.open_source()
    feed.put("metadata", b'{"checkpoint-ts":30}')
    plain = changefeed.listing

    def listing(contents: KnownFiles | None = None, settled: Sequence[SettledFiles] = ()) -> Listing:
        listing = plain(contents, settled)
        (feed.place / f"db/t/1/CDC{2:020d}.csv").unlink(missing_ok=True)
        return listing

    changefeed.listing = listing  # type: ignore[method-assign]
    assert Pipeline(feed.settings, changefeed, feed.lake, feed.ledger).apply().complete
    assert feed.apply(30) == [11, 12, 20, 25]


def test_records_of_a_later_window_that_do_not_fit_stop_only_that_one(feed: Feed) -> None:
    feed.column = file_column("v", "INT", "11", ColumnNullable="false")
    feed.schema("CREATE TABLE `t` (`v` INT NOT NULL)")
    row = b'"I","t","db",%d,false,%s\r\n'
    feed.put(f"db/t/1/CDC{1:020d}.csv", row % (10, b"10") + row % (50, b"\\N") * 3 * MAX_REJECTS)
    assert feed.apply(20) == [10]
    outcome = feed.run(60)
    assert [(table.state, table.report, table.through) for table in outcome.tables] == [("held", None, 20)]
    assert f"({3 * MAX_REJECTS} such records" in outcome.tables[0].reason


def test_a_transaction_over_two_files_counts_in_full(feed: Feed) -> None:
    feed.file(1, 10, 20)
    feed.file(2, 20, 20, 30)
    assert feed.apply(30) == [10, 20, 20, 20, 30]


def test_a_file_that_begins_where_the_one_before_ended_is_warned_of_in_its_own_window(feed: Feed) -> None:
    feed.file(1, 10, 20)
    feed.file(2, 20, 30)
    feed.file(3, 31, 40)
    warned = [
        [finding for finding in feed.run(checkpoint).findings if finding.rule == "joint-files"]
        for checkpoint in (10, 30, 40)
    ]
    assert [len(findings) for findings in warned] == [0, 1, 0]
    assert warned[1][0].detail == f"db/t/1/CDC{2:020d}.csv"


def test_a_file_that_was_seen_half_is_read_again(feed: Feed) -> None:
    feed.file(1, 10, 20)
    feed.put("metadata", b'{"checkpoint-ts":10}')
    whole = feed.settings.open_source()
    listing = whole.listing()
    feed.file(1, 10, 20, size=48)  # what a cache still shows of it
    pipeline = Pipeline(feed.settings, whole, feed.lake, feed.ledger)
    whole.listing = lambda contents=None, settled=(): listing  # type: ignore[method-assign]
    assert pipeline.apply().complete
    feed.file(1, 10, 20)
    assert feed.apply(20) == [10, 20]


def test_a_second_schema_file_of_one_version_changes_nothing(feed: Feed) -> None:
    feed.file(1, 10)
    feed.schema("", checksum=2)
    feed.schema("CREATE TABLE `t` (`v` INT)", checksum=3)
    listing = (feed.apply(10), feed.settings.open_source().listing())[1]
    assert [(file.version, file.query) for file in listing.schema_files] == [(1, "CREATE TABLE `t` (`v` INT)")]


def test_a_schema_file_that_lost_its_ddl_is_remembered_with_it(feed: Feed) -> None:
    feed.file(1, 10)
    feed.schema("TRUNCATE TABLE `t`", checksum=2, version=15)
    assert feed.apply(20) == []
    feed.schema("", checksum=2, version=15)
    again = feed.settings.open_source()
    listing = again.listing(feed.ledger.schema_files("default"))
    assert [file.query for file in listing.schema_files if file.version == 15] == ["TRUNCATE TABLE `t`"]
    feed.file(2, 25)
    assert feed.apply(30) == [25]


# --- dispatchers ------------------------------------------------------------------------------------------------------


def dispatched(feed: Feed, dispatcher: int, *rows: tuple[int, int]) -> None:
    """Write a dispatcher's file of rows (commit-ts, value)."""
    data = b"".join(b'"I","t","db",%d,false,%d\r\n' % row for row in rows)
    feed.put(f"db/t/1/CDC_{dispatcher}_{1:020d}.csv", data)


def alike(outcome: Outcome) -> list[str]:
    return [finding.text for finding in outcome.findings if finding.rule == "undecided-rows"]


def test_dispatchers_that_share_a_table_add_up(feed: Feed) -> None:
    dispatched(feed, 7, (10, 1), (10, 7), (11, 70), (12, 3))
    dispatched(feed, 8, (10, 1), (10, 8), (11, 80), (12, 3))
    outcome = feed.run(20)
    assert (feed.apply(20), alike(outcome)) == ([1, 1, 3, 3, 7, 8, 70, 80], [])


def test_a_dispatcher_that_begins_where_another_was_delivers_again_and_is_reported(feed: Feed) -> None:
    dispatched(feed, 7, (10, 1), (10, 1), (11, 2))
    dispatched(feed, 8, (11, 2), (12, 3))
    outcome = feed.run(20)
    assert feed.apply(20) == [1, 1, 2, 3]
    (warning,) = alike(outcome)
    assert warning.startswith("db.t: without a key, rows of one commit-ts")
    assert warning.endswith("(1 row)")


def test_two_equal_rows_and_nothing_else_are_one_and_are_reported(feed: Feed) -> None:
    dispatched(feed, 7, (10, 1))
    dispatched(feed, 8, (10, 1))
    outcome = feed.run(20)
    assert (feed.apply(20), len(alike(outcome))) == ([1], 1)


def test_a_dispatcher_that_was_cut_off_in_a_transaction_shows_no_sharing_surely(feed: Feed) -> None:
    dispatched(feed, 7, (10, 1), (10, 5), (11, 2))
    dispatched(feed, 8, (10, 1), (11, 2), (11, 3), (12, 4))
    assert ["2 rows" in text for text in alike(feed.run(20))] == [True]


def test_dispatchers_apart_in_time_are_not_reported(feed: Feed) -> None:
    dispatched(feed, 7, (10, 1), (11, 1))
    dispatched(feed, 8, (12, 1), (13, 1))
    outcome = feed.run(20)
    assert (feed.apply(20), alike(outcome)) == ([1, 1, 1, 1], [])
