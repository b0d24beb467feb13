"""AWS Glue: a listing of a database has the metadata locations of all its tables, a hundred in a request.

Glue cannot rename a table: it is made under its new name, which says the old one, and removed under that. A rename that
was cut short leaves both names with one metadata location; the old one is listed until the rename is made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

from cdc_assets.lake.names import Identifier

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

LISTS_LOCATIONS, VENDS = True, False

_RENAMED_FROM = "cdc.renamed-from"
"""Glue's own parameter of a table: the name that it had before."""
_INPUT = ("Description", "Owner", "StorageDescriptor", "TableType")
"""Attributes that a Glue request to update a table takes from the answer of a read, beside name and parameters."""


def entries(catalog: Catalog) -> Iterator[tuple[Identifier, str]]:
    """Yield (identifier, metadata location) of every Iceberg table."""
    client: Any = catalog.glue  # type: ignore[attr-defined]
    account = _account(catalog)
    tables: dict[Identifier, tuple[str, str]] = {}
    for databases in client.get_paginator("get_databases").paginate(**account):
        for database in databases["DatabaseList"]:
            tables.update(_tables(client, database["Name"], account))
    places = {_text(identifier): place for identifier, (place, _) in tables.items()}
    for identifier, (place, before) in tables.items():
        if places.get(before) != place:
            yield identifier, place


def names(catalog: Catalog) -> Iterator[Identifier]:
    """Yield the identifier of every Iceberg table."""
    yield from (identifier for identifier, _ in entries(catalog))


def entry(catalog: Catalog, identifier: Identifier) -> str | None:
    """Return the metadata location of one table, None where there is none."""
    table = _table(catalog, identifier)
    return None if table is None else _place(table)


def _table(catalog: Catalog, identifier: Identifier) -> Any:
    """Return Glue's description of a table, None where there is none."""
    client: Any = catalog.glue  # type: ignore[attr-defined]
    try:
        return client.get_table(DatabaseName=identifier[0], Name=identifier[1], **_account(catalog))["Table"]
    except client.exceptions.EntityNotFoundException:
        return None


def _tables(client: Any, database: str, account: dict[str, str]) -> Iterator[tuple[Identifier, tuple[str, str]]]:
    """Yield the metadata location of each table, and the name that it had before, "" for none."""
    try:
        for tables in client.get_paginator("get_tables").paginate(DatabaseName=database, **account):
            for table in tables["TableList"]:
                place = _place(table)
                if place is not None:
                    yield (database, table["Name"]), (place, table["Parameters"].get(_RENAMED_FROM, ""))
    except client.exceptions.EntityNotFoundException:  # dropped since it was listed
        return


def _place(table: Any) -> str | None:
    parameters = table.get("Parameters") or {}
    is_iceberg = parameters.get("table_type", "").lower() == "iceberg"
    return parameters.get("metadata_location") if is_iceberg else None


def _account(catalog: Catalog) -> dict[str, str]:
    account_id = catalog.properties.get("glue.id")
    return {"CatalogId": account_id} if account_id else {}


def _text(identifier: Identifier) -> str:
    return ".".join(identifier)


def rename(catalog: Catalog, source: Identifier, target: Identifier) -> None:
    """Rename a table, or finish a rename that was cut short. Requests may be repeated whose answers are lost.

    Raises NoSuchTableError, TableAlreadyExistsError.
    """
    client: Any = catalog.glue  # type: ignore[attr-defined]
    table, account = _table(catalog, source), _account(catalog)
    place = None if table is None else _place(table)
    if place is None:
        raise NoSuchTableError(f"Table does not exist: {_text(source)}")
    made = {name: table[name] for name in _INPUT if name in table}
    made |= {"Name": target[1], "Parameters": {**table["Parameters"], _RENAMED_FROM: _text(source)}}
    try:
        client.create_table(DatabaseName=target[0], TableInput=made, **account)
    except client.exceptions.AlreadyExistsException as error:
        if entry(catalog, target) != place:
            raise TableAlreadyExistsError(f"Table {_text(target)} already exists") from error
    with suppress(client.exceptions.EntityNotFoundException):
        client.delete_table(DatabaseName=source[0], Name=source[1], **account)
