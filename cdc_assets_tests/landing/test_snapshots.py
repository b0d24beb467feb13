"""Tables of connectors are complete by a snapshot, from its first row to its last, and by nothing less."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.landing.decisions import release
from cdc_assets.model.progress import Lack, State, Whole
from cdc_assets.model.schema import TableId
from cdc_assets.pipeline.outcome import TableOutcome
from cdc_assets.report.text import outcome_lines
from cdc_assets_tests.connector_topics import Recording, recordings
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

URI = "kafka://127.0.0.1:9092/px?protocol=debezium-json"
POSTGRES, MYSQL = "postgresql", "mysql"
FIRST, WITHIN, LAST = "first_in_data_collection", "true", "last_in_data_collection"

Message = tuple[str, Mapping[str, Any]]


def row(
    place: int, number: int, phase: str = "false", *, connector: str = POSTGRES, table: str = "t", name: str = "px",
    op: str = "", late_ms: int = 0,
) -> Message:  # fmt: skip
    """A row with a key; of a snapshot where it has a phase of one."""
    at: Mapping[str, Any] = {"file": "bin.000001", "pos": place, "row": 0, "db": "public"}
    if connector == POSTGRES:
        at = {"lsn": place, "sequence": json.dumps([str(place), str(place)]), "db": "d", "schema": "public"}
    source = {"connector": connector, "name": name, "ts_ms": 1000 + place + late_ms}
    source |= {"snapshot": phase, "table": table, **at}
    columns = [{"type": "int32", "optional": True, "field": name} for name in ("id", "v")]
    sides = [{"type": "struct", "field": side, "optional": True, "fields": columns} for side in ("before", "after")]
    payload = {
        "before": None,
        "after": {"id": number, "v": place},
        "source": source,
        "op": op or ("c" if phase == "false" else "r"),
    }
    return table, {"schema": {"type": "struct", "fields": sides}, "payload": payload}


def create(table: str = "t", place: int = 0, phase: str = "true", name: str = "px", late_ms: int = 0) -> Message:
    """The CREATE TABLE of MySQL's connector, in its snapshot where it has a phase of one."""
    source = {
        "connector": MYSQL,
        "name": name,
        "ts_ms": 1000 + late_ms,
        "snapshot": phase,
        "db": "public",
        "table": table,
    }
    text = f"CREATE TABLE `{table}` (`id` int PRIMARY KEY, `v` int)"
    changes = [{"type": "CREATE", "id": f'"public"."{table}"', "table": {}}]
    at = {"file": "bin.000001", "pos": place, "row": 0}
    return "", {"source": {**source, **at}, "databaseName": "public", "ddl": text, "tableChanges": changes, "ts_ms": 1}


def send(log: MemoryLog, messages: Sequence[Message], partition: int = 0, *, by_name: bool = False) -> None:
    for table, held in messages:
        prefix = (held if "ddl" in held else held["payload"])["source"]["name"] if by_name else "px"
        topic = f"{prefix}.public.{table}" if table else prefix
        offset = sum((line["topic"], line["partition"]) == (topic, partition) for line in log.lines)
        key = None if "ddl" in held else json.dumps({"id": held["payload"]["after"]["id"]}).encode()
        line = {"topic": topic, "partition": partition, "offset": offset, "timestamp_ms": 0}
        value = base64.b64encode(json.dumps(held, separators=(",", ":")).encode()).decode()
        log.lines.append({**line, "key_b64": key and base64.b64encode(key).decode(), "value_b64": value})


def applied(*parts: Sequence[Message] | Mapping[int, Sequence[Message]], **given: Any) -> TopicFeed:
    """A feed that was landed and applied after each part; a part may say what is in which partition."""
    feed = TopicFeed.of(MemoryLog([]), **{"sink_uri": URI, "name": "c", "initial": {}, **given})
    for part in parts:
        for partition, messages in (part if isinstance(part, Mapping) else {0: part}).items():
            send(feed.log, messages, partition)
        feed.apply()
    return feed


def table(feed: TopicFeed, name: str = "t") -> TableOutcome:
    return next(table_outcome for table_outcome in feed.apply().tables if table_outcome.name.table == name)


def state(feed: TopicFeed, name: str = "t") -> Lack | str:
    """What the table lacks, or what made it complete; the lake says the same."""
    table_outcome = table(feed, name)
    kept = feed.lake.tables[table_outcome.life].gap
    assert kept == table_outcome.gap
    return table_outcome.complete_by if table_outcome.gap is None else table_outcome.gap.filling.lack


def snapshot(*numbers: int, place: int = 7, end: str = LAST, **given: Any) -> list[Message]:
    phases = [FIRST, *[WITHIN] * (len(numbers) - 2), end] if len(numbers) > 1 else [end]
    return [row(place, number, phase, **given) for number, phase in zip(numbers, phases, strict=True)]


@pytest.mark.parametrize("connector", [POSTGRES, MYSQL])
def test_a_table_is_complete_from_its_first_row_to_its_last_and_not_before(connector: str) -> None:
    rows = snapshot(1, 2, 3, connector=connector)
    for parts in ([rows], [rows[:1], rows[1:]], [[sent_row] for sent_row in rows]):
        feed = applied(*parts[:-1])
        assert not feed.log.lines or state(feed) is Lack.RUNNING
        send(feed.log, parts[-1])
        assert state(feed) == Whole.SNAPSHOT
        assert feed.apply().complete


def test_a_table_that_is_held_in_its_snapshot_is_not_said_to_lack_one() -> None:
    rows = snapshot(1, 2, 3)
    rows[1][1]["payload"]["after"]["v"] = "x"
    outcome = applied(rows).apply()
    (table_outcome,) = outcome.tables
    assert table_outcome.state is State.HELD
    assert table_outcome.gap is not None
    assert table_outcome.incomplete == (
        "incomplete until it goes on where it stopped: what completes it (snapshot) comes after that."
    )
    assert not any("--complete" in line for line, _ in outcome_lines(outcome))


def test_a_table_of_one_row_has_the_mark_of_the_last_one_alone() -> None:
    assert state(applied(snapshot(1))) == Whole.SNAPSHOT
    assert state(applied([row(7, 1, WITHIN), row(7, 2, LAST)])) is Lack.BEGINNING


def test_a_table_without_a_snapshot_is_incomplete_whatever_comes_for_others() -> None:
    feed = applied([*snapshot(1, 2, end="last"), row(9, 1, table="later")])
    assert (state(feed), state(feed, "later")) == (Whole.SNAPSHOT, Lack.LATER)
    assert not feed.apply().complete


LATER: Mapping[str, Any] = {"initial": {"later_tables": "new"}}


def test_a_person_who_says_so_once_makes_all_tables_complete_that_appear_after_the_snapshot() -> None:
    rows = [row(9, 1, table="one"), row(10, 1, table="two"), row(11, 1, table="two", op="c")]
    feed = applied(snapshot(1, 2), rows)
    assert (state(feed, "one"), state(feed, "two")) == (Lack.SNAPSHOT, Lack.SNAPSHOT)  # the snapshot has not ended
    feed = applied()
    send(feed.log, [*snapshot(1, 2, end="last"), *rows])
    lines = [line for line, _ in outcome_lines(feed.apply())]
    assert sum("later_tables: new" in line for line in lines) == 1
    feed = applied([*snapshot(1, 2, end="last"), *rows], [row(12, 1, table="three")], **LATER)
    assert [state(feed, name) for name in ("t", "one", "two", "three")] == [Whole.SNAPSHOT, *[Whole.STATEMENT] * 3]
    assert feed.apply().complete


@pytest.mark.parametrize(("mode", "expected"), [("initial", Whole.STATEMENT), ("never", Lack.SETTINGS)])
def test_all_tables_are_later_ones_where_a_snapshot_had_no_row(mode: str, expected: object) -> None:
    rows = [row(9, 1, table="one"), row(10, 1, table="two")]
    feed = applied(rows, sink_uri=f"{URI}&snapshot.mode={mode}", **LATER)
    assert [state(feed, name) for name in ("one", "two")] == [expected] * 2
    assert state(applied(rows, **LATER), "one") is Lack.SNAPSHOT  # nothing says that the connector takes snapshots


def test_tables_that_may_be_older_than_a_snapshot_are_not_new_by_that() -> None:
    rows = [*snapshot(1, 2, end="last"), row(9, 1, table="old"), row(10, 2, "incremental", table="old", op="r")]
    assert state(applied(rows, **LATER), "old") is Lack.SNAPSHOT
    assert state(applied([row(5, 1, table="old")], snapshot(1, 2, end="last"), **LATER), "old") is Lack.SNAPSHOT
    assert state(applied(snapshot(1, 2)[:1], [row(9, 1, table="old")], **LATER), "old") is Lack.SNAPSHOT


def test_a_change_of_a_row_that_nothing_made_is_shown_of_a_table_that_was_called_new() -> None:
    feed = applied(snapshot(1, 2, end="last"), [row(9, 1, table="moved")], **LATER)
    feed.lake.may_lack_rows = True
    gone = row(10, 7, table="moved", op="d")
    gone[1]["payload"]["before"], gone[1]["payload"]["after"] = {"id": 7, "v": 1}, None
    line = (MemoryLog([]), [row(10, 7, table="moved")])
    send(*line)
    (message,) = line[0].lines
    message["offset"], value = 1, json.dumps(gone[1], separators=(",", ":")).encode()
    feed.log.lines.append({**message, "value_b64": base64.b64encode(value).decode()})
    outcome = feed.apply()
    assert outcome.complete
    assert [finding.table for finding in outcome.findings if finding.rule == "missing-rows"] == ["public.moved"]


@pytest.mark.parametrize("in_one_go", [True, False])
@pytest.mark.parametrize("connector", [POSTGRES, MYSQL])
def test_a_change_of_a_row_that_a_snapshot_lacks_proves_that_rows_are_missing(connector: str, in_one_go: bool) -> None:
    rows, changed = snapshot(1, 2, connector=connector), row(9, 7, op="u", connector=connector)
    feed = applied()
    feed.lake.may_lack_rows = True
    for messages in [[*rows, changed]] if in_one_go else [rows, [changed]]:
        send(feed.log, messages)
        feed.apply()
    assert state(feed) is Lack.PROVEN
    assert "px.public.t[0] offsets" in table(feed).incomplete


@pytest.mark.parametrize("connector", [POSTGRES, MYSQL])
def test_a_lone_row_that_begins_a_snapshot_is_all_of_its_table(connector: str) -> None:
    """The first row of all tables is marked as such, even if it is the last one of its table."""
    first, more = row(7, 1, "first", connector=connector), row(7, 2, "true", connector=connector)
    others = snapshot(1, 2, connector=connector, table="u", end="last")
    feed = applied([first], others[:1])
    assert (state(feed), state(feed, "u")) == (Lack.RUNNING, Lack.RUNNING)
    send(feed.log, others[1:])
    assert (state(feed), state(feed, "u")) == (Whole.SNAPSHOT, Whole.SNAPSHOT)
    assert feed.apply().complete
    assert state(applied([first, more, *others])) is Lack.RUNNING
    assert state(applied([first, more, row(7, 3, LAST, connector=connector), *others])) == Whole.SNAPSHOT
    assert state(applied([row(7, 1, FIRST, connector=connector), *others])) is Lack.RUNNING


def test_an_older_connector_marks_the_last_row_of_all_tables_only() -> None:
    rows = [row(7, 1, WITHIN), row(7, 2, WITHIN), row(7, 1, WITHIN, table="u"), row(7, 2, "last", table="u")]
    feed = applied(rows[:3])
    assert (state(feed), state(feed, "u")) == (Lack.RUNNING, Lack.RUNNING)
    send(feed.log, rows[3:])
    assert (state(feed), state(feed, "u")) == (Whole.SNAPSHOT, Whole.SNAPSHOT)


@pytest.mark.parametrize("there", range(1, 4))
@pytest.mark.parametrize(("place", "late_ms"), [(7, 0), (7, 5000), (8, 5000)])
def test_a_snapshot_that_begins_anew_fills_the_table_once_its_own_last_row_came(
    there: int, place: int, late_ms: int
) -> None:
    """Nothing was written in between where it stands at the same place; the rows may come in another order."""
    again = snapshot(1, 2, 4, 3, place=place, late_ms=late_ms)
    feed = applied(snapshot(1, 2, 3, 4)[:there], again[:2])
    assert state(feed) is Lack.RUNNING
    send(feed.log, again[2:])
    assert state(feed) == Whole.SNAPSHOT
    assert sorted(lake_row["id"] for lake_row in feed.lake.read(TableId("public", "t")).to_pylist()) == [1, 2, 3, 4]


def test_a_table_that_a_snapshot_fills_again_is_incomplete_meanwhile() -> None:
    feed = applied(snapshot(1, 2, 3))
    assert state(feed) == Whole.SNAPSHOT
    again = snapshot(1, 3, place=9)
    send(feed.log, again[:1])
    assert state(feed) is Lack.RUNNING
    send(feed.log, again[1:])
    assert state(feed) == Whole.SNAPSHOT


def test_rows_of_a_snapshot_in_several_partitions_count_together() -> None:
    rows = snapshot(1, 2, 3)
    for first, last in ((0, 1), (1, 0)):
        feed = applied({first: rows[:1], last: [], 2: rows[1:2]})
        assert state(feed) is Lack.RUNNING
        send(feed.log, rows[2:], last)
        assert state(feed) == Whole.SNAPSHOT
        at_once = applied({first: rows[:1], last: rows[2:], 2: rows[1:2]})
        assert state(at_once) == Whole.SNAPSHOT


def test_rows_of_another_connector_before_a_snapshot_leave_a_table_incomplete() -> None:
    feed = applied([row(5, 1, name="old")], snapshot(1, 2))
    assert state(feed) is Lack.SNAPSHOT
    assert state(applied(snapshot(1, 2), [row(9, 5, name="new")])) == Whole.SNAPSHOT


def test_rows_that_are_read_incrementally_have_no_end() -> None:
    assert state(applied([row(9, 1), row(9, 2, "incremental", op="r")])) is Lack.SNAPSHOT


def test_create_in_a_snapshot_brings_no_rows() -> None:
    begun = applied([create()], snapshot(1, 2, connector=MYSQL)[:1])
    assert state(begun) is Lack.RUNNING
    schema_only = applied([create(), create("u")], [row(9, 1, connector=MYSQL)])
    assert (state(schema_only), state(schema_only, "u")) == (Lack.CREATED, Lack.CREATED)
    assert "no_data" in table(schema_only).incomplete


def test_a_table_that_was_empty_in_a_whole_snapshot_is_complete() -> None:
    feed = applied([create(), create("empty"), *snapshot(1, 2, connector=MYSQL)])
    assert (state(feed), state(feed, "empty")) == (Whole.SNAPSHOT, Lack.CREATED)
    ended = applied([create(), create("empty"), *snapshot(1, 2, connector=MYSQL, end="last")])
    assert (state(ended), state(ended, "empty")) == (Whole.SNAPSHOT, Whole.SNAPSHOT)
    doubted = [finding.table for finding in ended.apply().findings if finding.rule == "empty-in-snapshot"]
    assert doubted == ["public.empty"]
    known = f"{URI}&table.include.list=public.*"
    listed = applied([create(), create("empty"), *snapshot(1, 2, connector=MYSQL, end="last")], sink_uri=known)
    assert state(listed, "empty") == Whole.SNAPSHOT
    assert "empty-in-snapshot" not in {finding.rule for finding in listed.apply().findings}
    stated = applied([create(), create("empty")], [row(9, 1, connector=MYSQL)], sink_uri=f"{URI}&snapshot.mode=initial")
    assert (state(stated), state(stated, "empty")) == (Whole.SNAPSHOT, Whole.SNAPSHOT)


def test_create_after_the_snapshot_brings_all() -> None:
    feed = applied([create(), *snapshot(1, connector=MYSQL, end="last")], [create("new", 9, "false")])
    send(feed.log, [row(10, 1, connector=MYSQL, table="new")])
    assert state(feed, "new") == Whole.CREATE


@pytest.mark.parametrize(
    "given",
    [
        {"snapshot.mode": "no_data"},
        {"snapshot.mode": "recovery"},
        {"snapshot.mode": "configuration_based"},
        {"snapshot.select.statement.overrides": "public.u,d.public.t"},
    ],
)
def test_a_connector_that_does_not_send_all_rows_completes_no_table(given: Mapping[str, str], tmp_path: Path) -> None:
    config = tmp_path / "connector.json"
    config.write_text(json.dumps({"topic.prefix": "px", **given}))
    feed = applied(snapshot(1, 2), changefeed_config=config)
    assert state(feed) is Lack.SETTINGS
    assert "snapshot.select.statement.overrides" in table(feed).incomplete


@pytest.mark.parametrize(
    ("given", "expected_state"),
    [
        ({"table.include.list": "public.t,public.emp.*"}, Whole.SNAPSHOT),
        ({"table.include.list": "public.t"}, None),
        ({"table.exclude.list": "public.empty"}, None),
        ({"snapshot.include.collection.list": "public.t"}, Lack.SETTINGS),
        ({"table.include.list": "public.empty", "snapshot.include.collection.list": "public.t"}, Lack.SETTINGS),
    ],
)
def test_of_a_table_without_rows_the_lists_say_whether_any_would_be_sent(
    given: Mapping[str, str], expected_state: Lack | Whole | None
) -> None:
    """One whose changes would not be sent either is no table of the feed."""
    query = "".join(f"&{name}={value}" for name, value in given.items())
    parts = [create(), create("empty"), *snapshot(1, connector=MYSQL, end="last")]
    feed = applied(parts, sink_uri=URI + query)
    assert state(feed) == Whole.SNAPSHOT
    assert expected_state is None or state(feed, "empty") == expected_state
    assert (TableId("public", "empty") in feed.lake.names()) == (expected_state is not None)


def test_a_person_says_that_a_table_had_no_rows() -> None:
    feed = applied([row(9, 1)], initial={"complete": ["public.t"]})
    assert state(feed) == Whole.STATEMENT
    both = applied(snapshot(1, 2), initial={"complete": ["public.t"]})
    assert state(both) == Whole.SNAPSHOT


def test_sentences_name_the_connector_and_no_schema_file() -> None:
    for feed in (applied([row(9, 1)]), applied(snapshot(1, 2)[:1]), applied([row(7, 1, WITHIN), row(7, 2, LAST)])):
        sentence = table(feed).incomplete
        assert "schema file" not in sentence
        assert "snapshot" in sentence


CREATED_LATER = {"public.dbz_signal", "sales.late_arrival", "public.short_lived", "public.visit_archive"}
"""Tables of PostgreSQL that were empty at the snapshot or made after it: no message says which."""


@pytest.mark.parametrize(
    "recording",
    [
        pytest.param(recording, marks=() if recording.variant == "default" else pytest.mark.soak, id=str(recording))
        for recording in recordings()
        if recording.has_schemas
    ],
)
def test_recorded_tables_are_complete_by_their_snapshot(recording: Recording) -> None:
    feed = recording.feed(initial={})
    first = next(recording.marks)
    feed.send(lines=recording.lines_at(first))
    outcome = feed.apply()
    assert outcome.complete
    assert {table_outcome.complete_by for table_outcome in outcome.tables} == {Whole.SNAPSHOT}
    feed.send(lines=recording.lines)
    outcome = feed.apply()
    lacking = {str(table_outcome.name) for table_outcome in outcome.tables if table_outcome.gap is not None}
    assert lacking == (CREATED_LATER if recording.postgres else set())


YDB = "kafka://127.0.0.1:9092/shop/orders/feed?protocol=ydb-json"
TEXT = "CREATE TABLE `shop/orders` (id Uint64 NOT NULL, v Int64, PRIMARY KEY (id));\n"
FEED = "ALTER TABLE `shop/orders` ADD CHANGEFEED {} WITH (FORMAT = 'JSON', MODE = 'UPDATES', INITIAL_SCAN = {});\n"


def ydb(*records: Mapping[str, Any], directory: Path, text: str = TEXT, query: str = "") -> TopicFeed:
    schemas = directory / "schemas.yql"
    schemas.write_text(text)
    feed = TopicFeed.of(MemoryLog([]), sink_uri=YDB + query, name="y", initial={}, schemas=schemas)
    for offset, held in enumerate(records):
        line = {"topic": "shop/orders/feed", "partition": 0, "offset": offset, "timestamp_ms": 0, "key_b64": None}
        feed.log.lines.append({**line, "value_b64": base64.b64encode(json.dumps(held).encode()).decode()})
    return feed


def flavoured(op: str) -> Mapping[str, Any]:
    source = {"connector": "ydb", "version": "1.0.0", "step": 1000, "txId": 5, "ts_ms": 1000, "snapshot": op == "r"}
    return {"payload": {"op": op, "source": source, "after": {"id": 1, "v": 2}}}


def test_a_table_of_ydb_is_complete_by_a_scan_that_records_or_a_person_show(tmp_path: Path) -> None:
    plain = {"key": [1], "update": {"v": 2}}
    for expected_state, feed in (
        (Whole.SCAN, ydb(flavoured("r"), flavoured("u"), directory=tmp_path)),
        (Lack.SCAN, ydb(flavoured("u"), directory=tmp_path)),
        (Lack.SCAN, ydb(plain, directory=tmp_path)),
        (Whole.SCAN, ydb(plain, directory=tmp_path, query="&initial_scan=true")),
        (Lack.SCAN, ydb(plain, directory=tmp_path, query="&initial_scan=false")),
        (Whole.SCAN, ydb(plain, directory=tmp_path, text=TEXT + FEED.format("feed", "TRUE"))),
        (Lack.SCAN, ydb(plain, directory=tmp_path, text=TEXT + FEED.format("feed", "FALSE"))),
    ):
        assert state(feed, "orders") == expected_state
    assert "INITIAL_SCAN" in table(ydb(plain, directory=tmp_path), "orders").incomplete


_BEFORE = [
    *(create(name, place=5) for name in "tu"),
    *snapshot(1, 2, 3, place=5, connector=MYSQL),
    *snapshot(1, place=5, end="last", connector=MYSQL, table="u"),
]
_RECREATED = [create(place=50), create("u", place=50)]


def ids(feed: TopicFeed, name: str = "t") -> list[int]:
    return sorted(lake_row["id"] for lake_row in feed.lake.read(TableId("public", name)).to_pylist())


@pytest.mark.parametrize("in_one_go", [False, True])
@pytest.mark.parametrize("streamed", [(), (20,)])
def test_a_table_of_which_another_snapshot_has_no_row_is_held(in_one_go: bool, streamed: Sequence[int]) -> None:
    """It was empty by then, and nothing says so; another table goes on."""
    before = [*_BEFORE, *(row(place, 4, connector=MYSQL) for place in streamed)]
    again = [
        *_RECREATED,
        *snapshot(1, 7, place=50, end="last", connector=MYSQL, table="u"),
        row(60, 9, connector=MYSQL),
    ]
    feed = applied([*before, *again]) if in_one_go else applied(before, again)
    held = table(feed)
    assert "taken another snapshot, at 1.1.50.0 of the source's log, and no row of this table" in held.reason
    assert 9 not in (() if in_one_go else ids(feed))
    assert (table(feed, "u").reason, ids(feed, "u")) == ("", [1, 7])
    (kept,) = feed.landing.landed().open_bad
    release(feed.landing, kept.partition, kept.offset, applied=lambda _: 0)
    assert table(feed).reason == ""
    assert ids(feed) == sorted([1, 2, 3, 9, *(4 for _ in streamed)])


@pytest.mark.parametrize("in_one_go", [False, True])
@pytest.mark.parametrize("streamed", [(), (20,)])
def test_a_table_without_a_row_in_a_snapshot_that_stands_lower_in_another_log_is_held(
    in_one_go: bool, streamed: Sequence[int]
) -> None:
    """It was made after all rows of the table, so it is no copy of an older one."""
    before = [*_BEFORE, *(row(place, 4, connector=MYSQL) for place in streamed)]
    again = [create(place=3, late_ms=60_000)]
    feed = applied([*before, *again]) if in_one_go else applied(before, again)
    assert "taken another snapshot, at 1.1.3.0 of the source's log, and no row of this table" in table(feed).reason
    assert table(feed, "u").reason == ""


@pytest.mark.parametrize("at_once", [False, True])
def test_a_table_goes_on_by_itself_once_rows_of_the_other_snapshot_came(at_once: bool) -> None:
    again = [*snapshot(1, 5, place=50, connector=MYSQL), row(60, 9, connector=MYSQL)]
    feed = applied(_BEFORE, [*_RECREATED, *(again if at_once else ())])
    assert ("another snapshot" in table(feed).reason) is not at_once
    send(feed.log, () if at_once else again)
    assert table(feed).reason == ""
    assert ids(feed) == [1, 5, 9]
    assert [decision.what for decision in feed.landing.landed().decisions] == (
        [] if at_once else ["rows of its snapshot came"]
    )


def test_a_create_of_the_same_snapshot_or_an_older_one_that_comes_again_holds_nothing() -> None:
    """A row that was written in the second of the snapshot may have a time before it."""
    streamed = [row(20, 4, connector=MYSQL)]
    for place, rows, late_ms in ((5, (), 0), (5, streamed, 0), (4, (), 0), (4, streamed, 900), (5, (), 60_000)):
        feed = applied([*_BEFORE, *rows], [create(place=place, late_ms=late_ms), row(60, 9, connector=MYSQL)])
        assert table(feed).reason == ""
        assert 9 in ids(feed)


@pytest.mark.parametrize(("name", "in_one_go"), [("qx", False), ("qx", True), ("px-2", True), ("ax", False)])
def test_the_snapshot_of_another_server_does_not_replace_a_table_unsaid(name: str, in_one_go: bool) -> None:
    """Both have a database of one name; a table of which the first has sent no row is the other's."""
    first = [create("theirs", place=5), *_BEFORE]
    other = [create(place=3, name=name), create("theirs", place=3, name=name)]
    other += snapshot(7, 8, place=3, connector=MYSQL, name=name)
    other += snapshot(5, 6, place=3, end="last", connector=MYSQL, table="theirs", name=name)
    feed = TopicFeed.of(MemoryLog([]), sink_uri=URI, name="c", initial={}, topics=["*"])
    send(feed.log, first, by_name=True)
    if not in_one_go:
        feed.apply()
    send(feed.log, other, by_name=True)
    assert f"it is of the connector {name}, and rows of its table came from px, as of two servers" in table(feed).reason
    assert (ids(feed), ids(feed, "theirs"), ids(feed, "u")) == ([1, 2, 3], [5, 6], [1])
    (kept,) = feed.landing.landed().open_bad
    release(feed.landing, kept.partition, kept.offset, again=not in_one_go, applied=lambda _: 0)
    assert table(feed).reason == ""
    assert ids(feed) == ([1, 2, 3, 7, 8] if in_one_go else [7, 8])
    send(feed.log, [create(place=9, phase="false", name=name), row(10, 9, connector=MYSQL, name=name)], by_name=True)
    assert table(feed).reason == ""


def test_a_table_of_which_another_snapshot_of_postgresql_has_no_row_is_told() -> None:
    """No message says that it was empty; one that has rows in it, and a table that came later, are not meant."""
    before = [*snapshot(1, 2, 3, place=5), *snapshot(1, 2, place=5, end="last", table="u")]
    feed = applied(before)
    assert not feed.listing().warnings
    send(feed.log, [*snapshot(1, 7, place=50, end="last", table="u"), row(60, 9), row(61, 1, table="later")])
    feed.apply()
    (warned,) = feed.listing().warnings
    assert "the newest snapshot of the connector px has no row of 1 table with rows from before: public.t." in warned
    assert (ids(feed), ids(feed, "u")) == ([1, 2, 3, 9], [1, 7])
    send(feed.log, [*snapshot(1, 2, place=70), *snapshot(1, place=70, end="last", table="u")])
    assert "below 2.60.60: the connector has taken another snapshot" in table(feed).reason
    assert not [warning for warning in feed.listing().warnings if "public.t" in warning]


def of_run(run: str, ms: int, *messages: Message) -> list[Message]:
    """Messages of a run of a connector, which says so in a header, sent at a time."""
    for _, held in messages:
        held.get("payload", held)["ts_ms"] = ms
    return [(name, {**held, "run": run}) for name, held in messages]


def send_with_runs(feed: TopicFeed, messages: Sequence[Message]) -> None:
    for name, held in messages:
        send(feed.log, [(name, {member: value for member, value in held.items() if member != "run"})])
        run = base64.b64encode(held["run"].encode()).decode()
        feed.log.lines[-1]["headers"] = [["__debezium.context.runId", run]]
    feed.apply()


def numbers(feed: TopicFeed) -> list[int]:
    return sorted(lake_row["id"] for lake_row in feed.lake.read(TableId("public", "t")).to_pylist())


@pytest.mark.parametrize("in_one_go", [True, False])
@pytest.mark.parametrize("connector", [POSTGRES, MYSQL])
@pytest.mark.parametrize("changed", ["t", "signals"])
def test_a_snapshot_that_a_person_asked_for_meanwhile_takes_no_rows_away(
    connector: str, in_one_go: bool, changed: str
) -> None:
    """It may be of some rows, and of a table without changes nothing but other tables shows that they are sent."""
    feed = applied()
    own = of_run("a", 1, *snapshot(1, 2, 3, connector=connector))
    changes = of_run("a", 2, row(9, 1, table=changed, connector=connector))
    asked_messages = of_run("a", 3, *snapshot(2, 4, place=9, late_ms=5000, connector=connector))
    later = of_run("a", 4, row(12, 5, connector=connector, late_ms=6000))
    parts = [own, changes, asked_messages, later]
    for part in [[*own, *changes, *asked_messages, *later]] if in_one_go else parts:
        send_with_runs(feed, part)
    assert (numbers(feed), table(feed).reason, state(feed)) == ([1, 2, 3, 4, 5], "", Whole.SNAPSHOT)


@pytest.mark.parametrize("run", ["b", ""])
def test_a_snapshot_of_another_run_after_changes_holds_its_table(run: str) -> None:
    feed = applied()
    send_with_runs(feed, of_run("a", 1, *snapshot(1, 2, 3), row(9, 1)))
    send_with_runs(feed, of_run(run, 3, *snapshot(2, 4, place=9, late_ms=5000)))
    assert "the connector has taken another snapshot" in table(feed).reason


def test_the_columns_of_a_table_that_are_stated_with_a_snapshot_for_which_a_person_asked_leave_its_rows() -> None:
    stated = [create("t", 3, "true"), *snapshot(1, 2, 3, connector=MYSQL), row(9, 1, connector=MYSQL)]
    feed = applied(stated, [create("t", 3, "true"), create("t", 12, "false", late_ms=50)])
    assert (numbers(feed), table(feed).reason) == ([1, 2, 3], "")
