"""Statements that rename several tables, as connectors for MySQL send them: a record a rename, all at one place."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

NAMES = {"a": "Kurzlebig", "b": "Nachz\u00fcgler", "tmp": "swap_tmp"}


def source(place: int, table: str) -> dict[str, Any]:
    return {
        "version": "3.0", "connector": "mariadb", "name": "px", "ts_ms": 1000 + place, "snapshot": "false",
        "db": "d", "table": table, "file": "bin.000001", "pos": place, "row": 0,
    }  # fmt: skip


def ddl(place: int, text: str, table: str, changed: Sequence[str]) -> tuple[str, dict[str, Any]]:
    changes = [{"type": "ALTER", "id": f'"d"."{name}"', "table": {}} for name in changed]
    held = {"source": source(place, table), "databaseName": "d", "ddl": text, "tableChanges": changes, "ts_ms": 1}
    return "px", held


def row(place: int, table: str, op: str, n: int, v: int) -> tuple[str, dict[str, Any]]:
    sides = {"before": None, "after": {"n": n, "v": v}}
    return f"px.d.{table}", {**sides, "source": source(place, table), "op": op, "ts_ms": 1, "key": {"n": n}}


def send(log: MemoryLog, messages: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    for topic, one in messages:
        key, value = one.get("key"), {name: part for name, part in one.items() if name != "key"}
        texts = [
            None if held is None else base64.b64encode(json.dumps(held).encode()).decode() for held in (key, value)
        ]
        offset = sum(line["topic"] == topic for line in log.lines)
        line = {"topic": topic, "partition": 0, "offset": offset, "timestamp_ms": 0}
        log.lines.append({**line, "key_b64": texts[0], "value_b64": texts[1]})


def history(a: str, b: str, renames: Sequence[tuple[str, dict[str, Any]]]) -> list[Any]:
    made = [
        ddl(place, f"CREATE TABLE `{name}` (n INT PRIMARY KEY, v INT)", name, [name])
        for place, name in ((1, a), (2, b))
    ]
    rows = [row(3, a, "c", 1, 10), row(4, b, "c", 2, 20)]
    return [*made, *rows, *renames, row(9, a, "u", 2, 21), row(10, b, "u", 1, 11)]


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def in_records(a: str, b: str, tmp: str) -> list[tuple[str, dict[str, Any]]]:
    """As MariaDB's and MySQL's connectors send the swap: the name in between has no columns at its end."""
    together = ",".join(sorted((a, b, tmp)))
    pairs: Sequence[tuple[str, str, list[str]]] = ((a, tmp, []), (b, a, [a]), (tmp, b, [b]))
    return [ddl(5, f"RENAME TABLE {quoted(old)} TO {quoted(new)}", together, changed) for old, new, changed in pairs]


def in_one_record(a: str, b: str, tmp: str) -> list[tuple[str, dict[str, Any]]]:
    text = "RENAME TABLE " + ", ".join(f"{quoted(old)} TO {quoted(new)}" for old, new in ((a, tmp), (b, a), (tmp, b)))
    return [ddl(5, text, ",".join((a, b, tmp)), [])]


def tables(feed: TopicFeed) -> dict[str, list[tuple[int, int]]]:
    return {
        str(name): sorted((one["n"], one["v"]) for one in feed.lake.read(name).to_pylist())
        for name in feed.lake.names()
    }


@pytest.mark.parametrize(
    ("records", "names"),
    [
        (in_records, ("a", "b", "tmp")),
        (in_records, tuple(NAMES.values())),
        (in_records, ("x,y", "z.w", "q`r")),
        (in_one_record, ("x,y", "z.w", "q`r")),
        pytest.param(in_one_record, ("a", "b", "tmp"), marks=pytest.mark.soak),
        pytest.param(in_one_record, tuple(NAMES.values()), marks=pytest.mark.soak),
    ],
)
def test_tables_that_exchange_their_names_in_one_statement_keep_their_rows(names: Any, records: Any) -> None:
    a, b, tmp = names
    messages = history(a, b, records(a, b, tmp))
    expected = {f"d.{a}": [(2, 21)], f"d.{b}": [(1, 11)]}
    for cut in range(1, len(messages) + 1):
        log = MemoryLog([])
        feed = TopicFeed.of(log, sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c")
        for part in (messages[:cut], messages[cut:], messages[cut:]):  # what comes again changes nothing
            if part:
                send(log, part)
                feed.apply()
        assert [one.reason for one in feed.apply().tables if one.reason] == [], cut
        assert tables(feed) == expected, cut
