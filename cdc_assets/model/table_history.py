"""The history of a table: its events, and the names that it had."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar

from cdc_assets.model.progress import AppliedState, Base, Gap, Life, MissingRows, Phase, Progress, Whole
from cdc_assets.model.releases import Release
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.schema_changes import DeleteRows, DropColumn, Predicate, RenameColumn, SchemaChange, SetDefault
from cdc_assets.model.splits import Import, SchemaFile
from cdc_assets.model.tso import FOREVER, Tso

Names = Mapping[str, str]
"""The origins of columns, by their names at some time."""


@dataclass(frozen=True, slots=True)
class _FromFile:
    """The effect of one schema file on one life: its columns before and after, and its name afterwards (None: none).

    `release` is the person's decision behind it. `hidden` are changes of columns by an earlier DDL that is not in the
    changefeed: this one's schema file shows them first.
    """

    action: ClassVar[str]

    file: SchemaFile
    before: TableSchema
    after: TableSchema
    name: TableId | None
    _: KW_ONLY
    release: Release | None = None
    hidden: tuple[SchemaChange, ...] = ()

    @property
    def at(self) -> Tso:
        """The version at which it takes effect."""
        return self.file.version

    @property
    def changes(self) -> tuple[SchemaChange, ...]:
        """Changes to columns and rows."""
        return ()

    @property
    def journal_action(self) -> str:
        """The action, and the person's decision if there is one."""
        return self.action if self.release is None else f"{self.action}, released by {self.release.way}"

    @property
    def neutral(self) -> bool:
        """Return whether rows before and after it can be applied together."""
        return False


@dataclass(frozen=True, slots=True)
class Created(_FromFile):
    """The table begins, by a DDL or by the first schema file of it."""

    action = "create"


@dataclass(frozen=True, slots=True)
class Imported(_FromFile):
    """The table begins with a dump; its file is the CREATE TABLE text of the dump."""

    action = "import"


@dataclass(frozen=True, slots=True)
class Changed(_FromFile):
    """The columns or rows change. `other` is set where a person decided an exchange with that table otherwise.

    With `otherwise` a decision about the DDL gives the table other rows than the source has.
    """

    action = "change"

    changes: tuple[SchemaChange, ...] = ()
    other: Life | None = None
    otherwise: bool = False

    @property
    def neutral(self) -> bool:
        """Facts for later rows alone; columns keep their places."""
        facts = all(isinstance(change, SetDefault) for change in self.changes)
        return facts and not self.hidden and not self.before.renumbers(self.after)


@dataclass(frozen=True, slots=True)
class Kept(_FromFile):
    """The source dropped the table; the lake keeps it under its name."""

    action = "keep"


@dataclass(frozen=True, slots=True)
class Renamed(_FromFile):
    """The table has another name."""

    action = "rename"


@dataclass(frozen=True, slots=True)
class Dropped(_FromFile):
    """The table loses its name; its rows are retained."""

    action = "drop"


@dataclass(frozen=True, slots=True)
class Recovered(_FromFile):
    """A dropped table is restored."""

    action = "recover"


@dataclass(frozen=True, slots=True)
class Exchanged(_FromFile):
    """Rows are exchanged with `other`: those of the partitioned table that satisfy `predicate`, all of the other.

    `made_null` are the columns that are NULL in the rows that come, because their values are missing.
    """

    action = "exchange"

    other: Life
    predicate: Predicate
    partitioned: bool
    made_null: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Held(_FromFile):
    """A DDL that cannot be carried out faithfully; nothing later is applied. `other` is an exchange's other table."""

    action = "hold"

    reason: str
    ways: tuple[str, ...] = ()
    other: Life | None = None


Event = Created | Imported | Changed | Kept | Renamed | Dropped | Recovered | Exchanged | Held


@dataclass(frozen=True, slots=True)
class TableHistory:
    """The events of one life in order, and the names it had: (name, from, until), from <= commit-ts < until."""

    life: Life
    events: tuple[Event, ...]
    names: tuple[tuple[TableId, Tso, Tso], ...]
    gaps: tuple[tuple[Tso, Gap | Whole], ...] = ((0, Whole.CREATE),)
    """From which version on which rows are missing, or what made it complete, in order (see `completeness`)."""
    brought: Import | None = None
    """The table in the dump with which it begins."""
    earlier: tuple[Event, ...] = ()
    """The table's part of the feed up to that dump: it tells which names its columns had before."""
    missing: MissingRows | None = None
    """The rows that a window proved to be missing, unless all rows were replaced since."""
    mixed: bool = False
    """Whether rows of a dump came by EXCHANGE PARTITION that have columns without their values."""
    begins: Tso | None = None
    """Version of the RENAME that brought the source table of a history table under its rule."""

    def name_at(self, position: Tso) -> TableId | None:
        """Return the name that it has once all DDL through a position has taken effect, None if it has none then."""
        return next((name for name, since, until in self.names if since <= position < until), None)

    def names_after(self, position: Tso) -> frozenset[TableId]:
        """Return the names, folded, that it has anywhere above a position."""
        return frozenset(name.folded for name, _, until in self.names if until > position)

    def called_at(self, position: Tso) -> TableId:
        """Return the name that it has then, or had last; a history table's is its own."""
        names = [(event.at, event.name) for event in self.events if event.name is not None]
        first = names[0][1] if names else self.life.born_as
        return next((name for at, name in reversed(names) if at <= position), first)

    @property
    def every_name(self) -> tuple[TableId, ...]:
        """All names that it had, its own newest one last."""
        own = (event.name for event in self.events if event.name is not None)
        return (*(name for name, _, _ in self.names), *own)

    @property
    def base(self) -> Base | None:
        """The dump that it is based on, None for a table that begins with the feed."""
        return None if self.brought is None else self.brought.base

    @property
    def made_null(self) -> Mapping[str, str]:
        """The columns that are NULL in the rows of a dump because their values are missing, each with the reason."""
        lost = {} if self.brought is None else dict(self.brought.made_null)
        for event in self.events[1:] if lost or self.mixed else ():
            for change in (*event.hidden, *event.changes):
                if isinstance(change, DropColumn):
                    lost.pop(change.name, None)
                elif isinstance(change, RenameColumn) and change.old in lost:
                    lost[change.new] = lost.pop(change.old)
                elif change == DeleteRows(None):
                    lost = {}
            if isinstance(event, Exchanged):
                lost = {**event.made_null, **(lost if event.partitioned else {})}
        return lost

    @property
    def gap(self) -> Gap | None:
        """Why the table is incomplete after all events and rows, None for a complete one."""
        return self.gap_at(FOREVER, FOREVER)

    def gap_at(self, version: Tso, through: Tso = 0) -> Gap | None:
        """Why the table is incomplete after the DDL of a version and its rows through a position, None if it is not."""
        gap = next((gap for at, gap in reversed(self.gaps) if at <= version), None)
        return gap if isinstance(gap, Gap) and not gap.is_filled(through) else None

    def gap_of(self, state: AppliedState | None, ddl: Tso) -> Gap | None:
        """Return the gap of the table as it is in the lake, with the DDL of version `ddl` applied.

        One that a dump brings lacks those of the dump until they are imported.
        """
        brought, through = self.brought, 0 if state is None else state.progress.tso
        has_rows = brought is not None and (brought.files or brought.lost or brought.problem)
        if (
            brought is not None
            and has_rows
            and (state is None or state.progress < Progress(brought.base.at, Phase.ROWS))
        ):
            return Gap(self.life)
        return self.gap_at(ddl, through)

    @property
    def complete_by(self) -> Whole | None:
        """Reason why the table is complete, None for an incomplete one."""
        newest = self.gaps[-1][1]
        if isinstance(newest, Gap):
            return newest.filling.by if newest.is_filled(FOREVER) else None
        return newest

    @property
    def origins(self) -> list[tuple[Event, Names, Names]]:
        """For each event the origins of the columns before it and after it: a column's first name, made unique.

        Those in the feed from before a dump come first.
        """
        traces: list[tuple[Event, Names, Names]] = []
        present_origins: dict[str, str] = {}
        taken_names: set[str] = set()

        def begun(name: str, version: Tso) -> str:
            origin = name if name not in taken_names else f"{name}@{version}"
            taken_names.add(origin)
            return origin

        for event in (*self.earlier, *self.events):
            for column in event.before.columns:
                present_origins.setdefault(column.name, "")
            before = {name: origin or begun(name, event.at) for name, origin in present_origins.items()}
            changes = (*event.hidden, *event.changes)
            gone = {change.name for change in changes if isinstance(change, DropColumn)}
            renamed = {change.new: change.old for change in changes if isinstance(change, RenameColumn)}
            remaining_origins = {
                name: origin for name, origin in before.items() if name not in {*gone, *renamed.values()}
            }
            remaining_origins |= {new: before[old] for new, old in renamed.items() if old in before}
            present_origins = {
                c.name: remaining_origins.get(c.name) or begun(c.name, event.at) for c in event.after.columns
            }
            traces.append((event, before, present_origins))
        return traces

    def origins_at(self, version: Tso) -> Names:
        """Return the names of the columns that rows of a version have, with their origins."""
        named = self.origins
        return next((after for event, _, after in reversed(named) if event.at <= version), named[0][1] if named else {})

    @property
    def schema(self) -> TableSchema:
        """The newest schema."""
        return self.events[-1].after

    def schema_at(self, position: Tso) -> TableSchema:
        """Return the schema after all DDL at or below a position, the newest one if it began later."""
        return next((event.after for event in reversed(self.events) if event.at <= position), self.schema)

    @property
    def inferred(self) -> tuple[str, ...]:
        """Facts that its first columns leave open where these were taken from its rows."""
        return self.events[0].file.approximate

    @property
    def unsent(self) -> dict[str, str]:
        """The columns by which the source changes rows without a word in its log, under their newest names, and how."""
        columns: dict[str, str] = {}
        for event in self.events:
            renamed = {change.old: change.new for change in event.changes if isinstance(change, RenameColumn)}
            columns = {renamed.get(name, name): how for name, how in columns.items()}
            spelled = {column.name.lower(): column.name for column in event.after.columns}
            columns |= {spelled.get(name.lower(), name): how for name, how in event.file.unsent}
        return columns

    @property
    def changes(self) -> tuple[tuple[Tso, tuple[SchemaChange, ...]], ...]:
        """The versions of its DDL with the changes of each."""
        return tuple((event.at, (*event.hidden, *event.changes)) for event in self.events)

    @property
    def exchanges(self) -> tuple[tuple[Tso, Life], ...]:
        """The versions of its EXCHANGE PARTITION with the other table, also where they were held or decided about."""
        return tuple(
            (event.at, event.other)
            for event in self.events
            if isinstance(event, (Exchanged, Held, Changed)) and event.other is not None
        )

    @property
    def name(self) -> TableId | None:
        """The newest name, None for a dropped table."""
        return self.events[-1].name

    @property
    def last_name(self) -> TableId | None:
        """The newest name that it ever had, None for a table without one; a history table's is its own."""
        return next((event.name for event in reversed(self.events) if event.name is not None), None)

    def then(self, event: Event) -> TableHistory:
        """Return the life with one more event."""
        return replace(self, events=(*self.events, event))

    def called(self, name: TableId, since: Tso) -> TableHistory:
        """Return the life with a name that it has from `since` on; the inverse of `left`."""
        return replace(self, names=(*self.names, (name, since, FOREVER)))

    def left(self, until: Tso) -> TableHistory:
        """Return the life whose newest name ends."""
        name, since, _ = self.names[-1]
        return replace(self, names=(*self.names[:-1], (name, since, until)))


@dataclass(frozen=True, slots=True)
class History:
    """Every life, how to decode each (root, version), and schema files that are no table's (views, databases).

    A directory has the rows of one table, and `decoding` its name and columns. Where table ids are the path, an
    EXCHANGE PARTITION leaves schema files of two tables there: then it has both, and each row says whose it is.
    """

    lives: Mapping[Life, TableHistory]
    decoding: Mapping[tuple[str, Tso], tuple[tuple[TableId, TableSchema], ...]]
    other_files: tuple[SchemaFile, ...] = ()
    waiting: tuple[Import, ...] = ()
    """Tables of dumps that are later than what is played."""
    offered: Mapping[Life, Base] = field(default_factory=dict)
    """Dumps that have tables which stand in the lake without them: these can be built anew from there."""
    unneeded: Mapping[Life, TableHistory] = field(default_factory=dict)
    """Tables that are not played: nobody has the rows of a dump that they would need, and nobody needs theirs."""
