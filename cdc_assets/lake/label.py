"""The label of a table: its progress, written into the commit of each step, and where it is stored.

    snapshot   cdc.applied-ts  cdc.applied-phase (ddl|rows)  cdc.ddl-ts  cdc.positions (without commit-ts only)
               cdc.recipe (how its rows were read: the fingerprint of a `Recipe`)
               cdc.overwrites (of states that changes of some columns overwrite)
               cdc.lacks-rows (the table was incomplete)
    table      the same, and cdc.applied-snapshot: the fallback for a table without any labelled ancestor

The newest labelled ancestor of main counts. The fallback is written by maintenance, and counts only if it is known that
nothing but unlabelled commits (compactions) followed the snapshot that it names.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cdc_assets.model.progress import Phase, Progress
from cdc_assets.model.recipe import EMPTY_RECIPE, Recipe
from cdc_assets.model.tso import Tso

if TYPE_CHECKING:
    from cdc_assets.lake.metadata_file import MetadataFile
    from cdc_assets.model.steps import ApplyRows

_TS, _PHASE, _DDL = "cdc.applied-ts", "cdc.applied-phase", "cdc.ddl-ts"
_POSITIONS, _RECIPE, _OVERWRITES = "cdc.positions", "cdc.recipe", "cdc.overwrites"
_LACKS_ROWS = "cdc.lacks-rows"

AT = "cdc.applied-snapshot"
"""Table property: main's snapshot when the fallback was written."""


@dataclass(frozen=True, slots=True)
class Label:
    """Progress of a snapshot, and the newest schema version that it includes.

    `overwrites` says that states have values that came after they began, of columns that are not tracked. `lacks_rows`
    says that the table was incomplete after the window that it is of.
    """

    progress: Progress
    ddl: Tso
    positions: Mapping[str, int] = field(default_factory=dict)
    recipe: Recipe = EMPTY_RECIPE
    overwrites: bool = False
    lacks_rows: bool = False

    def properties(self) -> dict[str, str]:
        """Return the snapshot properties of the label."""
        summary = {
            _TS: str(self.progress.tso),
            _PHASE: self.progress.phase.name.lower(),
            _DDL: str(self.ddl),
            _RECIPE: self.recipe.fingerprint,
        }
        parts = {_POSITIONS: self.positions, _OVERWRITES: self.overwrites, _LACKS_ROWS: self.lacks_rows}
        return {**summary, **{name: json.dumps(part, sort_keys=True) for name, part in parts.items() if part}}

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> Label | None:
        """Return the label among properties, None if there is none."""
        if _TS not in properties:
            return None
        progress = Progress(int(properties[_TS]), Phase[properties[_PHASE].upper()])
        positions, recipe = json.loads(properties.get(_POSITIONS, "{}")), Recipe.parse(properties[_RECIPE])
        flags = (_OVERWRITES in properties, _LACKS_ROWS in properties)
        return cls(progress, int(properties[_DDL]), positions, recipe, *flags)

    def through_ddl(self, at: Tso, ddl: Tso, recipe: Recipe = EMPTY_RECIPE, *, emptied: bool = False) -> Label:
        """Return the label after a step at that TSO that brings a table to the schema version `ddl`.

        A late DDL does not change how far rows are applied. A table that was emptied has no values that were read. The
        recipe is that of values that the DDL gives to rows that are there, with the masks of the columns, and the key.
        """
        progress = max(self.progress, Progress(at, Phase.DDL))
        joined = (Recipe(key=self.recipe.key) if emptied else self.recipe).joined(recipe)
        return replace(self, progress=progress, ddl=max(self.ddl, ddl), recipe=joined)

    def through_rows(self, step: ApplyRows, used: Collection[str]) -> Label:
        """Return the label after a window, which used these settings of the step's recipe."""
        from cdc_assets.features.kinds.decoding import keeps_states  # here: who only looks at a lake needs no pyarrow

        ddl, positions = max(step.ddl, self.ddl), step.positions or self.positions
        some = step.history is not None and step.history.tracks_some and keeps_states(step.life.kind)
        recipe, overwrites = self.recipe.after(step.reading.recipe, used), self.overwrites or some
        return Label(Progress(step.hi, Phase.ROWS), ddl, positions, recipe, overwrites, step.lacks_rows)

    @property
    def rows_from(self) -> Tso:
        """Rows above this commit-ts are still due."""
        return self.progress.through


def fallback(label: Label, snapshot_id: int) -> dict[str, str]:
    """Return the table properties that keep a label beyond its snapshot; the inverse of `kept_label`."""
    return {**label.properties(), AT: str(snapshot_id)}


def kept_label(file: MetadataFile) -> Label | None:
    """Return the label in the table's properties, None if a step may have been committed since.

    It is valid if only visible, unlabelled commits lead from the snapshot at which it was written to the present one.
    """
    label, at = Label.parse(file.properties), file.properties.get(AT)
    if label is None or at is None:
        return None
    for snapshot in file.lineage():
        if at in (str(snapshot.snapshot_id), str(snapshot.parent_id)):
            return label
        if Label.parse(snapshot.summary) is not None:
            return None
    return None
