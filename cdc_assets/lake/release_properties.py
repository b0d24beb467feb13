"""Releases as properties of the lake's own namespace: they decide, so they live where the tables do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from urllib.parse import quote

from cdc_assets.history.releases import Release
from cdc_assets.model.progress import Life
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

__all__ = ["format_properties", "parse_properties", "property_names"]


_PREFIX = "cdc.release."
_PIECE = 900
"""Catalogs keep at most 1000 characters of a property in one row, and 255 of its name."""


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
    text = json.dumps(said)
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    key = _key(changefeed, release.life, release.version)
    return {f"{key}#{number}": piece for number, piece in enumerate(pieces, 1)}


def parse_properties(properties: Mapping[str, str], changefeed: str) -> dict[tuple[Life, Tso], Release]:
    """Return the releases of a changefeed among a namespace's properties."""
    pieces: dict[str, dict[int, str]] = {}
    for name, piece in properties.items():
        key, _, number = name.rpartition("#")
        if key.startswith(_PREFIX + _encoded(changefeed) + "."):
            pieces.setdefault(key, {})[int(number)] = piece
    found = (json.loads("".join(parts[n] for n in sorted(parts))) for parts in pieces.values())
    releases = (_release(said) for said in found if said["changefeed"] == changefeed)
    return {(one.life, one.version): one for one in releases}


def property_names(properties: Iterable[str], changefeed: str, life: Life, version: Tso) -> set[str]:
    """Return the names under which a release is held now."""
    key = _key(changefeed, life, version)
    return {name for name in properties if name.rpartition("#")[0] == key}


def _release(said: Mapping[str, object]) -> Release:
    life = Life(TableId(str(said["schema"]), str(said["table"])), int(str(said["born"])))
    told = {name: str(said.get(name, "")) for name in ("way", "text", "who", "when")}
    return Release(life, int(str(said["version"])), **told)


def _encoded(text: str) -> str:
    return quote(text, safe="").replace(".", "%2E")


def _key(changefeed: str, life: Life, version: Tso) -> str:
    name = f"{_encoded(life.born_as.schema)}.{_encoded(life.born_as.table)}"
    if len(name) > 120:
        name = f"{name[:80]}~{sha256(name.encode()).hexdigest()[:32]}"
    return f"{_PREFIX}{_encoded(changefeed)}.{name}@{life.version}.{version}"
