"""A REST catalog: one request a namespace and one a table, in parallel; a table's answer is cached.

The answer holds the table's metadata and, if the catalog vends them, the credentials for its files. Neither is
requested again as long as the catalog names the same metadata file.
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

LISTS_LOCATIONS, VENDS = False, True

_SIDE_BY_SIDE = 8
_EXPIRED = (401, 419)
_GONE = 404
_TAKEN = 409


def entries(catalog: Catalog) -> Iterator[tuple[Identifier, str]]:
    """Yield (identifier, metadata location) of every table."""
    standing = list(names(catalog))
    with ThreadPoolExecutor(_SIDE_BY_SIDE, "cdc-assets-catalog") as pool:
        places = list(pool.map(lambda identifier: entry(catalog, identifier), standing))
    yield from ((identifier, place) for identifier, place in zip(standing, places, strict=True) if place is not None)


def names(catalog: Catalog) -> Iterator[Identifier]:
    """Yield the identifier of every table."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    for namespace in catalog.list_namespaces():
        try:
            listed = catalog.list_tables(namespace)
        except NoSuchNamespaceError:  # dropped since it was listed
            continue
        yield from ((".".join(identifier[:-1]), identifier[-1]) for identifier in listed)


def entry(catalog: Catalog, identifier: Identifier) -> str | None:
    """Return the metadata location of one table, None if there is none, and cache the answer."""
    response = _asked(catalog, identifier)
    if response.status_code == _GONE:
        return None
    if response.status_code in (401, 403):
        raise SetupError(
            f"the lake's catalog refuses {'.'.join(identifier)} ({response.status_code} {_reason(response)}). Check "
            "token, credential and scope of lake.catalog, and their grants."
        )
    response.raise_for_status()
    answer = response.json()
    place = str(answer["metadata-location"])
    remember(catalog, place, json.dumps(answer["metadata"]).encode(), _config(answer, place))
    return place


def _asked(catalog: Any, identifier: Identifier) -> Any:
    from pyiceberg.catalog.rest import Endpoints

    path = catalog._split_identifier_for_path(identifier)
    return _answer(catalog, "GET", catalog.url(Endpoints.load_table, prefixed=True, **path))


def _answer(catalog: Any, method: str, url: str, **request: Any) -> Any:
    """Send a request, once more with a new token if the catalog does not accept the present one any more."""
    response = catalog._session.request(method, url, **request)
    if response.status_code in _EXPIRED:
        catalog._refresh_token()
        response = catalog._session.request(method, url, **request)
    return response


def _config(answer: Any, place: str) -> dict[str, str]:
    """The storage properties in an answer; of several credentials the one for the longest prefix."""
    fitting = [
        credential for credential in answer.get("storage-credentials") or () if place.startswith(credential["prefix"])
    ]
    best: dict[str, str] = max(fitting, key=lambda credential: len(credential["prefix"]))["config"] if fitting else {}
    return {**(answer.get("config") or {}), **best}


def _reason(response: Any) -> str:
    try:
        return str(response.json()["error"]["message"]).splitlines()[0]
    except (ValueError, KeyError, TypeError, IndexError):
        return str(response.reason)


def rename(catalog: Catalog, source: Identifier, target: Identifier) -> None:
    """Rename a table; PyIceberg's own method makes three more requests."""
    from pyiceberg.catalog.rest import Endpoints
    from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

    names_of = {
        side: {"namespace": [namespace], "name": name}
        for side, (namespace, name) in (("source", source), ("destination", target))
    }
    rest_catalog: Any = catalog
    response = _answer(rest_catalog, "POST", rest_catalog.url(Endpoints.rename_table), json=names_of)
    if response.status_code == _GONE:
        raise NoSuchTableError(f"{'.'.join(source)}: {_reason(response)}")
    if response.status_code == _TAKEN:
        raise TableAlreadyExistsError(f"{'.'.join(target)}: {_reason(response)}")
    response.raise_for_status()
