"""A Hive metastore, and any catalog of PyIceberg without a module of its own: by its listings, table by table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from cdc_assets.lake.names import Identifier

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

__all__ = ["LISTS_LOCATIONS", "VENDS", "entries", "entry", "names", "rename"]

LISTS_LOCATIONS, VENDS = False, False


def entries(catalog: Catalog) -> Iterator[tuple[Identifier, str]]:
    """Yield (identifier, metadata location) of every table."""
    for identifier in names(catalog):
        place = entry(catalog, identifier)
        if place is not None:
            yield identifier, place


def names(catalog: Catalog) -> Iterator[Identifier]:
    """Yield the identifier of every table."""
    for namespace in catalog.list_namespaces():
        for identifier in catalog.list_tables(namespace):
            yield ".".join(identifier[:-1]), identifier[-1]


def entry(catalog: Catalog, identifier: Identifier) -> str | None:
    """Return the metadata location of one table, None where there is none."""
    try:
        return catalog.load_table(identifier).metadata_location
    except (NoSuchNamespaceError, NoSuchTableError):
        return None


def rename(catalog: Catalog, source: Identifier, target: Identifier) -> None:
    """Rename a table."""
    catalog.rename_table(source, target)
