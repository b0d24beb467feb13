"""Holds for what depends on a held table: the other side of an exchange, and a table that takes its name. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdc_assets.model.kinds import other_suffix
from cdc_assets.model.progress import AppliedState, Life
from cdc_assets.model.schema import ByName, TableId
from cdc_assets.model.steps import (
    CreateTable,
    DropTable,
    ExchangePartition,
    HoldTable,
    RecoverTable,
    RenameTable,
    Step,
)

Naming = CreateTable | RenameTable | RecoverTable
"""Steps that give a name to their table."""


def wanted_name(step: Naming) -> TableId:
    """Return the name that a step gives to its table."""
    return step.name if isinstance(step, CreateTable) else step.to


def held_back(steps: Sequence[Step], applied: Mapping[Life, AppliedState]) -> list[Step]:
    """Return the steps, with those of a table that must wait for a held one replaced by a hold of its own.

    Renames of one DDL happen at once, so a table may wait for one whose hold comes after it in the order.
    """
    stuck: ByName[HoldTable] = ByName()
    while True:
        passed_steps, holds = _passed(steps, applied, stuck)
        if len(holds) == len(stuck):
            return passed_steps
        stuck = holds


def _passed(
    steps: Sequence[Step], applied: Mapping[Life, AppliedState], earlier_holds: ByName[HoldTable]
) -> tuple[list[Step], ByName[HoldTable]]:
    """Go through the steps once; `earlier_holds` are names that stay taken, with the hold, of an earlier pass."""
    held: dict[Life, HoldTable] = {}
    stuck = ByName(earlier_holds)
    passed_steps: list[Step] = []
    names = _LifeNames(applied)
    for step in steps:
        if step.life in held:
            continue
        next_name = wanted_name(step) if isinstance(step, Naming) else None
        cause = stuck.get(next_name) if next_name is not None else None
        if cause is not None and (cause.at > step.at or cause.life == step.life):
            cause = None
        if isinstance(step, ExchangePartition):
            cause = cause or held.get(step.other)
        if cause is not None and not isinstance(step, HoldTable):
            step = HoldTable(step.life, step.at, f"waits for {cause.life}, which is held: {cause.reason}", cause.ways)
        if isinstance(step, CreateTable) and (holder := names.holder(step.name)) is not None:
            step = _taken(step, holder)
        if isinstance(step, HoldTable):
            held[step.life] = step
            if (name := names.of.get(step.life)) is not None:
                stuck[name] = step
        elif isinstance(step, (CreateTable, RenameTable, RecoverTable)):
            names.give(step.life, next_name)
        elif isinstance(step, DropTable):
            names.give(step.life, None)
        passed_steps.append(step)
    return passed_steps, stuck


def _taken(step: CreateTable, holder: Life) -> Step:
    if holder == step.life:
        return step
    if step.life.kind:
        return HoldTable(
            step.life,
            step.at,
            f"{holder} is called {step.name} in the lake, as this one would be: it keeps its name. "
            f"{other_suffix(step.life.kind)}",
        )
    return HoldTable(
        step.life,
        step.at,
        f"{step.name} is the name of {holder} in the lake, and no schema file says that it was dropped or renamed: a "
        "schema file was removed, or rewritten without its DDL. Restore the schema files under "
        f"{step.name.schema}, or rebuild {step.name}.",
    )


class _LifeNames:
    """The name of each life while the steps are processed, and the life of each name."""

    def __init__(self, applied: Mapping[Life, AppliedState]) -> None:
        self.of: dict[Life, TableId | None] = {}
        self._holders: ByName[list[Life]] = ByName()
        for life, state in applied.items():
            self.give(life, state.name)

    def give(self, life: Life, name: TableId | None) -> None:
        old = self.of.get(life)
        if old is not None:
            self._holders[old].remove(life)
        if name is not None:
            self._holders.setdefault(name, []).append(life)
        self.of[life] = name

    def holder(self, name: TableId) -> Life | None:
        return next(iter(self._holders.get(name, ())), None)
