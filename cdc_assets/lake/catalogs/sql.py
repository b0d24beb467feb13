"""A catalog in a SQL database: all of its tables are one query.

PyIceberg lists no namespace that begins or ends with a dot, so the database is queried directly.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cdc_assets.lake.names import Identifier

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

LISTS_LOCATIONS, VENDS = True, False


def entries(catalog: Catalog) -> Iterator[tuple[Identifier, str]]:
    """Yield (identifier, metadata location) of every table."""
    yield from _standing(catalog)


def names(catalog: Catalog) -> Iterator[Identifier]:
    """Yield the identifier of every table."""
    yield from (identifier for identifier, _ in _standing(catalog))


def entry(catalog: Catalog, identifier: Identifier) -> str | None:
    """Return the metadata location of one table, None where there is none."""
    return next((place for _, place in _standing(catalog, identifier)), None)


def _standing(catalog: Any, only: Identifier | None = None) -> Iterator[tuple[Identifier, str]]:
    from pyiceberg.catalog.sql import IcebergTables as Known

    query = Known.__table__.select().where(Known.catalog_name == catalog.name)
    if only is not None:
        query = query.where(Known.table_namespace == only[0], Known.table_name == only[1])
    with catalog.engine.connect() as connection:
        rows = connection.execute(query).fetchall()
    for row in rows:
        if row.metadata_location:
            yield (row.table_namespace, row.table_name), row.metadata_location


def rename(catalog: Catalog, source: Identifier, target: Identifier) -> None:
    """Rename a table."""
    catalog.rename_table(source, target)
