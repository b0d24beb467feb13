"""A stand-in for TiDB: a real MariaDB behind the statements of TiDB that say as of when its tables are read.

    tidb = TidbStandIn(server, texts)
    tidb.keep(at, "shop")         what is in the database now is what a session at that TSO reads
    tidb.collect(below)           as its garbage collection does

No TiDB comes as a package. The contents of a TSO are a copy of the database, `shop@TSO`; CREATE TABLE is shown as TiDB
prints it, with types that MariaDB lacks: it has their values as texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pymysql

from cdc_assets.model.schema import TableId
from cdc_assets_tests.mariadb import PASSWORD, USER, Server

__all__ = ["TidbStandIn"]


class TidbStandIn:
    """`texts` are the CREATE TABLE statements to show; those of other tables are MariaDB's."""

    def __init__(self, server: Server, texts: Mapping[TableId, str]) -> None:
        self.server, self.texts = server, texts
        self.snapshots: set[int] = set()
        self.databases: set[str] = set()
        self.safe_point = 0
        self.cluster = "7372143765832155000"
        self.asked: list[str] = []
        self._connect: Callable[..., Any] = pymysql.connect

    def keep(self, at: int, database: str) -> None:
        """Let sessions at a TSO read what is in a database now."""
        self.snapshots.add(at)
        self.databases.add(database)
        with self._connect(host="127.0.0.1", port=self.server.port, user=USER, password=PASSWORD.encode()) as own:
            cursor = own.cursor()
            cursor.execute(f"SHOW FULL TABLES FROM `{database}` WHERE Table_type = 'BASE TABLE'")
            names = [name.replace("`", "``") for name, _ in cursor.fetchall()]
        copy = f"{database}@{at}"
        copies = [
            statement
            for name in names
            for statement in (
                f"CREATE TABLE `{copy}`.`{name}` LIKE `{database}`.`{name}`",
                f"INSERT INTO `{copy}`.`{name}` SELECT * FROM `{database}`.`{name}`",
            )
        ]
        self.server.run(f"CREATE DATABASE `{copy}`", "SET sql_mode = ''", *copies)

    def collect(self, below: int) -> None:
        """Refuse sessions at a TSO below this one."""
        self.safe_point = below

    def connect(self, **given: Any) -> Any:
        """Stand in for the client library's own function where the project calls it."""
        real = self._connect(**given)
        return _Connection(self, real) if given.get("program_name") == "cdc-assets" else real


class _Connection:
    def __init__(self, tidb: TidbStandIn, real: Any) -> None:
        self.tidb, self.real, self.snapshot = tidb, real, ""

    def cursor(self, kind: type) -> _Cursor:
        return _Cursor(self, self.real.cursor(kind))

    def close(self) -> None:
        self.real.close()


class _Cursor:
    def __init__(self, connection: _Connection, real: Any) -> None:
        self.connection, self.real = connection, real
        self.rows: list[tuple[bytes | None, ...]] | None = None

    def __enter__(self) -> _Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.real.close()

    def execute(self, sql: str) -> None:
        tidb, at = self.connection.tidb, self.connection.snapshot
        tidb.asked.append(sql)
        self.rows = self._answered(sql)
        if self.rows is not None:
            return
        if at and int(at) < tidb.safe_point:
            raise pymysql.err.OperationalError(9006, "GC life time is shorter than transaction duration")
        for name in tidb.databases if at else ():
            sql = sql.replace(f" FROM `{name}`", f" FROM `{name}@{at}`", 1)
        self.real.execute(sql)
        if sql == "SHOW DATABASES":
            self.rows = [row for row in self.real.fetchall() if b"@" not in row[0]]

    def _answered(self, sql: str) -> list[tuple[bytes | None, ...]] | None:
        connection, tidb = self.connection, self.connection.tidb
        if match := re.fullmatch(r"SET SESSION tidb_snapshot = '(\d*)'", sql):
            connection.snapshot = match[1]
            if match[1] and int(match[1]) < tidb.safe_point:
                raise pymysql.err.OperationalError(8055, "snapshot is older than GC safe point")
            if match[1] and int(match[1]) not in tidb.snapshots:
                raise AssertionError(f"nothing is kept of {match[1]}")
            return []
        if sql == "SELECT @@SESSION.tidb_snapshot":
            return [(connection.snapshot.encode(),)]
        if "LIKE 'tidb_snapshot'" in sql:
            return [(b"tidb_snapshot", b"")]
        if "FROM mysql.tidb" in sql:
            return [(tidb.cluster.encode(),)]
        if sql == "SELECT VERSION()":
            return [(b"8.0.11-TiDB-v8.5.4",)]
        if match := re.fullmatch(r"SHOW CREATE TABLE `((?:[^`]|``)*)`\.`((?:[^`]|``)*)`", sql):
            name = TableId(*(part.replace("``", "`") for part in match.groups()))
            return [(name.table.encode(), tidb.texts[name].encode())] if name in tidb.texts else None
        return None

    def fetchall(self) -> Any:
        return self.real.fetchall() if self.rows is None else self.rows

    def fetchmany(self, count: int) -> Any:
        return self.real.fetchmany(count)
