"""Which names exist at a TSO, by a feed's DDL. Names without DDL are older than the feed."""

from __future__ import annotations

from collections.abc import Iterable

from cdc_assets import ddl
from cdc_assets.model.by_name import ByName
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso

__all__ = ["living_names"]


def living_names(files: Iterable[SchemaFile], at: Tso) -> ByName[Tso]:
    """Return the names of the tables that live at a TSO, each with the version that gave it."""
    names: ByName[Tso] = ByName()
    for file in sorted(files, key=lambda one: one.version):
        if file.version > at:
            break
        match ddl.statement(file):
            case ddl.DropDatabase():
                for name in [one for one in names if one.folded.schema == file.table.folded.schema]:
                    names.pop(name, None)
            case ddl.DropTable():
                names.pop(file.table, None)
            case ddl.Rename(old=old):
                names.pop(old if old.schema else TableId(file.table.schema, old.table), None)
                names[file.table] = file.version
            case ddl.CreateDatabase() | ddl.AlterDatabase() | ddl.View():
                continue
            case ddl.CreateTable() | ddl.Recover():
                names[file.table] = file.version
            case _:
                names.setdefault(file.table, file.version)
    return names
