"""What the life of a table is made of: its events, and the names that it held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cdc_assets import ddl
from cdc_assets.history.releases import Release
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.schema_changes import SchemaChange, SetDefault
from cdc_assets.model.splits import SchemaFile
from cdc_assets.model.tso import Tso

__all__ = ["FOREVER", "Event", "History", "TableHistory"]

FOREVER: Tso = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Event:
    """What one DDL (or one schema file without DDL) means for one life.

    `action` is create, change, rename, drop, recover, exchange or hold. `name` is the life's name afterwards, None when
    it has none. `other`, `predicate` and `partitioned` belong to an exchange. `release` is the person's decision
    that made it so; `kept` tells that the source dropped the table and the lake keeps it under its name. `hidden` are
    changes of columns by an earlier DDL that is not in the changefeed: this one's schema file shows them first.
    """

    at: Tso
    action: str
    file: SchemaFile
    before: TableSchema
    after: TableSchema
    name: TableId | None
    changes: tuple[SchemaChange, ...] = ()
    other: Life | None = None
    predicate: ddl.Predicate | None = None
    partitioned: bool = False
    reason: str = ""
    ways: tuple[str, ...] = ()
    release: Release | None = None
    kept: bool = False
    hidden: tuple[SchemaChange, ...] = ()

    @property
    def told_action(self) -> str:
        """The action, and that a person decided it."""
        return self.action if self.release is None else f"{self.action}, released by {self.release.way}"

    @property
    def neutral(self) -> bool:
        """Tell whether rows before and after it can be applied together."""
        quiet = self.action == "change" and all(isinstance(change, SetDefault) for change in self.changes)
        quiet = quiet and not self.hidden
        return quiet and not self.before.renumbers(self.after)


@dataclass(frozen=True, slots=True)
class TableHistory:
    """The events of one life in order, and the names it held: (name, from, until), from <= commit-ts < until."""

    life: Life
    events: tuple[Event, ...]
    names: tuple[tuple[TableId, Tso, Tso], ...]

    @property
    def schema(self) -> TableSchema:
        """The newest schema."""
        return self.events[-1].after

    @property
    def changes(self) -> tuple[tuple[Tso, tuple[SchemaChange, ...]], ...]:
        """The versions of its DDL with what each changes."""
        return tuple((event.at, (*event.hidden, *event.changes)) for event in self.events)

    @property
    def name(self) -> TableId | None:
        """The newest name, None for a dropped table."""
        return self.events[-1].name


@dataclass(frozen=True, slots=True)
class History:
    """Every life, how to decode each (root, version), and schema files that are no table's (views, databases)."""

    lives: Mapping[Life, TableHistory]
    decoding: Mapping[tuple[str, Tso], tuple[TableId, TableSchema]]
    other_files: tuple[SchemaFile, ...] = ()
