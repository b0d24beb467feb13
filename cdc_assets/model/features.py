"""Features: what a lake does beside keeping tables equal to their sources. The core knows none of them by name.

A feature has a folder in `features`, with a module for each layer that it touches. The core calls these by a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

PARTS: Mapping[str, tuple[str, ...]] = {
    "cli": ("quarantine",),
    "defs": ("cuts", "forgetting", "verification"),
    "operations": ("quarantine", "cuts"),
    "operations_request": ("cuts", "forgetting", "verification"),
    "pipeline": ("completeness", "cuts", "forgetting"),
    "preflight": ("completeness", "masks"),
}
"""Features that every run and every look calls, by layer."""

WITH_TABLES = ("cuts",)
"""The features that have tables of their own in a lake."""


def parts(layer: str) -> Iterator[tuple[str, ModuleType]]:
    """Yield the features that have a part in a layer, with their modules."""
    for feature in PARTS[layer]:
        yield feature, module_of(layer, feature)


def hooks(layer: str, name: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the features whose part in a layer has a function of that name, with the function."""
    for feature, module in parts(layer):
        if hasattr(module, name):
            yield feature, getattr(module, name)


def module_of(layer: str, feature: str) -> ModuleType:
    """Return a feature's module of a layer."""
    return import_module(f"cdc_assets.features.{feature}.{layer}")
