"""What stops a landing or a table until a person decides, and what follows from each decision."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import pytest

from cdc_assets.errors import BadSettings, InputError, MalformedData
from cdc_assets.landing.decisions import DecidedBy, accept_loss, declare_dead, rebuilt, release
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.model.progress import Gap
from cdc_assets.model.schema import TableId
from cdc_assets.operations.rebuild import rebuild
from cdc_assets.pipeline.pipeline import Pipeline
from cdc_assets_tests.formats.test_open_protocol import event, message
from cdc_assets_tests.landing.test_landing import CREATE, URI, Broker, broker, canal, ddl, landed, mark, row, rows_of
from cdc_assets_tests.operations.test_rebuild import MemoryRebuilds
from cdc_assets_tests.topic_feed import TopicFeed

CDC = Partition("cdc", 0)


@pytest.fixture
def feed() -> TopicFeed:
    return TopicFeed.of(Broker(), sink_uri=URI)


def states(feed: TopicFeed) -> dict[str, tuple[str, str]]:
    return {str(table.life.born_as): (table.state.value, table.reason or "") for table in feed.apply().tables}


# --- messages that cannot be read -------------------------------------------------------------------------------------


def test_a_released_message_holds_nothing_any_more(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), row(120, 1, 7), mark(150), b"\x00", row(160, 2, 8), mark(170))
    feed.apply()
    assert feed.fence == 150
    release(feed.landing, CDC, 3, applied=lambda _: 0)
    feed.apply()
    assert feed.fence == 170
    assert rows_of(feed) == [(1, 7), (2, 8)]
    with pytest.raises(BadSettings, match="not a message that holds anything; those are: none"):
        release(feed.landing, CDC, 3, applied=lambda _: 0)


def test_what_still_cannot_be_read_stays_held(feed: TopicFeed) -> None:
    broker(feed).send(0, ddl(100), b"\x00", mark(170))
    feed.landing.advance()
    with pytest.raises(MalformedData, match=r"cdc\[0\] offset 1 still cannot be read"):
        release(feed.landing, CDC, 1, again=True, applied=lambda _: 0)
    assert len(feed.landing.landed().open_bad) == 1


# --- values that lie elsewhere ----------------------------------------------------------------------------------------


def claimed(ts: int, key: int, location: str) -> bytes:
    whole = canal("INSERT", ts, data=[{"id": str(key)}], sqlType={"id": 4}, mysqlType={"id": "int"})
    return whole[:-2] + f',"onlyHandleKey":true,"claimCheckLocation":"{location}"}}}}'.encode()


def with_claims(feed: TopicFeed, claims: Callable[[str], bytes]) -> None:
    feed.landing._more["claims"] = claims


def test_a_value_that_is_gone_holds_its_table_until_it_is_back(feed: TopicFeed) -> None:
    files: dict[str, bytes] = {}

    def claims(location: str) -> bytes:
        if location not in files:
            raise FileNotFoundError(location)
        return files[location]

    with_claims(feed, claims)
    other = ddl(110, CREATE.replace("`t`", "`u`"), "u")
    broker(feed).send(0, ddl(100), other, row(120, 1, 7), claimed(130, 2, "s3://c/a.json"), row(140, 3, 9), mark(170))
    broker(feed).send(0, row(150, 1, 1, "u"), mark(180))
    reached = states(feed)
    assert reached["shop.u"][0] == "applied"
    assert reached["shop.t"][0] == "held"
    assert "s3://c/a.json" in reached["shop.t"][1]
    value = base64.b64encode(row(130, 2, 8)).decode()
    files["s3://c/a.json"] = json.dumps({"key": None, "value": value}).encode()
    release(feed.landing, CDC, 3, again=True, applied=lambda _: 0)
    assert states(feed)["shop.t"][0] == "applied"
    table = next(table for life, table in feed.lake.tables.items() if life.born_as.table == "t")
    assert sorted(table.rows.column("v").to_pylist()) == [7, 8, 9]


def whole(value: bytes) -> bytes:
    return json.dumps({"key": None, "value": base64.b64encode(value).decode()}).encode()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (whole(row(999, 2, 8)), "with the commit-ts 999"),
        (whole(row(130, 2, 8, "u")), "row of shop.u"),
        (whole(row(130, 77, 8)), "a row with another key"),
        (whole(mark(130)), "of the kind resolved"),
        (whole(claimed(130, 2, "s3://c/b.json")), "which names a file itself"),
        (whole(b"xx"), "it is not JSON"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_file_of_another_message_holds_the_table_before_anything_of_it_is_landed(content: bytes, says: str) -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI)
    files = {"a.json": content}
    with_claims(feed, files.__getitem__)
    broker(feed).send(0, ddl(100), row(120, 1, 7), claimed(130, 2, "a.json"), row(140, 3, 9), mark(170))
    state, reason = states(feed)["shop.t"]
    assert (state, rows_of(feed)) == ("held", [(1, 7)])
    assert says in reason
    files["a.json"] = whole(row(130, 2, 8))
    release(feed.landing, CDC, 2, again=True, applied=lambda _: 0)
    assert states(feed)["shop.t"][0] == "applied"
    assert rows_of(feed) == [(1, 7), (2, 8), (3, 9)]


def test_a_table_whose_first_row_lies_elsewhere_is_read_by_its_next_ones() -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI, accept_unordered=True)
    with_claims(feed, lambda _: json.dumps({"key": None, "value": base64.b64encode(row(130, 2, 8)).decode()}).encode())
    broker(feed).send(0, claimed(130, 2, "s3://c/a.json"), mark(135), row(140, 3, 9), mark(170))
    assert states(feed)["shop.t"][0] == "applied"
    assert rows_of(feed) == [(2, 8), (3, 9)]


def test_what_is_read_again_beneath_what_is_applied_holds_its_table_until_it_is_rebuilt(feed: TopicFeed) -> None:
    files: dict[str, bytes] = {}
    with_claims(feed, lambda location: files[location] if location in files else _gone(location))
    broker(feed).send(0, ddl(100), claimed(130, 2, "a"), row(140, 3, 9), mark(170))
    feed.apply()
    release(feed.landing, CDC, 1, applied=lambda _: 0)
    assert states(feed)["shop.t"][0] == "applied"
    assert rows_of(feed) == [(3, 9)]
    broker(feed).send(0, claimed(130, 4, "b"), mark(180))
    feed.apply()
    files["b"] = json.dumps({"key": None, "value": base64.b64encode(row(130, 4, 8)).decode()}).encode()
    assert release(feed.landing, CDC, 4, again=True, applied=lambda _: 180) == (TableId("shop", "t"),)
    state, reason = states(feed)["shop.t"]
    assert state == "held"
    assert "`cdc-assets rebuild shop.t` builds it with them" in reason
    rebuild_it(feed)
    assert states(feed)["shop.t"][0] == "applied"
    assert rows_of(feed) == [(3, 9), (4, 8)]


def test_rows_that_are_landed_hold_nothing_where_others_of_their_message_are_read_again() -> None:
    feed, files = (
        TopicFeed.of(Broker(), sink_uri="kafka://127.0.0.1:9092/cdc?protocol=open-protocol"),
        dict[str, bytes](),
    )
    with_claims(feed, lambda location: files[location] if location in files else _gone(location))
    heads: list[dict[str, object]] = [{"ts": 120}, {"ts": 120, "tbl": "u"}, {"ts": 130, "ccl": "a"}, {"ts": 140}]
    whole = [event({"u": {"id": at, "d": 1.5}}) for at in range(4)]
    sent = message(*zip(heads, (*whole[:2], event({"u": {"id": 2}}), whole[3]), strict=True))
    marks = [message(({"ts": ts, "t": 3}, b"")) for ts in (170, 180)]
    feed.log.lines = lines = [_line(at, *sent_message) for at, sent_message in enumerate((sent, marks[0]))]
    assert {name: state for name, (state, _) in states(feed).items()} == {"test.t": "held", "test.u": "applied"}
    alone = message(({"ts": 130}, whole[2]))
    files["a"] = json.dumps(dict(zip(("key", "value"), map(_coded, alone), strict=True))).encode()
    assert release(feed.landing, CDC, 0, again=True, applied=lambda table: {"t": 120, "u": 170}[table.table]) == ()
    feed.log.lines = [*lines, _line(2, *marks[1])]
    assert {state for state, _ in states(feed).values()} == {"applied"}
    ids = {str(name): sorted(feed.lake.read(name).column("id").to_pylist()) for name in feed.lake.names()}
    assert ids == {"test.t": [0, 2, 3], "test.u": [1]}


def test_rows_without_key_are_landed_once_where_others_of_their_message_are_read_again() -> None:
    feed, files = (
        TopicFeed.of(Broker(), sink_uri="kafka://127.0.0.1:9092/cdc?protocol=open-protocol"),
        dict[str, bytes](),
    )
    with_claims(feed, lambda location: files[location] if location in files else _gone(location))
    heads: list[dict[str, object]] = [
        {"ts": 120}, {"ts": 120, "tbl": "u"}, {"ts": 130, "ccl": "a"}, {"ts": 125, "tbl": "u"}
    ]  # fmt: skip
    keyless = b'{"u":{"id":{"t":8,"f":0,"v":1}}}'
    whole = event({"u": {"id": 2, "d": 1.5}})
    sent = message(
        *zip(heads, (event({"u": {"id": 0, "d": 1.5}}), keyless, event({"u": {"id": 2}}), keyless), strict=True)
    )
    feed.log.lines = lines = [_line(0, *message(({"ts": 110, "t": 3}, b""))), _line(1, *sent)]
    feed.apply()
    alone = message(({"ts": 130}, whole))
    files["a"] = json.dumps(dict(zip(("key", "value"), map(_coded, alone), strict=True))).encode()
    assert release(feed.landing, CDC, 1, again=True, applied=lambda _: 110) == ()
    feed.log.lines = [*lines, _line(2, *message(({"ts": 180, "t": 3}, b"")))]
    assert {state for state, _ in states(feed).values()} == {"applied"}
    ids = {str(name): sorted(feed.lake.read(name).column("id").to_pylist()) for name in feed.lake.names()}
    assert ids == {"test.t": [0, 2], "test.u": [1, 1]}


def _line(offset: int, key: bytes, value: bytes) -> dict[str, object]:
    place = {"topic": "cdc", "partition": 0, "offset": offset, "timestamp_ms": 1}
    return {**place, "key_b64": _coded(key), "value_b64": _coded(value)}


def _coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def rebuild_it(feed: TopicFeed) -> None:
    pipeline = Pipeline(feed.settings, feed.source, feed.lake, feed.ledger, landing=feed.landing)
    rebuild(pipeline, MemoryRebuilds(feed.lake), ["shop.t"], "the rebuild")


def _gone(location: str) -> bytes:
    raise InputError(f"{location} is not there")


# --- losses -----------------------------------------------------------------------------------------------------------


def test_an_accepted_loss_is_passed_over(feed: TopicFeed) -> None:
    log = broker(landed(feed))
    log.send(0, row(160, 2, 8), row(161, 3, 9), mark(170))
    log.lines = [line for line in log.lines if line["offset"] > 4]
    with pytest.raises(InputError) as caught:
        feed.apply()
    accept_loss(feed.landing, OffsetRange(CDC, caught.value.where["offset"], caught.value.where["until"]))
    feed.apply()
    assert feed.fence == 170
    assert rows_of(feed) == [(1, 7)]


def test_only_what_was_accepted_is_passed_over(feed: TopicFeed) -> None:
    log = broker(landed(feed))
    log.send(0, *(row(160 + at, at, at) for at in range(6)), mark(170))
    log.lines = [line for line in log.lines if line["offset"] not in (4, 6, 7)]
    with pytest.raises(InputError, match=r"1 message \(4\.\.4\) is missing"):
        feed.landing.advance()
    accept_loss(feed.landing, OffsetRange(CDC, 4, 5))
    with pytest.raises(InputError, match=r"2 messages \(6\.\.7\) are missing"):
        feed.landing.advance()
    accept_loss(feed.landing, OffsetRange(CDC, 6, 8))
    feed.apply()
    assert rows_of(feed) == [(0, 0), (1, 7), (2, 2), (5, 5)]


def test_a_hole_in_what_a_feed_begins_with_is_accepted_before_anything_is_landed(feed: TopicFeed) -> None:
    log = broker(feed)
    log.send(0, ddl(100), row(120, 1, 7), row(130, 2, 8), mark(170))
    log.lines = [line for line in log.lines if line["offset"] != 1]
    with pytest.raises(InputError, match=r"`cdc-assets landing accept-loss cdc 0 1 1`"):
        feed.apply()
    accept_loss(feed.landing, OffsetRange(CDC, 1, 2), DecidedBy.now("ann"))
    feed.apply()
    assert rows_of(feed) == [(2, 8)]
    assert [decision.who for decision in feed.landing.landed().decisions] == ["ann"]


@pytest.mark.parametrize(("start", "stop", "sentence"), [(3, 5, "offset 4 is there"), (3, 9, "ends at offset 6")])
def test_messages_that_are_there_or_may_come_are_no_loss(feed: TopicFeed, start: int, stop: int, sentence: str) -> None:
    log = broker(landed(feed))
    log.send(0, row(160, 2, 8), row(161, 3, 9), mark(170))
    log.lines = [line for line in log.lines if line["offset"] != 3]
    with pytest.raises(BadSettings, match=sentence):
        accept_loss(feed.landing, OffsetRange(CDC, start, stop))


def test_what_is_landed_is_no_loss(feed: TopicFeed) -> None:
    log = broker(landed(feed))
    log.lines = log.lines[2:]
    with pytest.raises(BadSettings, match=r"is not a loss: cdc\[0\] is landed to 3"):
        accept_loss(feed.landing, OffsetRange(CDC, 1, 2))


# --- topics and partitions --------------------------------------------------------------------------------------------


def test_a_topic_of_the_same_name_that_has_grown_beyond_what_was_landed_is_another_one(feed: TopicFeed) -> None:
    log = broker(feed)
    log.ids["cdc"] = "first"
    landed(feed)
    log.lines, log.ids["cdc"] = [], "second"
    log.send(0, *(row(200 + at, at, at) for at in range(9)), mark(300))
    with pytest.raises(InputError, match="is of the topic second by now, and was landed of first"):
        feed.apply()


def test_a_dead_partition_of_an_archive_holds_nothing_until_something_comes() -> None:
    log = Broker()
    log.proves_ends = False
    feed = TopicFeed.of(log, sink_uri=URI, archive={"uri": "memory://nowhere", "layout": "records"})
    log.send(0, ddl(100), mark(150))
    log.send(1, row(120, 1, 7), mark(130))
    feed.apply()
    assert feed.fence == 130
    declare_dead(feed.landing, Partition("cdc", 1))
    feed.apply()
    assert feed.fence == 150
    log.send(0, mark(190))
    log.send(1, mark(160))
    feed.apply()
    assert feed.fence == 160
    with pytest.raises(BadSettings, match=r"cdc\[7\] is not landed"):
        declare_dead(feed.landing, Partition("cdc", 7))


def test_an_empty_partition_is_known_from_the_first_look(feed: TopicFeed) -> None:
    log = broker(feed)
    log.send(1, mark(90))
    landed(feed)
    log.lines = [line for line in log.lines if line["partition"] == 0]
    assert feed.landing.landed().next[Partition("cdc", 1)] == 1


@pytest.mark.parametrize("kind", ["log", "scd2"])
def test_a_frozen_history_that_late_rows_hold_is_built_with_its_mirror(kind: str) -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI, topics=("*",), history={"shop.t": kind})
    log = broker(feed)
    text = {"sql": "RENAME TABLE `shop`.`t` TO `shop`.`old`", "pkNames": None, "sqlType": None, "mysqlType": None}
    log.send(0, ddl(100), row(120, 1, 7), mark(150), canal("RENAME", 160, table="old", isDdl=True, **text), mark(170))
    log.send(0, row(180, 1, 8, "old"), mark(190))
    assert {state for state, _ in states(feed).values()} == {"applied"}
    log.send(0, row(130, 2, 8), topic="hidden")
    log.send(0, mark(200))
    held = {str(table.life) for table in feed.apply().tables if table.state.value == "held"}
    assert held == {"shop.t@100", f"shop.t@100.{kind}"}
    pipeline = Pipeline(feed.settings, feed.source, feed.lake, feed.ledger, landing=feed.landing)
    rebuild(pipeline, MemoryRebuilds(feed.lake), ["shop.old"], "the rebuild")
    assert {state for state, _ in states(feed).values()} == {"applied"}
    frozen = next(table for life, table in feed.lake.tables.items() if str(life) == f"shop.t@100.{kind}")
    assert sorted(frozen.rows.column("id").to_pylist()) == [1, 2]


@pytest.mark.parametrize("run", [True, False], ids=["a run sees them", "a rebuild sees them"])
@pytest.mark.parametrize("kind", ["log", "scd2"])
def test_a_history_that_is_switched_off_lacks_the_late_rows_of_its_mirror_until_it_is_built_anew(
    kind: str, *, run: bool
) -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI, topics=("*",), history={"shop.t": kind})
    log, given = broker(feed), feed.settings
    log.send(0, ddl(100), row(120, 1, 7), mark(150))
    feed.apply()
    feed.settings = given.with_history({})
    log.send(0, row(130, 2, 8), topic="hidden")
    log.send(0, mark(200))
    feed.landing.advance()
    if run:
        (held,) = feed.apply().tables
        assert (held.state.value, held.through) == ("held", 129)  # what it was at 130 nobody can say

    def gap() -> Gap | None:
        feed.apply()
        return next(state.gap for life, state in feed.lake.applied().items() if life.kind)

    rebuild_it(feed)
    assert states(feed)["shop.t"][0] == "applied"
    lacks = gap()
    assert lacks is not None
    assert (lacks.sound_through, lacks.accepted) == (129, False)
    feed.settings = given
    assert gap() == lacks
    pipeline = Pipeline(feed.settings, feed.source, feed.lake, feed.ledger, landing=feed.landing)
    rebuild(pipeline, MemoryRebuilds(feed.lake), [f"shop.t@100.{kind}"], "the rebuild")
    assert gap() is None
    table = next(table for life, table in feed.lake.tables.items() if life.kind)
    assert sorted(table.rows.column("id").to_pylist()) == [1, 2]


def test_a_topic_that_is_found_late_holds_the_tables_that_are_beyond_it_until_they_are_rebuilt() -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI, topics=("*",))
    log = broker(feed)
    other = ddl(110, CREATE.replace("`t`", "`u`"), "u")
    log.send(0, ddl(100), other, row(120, 1, 7), row(125, 1, 1, "u"), mark(150))
    feed.apply()
    log.send(0, row(130, 2, 8), topic="hidden")
    log.send(0, row(160, 5, 5, "u"), mark(170))
    reached = states(feed)
    assert reached["shop.u"][0] == "applied"
    assert reached["shop.t"][0] == "held"
    assert "hidden[0] offset 0" in reached["shop.t"][1]
    with pytest.raises(BadSettings, match="can be read, and its rows are landed"):
        release(feed.landing, Partition("hidden", 0), 0, applied=lambda _: 0)
    rebuild_it(feed)
    assert states(feed)["shop.t"][0] == "applied"
    table = next(table for life, table in feed.lake.tables.items() if life.born_as.table == "t")
    assert sorted(table.rows.column("id").to_pylist()) == [1, 2]
    (built,) = feed.landing.landed().decisions
    assert (built.what, built.when[:2]) == ("shop.t rebuilt", "20")


def test_what_is_landed_while_a_table_is_rebuilt_keeps_it_held() -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI, topics=("*",))
    log = broker(landed(feed))
    log.send(0, row(130, 2, 8), topic="hidden")
    feed.apply()
    as_of = feed.landing.landed()
    log.send(0, row(131, 3, 8), topic="hidden")
    feed.apply()
    rebuilt(feed.landing, as_of.open_late, as_of, DecidedBy.now())
    assert states(feed)["shop.t"][0] == "held"
    rebuild_it(feed)
    assert rows_of(feed) == [(1, 7), (2, 8), (3, 8)]
    assert states(feed)["shop.t"][0] == "applied"


@pytest.mark.parametrize("table", ["shop.t", "shop.old"])
def test_tables_that_late_rows_of_a_name_hold_are_rebuilt_together(table: str) -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI, topics=("*",))
    log = broker(landed(feed))
    ddl_message = {"isDdl": True, "pkNames": None, "sqlType": None, "mysqlType": None}
    renamed = canal("RENAME", 200, table="old", sql="RENAME TABLE `shop`.`t` TO `shop`.`old`", **ddl_message)
    log.send(0, renamed, ddl(210), row(220, 5, 5), mark(300))
    feed.apply()
    log.send(0, row(130, 2, 8), topic="hidden")  # of the table that is called old by now
    held = {str(table.name): table.state.value for table in feed.apply().tables}
    assert held == {"shop.old": "held", "shop.t": "held"}
    pipeline = Pipeline(feed.settings, feed.source, feed.lake, feed.ledger, landing=feed.landing)
    rebuild(pipeline, MemoryRebuilds(feed.lake), [table], "the rebuild")
    assert {table.state.value for table in feed.apply().tables} == {"applied"}
    assert {str(t.name): sorted(t.rows["id"].to_pylist()) for t in feed.lake.tables.values()} == {
        "shop.old": [1, 2],
        "shop.t": [5],
    }


@pytest.mark.parametrize("in_its_place", [True, False])
def test_late_rows_of_a_dropped_table_hold_what_a_recover_brings_back(in_its_place: bool) -> None:
    feed = TopicFeed.of(Broker(), sink_uri=URI, topics=("*",))
    log = broker(landed(feed))
    dropped = ddl(160, "DROP TABLE `t`").replace(b'"CREATE"', b'"ERASE"')
    back = ddl(300, "FLASHBACK TABLE `t` TO `back`", "back").replace(b'"CREATE"', b'"QUERY"')
    log.send(0, ddl(155, CREATE.replace("`t`", "`u`"), "u"), dropped, mark(170))
    if in_its_place:
        log.send(0, ddl(180), mark(190))
    feed.apply()
    log.send(0, row(130, 2, 8), topic="hidden")
    feed.apply()
    rebuild(feed.pipeline(), MemoryRebuilds(feed.lake), ["shop.u"])
    log.send(0, back, mark(400))
    assert "held" in {table.state.value for table in feed.apply().tables}
    rebuild(feed.pipeline(), MemoryRebuilds(feed.lake), ["shop.t"])
    assert {table.state.value for table in feed.apply().tables} == {"applied"}
    assert sorted(feed.lake.read(TableId("shop", "back"))["id"].to_pylist()) == [1, 2]


@pytest.fixture
def archived() -> TopicFeed:
    log = Broker()
    log.proves_ends = False
    return TopicFeed.of(log, sink_uri=URI, archive={"uri": "memory://nowhere", "layout": "records"})


def test_rows_of_a_partition_whose_first_file_comes_late_hold_the_table_that_is_beyond_them(
    archived: TopicFeed,
) -> None:
    log = broker(landed(archived))
    log.send(1, row(120, 2, 8), mark(150))
    assert states(archived)["shop.t"][0] == "held"
    rebuild_it(archived)
    assert states(archived)["shop.t"][0] == "applied"
    assert rows_of(archived) == [(1, 7), (2, 8)]


def test_a_table_that_comes_with_a_late_topic_is_born_with_all_its_rows() -> None:
    log = Broker()
    log.proves_ends = False
    archive = {"uri": "memory://nowhere", "layout": "records"}
    feed = TopicFeed.of(log, sink_uri=URI, archive=archive, topics=("*",))
    landed(feed)
    log.send(0, ddl(110, CREATE.replace("`t`", "`u`"), "u"), row(120, 2, 8, "u"), mark(150), topic="other")
    assert {name: state for name, (state, _) in states(feed).items()} == {"shop.t": "applied", "shop.u": "applied"}
    table = next(table for life, table in feed.lake.tables.items() if life.born_as.table == "u")
    assert table.rows.column("id").to_pylist() == [2]


def test_rows_of_a_dead_partition_hold_the_table_that_went_past_them(archived: TopicFeed) -> None:
    log = broker(archived)
    log.send(0, ddl(100), mark(150))
    log.send(1, row(120, 1, 7), mark(130))
    archived.apply()
    declare_dead(archived.landing, Partition("cdc", 1))
    archived.apply()
    log.send(1, row(120, 1, 7), mark(131))
    assert states(archived)["shop.t"][0] == "applied"  # what was there before comes again
    declare_dead(archived.landing, Partition("cdc", 1))
    log.send(1, row(140, 2, 8), mark(150))
    assert states(archived)["shop.t"][0] == "held"
    rebuild_it(archived)
    assert rows_of(archived) == [(1, 7), (2, 8)]


def test_a_partition_of_a_broker_is_not_declared_dead(feed: TopicFeed) -> None:
    landed(feed)
    with pytest.raises(BadSettings, match="is on a broker"):
        declare_dead(feed.landing, CDC)


def test_rows_whose_columns_are_not_known_are_reported(feed: TopicFeed) -> None:
    broken = canal("INSERT", 120, data=[{"id": "1"}], mysqlType=None)
    broker(feed).send(0, broken, mark(150))
    feed.apply()
    (problem,) = feed.listing().problems.values()
    assert "shop.t has rows in cdc[0] from offset 0 on, and its columns are not known" in problem
