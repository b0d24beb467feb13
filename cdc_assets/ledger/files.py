"""The ledger's tables of files: those that windows may read, and apart from them those that are settled.

A million settled files stand in a table of their own, which no look has to read: `settled` has a row a directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from cdc_assets.model.splits import SettledFiles

__all__ = ["FILES", "KINDS", "METADATA", "SettledRecord", "forget", "replace_rows", "select_everywhere", "settled_rows"]

METADATA = sa.MetaData()


def _columns() -> tuple[sa.Column[Any], ...]:
    return (
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


FILES = sa.Table("files", METADATA, *_columns())
_SETTLED_FILES = sa.Table("settled_files", METADATA, *_columns(), sa.Column("directory", sa.Text, nullable=False))
_ = sa.Index("settled_files_by_directory", _SETTLED_FILES.c.changefeed, _SETTLED_FILES.c.directory)

_SETTLED = sa.Table(
    "settled",
    METADATA,
    sa.Column("changefeed", sa.Text, primary_key=True),
    sa.Column("directory", sa.Text, primary_key=True),
    sa.Column("root", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("date", sa.Text, nullable=False),
    sa.Column("last", sa.Text, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("files", sa.BigInteger, nullable=False),
    sa.Column("digest", sa.BigInteger, nullable=False),
    sa.Column("since", sa.BigInteger, nullable=False),
    sa.Column("through", sa.BigInteger, nullable=False),
    sa.Column("checkpoint", sa.BigInteger, nullable=False),
    sa.Column("seen_at", sa.Float, nullable=False),
)
_KEPT = tuple(field.name for field in fields(SettledFiles) if field.name != "passed_over")
_INSERT: Mapping[str, Callable[[sa.Table], Any]] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
"""Dialect of the ledger's database -> its INSERT, which knows ON CONFLICT."""
KINDS = tuple(_INSERT)
"""The dialects of databases that a ledger may be in."""
_MANY = 500
"""How many names go into one condition."""


class Database(Protocol):
    """The ledger's database."""

    def read(self) -> AbstractContextManager[sa.Connection]:
        """Open a connection."""

    def write(self) -> AbstractContextManager[sa.Connection]:
        """Open a transaction."""


class SettledRecord:
    """What is settled, by changefeed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, changefeed: str) -> tuple[SettledFiles, ...]:
        """Return what is settled, by directory."""
        query = sa.select(*(_SETTLED.c[name] for name in _KEPT)).where(_SETTLED.c.changefeed == changefeed)
        with self._database.read() as connection:
            return tuple(SettledFiles(*row) for row in connection.execute(query.order_by(_SETTLED.c.directory)))

    def keep(self, changefeed: str, settled: Mapping[SettledFiles, Iterable[str]]) -> None:
        """Keep what is settled from now on, in place of what was in the same directories, with the paths new to it."""
        if not settled:
            return
        with self._database.write() as connection:
            rows = [{"changefeed": changefeed, **{name: getattr(one, name) for name in _KEPT}} for one in settled]
            replace_rows(connection, _SETTLED, rows)
            for one, paths in settled.items():
                _move(connection, changefeed, one.directory, paths)


def _move(connection: sa.Connection, changefeed: str, directory: str, paths: Iterable[str]) -> None:
    """Bring the entries of files to those that are settled."""
    names = [column.name for column in FILES.c]
    at = sa.and_(FILES.c.changefeed == sa.bindparam("of"), FILES.c.path == sa.bindparam("at"))
    there = sa.select(*(FILES.c[name] for name in names), sa.bindparam("place", type_=sa.Text)).where(at)
    moved = [{"of": changefeed, "at": path, "place": directory} for path in paths]
    if moved:
        taken = _INSERT[connection.dialect.name](_SETTLED_FILES).from_select([*names, "directory"], there)
        connection.execute(taken.on_conflict_do_nothing(), moved)  # another run may do the same at the same moment
        connection.execute(sa.delete(FILES).where(at), moved)


def replace_rows(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, object]]) -> None:
    """Insert rows that have all columns, in place of those with the same primary key."""
    if not rows:
        return
    insert = _INSERT[connection.dialect.name](table)
    key = [column.name for column in table.primary_key]
    values = {name: insert.excluded[name] for name in rows[0] if name not in key}
    connection.execute(insert.on_conflict_do_update(index_elements=key, set_=values), [dict(row) for row in rows])


def forget(connection: sa.Connection, changefeed: str, paths: Sequence[str]) -> int:
    """Remove the entries of these files wherever they are; return how many there were."""
    count = 0
    for table in (FILES, _SETTLED_FILES):
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
    known = sa.select(_SETTLED.c.directory).where(_SETTLED.c.changefeed == changefeed)
    left_out = {one.directory for one in without}
    wanted = [row[0] for row in connection.execute(known) if row[0] not in left_out]
    found = list[sa.Row[Any]]()
    columns = [_SETTLED_FILES.c[name] for name in names]
    for at in range(0, len(wanted), _MANY):
        some = _SETTLED_FILES.c.directory.in_(wanted[at : at + _MANY])
        query = sa.select(*columns).where(_SETTLED_FILES.c.changefeed == changefeed, some)
        found += connection.execute(query).all()
    return found
