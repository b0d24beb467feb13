"""The record of what was read and done, by file and by DDL. It speeds up and explains; it never decides.

Deleting the ledger loses no correctness: progress lives in the lake's own commits. A ledger is one SQLAlchemy URL, by
default `ledger.db` beside the catalog. A million settled files stand in a table of their own, which no look has to
read: `settled` has a row a directory.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import astuple, fields, replace
from functools import cache
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from cdc_assets.errors import BadSettings, StorageUnavailable
from cdc_assets.model.comparison import TableComparison, format_comparison, parse_comparison
from cdc_assets.model.findings import SEEN_IN_ROWS, Finding, Severity
from cdc_assets.model.forecast import MOST_POINTS
from cdc_assets.model.ledger_entries import NOTED, UNREAD, FileEntry, JournalEntry, TableState
from cdc_assets.model.progress import Life, State, source_of
from cdc_assets.model.reports import FileStats, KeyRange
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import SettledFiles
from cdc_assets.model.tso import Tso
from cdc_assets.model.window_metrics import WindowMetrics, format_metrics, parse_metrics

if TYPE_CHECKING:
    from cdc_assets.types.fidelity import ColumnFidelity


METADATA = sa.MetaData()
TEXT, INT, FLOAT = sa.Text, sa.BigInteger, sa.Float


def _table(
    name: str, key: Mapping[str, Any], columns: Mapping[str, Any], optional: Mapping[str, Any] | None = None
) -> sa.Table:
    """Return a table whose key is a changefeed and what else tells its rows apart; `optional` columns may be NULL."""
    return sa.Table(
        name,
        METADATA,
        sa.Column("changefeed", TEXT, primary_key=True),
        *(sa.Column(column, kind, primary_key=True) for column, kind in key.items()),
        *(sa.Column(column, kind, nullable=False) for column, kind in columns.items()),
        *(sa.Column(column, kind) for column, kind in (optional or {}).items()),
    )


_OF_FILE = {"size": INT, "etag": TEXT, "life": TEXT, "rows": INT, "run": TEXT, "read_at": FLOAT, "key_ranges": TEXT}
_KNOWN_OF_FILE = {"min_commit_ts": INT, "max_commit_ts": INT, "snapshot": INT}
FILES = _table("files", {"path": TEXT}, _OF_FILE, _KNOWN_OF_FILE)
_SETTLED_FILES = _table("settled_files", {"path": TEXT}, {**_OF_FILE, "directory": TEXT}, _KNOWN_OF_FILE)
_ = sa.Index("settled_files_by_directory", _SETTLED_FILES.c.changefeed, _SETTLED_FILES.c.directory)

_SETTLED = _table("settled", {"directory": TEXT}, {
    "root": TEXT, "version": INT, "date": TEXT, "last": TEXT, "number": INT, "files": INT, "digest": INT, "since": INT,
    "through": INT, "checkpoint": INT, "seen_at": FLOAT,
})  # fmt: skip
_KEPT = tuple(field.name for field in fields(SettledFiles) if field.name != "passed_over")
_DIALECTS: Mapping[str, Any] = {"postgresql": postgresql, "sqlite": sqlite}
"""Dialect of the ledger's database -> how it is spoken, with an INSERT that knows ON CONFLICT."""
KINDS = tuple(_DIALECTS)
"""The dialects of databases that a ledger may be in."""
_MANY = 500
"""Most names in one condition."""


_OF_CHANGEFEED = ("changefeed",)
_OF_PATH = ("changefeed", "path")
_OF_LIFE = ("changefeed", "life")


@cache
def _select(
    table: sa.Table, names: tuple[str, ...], by: tuple[str, ...] = _OF_CHANGEFEED, order: tuple[str, ...] = ()
) -> sa.Select[Any]:
    """Return the query for these columns of the rows that have the parameters' values in the columns `by`.

    To build a statement costs more than to carry it out: each is built once.
    """
    query = sa.select(*(table.c[name] for name in names)).where(*_has(table, by))
    return query.order_by(*(table.c[name] for name in order))


@cache
def _delete(table: sa.Table, by: tuple[str, ...]) -> sa.Delete:
    """Return the statement that deletes the rows that have the parameters' values in the columns `by`."""
    return sa.delete(table).where(*_has(table, by))


@cache
def _insert(table: sa.Table) -> sa.Insert:
    return sa.insert(table)


def _has(table: sa.Table, by: tuple[str, ...]) -> list[sa.ColumnElement[bool]]:
    return [table.c[name] == sa.bindparam(name) for name in by]


class SettledRecord:
    """Stores which files of a changefeed are settled."""

    def __init__(self, database: _Database) -> None:
        self._database = database

    def read(self, changefeed: str) -> tuple[SettledFiles, ...]:
        """Return the settled files, by directory."""
        query = _select(_SETTLED, _KEPT, order=("directory",))
        with self._database.read() as connection:
            return tuple(SettledFiles(*row) for row in connection.execute(query, {"changefeed": changefeed}))

    def keep(self, changefeed: str, settled: Mapping[SettledFiles, Iterable[str]]) -> None:
        """Keep what is settled from now on, in place of what was in the same directories, with the paths new to it."""
        if not settled:
            return
        with self._database.write() as connection:
            rows = [{"changefeed": changefeed, **{name: getattr(entry, name) for name in _KEPT}} for entry in settled]
            replace_rows(connection, _SETTLED, rows)
            for settled_files, paths in settled.items():
                _move(connection, changefeed, settled_files.directory, paths)


def _move(connection: sa.Connection, changefeed: str, directory: str, paths: Iterable[str]) -> None:
    """Bring the entries of files to those that are settled."""
    names = [column.name for column in FILES.c]
    at = sa.and_(FILES.c.changefeed == sa.bindparam("of"), FILES.c.path == sa.bindparam("at"))
    there = sa.select(*(FILES.c[name] for name in names), sa.bindparam("place", type_=sa.Text)).where(at)
    moved = [{"of": changefeed, "at": path, "place": directory} for path in paths]
    if moved:
        taken = _DIALECTS[connection.dialect.name].insert(_SETTLED_FILES).from_select([*names, "directory"], there)
        connection.execute(taken.on_conflict_do_nothing(), moved)  # another run may do the same at the same moment
        connection.execute(sa.delete(FILES).where(at), moved)


def replace_rows(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, object]]) -> None:
    """Insert rows that have all columns, in place of those with the same primary key."""
    if rows:
        connection.execute(_replacing(connection.dialect.name, table, tuple(rows[0])), [dict(row) for row in rows])


@cache
def _replacing(dialect: str, table: sa.Table, names: tuple[str, ...]) -> sa.Executable:
    """Return the statement that replaces rows: to build it costs ten times as much as to carry it out."""
    insert = _DIALECTS[dialect].insert(table)
    key = [column.name for column in table.primary_key]
    values = {name: insert.excluded[name] for name in names if name not in key}
    statement: sa.Executable = insert.on_conflict_do_update(index_elements=key, set_=values)
    return statement


def remove_entries(connection: sa.Connection, changefeed: str, paths: Sequence[str]) -> int:
    """Remove the entries of these files wherever they are; return how many there were."""
    count = 0
    for table in (FILES, _SETTLED_FILES):
        if len(paths) == 1:
            key = {"changefeed": changefeed, "path": paths[0]}
            count += connection.execute(_delete(table, _OF_PATH), key).rowcount
            continue
        for at in range(0, len(paths), _MANY):
            some = table.c.path.in_(paths[at : at + _MANY])
            count += connection.execute(sa.delete(table).where(table.c.changefeed == changefeed, some)).rowcount
    return count


def select_everywhere(names: Sequence[str], changefeed: str, *conditions: tuple[str, Any]) -> sa.CompoundSelect[Any]:
    """Select columns of all files, settled ones included; conditions are (column, value that it has)."""
    return sa.union_all(
        *(
            sa.select(*(table.c[name] for name in names)).where(
                table.c.changefeed == changefeed, *(table.c[name] == value for name, value in conditions)
            )
            for table in (FILES, _SETTLED_FILES)
        )
    )


def settled_rows(
    connection: sa.Connection, changefeed: str, names: Sequence[str], without: Iterable[SettledFiles]
) -> list[sa.Row[Any]]:
    """Return columns of the settled files that are in other directories than these."""
    directories = connection.execute(_select(_SETTLED, ("directory",)), {"changefeed": changefeed})
    left_out = {settled.directory for settled in without}
    chosen = [row[0] for row in directories if row[0] not in left_out]
    rows = list[sa.Row[Any]]()
    columns = [_SETTLED_FILES.c[name] for name in names]
    for at in range(0, len(chosen), _MANY):
        some = _SETTLED_FILES.c.directory.in_(chosen[at : at + _MANY])
        query = sa.select(*columns).where(_SETTLED_FILES.c.changefeed == changefeed, some)
        rows += connection.execute(query).all()
    return rows


_SCHEMA_FILES = _table("schema_files", {"path": TEXT}, {"size": INT, "etag": TEXT, "contents": sa.LargeBinary})
_JOURNAL = _table("journal", {"life": TEXT, "tso": INT}, {
    "name": TEXT, "action": TEXT, "query": TEXT, "statements": TEXT, "seconds": FLOAT, "run": TEXT, "done_at": FLOAT,
}, {"snapshot_before": INT, "snapshot_after": INT})  # fmt: skip
_TABLES = _table("tables", {"life": TEXT}, {
    "schema": TEXT, "table": TEXT, "version": INT, "through": INT, "checkpoint": INT, "state": TEXT, "reason": TEXT,
    "ways": TEXT, "complete_by": TEXT, "points": TEXT, "run": TEXT, "changed_at": FLOAT,
    "by_step": sa.Boolean,
})  # fmt: skip
_FIDELITY = _table("fidelity", {"path": TEXT, "column": TEXT, "rule": TEXT}, {"life": TEXT, "count": INT})
_COLUMNS = _table("columns", {"life": TEXT, "position": sa.Integer}, {
    "column": TEXT, "source": TEXT, "lake": TEXT, "grade": TEXT, "rule": TEXT,
})  # fmt: skip
_WINDOWS = _table("windows", {"life": TEXT, "hi": INT}, {"adds_up": sa.Boolean, "account": TEXT})
_FINDINGS = _table("findings", {"position": sa.Integer}, {
    "rule": TEXT, "severity": TEXT, "table": TEXT, "sentence": TEXT, "detail": TEXT, "run": TEXT,
})  # fmt: skip
_COMPARISONS = _table("comparisons", {"table": TEXT}, {"comparison": TEXT, "compared_at": FLOAT})
_FORGOTTEN = _table("forgotten", {"life": TEXT}, {"run": TEXT})
"""The run that took rows out of a table last: who read them before that records no values of them any more."""

_TABLES_IN_ORDER = METADATA.sorted_tables


class _Database:
    """The ledger's tables behind a SQLAlchemy URL, made where they are missing: a file of SQLite by the first write.

    Raises StorageUnavailable, and BadSettings for a URL that names no database of a known kind.
    """

    def __init__(self, url: str, patience_seconds: float) -> None:
        self._engine = _engine(url, patience_seconds)
        self._turn = RLock() if isinstance(self._engine.pool, sa.StaticPool) else nullcontext()
        name = self._engine.url.database or ""
        is_file = url != "sqlite://" and self._engine.dialect.name == "sqlite" and not name.startswith("file:")
        self._file = Path(name) if is_file else None
        self._empty: _Database | None = None
        self._is_made = False
        self._is_there()

    def _is_there(self) -> bool:
        """Return whether the tables can be read; nothing is made of a file that is not there."""
        if not self._is_made and (self._file is None or self._file.exists()):
            self._make()
        return self._is_made

    def _make(self) -> None:
        if self._is_made:
            return
        try:
            if self._file is not None:
                self._file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadSettings(
                f"the directory of the ledger {self._file} cannot be made ({error.strerror}). Name another, or mend "
                "the rights."
            ) from None
        self._make_tables()
        self._is_made = True

    def _make_tables(self) -> None:
        for _ in METADATA.tables:  # another process may make each of them at the same moment
            with suppress(sa.exc.DBAPIError):
                _make_tables(self._engine)
                return
        with self._answering():
            _make_tables(self._engine)

    def close(self) -> None:
        self._engine.dispose()
        if self._empty is not None:
            self._empty.close()

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        self._make()
        with self._turn, self._answering(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        if not self._is_there():
            self._empty = self._empty or _Database("sqlite://", 0)
            with self._empty.read() as connection:
                yield connection
            return
        with self._turn, self._answering(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            message = " ".join(str(error.orig).split())  # what Postgres says has several lines
            place = self._engine.url.render_as_string()
            if _UNUSABLE.search(message):
                raise BadSettings(
                    f"the ledger {place} cannot be used ({message}). Check its place and the rights to it and to its "
                    "directory. The tables are as their own commits say."
                ) from error
            raise StorageUnavailable(
                f"the ledger {place} did not answer ({message}). The tables are as their own commits say; nothing of "
                "them is lost. Try again."
            ) from error


def _make_tables(engine: sa.Engine) -> None:
    """Make the tables that are missing, all at once: SQLite would write its file anew for each."""
    with engine.begin() as connection:
        table_names = sa.inspect(connection).get_table_names()
        missing = [table for table in _TABLES_IN_ORDER if table.name not in table_names]
        if missing and engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # Python's driver begins nothing for a CREATE TABLE
        for table in missing:
            for statement in _making(engine.dialect.name, table):
                connection.exec_driver_sql(statement)


@cache
def _making(dialect: str, table: sa.Table) -> tuple[str, ...]:
    """Return the statements that make a table: to build them costs more than to carry them out."""
    made: list[CreateTable | CreateIndex] = [CreateTable(table), *map(CreateIndex, table.indexes)]
    return tuple(str(definition.compile(dialect=_DIALECTS[dialect].dialect())) for definition in made)


_UNUSABLE = re.compile("unable to open database file|attempt to write a readonly database|file is not a database")
"""SQLite's messages about a file that a retry will not mend."""


def _engine(url: str, patience_seconds: float) -> sa.Engine:
    try:
        kind = sa.make_url(url).get_backend_name()
        if url == "sqlite://":  # in memory: all threads have the one connection, in turn
            return sa.create_engine(url, poolclass=sa.StaticPool, connect_args={"check_same_thread": False})
        if kind in KINDS:
            engine = sa.create_engine(url, connect_args={"timeout": patience_seconds} if kind == "sqlite" else {})
            if kind == "sqlite":
                sa.event.listen(engine, "connect", _overwrite_removed)
            return engine
        reason = f"databases of kind {kind} are not known"
    except (sa.exc.ArgumentError, ImportError, ValueError) as error:
        reason = str(error) if isinstance(error, ImportError) else "it is no URL of a database"
    raise BadSettings(
        f"the ledger cannot be opened: {reason}. Give lake.ledger as postgresql+psycopg2://USER:PASSWORD@HOST/NAME, "
        "with cdc-assets[postgres] installed, or as sqlite:///PATH."
    ) from None


def _overwrite_removed(connection: Any, _: Any) -> None:
    """Let SQLite overwrite what is removed: else its bytes stay in the file, of forgotten rows too."""
    connection.execute("PRAGMA secure_delete = ON")


class Ledger:
    """Store and return records; `changefeed` is the name of the changefeed, `run` identifies a run."""

    def __init__(self, url: str, patience_seconds: float = 30) -> None:
        """Open the database of a SQLAlchemy URL; waits while another process writes to a SQLite file.

        A file that is not there is made by the first write, with its directory; before, nothing is recorded.
        """
        self._database = _Database(url, patience_seconds)
        self.settled = SettledRecord(self._database)

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    # --- files ---

    def record_files(
        self,
        changefeed: str,
        life: Life,
        files: Iterable[FileStats],
        run: str,
        snapshot: int | None,
        account: WindowMetrics | None = None,
        since: Tso = -1,
        revision: str | None = None,
    ) -> None:
        """Record the statistics of these files, and the metrics of the window for which they were read.

        `revision` is the run that had taken rows out of the table when it was planned: where another one has taken out
        some since, ranges of keys are left out.

        A file that is read again replaces its entry; of metrics the newest are kept, and those that do not add up.
        Files are of the source's table, whichever of its kinds reads them. One that has no row above `since`, where the
        window began, stays with the table that it was read for before: of another one that had the name then.
        """
        table, life = life, life.source
        stats_by_path = {stats.path: stats for stats in files}
        if not stats_by_path:
            return
        older = [
            path for path, stats in stats_by_path.items() if stats.max_commit_ts is None or stats.max_commit_ts <= since
        ]
        if older:
            with self._database.read() as connection:
                for at in range(0, len(older), _MANY):
                    other_paths = sa.select(FILES.c.path).where(
                        FILES.c.changefeed == changefeed, FILES.c.life != str(life)
                    )
                    for (path,) in connection.execute(other_paths.where(FILES.c.path.in_(older[at : at + _MANY]))):
                        del stats_by_path[path]
        rows = [
            {
                **{name: getattr(stats, name) for name in _OF_STATS},
                "changefeed": changefeed,
                "life": str(life),
                "run": run,
                "snapshot": snapshot,
                "read_at": time.time(),
                "key_ranges": _format_key_ranges(stats.keys),
            }
            for stats in stats_by_path.values()
        ]
        paths = [{"changefeed": changefeed, "path": path} for path in stats_by_path]
        with self._database.write() as connection:
            if revision is not None and _revision_of(connection, changefeed, table) not in ("", revision):
                rows = [{**row, "key_ranges": "[]"} for row in rows]
            if rows:
                remove_entries(connection, changefeed, list(stats_by_path))
                connection.execute(_delete(_FIDELITY, _OF_PATH), paths)
                connection.execute(_insert(FILES), rows)
            for stats in stats_by_path.values():
                _insert_notes(connection, changefeed, life, stats)
            if account is not None:
                key = {"changefeed": changefeed, "life": account.life, "hi": account.hi}
                connection.execute(_DELETE_OLDER_ACCOUNTS, key)
                values = {"account": format_metrics(account), "adds_up": not account.mismatch}
                connection.execute(_insert(_WINDOWS), {**key, **values})

    def accounts(self, changefeed: str) -> dict[str, tuple[WindowMetrics, ...]]:
        """Return by table, oldest first, the windows that did not add up and the newest one."""
        query = _select(_WINDOWS, ("life", "account"), order=("hi",))
        accounts: dict[str, tuple[WindowMetrics, ...]] = {}
        with self._database.read() as connection:
            for life, account in connection.execute(query, {"changefeed": changefeed}):
                accounts[life] = (*accounts.get(life, ()), parse_metrics(account))
        return accounts

    def remove_accounts(self, changefeed: str, life: Life) -> None:
        """Remove the metrics of a table that was rebuilt from its files."""
        columns = _WINDOWS.c
        with self._database.write() as connection:
            connection.execute(sa.delete(_WINDOWS).where(columns.changefeed == changefeed, columns.life == str(life)))

    def file_stats(self, changefeed: str, without: Sequence[SettledFiles] = ()) -> dict[str, FileStats]:
        """Return the statistics of every file that was read, by path; those settled in `without` are left out."""
        with self._database.read() as connection:
            rows = connection.execute(_STATS_OF_READ, {"changefeed": changefeed}).all()
            rows = [*rows, *settled_rows(connection, changefeed, _OF_STATS, without)]
            return {row[0]: FileStats(*row) for row in rows}

    def files(self, changefeed: str, without: Sequence[SettledFiles] = ()) -> tuple[FileEntry, ...]:
        """Return every file that was read, and those that vanished unread, by path; without some that are settled."""
        with self._database.read() as connection:
            rows = connection.execute(_ENTRIES_BUT_NOTED, {"changefeed": changefeed}).all()
            rows = [*rows, *settled_rows(connection, changefeed, _OF_ENTRY, without)]
        return tuple(sorted((FileEntry(*row) for row in rows), key=lambda entry: entry.path))

    def unread(self, changefeed: str) -> tuple[FileEntry, ...]:
        """Return the files that vanished unread, by path."""
        with self._database.read() as connection:
            rows = connection.execute(_ENTRIES_OF_UNREAD, {"changefeed": changefeed})
            return tuple(FileEntry(*row) for row in rows)

    def record_unread(self, changefeed: str, life: Life, path: str, run: str, rows: int = UNREAD) -> None:
        """Record a file that was listed and vanished, or with NOTED for `rows` one to be looked at when it is there."""
        self.record_files(changefeed, life, [FileStats(path, 0, "", rows, None, None)], run, None)

    def noted(self, changefeed: str) -> frozenset[str]:
        """Return the paths of files that were noted and not read since: named by an index, or with late rows."""
        with self._database.read() as connection:
            return frozenset(connection.execute(_PATHS_OF_NOTED, {"changefeed": changefeed}).scalars())

    def remove_files(self, changefeed: str, paths: Iterable[str]) -> int:
        """Remove the entries of these files, also those of missing ones; return how many there were."""
        with self._database.write() as connection:
            return remove_entries(connection, changefeed, list(paths))

    def schema_files(self, changefeed: str) -> dict[tuple[str, int, str], bytes]:
        """Return the contents of schema files that were read before, by (path, size, etag)."""
        query = _select(_SCHEMA_FILES, ("path", "size", "etag", "contents"))
        with self._database.read() as connection:
            rows = connection.execute(query, {"changefeed": changefeed})
            return {(path, size, etag): contents for path, size, etag, contents in rows}

    def record_schema_files(self, changefeed: str, contents: Mapping[tuple[str, int, str], bytes]) -> None:
        """Record the contents of schema files, so that the next process need not read them again."""
        rows = [
            {"changefeed": changefeed, "path": path, "size": size, "etag": etag, "contents": data}
            for (path, size, etag), data in contents.items()
        ]
        if rows:
            with self._database.write() as connection:
                replace_rows(connection, _SCHEMA_FILES, rows)

    def files_of(self, changefeed: str, life: Life) -> tuple[FileStats, ...]:
        """Return the statistics of the files that were read for one table, with the ranges of their keys."""
        query = select_everywhere((*_OF_STATS, "key_ranges"), changefeed, ("life", str(life)))
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return tuple(replace(FileStats(*row[:-1]), keys=_parse_key_ranges(row[-1])) for row in rows)

    # --- fidelity ---

    def record_columns(self, changefeed: str, tables: Mapping[Life, Iterable[ColumnFidelity]]) -> None:
        """Record what the lake keeps of each column of these tables, as of their newest schema."""
        rows = [
            {
                "changefeed": changefeed,
                "life": str(life),
                "position": position,
                "column": row.column,
                "source": row.source,
                "lake": row.lake,
                "grade": row.grade.value,
                "rule": row.rule,
            }
            for life, columns in tables.items()
            for position, row in enumerate(columns)
        ]
        if not tables:
            return
        with self._database.write() as connection:
            lives = [{"changefeed": changefeed, "life": str(life)} for life in tables]
            connection.execute(_delete(_COLUMNS, _OF_LIFE), lives)
            if rows:
                connection.execute(_insert(_COLUMNS), rows)

    def fidelity(self, changefeed: str, life: Life | str) -> tuple[ColumnFidelity, ...]:
        """Return the fidelity report of a table: what the lake keeps of each column, with the counts so far."""
        with self._database.read() as connection:
            return _reports(connection, changefeed, str(life)).get(str(life), ())

    def fidelities(self, changefeed: str) -> dict[str, tuple[ColumnFidelity, ...]]:
        """Return the fidelity reports of all tables of a changefeed, by the text of their lives."""
        with self._database.read() as connection:
            return _reports(connection, changefeed, None)

    # --- findings ---

    def record_findings(
        self,
        changefeed: str,
        findings: Sequence[Finding],
        run: str,
        revisions: Mapping[str, str],
        names: Mapping[str, Iterable[str]] = {},
    ) -> None:
        """Record what a run found of a changefeed, in place of what was recorded before.

        `revisions` are the runs that had taken rows out of tables before that was read, and `names` are all that a
        table had: of one of which rows were taken out since, no value is recorded.
        """
        rows = [
            {
                "changefeed": changefeed,
                "position": position,
                "rule": finding.rule,
                "severity": finding.severity.value,
                "table": finding.table,
                "sentence": finding.sentence,
                "detail": finding.detail,
                "run": run,
            }
            for position, finding in enumerate(findings)
        ]
        with self._database.write() as connection:
            connection.execute(_delete(_FINDINGS, _OF_CHANGEFEED), {"changefeed": changefeed})
            if rows:
                connection.execute(_insert(_FINDINGS), rows)
            for life in _revised_since(connection, changefeed, revisions):
                _remove_details(connection, changefeed, [life, *names.get(life, ())])

    def findings(self, changefeed: str) -> tuple[Finding, ...]:
        """Return the findings about a changefeed of its newest run, and of earlier ones in rows, in their order."""
        query = _select(_FINDINGS, ("rule", "severity", "table", "sentence", "detail"), order=("position",))
        with self._database.read() as connection:
            return tuple(
                Finding(rule, Severity(severity), table, sentence, detail)
                for rule, severity, table, sentence, detail in connection.execute(query, {"changefeed": changefeed})
            )

    def with_findings(self) -> tuple[str, ...]:
        """Return the changefeeds about which there are findings."""
        query = sa.select(_FINDINGS.c.changefeed).distinct().order_by(_FINDINGS.c.changefeed)
        with self._database.read() as connection:
            return tuple(row.changefeed for row in connection.execute(query))

    def remove_findings(self, changefeed: str, table: TableId) -> None:
        """Remove what was found of a table that was rebuilt."""
        columns = _FINDINGS.c
        with self._database.write() as connection:
            connection.execute(
                sa.delete(_FINDINGS).where(columns.changefeed == changefeed, columns.table == str(table))
            )

    # --- comparisons ---

    def revision(self, changefeed: str, life: Life) -> str:
        """Return the run that took rows out of a table last, "" for none."""
        with self._database.read() as connection:
            return _revision_of(connection, changefeed, life)

    def revisions(self, changefeed: str) -> dict[str, str]:
        """Return the runs that took rows out of tables last, by the text of their lives."""
        with self._database.read() as connection:
            return _revisions(connection, changefeed)

    def record_comparison(self, changefeed: str, life: Life, comparison: TableComparison, revision: str) -> None:
        """Record how a table compared with its source, in place of an earlier comparison.

        Nothing is recorded where rows of it were forgotten since it began, when the newest run that did so was
        `revision`: what differed may be such a row.
        """
        row = {
            "changefeed": changefeed,
            "table": str(comparison.table),
            "comparison": format_comparison(comparison),
            "compared_at": time.time(),
        }
        with self._database.write() as connection:
            if _revision_of(connection, changefeed, life) == revision:
                replace_rows(connection, _COMPARISONS, [row])

    def comparisons(self, changefeed: str) -> dict[TableId, TableComparison]:
        """Return the newest comparison of each table."""
        query = _select(_COMPARISONS, ("comparison",))
        with self._database.read() as connection:
            comparisons = [parse_comparison(text) for (text,) in connection.execute(query, {"changefeed": changefeed})]
        return {comparison.table: comparison for comparison in comparisons}

    def remove_comparison(self, changefeed: str, table: TableId) -> None:
        """Remove the newest comparison of a table, which has values of rows that differed."""
        condition = (_COMPARISONS.c.changefeed == changefeed) & (_COMPARISONS.c.table == str(table))
        with self._database.write() as connection:
            connection.execute(sa.delete(_COMPARISONS).where(condition))

    # --- DDL ---

    def record_ddl(self, changefeed: str, entry: JournalEntry) -> None:
        """Journal one DDL; one that is carried out again after a crash keeps one row."""
        self.record_journal(changefeed, [entry])

    def record_journal(self, changefeed: str, entries: Iterable[JournalEntry]) -> None:
        """Journal DDL, all in one transaction."""
        rows = [
            {
                "changefeed": changefeed,
                **{name: getattr(entry, name) for name in _OF_JOURNAL},
                "statements": json.dumps(entry.statements, ensure_ascii=False),
                "done_at": time.time(),
            }
            for entry in entries
        ]
        if rows:
            with self._database.write() as connection:
                replace_rows(connection, _JOURNAL, rows)

    def journaled(self, changefeed: str) -> set[tuple[str, Tso]]:
        """Return the DDL that have a row in the journal: (life, TSO)."""
        query = _select(_JOURNAL, ("life", "tso"))
        with self._database.read() as connection:
            return {(life, tso) for life, tso in connection.execute(query, {"changefeed": changefeed})}

    def journal(self, changefeed: str, tso: Tso | None = None) -> tuple[JournalEntry, ...]:
        """Return every DDL carried out, or those of one version, oldest first."""
        query = sa.select(_JOURNAL).where(_JOURNAL.c.changefeed == changefeed).order_by(_JOURNAL.c.tso, _JOURNAL.c.life)
        if tso is not None:
            query = query.where(_JOURNAL.c.tso == tso)
        with self._database.read() as connection:
            return tuple(
                JournalEntry(**{**_fields(JournalEntry, row), "statements": tuple(json.loads(row.statements))})
                for row in connection.execute(query)
            )

    def journals(self) -> tuple[str, ...]:
        """Return the changefeeds that have a journal."""
        query = sa.select(_JOURNAL.c.changefeed).distinct().order_by(_JOURNAL.c.changefeed)
        with self._database.read() as connection:
            return tuple(row.changefeed for row in connection.execute(query))

    # --- tables ---

    def record_states(self, changefeed: str, states: Sequence[TableState], revisions: Mapping[str, str]) -> None:
        """Record the states of tables; one row per table. Their newest points are added to those of before.

        `revisions` are the runs that had taken rows out of tables before these were read: of a table of which rows were
        taken out since, the reason is not kept.
        """
        now = time.time()
        query = _select(_TABLES, ("life", "points"))
        with self._database.read() as connection:
            points = {life: json.loads(text) for life, text in connection.execute(query, {"changefeed": changefeed})}
        rows = [
            {
                "changefeed": changefeed,
                "life": state.life,
                "schema": state.name.schema,
                "table": state.name.table,
                "version": state.version,
                "through": state.through,
                "checkpoint": state.checkpoint,
                "state": state.state.value,
                "reason": state.reason,
                "ways": json.dumps(state.ways, ensure_ascii=False),
                "complete_by": state.complete_by,
                "by_step": state.by_step,
                "points": json.dumps(_with_point(points.get(state.life, []), now, state.through)),
                "run": state.run,
                "changed_at": now,
            }
            for state in states
        ]
        with self._database.write() as connection:
            replace_rows(connection, _TABLES, rows)
            _remove_reasons(connection, changefeed, _revised_since(connection, changefeed, revisions))

    def remove_values(self, changefeed: str, lives: Collection[Life], names: Iterable[TableId], run: str) -> None:
        """Remove what may have values of rows of these tables, which had these names, until it is found again.

        That are comparisons, findings and the details of those that stay, reasons for which tables are held, and ranges
        of keys. `run` takes rows out of the tables: what was read before that is not recorded after it.
        """
        identities, called = [str(life) for life in lives], [str(name) for name in names]
        with self._database.write() as connection:
            replace_rows(
                connection,
                _FORGOTTEN,
                [{"changefeed": changefeed, "life": identity, "run": run} for identity in identities],
            )
        with self._database.write() as connection:
            for table in (FILES, _SETTLED_FILES):
                some = sa.and_(table.c.changefeed == changefeed, table.c.life.in_(identities))
                connection.execute(sa.update(table).where(some).values(key_ranges="[]"))
            columns = _COMPARISONS.c
            about = sa.and_(columns.changefeed == changefeed, columns.table.in_([*called, *identities]))
            connection.execute(sa.delete(_COMPARISONS).where(about))
            _remove_details(connection, changefeed, [*called, *identities])
            _remove_reasons(connection, changefeed, identities)

    def states(self) -> dict[str, tuple[TableState, ...]]:
        """Return the last known state of every table, by changefeed."""
        states_by_feed: dict[str, list[TableState]] = {}
        with self._database.read() as connection:
            columns = tuple(column.name for column in _TABLES.c)
            for row in connection.execute(_select(_TABLES, columns, by=(), order=("schema", "table", "life"))):
                ways = tuple(json.loads(row.ways))
                points = tuple((end, through) for end, through in json.loads(row.points))
                decoded = {"name": TableId(row.schema, row.table), "state": State(row.state), "ways": ways}
                decoded["points"] = points
                states_by_feed.setdefault(row.changefeed, []).append(
                    TableState(**{**_fields(TableState, row), **decoded})
                )
        return {changefeed: tuple(states) for changefeed, states in states_by_feed.items()}


def _revision_of(connection: sa.Connection, changefeed: str, life: Life) -> str:
    query = _select(_FORGOTTEN, ("run",), _OF_LIFE)
    return connection.execute(query, {"changefeed": changefeed, "life": str(life)}).scalar() or ""


def _revisions(connection: sa.Connection, changefeed: str) -> dict[str, str]:
    query = _select(_FORGOTTEN, ("life", "run"))
    return {row.life: row.run for row in connection.execute(query, {"changefeed": changefeed})}


def _revised_since(connection: sa.Connection, changefeed: str, before: Mapping[str, str]) -> list[str]:
    """Return the tables of which rows were taken out since `before` was read."""
    return [life for life, run in _revisions(connection, changefeed).items() if before.get(life) != run]


def _remove_details(connection: sa.Connection, changefeed: str, tables: Collection[str]) -> None:
    """Remove what was found of tables, and of what nobody will find again the detail alone, such as a key."""
    detail, columns = "the detail is not kept, as it may have values of forgotten rows", _FINDINGS.c
    about = sa.and_(columns.changefeed == changefeed, columns.table.in_(tables))
    connection.execute(sa.delete(_FINDINGS).where(about, columns.rule.not_in(SEEN_IN_ROWS)))
    connection.execute(sa.update(_FINDINGS).where(about, columns.detail != "").values(detail=detail))


def _remove_reasons(connection: sa.Connection, changefeed: str, lives: Collection[str]) -> None:
    """Remove the reasons for which tables are held."""
    if not lives:
        return
    reason = "the reason is not kept, as it may have values of forgotten rows: the next run says it again"
    held = sa.and_(_TABLES.c.changefeed == changefeed, _TABLES.c.life.in_(lives), _TABLES.c.reason != "")
    connection.execute(sa.update(_TABLES).where(held).values(reason=reason, ways="[]"))


def _with_point(points: list[list[float]], now: float, through: Tso) -> list[list[float]]:
    """Return the points with a new one if the table went on; one that was rebuilt to an earlier TSO begins anew.

    Of a run that lives on and ends a round every second, the newest end stands for those shortly before it.
    """
    if through <= 0 or (points and points[-1][1] == through):
        return points
    newest_points = [] if points and points[-1][1] > through else points
    if len(newest_points) > 1 and newest_points[-1][0] - newest_points[-2][0] < _APART_SECONDS:
        newest_points = newest_points[:-1]
    return [*newest_points[1 - MOST_POINTS :], [round(now, 3), through]]


_APART_SECONDS = 30
"""Ends of runs that are nearer to each other say little of a rate."""


def _fields(entry: type, row: sa.Row[Any]) -> dict[str, Any]:
    """Return the fields of an entry that a row has."""
    return {field.name: getattr(row, field.name, None) for field in fields(entry)}


_OF_STATS = ("path", "size", "etag", "rows", "min_commit_ts", "max_commit_ts")
_OF_ENTRY = tuple(field.name for field in fields(FileEntry))
_OF_JOURNAL = tuple(field.name for field in fields(JournalEntry))


def _format_key_ranges(ranges: Sequence[KeyRange]) -> str:
    return json.dumps([astuple(span) for span in ranges])


def _parse_key_ranges(text: str) -> tuple[KeyRange, ...]:
    return tuple(KeyRange(*fields) for fields in json.loads(text))


_STATS_OF_READ = _select(FILES, _OF_STATS).where(FILES.c.rows >= 0)
"""The fields of FileStats in their order: there may be a hundred thousand rows."""
_ENTRIES_BUT_NOTED = _select(FILES, _OF_ENTRY).where(FILES.c.rows != NOTED)
_PATHS_OF_NOTED = _select(FILES, ("path",)).where(FILES.c.rows == NOTED)
_ENTRIES_OF_UNREAD = _select(FILES, _OF_ENTRY, order=("path",)).where(FILES.c.rows == UNREAD)
_DELETE_OLDER_ACCOUNTS = _delete(_WINDOWS, _OF_LIFE).where(
    sa.or_(_WINDOWS.c.adds_up, _WINDOWS.c.hi == sa.bindparam("hi"))
)


def _reports(connection: sa.Connection, changefeed: str, life: str | None) -> dict[str, tuple[ColumnFidelity, ...]]:
    """Return the fidelity reports of one table or of all: two queries, however many tables there are."""
    from cdc_assets.types.fidelity import ColumnFidelity
    from cdc_assets.types.rules import Grade

    table_columns = _COLUMNS.c
    columns = sa.select(
        table_columns.life,
        table_columns.column,
        table_columns.source,
        table_columns.lake,
        table_columns.grade,
        table_columns.rule,
    )
    columns = columns.where(table_columns.changefeed == changefeed).order_by(table_columns.life, table_columns.position)
    columns = columns if life is None else columns.where(table_columns.life == life)
    rows = connection.execute(columns).all()
    by_column: dict[tuple[str, str], dict[str, int]] = {}
    for of, column, rule, count in _notes(connection, changefeed, life and source_of(life)):
        by_column.setdefault((of, column), {})[rule] = int(count)
    reports: dict[str, list[ColumnFidelity]] = {}
    for of, column, source, lake, grade, rule in rows:
        column_fidelity = ColumnFidelity(
            column, source, lake, Grade(grade), rule, by_column.get((source_of(of), column), {})
        )
        reports.setdefault(of, []).append(column_fidelity)
    return {of: tuple(columns) for of, columns in reports.items()}


def _notes(connection: sa.Connection, changefeed: str, life: str | None) -> Sequence[Any]:
    """Return (life, column, rule, count) of one table or of all."""
    columns = _FIDELITY.c
    query = sa.select(columns.life, columns.column, columns.rule, sa.func.sum(columns.count)).where(
        columns.changefeed == changefeed
    )
    query = query if life is None else query.where(columns.life == life)
    return connection.execute(query.group_by(columns.life, columns.column, columns.rule)).all()


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
        connection.execute(_insert(_FIDELITY), rows)
