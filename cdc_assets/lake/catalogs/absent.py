"""A catalog in a file that is not there yet, as one without tables: to look at a lake makes none.

The file is made by the first write (`LazyCatalog.make`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from cdc_assets.lake.names import Identifier

LISTS_LOCATIONS, VENDS = True, False


class AbsentCatalog(NoopCatalog):
    """PyIceberg's interface to a catalog without namespaces; what writes to it is not implemented."""

    def table_exists(self, identifier: Any) -> bool:
        """Return False: there is no table."""
        return False

    def load_table(self, identifier: Any) -> Any:
        """Raise NoSuchTableError."""
        raise NoSuchTableError(f"there is no table {identifier}: the lake has no catalog yet")

    def drop_table(self, identifier: Any) -> None:
        """Raise NoSuchTableError."""
        self.load_table(identifier)

    def list_namespaces(self, namespace: Any = ()) -> list[Any]:
        """Return no namespaces."""
        return []

    def load_namespace_properties(self, namespace: Any) -> Any:
        """Raise NoSuchNamespaceError."""
        raise NoSuchNamespaceError(f"there is no namespace {namespace}: the lake has no catalog yet")

    def update_namespace_properties(self, namespace: Any, removals: Any = None, updates: Any = None) -> Any:
        """Raise NoSuchNamespaceError."""
        self.load_namespace_properties(namespace)


def entries(catalog: Catalog) -> Iterator[tuple[Identifier, str]]:
    """Yield nothing: there is no table."""
    yield from ()


def names(catalog: Catalog) -> Iterator[Identifier]:
    """Yield nothing: there is no table."""
    yield from ()


def entry(catalog: Catalog, identifier: Identifier) -> str | None:
    """Return None: there is no table."""
    return None


def rename(catalog: Catalog, source: Identifier, target: Identifier) -> None:
    """Raise NoSuchTableError."""
    catalog.load_table(source)
