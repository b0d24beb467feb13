"""Values of settings as given: merged mappings, and values from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from cdc_assets.errors import BadSettings


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return both merged, `over` first; nested mappings are merged too."""
    result = dict(base)
    for name, value in over.items():
        old = result.get(name)
        result[name] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def resolved(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the mapping with every `{env: NAME}` replaced by that variable; raises BadSettings for an unset one."""
    return {name: _resolve(value, f"{where}.{name}") for name, value in given.items()}


def _resolve(value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        return value
    if set(value) != {"env"}:
        return resolved(value, where)
    return from_environment(str(value["env"]), where)


def from_environment(variable: str, where: str) -> str:
    """Return the value of a variable for the setting `where`; raises BadSettings if it is not set."""
    if variable not in os.environ:
        raise BadSettings(f"{where} is to come from the environment variable {variable}, which is not set. Set it.")
    return os.environ[variable]
