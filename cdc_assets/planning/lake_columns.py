"""Steps of mirrors that have columns by the setting `columns`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cdc_assets.model.steps import ApplyRows, CreateTable, Step

__all__ = ["with_lake_columns"]


def with_lake_columns(steps: Iterable[Step], names: tuple[str, ...]) -> Iterator[Step]:
    """Yield the steps of a table, of which those that make a mirror or write its rows have these columns."""
    for step in steps:
        if isinstance(step, CreateTable | ApplyRows) and not step.life.kind:
            yield replace(step, lake_columns=names)
        else:
            yield step
