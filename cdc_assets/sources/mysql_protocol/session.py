"""A connection that reads tables as they were at a TSO, and what goes wrong with one as errors that say what to do."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdc_assets.errors import (
    BadSettings,
    BucketMissing,
    CdcError,
    InputError,
    MalformedData,
    MalformedDump,
    StorageUnavailable,
)
from cdc_assets.model.tso import Tso
from cdc_assets.sources.mysql_protocol.address import Address, Tls

Row = tuple[bytes | None, ...]
"""The values of a row, each as the bytes that the server prints."""

_CONNECT_SECONDS = 20
_SILENT_SECONDS = 900
"""Seconds without a byte after which a server counts as gone."""

_ALWAYS = ("SET SESSION time_zone = '+00:00'", "SET SESSION sql_mode = ''")
_WHERE_KNOWN = (
    "SET SESSION sql_select_limit = 18446744073709551615",
    "SET SESSION sql_quote_show_create = 1",
    "SET SESSION max_execution_time = 0",
    "SET SESSION max_statement_time = 0",
    "SET SESSION net_write_timeout = 3600",
    "SET SESSION tidb_read_staleness = ''",
    "SET SESSION tidb_enable_external_ts_read = 0",
    "SET SESSION tidb_enable_paging = 1",
)
"""Statements that set session variables which a server may have otherwise, and which would leave rows out or change
texts."""

_NO_SUCH_VARIABLE = 1193
_NO_SUCH_DATABASE = 1049
_GONE = {1050, 1051, 1146}
_REFUSED = {1044, 1045, 1227, 1698, 2054, 2059, 3159}
_NO_RIGHTS = {1142, 1143}
_TOO_OLD = {8055, 9006}
_PASSING = {
    1040,
    1053,
    1077,
    1079,
    1158,
    1159,
    1160,
    1161,
    1203,
    1205,
    1226,
    1317,
    1927,
    2003,
    2005,
    2006,
    2012,
    2013,
    2014,
    2055,
}
_PASSING |= {8027, 8028, 8229, 9001, 9002, 9003, 9004, 9005, 9009, 9010, 9011, 9012, 9013}
_MEMORY = {8001, 8175, 8176}


@dataclass(slots=True)
class Session:
    """An open connection that reads at a TSO. `version` is what the server calls itself."""

    address: Address
    connection: Any
    version: str = ""
    is_tidb: bool = False

    def query(self, sql: str) -> list[Row]:
        """Return all rows of a query."""
        from pymysql.cursors import Cursor

        with _translated(self.address), self.connection.cursor(Cursor) as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def stream(self, sql: str, rows: int) -> Iterator[list[Row]]:
        """Yield the rows of a query in lists of at most so many, read from the server as they are asked for."""
        from cdc_assets.sources.mysql_protocol.cursor import UnbufferedCursor

        with self.connection.cursor(UnbufferedCursor) as cursor:
            with _translated(self.address):
                cursor.execute(sql)
            while True:
                with _translated(self.address):
                    batch = cursor.fetchmany(rows)
                if not batch:
                    return
                yield batch

    def scalar(self, sql: str) -> str:
        """Return the one value of a query as text."""
        return (self.query(sql)[0][0] or b"").decode("utf-8", "replace")

    def prepare(self, at: Tso) -> None:
        """Set the variables for exact values, the TSO last: some versions of TiDB forget it when another one is set.

        A TSO of 0 stands for the present.
        """
        snapshot = str(at) if at else ""
        for statement in _ALWAYS:
            self.query(statement)
        for statement in _WHERE_KNOWN:
            try:
                self.query(statement)
            except InputError as problem:
                if problem.where.get("code") != _NO_SUCH_VARIABLE:
                    raise
        self.version = self.scalar("SELECT VERSION()")
        self.is_tidb = bool(self.query("SHOW SESSION VARIABLES LIKE 'tidb_snapshot'"))
        if self.is_tidb:
            self.query(f"SET SESSION tidb_snapshot = '{snapshot}'")
        variables = {"time_zone": "+00:00"} | ({"tidb_snapshot": snapshot} if self.is_tidb else {})
        for name, value in variables.items():
            session_value = self.scalar(f"SELECT @@SESSION.{name}")
            if session_value != value:
                raise BadSettings(
                    f'{self.address.uri} has {name} "{session_value}" after it was set to "{value}": something '
                    "between, such "
                    "as a proxy, keeps the session from being set. Read from the server itself."
                )


@contextmanager
def session(address: Address, at: Tso) -> Iterator[Session]:
    """Open a connection that reads at a TSO.

    Raises BadSettings where the server refuses, StorageUnavailable where it does not answer, BucketMissing where what
    was there at the TSO is gone.
    """
    opened = Session(address, _connected(address))
    try:
        opened.prepare(at)
        yield opened
    finally:
        with suppress(Exception):  # it may be broken already
            opened.connection.close()


def identifier(name: str) -> str:
    """Return a name as SQL quotes it."""
    return "`" + name.replace("`", "``") + "`"


def _connected(address: Address) -> Any:
    try:
        import pymysql
    except ImportError:
        raise BadSettings(
            "reading straight from the source needs PyMySQL, which is not installed. Install it: "
            "pip install 'cdc-assets[mysql]'."
        ) from None
    with _translated(address):
        return pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password.encode(),
            charset="utf8mb4",
            use_unicode=False,
            conv={},
            autocommit=True,
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_SILENT_SECONDS,
            program_name="cdc-assets",
            ssl=_context(address.tls) if address.tls.mode not in ("DISABLED", "PREFERRED") else None,
            ssl_disabled=address.tls.mode == "DISABLED",
        )


def _context(tls: Tls) -> ssl.SSLContext:
    """PyMySQL's own context checks no host's name where it is given no CA."""
    context = ssl.create_default_context(cafile=tls.ca)
    context.check_hostname = tls.mode == "VERIFY_IDENTITY"
    context.verify_mode = ssl.CERT_NONE if tls.mode == "REQUIRED" else ssl.CERT_REQUIRED
    # TiDB and MySQL make certificates of their own that are not strict, which Python expects from 3.13 on.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key)
    return context


@contextmanager
def _translated(address: Address) -> Iterator[None]:
    """Turn what the client library raises into errors of this project."""
    import pymysql

    try:
        yield
    except CdcError:
        raise
    except pymysql.err.MySQLError as error:
        code, text = (*error.args, 0, "")[:2] if len(error.args) > 1 else (0, str(error))
        raise _error(address, int(code), str(text), getattr(error, "original_exception", None)) from None
    except ssl.SSLError as error:
        raise _error(address, 2003, str(error), error) from None
    except FileNotFoundError as error:
        named = (address.tls.ca, address.tls.certificate, address.tls.key)
        gone = ", ".join(path for path in named if path is not None and not Path(path).exists())
        raise BadSettings(
            f"{address.uri}: a file of its TLS parameters is not there ({gone or error}). Correct it."
        ) from None
    except OSError as error:
        raise _error(address, 2013, str(error), error) from None
    except RuntimeError as error:
        raise BadSettings(f"{address.uri} cannot be logged in to: {error}. Use TLS (ssl-mode=REQUIRED).") from None


def _error(address: Address, code: int, text: str, cause: object) -> CdcError:
    where, detail = {"file": address.uri, "code": code}, f"({code}: {text})"
    if isinstance(cause, ssl.SSLError):
        return BadSettings(
            f"{address.uri} has a certificate that is not trusted {detail}. Correct ssl-ca, or ssl-mode."
        )
    if code == 2026 or (code == 2003 and "SSL" in text):
        return BadSettings(f"{address.uri} does not agree on TLS {detail}. Correct ssl-mode.", **where)
    if code in _REFUSED:
        return BadSettings(
            f'{address.uri} refuses the user "{address.user}" {detail}. It needs SELECT on the tables, and its '
            "password from the environment: password: {env: NAME}.",
            **where,
        )
    if code in _NO_RIGHTS:  # other tables can be read
        return InputError(f'{address.uri} refuses the user "{address.user}" {detail}. Grant it SELECT.', **where)
    if code == _NO_SUCH_DATABASE:
        return BadSettings(f"{address.uri} has no such database {detail}. Correct the URI of the source.", **where)
    if code in _TOO_OLD:
        return BucketMissing(
            f"{address.uri} no longer has the data of the TSO {detail}: it has been garbage-collected. Create the "
            "changefeed first, which keeps it, or raise tidb_gc_life_time; then take a newer TSO, and "
            "a changefeed that begins at or before that.",
            **where,
        )
    if code in _MEMORY:
        return MalformedDump(
            f"{address.uri} does not have enough memory for a query {detail}. Raise tidb_mem_quota_query.", **where
        )
    if code in _PASSING:
        return StorageUnavailable(
            f"{address.uri} did not answer {detail}. Try again later. If the setting initial names it and all its "
            "tables are imported, take it out there.",
            **where,
        )
    if code in _GONE:
        return MalformedData(f"{address.uri}: a table went away while it was read {detail}. Read again.", **where)
    return InputError(f"{address.uri} refuses a query {detail}.", **where)
