"""What a session with TiDB says and hears: fakes answer, since no TiDB comes as a package."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pymysql
import pytest

from cdc_assets.errors import BadSettings, BucketMissing, CdcError, InputError, MalformedDump, StorageUnavailable
from cdc_assets.sources import connect_server
from cdc_assets.sources.mysql_protocol.address import Address
from cdc_assets.sources.mysql_protocol.initial import _tables
from cdc_assets.sources.mysql_protocol.ranges import statement
from cdc_assets.sources.mysql_protocol.session import session

AT = 434217889191428107
ORDERS = b"CREATE TABLE `orders` (`a` varchar(9) NOT NULL, `b` int NOT NULL, PRIMARY KEY (`a`,`b`) %s)"
CLUSTERED, NOT_CLUSTERED = (b"/*T![clustered_index] %sCLUSTERED */" % word for word in (b"", b"NON"))

Rows = list[tuple[bytes | None, ...]]


class Tidb:
    """Answers like TiDB at a TSO; `answers` come before its own, a pattern of a query -> rows or an error."""

    def __init__(self, **answers: Rows | Exception) -> None:
        self.said: list[str] = []
        self.variables = {"time_zone": "SYSTEM", "tidb_snapshot": ""}
        self.answers: list[tuple[str, Rows | Exception | Callable[[], Rows]]] = [
            (pattern.replace("_", "."), rows) for pattern, rows in answers.items()
        ]

    def cursor(self, kind: type) -> Tidb:
        return self

    def __enter__(self) -> Tidb:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass

    def execute(self, sql: str) -> None:
        self.said.append(sql)
        self.rows = self._answer(sql)

    def fetchall(self) -> Rows:
        return self.rows

    def _answer(self, sql: str) -> Rows:
        for pattern, rows in self.answers:
            if re.search(pattern, sql):
                if isinstance(rows, Exception):
                    raise rows
                return list(rows() if callable(rows) else rows)
        if match := re.fullmatch(r"SET SESSION (\w+) = (.*)", sql):
            self.variables[match[1]] = match[2].strip("'")
            return []
        if match := re.fullmatch(r"SELECT @@SESSION\.(\w+)", sql):
            return [(self.variables[match[1]].encode(),)]
        if sql == "SELECT VERSION()":
            return [(b"8.0.11-TiDB-v8.5.4",)]
        if "LIKE 'tidb_snapshot'" in sql:
            return [(b"tidb_snapshot", b"")]
        if "mysql.tidb" in sql:
            raise pymysql.err.OperationalError(1142, "SELECT command denied to user 'reader'@'%' for table 'tidb'")
        raise AssertionError(sql)


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tidb]:
    def answer(**answers: Any) -> Tidb:
        tidb = Tidb(**answers)
        monkeypatch.setattr(pymysql, "connect", lambda **_: tidb)
        return tidb

    return answer


def ranges(**answers: Any) -> dict[str, Any]:
    return {
        "SHOW DATABASES": [(b"INFORMATION_SCHEMA",), (b"mysql",), (b"shop",)],
        "SHOW_FULL_TABLES": [(b"orders", b"BASE TABLE")],
        "SHOW_CREATE_TABLE": [(b"orders", ORDERS % CLUSTERED)],
        "SHOW_TABLE_STATUS": [(b"orders", b"InnoDB", b"10", b"Compact", b"100", b"10", b"1000")],
        **answers,
    }


def clauses() -> list[str]:
    _tables.cache_clear()
    source = connect_server("mysql://u@h", "", AT)
    (table,) = source.dump().tables
    start = "SELECT `a`, `b` FROM `shop`.`orders`"
    assert all(statement(file).startswith(start) for file in table.files)
    return [statement(file).removeprefix(start) for file in table.files]


def test_the_snapshot_is_set_last_and_behind_the_zone(answering: Callable[..., Tidb]) -> None:
    tidb = answering()
    with session(Address("h", 4000, "u"), AT) as opened:
        assert opened.is_tidb
    sets = [sql for sql in tidb.said if sql.startswith("SET")]
    assert sets[0] == "SET SESSION time_zone = '+00:00'"
    assert sets[-1] == f"SET SESSION tidb_snapshot = '{AT}'"


def test_a_variable_that_a_version_does_not_know_is_passed_over(answering: Callable[..., Tidb]) -> None:
    answering(tidb_read_staleness=pymysql.err.OperationalError(1193, "Unknown system variable"))
    with session(Address("h", 4000, "u"), AT) as opened:
        assert opened.is_tidb


def test_a_session_that_forgets_the_snapshot_is_not_read(answering: Callable[..., Tidb]) -> None:
    tidb = answering(**{"SELECT @@SESSION.tidb.snapshot": [(b"",)]})
    with pytest.raises(BadSettings, match="keeps the session from being set"), session(Address("h", 1, "u"), AT):
        pass
    assert not any("FROM" in sql for sql in tidb.said)


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        ((8055, "snapshot is older than GC safe point 2026-01-01"), BucketMissing, "no longer has the data of the TSO"),
        ((9006, "GC life time is shorter than transaction duration"), BucketMissing, "Create the changefeed first"),
        ((9005, "Region is unavailable"), StorageUnavailable, "Try again later"),
        ((8175, "Your query has been cancelled"), MalformedDump, "tidb_mem_quota_query"),
        ((1105, "cannot set read timestamp to a future time"), InputError, "future time"),
    ],
)
def test_what_tidb_refuses_is_reported(
    answering: Callable[..., Tidb], error: tuple[int, str], kind: type[CdcError], sentence: str
) -> None:
    answering(**{"SET SESSION tidb.snapshot": pymysql.err.OperationalError(*error)})
    with pytest.raises(kind, match=sentence), session(Address("h", 4000, "u"), AT):
        pass


def test_regions_are_the_ranges_of_a_clustered_key(answering: Callable[..., Tidb]) -> None:
    no_row_id = pymysql.err.OperationalError(1054, "Unknown column '_tidb_rowid' in 'field list'")
    regions = [(b"a", b"1"), (b"it's", b"-5"), (b"it's", b"7")]
    answering(**ranges(tidb_rowid=no_row_id, TABLESAMPLE=regions))
    order = " ORDER BY `a`, `b`"
    before = "`a` < 'it\\'s' OR (`a` = 'it\\'s' AND (`b` < {}))"
    behind = "`a` > 'it\\'s' OR (`a` = 'it\\'s' AND (`b` >= {}))"
    assert clauses() == [
        f" WHERE {before.format(-5)}{order}",
        f" WHERE ({behind.format(-5)}) AND ({before.format(7)}){order}",
        f" WHERE {behind.format(7)}{order}",
    ]


def test_a_table_that_is_not_clustered_is_read_by_its_row_id(answering: Callable[..., Tidb]) -> None:
    create = [(b"orders", ORDERS % NOT_CLUSTERED)]
    answering(**ranges(SHOW_CREATE_TABLE=create, TABLESAMPLE=[(b"1",), (b"30001",)], tidb_rowid=[]))
    assert clauses() == [
        " WHERE `_tidb_rowid` < 30001 ORDER BY `_tidb_rowid`",
        " WHERE `_tidb_rowid` >= 30001 ORDER BY `_tidb_rowid`",
    ]


def test_without_regions_to_ask_for_a_small_table_is_read_at_once(answering: Callable[..., Tidb]) -> None:
    too_old = pymysql.err.ProgrammingError(1064, "You have an error in your SQL syntax")
    answering(**ranges(TABLESAMPLE=too_old, tidb_rowid=[]))
    assert clauses() == [" ORDER BY `_tidb_rowid`"]


def test_finer_ranges_than_regions_are_steps_of_an_integer_key(answering: Callable[..., Tidb]) -> None:
    create = [(b"orders", b"CREATE TABLE `orders` (`b` int NOT NULL, PRIMARY KEY (`b`) %s)" % CLUSTERED)]
    no_row_id = pymysql.err.OperationalError(1054, "Unknown column '_tidb_rowid' in 'field list'")
    size = [(b"orders", b"InnoDB", b"10", b"Compact", b"100", b"10", b"3000")]
    given = {"SHOW_CREATE_TABLE": create, "SHOW_TABLE_STATUS": size, "MIN": [(b"1", b"90")]}
    tidb = answering(**ranges(tidb_rowid=no_row_id, **given))
    (table,) = connect_server("mysql://u@h", "", AT, range_bytes=3000).dump().tables
    assert [statement(file).partition(" WHERE ")[2].partition(" ORDER")[0] for file in table.files] == [
        "`b` < 31", "(`b` >= 31) AND (`b` < 61)", "`b` >= 61",
    ]  # fmt: skip
    assert not any("TABLESAMPLE" in sql for sql in tidb.said)
