"""A REST catalog: one request a namespace and one a table, side by side; what a table's answer told is kept.

The answer holds the table's metadata and, where the catalog vends them, the credentials of its files. Neither is asked
for again as long as the catalog names the same metadata file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from cdc_assets.errors import SetupError
from cdc_assets.lake.catalogs.remembered import remember
from cdc_assets.lake.names import Identifier

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

__all__ = ["TELLS_PLACES", "VENDS", "entries", "entry", "names", "rename"]

TELLS_PLACES, VENDS = False, True

_SIDE_BY_SIDE = 8
_EXPIRED = (401, 419)
_GONE = 404
_TAKEN = 409


def entries(catalog: Catalog) -> Iterator[tuple[Identifier, str]]:
    """Yield (identifier, metadata location) of every table."""
    standing = list(names(catalog))
    with ThreadPoolExecutor(_SIDE_BY_SIDE, "cdc-assets-catalog") as pool:
        places = list(pool.map(lambda identifier: entry(catalog, identifier), standing))
    yield from ((one, place) for one, place in zip(standing, places, strict=True) if place is not None)


def names(catalog: Catalog) -> Iterator[Identifier]:
    """Yield the identifier of every table."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    for namespace in catalog.list_namespaces():
        try:
            listed = catalog.list_tables(namespace)
        except NoSuchNamespaceError:  # gone since it was listed
            continue
        yield from ((".".join(one[:-1]), one[-1]) for one in listed)


def entry(catalog: Catalog, identifier: Identifier) -> str | None:
    """Return the metadata location of one table, None where there is none, and keep what the answer tells."""
    response = _asked(catalog, identifier)
    if response.status_code in _EXPIRED:
        catalog.load_table(identifier)  # gets a new token
        response = _asked(catalog, identifier)
    if response.status_code == _GONE:
        return None
    if response.status_code in (401, 403):
        raise SetupError(
            f"the lake's catalog refuses {'.'.join(identifier)} ({response.status_code} {_reason(response)}). Check "
            "token, credential and scope of lake.catalog, and what they are granted."
        )
    response.raise_for_status()
    told = response.json()
    place = str(told["metadata-location"])
    remember(catalog, place, json.dumps(told["metadata"]).encode(), _config(told, place))
    return place


def _asked(catalog: Any, identifier: Identifier) -> Any:
    from pyiceberg.catalog.rest import Endpoints

    path = catalog._split_identifier_for_path(identifier)
    return catalog._session.get(catalog.url(Endpoints.load_table, prefixed=True, **path))


def _config(told: Any, place: str) -> dict[str, str]:
    """What an answer says of how to reach the files; of several credentials the one for the longest prefix."""
    fitting = [one for one in told.get("storage-credentials") or () if place.startswith(one["prefix"])]
    best: dict[str, str] = max(fitting, key=lambda one: len(one["prefix"]))["config"] if fitting else {}
    return {**(told.get("config") or {}), **best}


def _reason(response: Any) -> str:
    try:
        return str(response.json()["error"]["message"]).splitlines()[0]
    except (ValueError, KeyError, TypeError, IndexError):
        return str(response.reason)


def rename(catalog: Catalog, source: Identifier, target: Identifier) -> None:
    """Give a table another name; PyIceberg's own way asks three questions more."""
    from pyiceberg.catalog.rest import Endpoints
    from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

    names_of = {
        side: {"namespace": [namespace], "name": name}
        for side, (namespace, name) in (("source", source), ("destination", target))
    }
    asked: Any = catalog
    response = asked._session.post(asked.url(Endpoints.rename_table), json=names_of)
    if response.status_code == _GONE:
        raise NoSuchTableError(f"{'.'.join(source)}: {_reason(response)}")
    if response.status_code == _TAKEN:
        raise TableAlreadyExistsError(f"{'.'.join(target)}: {_reason(response)}")
    response.raise_for_status()
