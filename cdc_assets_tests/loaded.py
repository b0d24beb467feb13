"""Recorded contents of a source, loaded into a MariaDB server."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pymysql

from cdc_assets.ddl import created
from cdc_assets.model.schema import Column, TableId
from cdc_assets.sources.mysql_protocol.session import identifier
from cdc_assets_tests.cases import ExpectedTable
from cdc_assets_tests.dump_cases import cell_of
from cdc_assets_tests.dump_writer import Cell, dumped
from cdc_assets_tests.joined_feed import create_text
from cdc_assets_tests.mariadb import PASSWORD, USER, Server

__all__ = ["drop", "load", "sql_literal"]

_SESSION = "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO', time_zone = '+00:00', foreign_key_checks = 0, NAMES utf8mb4"


def load(server: Server, contents: Mapping[TableId, ExpectedTable]) -> None:
    """Create the databases of recorded tables anew, with the tables and their rows."""
    for database in sorted({name.schema for name in contents}):
        server.run(f"DROP DATABASE IF EXISTS {identifier(database)}", f"CREATE DATABASE {identifier(database)}")
    for name, table in contents.items():
        schema, place = created(create_text(table)), f"{identifier(name.schema)}.{identifier(name.table)}"
        shown = "\n".join(line for line in table.show_create.split("\n") if "`_tidb_rowid`" not in line)
        text = re.sub(r",\n\)", "\n)", shown)
        columns = ", ".join(identifier(column.name) for column in dumped(schema))
        rows = [
            "(" + ", ".join(sql_literal(cell_of(row[column.name], column), column) for column in dumped(schema)) + ")"
            for row in table.rows
        ]
        inserts = [f"INSERT INTO {place} ({columns}) VALUES {', '.join(rows)}"] if rows else []
        server.run(_SESSION, f"USE {identifier(name.schema)}", text, *inserts)


def drop(server: Server, *databases: str) -> None:
    """Drop databases that were loaded, with copies of them as of a TSO: other tests share the server."""
    with pymysql.connect(host="127.0.0.1", port=server.port, user=USER, password=PASSWORD.encode()) as connection:
        cursor = connection.cursor()
        cursor.execute("SHOW DATABASES")
        for (name,) in cursor.fetchall():
            if name.partition("@")[0] in databases:
                cursor.execute(f"DROP DATABASE {identifier(name)}")


def sql_literal(cell: Cell, column: Column) -> str:
    """Return a value as SQL writes it, whatever characters it has."""
    if cell is None:
        return "NULL"
    if isinstance(cell, bytes):
        return f"x'{cell.hex()}'"
    bare = column.type in ("FLOAT", "DOUBLE") and "e" in cell
    return cell if bare else f"CONVERT(x'{cell.encode().hex()}' USING utf8mb4)"
