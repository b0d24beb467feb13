"""What the lake holds, read with PyIceberg: no JVM, milliseconds, and nothing again that has not changed.

Progress has one home: the label of the newest labelled ancestor of main, snapshot properties that a step's own commit
carries. A table property of the same name counts only where no snapshot has the label any more (maintenance writes it
before it expires snapshots).

    snapshot   cdc.applied-ts  cdc.applied-phase (ddl|rows)  cdc.ddl-ts  cdc.positions (without commit-ts only)
    namespace  cdc.release.… of `_cdc`: what people decided about single DDL (see `release`)
               cdc.complete.…: which tables people said to have had no rows before the changefeed
    table      cdc.changefeed  cdc.identity  cdc.name (the name it should have, "" once dropped)  cdc.key
               cdc.incomplete (the version before which rows are missing)  cdc.incomplete-of (whose: an identity)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile

from cdc_assets.errors import LakeUnavailable, TableHeld, TableMoved
from cdc_assets.history.completeness import Completed
from cdc_assets.history.releases import Release, Releases
from cdc_assets.lake import release_properties as kept
from cdc_assets.lake.catalogs.catalog import answering, close, entries, entry, local_path, open_catalog, read_bytes
from cdc_assets.lake.label import Label, kept_label
from cdc_assets.lake.metadata_file import MetadataFile, Snapshot, parse_metadata_file
from cdc_assets.lake.names import ASIDE, DROPPED, MOVING, OWN, Identifier, aside_name, moves, parse_identity, parse_name
from cdc_assets.model.progress import Applied, Gap, Life, Phase, Progress
from cdc_assets.model.schema import TableId
from cdc_assets.model.tso import Tso

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table.metadata import TableMetadata

    from cdc_assets.lake.staging.tasks import Landing
    from cdc_assets.settings.config import LakeSettings

__all__ = ["CHANGEFEED", "GAP", "IDENTITY", "KEY", "NAME", "Held", "Label", "LakeState"]

CHANGEFEED, IDENTITY, NAME, KEY = "cdc.changefeed", "cdc.identity", "cdc.name", "cdc.key"
GAP = ("cdc.incomplete", "cdc.incomplete-of")
"""Properties of an incomplete table only."""


# --- tables -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Held:
    """A table of this changefeed as the catalog has it now. `rows` is its row count, None when it cannot be told.

    `empty` tells that its data files have no rows at all, hidden ones neither: the first rows may be files of its own.
    `file_bytes` and `data_files` are what its newest snapshot says of its files, None where it says nothing.
    """

    identifier: Identifier
    metadata_location: str
    life: Life
    name: TableId | None
    label: Label
    snapshot_id: int | None
    rows: int | None
    empty: bool = False
    location: str = ""
    parent_id: int | None = None
    file_bytes: int | None = None
    data_files: int | None = None
    gap: Gap | None = None

    @property
    def applied(self) -> Applied:
        """The part that planning needs."""
        return Applied(self.label.progress, self.label.ddl, self.name, positions=self.label.positions, gap=self.gap)


@dataclass(frozen=True, slots=True)
class _Read:
    """What one metadata file says, None for a table that is not a changefeed's."""

    changefeed: str
    held: Held


_cache: dict[str, _Read | None] = {}
_cache_lock = Lock()


class LakeState:
    """The tables of one changefeed in a catalog. Metadata files never change, so each is read once per process."""

    def __init__(self, settings: LakeSettings, changefeed: str, namespace: str = "{schema}") -> None:
        self.settings = settings
        self.changefeed = changefeed
        self.namespace = namespace
        self._opened: Catalog | None = None
        self._seen: dict[Life, Identifier] = {}

    @property
    def catalog(self) -> Catalog:
        """PyIceberg's catalog, opened when first needed."""
        if self._opened is None:
            self._opened = open_catalog(self.settings)
        return self._opened

    def close(self) -> None:
        """Close the catalog's connections."""
        if self._opened is not None:
            close(self._opened)
        self._opened = None

    # --- tables ---

    def tables(self) -> dict[Life, Held]:
        """Return every table that this changefeed made, wherever it is now."""
        tables = {read.held.life: read.held for read in self._reads() if read.changefeed == self.changefeed}
        self._seen = {life: held.identifier for life, held in tables.items()}
        return tables

    def changefeeds(self) -> set[str]:
        """Return the names of all changefeeds that have tables in the catalog."""
        return {read.changefeed for read in self._reads()}

    def _reads(self) -> list[_Read]:
        for _ in range(3):
            standing = list(self.entries())
            try:
                unread = [place for _, place in standing if place not in _cache]
                if len(unread) > 1 and not any(map(local_path, unread)):
                    with ThreadPoolExecutor(8) as pool:
                        list(pool.map(self._interpreted, unread))
                reads = [self._standing(identifier, place) for identifier, place in standing]
            except FileNotFoundError as error:  # a commit retired it after the catalog had named it
                gone = error
                continue
            self._forget_retired({place for _, place in standing})
            return [read for read in reads if read is not None]
        raise LakeUnavailable(
            f"the lake's catalog names a metadata file that is not there ({gone}). Was the warehouse moved or cleaned?"
        )

    def entries(self) -> Iterator[tuple[Identifier, str]]:
        """Yield (identifier, metadata location) of every table in the catalog."""
        return entries(self.catalog)

    def place_of(self, identifier: Identifier) -> str | None:
        """Return the metadata location of what stands at a name, None where nothing does."""
        return entry(self.catalog, identifier)

    def find(self, life: Life) -> Held:
        """Return one table as it is now; raises TableMoved when it is not there."""
        held = self._where_it_was(life) or self.tables().get(life)
        if held is None:
            raise TableMoved(
                f"{life} is not in the lake: it was purged, or dropped by somebody else. Plan again.", table=str(life)
            )
        return held

    def _where_it_was(self, life: Life) -> Held | None:
        """Return a table that still has the name under which it was seen last, None where it must be looked for."""
        identifier = self._seen.get(life)
        place = self.place_of(identifier) if identifier is not None else None
        if identifier is None or place is None:
            return None
        try:
            read = self._standing(identifier, place)
        except FileNotFoundError:
            return None
        return read.held if read is not None and (read.changefeed, read.held.life) == (self.changefeed, life) else None

    def named(self, name: TableId) -> Held:
        """Return the table that should have a source name; raises KeyError."""
        for held in self.tables().values():
            if held.name == name:
                return held
        raise KeyError(str(name))

    def at(self, place: str, identifier: Identifier) -> Held:
        """Return a table as a metadata file tells it."""
        read = self._interpreted(place)
        if read is None:
            raise TableMoved(f"{'.'.join(identifier)} has no progress in {place}. Plan again.")
        return replace(read.held, identifier=identifier)

    def foreign(self, identifier: Identifier, life: Life) -> TableHeld:
        """Return the error about a table that stands where a life is to stand, and is none of those in `tables`."""
        properties = self._properties(identifier) or {}
        if IDENTITY in properties and properties.get(CHANGEFEED) == self.changefeed:
            return TableHeld(
                f"{'.'.join(identifier)} tells no progress: something other than `cdc-assets maintain` expired its "
                f"labelled snapshots. Drop it, and rebuild {life.born_as} from its history.",
                table=str(life),
            )
        owner = f"the changefeed {properties[CHANGEFEED]}'s" if CHANGEFEED in properties else "no changefeed's"
        return TableHeld(
            f"the lake's table {'.'.join(identifier)} is {owner}, and not the changefeed {self.changefeed}'s: {life} "
            "cannot stand there. Rename or drop that table, or give this changefeed another namespace pattern (setting "
            "namespace).",
            table=str(life),
        )

    def owner(self, name: TableId) -> str | None:
        """Return the changefeed whose table stands where one of that source name belongs: "" none's, None no table."""
        properties = self._properties(self.home(name))
        return properties.get(CHANGEFEED, "") if properties is not None else None

    def exists(self, identifier: Identifier) -> bool:
        """Tell whether anything is at a name."""
        with answering():
            return self.catalog.table_exists(identifier)

    def read(self, name: TableId) -> pa.Table:
        """Return the rows of a table by its source name; raises KeyError when there is none."""
        return self.catalog.load_table(self.named(name).identifier).scan().to_arrow()

    def row_counts(self) -> dict[str, int | None]:
        """Return the rows of each table that has a name, by the text of its life."""
        return {str(life): held.rows for life, held in self.tables().items() if held.name is not None}

    def tombstones(self) -> dict[Life, Applied]:
        """Return the progress of tables that were purged after their drop."""
        place = self.place_of((OWN, "tombstones"))
        if place is None:
            return {}
        if place not in _tombstones:
            rows = self.catalog.load_table((OWN, "tombstones")).scan().to_arrow().to_pylist()
            _tombstones.clear()
            _tombstones[place] = [(row["changefeed"], parse_identity(row["identity"]), row["dropped"]) for row in rows]
        return {
            life: Applied(Progress(dropped, Phase.DDL), dropped, None)
            for changefeed, life, dropped in _tombstones[place]
            if changefeed == self.changefeed
        }

    # --- what people decided ---

    def releases(self) -> Releases:
        """Return the releases of this changefeed: properties of the namespace OWN, one query."""
        return kept.parse_properties(self.own_properties(), self.changefeed)

    def release(self, release: Release) -> None:
        """Keep a release in one update, in place of an earlier one about the same DDL."""
        self.ensure_namespace(OWN)
        said = kept.format_properties(self.changefeed, release)
        old = kept.property_names(self.own_properties(), self.changefeed, release.life, release.version)
        self.catalog.update_namespace_properties((OWN,), removals=old - set(said), updates=said)

    def said_complete(self) -> tuple[Completed, ...]:
        """Return which tables people said to have had no rows before, by time: one query."""
        return kept.parse_complete(self.own_properties(), self.changefeed)

    def say_complete(self, one: Completed) -> None:
        """Keep that tables had no rows before, in place of what was said of the same pattern."""
        self.unsay_complete(one.pattern)
        self.ensure_namespace(OWN)
        self.catalog.update_namespace_properties((OWN,), updates=kept.format_complete(self.changefeed, one))

    def unsay_complete(self, pattern: str) -> None:
        """Forget what was said of a pattern."""
        old = kept.complete_names(self.own_properties(), self.changefeed, pattern)
        if old:
            self.catalog.update_namespace_properties((OWN,), removals=old)

    def unrelease(self, life: Life, version: Tso) -> None:
        """Forget a release."""
        old = kept.property_names(self.own_properties(), self.changefeed, life, version)
        if old:
            self.catalog.update_namespace_properties((OWN,), removals=old)

    def tell(self, name: str, value: str | None) -> None:
        """Set a property of the namespace OWN; None removes it."""
        if value is not None:
            self.ensure_namespace(OWN)
        removals, updates = ({name}, {}) if value is None else (set[str](), {name: value})
        with answering(), suppress(NoSuchNamespaceError):
            self.catalog.update_namespace_properties((OWN,), removals=removals, updates=updates)

    def forget(self, identifier: Identifier) -> None:
        """Take a table out of the catalog; its files stay."""
        with answering(), suppress(NoSuchTableError):
            self.catalog.drop_table(identifier)

    def own_properties(self) -> Mapping[str, str]:
        """Return the properties of the namespace OWN; none before it is made."""
        try:
            return self.catalog.load_namespace_properties((OWN,))
        except NoSuchNamespaceError:
            return {}
        except OSError as error:
            raise LakeUnavailable(f"the lake's catalog did not answer ({error}). Try again.") from error

    # --- snapshots ---

    def snapshot_with(self, life: Life, name: str, value: str) -> Snapshot | None:
        """Return the snapshot of a table's history that has a property of that value."""
        snapshots = self.file(self.find(life).metadata_location).lineage(across_rewrites=True)
        return next((one for one in snapshots if one.summary.get(name) == value), None)

    def has_snapshot(self, life: Life, name: str, value: str) -> bool:
        """Tell whether some snapshot of a table's history has a property of that value."""
        return self.snapshot_with(life, name, value) is not None

    def snapshot_below(self, held: Held, version: Tso) -> int:
        """Return the newest snapshot that has not seen the DDL of that version: the state before it.

        Not by progress: rows through a checkpoint that is the DDL's own TSO come before the DDL.
        """
        if held.snapshot_id is not None and held.label.ddl < version:
            return held.snapshot_id
        for snapshot in self.file(held.metadata_location).lineage(across_rewrites=True):
            label = Label.parse(snapshot.summary)
            if label is not None and label.ddl < version:
                return snapshot.snapshot_id
        raise TableHeld(
            f"{held.life}: no snapshot from before version {version} is left, so its rows cannot change places. "
            "Snapshots of a table must not be expired while an exchange is open; rebuild both tables.",
            table=str(held.life),
        )

    def summary(self, held: Held) -> Mapping[str, str]:
        """Return the newest snapshot's summary."""
        snapshot = self.file(held.metadata_location).snapshot
        return snapshot.summary if snapshot is not None else {}

    def landing(self, held: Held) -> Landing | None:
        """Return where data files of a table go, None where they may not be written without Iceberg's own writer."""
        metadata = self.metadata(held.metadata_location)
        told = metadata.properties
        plain = told.get("write.format.default", "parquet") == "parquet" and not metadata.spec().fields
        if not plain or told.get("write.object-storage.enabled", "false") == "true":
            return None
        from cdc_assets.lake.staging.tasks import Landing

        columns = {
            field.name: (str(field.field_type), field.field_id, getattr(field.field_type, "element_id", None))
            for field in metadata.schema().fields
        }
        directory = told.get("write.data.path") or f"{metadata.location}/data"
        return Landing(directory.rstrip("/"), metadata.current_schema_id, columns)

    def has_mark(self, held: Held, name: str, value: str) -> bool:
        """Tell whether any snapshot that a table's metadata still knows has a property of that value."""
        snapshots = self.file(held.metadata_location).snapshots.values()
        return any(one.summary.get(name) == value for one in snapshots)

    def file(self, place: str) -> MetadataFile:
        """Return what a metadata file says; raises FileNotFoundError."""
        data = read_bytes(self.catalog, place)
        try:
            return parse_metadata_file(data)
        except (ValueError, KeyError, TypeError) as error:
            raise LakeUnavailable(
                f"{place}: the catalog names it as a table's metadata, but it is no Iceberg metadata file ({error!r}). "
                "Restore the file, or take the table out of the catalog."
            ) from error

    def metadata(self, place: str) -> TableMetadata:
        """Return what a metadata file says as PyIceberg's model: schemas, specs and manifests too."""
        io = load_file_io(self.catalog.properties, place)
        return FromInputFile.table_metadata(io.new_input(place))

    def _properties(self, identifier: Identifier) -> Mapping[str, str] | None:
        place = self.place_of(identifier)
        return self.file(place).properties if place is not None else None

    def _interpreted(self, place: str) -> _Read | None:
        with suppress(KeyError):
            return _cache[place]
        read = _interpret(place, self.file(place))
        with _cache_lock:
            _cache[place] = read
        return read

    def _standing(self, identifier: Identifier, place: str) -> _Read | None:
        """Return what a metadata file says, with the name that its table has now."""
        read = self._interpreted(place)
        if read is not None and read.held.identifier != identifier:
            read = _Read(read.changefeed, replace(read.held, identifier=identifier))
            with _cache_lock:
                _cache[place] = read
        return read

    def _forget_retired(self, places: set[str]) -> None:
        """Keep the cache as small as what catalogs name now, and a thousand more."""
        with _cache_lock:
            if len(_cache) > 2 * len(places) + 1000:
                for place in _cache.keys() - places:
                    del _cache[place]

    # --- names ---

    def home(self, name: TableId) -> Identifier:
        """Return where a table of that source name stands."""
        return self.namespace.format(schema=name.schema), name.table

    def aside(self, life: Life) -> Identifier:
        """Return where a dropped table is kept."""
        return DROPPED, aside_name(self.changefeed, life)

    def refuse_reserved(self, name: TableId, life: Life) -> None:
        """Refuse a database that has the name of one of the lake's own namespaces."""
        reserved = self.home(name)[0].startswith(ASIDE) and not self.namespace.startswith(ASIDE)
        if reserved or self.home(name)[0] in (OWN, DROPPED, MOVING):
            raise TableHeld(
                f"{life}: the namespace {self.home(name)[0]} is kept for the lake itself. "
                "Give the changefeed another namespace pattern (setting namespace), such as src_{schema}.",
                table=str(life),
            )

    def ensure_namespace(self, namespace: str) -> None:
        """Create a namespace unless it is there; two that do so at once both succeed."""
        try:
            with answering():
                self.catalog.create_namespace((namespace,))
        except NamespaceAlreadyExistsError:
            return
        except Exception:
            try:
                with answering():
                    self.catalog.load_namespace_properties((namespace,))
            except NoSuchNamespaceError:
                pass
            else:
                return
            raise

    def settle_names(self) -> None:
        """Bring every table to the name that it should have; one whose name is still taken waits where it is."""
        silent: LakeUnavailable | None = None
        for attempt in range(5):
            tables = self.tables()
            wanted = {
                life: self.aside(life) if held.name is None else self.home(held.name) for life, held in tables.items()
            }
            now = {life: held.identifier for life, held in tables.items()}
            if now == wanted:
                return
            waiting = {life: (MOVING, aside_name(self.changefeed, life)) for life in tables}
            due = moves(now, wanted, waiting, [identifier for identifier, _ in self.entries()])
            for namespace in sorted({move.target[0] for move in due}):
                self.ensure_namespace(namespace)
            try:
                with answering():
                    for move in due:
                        self.catalog.rename_table(move.source, move.target)
            except (NoSuchTableError, TableAlreadyExistsError, LakeUnavailable) as error:
                silent = error if isinstance(error, LakeUnavailable) else None
                time.sleep(0.05 * 2**attempt)  # another run settles too
                continue
            return
        if silent is not None:
            raise silent
        raise TableMoved("tables are being renamed by somebody else. Plan again.")


_tombstones: dict[str, list[tuple[str, Life, Tso]]] = {}


def _interpret(place: str, file: MetadataFile) -> _Read | None:
    if IDENTITY not in file.properties:
        return None
    labels = (Label.parse(snapshot.summary) for snapshot in file.lineage())
    label = next((label for label in labels if label is not None), None) or kept_label(file)
    if label is None:
        return None
    snapshot = file.snapshot
    held = Held(
        identifier=("", ""),
        metadata_location=place,
        life=parse_identity(file.properties[IDENTITY]),
        name=parse_name(file.properties.get(NAME, "")),
        label=label,
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        rows=snapshot.rows if snapshot else 0,
        empty=snapshot.empty if snapshot else True,
        location=file.location,
        parent_id=snapshot.parent_id if snapshot else None,
        file_bytes=snapshot.number("total-files-size") if snapshot else 0,
        data_files=snapshot.number("total-data-files") if snapshot else 0,
        gap=Gap(parse_identity(file.properties[GAP[1]])) if GAP[1] in file.properties else None,
    )
    return _Read(file.properties.get(CHANGEFEED, ""), held)
