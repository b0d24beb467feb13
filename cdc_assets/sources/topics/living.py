"""Which names exist at a TSO, and which did before, by a feed's DDL. Names without DDL are older than the feed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cdc_assets import ddl
from cdc_assets.model.by_name import ByName
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso

__all__ = ["Names", "names_at"]


@dataclass(frozen=True, slots=True)
class Names:
    """The names of the tables that live at a TSO, each with the version that gave it; the others with that which took
    it.
    """

    living: ByName[Tso] = field(default_factory=ByName)
    ended: ByName[Tso] = field(default_factory=ByName)

    def begin(self, name: TableId, version: Tso) -> None:
        """Let a name live from a version on."""
        self.living[name] = version
        self.ended.pop(name, None)

    def end(self, name: TableId, version: Tso) -> None:
        """Let a name end at a version, whether it was known to live or not."""
        self.living.pop(name, None)
        self.ended[name] = version


def names_at(files: Iterable[SchemaFile], at: Tso) -> Names:
    """Return the names of tables at a TSO."""
    names = Names()
    for file in sorted(files, key=lambda one: one.version):
        if file.version > at:
            break
        match ddl.statement(file):
            case ddl.DropDatabase():
                for name in [one for one in names.living if one.folded.schema == file.table.folded.schema]:
                    names.end(name, file.version)
            case ddl.DropTable():
                names.end(file.table, file.version)
            case ddl.Rename(old=old):
                names.end(old if old.schema else TableId(file.table.schema, old.table), file.version)
                names.begin(file.table, file.version)
            case ddl.CreateDatabase() | ddl.AlterDatabase() | ddl.View():
                continue
            case ddl.CreateTable() | ddl.Recover():
                names.begin(file.table, file.version)
            case _ if file.table not in names.living:
                names.begin(file.table, file.version)
    return names
