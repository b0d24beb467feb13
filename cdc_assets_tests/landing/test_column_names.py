"""Columns, and keys, that are called as members of the messages which bring them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.model.schema import TableId
from cdc_assets_tests.alterations import Picks
from cdc_assets_tests.avro_writer import TEXT, AvroBroker
from cdc_assets_tests.landing.test_generated_topics import faults
from cdc_assets_tests.message_writer import MessageStyle, marks
from cdc_assets_tests.source import Col, Rows, Source, Table
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

SHOP_T = TableId("shop", "t")
NAMES = (
    *("payload", "schema", "before", "after", "op", "source", "key", "value", "data", "old", "type", "ts", "id"),
    *("commitTs", "commit_ts", "table", "database", "pkNames", "u", "d", "p", "t", "q", "c", "sql", "ddl", "query"),
    *("update", "erase", "reset", "newImage", "oldImage", "tableSchema", "name", "line", "message", "_tidb"),
)
KEYS = [
    ("payload",),
    ("schema", "payload"),
    ("before", "after"),
    ("op", "source"),
    ("u", "d"),
    ("data", "old"),
    ("table",),
]


@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
@pytest.mark.parametrize("protocol", ["canal-json", "open-protocol", "craft", "debezium", "simple"])
def test_columns_may_be_called_as_members_of_messages(protocol: str, partial: bool) -> None:
    source = Source()
    source.create_database("shop")
    for number, key in enumerate(KEYS):
        columns = tuple(Col(name, "VARCHAR", 9, nullable=name not in key) for name in NAMES)
        table = Table(TableId("shop", f"t{number}"), source.number(), columns, key, clustered=True)
        source.create(table)
        rows: Rows = {(value,) * len(key): dict.fromkeys(NAMES, value) for value in "abc"}
        source.commit({table.name: rows})
        changed = {**rows[("b",) * len(key)], **{name: "z" for name in NAMES if name not in key}}
        source.commit({table.name: {("b",) * len(key): changed, ("d",) * len(key): dict.fromkeys(NAMES, "d")}})
    style = MessageStyle(
        protocol, partial=partial and protocol in ("canal-json", "open-protocol"), keys_of_deletes=partial
    )
    feed = TopicFeed.of(log := MemoryLog([]), sink_uri=style.uri)
    for _ in marks(source, style, Picks(b""), log):
        pass
    assert list(faults(feed, source.contents(source.log[-1].ts))) == []


@pytest.mark.parametrize("key", KEYS)
def test_columns_may_be_called_as_members_of_avro_s_envelope(key: tuple[str, ...]) -> None:
    broker, names = AvroBroker(), [name for name in NAMES if not name.startswith("_")]
    table = broker.table("shop", "t", dict.fromkeys(names, TEXT), key=key)
    for ts, value in enumerate("abc", 100):
        broker.send(0, table.row(ts, **dict.fromkeys(names, value)))
    broker.send(0, table.row(110, "u", **{name: "b" if name in key else "z" for name in names}))
    broker.send(0, table.delete(**dict.fromkeys(key, "c")))
    feed = TopicFeed.of(broker, sink_uri="kafka://127.0.0.1:9092/cdc?protocol=avro&enable-tidb-extension=true")
    feed.landing = feed.landed_in(registry=broker.registry.get)
    assert [table.reason for table in feed.apply().tables if table.state.stopped] == []
    rows = feed.lake.read(SHOP_T).select(names).to_pylist()
    assert sorted(rows, key=str) == sorted(
        [dict.fromkeys(names, "a"), {name: "b" if name in key else "z" for name in names}], key=str
    )


@pytest.mark.parametrize("form", ["own", "wrapped key", "bare key", "no key"])
@pytest.mark.parametrize("key", KEYS)
def test_columns_may_be_called_as_members_of_ydb_s_records(key: tuple[str, ...], form: str, tmp_path: Path) -> None:
    names, log = [*dict.fromkeys((*key, "v", "update", "erase", "key", "ts", "resolved", "payload"))], MemoryLog([])
    texts = tmp_path / "schemas.sql"
    columns = ", ".join(f"`{name}` Utf8{' NOT NULL' if name in key else ''}" for name in names)
    texts.write_text(f"CREATE TABLE `shop/t` ({columns}, PRIMARY KEY ({', '.join(f'`{name}`' for name in key)}));")
    changes: list[tuple[str, str, str | None]] = [("c", "a", "1"), ("c", "b", "2"), ("u", "b", "3"), ("d", "a", None)]
    for step, (op, value, other) in enumerate(changes, 1):
        own: dict[str, Any] = dict.fromkeys(key, value)
        row = None if other is None else {name: own.get(name, other) for name in names}
        source = {"connector": "ydb", "version": "1.0.0", "ts_ms": 1, "step": step, "txId": 7, "snapshot": False}
        record: Any = {"payload": {"op": op, "source": source, "before": None, "after": row}}
        if form == "own":
            kept = {name: text for name, text in (row or {}).items() if name not in key}
            record = {"key": [*own.values()], "ts": [step, 1], **({"update": kept} if row else {"erase": {}})}
        named = {"wrapped key": {"payload": own}, "bare key": own}.get(form)
        if form == "no key" and row is None:
            record["payload"]["before"] = dict.fromkeys(names, "1") | own
        coded = [part and base64.b64encode(json.dumps(part).encode()).decode() for part in (named, record)]
        place = {"topic": "shop/t/updates", "partition": 0, "offset": step - 1, "timestamp_ms": 0, "headers": []}
        log.lines.append({**place, "key_b64": coded[0], "value_b64": coded[1]})
    uri = "kafka://127.0.0.1:2135/shop/t/updates?protocol=ydb-json"
    feed = TopicFeed.of(log, sink_uri=uri, name="ydb", schemas=texts)
    assert [table.reason for table in feed.apply().tables if table.state.stopped] == []
    (row,) = feed.lake.read(SHOP_T).select(names).to_pylist()
    assert row == {name: "b" if name in key else "3" for name in names}
