"""The catalog's namespaces: created when needed. The lake's own one carries properties, read with one query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchNamespaceError

from cdc_assets.lake.failures import answering

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def ensure_namespace(catalog: Catalog, namespace: str) -> None:
    """Create a namespace if it does not exist; concurrent callers all succeed."""
    try:
        with answering():
            catalog.create_namespace((namespace,))
    except NamespaceAlreadyExistsError:
        return
    except Exception:
        try:
            with answering():
                catalog.load_namespace_properties((namespace,))
        except NoSuchNamespaceError:
            pass
        else:
            return
        raise


def own_properties(catalog: Catalog, own: str) -> Mapping[str, str]:
    """Return the properties of the lake's own namespace; none before it exists."""
    try:
        with answering():
            return catalog.load_namespace_properties((own,))
    except NoSuchNamespaceError:
        return {}


def set_own_properties(catalog: Catalog, own: str, updates: Mapping[str, str], removals: Iterable[str] = ()) -> None:
    """Set properties of the lake's own namespace and remove others, in one update."""
    ensure_namespace(catalog, own)
    with answering():
        catalog.update_namespace_properties((own,), removals=set(removals) - set(updates), updates=dict(updates))


def remove_own_properties(catalog: Catalog, own: str, names: Iterable[str]) -> None:
    """Remove properties of the lake's own namespace; nothing happens if it does not exist."""
    removals = set(names)
    if removals:
        with answering(), suppress(NoSuchNamespaceError):
            catalog.update_namespace_properties((own,), removals=removals)
