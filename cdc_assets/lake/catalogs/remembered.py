"""What a catalog's answers told of tables, so that it is not asked for again: metadata, and how to reach the files.

Metadata files never change, so their contents are kept by their locations. Credentials are those of the newest answer.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from cdc_assets.settings.stores import store_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

__all__ = ["io_properties", "keep_only", "knows", "recall", "remember"]

_FEW = 64


class _Told:
    """The answers of one catalog: metadata by its location, compressed; properties of the storage by the table's."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.configs: dict[str, Mapping[str, str]] = {}
        self.lock = Lock()


_told: WeakKeyDictionary[Catalog, _Told] = WeakKeyDictionary()


def remember(catalog: Catalog, place: str, body: bytes, config: Mapping[str, str] | None = None) -> None:
    """Keep what a metadata file holds and, where given, how the table's files are reached."""
    told = _told.setdefault(catalog, _Told())
    with told.lock:
        told.bodies[place] = zlib.compress(body, 1)
        if config is not None:
            told.configs[_table(place)] = dict(config)


def recall(catalog: Catalog, place: str) -> bytes | None:
    """Return what a metadata file holds, None where no answer told."""
    told = _told.get(catalog)
    body = told.bodies.get(place) if told is not None else None
    return None if body is None else zlib.decompress(body)


def knows(catalog: Catalog, place: str) -> bool:
    """Tell whether an answer told how the files of the table with that metadata file are reached."""
    told = _told.get(catalog)
    return told is not None and _table(place) in told.configs


def keep_only(catalog: Catalog, places: set[str]) -> None:
    """Forget the metadata files that a complete listing does not name, but for a few of steps that are under way."""
    told = _told.get(catalog)
    if told is None:
        return
    with told.lock:
        others = [place for place in told.bodies if place not in places]
        for place in others[:-_FEW]:
            del told.bodies[place]
        if len(told.configs) > 2 * len(places) + _FEW:
            tables = {_table(place) for place in told.bodies}
            told.configs = {table: config for table, config in told.configs.items() if table in tables}


def io_properties(catalog: Catalog, place: str) -> dict[str, str]:
    """Return PyIceberg's properties for the files of the table whose metadata file, or stage, lies at `place`."""
    told = _told.get(catalog)
    config = told.configs.get(_table(place), {}) if told is not None else {}
    if not config:
        return dict(catalog.properties)
    replaced = {"s3.region": "client.region", "s3.force-virtual-addressing": "s3.path-style-access"}
    own = {key: value for key, value in catalog.properties.items() if replaced.get(key) not in config}
    return store_of(place).python_properties({**own, **config})


def _table(place: str) -> str:
    return place.rpartition("/metadata/")[0] or place.rpartition("/_cdc_stage/")[0]
