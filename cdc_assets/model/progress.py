"""How far a table is applied, how it stands and on what, and the identity that it keeps through renames."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

__all__ = ["Applied", "Base", "Gap", "Life", "Phase", "Progress", "State"]


class Phase(enum.IntEnum):
    """(V, DDL) comes before the rows at V, and those before (V, ROWS)."""

    DDL = 0
    ROWS = 1


class State(str, enum.Enum):
    """How a table stands: applied as far as planned, held for a person, failed for a reason that may pass, or dropped.

    Its value is the text that people, JSON and the ledger get.
    """

    APPLIED = "applied"
    HELD = "held"
    FAILED = "failed"
    DROPPED = "dropped"

    def __str__(self) -> str:
        return self.value

    @property
    def stopped(self) -> bool:
        """Tell whether the table does not go on."""
        return self in (State.HELD, State.FAILED)


@dataclass(frozen=True, slots=True, order=True)
class Progress:
    """How far a table is applied: through the DDL of `tso`, or through all rows at or below it."""

    tso: Tso
    phase: Phase


@dataclass(frozen=True, slots=True)
class Applied:
    """What the lake holds of a life: read from the label of its newest labelled snapshot.

    `ddl` is the version of the newest schema file that was taken into account: a DDL file at exactly the applied TSO
    that came late is still due. `name` is the name the table should have, None once it is dropped.
    """

    progress: Progress
    ddl: Tso
    name: TableId | None
    positions: Mapping[str, int] = field(default_factory=dict)
    """Without commit-ts: the highest file number taken in, by number sequence."""
    gap: Gap | None = None
    """What the lake table says of rows that it lacks."""
    base: Base | None = None
    """The dump that the table stands on; None for one that begins with its feed."""


@dataclass(frozen=True, slots=True)
class Base:
    """The dump that a table stands on: its rows as of `at` came from there, by the name that the table had then.

    `query` is the CREATE TABLE text of the dump, `collation` its database's default and `timezone` that of its
    defaults: they tell the columns of then when the dump is no longer there. `uri` is where it was.
    """

    at: Tso
    table: TableId
    uri: str
    query: str
    collation: str | None = None
    timezone: str | None = None


@dataclass(frozen=True, slots=True, order=True)
class Life:
    """A table from its birth to its drop, whatever it is called meanwhile: its first name and first version."""

    born_as: TableId
    version: Tso

    def __str__(self) -> str:
        return f"{self.born_as}@{self.version}"


@dataclass(frozen=True, slots=True)
class Gap:
    """Why a table is incomplete: the rows that `life` had when the feed began, before `since`, are not in the feed.

    `life` is the table itself, or one from which rows came by EXCHANGE PARTITION. `since` is the first version that the
    feed tells of it. `offer` is a dump that has those rows, "" where none is known.
    """

    life: Life
    offer: str = field(default="", compare=False)

    @property
    def since(self) -> Tso:
        """Rows from before this version are missing."""
        return self.life.version
