"""AWS Glue: a listing of a database has the metadata locations of all its tables, a hundred in a request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cdc_assets.lake.names import Identifier

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

__all__ = ["LISTS_LOCATIONS", "VENDS", "entries", "entry", "names", "rename"]

LISTS_LOCATIONS, VENDS = True, False


def entries(catalog: Catalog) -> Iterator[tuple[Identifier, str]]:
    """Yield (identifier, metadata location) of every Iceberg table."""
    client: Any = catalog.glue  # type: ignore[attr-defined]
    account = _account(catalog)
    for databases in client.get_paginator("get_databases").paginate(**account):
        for database in databases["DatabaseList"]:
            yield from _tables(client, database["Name"], account)


def names(catalog: Catalog) -> Iterator[Identifier]:
    """Yield the identifier of every Iceberg table."""
    yield from (identifier for identifier, _ in entries(catalog))


def entry(catalog: Catalog, identifier: Identifier) -> str | None:
    """Return the metadata location of one table, None where there is none."""
    client: Any = catalog.glue  # type: ignore[attr-defined]
    try:
        found = client.get_table(DatabaseName=identifier[0], Name=identifier[1], **_account(catalog))
    except client.exceptions.EntityNotFoundException:
        return None
    return _place(found["Table"])


def _tables(client: Any, database: str, account: dict[str, str]) -> Iterator[tuple[Identifier, str]]:
    try:
        for tables in client.get_paginator("get_tables").paginate(DatabaseName=database, **account):
            for table in tables["TableList"]:
                place = _place(table)
                if place is not None:
                    yield (database, table["Name"]), place
    except client.exceptions.EntityNotFoundException:  # dropped since it was listed
        return


def _place(table: Any) -> str | None:
    parameters = table.get("Parameters") or {}
    is_iceberg = parameters.get("table_type", "").lower() == "iceberg"
    return parameters.get("metadata_location") if is_iceberg else None


def _account(catalog: Catalog) -> dict[str, str]:
    found = catalog.properties.get("glue.id")
    return {"CatalogId": found} if found else {}


def rename(catalog: Catalog, source: Identifier, target: Identifier) -> None:
    """Rename a table."""
    catalog.rename_table(source, target)
