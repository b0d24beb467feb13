"""Layouts of tables: which one a new table gets, which DDL it does not bear, and where a table has another. Pure.

A layout names columns as they are called now. A table keeps that with which it was made; a rebuild makes it anew.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from cdc_assets.model.findings import Finding, Severity
from cdc_assets.model.layout import DELETED_AT, LIVING, LayoutRules, TableLayout
from cdc_assets.model.progress import AppliedState, Life
from cdc_assets.model.schema import TableSchema
from cdc_assets.model.schema_changes import RenameColumn
from cdc_assets.model.steps import ApplyRows, CreateTable, HoldTable, Step
from cdc_assets.model.table_history import Event, History, TableHistory
from cdc_assets.model.tso import Tso
from cdc_assets.types.mysql_types import iceberg_type

__all__ = ["Layouts"]


@dataclass(frozen=True, slots=True)
class Layouts:
    """The layouts of a feed's tables by the settings."""

    rules: LayoutRules = field(default_factory=LayoutRules)

    def of(self, table: TableHistory) -> TableLayout:
        """Return the layout that a table is to have, by its newest name; a history table has properties alone."""
        layout = self.rules.of(table.last_name or table.life.born_as)
        return TableLayout(properties=layout.properties) if table.life.kind else layout

    def at(self, table: TableHistory, schema: TableSchema, position: Tso) -> TableLayout:
        """Return the layout that a table can have with its columns of then, which may have had other names.

        One that gets its key later can mark deleted rows from then on.
        """
        layout, types = self._former(table, position), _types(schema)
        layout = replace(layout, marks_deletes=layout.marks_deletes and bool(schema.key or table.schema.key))
        return layout.without([transform for transform in layout.transforms if layout.only(transform).misfit(types)])

    def carried_out(self, steps: Iterable[Step], table: TableHistory, state: AppliedState | None) -> Iterator[Step]:
        """Yield the steps of a table with the layout that it is created with, or the order and properties that it gets.

        A table that the settings give no order keeps its own, and so does each table the way of its deletes.
        """
        changed = state is not None and self._is_changed(table, state)
        marks = state is not None and state.layout.marks_deletes
        for step in steps:
            if isinstance(step, CreateTable) and (self.rules or marks):
                layout = self.at(table, step.schema, step.ddl)
                marks = layout.marks_deletes if state is None else marks
                layout = replace(layout, marks_deletes=marks)
                yield replace(step, layout=layout, lake_columns=(DELETED_AT,) if marks else ())
            elif isinstance(step, ApplyRows) and (changed or marks):
                step = replace(step, lake_columns=(DELETED_AT,)) if marks else step
                if changed:
                    changed = False
                    layout = self.at(table, step.schema, step.ddl)
                    is_whole = len(layout.sort) == len(self.of(table).sort)
                    step = replace(step, layout=layout if is_whole else replace(layout, sort=()))
                yield step
            else:
                yield step

    def _is_changed(self, table: TableHistory, state: AppliedState) -> bool:
        """Return whether a table of the lake has another order, or other properties, than it is to have."""
        target_layout, there = self._actual(table), state.layout
        if dict(there.properties) != dict(target_layout.properties):
            return True
        for event in table.events:
            if event.at > state.ddl:
                there = there.renamed(_renames(event))
        return (
            bool(target_layout.sort)
            and target_layout.sort != there.sort
            and not target_layout.misfit(_types(table.schema))
        )

    def holds(self, history: History, applied: Mapping[Life, AppliedState]) -> Iterator[HoldTable]:
        """Yield the new tables whose layout cannot be followed, and tables that a DDL takes a column of theirs."""
        for life, table in history.lives.items():
            state = applied.get(life)
            if state is not None:
                if not life.kind and state.name is not None and (end := _overturned(table, state.layout, state.ddl)):
                    name = shlex.quote(str(table.name or table.life))
                    ways = (
                        "correct the settings partition_by and sort_by, and write the table anew in the layout that "
                        f"they then ask for: cdc-assets rebuild {name}",
                    )
                    at, layout, reason = end
                    yield HoldTable(life, at, f"its files are laid out by {layout}, and by this DDL {reason}.", ways)
                continue
            layout, birth = self._actual(table), table.events[0]
            if table.name is None or not layout.transforms:
                continue
            reason = layout.misfit(_types(table.schema))
            former = self._former(table, birth.at)
            ends = (
                _overturned(table, former.only(transform), birth.at - 1, new=True) for transform in former.transforms
            )
            if not reason and (end := next(filter(None, ends), None)):
                reason = f"by the DDL of version {end[0]} {end[2]}"
            if reason:
                ways = ("correct the settings partition_by and sort_by",)
                yield HoldTable(life, life.version, f"it cannot be laid out as the settings ask: {reason}.", ways)

    def findings(self, history: History, applied: Mapping[Life, AppliedState]) -> Iterator[Finding]:
        """Yield the findings on tables that have another layout than the settings ask for."""
        for life, state in applied.items():
            table = history.lives.get(life)
            if table is None or life.kind or state.name is None or table.name is None:
                continue
            layout = self._actual(table)
            if not layout.transforms and not state.layout.transforms:
                continue
            reason = layout.misfit(_types(table.schema))
            seen = [event.after for event in table.events if event.at <= state.ddl]
            target_layout = self.at(table, seen[-1], state.ddl) if seen else state.layout
            if reason:
                sentence = (
                    "the settings partition_by and sort_by cannot be followed, so the table keeps the layout that it "
                    "has. Correct them."
                )
                yield Finding("layout", Severity.WARNING, str(table.name), sentence, reason)
            elif target_layout.partition != state.layout.partition or (state.layout.sort and not target_layout.sort):
                sentence = (
                    "the settings partition_by and sort_by ask for another layout than the table has: it goes on as it "
                    "was made. Write it anew: cdc-assets rebuild TABLE."
                )
                detail = f"it has {state.layout}, and is to have {target_layout}"
                yield Finding("layout", Severity.WARNING, str(table.name), sentence, detail)
        for life, table in history.lives.items():
            if not life.kind and table.name is not None:
                yield from self._mark_findings(table, applied.get(life))

    def _mark_findings(self, table: TableHistory, state: AppliedState | None) -> Iterator[Finding]:
        """Yield the findings on deletes of a table that differ from the setting; one that is new has no state."""
        asks_for_marks, keyed, sentence = self.of(table).marks_deletes, bool(table.schema.key), ""
        marks = asks_for_marks if state is None or state.name is None else state.layout.marks_deletes
        if asks_for_marks and not keyed:
            sentence = (
                "the setting deletes asks for soft deletes, and the table has no key, so its deleted rows go. Name "
                "columns that identify a row in the setting keys and rebuild it, or give its name the value hard."
            )
        elif asks_for_marks and not marks:
            sentence = (
                "the setting deletes asks for soft deletes, and the table was made without: its deleted rows go until "
                "it is written anew: cdc-assets rebuild TABLE."
            )
        elif marks and not asks_for_marks:
            sentence = (
                f"the setting deletes does not ask for soft deletes any more, and the table goes on with them: readers "
                f"need {LIVING} until it is written anew: cdc-assets rebuild TABLE."
            )
        if sentence:
            yield Finding("layout", Severity.WARNING, str(table.name), sentence)

    def _former(self, table: TableHistory, position: Tso) -> TableLayout:
        """Return the layout that a table is to have by the names that its columns had at a position."""
        layout = self._actual(table)
        for event in reversed(table.events):
            if event.at > position:
                former = {new: old for old, new in _renames(event).items()}
                layout = layout.with_columns(lambda column, former=former: former.get(column, column))  # type: ignore[misc]
        return layout

    def _actual(self, table: TableHistory) -> TableLayout:
        """Return the layout that a table is to have, with names of columns in the letter case that they have."""
        return self.of(table).with_columns(lambda column: _actual(table.schema, column) or column)


def _actual(schema: TableSchema, column: str) -> str | None:
    """Return a column as its table spells it, None for one that the table does not have."""
    return next((own.name for own in schema.live if own.source_name.lower() == column.lower()), None)


def _renames(event: Event) -> dict[str, str]:
    """Return the new names of the columns that a DDL renames."""
    return {change.old: change.new for change in (*event.hidden, *event.changes) if isinstance(change, RenameColumn)}


def _types(schema: TableSchema) -> dict[str, str]:
    """Return Iceberg's types of the columns that the lake has, by name: of masked ones those of the masked values."""
    return {column.name: iceberg_type(column) for column in schema.in_lake.stored}


def _overturned(
    table: TableHistory, layout: TableLayout, seen: Tso, *, new: bool = False
) -> tuple[Tso, TableLayout, str] | None:
    """Return the first DDL after a version after which a table cannot have its layout any more, None without one.

    With it come the layout by the names of then, and the reason. A `new` table has it once it can.
    """
    if not layout.transforms:
        return None
    for event in table.events:
        if event.at <= seen or event.name is None:
            continue
        layout = layout.renamed(_renames(event))
        reason = layout.misfit(_types(event.after))
        if reason and not new:
            return event.at, layout, reason
        new = new and bool(reason)
    return None
