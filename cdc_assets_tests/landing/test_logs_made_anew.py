"""A topic of the same name that is another one: no message of it is taken for one that was landed, or passed over."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_assets.errors import BadSettings, InputError
from cdc_assets.io.storage import Opener
from cdc_assets.landing.decisions import declare_dead
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets_tests.landing import test_barriers as ydb
from cdc_assets_tests.landing.test_connector_corners import Stream
from cdc_assets_tests.landing.test_landing import CREATE, URI, Broker, broker, ddl, mark, row, rows_of
from cdc_assets_tests.landing.test_shares import Tasks
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed, archive_of

CDC = Partition("cdc", 0)
FIRST = [ddl(100), row(120, 1, 7), mark(150), row(160, 2, 8), mark(170)]
ANEW = [ddl(200), row(210, 3, 9), mark(220)]


class Watched(Broker):
    """A broker that notes what is read of it."""

    reads: list[OffsetRange]

    def read(self, wanted: OffsetRange, batch_bytes: int = 1000) -> Iterator[pa.RecordBatch]:
        self.reads.append(wanted)
        yield from super().read(wanted, batch_bytes)


@pytest.fixture
def feed() -> TopicFeed:
    log = Watched()
    log.reads = []
    return TopicFeed.of(log, sink_uri=URI)


@pytest.mark.parametrize("executors", [None, Tasks()], ids=["here", "executors"])
def test_a_topic_made_anew_that_grew_beyond_what_was_landed_stops_the_landing(
    feed: TopicFeed, executors: Tasks | None
) -> None:
    """Of brokers before 2.8, and others that give topics no ids."""
    feed.executors = executors
    broker(feed).send(0, *FIRST)
    feed.apply()
    before = feed.landing.landed()
    broker(feed).lines = []
    broker(feed).send(0, *ANEW, *ANEW)
    with pytest.raises(InputError, match=r"cdc\[0\] has another message at offset 4 than was landed: the topic"):
        feed.apply()
    assert feed.landing.landed() == before


def test_a_topic_that_goes_on_is_read_with_one_message_more(feed: TopicFeed) -> None:
    log = broker(feed)
    assert isinstance(log, Watched)
    log.send(0, *FIRST)
    feed.apply()
    log.send(0, row(180, 3, 9), mark(190))
    log.reads.clear()
    feed.apply()
    assert log.reads == [OffsetRange(CDC, 4, 5), OffsetRange(CDC, 5, 7)]
    log.reads.clear()
    feed.apply()
    assert log.reads == []
    assert rows_of(feed) == [(1, 7), (2, 8), (3, 9)]


def test_a_topic_whose_id_the_broker_tells_is_known_by_that(feed: TopicFeed) -> None:
    log = broker(feed)
    assert isinstance(log, Watched)
    log.ids = {"cdc": "first"}
    log.send(0, *FIRST)
    feed.apply()
    log.send(0, row(180, 3, 9), mark(190))
    log.reads.clear()
    feed.apply()
    assert log.reads == [OffsetRange(CDC, 5, 7)]


def test_a_newest_message_that_expired_since_or_was_compacted_proves_nothing(feed: TopicFeed) -> None:
    log = broker(feed)
    log.missing_because = lambda topic: "compacted"  # type: ignore[method-assign]
    log.send(0, *FIRST)
    feed.apply()
    log.send(0, row(180, 3, 9), mark(190))
    log.lines = [line for line in log.lines if line["offset"] != 4]
    feed.apply()
    log.send(0, mark(195))
    log.lines = log.lines[-1:]
    feed.apply()
    assert rows_of(feed) == [(1, 7), (2, 8), (3, 9)]


def test_a_newest_message_that_expires_while_it_is_looked_at_stops_nothing() -> None:
    class Forgetful(Broker):
        def read(self, wanted: OffsetRange, batch_bytes: int = 1000) -> Iterator[pa.RecordBatch]:
            if wanted == OffsetRange(CDC, 4, 5):
                raise InputError("cdc[0] starts at offset 5 by now", gone=True)
            yield from super().read(wanted, batch_bytes)

    feed = TopicFeed.of(Forgetful(), sink_uri=URI)
    broker(feed).send(0, *FIRST)
    feed.apply()
    broker(feed).send(0, row(180, 3, 9), mark(190))
    feed.apply()
    assert rows_of(feed) == [(1, 7), (2, 8), (3, 9)]


@pytest.mark.parametrize("commit_bytes", [1, 1 << 20])
def test_a_connectors_topic_made_anew_stops_the_landing(commit_bytes: int) -> None:
    stream = Stream()
    for number in range(4):
        stream.send("c", 10 + number, id=number, v=number)
    stream.feed.landing = stream.feed.landed_in(commit_bytes=commit_bytes)
    stream.feed.landing.advance()
    assert stream.feed.landing.landed().newest[Partition("px.public.t", 0)].offset == 3
    stream.log.lines = []
    for number in range(6):
        stream.send("c", 20 + number, id=number, v=number)
    with pytest.raises(InputError, match="has another message at offset 3 than was landed"):
        stream.feed.landing.advance()


# --- in archives ------------------------------------------------------------------------------------------------------


class Archive:
    """An archive in files, and what is landed of it."""

    def __init__(self, directory: Path, layout: str = "records") -> None:
        self.directory = directory
        self.feed = TopicFeed.of(
            MemoryLog(proves_ends=False), sink_uri=URI, archive={"uri": str(directory), "layout": layout}
        )
        self.feed.log = self.feed.source.log  # type: ignore[assignment]  # the real one

    def write(self, name: str, *messages: bytes, start: int = 0) -> None:
        """Let messages from an offset on appear in a file."""
        lines = [
            {"topic": "cdc", "partition": 0, "offset": start + place, "timestamp_ms": 0, "key_b64": None,
             "value_b64": base64.b64encode(message).decode()}
            for place, message in enumerate(messages)
        ]  # fmt: skip
        archive_of(lines, self.directory, name)

    def apply(self) -> list[tuple[int, int]]:
        self.feed.apply()
        return rows_of(self.feed)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path)


@pytest.mark.parametrize("count", [1, 3, 5, 9])
def test_files_that_begin_at_0_again_stop_the_feed_however_many_messages_they_have(
    archive: Archive, count: int
) -> None:
    archive.write("0.jsonl", *FIRST)
    archive.apply()
    archive.write("1.jsonl", *(ANEW * 3)[:count])
    with pytest.raises(InputError, match=r"[01]\.jsonl have different messages of cdc\[0\] at offset 0: the topic"):
        archive.apply()
    assert rows_of(archive.feed) == [(1, 7), (2, 8)]


@pytest.mark.parametrize("name", ["0.jsonl", "1.jsonl"])
def test_files_in_place_of_those_that_were_landed_stop_the_feed(archive: Archive, name: str) -> None:
    archive.write("0.jsonl", *FIRST)
    archive.apply()
    (archive.directory / "0.jsonl").unlink()
    archive.write(name, *ANEW * 3)
    with pytest.raises(InputError, match=r"cdc\[0\] has another message at offset 0 than was landed"):
        archive.apply()


def test_files_that_have_the_same_messages_twice_are_one_log(archive: Archive) -> None:
    archive.write("0.jsonl", *FIRST)
    archive.apply()
    archive.write("1.jsonl", *FIRST[2:], row(180, 3, 9), mark(190), start=2)
    archive.write("2.jsonl", FIRST[1], start=1)
    assert archive.apply() == [(1, 7), (2, 8), (3, 9)]


def test_a_key_that_differs_is_another_message(archive: Archive) -> None:
    archive.write("0.jsonl", *FIRST)
    lines = [json.loads(line) for line in (archive.directory / "0.jsonl").read_text().splitlines()]
    archive_of([{**lines[1], "key_b64": "aw=="}], archive.directory, "1.jsonl")
    with pytest.raises(InputError, match=r"different messages of cdc\[0\] at offset 1"):
        archive.apply()


class Sink(Archive):
    """An archive that Confluent's sink writes: a file's name is that of its first offset, whichever topic it is of."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "confluent")
        self.of_partition = directory / "topics" / "cdc" / "partition=0"
        self.of_partition.mkdir(parents=True)

    def write_at(self, start: int, *messages: bytes) -> None:
        lines = "".join(json.dumps(base64.b64encode(message).decode()) + "\n" for message in messages)
        (self.of_partition / f"cdc+0+{start:010d}.json").write_text(lines)

    def remove(self, start: int) -> None:
        (self.of_partition / f"cdc+0+{start:010d}.json").unlink()


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    sink = Sink(tmp_path)
    sink.write_at(0, *FIRST[:3])
    sink.write_at(3, *FIRST[3:])
    assert sink.apply() == [(1, 7), (2, 8)]
    return sink


@pytest.mark.parametrize(
    ("count", "sentence"),
    [
        (2, "begins with another file than was landed .* holds 2 messages for the offsets 0..2"),
        (3, "has another message at offset 0 than was landed"),
        (9, "begins with another file than was landed .* holds 9 messages for the offsets 0..2"),
    ],
)
def test_a_file_that_a_new_topic_wrote_over_the_first_one_stops_the_feed(sink: Sink, count: int, sentence: str) -> None:
    sink.write_at(0, *(ANEW * 3)[:count])
    for _ in range(2):
        with pytest.raises(InputError, match=rf"cdc\[0\] {sentence}.*: the topic was created anew, or cut"):
            sink.apply()
    assert rows_of(sink.feed) == [(1, 7), (2, 8)]


def test_a_file_of_a_new_topic_before_those_that_were_kept_stops_the_feed(sink: Sink) -> None:
    sink.remove(0)
    sink.write_at(5, row(180, 3, 9), mark(190))
    assert sink.apply() == [(1, 7), (2, 8), (3, 9)]
    sink.write_at(0, *ANEW)
    with pytest.raises(InputError, match=r"cdc\[0\] begins at offset 0, and began at 3 when it was landed"):
        sink.apply()


def test_a_first_file_that_was_written_once_more_is_the_same_log(sink: Sink) -> None:
    (sink.of_partition / "cdc+0+0000000000.json").unlink()
    sink.write_at(0, *FIRST[:3])
    sink.write_at(5, row(180, 3, 9), mark(190))
    assert sink.apply() == [(1, 7), (2, 8), (3, 9)]


def test_an_archive_is_read_no_more_than_it_grows(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that has the newest landed message is read once more, since it is the last one of the first landing."""
    read: list[str] = []
    original = Opener.read_range

    def watched(opener: Opener, path: str, *more: int) -> bytes:
        read.append(path[-7:-5])
        return original(opener, path, *more)

    monkeypatch.setattr(Opener, "read_range", watched)
    sink.apply()
    assert read == []
    for start in (5, 7, 9):
        sink.write_at(start, row(180 + start, start, 9), mark(190 + start))
    sink.apply()
    assert set(read) == {"03", "05", "07", "09"}


def test_a_topic_of_a_living_table_that_is_gone_keeps_the_fence_at_its_last_mark(tmp_path: Path) -> None:
    """What came to it since the landing before has gone with it, or it is only hidden from the login."""
    (tmp_path / "feed.toml").write_text('[sink]\ndispatchers = [{matcher = ["*.*"], topic = "{schema}_{table}"}]\n')
    feed = TopicFeed.of(Broker(), sink_uri=URI, changefeed_config=tmp_path / "feed.toml")
    log = broker(feed)
    log.send(0, ddl(100), row(120, 1, 7), mark(150), topic="shop_t")
    log.send(0, ddl(101, CREATE.replace("`t`", "`u`"), "u"), mark(150), topic="shop_u")
    feed.apply()
    log.send(0, row(160, 2, 8), mark(170), topic="shop_t")
    hidden, log.lines = log.lines, [line for line in log.lines if line["topic"] != "shop_t"]
    log.send(0, row(165, 3, 9, "u"), mark(200), topic="shop_u")
    (sentence,) = [finding.sentence for finding in feed.apply().findings if finding.rule == "listing"]
    assert "the fence stays at 150: shop_t[0] is not there any more, and what came to it behind its last" in sentence
    assert feed.lake.read(TableId("shop", "u")).num_rows == 0
    declare_dead(feed.landing, Partition("shop_t", 0))
    assert feed.apply().findings == ()
    assert feed.fence == 200
    with pytest.raises(BadSettings, match="waits for no partition"):
        declare_dead(feed.landing, Partition("shop_u", 0))
    log.lines = [*hidden, *(line for line in log.lines if line not in hidden)]
    assert any("rebuild shop.t" in table.reason for table in feed.apply().tables)


def test_the_topic_of_a_dropped_table_may_go(tmp_path: Path) -> None:
    (tmp_path / "feed.toml").write_text('[sink]\ndispatchers = [{matcher = ["*.*"], topic = "{schema}_{table}"}]\n')
    feed = TopicFeed.of(Broker(), sink_uri=URI, changefeed_config=tmp_path / "feed.toml")
    log = broker(feed)
    drop = ddl(160, "DROP TABLE `t`").replace(b'"CREATE"', b'"ERASE"')
    log.send(0, ddl(100), row(120, 1, 7), mark(150), drop, topic="shop_t")
    log.send(0, ddl(101, CREATE.replace("`t`", "`u`"), "u"), mark(150), topic="shop_u")
    feed.apply()
    log.lines = [line for line in log.lines if line["topic"] != "shop_t"]
    log.send(0, mark(200), topic="shop_u")
    assert feed.apply().findings == ()
    assert feed.fence == 200


def test_a_topic_by_offset_that_is_gone_is_told_of(tmp_path: Path) -> None:
    """A changefeed of YDB was dropped, or another connector's topic: nothing else shows that its table stands still."""
    lines, other = ydb.Lines(), "shop/users/updates"
    lines.change(0, 1, 1, 1000)
    lines.send(0, {"update": {"a": 1}, "key": [1], "ts": [1000, 1]}, other)
    feed = ydb.feed_of(lines, tmp_path, topics=[ydb.TOPIC, other])
    sentences = [finding.sentence for finding in feed.apply().findings if finding.rule == "listing"]
    lines.log.lines = [line for line in lines.log.lines if line["topic"] != other]
    lines.change(0, 1, 2, 1001)
    (gone,) = [
        finding.sentence
        for finding in feed.apply().findings
        if finding.rule == "listing" and finding.sentence not in sentences
    ]
    assert gone.startswith(f"{other}[0] is not there any more: nothing comes to its tables")
    declare_dead(feed.landing, Partition(other, 0))
    assert [finding.sentence for finding in feed.apply().findings if finding.rule == "listing"] == sentences


def test_the_topic_that_a_table_left_by_a_rename_keeps_the_fence_where_it_is_gone(tmp_path: Path) -> None:
    """The RENAME is in the topic of the new name: it does not show that all rows before it are there."""
    (tmp_path / "feed.toml").write_text('[sink]\ndispatchers = [{matcher = ["*.*"], topic = "{schema}_{table}"}]\n')
    feed = TopicFeed.of(Broker(), sink_uri=URI, changefeed_config=tmp_path / "feed.toml")
    log = broker(feed)
    log.send(0, ddl(100), row(120, 1, 7), mark(150), topic="shop_t")
    log.send(0, mark(150))
    feed.apply()
    log.lines = [line for line in log.lines if line["topic"] != "shop_t"]
    rename = ddl(170, "RENAME TABLE `t` TO `u`", "u").replace(b'"CREATE"', b'"RENAME"')
    log.send(0, rename, mark(200), topic="shop_u")
    log.send(0, mark(200))
    (sentence,) = [finding.sentence for finding in feed.apply().findings if finding.rule == "listing"]
    assert "the fence stays at 150: shop_t[0] is not there any more" in sentence
