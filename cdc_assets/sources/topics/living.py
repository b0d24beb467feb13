"""Which names exist at a TSO, and which did before, by a feed's DDL. Names without DDL are older than the feed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from cdc_assets import ddl
from cdc_assets.model.by_name import ByName
from cdc_assets.model.schema import TableId
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso


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
    due = (file for file in sorted(files, key=lambda one: one.version) if file.version <= at)
    for version, group in groupby(due, key=lambda one: one.version):
        pairs: list[tuple[TableId, TableId]] = []
        for file in group:
            match ddl.statement(file):
                case ddl.DropDatabase():
                    for name in [table for table in names.living if table.folded.schema == file.table.folded.schema]:
                        names.end(name, version)
                case ddl.DropTableStatement():
                    names.end(file.table, version)
                case ddl.Rename(old=old):
                    pairs.append((old if old.schema else TableId(file.table.schema, old.table), file.table))
                case ddl.CreateDatabase() | ddl.AlterDatabase() | ddl.View():
                    continue
                case ddl.CreateTableStatement() | ddl.Recover():
                    names.begin(file.table, version)
                case _ if file.table not in names.living:
                    names.begin(file.table, version)
        _rename(names, pairs, version)
    return names


def _rename(names: Names, pairs: Sequence[tuple[TableId, TableId]], version: Tso) -> None:
    """Rename tables at once. A name that a table only passes through is not one of its: another pair has it from there,
    or, as the old architecture writes it, from the name before the statement once more.
    """
    last = {old.folded: new for old, new in pairs}
    olds = [old.folded for old, _ in pairs]
    begun = [
        new
        for place, (old, new) in enumerate(pairs)
        if last[old.folded] is new and (new in names.living or new.folded not in olds[place + 1 :])
    ]
    passed = {new.folded for _, new in pairs if new not in names.living} - {new.folded for new in begun}
    for old, _ in pairs:
        if old.folded not in passed:
            names.end(old, version)
    for name in begun:
        names.begin(name, version)
