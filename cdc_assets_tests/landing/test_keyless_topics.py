"""Tables without a key in protocols by commit-ts: what comes again counts once, wherever the fence and landings cut."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_assets.errors import MetadataMissing
from cdc_assets.landing.decisions import release
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId
from cdc_assets_tests import craft_writer
from cdc_assets_tests.landing.test_landing import URI, Broker, canal, ddl, mark
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

SQL = "CREATE TABLE `t` (`v` INT)"
CREATE = ddl(10, SQL)
CRAFT = "kafka://127.0.0.1:9092/cdc?protocol=craft"


def row(ts: int, value: int, table: str = "t") -> bytes:
    types: Any = {"pkNames": None, "sqlType": {"v": 4}, "mysqlType": {"v": "int"}}
    return canal("INSERT", ts, table=table, data=[{"v": str(value)}], **types)


def together(*rows: tuple[int, int]) -> bytes:
    """A message of Craft with rows of (commit-ts, value)."""
    return craft_writer.message(
        [craft_writer.Row(ts, "shop", "t", [craft_writer.Cell("v", 3, 64, value)], None, -1) for ts, value in rows]
    )


def values(feed: TopicFeed) -> list[int]:
    return sorted(feed.lake.read(TableId("shop", "t")).column("v").to_pylist())


def findings(feed: TopicFeed, broker: Broker, *sent: bytes) -> set[str]:
    broker.send(0, *sent)
    return {finding.rule for finding in feed.apply().findings}


@pytest.fixture
def broker() -> Broker:
    return Broker()


def elsewhere(ts: int, name: str) -> bytes:
    return row(ts, 1)[:-2] + f',"onlyHandleKey":true,"claimCheckLocation":"{name}"}}}}'.encode()


@pytest.mark.parametrize(
    ("sent", "counts"),
    [
        ((elsewhere(20, "a"), mark(25), elsewhere(20, "b")), 1),
        ((row(20, 1), mark(25), elsewhere(20, "b")), 1),
        ((elsewhere(20, "a"), row(30, 2), elsewhere(20, "b"), row(30, 2)), 1),
        ((elsewhere(20, "a"), elsewhere(20, "b")), 2),
        ((row(20, 1), elsewhere(20, "b")), 2),
    ],
)
def test_released_rows_count_as_often_as_they_would_have_without_a_hold(
    broker: Broker, sent: tuple[bytes, ...], counts: int
) -> None:
    """What another delivery brings again is the same row, what is in one is another."""
    feed, files = TopicFeed.of(broker, sink_uri=URI), dict[str, bytes]()

    def claims(name: str) -> bytes:
        if name not in files:
            raise FileNotFoundError(name)
        return files[name]

    feed.landing._more["claims"] = claims
    broker.send(0, CREATE, mark(15), *sent, mark(40))
    feed.apply()
    file = json.dumps({"key": None, "value": base64.b64encode(row(20, 1)).decode()}).encode()
    files |= {"a": file, "b": file}
    for held in feed.landing.landed().open_bad:
        release(feed.landing, held.partition, held.offset, again=True, applied=lambda _: 0)
    feed.apply()
    assert values(feed).count(1) == counts


AGAIN_BEYOND_THE_FENCE = (CREATE, mark(15), row(20, 1), row(30, 2), mark(17), row(20, 1), mark(25))


@pytest.mark.parametrize("landed", [1, 2, 3, 7])
def test_rows_beyond_the_fence_show_that_a_delivery_begins(broker: Broker, landed: int) -> None:
    feed = TopicFeed.of(broker, sink_uri=URI)
    for at in range(0, len(AGAIN_BEYOND_THE_FENCE), landed):
        broker.send(0, *AGAIN_BEYOND_THE_FENCE[at : at + landed])
        with suppress(MetadataMissing):
            feed.apply()
    assert values(feed) == [1]
    broker.send(0, row(30, 2), mark(35))
    feed.apply()
    assert values(feed) == [1, 2]


@pytest.mark.parametrize("landed", [1, 3, 9])
def test_a_delivery_that_begins_below_a_mark_goes_on_above_it(broker: Broker, landed: int) -> None:
    feed, sent = TopicFeed.of(broker, sink_uri=URI), (row(20, 1), row(40, 2), mark(25), row(20, 1), row(40, 2))
    every = (CREATE, mark(15), *sent, row(50, 3), mark(60))
    for at in range(0, len(every), landed):
        broker.send(0, *every[at : at + landed])
        with suppress(MetadataMissing):
            assert "rows-run-again" not in {finding.rule for finding in feed.apply().findings}
    assert values(feed) == [1, 2, 3]


def test_a_last_row_that_comes_again_behind_a_greater_mark_is_a_finding(broker: Broker) -> None:
    """It may be another row of its transaction: nothing says that a sender began anew."""
    feed = TopicFeed.of(broker, sink_uri=URI)
    assert "rows-run-again" not in findings(feed, broker, CREATE, mark(15), row(20, 1), mark(17))
    assert "rows-run-again" in findings(feed, broker, row(20, 1), mark(25))
    assert values(feed) == [1, 1]


@pytest.mark.parametrize(
    "sent",
    [
        [together((20, 1), (30, 2), (20, 1)), together((30, 2))],
        [together((20, 1), (30, 2)), together((20, 1), (30, 2))],
        [together((20, 1)), craft_writer.resolved(25), together((20, 1), (30, 2))],
        [together((20, 1), (30, 2)), craft_writer.resolved(25), together((20, 1), (30, 2))],
    ],
    ids=["within one message", "in two", "a mark between", "and rows above it"],
)
def test_messages_of_several_rows_begin_deliveries_too(broker: Broker, sent: list[bytes]) -> None:
    feed = TopicFeed.of(broker, sink_uri=CRAFT)
    create = craft_writer.ddl(10, "shop", "t", 3, SQL)
    rules = findings(feed, broker, create, craft_writer.resolved(15), *sent, craft_writer.resolved(40))
    assert values(feed) == [1, 2]
    assert "rows-run-again" not in rules


def test_tables_without_rows_above_the_newest_mark_are_not_kept_track_of(broker: Broker) -> None:
    feed = TopicFeed.of(broker, sink_uri=URI)
    broker.send(0, mark(15), *(row(20 + at % 7, 1, f"t{at}") for at in range(50)))
    feed.landing.advance()
    assert len(feed.landing.landed().deliveries) == 50
    broker.send(0, mark(24))
    broker.send(0, row(30, 1, "t0"))
    feed.landing.advance()
    assert {table.table for _, table in feed.landing.landed().deliveries} == {
        "t0", *(f"t{at}" for at in range(50) if 20 + at % 7 > 24)
    }  # fmt: skip
    assert {place for place, _ in feed.landing.landed().deliveries} == {Partition("cdc", 0)}


@settings(max_examples=25)
@given(st.data())
def test_whatever_is_sent_again_counts_once(data: st.DataObject) -> None:
    """A sender goes on from anywhere at or above its newest mark, two transactions back or behind a mark of its own."""
    transactions = [
        data.draw(st.lists(st.integers(1, 2), min_size=1, max_size=3)) for _ in range(data.draw(st.integers(1, 6)))
    ]
    times = [20 + 10 * at for at in range(len(transactions))]
    sent, at, newest = [CREATE, mark(15)], 0, 15
    for _ in range(data.draw(st.integers(0, 4)) + 1):
        last = at
        while last < len(times) and data.draw(st.booleans()):
            sent += [row(times[last], value) for value in transactions[last]]
            last += 1
            if data.draw(st.booleans()):
                newest = max(newest, data.draw(st.sampled_from(times[:last])) - data.draw(st.integers(0, 3)))
                sent.append(mark(newest))
        least = sum(ts <= newest for ts in times)
        at = data.draw(st.integers(0, min(least, last)))
        if at > last - 2:
            sent.append(mark(newest))
    for ts, transaction in list(zip(times, transactions, strict=True))[at:]:
        sent += [row(ts, value) for value in transaction]
    broker, done = Broker(), 0
    feed = TopicFeed.of(broker, sink_uri=URI)
    for cut in sorted({*data.draw(st.lists(st.integers(1, len(sent)), max_size=4)), len(sent)}):
        broker.send(0, *sent[done:cut])
        done = cut
        with suppress(MetadataMissing):
            outcome = feed.apply()
            fence = feed.fence
            assert [table.reason for table in outcome.tables if table.reason] == []
            if outcome.tables:
                expected = [
                    value for ts, some in zip(times, transactions, strict=True) for value in some if ts <= fence
                ]
                assert values(feed) == sorted(expected)


# --- updates without the row before them ------------------------------------------------------------------------------


def framed(*parts: object) -> bytes:
    pieces = [json.dumps(part).encode() for part in parts]
    return b"".join(len(piece).to_bytes(8, "big") + piece for piece in pieces)


def open_message(ts: int, kind: int, value: object = None, table: str = "t") -> tuple[bytes, bytes]:
    names = {} if kind == 3 else {"scm": "shop", "tbl": table}
    return (1).to_bytes(8, "big") + framed({"ts": ts, **names, "t": kind}), bytes(8) if value is None else framed(value)


def open_row(ts: int, value: int) -> tuple[bytes, bytes]:
    return open_message(ts, 1, {"u": {"v": {"t": 3, "f": 65, "v": value}}})


def debezium(ts: int, **payload: Any) -> tuple[bytes, bytes]:
    table = "" if payload.get("op") == "m" else "t"
    source = {"connector": "TiCDC", "db": "shop" if table else "", "table": table, "commit_ts": ts}
    return b'{"payload":{}}', json.dumps({"payload": {"source": source, **payload}}).encode()


WITHOUT_OLD = {
    "debezium": [
        debezium(10, databaseName="shop", ddl=SQL, tableChanges=[]),
        debezium(20, op="c", before=None, after={"v": 1}),
        debezium(30, op="u", before=None, after={"v": 2}),
        debezium(40, op="m"),
    ],
    "open-protocol": [
        open_message(10, 2, {"q": SQL, "t": 3}), open_row(20, 1), open_row(30, 2), open_message(40, 3),
    ],
}  # fmt: skip


@pytest.mark.parametrize("protocol", WITHOUT_OLD)
def test_a_changed_row_never_counts_beside_the_row_that_it_was(protocol: str, tmp_path: Path) -> None:
    (tmp_path / "feed.toml").write_text(f"[sink.{protocol.partition('-')[0]}]\noutput-old-value = false\n")
    log = MemoryLog()
    for offset, message in enumerate(WITHOUT_OLD[protocol]):
        key, value = (base64.b64encode(part).decode() for part in message)
        place = {"topic": "cdc", "partition": 0, "offset": offset, "timestamp_ms": 1}
        log.lines.append({**place, "key_b64": key, "value_b64": value})
    uri = f"kafka://127.0.0.1:9092/cdc?protocol={protocol}&enable-tidb-extension=true"
    feed = TopicFeed.of(log, sink_uri=uri, name="t", changefeed_config=tmp_path / "feed.toml")
    (reason,) = [table.reason for table in feed.apply().tables if table.state.stopped]
    assert "its updates do not have the row before them" in reason
    assert values(feed) == []
