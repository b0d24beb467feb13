"""Features: what a lake does beside keeping tables equal to their sources. The core knows none of them by name.

A feature has a folder in `features`, with a module for each layer that it touches. The core calls these by a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType

PARTS: Mapping[str, tuple[str, ...]] = {
    "defs": ("cuts", "forgetting", "verification"),
    "operations": ("cuts",),
    "operations_request": ("cuts", "forgetting", "verification"),
    "pipeline": ("completeness", "cuts"),
    "preflight": ("completeness", "masks"),
}
"""Features that every run and every look calls, by layer."""

WITH_TABLES = ("cuts",)
"""The features that have tables of their own in a lake."""


def parts(layer: str) -> Iterator[tuple[str, ModuleType]]:
    """Yield the features that have a part in a layer, with their modules."""
    for feature in PARTS[layer]:
        yield feature, module_of(layer, feature)


def module_of(layer: str, feature: str) -> ModuleType:
    """Return a feature's module of a layer."""
    return import_module(f"cdc_assets.features.{feature}.{layer}")
