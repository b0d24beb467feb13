"""What was read and done, file by file and DDL by DDL. It speeds up and explains; it never decides.

Deleting the ledger loses no correctness: progress lives in the lake's own commits. A ledger is one SQLAlchemy URL, by
default `ledger.db` beside the catalog.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import sqlalchemy as sa

from cdc_assets.errors import StorageUnavailable
from cdc_assets.fidelity import ColumnFidelity
from cdc_assets.model import FileStats, Life, StepResult, TableId, Tso
from cdc_assets.mysql_types import Grade

__all__ = ["UNREAD", "FileEntry", "JournalEntry", "Ledger", "TableState"]

_METADATA = sa.MetaData()

_FILES = sa.Table(
    "files",
    _METADATA,
    sa.Column("changefeed", sa.Text, primary_key=True),
    sa.Column("path", sa.Text, primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("etag", sa.Text, nullable=False),
    sa.Column("life", sa.Text, nullable=False),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("min_commit_ts", sa.BigInteger),
    sa.Column("max_commit_ts", sa.BigInteger),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("snapshot", sa.BigInteger),
    sa.Column("read_at", sa.Float, nullable=False),
)

_SCHEMA_FILES = sa.Table(
    "schema_files",
    _METADATA,
    sa.Column("changefeed", sa.Text, primary_key=True),
    sa.Column("path", sa.Text, primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("etag", sa.Text, nullable=False),
    sa.Column("contents", sa.LargeBinary, nullable=False),
)

_JOURNAL = sa.Table(
    "journal",
    _METADATA,
    sa.Column("changefeed", sa.Text, primary_key=True),
    sa.Column("life", sa.Text, primary_key=True),
    sa.Column("tso", sa.BigInteger, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("query", sa.Text, nullable=False),
    sa.Column("statements", sa.Text, nullable=False),
    sa.Column("snapshot_before", sa.BigInteger),
    sa.Column("snapshot_after", sa.BigInteger),
    sa.Column("seconds", sa.Float, nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("done_at", sa.Float, nullable=False),
)

_TABLES = sa.Table(
    "tables",
    _METADATA,
    sa.Column("changefeed", sa.Text, primary_key=True),
    sa.Column("life", sa.Text, primary_key=True),
    sa.Column("schema", sa.Text, nullable=False),
    sa.Column("table", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("through", sa.BigInteger, nullable=False),
    sa.Column("checkpoint", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("ways", sa.Text, nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("changed_at", sa.Float, nullable=False),
)


_FIDELITY = sa.Table(
    "fidelity",
    _METADATA,
    sa.Column("changefeed", sa.Text, primary_key=True),
    sa.Column("path", sa.Text, primary_key=True),
    sa.Column("column", sa.Text, primary_key=True),
    sa.Column("rule", sa.Text, primary_key=True),
    sa.Column("life", sa.Text, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
)

_COLUMNS = sa.Table(
    "columns",
    _METADATA,
    sa.Column("changefeed", sa.Text, primary_key=True),
    sa.Column("life", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("column", sa.Text, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("lake", sa.Text, nullable=False),
    sa.Column("grade", sa.Text, nullable=False),
    sa.Column("rule", sa.Text, nullable=False),
)


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One data file as it was read last: what was in it, for which table, by which run into which snapshot, and when.

    `rows` is UNREAD for a file that was listed and gone before anybody read it. `read_at` is seconds since 1970.
    """

    path: str
    life: str
    size: int
    etag: str
    rows: int
    min_commit_ts: Tso | None
    max_commit_ts: Tso | None
    run: str
    snapshot: int | None
    read_at: float


UNREAD = -1
"""In place of a count of rows: nobody knows what was in the file."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One DDL as it was carried out for one table."""

    life: str
    tso: Tso
    name: str
    action: str
    query: str
    statements: tuple[str, ...]
    snapshot_before: int | None
    snapshot_after: int | None
    seconds: float
    run: str


@dataclass(frozen=True, slots=True)
class TableState:
    """How a table stood after the last run that looked at it. `state` is applied, held, failed or dropped.

    `version` is the newest schema version taken in, `through` the TSO at or below which everything is applied,
    `checkpoint` the changefeed's at that time.
    """

    life: str
    name: TableId
    version: Tso
    through: Tso
    checkpoint: Tso
    state: str
    reason: str = ""
    ways: tuple[str, ...] = ()
    run: str = ""


class Ledger:
    """Record and recall; `changefeed` is the name of the changefeed, `run` whatever identifies a run."""

    def __init__(self, url: str, patience_seconds: float = 30) -> None:
        """Open the database of a SQLAlchemy URL; a SQLite file that another process writes to is waited for."""
        waiting = {"timeout": patience_seconds} if sa.make_url(url).get_backend_name() == "sqlite" else {}
        self._engine = sa.create_engine(url, connect_args=waiting)
        with suppress(sa.exc.DBAPIError):
            _METADATA.create_all(self._engine, checkfirst=True)
            return
        with self._answering():  # another process made the tables at the same moment
            _METADATA.create_all(self._engine, checkfirst=True)

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    @contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        with self._answering(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        with self._answering(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            raise StorageUnavailable(
                f"the ledger {self._engine.url.render_as_string()} did not answer ({error.orig}). The tables stand as "
                "their own commits say; nothing of them is lost. Try again."
            ) from error

    # --- files ---

    def record_files(
        self, changefeed: str, life: Life, files: Iterable[FileStats], run: str, snapshot: int | None
    ) -> None:
        """Remember what reading these files told; a file that is read again replaces its entry."""
        known = {stats.path: stats for stats in files}
        if not known:
            return
        rows = [
            {
                "changefeed": changefeed,
                "path": stats.path,
                "size": stats.size,
                "etag": stats.etag,
                "life": str(life),
                "rows": stats.rows,
                "min_commit_ts": stats.min_commit_ts,
                "max_commit_ts": stats.max_commit_ts,
                "run": run,
                "snapshot": snapshot,
                "read_at": time.time(),
            }
            for stats in known.values()
        ]
        paths = [{"of": changefeed, "at": path} for path in known]
        with self._write() as connection:
            for table in (_FILES, _FIDELITY):
                mine = sa.and_(table.c.changefeed == sa.bindparam("of"), table.c.path == sa.bindparam("at"))
                connection.execute(sa.delete(table).where(mine), paths)
            connection.execute(sa.insert(_FILES), rows)
            for stats in known.values():
                _insert_notes(connection, changefeed, life, stats)

    def file_stats(self, changefeed: str) -> dict[str, FileStats]:
        """Return what is known of every file that was read, by path."""
        query = sa.select(_FILES).where(_FILES.c.changefeed == changefeed, _FILES.c.rows != UNREAD)
        with self._read() as connection:
            return {
                row.path: FileStats(row.path, row.size, row.etag, row.rows, row.min_commit_ts, row.max_commit_ts)
                for row in connection.execute(query)
            }

    def files(self, changefeed: str) -> tuple[FileEntry, ...]:
        """Return every file that was read, and those that vanished unread, by path."""
        query = sa.select(_FILES).where(_FILES.c.changefeed == changefeed).order_by(_FILES.c.path)
        with self._read() as connection:
            return tuple(
                FileEntry(
                    row.path,
                    row.life,
                    row.size,
                    row.etag,
                    row.rows,
                    row.min_commit_ts,
                    row.max_commit_ts,
                    row.run,
                    row.snapshot,
                    row.read_at,
                )
                for row in connection.execute(query)
            )

    def record_unread(self, changefeed: str, life: Life, path: str, run: str) -> None:
        """Remember a file that was listed and is gone: what was in it is not known."""
        self.record_files(changefeed, life, [FileStats(path, 0, "", UNREAD, None, None)], run, None)

    def forget_files(self, changefeed: str, paths: Iterable[str]) -> int:
        """Forget what is known of these files, and with it that they are missed; return how many were known."""
        with self._write() as connection:
            return sum(
                connection.execute(
                    sa.delete(_FILES).where(_FILES.c.changefeed == changefeed, _FILES.c.path == path)
                ).rowcount
                for path in paths
            )

    def schema_files(self, changefeed: str) -> dict[tuple[str, int, str], bytes]:
        """Return the contents of schema files that were read before, by (path, size, etag)."""
        query = sa.select(_SCHEMA_FILES).where(_SCHEMA_FILES.c.changefeed == changefeed)
        with self._read() as connection:
            return {(row.path, row.size, row.etag): row.contents for row in connection.execute(query)}

    def record_schema_files(self, changefeed: str, contents: Mapping[tuple[str, int, str], bytes]) -> None:
        """Remember the contents of schema files, so that the next process need not read them again."""
        with self._write() as connection:
            for (path, size, etag), data in contents.items():
                key = {"changefeed": changefeed, "path": path}
                _replace(connection, _SCHEMA_FILES, key, {"size": size, "etag": etag, "contents": data})

    def files_of(self, changefeed: str, life: Life) -> tuple[FileStats, ...]:
        """Return what is known of the files that were read for one table."""
        query = sa.select(_FILES).where(_FILES.c.changefeed == changefeed, _FILES.c.life == str(life))
        with self._read() as connection:
            return tuple(
                FileStats(row.path, row.size, row.etag, row.rows, row.min_commit_ts, row.max_commit_ts)
                for row in connection.execute(query)
            )

    # --- fidelity ---

    def notes(self, changefeed: str, life: Life | str) -> dict[tuple[str, str], int]:
        """Return how many values of a table a rule of the type table has changed so far, by (column, rule)."""
        one = _FIDELITY.c
        query = (
            sa.select(one.column, one.rule, sa.func.sum(one.count))
            .where(one.changefeed == changefeed, one.life == str(life))
            .group_by(one.column, one.rule)
        )
        with self._read() as connection:
            return {(column, rule): int(count) for column, rule, count in connection.execute(query)}

    def record_columns(self, changefeed: str, life: Life, columns: Iterable[ColumnFidelity]) -> None:
        """Remember what the lake keeps of each column, as of the newest schema."""
        rows = [
            {
                "changefeed": changefeed,
                "life": str(life),
                "position": position,
                "column": one.column,
                "source": one.source,
                "lake": one.lake,
                "grade": one.grade.value,
                "rule": one.rule,
            }
            for position, one in enumerate(columns)
        ]
        with self._write() as connection:
            connection.execute(
                sa.delete(_COLUMNS).where(_COLUMNS.c.changefeed == changefeed, _COLUMNS.c.life == str(life))
            )
            if rows:
                connection.execute(sa.insert(_COLUMNS), rows)

    def fidelity(self, changefeed: str, life: Life | str) -> tuple[ColumnFidelity, ...]:
        """Return the fidelity report of a table: what the lake keeps of each column, with the counts so far."""
        notes = self.notes(changefeed, life)
        query = sa.select(_COLUMNS).where(_COLUMNS.c.changefeed == changefeed, _COLUMNS.c.life == str(life))
        with self._read() as connection:
            rows = connection.execute(query.order_by(_COLUMNS.c.position)).all()
        return tuple(
            ColumnFidelity(
                row.column,
                row.source,
                row.lake,
                Grade(row.grade),
                row.rule,
                {rule: count for (name, rule), count in notes.items() if name == row.column},
            )
            for row in rows
        )

    # --- DDL ---

    def record_ddl(
        self,
        changefeed: str,
        life: Life,
        tso: Tso,
        name: TableId,
        action: str,
        query: str,
        result: StepResult,
        run: str,
    ) -> None:
        """Journal one DDL; carried out again after a crash, it keeps one row."""
        with self._write() as connection:
            _replace(
                connection,
                _JOURNAL,
                {"changefeed": changefeed, "life": str(life), "tso": tso},
                {
                    "name": str(name),
                    "action": action,
                    "query": query,
                    "statements": json.dumps(result.statements, ensure_ascii=False),
                    "snapshot_before": result.snapshot_before,
                    "snapshot_after": result.snapshot_after,
                    "seconds": result.seconds,
                    "run": run,
                    "done_at": time.time(),
                },
            )

    def journaled(self, changefeed: str) -> set[tuple[str, Tso]]:
        """Return which DDL have a row in the journal: (life, TSO)."""
        query = sa.select(_JOURNAL.c.life, _JOURNAL.c.tso).where(_JOURNAL.c.changefeed == changefeed)
        with self._read() as connection:
            return {(row.life, row.tso) for row in connection.execute(query)}

    def journal(self, changefeed: str) -> tuple[JournalEntry, ...]:
        """Return every DDL carried out, oldest first."""
        query = sa.select(_JOURNAL).where(_JOURNAL.c.changefeed == changefeed).order_by(_JOURNAL.c.tso, _JOURNAL.c.life)
        with self._read() as connection:
            return tuple(
                JournalEntry(
                    row.life,
                    row.tso,
                    row.name,
                    row.action,
                    row.query,
                    tuple(json.loads(row.statements)),
                    row.snapshot_before,
                    row.snapshot_after,
                    row.seconds,
                    row.run,
                )
                for row in connection.execute(query)
            )

    # --- tables ---

    def record_states(self, changefeed: str, states: Sequence[TableState]) -> None:
        """Remember how tables stand; one row per table."""
        with self._write() as connection:
            for state in states:
                _replace(
                    connection,
                    _TABLES,
                    {"changefeed": changefeed, "life": state.life},
                    {
                        "schema": state.name.schema,
                        "table": state.name.table,
                        "version": state.version,
                        "through": state.through,
                        "checkpoint": state.checkpoint,
                        "state": state.state,
                        "reason": state.reason,
                        "ways": json.dumps(state.ways, ensure_ascii=False),
                        "run": state.run,
                        "changed_at": time.time(),
                    },
                )

    def states(self) -> dict[str, tuple[TableState, ...]]:
        """Return the last known state of every table, by changefeed."""
        found: dict[str, list[TableState]] = {}
        with self._read() as connection:
            for row in connection.execute(
                sa.select(_TABLES).order_by(_TABLES.c.schema, _TABLES.c.table, _TABLES.c.life)
            ):
                state = TableState(
                    row.life,
                    TableId(row.schema, row.table),
                    row.version,
                    row.through,
                    row.checkpoint,
                    row.state,
                    row.reason,
                    tuple(json.loads(row.ways)),
                    row.run,
                )
                found.setdefault(row.changefeed, []).append(state)
        return {changefeed: tuple(states) for changefeed, states in found.items()}


def _insert_notes(connection: sa.Connection, changefeed: str, life: Life, stats: FileStats) -> None:
    """A file's counts are those of its newest reading."""
    rows = [
        {
            "changefeed": changefeed,
            "path": stats.path,
            "column": column,
            "rule": rule,
            "life": str(life),
            "count": count,
        }
        for (column, rule), count in stats.notes.items()
    ]
    if rows:
        connection.execute(sa.insert(_FIDELITY), rows)


def _replace(
    connection: sa.Connection, table: sa.Table, key: Mapping[str, object], values: Mapping[str, object]
) -> None:
    """Update the row of that key, or insert it; portable over SQLite and Postgres."""
    where = sa.and_(*(table.c[name] == value for name, value in key.items()))
    if connection.execute(sa.update(table).where(where).values(**values)).rowcount == 0:
        connection.execute(sa.insert(table).values(**key, **values))
