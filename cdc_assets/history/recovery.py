"""Which table RECOVER and FLASHBACK TABLE restore.

TiDB looks through its DDL jobs for the newest DROP TABLE *or* TRUNCATE TABLE of a table that had the name then, in a
database that still is the same (`tidb:pkg/executor/ddl.go`); BY JOB takes the job of a number that no file records.
Tables of a dropped database are found by neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from cdc_assets.model.by_name import ByName
from cdc_assets.model.schema import TableId
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
