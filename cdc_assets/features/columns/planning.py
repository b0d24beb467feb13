"""Steps of mirrors that have columns by the settings `columns` and `deletes`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cdc_assets.model.layout import DELETED_AT, TableLayout
from cdc_assets.model.progress import Life
from cdc_assets.model.steps import ApplyRows, CreateTable, Step

__all__ = ["standing_columns", "with_lake_columns"]


def with_lake_columns(steps: Iterable[Step], names: tuple[str, ...]) -> Iterator[Step]:
    """Yield the steps of a table, of which those that make a mirror or write its rows have these columns first."""
    for step in steps:
        if isinstance(step, CreateTable | ApplyRows) and not step.life.kind:
            yield replace(step, lake_columns=(*names, *step.lake_columns))
        else:
            yield step


def standing_columns(life: Life, names: tuple[str, ...], layout: TableLayout) -> tuple[str, ...]:
    """Return the columns by settings of a table that stands: those of `columns`, and the mark of its own layout."""
    return () if life.kind else (*names, *((DELETED_AT,) if layout.marks_deletes else ()))
