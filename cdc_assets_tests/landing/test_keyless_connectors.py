"""Tables without key behind connectors that start again: each row counts once, wherever a landing ends."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest

from cdc_assets.landing.maintenance import LandingLimits, maintain_landing
from cdc_assets.landing.retention import Retention, TableNeed
from cdc_assets.model.schema import TableId
from cdc_assets_tests.topic_feed import MemoryLog, TopicFeed

TABLE = TableId("public", "t")
BLOCK = {
    "type": "struct",
    "fields": [
        {
            "type": "struct",
            "field": side,
            "optional": True,
            "fields": [{"type": "int32", "optional": True, "field": "n"}],
        }
        for side in ("before", "after")
    ],
}
SPACES = {"mysql": {"db": "public"}, "mariadb": {"db": "public"}, "postgresql": {"db": "d", "schema": "public"}}


def message(connector: str, place: int, op: str, n: int, snapshot: str = "false", sent: int = 0) -> dict[str, Any]:
    """A change of a row without key; `place` stands for one place in the log."""
    at: Mapping[str, Any] = {"file": "bin.000001", "pos": place, "row": 0}
    if connector == "postgresql":
        at = {"lsn": place, "sequence": json.dumps([str(place), str(place)])}
    source = {"version": "3.0", "connector": connector, "name": "px", "ts_ms": 1000 + place, "snapshot": snapshot}
    sides = {"before": {"n": n} if op == "d" else None, "after": None if op == "d" else {"n": n}}
    payload = {**sides, "source": {**source, **SPACES[connector], "table": "t", **at}, "op": op, "ts_ms": 2000 + sent}
    return {"schema": BLOCK, "payload": payload}


def send(log: MemoryLog, messages: Sequence[Mapping[str, Any]], partition: int = 0, run: str = "") -> None:
    headers = [["__debezium.context.runId", base64.b64encode(run.encode()).decode()]] if run else []
    for sent_message in messages:
        value = base64.b64encode(json.dumps(sent_message, separators=(",", ":")).encode()).decode()
        offset = sum(line["partition"] == partition for line in log.lines)
        line = {"topic": "px.public.t", "partition": partition, "offset": offset, "timestamp_ms": 0}
        log.lines.append({**line, "key_b64": None, "value_b64": value, "headers": headers})


def landed(*parts: Sequence[Mapping[str, Any]]) -> TopicFeed:
    """A feed that was landed and applied after each part."""
    log = MemoryLog([])
    feed = TopicFeed.of(log, sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c")
    for part in parts:
        send(log, part)
        outcome = feed.apply()
        assert [table.reason for table in outcome.tables if table.reason] == []
    return feed


def rows(feed: TopicFeed) -> Counter[int]:
    return Counter(row["n"] for row in feed.lake.read(TABLE).to_pylist()) if TABLE in feed.lake.names() else Counter()


HISTORY = [("c", 1), ("c", 1), ("c", 2), ("d", 1), ("c", 3)]


@pytest.mark.parametrize("connector", ["mysql", pytest.param("mariadb", marks=pytest.mark.soak), "postgresql"])
@pytest.mark.parametrize("end", range(1, 6))
def test_what_a_restart_sends_again_counts_once(connector: str, end: int) -> None:
    for start in range(end):
        sent = [message(connector, 10 + place, *change) for place, change in enumerate(HISTORY[:end])]
        again = [
            message(connector, 10 + place, *change, sent=5000) for place, change in enumerate(HISTORY) if place >= start
        ]
        expected = Counter(n for op, n in HISTORY if op == "c") - Counter(n for op, n in HISTORY if op == "d")
        for parts in ([sent, again], [sent, again[:1], again[1:]], [[*sent, *again]]):
            assert rows(landed(*parts)) == expected


def test_equal_rows_of_one_statement_share_a_place_and_all_count() -> None:
    together = [message("postgresql", 10, "c", n, sent=k) for k, n in enumerate([1, 1, 2, 1])]
    copies = [message("postgresql", 10, "c", n, sent=9000 + k) for k, n in enumerate([1, 1, 2, 1])]
    after = [message("postgresql", 11, "c", 5, sent=9100)]
    for parts in ([together], [together, copies, after], [[*together, *copies, *after]]):
        assert rows(landed(*parts)) == Counter({1: 3, 2: 1, **({5: 1} if after[0] in parts[-1] else {})})


def test_a_copy_that_nothing_proves_is_counted_as_such() -> None:
    for connector in ("postgresql", "mysql"):  # a transaction of MySQL may be compressed
        feed = landed([message(connector, 10, "c", 1)], [message(connector, 10, "c", 1)])
        assert rows(feed) == Counter({1: 1})
        assert [n for reason, n in feed.landing.landed().ignored.items() if "taken for a copy" in reason] == [1]
    sure = landed([message("mariadb", 10, "c", 1)], [message("mariadb", 10, "c", 1)])
    assert rows(sure) == Counter({1: 1})
    assert not sure.landing.landed().ignored


@pytest.mark.parametrize("at_once", [True, False])
def test_the_run_that_sent_an_equal_row_says_whether_it_is_a_copy(at_once: bool) -> None:
    """Equal rows of one statement share a place: those of another run came again, however soon."""
    for runs, expected in ((("a", "a"), 2), (("a", "b"), 1), (("a", "b", "b"), 2), (("a", "a", "b", "b", "b"), 3)):
        feed = TopicFeed.of(MemoryLog([]), sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c")
        for run in runs:
            send(feed.log, [message("postgresql", 10, "c", 1)], run=run)
            if not at_once:
                feed.apply()
        feed.apply()
        assert rows(feed) == Counter({1: expected}), runs
        assert not feed.landing.landed().ignored


# --- several partitions -----------------------------------------------------------------------------------------------

URI = "kafka://127.0.0.1:9092/px?protocol=debezium-json"


def reasons(feed: TopicFeed) -> list[str]:
    return [table.reason for table in feed.apply().tables if table.reason]


def random_history(random: Random, connector: str) -> tuple[list[tuple[int, str, int]], Counter[int]]:
    """Changes with their places, of which several rows share one but in MariaDB; and the rows at the end."""
    history, there = list[tuple[int, str, int]](), Counter[int]()
    for place in range(10, 60):
        gone = [n for n in there.elements() if random.random() < 0.2][:1]
        numbers = gone or random.choices([1, 2, 3], k=1 if connector == "mariadb" else random.randint(1, 4))
        history += [(place, "d" if gone else "c", n) for n in numbers]
        there.update({n: -1 if gone else numbers.count(n) for n in numbers})
    return history, +there


@pytest.mark.parametrize("connector", ["mysql", "mariadb", "postgresql"])
@pytest.mark.parametrize("names_runs", [True, False])
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 20))])
def test_what_a_restart_sends_again_in_other_partitions_counts_once(
    connector: str, names_runs: bool, seed: int
) -> None:
    """Restarts, of which some lost the newest messages of a partition, and bytes that come again, applied whenever."""
    random, exact = Random(f"{connector} {names_runs} {seed}"), seed % 2 == 0
    history, there = random_history(random, connector)
    feed, end, acknowledged = TopicFeed.of(MemoryLog([]), sink_uri=URI, name="c"), 0, 10
    for run in range(4):
        start = max(10, acknowledged - random.randint(0, 6))
        end = len(history) if run == 3 else max(end, random.randint(1, len(history)))
        changes = [change for change in history[:end] if change[0] >= start]
        messages = [message(connector, *change, sent=run * 60_000 + at // 2) for at, change in enumerate(changes)]
        for at, sent_message in enumerate(messages if exact else ()):
            sent_message["payload"]["ts_ns"] = 1000 * sent_message["payload"]["ts_ms"] + at % 2
        lost = random.randint(0, 2) if run < 3 and random.random() < 0.5 else None
        acknowledged = changes[-1][0] if changes else start
        while messages:
            count, partition = random.randint(1, 3), random.randint(0, 2)
            if len(messages) < min(10, len(changes)) and partition == lost:
                acknowledged = min(acknowledged, changes[len(changes) - len(messages)][0])
            else:
                send(feed.log, messages[:count], partition, f"run {run}" if names_runs else "")
            messages = messages[count:]
        if exact and random.random() < 0.3:  # a copy of the topic begins again, with the bytes of before
            partition = random.randint(0, 2)
            lines = [line for line in feed.log.lines if line["partition"] == partition]
            again = lines[random.randint(0, max(0, len(lines) - 8)) :]
            feed.log.lines += [{**line, "offset": len(lines) + at} for at, line in enumerate(again)]
        if random.random() < 0.7:
            assert reasons(feed) == [] or lost is not None  # a delete may come before the row that was lost
    assert reasons(feed) == []
    assert rows(feed) == there


def test_a_copy_in_another_partition_that_a_landing_brings_is_none_of_its_table() -> None:
    feed = TopicFeed.of(MemoryLog([]), sink_uri=URI, name="c")
    for partition, run in ((0, "a"), (1, "b"), (2, "c")):
        send(feed.log, [message("postgresql", 10, "c", 1)], partition, run)
        assert reasons(feed) == []
    assert rows(feed) == Counter({1: 1})


def test_a_row_that_the_producer_lost_counts_where_it_comes_behind_newer_ones() -> None:
    for parts in ([0, 1], [0], [1]):
        feed = TopicFeed.of(MemoryLog([]), sink_uri=URI, name="c")
        send(feed.log, [message("postgresql", 10, "c", 1)], 0, "a")
        send(feed.log, [message("postgresql", 12, "c", 3)], 1, "a")
        if 0 in parts:
            assert reasons(feed) == []
        again = [message("postgresql", place, "c", place - 9, sent=9000) for place in (10, 11, 12)]
        send(feed.log, again, 1, "b")
        assert reasons(feed) == []
        assert rows(feed) == Counter([1, 2, 3])


@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize("fault", ["no time", "other values", "expired"])
def test_rows_of_which_nothing_tells_whether_they_are_copies_hold_their_table_unless_that_is_accepted(
    fault: str, accepted: bool
) -> None:
    feed = TopicFeed.of(MemoryLog([]), sink_uri=URI, name="c", accept_unordered=accepted)
    sent = [message("postgresql", 10, "c", 1, sent=at * 5000) for at in range(2)]
    for sent_message in sent if fault == "no time" else ():
        del sent_message["payload"]["ts_ms"]
    if fault == "other values":
        sent[1]["payload"]["after"]["n"] = 2
    runs = ("", "") if fault == "no time" else ("a", "b")
    send(feed.log, sent[:1], 0, runs[0])
    assert reasons(feed) == []
    if fault == "expired":
        maintain_landing(feed.landing, lambda _: TableNeed(1 << 62), 1 << 45, LandingLimits(Retention(0)))
    send(feed.log, sent[1:], 1, runs[1])
    assert ["accept_unordered" in reason for reason in reasons(feed)] == ([] if accepted else [True])
    assert rows(feed).total() == (2 if accepted else 1)


def snapshot(connector: str, numbers: Sequence[int], last: bool = True) -> list[Mapping[str, Any]]:
    phases = ["first", *["true"] * (len(numbers) - 1)]
    if last:
        phases[-1] = "last"
    return [message(connector, 7, "r", n, phase) for n, phase in zip(numbers, phases, strict=True)]


@pytest.mark.parametrize("connector", ["mysql", "postgresql"])
@pytest.mark.parametrize("cut", range(1, 4))
@pytest.mark.parametrize("again", [1, 2])
def test_a_snapshot_that_begins_anew_at_the_same_place_replaces_the_one_before(
    connector: str, cut: int, again: int
) -> None:
    numbers = [4, 4, 5]
    broken = snapshot(connector, numbers)[:cut]
    attempts = [broken] * again + [[*snapshot(connector, numbers), message(connector, 20, "c", 6)]]
    expected = Counter({4: 2, 5: 1, 6: 1})
    assert rows(landed(*attempts)) == expected
    assert rows(landed([sent_message for attempt in attempts for sent_message in attempt])) == expected


def test_a_snapshot_of_a_lone_row_that_is_taken_again_has_one_row() -> None:
    lone = [message("mysql", 7, "r", 4, "last_in_data_collection")]
    assert rows(landed(lone, lone, lone)) == Counter({4: 1})
    assert rows(landed([*lone, *lone])) == Counter({4: 1})


def test_a_snapshot_that_begins_anew_in_another_partition_holds_its_table() -> None:
    log = MemoryLog([])
    feed = TopicFeed.of(log, sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c")
    send(log, snapshot("mysql", [4, 4, 5])[:2])
    feed.apply()
    send(log, snapshot("mysql", [4, 4, 5]), partition=1)
    assert [table.reason for table in feed.apply().tables if table.reason] != []


@pytest.mark.parametrize("numbers", [[4, 4, 5], [4]])
def test_two_snapshots_of_one_landing_that_begin_in_different_partitions_hold_their_table(
    numbers: Sequence[int],
) -> None:
    log = MemoryLog([])
    feed = TopicFeed.of(log, sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c")
    send(log, snapshot("mysql", numbers)[:2])
    send(log, snapshot("mysql", numbers), partition=1)
    assert [table.reason for table in feed.apply().tables if table.reason] != []
    spread = TopicFeed.of(MemoryLog([]), sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c")
    whole = snapshot("mysql", [*numbers, 7, 8])
    send(spread.log, whole[::2])
    send(spread.log, whole[1::2], partition=1)
    assert [table.reason for table in spread.apply().tables if table.reason] == []
    assert rows(spread) == Counter([*numbers, 7, 8])


def test_a_snapshot_without_a_first_row_that_is_taken_again_holds_its_table() -> None:
    unmarked = [message("mysql", 7, "r", n, phase) for n, phase in ((4, "true"), (5, "true"), (6, "last"))]
    log = MemoryLog([])
    feed = TopicFeed.of(log, sink_uri="kafka://127.0.0.1:9092/px?protocol=debezium-json", name="c")
    for _ in range(2):
        send(log, unmarked)
        outcome = feed.apply()
    assert [table.reason for table in outcome.tables if table.reason] != []


def test_rows_that_differ_only_in_columns_named_like_stamps_are_two() -> None:
    def stamped(ms: int) -> dict[str, Any]:
        made = message("postgresql", 10, "c", 1)
        fields = [
            {"type": kind, "optional": True, "field": name} for name, kind in (("n", "int32"), ("ts_ms", "int64"))
        ]
        sides = [{"type": "struct", "field": side, "optional": True, "fields": fields} for side in ("before", "after")]
        payload = {**made["payload"], "after": {"n": 1, "ts_ms": ms}}
        return {"schema": {"type": "struct", "fields": sides}, "payload": payload}

    feed = landed([stamped(111)], [stamped(222)])
    assert sorted(row["ts_ms"] for row in feed.lake.read(TABLE).to_pylist()) == [111, 222]
