"""The lake's catalog as PyIceberg opens it: what stands in it, asked for with as few questions as it allows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io import load_file_io

from cdc_assets.errors import LakeUnavailable
from cdc_assets.lake.names import Identifier

if TYPE_CHECKING:
    from cdc_assets.settings.config import LakeSettings

__all__ = ["answering", "close", "entries", "entry", "local_path", "open_catalog", "read_bytes"]


@contextmanager
def answering() -> Iterator[None]:
    """Turn what database drivers and HTTP clients raise into LakeUnavailable."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("sqlalchemy", "sqlite3", "requests", "urllib3", "botocore"):
            raise LakeUnavailable(f"the lake's catalog did not answer ({error}). Try again.") from error
        raise


def open_catalog(settings: LakeSettings) -> Catalog:
    """Open the catalog; its tables may be being made by somebody else at this moment."""
    directory = settings.local_directory
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    for pause_seconds in (0.2, 1.0):
        with suppress(LakeUnavailable), answering():
            return load_catalog(settings.name, **settings.pyiceberg_properties())
        time.sleep(pause_seconds)
    with answering():
        return load_catalog(settings.name, **settings.pyiceberg_properties())


def close(catalog: Catalog) -> None:
    """Close the catalog's connections."""
    engine = getattr(catalog, "engine", None)
    if engine is not None:
        engine.dispose()


def entries(catalog: Catalog) -> Iterator[tuple[Identifier, str]]:
    """Yield (identifier, metadata location) of every table in the catalog; one query where it is a SQL database.

    PyIceberg lists no namespace with a dot at its beginning or end, so a SQL catalog is asked directly.
    """
    if hasattr(catalog, "engine"):
        yield from _sql_entries(catalog)
        return
    for namespace in catalog.list_namespaces():
        for identifier in catalog.list_tables(namespace):
            place = catalog.load_table(identifier).metadata_location
            yield (".".join(identifier[:-1]), identifier[-1]), place


def entry(catalog: Catalog, identifier: Identifier) -> str | None:
    """Return the metadata location of one table, None where there is none."""
    if hasattr(catalog, "engine"):
        return next((place for _, place in _sql_entries(catalog, identifier)), None)
    try:
        with answering():
            return catalog.load_table(identifier).metadata_location
    except (NoSuchNamespaceError, NoSuchTableError):
        return None


def _sql_entries(catalog: Catalog, only: Identifier | None = None) -> Iterator[tuple[Identifier, str]]:
    from pyiceberg.catalog.sql import IcebergTables as Known

    query = Known.__table__.select().where(Known.catalog_name == catalog.name)
    if only is not None:
        query = query.where(Known.table_namespace == only[0], Known.table_name == only[1])
    with answering(), catalog.engine.connect() as connection:  # type: ignore[attr-defined]
        rows = connection.execute(query).fetchall()
    for row in rows:
        if row.metadata_location:
            yield (row.table_namespace, row.table_name), row.metadata_location


def read_bytes(catalog: Catalog, place: str) -> bytes:
    """Return the bytes of one of the lake's files; raises FileNotFoundError."""
    local = local_path(place)
    if local is not None:
        return local.read_bytes()
    with load_file_io(catalog.properties, place).new_input(place).open() as source:
        return source.read()


def local_path(place: str) -> Path | None:
    """Return the path of a file on this machine, which is read without pyarrow: importing that takes longer."""
    path = place.removeprefix("file://")
    return Path(path) if path.startswith("/") else None
