"""What BOOTSTRAP messages of Simple show of columns that an ALTER changed which no message has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdc_assets_tests.landing.test_landing import Broker, broker
from cdc_assets_tests.topic_feed import TopicFeed

URI = "kafka://127.0.0.1:9092/cdc?protocol=simple"
FIRST = {"id": "int", "e": ("a", "b")}


@pytest.fixture
def feed() -> TopicFeed:
    """A table that was altered last at 90, with a row at 110, applied through 111."""
    feed = TopicFeed.of(Broker(), sink_uri=URI)
    broker(feed).send(0, bootstrap(90, FIRST), row(110, id="1", e="1"), mark(111))
    feed.apply()
    return feed


def message(kind: str, ts: int, **more: Any) -> bytes:
    return json.dumps({"version": 1, "type": kind, "commitTs": ts, "buildTs": 1, **more}).replace(" ", "").encode()


def row(ts: int, **data: str) -> bytes:
    return message("INSERT", ts, database="s", table="t", tableID=1, schemaVersion=1, data=data)


def mark(ts: int) -> bytes:
    return message("WATERMARK", ts)


def schema(version: int, columns: dict[str, Any]) -> dict[str, Any]:
    """A table; columns with their type, or the members of an ENUM."""
    listed = [
        {
            "name": name,
            "dataType": {"mysqlType": "enum", "length": 1, "elements": kind}
            if isinstance(kind, tuple)
            else {"mysqlType": kind, "length": 11},
            "nullable": name != "id",
            "default": None,
        }
        for name, kind in columns.items()
    ]
    key = {"name": "primary", "unique": True, "primary": True, "nullable": False, "columns": ["id"]}
    return {"schema": "s", "table": "t", "tableID": 1, "version": version, "columns": listed, "indexes": [key]}


def bootstrap(version: int, columns: dict[str, Any]) -> bytes:
    return message("BOOTSTRAP", 0, tableSchema=schema(version, columns))


def rows_of(feed: TopicFeed) -> list[tuple[Any, ...]]:
    (name,) = feed.lake.names()
    return sorted(tuple(row.values())[:-1] for row in feed.lake.read(name).to_pylist())


@pytest.mark.parametrize(
    ("columns", "data", "expected"),
    [
        ({"id": "int", "e": ("b", "a")}, {"e": "1"}, [(1, "a"), (2, "b")]),
        ({**FIRST, "w": "int"}, {"e": "1", "w": "7"}, [(1, "a", None), (2, "a", 7)]),
        ({"id": "int"}, {}, [(1,), (2,)]),
        ({"e": ("a", "b"), "id": "int"}, {"e": "1"}, [(1, "a"), (2, "a")]),
    ],
)
def test_columns_that_a_bootstrap_shows_are_followed_where_no_ddl_says_so(
    columns: dict[str, Any], data: dict[str, str], expected: list[Any], feed: TopicFeed
) -> None:
    broker(feed).send(0, bootstrap(115, columns), row(130, id="2", **data), mark(140))
    (table,) = feed.apply().tables
    assert (table.reason, rows_of(feed)) == ("", expected)


def test_columns_that_a_ddl_brought_are_its_own(feed: TopicFeed) -> None:
    columns = {**FIRST, "w": "int"}
    alter = message("ALTER", 120, sql="ALTER/**/TABLE/**/t/**/ADD/**/w/**/INT", tableSchema=schema(119, columns))
    broker(feed).send(0, row(119, id="2", e="2"), alter, bootstrap(119, columns), row(130, id="3", e="1", w="7"))
    broker(feed).send(0, mark(140))
    (table,) = feed.apply().tables
    assert (table.reason, rows_of(feed)) == ("", [(1, "a", None), (2, "b", None), (3, "a", 7)])


def test_what_rows_were_applied_before_it_was_shown_holds_the_table(feed: TopicFeed) -> None:
    broker(feed).send(0, row(130, id="2", e="1"), mark(131))
    feed.apply()
    broker(feed).send(0, bootstrap(115, {"id": "int", "e": ("b", "a")}), row(135, id="3", e="1"), mark(140))
    (table,) = feed.apply().tables
    assert "hidden, as by an event filter" in table.reason
    assert rows_of(feed) == [(1, "a"), (2, "a")]
