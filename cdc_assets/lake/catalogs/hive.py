"""A Hive metastore: one request has the metadata locations of all tables of a database.

A connection of its protocol carries one question at a time, so that every thread has its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from threading import local
from typing import TYPE_CHECKING, Any

from cdc_assets.lake.names import Identifier

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

LISTS_LOCATIONS, VENDS = True, False


def one_connection_a_thread(catalog: Catalog) -> None:
    """Let every thread that uses the catalog have a connection of its own, to the first of its servers that answers."""
    logging.getLogger("thrift").setLevel(logging.CRITICAL)  # it says what is raised, too
    opened: Any = catalog
    each = [{**opened.properties, "uri": uri.strip()} for uri in opened.properties["uri"].split(",")]
    opened._client = _Connections([partial(opened._create_hive_client, properties) for properties in each])


class _Connections:
    """Stands for PyIceberg's client, a context manager that opens and closes its one connection."""

    def __init__(self, servers: Sequence[Callable[[], Any]]) -> None:
        self._servers = servers
        self._mine = local()

    def __enter__(self) -> Any:
        from thrift.transport.TTransport import TTransportException

        for server in self._servers[:-1]:
            with suppress(TTransportException):
                return self._entered(server())
        return self._entered(self._servers[-1]())

    def _entered(self, client: Any) -> Any:
        opened = client.__enter__()
        self._mine.client = client
        return opened

    def __exit__(self, *error: Any) -> None:
        self._mine.client.__exit__(*error)


def entries(catalog: Catalog) -> Iterator[tuple[Identifier, str]]:
    """Yield (identifier, metadata location) of every Iceberg table."""
    from hive_metastore.ttypes import NoSuchObjectException, UnknownDBException

    with catalog._client as client:  # type: ignore[attr-defined]
        for database in client.get_all_databases():
            try:
                tables = client.get_table_objects_by_name(database, client.get_all_tables(database))
            except (NoSuchObjectException, UnknownDBException):  # dropped since it was listed
                continue
            for table in tables:
                place = _place(table)
                if place is not None:
                    yield (database, table.tableName), place


def names(catalog: Catalog) -> Iterator[Identifier]:
    """Yield the identifier of every Iceberg table."""
    yield from (identifier for identifier, _ in entries(catalog))


def entry(catalog: Catalog, identifier: Identifier) -> str | None:
    """Return the metadata location of one table, None where there is none."""
    from hive_metastore.ttypes import NoSuchObjectException

    with catalog._client as client:  # type: ignore[attr-defined]
        try:
            return _place(client.get_table(*identifier))
        except NoSuchObjectException:
            return None


def rename(catalog: Catalog, source: Identifier, target: Identifier) -> None:
    """Rename a table."""
    catalog.rename_table(source, target)


def _place(table: Any) -> str | None:
    parameters = table.parameters or {}
    is_iceberg = parameters.get("table_type", "").lower() == "iceberg"
    return parameters.get("metadata_location") if is_iceberg else None
