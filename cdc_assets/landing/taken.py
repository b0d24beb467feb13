"""What a task read of topics, as values that travel: files of rows, and what of their messages is for the driver.

A task knows of its own partitions only, so it decides nothing that needs others: it notes what the driver then takes in
the order in which it would have read the same itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from cdc_assets.errors import CdcError
from cdc_assets.formats.message_options import MessageOptions
from cdc_assets.landing.first_rows import Bounds
from cdc_assets.landing.late import LateRows
from cdc_assets.landing.spool import Written
from cdc_assets.model.landed import EventKind, Landed, LandedEvent, LandedMessage
from cdc_assets.model.offsets import OffsetRange, Partition
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

__all__ = ["Noted", "Seen", "Standing", "Taken", "TakenRange", "slim"]


@dataclass(slots=True)
class Seen:
    """What rows show of their tables: where they begin and end, and columns of those that are not known.

    `pieces` are the first and last offsets of the batches in which the rows came.
    """

    bounds: dict[TableId, Bounds]
    columns: tuple[LandedEvent, ...]
    pieces: list[tuple[int, int]]

    @classmethod
    def of(cls, bounds: Iterable[Bounds], columns: Iterable[LandedEvent], piece: tuple[int, int]) -> Seen:
        """Return what one batch shows."""
        return cls({one.table: one for one in bounds}, tuple(columns), [piece])

    def join(self, bounds: Iterable[Bounds], piece: tuple[int, int]) -> None:
        """Take the next batch, whose tables are known: an archive may have ten messages in each."""
        for one in bounds:
            known = self.bounds.get(one.table, one)
            self.bounds[one.table] = Bounds(one.table, _of(min, known.first, one.first), _of(max, known.last, one.last))
        self.pieces.append(piece)


def _of(chosen: Callable[..., Tso], *positions: Tso | None) -> Tso | None:
    return chosen((one for one in positions if one is not None), default=None)


Noted = tuple[Tso, "LandedEvent | Seen"]
"""The greatest mark of the partition when something was found, 0 for none, and what that was."""


@dataclass(frozen=True, slots=True)
class TakenRange:
    """A range that was read up to its stop. `mark` and all that follow are its partition's then."""

    wanted: OffsetRange
    noted: tuple[Noted, ...] = ()
    mark: Tso | None = None
    restart: int | None = None
    mark_at: int | None = None
    newest: LandedMessage | None = None
    least: Tso = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """What one task read, and the file into which it wrote the rows; with `error` nothing."""

    ranges: tuple[TakenRange, ...] = ()
    written: Written = field(default_factory=Written)
    ignored: Mapping[str, int] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    messages: int = 0
    read_bytes: int = 0
    stored_bytes: int = 0
    error: CdcError | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the driver stands when tasks go on from there. `began` and `described` are the tables known by then."""

    before: Landed
    options: MessageOptions
    proves_ends: bool
    marks: Mapping[Partition, Tso]
    restarts: Mapping[Partition, int]
    mark_at: Mapping[Partition, int]
    late: LateRows
    unknown: frozenset[str]
    began: frozenset[TableId]
    described: frozenset[TableId]


def slim(before: Landed) -> Landed:
    """Return the part of the state that a task needs: how far is landed, and which losses are accepted."""
    lost = tuple(event for event in before.events if event.kind is EventKind.LOST)
    return Landed(before.identity, before.next, proven=before.proven, events=lost)
