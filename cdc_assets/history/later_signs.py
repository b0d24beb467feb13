"""What comes under a table's name after a version: it shows that the table kept the name. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc_assets import ddl
from cdc_assets.model.by_name import ByName
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso

_OF_A_TABLE = (ddl.Alter, ddl.Truncate, ddl.Exchange)
"""DDL of a table that has its name before. A DROP TABLE IF EXISTS comes from some writers though there is none."""


class LaterSigns:
    """DDL and rows by name and position.

    `newest_rows` are the greatest positions through which names are known to have had rows, or were applied.
    """

    def __init__(self, files: Iterable[SchemaFile] = (), newest_rows: Mapping[TableId, Tso] | None = None) -> None:
        self._events: ByName[list[tuple[Tso, bool]]] = ByName()
        self._rows = ByName[Tso](newest_rows)
        for file in files:
            statement = ddl.statement(file)
            self._events.setdefault(file.table, []).append((file.version, isinstance(statement, _OF_A_TABLE)))
            if isinstance(statement, ddl.Rename) and statement.old.schema and statement.old.table:
                self._events.setdefault(statement.old, []).append((file.version, True))

    def keeps(self, name: TableId, version: Tso) -> bool:
        """Return whether a table has its name after a version, so that no DDL of that version took it away."""
        after = [(at, is_own) for at, is_own in self._events.get(name, ()) if at > version]
        return min(after)[1] if after else self._rows.get(name, 0) > version
