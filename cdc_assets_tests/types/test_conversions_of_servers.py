"""What MariaDB makes of values when a column changes its type: as it is carried out here, or the table is held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pymysql
import pytest

from cdc_assets.ddl.evolve import retyped
from cdc_assets.errors import TableHeld
from cdc_assets.model.schema import Column
from cdc_assets.types.conversions import convert
from cdc_assets.types.families import CHARACTER
from cdc_assets.types.mysql_types import arrow_type
from cdc_assets_tests.mariadb import PASSWORD, USER, Server
from cdc_assets_tests.types.test_conversions import col

NOON = datetime(2020, 2, 29, 12, 30, 45, 678000)
VALUES: list[tuple[str, str, Any]] = [
    ("INT", "-5", -5),
    ("INT", "20200229", 20200229),
    ("INT", "70", 70),
    ("BIGINT", "7", 7),
    ("BIGINT UNSIGNED", "18446744073709551615", Decimal(2**64 - 1)),
    ("YEAR", "2020", 2020),
    ("DECIMAL(10,2)", "12.50", Decimal("12.50")),
    ("DECIMAL(10,2)", "-0.55", Decimal("-0.55")),
    ("DECIMAL(20,0)", "20200229123045", Decimal(20200229123045)),
    ("DOUBLE", "1.5e10", 1.5e10),
    ("DOUBLE", "0.1", 0.1),
    ("DOUBLE", "-2.5", -2.5),
    ("DOUBLE", "1e20", 1e20),
    ("DOUBLE", "1.25", 1.25),
    ("DOUBLE", "-0.125", -0.125),
    ("DECIMAL(10,3)", "1.005", Decimal("1.005")),
    ("FLOAT", "1.5", 1.5),
    ("VARCHAR(40)", "'12'", "12"),
    ("VARCHAR(40)", "'12.6'", "12.6"),
    ("VARCHAR(40)", "' 7 '", " 7 "),
    ("VARCHAR(40)", "'2020-02-29 12:30:45.678'", "2020-02-29 12:30:45.678"),
    ("VARCHAR(40)", "'12:30:45'", "12:30:45"),
    ("VARCHAR(40)", "'20200229'", "20200229"),
    ("VARCHAR(40)", "'a'", "a"),
    ("VARCHAR(40)", "'1e3'", "1e3"),
    ("CHAR(5)", "'ab'", "ab"),
    ("TEXT", "'b'", "b"),
    ("VARBINARY(20)", "x'3132'", b"12"),
    ("BINARY(4)", "x'61620000'", b"ab\0\0"),
    ("BLOB", "x'31'", b"1"),
    ("DATE", "'2020-02-29'", NOON.date()),
    ("DATETIME(3)", "'2020-02-29 12:30:45.678'", NOON),
    ("DATETIME", "'2020-02-29 12:30:45'", NOON.replace(microsecond=0)),
    ("TIMESTAMP(3)", "'2020-02-29 12:30:45.678'", NOON.replace(tzinfo=timezone.utc)),
    ("TIME(2)", "'-12:30:45.67'", "-12:30:45.67"),
    ("TIME", "'12:30:45'", "12:30:45"),
    ("BIT(8)", "5", 5),
    ("BIT(1)", "1", True),
    ("ENUM('a','b')", "'b'", "b"),
    ("SET('a','b')", "'a,b'", "a,b"),
    ("VARCHAR(40)", "'550E8400E29B41D4A716446655440000'", "550E8400E29B41D4A716446655440000"),
    ("VARCHAR(40)", "'2001:DB8:0:0::1'", "2001:DB8:0:0::1"),
    ("BINARY(16)", "x'00010000000300000000000600070008'", bytes.fromhex("00010000000300000000000600070008")),
    ("BINARY(16)", "x'00010002000300040005000600070000'", bytes.fromhex("00010002000300040005000600070000")),
    ("VARBINARY(16)", "x'00000000000000000000000000010002'", bytes.fromhex("00010002").rjust(16, b"\0")),
    ("BLOB", "x'01020304'", b"\1\2\3\4"),
    ("UUID", "'550E8400E29B41D4A716446655440000'", "550e8400-e29b-41d4-a716-446655440000"),
    ("INET4", "'1.2.3.4'", "1.2.3.4"),
    ("INET6", "'2001:db8::1'", "2001:db8::1"),
]
TYPES = (
    *("TINYINT", "INT", "BIGINT", "BIGINT UNSIGNED", "YEAR", "DECIMAL(8,1)", "DECIMAL(30,4)", "DOUBLE", "FLOAT"),
    *("CHAR(30)", "VARCHAR(30)", "TEXT", "BINARY(30)", "VARBINARY(30)", "BLOB", "DATE", "DATETIME", "DATETIME(6)"),
    *("TIMESTAMP", "TIMESTAMP(6)", "TIME", "TIME(3)", "BIT(8)", "BIT(64)", "ENUM('a','b','12')", "SET('a','b')"),
    *("UUID", "INET4", "INET6", "DOUBLE(8,1)", "FLOAT(8,2)"),
)


def column(text: str) -> Column:
    kind, _, rest = text.partition("(")
    if kind in ("ENUM", "SET"):
        return col(kind, tuple(member.strip("'") for member in rest.removesuffix(")").split(",")))
    parsed_column = col(text)
    return replace(parsed_column, collation="utf8mb4_bin") if parsed_column.type in CHARACTER else parsed_column


def plain(value: Any, kind: str) -> Any:
    """A value of the lake or of the server as one that compares."""
    if kind == "BIT" and isinstance(value, bytes):
        value = int.from_bytes(value, "big")
    if isinstance(value, timedelta):
        micros = abs(value) // timedelta(microseconds=1)
        minutes, micros = divmod(micros, 60_000_000)
        value = f"{'-' * (value < timedelta(0))}{minutes // 60:02}:{minutes % 60:02}:{micros / 1e6:09.6f}"
    if kind == "TIME":
        whole, _, fraction = value.partition(".")
        return whole, fraction.ljust(6, "0")
    if kind == "FLOAT":
        return f"{value:.5e}"  # the server shows six digits of it
    if isinstance(value, (int, float, Decimal)):
        return Decimal(str(value)) if not isinstance(value, bool) else Decimal(int(value))
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return value


@pytest.fixture
def session(mariadb: Server) -> Iterator[Any]:
    login = {"host": "127.0.0.1", "port": mariadb.port, "user": USER, "password": PASSWORD.encode()}
    with pymysql.connect(**login, autocommit=True, charset="utf8mb4") as connection:
        cursor = connection.cursor()
        for statement in ("CREATE OR REPLACE DATABASE conversions", "USE conversions", "SET time_zone = '+00:00'"):
            cursor.execute(statement)
        cursor.execute("SET sql_mode = 'STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'")
        yield cursor


@pytest.mark.soak
@pytest.mark.parametrize(("old", "literal", "value"), VALUES, ids=[f"{old} {literal}" for old, literal, _ in VALUES])
def test_a_value_becomes_what_mariadb_makes_of_it_or_its_table_is_held(
    session: Any, old: str, literal: str, value: Any
) -> None:
    unlike = []
    for new in TYPES:
        before, after = column(old), column(new)
        try:
            retyped(before, after, "UTC", "mariadb")
            kept = convert(pa.array([value], arrow_type(before)), before, after, "UTC")[0][0].as_py()
        except (ValueError, TableHeld):
            continue
        session.execute("DROP TEMPORARY TABLE IF EXISTS t")
        session.execute(f"CREATE TEMPORARY TABLE t (c {old} NULL) CHARSET utf8mb4 COLLATE utf8mb4_bin ENGINE = Aria")
        session.execute(f"INSERT INTO t VALUES ({literal})")
        try:
            session.execute(f"ALTER TABLE t MODIFY c {new} NULL")
        except pymysql.MySQLError:
            continue  # what the server refuses never happens
        session.execute("SELECT c FROM t")
        real = session.fetchone()[0]
        if plain(kept, after.type) != plain(real, after.type):
            unlike.append((new, kept, real))
    assert unlike == []


@pytest.mark.parametrize(
    ("old", "new", "servers"),
    [
        ("DATETIME(3)", "DATETIME", ("mariadb",)),
        ("TIME(2)", "INT", ("mariadb",)),
        ("VARCHAR(40)", "TIME", ("mariadb",)),
        ("DOUBLE", "VARCHAR(30)", ("mysql", "mariadb")),
        ("BIT(8)", "TEXT", ("mysql", "mariadb")),
        ("FLOAT", "YEAR", ("mariadb",)),
        ("DOUBLE", "DOUBLE(8,0)", ("mysql", "mariadb")),
        ("INT", "DOUBLE(8,0)", ()),
        ("DOUBLE", "DOUBLE(8,2)", ()),
        ("VARCHAR(40)", "INT", ()),
        ("DATETIME", "DATETIME(6)", ()),
        ("DATE", "DATETIME", ()),
    ],
)
def test_a_change_that_a_server_carries_out_otherwise_is_refused(old: str, new: str, servers: tuple[str, ...]) -> None:
    for server in ("", "mysql", "mariadb"):
        refused = ""
        try:
            retyped(column(old), column(new), "UTC", server)
        except ValueError as problem:
            refused = str(problem)
        assert bool(refused) == (server in servers), (server, refused)


def test_tidb_prints_a_number_that_is_filled_with_zeros_without_them() -> None:
    for server, kept in (("", "7"), ("mysql", "00007")):
        filled = replace(col("INT(5)"), zerofill=True, unsigned=True)
        change = retyped(filled, column("VARCHAR(9)"), "UTC", server)
        assert change is not None
        values = pa.array([7], arrow_type(change.old))
        assert convert(values, change.old, change.new, "UTC")[0].to_pylist() == [kept]


@pytest.mark.parametrize(("value", "kept"), [(3.5, 4.0), (2.5, 2.0), (-0.4, 0.0)])
def test_tidb_rounds_to_a_double_without_digits_behind_the_point(value: float, kept: float) -> None:
    change = retyped(column("DOUBLE"), replace(column("DOUBLE(8,0)"), scale=None), "UTC")  # TiCDC lists no 0
    assert change is not None
    assert convert(pa.array([value]), change.old, change.new, "UTC")[0].to_pylist() == [kept]


@pytest.mark.parametrize("collation", ["latin1_swedish_ci", "utf8mb3_general_ci", "utf8mb4_bin", "cp1251_bin", None])
def test_bytes_of_another_charset_than_utf8_are_those_of_the_server(collation: str | None) -> None:
    """`é` of a latin1 TEXT is one byte as a BLOB of MySQL and MariaDB, and two of TiDB."""
    text, raw = replace(column("TEXT"), collation=collation), column("BLOB")
    for old, new in ((text, raw), (raw, text)):
        assert retyped(old, new, "UTC") is not None
        if collation is not None and collation.startswith("utf8"):
            assert retyped(old, new, "UTC", "mysql") is not None
        else:
            charset = "the column's charset" if collation is None else collation.partition("_")[0]
            with pytest.raises(ValueError, match=f"the bytes of {charset}"):
                retyped(old, new, "UTC", "mysql")
