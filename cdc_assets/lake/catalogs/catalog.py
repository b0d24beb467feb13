"""The lake's catalog as PyIceberg opens it: its tables, listed with as few requests as possible."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io import load_file_io

from cdc_assets.errors import BadSettings, LakeUnavailable
from cdc_assets.io.drivers import refuse_silent
from cdc_assets.lake.catalogs import absent, glue, hive, rest, sql
from cdc_assets.lake.catalogs.remembered import io_properties, keep_only, knows, recall
from cdc_assets.lake.failures import answering, hide
from cdc_assets.lake.names import Identifier

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from cdc_assets.settings.lake import LakeSettings


def open_catalog(settings: LakeSettings) -> Catalog:
    """Open the catalog; another process may be creating its tables at the same time."""
    settings.make_directory()
    hide(settings.secrets)
    # Nobody may listen at a server that the settings name by URL, and clients retry for minutes.
    for name, url in settings.servers.items():
        try:
            refuse_silent(
                url,
                lambda place, silence, name=name: LakeUnavailable(  # type: ignore[misc]
                    f"no server answers at {place} ({silence}). Check {name} of lake.catalog; if it is right, try "
                    "again later."
                ),
            )
        except ValueError as error:
            raise BadSettings(f"lake.catalog: {name} is {url!r}: {error}. Correct the port in it.") from None
    for pause_seconds in (0.2, 1.0):
        with suppress(LakeUnavailable):
            return _opened(settings)
        time.sleep(pause_seconds)
    return _opened(settings)


def _opened(settings: LakeSettings) -> Catalog:
    with answering():
        catalog = load_catalog(settings.name, **settings.pyiceberg_properties())
    if _listing(catalog) is hive:
        hive.one_connection_a_thread(catalog)
    _refuse_another_place(settings, catalog)
    return catalog


def _refuse_another_place(settings: LakeSettings, catalog: Catalog) -> None:
    """Raise BadSettings where a lake that is one directory was moved or copied: it names its files by full paths.

    What is done in a copy would write to the directory that it was copied from, and remove files there.
    """
    directory = settings.local_directory
    if directory is None or settings.catalog.get("uri") != f"jdbc:sqlite:{directory}/catalog.db":
        return
    files = [file for _, place in sql.entries(catalog) if (file := local_path(place)) is not None]
    root = directory.resolve()
    if not files or any(directory in file.parents or root in file.resolve().parents for file in files):
        return
    made_at = files[0].parents[3]  # of warehouse/namespace/table/metadata/file
    anew = "or apply the changefeed to an empty directory"
    if (made_at / "catalog.db").exists():
        raise BadSettings(
            f"the lake {directory} is a copy of {made_at}: its catalog names the files of that one by their full "
            f"paths, so what is done here would change them there. Use that one, {anew}."
        )
    if not files[0].exists():
        raise BadSettings(
            f"the lake {directory} was made at {made_at}, and names its files by that path, where they are not any "
            f"more. Move it back there, or let a symbolic link of that name lead to it, {anew}."
        )


class LazyCatalog:
    """The catalog of an owner that opens it when it is first needed, and closes it at its own end.

    One in a file is made by the first write: before, it is a catalog without tables.
    """

    def __init__(self, settings: LakeSettings) -> None:
        self._settings = settings
        self._opened: Catalog | None = None

    def open(self) -> Catalog:
        """Return the catalog to read it, opened if it is not yet."""
        if self._opened is None or isinstance(self._opened, absent.AbsentCatalog):
            file = self._settings.catalog_file
            if file is not None and not file.exists():
                self._opened = self._opened or absent.AbsentCatalog(self._settings.name)
            else:
                self._opened = open_catalog(self._settings)
        return self._opened

    def make(self) -> Catalog:
        """Return the catalog to write to it, made if it is not there."""
        if isinstance(catalog := self.open(), absent.AbsentCatalog):
            self._opened = catalog = open_catalog(self._settings)
        return catalog

    def close(self) -> None:
        """Close the catalog's connections; it may be opened again."""
        if self._opened is not None:
            close(self._opened)
        self._opened = None


def close(catalog: Catalog) -> None:
    """Close the catalog's connections."""
    engine = getattr(catalog, "engine", None)
    if engine is not None:
        engine.dispose()


class CatalogListing(Protocol):
    """The interface of this folder's modules: the tables in a type of catalog.

    `LISTS_LOCATIONS`: a listing has the locations of metadata. `VENDS`: an answer about a table may have credentials
    for its files.
    """

    LISTS_LOCATIONS: bool
    VENDS: bool

    def entries(self, catalog: Catalog) -> Iterator[tuple[Identifier, str]]:
        """Yield (identifier, metadata location) of every table."""

    def names(self, catalog: Catalog) -> Iterator[Identifier]:
        """Yield the identifier of every table."""

    def entry(self, catalog: Catalog, identifier: Identifier) -> str | None:
        """Return the metadata location of one table, None where there is none."""

    def rename(self, catalog: Catalog, source: Identifier, target: Identifier) -> None:
        """Rename a table."""


LISTINGS: dict[str, CatalogListing] = {
    "SqlCatalog": sql,
    "RestCatalog": rest,
    "GlueCatalog": glue,
    "HiveCatalog": hive,
    "AbsentCatalog": absent,
}
"""Functions that list the tables of a catalog, by the name of PyIceberg's class."""


def entries(catalog: Catalog) -> Iterator[tuple[Identifier, str]]:
    """Yield (identifier, metadata location) of every table in the catalog, with as few requests as possible."""
    with answering():
        table_places = list(_listing(catalog).entries(catalog))
    keep_only(catalog, {place for _, place in table_places})
    yield from table_places


def names(catalog: Catalog) -> set[Identifier]:
    """Return the identifiers of all tables in the catalog."""
    with answering():
        return set(_listing(catalog).names(catalog))


def entry(catalog: Catalog, identifier: Identifier) -> str | None:
    """Return the metadata location of one table, None where there is none."""
    with answering():
        return _listing(catalog).entry(catalog, identifier)


def rename(catalog: Catalog, source: Identifier, target: Identifier) -> None:
    """Rename a table. Raises PyIceberg's NoSuchTableError, TableAlreadyExistsError."""
    with answering():
        _listing(catalog).rename(catalog, source, target)


def lists_locations(catalog: Catalog) -> bool:
    """Return whether a listing has the locations of metadata, so that all tables cost no more than their names."""
    return _listing(catalog).LISTS_LOCATIONS


def io_of(catalog: Catalog, identifier: Identifier, place: str) -> dict[str, str]:
    """Return PyIceberg's properties for a table's files, requested if no answer had them that still hold."""
    if _listing(catalog).VENDS and not knows(catalog, place):
        entry(catalog, identifier)
    return io_properties(catalog, place)


def _listing(catalog: Catalog) -> CatalogListing:
    return LISTINGS.get(type(catalog).__name__, hive)


def read_bytes(catalog: Catalog, place: str) -> bytes:
    """Return the bytes of a table's metadata file; raises FileNotFoundError."""
    local = local_path(place)
    if local is not None:
        return local.read_bytes()
    body = recall(catalog, place)
    if body is not None:
        return body
    with answering(), table_io(catalog, place).new_input(place).open() as source:
        return source.read()


def table_io(catalog: Catalog, place: str) -> FileIO:
    """Return PyIceberg's access to the files of the table whose metadata file is at `place`."""
    return load_file_io(io_properties(catalog, place), place)


def local_path(place: str) -> Path | None:
    """Return the path of a local file, which is read without pyarrow, because importing pyarrow takes longer."""
    path = place.removeprefix("file://")
    return Path(path) if path.startswith("/") else None
