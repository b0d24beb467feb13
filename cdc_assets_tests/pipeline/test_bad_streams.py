"""Messages of streams that describe themselves, of which one is wrong: what is said, what is kept, what goes on.

Each case is a topic of one table, a good row before and behind the wrong message, and another table beside it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cdc_assets.landing.decisions import release
from cdc_assets.model.offsets import Partition
from cdc_assets.model.schema import TableId
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

ORDERS, ITEMS = TableId("shop", "orders"), TableId("shop", "items")
YQL = """CREATE TABLE `shop/orders` (id Uint32 NOT NULL, v Int8, t Utf8, PRIMARY KEY (id));
CREATE TABLE `shop/items` (id Uint32 NOT NULL, v Int8, PRIMARY KEY (id));"""
_ID, _V = {"type": "int32", "field": "id"}, {"type": "int32", "optional": True, "field": "v"}

Sent = tuple[Any, Any]
"""Key and value; bytes are sent as they are."""


class Case(NamedTuple):
    """A wrong message, and a part of the sentence on it."""

    sent: Sent
    sentence: str


def of_ydb(number: int, **more: Any) -> Sent:
    return None, {"key": [number], "update": {"v": number, **more}, "ts": [1000 + number, 1]}


def of_connector(
    number: int,
    table: str = "orders",
    *,
    after: Mapping[str, Any] | None = None,
    field: Mapping[str, Any] = _V,
    **more: Any,
) -> Sent:
    place = {"snapshot": "false", "lsn": number, "sequence": json.dumps([str(number)] * 2)}
    source = {"connector": "postgresql", "name": "px", "ts_ms": 1000 + number, "db": "d", "schema": "shop", **place}
    block = {"fields": [{"type": "struct", "fields": [_ID, field], "field": "after"}]}
    row = {"id": number, "v": number} if after is None else after
    payload = {"before": None, "after": row, "source": {**source, "table": table, **more}, "op": "c"}
    key = {"schema": {"type": "struct", "fields": [_ID]}, "payload": {"id": number}}
    return key, {"schema": block, "payload": payload}


def line_of(topic: str, offset: int, sent: Sent) -> dict[str, Any]:
    """Return a message as a line of an archive."""
    key, value = [
        None
        if part is None
        else base64.b64encode(part if isinstance(part, bytes) else json.dumps(part).encode()).decode()
        for part in sent
    ]
    place = {"topic": topic, "partition": 0, "offset": offset, "timestamp_ms": 0}
    return {**place, "key_b64": key, "value_b64": value}


def damaged(sent: Sent, old: bytes, new: bytes) -> Sent:
    return sent[0], json.dumps(sent[1]).encode().replace(old, new, 1)


YDB = {
    "none of the shapes": Case((None, {"hello": 1}), "it has none of the members key with update"),
    "cut off": Case((None, b'{"key":[2'), "it is not JSON"),
    "not UTF-8": Case(damaged(of_ydb(2, t="x"), b'"x"', b'"\xff"'), "it is not UTF-8 at byte"),
    "no value": Case((None, None), "it has no value"),
    "of another writer": Case(of_connector(2), 'its connector is "postgresql", not ydb'),
    "a time that is none": Case(
        (None, {"key": [2], "update": {"v": 2}, "ts": [1, 2, 3]}), "a virtual timestamp is two"
    ),
    "two schema changes": Case((None, {"tableChanges": [{}, {}]}), "its tableChanges is not a list of one change"),
    "a document's value of two kinds": Case(
        (None, {"eventSource": "ydb:document-table", "eventName": "INSERT",
                "dynamodb": {"Keys": {"id": {"N": "2", "S": "x"}}, "NewImage": {}}}),
        "an attribute's value has one kind, not N, S",
    ),
}  # fmt: skip
"""Records of which nothing can be said but their table, by their topic."""
YDB_ROWS = {
    "a key of another length": Case((None, {"key": [1, 2], "update": {}}), "its key is [1,2], and the table's (id)"),
    "a number beyond its type": Case(of_ydb(2, v=300), 'column "v" has a value that is not of the type Int8'),
    "a text in the key": Case((None, {"key": ["x"], "update": {}}), 'column "id" has a value that is not of the type'),
    "an unknown column": Case(of_ydb(2, w=1), 'column "w" is not in the table\'s schema; expected id, t, v. Give the'),
    "two changes in one": Case((None, {"key": [2], "update": {"v": 1}, "erase": {}}), "it has update and erase"),
}  # fmt: skip
"""Records that are a change, and no row of the table."""
CONNECTOR = {
    "cut off": Case((None, b"{{{"), "it is not JSON"),
    "not UTF-8": Case(damaged(of_connector(2), b'"px"', b'"\xff"'), "it is not UTF-8 at byte"),
    "of TiCDC": Case(of_connector(2, connector="TiCDC"), 'its connector is "TiCDC"; give the protocol of that writer'),
    "a document": Case(of_connector(2, connector="mongodb", collection="c"), 'its connector is "mongodb", for MongoDB'),
    "of another protocol": Case(
        (None, {"id": 0, "database": "shop", "type": "INSERT", "data": []}), "it is a row alone"
    ),
    "a row without an envelope": Case(({"id": 2}, {"id": 2, "v": 3}), "Take that transformation out"),
    "a key that is no object": Case(("x", of_connector(2)[1]), "its key is no object of columns"),
}
"""Messages of which nothing can be said."""
CONNECTOR_ROWS = {
    "a number beyond its type": Case(
        of_connector(2, after={"id": 2, "v": 1 << 40}), 'column "v" has a value that is not'
    ),
    "no key in the row": Case(of_connector(2, after={"id": None, "v": 2}), "NULL in a column that is int32 NOT NULL"),
    "a value that has no column": Case(
        of_connector(2, after={"id": 2, "w": 1}), 'column "w" is not in the table\'s schema'
    ),
}
"""Messages that are a change, and no row of the table."""


class Stream:
    """A topic with a wrong message, landed and applied."""

    def __init__(self, protocol: str, case: Case, directory: Path, **given: Any) -> None:
        self.log, ydb = MemoryLog([]), protocol == "ydb-json"
        (directory / "s.sql").write_text(YQL)
        topic, other = ("shop/orders/feed", "shop/items/feed") if ydb else ("px.shop.orders", "px.shop.items")
        self.topic = Partition(topic, 0)
        given |= {"schemas": directory / "s.sql", "topics": ["shop/*"]} if ydb else {"topics": ["px.*"]}
        base = "shop/orders/feed" if ydb else "px"
        self.feed = TopicFeed.of(self.log, sink_uri=f"kafka://127.0.0.1:9092/{base}?protocol={protocol}", **given)
        for number in (1, 3, 4):
            self.put(topic, of_ydb(number) if ydb else of_connector(number))
            self.put(other, of_ydb(number) if ydb else of_connector(number, "items"))
            if number == 1:
                self.put(topic, case.sent)

    def put(self, topic: str, sent: Sent) -> None:
        offset = sum(line["topic"] == topic for line in self.log.lines)
        self.log.lines.append(line_of(topic, offset, sent))

    def apply(self) -> list[str]:
        """Apply what is there; return every sentence on what is wrong."""
        outcome = self.feed.apply()
        assert not outcome.complete
        listing = self.feed.listing()
        held = [table.reason for table in outcome.tables if table.reason]
        return [*held, *listing.problems.values(), *listing.warnings]

    def ids(self, table: TableId) -> list[int]:
        read = self.feed.lake.read(table)
        return sorted(row["id"] for row in read.to_pylist())


@pytest.mark.parametrize("case", YDB)
def test_a_record_of_ydb_that_is_none_holds_its_table_alone(case: str, tmp_path: Path) -> None:
    stream = Stream("ydb-json", YDB[case], tmp_path)
    reasons = "\n".join(stream.apply())
    assert "shop/orders/feed[0] offset 1 cannot be read: " in reasons
    assert YDB[case].sentence in reasons
    assert (stream.ids(ORDERS), stream.ids(ITEMS)) == ([1], [1, 3, 4])
    (kept,) = stream.feed.landing.landed().open_bad
    assert (kept.partition, kept.offset) == (stream.topic, 1)
    release(stream.feed.landing, stream.topic, 1, applied=lambda _: 0)
    assert stream.feed.apply().complete
    assert stream.ids(ORDERS) == [1, 3, 4]


@pytest.mark.parametrize("case", YDB)
def test_with_quarantine_its_table_goes_on_and_says_so(case: str, tmp_path: Path) -> None:
    stream = Stream("ydb-json", YDB[case], tmp_path, quarantine=True)
    reasons = "\n".join(stream.apply())
    assert "shop/orders/feed[0] offset 1 cannot be read: " in reasons
    assert (stream.ids(ORDERS), stream.ids(ITEMS)) == ([1, 3, 4], [1, 3, 4])
    assert len(stream.feed.landing.landed().open_bad) == 1


@pytest.mark.parametrize("case", CONNECTOR)
def test_a_message_of_a_connector_that_names_no_table_stops_all_before_it(case: str, tmp_path: Path) -> None:
    stream = Stream("debezium-json", CONNECTOR[case], tmp_path)
    reasons = "\n".join(stream.apply())
    assert "px.shop.orders[0] offset 1 cannot be read: " in reasons
    assert CONNECTOR[case].sentence in reasons
    assert stream.ids(ORDERS) == [1]
    release(stream.feed.landing, stream.topic, 1, applied=lambda _: 0)
    assert stream.feed.apply().complete
    assert (stream.ids(ORDERS), stream.ids(ITEMS)) == ([1, 3, 4], [1, 3, 4])


_ROWS = [*(("ydb-json", name) for name in YDB_ROWS), *(("debezium-json", name) for name in CONNECTOR_ROWS)]


@pytest.mark.parametrize(("protocol", "case"), _ROWS)
def test_a_change_that_is_no_row_of_its_table_holds_it_or_is_set_aside(
    protocol: str, case: str, tmp_path: Path
) -> None:
    given = (YDB_ROWS if protocol == "ydb-json" else CONNECTOR_ROWS)[case]
    stream = Stream(protocol, given, tmp_path)
    reasons = "\n".join(stream.apply())
    assert f"{stream.topic} offset 1" in reasons
    assert given.sentence in reasons
    assert (stream.ids(ORDERS), stream.ids(ITEMS)) == ([], [1, 3, 4])
    aside = Stream(protocol, given, tmp_path, quarantine=True)
    assert [table.quarantined for table in aside.feed.apply().tables if table.quarantined] == [1]
    assert aside.ids(ORDERS) == [1, 3, 4]
