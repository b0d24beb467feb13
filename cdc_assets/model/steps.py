"""Steps: what one commit does to one table.

Steps are equal if all their fields are. Their hash is that of life, time and names alone: it takes no longer for a
window of 100,000 files, and columns whose default is arbitrary JSON have no hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from cdc_assets.model.encryption import EncryptionKey
from cdc_assets.model.kinds import ColumnLife, HistoryRule
from cdc_assets.model.layout import PLAIN, TableLayout
from cdc_assets.model.progress import AppliedState, Base, Gap, Life, Phase, Progress
from cdc_assets.model.recipe import EMPTY_RECIPE, ExcludedKeys, Recipe
from cdc_assets.model.schema import TableId, TableSchema
from cdc_assets.model.schema_changes import Evolution, Predicate, SchemaChange
from cdc_assets.model.splits import DataFile
from cdc_assets.model.tso import Tso


@dataclass(frozen=True, slots=True)
class CreateTable:
    """An empty table under `name`; `takes` are the versions of later DDL whose columns it has from the start.

    `since` is the commit-ts from which rows belong to it, where its first schema file came after them. `gap` says
    which rows it lacks. `base` is the dump that it is based on, whose rows come next if there are any (`has_rows`):
    until then it lacks those. A table may begin later than others of its source table: at the position `begun`.
    `recipe` has the masks that its columns are made for. `lives` say when the source had which columns, if it did not
    have all from the start. `layout` is how its files are laid out. `lake_columns` are the columns that it has by the
    settings `columns` and `deletes`. `begins` is the version of the RENAME at which a history table begins.
    """

    life: Life
    at: Tso
    name: TableId
    schema: TableSchema = field(hash=False)
    takes: tuple[Tso, ...] = ()
    since: Tso | None = None
    gap: Gap | None = None
    base: Base | None = None
    has_rows: bool = True
    begun: Tso | None = None
    recipe: Recipe = field(default=EMPTY_RECIPE, hash=False)
    lives: tuple[ColumnLife, ...] = field(default=(), hash=False)
    layout: TableLayout = field(default=PLAIN, hash=False)
    lake_columns: tuple[str, ...] = field(default=(), hash=False)
    begins: Tso | None = None

    @property
    def ddl(self) -> Tso:
        """The newest schema version that the table has."""
        return max((self.at, *self.takes))

    @property
    def progress(self) -> Progress:
        """Progress of the table once created: through the rows of its dump if that has none."""
        phase = Phase.DDL if self.has_rows else Phase.ROWS
        return Progress(self.at if self.since is None else self.since, phase)


@dataclass(frozen=True, slots=True)
class ChangeTable:
    """All changes of one DDL, in one commit. `schema` is the schema afterwards.

    `early` changes are of a DDL that is not in the changefeed: the schema file of the DDL at `at`, which is a step of
    its own, shows them first. By a step with `dropped` the source drops the table, and the lake keeps it: that is
    recorded, and the DROP is still due if the policy for it is taken back. `recipe` is that by which it gives values to
    rows that are there. `masks` are those of the columns before it, by the names of these settings, of each table whose
    rows it moves into or out of a history table; a mirror that is not among them is switched off.
    """

    life: Life
    at: Tso
    changes: tuple[SchemaChange, ...] = field(hash=False)
    schema: TableSchema = field(hash=False)
    before: TableSchema = field(hash=False)
    early: bool = False
    recipe: Recipe = field(default=EMPTY_RECIPE, hash=False)
    masks: Mapping[Life, Mapping[str, str]] = field(default_factory=dict, hash=False)
    dropped: bool = False

    @property
    def ddl(self) -> Tso:
        """The schema version that the table has afterwards; with `early` and `dropped` the DDL of `at` is still due."""
        return self.at - 1 if self.early or self.dropped else self.at


@dataclass(frozen=True, slots=True)
class RenameTable:
    """The life is called `to` from here on. Renames of one DDL share `at` and happen at once (names may swap).

    A history table may have a name `late`, by none of the DDL that comes: it gets that before others take its old one.
    Where the states of one `begin` with the RENAME, those that are open then begin anew, and all others go.
    """

    life: Life
    at: Tso
    to: TableId
    late: bool = False
    begins: bool = False


@dataclass(frozen=True, slots=True)
class DropTable:
    """The table gives up its name and is retained, so that RECOVER can restore it; `masks` as in `ChangeTable`."""

    life: Life
    at: Tso
    masks: Mapping[Life, Mapping[str, str]] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class RecoverTable:
    """A dropped table is restored under the name `to`; `masks` as in `ChangeTable`."""

    life: Life
    at: Tso
    to: TableId
    masks: Mapping[Life, Mapping[str, str]] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class ExchangePartition:
    """The rows of `life` that satisfy `predicate` and all rows of `other` are exchanged.

    `other` is the table of the lake that has the other's rows: its mirror, or without one its states.

    Two steps of one plan name the same exchange, one for each life; each reads both inputs as of before `at`. `masks`
    are those that the columns of both have, as in `ChangeTable`.
    """

    life: Life
    other: Life
    at: Tso
    predicate: Predicate
    partitioned: bool
    schema: TableSchema = field(hash=False)
    masks: Mapping[Life, Mapping[str, str]] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class RowReading:
    """Rows that a window takes of its files, and how they are read: equal for all tables of one source table.

    `schemas` decodes them, by (root, version) of the file. `names` are the (name, from, to) in which rows under that
    name belong to the table: from <= commit-ts < to.
    """

    schemas: Mapping[tuple[str, Tso], tuple[TableId, TableSchema]] = field(default_factory=dict)
    names: tuple[tuple[TableId, Tso, Tso], ...] = ()
    beside: tuple[DataFile, ...] = ()
    """Files of these names whose columns were not in force: none of the window's rows may be in them."""
    unexplained: Mapping[tuple[str, Tso], tuple[tuple[Tso, Tso], ...]] = field(default_factory=dict)
    """Ranges (from, to) in which no row can have been written with a version's columns, by (root, version)."""
    siblings: Mapping[tuple[str, Tso], tuple[tuple[TableId, TableSchema], ...]] = field(default_factory=dict)
    """Other tables whose rows a file may have instead, by (root, version); see `History.decoding`."""

    recipe: Recipe = EMPTY_RECIPE
    """The recipe of the rows and of those before them: the settings on which values of the table's columns depend."""
    former: Mapping[str, str] = field(default_factory=dict)
    """The settings of its time that are not the present ones: its rows were written with them."""

    base_at: Tso = -1
    """The TSO of the dump that the table stands on: rows at or below it are in there, whatever the feed has of them."""
    excluded: tuple[ExcludedKeys, ...] = ()
    """The forgotten keys whose rows are left out."""


@dataclass(frozen=True, slots=True)
class ApplyRows:
    """The rows of `files` with lo < position <= hi, read as `reading` says.

    `ddl` is the newest schema version that this window includes.
    """

    life: Life
    lo: Tso
    hi: Tso
    files: tuple[DataFile, ...]
    reading: RowReading
    schema: TableSchema
    ddl: Tso
    positions: Mapping[str, int] | None = None
    """Set where rows carry no commit-ts: all rows of `files` apply, in file order, and this is the new position."""
    evolutions: tuple[Evolution, ...] = ()
    """DDL inside the window, in order; `schema` is the last one's. DDL without changes leaves rows as they are."""
    history: HistoryRule | None = None
    """The settings of a history table, None for a mirror."""

    encryption_key: EncryptionKey | None = None
    """Encrypts records of masked tables that are set aside; without it their bytes are not kept."""
    sets_aside: bool = False
    """Whether records that do not fit are set aside, with their bytes; else the window fails for them."""

    whole_at: Tso | None = None
    """The position at which the table has every row of the source, as far as is known; None if it lacks rows at `hi`.

    A change behind it of a row that the table does not have proves otherwise."""
    lacks_rows: bool = False
    """Whether the table is incomplete at `hi`, as far as is known."""
    layout: TableLayout | None = None
    """The layout whose order and properties the table gets with the window; None where it has them."""
    lake_columns: tuple[str, ...] = ()
    """The columns that a mirror has by the settings `columns` and `deletes`."""

    def __hash__(self) -> int:
        return hash((self.life, self.lo, self.hi))

    @property
    def at(self) -> Tso:
        """The TSO at which this step's effect is complete."""
        return self.hi

    def reads_like(self, other: ApplyRows) -> bool:
        """Return whether another table of the same source table takes the same rows, read in the same way."""
        own, others = (
            (step.life.source, step.lo, step.hi, step.positions, step.files, step.reading) for step in (self, other)
        )
        return own == others

    @property
    def is_snapshot(self) -> bool:
        """Return whether the rows are a snapshot, as a dump is: all rows of their table, each once, in no order."""
        return any(file.piece is not None for file in self.files)

    @property
    def is_repair(self) -> bool:
        """Return whether the rows are the source's at `hi`, at which the table stands already: a window of no files."""
        return self.lo == self.hi and not self.files


@dataclass(frozen=True, slots=True)
class HoldTable:
    """Nothing from `at` on is applied to this life. `ways` says what a person can do about it.

    `releasable` is set for a DDL of this life, on which a person can decide (`release`). `late` says that input of `at`
    and later came when more had been applied, which lacks it.
    """

    life: Life
    at: Tso
    reason: str
    ways: tuple[str, ...] = ()
    releasable: bool = False
    late: bool = False


@dataclass(frozen=True, slots=True)
class AddedStep:
    """A step that a feature adds to a table's chain where it has everything through `at`, and nothing later.

    It changes neither rows nor progress. Of the feature's module in `lake`, `carry_out` does it.
    """

    FEATURE: ClassVar[str]

    life: Life
    at: Tso

    @property
    def description(self) -> tuple[str, str, str, str]:
        """Description in a plan: the step's name, its effect, its cost, and how to undo it."""
        raise NotImplementedError


class Waypoint(Protocol):
    """A position that no window steps across, because a feature adds a step to the tables that are there."""

    @property
    def at(self) -> Tso:
        """The position."""

    def step(self, life: Life, state: AppliedState | None) -> AddedStep | None:
        """Return the step of a table that exists there and is not applied beyond it; None where it had that."""


Step = (
    CreateTable
    | ChangeTable
    | RenameTable
    | DropTable
    | RecoverTable
    | ExchangePartition
    | ApplyRows
    | AddedStep
    | HoldTable
)
