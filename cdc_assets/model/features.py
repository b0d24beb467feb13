"""Features: what a lake does beside keeping tables equal to their sources. The core knows none of them by name.

A feature has a module of its name in the folder of each layer that it has a part in. The core calls these by a table.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

FEATURES = ("cuts",)
"""The features whose names the core has from here."""


def module_of(layer: str, feature: str) -> ModuleType:
    """Return a feature's module in the folder of a layer."""
    return import_module(f"cdc_assets.{layer}.{feature}")
