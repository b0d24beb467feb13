"""Random tables of every type at its edges: as a server is told of them, and as TiCDC's files have their rows.

    tables = edge_tables(seed, 10)
    server.run(*statements("edges", tables))
    write_feed(directory, "csv", tables)

A cell is None, the text that the server prints, or bytes for binary types. The files follow TiCDC's written rules of
CSV and Canal-JSON; TIMESTAMP is in the writer's zone.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from cdc_assets.model.schema import TableId
from cdc_assets.settings.config import ChangefeedSettings
from cdc_assets.sources.mysql_protocol.session import identifier
from cdc_assets_tests.little_feed import FIRST
from cdc_assets_tests.schema_documents import document, file_column, write_schema

__all__ = ["PROTOCOLS", "ZONE", "EdgeColumn", "EdgeTable", "edge_tables", "settings_of", "statements", "write_feed"]

ZONE = "Europe/Berlin"
"""That of the changefeed's server."""
PROTOCOLS = ("csv", "canal-json")

Cell = str | bytes | None


@dataclass(frozen=True)
class EdgeColumn:
    """A column: its type as CREATE TABLE has it, and as a schema file has it, and values."""

    sql: str
    type: str
    cells: Sequence[Cell]
    precision: int | None = None
    scale: int | None = None
    elems: tuple[str, ...] = ()
    name: str = ""
    key: bool = False

    @property
    def bare(self) -> bool:
        """Whether CSV has its values without quotes."""
        return self.type.split()[0] in (*_INTEGERS, "FLOAT", "DOUBLE", "BIT", "YEAR")


@dataclass(frozen=True)
class EdgeTable:
    """A table with its rows; of its columns the first ones are the key."""

    name: TableId
    columns: tuple[EdgeColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @property
    def create(self) -> str:
        """The text of CREATE TABLE."""
        lines = [
            f"{identifier(column.name)} {column.sql} {'NOT NULL' if column.key else 'NULL'}" for column in self.columns
        ]
        key = ", ".join(identifier(column.name) for column in self.columns if column.key)
        lines += [f"PRIMARY KEY ({key})"] if key else []
        charset = "DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"
        return f"CREATE TABLE {identifier(self.name.table)} ({', '.join(lines)}) {charset}"


# --- types ------------------------------------------------------------------------------------------------------------

_INTEGERS = ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
_WIDTHS = dict(zip(_INTEGERS, (8, 16, 24, 32, 64), strict=True))
_DIGITS = dict(zip(_INTEGERS, (4, 6, 9, 11, 20), strict=True))
_ODD = (
    "", " ", "a ", "A", "ä", "ß", "NULL", "null", "\\N", "\\", "'", '"', '""', "a,b", "x\r\ny", "\t", "é", "0", "-1",
)  # fmt: skip
_WIDE = (*_ODD, "\0", "😀", "z̀", "日本語", "\u2028", "\ufeff", "\x1a")
_BYTES = (b"", b"\0", b"\xff\xfe", b"\\N", b"NULL", b"'\"\r\n", bytes(range(9)), b"\x80 ")
_DATES = ("0000-00-00", "2024-00-00", "2024-02-00", "1000-01-01", "0001-01-01", "9999-12-31", "2024-02-29")
_INSTANTS = (
    "0000-00-00 00:00:00", "1970-01-01 00:00:01", "2038-01-19 03:14:07", "2024-10-27 00:30:00", "2024-10-27 01:30:00",
    "2024-03-31 01:00:00",
)  # fmt: skip
_FRACTIONS = ("000000", "999999", "000001", "500000")
_DOCUMENTS = (
    "null", "true", '""', '"a\\"\\\\b\\u0000"', "{}", "[]", '{"a": 1, "b": [true, null, 1.5e300], "ü": {"": -0.25}}',
    "18446744073709551615", '{"z": "😀", "10": 1, "9": 2}', '[1, 2.0, "3"]', "-9223372036854775808",
)  # fmt: skip
_MEMBERS = (("", "a,b", "it's", "ü", "x y"), ("A", "\\N", "NULL", '"'), tuple(f"m{n}" for n in range(300)))
_SETS = (("a", "b c", "ü", "d'"), ("x",), tuple(f"s{n}" for n in range(64)))


def _integers() -> list[EdgeColumn]:
    columns = [EdgeColumn("TINYINT(1)", "TINYINT", ("0", "1", "-128", "127"), 1)]
    for name, bits in _WIDTHS.items():
        signed = [str(n) for n in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 0, -1, 1)]
        unsigned = [str(n) for n in (2**bits - 1, 2 ** (bits - 1), 0, 1)]
        columns.append(EdgeColumn(name, name, signed, _DIGITS[name]))
        columns.append(EdgeColumn(f"{name} UNSIGNED", f"{name} UNSIGNED", unsigned, _DIGITS[name]))
    return columns


def _decimals() -> list[EdgeColumn]:
    columns = []
    for precision, scale in ((1, 0), (10, 2), (30, 30), (38, 10), (38, 0), (39, 0), (65, 30), (65, 0)):
        whole, part = "9" * (precision - scale) or "0", "9" * scale
        top = f"{whole}.{part}" if scale else whole
        small = f"0.{'0' * (scale - 1)}1" if scale else "1"
        zero = f"0.{'0' * scale}" if scale else "0"
        columns.append(
            EdgeColumn(f"DECIMAL({precision},{scale})", "DECIMAL", (top, f"-{top}", small, zero), precision, scale)
        )
    top = "999999999999999.99999"
    columns.append(EdgeColumn("DECIMAL(20,5) UNSIGNED", "DECIMAL UNSIGNED", (top, "0.00001", "0.00000"), 20, 5))
    return columns


def _floats() -> list[EdgeColumn]:
    singles = (0.0, 0.1, -3.4028234663852886e38, 1e-38, 16777216.0, 16777215.0, 1e6, 123456.79, -1e21, 1e-5)
    doubles = (
        0.0,
        0.1,
        1.7976931348623157e308,
        -2.2250738585072014e-308,
        5e-324,
        1e6,
        9007199254740993.0,
        -1e-5,
        1 / 3,
    )
    return [
        EdgeColumn("FLOAT", "FLOAT", [str(np.float32(number)) for number in singles], 12),
        EdgeColumn("DOUBLE", "DOUBLE", [repr(number) for number in doubles], 22),
    ]


def _bits() -> list[EdgeColumn]:
    return [
        EdgeColumn(f"BIT({size})", "BIT UNSIGNED", [str(n) for n in {0, 1, 2**size - 1, 2 ** (size - 1)}], size)
        for size in (1, 7, 8, 63, 64)
    ]


def _times() -> list[EdgeColumn]:
    columns = [
        EdgeColumn("YEAR", "YEAR UNSIGNED", ("0", "1901", "2155", "2000"), 4),
        EdgeColumn("DATE", "DATE", _DATES),
    ]
    for digits in (0, 1, 3, 6):
        parts = [f".{fraction[:digits]}" if digits else "" for fraction in _FRACTIONS]
        clocks = [f"{day} {clock}{part}" for day in _DATES[2:] for clock in ("00:00:00", "23:59:59") for part in parts]
        clocks.append("0000-00-00 00:00:00" + (f".{'0' * digits}" if digits else ""))
        instants = [instant + parts[0 if instant.startswith("0000") else n % 4] for n, instant in enumerate(_INSTANTS)]
        hours = [f"{hours}{part}" for hours in ("838:59:59", "-838:59:59") for part in parts[:1]]
        hours += [f"{hours}{part}" for hours in ("00:00:00", "-00:00:01", "24:00:00", "100:01:59") for part in parts]
        size = f"({digits})" if digits else ""
        for name, cells in (("DATETIME", clocks), ("TIMESTAMP", instants), ("TIME", hours)):
            columns.append(EdgeColumn(f"{name}{size}", name, cells, scale=digits or None))
    return columns


def _texts() -> list[EdgeColumn]:
    latin = (*_ODD, "\x7f", "ÿ", "€")
    return [
        EdgeColumn("CHAR(20)", "CHAR", [text.rstrip(" ") for text in _WIDE], 20),
        EdgeColumn("VARCHAR(20)", "VARCHAR", _WIDE, 20),
        EdgeColumn("VARCHAR(20) COLLATE utf8mb4_general_ci", "VARCHAR", _WIDE, 20),
        EdgeColumn("VARCHAR(20) CHARACTER SET latin1", "VARCHAR", latin, 20),
        EdgeColumn("VARCHAR(20) CHARACTER SET ascii", "VARCHAR", [text for text in _ODD if text.isascii()], 20),
        EdgeColumn("CHAR(9) CHARACTER SET gbk", "CHAR", ("中", "文字", "", "a"), 9),
        EdgeColumn("TINYTEXT", "TINYTEXT", [*_WIDE, "x" * 255], 255),
        EdgeColumn("TEXT", "TEXT", [*_WIDE, "é" * 30_000], 65535),
        EdgeColumn("MEDIUMTEXT COLLATE utf8mb4_unicode_ci", "MEDIUMTEXT", [*_WIDE, "y" * 70_000], 16777215),
        EdgeColumn("LONGTEXT CHARACTER SET latin1", "LONGTEXT", latin, 4294967295),
        EdgeColumn("BINARY(9)", "BINARY", [content.ljust(9, b"\0") for content in _BYTES], 9),
        EdgeColumn("VARBINARY(9)", "VARBINARY", _BYTES, 9),
        EdgeColumn("TINYBLOB", "TINYBLOB", [*_BYTES, b"\xff" * 255], 255),
        EdgeColumn("BLOB", "BLOB", [*_BYTES, bytes(range(256)) * 200], 65535),
        EdgeColumn("MEDIUMBLOB", "MEDIUMBLOB", _BYTES, 16777215),
        EdgeColumn("LONGBLOB", "LONGBLOB", _BYTES, 4294967295),
        EdgeColumn("JSON", "JSON", _DOCUMENTS),
        *(EdgeColumn(f"ENUM({_listed(members)})", "ENUM", members, elems=members) for members in _MEMBERS),
        *(
            EdgeColumn(
                f"SET({_listed(members)})", "SET", ("", members[0], members[-1], ",".join(members)), elems=members
            )
            for members in _SETS
        ),
    ]


def _sets_of(members: Sequence[str]) -> tuple[str, ...]:
    return "", members[0], members[-1], ",".join(members)


def _listed(members: Sequence[str]) -> str:
    quoted = (member.replace("\\", "\\\\").replace("'", "''") for member in members)
    return ", ".join(f"'{member}'" for member in quoted)


_COLUMNS = (*_integers(), *_decimals(), *_floats(), *_bits(), *_times(), *_texts())
_KEYS: tuple[tuple[EdgeColumn, Callable[[int], Cell]], ...] = (
    (EdgeColumn("BIGINT", "BIGINT", (), 20), lambda n: str(n * 3 - 5)),
    (EdgeColumn("BIGINT UNSIGNED", "BIGINT UNSIGNED", (), 20), lambda n: str(2**64 - 1 - n)),
    (EdgeColumn("DECIMAL(20,3)", "DECIMAL", (), 20, 3), lambda n: f"{n - 2}.500"),
    (EdgeColumn("VARCHAR(20) COLLATE utf8mb4_general_ci", "VARCHAR", (), 20), lambda n: f"k'\\{n}é"),
    (EdgeColumn("VARCHAR(20)", "VARCHAR", (), 20), lambda n: ("k", "K", "ä", "a", "k\\", "")[n % 6] + str(n)),
    (EdgeColumn("VARBINARY(9)", "VARBINARY", (), 9), lambda n: bytes([255 - n, 0, n])),
    (EdgeColumn("DATETIME(6)", "DATETIME", (), scale=6), lambda n: f"2024-02-29 23:59:59.{n:06d}"),
    (EdgeColumn("DATE", "DATE", ()), lambda n: f"2024-02-{n + 1:02d}"),
    (EdgeColumn("ENUM('z','a','M')", "ENUM", (), elems=("z", "a", "M")), lambda n: ("z", "a", "M")[n % 3]),
    (EdgeColumn("BIT(40)", "BIT UNSIGNED", (), 40), lambda n: str(2**40 - 1 - n)),
    (EdgeColumn("DOUBLE", "DOUBLE", (), 22), lambda n: repr(n * 0.1 - 0.25)),
)
_NAMES = ("a b", "it's", "ü", "dot.ted", "back`tick", "select", "UPPER", "_cdc", "c,d", 'q"', "日", "%s", "a\\b", "k")


def edge_tables(seed: int, count: int, database: str = "edges") -> list[EdgeTable]:
    """Return random tables: keys of one or two columns, or none, and NULL among the values of every column."""
    chance, tables = random.Random(seed), []
    for number in range(count):
        size = chance.randrange(3, 15)
        parts = chance.sample(_KEYS, chance.choice((0, 1, 1, 1, 2)))
        if parts and all(column.type == "ENUM" for column, _ in parts):
            size = 3
        others = chance.sample(_COLUMNS, chance.randrange(4, 16))
        names = chance.sample(_NAMES, len(_NAMES)) + [f"c{n}" for n in range(len(others))]
        columns = [(column, True, key) for column, key in parts] + [(column, False, None) for column in others]
        rows = []
        for place in range(size):
            values = [
                key(place) if key is not None else None if chance.random() < 0.1 else chance.choice(list(column.cells))
                for column, _, key in columns
            ]
            rows.append(tuple(values))
        named = tuple(
            EdgeColumn(
                column.sql, column.type, column.cells, column.precision, column.scale, column.elems, names[place], key
            )
            for place, (column, key, _) in enumerate(columns)
        )
        tables.append(EdgeTable(TableId(database, f"t{number}"), named, tuple(rows)))
    return tables


# --- the server -------------------------------------------------------------------------------------------------------


def statements(database: str, tables: Sequence[EdgeTable]) -> list[str]:
    """Return the SQL that gives a server the tables and their rows."""
    sql_statements = [
        "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00', NAMES utf8mb4",
        f"DROP DATABASE IF EXISTS {identifier(database)}",
        f"CREATE DATABASE {identifier(database)}",
        f"USE {identifier(database)}",
    ]
    for table in tables:
        rows = [
            "(" + ", ".join(_literal(cell, column) for cell, column in zip(row, table.columns, strict=True)) + ")"
            for row in table.rows
        ]
        sql_statements += [table.create, f"INSERT INTO {identifier(table.name.table)} VALUES {', '.join(rows)}"]
    return sql_statements


def _literal(cell: Cell, column: EdgeColumn) -> str:
    if cell is None:
        return "NULL"
    if isinstance(cell, bytes):
        return f"x'{cell.hex()}'"
    return cell if column.bare else f"CONVERT(x'{cell.encode().hex()}' USING utf8mb4)"


# --- the changefeed ---------------------------------------------------------------------------------------------------


def settings_of(directory: Path, protocol: str) -> ChangefeedSettings:
    """Return the settings of the changefeed that was written."""
    uri: Any = f"file://{directory}/bucket?protocol={protocol}&enable-tidb-extension=true"
    return ChangefeedSettings(name="edges", sink_uri=uri, changefeed_config=directory / "changefeed.toml", tz=ZONE)


def write_feed(directory: Path, protocol: str, tables: Sequence[EdgeTable]) -> None:
    """Write the bucket of a changefeed that has every row of the tables as an insert."""
    bucket = directory / "bucket"
    bucket.mkdir(parents=True)
    (directory / "changefeed.toml").write_text("[sink.csv]\ninclude-commit-ts = true\n")
    for table in tables:
        name = table.name
        columns = [_document(column) for column in table.columns]
        write_schema(bucket, document(name.schema, name.table, FIRST, Query=table.create, Type=3, TableColumns=columns))
        lines = [_line(protocol, table, row, FIRST + 1 + number) for number, row in enumerate(table.rows)]
        path = bucket / name.schema / name.table / str(FIRST) / f"CDC{1:020d}.{protocol.removeprefix('canal-')}"
        path.parent.mkdir(parents=True)
        path.write_text("".join(lines), newline="")
    (bucket / "metadata").write_text(json.dumps({"checkpoint-ts": FIRST + 100}))


def _document(column: EdgeColumn) -> dict[str, object]:
    column_document: dict[str, object] = file_column(column.name, column.type)
    if column.precision is not None:
        column_document["ColumnPrecision"] = str(column.precision)
    if column.scale is not None:
        column_document["ColumnScale"] = str(column.scale)
    if column.key:
        column_document |= {"ColumnNullable": "false", "ColumnIsPk": "true"}
    return column_document | ({"ColumnElems": list(column.elems)} if column.elems else {})


def _line(protocol: str, table: EdgeTable, row: Sequence[Cell], at: int) -> str:
    cells = [
        _in_zone(cell) if column.type == "TIMESTAMP" else cell for cell, column in zip(row, table.columns, strict=True)
    ]
    if protocol == "csv":
        texts = [_csv(cell, column) for cell, column in zip(cells, table.columns, strict=True)]
        return ",".join(['"I"', f'"{table.name.table}"', f'"{table.name.schema}"', str(at), *texts]) + "\r\n"
    data = {column.name: _canal(cell, column) for cell, column in zip(cells, table.columns, strict=True)}
    message = {
        "id": 0, "database": table.name.schema, "table": table.name.table, "isDdl": False, "type": "INSERT",
        "pkNames": [column.name for column in table.columns if column.key], "es": at >> 18, "ts": at >> 18, "sql": "",
        "sqlType": dict.fromkeys(data, 12), "mysqlType": {column.name: _mysql_type(column) for column in table.columns},
        "old": None, "data": [data], "_tidb": {"commitTs": at},
    }  # fmt: skip
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")) + "\r\n"


def _mysql_type(column: EdgeColumn) -> str:
    return column.type.removesuffix(" UNSIGNED").lower() if column.type[:3] in ("BIT", "YEA") else column.type.lower()


def _in_zone(cell: Cell) -> Cell:
    if not isinstance(cell, str) or cell.startswith("0000"):
        return cell
    clock, dot, part = cell.partition(".")
    moment = datetime.fromisoformat(clock).replace(tzinfo=timezone.utc).astimezone(ZoneInfo(ZONE))
    return moment.strftime("%Y-%m-%d %H:%M:%S") + dot + part


def _csv(cell: Cell, column: EdgeColumn) -> str:
    if cell is None:
        return "\\N"
    if isinstance(cell, bytes):
        return f'"{base64.b64encode(cell).decode()}"'
    return cell if column.bare else '"' + cell.replace('"', '""') + '"'


def _canal(cell: Cell, column: EdgeColumn) -> str | None:
    if cell is None:
        return None
    if isinstance(cell, bytes):
        return cell.decode("latin-1")
    if column.type in ("FLOAT", "DOUBLE"):
        return format(Decimal(cell), "f")
    if column.type == "ENUM":
        return str(column.elems.index(cell) + 1)
    if column.type == "SET":
        return str(sum(1 << column.elems.index(member) for member in cell.split(",") if cell))
    return cell
