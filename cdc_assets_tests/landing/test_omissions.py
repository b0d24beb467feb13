"""Tables that may lack changes by a person's decision about messages are exact nowhere, until something ends that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cdc_assets.errors import BadSettings, InputError
from cdc_assets.features.completeness.operations import accept_incomplete
from cdc_assets.features.cuts.operations import CutRefused, make_cut
from cdc_assets.landing.decisions import accept_loss, release
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.model.tso import Tso
from cdc_assets.operations.extract import extract
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.outcome import deficits_at
from cdc_assets_tests.landing import test_renamed_by_connectors as mariadb
from cdc_assets_tests.landing import test_snapshots as snapshots
from cdc_assets_tests.landing.test_decisions import _gone, claimed, whole, with_claims
from cdc_assets_tests.landing.test_landing import CREATE, URI, Broker, broker, canal, ddl, mark, row, without_extension
from cdc_assets_tests.landing.test_shares import Tasks
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

CDC = Partition("cdc", 0)
OTHER = CREATE.replace("`t`", "`u`")
UNREADABLE = b"\x00"


@pytest.fixture
def feed() -> TopicFeed:
    return TopicFeed.of(Broker(), sink_uri=URI)


def lacking(feed: TopicFeed) -> dict[str, bool]:
    """Return the tables that lack rows, in an outcome as in the lake and in a cut, and whether that is accepted."""
    outcome = feed.apply()
    gaps = {str(table.name): table.gap.accepted for table in outcome.tables if table.gap is not None}
    assert outcome.complete is all(gaps.values())
    kept = {str(state.name) for state in feed.lake.applied().values() if state.gap is not None}
    made = make_cut(feed.pipeline(), "")
    assert gaps.keys() == kept == {str(table.name) for table in made.tables if table.lacks}
    return gaps


def lose(feed: TopicFeed, start: int, stop: int, partition: int = 0) -> None:
    """Let messages be gone, which a person accepts once the landing stops at them."""
    log = broker(feed)
    lost = OffsetRange(Partition("cdc", partition), start, stop)
    log.lines = [line for line in log.lines if line["partition"] != partition or not start <= line["offset"] < stop]
    with pytest.raises(InputError, match="accept-loss"):
        feed.apply()
    accept_loss(feed.landing, lost)


def truncate(ts: Tso, table: str = "t") -> bytes:
    text = f"TRUNCATE TABLE `shop`.`{table}`"
    return canal("TRUNCATE", ts, table=table, isDdl=True, sql=text, pkNames=None, sqlType=None, mysqlType=None)


def test_a_table_that_may_lack_lost_changes_is_in_no_exact_cut(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), row(120, 1, 7), mark(150))
    assert lacking(feed) == {}
    broker(feed).send(0, row(160, 1, 8), row(165, 2, 9), mark(170))
    lose(feed, 3, 4)
    assert lacking(feed) == {"shop.t": True}
    planned = feed.pipeline().planner.plan()[1]
    assert [len(deficits_at(feed.lake, planned, next(iter(feed.lake.tables)), at)) for at in (150, 170)] == [0, 1]
    made = make_cut(feed.pipeline(), "report", whole=True)
    assert (made.exact, made.accepted) == (False, True)
    assert "the 1 message 3..3 of cdc[0] was lost" in made.tables[0].lacks
    assert len(extract(feed.pipeline(), "shop.t", 100, 170).lacks) == 1
    rebuild(feed.pipeline(), MemoryRebuilds(feed.lake), ["shop.t"], "the rebuild")
    assert lacking(feed) == {"shop.t": True}


@pytest.mark.parametrize("executors", [None, Tasks()], ids=["here", "executors"])
@pytest.mark.parametrize("commit_bytes", [1, 1 << 20], ids=["many commits", "one commit"])
def test_what_comes_behind_a_hole_ends_it_and_what_came_before_does_not(executors: Any, commit_bytes: int) -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI)
    feed.landing = feed.landed_in(commit_bytes=commit_bytes)
    feed.executors = executors
    before = ddl(100), ddl(101, OTHER, "u"), row(120, 1, 7), row(121, 1, 7, "u"), mark(130), truncate(140, "u")
    broker(feed).send(0, *before, row(160, 1, 8), row(165, 2, 9), mark(170))
    lose(feed, 6, 7)
    assert lacking(feed) == {"shop.t": True, "shop.u": True}
    third = ddl(180, CREATE.replace("`t`", "`w`"), "w")
    broker(feed).send(0, third, truncate(181), row(190, 3, 9), row(191, 3, 9, "w"), mark(200))
    assert lacking(feed) == {"shop.u": True}


def test_a_loss_before_the_first_landing_concerns_what_began_before_it(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), row(120, 1, 7), row(125, 2, 7), ddl(130, OTHER, "u"), row(140, 1, 1, "u"), mark(150))
    lose(feed, 1, 2)
    assert lacking(feed) == {"shop.t": True}


def test_a_lost_range_concerns_tables_of_its_partition(feed: TopicFeed) -> None:
    for partition, table in ((1, "b"), (0, "t")):
        broker(feed).send(partition, ddl(100), ddl(101, CREATE.replace("`t`", "`b`"), "b"), mark(110))
        broker(feed).send(partition, row(120, 1, 7, table), row(125, 2, 7, table), mark(150))
    lose(feed, 3, 4, partition=1)
    assert lacking(feed) == {"shop.b": True}


def test_a_name_that_a_table_had_lost_before_messages_were_is_not_meant() -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI, topics=("*",))
    renamed = canal(
        "RENAME", 150, table="old", isDdl=True, sql="RENAME TABLE `shop`.`t` TO `shop`.`old`", pkNames=None,
        sqlType=None, mysqlType=None,
    )  # fmt: skip
    broker(feed).send(0, ddl(100), row(120, 1, 7), renamed, ddl(160), mark(170))
    assert lacking(feed) == {}
    with_claims(feed, _gone)
    broker(feed).send(0, claimed(175, 2, "gone"), row(180, 3, 9), mark(190))
    feed.apply()
    release(feed.landing, CDC, 5, applied=lambda _: 0)
    assert lacking(feed) == {"shop.t": True}
    assert {str(life.born_as) for life, state in feed.lake.applied().items() if state.gap} == {"shop.t"}
    assert [life.version for life, state in feed.lake.applied().items() if state.gap] == [160]


def test_a_message_that_was_passed_over_concerns_all_tables_that_it_may_be_of(feed: TopicFeed) -> None:
    begins = ddl(100), ddl(101, OTHER, "u"), row(120, 1, 7), mark(150)
    broker(feed).send(0, *begins, UNREADABLE, row(160, 2, 8), mark(170), truncate(180, "u"), mark(190))
    feed.apply()
    release(feed.landing, CDC, 4, applied=lambda _: 0)
    assert lacking(feed) == {"shop.t": True}
    assert "the message 4 of cdc[0] was passed over" in make_cut(feed.pipeline(), "").tables[0].lacks


def test_a_message_of_a_known_table_that_was_passed_over_concerns_that_table(feed: TopicFeed) -> None:
    with_claims(feed, _gone)
    broker(feed).send(0, ddl(100), ddl(101, OTHER, "u"), claimed(130, 2, "gone"), row(140, 3, 9), mark(170))
    feed.apply()
    release(feed.landing, CDC, 2, applied=lambda _: 0)
    assert lacking(feed) == {"shop.t": True}
    broker(feed).send(0, truncate(180), row(190, 4, 4), mark(200))
    assert lacking(feed) == {}


def test_what_is_read_again_is_lacking_nowhere(feed: TopicFeed) -> None:
    with_claims(feed, _gone)
    broker(feed).send(0, ddl(100), claimed(130, 2, "a"), row(140, 3, 9), mark(170))
    feed.apply()
    with_claims(feed, {"a": whole(row(130, 2, 8))}.__getitem__)
    release(feed.landing, CDC, 1, again=True, applied=lambda _: 0)
    assert lacking(feed) == {}


def test_an_unreadable_message_that_quarantine_passes_is_lacking_until_it_is_decided() -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI, quarantine=True)
    broker(feed).send(0, ddl(100), row(120, 1, 7), mark(150), UNREADABLE, row(160, 2, 8), mark(170))
    assert lacking(feed) == {"shop.t": False}
    with pytest.raises(CutRefused, match="waits for a decision"):
        make_cut(feed.pipeline(), "report", whole=True)
    release(feed.landing, CDC, 3, applied=lambda _: 0)
    assert lacking(feed) == {"shop.t": True}


def test_by_offset_what_is_landed_later_ends_a_loss() -> None:
    uri = "kafka://127.0.0.1:9092/cdc?protocol=canal-json"
    feed = TopicFeed.of(Broker(), sink_uri=uri, accept_unordered=True)
    begin = [ddl(100 << 18), row(120 << 18, 1, 7)]
    broker(feed).send(0, *(without_extension(message) for message in begin))
    feed.apply()
    later = [row(130 << 18, 1, 8), row(140 << 18, 2, 8)]
    broker(feed).send(0, *(without_extension(message) for message in later))
    lose(feed, 2, 3)
    assert lacking(feed) == {"shop.t": True}
    broker(feed).send(0, without_extension(truncate(150 << 18)), without_extension(row(160 << 18, 3, 8)))
    assert lacking(feed) == {}


@pytest.mark.parametrize("connector", [snapshots.POSTGRES, snapshots.MYSQL])
def test_what_a_connector_sent_and_was_lost_concerns_the_table_of_its_topic(connector: str) -> None:
    both = [snapshots.snapshot(1, 2, table=table, connector=connector) for table in ("t", "u")]
    feed = snapshots.applied([*both[0], *both[1]])
    assert lacking(feed) == {}
    sent = [snapshots.row(20 + place, 3 + place, connector=connector) for place in range(2)]
    snapshots.send(feed.log, [*sent, snapshots.row(30, 3, connector=connector, table="u")])
    place = Partition("px.public.t", 0)
    feed.log.lines = [line for line in feed.log.lines if (line["topic"], line["offset"]) != (place.topic, 2)]
    accept_loss(feed.landing, OffsetRange(place, 2, 3))
    assert lacking(feed) == {"public.t": True}


@pytest.mark.parametrize(("truncated", "lacks"), [(5, True), (9, False)], ids=["before", "behind"])
def test_a_truncate_of_a_connector_ends_what_was_lost_before_it(truncated: int, *, lacks: bool) -> None:
    """It lies in another topic than the rows, and both are landed after the loss."""
    log = MemoryLog([])
    mariadb.send(log, [mariadb.ddl(1, "CREATE TABLE `a` (n INT PRIMARY KEY, v INT)", "a", ["a"])])
    mariadb.send(log, [mariadb.row(3, "a", "c", 1, 10)])
    feed = TopicFeed.of(log, sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c")
    assert lacking(feed) == {}
    mariadb.send(log, [mariadb.ddl(truncated, "TRUNCATE TABLE `a`", "a", ["a"])])
    mariadb.send(log, [mariadb.row(place, "a", "c", place, 10) for place in (7, 8, 12)])
    log.lines = [line for line in log.lines if (line["topic"], line["offset"]) != ("px.d.a", 1)]
    accept_loss(feed.landing, OffsetRange(Partition("px.d.a", 0), 1, 2))
    assert (lacking(feed) == {"d.a": True}) is lacks


def test_a_decision_that_is_made_while_a_landing_goes_on_is_kept() -> None:
    class Slow(Broker):
        def read(self, wanted: OffsetRange, batch_bytes: int = 1000) -> Iterator[Any]:
            if wanted.start and not slow.landing.landed().decisions:
                accept_loss(slow.landed_in(), OffsetRange(CDC, 0, 2))
            yield from super().read(wanted, batch_bytes)

    slow = TopicFeed.of(Slow(), sink_uri=URI)
    broker(slow).send(0, ddl(100), row(120, 1, 7), row(130, 2, 8), mark(150))
    broker(slow).lines = broker(slow).lines[2:]
    broker(slow).send(0, row(160, 3, 9), mark(170))
    slow.apply()
    assert slow.landing.landed().omissions.keys() == {OffsetRange(CDC, 0, 2)}


def test_what_a_decision_about_messages_accepts_is_not_taken_back_of_the_table(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), row(120, 1, 7), mark(150), row(160, 1, 8), mark(170))
    lose(feed, 3, 4)
    feed.apply()
    with pytest.raises(BadSettings, match="no table of that name or pattern is accepted as it is"):
        accept_incomplete(feed.pipeline(), "shop.t", undo=True)
