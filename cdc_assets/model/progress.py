"""Progress of a table, its state, the dump it is based on, and the identity that it keeps through renames."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc_assets.model.layout import PLAIN, TableLayout
from cdc_assets.model.recipe import EMPTY_RECIPE, Recipe
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso


class Phase(enum.IntEnum):
    """(V, DDL) comes before the rows at V, and those before (V, ROWS)."""

    DDL = 0
    ROWS = 1


class State(str, enum.Enum):
    """A table's state: applied as far as planned, held for a person, failed for a reason that may pass, or dropped.

    Nothing is applied to a frozen table, as the settings do not ask for it. A loading table is in the lake, and no run
    that looked at it has ended. Its value is the text shown to people, in JSON and in the ledger.
    """

    APPLIED = "applied"
    HELD = "held"
    FAILED = "failed"
    DROPPED = "dropped"
    FROZEN = "frozen"
    LOADING = "loading"

    def __str__(self) -> str:
        return self.value

    @property
    def stopped(self) -> bool:
        """Return whether the table waits, although more is to be applied to it."""
        return self in (State.HELD, State.FAILED)

    @property
    def ended(self) -> bool:
        """Return whether nothing more is to be applied to the table."""
        return self in (State.DROPPED, State.FROZEN)


@dataclass(frozen=True, slots=True)
class TableStanding:
    """Standing of a table: how far it is applied, and why it stops there.

    `version` is the newest schema version applied, `through` the TSO at or below which everything is applied. `reason`
    says why a stopped table stopped, and `ways` how a person lets it go on.
    """

    name: TableId
    version: Tso
    through: Tso
    state: State
    reason: str = ""
    ways: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Progress:
    """Progress of a table: through the DDL of `tso`, or through all rows at or below it."""

    tso: Tso
    phase: Phase

    @property
    def through(self) -> Tso:
        """The position at or below which everything is applied."""
        return self.tso - (self.phase is Phase.DDL)


@dataclass(frozen=True, slots=True)
class AppliedState:
    """Progress of the lake with a life: read from the label of its newest labelled snapshot.

    `ddl` is the version of the newest schema file that was taken into account: a DDL file at exactly the applied TSO
    that came late is still due. `name` is the name the table should have, None once it is dropped.
    """

    progress: Progress
    ddl: Tso
    name: TableId | None
    positions: Mapping[str, int] = field(default_factory=dict)
    """Progress without commit-ts: the highest file number applied, by number sequence."""
    gap: Gap | None = None
    """Record of the lake table about rows that it lacks."""
    base: Base | None = None
    """The dump that the table is based on; None for one that begins with its feed."""
    recipe: Recipe = EMPTY_RECIPE
    """The recipe by which its rows were read."""
    tags: frozenset[str] = frozenset()
    """The names of its tagged snapshots."""
    since: Tso | None = None
    """The position at which a table begins that was switched on later than what is left of the input."""
    forgotten: Tso = -1
    """Through which position rows of keys were forgotten that are not kept out: what is read again may have them."""
    missing: MissingRows | None = None
    """The rows that a window proved to be missing."""
    begins: Tso | None = None
    """The version of the RENAME that brought a history table under its rule: from there on it has its history."""
    repaired: Tso = -1
    """The position as of which the newest repair gave it the source's rows, which its feed does not have."""
    whole: Tso = -1
    """The position as of which a repair made all of its rows the source's."""
    dropped: Tso | None = None
    """The version of the DROP since which the source does not have it, None for one that is there."""
    layout: TableLayout = PLAIN
    """Layout of its files, with the properties that a person gave it."""

    @property
    def is_whole(self) -> bool:
        """Return whether it has what its feed has from the beginning on: it begins there, and keeps every row."""
        return self.since is None and self.forgotten < 0

    @property
    def is_purged(self) -> bool:
        """Return whether nothing is left of the table: it was purged after its DROP."""
        return self.recipe.key is None and self.name is None

    @property
    def awaits_rows(self) -> bool:
        """Return whether the table was created from its dump, and its rows are still missing."""
        return self.base is not None and self.progress == Progress(self.base.at, Phase.DDL)

    @property
    def is_unread(self) -> bool:
        """Return whether nothing of its input was applied yet: it was made right below the RENAME where it begins."""
        return self.begins is not None and self.since == self.progress.tso


@dataclass(frozen=True, slots=True)
class MissingRows:
    """Rows of which a window had the first change, an update or a delete, and which the table did not have.

    `count` is their number in that window. `at` is the position of the first such change, `key` the key of its row as
    text, and `place` the file or the range of offsets that has a change of that row.
    """

    at: Tso
    count: int
    key: str
    place: str


@dataclass(frozen=True, slots=True)
class Base:
    """The dump that a table is based on: its rows as of `at` came from there, under the name that the table had then.

    `query` is the CREATE TABLE text of the dump, `collation` its database's default and `timezone` that of its
    defaults: they give the columns as of `at` when the dump no longer exists. `uri` is where it was.
    """

    at: Tso
    table: TableId
    uri: str
    query: str
    collation: str | None = None
    timezone: str | None = None


@dataclass(frozen=True, slots=True, order=True)
class Life:
    """A table from its creation to its drop, through all renames: its first name and first version.

    `kind` is that of a history table beside it (see `model.kinds`), "" for the table as the source has it.
    """

    born_as: TableId
    version: Tso
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.born_as}@{self.version}{f'.{self.kind}' if self.kind else ''}"

    @property
    def source(self) -> Life:
        """The table as the source has it."""
        return self if not self.kind else Life(self.born_as, self.version)


def source_of(life: str) -> str:
    """Return the text of a table as the source has it, from that of one of its kinds."""
    name, at, version = life.rpartition("@")
    return f"{name}{at}{version.partition('.')[0]}"


class Whole(str, enum.Enum):
    """Reason why a table is complete. Its value is the text shown to people and in JSON."""

    CREATE = "create"
    TRUNCATE = "truncate"
    DUMP = "dump"
    SNAPSHOT = "snapshot"
    SCAN = "scan"
    STATEMENT = "statement"
    REPAIR = "repair"

    def __str__(self) -> str:
        return self.value


class Lack(str, enum.Enum):
    """Why a feed does not have the rows from before it, by its kind. Its value is that of a property in the lake."""

    FILES = "files"
    TOPICS = "topics"
    SNAPSHOT = "snapshot"
    LATER = "later"
    RUNNING = "running"
    BEGINNING = "beginning"
    CREATED = "created"
    SETTINGS = "settings"
    SCAN = "scan"
    EXPIRED = "expired"
    LATE = "late"
    LEFT_OUT = "left out"
    PROVEN = "proven"
    RESTORED = "restored"
    INGESTED = "ingested"
    DECIDED = "decided"
    LATE_ROWS = "late rows"


@dataclass(frozen=True, slots=True)
class Filling:
    """Source of the rows that a table had before its feed.

    `by` is SNAPSHOT or SCAN where they are among its rows: all are there at the position `through`, None while they are
    not. They begin at the position `since`. With None as `by` nothing but a DDL that leaves the table empty makes it
    complete. `lack` is why they are not there.
    """

    lack: Lack = Lack.FILES
    by: Whole | None = field(default=None, compare=False)
    since: Tso | None = field(default=None, compare=False)
    through: Tso | None = field(default=None, compare=False)

    @property
    def is_empty_snapshot(self) -> bool:
        """Return whether a snapshot has the table's CREATE and no row of it."""
        return self.lack is Lack.CREATED and self.through is not None


_FROM_A_POSITION = (Lack.EXPIRED, Lack.DECIDED, Lack.LATE_ROWS)
"""Lacks of rows behind a position, before which a table has all."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Why a table is incomplete: the rows that `life` had when the feed began, before `since`, are not in the feed.

    `life` is the table itself, or one from which rows came by EXCHANGE PARTITION. `since` is the first version that the
    feed has of it. `offer` is a dump that has those rows, "" if none is known. `filling` says whether the feed's own
    rows bring them, so that they are there once these are applied. `reason` is a sentence on messages that were not
    read (EXPIRED), on the position at which the lake's table begins (LATE), on rows that a window proved to be missing
    (PROVEN, `at` is the position of that), on a DDL of which a decision gives the table other rows (DECIDED), or on
    rows that came when a table stood still beyond them (LATE_ROWS), and what a person can do. Rows that were not read,
    were decided about or came late are missing behind `at` only. `accepted` says
    that a person let the table go on without these rows.
    """

    life: Life
    offer: str = field(default="", compare=False)
    filling: Filling = Filling()
    reason: str = ""
    at: Tso = field(default=0, compare=False)
    accepted: bool = False

    @property
    def sound_through(self) -> Tso:
        """The position through which the table has its rows."""
        return max(self.since - 1, self.at if self.filling.lack in _FROM_A_POSITION else 0)

    @property
    def is_unread(self) -> bool:
        """Return whether the rows were in messages that were not read."""
        return self.filling.lack is Lack.EXPIRED

    @property
    def is_of_decision(self) -> bool:
        """Return whether the table had its rows until a decision."""
        return self.accepted and self.filling.lack in (Lack.EXPIRED, Lack.DECIDED)

    @property
    def mark(self) -> str:
        """Subject of a person's acceptance: the rows of this gap, and none that are found to be missing later."""
        return f"{self.life} {self.filling.lack.value} {self.at}"

    @property
    def since(self) -> Tso:
        """Rows from before this version are missing."""
        return self.life.version

    def without(self, begun: Tso | None) -> str:
        """Return the clause on missing rows of a table, which begins at a position if later than its source."""
        if self.is_unread or self.filling.lack is Lack.LATE_ROWS:
            return "some of its messages"
        return f"its rows from before {self.since if begun is None else begun}"

    def is_filled(self, through: Tso) -> bool:
        """Return whether the feed's rows through a position bring those from before it."""
        return self.filling.through is not None and self.filling.through <= through
