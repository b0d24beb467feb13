"""Maintenance of a landing: what expires, what is put together, and that nobody notices but by what is gone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_assets.errors import TableMoved
from cdc_assets.landing.iceberg import LandingTable
from cdc_assets.landing.maintenance import LandingDue, LandingLimits, landing_due, maintain_landing
from cdc_assets.landing.retention import Retention, TableNeed
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId
from cdc_assets.operations.landings import taken_through
from cdc_assets.settings.lake import LakeSettings
from cdc_assets.settings.sections import TableSettings
from cdc_assets_tests.landing.test_landing import URI, Broker, broker, ddl, mark, row, rows_of
from cdc_assets_tests.memory_lake import MemoryLake
from cdc_assets_tests.topic_feed import TopicFeed
from cdc_assets_tests.topics import Topic, topics

DAY = 86_400_000
NOW = 100 * DAY


def at(day: float, more: int = 0) -> int:
    return (int(day * DAY) << 18) + more


@pytest.fixture
def feed() -> TopicFeed:
    return TopicFeed.of(Broker(), sink_uri=URI)


def landed_in_turns(feed: TopicFeed, days: range) -> TopicFeed:
    broker(feed).send(0, ddl(at(days[0] - 1)))
    for day in days:
        broker(feed).send(0, row(at(day), day, day), mark(at(day, 9)))
        feed.apply()
    return feed


def test_small_files_are_put_together_and_every_split_stays_what_it_was(feed: TopicFeed) -> None:
    landed_in_turns(feed, range(90, 99))
    before = feed.landing.landed()
    done = maintain_landing(feed.landing, lambda _: TableNeed(None), NOW, LandingLimits(small_files=3))
    after = feed.landing.landed()
    assert (done.row_files_before, done.row_files, done.event_files) == (9, 1, 1)
    assert sorted(before.splits, key=lambda split: split.first) == sorted(after.splits, key=lambda split: split.first)
    assert (before.next, before.events, before.marks) == (after.next, after.events, after.marks)
    assert (
        maintain_landing(feed.landing, lambda _: TableNeed(None), NOW, LandingLimits(small_files=3)).row_files_before
        == 1
    )
    broker(feed).send(0, row(at(99), 1, 1), mark(at(99, 9)))
    feed.lake = MemoryLake()
    feed.apply()
    assert len(rows_of(feed)) == 10


def test_rows_expire_once_they_are_old_and_taken(feed: TopicFeed) -> None:
    landed_in_turns(feed, range(60, 66))
    done = maintain_landing(feed.landing, lambda _: TableNeed(at(63)), NOW, LandingLimits(Retention(36.5)))
    assert (done.rows_expired, done.figures()["landing_rows_expired"]) == (4, 4)
    assert "; 4 rows expired (" in str(done)
    left = feed.landing.landed()
    assert [split.low for split in left.splits] == [at(64), at(65)]
    assert left.expired == {TableId("shop", "t"): at(63)}
    assert (
        maintain_landing(feed.landing, lambda _: TableNeed(at(63)), NOW, LandingLimits(Retention(36.5))).rows_expired
        == 0
    )


def test_what_is_due_is_what_is_done_and_nothing_is_due_afterwards(feed: TopicFeed) -> None:
    assert not landing_due(feed.landing, lambda _: TableNeed(None), NOW)
    landed_in_turns(feed, range(90, 94))
    assert not landing_due(feed.landing, lambda _: TableNeed(None), NOW, LandingLimits(small_files=5))
    due = landing_due(feed.landing, lambda _: TableNeed(at(91)), NOW, LandingLimits(Retention(8.5), small_files=4))
    assert due == LandingDue(rows_expire=2, row_files=4, event_files=4)
    assert str(due) == "landing: files to write anew: 4 of rows, 4 of events; 2 rows to expire"
    done = maintain_landing(
        feed.landing, lambda _: TableNeed(at(91)), NOW, LandingLimits(Retention(8.5), small_files=4)
    )
    assert (done.rows_expired, done.row_files_before, done.event_files_before) == (2, 4, 4)
    assert not landing_due(feed.landing, lambda _: TableNeed(at(91)), NOW, LandingLimits(Retention(8.5), small_files=4))


def test_rows_of_a_held_table_stay(feed: TopicFeed) -> None:
    landed_in_turns(feed, range(60, 63))
    assert maintain_landing(feed.landing, lambda _: TableNeed(0), NOW).rows_expired == 0


def test_events_are_kept_for_ever(feed: TopicFeed) -> None:
    landed_in_turns(feed, range(60, 66))
    maintain_landing(feed.landing, lambda _: TableNeed(None), NOW, LandingLimits(small_files=2))
    landed = feed.landing.landed()
    assert landed.splits == ()
    assert [event.kind.value for event in landed.events] == ["schema", "ddl"]
    assert landed.next[Partition("cdc", 0)] == 13


def test_a_table_is_never_built_from_rows_that_are_not_all_there(feed: TopicFeed) -> None:
    landed_in_turns(feed, range(60, 66))
    maintain_landing(feed.landing, lambda _: TableNeed(at(63)), NOW)
    broker(feed).send(0, row(at(70), 70, 70), mark(at(70, 9)))
    assert feed.apply().tables[0].state.value == "applied"
    feed.lake = MemoryLake()
    (table,) = feed.apply().tables
    assert table.state.value == "held"
    assert "have expired in the landing" in str(table.reason)


def test_a_landing_that_comes_between_wins(feed: TopicFeed) -> None:
    landed_in_turns(feed, range(90, 96))
    write = feed.store.write_events

    def overtaken(events: object) -> object:
        feed.store.write_events = write
        broker(feed).send(0, row(at(97), 97, 97), mark(at(97, 9)))
        feed.landed_in().advance()
        return write(events)

    feed.store.write_events = overtaken
    with pytest.raises(TableMoved):
        maintain_landing(feed.landing, lambda _: TableNeed(None), NOW, LandingLimits(small_files=3))
    feed.apply()
    assert len(rows_of(feed)) == 7
    assert maintain_landing(feed.landing, lambda _: TableNeed(None), NOW, LandingLimits(small_files=3)).row_files == 1


@pytest.fixture
def table(tmp_path: Path) -> Iterator[LandingTable]:
    landing_table = LandingTable(LakeSettings.from_warehouse(tmp_path).model_copy(update={"namespaces": "own"}), "shop")
    yield landing_table
    landing_table.close()


def test_in_the_lake_files_are_put_together_and_removed_when_nothing_refers_to_them(table: LandingTable) -> None:
    feed = landed_in_turns(TopicFeed.of(Broker(), sink_uri=URI, store=table), range(90, 94))
    assert table.table.identifier == ("own_landing", "shop")
    files = table.stored().rows
    done = maintain_landing(feed.landing, lambda _: TableNeed(None), NOW, LandingLimits(small_files=2))
    assert (done.row_files_before, done.row_files, done.files_removed) == (4, 1, 0)
    assert all(Path(file).exists() for file in files)
    later = 4_000_000_000_000
    limits = LandingLimits(small_files=2, removed_days=0)
    assert maintain_landing(feed.landing, lambda _: TableNeed(0), later, limits).files_removed > 4
    assert not any(Path(file).exists() for file in files)
    assert len(table.table.load().metadata.snapshots) == 1
    feed.lake = MemoryLake()
    feed.apply()
    assert len(rows_of(feed)) == 4


RECORDED = [
    topic for topic in topics("canal-json", "craft") if str(topic) in {"D_keys/canal-json", "C_ddl_tables/craft"}
]


@pytest.mark.parametrize("topic", RECORDED, ids=str)
def test_a_recorded_topic_that_is_cut_anywhere_and_maintained_between_ends_equal(topic: Topic) -> None:
    feed, chance = TopicFeed.recording(topic), random.Random(str(topic))
    for cut in sorted(chance.sample(range(len(feed.topic.lines)), 5)):
        feed.send(cut)
        feed.landing.advance()
        maintain_landing(feed.landing, lambda _: TableNeed(0), NOW, LandingLimits(small_files=2))
    feed.send()
    feed.apply()
    assert feed.differences() == []


def test_rows_are_needed_until_every_table_that_had_their_name_has_taken_them(feed: TopicFeed) -> None:
    drop = ddl(at(91), "DROP TABLE `t`").replace(b'"type":"CREATE"', b'"type":"ERASE"')
    broker(feed).send(0, ddl(at(89)), row(at(90), 1, 1), drop, mark(at(92)))
    outcome = feed.apply()
    planned, applied = outcome.plan, feed.lake.applied()
    assert taken_through(TableId("shop", "t"), planned, applied) == at(92)
    assert taken_through(TableId("shop", "T"), planned, {}) == 0
    assert taken_through(TableId("shop", "unknown"), planned, applied) == 0
    excluded = {"tables": TableSettings(exclude=("shop.*",))}
    feed.settings, given_settings = feed.settings.model_copy(update=excluded), feed.settings
    assert taken_through(TableId("shop", "t"), feed.apply().plan, applied) == at(92)
    feed.settings = given_settings
    broker(feed).send(0, ddl(at(93)), row(at(94), 1, 1), mark(at(95)))
    outcome = feed.apply()
    assert taken_through(TableId("shop", "t"), outcome.plan, feed.lake.applied()) == at(95)


def test_rows_above_the_checkpoint_stay_though_the_table_that_had_their_name_is_gone(feed: TopicFeed) -> None:
    drop = ddl(at(61), "DROP TABLE `t`").replace(b'"type":"CREATE"', b'"type":"ERASE"')
    broker(feed).send(0, ddl(at(59)), row(at(60), 1, 1), drop, mark(at(62)))
    feed.apply()
    broker(feed).send(0, ddl(at(63)), row(at(64), 2, 2))
    planned = feed.apply().plan
    maintain_landing(feed.landing, lambda table: TableNeed(taken_through(table, planned, feed.lake.applied())), NOW)
    assert [split.low for split in feed.landing.landed().splits] == [at(64)]
    broker(feed).send(0, mark(at(65)))
    assert [table_outcome.reason for table_outcome in feed.apply().tables] == ["", ""]
    assert feed.lake.read(TableId("shop", "t")).column("v").to_pylist() == [2]
