"""DDL of MySQL's and MariaDB's connectors: in either sql_mode, by the server's own rules, and never without a word."""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pymysql
import pytest

from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import HoldTable
from cdc_assets.operations.release import release
from cdc_assets.settings.sections import TableSettings
from cdc_assets_tests.binlog_connector import BinlogConnector, Change
from cdc_assets_tests.mariadb import PASSWORD, USER, Server
from cdc_assets_tests.types.test_conversions_of_servers import plain

FIRST = Change(200, 0, "c", None, {"id": 1, "v": "a"})


def test_names_in_double_quotes_are_read_as_names() -> None:
    connector = BinlogConnector(
        'CREATE TABLE "t" (\n  "id" int NOT NULL,\n  "v" varchar(10) DEFAULT \'x\', PRIMARY KEY ("id"))'
    )
    connector.send(FIRST)
    connector.ddl(300, 'ALTER TABLE "shop"."t" ADD COLUMN "w" int DEFAULT 7')
    assert connector.apply() == [{"id": 1, "v": "a", "w": 7}]


@pytest.mark.parametrize(
    "text", ["CREATE TABLE t? (id int)", "CREATE OR REPLACE TABLE 1 + 1", "CREATE TABLE t (id FROBNICATE)"]
)
def test_a_create_table_that_cannot_be_read_holds_the_table_of_its_message(text: str) -> None:
    connector = BinlogConnector()
    connector.ddl(90, "DROP TABLE IF EXISTS `shop`.`t`", "DROP")
    connector.ddl(100, text, "CREATE")
    connector.send(FIRST)
    reasons = connector.reasons()
    assert len(reasons) == 1
    assert text in reasons[0]


def test_a_rename_that_cannot_be_read_holds_the_table_of_its_message() -> None:
    connector = BinlogConnector("CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(9))")
    connector.send(FIRST)
    connector.apply()
    connector.ddl(300, "RENAME TABLE `t` `u`", table="u")
    connector.send(Change(400, 0, "u", {"id": 1, "v": "a"}, {"id": 1, "v": "b"}))
    assert any("RENAME TABLE `t` `u`" in reason for reason in connector.reasons())


def test_rows_behind_the_drop_of_their_table_are_told() -> None:
    connector = BinlogConnector("CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(9))")
    connector.send(FIRST)
    connector.apply()
    connector.ddl(300, "DROP TABLE `t`", "DROP")
    connector.send(Change(400, 0, "c", None, {"id": 2, "v": "b"}))
    reasons = connector.reasons()
    assert len(reasons) == 1
    assert "shop.t has rows" in reasons[0]
    assert "schemas" in reasons[0]


@pytest.mark.parametrize(
    "text", ["ALTER TABLE `t` ADD COLUMN `w` int", "TRUNCATE TABLE `t`", "CREATE INDEX i ON `t` (`v`)"]
)
def test_rows_behind_the_ddl_of_a_table_of_unknown_columns_are_told(text: str) -> None:
    connector = BinlogConnector()
    connector.ddl(100, text)
    connector.send(FIRST)
    (reason,) = connector.reasons()
    assert f"shop.t has rows behind {text}" in reason
    assert "schemas" in reason


MADE, TEXT = "CREATE TABLE `t` (`id` INT PRIMARY KEY)", "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` TEXT)"


@pytest.mark.parametrize(
    ("database", "made", "charset", "held"),
    [
        ("", [TEXT], "utf8mb4", ""),
        ("", [TEXT], "latin1", "the bytes of latin1"),
        ("", [f"{TEXT} CHARSET utf8mb3"], "utf8mb3", ""),
        ("", [f"{TEXT} CHARSET cp1251"], "", "the bytes of cp1251"),
        ("CREATE DATABASE `shop` CHARSET cp1251", [TEXT], "", "the bytes of cp1251"),
        ("", [MADE, "ALTER TABLE `t` DEFAULT CHARSET cp1251, ADD `v` TEXT"], "", "the bytes of cp1251"),
    ],
)
def test_bytes_of_a_text_are_those_of_its_charset_whoever_tells_it(
    database: str, made: list[str], charset: str, held: str
) -> None:
    connector = BinlogConnector(charset=charset)
    if database:
        connector.ddl(90, database, "CREATE", "")
    for number, text in enumerate(made):
        connector.ddl(100 + number, text, text.partition(" ")[0])
    connector.send(Change(200, 0, "c", None, {"id": 1, "v": "é"}))
    connector.apply()
    connector.ddl(300, "ALTER TABLE `t` MODIFY `v` BLOB")
    reasons = connector.reasons()
    assert [held in reason for reason in reasons] == ([True] if held else [])
    assert held or connector.rows == [{"id": 1, "v": "é".encode()}]


def test_addresses_of_mariadb_are_texts() -> None:
    connector = BinlogConnector("CREATE TABLE `t` (`id` INT PRIMARY KEY, `a` INET6, `b` INET4)", server="mariadb")
    connector.send(Change(200, 0, "c", None, {"id": 1, "a": "::1", "b": "10.0.0.1"}))
    assert connector.apply() == [{"id": 1, "a": "::1", "b": "10.0.0.1"}]


NUMBERS = "550e8400-e29b-41d4-a716-446655440000"


@pytest.mark.parametrize(
    ("added", "value"),
    [
        ("UUID NOT NULL", "00000000-0000-0000-0000-000000000000"),
        ("INET6 NOT NULL", "::"),
        ("INET4 NOT NULL", "0.0.0.0"),
        ("UUID DEFAULT '550E8400E29B41D4A716446655440000'", NUMBERS),
        ("UUID DEFAULT x'550E8400E29B41D4A716446655440000'", NUMBERS),
        ("INET6 DEFAULT '2001:DB8::0001'", "2001:db8::1"),
        ("INET6 DEFAULT '1.2.3.4'", "::ffff:1.2.3.4"),
        ("INET4 DEFAULT x'01020304'", "1.2.3.4"),
    ],
)
def test_old_rows_have_a_uuid_or_address_as_mariadb_prints_it(added: str, value: str) -> None:
    connector = BinlogConnector("CREATE TABLE `t` (`id` INT PRIMARY KEY)", server="mariadb")
    connector.send(Change(200, 0, "c", None, {"id": 1}))
    connector.apply()
    connector.ddl(300, f"ALTER TABLE `t` ADD `a` {added}")
    assert connector.apply() == [{"id": 1, "a": value}]


SECONDS = datetime(2020, 1, 2, 3, 4, 5)
DEFAULTS: list[tuple[str, Any, Any]] = [  # of MariaDB, of MySQL
    ("DOUBLE(5,2) DEFAULT 1.005", 1.0, 1.0),  # the double is less
    ("DOUBLE(5,2) DEFAULT '2.675'", 2.67, 2.67),
    ("DOUBLE(5,2) UNSIGNED DEFAULT 0.125", 0.12, 0.12),  # half to even
    ("DOUBLE(5,2) DEFAULT -0.125", -0.12, -0.12),
    ("DOUBLE(5,2) DEFAULT 1.115", 1.12, 1.12),
    ("DOUBLE(8,0) DEFAULT 3.5", 3.0, 3.0),  # of what is above 3
    ("DOUBLE(8,0) DEFAULT -2.5", -3.0, -3.0),
    ("FLOAT(5,0) ZEROFILL DEFAULT 2.5", 2.0, 2.0),
    ("DOUBLE DEFAULT 1.005", 1.005, 1.005),
    ("DECIMAL(5,2) DEFAULT 1.005", Decimal("1.01"), Decimal("1.01")),
    ("DECIMAL(5,2) UNSIGNED DEFAULT '0.125'", Decimal("0.13"), Decimal("0.13")),
    ("INT(3) ZEROFILL DEFAULT 2.5", 3, 3),
    ("CHAR(5) DEFAULT 'ab  '", "ab", "ab"),
    ("VARCHAR(5) DEFAULT 'ab  '", "ab  ", "ab  "),
    ("VARCHAR(5) DEFAULT 1e3", "1000", "1000"),
    ("CHAR(5) DEFAULT -0001.50", "-1.50", "-1.50"),
    ("BINARY(4) DEFAULT 'a'", b"a\0\0\0", b"a\0\0\0"),
    ("BIT(8) DEFAULT b'101'", 5, 5),
    ("DATETIME DEFAULT '2020-01-02 03:04:05.678'", SECONDS, SECONDS.replace(second=6)),
    (
        "DATETIME(1) DEFAULT 20200102030405.678",
        SECONDS.replace(microsecond=600_000),
        SECONDS.replace(microsecond=700_000),
    ),
    ("DATE DEFAULT '2020-01-02 03:04:05.9'", SECONDS.date(), SECONDS.date()),
    ("TIME DEFAULT '-12:34:56.5'", "-12:34:56", "-12:34:57"),
    ("TIME(1) DEFAULT 12.56", "00:00:12.5", "00:00:12.6"),
    ("YEAR DEFAULT '0'", 2000, 2000),
    ("YEAR DEFAULT 0", 0, 0),
    ("ENUM('a','b') DEFAULT 'B '", "b", "b"),
    ("SET('a','b') DEFAULT 'B,a '", "a,b", "a,b"),
]


@pytest.mark.parametrize(("added", "of_mariadb", "of_mysql"), DEFAULTS, ids=[added for added, *_ in DEFAULTS])
def test_old_rows_have_a_default_as_its_server_rounds_cuts_and_pads_it(
    added: str, of_mariadb: object, of_mysql: object
) -> None:
    for server, value in (("mariadb", of_mariadb), ("mysql", of_mysql)):
        connector = BinlogConnector("CREATE TABLE `t` (`id` INT PRIMARY KEY)", server=server)
        connector.send(Change(200, 0, "c", None, {"id": 1}))
        connector.apply()
        connector.ddl(300, f"ALTER TABLE `t` ADD `a` {added}")
        assert connector.apply() == [{"id": 1, "a": value}]


@pytest.mark.soak
def test_mariadb_gives_old_rows_these_defaults(mariadb: Server) -> None:
    login = {"host": "127.0.0.1", "port": mariadb.port, "user": USER, "password": PASSWORD.encode()}
    with pymysql.connect(**login, autocommit=True, charset="utf8mb4") as connection:
        cursor = connection.cursor()
        for statement in ("CREATE OR REPLACE DATABASE defaults", "USE defaults", "SET time_zone = '+00:00'"):
            cursor.execute(statement)
        for added, value, _ in DEFAULTS:
            cursor.execute("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)")
            cursor.execute("INSERT INTO t VALUES (1)")
            cursor.execute(f"ALTER TABLE t ADD a {added}")
            cursor.execute("SELECT a FROM t")
            kind = added.partition(" ")[0].partition("(")[0]
            assert plain(cursor.fetchone()[0], kind) == plain(value, kind), added


@pytest.mark.parametrize(
    ("old", "sent", "new", "kept"),
    [
        ("CHAR(32)", "550E8400E29B41D4A716446655440000", "UUID", NUMBERS),  # as Django 5 asks for
        ("BINARY(16)", "VQ6EAOKbQdSnFkRmVUQAAA==", "UUID", NUMBERS),
        ("UUID", NUMBERS, "VARCHAR(36)", NUMBERS),
        ("UUID", NUMBERS, "BINARY(16)", uuid.UUID(NUMBERS).bytes),
        ("INET6", "::1", "VARBINARY(20)", b"\0" * 15 + b"\1"),
        ("INET4", "1.2.3.4", "INET6", "::ffff:1.2.3.4"),
        ("INET4", "1.2.3.4", "BINARY(6)", b"\1\2\3\4\0\0"),
        ("TEXT", "2001:DB8:0:0::1", "INET6", "2001:db8::1"),
    ],
)
def test_uuids_and_addresses_of_mariadb_become_bytes_and_texts_as_it_reads_and_prints_them(
    old: str, sent: str, new: str, kept: str | bytes
) -> None:
    connector = BinlogConnector(f"CREATE TABLE `t` (`id` INT PRIMARY KEY, `a` {old})", server="mariadb")
    connector.send(Change(200, 0, "c", None, {"id": 1, "a": sent}))
    connector.apply()
    connector.ddl(300, f"ALTER TABLE `t` MODIFY `a` {new}")
    assert connector.apply() == [{"id": 1, "a": kept}]


NOT_NULL: list[tuple[str, str, Any]] = [
    ("INT", "INT", 0),
    ("INT", "BIGINT", 0),
    ("INT", "VARCHAR(5)", ""),
    ("CHAR(3)", "CHAR(3)", ""),
    ("DECIMAL(5,2)", "DECIMAL(5,2)", Decimal("0.00")),
    ("BIT(1)", "BIT(1)", False),
    ("YEAR", "YEAR", 0),
    ("ENUM('a','b')", "ENUM('a','b')", ""),
    ("TIME(2)", "TIME(2)", "00:00:00.00"),
    ("BINARY(3)", "BINARY(3)", b"\0\0\0"),
    ("TEXT", "TEXT", ""),
    ("DATE", "DATE", None),  # a zero date
]


@pytest.mark.parametrize("server", ["mysql", "mariadb"])
@pytest.mark.parametrize(("old", "new", "kept"), NOT_NULL)
def test_null_becomes_what_a_server_that_is_not_strict_writes_for_it(
    old: str, new: str, kept: object, server: str
) -> None:
    connector = BinlogConnector(f"CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` {old})", server=server)
    connector.send(Change(200, 0, "c", None, {"id": 1, "v": None}))
    connector.apply()
    connector.ddl(300, f"ALTER TABLE `t` MODIFY `v` {new} NOT NULL")
    assert connector.apply() == [{"id": 1, "v": kept}]


def test_null_that_becomes_the_time_of_the_ddl_holds_the_table() -> None:
    connector = BinlogConnector("CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` TIMESTAMP NULL)", server="mariadb")
    connector.send(Change(200, 0, "c", None, {"id": 1, "v": None}))
    connector.apply()
    connector.ddl(300, "ALTER TABLE `t` MODIFY `v` TIMESTAMP NOT NULL")
    (reason,) = connector.reasons()
    assert "the time at which the DDL ran in place of NULL" in reason


@pytest.mark.soak
def test_mariadb_writes_these_values_in_place_of_null(mariadb: Server) -> None:
    login = {"host": "127.0.0.1", "port": mariadb.port, "user": USER, "password": PASSWORD.encode()}
    with pymysql.connect(**login, autocommit=True, charset="utf8mb4") as connection:
        cursor = connection.cursor()
        for statement in ("CREATE OR REPLACE DATABASE nulls", "USE nulls", "SET sql_mode = ''"):
            cursor.execute(statement)
        for old, new, value in NOT_NULL:
            cursor.execute(f"CREATE OR REPLACE TABLE t (v {old} NULL)")
            cursor.execute("INSERT INTO t VALUES (NULL)")
            cursor.execute(f"ALTER TABLE t MODIFY v {new} NOT NULL")
            cursor.execute("SELECT v FROM t")
            kind, real = new.partition("(")[0], cursor.fetchone()[0]
            assert real == "0000-00-00" if value is None else plain(real, kind) == plain(value, kind), new


@pytest.mark.parametrize("server", ["mysql", "mariadb"])
@pytest.mark.parametrize(
    ("old", "sent", "new", "kept"),
    [
        ("INT(5) ZEROFILL", 7, "CHAR(5)", "00007"),
        ("SMALLINT ZEROFILL", 7, "TEXT", "00007"),
        ("INT(5) ZEROFILL", 123456, "VARCHAR(9)", "123456"),
        ("DECIMAL(6,2) ZEROFILL", "AiY=", "VARCHAR(9)", "0005.50"),
        ("INT(5)", 7, "CHAR(5)", "7"),
    ],
)
def test_a_number_that_is_filled_with_zeros_becomes_a_text_with_them(
    old: str, sent: object, new: str, kept: str, server: str
) -> None:
    connector = BinlogConnector(f"CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` {old})", server=server)
    connector.send(Change(200, 0, "c", None, {"id": 1, "v": sent}))
    connector.apply()
    connector.ddl(300, f"ALTER TABLE `t` MODIFY `v` {new}")
    assert connector.apply() == [{"id": 1, "v": kept}]


@pytest.mark.parametrize(("server", "kept"), [("mariadb", '{"b":1,"a":2,"a":10.50}'), ("mysql", '{"a": 10.5, "b": 1}')])
def test_a_text_that_becomes_json_stays_in_mariadb_byte_for_byte(server: str, kept: str) -> None:
    connector = BinlogConnector("CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(40))", server=server)
    connector.send(Change(200, 0, "c", None, {"id": 1, "v": '{"b":1,"a":2,"a":10.50}'}))
    connector.apply()
    connector.ddl(300, "ALTER TABLE `t` MODIFY `v` JSON NOT NULL")
    assert connector.apply() == [{"id": 1, "v": kept}]


@pytest.mark.parametrize("server", ["mariadb", "mysql"])
def test_a_change_of_type_that_a_server_carries_out_otherwise_holds_the_table(server: str) -> None:
    connector = BinlogConnector("CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` DATETIME(3))", server=server)
    connector.send(Change(200, 0, "c", None, {"id": 1, "v": 1_582_979_445_678}))
    connector.apply()
    connector.ddl(300, "ALTER TABLE `t` MODIFY `v` DATETIME")
    reasons = connector.reasons()
    assert [("MariaDB" in reason and "sql_mode" in reason) for reason in reasons] == [True] * (server == "mariadb")


def test_bytes_by_another_name_and_a_period_of_system_time() -> None:
    connector = BinlogConnector(
        "CREATE TABLE `t` (`id` INT, `b` CHAR(4) BYTE, `s` TIMESTAMP(6) GENERATED ALWAYS AS ROW START, "
        "`e` TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PRIMARY KEY (`id`), PERIOD FOR SYSTEM_TIME (`s`, `e`)) "
        "WITH SYSTEM VERSIONING",
        server="mariadb",
    )
    moments = {"s": "2025-01-01T00:00:00Z", "e": "2038-01-19T03:14:07.999999Z"}
    connector.send(Change(200, 0, "c", None, {"id": 1, "b": "AAECAw==", **moments}))
    (row,) = connector.apply()
    assert row["b"] == bytes(range(4))
    assert [row[name].isoformat()[:19] for name in "se"] == ["2025-01-01T00:00:00", "2038-01-19T03:14:07"]


NOW, PAST = "2038-01-19T03:14:07.999999Z", "2026-11-28T22:59:36.154505Z"


@pytest.mark.parametrize("key", ["`id`", "`id`,`e`"])
def test_rows_of_a_table_with_system_versioning_are_those_of_now(key: str) -> None:
    """Events as MariaDB 11.4 logs them: a DELETE ends a row, and an UPDATE inserts the one that was there before it."""
    connector = BinlogConnector(
        "CREATE TABLE `t` (`id` INT, `v` VARCHAR(9), `s` TIMESTAMP(6) GENERATED ALWAYS AS ROW START, "
        f"`e` TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PRIMARY KEY ({key}), PERIOD FOR SYSTEM_TIME (`s`, `e`)) "
        "WITH SYSTEM VERSIONING",
        server="mariadb",
    )

    def row(number: int, v: str, end: str = NOW) -> dict[str, object]:
        return {"id": number, "v": v, "s": "2026-11-28T22:59:36Z", "e": end}

    connector.send(*(Change(200, n, "c", None, row(n, v)) for n, v in enumerate("abc")))
    connector.apply()
    connector.send(Change(300, 0, "u", row(0, "a"), row(0, "x")), Change(301, 0, "c", None, row(0, "a", PAST)))
    connector.send(Change(400, 0, "u", row(1, "b"), row(1, "b", PAST)), Change(500, 0, "d", row(0, "a", PAST), None))
    assert sorted(row["v"] for row in connector.apply()) == ["c", "x"]


def _end(year: int, month: int, day: int, hour: int, minute: int, second: int) -> dict[str, int]:
    clock = {"hour": hour, "minute": minute, "second": second, "nanos": 999999000, "offsetSeconds": 0}
    return {"year": year, "month": month, "day": day, **clock}


@pytest.mark.parametrize(
    ("kind", "modes", "now", "past"),
    [
        ("TIMESTAMP(6)", {"time.precision.mode": "structured"}, _end(2038, 1, 19, 3, 14, 7), _end(2026, 1, 1, 0, 0, 0)),
        ("TIMESTAMP(6)", {}, "2038-01-19T04:14:07.999999+01:00", "2026-01-01T00:00:00Z"),
        ("TIMESTAMP(6)", {}, "2106-02-07T06:28:15.999999Z", "2026-01-01T00:00:00Z"),
        ("BIGINT UNSIGNED", {}, -1, 1234),
        ("BIGINT UNSIGNED", {"bigint.unsigned.handling.mode": "precise"}, "AP//////////", "BA=="),
        ("BIGINT UNSIGNED", {"bigint.unsigned.handling.mode": "precise"}, 18446744073709551615, 1234),
    ],
)
def test_the_end_of_a_row_of_now_is_known_however_it_is_written(
    kind: str, modes: dict[str, str], now: object, past: object, tmp_path: Path
) -> None:
    config = {"connector.class": "io.debezium.connector.mariadb.MariaDbConnector", "topic.prefix": "my", **modes}
    (tmp_path / "connector.json").write_text(json.dumps(config))
    connector = BinlogConnector(
        f"CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(9), `s` {kind} GENERATED ALWAYS AS ROW START, "
        f"`e` {kind} GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (`s`, `e`)) WITH SYSTEM VERSIONING",
        config=tmp_path / "connector.json",
        server="mariadb",
    )

    def row(number: int, v: str, end: object = now) -> dict[str, object]:
        return {"id": number, "v": v, "s": past, "e": end}

    connector.send(Change(200, 0, "c", None, row(0, "a")), Change(201, 0, "c", None, row(1, "b")))
    connector.send(Change(300, 0, "u", row(0, "a"), row(0, "x")), Change(301, 0, "c", None, row(0, "a", past)))
    connector.send(Change(400, 0, "u", row(1, "b"), row(1, "b", past)))
    assert [row["v"] for row in connector.apply()] == ["x"]
    connector.send(Change(500, 0, "d", row(0, "a", past), None))  # DELETE HISTORY, the only change of its window
    assert [row["v"] for row in connector.apply()] == ["x"]


@pytest.mark.parametrize("replaces", ["true", "false", ""])
def test_a_value_is_the_default_of_its_column_unless_the_converter_sends_null_as_null(
    replaces: str, tmp_path: Path
) -> None:
    config = {"connector.class": "io.debezium.connector.mariadb.MariaDbConnector", "topic.prefix": "my"}
    config |= {"value.converter.replace.null.with.default": replaces} if replaces else {}
    (tmp_path / "connector.json").write_text(json.dumps(config))
    connector = BinlogConnector(
        "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(9) DEFAULT '')", config=tmp_path / "connector.json"
    )
    connector.send(Change(200, 0, "c", None, {"id": 1, "v": ""}), Change(201, 0, "c", None, {"id": 2, "v": None}))
    outcome = connector.feed.apply()
    assert [row["v"] for row in connector.rows] == ["", None]
    assert ("the default of its column" in repr(outcome)) == (replaces != "false")


# --- tables that get system versioning --------------------------------------------------------------------------------

PERIOD = (
    "ADD COLUMN `s` TIMESTAMP(6) GENERATED ALWAYS AS ROW START, "
    "ADD COLUMN `e` TIMESTAMP(6) GENERATED ALWAYS AS ROW END, "
    "ADD PERIOD FOR SYSTEM_TIME(`s`, `e`), ADD SYSTEM VERSIONING"
)


def held(connector: BinlogConnector) -> tuple[int, str]:
    """Return the version at which the table is held, and why."""
    connector.feed.apply()
    (step,) = (step for step in connector.feed.pipeline().planner.plan()[1].steps if isinstance(step, HoldTable))
    return step.at, f"{step.reason} {step.ways}"


def versioned_row(number: int, v: str, end: str = NOW) -> dict[str, object]:
    return {"id": number, "v": v, "s": "2026-11-28T22:59:36Z", "e": end}


def test_a_table_that_gets_a_visible_period_goes_on_without_it_in_older_rows() -> None:
    connector = BinlogConnector("CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(9))", server="mariadb")
    connector.send(FIRST, Change(201, 0, "c", None, {"id": 2, "v": "b"}))
    connector.apply()
    connector.ddl(300, f"ALTER TABLE `t` {PERIOD}")
    version, reason = held(connector)
    assert "a ROW START and a ROW END, which no event has" in reason
    release(connector.feed.pipeline(), "shop.t", version, "skip")
    old = {"id": 1, "v": "a"}
    connector.send(Change(400, 0, "u", versioned_row(1, "a"), versioned_row(1, "x")))
    connector.send(Change(401, 0, "c", None, versioned_row(1, "a", PAST)))
    assert old not in connector.apply()
    rows = {row["id"]: (row["v"], row["e"] is None) for row in connector.rows}
    assert rows == {1: ("x", False), 2: ("b", True)}
    drops = "DROP COLUMN `s`, DROP COLUMN `e`, DROP PERIOD FOR SYSTEM_TIME, DROP SYSTEM VERSIONING"
    connector.ddl(500, f"ALTER TABLE `t` {drops}")
    connector.send(Change(600, 0, "d", {"id": 2, "v": "b"}, None))
    assert connector.apply() == [{"id": 1, "v": "x"}]


PLAIN = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(9))"
VERSIONED = f"{PLAIN} WITH SYSTEM VERSIONING"
A_DELETE = Change(400, 0, "u", {"id": 1, "v": "a"}, {"id": 1, "v": "a"})
"""What MariaDB's log has of the DELETE of a row in a table with system versioning."""


def test_a_table_whose_former_rows_cannot_be_told_is_held_until_it_has_a_visible_period() -> None:
    connector = BinlogConnector(PLAIN, server="mariadb")
    connector.send(FIRST)
    connector.apply()
    connector.ddl(300, "ALTER TABLE `t` ADD SYSTEM VERSIONING")
    version, reason = held(connector)
    assert "cannot be told from others" in reason
    connector.send(A_DELETE)
    connector.ddl(500, "ALTER TABLE `t` DROP SYSTEM VERSIONING")
    connector.ddl(600, f"ALTER TABLE `t` {PERIOD}")
    release(connector.feed.pipeline(), "shop.t", version, "skip")
    later, _ = held(connector)
    release(connector.feed.pipeline(), "shop.t", later, "rebuild")
    connector.send(Change(700, 0, "r", None, versioned_row(2, "b"), snapshot="incremental"))
    assert [row["v"] for row in connector.apply()] == ["b"]


@pytest.mark.parametrize("made", [VERSIONED, VERSIONED.replace("VARCHAR(9)) WITH", "VARCHAR(9) WITH") + ")"])
@pytest.mark.parametrize("change", [A_DELETE, Change(400, 0, "d", {"id": 1, "v": "a"}, None)])
def test_a_table_with_invisible_versions_has_its_rows_until_one_of_them_changes(made: str, change: Change) -> None:
    connector = BinlogConnector(made, server="mariadb")
    connector.send(FIRST)
    assert connector.apply() == [{"id": 1, "v": "a"}]
    connector.send(change)
    (reason,) = connector.reasons()
    assert "former versions as inserts, which cannot be told from others" in reason
    connector.feed.apply()
    assert connector.rows == [{"id": 1, "v": "a"}]
    without = TableSettings(exclude=("shop.t",))
    connector.feed.settings = connector.feed.settings.model_copy(update={"tables": without})
    assert connector.reasons() == []


def test_a_table_that_loses_its_versions_goes_on() -> None:
    connector = BinlogConnector(VERSIONED, server="mariadb")
    connector.send(FIRST)
    connector.ddl(300, "ALTER TABLE `t` DROP SYSTEM VERSIONING")
    connector.send(Change(400, 0, "u", {"id": 1, "v": "a"}, {"id": 1, "v": "b"}))
    assert connector.apply() == [{"id": 1, "v": "b"}]


@pytest.mark.parametrize("clause", ["ADD PERIOD FOR `p` (`a`, `b`)", "DROP PERIOD FOR `p`", "DROP SYSTEM VERSIONING"])
def test_a_period_of_the_application_leaves_rows_as_they_are(clause: str) -> None:
    connector = BinlogConnector("CREATE TABLE `t` (`id` INT PRIMARY KEY, `a` DATE, `b` DATE)", server="mariadb")
    connector.send(Change(200, 0, "c", None, {"id": 1, "a": 1, "b": 2}))
    connector.ddl(300, f"ALTER TABLE `t` {clause}")
    assert [row["id"] for row in connector.apply()] == [1]


KEYED = "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(9))"


def after(text: str, server: str = "mysql", table: str = "t", kind: str = "ALTER") -> BinlogConnector:
    """Return a connector whose table with one row has changed by a DDL."""
    connector = BinlogConnector(KEYED, server=server)
    connector.send(FIRST)
    connector.apply()
    connector.ddl(300, text, kind, table)
    return connector


@pytest.mark.parametrize(
    ("text", "added"),
    [
        (r"ADD `a` VARCHAR(9) DEFAULT 'it\'s', ADD `b` VARCHAR(9) DEFAULT 'he\'s'", {"a": "it's", "b": "he's"}),
        (r"ADD `a` VARCHAR(9) DEFAULT '\\', ADD `b` VARCHAR(9) DEFAULT '\\N'", {"a": "\\", "b": "\\N"}),
        (r"ADD `a` VARCHAR(9) DEFAULT '\'' COMMENT '\', ADD `z` INT'", {"a": "'"}),
        (r'ADD `a` VARCHAR(9) DEFAULT "\"\n\t\0\%"', {"a": '"\n\t\0\\%'}),
        (r"ADD `a` ENUM('it\'s','c\\d') DEFAULT 'c\\d'", {"a": "c\\d"}),
        (r"ADD `a` INT COMMENT 'it\'s' /*!80000 DEFAULT 5 */, ADD `b` INT COMMENT 'he\'s'", {"a": 5, "b": None}),
    ],
)
@pytest.mark.parametrize("server", ["mysql", "mariadb"])
def test_texts_of_a_ddl_have_the_escapes_of_the_server(text: str, added: dict[str, object], server: str) -> None:
    if server == "mariadb":
        text = text.replace("/*!80000", "/*M!100100")
    assert after(f"ALTER TABLE `t` {text}", server).apply() == [{"id": 1, "v": "a", **added}]


@pytest.mark.parametrize("table", ["t", ""])
@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("ALTER TABLE `t` ADD `w` INT DEFAULT 3", [{"id": 1, "v": "a", "w": 3}]),
        ("ALTER TABLE `shop`.`t` ADD `w` INT DEFAULT 3", [{"id": 1, "v": "a", "w": 3}]),
        ("ALTER TABLE `t` DROP COLUMN `v`", [{"id": 1}]),
        ("TRUNCATE TABLE `t`", []),
        ("CREATE OR REPLACE TABLE `t` (`id` INT PRIMARY KEY)", []),
        ("SET STATEMENT max_statement_time=1, sql_mode='x FOR y' FOR TRUNCATE `t`", []),
        ("set statement lock_wait_timeout=5 for ALTER TABLE t ADD `w` INT DEFAULT 3", [{"id": 1, "v": "a", "w": 3}]),
        ("ALTER TABLE `t` ADD `w` INT /*M!100000 DEFAULT 3 */ /*!80023 INVISIBLE, DROP `v` */",
         [{"id": 1, "v": "a", "w": 3}]),
    ],
)  # fmt: skip
def test_a_ddl_of_mariadb_is_followed_whether_its_message_names_the_table_or_not(
    text: str, rows: list[dict[str, object]], table: str
) -> None:
    """A connector names no table in what its parser passes over (`schema.history.internal.skip.unparseable.ddl`)."""
    assert after(text, "mariadb", table).apply() == rows


@pytest.mark.parametrize("text", ["DROP TABLE `t`", "DROP TABLE IF EXISTS `x`, `shop`.`t`", "DROP TABLES t"])
@pytest.mark.parametrize("server", ["mysql", "mariadb"])
def test_a_drop_whose_message_names_no_table_is_of_those_in_its_text(text: str, server: str) -> None:
    connector = after(text, server, table="", kind="DROP")
    assert connector.reasons() == []
    assert connector.feed.lake.names() == set()


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE `t` FROBNICATE",
        "ALTER TABLE `t` ADD `w` FROB",
        "ALTER TABLE `t` IMPORT TABLESPACE",
        "ALTER TABLE `t` ADD `w` INT /* to be",
        "/* it's */ alter online table if exists shop . t COMMENT 'no end",
        'TRUNCATE TABLE `t` "',
        "DROP TABLE IF EXISTS t, 'x",
    ],
)
def test_a_ddl_that_nobody_can_read_holds_the_table_that_it_names(text: str) -> None:
    (reason,) = after(text, table="").reasons()
    assert text in reason


@pytest.mark.parametrize("name", ['t"1', '"', "t\\n", 'a"."b', "x.y", "ü"])
def test_names_of_tables_are_read_as_the_connector_quotes_them(name: str) -> None:
    connector = BinlogConnector()
    quoted = name.replace('"', '""')
    connector.ddl(100, f"CREATE TABLE `{name}` (`id` INT PRIMARY KEY, `v` VARCHAR(9))", "CREATE", quoted)
    connector.send(FIRST._replace(table=name))
    assert connector.reasons() == []
    assert connector.feed.lake.read(TableId("shop", name)).column("v").to_pylist() == ["a"]


@pytest.mark.parametrize("table", ["t", ""])
@pytest.mark.parametrize(
    "text",
    [
        "CREATE TEMPORARY TABLE `t` (`x` INT)",
        "CREATE TEMPORARY TABLE IF NOT EXISTS `t` LIKE `t`",
        "CREATE OR REPLACE TEMPORARY TABLE `shop`.`t` SELECT 1",
        "DROP TEMPORARY TABLE `t`",
        "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `t` /* generated by server */",
    ],
)
def test_a_temporary_table_changes_none_of_the_lake(text: str, table: str) -> None:
    assert after(text, table=table).apply() == [{"id": 1, "v": "a"}]


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE IF NOT EXISTS `t` (`x` INT)",
        "ALTER TABLE IF EXISTS `nope` ADD `w` INT",
        "DROP VIEW IF EXISTS `t`",
        "CREATE TRIGGER a BEFORE INSERT ON `t` FOR EACH ROW TRUNCATE `t`",
        "CREATE PROCEDURE p() BEGIN DROP TABLE `t`; END",
        "INSERT INTO `t` VALUES (2, 'b')",
        "OPTIMIZE TABLE `t`",
        "SET STATEMENT max_statement_time=1 FOR ANALYZE TABLE `t`",
    ],
)
def test_what_changes_no_table_changes_none_where_its_message_names_none(text: str) -> None:
    assert after(text, "mariadb", table="").apply() == [{"id": 1, "v": "a"}]


@pytest.mark.parametrize("server", ["mysql", "mariadb"])
@pytest.mark.parametrize("text", ["LIKE `u`", "(LIKE u)", "(`id` INT PRIMARY KEY, `v` VARCHAR(9))"])
def test_a_table_that_is_there_keeps_its_rows_when_it_is_created_if_it_is_not(text: str, server: str) -> None:
    """The servers log such a statement in any case; Debezium names the table that is made LIKE another."""
    connector = after(f"CREATE TABLE IF NOT EXISTS `t` {text}", server)
    connector.send(Change(400, 0, "c", None, {"id": 2, "v": "b"}))
    assert connector.apply() == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    connector.ddl(500, "DROP TABLE `t`", "DROP")
    connector.ddl(510, "CREATE TABLE IF NOT EXISTS `t` (`id` INT PRIMARY KEY)", "CREATE")
    connector.send(Change(520, 0, "c", None, {"id": 3}))
    assert connector.apply() == [{"id": 3}]


def test_the_short_name_of_a_collection_of_geometries_is_its_type() -> None:
    point = "AQEAAAAAAAAAAADwPwAAAAAAAABA"
    connector = BinlogConnector("CREATE TABLE `t` (`id` INT PRIMARY KEY, `g` geomcollection)")
    connector.send(Change(200, 0, "c", None, {"id": 1, "g": {"wkb": point, "srid": None}}))
    assert [len(row["g"]) for row in connector.apply()] == [21]
