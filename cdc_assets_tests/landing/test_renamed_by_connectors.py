"""Statements that rename several tables, as connectors for MySQL send them: a record a rename, all at one place."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cdc_assets.model.releases import Release
from cdc_assets.model.schema import TableId
from cdc_assets.model.table_history import Held
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
    for topic, message in messages:
        key, value = message.get("key"), {name: part for name, part in message.items() if name != "key"}
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
    last = [(2, 21), (1, 11)] if renames else [(1, 11), (2, 21)]
    return [*made, *rows, *renames, row(9, a, "u", *last[0]), row(10, b, "u", *last[1])]


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
        str(name): sorted((lake_row["n"], lake_row["v"]) for lake_row in feed.lake.read(name).to_pylist())
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
        assert [table.reason for table in feed.apply().tables if table.reason] == [], cut
        assert tables(feed) == expected, cut


def applied(*parts: Sequence[tuple[str, Mapping[str, Any]]]) -> TopicFeed:
    """Return a feed to which messages were applied part by part, with no table held."""
    log = MemoryLog([])
    feed = TopicFeed.of(log, sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c")
    for part in parts:
        send(log, part)
        assert [table.reason for table in feed.apply().tables if table.reason] == []
    return feed


@pytest.mark.parametrize("cut", [3, 4, 5])
def test_a_table_that_moves_in_hops_of_one_statement_ends_under_its_last_name(cut: int) -> None:
    messages = [
        ddl(1, "CREATE TABLE a (n INT PRIMARY KEY, v INT)", "a", ["a"]),
        row(2, "a", "c", 1, 10),
        ddl(5, "RENAME TABLE `a` TO `tmp`", "a,b,tmp", []),
        ddl(5, "RENAME TABLE `tmp` TO `b`", "a,b,tmp", ["b"]),
        row(6, "b", "c", 2, 20),
    ]
    assert tables(applied(messages[:cut], messages[cut:])) == {"d.b": [(1, 10), (2, 20)]}


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE a RENAME AS b, ADD q INT DEFAULT 3",
        "ALTER TABLE a ADD COLUMN q INT DEFAULT 3, RENAME TO d.b",
        "ALTER TABLE `a` RENAME `b`, ADD (q INT DEFAULT 3), COMMENT 'x, y'",
    ],
)
def test_a_statement_that_renames_a_table_and_alters_it_does_both(text: str) -> None:
    after = row(6, "b", "c", 2, 20)
    after[1]["after"]["q"] = 4
    feed = applied(
        [
            ddl(1, "CREATE TABLE a (n INT PRIMARY KEY, v INT)", "a", ["a"]),
            row(2, "a", "c", 1, 10),
            ddl(5, text, "a,b", ["b"]),
            after,
        ]
    )
    assert tables(feed) == {"d.b": [(1, 10), (2, 20)]}
    assert sorted(lake_row["q"] for lake_row in feed.lake.read(TableId("d", "b")).to_pylist()) == [3, 4]


def test_rows_of_create_table_as_select_stand_where_their_statement_does_and_follow_it() -> None:
    feed = applied(
        [
            ddl(5, "CREATE TABLE `a` (\n  `n` int(11) NOT NULL,\n  `v` int,\n  PRIMARY KEY (`n`)\n)", "a", ["a"]),
            row(5, "a", "c", 1, 10),
            row(6, "a", "c", 2, 20),
        ]
    )
    assert tables(feed) == {"d.a": [(1, 10), (2, 20)]}


def test_create_or_replace_is_a_ddl_of_the_table_in_its_text_which_the_connector_does_not_name() -> None:
    feed = applied(
        [
            ddl(1, "CREATE TABLE a (n INT PRIMARY KEY, v INT)", "a", ["a"]),
            row(2, "a", "c", 1, 10),
            ddl(5, "create or replace table a (n INT PRIMARY KEY, v INT)", "", []),
            row(6, "a", "c", 2, 20),
        ]
    )
    assert tables(feed) == {"d.a": [(2, 20)]}


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE IF NOT EXISTS a (n INT PRIMARY KEY)",
        "create temporary table x (y int)",
        "CREATE OR REPLACE TEMPORARY TABLE a (n INT PRIMARY KEY, v INT)",
    ],
)
def test_a_create_table_that_makes_nothing_changes_nothing(text: str) -> None:
    feed = applied(
        [
            ddl(1, "CREATE TABLE a (n INT PRIMARY KEY, v INT)", "a", ["a"]),
            row(2, "a", "c", 1, 10),
            ddl(5, text, "", []),
            row(6, "a", "c", 2, 20),
        ]
    )
    assert tables(feed) == {"d.a": [(1, 10), (2, 20)]}


def of_schema(schema: str, message: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Return a message as of another database than `d`."""
    topic, value = message
    changed = [{**change, "id": change["id"].replace('"d"', f'"{schema}"')} for change in value.get("tableChanges", ())]
    named = {"databaseName": schema, "tableChanges": changed} if "ddl" in value else {}
    return topic.replace("px.d.", f"px.{schema}."), {**value, **named, "source": {**value["source"], "db": schema}}


@pytest.mark.parametrize(
    "text", ["ALTER TABLE a ADD q INT, RENAME e.b", "ALTER TABLE a RENAME TO `e`.`b`, ADD (q INT)"]
)
@pytest.mark.parametrize("namesake", [None, "goes on", "is silent"])
def test_what_a_statement_alters_is_of_the_table_that_it_takes_to_another_database(
    text: str, namesake: str | None
) -> None:
    created = "CREATE TABLE a (n INT PRIMARY KEY, v INT)"
    after = of_schema("e", row(6, "b", "c", 2, 20))
    after[1]["after"]["q"] = 4
    messages = [ddl(1, created, "a", ["a"]), row(3, "a", "c", 1, 10), of_schema("e", ddl(5, text, "a,b", ["b"])), after]
    if namesake:
        messages[1:1] = [of_schema("e", ddl(2, created, "a", ["a"]))]
        messages[3:3] = [of_schema("e", row(4, "a", "c", 7, 70))]
    messages += [of_schema("e", row(7, "a", "c", 8, 80))] if namesake == "goes on" else []
    log = MemoryLog([])
    feed = TopicFeed.of(log, sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c")
    send(log, messages)
    held = [str(table.name) for table in feed.apply().tables if table.reason]
    assert sorted(held) == (["d.a", "e.a", "e.b"] if namesake == "is silent" else [])
    if namesake != "is silent":
        assert tables(feed) == {"e.b": [(1, 10), (2, 20)], **({"e.a": [(7, 70), (8, 80)]} if namesake else {})}
        assert [lake_row["q"] for lake_row in feed.lake.read(TableId("e", "b")).to_pylist()] == [None, 4]
    if namesake:
        assert "q" not in feed.lake.read(TableId("e", "a")).column_names


@pytest.mark.parametrize(("into", "name"), [("f", "b"), ("e", "c")])
def test_a_rename_out_of_a_database_that_it_does_not_name_holds_all_tables_of_the_name_until_a_person_says_which(
    into: str, name: str
) -> None:
    created = "CREATE TABLE b (n INT PRIMARY KEY, v INT)"
    log = MemoryLog([])
    feed = TopicFeed.of(log, sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c")
    send(
        log,
        [
            *(of_schema(schema, ddl(place, created, "b", ["b"])) for place, schema in enumerate(("d", "e"), 1)),
            *(of_schema(schema, row(place, "b", "c", 1, place)) for place, schema in enumerate(("d", "e"), 3)),
            of_schema(into, ddl(5, f"RENAME TABLE b TO {into}.{name}", name, [name])),
            of_schema(into, row(6, name, "c", 2, 20)),
        ],
    )
    held = {str(table.name): table.reason for table in feed.apply().tables if table.reason}
    assert held.keys() == {"d.b", "e.b", f"{into}.{name}"}
    assert "may rename any of d.b, e.b" in held["e.b"]
    stays, moves = ("d", "e") if into == "f" else ("e", "d")
    life = next(life for life in feed.lake.applied() if str(life.born_as) == f"{stays}.b")
    at = next(
        event.at for event in feed.pipeline().planner.plan()[1].history.lives[life].events if isinstance(event, Held)
    )
    feed.lake.keep_decision(Release(life, at, "skip"))
    assert [table.reason for table in feed.apply().tables if table.reason] == []
    first = {"d": 3, "e": 4}
    assert tables(feed) == {f"{stays}.b": [(1, first[stays])], f"{into}.{name}": [(1, first[moves]), (2, 20)]}


@pytest.mark.parametrize(
    ("text", "other", "columns"),
    [
        ("CREATE TABLE e.u LIKE a", None, ["n", "v"]),
        ("CREATE TABLE e.u (LIKE a)", "(n INT PRIMARY KEY, v INT)", ["n", "v"]),
        ("CREATE TABLE e.u LIKE d.a", "(n INT PRIMARY KEY, w INT)", ["n", "v"]),
        ("CREATE TABLE u LIKE a", "(n INT PRIMARY KEY, w INT)", ["n", "w"]),
        ("CREATE TABLE e.u LIKE a", "(n INT PRIMARY KEY, w INT)", []),
        ("CREATE TABLE e.u LIKE a", "(n INT, v INT PRIMARY KEY)", []),
    ],
)
def test_a_copy_that_names_the_database_of_its_own_alone_is_of_the_only_table_of_the_name(
    text: str, other: str | None, columns: list[str]
) -> None:
    log = MemoryLog([])
    feed = TopicFeed.of(log, sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c")
    send(log, [ddl(1, "CREATE TABLE a (n INT PRIMARY KEY, v INT)", "a", ["a"]), row(2, "a", "c", 1, 10)])
    if other:
        send(log, [of_schema("e", ddl(3, f"CREATE TABLE a {other}", "a", ["a"]))])
    send(log, [of_schema("e", ddl(4, text, "u", ["u"])), of_schema("e", row(5, "u", "c", 1, 10))])
    outcome = feed.apply()
    held = {str(table.name): table.reason for table in outcome.tables if table.reason}
    if not columns:
        assert "the table that it is LIKE is not known" in held["e.u"]
    elif columns == ["n", "v"]:
        assert held == {}
    copies = [name for name in feed.lake.names() if str(name) == "e.u"]
    assert [feed.lake.read(name).column_names[:2] for name in copies] == ([columns] if columns else [])


@pytest.mark.parametrize(
    ("lists", "names"),
    [
        ("connector.class=MySqlConnector", {"d.a", "e.u"}),
        ("table.include.list=d.a,e.u", {"d.a", "e.u"}),
        ("table.include.list=e.u", {"e.u"}),
        ("connector.class=MySqlConnector&database.include.list=e", {"e.u"}),
        ("connector.class=MySqlConnector&table.exclude.list=d[.].*", {"e.u"}),
        ("", {"e.u"}),
    ],
)
def test_a_database_without_rows_has_tables_where_the_lists_of_the_connector_have_it(
    lists: str, names: set[str]
) -> None:
    log, made = MemoryLog([]), "CREATE TABLE {} (n INT PRIMARY KEY, v INT)"
    feed = TopicFeed.of(log, sink_uri=f"kafka://127.0.0.1:9092/px?protocol=debezium-json&{lists}", name="c")
    send(log, [ddl(1, made.format("a"), "a", ["a"])])
    send(log, [of_schema("mysql", ddl(2, made.format("rds_heartbeat2"), "rds_heartbeat2", ["rds_heartbeat2"]))])
    send(log, [of_schema("e", ddl(3, made.format("u"), "u", ["u"])), of_schema("e", row(4, "u", "c", 1, 10))])
    assert feed.apply().complete
    assert {str(name) for name in feed.lake.names()} == names


def test_a_name_in_between_is_no_table_of_another_database() -> None:
    messages = [
        of_schema("e", ddl(1, "CREATE TABLE tmp (n INT PRIMARY KEY, v INT)", "tmp", ["tmp"])),
        of_schema("e", row(2, "tmp", "c", 7, 70)),
        ddl(3, "CREATE TABLE a (n INT PRIMARY KEY, v INT)", "a", ["a"]),
        row(4, "a", "c", 1, 10),
        ddl(5, "RENAME TABLE `a` TO `tmp`", "a,b,tmp", []),
        ddl(5, "RENAME TABLE `tmp` TO `b`", "a,b,tmp", ["b"]),
        row(6, "b", "c", 2, 20),
    ]
    assert tables(applied(messages)) == {"d.b": [(1, 10), (2, 20)], "e.tmp": [(7, 70)]}


@pytest.mark.parametrize("cut", [2, 3, 4])
def test_a_row_under_a_name_that_a_rename_took_away_holds_the_table(cut: int) -> None:
    log = MemoryLog([])
    feed = TopicFeed.of(log, sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c")
    messages = [
        ddl(1, "CREATE TABLE a (n INT PRIMARY KEY, v INT)", "a", ["a"]),
        row(2, "a", "c", 1, 10),
        ddl(5, "RENAME TABLE a TO b", "b", ["b"]),  # of a temporary table, of which nothing else is sent
        row(6, "a", "c", 2, 20),
    ]
    held = list[str]()
    for part in (messages[:cut], messages[cut:]):
        send(log, part)
        held = [table.reason for table in feed.apply().tables if table.reason]
    assert len(held) == 1
    assert "a row of d.a came at" in held[0]


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("DROP TABLE `e`.`b` /* generated by server */", []),
        ("RENAME TABLE b TO c", []),
        ("DROP TABLE IF EXISTS `e`.`b` /* generated by server */", ["d.b", "e.b", "f.b"]),
    ],
)
def test_a_table_that_goes_later_is_not_the_one_that_was_renamed_unless_it_need_not_have_been_there(
    text: str, held: list[str]
) -> None:
    """The servers log DROP TABLE IF EXISTS though there is no table."""
    created, name = "CREATE TABLE b (n INT PRIMARY KEY, v INT)", "c" if "RENAME" in text else "b"
    log = MemoryLog([])
    feed = TopicFeed.of(log, sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c")
    send(
        log,
        [
            *(of_schema(schema, ddl(place, created, "b", ["b"])) for place, schema in enumerate(("d", "e"), 1)),
            *(of_schema(schema, row(place, "b", "c", 1, place)) for place, schema in enumerate(("d", "e"), 3)),
            of_schema("f", ddl(5, "RENAME TABLE b TO f.b", "b", ["b"])),
            of_schema("f", row(6, "b", "c", 2, 20)),
            of_schema("e", ddl(7, text, name, [name] if "RENAME" in text else [])),
        ],
    )
    assert sorted(str(table.name) for table in feed.apply().tables if table.reason) == held
    if not held:
        assert tables(feed)["f.b"] == [(1, 3), (2, 20)]
