"""Find the table that RECOVER or FLASHBACK TABLE restores.

TiDB looks through its DDL jobs for the newest DROP TABLE *or* TRUNCATE TABLE of a table that had the name then, in a
database that still is the same (`tidb:pkg/executor/ddl.go`); BY JOB takes the job of a number that no file records.
Tables of a dropped database are found by neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from cdc_assets import ddl
from cdc_assets.model.schema import ByName, TableId
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso

T = TypeVar("T")


class Unrecoverable(Exception):
    """The restored rows are in no known table; the text says why."""


@dataclass(frozen=True, slots=True)
class _Loss(Generic[T]):
    """A table as it was dropped at a version; without it `why` says where its rows are."""

    version: Tso
    table: T | None
    why: str = ""


class Gone(Generic[T]):
    """Dropped and truncated tables, by the name of that time."""

    def __init__(self) -> None:
        self._losses: ByName[list[_Loss[T]]] = ByName()

    def drop(self, version: Tso, name: TableId, table: T) -> None:
        """Remember a table that was dropped."""
        self._losses.setdefault(name, []).append(_Loss(version, table))

    def truncate(self, version: Tso, name: TableId) -> None:
        """Remember truncated rows: the table goes on without them, and they belong to no table."""
        why = f"the last ones dropped of {name} are the rows before the TRUNCATE of version {version}"
        self._losses.setdefault(name, []).append(_Loss(version, None, why))

    def drop_database(self, schema: TableId) -> None:
        """Note a dropped database: none of its tables can be restored by name."""
        for name in [name for name in self._losses if name.folded.schema == schema.folded.schema]:
            del self._losses[name]

    def newest(self, name: TableId) -> T:
        """Return the table that is restored by name; raises Unrecoverable."""
        losses = self._losses.get(name)
        if not losses:
            raise Unrecoverable(f"the rows of {name} are restored without events, and its earlier life is not known")
        if losses[-1].table is None:
            raise Unrecoverable(f"the rows are restored without events, and {losses[-1].why}")
        return losses[-1].table

    def only(self, name: TableId) -> T:
        """Return the table that is restored by a job's number: the only candidate. Raises Unrecoverable."""
        losses = self._losses.get(name, [])
        if len(losses) > 1:
            versions = ", ".join(str(loss.version) for loss in losses)
            raise Unrecoverable(
                f"no file records which DDL the job is: rows of {name} were dropped at the versions {versions}, and "
                "perhaps before the changefeed began"
            )
        return self.newest(name)

    def take(self, name: TableId) -> None:
        """Remove the newest, which is restored: TiDB restores it once, and does not look for an older one."""
        last = self._losses[name].pop()
        self._losses[name].append(_Loss(last.version, None, f"the drop of {last.version} was already recovered"))


class LaterSigns:
    """DDL and rows by name and position.

    `newest_rows` are the greatest positions through which names are known to have had rows, or were applied.
    """

    def __init__(self, files: Iterable[SchemaFile] = (), newest_rows: Mapping[TableId, Tso] | None = None) -> None:
        self._events: ByName[list[tuple[Tso, bool]]] = ByName()
        self._rows = ByName[Tso](newest_rows)
        for file in files:
            statement, other = ddl.statement(file), None
            match statement:
                case ddl.DropTableStatement(if_there=if_there):  # the servers log it without a table, TiDB does not
                    is_own = not (file.by_server and if_there)
                case _:
                    is_own = isinstance(statement, ddl.Alter | ddl.Truncate | ddl.Exchange)
            self._events.setdefault(file.table, []).append((file.version, is_own))
            match statement:
                case ddl.Rename(old, from_session=False):
                    other = TableId(old.schema or file.table.schema, old.table)
                case ddl.Exchange(other=partner) | ddl.CreateTableStatement(like=TableId() as partner):
                    other = partner
            if other is not None and other.schema and other.table:
                self._events.setdefault(other, []).append((file.version, True))

    def keeps(self, name: TableId, version: Tso) -> bool:
        """Return whether a table has its name after a version, so that no DDL of that version took it away."""
        after = [(at, is_own) for at, is_own in self._events.get(name, ()) if at > version]
        return min(after)[1] if after else self._rows.get(name, 0) > version
