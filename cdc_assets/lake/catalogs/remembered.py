"""Cached answers of catalogs about tables: metadata, and access to the files.

Metadata files never change, so their contents are kept by their locations. Credentials are those of the newest answer.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from cdc_assets.settings.stores import SECRET_PROPERTIES, store_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_FEW = 64
_MARGIN_SECONDS = 900.0
"""Credentials that end sooner are requested again before a window is read: that may take as long."""
_UNSTATED_SECONDS = 600.0
"""Seconds for which credentials without a stated expiry are used."""
_JUST_SECONDS = 30.0
"""The age of an answer whose credentials a store does not refuse for their age."""


class _Answers:
    """The answers of one catalog: metadata by its location, compressed; storage properties by table location."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.configs: dict[str, Mapping[str, str]] = {}
        self.since: dict[str, float] = {}
        self.lock = Lock()


_answers: WeakKeyDictionary[Catalog, _Answers] = WeakKeyDictionary()


def remember(catalog: Catalog, place: str, body: bytes, config: Mapping[str, str] | None = None) -> None:
    """Keep the content of a metadata file and, if given, the storage properties for the table's files."""
    answers = _answers.setdefault(catalog, _Answers())
    with answers.lock:
        answers.bodies[place] = zlib.compress(body, 1)
        if config is not None:
            answers.configs[_table(place)], answers.since[_table(place)] = dict(config), time.time()


def recall(catalog: Catalog, place: str) -> bytes | None:
    """Return the content of a metadata file, None if no answer had it."""
    answers = _answers.get(catalog)
    body = answers.bodies.get(place) if answers is not None else None
    return None if body is None else zlib.decompress(body)


def knows(catalog: Catalog, place: str) -> bool:
    """Return whether an answer had the storage properties of the table with that metadata file, and they still hold."""
    answers, table = _answers.get(catalog), _table(place)
    if answers is None or table not in answers.configs:
        return False
    config, now = answers.configs[table], time.time()
    ends = [int(value) / 1000 for name, value in config.items() if "expires-at" in name]
    if ends:
        return now + _MARGIN_SECONDS < min(ends)
    return not _lent(config) or now < answers.since[table] + _UNSTATED_SECONDS


def discard_lent(catalog: Catalog, place: str) -> bool:
    """Forget the credentials for the files of the table with that metadata file, unless the answer is a new one.

    Returns whether there were any.
    """
    answers, table = _answers.get(catalog), _table(place)
    if answers is None or not _lent(answers.configs.get(table, {})):
        return False
    with answers.lock:
        return time.time() >= answers.since[table] + _JUST_SECONDS and answers.configs.pop(table, None) is not None


def _lent(config: Mapping[str, str]) -> bool:
    return any(part in name for name in config for part in SECRET_PROPERTIES)


def keep_only(catalog: Catalog, places: set[str]) -> None:
    """Forget the metadata files that a complete listing does not name, except for a few of running steps."""
    answers = _answers.get(catalog)
    if answers is None:
        return
    with answers.lock:
        old_places = [place for place in answers.bodies if place not in places]
        for place in old_places[:-_FEW]:
            del answers.bodies[place]
        if len(answers.configs) > 2 * len(places) + _FEW:
            tables = {_table(place) for place in answers.bodies}
            answers.configs = {table: config for table, config in answers.configs.items() if table in tables}


def io_properties(catalog: Catalog, place: str) -> dict[str, str]:
    """Return PyIceberg's properties for the files of the table whose metadata file, or stage, is at `place`."""
    answers = _answers.get(catalog)
    config = answers.configs.get(_table(place), {}) if answers is not None else {}
    if not config:
        return dict(catalog.properties)
    replaced = {"s3.region": "client.region", "s3.force-virtual-addressing": "s3.path-style-access"}
    own = {key: value for key, value in catalog.properties.items() if replaced.get(key) not in config}
    return store_of(place).python_properties({**own, **config})


def _table(place: str) -> str:
    return place.rpartition("/metadata/")[0] or place.rpartition("/_cdc_stage/")[0]
