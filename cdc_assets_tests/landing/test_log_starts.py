"""Partitions whose log does not begin at offset 0 when it is first read: whose rows may be gone, and whose are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.ddl import created
from cdc_assets.errors import BadSettings, InputError, RebuildRefused
from cdc_assets.landing.decisions import DecidedBy, accept_loss
from cdc_assets.model.offsets import LogEnds, OffsetRange, Partition
from cdc_assets.model.progress import Lack, Whole
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources.joined import JoinedSource
from cdc_assets.sources.topics.source import TopicsSource
from cdc_assets_tests.dump_writer import Row, Writing, write_dump
from cdc_assets_tests.landing import test_barriers as ydb
from cdc_assets_tests.landing import test_renamed_by_connectors as mariadb
from cdc_assets_tests.landing import test_snapshots as snapshots
from cdc_assets_tests.landing.test_connector_corners import Stream
from cdc_assets_tests.landing.test_landing import CREATE, URI, Broker, broker, canal, ddl, mark, row, without_extension
from cdc_assets_tests.landing.test_shares import Tasks
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

OWN, OTHER = 1, 0
"""Of two partitions that in which TiCDC puts rows of shop.b, and that of shop.t, where Canal-JSON has its DDL too."""
SPREAD = 'dispatchers = [{matcher = ["*.*"], partition = "index-value"}]'


def feed_of(**given: Any) -> TopicFeed:
    """A feed of tables of which nobody says anything."""
    return TopicFeed.of(Broker(), **{"sink_uri": URI, "initial": {}, **given})


def expire(feed: TopicFeed, partition: int, before: int) -> None:
    log = broker(feed)
    log.lines = [line for line in log.lines if line["partition"] != partition or line["offset"] >= before]


def incomplete(feed: TopicFeed) -> dict[str, str]:
    """What is said of tables that lack rows, by the run and by what the lake keeps."""
    incomplete_by_table = {str(table.life.born_as): table.incomplete for table in feed.apply().tables}
    kept = {str(life.born_as): state.gap is not None for life, state in feed.lake.applied().items()}
    assert {name: bool(text) for name, text in incomplete_by_table.items()} == kept
    return {name: text for name, text in incomplete_by_table.items() if text}


def accepted(feed: TopicFeed) -> set[str]:
    """Return the tables that lack rows; that is accepted of all of them."""
    outcome = feed.apply()
    assert outcome.complete
    return {str(table.life.born_as) for table in outcome.tables if table.gap is not None}


def of_two_tables(feed: TopicFeed) -> None:
    """Send two tables, each in a partition of its own; DDL to both partitions, as most protocols do."""
    create = [ddl(100), ddl(101, CREATE.replace("`t`", "`b`"), "b")]
    log = broker(feed)
    for partition, table in ((OWN, "b"), (OTHER, "t")):
        log.send(partition, mark(90), *create, row(120, 1, 7, table), mark(125), row(130, 2, 8, table), mark(150))


def test_tables_of_a_partition_whose_first_messages_expired_are_incomplete_and_no_others() -> None:
    feed = feed_of()
    of_two_tables(feed)
    expire(feed, OWN, 4)
    incomplete_by_table = incomplete(feed)
    assert incomplete_by_table.keys() == {"shop.b"}
    assert (
        "cdc[1] began at offset 4 when it was first read: the 4 messages 0..3 had expired"
        in incomplete_by_table["shop.b"]
    )
    assert "cdc-assets landing accept-loss cdc 1 0 3" in incomplete_by_table["shop.b"]
    assert "cdc-assets release --complete SCHEMA.TABLE" in incomplete_by_table["shop.b"]


def test_where_ddl_is_in_one_partition_only_what_expired_there_concerns_all_tables() -> None:
    feed = feed_of()
    of_two_tables(feed)
    expire(feed, OTHER, 4)
    assert incomplete(feed).keys() == {"shop.b", "shop.t"}


def test_where_rows_of_a_table_are_in_all_partitions_each_of_them_counts(tmp_path: Any) -> None:
    (tmp_path / "changefeed.toml").write_text(f"[sink]\n{SPREAD}\n")
    feed = feed_of(changefeed_config=tmp_path / "changefeed.toml")
    of_two_tables(feed)
    expire(feed, OWN, 4)
    assert {"shop.b", "shop.t"} <= incomplete(feed).keys()


def test_a_table_that_lies_where_the_rules_do_not_put_it_may_be_anywhere() -> None:
    feed = feed_of()
    of_two_tables(feed)
    broker(feed).send(OWN, row(160, 3, 3, "t"), mark(170))
    broker(feed).send(OTHER, mark(170))
    expire(feed, OWN, 4)
    assert {"shop.b", "shop.t"} <= incomplete(feed).keys()


def test_a_log_that_begins_before_its_tables_lacks_nothing() -> None:
    feed = feed_of()
    of_two_tables(feed)
    expire(feed, OWN, 1)
    expire(feed, OTHER, 1)
    assert incomplete(feed) == {}
    assert feed.landing.landed().starts[Partition("cdc", OWN)].least == 100


def test_what_is_emptied_or_created_after_the_log_begins_lacks_nothing() -> None:
    feed = feed_of()
    of_two_tables(feed)
    expire(feed, OWN, 5)
    assert "shop.b" in incomplete(feed)
    text = {"isDdl": True, "sql": "TRUNCATE TABLE `shop`.`b`", "pkNames": None, "sqlType": None, "mysqlType": None}
    for partition in (OWN, OTHER):
        broker(feed).send(partition, canal("TRUNCATE", 160, table="b", **text), mark(170))
    assert "shop.b" not in incomplete(feed)


def test_a_restart_of_the_sender_that_brings_everything_again_proves_it() -> None:
    feed = feed_of()
    of_two_tables(feed)
    expire(feed, OWN, 4)
    assert "shop.b" in incomplete(feed)
    broker(feed).send(OWN, ddl(101, CREATE.replace("`t`", "`b`"), "b"), row(120, 1, 7, "b"), mark(150))
    assert incomplete(feed) == {}


def test_a_table_all_of_whose_messages_expired_is_incomplete() -> None:
    """The DDL is in the other partition still; the log of its rows is empty, and not at its beginning."""
    feed = TopicFeed.of(Broker(), sink_uri=URI, initial={})
    of_two_tables(feed)
    expire(feed, OWN, 7)
    feed.log.emptied[Partition("cdc", OWN)] = 7
    assert "shop.b" in incomplete(feed)
    assert "the 7 messages 0..6 had expired" in incomplete(feed)["shop.b"]


def test_that_a_table_may_be_missing_of_which_nothing_is_left_is_said_until_it_is_accepted() -> None:
    feed = feed_of()
    of_two_tables(feed)
    expire(feed, OWN, 1)
    outcome = feed.apply()
    assert outcome.complete
    (finding,) = [finding for finding in outcome.findings if finding.rule == "expired-unread"]
    assert "a table that has no later ones is not known here" in finding.sentence
    assert finding.detail == "cdc[1] 0..0"
    accept_loss(feed.landing, OffsetRange(Partition("cdc", OWN), 0, 1))
    assert [finding for finding in feed.apply().findings if finding.rule == "expired-unread"] == []


def test_a_partition_that_appears_later_with_its_first_messages_gone_makes_its_tables_incomplete() -> None:
    """What somebody said of the tables before cannot have meant these messages."""
    feed = feed_of(initial={"complete": ["*"]})
    broker(feed).send(1, ddl(100), row(120, 1, 7), mark(150))
    assert incomplete(feed) == {}
    log = broker(feed)
    log.send(0, row(160, 2, 8), row(170, 3, 9), mark(180))
    log.send(1, mark(180))
    log.lines = [line for line in log.lines if line["partition"] or line["offset"]]
    text = incomplete(feed)["shop.t"]
    assert "cdc[0] began at offset 1 when it was first read: the 1 message 0..0 had expired" in text
    assert "--complete" not in text
    accept_loss(feed.landing, OffsetRange(Partition("cdc", 0), 0, 1), DecidedBy.now("ann"))
    assert accepted(feed) == {"shop.t"}
    assert "the 1 message 0..0 of cdc[0] was lost" in incomplete(feed)["shop.t"]


def test_a_statement_that_tables_are_complete_means_what_was_gone_before_the_first_landing() -> None:
    feed = feed_of(initial={"complete": ["shop.*"]})
    of_two_tables(feed)
    expire(feed, OWN, 4)
    assert incomplete(feed) == {}


def test_what_is_accepted_before_anything_is_landed_is_accepted() -> None:
    feed = feed_of()
    of_two_tables(feed)
    expire(feed, OWN, 4)
    accept_loss(feed.landing, OffsetRange(Partition("cdc", OWN), 0, 4))
    assert accepted(feed) == {"shop.b"}


def test_of_what_is_missing_only_what_was_accepted_counts() -> None:
    feed = feed_of()
    of_two_tables(feed)
    expire(feed, OWN, 4)
    feed.apply()
    accept_loss(feed.landing, OffsetRange(Partition("cdc", OWN), 0, 2))
    assert "the 2 messages 2..3 had expired" in incomplete(feed)["shop.b"]
    with pytest.raises(BadSettings, match="is not a loss"):
        accept_loss(feed.landing, OffsetRange(Partition("cdc", OWN), 2, 5))


def test_a_table_is_rebuilt_once_its_loss_is_accepted() -> None:
    feed = feed_of()
    of_two_tables(feed)
    expire(feed, OWN, 3)
    assert "shop.b" in incomplete(feed)
    pipeline = Pipeline(feed.settings, feed.source, feed.lake, feed.ledger, landing=feed.landing)
    with pytest.raises(RebuildRefused, match=r"cdc\[1\] began at offset 3"):
        rebuild(pipeline, MemoryRebuilds(feed.lake), ["shop.b"], "the rebuild")
    accept_loss(feed.landing, OffsetRange(Partition("cdc", OWN), 0, 3))
    rebuild(pipeline, MemoryRebuilds(feed.lake), ["shop.b"], "the rebuild")
    assert accepted(feed) == {"shop.b"}


def test_what_expires_after_it_was_read_makes_nothing_incomplete() -> None:
    """The ends are asked a second time, once a mark was seen."""

    class Forgetful(Broker):
        def ends(self, concerns: Any) -> Any:
            log_ends = super().ends(concerns)
            return {
                partition: LogEnds(2 if self.end_lookups > 1 else end.low, end.high)
                for partition, end in log_ends.items()
            }

    feed = TopicFeed.of(Forgetful(), sink_uri=URI, initial={})
    of_two_tables(feed)
    assert feed.landing.advance().messages == 14
    assert feed.landing.landed().starts == {}


def test_what_expires_between_the_look_at_the_ends_and_the_reading_is_missing_all_the_same() -> None:
    class Forgetful(Broker):
        def read(self, wanted: OffsetRange, batch_bytes: int = 1000) -> Iterator[Any]:
            if wanted == OffsetRange(Partition("cdc", OWN), 0, 7):
                self.lines = [line for line in self.lines if line["partition"] != OWN or line["offset"] >= 4]
                raise InputError("cdc[1] starts at offset 4 by now", gone=True)
            yield from super().read(wanted, batch_bytes)

    feed = TopicFeed.of(Forgetful(), sink_uri=URI, initial={})
    of_two_tables(feed)
    with pytest.raises(InputError, match="starts at offset 4 by now"):
        feed.apply()
    assert incomplete(feed).keys() == {"shop.b"}


@pytest.mark.parametrize("commit_bytes", [1, 1 << 20], ids=["many commits", "one commit"])
@pytest.mark.parametrize("executors", [None, Tasks()], ids=["here", "executors"])
def test_the_start_is_the_same_whoever_reads_and_however_often_it_commits(executors: Any, commit_bytes: int) -> None:
    feed = feed_of()
    feed.landing = feed.landed_in(commit_bytes=commit_bytes)
    feed.executors = executors
    of_two_tables(feed)
    expire(feed, OWN, 3)
    expire(feed, OTHER, 5)
    feed.landing.advance()
    starts = feed.landing.landed().starts
    assert {(partition.number, start.offset, start.least, start.later) for partition, start in starts.items()} == {
        (OWN, 3, 120, False),
        (OTHER, 5, 130, False),
    }


# --- by offset --------------------------------------------------------------------------------------------------------


def of_connector(log: MemoryLog) -> TopicFeed:
    return TopicFeed.of(log, sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c", initial={})


def test_a_connectors_topic_that_begins_behind_its_tables_create_makes_it_incomplete() -> None:
    log = MemoryLog([])
    mariadb.send(log, mariadb.history("a", "b", []))
    log.lines = [line for line in log.lines if line["topic"] != "px.d.a" or line["offset"] >= 1]
    assert incomplete(of_connector(log)).keys() == {"d.a"}


def test_a_connectors_topic_whose_messages_all_expired_makes_its_table_incomplete() -> None:
    log = MemoryLog(emptied={Partition("px.d.a", 0): 5})
    mariadb.send(log, mariadb.history("a", "b", []))
    log.lines = [line for line in log.lines if line["topic"] != "px.d.a"]
    assert incomplete(of_connector(log)).keys() == {"d.a"}


def of_snapshot(before: int, parts: Mapping[int, Sequence[Any]], **given: Any) -> TopicFeed:
    """A connector's table of which each partition of `parts` has rows, behind others that expired."""
    feed = TopicFeed.of(MemoryLog([]), **{"sink_uri": snapshots.URI, "name": "c", "initial": {}, **given})
    for partition, messages in parts.items():
        snapshots.send(feed.log, [*(snapshots.row(1, number) for number in range(before)), *messages], partition)
    feed.log.lines = [line for line in feed.log.lines if line["offset"] >= before]
    return feed


ROWS = snapshots.snapshot(1, 2, 3, 4)


def test_a_whole_snapshot_behind_what_expired_makes_a_table_complete() -> None:
    assert snapshots.state(of_snapshot(5, {0: ROWS})) == Whole.SNAPSHOT


@pytest.mark.parametrize("first", [1, 2, 3])
def test_a_snapshot_whose_first_rows_expired_makes_no_table_complete(first: int) -> None:
    """The last row may be all that the table had, or all that is left."""
    feed = of_snapshot(5, {0: ROWS[first:]})
    assert snapshots.state(feed) in (Lack.EXPIRED, Lack.BEGINNING)
    assert "px.public.t[0] began at offset 5" in snapshots.table(feed).incomplete or first < 3


def test_a_snapshot_of_the_last_row_alone_is_whole_where_older_messages_are_left() -> None:
    assert snapshots.state(of_snapshot(5, {0: [snapshots.row(6, 9), *snapshots.snapshot(1)]})) == Whole.SNAPSHOT


@pytest.mark.parametrize("first", [0, 1])
def test_rows_of_a_snapshot_that_expired_in_another_partition_than_its_first_row_are_missing(first: int) -> None:
    begins, goes_on = ROWS[:1], ROWS[2:]
    assert snapshots.state(of_snapshot(5, {first: begins, 1 - first: goes_on})) is Lack.EXPIRED


def test_a_connectors_ddl_that_expired_after_its_snapshot_is_missing() -> None:
    """A TRUNCATE, say: it is in a topic of its own."""
    feed = of_snapshot(0, {0: snapshots.snapshot(1, 2, connector=snapshots.MYSQL)})
    snapshots.send(feed.log, [snapshots.create("t"), snapshots.create("u", 9, "false")])
    feed.log.lines = [line for line in feed.log.lines if line["topic"] != "px" or line["offset"]]
    assert snapshots.state(feed) is Lack.EXPIRED


def test_tables_that_are_empty_by_their_snapshot_are_not_where_their_topic_lost_messages() -> None:
    log = MemoryLog(emptied={Partition("px.public.u", 0): 5})
    feed = TopicFeed.of(log, sink_uri=snapshots.URI, name="c", initial={})
    rows = snapshots.snapshot(1, 2, end="last", connector=snapshots.MYSQL)
    snapshots.send(feed.log, [snapshots.create("t"), snapshots.create("u"), snapshots.create("w"), *rows])
    assert (snapshots.state(feed, "u"), snapshots.state(feed, "w")) == (Lack.EXPIRED, Whole.SNAPSHOT)


@pytest.mark.parametrize("lacking", [0, 1])
def test_a_changefeed_of_ydb_scans_its_table_into_all_partitions_or_the_table_is_incomplete(
    tmp_path: Path, lacking: int
) -> None:
    lines = ydb.Lines()
    for number in range(8):
        lines.change(number % 2, number, number, 1000)
    place = Partition(ydb.TOPIC, lacking)
    whole = ydb.feed_of(lines, tmp_path, "&initial_scan=true", initial={})
    assert incomplete(whole) == {}
    lines.log.lines = [line for line in lines.log.lines if line["partition"] != lacking or line["offset"] > 1]
    feed = ydb.feed_of(lines, tmp_path, "&initial_scan=true", initial={})
    assert f"{place} began at offset 2" in incomplete(feed)["shop.orders"]
    accept_loss(feed.landing, OffsetRange(place, 0, 2))
    assert accepted(feed) == {"shop.orders"}


def canal_by_offset(feed: TopicFeed, *partitions: Sequence[bytes]) -> None:
    for number, messages in enumerate(partitions):
        broker(feed).send(number, *(without_extension(message) for message in messages))


def test_rows_by_offset_that_expired_in_another_partition_than_the_ddl_are_missing() -> None:
    uri = "kafka://127.0.0.1:9092/cdc?protocol=canal-json"
    feed = feed_of(sink_uri=uri, accept_unordered=True)
    create = ddl(101 << 18, CREATE.replace("`t`", "`b`"), "b")
    canal_by_offset(
        feed,
        [ddl(100 << 18), create, row(120 << 18, 1, 7)],
        [row(130 << 18, 1, 1, "b"), row(140 << 18, 2, 8, "b")],
    )
    expire(feed, OWN, 1)
    assert incomplete(feed).keys() == {"shop.b"}


def test_a_connectors_own_table_says_what_is_gone() -> None:
    stream = Stream()
    for number in range(3):
        stream.send("c", 10 + number, id=number, v=number)
    stream.log.lines = stream.log.lines[1:]
    stream.feed.landing.advance()
    assert stream.feed.landing.landed().starts[Partition("px.public.t", 0)].offset == 1


# --- after a dump -----------------------------------------------------------------------------------------------------


class WithDumps:
    """A feed whose tables are in dumps, each taken at a TSO."""

    def __init__(self, directory: Path, *dumps: Tso) -> None:
        self.directory, self.uris = directory, list[str]()
        self.topics = feed_of()
        for at in dumps:
            self.dump(at)

    def dump(self, at: Tso) -> None:
        where = self.directory / f"dump{at}"
        texts = {TableId("shop", name): CREATE.replace("`t`", f"`{name}`") for name in "bt"}
        rows: Sequence[Row] = [("1", "7"), ("2", "8")]
        write_dump(where, {name: (created(text), rows) for name, text in texts.items()}, at, Writing(), texts=texts)
        self.uris.append(str(where))

    @property
    def pipeline(self) -> Pipeline:
        topics = self.topics
        settings = ChangefeedSettings(sink_uri=URI, initial={"dump": self.uris, "start_ts": 1})  # type: ignore[arg-type]
        source = settings.open_source()
        assert isinstance(source, JoinedSource)
        assert isinstance(source.feed, TopicsSource)
        source.feed.read_from(topics.landing.landed, topics.store.fetch)
        return Pipeline(settings, source, topics.lake, topics.ledger, landing=topics.landing)

    def incomplete(self) -> set[str]:
        return {str(table.life.born_as) for table in self.pipeline.apply().tables if table.incomplete}


@pytest.mark.parametrize(
    ("at", "lacking"),
    [(119, {"shop.b", "shop.t"}), (120, {"shop.b"}), (124, {"shop.b"}), (125, set[str]()), (131, set[str]())],
)
def test_a_dump_brings_what_expired_where_its_partition_reaches_back_to_it(
    tmp_path: Path, at: Tso, lacking: set[str]
) -> None:
    feed = WithDumps(tmp_path, at)
    of_two_tables(feed.topics)
    expire(feed.topics, OTHER, 3)
    expire(feed.topics, OWN, 4)
    assert feed.incomplete() == lacking
    assert any(finding.rule == "expired-unread" for finding in feed.pipeline.status().findings) == bool(lacking)


def test_a_table_that_lacks_rows_since_its_dump_is_built_anew_from_one_taken_later(tmp_path: Path) -> None:
    feed = WithDumps(tmp_path, 110)
    of_two_tables(feed.topics)
    expire(feed.topics, OWN, 4)
    assert feed.incomplete() == {"shop.b"}
    broker(feed.topics).send(OWN, row(160, 3, 9, "b"), mark(170))
    broker(feed.topics).send(OTHER, mark(170))
    feed.dump(155)
    assert feed.incomplete() == {"shop.b"}
    (sentence,) = [table.incomplete for table in feed.pipeline.status().tables if table.incomplete]
    assert f"Its rows are in {feed.uris[1]}: cdc-assets rebuild shop.b@101" in sentence
    assert rebuild(feed.pipeline, MemoryRebuilds(feed.topics.lake), ["shop.b"], "the rebuild")
    assert feed.incomplete() == set()
