"""MySQL's compressed transactions: all their rows share a file and a position, and are numbered anew by each event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from cdc_assets.model.schema import TableId
from cdc_assets_tests.binlog_connector import BinlogConnector, Change

Pair = tuple[int, str]


class Connector(BinlogConnector):
    """Rows are (id, v)."""

    def __init__(self, keyed: bool, run: str = "", transactions: bool = False) -> None:
        key = " NOT NULL PRIMARY KEY" if keyed else ""
        ddl = f"CREATE TABLE `t` (`id` INT{key}, `v` VARCHAR(20))"
        super().__init__(ddl, key="id" if keyed else "", run=run, transactions=transactions)

    def pairs(self) -> Counter[Pair]:
        return Counter((row["id"], row["v"]) for row in self.apply())


def change(pos: int, number: int, op: str, *sides: Pair | None) -> Change:
    before, after = (None if side is None else {"id": side[0], "v": side[1]} for side in sides)
    return Change(pos, number, op, before, after)


def transaction(pos: int, *events: Sequence[tuple[str, Any, Any]]) -> list[Change]:
    return [change(pos, number, *row_change) for event in events for number, row_change in enumerate(event)]


def insert(*rows: tuple[int, str]) -> list[tuple[str, Any, Any]]:
    return [("c", None, row) for row in rows]


def delete(*rows: tuple[int, str]) -> list[tuple[str, Any, Any]]:
    return [("d", row, None) for row in rows]


A, B, C, D = (1, "a"), (2, "b"), (3, "c"), (4, "d")
RUNS = pytest.mark.parametrize("run", ["", "run-1"], ids=["no runs named", "runs named"])


@RUNS
@pytest.mark.parametrize("keyed", [True, False])
def test_every_row_of_a_transaction_counts_whatever_its_number_in_its_event(keyed: bool, run: str) -> None:
    connector = Connector(keyed, run)
    connector.send(*transaction(200, insert(A, B, C), insert(D), delete(B), insert((5, "e"), B)))
    assert connector.pairs() == Counter([A, C, D, (5, "e"), B])


@RUNS
def test_a_row_that_goes_and_comes_again_in_a_transaction_is_there(run: str) -> None:
    connector = Connector(True, run)
    connector.send(*transaction(200, insert(A), delete(A), insert(A), insert(D)))
    assert connector.pairs() == Counter([A, D])


@RUNS
def test_equal_rows_of_a_transaction_all_count_without_a_key(run: str) -> None:
    connector = Connector(False, run)
    connector.send(*transaction(200, insert(A), insert(A), insert(B)), *transaction(300, insert(A)))
    assert connector.pairs() == Counter([A, A, A, B])
    doubts = [reason for reason in connector.feed.landing.landed().ignored if "taken for another row" in reason]
    assert bool(doubts) == (not run)


HISTORY = [
    *transaction(200, insert(A, B, C), delete(B), insert(D)),
    *transaction(300, delete(A), insert(B), insert((5, "e"), (6, "f")), delete((5, "e"))),
]


@RUNS
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("landed_apart", [True, False])
@pytest.mark.parametrize("transactions", [True, False])
def test_what_a_restart_sends_again_counts_once_wherever_it_begins(
    keyed: bool, run: str, landed_apart: bool, transactions: bool
) -> None:
    expected = Counter([C, D, B, (6, "f")])
    for start, end in ((0, 10), (2, 4), (3, 5), (5, 8), (7, 10), (9, 10)):
        connector = Connector(keyed, run, transactions)
        connector.send(*HISTORY[:end])
        if landed_apart:
            connector.apply()
        connector.restart()
        connector.send(*HISTORY[start:])
        assert connector.pairs() == expected, (start, end)


@RUNS
@pytest.mark.parametrize("keyed", [True, False])
def test_what_a_newer_connector_sends_again_counts_once(keyed: bool, run: str) -> None:
    """The schema blocks of another version have other fields of `source`."""
    connector = Connector(keyed, run)
    for member in ("ts_us", "ts_ns"):
        connector.block = block(member)
        connector.send(*HISTORY[5 if member == "ts_ns" else 0 :])
        connector.restart()
    assert connector.pairs() == Counter([C, D, B, (6, "f")])


def block(member: str) -> dict[str, Any]:
    columns = [{"type": kind, "optional": True, "field": name} for name, kind in (("id", "int32"), ("v", "string"))]
    sides = [{"type": "struct", "fields": columns, "optional": True, "field": side} for side in ("before", "after")]
    source = {"type": "struct", "fields": [{"type": "int64", "optional": True, "field": member}], "field": "source"}
    return {"type": "struct", "fields": [*sides, source], "name": "my.shop.t.Envelope"}


@RUNS
def test_a_restart_before_a_row_that_comes_again_leaves_it_in(run: str) -> None:
    connector = Connector(True, run)
    sent = transaction(200, insert(A), delete(A), insert(A))
    connector.send(*sent[:2])
    connector.restart()
    connector.send(sent[2])
    assert connector.pairs() == Counter([A])


def test_changes_that_a_restart_amid_a_transaction_sends_again_are_told_where_they_are_taken_once_more() -> None:
    connector = Connector(True, "run-1")
    sent = transaction(200, insert(A), delete(A), insert(A), insert(B))
    connector.send(*sent)
    assert (connector.pairs(), connector.feed.landing.landed().ignored) == (Counter([A, B]), {})
    connector.restart()
    connector.send(*sent[1:])
    assert connector.pairs() == Counter([A, B])
    doubts = connector.feed.landing.landed().ignored
    assert any("may have" in reason for reason in doubts)


@pytest.mark.parametrize("seed", range(8))
def test_generated_transactions_and_restarts_lead_to_the_rows_of_the_source(seed: int) -> None:
    rng, rows, changes = Random(seed), dict[int, str](), list[Change]()
    connector = Connector(True, rng.choice(["", "run-1"]))
    for pos in range(200, 1200, 100):
        for _ in range(rng.randrange(1, 5)):
            event: list[tuple[str, Any, Any]] = []
            kind = rng.choice("cdu")
            for key in rng.sample(range(6), rng.randrange(1, 4)):
                if kind == "c" and key not in rows:
                    rows[key] = rng.choice("xy")
                    event.append(("c", None, (key, rows[key])))
                elif kind == "d" and key in rows:
                    event.append(("d", (key, rows.pop(key)), None))
                elif kind == "u" and key in rows:
                    old, rows[key] = rows[key], "x" if rows[key] == "y" else "y"
                    event.append(("u", (key, old), (key, rows[key])))
            changes += [change(pos, number, *row_change) for number, row_change in enumerate(event)]
    at = 0
    while at < len(changes):
        connector.send(*changes[at : (at := at + rng.randrange(1, 6))])
        if rng.random() < 0.3:
            connector.apply()
        if rng.random() < 0.4:
            connector.restart()
            at = max(0, min(at, len(changes)) - rng.randrange(0, 7))
    assert connector.pairs() == Counter(rows.items())


TABLES = ("k1", "k2", "n1", "n2")


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(n, marks=pytest.mark.soak) for n in range(12, 100))])
def test_transactions_of_several_tables_and_broken_off_replays_lead_to_the_rows_of_the_source(seed: int) -> None:
    """Positions do not go back behind that from which the last run began, for the connector has noted that one."""
    rng = Random(seed)
    connector = BinlogConnector(run="run-1", keyless=("n1", "n2"))
    for number, table in enumerate(TABLES):
        key = " NOT NULL PRIMARY KEY" if table not in connector.keyless else ""
        connector.ddl(100 + number, f"CREATE TABLE `{table}` (`id` INT{key}, `v` VARCHAR(20))", "CREATE", table)
    tables, changes = {table: Counter[Pair]() for table in TABLES}, list[Change]()
    for pos in range(200, 1400, 100):
        for _ in range(rng.randrange(1, 6)):
            table = rng.choice(TABLES)
            made = [*event(rng, tables[table], table not in connector.keyless)]
            changes += [
                change(pos, number, *row_change)._replace(table=table) for number, row_change in enumerate(made)
            ]
    at = begun = 0
    while at < len(changes):
        connector.send(*changes[at : (at := at + rng.randrange(1, 8))])
        if rng.random() < 0.3:
            connector.feed.apply()
        if rng.random() < 0.35:
            connector.restart()
            at = begun = max(begun, min(at, len(changes)) - rng.randrange(9))
    assert connector.reasons() == []
    for table in TABLES:
        lake_rows = connector.feed.lake.read(TableId("shop", table)).to_pylist()
        assert Counter((row["id"], row["v"]) for row in lake_rows) == +tables[table], table


def event(rng: Random, rows: Counter[Pair], has_key: bool) -> Iterator[tuple[str, Any, Any]]:
    """Change some rows of a table, all in one way."""
    op = rng.choice("cdu")
    for _ in range(rng.randrange(1, 4)):
        old = rng.choice(sorted((+rows).elements()) or [(-1, "")])
        new = (rng.randrange(6), rng.choice("xyz")) if op == "c" else (old[0], rng.choice("xyz"))
        is_there = old[0] >= 0 and new != old if op == "u" else old[0] >= 0 if op == "d" else True
        if not is_there or (op == "c" and has_key and any(key == new[0] for key, _ in +rows)):
            continue
        rows.update([new] if op != "d" else [])
        rows.subtract([old] if op != "c" else [])
        yield op, None if op == "c" else old, None if op == "d" else new


def test_a_change_that_cannot_follow_the_newest_one_of_its_key_is_a_copy() -> None:
    """A restart begins amid a transaction: the update again, of a row that the transaction deleted, proves nothing."""
    connector = Connector(True)
    sent = [*transaction(200, insert(A, B)), *transaction(300, [("u", A, (1, "x"))], delete((1, "x")), delete(B))]
    connector.send(*sent)
    connector.restart()
    connector.send(*sent[2:])
    assert connector.pairs() == Counter()
    assert connector.feed.landing.landed().ignored == {}


def test_a_replay_that_another_one_breaks_off_is_told_by_its_run() -> None:
    connector = Connector(False, "run-1")
    sent = transaction(200, insert(A), [("u", A, B)], insert(C))
    for stop in (3, 1, 2, 3):
        connector.send(*sent[:stop])
        connector.restart()
    assert connector.pairs() == Counter([B, C])


def test_a_restart_amid_more_rows_than_are_kept_holds_a_table_without_key(monkeypatch: pytest.MonkeyPatch) -> None:
    from cdc_assets.landing import groups

    monkeypatch.setattr(groups, "_MOST_ROWS", 2)
    connector = Connector(False, "run-1")
    sent = transaction(200, insert(A), insert(B), insert(C), insert(D))
    connector.send(*sent)
    connector.restart()
    connector.send(*sent[1:])
    reasons = connector.reasons()
    assert len(reasons) == 1
    assert "compressed transaction" in reasons[0]
