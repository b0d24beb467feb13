"""What is landed, once, whoever lands it; and what stops a landing or keeps the fence."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_assets.errors import InputError, MetadataMissing, TableMoved
from cdc_assets.landing import batch, landing
from cdc_assets.landing.decisions import release
from cdc_assets.landing.landing import Landing
from cdc_assets.model.landed import EventKind
from cdc_assets.model.offsets import Ends, LogEnds, OffsetRange, Partition
from cdc_assets.model.progress import State
from cdc_assets.model.schema import TableId
from cdc_assets.sources.topics.source import TopicsSource
from cdc_assets_tests.memory_landing import MemoryStore
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

URI = "kafka://127.0.0.1:9092/cdc?protocol=canal-json&enable-tidb-extension=true"
CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` INT)"


def canal(kind: str, ts: int, **more: Any) -> bytes:
    record = {
        "id": 0,
        "database": "shop",
        "table": "t",
        "pkNames": ["id"],
        "isDdl": False,
        "type": kind,
        "es": ts >> 18,
        "ts": 0,
        "sql": "",
        "sqlType": {"id": 4, "v": 4},
        "mysqlType": {"id": "int", "v": "int"},
        "old": None,
        "data": None,
        **more,
        "_tidb": {"commitTs": ts},
    }
    return json.dumps(record, separators=(",", ":")).encode()


def row(ts: int, key: int, value: int, table: str = "t") -> bytes:
    return canal("INSERT", ts, table=table, data=[{"id": str(key), "v": str(value)}])


def ddl(ts: int, sql: str = CREATE, table: str = "t") -> bytes:
    return canal("CREATE", ts, table=table, isDdl=True, sql=sql, pkNames=None, sqlType=None, mysqlType=None)


def mark(ts: int) -> bytes:
    record = {"id": 0, "database": "", "table": "", "pkNames": None, "isDdl": False, "type": "TIDB_WATERMARK"}
    rest = {"es": 0, "ts": 0, "sql": "", "sqlType": None, "mysqlType": None, "data": None, "old": None}
    return json.dumps({**record, **rest, "_tidb": {"watermarkTs": ts}}, separators=(",", ":")).encode()


def without_extension(message: bytes) -> bytes:
    return json.dumps({name: part for name, part in json.loads(message).items() if name != "_tidb"}).encode()


class Broker(MemoryLog):
    """A log that messages are sent to."""

    def send(self, partition: int, *values: bytes | None, topic: str = "cdc", sent_ms: int = 0) -> None:
        for value in values:
            offsets = [
                line["offset"] for line in self.lines if (line["topic"], line["partition"]) == (topic, partition)
            ]
            text = None if value is None else base64.b64encode(value).decode()
            place = {"topic": topic, "partition": partition, "offset": max(offsets, default=-1) + 1}
            self.lines.append({**place, "timestamp_ms": sent_ms, "key_b64": None, "value_b64": text})


class EmptyTopic(Broker):
    """A topic of two partitions, to which nothing was sent."""

    def ends(self, concerns: Callable[[str], bool]) -> Ends:
        return {Partition("cdc", number): LogEnds(0, 0) for number in range(2)}


class Recreated(Broker):
    """A topic of which another one has the name once somebody has read of it."""

    def read(self, wanted: OffsetRange, batch_bytes: int = 1000) -> Iterator[pa.RecordBatch]:
        yield from super().read(wanted, batch_bytes)
        self.ids["cdc"] = "second"

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {"cdc": self.ids.get("cdc", "first")}


@pytest.fixture
def feed() -> TopicFeed:
    return TopicFeed.of(Broker(), sink_uri=URI)


def broker(feed: TopicFeed) -> Broker:
    assert isinstance(feed.log, Broker)
    return feed.log


def rows_of(feed: TopicFeed) -> list[tuple[int, int]]:
    (table,) = feed.lake.tables.values()
    return sorted(zip(table.rows.column("id").to_pylist(), table.rows.column("v").to_pylist(), strict=True))


# --- the fence --------------------------------------------------------------------------------------------------------


def test_a_mark_in_one_partition_proves_all_that_was_sent_before_it(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), mark(150))
    broker(feed).send(1, row(120, 1, 7))
    feed.apply()
    assert feed.fence == 150
    assert rows_of(feed) == [(1, 7)]


def test_a_topic_without_any_message_is_waited_for_by_name(feed: TopicFeed) -> None:
    feed.log = EmptyTopic()
    with pytest.raises(MetadataMissing, match=r"there is no message yet in cdc\[0\], cdc\[1\]\. Wait"):
        feed.apply()


def test_rows_above_the_mark_wait_for_the_next(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), row(120, 1, 7), mark(150), row(160, 2, 8))
    feed.apply()
    assert rows_of(feed) == [(1, 7)]
    broker(feed).send(1, mark(170))
    feed.apply()
    assert rows_of(feed) == [(1, 7), (2, 8)]


def test_an_older_row_in_another_partition_is_not_read_by_columns_that_a_newer_one_shows(feed: TopicFeed) -> None:
    older = canal("INSERT", 110, mysqlType={"id": "int", "v": "text"}, data=[{"id": "2", "v": "8"}])
    broker(feed).send(0, row(120, 1, 7))
    broker(feed).send(1, older, mark(150))
    (held,) = feed.apply().tables
    assert held.state is State.HELD
    assert "its columns are not known before 119" in held.reason


def test_what_arrives_after_the_mark_was_seen_is_landed_before_it_counts(feed: TopicFeed) -> None:
    log = broker(feed)
    log.send(0, ddl(100), mark(150))
    log.send(1, mark(90))
    read = log.read

    def late(wanted: OffsetRange, batch_bytes: int = 0) -> Iterator[Any]:
        yield from read(wanted)
        if wanted.partition == Partition("cdc", 1) and wanted.stop == 1:
            log.send(1, row(140, 1, 7))  # acknowledged before the mark of 150 was sent, asked for after it was seen

    log.read = late  # type: ignore[method-assign]
    feed.apply()
    assert feed.fence == 150
    assert rows_of(feed) == [(1, 7)]


def test_a_mark_proves_nothing_before_what_a_transaction_wrote_with_it_is_shown_everywhere(feed: TopicFeed) -> None:
    """A broker shows what was committed in one partition after the other."""
    log = broker(feed)
    log.send(0, ddl(100), mark(150))
    log.send(1, row(120, 1, 7))
    ends = log.ends

    def shown(concerns: Callable[[str], bool]) -> Ends:
        log_ends, hidden = {**ends(concerns)}, Partition("cdc", 1)
        log_ends[hidden] = LogEnds(0, 1 if log.end_lookups > 3 else 0, written=1)
        return log_ends

    log.ends = shown  # type: ignore[method-assign]
    feed.apply()
    assert feed.fence == 150
    assert rows_of(feed) == [(1, 7)]


def test_a_row_that_is_shown_after_the_ddl_behind_it_is_landed_before_it() -> None:
    """A copier of topics writes both in one transaction; by offset nothing else says what comes first."""
    feed = TopicFeed.of(Broker(), sink_uri=URI.partition("&")[0], accept_unordered=True)
    log, truncate = broker(feed), ddl(150 << 18, "TRUNCATE TABLE `t`").replace(b'"CREATE"', b'"TRUNCATE"')
    log.send(0, *map(without_extension, (ddl(100 << 18), row(110 << 18, 5, 5))))
    feed.apply()
    log.send(0, *map(without_extension, (truncate, row(160 << 18, 6, 6))))
    log.send(1, without_extension(row(120 << 18, 1, 7)))
    ends, lookups = log.ends, log.end_lookups

    def shown(concerns: Callable[[str], bool]) -> Ends:
        log_ends, hidden = {**ends(concerns)}, Partition("cdc", 1)
        log_ends[hidden] = LogEnds(0, 1 if log.end_lookups > lookups + 3 else 0, written=1)
        return log_ends

    log.ends = shown  # type: ignore[method-assign]
    for _ in range(2):
        assert [table.reason for table in feed.apply().tables] == [""]
    assert rows_of(feed) == [(6, 6)]


def in_one_millisecond(kind: str, sql: str) -> bytes:
    return without_extension(canal(kind, 100 << 18, isDdl=True, sql=sql, pkNames=None, sqlType=None, mysqlType=None))


OLD = without_extension(ddl(90 << 18, CREATE.replace("`t`", "`old`"), table="old"))
GIVE_NAMES = [
    ("CREATE", CREATE, (), [(1, 7), (2, 8)]),
    ("RENAME", "RENAME TABLE `shop`.`old` TO `shop`.`t`", (OLD,), [(1, 7), (2, 8), (9, 9)]),
    ("QUERY", "FLASHBACK TABLE `old` TO `t`", (OLD,), [(1, 7), (2, 8), (9, 9)]),
]


@pytest.mark.parametrize("ddl_in", [0, 1])
@pytest.mark.parametrize(("kind", "sql", "before", "expected"), GIVE_NAMES, ids=[case[0] for case in GIVE_NAMES])
def test_rows_in_the_millisecond_in_which_their_table_gets_its_name_come_behind_that(
    kind: str, sql: str, before: tuple[bytes, ...], expected: list[tuple[int, int]], ddl_in: int
) -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI.partition("&")[0], accept_unordered=True)
    log, named = broker(feed), in_one_millisecond(kind, sql)
    log.send(0, *before)
    if before:
        log.send(0, without_extension(row(95 << 18, 9, 9, table="old")))
    if kind == "QUERY":
        drop = ddl(98 << 18, "DROP TABLE `old`", table="old").replace(b'"CREATE"', b'"ERASE"')
        log.send(0, without_extension(drop))
    log.send(ddl_in, named)
    log.send(0, without_extension(row(100 << 18, 1, 7)))
    log.send(1, without_extension(row(100 << 18, 2, 8)))
    outcome = feed.apply()
    assert [table.reason for table in outcome.tables if table.reason] == []
    assert (
        sorted((lake_row["id"], lake_row["v"]) for lake_row in feed.lake.read(TableId("shop", "t")).to_pylist())
        == expected
    )


def test_rows_behind_a_truncate_in_its_partition_come_behind_it_in_the_same_millisecond_too() -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI.partition("&")[0], accept_unordered=True)
    first, truncate = without_extension(ddl(90 << 18)), in_one_millisecond("TRUNCATE", "TRUNCATE TABLE `t`")
    rows = [without_extension(row(100 << 18, key, key)) for key in (1, 2)]
    broker(feed).send(0, first, rows[0], truncate, rows[1])
    assert [table.reason for table in feed.apply().tables] == [""]
    assert rows_of(feed) == [(2, 2)]


EMPTYING = ["TRUNCATE TABLE `t`", "ALTER TABLE `t` TRUNCATE PARTITION `p0`", "ALTER TABLE `t` DROP PARTITION `p0`"]


@pytest.mark.parametrize("sql", EMPTYING)
def test_a_row_in_the_millisecond_of_a_ddl_in_another_partition_that_takes_rows_holds_its_table(sql: str) -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI.partition("&")[0], accept_unordered=True)
    parts = "PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (9), PARTITION `p1` VALUES LESS THAN (99))"
    create = ddl(90 << 18, f"{CREATE} {parts}")
    broker(feed).send(0, *map(without_extension, (create, row(95 << 18, 4, 4))), in_one_millisecond("QUERY", sql))
    broker(feed).send(1, without_extension(row(100 << 18, 1, 7)))
    (table,) = feed.apply().tables
    assert "nothing says which came first" in table.reason
    later = TopicFeed.of(Broker(), sink_uri=URI.partition("&")[0], accept_unordered=True)
    broker(later).send(0, *map(without_extension, (create, row(95 << 18, 4, 4))), in_one_millisecond("QUERY", sql))
    for sent in ([], [without_extension(row(100 << 18, 1, 7))]):
        broker(later).send(1, *sent)
        assert [table.reason for table in later.apply().tables] == [""]
    assert rows_of(later) == [(1, 7)], "TiCDC sends a row behind a DDL later"


def at_once(table: str, sql: str) -> bytes:
    kind = {"DROP": "ERASE", "CREATE": "CREATE", "RENAME": "RENAME"}.get(sql.partition(" ")[0], "QUERY")
    return in_one_millisecond(kind, sql).replace(b'"table": "t"', f'"table": "{table}"'.encode())


SWAP = (
    ("t", "RENAME TABLE `shop`.`u` TO `shop`.`t`"),
    ("u", "RENAME TABLE `shop`.`v` TO `shop`.`u`"),
    ("v", "RENAME TABLE `shop`.`u` TO `shop`.`v`"),
)


@pytest.mark.parametrize(
    "statements",
    [
        SWAP,
        (("p", "ALTER TABLE `shop`.`p` EXCHANGE PARTITION `p0` WITH TABLE `u`"),),
        (("u", "ALTER TABLE `shop`.`p` EXCHANGE PARTITION `p0` WITH TABLE `shop`.`u`"),),
        (("u", "DROP TABLE `u`"), ("u", CREATE.replace("`t`", "`u`"))),
        (("u", "ALTER TABLE `u` TRUNCATE /* all of */ PARTITION `p0`"),),
    ],
)
def test_a_row_in_the_millisecond_in_which_its_name_or_its_rows_pass_to_others_holds_its_table(
    statements: tuple[tuple[str, str], ...],
) -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI.partition("&")[0], accept_unordered=True)
    parts = " PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (9), PARTITION `p1` VALUES LESS THAN (99))"
    parted = "p" if "EXCHANGE" in statements[0][1] else "u"
    for name in "puv":
        sql = CREATE.replace("`t`", f"`{name}`") + (parts if name == parted else "")
        broker(feed).send(0, without_extension(ddl(90 << 18, sql, name)))
    broker(feed).send(0, *(at_once(*statement) for statement in statements))
    broker(feed).send(1, without_extension(row(100 << 18, 5, 5, "u")))
    (reason,) = [table.reason for table in feed.apply().tables if table.state is State.HELD]
    assert "nothing says which came first" in reason


def test_rows_before_a_swap_in_its_partition_are_of_the_table_that_had_the_name_in_the_same_millisecond() -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI.partition("&")[0], accept_unordered=True)
    created = [without_extension(ddl(90 << 18, CREATE.replace("`t`", f"`{name}`"), name)) for name in "uv"]
    before, behind = (without_extension(row(100 << 18, key, key, "u")) for key in (1, 2))
    broker(feed).send(0, *created, before, *(at_once(*statement) for statement in SWAP), behind)
    assert [table.reason for table in feed.apply().tables if table.state is State.HELD] == []
    assert {name: feed.lake.read(TableId("shop", name))["id"].to_pylist() for name in "uv"} == {"u": [2], "v": [1]}


@pytest.mark.parametrize("ddl_first", [True, False])
def test_in_an_archive_a_row_and_a_truncate_of_one_millisecond_may_come_in_any_order(ddl_first: bool) -> None:
    log = Broker()
    log.proves_ends = False
    archive = {"uri": "memory://nowhere", "layout": "records"}
    feed = TopicFeed.of(log, sink_uri=URI.partition("&")[0], accept_unordered=True, archive=archive)
    log.send(0, without_extension(ddl(90 << 18)))
    log.send(1, without_extension(row(95 << 18, 3, 3)))
    sent = [(0, in_one_millisecond("TRUNCATE", "TRUNCATE TABLE `t`")), (1, without_extension(row(100 << 18, 1, 7)))]
    reasons = []
    for partition, message in sent if ddl_first else reversed(sent):
        log.send(partition, message)
        reasons += [table.reason for table in feed.apply().tables]
    assert reasons[0] == ""
    assert "nothing says which came first" in reasons[1]


@pytest.mark.parametrize("again", [True, False])
def test_a_row_in_the_millisecond_of_a_truncate_comes_behind_it_or_before_as_a_person_says(again: bool) -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI.partition("&")[0], accept_unordered=True)
    first, truncate = without_extension(ddl(90 << 18)), in_one_millisecond("TRUNCATE", "TRUNCATE TABLE `t`")
    broker(feed).send(0, first, without_extension(row(95 << 18, 4, 4)), truncate)
    broker(feed).send(1, without_extension(row(100 << 18, 1, 7)), without_extension(row(101 << 18, 2, 8)))
    feed.apply()
    (life,) = feed.lake.tables
    through = feed.lake.tables[life].progress.tso
    release(feed.landing, Partition("cdc", 1), 0, again=again, applied=lambda _: through)
    assert [table.reason for table in feed.apply().tables] == [""]
    assert rows_of(feed) == [(1, 7)] * again + [(2, 8)]


def test_a_create_that_comes_after_rows_of_its_millisecond_were_landed_holds_its_table() -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI.partition("&")[0], accept_unordered=True)
    broker(feed).send(1, without_extension(row(100 << 18, 1, 7)))
    feed.apply()
    broker(feed).send(0, in_one_millisecond("CREATE", CREATE))
    (table,) = feed.apply().tables
    assert "they belong behind it" in table.reason
    assert rows_of(feed) == [(1, 7)]


def test_rows_that_a_later_create_takes_away_are_a_finding() -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI.partition("&")[0], accept_unordered=True)
    broker(feed).send(0, *map(without_extension, (row(90 << 18, 1, 7), ddl(100 << 18), row(110 << 18, 2, 8))))
    replaced_findings = [finding for finding in feed.apply().findings if finding.rule == "replaced-by-create"]
    assert [str(finding.table).partition("@")[0] for finding in replaced_findings] == ["shop.t"]


def test_a_mark_waits_for_a_later_landing_while_a_transaction_stays_open(
    feed: TopicFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "_SHOWN_SECONDS", 0)
    log = broker(feed)
    log.send(0, ddl(100), mark(150))
    ends = log.ends
    log.ends = lambda concerns: {**ends(concerns), Partition("cdc", 1): LogEnds(0, 0, written=1)}  # type: ignore[method-assign]
    waits = r"cdc\[1\]: a transaction wrote to it, up to offset 0, and is not at its end"
    with pytest.raises(MetadataMissing, match=waits):
        feed.apply()
    log.ends = ends  # type: ignore[method-assign]
    feed.apply()
    assert feed.fence == 150
    log.ends = lambda concerns: {**ends(concerns), Partition("cdc", 1): LogEnds(0, 0, written=4)}  # type: ignore[method-assign]
    log.send(0, row(160, 1, 7), mark(170))
    (sentence,) = [finding.sentence for finding in feed.apply().findings if finding.rule == "listing"]
    assert sentence.startswith(
        "the fence stays at 150: cdc[1]: a transaction wrote to it, up to offset 3, and is not at its"
    )
    assert feed.fence == 150
    log.ends = ends  # type: ignore[method-assign]
    log.send(0, mark(180))
    assert feed.apply().findings == ()
    assert feed.fence == 180


def test_a_first_mark_that_comes_with_the_second_look_is_proven_by_a_third(feed: TopicFeed) -> None:
    """A topic that was created just now may not be in the first answer of a broker."""
    log = broker(feed)
    log.send(0, ddl(100), row(120, 1, 7), mark(150))
    ends = log.ends

    def later(concerns: Any) -> Any:
        log_ends = ends(concerns)
        return log_ends if log.end_lookups > 1 else {}

    log.ends = later  # type: ignore[method-assign]
    feed.apply()
    assert feed.fence == 150


def test_a_mark_that_falls_back_takes_nothing_back(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), row(120, 1, 7), mark(150))
    feed.apply()
    broker(feed).send(0, row(120, 1, 7), mark(130))
    feed.apply()
    assert feed.fence == 150
    assert rows_of(feed) == [(1, 7)]


def test_an_archive_is_complete_through_the_least_mark_of_its_partitions(feed: TopicFeed) -> None:
    log = broker(feed)
    log.proves_ends = False
    archived = TopicFeed.of(log, sink_uri=URI, archive={"uri": "memory://nowhere", "layout": "records"})
    log.send(0, ddl(100), mark(150))
    log.send(1, row(120, 1, 7), mark(130))
    archived.apply()
    assert archived.fence == 130
    assert "cdc[1]: its last mark is 130" in archived.listing().warnings[0]
    log.send(2, row(140, 2, 8))
    with pytest.raises(MetadataMissing, match=r"cdc\[2\]: it has no mark"):
        archived.apply()


def test_an_archived_topic_that_its_table_left_is_complete_by_the_mark_or_the_ddl_before_that(tmp_path: Path) -> None:
    toml = tmp_path / "changefeed.toml"
    toml.write_text('[sink]\ndispatchers = [{matcher = ["*.*"], topic = "{schema}_{table}"}]\n')
    log = Broker()
    log.proves_ends = False
    archive = {"uri": "memory://nowhere", "layout": "records"}
    archived = TopicFeed.of(log, sink_uri=URI, changefeed_config=toml, archive=archive)
    drop = ddl(150, "DROP TABLE `t`").replace(b'"CREATE"', b'"ERASE"')
    for partition in range(2):
        log.send(partition, ddl(100), mark(110), topic="shop_t")
    log.send(0, mark(110), drop, topic="shop_t")
    log.send(0, mark(190))
    archived.apply()
    assert archived.fence == 110  # rows through 149 may still come to the other partition
    assert "shop_t[1]: its last mark is 110" in archived.listing().warnings[0]
    log.send(1, row(140, 1, 7), drop, topic="shop_t")
    archived.apply()
    assert archived.fence == 190


def test_an_archived_topic_of_which_no_rule_tells_the_tables_counts_as_the_others_do() -> None:
    log = Broker()
    log.proves_ends = False
    archive = {"uri": "memory://nowhere", "layout": "records"}
    archived = TopicFeed.of(log, sink_uri=URI, topics=("*",), archive=archive)
    log.send(0, ddl(100), row(105, 1, 7), mark(110), topic="other")
    log.send(0, mark(190))
    archived.apply()
    assert archived.fence == 110
    log.send(0, row(150, 2, 8), mark(190), topic="other")
    archived.apply()
    assert rows_of(archived) == [(1, 7), (2, 8)]


@pytest.mark.parametrize("landed", [1, 2, 7])
def test_a_statement_that_renames_several_tables_takes_effect_once_all_of_it_is_there(
    feed: TopicFeed, landed: int
) -> None:
    """TiCDC sends a message for each, and the mark of its commit-ts may come before them."""
    renames = [
        ddl(200, f"RENAME TABLE `{old}` TO `{new}`", new).replace(b'"CREATE"', b'"RENAME"')
        for old, new in (("t", "tmp"), ("u", "t"), ("tmp", "u"))
    ]
    broker(feed).send(0, ddl(100), ddl(101, CREATE.replace("`t`", "`u`"), "u"), row(120, 1, 7), row(130, 2, 8, "u"))
    rest, shown = [mark(150), row(199, 3, 9), mark(200), *renames, mark(210)], set[tuple[tuple[str, int], ...]]()
    for at in range(0, len(rest), landed):
        broker(feed).send(0, *rest[at : at + landed])
        feed.apply()
        names = {name.table: feed.lake.read(name).column("id").to_pylist() for name in feed.lake.names()}
        shown.add(tuple((name, key) for name, keys in sorted(names.items()) for key in sorted(keys)))
        waits = any(warning.startswith("the rename to ") for warning in feed.listing().warnings)
        assert waits == (feed.fence == 200 and any(event.position == 200 for event in feed.landing.landed().events))
    assert shown <= {(("t", 1), ("u", 2)), (("t", 1), ("t", 3), ("u", 2)), (("t", 2), ("u", 1), ("u", 3))}
    assert (("t", 2), ("u", 1), ("u", 3)) in shown


# --- rows that come again ---------------------------------------------------------------------------------------------


TWO = (row(120, 1, 7), row(120, 1, 7))


@pytest.mark.parametrize("pieces", [1, 2, 3, 100])
@pytest.mark.parametrize(
    "sent",
    [
        (mark(110), *TWO, mark(130), *TWO, mark(115), *TWO, mark(130), *TWO, mark(150)),
        (mark(110), *TWO, mark(110), *TWO, mark(110), *TWO, mark(150)),
        (mark(110), TWO[0], mark(115), TWO[1], mark(150)),
        (mark(110), TWO[0], mark(115), TWO[1], mark(130), *TWO, mark(130), TWO[0], mark(150)),
    ],
    ids=["behind a mark above them", "before any mark is above them", "in two pieces once", "in two pieces, and again"],
)
def test_rows_that_come_again_and_again_count_once_in_a_table_without_a_key(
    feed: TopicFeed, sent: tuple[bytes, ...], pieces: int
) -> None:
    """Neither a step back of the commit-ts tells the deliveries apart, nor a row of another transaction between."""
    keyless = [value.replace(b'"pkNames":["id"]', b'"pkNames":[]') for value in sent]
    broker(feed).send(0, ddl(100, CREATE.replace(" PRIMARY KEY", "")))
    for at in range(0, len(keyless), pieces):
        broker(feed).send(0, *keyless[at : at + pieces])
        with suppress(MetadataMissing):
            feed.apply()
    assert rows_of(feed) == [(1, 7), (1, 7)]


def test_a_transaction_without_a_key_that_runs_twice_is_told_of(feed: TopicFeed) -> None:
    """With no mark between nobody can tell it from a transaction of equal rows."""
    sent = (row(120, 1, 7), row(120, 2, 8), row(120, 1, 7), row(120, 2, 8), row(130, 3, 9), row(130, 3, 8))
    keyless = [value.replace(b'"pkNames":["id"]', b'"pkNames":[]') for value in sent]
    broker(feed).send(0, ddl(100, CREATE.replace(" PRIMARY KEY", "")), mark(110), *keyless, mark(150))
    details_by_rule = {finding.rule: finding.detail for finding in feed.apply().findings}
    assert rows_of(feed) == [(1, 7), (1, 7), (2, 8), (2, 8), (3, 8), (3, 9)]
    assert details_by_rule["rows-run-again"] == "2 rows"


# --- messages that cannot be read -------------------------------------------------------------------------------------


def test_a_message_of_no_table_that_cannot_be_read_keeps_the_fence_at_the_mark_before_it(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), row(120, 1, 7), mark(150), b"\x00no message", row(160, 2, 8), mark(170))
    feed.apply()
    assert feed.fence == 150
    assert rows_of(feed) == [(1, 7)]
    (bad,) = feed.landing.landed().open_bad
    assert (bad.offset, bad.value, bad.table) == (3, b"\x00no message", None)
    assert "cdc[0] offset 3 cannot be read" in feed.listing().warnings[0]


def test_such_a_message_in_a_partition_without_marks_keeps_the_fence_where_it_was(feed: TopicFeed) -> None:
    log = broker(landed(feed))
    log.send(1, b"\x00")
    log.send(0, mark(170))
    feed.apply()
    assert feed.fence == 150
    assert "cdc[1] offset 0 cannot be read" in feed.listing().warnings[0]


def test_with_quarantine_such_a_message_is_kept_and_the_feed_goes_on() -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI, quarantine=True)
    broker(feed).send(0, ddl(100), b"\x00", row(160, 2, 8), mark(170))
    feed.apply()
    assert feed.fence == 170
    assert rows_of(feed) == [(2, 8)]
    assert len(feed.landing.landed().open_bad) == 1
    (problem,) = feed.listing().problems.values()
    assert problem.endswith("goes past it. With quarantine on, what comes after it is applied meanwhile.")


def test_a_message_of_a_known_table_that_cannot_be_read_holds_that_table_alone(feed: TopicFeed) -> None:
    part = canal("INSERT", 160, data=[{"id": "2"}])[:-2] + b',"onlyHandleKey":true}}'
    other = ddl(110, CREATE.replace("`t`", "`u`"), "u")
    broker(feed).send(0, ddl(100), other, row(120, 1, 7), part, row(165, 5, 5, "u"), mark(170))
    outcome = feed.apply()
    reached = {str(table.life): (table.state.value, table.reason) for table in outcome.tables}
    assert reached["shop.u@110"][0] == "applied"
    assert reached["shop.t@100"][0] == "held"
    assert "large-message-handle-option" in reached["shop.t@100"][1]


def test_the_key_of_a_large_row_is_enough_for_its_delete(tmp_path: Path) -> None:
    config = tmp_path / "changefeed.toml"
    config.write_text('[sink.kafka-config.large-message-handle]\nlarge-message-handle-option = "handle-key-only"\n')
    feed = TopicFeed.of(Broker(), sink_uri=URI, changefeed_config=config)
    gone = canal("DELETE", 160, data=[{"id": "1"}])[:-2] + b',"onlyHandleKey":true}}'
    whole = canal("DELETE", 150, data=[{"id": "2", "v": "8"}])
    broker(feed).send(0, ddl(100), row(120, 1, 7), row(121, 2, 8), row(122, 3, 9), mark(140), whole, gone, mark(170))
    feed.apply()
    assert rows_of(feed) == [(3, 9)]
    broker(feed).send(0, canal("INSERT", 180, data=[{"id": "4"}])[:-2] + b',"onlyHandleKey":true}}', mark(190))
    (held,) = feed.apply().tables
    assert "large-message-handle-option" in held.reason


def test_a_null_value_is_a_message_that_cannot_be_read(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), None, mark(170))
    with pytest.raises(MetadataMissing, match=r"cdc\[0\] offset 1 cannot be read"):
        feed.apply()


# --- the log ----------------------------------------------------------------------------------------------------------


def landed(feed: TopicFeed) -> TopicFeed:
    broker(feed).send(0, ddl(100), row(120, 1, 7), mark(150))
    feed.apply()
    return feed


def test_a_log_that_forgot_what_was_not_landed_stops_and_names_the_range(feed: TopicFeed) -> None:
    log = broker(landed(feed))
    log.send(0, row(160, 2, 8), row(161, 3, 9), mark(170))
    log.lines = [line for line in log.lines if line["offset"] > 4]
    with pytest.raises(InputError, match=r"cdc\[0\] begins at offset 5, and was landed to 3: the 2 messages 3\.\.4"):
        feed.apply()
    assert rows_of(feed) == [(1, 7)]


def test_a_topic_that_was_created_anew_stops(feed: TopicFeed) -> None:
    log = broker(landed(feed))
    log.lines = []
    log.send(0, mark(200))
    with pytest.raises(InputError, match=r"cdc\[0\] ends at offset 1, and was landed to 3: the topic was created anew"):
        feed.apply()


@pytest.mark.parametrize("extension", ["true", "false"], ids=["by commit-ts", "by offset"])
def test_a_topic_that_is_created_anew_while_it_is_read_is_not_landed(extension: str) -> None:
    log = Recreated()
    uri = f"kafka://127.0.0.1:9092/cdc?protocol=canal-json&enable-tidb-extension={extension}"
    feed = TopicFeed.of(log, sink_uri=uri, accept_unordered=extension == "false")
    log.send(0, ddl(100), row(120, 1, 7), mark(150))
    with pytest.raises(InputError, match=r"cdc\[0\] is of the topic second by now, and was landed of first"):
        feed.apply()
    assert feed.landing.landed().next == {}


def test_offsets_that_vanish_inside_a_range_are_a_loss_and_nothing_behind_them_is_landed(feed: TopicFeed) -> None:
    log = broker(landed(feed))
    log.send(0, row(160, 2, 8), row(161, 3, 9), mark(170))
    log.lines = [line for line in log.lines if line["offset"] != 4]
    for _ in range(2):
        with pytest.raises(InputError, match=r"cdc\[0\]: 1 message \(4\.\.4\) is missing"):
            feed.apply()
    assert feed.fence == 150


def test_offsets_that_a_transaction_took_are_no_loss(feed: TopicFeed) -> None:
    log = broker(landed(feed))
    log.send(0, row(160, 2, 8), row(161, 3, 9), mark(170))
    log.lines = [line for line in log.lines if line["offset"] != 4]
    log.missing_because = lambda topic: "transactional"  # type: ignore[method-assign]
    feed.apply()
    assert rows_of(feed) == [(1, 7), (2, 8)]


def test_partitions_that_are_added_are_read_from_their_beginning(feed: TopicFeed) -> None:
    log = broker(landed(feed))
    log.send(1, row(160, 2, 8))
    log.send(0, mark(170))
    feed.apply()
    assert rows_of(feed) == [(1, 7), (2, 8)]


# --- commits ----------------------------------------------------------------------------------------------------------


def test_a_ddl_that_comes_in_every_partition_is_kept_once(feed: TopicFeed) -> None:
    for partition in range(3):
        broker(feed).send(partition, ddl(100), mark(150))
    feed.apply()
    events = feed.landing.landed().events
    assert [event.kind for event in events] == [EventKind.DDL]


def test_of_two_that_land_the_same_one_wins_and_the_other_reads_again(feed: TopicFeed) -> None:
    log, store = broker(feed), feed.store
    log.send(0, ddl(100), row(120, 1, 7), mark(150))
    assert isinstance(feed.source, TopicsSource)
    other = Landing(lambda: log, feed.source.options.messages, store, lambda _: True, lambda _: b"")
    commit, before = store.commit, len(store.changes)

    def raced(*given: Any) -> None:
        store.commit = commit
        other.advance()
        commit(*given)

    store.commit = raced
    feed.apply()
    assert len(store.changes) == before + 1
    assert rows_of(feed) == [(1, 7)]
    assert len(store.files) == 2  # what the loser wrote is gone


def test_events_are_read_once(feed: TopicFeed) -> None:
    landed(feed)
    for at in range(3):
        broker(feed).send(0, row(200 + at, at, at), mark(210 + at))
        feed.apply()
    assert len(feed.store.reads) == len(set(feed.store.reads)) == 4


def test_marks_alone_are_landed_when_the_interval_is_over(feed: TopicFeed) -> None:
    landed(feed)
    feed.landing.mark_interval_seconds = 3600
    broker(feed).send(0, mark(200))
    assert feed.landing.advance().commits == 0
    assert feed.landing.behind() == 1
    feed.landing.mark_interval_seconds = 0
    assert feed.landing.advance().commits == 1
    assert feed.fence == 200


def test_a_backlog_is_landed_in_several_commits_and_counts_once_it_is_whole(
    feed: TopicFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, committed = broker(feed), list[Any]()

    def commit(store: Any, spool: Any, reading: Any, state: Any) -> int:
        assert not any(commit.rows for commit in committed)  # no more is held in memory than one commit
        committed.append(reading)
        return batch.commit(store, spool, reading, state)

    monkeypatch.setattr("cdc_assets.landing.landing.commit", commit)
    log.send(0, ddl(100), *(row(101 + at, at, at) for at in range(300)), mark(500))
    feed.landing = feed.landed_in(commit_bytes=1000)
    assert feed.landing.advance().messages == 302
    assert len(feed.store.changes) == len(committed) > 3
    feed.apply()
    assert len(rows_of(feed)) == 300


def test_a_store_whose_offsets_moved_refuses_a_landing() -> None:
    from cdc_assets.landing.files import NewFiles

    with pytest.raises(TableMoved):
        MemoryStore().commit(NewFiles(), "another", "next", "")


@pytest.mark.parametrize(
    ("value", "reason"), [("abc", '"abc" is not INT'), ("99999999999", "99999999999"), (None, "NOT NULL")]
)
def test_a_row_that_does_not_fit_is_named_by_its_message(value: str | None, reason: str) -> None:
    given: dict[str, Any] = {"data": [{"id": "2", "v": value}]}
    feeds = [TopicFeed.of(Broker(), sink_uri=URI, quarantine=aside) for aside in (False, True)]
    for topic_feed in feeds:
        create = ddl(100, "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` INT NOT NULL)")
        broker(topic_feed).send(1, create, row(110, 1, 7), canal("INSERT", 120, **given), mark(150))
    (held,) = feeds[0].apply().tables
    assert held.reason.startswith('cdc[1] offset 2, column "v": ')
    assert reason in held.reason
    assert "kept in the landing as it came" in held.ways[0]
    assert "file" not in " ".join(held.ways)
    feeds[1].apply()
    (aside,) = feeds[1].lake.quarantined()
    assert aside.reason.startswith("cdc[1] offset 2: ")
    assert (aside.line, rows_of(feeds[1])) == (2, [(1, 7)])


# --- compacted topics -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hours", "expected_warnings"), [(1, 0), (23, 0), (25, 1)])
def test_what_compaction_took_away_is_told_where_deletes_may_have_been_among_it(
    hours: int, expected_warnings: int, feed: TopicFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = broker(feed)
    log.missing_because = lambda topic: "compacted"  # type: ignore[method-assign]
    log.send(0, ddl(100), row(110, 1, 1), row(120, 2, 2), mark(130))
    log.lines = [line for line in log.lines if line["offset"] != 1]
    feed.apply()
    assert feed.listing().warnings == ()  # nothing was landed before that could be gone
    log.send(0, row(140, 3, 3), canal("DELETE", 150, data=[{"id": "2", "v": "2"}]), row(160, 4, 4), mark(170))
    log.lines = [line for line in log.lines if line["offset"] != 5]
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + hours * 3600)
    feed.apply()
    warnings = [
        warning
        for warning in feed.listing().warnings
        if warning.startswith("compaction took messages of the topic cdc away")
    ]
    assert len(warnings) == expected_warnings
    assert rows_of(feed) == [(2, 2), (3, 3), (4, 4)]  # what nobody can know


# --- marks that do not hold -------------------------------------------------------------------------------------------


def test_a_row_that_comes_first_behind_a_mark_beyond_it_holds_its_table(feed: TopicFeed) -> None:
    """Another changefeed, which is ahead, sends its marks to the same topic."""
    log = broker(feed)
    log.send(0, ddl(100), ddl(101, CREATE.replace("`t`", "`u`"), "u"), row(110, 1, 1), row(110, 1, 1, "u"), mark(120))
    feed.apply()
    log.send(0, row(130, 2, 2, "u"), row(190, 3, 3, "u"), mark(200))
    feed.apply()
    log.send(0, row(140, 2, 2), mark(150), row(160, 3, 3))
    reasons_by_table = {str(table.name): table.reason for table in feed.apply().tables}
    assert reasons_by_table["shop.u"] == ""
    assert (
        "its rows at 140 came for the first time after a mark had said that all through 200"
        in reasons_by_table["shop.t"]
    )
    assert "Another changefeed sends its marks" in reasons_by_table["shop.t"]


@pytest.mark.parametrize("partition", [0, 1])
@pytest.mark.parametrize("cut", range(1, 7))
def test_rows_that_come_again_behind_a_mark_beyond_them_hold_no_table(
    cut: int, partition: int, feed: TopicFeed
) -> None:
    log = broker(feed)
    log.send(1, mark(100))
    log.send(0, ddl(100), row(110, 1, 1), row(120, 2, 2), mark(200))
    feed.apply()
    for value in (mark(105), row(110, 1, 1), row(120, 2, 2), mark(150), row(210, 3, 3), mark(220))[:cut]:
        log.send(partition, value)
    assert [table.reason for table in feed.apply().tables if table.reason] == []


def test_a_row_whose_first_message_could_not_be_read_may_come_for_the_first_time(feed: TopicFeed) -> None:
    log = broker(feed)
    log.send(0, ddl(100), row(110, 1, 1), row(120, 2, 2).replace(b'"v":"2"', b'"v":'), mark(200))
    feed.apply()
    log.send(0, mark(105), row(120, 2, 2), mark(210))
    feed.apply()
    assert feed.landing.landed().open_late == ()


# --- schemas that are stated again and again --------------------------------------------------------------------------


def bootstrap(built: int, *columns: str) -> bytes:
    """What TiCDC's Simple protocol says of a table every two minutes."""
    kind = {"mysqlType": "int", "charset": "binary", "collate": "binary", "length": 11}
    stated = [{"name": column, "dataType": kind, "nullable": column != "id", "default": None} for column in columns]
    key = {"name": "PRIMARY", "unique": True, "primary": True, "nullable": False, "columns": ["id"]}
    table = {"schema": "shop", "table": "t", "tableID": 1, "version": 1, "columns": stated, "indexes": [key]}
    held = {"version": 1, "type": "BOOTSTRAP", "commitTs": 0, "buildTs": built, "tableSchema": table}
    return json.dumps(held).encode()


def test_a_schema_that_is_stated_every_two_minutes_is_kept_once_and_is_no_news() -> None:
    feed = TopicFeed.of(Broker(), sink_uri="kafka://127.0.0.1:9092/cdc?protocol=simple")
    for built in range(4):
        for partition in range(2):
            broker(feed).send(partition, bootstrap(built, "id", "v"))
        feed.landing.advance()
        assert [event.kind for event in feed.landing.landed().events] == [EventKind.SCHEMA]
    broker(feed).send(0, bootstrap(5, "id", "v"))
    assert not feed.landed_in().news().more_than_marks
    broker(feed).send(0, bootstrap(6, "id", "v", "w"))
    assert feed.landed_in().news().more_than_marks
