"""Cuts: one state of all tables of a changefeed at a position, from its decision to its list of snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from cdc_assets.model.decisions import Decisions, KeptDecision
from cdc_assets.model.findings import Finding, Severity
from cdc_assets.model.progress import AppliedState, Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.steps import AddedStep
from cdc_assets.model.tso import Tso, tso_time
from cdc_assets.model.wording import first_of

UNNAMED = "cut-"
"""Prefix of the names of cuts that nobody named; their position follows."""


@dataclass(frozen=True, slots=True)
class CutRequest(KeptDecision):
    """A cut that was decided: no window steps across the position `at`, and each table gets the tag `name` there.

    With `whole` it is not made unless all of them are exactly their source. `when` is ISO text in UTC. A `withdrawn`
    one is to be removed, with its tags and what lists it, if anything does.
    """

    KEPT_AS: ClassVar[str] = "cut"

    name: str
    at: Tso
    who: str = ""
    when: str = ""
    withdrawn: bool = False
    whole: bool = False

    @property
    def subject(self) -> tuple[Any, ...]:
        """The cut's name."""
        return (self.name,)

    @property
    def order(self) -> tuple[Any, ...]:
        """Sort key: the position."""
        return self.at, self.name

    def step(self, life: Life, state: AppliedState | None) -> TagTable | None:
        """Return the step that tags a table's snapshot, None where it has the tag."""
        return None if state is not None and self.name in state.tags else TagTable(life, self.at, self.name)


@dataclass(frozen=True, slots=True)
class TagTable(AddedStep):
    """The table's snapshot gets the tag of a cut."""

    FEATURE: ClassVar[str] = "cuts"

    tag: str

    @property
    def description(self) -> tuple[str, str, str, str]:
        """The step as a plan shows it."""
        return "cut", f"tag {self.tag}: everything through {self.at}", "metadata only", "cdc-assets cut --remove"


@dataclass(frozen=True, slots=True)
class CutTable:
    """A table of a cut: what it was called in the source then, and its snapshot, which is labelled `applied_ts`.

    One that is absent has no snapshot; `why_not` says why, where the settings want that. `lacks` says why the table is
    not exactly its source, "" if it is: that one is absent, or, where a person lets it go on so, present.
    """

    life: Life
    name: TableId
    snapshot_id: int | None
    applied_ts: Tso | None
    why_not: str = ""
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut that exists. `made` is ISO text in UTC."""

    name: str
    at: Tso
    made: str
    tables: tuple[CutTable, ...]

    @property
    def taken(self) -> tuple[CutTable, ...]:
        """The tables that are there."""
        return tuple(table for table in self.tables if table.snapshot_id is not None)

    @property
    def left_out(self) -> tuple[CutTable, ...]:
        """The tables that are absent."""
        return tuple(table for table in self.tables if table.snapshot_id is None)

    @property
    def inexact(self) -> tuple[CutTable, ...]:
        """The tables that are there and not exactly their source, as a person accepted."""
        return tuple(table for table in self.taken if table.lacks)

    @property
    def exact(self) -> bool:
        """Return whether each table that the settings ask for is there, exactly as its source was."""
        return not any(table.lacks for table in self.tables)

    @property
    def accepted(self) -> bool:
        """Return whether no table is absent that the settings ask for: what others lack was accepted."""
        return not any(table.lacks for table in self.left_out)


@dataclass(frozen=True, slots=True)
class CutBlock:
    """Why a table keeps a cut from being made.

    One that `waits` may get there by itself; one that went `across` is there for a cut that is decided anew.
    """

    life: Life
    name: TableId
    reason: str
    waits: bool = False
    across: bool = False

    @property
    def stays(self) -> bool:
        """Return whether a person has to do something."""
        return not (self.waits or self.across)

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass(frozen=True, slots=True)
class CutOutcome:
    """The outcome of a decided cut: it was made, or `blocked`. It is withdrawn then, unless all of these wait."""

    FEATURE: ClassVar[str] = "cuts"

    request: CutRequest
    cut: Cut | None = None
    blocked: tuple[CutBlock, ...] = ()

    @property
    def is_withdrawn(self) -> bool:
        """Return whether it will never be made."""
        return self.cut is None and not all(block.waits for block in self.blocked)

    @property
    def reason(self) -> str:
        """Why it was not made, in a sentence, "" if it was."""
        return "; ".join(str(block).rstrip(".") for block in self.blocked)

    @property
    def finding(self) -> Finding | None:
        """The finding that a cut was not made, or not of all tables; None for any other and one that only waits."""
        made = self.cut
        if made is not None and not made.accepted:
            absent = first_of([f"{table.name}: {table.lacks}" for table in made.left_out if table.lacks], "table")
            sentence = (
                "a cut was made without tables that are not exactly their source. Bring these in order, and make "
                "another one."
            )
            return Finding("cut", Severity.WARNING, "", sentence, f"{made.name}, of {tso_time(made.at)}: {absent}")
        if not self.is_withdrawn:
            return None
        names = first_of([str(block) for block in self.blocked], "table") if self.blocked else "another run removed it"
        return Finding(
            "cut",
            Severity.WARNING,
            "",
            "a cut was not made, because tables were not at its position. Make it once they are.",
            f"{self.request.name}, of {tso_time(self.request.at)}: {names}",
        )


def cut_requests(decisions: Decisions) -> tuple[CutRequest, ...]:
    """Return the cuts that are not made yet, or are to be removed, by position."""
    return decisions.of(CutRequest)


def is_unnamed(name: str) -> bool:
    """Return whether a cut has the name that it gets where nobody named it, such as `cut-465283339517952001`."""
    return name.startswith(UNNAMED) and name[len(UNNAMED) :].isdigit()
