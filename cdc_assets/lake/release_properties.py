"""Releases as properties of the lake's own namespace: decisions are stored where the tables are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from hashlib import sha256
from typing import Any

from cdc_assets.lake.names import encoded, format_name
from cdc_assets.model.gaps import Completed
from cdc_assets.model.progress import Life
from cdc_assets.model.releases import Release
from cdc_assets.model.schema import TableId
from cdc_assets.model.settings_changes import SettingsChange
from cdc_assets.model.tso import Tso

__all__ = [
    "complete_names",
    "format_complete",
    "format_properties",
    "format_settings_change",
    "parse_complete",
    "parse_properties",
    "parse_settings_changes",
    "property_names",
    "settings_change_names",
]


_PREFIX = "cdc.release."
_COMPLETE = "cdc.complete."
_SETTINGS = "cdc.settings."
_PIECE = 900
"""Catalogs store at most 1000 characters of a property in one row, and 255 of its name."""


def format_properties(changefeed: str, release: Release) -> dict[str, str]:
    """Return the namespace properties that hold a release; the inverse of `parse_properties`."""
    said = {
        "changefeed": changefeed,
        "schema": release.life.born_as.schema,
        "table": release.life.born_as.table,
        "born": release.life.version,
        "version": release.version,
        "way": release.way,
        "text": release.text,
        "who": release.who,
        "when": release.when,
    }
    return _in_pieces(_key(changefeed, release.life, release.version), said)


def parse_properties(properties: Mapping[str, str], changefeed: str) -> dict[tuple[Life, Tso], Release]:
    """Return the releases of a changefeed among a namespace's properties."""
    releases = map(_release, _joined(properties, _PREFIX, changefeed))
    return {(one.life, one.version): one for one in releases}


def property_names(properties: Iterable[str], changefeed: str, life: Life, version: Tso) -> set[str]:
    """Return the property names of a stored release."""
    key = _key(changefeed, life, version)
    return {name for name in properties if name.rpartition("#")[0] == key}


def format_complete(changefeed: str, one: Completed) -> dict[str, str]:
    """Return the namespace properties of a pattern of complete tables; the inverse of `parse_complete`."""
    said = {"changefeed": changefeed, "pattern": one.pattern, "who": one.who, "when": one.when}
    return _in_pieces(_complete_key(changefeed, one.pattern), said)


def parse_complete(properties: Mapping[str, str], changefeed: str) -> tuple[Completed, ...]:
    """Return the complete tables of a changefeed among a namespace's properties, by time."""
    found = _joined(properties, _COMPLETE, changefeed)
    said = (Completed(*(str(one[name]) for name in ("pattern", "who", "when"))) for one in found)
    return tuple(sorted(said, key=lambda one: (one.when, one.pattern)))


def complete_names(properties: Iterable[str], changefeed: str, pattern: str) -> set[str]:
    """Return the property names of a stored pattern of complete tables."""
    key = _complete_key(changefeed, pattern)
    return {name for name in properties if name.rpartition("#")[0] == key}


def format_settings_change(changefeed: str, one: SettingsChange) -> dict[str, str]:
    """Return the namespace properties of a change of settings; the inverse of `parse_settings_changes`."""
    return _in_pieces(_settings_key(changefeed, one.pattern, one.since), {"changefeed": changefeed, **asdict(one)})


def parse_settings_changes(properties: Mapping[str, str], changefeed: str) -> tuple[SettingsChange, ...]:
    """Return the changes of settings of a changefeed among a namespace's properties, by their TSO and pattern."""
    names = [field.name for field in fields(SettingsChange)]
    found = (
        SettingsChange(**{name: one[name] for name in names}) for one in _joined(properties, _SETTINGS, changefeed)
    )
    return tuple(sorted(found, key=lambda one: (one.since, one.pattern)))


def settings_change_names(properties: Iterable[str], changefeed: str, pattern: str, since: Tso) -> set[str]:
    """Return the property names of a stored change of settings."""
    key = _settings_key(changefeed, pattern, since)
    return {name for name in properties if name.rpartition("#")[0] == key}


def _in_pieces(key: str, said: Mapping[str, object]) -> dict[str, str]:
    text = json.dumps(said)
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    return {f"{key}#{number}": piece for number, piece in enumerate(pieces, 1)}


def _joined(properties: Mapping[str, str], prefix: str, changefeed: str) -> Iterator[Mapping[str, Any]]:
    pieces: dict[str, dict[int, str]] = {}
    for name, piece in properties.items():
        key, _, number = name.rpartition("#")
        if key.startswith(prefix + encoded(changefeed) + "."):
            pieces.setdefault(key, {})[int(number)] = piece
    found = (json.loads("".join(parts[n] for n in sorted(parts))) for parts in pieces.values())
    return (said for said in found if said["changefeed"] == changefeed)


def _complete_key(changefeed: str, pattern: str) -> str:
    return f"{_COMPLETE}{encoded(changefeed)}.{sha256(pattern.encode()).hexdigest()[:32]}"


def _settings_key(changefeed: str, pattern: str, since: Tso) -> str:
    return f"{_SETTINGS}{encoded(changefeed)}.{sha256(pattern.encode()).hexdigest()[:32]}.{since}"


def _release(said: Mapping[str, object]) -> Release:
    life = Life(TableId(str(said["schema"]), str(said["table"])), int(str(said["born"])))
    texts = {name: str(said.get(name, "")) for name in ("way", "text", "who", "when")}
    return Release(life, int(str(said["version"])), **texts)


def _key(changefeed: str, life: Life, version: Tso) -> str:
    name = format_name(life.born_as)
    if len(name) > 120:
        name = f"{name[:80]}~{sha256(name.encode()).hexdigest()[:32]}"
    return f"{_PREFIX}{encoded(changefeed)}.{name}@{life.version}.{version}"
