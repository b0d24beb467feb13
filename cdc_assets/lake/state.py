"""The state of the lake, read with PyIceberg: no JVM, in milliseconds, and only what has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchTableError

from cdc_assets.errors import LakeUnavailable, TableHeld, TableMoved
from cdc_assets.lake import namespaces
from cdc_assets.lake.catalogs.catalog import (
    LazyCatalog,
    entries,
    entry,
    io_of,
    lists_locations,
    rename,
)
from cdc_assets.lake.failures import answering
from cdc_assets.lake.label import Label
from cdc_assets.lake.lake_table import CHANGEFEED, IDENTITY, LakeTable, OwnedTable, read_file, read_owned, read_standing
from cdc_assets.lake.metadata_file import MetadataFile, Snapshot
from cdc_assets.lake.names import Identifier, OwnNamespaces, Places, format_identity, parse_identity
from cdc_assets.lake.namespaces import DecisionStore
from cdc_assets.model.progress import AppliedState, Life, Phase, Progress
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog

    from cdc_assets.lake.growing import GrowingTable
    from cdc_assets.settings.lake import LakeSettings

TOMBSTONES = "tombstones"
"""The lake's own table of purged tables: the TSO of each one's DROP. A purge that is repeated adds its row again."""


class LakeState:
    """The tables of one changefeed in a catalog. Metadata files never change, so each is read once per process."""

    def __init__(self, settings: LakeSettings, changefeed: str, namespace: str = "{schema}") -> None:
        self.settings = settings
        self.changefeed = changefeed
        own = OwnNamespaces(settings.namespaces)
        self.places = Places(changefeed, namespace, own, settings.kind.folds_names, settings.kind.plain_names)
        self.lazy_catalog = LazyCatalog(settings)
        self.decisions = DecisionStore(self.lazy_catalog, changefeed, own.main)
        self._seen: dict[Life, LakeTable] = {}
        self._listed: dict[Identifier, str] | None = None

    @property
    def catalog(self) -> Catalog:
        """PyIceberg's catalog to read it, opened when first needed."""
        return self.lazy_catalog.open()

    def close(self) -> None:
        """Close the catalog's connections."""
        self.lazy_catalog.close()

    # --- tables ---

    def tables(self) -> dict[Life, LakeTable]:
        """Return every table that this changefeed created, whatever its name is now."""
        self._seen = {
            owned_table.lake_table.life: owned_table.lake_table
            for owned_table in self._owned()
            if owned_table.changefeed == self.changefeed
        }
        return dict(self._seen)

    def known(self) -> dict[Life, LakeTable]:
        """Return the tables as `tables` does; if a look takes several requests, as looks and steps here last saw it.

        Whoever acts on it has to notice what another writer has changed since.
        """
        return dict(self._seen) if self._listed is not None and not lists_locations(self.catalog) else self.tables()

    def listed(self) -> Mapping[Identifier, str]:
        """Return the metadata location of every table in the catalog by name, as of the last listing."""
        return dict(self.entries()) if self._listed is None else self._listed

    def note(self, lake_table: LakeTable, before: Identifier | None = None) -> LakeTable:
        """Record a table of this changefeed as a step left it, and its name before."""
        self._seen[lake_table.life] = lake_table
        if self._listed is not None:
            if before is not None:
                self._listed.pop(before, None)
            self._listed[lake_table.identifier] = lake_table.metadata_location
        return lake_table

    def changefeeds(self) -> set[str]:
        """Return the names of all changefeeds that have tables in the catalog."""
        return {owned_table.changefeed for owned_table in self._owned()}

    def _owned(self) -> list[OwnedTable]:
        for _ in range(3):
            try:
                return read_standing(self.catalog, self.entries())
            except FileNotFoundError as error:  # a commit removed it after it was listed
                gone = error
        raise LakeUnavailable(
            f"the lake's catalog names a metadata file that does not exist ({gone}). Was the warehouse moved or "
            "cleaned? Put the files back where they were; without them drop the table from the catalog, and apply "
            "builds it anew."
        )

    def entries(self) -> Iterator[tuple[Identifier, str]]:
        """Yield (identifier, metadata location) of every table in the catalog."""
        self._listed = dict(entries(self.catalog))
        return iter(self._listed.items())

    def place_of(self, identifier: Identifier) -> str | None:
        """Return the metadata location of the table of a name, None if there is none."""
        return entry(self.catalog, identifier)

    def find(self, life: Life) -> LakeTable:
        """Return one table as it is now; raises TableHeld if it was purged, TableMoved if it does not exist."""
        lake_table = self.where_it_was(life) or self.tables().get(life)
        if lake_table is None and life in self.tombstones():
            raise TableHeld(
                f"{life} was purged after its DROP, so its rows are gone from the lake. Copy them into a new table at "
                "the source: that one is applied.",
                table=str(life),
            )
        if lake_table is None:
            raise TableMoved(f"{life} is not in the lake: another program dropped it. Plan again.", table=str(life))
        return lake_table

    def last(self, life: Life) -> LakeTable:
        """Return one table as a look or a step last saw it; raises TableMoved if there is none."""
        return self._seen.get(life) or self.find(life)

    def where_it_was(self, life: Life) -> LakeTable | None:
        """Return a table as it is now if it still has the name under which it was last seen, else None."""
        identifier = self._seen[life].identifier if life in self._seen else None
        place = self.place_of(identifier) if identifier is not None else None
        if identifier is None or place is None:
            return None
        try:
            owned = read_owned(self.catalog, place, identifier)
        except FileNotFoundError:
            return None
        is_own_table = owned is not None and (owned.changefeed, owned.lake_table.life) == (self.changefeed, life)
        return owned.lake_table if owned is not None and is_own_table else None

    def seen(self, life: Life) -> LakeTable | None:
        """Return one table as it was last seen, None if it was not."""
        return self._seen.get(life)

    def io(self, lake_table: LakeTable) -> dict[str, str]:
        """Return PyIceberg's properties for a table's files."""
        return io_of(self.catalog, lake_table.identifier, lake_table.metadata_location)

    def named(self, name: TableId) -> LakeTable:
        """Return the table that should have a source name; raises KeyError."""
        for lake_table in self.tables().values():
            if lake_table.name == name:
                return lake_table
        raise KeyError(str(name))

    def at(self, place: str, identifier: Identifier) -> LakeTable:
        """Return a table by its metadata file."""
        owned = read_owned(self.catalog, place, identifier)
        if owned is None:
            raise TableMoved(f"{'.'.join(identifier)} has no progress in {place}. Plan again.")
        return owned.lake_table

    def foreign(self, identifier: Identifier, life: Life) -> TableHeld:
        """Return the error about a table that has the name meant for a life, and is not one of `tables`."""
        properties = self._properties(identifier) or {}
        if IDENTITY in properties and properties.get(CHANGEFEED) == self.changefeed:
            return TableHeld(
                f"{'.'.join(identifier)} has no progress: something other than `cdc-assets maintain` expired its "
                f"labelled snapshots. Drop it, and rebuild {life.born_as} from its history.",
                table=str(life),
            )
        owner = f"the changefeed {properties[CHANGEFEED]}'s" if CHANGEFEED in properties else "no changefeed's"
        return TableHeld(
            f"the lake's table {'.'.join(identifier)} is {owner}, and not the changefeed {self.changefeed}'s: {life} "
            "cannot have that name. If it is the same changefeed, give it that name (setting name, --name); else "
            "rename or drop that table, or give this changefeed another namespace pattern (setting namespace).",
            table=str(life),
        )

    def owner(self, name: TableId) -> str | None:
        """Return the changefeed of the table at the place of a source name: "" for none, None without a table."""
        properties = self._properties(self.places.home(name))
        return properties.get(CHANGEFEED, "") if properties is not None else None

    def exists(self, identifier: Identifier) -> bool:
        """Return whether a name is taken."""
        with answering():
            return self.catalog.table_exists(identifier)

    def read(self, name: TableId) -> pa.Table:
        """Return the rows of a table by its source name; raises KeyError if there is none."""
        return self.catalog.load_table(self.named(name).identifier).scan().to_arrow()

    def row_counts(self) -> dict[str, int | None]:
        """Return the rows of each table that has a name, by the text of its life."""
        return {str(life): table.rows for life, table in self.tables().items() if table.name is not None}

    def tombstones(self) -> dict[Life, AppliedState]:
        """Return the progress of tables that were purged after their drop."""
        identifier = (self.places.own.main, TOMBSTONES)
        place = self.listed().get(identifier)
        if place is None:
            return {}
        if place not in _tombstones:
            rows = self.catalog.load_table(identifier).scan().to_arrow().to_pylist()
            _tombstones.clear()
            _tombstones[place] = [(row["changefeed"], parse_identity(row["identity"]), row["dropped"]) for row in rows]
        return {
            life: AppliedState(Progress(dropped, Phase.DDL), dropped, None)
            for changefeed, life, dropped in _tombstones[place]
            if changefeed == self.changefeed
        }

    def bury(self, life: Life, dropped: Tso) -> None:
        """Record that a table is purged, with the TSO of its DROP, before its files go; no JVM."""
        import pyarrow as pa

        tombstone = {"changefeed": self.changefeed, "identity": format_identity(life), "dropped": dropped}
        text = pa.field("changefeed", pa.string(), nullable=False)
        rows = pa.Table.from_pylist([tombstone], pa.schema([text, ("identity", pa.string()), ("dropped", pa.int64())]))
        self.own_table(TOMBSTONES, rows.schema).add(self.changefeed, [rows])

    def own_table(self, name: str, columns: pa.Schema | None = None) -> GrowingTable:
        """Return a table of the lake itself, of all changefeeds, partitioned by `changefeed`; `columns` create it."""
        from cdc_assets.lake.growing import GrowingTable  # it takes half a second, and most runs write none

        identifier, settings = (self.places.own.main, name), self.settings
        place = "/".join((settings.root, *identifier))
        return GrowingTable(settings, identifier, columns, "changefeed", f"cdc.{name}.", place, self.lazy_catalog)

    def rename(self, life: Life, source: Identifier, target: Identifier) -> None:
        """Rename a table of this changefeed, which was seen under its old name."""
        rename(self.catalog, source, target)
        if life in self._seen:
            self.note(replace(self._seen[life], identifier=target), source)

    def discard_listing(self) -> None:
        """List the catalog again at the next use."""
        self._listed = None

    def ensure_namespace(self, namespace: str) -> None:
        """Create a namespace unless it is there."""
        if all(standing != namespace for standing, _ in self.listed()):
            namespaces.ensure_namespace(self.lazy_catalog.make(), namespace)

    def unregister(self, identifier: Identifier) -> None:
        """Remove a table from the catalog; its files stay."""
        with answering(), suppress(NoSuchTableError):
            self.catalog.drop_table(identifier)

    # --- snapshots ---

    def file(self, place: str) -> MetadataFile:
        """Return the content of a metadata file; raises FileNotFoundError."""
        return read_file(self.catalog, place)

    def label_of(self, table: LakeTable, snapshot_id: int) -> Label:
        """Return the label of a table in a snapshot: how far it was applied."""
        labels = (
            Label.parse(snapshot.summary) for snapshot in self.file(table.metadata_location).lineage_of(snapshot_id)
        )
        return next((label for label in labels if label is not None), table.label)

    def snapshot_with(self, life: Life, name: str, value: str) -> Snapshot | None:
        """Return the snapshot of a table's history that has a property of that value."""
        snapshots = self.file(self.find(life).metadata_location).lineage(across_rewrites=True)
        return next((snapshot for snapshot in snapshots if snapshot.summary.get(name) == value), None)

    def has_mark(self, lake_table: LakeTable, name: str, value: str) -> bool:
        """Return whether any snapshot in a table's metadata has a property of that value."""
        snapshots = self.file(lake_table.metadata_location).snapshots.values()
        return any(snapshot.summary.get(name) == value for snapshot in snapshots)

    def summary(self, lake_table: LakeTable) -> Mapping[str, str]:
        """Return the newest snapshot's summary."""
        snapshot = self.file(lake_table.metadata_location).snapshot
        return snapshot.summary if snapshot is not None else {}

    def _properties(self, identifier: Identifier) -> Mapping[str, str] | None:
        place = self.place_of(identifier)
        return self.file(place).properties if place is not None else None


_tombstones: dict[str, list[tuple[str, Life, Tso]]] = {}
