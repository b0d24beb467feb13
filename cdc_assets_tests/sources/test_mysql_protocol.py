"""Tables read over the MySQL protocol: every value, every row once, and what goes wrong, on a real server."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cdc_assets.ddl.schema import created
from cdc_assets.errors import BadSettings, CdcError, MalformedDump, StorageUnavailable
from cdc_assets.formats.decoded import COMMIT_TS, LINE, OP, Decoded
from cdc_assets.model.dumps import DumpTable
from cdc_assets.model.schema import Column, TableId, TableSchema
from cdc_assets.sources import InitialSource, connect_server
from cdc_assets.sources.mysql_protocol import initial
from cdc_assets.sources.mysql_protocol import rows as reading
from cdc_assets.sources.mysql_protocol.address import parse_address
from cdc_assets.sources.mysql_protocol.initial import _tables
from cdc_assets.sources.mysql_protocol.ranges import Size, cut
from cdc_assets.sources.mysql_protocol.session import identifier, session
from cdc_assets.types.mysql_types import type_text
from cdc_assets_tests.dump_contents import contents, expected
from cdc_assets_tests.dump_writer import Row, dumped
from cdc_assets_tests.loaded import sql_literal
from cdc_assets_tests.mariadb import PASSWORD, Server

AT = 434217889191428107
SLOW = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def source_of(server: Server, *patterns: str, parameters: str = "") -> InitialSource:
    _tables.cache_clear()  # tables of a test come and go
    return connect_server(server.uri + parameters, PASSWORD, AT, patterns)


def all_rows(source: InitialSource, table: DumpTable, small: bool = False) -> list[Decoded]:
    """Every block of a table, read by readers that were sent elsewhere, in ranges as small as that."""
    reader = pickle.loads(pickle.dumps(source.reader))
    files = table.files
    if small:
        with session(reader.address, AT) as opened:
            files = cut(opened, table, Size(3000, 300_000), 30_000)
        assert len(files) > 5
    splits = [split for file in files for split in source.splits(file)]
    return [block for split in splits for block in reader.read(split, table, AT, source.generators(table))]


def the_table(source: InitialSource) -> DumpTable:
    dump = source.dump()
    assert dump.problems == {}
    (table,) = dump.tables
    return table


def data_of(blocks: Sequence[Decoded]) -> pa.Table:
    assert [reject for block in blocks for reject in block.rejects] == []
    return pa.concat_tables([block.changes for block in blocks]).drop_columns([OP, COMMIT_TS, LINE]).combine_chunks()


# --- values -----------------------------------------------------------------------------------------------------------

TYPES = """
CREATE TABLE types.t (
  id BIGINT UNSIGNED NOT NULL PRIMARY KEY, f FLOAT, fd FLOAT(10,3), d DOUBLE, n DECIMAL(65,30), b1 BIT(1), b64 BIT(64),
  y YEAR, da DATE, dt DATETIME(6), ts TIMESTAMP(3) NULL, ti TIME(2), e ENUM('a','b''c','d,e'), s SET('x','y'), j JSON,
  c CHAR(5), bi BINARY(4), bl BLOB, l TEXT CHARACTER SET latin1, g INT GENERATED ALWAYS AS (y + 1) STORED,
  v INT GENERATED ALWAYS AS (y + 2) VIRTUAL) DEFAULT CHARSET utf8mb4
"""
VALUES = r"""
INSERT INTO types.t (id, f, fd, d, n, b1, b64, y, da, dt, ts, ti, e, s, j, c, bi, bl, l) VALUES
(18446744073709551615, 1.23456789e20, 1234567.891, 1.7976931348623157e308,
 -12345678901234567890123456789012345.000000000000000000000000000001, 1, 18446744073709551615, 2155, '0000-00-00',
 '2024-00-31 23:59:59.999999', '2038-01-19 03:14:07.123', '-838:59:59', 'b''c', 'x,y', '{"a": 1}', 'ab ', 'a',
 x'00ff270a5c', 'é'),
(1, 0.1, NULL, 5e-324, 0, 0, 0, 0, '2024-02-29', '9999-12-31 23:59:59.5', '1970-01-01 00:00:01', '00:00:00.5', '', '',
 'null', '', '', '', '\\N')
"""


def test_every_value_is_the_servers(mariadb: Server) -> None:
    mariadb.run("CREATE DATABASE types", TYPES, "SET sql_mode = '', time_zone = '+00:00'")
    mariadb.run("SET GLOBAL sql_mode = 'PAD_CHAR_TO_FULL_LENGTH', GLOBAL time_zone = '+05:30'")
    with_session = ["SET sql_mode = '', time_zone = '+00:00'", VALUES]
    try:
        mariadb.run(*with_session)
        source = source_of(mariadb, "types.*")
        blocks = all_rows(source, the_table(source))
    finally:
        mariadb.run("SET GLOBAL sql_mode = DEFAULT, GLOBAL time_zone = DEFAULT")
    small, large = data_of(blocks).to_pylist()
    assert (small["f"], small["d"], small["y"]) == (0.10000000149011612, 5e-324, 0)
    assert (small["e"], small["j"], small["c"], small["bi"], small["l"]) == ("", "null", "", b"\0\0\0\0", "\\N")
    assert str(small["ti"]) == "00:00:00.50"
    assert str(small["ts"]) == "1970-01-01 00:00:01+00:00"
    assert (large["f"], large["fd"], large["d"]) == (1.2345678955701443e20, 1234567.875, 1.7976931348623157e308)
    assert large["n"] == "-12345678901234567890123456789012345.000000000000000000000000000001"
    assert (large["b1"], int(large["b64"]), int(large["id"])) == (True, 2**64 - 1, 2**64 - 1)
    assert (large["da"], large["dt"], large["ti"]) == (None, None, "-838:59:59.00")
    assert (large["e"], large["s"], large["c"], large["l"]) == ("b'c", "x,y", "ab", "é")
    assert (large["bl"], large["g"], "v" in large) == (b"\0\xff'\n\\", 2156, False)
    assert sum(block.notes.get(("da", "zero or partial date became null"), 0) for block in blocks) == 1


def test_a_float_of_which_digits_are_missing_is_reported() -> None:
    texts, column = pa.array([b"0.1", b"0.10000000149011612", b"16777200"], pa.binary()), Column("f", "FLOAT")
    (mask,) = reading._values(texts, column).notes.values()
    assert mask.to_pylist() == [True, False, False]


@SLOW
@given(contents())
def test_what_was_written_is_read(mariadb: Server, table: tuple[TableSchema, list[Row]]) -> None:
    schema, rows = table
    assume(not any(column.type == "VECTOR" or column.generated for column in schema.columns))
    columns = ", ".join(f"{identifier(column.name)} {_type(column)}" for column in schema.columns)
    values = ", ".join(
        f"({', '.join(sql_literal(cell, column) for cell, column in zip(row, dumped(schema), strict=True))})"
        for row in rows
    )
    mariadb.run(
        "SET sql_mode = '', time_zone = '+00:00'",
        "DROP DATABASE IF EXISTS written",
        "CREATE DATABASE written",
        f"CREATE TABLE written.t ({columns}) DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_nopad_bin",
        *(["SET sql_mode = '', time_zone = '+00:00'", f"INSERT INTO written.t VALUES {values}"] if rows else []),
    )
    source = source_of(mariadb, "written.*")
    blocks = all_rows(source, the_table(source))
    assert data_of(blocks).equals(expected(schema, rows)) if rows else not blocks


def _type(column: Column) -> str:
    if column.type in ("ENUM", "SET"):
        members = ", ".join("'" + member.replace("'", "''") + "'" for member in column.elems or ())
        return f"{column.type}({members})"
    return type_text(column) + (" NULL" if column.type == "TIMESTAMP" else "")


# --- ranges -----------------------------------------------------------------------------------------------------------

KEYS = {
    "int": ("k BIGINT, PRIMARY KEY (k)", "CAST(seq AS SIGNED) * 1000000007 - 1500000000000"),
    "unsigned": ("k BIGINT UNSIGNED, PRIMARY KEY (k)", "18446744073709551615 - seq * 7"),
    "text": ("k VARCHAR(40) COLLATE utf8mb4_general_ci, PRIMARY KEY (k)", "CONCAT(CHAR(39, 92), MD5(seq), 'ß ')"),
    "bytes": ("k VARBINARY(40), PRIMARY KEY (k)", "UNHEX(MD5(seq))"),
    "decimal": ("k DECIMAL(30,4), PRIMARY KEY (k)", "(CAST(seq AS SIGNED) - 1500) / 16"),
    "time": ("k DATETIME(3), PRIMARY KEY (k)", "'2024-01-01' + INTERVAL seq * 77 SECOND"),
    "several": ("l CHAR(3), k INT, PRIMARY KEY (l, k)", "seq"),
    "part": ("l INT, k ENUM('x') DEFAULT 'x', m INT, PRIMARY KEY (l, k, m)", "'x'"),
}


@pytest.mark.parametrize("kind", KEYS)
def test_ranges_of_a_key_have_every_row_once(mariadb: Server, kind: str) -> None:
    columns, value = KEYS[kind]
    names = {"several": "l, k, n", "part": "l, k, m, n"}.get(kind, "k, n")
    values = {"several": f"ELT(1 + seq % 3, 'a', 'É', 'b'), {value}", "part": f"seq DIV 100, {value}, seq"}.get(
        kind, value
    )
    mariadb.run(
        f"CREATE DATABASE ranges_{kind}",
        f"USE ranges_{kind}",
        f"CREATE TABLE ranges_{kind}.t (n INT, {columns}) DEFAULT CHARSET utf8mb4",
        f"INSERT INTO ranges_{kind}.t ({names}) SELECT {values}, seq FROM seq_1_to_3000",
    )
    source = source_of(mariadb, f"ranges_{kind}.*")
    rows = data_of(all_rows(source, the_table(source), small=True))
    assert sorted(rows["n"].to_pylist()) == list(range(1, 3001))


def test_a_table_without_key_and_an_empty_one_are_read_whole(mariadb: Server) -> None:
    mariadb.run(
        "CREATE DATABASE keyless", "CREATE TABLE keyless.full (a INT)", "CREATE TABLE keyless.none (a INT PRIMARY KEY)",
        "INSERT INTO keyless.full VALUES (1), (1), (NULL)",
    )  # fmt: skip
    source = source_of(mariadb, "keyless.*")
    full, none = source.dump().tables
    assert data_of(all_rows(source, full))["a"].to_pylist() == [1, 1, None]
    assert all_rows(source, none) == []


def test_the_first_look_estimates_how_many_rows_there_are(mariadb: Server) -> None:
    mariadb.run(
        "CREATE DATABASE glanced", "USE glanced", "CREATE TABLE glanced.t (k DATE PRIMARY KEY)",
        "SET sql_mode = ''", "INSERT INTO glanced.t SELECT '2024-01-01' + INTERVAL seq DAY FROM seq_1_to_500",
        "INSERT INTO glanced.t VALUES ('0000-00-00')", "ANALYZE TABLE glanced.t", "CREATE TABLE glanced.u (a INT)",
    )  # fmt: skip
    source = source_of(mariadb, "glanced.*")
    torn, empty = source.dump().tables
    assert source.glance(torn).rows == 501
    assert "is in a key, where values must not be changed" in source.glance(torn).problem
    assert source.glance(empty).rows == 0
    (split,) = source.splits(torn.files[0])
    assert source.reader.records(split, [1, 3]) == {1: b'["0000-00-00"]', 3: b'["2024-01-03"]'}


def test_borders_stand_in_no_name_that_is_shown(mariadb: Server) -> None:
    mariadb.run(
        "CREATE DATABASE shown", "USE shown", "CREATE TABLE shown.t (k VARCHAR(20) PRIMARY KEY)",
        "INSERT INTO shown.t SELECT CONCAT('secret', seq) FROM seq_1_to_3000",
    )  # fmt: skip
    source = source_of(mariadb, "shown.*")
    table = the_table(source)
    with session(source.reader.address, AT) as opened:  # type: ignore[attr-defined]
        files = cut(opened, table, Size(3000, 300_000), 30_000)
    assert any("secret" in file.condition for file in files)
    assert "secret" not in repr(files)


# --- names, views, many databases -------------------------------------------------------------------------------------


def test_hostile_names_are_names(mariadb: Server) -> None:
    database, name, column = "we`ird-%s", "t.`x`; DROP TABLE t;--", "co'l\"`umn\n%d"
    mariadb.run(
        f"CREATE DATABASE {identifier(database)}",
        f"CREATE TABLE {identifier(database)}.{identifier(name)} ({identifier(column)} INT PRIMARY KEY)",
        f"INSERT INTO {identifier(database)}.{identifier(name)} VALUES (5)",
    )
    source = connect_server(f"{mariadb.uri}/we%60ird-%25s", PASSWORD, AT)
    table = the_table(source)
    assert table.id == TableId(database, name)
    assert data_of(all_rows(source, table)).to_pylist() == [{column: 5}]


def test_views_have_no_rows_and_tables_that_cannot_be_read_are_reported(
    mariadb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    mariadb.run(
        "CREATE DATABASE odd", "CREATE TABLE odd.t (a INT PRIMARY KEY)", "CREATE VIEW odd.v AS SELECT * FROM odd.t",
        "CREATE TABLE odd.p (a INT, f DATE, u DATE, PERIOD FOR p (f, u), PRIMARY KEY (a, p WITHOUT OVERLAPS))",
        "CREATE SEQUENCE odd.s", "CREATE TABLE odd.u (a INT PRIMARY KEY)",
    )  # fmt: skip

    def read(query: str, **how: Any) -> TableSchema:
        return created(query.replace("`a` int(11)", "`a` XMLTYPE") if "`u` (" in query else query, **how)

    monkeypatch.setattr(initial, "created", read)
    dump = source_of(mariadb, "odd.*").dump()
    assert {str(table.id): table.schema.key for table in dump.tables} == {"odd.t": ("a",), "odd.p": ("a", "f", "u")}
    assert [str(name) for name in sorted(dump.left_out)] == ["odd.s", "odd.v"]
    assert "its CREATE TABLE cannot be read" in dump.problems[TableId("odd", "u")]
    assert "which has no TSO to read at" in dump.warnings[0]


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_connection_that_breaks_is_opened_again(mariadb: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_PAUSES_SECONDS", (0.0,))
    monkeypatch.setattr(reading, "_BLOCK_ROWS", 1000)
    mariadb.run(
        "CREATE DATABASE broken", "USE broken", "CREATE TABLE broken.t (k INT PRIMARY KEY, v TEXT)",
        "INSERT INTO broken.t SELECT seq, REPEAT('x', 4000) FROM seq_1_to_6000",
    )  # fmt: skip
    source = source_of(mariadb, "broken.*")
    table = the_table(source)
    (split,) = source.splits(table.files[0])
    blocks = source.reader.read(split, table, AT, {})
    read_blocks = [next(blocks)]
    mariadb.run("BEGIN NOT ATOMIC FOR one IN (SELECT id FROM information_schema.processlist "
                "WHERE id <> CONNECTION_ID() AND info LIKE 'SELECT `k`%') DO KILL one.id; END FOR; END")  # fmt: skip
    read_blocks += blocks
    assert data_of(read_blocks)["k"].to_pylist() == list(range(1, 6001))
    assert [line for block in read_blocks for line in block.changes[LINE].to_pylist()] == list(range(1, 6001))


@pytest.mark.parametrize(
    ("uri", "kind", "sentence"),
    [
        ("mysql://nobody@127.0.0.1:{port}", BadSettings, 'refuses the user "nobody"'),
        ("mysql://reader@127.0.0.1:{port}/nowhere", BadSettings, "no database of that name"),
        ("mysql://reader@127.0.0.1:1", StorageUnavailable, "did not answer .*If the setting initial names it"),
        ("mysql://reader@localhost:{port}?ssl-mode=VERIFY_IDENTITY", BadSettings, "is not trusted"),
        ("mysql://reader@127.0.0.1:{port}?ssl-ca=/nowhere/ca.pem", BadSettings, r"TLS.*/nowhere/ca\.pem"),
    ],
)
def test_what_a_server_refuses_is_reported_without_secrets(
    mariadb: Server, uri: str, kind: type[CdcError], sentence: str
) -> None:
    source = connect_server(uri.format(port=mariadb.port), PASSWORD, AT)
    with pytest.raises(kind, match=sentence) as caught:
        source.dump()
    assert PASSWORD not in str(caught.value) + repr(source)


def test_no_table_that_is_wanted_is_no_source(mariadb: Server) -> None:
    with pytest.raises(MalformedDump, match="shows no table that is wanted"):
        source_of(mariadb, "nothing.*").dump()


@pytest.mark.parametrize("mode", ["DISABLED", "REQUIRED", "VERIFY_CA", "verify-identity"])
def test_tls_is_as_it_is_asked_for(mariadb: Server, mode: str) -> None:
    trusted = f"&ssl-ca={mariadb.certificate}" if mode.upper().startswith("VERIFY") else ""
    address = parse_address(f"{mariadb.uri}?ssl-mode={mode}{trusted}", PASSWORD)
    with session(address, AT) as opened:
        cipher = opened.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1]
    assert bool(cipher) == (mode != "DISABLED")


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        ("127.0.0.1:4000", "has no scheme"),
        ("postgres://u@h", 'has the scheme "postgres"'),
        ("mysql://u:topsecret@h", "has a password in it"),
        ("mysql://h:4000", "names no user"),
        ("mysql://u@", "names no host"),
        ("mysql://u@h:x", "cannot be read"),
        ("mysql://u@h?charset=utf8", 'has the parameter "charset"'),
        ("mysql://u@h?ssl-mode=MAYBE", "an ssl-mode that is not one of"),
        ("mysql://u@h?ssl-mode=PREFERRED&ssl-ca=x", "ignores"),
    ],
)
def test_a_uri_that_is_none_of_a_server_is_refused(uri: str, sentence: str) -> None:
    with pytest.raises(BadSettings, match=sentence) as caught:
        parse_address(uri)
    assert "topsecret" not in str(caught.value)


@given(st.text(min_size=1, max_size=8))
def test_names_are_quoted_so_that_they_end_where_they_end(name: str) -> None:
    assert identifier(name)[1:-1].replace("``", "").count("`") == 0
